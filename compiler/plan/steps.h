// Schedule and kernel parameters of kernels that run steps (ir/steps.h). compiler/plan/routine.h plans them; compiler/llvm/emit_steps.cpp
// emits their code.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

Scheduled schedule_steps(const Nest& nest, const NestNumbers& numbers, const Target& target, int threads);

/// Returns all kernel parameters except pointers.
std::vector<std::int64_t> steps_words(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& scheduled);

/// Positions of the kernel parameters.
struct StepsWords {
  enum : std::uint32_t {
    kPhase,
    kShared,
    kCount,     // number of steps
    kElements,  // elements of a state
    kTile,      // elements per task
    kFirst,     // for each buffer: pointer, byte stride along steps, byte stride along elements
  };
  static std::uint32_t pointer(std::uint32_t buffer) { return kFirst + 3 * buffer; }
};

}  // namespace onepass::compiler
