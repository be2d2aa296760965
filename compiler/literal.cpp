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

std::int64_t checked(bool overflow, std::int64_t value, std::string_view name) {
  if (overflow) throw ValueError(fmt::format("{}: the integer literals overflow i64", name));
  return value;
}

Literal of_integer(std::int64_t value) { return {.kind = Literal::Kind::Int, .integer = value}; }
Literal of_real(double value) { return {.kind = Literal::Kind::Float, .real = value}; }

std::int64_t integer_power(std::int64_t base, std::int64_t exponent, std::string_view name) {
  if (base == 1 || exponent == 0) return 1;
  if (base == -1) return exponent % 2 ? -1 : 1;
  if (exponent < 0 || base == 0) return 0;
  std::int64_t r = 1;
  for (; exponent > 0; --exponent) {  // at most 63 times: the base is 2 or more
    const bool overflow = __builtin_mul_overflow(r, base, &r);
    checked(overflow, r, name);
  }
  return r;
}

// Integer arithmetic that is an error where it would wrap; none: not one of these.
std::optional<std::int64_t> exact(Op op, std::int64_t a, std::int64_t b, std::string_view name) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  std::int64_t r = 0;
  bool overflow = false;
  switch (op) {
    case Op::Add: overflow = __builtin_add_overflow(a, b, &r); break;
    case Op::Sub: overflow = __builtin_sub_overflow(a, b, &r); break;
    case Op::Mul: overflow = __builtin_mul_overflow(a, b, &r); break;
    case Op::Square: overflow = __builtin_mul_overflow(a, a, &r); break;
    case Op::Neg: overflow = __builtin_sub_overflow(std::int64_t{0}, a, &r); break;
    case Op::IntegerPow: return integer_power(a, b, name);
    default:
      checked((op == Op::Abs && a == kLeast) || (op == Op::FloorDiv && a == kLeast && b == -1) ||
                  (op == Op::ShiftLeft && b >= 0 && a != 0 && (b > 62 || (a << b) >> b != a)),
              0, name);
      return std::nullopt;
  }
  return checked(overflow, r, name);
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

Literal fold(Op op, std::string_view name, std::span<const Literal> in) {
  using Kind = Literal::Kind;
  if (op == Op::Cast) return of_real(in[0].as_double());
  if (op == Op::Where) {
    if (in[0].kind != Kind::Bool) throw DTypeError("where: the condition must be bool");
    const Literal& chosen = in[0].integer ? in[1] : in[2];
    const Kind kind = std::max(in[1].kind, in[2].kind);
    if (kind == Kind::Float) return of_real(chosen.as_double());
    return {.kind = kind, .integer = chosen.integer};
  }
  Kind widest = Kind::Bool;
  for (const Literal& l : in) widest = std::max(widest, l.kind);
  const bool rounds = op == Op::Floor || op == Op::Ceil || op == Op::Trunc || op == Op::Round;
  if (rounds && widest == Kind::Int) return of_integer(in[0].integer);  // of integers: unchanged
  const ir::TypeRule rule = ir::info(op).types;
  if (rule == ir::TypeRule::Float || rule == ir::TypeRule::Predicate) widest = Kind::Float;
  // A product of integers is computed as one, although the result is a float; the sum too where all three are integers.
  if (op == Op::Fma && in[0].kind != Kind::Float && in[1].kind != Kind::Float) {
    const std::int64_t product = *exact(Op::Mul, in[0].integer, in[1].integer, name);
    if (in[2].kind != Kind::Float) return of_real(static_cast<double>(*exact(Op::Add, product, in[2].integer, name)));
  }
  if (widest == Kind::Float) {
    if (const auto r = simple(op, in[0].as_double(), in.size() > 1 ? in[1].as_double() : 0)) return of_real(*r);
  } else if (const auto r = exact(op, in[0].integer, in.size() > 1 ? in[1].integer : 0, name)) {
    if (widest == Kind::Bool && op != Op::IntegerPow)
      throw DTypeError(fmt::format("{}: arithmetic on two bools; use & or |, or cast one", name));
    return of_integer(*r);
  }

  ir::Graph g;
  std::vector<std::int64_t> ids;
  const std::vector<DType> types(in.size(), widest == Kind::Float ? DType::F64 : widest == Kind::Bool ? DType::Bool : DType::I64);
  for (const Literal& l : in)
    ids.push_back(g.constant(types[0], 0, l.kind == Kind::Float ? ir::bits_of(types[0], l.real) : ir::bits_of(types[0], l.integer)));
  DType out{};
  if (!ir::result_dtype(op, types, out)) throw DTypeError(fmt::format("{}: does not take these literals", name));
  g.outputs = {g.add(ir::Node{op, out, 0, g.intern(ids), 0, 0})};
  const std::vector<ir::Buffer> value = ir::evaluate(g, {});
  std::uint64_t bits = 0;
  std::memcpy(&bits, value[0].bytes.data(), value[0].bytes.size());
  if (out == DType::Bool) return {.kind = Kind::Bool, .integer = static_cast<std::int64_t>(bits)};
  if (out == DType::I64) return of_integer(static_cast<std::int64_t>(bits));
  return of_real(std::bit_cast<double>(bits));
}

std::uint64_t bits_of(const Literal& literal, DType dtype, std::string_view name) {
  if (literal.kind == Literal::Kind::Float) return ir::bits_of(dtype, literal.real);
  if (is_integer(dtype)) {
    const int width = static_cast<int>(8 * size_of(dtype));
    const std::int64_t v = literal.integer;
    const bool fits = is_signed_integer(dtype)
                          ? (width == 64 || (v >= -(std::int64_t{1} << (width - 1)) && v < (std::int64_t{1} << (width - 1))))
                          : (v >= 0 && (width == 64 || v < (std::int64_t{1} << width)));
    if (!fits)
      throw ValueError(fmt::format("{}: the literal {} does not fit {}; cast the tensor to a wider type", name, v, name_of(dtype)));
  }
  return ir::bits_of(dtype, literal.integer);
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
