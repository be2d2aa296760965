// fold: replaces an elementwise operator on constants by a constant. Called by simplify and by code that bakes scalar parameters into a
// plan.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns the constant that equals `node`, in its shape. `node` must be elementwise with constant operands in `out`. The reference
/// interpreter computes one element, so the constant has the bits that a kernel would produce. Every NaN becomes the positive quiet NaN
/// without payload.
ir::NodeId fold(ir::Graph& out, const ir::Node& node);

}  // namespace onepass::compiler
