// contract: the policy for contractions of outer rows with a free index in each operand. The kernel computes one tile of the result at a
// time and keeps its sums in registers during the reduced loop. The policy chooses the transformations and their order, independently of
// the code that emitters write for them.
#pragma once

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// Loops and operands of a contraction that can run in register tiles. One operand varies along the last outer loop and the reduced loop,
/// the other operand varies along the vector loop and the reduced loop. Vectors run along the columns.
struct Contraction {
  Id row_loop, column_loop, reduced_loop;
  Id sum;            // the statement that sums
  Id rows, columns;  // statements of the operands
};
/// Returns the contraction in the nest; `sum` is kNone if there is none. With `swapped`, the operand that varies along the vector loop is
/// `rows`.
Contraction contraction_of(const Nest& nest, bool swapped = false);

/// Chooses the register tile for these numbers and the part of the result that a task computes. Returns false if the nest is not a
/// contraction or has too few rows.
bool choose_tile(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options, RegisterTile& tile,
                 ScheduleNumbers& schedule);

/// Returns the loop program of the contraction. Throws InternalError if the nest is not a contraction in register tiles.
Program contract(const Nest& nest, const RegisterTile& tile);

/// Returns the bytes of scratch buffers that the kernel needs for these numbers.
std::int64_t scratch_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile, const ScheduleNumbers& schedule);

/// Returns the bytes of memory that tasks share: columns packed in a separate phase.
std::int64_t shared_bytes(const Nest& nest, const NestNumbers& numbers, const RegisterTile& tile);

}  // namespace onepass::compiler::loops
