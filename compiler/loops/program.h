// LoopProgram: one kernel as nested loops, independent of the target. A Nest defines the loops and the dependences of each value. A
// LoopProgram also defines where each value is computed. Every sweep over the reduced loops is a separate loop; a line is in the innermost
// loop that it depends on. Transformations (transform.h) turn one LoopProgram into another LoopProgram that computes the same bits.
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

/// A loop of the nest, or a part of a split loop. The index of a split loop is its outer part's index times `by` plus its inner part's
/// index. Iterations beyond the end of the split loop are skipped. A loop can be split in several ways: each sweep over it has a separate
/// split.
struct Digit {
  enum class Kind : std::uint8_t { Whole, Outer, Inner };
  Kind kind = Kind::Whole;
  Id root = 0;                      // the loop of the nest
  Id parent = kNone, pair = kNone;  // the digit that was split; the other part
  enum class Size : std::uint8_t { Number, Tile, TileOuter, TileRows, Chunk };
  Size size = Size::Number;  // size of the inner part: `by` iterations, or a kernel parameter (ScheduleNumbers)
  std::int64_t by = 0;
  bool once = false;  // an outer part with one iteration: the split loop has at most `by` iterations
  bool operator==(const Digit&) const = default;
};

/// Execution of a loop's iterations: sequential, as lanes of a vector, unrolled, or in any order by the threads that share a task.
enum class Bind : std::uint8_t { Serial, Vector, Unrolled, Parallel };

enum class Code : std::uint8_t {
  // at: a digit; bind; padded; count: lanes of a vector loop, 0 for a full register. The body ends before line `end`.
  Loop,
  Start,  // at: an accumulator; sets its elements to the identity of its operation
  // at: an access; guard: a Guard or none. If it is false, nothing is read and the value is 0; a: the Place that the access depends on.
  Load,
  Store,     // at: an access; a: the value; guard: as for a load
  AddTo,     // like Store, but adds to the element; b: the Place that selects it
  Index,     // at: an affine map, as a value
  Slot,      // at: a scalar parameter
  Constant,  // bits
  Op,        // op on a, b, c
  Guard,     // true if all checks at .. at + count hold; a: the Place they depend on
  // Checked index a, against the bound of check `at`. A negative index counts from the end. An index out of bounds becomes 0 and sets the
  // flag.
  Place,
  Accumulate,  // at: an accumulator; adds a, or the product of a and b; if the accumulator finds an index: element a with index b
  Result,      // at: an accumulator; its value after its loops
  // at: an accumulator with an element per lane. Adds lane i + n/2 to lane i, and so on. Lanes without additions are identities.
  Halve,
  Hold,    // at: a memory, which starts here; earlier contents are lost
  Keep,    // at: a memory; stores a for this index
  Recall,  // at: a memory; the value stored for this index
  // at: an access. Prefetches its element `count` iterations ahead of the digit in the low 32 bits of `bits`; the high bits are an Ahead. A
  // hint without effect on values.
  Prefetch,
  PrefetchMemory,  // at: a memory; like Prefetch, for the value that Recall reads
  Scan,            // at: an accumulator, to which a is added; returns the running value
};

/// Cache level of a prefetch: the first level, the second level, or the first level if it also has room for the elements read in between.
enum class Ahead : std::uint8_t { First, Second, Near };

struct Line {
  Code code;
  ir::Op op = ir::Op::Input;
  DType dtype = DType::Bool;  // type of the computation and of the result; never a half type
  DType half = DType::F32;    // as Statement::half
  std::uint16_t count = 0;
  Bind bind = Bind::Serial;
  // Loop: also runs iterations beyond its end. They read nothing, and the values that they store in memories do not affect results.
  bool padded = false;
  bool reversed = false;  // parallel loop: tasks start with its last iterations; a hint
  bool peeled = false;    // vector loop: the last vector, which may be partial, is separate code after the loop
  bool streamed = false;  // store: non-temporal
  // Loop that adds products: iterations at its start or end whose products are all zeros may be left out where that changes no sum. A hint
  // without effect on results.
  bool zeros = false;
  Id end = kNone, a = kNone, b = kNone, c = kNone, guard = kNone;  // operands are earlier lines
  Id at = 0;
  // The statement of the nest. Several lines have the same statement if it is computed again. For a loop: a condition statement. Where it
  // is false, nothing needs the sums of the loop; if it is false for all sums, the loop may be skipped.
  Id of = kNone;
  std::uint64_t bits = 0;
  bool operator==(const Line&) const = default;
};

/// Accumulator: the values that a reduction adds, and their order (ir/order.h). It has one element for each index of the digits `axes`,
/// which are loops between its Start and its additions. r counts the iterations of the digits `reduced` in row-major order. Each iteration
/// of the first `runs` of them starts a run of NestNumbers::padded_run.
///
/// If the order is written out (expand_order), there are several accumulators. The outermost accumulator is the tree of the blocks. Each
/// block has lanes, or sequences of elements or groups; each group is a tree of eight. Each accumulator is added to the next coarser
/// accumulator: an element to its lane, the halved lanes to the tree.
///
/// A loop that was split into chunks (factor) has one sum per chunk, in any of these forms, and a tree of the chunk sums. The tree has an
/// element per chunk, which several tasks may add in any order.
struct Accumulator {
  // Sequence: contraction, with blocks as for Rows but without groups
  enum class Order : std::uint8_t { Any, Lanes, Rows, Sequence, Scan };
  enum class Part : std::uint8_t { All, Tree, Block, Eight };
  Order order = Order::Any;
  Part part = Part::All;
  ir::Op op;  // Add, Mul, Maximum, Minimum
  DType dtype;
  bool is_product = false;  // multiplies two operands and adds with one rounding
  // Type of the elements among which it finds an index: the least index of an element that equals the extreme by `op`, or of the first NaN.
  // The elements are added in the order of their indices.
  std::optional<DType> finds;
  std::uint8_t runs = 0;
  std::uint8_t group = 1;  // scans: ir::kScanGroup, or 1
  std::vector<Id> axes, reduced;
  bool operator==(const Accumulator&) const = default;
};

/// Memory: values that one loop computes and a later loop reads. It has one element for each index of `axes`, which are loops of the nest
/// that open after its Hold. The elements are row-major by `layout`.
///
/// An axis is one part of the layout, with its length or the next multiple of `by`. It can also be two parts, the outer and the inner part
/// of a split by `by`. A fixed part has room for `by` elements, and its loop has at most `by` iterations.
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
  Nest nest;                  // loops, affine maps, accesses, checks, buffers and parameters of the program
  std::vector<Digit> digits;  // starts with the loops of the nest
  std::vector<Line> lines;
  std::vector<Accumulator> accumulators;
  std::vector<Memory> memories;
  bool operator==(const Program&) const = default;
};

/// Returns the operator that combines the elements of a reduction or scan: Add, Mul, Maximum or Minimum.
ir::Op combiner(ir::Op reduction);

/// True if the accumulator is a tree of chunk sums.
bool joins_chunks(const Program& program, const Accumulator& a);

/// Returns the accumulator of a Reduce or Scan of the nest, without axes.
Accumulator accumulator_of(const Nest& nest, Id statement);
/// Returns the accumulator that finds the index of an extreme.
Accumulator finder_of(const Nest& nest, Id statement, const IndexSearch& search);

/// Returns the program of a nest: loops in the nest's order, one loop per sweep, no value computed twice within a loop. With `finds`, the
/// loop that computes an extreme also finds its index (index_search), and extremes that nothing else needs are left out.
Program lower(const Nest& nest, bool finds = false);

/// Returns a description of the first error in a program, or an empty string. Checks these properties for any lengths:
///   dominance   An operand is an earlier line in the same block or in an enclosing block.
///   loops       A line is within all parts of the loops that it depends on. No part of a loop is open twice.
///   reductions  Every accumulator matches its statement or is a part of it. It is started, then added to within its reduced loops in the
///               order of r, within its axes and for no other statement. It is read only afterwards.
///   memories    A value is stored in loops over all axes and recalled after them at a stored index. No two elements share an address.
///   stores      Each store of the nest is one line. Its index has every reduced loop around it.
///   conditions  The condition of a loop does not depend on values computed in the loop. Only the condition's selections use the loop's
///               sums.
///   zeros       A loop that zero products may skip only recalls values and adds all products of one sum in a register tile.
///   parallel    Every store except column stores is inside the loops that tasks share. Only columns carry values from one task to another.
///               A parallel loop sums only chunk sums, which are read after all tasks, and contains no updates. Ordered sums are not added
///               up in vector loops.
std::string verify(const Program& program);

/// Returns a condition without which nothing needs the value of a statement: a Where selects every use of the value. Returns kNone if there
/// is none.
Id needed_where(const Nest& nest, Id statement);

/// Returns the mask of the nest's loops for which all parts are among these digits.
std::uint64_t covered(const Program& program, const std::vector<Id>& open);
/// Returns the open digits that make up a digit, in iteration order: outer parts first. Returns an empty vector if they do not cover it.
std::vector<Id> parts_of(const Program& program, Id digit, const std::vector<Id>& open);
/// Returns the iterations of a digit if they are a constant; for an outer part, the iterations of a whole split loop.
std::optional<std::int64_t> iterations_known(const Program& program, Id digit);
/// True if `digit` is `around` or a part of it.
bool is_within(const Program& program, Id digit, Id around);

/// Returns the program as text, with these numbers.
std::string print(const Program& program, const NestNumbers& numbers);

}  // namespace onepass::compiler::loops
