// find_steps: a long recurrence that was written out step by step, by a loop with state or a loop of the host, becomes a node `steps` (ir/steps.h), and
// what else is computed of its states reads them from an array. After simplify, before reroll, which joins those copies; bits unchanged.
#pragma once

#include <functional>
#include <optional>

#include "ir/graph.h"

namespace onepass::compiler {

/// Fewer nodes than this of all steps that are one stay written out: their kernels compile in no time and need no array of all states.
inline constexpr std::int64_t kFewestInSteps = 4096;
/// And so do fewer steps: of a long step each operator has its own instructions anyway.
inline constexpr std::int64_t kFewestSteps = 64;

/// None where there is none. `is_brought`: another call of the plan has another value in this slot. Other slots of one type and value are taken for
/// one, so that the literals of the steps are alike; null: all are taken for brought.
std::optional<ir::Graph> find_steps(const ir::Graph& graph, const std::function<bool(std::uint32_t slot)>& is_brought = {});

}  // namespace onepass::compiler
