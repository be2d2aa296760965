// Recording: promotion, broadcasting, literals and views. See record.h; the operators by name are in functions.cpp.
#include "compiler/record.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "compiler/diagonal.h"
#include "ir/reference.h"

namespace onepass::compiler {

using ir::ListId;

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string type_text(DType dtype, std::span<const std::int64_t> shape) { return std::string(name_of(dtype)) + shape_text(shape); }

DType promote(std::string_view name, DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (is_float(a) && is_float(b)) return size_of(a) == size_of(b) ? DType::F32 : size_of(a) > size_of(b) ? a : b;  // f16 with bf16: f32
  if (is_float(a)) return a;
  if (is_float(b)) return b;
  const bool signed_a = is_signed_integer(a), signed_b = is_signed_integer(b);
  if (signed_a == signed_b) return size_of(a) > size_of(b) ? a : b;
  const DType s = signed_a ? a : b, u = signed_a ? b : a;
  if (size_of(s) > size_of(u)) return s;
  switch (size_of(u)) {  // the next wider signed type holds both
    case 1: return DType::I16;
    case 2: return DType::I32;
    case 4: return DType::I64;
    default: break;
  }
  throw DTypeError(fmt::format("{}: u64 and {} have no common type. Cast one of them", name, name_of(s)));
}

// ------------------------------------------------------------------------------------------------ values

namespace {

void check_rank(std::string_view name, std::span<const std::int64_t> shape, const Limits& limits, std::string_view what = "") {
  const auto most = static_cast<std::size_t>(std::clamp(limits.rank, 0, Limits{}.rank));
  if (shape.size() > most)
    throw ShapeError(fmt::format("{}{}: the rank {} is above {}, the limit `rank`. Use fewer axes", what, name, shape.size(), most));
}

}  // namespace

Value Recorder::make(NodeId node) {
  if (graph.size() > limits.max_nodes)
    throw ValueError(fmt::format(
        "the program has more than {} nodes after its calls are expanded, the limit `max_nodes`. Raise the limit or split the program",
        limits.max_nodes));
  return Value{false, node, {}};
}

Value Recorder::input(std::string name, DType dtype, std::span<const std::int64_t> shape) {
  check_rank(name, shape, limits, "input ");
  const NodeId node = graph.add_input(std::move(name), dtype, shape);
  names_[node] = graph.inputs.back().name;
  return make(node);
}

Value Recorder::literal(Literal value) {
  value.origin = next_origin_++;
  return Value{true, ir::kNoNode, value};
}

Value Recorder::literal(bool value) { return literal(Literal{.kind = Literal::Kind::Bool, .integer = value}); }
Value Recorder::literal(std::int64_t value) { return literal(Literal{.kind = Literal::Kind::Int, .integer = value}); }
Value Recorder::literal(double value) { return literal(Literal{.kind = Literal::Kind::Float, .real = value}); }
Value Recorder::brought_by_shape(const Value& of, std::vector<std::int64_t> what, std::int64_t value) {
  if (of.is_literal) return brought(literal(value));
  const auto [it, fresh] = by_shape_.try_emplace({of.node, std::move(what)});
  if (fresh) it->second = brought(literal(value));
  return it->second;
}
Value Recorder::number(std::uint32_t argument, const Literal& value) { return literal(numbers.bring(argument, value)); }

DType Recorder::dtype(const Value& v) const {
  if (!v.is_literal) return graph[v.node].dtype;
  return default_type(v.literal.kind);
}

std::span<const std::int64_t> Recorder::shape(const Value& v) const {
  return v.is_literal ? std::span<const std::int64_t>{} : graph.shape(v.node);
}

void Recorder::name(const Value& v, std::string_view text) {
  if (!v.is_literal) names_.try_emplace(v.node, text);
}

std::string Recorder::describe(const Value& v) const {
  if (v.is_literal) return text_of(v.literal);
  const ir::Node node = graph[v.node];
  if (node.op == Op::Input)
    return fmt::format("{} {}", graph.inputs[node.bits].name, type_text(dtype(v), shape(v)));  // the input may have been renamed
  const auto it = names_.find(v.node);
  return fmt::format("{}{}", it == names_.end() ? "" : it->second + " ", type_text(dtype(v), shape(v)));
}

std::int64_t Recorder::integer(const Value& v, std::string_view what) {
  if (!v.is_literal || v.literal.kind != Literal::Kind::Int)
    throw ValueError(fmt::format("{} must be an integer literal, an extent or an expression of these, not {}", what, describe(v)));
  numbers.pin(v.literal);
  return v.literal.integer;
}

bool Recorder::flag(const Value& v, std::string_view what) {
  if (!v.is_literal || v.literal.kind == Literal::Kind::Float) throw ValueError(fmt::format("{} must be true or false", what));
  numbers.pin(v.literal);
  return v.literal.integer != 0;
}

// Returns the scalar parameter of a literal in `dtype`: one for each occurrence and type, whatever its value.
NodeId Recorder::slot_for(const Literal& literal, DType dtype, ListId shape, std::string_view name) {
  const std::uint64_t bits = bits_of(literal, dtype, name);
  const std::uint64_t key = std::uint64_t{literal.origin} << 8 | static_cast<std::uint64_t>(dtype);
  const auto [it, fresh] = slots_.try_emplace(key, static_cast<std::uint32_t>(graph.slots.size()));
  if (!fresh) return graph.slot_node(it->second, shape);
  numbers.fill(it->second, dtype, literal, name);
  return graph.add_slot(dtype, bits, shape);
}

Value Recorder::node_of(const Value& v) { return v.is_literal ? node_of(v, dtype(v)) : v; }

Value Recorder::node_of(const Value& v, DType dtype) {
  if (!v.is_literal) return v;
  return make(slot_for(v.literal, dtype, graph.intern({}), "literal"));
}

void Recorder::output(std::string name, const Value& v) {
  graph.outputs.push_back(node_of(v).node);
  graph.output_names.push_back(std::move(name));
}

// ------------------------------------------------------------------------------------------------ elementwise

NodeId Recorder::convert(NodeId node, DType dtype) {
  if (graph[node].dtype == dtype) return node;
  return graph.add(Op::Cast, dtype, graph[node].shape, {node});
}

NodeId Recorder::broadcast(NodeId node, ListId shape) {
  const ir::Node n = graph[node];
  if (n.shape == shape) return node;
  if (n.op == Op::Constant) return graph.constant(n.dtype, shape, n.bits);
  const ir::List from = graph.list(n.shape), to = graph.list(shape);
  if (from.size() < to.size()) {
    Shape padded(to.size() - from.size(), 1);
    padded.insert(padded.end(), from.begin(), from.end());
    node = graph.add(Op::Reshape, n.dtype, graph.intern(padded), {node});
    if (graph[node].shape == shape) return node;
  }
  return graph.add(Op::Broadcast, n.dtype, shape, {node});
}

// The byte count, with zero extents counted as one, must fit a signed 64-bit number, the type of strides and offsets.
void check_shape(std::string_view name, std::span<const std::int64_t> shape, const Limits& limits) {
  check_rank(name, shape, limits);
  std::int64_t n = 8;
  for (std::int64_t e : shape) {
    if (e < 0) throw ShapeError(fmt::format("{}: the shape {} has a negative extent", name, shape_text(shape)));
    if (e && __builtin_mul_overflow(n, e, &n))
      throw ShapeError(fmt::format("{}: the shape {} needs more bytes than 64 bits can count", name, shape_text(shape)));
  }
}

// Returns the result of an operator on literals only, which is a literal.
Value Recorder::fold(Op op, std::string_view name, std::span<const Literal> in) {
  Literal result = compiler::fold(op, name, in);
  result.brought = std::ranges::any_of(in, &Literal::brought);
  numbers.derive(result, op, name, in);
  return literal(result);
}

Value Recorder::elementwise(Op op, std::initializer_list<Value> operands) {
  return elementwise(op, called_.empty() ? ir::info(op).text : called_, std::span<const Value>(operands.begin(), operands.size()));
}

// Throws if the operator is undefined for operands of this common type.
void Recorder::check_types(const ir::OpInfo& info, std::string_view name, DType type, std::span<const Value> in) const {
  if (info.types == ir::TypeRule::Choose && dtype(in[0]) != DType::Bool)
    throw DTypeError(fmt::format("{}: the condition must be bool, not {}. Write c != 0", name, describe(in[0])));
  const auto operands = [&] {
    std::string text;
    for (std::size_t i = 0; i < in.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : i + 1 < in.size() ? ", " : " and ", describe(in[i]));
    return text;
  };
  const bool arithmetic = info.types == ir::TypeRule::Number || (info.traits & ir::kArithmetic);
  if (arithmetic && type == DType::Bool)
    throw DTypeError(in.size() == 1
                         ? fmt::format("{}: the operator does not accept bool ({}). Cast it to a number", name, operands())
                         : fmt::format("{}: arithmetic on two bools ({}) is not defined. Use & or |, or cast one", name, operands()));
  const bool bits = info.types == ir::TypeRule::Bits;
  if ((bits || info.types == ir::TypeRule::Integer) && (is_float(type) || (!bits && type == DType::Bool)))
    throw DTypeError(fmt::format("{}: the operands must be integers{}, not {} ({}). Cast {} first", name, bits ? " or bool" : "",
                                 name_of(type), operands(), in.size() == 1 ? "it" : "them"));
}

Value Recorder::elementwise(Op op, std::string_view name, std::span<const Value> in) {
  const ir::OpInfo& info = ir::info(op);
  const std::size_t first = op == Op::Where ? 1 : 0;
  const bool literals_alone = std::all_of(in.begin(), in.end(), [](const Value& v) { return v.is_literal; });

  // The common type: first of the tensors, then of the literals combined with them.
  bool have = false;
  DType type = DType::Bool;
  for (std::size_t i = first; i < in.size(); ++i)
    if (!in[i].is_literal) {
      type = have ? promote(name, type, dtype(in[i])) : dtype(in[i]);
      have = true;
    }
  if (have) {
    for (std::size_t i = first; i < in.size(); ++i)
      if (in[i].is_literal) type = type_beside(in[i].literal, type);
  } else type = type_of_literals(in.subspan(first));
  check_types(info, name, type, in);
  if (literals_alone) {
    Literal literals[3];
    for (std::size_t i = 0; i < in.size(); ++i) literals[i] = in[i].literal;
    return fold(op, name, std::span(literals, in.size()));
  }

  const bool wants_float = info.types == ir::TypeRule::Float || info.types == ir::TypeRule::Predicate;
  if (wants_float && !is_float(type)) {
    if (op == Op::Floor || op == Op::Ceil || op == Op::Trunc || op == Op::Round) return in[0];  // integers: unchanged
    type = size_of(type) == 8 ? DType::F64 : DType::F32;
  }

  // The common shape, by NumPy's rule.
  bool equal = true;
  ListId shape = 0;
  bool seen = false;
  for (const Value& v : in) {
    if (v.is_literal) continue;
    const ListId s = graph[v.node].shape;
    equal &= !seen || s == shape;
    if (!seen) shape = s;
    seen = true;
  }
  if (!equal) {
    Shape common;
    const Value* widest = nullptr;
    for (const Value& v : in) {
      if (v.is_literal) continue;
      const ir::List s = graph.shape(v.node);
      if (s.size() > common.size()) common.insert(common.begin(), s.size() - common.size(), 1);
      for (std::size_t i = 0; i < s.size(); ++i) {
        std::int64_t& c = common[common.size() - s.size() + i];
        if (c == s[i] || s[i] == 1) continue;
        if (c == 1) {
          c = s[i];
          continue;
        }
        // names the first operand that has the other extent there
        const std::size_t from_end = s.size() - i;
        for (const Value& w : in)
          if (!w.is_literal && graph.shape(w.node).size() >= from_end && graph.shape(w.node)[graph.shape(w.node).size() - from_end] == c) {
            widest = &w;
            break;
          }
        const std::string where = from_end == 1 ? "the last dimension" : fmt::format("dimension {} from the end", from_end);
        // a vector as long as an earlier axis was probably meant for that axis
        const ir::List left = graph.shape(widest->node);
        const auto meant = s.size() == 1 ? std::find(left.begin(), left.end(), s[0]) : left.end();
        std::string advice = "Make the sizes equal or one of them 1";
        if (meant != left.end()) {
          Shape stood(static_cast<std::size_t>(left.end() - meant), 1);
          stood[0] = s[0];
          advice +=
              fmt::format("; to run along axis {} of the left operand, write reshape(…, {})", meant - left.begin(), shape_text(stood));
        }
        throw ShapeError(
            fmt::format("{}: shapes {} and {} do not broadcast: {} is {} on the left and {} on the right.\n  left:  {}\n  right: {}\n"
                        "  {}.",
                        name, shape_text(left), shape_text(s), where, c, s[i], describe(*widest), describe(v), advice));
      }
    }
    check_shape(name, common, limits);
    shape = graph.intern(common);
  }

  std::int64_t ids[3];
  DType types[3];
  for (std::size_t i = 0; i < in.size(); ++i) {
    const DType want = i < first ? DType::Bool : type;
    NodeId node;
    if (in[i].is_literal) node = slot_for(in[i].literal, want, shape, name);
    else node = broadcast(convert(in[i].node, want), shape);
    ids[i] = node;
    types[i] = want;
  }
  DType out{};
  if (!ir::result_dtype(op, std::span(types, in.size()), out))
    throw DTypeError(fmt::format("{}: the operator does not accept {}", name, name_of(type)));
  return make(graph.add(ir::Node{op, out, shape, graph.intern(ir::List(ids, in.size())), 0, 0}));
}

Value Recorder::pow(Value a, Value b) {
  if (b.is_literal && !b.literal.brought && !a.is_literal && is_float(dtype(a))) {
    const double e = b.literal.as_double();
    if (e == 1) return a;
    if (e == -1) return elementwise(Op::Reciprocal, {a});
    if (e == 2) return mul(a, a);
    if (e == 3) return mul(mul(a, a), a);
    if (e == 4) {
      const Value s = mul(a, a);
      return mul(s, s);
    }
  }
  if (a.is_literal && b.is_literal && a.literal.kind != Literal::Kind::Float && b.literal.kind != Literal::Kind::Float) {
    const Literal literals[2] = {a.literal, b.literal};
    return fold(Op::IntegerPow, "pow", literals);
  }
  const DType ta = dtype(a), tb = dtype(b);
  if (is_float(ta) || is_float(tb)) return elementwise(Op::Pow, {a, b});
  if (ta == DType::Bool && tb == DType::Bool)
    throw DTypeError(
        fmt::format("pow: arithmetic on two bools ({} and {}) is not defined. Use & or |, or cast one", describe(a), describe(b)));
  const Value v[2] = {a, b};
  return elementwise(Op::IntegerPow, "pow", v);
}

Value Recorder::cast(Value a, DType to) {
  if (a.is_literal) {
    if (a.literal.kind == Literal::Kind::Float && (is_integer(to) || is_half(to))) {  // like a tensor's cast: saturating, NaN gives 0
      const Value wide = node_of(a, DType::F64);
      return make(convert(wide.node, to));
    }
    if (a.literal.kind != Literal::Kind::Bool && to == DType::Bool)
      return make(convert(node_of(a, a.literal.kind == Literal::Kind::Float ? DType::F64 : dtype(a)).node, to));
    if (a.literal.kind != Literal::Kind::Float && (is_integer(to) || is_half(to)))
      return make(convert(node_of(a, a.literal.kind == Literal::Kind::UInt ? DType::U64 : DType::I64).node, to));  // the conversion wraps
    return node_of(a, to);
  }
  if (is_half(to)) return make(graph.add(Op::Cast, to, graph[a.node].shape, {a.node}));  // also for a half operand: it is rounded here
  return make(convert(a.node, to));
}

Value Recorder::bitcast(Value a, DType to) {
  const Value v = node_of(a);
  if (size_of(dtype(v)) != size_of(to))
    throw DTypeError(fmt::format("bitcast: {} has {} bytes, but {} has {}; the sizes must be equal", name_of(dtype(v)), size_of(dtype(v)),
                                 name_of(to), size_of(to)));
  if (dtype(v) == to && !is_half(to)) return v;
  return make(graph.add(Op::Bitcast, to, graph[v.node].shape, {v.node}));
}

// ------------------------------------------------------------------------------------------------ sources

Value Recorder::full(const Shape& shape, Value value, std::optional<DType> type, std::string_view name) {
  check_shape(name, shape, limits);
  if (type && value.is_literal && value.literal.is_integer() && value.literal.is_fixed()) bits_of(value.literal, *type, name);
  Value v = type ? cast(value, *type) : node_of(value);
  if (!graph.shape(v.node).empty()) throw ShapeError(fmt::format("full: the value must be a scalar, not {}", describe(v)));
  return make(broadcast(v.node, graph.intern(shape)));
}

Value Recorder::iota(const Shape& shape, std::int64_t axis, DType type) {
  check_shape("iota", shape, limits);
  if (type == DType::Bool) throw DTypeError("iota: the type must be a number, not bool");
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) throw ShapeError(fmt::format("iota: axis {} is out of range for rank {}", axis, rank));
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  return make(graph.add(Op::Iota, type, graph.intern(shape), {}, ir::List(&at, 1)));
}

// ------------------------------------------------------------------------------------------------ views

std::vector<std::int64_t> Recorder::axes_of(std::string_view name, std::int64_t rank, const std::vector<std::int64_t>& axes) const {
  std::vector<std::int64_t> out;
  for (std::int64_t a : axes) {
    if (a < -rank || a >= rank) throw ShapeError(fmt::format("{}: axis {} is out of range for rank {}", name, a, rank));
    const std::int64_t at = a < 0 ? a + rank : a;
    if (std::find(out.begin(), out.end(), at) != out.end()) throw ShapeError(fmt::format("{}: axis {} is given twice", name, a));
    out.push_back(at);
  }
  return out;
}

Value Recorder::reshape(Value x, Shape shape) {
  x = node_of(x);
  const std::int64_t n = graph.elements(x.node);
  std::int64_t known = 1, unknown = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      if (unknown >= 0) throw ShapeError(fmt::format("reshape: {} has more than one -1; at most one is allowed", shape_text(shape)));
      unknown = static_cast<std::int64_t>(i);
    } else if (shape[i] < 0) {
      throw ShapeError(fmt::format("reshape: the shape {} has a negative extent", shape_text(shape)));
    } else if (__builtin_mul_overflow(known, shape[i], &known)) {
      throw ShapeError(fmt::format("reshape: the shape {} has more elements than 64 bits can count", shape_text(shape)));
    }
  }
  if (unknown >= 0) {
    if (known == 0 || n % known != 0)
      throw ShapeError(fmt::format("reshape: {} has {} elements, which {} does not divide", describe(x), n, shape_text(shape)));
    shape[static_cast<std::size_t>(unknown)] = n / known;
  } else if (known != n) {
    throw ShapeError(
        fmt::format("reshape: {} has {} elements, but {} has {}; the numbers must be equal", describe(x), n, shape_text(shape), known));
  }
  check_shape("reshape", shape, limits);
  const ListId s = graph.intern(shape);
  if (s == graph[x.node].shape) return x;
  return make(graph.add(Op::Reshape, dtype(x), s, {x.node}));
}

Value Recorder::transpose(Value x, std::vector<std::int64_t> axes) {
  x = node_of(x);
  const ir::List from = graph.shape(x.node);
  const auto rank = static_cast<std::int64_t>(from.size());
  if (axes.empty())
    for (std::int64_t i = rank; i-- > 0;) axes.push_back(i);
  if (static_cast<std::int64_t>(axes.size()) != rank)
    throw ShapeError(fmt::format("transpose: {} axes given for {}; one for each axis is required", axes.size(), describe(x)));
  axes = axes_of("transpose", rank, axes);
  Shape shape;
  bool identity = true;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    shape.push_back(from[static_cast<std::size_t>(axes[i])]);
    identity &= axes[i] == static_cast<std::int64_t>(i);
  }
  if (identity) return x;
  return make(graph.add(Op::Permute, dtype(x), graph.intern(shape), {x.node}, axes));
}

Value Recorder::expand_dims(Value x, std::int64_t axis) {
  x = node_of(x);
  Shape shape(graph.shape(x.node).begin(), graph.shape(x.node).end());
  const auto rank = static_cast<std::int64_t>(shape.size()) + 1;
  if (axis < -rank || axis >= rank)
    throw ShapeError(fmt::format("expand_dims: axis {} is out of range for a result of rank {}", axis, rank));
  shape.insert(shape.begin() + (axis < 0 ? axis + rank : axis), 1);
  return reshape(x, shape);
}

Value Recorder::squeeze(Value x, std::optional<std::vector<std::int64_t>> axes) {
  x = node_of(x);
  const ir::List from = graph.shape(x.node);
  std::vector<bool> drop(from.size(), false);
  if (axes) {
    for (std::int64_t a : axes_of("squeeze", static_cast<std::int64_t>(from.size()), *axes)) {
      if (from[static_cast<std::size_t>(a)] != 1)
        throw ShapeError(fmt::format("squeeze: axis {} of {} has extent {}, not 1", a, describe(x), from[static_cast<std::size_t>(a)]));
      drop[static_cast<std::size_t>(a)] = true;
    }
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) drop[i] = from[i] == 1;
  }
  Shape shape;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!drop[i]) shape.push_back(from[i]);
  return reshape(x, shape);
}

Value Recorder::broadcast_to(Value x, const Shape& shape, std::string_view name) {
  x = node_of(x);
  check_shape(name, shape, limits);
  const ir::List from = graph.shape(x.node);
  bool fits = from.size() <= shape.size();
  for (std::size_t i = 0; fits && i < from.size(); ++i) {
    const std::int64_t to = shape[shape.size() - from.size() + i];
    fits = from[i] == to || from[i] == 1;
  }
  if (!fits) throw ShapeError(fmt::format("{}: {} does not broadcast to {}", name, describe(x), shape_text(shape)));
  return make(broadcast(x.node, graph.intern(shape)));
}

Recorder::Region Recorder::region(std::string_view name, const Value& x, std::span<const Index> indices) const {
  const Shape from(graph.shape(x.node).begin(), graph.shape(x.node).end());
  std::size_t consuming = 0, ellipses = 0;
  for (const Index& i : indices) {
    consuming += i.kind == Index::Kind::Integer || i.kind == Index::Kind::Slice;
    ellipses += i.kind == Index::Kind::Ellipsis;
  }
  if (ellipses > 1) throw ShapeError(fmt::format("{}: the index has more than one `...`; at most one is allowed", name));
  if (consuming > from.size()) throw ShapeError(fmt::format("{}: {} indices are too many for {}", name, consuming, describe(x)));

  std::vector<std::int64_t> attributes(2 * from.size());  // start[rank], step[rank]
  Shape sliced, result;
  std::size_t axis = 0;
  auto take_whole = [&](std::size_t count) {
    for (; count-- > 0; ++axis) {
      attributes[axis] = 0;
      attributes[from.size() + axis] = 1;
      sliced.push_back(from[axis]);
      result.push_back(from[axis]);
    }
  };
  for (const Index& i : indices) {
    switch (i.kind) {
      case Index::Kind::NewAxis: result.push_back(1); break;
      case Index::Kind::Ellipsis: take_whole(from.size() - consuming); break;
      case Index::Kind::Integer: {
        const std::int64_t n = from[axis];
        if (i.at < -n || i.at >= n)
          throw IndexError(fmt::format("{}: {} is out of range for axis {} of {}, which has extent {}", name, i.at, axis, describe(x), n));
        attributes[axis] = i.at < 0 ? i.at + n : i.at;
        attributes[from.size() + axis] = 1;
        sliced.push_back(1);
        ++axis;
        break;
      }
      case Index::Kind::Slice: {  // Python's rule: bounds clamp
        const std::int64_t n = from[axis], step = i.step.value_or(1);
        if (step == 0) throw ValueError(fmt::format("{}: the step of a slice is 0; it must not be 0", name));
        const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
        auto bound = [&](std::optional<std::int64_t> b, std::int64_t otherwise) {
          if (!b) return otherwise;
          return std::clamp(*b < 0 ? (*b < -n ? low : *b + n) : *b, low, high);
        };
        const std::int64_t start = bound(i.start, step > 0 ? 0 : n - 1), stop = bound(i.stop, step > 0 ? n : -1);
        std::int64_t count = 0;
        if (step > 0 && stop > start) count = (stop - start - 1) / step + 1;
        if (step < 0 && start > stop)
          count = static_cast<std::int64_t>((static_cast<std::uint64_t>(start - stop) - 1) / (0 - static_cast<std::uint64_t>(step))) + 1;
        attributes[axis] = count ? start : 0;
        attributes[from.size() + axis] = count > 1 ? step : 1;
        sliced.push_back(count);
        result.push_back(count);
        ++axis;
        break;
      }
    }
  }
  if (ellipses == 0) take_whole(from.size() - axis);
  // derived from the index kinds only, not from numbers that the call passes
  bool whole = true;
  for (const Index& i : indices)
    whole &= i.kind == Index::Kind::Ellipsis || i.kind == Index::Kind::NewAxis ||
             (i.kind == Index::Kind::Slice && !i.start && !i.stop && !i.step);
  return {std::move(attributes), std::move(sliced), std::move(result), whole};
}

Value Recorder::index(Value x, std::span<const Index> indices) {
  x = node_of(x);
  const Region at = region("index", x, indices);
  Value v = x;
  if (!at.whole) v = make(graph.add(Op::Slice, dtype(x), graph.intern(at.sliced), {x.node}, at.attributes));
  return reshape(v, at.result);
}

// Records where(inside, joined, x). v is padded with zeros, which are never selected, and `inside` with false.
Value Recorder::put(Value x, std::span<const Index> indices, Value v, Joined how) {
  x = node_of(x);
  const Region at = region("put", x, indices);
  v = reshape(broadcast_to(written(v, x), at.result, "put"), at.sliced);
  const ir::ListId shape = graph[x.node].shape;
  if (ir::element_count(at.sliced) == 0) return x;
  if (!at.whole) v = make(graph.add(Op::Pad, dtype(x), shape, {v.node}, at.attributes));
  static constexpr Op kOps[] = {Op::Identity, Op::Add, Op::Minimum, Op::Maximum, Op::Mul};
  static constexpr std::string_view kNames[] = {"put", "add", "minimum", "maximum", "mul"};
  const auto k = static_cast<std::size_t>(how);
  const Value both[2] = {x, v};
  const Value joined = how == Joined::Set ? v : elementwise(kOps[k], kNames[k], both);
  if (at.whole) return joined;
  const NodeId inside = graph.constant(DType::Bool, graph.intern(at.sliced), 1);
  return where(make(graph.add(Op::Pad, DType::Bool, shape, {inside}, at.attributes)), joined, x);
}

Value Recorder::flip(Value x, std::optional<std::vector<std::int64_t>> axes) {
  x = node_of(x);
  const ir::List from = graph.shape(x.node);
  std::vector<std::int64_t> attributes(2 * from.size(), 0);
  std::fill(attributes.begin() + static_cast<std::ptrdiff_t>(from.size()), attributes.end(), 1);
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < from.size(); ++i) all.push_back(static_cast<std::int64_t>(i));
  bool any = false;
  for (std::int64_t a : axes ? axes_of("flip", static_cast<std::int64_t>(from.size()), *axes) : all) {
    const auto at = static_cast<std::size_t>(a);
    if (from[at] < 2) continue;
    attributes[at] = from[at] - 1;
    attributes[from.size() + at] = -1;
    any = true;
  }
  if (!any) return x;
  return make(graph.add(Op::Slice, dtype(x), graph[x.node].shape, {x.node}, attributes));
}

Value Recorder::diagonal(Value x, std::int64_t offset, std::int64_t axis1, std::int64_t axis2) {
  x = node_of(x);
  const ir::List from = graph.shape(x.node);
  const auto rank = static_cast<std::int64_t>(from.size());
  if (rank < 2) throw ShapeError(fmt::format("diagonal: {} has fewer than two axes; at least two are required", describe(x)));
  const std::vector<std::int64_t> axes = axes_of("diagonal", rank, {axis1, axis2});
  const std::int64_t rows = from[static_cast<std::size_t>(axes[0])], columns = from[static_cast<std::size_t>(axes[1])];
  const std::int64_t count = std::max<std::int64_t>(
      0, offset >= 0 ? std::min(rows, columns - std::min(offset, columns)) : std::min(rows + std::max(offset, -rows), columns));
  return make(compiler::diagonal(graph, x.node, {offset, axes[0], axes[1], count}));
}

// ------------------------------------------------------------------------------------------------ reductions

Value Recorder::reduce(Op op, std::string_view name, Value x, std::optional<std::vector<std::int64_t>> axes, bool keepdims) {
  x = node_of(x);
  const Shape from(graph.shape(x.node).begin(), graph.shape(x.node).end());
  const auto rank = static_cast<std::int64_t>(from.size());
  std::vector<std::int64_t> reduced;
  if (axes) reduced = axes_of(name, rank, *axes);
  else
    for (std::int64_t i = 0; i < rank; ++i) reduced.push_back(i);
  std::sort(reduced.begin(), reduced.end());
  DType type = dtype(x);
  const bool adds = op == Op::ReduceSum || op == Op::ReduceProd;
  if (adds && !is_float(type)) type = is_unsigned_integer(type) ? DType::U64 : DType::I64;
  Shape shape, kept;
  std::int64_t reduced_elements = 1, elements = 1;
  for (std::int64_t i = 0; i < rank; ++i) {
    const bool is_reduced = std::binary_search(reduced.begin(), reduced.end(), i);
    const std::int64_t e = from[static_cast<std::size_t>(i)];
    if (!is_reduced) shape.push_back(e), elements *= e;
    else reduced_elements *= e;
    if (!is_reduced || keepdims) kept.push_back(is_reduced ? 1 : e);
  }
  if (!adds && reduced_elements == 0 && elements != 0)
    throw ShapeError(fmt::format("{}: cannot reduce over no elements: {} along axes {}", name, describe(x), shape_text(reduced)));
  NodeId node = convert(x.node, type);
  if (reduced_elements == 0 && elements != 0)
    node = graph.constant(type, graph.intern(shape), ir::bits_of(type, op == Op::ReduceProd ? 1.0 : 0.0));
  else if (reduced_elements == 1) return reshape(make(node), kept);
  else if (!reduced.empty()) node = graph.add(op, type, graph.intern(shape), {node}, reduced);
  return reshape(make(node), kept);
}

}  // namespace onepass::compiler
