// Indices of a group: expressions of its loops, quotients where sums of loops do not suffice, and maps composed through views.
#include <fmt/format.h>

#include "compiler/plan/planner.h"

namespace onepass::compiler {

std::uint64_t Planner::reduced_by(NodeId id) const {
  const NodeId from = graph_.operand(id, 0);
  const List shape = graph_.shape(from), attributes = graph_.attributes(id);
  const std::vector<std::int64_t>& domain = partition_.groups[group_].domain;
  std::uint64_t mask = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    for (std::int64_t product = 1; product < shape[i] && next < domain.size(); product *= domain[next++])
      if (std::binary_search(attributes.begin(), attributes.end(), static_cast<std::int64_t>(i))) mask |= std::uint64_t{1} << next;
  return mask;
}

void Planner::range_of(const Expression& e, std::int64_t& low, std::int64_t& high) const {
  low = high = e.offset;
  for (const Term& t : e.terms) {
    std::int64_t a = 0, b = 0;
    if (t.variable < kFirstDerived) b = loops_[t.variable].extent - 1;
    else a = quotients_[t.variable - kFirstDerived].low, b = quotients_[t.variable - kFirstDerived].high;
    low += t.coefficient * (t.coefficient < 0 ? b : a);
    high += t.coefficient * (t.coefficient < 0 ? a : b);
  }
}

std::uint32_t Planner::quotient(const Expression& e, std::int64_t by, bool modulo) {
  const std::uint32_t id = expressions_(e);
  for (std::size_t i = 0; i < quotients_.size(); ++i)
    if (quotients_[i].place == ir::kNoNode && quotients_[i].expression == id && quotients_[i].by == by && quotients_[i].modulo == modulo)
      return kFirstDerived + static_cast<std::uint32_t>(i);
  Quotient q{id, by, modulo, 0, by - 1};
  if (!modulo) {
    range_of(e, q.low, q.high);
    q.low = floor_div(q.low, by), q.high = floor_div(q.high, by);
  }
  q.data = data_in(e);
  for (const Term& t : e.terms)
    q.loops |= t.variable < kFirstDerived ? std::uint64_t{1} << t.variable : quotients_[t.variable - kFirstDerived].loops;
  quotients_.push_back(q);
  return kFirstDerived + static_cast<std::uint32_t>(quotients_.size() - 1);
}

std::uint32_t Planner::data_variable(NodeId place, std::uint32_t map, std::int64_t extent) {
  for (std::size_t i = 0; i < quotients_.size(); ++i)
    if (quotients_[i].place == place && quotients_[i].map == map) return kFirstDerived + static_cast<std::uint32_t>(i);
  quotients_.push_back({expressions_(Expression{}), 1, false, 0, std::max<std::int64_t>(extent - 1, 0), place, map});
  return kFirstDerived + static_cast<std::uint32_t>(quotients_.size() - 1);
}

std::uint32_t Planner::at_places(NodeId id, std::uint32_t map) {
  const NodeId x = graph_.operand(id, 0), places = graph_.operand(id, 1);
  const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
  std::vector<std::uint32_t> out = maps_[map];
  out[axis] = expressions_(Expression{0, {{data_variable(places, map, graph_.shape(x)[axis]), 1}}});
  return maps_(out);
}

std::uint32_t Planner::data_in(const Expression& e) const {
  for (const Term& t : e.terms) {
    if (t.variable < kFirstDerived) continue;
    const Quotient& q = quotients_[t.variable - kFirstDerived];
    if (q.place != ir::kNoNode) return t.variable - kFirstDerived;
    if (q.data != kNone) return q.data;
  }
  return kNone;
}

std::uint32_t Planner::data_of(std::uint32_t map) const {
  const std::vector<std::uint32_t>& axes = maps_[map];
  for (std::size_t i = 0; i + 1 < axes.size(); ++i)
    if (const std::uint32_t q = data_in(expressions_[axes[i]]); q != kNone) return q;
  for (std::size_t i = 0; i < guards_[axes.back()].size(); i += 2)
    if (const std::uint32_t q = data_in(expressions_[guards_[axes.back()][i]]); q != kNone) return q;
  return kNone;
}

void Planner::want(Wanted what, std::uint32_t loop, std::int64_t at, bool phases) {
  if (wanted_ != Wanted::Nothing) return;
  wanted_ = what;
  wanted_loop_ = loop;
  wanted_at_ = at;
  wanted_phases_ = phases;
}

bool Planner::is_last_whole(std::uint32_t loop) const {
  const Loop& l = loops_[loop];
  return loop + 1 == loops_.size() && !in_sequence() && l.phases == 1 && l.begin == 0 && l.extent == l.full;
}

void Planner::divide_terms(const Expression& e, std::int64_t by, Expression& q, Expression& r) {
  q = r = {};
  q.offset = floor_div(e.offset, by);
  r.offset = e.offset - q.offset * by;
  for (const Term& t : e.terms) {
    const std::int64_t whole = floor_div(t.coefficient, by), rest = t.coefficient - whole * by;
    if (whole) q.terms.push_back({t.variable, whole});
    if (rest) r.terms.push_back({t.variable, rest});
  }
}

void Planner::divide(const Expression& e, std::int64_t by, Expression& q, Expression& r, std::int64_t interleaved) {
  divide_terms(e, by, q, r);
  std::int64_t low, high;
  range_of(r, low, high);
  if (low >= 0 && high < by) return;
  for (const Term& t : r.terms) {
    if (t.variable >= kFirstDerived || by % t.coefficient != 0) continue;
    const Loop& l = loops_[t.variable];
    const std::int64_t inner = by / t.coefficient;
    if (l.phases != 1) continue;
    if (inner == interleaved && is_last_whole(t.variable)) return want(Wanted::Split, t.variable, inner, true);
    if (!flat_ && !(keeps_whole_ && l.reduced) && inner < l.extent && l.extent % inner == 0 && l.full % inner == 0 && l.begin % inner == 0)
      return want(Wanted::Split, t.variable, inner);
  }
  const Expression rest = r;
  add(q, Expression{0, {{quotient(rest, by, false), 1}}}, 1);
  r = Expression{0, {{quotient(rest, by, true), 1}}};
}

std::uint32_t Planner::along(const std::vector<std::uint32_t>& loops, std::int64_t phase) {
  Expression x;
  std::int64_t stride = 1;
  for (std::size_t k = loops.size(); k-- > 0;) {
    const Loop& l = loops_[loops[k]];
    x.offset += stride * (l.begin + phase_of(loops[k], phase));
    if (l.extent != 1) x.terms.insert(x.terms.begin(), {loops[k], stride * l.phases});
    stride *= l.full;
  }
  return expressions_(x);
}

std::uint32_t Planner::map_of_root(std::size_t root, std::int64_t phase) {
  std::vector<std::uint32_t> out;
  std::uint32_t guard = 0;
  if (phases() > 1) {  // the last iteration may have fewer indices
    std::vector<std::uint32_t> last = {static_cast<std::uint32_t>(loops_.size() - 1)};
    guard = *with_guard(0, expressions_[along(last, phase)], loops_.back().full);
  }
  if (flat_) {
    const std::uint32_t position = along({0}, phase);
    const List shape = graph_.shape(partition_.groups[group_].roots[root]);
    out.resize(shape.size());
    if (!spread(expressions_[position], shape, 0, shape.size(), out)) return 0;
    out.push_back(guard);
    const std::uint32_t map = maps_(out);
    position_of_[map_in(graph_[partition_.groups[group_].roots[root]].shape, map)] = position;
    return map;
  }
  out = axes_of_root(root, phase);
  out.push_back(guard);
  return maps_(out);
}

std::vector<std::uint32_t> Planner::axes_of_root(std::size_t root, std::int64_t phase) {
  std::vector<std::uint32_t> out;
  for (const DomainAxes& axis : partition_.groups[group_].axes[root]) {
    std::vector<std::uint32_t> mine;
    for (std::uint32_t l = 0; l < loops_.size(); ++l)
      if (loops_[l].axis >= axis.first && loops_[l].axis < axis.first + axis.count) mine.push_back(l);
    out.push_back(along(mine, phase));
    if (!axis.flipped) continue;
    Expression backwards{-1, {}};
    for (const std::uint32_t l : mine) backwards.offset *= loops_[l].full;
    backwards.offset = -backwards.offset - 1;
    add(backwards, expressions_[out.back()], -1);
    out.back() = expressions_(backwards);
  }
  return out;
}

std::vector<std::uint32_t> Planner::axes_of_operand(NodeId node) {
  std::vector<std::uint32_t> out;
  std::size_t next = 0;
  for (std::int64_t e : graph_.shape(node)) {
    std::vector<std::uint32_t> mine;
    std::int64_t product = 1;
    while (product != e && next < loops_.size()) {
      product *= loops_[next].extent;
      mine.push_back(static_cast<std::uint32_t>(next++));
    }
    if (product != e)
      throw InternalError(fmt::format("plan: the axes of %{} do not match the loops of its group\n{}", node, ir::print(graph_)));
    out.push_back(along(mine));
  }
  return out;
}

std::optional<std::uint32_t> Planner::with_guard(std::uint32_t guard, const Expression& e, std::int64_t bound) {
  std::int64_t low, high;
  range_of(e, low, high);
  if (low >= 0 && high < bound) return guard;
  std::vector<std::uint32_t> checks = guards_[guard];
  std::int64_t begin = -e.offset, end = bound - e.offset;  // bounds on the sum of the terms
  std::size_t at = 0;
  for (; at < checks.size(); at += 2) {
    const Expression& other = expressions_[checks[at]];
    if (other.terms != e.terms) continue;
    const std::int64_t from = -other.offset, to = bounds_[checks[at + 1]] - other.offset;
    if (from >= begin && to <= end) return guard;
    begin = std::max(begin, from), end = std::min(end, to);
    break;
  }
  if (begin >= end) return {};
  std::size_t b = 0;
  while (b < bounds_.size() && bounds_[b] != end - begin) ++b;
  if (b == bounds_.size()) bounds_.push_back(end - begin);
  if (at == checks.size()) checks.resize(at + 2);
  checks[at] = expressions_(Expression{-begin, e.terms});
  checks[at + 1] = static_cast<std::uint32_t>(b);
  return guards_(checks);
}

bool Planner::spread(Expression linear, List shape, std::size_t first, std::size_t end, std::vector<std::uint32_t>& out,
                     std::int64_t interleaved) {
  for (std::size_t k = end; k-- > first;) {
    bool last = true;  // the outermost axis takes the remainder
    for (std::size_t o = first; o < k; ++o) last &= shape[o] == 1;
    if (shape[k] == 1) {
      out[k] = expressions_(Expression{});
    } else if (last) {
      out[k] = expressions_(linear);
      linear = {};
    } else {
      Expression q, r;
      divide(linear, shape[k], q, r, k + 1 == end ? interleaved : 0);
      if (wanted_ != Wanted::Nothing) return false;
      out[k] = expressions_(r);
      linear = q;
    }
  }
  return true;
}

std::int64_t Planner::alternating_boxes(NodeId id) const {
  while (ir::is_view(graph_[id].op)) id = graph_.operand(id, 0);
  if (graph_[id].op != Op::Piecewise || in_memory(id)) return 0;
  const List shape = graph_.shape(id), attributes = graph_.attributes(id), operands = graph_.operands(id);
  const std::size_t rank = shape.size(), boxes = attributes.size() / (2 * rank);
  if (boxes < 2 || boxes > static_cast<std::size_t>(kMostPhases) || boxes != operands.size() ||
      shape.back() != static_cast<std::int64_t>(boxes))
    return 0;
  for (std::int64_t o : operands)
    if (graph_.shape(static_cast<NodeId>(o)).back() != 1) return 0;
  return shape.back();
}

std::uint32_t Planner::compose(NodeId id, std::uint32_t map) {
  const Node node = graph_[id];
  const NodeId from = graph_.operand(id, 0);
  const List shape = graph_.list(node.shape), was = graph_.shape(from), attributes = graph_.attributes(id);
  std::vector<std::uint32_t> axes = maps_[map], out(was.size() + 1);
  std::uint32_t guard = axes.back();
  const auto zero = [&] { return expressions_(Expression{}); };
  switch (node.op) {
    case Op::Permute:
      for (std::size_t i = 0; i < shape.size(); ++i) out[static_cast<std::size_t>(attributes[i])] = axes[i];
      break;
    case Op::Broadcast:
      for (std::size_t i = 0; i < shape.size(); ++i) out[i] = was[i] == 1 ? zero() : axes[i];
      break;
    case Op::Slice:
      for (std::size_t i = 0; i < shape.size(); ++i) {
        Expression e;
        e.offset = attributes[i];
        add(e, expressions_[axes[i]], attributes[shape.size() + i]);
        out[i] = expressions_(e);
      }
      break;
    case Op::Diagonal: {
      const std::int64_t offset = attributes[0];
      const auto axis1 = static_cast<std::size_t>(attributes[1]), axis2 = static_cast<std::size_t>(attributes[2]);
      std::size_t k = 0;
      for (std::size_t i = 0; i < was.size(); ++i)
        if (i != axis1 && i != axis2) out[i] = axes[k++];
      Expression row = expressions_[axes[k]], column = row;
      row.offset += std::max<std::int64_t>(0, -offset);
      column.offset += std::max<std::int64_t>(0, offset);
      out[axis1] = expressions_(row);
      out[axis2] = expressions_(column);
      break;
    }
    case Op::Window: {
      const auto axis = static_cast<std::size_t>(attributes[0]);
      for (std::size_t i = 0; i < was.size(); ++i)
        if (i != axis) out[i] = axes[i + (i > axis)];
      Expression e;
      add(e, expressions_[axes[axis]], attributes[2]);
      add(e, expressions_[axes[axis + 1]], attributes[1]);
      out[axis] = expressions_(e);
      break;
    }
    case Op::Reshape: {
      if (graph_.elements(from) == 0) {  // empty operand: a pad around it has a predicate that is always false
        for (std::size_t k = 0; k < was.size(); ++k) out[k] = zero();
        break;
      }
      const std::int64_t interleaved = alternating_boxes(from);
      if (const auto position = position_of_.find(map_in(node.shape, map)); position != position_of_.end()) {
        if (!spread(expressions_[position->second], was, 0, was.size(), out, interleaved)) return 0;
        out.back() = guard;
        const std::uint32_t composed = maps_(out);
        position_of_[map_in(graph_[from].shape, composed)] = position->second;
        return composed;
      }
      std::size_t i = 0, j = 0;
      while (i < shape.size() || j < was.size()) {  // runs of axes with equal products
        const std::size_t i0 = i, j0 = j;
        std::int64_t a = i < shape.size() ? shape[i++] : 1, b = j < was.size() ? was[j++] : 1;
        while (a != b)
          if (a < b) a *= shape[i++];
          else b *= was[j++];
        if (i - i0 == 1 && j - j0 == 1) {
          out[j0] = axes[i0];
          continue;
        }
        Expression linear;
        std::int64_t stride = 1;
        for (std::size_t k = i; k-- > i0; stride *= shape[k]) add(linear, expressions_[axes[k]], stride);
        if (!spread(linear, was, j0, j, out, interleaved)) return 0;
      }
      break;
    }
    default: throw InternalError("plan: the operator is not a view");
  }
  out.back() = guard;
  return maps_(out);
}

}  // namespace onepass::compiler
