// Schedule of kernels that run steps (ir/steps.h). compiler/plan/routine.h plans them as a nest of two loops, over the steps and over the
// elements of a state. compiler/llvm/emit_steps.cpp emits their code. compiler/tiles runs them until it is compiled.
#pragma once

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

Scheduled schedule_steps(const Nest& nest, const NestNumbers& numbers, const Target& target, const ScheduleOptions& options);

}  // namespace onepass::compiler
