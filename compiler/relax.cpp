// relax: rewrites that depart from strict arithmetic, as the caller allows. Only floats change; views stay as they are. Reductions
// keep their order, but distribute_sums changes what they add.
//   reassociate   compiler/reassociate.cpp, then compiler/distribute_sums.cpp
//   approximate   c + tanh(u) -> (c - 1) + 2*sigmoid(2*u)     for a uniform c
//                 1 - tanh(u)*tanh(u) -> 4*s*(1 - s), s = sigmoid(2*u), if tanh(u) has no other use: the derivative of such a sum
//                 exp, log, tanh, sigmoid, erf, rsqrt -> cheaper expansions, written out (ir/expand_approximate.cpp)
//   contract      a*b + c -> fma(a, b, c): the product is not rounded before the addition
//                 sum(a*b) over the last axes -> contract_lanes(a, b): the same order, with each product added by fma
// relax leaves a sum(a*b) unchanged if it shares its loops with another reduction or an elementwise nest. A contraction cannot share its
// loops.
#include "compiler/relax.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/distribute_sums.h"
#include "compiler/reassociate.h"
#include "compiler/rewrite.h"
#include "ir/build.h"
#include "ir/order.h"

namespace onepass::compiler {

using namespace ir;

namespace {

// ------------------------------------------------------------------------------------------------ contract

Graph contract(const Graph& graph) {
  return rewrite(graph, [](Graph& out, const Node& node) -> NodeId {
    if ((node.op != Op::Add && node.op != Op::Sub) || !is_float(node.dtype)) return out.add(node);
    const NodeId a = static_cast<NodeId>(out.operands(node)[0]), b = static_cast<NodeId>(out.operands(node)[1]);
    const bool minus = node.op == Op::Sub;
    const auto fma = [&](NodeId product, NodeId addend, bool negative_product, bool negative_addend) {
      const bool square = out[product].op == Op::Square;
      NodeId x = out.operand(product, 0);
      const NodeId y = square ? x : out.operand(product, 1);
      const auto negated = [&](NodeId id) { return out.add(Op::Neg, node.dtype, node.shape, {id}); };
      if (negative_product) x = negated(x);
      return out.add(Op::Fma, node.dtype, node.shape, {x, y, negative_addend ? negated(addend) : addend});
    };
    const auto is_product = [&](NodeId id) { return out[id].op == Op::Mul || out[id].op == Op::Square; };
    if (is_product(a)) return fma(a, b, false, minus);
    if (is_product(b)) return fma(b, a, minus, false);
    return out.add(node);
  });
}

// True if a sum runs along the last axes in lanes without padding, like contract_lanes.
bool has_order_of_contraction(const Graph& graph, NodeId sum) {
  const List shape = graph.shape(graph.operand(sum, 0)), axes = graph.attributes(sum);
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<std::int64_t>(shape.size() - axes.size() + i)) return false;
  return sum_order(shape, axes, computed_type(graph[sum].dtype)).lanes;
}

Graph contract_sums(const Graph& graph) {
  const std::vector<std::uint32_t> uses = count_uses(graph);
  std::vector<std::int64_t> most(graph.size(), 0);     // elements of the largest value that depends on the node
  std::map<std::int64_t, int> reductions_of_elements;  // number of reductions over that many elements
  for (NodeId id = static_cast<NodeId>(graph.size()); id-- > 0;) {
    const std::int64_t elements = std::max(most[id], element_count(graph.shape(id)));
    for (const std::int64_t o : graph.operands(id))
      most[static_cast<std::size_t>(o)] = std::max(most[static_cast<std::size_t>(o)], elements);
    if (is_reduction(graph[id].op)) ++reductions_of_elements[element_count(graph.shape(graph.operand(id, 0)))];
  }
  return rewrite(graph, [&](Graph& out, const Node& node, NodeId sum) -> NodeId {
    if (node.op != Op::ReduceSum || !is_float(node.dtype)) return out.add(node);
    const NodeId product = graph.operand(sum, 0), made = static_cast<NodeId>(out.operands(node)[0]);
    const std::int64_t elements = element_count(graph.shape(product));
    const bool square = graph[product].op == Op::Square;
    if ((graph[product].op != Op::Mul && !square) || out[made].op != graph[product].op || uses[product] != 1) return out.add(node);
    if (most[sum] >= elements || reductions_of_elements[elements] != 1 || !has_order_of_contraction(graph, sum)) return out.add(node);
    const NodeId a = out.operand(made, 0), b = square ? a : out.operand(made, 1);
    return out.add(Op::ContractLanes, node.dtype, node.shape, {a, b}, graph.attributes(sum));
  });
}

// ------------------------------------------------------------------------------------------------ approximate

bool is_number(const Graph& graph, NodeId id) { return graph[id].op == Op::Slot || graph[id].op == Op::Constant; }

/// Returns tanh(u), if `id` is its square.
NodeId squared_tanh(const Graph& graph, NodeId id) {
  const bool square = graph[id].op == Op::Square || (graph[id].op == Op::Mul && graph.operand(id, 0) == graph.operand(id, 1));
  return square && graph[graph.operand(id, 0)].op == Op::Tanh ? graph.operand(id, 0) : kNoNode;
}
/// Returns tanh(u), if `id` is 1 - tanh(u)^2.
NodeId tanh_of_complement(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::Sub) return kNoNode;
  const Node one = graph[graph.operand(id, 0)];
  return one.op == Op::Constant && double_of(one.dtype, one.bits) == 1 ? squared_tanh(graph, graph.operand(id, 1)) : kNoNode;
}
/// Returns tanh(u), if `id` is a number plus tanh(u).
NodeId tanh_of_sum(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::Add) return kNoNode;
  for (const int k : {0, 1})
    if (const NodeId t = graph.operand(id, 1 - k); graph[t].op == Op::Tanh && is_number(graph, graph.operand(id, k))) return t;
  return kNoNode;
}

/// Returns the tanh nodes used only by sums with numbers and by complements of squares, at least one of each. All uses then share one
/// sigmoid.
std::vector<bool> replaceable_tanh(const Graph& graph) {
  const std::vector<std::uint32_t> uses = count_uses(graph);
  std::vector<std::uint32_t> sums(graph.size(), 0), complements(graph.size(), 0);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (const NodeId t = tanh_of_sum(graph, id); t != kNoNode) ++sums[t];
    if (const NodeId t = tanh_of_complement(graph, id); t != kNoNode && uses[graph.operand(id, 1)] == 1)
      complements[t] += static_cast<std::uint32_t>(graph.operands(graph.operand(id, 1)).size());
  }
  std::vector<bool> all(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) all[id] = sums[id] > 0 && complements[id] > 0 && sums[id] + complements[id] == uses[id];
  return all;
}

/// Rewrites sums with tanh. tanh costs a quarter more than sigmoid, and the usual sum, 1 + tanh u, keeps all its digits in this form.
Graph approximate_sums(const Graph& graph) {
  const std::vector<bool> replaceable = replaceable_tanh(graph);
  return rewrite(graph, [&](Graph& out, const Node& node, NodeId id) -> NodeId {
    const auto sigmoid_of = [&](NodeId t) { return apply(Op::Sigmoid, {Expr(out, out.operand(t, 0)) * 2.0}); };
    if (const NodeId t = tanh_of_complement(graph, id); t != kNoNode && replaceable[t]) {
      const Expr s = sigmoid_of(out.operand(static_cast<NodeId>(out.operands(node)[1]), 0));
      return (s * 4.0 * (1.0 - s)).id();
    }
    if (tanh_of_sum(graph, id) == kNoNode) return out.add(node);
    NodeId c = static_cast<NodeId>(out.operands(node)[0]), t = static_cast<NodeId>(out.operands(node)[1]);
    if (is_number(out, t)) std::swap(c, t);
    return ((Expr(out, c) - 1.0) + sigmoid_of(t) * 2.0).id();
  });
}

Graph approximate_functions(const Graph& graph) {
  return rewrite(graph, [](Graph& out, const Node& node) -> NodeId {
    if (info(node.op).kind != OpKind::Expanded || info(node.op).arity != 1) return out.add(node);
    const Expr cheaper = approximation(node.op, Expr(out, static_cast<NodeId>(out.operands(node)[0])));
    return cheaper ? cheaper.id() : out.add(node);
  });
}

}  // namespace

Graph relax(const Graph& graph, const Relax& relaxations) {
  Graph now = graph;
  if (relaxations.approximate) now = prune(approximate_sums(now));
  if (relaxations.reassociate) now = distribute_sums(prune(reassociate(now, relaxations.contract)));
  if (relaxations.contract) now = prune(contract(prune(contract_sums(now))));
  if (relaxations.approximate) now = prune(approximate_functions(now));
  return now;
}

}  // namespace onepass::compiler
