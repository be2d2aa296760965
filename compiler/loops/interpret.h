// interpret: runs a LoopProgram line by line, as its text says. Slow, with no compiler behind it: tests compare kernels with it, and it with
// the reference.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

/// In which order the iterations of parallel loops run: a program that is right gives the same bits in each.
enum class TaskOrder : std::uint8_t { Forward, Reversed, Shuffled };

/// `words`: the arguments of the nest's kernel (schedule.h). Of a schedule only what no code depends on is read: lengths, maps, pointers,
/// scalar parameters. InternalError where elements are added in another order than the program's accumulators name.
void interpret(const Program& program, std::span<const std::int64_t> words, TaskOrder order = TaskOrder::Forward);

}  // namespace onepass::compiler::loops
