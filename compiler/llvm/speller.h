// Speller: turns a LoopProgram into LLVM IR, as one function `kernel` as described in emit.h. The program decides which loops exist, which
// of them are vectors and which values stay in memory. The speller turns each line into instructions.
//
//   loops         Outermost parallel loops form the tasks that threads share. Unrolled loops and vectors of one register group are
//                 straight-line code.
//   sums          Sums stay in registers during the loops that they sum over, if the loops of their axes inside the summed loops are
//                 unrolled or vectors. Otherwise they are in scratch.
//   tails         Iterations beyond the end of a loop read nothing: lanes are masked, and the last row is read again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "compiler/codegen.h"
#include "compiler/llvm/frame.h"
#include "compiler/loops/layout.h"
#include "compiler/loops/program.h"
#include "compiler/plan/scratch.h"

namespace onepass::compiler {

class Speller : private Frame {
 public:
  Speller(const CodegenRequest& request, const loops::Program& program, llvm::Module& module);
  void run();

 private:
  using Id = loops::Id;
  using Value = llvm::Value;
  using BasicBlock = llvm::BasicBlock;

  // An open loop. Values that depend only on it and the loops around it are computed once, before its other code.
  struct Scope {
    Id digit = loops::kNone;      // none for the first scope, the kernel itself
    Value* index = nullptr;       // vector: index of its first lane
    Value* read = nullptr;        // the index, clamped to the last iteration inside the loop
    BasicBlock* hoist = nullptr;  // code goes before its terminator; null: straight-line code, at the insertion point
    Value* active = nullptr;      // padded loop: true if the iteration is inside; null: always inside
    unsigned lanes = 0;           // vector
    Value* mask = nullptr;        // vector: lanes that are inside; null: all
    std::map<std::uint64_t, Value*> addresses = {};
    std::map<Id, Value*> derived = {};
    std::map<Id, Value*> counts = {};                      // by digit: iterations of a loop, known here
    std::map<std::pair<Id, unsigned>, Value*> masks = {};  // masks of the first vector of that loop
    bool whole = false;                                    // outer part: all iterations of the inner part are inside
    Value* inside = nullptr;                               // unrolled loop or vector: number of iterations that are inside
    std::map<Value*, std::vector<Value*>> families = {};   // by address: whole vectors of an interleaved access group
    std::map<Id, std::vector<Value*>> turned = {};  // by access: values that the lanes read in each iteration of the unrolled loop inside
    std::map<Id, std::vector<Value*>> stored = {};  // by line: values that the lanes store in the iterations of the unrolled loop inside
  };
  // Address computation: starts at `base` and adds a number of bytes per iteration of each digit.
  struct Form {
    Value* base = nullptr;
    std::vector<Value*> stride;  // by digit; null: independent of it
    Id linear = loops::kNone;    // arrays: the affine map, which may have floordiv/mod variables
    Id table = loops::kNone;     // array lists: map that selects the array from the pointer table at `base`
    std::int64_t size = 1;       // bytes of an element
    Value* level = nullptr;      // sums: bytes per level of the tree
  };
  enum class Of : std::uint8_t { Load, Store, Memory, Sums };

  const loops::Program& p_;
  struct Place {
    Value* index = nullptr;
    std::size_t depth = 0;  // of the innermost scope in which its line runs
  };
  std::map<Id, Place> places_;         // checked indices, by statement
  std::optional<SpreadSlots> spread_;  // many scalar parameters in the baseline tier
  std::vector<Scope> scopes_;
  std::size_t item_loops_ = 0;  // number of task scopes after the first scope
  std::vector<Value*> values_;  // by line
  std::map<std::uint64_t, Form> forms_;
  std::vector<Value*> memory_begin_, sums_begin_;
  // Lanes of the vector loop that a memory or sum starts in: it has an element for each lane. 0: it starts in no vector loop.
  std::vector<unsigned> lanes_of_memory_, lanes_of_sums_;
  // Sums in registers, by accumulator. `axes` are the unrolled axes and `parts` are the unrolled parts of the summed loop. Their indices
  // select the carried values, one per lane of the vector around the addition. An empty entry means that the sum is in scratch.
  struct Registers {
    std::vector<Id> axes, parts;
    unsigned lanes = 0;
    bool of_elements = false;  // the lanes are elements of the summed loop
    // Tree of eight elements. If their loop is unrolled, the values are the sums of complete trees of 1, 2, 4 and 8 elements, which join like
    // the digits of a binary counter. Else the value is an array of the elements.
    bool in_array = false;
    std::map<std::vector<std::int64_t>, std::vector<llvm::AllocaInst*>> values = {};
  };
  std::vector<Registers> registers_;
  // Totals of sums in registers, by accumulator and indices of the unrolled axes. Lines after the loop read them from there.
  struct AtHand {
    std::vector<Id> axes, unrolled;
    std::map<std::vector<std::int64_t>, Value*> values;
  };
  std::vector<AtHand> at_hand_;
  bool one_block_;  // each sum has at most one block
  // Register tiles of a contraction: hundreds of addresses in five nested loops. The analysis of their sequences would take half of the
  // compile time, so the outer loops hide their indices from it.
  bool in_tiles_;

  // State while a loop's condition is computed before the loop. It has the required lines, the last required line, the block before their
  // code, and the variable that collects the values.
  struct Wanted {
    std::vector<bool> lines;
    Id last;
    BasicBlock* before;
    llvm::AllocaInst* any = nullptr;
  };
  Wanted* wanted_ = nullptr;
  std::set<Id> holding_;        // guards that hold in the vectors of the code that is being emitted
  std::vector<bool> is_place_;  // by statement: a floordiv/mod variable is its value

  // ---- code
  Value* both(Value* a, Value* c);  // conjunction of masks or conditions; null means true
  template <class F> auto in(Scope& scope, F&& f);
  Value* length(const loops::Length& n);
  llvm::AllocaInst* variable(llvm::Type* type);
  BasicBlock* new_hoist();

  // ---- loops
  void block_of(Id begin, Id end);
  void phases();
  void items(Id first, Value* begin, Value* end);
  std::vector<Id> shared_by_tasks(Id first) const;  // lines of the parallel loops from line `first` on
  bool has_chunks(Id phase) const;
  Id one_loop(Id line);  // returns the line after the emitted lines
  void vector_loop(Id line);
  // Vectors of a loop for which all bounds checks of these guards hold, for each lane and in all loops inside: those that begin at `first`
  // to `last`, if `condition` is true or null.
  struct Interior {
    std::vector<Id> guards = {};
    Value *first = nullptr, *last = nullptr, *condition = nullptr;
  };
  Interior find_interior(Id line, unsigned lanes);
  // Returns whether the condition of the loop at this line is true for any element that it adds to. Null: unknown.
  Value* is_needed(Id loop);
  // Variables of a loop over products: its first iteration, the end, and whether both leave out some iterations, but not all. Null: no
  // iterations are ever left out.
  struct Range {
    llvm::AllocaInst *begin = nullptr, *end = nullptr, *is_part = nullptr;
  };
  enum Columns : std::uint8_t { kOther = 1, kFinite, kPlain };  // plain: finite, and each column has an element without a sign
  Range without_zeros(Id line, const std::vector<Id>& sums);
  void set(const Range& range, Value* begin, Value* end, Value* is_part);
  template <class F> void each_variable(const std::vector<Id>& sums, F change);  // changes the sums in registers
  template <class F> void loop_over(const Range& range, Value* n, const std::vector<Id>& sums, F&& f);
  // Packed operand of a register tile: the line that recalls it, the reduced loop's digit, and the unrolled loops that it depends on.
  struct Operand {
    Id recall, reduced;
    std::vector<Id> unrolled;
  };
  Value* stride_of(const Operand& o, Id digit);
  Value* bits_of(const Operand& o, std::initializer_list<Scope> loops);
  Value* without_zeros(const Operand& rows, Value* n, bool at_end);
  Value* examined(const Operand& columns, const Scope& lane, Value* n);
  void body(Id line, Scope scope);
  bool has_loops(Id line) const;
  Value* by(const loops::Digit& d);
  std::uint32_t word_of(loops::Digit::Size size) const;
  // Numbers of the loop program, and those of kernel parameters that the kernel is specialized on.
  std::optional<std::int64_t> known_by(const loops::Digit& d) const;
  std::optional<std::int64_t> known_iterations(Id digit) const;
  Value* iterations(Id digit);
  Value* weight(Id digit, Id within);  // how far one iteration moves an enclosing digit
  // Of the loop program alone: most iterations of a run, for any extents.
  std::optional<std::int64_t> iterations_known(Id digit) const { return loops::iterations_known(p_, digit); }
  // Returns the scope that computes what depends only on the indices of one nest loop, which are known up to the scope at `depth`. Copies
  // of unrolled loops have constant indices, so it is a scope around them, and around other loops between them.
  Scope& around_copies(std::size_t depth);
  // Returns the iterations of a digit from its loop's start; fewer than iterations() if an enclosing loop ends.
  Value* count(Id digit);
  unsigned lanes_of(Id line) const;
  unsigned lanes_of_register(Id line) const;  // of the widest type in the loop
  // Returns the lanes of the masked vectors of a loop whose other vectors are all inside: one register of the widest type, if the lanes
  // hold nothing that outlives an iteration.
  unsigned lanes_of_rest(Id line) const;

  // ---- addresses
  const Scope* vector_scope() const;
  Scope* vector_scope();
  Value* coefficient(Id linear, Id variable);
  Form& form(Of of, Id id);
  void strides_of_memory(Form& form, Id line);
  Value* address(Of of, Id id, std::size_t depth);
  Value* here(Of of, Id id) { return address(of, id, scopes_.size() - 1); }
  Value* within_table(const Form& f, Value* member);
  Value* last_lane(Of of, Id access);
  Value* addresses(Of of, Id access);  // addresses of the lanes if they are not contiguous
  std::uint64_t loops_of(Id linear) const;
  std::uint64_t loops_of_derived(Id q) const;
  bool varies_along_vector(std::uint64_t loops) const;
  std::size_t depth_of(std::uint64_t loops) const;
  std::size_t depth_of_derived(Id q) const;
  Value* root_value(Id root, std::size_t depth, bool read);
  Value* linear_value(Id linear, std::size_t depth, bool with_offset);
  Value* derived_value(Id q, std::size_t depth);
  Value* lanes_of_linear(Id linear, bool with_offset);  // a vector if it varies along the vector loop; else a number
  Value* lanes_of_derived(Id q);
  Value* place_of(Id statement) { return known_place(statement).index; }
  const Place& known_place(Id statement) const;

  // ---- lines
  void line(Id i);
  void spell(Id i, const loops::Line& l);
  void hoist_behind();
  void prefetch(const loops::Line& l);
  void prefetch_memory(const loops::Line& l);
  bool is_asked_for(const Form& f) const;
  Value* load(const loops::Line& l);
  Value* sorted_out(Id access, unsigned stride, llvm::Type* type);
  bool varies_by_derived(const Form& form) const;  // along the vector loop
  struct Run {
    Value *begin, *whole;  // null: always whole
  };
  bool is_quotient_of(Id q, Id root) const;
  std::optional<std::vector<Id>> quotients_along(const Form& form, Id root) const;
  std::optional<Run> run_along(const Form& form, const Scope& along, std::size_t depth, Value* begin, unsigned count);
  Value* far_along(const Form& form, const Scope& along, std::size_t depth, unsigned count);
  const Scope* turning_scope(const Form& form) const;
  const std::vector<Value*>& turned(const loops::Line& l, const Form& form, const Scope& along);
  std::vector<Value*> rows_of(Value* begin, Value* step);
  bool turns(const Form& form, Id digit) const;
  void store_turned(Id line, const std::vector<Value*>& values, Id digit, Value* n);
  void store(const loops::Line& l);
  void store_lanes(Value* v, Value* p, Value* mask, bool streamed);
  void add_to(const loops::Line& l);
  void store_side_by_side(Id first);
  Value* interleaved(const std::vector<Value*>& v);
  bool moves_by_one(Id linear, Id digit);
  bool counts_lanes(Id linear);
  Value* guard(const loops::Line& l);
  Value* condition(Id guard);  // null: always true
  Value* place(const loops::Line& l);
  Value* op(const loops::Line& l);
  Value* value(Id line) { return values_[line]; }
  bool is_vector_in(Of of, Id id);

  // ---- sums
  Reducer reducer(Id accumulator) {
    const loops::Accumulator& a = p_.accumulators[accumulator];
    return {k_, a.op, a.dtype, target_.vector_bytes, lanes_of_sums_[accumulator] > 0};
  }
  bool is_part_of_sum(Id digit, Id accumulator) const;
  Id start_of(Id accumulator) const;
  // Returns how a sum is carried during the loop at this line, or nullopt if it is in scratch.
  std::optional<Registers> registers_of(Id loop, Id line) const;
  std::vector<Id> into_registers(Id line, bool only_eight = false);
  void start_in_scratch(Id start);
  // Moves sums from registers to scratch. If the lines from `next` on only add them to a tree, adds them to the tree directly. Does neither
  // if all readers can use the registers. Returns the line after the handled lines.
  Id out_of_registers(const std::vector<Id>& sums, Id next);
  struct Push {
    Id from, tree, end;
  };
  std::optional<Push> push_at(Id line) const;
  bool can_read_at_hand(Id accumulator, Id from) const;
  std::vector<std::int64_t> index_of(const std::vector<Id>& axes) const;  // indices of the unrolled loops among `axes`
  Value* open_index(Id digit);                                            // index of the open loop over a digit, 0 if there is none
  void prefetch(const Push& to);
  enum class Cache : std::uint8_t { Second = 2, First = 3 };  // numbering of locality in LLVM
  void ask_for(Value* p, std::int64_t size, Cache into = Cache::First);
  void push(const Reducer& reducer, Value* index, Value* at, Value* level, std::vector<Value*> sums, const std::vector<Value*>& offsets);
  void push(Id tree, Value* at, std::vector<Value*> sums, const std::vector<Value*>& offsets);
  Value* top(const Reducer& reducer, Value* blocks, Value* at, Value* level, llvm::Type* type);
  Value* sum_of_chunks(Id tree, Value* at, unsigned lanes);
  void accumulate(Id line);
  // ---- searches for the index of an extreme: their registers hold the best elements so far and the indices of these, by lane
  Reducer::Carried start_search(Id line);
  Value* index_in_lanes(Id linear, unsigned lanes, llvm::Type* type);
  Value* is_further(Id accumulator, Value* x, Value* best);
  Value* found(Id accumulator, const std::vector<Reducer::Carried>& all);
  // ---- trees of eight
  void start_eight(Id accumulator, bool in_array);
  void add_to_eight(Id accumulator, Value* x);
  Value* element_of_eight(Id accumulator, const Registers& registers, Value* k);  // its address in the array
  Value* total_of_eight(Id accumulator, const Registers& registers);
  Value* halve(const loops::Line& l);
  bool adds_once(Id accumulator) const;
  Value* halve_by_lane(Id accumulator);
  Value* result(const loops::Line& l);
  Value* level(Value* at, Id accumulator, Value* l);
};

}  // namespace onepass::compiler
