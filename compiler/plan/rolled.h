// rolled: iterations that a program has written out, found again in a Nest's body, so that they run as a loop of few instructions: a
// recurrence of 256 steps, recorded by a loop of the host language, is 256 copies of the same statements with other numbers. Called by
// schedule; emit_rolled.cpp spells it.
#pragma once

#include <cstdint>

#include "compiler/plan/nest.h"

namespace onepass::compiler {

/// Statements begin .. begin + period * count are `count` iterations. Statement k of one is statement k of the next: the same operator;
/// of each operand that is a value of an iteration the next one's, or the same value from before the loop; of each slot the one `slots`
/// further on. What an iteration reads of the one before it, the first reads from before the loop. Only values of the last are read after it.
struct Rolled {
  std::uint32_t begin = 0, period = 0, count = 0;  // count 0: none
  std::uint32_t slots = 0;
  std::uint32_t end() const { return begin + period * count; }
  std::uint32_t last() const { return end() - period; }
  bool holds(std::uint32_t statement) const { return statement >= begin && statement < end(); }
  bool operator==(const Rolled&) const = default;
};

/// Instructions of the vector loop, about, that a statement is: for each register.
std::uint32_t instructions_of(const Nest& nest, std::uint32_t statement);

/// The iterations that make up most of a map's body; none where it is short anyway. `registers`: that the body works on at once.
Rolled rolled(const Nest& nest, std::uint32_t registers);

}  // namespace onepass::compiler
