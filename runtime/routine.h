// Routines: operators that precompiled library code computes on whole arrays: sort, argsort, search, assign (ir/ops.def, kind Routine). A
// plan launches a routine like a kernel: tasks divided among threads, phases, scratch memory. The result is unique, so it does not depend
// on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/plan/nest.h"
#include "compiler/plan/schedule.h"

namespace onepass::runtime {

class Kernel;

compiler::Scheduled schedule_routine(const compiler::Nest& nest, const compiler::NestNumbers& numbers, const compiler::Target& target,
                                     int threads);

/// Returns all kernel parameters except pointers. compiler/plan/routine.h defines the nest.
std::vector<std::int64_t> routine_words(const compiler::Nest& nest, const compiler::NestNumbers& numbers,
                                        const compiler::ScheduleNumbers& scheduled);

/// Returns the routine's code as a kernel.
std::shared_ptr<const Kernel> routine_kernel(const compiler::Nest& nest);

/// Indices of a routine's kernel parameters.
struct RoutineWords {
  enum : std::uint32_t {
    kPhase,
    kShared,
    kX,  // pointers: the first three operands and the result
    kValues,
    kUpdates,
    kResult,
    kType,  // DType of the first operand
    kVariant,
    kLength,   // length of a row
    kResults,  // results of a row
    kRows,
    kBlock,   // rows of a task or, for a search, values
    kChunks,  // tasks of a row
    kBy,      // SortBy of a sort
    kLoops,   // row axes; then, for each axis, extent and strides of the four arrays; then the strides along the row
    kFirst,
  };
  static std::uint32_t pointer(const compiler::Nest& nest, std::uint32_t buffer) {
    return buffer + 1 == nest.buffers.size() ? kResult : kX + buffer;
  }
};

/// Method of a sort. The result does not depend on it.
enum class SortBy : std::uint8_t {
  Rows,     // each task sorts rows
  Network,  // each task sorts short rows together, in the lanes of vectors
  Shared,   // tasks share each row: counts by digits, then moves, phase by phase
  Counts,   // bytes: the counts of each value say where elements go; tasks may share each row
  Select,   // the first few of each row: selected while it is read
};

}  // namespace onepass::runtime
