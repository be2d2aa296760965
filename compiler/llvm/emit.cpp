// emit: see emit.h.
//
// The shape of a kernel:
//
//   entry                        words are loaded where they are first needed; the first item's indices are found by division
//   for item in begin .. end     outer loops and tiles, carried incrementally
//     map    [transposed tiles into scratch]  for j in tile: body
//     lanes  for each sweep: for block: for j: body into lanes; lanes halved; tree of blocks; then what rows compute from it
//     rows   for each sweep: for eight rows: for j in tile: body; tree of eight into a row of accumulators; tree of blocks; then rows
//
// A statement is computed in the outermost place where its loops are known: in the entry, once an item, once an iteration of the serial
// loops, or in the vector body. A Region is such a place: a block that everything inside it passes through, filled on demand.
#include "compiler/llvm/emit.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/llvm/builder.h"
#include "compiler/llvm/count.h"
#include "compiler/plan/scratch.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler {
namespace {

using ir::Op;
using llvm::BasicBlock;
using llvm::Value;
constexpr std::uint32_t kNone = Statement::kNone;

struct Region {
  Region* parent = nullptr;
  Region* before = nullptr;                            // that of the iteration before, where it stands in the same block of code
  BasicBlock* hoist = nullptr;                         // code goes before its terminator
  std::unordered_map<std::uint32_t, Value*> values;    // statements
  std::unordered_map<std::uint32_t, Value*> pointers;  // accesses: of the loops known here, the vector loop at the tile's start
  std::unordered_map<std::uint32_t, Value*> derived;   // derived variables
};

// The vector loop's body, once: at index j of the tile (or row), under a mask or none.
struct Body {
  Region* around;
  Value* j;
  Value* mask = nullptr;
  Value* remaining = nullptr;  // lanes of the mask
  std::uint8_t sweep = 0;
  std::unordered_map<std::uint32_t, Value*> values = {};
  std::unordered_map<std::uint32_t, Value*> derived = {};
  std::unordered_map<std::uint32_t, std::vector<Value*>> families = {};  // whole vectors, by the first access
};

class Emitter {
 public:
  Emitter(const CodegenRequest& request, llvm::Module& module)
      : nest_(*request.nest),
        known_(request.known),
        schedule_(*request.schedule),
        words_(nest_),
        layout_(nest_, schedule_),
        module_(module),
        context_(module.getContext()),
        b_(context_),
        k_(b_, {request.target->converts_f16(), request.target->has_avx2(), request.target->has_avx512()}, request.tier == Tier::Quick),
        quick_(request.tier == Tier::Quick),
        width_(static_cast<unsigned>(schedule_.width)),
        needed_(needed_by_sweep(nest_, schedule_.row_scratch ? schedule_.kept : std::vector<std::uint32_t>{})) {}

  void run(const Target& target) {
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, b_.getInt64Ty(), b_.getInt64Ty(), pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "kernel", module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("target-cpu", target.cpu);
    function_->addFnAttr("target-features", target.features);
    function_->addFnAttr("prefer-vector-width", std::to_string(8 * schedule_.vector_bytes));
    function_->addFnAttr("no-builtins");
    BasicBlock* entry = block("entry");
    b_.SetInsertPoint(entry);
    dummy_ = b_.CreateAlloca(b_.getInt64Ty(), i64(8));
    b_.CreateStore(i64(0), dummy_);
    if (nest_.has(Statement::Kind::Place)) {  // before any place that is made in the entry
      flag_ = b_.CreateAlloca(b_.getInt64Ty());
      b_.CreateStore(i64(0), flag_);
    }
    BasicBlock* start = block("start");
    b_.CreateBr(start);
    entry_.hoist = entry;
    b_.SetInsertPoint(start);
    if (spreads()) spread_slots();
    if (nest_.short_rows) make_patterns();
    phases();
    if (flag_)
      when(b_.CreateICmpNE(read(flag_), i64(0)), [&] {
        Value* flag = b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.flag)), llvm::Align(8));
        b_.CreateAlignedStore(i64(1), flag, llvm::Align(8));
      });
    if (!schedule_.streamed.empty()) fence(target);
    b_.CreateRetVoid();
  }

 private:
  const Nest& nest_;
  const KnownWords* known_;
  const Schedule& schedule_;
  WordLayout words_;
  ScratchLayout layout_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  KernelBuilder k_;
  bool quick_;
  unsigned width_;
  std::vector<std::vector<bool>> needed_;
  llvm::Function* function_ = nullptr;
  llvm::Value* dummy_ = nullptr;  // zeros for scalar loads whose guard is false
  Region entry_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Region*> stages_;  // of the item: what is known after each sweep
  Region* serial_ = nullptr;     // of the current iteration of the serial loops
  std::vector<Value*> index_;    // of each loop, where known; of the vector loop: the tile's start
  std::unordered_map<std::uint32_t, Value*> word_values_;
  Value* unit_ = nullptr;  // elements of a scratch row
  // of a split schedule:
  std::uint8_t phase_ = 0;
  Value* chunk_ = nullptr;                               // of the item: which of its row
  Value* row_ = nullptr;                                 // of the item: its row (or tile) among all
  Value *chunk_begin_ = nullptr, *chunk_end_ = nullptr;  // elements of r
  Value* item_ = nullptr;                                // its number
  Value* flag_ = nullptr;                                // above 0 once an index was bad
  struct ScanState {                                     // vectors of one number
    Value *carry, *base;
  };
  std::map<std::uint32_t, ScanState> scans_;  // of the item, along the vector loop

  // ---------------------------------------------------------------------------------------------- small words
  Value* i64(std::int64_t v) { return b_.getInt64(static_cast<std::uint64_t>(v)); }
  BasicBlock* block(const char* name) { return BasicBlock::Create(context_, name, function_); }
  Value* argument(unsigned i) { return function_->getArg(i); }
  std::uint64_t bit(std::uint32_t loop) const { return std::uint64_t{1} << loop; }
  std::uint64_t vector_bit() const { return bit(nest_.vector_loop()); }
  bool packs() const { return !schedule_.packed.empty(); }
  // loops inside an item that are not the vector loop
  std::uint64_t serial_bits() const {
    if (packs()) return bit(nest_.outer - 1u);
    return ((std::uint64_t{1} << nest_.serial) - 1) << nest_.outer;
  }
  std::uint64_t outer_bits() const { return (bit(nest_.outer) - 1) & ~serial_bits(); }

  llvm::Type* memory_type(DType t, unsigned width) {
    if (t == DType::Bool) return width ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b_.getInt8Ty(), width)) : b_.getInt8Ty();
    return k_.type(is_half(t) ? DType::U16 : t, width);
  }
  Value* from_memory(DType t, Value* v) {
    if (is_half(t)) return k_.of_half_bits(v, t);
    return t == DType::Bool ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
  }
  Value* to_memory(DType t, Value* v) {
    if (is_half(t)) return k_.half_bits(v, t);
    if (t != DType::Bool) return v;
    const bool vector = v->getType()->isVectorTy();
    return b_.CreateZExt(v, memory_type(t, vector ? width_of(v) : 0));
  }
  static unsigned width_of(Value* v) {
    auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    return t ? t->getNumElements() : 0;
  }
  Value* iota(unsigned width) {
    std::vector<llvm::Constant*> lanes;
    for (unsigned i = 0; i < width; ++i) lanes.push_back(b_.getInt64(i));
    return llvm::ConstantVector::get(lanes);
  }
  Value* bytes(Value* pointer, Value* offset) { return b_.CreateGEP(b_.getInt8Ty(), pointer, offset); }
  Value* bytes(Value* pointer, std::int64_t offset) { return offset ? bytes(pointer, i64(offset)) : pointer; }
  Value* smaller(Value* a, Value* c) { return b_.CreateSelect(b_.CreateICmpSLT(a, c), a, c); }
  Value* up(Value* a, Value* to) { return b_.CreateUDiv(b_.CreateAdd(a, b_.CreateSub(to, i64(1))), to); }

  // Inserts into a region, whatever is being emitted now.
  template <class F> auto in(Region& region, F&& f) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(region.hoist->getTerminator());
    return f();
  }
  Region* region(Region* parent, const char* name) {
    regions_.push_back(std::make_unique<Region>());
    Region* r = regions_.back().get();
    r->parent = parent;
    r->hoist = block(name);
    b_.CreateBr(r->hoist);
    BasicBlock* next = block("");
    b_.SetInsertPoint(r->hoist);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    return r;
  }
  bool is_known(std::uint32_t word) const { return known_ && known_->known[word]; }
  Value* word(std::uint32_t at) {
    if (is_known(at)) return i64(known_->words[at]);
    if (const auto it = word_values_.find(at); it != word_values_.end()) return it->second;
    return word_values_[at] = in(entry_, [&] {
             return b_.CreateAlignedLoad(b_.getInt64Ty(), bytes(argument(0), 8 * static_cast<std::int64_t>(at)), llvm::Align(8));
           });
  }
  Value* base_pointer(std::uint32_t access) {
    if (const auto it = entry_.pointers.find(access); it != entry_.pointers.end()) return it->second;
    return entry_.pointers[access] = in(entry_, [&] {
             return b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.pointers + access)),
                                         llvm::Align(8));
           });
  }
  Value* extent(std::uint32_t loop) { return word(words_.extents + loop); }

  // A vector of a scalar, made where the scalar is, so that loops do not repeat it.
  Value* splat(Value* v, unsigned width) {
    if (auto* c = llvm::dyn_cast<llvm::Constant>(v)) return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(width), c);
    Value*& made = splats_[{v, width}];
    if (made) return made;
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    if (auto* phi = llvm::dyn_cast<llvm::PHINode>(v)) b_.SetInsertPoint(phi->getParent(), phi->getParent()->getFirstNonPHIIt());
    else if (auto* instruction = llvm::dyn_cast<llvm::Instruction>(v)) {
      auto next = std::next(instruction->getIterator());
      b_.SetInsertPoint(instruction->getParent(), next);
    } else b_.SetInsertPoint(entry_.hoist->getTerminator());
    return made = b_.CreateVectorSplat(width, v);
  }
  std::map<std::pair<Value*, unsigned>, Value*> splats_;

  // Where a specialised kernel knows it.
  static std::optional<std::int64_t> number(Value* v) {
    const auto* c = llvm::dyn_cast<llvm::ConstantInt>(v);
    return c ? std::optional(c->getSExtValue()) : std::nullopt;
  }

  // for (i = begin; i < end; i += step) f(i)
  void loop(const char* name, Value* begin, Value* end, Value* step, const std::function<void(Value*)>& f) {
    if (const std::optional<std::int64_t> first = number(begin), last = number(end), by = number(step); first && last && by) {
      if (*first >= *last) return;
      if (*first + *by >= *last) return f(begin);  // once: no loop
    }
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* head = block(name);
    BasicBlock* inside = block("");
    BasicBlock* after = block("");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(begin, before);
    b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
    b_.SetInsertPoint(inside);
    f(i);
    i->addIncoming(b_.CreateAdd(i, step), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }
  void when(Value* condition, const std::function<void()>& f) {
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
      if (known->isOne()) f();
      return;
    }
    BasicBlock* then = block("");
    BasicBlock* after = block("");
    b_.CreateCondBr(condition, then, after);
    b_.SetInsertPoint(then);
    f();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }
  Value* variable(llvm::Type* type, Value* initial) {  // mem2reg makes it a register
    Value* v = in(entry_, [&] { return b_.CreateAlloca(type); });
    if (initial) b_.CreateStore(initial, v);
    return v;
  }
  Value* read(Value* v) { return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(v)->getAllocatedType(), v); }

  bool spreads() const { return quick_ && layout_.spread.any; }
  llvm::Align spread_alignment() const { return llvm::Align(std::min<std::uint64_t>(64, layout_.spread.each & -layout_.spread.each)); }
  void spread_slots() {
    const SpreadSlots& spread = layout_.spread;
    llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(8 * spread.element));
    loop("spread", i64(0), i64(static_cast<std::int64_t>(nest_.slots.size())), i64(1), [&](Value* i) {
      Value* from = bytes(argument(0), b_.CreateMul(b_.CreateAdd(i, i64(words_.slots)), i64(8)));
      Value* vector =
          b_.CreateVectorSplat(static_cast<unsigned>(spread.each / spread.element), b_.CreateAlignedLoad(type, from, llvm::Align(8)));
      b_.CreateAlignedStore(vector, bytes(argument(3), b_.CreateMul(i, i64(spread.each))), spread_alignment());
    });
  }

  void fence(const Target& target) {
    if (target.triple.starts_with("x86_64")) b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  }

  // ---------------------------------------------------------------------------------------------- items
  void phases() {
    unit_ = in(entry_, [&] {
      Value* n = nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : word(words_.tile);
      for (std::uint32_t l = nest_.outer; has_columns_ && l < nest_.vector_loop(); ++l) n = b_.CreateMul(n, extent(l));
      return b_.CreateAdd(b_.CreateAnd(b_.CreateAdd(n, i64(63)), i64(-64)), i64(64));
    });
    if (has_columns_) {
      when(b_.CreateICmpEQ(word(words_.phase), i64(0)), [&] { rows_with_columns(); });
      when(b_.CreateICmpEQ(word(words_.phase), i64(1)), [&] { column_results(); });
      return;
    }
    if (!schedule_.split || nest_.kind == NestKind::Map) return items(argument(1), argument(2));
    for (std::uint8_t p = 0; p <= nest_.sweeps; ++p)
      if (p < nest_.sweeps || !reductions(static_cast<std::uint8_t>(p - 1)).empty()) {
        phase_ = p;
        when(b_.CreateICmpEQ(word(words_.phase), i64(p)), [&] { items(argument(1), argument(2)); });
      }
  }
  void items(Value* first, Value* last) {
    struct Counter {
      std::uint32_t loop;
      Value* count;
      Value* variable;
    };
    std::vector<Counter> counters;
    const std::uint32_t v = nest_.vector_loop();
    for (std::uint32_t l = 0; l < nest_.outer; ++l)
      counters.push_back(
          {l, packs() && l + 1u == nest_.outer ? in(entry_, [&] { return up(extent(l), word(words_.tile_outer)); }) : extent(l), nullptr});
    if (nest_.kind != NestKind::Lanes) counters.push_back({v, in(entry_, [&] { return up(extent(v), word(words_.tile)); }), nullptr});
    const bool in_chunks = schedule_.split && nest_.kind != NestKind::Map;
    if (in_chunks) counters.push_back({kNone, word(words_.chunks), nullptr});
    for (Counter& c : counters) c.variable = variable(b_.getInt64Ty(), nullptr);
    BasicBlock* done = block("done");
    BasicBlock* some = block("some");
    b_.CreateCondBr(b_.CreateICmpSLT(first, last), some, done);
    b_.SetInsertPoint(some);
    Value* rest = first;
    for (std::size_t i = counters.size(); i-- > 0;) {
      if (i == 0) {
        b_.CreateStore(rest, counters[i].variable);
        break;
      }
      b_.CreateStore(b_.CreateURem(rest, counters[i].count), counters[i].variable);
      rest = b_.CreateUDiv(rest, counters[i].count);
    }
    loop("item", first, last, i64(1), [&](Value* number_of_item) {
      index_.assign(nest_.loops(), nullptr);
      Value* tile_index = nullptr;
      Value* outer_tile = nullptr;
      for (const Counter& c : counters) {
        Value* i = read(c.variable);
        if (c.loop == kNone) chunk_ = i;
        else if (c.loop == v) tile_index = i;
        else if (packs() && c.loop + 1u == nest_.outer) outer_tile = i;
        else index_[c.loop] = i;
      }
      index_[v] = tile_index ? b_.CreateMul(tile_index, word(words_.tile)) : i64(0);
      stages_.clear();
      item_ = number_of_item;
      if (in_chunks) row_ = b_.CreateUDiv(number_of_item, word(words_.chunks));
      stages_.push_back(region(&entry_, "row"));
      if (has_columns_) enter_row_of_columns(b_.CreateAnd(number_of_item, i64(ir::kRowGroup - 1)));
      item(outer_tile);
      Value* carry = nullptr;  // the next item's indices
      for (std::size_t i = counters.size(); i-- > 0;) {
        Value* next = b_.CreateAdd(read(counters[i].variable), carry ? carry : i64(1));
        if (i > 0) {
          Value* wraps = b_.CreateICmpEQ(next, counters[i].count);
          next = b_.CreateSelect(wraps, i64(0), next);
          carry = b_.CreateZExt(wraps, b_.getInt64Ty());
        }
        b_.CreateStore(next, counters[i].variable);
      }
    });
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  Value* tile_length() {
    const std::uint32_t v = nest_.vector_loop();
    if (nest_.kind == NestKind::Lanes) return extent(v);
    return smaller(word(words_.tile), b_.CreateSub(extent(v), index_[v]));
  }

  void item(Value* outer_tile) {
    switch (nest_.kind) {
      case NestKind::Map: return map(outer_tile);
      case NestKind::Lanes:
      case NestKind::Rows: return schedule_.split ? phase() : sweeps();
    }
  }
  void sweep(std::uint8_t s) { nest_.kind == NestKind::Lanes ? lanes_sweep(s) : rows_sweep(s); }
  void enter_stage(std::uint8_t stage, bool stores) {
    stages_.push_back(region(stages_.back(), "row"));
    if (nest_.kind == NestKind::Lanes)
      for (const auto& [statement, value] : reduced_) stages_.back()->values[statement] = value;
    row_level(stage, stores);
  }

  void sweeps() {
    row_level(0, true);
    for (std::uint8_t s = 0; s < nest_.sweeps; ++s) {
      sweep(s);
      enter_stage(static_cast<std::uint8_t>(s + 1), true);
    }
  }
  // One phase of a chunk: what earlier phases reduced is combined from what the chunks of the row have left.
  void phase() {
    const auto run = [&] {
      row_level(0, phase_ == 0);
      for (std::uint8_t s = 0; s < phase_; ++s) {
        combine_chunks(s);
        enter_stage(static_cast<std::uint8_t>(s + 1), s + 1 == phase_);
      }
      if (phase_ == nest_.sweeps) return;
      chunk_begin_ = b_.CreateMul(chunk_, word(words_.chunk));
      chunk_end_ = smaller(b_.CreateAdd(chunk_begin_, word(words_.chunk)), reduced_count());
      sweep(phase_);
      leave_partials(phase_);
    };
    if (phase_ == nest_.sweeps) when(is_first_chunk(), run);
    else run();
  }
  Value* is_first_chunk() { return b_.CreateICmpEQ(chunk_, i64(0)); }
  // Elements of r, missing ones included.
  Value* reduced_count() {
    return in(entry_, [&] {
      Value* count = nest_.runs ? word(words_.padded_run) : nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : i64(1);
      const std::uint32_t counting = nest_.outer + std::uint32_t{nest_.runs ? nest_.runs : nest_.serial};
      for (std::uint32_t l = nest_.outer; l < counting; ++l) count = b_.CreateMul(count, extent(l));
      return count;
    });
  }
  // What each chunk leaves of each reduction: scratch.h.
  Value* partial(std::uint32_t reduction, Value* chunk, Value* j) {
    std::int64_t all = 0, place = 0;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Reduce) place = i == reduction ? all : place, ++all;
    Value* shared = in(entry_, [&] {
      auto* p = b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.shared)), llvm::Align(8));
      p->setMetadata(kNoArray, llvm::MDNode::get(context_, {}));
      return p;
    });
    Value* item = b_.CreateAdd(b_.CreateMul(row_, word(words_.chunks)), chunk);
    Value* at = b_.CreateAdd(b_.CreateMul(item, i64(all)), i64(place));
    if (nest_.kind == NestKind::Rows || has_columns_) at = b_.CreateMul(at, unit_);
    Value* p = bytes(shared, b_.CreateMul(at, i64(kPartialBytes)));
    return j ? bytes(p, b_.CreateMul(j, i64(static_cast<std::int64_t>(size_of(nest_.body[reduction].dtype))))) : p;
  }
  void leave_partials(std::uint8_t sweep) {
    for (const std::uint32_t r : reductions(sweep)) {
      const DType t = nest_.body[r].dtype;
      if (nest_.kind == NestKind::Lanes) b_.CreateAlignedStore(to_memory(t, reduced_[r]), partial(r, chunk_, nullptr), llvm::Align(1));
      else
        over_row([&](Value* j) {
          b_.CreateAlignedStore(to_memory(t, load_row(layout_.values[r], j, t)), partial(r, chunk_, j), llvm::Align(1));
        });
    }
  }
  void combine_chunks(std::uint8_t sweep) {
    const std::vector<std::uint32_t> reds = reductions(sweep);
    reduced_.clear();
    const auto combined = [&](unsigned width, Value* j) {
      Tree tree = start_tree(reds, width);
      loop("chunks", i64(0), word(words_.chunks), i64(1), [&](Value* chunk) {
        std::vector<Value*> values;
        for (const std::uint32_t r : reds) {
          const DType t = nest_.body[r].dtype;
          values.push_back(from_memory(t, b_.CreateAlignedLoad(memory_type(t, width), partial(r, chunk, j), llvm::Align(1))));
        }
        push(tree, reds, values);
      });
      return top(tree, reds);
    };
    if (reds.empty()) return;
    if (nest_.kind == NestKind::Lanes) {
      const std::vector<Value*> values = combined(0, nullptr);
      for (std::size_t i = 0; i < reds.size(); ++i) reduced_[reds[i]] = values[i];
      return;
    }
    over_row([&](Value* j) {
      const std::vector<Value*> values = combined(width_, j);
      for (std::size_t i = 0; i < reds.size(); ++i) store_row(layout_.values[reds[i]], j, nest_.body[reds[i]].dtype, values[i]);
    });
  }
  std::unordered_map<std::uint32_t, Value*> reduced_;  // lanes: what the last sweep reduced

  // ---------------------------------------------------------------------------------------------- columns
  bool has_columns_ = nest_.has_columns();
  Value* column_row_ = nullptr;                            // of the current row: which of eight
  std::unordered_map<std::uint32_t, Value*> column_rows_;  // of the current row, by column: where its sum goes
  Value* row_offset_ = nullptr;                            // of the current iteration of the serial loops: the first column
  std::vector<std::uint32_t> columns() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].count) out.push_back(i);
    return out;
  }
  void over_columns(const std::function<void(Value*)>& f) {
    Value* n = in(entry_, [&] { return b_.CreateSub(unit_, i64(64)); });
    loop("over", i64(0), n, i64(width_), f);
  }
  // Blocks of rows: as in rows_sweep, eight rows form a tree, the trees of a block are added in sequence.
  void rows_with_columns() {
    Value* rows = in(entry_, [&] {
      Value* n = i64(1);
      for (std::uint32_t l = 0; l < nest_.outer; ++l) n = b_.CreateMul(n, extent(l));
      return n;
    });
    loop("block", argument(1), argument(2), i64(1), [&](Value* block_number) {
      row_ = i64(0);
      Value* first = b_.CreateMul(block_number, word(words_.chunk));
      Value* last = smaller(b_.CreateAdd(first, word(words_.chunk)), rows);
      over_columns([&](Value* j) {
        for (const std::uint32_t c : columns()) store_row(layout_.values[c], j, nest_.body[c].dtype, identity(c, width_));
      });
      items(first, last);
      Value* left = b_.CreateAnd(last, i64(ir::kRowGroup - 1));
      when(b_.CreateICmpNE(left, i64(0)), [&] {  // rows that are missing
        loop("missing", left, i64(ir::kRowGroup), i64(1), [&](Value* k) {
          enter_row_of_columns(k);
          over_columns([&](Value* j) {
            for (const std::uint32_t c : columns())
              if (ScratchLayout::sums(nest_.body[c])) add_row(c, identity(c, width_), j, nullptr);
          });
        });
      });
      over_columns([&](Value* j) {
        for (const std::uint32_t c : columns()) {
          const DType t = nest_.body[c].dtype;
          b_.CreateAlignedStore(to_memory(t, load_row(layout_.values[c], j, t)), partial(c, block_number, j), llvm::Align(1));
        }
      });
    });
  }
  // The tree of eight rows as a binary counter: row k is added to the sums that stand at the levels of its trailing ones, and goes to the
  // next level, or to the block's sum.
  void enter_row_of_columns(Value* row) {
    column_row_ = row;
    for (const std::uint32_t c : columns()) {
      if (!ScratchLayout::sums(nest_.body[c])) continue;
      Value*& to = column_rows_[c];
      to = scratch_base(layout_.values[c]);
      for (std::uint32_t level = kColumnLevels; level-- > 0;) {
        const std::int64_t ones = (std::int64_t{1} << (level + 1)) - 1;  // a zero at `level`, ones below it
        Value* here = b_.CreateICmpEQ(b_.CreateAnd(row, i64(ones)), i64(ones >> 1));
        to = b_.CreateSelect(here, row_of(layout_.temporaries[c], i64(level), i64(0), nest_.body[c].dtype), to);
      }
    }
  }
  // The same code for each number of levels that the row is added to, known in it: no branches in the vector loop.
  void for_each_carry(const std::function<void()>& f) {
    for (std::uint32_t levels = 0; levels <= kColumnLevels; ++levels) {
      const std::int64_t bits = std::min((std::int64_t{1} << (levels + 1)) - 1, ir::kRowGroup - 1), ones = (std::int64_t{1} << levels) - 1;
      when(b_.CreateICmpEQ(b_.CreateAnd(column_row_, i64(bits)), i64(ones)), [&] {
        carried_ = levels;
        f();
      });
    }
    carried_.reset();
  }
  std::optional<std::uint32_t> carried_;
  void add_row(std::uint32_t c, Value* value, Value* at, Value* mask) {
    const DType t = nest_.body[c].dtype;
    llvm::Type* type = memory_type(t, width_);
    const auto load = [&](Value* p) -> Value* {
      if (mask) return b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, llvm::Constant::getNullValue(type));
      return b_.CreateAlignedLoad(type, p, llvm::Align(1));
    };
    Value* sum = variable(value->getType(), value);
    std::function<void(std::uint32_t)> carry_from = [&](std::uint32_t level) {
      const auto take = [&](Value* p) { b_.CreateStore(combine(c, load(p), read(sum)), sum); };
      if (level == kColumnLevels) return take(scratch_row(layout_.values[c], at, t));
      if (carried_ && level == *carried_) return;
      if (carried_) {
        take(row_of(layout_.temporaries[c], i64(level), at, t));
        return carry_from(level + 1);
      }
      when(b_.CreateICmpNE(b_.CreateAnd(column_row_, i64(std::int64_t{1} << level)), i64(0)), [&] {
        take(row_of(layout_.temporaries[c], i64(level), at, t));
        carry_from(level + 1);
      });
    };
    carry_from(0);
    Value* p = bytes(column_rows_[c], b_.CreateMul(at, i64(static_cast<std::int64_t>(size_of(t)))));
    if (mask) b_.CreateMaskedStore(read(sum), p, llvm::Align(1), mask);
    else b_.CreateAlignedStore(read(sum), p, llvm::Align(1));
  }
  // In the last sweep over a row: its values.
  void take_columns(Body& body) {
    for (const std::uint32_t c : columns()) {
      const DType t = nest_.body[c].dtype;
      Value* value = vector(body, nest_.body[c].a);
      Value* at = row_offset_ ? b_.CreateAdd(body.j, row_offset_) : body.j;
      if (ScratchLayout::sums(nest_.body[c])) {
        add_row(c, value, at, body.mask);
        continue;
      }
      Value* p = scratch_row(layout_.values[c], at, t);
      llvm::Type* type = memory_type(t, width_);
      Value* before = body.mask
                          ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), body.mask, llvm::Constant::getNullValue(type)))
                          : b_.CreateAlignedLoad(type, p, llvm::Align(1));
      value = combine(c, from_memory(t, before), value);
      if (body.mask) b_.CreateMaskedStore(to_memory(t, value), p, llvm::Align(1), body.mask);
      else b_.CreateAlignedStore(to_memory(t, value), p, llvm::Align(1));
    }
  }
  // The tree of the blocks, and what is computed from it.
  void column_results() {
    loop("columns", argument(1), argument(2), i64(1), [&](Value* part) {
      index_.assign(nest_.loops(), nullptr);
      index_[nest_.vector_loop()] = i64(0);
      stages_.clear();
      stages_.push_back(region(&entry_, "row"));
      row_ = i64(0);
      Value* places = extent(nest_.vector_loop());  // fewer than parts where they are few
      Value* begin = smaller(b_.CreateMul(part, word(words_.tile)), places);
      Value* end = smaller(b_.CreateAdd(begin, word(words_.tile)), places);
      const std::vector<bool> behind = nest_.behind_columns();
      const auto results = [&](Region* around, Value* offset) {
        vector_range(begin, end, around, 0, [&](Body& body) {
          const std::vector<std::uint32_t> all = columns();
          Tree tree = start_tree(all, width_);
          loop("blocks", i64(0), word(words_.chunks), i64(1), [&](Value* block_number) {
            std::vector<Value*> values;
            for (const std::uint32_t c : all) {
              const DType t = nest_.body[c].dtype;
              Value* p = partial(c, block_number, offset ? b_.CreateAdd(body.j, offset) : body.j);
              values.push_back(from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1))));
            }
            push(tree, all, values);
          });
          const std::vector<Value*> values = top(tree, all);
          for (std::size_t i = 0; i < all.size(); ++i) body.values[all[i]] = values[i];
          for (std::size_t i = 0; i < nest_.body.size(); ++i)
            if (behind[i] && nest_.body[i].kind == Statement::Kind::Store) store(body, nest_.body[i]);
        });
      };
      if (nest_.serial == 0) return results(stages_[0], nullptr);
      serial_loops([&](Value*, Value* row) { results(serial_, b_.CreateMul(row, extent(nest_.vector_loop()))); });
    });
  }

  // ---------------------------------------------------------------------------------------------- regions and values
  Region& place(std::uint64_t loops, std::uint8_t stage) {
    if (loops & serial_bits()) return *serial_;
    if (loops & outer_bits() || stage > 0) return *stages_[stage];
    return entry_;
  }

  std::uint64_t loops_of_derived(std::uint32_t q) const {
    const Derived& d = nest_.derived[q];
    return d.place == Derived::kNone ? loops_of_linear(d.linear) : nest_.body[d.place].loops;
  }
  bool holds_data(std::uint32_t linear) const {
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t q = 0; q < nest_.derived.size(); ++q)
      if (l.of[nest_.loops() + q] != Coefficient::Zero && (nest_.derived[q].place != Derived::kNone || holds_data(nest_.derived[q].linear)))
        return true;
    return false;
  }
  // Scalar places that a linear needs are made now: their code may have blocks of its own.
  void make_places(std::uint32_t linear) {
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t q = 0; q < nest_.derived.size(); ++q) {
      if (l.of[nest_.loops() + q] == Coefficient::Zero) continue;
      const Derived& d = nest_.derived[q];
      if (d.place == Derived::kNone) make_places(d.linear);
      else if (!is_vector(d.place)) scalar(d.place);
    }
  }
  std::uint64_t loops_of_linear(std::uint32_t linear) const {
    std::uint64_t mask = 0;
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t v = 0; v < l.of.size(); ++v) {
      if (l.of[v] == Coefficient::Zero) continue;
      mask |= v < nest_.loops() ? bit(v) : loops_of_derived(v - nest_.loops());
    }
    return mask;
  }
  Value* times(std::uint32_t linear, std::uint32_t variable, Value* v) {
    if (nest_.linears[linear].of[variable] == Coefficient::One) return v;
    Value* c = word(words_.coefficient_of(linear, variable));
    return b_.CreateMul(width_of(v) ? splat(c, width_of(v)) : c, v);
  }

  // The part of a linear that varies with the loops in `mask` and no others; null where that is nothing.
  Value* scalar_part(std::uint32_t linear, std::uint64_t mask, std::uint64_t known) {
    Value* sum = nullptr;
    const auto plus = [&](Value* v) { sum = sum ? b_.CreateAdd(sum, v) : v; };
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t v = 0; v < l.of.size(); ++v) {
      if (l.of[v] == Coefficient::Zero) continue;
      if (v < nest_.loops()) {
        if (mask & bit(v)) plus(times(linear, v, index_[v]));
      } else {
        const std::uint64_t loops = loops_of_derived(v - nest_.loops());
        if ((loops & ~known) == 0 && (loops & mask || (loops == 0 && mask == known)))
          plus(times(linear, v, derived(v - nest_.loops(), loops)));
      }
    }
    return sum;
  }

  // A whole linear of loops known in that region, as a number.
  Value* linear_at(std::uint32_t linear) {
    Value* sum = word(words_.offset_of(linear));
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t v = 0; v < l.of.size(); ++v) {
      if (l.of[v] == Coefficient::Zero) continue;
      Value* x = v < nest_.loops() ? index_[v] : derived(v - nest_.loops(), loops_of_derived(v - nest_.loops()));
      sum = b_.CreateAdd(sum, times(linear, v, x));
    }
    return sum;
  }
  Value* quotient(std::uint32_t q, Value* x) {  // floor
    Value* by = word(words_.by + q);
    if (width_of(x)) by = splat(by, width_of(x));
    Value* zero = llvm::Constant::getNullValue(x->getType());
    if (nest_.derived[q].modulo) {
      Value* r = b_.CreateSRem(x, by);
      return b_.CreateSelect(b_.CreateICmpSLT(r, zero), b_.CreateAdd(r, by), r);
    }
    Value* d = b_.CreateSDiv(x, by);
    Value* r = b_.CreateSub(x, b_.CreateMul(d, by));
    return b_.CreateSelect(b_.CreateICmpSLT(r, zero), b_.CreateSub(d, llvm::ConstantInt::get(x->getType(), 1)), d);
  }
  Value* derived(std::uint32_t q, std::uint64_t loops) {
    Region& r = place(loops, 0);
    if (const auto it = r.derived.find(q); it != r.derived.end()) return it->second;
    if (const std::uint32_t place = nest_.derived[q].place; place != Derived::kNone) return r.derived[q] = scalar(place);
    return r.derived[q] = in(r, [&] { return quotient(q, linear_at(nest_.derived[q].linear)); });
  }
  Value* vector_linear(Body& body, std::uint32_t linear) {
    const std::uint64_t known = ~vector_bit();
    Value* base = word(words_.offset_of(linear));
    if (Value* s = scalar_part(linear, known, known)) base = b_.CreateAdd(base, s);
    const Linear& l = nest_.linears[linear];
    Value* sum = nullptr;
    for (std::uint32_t v = 0; v < l.of.size(); ++v) {
      if (l.of[v] == Coefficient::Zero) continue;
      Value* x = nullptr;
      if (v == nest_.vector_loop()) x = b_.CreateAdd(b_.CreateVectorSplat(width_, b_.CreateAdd(index_[v], body.j)), iota(width_));
      else if (v >= nest_.loops() && (loops_of_derived(v - nest_.loops()) & vector_bit())) x = vector_derived(body, v - nest_.loops());
      if (x) {
        x = times(linear, v, x);
        sum = sum ? b_.CreateAdd(sum, x) : x;
      }
    }
    Value* all = b_.CreateVectorSplat(width_, base);
    return sum ? b_.CreateAdd(all, sum) : all;
  }
  Value* vector_derived(Body& body, std::uint32_t q) {
    if (const auto it = body.derived.find(q); it != body.derived.end()) return it->second;
    if (const std::uint32_t place = nest_.derived[q].place; place != Derived::kNone) return body.derived[q] = vector(body, place);
    if (nest_.short_rows) {
      Value* index = b_.CreateZExt(row_indices(nest_.derived[q].modulo, place_), llvm::FixedVectorType::get(b_.getInt64Ty(), width_));
      return body.derived[q] = nest_.derived[q].modulo ? index : b_.CreateAdd(index, b_.CreateVectorSplat(width_, vector_row_));
    }
    return body.derived[q] = quotient(q, vector_linear(body, nest_.derived[q].linear));
  }

  DType type_of_access(std::uint32_t access) const { return nest_.buffers[nest_.accesses[access].buffer].dtype; }
  std::int64_t size_of_access(std::uint32_t access) const { return static_cast<std::int64_t>(size_of(type_of_access(access))); }

  // The operator of a statement; the type of a half stands beside that of the f32 that holds it.
  Value* apply(const Statement& s, std::span<Typed> operands) {
    const bool makes_half = is_half(s.half) && s.dtype == DType::F32;
    if (is_half(s.half) && !makes_half) operands[0].dtype = s.half;
    return k_.apply(s.op, makes_half ? s.half : s.dtype, operands);
  }

  // Does it grow by its coefficient from one iteration of the only serial loop to the next?
  bool linear_along_serial(std::uint32_t linear) const {
    const Linear& l = nest_.linears[linear];
    for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
      if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & serial_bits())) return false;
    return nest_.serial == 1;
  }
  // Where an access points with the loops of `mask` known: entry, item (and the tile's start), serial.
  Value* pointer(std::uint32_t access, std::uint64_t loops) {
    const std::uint32_t linear = nest_.accesses[access].linear;
    const std::uint64_t varies = loops_of_linear(linear);
    const bool by_data = holds_data(linear);
    if (by_data) make_places(linear);
    Region* r = &entry_;
    if (loops & serial_bits() && varies & serial_bits()) r = serial_;
    else if (varies & (outer_bits() | vector_bit())) r = stages_[0];
    if (const auto it = r->pointers.find(access); it != r->pointers.end()) return it->second;
    Value* p = nullptr;
    const std::uint64_t item_loops = outer_bits();
    if (r == &entry_) {
      p = base_pointer(access);
      if (by_data)  // one place for all
        p = in(entry_, [&] {
          Value* at = scalar_part(linear, 0, 0);
          return at ? bytes(p, b_.CreateMul(at, i64(size_of_access(access)))) : p;
        });
    } else if (r == stages_[0]) {
      p = in(*r, [&] {
        Value* at = base_pointer(access);
        Value* sum = scalar_part(linear, item_loops, item_loops);
        if (nest_.linears[linear].of[nest_.vector_loop()] != Coefficient::Zero && nest_.kind != NestKind::Lanes) {
          Value* start = times(linear, nest_.vector_loop(), index_[nest_.vector_loop()]);
          sum = sum ? b_.CreateAdd(sum, start) : start;
        }
        return sum ? bytes(at, b_.CreateMul(sum, i64(size_of_access(access)))) : at;
      });
    } else if (r->before && linear_along_serial(linear)) {
      Region* const mine = serial_;
      serial_ = r->before;
      Value* at = pointer(access, loops);
      serial_ = mine;
      Value* step = in(entry_, [&] { return b_.CreateMul(times(linear, nest_.outer, i64(1)), i64(size_of_access(access))); });
      p = in(*r, [&] { return bytes(at, step); });
    } else {
      Value* at = pointer(access, loops & ~serial_bits());
      p = in(*r, [&] {
        Value* sum = scalar_part(linear, serial_bits(), serial_bits() | item_loops);
        return sum ? bytes(at, b_.CreateMul(sum, i64(size_of_access(access)))) : at;
      });
    }
    return r->pointers[access] = p;
  }

  bool has_control_flow(const Statement& s) const { return s.kind == Statement::Kind::Op && KernelBuilder::branches(s.op, s.dtype); }

  Value* known_slot(const Statement& s, unsigned width) {
    const std::uint32_t at = words_.slots + s.at;
    return is_known(at) ? k_.constant(s.dtype, static_cast<std::uint64_t>(known_->words[at]), width) : nullptr;
  }

  // A statement that does not vary along the vector loop.
  Value* scalar(std::uint32_t id) {
    const Statement& s = nest_.body[id];
    Region& r = place(s.loops, s.stage);
    if (const auto it = r.values.find(id); it != r.values.end()) return it->second;
    if (has_control_flow(s)) {  // the place is split, so that the code's end finds the terminator again
      llvm::IRBuilderBase::InsertPointGuard guard(b_);
      Typed operands[3];
      std::size_t n = 0;
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (o != kNone) operands[n++] = {scalar(o), nest_.body[o].dtype};
      BasicBlock* rest = r.hoist->splitBasicBlock(r.hoist->getTerminator());
      r.hoist->getTerminator()->eraseFromParent();
      b_.SetInsertPoint(r.hoist);
      Value* v = apply(s, std::span(operands, n));
      b_.CreateBr(rest);
      r.hoist = rest;
      return r.values[id] = v;
    }
    if (s.kind == Statement::Kind::Index) make_places(s.at);
    if (s.kind == Statement::Kind::Guard)
      for (std::uint32_t c = s.at; c < s.at + s.count; ++c) make_places(nest_.checks[c].linear);
    Value* made = nullptr;
    switch (s.kind) {
      case Statement::Kind::Place: {
        Value* index = scalar(s.a);
        Value* guard = s.guard == kNone ? nullptr : scalar(s.guard);
        made = in(r, [&] { return checked_place(s, index, guard); });
        break;
      }
      case Statement::Kind::Constant: made = k_.constant(s.dtype, s.bits, 0); break;
      case Statement::Kind::Slot:
        if ((made = known_slot(s, 0))) break;
        made = in(r, [&] {
          Value* p = bytes(argument(0), 8 * static_cast<std::int64_t>(words_.slots + s.at));
          return from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, 0), p, llvm::Align(8)));
        });
        break;
      case Statement::Kind::Index: {
        made = in(r, [&] { return from_index(linear_at(s.at), s); });
        break;
      }
      case Statement::Kind::Guard:
        made = in(r, [&] {
          Value* all = nullptr;
          for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
            Value* inside = b_.CreateICmpULT(linear_at(nest_.checks[c].linear), word(words_.bounds + c));
            all = all ? b_.CreateAnd(all, inside) : inside;
          }
          return all;
        });
        break;
      case Statement::Kind::Load: {
        Value* p = pointer_with_derived(s);
        Value* guard = s.guard == kNone ? nullptr : scalar(s.guard);
        made = in(r, [&] {
          if (guard) p = b_.CreateSelect(guard, p, dummy_);
          return from_memory(type_of_access(s.at), b_.CreateAlignedLoad(memory_type(type_of_access(s.at), 0), p, llvm::Align(1)));
        });
        break;
      }
      case Statement::Kind::Op: {
        Typed operands[3];
        std::size_t n = 0;
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) operands[n++] = {scalar(o), nest_.body[o].dtype};
        made = in(r, [&] { return apply(s, std::span(operands, n)); });
        break;
      }
      default: throw InternalError("emit: a statement has no value here");
    }
    return r.values[id] = made;
  }
  Value* pointer_with_derived(const Statement& s) { return pointer(s.at, s.loops); }

  // The place that an index means; a bad one raises the flag and becomes 0. `mask`: where it counts; none: everywhere.
  Value* checked_place(const Statement& s, Value* index, Value* mask) {
    const DType from = nest_.body[s.a].dtype;
    const unsigned width = width_of(index);
    Value* extent = word(words_.bounds + s.at);
    if (width) extent = splat(extent, width);
    Value* at = k_.cast({index, from}, DType::I64);
    Value* zero = llvm::Constant::getNullValue(at->getType());
    if (is_signed_integer(from)) at = b_.CreateSelect(b_.CreateICmpSLT(at, zero), b_.CreateAdd(at, extent), at);
    Value* bad = b_.CreateICmpUGE(at, extent);
    Value* counts = mask ? b_.CreateAnd(bad, mask) : bad;
    Value* any = width ? b_.CreateOrReduce(counts) : counts;
    b_.CreateStore(b_.CreateOr(read(flag_), b_.CreateZExt(any, b_.getInt64Ty())), flag_);
    return b_.CreateSelect(bad, zero, at);
  }

  Value* from_index(Value* x, const Statement& s) {
    const Typed i{x, DType::I64};
    return k_.cast(i, is_half(s.half) ? s.half : s.dtype);
  }

  // ---------------------------------------------------------------------------------------------- the vector body
  bool is_vector(std::uint32_t id) const { return nest_.body[id].loops & vector_bit(); }

  Value* vector(Body& body, std::uint32_t id) {
    if (const auto it = body.values.find(id); it != body.values.end()) return it->second;
    const Statement& s = nest_.body[id];
    Value* made = nullptr;
    if (s.kind == Statement::Kind::Slot && is_known(words_.slots + s.at)) {
      made = known_slot(s, width_);
    } else if (s.kind == Statement::Kind::Slot && spreads() && layout_.spread.holds(s.dtype, schedule_.width)) {
      Value* p = bytes(argument(3), static_cast<std::int64_t>(s.at) * layout_.spread.each);
      made = from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), p, spread_alignment()));
    } else if (s.kind == Statement::Kind::Slot && layout_.spread.any) {
      Value* p = bytes(argument(0), 8 * static_cast<std::int64_t>(words_.slots + s.at));
      made = b_.CreateVectorSplat(width_, from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, 0), p, llvm::Align(8))));
    } else if (layout_.patterns.at[id] != RowPatterns::kNone && !making_patterns_) {
      Value* p = pattern(id, place_);
      made = from_memory(s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), p, llvm::Align(1)));
    } else if (!is_vector(id) && !(nest_.kind == NestKind::Rows && s.kind == Statement::Kind::Reduce)) {
      made = splat(scalar(id), width_);
    } else if (const std::uint32_t kept = kept_slot(id); kept != kNone && first_sweep(id) < body.sweep) {
      made = from_memory(
          s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), scratch_row(layout_.kept[kept], body.j, s.dtype), llvm::Align(1)));
    } else if (nest_.kind == NestKind::Rows && layout_.values[id] != ScratchLayout::kNone && !computing_row_) {
      made = from_memory(
          s.dtype, b_.CreateAlignedLoad(memory_type(s.dtype, width_), scratch_row(layout_.values[id], body.j, s.dtype), llvm::Align(1)));
    } else {
      made = compute(body, id, s);
      if (kept != kNone && first_sweep(id) == body.sweep)
        b_.CreateAlignedStore(to_memory(s.dtype, made), scratch_row(layout_.kept[kept], body.j, s.dtype), llvm::Align(1));
    }
    return body.values[id] = made;
  }
  bool computing_row_ = false;  // rows: values of a row are being made, not read back

  std::uint32_t kept_slot(std::uint32_t id) const {
    if (!schedule_.row_scratch) return kNone;
    for (std::uint32_t i = 0; i < schedule_.kept.size(); ++i)
      if (schedule_.kept[i] == id) return i;
    return kNone;
  }
  std::uint8_t first_sweep(std::uint32_t id) const {
    std::uint8_t s = 0;
    while (s < nest_.sweeps && !needed_[s][id]) ++s;
    return s;
  }
  Value* scratch_base(std::uint32_t slot) {
    return bytes(bytes(argument(3), layout_.spread.bytes + layout_.patterns.bytes), b_.CreateMul(unit_, i64(slot)));
  }
  Value* scratch_row(std::uint32_t slot, Value* j, DType t) {
    return bytes(scratch_base(slot), b_.CreateMul(j, i64(static_cast<std::int64_t>(size_of(t)))));
  }

  Value* compute(Body& body, std::uint32_t id, const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::Index: return from_index(vector_linear(body, s.at), s);
      case Statement::Kind::Guard: {
        Value* all = nullptr;
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c) {
          Value* inside = b_.CreateICmpULT(vector_linear(body, nest_.checks[c].linear), splat(word(words_.bounds + c), width_));
          all = all ? b_.CreateAnd(all, inside) : inside;
        }
        return all;
      }
      case Statement::Kind::Load: return load(body, s);
      case Statement::Kind::Place: {
        Value* mask = body.mask;
        if (s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
        return checked_place(s, vector(body, s.a), mask);
      }
      case Statement::Kind::Scan: return nest_.kind == NestKind::Map ? scan_group(body, id) : scan_row(body, id);
      case Statement::Kind::Op: {
        Typed operands[3];
        std::size_t n = 0;
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) operands[n++] = {vector(body, o), nest_.body[o].dtype};
        return apply(s, std::span(operands, n));
      }
      default: throw InternalError("emit: statement " + std::to_string(id) + " has no vector value");
    }
  }

  bool contiguous(std::uint32_t access) const {
    const Linear& l = nest_.linears[nest_.accesses[access].linear];
    return l.of[nest_.vector_loop()] == Coefficient::One && !varies_derived(access);
  }
  // Does a derived variable of the access vary along the vector loop?
  bool varies_derived(std::uint32_t access) const {
    const Linear& l = nest_.linears[nest_.accesses[access].linear];
    for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
      if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & vector_bit())) return true;
    return false;
  }

  Value* reversed(Value* v) {
    std::vector<int> lanes;
    for (unsigned i = width_; i-- > 0;) lanes.push_back(static_cast<int>(i));
    return b_.CreateShuffleVector(v, lanes);
  }
  // Where a whole vector begins that ends where the lanes begin.
  Value* reversed_pointer(Body& body, std::uint32_t access) {
    Value* last = b_.CreateMul(b_.CreateAdd(body.j, i64(width_ - 1)), i64(-size_of_access(access)));
    return bytes(pointer(access, ~std::uint64_t{0}), last);
  }
  Value* reversed(Body& body, std::uint32_t access, llvm::Type* type) {
    Value* p = reversed_pointer(body, access);
    if (!body.mask) return reversed(b_.CreateAlignedLoad(type, p, llvm::Align(1)));
    return reversed(b_.CreateMaskedLoad(type, p, llvm::Align(1), reversed(body.mask), llvm::Constant::getNullValue(type)));
  }

  // Lanes `place`, place + c, place + 2c, … of the c vectors that the family reads.
  Value* sorted_out(Body& body, std::uint32_t access, llvm::Type* type) {
    const Access& a = nest_.accesses[access];
    const auto c = static_cast<unsigned>(number_of(nest_.linears[a.linear].of[nest_.vector_loop()]));
    std::vector<Value*>& whole = body.families[a.first];
    if (whole.empty()) {
      Value* p = bytes(pointer(a.first, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(access) * c)));
      for (unsigned k = 0; k < c; ++k)
        whole.push_back(b_.CreateAlignedLoad(type, bytes(p, std::int64_t{k} * width_ * size_of_access(access)), llvm::Align(1)));
    }
    Value* sum = whole[0];
    for (unsigned k = 1; k < c; ++k) {  // lanes that stand in the first k vectors are in place already, but for k = 1
      std::vector<int> lanes;
      for (unsigned i = 0; i < width_; ++i) {
        const unsigned at = i * c + a.place;
        lanes.push_back(static_cast<int>(at / width_ == k ? width_ + at % width_ : at / width_ < k ? (k == 1 ? at : i) : 0));
      }
      sum = b_.CreateShuffleVector(sum, whole[k], lanes);
    }
    return sum;
  }

  // The lanes' addresses of an access that is not contiguous.
  Value* addresses(Body& body, std::uint32_t access) {
    const std::uint32_t linear = nest_.accesses[access].linear;
    const Linear& l = nest_.linears[linear];
    Value* base = pointer(access, ~std::uint64_t{0});
    Value* offset = nullptr;
    const auto plus = [&](Value* v) { offset = offset ? b_.CreateAdd(offset, v) : v; };
    if (l.of[nest_.vector_loop()] != Coefficient::Zero)
      plus(times(linear, nest_.vector_loop(), b_.CreateAdd(b_.CreateVectorSplat(width_, body.j), iota(width_))));
    for (std::uint32_t v = nest_.loops(); v < l.of.size(); ++v)
      if (l.of[v] != Coefficient::Zero && (loops_of_derived(v - nest_.loops()) & vector_bit()))
        plus(times(linear, v, vector_derived(body, v - nest_.loops())));
    if (!offset) offset = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), width_));
    return b_.CreateGEP(
        b_.getInt8Ty(), base,
        b_.CreateMul(offset, llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(width_),
                                                            b_.getInt64(static_cast<std::uint64_t>(size_of_access(access))))));
  }
  Value* all_lanes() { return llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), width_)); }

  // Rows of a tile are too short for the hardware to see a stream: what the next tile along the vector loop reads is asked for now.
  void prefetch(Value* p) {
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()}, {p, b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
  }

  Value* load(Body& body, const Statement& s) {
    const std::uint32_t access = s.at;
    const DType t = type_of_access(access);
    llvm::Type* type = memory_type(t, width_);
    for (std::size_t p = 0; p < schedule_.packed.size(); ++p)
      if (schedule_.packed[p] == access)
        return from_memory(
            t, b_.CreateAlignedLoad(type, bytes(packed_rows_[p], b_.CreateMul(body.j, i64(size_of_access(access)))), llvm::Align(1)));
    Value* mask = body.mask;
    if (s.guard != kNone) {
      Value* guard = vector(body, s.guard);
      mask = mask ? b_.CreateAnd(mask, guard) : guard;
    }
    Value* zero = llvm::Constant::getNullValue(type);
    if (contiguous(access)) {
      Value* p = bytes(pointer(access, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(access))));
      if (packs() && !body.mask)
        for (std::int64_t line = 0; line < size_of_access(access) * width_; line += 64)
          prefetch(bytes(p, b_.CreateAdd(b_.CreateMul(word(words_.tile), i64(size_of_access(access))), i64(line))));
      return from_memory(t, mask ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero))
                                 : b_.CreateAlignedLoad(type, p, llvm::Align(1)));
    }
    if (nest_.short_rows && s.guard == kNone)
      if (Value* v = one_of_each_row(access)) return from_memory(t, v);
    const Coefficient along = nest_.linears[nest_.accesses[access].linear].of[nest_.vector_loop()];
    if (along == Coefficient::MinusOne && !varies_derived(access) && mask == body.mask) return from_memory(t, reversed(body, access, type));
    if (!mask && !varies_derived(access)) {
      if (nest_.accesses[access].first != kNone) return from_memory(t, sorted_out(body, access, type));
    }
    return from_memory(t, b_.CreateMaskedGather(type, addresses(body, access), llvm::Align(1), mask ? mask : all_lanes(), zero));
  }

  void store(Body& body, const Statement& s) {
    if (s.op == Op::Add) return add_to(body, s);
    Value* value = s.count > 1 ? side_by_side(body, s) : to_memory(type_of_access(s.at), vector(body, s.a));
    Value* mask = s.count > 1 ? mask_of_phases(body, s) : body.mask;
    if (s.count <= 1 && s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
    if (s.count > 1 || contiguous(s.at)) {
      const std::int64_t lane_bytes = size_of_access(s.at) * std::max<std::int64_t>(s.count, 1);
      Value* p = bytes(pointer(s.at, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(lane_bytes)));
      if (mask) {
        b_.CreateMaskedStore(value, p, llvm::Align(1), mask);
      } else if (std::find(schedule_.streamed.begin(), schedule_.streamed.end(), s.at) != schedule_.streamed.end()) {
        const auto bytes_each = static_cast<std::uint64_t>(lane_bytes) * width_;
        llvm::StoreInst* st = b_.CreateAlignedStore(value, p, llvm::Align(std::min<std::uint64_t>(64, bytes_each)));
        st->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
      } else {
        b_.CreateAlignedStore(value, p, llvm::Align(1));
      }
      return;
    }
    if (nest_.linears[nest_.accesses[s.at].linear].of[nest_.vector_loop()] == Coefficient::MinusOne && !varies_derived(s.at)) {
      Value* p = reversed_pointer(body, s.at);
      if (mask) b_.CreateMaskedStore(reversed(value), p, llvm::Align(1), reversed(mask));
      else b_.CreateAlignedStore(reversed(value), p, llvm::Align(1));
      return;
    }
    b_.CreateMaskedScatter(value, addresses(body, s.at), llvm::Align(1), mask ? mask : all_lanes());
  }

  // To what stands where data say: no two lanes have one place, since the vector loop is not the one that is indexed.
  void add_to(Body& body, const Statement& s) {
    const DType t = type_of_access(s.at);
    llvm::Type* type = memory_type(t, width_);
    Value* zero = llvm::Constant::getNullValue(type);
    Value* value = vector(body, s.a);
    Value* mask = body.mask;
    if (s.guard != kNone) mask = mask ? b_.CreateAnd(mask, vector(body, s.guard)) : vector(body, s.guard);
    const auto sum = [&](Value* old) { return k_.add({old, t}, {value, t}); };
    if (contiguous(s.at)) {
      Value* p = bytes(pointer(s.at, ~std::uint64_t{0}), b_.CreateMul(body.j, i64(size_of_access(s.at))));
      if (mask) b_.CreateMaskedStore(sum(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero)), p, llvm::Align(1), mask);
      else b_.CreateAlignedStore(sum(b_.CreateAlignedLoad(type, p, llvm::Align(1))), p, llvm::Align(1));
      return;
    }
    Value* at = addresses(body, s.at);
    if (!mask) mask = all_lanes();
    b_.CreateMaskedScatter(sum(b_.CreateMaskedGather(type, at, llvm::Align(1), mask, zero)), at, llvm::Align(1), mask);
  }

  // Lane i of phase u becomes lane i*phases + u.
  Value* side_by_side(Body& body, const Statement& first) {
    std::vector<Value*> phases;
    for (std::uint8_t u = 0; u < first.count; ++u) phases.push_back(to_memory(type_of_access(first.at), vector(body, (&first + u)->a)));
    return interleaved(phases);
  }
  Value* interleaved(const std::vector<Value*>& v) {
    const auto n = static_cast<unsigned>(v.size());
    if (n == 1) return v[0];
    std::vector<int> lanes;
    if (n % 2 == 0) {  // those of even number among those of odd number
      std::vector<Value*> even, odd;
      for (unsigned i = 0; i < n; ++i) (i % 2 ? odd : even).push_back(v[i]);
      for (unsigned i = 0; i < n * width_ / 2; ++i)
        lanes.push_back(static_cast<int>(i)), lanes.push_back(static_cast<int>(n * width_ / 2 + i));
      return b_.CreateShuffleVector(interleaved(even), interleaved(odd), lanes);
    }
    Value* all = nullptr;  // one behind the other, then in order
    for (unsigned i = 0; i < n; ++i) {
      std::vector<int> wide;
      for (unsigned k = 0; k < n * width_; ++k) wide.push_back(k / width_ == i ? static_cast<int>(k % width_) : llvm::PoisonMaskElem);
      Value* mine = b_.CreateShuffleVector(v[i], wide);
      std::vector<int> both;
      for (unsigned k = 0; k < n * width_; ++k) both.push_back(static_cast<int>(k / width_ == i ? n * width_ + k : k));
      all = all ? b_.CreateShuffleVector(all, mine, both) : mine;
    }
    for (unsigned i = 0; i < n * width_; ++i) lanes.push_back(static_cast<int>(i % n * width_ + i / n));
    return b_.CreateShuffleVector(all, lanes);
  }
  // None where all lanes of all phases are stored. The last phase of the last iteration may lie outside: its guard says where.
  Value* mask_of_phases(Body& body, const Statement& first) {
    const Statement& last = *(&first + (first.count - 1));
    Value* left = body.remaining ? b_.CreateMul(body.remaining, i64(first.count)) : nullptr;
    if (last.guard != kNone) {
      const std::uint32_t check = nest_.body[last.guard].at, linear = nest_.checks[check].linear;
      Value* at = word(words_.offset_of(linear));
      for (std::uint32_t v = 0; v < nest_.loops(); ++v)
        if (nest_.linears[linear].of[v] != Coefficient::Zero)
          at = b_.CreateAdd(at, times(linear, v, v == nest_.vector_loop() ? b_.CreateAdd(index_[v], body.j) : index_[v]));
      Value* inside = b_.CreateAdd(b_.CreateSub(word(words_.bounds + check), at), i64(first.count - 1));
      left = left ? smaller(left, inside) : inside;
    }
    return left ? tail_mask(left, first.count) : nullptr;
  }

  // Lanes below `remaining`, compared in 32 bits: as wide as the elements that most bodies have.
  Value* tail_mask(Value* remaining, unsigned phases = 1) {
    const unsigned width = phases * width_;
    Value* n = b_.CreateTrunc(smaller(remaining, i64(width)), b_.getInt32Ty());
    std::vector<llvm::Constant*> lanes;
    for (unsigned i = 0; i < width; ++i) lanes.push_back(b_.getInt32(i));
    return b_.CreateICmpSLT(llvm::ConstantVector::get(lanes), b_.CreateVectorSplat(width, n));
  }

  // ---------------------------------------------------------------------------------------------- short rows
  Value* place_ = nullptr;  // of the vector's first element, in its row
  Value* vector_row_ = nullptr;
  bool making_patterns_ = false;

  Value* pattern_area(std::uint32_t at) { return bytes(argument(3), static_cast<std::int64_t>(layout_.spread.bytes) + at); }
  Value* pattern(std::uint32_t id, Value* place) {
    return bytes(pattern_area(layout_.patterns.at[id]), b_.CreateMul(place, i64(static_cast<std::int64_t>(size_of(nest_.body[id].dtype)))));
  }
  // Of the lanes of a vector that begins at `place`: their places, or their rows.
  Value* row_indices(bool modulo, Value* place, unsigned lanes) {
    Value* p = bytes(pattern_area(modulo ? layout_.patterns.places : layout_.patterns.rows), b_.CreateMul(place, i64(4)));
    return b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt32Ty(), lanes), p, llvm::Align(1));
  }
  Value* row_indices(bool modulo, Value* place) { return row_indices(modulo, place, width_); }

  void make_patterns() {
    const RowPatterns& patterns = layout_.patterns;
    Value* length = word(words_.by);
    Value* place = variable(b_.getInt64Ty(), i64(0));
    Value* row = variable(b_.getInt32Ty(), b_.getInt32(0));
    loop("places", i64(0), b_.CreateAdd(length, i64(2 * static_cast<std::int64_t>(width_))), i64(1), [&](Value* i) {
      Value* at = b_.CreateMul(i, i64(4));
      Value* now = read(place);
      b_.CreateAlignedStore(b_.CreateTrunc(now, b_.getInt32Ty()), bytes(pattern_area(patterns.places), at), llvm::Align(4));
      b_.CreateAlignedStore(read(row), bytes(pattern_area(patterns.rows), at), llvm::Align(4));
      Value* next = b_.CreateAdd(now, i64(1));
      Value* ends = b_.CreateICmpEQ(next, length);
      b_.CreateStore(b_.CreateSelect(ends, i64(0), next), place);
      b_.CreateStore(b_.CreateAdd(read(row), b_.CreateZExt(ends, b_.getInt32Ty())), row);
    });
    index_.assign(nest_.loops(), i64(0));
    stages_ = {region(&entry_, "patterns")};
    making_patterns_ = true;
    vector_row_ = i64(0);
    loop("patterns", i64(0), b_.CreateAdd(length, i64(width_)), i64(width_), [&](Value* j) {
      place_ = j;
      Body body{stages_[0], j};
      for (std::uint32_t id = 0; id < nest_.body.size(); ++id) {
        if (patterns.at[id] == RowPatterns::kNone) continue;
        b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, vector(body, id)), pattern(id, j), llvm::Align(1));
      }
    });
    making_patterns_ = false;
  }

  // f with the place and the row of the body's first element, which are carried from vector to vector.
  std::function<void(Body&)> in_short_rows(const std::function<void(Body&)>& f) {
    Value* length = word(words_.by);
    Value* start = index_[nest_.vector_loop()];
    Value* place = variable(b_.getInt64Ty(), b_.CreateURem(start, length));
    Value* row = variable(b_.getInt64Ty(), b_.CreateUDiv(start, length));
    Value* rest = in(entry_, [&] { return b_.CreateURem(i64(width_), length); });
    Value* whole = in(entry_, [&] { return b_.CreateUDiv(i64(width_), length); });
    return [this, f, length, place, row, rest, whole](Body& body) {
      place_ = read(place), vector_row_ = read(row);
      f(body);
      Value* next = b_.CreateAdd(place_, rest);
      Value* over = b_.CreateICmpSGE(next, length);
      b_.CreateStore(b_.CreateSelect(over, b_.CreateSub(next, length), next), place);
      b_.CreateStore(b_.CreateAdd(b_.CreateAdd(vector_row_, whole), b_.CreateZExt(over, b_.getInt64Ty())), row);
    };
  }

  // A load with one element for each row, one behind the other: the lanes of a register lie in few rows, whose elements are loaded as they
  // stand and put into the lanes by a permutation. None where the machine has none.
  Value* one_of_each_row(std::uint32_t access) {
    const Linear& l = nest_.linears[nest_.accesses[access].linear];
    for (std::uint32_t q = 0; q < nest_.derived.size(); ++q)
      if (l.of[nest_.loops() + q] != (nest_.derived[q].modulo ? Coefficient::Zero : Coefficient::One)) return nullptr;
    llvm::Type* element = memory_type(type_of_access(access), 0);
    const unsigned bits = element->getScalarSizeInBits(), wide = std::max(bits, 32u);
    const unsigned lanes = std::min(width_, static_cast<unsigned>(8 * schedule_.vector_bytes) / wide);
    if (!k_.permutes(wide, lanes)) return nullptr;
    Value* rows = in(entry_, [&] { return up(extent(nest_.vector_loop()), word(words_.by)); });
    Value* base = pointer(access, ~std::uint64_t{0});
    std::vector<Value*> parts;
    for (unsigned first = 0; first < width_; first += lanes) {
      Value* in_row = row_indices(false, b_.CreateAdd(place_, i64(first)), lanes);
      Value* least = b_.CreateExtractElement(in_row, std::uint64_t{0});
      Value* row = b_.CreateAdd(vector_row_, b_.CreateZExt(least, b_.getInt64Ty()));
      llvm::Type* type = llvm::FixedVectorType::get(element, lanes);
      Value* left = b_.CreateTrunc(smaller(b_.CreateSub(rows, row), i64(lanes)), b_.getInt32Ty());
      std::vector<llvm::Constant*> counting;
      for (unsigned i = 0; i < lanes; ++i) counting.push_back(b_.getInt32(i));
      Value* mask = b_.CreateICmpSLT(llvm::ConstantVector::get(counting), b_.CreateVectorSplat(lanes, left));
      Value* p = bytes(base, b_.CreateMul(row, i64(size_of_access(access))));
      Value* loaded = b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, llvm::Constant::getNullValue(type));
      parts.push_back(k_.permute(loaded, b_.CreateSub(in_row, b_.CreateVectorSplat(lanes, least))));
    }
    return k_.joined(parts);
  }

  // for j in begin .. n: a main loop of whole vectors, then one masked vector
  void vector_range(Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f) {
    vector_range(i64(0), n, around, sweep, nest_.short_rows ? in_short_rows(f) : f);
  }
  void vector_range(Value* begin, Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f) {
    Value* whole = b_.CreateAdd(begin, b_.CreateAnd(b_.CreateSub(n, begin), i64(-static_cast<std::int64_t>(width_))));
    if (!schedule_.masked) {
      loop("vectors", begin, whole, i64(width_), [&](Value* j) {
        Body body{around, j, nullptr, nullptr, sweep};
        f(body);
      });
      when(b_.CreateICmpSLT(whole, n), [&] {
        Value* left = b_.CreateSub(n, whole);
        Body body{around, whole, tail_mask(left), left, sweep};
        f(body);
      });
      return;
    }
    loop("vectors", begin, n, i64(width_), [&](Value* j) {
      Value* left = b_.CreateSub(n, j);
      Body body{around, j, tail_mask(left), left, sweep};
      f(body);
    });
  }

  bool stores_in(const Statement& s, std::uint8_t sweep) const {
    const std::uint64_t inner = nest_.reduced_mask();
    return s.kind == Statement::Kind::Store && s.stage == sweep && (nest_.kind == NestKind::Map || (s.loops & inner));
  }
  // While the last sweep computes, memory would rest, and the next row's first sweep wait for it: the hardware sees no stream beyond a
  // page. Where traffic is above the last-level cache, and the next row fits the first-level cache beside this one.
  void ask_for_next_row(Body& body) {
    constexpr std::int64_t kMostElements = 4096;
    if (nest_.kind != NestKind::Lanes || nest_.sweeps < 2 || nest_.serial > 0 || nest_.outer == 0 || schedule_.streamed.empty()) return;
    for (std::uint32_t access = 0; access < nest_.accesses.size(); ++access) {
      const std::uint32_t linear = nest_.accesses[access].linear, row = nest_.outer - 1u;
      if (nest_.buffers[nest_.accesses[access].buffer].written || !contiguous(access)) continue;
      if (nest_.linears[linear].of[row] == Coefficient::Zero) continue;
      Value* step = in(entry_, [&] {
        Value* bytes_to_next = b_.CreateMul(times(linear, row, i64(1)), i64(size_of_access(access)));
        return b_.CreateSelect(b_.CreateICmpSLE(extent(nest_.vector_loop()), i64(kMostElements)), bytes_to_next, i64(0));
      });
      Value* p = bytes(pointer(access, ~std::uint64_t{0}), b_.CreateAdd(step, b_.CreateMul(body.j, i64(size_of_access(access)))));
      for (std::int64_t line = 0; line < size_of_access(access) * width_; line += 64)
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()}, {bytes(p, line), b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
    }
  }
  void stores(Body& body, std::uint8_t sweep) {
    if (has_columns_ && sweep + 1 == nest_.sweeps) take_columns(body);
    if (sweep + 1 == nest_.sweeps && !body.mask) ask_for_next_row(body);
    for (std::size_t i = 0; i < nest_.body.size();
         i += std::max<std::size_t>(nest_.body[i].kind == Statement::Kind::Store ? nest_.body[i].count : 1, 1))
      if (stores_in(nest_.body[i], sweep)) store(body, nest_.body[i]);
  }
  bool any_stores(std::uint8_t sweep) const {
    for (const Statement& s : nest_.body)
      if (stores_in(s, sweep)) return true;
    return false;
  }

  // ---------------------------------------------------------------------------------------------- map
  std::vector<Value*> packed_rows_;  // of each packed access, the tile's row of the current outer iteration

  void map(Value* outer_tile) {
    Value* n = tile_length();
    if (schedule_.grouped) return schedule_.split ? scan_chunk(n) : scan_along(n);
    if (!packs()) {
      vector_range(n, stages_[0], 0, [&](Body& body) { stores(body, 0); });
      return;
    }
    const std::uint32_t u = nest_.outer - 1u;
    Value* u0 = b_.CreateMul(outer_tile, word(words_.tile_outer));
    Value* nu = smaller(word(words_.tile_outer), b_.CreateSub(extent(u), u0));
    std::vector<Value*> tiles;
    Value* at = scratch_base(layout_.total);
    for (std::uint32_t access : schedule_.packed) {
      tiles.push_back(at);
      pack(access, at, u0, nu, n);
      at = bytes(at, b_.CreateMul(b_.CreateMul(unit_, word(words_.tile_outer)), i64(size_of_access(access))));
    }
    loop("rows", i64(0), nu, i64(1), [&](Value* i) {
      index_[u] = b_.CreateAdd(u0, i);
      packed_rows_.clear();
      for (std::size_t p = 0; p < tiles.size(); ++p)
        packed_rows_.push_back(bytes(tiles[p], b_.CreateMul(b_.CreateMul(i, unit_), i64(size_of_access(schedule_.packed[p])))));
      serial_ = region(stages_[0], "serial");
      vector_range(n, serial_, 0, [&](Body& body) { stores(body, 0); });
    });
  }

  // tile[i][j] = source at (u0 + i, v0 + j), where the source is contiguous along u: squares are transposed in registers.
  void pack(std::uint32_t access, Value* tile, Value* u0, Value* nu, Value* nv) {
    const std::uint32_t linear = nest_.accesses[access].linear;
    const DType t = nest_.buffers[nest_.accesses[access].buffer].dtype;
    const std::int64_t size = size_of_access(access);
    const unsigned side = std::max(2u, std::min(16u, static_cast<unsigned>(schedule_.vector_bytes / size)));
    llvm::Type* type = memory_type(t, side);
    const std::uint32_t v = nest_.vector_loop();
    Value* base = in(*stages_[0], [&] {  // at (0, v0)
      Value* p = base_pointer(access);
      Value* sum = scalar_part(linear, outer_bits(), outer_bits());
      Value* start = times(linear, v, index_[v]);
      return bytes(p, b_.CreateMul(sum ? b_.CreateAdd(sum, start) : start, i64(size)));
    });
    Value* stride = b_.CreateMul(word(words_.coefficient_of(linear, v)), i64(size));
    std::vector<llvm::Constant*> lane;
    for (unsigned i = 0; i < side; ++i) lane.push_back(b_.getInt64(i));
    Value* lanes = llvm::ConstantVector::get(lane);
    Value* zero = llvm::Constant::getNullValue(type);
    const auto squares = [&](Value* j, Value* i, bool masked) {
      Value* p = bytes(base, b_.CreateAdd(b_.CreateMul(j, stride), b_.CreateMul(b_.CreateAdd(u0, i), i64(size))));
      std::vector<Value*> rows;
      Value* columns = masked ? b_.CreateICmpSLT(lanes, b_.CreateVectorSplat(side, b_.CreateSub(nu, i))) : nullptr;
      for (unsigned r = 0; r < side; ++r) {
        Value* q = bytes(p, b_.CreateMul(stride, i64(r)));
        if (!masked) {
          prefetch(bytes(q, b_.CreateMul(stride, word(words_.tile))));
          rows.push_back(b_.CreateAlignedLoad(type, q, llvm::Align(1)));
        } else {
          Value* row = b_.CreateVectorSplat(side, b_.CreateICmpSLT(b_.CreateAdd(j, i64(r)), nv));
          rows.push_back(b_.CreateMaskedLoad(type, q, llvm::Align(1), b_.CreateAnd(row, columns), zero));
        }
      }
      transpose(rows, side);
      for (unsigned r = 0; r < side; ++r) {  // rows past the tile's end land in its padding
        Value* q = bytes(tile, b_.CreateMul(b_.CreateAdd(b_.CreateMul(b_.CreateAdd(i, i64(r)), unit_), j), i64(size)));
        b_.CreateAlignedStore(rows[r], q, llvm::Align(1));
      }
    };
    Value* whole_u = b_.CreateAnd(nu, i64(-static_cast<std::int64_t>(side)));
    loop("pack", i64(0), nv, i64(side), [&](Value* j) {
      Value* fits = b_.CreateICmpSLE(b_.CreateAdd(j, i64(side)), nv);
      Value* until = b_.CreateSelect(fits, whole_u, i64(0));
      loop("pack.squares", i64(0), until, i64(side), [&](Value* i) { squares(j, i, false); });
      loop("pack.edges", until, nu, i64(side), [&](Value* i) { squares(j, i, true); });
    });
  }

  void transpose(std::vector<Value*>& rows, unsigned side) {
    for (unsigned d = side / 2; d >= 1; d /= 2) {  // blocks of d by d change places
      std::vector<Value*> next(side);
      for (unsigned r = 0; r < side; ++r) {
        if (r & d) continue;
        std::vector<int> low, high;
        for (unsigned c = 0; c < side; ++c) {
          low.push_back(static_cast<int>(c & d ? side + (c - d) : c));
          high.push_back(static_cast<int>(c & d ? side + c : c + d));
        }
        next[r] = b_.CreateShuffleVector(rows[r], rows[r + d], low);
        next[r + d] = b_.CreateShuffleVector(rows[r], rows[r + d], high);
      }
      rows = next;
    }
  }

  // ---------------------------------------------------------------------------------------------- scans
  void set_scan(std::uint32_t id, Value* base) {
    ScanState& state = scans_[id];
    Value* start = identity(id, width_);
    if (!state.carry) state = {variable(start->getType(), nullptr), variable(start->getType(), nullptr)};
    b_.CreateStore(start, state.carry);
    b_.CreateStore(base, state.base);
  }
  std::vector<std::uint32_t> scan_statements() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Scan) out.push_back(i);
    return out;
  }
  // A map in vectors of a group, blocks of the order of summation one by one.
  void scan_along(Value* n) {
    for (const std::uint32_t id : scan_statements()) set_scan(id, identity(id, width_));
    scan_blocks(
        n, [&](Body& body) { stores(body, 0); },
        [&](Value*, std::uint32_t id, const ScanState& state) {
          b_.CreateStore(combine(id, read(state.base), read(state.carry)), state.base);
        });
  }
  void scan_blocks(Value* n, const std::function<void(Body&)>& each,
                   const std::function<void(Value*, std::uint32_t, const ScanState&)>& end) {
    loop("blocks", i64(0), n, i64(ir::kScanBlock), [&](Value* from) {
      Value* to = smaller(b_.CreateAdd(from, i64(ir::kScanBlock)), n);
      Value* whole = schedule_.masked ? from : b_.CreateSub(to, b_.CreateAnd(b_.CreateSub(to, from), i64(ir::kScanGroup - 1)));
      if (!schedule_.masked)
        loop("groups", from, whole, i64(ir::kScanGroup), [&](Value* j) {
          Body body{stages_[0], j, nullptr, nullptr, 0};
          each(body);
        });
      loop("tail", whole, to, i64(ir::kScanGroup), [&](Value* j) {
        Value* left = b_.CreateSub(to, j);
        Body body{stages_[0], j, tail_mask(left), left, 0};
        each(body);
      });
      for (const auto& [id, state] : scans_) {
        end(from, id, state);
        b_.CreateStore(identity(id, width_), state.carry);
      }
    });
  }
  // An item of a split schedule (schedule.h): sums of blocks, the base, then the results.
  void scan_chunk(Value* n) {
    const std::vector<std::uint32_t> scans = scan_statements();
    const std::int64_t blocks = kScanChunk / ir::kScanBlock;
    Value* shared = in(entry_, [&] {
      return b_.CreateAlignedLoad(b_.getPtrTy(), bytes(argument(0), 8 * static_cast<std::int64_t>(words_.shared)), llvm::Align(8));
    });
    Value* mine = bytes(shared, b_.CreateMul(item_, i64(scan_slot_bytes(nest_))));
    Value* next = bytes(mine, scan_slot_bytes(nest_));
    const auto sum_of = [&](std::size_t k, Value* block) {
      const auto first = static_cast<std::int64_t>(1 + scans.size() + k * static_cast<std::size_t>(blocks));
      return bytes(mine, b_.CreateMul(b_.CreateAdd(i64(first), block), i64(8)));
    };
    BasicBlock* results = block("results");
    BasicBlock* sums = block("sums");
    BasicBlock* done = block("");
    b_.CreateCondBr(b_.CreateICmpEQ(word(words_.phase), i64(0)), sums, results);
    b_.SetInsertPoint(sums);
    for (const std::uint32_t id : scans) set_scan(id, identity(id, width_));
    scan_blocks(
        n,
        [&](Body& body) {
          for (const std::uint32_t id : scans) vector(body, id);
        },
        [&](Value* from, std::uint32_t id, const ScanState& state) {
          const auto k = static_cast<std::size_t>(std::ranges::find(scans, id) - scans.begin());
          Value* sum = b_.CreateExtractElement(read(state.carry), std::uint64_t{0});
          b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, sum), sum_of(k, b_.CreateUDiv(from, i64(ir::kScanBlock))), llvm::Align(8));
        });
    b_.CreateBr(done);
    b_.SetInsertPoint(results);
    std::vector<Value*> bases;
    for (const std::uint32_t id : scans) bases.push_back(variable(k_.type(nest_.body[id].dtype, 0), identity(id, 0)));
    when(b_.CreateICmpNE(index_[nest_.vector_loop()], i64(0)), [&] {  // not the first of its row
      for (std::size_t k = 0; k < scans.size(); ++k) {
        const DType t = nest_.body[scans[k]].dtype;
        Value* p = bytes(mine, 8 + 8 * static_cast<std::int64_t>(k));
        b_.CreateStore(from_memory(t, b_.CreateAlignedLoad(memory_type(t, 0), p, llvm::Align(8))), bases[k]);
      }
    });
    for (std::size_t k = 0; k < scans.size(); ++k) {
      set_scan(scans[k], b_.CreateVectorSplat(width_, read(bases[k])));
      const DType t = nest_.body[scans[k]].dtype;
      loop("bases", i64(0), up(n, i64(ir::kScanBlock)), i64(1), [&](Value* block) {
        Value* sum = from_memory(t, b_.CreateAlignedLoad(memory_type(t, 0), sum_of(k, block), llvm::Align(8)));
        b_.CreateStore(combine(scans[k], read(bases[k]), sum), bases[k]);
      });
      b_.CreateAlignedStore(to_memory(t, read(bases[k])), bytes(next, 8 + 8 * static_cast<std::int64_t>(k)), llvm::Align(8));
    }
    b_.CreateAlignedStore(i64(1), next, llvm::Align(8))->setAtomic(llvm::AtomicOrdering::Release);
    scan_blocks(
        n, [&](Body& body) { stores(body, 0); },
        [&](Value*, std::uint32_t id, const ScanState& state) {
          b_.CreateStore(combine(id, read(state.base), read(state.carry)), state.base);
        });
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }
  // Lanes that are not there stand behind those that are.
  Value* scan_group(Body& body, std::uint32_t id) {
    const ScanState& state = scans_.at(id);
    Value* v = vector(body, nest_.body[id].a);
    for (unsigned d = 1; d < width_; d *= 2) {
      std::vector<int> lanes;
      for (unsigned i = 0; i < width_; ++i) lanes.push_back(static_cast<int>(i < d ? i : width_ + i - d));
      v = combine(id, b_.CreateShuffleVector(identity(id, width_), v, lanes), v);
    }
    Value* carry = read(state.carry);
    Value* last = b_.CreateShuffleVector(v, std::vector<int>(width_, static_cast<int>(width_) - 1));
    b_.CreateStore(combine(id, carry, last), state.carry);
    return combine(id, read(state.base), combine(id, carry, v));
  }
  // Along a serial loop: carries and, of several blocks, bases are rows of scratch.
  Value* scan_row(Body& body, std::uint32_t id) {
    const DType t = nest_.body[id].dtype;
    Value* p = row_of(layout_.temporaries[id], i64(0), body.j, t);
    Value* old = from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1)));
    Value* carry = combine(id, old, vector(body, nest_.body[id].a));
    b_.CreateAlignedStore(to_memory(t, carry), p, llvm::Align(1));
    if (schedule_.one_block) return carry;
    Value* base = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.temporaries[id], i64(1), body.j, t), llvm::Align(1));
    return combine(id, from_memory(t, base), carry);
  }
  // Begins the rows of the scans, or the next block of them.
  void begin_scan_rows(bool first) {
    std::vector<std::uint32_t> scans;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Scan) scans.push_back(i);
    over_row([&](Value* j) {
      for (const std::uint32_t id : scans) {
        const DType t = nest_.body[id].dtype;
        Value* carry = row_of(layout_.temporaries[id], i64(0), j, t);
        if (!schedule_.one_block) {
          Value* base = row_of(layout_.temporaries[id], i64(1), j, t);
          const auto load = [&](Value* p) { return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), p, llvm::Align(1))); };
          b_.CreateAlignedStore(to_memory(t, first ? identity(id, width_) : combine(id, load(base), load(carry))), base, llvm::Align(1));
        }
        b_.CreateAlignedStore(to_memory(t, identity(id, width_)), carry, llvm::Align(1));
      }
    });
  }

  // ---------------------------------------------------------------------------------------------- reductions
  std::vector<std::uint32_t> reductions(std::uint8_t sweep) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Reduce && nest_.body[i].stage == sweep + 1 && !nest_.body[i].count) out.push_back(i);
    return out;
  }
  static Op combiner(Op reduction) {
    switch (reduction) {
      case Op::ReduceSum:
      case Op::ScanSum:
      case Op::ContractLanes:
      case Op::ContractRows: return Op::Add;
      case Op::ReduceProd:
      case Op::ScanProd: return Op::Mul;
      case Op::ReduceMax:
      case Op::ScanMax: return Op::Maximum;
      default: return Op::Minimum;
    }
  }
  Value* combine(std::uint32_t id, Value* a, Value* c) {
    const Statement& s = nest_.body[id];
    const Typed both[2] = {{a, s.dtype}, {c, s.dtype}};
    const Op op = combiner(s.op);
    if (s.dtype == DType::Bool) return op == Op::Maximum ? b_.CreateOr(a, c) : b_.CreateAnd(a, c);
    return k_.apply(op, s.dtype, both);
  }
  // What the body adds to an accumulator; of lanes that its mask leaves out, what changes none.
  Value* added(std::uint32_t id, Body& body) {
    Value* a = vector(body, nest_.body[id].a);
    return body.mask ? b_.CreateSelect(body.mask, a, identity(id, width_)) : a;
  }
  // The accumulator with what the body adds, which is a product by fma in contractions.
  Value* accumulated(std::uint32_t id, Value* accumulator, Body& body) {
    const Statement& s = nest_.body[id];
    if (!ir::is_contraction(s.op)) return combine(id, accumulator, added(id, body));
    Value *a = vector(body, s.a), *c = vector(body, s.b), *sum = nullptr;
    if (is_float(s.dtype)) {
      const Typed all[3] = {{a, s.dtype}, {c, s.dtype}, {accumulator, s.dtype}};
      sum = k_.apply(Op::Fma, s.dtype, all);
    } else {
      sum = b_.CreateAdd(b_.CreateMul(a, c), accumulator);
    }
    return body.mask ? b_.CreateSelect(body.mask, sum, accumulator) : sum;
  }
  // What a missing element and the start of an accumulator are.
  Value* identity(std::uint32_t id, unsigned width) {
    const Statement& s = nest_.body[id];
    std::uint64_t bits = 0;
    const bool real = is_float(s.dtype), is_signed = is_signed_integer(s.dtype);
    const std::uint64_t top = size_of(s.dtype) == 8 ? std::uint64_t{1} << 63 : std::uint64_t{1} << (8 * size_of(s.dtype) - 1);
    const std::uint64_t all = size_of(s.dtype) == 8 ? ~std::uint64_t{0} : (top << 1) - 1;
    switch (combiner(s.op)) {
      case Op::Add: bits = real ? ir::bits_of(s.dtype, -0.0) : 0; break;
      case Op::Mul: bits = ir::bits_of(s.dtype, 1.0); break;
      case Op::Maximum: bits = real ? ir::bits_of(s.dtype, -std::numeric_limits<double>::infinity()) : is_signed ? top : 0; break;
      default:
        bits = real                     ? ir::bits_of(s.dtype, std::numeric_limits<double>::infinity())
               : s.dtype == DType::Bool ? 1
               : is_signed              ? top - 1
                                        : all;
        break;
    }
    return k_.constant(s.dtype, bits, width);
  }
  std::int64_t lanes_of(std::uint32_t id) const { return size_of(nest_.body[id].dtype) == 8 ? 32 : 64; }

  // The largest (or smallest) of floats that were met: where the processor has no instruction for maximum, which knows NaN and the signs of
  // zeros, these are remembered beside it and looked at in the end.
  struct Extreme {
    Value* most;  // of those that are no NaN, but for the first
    Value* bits;  // all bits that each of them has (of a minimum: that any has): of zeros alone, the sign of the result
    Value* nan;   // not 0: there was a NaN
  };
  bool is_extreme(std::uint32_t id) const {
    const Statement& s = nest_.body[id];
    return is_float(s.dtype) && (s.op == Op::ReduceMax || s.op == Op::ReduceMin);
  }
  Extreme extreme(Value* v) {
    llvm::Type* bits = v->getType()->getWithNewType(b_.getIntNTy(v->getType()->getScalarSizeInBits()));
    return {v, b_.CreateBitCast(v, bits), b_.CreateSExt(b_.CreateFCmpUNO(v, v), bits)};
  }
  Extreme join(std::uint32_t id, const Extreme& a, const Extreme& c) {
    const bool most = nest_.body[id].op == Op::ReduceMax;
    Value* beyond = most ? b_.CreateFCmpOGT(c.most, a.most) : b_.CreateFCmpOLT(c.most, a.most);
    return {b_.CreateSelect(beyond, c.most, a.most), most ? b_.CreateAnd(a.bits, c.bits) : b_.CreateOr(a.bits, c.bits),
            b_.CreateOr(a.nan, c.nan)};
  }
  Value* settled(const Extreme& e) {
    llvm::Type* type = e.most->getType();
    Value* sign = llvm::ConstantInt::get(e.bits->getType(), llvm::APInt::getSignMask(type->getScalarSizeInBits()));
    Value* zero = b_.CreateBitCast(b_.CreateAnd(e.bits, sign), type);
    Value* v = b_.CreateSelect(b_.CreateFCmpOEQ(e.most, llvm::Constant::getNullValue(type)), zero, e.most);
    return b_.CreateSelect(b_.CreateICmpNE(e.nan, llvm::Constant::getNullValue(e.nan->getType())), llvm::ConstantFP::getNaN(type), v);
  }
  Value* combine_all(std::uint32_t id, const std::vector<Value*>& values) {  // in any order
    if (!is_extreme(id)) throw InternalError("emit: this reduction has an order");
    Extreme e = extreme(values[0]);
    for (std::size_t i = 1; i < values.size(); ++i) e = join(id, e, extreme(values[i]));
    return settled(e);
  }

  // Lanes of a reduction in registers.
  struct Lanes {
    std::uint32_t id;
    std::vector<std::vector<Value*>> vectors;  // variables: one, or three of an Extreme
  };
  Lanes new_lanes(std::uint32_t id) {
    Lanes l{id, {}};
    const unsigned bits = 8 * static_cast<unsigned>(size_of(nest_.body[id].dtype));
    for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) {
      l.vectors.push_back({variable(k_.type(nest_.body[id].dtype, width_), nullptr)});
      for (int k = 0; is_extreme(id) && k < 2; ++k)
        l.vectors.back().push_back(variable(llvm::FixedVectorType::get(b_.getIntNTy(bits), width_), nullptr));
    }
    return l;
  }
  void put(const std::vector<Value*>& variables, const Extreme& e) {
    b_.CreateStore(e.most, variables[0]), b_.CreateStore(e.bits, variables[1]), b_.CreateStore(e.nan, variables[2]);
  }
  Extreme get(const std::vector<Value*>& variables) { return {read(variables[0]), read(variables[1]), read(variables[2])}; }
  void reset(const Lanes& lanes) {
    for (const std::vector<Value*>& v : lanes.vectors) {
      Value* start = identity(lanes.id, width_);
      if (is_extreme(lanes.id)) put(v, extreme(start));
      else b_.CreateStore(start, v[0]);
    }
  }
  void take(const Lanes& lanes, std::size_t part, Body& body) {
    const std::vector<Value*>& v = lanes.vectors[part % lanes.vectors.size()];
    if (is_extreme(lanes.id)) put(v, join(lanes.id, get(v), extreme(added(lanes.id, body))));
    else b_.CreateStore(accumulated(lanes.id, read(v[0]), body), v[0]);
  }
  Value* total(const Lanes& lanes) {
    if (is_extreme(lanes.id)) {
      Extreme e = get(lanes.vectors[0]);
      for (std::size_t i = 1; i < lanes.vectors.size(); ++i) e = join(lanes.id, e, get(lanes.vectors[i]));
      return halve_extreme(lanes.id, e);
    }
    std::vector<Value*> vectors;
    for (const std::vector<Value*>& v : lanes.vectors) vectors.push_back(read(v[0]));
    return halve(lanes.id, vectors);
  }
  Value* half_of(Value* v, unsigned width, unsigned first) {
    std::vector<int> lanes;
    for (unsigned i = 0; i < width / 2; ++i) lanes.push_back(static_cast<int>(i + first));
    return b_.CreateShuffleVector(v, lanes);
  }
  Value* halve_extreme(std::uint32_t id, Extreme e) {
    for (unsigned w = width_; w > 1; w /= 2) {
      const auto half = [&](unsigned first) {
        return Extreme{half_of(e.most, w, first), half_of(e.bits, w, first), half_of(e.nan, w, first)};
      };
      e = join(id, half(0), half(w / 2));
    }
    const auto lane = [&](Value* v) { return b_.CreateExtractElement(v, std::uint64_t{0}); };
    return settled({lane(e.most), lane(e.bits), lane(e.nan)});
  }

  // Combines lanes by halving: lane i and lane i + half, until one is left.
  Value* halve(std::uint32_t id, std::vector<Value*> vectors) {
    if (is_extreme(id)) {
      Extreme e = extreme(vectors[0]);
      for (std::size_t i = 1; i < vectors.size(); ++i) e = join(id, e, extreme(vectors[i]));
      return halve_extreme(id, e);
    }
    while (vectors.size() > 1) {
      const std::size_t half = vectors.size() / 2;
      for (std::size_t i = 0; i < half; ++i) vectors[i] = combine(id, vectors[i], vectors[i + half]);
      vectors.resize(half);
    }
    Value* v = vectors[0];
    for (unsigned w = width_; w > 1; w /= 2) v = combine(id, half_of(v, w, 0), half_of(v, w, w / 2));
    return b_.CreateExtractElement(v, std::uint64_t{0});
  }

  // The tree of blocks, as a binary counter: level l holds the sum of 2^l blocks.
  struct Tree {
    unsigned width;  // of the values: 0, numbers
    Value* count;
    std::vector<Value*> stacks;  // of each reduction
  };
  Tree start_tree(const std::vector<std::uint32_t>& reductions, unsigned width = 0) {
    Tree t;
    t.width = width;
    t.count = variable(b_.getInt64Ty(), i64(0));
    for (std::uint32_t r : reductions)
      t.stacks.push_back(in(entry_, [&] { return b_.CreateAlloca(memory_type(nest_.body[r].dtype, width), i64(kTreeLevels)); }));
    return t;
  }
  Value* level(const Tree& tree, std::size_t reduction, Value* l, DType t) {
    return bytes(tree.stacks[reduction],
                 b_.CreateMul(l, i64(static_cast<std::int64_t>(size_of(t)) * std::max<std::int64_t>(tree.width, 1))));
  }
  // A new leaf carries through the levels that are taken, as one carries through the ones of a binary count: `merge` adds what stands at
  // such a level. Gives the first free one.
  Value* carry(Value* count, const std::function<void(Value* level)>& merge) {
    Value* l = variable(b_.getInt64Ty(), i64(0));
    Value* c = variable(b_.getInt64Ty(), read(count));
    BasicBlock* head = block("tree");
    BasicBlock* inside = block("");
    BasicBlock* after = block("");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    b_.CreateCondBr(b_.CreateTrunc(read(c), b_.getInt1Ty()), inside, after);
    b_.SetInsertPoint(inside);
    merge(read(l));
    b_.CreateStore(b_.CreateLShr(read(c), i64(1)), c);
    b_.CreateStore(b_.CreateAdd(read(l), i64(1)), l);
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    return read(l);
  }
  void push(Tree& tree, const std::vector<std::uint32_t>& reductions, const std::vector<Value*>& values) {
    std::vector<Value*> carried;
    for (std::size_t i = 0; i < reductions.size(); ++i) carried.push_back(variable(values[i]->getType(), values[i]));
    Value* free = carry(tree.count, [&](Value* l) {
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        const DType t = nest_.body[reductions[i]].dtype;
        Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
        b_.CreateStore(combine(reductions[i], below, read(carried[i])), carried[i]);
      }
    });
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const DType t = nest_.body[reductions[i]].dtype;
      b_.CreateAlignedStore(to_memory(t, read(carried[i])), level(tree, i, free, t), llvm::Align(1));
    }
    b_.CreateStore(b_.CreateAdd(read(tree.count), i64(1)), tree.count);
  }
  std::vector<Value*> top(Tree& tree, const std::vector<std::uint32_t>& reductions) {
    std::vector<Value*> sums;
    for (std::uint32_t r : reductions) sums.push_back(variable(k_.type(nest_.body[r].dtype, tree.width), identity(r, tree.width)));
    Value* first = variable(b_.getInt1Ty(), b_.getTrue());
    loop("fold", i64(0), i64(kTreeLevels), i64(1), [&](Value* l) {
      Value* here = b_.CreateTrunc(b_.CreateLShr(read(tree.count), l), b_.getInt1Ty());
      when(here, [&] {
        for (std::size_t i = 0; i < reductions.size(); ++i) {
          const DType t = nest_.body[reductions[i]].dtype;
          Value* below = from_memory(t, b_.CreateAlignedLoad(memory_type(t, tree.width), level(tree, i, l, t), llvm::Align(1)));
          b_.CreateStore(b_.CreateSelect(read(first), below, combine(reductions[i], below, read(sums[i]))), sums[i]);
        }
        b_.CreateStore(b_.getFalse(), first);
      });
    });
    std::vector<Value*> out;
    for (Value* s : sums) out.push_back(read(s));
    return out;
  }

  // ---------------------------------------------------------------------------------------------- lanes
  bool heavy(std::uint8_t sweep) const { return schedule_.masked || cost_of(sweep) > 16; }
  int cost_of(std::uint8_t sweep) const {
    int ops = 0;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
      const Statement& s = nest_.body[i];
      if (!needed_[sweep][i] || !is_vector(i) || s.kind != Statement::Kind::Op) continue;
      ops += ir::info(s.op).kind == ir::OpKind::Expanded ? 24 : 1;
    }
    return ops;
  }
  // Are the lanes in registers? Each vector of them then has its own code.
  bool in_registers(std::uint8_t sweep) const { return !schedule_.masked && cost_of(sweep) <= (64 / width_ <= 2 ? 48 : 16); }

  // What is computed and stored once a row. Of a split schedule, what is stored is so by the row's first chunk.
  void row_level(std::uint8_t stage, bool stores) {
    if (nest_.kind == NestKind::Rows) {
      if (!schedule_.split) return rows_level(stage, true, true);
      rows_level(stage, true, false);
      if (stores && stores_of_rows(stage)) when(is_first_chunk(), [&] { rows_level(stage, false, true); });
      return;
    }
    if (!stores || !stores_of_rows(stage)) return;
    if (schedule_.split) when(is_first_chunk(), [&] { lanes_level(stage); });
    else lanes_level(stage);
  }
  bool stores_of_rows(std::uint8_t stage) const {
    return std::any_of(nest_.body.begin(), nest_.body.end(), [&](const Statement& s) {
      return s.kind == Statement::Kind::Store && s.stage == stage && !(s.loops & nest_.reduced_mask());
    });
  }
  void lanes_level(std::uint8_t stage) {
    const std::uint64_t inner = nest_.reduced_mask();
    for (const Statement& s : nest_.body) {
      if (s.kind != Statement::Kind::Store || s.stage != stage || (s.loops & inner)) continue;
      Value* value = scalar(s.a);
      b_.CreateAlignedStore(to_memory(type_of_access(s.at), value), pointer(s.at, s.loops), llvm::Align(1));
    }
  }

  // Lanes in the kernel's own memory.
  Value* lanes_in_memory(std::uint32_t id) {
    return in(entry_, [&] {
      auto* a = b_.CreateAlloca(memory_type(nest_.body[id].dtype, 0), i64(lanes_of(id)));
      a->setAlignment(llvm::Align(64));
      return a;
    });
  }
  Value* lane_place(std::uint32_t id, Value* memory, Value* lane) {
    return bytes(memory, b_.CreateMul(lane, i64(static_cast<std::int64_t>(size_of(nest_.body[id].dtype)))));
  }
  Value* load_lanes(std::uint32_t id, Value* memory, Value* lane) {
    const DType t = nest_.body[id].dtype;
    return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), lane_place(id, memory, lane), llvm::Align(1)));
  }
  void store_lanes(std::uint32_t id, Value* memory, Value* lane, Value* v) {
    b_.CreateAlignedStore(to_memory(nest_.body[id].dtype, v), lane_place(id, memory, lane), llvm::Align(1));
  }
  void reset_lanes(std::uint32_t id, Value* memory) {
    for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) store_lanes(id, memory, i64(lane), identity(id, width_));
  }
  Value* sum_of_lanes(std::uint32_t id, Value* memory) {
    std::vector<Value*> vectors;
    for (std::int64_t lane = 0; lane < lanes_of(id); lane += width_) vectors.push_back(load_lanes(id, memory, i64(lane)));
    return halve(id, vectors);
  }

  void lanes_sweep(std::uint8_t sweep) {
    const std::vector<std::uint32_t> reds = reductions(sweep);
    Value* n = tile_length();
    reduced_.clear();
    if (nest_.serial > 0) return serial_lanes(sweep, reds, n);
    Value* first = i64(0);
    if (schedule_.split) first = chunk_begin_, n = chunk_end_;
    if (reds.empty()) {
      const auto range = [&] { vector_range(first, n, stages_[sweep], sweep, [&](Body& body) { stores(body, sweep); }); };
      if (has_columns_ && sweep + 1 == nest_.sweeps && !schedule_.masked) for_each_carry(range);
      else range();
      return;
    }
    const bool registers = in_registers(sweep);
    std::vector<Lanes> lanes;
    std::vector<Value*> memory;  // the same lanes where one code serves all of them
    for (std::uint32_t r : reds) {
      if (registers) lanes.push_back(new_lanes(r));
      else memory.push_back(lanes_in_memory(r));
    }
    const auto single = [&](Body& body) {  // one vector into the lanes in memory
      for (std::size_t i = 0; i < reds.size(); ++i) {
        Value* lane = b_.CreateAnd(body.j, i64(lanes_of(reds[i]) - 1));
        store_lanes(reds[i], memory[i], lane, accumulated(reds[i], load_lanes(reds[i], memory[i], lane), body));
      }
      stores(body, sweep);
    };
    const auto part_of_64 = [&](Value* j, unsigned part, Value* mask, Value* left) {
      Body body{stages_[sweep], part ? b_.CreateAdd(j, i64(part * width_)) : j, mask, left, sweep};
      for (const Lanes& l : lanes) take(l, part, body);
      stores(body, sweep);
    };
    const auto block_in_registers = [&](Value* from, Value* to) {
      for (const Lanes& l : lanes) reset(l);
      Value* whole = b_.CreateAdd(from, b_.CreateAnd(b_.CreateSub(to, from), i64(-64)));
      loop("lanes", from, whole, i64(64), [&](Value* j) {
        for (unsigned part = 0; part < 64 / width_; ++part) part_of_64(j, part, nullptr, nullptr);
      });
      when(b_.CreateICmpSLT(whole, to), [&] {
        for (unsigned part = 0; part < 64 / width_; ++part) {
          Value* left = b_.CreateSub(to, b_.CreateAdd(whole, i64(part * width_)));
          when(b_.CreateICmpSGT(left, i64(0)), [&] { part_of_64(whole, part, tail_mask(left), left); });
        }
      });
      std::vector<Value*> sums;
      for (const Lanes& l : lanes) sums.push_back(total(l));
      return sums;
    };
    const auto block_in_memory = [&](Value* from, Value* to) {
      for (std::size_t i = 0; i < reds.size(); ++i) reset_lanes(reds[i], memory[i]);
      Value* end = from;
      if (!schedule_.masked) {
        end = b_.CreateAdd(from, b_.CreateAnd(b_.CreateSub(to, from), i64(-static_cast<std::int64_t>(width_))));
        loop("vectors", from, end, i64(width_), [&](Value* j) {
          Body body{stages_[sweep], j, nullptr, nullptr, sweep};
          single(body);
        });
      }
      loop("tail", end, to, i64(width_), [&](Value* j) {
        Value* left = b_.CreateSub(to, j);
        Body body{stages_[sweep], j, tail_mask(left), left, sweep};
        single(body);
      });
      std::vector<Value*> sums;
      for (std::size_t i = 0; i < reds.size(); ++i) sums.push_back(sum_of_lanes(reds[i], memory[i]));
      return sums;
    };
    const auto block_sum = [&](Value* from, Value* to) { return registers ? block_in_registers(from, to) : block_in_memory(from, to); };
    std::vector<Value*> sums;
    if (schedule_.one_block) {
      sums = block_sum(i64(0), n);
    } else {
      Tree tree = start_tree(reds);
      loop("blocks", first, n, i64(ir::kLaneBlock),
           [&](Value* from) { push(tree, reds, block_sum(from, smaller(b_.CreateAdd(from, i64(ir::kLaneBlock)), n))); });
      sums = top(tree, reds);
    }
    for (std::size_t i = 0; i < reds.size(); ++i) reduced_[reds[i]] = sums[i];
  }

  // The serial loops inside an item: f is called in each iteration, its region in serial_, with the count of runs so far. Of a split
  // schedule, the iterations whose rows of r meet the chunk.
  void serial_loops(const std::function<void(Value* run, Value* row)>& f) {
    // run: iterations of the loops that count runs; row: iterations of the other serial loops within a run
    const std::uint32_t first = nest_.outer, runs_end = first + nest_.runs, end = first + nest_.serial;
    std::vector<Value*> starts, lasts;  // of each loop, in the chunk's first and last iteration
    if (schedule_.split) starts = serial_digits(chunk_begin_, false), lasts = serial_digits(chunk_end_, true);
    std::function<void(std::uint32_t, Value*, Value*, Value*, Value*)> nested = [&](std::uint32_t l, Value* run, Value* row,
                                                                                    Value* at_start, Value* at_end) {
      if (l == end) {
        serial_ = region(stages_.back(), "serial");
        f(run, row);
        return;
      }
      Value *from = i64(0), *to = extent(l), *start = nullptr, *last = nullptr;
      if (schedule_.split) {
        start = starts[l - first], last = lasts[l - first];
        from = b_.CreateSelect(at_start, start, from);
        to = b_.CreateSelect(at_end, b_.CreateAdd(last, i64(1)), to);
      }
      loop("serial", from, to, i64(1), [&](Value* i) {
        index_[l] = i;
        Value*& count = l < runs_end ? run : row;
        Value* saved = count;
        count = b_.CreateAdd(b_.CreateMul(count, extent(l)), i);
        if (!schedule_.split) nested(l + 1, run, row, nullptr, nullptr);
        else nested(l + 1, run, row, b_.CreateAnd(at_start, b_.CreateICmpEQ(i, start)), b_.CreateAnd(at_end, b_.CreateICmpEQ(i, last)));
        count = saved;
      });
    };
    nested(first, i64(0), i64(0), b_.getTrue(), b_.getTrue());
  }
  // The serial loops' indices of the row of r in which element r stands; `last`: in which the element before r stands. A chunk begins in
  // no missing element, since these are fewer than those that a block is a multiple of; it may end in some.
  std::vector<Value*> serial_digits(Value* r, bool last) {
    Value* elements = nest_.kind == NestKind::Lanes ? extent(nest_.vector_loop()) : i64(1);  // of r in a row
    if (last) r = b_.CreateSub(r, i64(1));
    std::vector<Value*> out(nest_.serial);
    Value* rest = r;
    const auto digits = [&](std::uint32_t from, std::uint32_t to) {
      for (std::uint32_t l = to; l-- > from;) {
        out[l] = l == 0 ? rest : b_.CreateURem(rest, extent(nest_.outer + l));
        rest = l == 0 ? rest : b_.CreateUDiv(rest, extent(nest_.outer + l));
      }
    };
    if (nest_.runs) {
      Value* run = b_.CreateUDiv(r, word(words_.padded_run));
      Value* rows = i64(1);
      for (std::uint32_t l = nest_.runs; l < nest_.serial; ++l) rows = b_.CreateMul(rows, extent(nest_.outer + l));
      rest = smaller(b_.CreateUDiv(b_.CreateURem(r, word(words_.padded_run)), elements), b_.CreateSub(rows, i64(1)));
      for (std::uint32_t l = nest_.serial; l-- > nest_.runs;) {
        out[l] = b_.CreateURem(rest, extent(nest_.outer + l));
        rest = b_.CreateUDiv(rest, extent(nest_.outer + l));
      }
      rest = run;
      digits(0, nest_.runs);
    } else {
      rest = b_.CreateUDiv(r, elements);
      digits(0, nest_.serial);
    }
    return out;
  }

  // Several reduced loops: a row begins at any r. It goes through in segments that lie in one block each; vectors that hang over a
  // segment's ends are masked.
  void serial_lanes(std::uint8_t sweep, const std::vector<std::uint32_t>& reds, Value* n) {
    // elements of the row that begins at r0
    const auto row_range = [&](Value* r0) {
      if (!schedule_.split) return std::pair<Value*, Value*>(i64(0), n);
      Value* from = b_.CreateSub(chunk_begin_, r0);
      from = b_.CreateSelect(b_.CreateICmpSLT(from, i64(0)), i64(0), from);
      return std::pair<Value*, Value*>(from, smaller(b_.CreateSub(chunk_end_, r0), n));
    };
    const auto start_of_row = [&](Value* run, Value* row) {
      Value* r0 = b_.CreateMul(row, n);
      return nest_.runs ? b_.CreateAdd(r0, b_.CreateMul(run, word(words_.padded_run))) : r0;
    };
    if (reds.empty()) {
      serial_loops([&](Value* run, Value* row) {
        row_offset_ = start_of_row(run, row);
        const auto [from, to] = row_range(row_offset_);
        vector_range(from, to, serial_, sweep, [&](Body& body) { stores(body, sweep); });
      });
      return;
    }
    const bool registers = in_registers(sweep), masked = schedule_.masked;
    std::vector<Lanes> lanes;
    std::vector<Value*> memory;
    for (std::uint32_t r : reds) {
      if (registers) lanes.push_back(new_lanes(r));
      else memory.push_back(lanes_in_memory(r));
    }
    const auto reset_all = [&] {
      for (const Lanes& l : lanes) reset(l);
      for (std::size_t i = 0; i < memory.size(); ++i) reset_lanes(reds[i], memory[i]);
    };
    const auto sum_all = [&] {
      std::vector<Value*> sums;
      for (const Lanes& l : lanes) sums.push_back(total(l));
      for (std::size_t i = 0; i < memory.size(); ++i) sums.push_back(sum_of_lanes(reds[i], memory[i]));
      return sums;
    };
    reset_all();
    Tree tree = start_tree(reds);
    Value* current = variable(b_.getInt64Ty(), schedule_.split ? b_.CreateLShr(chunk_begin_, i64(12)) : i64(0));
    serial_loops([&](Value* run, Value* row) {
      Value* r0 = row_offset_ = start_of_row(run, row);
      const auto [from, to] = row_range(r0);
      Region* around = serial_;
      // the vector at r, `part` of the lanes (in memory: r says which); lanes begin .. end, or all
      const auto single = [&](Value* r, unsigned part, Value* begin, Value* end) {
        Body body{around, b_.CreateSub(r, r0), nullptr, nullptr, sweep};  // below 0 in the lanes before the row
        if (begin) {
          Value* lane = b_.CreateAdd(b_.CreateVectorSplat(width_, b_.CreateTrunc(b_.CreateSub(r, begin), b_.getInt32Ty())),
                                     b_.CreateTrunc(iota(width_), llvm::FixedVectorType::get(b_.getInt32Ty(), width_)));
          body.mask = b_.CreateICmpULT(lane, b_.CreateVectorSplat(width_, b_.CreateTrunc(b_.CreateSub(end, begin), b_.getInt32Ty())));
        }
        for (std::size_t i = 0; i < reds.size(); ++i) {
          if (registers) {
            take(lanes[i], part, body);
          } else {
            Value* lane = b_.CreateAnd(r, i64(lanes_of(reds[i]) - 1));
            store_lanes(reds[i], memory[i], lane, accumulated(reds[i], load_lanes(reds[i], memory[i], lane), body));
          }
        }
        stores(body, sweep);
      };
      // elements begin .. end of the 64 at `first`
      const auto some_of_64 = [&](Value* first, Value* begin, Value* end) {
        for (unsigned part = 0; part < 64 / width_; ++part) {
          Value* r = part ? b_.CreateAdd(first, i64(part * width_)) : first;
          Value* meets = b_.CreateAnd(b_.CreateICmpSLT(r, end), b_.CreateICmpSLT(begin, b_.CreateAdd(r, i64(width_))));
          when(meets, [&] { single(r, part, begin, end); });
        }
      };
      const auto segment = [&](Value* begin, Value* end) {
        const std::int64_t step = registers ? 64 : width_;
        if (!registers && masked) {
          loop("row", b_.CreateAnd(begin, i64(-step)), end, i64(step), [&](Value* r) { single(r, 0, begin, end); });
          return;
        }
        Value* head = b_.CreateAnd(begin, i64(-step));
        Value* whole = b_.CreateAnd(b_.CreateAdd(begin, i64(step - 1)), i64(-step));
        Value* tail = b_.CreateAnd(end, i64(-step));
        const auto some = [&](Value* first) {
          if (registers) some_of_64(first, begin, end);
          else single(first, 0, begin, end);
        };
        when(b_.CreateICmpSLT(head, whole), [&] { some(head); });
        loop("lanes", whole, tail, i64(step), [&](Value* r) {
          for (unsigned part = 0; part < step / width_; ++part)
            single(part ? b_.CreateAdd(r, i64(part * width_)) : r, part, nullptr, nullptr);
        });
        when(b_.CreateAnd(b_.CreateICmpSLT(tail, end), b_.CreateICmpSLE(whole, tail)), [&] { some(tail); });
      };
      if (schedule_.one_block) return segment(b_.CreateAdd(r0, from), b_.CreateAdd(r0, to));
      Value* end = b_.CreateAdd(r0, to);
      Value* next = variable(b_.getInt64Ty(), b_.CreateAdd(r0, from));
      loop("segments", b_.CreateLShr(b_.CreateAdd(r0, from), i64(12)),
           b_.CreateAdd(b_.CreateLShr(b_.CreateSub(end, i64(1)), i64(12)), i64(1)), i64(1), [&](Value* now) {
             static_assert(ir::kLaneBlock == 1 << 12);
             when(b_.CreateICmpNE(now, read(current)), [&] {
               push(tree, reds, sum_all());
               reset_all();
               b_.CreateStore(now, current);
             });
             Value* begin = read(next);
             Value* until = smaller(b_.CreateShl(b_.CreateAdd(now, i64(1)), i64(12)), end);
             segment(begin, until);
             b_.CreateStore(until, next);
           });
    });
    std::vector<Value*> sums = sum_all();
    if (!schedule_.one_block) {
      push(tree, reds, sums);
      sums = top(tree, reds);
    }
    for (std::size_t i = 0; i < reds.size(); ++i) reduced_[reds[i]] = sums[i];
  }

  // ---------------------------------------------------------------------------------------------- rows
  bool sums_up(std::uint32_t r) const { return ScratchLayout::sums(nest_.body[r]); }
  Value* tree_of_eight(std::uint32_t r, const std::vector<Value*>& v) {
    Value* low = combine(r, combine(r, v[0], v[1]), combine(r, v[2], v[3]));
    Value* high = combine(r, combine(r, v[4], v[5]), combine(r, v[6], v[7]));
    return combine(r, low, high);
  }
  // Element j of the k-th row of a slot that has several.
  Value* row_of(std::uint32_t slot, Value* k, Value* j, DType t) {
    return bytes(scratch_base(slot), b_.CreateMul(b_.CreateAdd(b_.CreateMul(k, unit_), j), i64(static_cast<std::int64_t>(size_of(t)))));
  }
  Value* load_row(std::uint32_t slot, Value* j, DType t) {
    return from_memory(t, b_.CreateAlignedLoad(memory_type(t, width_), scratch_row(slot, j, t), llvm::Align(1)));
  }
  void store_row(std::uint32_t slot, Value* j, DType t, Value* v) {
    b_.CreateAlignedStore(to_memory(t, v), scratch_row(slot, j, t), llvm::Align(1));
  }
  // whole vectors over the tile: rows of scratch are padded
  void over_row(const std::function<void(Value*)>& f) { loop("over", i64(0), tile_length(), i64(width_), f); }

  // Contractions: the accumulators of one vector of the row stay in registers while the serial loops run.
  void contract_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds) {
    vector_range(tile_length(), stages_.back(), sweep, [&](Body& all) {
      std::vector<Value*> sums;
      for (std::uint32_t r : reds) sums.push_back(variable(k_.type(nest_.body[r].dtype, width_), identity(r, width_)));
      Value* blocks = variable(b_.getInt64Ty(), i64(0));
      const auto add_level = [&](Value* level) {
        for (std::size_t i = 0; i < reds.size(); ++i) {
          const DType t = nest_.body[reds[i]].dtype;
          Value* below = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.stacks[reds[i]], level, all.j, t), llvm::Align(1));
          b_.CreateStore(combine(reds[i], below, read(sums[i])), sums[i]);
        }
      };
      const auto push_block = [&] {
        Value* free = carry(blocks, add_level);
        for (std::size_t i = 0; i < reds.size(); ++i) {
          const DType t = nest_.body[reds[i]].dtype;
          b_.CreateAlignedStore(read(sums[i]), row_of(layout_.stacks[reds[i]], free, all.j, t), llvm::Align(1));
          b_.CreateStore(identity(reds[i], width_), sums[i]);
        }
        b_.CreateStore(b_.CreateAdd(read(blocks), i64(1)), blocks);
      };
      const auto one_row = [&] {
        Body body{serial_, all.j, all.mask, all.remaining, sweep};
        for (std::size_t i = 0; i < reds.size(); ++i) b_.CreateStore(accumulated(reds[i], read(sums[i]), body), sums[i]);
        stores(body, sweep);
      };
      static_assert((ir::kRowBlock & (ir::kRowBlock - 1)) == 0);
      Value* first = schedule_.split ? chunk_begin_ : i64(0);
      if (nest_.serial == 1) {
        const std::uint32_t l = nest_.outer;
        Value* end = schedule_.split ? chunk_end_ : extent(l);
        const auto block_of = [&](Value* from, Value* to) {
          loop("serial", from, to, i64(1), [&](Value* r) {
            index_[l] = r;
            serial_ = region(stages_.back(), "serial");
            one_row();
          });
        };
        if (schedule_.one_block) {
          block_of(first, end);
        } else {
          loop("blocks", first, end, i64(ir::kRowBlock), [&](Value* from) {
            when(b_.CreateICmpNE(from, first), push_block);
            block_of(from, smaller(b_.CreateAdd(from, i64(ir::kRowBlock)), end));
          });
        }
      } else {
        serial_loops([&](Value*, Value* row) {
          if (!schedule_.one_block)
            when(b_.CreateAnd(b_.CreateICmpNE(row, first), b_.CreateICmpEQ(b_.CreateAnd(row, i64(ir::kRowBlock - 1)), i64(0))), push_block);
          one_row();
        });
      }
      if (!schedule_.one_block)
        loop("fold", i64(0), i64(kTreeLevels), i64(1),
             [&](Value* at) { when(b_.CreateTrunc(b_.CreateLShr(read(blocks), at), b_.getInt1Ty()), [&] { add_level(at); }); });
      for (std::size_t i = 0; i < reds.size(); ++i) store_row(layout_.values[reds[i]], all.j, nest_.body[reds[i]].dtype, read(sums[i]));
    });
  }

  void rows_sweep(std::uint8_t sweep) {
    const std::vector<std::uint32_t> reds = reductions(sweep);
    // fuse lets no others into their loops
    if (!reds.empty() && ir::is_contraction(nest_.body[reds[0]].op)) return contract_rows(sweep, reds);
    Value* n = tile_length();
    if (reds.empty()) {
      const bool scans = nest_.has(Statement::Kind::Scan);
      if (scans) begin_scan_rows(true);
      serial_loops([&](Value*, Value* row) {
        if (scans && !schedule_.one_block)
          when(b_.CreateAnd(b_.CreateICmpNE(row, i64(0)), b_.CreateICmpEQ(b_.CreateAnd(row, i64(ir::kScanBlock - 1)), i64(0))),
               [&] { begin_scan_rows(false); });
        vector_range(n, serial_, sweep, [&](Body& body) { stores(body, sweep); });
      });
      return;
    }
    std::vector<std::uint32_t> sums;
    for (std::uint32_t r : reds)
      if (sums_up(r)) sums.push_back(r);
    over_row([&](Value* j) {
      for (std::uint32_t r : reds) store_row(layout_.values[r], j, nest_.body[r].dtype, identity(r, width_));
    });
    Value* first = schedule_.split ? chunk_begin_ : i64(0);
    Value* blocks = variable(b_.getInt64Ty(), i64(0));
    const auto add_level = [&](Value* level) {  // what stands there, before what is in the accumulators
      over_row([&](Value* j) {
        for (std::uint32_t r : sums) {
          const DType t = nest_.body[r].dtype;
          Value* below = b_.CreateAlignedLoad(memory_type(t, width_), row_of(layout_.stacks[r], level, j, t), llvm::Align(1));
          store_row(layout_.values[r], j, t, combine(r, below, load_row(layout_.values[r], j, t)));
        }
      });
    };
    const auto push_block = [&] {  // the accumulators become a leaf of the tree
      Value* free = carry(blocks, add_level);
      over_row([&](Value* j) {
        for (std::uint32_t r : sums) {
          const DType t = nest_.body[r].dtype;
          b_.CreateAlignedStore(load_row(layout_.values[r], j, t), row_of(layout_.stacks[r], free, j, t), llvm::Align(1));
          store_row(layout_.values[r], j, t, identity(r, width_));
        }
      });
      b_.CreateStore(b_.CreateAdd(read(blocks), i64(1)), blocks);
    };
    const auto fold_blocks = [&] {  // the last block is in the accumulators: what lies below it in the tree is added from the left
      loop("fold", i64(0), i64(kTreeLevels), i64(1),
           [&](Value* at) { when(b_.CreateTrunc(b_.CreateLShr(read(blocks), at), b_.getInt1Ty()), [&] { add_level(at); }); });
    };

    // ---- groups of eight rows by the serial loops, whatever these are: rows into temporaries, then their tree
    Value* filled = variable(b_.getInt64Ty(), i64(0));  // rows of the current group that stand in the temporaries
    Value* group = variable(b_.getInt64Ty(), b_.CreateLShr(first, i64(3)));
    const auto temporary = [&](std::uint32_t r, Value* k, Value* j) { return row_of(layout_.temporaries[r], k, j, nest_.body[r].dtype); };
    const auto fill_to = [&](Value* k) {
      loop("missing", read(filled), k, i64(1), [&](Value* at) {
        over_row([&](Value* j) {
          for (std::uint32_t r : sums) b_.CreateAlignedStore(identity(r, width_), temporary(r, at, j), llvm::Align(1));
        });
      });
    };
    const auto flush_group = [&] {
      fill_to(i64(ir::kRowGroup));
      over_row([&](Value* j) {
        for (std::uint32_t r : sums) {
          const DType t = nest_.body[r].dtype;
          std::vector<Value*> v;
          for (std::int64_t k = 0; k < ir::kRowGroup; ++k)
            v.push_back(b_.CreateAlignedLoad(memory_type(t, width_), temporary(r, i64(k), j), llvm::Align(1)));
          store_row(layout_.values[r], j, t, combine(r, load_row(layout_.values[r], j, t), tree_of_eight(r, v)));
        }
      });
      b_.CreateStore(i64(0), filled);
    };
    const auto one_row = [&](Value* r_number) {
      Value* my_group = b_.CreateLShr(r_number, i64(3));
      static_assert(ir::kRowGroup == 1 << 3 && ir::kRowBlock == 1 << 8);
      if (!sums.empty()) {
        when(b_.CreateICmpNE(my_group, read(group)), [&] {
          when(b_.CreateICmpNE(read(filled), i64(0)), flush_group);
          if (!schedule_.one_block) when(b_.CreateICmpNE(b_.CreateLShr(my_group, i64(5)), b_.CreateLShr(read(group), i64(5))), push_block);
          b_.CreateStore(my_group, group);
        });
        fill_to(b_.CreateAnd(r_number, i64(7)));
      }
      Value* k = b_.CreateAnd(r_number, i64(7));
      vector_range(n, serial_, sweep, [&](Body& body) {
        for (std::uint32_t r : reds) {
          const DType t = nest_.body[r].dtype;
          Value* value = vector(body, nest_.body[r].a);
          if (sums_up(r)) {
            b_.CreateAlignedStore(value, temporary(r, k, body.j), llvm::Align(1));
          } else {
            store_row(layout_.values[r], body.j, t, combine(r, load_row(layout_.values[r], body.j, t), value));
          }
        }
        stores(body, sweep);
      });
      b_.CreateStore(b_.CreateAdd(k, i64(1)), filled);
    };

    if (nest_.serial == 1 && nest_.runs == 0 && !heavy(sweep)) {
      // eight rows at a time in registers, the rest one by one
      const std::uint32_t l = nest_.outer;
      Value* end = schedule_.split ? chunk_end_ : extent(l);
      Value* whole = b_.CreateAnd(end, i64(-ir::kRowGroup));
      loop("rows", first, whole, i64(ir::kRowGroup), [&](Value* r0) {
        if (!schedule_.one_block && !sums.empty())
          when(b_.CreateAnd(b_.CreateICmpNE(r0, first), b_.CreateICmpEQ(b_.CreateAnd(r0, i64(ir::kRowBlock - 1)), i64(0))), push_block);
        std::vector<Region*> around;
        for (std::int64_t k = 0; k < ir::kRowGroup; ++k) {
          around.push_back(region(stages_.back(), "serial"));
          if (k > 0) around.back()->before = around[static_cast<std::size_t>(k - 1)];
        }
        std::vector<Value*> rows;
        for (std::int64_t k = 0; k < ir::kRowGroup; ++k) rows.push_back(in(*around[0], [&] { return k ? b_.CreateAdd(r0, i64(k)) : r0; }));
        vector_range(n, around[0], sweep, [&](Body& all) {
          std::vector<std::vector<Value*>> values(reds.size());
          for (std::int64_t k = 0; k < ir::kRowGroup; ++k) {
            serial_ = around[static_cast<std::size_t>(k)];
            index_[l] = rows[static_cast<std::size_t>(k)];
            Body body{serial_, all.j, all.mask, all.remaining, sweep};
            for (std::size_t i = 0; i < reds.size(); ++i) values[i].push_back(vector(body, nest_.body[reds[i]].a));
            stores(body, sweep);
          }
          for (std::size_t i = 0; i < reds.size(); ++i) {
            const DType t = nest_.body[reds[i]].dtype;
            Value* before = load_row(layout_.values[reds[i]], all.j, t);
            Value* sum = nullptr;
            if (is_extreme(reds[i])) values[i].push_back(before), sum = combine_all(reds[i], values[i]);
            else sum = combine(reds[i], before, tree_of_eight(reds[i], values[i]));
            store_row(layout_.values[reds[i]], all.j, t, sum);
          }
        });
      });
      when(b_.CreateICmpNE(whole, first), [&] { b_.CreateStore(b_.CreateLShr(b_.CreateSub(whole, i64(1)), i64(3)), group); });
      loop("rest", whole, end, i64(1), [&](Value* r) {
        index_[l] = r;
        serial_ = region(stages_.back(), "serial");
        one_row(r);
      });
    } else {
      serial_loops(
          [&](Value* run, Value* row) { one_row(nest_.runs ? b_.CreateAdd(row, b_.CreateMul(run, word(words_.padded_run))) : row); });
    }
    if (!sums.empty()) {
      when(b_.CreateICmpNE(read(filled), i64(0)), flush_group);
      if (!schedule_.one_block) fold_blocks();
    }
  }

  // What a row computes from its reductions: values that later sweeps read, and results of the row itself.
  void rows_level(std::uint8_t stage, bool values, bool stores) {
    const std::uint64_t inner = nest_.reduced_mask();
    const auto is_value = [&](std::uint32_t i) {
      return values && nest_.body[i].kind == Statement::Kind::Op && stage > 0 && layout_.values[i] != ScratchLayout::kNone;
    };
    bool any = false;
    for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
      const Statement& s = nest_.body[i];
      if (s.stage != stage || (s.loops & inner)) continue;
      any |= (stores && s.kind == Statement::Kind::Store) || is_value(i);
    }
    if (!any) return;
    vector_range(tile_length(), stages_.back(), stage, [&](Body& body) {
      for (std::uint32_t i = 0; i < nest_.body.size(); ++i) {
        const Statement& s = nest_.body[i];
        if (s.stage != stage || (s.loops & inner)) continue;
        if (s.kind == Statement::Kind::Store) {
          if (stores) store(body, s);
        } else if (is_value(i)) {
          Value* v = row_value(body, i);
          store_row(layout_.values[i], body.j, s.dtype, v);
        }
      }
    });
  }
  // Made here, not read back; its operands of earlier stages stand in scratch.
  Value* row_value(Body& body, std::uint32_t id) {
    if (const auto it = body.values.find(id); it != body.values.end()) return it->second;
    const Statement& s = nest_.body[id];
    Typed operands[3];
    std::size_t n = 0;
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone)
        operands[n++] = {nest_.body[o].stage == s.stage && nest_.body[o].kind == Statement::Kind::Op ? row_value(body, o) : vector(body, o),
                         nest_.body[o].dtype};
    return body.values[id] = apply(s, std::span(operands, n));
  }
};

}  // namespace

std::unique_ptr<llvm::Module> emit(const CodegenRequest& request, llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>("onepass", context);
  Emitter(request, *module).run(*request.target);
  return module;
}

}  // namespace onepass::compiler
