// What a kernel costs, about, in nanoseconds: to compile, and to run. The factors were measured by bench/tiers on one machine (a Xeon of
// the Sapphire Rapids family). Choices between tiers, and between generic and specialised kernels, follow these numbers; results never.
#pragma once

#include <cstdint>

#include "compiler/plan/schedule.h"
#include "ir/ops.h"

namespace onepass::compiler {

struct TierTimes {
  double quick = 0, optimised = 0;
};

/// Of an elementwise operator on one vector, about.
inline int instructions_of(ir::Op op) { return ir::info(op).kind == ir::OpKind::Expanded ? 24 : 1; }

TierTimes compile_times(const Nest& nest, const Schedule& schedule);

/// One run of all items on one thread. `work`: ScheduleNumbers::work; `bytes`: that the run moves.
TierTimes run_times(const Nest& nest, double work, double bytes);

/// The part of a run that a kernel for one shape alone saves. Most of it is what is done once for each run through the vector loop, so that
/// it is half of the run where the loop is as short as a register, and a 64th where it is long.
double saved_by_specializing(std::int64_t vector_loop_extent);

}  // namespace onepass::compiler
