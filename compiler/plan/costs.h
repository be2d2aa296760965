// What a kernel costs, about, in nanoseconds: to compile, and to run. The factors were measured by bench/tiers on one machine (a Xeon of
// the Sapphire Rapids family). Choices between tiers, and between generic and specialised kernels, follow these numbers; results never.
#pragma once

#include <cstdint>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

struct TierTimes {
  double quick = 0, optimised = 0;
};

TierTimes compile_times(const Nest& nest, const Schedule& schedule);

/// One run of all items on one thread. `work`: ScheduleNumbers::work; `bytes`: that the run moves.
TierTimes run_times(const Nest& nest, double work, double bytes);

}  // namespace onepass::compiler
