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
      loops_.push_back({g.domain[i], (g.reduced >> i & 1) != 0, static_cast<std::uint8_t>(i)});
  }

  Planned run() {
    Planned out;
    const std::vector<NodeId>& roots = partition_.groups[group_].roots;
    for (std::size_t r = 0; r < roots.size(); ++r)
      if (graph_.elements(roots[r]) != 0) roots_.push_back(r);  // of others there is nothing to store
    out.empty = roots_.empty();
    if (out.empty) return out;
    while (!build()) {  // a split was asked for: begin again with one loop more
      const Loop l = loops_[split_loop_];
      loops_[split_loop_].extent = l.extent / split_inner_;
      loops_.insert(loops_.begin() + split_loop_ + 1, {split_inner_, l.reduced, l.axis});
    }
    finish(out);
    return out;
  }

 private:
  struct Loop {
    std::int64_t extent;
    bool reduced;
    std::uint8_t axis;  // of the group's domain
  };
  struct Demand {
    std::uint32_t map, operand_map;
    std::uint32_t guard_statement = kNone;
    std::uint32_t statement = kNone;
  };
  struct Quotient {
    std::uint32_t expression;
    std::int64_t by;
    bool modulo;
    std::int64_t low, high;
  };

  const Graph& graph_;
  const Partition& partition_;
  std::uint32_t group_;
  std::span<const Layout> layouts_, targets_;
  std::vector<Loop> loops_;
  std::uint32_t split_loop_ = 0;
  std::int64_t split_inner_ = 0;
  bool want_split_ = false;

  Interner<Expression, HashExpression> expressions_;
  Interner<std::vector<std::uint32_t>, HashList> maps_;    // axes' expressions, then the guard
  Interner<std::vector<std::uint32_t>, HashList> guards_;  // pairs (expression, bound index)
  std::vector<Quotient> quotients_;
  std::vector<std::int64_t> bounds_;
  std::unordered_map<NodeId, std::vector<Demand>> demands_;
  std::vector<NodeId> visited_;
  std::vector<std::size_t> roots_;        // which of the group's have elements
  std::vector<std::uint32_t> root_maps_;  // of these

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
      if (quotients_[i].expression == id && quotients_[i].by == by && quotients_[i].modulo == modulo)
        return kFirstDerived + static_cast<std::uint32_t>(i);
    std::int64_t low, high;
    range_of(e, low, high);
    if (modulo) quotients_.push_back({id, by, modulo, 0, by - 1});
    else quotients_.push_back({id, by, modulo, floor_div(low, by), floor_div(high, by)});
    return kFirstDerived + static_cast<std::uint32_t>(quotients_.size() - 1);
  }

  // e = by * q + r, 0 <= r < by.
  void divide(const Expression& e, std::int64_t by, Expression& q, Expression& r) {
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
      const std::int64_t inner = by / t.coefficient;
      if (inner < loops_[t.variable].extent && loops_[t.variable].extent % inner == 0) {
        if (!want_split_) split_loop_ = t.variable, split_inner_ = inner;
        want_split_ = true;
        return;
      }
    }
    const Expression rest = r;
    add(q, Expression{0, {{quotient(rest, by, false), 1}}}, 1);
    r = Expression{0, {{quotient(rest, by, true), 1}}};
  }

  // The index along consecutive loops, the last running fastest.
  std::uint32_t along(const std::vector<std::uint32_t>& loops) {
    Expression x;
    std::int64_t stride = 1;
    for (std::size_t k = loops.size(); k-- > 0;) {
      if (loops_[loops[k]].extent == 1) continue;
      x.terms.insert(x.terms.begin(), {loops[k], stride});
      stride *= loops_[loops[k]].extent;
    }
    return expressions_(x);
  }
  std::vector<std::uint32_t> axes_of_root(std::size_t root) {
    std::vector<std::uint32_t> out;
    for (const DomainAxes& axis : partition_.groups[group_].axes[root]) {
      std::vector<std::uint32_t> mine;
      for (std::uint32_t l = 0; l < loops_.size(); ++l)
        if (loops_[l].axis >= axis.first && loops_[l].axis < axis.first + axis.count) mine.push_back(l);
      out.push_back(along(mine));
      if (!axis.flipped) continue;
      Expression backwards{-1, {}};
      for (const std::uint32_t l : mine) backwards.offset *= loops_[l].extent;
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
      case Op::Pad:
        for (std::size_t i = 0; i < shape.size(); ++i) {
          const std::int64_t start = attributes[i], step = attributes[shape.size() + i];
          Expression e;
          e.offset = step > 0 ? -start : start;
          add(e, expressions_[axes[i]], step > 0 ? 1 : -1);
          const std::int64_t by = step > 0 ? step : -step;
          if (by != 1) {
            Expression q, r;
            divide(e, by, q, r);
            if (want_split_) return 0;
            guard = with_guard(guard, r, 1);
            e = q;
          }
          guard = with_guard(guard, e, was[i]);
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
          for (std::size_t k = j; k-- > j0;) {
            if (k == j0 || was[k] == 1) {
              out[k] = was[k] == 1 ? zero() : expressions_(linear);
              if (was[k] != 1) linear = {};
              continue;
            }
            bool last = true;  // the outermost axis takes what is left
            for (std::size_t o = j0; o < k; ++o) last &= was[o] == 1;
            if (last) {
              out[k] = expressions_(linear);
              linear = {};
              continue;
            }
            Expression q, r;
            divide(linear, was[k], q, r);
            if (want_split_) return 0;
            out[k] = expressions_(r);
            linear = q;
          }
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
    return (op == Op::ReduceSum || op == Op::ReduceProd) && graph_.elements(graph_.operand(id, 0)) == 0;
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

  bool build() {
    want_split_ = false;
    expressions_ = {};
    maps_ = {};
    guards_ = {};
    quotients_.clear();
    bounds_.clear();
    demands_.clear();
    visited_.clear();
    root_maps_.clear();
    guards_({});
    maps_({0});  // of a scalar: map 0

    std::priority_queue<NodeId> queue;
    for (const std::size_t r : roots_) {
      const NodeId root = partition_.groups[group_].roots[r];
      std::vector<std::uint32_t> map = axes_of_root(r);
      map.push_back(0);
      root_maps_.push_back(maps_(map));
      demand(queue, root, root_maps_.back());
    }
    while (!queue.empty()) {
      const NodeId id = queue.top();
      queue.pop();
      visited_.push_back(id);
      const Op op = graph_[id].op;
      if (in_memory(id) || ir::is_source(op) || reduces_nothing(id)) continue;
      for (std::size_t i = 0; i < demands_[id].size(); ++i) {
        const std::uint32_t map = demands_[id][i].map;
        std::uint32_t operand_map = map;
        if (ir::is_view(op)) {
          operand_map = compose(id, map);
          if (want_split_) return false;
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
    return true;
  }

  std::uint32_t value_of(NodeId id, std::uint32_t map) {
    const Op op = graph_[id].op;
    if (op == Op::Constant || op == Op::Slot) map = 0;
    for (const Demand& d : demands_[id])
      if (d.map == map) return d.statement;
    throw InternalError("plan: a value was not demanded");
  }

  std::uint64_t loops_of(const Expression& e) const {
    std::uint64_t mask = 0;
    for (const Term& t : e.terms)
      mask |= t.variable < kFirstDerived ? std::uint64_t{1} << t.variable
                                         : loops_of(expressions_[quotients_[t.variable - kFirstDerived].expression]);
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
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      if (shape[i] == 1) continue;
      add(e, expressions_[maps_[map][i]], layout ? (*layout)[i] : stride);
    }
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

  void make(NodeId id, Demand& d) {
    const Node node = graph_[id];
    Statement s{};
    s.dtype = computed_type(node.dtype);
    if (in_memory(id)) {
      s.kind = Statement::Kind::Load;
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
          if (is_half(node.dtype)) s.half = node.dtype;
        }
        break;
      case ir::OpKind::View: {
        const std::uint32_t value = value_of(graph_.operand(id, 0), d.operand_map);
        const std::uint32_t outer = maps_[d.map].back(), inner = maps_[d.operand_map].back();
        const std::uint32_t guard = guard_statement(inner);
        if (outer == inner || guard == kNone || (body_[value].kind == Statement::Kind::Load && body_[value].guard == guard)) {
          d.statement = value;  // a guarded load gives the zero itself
          return;
        }
        Statement zero{};
        zero.kind = Statement::Kind::Constant;
        zero.dtype = s.dtype;
        const std::uint32_t z = emit(zero);
        s.kind = Statement::Kind::Op;
        s.op = Op::Where;
        s.a = guard;
        s.b = value;
        s.c = z;
        s.stage = body_[value].stage;
        s.loops = body_[guard].loops | body_[value].loops;
        break;
      }
      case ir::OpKind::Reduction: {
        const NodeId from = graph_.operand(id, 0);
        if (reduces_nothing(id)) {
          s.kind = Statement::Kind::Constant;
          s.bits = ir::bits_of(node.dtype, std::int64_t{node.op == Op::ReduceProd});
          break;
        }
        const std::uint32_t value = value_of(from, d.operand_map);
        if (graph_.elements(from) == graph_.elements(id)) {
          d.statement = value;
          return;
        }
        s.kind = Statement::Kind::Reduce;
        s.op = node.op;
        s.a = value;
        s.stage = static_cast<std::uint8_t>(body_[value].stage + 1);
        std::uint64_t reduced = 0;
        for (std::size_t l = 0; l < loops_.size(); ++l) reduced |= loops_[l].reduced ? std::uint64_t{1} << l : 0;
        s.loops = body_[value].loops & ~reduced;
        if (is_float(node.dtype) && (node.op == Op::ReduceSum || node.op == Op::ReduceProd)) {
          order_ = ir::sum_order(graph_.shape(from), graph_.attributes(id), s.dtype);
          ordered_ = id;
        }
        break;
      }
      default: {
        const List operands = graph_.operands(id);
        std::uint32_t in[3] = {kNone, kNone, kNone};
        for (std::size_t i = 0; i < operands.size(); ++i) {
          in[i] = value_of(static_cast<NodeId>(operands[i]), d.map);
          s.stage = std::max(s.stage, body_[in[i]].stage);
          s.loops |= body_[in[i]].loops;
        }
        if (node.op == Op::StopGradient) {
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
    std::sort(visited_.begin(), visited_.end());
    for (const NodeId id : visited_)
      for (Demand& d : demands_[id]) make(id, d);
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      const NodeId root = partition_.groups[group_].roots[roots_[r]];
      // one store for each time that the node is an output (once where it is stored for other groups alone), and a half as f32 for others
      std::int32_t copies = static_cast<std::int32_t>(std::count(graph_.outputs.begin(), graph_.outputs.end(), root));
      const bool unrounded = is_half(graph_[root].dtype) && (copies == 0 || partition_.read_again[root]);
      if (!is_half(graph_[root].dtype)) copies = std::max(copies, 1);
      for (std::int32_t copy = unrounded ? NestNumbers::kUnrounded : 0; copy < copies; ++copy) {
        Statement s{};
        s.kind = Statement::Kind::Store;
        s.dtype = computed_type(graph_[root].dtype);
        s.a = value_of(root, root_maps_[r]);
        s.at = access_for(root, root_maps_[r], true, copy);
        s.loops = loops_of(expressions_[access_expressions_[s.at]]) | body_[s.a].loops;
        s.stage = body_[s.a].stage;
        emit(s);
      }
    }
    arrange(out);
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
        self(self, quotients_[q].expression);
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
        s += c == 1 ? worth : c == 0 ? 0 : -worth;
      }
      return s;
    };
    NestKind kind = NestKind::Map;
    if (!reduced.empty()) {
      if (order_) kind = order_->lanes ? NestKind::Lanes : NestKind::Rows;
      else if (kept.empty()) kind = NestKind::Lanes;
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
    for (std::size_t i = 0; i < used.size(); ++i) {
      Linear linear;
      std::vector<std::int64_t> c;
      for (std::uint32_t l : final_order) c.push_back(l == kNone ? 0 : coefficient(used[i], l));
      for (std::uint32_t q : quotient_order) c.push_back(coefficient(used[i], kFirstDerived + q));
      for (std::int64_t v : c) linear.of.push_back(v == 0 ? Coefficient::Zero : v == 1 ? Coefficient::One : Coefficient::General);
      nest.linears.push_back(std::move(linear));
      numbers.coefficients.push_back(std::move(c));
      numbers.offsets.push_back(expressions_[used[i]].offset);
    }
    const auto accesses = static_cast<std::uint32_t>(access_expressions_.size());
    const auto indices = static_cast<std::uint32_t>(index_expressions_.size());
    const auto checks = static_cast<std::uint32_t>(check_expressions_.size());
    for (std::uint32_t a = 0; a < accesses; ++a) nest.accesses.push_back({access_buffers_[a], a});
    for (std::uint32_t c = 0; c < checks; ++c) nest.checks.push_back({accesses + indices + c});
    numbers.bounds = check_bounds_;
    for (std::uint32_t q = 0; q < quotient_order.size(); ++q) {
      nest.derived.push_back({accesses + indices + checks + q, quotients_[quotient_order[q]].modulo});
      numbers.by.push_back(quotients_[quotient_order[q]].by);
    }
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
        if (s.kind == Statement::Kind::Reduce) s.loops |= std::uint64_t{1} << nest.vector_loop();
        if (s.kind != Statement::Kind::Op && s.kind != Statement::Kind::Reduce) continue;
        for (std::uint32_t o : {s.a, s.b, s.c})
          if (o != kNone) s.loops |= nest.body[o].loops & (s.kind == Statement::Kind::Reduce ? ~inner : ~std::uint64_t{0});
      }
    for (const Statement& s : nest.body) {
      if (s.kind == Statement::Kind::Reduce) nest.sweeps = std::max(nest.sweeps, s.stage);
      if (s.kind == Statement::Kind::Store && (s.loops & inner))
        nest.sweeps = std::max<std::uint8_t>(nest.sweeps, static_cast<std::uint8_t>(s.stage + 1));
    }
  }
};

}  // namespace

Planned plan(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
             std::span<const Layout> targets) {
  return Planner(graph, partition, group, layouts, targets).run();
}

std::string Nest::key() const {
  std::string k;
  const auto put = [&](auto v) { k.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(static_cast<std::uint8_t>(kind));
  put(outer);
  put(serial);
  put(runs);
  put(sweeps);
  put(static_cast<std::uint32_t>(linears.size()));
  for (const Linear& l : linears) {
    put(static_cast<std::uint32_t>(l.of.size()));
    for (Coefficient c : l.of) put(static_cast<std::uint8_t>(c));
  }
  put(static_cast<std::uint32_t>(derived.size()));
  for (const Derived& d : derived) put(d.linear), put(static_cast<std::uint8_t>(d.modulo));
  put(static_cast<std::uint32_t>(accesses.size()));
  for (const Access& a : accesses) put(a.buffer), put(a.linear);
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
    out += fmt::format("  q{} = ({}) {} {}\n", q, linear(nest.derived[q].linear), nest.derived[q].modulo ? "mod" : "div", numbers.by[q]);
  for (std::size_t i = 0; i < nest.body.size(); ++i) {
    const Statement& s = nest.body[i];
    const std::string place = s.kind == Statement::Kind::Store ? "" : fmt::format("v{} = ", i);
    std::string text;
    switch (s.kind) {
      case Statement::Kind::Load:
      case Statement::Kind::Store: {
        const Access& a = nest.accesses[s.at];
        text = fmt::format("{} %{}[{}]", s.kind == Statement::Kind::Load ? "load" : "store", numbers.buffers[a.buffer], linear(a.linear));
        if (s.kind == Statement::Kind::Store) text += fmt::format(" = v{}", s.a);
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
      case Statement::Kind::Op:
      case Statement::Kind::Reduce:
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
