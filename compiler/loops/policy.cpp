// See policy.h.
#include "compiler/loops/policy.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/loops/contract.h"
#include "compiler/loops/transform.h"
#include "compiler/plan/costs.h"
#include "compiler/plan/scratch.h"
#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler::loops {

namespace {

// A program under construction. Each step applies one transformation; all steps are legal here.
class Arranged {
 public:
  explicit Arranged(Program program) : p_(std::move(program)) {}
  const Program& program() const { return p_; }
  Program take() { return std::move(p_); }
  void operator()(Transformed next) {
    if (!next) throw InternalError("loops: a nest cannot be scheduled: " + next.why_not());
    p_ = std::move(next).take();
  }
  /// Returns the first loop over a digit, from line `from` on. Throws InternalError if there is none.
  Id loop(Id digit, Id from = 0) const {
    const Id line = find_loop(digit, from);
    if (line == kNone) throw InternalError("loops: a loop is missing");
    return line;
  }
  Id find_loop(Id digit, Id from = 0) const {  // kNone if there is none
    for (Id i = from; i < p_.lines.size(); ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    return kNone;
  }
  /// Returns the loop over `digit` around a line.
  Id loop_around(Id line, Id digit) const {
    for (Id i = line; i-- > 0;)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit && p_.lines[i].end > line) return i;
    throw InternalError("loops: a loop is missing");
  }
  Id last_loop(Id digit) const {
    for (Id i = static_cast<Id>(p_.lines.size()); i-- > 0;)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].at == digit) return i;
    throw InternalError("loops: a loop is missing");
  }
  /// Returns the last loop over a digit before line `before`, or kNone.
  Id previous_loop(Id digit, Id before) const {
    while (before-- > 0)
      if (p_.lines[before].code == Code::Loop && p_.lines[before].at == digit) return before;
    return kNone;
  }
  /// True if every loop around the line includes line `at` or ends after it.
  bool is_outside(Id line, Id at) const {
    for (Id i = 0; i < line; ++i)
      if (p_.lines[i].code == Code::Loop && p_.lines[i].end > line && p_.lines[i].end <= at) return false;
    return true;
  }
  /// Splits the loop over a digit and returns the outer digit.
  template <class By> Id split(Id digit, By by, Id from = 0) {
    (*this)(loops::split(p_, loop(digit, from), by));
    return static_cast<Id>(p_.digits.size() - 2);
  }
  /// Returns the Hold line of the newest memory.
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

// True if the load reads rows at checked indices, which the hardware cannot predict. While one row is copied, the row of a later index is
// then prefetched, if the traffic exceeds the second-level cache. The index load must vary only along the loop over rows.
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

// Fissions a body with more instructions than are fetched fast. Each fissioned loop runs over a block of elements and stores the values
// that later loops read. Returns the digit of the elements of a block.
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

void stream_stores(Arranged& a, const Schedule& schedule) {
  for (const Id access : schedule.streamed)
    for (Id i = 0; i < a.program().lines.size(); ++i)
      if (a.program().lines[i].code == Code::Store && a.program().lines[i].at == access) a(stream(a.program(), i));
}

// Packs the operand of the load at `line`, which is contiguous along the last outer loop. The task's part of it is copied beforehand;
// squares are transposed in registers.
void pack(Arranged& a, Id line, Id rows, Id elements, Id tiles, const Schedule& schedule) {
  const Nest& nest = a.program().nest;
  const Id access = a.program().lines[line].at;
  const std::int64_t side = ScratchLayout::packed_side(nest, schedule, access);
  const Id u = a.program().digits[rows].root, v = a.program().digits[elements].root;
  a(stage(a.program(), line, a.last_loop(rows)));
  const Id at = a.last_memory();
  // Squares that are adjacent in memory come one after the other.
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
    if (a.program().lines[i].code == Code::Load) return a(prefetch(a.program(), i, a.loop(tiles), 1, kNone, Ahead::Second));
}

// Adds prefetches to the loads of the vector loop, half a page ahead. The hardware prefetches only up to the end of a page, and only for
// loads that follow closely. Prefetches are added if they cost little compared to the computation, or if much memory is read.
void read_ahead(Arranged& a, Id loop, bool reads_much) {
  constexpr std::size_t kBytes = 2048, kWork = 8;  // instructions per load
  const Nest& nest = a.program().nest;
  const Id v = nest.vector_loop();
  std::vector<Id> loads;
  std::size_t work = 0;
  for (Id i = loop + 1; i < a.program().lines[loop].end; ++i) {
    const Line& l = a.program().lines[i];
    if (l.code == Code::Op) work += static_cast<std::size_t>(instructions_of(l.op));
    if (l.code == Code::Load && nest.linears[nest.accesses[l.at].linear].of[v] == Coefficient::One &&
        nest.accesses[l.at].table == Access::kNone && !is_derived(nest, nest.accesses[l.at].linear))
      loads.push_back(i);
  }
  if (reads_much || work >= kWork * loads.size()) a(prefetch(a.program(), loads, loop, kBytes));
}

}  // namespace

Program elementwise(const Nest& nest, const Schedule& schedule) {
  Arranged a(lower(nest));
  const Id v = nest.vector_loop();
  std::vector<Id> tasks;
  for (Id l = 0; l < nest.outer; ++l) tasks.push_back(l);
  const Id tiles = a.split(v, Digit::Size::Tile), elements = tiles + 1;
  Id rows = kNone;  // iterations of the last outer loop in a task, for packed operands
  if (!schedule.packed.empty()) {
    tasks.back() = a.split(nest.outer - 1u, Digit::Size::TileOuter), rows = tasks.back() + 1;
    a(sink(a.program(), a.loop(rows)));
    a(interchange(a.program(), a.loop(rows)));
  }
  for (const Id loop : tasks) {  // values invariant in the vector loop are computed once per task
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
  stream_stores(a, schedule);
  for (Id i = body; nest.slots.size() > SpreadSlots::kFew; i = a.previous_loop(digit, i)) {  // more parameters than registers
    std::vector<Id> slots;
    for (Id k = 0; k < i; ++k)
      if (a.program().lines[k].code == Code::Slot && a.is_outside(k, i)) slots.push_back(k);
    a(remake(a.program(), i, slots));
    if (a.previous_loop(digit, i) == kNone) break;
  }
  if (rows == kNone && !schedule.masked && schedule.parts.empty()) read_ahead(a, a.last_loop(elements), schedule.asks_ahead);
  if (rows != kNone && !schedule.masked)  // the hardware does not detect streams in rows of a tile
    for (Id i = a.last_loop(elements); i < a.program().lines.size(); ++i)
      if (const Line& l = a.program().lines[i]; l.code == Code::Load &&
                                                nest.linears[nest.accesses[l.at].linear].of[v] == Coefficient::One &&
                                                nest.accesses[l.at].table == Access::kNone)
        a(prefetch(a.program(), i++, a.loop(tiles), 1, kNone, Ahead::Second));
  if (schedule.asks_ahead && nest.outer > 0 && rows == kNone) {
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

namespace {

// Puts the elements of a row into 64 lanes. If the body is short, the vectors of a step are unrolled. The orders of the sums are written
// out in these loops.
void reduce_in_lanes(Arranged& a, Id loop, const Schedule& schedule) {
  constexpr std::int64_t kLanes = 64, kWideLanes = 32;  // half of the lanes for 8-byte sums
  std::vector<Id> sums;                                 // sums with an order
  bool wide = false, narrow = false;
  int cost = 0;
  for (Id i = loop; i < a.program().lines[loop].end; ++i) {
    const Line& l = a.program().lines[i];
    if (l.code == Code::Op) cost += instructions_of(l.op);
    if (l.code != Code::Accumulate || a.program().accumulators[l.at].order == Accumulator::Order::Any) continue;
    sums.push_back(l.at);
    (l.dtype == DType::F64 ? wide : narrow) = true;
  }
  const std::int64_t at_once = wide && !narrow ? kWideLanes : kLanes;
  // The registers of all lanes are in use at once: four of 64 bytes, of which there are 32, or eight of 32 bytes, of which there are 16.
  const int short_body = schedule.vector_bytes >= 64 ? 16 : 8;
  const bool unrolled = !schedule.masked && cost <= (kLanes / schedule.width <= 2 ? 48 : short_body);
  Id elements = a.program().lines[loop].at;
  if (!sums.empty()) {
    const Id blocks = a.split(elements, ir::kLaneBlock, loop);
    if (schedule.one_block) a(once(a.program(), a.loop(blocks, loop)));
    elements = blocks + 1;
  }
  const Id steps = a.split(elements, at_once, loop);
  elements = steps + 1;
  for (const std::int64_t by : {wide ? kWideLanes : kLanes, std::int64_t{schedule.width}}) {
    const std::optional<std::int64_t> all = iterations_known(a.program(), elements);
    if (by >= *all) continue;
    const Id parts = a.split(elements, by, loop);
    elements = parts + 1;
    if (unrolled) a(bind(a.program(), a.loop(parts, loop), Bind::Unrolled));
  }
  for (const Id sum : sums) a(expand_order(a.program(), sum));
  if (!schedule.masked) a(peel(a.program(), a.loop(steps, loop)));
  a(bind(a.program(), a.loop(elements, loop), Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
}

// Unroll-and-jams rows that share loads: the vector loop processes several rows at once and loads shared elements once. A task runs as many
// iterations of the next outer loop as its tile size. Returns the digit of the jammed rows.
Id rows_abreast(Arranged& a, const Schedule& schedule) {
  const Nest& nest = a.program().nest;
  const Id last = nest.outer - 1u, v = nest.vector_loop();
  for (Id l = 0; l < last; ++l) a(sink(a.program(), a.loop(l)));
  const Id groups = a.split(last, schedule.abreast), row = groups + 1;
  for (Id l = 0; l + 1 < last; ++l) a(bind(a.program(), a.loop(l), Bind::Parallel));
  if (last > 0) {
    const Id tiles = a.split(last - 1, Digit::Size::TileRows);
    a(interchange(a.program(), a.loop(tiles + 1)));
    a(bind(a.program(), a.loop(tiles), Bind::Parallel));
  }
  a(bind(a.program(), a.loop(groups), Bind::Parallel));
  if (schedule.masked) return row;  // one row after the other
  a(fission(a.program(), a.loop(row), a.program().lines[a.loop(v)].end));
  a(bind(a.program(), a.last_loop(row), Bind::Unrolled));
  a(sink(a.program(), a.loop(row)));
  a(interchange(a.program(), a.loop(row)));
  a(bind(a.program(), a.loop(row), Bind::Unrolled));
  if (Transformed shared = lift(a.program(), a.loop(row))) a(std::move(shared));  // fails if each row has separate checked indices
  return row;
}

// Splits the last outer loop into groups of as many rows as a vector has lanes. A task is a group. Returns the digit of the rows.
Id rows_in_groups(Arranged& a, const Schedule& schedule) {
  const Nest& nest = a.program().nest;
  const Id last = nest.outer - 1u;
  for (Id l = 0; l < last; ++l) {
    a(sink(a.program(), a.loop(l)));
    a(bind(a.program(), a.loop(l), Bind::Parallel));
  }
  const Id groups = a.split(last, schedule.row_lanes);
  a(bind(a.program(), a.loop(groups), Bind::Parallel));
  return groups + 1;
}

// Puts short rows into the lanes of vectors: one vector for each element of a row, and no sums across lanes. Arrays whose rows are contiguous
// are read and written in squares, which are transposed in registers, in separate loops. All other loops over the elements stay loops, so the
// code is short.
Program rows_in_lanes(Arranged a, const Schedule& schedule) {
  constexpr std::int64_t kLanes = 64, kWideLanes = 32;  // of 8-byte sums
  const Nest& nest = a.program().nest;
  const Id v = nest.vector_loop(), last = nest.outer - 1u;
  const Id row = rows_in_groups(a, schedule);
  a(bind(a.program(), a.loop(row), Bind::Vector, static_cast<std::uint16_t>(schedule.row_lanes)));
  const auto is_turned = [&](Id access) {
    const std::vector<Coefficient>& of = nest.linears[nest.accesses[access].linear].of;
    return of[v] == Coefficient::One && of[last] != Coefficient::Zero && of[last] != Coefficient::One;
  };
  const std::vector<Memory::Part> layout = {{v, Digit::Kind::Whole, kMostInLanes}};
  for (Id i = 0; i < a.program().lines.size(); ++i) {
    const Line l = a.program().lines[i];
    if (l.code != Code::Load || !is_turned(l.at) || l.a != kNone || l.guard != kNone) continue;
    const auto memory = static_cast<Id>(a.program().memories.size());
    a(stage(a.program(), i, a.loop_around(i, v)));
    a(lay_out(a.program(), memory, layout));
    for (i = 0; a.program().lines[i].code != Code::Keep || a.program().lines[i].at != memory;) ++i;
    for (Id k = i; k < a.program().lines.size(); ++k)
      if (a.program().lines[k].code == Code::Load && a.program().lines[k].of == l.of) a(recall(a.program(), k, memory));
  }
  for (Id i = 0; i < a.program().lines.size(); ++i) {
    const Line l = a.program().lines[i];
    if (l.code != Code::Store || !is_turned(l.at)) continue;
    const auto memory = static_cast<Id>(a.program().memories.size());
    const Id loop = a.loop_around(i, v);
    a(defer(a.program(), i, loop));
    a(lay_out(a.program(), memory, layout));
    i = a.program().lines[loop + 1].end + 2;  // the deferred store
  }
  for (Id i = 0; i < a.program().lines.size(); ++i) {
    const Line l = a.program().lines[i];
    if (l.code != Code::Loop || l.at != v) continue;
    const Line &first = a.program().lines[i + 1], &second = a.program().lines[i + 2];
    if (l.end == i + 3 && ((first.code == Code::Load && second.code == Code::Keep && is_turned(first.at)) ||
                           (first.code == Code::Recall && second.code == Code::Store && is_turned(second.at)))) {
      const Id elements = a.split(v, std::min(schedule.row_lanes, 16), i) + 1;
      a(bind(a.program(), a.loop(elements, i), Bind::Unrolled));
      continue;
    }
    std::vector<Id> sums;  // sums with an order
    bool wide = false, narrow = false;
    for (Id k = i; k < l.end; ++k) {
      const Line& in = a.program().lines[k];
      if (in.code != Code::Accumulate || a.program().accumulators[in.at].order == Accumulator::Order::Any) continue;
      sums.push_back(in.at);
      (in.dtype == DType::F64 ? wide : narrow) = true;
    }
    if (sums.empty()) continue;
    Id elements = v;
    for (const std::int64_t by : {ir::kLaneBlock, narrow ? kLanes : kWideLanes, kWideLanes}) {
      if (by == iterations_known(a.program(), elements)) continue;
      if (by == kWideLanes && !wide) continue;
      const bool is_lane = narrow && by == kWideLanes;  // for the narrow sums
      const Id parts = a.split(elements, by, i);
      if (!is_lane) a(once(a.program(), a.loop(parts, i)));
      elements = parts + 1;
    }
    for (const Id sum : sums) a(expand_order(a.program(), sum));
  }
  stream_stores(a, schedule);
  return a.take();
}

// Splits rows that tasks share into chunks. Each sweep is a phase; its tasks are the chunks of a row. Every second phase runs backwards and
// starts with the elements that are still in the caches.
Program rows_in_chunks(Arranged a, const Schedule& schedule) {
  const Nest& nest = a.program().nest;
  const Id v = nest.vector_loop();
  for (Id l = 0; l + 1 < nest.outer; ++l) a(sink(a.program(), a.loop(l)));
  const auto adds_up = [&](Id loop) {
    return std::any_of(a.program().lines.begin() + loop, a.program().lines.begin() + a.program().lines[loop].end,
                       [](const Line& k) { return k.code == Code::Accumulate; });
  };
  for (int phase = 0;; ++phase) {
    Id loop = a.find_loop(v);
    if (loop == kNone) break;
    for (Id l = nest.outer; l-- > 0 && adds_up(loop);) {  // the lines after the loop are the next phase
      const Id around = a.loop_around(loop, l), inner = l + 1u == nest.outer ? loop : a.loop_around(loop, l + 1u);
      if (a.program().lines[inner].end < a.program().lines[around].end)
        a(fission(a.program(), around, a.program().lines[inner].end, false, true));
      loop = a.find_loop(v);
    }
    const bool has_sums = adds_up(loop);
    a(factor(a.program(), loop));
    const Id chunks = a.program().lines[loop].at, elements = chunks + 1;
    a(bind(a.program(), loop, Bind::Parallel));
    if (phase % 2 == 1) a(reverse(a.program(), loop));
    if (has_sums) {
      reduce_in_lanes(a, a.loop(elements), schedule);
      continue;
    }
    a(bind(a.program(), a.loop(elements), Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
    if (!schedule.masked) a(peel(a.program(), a.loop(elements)));
  }
  for (Id i = 0; i < a.program().lines.size(); ++i)
    if (a.program().lines[i].code == Code::Loop && a.program().lines[i].at < nest.outer) a(bind(a.program(), i, Bind::Parallel));
  stream_stores(a, schedule);
  return a.take();
}

// Prefetches the next row during the last sweep. Without this, memory is idle during that sweep, and the next row's first sweep waits for
// memory, because the hardware does not prefetch beyond a page. It is used if the traffic exceeds the second-level cache and both rows fit
// into the first-level cache.
void ask_for_next_row(Arranged& a, Id row, Id along) {
  const Nest& nest = a.program().nest;
  Id at = static_cast<Id>(a.program().lines.size());  // body of the last sweep
  while (a.program().lines[at - 1].code != Code::Loop) --at;
  if (a.program().lines[at - 1].bind != Bind::Vector) return;
  std::vector<bool> asked(nest.accesses.size(), false);
  for (Id i = 0; i < a.program().lines.size(); ++i) {
    const Line& l = a.program().lines[i];
    if (l.code != Code::Load || asked[l.at]) continue;
    const Id linear = nest.accesses[l.at].linear;
    const std::vector<Coefficient>& of = nest.linears[linear].of;
    if (of[along] != Coefficient::One || of[row] == Coefficient::Zero || nest.accesses[l.at].table != Access::kNone) continue;
    if (is_derived(nest, linear)) continue;  // the next row may be anywhere
    asked[l.at] = true;
    a(prefetch(a.program(), i, a.loop(row), 1, at, Ahead::Near));
    if (i >= at) ++i;
  }
}

}  // namespace

bool is_along_rows(const Nest& nest) { return nest.kind == NestKind::Lanes && nest.serial == 0 && !nest.has_columns(); }

Program along_rows(const Nest& nest, const Schedule& schedule) {
  Arranged a(lower(nest, schedule.finds));
  const Id v = nest.vector_loop();
  if (schedule.row_scratch)
    for (const std::uint32_t kept : schedule.kept)
      for (Id i = 0; i < a.program().lines.size(); ++i)
        if (a.program().lines[i].of == kept && a.program().lines[i].code == Code::Op) {
          const auto memory = static_cast<Id>(a.program().memories.size());
          a(hold(a.program(), i));
          a(lay_out(a.program(), memory, {{v, Digit::Kind::Whole, kShortRow}}));  // whole vectors
          break;
        }
  if (schedule.split) return rows_in_chunks(std::move(a), schedule);
  if (schedule.row_lanes > 0 && !schedule.masked) return rows_in_lanes(std::move(a), schedule);
  if (schedule.abreast > 1) {
    const Id row = rows_abreast(a, schedule);
    reduce_in_lanes(a, a.loop(v), schedule);
    for (Id i = 0; !schedule.masked && i < a.program().lines.size(); ++i)
      if (a.program().lines[i].code == Code::Loop && a.program().lines[i].at == row) a(bind(a.program(), i, Bind::Unrolled));
    return a.take();
  }
  if (schedule.row_lanes > 0) rows_in_groups(a, schedule);  // one row after the other
  for (Id l = 0; l < nest.outer && schedule.row_lanes == 0; ++l) {
    if (l + 1 < nest.outer) a(sink(a.program(), a.loop(l)));
    a(bind(a.program(), a.loop(l), Bind::Parallel));
  }
  for (Id i = 0; i < a.program().lines.size(); ++i) {
    const Line& l = a.program().lines[i];
    if (l.code != Code::Loop || l.at != v) continue;
    if (std::any_of(a.program().lines.begin() + i, a.program().lines.begin() + l.end,
                    [](const Line& k) { return k.code == Code::Accumulate; })) {
      reduce_in_lanes(a, i, schedule);
      continue;
    }
    a(bind(a.program(), i, Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
    if (!schedule.masked) a(peel(a.program(), i));
  }
  stream_stores(a, schedule);
  if (schedule.asks_ahead && !schedule.masked && nest.sweeps > 1 && nest.outer > 0) ask_for_next_row(a, v - 1, v);
  return a.take();
}

namespace {
// True if the access is contiguous along the reduced loop and apart along the vectors. Squares of it are then transposed in registers.
bool is_turned(const Nest& nest, Id access) {
  const std::vector<Coefficient>& of = nest.linears[nest.accesses[access].linear].of;
  return nest.serial == 1 && of[nest.outer] == Coefficient::One && of[nest.vector_loop()] == Coefficient::General &&
         !is_derived(nest, nest.accesses[access].linear) && nest.accesses[access].table == Access::kNone;
}

// True if the nest reduces short windows of an array that overlap: the vectors of neighboring windows read the same cache lines.
bool reduces_windows(const Nest& nest, const NestNumbers& numbers) {
  constexpr std::int64_t kMostElements = 32;
  const std::uint64_t reduced = nest.reduced_mask();
  std::int64_t elements = 1;
  for (std::uint32_t l = 0; l < nest.loops(); ++l)
    if (reduced >> l & 1) elements *= numbers.extents[l];
  const auto overlaps = [&](const Access& a) {
    const std::vector<std::int64_t>& of = numbers.coefficients[a.linear];
    for (std::uint32_t l = 0; l < nest.loops(); ++l)
      for (std::uint32_t k = 0; (reduced >> l & 1) && k < nest.loops(); ++k) {
        const std::int64_t inside = std::abs(of[l]), apart = std::abs(of[k]);
        if (!(reduced >> k & 1) && inside != 0 && inside <= apart && apart < inside * numbers.extents[l]) return true;
      }
    return false;
  };
  return elements <= kMostElements && std::ranges::any_of(nest.accesses, overlaps);
}
}  // namespace

bool can_reduce_inside(const Nest& nest, const NestNumbers& numbers) {
  constexpr int kMostByRow = 8;  // instructions for each row, which every vector repeats
  if (nest.kind != NestKind::Rows || nest.has_columns() || nest.runs > 0) return false;
  const bool are_windows = reduces_windows(nest, numbers);
  const std::uint64_t reduced = nest.reduced_mask(), vector = std::uint64_t{1} << nest.vector_loop();
  int by_row = 0;
  bool any_across = false, any_turned = false;  // loads that vary along both loops
  bool contracts = false, sums = false;
  for (const Statement& s : nest.body) {
    switch (s.kind) {
      case Statement::Kind::Load:
        if (s.guard != Statement::kNone && !are_windows) return false;
        if ((s.loops & reduced) && (s.loops & vector)) any_across = true, any_turned |= is_turned(nest, s.at);
        break;
      case Statement::Kind::Store:
        if (s.op == ir::Op::Add || s.guard != Statement::kNone || s.count > 1) return false;
        any_across |= (s.loops & reduced) != 0;
        break;
      case Statement::Kind::Reduce:
        if (ir::is_contraction(s.op)) {
          if (!are_windows) return false;
          contracts = true;
        } else if (accumulator_of(nest, static_cast<Id>(&s - nest.body.data())).order != Accumulator::Order::Any) {
          if (nest.serial != 1) return false;
          sums = true;
        }
        break;
      case Statement::Kind::Scan:
      case Statement::Kind::Place: return false;
      case Statement::Kind::Op:
        if ((s.loops & reduced) && !(s.loops & vector)) by_row += instructions_of(s.op);
        break;
      case Statement::Kind::Guard:
      case Statement::Kind::Index:
      case Statement::Kind::Slot:
      case Statement::Kind::Constant: break;
    }
  }
  return by_row <= kMostByRow && (any_turned || !any_across || are_windows) && !(contracts && sums);
}

int width_inside(const Nest& nest, const Target& target, std::int64_t columns) {
  const std::uint64_t reduced = nest.reduced_mask(), vector = std::uint64_t{1} << nest.vector_loop();
  std::vector<bool> is_read(nest.body.size(), false);  // in the reduced loop
  std::size_t live = 0, of_size[9] = {};               // bytes of a lane that stay in registers; instructions, by bytes of their type
  bool is_long = false, turns = false;  // turns: blocks of rows are transposed in registers, which takes many instructions per register
  for (std::size_t i = nest.body.size(); i-- > 0;) {
    const Statement& s = nest.body[i];
    const std::size_t size = size_of(s.dtype);
    const bool sums = s.kind == Statement::Kind::Reduce;
    if (sums || (s.loops & reduced))
      for (const std::uint32_t o : {s.a, s.b, s.c})
        if (o != Statement::kNone) is_read[o] = true;
    if (sums) live += 2 * size;
    else if (is_read[i] && (s.loops & vector) && !(s.loops & reduced)) live += size;
    if (s.kind == Statement::Kind::Load) turns |= (s.loops & reduced) && (s.loops & vector) && is_turned(nest, s.at);
    if (s.kind != Statement::Kind::Op || !(s.loops & vector)) continue;
    of_size[size] += static_cast<std::size_t>(instructions_of(s.op));
    is_long |= ir::info(s.op).kind == ir::OpKind::Expanded;
  }
  std::size_t usual = 4;  // bytes of the type of most instructions
  for (const std::size_t size : {1, 2, 8})
    if (of_size[size] > of_size[usual]) usual = size;
  const auto bytes = static_cast<std::size_t>(target.vector_bytes), registers = static_cast<std::size_t>(target.vector_registers() - 8);
  std::size_t lanes = bytes / usual;
  int times = is_long ? 1 : 2;
  if (turns) times = 0;
  for (; times > 0 && 2 * lanes * live <= registers * bytes && lanes < static_cast<std::size_t>(columns); --times) lanes *= 2;
  return static_cast<int>(std::min<std::size_t>(lanes, 64));
}

Program reduced_inside(const Nest& nest, const Schedule& schedule) {
  constexpr int kQuickRow = 32;  // most instructions for each row with which the rows of a group are unrolled
  Arranged a(lower(nest, schedule.finds));
  const Id v = nest.vector_loop(), reduced = nest.outer;
  const Id tiles = a.split(v, Digit::Size::Tile), elements = tiles + 1;
  for (Id l = 0; l < nest.outer; ++l) {
    a(sink(a.program(), a.loop(l)));
    a(bind(a.program(), a.loop(l), Bind::Parallel));
  }
  a(bind(a.program(), a.loop(tiles), Bind::Parallel));
  for (Id i = a.loop(elements) + 1; i < a.program().lines.size(); ++i) {
    const Line l = a.program().lines[i];
    if (l.code != Code::Loop || l.at != reduced) continue;
    std::vector<Id> sums;  // sums with an order, except contractions: these have one block
    int cost = 0;
    bool turns = false;
    for (Id k = i; k < l.end; ++k) {
      const Line& in = a.program().lines[k];
      if (in.code == Code::Op) cost += instructions_of(in.op);
      if (in.code == Code::Load || in.code == Code::Store) turns |= is_turned(nest, in.at);
      if (in.code != Code::Accumulate) continue;
      const Accumulator::Order order = a.program().accumulators[in.at].order;
      if (order != Accumulator::Order::Any && order != Accumulator::Order::Sequence) sums.push_back(in.at);
    }
    if (sums.empty() && !turns) continue;
    Id groups = reduced;
    if (!sums.empty()) {
      const Id blocks = a.split(groups, ir::kRowBlock, i);
      if (schedule.one_block) a(once(a.program(), a.loop(blocks, i)));
      groups = blocks + 1;
    }
    groups = a.split(groups, ir::kRowGroup, i);
    for (const Id sum : sums) a(expand_order(a.program(), sum));
    if (schedule.masked || (cost > kQuickRow && !turns)) continue;
    a(peel(a.program(), a.loop(groups, i)));
    a(bind(a.program(), a.loop(groups + 1, i), Bind::Unrolled));
  }
  a(bind(a.program(), a.loop(elements), Bind::Vector, static_cast<std::uint16_t>(schedule.width)));
  const bool has_guards = std::ranges::any_of(a.program().lines, [](const Line& l) { return l.code == Code::Guard; });
  if (has_guards && !schedule.masked) a(peel(a.program(), a.loop(elements)));
  return a.take();
}

std::int64_t scratch_bytes_inside(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers) {
  const std::int64_t rows = numbers.extents[nest.outer];
  std::int64_t bytes = 0;
  for (Id i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].kind != Statement::Kind::Reduce) continue;
    const Accumulator sum = accumulator_of(nest, i);
    const std::int64_t one = (schedule.width * static_cast<std::int64_t>(size_of(sum.dtype)) + 63) / 64 * 64;
    const std::int64_t levels =
        schedule.one_block ? 1 : std::bit_width(static_cast<std::uint64_t>((rows + ir::kRowBlock - 1) / ir::kRowBlock));
    bytes += sum.order == Accumulator::Order::Any ? one : (levels + 2) * one;
  }
  return bytes;
}

bool has_program(const Nest& nest, const Schedule& schedule) {
  return schedule.tile.rows > 0 || schedule.reduced_inside || is_elementwise(nest, schedule) || is_along_rows(nest);
}

Program program_of(const Nest& nest, const Schedule& schedule) {
  if (schedule.tile.rows > 0) return contract(nest, schedule.tile);
  if (schedule.reduced_inside) return reduced_inside(nest, schedule);
  if (is_along_rows(nest)) return along_rows(nest, schedule);
  return is_elementwise(nest, schedule) ? elementwise(nest, schedule) : lower(nest);
}

std::int64_t scratch_bytes_along_rows(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, std::int64_t chunk) {
  const std::int64_t n = schedule.split ? chunk : numbers.extents[nest.vector_loop()];
  const auto up = [](std::int64_t size, std::int64_t to) { return (size + to - 1) / to * to; };
  std::int64_t bytes = 0;
  if (schedule.row_lanes > 0) {  // at most a memory for each access and each value that is kept, and a vector for each element of a sum
    const auto in_lanes = [&](DType dtype, std::int64_t elements) {
      return up(elements * schedule.row_lanes * static_cast<std::int64_t>(size_of(dtype)), 64);
    };
    for (Id i = 0; i < nest.body.size(); ++i) {
      const Statement& s = nest.body[i];
      const DType dtype = s.kind == Statement::Kind::Store ? nest.body[s.a].dtype : s.dtype;
      if (s.kind == Statement::Kind::Reduce) bytes += in_lanes(dtype, 64) + in_lanes(dtype, 1);
      else if (s.kind == Statement::Kind::Load || s.kind == Statement::Kind::Store) bytes += in_lanes(dtype, kMostInLanes);
    }
    for (const std::uint32_t kept : schedule.kept) bytes += in_lanes(nest.body[kept].dtype, kShortRow);
  }
  if (schedule.row_scratch)
    for (const std::uint32_t kept : schedule.kept)
      bytes += up(up(n, kShortRow) * static_cast<std::int64_t>(size_of(nest.body[kept].dtype)), 64);
  for (Id i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].kind != Statement::Kind::Reduce) continue;
    const Accumulator sum = accumulator_of(nest, i);
    const auto size = static_cast<std::int64_t>(size_of(sum.dtype));
    const std::int64_t levels =
        schedule.one_block ? 1 : std::bit_width(static_cast<std::uint64_t>((n + ir::kLaneBlock - 1) / ir::kLaneBlock));
    bytes += sum.order == Accumulator::Order::Any
                 ? 64
                 : up(levels * size * schedule.abreast, 64) + (sum.dtype == DType::F64 ? 32 : 64) * size * schedule.abreast;
  }
  return bytes;
}

}  // namespace onepass::compiler::loops
