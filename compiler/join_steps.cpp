// See join_steps.h.
#include "compiler/join_steps.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/rewrite.h"
#include "compiler/split_steps.h"
#include "compiler/step_body.h"
#include "ir/steps.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr std::size_t kMostJoined = 64;      // lines that a loop takes in: with more, a step's values would leave the registers
constexpr int kMostAgain = 8;                // operators that a loop computes although others need their value too
constexpr std::uint32_t kStored = 1U << 24;  // uses of an output, which is stored anyway

// Returns the number of uses of each node. All results of a loop together are one user. A slice of a few rows is none: it is computed again.
std::vector<std::uint32_t> uses_by_loops(const Graph& graph) {
  constexpr std::int64_t kFew = 8;  // the part of the rows: one in so many
  std::vector<std::uint32_t> uses(graph.size(), 0);
  std::set<std::vector<std::int64_t>> loops;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op == Op::Slice && graph.elements(id) <= graph.elements(graph.operand(id, 0)) / kFew) continue;
    if (graph[id].op == Op::Steps && !loops.insert(key_of_loop(graph, id)).second) continue;
    for (const std::int64_t o : graph.operands(id)) ++uses[static_cast<std::size_t>(o)];
  }
  for (const NodeId id : graph.outputs) uses[id] = kStored;
  return uses;
}

// One loop, and the values that it takes in.
class Joined {
 public:
  Joined(Graph& graph, Steps steps, List operands, std::int64_t elements, const std::unordered_map<NodeId, std::uint32_t>& uses)
      : graph_(graph), s_(std::move(steps)), operands_(operands.begin(), operands.end()), elements_(elements), uses_(uses) {
    for (std::int64_t a = s_.states; a < s_.states + s_.arrays; ++a) read({operand(a), 0});
    while (!open_.empty() && lines_.size() < kMostJoined) {
      const auto [at, count] = *open_.begin();
      open_.erase(open_.begin());
      if (!is_taken(at, count)) continue;
      lines_.push_back(at);
      for (const std::int64_t o : graph_.operands(at.node)) read({static_cast<NodeId>(o), at.row});
    }
    std::ranges::reverse(lines_);
  }

  bool takes_lines() const { return !lines_.empty(); }
  // Returns the nodes of all results: the last states, then those of all steps.
  std::vector<NodeId> results() {
    take_in();
    return add_steps(graph_, s_, elements_, operands_as_nodes());
  }

 private:
  // Rows of a node [n, elements]: the row of step place 0, and those after it.
  struct Rows {
    NodeId node;
    std::int64_t row;
    auto operator<=>(const Rows&) const = default;
  };
  using Ref = StepRef;
  Graph& graph_;
  Steps s_;
  std::vector<std::int64_t> operands_;
  const std::int64_t elements_;
  const std::unordered_map<NodeId, std::uint32_t>& uses_;
  std::map<Rows, std::uint32_t, std::greater<>> open_;  // number of uses by the loop and by its new lines: the last nodes first
  std::vector<Rows> lines_;                             // the new lines, by id

  NodeId operand(std::int64_t i) const { return static_cast<NodeId>(operands_[static_cast<std::size_t>(i)]); }
  std::vector<NodeId> operands_as_nodes() const {
    std::vector<NodeId> nodes;
    for (const std::int64_t o : operands_) nodes.push_back(static_cast<NodeId>(o));
    return nodes;
  }
  std::uint32_t uses_of(NodeId id) const {
    const auto it = uses_.find(id);
    return it == uses_.end() ? ~std::uint32_t{0} : it->second;
  }

  // Returns the rows that a slice reads; nullopt if the node is no slice of rows.
  std::optional<Rows> below(const Rows& at) const {
    if (graph_[at.node].op != Op::Slice || graph_.shape(at.node).size() != 2) return {};
    const List attributes = graph_.attributes(at.node);
    const NodeId from = graph_.operand(at.node, 0);
    if (attributes[1] != 0 || attributes[2] != 1 || graph_.shape(from)[1] != graph_.shape(at.node)[1]) return {};
    return Rows{from, at.row + attributes[0]};
  }
  void read(Rows at) {
    for (std::optional<Rows> next; uses_of(at.node) == 1 && (next = below(at));) at = *next;
    ++open_[at];
  }
  bool is_taken(const Rows& at, std::uint32_t count) const {
    const List shape = graph_.shape(at.node);
    return is_line(at.node) && shape.size() == 2 && shape[1] == elements_ &&
           (count == uses_of(at.node) || (uses_of(at.node) < kStored && cost(at.node, kMostAgain) <= kMostAgain));
  }
  bool is_line(NodeId id) const {
    const std::size_t operands = graph_.operands(id).size();
    return is_elementwise(graph_[id].op) && graph_[id].attributes == 0 && operands > 0 && operands <= 3;
  }
  // Returns the number of operators between the value and arrays; more than `most` if there are more, or one takes many instructions.
  int cost(NodeId id, int most) const {
    while (graph_[id].op == Op::Slice) id = graph_.operand(id, 0);
    if (!is_line(id) || uses_of(id) >= kStored) return 0;
    if (most <= 0 || info(graph_[id].op).kind == OpKind::Expanded || graph_[id].op == Op::Div || graph_[id].op == Op::Sqrt) return most + 1;
    int sum = 1;
    for (const std::int64_t o : graph_.operands(id))
      if (sum <= most) sum += cost(static_cast<NodeId>(o), most - sum);
    return sum;
  }

  void take_in() {
    std::vector<NodeId> arrays, captures;
    std::map<Rows, Ref> at;
    std::vector<StepLine> made;
    std::vector<std::vector<Ref>> operands;
    for (std::int64_t c = s_.states + s_.arrays; c < s_.operands(); ++c) captures.push_back(operand(c));
    const auto place_in = [](std::vector<NodeId>& list, NodeId id) {
      const auto it = std::ranges::find(list, id);
      if (it != list.end()) return static_cast<std::size_t>(it - list.begin());
      list.push_back(id);
      return list.size() - 1;
    };
    // The value of a row in each step: a line, a constant, a capture, or a row of an array.
    const auto value = [&](NodeId id, std::int64_t row) {
      Rows from{id, row};
      for (std::optional<Rows> next; !at.contains(from) && (next = below(from));) from = *next;
      if (const auto it = at.find(from); it != at.end()) return it->second;
      const Node node = graph_[from.node];
      Ref ref{Ref::Kind::Capture, 0};
      if (node.op == Op::Constant) {
        ref = {Ref::Kind::Line, made.size()};
        made.push_back({Op::Constant, node.dtype, node.bits, {StepLine::kNone, StepLine::kNone, StepLine::kNone}});
        operands.emplace_back();
      } else if (node.op == Op::Slot) {
        ref.index = place_in(captures, graph_.slot_node(static_cast<std::uint32_t>(node.bits), graph_.intern({1})));
      } else if (node.op == Op::Broadcast && is_same_in_all_rows(graph_.operand(from.node, 0))) {
        const NodeId x = graph_.operand(from.node, 0);
        ref.index = place_in(captures, in_shape(graph_, x, graph_.intern({graph_.elements(x)})));
      } else if (node.op == Op::Broadcast && is_same_in_each_row(graph_.operand(from.node, 0), from.node)) {
        ref = {Ref::Kind::Array, place_in(arrays, rows({graph_.operand(from.node, 0), from.row}))};
      } else {
        ref = {Ref::Kind::Array, place_in(arrays, rows(from))};
      }
      return at[from] = ref;
    };
    for (const Rows& line : lines_) {
      std::vector<Ref> refs;
      for (const std::int64_t o : graph_.operands(line.node)) refs.push_back(value(static_cast<NodeId>(o), line.row));
      at[line] = {Ref::Kind::Line, made.size()};
      made.push_back({graph_[line.node].op, graph_[line.node].dtype, 0, {StepLine::kNone, StepLine::kNone, StepLine::kNone}});
      operands.push_back(std::move(refs));
    }
    std::vector<Ref> of_old;  // by value of the old step
    for (std::int64_t i = 0; i < s_.states; ++i) of_old.push_back({Ref::Kind::State, static_cast<std::size_t>(i)});
    for (std::int64_t a = s_.states; a < s_.states + s_.arrays; ++a) of_old.push_back(value(operand(a), 0));
    for (std::size_t c = 0; std::cmp_less(c, s_.captures); ++c) of_old.push_back({Ref::Kind::Capture, c});
    for (std::size_t l = 0; l < s_.lines.size(); ++l) of_old.push_back({Ref::Kind::Line, made.size() + l});

    const std::vector<StepLine> old = std::exchange(s_.lines, std::move(made));
    s_.arrays = static_cast<std::int64_t>(arrays.size()), s_.captures = static_cast<std::int64_t>(captures.size());
    const auto number = [&](const Ref& ref) { return number_of(s_, ref); };
    for (std::size_t l = 0; l < operands.size(); ++l)
      for (std::size_t k = 0; k < operands[l].size(); ++k) s_.lines[l].operands[k] = number(operands[l][k]);
    const auto renumber = [&](std::int64_t& v) {
      if (v != StepLine::kNone) v = number(of_old[static_cast<std::size_t>(v)]);
    };
    for (StepLine line : old) {
      std::ranges::for_each(line.operands, renumber);
      s_.lines.push_back(line);
    }
    std::ranges::for_each(s_.next, renumber);
    std::ranges::for_each(s_.results, renumber);
    operands_.resize(static_cast<std::size_t>(s_.states));
    operands_.insert(operands_.end(), arrays.begin(), arrays.end());
    operands_.insert(operands_.end(), captures.begin(), captures.end());
  }

  bool is_same_in_all_rows(NodeId x) const { return graph_.shape(x).size() == 2 && graph_.shape(x)[0] == 1; }
  bool is_same_in_each_row(NodeId x, NodeId all) const {
    const List shape = graph_.shape(x);
    return shape.size() == 2 && shape[1] == 1 && shape[0] == graph_.shape(all)[0];
  }
  NodeId rows(const Rows& of) {
    const List shape = graph_.shape(of.node);
    if (of.row == 0 && shape[0] == s_.count) return of.node;
    return graph_.add(Op::Slice, graph_[of.node].dtype, graph_.intern({s_.count, shape[1]}), {of.node},
                      std::vector<std::int64_t>{of.row, 0, 1, 1});
  }
};

}  // namespace

Graph join_steps(Graph graph) {
  if (std::ranges::none_of(std::views::iota(NodeId{0}, graph.size()), [&](NodeId id) { return graph[id].op == Op::Steps; })) return graph;
  const std::vector<std::uint32_t> uses = uses_by_loops(graph);
  std::unordered_map<NodeId, std::uint32_t> uses_of_new;
  std::map<std::vector<std::int64_t>, std::vector<NodeId>> made;  // by loop: the new results
  return rewrite(graph, [&](Graph& out, const Node& node, NodeId id) -> NodeId {
    if (node.op == Op::Steps && graph.shape(id).back() > kFewInStep) {
      const Steps s = steps_of(graph, id);
      std::vector<NodeId>& results = made[key_of_loop(graph, id)];
      if (results.empty())
        if (Joined joined(out, s, out.list(node.operands), graph.shape(id).back(), uses_of_new); joined.takes_lines())
          results = joined.results();
      if (!results.empty()) return results[static_cast<std::size_t>(s.which)];
    }
    const NodeId copy = out.add(node);
    uses_of_new[copy] += uses[id];
    return copy;
  });
}

}  // namespace onepass::compiler
