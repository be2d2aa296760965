// plan: see plan.h.
//
//   y[i, j] = x[j, i] * w[i]          loops i, j
//     load x {j: 4096, i: 1}; load w {i: 1}; op mul; store y {i: 4096, j: 1}
//
// A value is computed once for each (node, map). The map gives, for each axis of the node, the element that the loop indices select. Maps
// are composed through views, from the group outputs back to the loads. An index that is not a sum of loop indices (an unaligned reshape)
// first requests to split a loop where the lengths factor. If they do not factor, it becomes a floordiv/mod variable.
#include "compiler/plan/plan.h"

#include "compiler/plan/costs.h"
#include "compiler/plan/planner.h"
#include "compiler/plan/routine.h"

namespace onepass::compiler {

namespace {
constexpr std::int64_t kFewLanes = 8;  // a vector loop of fewer iterations leaves most lanes unused
}  // namespace

std::vector<Planned> Planner::run() {
  const std::vector<NodeId>& roots = partition_.groups[group_].roots;
  for (std::size_t r = 0; r < roots.size(); ++r)
    if (graph_.elements(roots[r]) != 0) roots_.push_back(r);  // empty outputs have no stores
  for (const Loop& l : loops_)
    if (l.extent == 0 && partition_.groups[group_].ordered >> l.axis & 1) return {};  // no updates, so nothing is added
  if (roots_.empty()) return {};
  const std::vector<Loop> all = loops_;
  std::vector<Planned> chosen = in_best_loops(all);
  if (!runs_short_loops(chosen)) return chosen;
  if (!in_sequence())
    if (std::vector<Planned> phased = in_phases(split_loops_, chosen[0].nest.body.size(), 2); !phased.empty() && !runs_short_loops(phased))
      return phased;
  prefers_long_loops_ = true;
  std::vector<Planned> longer = in_loops(all);
  prefers_long_loops_ = false;
  return longer.size() == chosen.size() && !runs_short_loops(longer) ? longer : chosen;
}

bool Planner::runs_short_loops(const std::vector<Planned>& pieces) const {
  return std::ranges::any_of(pieces, [&](const Planned& p) {
    const std::vector<std::int64_t>& extents = p.numbers.extents;
    if (p.nest.short_rows || extents.size() < 2 || extents.back() >= kFewLanes || elements_of(p) < kFewLanes * kLongLoop) return false;
    if (p.nest.kind == NestKind::Lanes || p.nest.has(Statement::Kind::Scan) || p.nest.addition() || contracts()) return false;
    if (p.nest.kind == NestKind::Rows) return p.nest.outer > 0;
    const std::uint32_t v = p.nest.vector_loop();
    const bool is_apart =
        p.nest.phases > 1 || std::ranges::any_of(p.nest.accesses, [&](const Access& a) {
          const std::vector<std::int64_t>& by = p.numbers.coefficients[a.linear];
          return (by[v] != 0 && by[v] != 1) || std::any_of(by.begin() + p.nest.loops(), by.end(), [](std::int64_t c) { return c != 0; });
        });
    return is_apart;
  });
}

std::vector<Planned> Planner::in_best_loops(const std::vector<Loop>& all) {
  std::vector<Planned> pieces = in_loops(all);
  if (scan_is_split_) {  // a scan runs along one loop
    keeps_whole_ = true;
    pieces = in_loops(all);
  } else if (pieces.size() == 1 && pieces[0].nest.kind == NestKind::Lanes && pieces[0].numbers.extents.back() < kFewLanes &&
             loops_.size() > all.size() && all.back().extent >= kFewLanes) {
    keeps_whole_ = true;  // the parts of the last loop would leave most lanes unused
    std::vector<Planned> whole = in_loops(all);
    keeps_whole_ = false;
    if (whole.size() == 1) pieces = std::move(whole);
  }
  const std::vector<Loop> parts = parts_together_;
  const std::vector<std::vector<Loop>> loops = piece_loops_;
  if (pieces.size() == 1) split_loops_ = loops[0];
  if (std::vector<Planned> planes = in_planes(all, pieces); !planes.empty()) return planes;
  parts_together_ = parts, piece_loops_ = loops;
  if (std::vector<Planned> copies = in_copies(pieces); !copies.empty()) return copies;
  const std::vector<Loop> flat = flattened();
  if (flat.empty()) return pieces;
  const bool short_rows = ends_in_short_rows(pieces);
  if (selections_in(pieces) == 0 && !short_rows) return pieces;
  std::vector<Planned> other = in_loops(flat);
  const bool in_one = short_rows && elements_of(pieces[0]) >= kShortRowElements && other.size() == 1 && other[0].nest.short_rows;
  if (short_rows && pieces[0].numbers.extents.back() == all.back().extent) {
    std::vector<Planned> phased = in_phases(all, pieces[0].nest.body.size());
    if (!phased.empty() && (!in_one || 3 * work_of(phased[0]) < 2 * work_of(other[0]) * static_cast<double>(all.back().extent)))
      return phased;
  }
  if (in_one) return other;
  return selections_in(other) < selections_in(pieces) ? other : pieces;
}

std::vector<Planned> Planner::in_loops(const std::vector<Loop>& loops) {
  cuts_ = Cuts::All;
  std::vector<Planned> out = in_pieces(loops);
  while (cuts_ != Cuts::None && is_too_much_work()) {  // restart with fewer subdomains
    cuts_ = cuts_ == Cuts::All ? Cuts::Longest : Cuts::None;
    out = in_pieces(loops);
  }
  return out;
}

bool Planner::is_too_much_work() {
  if (work_ <= kMostWork || pieces_ == 1) return false;
  return work_ > kMostWork + kMostTimes * nodes_in_group();
}

std::size_t Planner::nodes_in_group() {
  if (nodes_in_group_ > 0) return nodes_in_group_;
  std::vector<bool> seen(graph_.size(), false);
  std::vector<NodeId> open;
  std::size_t n = 0;
  const auto meet = [&](NodeId id) {
    if (seen[id]) return;
    seen[id] = true;
    open.push_back(id);
    ++n;
  };
  for (const std::size_t r : roots_) meet(partition_.groups[group_].roots[r]);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (in_memory(id)) continue;
    for (const std::int64_t o : partition_.operands(graph_, id, group_)) meet(static_cast<NodeId>(o));
  }
  return nodes_in_group_ = n;
}

std::vector<Planned> Planner::in_pieces(const std::vector<Loop>& loops) {
  std::vector<Planned> out;
  pieces_ = 1;
  work_ = 0;
  flat_ = loops.size() == 1 && partition_.groups[group_].domain.size() > 1;
  parts_together_.clear();
  piece_loops_.clear();
  std::vector<std::vector<Loop>> open = {loops};
  while (!open.empty()) {
    if (cuts_ != Cuts::None && is_too_much_work()) return out;
    loops_ = std::move(open.back());
    open.pop_back();
    build();
    while (wanted_ == Wanted::Split) {  // restart with one more loop
      Loop& l = loops_[wanted_loop_];
      if (wanted_phases_) {
        l.extent = (l.full + wanted_at_ - 1) / wanted_at_;
        l.phases = wanted_at_;
      } else {
        l.extent /= wanted_at_, l.full /= wanted_at_, l.begin /= wanted_at_;
        const Loop inner{wanted_at_, l.reduced, l.axis};
        loops_.insert(loops_.begin() + wanted_loop_ + 1, inner);
      }
      build();
    }
    if (wanted_ == Wanted::Cut) {
      std::vector<Loop> rest = loops_;
      rest[wanted_loop_].begin += wanted_at_;
      rest[wanted_loop_].extent -= wanted_at_;
      loops_[wanted_loop_].extent = wanted_at_;
      ++pieces_;
      open.push_back(std::move(rest));
      open.push_back(std::move(loops_));
      continue;
    }
    for (const NodeId id : visited_) work_ += demands_[id].size();
    piece_loops_.push_back(loops_);
    finish(out.emplace_back());
  }
  return out;
}

std::vector<Planned> Planner::in_phases(std::vector<Loop> loops, std::size_t statements, std::size_t rows) {
  if (loops.size() <= rows || statements > kMostOfShortRow) return {};
  std::int64_t each = 1;
  for (Loop& l : std::span(loops).last(rows)) {
    if (l.extent > kMostPhases || l.reduced || l.phases != 1 || l.begin != 0 || l.extent != l.full) return {};
    each *= l.extent;
    l.phases = std::exchange(l.extent, 1);
  }
  if (each < 2 || each > (rows > 1 ? kMostPhasesOfTwo : kMostPhases)) return {};
  std::vector<Planned> out = in_loops(loops);
  if (out.size() != 1 || out[0].nest.phases != each || !out[0].nest.derived.empty() || out[0].nest.body.size() > kMostOfShortRow) return {};
  // Arrays that each phase reads across the vectors are packed one by one: that is much code.
  constexpr std::ptrdiff_t kMostAcross = 16;
  const auto is_across = [&](const Access& a) {
    const std::int64_t step = out[0].numbers.coefficients[a.linear][out[0].nest.vector_loop()];
    return !out[0].nest.buffers[a.buffer].written && a.first == kNone && step != 0 && step != 1;
  };
  if (std::ranges::count_if(out[0].nest.accesses, is_across) > kMostAcross) return {};
  std::size_t stores = 0, beside = 0;
  for (const Statement& s : out[0].nest.body) stores += s.kind == Statement::Kind::Store, beside += s.count;
  return stores == beside ? out : std::vector<Planned>{};
}

std::vector<Planned> Planner::in_planes(std::vector<Loop> loops, const std::vector<Planned>& pieces) {
  if (pieces.size() != 1 || pieces[0].nest.kind != NestKind::Map || pieces[0].nest.phases != 1 || in_sequence()) return {};
  const Nest& nest = pieces[0].nest;
  const std::uint32_t vector = nest.vector_loop();
  const auto steps = [&](const Planned& p, const Access& a) { return p.numbers.coefficients[a.linear][p.nest.vector_loop()]; };
  const auto reads_all = [&](const Planned& p, const Access& a) {  // in a group that reads every element
    return a.first != kNone && p.nest.places_of_group(a.first) + 1 == 1u << steps(p, a);
  };
  for (std::size_t k = 0; k + 1 < loops.size(); ++k) {
    const std::int64_t each = loops[k].extent;
    if (each < 2 || each > kMostPhases || loops[k].reduced || nest.body.size() * static_cast<std::size_t>(each) > kMostOfPhases) continue;
    const bool reads_apart = std::ranges::any_of(nest.accesses, [&](const Access& a) {
      if (nest.buffers[a.buffer].written || steps(pieces[0], a) != each || reads_all(pieces[0], a)) return false;
      const std::vector<std::int64_t>& by = pieces[0].numbers.coefficients[a.linear];
      return std::find(by.begin(), by.begin() + vector, 1) != by.begin() + vector;
    });
    const auto is_alone = [&](const std::vector<DomainAxes>& axes) {  // no result merges the loop's axis with other axes
      return std::ranges::all_of(
          axes, [&](const DomainAxes& a) { return a.count <= 1 || loops[k].axis < a.first || loops[k].axis >= a.first + a.count; });
    };
    if (!reads_apart || !std::ranges::all_of(partition_.groups[group_].axes, is_alone)) continue;
    std::vector<Loop> turned = loops;
    turned[k].phases = each;
    turned[k].extent = 1;
    std::rotate(turned.begin() + static_cast<std::ptrdiff_t>(k), turned.begin() + static_cast<std::ptrdiff_t>(k) + 1, turned.end());
    std::vector<Planned> out = in_loops(turned);
    if (out.size() != 1 || out[0].nest.phases != each || !out[0].nest.derived.empty() || out[0].nest.has(Statement::Kind::Guard)) continue;
    const bool all_whole = std::ranges::all_of(out[0].nest.accesses, [&](const Access& a) {
      const std::int64_t step = steps(out[0], a);
      return step == 0 || step == 1 || reads_all(out[0], a);
    });
    if (all_whole) return out;
  }
  return {};
}

namespace {
// Instructions that a nest must save in each iteration, so that other loops pay.
constexpr double kFewestSaved = 4;

bool interleaves(const Planned& p, std::int64_t each) {
  return p.nest.phases == each && p.nest.derived.empty() && !p.nest.has(Statement::Kind::Guard);
}
}  // namespace

std::vector<Planned> Planner::in_copies(std::vector<Planned> pieces) {
  if (in_sequence() || !std::ranges::all_of(pieces, [](const Planned& p) { return p.nest.kind == NestKind::Map; })) return {};
  const auto repeats = [](const Planned& p) {  // computes values that vary along inner loops again in an outer loop
    const std::uint64_t all = (std::uint64_t{1} << p.nest.loops()) - 1, inner = std::uint64_t{1} << p.nest.vector_loop();
    return std::ranges::any_of(p.nest.body,
                               [&](const Statement& s) { return s.kind == Statement::Kind::Op && s.loops & inner && s.loops != all; });
  };
  std::vector<std::vector<Loop>> loops = piece_loops_;
  bool found = false;
  while (!parts_together_.empty())
    if (const std::vector<Loop> parts = std::exchange(parts_together_, {}); try_loops(parts, pieces)) loops = piece_loops_, found = true;
  std::vector<Planned> out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::vector<Planned> piece;
    piece.push_back(std::move(pieces[i]));
    for (bool better = repeats(piece[0]); better;) {
      better = false;
      for (std::size_t k = 0; k + 1 < loops[i].size(); ++k) {
        if (loops[i][k].extent < 2 || loops[i][k].extent > kMostPhases || loops[i][k].phases != 1 || loops[i][k].begin != 0 ||
            loops[i][k].extent != loops[i][k].full)
          continue;
        std::vector<Loop> turned = loops[i];
        turned[k].phases = std::exchange(turned[k].extent, 1);
        if (!try_loops(turned, piece)) continue;
        loops[i] = piece_loops_[0];
        better = found = true;
      }
    }
    out.push_back(std::move(piece[0]));
  }
  return found ? std::move(out) : std::vector<Planned>{};
}

bool Planner::try_loops(const std::vector<Loop>& loops, std::vector<Planned>& pieces) {
  std::int64_t each = 1;
  for (const Loop& l : loops) each *= l.phases;
  if (each > kMostPhases) return false;
  std::vector<Planned> out = in_loops(loops);
  const auto fits = [&](const Planned& p) { return interleaves(p, each) && p.nest.body.size() <= kMostOfShortRow; };
  if (out.size() > pieces.size() || !std::ranges::all_of(out, fits)) return false;
  if (work_of_all(out) > work_of_all(pieces) - kFewestSaved / static_cast<double>(each)) return false;
  pieces = std::move(out);
  return true;
}

std::int64_t Planner::elements_of(const Planned& p) {
  std::int64_t elements = 1;
  for (const std::int64_t e : p.numbers.extents) elements *= e;
  return elements;
}

// Returns the instructions of an iteration.
double Planner::work_of(const Planned& p) {
  double n = 0;
  constexpr double kGathered = 8;  // elements of rows that are apart in memory
  for (const Statement& s : p.nest.body) {
    if (s.kind == Statement::Kind::Op) n += instructions_of(s.op);
    if (s.kind != Statement::Kind::Load) continue;
    const std::vector<std::int64_t>& by = p.numbers.coefficients[p.nest.accesses[s.at].linear];
    if (std::any_of(by.begin() + p.nest.loops(), by.end(), [](std::int64_t c) { return std::abs(c) > 1; })) n += kGathered;
  }
  return n;
}

// Returns the instructions for each index, on average.
double Planner::work_of_all(const std::vector<Planned>& pieces) {
  double work = 0, indices = 0;
  for (const Planned& p : pieces) {
    const auto iterations = static_cast<double>(elements_of(p));
    work += iterations * work_of(p);
    indices += iterations * static_cast<double>(p.nest.phases);
  }
  return work / indices;
}

double Planner::selections_in(const std::vector<Planned>& pieces) {
  double n = 0;
  for (const Planned& p : pieces) {
    const auto elements = static_cast<double>(elements_of(p));
    const auto selects = std::ranges::count_if(
        p.nest.body, [&](const Statement& s) { return s.kind == Statement::Kind::Guard && (s.loops >> p.nest.vector_loop() & 1); });
    n += elements * static_cast<double>(p.nest.derived.size() + static_cast<std::size_t>(selects));
  }
  return n;
}

bool Planner::ends_in_short_rows(const std::vector<Planned>& pieces) {
  if (pieces.size() != 1 || pieces[0].nest.kind != NestKind::Map || pieces[0].nest.phases != 1) return false;
  const std::vector<std::int64_t>& extents = pieces[0].numbers.extents;
  return extents.size() > 1 && extents.back() <= kShortRow && elements_of(pieces[0]) >= kPhaseElements;
}

std::vector<Planner::Loop> Planner::flattened() const {
  const Group& group = partition_.groups[group_];
  if (in_sequence() || group.domain.size() < 2) return {};
  std::int64_t n = 1;
  for (std::int64_t e : group.domain) n *= e;
  for (std::size_t r = 0; r < group.roots.size(); ++r) {
    std::uint8_t next = 0;
    for (const DomainAxes& axis : group.axes[r]) {
      if (axis.flipped || (axis.count && axis.first != next)) return {};
      next = static_cast<std::uint8_t>(next + axis.count);
    }
    if (next != group.domain.size()) return {};
  }
  return {{n, false, 0}};
}

std::vector<Planned> plan(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                          std::span<const Layout> targets) {
  if (partition.groups[group].routine) return plan_routine(graph, partition, group, layouts, targets);
  return Planner(graph, partition, group, layouts, targets).run();
}

}  // namespace onepass::compiler
