// save: a minimum cut. Each value of the forward part is an edge from `before` to `after`:
//   source -> before   the cost of recomputing it               cut if the backward call computes it
//   before -> after    the cost of storing and loading it       cut if it is saved
//   after(x) -> before(y), x an operand of y: free, never cut: recomputation needs the operands
//   after -> sink      never cut: an operator of the backward part reads it
// Costs are in quarters of a byte of traffic. A primitive on one element costs one unit, consistent with fuse: 32 primitives cost as much
// as storing and loading an f32. An input is never recomputed and costs only its load. Views are free. A reduction costs another pass over
// its operand.
//
// Left out on purpose: the selection of kernels. The model counts each input's load once, even if the backward part reads it anyway. It
// ignores that a forward kernel may hold a value in registers.
//
// Half-precision values that no cast rounded are saved as f32. Memory would otherwise round them, and results would depend on the choice of
// residuals. Values that checkpoint must recompute are never saved.
#include "compiler/save.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "compiler/record.h"
#include "ir/build.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMost = std::int64_t{1} << 41;  // maximum for one value: the sum of 2^20 of them is below kNever
constexpr std::int64_t kLoad = 4;                      // cost of a byte
constexpr std::int64_t kStoreLoad = 8;                 // cost of a byte

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : std::min(product, kMost);
}

// ------------------------------------------------------------------------------------------------ maximum flow

/// Dinic's algorithm: alternates a search for distances with augmenting paths that only go away from the source.
class Flow {
 public:
  explicit Flow(std::size_t vertices) : first_(vertices, kNone) {}

  void add(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
    edges_.push_back({to, first_[from], capacity});
    first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
    edges_.push_back({from, first_[to], 0});
    first_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
  }

  /// Computes the maximum flow. Returns, for each vertex, whether it is on the source's side of the minimum cut.
  std::vector<bool> source_side(std::uint32_t source, std::uint32_t sink) {
    while (search(source, sink)) {
      next_ = first_;
      while (augment(source, sink)) {}
    }
    std::vector<bool> side(first_.size());
    for (std::size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
    return side;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Edge {
    std::uint32_t to, next;
    std::int64_t capacity;
  };
  std::vector<std::uint32_t> first_, next_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> level_;

  bool search(std::uint32_t source, std::uint32_t sink) {
    level_.assign(first_.size(), -1);
    std::vector<std::uint32_t> open{source};
    level_[source] = 0;
    for (std::size_t i = 0; i < open.size(); ++i)
      for (std::uint32_t e = first_[open[i]]; e != kNone; e = edges_[e].next)
        if (edges_[e].capacity > 0 && level_[edges_[e].to] < 0) {
          level_[edges_[e].to] = level_[open[i]] + 1;
          open.push_back(edges_[e].to);
        }
    return level_[sink] >= 0;
  }

  /// Augments one path, without recursion because graphs can be long.
  bool augment(std::uint32_t source, std::uint32_t sink) {
    std::vector<std::uint32_t> path;
    for (std::uint32_t at = source; at != sink;) {
      std::uint32_t& e = next_[at];
      while (e != kNone && !(edges_[e].capacity > 0 && level_[edges_[e].to] == level_[at] + 1)) e = edges_[e].next;
      if (e != kNone) {
        path.push_back(e);
        at = edges_[e].to;
      } else if (path.empty()) {
        return false;
      } else {
        at = edges_[path.back() ^ 1].to;
        next_[at] = edges_[next_[at]].next;
        path.pop_back();
      }
    }
    std::int64_t amount = kNever;
    for (const std::uint32_t e : path) amount = std::min(amount, edges_[e].capacity);
    for (const std::uint32_t e : path) {
      if (edges_[e].capacity < kNever) edges_[e].capacity -= amount;
      if (edges_[e ^ 1].capacity < kNever) edges_[e ^ 1].capacity += amount;
    }
    return true;
  }
};

// ------------------------------------------------------------------------------------------------ the forward and the backward part

class Choice {
 public:
  Choice(const Graph& joint, std::span<const NodeId> cotangents, std::span<const NodeId> results, std::span<const NodeId> gradients)
      : graph_(joint),
        gradients_(gradients),
        backward_(joint.size(), false),
        needed_(joint.size(), false),
        reads_(joint.size(), false),
        is_result_(joint.size(), false),
        apart_(joint.size(), false) {
    for (const NodeId id : cotangents)
      if (id != kNoNode) backward_[id] = true;
    for (const NodeId id : results) is_result_[id] = true;
    for (const NodeId id : gradients) needed_[id] = true;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      apart_[id] = graph_[id].op == Op::Identity && graph_.attributes(id).empty() && !backward_[id];
      for (const std::int64_t o : graph_.operands(id)) {
        const auto operand = static_cast<NodeId>(o);
        backward_[id] = backward_[id] || backward_[operand];
        apart_[id] = apart_[id] || apart_[operand];
      }
    }
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!needed_[id]) continue;
      for (const std::int64_t o : graph_.operands(id)) {
        needed_[static_cast<std::size_t>(o)] = true;
        if (backward_[id]) reads_[static_cast<std::size_t>(o)] = true;
      }
    }
    for (const NodeId id : gradients) reads_[id] = true;
  }

  SavePlan plan(std::int64_t budget) const {
    // Each round lowers the cost of recomputation, finally to zero, so the residuals shrink in each round.
    for (const int halvings : {0, 1, 2, 3, 4, 6, 8, 10, 14, 18, 64}) {
      SavePlan plan = plan_with(halvings);
      if (budget < 0 || plan.bytes <= budget || halvings == 64) return plan;
    }
    return {};
  }

 private:
  const Graph& graph_;
  std::span<const NodeId> gradients_;
  std::vector<bool> backward_;  // by node: depends on a cotangent
  std::vector<bool> needed_;    // a gradient depends on it
  std::vector<bool> reads_;     // an operator of the backward part, or the caller, reads it
  std::vector<bool> is_result_;
  std::vector<bool> apart_;  // computed from values that checkpoint recomputes

  bool is_forward(NodeId id) const { return needed_[id] && !backward_[id]; }
  /// True if the value is available without any memory.
  bool is_free(NodeId id) const { return is_source(graph_[id].op) && graph_[id].op != Op::Input; }
  std::int64_t bytes(NodeId id) const {
    return times(graph_.elements(id), static_cast<std::int64_t>(size_of(is_rounded(id) ? graph_[id].dtype : DType::F32)));
  }
  bool is_rounded(NodeId id) const { return is_saved_as_it_is(graph_, id); }
  bool is_referenced(NodeId id) const { return graph_[id].op == Op::Input || (is_result_[id] && is_rounded(id)); }

  std::int64_t primitives(NodeId id) const {
    const Node node = graph_[id];
    switch (info(node.op).kind) {
      case OpKind::View:
      case OpKind::Source: return 0;
      case OpKind::Expanded: {
        const Graph& made_of = expansion(node.op, is_half(node.dtype) ? DType::F32 : node.dtype);
        std::int64_t count = 0;
        for (NodeId each = 0; each < made_of.size(); ++each) count += !is_source(made_of[each].op);
        return count;
      }
      default: return 1;
    }
  }

  std::int64_t cost_again(NodeId id) const {
    switch (info(graph_[id].op).kind) {
      case OpKind::Reduction: return times(bytes(graph_.operand(id, 0)), kLoad);
      case OpKind::Scan:
      case OpKind::Gather: return times(bytes(id), kStoreLoad);
      case OpKind::Routine: return times(bytes(graph_.operand(id, 0)), 8 * kStoreLoad);
      case OpKind::Scatter: return times(bytes(id), 4 * kStoreLoad);  // updates run one after the other
      default: return times(graph_.elements(id), primitives(id));
    }
  }

  std::string reason(NodeId id) const {
    const Node node = graph_[id];
    if (node.op == Op::Input) return "an argument, held by reference";
    if (is_result_[id] && is_rounded(id)) return "a result, held by reference";
    const NodeId x = graph_.operands(id).empty() ? id : graph_.operand(id, 0);
    const OpKind kind = info(node.op).kind;
    if (kind == OpKind::Reduction || kind == OpKind::Scan)
      return fmt::format("recomputing it takes another pass over {}", type_text(graph_[x].dtype, graph_.shape(x)));
    return "storing and loading it costs less than recomputing it";
  }

  /// Returns the bytes saved without fusion. A view is free there too; its base is saved.
  std::int64_t unfused_bytes() const {
    std::vector<bool> saved(graph_.size(), false);
    std::int64_t sum = 0;
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!is_forward(id) || (!reads_[id] && !saved[id])) continue;
      if (is_view(graph_[id].op)) saved[graph_.operand(id, 0)] = true;
      else if (!is_free(id) && !is_referenced(id)) sum += bytes(id);
    }
    return sum;
  }

  SavePlan plan_with(int halvings) const {
    const std::vector<bool> saved = cut(halvings);
    SavePlan plan;
    plan.in_backward.assign(graph_.size(), false);
    for (const NodeId id : gradients_) plan.in_backward[id] = true;
    plan.unfused_bytes = unfused_bytes();
    for (NodeId id = graph_.size(); id-- > 0;) {
      if (!plan.in_backward[id]) continue;
      if (is_forward(id) && (graph_[id].op == Op::Input || saved[id])) {
        plan.in_backward[id] = false;
        plan.values.push_back({id, is_referenced(id), is_referenced(id) ? 0 : bytes(id), reason(id)});
        plan.bytes += plan.values.back().bytes;
        continue;
      }
      for (const std::int64_t o : graph_.operands(id)) plan.in_backward[static_cast<std::size_t>(o)] = true;
    }
    std::ranges::reverse(plan.values);
    return plan;
  }

  std::vector<bool> cut(int halvings) const {
    const auto less = [&](std::int64_t cost) { return halvings > 62 ? 0 : cost >> halvings; };
    std::vector<std::uint32_t> vertex(graph_.size(), 0);
    std::uint32_t next = 2;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_forward(id) && !is_free(id)) vertex[id] = next, next += 2;
    constexpr std::uint32_t kSource = 0, kSink = 1;
    Flow flow(next);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const std::uint32_t before = vertex[id], after = before + 1;
      if (before == 0) continue;
      const bool input = graph_[id].op == Op::Input;
      flow.add(kSource, before, input ? kNever : less(cost_again(id)));
      if (is_referenced(id)) flow.add(before, after, less(times(bytes(id), kLoad)));
      else flow.add(before, after, apart_[id] ? kNever : times(bytes(id), kStoreLoad));
      for (const std::int64_t o : graph_.operands(id))
        if (const std::uint32_t operand = vertex[static_cast<std::size_t>(o)]) flow.add(operand + 1, before, kNever);
      if (reads_[id]) flow.add(after, kSink, kNever);
    }
    const std::vector<bool> source_side = flow.source_side(kSource, kSink);
    std::vector<bool> saved(graph_.size(), false);
    for (NodeId id = 0; id < graph_.size(); ++id) saved[id] = vertex[id] != 0 && source_side[vertex[id]] && !source_side[vertex[id] + 1];
    return saved;
  }
};

}  // namespace

bool is_saved_as_it_is(const Graph& graph, NodeId id) {
  return !is_half(graph[id].dtype) || graph[id].op == Op::Cast || graph[id].op == Op::Input;
}

SavePlan choose_saved(const Graph& joint, std::span<const NodeId> cotangents, std::span<const NodeId> results,
                      std::span<const NodeId> gradients, std::int64_t budget) {
  return Choice(joint, cotangents, results, gradients).plan(budget);
}

}  // namespace onepass::compiler
