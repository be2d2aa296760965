// Emitter: one kernel's code. emit.h says what for; emit.cpp holds the frame and each emit_*.cpp one part, as said in its first line.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "compiler/codegen.h"
#include "compiler/llvm/frame.h"
#include "compiler/loops/program.h"
#include "compiler/plan/scratch.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler {

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
  std::unordered_map<std::uint32_t, Value*> arrays;    // the same of accesses to lists, whose own pointers are those of their tables
  std::unordered_map<std::uint32_t, Value*> derived;   // derived variables
};

// Rows that the vector body reads at once, which lie as far apart as the one serial loop says: their addresses are made in the body, from
// that of the first row, by a few multiples of the distance. Kept for each row, they would be more pointers than there are registers.
struct RowsAtOnce {
  std::vector<Region*> first;  // the serial region of the first row, of each that runs abreast
  Value* index = nullptr;      // of the first row
  std::int64_t row = 0;        // which of them is being emitted
  // By which runs abreast and access: its address in the first row, at the body's index.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Value*> begins;
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
  Body* beside = nullptr;  // that of the first of several iterations of the outer loop that run abreast: it has what they share
  RowsAtOnce* rows = nullptr;
};

class Emitter : private Frame {
 public:
  Emitter(const CodegenRequest& request, llvm::Module& module)
      : Frame(request, *request.nest, module),
        schedule_(*request.schedule),
        layout_(nest_, schedule_),
        quick_(request.tier == Tier::Quick),
        width_(static_cast<unsigned>(schedule_.width)),
        needed_(needed_by_sweep(nest_, schedule_.row_scratch ? schedule_.kept : std::vector<std::uint32_t>{})) {}
  void run();

 private:
  const Schedule& schedule_;
  ScratchLayout layout_;
  bool quick_;
  unsigned width_;
  std::vector<std::vector<bool>> needed_;
  Region entry_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Region*> stages_;  // of the item: what is known after each sweep
  Region* serial_ = nullptr;     // of the current iteration of the serial loops
  std::vector<Value*> index_;    // of each loop, where known; of the vector loop: the tile's start
  Value* unit_ = nullptr;        // elements of a scratch row
  // of a split schedule:
  std::uint8_t phase_ = 0;
  Value* chunk_ = nullptr;                               // of the item: which of its row
  Value* row_ = nullptr;                                 // of the item: its row (or tile) among all
  Value *chunk_begin_ = nullptr, *chunk_end_ = nullptr;  // elements of r
  Value* item_ = nullptr;                                // its number
  struct ScanState {                                     // vectors of one number
    Value *carry, *base;
  };
  std::map<std::uint32_t, ScanState> scans_;  // of the item, along the vector loop

  // ---- emit.cpp: the frame: items, sweeps, phases
  void phases();
  void items(Value* first, Value* last);
  Value* tile_length();
  void item(Value* outer_tile);
  void map();  // an elementwise nest that runs no LoopProgram (compiler/loops/policy.h): scans, short rows, rerolled bodies
  void sweep(std::uint8_t s) { nest_.kind == NestKind::Lanes ? lanes_sweep(s) : rows_sweep(s); }
  void enter_stage(std::uint8_t stage, bool stores);
  void sweeps();
  // One phase of a chunk: what earlier phases reduced is combined from what the chunks of the row have left.
  void phase();
  std::unordered_map<std::uint32_t, Value*> reduced_;  // lanes: what the last sweep reduced

  // ---- emit_abreast.cpp: several iterations of the last outer loop at once
  struct Abreast {  // what one of them has, while another is being emitted
    Value* index;
    std::vector<Region*> stages;
    Region* serial;
    std::unordered_map<std::uint32_t, Value*> reduced;
  };
  std::vector<Abreast> abreast_;  // none: they run one by one
  std::uint32_t current_ = 0;     // of these
  bool tiles_outer() const { return schedule_.abreast > 1; }
  bool tiles_rows() const { return schedule_.abreast > 1 && nest_.kind == NestKind::Lanes && nest_.outer >= 2; }
  // f for each iteration of the loop before the last outer one that the item has.
  void for_each_row(const std::function<void()>& f);
  void abreast(Value* outer_tile);
  void for_each_abreast(const std::function<void()>& f);
  // f with the vector body of each: `first`, and others at its place.
  void for_each_body(Body& first, const std::function<void(Body&)>& f);
  bool shared_abreast(std::uint32_t id) const { return !(nest_.body[id].loops & bit(nest_.outer - 1u)); }

  // ---- emit_values.cpp: words, control flow, regions, values
  std::uint64_t bit(std::uint32_t loop) const { return std::uint64_t{1} << loop; }
  std::uint64_t vector_bit() const { return bit(nest_.vector_loop()); }
  // loops inside an item that are not the vector loop
  std::uint64_t serial_bits() const;
  std::uint64_t outer_bits() const { return (bit(nest_.outer) - 1) & ~serial_bits(); }
  llvm::Type* memory_type(DType t, unsigned width) { return k_.memory_type(t, width); }
  Value* from_memory(DType t, Value* v) { return k_.from_memory(t, v); }
  Value* to_memory(DType t, Value* v) { return k_.to_memory(t, v); }
  // Inserts into a region, whatever is being emitted now.
  template <class F> auto in(Region& region, F&& f) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(region.hoist->getTerminator());
    return f();
  }
  Region* region(Region* parent);
  Value* base_pointer(std::uint32_t access);
  Value* extent(std::uint32_t loop) { return word(words_.extents + loop); }
  Value* variable(llvm::Type* type, Value* initial);  // mem2reg makes it a register
  Value* read(Value* v) { return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(v)->getAllocatedType(), v); }
  bool spreads() const { return quick_ && layout_.spread.any; }
  Region& place(std::uint64_t loops, std::uint8_t stage);
  std::uint64_t loops_of_derived(std::uint32_t q) const;
  bool holds_data(std::uint32_t linear) const;
  // Scalar places that a linear needs are made now: their code may have blocks of its own.
  void make_places(std::uint32_t linear);
  std::uint64_t loops_of_linear(std::uint32_t linear) const;
  Value* times(std::uint32_t linear, std::uint32_t variable, Value* v);
  // The sum of the terms that depend on loops in `known` only. Each term is in one region's part: `added` are the loops of the part that the
  // caller adds this one to, and terms that depend on no other loop are in that. Null where no term is left. The offset is in no part.
  Value* scalar_part(std::uint32_t linear, std::uint64_t known, std::optional<std::uint64_t> added = std::nullopt);
  // A whole linear of loops known in that region, as a number.
  Value* linear_at(std::uint32_t linear);
  Value* derived(std::uint32_t q, std::uint64_t loops);
  Value* vector_linear(Body& body, std::uint32_t linear);
  Value* vector_derived(Body& body, std::uint32_t q);
  DType type_of_access(std::uint32_t access) const { return nest_.buffers[nest_.accesses[access].buffer].dtype; }
  std::int64_t size_of_access(std::uint32_t access) const { return static_cast<std::int64_t>(size_of(type_of_access(access))); }
  // Does it grow by its coefficient from one iteration of the only serial loop to the next?
  bool linear_along_serial(std::uint32_t linear) const;
  // Where an access points with the loops of `mask` known: entry, item (and the tile's start), serial.
  Value* pointer(std::uint32_t access, std::uint64_t loops);
  bool has_control_flow(const Statement& s) const { return s.kind == Statement::Kind::Op && KernelBuilder::branches(s.op, s.dtype); }
  // A statement that does not vary along the vector loop.
  Value* scalar(std::uint32_t id);
  Value* known_scalar(std::uint32_t id);  // where it has been made; else null
  Value* make_scalar(std::uint32_t id);   // of operands that have been made
  Value* pointer_with_derived(const Statement& s) { return pointer(s.at, s.loops); }

  // ---- emit_lists.cpp: accesses to lists
  bool is_list(std::uint32_t access) const { return nest_.accesses[access].table != kNone; }
  std::uint64_t loops_of_table(std::uint32_t access) const;
  Value* table(std::uint32_t access);
  // Places in the table, below its end: an access under a guard may ask for others.
  Value* within_table(std::uint32_t access, Value* member);
  // The address of the array that the loops in `known` choose.
  Value* array_of_list(std::uint32_t access, std::uint64_t known);
  Value* pointer_in_list(std::uint32_t access, std::uint64_t loops);
  // Where each lane has an array of its own.
  Value* addresses_in_list(Body& body, std::uint32_t access);

  // ---- emit_vector.cpp: the vector loop and its body
  bool is_vector(std::uint32_t id) const { return nest_.body[id].loops & vector_bit(); }
  Value* vector(Body& body, std::uint32_t id);
  // Is its value computed here from those of its operands, rather than found in memory, spread, or taken from another body?
  bool is_made_of_operands(const Body& body, std::uint32_t id) const;
  Value* make_vector(Body& body, std::uint32_t id);  // of operands that have been made
  bool computing_row_ = false;                       // rows: values of a row are being made, not read back
  std::uint64_t closed_ = 0;                         // rows: loops that are not open where something is made behind them
  std::uint32_t kept_slot(std::uint32_t id) const;
  std::uint8_t first_sweep(std::uint32_t id) const;
  Value* scratch_base(std::uint32_t slot);
  Value* scratch_row(std::uint32_t slot, Value* j, DType t);
  Value* compute(Body& body, std::uint32_t id, const Statement& s);
  bool contiguous(std::uint32_t access) const;
  // Does a derived variable of the access, or the array that it chooses of a list, vary along the vector loop?
  bool varies_derived(std::uint32_t access) const;
  // Of a contiguous access, where the body's lanes begin.
  Value* vector_pointer(Body& body, std::uint32_t access);
  // The same of one whose rows are read several at once.
  Value* pointer_in_rows(Body& body, std::uint32_t access);
  // Where a whole vector begins that ends where the lanes begin.
  Value* reversed_pointer(Body& body, std::uint32_t access);
  using Frame::reversed;
  Value* reversed(Body& body, std::uint32_t access, llvm::Type* type);
  // Lanes `place`, place + c, place + 2c, … of the c vectors that the family reads.
  Value* sorted_out(Body& body, std::uint32_t access, llvm::Type* type);
  // The lanes' addresses of an access that is not contiguous.
  Value* addresses(Body& body, std::uint32_t access);
  // Asks for the line at p, of what the hardware does not see coming: the next row.
  void prefetch(Value* p);
  Value* load(Body& body, const Statement& s);
  void store(Body& body, const Statement& s);
  // To what stands where data say: no two lanes have one place, since the vector loop is not the one that is indexed.
  void add_to(Body& body, const Statement& s);
  // for j in begin .. n: a main loop of whole vectors, then one masked vector
  void vector_range(Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f);
  void vector_range(Value* begin, Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f);
  bool stores_in(const Statement& s, std::uint8_t sweep) const;
  void ask_for_next_row(Body& body);
  void stores(Body& body, std::uint8_t sweep);
  bool any_stores(std::uint8_t sweep) const;

  // ---- emit_short_rows.cpp: short rows
  Value* place_ = nullptr;  // of the vector's first element, in its row
  Value* vector_row_ = nullptr;
  bool making_patterns_ = false;
  Value* pattern_area(std::uint32_t at) { return bytes(argument(3), static_cast<std::int64_t>(layout_.spread.bytes) + at); }
  Value* pattern(std::uint32_t id, Value* place);
  // Of the lanes of a vector that begins at `place`: their places, or their rows.
  Value* row_indices(bool modulo, Value* place, unsigned lanes);
  Value* row_indices(bool modulo, Value* place) { return row_indices(modulo, place, width_); }
  void make_patterns();
  // f with the place and the row of the body's first element, which are carried from vector to vector.
  std::function<void(Body&)> in_short_rows(const std::function<void(Body&)>& f);
  Value* one_of_each_row(std::uint32_t access);

  // ---- emit_rolled.cpp: iterations that the body has written out
  Value* iteration_ = nullptr;  // of the loop that runs them, while it is being emitted
  Value* slot_of_iteration(const Statement& s);
  void rolled(Body& body);

  // ---- emit_scan.cpp: scans
  // Running maxima and minima of floats are carried as integers of the same order.
  Value* scan_key(std::uint32_t id, Value* v);
  Value* scan_value(std::uint32_t id, Value* key);
  Value* scan_combine(std::uint32_t id, Value* a, Value* c);
  void set_scan(std::uint32_t id, Value* base);
  std::vector<std::uint32_t> scan_statements() const;
  // A map in vectors of a group, blocks of the order of summation one by one.
  void scan_along(Value* n);
  void scan_blocks(Value* n, const std::function<void(Body&)>& each,
                   const std::function<void(Value*, std::uint32_t, const ScanState&)>& end);
  // An item of a split schedule (schedule.h): sums of blocks, the base, then the results.
  void scan_chunk(Value* n);
  // Lanes that are not there stand behind those that are.
  Value* scan_group(Body& body, std::uint32_t id);
  // Along a serial loop: carries and, of several blocks, bases are rows of scratch.
  Value* scan_row(Body& body, std::uint32_t id);
  // Begins the rows of the scans, or the next block of them.
  void begin_scan_rows(bool first);

  // ---- emit_reduce.cpp: what reductions combine
  std::vector<std::uint32_t> reductions(std::uint8_t sweep) const;
  Reducer reducer(std::uint32_t id);
  Value* combine(std::uint32_t id, Value* a, Value* c) { return reducer(id).combine(a, c); }
  Value* identity(std::uint32_t id, unsigned width) { return reducer(id).identity(width); }
  // What the body adds to an accumulator; of lanes that its mask leaves out, what changes none.
  Value* added(std::uint32_t id, Body& body);
  // The accumulator with what the body adds, which is a product by fma in contractions.
  Value* accumulated(std::uint32_t id, Value* accumulator, Body& body);
  std::int64_t lanes_of(std::uint32_t id) const { return size_of(nest_.body[id].dtype) == 8 ? 32 : 64; }
  // Lanes of a reduction in registers.
  struct Lanes {
    std::uint32_t id;
    std::vector<std::vector<Value*>> vectors;  // variables of what is carried
  };
  Lanes new_lanes(std::uint32_t id);
  void put(const std::vector<Value*>& variables, const Reducer::Carried& values);
  Reducer::Carried get(const std::vector<Value*>& variables);
  void reset(const Lanes& lanes);
  void take(const Lanes& lanes, std::size_t part, Body& body);
  Value* total(const Lanes& lanes);
  // The tree of blocks, as a binary counter: level l holds the sum of 2^l blocks.
  struct Tree {
    unsigned width;  // of the values: 0, numbers
    Value* count;
    std::vector<Value*> stacks;  // of each reduction
  };
  Tree start_tree(const std::vector<std::uint32_t>& reductions, unsigned width = 0);
  Value* level(const Tree& tree, std::size_t reduction, Value* l, DType t);
  Value* carry(Value* count, const std::function<void(Value* level)>& merge);
  void push(Tree& tree, const std::vector<std::uint32_t>& reductions, const std::vector<Value*>& values);
  std::vector<Value*> top(Tree& tree, const std::vector<std::uint32_t>& reductions);

  // ---- emit_lanes.cpp: reductions along the vector loop
  bool heavy(std::uint8_t sweep) const { return schedule_.masked || cost_of(sweep) > 16; }
  int cost_of(std::uint8_t sweep) const;
  // Are the lanes in registers? Each vector of them then has its own code.
  bool in_registers(std::uint8_t sweep) const { return !schedule_.masked && cost_of(sweep) <= (64 / width_ <= 2 ? 48 : 16); }
  // What is computed and stored once a row. Of a split schedule, what is stored is so by the row's first chunk.
  void row_level(std::uint8_t stage, bool stores);
  bool stores_of_rows(std::uint8_t stage) const;
  void lanes_level(std::uint8_t stage);
  // Lanes in the kernel's own memory.
  Value* lanes_in_memory(std::uint32_t id);
  Value* lane_place(std::uint32_t id, Value* memory, Value* lane);
  Value* load_lanes(std::uint32_t id, Value* memory, Value* lane);
  void store_lanes(std::uint32_t id, Value* memory, Value* lane, Value* v);
  void reset_lanes(std::uint32_t id, Value* memory);
  Value* sum_of_lanes(std::uint32_t id, Value* memory);
  // The lanes of a sweep's reductions: in registers, or in memory where one code serves all vectors.
  struct Accumulators {
    std::vector<std::uint32_t> reductions;
    std::vector<Lanes> lanes;
    std::vector<Value*> memory;
  };
  std::vector<Accumulators> accumulators(const std::vector<std::uint32_t>& reductions, bool in_registers);  // of each that runs abreast
  void reset(const Accumulators& all);
  // A vector, in registers into `part` of the lanes; in memory its first element's place `at` says which.
  void take(const Accumulators& all, unsigned part, Value* at, Body& body);
  std::vector<Value*> totals(const Accumulators& all);
  void lanes_sweep(std::uint8_t sweep);
  void enter_serial() {
    for_each_abreast([&] { serial_ = region(stages_.back()); });
  }
  void serial_loops(const std::function<void(Value* run, Value* row)>& f);
  std::vector<Value*> serial_digits(Value* r, bool last);

  // ---- emit_rows.cpp: reductions across rows
  bool sums_up(std::uint32_t r) const { return ScratchLayout::sums(nest_.body[r]); }
  Value* tree_of_eight(std::uint32_t r, const std::vector<Value*>& v);
  // Element j of the k-th row of a slot that has several.
  Value* row_of(std::uint32_t slot, Value* k, Value* j, DType t);
  Value* load_row(std::uint32_t slot, Value* j, DType t);
  void store_row(std::uint32_t slot, Value* j, DType t, Value* v);
  // whole vectors over the tile: rows of scratch are padded
  void over_row(const std::function<void(Value*)>& f) {
    loop(i64(0), tile_length(), i64(width_), [&](Value* j) { for_each_abreast([&] { f(j); }); });
  }
  // Contractions: the accumulators of one vector of the row stay in registers while the serial loops run.
  void contract_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds);
  void rows_sweep(std::uint8_t sweep);
  void eight_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds, Value* r0, Value* n);
  // What a row computes from its reductions: values that later sweeps read, and results of the row itself.
  void rows_level(std::uint8_t stage, bool values, bool stores);
  // Made here, not read back; its operands of earlier stages stand in scratch.
  Value* row_value(Body& body, std::uint32_t id);

  // ---- emit_scatter.cpp: what is added where data say
  // In sequence along the loops that are indexed; of a schedule by places, those that an item's range has.
  void scatter_sweep(std::uint8_t sweep, const Statement& addition);
  // One that no other axis has beside it: a number, to a number.
  void add_number(const Statement& s);
  // Indices that lie side by side are checked as vectors.
  unsigned indices_at_once(const Statement& place) const;
  // Of so many updates from r on, or of those `left`: bit k says whether the place of r + k is in the range that begins at `first`.
  Value* in_range(const Statement& place, Value* first, Value* r, Value* left);

  // ---- emit_columns.cpp: columns
  bool has_columns_ = nest_.has_columns();
  Value* column_row_ = nullptr;                            // of the current row: which of eight
  std::unordered_map<std::uint32_t, Value*> column_rows_;  // of the current row, by column: where its sum goes
  Value* row_offset_ = nullptr;                            // of the current iteration of the serial loops: the first column
  std::vector<std::uint32_t> columns() const;
  void over_columns(const std::function<void(Value*)>& f);
  // Blocks of rows: as in rows_sweep, eight rows form a tree, the trees of a block are added in sequence.
  void rows_with_columns();
  void enter_row_of_columns(Value* row);
  // The same code for each number of levels that the row is added to, known in it: no branches in the vector loop.
  void for_each_carry(const std::function<void()>& f);
  std::optional<std::uint32_t> carried_;
  void add_row(std::uint32_t c, Value* value, Value* at, Value* mask);
  // In the last sweep over a row: its values.
  void take_columns(Body& body);
  // The tree of the blocks, and what is computed from it.
  void column_results();

  // ---- emit_chunks.cpp: rows that threads share
  Value* is_first_chunk() { return b_.CreateICmpEQ(chunk_, i64(0)); }
  // Elements of r, missing ones included.
  Value* reduced_count();
  // What each chunk leaves of each reduction: scratch.h.
  Value* partial(std::uint32_t reduction, Value* chunk, Value* j);
  void leave_partials(std::uint8_t sweep);
  void combine_chunks(std::uint8_t sweep);
};

}  // namespace onepass::compiler
