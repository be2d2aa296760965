// joined: rewrites sums of products over several loops as sums over one loop. They can then run in register tiles
// (compiler/loops/contract.h), because one reduced loop can be cut into summation blocks and packed.
#pragma once

#include <optional>
#include <vector>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// Returns the contraction `piece` with its reduced loops replaced by one loop over the same elements in the same order. If an array's
/// stride is not constant along the new loop, its affine map gets floordiv/mod variables of the loop index.
/// Returns nullopt if `piece` is not a contraction with several reduced loops, or if the result could not run in register tiles.
std::optional<Planned> joined(const Planned& piece);

/// Joins the reduced loops of each piece that can then run in register tiles.
void join_reduced_loops(std::vector<Planned>& pieces, const Target& target, const ScheduleOptions& options);

}  // namespace onepass::compiler
