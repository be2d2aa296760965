// interpret: runs a LoopProgram line by line, as its printed form says. It is slow and needs no compiler. Tests compare kernels with it,
// and compare it with the reference.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

/// Order in which iterations of parallel loops run. A correct program gives the same bits in each order.
enum class TaskOrder : std::uint8_t { Forward, Reversed, Shuffled };

/// Runs `program`. `words` are the kernel parameters (schedule.h); only lengths, maps, pointers, scalar parameters and sizes of parts are
/// read. Throws InternalError if elements are added in another order than the program's accumulators define.
void interpret(const Program& program, std::span<const std::int64_t> words, TaskOrder order = TaskOrder::Forward);

}  // namespace onepass::compiler::loops
