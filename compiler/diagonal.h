// diagonal: the elements along one diagonal of a value, as a node. Called by the recorder.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Diagonal that consists of the elements (i + max(0, -offset), i + max(0, offset)) of axes axis1 and axis2, i < count.
struct Diagonal {
  std::int64_t offset, axis1, axis2, count;
};

/// Returns the other axes of x followed by the diagonal. If x is a contraction, or elementwise operators on a contraction, only diagonal
/// elements are contracted: k products each, in the order of the whole contraction. Otherwise returns a view.
ir::NodeId diagonal(ir::Graph& graph, ir::NodeId x, const Diagonal& where);

}  // namespace onepass::compiler
