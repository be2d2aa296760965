// See literal.h.
#include "compiler/literal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "ir/reference.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;

namespace {

using Kind = Literal::Kind;
__extension__ using Wide = __int128;

[[noreturn]] void fail_overflow(Kind kind, std::string_view name) {
  throw ValueError(fmt::format("{}: the integer literals overflow {}", name, kind == Kind::UInt ? "u64" : "i64"));
}

Wide least(Kind kind) { return kind == Kind::UInt ? 0 : std::numeric_limits<std::int64_t>::min(); }
Wide most(Kind kind) {
  return kind == Kind::UInt ? Wide{std::numeric_limits<std::uint64_t>::max()} : Wide{std::numeric_limits<std::int64_t>::max()};
}

Wide value_of(const Literal& l) { return l.kind == Kind::UInt ? Wide{l.as_unsigned()} : Wide{l.integer}; }

Literal of_integer(Kind kind, Wide value, std::string_view name) {
  if (value < least(kind) || value > most(kind)) fail_overflow(kind, name);
  return {.kind = kind, .integer = static_cast<std::int64_t>(value)};
}
Literal of_real(double value) { return {.kind = Kind::Float, .real = value}; }

Wide integer_power(Wide base, Wide exponent, Kind kind, std::string_view name) {
  if (base == 1 || exponent == 0) return 1;
  if (base == -1) return exponent % 2 ? -1 : 1;
  if (exponent < 0 || base == 0) return 0;
  Wide r = 1;
  for (; exponent > 0; --exponent)  // at most 64 times: the base is 2 or more
    if (__builtin_mul_overflow(r, base, &r) || r < least(kind) || r > most(kind)) fail_overflow(kind, name);
  return r;
}

// Integer arithmetic that is an error where it would wrap; none: not one of these. A product of two 64-bit numbers fits: |a*b| < 2^127 but for
// two of u64, which are looked at by themselves.
std::optional<Wide> exact(Op op, Wide a, Wide b, Kind kind, std::string_view name) {
  const auto product = [&](Wide x, Wide y) {
    Wide r = 0;
    if (__builtin_mul_overflow(x, y, &r)) fail_overflow(kind, name);
    return r;
  };
  switch (op) {
    case Op::Add: return a + b;
    case Op::Sub: return a - b;
    case Op::Mul: return product(a, b);
    case Op::Square: return product(a, a);
    case Op::Neg: return -a;
    case Op::IntegerPow: return integer_power(a, b, kind, name);
    case Op::Abs: return a < 0 ? -a : a;
    case Op::FloorDiv:
      if (a == least(Kind::Int) && b == -1) fail_overflow(kind, name);
      return std::nullopt;
    case Op::ShiftLeft:
      if (b < 0 || a == 0) return std::nullopt;
      if (b > 63) fail_overflow(kind, name);
      return product(a, Wide{1} << static_cast<int>(b));
    default: return std::nullopt;
  }
}

// The frequent ones without a graph: IEEE arithmetic is the primitive's meaning.
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
    return of_integer(kind, value_of(chosen), name);
  }
  Kind widest = Kind::Bool;
  for (const Literal& l : in) widest = std::max(widest, l.kind);
  const bool rounds = op == Op::Floor || op == Op::Ceil || op == Op::Trunc || op == Op::Round;
  if (rounds && in[0].is_integer()) return in[0];  // of integers: unchanged
  const ir::TypeRule rule = ir::info(op).types;
  if (rule == ir::TypeRule::Float || rule == ir::TypeRule::Predicate) widest = Kind::Float;
  // A product of integers is computed as one, although the result is a float; the sum too where all three are integers.
  if (op == Op::Fma && in[0].kind != Kind::Float && in[1].kind != Kind::Float) {
    const auto computed = [&](Op step, const Literal& a, const Literal& b) {
      const Kind kind = std::max({a.kind, b.kind, Kind::Int});
      return of_integer(kind, *exact(step, value_of(a), value_of(b), kind, name), name);
    };
    const Literal product = computed(Op::Mul, in[0], in[1]);
    if (in[2].kind != Kind::Float) return of_real(computed(Op::Add, product, in[2]).as_double());
  }
  if (widest == Kind::Float) {
    if (const auto r = simple(op, in[0].as_double(), in.size() > 1 ? in[1].as_double() : 0)) return of_real(*r);
  } else if (const auto r = exact(op, value_of(in[0]), in.size() > 1 ? value_of(in[1]) : Wide{0}, widest, name)) {
    if (widest == Kind::Bool && op != Op::IntegerPow)
      throw DTypeError(fmt::format("{}: arithmetic on two bools; use & or |, or cast one", name));
    return of_integer(widest == Kind::UInt ? Kind::UInt : Kind::Int, *r, name);
  }

  ir::Graph g;
  std::vector<std::int64_t> ids;
  const std::vector<DType> types(in.size(), widest == Kind::Float ? DType::F64 : default_type(widest));
  for (const Literal& l : in) {
    if (widest == Kind::UInt && value_of(l) < 0)
      throw DTypeError(fmt::format("{}: the literals {} and one above 9223372036854775807 have no common type", name, l.integer));
    ids.push_back(g.constant(types[0], 0, widest == Kind::Float ? ir::bits_of(types[0], l.as_double()) : ir::bits_of(types[0], l.integer)));
  }
  DType out{};
  if (!ir::result_dtype(op, types, out)) throw DTypeError(fmt::format("{}: does not take these literals", name));
  g.outputs = {g.add(ir::Node{op, out, 0, g.intern(ids), 0, 0})};
  const std::vector<ir::Buffer> value = ir::evaluate(g, {});
  std::uint64_t bits = 0;
  std::memcpy(&bits, value[0].bytes.data(), value[0].bytes.size());
  if (out == DType::Bool) return {.kind = Kind::Bool, .integer = static_cast<std::int64_t>(bits)};
  if (is_integer(out)) return {.kind = widest, .integer = static_cast<std::int64_t>(bits)};
  return of_real(std::bit_cast<double>(bits));
}

std::uint64_t bits_of(const Literal& literal, DType dtype, std::string_view name) {
  if (literal.kind == Kind::Float) return ir::bits_of(dtype, literal.real);
  if (is_integer(dtype)) {
    const int width = static_cast<int>(8 * size_of(dtype)), sign = is_signed_integer(dtype);
    const Wide v = value_of(literal), limit = Wide{1} << (width - sign);
    if (v >= limit || v < (sign ? -limit : Wide{0}))
      throw ValueError(
          fmt::format("{}: the literal {} does not fit {}; cast the tensor to a wider type", name, text_of(literal), name_of(dtype)));
  } else if (literal.kind == Kind::UInt && literal.integer < 0) {  // to a float: rounded once
    if (dtype == DType::Bool) return 1;
    if (dtype == DType::F64) return std::bit_cast<std::uint64_t>(static_cast<double>(literal.as_unsigned()));
    return std::bit_cast<std::uint32_t>(static_cast<float>(literal.as_unsigned()));
  }
  return ir::bits_of(dtype, literal.integer);
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

// ------------------------------------------------------------------------------------------------ numbers of a call

Literal Numbers::bring(std::uint32_t argument, Literal value) {
  entries_.emplace_back().argument = argument;
  value.brought = true;
  value.derived = static_cast<std::uint32_t>(entries_.size());
  return value;
}

void Numbers::derive(Literal& result, Op op, std::string_view name, std::span<const Literal> operands) {
  if (std::ranges::none_of(operands, [](const Literal& l) { return l.derived != 0; })) return;
  Entry entry;
  entry.op = op;
  entry.name = name;
  entry.count = static_cast<std::uint8_t>(operands.size());
  std::ranges::copy(operands, entry.operands.begin());
  entries_.push_back(std::move(entry));
  result.derived = static_cast<std::uint32_t>(entries_.size());
}

void Numbers::fill(std::uint32_t slot, DType dtype, const Literal& value, std::string_view name) {
  if (value.derived) slots_.push_back({slot, value.derived - 1, dtype, std::string(name)});
}

// Operands stand before what is computed from them, so one walk backwards marks everything.
void Numbers::add_needed(std::vector<bool>& needed) const {
  for (std::size_t e = entries_.size(); e-- > 0;)
    if (needed[e])
      for (std::size_t i = 0; i < entries_[e].count; ++i)
        if (entries_[e].operands[i].derived) needed[entries_[e].operands[i].derived - 1] = true;
}

void Numbers::pin(const Literal& literal) {
  if (!literal.derived) return;
  std::vector<bool> needed(entries_.size(), false);
  needed[literal.derived - 1] = true;
  add_needed(needed);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (!needed[e] || !entries_[e].is_argument()) continue;
    if (pinned_.size() <= entries_[e].argument) pinned_.resize(entries_[e].argument + 1, false);
    pinned_[entries_[e].argument] = true;
  }
}

bool Numbers::fills(std::uint32_t slot) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const SlotValue& s) { return s.slot == slot; });
}

void Numbers::finish() {
  std::vector<bool> needed(entries_.size(), false);
  for (const SlotValue& s : slots_) needed[s.entry] = true;
  add_needed(needed);
  std::vector<std::uint32_t> now(entries_.size(), 0);
  std::vector<Entry> kept;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (!needed[e]) continue;
    now[e] = static_cast<std::uint32_t>(kept.size());
    for (std::size_t i = 0; i < entries_[e].count; ++i)
      if (std::uint32_t& operand = entries_[e].operands[i].derived; operand) operand = now[operand - 1] + 1;
    computes_ |= !entries_[e].is_argument();
    kept.push_back(std::move(entries_[e]));
  }
  for (SlotValue& s : slots_) s.entry = now[s.entry];
  entries_ = std::move(kept);
}

Literal Numbers::compute(const Entry& entry, std::span<const Literal> values) {
  std::array<Literal, 3> operands = entry.operands;
  for (std::size_t i = 0; i < entry.count; ++i)
    if (operands[i].derived) operands[i] = values[operands[i].derived - 1];
  return fold(entry.op, entry.name, std::span(operands).first(entry.count));
}

}  // namespace onepass::compiler
