// verify: see program.h. One pass over the lines with a stack of the open loops; what depends on lengths is plan verification's
// (compiler/plan/verify_plan.h).
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "compiler/loops/program.h"

namespace onepass::compiler::loops {

namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : p_(program),
        nest_(program.nest),
        block_end_(program.lines.size(), 0),
        stores_(program.nest.body.size(), 0),
        state_(program.accumulators.size()) {
    if (nest_.has_columns()) after_rows_ = nest_.behind_columns();
  }

  std::string run() {
    if (nest_.loops() > 64) return "more than 64 loops";
    for (Id i = 0; i < p_.lines.size(); ++i) {
      leave(i);
      check(i, p_.lines[i]);
      if (!problem_.empty()) return fmt::format("line {}: {}", i, problem_);
      block_end_[i] = open_.empty() ? static_cast<Id>(p_.lines.size()) : p_.lines[open_.back()].end;
      if (p_.lines[i].code == Code::Loop) enter(i);
    }
    leave(static_cast<Id>(p_.lines.size()));
    for (std::size_t a = 0; a < state_.size(); ++a)
      if (!state_[a].is_added_to) return fmt::format("nothing is added to accumulator a{}", a);
    for (Id i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Store && stores_[i] != 1)
        return fmt::format("{} lines store what statement {} stores", stores_[i], i);
    return problem_;
  }

 private:
  struct State {  // of an accumulator
    std::optional<Id> start;
    Id start_end = 0;  // the end of the block in which it was started
    std::uint64_t start_loops = 0;
    bool is_added_to = false;
    std::vector<Id> inside;  // Loop lines around the last line that added to it
  };
  const Program& p_;
  const Nest& nest_;
  std::vector<Id> block_end_;          // by line: the end of the block that it stands in
  std::vector<std::uint32_t> stores_;  // by statement: lines
  std::vector<bool> after_rows_;       // by statement: it needs a sum over all rows; empty: none does
  std::vector<State> state_;
  std::vector<Id> open_;     // Loop lines
  std::uint64_t loops_ = 0;  // of these
  std::string problem_;

  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  static std::uint64_t bit(Id loop) { return std::uint64_t{1} << loop; }
  std::uint64_t mask(const std::vector<Id>& loops) const {
    std::uint64_t all = 0;
    for (const Id l : loops) all |= l < 64 ? bit(l) : 0;
    return all;
  }

  void leave(Id next) {
    while (!open_.empty() && p_.lines[open_.back()].end <= next) {
      if (p_.lines[open_.back()].end < next) fail("a loop's body ends inside another one's");
      loops_ &= ~bit(p_.lines[open_.back()].at);
      open_.pop_back();
    }
  }
  void enter(Id i) {
    const Line& l = p_.lines[i];
    open_.push_back(i);
    loops_ |= bit(l.at);
  }

  // The operand is visible: its block is this one or one around it.
  void operand(Id line, Id o) {
    if (o == kNone) return;
    if (o >= line) return fail(fmt::format("reads line {}, which comes later", o));
    if (block_end_[o] <= line) return fail(fmt::format("reads line {}, whose loop has ended", o));
    switch (p_.lines[o].code) {
      case Code::Loop:
      case Code::Start:
      case Code::Store:
      case Code::AddTo:
      case Code::Accumulate: return fail(fmt::format("reads line {}, which has no value", o));
      default: return;
    }
  }
  void wants(bool is_there, const char* what) {
    if (!is_there) fail(what);
  }

  // ---- what a line depends on

  std::uint64_t loops_of_map(Id linear) {
    std::uint64_t all = 0;
    const std::vector<Coefficient>& of = nest_.linears[linear].of;
    for (Id v = 0; v < of.size(); ++v) {
      if (of[v] == Coefficient::Zero) continue;
      if (v < nest_.loops()) all |= bit(v);
      else if (const Derived& d = nest_.derived[v - nest_.loops()]; d.place == Derived::kNone) all |= loops_of_map(d.linear);
      else if (!has_value(d.place)) fail(fmt::format("depends on the place s{}, which is not known here", d.place));
    }
    return all;
  }
  // Some line of the statement is visible.
  bool has_value(Id statement) const {
    const Id here = static_cast<Id>(at_);
    for (Id i = here; i-- > 0;)
      if (p_.lines[i].of == statement && block_end_[i] > here) return true;
    return false;
  }
  void map(Id linear) {
    if (linear >= nest_.linears.size()) return fail("names an affine map that does not exist");
    if (loops_of_map(linear) & ~loops_) fail("stands outside a loop that it depends on");
  }
  void access(const Line& l) {
    if (l.at >= nest_.accesses.size()) return fail("names an access that does not exist");
    const Access& a = nest_.accesses[l.at];
    map(a.linear);
    if (a.table != Access::kNone) map(a.table);
    if ((l.code == Code::Load) == nest_.buffers[a.buffer].written) fail(l.code == Code::Load ? "reads a result" : "writes an argument");
  }
  std::uint64_t tasks() const {  // the loops that tasks share
    std::uint64_t all = 0;
    for (Id l = 0; l < nest_.outer; ++l) all |= bit(l);
    return all;
  }

  std::size_t at_ = 0;

  void check(Id i, const Line& l) {
    at_ = i;
    for (const Id o : {l.a, l.b, l.c}) operand(i, o);
    operand(i, l.guard);
    if (l.guard != kNone && l.guard < i && p_.lines[l.guard].code != Code::Guard) fail("is guarded by what is no guard");
    switch (l.code) {
      case Code::Loop:
        if (l.at >= nest_.loops()) return fail("is a loop that the nest does not have");
        if (loops_ & bit(l.at)) return fail(fmt::format("opens loop i{} inside itself", l.at));
        if (l.end <= i || l.end > p_.lines.size() || (!open_.empty() && l.end > p_.lines[open_.back()].end))
          fail("a loop ends outside its block");
        return;
      case Code::Load: return access(l);
      case Code::Store:
      case Code::AddTo: wants(l.a != kNone, "stores nothing"); return store(l);
      case Code::Index: return map(l.at);
      case Code::Slot: return wants(l.at < nest_.slots.size(), "names a scalar parameter that does not exist");
      case Code::Constant: return;
      case Code::Op: return wants(l.a != kNone && ir::is_elementwise(l.op), "is no operator on values");
      case Code::Guard:
        if (l.at + l.count > nest_.checks.size()) return fail("names a check that does not exist");
        for (Id c = l.at; c < l.at + l.count; ++c) map(nest_.checks[c].linear);
        return;
      case Code::Place: return wants(l.a != kNone && l.at < nest_.checks.size(), "is a place of nothing");
      default: break;
    }
    if (l.at >= state_.size()) return fail("names an accumulator that does not exist");
    const Accumulator& a = p_.accumulators[l.at];
    State& s = state_[l.at];
    if (l.code == Code::Start) return start(i, a, s);
    if (!s.start || s.start_end <= i) return fail(fmt::format("a{} is not started here", l.at));
    if (l.code == Code::Result) return result(i, l, a, s);
    wants(l.a != kNone && (l.b != kNone) == a.is_product, "adds another number of operands");
    // Every reduced loop and every axis is open, and was opened behind the start; no other one was.
    const std::uint64_t wanted = mask(a.reduced) | mask(a.axes), since = loops_ & ~s.start_loops;
    if (since != wanted) return fail(fmt::format("adds to a{} in other loops than its reduced ones and its axes", l.at));
    // In the order that r counts: the reduced loops one inside the other, as they are listed.
    std::vector<Id> order;
    for (const Id o : open_)
      if (const Id loop = p_.lines[o].at; !(s.start_loops & bit(loop)) && (mask(a.reduced) & bit(loop))) order.push_back(loop);
    if (order != a.reduced && a.order != Accumulator::Order::Any) return fail(fmt::format("adds to a{} in another order", l.at));
    if (l.code == Code::Scan && a.order != Accumulator::Order::Scan) return fail("scans what is no scan");
    if (l.code == Code::Accumulate && s.is_added_to) return fail(fmt::format("adds to a{} a second time", l.at));
    s.is_added_to = true;
    s.inside.clear();
    for (const Id o : open_)
      if (mask(a.reduced) & bit(p_.lines[o].at)) s.inside.push_back(o);
  }

  void start(Id i, const Accumulator& a, State& s) {
    if (s.start && s.start_end > i) return fail("is started twice");
    const std::uint64_t wanted = mask(a.reduced) | mask(a.axes);
    if (loops_ & wanted) return fail("is started inside a loop that it sums over");
    if (a.reduced.empty() || a.runs > a.reduced.size()) return fail("sums over nothing");
    const bool is_column = !a.axes.empty();
    if (!is_column && (tasks() & ~loops_ & ~mask(a.reduced)) != 0) return fail("is carried from one task to another");
    s = {.start = i, .start_end = open_.empty() ? static_cast<Id>(p_.lines.size()) : p_.lines[open_.back()].end, .start_loops = loops_};
  }

  void result(Id i, const Line& l, const Accumulator& a, const State& s) {
    if (a.order == Accumulator::Order::Scan) return fail("a scan has no result but its values");
    if (!s.is_added_to) return fail(fmt::format("reads a{}, to which nothing was added", l.at));
    for (const Id loop : s.inside)
      if (p_.lines[loop].end > i) return fail(fmt::format("reads a{} inside a loop that adds to it", l.at));
    if ((loops_ & ~s.start_loops) != mask(a.axes)) fail(fmt::format("reads a{} in other loops than its axes", l.at));
  }

  // Each element is stored once (how often, plan verification shows from the maps; here: not once for every iteration of a reduced loop).
  void store(const Line& l) {
    access(l);
    if (l.of >= stores_.size() || nest_.body[l.of].kind != Statement::Kind::Store || nest_.body[l.of].at != l.at)
      fail("stores what no statement stores");
    if (!problem_.empty()) return;
    ++stores_[l.of];
    const std::uint64_t around = !after_rows_.empty() && after_rows_[l.of] ? 0 : tasks();
    if ((loops_ & tasks()) != around) return fail("stores in other tasks than it should");
    if (l.code == Code::AddTo) return;
    const Access& a = nest_.accesses[l.at];
    std::uint64_t named = loops_of_map(a.linear);
    if (a.table != Access::kNone) named |= loops_of_map(a.table);
    if (nest_.reduced_mask() & loops_ & ~named) fail("stores the same element in every iteration of a reduced loop");
  }
};

}  // namespace

std::string verify(const Program& program) { return Verifier(program).run(); }

}  // namespace onepass::compiler::loops
