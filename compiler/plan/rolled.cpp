// rolled: see rolled.h.
//
//   v1 = slot 0; v2 = mul v0 v1; v3 = slot 1; v4 = mul v2 v3; …    has the iteration    v1 = slot k; v2 = mul (v0, then v2) v1
//
// The search takes one statement in the middle of the body and finds later statements like it. It tries each distance between them as the
// length of an iteration, shortest first. The cost is a few passes over the body. Only repetitions that include the middle are found.
#include "compiler/plan/rolled.h"

#include <array>
#include <vector>

namespace onepass::compiler {
namespace {

constexpr std::uint32_t kNone = Statement::kNone;
constexpr std::uint32_t kWorthALoop = 1024;  // instructions of the body; shorter bodies are fetched as fast as a loop
constexpr std::uint32_t kLongEnough = 64;    // instructions of one iteration that outweigh the loop overhead
constexpr std::uint32_t kFewest = 4;         // fewest iterations
constexpr std::uint32_t kMostTries = 64;

std::array<std::uint32_t, 3> operands(const Statement& s) { return {s.a, s.b, s.c}; }

bool may_repeat(const Nest& nest, std::uint32_t id) {
  const Statement& s = nest.body[id];
  const bool varies = s.loops >> nest.vector_loop() & 1;
  return s.kind == Statement::Kind::Slot || s.kind == Statement::Kind::Constant || (s.kind == Statement::Kind::Op && varies);
}

// True if the statements are equal except for their operands.
bool alike(const Statement& a, const Statement& b) {
  return a.kind == b.kind && a.op == b.op && a.dtype == b.dtype && a.half == b.half && a.stage == b.stage && a.loops == b.loops &&
         a.bits == b.bits;
}

class Iterations {
 public:
  Iterations(const Nest& nest, std::uint32_t begin, std::uint32_t period) : nest_(nest), begin_(begin), period_(period) {
    initial_.assign(period, kNone);
    std::uint32_t id = begin;
    while (id + period < nest.body.size() && repeats(id)) ++id;
    count_ = (id - begin) / period + (id > begin);
  }
  /// Returns the rerolled loop. Joins iterations until an iteration is long enough.
  Rolled joined(std::uint32_t work) const {
    const std::uint32_t each = (kLongEnough + work - 1) / work;
    Rolled r{begin_, period_ * each, count_ / each, slots_ * each};
    return r.count >= kFewest && is_left_by_the_last(r) ? r : Rolled{};
  }

 private:
  const Nest& nest_;
  std::uint32_t begin_, period_, count_ = 0, slots_ = 0;
  bool has_slots_ = false;
  std::vector<std::uint32_t> initial_;  // by value that the next iteration reads: the value that the first iteration reads instead

  // True if the statement one period later is the same statement of the next iteration.
  bool repeats(std::uint32_t id) {
    const Statement &mine = nest_.body[id], &next = nest_.body[id + period_];
    if (!may_repeat(nest_, id) || !alike(mine, next)) return false;
    if (mine.kind == Statement::Kind::Slot) {
      const std::uint32_t step = next.at - mine.at;
      if (next.at < mine.at || (has_slots_ && step != slots_)) return false;
      has_slots_ = true, slots_ = step;
    }
    for (std::size_t k = 0; k < 3; ++k)
      if (!repeats(id, operands(mine)[k], operands(next)[k])) return false;
    return true;
  }
  bool repeats(std::uint32_t id, std::uint32_t mine, std::uint32_t next) {
    if (mine == kNone || next == kNone || next < begin_) return mine == next;  // from before the loop
    const std::uint32_t iteration = (id - begin_) / period_, of_next = (next - begin_) / period_;
    if (of_next < iteration) return false;  // from two iterations before
    if (of_next > iteration || iteration > 0) return mine + period_ == next;
    if (mine >= begin_ || nest_.body[mine].dtype != nest_.body[next].dtype || nest_.body[mine].half != nest_.body[next].half) return false;
    std::uint32_t& first = initial_[next - begin_];
    if (first == kNone) first = mine;
    return first == mine;
  }
  bool is_left_by_the_last(const Rolled& r) const {
    for (std::uint32_t id = r.end(); id < nest_.body.size(); ++id)
      for (const std::uint32_t o : {nest_.body[id].a, nest_.body[id].b, nest_.body[id].c, nest_.body[id].guard})
        if (o != kNone && r.holds(o) && o < r.last()) return false;
    return true;
  }
};

// Returns the start of the statements around `middle` that are like the statements one period later.
std::uint32_t first_alike(const Nest& nest, std::uint32_t middle, std::uint32_t period) {
  while (middle > 0 && may_repeat(nest, middle - 1) && alike(nest.body[middle - 1], nest.body[middle - 1 + period])) --middle;
  return middle;
}

// Returns the first statement from which all operands, up to `middle`, match the preceding iteration. The loop may begin one period
// earlier.
std::uint32_t first_in_step(const Nest& nest, std::uint32_t middle, std::uint32_t period, std::uint32_t least) {
  const auto in_step = [&](std::uint32_t id) {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::uint32_t mine = operands(nest.body[id])[k], next = operands(nest.body[id + period])[k];
      if (mine != next && (mine == kNone || next == kNone || mine + period != next)) return false;
    }
    return true;
  };
  while (middle > least && in_step(middle - 1)) --middle;
  return middle;
}

}  // namespace

std::uint32_t instructions_of(const Nest& nest, std::uint32_t statement) {
  const Statement& s = nest.body[statement];
  if (s.kind != Statement::Kind::Op || !(s.loops >> nest.vector_loop() & 1)) return 0;
  return ir::info(s.op).kind == ir::OpKind::Expanded ? 30 : 1;
}

Rolled rolled(const Nest& nest, std::uint32_t registers) {
  const auto n = static_cast<std::uint32_t>(nest.body.size());
  std::vector<std::uint32_t> work(n + 1, 0);
  for (std::uint32_t i = 0; i < n; ++i) work[i + 1] = work[i] + registers * instructions_of(nest, i);
  if (work[n] < kWorthALoop) return {};
  std::uint32_t middle = n / 2, tries = 0;
  while (middle < n && instructions_of(nest, middle) == 0) ++middle;
  for (std::uint32_t like = middle + 1; like + 1 < n && tries < kMostTries; ++like) {
    const std::uint32_t period = like - middle;
    if (!alike(nest.body[middle], nest.body[like]) || !alike(nest.body[middle + 1], nest.body[like + 1])) continue;
    ++tries;
    const std::uint32_t least = first_alike(nest, middle, period), in_step = first_in_step(nest, middle, period, least);
    const std::uint32_t begin = in_step >= least + period ? in_step - period : least;
    const Rolled r = Iterations(nest, begin, period).joined(work[begin + period] - work[begin]);
    if (r.count > 0 && 2 * (work[r.end()] - work[r.begin]) >= work[n]) return r;
  }
  return {};
}

}  // namespace onepass::compiler
