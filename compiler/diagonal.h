// diagonal: the elements of a value along one of its diagonals, as a node. Called while recording.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Where a diagonal runs: the elements (i + max(0, -offset), i + max(0, offset)) of axes axis1 and axis2, i < count.
struct Diagonal {
  std::int64_t offset, axis1, axis2, count;
};

/// The other axes of x, then the diagonal. Of a contraction, and of what elementwise operators compute from one, only the elements of the
/// diagonal are contracted: k products for each, in the order of the whole contraction. Anything else is a view.
ir::NodeId diagonal(ir::Graph& graph, ir::NodeId x, const Diagonal& where);

}  // namespace onepass::compiler
