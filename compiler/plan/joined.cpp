// See joined.h. For x[i, b, k] and y[b, k, j], summed over b < 8 and k < 30:
//
//   for i; for j; for b; for k             for i; for j; for r < 240
//     x[240*i + 30*b + k] *                  x[240*i + r] *
//     y[100*b + 800*k + j]                   y[800*r - 23900*(r div 30) + j]
//
// because k is r - 30*(r div 30).
#include "compiler/plan/joined.h"

#include <algorithm>
#include <map>

#include "compiler/loops/contract.h"

namespace onepass::compiler {
namespace {

// Builds the joined nest. A Map is an affine map under construction: its coefficients for the remaining loops, the joined loop and new
// quotients.
class Joiner {
 public:
  explicit Joiner(const Planned& piece) : from_(piece), out_(piece) {}

  Planned run() {
    const Nest& nest = from_.nest;
    const std::uint32_t first = nest.outer, end = nest.outer + nest.serial;
    std::int64_t elements = 1;
    for (std::uint32_t l = first; l < end; ++l) elements *= from_.numbers.extents[l];
    out_.nest.serial = 1;
    out_.numbers.extents.erase(out_.numbers.extents.begin() + first, out_.numbers.extents.begin() + end);
    out_.numbers.extents.insert(out_.numbers.extents.begin() + first, elements);
    for (std::uint32_t k = 0; k < nest.linears.size(); ++k) maps_.push_back(map_of(k));
    out_.numbers.by = by_;
    if (!by_.empty()) maps_.emplace_back().loops.resize(out_.nest.loops()), maps_.back().kept.resize(nest.derived.size());
    if (!by_.empty()) maps_.back().loops[first] = {Coefficient::One, 1};
    out_.nest.derived.assign(by_.size(), {static_cast<std::uint32_t>(maps_.size() - 1), false});
    for (std::size_t q = 0; q < nest.derived.size(); ++q) {
      out_.nest.derived.push_back(nest.derived[q]);
      out_.numbers.by.push_back(from_.numbers.by[q]);
    }
    write_maps();
    for (Statement& s : out_.nest.body) s.loops = loops_of(s.loops);
    return std::move(out_);
  }

 private:
  struct Factor {
    Coefficient of = Coefficient::Zero;
    std::int64_t number = 0;
  };
  struct Map {
    std::vector<Factor> loops;                // remaining loops and the joined loop
    std::map<std::uint32_t, Factor> derived;  // new quotients
    std::vector<Factor> kept;                 // quotients of the original nest
  };
  const Planned& from_;
  Planned out_;
  std::vector<Map> maps_;
  std::vector<std::int64_t> by_;

  std::uint32_t loop(std::uint32_t l) const {  // new position of a remaining loop
    return l < from_.nest.outer ? l : l - from_.nest.serial + 1;
  }
  std::uint64_t loops_of(std::uint64_t mask) const {
    std::uint64_t out = 0;
    for (std::uint32_t l = 0; l < from_.nest.loops(); ++l)
      if (mask >> l & 1) out |= std::uint64_t{1} << (is_joined(l) ? from_.nest.outer : loop(l));
    return out;
  }
  bool is_joined(std::uint32_t l) const { return l >= from_.nest.outer && l < from_.nest.vector_loop(); }

  Map map_of(std::uint32_t linear) {
    const Nest& nest = from_.nest;
    const std::vector<std::int64_t>& numbers = from_.numbers.coefficients[linear];
    const std::vector<std::int64_t>& extents = from_.numbers.extents;
    const auto factor = [&](std::size_t v) { return Factor{nest.linears[linear].of[v], numbers[v]}; };
    Map map;
    map.loops.resize(out_.nest.loops());
    for (std::uint32_t l = 0; l < nest.loops(); ++l)
      if (!is_joined(l)) map.loops[loop(l)] = factor(l);
    for (std::size_t q = 0; q < nest.derived.size(); ++q) map.kept.push_back(factor(nest.loops() + q));
    std::int64_t inside = 1, further_in = 0;  // iterations and coefficient of the inner loops
    for (std::uint32_t last = nest.vector_loop(); last-- > nest.outer;) {
      const std::int64_t more = numbers[last] - further_in;
      if (inside == 1) map.loops[nest.outer] = factor(last);
      else if (more != 0) map.derived[quotient(inside)] = {Coefficient::General, more};
      inside *= extents[last];
      further_in = numbers[last] * extents[last];
    }
    return map;
  }

  // Returns the number of the quotient of the joined loop's index by `by`.
  std::uint32_t quotient(std::int64_t by) {
    const auto q = static_cast<std::uint32_t>(std::ranges::find(by_, by) - by_.begin());
    if (q == by_.size()) by_.push_back(by);
    return q;
  }

  void write_maps() {
    out_.numbers.offsets.resize(maps_.size(), 0);
    out_.nest.linears.assign(maps_.size(), {});
    out_.numbers.coefficients.assign(maps_.size(), {});
    for (std::size_t k = 0; k < maps_.size(); ++k) {
      const auto put = [&](const Factor& f) {
        out_.nest.linears[k].of.push_back(f.of);
        out_.numbers.coefficients[k].push_back(f.number);
      };
      for (const Factor& f : maps_[k].loops) put(f);
      for (std::uint32_t q = 0; q < by_.size(); ++q) put(maps_[k].derived.contains(q) ? maps_[k].derived[q] : Factor{});
      for (const Factor& f : maps_[k].kept) put(f);
    }
  }
};

}  // namespace

std::optional<Planned> joined(const Planned& piece) {
  const Nest& nest = piece.nest;
  if (nest.kind != NestKind::Rows || nest.serial < 2 || nest.runs != 0 || nest.sweeps != 1) return {};
  if (!std::ranges::any_of(nest.body, [](const Statement& s) { return s.kind == Statement::Kind::Reduce && ir::is_contraction(s.op); }))
    return {};
  if (std::ranges::any_of(piece.numbers.extents, [](std::int64_t e) { return e == 0; })) return {};
  Planned out = Joiner(piece).run();
  if (loops::contraction_of(out.nest).sum == Statement::kNone) return {};
  return out;
}

void join_reduced_loops(std::vector<Planned>& pieces, const Target& target, const ScheduleOptions& options) {
  for (Planned& piece : pieces)
    if (std::optional<Planned> one = joined(piece))
      if (schedule(one->nest, one->numbers, target, options).schedule.tile.rows > 0) piece = std::move(*one);
}

}  // namespace onepass::compiler
