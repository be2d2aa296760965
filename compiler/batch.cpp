// batch: one rule for each kind of operator.
//   y = mul(x, w), xs : [n, 4]        ys = mul(xs, broadcast(w)) : [n, 4]
//   y = reduce_sum(x) {0}             ys = reduce_sum(xs) {1}
//   y = x[2:5]                        ys = xs[:, 2:5]
//   y = gather(x, i) {0}              ys = gather(xs, broadcast(i)) {1}
// An operator without a rule here runs once for each row of xs; the results are then concatenated. Left out on purpose: Identity's
// attributes. The rows do not have a custom derivative rule; differentiation passes through them.
#include "compiler/batch.h"

#include <algorithm>
#include <string>

#include "compiler/record.h"
#include "compiler/step_body.h"
#include "ir/build.h"

namespace onepass::compiler {

using namespace ir;

namespace {

/// Prepends "all rows" to the starts and steps of a slice, a pad or a box.
std::vector<std::int64_t> with_all_rows(List starts_and_steps) {
  std::vector<std::int64_t> result(starts_and_steps.begin(), starts_and_steps.end());
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(result.size() / 2), 1);
  result.insert(result.begin(), 0);
  return result;
}

class Batch {
 public:
  Batch(Graph& graph, std::span<const Batched> operands, const Limits& limits, std::string_view name)
      : graph_(graph), limits_(limits), name_(name), n_(graph.shape(operands[0].all)[0]), many_(graph.size(), kNoNode) {
    for (const auto [one, all] : operands) {
      first_ = std::min(first_, one);
      many_[one] = all;
    }
  }

  std::vector<NodeId> run(std::span<const NodeId> ys) {
    const NodeId end = ys.empty() ? 0 : *std::max_element(ys.begin(), ys.end()) + 1;
    std::vector<bool> needed(end, false);
    for (const NodeId y : ys) needed[y] = true;
    for (NodeId id = end; id-- > first_;)
      if (needed[id])
        for (const std::int64_t o : graph_.operands(id)) needed[static_cast<std::size_t>(o)] = true;
    const std::uint32_t source = graph_.current_source;
    for (NodeId id = first_ + 1; id < end; ++id) {
      const List operands = graph_.operands(id);
      if (!needed[id] || many_[id] != kNoNode ||
          std::ranges::none_of(operands, [&](std::int64_t o) { return many_[static_cast<std::size_t>(o)] != kNoNode; }))
        continue;
      graph_.current_source = graph_.source_of[id];
      many_[id] = of(id);
    }
    graph_.current_source = source;
    std::vector<NodeId> result;
    for (const NodeId y : ys) result.push_back(lifted(y));
    return result;
  }

 private:
  Graph& graph_;
  const Limits& limits_;
  const std::string_view name_;
  const std::int64_t n_;
  NodeId first_ = kNoNode;
  std::vector<NodeId> many_;  // by node of the part: its values for all rows

  ListId with_rows(List shape) {
    std::vector<std::int64_t> extents{n_};
    extents.insert(extents.end(), shape.begin(), shape.end());
    check_shape(name_, extents, limits_);
    return graph_.intern(extents);
  }

  /// Returns the node's values for all rows; a value that is equal for all rows is broadcast.
  NodeId lifted(NodeId id) {
    if (many_[id] != kNoNode) return many_[id];
    const Node node = graph_[id];
    const List shape = graph_.shape(id);
    const ListId to = with_rows(shape);
    if (node.op == Op::Constant) return graph_.constant(node.dtype, to, node.bits);
    if (node.op == Op::Slot) return graph_.slot_node(static_cast<std::uint32_t>(node.bits), to);
    std::vector<std::int64_t> unit(shape.begin(), shape.end());
    unit.insert(unit.begin(), 1);
    return graph_.add(Op::Broadcast, node.dtype, to, {graph_.add(Op::Reshape, node.dtype, graph_.intern(unit), {id})});
  }

  NodeId of(NodeId id) {
    const Op op = graph_[id].op;
    if (op == Op::Piecewise) return piecewise(id);
    if (op == Op::Place) return rebuilt(id, graph_.attributes(id));
    if (op == Op::Assign) return rebuilt(id, std::vector{graph_.attributes(id)[0] + 1, graph_.attributes(id)[1]});
    if (op == Op::Steps) return steps(id);
    if (op == Op::Gather || op == Op::ScatterAdd) return rebuilt(id, std::vector{graph_.attributes(id)[0] + 1});
    const std::optional<std::vector<std::int64_t>> attributes = attributes_with_axis_in_front(graph_, id);
    return attributes ? rebuilt(id, *attributes) : row_by_row(id);
  }

  NodeId rebuilt(NodeId id, List attributes) {
    const Node node = graph_[id];
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : graph_.list(node.operands)) operands.push_back(lifted(static_cast<NodeId>(o)));
    const ListId shape = with_rows(graph_.list(node.shape));
    return graph_.add(Node{node.op, node.dtype, shape, graph_.intern(operands), graph_.intern(attributes), 0});
  }

  /// The value outside of all boxes is a scalar in the graph. If it differs by row, `where` selects it for each element.
  NodeId piecewise(NodeId id) {
    const Node node = graph_[id];
    const List operands = graph_.list(node.operands), attributes = graph_.list(node.attributes);
    const std::size_t rank = graph_.list(node.shape).size(), boxes = attributes.size() / (2 * rank);
    const ListId shape = with_rows(graph_.list(node.shape));
    std::vector<std::int64_t> filled, inside;
    for (std::size_t k = 0; k < boxes; ++k) {
      filled.push_back(lifted(static_cast<NodeId>(operands[k])));
      inside.push_back(graph_.constant(DType::Bool, graph_[static_cast<NodeId>(filled.back())].shape, 1));
    }
    const ListId at = graph_.intern(*attributes_with_axis_in_front(graph_, id));
    if (operands.size() == boxes) return graph_.add(Node{node.op, node.dtype, shape, graph_.intern(filled), at, 0});
    const auto elsewhere = static_cast<NodeId>(operands[boxes]);
    if (many_[elsewhere] == kNoNode) {
      filled.push_back(elsewhere);
      return graph_.add(Node{node.op, node.dtype, shape, graph_.intern(filled), at, 0});
    }
    filled.push_back(graph_.constant(node.dtype, 0, 0));
    inside.push_back(graph_.constant(DType::Bool, 0, 0));
    const Expr boxed{graph_, graph_.add(Node{node.op, node.dtype, shape, graph_.intern(filled), at, 0})};
    const Expr is_inside{graph_, graph_.add(Node{node.op, DType::Bool, shape, graph_.intern(inside), at, 0})};
    std::vector<std::int64_t> unit(rank + 1, 1);
    unit[0] = n_;
    const NodeId spread =
        graph_.add(Op::Broadcast, node.dtype, shape, {graph_.add(Op::Reshape, node.dtype, graph_.intern(unit), {many_[elsewhere]})});
    return where(is_inside, boxed, Expr{graph_, spread}).id();
  }

  /// The rows' elements become elements of the states.
  NodeId steps(NodeId id) {
    const Steps s = steps_of(graph_, id);
    const List operands = graph_.operands(id);
    const std::int64_t each = graph_.shape(id).back();
    std::vector<std::int64_t> flat;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto o = static_cast<NodeId>(operands[i]);
      const bool is_array = graph_.shape(o).size() == 2;
      const std::int64_t of = graph_.shape(o).back();
      if (many_[o] == kNoNode && of == 1) {
        flat.push_back(o);
        continue;
      }
      NodeId all = lifted(o);  // [n, of] or [n, steps, of]
      const ListId wide = is_array ? graph_.intern({n_, s.count, each}) : graph_.intern({n_, each});
      if (of != each) all = graph_.add(Op::Broadcast, graph_[o].dtype, wide, {all});
      if (is_array)
        all = graph_.add(Op::Permute, graph_[o].dtype, graph_.intern({s.count, n_, each}), {all}, std::vector<std::int64_t>{1, 0, 2});
      flat.push_back(in_shape(graph_, all, is_array ? graph_.intern({s.count, n_ * each}) : graph_.intern({n_ * each})));
    }
    Node node = graph_[id];
    node.operands = graph_.intern(flat);
    node.shape = s.is_last() ? graph_.intern({n_ * each}) : graph_.intern({s.count, n_ * each});
    const NodeId made = graph_.add(node);
    if (s.is_last()) return in_shape(graph_, made, graph_.intern({n_, each}));
    return graph_.add(Op::Permute, node.dtype, graph_.intern({n_, s.count, each}),
                      {in_shape(graph_, made, graph_.intern({s.count, n_, each}))}, std::vector<std::int64_t>{1, 0, 2});
  }

  NodeId row_by_row(NodeId id) {
    const Node node = graph_[id];
    const List operands = graph_.list(node.operands), shape = graph_.list(node.shape);
    const ListId to = with_rows(shape);
    if (n_ == 0) return graph_.constant(node.dtype, to, 0);
    std::vector<std::int64_t> one(shape.begin(), shape.end()), rows, places;
    one.insert(one.begin(), 1);
    for (std::int64_t row = 0; row < n_; ++row) {
      std::vector<std::int64_t> of_row;
      for (const std::int64_t o : operands) {
        const auto operand = static_cast<NodeId>(o);
        of_row.push_back(many_[operand] == kNoNode ? operand : row_of(operand, row));
      }
      Node copy = node;
      copy.operands = graph_.intern(of_row);
      rows.push_back(graph_.add(Op::Reshape, node.dtype, graph_.intern(one), {graph_.add(copy)}));
      places.push_back(row);
      places.insert(places.end(), shape.size(), 0);
      places.insert(places.end(), one.size(), 1);
    }
    return graph_.add(Node{Op::Piecewise, node.dtype, to, graph_.intern(rows), graph_.intern(places), 0});
  }

  NodeId row_of(NodeId operand, std::int64_t row) {
    const Node node = graph_[operand];
    const List shape = graph_.list(node.shape);
    std::vector<std::int64_t> one(shape.begin(), shape.end()), place(2 * shape.size() + 2, 0);
    one.insert(one.begin(), 1);
    place[0] = row;
    std::fill(place.begin() + static_cast<std::ptrdiff_t>(one.size()), place.end(), 1);
    const NodeId slice = graph_.add(Op::Slice, node.dtype, graph_.intern(one), {many_[operand]}, place);
    return graph_.add(Op::Reshape, node.dtype, node.shape, {slice});
  }
};

}  // namespace

std::optional<std::vector<std::int64_t>> attributes_with_axis_in_front(const Graph& graph, NodeId id) {
  const Op op = graph[id].op;
  const List attributes = graph.attributes(id);
  std::vector<std::int64_t> result;
  const auto shifted = [&] {
    for (const std::int64_t axis : attributes) result.push_back(axis + 1);
    return result;
  };
  if (is_elementwise(op)) return result;
  if (is_reduction(op) || is_scan(op)) return shifted();
  switch (op) {
    case Op::Reshape:
    case Op::Broadcast: return result;
    case Op::Permute: result.push_back(0); return shifted();
    case Op::Slice:
    case Op::Pad: return with_all_rows(attributes);
    case Op::Diagonal: return std::vector{attributes[0], attributes[1] + 1, attributes[2] + 1};
    case Op::Window: return std::vector{attributes[0] + 1, attributes[1], attributes[2]};
    case Op::Sort:
    case Op::Argsort: return std::vector{attributes[0] + 1, attributes[1]};
    case Op::Search: return std::vector{attributes[0]};
    case Op::Piecewise: {
      const std::size_t box = 2 * graph.shape(id).size();
      for (std::size_t k = 0; k < attributes.size(); k += box) {
        const std::vector<std::int64_t> all = with_all_rows(attributes.subspan(k, box));
        result.insert(result.end(), all.begin(), all.end());
      }
      return result;
    }
    default: return std::nullopt;
  }
}

std::vector<NodeId> batch(Graph& graph, std::span<const NodeId> ys, std::span<const Batched> operands, const Limits& limits,
                          std::string_view name) {
  return Batch(graph, operands, limits, name).run(ys);
}

}  // namespace onepass::compiler
