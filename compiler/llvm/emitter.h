// Emitter: emits the code of one kernel. emit.h states the task. emit.cpp has the frame; each emit_*.cpp has one part.
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
  Region* before = nullptr;                          // region of the preceding iteration, if it is in the same basic block
  BasicBlock* hoist = nullptr;                       // code goes before its terminator
  std::unordered_map<std::uint32_t, Value*> values;  // by statement
  // by access: address for the known loops, with the vector loop at the start of the tile
  std::unordered_map<std::uint32_t, Value*> pointers;
  std::unordered_map<std::uint32_t, Value*> arrays;   // the same for array lists; `pointers` has their pointer tables
  std::unordered_map<std::uint32_t, Value*> derived;  // floordiv/mod variables
};

// Rows that the vector body reads together, at a constant distance along the only serial loop. The body computes their addresses from the
// address of the first row, by small multiples of the distance. One pointer per row would exceed the registers.
struct RowsAtOnce {
  std::vector<Region*> first;  // serial region of the first row, by unroll-and-jammed iteration
  Value* index = nullptr;      // index of the first row
  std::int64_t row = 0;        // number of the row that is being emitted
  // Address of an access in the first row, at the body's index. The key is (unroll-and-jammed iteration, access).
  std::map<std::pair<std::uint32_t, std::uint32_t>, Value*> begins;
};

// One copy of the vector loop's body: at index j of the tile (or row), with or without a mask.
struct Body {
  Region* around;
  Value* j;
  Value* mask = nullptr;
  Value* remaining = nullptr;  // active lanes of the mask
  std::uint8_t sweep = 0;
  std::unordered_map<std::uint32_t, Value*> values = {};
  std::unordered_map<std::uint32_t, Value*> derived = {};
  std::unordered_map<std::uint32_t, std::vector<Value*>> families = {};  // interleaved access groups: whole vectors, by the first access
  Body* beside = nullptr;  // body of the first unroll-and-jammed iteration, which holds the shared values
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
  std::vector<Region*> stages_;  // regions of the task: values known after each sweep
  Region* serial_ = nullptr;     // region of the current iteration of the serial loops
  std::vector<Value*> index_;    // by loop, if known; for the vector loop, the start of the tile
  Value* unit_ = nullptr;        // elements of a scratch row
  // State of split schedules.
  std::uint8_t phase_ = 0;
  Value* chunk_ = nullptr;                               // chunk of the task within its row
  Value* row_ = nullptr;                                 // row (or tile) of the task among all rows
  Value *chunk_begin_ = nullptr, *chunk_end_ = nullptr;  // elements of r
  Value* item_ = nullptr;                                // number of the task
  struct ScanState {                                     // vectors with equal lanes
    Value *carry, *base;
  };
  std::map<std::uint32_t, ScanState> scans_;  // scans of the task along the vector loop

  // ---- emit.cpp: the frame: tasks, sweeps, phases
  void phases();
  void items(Value* first, Value* last);
  Value* tile_length();
  void item(Value* outer_tile);
  void map();  // an elementwise nest without a LoopProgram (compiler/loops/policy.h): scans, short rows, rerolled bodies
  void sweep(std::uint8_t s) { nest_.kind == NestKind::Lanes ? lanes_sweep(s) : rows_sweep(s); }
  void enter_stage(std::uint8_t stage, bool stores);
  void sweeps();
  // Emits one phase of a chunk: combines the partial results of earlier phases from all chunks of the row.
  void phase();
  std::unordered_map<std::uint32_t, Value*> reduced_;  // Lanes nests: results of the last sweep's reductions

  // ---- emit_abreast.cpp: unroll-and-jam of the last outer loop
  struct Abreast {  // state of one iteration while another is being emitted
    Value* index;
    std::vector<Region*> stages;
    Region* serial;
    std::unordered_map<std::uint32_t, Value*> reduced;
  };
  std::vector<Abreast> abreast_;  // empty without unroll-and-jam
  std::uint32_t current_ = 0;     // index in abreast_
  bool tiles_outer() const { return schedule_.abreast > 1; }
  bool tiles_rows() const { return schedule_.abreast > 1 && nest_.kind == NestKind::Lanes && nest_.outer >= 2; }
  // Calls f for each iteration of the second-last outer loop that the task has.
  void for_each_row(const std::function<void()>& f);
  void abreast(Value* outer_tile);
  void for_each_abreast(const std::function<void()>& f);
  // Calls f with the vector body of each unroll-and-jammed iteration: `first`, then bodies at the same index.
  void for_each_body(Body& first, const std::function<void(Body&)>& f);
  bool shared_abreast(std::uint32_t id) const { return !(nest_.body[id].loops & bit(nest_.outer - 1u)); }

  // ---- emit_values.cpp: kernel parameters, control flow, regions, values
  std::uint64_t bit(std::uint32_t loop) const { return std::uint64_t{1} << loop; }
  std::uint64_t vector_bit() const { return bit(nest_.vector_loop()); }
  // Returns the loops inside a task other than the vector loop.
  std::uint64_t serial_bits() const;
  std::uint64_t outer_bits() const { return (bit(nest_.outer) - 1) & ~serial_bits(); }
  llvm::Type* memory_type(DType t, unsigned width) { return k_.memory_type(t, width); }
  Value* from_memory(DType t, Value* v) { return k_.from_memory(t, v); }
  Value* to_memory(DType t, Value* v) { return k_.to_memory(t, v); }
  // Inserts code into a region, regardless of the current insertion point.
  template <class F> auto in(Region& region, F&& f) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(region.hoist->getTerminator());
    return f();
  }
  Region* region(Region* parent);
  Value* base_pointer(std::uint32_t access);
  Value* extent(std::uint32_t loop) { return word(words_.extents + loop); }
  Value* variable(llvm::Type* type, Value* initial);  // becomes a register through mem2reg
  Value* read(Value* v) { return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(v)->getAllocatedType(), v); }
  bool spreads() const { return quick_ && layout_.spread.any; }
  Region& place(std::uint64_t loops, std::uint8_t stage);
  std::uint64_t loops_of_derived(std::uint32_t q) const;
  bool holds_data(std::uint32_t linear) const;
  // Makes the scalar checked indices that an affine map needs, because their code may have basic blocks.
  void make_places(std::uint32_t linear);
  std::uint64_t loops_of_linear(std::uint32_t linear) const;
  Value* times(std::uint32_t linear, std::uint32_t variable, Value* v);
  // Returns the sum of the terms that depend only on loops in `known`, or null if there are none. With `added`, skips the terms whose loops
  // are all in `added`, because the caller has added them already. The offset is not included.
  Value* scalar_part(std::uint32_t linear, std::uint64_t known, std::optional<std::uint64_t> added = std::nullopt);
  // Returns the value of an affine map as a number. All of its loops must be fixed in the current region.
  Value* linear_at(std::uint32_t linear);
  Value* derived(std::uint32_t q, std::uint64_t loops);
  Value* vector_linear(Body& body, std::uint32_t linear);
  Value* vector_derived(Body& body, std::uint32_t q);
  DType type_of_access(std::uint32_t access) const { return nest_.buffers[nest_.accesses[access].buffer].dtype; }
  std::int64_t size_of_access(std::uint32_t access) const { return static_cast<std::int64_t>(size_of(type_of_access(access))); }
  // True if the map grows by its coefficient from one iteration of the only serial loop to the next.
  bool linear_along_serial(std::uint32_t linear) const;
  // Returns the address of an access for the fixed loops `loops`: none, the loops of the task, or the serial loops too. The vector loop is
  // at the start of the tile.
  Value* pointer(std::uint32_t access, std::uint64_t loops);
  bool has_control_flow(const Statement& s) const { return s.kind == Statement::Kind::Op && KernelBuilder::branches(s.op, s.dtype); }
  // Returns the value of a statement that does not vary along the vector loop.
  Value* scalar(std::uint32_t id);
  Value* known_scalar(std::uint32_t id);  // null if the scalar has not been made
  Value* make_scalar(std::uint32_t id);   // the operands must have been made
  Value* pointer_with_derived(const Statement& s) { return pointer(s.at, s.loops); }

  // ---- emit_lists.cpp: accesses to array lists
  bool is_list(std::uint32_t access) const { return nest_.accesses[access].table != kNone; }
  std::uint64_t loops_of_table(std::uint32_t access) const;
  Value* table(std::uint32_t access);
  // Clamps indices into the pointer table, because a predicated access may compute indices outside of it.
  Value* within_table(std::uint32_t access, Value* member);
  // Returns the address of the array that the loops in `known` select.
  Value* array_of_list(std::uint32_t access, std::uint64_t known);
  Value* pointer_in_list(std::uint32_t access, std::uint64_t loops);
  // Returns the addresses if each lane has a different array.
  Value* addresses_in_list(Body& body, std::uint32_t access);

  // ---- emit_vector.cpp: the vector loop and its body
  bool is_vector(std::uint32_t id) const { return nest_.body[id].loops & vector_bit(); }
  Value* vector(Body& body, std::uint32_t id);
  // True if the value is computed here from its operands, not loaded from scratch, splatted or taken from another body.
  bool is_made_of_operands(const Body& body, std::uint32_t id) const;
  Value* make_vector(Body& body, std::uint32_t id);  // the operands must have been made
  bool computing_row_ = false;                       // Rows nests: computes the values of a row instead of reading them back
  std::uint64_t closed_ = 0;                         // Rows nests: loops that are closed at the current insertion point
  std::uint32_t kept_slot(std::uint32_t id) const;
  std::uint8_t first_sweep(std::uint32_t id) const;
  Value* scratch_base(std::uint32_t slot);
  Value* scratch_row(std::uint32_t slot, Value* j, DType t);
  Value* compute(Body& body, std::uint32_t id, const Statement& s);
  bool contiguous(std::uint32_t access) const;
  // True if a floordiv/mod variable of the access, or the array that it selects from an array list, varies along the vector loop.
  bool varies_derived(std::uint32_t access) const;
  // Returns the address of the first lane of a contiguous access.
  Value* vector_pointer(Body& body, std::uint32_t access);
  // Does the same for an access that reads several rows together.
  Value* pointer_in_rows(Body& body, std::uint32_t access);
  // Returns the address of the whole vector that ends where the lanes begin.
  Value* reversed_pointer(Body& body, std::uint32_t access);
  using Frame::reversed;
  Value* reversed(Body& body, std::uint32_t access, llvm::Type* type);
  // Returns lanes `place`, `place` + c, `place` + 2c, … of the c vectors of the interleaved access group.
  Value* sorted_out(Body& body, std::uint32_t access, llvm::Type* type);
  // Returns the addresses of the lanes of an access that is not contiguous.
  Value* addresses(Body& body, std::uint32_t access);
  // Prefetches the cache line at p, in the next row, which the hardware does not predict.
  void prefetch(Value* p);
  Value* load(Body& body, const Statement& s);
  void store(Body& body, const Statement& s);
  // Adds at data-dependent indices. All lanes have different elements, because the vector loop is not the indexed loop.
  void add_to(Body& body, const Statement& s);
  // Emits for j in begin .. n: a main loop of whole vectors, then one masked vector.
  void vector_range(Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f);
  void vector_range(Value* begin, Value* n, Region* around, std::uint8_t sweep, const std::function<void(Body&)>& f);
  bool stores_in(const Statement& s, std::uint8_t sweep) const;
  void ask_for_next_row(Body& body);
  void stores(Body& body, std::uint8_t sweep);
  bool any_stores(std::uint8_t sweep) const;

  // ---- emit_short_rows.cpp: short rows
  Value* place_ = nullptr;  // column of the vector's first element
  Value* vector_row_ = nullptr;
  bool making_patterns_ = false;
  Value* pattern_area(std::uint32_t at) { return bytes(argument(3), static_cast<std::int64_t>(layout_.spread.bytes) + at); }
  Value* pattern(std::uint32_t id, Value* place);
  // Returns the columns (`modulo`) or the relative rows of the lanes of a vector that starts in column `place`.
  Value* row_indices(bool modulo, Value* place, unsigned lanes);
  Value* row_indices(bool modulo, Value* place) { return row_indices(modulo, place, width_); }
  void make_patterns();
  // Wraps f so that the column and the row of the body's first element are carried from vector to vector.
  std::function<void(Body&)> in_short_rows(const std::function<void(Body&)>& f);
  Value* one_of_each_row(std::uint32_t access);

  // ---- emit_rolled.cpp: rerolled iterations
  Value* iteration_ = nullptr;  // index of the rerolled loop while it is being emitted
  Value* slot_of_iteration(const Statement& s);
  void rolled(Body& body);

  // ---- emit_scan.cpp: scans
  // Running maxima and minima of floats are carried as integers of the same order.
  Value* scan_key(std::uint32_t id, Value* v);
  Value* scan_value(std::uint32_t id, Value* key);
  Value* scan_combine(std::uint32_t id, Value* a, Value* c);
  void set_scan(std::uint32_t id, Value* base);
  std::vector<std::uint32_t> scan_statements() const;
  // Emits an elementwise nest in vectors of one scan group, one summation block after the other.
  void scan_along(Value* n);
  void scan_blocks(Value* n, const std::function<void(Body&)>& each,
                   const std::function<void(Value*, std::uint32_t, const ScanState&)>& end);
  // Emits a task of a split scan (schedule.h): block sums, then the base, then the results.
  void scan_chunk(Value* n);
  // Returns the scan of the body's vector, which is one group. Inactive lanes follow the active lanes.
  Value* scan_group(Body& body, std::uint32_t id);
  // Scans along a serial loop. Carries are scratch-buffer rows; with several blocks, bases are scratch-buffer rows too.
  Value* scan_row(Body& body, std::uint32_t id);
  // Starts the rows of the scans, or their next block.
  void begin_scan_rows(bool first);

  // ---- emit_reduce.cpp: operands and accumulators of reductions
  std::vector<std::uint32_t> reductions(std::uint8_t sweep) const;
  Reducer reducer(std::uint32_t id);
  Value* combine(std::uint32_t id, Value* a, Value* c) { return reducer(id).combine(a, c); }
  Value* identity(std::uint32_t id, unsigned width) { return reducer(id).identity(width); }
  // Returns the value that the body adds to an accumulator. Masked-out lanes have the identity.
  Value* added(std::uint32_t id, Body& body);
  // Returns the accumulator plus the body's value; contractions add the product with an fma.
  Value* accumulated(std::uint32_t id, Value* accumulator, Body& body);
  std::int64_t lanes_of(std::uint32_t id) const { return size_of(nest_.body[id].dtype) == 8 ? 32 : 64; }
  // Lanes of a reduction in registers.
  struct Lanes {
    std::uint32_t id;
    std::vector<std::vector<Value*>> vectors;  // variables of the carried values
  };
  Lanes new_lanes(std::uint32_t id);
  void put(const std::vector<Value*>& variables, const Reducer::Carried& values);
  Reducer::Carried get(const std::vector<Value*>& variables);
  void reset(const Lanes& lanes);
  void take(const Lanes& lanes, std::size_t part, Body& body);
  Value* total(const Lanes& lanes);
  // Pairwise tree of blocks as a binary counter: level l holds the sum of 2^l blocks.
  struct Tree {
    unsigned width;  // width of the values; 0: scalars
    Value* count;
    std::vector<Value*> stacks;  // by reduction
  };
  Tree start_tree(const std::vector<std::uint32_t>& reductions, unsigned width = 0);
  Value* level(const Tree& tree, std::size_t reduction, Value* l, DType t);
  Value* carry(Value* count, const std::function<void(Value* level)>& merge);
  void push(Tree& tree, const std::vector<std::uint32_t>& reductions, const std::vector<Value*>& values);
  std::vector<Value*> top(Tree& tree, const std::vector<std::uint32_t>& reductions);

  // ---- emit_lanes.cpp: reductions along the vector loop
  bool heavy(std::uint8_t sweep) const { return schedule_.masked || cost_of(sweep) > 16; }
  int cost_of(std::uint8_t sweep) const;
  // True if the lanes are in registers. Each vector of lanes then has separate code.
  bool in_registers(std::uint8_t sweep) const { return !schedule_.masked && cost_of(sweep) <= (64 / width_ <= 2 ? 48 : 16); }
  // Emits the computations and stores that occur once per row. In a split schedule, only the row's first chunk stores.
  void row_level(std::uint8_t stage, bool stores);
  bool stores_of_rows(std::uint8_t stage) const;
  void lanes_level(std::uint8_t stage);
  // Lanes in the kernel's stack memory.
  Value* lanes_in_memory(std::uint32_t id);
  Value* lane_place(std::uint32_t id, Value* memory, Value* lane);
  Value* load_lanes(std::uint32_t id, Value* memory, Value* lane);
  void store_lanes(std::uint32_t id, Value* memory, Value* lane, Value* v);
  void reset_lanes(std::uint32_t id, Value* memory);
  Value* sum_of_lanes(std::uint32_t id, Value* memory);
  // Lanes of a sweep's reductions: in registers, or in memory if shared code serves all vectors.
  struct Accumulators {
    std::vector<std::uint32_t> reductions;
    std::vector<Lanes> lanes;
    std::vector<Value*> memory;
  };
  // one entry per unroll-and-jammed iteration
  std::vector<Accumulators> accumulators(const std::vector<std::uint32_t>& reductions, bool in_registers);
  void reset(const Accumulators& all);
  // Adds a vector to the lanes. `part` selects lanes in registers; the position `at` of the vector's first element selects lanes in memory.
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
  // Returns the address of element j of the k-th row of a slot with several rows.
  Value* row_of(std::uint32_t slot, Value* k, Value* j, DType t);
  Value* load_row(std::uint32_t slot, Value* j, DType t);
  void store_row(std::uint32_t slot, Value* j, DType t, Value* v);
  // Loops over whole vectors of the tile; scratch-buffer rows are padded.
  void over_row(const std::function<void(Value*)>& f) {
    loop(i64(0), tile_length(), i64(width_), [&](Value* j) { for_each_abreast([&] { f(j); }); });
  }
  // Emits contractions. The accumulators of one vector of the row stay in registers during the serial loops.
  void contract_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds);
  void rows_sweep(std::uint8_t sweep);
  void eight_rows(std::uint8_t sweep, const std::vector<std::uint32_t>& reds, Value* r0, Value* n);
  // Emits the computations of a row from its reductions: values that later sweeps read, and results of the row.
  void rows_level(std::uint8_t stage, bool values, bool stores);
  // Computes the value here instead of reading it back. Its operands from earlier sweeps are in scratch.
  Value* row_value(Body& body, std::uint32_t id);

  // ---- emit_scatter.cpp: additions at data-dependent indices
  // Emits the updates in sequence along the indexed loops. In a destination-partitioned scatter, emits only the updates in the task's
  // range.
  void scatter_sweep(std::uint8_t sweep, const Statement& addition);
  // Adds one number to one element, if no other axis varies.
  void add_number(const Statement& s);
  // Returns how many contiguous indices are checked together as a vector.
  unsigned indices_at_once(const Statement& place) const;
  // Returns a bit mask for the updates from r on, at most `left` of them. Bit k is set if the index of r + k is in the range that starts at
  // `first`.
  Value* in_range(const Statement& place, Value* first, Value* r, Value* left);

  // ---- emit_columns.cpp: fused column reductions
  bool has_columns_ = nest_.has_columns();
  Value* column_row_ = nullptr;                            // number of the current row within its group of eight
  std::unordered_map<std::uint32_t, Value*> column_rows_;  // by column: where the sum with the current row goes
  Value* row_offset_ = nullptr;                            // first column of the current iteration of the serial loops
  std::vector<std::uint32_t> columns() const;
  void over_columns(const std::function<void(Value*)>& f);
  // Emits the blocks of rows. As in rows_sweep, eight rows form a tree, and the trees of a block are added in sequence.
  void rows_with_columns();
  void enter_row_of_columns(Value* row);
  // Calls f with separate code for each number of levels that the row is added to. The vector loop then has no branches for it.
  void for_each_carry(const std::function<void()>& f);
  std::optional<std::uint32_t> carried_;
  void add_row(std::uint32_t c, Value* value, Value* at, Value* mask);
  // Adds the values of the row, in the last sweep over it, to the columns.
  void take_columns(Body& body);
  // Emits the tree of the blocks and the values computed from it.
  void column_results();

  // ---- emit_chunks.cpp: rows that threads share
  Value* is_first_chunk() { return b_.CreateICmpEQ(chunk_, i64(0)); }
  // Returns the number of elements of r, including padding.
  Value* reduced_count();
  // Returns the address of a chunk's partial result of a reduction (scratch.h).
  Value* partial(std::uint32_t reduction, Value* chunk, Value* j);
  void leave_partials(std::uint8_t sweep);
  void combine_chunks(std::uint8_t sweep);
};

}  // namespace onepass::compiler
