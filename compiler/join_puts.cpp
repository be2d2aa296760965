// join_puts: where(inside n, v n, … where(inside 1, v 1, x)) -> where(piecewise(true …), piecewise(v 1 … v n), x).
//
// `inside k` is a pad of true and `v k` a pad of the written values, with equal boxes. A later write wins: an earlier write inside its box is
// dropped. A chain ends at a write that overlaps a later write only in part, and at an array that something else reads, too.
#include "compiler/join_puts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "compiler/rewrite.h"

namespace onepass::compiler {

using namespace ir;

namespace {

constexpr std::size_t kFewest = 8;        // a kernel compares elements with fewer writes
constexpr std::size_t kMostRanges = 256;  // writes of several elements, each of which is compared with all others

struct Write {
  NodeId node = kNoNode;   // the where
  NodeId part = kNoNode;   // true, in the shape of the written part
  NodeId value = kNoNode;  // the written part, or a number
  NodeId base = kNoNode;
  List box = {};  // start and step for each axis
};

class Joiner {
 public:
  explicit Joiner(const Graph& graph) : graph_(graph), uses_(count_uses(graph)), writes_(graph.size()) {
    for (NodeId id = 0; id < graph.size(); ++id) find(id);
    std::vector<bool> is_inner(graph.size(), false);
    for (NodeId id = graph.size(); id-- > 0;) {
      if (writes_[id].node == kNoNode || is_inner[id]) continue;
      Chain chain = chain_of(id);
      if (chain.writes.size() + chain.dropped < kFewest) continue;
      for (const NodeId inner : chain.inner) is_inner[inner] = true;
      chains_.emplace_back(id, std::move(chain));
    }
  }

  bool any() const { return !chains_.empty(); }

  Graph run() {
    std::size_t next = chains_.size();  // the chains are in descending order
    return rewrite(graph_, [&](Graph& out, const Node& node, NodeId id, const std::vector<NodeId>& now) -> NodeId {
      if (next == 0 || chains_[next - 1].first != id) return out.add(node);
      return joined(out, node, chains_[--next].second, now);
    });
  }

 private:
  struct Chain {
    std::vector<NodeId> writes, inner;  // last write first
    std::size_t dropped = 0;
    NodeId base = kNoNode;
  };

  const Graph& graph_;
  const std::vector<std::uint32_t> uses_;
  std::vector<Write> writes_;  // by node
  std::vector<std::pair<NodeId, Chain>> chains_;

  static bool is_number(Op op) { return op == Op::Constant || op == Op::Slot; }
  bool is_true(NodeId id) const { return graph_[id].op == Op::Constant && graph_[id].bits == 1; }

  void find(NodeId id) {
    if (graph_[id].op != Op::Where || graph_.shape(id).empty()) return;
    const NodeId inside = graph_.operand(id, 0), value = graph_.operand(id, 1), base = graph_.operand(id, 2);
    if (graph_[inside].op != Op::Pad) return;
    const NodeId part = graph_.operand(inside, 0);
    if (!is_true(part) || graph_.elements(part) == 0) return;
    if (is_number(graph_[value].op)) {
      writes_[id] = {id, part, value, base, graph_.attributes(inside)};
    } else if (graph_[value].op == Op::Pad && graph_[inside].attributes == graph_[value].attributes) {
      const NodeId written = graph_.operand(value, 0);
      if (graph_[written].shape == graph_[part].shape) writes_[id] = {id, part, written, base, graph_.attributes(inside)};
    }
  }

  // First and last index of a box along an axis.
  std::pair<std::int64_t, std::int64_t> span(const Write& w, std::size_t axis) const {
    const std::size_t rank = w.box.size() / 2;
    const std::int64_t first = w.box[axis], last = first + (graph_.shape(w.part)[axis] - 1) * w.box[rank + axis];
    return {std::min(first, last), std::max(first, last)};
  }
  enum class Relation : std::uint8_t { Apart, Inside, Overlaps };
  // How the earlier write lies to the later one. Steps other than 1 and -1 count as overlapping, unless the spans are apart.
  Relation relation(const Write& earlier, const Write& later) const {
    bool inside = true;
    for (std::size_t i = 0; i < earlier.box.size() / 2; ++i) {
      const auto [low, high] = span(earlier, i);
      const auto [first, last] = span(later, i);
      if (high < first || last < low) return Relation::Apart;
      const std::int64_t step = later.box[later.box.size() / 2 + i];
      inside = inside && first <= low && high <= last && (step == 1 || step == -1 || first == last);
    }
    return inside ? Relation::Inside : Relation::Overlaps;
  }

  Chain chain_of(NodeId last) const {
    Chain chain;
    std::set<std::vector<std::int64_t>> elements;  // indices of written single elements
    std::vector<NodeId> ranges;                    // writes of several elements
    NodeId at = last;
    for (; writes_[at].node != kNoNode && (at == last || uses_[at] == 1); at = writes_[at].base) {
      const Write& w = writes_[at];
      const std::size_t rank = w.box.size() / 2;
      const bool is_element = graph_.elements(w.part) == 1;
      Relation all = Relation::Apart;
      const auto meet = [&](Relation r) { all = all == Relation::Inside || r == Relation::Apart ? all : r; };
      for (const NodeId range : ranges) meet(relation(w, writes_[range]));
      std::vector<std::int64_t> index(w.box.begin(), w.box.begin() + static_cast<std::ptrdiff_t>(rank));
      if (is_element && elements.contains(index)) all = Relation::Inside;
      if (!is_element && all != Relation::Inside)
        for (const NodeId other : chain.writes)
          if (graph_.elements(writes_[other].part) == 1) meet(relation(w, writes_[other]));
      if (all == Relation::Overlaps || (!is_element && ranges.size() == kMostRanges)) break;
      if (at != last) chain.inner.push_back(at);
      chain.dropped += all == Relation::Inside;
      if (all == Relation::Inside) continue;
      chain.writes.push_back(at);
      if (is_element) elements.insert(std::move(index));
      else ranges.push_back(at);
    }
    chain.base = at;
    return chain;
  }

  NodeId joined(Graph& out, const Node& node, const Chain& chain, const std::vector<NodeId>& now) const {
    const auto number = [&](NodeId id, ListId shape) {
      const Node n = out[id];
      return n.op == Op::Constant ? out.constant(n.dtype, shape, n.bits) : out.slot_node(static_cast<std::uint32_t>(n.bits), shape);
    };
    std::vector<std::int64_t> values, insides, boxes;
    for (std::size_t k = chain.writes.size(); k-- > 0;) {
      const Write& w = writes_[chain.writes[k]];
      insides.push_back(now[w.part]);
      values.push_back(is_number(graph_[w.value].op) ? number(now[w.value], graph_[w.part].shape) : now[w.value]);
      boxes.insert(boxes.end(), w.box.begin(), w.box.end());
    }
    const auto piecewise = [&](DType type, std::vector<std::int64_t> operands, NodeId elsewhere) {
      operands.push_back(elsewhere);
      return out.add(Node{Op::Piecewise, type, node.shape, out.intern(operands), out.intern(boxes), 0});
    };
    NodeId under = chain.base;  // without views that only repeat a number
    while (graph_[under].op == Op::Broadcast || graph_[under].op == Op::Reshape) under = graph_.operand(under, 0);
    if (is_number(graph_[under].op)) return piecewise(node.dtype, values, number(now[under], 0));
    const NodeId inside = piecewise(DType::Bool, insides, out.constant(DType::Bool, 0, 0));
    const NodeId all = piecewise(node.dtype, values, out.constant(node.dtype, 0, 0));
    return out.add(Op::Where, node.dtype, node.shape, {inside, all, now[chain.base]});
  }
};

}  // namespace

Graph join_puts(const Graph& graph) {
  Joiner joiner(graph);
  return joiner.any() ? prune(joiner.run()) : graph;
}

}  // namespace onepass::compiler
