// See routine_operands.h.
#include "compiler/routine_operands.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "compiler/rewrite.h"
#include "compiler/strided.h"

namespace onepass::compiler {

using namespace ir;

namespace {

// The checked indices of Assign without the axes along which they are equal: the routine reads them with stride 0.
NodeId without_broadcast(const Graph& graph, NodeId places, std::int64_t axis) {
  const NodeId from = graph[places].op == Op::Broadcast ? graph.operand(places, 0) : places;
  const auto along = static_cast<std::size_t>(axis);
  return graph.shape(from)[along] == graph.shape(places)[along] ? from : places;
}

// True if steps can read the view in its array, whatever the layout of an argument or of a result. Elements that are apart are gathered
// one by one, so copying them is faster. A value that is not stored anyway is stored as the view, unless it has as many elements.
bool is_read_in_place(const Graph& graph, NodeId view) {
  const NodeId base = base_of_views(graph, view);
  const Op op = graph[base].op;
  if (op == Op::Piecewise || (is_source(op) && op != Op::Input)) return false;
  if (op != Op::Input && !is_routine(op) && graph.elements(base) != graph.elements(view)) return false;
  const List shape = graph.shape(base);
  const bool is_given = op == Op::Input || std::ranges::count(graph.outputs, base) != 0;
  std::optional<std::vector<std::int64_t>> strides = is_given ? any_strides(shape) : contiguous_strides(shape);
  if (!strides) return false;
  const std::optional<Strided> read = as_strided(graph, view, *std::move(strides));
  return read && (graph.shape(view).back() == 1 || read->strides.back() == 0 || read->strides.back() == 1);
}

}  // namespace

Graph copy_routine_operands(Graph graph) {
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.size()), [&](NodeId id) { return is_routine(graph[id].op); })) return graph;
  Graph out = rewrite(graph, [&](Graph& to, Node node, NodeId id) {
    if (!is_routine(node.op)) return to.add(node);
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : to.list(node.operands)) {
      auto x = static_cast<NodeId>(o);
      const NodeId was = graph.operand(id, static_cast<int>(operands.size()));
      if (node.op == Op::Assign && operands.size() == 1) x = without_broadcast(to, x, to.list(node.attributes)[0]);
      const Node of = to[x];
      const bool is_copied = is_view(of.op) ? node.op != Op::Steps || !is_read_in_place(graph, was)
                                            : of.op == Op::Piecewise || (is_source(of.op) && of.op != Op::Input);
      operands.push_back(is_copied ? to.add(Op::Identity, of.dtype, of.shape, {x}) : x);
    }
    node.operands = to.intern(operands);
    return to.add(node);
  });
  out.output_names = graph.output_names;
  return prune(std::move(out));
}

}  // namespace onepass::compiler
