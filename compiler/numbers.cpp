// Numbers (literal.h): collects how a call's numbers become scalar parameters during recording, translates this to steps in finish(), and
// runs the steps at each call. A step gives the same result as fold() for operands of these kinds; the cases here are in fold()'s order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "compiler/literal.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;
using Kind = Literal::Kind;

Literal Numbers::bring(std::uint32_t argument, Literal value) {
  Entry& entry = entries_.emplace_back();
  entry.argument = argument;
  entry.kind = value.kind;
  value.brought = true;
  value.derived = static_cast<std::uint32_t>(entries_.size());
  return value;
}

void Numbers::derive(Literal& result, Op op, std::string_view name, std::span<const Literal> operands) {
  if (std::ranges::none_of(operands, [](const Literal& l) { return l.derived != 0; })) return;
  Entry entry;
  entry.op = op;
  entry.kind = result.kind;
  entry.name = name;
  entry.count = static_cast<std::uint8_t>(operands.size());
  std::ranges::copy(operands, entry.operands.begin());
  entries_.push_back(std::move(entry));
  result.derived = static_cast<std::uint32_t>(entries_.size());
}

void Numbers::fill(std::uint32_t slot, DType dtype, const Literal& value, std::string_view name) {
  if (value.derived) slots_.push_back({slot, value.derived - 1, dtype, std::string(name)});
}

// Operands precede their users, so one backward walk marks everything.
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

bool Numbers::fills_equally(std::uint32_t slot, std::uint32_t other) const {
  constexpr int kMost = 1000;  // entries to compare
  const auto a = std::ranges::find(slots_, slot, &SlotValue::slot), b = std::ranges::find(slots_, other, &SlotValue::slot);
  if (a == slots_.end() || b == slots_.end() || a->dtype != b->dtype) return false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open = {{a->entry, b->entry}};
  for (int compared = 0; !open.empty(); ++compared) {
    const auto [p, q] = open.back();
    open.pop_back();
    if (p == q) continue;
    const Entry &x = entries_[p], &y = entries_[q];
    if (compared == kMost || x.argument != y.argument || x.kind != y.kind || x.op != y.op || x.count != y.count) return false;
    for (std::size_t i = 0; i < x.count; ++i) {
      const Literal &m = x.operands[i], &n = y.operands[i];
      if (m.derived && n.derived) open.emplace_back(m.derived - 1, n.derived - 1);
      else if (m.derived || n.derived || m.kind != n.kind || m.integer != n.integer ||
               std::bit_cast<std::uint64_t>(m.real) != std::bit_cast<std::uint64_t>(n.real))
        return false;
    }
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ steps

class NumberSteps {
 public:
  explicit NumberSteps(Numbers& numbers) : numbers_(numbers) {}

  void make() {
    find_rounded();
    for (const Numbers::Entry& e : numbers_.entries_) {
      const std::uint32_t place = e.is_argument() ? argument(e) : is_small_power(e) ? small_power(e) : computed(e);
      if (place == kNone) return;
      place_of_.push_back(place);
    }
    for (const Numbers::SlotValue& s : numbers_.slots_) filled(s.slot, place_of_[s.entry], numbers_.entries_[s.entry].kind, s.dtype);
    put_constants_first();
    numbers_.has_steps_ = true;
  }

 private:
  // A place is the index of a value, or kConstant plus the index of a constant.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0}, kConstant = std::uint32_t{1} << 31;

  Numbers& numbers_;
  std::vector<std::uint32_t> place_of_;             // by entry
  std::map<std::uint32_t, std::uint32_t> real_of_;  // index of an integer value -> index of the same value as a real
  std::vector<bool> is_rounded_;                    // by entry: true if it is only converted to f32
  std::uint32_t next_ = 0;

  struct Operand {
    Kind kind = Kind::Bool;
    std::uint32_t place = kNone;
    bool is_unsigned() const { return kind == Kind::UInt; }
  };

  std::uint32_t argument(const Numbers::Entry& e) {
    numbers_.brought_.push_back({e.argument, next_, e.kind == Kind::Float});
    return next_++;
  }

  void filled(std::uint32_t slot, std::uint32_t place, Kind kind, DType dtype) {
    using From = Numbers::Filled::From;
    const bool is_integer = kind == Kind::Int || kind == Kind::Bool;
    From from = From::Other;
    if (dtype == DType::F32 && kind == Kind::Float) from = From::RealToF32;
    if (dtype == DType::F64 && kind == Kind::Float) from = From::RealToF64;
    if (dtype == DType::F32 && is_integer) from = From::IntegerToF32;
    if (dtype == DType::F64 && is_integer) from = From::IntegerToF64;
    if (kind != Kind::Float && dtype == default_type(kind)) from = From::Same;
    numbers_.filled_.push_back({from, slot, place, kind, dtype});
  }

  std::uint32_t constant(Scalar value) {
    numbers_.constants_.push_back(value);
    return kConstant | static_cast<std::uint32_t>(numbers_.constants_.size() - 1);
  }

  std::uint32_t step(ScalarStep s, std::initializer_list<std::uint32_t> operands) {
    if (!s.run) return kNone;
    s.y = next_++;
    std::uint32_t* const to[] = {&s.a, &s.b, &s.c};
    for (std::size_t i = 0; i < 3; ++i) *to[i] = operands.begin()[std::min(i, operands.size() - 1)];
    numbers_.steps_.push_back(s);
    return s.y;
  }
  std::uint32_t step(ScalarStep::Run run, std::initializer_list<std::uint32_t> operands) { return step(ScalarStep{.run = run}, operands); }

  Operand operand(const Literal& literal) {
    if (literal.derived) return {literal.kind, place_of_[literal.derived - 1]};
    return {literal.kind, constant(literal.kind == Kind::Float ? Scalar{.real = literal.real} : Scalar{.integer = literal.integer})};
  }

  std::uint32_t real(const Operand& o) {
    if (o.kind == Kind::Float) return o.place;
    if (o.place & kConstant) {
      const std::int64_t integer = numbers_.constants_[o.place & ~kConstant].integer;
      return constant({.real = o.is_unsigned() ? static_cast<double>(static_cast<std::uint64_t>(integer)) : static_cast<double>(integer)});
    }
    const auto [it, is_new] = real_of_.try_emplace(o.place, kNone);
    if (is_new) {
      it->second = step(&scalar_to_real, {o.place});
      numbers_.steps_.back().a_is_unsigned = o.is_unsigned();
    }
    return it->second;
  }

  Operand exact(Op op, Kind kind, const Operand& a, const Operand& b) {
    const std::uint32_t y = step(scalar_exact(op), {a.place, b.place});
    ScalarStep& s = numbers_.steps_.back();
    s.a_is_unsigned = a.is_unsigned(), s.b_is_unsigned = b.is_unsigned(), s.is_unsigned = kind == Kind::UInt;
    return {kind, y};
  }

  // Checks that the operand is valid as a u64.
  void check_natural(const Operand& o) {
    if (!o.is_unsigned()) step(&scalar_is_natural, {o.place});
  }

  std::uint32_t computed(const Numbers::Entry& e) {
    Operand in[3];
    for (std::size_t i = 0; i < e.count; ++i) in[i] = operand(e.operands[i]);
    if (e.op == Op::Cast) return real(in[0]);
    if (e.op == Op::Where) return where(in);
    Kind widest = Kind::Bool;
    for (std::size_t i = 0; i < e.count; ++i) widest = std::max(widest, in[i].kind);
    const bool rounds = e.op == Op::Floor || e.op == Op::Ceil || e.op == Op::Trunc || e.op == Op::Round;
    if (rounds && (in[0].kind == Kind::Int || in[0].kind == Kind::UInt)) return in[0].place;
    const ir::TypeRule rule = ir::info(e.op).types;
    if (rule == ir::TypeRule::Float || rule == ir::TypeRule::Predicate) widest = Kind::Float;
    if (e.op == Op::Fma && in[0].kind != Kind::Float && in[1].kind != Kind::Float) {
      const Operand product = exact(Op::Mul, std::max({in[0].kind, in[1].kind, Kind::Int}), in[0], in[1]);
      if (in[2].kind != Kind::Float) return real(exact(Op::Add, std::max(product.kind, in[2].kind), product, in[2]));
    }
    std::uint32_t places[3] = {};
    for (std::size_t i = 0; i < e.count; ++i) places[i] = widest == Kind::Float ? real(in[i]) : in[i].place;
    const auto apply = [&](ScalarStep::Run run) {
      if (e.count == 1) return step(run, {places[0]});
      if (e.count == 2) return step(run, {places[0], places[1]});
      return step(run, {places[0], places[1], places[2]});
    };
    if (widest == Kind::Float) {
      if (ir::info(e.op).kind == ir::OpKind::Expanded) return elementary(e.op, places[0], places[e.count > 1 ? 1 : 0]);
      return apply(scalar_primitive(e.op, DType::F64));
    }
    if (scalar_exact(e.op)) return exact(e.op, widest, in[0], in[e.count > 1 ? 1 : 0]).place;
    if (widest == Kind::UInt)
      for (std::size_t i = 0; i < e.count; ++i) check_natural(in[i]);
    return apply(scalar_primitive(e.op, default_type(widest)));
  }

  void find_rounded() {
    is_rounded_.assign(numbers_.entries_.size(), true);
    for (const Numbers::Entry& e : numbers_.entries_)
      for (std::size_t i = 0; i < e.count; ++i)
        if (e.operands[i].derived) is_rounded_[e.operands[i].derived - 1] = false;
    for (const Numbers::SlotValue& s : numbers_.slots_)
      if (s.dtype != DType::F32) is_rounded_[s.entry] = false;
  }

  // True for k**2 and similar powers. pow would take longer than all other work of a call.
  bool is_small_power(const Numbers::Entry& e) const {
    if (e.op != Op::Pow || e.operands[1].derived || !is_rounded_[static_cast<std::size_t>(&e - numbers_.entries_.data())]) return false;
    const double n = e.operands[1].as_double();
    return n >= 2 && n <= 8 && n == std::floor(n);
  }
  std::uint32_t small_power(const Numbers::Entry& e) {
    const std::uint32_t a = real(operand(e.operands[0])), n = real(operand(e.operands[1]));
    return step({.run = &scalar_rounded_power, .function = elementary_forms(Op::Pow).function}, {a, n});
  }

  std::uint32_t elementary(Op op, std::uint32_t a, std::uint32_t b) {
    const ElementaryForms& forms = elementary_forms(op);
    if (!(a & kConstant) || !forms.begin) return step(scalar_elementary(op), {a, b});
    std::vector<Scalar> kept(forms.kept);
    forms.begin(numbers_.constants_[a & ~kConstant].real, kept.data());
    const auto first = static_cast<std::uint32_t>(numbers_.constants_.size());
    numbers_.constants_.insert(numbers_.constants_.end(), kept.begin(), kept.end());
    return step(scalar_elementary_rest(op), {kConstant | first, b});
  }

  // The operand that is not selected need not be representable in the result's kind.
  std::uint32_t where(const Operand (&in)[3]) {
    const Kind kind = std::max(in[1].kind, in[2].kind);
    if (kind == Kind::Float) return step(&scalar_where, {in[0].place, real(in[1]), real(in[2])});
    const std::uint32_t y = step(&scalar_where, {in[0].place, in[1].place, in[2].place});
    if (kind == Kind::UInt && (!in[1].is_unsigned() || !in[2].is_unsigned())) {
      // A u64 and a non-negative i64 have the same bits, so only a selected i64 is checked.
      const std::uint32_t zero = constant({.integer = 0});
      step(&scalar_is_natural,
           {step(&scalar_where, {in[0].place, in[1].is_unsigned() ? zero : in[1].place, in[2].is_unsigned() ? zero : in[2].place})});
    }
    return y;
  }

  void put_constants_first() {
    const auto count = static_cast<std::uint32_t>(numbers_.constants_.size());
    const auto move = [&](std::uint32_t& place) { place = place & kConstant ? place & ~kConstant : place + count; };
    for (Numbers::Brought& b : numbers_.brought_) move(b.place);
    for (ScalarStep& s : numbers_.steps_) move(s.y), move(s.a), move(s.b), move(s.c);
    for (Numbers::Filled& f : numbers_.filled_) move(f.place);
    numbers_.value_count_ = count + next_;
  }
};

bool Numbers::run_steps(Scalar* values, std::uint64_t* slot_bits) const {
  if (!has_steps_) return false;
  if (!constants_.empty()) std::ranges::copy(constants_, values);
  for (const ScalarStep& s : steps_)
    if (!s.run(s, values)) return false;
  for (const Filled& f : filled_) {
    const Scalar value = values[f.place];
    std::uint64_t& bits = slot_bits[f.slot];
    switch (f.from) {
      case Filled::From::RealToF32: bits = std::bit_cast<std::uint32_t>(static_cast<float>(value.real)); break;
      case Filled::From::RealToF64: bits = std::bit_cast<std::uint64_t>(value.real); break;
      case Filled::From::IntegerToF32: bits = std::bit_cast<std::uint32_t>(static_cast<float>(value.integer)); break;
      case Filled::From::IntegerToF64: bits = std::bit_cast<std::uint64_t>(static_cast<double>(value.integer)); break;
      case Filled::From::Same: bits = static_cast<std::uint64_t>(value.integer); break;
      case Filled::From::Other: {
        Literal literal{.kind = f.kind};
        if (f.kind == Kind::Float) literal.real = value.real;
        else literal.integer = value.integer;
        const auto known = bits_if_fits(literal, f.dtype);
        if (!known) return false;
        bits = *known;
      }
    }
  }
  return true;
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
    kept.push_back(std::move(entries_[e]));
  }
  for (SlotValue& s : slots_) s.entry = now[s.entry];
  entries_ = std::move(kept);
  NumberSteps(*this).make();
}

Literal Numbers::fold_entry(const Entry& entry, std::span<const Literal> values) {
  std::array<Literal, 3> operands = entry.operands;
  for (std::size_t i = 0; i < entry.count; ++i)
    if (operands[i].derived) operands[i] = values[operands[i].derived - 1];
  return fold(entry.op, entry.name, std::span(operands).first(entry.count));
}

}  // namespace onepass::compiler
