// differentiate: reverse mode, as nodes appended to the graph.
//   y = mul(x, w), cotangent g:   dw = mul0(g, x)   dx = mul0(g, w)
//   y = x[2:5]:                   dx = pad(g) with the slice's start and step: a view, never an array of zeros
//   y = broadcast(b):             db = one sum over every stretched axis
//   y = contract(a, b):           da = contract(g, b), db = contract(a, g): plain products
// The elementwise rules are the gradient column of ir/ops.def, from which the switch below is generated. The structural rules are in this
// file. A function with a custom rule (DerivativeRule) is differentiated as a whole, at its first result. Values that depend on no x, and
// values of non-float types, get no adjoint.
//
// Left out on purpose: simplification (mul0(1, x) stays; simplify runs later), and the choice of residuals. Zero cotangents are not
// detected, because mul0 handles them for each element.
#include "compiler/differentiate.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/contract.h"
#include "compiler/step_body.h"
#include "ir/build.h"
#include "onepass/error.h"

namespace onepass::compiler {

using namespace ir;

namespace {

// Only the gradient column uses these helpers.
Expr sign(Expr a) { return apply(Op::Sign, {a}); }
Expr reciprocal(Expr a) { return apply(Op::Reciprocal, {a}); }
Expr share(Expr g, Expr mine, Expr other) { return apply(Op::Share, {g, mine, other}); }

/// Returns mine/(mine^2 + other^2), 0 if both are 0. Dividing twice by hypot avoids squares, which would overflow or underflow.
Expr angle_slope(Expr mine, Expr other) {
  const Expr length = hypot(mine, other);
  return where(length == 0.0, 0.0, mine / length / length);
}

// ------------------------------------------------------------------------------------------------ elementwise: the gradient column

/// Returns the cotangent of the operand of that index, or `none`. Evaluates only one of the column's expressions, so that an operand
/// without an adjoint creates no nodes.
Expr elementwise_gradient(Op op, int operand, Expr g, Expr a, Expr b, [[maybe_unused]] Expr c, Expr y) {
#define ONEPASS_PICK(...) ONEPASS_PICK_OF(__VA_ARGS__ __VA_OPT__(, ) none, none, none, none)
#define ONEPASS_PICK_OF(first, second, third, ...) (operand == 0 ? Expr(first) : operand == 1 ? Expr(second) : Expr(third))
  switch (op) {
#define PRIMITIVE(id, arity, text, types, traits, meaning, llvm, gradient) \
  case Op::id: return ONEPASS_PICK gradient;
#define EXPANDED(id, arity, text, types, expand, gradient) \
  case Op::id: return ONEPASS_PICK gradient;
#include "ir/ops.def"
    default: throw InternalError("differentiate: " + std::string(info(op).text) + " is not elementwise");
  }
#undef ONEPASS_PICK
#undef ONEPASS_PICK_OF
}

// ------------------------------------------------------------------------------------------------ views and reductions

Expr view(Expr x, Op op, ListId shape, List attributes = {}) {
  return {x.graph(), x.graph().add(op, x.dtype(), shape, {x.id()}, attributes)};
}

Expr reshape(Expr x, ListId shape) { return x.shape() == shape ? x : view(x, Op::Reshape, shape); }
Expr broadcast(Expr x, ListId shape) { return x.shape() == shape ? x : view(x, Op::Broadcast, shape); }

ListId shape_without(Graph& graph, List shape, List axes) {
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) kept.push_back(shape[i]);
  return graph.intern(kept);
}

Expr reduce_sum(Expr x, List axes) { return view(x, Op::ReduceSum, shape_without(x.graph(), x.graph().list(x.shape()), axes), axes); }

/// Returns a reduction's result, broadcast over the operand.
Expr spread(Expr reduced, List axes, ListId to) {
  Graph& graph = reduced.graph();
  std::vector<std::int64_t> unit(graph.list(to).begin(), graph.list(to).end());
  for (std::int64_t axis : axes) unit[static_cast<std::size_t>(axis)] = 1;
  return broadcast(reshape(reduced, graph.intern(unit)), to);
}

Expr broadcast_gradient(Expr g, ListId from) {
  Graph& graph = g.graph();
  const List before = graph.list(from), after = graph.list(g.shape());
  std::vector<std::int64_t> stretched;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) stretched.push_back(static_cast<std::int64_t>(i));
  return stretched.empty() ? g : reshape(reduce_sum(g, stretched), from);
}

Expr permute_gradient(Expr g, List axes, ListId from) {
  std::vector<std::int64_t> inverse(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) inverse[static_cast<std::size_t>(axes[i])] = static_cast<std::int64_t>(i);
  return view(g, Op::Permute, from, inverse);
}

/// A box's operand gets a slice of the result's cotangent. The value outside of all boxes gets the sum of g over the elements in no box,
/// with g masked to 0 inside boxes.
Expr piecewise_gradient(Expr g, Expr y, Expr x, std::size_t operand) {
  Graph& graph = g.graph();
  const List attributes = graph.attributes(y.id()), operands = graph.operands(y.id());
  const std::size_t rank = graph.shape(y.id()).size(), boxes = attributes.size() / (2 * rank);
  if (operand < boxes) return view(g, Op::Slice, x.shape(), attributes.subspan(2 * rank * operand, 2 * rank));
  std::vector<std::int64_t> ids, axes;
  for (std::size_t k = 0; k < boxes; ++k) ids.push_back(graph.constant(DType::Bool, graph[static_cast<NodeId>(operands[k])].shape, 0));
  ids.push_back(graph.constant(DType::Bool, 0, 1));
  const Expr elsewhere{graph, graph.add(Node{Op::Piecewise, DType::Bool, g.shape(), graph.intern(ids), graph[y.id()].attributes, 0})};
  for (std::size_t i = 0; i < rank; ++i) axes.push_back(static_cast<std::int64_t>(i));
  return reduce_sum(where(elsewhere, g, 0.0), axes);
}

/// g's last axis runs along the diagonal of (axis1, axis2). Pad lengthens it to axis1. Then g is broadcast over axis2 and selected where
/// index1 + offset == index2. The offset may change from call to call, so it is a scalar parameter.
Expr diagonal_gradient(Expr g, std::int64_t offset, std::int64_t axis1, std::int64_t axis2, ListId from) {
  Graph& graph = g.graph();
  const List shape = graph.list(from), diagonal = graph.list(g.shape());
  const std::size_t rank = shape.size();
  if (diagonal.back() == 0) offset = 0;  // the diagonal is outside the array: no gradient for any offset
  std::vector<std::int64_t> padded(diagonal.begin(), diagonal.end()), start(2 * padded.size(), 0);
  padded.back() = shape[static_cast<std::size_t>(axis1)];
  std::fill(start.begin() + static_cast<std::ptrdiff_t>(padded.size()), start.end(), 1);
  start[padded.size() - 1] = std::max<std::int64_t>(0, -offset);
  g = view(g, Op::Pad, graph.intern(padded), start);
  // The diagonal moves from last to the position of axis1. axis2 is removed, then reinserted with extent 1.
  std::vector<std::int64_t> order, moved, unit(shape.begin(), shape.end());
  std::int64_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    if (axis == axis2) continue;
    order.push_back(axis == axis1 ? static_cast<std::int64_t>(padded.size()) - 1 : next++);
    moved.push_back(shape[i]);
  }
  if (!std::is_sorted(order.begin(), order.end())) g = view(g, Op::Permute, graph.intern(moved), order);
  unit[static_cast<std::size_t>(axis2)] = 1;
  g = broadcast(reshape(g, graph.intern(unit)), from);
  Expr row{graph, graph.add(Op::Iota, DType::I64, from, {}, std::vector<std::int64_t>{axis1})};
  const Expr column{graph, graph.add(Op::Iota, DType::I64, from, {}, std::vector<std::int64_t>{axis2})};
  if (offset != 0) row = row + Expr{graph, graph.add_slot(DType::I64, static_cast<std::uint64_t>(offset), from)};
  return where(row == column, g, 0.0);
}

/// Returns x reversed along an axis.
Expr flipped(Expr x, std::int64_t axis) {
  const List shape = x.graph().list(x.shape());
  const auto at = static_cast<std::size_t>(axis);
  if (shape[at] < 2) return x;
  std::vector<std::int64_t> box(2 * shape.size(), 0);
  std::fill(box.begin() + static_cast<std::ptrdiff_t>(shape.size()), box.end(), 1);
  box[at] = shape[at] - 1;
  box[shape.size() + at] = -1;
  return view(x, Op::Slice, x.shape(), box);
}

/// The gradient of windows that do not overlap is a view of the cotangent: each element is in one window at most.
Expr gradient_of_apart_windows(Expr g, std::size_t axis, std::int64_t step, ListId from) {
  Graph& graph = g.graph();
  const auto shape_of = [&](Expr x) { return std::vector<std::int64_t>(graph.list(x.shape()).begin(), graph.list(x.shape()).end()); };
  const auto placed = [&](Expr x, std::size_t along, std::int64_t extent) {  // cut or filled with zeros at the end of an axis
    std::vector<std::int64_t> to = shape_of(x), box(2 * to.size(), 0);
    if (to[along] == extent) return x;
    std::fill(box.begin() + static_cast<std::ptrdiff_t>(to.size()), box.end(), 1);
    const Op op = extent < to[along] ? Op::Slice : Op::Pad;
    to[along] = extent;
    return view(x, op, graph.intern(to), box);
  };
  g = placed(g, axis, step);
  std::vector<std::int64_t> turned = shape_of(g), order(turned.size()), line;
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::swap(turned[axis], turned[axis + 1]);
  std::swap(order[axis], order[axis + 1]);
  for (std::size_t i = 0; i < turned.size(); ++i)
    if (i == axis + 1) line.back() *= turned[i];
    else line.push_back(turned[i]);
  return placed(reshape(view(g, Op::Permute, graph.intern(turned), order), graph.intern(line)), axis, graph.list(from)[axis]);
}

/// The windows read x at place*step + index*spacing. g, stretched by the step and padded, is read through windows again. In these windows,
/// x's own element is at the last index minus `index`. The sum is over the index axis in front, so rows are added.
Expr window_gradient(Expr g, List attributes, ListId from) {
  Graph& graph = g.graph();
  const auto axis = static_cast<std::size_t>(attributes[0]);
  const std::int64_t step = attributes[1], spacing = attributes[2];
  const List shape = graph.list(g.shape()), was = graph.list(from);
  const std::size_t rank = shape.size();
  const std::int64_t width = shape[axis], n = was[axis];
  if (element_count(shape) == 0) return {graph, graph.constant(g.dtype(), from, 0)};
  if (spacing == 1 && step > 1 && step >= width) return gradient_of_apart_windows(g, axis, step, from);
  std::vector<std::int64_t> padded(shape.begin(), shape.end()), box(2 * rank, 0);
  std::fill(box.begin() + static_cast<std::ptrdiff_t>(rank), box.end(), 1);
  padded[axis + 1] = n + (width - 1) * spacing;
  box[axis + 1] = (width - 1) * spacing;
  box[rank + axis + 1] = step;
  g = view(g, Op::Pad, graph.intern(padded), box);
  std::vector<std::int64_t> windows = padded;
  windows[axis + 1] = n;
  windows.insert(windows.begin() + static_cast<std::ptrdiff_t>(axis) + 1, width);
  const std::int64_t all[3] = {static_cast<std::int64_t>(axis) + 1, 1, spacing};
  g = flipped(view(g, Op::Window, graph.intern(windows), all), static_cast<std::int64_t>(axis) + 1);
  std::vector<std::int64_t> moved(was.begin(), was.end()), order = {static_cast<std::int64_t>(was.size())}, front = {width};
  moved.push_back(width);
  const std::int64_t both[3] = {0, static_cast<std::int64_t>(axis), static_cast<std::int64_t>(axis) + 1};
  g = view(g, Op::Diagonal, graph.intern(moved), both);
  for (std::size_t i = 0; i < was.size(); ++i) order.push_back(static_cast<std::int64_t>(i)), front.push_back(was[i]);
  return reduce_sum(view(g, Op::Permute, graph.intern(front), order), std::vector<std::int64_t>{0});
}

/// Scatters each result's cotangent to the element from which it came.
Expr sort_gradient(Expr g, Expr x, List attributes) {
  Graph& graph = g.graph();
  const NodeId places = graph.add(Op::Argsort, DType::I64, g.shape(), {x.id()}, attributes);
  return {graph,
          graph.add(Op::ScatterAdd, g.dtype(), x.shape(), {graph.constant(g.dtype(), x.shape(), 0), places, g.id()}, attributes.first(1))};
}

/// Equal elements share the cotangent equally; NaNs share the cotangent of a NaN result.
Expr extremum_gradient(Expr g, Expr x, Expr y, List axes) {
  const Expr mine = (x == spread(y, axes, x.shape())) | isnan(x);
  const Expr count = reduce_sum(cast(mine, x.dtype()), axes);
  return where(mine, spread(g / count, axes, x.shape()), 0.0);
}

Expr sum_behind(Expr x, List axis) { return flipped(view(flipped(x, axis[0]), Op::ScanSum, x.shape(), axis), axis[0]); }

/// Returns x[i - 1] along the axis, and `first` at the beginning.
Expr shifted(Expr x, std::int64_t axis, Expr first) {
  Graph& graph = x.graph();
  const List shape = graph.list(x.shape());
  const auto at = static_cast<std::size_t>(axis);
  if (shape[at] == 0) return x;
  std::vector<std::int64_t> shorter(shape.begin(), shape.end()), box(2 * shape.size(), 0);
  std::fill(box.begin() + static_cast<std::ptrdiff_t>(shape.size()), box.end(), 1);
  --shorter[at];
  const Expr most = view(x, Op::Slice, graph.intern(shorter), box);
  box[at] = 1;
  return {graph, graph.add(Op::Piecewise, x.dtype(), x.shape(), {most.id(), first.id()}, box)};
}

/// Elements after the first zero of a row do not affect results before it. Elements before that zero affect later results only through it.
/// Let z be the first zero; y = 0 from z on. Let w be the products with a 1 in place of z:
///   before z   suffix sum of g*y, divided by x       at z   suffix sum of g*w       after z   0
Expr scan_product_gradient(Expr g, Expr x, Expr y, List axis) {
  Graph& graph = g.graph();
  const Expr is_zero = x == 0.0, none_yet{graph, graph.constant(DType::Bool, 0, 0)};
  const Expr seen = view(is_zero, Op::ScanMax, x.shape(), axis);
  const Expr first = is_zero & apply(Op::BitwiseNot, {shifted(seen, axis[0], none_yet)});
  const Expr w = view(where(first, constant_like(x, 1.0), x), Op::ScanProd, x.shape(), axis);
  const Expr before = sum_behind(mul0(g, y), axis) / where(is_zero, constant_like(x, 1.0), x);
  return where(first, sum_behind(mul0(g, w), axis), where(seen, constant_like(x, 0.0), before));
}

/// The gradient for an element is the product of the elements before and after it, so zeros need no rule. The reduced axes become one last
/// axis.
Expr product_gradient(Expr g, Expr x, List axes) {
  Graph& graph = g.graph();
  const List shape = graph.list(x.shape());
  std::vector<std::int64_t> order, moved, flat;
  std::int64_t together = 1;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end())
      order.push_back(static_cast<std::int64_t>(i)), flat.push_back(shape[i]);
  for (const std::int64_t axis : axes) order.push_back(axis), together *= shape[static_cast<std::size_t>(axis)];
  for (const std::int64_t axis : order) moved.push_back(shape[static_cast<std::size_t>(axis)]);
  const auto last = static_cast<std::int64_t>(flat.size());
  flat.push_back(together);
  if (element_count(shape) == 0) return spread(g, axes, x.shape());  // the result is empty too
  const ListId moved_shape = graph.intern(moved);
  const bool moves = !std::is_sorted(order.begin(), order.end());
  const Expr row = reshape(moves ? view(x, Op::Permute, moved_shape, order) : x, graph.intern(flat));
  const Expr one{graph, graph.constant(x.dtype(), 0, bits_of(x.dtype(), 1.0))};
  const auto before = [&](Expr e) { return shifted(view(e, Op::ScanProd, row.shape(), List(&last, 1)), last, one); };
  const Expr others = reshape(before(row) * flipped(before(flipped(row, last)), last), moved_shape);
  return mul0(spread(g, axes, x.shape()), moves ? permute_gradient(others, order, x.shape()) : others);
}

/// Each result's cotangent goes to the first element that equals it; for NaN results, to the first NaN.
Expr scan_extremum_gradient(Expr g, Expr y, List axis) {
  Graph& graph = g.graph();
  const Expr before = shifted(y, axis[0], Expr{graph, graph.constant(y.dtype(), 0, bits_of(y.dtype(), 0.0))});
  const Expr place{graph, graph.add(Op::Iota, DType::I64, y.shape(), {}, axis)};
  const Expr is_new = apply(Op::NotEqual, {y, before}) & apply(Op::BitwiseNot, {isnan(before)});
  const Expr at = view(where(is_new, place, constant_like(place, 0.0)), Op::ScanMax, y.shape(), axis);
  return {graph, graph.add(Op::ScatterAdd, g.dtype(), g.shape(), {graph.constant(g.dtype(), g.shape(), 0), at.id(), g.id()}, axis)};
}

/// With one index in each row, compares the positions with the index; otherwise uses scatter_add.
Expr gather_gradient(Expr g, Expr x, Expr places, List axis) {
  Graph& graph = g.graph();
  if (graph.list(places.shape())[static_cast<std::size_t>(axis[0])] == 1) {
    const Expr index{graph, graph.add(Op::Iota, DType::I64, x.shape(), {}, axis)};
    return where(index == broadcast(places, x.shape()), broadcast(g, x.shape()), 0.0);
  }
  return {graph, graph.add(Op::ScatterAdd, g.dtype(), x.shape(), {graph.constant(g.dtype(), x.shape(), 0), places.id(), g.id()}, axis)};
}

Expr scatter_gradient(Expr g, Expr y, std::size_t operand, List axis) {
  Graph& graph = g.graph();
  if (operand == 0) return g;
  const NodeId places = graph.operand(y.id(), 1);
  return {graph, graph.add(Op::Gather, g.dtype(), graph[places].shape, {g.id(), places}, axis)};
}

/// For set, the cotangent goes to the last update of each index. For min and max, all updates that equal the result share the cotangent; x
/// shares it too if it equals the result.
Expr assign_gradient(Expr g, Expr y, std::size_t operand, List attributes) {
  Graph& graph = g.graph();
  const Expr x{graph, graph.operand(y.id(), 0)}, places{graph, graph.operand(y.id(), 1)}, updates{graph, graph.operand(y.id(), 2)};
  const List axis = attributes.first(1);
  const auto at_places = [&](Expr of) {
    return Expr{graph, graph.add(Op::Gather, of.dtype(), places.shape(), {of.id(), places.id()}, axis)};
  };
  if (attributes[1] == 0) {
    const Expr mine{graph, graph.add(Op::Iota, DType::I64, places.shape(), {}, axis)};
    const NodeId none = graph.constant(DType::I64, x.shape(), bits_of(DType::I64, -1.0));
    const Expr last{graph, graph.add(Op::Assign, DType::I64, x.shape(), {none, places.id(), mine.id()}, attributes)};
    if (operand == 0) return where(apply(Op::Less, {last, constant_like(last, 0.0)}), g, 0.0);
    return where(at_places(last) == mine, at_places(g), 0.0);
  }
  const Expr is_x = (x == y) | isnan(x), is_update = (updates == at_places(y)) | isnan(updates);
  const NodeId count =
      graph.add(Op::ScatterAdd, g.dtype(), x.shape(), {cast(is_x, g.dtype()).id(), places.id(), cast(is_update, g.dtype()).id()}, axis);
  const Expr share = g / Expr{graph, count};
  return operand == 0 ? where(is_x, share, 0.0) : where(is_update, at_places(share), 0.0);
}

Expr structural_gradient(Expr g, Expr y, Expr x, std::size_t operand) {
  Graph& graph = g.graph();
  const Node node = graph[y.id()];
  const List attributes = graph.list(node.attributes);
  switch (node.op) {
    case Op::Reshape: return reshape(g, x.shape());
    case Op::Permute: return permute_gradient(g, attributes, x.shape());
    case Op::Broadcast: return broadcast_gradient(g, x.shape());
    case Op::Slice: return view(g, Op::Pad, x.shape(), attributes);
    case Op::Pad: return view(g, Op::Slice, x.shape(), attributes);
    case Op::Diagonal: return diagonal_gradient(g, attributes[0], attributes[1], attributes[2], x.shape());
    case Op::Window: return window_gradient(g, attributes, x.shape());
    case Op::Sort: return sort_gradient(g, x, attributes);
    case Op::Piecewise: return piecewise_gradient(g, y, x, operand);
    case Op::ReduceSum: return spread(g, attributes, x.shape());
    case Op::ReduceProd: return product_gradient(g, x, attributes);
    case Op::ReduceMax:
    case Op::ReduceMin: return extremum_gradient(g, x, y, attributes);
    case Op::ScanSum: return sum_behind(g, attributes);
    case Op::ScanProd: return scan_product_gradient(g, x, y, attributes);
    case Op::ScanMax:
    case Op::ScanMin: return scan_extremum_gradient(g, y, attributes);
    case Op::Gather: return gather_gradient(g, x, Expr(graph, graph.operand(y.id(), 1)), attributes);
    case Op::ScatterAdd: return scatter_gradient(g, y, operand, attributes);
    case Op::Assign: return assign_gradient(g, y, operand, attributes);
    default: throw InternalError("differentiate: there is no rule for " + std::string(info(node.op).text));
  }
}

// ------------------------------------------------------------------------------------------------ messages

std::string describe(const Graph& graph, NodeId id) {
  std::string text(name_of(graph[id].dtype));
  text += '[';
  for (std::int64_t extent : graph.shape(id)) text += (text.back() == '[' ? "" : ", ") + std::to_string(extent);
  return text + ']';
}

void check(const Graph& graph, std::span<const NodeId> ys, std::span<const NodeId> cotangents, std::span<const NodeId> xs,
           std::span<const std::string> names) {
  if (ys.size() != cotangents.size()) throw InternalError("differentiate: the number of cotangents must match the number of values");
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (!is_float(graph[xs[i]].dtype))
      throw DTypeError(
          "grad: " + (i < names.size() ? names[i] : "value " + std::to_string(i + 1)) + " is " + describe(graph, xs[i]) +
          "; integers and bool have no derivative. Cast it to a float type first and differentiate with respect to the result");
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (!is_float(graph[ys[i]].dtype))
      throw DTypeError("grad: the value to differentiate is " + describe(graph, ys[i]) + "; integers and bool have no derivative");
    if (graph[ys[i]].dtype != graph[cotangents[i]].dtype || graph[ys[i]].shape != graph[cotangents[i]].shape)
      throw ShapeError("vjp: the cotangent is " + describe(graph, cotangents[i]) + ", but the value is " + describe(graph, ys[i]) +
                       "; the types and shapes must be equal");
  }
}

}  // namespace

namespace {

constexpr std::size_t kNoResult = ~std::size_t{0};

/// One reverse pass. Its time is linear in the nodes from the first x to the last y.
class ReversePass {
 public:
  ReversePass(Graph& graph, std::span<const NodeId> ys, std::span<const NodeId> xs, const DerivativeRules& rules)
      : graph_(graph),
        rules_(rules),
        first_(xs.empty() ? 0 : *std::min_element(xs.begin(), xs.end())),
        end_(ys.empty() ? 0 : *std::max_element(ys.begin(), ys.end()) + 1),
        depends_(std::max<std::size_t>(end_, graph.size()), false),
        adjoint_(depends_.size(), kNoNode) {
    for (NodeId x : xs) depends_[x] = true;
    for (NodeId id = first_; id < end_; ++id) {
      depends_[id] = depends_[id] || (is_float(graph_[id].dtype) && any_depends(id));
      if (graph_[id].op == Op::Steps && depends_[id]) loop_of(id).push_back(id);
    }
  }

  void run(std::span<const NodeId> ys, std::span<const NodeId> cotangents) {
    const std::uint32_t source = graph_.current_source;
    const NodeId origin = graph_.current_origin;
    for (std::size_t i = ys.size(); i-- > 0;) give(ys[i], cotangents[i]);
    for (NodeId id = end_; id-- > first_;) {
      if (graph_[id].op == Op::Steps) {
        visit_loop(id);
        continue;
      }
      const DerivativeRule* const rule = rule_of(id);
      if (rule ? id != rule->results.front() || !any_cotangent(*rule) : adjoint_[id] == kNoNode) continue;
      graph_.current_source = graph_.source_of[id];  // an adjoint belongs to the line of its forward node
      graph_.current_origin = id;
      if (rule) follow(*rule);
      else visit(id);
    }
    graph_.current_source = source;
    graph_.current_origin = origin;
  }

  /// Returns the adjoint of x, or a constant zero if x received no cotangent.
  NodeId adjoint(NodeId x) const { return adjoint_[x] != kNoNode ? adjoint_[x] : graph_.constant(graph_[x].dtype, graph_[x].shape, 0); }
  /// Returns the adjoint of x, or kNoNode.
  NodeId adjoint_or_none(NodeId x) const { return adjoint_[x]; }

 private:
  Graph& graph_;
  const DerivativeRules& rules_;
  const NodeId first_, end_;
  // Marks the values that depend on an x. Integers and bool pass no dependency on. Ids below `first_` cannot depend on an x.
  std::vector<bool> depends_;
  std::vector<NodeId> adjoint_;
  std::map<std::vector<std::int64_t>, std::vector<NodeId>> loops_;  // by operands and attributes of `steps` nodes: results of one loop

  std::vector<NodeId>& loop_of(NodeId id) { return loops_[key_of_loop(graph_, id)]; }

  /// Returns the rule that produced the node as a result, or null.
  const DerivativeRule* rule_of(NodeId id) const {
    if (graph_[id].op != Op::Identity) return nullptr;
    const List attributes = graph_.attributes(id);
    if (attributes.empty()) return nullptr;
    const auto rule = static_cast<std::size_t>(attributes[0]);
    if (rule >= rules_.size()) throw InternalError("differentiate: the graph has a rule that the recorder does not have");
    return rules_[rule].get();
  }

  bool any_depends(NodeId id) const {
    const auto depends = [&](auto operand) { return depends_[static_cast<std::size_t>(operand)]; };
    if (const DerivativeRule* const rule = rule_of(id)) return std::ranges::any_of(rule->arguments, depends);
    return std::ranges::any_of(graph_.operands(id), depends);
  }

  // Results that no y needs may have ids after the last y.
  bool has_cotangent(NodeId id) const { return id < adjoint_.size() && adjoint_[id] != kNoNode; }
  bool any_cotangent(const DerivativeRule& rule) const {
    return std::ranges::any_of(rule.results, [&](NodeId id) { return has_cotangent(id); });
  }

  void give(NodeId id, NodeId cotangent) {
    if (!depends_[id]) return;
    adjoint_[id] = adjoint_[id] == kNoNode ? cotangent : (Expr(graph_, adjoint_[id]) + Expr(graph_, cotangent)).id();
  }

  void visit(NodeId id) {
    const Node node = graph_[id];
    const List operands = graph_.list(node.operands);
    const Expr g(graph_, adjoint_[id]), y(graph_, id);
    Expr operand[3];
    for (std::size_t i = 0; i < std::min<std::size_t>(operands.size(), 3); ++i) operand[i] = Expr(graph_, static_cast<NodeId>(operands[i]));
    for (std::size_t i = operands.size(); i-- > 0;) {
      const auto o = static_cast<NodeId>(operands[i]);
      if (!depends_[o]) continue;
      if (is_contraction(node.op)) {
        give(contracted_from(graph_, o), contraction_gradient(graph_, id, static_cast<int>(i), g.id()));
        continue;
      }
      const Expr cotangent = is_elementwise(node.op)
                                 ? elementwise_gradient(node.op, static_cast<int>(i), g, operand[0], operand[1], operand[2], y)
                                 : structural_gradient(g, y, Expr(graph_, o), i);
      if (cotangent) give(o, cotangent.id());
    }
  }

  /// Differentiates all results of a loop, at its first result: by then all users of the results have been visited.
  void visit_loop(NodeId id) {
    if (!depends_[id]) return;
    const std::vector<NodeId>& results = loop_of(id);
    if (results.front() != id || std::ranges::none_of(results, [&](NodeId r) { return has_cotangent(r); })) return;
    std::vector<NodeId> cotangents, operands, from;  // from: operands without the reshape to elements
    for (const NodeId r : results) cotangents.push_back(adjoint_[r]);
    for (const std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<NodeId>(o);
      const bool is_array = graph_.shape(operand).size() == 2;
      operands.push_back(operand);
      from.push_back(!is_array && graph_[operand].op == Op::Reshape ? graph_.operand(operand, 0) : operand);
    }
    graph_.current_source = graph_.source_of[id];
    graph_.current_origin = id;
    // The cotangents of a state or a capture are added to the adjoint so far, step by step.
    std::vector<bool> depends, goes_on;
    std::vector<NodeId> given;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool is_array = graph_.shape(operands[i]).size() == 2;
      depends.push_back(depends_[operands[i]]);
      goes_on.push_back(!is_array && std::ranges::count(from, from[i]) == 1 && graph_.elements(operands[i]) == graph_.shape(id).back());
      const bool has_adjoint = goes_on[i] && depends[i] && adjoint_[from[i]] != kNoNode;
      given.push_back(has_adjoint ? in_shape(graph_, adjoint_[from[i]], graph_[operands[i]].shape) : kNoNode);
    }
    const std::vector<NodeId> of_operands = loop_gradient(graph_, results, cotangents, depends, given);
    for (std::size_t i = of_operands.size(); i-- > 0;) {
      if (of_operands[i] == kNoNode) continue;
      if (goes_on[i] && depends_[from[i]]) adjoint_[from[i]] = in_shape(graph_, of_operands[i], graph_[from[i]].shape);
      else give(operands[i], of_operands[i]);
    }
  }

  static std::vector<NodeId> loop_gradient(Graph& graph, std::span<const NodeId> results, std::span<const NodeId> cotangents,
                                           const std::vector<bool>& depends, std::span<const NodeId> given);

  /// Applies a rule, at its first result. By then all users of its results have been visited.
  void follow(const DerivativeRule& rule) {
    std::vector<NodeId> cotangents;
    for (const NodeId result : rule.results) cotangents.push_back(adjoint(result));
    const std::vector<NodeId> of_arguments = rule.backward(rule.arguments, rule.results, cotangents);
    for (std::size_t i = rule.arguments.size(); i-- > 0;)
      if (of_arguments[i] != kNoNode) give(rule.arguments[i], of_arguments[i]);
  }
};

// The derivative of a loop is a loop in the other direction. Its states are the cotangents of the loop's states, and the sums of
// the cotangents of the captures; its arrays are the values that the step has read, and the cotangents of the results. Each step computes
// the values of the loop's step again, from the states before it.
//
// `given` are the adjoints so far of the initial states and captures, or kNoNode; the new adjoints include them.
//
// Order     as in the unrolled loop: a value gets the cotangent of its result first, then those of the next step, then those of its step.
//           Sums begin with -0, which changes no term.
std::vector<NodeId> ReversePass::loop_gradient(Graph& graph, std::span<const NodeId> results, std::span<const NodeId> cotangents,
                                               const std::vector<bool>& depends, std::span<const NodeId> given) {
  const NodeId loop = results[0];
  const Steps s = steps_of(graph, loop);
  const std::vector<NodeId> operands = [&] {
    const List list = graph.operands(loop);
    std::vector<NodeId> ids;
    for (const std::int64_t o : list) ids.push_back(static_cast<NodeId>(o));
    return ids;
  }();
  const auto n = static_cast<std::int64_t>(operands.size());
  const std::int64_t elements = graph.shape(loop).back();
  std::vector<NodeId> of_last(static_cast<std::size_t>(s.states), kNoNode), of_result(s.results.size(), kNoNode);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::int64_t which = graph.attributes(results[i])[0];
    (which < s.states ? of_last[static_cast<std::size_t>(which)] : of_result[static_cast<std::size_t>(which - s.states)]) = cotangents[i];
  }
  const auto placeholder = [&](DType type) { return graph.add(Op::Identity, type, 0, {graph.add_slot(type, 0, 0)}); };
  const auto neutral = [&](DType type) { return graph.constant(type, graph.intern({1}), bits_of(type, -0.0)); };

  // The step, on scalars.
  StepBody body;
  std::vector<NodeId> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(placeholder(graph[operands[static_cast<std::size_t>(i)]].dtype));
  add_lines(graph, s, 0, values);
  const auto value = [&](std::int64_t v) { return values[static_cast<std::size_t>(v)]; };
  const auto is_differentiated = [&](std::int64_t v) { return is_float(graph[value(v)].dtype); };

  std::vector<NodeId> ys, gs, xs, inits, arrays;  // inits: of the new loop's states
  std::vector<std::int64_t> of_states, of_arrays, of_captures;
  const auto add_state = [&](NodeId y, NodeId init) {
    ys.push_back(y);
    gs.push_back(placeholder(graph[y].dtype));
    body.states.push_back(gs.back());
    inits.push_back(init);
  };
  const auto add_array = [&](NodeId stands_for, NodeId all) {
    body.arrays.push_back(stands_for);
    arrays.push_back(all);
  };
  for (std::int64_t i = 0; i < s.states; ++i)
    if (is_differentiated(i)) of_states.push_back(i), xs.push_back(value(i));
  for (std::int64_t i = s.states; i < n; ++i)
    if (depends[static_cast<std::size_t>(i)] && is_differentiated(i))
      (i < s.states + s.arrays ? of_arrays : of_captures).push_back(i), xs.push_back(value(i));
  // A result that is the next state: its cotangents start the sum of that state's.
  std::vector<std::size_t> joined(static_cast<std::size_t>(s.states), kNoResult);
  std::vector<bool> is_joined(s.results.size(), false);
  for (std::size_t r = 0; r < s.results.size(); ++r)
    for (std::int64_t i = 0; i < s.states && of_result[r] != kNoNode && !is_joined[r]; ++i)
      if (s.results[r] >= n && s.next[static_cast<std::size_t>(i)] == s.results[r] && joined[static_cast<std::size_t>(i)] == kNoResult)
        joined[static_cast<std::size_t>(i)] = r, is_joined[r] = true;
  const auto rows = [&](NodeId x, std::int64_t from, std::int64_t count) {
    return graph.add(Op::Slice, graph[x].dtype, graph.intern({count, graph.shape(x).back()}), {x},
                     std::vector<std::int64_t>{from, 0, 1, 1});
  };
  std::vector<NodeId> later_ys, later_gs;  // given before the others
  std::vector<NodeId> at_first;            // of the array of a later_g: its value in the first step
  for (const std::int64_t i : of_states) {
    NodeId init = of_last[static_cast<std::size_t>(i)];
    const DType type = graph[value(i)].dtype;
    const std::size_t r = joined[static_cast<std::size_t>(i)];
    const NodeId first = given[static_cast<std::size_t>(i)];
    NodeId later = kNoNode;  // of the steps after the first
    if (r != kNoResult) {
      const NodeId g = of_result[r];
      const NodeId last = graph.add(Op::Reshape, type, graph.intern({elements}), {rows(g, s.place_of(s.count - 1), 1)});
      init = init == kNoNode ? last : graph.add(Op::Add, type, graph[last].shape, {init, last});
      if (s.count > 1) later = rows(g, s.reverse ? 1 : 0, s.count - 1);
    } else if (first != kNoNode && s.count > 1) {
      later = graph.constant(type, graph.intern({s.count - 1, elements}), bits_of(type, -0.0));
    }
    if (r != kNoResult || first != kNoNode) {
      later_ys.push_back(value(i));
      later_gs.push_back(placeholder(type));
      at_first.push_back(first == kNoNode ? neutral(type) : first);
      add_array(later_gs.back(), later);
    }
    add_state(value(s.next[static_cast<std::size_t>(i)]), init == kNoNode ? neutral(type) : init);
  }
  for (std::size_t r = 0; r < s.results.size(); ++r) {
    if (of_result[r] == kNoNode || is_joined[r]) continue;
    ys.push_back(value(s.results[r]));
    gs.push_back(placeholder(graph[ys.back()].dtype));
    add_array(gs.back(), of_result[r]);
  }
  for (const std::int64_t c : of_captures) {
    const NodeId first = given[static_cast<std::size_t>(c)];
    add_state(value(c), first == kNoNode ? neutral(graph[value(c)].dtype) : first);
  }
  ys.insert(ys.end(), later_ys.begin(), later_ys.end());
  gs.insert(gs.end(), later_gs.begin(), later_gs.end());

  ReversePass step(graph, ys, xs, {});
  step.run(ys, gs);

  const auto adjoint = [&](std::int64_t v) { return step.adjoint_or_none(value(v)); };
  for (const std::int64_t i : of_states)
    body.next.push_back(adjoint(i) == kNoNode ? graph.constant(graph[value(i)].dtype, 0, bits_of(graph[value(i)].dtype, -0.0))
                                              : adjoint(i));
  for (const std::int64_t c : of_captures) body.next.push_back(adjoint(c));
  std::vector<std::int64_t> with_results;
  for (const std::int64_t a : of_arrays)
    if (adjoint(a) != kNoNode) with_results.push_back(a), body.results.push_back(adjoint(a));

  // The step reads the states before it, which are results of the loop, and the loop's arrays and captures.
  Steps extended = s;
  const auto states_before = [&](std::int64_t i) {
    auto at = std::ranges::find(extended.results, i);
    if (at == extended.results.end()) extended.results.push_back(i), at = extended.results.end() - 1;
    return s.states + (at - extended.results.begin());
  };
  std::vector<std::int64_t> before;
  for (std::int64_t i = 0; i < s.states; ++i) before.push_back(states_before(i));
  const NodeId with_states = extended.results.size() == s.results.size() ? loop : [&] {
    const std::vector<NodeId> again = add_steps(graph, extended, elements, operands);
    return again[0];
  }();
  for (std::int64_t i = 0; i < s.states; ++i) add_array(value(i), other_result(graph, with_states, before[static_cast<std::size_t>(i)]));
  for (std::int64_t i = s.states; i < s.states + s.arrays; ++i) add_array(value(i), operands[static_cast<std::size_t>(i)]);
  for (std::int64_t i = s.states + s.arrays; i < n; ++i) body.captures.push_back(value(i));

  std::optional<StepForm> form = form_of(graph, body);
  if (!form) throw InternalError("differentiate: the derivative of a step is not elementwise");
  // The first step has other cotangents than the steps after it. If the derivative has no results to assemble, that step is its own nodes,
  // and the loop reads its arrays from the second step on. Otherwise the cotangents are assembled.
  const auto in_row = [&](NodeId x, ListId shape, ListId one) {
    if (graph[x].op == Op::Slot || graph.elements(x) == elements) return in_shape(graph, x, shape);
    return graph.add(Op::Broadcast, graph[x].dtype, shape, {in_shape(graph, x, one)});
  };
  const bool is_apart = !later_gs.empty() && with_results.empty() && s.count > 1;
  const std::int64_t second = s.reverse ? 0 : 1;  // row of the second step, if rows are those after the first
  for (std::size_t k = 0; k < later_gs.size() && !is_apart; ++k) {
    NodeId& later = arrays[static_cast<std::size_t>(std::ranges::find(body.arrays, later_gs[k]) - body.arrays.begin())];
    const DType type = graph[at_first[k]].dtype;
    const NodeId first = in_row(at_first[k], graph.intern({1, elements}), graph.intern({1, 1}));
    const std::vector<std::int64_t> boxes = {s.place_of(0), 0, 1, 1, second, 0, 1, 1};
    later =
        s.count == 1
            ? first
            : graph.add(Node{Op::Piecewise, type, graph.intern({s.count, elements}), graph.intern({first, later}), graph.intern(boxes)});
  }
  // The placeholders of the form stand for these operands.
  std::vector<NodeId> all = inits, of_first = inits;
  for (const NodeId id : form->arrays) {
    const NodeId x = arrays[static_cast<std::size_t>(std::ranges::find(body.arrays, id) - body.arrays.begin())];
    const auto k = static_cast<std::size_t>(std::ranges::find(later_gs, id) - later_gs.begin());
    all.push_back(!is_apart || k < later_gs.size() ? x : rows(x, second, s.count - 1));
    of_first.push_back(k < later_gs.size() ? at_first[k] : rows(x, s.place_of(0), 1));
  }
  for (const NodeId id : form->captures) {
    const auto at = std::ranges::find(body.captures, id);
    if (at == body.captures.end()) throw InternalError("differentiate: the derivative of a step has an unknown operand");
    all.push_back(operands[static_cast<std::size_t>(s.states + s.arrays + (at - body.captures.begin()))]);
    of_first.push_back(all.back());
  }
  form->steps.count = is_apart ? s.count - 1 : s.count, form->steps.reverse = !s.reverse;
  for (std::int64_t i = 0; i < form->steps.states; ++i) form->steps.results.push_back(i);
  std::vector<NodeId> made = add_steps(graph, form->steps, elements, all);
  if (is_apart) {
    std::ranges::copy_n(made.begin(), form->steps.states, of_first.begin());
    for (NodeId& x : of_first) x = in_row(x, graph.intern({elements}), graph.intern({1}));
    add_lines(graph, form->steps, graph.intern({elements}), of_first);
    for (std::size_t i = 0; i < form->steps.next.size(); ++i) made[i] = of_first[static_cast<std::size_t>(form->steps.next[i])];
  }

  const auto summed = [&](NodeId g, NodeId operand) {  // an operand of one element is read by all
    const List shape = graph.shape(operand);
    const auto last = static_cast<std::int64_t>(shape.size()) - 1;
    if (shape.back() == elements) return g;
    return in_shape(graph, reduce_sum(Expr(graph, g), std::vector<std::int64_t>{last}).id(), graph[operand].shape);
  };
  std::vector<NodeId> out(operands.size(), kNoNode);
  const auto set = [&](std::int64_t operand, NodeId g) {
    out[static_cast<std::size_t>(operand)] = summed(g, operands[static_cast<std::size_t>(operand)]);
  };
  for (std::size_t k = 0; k < of_states.size(); ++k)
    if (depends[static_cast<std::size_t>(of_states[k])] && adjoint(of_states[k]) != kNoNode) set(of_states[k], made[k]);
  for (std::size_t k = 0; k < of_captures.size(); ++k) set(of_captures[k], made[of_states.size() + k]);
  for (std::size_t k = 0; k < with_results.size(); ++k) set(with_results[k], made[static_cast<std::size_t>(form->steps.states) + k]);
  return out;
}

}  // namespace

std::vector<NodeId> differentiate(Graph& graph, std::span<const NodeId> ys, std::span<const NodeId> cotangents, std::span<const NodeId> xs,
                                  std::span<const std::string> names, const DerivativeRules& rules) {
  check(graph, ys, cotangents, xs, names);
  ReversePass pass(graph, ys, xs, rules);
  pass.run(ys, cotangents);
  std::vector<NodeId> result;
  for (NodeId x : xs) result.push_back(pass.adjoint(x));
  return result;
}

}  // namespace onepass::compiler
