// See policy.h.
#include "compiler/loops/policy.h"

#include <algorithm>
#include <utility>

#include "compiler/loops/contract.h"
#include "compiler/loops/transform.h"
#include "compiler/plan/scratch.h"
#include "onepass/error.h"

namespace onepass::compiler::loops {

namespace {

// A program under construction: each step asks one transformation, all of which are legal here.
class Arranged {
 public:
  explicit Arranged(Program program) : p_(std::move(program)) {}
  const Program& program() const { return p_; }
  Program take() { return std::move(p_); }
  void operator()(Transformed next) {
    if (!next) throw InternalError("loops: a nest cannot be arranged: " + next.why_not());
    p_ = std::move(next).take();
  }
  /// The first loop over a digit, from a line on.
  Id loop(Id digit, Id from = 0) const {
    for (Id i = from; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError("loops: a loop is missing");
  }
  Id last_loop(Id digit) const {
    for (Id i = static_cast<Id>(p_.lines.size()); i-- > 0;)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError("loops: a loop is missing");
  }
  /// The loop over a digit before line `before`, or none.
  Id previous_loop(Id digit, Id before) const {
    while (before-- > 0)
      if (p_.lines[before].code == Code::Loop && p_.lines[before].at == digit) return before;
    return kNone;
  }
  /// Is the line in no loop that ends before line `at`?
  bool is_outside(Id line, Id at) const {
    for (Id i = 0; i < line; ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].end > line && p_.lines[i].end <= at) return false;
    return true;
  }
  /// Splits the loop over a digit; its outer part.
  template <class By> Id split(Id digit, By by, Id from = 0) {
    (*this)(loops::split(p_, loop(digit, from), by));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  /// Where the memory that was made last begins.
  Id last_memory() const {
    Id line = 0;
    while (p_.lines[line].code != Code::Hold || p_.lines[line].at + 1 != p_.memories.size()) ++line;
    return line;
  }

 private:
  Program p_;
};

bool is_elementwise(const Nest& nest, const Schedule& schedule) {
  return nest.kind == NestKind::Map && nest.serial == 0 && !nest.has(Statement::Kind::Scan) && !nest.short_rows &&
         schedule.rolled.count == 0;
}

bool is_derived(const Nest& nest, Id linear) {
  const std::vector<Coefficient>& of = nest.linears[linear].of;
  return std::any_of(of.begin() + nest.loops(), of.end(), [](Coefficient c) { return c != Coefficient::Zero; });
}

// The hardware does not see coming the rows that data choose. So while one row is copied, one that a later index means is asked for, where
// traffic is above the last-level cache. The index's own load must follow the loop over rows, and nothing else.
bool reads_rows_at_places(const Nest& nest, const Line& load) {
  const Id row = nest.vector_loop() - 1, along = nest.vector_loop();
  const Access& access = nest.accesses[load.at];
  const std::vector<Coefficient>& of = nest.linears[access.linear].of;
  if (access.table != Access::kNone || of[along] != Coefficient::One) return false;
  bool is_one = false;
  for (Id q = 0; q < nest.derived.size(); ++q) {
    if (of[nest.loops() + q] == Coefficient::Zero) continue;
    if (nest.derived[q].place == Derived::kNone) return false;
    const Statement& place = nest.body[nest.derived[q].place];
    if (place.kind != Statement::Kind::Place || (place.loops >> along & 1) || is_one) return false;
    const Statement& index = nest.body[place.a];
    if (index.kind != Statement::Kind::Load || index.guard != Statement::kNone) return false;
    const Access& indices = nest.accesses[index.at];
    const std::vector<Coefficient>& by = nest.linears[indices.linear].of;
    if (indices.table != Access::kNone || is_derived(nest, indices.linear) || by[row] == Coefficient::Zero ||
        by[along] != Coefficient::Zero)
      return false;
    is_one = true;
  }
  return is_one;
}

// A body of more instructions than are quickly fetched: each part is a loop of its own over a block of elements, which keeps what later parts
// read. The digit of its elements.
Id in_parts(Arranged& a, Id elements, const Schedule& schedule) {
  const Id digit = a.split(elements, kPartBlock) + 1;
  a(in_order(a.program(), a.last_loop(digit)));
  for (const Id cut : schedule.parts) {
    const Id loop = a.last_loop(digit);
    Id at = loop + 1;
    while (at < a.program().lines[loop].end && a.program().lines[at].of < cut) ++at;
    if (Transformed two = fission(a.program(), loop, at, true)) a(std::move(two));
  }
  return digit;
}

// What the load at this line reads lies along the last outer loop: a task's part of it is copied beforehand, squares being turned in
// registers.
void pack(Arranged& a, Id line, Id rows, Id elements, Id tiles, const Schedule& schedule) {
  const Nest& nest = a.program().nest;
  const Id access = a.program().lines[line].at;
  const std::int64_t side = ScratchLayout::packed_side(nest, schedule, access);
  const Id u = a.program().digits[rows].root, v = a.program().digits[elements].root;
  a(stage(a.program(), line, a.last_loop(rows)));
  const Id at = a.last_memory();
  // squares that lie side by side in memory follow one another
  const Id row_squares = a.split(rows, side, at), across = row_squares + 1;
  const Id squares = a.split(elements, side, at), along = squares + 1;
  for (const Id loop : {across, across, row_squares}) a(interchange(a.program(), a.loop(loop, at)));
  a(pad(a.program(), a.loop(along, at)));
  a(pad(a.program(), a.loop(across, at)));
  a(bind(a.program(), a.loop(across, at), Bind::Unrolled));
  a(bind(a.program(), a.loop(along, at), Bind::Vector, static_cast<std::uint16_t>(side)));
  a(lay_out(a.program(), a.program().lines[at].at,
            {{u, Digit::Kind::Whole, side}, {v, Digit::Kind::Whole, ScratchLayout::packed_row(nest, schedule, access)}}));
  if (schedule.masked) return;
  for (Id i = at; i < a.program().lines.size(); ++i)
    if (a.program().lines[i].code == Code::Load) return a(prefetch(a.program(), i, a.loop(tiles), 1, kNone, true));
}

}  // namespace

Program elementwise(const Nest& nest, const Schedule& schedule) {
  Arranged a(lower(nest));
  const Id v = nest.vector_loop();
  std::vector<Id> tasks;
  for (Id l = 0; l < nest.outer; ++l) tasks.push_back(l);
  const Id tiles = a.split(v, Digit::Size::Tile), elements = tiles + 1;
  Id rows = kNone;  // of the last outer loop in a task, where operands are packed
  if (!schedule.packed.empty()) {
    tasks.back() = a.split(nest.outer - 1u, Digit::Size::TileOuter), rows = tasks.back() + 1;
    a(sink(a.program(), a.loop(rows)));
    a(interchange(a.program(), a.loop(rows)));
  }
  for (const Id loop : tasks) {  // what does not vary along the vector loop is computed once a task
    a(sink(a.program(), a.loop(loop)));
    a(bind(a.program(), a.loop(loop), Bind::Parallel));
  }
  a(bind(a.program(), a.loop(tiles), Bind::Parallel));
  for (const Id access : schedule.packed)
    for (Id i = a.loop(elements); i < a.program().lines.size(); ++i)
      if (a.program().lines[i].code == Code::Load && a.program().lines[i].at == access) {
        pack(a, i, rows, elements, tiles, schedule);
        i = a.last_loop(elements);
      }
  Id body = a.last_loop(elements);
  const Id digit = schedule.parts.empty() ? elements : in_parts(a, elements, schedule);
  for (Id i = body; i < a.program().lines.size(); ++i) {
    if (a.program().lines[i].code != Code::Loop || a.program().lines[i].at != digit) continue;
    body = i;
    a(bind(a.program(), i, Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
    if (!schedule.masked) a(peel(a.program(), i));
  }
  for (const Id access : schedule.streamed)
    for (Id i = 0; i < a.program().lines.size(); ++i)
      if (a.program().lines[i].code == Code::Store && a.program().lines[i].at == access) a(stream(a.program(), i));
  for (Id i = body; nest.slots.size() > SpreadSlots::kFew; i = a.previous_loop(digit, i)) {  // more than registers hold
    std::vector<Id> slots;
    for (Id k = 0; k < i; ++k)
      if (a.program().lines[k].code == Code::Slot && a.is_outside(k, i)) slots.push_back(k);
    a(remake(a.program(), i, slots));
    if (a.previous_loop(digit, i) == kNone) break;
  }
  if (rows != kNone && !schedule.masked)  // the hardware sees no stream in rows of a tile
    for (Id i = a.last_loop(elements); i < a.program().lines.size(); ++i)
      if (const Line& l = a.program().lines[i]; l.code == Code::Load &&
                                                nest.linears[nest.accesses[l.at].linear].of[v] == Coefficient::One &&
                                                nest.accesses[l.at].table == Access::kNone)
        a(prefetch(a.program(), i++, a.loop(tiles), 1, kNone, true));
  if (!schedule.streamed.empty() && nest.outer > 0 && rows == kNone) {
    constexpr std::uint8_t kAhead = 8;
    std::vector<Id> asked;
    for (Id i = 0; i < a.program().lines.size(); ++i) {
      const Line& l = a.program().lines[i];
      if (l.code != Code::Load || !reads_rows_at_places(nest, l) || std::ranges::find(asked, l.at) != asked.end()) continue;
      asked.push_back(l.at);
      a(prefetch(a.program(), i, a.loop(v - 1), kAhead, a.loop(elements)));
      ++i;
    }
  }
  return a.take();
}

bool has_program(const Nest& nest, const Schedule& schedule) { return schedule.tile.rows > 0 || is_elementwise(nest, schedule); }

Program program_of(const Nest& nest, const Schedule& schedule) {
  if (schedule.tile.rows > 0) return contract(nest, schedule.tile);
  return is_elementwise(nest, schedule) ? elementwise(nest, schedule) : lower(nest);
}

}  // namespace onepass::compiler::loops
