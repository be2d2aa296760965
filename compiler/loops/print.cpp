// Prints a LoopProgram. Affine maps are written with the numbers of one shape.
#include <array>

#include <fmt/format.h>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

namespace {

class Printer {
 public:
  Printer(const Program& program, const NestNumbers& numbers) : p_(program), nest_(program.nest), m_(numbers) {}

  std::string text() {
    out_ = "program   loops";
    for (Id l = 0; l < nest_.loops(); ++l) out_ += fmt::format("{} i{} < {}", l ? "," : "", l, m_.extents[l]);
    out_ += "\n";
    for (std::size_t q = 0; q < nest_.derived.size(); ++q) {
      const Derived& d = nest_.derived[q];
      if (d.place == Derived::kNone) out_ += fmt::format("where q{} = ({}) {} {}\n", q, map(d.linear), d.modulo ? "mod" : "div", m_.by[q]);
    }
    std::vector<Id> ends;
    for (Id i = 0; i < p_.lines.size(); ++i) {
      while (!ends.empty() && ends.back() <= i) ends.pop_back();
      out_ += std::string(2 * ends.size(), ' ') + line(i) + "\n";
      if (p_.lines[i].code == Code::Loop) ends.push_back(p_.lines[i].end);
    }
    return std::move(out_);
  }

 private:
  const Program& p_;
  const Nest& nest_;
  const NestNumbers& m_;
  std::string out_;

  std::string variable(std::size_t v) const {
    if (v < nest_.loops()) return fmt::format("i{}", v);
    const Derived& d = nest_.derived[v - nest_.loops()];
    return d.place == Derived::kNone ? fmt::format("q{}", v - nest_.loops()) : fmt::format("s{}", d.place);
  }
  std::string map(Id linear) const {
    std::string text;
    for (std::size_t v = 0; v < m_.coefficients[linear].size(); ++v) {
      const std::int64_t c = m_.coefficients[linear][v];
      if (c == 0) continue;
      text += fmt::format("{}{}", text.empty() ? "" : " + ", c == 1 ? variable(v) : fmt::format("{}*{}", c, variable(v)));
    }
    const std::int64_t offset = m_.offsets[linear];
    if (offset || text.empty())
      text += text.empty() ? fmt::format("{}", offset) : fmt::format(" {} {}", offset < 0 ? "-" : "+", offset < 0 ? -offset : offset);
    return text;
  }
  std::string element(Id access) const {
    const Access& a = nest_.accesses[access];
    return fmt::format("%{}{}[{}]", m_.buffers[a.buffer], a.table == Access::kNone ? "" : fmt::format("[{}]", map(a.table)), map(a.linear));
  }
  // Returns the name of a digit: i1/32 is the outer part of i1 split by 32, i1%32 is the inner part.
  std::string digit(Id id) const {
    const Digit& d = p_.digits[id];
    if (d.kind == Digit::Kind::Whole) return fmt::format("i{}", d.root);
    static constexpr std::string_view words[] = {"", "tile", "tile_outer", "tile_rows", "chunk"};
    const std::string by = d.size == Digit::Size::Number ? fmt::format("{}", d.by) : std::string(words[static_cast<int>(d.size)]);
    return fmt::format("{}{}{}", digit(d.parent), d.kind == Digit::Kind::Outer ? '/' : '%', by);
  }
  static std::string_view bind(Bind bind) {
    switch (bind) {
      case Bind::Serial: return "";
      case Bind::Vector: return " vector";
      case Bind::Unrolled: return " unrolled";
      case Bind::Parallel: return " parallel";
    }
    return "";
  }
  std::string loops(const std::vector<Id>& all) const {
    std::string text;
    for (const Id d : all) text += (text.empty() ? "" : ", ") + digit(d);
    return "{" + text + "}";
  }
  static std::string layout(const Memory& m) {
    std::string text;
    for (const Memory::Part& part : m.layout) {
      const std::string by = part.fixed                        ? fmt::format(" of {}", part.by)
                             : part.kind == Digit::Kind::Whole ? ""
                                                               : fmt::format("{}{}", part.kind == Digit::Kind::Outer ? '/' : '%', part.by);
      text += fmt::format("{}i{}{}", text.empty() ? "" : ", ", part.root, by);
    }
    return "{" + text + "}";
  }
  std::string order(const Accumulator& a) const {
    static constexpr std::string_view names[] = {"in any order", "in lanes", "in rows", "in sequence", "as a scan"};
    switch (a.part) {
      case Accumulator::Part::All: break;
      case Accumulator::Part::Tree: return joins_chunks(p_, a) ? "as a tree of chunks" : "as a tree of blocks";
      case Accumulator::Part::Block: return a.order == Accumulator::Order::Lanes ? "in each lane" : "in sequence";
      case Accumulator::Part::Eight: return "as a tree of eight";
    }
    return std::string(names[static_cast<int>(a.order)]);
  }
  // Returns the name of a value: its statement for a checked index that floordiv/mod variables use, else its line.
  std::string name(Id i) const {
    const Line& l = p_.lines[i];
    for (const Derived& d : nest_.derived)
      if (l.of != kNone && d.place == l.of) return fmt::format("s{}", l.of);
    return fmt::format("v{}", i);
  }
  std::string operands(const Line& l) const {
    std::string text;
    for (const Id o : {l.a, l.b, l.c})
      if (o != kNone) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(o));
    return text;
  }

  std::string line(Id i) const {
    const Line& l = p_.lines[i];
    const std::string where = l.guard == kNone ? "" : " where " + name(l.guard);
    const auto value = [&](const std::string& text) {
      return fmt::format("{} = {} : {}", name(i), text, name_of(is_half(l.half) ? l.half : l.dtype));
    };
    switch (l.code) {
      case Code::Loop:
        return fmt::format("for {}{}{}{}{}{}{}", digit(l.at), p_.digits[l.at].once ? " once" : "", bind(l.bind),
                           l.reversed ? " reversed" : "", l.count ? fmt::format(" of {}", l.count) : "",
                           l.padded   ? " padded"
                           : l.peeled ? " peeled"
                                      : "",
                           l.of == kNone ? "" : fmt::format(" where s{}", l.of)) +
               (l.zeros ? " unless zero" : "");
      case Code::Start: {
        const Accumulator& a = p_.accumulators[l.at];
        return fmt::format("start a{}{} = {}{}{} over {} {}", l.at, a.axes.empty() ? "" : loops(a.axes), a.finds ? "index of the " : "",
                           ir::info(l.op).text, a.is_product ? " of products" : "", loops(a.reduced), a.finds ? "in sequence" : order(a));
      }
      case Code::Load: return value("load " + element(l.at) + where);
      case Code::Store: return fmt::format("store {} = {}{}{}", element(l.at), name(l.a), where, l.streamed ? " streamed" : "");
      case Code::AddTo: return fmt::format("store {} += {}{}", element(l.at), name(l.a), where);
      case Code::Index: return value("index " + map(l.at));
      case Code::Slot: return value(fmt::format("{}slot {}", m_.signs[l.at] ? "-" : "", m_.slots[l.at]));
      case Code::Constant: return value(fmt::format("constant {}", ir::double_of(l.dtype, l.bits)));
      case Code::Op: return value(fmt::format("{} {}", ir::info(l.op).text, operands(l)));
      case Code::Guard: {
        std::string checks;
        for (Id c = l.at; c < l.at + l.count; ++c)
          checks += fmt::format("{}0 <= {} < {}", checks.empty() ? "" : ", ", map(nest_.checks[c].linear), m_.bounds[c]);
        return fmt::format("{} = guard {}", name(i), checks);
      }
      case Code::Place: return value(fmt::format("place {} below {}{}", name(l.a), m_.bounds[l.at], where));
      case Code::Accumulate: {
        const std::string_view adds = p_.accumulators[l.at].finds ? "find" : l.b == kNone ? ir::info(l.op).text : "fma";
        return fmt::format("a{} = {} a{}, {}", l.at, adds, l.at, operands(l));
      }
      case Code::Result: return value(fmt::format("result a{}", l.at));
      case Code::Hold: return fmt::format("hold m{}{} : {}", l.at, layout(p_.memories[l.at]), name_of(p_.memories[l.at].dtype));
      case Code::Keep: return fmt::format("keep m{}{} = {}", l.at, loops(p_.memories[l.at].axes), name(l.a));
      case Code::Recall: return value(fmt::format("recall m{}{}", l.at, loops(p_.memories[l.at].axes)));
      case Code::Prefetch:
      case Code::PrefetchMemory:
        return fmt::format("prefetch {} for {} of {}{}",
                           l.code == Code::Prefetch ? element(l.at) : fmt::format("m{}{}", l.at, loops(p_.memories[l.at].axes)), l.count,
                           digit(static_cast<Id>(l.bits)), std::array{"", " in the second-level cache", " if it is near"}[l.bits >> 32]);
      case Code::Halve: return value(fmt::format("halve a{}", l.at));
      case Code::Scan: return value(fmt::format("scan a{} {} {}", l.at, ir::info(l.op).text, operands(l)));
    }
    return {};
  }
};

}  // namespace

std::string print(const Program& program, const NestNumbers& numbers) { return Printer(program, numbers).text(); }

}  // namespace onepass::compiler::loops
