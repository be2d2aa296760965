// fuse: see fuse.h.
#include "compiler/fuse.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "compiler/axis_symbols.h"
#include "compiler/fuse_rows.h"
#include "compiler/recompute.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::ListId;
using ir::Node;
using ir::NodeId;
using ir::Op;

std::int64_t few_columns(const Graph& graph, NodeId id) {
  if (!ir::is_reduction(graph[id].op) || ir::is_contraction(graph[id].op)) return 0;
  constexpr std::int64_t kFew = 16;
  const List axes = graph.attributes(id), shape = graph.shape(graph.operand(id, 0));
  std::int64_t columns = 1;
  bool outside = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (std::ranges::binary_search(axes, static_cast<std::int64_t>(i))) outside = true;
    else if (outside && shape[i] != 1) return 0;
    else columns *= shape[i];
  }
  return columns > 1 && columns < kFew ? columns : 0;
}

std::string_view text_of(Boundary b) {
  switch (b) {
    case Boundary::Inlined: return "inlined";
    case Boundary::Output: return "output";
    case Boundary::FullReduction: return "a full reduction whose result is read in a different order";
    case Boundary::OtherLoops: return "a reduction result read by loops that do not share its rows";
    case Boundary::OtherAxes: return "combined with a reduction over different axes";
    case Boundary::ReductionOfReduction: return "a reduction of a reduction";
    case Boundary::Recompute: return "recompute";
    case Boundary::Pieces: return "subdomains of subdomains";
    case Boundary::FewColumns: return "a reduction over axes outside of few columns, whose loop has few vector lanes in use";
    case Boundary::ShortAxis: return "read by a reduction whose last axis repeats values and has few vector lanes in use";
    case Boundary::Gathered: return "read at data-dependent indices";
    case Boundary::Scattered: return "updated at data-dependent indices";
    case Boundary::Sorted: return "sorted or searched as a whole array";
    case Boundary::Stepped: return "operand or result of a step-by-step recurrence";
    case Boundary::Checked: return "indices that are all checked";
    case Boundary::KernelLimit: return "kernel limit";
    case Boundary::Assembled: return "assembled from parts that several kernels store";
    case Boundary::Unfused: return "unfused";
  }
  return "";
}

namespace {

// Each sweep recomputes the values that it needs from earlier sweeps. After kMostSweeps sweeps they are materialized.
constexpr std::uint8_t kMostSweeps = 8;

// Returns the number of operations for which materializing a value pays off after this many sweeps.
constexpr std::uint32_t sweep_cost(std::uint8_t sweeps) { return sweeps < 2 ? ~std::uint32_t{0} : sweeps == 2 ? 48 : 30; }

// A loop without vectors, or with few lanes in use, reads a value of at least this many operations for each lane in use from memory.
constexpr std::uint32_t kMany = 3;
// A reduction of at least so many elements outside of few columns has a kernel of its own.
constexpr std::int64_t kManyElements = 256;

// Returns the cost of an operator for each element, in additions.
std::uint32_t cost_of(Op op) {
  if (ir::is_view(op)) return op == Op::Pad ? 1 : 0;
  if (ir::is_scan(op) || ir::is_contraction(op)) return 16;
  if (ir::is_reduction(op)) return 4;
  if (ir::info(op).kind == ir::OpKind::Expanded) return 16;
  const bool divides = op == Op::Div || op == Op::Sqrt || op == Op::Reciprocal || op == Op::Remainder || op == Op::Fmod;
  return divides ? 10 : 1;
}

// True for a contraction of two non-constant arrays in row order (ContractRows).
bool is_product(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::ContractRows) return false;
  return std::ranges::none_of(graph.operands(id), [&](std::int64_t o) {
    auto base = static_cast<NodeId>(o);
    while (ir::is_view(graph[base].op)) base = graph.operand(base, 0);
    return graph[base].op == Op::Constant;
  });
}

class Fuser {
 public:
  Fuser(const Graph& graph, const FuseOptions& options, const Cuts& cuts)
      : graph_(graph), options_(options), cuts_(cuts), symbols_(graph), output_(graph.size(), false) {
    for (NodeId id = 0; id < graph.size(); ++id) base_.push_back(ir::is_view(graph[id].op) ? base_[graph.operand(id, 0)] : id);
    partition_.group_of.assign(graph.size(), Partition::kNoGroup);
    partition_.lists = options.lists;
    const std::vector<NodeId> wanted = options.lists.wanted(graph);
    for (NodeId id : wanted) output_[id] = true;
    StoredAhead ahead = find_stored_ahead(graph, options, wanted);
    partition_.boundary = std::move(ahead.boundary);
    needed_ = std::move(ahead.needed);
    reads_ = std::move(ahead.reads);
    users_.assign(graph.size(), 0);
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (output_[id]) ++users_[id];
      if (!needed_[id]) continue;
      NodeId last = ~NodeId{0};
      for (std::int64_t o : graph.operands(id))
        if (std::exchange(last, static_cast<NodeId>(o)) != static_cast<NodeId>(o)) ++users_[static_cast<std::size_t>(o)];
    }
  }

  /// Materializes the value, so that one fusion group computes it once.
  void store_ahead(NodeId id) { partition_.boundary[id] = Boundary::Recompute; }

  /// Partitions the graph under the current cuts.
  Partition run() {
    const std::uint32_t n = graph_.size();
    const Partition before = partition_;
    rows_.assign(n, {});
    level_.assign(n, 0);
    cut_.assign(n, false);
    in_short_rows_.assign(n, false);
    repeats_.assign(n, false);
    shared_.assign(n, false);
    first_.assign(n, Partition::kNoGroup);
    inline_cost_.assign(n, 0);
    keys_.clear();
    latest_.clear();
    for (NodeId id = 0; id < n; ++id) {
      if (!needed_[id]) continue;
      part_ = cuts_.part[base_of(id)];
      enter(id);
      if (options_.lists.assembles(id)) {
        assemble(id);
        continue;
      }
      part_ = cuts_.part[id];
      Boundary b = partition_.boundary[id];
      const Op op = graph_[id].op;
      if (options_.unfused && !ir::is_view(op) && !ir::is_source(op)) b = Boundary::Unfused;
      if (op == Op::ScatterAdd && b == Boundary::Inlined) b = Boundary::Scattered;
      if (op == Op::Steps) b = Boundary::Stepped;
      else if (ir::is_routine(op)) b = op == Op::Assign ? Boundary::Scattered : Boundary::Sorted;
      if (output_[id] && b == Boundary::Inlined) b = Boundary::Output;
      if (cuts_.stored[id] && b == Boundary::Inlined) b = Boundary::KernelLimit;
      partition_.boundary[id] = b;
      if (b != Boundary::Inlined) store(id);
    }
    // A value that became a boundary only at a later consumer was appended to its fusion group late.
    for (Group& g : partition_.groups) {
      std::vector<std::pair<NodeId, std::vector<DomainAxes>>> sorted;
      for (std::size_t r = 0; r < g.roots.size(); ++r) sorted.emplace_back(g.roots[r], std::move(g.axes[r]));
      std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t r = 0; r < g.roots.size(); ++r) {
        g.roots[r] = sorted[r].first;
        g.axes[r] = std::move(sorted[r].second);
      }
    }
    return std::exchange(partition_, before);
  }

 private:
  // A fusion group that further values of its domain may join.
  struct Candidate {
    std::uint64_t reduced, ordered;
    Op order;        // a contraction's own operator, else Input
    NodeId product;  // Rows::product
    std::uint32_t group;
    // True if the group holds only results of one reduction over its first axes, which may become a fused column reduction of another
    // fusion group.
    bool columns;
    bool few_columns, short_rows;  // Rows::few_columns; in_short_rows_ of any of its values

    bool is_map() const { return (reduced | ordered) == 0; }
  };

  const Graph& graph_;
  FuseOptions options_;
  const Cuts& cuts_;
  std::uint32_t part_ = 0;  // the part of the current node
  AxisSymbols symbols_;
  Partition partition_;
  std::vector<NodeId> base_;  // the value under any views
  std::vector<Rows> rows_;
  std::vector<std::uint32_t> level_;        // the first fusion group that may compute the value, after all fusion groups that it loads from
  std::vector<std::int64_t> reads_;         // StoredAhead::reads
  std::vector<bool> output_, needed_;       // the value is an output; an output depends on the value
  std::vector<std::uint32_t> users_;        // number of values computed from it, plus 1 for an output
  std::vector<bool> shared_;                // materialized for other loops, but not a barrier for the loops that compute it
  std::vector<std::uint32_t> first_;        // the fusion group that computes it first
  std::vector<std::uint32_t> inline_cost_;  // operations on each element since the values in memory, along the longest chain
  std::vector<std::vector<std::uint32_t>> keys_;  // by fusion group: its loops, as keys of latest_
  std::vector<bool> cut_;  // the value's expression has a node of many boxes: the loops are split, so no reduction can share them
  // The value's expression computes one value for each short row. Its loops run across the rows (Planner::in_phases), so no reduction shares
  // them.
  std::vector<bool> in_short_rows_;
  std::vector<bool> repeats_;  // the value's expression repeats values in short rows, so its loops cannot merge
  std::map<std::vector<std::uint32_t>, std::vector<Candidate>> latest_;  // domain, part, whether it is cut -> the latest fusion groups

  bool is_list(NodeId id) const { return partition_.lists.reads(id) != nullptr; }

  // Returns the values from `id` back to a value that is materialized or that other values read too. Only that value and numbers determine
  // `id`. Empty if there is no such value.
  std::vector<NodeId> path_to_shared(NodeId id, Boundary why) const {
    if (why == Boundary::Gathered || why == Boundary::Sorted || why == Boundary::Stepped)
      return {};  // such consumers read an array in memory
    std::vector<NodeId> path = {id};
    for (;;) {
      const NodeId at = path.back();
      const bool is_stored = partition_.group_of[at] != Partition::kNoGroup;
      if (at != id && (is_stored || users_[at] > 1))
        return is_stored || size_of(graph_[at].dtype) <= size_of(graph_[id].dtype) ? path : std::vector<NodeId>{};
      if (is_stored || users_[at] > 1 || !ir::is_elementwise(graph_[at].op)) return {};
      NodeId next = Rows::kNone;
      for (const std::int64_t o : graph_.operands(at)) {
        const auto operand = static_cast<NodeId>(o);
        if (operand == next || graph_[base_of(operand)].op == Op::Constant || graph_[base_of(operand)].op == Op::Slot) continue;
        if (next != Rows::kNone) return {};
        next = operand;
      }
      if (next == Rows::kNone || ir::is_view(graph_[next].op) || !seen(next).any || graph_.elements(next) != graph_.elements(id)) return {};
      path.push_back(next);
    }
  }

  // Materializes the computed value of `id` (through views), so that consumers read it from memory. If `id` is one of several values
  // that are computed from an earlier value, that value is materialized instead. Then none of these values computes it again.
  void end_at(NodeId id, Boundary why) {
    while (ir::is_view(graph_[id].op)) {
      rows_[id] = {};
      id = graph_.operand(id, 0);
    }
    if (end_at_results(id, why)) return;
    if (const std::vector<NodeId> path = path_to_shared(id, why); !path.empty()) {
      const NodeId from = path.back();
      if (partition_.group_of[from] == Partition::kNoGroup) {
        partition_.boundary[from] = why;
        shared_[from] = why != Boundary::Recompute;  // a further sweep would compute the value again
        store(from);
      }
      for (const NodeId at : std::span(path).first(path.size() - 1)) rows_[at] = {}, level_[at] = partition_.group_of[from] + 1;
      return;
    }
    if (!is_barrier(id)) {
      const bool stored = partition_.group_of[id] != Partition::kNoGroup;
      partition_.boundary[id] = why;
      shared_[id] = false;
      if (!stored) store(id);
    }
    barrier_of(id);
  }
  // For a value that few operations compute for each element of a reduced array from results of the reduction, such as x == max(x, 1):
  // materializes these results instead, so that other loops compute the value where they read it. The same for pairs (recompute.h). Returns
  // false if that does not pay.
  bool end_at_results(NodeId id, Boundary why) {
    constexpr std::uint32_t kFew = 8;  // operations
    if (why != Boundary::OtherLoops && why != Boundary::OtherAxes && why != Boundary::ReductionOfReduction) return false;
    if (options_.unfused || output_[id] || !rows_[id].any || !ir::is_elementwise(graph_[id].op)) return false;
    std::vector<NodeId> chain, results, open = {id};
    std::unordered_set<NodeId> met = {id};
    const std::int64_t elements = graph_.elements(id);
    const std::uint32_t most = elements / kPairs >= reads_[id] ? kMostOfPair : kFew;
    std::int64_t stored = 0, read = 0;
    std::uint32_t cost = 0;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const Op op = graph_[at].op;
      if (ir::is_source(op) || is_list(at) || (!ir::is_view(op) && partition_.group_of[at] != Partition::kNoGroup)) {
        if (op != Op::Constant && op != Op::Slot && op != Op::Iota) read += graph_.elements(at);
        continue;
      }
      const Rows& in = seen(at);
      std::uint64_t present = 0;
      for (const Rows::Axis& axis : in.at) present |= axis.bits();
      if (in.any && in.scanned == 0 && in.reduced != 0 && (present & in.reduced) == 0) {
        results.push_back(at);
        stored += graph_.elements(base_of(at));
        continue;
      }
      if (!ir::is_elementwise(op) && !ir::is_view(op)) return false;
      if ((cost += cost_of(op)) > most) return false;
      if (!ir::is_view(op)) chain.push_back(at);
      for (const std::int64_t o : graph_.operands(at))
        if (met.insert(static_cast<NodeId>(o)).second) open.push_back(static_cast<NodeId>(o));
    }
    const bool pays = cost <= kFew && users_[id] == 1 && why != Boundary::ReductionOfReduction && 2 * stored <= elements &&
                      2 * (2 * stored + read) <= 3 * elements;
    if (results.empty() || (!pays && kPairs * (stored + read) > elements)) return false;
    for (const NodeId result : results) {
      const NodeId base = base_of(result);
      if (partition_.group_of[base] == Partition::kNoGroup) {
        partition_.boundary[base] = why;
        shared_[base] = true;
        store(base);
      }
      level_[id] = std::max(level_[id], partition_.group_of[base] + 1);
    }
    std::ranges::sort(chain);
    for (const NodeId at : chain) {
      inline_cost_[at] = cost_of(graph_[at].op);
      for (const std::int64_t o : graph_.operands(at))
        if (const NodeId base = base_of(static_cast<NodeId>(o)); partition_.group_of[base] == Partition::kNoGroup)
          inline_cost_[at] = std::max(inline_cost_[at], inline_cost_[base] + cost_of(graph_[at].op));
    }
    rows_[id] = {};
    return true;
  }
  // Marks an assembled array, which no fusion group computes. It is complete after the fusion group that stores its last element.
  void assemble(NodeId id) {
    partition_.boundary[id] = Boundary::Assembled;
    std::uint32_t last = 0;
    for (const NodeId part : options_.lists.assembled.at(id)) last = std::max(last, partition_.group_of[part]);
    partition_.group_of[id] = last;
    barrier_of(id);
  }
  void barrier_of(NodeId id) { level_[id] = std::max(level_[id], partition_.group_of[id] + 1); }

  bool is_barrier(NodeId id) const {
    const Boundary b = partition_.boundary[id];
    return b != Boundary::Inlined && b != Boundary::Output && b != Boundary::KernelLimit && !shared_[id];
  }
  NodeId base_of(NodeId id) const { return base_[id]; }
  // True if the current node reads this value from memory.
  bool ends(NodeId base) const { return is_barrier(base) || cuts_.separates(base, part_); }

  // Returns the reduction space that a consumer sees in an operand; empty if the operand is materialized.
  const Rows& seen(NodeId id) const {
    static const Rows kNone;
    const NodeId base = base_of(id);
    return ends(base) || !rows_[base].any ? kNone : rows_[id];  // end_at may have cleared the base after its views
  }
  std::uint32_t level_of(NodeId id) const {
    const NodeId base = base_of(id);
    return cuts_.separates(base, part_) ? partition_.group_of[base] + 1 : level_[base];
  }

  void enter(NodeId id) {
    const Node node = graph_[id];
    if (ir::is_source(node.op) || is_list(id) || options_.lists.assembles(id)) return;
    cut_[id] = has_many_boxes(graph_, options_.lists, id);
    repeats_[id] = repeats_in_short_rows(graph_, id);
    in_short_rows_[id] = repeats_[id] && is_computed(graph_.operand(id, 0));
    for (std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<std::size_t>(o);
      if (partition_.boundary[operand] != Boundary::Inlined) continue;
      if (cut_[operand]) cut_[id] = true;
      if (in_short_rows_[operand]) in_short_rows_[id] = true;
      if (repeats_[operand]) repeats_[id] = true;
    }
    if (ir::is_view(node.op)) return view(id, node);
    if (ir::is_reduction(node.op)) reduction(id, node);
    else if (ir::is_scan(node.op)) scan(id);
    else if (node.op == Op::Piecewise) end_reductions(id, Boundary::OtherLoops);  // the boxes need other loops
    else if (node.op == Op::ScatterAdd) scatter(id);
    else if (node.op == Op::Gather) gather(id);
    else if (ir::is_routine(node.op)) routine(id);
    else elementwise(id);
    level_[id] = 0;
    for (std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<NodeId>(o);
      level_[id] = std::max(level_[id], level_of(operand));
      if (const NodeId base = base_of(operand); partition_.group_of[base] == Partition::kNoGroup)
        inline_cost_[id] = std::max(inline_cost_[id], inline_cost_[base]);
    }
    inline_cost_[id] += cost_of(node.op);
  }

  // True if the loops that read the value compute it by elementwise operators.
  bool is_computed(NodeId id) const {
    const NodeId base = base_of(id);
    return ir::is_elementwise(graph_[base].op) && !rows_[base].any && partition_.boundary[base] == Boundary::Inlined;
  }
  void view(NodeId id, const Node& node) {
    const NodeId from = graph_.operand(id, 0);
    const Rows& in = seen(from);
    if (!in.any) return;
    Rows out = in;
    const List shape = graph_.list(node.shape), was = graph_.shape(from), attributes = graph_.attributes(id);
    switch (node.op) {
      case Op::Reshape:
        if (!reshape_rows(in, was, out, shape, symbols_)) return end_at(from, Boundary::OtherLoops);
        break;
      case Op::Slice:
        for (std::size_t i = 0; i < shape.size(); ++i) {
          if (out.at[i].at < 0 && shape[i] != 1) continue;  // constant along this axis
          if (was[i] != shape[i] || !(is_whole(attributes, shape, i) || is_flip(attributes, shape, i)))
            return end_at(from, Boundary::OtherLoops);
          if (shape[i] == 1 || is_whole(attributes, shape, i) || !(out.at[i].bits() & ~in.reduced)) continue;
          if (out.at[i].count > 1) return end_at(from, Boundary::OtherLoops);
          out.at[i].flipped = !out.at[i].flipped;
        }
        break;
      case Op::Permute:
        for (std::size_t i = 0; i < shape.size(); ++i) out.at[i] = in.at[static_cast<std::size_t>(attributes[i])];
        break;
      case Op::Broadcast:
        for (std::size_t i = 0; i < shape.size(); ++i)
          if (shape[i] != was[i]) out.at[i] = {};
        break;
      default: return end_at(from, Boundary::OtherLoops);
    }
    rows_[id] = std::move(out);
  }

  void reduction(NodeId id, const Node& node) {
    const NodeId from = graph_.operand(id, 0);
    const List attributes = graph_.list(node.attributes), shape = graph_.shape(from);
    if (graph_.elements(from) == graph_.elements(id)) {  // over axes of extent 1; simplify leaves no such contraction
      if (!ir::is_contraction(node.op)) return view(id, {Op::Reshape, node.dtype, node.shape});
      return end_reductions(id, Boundary::OtherLoops);
    }
    Rows mine;
    mine.any = true;
    if (ir::is_contraction(node.op)) mine.order = node.op;
    if (is_product(graph_, id)) mine.product = id;
    std::vector<std::int8_t> position(shape.size(), -1);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const bool reduced = std::binary_search(attributes.begin(), attributes.end(), static_cast<std::int64_t>(i));
      if (shape[i] != 1) {
        position[i] = static_cast<std::int8_t>(mine.axes.size());
        if (reduced) mine.reduced |= std::uint64_t{1} << mine.axes.size();
        mine.axes.push_back(symbols_.axis(from, i));
      }
      if (!reduced) mine.at.push_back({position[i]});
    }
    mine.sweeps = 1;
    for (std::int64_t o : graph_.operands(id)) {
      const auto operand = static_cast<NodeId>(o);
      const Rows& in = seen(operand);
      if (!in.any) continue;
      bool full = in.at.size() == shape.size();
      std::uint64_t present = 0;
      for (std::size_t i = 0; full && i < shape.size(); ++i) {
        present |= in.at[i].bits();
        full = shape[i] == 1 || in.at[i] == Rows::Axis{position[i]};
      }
      const std::uint64_t all = (std::uint64_t{1} << in.axes.size()) - 1;
      full = full && present == all;
      const bool sums = mine.order == Op::Input && in.order == Op::Input;  // contractions neither have columns nor are columns
      if (!full) end_at(operand, Boundary::ReductionOfReduction);
      else if (options_.columns && sums && in.axes == mine.axes && !in.columns && are_columns(mine.reduced, in.reduced, all))
        mine.columns = true;
      else if (!same_rows(in, mine)) end_at(operand, Boundary::OtherAxes);
      else if (in.sweeps == kMostSweeps || in.cost > sweep_cost(in.sweeps)) end_at(operand, Boundary::Recompute);
      if (const Rows& left = seen(operand); left.any) mine.sweeps = std::max(mine.sweeps, static_cast<std::uint8_t>(left.sweeps + 1));
      else mine.columns = false;
    }
    const std::int64_t columns = few_columns(graph_, id);
    mine.few_columns = columns > 0 && graph_.elements(from) >= kManyElements;
    // A value that something else reads, too, is computed once.
    const std::int64_t lanes = users_[from] == 1 && users_[base_of(from)] == 1 ? columns : 1;
    if (mine.few_columns && !seen(from).any) end_costly(from, Boundary::FewColumns, static_cast<std::uint32_t>(lanes));
    if (repeats_[from] && ends_in_short_axis(mine) && is_computed(from)) end_at(from, Boundary::ShortAxis);
    rows_[id] = std::move(mine);
  }
  // True if the last of several reduced axes is short. Its loop would be the vector loop.
  bool ends_in_short_axis(const Rows& rows) {
    constexpr std::int64_t kFewLanes = 8;
    std::vector<std::uint32_t> parts;
    for (std::size_t p = rows.axes.size(); p-- > 0 && (rows.reduced >> p & 1);) {
      const auto before = static_cast<std::ptrdiff_t>(parts.size());
      symbols_.expand(rows.axes[p], parts);
      std::rotate(parts.begin(), parts.begin() + before, parts.end());
    }
    return parts.size() > 1 && symbols_.extent(parts.back()) < kFewLanes;
  }
  // Materializes a value of several operations, unless it is in memory.
  void end_costly(NodeId id, Boundary why, std::uint32_t lanes) {
    const NodeId base = base_of(id);
    if (partition_.group_of[base] == Partition::kNoGroup && ir::is_elementwise(graph_[base].op) && inline_cost_[base] >= kMany * lanes)
      end_at(id, why);
  }

  // Column results are complete only after all rows. Consumers with more elements, or with reductions over other axes, must read them from
  // memory.
  void end_columns(NodeId id) {
    const List operands = graph_.operands(id);
    for (std::int64_t o : operands) {
      const auto from = static_cast<NodeId>(o);
      const Rows& in = seen(from);
      if (!in.any || !in.columns) continue;
      std::int64_t elements = 1;
      for (std::size_t k = 0; k < in.axes.size(); ++k)
        if (!(in.reduced >> k & 1)) elements *= symbols_.extent(in.axes[k]);
      bool ends = graph_.elements(id) != elements;
      for (std::int64_t other : operands)
        ends = ends || (seen(static_cast<NodeId>(other)).any && !seen(static_cast<NodeId>(other)).columns);
      if (ends) end_at(from, Boundary::OtherAxes);
    }
  }

  // Returns the common reduction space of all operands. An operand that does not fit is materialized. Other operands may be views of it, so
  // the search then restarts.
  Rows joined_rows(List operands) {
    for (;;) {
      Rows rows;
      const auto misfit = std::find_if(operands.begin(), operands.end(), [&](std::int64_t o) {
        const Rows& in = seen(static_cast<NodeId>(o));
        if (!in.any) return false;
        if (!rows.any) {
          rows = in;
          return false;
        }
        if (!same_rows(rows, in) || !join_axes(rows, in)) return true;
        rows.sweeps = std::max(rows.sweeps, in.sweeps);
        rows.cost = std::max(rows.cost, in.cost);
        return false;
      });
      if (misfit == operands.end()) return rows;
      end_at(static_cast<NodeId>(*misfit), Boundary::OtherAxes);
    }
  }

  void elementwise(NodeId id) {
    end_columns(id);
    const List operands = graph_.operands(id), shape = graph_.shape(id);
    Rows rows = joined_rows(operands);
    if (!rows.any) return;
    // Axes along which no operand with a reduction space varies must be the remaining axes of that space.
    std::uint64_t present = 0;
    for (const Rows::Axis& axis : rows.at) present |= axis.bits();
    const std::uint64_t all = (std::uint64_t{1} << rows.axes.size()) - 1, kept = all & ~rows.reduced;
    bool fits = true;
    std::size_t next = 0;
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      if (shape[i] == 1) continue;
      if (rows.at[i].at >= 0) {
        next = static_cast<std::size_t>(rows.at[i].at + rows.at[i].count);
        continue;
      }
      while (next < rows.axes.size() && (present >> next & 1)) ++next;
      fits = next < rows.axes.size() && symbols_.axis(id, i) == rows.axes[next];
      if (fits) {
        rows.at[i] = {static_cast<std::int8_t>(next)};
        present |= std::uint64_t{1} << next++;
      }
    }
    const bool row_level = (present & rows.reduced) == 0, full = present == all;
    if (!fits || (!row_level && !full) || (row_level && present != kept)) return end_reductions(id, Boundary::OtherLoops);
    if (full && !row_level && rows.few_columns) return end_reductions(id, Boundary::FewColumns);
    if (full && !row_level && kept == 0 && !in_order(rows))  // a separate loop nest can follow the order in memory
      return end_reductions(id, Boundary::FullReduction);
    rows.cost = row_level ? 0 : rows.cost + cost_of(graph_[id].op);
    rows_[id] = std::move(rows);
  }

  // Materializes operands with reductions.
  void end_reductions(NodeId id, Boundary why) {
    for (std::int64_t o : graph_.operands(id))
      if (seen(static_cast<NodeId>(o)).any) end_at(static_cast<NodeId>(o), why);
  }

  // Numbers are added one by one. Updates and indices that need many operations are computed in vectors and stored first.
  void scatter(NodeId id) {
    end_reductions(id, Boundary::OtherLoops);  // the initial value needs other loops
    constexpr std::int64_t kFewLanes = 8;
    const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
    const List shape = graph_.shape(id);
    if (axis + 1 < shape.size() && shape.back() >= kFewLanes) return;
    for (const std::int64_t o : graph_.operands(id).subspan(1)) {
      const NodeId base = base_of(static_cast<NodeId>(o));
      end_costly(graph_[base].op == Op::Place ? graph_.operand(base, 0) : static_cast<NodeId>(o), Boundary::Scattered, 1);
    }
  }

  // Makes x an array in memory or a source, through any views. The indices may not contain a reduction.
  void gather(NodeId id) {
    const NodeId x = graph_.operand(id, 0), base = base_of(x);
    if (!ir::is_source(graph_[base].op)) end_at(x, Boundary::Gathered);
    if (const NodeId places = graph_.operand(id, 1); seen(places).any) end_at(places, Boundary::OtherLoops);
  }

  // Materializes the operands of a routine.
  void routine(NodeId id) {
    for (const std::int64_t o : graph_.operands(id))
      if (const auto x = static_cast<NodeId>(o); !ir::is_source(graph_[base_of(x)].op))
        end_at(x, graph_[id].op == Op::Steps ? Boundary::Stepped : Boundary::Sorted);
  }
  // Returns the fusion group that computes another result of the same steps, or kNoGroup.
  std::uint32_t group_of_steps(NodeId id) const {
    if (graph_[id].op != Op::Steps || options_.unfused) return Partition::kNoGroup;
    const auto same = [&](const Group& g) {
      if (!g.routine || graph_[g.roots[0]].op != Op::Steps || graph_[g.roots[0]].operands != graph_[id].operands) return false;
      return std::ranges::equal(graph_.attributes(g.roots[0]).subspan(1), graph_.attributes(id).subspan(1));
    };
    const auto it = std::ranges::find_if(partition_.groups, same);
    return it == partition_.groups.end() ? Partition::kNoGroup : static_cast<std::uint32_t>(it - partition_.groups.begin());
  }
  void store_routine(NodeId id) {
    const std::uint32_t with = group_of_steps(id);
    Group group;
    group.roots.push_back(id);
    std::vector<DomainAxes>& axes = group.axes.emplace_back();
    for (const std::int64_t extent : graph_.shape(id)) {
      axes.push_back({static_cast<std::uint8_t>(group.domain.size()), static_cast<std::uint8_t>(extent != 1)});
      if (extent != 1) group.domain.push_back(extent);
    }
    group.routine = true;
    if (with != Partition::kNoGroup) {
      Group& there = partition_.groups[with];
      there.roots.push_back(id);
      there.axes.push_back(std::move(group.axes[0]));
      partition_.group_of[id] = with;
      return barrier_of(id);
    }
    partition_.groups.push_back(std::move(group));
    partition_.group_of[id] = static_cast<std::uint32_t>(partition_.groups.size() - 1);
    barrier_of(id);
  }

  void scan(NodeId id) {
    const NodeId from = graph_.operand(id, 0);
    const List shape = graph_.shape(from);
    const auto axis = static_cast<std::size_t>(graph_.attributes(id)[0]);
    if (shape[axis] == 1) return elementwise(id);  // the scan returns its operand
    Rows mine;
    mine.any = true;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      mine.at.push_back({shape[i] == 1 ? std::int8_t{-1} : static_cast<std::int8_t>(mine.axes.size())});
      if (shape[i] == 1) continue;
      if (i == axis) mine.scanned = std::uint64_t{1} << mine.axes.size();
      mine.axes.push_back(symbols_.axis(from, i));
    }
    if (const Rows& in = seen(from); in.any && (!same_rows(in, mine) || in.at != mine.at)) end_at(from, Boundary::OtherAxes);
    rows_[id] = std::move(mine);
  }

  // A scatter_add gets dedicated fusion groups, because it adds at data-dependent indices in sequence.
  void store_scattered(NodeId id) {
    const auto new_group = [&](NodeId like) {
      Group group;
      group.roots.push_back(id);
      std::vector<std::uint32_t> domain;
      std::vector<DomainAxes>& axes = group.axes.emplace_back();
      for (std::size_t i = 0; i < graph_.shape(id).size(); ++i) {
        const std::size_t first = domain.size();
        symbols_.expand(symbols_.axis(like, i), domain);
        axes.push_back({static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(domain.size() - first)});
      }
      for (std::uint32_t s : domain) group.domain.push_back(symbols_.extent(s));
      partition_.groups.push_back(std::move(group));
    };
    new_group(id);
    partition_.groups.back().starts = true;
    new_group(graph_.operand(id, 1));
    Group& adds = partition_.groups.back();
    const DomainAxes along = adds.axes[0][static_cast<std::size_t>(graph_.attributes(id)[0])];
    adds.ordered = ((std::uint64_t{1} << along.count) - 1) << along.first;
    partition_.group_of[id] = static_cast<std::uint32_t>(partition_.groups.size() - 1);
    barrier_of(id);
  }

  // Loops of a fusion group that stores a value: their symbols, and the loops of each of the value's axes.
  struct Space {
    std::vector<std::uint32_t> domain;
    std::vector<DomainAxes> axes;
    std::uint64_t reduced = 0, ordered = 0;
  };
  Space space_of(NodeId id, const Rows& rows) {
    Space out;
    auto& [domain, axes, reduced, ordered] = out;
    axes.resize(graph_.shape(id).size());
    if (!rows.any) {
      for (std::size_t i = 0; i < axes.size(); ++i) {
        axes[i].first = static_cast<std::uint8_t>(domain.size());
        symbols_.expand(symbols_.axis(id, i), domain);
        axes[i].count = static_cast<std::uint8_t>(domain.size() - axes[i].first);
      }
    } else {
      std::vector<std::size_t> begin;
      for (std::size_t p = 0; p < rows.axes.size(); ++p) {
        begin.push_back(domain.size());
        if (rows.scanned >> p & 1) {  // one loop, however many axes were merged
          ordered |= std::uint64_t{1} << domain.size();
          domain.push_back(rows.axes[p]);
        } else {
          symbols_.expand(rows.axes[p], domain);
        }
        if (rows.reduced >> p & 1)
          for (std::size_t k = begin[p]; k < domain.size(); ++k) reduced |= std::uint64_t{1} << k;
      }
      begin.push_back(domain.size());
      for (std::size_t i = 0; i < axes.size(); ++i)
        if (const Rows::Axis& axis = rows.at[i]; axis.at >= 0) {
          const std::size_t first = begin[static_cast<std::size_t>(axis.at)], end = begin[static_cast<std::size_t>(axis.at + axis.count)];
          axes[i] = {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(end - first), axis.flipped};
        }
    }
    return out;
  }
  std::vector<std::uint32_t> key_of(const Space& space, NodeId id) const {
    std::vector<std::uint32_t> key = space.domain;
    key.push_back(cuts_.part[id]);
    key.push_back(cut_[id]);
    return key;
  }

  // True if computing the value again in another fusion group costs more than a load. Results of reductions need a further sweep. A single
  // element costs little in any case, but each element that a kernel reads is an argument.
  bool costs_more_than_load(NodeId id) const {
    constexpr std::uint32_t kMostOfElement = 4;
    if (ir::is_contraction(graph_[id].op)) return inline_cost_[id] > kRoundTrip;  // fuse() looks for products
    if (ir::is_reduction(graph_[id].op)) return true;
    if (graph_.elements(id) == 1) return inline_cost_[id] > kMostOfElement;
    return inline_cost_[id] > kRoundTrip || cost_in_other_loops(id) > kRoundTrip;
  }
  // Returns the operations on each element, from the values in memory on, with those for the arrays of its size that it reads. Stops above
  // the costs of a store and a load.
  std::uint32_t cost_in_other_loops(NodeId id) const {
    constexpr std::uint32_t kLoad = 12;  // more than a third of a store and a load
    std::vector<NodeId> open = {id};
    std::unordered_set<NodeId> met;
    std::uint32_t cost = 0;
    while (!open.empty() && cost <= kRoundTrip) {
      const NodeId at = base_of(open.back());
      open.pop_back();
      if (!met.insert(at).second) continue;
      const Op op = graph_[at].op;
      const bool in_memory = op == Op::Input || is_list(at) || (at != id && partition_.group_of[at] != Partition::kNoGroup);
      if (in_memory || ir::is_source(op)) {
        if (in_memory && 2 * graph_.elements(at) > graph_.elements(id)) cost += kLoad;
        continue;
      }
      cost += cost_of(op);
      for (const std::int64_t o : graph_.operands(at)) open.push_back(static_cast<NodeId>(o));
    }
    return cost;
  }
  // Records that the group computes the values from which it computes a root. A value that an earlier group computes, too, is materialized
  // there if computing it again costs more than a load.
  void claim(NodeId root, std::uint32_t group) {
    if (options_.unfused) return;
    std::vector<NodeId> open = {root}, again;
    std::unordered_set<NodeId> met;
    if (first_[root] == Partition::kNoGroup) first_[root] = group;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const std::int64_t o : partition_.operands(graph_, id, group)) {
        const NodeId value = base_of(static_cast<NodeId>(o));
        if (ir::is_source(graph_[value].op) || is_list(value) || partition_.group_of[value] < group) continue;  // loaded
        if (first_[value] == Partition::kNoGroup) {
          first_[value] = group;
          open.push_back(value);
        } else if (first_[value] != group) {
          if (costs_more_than_load(value)) again.push_back(value);
          else if (rows_[value].any && met.insert(value).second) open.push_back(value);
        }
      }
    }
    for (const NodeId id : again) store_in(id, std::min(first_[id], group));
  }
  // Materializes a value in a group that computes it anyway. Does nothing if the group's loops differ from the value's loops.
  void store_in(NodeId id, std::uint32_t group) {
    if (partition_.group_of[id] != Partition::kNoGroup || partition_.groups[group].columns) return;
    if (group >= keys_.size()) return;
    const Rows& rows = rows_[id];
    if (rows.any && !covers(rows, graph_.shape(id))) return;
    Space space = space_of(id, rows);
    if (keys_[group] != key_of(space, id)) return;
    if (rows.any && (space.reduced != partition_.groups[group].reduced || space.ordered != partition_.groups[group].ordered)) return;
    partition_.boundary[id] = Boundary::Recompute;
    shared_[id] = true;
    partition_.groups[group].roots.push_back(id);
    partition_.groups[group].axes.push_back(std::move(space.axes));
    partition_.group_of[id] = group;
  }

  // Assigns a materialized value to a fusion group: the latest group of its domain that may still compute it, else a new group.
  void store(NodeId id) {
    if (graph_[id].op == Op::ScatterAdd) return store_scattered(id);
    if (ir::is_routine(graph_[id].op)) return store_routine(id);
    const NodeId base = base_of(id);
    if (base != id && rows_[id].any && !covers(rows_[id], graph_.shape(id))) end_at(base, Boundary::OtherLoops);
    const std::uint32_t level = is_elsewhere(id, base) ? partition_.group_of[base] + 1 : level_[base];
    if (id == base && rows_[id].reduced != 0 && !reduces_from(id, level)) rows_[id] = {};  // all results of reductions are in memory
    const Rows& rows = seen_root(id, base);
    auto [domain, axes, reduced, ordered] = space_of(id, rows);
    const std::uint64_t all = (std::uint64_t{1} << domain.size()) - 1;
    const bool may_be_columns =
        options_.columns &&
        (!rows.any || (ordered == 0 && rows.order == Op::Input && !rows.columns && rows.sweeps == 1 && has_one_a_column(rows)));
    const std::uint64_t target = rows.columns ? all & ~reduced : reduced;  // the axes that the fusion group must reduce
    std::uint32_t group = Partition::kNoGroup;
    const std::vector<std::uint32_t> key = key_of({domain, {}}, id);
    auto& candidates = latest_[key];
    const bool in_rows = in_short_rows_[id] && !rows.any;
    if (!options_.unfused) {
      // elementwise nests and reductions over one domain join each other; columns and reductions over the other axes also join each other
      for (Candidate& c : candidates) {
        if (c.group < level) continue;
        const bool columns = may_be_columns && (!rows.any || reduces_in(base, c.group));
        const bool sums = c.order == Op::Input && rows.order == Op::Input && c.ordered == 0 && ordered == 0;
        const bool joins_as_columns = columns && sums && are_columns(reduced, c.reduced, all);
        const bool takes_columns = c.columns && sums && are_columns(c.reduced, target, all);
        const bool same = c.reduced == target && c.ordered == ordered && c.order == rows.order && c.product == rows.product;
        if (!same && !c.is_map() && (target | ordered) != 0 && !joins_as_columns && !takes_columns) continue;
        if (c.is_map() != ((target | ordered) == 0) && (c.short_rows || c.few_columns || in_rows || rows.few_columns)) continue;
        c.short_rows |= in_rows;
        if (c.is_map() || takes_columns) {
          partition_.groups[c.group].reduced = c.reduced = target;
          partition_.groups[c.group].ordered = c.ordered = ordered;
          c.order = rows.order;
          c.product = rows.product;
        }
        c.columns = c.columns && columns && !takes_columns;
        partition_.groups[c.group].columns |= joins_as_columns || takes_columns || rows.columns;
        group = c.group;
        break;
      }
    }
    if (group == Partition::kNoGroup) {
      group = static_cast<std::uint32_t>(partition_.groups.size());
      const bool columns = may_be_columns && (!rows.any || reduces_in(base, group));
      Group g;
      for (std::uint32_t s : domain) g.domain.push_back(symbols_.extent(s));
      g.reduced = target;
      g.ordered = ordered;
      g.columns = rows.columns;
      partition_.groups.push_back(std::move(g));
      keys_.resize(partition_.groups.size());
      keys_[group] = key;
      const auto same = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
        return c.reduced == target && c.ordered == ordered && c.order == rows.order && c.product == rows.product;
      });
      const Candidate mine{target, ordered, rows.order, rows.product, group, columns, rows.few_columns, in_rows};
      if (same != candidates.end()) *same = mine;
      else candidates.push_back(mine);
    }
    partition_.groups[group].roots.push_back(id);
    partition_.groups[group].axes.push_back(std::move(axes));
    partition_.group_of[id] = group;
    if (is_barrier(id)) barrier_of(id);
    claim(id, group);
  }
  // True if the fusion group computes one of the value's reductions. If other fusion groups store all of them, it loads them, so the value
  // is not a column result.
  bool reduces_in(NodeId id, std::uint32_t group) const {
    return reduces_but_for(id, [&](std::uint32_t in) { return in != group; });
  }
  // True if a fusion group from `level` on computes one of the value's reductions.
  bool reduces_from(NodeId id, std::uint32_t level) const {
    return reduces_but_for(id, [&](std::uint32_t in) { return in < level; });
  }
  // True if the value's expression has a reduction, without values of fusion groups for which `is_loaded` is true.
  template <class F> bool reduces_but_for(NodeId id, F is_loaded) const {
    std::vector<NodeId> stack = {id};
    std::unordered_set<NodeId> met;
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (!met.insert(at).second) continue;
      const std::uint32_t in = partition_.group_of[at];
      if (at != id && in != Partition::kNoGroup && !ir::is_view(graph_[at].op) && is_loaded(in)) continue;  // Partition::loads
      if (is_reduction(graph_[at].op)) return true;
      for (const std::int64_t o : graph_.operands(at)) stack.push_back(static_cast<NodeId>(o));
    }
    return false;
  }
  // Returns the reduction space of a materialized value's own expression; empty for a view of a value from another fusion group.
  const Rows& seen_root(NodeId id, NodeId base) const {
    static const Rows kNone;
    return is_elsewhere(id, base) || !rows_[base].any ? kNone : rows_[id];
  }
  bool is_elsewhere(NodeId id, NodeId base) const { return id != base && (is_barrier(base) || cuts_.separates(base, cuts_.part[id])); }
};

// Calls `f(group, node, is_loaded)` once for each fusion group and each node, from the roots back to the loaded values.
template <class F> void each_node_of_groups(const Graph& graph, const Partition& partition, F&& f) {
  std::vector<std::uint32_t> seen_by(graph.size(), Partition::kNoGroup);
  std::vector<NodeId> stack;
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    stack = partition.groups[g].roots;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (std::exchange(seen_by[id], g) == g) continue;
      const bool is_loaded = partition.loads(graph, id, g);
      f(g, id, is_loaded);
      if (is_loaded) continue;
      for (const std::int64_t o : partition.operands(graph, id, g)) stack.push_back(static_cast<NodeId>(o));
    }
  }
}

// Sets Partition::read_again. It is needed only if an output is half-precision.
void find_read_again(const Graph& graph, Partition& partition) {
  partition.read_again.assign(graph.size(), false);
  if (std::none_of(graph.outputs.begin(), graph.outputs.end(), [&](NodeId id) { return is_half(graph[id].dtype); })) return;
  each_node_of_groups(graph, partition, [&](std::uint32_t, NodeId id, bool is_loaded) {
    if (is_loaded) partition.read_again[id] = is_half(graph[id].dtype);
  });
}

// Returns matrix products that several fusion groups compute. One product costs as much as all other work of such a group.
std::vector<NodeId> products_computed_again(const Graph& graph, const Partition& partition) {
  std::vector<NodeId> out;
  std::vector<std::uint32_t> times(graph.size(), 0);
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.size()), [&](NodeId id) { return graph[id].op == Op::ContractRows; }))
    return out;
  each_node_of_groups(graph, partition, [&](std::uint32_t, NodeId id, bool is_loaded) {
    if (!is_loaded && is_product(graph, id) && ++times[id] == 2) out.push_back(id);
  });
  return out;
}

// Returns reductions below column results (Group::columns) that another fusion group stores for a later consumer. The column result was
// placed before that consumer was found, and its fusion group now has no matching reduction.
std::vector<NodeId> columns_read_elsewhere(const Graph& graph, const Partition& partition) {
  std::vector<NodeId> out;
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    const Group& group = partition.groups[g];
    for (std::size_t r = 0; group.columns && r < group.roots.size(); ++r) {
      std::uint64_t along = 0;
      for (const DomainAxes& axis : group.axes[r]) along |= ((std::uint64_t{1} << axis.count) - 1) << axis.first;
      if (along == 0 || (along & ~group.reduced) != 0) continue;
      std::vector<NodeId> stack = {group.roots[r]}, loaded;
      std::unordered_set<NodeId> met;
      bool reduces = false;
      while (!stack.empty()) {
        const NodeId id = stack.back();
        stack.pop_back();
        if (!met.insert(id).second) continue;
        const bool is_loaded = partition.loads(graph, id, g);
        if (ir::is_reduction(graph[id].op)) {
          if (is_loaded) loaded.push_back(id);
          else reduces = true;
        }
        if (is_loaded) continue;
        for (const std::int64_t o : partition.operands(graph, id, g)) stack.push_back(static_cast<NodeId>(o));
      }
      if (!reduces) out.insert(out.end(), loaded.begin(), loaded.end());
    }
  }
  return out;
}

}  // namespace

Graph copy_results(Graph graph) {
  for (NodeId& id : graph.outputs) {
    const Node node = graph[id];
    const bool is_stored_once = node.op == Op::ScatterAdd || ir::is_routine(node.op);
    const bool is_copied = is_stored_once && (is_half(node.dtype) || std::ranges::count(graph.outputs, id) > 1);
    if (node.op == Op::Input || is_copied) id = graph.add(Op::Reshape, node.dtype, node.shape, {id});
  }
  return graph;
}

Partition fuse(const Graph& graph, const FuseOptions& options) {
  Cuts cuts;
  cuts.part.assign(graph.size(), 0);
  cuts.stored.assign(graph.size(), false);
  Fuser fuser(graph, options, cuts);
  const auto run = [&] {
    Partition partition = fuser.run();
    for (int round = 0; round < 3 && !options.unfused; ++round) {  // materialized values may cause other values to be recomputed
      std::vector<NodeId> first = products_computed_again(graph, partition);
      for (const NodeId id : columns_read_elsewhere(graph, partition)) first.push_back(id);
      if (first.empty()) break;
      for (const NodeId id : first) fuser.store_ahead(id);
      partition = fuser.run();
    }
    return partition;
  };
  Partition partition = run();
  // A cut changes the operands that later fusion groups find in memory, which may push another fusion group above the limits. Two rounds
  // suffice for all known programs.
  for (int round = 0; round < 3 && !options.unfused && cut_at_limits(graph, partition, options.limits, cuts); ++round) partition = run();
  find_read_again(graph, partition);
  return partition;
}

std::string print(const Graph& graph, const Partition& partition) {
  std::string out;
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const Group& group = partition.groups[g];
    std::string domain;
    for (std::size_t i = 0; i < group.domain.size(); ++i)
      domain += fmt::format("{}{}{}", i ? ", " : "", group.domain[i],
                            group.reduced >> i & 1   ? " (reduced)"
                            : group.ordered >> i & 1 ? " (in sequence)"
                                                     : "");
    out += fmt::format("group {}: [{}]\n", g, domain);
    for (NodeId id : group.roots)
      out += fmt::format("  stores %{} {} {}: {}\n", id, ir::info(graph[id].op).text, name_of(graph[id].dtype),
                         text_of(partition.boundary[id]));
  }
  return out;
}

}  // namespace onepass::compiler
