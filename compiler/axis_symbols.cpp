// See axis_symbols.h.
#include "compiler/axis_symbols.h"

#include <algorithm>
#include <utility>

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::Node;
using ir::NodeId;
using ir::Op;

AxisSymbols::AxisSymbols(const Graph& graph) : graph_(graph) {
  parent_.push_back(0);  // symbol 0: an axis of extent 1
  extent_.push_back(1);
  factors_.emplace_back();
  std::size_t all = 0;
  for (NodeId id = 0; id < graph.size(); all += graph.shape(id++).size()) begin_.push_back(all);
  axes_.resize(all);
  for (NodeId id = 0; id < graph.size(); ++id) visit(id);
}

void AxisSymbols::expand(std::uint32_t s, std::vector<std::uint32_t>& out) {
  s = find(s);
  if (s == 0) return;
  if (factors_[s].empty()) out.push_back(s);
  else
    for (std::uint32_t f : std::vector(factors_[s])) expand(f, out);
}

std::uint32_t AxisSymbols::fresh(std::int64_t extent) {
  if (extent == 1) return 0;
  parent_.push_back(static_cast<std::uint32_t>(parent_.size()));
  extent_.push_back(extent);
  factors_.emplace_back();
  return static_cast<std::uint32_t>(parent_.size() - 1);
}

void AxisSymbols::unify(std::uint32_t a, std::uint32_t b) {
  a = find(a);
  b = find(b);
  if (a == b || a == 0 || b == 0) return;
  if (!factors_[a].empty() && !factors_[b].empty() && factors_[a].size() == factors_[b].size()) {
    bool same = true;
    for (std::size_t i = 0; i < factors_[a].size(); ++i) same &= extent_[find(factors_[a][i])] == extent_[find(factors_[b][i])];
    if (!same) return void(parent_[b] = a);
    for (std::size_t i = 0; i < factors_[a].size(); ++i) unify(factors_[a][i], factors_[b][i]);
  }
  if (factors_[a].empty() && !factors_[b].empty()) std::swap(a, b);  // the symbol with factors represents both
  parent_[b] = a;
}

void AxisSymbols::visit(NodeId id) {
  const Node node = graph_[id];
  const List shape = graph_.list(node.shape), operands = graph_.operands(id), attributes = graph_.attributes(id);
  const std::span<std::uint32_t> axes = axes_of(id);
  const auto from = operands.empty() ? NodeId{0} : static_cast<NodeId>(operands[0]);
  switch (ir::info(node.op).kind) {
    case ir::OpKind::Source:
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = fresh(shape[i]);
      return;
    case ir::OpKind::Gather:  // axes of the indices, and x's axes where they match; a scatter_add has x's axes
    case ir::OpKind::Scatter: {
      const auto places = static_cast<NodeId>(operands[1]);
      const NodeId mine = node.op == Op::Gather ? places : from, other = node.op == Op::Gather ? from : places;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        axes[i] = axes_of(mine)[i];
        if (operands.size() > 2) unify(axes_of(places)[i], axes_of(static_cast<std::size_t>(operands[2]))[i]);
        if (static_cast<std::int64_t>(i) != attributes[0]) unify(axes[i], axes_of(other)[i]);
      }
      return;
    }
    case ir::OpKind::Scan:
    case ir::OpKind::Place:
    case ir::OpKind::Primitive:
    case ir::OpKind::Expanded:
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = axes_of(from)[i];
      for (std::int64_t o : operands.subspan(1))
        for (std::size_t i = 0; i < shape.size(); ++i) unify(axes[i], axes_of(static_cast<std::size_t>(o))[i]);
      return;
    case ir::OpKind::Reduction:
      for (std::int64_t o : operands.subspan(1))
        for (std::size_t i = 0; i < axes_of(from).size(); ++i) unify(axes_of(from)[i], axes_of(static_cast<std::size_t>(o))[i]);
      for (std::size_t i = 0, k = 0; i < axes_of(from).size(); ++i)
        if (!std::binary_search(attributes.begin(), attributes.end(), static_cast<std::int64_t>(i))) axes[k++] = axes_of(from)[i];
      return;
    case ir::OpKind::Routine: {
      if (node.op == Op::Steps) return steps(axes, shape, operands);
      // unchanged axes keep their symbols; for a search, the values' axes
      const auto like = operands.size() == 2 ? static_cast<NodeId>(operands[1]) : from;
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = graph_.shape(like)[i] == shape[i] ? axes_of(like)[i] : fresh(shape[i]);
      return;
    }
    case ir::OpKind::Piecewise: return piecewise(axes, shape, operands, attributes);
    case ir::OpKind::View: break;
  }
  const List in = graph_.shape(from);
  switch (node.op) {
    case Op::Permute:
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = axes_of(from)[static_cast<std::size_t>(attributes[i])];
      return;
    case Op::Broadcast:
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = in[i] == shape[i] ? axes_of(from)[i] : fresh(shape[i]);
      return;
    case Op::Slice:
    case Op::Pad:
      for (std::size_t i = 0; i < shape.size(); ++i)
        axes[i] = in[i] == shape[i] && (is_whole(attributes, shape, i) || (node.op == Op::Slice && is_flip(attributes, shape, i)))
                      ? axes_of(from)[i]
                      : fresh(shape[i]);
      return;
    case Op::Window:
      for (std::size_t i = 0; i < shape.size(); ++i) {
        const auto axis = static_cast<std::size_t>(attributes[0]);
        axes[i] = i == axis || i == axis + 1 ? fresh(shape[i]) : axes_of(from)[i - (i > axis)];
      }
      return;
    case Op::Reshape: reshape(axes, shape, axes_of(from), in); return;
    default:
      for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = fresh(shape[i]);
      return;
  }
}

// The steps, and the elements of the states, are the same loops in all operands and results.
void AxisSymbols::steps(std::span<std::uint32_t> axes, List shape, List operands) {
  for (std::size_t i = 0; i < shape.size(); ++i) axes[i] = fresh(shape[i]);
  std::uint32_t along = shape.size() == 2 ? axes[0] : 0;
  for (const std::int64_t o : operands) {
    const std::span<std::uint32_t> of = axes_of(static_cast<std::size_t>(o));
    if (graph_.shape(static_cast<NodeId>(o)).back() == shape.back()) unify(axes.back(), of.back());
    if (of.size() != 2) continue;
    if (along == 0) along = of[0];
    unify(along, of[0]);
  }
}

// An axis along which every box is the whole operand has the operands' symbol.
void AxisSymbols::piecewise(std::span<std::uint32_t> axes, List shape, List operands, List attributes) {
  const std::size_t rank = shape.size(), boxes = attributes.size() / (2 * rank);
  for (std::size_t i = 0; i < rank; ++i) {
    bool whole = true;
    for (std::size_t k = 0; whole && k < boxes; ++k)
      whole =
          graph_.shape(static_cast<NodeId>(operands[k]))[i] == shape[i] && is_whole(attributes.subspan(2 * rank * k, 2 * rank), shape, i);
    if (!whole) {
      axes[i] = fresh(shape[i]);
      continue;
    }
    axes[i] = axes_of(static_cast<std::size_t>(operands[0]))[i];
    for (std::size_t k = 1; k < boxes; ++k) unify(axes[i], axes_of(static_cast<std::size_t>(operands[k]))[i]);
  }
}

// Matches runs of axes with equal products, from the left. Splits without a known product get fresh symbols.
void AxisSymbols::reshape(std::span<std::uint32_t> to, List to_shape, std::span<const std::uint32_t> from, List from_shape) {
  if (std::find(to_shape.begin(), to_shape.end(), 0) != to_shape.end()) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = fresh(to_shape[i]);
    return;
  }
  std::size_t i = 0, j = 0;
  while (i < to.size() || j < from.size()) {
    if (i < to.size() && to_shape[i] == 1) {
      to[i++] = 0;
      continue;
    }
    if (j < from.size() && from_shape[j] == 1) {
      ++j;
      continue;
    }
    const std::size_t i0 = i, j0 = j;
    std::int64_t a = to_shape[i++], b = from_shape[j++];
    while (a != b)
      if (a < b) a *= to_shape[i++];
      else b *= from_shape[j++];
    std::vector<std::uint32_t> parts;
    for (std::size_t k = j0; k < j; ++k) expand(from[k], parts);
    if (i - i0 == 1) {
      if (parts.size() == 1) {
        to[i0] = parts[0];
        continue;
      }
      const auto [it, is_new] = products_.try_emplace(parts, 0);
      if (is_new) {
        it->second = fresh(a);
        factors_[it->second] = parts;
      }
      to[i0] = it->second;
      continue;
    }
    // Axes are merged or split: their symbols are known if the factors match, else fresh.
    std::size_t p = 0;
    for (std::size_t k = i0; k < i; ++k) {
      if (to_shape[k] == 1) {
        to[k] = 0;
        continue;
      }
      std::vector<std::uint32_t> mine;
      std::int64_t n = 1;
      while (p < parts.size() && n < to_shape[k]) n *= extent_[find(parts[p])], mine.push_back(parts[p++]);
      if (n != to_shape[k]) {  // a split inside a factor
        for (std::size_t q = k; q < i; ++q) to[q] = fresh(to_shape[q]);
        break;
      }
      if (mine.size() == 1) {
        to[k] = mine[0];
        continue;
      }
      const auto [it, is_new] = products_.try_emplace(mine, 0);
      if (is_new) {
        it->second = fresh(n);
        factors_[it->second] = mine;
      }
      to[k] = it->second;
    }
  }
}

}  // namespace onepass::compiler
