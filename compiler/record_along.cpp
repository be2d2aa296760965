// Recording: scans, indexing by data, and writing by data. See record.h.
//   cumsum(x, 0, reverse=true)       flip, scan_sum, flip
//   take(x, i, axis)                 place i; reshape to one axis in x's rank and broadcast; gather; reshape to i's shape at the axis
//   take_along_axis(x, i, axis)      place i; broadcast both on the other axes; gather
//   take(x, broadcast_to(i, s), 0)   place i; broadcast; as above
//   index_update(x, i, u, 0)         checked indices as in take; assign x, indices, u
#include <algorithm>

#include <fmt/format.h>

#include "compiler/record.h"
#include "compiler/spread.h"

namespace onepass::compiler {

namespace {

// Returns the accumulator type: integers narrower than 64 bits and bool are summed and multiplied in 64 bits.
DType accumulated(Op op, DType type) {
  const bool adds = op == Op::ScanSum || op == Op::ScanProd;
  if (!adds || is_float(type)) return type;
  return is_unsigned_integer(type) ? DType::U64 : DType::I64;
}

}  // namespace

std::size_t Recorder::axis_of(std::string_view name, const Value& x, std::int64_t axis) const {
  return static_cast<std::size_t>(axes_of(name, static_cast<std::int64_t>(shape(x).size()), {axis})[0]);
}

Value Recorder::scan(Op op, std::string_view name, Value x, std::int64_t axis, bool reverse) {
  x = node_of(x);
  if (shape(x).empty()) throw ShapeError(fmt::format("{}: {} has no axis to run along; at least one axis is required", name, describe(x)));
  const std::int64_t along[1] = {static_cast<std::int64_t>(axis_of(name, x, axis))};
  const DType type = accumulated(op, dtype(x));
  x = make(convert(x.node, type));
  if (shape(x)[static_cast<std::size_t>(along[0])] == 1) return x;
  const std::vector<std::int64_t> axes(along, along + 1);
  if (reverse) x = flip(x, axes);
  const Value y = make(graph.add(op, type, graph[x.node].shape, {x.node}, along));
  return reverse ? flip(y, axes) : y;
}

Value Recorder::place(std::string_view name, ir::Indexing indexing, Value indices, std::int64_t extent, std::size_t axis) {
  indices = node_of(indices);
  if (!is_integer(dtype(indices))) throw DTypeError(fmt::format("{}: the indices {} must be integers", name, describe(indices)));
  const std::int64_t attributes[3] = {extent, static_cast<std::int64_t>(axis), static_cast<std::int64_t>(indexing)};
  // Indices that are constant along an axis are checked once. The first invalid index in row-major order is at 0 along that axis.
  const ir::ListId shape = graph[indices.node].shape;
  std::vector<std::int64_t> extents(graph.list(shape).begin(), graph.list(shape).end());
  int looks = 16;
  const std::uint64_t spread = graph.elements(indices.node) == 0 ? 0 : spread_axes(graph, indices.node, looks);
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (spread >> i & 1) extents[i] = 1;
  const auto add = [](ir::Graph& to, const ir::Node& node) { return to.add(node); };
  const NodeId different = first_places(graph, indices.node, extents, add);
  const NodeId places = graph.add(Op::Place, DType::I64, graph[different].shape, {different}, attributes);
  return make(graph[places].shape == shape ? places : graph.add(Op::Broadcast, DType::I64, shape, {places}));
}

Value Recorder::gather(Value x, Value places, std::size_t axis) {
  const std::int64_t along[1] = {static_cast<std::int64_t>(axis)};
  return make(graph.add(Op::Gather, dtype(x), graph[places.node].shape, {x.node, places.node}, along));
}

// Returns the checked indices of take and index_add: one axis in x's rank, broadcast over the other axes.
Value Recorder::spread_places(std::string_view name, const Value& x, Value places, std::size_t axis) {
  Shape line(shape(x).size(), 1), all(shape(x).begin(), shape(x).end());
  line[axis] = all[axis] = graph.elements(places.node);
  check_shape(name, all, limits);
  return broadcast_to(reshape(places, line), all, name);
}

// Returns x's shape with the indices' shape in place of the axis.
Shape Recorder::taken_shape(std::string_view name, const Value& x, const Value& indices, std::size_t axis) const {
  const auto from = shape(x), many = shape(indices);
  Shape to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(axis));
  to.insert(to.end(), many.begin(), many.end());
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.end());
  check_shape(name, to, limits);
  return to;
}

Value Recorder::take(Value x, Value indices, std::int64_t axis) {
  x = node_of(x), indices = node_of(indices);
  if (shape(x).empty()) throw ShapeError(fmt::format("take: {} has no axis to take from; at least one axis is required", describe(x)));
  const std::size_t at = axis_of("take", x, axis);
  const Shape to = taken_shape("take", x, indices, at);
  const Value places = place("take", ir::Indexing::Take, indices, shape(x)[at], at);
  return reshape(gather(x, spread_places("take", x, places, at), at), to);
}

Value Recorder::take_along_axis(Value x, Value indices, std::int64_t axis) {
  x = node_of(x), indices = node_of(indices);
  const std::size_t rank = shape(x).size();
  if (rank == 0 || shape(indices).size() != rank)
    throw ShapeError(
        fmt::format("take_along_axis: {} and the indices {} must have the same rank, 1 or more", describe(x), describe(indices)));
  const std::size_t at = axis_of("take_along_axis", x, axis);
  Shape from(shape(x).begin(), shape(x).end()), to(shape(indices).begin(), shape(indices).end());
  for (std::size_t i = 0; i < rank; ++i) {
    if (i == at || from[i] == to[i]) continue;
    if (from[i] != 1 && to[i] != 1)
      throw ShapeError(
          fmt::format("take_along_axis: {} and the indices {} do not broadcast: axis {} has {} and {} elements. Make these sizes equal or "
                      "one of them 1",
                      describe(x), describe(indices), i, from[i], to[i]));
    from[i] = to[i] = from[i] == 1 ? to[i] : from[i];
  }
  check_shape("take_along_axis", from, limits);
  check_shape("take_along_axis", to, limits);
  const Value places = place("take_along_axis", ir::Indexing::TakeAlongAxis, indices, from[at], at);
  return gather(broadcast_to(x, from, "take_along_axis"), broadcast_to(places, to, "take_along_axis"), at);
}

// Returns x with the updates added or written at the checked indices, in one type.
Value Recorder::joined_at(std::string_view name, Value x, Value places, Value updates, std::size_t axis, Joined how) {
  const Value both[2] = {x, updates};
  std::vector<Value> typed = of_one_type(name, both);
  DType type = dtype(typed[0]);
  if (how == Joined::Add) {
    if (type == DType::Bool) throw DTypeError(fmt::format("{}: bool cannot be added. Cast {} to an integer type.", name, describe(x)));
    const std::int64_t along[1] = {static_cast<std::int64_t>(axis)};
    return make(graph.add(Op::ScatterAdd, type, graph[typed[0].node].shape, {typed[0].node, places.node, typed[1].node}, along));
  }
  if (graph.elements(places.node) == 0) return typed[0];
  const bool half = is_half(type);
  if (half)  // the round trip is exact
    for (Value& v : typed) v = cast(v, DType::F32);
  const std::int64_t mode = how == Joined::Set ? 0 : how == Joined::Min ? 1 : 2;
  const std::int64_t attributes[2] = {static_cast<std::int64_t>(axis), mode};
  const Value y = make(
      graph.add(Op::Assign, half ? DType::F32 : type, graph[typed[0].node].shape, {typed[0].node, places.node, typed[1].node}, attributes));
  return half ? cast(y, type) : y;
}

Value Recorder::scatter(std::string_view name, ir::Indexing by, Value x, Value indices, Value updates, std::int64_t axis, Joined how) {
  const auto from = shape(x), at_shape = shape(indices);
  if (from.empty()) throw ShapeError(fmt::format("{}: {} has no axis", name, describe(x)));
  const std::size_t at = axis_of(name, x, axis);
  bool fits = from.size() == at_shape.size() && std::ranges::equal(shape(updates), at_shape);
  for (std::size_t i = 0; fits && i < from.size(); ++i) fits = i == at || from[i] == at_shape[i];
  if (!fits)
    throw ShapeError(
        fmt::format("{}: the indices {} and the updates {} must have one shape, which may differ from the shape of {} only along axis {}",
                    name, describe(indices), describe(updates), describe(x), at));
  return joined_at(name, x, place(name, by, indices, from[at], at), updates, at, how);
}

Value Recorder::index_update(std::string_view name, ir::Indexing by, Value x, Value indices, Value updates, std::int64_t axis, Joined how) {
  if (shape(x).empty()) throw ShapeError(fmt::format("{}: {} has no axis", name, describe(x)));
  const std::size_t at = axis_of(name, x, axis);
  const Shape wanted = taken_shape(name, x, indices, at);
  if (!std::ranges::equal(shape(updates), wanted))
    throw ShapeError(fmt::format("{}: the updates {} must have the shape {}: {} with the indices {} in place of axis {}", name,
                                 describe(updates), shape_text(wanted), describe(x), describe(indices), at));
  const Value places = spread_places(name, x, place(name, by, indices, shape(x)[at], at), at);
  const Shape line(shape(places).begin(), shape(places).end());
  return joined_at(name, x, places, reshape(updates, line), at, how);
}

Value Recorder::scatter_add(Value x, Value indices, Value updates, std::int64_t axis) {
  x = node_of(x), indices = node_of(indices), updates = node_of(updates, type_beside(updates, dtype(x)));
  return scatter("scatter_add", ir::Indexing::ScatterAdd, x, indices, updates, axis, Joined::Add);
}

Value Recorder::index_add(Value x, Value indices, Value updates, std::int64_t axis) {
  x = node_of(x), indices = node_of(indices), updates = node_of(updates, type_beside(updates, dtype(x)));
  return index_update("index_add", ir::Indexing::IndexAdd, x, indices, updates, axis, Joined::Add);
}

Value Recorder::scatter(Value x, Value indices, Value updates, std::int64_t axis, Joined how) {
  x = node_of(x), indices = node_of(indices), updates = written(updates, x);
  return scatter("scatter", ir::Indexing::Scatter, x, indices, updates, axis, how);
}

Value Recorder::index_update(Value x, Value indices, Value updates, std::int64_t axis, Joined how) {
  x = node_of(x), indices = node_of(indices), updates = written(updates, x);
  return index_update("index_update", ir::Indexing::IndexUpdate, x, indices, updates, axis, how);
}

// Returns the value to write in x's type.
Value Recorder::written(Value v, const Value& x) { return v.is_literal ? node_of(v, dtype(x)) : cast(v, dtype(x)); }

// Returns one element of each row. For an array this is a gather. A gather would materialize computed values, so for computed values it is
// a sum over the row with the other elements set to -0. That sum equals the element bit for bit.
Value Recorder::chosen_along(Value x, Value places, std::size_t axis) {
  NodeId base = x.node;
  while (ir::is_view(graph[base].op)) base = graph.operand(base, 0);
  if (graph[base].op == Op::Input) return gather(x, places, axis);
  const Shape all(shape(x).begin(), shape(x).end());
  const Value here = elementwise(Op::Equal, {iota(all, static_cast<std::int64_t>(axis), DType::I64), places});
  const Value elsewhere = make(graph.constant(dtype(x), 0, ir::bits_of(dtype(x), -0.0)));
  return reduce(Op::ReduceSum, "cross_entropy", where(here, x, elsewhere), std::vector{static_cast<std::int64_t>(axis)}, true);
}

// Computes -log_softmax(x) at the label. The subtracted term is equal for all classes, so only x is gathered.
Value Recorder::cross_entropy(Value x, Value labels, std::int64_t axis) {
  x = node_of(x), labels = node_of(labels);
  if (!is_integer(dtype(labels)))
    throw DTypeError(fmt::format("cross_entropy: the labels {} must be integers, one class for each sample", describe(labels)));
  if (shape(x).empty())
    throw ShapeError(fmt::format("cross_entropy: {} has no axis of classes; at least one axis is required", describe(x)));
  if (!is_float(dtype(x))) x = cast(x, size_of(dtype(x)) == 8 ? DType::F64 : DType::F32);
  const std::size_t at = axis_of("cross_entropy", x, axis);
  const std::vector<std::int64_t> along = {static_cast<std::int64_t>(at)};
  Shape samples(shape(x).begin(), shape(x).end());
  const std::int64_t classes = samples[at];
  samples.erase(samples.begin() + along[0]);
  if (!std::ranges::equal(shape(labels), samples))
    throw ShapeError(fmt::format("cross_entropy: the labels {} must have the shape {}, which is the shape of {} without axis {}",
                                 describe(labels), shape_text(samples), describe(x), at));
  const Value places = expand_dims(place("cross_entropy", ir::Indexing::CrossEntropy, labels, classes, at), along[0]);
  const Value chosen = reshape(chosen_along(x, places, at), samples);
  const Value most = elementwise(Op::StopGradient, {reduce(Op::ReduceMax, "cross_entropy", x, along, true)});
  const Value sum = reduce(Op::ReduceSum, "cross_entropy", elementwise(Op::Exp, {sub(x, most)}), along, false);
  const Value difference = sub(sub(chosen, reshape(most, samples)), elementwise(Op::Log, {sum}));
  return elementwise(Op::Neg, {difference});
}

}  // namespace onepass::compiler
