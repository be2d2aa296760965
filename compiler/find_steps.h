// find_steps: turns a long recurrence that was written out step by step into one `steps` node (ir/steps.h). The recurrence comes from a
// loop with state or a loop of the host program. Other computations on its states then read them from an array. Runs after simplify and
// before reroll, which joins copies of such computations. Result bits do not change.
#pragma once

#include <optional>

#include "compiler/join_equal.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// Minimum total node count of a recurrence of which only the last states are read. A smaller recurrence stays written out: its kernels
/// compile quickly and need no array of all states.
inline constexpr std::int64_t kFewestInSteps = 4096;
/// Minimum step count of such a recurrence. Fewer steps stay written out, because each operator of a long step has its own instructions
/// anyway.
inline constexpr std::int64_t kFewestSteps = 64;
/// Minimum step count of a recurrence on at most kFewElements whose states are read step by step. Written out, it would have a kernel for
/// every few steps, and code that grows with the square of their number.
inline constexpr std::int64_t kFewestReadSteps = 16, kFewElements = 512;

/// Returns nullopt if there is no recurrence. `is_brought(slot)` is true if another call of the plan may have another value in that scalar
/// parameter. Other scalar parameters of equal type and value are treated as one, so that the literals of the steps match. If it is null,
/// all scalar parameters count as varying.
std::optional<ir::Graph> find_steps(const ir::Graph& graph, const IsBrought& is_brought = {});

}  // namespace onepass::compiler
