// See nest.h.
#include "compiler/plan/nest.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

namespace onepass::compiler {

using ir::Op;
constexpr std::uint32_t kNone = Statement::kNone;

std::uint32_t Nest::places_of_group(std::uint32_t first) const {
  std::uint32_t places = 0;
  for (const Access& a : accesses)
    if (a.first == first) places |= 1u << a.place;
  return places;
}

bool Nest::has_columns() const {
  return std::any_of(body.begin(), body.end(), [](const Statement& s) { return s.kind == Statement::Kind::Reduce && s.count; });
}

std::vector<bool> Nest::behind_columns() const {
  std::vector<bool> out(body.size(), false);
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Statement& s = body[i];
    out[i] = s.kind == Statement::Kind::Reduce && s.count;
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != kNone && out[o]) out[i] = true;
  }
  return out;
}

std::optional<IndexSearch> index_search(const Nest& nest, std::uint32_t statement) {
  using Kind = Statement::Kind;
  const std::vector<Statement>& body = nest.body;
  const std::uint64_t reduced = nest.reduced_mask();
  const auto is_op = [&](std::uint32_t i, Op op) { return i != kNone && body[i].kind == Kind::Op && body[i].op == op; };
  const Statement& s = body[statement];
  if (s.kind != Kind::Reduce || s.op != Op::ReduceMin || s.dtype != DType::I64 || s.count != 0 || std::popcount(reduced) != 1 ||
      !is_op(s.a, Op::Where))
    return std::nullopt;
  const Statement& selected = body[s.a];
  const Statement &index = body[selected.b], &none = body[selected.c];
  if (index.kind != Kind::Index || none.kind != Kind::Constant || none.bits != std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  const std::vector<Coefficient>& of = nest.linears[index.at].of;
  for (std::uint32_t v = 0; v < of.size(); ++v)  // indices increase by 1 along the loop
    if (of[v] != (v < nest.loops() && (reduced >> v & 1) ? Coefficient::One : Coefficient::Zero)) return std::nullopt;
  std::uint32_t equal = selected.a, nan = kNone;
  if (is_op(equal, Op::BitwiseOr)) {
    nan = body[selected.a].b, equal = body[selected.a].a;
    if (is_op(equal, Op::Isnan)) std::swap(equal, nan);
    if (!is_op(nan, Op::Isnan)) return std::nullopt;
  }
  if (!is_op(equal, Op::Equal)) return std::nullopt;
  std::uint32_t value = body[equal].a, extreme = body[equal].b;
  if (body[value].kind == Kind::Reduce) std::swap(value, extreme);
  const Statement& most = body[extreme];
  const DType type = body[value].dtype;
  if (most.kind != Kind::Reduce || (most.op != Op::ReduceMin && most.op != Op::ReduceMax) || most.a != value || most.count != 0 ||
      type == DType::Bool || most.dtype != type || is_float(type) != (nan != kNone) || (nan != kNone && body[nan].a != value))
    return std::nullopt;
  return IndexSearch{extreme, value, selected.b};
}

std::string Nest::key() const {
  std::string k;
  k.reserve(sizeof(Statement) * body.size() + 256);
  const auto put = [&k](auto... v) { append_bytes(k, v...); };
  put(static_cast<std::uint8_t>(kind), outer, serial, runs, sweeps, phases, short_rows, static_cast<std::uint8_t>(routine), variant,
      static_cast<std::uint32_t>(linears.size()));
  for (const Linear& l : linears) {
    put(static_cast<std::uint32_t>(l.of.size()));
    for (Coefficient c : l.of) put(static_cast<std::uint8_t>(c));
  }
  put(static_cast<std::uint32_t>(derived.size()));
  for (const Derived& d : derived) put(d.linear, static_cast<std::uint8_t>(d.modulo), d.place);
  put(static_cast<std::uint32_t>(accesses.size()));
  for (const Access& a : accesses) put(a.buffer, a.linear, a.table, a.first, a.place);
  put(static_cast<std::uint32_t>(checks.size()));
  for (const Check& c : checks) put(c.linear);
  put(static_cast<std::uint32_t>(buffers.size()));
  for (const BufferInfo& b : buffers) put(static_cast<std::uint8_t>(b.dtype), static_cast<std::uint8_t>(b.written));
  put(static_cast<std::uint32_t>(slots.size()));
  for (DType t : slots) put(static_cast<std::uint8_t>(t));
  put(static_cast<std::uint32_t>(body.size()));
  for (const Statement& s : body)
    put(static_cast<std::uint8_t>(s.kind), static_cast<std::uint8_t>(s.op), static_cast<std::uint8_t>(s.dtype),
        static_cast<std::uint8_t>(s.half), s.stage, s.count, s.a, s.b, s.c, s.guard, s.at, s.loops, s.bits);
  put(static_cast<std::uint32_t>(steps.size()), static_cast<std::uint32_t>(results.size()));
  for (const std::int64_t number : steps) put(number);
  for (const std::uint32_t result : results) put(result);
  return k;
}

std::string print(const Nest& nest, const NestNumbers& numbers) {
  static constexpr std::string_view kinds[] = {"map", "rows", "lanes"};
  std::string out = fmt::format("nest {}:", kinds[static_cast<int>(nest.kind)]);
  for (std::uint32_t l = 0; l < nest.loops(); ++l) {
    const char* role = l < nest.outer ? "outer" : l == nest.vector_loop() ? "vector" : "serial";
    const bool reduced = nest.reduced_mask() >> l & 1;
    out += fmt::format(" i{} < {} {}{};", l, numbers.extents[l], role, reduced ? " reduced" : "");
  }
  if (nest.phases > 1) out += fmt::format(" {} phases;", nest.phases);
  if (nest.routine == Op::Steps) out += " steps;";
  else if (nest.is_routine())
    out += fmt::format(" library routine for {}{}, {} results;", ir::info(nest.routine).text,
                       nest.variant ? fmt::format(", variant {}", nest.variant) : "", numbers.results);
  if (nest.short_rows) out += " short rows;";
  out += nest.sweeps > 1 ? fmt::format(" {} sweeps\n", nest.sweeps) : "\n";
  const auto linear = [&](std::uint32_t id) {
    std::string text;
    for (std::size_t v = 0; v < numbers.coefficients[id].size(); ++v) {
      const std::int64_t c = numbers.coefficients[id][v];
      if (c == 0) continue;
      const std::string name = v < nest.loops() ? fmt::format("i{}", v) : fmt::format("q{}", v - nest.loops());
      text += fmt::format("{}{}", text.empty() ? "" : " + ", c == 1 ? name : fmt::format("{}*{}", c, name));
    }
    if (numbers.offsets[id] || text.empty()) text += fmt::format("{}{}", text.empty() ? "" : " + ", numbers.offsets[id]);
    return text;
  };
  for (std::size_t q = 0; q < nest.derived.size(); ++q)
    out += nest.derived[q].place != kNone ? fmt::format("  q{} = v{}\n", q, nest.derived[q].place)
                                          : fmt::format("  q{} = ({}) {} {}\n", q, linear(nest.derived[q].linear),
                                                        nest.derived[q].modulo ? "mod" : "div", numbers.by[q]);
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const std::string place = s.kind == Statement::Kind::Store ? "" : fmt::format("v{} = ", i);
    std::string text;
    switch (s.kind) {
      case Statement::Kind::Load:
      case Statement::Kind::Store: {
        const Access& a = nest.accesses[s.at];
        const std::string member = a.table == Access::kNone ? "" : fmt::format("[{}]", linear(a.table));
        text = fmt::format("{} %{}{}[{}]", s.kind == Statement::Kind::Load ? "load" : "store", numbers.buffers[a.buffer], member,
                           linear(a.linear));
        if (s.kind == Statement::Kind::Store) text += fmt::format(" {} v{}", s.op == Op::Add ? "+=" : "=", s.a);
        if (s.kind == Statement::Kind::Store && s.count > 1) text += fmt::format(", side by side with the next {}", s.count - 1);
        if (s.guard != kNone) text += fmt::format(" where v{}", s.guard);
        break;
      }
      case Statement::Kind::Index: text = fmt::format("index {}", linear(s.at)); break;
      case Statement::Kind::Slot: text = fmt::format("{}slot {}", numbers.signs[s.at] ? "-" : "", numbers.slots[s.at]); break;
      case Statement::Kind::Constant: text = fmt::format("constant {}", ir::double_of(s.dtype, s.bits)); break;
      case Statement::Kind::Guard:
        text = "guard";
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c)
          text += fmt::format("{} 0 <= {} < {}", c == s.at ? "" : ",", linear(nest.checks[c].linear), numbers.bounds[c]);
        break;
      case Statement::Kind::Place: text = fmt::format("place v{} below {}", s.a, numbers.bounds[s.at]); break;
      case Statement::Kind::Op:
      case Statement::Kind::Reduce:
      case Statement::Kind::Scan:
        text = std::string(ir::info(s.op).text);
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) text += fmt::format(" v{}", o);
        break;
    }
    out += fmt::format("  {}{} : {}, sweep {}\n", place, text, name_of(is_half(s.half) ? s.half : s.dtype), s.stage);
  }
  return out;
}

}  // namespace onepass::compiler
