// plan: see plan.h.
//
//   y[i, j] = x[j, i] * w[i]          loops i, j
//     load x {j: 4096, i: 1}; load w {i: 1}; op mul; store y {i: 4096, j: 1}
//
// A value is computed once for each (node, map): the map says, for each axis of the node, which element the loops' indices mean. Maps are
// composed through views from the stored values back to loads. An index that is no sum of loop indices (an unaligned reshape) first asks
// to split a loop where the lengths factor, and becomes a derived variable (a quotient or a remainder) where they do not.
#include "compiler/plan/plan.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/order.h"
#include "onepass/error.h"

namespace onepass::compiler {
namespace {

using ir::Graph;
using ir::List;
using ir::Node;
using ir::NodeId;
using ir::Op;
constexpr std::uint32_t kNone = Statement::kNone;

struct Term {
  std::uint32_t variable;
  std::int64_t coefficient;
  bool operator==(const Term&) const = default;
};
struct Expression {
  std::int64_t offset = 0;
  std::vector<Term> terms;  // by variable, no zero coefficients
  bool operator==(const Expression&) const = default;
};

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 31);
}
struct HashExpression {
  std::size_t operator()(const Expression& e) const {
    std::uint64_t h = static_cast<std::uint64_t>(e.offset);
    for (const Term& t : e.terms) h = mix(mix(h, t.variable), static_cast<std::uint64_t>(t.coefficient));
    return h;
  }
};
struct HashList {
  std::size_t operator()(const std::vector<std::uint32_t>& v) const {
    std::uint64_t h = v.size();
    for (std::uint32_t x : v) h = mix(h, x);
    return h;
  }
};

// Equal values get one small number.
template <class T, class Hash> class Interner {
 public:
  std::uint32_t operator()(const T& value) {
    const auto [it, fresh] = ids_.try_emplace(value, static_cast<std::uint32_t>(values_.size()));
    if (fresh) values_.push_back(&it->first);
    return it->second;
  }
  const T& operator[](std::uint32_t id) const { return *values_[id]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }

 private:
  std::unordered_map<T, std::uint32_t, Hash> ids_;
  std::vector<const T*> values_;
};

void add(Expression& to, const Expression& e, std::int64_t factor) {
  to.offset += e.offset * factor;
  for (const Term& t : e.terms) {
    auto it = std::lower_bound(to.terms.begin(), to.terms.end(), t.variable, [](const Term& a, std::uint32_t v) { return a.variable < v; });
    if (it != to.terms.end() && it->variable == t.variable) {
      it->coefficient += t.coefficient * factor;
      if (it->coefficient == 0) to.terms.erase(it);
    } else if (t.coefficient * factor != 0) {
      to.terms.insert(it, {t.variable, t.coefficient * factor});
    }
  }
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

class Planner {
 public:
  Planner(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
          std::span<const Layout> targets)
      : graph_(graph), partition_(partition), group_(group), layouts_(layouts), targets_(targets) {
    const Group& g = partition.groups[group];
    for (std::size_t i = 0; i < g.domain.size(); ++i)
      loops_.push_back({g.domain[i], ((g.reduced | g.ordered) >> i & 1) != 0, static_cast<std::uint8_t>(i)});
  }

  std::vector<Planned> run() {
    const std::vector<NodeId>& roots = partition_.groups[group_].roots;
    for (std::size_t r = 0; r < roots.size(); ++r)
      if (graph_.elements(roots[r]) != 0) roots_.push_back(r);  // of others there is nothing to store
    for (const Loop& l : loops_)
      if (l.extent == 0 && partition_.groups[group_].ordered >> l.axis & 1) return {};  // nothing is added to what stands there
    if (roots_.empty()) return {};
    const std::vector<Loop> all = loops_;
    std::vector<Planned> pieces = in_loops(all);
    if (scan_is_split_) {  // it runs along one loop
      keeps_whole_ = true;
      pieces = in_loops(all);
    }
    const std::vector<Loop> flat = flattened();
    if (flat.empty()) return pieces;
    const bool short_rows = ends_in_short_rows(pieces);
    if (derived_in(pieces) == 0 && !short_rows) return pieces;
    std::vector<Planned> other = in_loops(flat);
    if (short_rows && other.size() == 1 && other[0].nest.short_rows) return other;
    return derived_in(other) < derived_in(pieces) ? other : pieces;
  }

 private:
  struct Loop {
    std::int64_t extent;
    bool reduced;                // or run in sequence
    std::uint8_t axis;           // of the group's domain
    std::int64_t full = extent;  // of the axis: the loop runs from `begin` on where it was cut
    std::int64_t begin = 0;
    std::int64_t phases = 1;  // indices that one iteration computes: iteration i has i*phases and those behind it
  };
  struct Demand {
    std::uint32_t map, operand_map;
    std::uint32_t statement = kNone;
    std::uint32_t like = kNone;             // another demand of the node, which differs by a weaker guard alone: its value will do
    std::uint32_t data = kNone;             // of a Gather and a ScatterAdd: the map of x
    std::vector<std::uint32_t> piece_maps;  // of a Piecewise, of each operand; kNone where it is not needed
  };
  // What a build met: nothing, or a reason to begin again in other loops.
  enum class Wanted : std::uint8_t { Nothing, Split, Cut };
  struct Quotient {  // or the value of `place` at `map`
    std::uint32_t expression;
    std::int64_t by;
    bool modulo;
    std::int64_t low, high;
    NodeId place = ir::kNoNode;
    std::uint32_t map = 0;
  };

  const Graph& graph_;
  const Partition& partition_;
  std::uint32_t group_;
  std::span<const Layout> layouts_, targets_;
  std::vector<Loop> loops_;
  Wanted wanted_ = Wanted::Nothing;
  std::uint32_t wanted_loop_ = 0;
  std::int64_t wanted_at_ = 0;  // Split: the inner loop's extent; Cut: where the second part begins
  bool wanted_phases_ = false;  // Split: the inner indices are phases of one iteration
  std::size_t pieces_ = 1;      // that the loops are cut into so far
  bool keeps_whole_ = false;    // the loop of a scan is not split
  bool scan_is_split_ = false;  // it was, and the parts could not be merged again
  bool flat_ = false;           // one loop runs through the roots' elements
  static constexpr std::size_t kMostPieces = 1 << 14;
  static constexpr std::int64_t kMostPhases = 8;
  static constexpr std::size_t kFewBoxes = 4;
  // A vector loop of fewer elements is not worth its tail; below so many elements in all, patterns are not worth making.
  static constexpr std::int64_t kShortRowElements = 4096;
  static constexpr std::int64_t kPieceElements = 4096, kPieceRow = 64;  // below these, boxes are chosen between element by element

  bool in_sequence() const { return (partition_.groups[group_].reduced | partition_.groups[group_].ordered) != 0; }
  std::int64_t phases() const { return loops_.empty() ? 1 : loops_.back().phases; }

  // The pieces of an iteration space.
  std::vector<Planned> in_loops(const std::vector<Loop>& loops) {
    std::vector<Planned> out;
    pieces_ = 1;
    flat_ = loops.size() == 1 && partition_.groups[group_].domain.size() > 1;
    std::vector<std::vector<Loop>> open = {loops};
    while (!open.empty()) {
      loops_ = std::move(open.back());
      open.pop_back();
      build();
      while (wanted_ == Wanted::Split) {  // begin again with one loop more
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
      finish(out.emplace_back());
    }
    return out;
  }

  static std::size_t derived_in(const std::vector<Planned>& pieces) {
    std::size_t n = 0;
    for (const Planned& p : pieces) n += p.nest.derived.size();
    return n;
  }

  // Is it a map whose last loop is too short for vectors, within enough others?
  static bool ends_in_short_rows(const std::vector<Planned>& pieces) {
    if (pieces.size() != 1 || pieces[0].nest.kind != NestKind::Map || pieces[0].nest.phases != 1) return false;
    const std::vector<std::int64_t>& extents = pieces[0].numbers.extents;
    std::int64_t elements = 1;
    for (const std::int64_t e : extents) elements *= e;
    return extents.size() > 1 && extents.back() <= kShortRow && elements >= kShortRowElements;
  }

  // One loop through all elements, where every root is a map stored in that order; none otherwise.
  std::vector<Loop> flattened() const {
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

  Interner<Expression, HashExpression> expressions_;
  Interner<std::vector<std::uint32_t>, HashList> maps_;    // axes' expressions, then the guard
  Interner<std::vector<std::uint32_t>, HashList> guards_;  // pairs (expression, bound index)
  std::vector<Quotient> quotients_;
  std::vector<std::int64_t> bounds_;
  std::unordered_map<NodeId, std::vector<Demand>> demands_;
  std::vector<NodeId> visited_;
  std::vector<std::size_t> roots_;                                // which of the group's have elements
  std::vector<std::uint32_t> root_maps_;                          // of each of these, of each phase
  std::unordered_map<std::uint64_t, std::uint32_t> position_of_;  // flat: of a map of a shape, the position in row-major order

  static std::uint64_t map_in(ir::ListId shape, std::uint32_t map) { return std::uint64_t{shape} << 32 | map; }

  std::vector<Statement> body_;
  std::vector<std::uint32_t> access_expressions_, access_buffers_;
  std::vector<std::uint32_t> check_expressions_;
  std::vector<std::int64_t> check_bounds_;
  std::vector<std::uint32_t> index_expressions_;
  std::vector<BufferInfo> buffers_;
  std::vector<NodeId> buffer_nodes_;
  std::vector<std::int32_t> buffer_outputs_;
  std::vector<std::uint32_t> slots_;
  std::vector<DType> slot_types_;
  std::optional<ir::SumOrder> order_;  // of the float sums
  NodeId ordered_ = ir::kNoNode;
  bool scans_in_groups_ = false;

  bool has_columns_ = false;  // reductions over the axes that the group's others keep

  // The axes of the group's domain that a reduction reduces: its operand has all of them, in their order.
  std::uint64_t reduced_by(NodeId id) const {
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

  static constexpr std::uint32_t kFirstDerived = 1u << 16;

  void range_of(const Expression& e, std::int64_t& low, std::int64_t& high) const {
    low = high = e.offset;
    for (const Term& t : e.terms) {
      std::int64_t a = 0, b = 0;
      if (t.variable < kFirstDerived) b = loops_[t.variable].extent - 1;
      else a = quotients_[t.variable - kFirstDerived].low, b = quotients_[t.variable - kFirstDerived].high;
      low += t.coefficient * (t.coefficient < 0 ? b : a);
      high += t.coefficient * (t.coefficient < 0 ? a : b);
    }
  }

  std::uint32_t quotient(const Expression& e, std::int64_t by, bool modulo) {
    const std::uint32_t id = expressions_(e);
    for (std::size_t i = 0; i < quotients_.size(); ++i)
      if (quotients_[i].place == ir::kNoNode && quotients_[i].expression == id && quotients_[i].by == by && quotients_[i].modulo == modulo)
        return kFirstDerived + static_cast<std::uint32_t>(i);
    std::int64_t low, high;
    range_of(e, low, high);
    if (modulo) quotients_.push_back({id, by, modulo, 0, by - 1, ir::kNoNode, 0});
    else quotients_.push_back({id, by, modulo, floor_div(low, by), floor_div(high, by), ir::kNoNode, 0});
    return kFirstDerived + static_cast<std::uint32_t>(quotients_.size() - 1);
  }

  // The index that data bring: the value of that node at that map, below the extent of the axis.
  std::uint32_t data_variable(NodeId place, std::uint32_t map, std::int64_t extent) {
    for (std::size_t i = 0; i < quotients_.size(); ++i)
      if (quotients_[i].place == place && quotients_[i].map == map) return kFirstDerived + static_cast<std::uint32_t>(i);
    quotients_.push_back({expressions_(Expression{}), 1, false, 0, std::max<std::int64_t>(extent - 1, 0), place, map});
    return kFirstDerived + static_cast<std::uint32_t>(quotients_.size() - 1);
  }
  // The map of what is indexed by data, from that of the places.
  std::uint32_t at_places(NodeId id, std::uint32_t map) {
    const NodeId x = graph_.operand(id, 0), places = graph_.operand(id, 1);
    const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
    std::vector<std::uint32_t> out = maps_[map];
    out[axis] = expressions_(Expression{0, {{data_variable(places, map, graph_.shape(x)[axis]), 1}}});
    return maps_(out);
  }
  // The data variable that a map holds, if any: what is gathered lies in memory, so that there is one at most.
  std::uint32_t data_in(const Expression& e) const {
    for (const Term& t : e.terms) {
      if (t.variable < kFirstDerived) continue;
      const Quotient& q = quotients_[t.variable - kFirstDerived];
      if (q.place != ir::kNoNode) return t.variable - kFirstDerived;
      if (const std::uint32_t inner = data_in(expressions_[q.expression]); inner != kNone) return inner;
    }
    return kNone;
  }
  std::uint32_t data_of(std::uint32_t map) const {
    const std::vector<std::uint32_t>& axes = maps_[map];
    for (std::size_t i = 0; i + 1 < axes.size(); ++i)
      if (const std::uint32_t q = data_in(expressions_[axes[i]]); q != kNone) return q;
    for (std::size_t i = 0; i < guards_[axes.back()].size(); i += 2)
      if (const std::uint32_t q = data_in(expressions_[guards_[axes.back()][i]]); q != kNone) return q;
    return kNone;
  }

  void want(Wanted what, std::uint32_t loop, std::int64_t at, bool phases = false) {
    if (wanted_ != Wanted::Nothing) return;
    wanted_ = what;
    wanted_loop_ = loop;
    wanted_at_ = at;
    wanted_phases_ = phases;
  }
  // May the iterations of this loop compute several indices each?
  bool is_last_whole(std::uint32_t loop) const {
    const Loop& l = loops_[loop];
    return loop + 1 == loops_.size() && !in_sequence() && l.phases == 1 && l.begin == 0 && l.extent == l.full;
  }

  // e = by * q + r, 0 <= r < by. `interleaved`: so many boxes alternate along the axis of r.
  void divide(const Expression& e, std::int64_t by, Expression& q, Expression& r, std::int64_t interleaved = 0) {
    q = r = {};
    q.offset = floor_div(e.offset, by);
    r.offset = e.offset - q.offset * by;
    for (const Term& t : e.terms) {
      const std::int64_t whole = floor_div(t.coefficient, by), rest = t.coefficient - whole * by;
      if (whole) q.terms.push_back({t.variable, whole});
      if (rest) r.terms.push_back({t.variable, rest});
    }
    std::int64_t low, high;
    range_of(r, low, high);
    if (low >= 0 && high < by) return;
    for (const Term& t : r.terms) {
      if (t.variable >= kFirstDerived || by % t.coefficient != 0) continue;
      const Loop& l = loops_[t.variable];
      const std::int64_t inner = by / t.coefficient;
      if (l.phases != 1) continue;
      if (inner == interleaved && is_last_whole(t.variable)) return want(Wanted::Split, t.variable, inner, true);
      if (!flat_ && !(keeps_whole_ && l.reduced) && inner < l.extent && l.extent % inner == 0 && l.full % inner == 0 &&
          l.begin % inner == 0)
        return want(Wanted::Split, t.variable, inner);
    }
    const Expression rest = r;
    add(q, Expression{0, {{quotient(rest, by, false), 1}}}, 1);
    r = Expression{0, {{quotient(rest, by, true), 1}}};
  }

  // The index along consecutive loops, the last running fastest.
  std::uint32_t along(const std::vector<std::uint32_t>& loops, std::int64_t phase = 0) {
    Expression x;
    std::int64_t stride = 1;
    for (std::size_t k = loops.size(); k-- > 0;) {
      const Loop& l = loops_[loops[k]];
      x.offset += stride * (l.begin + (l.phases > 1 ? phase : 0));
      if (l.extent != 1) x.terms.insert(x.terms.begin(), {loops[k], stride * l.phases});
      stride *= l.full;
    }
    return expressions_(x);
  }
  // The map of a root in one of the phases.
  std::uint32_t map_of_root(std::size_t root, std::int64_t phase) {
    std::vector<std::uint32_t> out;
    std::uint32_t guard = 0;
    if (phases() > 1) {  // the last iteration may have fewer indices
      std::vector<std::uint32_t> last = {static_cast<std::uint32_t>(loops_.size() - 1)};
      guard = with_guard(0, expressions_[along(last, phase)], loops_.back().full);
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
  std::vector<std::uint32_t> axes_of_root(std::size_t root, std::int64_t phase) {
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
  // A reduction's operand has the whole domain, in its order.
  std::vector<std::uint32_t> axes_of_operand(NodeId node) {
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
        throw InternalError(fmt::format("plan: the axes of %{} do not fit the loops of its group\n{}", node, ir::print(graph_)));
      out.push_back(along(mine));
    }
    return out;
  }

  std::uint32_t with_guard(std::uint32_t guard, const Expression& e, std::int64_t bound) {
    std::int64_t low, high;
    range_of(e, low, high);
    if (low >= 0 && high < bound) return guard;
    std::vector<std::uint32_t> checks = guards_[guard];
    std::size_t b = 0;
    while (b < bounds_.size() && bounds_[b] != bound) ++b;
    if (b == bounds_.size()) bounds_.push_back(bound);
    const std::uint32_t id = expressions_(e);
    for (std::size_t i = 0; i < checks.size(); i += 2)
      if (checks[i] == id && checks[i + 1] == b) return guard;
    checks.push_back(id);
    checks.push_back(static_cast<std::uint32_t>(b));
    return guards_(checks);
  }

  // The axes first .. end of a shape from the position in their row-major order. False where other loops are wanted first.
  bool spread(Expression linear, List shape, std::size_t first, std::size_t end, std::vector<std::uint32_t>& out,
              std::int64_t interleaved = 0) {
    for (std::size_t k = end; k-- > first;) {
      bool last = true;  // the outermost axis takes what is left
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

  // How many boxes of a Piecewise alternate along its last axis, one index each; 0 where it is not so. Views of it are looked through.
  std::int64_t alternating_boxes(NodeId id) const {
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

  // ---- pieces: where an index lies among the boxes of a Pad or a Piecewise
  struct Box {
    NodeId operand;
    List start, step;
  };
  std::vector<Box> boxes_of(NodeId id) const {
    const List attributes = graph_.attributes(id), operands = graph_.operands(id);
    const std::size_t rank = graph_.shape(id).size();
    std::vector<Box> out;
    if (rank == 0) return {{static_cast<NodeId>(operands[0]), {}, {}}};
    for (std::size_t k = 0; k < attributes.size() / (2 * rank); ++k)
      out.push_back(
          {static_cast<NodeId>(operands[k]), attributes.subspan(2 * rank * k, rank), attributes.subspan(2 * rank * k + rank, rank)});
    return out;
  }
  enum class Lies : std::uint8_t { Outside, Partly, Inside };

  // The map of a box's operand, its guard narrowed to the box, and where the indices of the loops lie.
  Lies compose_box(const Box& box, std::uint32_t map, std::uint32_t& operand_map) {
    const std::vector<std::uint32_t> axes = maps_[map];
    const List was = graph_.shape(box.operand);
    std::vector<std::uint32_t> out(was.size() + 1);
    std::uint32_t guard = axes.back();
    Lies lies = Lies::Inside;
    const auto narrow = [&](const Expression& e, std::int64_t bound) {
      std::int64_t low, high;
      range_of(e, low, high);
      if (high < 0 || low >= bound) return false;
      if (low < 0 || high >= bound) lies = Lies::Partly;
      guard = with_guard(guard, e, bound);
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
        Expression q, r;
        divide(e, by, q, r);
        if (wanted_ != Wanted::Nothing) return Lies::Partly;
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

  // The maps of the operands that the loops' indices can meet. May want other loops first.
  std::vector<std::uint32_t> pieces_of(NodeId id, std::uint32_t map) {
    const std::vector<Box> boxes = boxes_of(id);
    std::vector<std::uint32_t> out(graph_.operands(id).size(), kNone);
    std::vector<std::size_t> met;
    bool elsewhere = out.size() > boxes.size();
    for (std::size_t k = 0; k < boxes.size(); ++k) {
      std::uint32_t operand_map = kNone;
      const Lies lies = compose_box(boxes[k], map, operand_map);
      if (wanted_ != Wanted::Nothing) return out;
      if (lies == Lies::Outside) continue;
      out[k] = operand_map;
      met.push_back(k);
      if (lies != Lies::Inside) continue;
      out.assign(out.size(), kNone);  // this one alone
      out[k] = operand_map;
      return out;
    }
    const bool has_zero = graph_[id].op == Op::Pad;
    if (met.size() + (elsewhere || has_zero) > 1) cut_between(id, map, boxes, met);
    if (elsewhere) out.back() = maps_({maps_[map].back()});
    return out;
  }

  // Wants the loops cut at an edge of these boxes, or the last loop in phases, where one of its loops alone moves through them.
  void cut_between(NodeId id, std::uint32_t map, const std::vector<Box>& boxes, const std::vector<std::size_t>& met) {
    if (in_sequence() || pieces_ >= kMostPieces) return;
    const std::vector<std::uint32_t> axes = maps_[map];
    const std::int64_t alternating = alternating_boxes(id);
    if (alternating) {
      const Expression& e = expressions_[axes[axes.size() - 2]];
      if (e.offset == 0 && e.terms.size() == 1 && e.terms[0].coefficient == 1 && e.terms[0].variable < kFirstDerived &&
          is_last_whole(e.terms[0].variable) && loops_[e.terms[0].variable].full == alternating)
        return want(Wanted::Split, e.terms[0].variable, alternating, true);
    }
    std::int64_t elements = 1;
    for (const Loop& l : loops_) elements *= l.extent;
    const bool few = boxes.size() <= kFewBoxes;
    if (few && elements < kPieceElements) return;
    std::uint32_t best = kNone;
    std::vector<std::int64_t> best_cuts;
    for (std::size_t i = 0; i + 1 < axes.size(); ++i) {
      const Expression& e = expressions_[axes[i]];
      if (e.terms.size() != 1 || std::abs(e.terms[0].coefficient) != 1 || e.terms[0].variable >= kFirstDerived) continue;
      const std::uint32_t loop = e.terms[0].variable;
      if (loops_[loop].phases != 1 || loop >= best) continue;
      std::vector<std::int64_t> cuts;
      for (const std::size_t k : met) {
        const std::int64_t n = graph_.shape(boxes[k].operand)[i], last = boxes[k].start[i] + (n - 1) * boxes[k].step[i];
        for (const std::int64_t edge : {std::min(boxes[k].start[i], last), std::max(boxes[k].start[i], last) + 1}) {
          const std::int64_t at = e.terms[0].coefficient == 1 ? edge - e.offset : e.offset - edge + 1;
          if (at > 0 && at < loops_[loop].extent) cuts.push_back(at);
        }
      }
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      if (cuts.empty()) continue;
      const bool rows = loop + 1 == loops_.size() && loops_.size() > 1;  // short rows are better chosen between than stored apart
      if (few && rows && loops_[loop].extent < kPieceRow * static_cast<std::int64_t>(cuts.size() + 1)) continue;
      best = loop;
      best_cuts = std::move(cuts);
    }
    if (best != kNone) want(Wanted::Cut, best, best_cuts[best_cuts.size() / 2]);
  }

  // The map of a view's operand.
  std::uint32_t compose(NodeId id, std::uint32_t map) {
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
      case Op::Reshape: {
        if (graph_.elements(from) == 0) {  // no element: whoever asks, a pad, has a guard that is false
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
      default: throw InternalError("plan: not a view");
    }
    out.back() = guard;
    return maps_(out);
  }

  bool in_memory(NodeId id) const { return partition_.loads(graph_, id, group_); }

  // A sum of no elements is +0, a product 1, whatever they were to be: nothing behind it is computed.
  bool reduces_nothing(NodeId id) const {
    const Op op = graph_[id].op;
    return (ir::is_sum(op) || op == Op::ReduceProd) && graph_.elements(graph_.operand(id, 0)) == 0;
  }

  void demand(std::priority_queue<NodeId>& queue, NodeId id, std::uint32_t map) {
    const Op op = graph_[id].op;
    if (op == Op::Constant || op == Op::Slot) map = 0;  // the same everywhere
    auto& list = demands_[id];
    if (list.empty()) queue.push(id);
    for (const Demand& d : list)
      if (d.map == map) return;
    list.push_back({map, 0});
  }

  void build() {
    wanted_ = Wanted::Nothing;
    expressions_ = {};
    maps_ = {};
    guards_ = {};
    quotients_.clear();
    bounds_.clear();
    demands_.clear();
    visited_.clear();
    root_maps_.clear();
    position_of_.clear();
    guards_({});
    maps_({0});  // of a scalar: map 0

    std::priority_queue<NodeId> queue;
    for (const std::size_t r : roots_)
      for (std::int64_t phase = 0; phase < phases(); ++phase) {
        const std::uint32_t map = map_of_root(r, phase);
        if (wanted_ != Wanted::Nothing) return;
        root_maps_.push_back(map);
        demand(queue, partition_.groups[group_].roots[r], map);
      }
    while (!queue.empty()) {
      const NodeId id = queue.top();
      queue.pop();
      visited_.push_back(id);
      share(id);
      const Op op = graph_[id].op;
      if (in_memory(id) || ir::is_source(op) || reduces_nothing(id)) continue;
      for (std::size_t i = 0; i < demands_[id].size(); ++i) {
        if (demands_[id][i].like != kNone) continue;
        const std::uint32_t map = demands_[id][i].map;
        if (op == Op::Piecewise || op == Op::Pad) {
          std::vector<std::uint32_t> maps = pieces_of(id, map);
          if (wanted_ != Wanted::Nothing) return;
          for (std::size_t k = 0; k < maps.size(); ++k)
            if (maps[k] != kNone) demand(queue, graph_.operand(id, static_cast<int>(k)), maps[k]);
          demands_[id][i].piece_maps = std::move(maps);
          continue;
        }
        std::uint32_t operand_map = map;
        if (op == Op::Gather || op == Op::ScatterAdd) {
          index_by_data(queue, id, i);
          continue;
        }
        if (ir::is_view(op)) {
          operand_map = compose(id, map);
          if (wanted_ != Wanted::Nothing) return;
        } else if (ir::is_reduction(op)) {
          const NodeId from = graph_.operand(id, 0);
          if (graph_.elements(from) == graph_.elements(id)) {  // over axes of extent 1
            std::vector<std::uint32_t> axes = maps_[map], out;
            std::size_t k = 0;
            const List reduced = graph_.attributes(id);
            for (std::size_t a = 0; a < graph_.shape(from).size(); ++a)
              out.push_back(std::binary_search(reduced.begin(), reduced.end(), static_cast<std::int64_t>(a)) ? expressions_(Expression{})
                                                                                                             : axes[k++]);
            out.push_back(axes.back());
            operand_map = maps_(out);
          } else {
            std::vector<std::uint32_t> axes = axes_of_operand(from);
            axes.push_back(0);
            operand_map = maps_(axes);
          }
        }
        demands_[id][i].operand_map = operand_map;
        for (std::int64_t o : graph_.operands(id)) demand(queue, static_cast<NodeId>(o), operand_map);
      }
    }
  }

  // Of a Gather x at the places; of a ScatterAdd what it starts from, or what is added at the places.
  void index_by_data(std::priority_queue<NodeId>& queue, NodeId id, std::size_t i) {
    const std::uint32_t map = demands_[id][i].map;
    const NodeId x = graph_.operand(id, 0);
    if (graph_[id].op == Op::ScatterAdd && partition_.groups[group_].starts) return demand(queue, x, map);
    if (graph_.elements(x) == 0) return;  // no place is right: a kernel of its own checks them
    const std::uint32_t data = at_places(id, map);
    demands_[id][i].data = data;
    demand(queue, graph_.operand(id, 1), map);
    demand(queue, graph_[id].op == Op::Gather ? x : graph_.operand(id, 2), graph_[id].op == Op::Gather ? data : map);
  }

  // What a value is computed from, and where.
  template <class F> void each_operand(NodeId id, const Demand& d, F&& f) const {
    const Op op = graph_[id].op;
    if (in_memory(id) || ir::is_source(op) || reduces_nothing(id)) return;
    const List operands = graph_.operands(id);
    if (op == Op::Piecewise || op == Op::Pad) {
      for (std::size_t k = 0; k < d.piece_maps.size(); ++k)
        if (d.piece_maps[k] != kNone) f(static_cast<NodeId>(operands[k]), d.piece_maps[k]);
    } else if (op == Op::Gather) {
      if (d.data == kNone) return;
      f(static_cast<NodeId>(operands[1]), d.map);
      f(static_cast<NodeId>(operands[0]), d.data);
    } else {
      for (const std::int64_t o : operands) f(static_cast<NodeId>(o), d.operand_map);
    }
  }

  // Makes the statements of a value and of what it is computed from: of the places that a load needs, before it.
  std::uint32_t ensure(NodeId id, std::uint32_t map) {
    std::vector<std::pair<NodeId, Demand*>> needed;
    std::vector<std::pair<NodeId, std::uint32_t>> open = {{id, map}};
    std::map<Demand*, bool> seen;
    while (!open.empty()) {
      const auto [at, where] = open.back();
      open.pop_back();
      Demand& d = demand_of(at, where);
      if (d.statement != kNone || seen[&d]) continue;
      seen[&d] = true;
      needed.emplace_back(at, &d);
      each_operand(at, d, [&](NodeId o, std::uint32_t m) { open.emplace_back(o, m); });
    }
    std::sort(needed.begin(), needed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [at, d] : needed)
      if (d->statement == kNone) make(at, *d);
    return demand_of(id, map).statement;
  }
  // The statement of the data variable in a map, or none.
  std::uint32_t data_statement(std::uint32_t map) {
    const std::uint32_t q = data_of(map);
    return q == kNone ? kNone : ensure(quotients_[q].place, quotients_[q].map);
  }

  // A value read at the same place under several guards is computed once, under the weakest that the others include.
  void share(NodeId id) {
    std::vector<Demand>& all = demands_[id];
    if (guards_.size() == 1) return;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::vector<std::uint32_t>& mine = maps_[all[i].map];
      if (mine.back() == 0) continue;
      for (std::size_t k = 0; k < all.size() && all[i].like == kNone; ++k) {
        const std::vector<std::uint32_t>& theirs = maps_[all[k].map];
        if (k == i || all[k].like != kNone || !std::equal(mine.begin(), mine.end() - 1, theirs.begin(), theirs.end() - 1)) continue;
        if (includes(guards_[mine.back()], guards_[theirs.back()])) all[i].like = static_cast<std::uint32_t>(k);
      }
    }
  }
  // Are all checks of `fewer` among `more`?
  static bool includes(const std::vector<std::uint32_t>& more, const std::vector<std::uint32_t>& fewer) {
    if (fewer.size() >= more.size()) return false;
    for (std::size_t f = 0; f < fewer.size(); f += 2) {
      bool found = false;
      for (std::size_t m = 0; m < more.size(); m += 2) found |= more[m] == fewer[f] && more[m + 1] == fewer[f + 1];
      if (!found) return false;
    }
    return true;
  }

  Demand& demand_of(NodeId id, std::uint32_t map) {
    const Op op = graph_[id].op;
    if (op == Op::Constant || op == Op::Slot) map = 0;
    std::vector<Demand>& all = demands_[id];
    for (Demand& d : all)
      if (d.map == map) return d.like == kNone ? d : all[d.like];
    throw InternalError("plan: a value was not demanded");
  }
  std::uint32_t value_of(NodeId id, std::uint32_t map) { return demand_of(id, map).statement; }

  std::uint32_t data_value(const Quotient& q) const {
    const auto it = demands_.find(q.place);
    for (const Demand& d : it->second)
      if (d.map == q.map) return d.like == kNone ? d.statement : it->second[d.like].statement;
    throw InternalError("plan: a place was not demanded");
  }
  std::uint64_t ordered_loops() const {
    std::uint64_t mask = 0;
    for (std::size_t l = 0; l < loops_.size(); ++l) mask |= loops_[l].reduced ? std::uint64_t{1} << l : 0;
    return mask;
  }

  std::uint64_t loops_of(const Expression& e) const {
    std::uint64_t mask = 0;
    for (const Term& t : e.terms) {
      if (t.variable < kFirstDerived) {
        mask |= std::uint64_t{1} << t.variable;
        continue;
      }
      const Quotient& q = quotients_[t.variable - kFirstDerived];
      mask |= q.place == ir::kNoNode ? loops_of(expressions_[q.expression]) : body_[data_value(q)].loops;
    }
    return mask;
  }

  std::uint32_t emit(Statement s) {
    body_.push_back(s);
    return static_cast<std::uint32_t>(body_.size() - 1);
  }

  std::uint32_t guard_statement(std::uint32_t guard) {
    if (guard == 0) return kNone;
    if (const auto it = guard_statements_.find(guard); it != guard_statements_.end()) return it->second;
    Statement s{};
    s.kind = Statement::Kind::Guard;
    s.at = static_cast<std::uint32_t>(check_expressions_.size());
    const std::vector<std::uint32_t>& checks = guards_[guard];
    s.count = static_cast<std::uint8_t>(checks.size() / 2);
    for (std::size_t i = 0; i < checks.size(); i += 2) {
      check_expressions_.push_back(checks[i]);
      check_bounds_.push_back(bounds_[checks[i + 1]]);
      s.loops |= loops_of(expressions_[checks[i]]);
      if (const std::uint32_t q = data_in(expressions_[checks[i]]); q != kNone) s.a = data_value(quotients_[q]);
    }
    return guard_statements_[guard] = emit(s);
  }
  std::unordered_map<std::uint32_t, std::uint32_t> guard_statements_;

  // Other kernels read a half as f32, unrounded; the caller's arrays hold halves.
  DType memory_type(NodeId id, std::int32_t output) const {
    const DType dtype = graph_[id].dtype;
    return output == NestNumbers::kUnrounded ? computed_type(dtype) : dtype;
  }
  std::uint32_t buffer_for(NodeId id, bool written, std::int32_t output) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (buffer_nodes_[i] == id && buffers_[i].written == written && buffer_outputs_[i] == output) return static_cast<std::uint32_t>(i);
    buffers_.push_back({memory_type(id, output), written});
    buffer_nodes_.push_back(id);
    buffer_outputs_.push_back(output);
    return static_cast<std::uint32_t>(buffers_.size() - 1);
  }

  std::uint32_t access_for(NodeId id, std::uint32_t map, bool written, std::int32_t output) {
    const List shape = graph_.shape(id);
    if (maps_[map].size() != shape.size() + 1)
      throw InternalError(fmt::format("plan: a map of %{} has {} axes\n{}", id, maps_[map].size() - 1, ir::print(graph_)));
    static const Layout kContiguous;
    const Layout& layout = output == NestNumbers::kUnrounded ? kContiguous : written ? target_of(id, output) : layouts_[id];
    Expression e;
    std::int64_t stride = 1;
    bool in_order = true;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      if (shape[i] == 1) continue;
      const std::int64_t mine = layout ? (*layout)[i] : stride;
      in_order &= mine == stride;
      add(e, expressions_[maps_[map][i]], mine);
    }
    if (const auto position = position_of_.find(map_in(graph_[id].shape, map)); in_order && position != position_of_.end())
      e = expressions_[position->second];
    const std::uint32_t expression = expressions_(e), buffer = buffer_for(id, written, output);
    for (std::size_t i = 0; i < access_expressions_.size(); ++i)
      if (access_expressions_[i] == expression && access_buffers_[i] == buffer) return static_cast<std::uint32_t>(i);
    access_expressions_.push_back(expression);
    access_buffers_.push_back(buffer);
    return static_cast<std::uint32_t>(access_expressions_.size() - 1);
  }

  // Of the memory that the copy-th output of a node is written to.
  const Layout& target_of(NodeId id, std::int32_t copy) const {
    static const Layout kContiguous;
    if (targets_.empty()) return graph_[id].op == Op::Input ? kContiguous : layouts_[id];
    for (std::size_t k = 0; k < graph_.outputs.size(); ++k)
      if (graph_.outputs[k] == id && copy-- == 0) return targets_[k];
    return layouts_[id];  // stored for other groups alone
  }

  std::uint32_t conversion(Op op, std::uint32_t value, DType dtype, DType half) {
    Statement s{};
    s.kind = Statement::Kind::Op;
    s.op = op;
    s.dtype = dtype;
    s.half = half;
    s.a = value;
    s.stage = body_[value].stage;
    s.loops = body_[value].loops;
    return emit(s);
  }
  // What a conversion of a half is given: the value rounded to that type, as what was loaded as such a half or converted to it already is.
  std::uint32_t rounded(std::uint32_t value, DType half) {
    const Statement& v = body_[value];
    if (v.kind == Statement::Kind::Load ? buffers_[access_buffers_[v.at]].dtype == half : v.dtype == DType::F32 && v.half == half)
      return value;
    const auto [it, is_new] = rounded_.try_emplace({value, half}, 0);
    if (is_new) it->second = conversion(Op::Cast, value, DType::F32, half);
    return it->second;
  }
  std::map<std::pair<std::uint32_t, DType>, std::uint32_t> rounded_;

  std::uint32_t zero(DType dtype) {
    Statement s{};
    s.kind = Statement::Kind::Constant;
    s.dtype = dtype;
    return emit(s);
  }

  // The boxes that the loops' indices can meet, chosen between.
  std::uint32_t joined(NodeId id, const Demand& d) {
    const std::size_t boxes = boxes_of(id).size();
    const std::uint32_t outer = maps_[d.map].back();
    std::uint32_t value = kNone;
    if (d.piece_maps.size() > boxes && d.piece_maps.back() != kNone)
      value = value_of(static_cast<NodeId>(graph_.operands(id)[boxes]), d.piece_maps.back());
    for (std::size_t k = 0; k < boxes; ++k) {
      if (d.piece_maps[k] == kNone) continue;
      const std::uint32_t mine = value_of(static_cast<NodeId>(graph_.operands(id)[k]), d.piece_maps[k]),
                          inner = maps_[d.piece_maps[k]].back();
      if (inner == outer) return mine;
      static_cast<void>(data_statement(d.piece_maps[k]));  // the guard's checks may want it
      const std::uint32_t guard = guard_statement(inner);
      if (value == kNone && graph_[id].op == Op::Pad) {
        if (body_[mine].kind == Statement::Kind::Load && body_[mine].guard == guard) return mine;  // a guarded load gives the zero itself
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

  void make(NodeId id, Demand& d) {
    const Node node = graph_[id];
    Statement s{};
    s.dtype = computed_type(node.dtype);
    const bool is_leaf = in_memory(id) || ir::is_source(node.op);
    const std::uint32_t data = is_leaf ? data_statement(d.map) : kNone;
    if (in_memory(id)) {
      s.kind = Statement::Kind::Load;
      s.a = data;
      s.at = access_for(id, d.map, false, is_half(node.dtype) && node.op != Op::Input ? NestNumbers::kUnrounded : 0);
      s.guard = guard_statement(maps_[d.map].back());
      s.loops = loops_of(expressions_[access_expressions_[s.at]]);
      if (s.guard != kNone) s.loops |= body_[s.guard].loops;
      d.statement = emit(s);
      return;
    }
    switch (ir::info(node.op).kind) {
      case ir::OpKind::Source:
        if (node.op == Op::Constant) {
          s.kind = Statement::Kind::Constant;
          s.bits = node.bits;
        } else if (node.op == Op::Slot) {
          s.kind = Statement::Kind::Slot;
          s.at = static_cast<std::uint32_t>(slots_.size());
          slots_.push_back(static_cast<std::uint32_t>(node.bits));
          slot_types_.push_back(s.dtype);
        } else {
          s.kind = Statement::Kind::Index;
          const std::uint32_t e = maps_[d.map][static_cast<std::size_t>(graph_.attributes(id)[0])];
          s.at = static_cast<std::uint32_t>(index_expressions_.size());
          index_expressions_.push_back(e);
          s.loops = loops_of(expressions_[e]);
          if (data_in(expressions_[e]) != kNone) s.a = data;
          if (is_half(node.dtype)) s.half = node.dtype;
        }
        break;
      case ir::OpKind::View: d.statement = node.op == Op::Pad ? joined(id, d) : value_of(graph_.operand(id, 0), d.operand_map); return;
      case ir::OpKind::Piecewise: d.statement = joined(id, d); return;
      case ir::OpKind::Reduction: {
        const NodeId from = graph_.operand(id, 0);
        if (reduces_nothing(id)) {
          s.kind = Statement::Kind::Constant;
          s.bits = ir::bits_of(node.dtype, std::int64_t{node.op == Op::ReduceProd});
          break;
        }
        const std::uint32_t value = value_of(from, d.operand_map);
        const bool contracts = ir::is_contraction(node.op);
        s.a = value;
        s.stage = body_[value].stage;
        s.loops = body_[value].loops;
        if (contracts) {
          s.b = value_of(graph_.operand(id, 1), d.operand_map);
          s.stage = std::max(s.stage, body_[s.b].stage);
          s.loops |= body_[s.b].loops;
        }
        if (graph_.elements(from) == graph_.elements(id)) {
          s.kind = Statement::Kind::Op;
          s.op = Op::Mul;
          d.statement = contracts ? emit(s) : value;
          return;
        }
        s.kind = Statement::Kind::Reduce;
        s.op = node.op;
        ++s.stage;
        const std::uint64_t axes = reduced_by(id);
        s.count = axes != partition_.groups[group_].reduced;
        has_columns_ |= s.count != 0;
        std::uint64_t reduced = 0;
        for (std::size_t l = 0; l < loops_.size(); ++l) reduced |= (axes >> loops_[l].axis & 1) ? std::uint64_t{1} << l : 0;
        s.loops &= ~reduced;
        if (contracts && is_float(node.dtype)) {
          order_ = ir::contract_order(graph_.shape(from), graph_.attributes(id), s.dtype, node.op == Op::ContractLanes);
          ordered_ = id;
        }
        if (s.count == 0 && is_float(node.dtype) && (node.op == Op::ReduceSum || node.op == Op::ReduceProd)) {
          order_ = ir::sum_order(graph_.shape(from), graph_.attributes(id), s.dtype);
          ordered_ = id;
        }
        break;
      }
      case ir::OpKind::Scan: {
        const std::uint32_t value = value_of(graph_.operand(id, 0), d.operand_map);
        const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
        if (graph_.shape(id)[axis] == 1) {
          d.statement = value;
          return;
        }
        if (loops_of(expressions_[maps_[d.map][axis]]) != ordered_loops())
          throw InternalError(fmt::format("plan: %{} is read in another order than it is computed\n{}", id, ir::print(graph_)));
        s.kind = Statement::Kind::Scan;
        s.op = node.op;
        s.a = value;
        s.loops = body_[value].loops | ordered_loops();
        scans_in_groups_ = ir::scans_in_groups(graph_.shape(id), graph_.attributes(id)[0]);
        break;
      }
      case ir::OpKind::Place:
        s.kind = Statement::Kind::Place;
        s.a = value_of(graph_.operand(id, 0), d.operand_map);
        s.guard = guard_statement(maps_[d.map].back());
        s.stage = body_[s.a].stage;
        s.loops = body_[s.a].loops | (s.guard == kNone ? 0 : body_[s.guard].loops);
        s.at = static_cast<std::uint32_t>(check_expressions_.size());
        check_expressions_.push_back(expressions_(Expression{}));
        check_bounds_.push_back(graph_.attributes(id)[0]);
        break;
      case ir::OpKind::Gather:
        if (d.data != kNone) {
          d.statement = value_of(graph_.operand(id, 0), d.data);
          return;
        }
        s.kind = Statement::Kind::Constant;  // of an array without elements
        break;
      case ir::OpKind::Scatter:  // what it starts from, or what is added: the store says where
        d.statement = value_of(graph_.operand(id, partition_.groups[group_].starts ? 0 : 2), d.map);
        return;
      default: {
        const List operands = graph_.operands(id);
        std::uint32_t in[3] = {kNone, kNone, kNone};
        for (std::size_t i = 0; i < operands.size(); ++i) {
          in[i] = value_of(static_cast<NodeId>(operands[i]), d.map);
          s.stage = std::max(s.stage, body_[in[i]].stage);
          s.loops |= body_[in[i]].loops;
        }
        if (node.op == Op::StopGradient || node.op == Op::Identity) {
          d.statement = in[0];
          return;
        }
        if (ir::info(node.op).types == ir::TypeRule::Convert || ir::info(node.op).types == ir::TypeRule::Reinterpret) {
          const DType from = graph_[static_cast<NodeId>(operands[0])].dtype;
          if (is_half(from)) in[0] = rounded(in[0], from);
          if (is_half(from) && (from == node.dtype || (node.op == Op::Cast && node.dtype == DType::F32))) {
            d.statement = in[0];
            return;
          }
          if (node.op == Op::Bitcast && is_half(from))
            in[0] = conversion(Op::Bitcast, in[0], is_half(node.dtype) ? DType::U16 : node.dtype, from);
          if (node.op == Op::Bitcast && is_half(from) && !is_half(node.dtype)) {
            d.statement = in[0];
            return;
          }
          if (is_half(node.dtype)) s.half = node.dtype;
        }
        s.kind = Statement::Kind::Op;
        s.op = node.op;
        s.a = in[0];
        s.b = in[1];
        s.c = in[2];
        break;
      }
    }
    d.statement = emit(s);
  }

  void finish(Planned& out) {
    body_.clear();
    access_expressions_.clear(), access_buffers_.clear();
    check_expressions_.clear(), check_bounds_.clear();
    index_expressions_.clear();
    buffers_.clear(), buffer_nodes_.clear(), buffer_outputs_.clear();
    slots_.clear(), slot_types_.clear();
    guard_statements_.clear();
    rounded_.clear();
    order_.reset();
    has_columns_ = false;
    std::sort(visited_.begin(), visited_.end());
    for (const NodeId id : visited_)
      for (Demand& d : demands_[id])
        if (d.like == kNone && d.statement == kNone) make(id, d);
    const auto each = static_cast<std::size_t>(phases());
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      const NodeId root = partition_.groups[group_].roots[roots_[r]];
      // one store for each time that the node is an output (once where it is stored for other groups alone), and a half as f32 for others
      std::int32_t copies = static_cast<std::int32_t>(std::count(graph_.outputs.begin(), graph_.outputs.end(), root));
      const bool unrounded = is_half(graph_[root].dtype) && (copies == 0 || partition_.read_again[root]);
      if (!is_half(graph_[root].dtype)) copies = std::max(copies, 1);
      for (std::int32_t copy = unrounded ? NestNumbers::kUnrounded : 0; copy < copies; ++copy) {
        std::vector<Statement> stores;  // those of the phases stand together, behind their guards
        for (std::size_t phase = 0; phase < each; ++phase) {
          const std::uint32_t map = root_maps_[r * each + phase];
          Statement s{};
          s.kind = Statement::Kind::Store;
          s.dtype = computed_type(graph_[root].dtype);
          s.a = value_of(root, map);
          const std::uint32_t data = demand_of(root, map).data;
          const bool adds = data != kNone && graph_[root].op == Op::ScatterAdd;
          s.at = access_for(root, adds ? data : map, true, copy);
          s.guard = guard_statement(maps_[map].back());
          s.loops = loops_of(expressions_[access_expressions_[s.at]]) | body_[s.a].loops;
          if (adds) {
            s.op = Op::Add;
            s.b = data_statement(data);
            s.loops |= ordered_loops();
          }
          s.stage = body_[s.a].stage;
          stores.push_back(s);
        }
        for (const Statement& s : stores) emit(s);
      }
    }
    arrange(out);
  }

  // Loads of one array that are c apart along the vector loop and differ by 0 .. c-1 elements.
  void find_families(std::vector<Access>& accesses, std::uint32_t vector) const {
    const auto step = [&](const Expression& e) -> std::int64_t {
      for (const Term& t : e.terms)
        if (t.variable == vector) return t.coefficient;
      return 0;
    };
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> alike;  // by buffer and terms
    for (std::uint32_t a = 0; a < accesses.size(); ++a) {
      Expression e = expressions_[access_expressions_[a]];
      if (buffers_[accesses[a].buffer].written || step(e) < 2 || step(e) > 4) continue;
      e.offset = 0;
      alike[mix(HashExpression()(e), accesses[a].buffer)].push_back(a);
    }
    for (auto& [hash, members] : alike) {
      const auto& of = [&](std::uint32_t a) -> const Expression& { return expressions_[access_expressions_[a]]; };
      std::sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) { return of(a).offset < of(b).offset; });
      const auto c = static_cast<std::size_t>(step(of(members[0])));
      for (std::size_t i = 0; i + c <= members.size(); ++i) {
        const auto joins = [&](std::size_t k) {
          return of(members[i + k]).terms == of(members[i]).terms && accesses[members[i + k]].buffer == accesses[members[i]].buffer &&
                 of(members[i + k]).offset == of(members[i]).offset + static_cast<std::int64_t>(k);
        };
        bool whole = true;
        for (std::size_t k = 1; whole && k < c; ++k) whole = joins(k);
        if (!whole) continue;
        for (std::size_t k = 0; k < c; ++k)
          accesses[members[i + k]].first = members[i], accesses[members[i + k]].place = static_cast<std::uint8_t>(k);
        i += c - 1;
      }
    }
  }

  // One loop, whose quotients are those of rows of one length: does each access go along with the loop, with the rows or with the places?
  bool has_short_rows(const std::vector<std::uint32_t>& quotients) const {
    const auto is_loop = [&](const Expression& e) { return e.offset == 0 && e.terms.size() == 1 && e.terms[0] == Term{0, 1}; };
    if (quotients.empty() || quotients_[quotients[0]].by > kShortRow) return false;
    for (const std::uint32_t q : quotients)
      if (!is_loop(expressions_[quotients_[q].expression]) || quotients_[q].by != quotients_[quotients[0]].by) return false;
    for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
      const Expression& e = expressions_[access_expressions_[a]];
      if (e.terms.size() > 1 || (buffers_[access_buffers_[a]].written && (e.terms.empty() || !(e.terms[0] == Term{0, 1})))) return false;
    }
    return true;
  }

  // Chooses the order of the loops, merges them, and writes the canonical Nest and its numbers.
  void arrange(Planned& out) {
    // every expression that becomes a Linear, in a fixed order: accesses, indices, checks, quotients that these need
    std::vector<std::uint32_t> used;
    const auto use = [&](std::uint32_t e) { used.push_back(e); };
    for (std::uint32_t e : access_expressions_) use(e);
    for (std::uint32_t e : index_expressions_) use(e);
    for (std::uint32_t e : check_expressions_) use(e);
    std::vector<std::uint32_t> quotient_order;  // dense numbers of the quotients in use, inner ones first
    std::vector<std::uint32_t> quotient_number(quotients_.size(), kNone);
    const auto visit = [&](auto&& self, std::uint32_t e) -> void {
      for (const Term& t : expressions_[e].terms) {
        if (t.variable < kFirstDerived) continue;
        const std::uint32_t q = t.variable - kFirstDerived;
        if (quotient_number[q] != kNone) continue;
        self(self, quotients_[q].expression);  // of data: none
        quotient_number[q] = static_cast<std::uint32_t>(quotient_order.size());
        quotient_order.push_back(q);
      }
    };
    for (std::size_t i = 0, n = used.size(); i < n; ++i) visit(visit, used[i]);
    for (std::uint32_t q : quotient_order) use(quotients_[q].expression);

    const auto coefficient = [&](std::uint32_t e, std::uint32_t variable) -> std::int64_t {
      for (const Term& t : expressions_[e].terms)
        if (t.variable == variable) return t.coefficient;
      return 0;
    };

    // ---- order
    std::vector<std::uint32_t> kept, reduced;
    for (std::uint32_t l = 0; l < loops_.size(); ++l) {
      if (loops_[l].extent == 1) continue;
      (loops_[l].reduced ? reduced : kept).push_back(l);
    }
    const auto weight = [&](std::uint32_t l) {
      std::int64_t stores = 0, loads = 0;
      for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
        const std::int64_t c = std::abs(coefficient(access_expressions_[a], l));
        if (buffers_[access_buffers_[a]].written) stores = std::max(stores, c);
        else loads += c;
      }
      return std::pair(stores, loads);
    };
    if (!has_columns_)  // the order of summation of columns is that of the rows
      std::stable_sort(kept.begin(), kept.end(), [&](std::uint32_t a, std::uint32_t b) { return weight(a) > weight(b); });

    // ---- merge: an outer loop goes into the next where every expression allows it
    const bool filled = order_ && order_->last_kept_between >= 0;
    std::size_t runs = 0;  // reduced loops that count runs
    if (filled) {
      std::int64_t n = 1;
      while (n < order_->runs) n *= loops_[reduced[runs++]].extent;
    }
    std::vector<std::int64_t> extent;
    for (const Loop& l : loops_) extent.push_back(l.extent);
    const auto merge = [&](std::vector<std::uint32_t>& list, std::size_t from, std::size_t to) {
      std::size_t removed = 0;
      for (std::size_t i = from; i + 1 < to - removed;) {
        const std::uint32_t a = list[i], b = list[i + 1];
        bool fits = true;
        for (std::uint32_t e : used) fits = fits && coefficient(e, a) == coefficient(e, b) * extent[b];
        if (!fits) {
          ++i;
          continue;
        }
        extent[b] *= extent[a];
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        ++removed;
        if (i > from) --i;
      }
      return removed;
    };
    merge(kept, 0, kept.size());
    runs -= merge(reduced, 0, runs);
    merge(reduced, runs, reduced.size());

    // ---- which loop is the vector's
    const auto score = [&](std::uint32_t l) {
      int s = 0;
      for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
        const std::int64_t c = coefficient(access_expressions_[a], l);
        const int worth = buffers_[access_buffers_[a]].written ? 2 : 1;
        s += c == 1 || (c > 1 && c == phases()) ? worth : c == 0 ? 0 : -worth;
      }
      return s;
    };
    const bool scans = std::any_of(body_.begin(), body_.end(), [](const Statement& s) { return s.kind == Statement::Kind::Scan; });
    scan_is_split_ = scans && reduced.size() > 1;
    NestKind kind = NestKind::Map;
    if (!reduced.empty()) {
      if (partition_.groups[group_].ordered != 0) kind = scans && scans_in_groups_ ? NestKind::Map : NestKind::Rows;
      else if (order_) kind = order_->lanes ? NestKind::Lanes : NestKind::Rows;
      else if (kept.empty() || has_columns_) kind = NestKind::Lanes;
      else {
        int best = score(kept.back());
        for (std::uint32_t l : kept) best = std::max(best, score(l));
        kind = score(reduced.back()) >= best ? NestKind::Lanes : NestKind::Rows;
      }
    }
    Nest& nest = out.nest;
    NestNumbers& numbers = out.numbers;
    nest.kind = kind;
    std::vector<std::uint32_t> final_order;
    if (kind == NestKind::Lanes) {
      final_order = kept;
      final_order.insert(final_order.end(), reduced.begin(), reduced.end());
      nest.outer = static_cast<std::uint8_t>(kept.size());
      nest.serial = static_cast<std::uint8_t>(reduced.size() - 1);
    } else if (kind == NestKind::Map && !reduced.empty()) {
      final_order = kept;
      final_order.push_back(reduced.back());
      nest.outer = static_cast<std::uint8_t>(kept.size());
    } else {
      std::size_t best = kept.size();
      for (std::size_t i = 0; i < kept.size(); ++i)
        if (best == kept.size() || score(kept[i]) >= score(kept[best])) best = i;
      std::uint32_t vector = kNone;
      if (best < kept.size()) {
        vector = kept[best];
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(best));
      }
      // a loop along which loads are contiguous, but not along the vector loop, comes last: their tiles are transposed on the way
      if (kind == NestKind::Map && vector != kNone) {
        const auto along = std::find_if(kept.begin(), kept.end(), [&](std::uint32_t l) {
          for (std::size_t a = 0; a < access_expressions_.size(); ++a) {
            const std::int64_t c = coefficient(access_expressions_[a], vector);
            if (!buffers_[access_buffers_[a]].written && coefficient(access_expressions_[a], l) == 1 && c != 0 && c != 1) return true;
          }
          return false;
        });
        if (along != kept.end()) std::rotate(along, along + 1, kept.end());
      }
      final_order = kept;
      final_order.insert(final_order.end(), reduced.begin(), reduced.end());
      final_order.push_back(vector);  // a scalar's loop of one where nothing is left
      nest.outer = static_cast<std::uint8_t>(kept.size());
      nest.serial = static_cast<std::uint8_t>(reduced.size());
    }
    nest.runs = static_cast<std::uint8_t>(runs);
    if (filled) numbers.padded_run = order_->padded_run;
    for (std::uint32_t l : final_order) numbers.extents.push_back(l == kNone ? 1 : extent[l]);

    // ---- linears
    std::unordered_map<std::uint32_t, std::uint32_t> linear_of;  // by place in `used`: not shared, so that the key sees no equal numbers
    const std::size_t vector_loop = final_order.empty() ? 0 : final_order.size() - 1;
    std::vector<Access> family;
    for (std::uint32_t a = 0; a < access_expressions_.size(); ++a) family.push_back({access_buffers_[a], a});
    if (!final_order.empty()) find_families(family, final_order.back());
    const auto class_of = [&](std::size_t linear, std::size_t variable, std::int64_t c) {
      if (c == 0 || c == 1) return c == 0 ? Coefficient::Zero : Coefficient::One;
      const bool is_access = linear < family.size();
      if (!is_access || variable != vector_loop) return Coefficient::General;
      if (c == -1) return Coefficient::MinusOne;
      if (family[linear].first == Access::kNone) return Coefficient::General;
      return c == 2 ? Coefficient::Two : c == 3 ? Coefficient::Three : Coefficient::Four;
    };
    for (std::size_t i = 0; i < used.size(); ++i) {
      Linear linear;
      std::vector<std::int64_t> c;
      for (std::uint32_t l : final_order) c.push_back(l == kNone ? 0 : coefficient(used[i], l));
      for (std::uint32_t q : quotient_order) c.push_back(coefficient(used[i], kFirstDerived + q));
      for (std::size_t v = 0; v < c.size(); ++v) linear.of.push_back(class_of(i, v, c[v]));
      nest.linears.push_back(std::move(linear));
      numbers.coefficients.push_back(std::move(c));
      numbers.offsets.push_back(expressions_[used[i]].offset);
    }
    const auto accesses = static_cast<std::uint32_t>(access_expressions_.size());
    const auto indices = static_cast<std::uint32_t>(index_expressions_.size());
    const auto checks = static_cast<std::uint32_t>(check_expressions_.size());
    nest.accesses = std::move(family);
    for (std::uint32_t c = 0; c < checks; ++c) nest.checks.push_back({accesses + indices + c});
    numbers.bounds = check_bounds_;
    for (std::uint32_t q = 0; q < quotient_order.size(); ++q) {
      const Quotient& quotient = quotients_[quotient_order[q]];
      nest.derived.push_back(
          {accesses + indices + checks + q, quotient.modulo, quotient.place == ir::kNoNode ? kNone : data_value(quotient)});
      numbers.by.push_back(quotients_[quotient_order[q]].by);
    }
    nest.short_rows = kind == NestKind::Map && final_order.size() == 1 && phases() == 1 && has_short_rows(quotient_order);
    nest.buffers = buffers_;
    numbers.buffers = buffer_nodes_;
    numbers.outputs = buffer_outputs_;
    nest.slots = slot_types_;
    numbers.slots = slots_;

    // ---- body: loops renumbered
    std::vector<std::uint64_t> bit(loops_.size(), 0);
    for (std::uint32_t l = 0; l < loops_.size(); ++l)
      for (std::size_t k = 0; k < final_order.size(); ++k)
        if (final_order[k] == l) bit[l] = std::uint64_t{1} << k;
    nest.sweeps = 1;
    nest.phases = static_cast<std::uint8_t>(phases());
    for (std::size_t i = 0; nest.phases > 1 && i < body_.size(); ++i) {  // stores whose phases lie beside each other
      if (body_[i].kind != Statement::Kind::Store) continue;
      bool beside = coefficient(access_expressions_[body_[i].at], final_order.back()) == nest.phases;
      for (std::uint8_t phase = 1; phase < nest.phases; ++phase)
        beside = beside && expressions_[access_expressions_[body_[i + phase].at]].offset ==
                               expressions_[access_expressions_[body_[i].at]].offset + phase;
      if (beside) body_[i].count = nest.phases;
      i += nest.phases - 1u;
    }
    for (Statement s : body_) {
      std::uint64_t mask = 0;
      for (std::uint32_t l = 0; l < loops_.size(); ++l)
        if (s.loops >> l & 1) mask |= bit[l];  // a merged loop has no bit: its partner, which every expression has too, stands for it
      s.loops = mask;
      if (s.kind == Statement::Kind::Index) s.at += accesses;
      nest.body.push_back(s);
    }
    const std::uint64_t inner = nest.reduced_mask();
    if (kind == NestKind::Rows)  // a row of accumulators varies along the vector loop, whatever it sums
      for (Statement& s : nest.body) {
        const bool accumulates = s.kind == Statement::Kind::Reduce || s.kind == Statement::Kind::Scan;
        if (accumulates) s.loops |= std::uint64_t{1} << nest.vector_loop();
        if (s.kind != Statement::Kind::Op && s.kind != Statement::Kind::Place && !accumulates) continue;
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) s.loops |= nest.body[o].loops & (s.kind == Statement::Kind::Reduce ? ~inner : ~std::uint64_t{0});
      }
    const std::vector<bool> behind = nest.behind_columns();
    for (std::size_t i = 0; i < nest.body.size(); ++i) {
      Statement& s = nest.body[i];
      if (!behind[i]) continue;
      s.loops &= ~((std::uint64_t{1} << nest.outer) - 1);
      for (std::uint32_t o : {s.a, s.b, s.c})
        if (s.kind == Statement::Kind::Reduce || (o != kNone && behind[o]))
          s.loops |= inner;  // a column has an element for each of the row
    }
    for (std::size_t i = 0; i < nest.body.size(); ++i) {
      const Statement& s = nest.body[i];
      if (s.kind == Statement::Kind::Reduce && (s.count || !behind[i])) nest.sweeps = std::max(nest.sweeps, s.stage);
      if (s.kind == Statement::Kind::Store && !behind[i] && (s.loops & inner))
        nest.sweeps = std::max<std::uint8_t>(nest.sweeps, static_cast<std::uint8_t>(s.stage + 1));
    }
    for (std::size_t i = 0; i < nest.body.size(); ++i)
      if (behind[i]) nest.body[i].stage = nest.sweeps;
  }
};

}  // namespace

std::vector<Planned> plan(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                          std::span<const Layout> targets) {
  return Planner(graph, partition, group, layouts, targets).run();
}

bool Nest::has_columns() const {
  return std::any_of(body.begin(), body.end(), [](const Statement& s) { return s.kind == Statement::Kind::Reduce && s.count; });
}

std::vector<bool> Nest::behind_columns() const {
  std::vector<bool> out(body.size(), false);
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Statement& s = body[i];
    out[i] = s.kind == Statement::Kind::Reduce && s.count;
    for (std::uint32_t o : {s.a, s.b, s.c})
      if (o != Statement::kNone && out[o]) out[i] = true;
  }
  return out;
}

std::string Nest::key() const {
  std::string k;
  const auto put = [&](auto v) { k.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(static_cast<std::uint8_t>(kind));
  put(outer);
  put(serial);
  put(runs);
  put(sweeps);
  put(phases);
  put(short_rows);
  put(static_cast<std::uint32_t>(linears.size()));
  for (const Linear& l : linears) {
    put(static_cast<std::uint32_t>(l.of.size()));
    for (Coefficient c : l.of) put(static_cast<std::uint8_t>(c));
  }
  put(static_cast<std::uint32_t>(derived.size()));
  for (const Derived& d : derived) put(d.linear), put(static_cast<std::uint8_t>(d.modulo)), put(d.place);
  put(static_cast<std::uint32_t>(accesses.size()));
  for (const Access& a : accesses) put(a.buffer), put(a.linear), put(a.first), put(a.place);
  put(static_cast<std::uint32_t>(checks.size()));
  for (const Check& c : checks) put(c.linear);
  put(static_cast<std::uint32_t>(buffers.size()));
  for (const BufferInfo& b : buffers) put(static_cast<std::uint8_t>(b.dtype)), put(static_cast<std::uint8_t>(b.written));
  put(static_cast<std::uint32_t>(slots.size()));
  for (DType t : slots) put(static_cast<std::uint8_t>(t));
  put(static_cast<std::uint32_t>(body.size()));
  for (const Statement& s : body) {
    put(static_cast<std::uint8_t>(s.kind));
    put(static_cast<std::uint8_t>(s.op));
    put(static_cast<std::uint8_t>(s.dtype));
    put(static_cast<std::uint8_t>(s.half));
    put(s.stage);
    put(s.count);
    put(s.a), put(s.b), put(s.c), put(s.guard), put(s.at), put(s.loops), put(s.bits);
  }
  return k;
}

std::string print(const Nest& nest, const NestNumbers& numbers) {
  static constexpr std::string_view kinds[] = {"map", "rows", "lanes"};
  std::string out = fmt::format("nest {}:", kinds[static_cast<int>(nest.kind)]);
  for (std::uint32_t l = 0; l < nest.loops(); ++l) {
    const char* role = l < nest.outer ? "outer" : l == nest.vector_loop() ? "vector" : "serial";
    const bool reduced = nest.reduced_mask() >> l & 1;
    out += fmt::format(" i{} < {} {}{};", l, numbers.extents[l], role, reduced ? " reduced" : "");
  }
  if (nest.phases > 1) out += fmt::format(" {} phases;", nest.phases);
  if (nest.short_rows) out += " short rows;";
  out += nest.sweeps > 1 ? fmt::format(" {} sweeps\n", nest.sweeps) : "\n";
  const auto linear = [&](std::uint32_t id) {
    std::string text;
    for (std::size_t v = 0; v < numbers.coefficients[id].size(); ++v) {
      const std::int64_t c = numbers.coefficients[id][v];
      if (c == 0) continue;
      const std::string name = v < nest.loops() ? fmt::format("i{}", v) : fmt::format("q{}", v - nest.loops());
      text += fmt::format("{}{}", text.empty() ? "" : " + ", c == 1 ? name : fmt::format("{}*{}", c, name));
    }
    if (numbers.offsets[id] || text.empty()) text += fmt::format("{}{}", text.empty() ? "" : " + ", numbers.offsets[id]);
    return text;
  };
  for (std::size_t q = 0; q < nest.derived.size(); ++q)
    out += nest.derived[q].place != kNone ? fmt::format("  q{} = v{}\n", q, nest.derived[q].place)
                                          : fmt::format("  q{} = ({}) {} {}\n", q, linear(nest.derived[q].linear),
                                                        nest.derived[q].modulo ? "mod" : "div", numbers.by[q]);
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const std::string place = s.kind == Statement::Kind::Store ? "" : fmt::format("v{} = ", i);
    std::string text;
    switch (s.kind) {
      case Statement::Kind::Load:
      case Statement::Kind::Store: {
        const Access& a = nest.accesses[s.at];
        text = fmt::format("{} %{}[{}]", s.kind == Statement::Kind::Load ? "load" : "store", numbers.buffers[a.buffer], linear(a.linear));
        if (s.kind == Statement::Kind::Store) text += fmt::format(" {} v{}", s.op == Op::Add ? "+=" : "=", s.a);
        if (s.kind == Statement::Kind::Store && s.count > 1) text += fmt::format(", side by side with the next {}", s.count - 1);
        if (s.guard != kNone) text += fmt::format(" where v{}", s.guard);
        break;
      }
      case Statement::Kind::Index: text = fmt::format("index {}", linear(s.at)); break;
      case Statement::Kind::Slot: text = fmt::format("slot {}", numbers.slots[s.at]); break;
      case Statement::Kind::Constant: text = fmt::format("constant {}", ir::double_of(s.dtype, s.bits)); break;
      case Statement::Kind::Guard:
        text = "guard";
        for (std::uint32_t c = s.at; c < s.at + s.count; ++c)
          text += fmt::format("{} 0 <= {} < {}", c == s.at ? "" : ",", linear(nest.checks[c].linear), numbers.bounds[c]);
        break;
      case Statement::Kind::Place: text = fmt::format("place v{} below {}", s.a, numbers.bounds[s.at]); break;
      case Statement::Kind::Op:
      case Statement::Kind::Reduce:
      case Statement::Kind::Scan:
        text = std::string(ir::info(s.op).text);
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) text += fmt::format(" v{}", o);
        break;
    }
    out += fmt::format("  {}{} : {}, sweep {}\n", place, text, name_of(is_half(s.half) ? s.half : s.dtype), s.stage);
  }
  return out;
}

}  // namespace onepass::compiler
