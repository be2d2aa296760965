// LoopProgram: one kernel as nested loops, for no machine in particular. A Nest says which loops there are and what each value depends on;
// a LoopProgram says where each value is computed: every sweep over the reduced loops is a loop of its own, and a line stands in the
// innermost loop that it depends on. Transformations (transform.h) turn one LoopProgram into another that computes the same bits.
//
//   program   loops i0 < 400, i1 < 1000
//   for i0
//     start a0 = maximum over {i1} in any order
//     for i1
//       v3 = load %0[1000*i0 + i1] : f32
//       a0 = maximum a0, v3
//     v5 = result a0 : f32
//     …
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/plan/nest.h"

namespace onepass::compiler::loops {

using Id = std::uint32_t;
inline constexpr Id kNone = ~Id{0};

/// A loop of the nest, or a part of one that was split: the value of a split loop is that of its outer part times `by` plus that of its inner
/// part. Iterations that lie beyond the end of the loop that was split are left out. A loop may be split in several ways: each sweep over it
/// has its own.
struct Digit {
  enum class Kind : std::uint8_t { Whole, Outer, Inner };
  Kind kind = Kind::Whole;
  Id root = 0;                      // the loop of the nest
  Id parent = kNone, pair = kNone;  // the digit that was split; its other part
  enum class Size : std::uint8_t { Number, Tile, TileOuter, TileRows, Chunk };
  Size size = Size::Number;  // of the inner part: `by` iterations, or as many as the call's word says (ScheduleNumbers)
  std::int64_t by = 0;
  bool once = false;  // an outer part that has one iteration: the loop that was split is no longer than `by`
  bool operator==(const Digit&) const = default;
};

/// How a loop's iterations run: one after the other, as the lanes of a vector, written out, or in any order by the threads of a task's team.
enum class Bind : std::uint8_t { Serial, Vector, Unrolled, Parallel };

enum class Code : std::uint8_t {
  Loop,        // at: a digit; bind; padded; count: of a vector loop its lanes, 0 as many as a register has. Its body ends before line `end`
  Start,       // at: an accumulator, whose elements are set to its operation's identity
  Load,        // at: an access; guard: a Guard or none: where it is false nothing is read and the value is 0; a: the Place it depends on
  Store,       // at: an access; a: the value; guard as of a load
  AddTo,       // as Store: added to what is stored there; b: the Place that says where
  Index,       // at: an affine map, as a value
  Slot,        // at: a scalar parameter
  Constant,    // bits
  Op,          // op on a, b, c
  Guard,       // are the checks at … at + count all true? a: the Place they depend on
  Place,       // the index a, checked against the bound of check `at`. A negative one counts from the end; a bad one is 0 and sets the flag
  Accumulate,  // at: an accumulator, to which a, or the product of a and b, is added
  Result,      // at: an accumulator's value: its loops are done
  Halve,  // at: an accumulator with an element for each lane: lane i + lane i + n/2, and so on. Those that were not added to are identities
  Hold,   // at: a memory, which begins here: what it held before is forgotten
  Keep,   // at: a memory, in which a is kept for this index
  Recall,    // at: a memory: what was kept for this index
  Prefetch,  // at: an access, whose element `count` iterations of the digit `bits` further on is asked for; above these 32 bits an Ahead: a
             // hint, which means nothing
  Scan,      // at: an accumulator, to which a is added; the value is what it is then
};

/// Where a prefetched element is wanted: in the first-level cache, in the second-level cache, or in the first-level one if it has room for
/// what is read on the way there.
enum class Ahead : std::uint8_t { First, Second, Near };

struct Line {
  Code code;
  ir::Op op = ir::Op::Input;
  DType dtype = DType::Bool;  // computed and kept in: never a half
  DType half = DType::F32;    // as Statement::half
  std::uint16_t count = 0;
  Bind bind = Bind::Serial;
  bool padded = false;    // of a loop: iterations beyond its end run too, reading nothing: what they keep may be read, and matters nowhere
  bool reversed = false;  // of a parallel loop: tasks begin with its last iterations. A hint
  bool peeled = false;    // of a vector loop: the last vector, which may have fewer elements, is code of its own, after the loop
  bool streamed = false;  // of a store: it bypasses the caches
  Id end = kNone, a = kNone, b = kNone, c = kNone, guard = kNone;  // operands are earlier lines
  Id at = 0;
  // The nest's statement. Several lines have the same one where it is computed again. Of a loop: a condition, where it is false nothing needs the
  // sums that the loop adds to; where it is false for all of these the loop may be left out.
  Id of = kNone;
  std::uint64_t bits = 0;
  bool operator==(const Line&) const = default;
};

/// What is added up, in which order (ir/order.h). It has one element for each index of the digits `axes`, loops between its Start and what is
/// added. r counts the iterations of the digits `reduced`, row-major; of the first `runs` of them each iteration begins a run of
/// NestNumbers::padded_run.
///
/// Where the order is written out (expand_order), it is several accumulators: the tree of the blocks; in each block its lanes, or its elements
/// or groups in sequence; in each group a tree of eight. They are added to one another: a lane's elements to the lane, the halved lanes to the tree.
///
/// A loop that was split into chunks (factor) has a sum of each chunk, of any of these forms, and a tree of the chunks' sums: it has an element for each
/// of them, which may be added in any order, by several tasks.
struct Accumulator {
  enum class Order : std::uint8_t { Any, Lanes, Rows, Sequence, Scan };  // Sequence: of a contraction: blocks as of Rows, one by one
  enum class Part : std::uint8_t { All, Tree, Block, Eight };
  Order order = Order::Any;
  Part part = Part::All;
  ir::Op op;  // Add, Mul, Maximum, Minimum
  DType dtype;
  bool is_product = false;  // of two operands: multiplied and added in one rounding
  std::uint8_t runs = 0;
  std::uint8_t group = 1;  // of a scan: ir::kScanGroup, or 1
  std::vector<Id> axes, reduced;
  bool operator==(const Accumulator&) const = default;
};

/// Values that one loop computes and a later one reads: an element for each index of `axes`, loops of the nest that are opened after its Hold.
/// Its elements lie row-major by `layout`: each axis is one of these parts, as long as it is or the next multiple of `by` above that, or two,
/// the outer and the inner part of a split by `by`; a fixed one has room for `by`, and its loop is no longer than that.
struct Memory {
  struct Part {
    Id root;
    Digit::Kind kind = Digit::Kind::Whole;
    std::int64_t by = 0;
    bool fixed = false;
    bool operator==(const Part&) const = default;
  };
  DType dtype;
  std::vector<Id> axes;
  std::vector<Part> layout;
  bool operator==(const Memory&) const = default;
};

struct Program {
  Nest nest;                  // its loops, affine maps, accesses, checks, buffers and slots are this program's
  std::vector<Digit> digits;  // first the loops of the nest
  std::vector<Line> lines;
  std::vector<Accumulator> accumulators;
  std::vector<Memory> memories;
  bool operator==(const Program&) const = default;
};

/// What a reduction or scan combines by: Add, Mul, Maximum or Minimum.
ir::Op combiner(ir::Op reduction);

/// Is it a tree of the sums of chunks?
bool joins_chunks(const Program& program, const Accumulator& a);

/// What a Reduce or Scan of the nest adds up, in which order; without axes.
Accumulator accumulator_of(const Nest& nest, Id statement);

/// The program of a nest: loops in the nest's order, one loop for each sweep, no value computed twice within a loop.
Program lower(const Nest& nest);

/// What is wrong with a program; empty where nothing is. Checked for any lengths:
///   dominance   an operand is an earlier line in the same block or in one around it
///   loops       a line stands within all parts of the loops that it depends on; no part of a loop is open twice
///   reductions  every accumulator is what its statement asks for, or a part of it; it is started, then added to within its reduced loops, in the
///               order that r counts, and its axes, for no other statement, then read after
///               them; nothing reads it before
///   memories    a value is kept in loops over all axes, and recalled after them, at an index that was kept; no two elements have one place
///   stores      each store of the nest is one line, in no reduced loop that its element does not name
///   conditions  that of a loop depends on none of what is computed in it, and all sums of the loop are needed by it alone
///   parallel    the loops that tasks share are around every store but those of columns; nothing but columns is carried from one task to another;
///               nothing but sums of chunks is added up, and no update added, in a parallel loop, and these are read when all tasks are done; what
///               has an order is not added up in a vector
std::string verify(const Program& program);

/// A condition without which nothing needs the value of a statement: all that is computed from it is chosen by it (where). kNone: there is none.
Id needed_where(const Nest& nest, Id statement);

/// The loops of the nest all of whose parts are among these digits, as a mask.
std::uint64_t covered(const Program& program, const std::vector<Id>& open);
/// The open digits that make up a digit, in the order in which its iterations follow one another: outer parts first. Empty where it is not
/// covered.
std::vector<Id> parts_of(const Program& program, Id digit, const std::vector<Id>& open);
/// The iterations of a digit, where they are a number; of an outer part, of a whole split loop.
std::optional<std::int64_t> iterations_known(const Program& program, Id digit);
/// Is `digit` this one or a part of it?
bool is_within(const Program& program, Id digit, Id around);

/// The program as text, with these numbers.
std::string print(const Program& program, const NestNumbers& numbers);

}  // namespace onepass::compiler::loops
