// Relates indices to the boxes of a Pad or a Piecewise, cuts loops at the edges of boxes, and selects between boxes.
#include <unordered_set>

#include "compiler/plan/costs.h"
#include "compiler/plan/planner.h"
#include "compiler/read_map.h"

namespace onepass::compiler {

std::size_t Planner::count_boxes(NodeId id) const {
  const std::size_t rank = graph_.shape(id).size();
  return rank == 0 ? 1 : graph_.attributes(id).size() / (2 * rank);
}

Planner::Box Planner::box_of(NodeId id, std::size_t k) const {
  const List attributes = graph_.attributes(id);
  const std::size_t rank = graph_.shape(id).size(), at = 2 * rank * k;
  return {graph_.operand(id, static_cast<int>(k)), attributes.subspan(at, rank), attributes.subspan(at + rank, rank)};
}

Planner::Lies Planner::compose_box(const Box& box, std::uint32_t map, std::uint32_t& operand_map) {
  const std::vector<std::uint32_t> axes = maps_[map];
  const List was = graph_.shape(box.operand);
  std::vector<std::uint32_t> out(was.size() + 1);
  std::uint32_t guard = axes.back();
  Lies lies = Lies::Inside;
  const auto narrow = [&](const Expression& e, std::int64_t bound) {
    std::int64_t low, high;
    range_of(e, low, high);
    if (high < 0 || low >= bound) return false;
    const std::optional<std::uint32_t> narrower = with_guard(guard, e, bound);
    if (!narrower) return false;
    if (*narrower != guard) lies = Lies::Partly;  // else the box contains every index at which the value is needed
    guard = *narrower;
    return true;
  };
  for (std::size_t i = 0; i < was.size(); ++i) {
    const std::int64_t start = box.start[i], step = box.step[i];
    Expression e;
    e.offset = step > 0 ? -start : start;
    add(e, expressions_[axes[i]], step > 0 ? 1 : -1);
    const std::int64_t by = step > 0 ? step : -step;
    if (by != 1) {
      std::int64_t low, high;
      range_of(e, low, high);
      if (high < 0 || low > (was[i] - 1) * by) return Lies::Outside;
      if (const std::uint32_t loop = loop_to_interleave(e, by); loop != kNone) {
        want(Wanted::Split, loop, by, true);
        return Lies::Partly;
      }
      Expression q, r;
      divide_terms(e, by, q, r);
      range_of(r, low, high);
      const std::int64_t first = -floor_div(-low, by) * by;  // the multiple of `by` that is reached first
      if (first > high) return Lies::Outside;
      if (first + by > high) {  // the only multiple
        q.offset += first / by, r.offset -= first;
      } else {
        divide(e, by, q, r);
        if (wanted_ != Wanted::Nothing) return Lies::Partly;
      }
      if (!narrow(r, 1)) return Lies::Outside;
      e = q;
    }
    if (!narrow(e, was[i])) return Lies::Outside;
    out[i] = expressions_(e);
  }
  out.back() = guard;
  operand_map = maps_(out);
  return lies;
}

// A loop whose iterations compute `by` indices each needs no predicate for the box: each of the indices is inside or outside.
std::uint32_t Planner::loop_to_interleave(const Expression& e, std::int64_t by) {
  if (by > kMostPhases || flat_ || e.terms.size() != 1 || e.terms[0].variable >= kFirstDerived || std::abs(e.terms[0].coefficient) != 1)
    return kNone;
  const std::uint32_t loop = e.terms[0].variable;
  if (!is_last_whole(loop) || loops_[loop].extent < 2 * by) return kNone;
  return nodes_in_group() * static_cast<std::size_t>(by) <= kMostOfPhases ? loop : kNone;
}

std::vector<std::uint32_t> Planner::pieces_of(NodeId id, std::uint32_t map) {
  const std::size_t boxes = count_boxes(id);
  std::vector<std::uint32_t> out(graph_.operands(id).size(), kNone);
  std::vector<std::size_t> met;
  bool elsewhere = out.size() > boxes;
  struct Range {
    std::int64_t low, high;
  };
  std::vector<Range> needed(graph_.shape(id).size());
  for (std::size_t i = 0; i < needed.size(); ++i) range_of(expressions_[maps_[map][i]], needed[i].low, needed[i].high);
  const auto is_apart = [&](const Box& box) {  // most of many boxes are, when the loops are cut
    for (std::size_t i = 0; i < box.start.size(); ++i) {
      const std::int64_t first = box.start[i], last = first + (graph_.shape(box.operand)[i] - 1) * box.step[i];
      if (std::max(first, last) < needed[i].low || std::min(first, last) > needed[i].high) return true;
    }
    return false;
  };
  for (std::size_t k = 0; k < boxes; ++k) {
    const Box box = box_of(id, k);
    if (is_apart(box) && graph_.elements(box.operand) != 0) continue;
    std::uint32_t operand_map = kNone;
    const Lies lies = compose_box(box, map, operand_map);
    if (wanted_ != Wanted::Nothing) return out;
    if (lies == Lies::Outside) continue;
    out[k] = operand_map;
    met.push_back(k);
    if (lies != Lies::Inside) continue;
    out.assign(out.size(), kNone);  // only this box is needed
    out[k] = operand_map;
    return out;
  }
  const bool has_zero = graph_[id].op == Op::Pad;
  if (met.size() + (elsewhere || has_zero) > 1) cut_between(id, map, met);
  if (elsewhere) out.back() = maps_({maps_[map].back()});
  return out;
}

void Planner::cut_between(NodeId id, std::uint32_t map, const std::vector<std::size_t>& met) {
  if (in_sequence() || pieces_ >= kMostPieces) return;
  const std::vector<std::uint32_t> axes = maps_[map];
  const std::int64_t alternating = alternating_boxes(id);
  if (alternating) {
    const Expression& e = expressions_[axes[axes.size() - 2]];
    if (e.offset == 0 && e.terms.size() == 1 && e.terms[0].coefficient == 1 && e.terms[0].variable < kFirstDerived &&
        is_last_whole(e.terms[0].variable) && loops_[e.terms[0].variable].full == alternating)
      return want(Wanted::Split, e.terms[0].variable, alternating, true);
  }
  if (pieces_ == 1 && parts_together_.empty()) note_equal_parts(id, axes);
  std::int64_t elements = 1;
  for (const Loop& l : loops_) elements *= l.extent;
  const bool few = count_boxes(id) <= kFewBoxes;
  const bool is_small = few && elements < kPieceElements && static_cast<double>(elements) * work_of_boxes(id) < kPieceElements * kPieceWork;
  if (is_small || (few && cuts_ == Cuts::None)) return;
  std::uint32_t best = kNone;
  std::vector<std::int64_t> best_cuts;
  for (std::size_t i = 0; i + 1 < axes.size(); ++i) {
    const Expression& e = expressions_[axes[i]];
    if (e.terms.size() != 1 || std::abs(e.terms[0].coefficient) != 1 || e.terms[0].variable >= kFirstDerived) continue;
    const std::uint32_t loop = e.terms[0].variable;
    if (loops_[loop].phases != 1 || loop >= best) continue;
    std::vector<std::int64_t> cuts;
    for (const std::size_t k : met) {
      const Box box = box_of(id, k);
      const std::int64_t last = box.start[i] + (graph_.shape(box.operand)[i] - 1) * box.step[i];
      for (const std::int64_t edge : {std::min(box.start[i], last), std::max(box.start[i], last) + 1}) {
        const std::int64_t at = e.terms[0].coefficient == 1 ? edge - e.offset : e.offset - edge + 1;
        if (at > 0 && at < loops_[loop].extent) cuts.push_back(at);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (few && cuts_ == Cuts::Longest) keep_longest(cuts, loops_[loop].extent);
    if (cuts.empty()) continue;
    const bool rows = loop + 1 == loops_.size() && loops_.size() > 1;  // for short rows, selection costs less than separate stores
    if (few && rows && loops_[loop].extent < kPieceRow * static_cast<std::int64_t>(cuts.size() + 1)) continue;
    best = loop;
    best_cuts = std::move(cuts);
  }
  if (best != kNone) want(Wanted::Cut, best, best_cuts[best_cuts.size() / 2]);
}

double Planner::work_of_boxes(NodeId id) const {
  double work = 0;
  std::vector<NodeId> open = {id};
  std::unordered_set<NodeId> met = {id};
  while (!open.empty() && work <= static_cast<double>(kPieceElements) * kPieceWork) {
    const NodeId at = open.back();
    open.pop_back();
    if (at != id && in_memory(at)) continue;
    if (ir::is_elementwise(graph_[at].op)) work += instructions_of(graph_[at].op);
    for (const std::int64_t o : partition_.operands(graph_, at, group_))
      if (met.insert(static_cast<NodeId>(o)).second) open.push_back(static_cast<NodeId>(o));
  }
  return work;
}

void Planner::note_equal_parts(NodeId id, const std::vector<std::uint32_t>& axes) {
  for (std::size_t i = 0; i + 1 < axes.size(); ++i) {
    const std::int64_t part = parts_of_axis(graph_, id, i);
    const Expression& e = expressions_[axes[i]];
    if (part == 0 || e.offset != 0 || e.terms.size() != 1 || e.terms[0].coefficient != 1 || e.terms[0].variable >= kFirstDerived) continue;
    const std::uint32_t loop = e.terms[0].variable;
    const Loop& whole = loops_[loop];
    if (whole.phases != 1 || whole.begin != 0 || whole.extent != graph_.shape(id)[i]) continue;
    parts_together_ = loops_;
    Loop& parts = parts_together_[loop];
    parts.phases = parts.full = whole.extent / part;
    parts.extent = 1;
    parts_together_.insert(parts_together_.begin() + loop + 1, Loop{part, whole.reduced, whole.axis});
    return;
  }
}

// Keeps only the cuts at the ends of the longest part. Clears all cuts if that part is shorter than half of the loop.
void Planner::keep_longest(std::vector<std::int64_t>& cuts, std::int64_t extent) {
  std::int64_t begin = 0, end = 0;
  for (std::size_t k = 0; k <= cuts.size(); ++k) {
    const std::int64_t from = k == 0 ? 0 : cuts[k - 1], to = k == cuts.size() ? extent : cuts[k];
    if (to - from > end - begin) begin = from, end = to;
  }
  if (2 * (end - begin) < extent) cuts.clear();
  std::erase_if(cuts, [&](std::int64_t at) { return at != begin && at != end; });
}

std::uint32_t Planner::joined(NodeId id, const Demand& d) {
  const std::size_t boxes = count_boxes(id);
  const std::uint32_t outer = maps_[d.map].back();
  std::uint32_t value = kNone;
  if (d.piece_maps.size() > boxes && d.piece_maps.back() != kNone)
    value = value_of(static_cast<NodeId>(graph_.operands(id)[boxes]), d.piece_maps.back());
  for (std::size_t k = 0; k < boxes; ++k) {
    if (d.piece_maps[k] == kNone) continue;
    const std::uint32_t mine = value_of(static_cast<NodeId>(graph_.operands(id)[k]), d.piece_maps[k]),
                        inner = maps_[d.piece_maps[k]].back();
    if (inner == outer) return mine;
    static_cast<void>(data_statement(d.piece_maps[k]));  // the checks of the predicate may need it
    const std::uint32_t guard = guard_statement(inner);
    if (value == kNone && graph_[id].op == Op::Pad) {
      if (body_[mine].kind == Statement::Kind::Load && body_[mine].guard == guard) return mine;  // a predicated load already gives 0
      value = zero(computed_type(graph_[id].dtype));
    }
    if (value == kNone) {
      value = mine;
      continue;
    }
    Statement s{};
    s.kind = Statement::Kind::Op;
    s.op = Op::Where;
    s.dtype = computed_type(graph_[id].dtype);
    s.a = guard;
    s.b = mine;
    s.c = value;
    s.stage = std::max(body_[mine].stage, body_[value].stage);
    s.loops = body_[guard].loops | body_[mine].loops | body_[value].loops;
    value = emit(s);
  }
  return value == kNone ? zero(computed_type(graph_[id].dtype)) : value;
}

}  // namespace onepass::compiler
