// limits: see limits.h.
#include "compiler/limits.h"

#include <algorithm>
#include <deque>

#include "compiler/fuse.h"
#include "ir/build.h"

namespace onepass::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

// Numbers at 0 .. size. A call can add to a range of them or read their maximum.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::size_t size) {
    while (leaves_ < size) leaves_ *= 2;
    most_.assign(2 * leaves_, 0);
    added_.assign(2 * leaves_, 0);
  }
  void add(std::size_t begin, std::size_t end, std::int32_t by) { add(1, 0, leaves_, begin, end, by); }
  std::int32_t maximum() const { return most_[1]; }

 private:
  std::size_t leaves_ = 1;
  std::vector<std::int32_t> most_, added_;

  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end, std::int32_t by) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      most_[node] += by;
      added_[node] += by;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, by);
    add(2 * node + 1, middle, high, begin, end, by);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }
};

class Cutter {
 public:
  Cutter(const Graph& graph, const Partition& partition, const KernelLimits& limits, Cuts& cuts)
      : graph_(graph),
        partition_(partition),
        limits_(limits),
        cuts_(cuts),
        base_(graph.size()),
        seen_(graph.size(), 0),
        number_(graph.size(), 0),
        cost_(graph.size(), 0),
        uniform_(graph.size(), false) {
    for (NodeId id = 0; id < graph.size(); ++id) base_[id] = ir::is_view(graph[id].op) ? base_[graph.operand(id, 0)] : id;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const ir::Op op = graph[id].op;
      if (ir::is_source(op) || partition.lists.reads(id) || partition.lists.assembles(id)) continue;
      cost_[id] = ir::is_view(op) ? 0 : primitives(id);
      for (const std::int64_t o : graph.operands(id))
        cost_[id] = std::min(cost_[id] + cost_[static_cast<std::size_t>(o)], 2 * kComputedAgain);
    }
    for (NodeId id = 0; id < graph.size(); ++id) {
      const ir::Op op = graph[id].op;
      const auto is_uniform = [&](std::int64_t o) { return uniform_[static_cast<std::size_t>(o)]; };
      uniform_[id] =
          op == ir::Op::Constant || op == ir::Op::Slot || (ir::is_elementwise(op) && std::ranges::all_of(graph.operands(id), is_uniform));
    }
    cuts_.part.resize(graph.size(), 0);
    cuts_.stored.resize(graph.size(), false);
  }

  bool run() {
    bool any = false;
    for (group_ = 0; group_ < partition_.groups.size(); ++group_) {
      collect();
      any |= cut();
    }
    return any;
  }

 private:
  const Graph& graph_;
  const Partition& partition_;
  const KernelLimits& limits_;
  Cuts& cuts_;
  std::vector<NodeId> base_;  // the value under any views
  std::uint32_t group_ = 0;
  std::vector<std::uint32_t> seen_;  // the last fusion group that visited the node, plus 1
  std::vector<std::size_t> number_;  // index of a value among the fusion group's values
  // Primitives of a value's whole expression, with shared parts counted each time; saturating.
  std::vector<std::uint32_t> cost_;
  std::vector<bool> uniform_;     // depends only on constants and scalar parameters: computed outside of the loop
  std::vector<NodeId> computed_;  // the fusion group's elementwise operators, reductions and materialized views, in graph order

  bool in_memory(NodeId id) const { return partition_.loads(graph_, id, group_); }

  void collect() {
    computed_.clear();
    std::vector<NodeId> open;
    const auto visit = [&](NodeId id) {
      if (seen_[id] == group_ + 1) return;
      seen_[id] = group_ + 1;
      computed_.push_back(id);
      open.push_back(id);
    };
    for (NodeId root : partition_.groups[group_].roots) visit(root);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (std::int64_t o : partition_.operands(graph_, id, group_))
        if (const NodeId value = base_[static_cast<std::size_t>(o)]; !in_memory(value) && !ir::is_source(graph_[value].op)) visit(value);
    }
    std::sort(computed_.begin(), computed_.end());
  }

  std::uint32_t primitives(NodeId id) const {
    constexpr std::uint32_t kReduction = 16;  // several accumulators, code for the last vector, and their sum across lanes
    const ir::Op op = graph_[id].op;
    if (ir::is_reduction(op)) return kReduction;
    if (ir::info(op).kind != ir::OpKind::Expanded) return ir::is_view(op) ? 0 : 1;
    const Graph& expansion = ir::expansion(op, computed_type(graph_[graph_.operand(id, 0)].dtype));
    std::uint32_t count = 0;
    for (NodeId part = 0; part < expansion.size(); ++part) count += ir::is_elementwise(expansion[part].op);
    return count;
  }
  // A single element does not use a vector register. A cheap element is recomputed in each part that reads it.
  static constexpr std::uint32_t kComputedAgain = 32;
  bool varies(NodeId id) const {
    return !uniform_[id] && std::ranges::any_of(graph_.shape(id), [](std::int64_t e) { return e != 1; });
  }
  double bytes(NodeId id) const {
    double b = static_cast<double>(size_of(graph_[id].dtype));
    for (std::int64_t e : graph_.shape(id))
      if (e != 1) b *= 1024;
    return b;
  }

  struct Value {
    NodeId id;
    std::size_t first, last;  // positions that compute or read it
  };
  struct Wait {
    std::size_t begin, end;  // from one access of a value to the next: it is live in between
  };

  bool cut() {
    const std::size_t n = computed_.size();
    std::vector<Value> values;
    std::vector<Wait> waits;  // sorted by `end`
    std::vector<std::uint32_t> work;
    std::uint64_t all = 0, beside = 0;
    const bool any_varies = std::ranges::any_of(computed_, [&](NodeId id) { return varies(id); });
    for (std::size_t i = 0; i < n; ++i) {
      work.push_back(primitives(computed_[i]));
      if (any_varies && !varies(computed_[i]) &&
          !ir::is_reduction(graph_[computed_[i]].op)) {  // scalar code outside of the loop: a quarter
        beside += work[i];
        work[i] = static_cast<std::uint32_t>(beside / 4);
        beside %= 4;
      }
      all += work[i];
      const auto access = [&](NodeId id) {
        const bool waits_in_register = varies(id);
        if (!waits_in_register && (cost_[id] <= kComputedAgain || in_memory(id))) return;
        std::size_t& number = number_[id];
        if (number >= values.size() || values[number].id != id) {
          number = values.size();
          return values.push_back({id, i, i});
        }
        Value& value = values[number];
        if (value.last == i) return;
        if (waits_in_register) waits.push_back({value.last, i});
        value.last = i;
      };
      for (std::int64_t o : partition_.operands(graph_, computed_[i], group_))
        if (const NodeId value = base_[static_cast<std::size_t>(o)]; in_memory(value) || !ir::is_source(graph_[value].op)) access(value);
      access(computed_[i]);
    }
    if (all <= limits_.primitives && most_alive(waits) <= limits_.live) return false;

    const std::vector<std::size_t> ends = best_cuts(earliest_begins(work, waits), crossing(values));
    if (ends.size() == 1) return false;
    std::vector<std::uint32_t> part(n);
    for (std::size_t i = 0, k = 0; i < n; ++i) {
      if (i == ends[k]) ++k;
      part[i] = cuts_.parts + static_cast<std::uint32_t>(k) + 1;
      if (cuts_.part[computed_[i]] == 0 || partition_.group_of[computed_[i]] == group_) cuts_.part[computed_[i]] = part[i];
    }
    cuts_.parts += static_cast<std::uint32_t>(ends.size());
    for (const Value& value : values)
      if (!in_memory(value.id) && !ir::is_view(graph_[value.id].op) && part[value.first] != part[value.last]) cuts_.stored[value.id] = true;
    return true;
  }

  // Returns the largest number of values that wait at one position of the whole fusion group.
  std::size_t most_alive(const std::vector<Wait>& waits) const {
    std::vector<std::ptrdiff_t> change(computed_.size() + 1, 0);
    for (const Wait& wait : waits) ++change[wait.begin], --change[wait.end];
    std::ptrdiff_t alive = 0, most = 0;
    for (const std::ptrdiff_t by : change) most = std::max(most, alive += by);
    return static_cast<std::size_t>(most);
  }

  // Returns, for each end of a part, the first position at which the part can begin.
  std::vector<std::size_t> earliest_begins(const std::vector<std::uint32_t>& work, const std::vector<Wait>& waits) const {
    const std::size_t n = computed_.size();
    std::vector<std::size_t> earliest(n + 1, 0);
    std::vector<std::vector<std::size_t>> begun(n);  // by begin of a counted wait: the ends
    RangeMaximum alive(n);
    std::uint64_t sum = 0;
    auto wait = waits.begin();
    for (std::size_t i = 0, begin = 0; i < n; ++i) {
      sum += work[i];
      for (; wait != waits.end() && wait->end == i; ++wait)
        if (wait->begin >= begin) {
          begun[wait->begin].push_back(i);
          alive.add(wait->begin, i, 1);
        }
      for (; begin < i && (sum > limits_.primitives || alive.maximum() > static_cast<std::int32_t>(limits_.live)); ++begin) {
        sum -= work[begin];
        for (const std::size_t end : begun[begin]) alive.add(begin, end, -1);
      }
      earliest[i + 1] = begin;
    }
    return earliest;
  }

  // Returns the bytes that cross a cut before each position.
  std::vector<double> crossing(const std::vector<Value>& values) const {
    std::vector<double> bytes_at(computed_.size() + 1, 0);
    for (const Value& value : values) {
      if (value.first == value.last) continue;
      const bool is_stored = in_memory(value.id) || partition_.group_of[value.id] != Partition::kNoGroup;
      const double moved = bytes(value.id) * (is_stored ? 1 : 2);
      bytes_at[value.first + 1] += moved;
      bytes_at[value.last + 1] -= moved;  // exact: the sums are integers below 2^53 in all relevant cases
    }
    for (std::size_t i = 1; i < bytes_at.size(); ++i) bytes_at[i] += bytes_at[i - 1];
    return bytes_at;
  }

  // Returns the ends of the parts with the cheapest cuts. An additional kernel costs as much as one crossing value.
  std::vector<std::size_t> best_cuts(const std::vector<std::size_t>& earliest, const std::vector<double>& bytes_at) const {
    const std::size_t n = computed_.size();
    double kernel = 0;
    for (NodeId id : computed_) kernel = std::max(kernel, 2 * bytes(id));
    std::vector<double> cost(n + 1, 0);
    std::vector<std::size_t> from(n + 1, 0);
    std::deque<std::size_t> cheapest;  // candidate begins that cost less than every later begin
    for (std::size_t end = 1; end <= n; ++end) {
      while (!cheapest.empty() && cost[cheapest.back()] >= cost[end - 1]) cheapest.pop_back();
      cheapest.push_back(end - 1);
      while (cheapest.front() < earliest[end]) cheapest.pop_front();
      from[end] = cheapest.front();
      cost[end] = cost[from[end]] + kernel + (end < n ? bytes_at[end] : 0);
    }
    std::vector<std::size_t> ends;
    for (std::size_t end = n; end > 0; end = from[end]) ends.push_back(end);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }
};

}  // namespace

bool cut_at_limits(const Graph& graph, const Partition& partition, const KernelLimits& limits, Cuts& cuts) {
  return Cutter(graph, partition, limits, cuts).run();
}

}  // namespace onepass::compiler
