// See transform.h. Each transformation edits the lines and calls the verifier, which is independent of the transformations, on the result.
// Conditions that the verifier cannot check are checked here.
#include "compiler/loops/transform.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "ir/order.h"

namespace onepass::compiler::loops {

namespace {

Transformed verified(Program program) {
  if (std::string wrong = verify(program); !wrong.empty()) return wrong;
  return program;
}

bool is_loop(const Program& p, Id line) { return line < p.lines.size() && p.lines[line].code == Code::Loop; }
std::string no_loop(Id line) { return fmt::format("line {} is not a loop", line); }

// Updates operands, predicates and ends after lines moved. `to[i]` is the new position of line i; to[size] is the new position of the end.
void rename(Program& p, const std::vector<Id>& to) {
  for (Line& l : p.lines)
    for (Id* id : {&l.end, &l.a, &l.b, &l.c, &l.guard})
      if (*id != kNone) *id = to[*id];
}

// Inserts a line before line `at` and updates all references.
void insert(Program& p, Id at, const Line& line) {
  std::vector<Id> to(p.lines.size() + 1);
  for (Id i = 0; i < to.size(); ++i) to[i] = i < at ? i : i + 1;
  rename(p, to);
  p.lines.insert(p.lines.begin() + at, line);
}

bool is_pure(Code code) {
  switch (code) {
    case Code::Load:
    case Code::Index:
    case Code::Slot:
    case Code::Constant:
    case Code::Op:
    case Code::Guard:
    case Code::Place: return true;
    default: return false;
  }
}

bool stores(const Line& l) { return l.code == Code::Store || l.code == Code::AddTo; }

// Returns the Loop lines around a line, outermost first.
std::vector<Id> loops_around(const Program& p, Id line) {
  std::vector<Id> loops;
  for (Id i = 0; i < line; ++i)
    if (p.lines[i].code == Code::Loop && p.lines[i].end > line) loops.push_back(i);
  return loops;
}

// Returns the line and the lines from line `from` on that it depends on, in order.
std::vector<Id> computed_from(const Program& p, Id line, Id from) {
  std::vector<bool> needed(line + 1, false);
  needed[line] = true;
  std::vector<Id> out;
  for (Id i = line + 1; i-- > from;) {
    if (!needed[i]) continue;
    out.push_back(i);
    for (const Id o : {p.lines[i].a, p.lines[i].b, p.lines[i].c, p.lines[i].guard})
      if (o != kNone) needed[o] = true;
  }
  std::ranges::reverse(out);
  return out;
}

// True if a floordiv/mod variable is the value of the line's statement.
bool names_places(const Program& p, Id line) {
  return std::ranges::any_of(p.nest.derived, [&](const Derived& d) { return d.place != Derived::kNone && d.place == p.lines[line].of; });
}
bool maps_name_places(const Program& p) {
  return std::ranges::any_of(p.nest.derived, [](const Derived& d) { return d.place != Derived::kNone; });
}
// True if a checked index is a variable of the affine map.
bool map_names_places(const Nest& nest, Id linear) {
  for (Id q = 0; q < nest.derived.size(); ++q)
    if (nest.linears[linear].of[nest.loops() + q] != Coefficient::Zero &&
        (nest.derived[q].place != Derived::kNone || map_names_places(nest, nest.derived[q].linear)))
      return true;
  return false;
}

// True if the line computes a checked index, or if one is a variable of its affine maps.
bool depends_on_places(const Program& p, Id line) {
  const Line& l = p.lines[line];
  if (l.code == Code::Load) {
    const Access& access = p.nest.accesses[l.at];
    return map_names_places(p.nest, access.linear) || (access.table != Access::kNone && map_names_places(p.nest, access.table));
  }
  if (l.code == Code::Index) return map_names_places(p.nest, l.at);
  if (l.code == Code::Guard)
    return std::any_of(p.nest.checks.begin() + l.at, p.nest.checks.begin() + l.at + l.count,
                       [&](const Check& c) { return map_names_places(p.nest, c.linear); });
  return names_places(p, line);
}

// Adds a memory for a value that is computed in these loops.
Id add_memory(Program& p, DType dtype, const std::vector<Id>& loops) {
  Memory m{.dtype = dtype, .axes = {}};
  for (const Id l : loops)
    if (const Id root = p.digits[p.lines[l].at].root; std::ranges::find(m.axes, root) == m.axes.end()) m.axes.push_back(root);
  for (const Id axis : m.axes) m.layout.push_back({.root = axis});
  p.memories.push_back(std::move(m));
  return static_cast<Id>(p.memories.size() - 1);
}

// Returns the program without unused lines and without loops that become empty. One line of each checked index stays, preferably a used
// one, because it reports bad indices.
Program without_dead_lines(const Program& p) {
  std::vector<Id> stays(p.nest.body.size(), kNone);  // by statement: line of a checked index that stays
  for (Id i = 0; i < p.lines.size(); ++i) {
    if (p.lines[i].code != Code::Place) continue;
    const auto uses = [&](Id of) {
      return std::ranges::any_of(p.lines, [&](const Line& l) { return l.a == of || l.b == of || l.c == of || l.guard == of; });
    };
    Id& best = stays[p.lines[i].of];
    if (best == kNone || (uses(i) && !uses(best))) best = i;
  }
  std::vector<bool> live(p.lines.size(), false), live_sum(p.accumulators.size(), false), live_memory(p.memories.size(), false);
  for (bool again = true; std::exchange(again, false);) {
    for (Id i = static_cast<Id>(p.lines.size()); i-- > 0;) {
      const Line& l = p.lines[i];
      bool is_live = live[i] || l.code == Code::Prefetch || l.code == Code::Store || l.code == Code::AddTo ||
                     (l.code == Code::Place && stays[l.of] == i);
      if (l.code == Code::Accumulate || l.code == Code::Start) is_live = live_sum[l.at];
      if (l.code == Code::Hold || l.code == Code::Keep || l.code == Code::PrefetchMemory) is_live = live_memory[l.at];
      if (l.code == Code::Loop) is_live = std::find(live.begin() + i + 1, live.begin() + l.end, true) != live.begin() + l.end;
      for (const Derived& d : p.nest.derived) is_live |= d.place != Derived::kNone && d.place == l.of;
      if (!is_live) continue;
      live[i] = true;
      for (const Id o : {l.a, l.b, l.c, l.guard})
        if (o != kNone) live[o] = true;
      if ((l.code == Code::Result || l.code == Code::Halve || l.code == Code::Scan) && !live_sum[l.at]) live_sum[l.at] = again = true;
      if (l.code == Code::Recall && !live_memory[l.at]) live_memory[l.at] = again = true;
    }
  }
  Program out = p;
  out.lines.clear();
  std::vector<Id> to(p.lines.size() + 1);
  for (Id i = 0; i < p.lines.size(); ++i) {
    to[i] = static_cast<Id>(out.lines.size());
    if (live[i]) out.lines.push_back(p.lines[i]);
  }
  to[p.lines.size()] = static_cast<Id>(out.lines.size());
  rename(out, to);
  return out;
}

}  // namespace

namespace {
Transformed split(const Program& program, Id loop, Digit::Size size, std::int64_t by) {
  if (!is_loop(program, loop)) return no_loop(loop);
  if (by < 1 && size == Digit::Size::Number) return fmt::format("the loop would have {} iterations", by);
  Program p = program;
  const Id digit = p.lines[loop].at, outer = static_cast<Id>(p.digits.size()), inner = outer + 1;
  const Id root = p.digits[digit].root;
  p.digits.push_back({.kind = Digit::Kind::Outer, .root = root, .parent = digit, .pair = inner, .size = size, .by = by});
  p.digits.push_back({.kind = Digit::Kind::Inner, .root = root, .parent = digit, .pair = outer, .size = size, .by = by});
  Line inside = p.lines[loop];
  p.lines[loop].at = outer;
  p.lines[loop].bind = Bind::Serial;
  p.lines[loop].peeled = false;
  inside.at = inner;
  insert(p, loop + 1, inside);
  p.lines[loop + 1].end = p.lines[loop].end;
  // Sums with an element per iteration get an element per iteration of both parts, if the loop adds to them or reads them.
  std::vector<Id> around;
  for (Id i = 0; i < p.lines.size(); ++i) {
    std::erase_if(around, [&](Id l) { return p.lines[l].end <= i; });
    const Line& l = p.lines[i];
    if (l.code == Code::Loop) around.push_back(i);
    if ((l.code != Code::Accumulate && l.code != Code::Result) || std::ranges::find(around, loop) == around.end()) continue;
    std::vector<Id>& axes = p.accumulators[l.at].axes;
    if (std::ranges::find(axes, digit) != axes.end()) return fmt::format("a{} has one element for each iteration", l.at);
  }
  return verified(std::move(p));
}

}  // namespace

Transformed split(const Program& program, Id loop, std::int64_t by) { return split(program, loop, Digit::Size::Number, by); }
Transformed split(const Program& program, Id loop, Digit::Size size) { return split(program, loop, size, 0); }

Transformed once(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Program p = program;
  p.digits[p.lines[loop].at].once = true;
  return verified(std::move(p));
}

Transformed sink(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Id inside = loop + 1;
  while (inside < program.lines[loop].end && is_pure(program.lines[inside].code)) ++inside;
  if (inside >= program.lines[loop].end || !is_loop(program, inside) || program.lines[inside].end != program.lines[loop].end)
    return "the loop's body has another line";
  Program p = program;
  std::vector<Id> to(p.lines.size() + 1);
  for (Id i = 0; i < to.size(); ++i) to[i] = i == inside ? loop + 1 : i > loop && i < inside ? i + 1 : i;
  rename(p, to);
  std::rotate(p.lines.begin() + loop + 1, p.lines.begin() + inside, p.lines.begin() + inside + 1);
  return verified(std::move(p));
}

Transformed lift(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Nest& nest = program.nest;
  const std::uint64_t varies = std::uint64_t{1} << program.digits[program.lines[loop].at].root;
  const Id end = program.lines[loop].end;
  std::vector<Id> lifted, rest;
  // True if the checked indices that the line's affine maps use are computed before the loop.
  const auto places_are_apart = [&](const Line& l) {
    if (l.code != Code::Load) return l.code == Code::Op || l.code == Code::Slot || l.code == Code::Constant || !maps_name_places(program);
    const Access& access = nest.accesses[l.at];
    for (std::size_t q = 0; q < nest.derived.size(); ++q) {
      const Id place = nest.derived[q].place;
      if (place == Derived::kNone || nest.linears[access.linear].of[nest.loops() + q] == Coefficient::Zero) continue;
      if (access.table != Access::kNone) return false;
      for (const Id i : rest)
        if (program.lines[i].of == place) return false;
    }
    return true;
  };
  for (Id i = loop + 1; i < end; ++i) {
    const Line& l = program.lines[i];
    if (l.code == Code::Loop) {  // lines in further loops depend on those loops
      for (; i < l.end; ++i) rest.push_back(i);
      --i;
      continue;
    }
    const bool is_apart = std::ranges::all_of(std::array{l.a, l.b, l.c, l.guard},
                                              [&](Id o) { return o == kNone || o < loop || std::ranges::find(lifted, o) != lifted.end(); });
    const bool is_value = is_pure(l.code) && l.of != kNone && !(program.nest.body[l.of].loops & varies);
    (is_value && is_apart && places_are_apart(l) ? lifted : rest).push_back(i);
  }
  if (lifted.empty()) return "all values in it depend on the loop";
  if (std::any_of(program.lines.begin() + loop, program.lines.begin() + end, stores) &&
      std::ranges::any_of(lifted, [&](Id i) { return program.lines[i].code == Code::Load; }))
    return "the loop may store an element that it loads";
  Program p = program;
  std::vector<Id> order = lifted, to(p.lines.size() + 1);
  order.push_back(loop);
  order.insert(order.end(), rest.begin(), rest.end());
  for (Id i = 0; i < to.size(); ++i) to[i] = i;
  for (Id k = 0; k < order.size(); ++k) to[order[k]] = loop + k;
  for (Id k = 0; k < order.size(); ++k) p.lines[loop + k] = program.lines[order[k]];
  for (Id i = 0; i < p.lines.size(); ++i) {
    Line& l = p.lines[i];
    for (Id* o : {&l.a, &l.b, &l.c, &l.guard})
      if (*o != kNone) *o = to[*o];
    if (l.code == Code::Loop && i > loop + lifted.size() && i < end) l.end = to[l.end - 1] + 1;  // after its last line
  }
  return verified(std::move(p));
}

Transformed interchange(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Id inside = loop + 1;
  if (!is_loop(program, inside) || program.lines[inside].end != program.lines[loop].end) return "the loop's body has another line";
  Program p = program;
  std::swap(p.lines[loop].at, p.lines[inside].at);
  std::swap(p.lines[loop].bind, p.lines[inside].bind);
  std::swap(p.lines[loop].count, p.lines[inside].count);
  std::swap(p.lines[loop].padded, p.lines[inside].padded);
  std::swap(p.lines[loop].peeled, p.lines[inside].peeled);
  return verified(std::move(p));
}

Transformed fission(const Program& program, Id loop, Id at, bool keep, bool apart) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Id end = program.lines[loop].end;
  if (at <= loop + 1 || at >= end) return fmt::format("line {} is not inside the loop's body", at);
  for (Id i = loop + 1; i < at; ++i)
    if (program.lines[i].code == Code::Loop && program.lines[i].end > at) return fmt::format("line {} is in a nested loop", at);
  const auto any = [&](Id from, Id to, auto&& is) { return std::any_of(program.lines.begin() + from, program.lines.begin() + to, is); };
  if (!apart && any(loop + 1, at, stores) && any(at, end, [](const Line& l) { return l.code == Code::Load; }))
    return "the first loop may store an element that the second loop loads";
  const auto is_scan = [&](const Line& l) { return l.code == Code::Start && program.accumulators[l.at].order == Accumulator::Order::Scan; };
  if (any(loop + 1, at, is_scan) && any(at, end, [](const Line& l) { return l.code == Code::Scan; }))
    return "a scan runs through both loops";

  // ---- values of the first loop that the second loop needs: lines directly in the first loop are computed again, sums are read again
  const std::size_t count = program.lines.size();
  std::vector<bool> needed(count, false), kept_sum(program.accumulators.size(), false);
  std::vector<Id> memory_of(count, kNone);  // by line: memory for its value
  Program p = program;
  const auto need = [&](const Line& l) {
    for (const Id o : {l.a, l.b, l.c, l.guard}) {
      if (o == kNone || o <= loop || o >= at) continue;
      const Line& from = program.lines[o];
      if (!keep || (from.code != Code::Load && from.code != Code::Op)) {
        needed[o] = true;
      } else if (memory_of[o] == kNone) {
        memory_of[o] = static_cast<Id>(p.memories.size());
        const Id root = program.digits[program.lines[loop].at].root;
        p.memories.push_back({.dtype = from.dtype, .axes = {root}, .layout = {{.root = root}}});
      }
    }
    if (l.code == Code::Accumulate || l.code == Code::Result || l.code == Code::Halve || l.code == Code::Scan)
      for (Id i = loop + 1; i < at; ++i)
        if (program.lines[i].code == Code::Start && program.lines[i].at == l.at) kept_sum[l.at] = true;
  };
  const Nest& nest = program.nest;
  // checked indices that floordiv/mod variables use are needed even if the second loop's maps do not use them
  for (Id i = loop + 1, next = i; i < at; ++i) {
    if (i < next) continue;
    const Line& l = program.lines[i];
    if (l.code == Code::Loop) next = l.end;
    else if (std::ranges::any_of(nest.derived, [&](const Derived& d) { return d.place != Derived::kNone && d.place == l.of; }))
      needed[i] = true;
  }
  for (Id i = at; i < end; ++i) need(program.lines[i]);
  for (Id i = at; i-- > loop + 1;) {
    if (!needed[i]) continue;
    const Line& l = program.lines[i];
    if (l.code == Code::Scan) return "the second loop reads a scan of the first";
    if (!apart && l.code == Code::Load && any(loop + 1, at, stores))
      return "the first loop may store an element that the second loop loads";
    need(l);
  }
  for (Id i = at; i < end; ++i)  // a sum cannot be started in one loop and added to in both loops
    if (const Line& l = program.lines[i]; l.code == Code::Accumulate && kept_sum[l.at])
      return fmt::format("the second loop adds to a{}", l.at);

  p.lines.clear();
  std::vector<Id> to(count + 1, kNone);
  const auto put = [&](Id i) {
    to[i] = static_cast<Id>(p.lines.size());
    p.lines.push_back(program.lines[i]);
    if (memory_of[i] != kNone) p.lines.push_back({.code = Code::Keep, .dtype = program.lines[i].dtype, .a = i, .at = memory_of[i]});
  };
  const Id digit = program.lines[loop].at;
  for (Id i = 0; i < loop; ++i) put(i);
  for (Id i = loop + 1; i < at; ++i)
    if (memory_of[i] != kNone) p.lines.push_back({.code = Code::Hold, .dtype = program.lines[i].dtype, .at = memory_of[i]});
  for (Id i = loop + 1; i < at; ++i)  // starts of the sums that outlive an iteration
    if (program.lines[i].code == Code::Start && kept_sum[program.lines[i].at]) {
      put(i);
      p.accumulators[program.lines[i].at].axes.push_back(digit);
    }
  put(loop);
  for (Id i = loop + 1; i < at; ++i)
    if (to[i] == kNone) put(i);
  const Id first_end = static_cast<Id>(p.lines.size());
  const auto second = static_cast<Id>(p.lines.size());
  p.lines.push_back(program.lines[loop]);
  std::vector<Id> again = to;  // operands of the second loop
  for (Id i = loop + 1; i < at; ++i) {
    if (!needed[i] && memory_of[i] == kNone) continue;
    again[i] = static_cast<Id>(p.lines.size());
    const Line& l = program.lines[i];
    p.lines.push_back(needed[i] ? l : Line{.code = Code::Recall, .dtype = l.dtype, .at = memory_of[i], .of = l.of});
  }
  const auto rest = static_cast<Id>(p.lines.size());
  for (Id i = at; i < count; ++i) put(i), again[i] = to[i];
  to[count] = again[count] = static_cast<Id>(p.lines.size());
  if (end < count) to[end] = again[end];

  for (Id i = 0; i < p.lines.size(); ++i) {
    Line& l = p.lines[i];
    const std::vector<Id>& names = i > second && (i < rest || i < to[end]) ? again : to;
    for (Id* o : {&l.a, &l.b, &l.c, &l.guard})
      if (*o != kNone) *o = names[*o];
    if (l.code == Code::Loop && i != to[loop] && i != second)
      l.end = i < loop && l.end <= loop ? l.end : l.end == at && i < second ? first_end : to[l.end];
  }
  p.lines[to[loop]].end = first_end;
  p.lines[second].end = to[end];
  return verified(without_dead_lines(p));
}

Transformed hold(const Program& program, Id line) {
  if (line >= program.lines.size() || !is_pure(program.lines[line].code))
    return fmt::format("line {} does not compute a value that can be stored", line);
  const Line& first = program.lines[line];
  const std::vector<Id> loops = loops_around(program, line);
  std::vector<Id> again;
  for (Id i = line + 1; i < program.lines.size(); ++i)
    if (program.lines[i].of == first.of && program.lines[i].code == first.code) again.push_back(i);
  if (again.empty()) return "no later line recomputes it";
  std::size_t common = 0;  // loops that contain all of them
  while (common < loops.size() && program.lines[loops[common]].end > again.back()) ++common;
  if (common == loops.size()) return "no line after its loop recomputes it";
  const Id own = loops[common];
  if (program.lines[own].end > again.front()) return "its own loop recomputes it";
  if (names_places(program, line) || first.code == Code::Place) return "an index depends on it";
  const std::vector<Id> from = computed_from(program, line, 0);
  for (Id i = own; i < again.back(); ++i) {
    if (program.lines[i].code == Code::AddTo) return "an update may change one of its operands";
    if (program.lines[i].code != Code::Start || i < line) continue;
    for (const Id o : from)
      if (program.lines[o].code == Code::Result && program.lines[o].at == program.lines[i].at)
        return "a sum that it depends on is restarted";
  }
  Program p = program;
  const Id memory = add_memory(p, first.dtype, {loops.begin() + static_cast<std::ptrdiff_t>(common), loops.end()});
  for (const Id i : again) p.lines[i] = {.code = Code::Recall, .dtype = first.dtype, .at = memory, .of = first.of};
  insert(p, line + 1, {.code = Code::Keep, .dtype = first.dtype, .a = line, .at = memory});
  insert(p, own, {.code = Code::Hold, .dtype = first.dtype, .at = memory});
  return verified(without_dead_lines(p));
}

Transformed stage(const Program& program, Id line, Id loop) {
  if (line >= program.lines.size() || !is_pure(program.lines[line].code))
    return fmt::format("line {} does not compute a value that can be stored", line);
  if (!is_loop(program, loop) || loop >= line || program.lines[loop].end <= line)
    return fmt::format("line {} is not a loop around line {}", loop, line);
  const std::vector<Id> needed = computed_from(program, line, loop);
  std::uint64_t varies = 0;  // loops of the nest
  for (const Id i : needed) {
    const Line& l = program.lines[i];
    if (depends_on_places(program, i)) return "an index depends on data";
    if (!is_pure(l.code)) return "it depends on a sum of the loop";
    if (l.of != kNone) varies |= program.nest.body[l.of].loops;
  }
  // Stores of the loop before this line do not change its inputs. They may overwrite an argument, but only elements already read.
  std::vector<Id> loops;  // loops that it depends on
  for (const Id l : loops_around(program, line))
    if (l >= loop && (varies >> program.digits[program.lines[l].at].root & 1)) loops.push_back(l);
  Program p = program;
  const DType dtype = program.lines[line].dtype;
  const Id memory = add_memory(p, dtype, loops), more = static_cast<Id>(1 + loops.size() + needed.size() + 1);
  std::vector<Line> lines = {{.code = Code::Hold, .dtype = dtype, .at = memory}};
  for (const Id l : loops) lines.push_back({.code = Code::Loop, .end = loop + more, .at = program.lines[l].at});
  std::vector<Id> copy_of(program.lines.size());
  for (Id i = 0; i < copy_of.size(); ++i) copy_of[i] = i;
  for (const Id i : needed) {
    copy_of[i] = loop + static_cast<Id>(lines.size());
    Line copy = program.lines[i];
    for (Id* o : {&copy.a, &copy.b, &copy.c, &copy.guard})
      if (*o != kNone) *o = copy_of[*o];
    lines.push_back(copy);
  }
  lines.push_back({.code = Code::Keep, .dtype = dtype, .a = copy_of[line], .at = memory});
  p.lines[line] = {.code = Code::Recall, .dtype = dtype, .at = memory, .of = program.lines[line].of};
  std::vector<Id> ended;  // loops that end before the new lines
  for (Id i = 0; i < loop; ++i)
    if (p.lines[i].code == Code::Loop && p.lines[i].end == loop) ended.push_back(i);
  std::vector<Id> to(p.lines.size() + 1);
  for (Id i = 0; i < to.size(); ++i) to[i] = i < loop ? i : i + more;
  rename(p, to);
  for (const Id i : ended) p.lines[i].end = loop;
  p.lines.insert(p.lines.begin() + loop, lines.begin(), lines.end());
  return verified(without_dead_lines(p));
}

Transformed recall(const Program& program, Id line, Id memory) {
  if (line >= program.lines.size() || !is_pure(program.lines[line].code))
    return fmt::format("line {} does not compute a value that can be stored", line);
  if (memory >= program.memories.size()) return fmt::format("the buffer m{} does not exist", memory);
  const Line& l = program.lines[line];
  if (names_places(program, line) || l.code == Code::Place) return "an index depends on it";
  bool is_kept = false;
  for (Id i = 0; i < line; ++i) {
    const Line& k = program.lines[i];
    if (k.code == Code::AddTo) return "an update may change one of its operands";
    if (k.code == Code::Keep && k.at == memory) is_kept = program.lines[k.a].of == l.of && program.lines[k.a].code == l.code;
  }
  if (!is_kept || l.code != Code::Load) return fmt::format("m{} does not have the element that it loads", memory);
  Program p = program;
  p.lines[line] = {.code = Code::Recall, .dtype = l.dtype, .at = memory, .of = l.of};
  return verified(without_dead_lines(p));
}

Transformed defer(const Program& program, Id line, Id loop) {
  if (line >= program.lines.size() || program.lines[line].code != Code::Store) return fmt::format("line {} is not a store", line);
  if (!is_loop(program, loop) || loop >= line || program.lines[loop].end <= line)
    return fmt::format("line {} is not a loop around line {}", loop, line);
  if (program.lines[line].guard != kNone || program.lines[line].count > 1) return "the store has a condition, or is next to other stores";
  std::vector<Id> loops;
  for (const Id l : loops_around(program, line))
    if (l >= loop) loops.push_back(l);
  Program p = program;
  const Line store = p.lines[line];
  const DType dtype = p.lines[store.a].dtype;
  const Id memory = add_memory(p, dtype, loops), end = p.lines[loop].end, more = static_cast<Id>(loops.size() + 2);
  p.lines[line] = {.code = Code::Keep, .dtype = dtype, .a = store.a, .at = memory};
  for (Id i = 0; i < p.lines.size(); ++i) {
    Line& l = p.lines[i];
    for (Id* o : {&l.a, &l.b, &l.c, &l.guard})
      if (*o != kNone && *o >= end) *o += more;
    if (l.code == Code::Loop && (l.end > end || (l.end == end && i < loop))) l.end += more;  // loops around `loop` end after the new lines
  }
  std::vector<Line> lines;
  for (const Id l : loops) lines.push_back({.code = Code::Loop, .end = end + more, .at = program.lines[l].at});
  lines.push_back({.code = Code::Recall, .dtype = dtype, .at = memory});
  lines.push_back(store);
  lines.back().a = end + more - 2;
  p.lines.insert(p.lines.begin() + end, lines.begin(), lines.end());
  std::vector<Id> ended;  // loops that end before the new line
  for (Id i = 0; i < loop; ++i)
    if (p.lines[i].code == Code::Loop && p.lines[i].end == loop) ended.push_back(i);
  insert(p, loop, {.code = Code::Hold, .dtype = dtype, .at = memory});
  for (const Id i : ended) p.lines[i].end = loop;
  return verified(std::move(p));
}

Transformed in_order(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Id begin = loop + 1, end = program.lines[loop].end;
  std::vector<Id> from;
  for (Id i = begin; i < end; ++i) {
    const Line& l = program.lines[i];
    if (!is_pure(l.code) && l.code != Code::Store) return "a line of the loop's body is neither a value nor a store";
    from.push_back(i);
  }
  std::ranges::stable_sort(from, {}, [&](Id i) { return program.lines[i].of; });
  Program p = program;
  std::vector<Id> to(p.lines.size() + 1);
  for (Id i = 0; i < to.size(); ++i) to[i] = i;
  for (Id k = 0; k < from.size(); ++k) to[from[k]] = begin + k;
  for (Id k = 0; k < from.size(); ++k) p.lines[begin + k] = program.lines[from[k]];
  for (Line& l : p.lines)
    for (Id* id : {&l.a, &l.b, &l.c, &l.guard})
      if (*id != kNone) *id = to[*id];
  return verified(std::move(p));
}

Transformed remake(const Program& program, Id loop, const std::vector<Id>& lines) {
  if (!is_loop(program, loop)) return no_loop(loop);
  std::vector<bool> again(program.lines.size(), false);
  for (const Id line : lines) {
    if (line >= loop || !is_pure(program.lines[line].code) || program.lines[line].code == Code::Place)
      return fmt::format("line {} does not compute a value before the loop that can be recomputed", line);
    again[line] = true;
  }
  Program p = program;
  p.lines.clear();
  std::vector<Id> to(program.lines.size() + 1), inside(program.lines.size(), kNone);  // by line: its new line, and the new line of its copy
  std::vector<Id> needed;
  const auto renamed = [&](Line l) {
    for (Id* o : {&l.a, &l.b, &l.c, &l.guard})
      if (*o != kNone) *o = inside[*o] != kNone ? inside[*o] : to[*o];
    return l;
  };
  const Id end = program.lines[loop].end;
  for (Id i = 0; i < program.lines.size(); ++i) {
    if (i == end) std::ranges::fill(inside, kNone);
    if (i > loop && i < end) {  // operands first; a chain of them may be as long as the program
      needed = {program.lines[i].a, program.lines[i].b, program.lines[i].c, program.lines[i].guard};
      while (!needed.empty()) {
        const Id o = needed.back();
        if (o == kNone || !again[o] || inside[o] != kNone) {
          needed.pop_back();
          continue;
        }
        const Line& l = program.lines[o];
        const std::size_t before = needed.size();
        for (const Id operand : {l.a, l.b, l.c, l.guard})
          if (operand != kNone && again[operand] && inside[operand] == kNone) needed.push_back(operand);
        if (needed.size() > before) continue;
        inside[o] = static_cast<Id>(p.lines.size());
        p.lines.push_back(renamed(l));
      }
    }
    to[i] = static_cast<Id>(p.lines.size());
    p.lines.push_back(renamed(program.lines[i]));
  }
  to[program.lines.size()] = static_cast<Id>(p.lines.size());
  for (Line& l : p.lines)
    if (l.code == Code::Loop) l.end = to[l.end];
  return verified(without_dead_lines(p));
}

namespace {

Line prefetch_of(const Line& load, Id digit, std::uint16_t count, Ahead ahead) {
  const Code code = load.code == Code::Recall ? Code::PrefetchMemory : Code::Prefetch;
  return {.code = code, .count = count, .at = load.at, .bits = digit | static_cast<std::uint64_t>(ahead) << 32};
}

}  // namespace

Transformed prefetch(const Program& program, Id line, Id loop, std::uint8_t count, Id at, Ahead ahead) {
  if (line >= program.lines.size() || (program.lines[line].code != Code::Load && program.lines[line].code != Code::Recall))
    return fmt::format("line {} is not a load", line);
  if (!is_loop(program, loop)) return no_loop(loop);
  if (at == kNone) at = line;
  if (at >= program.lines.size()) return fmt::format("line {} does not exist", at);
  Program p = program;
  insert(p, at, prefetch_of(program.lines[line], program.lines[loop].at, count, ahead));
  return verified(std::move(p));
}

Transformed prefetch(const Program& program, const std::vector<Id>& lines, Id loop, std::size_t bytes) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Program p = program;
  for (std::size_t k = lines.size(); k-- > 0;) {  // last line first, because insertions move no earlier line
    if (lines[k] >= program.lines.size() || program.lines[lines[k]].code != Code::Load)
      return fmt::format("line {} is not a load", lines[k]);
    if (k > 0 && lines[k - 1] >= lines[k]) return "the loads must be in the order of their lines";
    const Line& load = program.lines[lines[k]];
    const std::size_t size = size_of(program.nest.buffers[program.nest.accesses[load.at].buffer].dtype);
    insert(p, lines[k], prefetch_of(load, program.lines[loop].at, static_cast<std::uint16_t>(bytes / size), Ahead::First));
  }
  return verified(std::move(p));
}

Transformed leave_out(const Program& program, Id loop, Id condition) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Program p = program;
  p.lines[loop].of = condition;
  return verified(std::move(p));
}

Transformed skip_zeros(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Program p = program;
  p.lines[loop].zeros = true;
  return verified(std::move(p));
}

Transformed lay_out(const Program& program, Id memory, std::vector<Memory::Part> layout) {
  if (memory >= program.memories.size()) return fmt::format("the buffer m{} does not exist", memory);
  Program p = program;
  p.memories[memory].layout = std::move(layout);
  return verified(std::move(p));
}

namespace {

// Returns the line that adds to a sum.
Id line_that_adds(const Program& p, Id sum) {
  Id line = 0;
  while (line < p.lines.size() && (p.lines[line].code != Code::Accumulate || p.lines[line].at != sum)) ++line;
  return line;
}

// Adds an accumulator for a part of sum `of`.
Id new_sum(Program& p, Id of, Accumulator::Part part, std::vector<Id> over, std::vector<Id> axes, bool is_product) {
  Accumulator sum = p.accumulators[of];
  sum.part = part, sum.is_product = is_product;
  sum.axes = std::move(axes), sum.reduced = std::move(over);
  p.accumulators.push_back(std::move(sum));
  return static_cast<Id>(p.accumulators.size() - 1);
}
void start(Program& p, Id at, Id sum, Id statement) {
  const Accumulator& a = p.accumulators[sum];
  insert(p, at, {.code = Code::Start, .op = a.op, .dtype = a.dtype, .at = sum, .of = statement});
}
// After the loop at line `before`, adds the finer sum to the coarser sum for each index of the axes.
void add_after(Program& p, Id before, Code read, Id finer, Id coarser, const std::vector<Id>& axes, Id statement) {
  const Accumulator of = p.accumulators[coarser];
  const Id first = p.lines[before].end, more = static_cast<Id>(axes.size() + 2);
  for (Line& l : p.lines) {
    for (Id* o : {&l.a, &l.b, &l.c, &l.guard})
      if (*o != kNone && *o >= first) *o += more;
    // Loops around `before` end after the new lines.
    if (l.code == Code::Loop && (l.end > first || (l.end == first && &l < &p.lines[before]))) l.end += more;
  }
  std::vector<Line> lines;
  for (const Id axis : axes) lines.push_back({.code = Code::Loop, .end = first + more, .at = axis});
  lines.push_back({.code = read, .dtype = of.dtype, .at = finer, .of = statement});
  lines.push_back({.code = Code::Accumulate, .op = of.op, .dtype = of.dtype, .a = first + more - 2, .at = coarser, .of = statement});
  p.lines.insert(p.lines.begin() + first, lines.begin(), lines.end());
}

}  // namespace

Transformed factor(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Id whole = program.lines[loop].at;
  std::vector<Id> sums;
  for (Id i = loop + 1; i < program.lines[loop].end; ++i) {
    if (program.lines[i].code == Code::Scan) return "a scan runs through the whole loop";
    if (program.lines[i].code == Code::Accumulate) sums.push_back(program.lines[i].at);
  }
  Transformed parts = split(program, loop, Digit::Size::Chunk);
  if (!parts) return parts;
  Program p = std::move(parts).take();
  const Id chunks = p.lines[loop].at, inner = p.lines[loop + 1].at;
  Id chunk = loop + 1;  // line of the loop inside a chunk
  for (const Id sum : sums) {
    const Accumulator of = p.accumulators[sum];
    if (of.part != Accumulator::Part::All || of.reduced != std::vector<Id>{whole} || of.runs != 0) return "the sum runs over several loops";
    const Id added = line_that_adds(p, sum), statement = p.lines[added].of;
    std::vector<Id> axes;
    for (const Id around : loops_around(p, added))
      if (around > chunk && std::ranges::find(of.axes, p.lines[around].at) != of.axes.end()) axes.push_back(p.lines[around].at);
    const Id finer = new_sum(p, sum, Accumulator::Part::All, {inner}, axes, of.is_product);
    p.accumulators[sum].part = Accumulator::Part::Tree;
    p.accumulators[sum].reduced = {chunks};
    p.accumulators[sum].is_product = false;
    p.lines[added].at = finer;
    add_after(p, chunk, Code::Result, finer, sum, axes, statement);
    start(p, chunk++, finer, statement);
  }
  return verified(std::move(p));
}

Transformed reverse(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Program p = program;
  p.lines[loop].reversed = true;
  return verified(std::move(p));
}

Transformed expand_order(const Program& program, Id accumulator) {
  using enum Accumulator::Order;
  if (accumulator >= program.accumulators.size()) return fmt::format("the accumulator a{} does not exist", accumulator);
  const Accumulator of = program.accumulators[accumulator];
  if (of.part != Accumulator::Part::All || (of.order != Lanes && of.order != Rows && of.order != Sequence))
    return "the accumulator has no order that can be expanded";
  if (of.reduced.size() != 1 || of.runs != 0) return "the sum runs over several loops";
  const std::int64_t block = of.order == Lanes ? ir::kLaneBlock : ir::kRowBlock, lanes = of.dtype == DType::F64 ? 32 : 64;
  Program p = program;
  // Returns the loops around the line that adds to the sum, starting with the outermost part of the summed loop.
  Id added = 0;
  const auto loops_from_reduced = [&] {
    added = line_that_adds(p, accumulator);
    std::vector<Id> around = loops_around(p, added);
    while (!around.empty() && !is_within(p, p.lines[around[0]].at, of.reduced[0])) around.erase(around.begin());
    return around;
  };

  // ---- the loops: blocks, then steps of lanes or groups of eight; existing splits of that kind are reused
  std::vector<Id> around = loops_from_reduced();
  if (around.empty()) return "the sum runs over no loop";
  if (p.lines[around[0]].at == of.reduced[0]) {
    Transformed parts = split(p, around[0], block);
    if (parts && of.order != Sequence) parts = split(*parts, around[0] + 1, of.order == Lanes ? lanes : ir::kRowGroup);
    if (!parts) return parts;
    p = std::move(parts).take();
    around = loops_from_reduced();
  }
  const Digit& outermost = p.digits[p.lines[around[0]].at];
  if (outermost.kind != Digit::Kind::Outer || outermost.parent != of.reduced[0] || outermost.size != Digit::Size::Number ||
      outermost.by != block)
    return "the sum runs over a loop with a different split";
  std::vector<Id> reduced, lane, axes;  // digits inside a block: of the elements, of the lanes, and other digits
  for (std::size_t k = 1; k < around.size(); ++k) {
    const Id digit = p.lines[around[k]].at;
    if (is_within(p, digit, of.reduced[0])) reduced.push_back(digit);
    else if (std::ranges::find(of.axes, digit) == of.axes.end()) return "another loop is inside the loop of the sum";
    else axes.push_back(digit);
  }
  if (of.order == Lanes) {
    for (std::int64_t count = 1; count < lanes && reduced.size() > 1; reduced.pop_back()) {
      lane.insert(lane.begin(), reduced.back());
      count *= iterations_known(p, reduced.back()).value_or(lanes);
    }
  } else if (reduced.size() != (of.order == Rows ? 2 : 1)) {
    return "the sum runs over a loop with a different split";
  }

  const Id block_loop = around[0], inner_loop = around[1], statement = p.lines[added].of;
  Accumulator& tree = p.accumulators[accumulator];
  tree.part = Accumulator::Part::Tree;
  tree.reduced = {p.lines[block_loop].at};
  tree.is_product = false;
  if (of.order == Rows) {
    const Id eight_loop = around[2];
    const Id sum = new_sum(p, accumulator, Accumulator::Part::Block, {reduced[0]}, axes, false),
             group = new_sum(p, accumulator, Accumulator::Part::Eight, {reduced[1]}, axes, false);
    p.lines[added].at = group;
    add_after(p, inner_loop, Code::Result, sum, accumulator, axes, statement);
    add_after(p, eight_loop, Code::Result, group, sum, axes, statement);
    start(p, eight_loop, group, statement);
    start(p, inner_loop, sum, statement);
  } else {
    std::vector<Id> elements = axes;
    elements.insert(elements.end(), lane.begin(), lane.end());
    const Id sum = new_sum(p, accumulator, Accumulator::Part::Block, reduced, std::move(elements), of.is_product);
    p.lines[added].at = sum;
    add_after(p, inner_loop, of.order == Lanes ? Code::Halve : Code::Result, sum, accumulator, axes, statement);
    start(p, inner_loop, sum, statement);
  }
  return verified(std::move(p));
}

Transformed bind(const Program& program, Id loop, Bind how, std::uint16_t lanes) {
  if (!is_loop(program, loop)) return no_loop(loop);
  if (how == Bind::Vector)
    for (Id i = loop + 1; i < program.lines[loop].end; ++i)
      if (program.lines[i].code == Code::Loop && program.lines[i].bind != Bind::Unrolled && program.lines[i].bind != Bind::Serial)
        return "a vector loop may contain only serial and unrolled loops";
  if (how != Bind::Unrolled && how != Bind::Serial)
    for (Id i = 0; i < loop; ++i)
      if (program.lines[i].code == Code::Loop && program.lines[i].end > loop && program.lines[i].bind == Bind::Vector)
        return "a vector loop may contain only serial and unrolled loops";
  Program p = program;
  p.lines[loop].bind = how;
  p.lines[loop].count = how == Bind::Vector ? lanes : 0;
  p.lines[loop].peeled &= how == Bind::Vector;
  return verified(std::move(p));
}

Transformed peel(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  const Digit& digit = program.digits[program.lines[loop].at];
  if (program.lines[loop].bind == Bind::Serial && (digit.kind != Digit::Kind::Outer || digit.size != Digit::Size::Number))
    return "all iterations of the loop have the same length";
  if (program.lines[loop].bind != Bind::Vector && program.lines[loop].bind != Bind::Serial)
    return "the loop is neither a vector loop nor a serial loop";
  if (program.lines[loop].padded) return "a padded loop cannot have a shorter vector";
  Program p = program;
  p.lines[loop].peeled = true;
  return verified(std::move(p));
}

Transformed stream(const Program& program, Id line) {
  if (line >= program.lines.size() || program.lines[line].code != Code::Store) return fmt::format("line {} is not a store", line);
  Program p = program;
  p.lines[line].streamed = true;
  return verified(std::move(p));
}

Transformed pad(const Program& program, Id loop) {
  if (!is_loop(program, loop)) return no_loop(loop);
  Id part = program.lines[loop].at;
  while (part != kNone && program.digits[part].kind != Digit::Kind::Inner) part = program.digits[part].parent;
  if (part == kNone) return "the loop is not inside the inner part of a split loop";
  Program p = program;
  p.lines[loop].padded = true;
  return verified(std::move(p));
}

}  // namespace onepass::compiler::loops
