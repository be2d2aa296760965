// Transformations of LoopPrograms. Each is a function from one program to another that computes the same bits, or an error that says why it
// may not be done there. Policies compose them; back ends take what comes out.
#pragma once

#include <string>
#include <variant>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

/// A program, or why there is none.
class Transformed {
 public:
  Transformed(Program program) : value_(std::move(program)) {}        // NOLINT: either is a result
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

/// The loop at line `loop` becomes two, one inside the other: the inner one has `by` iterations, the last time perhaps fewer. Always possible.
Transformed split(const Program& program, Id loop, std::int64_t by);

/// The same, where the call says how many iterations the inner one has: as many of the vector loop, or of the last outer loop, as an item has.
Transformed split(const Program& program, Id loop, Digit::Size size);

/// The outer part of a split, at line `loop`, has one iteration. Of loops that are no longer than the inner part: the interpreter looks.
Transformed once(const Program& program, Id loop);

/// The values that the loop at line `loop` computes before the one loop in its body are computed inside that instead: the two may then change
/// places.
Transformed sink(const Program& program, Id loop);

/// The values in the body of the loop at line `loop` that do not depend on it are computed before it, once.
Transformed lift(const Program& program, Id loop);

/// The loop at line `loop` and the one that is all of its body change places. Not where elements would be added in another order.
Transformed interchange(const Program& program, Id loop);

/// The loop at line `loop` becomes two, one after the other: the first runs the lines before `at`, a line of its body in no further loop, the
/// second the rest. Values of the first that the second needs are computed again; sums that the second reads get an element for each
/// iteration. Not where the first one stores and the second one loads: they may be the same array, unless `apart`: an element is stored and loaded
/// in one iteration alone, as where a result may be written over an argument (runtime/aliases.h). `keep`: loaded and computed values are kept in
/// memory for the second loop instead.
Transformed fission(const Program& program, Id loop, Id at, bool keep = false, bool apart = false);

/// What the line computes is kept in a memory, and each later line that would compute the same again, in other loops, recalls it. Not where
/// there is none, or where what it is computed from may have changed in between.
Transformed hold(const Program& program, Id line);

/// What the line computes is computed before the loop at line `loop`, which is around it, in loops of its own over what it depends on inside
/// that loop, and kept in a memory. A part of an operand that is read many times is packed so.
Transformed stage(const Program& program, Id line, Id loop);

/// The lines of a loop's body, in which no further loop stands, in the order of the nest's statements.
Transformed in_order(const Program& program, Id loop);

/// Lines before the loop at line `loop`, each a value, are computed again inside it, in front of what reads them first there, rather than kept
/// in registers all the while.
Transformed remake(const Program& program, Id loop, const std::vector<Id>& lines);

/// The loop at line `loop` is left out where nothing needs its sums, as far as the condition says: a statement of the nest that chooses
/// whether what is computed from them is used (needed_where). Not where it depends on what the loop computes.
Transformed leave_out(const Program& program, Id loop, Id condition);

/// What the load at line `line` reads `count` iterations later of the loop at line `loop`, which is around it, is asked for: at the load, or
/// before line `at`, which is in the same loop. What it asks for in loops that are not open there is at their beginning.
Transformed prefetch(const Program& program, Id line, Id loop, std::uint8_t count, Id at = kNone, Ahead ahead = Ahead::First);

/// The same of several loads, each where it stands, of what lies `bytes` further on where the elements of an iteration lie side by side.
Transformed prefetch(const Program& program, const std::vector<Id>& lines, Id loop, std::size_t bytes);

/// How a memory's elements lie, the last part's side by side.
Transformed lay_out(const Program& program, Id memory, std::vector<Memory::Part> layout);

/// The order of a sum written out: the loop that the accumulator is summed over is split into blocks, and these into lanes or groups of eight;
/// what is added up in each of these gets an accumulator of its own. A loop that was split so already stays, the lanes in several parts perhaps:
/// several sums of one loop are written out one by one. Not where it is summed over several loops, over one that was split otherwise, or over
/// runs that are padded.
Transformed expand_order(const Program& program, Id accumulator);

/// The loop at line `loop` is split into chunks, of as many iterations as the call says: whole blocks of each order, a power of two of them. What is
/// added up in it is added up in each chunk, and the sums of these as a tree. Not where it is summed over several loops.
Transformed factor(const Program& program, Id loop);

/// How the iterations of the loop at line `loop` run. Parallel: not a reduced loop. Vector: no loop inside it is opened; of so many lanes.
Transformed bind(const Program& program, Id loop, Bind how, std::uint16_t lanes = 0);

/// The last vector of the vector loop at line `loop`, or the last iteration of a serial loop over the outer part of a split, which may have
/// fewer elements, is code of its own, so that the others need no mask.
Transformed peel(const Program& program, Id loop);

/// Tasks begin with the last iterations of the parallel loop at line `loop`: a hint.
Transformed reverse(const Program& program, Id loop);

/// The store at line `line` bypasses the caches: of whole vectors, a hint.
Transformed stream(const Program& program, Id line);

/// The loop at line `loop` runs all iterations of the part that it is, beyond the end too. Where nothing is stored, and what is added up has an
/// element for each.
Transformed pad(const Program& program, Id loop);

}  // namespace onepass::compiler::loops
