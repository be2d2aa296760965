// See routine_operands.h.
#include "compiler/routine_operands.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "compiler/rewrite.h"

namespace onepass::compiler {

using namespace ir;

Graph copy_routine_operands(Graph graph) {
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.size()), [&](NodeId id) { return is_routine(graph[id].op); })) return graph;
  Graph out = rewrite(graph, [](Graph& to, Node node) {
    if (!is_routine(node.op)) return to.add(node);
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : to.list(node.operands)) {
      const auto x = static_cast<NodeId>(o);
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
