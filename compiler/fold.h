// fold: an elementwise operator on constants becomes a constant. simplify calls it, and so does whatever bakes slots into a plan.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// `node` is elementwise and its operands are constants of `out`. The constant that it is, of its shape: the reference computes one
/// element, so a folded constant has the bits that a kernel would have made. A NaN is made the one quiet NaN, positive and without payload.
ir::NodeId fold(ir::Graph& out, const ir::Node& node);

}  // namespace onepass::compiler
