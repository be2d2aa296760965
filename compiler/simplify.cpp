// simplify: rules that are exact for every value of the type, including NaN, infinities and both zeros.
//   mul(x, 1) -> x        add(x, -0) -> x       neg(neg(x)) -> x       where(c, x, x) -> x      mul0(1, x) -> x      mul0(0, x) -> +0
//   op(where(c, x, y), z) of numbers -> where(c, op(x, z), op(y, z))
//   share(+0, x, y) -> +0
//   maximum(x, -x) -> abs(x) of floats
//   piecewise of equal constants -> constant      a sum of disjoint pads -> piecewise
//   reshape(reshape(x)) -> reshape(x), and so permute, broadcast, slice and pad        permute(permute(x)) that undoes itself -> x
//   broadcast(constant) -> constant       a sum over axes of extent 1 -> reshape       an operator on constants -> constant
//   a reduction of values equal along a kept axis -> the reduction of one row, broadcast; of two rows if the sum of one has another order
// The constants come from expansions and derivatives. A program's literal is a scalar parameter, whose value simplify never reads. Equal
// nodes are already one node (Graph::add), so common subexpressions need no rule.
//
// Left out on purpose:
//   add(x, +0) -> x          wrong for x = -0; so is mul0(x, 1) -> x
//   mul(x, 0) -> 0           wrong for NaN, infinities and negative x; so is sub(x, x) -> 0
//   any reassociation        the order of sums and products is their meaning
//   cast(x, f16) -> x        a cast of a half is the point of its rounding
//   stop_gradient(x) -> x    a derivative may still be taken of the result
//   slice and pad that happen to take everything: starts and extents vary by call, and one kernel serves all calls. For the same
//   reason extents are compared only with 1 (with 2 if all rows are equal: compiler/structure). Shapes are compared with each other only in
//   broadcast (they differ at extents of 1) and in reshape (the matching factors are its structure).
//   sorting the operands of commutative operators: two copies of one loop body must stay alike, operand by operand
#include "compiler/simplify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/fold.h"
#include "compiler/join_puts.h"
#include "compiler/rewrite.h"
#include "compiler/spread.h"
#include "ir/order.h"

namespace onepass::compiler {

using namespace ir;

namespace {

NodeId simplified(Graph& out, Node node);

/// Returns the node with other operands, simplified in turn.
NodeId make(Graph& out, Op op, DType dtype, ListId shape, std::initializer_list<NodeId> operands, List attributes = {}) {
  const std::vector<std::int64_t> ids(operands.begin(), operands.end());
  return simplified(out, Node{op, dtype, shape, out.intern(ids), out.intern(attributes), 0});
}

bool is_constant(const Graph& out, NodeId id) { return out[id].op == Op::Constant; }

/// True for a constant with the bits of `value` in its own type: +0 and -0 differ.
bool is_constant(const Graph& out, NodeId id, double value) {
  return is_constant(out, id) && out[id].bits == bits_of(out[id].dtype, value);
}

/// True if the value is a constant, a number of the call, or computed of such numbers by few operators.
bool is_of_numbers(const Graph& out, NodeId id, int operators = 4) {
  if (is_constant(out, id) || out[id].op == Op::Slot) return true;
  if (operators == 0 || info(out[id].op).kind != OpKind::Primitive) return false;
  return std::ranges::all_of(out.operands(id), [&](std::int64_t o) { return is_of_numbers(out, static_cast<NodeId>(o), operators - 1); });
}

bool is_zero(const Graph& out, NodeId id) { return is_constant(out, id) && double_of(out[id].dtype, out[id].bits) == 0; }

/// True for the neutral element of addition: -0 for floats, because x = -0 must stay; 0 for integers.
bool is_neutral_in_add(const Graph& out, NodeId id) { return is_constant(out, id, is_float(out[id].dtype) ? -0.0 : 0.0); }

bool is_all_ones(const Graph& out, NodeId id) {
  const DType t = out[id].dtype;
  return is_constant(out, id) && out[id].bits == (t == DType::Bool ? 1 : ~std::uint64_t{0} >> (64 - 8 * size_of(t)));
}

// ------------------------------------------------------------------------------------------------ elementwise

/// True if every value of `from` is a value of `to`: f16 and bf16 have 11 and 8 digits, f32 has 24, f64 has 53.
bool keeps_every_value(DType from, DType to) {
  if (from == to || from == DType::Bool) return true;
  const bool wider = size_of(from) < size_of(to);
  if (is_float(to)) return wider;
  if (is_float(from)) return false;
  return wider && (is_unsigned_integer(from) || is_signed_integer(to));
}

NodeId simplified_cast(Graph& out, const Node& node, NodeId a) {
  const DType to = node.dtype, from = out[a].dtype;
  if (to == from && !is_half(to)) return a;
  if (out[a].op == Op::Cast && node.op == Op::Cast) {
    const NodeId x = out.operand(a, 0);
    const DType first = out[x].dtype;
    // Goes through a type that holds every value. The exception is a float in between, which saturates, while integers wrap.
    if (!is_half(from) && keeps_every_value(first, from) && (!is_integer(to) || is_float(first) || !is_float(from) || first == to))
      return make(out, Op::Cast, to, node.shape, {x});
  }
  return out.add(node);
}

/// op(where(c, x, y), z) of numbers -> where(c, op(x, z), op(y, z)), which computes two numbers instead of every element. Returns kNoNode if
/// the operands are others.
NodeId simplified_choice(Graph& out, const Node& node) {
  if (info(node.op).kind != OpKind::Primitive || node.op == Op::Where || node.op == Op::Identity || node.op == Op::StopGradient)
    return kNoNode;
  const List operands = out.operands(node);
  const auto is_choice = [&](std::int64_t o) { return out[static_cast<NodeId>(o)].op == Op::Where; };
  const auto choice = std::ranges::find_if(operands, is_choice);
  if (choice == operands.end()) return kNoNode;
  const NodeId condition = out.operand(static_cast<NodeId>(*choice), 0);
  std::vector<std::int64_t> first, second;  // the operands where the condition is true, and where it is false
  for (const std::int64_t o : operands) {
    const auto id = static_cast<NodeId>(o);
    if (is_choice(o) && out.operand(id, 0) != condition) return kNoNode;
    const NodeId x = is_choice(o) ? out.operand(id, 1) : id, y = is_choice(o) ? out.operand(id, 2) : id;
    if (!is_of_numbers(out, x) || !is_of_numbers(out, y)) return kNoNode;
    first.push_back(x), second.push_back(y);
  }
  const auto of_numbers = [&](const std::vector<std::int64_t>& ids) {
    Node n = node;
    n.operands = out.intern(ids);
    return simplified(out, n);
  };
  const NodeId x = of_numbers(first), y = of_numbers(second);
  return make(out, Op::Where, node.dtype, node.shape, {condition, x, y});
}

NodeId simplified_elementwise(Graph& out, const Node& node) {
  std::array<NodeId, 3> x{kNoNode, kNoNode, kNoNode};
  const List operands = out.operands(node);
  bool all_constant = true;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    x[i] = static_cast<NodeId>(operands[i]);
    all_constant &= is_constant(out, x[i]);
  }
  if (all_constant) return fold(out, node);
  if (const NodeId choice = simplified_choice(out, node); choice != kNoNode) return choice;
  const auto [a, b, c] = x;
  auto undoes = [&](Op inner) { return out[a].op == inner; };
  switch (node.op) {
    case Op::Neg:
      if (undoes(Op::Neg)) return out.operand(a, 0);
      break;
    case Op::Abs:
      if (undoes(Op::Abs) || is_unsigned_integer(node.dtype)) return a;
      if (undoes(Op::Neg)) return make(out, Op::Abs, node.dtype, node.shape, {out.operand(a, 0)});
      break;
    case Op::BitwiseNot:
      if (undoes(Op::BitwiseNot)) return out.operand(a, 0);
      break;
    case Op::Add:
      if (is_neutral_in_add(out, b)) return a;
      if (is_neutral_in_add(out, a)) return b;
      break;
    case Op::Sub:
      if (is_constant(out, b, 0.0)) return a;
      break;
    case Op::Mul:
      if (is_constant(out, b, 1.0)) return a;
      if (is_constant(out, a, 1.0)) return b;
      break;
    case Op::Div:
      if (is_constant(out, b, 1.0)) return a;
      break;
    case Op::Mul0:  // the first operand is the cotangent
      if (is_zero(out, a)) return out.constant(node.dtype, node.shape, 0);
      if (is_constant(out, a)) return make(out, Op::Mul, node.dtype, node.shape, {a, b});
      break;
    case Op::Share:
      if (is_constant(out, a, 0.0)) return a;
      break;
    case Op::Maximum:
    case Op::Minimum:
      if (a == b) return a;
      if (node.op == Op::Maximum && is_float(node.dtype)) {
        if (out[b].op == Op::Neg && out.operand(b, 0) == a) return make(out, Op::Abs, node.dtype, node.shape, {a});
        if (out[a].op == Op::Neg && out.operand(a, 0) == b) return make(out, Op::Abs, node.dtype, node.shape, {b});
      }
      break;
    case Op::BitwiseAnd:
      if (a == b || is_all_ones(out, b)) return a;
      if (is_all_ones(out, a)) return b;
      break;
    case Op::BitwiseOr:
      if (a == b || is_constant(out, b, 0.0)) return a;
      if (is_constant(out, a, 0.0)) return b;
      break;
    case Op::BitwiseXor:
      if (is_constant(out, b, 0.0)) return a;
      if (is_constant(out, a, 0.0)) return b;
      break;
    case Op::Where:
      if (is_constant(out, a)) return out[a].bits ? b : c;
      if (b == c) return b;
      break;
    case Op::Cast: return simplified_cast(out, node, a);
    case Op::Bitcast:
      if (node.dtype == out[a].dtype && !is_half(node.dtype)) return a;
      break;
    default: break;
  }
  return out.add(node);
}

// ------------------------------------------------------------------------------------------------ views and reductions

/// Returns start and step of a slice of a slice, or of a pad of a pad. `outer` applies to the positions that `inner` counts.
std::vector<std::int64_t> composed(List outer, List inner) {
  const std::size_t rank = outer.size() / 2;
  std::vector<std::int64_t> result(2 * rank);
  for (std::size_t i = 0; i < rank; ++i) {
    result[i] = outer[i] + inner[i] * outer[rank + i];
    result[rank + i] = inner[rank + i] * outer[rank + i];
  }
  return result;
}

NodeId simplified_view(Graph& out, const Node& node) {
  const NodeId a = static_cast<NodeId>(out.operands(node)[0]);
  const Node operand = out[a];
  const List attributes = out.list(node.attributes);
  if (operand.op == Op::Constant && (node.op != Op::Pad || operand.bits == 0)) return out.constant(node.dtype, node.shape, operand.bits);
  if (operand.op == Op::Slot && node.op != Op::Pad) return out.slot_node(static_cast<std::uint32_t>(operand.bits), node.shape);
  const bool same = operand.op == node.op;
  const NodeId x = same ? out.operand(a, 0) : kNoNode;
  switch (node.op) {
    case Op::Reshape:
      if (operand.shape == node.shape) return a;
      if (same) return make(out, Op::Reshape, node.dtype, node.shape, {x});
      break;
    case Op::Broadcast:  // shapes differ only at axes stretched from 1
      if (operand.shape == node.shape) return a;
      if (same) return make(out, Op::Broadcast, node.dtype, node.shape, {x});
      break;
    case Op::Permute: {
      if (std::is_sorted(attributes.begin(), attributes.end())) return a;
      if (!same) break;
      std::vector<std::int64_t> axes;
      for (std::int64_t axis : attributes) axes.push_back(out.attributes(a)[static_cast<std::size_t>(axis)]);
      return make(out, Op::Permute, node.dtype, node.shape, {x}, axes);
    }
    case Op::Slice:
      if (same) return make(out, Op::Slice, node.dtype, node.shape, {x}, composed(out.attributes(a), attributes));
      break;
    case Op::Pad:
      if (same) return make(out, Op::Pad, node.dtype, node.shape, {x}, composed(attributes, out.attributes(a)));
      break;
    default: break;
  }
  return out.add(node);
}

/// Returns the extents of a reduction's operands with one row along each kept axis on which all rows are equal. If a single row would be
/// summed in another order, keeps two. This happens when the kept axis is last or between reduced axes.
std::vector<std::int64_t> extents_of_different_rows(const Graph& out, const Node& node) {
  const List shape = out.shape(static_cast<NodeId>(out.operands(node)[0])), reduced = out.list(node.attributes);
  int looks = 16;
  std::uint64_t spread = element_count(shape) == 0 ? 0 : ~std::uint64_t{0};
  for (const std::int64_t o : out.operands(node))
    if (spread) spread &= spread_axes(out, static_cast<NodeId>(o), looks);
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  const auto is_spread = [&](std::size_t i) {
    return shape[i] != 1 && (spread >> i & 1) && std::ranges::find(reduced, static_cast<std::int64_t>(i)) == reduced.end();
  };
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (is_spread(i)) extents[i] = 1;
  if (!is_float(node.dtype) || (node.op != Op::ReduceSum && node.op != Op::ReduceProd)) return extents;
  const SumOrder order = sum_order(shape, reduced, computed_type(node.dtype));
  for (std::size_t i = shape.size(); i-- > 0 && sum_order(extents, reduced, computed_type(node.dtype)) != order;)
    if (is_spread(i)) extents[i] = 2;
  return extents;
}

/// Returns the reduction of the first rows (`extents` of the operands), broadcast over all rows.
NodeId reduction_of_first_rows(Graph& out, const Node& node, List extents) {
  Node rows = node;
  std::vector<std::int64_t> operands;
  for (const std::int64_t o : out.operands(node)) operands.push_back(first_places(out, static_cast<NodeId>(o), extents, simplified));
  rows.operands = out.intern(operands);
  const List reduced = out.list(node.attributes);
  std::vector<std::int64_t> kept, one;
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (std::ranges::find(reduced, static_cast<std::int64_t>(i)) == reduced.end())
      kept.push_back(out.shape(static_cast<NodeId>(operands[0]))[i]);
  rows.shape = out.intern(kept);
  NodeId result = simplified(out, rows);
  const List all = out.list(node.shape);
  for (std::size_t i = 0; i < kept.size(); ++i) one.push_back(kept[i] == all[i] ? kept[i] : 1);
  if (one != kept) {
    std::vector<std::int64_t> box(2 * one.size(), 0);
    std::fill(box.begin() + static_cast<std::ptrdiff_t>(one.size()), box.end(), 1);
    result = make(out, Op::Slice, node.dtype, out.intern(one), {result}, box);
  }
  return make(out, Op::Broadcast, node.dtype, node.shape, {result});
}

NodeId simplified_reduction(Graph& out, const Node& node) {
  if (const std::vector<std::int64_t> extents = extents_of_different_rows(out, node);
      !std::ranges::equal(extents, out.shape(static_cast<NodeId>(out.operands(node)[0]))))
    return reduction_of_first_rows(out, node, extents);
  const NodeId a = static_cast<NodeId>(out.operands(node)[0]);
  const List shape = out.shape(a), axes = out.list(node.attributes);
  // The sum of one element is -0 + x, its product is 1 * x: both equal x.
  const bool over_one =
      std::all_of(axes.begin(), axes.end(), [&](std::int64_t axis) { return shape[static_cast<std::size_t>(axis)] == 1; });
  if (over_one && is_contraction(node.op)) {  // fma(a, b, -0) is a*b
    const NodeId product = make(out, Op::Mul, node.dtype, out[a].shape, {a, static_cast<NodeId>(out.operands(node)[1])});
    return make(out, Op::Reshape, node.dtype, node.shape, {product});
  }
  if (over_one && node.dtype == out[a].dtype) return make(out, Op::Reshape, node.dtype, node.shape, {a});
  return out.add(node);
}

/// Simplifies a piecewise: equal constants become one constant. The outside value is dropped if boxes cover everything.
NodeId simplified_piecewise(Graph& out, Node node) {
  const std::size_t boxes = out.list(node.attributes).size() / (2 * out.list(node.shape).size());
  if (out.operands(node).size() > boxes) {
    std::int64_t covered = 0;
    const List all = out.operands(node);
    for (std::size_t k = 0; k < boxes; ++k) covered += out.elements(static_cast<NodeId>(all[k]));
    if (covered == element_count(out.list(node.shape)))
      node.operands = out.intern(std::vector<std::int64_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(boxes)));
  }
  const List operands = out.operands(node);
  const auto same = [&](std::int64_t o) {
    const Node first = out[static_cast<NodeId>(operands[0])], other = out[static_cast<NodeId>(o)];
    return other.op == first.op && (first.op == Op::Constant || first.op == Op::Slot) && other.bits == first.bits;
  };
  if (!std::all_of(operands.begin(), operands.end(), same)) return out.add(node);
  const Node first = out[static_cast<NodeId>(operands[0])];
  return first.op == Op::Constant ? out.constant(node.dtype, node.shape, first.bits)
                                  : out.slot_node(static_cast<std::uint32_t>(first.bits), node.shape);
}

/// Moves boxes of every s-th element along an axis next to each other along a new axis of extent s. Kernels compute such boxes together.
/// Takes a Pad or a Piecewise; returns the node unchanged if its boxes are arranged differently.
NodeId boxes_side_by_side(Graph& out, const Node& node) {
  constexpr std::int64_t most = 8;       // the number that kernels compute together
  constexpr std::size_t kMostAxes = 32;  // the limit for arrays
  const auto as_it_is = [&] { return node.op == Op::Piecewise ? simplified_piecewise(out, node) : out.add(node); };
  const std::vector<std::int64_t> shape(out.list(node.shape).begin(), out.list(node.shape).end());
  const List given = out.operands(node), attributes = out.list(node.attributes);
  const std::size_t rank = shape.size(), boxes = rank == 0 ? 0 : attributes.size() / (2 * rank);
  if (boxes == 0 || rank >= kMostAxes) return as_it_is();
  std::size_t axis = rank;
  for (std::size_t i = 0; i < rank && axis == rank; ++i)
    if (attributes[rank + i] > 1) axis = i;
  const std::int64_t s = axis < rank ? attributes[rank + axis] : 1;
  if (s < 2 || s > most || shape[axis] % s != 0 || shape[axis] == 0) return as_it_is();
  const bool is_innermost =
      std::all_of(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end(), [](std::int64_t n) { return n == 1; });
  if (node.op == Op::Pad && !is_innermost) return as_it_is();  // for outer axes, a row is entirely inside or outside the box
  std::vector<NodeId> at(static_cast<std::size_t>(s), kNoNode);
  for (std::size_t k = 0; k < boxes; ++k) {
    const List box = attributes.subspan(2 * rank * k, 2 * rank), from = out.shape(static_cast<NodeId>(given[k]));
    for (std::size_t i = 0; i < rank; ++i) {
      const bool is_whole = i == axis ? box[i] >= 0 && box[i] < s && box[rank + i] == s && from[i] == shape[i] / s
                                      : box[i] == 0 && box[rank + i] == 1 && from[i] == shape[i];
      if (!is_whole) return as_it_is();
    }
    at[static_cast<std::size_t>(box[axis])] = static_cast<NodeId>(given[k]);
  }
  NodeId elsewhere = given.size() > boxes ? static_cast<NodeId>(given[boxes]) : kNoNode;
  std::vector<std::int64_t> to = shape, one, operands, places;
  to[axis] = shape[axis] / s;
  to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis) + 1, s);
  one = to;
  one[axis + 1] = 1;
  const ListId part = out.intern(one);
  for (std::int64_t r = 0; r < s; ++r) {
    NodeId x = at[static_cast<std::size_t>(r)];
    if (x != kNoNode) {
      x = make(out, Op::Reshape, node.dtype, part, {x});
    } else if (elsewhere == kNoNode) {
      x = out.constant(node.dtype, part, 0);  // for a Pad
    } else {
      const NodeId units = make(out, Op::Reshape, node.dtype, out.intern(std::vector<std::int64_t>(one.size(), 1)), {elsewhere});
      x = make(out, Op::Broadcast, node.dtype, part, {units});
    }
    operands.push_back(x);
    places.insert(places.end(), one.size(), 0);
    places[places.size() - one.size() + axis + 1] = r;
    places.insert(places.end(), one.size(), 1);
  }
  const NodeId joined =
      simplified_piecewise(out, Node{Op::Piecewise, node.dtype, out.intern(to), out.intern(operands), out.intern(places), 0});
  return make(out, Op::Reshape, node.dtype, node.shape, {joined});
}

NodeId simplified(Graph& out, Node node) {
  if (node.op == Op::Piecewise) return simplified_piecewise(out, node);
  if (is_elementwise(node.op)) return simplified_elementwise(out, node);
  if (is_view(node.op)) return simplified_view(out, node);
  if (is_reduction(node.op)) return simplified_reduction(out, node);
  return out.add(node);
}

// ------------------------------------------------------------------------------------------------ sums of pads

/// Turns sums of disjoint pads, as from gradients of slices, into one Piecewise: g + 0 in a box and 0 elsewhere. One other term may be in
/// the sum if there are two pads or more: term + pads becomes (term + Piecewise) + 0. Every element of such a sum has a term +0, so it is
/// never -0.
class PadSums {
 public:
  explicit PadSums(const Graph& graph) : graph_(graph) {
    bool pads = false;
    for (NodeId id = 0; id < graph.size() && !pads; ++id) pads = graph[id].op == Op::Pad;
    if (!pads) return;
    uses_.assign(graph.size(), 0);
    sums_.assign(graph.size(), Sum::None);
    inner_.assign(graph.size(), false);
    for (NodeId id = 0; id < graph.size(); ++id)
      for (std::int64_t o : graph.operands(id)) ++uses_[static_cast<std::size_t>(o)];
    for (NodeId id : graph.outputs) ++uses_[id];
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (graph[id].op != Op::Add || graph[id].dtype == DType::Bool) continue;
      const Sum a = part(graph.operand(id, 0)), b = part(graph.operand(id, 1));
      if (a == Sum::Pads && b == Sum::Pads) sums_[id] = Sum::Pads;
      else if (a == Sum::Pads || b == Sum::Pads) sums_[id] = Sum::PadsAndTerm;
      if (sums_[id] == Sum::None) continue;
      for (std::int64_t o : graph.operands(id))
        if (part(static_cast<NodeId>(o)) != Sum::None) inner_[static_cast<std::size_t>(o)] = true;
    }
    in_sum_.assign(graph.size(), false);
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (sums_[id] == Sum::None || inner_[id]) continue;
      const Parts all = all_parts(id);
      Parts joint = joined(all);
      for (const NodeId pad : sums_[id] == Sum::Pads ? all.pads : joint.pads) in_sum_[pad] = true;
      if (!joint.pads.empty()) joined_.emplace(id, std::move(joint));
    }
  }
  /// True if the pad is not part of a sum that becomes one Piecewise.
  bool stands_alone(NodeId pad) const { return in_sum_.empty() || !in_sum_[pad] || uses_[pad] > 1; }
  bool any() const { return std::ranges::find(in_sum_, true) != in_sum_.end(); }
  struct Parts {
    std::vector<NodeId> pads;  // in order
    NodeId term = kNoNode;
  };
  /// Returns the parts of a maximal sum; null if the node is not such a sum or if boxes overlap.
  const Parts* parts_of(NodeId id) const {
    const auto it = joined_.find(id);
    return it == joined_.end() ? nullptr : &it->second;
  }

 private:
  // The terms of a sum: only pads, or pads and one other term.
  enum class Sum : std::uint8_t { None, Pads, PadsAndTerm };

  const Graph& graph_;
  std::vector<std::uint32_t> uses_;
  std::vector<Sum> sums_;
  std::vector<bool> inner_, in_sum_;
  std::unordered_map<NodeId, Parts> joined_;  // by maximal sum

  Parts all_parts(NodeId id) const {
    Parts parts;
    std::vector<NodeId> open = {id};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (at != id && part(at) == Sum::None) {
        parts.term = at;
      } else if (graph_[at].op == Op::Pad) {
        parts.pads.push_back(at);
      } else {
        open.push_back(graph_.operand(at, 1));
        open.push_back(graph_.operand(at, 0));
      }
    }
    return parts;
  }
  // Returns the parts if their pads are disjoint. If one pad overlaps others, the largest one may be the term. No pads if that does not help.
  Parts joined(Parts parts) const {
    if (parts.term == kNoNode && disjoint(parts.pads)) return parts;
    if (parts.term == kNoNode && parts.pads.size() > 2) {
      const auto largest = std::ranges::max_element(parts.pads, {}, [&](NodeId pad) { return graph_.elements(graph_.operand(pad, 0)); });
      parts.term = *largest;
      parts.pads.erase(largest);
    }
    return parts.term != kNoNode && parts.pads.size() > 1 && disjoint(parts.pads) ? parts : Parts();
  }
  // Returns what the node contributes to a sum; None: one term.
  Sum part(NodeId id) const {
    if (graph_[id].op == Op::Pad) return graph_.shape(id).empty() ? Sum::None : Sum::Pads;
    return uses_[id] == 1 ? sums_[id] : Sum::None;
  }
  // True if along one axis every two boxes have disjoint spans, or different starts modulo the step.
  bool disjoint(const std::vector<NodeId>& pads) const {
    const std::size_t rank = graph_.shape(pads[0]).size();
    for (std::size_t axis = 0; axis < rank; ++axis) {
      struct Span {
        std::int64_t place, low, high;
        bool operator<(const Span& o) const { return std::pair(place, low) < std::pair(o.place, o.low); }
      };
      std::vector<Span> spans;
      std::int64_t step = std::abs(graph_.attributes(pads[0])[rank + axis]);
      for (const NodeId pad : pads)
        if (std::abs(graph_.attributes(pad)[rank + axis]) != step) step = 1;
      for (const NodeId pad : pads) {
        const std::int64_t n = graph_.shape(graph_.operand(pad, 0))[axis];
        const std::int64_t start = graph_.attributes(pad)[axis], last = start + (n - 1) * graph_.attributes(pad)[rank + axis];
        if (n > 0) spans.push_back({start % step, std::min(start, last), std::max(start, last)});
      }
      std::sort(spans.begin(), spans.end());
      bool apart = true;
      for (std::size_t k = 1; k < spans.size(); ++k)
        apart = apart && (spans[k - 1].place != spans[k].place || spans[k - 1].high < spans[k].low);
      if (apart) return true;
    }
    return false;
  }
};

Graph with_joined_pads(Graph graph) {
  const PadSums sums(graph);
  const auto lies_between = [&](NodeId id) {
    const List attributes = graph.attributes(id);
    const std::size_t rank = graph.shape(id).size();
    if (graph[id].op != Op::Pad && graph[id].op != Op::Piecewise) return false;
    for (std::size_t k = rank; k < attributes.size(); k += 2 * rank)
      if (std::any_of(attributes.begin() + static_cast<std::ptrdiff_t>(k), attributes.begin() + static_cast<std::ptrdiff_t>(k + rank),
                      [](std::int64_t step) { return step > 1; }))
        return true;
    return false;
  };
  bool any = sums.any();
  for (NodeId id = 0; id < graph.size() && !any; ++id) any = lies_between(id);
  if (!any) return graph;
  std::vector<NodeId> now(graph.size(), kNoNode);
  Graph out = graph.empty_copy();
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node node = graph[id];
    out.current_source = graph.source_of[id];
    out.current_origin = graph.origin_of[id] == kNoNode ? kNoNode : now[graph.origin_of[id]];
    std::vector<std::int64_t> operands;
    for (std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    const PadSums::Parts* const parts = sums.parts_of(id);
    if (parts) {
      std::vector<std::int64_t> boxes;
      operands.clear();
      for (const NodeId pad : parts->pads) {
        const List box = graph.attributes(pad);
        boxes.insert(boxes.end(), box.begin(), box.end());
        NodeId x = now[graph.operand(pad, 0)];
        if (is_float(node.dtype) && parts->term == kNoNode)
          x = make(out, Op::Add, node.dtype, out[x].shape, {x, out.constant(node.dtype, out[x].shape, 0)});  // -0 + 0 is +0
        operands.push_back(x);
      }
      operands.push_back(out.constant(node.dtype, 0, 0));
      node.op = Op::Piecewise;
      node.attributes = out.intern(boxes);
    }
    node.operands = out.intern(operands);
    const bool is_part = node.op == Op::Pad && !sums.stands_alone(id);
    now[id] = parts || (lies_between(id) && !is_part) ? boxes_side_by_side(out, node) : out.add(node);
    if (!parts || parts->term == kNoNode) continue;
    now[id] = make(out, Op::Add, node.dtype, node.shape, {now[parts->term], now[id]});
    if (is_float(node.dtype)) now[id] = make(out, Op::Add, node.dtype, node.shape, {now[id], out.constant(node.dtype, node.shape, 0)});
  }
  out.current_source = 0;
  out.current_origin = kNoNode;
  for (NodeId output : graph.outputs) out.outputs.push_back(now[output]);
  return out;
}

}  // namespace

Graph simplify(const Graph& graph) { return with_joined_pads(rewrite(join_puts(graph), simplified)); }

}  // namespace onepass::compiler
