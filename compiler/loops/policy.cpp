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
    if (!next) throw InternalError("loops: a nest cannot be arranged: " + next.why_not() + "\n" + p_.nest.key());
    p_ = std::move(next).take();
  }
  Id loop(Id digit) const {
    for (Id i = 0; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError("loops: a loop is missing");
  }

 private:
  Program p_;
};

bool is_elementwise(const Nest& nest, const Schedule& schedule) {
  return nest.kind == NestKind::Map && nest.serial == 0 && !nest.has(Statement::Kind::Scan) && !nest.short_rows &&
         schedule.packed.empty() && schedule.parts.empty() && schedule.rolled.count == 0;
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

}  // namespace

Program elementwise(const Nest& nest, const Schedule& schedule) {
  Arranged a(lower(nest));
  a(split(a.program(), a.loop(nest.vector_loop()), Digit::Size::Tile));
  const Id elements = static_cast<Id>(a.program().digits.size() - 1), tiles = elements - 1;
  for (Id l = 0; l < nest.outer; ++l) {  // what does not vary along the vector loop is computed once a task
    a(sink(a.program(), a.loop(l)));
    a(bind(a.program(), a.loop(l), Bind::Parallel));
  }
  a(bind(a.program(), a.loop(tiles), Bind::Parallel));
  a(bind(a.program(), a.loop(elements), Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
  if (!schedule.masked) a(peel(a.program(), a.loop(elements)));
  for (const Id access : schedule.streamed)
    for (Id i = 0; i < a.program().lines.size(); ++i)
      if (a.program().lines[i].code == Code::Store && a.program().lines[i].at == access) a(stream(a.program(), i));
  if (nest.slots.size() > SpreadSlots::kFew) {  // more than registers hold
    std::vector<Id> slots;
    for (Id i = 0; i < a.loop(elements); ++i)
      if (a.program().lines[i].code == Code::Slot) slots.push_back(i);
    a(remake(a.program(), a.loop(elements), slots));
  }
  if (!schedule.streamed.empty() && nest.outer > 0) {
    constexpr std::uint8_t kAhead = 8;
    std::vector<Id> asked;
    for (Id i = 0; i < a.program().lines.size(); ++i) {
      const Line& l = a.program().lines[i];
      if (l.code != Code::Load || !reads_rows_at_places(nest, l) || std::ranges::find(asked, l.at) != asked.end()) continue;
      asked.push_back(l.at);
      a(prefetch(a.program(), i, a.loop(nest.vector_loop() - 1), kAhead, a.loop(elements)));
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
