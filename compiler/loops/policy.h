// policy: which LoopProgram a kernel runs. A schedule (compiler/plan/schedule.h) says what a nest's loops are to be; here that becomes a list
// of transformations (transform.h), each of which refuses what would change a bit.
#pragma once

#include <optional>

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// Does the kernel run a LoopProgram? The others are emitted from the nest itself (compiler/llvm/emitter.h).
bool has_program(const Nest& nest, const Schedule& schedule);

/// The program that the kernel runs, verified; that of the nest as it stands where it runs none.
Program program_of(const Nest& nest, const Schedule& schedule);

/// An elementwise nest: tasks, each a part of the vector loop, in vectors.
Program elementwise(const Nest& nest, const Schedule& schedule);

/// Reductions along the last loop: tasks are rows, whose elements go into lanes; what several sweeps over a row compute is kept.
Program along_rows(const Nest& nest, const Schedule& schedule);
/// The scratch that it takes, for all rows up to these.
bool is_along_rows(const Nest& nest);
std::int64_t scratch_bytes_along_rows(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, std::int64_t chunk);

}  // namespace onepass::compiler::loops
