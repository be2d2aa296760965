// diagonal: see diagonal.h.
//
//   diagonal(relu(a @ b + c))      a as [i, 1, k], b as [1, j, k], both broadcast to [i, j, k]; contract_rows over k
//     relu(contract_rows(a as [d, k], b as [d, k]) + diagonal(c)) over d
#include "compiler/diagonal.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "compiler/contract.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr std::size_t kMostOperators = 256;  // between the diagonal and the contractions

std::vector<std::int64_t> shape_of_diagonal(List shape, const Diagonal& where) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i)
    if (i != where.axis1 && i != where.axis2) out.push_back(shape[static_cast<std::size_t>(i)]);
  out.push_back(where.count);
  return out;
}

NodeId view_of(Graph& graph, NodeId x, const Diagonal& where) {
  const std::int64_t attributes[] = {where.offset, where.axis1, where.axis2};
  return graph.add(Op::Diagonal, graph[x].dtype, graph.intern(shape_of_diagonal(graph.shape(x), where)), {x}, attributes);
}

bool is_passed(const Graph& graph, NodeId id) {
  const Op op = graph[id].op;
  return is_elementwise(op) && (op != Op::Identity || graph.attributes(id).empty());  // an Identity with attributes has a custom derivative
}

// Returns x and the elementwise operators between x and its contractions, in graph order; empty if there is no contraction.
std::vector<NodeId> operators_of_contractions(const Graph& graph, NodeId x) {
  std::vector<NodeId> found = {x};
  bool any = false;
  for (std::size_t next = 0; next < found.size(); ++next) {
    const NodeId id = found[next];
    if (is_contraction(graph[id].op)) any = true;
    if (!is_passed(graph, id)) continue;
    for (const std::int64_t o : graph.operands(id))
      if (const auto operand = static_cast<NodeId>(o); std::ranges::find(found, operand) == found.end()) found.push_back(operand);
    if (found.size() > kMostOperators) return {};
  }
  if (!any) return {};
  std::ranges::sort(found);
  return found;
}

}  // namespace

NodeId diagonal(Graph& graph, NodeId x, const Diagonal& where) {
  const std::vector<NodeId> found = where.count > 0 && graph.elements(x) > 0 ? operators_of_contractions(graph, x) : std::vector<NodeId>();
  if (found.empty()) return view_of(graph, x, where);
  std::unordered_map<NodeId, NodeId> made;
  for (const NodeId id : found) {
    Node node = graph[id];
    const ListId shape = graph.intern(shape_of_diagonal(graph.shape(id), where));
    if (is_contraction(node.op)) {
      made[id] = contraction_of_diagonal(graph, id, where.offset, where.axis1, where.axis2, where.count);
    } else if (is_passed(graph, id)) {
      std::vector<std::int64_t> operands;
      for (const std::int64_t o : graph.operands(id)) operands.push_back(made.at(static_cast<NodeId>(o)));
      node.operands = graph.intern(operands);
      node.shape = shape;
      made[id] = graph.add(node);
    } else if (node.op == Op::Constant || node.op == Op::Slot) {
      node.shape = shape;
      made[id] = graph.add(node);
    } else {
      made[id] = view_of(graph, id, where);
    }
  }
  return made.at(x);
}

}  // namespace onepass::compiler
