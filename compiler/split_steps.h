// split_steps: moves the values that the recurrence does not need out of a `steps` node (ir/steps.h). They are then computed for all steps
// at once, from the states and values that the recurrence stores. Unused states and operands disappear. Result bits do not change.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Maximum number of elements of states for which values before and after the recurrence are always computed for all steps at once: so few
/// elements do not fill a vector in each step.
inline constexpr std::int64_t kFewInStep = 512;

ir::Graph split_steps(ir::Graph graph);

}  // namespace onepass::compiler
