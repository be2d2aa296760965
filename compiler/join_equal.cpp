// See join_equal.h.
#include "compiler/join_equal.h"

#include <map>
#include <utility>

#include "compiler/rewrite.h"
#include "ir/ops.h"

namespace onepass::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;

namespace {

bool is_worth_keeping(const Node& node) {
  const ir::OpInfo& info = ir::info(node.op);
  switch (info.kind) {
    case ir::OpKind::Expanded: return true;
    case ir::OpKind::Primitive: return is_float(node.dtype) && (info.traits & ir::kLong) != 0;
    default: return ir::is_reduction(node.op) || ir::is_contraction(node.op) || ir::is_scan(node.op);
  }
}

}  // namespace

std::vector<std::uint32_t> equal_slots(const Graph& graph, const IsBrought& is_brought) {
  std::map<std::pair<DType, std::uint64_t>, std::uint32_t> first;
  std::vector<std::uint32_t> equal(graph.slots.size());
  for (std::uint32_t s = 0; s < graph.slots.size(); ++s)
    equal[s] = is_brought && is_brought(s) ? s : first.try_emplace({graph.slots[s].dtype, graph.slots[s].bits}, s).first->second;
  return equal;
}

Graph join_equal(Graph graph, const IsBrought& is_brought) {
  if (!is_brought) return graph;
  const std::vector<std::uint32_t> equal = equal_slots(graph, is_brought);
  bool any = false;
  for (std::uint32_t s = 0; s < equal.size(); ++s) any |= equal[s] != s;
  if (!any) return graph;

  std::vector<NodeId> same(graph.size(), ir::kNoNode);  // by node: its id among the values of joined parameters
  static_cast<void>(rewrite(graph, [&](Graph& to, Node node, NodeId id) {
    if (node.op == Op::Slot) node.bits = equal[node.bits];
    return same[id] = to.add(node);
  }));
  std::vector<NodeId> first(graph.size(), ir::kNoNode);
  any = false;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (same[id] == ir::kNoNode || !is_worth_keeping(graph[id])) continue;
    if (first[same[id]] == ir::kNoNode) first[same[id]] = id;
    any |= first[same[id]] != id;
  }
  if (!any) return graph;
  return ir::prune(rewrite(graph, [&](Graph& to, const Node& node, NodeId id, const std::vector<NodeId>& now) {
    const NodeId one = same[id] == ir::kNoNode ? ir::kNoNode : first[same[id]];
    return one == ir::kNoNode || one == id ? to.add(node) : now[one];
  }));
}

}  // namespace onepass::compiler
