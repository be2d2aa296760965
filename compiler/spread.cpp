// spread: see spread.h.
#include "compiler/spread.h"

namespace onepass::compiler {

using namespace ir;

std::uint64_t spread_axes(const Graph& graph, NodeId id, int& looks) {
  const Node node = graph[id];
  if (--looks < 0) return 0;
  if (node.op == Op::Constant || node.op == Op::Slot) return ~std::uint64_t{0};
  if (node.op == Op::Broadcast) {
    const NodeId x = graph.operand(id, 0);
    std::uint64_t axes = spread_axes(graph, x, looks);
    for (std::size_t i = 0; i < graph.shape(id).size(); ++i)
      if (graph.shape(x)[i] != graph.shape(id)[i]) axes |= std::uint64_t{1} << i;
    return axes;
  }
  if (!is_elementwise(node.op) || node.op == Op::Identity) return 0;
  std::uint64_t axes = ~std::uint64_t{0};
  for (const std::int64_t o : graph.operands(id))
    if (axes) axes &= spread_axes(graph, static_cast<NodeId>(o), looks);
  return axes;
}

}  // namespace onepass::compiler
