// rolled: finds iterations that a program has written out in the body of a loop nest and rerolls them into a loop of few instructions.
// Example: a host loop that records a recurrence of 256 steps makes 256 copies of the same statements with other numbers. schedule() calls
// it; emit_rolled.cpp emits the loop.
#pragma once

#include <cstdint>

#include "compiler/plan/nest.h"

namespace onepass::compiler {

/// Rerolled loop: statements begin .. begin + period * count are `count` iterations. Statement k of each iteration has the same operator.
/// Its operands are either the corresponding values of the same or the preceding iteration, or one value from before the loop. The
/// index of its scalar parameter grows by `slots` in each iteration.
///
/// The first iteration reads initial values from before the loop. Statements after the loop read only values of the last iteration.
struct Rolled {
  std::uint32_t begin = 0, period = 0, count = 0;  // count 0: no rerolled loop
  std::uint32_t slots = 0;
  std::uint32_t end() const { return begin + period * count; }
  std::uint32_t last() const { return end() - period; }
  bool holds(std::uint32_t statement) const { return statement >= begin && statement < end(); }
  bool operator==(const Rolled&) const = default;
};

/// Returns the approximate number of vector-loop instructions of a statement, per register.
std::uint32_t instructions_of(const Nest& nest, std::uint32_t statement);

/// Returns the iterations that make up most of an elementwise nest's body; none if the body is short. `registers` is the number of
/// registers that the body works on at once.
Rolled rolled(const Nest& nest, std::uint32_t registers);

}  // namespace onepass::compiler
