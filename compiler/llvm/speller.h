// Speller: a LoopProgram as LLVM IR, one function `kernel` as emit.h says. It decides nothing: which loops there are, what is a vector and what
// stays in memory is the program's; here each line becomes instructions.
//
//   loops         parallel ones around everything else are the items that threads share; unrolled ones and vectors of one register group are
//                 straight-line code
//   sums          stay in registers while the loops run that they are summed over, where the loops of their axes inside these are unrolled or
//                 vectors; before and after that they are in scratch
//   tails         what lies beyond the end of a loop reads nothing: lanes are masked, the last row is read again
#pragma once

#include <map>
#include <optional>
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

  // An open loop. What is known in it is computed in front of its other code, once.
  struct Scope {
    Id digit = loops::kNone;      // of the first one, the kernel itself: none
    Value* index = nullptr;       // of a vector: of its first lane
    Value* read = nullptr;        // the same where it is inside the loop, else the last one that is
    BasicBlock* hoist = nullptr;  // code goes before its terminator; null: in straight-line code, where the builder stands
    Value* active = nullptr;      // of a padded loop: is the iteration inside? Null: it is
    unsigned lanes = 0;           // of a vector
    Value* mask = nullptr;        // of a vector: lanes that are inside; null: all
    std::map<std::uint64_t, Value*> addresses = {};
    std::map<Id, Value*> derived = {};
    std::map<Id, Value*> counts = {};                      // by digit: iterations of a loop, known here
    std::map<std::pair<Id, unsigned>, Value*> masks = {};  // of that loop's first vector
    bool whole = false;                                    // of an outer part: all iterations of the inner one are inside
    Value* inside = nullptr;                               // of an unrolled loop or a vector: how many of its iterations are inside
    std::map<Id, std::vector<Value*>> families = {};       // of a vector, by the first access: the whole vectors that a family reads
    std::map<Id, std::vector<Value*>> turned = {};  // of a vector, by access: what its lanes read in each iteration of the loop inside it
  };
  // Where elements lie: from `base` on, so many bytes for each iteration of a digit.
  struct Form {
    Value* base = nullptr;
    std::vector<Value*> stride;  // by digit; null: it does not depend on it
    Id linear = loops::kNone;    // of an array: its map, which may have derived variables
    Id table = loops::kNone;     // of a list: the map that chooses the array, whose address stands in a table at `base`
    std::int64_t size = 1;       // bytes of an element
    Value* level = nullptr;      // of sums: bytes of a level of the tree
  };
  enum class Of : std::uint8_t { Load, Store, Memory, Sums };

  const loops::Program& p_;
  std::map<Id, Value*> places_;        // by statement
  std::optional<SpreadSlots> spread_;  // of the quick tier, where there are many
  std::vector<Scope> scopes_;
  std::size_t item_loops_ = 0;  // of these, behind the first
  std::vector<Value*> values_;  // by line
  std::map<std::uint64_t, Form> forms_;
  std::vector<Value*> memory_begin_, sums_begin_;
  // Sums in registers, by accumulator: `axes` of them, and parts of what is summed over, that are unrolled; by the indices of these what is
  // carried, in each lane of the vector that is around what is added. An empty one is in scratch.
  struct Registers {
    std::vector<Id> axes, parts;
    unsigned lanes = 0;
    bool of_elements = false;  // the lanes are elements of what is summed over
    std::map<std::vector<std::int64_t>, std::vector<llvm::AllocaInst*>> values = {};
  };
  std::vector<Registers> registers_;
  // What sums in registers came to, by accumulator and the indices of the axes that are unrolled, while what follows their loop reads them
  // from there.
  struct AtHand {
    std::vector<Id> axes, unrolled;
    std::map<std::vector<std::int64_t>, Value*> values;
  };
  std::vector<AtHand> at_hand_;

  // While a condition is computed before its loop: the lines that this needs, the last of them, the block before their code, and where the
  // values are collected.
  struct Wanted {
    std::vector<bool> lines;
    Id last;
    BasicBlock* before;
    llvm::AllocaInst* any = nullptr;
  };
  Wanted* wanted_ = nullptr;
  std::vector<bool> is_place_;  // by statement: a derived variable is its value

  // ---- code
  Value* both(Value* a, Value* c);  // of masks or conditions, each of which may be null: true
  template <class F> auto in(Scope& scope, F&& f);
  Value* length(const loops::Length& n);
  llvm::AllocaInst* variable(llvm::Type* type);
  BasicBlock* new_hoist();

  // ---- loops
  void block_of(Id begin, Id end);
  void phases();
  void items(Id first, Value* begin, Value* end);
  std::vector<Id> shared_by_tasks(Id first) const;  // the lines of the parallel loops from this one on
  bool has_chunks(Id phase) const;
  Id one_loop(Id line);  // the line behind what it has spelled
  void vector_loop(Id line);
  // Is the condition of the loop at this line true for any of the elements that it adds to? Null: that is not known.
  Value* is_needed(Id loop);
  void body(Id line, Scope scope);
  bool has_loops(Id line) const;
  Value* by(const loops::Digit& d);
  Value* iterations(Id digit);
  Value* weight(Id digit, Id within);  // how far one iteration moves a digit around it
  std::optional<std::int64_t> iterations_known(Id digit) const { return loops::iterations_known(p_, digit); }
  // Of a digit, from where its loop begins: fewer than it has where a loop around it ends.
  Value* count(Id digit);
  unsigned lanes_of(Id line) const;

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
  Value* addresses(Of of, Id access);  // of the lanes, where they do not lie side by side
  std::uint64_t loops_of(Id linear) const;
  std::uint64_t loops_of_derived(Id q) const;
  bool varies_along_vector(std::uint64_t loops) const;
  std::size_t depth_of(std::uint64_t loops) const;
  Value* root_value(Id root, std::size_t depth, bool read);
  Value* linear_value(Id linear, std::size_t depth, bool with_offset);
  Value* derived_value(Id q, std::size_t depth);
  Value* lanes_of_linear(Id linear, bool with_offset);  // where it varies along the vector, a vector; else a number
  Value* lanes_of_derived(Id q);
  Value* place_of(Id statement);

  // ---- lines
  void line(Id i);
  void spell(Id i, const loops::Line& l);
  void hoist_behind();
  void prefetch(const loops::Line& l);
  Value* load(const loops::Line& l);
  Value* sorted_out(Id access, llvm::Type* type);
  bool varies_by_derived(const Form& form) const;  // along the vector
  struct Run {
    Value *begin, *whole;  // whole: null where it always is
  };
  bool is_quotient_of(Id q, Id root) const;
  std::optional<std::vector<Id>> quotients_along(const Form& form, Id root) const;
  std::optional<Run> run_along(const Form& form, const Scope& along, std::size_t depth, Value* begin, unsigned count);
  Value* far_along(const Form& form, const Scope& along, std::size_t depth, unsigned count);
  const Scope* turning_scope(const Form& form) const;
  const std::vector<Value*>& turned(const loops::Line& l, const Form& form, const Scope& along);
  void store(const loops::Line& l);
  void store_lanes(Value* v, Value* p, Value* mask, bool streamed);
  void add_to(const loops::Line& l);
  void store_side_by_side(Id first);
  Value* interleaved(const std::vector<Value*>& v);
  Value* guard(const loops::Line& l);
  Value* place(const loops::Line& l);
  Value* op(const loops::Line& l);
  Value* value(Id line) { return values_[line]; }
  bool is_vector_in(Of of, Id id);

  // ---- sums
  Reducer reducer(Id accumulator) {
    const loops::Accumulator& a = p_.accumulators[accumulator];
    return {k_, a.op, a.dtype, target_.vector_bytes};
  }
  bool is_part_of_sum(Id digit, Id accumulator) const;
  Id start_of(Id accumulator) const;
  // How a sum is carried while the loop at this line runs; none where it is in scratch.
  std::optional<Registers> registers_of(Id loop, Id line) const;
  std::vector<Id> into_registers(Id line);
  void start_in_scratch(Id start);
  // To scratch; or, where the lines from `next` on do nothing but add them to a tree, to that. Not where all that reads them can have them from
  // the registers. The line behind these.
  Id out_of_registers(const std::vector<Id>& sums, Id next);
  struct Push {
    Id from, tree, end;
  };
  std::optional<Push> push_at(Id line) const;
  bool can_read_at_hand(Id accumulator, Id from) const;
  std::vector<std::int64_t> index_of(const std::vector<Id>& axes) const;  // of the unrolled loops among these
  void prefetch(const Push& to);
  enum class Cache : std::uint8_t { Second = 2, First = 3 };  // as LLVM counts locality
  void ask_for(Value* p, std::int64_t size, Cache into = Cache::First);
  void push(const Reducer& reducer, Value* index, Value* at, Value* level, std::vector<Value*> sums, const std::vector<Value*>& offsets);
  void push(Id tree, Value* at, std::vector<Value*> sums, const std::vector<Value*>& offsets);
  Value* top(const Reducer& reducer, Value* blocks, Value* at, Value* level, llvm::Type* type);
  Value* sum_of_chunks(Id tree, Value* at, unsigned lanes);
  void accumulate(Id line);
  Value* halve(const loops::Line& l);
  Value* result(const loops::Line& l);
  Value* level(Value* at, Id accumulator, Value* l);
};

}  // namespace onepass::compiler
