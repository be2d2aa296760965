// See speller.h.
#include "compiler/llvm/speller.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <llvm/IR/MDBuilder.h>

#include "compiler/llvm/count.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler {

using loops::Accumulator;
using loops::Area;
using loops::Bind;
using loops::Code;
using loops::Digit;
using loops::kNone;
using loops::Line;
using loops::Memory;

Speller::Speller(const CodegenRequest& request, const loops::Program& program, llvm::Module& module)
    : Frame(request, program.nest, module),
      p_(program),
      values_(program.lines.size(), nullptr),
      memory_begin_(program.memories.size(), nullptr),
      sums_begin_(program.accumulators.size(), nullptr),
      lanes_of_memory_(program.memories.size(), 0),
      lanes_of_sums_(program.accumulators.size(), 0),
      registers_(program.accumulators.size()),
      at_hand_(program.accumulators.size()),
      one_block_(request.schedule->one_block),
      in_tiles_(request.schedule->tile.rows > 0),
      is_place_(program.nest.body.size(), false) {
  for (const Derived& d : nest_.derived)
    if (d.place != Derived::kNone) is_place_[d.place] = true;
  for (Id i = 0; i < p_.lines.size(); ++i) {
    const Line& l = p_.lines[i];
    if (l.code != Code::Hold && l.code != Code::Start) continue;
    const auto lanes = static_cast<unsigned>(loops::lanes_around(p_, i));
    if (lanes > 1) (l.code == Code::Hold ? lanes_of_memory_ : lanes_of_sums_)[l.at] = lanes;
  }
  if (SpreadSlots spread(nest_, *request.schedule); spread.any && request.tier == Tier::Quick) spread_ = spread;
}

// ------------------------------------------------------------------------------------------------ code

llvm::Value* Speller::both(Value* a, Value* c) {
  if (!a || !c) return a ? a : c;
  const unsigned lanes = std::max(width_of(a), width_of(c));
  return b_.CreateAnd(splat(a, lanes), splat(c, lanes));
}

template <class F> auto Speller::in(Scope& scope, F&& f) {
  if (!scope.hoist) return f();
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scope.hoist->getTerminator());
  return f();
}

llvm::Value* Speller::length(const loops::Length& n) {
  if (n.word == loops::Length::kNumber) return i64(n.number);
  Value* all = up(word(n.word), i64(n.number));
  if (!n.levels) return b_.CreateMul(all, i64(n.times));
  return b_.CreateSub(i64(64), b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, all, b_.getFalse()));
}

llvm::AllocaInst* Speller::variable(llvm::Type* type) {
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  BasicBlock& entry = function_->getEntryBlock();
  b_.SetInsertPoint(&entry, entry.getFirstInsertionPt());
  return b_.CreateAlloca(type);
}

llvm::BasicBlock* Speller::new_hoist() {
  BasicBlock* hoist = block();
  BasicBlock* next = block();
  b_.CreateBr(hoist);
  b_.SetInsertPoint(hoist);
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
  return hoist;
}

// ------------------------------------------------------------------------------------------------ loops

void Speller::run() {
  begin();
  scopes_.push_back({.hoist = entry_block_});
  // Scratch: memories, then sums.
  in(scopes_[0], [&] {
    Value *at = bytes(function_->getArg(3), i64(spread_ ? spread_->bytes : 0)), *of_all_tasks = nullptr;
    const auto shared = [&]() -> Value*& {
      if (of_all_tasks) return of_all_tasks;
      Value* word = bytes(function_->getArg(0), i64(8 * static_cast<std::int64_t>(words_.shared)));
      auto* begin = b_.CreateAlignedLoad(b_.getPtrTy(), word, llvm::Align(8));
      begin->setMetadata(kNoArray, llvm::MDNode::get(context_, {}));
      return of_all_tasks = begin;
    };
    const auto take = [&](const Area& area, Value*& at) {
      Value* size = i64(area.element);
      for (const loops::Length& n : area.lengths) size = b_.CreateMul(size, length(n));
      Value* begin = at;
      at = bytes(at, b_.CreateAnd(b_.CreateAdd(size, i64(63)), i64(-64)));
      return begin;
    };
    for (Id m = 0; m < p_.memories.size(); ++m)
      for (Id i = 0; i < p_.lines.size(); ++i)
        if (p_.lines[i].code == Code::Hold && p_.lines[i].at == m)
          memory_begin_[m] = take(loops::area_of_memory(p_, words_, i), loops::is_shared(p_, i) ? shared() : at);
    for (Id i = 0; i < p_.lines.size(); ++i) {
      const Line& l = p_.lines[i];
      if (l.code == Code::Start)
        sums_begin_[l.at] = take(loops::area_of_sums(p_, words_, l.at), loops::is_shared_sum(p_, i) ? shared() : at);
    }
  });
  if (spread_) spread_slots(*spread_);
  phases();
  finish(std::ranges::any_of(p_.lines, &Line::streamed));
}

// Lines between the loops depend on the outer loops.
std::vector<loops::Id> Speller::shared_by_tasks(Id first) const {
  std::vector<Id> shared;
  const Id end = p_.lines[first].end;
  for (Id i = first; i < end && p_.lines[i].code == Code::Loop && p_.lines[i].bind == Bind::Parallel && p_.lines[i].end == end;) {
    shared.push_back(i++);
    while (i < end && p_.lines[i].code != Code::Loop) ++i;
  }
  return shared;
}

bool Speller::has_chunks(Id phase) const {
  return std::ranges::any_of(shared_by_tasks(phase), [&](Id l) { return p_.digits[p_.lines[l].at].size == Digit::Size::Chunk; });
}

// Emits the phases: parallel loops outside other loops run as consecutive phases. The tasks of the loops over chunks, or else of the last
// phase, are the kernel's tasks. Tasks of other phases are distributed proportionally. Lines outside of loops are computed in each later
// phase; the first task does their stores.
void Speller::phases() {
  const std::vector<Id> begins = loops::phases_of(p_);
  Value *const begin = function_->getArg(1), *const end = function_->getArg(2);
  if (loops::count_phases(p_) < 2) {
    Id first = 0;
    while (first < p_.lines.size() && p_.lines[first].code != Code::Loop) line(first++);
    return items(first, begin, end);
  }
  const auto number_of = [&](Id first) {
    return in(scopes_[0], [&] {
      Value* all = i64(1);
      for (const Id l : shared_by_tasks(first)) all = b_.CreateMul(all, iterations(p_.lines[l].at));
      return all;
    });
  };
  const auto of_kernel = std::ranges::find_if(begins, [&](Id l) { return has_chunks(l); });
  const bool are_chunks = of_kernel != begins.end();
  Value* const all = number_of(are_chunks ? *of_kernel : begins.back());
  Value* const phase = in(scopes_[0], [&] {
    return b_.CreateAlignedLoad(b_.getInt64Ty(), bytes(function_->getArg(0), i64(8 * static_cast<std::int64_t>(words_.phase))),
                                llvm::Align(8));
  });
  BasicBlock* const done = block();
  std::int64_t k = 0;  // the next phase
  for (Id i = 0; i < p_.lines.size(); ++i) {
    if (p_.lines[i].code == Code::Store) {
      when(b_.CreateAnd(b_.CreateICmpEQ(phase, i64(k)), b_.CreateICmpEQ(begin, i64(0))), [&] { line(i); });
      continue;
    }
    if (p_.lines[i].code != Code::Loop) {
      line(i);
      continue;
    }
    BasicBlock *inside = block(), *after = block();
    b_.CreateCondBr(b_.CreateICmpEQ(phase, i64(k++)), inside, after);
    b_.SetInsertPoint(inside);
    if (are_chunks ? has_chunks(i) : i == begins.back()) {
      items(i, begin, end);
    } else {
      Value* const count = number_of(i);
      const auto part = [&](Value* item) { return b_.CreateUDiv(b_.CreateMul(item, count), all); };
      items(i, part(begin), part(end));
    }
    b_.CreateBr(done);
    b_.SetInsertPoint(after);
    i = p_.lines[i].end - 1;
  }
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

// Emits the parallel loops from a line on as one loop over tasks; the last loop varies fastest. Indices of the first task are found by
// division and counted from there; reversed loops divide for each task. Stores between the loops run in the first task of the inner loops.
void Speller::items(Id first, Value* begin, Value* end) {
  const std::vector<Id> loops = first < p_.lines.size() ? shared_by_tasks(first) : std::vector<Id>{};
  const Id behind = loops.empty() ? static_cast<Id>(p_.lines.size()) : p_.lines[first].end,
           inside = loops.empty() ? first : loops.back() + 1;
  std::vector<Value*> counts, counters;
  for (const Id l : loops) counts.push_back(in(scopes_[0], [&] { return iterations(p_.lines[l].at); }));
  for (std::size_t l = 0; l < loops.size(); ++l) counters.push_back(variable(b_.getInt64Ty()));
  const bool reversed = !loops.empty() && p_.lines[loops.back()].reversed;
  const auto count_to = [&](Value* rest) {
    for (std::size_t l = loops.size(); l-- > 0;) {
      b_.CreateStore(l == 0 ? rest : b_.CreateURem(rest, counts[l]), counters[l]);
      if (l > 0) rest = b_.CreateUDiv(rest, counts[l]);
    }
  };
  when(b_.CreateICmpSLT(begin, end), [&] {
    if (!reversed) count_to(begin);
    loop(begin, end, i64(1), [&](Value* item) {
      if (reversed) count_to(b_.CreateSub(b_.CreateAdd(begin, b_.CreateSub(end, i64(1))), item));
      std::vector<Value*> index;
      for (Value* counter : counters) index.push_back(opaque(b_.CreateLoad(b_.getInt64Ty(), counter)));
      BasicBlock* hoist = new_hoist();
      item_loops_ = loops.size();
      for (std::size_t l = 0; l < loops.size(); ++l)
        scopes_.push_back({.digit = p_.lines[loops[l]].at, .index = index[l], .read = index[l], .hoist = hoist});
      for (std::size_t l = 0; l + 1 < loops.size(); ++l)
        for (Id i = loops[l] + 1; i < loops[l + 1]; ++i) {
          if (p_.lines[i].code != Code::Store) {
            line(i);
            continue;
          }
          Value* is_first = b_.CreateICmpEQ(index[l + 1], i64(0));
          for (std::size_t k = l + 2; k < loops.size(); ++k) is_first = b_.CreateAnd(is_first, b_.CreateICmpEQ(index[k], i64(0)));
          when(is_first, [&] { line(i); });
        }
      if (!loops.empty() && inside > first + loops.size()) hoist_behind();
      block_of(inside, behind);
      scopes_.resize(scopes_.size() - loops.size());
      item_loops_ = 0;
      if (reversed) return;
      Value* carry = i64(1);
      for (std::size_t l = loops.size(); l-- > 0;) {
        Value* next = b_.CreateAdd(index[l], carry);
        if (l > 0) {
          Value* wraps = b_.CreateICmpEQ(next, counts[l]);
          next = b_.CreateSelect(wraps, i64(0), next);
          carry = b_.CreateZExt(wraps, b_.getInt64Ty());
        }
        b_.CreateStore(next, counters[l]);
      }
    });
  });
}

void Speller::block_of(Id begin, Id end) {
  for (Id i = begin; i < end; ++i) {
    const bool is_loop = p_.lines[i].code == Code::Loop;
    if (wanted_ && !wanted_->lines[i]) {
      if (is_loop) i = p_.lines[i].end - 1;
      continue;
    }
    if (p_.lines[i].code == Code::Store && p_.lines[i].count > 1) {
      store_side_by_side(i);
      i += p_.lines[i].count - 1u;
      continue;
    }
    if (!is_loop) {
      line(i);
      continue;
    }
    if (i > begin && scopes_.size() == item_loops_ + 1) hoist_behind();
    i = one_loop(i) - 1;
  }
}

llvm::Value* Speller::is_needed(Id loop) {
  Id last = p_.lines[loop].end, end = static_cast<Id>(p_.lines.size());  // line of the condition; end of the block around the loop
  for (Id i = 0; i < loop; ++i)
    if (p_.lines[i].code == Code::Loop && p_.lines[i].end > loop) end = std::min(end, p_.lines[i].end);
  while (last < end && (p_.lines[last].code == Code::Loop || p_.lines[last].of != p_.lines[loop].of)) ++last;
  if (last >= end || wanted_) return nullptr;
  Wanted wanted{std::vector<bool>(p_.lines.size(), false), last, new_hoist()};
  wanted.lines[last] = true;
  for (Id i = last + 1; i-- > p_.lines[loop].end;) {
    const Line& l = p_.lines[i];
    if (l.code == Code::Loop) wanted.lines[i] = l.end > last;
    if (!wanted.lines[i] || l.code == Code::Loop) continue;
    for (const Id o : {l.a, l.b, l.c, l.guard})
      if (o != kNone) wanted.lines[o] = true;
    if (l.code == Code::Result || l.code == Code::Recall) return nullptr;  // not available yet
  }
  wanted_ = &wanted;
  block_of(p_.lines[loop].end, end);
  wanted_ = nullptr;
  if (!wanted.any) return nullptr;
  Value* any = b_.CreateLoad(wanted.any->getAllocatedType(), wanted.any);
  return width_of(any) ? b_.CreateOrReduce(any) : any;
}

// Returns the iterations of a loop over products without those at its start or at its end whose rows are all +0. They are left out if all
// columns are finite: their products are zeros, which change only sums of zeros. Such sums are added again, from all iterations. If all
// rows are +0, each sum is +0 if its column has an element without a sign.
Speller::Range Speller::without_zeros(Id line, const std::vector<Id>& sums) {
  const Line& l = p_.lines[line];
  Value* const n = count(l.at);
  Id add = line, vector = line;
  while (p_.lines[add].code != Code::Accumulate) ++add;
  while (vector < add && (p_.lines[vector].code != Code::Loop || p_.lines[vector].bind != Bind::Vector)) ++vector;
  if (vector == add) return {};
  const Id lane = p_.lines[vector].at;
  Operand rows{p_.lines[add].a, l.at, {}}, columns{p_.lines[add].b, l.at, {}};
  if (stride_of(rows, lane)) std::swap(rows.recall, columns.recall);
  for (Id i = line + 1; i < add; ++i) {
    if (p_.lines[i].code != Code::Loop || i == vector) continue;
    for (Operand* o : {&rows, &columns})
      if (stride_of(*o, p_.lines[i].at)) o->unrolled.push_back(p_.lines[i].at);
  }
  if (rows.unrolled.size() != 1 || columns.unrolled.size() > 1 || stride_of(rows, lane) || !stride_of(columns, lane)) return {};
  const auto size = static_cast<std::int64_t>(size_of(p_.lines[rows.recall].dtype));
  if (std::ranges::none_of(std::array{l.at, rows.unrolled[0]},
                           [&](Id d) { return stride_of(rows, d) && number(stride_of(rows, d)) == size; }))
    return {};
  for (const Operand& o : {rows, columns}) here(Of::Memory, p_.lines[o.recall].at);  // the addresses are needed on all paths
  Range range{variable(b_.getInt64Ty()), variable(b_.getInt64Ty()), variable(b_.getInt1Ty())};
  set(range, i64(0), n, b_.getFalse());
  const auto has_all = [&](Id digit) { return b_.CreateICmpEQ(count(digit), i64(*iterations_known(digit))); };
  // Sums beyond the end of the result are zeros, so that they would all be added again.
  Value* const is_whole =
      b_.CreateAnd(has_all(rows.unrolled[0]), has_all(columns.unrolled.empty() ? lane : p_.digits[columns.unrolled[0]].parent));
  llvm::AllocaInst* const known = variable(b_.getInt8Ty());  // Columns of the strip, 0 until they are examined
  std::size_t depth = scopes_.size() - 1;
  while (depth > 0 && (scopes_[depth].digit == kNone || !stride_of(columns, scopes_[depth].digit))) --depth;
  in(around_copies(depth), [&] { return b_.CreateStore(b_.getInt8(0), known); });
  BasicBlock *const front = block(), *const check = block(), *const examine = block(), *const checked = block(), *const leave = block(),
                    *const run = block();
  Value* const last = without_zeros(rows, n, true);
  BasicBlock* const has_last = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSLT(last, n), check, front);
  b_.SetInsertPoint(front);
  Value* const first = without_zeros(rows, n, false);
  BasicBlock* const has_first = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSGT(first, i64(0)), check, run);
  b_.SetInsertPoint(check);
  const auto either = [&](Value* of_last, Value* of_first) {
    llvm::PHINode* const chosen = b_.CreatePHI(of_last->getType(), 2);
    chosen->addIncoming(of_last, has_last);
    chosen->addIncoming(of_first, has_first);
    return chosen;
  };
  Value *const begin = either(i64(0), first), *const end = either(last, n);
  b_.CreateCondBr(b_.CreateICmpEQ(b_.CreateLoad(b_.getInt8Ty(), known), b_.getInt8(0)), examine, checked);
  b_.SetInsertPoint(examine);
  b_.CreateStore(examined(columns, {.digit = lane, .index = i64(0), .read = i64(0), .lanes = lanes_of(vector)}, n), known);
  b_.CreateBr(checked);
  b_.SetInsertPoint(checked);
  Value *const all = b_.CreateICmpEQ(end, i64(0)), *const columns_are = b_.CreateLoad(b_.getInt8Ty(), known);
  Value* const wanted = b_.CreateSelect(all, b_.getInt8(kPlain), b_.getInt8(kFinite));
  b_.CreateCondBr(b_.CreateAnd(b_.CreateICmpUGE(columns_are, wanted), b_.CreateOr(all, is_whole)), leave, run);
  b_.SetInsertPoint(leave);
  set(range, begin, end, b_.CreateNot(all));
  each_variable(sums, [&](Value* v) { return b_.CreateSelect(all, llvm::Constant::getNullValue(v->getType()), v); });
  b_.CreateBr(run);
  b_.SetInsertPoint(run);
  return range;
}

void Speller::set(const Range& range, Value* begin, Value* end, Value* is_part) {
  b_.CreateStore(begin, range.begin);
  b_.CreateStore(end, range.end);
  b_.CreateStore(is_part, range.is_part);
}

template <class F> void Speller::each_variable(const std::vector<Id>& sums, F change) {
  for (const Id a : sums)
    for (const auto& [index, variables] : registers_[a].values)
      for (llvm::AllocaInst* v : variables) b_.CreateStore(change(b_.CreateLoad(v->getAllocatedType(), v)), v);
}

// Emits the loop over a range of the products, and once more over all of them if a sum of a part is zero.
template <class F> void Speller::loop_over(const Range& range, Value* n, const std::vector<Id>& sums, F&& f) {
  std::vector<Value*> starts;
  each_variable(sums, [&](Value* v) { return starts.emplace_back(v); });
  BasicBlock *const run = block(), *const test = block(), *const again = block(), *const after = block();
  b_.CreateBr(run);
  b_.SetInsertPoint(run);
  loop(b_.CreateLoad(b_.getInt64Ty(), range.begin), b_.CreateLoad(b_.getInt64Ty(), range.end), i64(1), f);
  b_.CreateCondBr(b_.CreateLoad(b_.getInt1Ty(), range.is_part), test, after);
  b_.SetInsertPoint(test);
  Value* zero = nullptr;
  each_variable(sums, [&](Value* v) {
    Value* const is_zero = b_.CreateFCmpOEQ(v, llvm::Constant::getNullValue(v->getType()));
    zero = zero ? b_.CreateOr(zero, is_zero) : is_zero;
    return v;
  });
  b_.CreateCondBr(width_of(zero) ? b_.CreateOrReduce(zero) : zero, again, after);
  b_.SetInsertPoint(again);
  set(range, i64(0), n, b_.getFalse());
  each_variable(sums, [&, next = std::size_t{0}](Value*) mutable { return starts[next++]; });
  b_.CreateBr(run);
  b_.SetInsertPoint(after);
}

llvm::Value* Speller::stride_of(const Operand& o, Id digit) { return form(Of::Memory, p_.lines[o.recall].at).stride[digit]; }

// Returns the bits of an operand's elements in these loops.
llvm::Value* Speller::bits_of(const Operand& o, std::initializer_list<Scope> loops) {
  const std::size_t depth = scopes_.size();
  for (const Scope& s : loops)
    if (s.digit != kNone) scopes_.push_back(s);
  spell(o.recall, p_.lines[o.recall]);
  scopes_.resize(depth);
  Value* v = values_[o.recall];
  return b_.CreateBitCast(v, v->getType()->getWithNewType(b_.getIntNTy(v->getType()->getScalarSizeInBits())));
}

// Returns the end of the iterations of the reduced loop whose rows are not all +0, or their begin, among the first n; 0 or n if there are
// none. Vectors run along the reduced loop, or along the rows if these are adjacent.
llvm::Value* Speller::without_zeros(const Operand& rows, Value* n, bool at_end) {
  const auto size = static_cast<std::int64_t>(size_of(p_.lines[rows.recall].dtype));
  const bool by_row = number(stride_of(rows, rows.reduced)) != size;
  const unsigned width = static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(size);
  const std::int64_t height = *iterations_known(rows.unrolled[0]), times = by_row ? (height + width - 1) / width : height;
  Value* const step = i64(by_row ? 1 : width);
  Value* const start = at_end ? b_.CreateMul(b_.CreateUDiv(b_.CreateSub(n, i64(1)), step), step) : i64(0);
  BasicBlock *before = b_.GetInsertBlock(), *head = block(), *test = block(), *none = block(), *done = block();
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(start, before);
  b_.CreateCondBr(at_end ? b_.CreateICmpSGE(i, i64(0)) : b_.CreateICmpSLT(i, n), test, none);
  b_.SetInsertPoint(test);
  Value* any = nullptr;
  for (std::int64_t r = 0; r < times; ++r) {
    Value* const row = i64(by_row ? r * width : r);
    Scope of_k{.digit = rows.reduced, .index = i, .read = i}, of_row{.digit = rows.unrolled[0], .index = row, .read = row};
    Scope& vector = by_row ? of_row : of_k;
    vector.lanes = width;
    vector.mask = lanes_below(by_row ? i64(height - r * width) : b_.CreateSub(n, i), width);
    Value* bits = bits_of(rows, {of_k, of_row});
    bits = b_.CreateSelect(vector.mask, bits, llvm::Constant::getNullValue(bits->getType()));
    any = any ? b_.CreateOr(any, bits) : bits;
  }
  BasicBlock* const tested = b_.GetInsertBlock();
  Value* const found = at_end ? smaller(b_.CreateAdd(i, step), n) : i;
  i->addIncoming(at_end ? b_.CreateSub(i, step) : b_.CreateAdd(i, step), tested);
  b_.CreateCondBr(b_.CreateOrReduce(b_.CreateICmpNE(any, llvm::Constant::getNullValue(any->getType()))), done, head);
  b_.SetInsertPoint(none);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  llvm::PHINode* const result = b_.CreatePHI(b_.getInt64Ty(), 2);
  result->addIncoming(found, tested);
  result->addIncoming(at_end ? i64(0) : n, none);
  return result;
}

// Returns what is known of all columns, one of Columns. Collects the conjunction of all bits, and the largest magnitude. The sign of the
// conjunction is set for a column without positive elements.
llvm::Value* Speller::examined(const Operand& columns, const Scope& lane, Value* n) {
  const unsigned bits = 8 * static_cast<unsigned>(size_of(p_.lines[columns.recall].dtype));
  llvm::Type* const type = llvm::FixedVectorType::get(b_.getIntNTy(bits), lane.lanes);
  Value* const magnitude = llvm::ConstantInt::get(type, ~std::uint64_t{0} >> (65 - bits));
  Value* const infinity = llvm::ConstantInt::get(type, bits == 64 ? std::uint64_t{0x7ff} << 52 : std::uint64_t{0xff} << 23);
  const std::int64_t vectors = columns.unrolled.empty() ? 1 : *iterations_known(columns.unrolled[0]);
  std::vector<std::pair<llvm::AllocaInst*, llvm::AllocaInst*>> seen;  // by vector
  for (std::int64_t v = 0; v < vectors; ++v) {
    seen.emplace_back(variable(type), variable(type));
    b_.CreateStore(llvm::Constant::getAllOnesValue(type), seen.back().first);
    b_.CreateStore(llvm::Constant::getNullValue(type), seen.back().second);
  }
  loop(i64(0), n, i64(1), [&](Value* k) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      const Id unrolled = columns.unrolled.empty() ? kNone : columns.unrolled[0];
      Value* const x =
          bits_of(columns, {{.digit = columns.reduced, .index = k, .read = k}, {.digit = unrolled, .index = i64(v), .read = i64(v)}, lane});
      const auto& [all, most] = seen[static_cast<std::size_t>(v)];
      b_.CreateStore(b_.CreateAnd(b_.CreateLoad(type, all), x), all);
      b_.CreateStore(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, b_.CreateLoad(type, most), b_.CreateAnd(x, magnitude)), most);
    }
  });
  Value *negative = nullptr, *infinite = nullptr;
  const auto either = [&](Value*& one, Value* other) { one = one ? b_.CreateOr(one, other) : other; };
  for (const auto& [all, most] : seen) {
    either(negative, b_.CreateICmpSLT(b_.CreateLoad(type, all), llvm::Constant::getNullValue(type)));
    either(infinite, b_.CreateICmpUGE(b_.CreateLoad(type, most), infinity));
  }
  return b_.CreateSelect(b_.CreateOrReduce(infinite), b_.getInt8(kOther),
                         b_.CreateSelect(b_.CreateOrReduce(negative), b_.getInt8(kFinite), b_.getInt8(kPlain)));
}

void Speller::body(Id line, Scope scope) {
  scopes_.push_back(std::move(scope));
  block_of(line + 1, p_.lines[line].end);
  scopes_.pop_back();
}

// True if the body has loops that remain loops in the code.
bool Speller::has_loops(Id line) const {
  for (Id i = line + 1; i < p_.lines[line].end; ++i) {
    if (p_.lines[i].code != Code::Loop) continue;
    const std::optional<std::int64_t> n = iterations_known(p_.lines[i].at);
    const Bind how = p_.lines[i].bind;
    if (how != Bind::Unrolled && !(how == Bind::Vector && n && *n <= lanes_of(i))) return true;
  }
  return false;
}

loops::Id Speller::one_loop(Id line) {
  const Line& l = p_.lines[line];
  const Digit& digit = p_.digits[l.at];
  if (digit.once) {
    body(line, {.digit = l.at, .index = i64(0), .read = i64(0), .hoist = new_hoist()});
    return l.end;
  }
  if (l.bind == Bind::Vector) {
    vector_loop(line);
    return l.end;
  }
  Value* n = count(l.at);
  if (l.bind == Bind::Unrolled) {
    const std::optional<std::int64_t> copies = iterations_known(l.at);
    if (!copies) throw InternalError("speller: an unrolled loop must have a fixed length");
    const std::int64_t known = l.padded ? *copies : std::min(number(n).value_or(*copies), *copies);
    const bool is_whole = l.padded || number(n) == known, any_loops = has_loops(line);
    const std::vector<Id> groups = into_registers(line, true);
    // Beyond the end, nothing is stored or added. Values that are only read come from the last iteration.
    const auto counts = [&](const Line& s) {
      if (s.code == Code::Store && turns(form(Of::Store, s.at), l.at)) return false;  // stored together after the loop
      return s.code == Code::Store ||
             (s.code == Code::Accumulate &&
              (std::ranges::find(p_.accumulators[s.at].axes, l.at) == p_.accumulators[s.at].axes.end() || is_part_of_sum(l.at, s.at)));
    };
    const bool ends = !is_whole && !wanted_ && std::any_of(p_.lines.begin() + line, p_.lines.begin() + l.end, counts);
    Value* last = is_whole || ends ? nullptr : b_.CreateSub(n, i64(1));
    BasicBlock* after = nullptr;
    for (std::int64_t i = 0; i < known; ++i) {
      if (ends && i > 0) {
        BasicBlock* inside = block();
        if (!after) after = block();
        b_.CreateCondBr(b_.CreateICmpSLT(i64(i), n), inside, after);
        b_.SetInsertPoint(inside);
      }
      Value* read = !last || i == 0 ? i64(i) : smaller(i64(i), last);
      Value* active = l.padded && number(n) != *copies ? b_.CreateICmpSLT(i64(i), n) : nullptr;
      Scope scope{.digit = l.at, .index = i64(i), .read = read, .hoist = any_loops ? new_hoist() : nullptr, .active = active};
      scope.inside = n;
      body(line, std::move(scope));
    }
    if (after) {
      b_.CreateBr(after);
      b_.SetInsertPoint(after);
    }
    for (const auto& [store, values] : std::exchange(scopes_.back().stored, {})) store_turned(store, values, l.at, n);
    return out_of_registers(groups, l.end);
  }
  const bool adds =
      std::any_of(p_.lines.begin() + line, p_.lines.begin() + l.end, [](const Line& s) { return s.code == Code::Accumulate; });
  if (number(n) == 1 && vector_scope() && !adds) {
    body(line, {.digit = l.at, .index = i64(0), .read = i64(0), .hoist = new_hoist()});
    return l.end;
  }
  const std::vector<Id> sums = into_registers(line);
  if (!sums.empty() && l.end < p_.lines.size())
    if (const std::optional<Push> to = push_at(l.end)) prefetch(*to);
  BasicBlock* after = nullptr;
  if (Value* needed = l.of == kNone ? nullptr : is_needed(line)) {
    BasicBlock* inside = block();
    after = block();
    b_.CreateCondBr(needed, inside, after);
    b_.SetInsertPoint(inside);
  }
  Value* const whole = l.peeled ? b_.CreateUDiv(count(digit.parent), i64(digit.by)) : n;
  const bool hides_index = in_tiles_ && has_loops(line);
  const auto iteration = [&](Value* i) {
    if (hides_index) i = opaque(i);
    Value* active = l.padded ? b_.CreateICmpSLT(i, n) : nullptr;
    body(line, {.digit = l.at, .index = i, .read = i, .hoist = new_hoist(), .active = active, .whole = l.peeled});
  };
  if (const Range range = l.zeros && !sums.empty() ? without_zeros(line, sums) : Range{}; range.begin) loop_over(range, n, sums, iteration);
  else loop(i64(0), l.padded ? iterations(l.at) : whole, i64(1), iteration);
  if (l.peeled) when(b_.CreateICmpSLT(whole, n), [&] { body(line, {.digit = l.at, .index = whole, .read = whole, .hoist = new_hoist()}); });
  if (after) {
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }
  return out_of_registers(sums, l.end);
}

void Speller::vector_loop(Id line) {
  const Line& l = p_.lines[line];
  const unsigned lanes = lanes_of(line);
  Value* n = count(l.at);
  const std::optional<std::int64_t> all = iterations_known(l.at), known = number(n);
  const bool any_loops = has_loops(line);
  const auto mask = [&](Value* index) -> Value* {
    if (known && *known % lanes == 0) return nullptr;
    if (number(index) != 0) return lanes_below(b_.CreateSub(n, index), lanes);
    for (std::size_t s = 0; s < scopes_.size(); ++s)  // where the number of iterations is known
      if (const auto at = scopes_[s].counts.find(l.at); at != scopes_[s].counts.end() && at->second == n) {
        Value*& made = scopes_[s].masks[{l.at, lanes}];
        return made ? made : made = in(around_copies(s), [&] {
                               Value* const m = lanes_below(n, lanes, true);
                               // LLVM moves a compare to its use, into the loop, but not a freeze. Without mask registers that is better.
                               return target_.vector_bytes == 64 ? b_.CreateFreeze(m) : m;
                             });
      }
    return lanes_below(n, lanes, true);
  };
  if (all && *all <= lanes)
    return body(line, {.digit = l.at,
                       .index = i64(0),
                       .read = i64(0),
                       .hoist = any_loops ? new_hoist() : nullptr,
                       .lanes = lanes,
                       .mask = mask(i64(0)),
                       .inside = n});
  const auto vector_at = [&](Value* i, unsigned width, Value* m) {
    Scope scope{.digit = l.at, .index = i, .read = i, .hoist = any_loops ? new_hoist() : nullptr, .lanes = width, .mask = m};
    scope.inside = b_.CreateSub(n, i);
    body(line, std::move(scope));
  };
  if (!l.peeled) return loop(i64(0), l.padded ? iterations(l.at) : n, i64(lanes), [&](Value* i) { vector_at(i, lanes, mask(i)); });
  if (const Interior interior = find_interior(line, lanes); !interior.guards.empty()) {
    return loop(i64(0), n, i64(lanes), [&](Value* i) {
      Value* const left = b_.CreateSub(n, i);
      Value* const is_inside = both(b_.CreateAnd(b_.CreateICmpSGE(i, interior.first), b_.CreateICmpSLE(i, interior.last)),
                                    both(b_.CreateICmpSGE(left, i64(lanes)), interior.condition));
      BasicBlock *const inside = block(), *const edge = block(), *const after = block();
      b_.CreateCondBr(is_inside, inside, edge);
      b_.SetInsertPoint(inside);
      holding_.insert(interior.guards.begin(), interior.guards.end());
      vector_at(i, lanes, nullptr);
      for (const Id g : interior.guards) holding_.erase(g);
      b_.CreateBr(after);
      b_.SetInsertPoint(edge);
      vector_at(i, lanes, lanes_below(left, lanes, true));
      b_.CreateBr(after);
      b_.SetInsertPoint(after);
    });
  }
  Value* whole = b_.CreateAnd(n, i64(-static_cast<std::int64_t>(lanes)));
  loop(i64(0), whole, i64(lanes), [&](Value* i) { vector_at(i, lanes, nullptr); });
  // Narrower vectors for the rest are less code, which compiles in less time.
  const unsigned narrow = lanes_of_rest(line);
  const auto rest = [&](Value* i) { vector_at(i, narrow, lanes_below(b_.CreateSub(n, i), narrow, true)); };
  if (narrow == lanes) return when(b_.CreateICmpSLT(whole, n), [&] { rest(whole); });
  llvm::MDNode* const few = llvm::MDBuilder(context_).createBranchWeights(1, 1);
  loop(
      whole, n, i64(narrow), [&](Value* i) { rest(opaque(i)); }, few);
}

unsigned Speller::lanes_of_rest(Id line) const {
  for (Id i = line + 1; i < p_.lines[line].end; ++i) {
    const Line& l = p_.lines[i];
    switch (l.code) {
      case Code::Load:
      case Code::Store:
      case Code::Index:
      case Code::Slot:
      case Code::Constant:
      case Code::Prefetch:
      case Code::PrefetchMemory:
      case Code::Guard: break;
      case Code::Op:
        if (k_.calls(l.op, l.dtype)) return lanes_of(line);  // a function for narrow vectors would be more code
        break;
      case Code::Keep:
      case Code::Recall:
        if (lanes_of_memory_[l.at]) return lanes_of(line);
        break;
      default: return lanes_of(line);  // the lanes of loops inside, sums and memories have the width of the loop
    }
  }
  return std::min(lanes_of(line), lanes_of_register(line));
}

// A check is 0 <= x < bound with x = base + i + …, where i is the index of the vector's first lane, and the other terms are from the lanes
// and the loops inside the vector.
Speller::Interior Speller::find_interior(Id line, unsigned lanes) {
  const Line& vector = p_.lines[line];
  const Id along = p_.digits[vector.at].root;
  const std::size_t depth = scopes_.size() - 1;
  Interior out;
  for (Id i = line + 1; i < vector.end; ++i) {
    const Line& l = p_.lines[i];
    if (l.code != Code::Guard) continue;
    Interior more{.first = out.first ? out.first : i64(0), .last = out.last ? out.last : i64(std::numeric_limits<std::int64_t>::max())};
    bool fits = true, varies = false;
    for (Id c = l.at; fits && c < l.at + l.count; ++c) {
      const Id linear = nest_.checks[c].linear;
      const std::vector<Coefficient>& of = nest_.linears[linear].of;
      fits = std::all_of(of.begin() + nest_.loops(), of.end(), [](Coefficient k) { return k == Coefficient::Zero; });
      const bool moves = of[along] != Coefficient::Zero;
      fits = fits && (!moves || moves_by_one(linear, vector.at));
      if (!fits) break;
      varies |= moves;
      Value *low = linear_value(linear, depth, true), *high = moves ? b_.CreateAdd(low, i64(lanes - 1)) : low;
      for (Id inner = line + 1; inner < vector.end; ++inner) {
        if (p_.lines[inner].code != Code::Loop) continue;
        const Id digit = p_.lines[inner].at, root = p_.digits[digit].root;
        if (of[root] == Coefficient::Zero) continue;
        Value* const most =
            b_.CreateMul(b_.CreateMul(b_.CreateSub(iterations(digit), i64(1)), weight(digit, root)), coefficient(linear, root));
        low = b_.CreateAdd(low, smaller(most, i64(0)));
        high = b_.CreateSub(high, smaller(b_.CreateNeg(most), i64(0)));
      }
      Value *const first = b_.CreateNeg(low), *const last = b_.CreateSub(b_.CreateSub(word(words_.bounds + c), i64(1)), high);
      if (moves) {
        more.first = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, more.first, first);
        more.last = smaller(more.last, last);
      } else {
        more.condition = both(more.condition, b_.CreateAnd(b_.CreateICmpSLE(first, i64(0)), b_.CreateICmpSGE(last, i64(0))));
      }
    }
    if (!fits || !varies) continue;
    out.first = more.first, out.last = more.last;
    out.condition = both(out.condition, more.condition);
    out.guards.push_back(i);
  }
  return out;
}

unsigned Speller::lanes_of(Id line) const { return p_.lines[line].count ? p_.lines[line].count : lanes_of_register(line); }

unsigned Speller::lanes_of_register(Id line) const {
  std::size_t widest = 1;
  for (Id i = line + 1; i < p_.lines[line].end; ++i)
    if (p_.lines[i].code != Code::Guard) widest = std::max(widest, size_of(p_.lines[i].dtype));
  return static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(widest);
}

llvm::Value* Speller::by(const Digit& d) { return d.size == Digit::Size::Number ? i64(d.by) : word(word_of(d.size)); }

std::uint32_t Speller::word_of(Digit::Size size) const {
  switch (size) {
    case Digit::Size::Number: break;
    case Digit::Size::Tile: return words_.tile;
    case Digit::Size::TileOuter: return words_.tile_outer;
    case Digit::Size::TileRows: return words_.tile_rows;
    case Digit::Size::Chunk: return words_.chunk;
  }
  throw InternalError("speller: a number is not a kernel parameter");
}

std::optional<std::int64_t> Speller::known_by(const Digit& d) const {
  return d.size == Digit::Size::Number ? d.by : known(word_of(d.size));
}

std::optional<std::int64_t> Speller::known_iterations(Id digit) const {
  const Digit& d = p_.digits[digit];
  if (d.once) return 1;
  if (d.kind == Digit::Kind::Whole) return known(words_.extents + d.root);
  if (d.kind == Digit::Kind::Outer && d.size == Digit::Size::Chunk) return known(words_.chunks);
  if (d.kind == Digit::Kind::Inner && !p_.digits[d.pair].once) return known_by(d);
  const std::optional<std::int64_t> all = known_iterations(d.parent), each = d.kind == Digit::Kind::Outer ? known_by(d) : 1;
  return all && each ? std::optional((*all + *each - 1) / *each) : std::nullopt;
}

llvm::Value* Speller::iterations(Id digit) {
  const Digit& d = p_.digits[digit];
  switch (d.kind) {
    case Digit::Kind::Whole: return word(words_.extents + d.root);
    case Digit::Kind::Outer:
      if (d.size == Digit::Size::Chunk) return word(words_.chunks);
      return d.once ? i64(1) : up(iterations(d.parent), by(d));
    case Digit::Kind::Inner: break;
  }
  return p_.digits[d.pair].once ? iterations(d.parent) : by(d);
}

llvm::Value* Speller::weight(Id digit, Id within) {
  Value* w = i64(1);
  for (; digit != within; digit = p_.digits[digit].parent)
    if (p_.digits[digit].kind == Digit::Kind::Outer) w = b_.CreateMul(w, by(p_.digits[digit]));
  return w;
}

Speller::Scope& Speller::around_copies(std::size_t depth) {
  while (depth > 0 && !scopes_[depth].hoist && number(scopes_[depth].index)) {
    const Id root = p_.digits[scopes_[depth].digit].root;
    do --depth;
    while (depth > 0 && p_.digits[scopes_[depth].digit].root != root);
  }
  return scopes_[depth];
}

llvm::Value* Speller::count(Id digit) {
  std::size_t depth = 0;  // depth of the last loop over a part of the same nest loop
  for (std::size_t s = 1; s < scopes_.size(); ++s)
    if (p_.digits[scopes_[s].digit].root == p_.digits[digit].root) depth = s;
  Value*& made = scopes_[depth].counts[digit];
  if (made) return made;
  return made = in(around_copies(depth), [&] {
           Value* n = iterations(digit);
           // A run of the digit covers `run` elements of an enclosing digit. If these numbers divide the lengths of all
           // enclosing digits, no run ends early. Padded loops can be beyond the end.
           const std::optional<std::int64_t> most = known_iterations(digit);
           const auto divides = [&](Id around) {
             const std::optional<std::int64_t> all = known_iterations(around);
             std::optional<std::int64_t> run = most;
             for (Id part = digit; part != around; part = p_.digits[part].parent) {
               if (p_.digits[part].kind != Digit::Kind::Outer) continue;
               const std::optional<std::int64_t> each = known_by(p_.digits[part]);
               run = run && each ? std::optional(*run * *each) : std::nullopt;
             }
             return all && run && *all > 0 && *all % *run == 0 &&
                    std::ranges::none_of(scopes_, [&](const Scope& s) { return s.active && loops::is_within(p_, s.digit, around); });
           };
           bool exact = most > 0;
           for (Id part = digit; p_.digits[part].parent != kNone; part = p_.digits[part].parent) {
             const Digit& d = p_.digits[part];
             const Id around = d.parent;
             if (d.kind == Digit::Kind::Inner && std::ranges::any_of(scopes_, [&](const Scope& s) { return s.whole && s.digit == d.pair; }))
               break;
             if (p_.digits[around].kind == Digit::Kind::Inner && p_.digits[p_.digits[around].pair].once) continue;  // all of its parent
             exact = exact && divides(around);
             if (exact) continue;
             Value* at = nullptr;  // position within the enclosing digit
             for (const Scope& s : scopes_)
               if (s.digit != kNone && s.digit != digit && loops::is_within(p_, s.digit, around)) {
                 Value* more = b_.CreateMul(s.index, weight(s.digit, around));
                 at = at ? b_.CreateAdd(at, more) : more;
               }
             Value* left = at ? b_.CreateSub(iterations(around), at) : iterations(around);
             n = smaller(n, up(left, weight(digit, around)));
           }
           return n;
         });
}

// ------------------------------------------------------------------------------------------------ addresses

const Speller::Scope* Speller::vector_scope() const {
  for (const Scope& s : scopes_)
    if (s.lanes) return &s;
  return nullptr;
}

Speller::Scope* Speller::vector_scope() {
  for (Scope& s : scopes_)
    if (s.lanes) return &s;
  return nullptr;
}

llvm::Value* Speller::coefficient(Id linear, Id variable) {
  switch (const Coefficient c = nest_.linears[linear].of[variable]) {
    case Coefficient::Zero: return i64(0);
    case Coefficient::One: return i64(1);
    case Coefficient::MinusOne: return i64(-1);
    case Coefficient::General: return word(words_.coefficient_of(linear, variable));
    default: return i64(number_of(c));
  }
}

Speller::Form& Speller::form(Of of, Id id) {
  Form& f = forms_[static_cast<std::uint64_t>(of) << 32 | id];
  if (f.base) return f;
  f.stride.assign(p_.digits.size(), nullptr);
  if (of == Of::Load || of == Of::Store) {
    const Access& access = nest_.accesses[id];
    f.linear = access.linear;
    f.size = static_cast<std::int64_t>(size_of(nest_.buffers[access.buffer].dtype));
    in(scopes_[0], [&] {
      Value* at = bytes(function_->getArg(0), i64(8 * static_cast<std::int64_t>(words_.pointers + id)));
      llvm::LoadInst* base = b_.CreateAlignedLoad(b_.getPtrTy(), at, llvm::Align(8));
      f.base = base;
      if (f.table = access.table; f.table != kNone) base->setMetadata(kNoArray, llvm::MDNode::get(context_, {}));
      for (Id d = 0; d < p_.digits.size(); ++d) {
        const Id root = p_.digits[d].root;
        const Coefficient c = nest_.linears[f.linear].of[root];
        if (c == Coefficient::Zero) continue;
        Value* times = coefficient(f.linear, root);
        f.stride[d] = b_.CreateMul(b_.CreateMul(times, weight(d, root)), i64(f.size));
      }
    });
  } else if (of == Of::Sums) {
    f.base = sums_begin_[id];
    f.size = static_cast<std::int64_t>(size_of(p_.accumulators[id].dtype));
    const Area area = loops::area_of_sums(p_, words_, id);
    const std::vector<Id> axes = loops::axes_in_order(p_, id);
    in(scopes_[0], [&] {
      Value* stride = i64(area.element);
      for (std::size_t k = axes.size(); k-- > 0;) {
        f.stride[axes[k]] = stride;
        stride = b_.CreateMul(stride, length(area.lengths[area.lengths.size() - axes.size() + k]));
      }
      f.level = stride;
    });
  } else {
    f.base = memory_begin_[id];
    f.size = static_cast<std::int64_t>(size_of(p_.memories[id].dtype));
  }
  return f;
}

// Sets the stride of each digit inside the Hold at this line, from its part of the layout.
void Speller::strides_of_memory(Form& f, Id line) {
  const Memory& m = p_.memories[p_.lines[line].at];
  const Area area = loops::area_of_memory(p_, words_, line);
  std::vector<Value*> stride(m.layout.size());
  in(scopes_[0], [&] {
    Value* all = i64(area.element);
    for (std::size_t k = m.layout.size(); k-- > 0;) {
      stride[k] = all;
      all = b_.CreateMul(all, length(area.lengths[k]));
    }
  });
  for (Id d = 0; d < p_.digits.size(); ++d) {
    const Id root = p_.digits[d].root;
    bool is_axis = std::ranges::find(m.axes, root) != m.axes.end();
    for (const Scope& s : scopes_)  // open loops are the same for all elements
      is_axis = is_axis && (s.digit == kNone || (s.digit != d && !loops::is_within(p_, s.digit, d)));
    if (!is_axis) continue;
    for (std::size_t k = 0; k < m.layout.size(); ++k) {
      const Memory::Part& part = m.layout[k];
      if (part.root != root) continue;
      const std::optional<std::int64_t> moves = number(weight(d, root)), n = iterations_known(d);
      if (part.kind == Digit::Kind::Whole) f.stride[d] = in(scopes_[0], [&] { return b_.CreateMul(stride[k], weight(d, root)); });
      else if (!moves && part.kind == Digit::Kind::Outer)  // a kernel parameter, a multiple of `by`
        f.stride[d] = in(scopes_[0], [&] { return b_.CreateMul(stride[k], b_.CreateUDiv(weight(d, root), i64(part.by))); });
      else if (!moves) continue;
      else if (part.kind == Digit::Kind::Outer && *moves % part.by == 0)
        f.stride[d] = in(scopes_[0], [&] { return b_.CreateMul(stride[k], i64(*moves / part.by)); });
      else if (part.kind == Digit::Kind::Inner && n && *moves * *n <= part.by)
        f.stride[d] = in(scopes_[0], [&] { return b_.CreateMul(stride[k], i64(*moves)); });
    }
  }
}

// Returns the address of an element. It is computed once per task from the task loops (for array lists, where the array is known), and then
// loop by loop.
llvm::Value* Speller::address(Of of, Id id, std::size_t depth) {
  Form& f = form(of, id);
  Scope& s = scopes_[depth];
  const std::uint64_t key = static_cast<std::uint64_t>(of) << 32 | id;
  if (const auto it = s.addresses.find(key); it != s.addresses.end()) return it->second;
  const bool is_array = f.linear != kNone, is_list = f.table != kNone;
  const std::size_t begin = !is_array ? 0 : std::max(item_loops_, is_list ? depth_of(loops_of(f.table)) : 0);
  const bool is_first = depth <= begin;
  Value* const before = is_first ? nullptr : address(of, id, depth - 1);
  return s.addresses[key] = in(s, [&] {
           Value* far = nullptr;  // in elements
           const auto add = [&](Value* more) { far = far ? b_.CreateAdd(far, more) : more; };
           for (std::size_t d = is_first ? 1 : depth; d <= depth && is_array; ++d) {
             const Id digit = scopes_[d].digit, root = p_.digits[digit].root;
             Value* const index = of == Of::Load ? scopes_[d].read : scopes_[d].index;
             if (!f.stride[digit] || number(index) == 0) continue;
             if (!is_first) add(b_.CreateMul(index, f.stride[digit]));
             else add(b_.CreateMul(b_.CreateMul(index, weight(digit, root)), coefficient(f.linear, root)));
           }
           for (Id q = 0; is_array && q < nest_.derived.size(); ++q) {
             if (nest_.linears[f.linear].of[nest_.loops() + q] == Coefficient::Zero || varies_along_vector(loops_of_derived(q))) continue;
             const std::size_t known = depth_of_derived(q);
             if (is_first ? known > depth : known != depth) continue;
             Value* more = b_.CreateMul(derived_value(q, depth), coefficient(f.linear, nest_.loops() + q));
             add(is_first ? more : b_.CreateMul(more, i64(f.size)));
           }
           if (!is_array && !is_first) {
             Value* const index = s.index;
             if (f.stride[s.digit] && number(index) != 0) far = b_.CreateMul(index, f.stride[s.digit]);
           }
           if (!is_first) return far ? bytes(before, far) : before;
           Value* at = f.base;
           if (is_list)
             at = b_.CreateAlignedLoad(b_.getPtrTy(), bytes(at, b_.CreateMul(within_table(f, linear_value(f.table, depth, true)), i64(8))),
                                       llvm::Align(8));
           return far ? bytes(at, b_.CreateMul(far, i64(f.size))) : at;
         });
}

// Clamps an index into the pointer table, because a predicated access may compute indices outside of it.
llvm::Value* Speller::within_table(const Form& f, Value* member) {
  Value* last =
      in(scopes_[0], [&] { return b_.CreateSub(b_.CreateAlignedLoad(b_.getInt64Ty(), bytes(f.base, i64(-8)), llvm::Align(8)), i64(1)); });
  member = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, member, splat(i64(0), width_of(member)));
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, member, splat(last, width_of(member)));
}

std::uint64_t Speller::loops_of(Id linear) const {
  std::uint64_t all = 0;
  const std::vector<Coefficient>& of = nest_.linears[linear].of;
  for (Id v = 0; v < of.size(); ++v)
    if (of[v] != Coefficient::Zero) all |= v < nest_.loops() ? std::uint64_t{1} << v : loops_of_derived(v - nest_.loops());
  return all;
}

std::uint64_t Speller::loops_of_derived(Id q) const {
  const Derived& d = nest_.derived[q];
  return d.place == Derived::kNone ? loops_of(d.linear) : nest_.body[d.place].loops;
}

bool Speller::varies_along_vector(std::uint64_t loops) const {
  const Scope* vector = vector_scope();
  return vector && (loops >> p_.digits[vector->digit].root & 1);
}

std::size_t Speller::depth_of(std::uint64_t loops) const {
  std::size_t depth = 0;
  for (std::size_t s = 1; s < scopes_.size(); ++s)
    if (loops >> p_.digits[scopes_[s].digit].root & 1) depth = s;
  return depth;
}

// Returns the depth of the innermost scope that the variable needs. The line of a checked index may be in a deeper loop than the loops that
// the index depends on.
std::size_t Speller::depth_of_derived(Id q) const {
  const Derived& d = nest_.derived[q];
  std::size_t depth = depth_of(loops_of_derived(q));
  if (d.place != Derived::kNone) return std::max(depth, known_place(d.place).depth);
  const std::vector<Coefficient>& of = nest_.linears[d.linear].of;
  for (Id v = nest_.loops(); v < of.size(); ++v)
    if (of[v] != Coefficient::Zero) depth = std::max(depth, depth_of_derived(v - nest_.loops()));
  return depth;
}

llvm::Value* Speller::root_value(Id root, std::size_t depth, bool read) {
  Value* sum = nullptr;
  for (std::size_t s = 1; s <= depth; ++s) {
    if (p_.digits[scopes_[s].digit].root != root) continue;
    Value* more = b_.CreateMul(read ? scopes_[s].read : scopes_[s].index, weight(scopes_[s].digit, root));
    sum = sum ? b_.CreateAdd(sum, more) : more;
  }
  return sum ? sum : i64(0);
}

// Returns the value of an affine map for the scopes up to `depth`; along a vector, for its first lane.
llvm::Value* Speller::linear_value(Id linear, std::size_t depth, bool with_offset) {
  Value* sum = with_offset ? word(words_.offset_of(linear)) : i64(0);
  const std::vector<Coefficient>& of = nest_.linears[linear].of;
  for (Id v = 0; v < of.size(); ++v) {
    if (of[v] == Coefficient::Zero) continue;
    Value* x = v < nest_.loops() ? root_value(v, depth, true) : derived_value(v - nest_.loops(), depth);
    sum = b_.CreateAdd(sum, b_.CreateMul(x, coefficient(linear, v)));
  }
  return sum;
}

const Speller::Place& Speller::known_place(Id statement) const {
  if (const auto it = places_.find(statement); it != places_.end()) return it->second;
  throw InternalError(fmt::format("speller: the checked index s{} is not known yet", statement));
}

llvm::Value* Speller::derived_value(Id q, std::size_t depth) {
  if (const Id place = nest_.derived[q].place; place != Derived::kNone) return place_of(place);
  const std::size_t at = std::min(depth, depth_of_derived(q));
  Scope& s = scopes_[at];
  if (const auto it = s.derived.find(q); it != s.derived.end()) return it->second;
  return s.derived[q] = in(s, [&] { return quotient(q, linear_value(nest_.derived[q].linear, at, true)); });
}

llvm::Value* Speller::lanes_of_derived(Id q) {
  if (!varies_along_vector(loops_of_derived(q))) return derived_value(q, scopes_.size() - 1);
  if (const Id place = nest_.derived[q].place; place != Derived::kNone) return splat(place_of(place), vector_scope()->lanes);
  Scope& s = scopes_.back();
  if (const auto it = s.derived.find(q); it != s.derived.end()) return it->second;
  return s.derived[q] = quotient(q, lanes_of_linear(nest_.derived[q].linear, true));
}

// Terms that are invariant along the vector are added as scalars.
llvm::Value* Speller::lanes_of_linear(Id linear, bool with_offset) {
  const std::size_t depth = scopes_.size() - 1;
  if (!varies_along_vector(loops_of(linear))) return linear_value(linear, depth, with_offset);
  const Scope& vector = *vector_scope();
  const Id along = p_.digits[vector.digit].root;
  Value* number = with_offset ? word(words_.offset_of(linear)) : i64(0);
  Value* sum = nullptr;
  const std::vector<Coefficient>& of = nest_.linears[linear].of;
  for (Id v = 0; v < of.size(); ++v) {
    if (of[v] == Coefficient::Zero) continue;
    Value* x = v < nest_.loops() ? root_value(v, depth, true) : lanes_of_derived(v - nest_.loops());
    if (v == along)
      x = b_.CreateAdd(splat(x, vector.lanes), b_.CreateMul(iota(vector.lanes), splat(weight(vector.digit, along), vector.lanes)));
    x = b_.CreateMul(x, splat(coefficient(linear, v), width_of(x)));
    if (!width_of(x)) number = b_.CreateAdd(number, x);
    else sum = sum ? b_.CreateAdd(sum, x) : x;
  }
  number = splat(number, vector.lanes);
  return sum ? b_.CreateAdd(number, sum) : number;
}

// ------------------------------------------------------------------------------------------------ lines

// Emits a line. Checked indices that floordiv/mod variables use are recorded for later addresses.
void Speller::line(Id i) {
  const Line& l = p_.lines[i];
  spell(i, l);
  if (wanted_ && i == wanted_->last) {
    const Scope* vector = vector_scope();
    Value* v = splat(values_[i], vector ? vector->lanes : 0);
    if (!wanted_->any) {
      wanted_->any = variable(v->getType());
      llvm::IRBuilderBase::InsertPointGuard guard(b_);
      b_.SetInsertPoint(wanted_->before->getTerminator());
      b_.CreateStore(llvm::Constant::getNullValue(v->getType()), wanted_->any);
    }
    b_.CreateStore(b_.CreateOr(b_.CreateLoad(v->getType(), wanted_->any), v), wanted_->any);
  }
  if (l.of == kNone || !is_place_[l.of]) return;
  const Place place{values_[i], scopes_.size() - 1};
  if (const auto it = places_.find(l.of); it != places_.end() && it->second.depth != place.depth)
    for (Scope& s : scopes_) s.addresses.clear(), s.derived.clear();
  places_[l.of] = place;
  hoist_behind();
}

// Moves the hoisting position, so that later hoisted code comes after the current code.
void Speller::hoist_behind() {
  BasicBlock* const old = scopes_.back().hoist;
  if (!old) return;
  BasicBlock* const hoist = new_hoist();
  for (Scope& s : scopes_)
    if (s.hoist == old) s.hoist = hoist;
}

void Speller::spell(Id i, const Line& l) {
  switch (l.code) {
    case Code::Loop: throw InternalError("speller: a loop has no value");
    case Code::Load: values_[i] = load(l); return;
    case Code::Store: return store(l);
    case Code::Index: values_[i] = from_index(lanes_of_linear(l.at, true), l); return;
    case Code::Slot: {
      const Scope* vector = vector_scope();
      if (!is_known(words_.slots + l.at) && vector && spread_ && spread_->holds(l.dtype, static_cast<int>(vector->lanes))) {
        Value* p = bytes(argument(3), static_cast<std::int64_t>(l.at) * spread_->each);
        values_[i] = k_.from_memory(l.dtype, b_.CreateAlignedLoad(k_.memory_type(l.dtype, vector->lanes), p, alignment_of(*spread_)));
        return;
      }
      values_[i] = of_slot(l.dtype, l.at);
      return;
    }
    case Code::Constant: values_[i] = k_.constant(l.dtype, l.bits, 0); return;
    case Code::Op: values_[i] = op(l); return;
    case Code::Guard: values_[i] = holding_.contains(i) ? b_.getTrue() : guard(l); return;
    case Code::Prefetch: return prefetch(l);
    case Code::PrefetchMemory: return prefetch_memory(l);
    case Code::Start: return start_in_scratch(i);
    case Code::Accumulate: return accumulate(i);
    case Code::Result: values_[i] = result(l); return;
    case Code::Hold: strides_of_memory(form(Of::Memory, l.at), i); return;
    case Code::Keep: {
      const Scope* vector = vector_scope();
      const unsigned own = lanes_of_memory_[l.at], lanes = own                                                      ? own
                                                           : vector && form(Of::Memory, l.at).stride[vector->digit] ? vector->lanes
                                                                                                                    : 0;
      Value* v = k_.to_memory(l.dtype, splat(value(l.a), lanes));
      Value* p = here(Of::Memory, l.at);
      const std::optional<std::int64_t> all = lanes ? iterations_known(vector->digit) : std::nullopt;
      if (lanes == 0 || own || (all && *all % lanes == 0)) {
        b_.CreateAlignedStore(v, p, llvm::Align(1));
        return;
      }
      // lanes beyond the end of the part belong to other elements
      b_.CreateMaskedStore(v, p, llvm::Align(1), lanes_below(b_.CreateSub(iterations(vector->digit), vector->index), lanes));
      return;
    }
    case Code::Recall: {
      const Scope* vector = vector_scope();
      if (const unsigned own = lanes_of_memory_[l.at]) {
        Value* const all = b_.CreateAlignedLoad(k_.memory_type(l.dtype, own), here(Of::Memory, l.at), llvm::Align(1));
        values_[i] = k_.from_memory(l.dtype, all);
        return;
      }
      Value* along = vector ? form(Of::Memory, l.at).stride[vector->digit] : nullptr;
      if (along && number(along) != static_cast<std::int64_t>(size_of(l.dtype)))
        throw InternalError("speller: a vector must not run across the axis of a buffer");
      Value* p = here(Of::Memory, l.at);
      llvm::Type* type = k_.memory_type(l.dtype, along ? vector->lanes : 0);
      // lanes beyond the end of a row may be beyond the memory's end
      const bool ends = along && vector->mask && p_.memories[l.at].layout.back().by < static_cast<std::int64_t>(vector->lanes);
      values_[i] = k_.from_memory(l.dtype, ends ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), vector->mask,
                                                                                          llvm::Constant::getNullValue(type)))
                                                : b_.CreateAlignedLoad(type, p, llvm::Align(1)));
      return;
    }
    case Code::Place: values_[i] = place(l); return;
    case Code::AddTo: return add_to(l);
    case Code::Halve: values_[i] = halve(l); return;
    case Code::Scan: break;
  }
  throw InternalError(fmt::format("speller: line {} has no code yet", i));
}

void Speller::prefetch(const Line& l) {
  constexpr std::int64_t kLine = 64, kLines = 4;  // cache lines of a row; longer rows are streams
  constexpr std::int64_t kNear = 16 << 10;        // bytes: half of a first-level cache
  const Form& f = form(Of::Load, l.at);
  const auto digit = static_cast<Id>(l.bits);
  Id place = kNone, variable = 0;
  for (Id q = 0; q < nest_.derived.size(); ++q)
    if (nest_.linears[f.linear].of[nest_.loops() + q] != Coefficient::Zero && nest_.derived[q].place != Derived::kNone)
      place = nest_.derived[q].place, variable = nest_.loops() + q;
  const auto wanted = static_cast<loops::Ahead>(l.bits >> 32);
  const auto level = wanted == loops::Ahead::Second ? Cache::Second : Cache::First;
  if (place == kNone) {
    if (!f.stride[digit] || varies_by_derived(f) || is_asked_for(f)) return;
    const Scope* vector = vector_scope();
    Value* const ahead = in(scopes_[0], [&] {
      Value* far = b_.CreateMul(i64(l.count), f.stride[digit]);
      if (wanted != loops::Ahead::Near) return far;
      Value* last = i64(kNear);
      return b_.CreateSelect(b_.CreateICmpULE(b_.CreateAdd(far, last), b_.CreateShl(last, i64(1))), far, i64(0));
    });
    if (const Scope* along = turning_scope(f)) {  // the elements of each lane are a vector
      Value* const step = f.stride[vector->digit];
      if (number(along->index) != 0) return;
      Value* const begin = bytes(address(Of::Load, l.at, static_cast<std::size_t>(vector - scopes_.data())), ahead);
      for (unsigned lane = 0; lane < vector->lanes; ++lane) ask_for(bytes(begin, b_.CreateMul(step, i64(lane))), 1, level);
      return;
    }
    if (vector && vector->mask && wanted != loops::Ahead::First) return;
    ask_for(bytes(here(Of::Load, l.at), ahead), f.size * (vector ? vector->lanes : 1), level);
    return;
  }
  // Prefetches the target of a later index. The index is not checked, and a negative index is not resolved.
  Id at = 0;
  while (p_.lines[at].of != place) ++at;
  const Line& index = p_.lines[p_.lines[at].a];
  const Form& indices = form(Of::Load, index.at);
  if (!indices.stride[digit]) return;  // the same index in each iteration
  Value* current = nullptr;
  for (const Scope& s : scopes_)
    if (s.digit == digit) current = s.index;
  Value* ahead = b_.CreateSelect(b_.CreateICmpSLT(b_.CreateAdd(current, i64(l.count)), iterations(digit)), i64(l.count), i64(0));
  Value* later = bytes(here(Of::Load, index.at), b_.CreateMul(ahead, indices.stride[digit]));
  const DType type = nest_.buffers[nest_.accesses[index.at].buffer].dtype;
  Value* loaded = k_.from_memory(type, b_.CreateAlignedLoad(k_.memory_type(type, 0), later, llvm::Align(1)));
  Value* x = k_.cast({loaded, index.dtype}, DType::I64);
  Value* known = b_.CreateSelect(b_.CreateICmpULT(x, word(words_.bounds + p_.lines[at].at)), x, place_of(place));
  Value* away = b_.CreateMul(b_.CreateMul(b_.CreateSub(known, place_of(place)), coefficient(f.linear, variable)), i64(f.size));
  if (f.stride[digit]) away = b_.CreateAdd(away, b_.CreateMul(ahead, f.stride[digit]));
  Value* to = bytes(here(Of::Load, l.at), away);
  Value* last = in(scopes_[0], [&] { return b_.CreateSub(b_.CreateMul(word(words_.extents + nest_.vector_loop()), i64(f.size)), i64(1)); });
  for (std::int64_t line = 0; line < kLines; ++line) ask_for(bytes(to, smaller(i64(line * kLine), last)), 1);
}

void Speller::prefetch_memory(const Line& l) {
  const Form& f = form(Of::Memory, l.at);
  Value* const step = f.stride[static_cast<Id>(l.bits)];
  if (!step || is_asked_for(f)) return;
  constexpr std::int64_t kLine = 64;
  for (const Scope& s : scopes_) {  // once for the unrolled iterations in a cache line
    if (!s.index || !f.stride[s.digit]) continue;
    const std::optional<std::int64_t> index = number(s.index), by = number(f.stride[s.digit]);
    if (index && by && *index > 0 && *index * *by / kLine == (*index - 1) * *by / kLine) return;
  }
  const Scope* vector = vector_scope();
  const std::int64_t lanes = vector && f.stride[vector->digit] ? vector->lanes : 1;
  ask_for(bytes(here(Of::Memory, l.at), b_.CreateMul(i64(l.count), step)), f.size * lanes);
}

// True if another unrolled iteration prefetches the same element.
bool Speller::is_asked_for(const Form& f) const {
  return std::ranges::any_of(scopes_, [&](const Scope& s) { return s.index && !f.stride[s.digit] && number(s.index).value_or(0) != 0; });
}

llvm::Value* Speller::load(const Line& l) {
  const DType t = nest_.buffers[nest_.accesses[l.at].buffer].dtype;
  const Form& f = form(Of::Load, l.at);
  Value* mask = condition(l.guard);
  for (const Scope& s : scopes_) mask = both(mask, s.active);
  const Scope* vector = vector_scope();
  const bool varies = varies_along_vector(loops_of(f.linear)) || (f.table != kNone && varies_along_vector(loops_of(f.table)));
  if (!varies && !(mask && width_of(mask))) {
    Value* p = here(Of::Load, l.at);
    if (mask) p = b_.CreateSelect(mask, p, zeros_);
    return k_.from_memory(t, b_.CreateAlignedLoad(k_.memory_type(t, 0), p, llvm::Align(1)));
  }
  if (!varies) {  // one element for all lanes that are inside
    Value* const inside = splat(both(mask, vector->mask), vector->lanes);
    Value* const p = b_.CreateSelect(b_.CreateOrReduce(inside), here(Of::Load, l.at), zeros_);
    Value* const all = b_.CreateVectorSplat(vector->lanes, b_.CreateAlignedLoad(k_.memory_type(t, 0), p, llvm::Align(1)));
    return k_.from_memory(t, b_.CreateSelect(inside, all, llvm::Constant::getNullValue(all->getType())));
  }
  const bool is_guarded = mask != nullptr;
  llvm::Type* type = k_.memory_type(t, vector->lanes);
  Value* step = f.stride[vector->digit];
  if (step && number(step) == f.size && !varies_by_derived(f))
    return k_.from_memory(t, guarded(type, here(Of::Load, l.at), mask, vector->mask));
  mask = both(mask, vector->mask);
  if (mask) mask = splat(mask, vector->lanes);
  const auto loaded = [&](Value* p, Value* where) { return guarded(type, p, nullptr, where); };
  if (step && !varies_by_derived(f)) {
    if (const Scope* along = l.guard == kNone ? turning_scope(f) : nullptr)
      return k_.from_memory(t, turned(l, f, *along)[static_cast<std::size_t>(*number(along->index))]);
    if (number(step) == -f.size && !is_guarded)
      return k_.from_memory(t, reversed(loaded(last_lane(Of::Load, l.at), mask ? reversed(mask) : nullptr)));
    const Coefficient apart = nest_.linears[f.linear].of[nest_.vector_loop()];
    if (!mask && nest_.accesses[l.at].first != Access::kNone && number(step) == number_of(apart) * f.size)
      return k_.from_memory(t, sorted_out(l.at, static_cast<unsigned>(number_of(apart)), type));
  }
  const bool is_last = vector == &scopes_.back() && f.table == kNone;
  if (const auto run = is_last ? run_along(f, *vector, scopes_.size() - 1, here(Of::Load, l.at), vector->lanes) : std::nullopt;
      run && run->whole) {
    const Scope before = scopes_.back();  // values from one branch are unknown after it
    BasicBlock *together = block(), *apart = block(), *after = block();
    b_.CreateCondBr(run->whole, together, apart);
    b_.SetInsertPoint(together);
    Value* const vector_at_once = loaded(run->begin, mask);
    b_.CreateBr(after);
    b_.SetInsertPoint(apart);
    Value* const one_by_one = gathered(type, addresses(Of::Load, l.at), mask);
    apart = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    scopes_.back() = before;
    llvm::PHINode* either = b_.CreatePHI(type, 2);
    either->addIncoming(vector_at_once, together);
    either->addIncoming(one_by_one, apart);
    return k_.from_memory(t, either);
  }
  return k_.from_memory(t, gathered(type, addresses(Of::Load, l.at), mask));
}

// True if the variable is a quotient of the plain index of this loop of the nest.
bool Speller::is_quotient_of(Id q, Id root) const {
  const Derived& d = nest_.derived[q];
  if (d.place != Derived::kNone || d.modulo) return false;
  const std::vector<Coefficient>& of = nest_.linears[d.linear].of;
  for (Id v = 0; v < of.size(); ++v)
    if (of[v] != (v == root ? Coefficient::One : Coefficient::Zero)) return false;
  return true;
}

// Returns the quotients of a loop's index that affect addresses. Returns nullopt if other floordiv/mod variables that vary along the loop
// also affect addresses.
std::optional<std::vector<loops::Id>> Speller::quotients_along(const Form& f, Id root) const {
  std::vector<Id> out;
  for (Id q = 0; q < nest_.derived.size(); ++q) {
    if (nest_.linears[f.linear].of[nest_.loops() + q] == Coefficient::Zero || !(loops_of_derived(q) >> root & 1)) continue;
    if (!is_quotient_of(q, root)) return std::nullopt;
    out.push_back(q);
  }
  return out;
}

// Describes elements that are contiguous along the loop of a scope while quotients of its index stay constant. The first element is the
// element of the scopes up to `depth`; `begin` is its address without the quotients' terms.
std::optional<Speller::Run> Speller::run_along(const Form& f, const Scope& along, std::size_t depth, Value* begin, unsigned count) {
  const Id root = p_.digits[along.digit].root;
  const std::optional<std::vector<Id>> quotients = quotients_along(f, root);
  if (!quotients || !f.stride[along.digit] || number(f.stride[along.digit]) != f.size || number(weight(along.digit, root)) != 1) return {};
  Run run{begin, nullptr};
  for (const Id q : *quotients) {
    Value* const first = linear_value(nest_.derived[q].linear, depth, true);
    Value* const whole = quotient(q, first);
    Value* const by = word(words_.by + q);
    Value* const rest = b_.CreateSub(first, b_.CreateMul(whole, by));
    run.whole = both(run.whole, b_.CreateICmpSLE(rest, b_.CreateSub(by, i64(count))));
    run.begin = bytes(run.begin, b_.CreateMul(b_.CreateMul(whole, coefficient(f.linear, nest_.loops() + q)), i64(f.size)));
  }
  return run;
}

// Returns the distances of these elements from `begin`, contiguous or not.
llvm::Value* Speller::far_along(const Form& f, const Scope& along, std::size_t depth, unsigned count) {
  Value* far = b_.CreateMul(iota(count), splat(i64(f.size), count));
  const std::vector<Id> quotients = quotients_along(f, p_.digits[along.digit].root).value();
  for (const Id q : quotients) {
    Value* const first = linear_value(nest_.derived[q].linear, depth, true);
    Value* const each =
        b_.CreateMul(quotient(q, b_.CreateAdd(splat(first, count), iota(count))), splat(coefficient(f.linear, nest_.loops() + q), count));
    far = b_.CreateAdd(far, b_.CreateMul(each, splat(i64(f.size), count)));
  }
  return far;
}

// Returns the address of the whole vector that ends where the lanes begin.
llvm::Value* Speller::last_lane(Of of, Id access) {
  return bytes(here(of, access), i64(-static_cast<std::int64_t>(vector_scope()->lanes - 1) * form(of, access).size));
}

// Returns lanes `place`, `place` + c, `place` + 2c, … of the c whole vectors of the interleaved access group.
llvm::Value* Speller::sorted_out(Id access, unsigned stride, llvm::Type* type) {
  const ::onepass::compiler::Access& a = nest_.accesses[access];
  Value* const begin = here(Of::Load, a.first);
  std::vector<Value*>& whole = scopes_.back().families[begin];  // unrolled loops inside the vector move the address
  if (whole.empty()) whole = whole_vectors(type, begin, stride, nest_.places_of_group(a.first));
  return every(whole, stride, a.place);
}

// Returns the lane addresses: distances from the first lane's address, plus terms of floordiv/mod variables that vary along the vector.
llvm::Value* Speller::addresses(Of of, Id access) {
  const Form& f = form(of, access);
  const unsigned count = vector_scope()->lanes;
  if (f.table != kNone && varies_along_vector(loops_of(f.table))) {  // each lane has a different array
    llvm::Type* pointers = llvm::FixedVectorType::get(b_.getPtrTy(), count);
    Value* words = b_.CreateGEP(b_.getInt64Ty(), f.base, within_table(f, lanes_of_linear(f.table, true)));
    Value* arrays = b_.CreateMaskedGather(pointers, words, llvm::Align(8), all_lanes(count), llvm::Constant::getNullValue(pointers));
    return b_.CreateGEP(b_.getInt8Ty(), arrays, b_.CreateMul(splat(lanes_of_linear(f.linear, false), count), splat(i64(f.size), count)));
  }
  Value* far = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), count));
  if (Value* step = f.stride[vector_scope()->digit]) far = in(scopes_[0], [&] { return b_.CreateMul(iota(count), splat(step, count)); });
  for (Id q = 0; q < nest_.derived.size(); ++q) {
    const Id variable = nest_.loops() + q;
    if (nest_.linears[f.linear].of[variable] == Coefficient::Zero || !varies_along_vector(loops_of_derived(q))) continue;
    Value* step = in(scopes_[0], [&] { return b_.CreateMul(coefficient(f.linear, variable), i64(f.size)); });
    far = b_.CreateAdd(far, b_.CreateMul(lanes_of_derived(q), splat(step, count)));
  }
  return b_.CreateGEP(b_.getInt8Ty(), here(of, access), far);
}

// Returns the unrolled loop directly inside the vector loop along which the elements are contiguous, with as many iterations as a square
// has. Inner loops must not change the elements.
const Speller::Scope* Speller::turning_scope(const Form& f) const {
  const Scope* vector = vector_scope();
  if (!vector || vector == &scopes_.back()) return nullptr;
  const Scope* along = vector + 1;
  while (along < &scopes_.back() && !along->inside) ++along;
  if (!along->inside) return nullptr;
  for (const Scope* s = along + 1; s <= &scopes_.back(); ++s)
    if (f.stride[s->digit]) return nullptr;
  return turns(f, along->digit) ? along : nullptr;
}

// True if the elements are contiguous along the unrolled loop over this digit, with as many iterations as a square has.
bool Speller::turns(const Form& f, Id digit) const {
  const Scope* vector = vector_scope();
  if (!vector || f.linear == kNone || !quotients_along(f, p_.digits[digit].root)) return false;
  const std::optional<std::int64_t> n = iterations_known(digit);
  return f.stride[digit] && number(f.stride[digit]) == f.size && n && vector->lanes % *n == 0 && (*n & (*n - 1)) == 0;
}

// Returns the addresses of the lanes' rows. Lanes beyond the last row have the address of the last row.
std::vector<llvm::Value*> Speller::rows_of(Value* begin, Value* step) {
  const Scope& vector = *vector_scope();
  std::vector<Value*> at = {begin};
  while (at.size() < vector.lanes) {
    Value* const is_inside = b_.CreateICmpSGT(vector.inside, i64(static_cast<std::int64_t>(at.size())));
    at.push_back(bytes(at.back(), vector.mask ? b_.CreateSelect(is_inside, step, i64(0)) : step));
  }
  return at;
}

// Loads the elements of each lane as a vector and transposes squares of them in registers. Elements beyond a lane's end are 0. Lanes beyond
// the last row are 0 and read nothing, or have the elements of the last row: in joined squares, where masks would be most of the code, and
// where the vector runs inside.
const std::vector<llvm::Value*>& Speller::turned(const Line& l, const Form& f, const Scope& along) {
  const auto depth = static_cast<std::size_t>(&along - scopes_.data()) - 1;
  const Scope& vector = *vector_scope();
  std::vector<Value*>& made = scopes_[depth].turned[l.at];
  if (!made.empty()) return made;
  const DType t = nest_.buffers[nest_.accesses[l.at].buffer].dtype;
  const auto side = static_cast<unsigned>(*iterations_known(along.digit));
  llvm::Type* type = k_.memory_type(t, side);
  Value* const begin = address(Of::Load, l.at, depth);
  Value* const step = f.stride[vector.digit];
  const Run run = *run_along(f, along, depth, begin, side);
  // Squares with rows of 128 bits are joined first: instructions transpose within such parts of a register.
  const bool joins = side * type->getScalarSizeInBits() == 128 && vector.lanes > side;
  const auto rows_by = [&](auto&& row) {
    std::vector<Value*> rows;
    for (unsigned first = 0; first < (joins ? side : vector.lanes); ++first) {
      std::vector<Value*> parts;
      for (unsigned lane = first; lane == first || (joins && lane < vector.lanes); lane += side) parts.push_back(row(lane));
      rows.push_back(k_.joined(std::move(parts)));
    }
    return rows;
  };
  const auto row_at = [&](Value* p, Value* mask) -> Value* {
    if (!mask) return b_.CreateAlignedLoad(type, p, llvm::Align(1));
    return b_.CreateMaskedLoad(type, p, llvm::Align(1), splat(mask, side), llvm::Constant::getNullValue(type));
  };
  const auto whole_rows = [&] {
    Value *first = nullptr, *p = nullptr;  // of the row `lane` % `side`; of the row before
    return rows_by([&](unsigned lane) {
      if (!joins) p = bytes(run.begin, b_.CreateMul(step, i64(lane)));
      else if (lane < side) p = first = first ? bytes(first, step) : run.begin;
      else p = bytes(p, b_.CreateMul(step, i64(side)));
      return row_at(p, nullptr);
    });
  };
  const auto masked_rows = [&](bool masks_lanes) {
    Value* mask = number(along.inside).value_or(0) >= side ? nullptr : lanes_below(along.inside, side);
    for (const Scope& s : scopes_)
      if (&s != &along) mask = both(mask, s.active);
    if (mask) mask = splat(mask, side);
    Value* const far = run.whole ? far_along(f, along, depth, side) : nullptr;
    const std::vector<Value*> begins = rows_of(begin, step);
    return rows_by([&](unsigned lane) {
      Value* own = mask;
      if (masks_lanes && lane > 0 && vector.mask) own = both(mask, splat(b_.CreateICmpSGT(vector.inside, i64(lane)), side));
      return far ? gathered(type, b_.CreateGEP(b_.getInt8Ty(), begins[lane], far), own) : row_at(begins[lane], own);
    });
  };
  Value* whole = b_.CreateAnd(b_.CreateICmpSGE(along.inside, i64(side)), b_.CreateICmpSGE(vector.inside, i64(vector.lanes)));
  for (const Scope& s : scopes_)
    if (&s != &along && s.active) whole = b_.CreateAnd(whole, s.active);
  whole = both(whole, run.whole);
  std::vector<Value*> rows;
  if (&vector != &scopes_[depth] && !run.whole) {  // short rows: they end inside a square
    rows = masked_rows(false);
  } else if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(whole)) {
    rows = known->isOne() ? whole_rows() : masked_rows(!joins);
  } else {  // the common case, all lanes inside, needs no mask
    BasicBlock *plain = block(), *masked = block(), *after = block();
    b_.CreateCondBr(whole, plain, masked);
    b_.SetInsertPoint(plain);
    rows = whole_rows();
    plain = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(masked);
    const std::vector<Value*> others = masked_rows(!joins);
    masked = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    for (std::size_t k = 0; k < rows.size(); ++k) {
      llvm::PHINode* either = b_.CreatePHI(rows[k]->getType(), 2);
      either->addIncoming(rows[k], plain);
      either->addIncoming(others[k], masked);
      rows[k] = either;
    }
  }
  if (joins) {
    k_.transpose(rows);
    return made = std::move(rows);
  }
  std::vector<std::vector<Value*>> squares;
  for (unsigned lane = 0; lane < vector.lanes; ++lane) {
    if (lane % side == 0) squares.emplace_back();
    squares.back().push_back(rows[lane]);
  }
  for (std::vector<Value*>& square : squares) k_.transpose(square);
  for (unsigned i = 0; i < side; ++i) {
    std::vector<Value*> parts;
    for (const std::vector<Value*>& square : squares) parts.push_back(square[i]);
    made.push_back(k_.joined(std::move(parts)));
  }
  return made;
}

bool Speller::varies_by_derived(const Form& f) const {
  for (Id q = 0; q < nest_.derived.size(); ++q)
    if (nest_.linears[f.linear].of[nest_.loops() + q] != Coefficient::Zero && varies_along_vector(loops_of_derived(q))) return true;
  return false;
}

// Stores the values of an unrolled loop's iterations, which are contiguous for each lane: squares of them are transposed in registers.
// `n` is the number of iterations that are inside.
void Speller::store_turned(Id line, const std::vector<Value*>& values, Id digit, Value* n) {
  const Line& l = p_.lines[line];
  const Form& f = form(Of::Store, l.at);
  const Scope& vector = *vector_scope();
  const auto side = static_cast<unsigned>(*iterations_known(digit));
  const bool is_whole = number(n).value_or(0) >= side;
  std::vector<Value*> rows;
  for (unsigned lane = 0; lane < vector.lanes; lane += side) {
    std::vector<Value*> square;
    for (Value* v : values) {
      std::vector<int> lanes(side);
      std::iota(lanes.begin(), lanes.end(), static_cast<int>(lane));
      square.push_back(side == vector.lanes ? v : b_.CreateShuffleVector(v, lanes));
    }
    square.resize(side, llvm::PoisonValue::get(square[0]->getType()));
    k_.transpose(square);
    rows.insert(rows.end(), square.begin(), square.end());
  }
  // Lanes beyond the last row have the address of the last row, which is stored after them.
  const std::vector<Value*> at = rows_of(here(Of::Store, l.at), f.stride[vector.digit]);
  Value* const columns = is_whole ? nullptr : lanes_below(n, side);
  for (std::size_t lane = at.size(); lane-- > 0;) store_lanes(rows[lane], at[lane], columns, l.streamed);
}

void Speller::store(const Line& l) {
  const DType t = nest_.buffers[nest_.accesses[l.at].buffer].dtype;
  const Form& f = form(Of::Store, l.at);
  if (const Scope* along = l.guard == kNone && !varies_by_derived(f) ? turning_scope(f) : nullptr) {
    const auto depth = static_cast<std::size_t>(along - scopes_.data()) - 1;
    scopes_[depth].stored[static_cast<Id>(&l - p_.lines.data())].push_back(k_.to_memory(t, splat(value(l.a), vector_scope()->lanes)));
    return;
  }
  for (const Scope& s : scopes_)
    if (s.index != s.read) throw InternalError("speller: a store is beyond the end of a loop");
  Value* mask = condition(l.guard);
  const Scope* vector = vector_scope();
  if (!vector) {
    if (mask) throw InternalError("speller: a number cannot be stored under a predicate");
    b_.CreateAlignedStore(k_.to_memory(t, value(l.a)), here(Of::Store, l.at), llvm::Align(1));
    return;
  }
  const unsigned count = vector->lanes;
  mask = both(mask, vector->mask);
  if (mask) mask = splat(mask, count);
  Value* step = varies_by_derived(f) ? nullptr : f.stride[vector->digit];
  const bool is_contiguous = step && number(step) == f.size;
  if (is_contiguous && !mask && !l.streamed && k_.converts_by_registers(t))
    return store_by_registers(splat(value(l.a), count), t, here(Of::Store, l.at));
  Value* v = k_.to_memory(t, splat(value(l.a), count));
  if (is_contiguous) return store_lanes(v, here(Of::Store, l.at), mask, l.streamed);
  if (step && number(step) == -f.size) return store_lanes(reversed(v), last_lane(Of::Store, l.at), mask ? reversed(mask) : nullptr, false);
  Value* at = addresses(Of::Store, l.at);
  b_.CreateMaskedScatter(v, at, llvm::Align(1), mask ? mask : all_lanes(count));
}

// Adds to the stored elements. No two lanes have the same element.
void Speller::add_to(const Line& l) {
  const Scope* vector = vector_scope();
  if (!vector) throw InternalError("speller: a number cannot be added to another");
  const DType t = nest_.buffers[nest_.accesses[l.at].buffer].dtype;
  const Form& f = form(Of::Store, l.at);
  llvm::Type* type = k_.memory_type(t, vector->lanes);
  Value* zero = llvm::Constant::getNullValue(type);
  Value* mask = both(condition(l.guard), vector->mask);
  if (mask) mask = splat(mask, vector->lanes);
  const auto sum = [&](Value* old) { return k_.add({old, t}, {splat(value(l.a), vector->lanes), t}); };
  Value* const step = varies_by_derived(f) ? nullptr : f.stride[vector->digit];
  if (step && number(step) == f.size) {
    Value* p = here(Of::Store, l.at);
    Value* old = mask ? static_cast<Value*>(b_.CreateMaskedLoad(type, p, llvm::Align(1), mask, zero))
                      : b_.CreateAlignedLoad(type, p, llvm::Align(1));
    return store_lanes(sum(old), p, mask, false);
  }
  Value* at = addresses(Of::Store, l.at);
  if (!mask) mask = all_lanes(vector->lanes);
  b_.CreateMaskedScatter(sum(b_.CreateMaskedGather(type, at, llvm::Align(1), mask, zero)), at, llvm::Align(1), mask);
}

// Emits adjacent stores: lane i of the k-th store becomes lane i*count + k.
void Speller::store_side_by_side(Id first) {
  const Line &l = p_.lines[first], &last = p_.lines[first + l.count - 1u];
  const Scope& vector = *vector_scope();
  const Form& f = form(Of::Store, l.at);
  const DType t = nest_.buffers[nest_.accesses[l.at].buffer].dtype;
  std::vector<Value*> values;
  for (Id i = first; i < first + l.count; ++i) {
    if (p_.lines[i].code != Code::Store || p_.lines[i].of != l.of + (i - first))
      throw InternalError("speller: the stores are not adjacent");
    values.push_back(k_.to_memory(t, splat(value(p_.lines[i].a), vector.lanes)));
  }
  Value* const v = interleaved(values);
  Value* left = vector.mask ? b_.CreateMul(vector.inside, i64(l.count)) : nullptr;
  if (last.guard != kNone) {  // the last store of the last iteration may be outside
    const Id check = p_.lines[last.guard].at;
    Value* at = linear_value(nest_.checks[check].linear, scopes_.size() - 1, true);
    Value* inside = b_.CreateAdd(b_.CreateSub(word(words_.bounds + check), at), i64(l.count - 1));
    left = left ? smaller(left, inside) : inside;
  }
  Value* p = bytes(address(Of::Store, l.at, scopes_.size() - 2), b_.CreateMul(vector.index, i64(f.size * l.count)));
  if (!left) return store_lanes(v, p, nullptr, l.streamed);
  // Masks have the lanes of a register: LLVM makes other masks bit by bit.
  const auto size = static_cast<unsigned>(size_of(t));
  const unsigned all = l.count * vector.lanes, width = std::min(static_cast<unsigned>(target_.vector_bytes) / size, vector.lanes);
  left = smaller(left, i64(all));
  for (unsigned from = 0; from < all; from += width) {
    std::vector<int> lanes(width);
    std::iota(lanes.begin(), lanes.end(), static_cast<int>(from));
    store_lanes(b_.CreateShuffleVector(v, lanes), bytes(p, i64(from * size)), lanes_below(b_.CreateSub(left, i64(from)), width, true),
                false);
  }
}

llvm::Value* Speller::interleaved(const std::vector<Value*>& v) {
  const auto n = static_cast<unsigned>(v.size()), width = width_of(v[0]);
  if (n == 1) return v[0];
  std::vector<int> lanes;
  if (n % 2 == 0) {  // interleaves the even vectors with the odd vectors
    std::vector<Value*> even, odd;
    for (unsigned i = 0; i < n; ++i) (i % 2 ? odd : even).push_back(v[i]);
    for (unsigned i = 0; i < n * width / 2; ++i) lanes.push_back(static_cast<int>(i)), lanes.push_back(static_cast<int>(n * width / 2 + i));
    return b_.CreateShuffleVector(interleaved(even), interleaved(odd), lanes);
  }
  Value* all = nullptr;  // concatenates, then permutes
  for (unsigned i = 0; i < n; ++i) {
    std::vector<int> wide;
    for (unsigned k = 0; k < n * width; ++k) wide.push_back(k / width == i ? static_cast<int>(k % width) : llvm::PoisonMaskElem);
    Value* mine = b_.CreateShuffleVector(v[i], wide);
    std::vector<int> both;
    for (unsigned k = 0; k < n * width; ++k) both.push_back(static_cast<int>(k / width == i ? n * width + k : k));
    all = all ? b_.CreateShuffleVector(all, mine, both) : mine;
  }
  for (unsigned i = 0; i < n * width; ++i) lanes.push_back(static_cast<int>(i % n * width + i / n));
  return b_.CreateShuffleVector(all, lanes);
}

void Speller::store_lanes(Value* v, Value* p, Value* mask, bool streamed) {
  if (mask) {
    b_.CreateMaskedStore(v, p, llvm::Align(1), mask);
    return;
  }
  // The array starts at a multiple of 64, and each iteration stores so many bytes; three interleaved values of 32 bytes are 96.
  const std::uint64_t size = v->getType()->getScalarSizeInBits() / 8 * width_of(v), aligned = std::min<std::uint64_t>(64, size & -size);
  llvm::StoreInst* st = b_.CreateAlignedStore(v, p, llvm::Align(streamed ? aligned : 1));
  if (streamed)
    st->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
}

llvm::Value* Speller::condition(Id guard) { return guard == kNone || holding_.contains(guard) ? nullptr : value(guard); }

// True if the map grows by one with the digit's index.
bool Speller::moves_by_one(Id linear, Id digit) {
  const Id root = p_.digits[digit].root;
  return number(b_.CreateMul(coefficient(linear, root), weight(digit, root))) == 1;
}

// True if the map grows by one from each lane to the next.
bool Speller::counts_lanes(Id linear) {
  if (!varies_along_vector(loops_of(linear))) return false;
  const std::vector<Coefficient>& of = nest_.linears[linear].of;
  for (Id q = 0; q < nest_.derived.size(); ++q)
    if (of[nest_.loops() + q] != Coefficient::Zero && varies_along_vector(loops_of_derived(q))) return false;
  return moves_by_one(linear, vector_scope()->digit);
}

llvm::Value* Speller::guard(const Line& l) {
  Value* all = nullptr;
  for (Id c = l.at; c < l.at + l.count; ++c) {
    const Id linear = nest_.checks[c].linear;
    if (counts_lanes(linear)) {  // the lanes from the first to the last that are inside, as 32-bit numbers
      const unsigned lanes = vector_scope()->lanes;
      Value* const first = linear_value(linear, scopes_.size() - 1, true);
      const auto below = [&](Value* n) {
        return lanes_below(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, smaller(n, i64(lanes)), i64(0)), lanes, true);
      };
      all = both(all, b_.CreateAnd(below(b_.CreateSub(word(words_.bounds + c), first)), b_.CreateNot(below(b_.CreateNeg(first)))));
      continue;
    }
    Value* x = lanes_of_linear(linear, true);
    all = both(all, b_.CreateICmpULT(x, splat(word(words_.bounds + c), width_of(x))));
  }
  return all;
}

llvm::Value* Speller::place(const Line& l) {
  const Scope* vector = vector_scope();
  Value* mask = condition(l.guard);
  for (const Scope& s : scopes_) mask = both(mask, s.active);
  if (vector) mask = both(mask, vector->mask);
  return checked_place(p_.lines[l.a].dtype, splat(value(l.a), vector ? vector->lanes : 0), l.at, mask, scopes_.size() > 1);
}

llvm::Value* Speller::op(const Line& l) {
  Typed operands[3];
  std::size_t n = 0;
  unsigned lanes = 0;
  for (const Id o : {l.a, l.b, l.c})
    if (o != kNone) lanes = std::max(lanes, width_of(value(o)));
  for (const Id o : {l.a, l.b, l.c})
    if (o != kNone) operands[n++] = {splat(value(o), lanes), p_.lines[o].dtype};
  return apply(l, std::span(operands, n));
}

// ------------------------------------------------------------------------------------------------ sums

// True if the digit is a part of a loop that counts the elements of the sum. The lanes of a halved sum count too.
bool Speller::is_part_of_sum(Id digit, Id accumulator) const {
  return std::ranges::any_of(p_.accumulators[accumulator].reduced, [&](Id r) { return p_.digits[r].root == p_.digits[digit].root; });
}

loops::Id Speller::start_of(Id accumulator) const {
  Id start = 0;
  while (p_.lines[start].code != Code::Start || p_.lines[start].at != accumulator) ++start;
  return start;
}

std::optional<Speller::Registers> Speller::registers_of(Id loop, Id line) const {
  const Accumulator& sum = p_.accumulators[p_.lines[line].at];
  Registers out;
  out.lanes = lanes_of_sums_[p_.lines[line].at];
  for (Id l = loop + 1; l < line; ++l) {
    if (p_.lines[l].code != Code::Loop || p_.lines[l].end <= line) continue;
    const Id digit = p_.lines[l].at;
    const bool is_axis = std::ranges::find(sum.axes, digit) != sum.axes.end();
    const std::optional<std::int64_t> n = iterations_known(digit);
    switch (p_.lines[l].bind) {
      case Bind::Vector:
        out.lanes = lanes_of(l), out.of_elements = !is_axis;
        if (is_axis && !(n && *n <= out.lanes)) return std::nullopt;
        break;
      case Bind::Unrolled:
        if (is_axis && n) out.axes.push_back(digit);
        else if (is_axis) return std::nullopt;
        else if (sum.order == Accumulator::Order::Any && !sum.is_product && n)
          out.parts.push_back(digit);  // one partial sum each, so that they are independent
        break;
      default:
        if (is_axis) return std::nullopt;
    }
  }
  return out;
}

// Returns the sums over the loop at this line that can be in registers while it runs, because they start with the identity there. With
// `only_eight`, returns the trees of eight among them.
std::vector<loops::Id> Speller::into_registers(Id loop, bool only_eight) {
  std::vector<Id> sums;
  for (Id i = loop + 1; i < p_.lines[loop].end; ++i) {
    if (p_.lines[i].code != Code::Accumulate) continue;
    const Id a = p_.lines[i].at;
    const Accumulator& sum = p_.accumulators[a];
    const bool is_reduced = std::ranges::any_of(sum.reduced, [&](Id r) { return loops::is_within(p_, p_.lines[loop].at, r); });
    const bool is_eight = sum.part == Accumulator::Part::Eight;
    if (sum.part == Accumulator::Part::Tree || !registers_[a].values.empty() || !is_reduced || start_of(a) > loop) continue;
    if (only_eight && !is_eight) continue;
    std::optional<Registers> registers = registers_of(loop, i);
    if (!registers) continue;
    registers_[a] = std::move(*registers);
    if (is_eight) {
      start_eight(a, !only_eight);
      sums.push_back(a);
      continue;
    }
    std::vector<Id> unrolled = registers_[a].axes;
    unrolled.insert(unrolled.end(), registers_[a].parts.begin(), registers_[a].parts.end());
    std::vector<std::int64_t> index(unrolled.size(), 0);
    for (bool more = true; more;) {
      for (Value* begin : sum.finds ? start_search(i) : reducer(a).start(registers_[a].lanes)) {
        registers_[a].values[index].push_back(variable(begin->getType()));
        b_.CreateStore(begin, registers_[a].values[index].back());
      }
      more = false;
      for (std::size_t k = index.size(); k-- > 0 && !more;) {
        more = ++index[k] < *iterations_known(unrolled[k]);
        if (!more) index[k] = 0;
      }
    }
    sums.push_back(a);
  }
  return sums;
}

// Initializes lanes that are not in registers with the identity in scratch.
void Speller::start_in_scratch(Id start) {
  const Id a = p_.lines[start].at;
  const Accumulator& sum = p_.accumulators[a];
  if (sum.part != Accumulator::Part::Block || sum.order != Accumulator::Order::Lanes) return;
  Id loop = kNone, line = start;
  while (p_.lines[line].code != Code::Accumulate || p_.lines[line].at != a) ++line;
  for (Id l = start; l < line && loop == kNone; ++l)
    if (p_.lines[l].code == Code::Loop && p_.lines[l].end > line && loops::is_within(p_, p_.lines[l].at, sum.reduced[0])) loop = l;
  if (loop == kNone || registers_of(loop, line) || adds_once(a)) return;
  const unsigned lanes = static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(size_of(sum.dtype));
  std::int64_t all = std::max(lanes_of_sums_[a], 1u);
  for (const Id axis : sum.axes) all *= iterations_known(axis).value_or(1);
  for (std::int64_t k = 0; k < all; k += lanes)
    b_.CreateAlignedStore(reducer(a).identity(lanes), bytes(here(Of::Sums, a), i64(k * form(Of::Sums, a).size)), llvm::Align(1));
}

// Returns the two sums if the loops at this line only add one sum to the other, a tree.
std::optional<Speller::Push> Speller::push_at(Id line) const {
  Id inside = line;
  while (inside < p_.lines.size() && p_.lines[inside].code == Code::Loop && p_.lines[inside].end == p_.lines[line].end) ++inside;
  if (inside == line || inside + 2 != p_.lines[line].end) return std::nullopt;
  const Line &from = p_.lines[inside], &to = p_.lines[inside + 1];
  if (from.code != Code::Result || to.code != Code::Accumulate || to.a != inside || p_.accumulators[to.at].part != Accumulator::Part::Tree)
    return std::nullopt;
  std::vector<Id> axes = loops::axes_in_order(p_, to.at);  // without the axes of the enclosing loops
  std::erase_if(axes, [&](Id axis) { return std::ranges::any_of(scopes_, [&](const Scope& s) { return s.digit == axis; }); });
  if (axes != loops::axes_in_order(p_, from.at)) return std::nullopt;
  return Push{from.at, to.at, p_.lines[line].end};
}

// True if all lines that read this sum, from line `from` on, are in straight-line loops over the same axes.
bool Speller::can_read_at_hand(Id accumulator, Id from) const {
  const std::vector<Id>& axes = at_hand_[accumulator].axes;
  bool any = false;
  for (Id i = 0; i < p_.lines.size(); ++i) {
    if ((p_.lines[i].code != Code::Result && p_.lines[i].code != Code::Halve) || p_.lines[i].at != accumulator) continue;
    any = true;
    auto found = p_.lines[i].code == Code::Halve
                     ? static_cast<std::size_t>(std::ranges::count_if(axes, [&](Id axis) { return is_part_of_sum(axis, accumulator); }))
                     : 0;
    for (Id l = 0; l < i; ++l) {
      if (p_.lines[l].code != Code::Loop || p_.lines[l].end <= i) continue;
      if (l < from) {
        if (p_.lines[l].end <= from) return false;
        continue;
      }
      const std::optional<std::int64_t> n = iterations_known(p_.lines[l].at);
      const bool is_axis = std::ranges::find(axes, p_.lines[l].at) != axes.end();
      if (!is_axis || !n || (p_.lines[l].bind != Bind::Unrolled && !(p_.lines[l].bind == Bind::Vector && *n <= lanes_of(l)))) return false;
      ++found;
    }
    if (i < from || found != axes.size()) return false;
  }
  return any;
}

std::vector<std::int64_t> Speller::index_of(const std::vector<Id>& axes) const {
  std::vector<std::int64_t> index;
  for (const Id axis : axes)
    for (const Scope& s : scopes_)
      if (s.digit == axis && !s.lanes && number(s.index)) index.push_back(*number(s.index));
  return index;
}

llvm::Value* Speller::open_index(Id digit) {
  for (const Scope& s : scopes_)
    if (s.digit == digit) return s.index;
  return i64(0);
}

// Prefetches the tree levels that the sums are added to or stored to, while the loop runs.
void Speller::prefetch(const Push& to) {
  const Accumulator& a = p_.accumulators[to.tree];
  if (p_.digits[a.reduced[0]].once) return;
  Value* const index = open_index(a.reduced[0]);
  Value* at = here(Of::Sums, to.tree);
  Value* stored = level(at, to.tree, b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, b_.CreateNot(index), b_.getFalse()));
  std::int64_t bytes_of_tile = form(Of::Sums, to.tree).size;
  for (const Id axis : p_.accumulators[to.from].axes) bytes_of_tile *= p_.digits[axis].by;
  for (Value* p : {at, stored}) ask_for(p, bytes_of_tile);
}

void Speller::ask_for(Value* p, std::int64_t size, Cache into) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t offset = 0; offset < size; offset += kLine)
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {bytes(p, i64(offset)), b_.getInt32(0), b_.getInt32(static_cast<std::uint32_t>(into)), b_.getInt32(1)});
}

loops::Id Speller::out_of_registers(const std::vector<Id>& sums, Id next) {
  for (const Id a : sums) {
    const std::optional<Push> to = next < p_.lines.size() ? push_at(next) : std::nullopt;
    const bool is_pushed = to && to->from == a;
    const Id where = is_pushed ? to->tree : a;
    const Registers carried = std::exchange(registers_[a], {});
    std::map<std::vector<std::int64_t>, std::vector<Reducer::Carried>> of_index;  // by the indices of the axes
    const bool is_eight = p_.accumulators[a].part == Accumulator::Part::Eight, finds = p_.accumulators[a].finds.has_value();
    for (const auto& [index, variables] : carried.values) {
      if (is_eight) break;
      Reducer::Carried& one = of_index[{index.begin(), index.begin() + static_cast<std::ptrdiff_t>(carried.axes.size())}].emplace_back();
      for (llvm::AllocaInst* v : variables) one.push_back(b_.CreateLoad(v->getAllocatedType(), v));
    }
    std::map<std::vector<std::int64_t>, Value*> values;
    if (is_eight) values[{}] = total_of_eight(a, carried);
    const bool is_one = !carried.of_elements && carried.parts.empty() && !reducer(a).is_extreme();
    for (const auto& [index, all] : of_index)
      values[index] = finds               ? found(a, all)
                      : is_one            ? all[0][0]
                      : lanes_of_sums_[a] ? reducer(a).total_by_lane(all)
                                          : reducer(a).total(all);
    const bool is_whole = !is_pushed || p_.digits[p_.accumulators[where].reduced[0]].once;
    if (is_pushed) next = to->end;
    at_hand_[where] = {p_.accumulators[a].axes, carried.axes, {}};
    if (is_whole && can_read_at_hand(where, next)) {
      at_hand_[where].values = std::move(values);
      continue;
    }
    Value* at = here(Of::Sums, where);
    const Form& f = form(Of::Sums, where);
    std::vector<Value*> sum, offsets;
    for (const auto& [index, value] : values) {
      Value* offset = i64(0);
      for (std::size_t k = 0; k < index.size(); ++k) offset = b_.CreateAdd(offset, b_.CreateMul(i64(index[k]), f.stride[carried.axes[k]]));
      offsets.push_back(offset);
      sum.push_back(value);
    }
    if (is_pushed) {
      push(where, at, std::move(sum), offsets);
      continue;
    }
    for (std::size_t i = 0; i < sum.size(); ++i)
      b_.CreateAlignedStore(k_.to_memory(p_.accumulators[a].dtype, sum[i]), bytes(at, offsets[i]), llvm::Align(1));
  }
  return next;
}

// Pushes sums to trees as a binary counter: an occupied level is added and carried to the next level. `index`: number of the block, null
// for a single block.
void Speller::push(const Reducer& reducer, Value* index, Value* at, Value* level, std::vector<Value*> sums,
                   const std::vector<Value*>& offsets) {
  if (index) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *head = block(), *inside = block(), *after = block();
    Value* const begin = at;
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* n = b_.CreatePHI(b_.getInt64Ty(), 2);
    n->addIncoming(i64(0), before);
    std::vector<llvm::PHINode*> carried;
    for (Value*& sum : sums) {
      carried.push_back(b_.CreatePHI(sum->getType(), 2));
      carried.back()->addIncoming(sum, before);
      sum = carried.back();
    }
    at = bytes(begin, b_.CreateMul(n, level));
    b_.CreateCondBr(b_.CreateTrunc(b_.CreateLShr(index, n), b_.getInt1Ty()), inside, after);
    b_.SetInsertPoint(inside);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      Value* below = reducer.load(sums[i]->getType(), bytes(at, offsets[i]));
      carried[i]->addIncoming(reducer.combine(below, sums[i]), b_.GetInsertBlock());
    }
    n->addIncoming(b_.CreateAdd(n, i64(1)), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) reducer.store(sums[i], bytes(at, offsets[i]));
}

// Returns the sum of all blocks of a tree: the level of each bit of `blocks` is added on the left, the lowest level first.
llvm::Value* Speller::top(const Reducer& reducer, Value* blocks, Value* at, Value* level, llvm::Type* type) {
  Value* lowest = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, blocks, b_.getTrue());
  Value* rest = b_.CreateAnd(blocks, b_.CreateSub(blocks, i64(1)));  // without the lowest bit
  Value* first = reducer.load(type, bytes(at, b_.CreateMul(lowest, level)));
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock *head = block(), *inside = block(), *after = block();
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* left = b_.CreatePHI(b_.getInt64Ty(), 2);
  llvm::PHINode* sum = b_.CreatePHI(type, 2);
  left->addIncoming(rest, before);
  sum->addIncoming(first, before);
  b_.CreateCondBr(b_.CreateICmpNE(left, i64(0)), inside, after);
  b_.SetInsertPoint(inside);
  Value* n = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, b_.getTrue());
  Value* next = reducer.combine(reducer.load(type, bytes(at, b_.CreateMul(n, level))), sum);
  left->addIncoming(b_.CreateAnd(left, b_.CreateSub(left, i64(1))), b_.GetInsertBlock());
  sum->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
  return sum;
}

// Pushes a block to the levels of its tree; chunk sums go to their own elements.
void Speller::push(Id tree, Value* at, std::vector<Value*> sums, const std::vector<Value*>& offsets) {
  const Accumulator& a = p_.accumulators[tree];
  Value *index = open_index(a.reduced[0]), *const level = form(Of::Sums, tree).level;
  if (loops::joins_chunks(p_, a)) at = bytes(at, b_.CreateMul(index, level)), index = nullptr;
  else if (p_.digits[a.reduced[0]].once) index = nullptr;
  push(reducer(tree), index, at, level, std::move(sums), offsets);
}

llvm::Value* Speller::sum_of_chunks(Id tree, Value* at, unsigned lanes) {
  const Accumulator& a = p_.accumulators[tree];
  const Reducer reducer = this->reducer(tree);
  Value *const chunks = iterations(a.reduced[0]), *const level = form(Of::Sums, tree).level;
  llvm::Type *type = k_.type(a.dtype, lanes), *kept = k_.memory_type(a.dtype, lanes);
  Value* const size = i64(static_cast<std::int64_t>(size_of(a.dtype)) * std::max(lanes, 1u));
  Value* const levels = in(scopes_[0], [&] { return b_.CreateAlloca(kept, i64(kTreeLevels)); });
  loop(i64(0), chunks, i64(1),
       [&](Value* chunk) { push(reducer, chunk, levels, size, {reducer.load(type, bytes(at, b_.CreateMul(chunk, level)))}, {i64(0)}); });
  return top(reducer, chunks, levels, size, type);
}

llvm::Value* Speller::level(Value* at, Id accumulator, Value* l) { return bytes(at, b_.CreateMul(l, form(Of::Sums, accumulator).level)); }

void Speller::accumulate(Id line) {
  const Line& l = p_.lines[line];
  const Accumulator& a = p_.accumulators[l.at];
  const Reducer reducer = this->reducer(l.at);
  const Scope* vector = vector_scope();
  const Registers& registers = registers_[l.at];
  const bool is_elements = vector && is_part_of_sum(vector->digit, l.at);
  const unsigned own = lanes_of_sums_[l.at], lanes = own                                                                     ? own
                                                     : vector && (is_elements || form(Of::Sums, l.at).stride[vector->digit]) ? vector->lanes
                                                                                                                             : 0;
  Value* x = splat(value(l.a), lanes);
  if (a.part == Accumulator::Part::Tree) {
    if (p_.digits[a.reduced[0]].once && (own || !lanes)) {  // the only block
      at_hand_[l.at].axes = at_hand_[l.at].unrolled = a.axes;
      if (can_read_at_hand(l.at, line + 1)) {
        at_hand_[l.at].values[index_of(a.axes)] = x;
        return;
      }
    }
    return push(l.at, here(Of::Sums, l.at), {x}, {i64(0)});
  }
  Value* const mask = is_elements ? vector->mask : nullptr;  // elements beyond the end are not added
  if (registers.values.empty()) {
    if (!vector || a.order != Accumulator::Order::Lanes) throw InternalError("speller: a sum is not in a register");
    Value* p = here(Of::Sums, l.at);
    if (own) {
      Value* const none = reducer.identity(lanes);
      Value* const before = adds_once(l.at) ? none : reducer.load(none->getType(), p);
      return reducer.store(a.is_product ? reducer.product_added(before, x, splat(value(l.b), lanes)) : reducer.combine(before, x), p);
    }
    Value* before = b_.CreateAlignedLoad(x->getType(), p, llvm::Align(1));
    Value* sum = a.is_product ? reducer.product_added(before, x, splat(value(l.b), lanes)) : reducer.combine(before, x);
    b_.CreateAlignedStore(mask ? b_.CreateSelect(mask, sum, before) : sum, p, llvm::Align(1));
    return;
  }
  std::vector<Id> unrolled = registers.axes;
  unrolled.insert(unrolled.end(), registers.parts.begin(), registers.parts.end());
  const std::vector<llvm::AllocaInst*>& variables = registers.values.at(index_of(unrolled));
  Reducer::Carried before;
  for (llvm::AllocaInst* v : variables) before.push_back(b_.CreateLoad(v->getAllocatedType(), v));
  if (a.is_product) {
    if (a.part == Accumulator::Part::All && a.order == Accumulator::Order::Sequence && !one_block_)
      throw InternalError("speller: the blocks of a contraction are not written out");
    Value* sum = reducer.product_added(before[0], x, splat(value(l.b), lanes));
    b_.CreateStore(mask ? b_.CreateSelect(mask, sum, before[0]) : sum, variables[0]);
    return;
  }
  if (a.finds) {
    const Reducer::Carried now = {x, index_in_lanes(p_.lines[l.b].at, lanes, before[1]->getType())};
    Value* is_better = both(is_further(l.at, x, before[0]), mask);
    for (std::size_t k = 0; k < now.size(); ++k) b_.CreateStore(b_.CreateSelect(is_better, now[k], before[k]), variables[k]);
    return;
  }
  if (mask) x = b_.CreateSelect(mask, x, reducer.identity(lanes));
  if (a.part == Accumulator::Part::Eight) return add_to_eight(l.at, x);
  const Reducer::Carried sum = reducer.with(before, x);
  for (std::size_t k = 0; k < sum.size(); ++k) b_.CreateStore(sum[k], variables[k]);
}

// Starts a search at the first index. Where all elements are the identity, this is the result.
Reducer::Carried Speller::start_search(Id line) {
  const Id accumulator = p_.lines[line].at;
  const Accumulator& a = p_.accumulators[accumulator];
  const unsigned lanes = registers_[accumulator].lanes;
  llvm::Type* const type = b_.getIntNTy(std::max(32u, 8 * static_cast<unsigned>(size_of(*a.finds))));
  Value* const first = b_.CreateTrunc(linear_value(p_.lines[p_.lines[line].b].at, scopes_.size() - 1, true), type);
  return {Reducer(k_, a.op, *a.finds, target_.vector_bytes).identity(lanes), splat(first, lanes)};
}

// Returns the indices of the elements that the lanes add, in a narrower type.
llvm::Value* Speller::index_in_lanes(Id linear, unsigned lanes, llvm::Type* type) {
  const Scope* vector = vector_scope();
  Value* const first = splat(b_.CreateTrunc(linear_value(linear, scopes_.size() - 1, true), type->getScalarType()), lanes);
  const bool varies = vector && nest_.linears[linear].of[p_.digits[vector->digit].root] != Coefficient::Zero;
  if (!varies) return first;
  return b_.CreateAdd(first, b_.CreateTrunc(iota(lanes), first->getType()));
}

// True where element `x` comes before `best` in a search, although its index is greater: it is further, or the first NaN.
llvm::Value* Speller::is_further(Id accumulator, Value* x, Value* best) {
  const Accumulator& a = p_.accumulators[accumulator];
  const bool largest = a.op == ir::Op::Maximum;
  if (!is_float(*a.finds)) {
    const bool is_signed = is_signed_integer(*a.finds);
    return b_.CreateICmp(largest     ? is_signed ? llvm::CmpInst::ICMP_SGT : llvm::CmpInst::ICMP_UGT
                         : is_signed ? llvm::CmpInst::ICMP_SLT
                                     : llvm::CmpInst::ICMP_ULT,
                         x, best);
  }
  return b_.CreateAnd(largest ? b_.CreateFCmpUGT(x, best) : b_.CreateFCmpULT(x, best), b_.CreateFCmpORD(best, best));
}

// Returns the index that the searches of several vectors found: the least index of a best element that is the best of all, or a NaN. Returns
// a single index if their lanes are elements.
llvm::Value* Speller::found(Id accumulator, const std::vector<Reducer::Carried>& all) {
  const Accumulator& a = p_.accumulators[accumulator];
  const bool by_lane = lanes_of_sums_[accumulator] > 0, real = is_float(*a.finds);
  Value* index = all[0][1];
  if (all.size() > 1 || (!by_lane && width_of(index))) {
    const Reducer elements(k_, a.op, *a.finds, target_.vector_bytes, by_lane);
    std::vector<Reducer::Carried> values;
    for (const Reducer::Carried& one : all) values.push_back(elements.carried(one[0]));
    Value* const best = by_lane ? elements.total_by_lane(values) : splat(elements.total(values), width_of(index));
    Value* const none = llvm::ConstantInt::get(index->getType(), llvm::APInt::getSignedMaxValue(index->getType()->getScalarSizeInBits()));
    std::vector<Value*> found;
    for (const Reducer::Carried& one : all) {
      Value* is_best = real ? b_.CreateFCmpOEQ(one[0], best) : b_.CreateICmpEQ(one[0], best);
      if (real) is_best = b_.CreateOr(is_best, b_.CreateFCmpUNO(one[0], one[0]));
      found.push_back(b_.CreateSelect(is_best, one[1], none));
    }
    for (; found.size() > 1; found.pop_back())
      found[found.size() - 2] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, found[found.size() - 2], found.back());
    index = by_lane || !width_of(index) ? found[0] : b_.CreateIntMinReduce(found[0], true);
  }
  return b_.CreateSExt(index, k_.type(DType::I64, width_of(index)));
}

// Sums of complete trees start as identities, which change no sum that is added to them.
void Speller::start_eight(Id accumulator, bool in_array) {
  Registers& registers = registers_[accumulator];
  if (!registers.axes.empty()) throw InternalError("speller: a tree of eight has unrolled axes");
  const DType dtype = p_.accumulators[accumulator].dtype;
  registers.in_array = in_array;
  std::vector<llvm::AllocaInst*>& variables = registers.values[{}];
  if (in_array) {
    variables.push_back(variable(llvm::ArrayType::get(k_.memory_type(dtype, registers.lanes), ir::kRowGroup)));
    return;
  }
  Value* const none = reducer(accumulator).identity(registers.lanes);
  for (std::int64_t elements = 1; elements <= ir::kRowGroup; elements *= 2) {
    variables.push_back(variable(none->getType()));
    b_.CreateStore(none, variables.back());
  }
}

void Speller::add_to_eight(Id accumulator, Value* x) {
  const Reducer reducer = this->reducer(accumulator);
  const Registers& registers = registers_[accumulator];
  const std::vector<llvm::AllocaInst*>& variables = registers.values.at({});
  Value* const index = open_index(p_.accumulators[accumulator].reduced[0]);
  if (registers.in_array) return reducer.store(x, element_of_eight(accumulator, registers, index));
  std::size_t level = 0;
  for (; *number(index) >> level & 1; ++level) {
    x = reducer.combine(b_.CreateLoad(x->getType(), variables[level]), x);
    b_.CreateStore(reducer.identity(registers.lanes), variables[level]);
  }
  b_.CreateStore(x, variables[level]);
}

llvm::Value* Speller::element_of_eight(Id accumulator, const Registers& registers, Value* k) {
  const auto size = static_cast<std::int64_t>(size_of(p_.accumulators[accumulator].dtype)) * std::max(registers.lanes, 1u);
  return bytes(registers.values.at({})[0], b_.CreateMul(k, i64(size)));
}

llvm::Value* Speller::total_of_eight(Id accumulator, const Registers& registers) {
  const Reducer reducer = this->reducer(accumulator);
  const std::vector<llvm::AllocaInst*>& variables = registers.values.at({});
  Value* const none = reducer.identity(registers.lanes);
  if (!registers.in_array) {  // smaller trees have the later elements
    Value* sum = none;
    for (llvm::AllocaInst* v : variables) sum = reducer.combine(b_.CreateLoad(none->getType(), v), sum);
    return sum;
  }
  const auto at = [&](Value* k) { return element_of_eight(accumulator, registers, k); };
  loop(count(p_.accumulators[accumulator].reduced[0]), i64(ir::kRowGroup), i64(1), [&](Value* k) { reducer.store(none, at(k)); });
  std::vector<Value*> v;
  for (std::int64_t k = 0; k < ir::kRowGroup; ++k) v.push_back(reducer.load(none->getType(), at(i64(k))));
  for (; v.size() > 1; v.resize(v.size() / 2))
    for (std::size_t k = 0; 2 * k < v.size(); ++k) v[k] = reducer.combine(v[2 * k], v[2 * k + 1]);
  return v[0];
}

// True if every lane of the sum gets at most one element.
bool Speller::adds_once(Id accumulator) const {
  const Accumulator& a = p_.accumulators[accumulator];
  return lanes_of_sums_[accumulator] && std::ranges::all_of(a.reduced, [&](Id digit) { return p_.digits[digit].once; });
}

// Halves the elements of a sum that are vectors of separate sums. Elements that nothing was added to are left out: they are identities.
llvm::Value* Speller::halve_by_lane(Id accumulator) {
  const Accumulator& a = p_.accumulators[accumulator];
  const Reducer reducer = this->reducer(accumulator);
  const Id root = p_.digits[a.reduced[0]].root;
  Value *const n = word(words_.extents + root), *const begin = here(Of::Sums, accumulator);
  llvm::Type* const type = k_.type(a.dtype, lanes_of_sums_[accumulator]);
  const std::int64_t size = form(Of::Sums, accumulator).size * lanes_of_sums_[accumulator];
  const std::int64_t all = a.dtype == DType::F64 ? 32 : 64;
  const auto halved = [&](std::int64_t count) {
    std::vector<Value*> v;
    for (std::int64_t i = 0; i < count; ++i) v.push_back(reducer.load(type, bytes(begin, i64(i * size))));
    for (std::int64_t half = all / 2; half > 0; half /= 2)
      while (static_cast<std::int64_t>(v.size()) > half) {
        const std::size_t last = v.size() - 1, to = last - static_cast<std::size_t>(half);
        v[to] = reducer.combine(v[to], v[last]);
        v.pop_back();
      }
    return v[0];
  };
  if (const std::optional<std::int64_t> known = number(n)) return halved(*known);
  // Up to 16 elements, or up to 32: missing elements are filled in.
  constexpr std::int64_t kFew = 16, kMany = 32;
  loop(i64(kMany), n, i64(1), [&](Value* i) {
    Value* const from = bytes(begin, b_.CreateMul(i, i64(size)));
    Value* const to = bytes(from, i64(-kMany * size));
    reducer.store(reducer.combine(reducer.load(type, to), reducer.load(type, from)), to);
  });
  llvm::PHINode* sum = nullptr;
  BasicBlock *few = block(), *many = block(), *after = block();
  b_.CreateCondBr(b_.CreateICmpSLE(n, i64(kFew)), few, many);
  for (const auto& [count, branch] : {std::pair{kFew, few}, std::pair{kMany, many}}) {
    b_.SetInsertPoint(branch);
    loop(n, i64(count), i64(1),
         [&](Value* i) { reducer.store(reducer.identity(lanes_of_sums_[accumulator]), bytes(begin, b_.CreateMul(i, i64(size)))); });
    Value* const v = halved(count);
    BasicBlock* const end = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    if (!sum) sum = b_.CreatePHI(v->getType(), 2);
    sum->addIncoming(v, end);
  }
  return sum;
}

// Concatenates the vectors of the lanes, outer parts first, and halves them.
llvm::Value* Speller::halve(const Line& l) {
  const Accumulator& a = p_.accumulators[l.at];
  std::vector<Value*> vectors;
  if (const AtHand& known = at_hand_[l.at]; !known.values.empty()) {
    for (const auto& [index, v] : known.values) {
      bool is_here = true;
      for (const Scope& s : scopes_)
        for (std::size_t k = 0; k < index.size(); ++k) is_here &= s.digit != known.unrolled[k] || number(s.index) == index[k];
      if (is_here) vectors.push_back(v);
    }
    return reducer(l.at).total(vectors);
  }
  if (lanes_of_sums_[l.at]) return halve_by_lane(l.at);
  const Form& f = form(Of::Sums, l.at);
  std::int64_t lanes = 1;
  for (const Id axis : a.axes)
    if (is_part_of_sum(axis, l.at)) lanes *= *iterations_known(axis);
  const unsigned width = static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(f.size);
  for (std::int64_t k = 0; k < lanes; k += width)
    vectors.push_back(b_.CreateAlignedLoad(k_.type(a.dtype, width), bytes(here(Of::Sums, l.at), i64(k * f.size)), llvm::Align(1)));
  return reducer(l.at).total(vectors);
}

llvm::Value* Speller::result(const Line& l) {
  const Accumulator& a = p_.accumulators[l.at];
  const Scope* vector = vector_scope();
  const unsigned own = lanes_of_sums_[l.at], lanes = own ? own : vector && form(Of::Sums, l.at).stride[vector->digit] ? vector->lanes : 0;
  if (const AtHand& known = at_hand_[l.at]; !known.values.empty()) return known.values.at(index_of(known.unrolled));
  Value* at = here(Of::Sums, l.at);
  llvm::Type* type = k_.type(a.dtype, lanes);
  if (a.part != Accumulator::Part::Tree || p_.digits[a.reduced[0]].once) return reducer(l.at).load(type, at);
  if (loops::joins_chunks(p_, a)) return sum_of_chunks(l.at, at, lanes);
  const Id summed = p_.digits[a.reduced[0]].parent;
  Value* const blocks =
      p_.digits[summed].kind == Digit::Kind::Whole ? in(scopes_[0], [&] { return iterations(a.reduced[0]); }) : count(a.reduced[0]);
  return top(reducer(l.at), blocks, at, form(Of::Sums, l.at).level, type);
}

}  // namespace onepass::compiler
