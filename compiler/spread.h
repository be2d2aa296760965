// spread: finds values that are constant along some axes, and builds their first elements only. simplify uses it for reductions and the
// recorder uses it for indices, so that work on equal rows happens once.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns a bit set of the axes along which a value is constant, as far as the next `looks` nodes show.
std::uint64_t spread_axes(const ir::Graph& graph, ir::NodeId id, int& looks);

/// Returns the first elements of a value, at most `extents` along the axes that spread_axes found. `add(graph, node)` adds a node.
template <class Add> ir::NodeId first_places(ir::Graph& graph, ir::NodeId id, ir::List extents, Add&& add) {
  const ir::Node node = graph[id];
  std::vector<std::int64_t> shape(graph.shape(id).begin(), graph.shape(id).end()), operands;
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = shape[i] < extents[i] ? shape[i] : extents[i];
  const ir::ListId to = graph.intern(shape);
  if (to == node.shape) return id;
  if (node.op == ir::Op::Constant) return graph.constant(node.dtype, to, node.bits);
  if (node.op == ir::Op::Slot) return graph.slot_node(static_cast<std::uint32_t>(node.bits), to);
  for (const std::int64_t o : graph.operands(id)) operands.push_back(first_places(graph, static_cast<ir::NodeId>(o), extents, add));
  return add(graph, ir::Node{node.op, node.dtype, to, graph.intern(operands), node.attributes, node.bits});
}

}  // namespace onepass::compiler
