// Transformations of LoopPrograms. Each transformation returns a program that computes the same bits, or a text that says why the
// transformation is not allowed. Policies compose them; back ends consume the result.
#pragma once

#include <string>
#include <variant>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

/// A program, or the reason why there is none.
class Transformed {
 public:
  Transformed(Program program) : value_(std::move(program)) {}        // NOLINT: implicit, so that functions can return either
  Transformed(std::string why_not) : value_(std::move(why_not)) {}    // NOLINT
  Transformed(const char* why_not) : value_(std::string(why_not)) {}  // NOLINT
  explicit operator bool() const { return value_.index() == 0; }
  const Program& operator*() const { return std::get<0>(value_); }
  const Program* operator->() const { return &std::get<0>(value_); }
  Program take() && { return std::move(std::get<0>(value_)); }
  const std::string& why_not() const { return std::get<1>(value_); }

 private:
  std::variant<Program, std::string> value_;
};

/// Splits the loop at line `loop` into two nested loops. The inner loop has `by` iterations; its last run may have fewer. Always possible.
Transformed split(const Program& program, Id loop, std::int64_t by);

/// Does the same, but a kernel parameter gives the iterations of the inner loop: a tile size or the chunk of a task.
Transformed split(const Program& program, Id loop, Digit::Size size);

/// Marks the outer part of a split, at line `loop`, as having one iteration. The split loop must be no longer than the inner part; only the
/// interpreter checks that.
Transformed once(const Program& program, Id loop);

/// Moves the values that the loop at line `loop` computes before its only inner loop into that loop. The two loops can then be
/// interchanged.
Transformed sink(const Program& program, Id loop);

/// Moves the values in the body of the loop at line `loop` that do not depend on it before the loop.
Transformed lift(const Program& program, Id loop);

/// Interchanges the loop at line `loop` with the loop that is its whole body. Fails if elements would be added in another order.
Transformed interchange(const Program& program, Id loop);

/// Splits the loop at line `loop` into two consecutive loops. The first loop has the lines before `at`, a line directly in its body; the
/// second loop has the other lines. Values of the first loop that the second loop needs are computed again; sums that the second loop reads
/// get an element per iteration. With `keep`, loaded and computed values are instead stored in memory for the second loop.
///
/// Fails if the first loop stores and the second loop loads, because the arrays may overlap. `apart` permits this: an element is then
/// stored and loaded only in the same iteration, for example if a result may overwrite an argument (runtime/aliases.h).
Transformed fission(const Program& program, Id loop, Id at, bool keep = false, bool apart = false);

/// Stores the value of the line in a memory. Later lines in other loops that would compute the same value recall it instead. Fails if there
/// are no such lines, or if the inputs of the value may change in between.
Transformed hold(const Program& program, Id line);

/// Computes the value of the line before its enclosing loop at line `loop` and stores it in a memory. The computation gets dedicated loops
/// over the inner loops that the value depends on. It packs a part of an operand that is read many times.
Transformed stage(const Program& program, Id line, Id loop);

/// Replaces the load at line `line` by the value of the same load that a memory holds.
Transformed recall(const Program& program, Id line, Id memory);

/// Stores the value of the store at line `line` in a memory. New loops after the enclosing loop at line `loop` then store the elements. This
/// separates long computations from stores that need a loop of their own.
Transformed defer(const Program& program, Id line, Id loop);

/// Sorts the lines directly in a loop's body, which contains no other loop, into the order of the nest's statements.
Transformed in_order(const Program& program, Id loop);

/// Computes the values of `lines`, which come before the loop at line `loop`, again inside it, right before their first use there. They
/// then occupy no registers throughout the loop.
Transformed remake(const Program& program, Id loop, const std::vector<Id>& lines);

/// Skips the loop at line `loop` where `condition` shows that nothing needs its sums. `condition` is a statement of the nest that selects
/// whether values computed from the sums are used (needed_where). Fails if it depends on values that the loop computes.
Transformed leave_out(const Program& program, Id loop, Id condition);

/// Lets the loop at line `loop`, which adds the products of two memories, leave out iterations at its start and end where one operand is +0
/// and the other operand is finite. Masks and triangular matrices have such blocks.
Transformed skip_zeros(const Program& program, Id loop);

/// Prefetches the element that the load or recall at line `line` reads `count` iterations later in the enclosing loop at line `loop`. The
/// prefetch is at that line, or before line `at` of the same loop. Loops that are not open there count as being at their start.
Transformed prefetch(const Program& program, Id line, Id loop, std::uint8_t count, Id at = kNone, Ahead ahead = Ahead::First);

/// Prefetches for several loads, each at the load, the element `bytes` bytes ahead. The elements of consecutive iterations must be
/// adjacent.
Transformed prefetch(const Program& program, const std::vector<Id>& lines, Id loop, std::size_t bytes);

/// Sets the layout of a memory's elements. Elements of the last part are adjacent.
Transformed lay_out(const Program& program, Id memory, std::vector<Memory::Part> layout);

/// Writes out the order of a sum. The loop that the accumulator sums over is split into blocks, and the blocks into lanes or groups of
/// eight. Each of these parts gets a separate accumulator. An existing split of this kind is reused, even with lanes in several parts. This
/// allows several sums of one loop to be written out one by one. Fails for sums over several loops, over a loop with another split or over
/// padded runs.
Transformed expand_order(const Program& program, Id accumulator);

/// Splits the loop at line `loop` into chunks. A kernel parameter gives their iterations: a power of two of blocks of each order. Sums of
/// the loop become one sum per chunk and a tree of these sums. Fails for sums over several loops.
Transformed factor(const Program& program, Id loop);

/// Sets how the iterations of the loop at line `loop` run. A Parallel loop must not be a reduced loop. A Vector loop may only contain
/// serial and unrolled loops, which all lanes run together; `lanes` is its number of lanes.
Transformed bind(const Program& program, Id loop, Bind how, std::uint16_t lanes = 0);

/// Makes separate code for the last vector of the vector loop at line `loop`. For a serial loop over the outer part of a split, does the
/// same for its last iteration. Only that code may handle a partial vector or iteration; other code needs no mask.
Transformed peel(const Program& program, Id loop);

/// Makes tasks start with the last iterations of the parallel loop at line `loop`. This is only a hint.
Transformed reverse(const Program& program, Id loop);

/// Marks the store at line `line` as non-temporal. This is only a hint, and it applies to whole vectors.
Transformed stream(const Program& program, Id line);

/// Makes the loop at line `loop` run all iterations of its part, even beyond the end of the split loop. Fails if the loop stores, or if its
/// sums do not have an element per iteration.
Transformed pad(const Program& program, Id loop);

}  // namespace onepass::compiler::loops
