// The invariants of ops.def, node by node. See verify.h. graph.h declares verify().
#include "ir/verify.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "ir/steps.h"
#include "onepass/error.h"

namespace onepass::ir {
namespace {

std::string text_of(List list) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + std::to_string(list[i]);
  return out + "]";
}

std::string type_of(const Graph& graph, NodeId id) { return std::string(name_of(graph[id].dtype)) + text_of(graph.shape(id)); }

// False if the byte count does not fit in 63 bits; such a shape would overflow every later product.
bool countable(List shape) {
  std::int64_t n = 8;
  for (std::int64_t e : shape)
    if (e < 0 || __builtin_mul_overflow(n, std::max<std::int64_t>(e, 1), &n)) return false;
  return true;
}

bool bits_fit(DType dtype, std::uint64_t bits) {
  if (dtype == DType::Bool) return bits <= 1;
  const std::size_t size = size_of(computed_type(dtype));
  return size == 8 || bits >> (8 * size) == 0;
}

// True if start + k*step stays inside [0, extent) for all k below count.
bool stays_inside(std::int64_t start, std::int64_t step, std::int64_t count, std::int64_t extent) {
  if (count == 0) return true;
  std::int64_t last;
  if (__builtin_mul_overflow(count - 1, step, &last) || __builtin_add_overflow(last, start, &last)) return false;
  return start >= 0 && start < extent && last >= 0 && last < extent;
}

// Checks the rules of one view node; returns an empty text if all hold. The operand ids must be valid.
std::string broken_view(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const NodeId x = graph.operand(id, 0);
  const List from = graph.shape(x), to = graph.shape(id), attributes = graph.attributes(id);
  const std::size_t rank = from.size();
  if (node.dtype != graph[x].dtype) return "a view must keep the type of its operand";
  switch (node.op) {
    case Op::Reshape:
      if (!attributes.empty()) return "attributes are not allowed";
      if (element_count(from) != element_count(to)) return "reshape must keep the number of elements";
      return "";
    case Op::Permute: {
      std::vector<bool> seen(rank, false);
      if (attributes.size() != rank || to.size() != rank) return "attributes must be one axis for each axis of the operand";
      for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t a = attributes[i];
        if (a < 0 || a >= static_cast<std::int64_t>(rank) || seen[static_cast<std::size_t>(a)])
          return "attributes must be a permutation of the operand's axes";
        seen[static_cast<std::size_t>(a)] = true;
        if (to[i] != from[static_cast<std::size_t>(a)]) return "extents must be the operand's extents, permuted";
      }
      return "";
    }
    case Op::Broadcast:
      if (!attributes.empty()) return "attributes are not allowed";
      if (to.size() != rank) return "broadcast must keep the rank";
      for (std::size_t i = 0; i < rank; ++i)
        if (from[i] != to[i] && from[i] != 1) return "only axes of extent 1 can be broadcast";
      return "";
    case Op::Slice:
    case Op::Pad: {
      if (to.size() != rank) return "the rank must not change";
      if (attributes.size() != 2 * rank) return "attributes must be a start and a step for each axis";
      const List many = node.op == Op::Slice ? to : from, place = node.op == Op::Slice ? from : to;
      for (std::size_t i = 0; i < rank; ++i) {
        if (attributes[rank + i] == 0) return "a step must not be 0";
        if (!stays_inside(attributes[i], attributes[rank + i], many[i], place[i]))
          return node.op == Op::Slice ? "every index read must be inside the operand"
                                      : "every element of the operand must be inside the result";
      }
      return "";
    }
    case Op::Diagonal: {
      if (attributes.size() != 3) return "attributes must be offset, axis1, axis2";
      const auto [offset, a, b] = std::array{attributes[0], attributes[1], attributes[2]};
      const auto r = static_cast<std::int64_t>(rank);
      if (a < 0 || a >= r || b < 0 || b >= r || a == b) return "axis1 and axis2 must be two axes of the operand";
      std::vector<std::int64_t> expected;
      for (std::int64_t i = 0; i < r; ++i)
        if (i != a && i != b) expected.push_back(from[static_cast<std::size_t>(i)]);
      const std::int64_t rows = from[static_cast<std::size_t>(a)], columns = from[static_cast<std::size_t>(b)];
      // not -offset, which would overflow for the least integer
      const std::int64_t row_count = offset < 0 ? (offset < -rows ? 0 : rows + offset) : rows;
      const std::int64_t column_count = offset > 0 ? (offset > columns ? 0 : columns - offset) : columns;
      expected.push_back(std::min(row_count, column_count));
      if (!std::ranges::equal(expected, to)) return "the result must be the other axes, then the diagonal, " + text_of(expected);
      return "";
    }
    case Op::Window: {
      if (attributes.size() != 3 || attributes[0] < 0 || attributes[0] >= static_cast<std::int64_t>(rank) || attributes[1] < 1 ||
          attributes[2] < 1)
        return "attributes must be an axis, a step and a spacing; step and spacing must be positive";
      if (to.size() != rank + 1) return "the result must have one more axis, for the index in a window";
      const auto axis = static_cast<std::size_t>(attributes[0]);
      for (std::size_t i = 0; i < rank; ++i)
        if (i != axis && to[i + (i > axis)] != from[i]) return "the other axes must be those of the operand";
      const std::int64_t index = to[axis], places = to[axis + 1];
      if (index > 0 && places > 0 &&
          (places - 1 > (from[axis] - 1) / attributes[1] || index - 1 > (from[axis] - 1) / attributes[2] ||
           (places - 1) * attributes[1] + (index - 1) * attributes[2] >= from[axis]))
        return "every index read must be inside the operand";
      return "";
    }
    default: return "is not a view";
  }
}

// Extent of a box along an axis: its first and last index.
struct Reach {
  std::int64_t low, high;
};
Reach reach(std::int64_t start, std::int64_t step, std::int64_t count) {
  const std::int64_t last = start + (count - 1) * step;
  return {std::min(start, last), std::max(start, last)};
}

// True if both boxes contain a common index along an axis. Their ranges must overlap. For steps other than 1, their residues must
// match too.
bool meets(std::int64_t a, std::int64_t a_step, std::int64_t a_count, std::int64_t b, std::int64_t b_step, std::int64_t b_count) {
  const Reach x = reach(a, a_step, a_count), y = reach(b, b_step, b_count);
  const std::int64_t low = std::max(x.low, y.low), high = std::min(x.high, y.high);
  if (low > high) return false;
  const std::int64_t p = std::abs(a_step), q = std::abs(b_step);
  if (p == 1 || q == 1) {  // the first index of the sparser box inside the common range
    const std::int64_t step = p == 1 ? q : p, first = p == 1 ? y.low : x.low;
    return first + (low - first + step - 1) / step * step <= high;
  }
  if (p == q) return (x.low - y.low) % p == 0;
  for (std::int64_t i = x.low + (low - x.low + p - 1) / p * p; i <= high; i += p)
    if ((i - y.low) % q == 0) return true;
  return false;
}

std::string broken_piecewise(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const List to = graph.shape(id), operands = graph.operands(id), attributes = graph.attributes(id);
  const std::size_t rank = to.size();
  if (rank == 0) return "the result must have at least one axis";
  if (attributes.size() % (2 * rank) != 0) return "attributes must be a start and a step for each axis of each box";
  const std::size_t boxes = attributes.size() / (2 * rank);
  if (operands.size() != boxes && operands.size() != boxes + 1)
    return "the operands must be one for each of the " + std::to_string(boxes) + " boxes, and optionally one fill value";
  struct Box {
    const std::int64_t *start, *step, *count;
  };
  std::vector<Box> filled;  // without empty boxes
  std::int64_t covered = 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const auto operand = static_cast<NodeId>(operands[k]);
    const List from = graph.shape(operand);
    if (graph[operand].dtype != node.dtype) return "operands must have the type of the result";
    if (k == boxes) {
      if (!from.empty()) return "the fill value must be a scalar, not " + type_of(graph, operand);
      continue;
    }
    if (from.size() != rank) return "operands must have the rank of the result";
    const std::int64_t* start = attributes.data() + 2 * rank * k;
    for (std::size_t i = 0; i < rank; ++i) {
      if (start[rank + i] == 0) return "a step must not be 0";
      if (!stays_inside(start[i], start[rank + i], from[i], to[i])) return "every element of an operand must be inside the result";
    }
    const std::int64_t n = element_count(from);
    if (n == 0) continue;
    covered += n;
    filled.push_back({start, start + rank, from.data()});
  }
  // Boxes that could overlap are neighbors along the axis with the most distinct starts.
  std::size_t along = 0, most = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    std::vector<std::int64_t> starts;
    for (const Box& b : filled) starts.push_back(reach(b.start[i], b.step[i], b.count[i]).low);
    std::sort(starts.begin(), starts.end());
    const auto distinct = static_cast<std::size_t>(std::unique(starts.begin(), starts.end()) - starts.begin());
    if (distinct > most) most = distinct, along = i;
  }
  const auto low = [&](const Box& b) { return reach(b.start[along], b.step[along], b.count[along]).low; };
  std::sort(filled.begin(), filled.end(), [&](const Box& a, const Box& b) { return low(a) < low(b); });
  for (std::size_t a = 0; a < filled.size(); ++a) {
    const std::int64_t high = reach(filled[a].start[along], filled[a].step[along], filled[a].count[along]).high;
    for (std::size_t b = a + 1; b < filled.size() && low(filled[b]) <= high; ++b) {
      bool meet = true;
      for (std::size_t i = 0; meet && i < rank; ++i)
        meet = meets(filled[a].start[i], filled[a].step[i], filled[a].count[i], filled[b].start[i], filled[b].step[i], filled[b].count[i]);
      if (meet) return "boxes must not overlap";
    }
  }
  if (operands.size() == boxes && covered != element_count(to)) return "without a fill value the boxes must cover the result";
  return "";
}

std::string broken_reduction(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const NodeId x = graph.operand(id, 0);
  const List from = graph.shape(x), to = graph.shape(id), axes = graph.attributes(id);
  if (node.dtype != graph[x].dtype) return "a reduction must keep the type of its operand";
  if ((is_sum(node.op) || node.op == Op::ReduceProd) && node.dtype == DType::Bool) return "sums and products of bool are not allowed";
  if (is_contraction(node.op) && (graph[graph.operand(id, 1)].dtype != node.dtype || graph[graph.operand(id, 1)].shape != graph[x].shape))
    return "the operands of a contraction must have one type and one shape, not " + type_of(graph, x) + " and " +
           type_of(graph, graph.operand(id, 1));
  std::vector<std::int64_t> kept;
  std::size_t next = 0;
  bool empty = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (next < axes.size() && axes[next] == static_cast<std::int64_t>(i)) {
      ++next;
      empty |= from[i] == 0;
    } else {
      kept.push_back(from[i]);
    }
  }
  if (next != axes.size()) return "attributes must be different axes of the operand in increasing order";
  if (!std::ranges::equal(kept, to)) return "the shape of the result must be the operand's without the reduced axes, " + text_of(kept);
  if ((node.op == Op::ReduceMax || node.op == Op::ReduceMin) && empty && element_count(to) != 0)
    return "the maximum or minimum of no elements is not defined";
  return "";
}

std::string broken_source(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const List attributes = graph.attributes(id);
  if (node.op != Op::Iota && !attributes.empty()) return "attributes are not allowed";
  switch (node.op) {
    case Op::Input:
      if (node.bits >= graph.inputs.size()) return "no input has the index " + std::to_string(node.bits);
      if (graph.inputs[node.bits].node != id) return "an input must have exactly one node, which the list of inputs must name";
      if (graph.inputs[node.bits].dtype != node.dtype || !std::ranges::equal(graph.list(graph.inputs[node.bits].shape), graph.shape(id)))
        return "the type and the shape must equal the input's";
      return "";
    case Op::Constant: return bits_fit(node.dtype, node.bits) ? "" : "the bits do not fit in the type";
    case Op::Slot:
      if (node.bits >= graph.slots.size()) return "no scalar parameter has the index " + std::to_string(node.bits);
      return graph.slots[node.bits].dtype == node.dtype
                 ? ""
                 : "the type must be the type of the scalar parameter, " + std::string(name_of(graph.slots[node.bits].dtype));
    case Op::Iota:
      if (attributes.size() != 1 || attributes[0] < 0 || attributes[0] >= static_cast<std::int64_t>(graph.shape(id).size()))
        return "attributes must be one axis of the result";
      return "";
    default: return "is not a source";
  }
}

std::string broken_elementwise(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const OpInfo& i = info(node.op);
  const List operands = graph.operands(id);
  if (!graph.attributes(id).empty() && node.op != Op::Identity) return "attributes are not allowed";
  for (std::int64_t o : operands)
    if (!std::ranges::equal(graph.shape(static_cast<NodeId>(o)), graph.shape(id)))
      return "operands of an elementwise operator must have the shape of the result; %" + std::to_string(o) + " is " +
             type_of(graph, static_cast<NodeId>(o));
  if (i.types == TypeRule::Convert) return "";
  if (node.op == Op::Identity && computed_type(node.dtype) == computed_type(graph[graph.operand(id, 0)].dtype)) return "";
  if (i.types == TypeRule::Reinterpret)
    return size_of(node.dtype) == size_of(graph[graph.operand(id, 0)].dtype) ? "" : "bitcast must keep the number of bytes";
  std::vector<DType> types;
  for (std::int64_t o : operands) types.push_back(graph[static_cast<NodeId>(o)].dtype);
  DType expected{};
  std::string taken;
  for (DType t : types) taken += (taken.empty() ? "" : ", ") + std::string(name_of(t));
  if (!result_dtype(node.op, types, expected)) return "the operator does not accept the types " + taken;
  return expected == node.dtype ? "" : taken + " gives " + std::string(name_of(expected)) + ", not " + std::string(name_of(node.dtype));
}

// True if attributes[0] is an axis of `shape`, and the only attribute.
bool has_axis(List attributes, List shape) {
  return attributes.size() == 1 && attributes[0] >= 0 && attributes[0] < static_cast<std::int64_t>(shape.size());
}

std::string broken_scan(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const NodeId x = graph.operand(id, 0);
  if (node.dtype != graph[x].dtype || node.shape != graph[x].shape) return "a scan must keep the type and shape of its operand";
  if (!has_axis(graph.attributes(id), graph.shape(id))) return "attributes must be one axis of the operand";
  if ((node.op == Op::ScanSum || node.op == Op::ScanProd) && node.dtype == DType::Bool) return "sums and products of bool are not allowed";
  return "";
}

std::string broken_place(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  const Node index = graph[graph.operand(id, 0)];
  const List attributes = graph.attributes(id);
  if (attributes.size() != 3 || attributes[0] < 0 || attributes[1] < 0 || attributes[2] < 0 ||
      attributes[2] > static_cast<std::int64_t>(Indexing::IndexUpdate))
    return "attributes must be an extent, an axis and the operator that indexes";
  if (!is_integer(index.dtype) || node.dtype != DType::I64) return "an index must be an integer, and the checked index must be i64";
  return node.shape == index.shape ? "" : "checked indices must have the shape of the indices";
}

// Checks an indexed operator. The indices and x must have one shape on the other axes.
std::string broken_along(const Graph& graph, NodeId x, NodeId indexed, List attributes) {
  const List from = graph.shape(x), at = graph.shape(indexed);
  if (!has_axis(attributes, from)) return "attributes must be one axis of x";
  if (from.size() != at.size()) return "x and the checked indices must have one rank";
  for (std::size_t i = 0; i < from.size(); ++i)
    if (static_cast<std::int64_t>(i) != attributes[0] && from[i] != at[i])
      return "x and the checked indices may differ only along the indexed axis";
  return "";
}

std::string broken_places(const Graph& graph, NodeId x, NodeId places, List attributes) {
  return graph[places].dtype != DType::I64 ? "checked indices must be i64" : broken_along(graph, x, places, attributes);
}

// True if the indices of Assign have the shape of the updates, or one element along axes other than `axis`.
bool is_broadcast_of(List updates, List places, std::int64_t axis) {
  if (updates.size() != places.size()) return false;
  for (std::size_t i = 0; i < updates.size(); ++i)
    if (places[i] != updates[i] && (places[i] != 1 || static_cast<std::int64_t>(i) == axis)) return false;
  return true;
}

std::string broken_gather(const Graph& graph, NodeId id) {
  const NodeId x = graph.operand(id, 0), places = graph.operand(id, 1);
  if (std::string broken = broken_places(graph, x, places, graph.attributes(id)); !broken.empty()) return broken;
  if (graph[id].dtype != graph[x].dtype) return "a gather must keep the type of its operand";
  return graph[id].shape == graph[places].shape ? "" : "the result must have the shape of the checked indices";
}

std::string broken_scatter(const Graph& graph, NodeId id) {
  const NodeId x = graph.operand(id, 0), places = graph.operand(id, 1), updates = graph.operand(id, 2);
  if (std::string broken = broken_places(graph, x, places, graph.attributes(id)); !broken.empty()) return broken;
  if (graph[updates].shape != graph[places].shape) return "updates and checked indices must have one shape";
  if (graph[id].dtype != graph[x].dtype || graph[updates].dtype != graph[x].dtype)
    return "x, the updates and the result must have one type";
  if (graph[id].dtype == DType::Bool) return "scatter cannot add bool";
  return graph[id].shape == graph[x].shape ? "" : "the result must have the shape of x";
}

std::string broken_routine(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  if (node.op == Op::Steps) return broken_steps(graph, id);
  const NodeId x = graph.operand(id, 0);
  const List from = graph.shape(x), to = graph.shape(id), attributes = graph.attributes(id);
  for (const std::int64_t o : graph.operands(id))
    if (is_half(graph[static_cast<NodeId>(o)].dtype)) return "half types must be converted to f32 before sorting";
  if (node.op == Op::Assign) {
    const NodeId places = graph.operand(id, 1), updates = graph.operand(id, 2);
    if (attributes.size() != 2 || attributes[1] < 0 || attributes[1] > 2) return "attributes must be an axis, and 0, 1 or 2";
    if (std::string broken = broken_along(graph, x, updates, attributes.first(1)); !broken.empty()) return broken;
    if (graph[places].dtype != DType::I64) return "checked indices must be i64";
    if (!is_broadcast_of(graph.shape(updates), graph.shape(places), attributes[0]))
      return "checked indices must have the shape of the updates, or one element along axes other than the indexed axis";
    if (node.dtype != graph[x].dtype || graph[updates].dtype != graph[x].dtype) return "x, the updates and the result must have one type";
    return node.shape == graph[x].shape ? "" : "the result must have the shape of x";
  }
  if (node.dtype != (node.op == Op::Sort ? graph[x].dtype : DType::I64))
    return "sort must keep the type of its operand; indices must be i64";
  if (from.size() != to.size() || from.empty()) return "operands and result must have one rank, at least 1";
  if (node.op == Op::Search) {
    const NodeId values = graph.operand(id, 1);
    if (graph[values].dtype != graph[x].dtype || graph[values].shape != node.shape)
      return "values must have the type of the rows and the shape of the result";
    if (attributes.size() != 1 || (attributes[0] & ~std::int64_t{1})) return "attributes must be 0 or 1";
    return std::ranges::equal(from.first(from.size() - 1), to.first(to.size() - 1)) ? ""
                                                                                    : "rows and values may differ only along the last axis";
  }
  if (attributes.size() != 2 || attributes[0] < 0 || attributes[0] >= static_cast<std::int64_t>(from.size()) ||
      (attributes[1] & ~std::int64_t{1}))
    return "attributes must be an axis of the operand, and 0 or 1";
  for (std::size_t i = 0; i < from.size(); ++i)
    if (static_cast<std::int64_t>(i) == attributes[0] ? to[i] > from[i] : to[i] != from[i])
      return "the result must have the shape of the operand, or be shorter along the axis";
  return "";
}

std::string broken_node(const Graph& graph, NodeId id) {
  const Node node = graph[id];
  if (static_cast<int>(node.op) >= kOpCount) return "the operator does not exist";
  if (static_cast<int>(node.dtype) >= kDTypeCount) return "the type does not exist";
  if (!countable(graph.shape(id))) return "extents must be at least 0, and the number of bytes must fit in 63 bits";
  const List operands = graph.operands(id);
  if (info(node.op).arity != kAnyArity && operands.size() != info(node.op).arity)
    return "takes " + std::to_string(info(node.op).arity) + " operands, not " + std::to_string(operands.size());
  for (std::int64_t o : operands)
    if (o < 0 || o >= static_cast<std::int64_t>(id)) return "operands must precede the node; %" + std::to_string(o) + " does not";
  const bool has_bits = node.op == Op::Input || node.op == Op::Constant || node.op == Op::Slot;
  if (!has_bits && node.bits != 0) return "only inputs, constants and scalar parameters may have bits";
  switch (info(node.op).kind) {
    case OpKind::Source: return broken_source(graph, id);
    case OpKind::View: return broken_view(graph, id);
    case OpKind::Piecewise: return broken_piecewise(graph, id);
    case OpKind::Reduction: return broken_reduction(graph, id);
    case OpKind::Scan: return broken_scan(graph, id);
    case OpKind::Place: return broken_place(graph, id);
    case OpKind::Gather: return broken_gather(graph, id);
    case OpKind::Scatter: return broken_scatter(graph, id);
    case OpKind::Routine: return broken_routine(graph, id);
    case OpKind::Primitive:
    case OpKind::Expanded: return broken_elementwise(graph, id);
  }
  return "";
}

}  // namespace

std::optional<Violation> find_violation(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (std::string rule = broken_node(graph, id); !rule.empty()) return Violation{id, std::move(rule)};
  const auto of_graph = [](std::string rule) { return Violation{kNoNode, std::move(rule)}; };
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const NodeId id = graph.inputs[i].node;
    if (id >= graph.size() || graph[id].op != Op::Input || graph[id].bits != i)
      return of_graph("input " + std::to_string(i) + " names %" + std::to_string(id) + ", which is not its node");
  }
  for (std::size_t i = 0; i < graph.slots.size(); ++i)
    if (static_cast<int>(graph.slots[i].dtype) >= kDTypeCount || !bits_fit(graph.slots[i].dtype, graph.slots[i].bits))
      return of_graph("the bits of slot " + std::to_string(i) + " do not fit in its type");
  for (NodeId id : graph.outputs)
    if (id >= graph.size()) return of_graph("output %" + std::to_string(id) + " does not exist");
  if (!graph.output_names.empty() && graph.output_names.size() != graph.outputs.size())
    return of_graph("either all outputs or no output must have a name; " + std::to_string(graph.output_names.size()) +
                    " names are given for " + std::to_string(graph.outputs.size()) + " outputs");
  return std::nullopt;
}

void verify(const Graph& graph, std::string_view pass) {
  const std::optional<Violation> violation = find_violation(graph);
  if (!violation) return;
  std::string message(pass);
  if (violation->node == kNoNode) {
    message += " produced an invalid graph: " + violation->rule;
  } else {
    const Node node = graph[violation->node];
    const std::string_view text = static_cast<int>(node.op) < kOpCount ? info(node.op).text : "?";
    message += " produced an invalid node: %" + std::to_string(violation->node) + " = " + std::string(text) + ": " + violation->rule;
  }
  throw InternalError(message + "\n" + print(graph));
}

}  // namespace onepass::ir
