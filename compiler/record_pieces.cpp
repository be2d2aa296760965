// Recording: operators that join or repeat arrays, and the random generator, whose output words are joined. See record.h.
//   concat([a, b], 1)   piecewise a, b         stack([a, b], -1)   piecewise of a and b with one more axis
//   roll(x, 3, 0)       piecewise of two slices of x
//   tile, repeat        no boxes: reshape, broadcast and reshape, which are index maps
#include <algorithm>

#include <fmt/format.h>

#include "compiler/record.h"
#include "ir/normal_quantile.h"

namespace onepass::compiler {

namespace {

std::int64_t axis_at(std::string_view name, std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank) throw ShapeError(fmt::format("{}: axis {} is out of range for rank {}", name, axis, rank));
  return axis < 0 ? axis + rank : axis;
}

}  // namespace

// Returns the values in one type, promoted like the operands of an elementwise operator.
std::vector<Value> Recorder::of_one_type(std::string_view name, std::span<const Value> xs) {
  if (xs.empty()) throw ValueError(fmt::format("{}: the list is empty; at least one array is required", name));
  bool have = false;
  DType type = DType::Bool;
  for (const Value& x : xs)
    if (!x.is_literal) {
      type = have ? promote(name, type, dtype(x)) : dtype(x);
      have = true;
    }
  if (have) {
    for (const Value& x : xs)
      if (x.is_literal) type = type_beside(x.literal, type);
  } else type = type_of_literals(xs);
  std::vector<Value> out;
  for (const Value& x : xs) out.push_back(x.is_literal ? node_of(x, type) : make(convert(x.node, type)));
  return out;
}

DType Recorder::type_beside(const Literal& literal, DType type) {
  if (literal.kind == Literal::Kind::Float && !is_float(type)) return DType::F32;
  return literal.is_integer() && type == DType::Bool ? default_type(literal.kind) : type;
}

DType Recorder::type_of_literals(std::span<const Value> xs) {
  Literal::Kind widest = Literal::Kind::Bool;
  for (const Value& x : xs) widest = std::max(widest, x.literal.kind);
  return default_type(widest);
}

Value Recorder::concat(std::span<const Value> xs, std::int64_t axis, std::string_view name) {
  const std::vector<Value> parts = of_one_type(name, xs);
  Shape to(shape(parts[0]).begin(), shape(parts[0]).end());
  const std::size_t rank = to.size();
  if (rank == 0) throw ShapeError(fmt::format("{}: {} has no axis to join along. Use stack", name, describe(xs[0])));
  const auto along = static_cast<std::size_t>(axis_at(name, axis, static_cast<std::int64_t>(rank)));
  std::vector<std::int64_t> ids, boxes;
  std::int64_t total = 0;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto from = shape(parts[k]);
    bool fits = from.size() == rank;
    for (std::size_t i = 0; fits && i < rank; ++i) fits = i == along || from[i] == to[i];
    if (!fits)
      throw ShapeError(fmt::format(
          "{}: {} and {} differ along an axis other than {}; only the lengths along the joined axis may differ. Slice or pad them.", name,
          describe(xs[0]), describe(xs[k]), along));
    std::vector<std::int64_t> start(rank, 0);
    start[along] = total;
    boxes.insert(boxes.end(), start.begin(), start.end());
    boxes.insert(boxes.end(), rank, 1);
    ids.push_back(parts[k].node);
    if (__builtin_add_overflow(total, from[along], &total))
      throw ShapeError(fmt::format("{}: the length of the result along axis {} does not fit in 64 bits", name, along));
  }
  to[along] = total;
  check_shape(name, to, limits);
  if (parts.size() == 1) return parts[0];
  return make(graph.add(ir::Node{Op::Piecewise, dtype(parts[0]), graph.intern(to), graph.intern(ids), graph.intern(boxes), 0}));
}

Value Recorder::stack(std::span<const Value> xs, std::int64_t axis) {
  std::vector<Value> parts = of_one_type("stack", xs);
  const auto first = shape(parts[0]);
  const std::int64_t at = axis_at("stack", axis, static_cast<std::int64_t>(first.size()) + 1);
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (!std::ranges::equal(shape(parts[k]), shape(parts[0])))
      throw ShapeError(fmt::format("stack: {} and {} must have the same shape", describe(xs[0]), describe(xs[k])));
  for (Value& x : parts) x = expand_dims(x, at);
  return concat(parts, at, "stack");
}

Value Recorder::pad(Value x, const Shape& low, const Shape& high, std::optional<Value> value) {
  x = node_of(x);
  const Shape from(shape(x).begin(), shape(x).end());
  const std::size_t rank = from.size();
  if (low.size() != rank || high.size() != rank)
    throw ShapeError(
        fmt::format("pad: {} and {} must hold one amount for each axis of {}", shape_text(low), shape_text(high), describe(x)));
  Shape to(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    if (low[i] < 0 || high[i] < 0)
      throw ShapeError(
          fmt::format("pad: the amounts {} and {} must not be negative. Use a slice to cut", shape_text(low), shape_text(high)));
    if (__builtin_add_overflow(from[i], low[i], &to[i]) || __builtin_add_overflow(to[i], high[i], &to[i]))
      throw ShapeError(fmt::format("pad: {} with the amounts {} and {} has a length that does not fit in 64 bits", describe(x),
                                   shape_text(low), shape_text(high)));
  }
  check_shape("pad", to, limits);
  if (rank == 0) return x;
  Shape box = low;
  box.insert(box.end(), rank, 1);
  if (!value) return make(graph.add(Op::Pad, dtype(x), graph.intern(to), {x.node}, box));
  Value fill = *value;
  if (!shape(fill).empty()) throw ShapeError(fmt::format("pad: the value must be a scalar, not {}", describe(fill)));
  const DType type = fill.is_literal ? type_beside(fill.literal, dtype(x)) : promote("pad", dtype(x), dtype(fill));
  fill = fill.is_literal ? make(slot_for(fill.literal, type, 0, "pad")) : make(convert(fill.node, type));
  return make(graph.add(Op::Piecewise, type, graph.intern(to), {convert(x.node, type), fill.node}, box));
}

// Returns x with axis i repeated `times[i]` times (tile), or each of its indices repeated `times[i]` times (repeat).
Value Recorder::repeated(std::string_view name, Value x, const Shape& times, bool inside) {
  const Shape from(shape(x).begin(), shape(x).end());
  Shape unit, stretched, to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (times[i] < 0) throw ShapeError(fmt::format("{}: the counts {} must not be negative", name, shape_text(times)));
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(from[i], times[i], &extent))
      throw ShapeError(
          fmt::format("{}: {} taken {} times has a length that does not fit in 64 bits", name, describe(x), shape_text(times)));
    to.push_back(extent);
    const bool more = times[i] != 1;
    if (more && !inside) unit.push_back(1), stretched.push_back(times[i]);
    unit.push_back(from[i]), stretched.push_back(from[i]);
    if (more && inside) unit.push_back(1), stretched.push_back(times[i]);
  }
  check_shape(name, to, limits);
  return reshape(broadcast_to(reshape(x, unit), stretched, name), to);
}

Value Recorder::tile(Value x, Shape times) {
  x = node_of(x);
  const std::size_t rank = shape(x).size();
  if (times.size() < rank) times.insert(times.begin(), rank - times.size(), 1);
  Shape longer(times.size() - rank, 1);
  longer.insert(longer.end(), shape(x).begin(), shape(x).end());
  return repeated("tile", reshape(x, longer), times, false);
}

Value Recorder::repeat(Value x, std::int64_t times, std::int64_t axis) {
  x = node_of(x);
  Shape all(shape(x).size(), 1);
  all[static_cast<std::size_t>(axis_at("repeat", axis, static_cast<std::int64_t>(all.size())))] = times;
  return repeated("repeat", x, all, true);
}

Value Recorder::roll(Value x, const Shape& shifts, std::optional<std::vector<std::int64_t>> axes) {
  x = node_of(x);
  if (!axes) {
    if (shifts.size() != 1)
      throw ValueError(fmt::format("roll: {} shifts given without axes. Pass a single shift to roll the flattened array.", shifts.size()));
    const Shape from(shape(x).begin(), shape(x).end());
    return reshape(roll(reshape(x, {graph.elements(x.node)}), shifts, std::vector<std::int64_t>{0}), from);
  }
  if (axes->size() != shifts.size())
    throw ValueError(fmt::format("roll: {} shifts given for {} axes; the numbers must be equal", shifts.size(), axes->size()));
  const auto rank = static_cast<std::int64_t>(shape(x).size());
  for (std::size_t k = 0; k < shifts.size(); ++k) {
    const auto at = static_cast<std::size_t>(axis_at("roll", (*axes)[k], rank));
    const std::int64_t n = shape(x)[at];
    if (n < 2) continue;
    const std::int64_t shift = (shifts[k] % n + n) % n;
    std::vector<Index> head(static_cast<std::size_t>(rank)), tail;
    for (Index& i : head) i.kind = Index::Kind::Slice;
    tail = head;
    head[at].start = n - shift;
    tail[at].stop = n - shift;
    const Value parts[2] = {index(x, head), index(x, tail)};
    x = concat(parts, static_cast<std::int64_t>(at), "roll");
  }
  return x;
}

// ------------------------------------------------------------------------------------------------ random numbers

namespace {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011): four words from a two-word counter (the other two words are 0) and a two-word key.
std::array<ir::Expr, 4> philox(ir::Expr low, ir::Expr high, ir::Expr key0, ir::Expr key1) {
  using namespace ir;
  const Expr zero = constant_like(low, 0.0);
  std::array<Expr, 4> c = {low, high, zero, zero};
  for (int round = 0; round < 10; ++round) {
    if (round > 0) key0 = key0 + 0x9E3779B9u, key1 = key1 + 0xBB67AE85u;
    const Expr p = cast(c[0], DType::U64) * 0xD2511F53u, q = cast(c[2], DType::U64) * 0xCD9E8D57u;
    c = {cast(q >> 32, DType::U32) ^ c[1] ^ key0, cast(q, DType::U32), cast(p >> 32, DType::U32) ^ c[3] ^ key1, cast(p, DType::U32)};
  }
  return c;
}

}  // namespace

// Elements share a counter: four elements of a narrow type take one word each, two elements of f64 take two words each. So the generator
// runs once for all of them, and its results are stacked.
Value Recorder::random_bits(std::string_view name, Value key, const Shape& shape, DType type) {
  using ir::Expr;
  check_shape(name, shape, limits);
  if (!is_float(type)) throw DTypeError(fmt::format("{}: the type must be a float, not {}", name, name_of(type)));
  if (key.is_literal && !key.literal.is_integer())
    throw DTypeError(fmt::format("{}: the key must be an integer, not {}", name, describe(key)));
  key = node_of(key);
  if (!is_integer(dtype(key)) || !this->shape(key).empty())
    throw DTypeError(fmt::format("{}: the key must be an integer, a literal or a tensor of rank 0, not {}", name, describe(key)));
  const bool wide = type == DType::F64;
  const std::int64_t each = wide ? 2 : 4, n = ir::element_count(shape), counters = n / each + (n % each != 0);
  const ir::ListId line = graph.intern({counters});
  const Expr k(graph, convert(key.node, DType::U64));
  const auto everywhere = [&](Expr x) { return Expr(graph, broadcast(x.id(), line)); };
  const Expr key0 = everywhere(ir::cast(k, DType::U32)), key1 = everywhere(ir::cast(k >> 32, DType::U32));
  const std::int64_t axis = 0;
  const Expr counter(graph, graph.add(Op::Iota, DType::U64, line, {}, ir::List(&axis, 1)));
  const std::array<Expr, 4> words = philox(ir::cast(counter, DType::U32), ir::cast(counter >> 32, DType::U32), key0, key1);
  std::vector<Value> parts;
  const auto part = [&](Expr x) { parts.push_back(make(x.id())); };
  if (wide) {
    part(ir::cast(words[0], DType::U64) | (ir::cast(words[1], DType::U64) << 32));
    part(ir::cast(words[2], DType::U64) | (ir::cast(words[3], DType::U64) << 32));
  } else {
    for (const Expr& word : words) part(word);
  }
  const Value flat = reshape(stack(parts, 1), {counters * each});
  Index first;
  first.kind = Index::Kind::Slice;
  first.stop = n;
  return reshape(index(flat, std::span(&first, 1)), shape);
}

Value Recorder::uniform(Value key, const Shape& shape, DType type) {
  using ir::Expr;
  const Expr bits(graph, random_bits("uniform", key, shape, type).node);
  // The remaining bits fit the signed type, which converts to float more cheaply.
  if (type == DType::F64) return make((ir::cast(ir::bitcast(bits >> 11, DType::I64), DType::F64) * 0x1p-53).id());
  const int drop = type == DType::F32 ? 8 : type == DType::F16 ? 21 : 24;
  const double scale = type == DType::F32 ? 0x1p-24 : type == DType::F16 ? 0x1p-11 : 0x1p-8;
  const Expr value = ir::cast(ir::bitcast(bits >> drop, DType::I32), DType::F32) * scale;
  return make(convert(value.id(), type));
}

// Returns sqrt(2) * erfinv(t). t is the midpoint of the subinterval of (-1, 1) that the bits select: exact, and never an end point.
Value Recorder::normal(Value key, const Shape& shape, DType type) {
  using ir::Expr;
  const Expr bits(graph, random_bits("normal", key, shape, type).node);
  const bool wide = type == DType::F64;
  const Expr whole = ir::bitcast(bits >> (wide ? 12 : 8), wide ? DType::I64 : DType::I32);
  const Expr odd = whole + whole + (1 - (wide ? std::int64_t{1} << 52 : std::int64_t{1} << 24));
  const Expr t = ir::cast(odd, wide ? DType::F64 : DType::F32) * (wide ? 0x1p-52 : 0x1p-24);
  return make(convert(ir::normal_quantile(t).id(), type));
}

}  // namespace onepass::compiler
