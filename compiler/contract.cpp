// contract: see contract.h.
//
//   matmul: a {i, k}, b {k, j}, result {i, j}          index space [i, j, k], k reduced
//     a as [i, 1, k], stretched; b permuted to {j, k} as [1, j, k], stretched
//     contract_rows, since each operand has an index that the other operand lacks; a matrix times a vector is contract_lanes
#include "compiler/contract.h"

#include <algorithm>

#include "ir/order.h"

namespace onepass::compiler {

using namespace ir;

namespace {

bool has(std::span<const int> indices, int index) { return std::find(indices.begin(), indices.end(), index) != indices.end(); }

/// Returns the operand with its transposes removed.
Indexed untransposed(const Graph& graph, Indexed x) {
  while (graph[x.node].op == Op::Permute) {
    const List axes = graph.attributes(x.node);
    std::vector<int> before(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i) before[static_cast<std::size_t>(axes[i])] = x.indices[i];
    x = {graph.operand(x.node, 0), std::move(before)};
  }
  return x;
}

std::vector<int> contracted_indices(const Indexed& a, const Indexed& b, std::span<const int> result) {
  std::vector<int> out;
  for (const Indexed* x : {&a, &b})
    for (const int index : x->indices)
      if (index != kNoIndex && !has(result, index) && !has(out, index)) out.push_back(index);
  return out;
}

std::int64_t extent_of(const Graph& graph, const Indexed& x, int index) {
  for (std::size_t i = 0; i < x.indices.size(); ++i)
    if (x.indices[i] == index) return graph.shape(x.node)[i];
  return 1;
}

std::vector<std::int64_t> extents(const Graph& graph, const Indexed& a, const Indexed& b, std::span<const int> space) {
  std::vector<std::int64_t> out;
  for (const int index : space) out.push_back(has(a.indices, index) ? extent_of(graph, a, index) : extent_of(graph, b, index));
  return out;
}

int last_index(const Indexed& x) {
  for (std::size_t i = x.indices.size(); i-- > 0;)
    if (x.indices[i] != kNoIndex) return x.indices[i];
  return kNoIndex;
}

NodeId view(Graph& graph, Op op, NodeId x, List shape, List attributes = {}) {
  if (std::ranges::equal(graph.shape(x), shape) && op != Op::Permute) return x;
  return graph.add(op, graph[x].dtype, graph.intern(shape), {x}, attributes);
}

/// Returns the operand broadcast over the index space.
NodeId spread(Graph& graph, const Indexed& x, std::span<const int> space, List to) {
  std::vector<std::int64_t> order, permuted, unit(space.size(), 1);
  for (std::size_t i = 0; i < x.indices.size(); ++i)
    if (x.indices[i] == kNoIndex) order.push_back(static_cast<std::int64_t>(i));
  for (std::size_t s = 0; s < space.size(); ++s)
    for (std::size_t i = 0; i < x.indices.size(); ++i)
      if (x.indices[i] == space[s]) {
        order.push_back(static_cast<std::int64_t>(i));
        unit[s] = graph.shape(x.node)[i];
      }
  for (const std::int64_t axis : order) permuted.push_back(graph.shape(x.node)[static_cast<std::size_t>(axis)]);
  NodeId node = x.node;
  if (!std::ranges::is_sorted(order)) node = view(graph, Op::Permute, node, permuted, order);
  return view(graph, Op::Broadcast, view(graph, Op::Reshape, node, unit), to);
}

}  // namespace

std::vector<std::int64_t> index_space(const Graph& graph, const Indexed& a, const Indexed& b, std::span<const int> result) {
  const Indexed x = untransposed(graph, a), y = untransposed(graph, b);
  std::vector<int> space(result.begin(), result.end());
  const std::vector<int> contracted = contracted_indices(x, y, result);
  space.insert(space.end(), contracted.begin(), contracted.end());
  return extents(graph, x, y, space);
}

NodeId contract(Graph& graph, Indexed a, Indexed b, std::span<const int> result) {
  a = untransposed(graph, a);
  b = untransposed(graph, b);
  const std::vector<int> contracted = contracted_indices(a, b, result);
  std::vector<int> space(result.begin(), result.end());
  space.insert(space.end(), contracted.begin(), contracted.end());
  const std::vector<std::int64_t> shape = extents(graph, a, b, space);
  const DType dtype = graph[a.node].dtype;
  const List to = List(shape).first(result.size());
  const std::int64_t reduced = element_count(List(shape).subspan(result.size()));
  if (reduced == 0 && element_count(to) != 0) return graph.constant(dtype, graph.intern(to), 0);
  const NodeId x = spread(graph, a, space, shape), y = spread(graph, b, space, shape);
  // Without contracted indices, simplify turns this node into a product. This function keeps the contraction, because the derivative of a
  // contraction has no mul0.
  const auto ends_in_last = [&](const Indexed& x) {
    return contracted.empty() || !has(x.indices, contracted.back()) || last_index(x) == contracted.back();
  };
  const auto has_free_index = [&](const Indexed& x, const Indexed& other) {
    return std::any_of(result.begin(), result.end(),
                       [&](int index) { return has(x.indices, index) && !has(other.indices, index) && extent_of(graph, x, index) > 1; });
  };
  const bool lanes = ends_in_last(a) && ends_in_last(b) && (contracted.empty() || !has_free_index(a, b) || !has_free_index(b, a));
  std::vector<std::int64_t> axes;
  for (std::size_t i = result.size(); i < space.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  return graph.add(lanes ? Op::ContractLanes : Op::ContractRows, dtype, graph.intern(to), {x, y}, axes);
}

NodeId contracted_from(const Graph& graph, NodeId operand) {
  return graph[operand].op == Op::Broadcast ? graph.operand(operand, 0) : operand;
}

namespace {

/// Returns the node with its axes as indices, except axes of extent 1.
Indexed by_axes(const Graph& graph, NodeId node) {
  Indexed x{node, {}};
  const List shape = graph.shape(node);
  for (std::size_t i = 0; i < shape.size(); ++i) x.indices.push_back(shape[i] == 1 ? kNoIndex : static_cast<int>(i));
  return x;
}

/// Returns the operand with the axes of the index space as indices, after removing transposes and inserted axes of extent 1.
Indexed indexed(const Graph& graph, NodeId operand) {
  Indexed x = by_axes(graph, contracted_from(graph, operand));
  while (true) {
    x = untransposed(graph, x);
    if (graph[x.node].op != Op::Reshape) return x;
    const NodeId from = graph.operand(x.node, 0);
    Indexed before{from, {}};
    const List now = graph.shape(x.node), was = graph.shape(from);
    std::size_t k = 0;
    for (const std::int64_t extent : was) {
      while (extent != 1 && k < now.size() && now[k] == 1) ++k;
      if (extent != 1 && (k == now.size() || now[k] != extent)) return x;  // the reshape merges or splits axes
      before.indices.push_back(extent == 1 ? kNoIndex : x.indices[k++]);
    }
    x = std::move(before);
  }
}

}  // namespace

NodeId contraction_of_diagonal(Graph& graph, NodeId id, std::int64_t offset, std::int64_t axis1, std::int64_t axis2, std::int64_t count) {
  const List reduced = graph.attributes(id), domain = graph.shape(graph.operand(id, 0));
  std::vector<int> space;  // the result's other axes, the diagonal, the reduced axes
  int kept[2] = {};        // the two axes of the diagonal
  std::int64_t axis = 0;
  for (std::size_t i = 0; i < domain.size(); ++i) {
    const int index = static_cast<int>(i);
    if (std::ranges::find(reduced, index) != reduced.end()) continue;
    if (axis == axis1) kept[0] = index;
    else if (axis == axis2) kept[1] = index;
    else space.push_back(index);
    ++axis;
  }
  const int along = static_cast<int>(domain.size());
  const std::size_t results = space.size() + 1;
  space.push_back(along);
  for (const std::int64_t r : reduced) space.push_back(static_cast<int>(r));
  std::vector<std::int64_t> shape;
  for (const int index : space) shape.push_back(index == along ? count : domain[static_cast<std::size_t>(index)]);
  const std::int64_t starts[2] = {std::max<std::int64_t>(0, -offset), std::max<std::int64_t>(0, offset)};
  NodeId operands[2];
  for (int which = 0; which < 2; ++which) {
    Indexed x = indexed(graph, graph.operand(id, which));
    const auto at = [&](int k) { return std::ranges::find(x.indices, kept[k]) - x.indices.begin(); };
    const auto rank = static_cast<std::ptrdiff_t>(x.indices.size());
    if (at(0) < rank && at(1) < rank) {
      std::vector<int> indices;
      std::vector<std::int64_t> to;
      for (std::ptrdiff_t i = 0; i < rank; ++i)
        if (i != at(0) && i != at(1))
          indices.push_back(x.indices[static_cast<std::size_t>(i)]), to.push_back(graph.shape(x.node)[static_cast<std::size_t>(i)]);
      indices.push_back(along), to.push_back(count);
      const std::int64_t attributes[] = {offset, at(0), at(1)};
      x = {view(graph, Op::Diagonal, x.node, to, attributes), std::move(indices)};
    }
    for (int k = 0; k < 2; ++k) {  // the diagonal view removes both axes
      if (at(k) == static_cast<std::ptrdiff_t>(x.indices.size())) continue;
      const auto place = static_cast<std::size_t>(at(k));
      std::vector<std::int64_t> to(graph.shape(x.node).begin(), graph.shape(x.node).end()), attributes(2 * to.size(), 0);
      std::fill(attributes.begin() + static_cast<std::ptrdiff_t>(to.size()), attributes.end(), 1);
      to[place] = count;
      attributes[place] = starts[k];
      x.node = view(graph, Op::Slice, x.node, to, attributes);
      x.indices[place] = along;
    }
    operands[which] = spread(graph, x, space, shape);
  }
  std::vector<std::int64_t> axes;
  for (std::size_t i = results; i < space.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  const Node node = graph[id];
  return graph.add(node.op, node.dtype, graph.intern(List(shape).first(results)), {operands[0], operands[1]}, axes);
}

NodeId contraction_gradient(Graph& graph, NodeId id, int which, NodeId g) {
  const List axes = graph.attributes(id), space = graph.shape(graph.operand(id, 0));
  const NodeId to = contracted_from(graph, graph.operand(id, which));
  Indexed other = indexed(graph, graph.operand(id, 1 - which));
  const auto is_in_neither = [&](std::int64_t axis) {  // both operands are broadcast along it
    const auto i = static_cast<std::size_t>(axis);
    return space[i] != 1 && graph.shape(to)[i] == 1 && !has(other.indices, static_cast<int>(axis));
  };
  if (std::ranges::any_of(axes, is_in_neither)) other = by_axes(graph, graph.operand(id, 1 - which));  // the cotangent adds equal products
  Indexed cotangent{g, {}};
  for (std::size_t i = 0; i < space.size(); ++i)
    if (std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end())
      cotangent.indices.push_back(space[i] == 1 ? kNoIndex : static_cast<int>(i));
  const List shape = graph.shape(to);
  std::vector<int> result;  // an index missing from both operands: constant along that axis
  std::vector<std::int64_t> unit(shape.size(), 1);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (const int index = static_cast<int>(i); shape[i] != 1 && (has(cotangent.indices, index) || has(other.indices, index))) {
      result.push_back(index);
      unit[i] = shape[i];
    }
  const NodeId sum = which == 0 ? contract(graph, cotangent, other, result) : contract(graph, other, cotangent, result);
  return view(graph, Op::Broadcast, view(graph, Op::Reshape, sum, unit), shape);
}

}  // namespace onepass::compiler
