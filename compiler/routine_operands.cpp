// See routine_operands.h.
#include "compiler/routine_operands.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "compiler/rewrite.h"

namespace onepass::compiler {

using namespace ir;

namespace {

// The checked indices of Assign without the axes along which they are equal: the routine reads them with stride 0.
NodeId without_broadcast(const Graph& graph, NodeId places, std::int64_t axis) {
  const NodeId from = graph[places].op == Op::Broadcast ? graph.operand(places, 0) : places;
  const auto along = static_cast<std::size_t>(axis);
  return graph.shape(from)[along] == graph.shape(places)[along] ? from : places;
}

}  // namespace

Graph copy_routine_operands(Graph graph) {
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.size()), [&](NodeId id) { return is_routine(graph[id].op); })) return graph;
  Graph out = rewrite(graph, [](Graph& to, Node node) {
    if (!is_routine(node.op)) return to.add(node);
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : to.list(node.operands)) {
      auto x = static_cast<NodeId>(o);
      if (node.op == Op::Assign && operands.size() == 1) x = without_broadcast(to, x, to.list(node.attributes)[0]);
      const Node of = to[x];
      const bool is_copied = is_view(of.op) || of.op == Op::Piecewise || (is_source(of.op) && of.op != Op::Input);
      operands.push_back(is_copied ? to.add(Op::Identity, of.dtype, of.shape, {x}) : x);
    }
    node.operands = to.intern(operands);
    return to.add(node);
  });
  out.output_names = graph.output_names;
  return prune(std::move(out));
}

}  // namespace onepass::compiler
