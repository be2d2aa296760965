// Routines: operators that precompiled code of the library computes on whole arrays: sort, argsort, search, assign (ir/ops.def, kind Routine). A plan runs
// one as a launch like that of a kernel: items that threads share, phases, scratch. Any number of threads gives the same result, since there
// is one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/plan/nest.h"
#include "compiler/plan/schedule.h"

namespace onepass::runtime {

class Kernel;

compiler::Scheduled schedule_routine(const compiler::Nest& nest, const compiler::NestNumbers& numbers, int threads);

/// All words but pointers. compiler/plan/routine.h says what the nest holds.
std::vector<std::int64_t> routine_words(const compiler::Nest& nest, const compiler::NestNumbers& numbers,
                                        const compiler::ScheduleNumbers& scheduled);

/// Its code, as a kernel.
std::shared_ptr<const Kernel> routine_kernel(const compiler::Nest& nest);

/// Where each number stands among the words.
struct RoutineWords {
  enum : std::uint32_t {
    kPhase,
    kShared,
    kX,  // pointers: the first operand, the second, the third, the result
    kValues,
    kUpdates,
    kResult,
    kType,  // of the first operand: a DType
    kVariant,
    kLength,   // of a row
    kResults,  // of a row
    kRows,
    kBlock,   // rows, or of a search values, of an item
    kChunks,  // items of a row
    kLoops,   // axes that count rows: behind it extent, then the strides of the four arrays, of each; then the strides along the row
    kFirst,
  };
  static std::uint32_t pointer(const compiler::Nest& nest, std::uint32_t buffer) {
    return buffer + 1 == nest.buffers.size() ? kResult : kX + buffer;
  }
};

/// How a sort runs, by its numbers alone.
enum class SortBy : std::uint8_t {
  Rows,    // an item sorts rows
  Shared,  // items share each row: counts by digits, then moves, phase by phase
  Select,  // the first few of each row: kept while it is read
};
SortBy sort_by(std::int64_t length, std::int64_t results, std::int64_t chunks);

}  // namespace onepass::runtime
