// policy: chooses the LoopProgram of a kernel. It translates the decisions of a schedule (compiler/plan/schedule.h) into transformations
// (transform.h), each of which rejects changes to result bits.
#pragma once

#include <optional>

#include "compiler/loops/program.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler::loops {

/// True if the kernel runs a LoopProgram. Other kernels are emitted from the nest itself (compiler/llvm/emitter.h).
bool has_program(const Nest& nest, const Schedule& schedule);

/// Returns the verified program that the kernel runs. For a kernel without a program, returns the program of the unmodified nest.
Program program_of(const Nest& nest, const Schedule& schedule);

/// Returns the program of an elementwise nest: each task is a part of the vector loop and runs in vectors.
Program elementwise(const Nest& nest, const Schedule& schedule);

/// Returns the program of reductions along the last loop: tasks are rows, whose elements go into lanes. Values needed by several sweeps are
/// cached in row buffers. With Schedule::row_lanes, tasks are groups of rows, which go into lanes.
Program along_rows(const Nest& nest, const Schedule& schedule);
/// is_along_rows() is true if along_rows() applies. scratch_bytes_along_rows() returns the scratch bytes that its program needs for rows up
/// to these lengths.
bool is_along_rows(const Nest& nest);
std::int64_t scratch_bytes_along_rows(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, std::int64_t chunk);

/// Returns the program of an outer-axis reduction whose reduced loop runs inside the vector loop, with the sums in registers
/// (Schedule::reduced_inside). Tasks are parts of the vector loop.
Program reduced_inside(const Nest& nest, const Schedule& schedule);
/// True if reduced_inside() applies and pays: no array is read along both loops, so that each vector reads its elements once, or the nest
/// reduces windows that overlap.
bool can_reduce_inside(const Nest& nest, const NestNumbers& numbers);
/// Returns the lanes of its vectors: as many registers as hold the sums and the values that the reduced loop reads again.
int width_inside(const Nest& nest, const Target& target, std::int64_t columns);
std::int64_t scratch_bytes_inside(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers);

}  // namespace onepass::compiler::loops
