// Cost model of a kernel: estimated compile and run times in nanoseconds. The factors were measured by bench/tiers on an Intel Xeon of the
// Sapphire Rapids family. The estimates decide between tiers and between generic and specialized kernels; they never affect results.
#pragma once

#include <cstdint>

#include "compiler/plan/schedule.h"
#include "compiler/target.h"
#include "ir/ops.h"

namespace onepass::compiler {

struct TierTimes {
  double quick = 0, optimised = 0;
};

/// Returns the approximate number of instructions that elementwise operator `op` takes on one vector.
inline int instructions_of(ir::Op op) { return ir::info(op).kind == ir::OpKind::Expanded ? 24 : 1; }

/// Times of the generic kernel, or of the specialized one, which has the code of all operators in place.
TierTimes compile_times(const Nest& nest, const Schedule& schedule, bool specialised = false);

/// Estimates one run of all tasks on one thread. `work` is ScheduleNumbers::work; `bytes` is the memory traffic of the run.
TierTimes run_times(const Nest& nest, double work, double bytes);

/// Returns the fraction of a run that a kernel specialized for one shape saves. Most of the saving is work at the start of each vector
/// loop. The fraction is 1/2 if that loop is as short as a register and 1/64 if it is long. A generic kernel that calls functions takes
/// longer by 1/16, and by 1/4 with 16 vector registers.
double saved_by_specializing(std::int64_t vector_loop_extent, const Schedule& schedule, const Target& target);

}  // namespace onepass::compiler
