// join_steps: moves elementwise values of all steps that only one loop reads into the lines of its `steps` node (ir/steps.h). They are then
// computed in registers, step by step, and no array of them is stored. The other direction is split_steps. Result bits do not change.
//
//   g = (y - x)*2; a = steps(…, g)                 the loop reads y and x, and computes g
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Leaves loops alone whose states have few elements: values of all steps fill vectors, their steps do not.
ir::Graph join_steps(ir::Graph graph);

}  // namespace onepass::compiler
