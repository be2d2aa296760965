// verify: see program.h. Makes one pass over the lines with a stack of the open loops. Properties that depend on lengths belong to
// compiler/plan/verify_plan.h.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "compiler/loops/program.h"
#include "ir/order.h"

namespace onepass::compiler::loops {

namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : p_(program),
        nest_(program.nest),
        block_end_(program.lines.size(), 0),
        stores_(program.nest.body.size(), 0),
        state_(program.accumulators.size()),
        memory_(program.memories.size()) {
    if (nest_.has_columns()) after_rows_ = nest_.behind_columns();
  }

  std::string run() {
    if (nest_.loops() > 64) return "more than 64 loops";
    digits();
    for (Id i = 0; i < p_.lines.size() && problem_.empty(); ++i) {
      leave(i);
      line_ = i;
      check(p_.lines[i]);
      if (!problem_.empty()) return fmt::format("line {}: {}", i, problem_);
      block_end_[i] = block_end();
      if (p_.lines[i].code == Code::Loop) enter(i);
    }
    leave(static_cast<Id>(p_.lines.size()));
    for (std::size_t a = 0; a < state_.size(); ++a)
      if (!state_[a].is_added_to) fail(fmt::format("nothing is added to accumulator a{}", a));
    for (Id i = 0; i < p_.lines.size() && problem_.empty(); ++i) {  // parts of sums must be added to coarser sums
      const Line& l = p_.lines[i];
      if ((l.code != Code::Result && l.code != Code::Halve) || !is_part(p_.accumulators[l.at])) continue;
      Id uses = 0;
      for (const Line& u : p_.lines) uses += (u.a == i) + (u.b == i) + (u.c == i) + (u.guard == i);
      if (uses != 1 || std::ranges::find(parts_added_, i) == parts_added_.end())
        fail(fmt::format("line {} is a partial sum that is not used", i));
    }
    for (Id i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].kind == Statement::Kind::Store && stores_[i] != 1)
        fail(fmt::format("{} lines store the result of statement {}", stores_[i], i));
    return problem_;
  }

 private:
  struct State {  // state of an accumulator
    std::optional<Id> start;
    Id of = kNone;     // the statement that it sums, completely or in part
    Id start_end = 0;  // end of the block in which it was started
    std::size_t start_depth = 0;
    bool is_added_to = false;
    Id outermost = kNone;    // outermost Loop line around its additions
    std::vector<Id> inside;  // Loop lines between its start and its additions, without its axes
  };
  const Program& p_;
  const Nest& nest_;
  std::vector<Id> block_end_;          // by line: end of its block
  std::vector<std::uint32_t> stores_;  // by statement: lines that store it
  std::vector<bool> after_rows_;       // by statement: it needs a sum over all rows; empty if no statement needs such a sum
  struct MemoryState {
    std::optional<Id> hold;
    Id hold_end = 0;
    std::size_t depth = 0;
    Id kept_end = 0;  // end of the outermost loop between its Hold and its Keep; 0: no Keep yet
  };
  std::vector<State> state_;
  std::vector<MemoryState> memory_;
  std::vector<Id> open_, digits_;  // Loop lines, and their digits
  std::uint64_t loops_ = 0;        // nest loops that these loops cover
  Id line_ = 0;
  std::string problem_;

  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  void wants(bool is_there, const char* what) {
    if (!is_there) fail(what);
  }
  static std::uint64_t bit(Id loop) { return std::uint64_t{1} << loop; }
  std::uint64_t tasks() const { return bit(nest_.outer) - 1; }  // loops that tasks share
  Id block_end() const { return open_.empty() ? static_cast<Id>(p_.lines.size()) : p_.lines[open_.back()].end; }

  void digits() {
    if (p_.digits.size() < nest_.loops()) return fail("a loop of the nest has no digit");
    for (Id d = 0; d < p_.digits.size(); ++d) {
      const Digit& digit = p_.digits[d];
      if (d < nest_.loops()) {
        if (digit.kind != Digit::Kind::Whole || digit.root != d) return fail(fmt::format("digit {} does not match a loop of the nest", d));
        continue;
      }
      if (digit.kind == Digit::Kind::Whole || digit.parent >= d || digit.pair >= p_.digits.size() ||
          (digit.by < 1) == (digit.size == Digit::Size::Number))
        return fail(fmt::format("digit {} is not part of a loop", d));
      const Digit& pair = p_.digits[digit.pair];
      if (pair.pair != d || pair.kind == digit.kind || pair.parent != digit.parent || pair.by != digit.by || pair.size != digit.size ||
          (digit.once && digit.kind != Digit::Kind::Outer) || digit.root != p_.digits[digit.parent].root || pair.root != digit.root)
        return fail(fmt::format("digits {} and {} belong to different loops", d, digit.pair));
    }
  }

  void leave(Id next) {
    while (!open_.empty() && p_.lines[open_.back()].end <= next) {
      if (p_.lines[open_.back()].end < next) fail("a loop's body ends inside another loop's body");
      open_.pop_back(), digits_.pop_back();
      loops_ = covered(p_, digits_);
    }
  }
  void enter(Id i) {
    open_.push_back(i), digits_.push_back(p_.lines[i].at);
    loops_ = covered(p_, digits_);
  }

  // Checks that the operand is visible: its block is this block or an enclosing block.
  void operand(Id o) {
    if (o == kNone) return;
    if (o >= line_) return fail(fmt::format("reads line {}, which is not computed yet", o));
    if (block_end_[o] <= line_) return fail(fmt::format("reads line {}, whose loop has ended", o));
    switch (p_.lines[o].code) {
      case Code::Loop:
      case Code::Start:
      case Code::Store:
      case Code::AddTo:
      case Code::Hold:
      case Code::Keep:
      case Code::Prefetch:
      case Code::PrefetchMemory:
      case Code::Accumulate: return fail(fmt::format("reads line {}, which has no value", o));
      default: return;
    }
  }

  // ---- dependences of a line

  std::uint64_t loops_of_map(Id linear) {
    std::uint64_t all = 0;
    const std::vector<Coefficient>& of = nest_.linears[linear].of;
    for (Id v = 0; v < of.size(); ++v) {
      if (of[v] == Coefficient::Zero) continue;
      if (v < nest_.loops()) all |= bit(v);
      else if (const Derived& d = nest_.derived[v - nest_.loops()]; d.place == Derived::kNone) all |= loops_of_map(d.linear);
      else if (!has_value(d.place)) fail(fmt::format("depends on the checked index s{}, which is not computed here", d.place));
    }
    return all;
  }
  // True if some line of the statement is visible.
  bool has_value(Id statement) const {
    for (Id i = line_; i-- > 0;)
      if (p_.lines[i].of == statement && block_end_[i] > line_) return true;
    return false;
  }
  void map(Id linear) {
    if (linear >= nest_.linears.size()) return fail("refers to an affine map that does not exist");
    if (loops_of_map(linear) & ~loops_) fail("is outside a loop that it depends on");
  }
  void access(const Line& l) {
    if (l.at >= nest_.accesses.size()) return fail("refers to an access that does not exist");
    const Access& a = nest_.accesses[l.at];
    map(a.linear);
    if (a.table != Access::kNone) map(a.table);
    if ((l.code == Code::Load) == nest_.buffers[a.buffer].written) fail(l.code == Code::Load ? "reads a result" : "writes an argument");
  }

  void check(const Line& l) {
    for (const Id o : {l.a, l.b, l.c, l.guard}) operand(o);
    if (!problem_.empty()) return;
    if (l.peeled && (l.code != Code::Loop || (l.bind != Bind::Vector && l.bind != Bind::Serial) || l.padded))
      return fail("is peeled, but is not a vector or serial loop");
    if (l.reversed && (l.code != Code::Loop || l.bind != Bind::Parallel)) return fail("is reversed, but is not a parallel loop");
    if (l.zeros && l.code != Code::Loop) return fail("skips zeros, but is not a loop");
    if (l.streamed && l.code != Code::Store) return fail("is a non-temporal store, but stores nothing");
    if (l.guard != kNone && p_.lines[l.guard].code != Code::Guard) return fail("has a predicate that is not a guard");
    switch (l.code) {
      case Code::Loop: return loop(l);
      case Code::Load: return access(l);
      case Code::Prefetch:
      case Code::PrefetchMemory: return prefetch(l);
      case Code::Store:
      case Code::AddTo: wants(l.a != kNone, "stores nothing"); return store(l);
      case Code::Index: return map(l.at);
      case Code::Slot: return wants(l.at < nest_.slots.size(), "refers to a scalar parameter that does not exist");
      case Code::Constant: return;
      case Code::Op: return wants(l.a != kNone && ir::is_elementwise(l.op), "is not an operator on values");
      case Code::Guard:
        if (l.at + l.count > nest_.checks.size()) return fail("refers to a bounds check that does not exist");
        for (Id c = l.at; c < l.at + l.count; ++c) map(nest_.checks[c].linear);
        return;
      case Code::Hold:
      case Code::Keep:
      case Code::Recall: return memory(l);
      case Code::Place: return wants(l.a != kNone && l.at < nest_.checks.size(), "is a checked index without an index");
      default: break;
    }
    if (l.at >= state_.size()) return fail("refers to an accumulator that does not exist");
    const Accumulator& a = p_.accumulators[l.at];
    State& s = state_[l.at];
    if (l.code == Code::Start) return start(l, a, s);
    if (!s.start || s.start_end <= line_) return fail(fmt::format("a{} is not started here", l.at));
    if (l.of != s.of) return fail(fmt::format("a{} belongs to another statement", l.at));
    if (l.code == Code::Result) return result(l, a, s);
    if (l.code == Code::Halve) return halve(l, a, s);
    accumulate(l, a, s);
  }

  // Checks that no part of a loop is open twice, in any of its splits.
  void loop(const Line& l) {
    if (l.at >= p_.digits.size()) return fail("is a loop without a digit");
    if (l.end <= line_ || l.end > block_end()) return fail("a loop ends outside its block");
    if (l.of != kNone) condition(l);
    if (l.zeros) zeros(l);
    for (const Id d : digits_) {
      if (p_.digits[d].root != p_.digits[l.at].root) continue;
      if (is_within(p_, d, l.at) || is_within(p_, l.at, d))
        return fail(fmt::format("opens i{} twice, one loop inside the other", p_.digits[d].root));
      // Two parts of one loop must belong to the same split.
      Id a = d, b = l.at;
      const auto depth = [&](Id digit) {
        int n = 0;
        for (; p_.digits[digit].parent != kNone; ++n) digit = p_.digits[digit].parent;
        return n;
      };
      while (depth(a) > depth(b)) a = p_.digits[a].parent;
      while (depth(b) > depth(a)) b = p_.digits[b].parent;
      while (p_.digits[a].parent != p_.digits[b].parent) a = p_.digits[a].parent, b = p_.digits[b].parent;
      if (p_.digits[a].pair != b) return fail(fmt::format("opens i{} in two different splits", p_.digits[d].root));
    }
  }

  // Checks a conditional loop: it may only add to sums that the condition selects.
  void condition(const Line& l) {
    if (l.of >= nest_.body.size()) return fail("has a condition that does not exist");
    std::uint64_t inside = 0;
    for (Id i = line_; i < l.end; ++i) {
      const Line& in = p_.lines[i];
      if (in.code == Code::Accumulate && (in.of == kNone || needed_where(nest_, in.of) != l.of))
        fail("skips sums that other statements need");
      if (in.code == Code::Store || in.code == Code::AddTo || in.code == Code::Keep || in.code == Code::Place || in.code == Code::Scan ||
          in.code == Code::Start)
        fail("skips lines that are not sums");
      if (in.code == Code::Loop && i == line_) inside |= bit(p_.digits[in.at].root);
    }
    if (nest_.body[l.of].loops & inside) fail("has a condition that depends on the loop");
  }

  // Checks a loop that zero products may skip: its sums start right before it, and it adds all of their products, of two memories. Sums
  // then are -0 or +0, and the sum of products of both signs is +0.
  void zeros(const Line& l) {
    Id adds = kNone;
    for (Id i = line_ + 1; i < l.end; ++i) {
      const Line& in = p_.lines[i];
      if (in.code == Code::Accumulate && adds == kNone) adds = i;
      else if (in.code == Code::Loop ? in.bind != Bind::Unrolled && in.bind != Bind::Vector
                                     : in.code != Code::Recall && in.code != Code::PrefetchMemory)
        return fail("skips lines that are not sums of products");
    }
    if (l.bind != Bind::Serial || l.padded || l.peeled || adds == kNone) return fail("skips zeros, but is not a serial loop over products");
    const Line& sum = p_.lines[adds];
    const auto is_recalled = [&](Id o) { return o != kNone && o > line_ && p_.lines[o].code == Code::Recall; };
    if (sum.at >= p_.accumulators.size() || !is_recalled(sum.a) || !is_recalled(sum.b))
      return fail("skips products of values that are not in a buffer");
    const Accumulator& a = p_.accumulators[sum.at];
    const bool starts = line_ > 0 && p_.lines[line_ - 1].code == Code::Start && p_.lines[line_ - 1].at == sum.at;
    if (!starts || !a.is_product || !is_float(a.dtype) || a.part != Accumulator::Part::Block || a.reduced != std::vector{l.at})
      fail("skips a part of a sum");
  }

  // Checks a prefetch: the loop of its digit must be open. Other loops may be closed.
  void prefetch(const Line& l) {
    if (l.code == Code::PrefetchMemory) {
      memory(l);
    } else {
      if (l.at >= nest_.accesses.size()) return fail("refers to an access that does not exist");
      static_cast<void>(loops_of_map(nest_.accesses[l.at].linear));
    }
    if (std::ranges::find(digits_, static_cast<Id>(l.bits)) == digits_.end()) fail("prefetches along a loop that is not open");
  }

  // ---- memories

  void memory(const Line& l) {
    if (l.at >= memory_.size()) return fail("refers to a buffer that does not exist");
    const Memory& m = p_.memories[l.at];
    MemoryState& s = memory_[l.at];
    if (l.code == Code::Hold) {
      if (s.hold && s.hold_end > line_) return fail("allocates a buffer twice");
      for (const Id axis : m.axes)
        if (axis >= nest_.loops() || (loops_ & bit(axis))) return fail("allocates a buffer inside one of its axes");
      if (!has_a_place_for_each(m)) return fail("stores two elements of a buffer in one position");
      s = {.hold = line_, .hold_end = block_end(), .depth = open_.size()};
      return;
    }
    if (!s.hold || s.hold_end <= line_) return fail(fmt::format("m{} is not allocated here", l.at));
    std::uint64_t axes = 0;
    for (const Id axis : m.axes) axes |= bit(axis);
    if ((axes & ~loops_) != 0) return fail(fmt::format("is outside an axis of m{}", l.at));
    if (l.code == Code::Keep) {
      wants(l.a != kNone && l.guard == kNone, "stores nothing in a buffer");
      for (std::size_t k = s.depth; k < open_.size(); ++k)  // once per index
        if (!(axes & bit(p_.digits[digits_[k]].root))) return fail(fmt::format("stores elements of m{} several times", l.at));
      if (s.kept_end) return fail(fmt::format("stores m{} twice", l.at));
      s.kept_end = open_.size() > s.depth ? p_.lines[open_[s.depth]].end : line_ + 1;
      return;
    }
    if (!s.kept_end) return fail(fmt::format("recalls m{}, which is not stored", l.at));
    if (s.kept_end > line_) return fail(fmt::format("recalls m{} inside the loop that stores it", l.at));
  }

  // True if each axis is in the layout, whole or as both parts of one split.
  bool has_a_place_for_each(const Memory& m) const {
    std::size_t parts = 0;
    for (const Id axis : m.axes) {
      const Memory::Part *whole = nullptr, *outer = nullptr, *inner = nullptr;
      for (const Memory::Part& part : m.layout) {
        if (part.root != axis) continue;
        const Memory::Part*& of = part.kind == Digit::Kind::Whole ? whole : part.kind == Digit::Kind::Outer ? outer : inner;
        if (of) return false;
        of = &part;
      }
      const bool is_split = outer && inner && outer->by == inner->by && outer->by > 0;
      if (whole ? outer || inner : !is_split) return false;
      parts += whole ? 1 : 2;
    }
    return parts == m.layout.size();
  }

  // ---- sums

  // Checks that the loops opened since the start, except the axes, are the reduced loops and run in the order of r.
  void accumulate(const Line& l, const Accumulator& a, State& s) {
    wants(l.a != kNone && (l.b != kNone) == (a.is_product || a.finds), "adds a wrong number of operands");
    if (a.finds && problem_.empty()) {
      const IndexSearch search = *index_search(nest_, l.of);
      wants(p_.lines[l.a].of == search.value && p_.lines[l.b].of == search.index, "adds other values than the elements and their indices");
    }
    std::vector<Id> inside, order;
    s.inside.clear();
    for (std::size_t k = s.start_depth; k < digits_.size(); ++k)
      if (std::ranges::find(a.axes, digits_[k]) == a.axes.end()) inside.push_back(digits_[k]), s.inside.push_back(open_[k]);
    if (digits_.size() - s.start_depth - inside.size() != a.axes.size())
      return fail(fmt::format("adds to a{} outside one of its axes", l.at));
    for (const Id digit : a.reduced) {
      const std::vector<Id> parts = parts_of(p_, digit, inside);
      if (parts.empty()) return fail(fmt::format("adds to a{} outside a loop that it sums over", l.at));
      order.insert(order.end(), parts.begin(), parts.end());
    }
    for (const Id loop : s.inside) {
      const Bind how = p_.lines[loop].bind;
      if (how == Bind::Parallel && !joins_chunks(p_, a)) return fail(fmt::format("adds to a{} in a parallel loop", l.at));
      if (p_.lines[loop].padded) return fail(fmt::format("adds elements beyond the end of a loop to a{}", l.at));
      if (how == Bind::Vector && a.order != Accumulator::Order::Any)
        return fail(fmt::format("adds to a{}, which has an order, in a vector loop", l.at));
    }
    if (order.size() != inside.size()) return fail(fmt::format("adds to a{} in loops that it does not sum over", l.at));
    if (order != inside && (a.order != Accumulator::Order::Any || a.finds))
      return fail(fmt::format("adds to a{} in a different order", l.at));
    if ((l.code == Code::Scan) != (a.order == Accumulator::Order::Scan))
      return fail("is a scan, but its accumulator is not, or the reverse");
    if (l.code == Code::Accumulate && s.is_added_to) return fail(fmt::format("adds to a{} a second time", l.at));
    part(l, a);
    s.outermost = open_.empty() ? kNone : open_[0];
    s.is_added_to = true;
  }

  void start(const Line& l, const Accumulator& a, State& s) {
    if (s.start && s.start_end > line_) return fail("is started twice");
    if (!is_of_statement(l, a)) return fail("starts a sum that does not belong to its statement");
    for (const Id reduced : a.reduced) {
      for (const Id d : digits_)
        if (is_within(p_, d, reduced) || is_within(p_, reduced, d)) {
          if (a.part == Accumulator::Part::All || is_within(p_, d, reduced)) return fail("is started inside a loop that it sums over");
        }
    }
    const bool is_column =
        nest_.reduced_mask() && std::ranges::any_of(a.reduced, [&](Id reduced) { return (tasks() & bit(p_.digits[reduced].root)) != 0; });
    if (!is_column && nest_.kind != NestKind::Map && (tasks() & ~(loops_ | axes_of(a))) != 0)
      return fail("is carried from one task to another");
    s = {.start = line_, .of = l.of, .start_end = block_end(), .start_depth = open_.size()};
  }
  // True if the sum is the statement's sum or a part of it.
  bool is_of_statement(const Line& l, const Accumulator& a) const {
    using enum Accumulator::Part;
    if (l.of >= nest_.body.size()) return false;
    const Statement::Kind kind = nest_.body[l.of].kind;
    if (kind != Statement::Kind::Reduce && kind != Statement::Kind::Scan) return false;
    const std::optional<IndexSearch> search = a.finds ? index_search(nest_, l.of) : std::nullopt;
    if (a.finds && !search) return false;
    Accumulator wanted = search ? finder_of(nest_, l.of, *search) : accumulator_of(nest_, l.of);
    if (a.part == All) {
      wanted.axes = a.axes;
      if (is_of_chunk(a))
        wanted.reduced = wanted.reduced.size() == 1 && wanted.reduced[0] == whole_of(a.reduced[0]) ? a.reduced : wanted.reduced;
      return wanted == a && (wanted.runs == 0 || !is_of_chunk(a));
    }
    const bool is_finest = a.part == Eight || (a.part == Block && a.order != Accumulator::Order::Rows);
    return wanted.order == a.order && wanted.op == a.op && wanted.dtype == a.dtype && wanted.runs == 0 && wanted.reduced.size() == 1 &&
           whole_of(summed(a)) == wanted.reduced[0] && a.is_product == (is_finest && wanted.is_product);
  }
  // Returns the mask of nest loops that the axes are parts of.
  std::uint64_t axes_of(const Accumulator& a) const {
    std::uint64_t all = 0;
    for (const Id axis : a.axes) all |= axis < p_.digits.size() ? bit(p_.digits[axis].root) : 0;
    return all;
  }

  // ---- a loop in chunks

  bool is_chunk(Id digit) const {
    return digit < p_.digits.size() && p_.digits[digit].kind == Digit::Kind::Inner && p_.digits[digit].size == Digit::Size::Chunk;
  }
  Id whole_of(Id digit) const { return is_chunk(digit) ? p_.digits[digit].parent : digit; }
  // True if the sum is the whole sum of a chunk.
  bool is_of_chunk(const Accumulator& a) const {
    if (a.part == Accumulator::Part::All) return a.reduced.size() == 1 && is_chunk(a.reduced[0]);
    return a.part == Accumulator::Part::Tree && !joins_chunks(p_, a) && is_chunk(summed(a));
  }
  bool is_part(const Accumulator& a) const {
    return is_of_chunk(a) || (a.part != Accumulator::Part::All && a.part != Accumulator::Part::Tree);
  }

  // ---- a written-out order

  const Digit* outer_of(Id digit, std::int64_t by) const {
    const Digit& d = p_.digits[digit];
    return d.kind == Digit::Kind::Outer && d.by == by ? &d : nullptr;
  }
  const Digit* inner_of(Id digit, std::int64_t by) const {
    const Digit& d = p_.digits[digit];
    return d.kind == Digit::Kind::Inner && d.by == by ? &d : nullptr;
  }
  // Returns the summed loop if the digit is the part of it that the order requires; else kNone.
  Id summed(const Accumulator& a) const {
    using enum Accumulator::Part;
    const bool has_lanes = a.part == Block && a.order == Accumulator::Order::Lanes;
    if ((a.reduced.size() != 1 && !has_lanes) || a.reduced.empty() || a.runs != 0) return kNone;
    const std::int64_t block = a.order == Accumulator::Order::Lanes ? ir::kLaneBlock : ir::kRowBlock;
    const Id digit = a.reduced[0];
    if (digit >= p_.digits.size()) return kNone;
    const auto block_of = [&](const Digit* part) { return part && inner_of(part->parent, block) ? p_.digits[part->parent].parent : kNone; };
    switch (a.part) {
      case All: break;
      case Tree: return outer_of(digit, block) || joins_chunks(p_, a) ? p_.digits[digit].parent : kNone;
      case Eight: return a.order == Accumulator::Order::Rows ? block_of(inner_of(digit, ir::kRowGroup)) : kNone;
      case Block:
        if (has_lanes) return summed_in_lanes(a, digit);
        if (a.order == Accumulator::Order::Rows) return block_of(outer_of(digit, ir::kRowGroup));
        return inner_of(digit, block) ? p_.digits[digit].parent : kNone;
    }
    return kNone;
  }
  // Returns the digits of the summed loop that count the lanes.
  std::vector<Id> lanes_of(const Accumulator& a) const {
    std::vector<Id> lanes;
    for (const Id axis : a.axes)
      if (p_.digits[axis].root == p_.digits[a.reduced[0]].root) lanes.push_back(axis);
    return lanes;
  }
  // Returns the summed loop if the reduced digits and the lanes are all parts of a block, with as many lanes as the order requires.
  Id summed_in_lanes(const Accumulator& a, Id digit) const {
    while (digit != kNone && !inner_of(digit, ir::kLaneBlock)) digit = p_.digits[digit].parent;
    if (digit == kNone) return kNone;
    std::vector<Id> parts = a.reduced;
    std::int64_t count = 1;
    for (const Id lane : lanes_of(a)) {
      parts.push_back(lane);
      count *= iterations_known(p_, lane).value_or(0);
    }
    if (parts_of(p_, digit, parts) != parts || count != (a.dtype == DType::F64 ? 32 : 64)) return kNone;
    return p_.digits[digit].parent;
  }

  // Checks that a part of an accumulator receives only the next finer part. Elements are added only to the finest part.
  void part(const Line& l, const Accumulator& a) {
    using enum Accumulator::Part;
    const Line* const from = p_.lines[l.a].code == Code::Halve || p_.lines[l.a].code == Code::Result ? &p_.lines[l.a] : nullptr;
    const Accumulator* const finer = from && is_part(p_.accumulators[from->at]) ? &p_.accumulators[from->at] : nullptr;
    if (joins_chunks(p_, a)) {
      const bool fits = finer && is_of_chunk(*finer) && from->code == Code::Result && finer->order == a.order && finer->op == a.op &&
                        finer->dtype == a.dtype &&
                        (finer->part == All ? finer->reduced[0] : summed(*finer)) == p_.digits[a.reduced[0]].pair;
      wants(fits, "adds a value that is not a chunk sum");
      parts_added_.push_back(l.a);
      return;
    }
    if (a.part == All) return wants(!finer, "adds a part of another sum");
    const Id loop = summed(a);
    if (loop == kNone) return fail(fmt::format("a{} is not a part of its summation order", l.at));
    const bool is_finest = a.part == Eight || (a.part == Block && a.order != Accumulator::Order::Rows);
    if (is_finest) return wants(!finer, "adds a part of another sum");
    const bool fits = finer && finer->part == (a.part == Tree ? Block : Eight) && finer->order == a.order && finer->op == a.op &&
                      finer->dtype == a.dtype && summed(*finer) == loop &&
                      (from->code == Code::Halve) == (a.order == Accumulator::Order::Lanes);
    wants(fits, "adds a value that is not a part of its summation order");
    parts_added_.push_back(l.a);
  }
  std::vector<Id> parts_added_;  // lines with values that were added to a part

  void halve(const Line& l, const Accumulator& a, const State& s) {
    if (a.part != Accumulator::Part::Block || a.order != Accumulator::Order::Lanes)
      return fail("reduces lanes of an accumulator without lanes");
    read_after(l, a, s, lanes_of(a));
  }

  void result(const Line& l, const Accumulator& a, const State& s) {
    if (a.order == Accumulator::Order::Scan) return fail("reads the result of a scan, which has only its values");
    if (a.part == Accumulator::Part::Block && a.order == Accumulator::Order::Lanes) return fail("reads a single lane");
    read_after(l, a, s, {});
  }
  void read_after(const Line& l, const Accumulator& a, const State& s, const std::vector<Id>& without) {
    if (!s.is_added_to) return fail(fmt::format("reads a{}, which nothing was added to", l.at));
    for (const Id loop : s.inside)
      if (p_.lines[loop].end > line_) return fail(fmt::format("reads a{} inside a loop that adds to it", l.at));
    if (std::ranges::any_of(s.inside, [&](Id loop) { return p_.lines[loop].bind == Bind::Parallel; }) && p_.lines[s.outermost].end > line_)
      return fail(fmt::format("reads a{} while tasks add to it", l.at));
    std::vector<Id> since(digits_.begin() + static_cast<std::ptrdiff_t>(s.start_depth), digits_.end()), axes = a.axes;
    for (const Id lane : without) std::erase(axes, lane);
    if (joins_chunks(p_, a))  // a chunk task may read all chunk sums
      std::erase_if(since, [&](Id d) { return p_.digits[d].root == p_.digits[a.reduced[0]].root; });
    std::ranges::sort(since), std::ranges::sort(axes);
    if (since != axes) fail(fmt::format("reads a{} in loops that do not match its axes", l.at));
  }

  // ---- stores: each element once. verify_plan shows the number of stores from the maps. This function checks that stores are in the right
  // tasks, cover whole loops, and do not run in every iteration of a reduced loop.
  void store(const Line& l) {
    access(l);
    if (l.of >= stores_.size() || nest_.body[l.of].kind != Statement::Kind::Store || nest_.body[l.of].at != l.at)
      fail("stores a value that no statement stores");
    if (!problem_.empty()) return;
    ++stores_[l.of];
    const std::uint64_t around = !after_rows_.empty() && after_rows_[l.of] ? 0 : tasks();
    if ((loops_ & tasks()) != around) return fail("stores in the wrong tasks");
    for (const Id loop : open_)
      if (p_.lines[loop].padded) return fail("stores beyond the end of a loop");
    for (const Id d : digits_)
      if (!(loops_ & bit(p_.digits[d].root))) return fail(fmt::format("stores in only a part of i{}", p_.digits[d].root));
    if (l.code == Code::AddTo) return updates();
    const Access& a = nest_.accesses[l.at];
    std::uint64_t named = loops_of_map(a.linear);
    if (a.table != Access::kNone) named |= loops_of_map(a.table);
    if (nest_.reduced_mask() & loops_ & ~named) fail("stores the same element in every iteration of a reduced loop");
  }
  // Checks that updates of one element run in the order of the loops of their index.
  void updates() {
    std::vector<Id> inside, order;
    for (const Id d : digits_)
      if (nest_.reduced_mask() & bit(p_.digits[d].root)) inside.push_back(d);
    for (Id root = 0; root < nest_.loops(); ++root)
      if (nest_.reduced_mask() & bit(root)) {
        const std::vector<Id> parts = parts_of(p_, root, inside);
        order.insert(order.end(), parts.begin(), parts.end());
      }
    if (order != inside) fail("adds updates in a different order");
    for (std::size_t k = 0; k < open_.size(); ++k)
      if ((nest_.reduced_mask() & bit(p_.digits[digits_[k]].root)) && p_.lines[open_[k]].bind != Bind::Serial &&
          p_.lines[open_[k]].bind != Bind::Unrolled)
        fail("adds updates in parallel that may have the same element");
  }
};

}  // namespace

std::string verify(const Program& program) { return Verifier(program).run(); }

}  // namespace onepass::compiler::loops
