// See literal.h.
#include "compiler/literal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "compiler/exact_integers.h"
#include "ir/reference.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;

namespace {

using Kind = Literal::Kind;

[[noreturn]] void fail_overflow(Kind kind, std::string_view name) {
  throw ValueError(
      fmt::format("{}: the integer literals overflow {}. Write one of them as a float", name, kind == Kind::UInt ? "u64" : "i64"));
}

Wide value_of(const Literal& l) { return l.kind == Kind::UInt ? Wide{l.as_unsigned()} : Wide{l.integer}; }

Literal of_integer(Kind kind, const ExactInteger& r, std::string_view name) {
  if (r.status == ExactInteger::Status::Overflow) fail_overflow(kind, name);
  return {.kind = kind, .integer = static_cast<std::int64_t>(r.value)};
}
Literal of_real(double value) { return {.kind = Kind::Float, .real = value}; }

// Computes the frequent operators without a graph; their primitives are plain IEEE arithmetic.
std::optional<double> simple(Op op, double a, double b) {
  switch (op) {
    case Op::Add: return a + b;
    case Op::Sub: return a - b;
    case Op::Mul: return a * b;
    case Op::Div: return a / b;
    case Op::Neg: return -a;
    case Op::Square: return a * a;
    default: return std::nullopt;
  }
}

}  // namespace

DType default_type(Kind kind) {
  switch (kind) {
    case Kind::Bool: return DType::Bool;
    case Kind::Int: return DType::I64;
    case Kind::UInt: return DType::U64;
    case Kind::Float: break;
  }
  return DType::F32;
}

Literal fold(Op op, std::string_view name, std::span<const Literal> in) {
  if (op == Op::Cast) return of_real(in[0].as_double());
  if (op == Op::Where) {
    if (in[0].kind != Kind::Bool) throw DTypeError("where: the condition must be bool");
    const Literal& chosen = in[0].integer ? in[1] : in[2];
    const Kind kind = std::max(in[1].kind, in[2].kind);
    if (kind == Kind::Float) return of_real(chosen.as_double());
    return of_integer(kind, exact_value(value_of(chosen), kind == Kind::UInt), name);
  }
  Kind widest = Kind::Bool;
  for (const Literal& l : in) widest = std::max(widest, l.kind);
  const bool rounds = op == Op::Floor || op == Op::Ceil || op == Op::Trunc || op == Op::Round;
  if (rounds && in[0].is_integer()) return in[0];  // integers: unchanged
  const ir::TypeRule rule = ir::info(op).types;
  if (rule == ir::TypeRule::Float || rule == ir::TypeRule::Predicate) widest = Kind::Float;
  // Multiplies integers as integers although the result is a float. If all three are integers, also adds them as integers.
  if (op == Op::Fma && in[0].kind != Kind::Float && in[1].kind != Kind::Float) {
    const auto computed = [&](Op step, const Literal& a, const Literal& b) {
      const Kind kind = std::max({a.kind, b.kind, Kind::Int});
      return of_integer(kind, exact(step, value_of(a), value_of(b), kind == Kind::UInt), name);
    };
    const Literal product = computed(Op::Mul, in[0], in[1]);
    if (in[2].kind != Kind::Float) return of_real(computed(Op::Add, product, in[2]).as_double());
  }
  if (widest == Kind::Float) {
    if (const auto r = simple(op, in[0].as_double(), in.size() > 1 ? in[1].as_double() : 0)) return of_real(*r);
  } else if (const ExactInteger r = exact(op, value_of(in[0]), in.size() > 1 ? value_of(in[1]) : Wide{0}, widest == Kind::UInt);
             r.status != ExactInteger::Status::None) {
    if (widest == Kind::Bool && op != Op::IntegerPow)
      throw DTypeError(fmt::format("{}: arithmetic on two bools is not defined. Use & or |, or cast one", name));
    return of_integer(widest == Kind::UInt ? Kind::UInt : Kind::Int, r, name);
  }

  ir::Graph g;
  std::vector<std::int64_t> ids;
  const std::vector<DType> types(in.size(), widest == Kind::Float ? DType::F64 : default_type(widest));
  for (const Literal& l : in) {
    if (widest == Kind::UInt && value_of(l) < 0)
      throw DTypeError(
          fmt::format("{}: the literal {} and a literal above 9223372036854775807 have no common type. Cast one of them", name, l.integer));
    ids.push_back(g.constant(types[0], 0, widest == Kind::Float ? ir::bits_of(types[0], l.as_double()) : ir::bits_of(types[0], l.integer)));
  }
  DType out{};
  if (!ir::result_dtype(op, types, out))
    throw DTypeError(fmt::format("{}: the operator does not accept these literals. Cast them to another type", name));
  g.outputs = {g.add(ir::Node{op, out, 0, g.intern(ids), 0, 0})};
  const std::vector<ir::Buffer> value = ir::evaluate(g, {});
  std::uint64_t bits = 0;
  std::memcpy(&bits, value[0].bytes.data(), value[0].bytes.size());
  if (out == DType::Bool) return {.kind = Kind::Bool, .integer = static_cast<std::int64_t>(bits)};
  if (is_integer(out)) return {.kind = widest, .integer = static_cast<std::int64_t>(bits)};
  return of_real(std::bit_cast<double>(bits));
}

std::optional<std::uint64_t> bits_if_fits(const Literal& literal, DType dtype) {
  if (literal.kind == Kind::Float) return ir::bits_of(dtype, literal.real);
  if (is_integer(dtype)) {
    const int width = static_cast<int>(8 * size_of(dtype)), sign = is_signed_integer(dtype);
    const Wide v = value_of(literal), limit = Wide{1} << (width - sign);
    if (v >= limit || v < (sign ? -limit : Wide{0})) return std::nullopt;
  } else if (literal.kind == Kind::UInt && literal.integer < 0) {  // to a float: rounded once
    if (dtype == DType::Bool) return 1;
    if (dtype == DType::F64) return std::bit_cast<std::uint64_t>(static_cast<double>(literal.as_unsigned()));
    return std::bit_cast<std::uint32_t>(static_cast<float>(literal.as_unsigned()));
  }
  return ir::bits_of(dtype, literal.integer);
}

std::uint64_t bits_of(const Literal& literal, DType dtype, std::string_view name) {
  if (const auto bits = bits_if_fits(literal, dtype)) return *bits;
  throw ValueError(
      fmt::format("{}: the literal {} does not fit {}. Cast the tensor to a wider type", name, text_of(literal), name_of(dtype)));
}

std::string text_of(const Literal& literal) {
  switch (literal.kind) {
    case Kind::Bool: return literal.integer ? "true" : "false";
    case Kind::Int: return fmt::format("{}", literal.integer);
    case Kind::UInt: return fmt::format("{}", literal.as_unsigned());
    case Kind::Float: break;
  }
  return fmt::format("{}", literal.real);
}

}  // namespace onepass::compiler
