// expansion_order: see expansion_order.h. The order affects no result bits.
//
//   erf: a polynomial for small operands; another polynomial for large operands, which ends in an exponential. In the written order the
//   first polynomial completes before the second polynomial begins. The processor looks ahead only a few hundred instructions and stalls on
//   the exponential. In this order the first polynomial fills the stalls of the second polynomial.
#include "compiler/expansion_order.h"

#include <algorithm>
#include <numeric>

#include "ir/ops.h"

namespace onepass::compiler {

using ir::NodeId;
using ir::Op;

namespace {

constexpr int kLatency = 4, kUnits = 2;  // add or multiply: latency in cycles, and issues in one cycle

// List scheduler for one expansion.
class Ordering {
 public:
  Ordering(const ir::Graph& g, RegisterUse registers)
      : g_(g),
        latency_(std::max(1, kLatency * kUnits / registers.at_once)),
        limit_(registers.all / registers.at_once),
        height_(g.size(), 0),
        ready_(g.size(), 0),
        users_(g.size()) {
    for (NodeId id = g.size(); id-- > 0;)
      for (const std::int64_t o : g.operands(id)) {
        height_[node(o)] = std::max(height_[node(o)], height_[id] + latency_);
        users_[node(o)].push_back(id);
      }
  }

  std::vector<NodeId> run() {
    start();
    std::vector<NodeId> waiting;
    for (NodeId id = 0; id < g_.size(); ++id)
      if (is_leaf(id)) order_.push_back(id);
      else waiting.push_back(id);
    for (int now = 0; !waiting.empty(); ++now) {
      const auto best = choose(waiting, now);
      if (best == waiting.end()) continue;
      const NodeId id = *best;
      waiting.erase(best);
      take(id, now);
    }
    return std::move(order_);
  }

  /// Returns the largest number of values alive at once, in that order.
  int most_alive(const std::vector<NodeId>& order) {
    start();
    for (const NodeId id : order)
      if (!is_leaf(id)) take(id, 0);
    return most_alive_;
  }

  int limit() const { return limit_; }

 private:
  static NodeId node(std::int64_t operand) { return static_cast<NodeId>(operand); }
  bool is_leaf(NodeId id) const { return !ir::is_elementwise(g_[id].op); }
  bool in_register(NodeId id) const { return g_[id].op != Op::Constant && g_[id].dtype != DType::Bool; }

  void start() {
    order_.clear();
    alive_ = most_alive_ = 0;
    left_.assign(g_.size(), 0);
    needed_.assign(g_.size(), 0);
    for (NodeId id = 0; id < g_.size(); ++id) {
      needed_[id] = users_[id].size();
      for (const std::int64_t o : g_.operands(id)) left_[id] += !is_leaf(node(o));
      if (g_[id].op == Op::Input) ++alive_;
    }
  }

  // Returns the increase in live values after this node.
  int added(NodeId id) const {
    int change = in_register(id);
    const ir::List operands = g_.operands(id);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const NodeId o = node(operands[i]);
      if (std::find(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(i), operands[i]) !=
          operands.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      const auto mine = static_cast<std::size_t>(std::count(operands.begin(), operands.end(), operands[i]));
      if (in_register(o) && needed_[o] == mine) --change;
    }
    return change;
  }

  // Returns the ready node of greatest height. If every ready node would exceed the limit, returns the first waiting node, which is always
  // ready.
  std::vector<NodeId>::iterator choose(std::vector<NodeId>& waiting, int now) const {
    auto best = waiting.end();
    bool crowded = false;
    for (auto it = waiting.begin(); it != waiting.end(); ++it) {
      if (left_[*it] != 0 || ready_[*it] > now) continue;
      if (alive_ + added(*it) > limit_ && added(*it) > 0) crowded = true;
      else if (best == waiting.end() || height_[*it] > height_[*best]) best = it;
    }
    return best == waiting.end() && crowded ? waiting.begin() : best;
  }

  void take(NodeId id, int now) {
    alive_ += added(id);
    most_alive_ = std::max(most_alive_, alive_);
    for (const std::int64_t o : g_.operands(id)) --needed_[node(o)];
    for (const NodeId user : users_[id]) {
      --left_[user];
      ready_[user] = std::max(ready_[user], now + latency_);
    }
    order_.push_back(id);
  }

  const ir::Graph& g_;
  const int latency_;  // in operators that the processor issues during one operation
  const int limit_;
  std::vector<int> height_, ready_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> left_;            // operands not yet computed
  std::vector<std::size_t> needed_;  // remaining uses
  std::vector<NodeId> order_;
  int alive_ = 0, most_alive_ = 0;
};

}  // namespace

std::vector<NodeId> expansion_order(const ir::Graph& expansion, RegisterUse registers) {
  std::vector<NodeId> as_written(expansion.size());
  std::iota(as_written.begin(), as_written.end(), NodeId{0});
  for (const NodeId id : as_written)
    if (expansion[id].op == Op::Rare) return as_written;
  Ordering ordering(expansion, registers);
  std::vector<NodeId> order = ordering.run();
  const int alive = ordering.most_alive(order);
  return alive <= std::max(ordering.limit(), ordering.most_alive(as_written)) ? order : as_written;
}

}  // namespace onepass::compiler
