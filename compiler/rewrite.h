// rewrite: framework for passes that decide node by node, such as simplify.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns the number of uses of each node as an operand or an output.
inline std::vector<std::uint32_t> count_uses(const ir::Graph& graph) {
  std::vector<std::uint32_t> uses(graph.size(), 0);
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    for (const std::int64_t o : graph.operands(id)) ++uses[static_cast<std::size_t>(o)];
  for (const ir::NodeId id : graph.outputs) ++uses[id];
  return uses;
}

/// Walks `graph` in topological order and calls `rule(Graph& out, ir::Node node) -> NodeId` for each node. Inputs are copied without a
/// call. `rule` may take the node's id in `graph` as a third argument, and the new ids of all previous nodes as a fourth. The node's
/// operands are already ids of `out`. New nodes get the source line and origin of the old node. Takes linear time.
template <class F> ir::Graph rewrite(const ir::Graph& graph, F rule) {
  ir::Graph out = graph.empty_copy();
  std::vector<ir::NodeId> now(graph.size(), ir::kNoNode);
  std::vector<std::int64_t> operands;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    ir::Node node = graph[id];
    out.current_source = graph.source_of[id];
    out.current_origin = graph.origin_of[id] == ir::kNoNode ? ir::kNoNode : now[graph.origin_of[id]];
    if (node.operands) {
      operands.clear();
      for (std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
      node.operands = out.intern(operands);
    }
    if (node.op == ir::Op::Input) now[id] = out.add(node);
    else if constexpr (std::is_invocable_v<F, ir::Graph&, ir::Node, ir::NodeId, const std::vector<ir::NodeId>&>)
      now[id] = rule(out, node, id, now);
    else if constexpr (std::is_invocable_v<F, ir::Graph&, ir::Node, ir::NodeId>) now[id] = rule(out, node, id);
    else now[id] = rule(out, node);
  }
  out.current_source = 0;
  out.current_origin = ir::kNoNode;
  for (ir::NodeId id : graph.outputs) out.outputs.push_back(now[id]);
  return out;
}

}  // namespace onepass::compiler
