// contract: how a contraction of rows with a free index in each operand runs: a tile of its result at a time, whose sums stay in registers
// while the reduced loop runs. A policy: it says which transformations, in which order, and knows nothing of how their result is spelled.
#pragma once

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// Loops and operands of a contraction that can run in register tiles: one operand varies along the last outer loop and the reduced one, the
/// other along the vector loop and the reduced one. Vectors lie along the columns.
struct Contraction {
  Id row_loop, column_loop, reduced_loop;
  Id sum;            // the statement that adds up
  Id rows, columns;  // the statements of the operands
};
/// Whether the nest is one; if not, `sum` is kNone. `swapped`: what varies along the vector loop is called its rows.
Contraction contraction_of(const Nest& nest, bool swapped = false);

/// The tile that suits these numbers, and which part of the result an item is; false where the nest is no contraction or has too few rows.
bool choose_tile(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options, RegisterTile& tile,
                 ScheduleNumbers& schedule);

/// Its program. InternalError where the nest is no such contraction.
Program contract(const Nest& nest, const RegisterTile& tile);

/// The bytes of scratch that its kernel needs for these numbers.
std::int64_t scratch_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile, const ScheduleNumbers& schedule);

/// The bytes that hold what its items share: columns that are packed in a phase of their own.
std::int64_t shared_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile);

}  // namespace onepass::compiler::loops
