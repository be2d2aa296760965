// distribute_sums: sum(c*x + d*y) -> c*sum(x) + d*sum(y), for c and d that are equal along the summed axes.
//
// A kernel sweeps over a row once for each reduction that needs the result of another reduction of the row. If c needs one, but x does not,
// sum(x) is computed in an earlier sweep. In the derivative of a layer norm, the sum of a row's derivatives needs the standard deviation
// and a sum of products only as factors: three sweeps instead of four.
//
// Terms with equal factors stay one sum, so sum(c*x - c*y) becomes c*sum(x - y): the differences keep their digits.
#include "compiler/distribute_sums.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/axis_symbols.h"
#include "compiler/rewrite.h"

namespace onepass::compiler {

using namespace ir;

namespace {

class Distribution {
 public:
  /// The sums in `kept` stay as they are.
  Distribution(const Graph& graph, const std::set<NodeId>& kept) : graph_(graph), kept_(kept) {
    for (NodeId id = 0; id < graph.size(); ++id)
      if (is_sum(id) && kinds_.size() < kMostKinds) kinds_.try_emplace(kind_of(id), graph.size());
  }

  Graph run() {
    return rewrite(graph_, [&](Graph& out, const Node& node, NodeId id, const std::vector<NodeId>& now) -> NodeId {
      out_ = &out, made_ = &now;
      for (auto& [kind, nodes] : kinds_) {
        for (const std::int64_t o : graph_.operands(id))
          nodes.depth[id] = std::max(nodes.depth[id], nodes.depth[static_cast<std::size_t>(o)]);
        if (is_reduction(node.op) && kind_of(id) == kind) ++nodes.depth[id];
        nodes.height[id] = height_of(id, kind, nodes);
      }
      const std::optional<NodeId> sum = distributed(id);
      return sum ? *sum : out.add(node);
    });
  }
  /// The distributed sums of the input graph, each with the sums of the output graph that replace it.
  const std::vector<std::pair<NodeId, std::vector<NodeId>>>& distributed() const { return distributed_; }

 private:
  // Reductions of the same axes of operands of the same shape.
  struct Kind {
    ListId shape, axes;
    auto operator<=>(const Kind&) const = default;
  };
  struct Nodes {
    explicit Nodes(std::size_t count) : depth(count, 0), height(count, 0) {}
    std::vector<int> depth;            // by node: number of reductions of the kind, each of which needs the result of the one before
    std::vector<std::uint8_t> height;  // by node that is equal along the axes: operations from values without the axes, plus 1; else 0
  };
  struct Factor {
    // x*f, mul0(x, f), x/f, mul0(x, 1/f), mul0(f, x)
    enum class As : std::uint8_t { Product, ZeroProduct, Divisor, ZeroDivisor, Cotangent } as;
    NodeId node;  // of the input graph, equal along the axes
    auto operator<=>(const Factor&) const = default;
  };
  using Factors = std::vector<Factor>;
  struct Term {
    Factors factors;
    bool is_negative;
    NodeId value;  // of the output graph
  };
  static constexpr std::size_t kMostKinds = 16, kMostSums = 3;
  static constexpr int kMostSteps = 64;
  static constexpr std::uint8_t kHighest = 16;

  const Graph& graph_;
  const std::set<NodeId>& kept_;
  Graph* out_ = nullptr;                       // of the current call of rewrite()
  const std::vector<NodeId>* made_ = nullptr;  // by node: its new id
  std::vector<std::pair<NodeId, std::vector<NodeId>>> distributed_;
  std::map<Kind, Nodes> kinds_;

  // the current sum
  NodeId sum_ = kNoNode;
  const Nodes* nodes_ = nullptr;
  int steps_ = 0, depth_ = 0;         // visited nodes; largest depth of the values that are summed
  std::map<NodeId, NodeId> reduced_;  // values without the axes

  Kind kind_of(NodeId id) const { return {graph_[graph_.operand(id, 0)].shape, graph_[id].attributes}; }
  bool is_sum(NodeId id) const {
    const Node n = graph_[id];
    return n.op == Op::ReduceSum && (n.dtype == DType::F32 || n.dtype == DType::F64);
  }

  std::uint8_t height_of(NodeId id, const Kind& kind, const Nodes& nodes) const {
    const Node n = graph_[id];
    if (n.shape != kind.shape) return 0;
    if (n.op == Op::Slot || n.op == Op::Constant) return 1;
    if (n.op == Op::Broadcast) {
      const List from = graph_.shape(graph_.operand(id, 0));
      return std::ranges::all_of(graph_.list(kind.axes), [&](std::int64_t axis) { return from[static_cast<std::size_t>(axis)] == 1; }) ? 1
                                                                                                                                       : 0;
    }
    if (!is_elementwise(n.op) || n.op == Op::Rare) return 0;
    std::uint8_t most = 0;
    for (const std::int64_t o : graph_.operands(id)) {
      const std::uint8_t height = nodes.height[static_cast<std::size_t>(o)];
      if (height == 0 || height == kHighest) return 0;
      most = std::max(most, height);
    }
    return static_cast<std::uint8_t>(most + 1);
  }

  /// Returns a value that is equal along the summed axes, without them.
  NodeId reduced(NodeId id) {
    if (const auto at = reduced_.find(id); at != reduced_.end()) return at->second;
    const ListId shape = graph_[sum_].shape;
    if (graph_[id].op != Op::Broadcast) {
      Node node = graph_[id];
      node.shape = shape;
      std::vector<std::int64_t> operands;
      for (const std::int64_t o : graph_.operands(id)) operands.push_back(reduced(static_cast<NodeId>(o)));
      node.operands = out_->intern(operands);
      return reduced_[id] = out_->add(node);
    }
    const NodeId from = graph_.operand(id, 0);
    std::vector<std::int64_t> extents(graph_.shape(id).begin(), graph_.shape(id).end());
    for (const std::int64_t axis : graph_.attributes(sum_)) extents[static_cast<std::size_t>(axis)] = 1;
    const ListId wide = out_->intern(extents);
    const NodeId now = graph_[from].shape == wide ? (*made_)[from] : out_->add(Op::Broadcast, graph_[id].dtype, wide, {(*made_)[from]});
    return reduced_[id] = out_->add(Op::Reshape, graph_[id].dtype, shape, {now});
  }

  bool is_known(NodeId id) const { return nodes_->depth[id] < nodes_->depth[graph_.operand(sum_, 0)]; }
  bool is_factor(NodeId id) const { return nodes_->height[id] > 0; }

  /// Takes a factor out of a product. Returns the other operand, or kNoNode if no operand is equal along the axes.
  NodeId without_factor(NodeId id, Factors& factors) const {
    const Op op = graph_[id].op;
    if (op != Op::Mul && op != Op::Mul0 && op != Op::Div) return kNoNode;
    const NodeId a = graph_.operand(id, 0), b = graph_.operand(id, 1);
    if (is_factor(b)) {
      factors.push_back({op == Op::Div ? Factor::As::Divisor : op == Op::Mul0 ? Factor::As::ZeroProduct : Factor::As::Product, b});
      return a;
    }
    if (!is_factor(a) || op == Op::Div) return kNoNode;
    factors.push_back({op == Op::Mul0 ? Factor::As::Cotangent : Factor::As::Product, a});
    return b;
  }

  /// Takes a product apart: `id` is the returned value times `factors`. Returns kNoNode if what remains is not known early enough.
  NodeId without_factors(NodeId id, Factors& factors, bool& is_negative) {
    if (is_known(id)) {
      depth_ = std::max(depth_, nodes_->depth[id]);
      return (*made_)[id];
    }
    const Node n = graph_[id];
    if (++steps_ > kMostSteps) return kNoNode;
    if (n.op == Op::Neg) {
      is_negative = !is_negative;
      return without_factors(graph_.operand(id, 0), factors, is_negative);
    }
    if (const NodeId rest = without_factor(id, factors); rest != kNoNode) return without_factors(rest, factors, is_negative);
    if (n.op != Op::Mul && n.op != Op::Mul0) return kNoNode;
    const NodeId left = without_factors(graph_.operand(id, 0), factors, is_negative);
    const std::size_t own = factors.size();
    const NodeId right = left == kNoNode ? kNoNode : without_factors(graph_.operand(id, 1), factors, is_negative);
    for (std::size_t k = own; k < factors.size() && n.op == Op::Mul0; ++k) {  // a zero cotangent gives zero for any factor
      if (factors[k].as == Factor::As::Product || factors[k].as == Factor::As::Cotangent) factors[k].as = Factor::As::ZeroProduct;
      if (factors[k].as == Factor::As::Divisor) factors[k].as = Factor::As::ZeroDivisor;
    }
    return right == kNoNode ? kNoNode : out_->add(n.op, n.dtype, n.shape, {left, right});
  }

  /// Adds the terms of a sum of products, times `factors`. Returns false if a term is not known early enough.
  bool add_terms(NodeId id, bool is_negative, Factors factors, std::vector<Term>& terms) {
    const Op op = graph_[id].op;
    if (++steps_ > kMostSteps) return false;
    if (!is_known(id)) {
      if (op == Op::Neg) return add_terms(graph_.operand(id, 0), !is_negative, std::move(factors), terms);
      if (op == Op::Add || op == Op::Sub)
        return add_terms(graph_.operand(id, 0), is_negative, factors, terms) &&
               add_terms(graph_.operand(id, 1), is_negative != (op == Op::Sub), factors, terms);
      if (const NodeId rest = without_factor(id, factors); rest != kNoNode) return add_terms(rest, is_negative, std::move(factors), terms);
    }
    Term term{std::move(factors), is_negative, kNoNode};
    term.value = without_factors(id, term.factors, term.is_negative);
    std::ranges::sort(term.factors);
    terms.push_back(std::move(term));
    return terms.back().value != kNoNode;
  }

  NodeId binary(Op op, NodeId a, NodeId b) { return out_->add(op, (*out_)[a].dtype, (*out_)[a].shape, {a, b}); }

  /// Returns the terms, which have the same factors, as one sum times the factors.
  NodeId sum_of(const Factors& factors, std::vector<Term> terms, std::vector<NodeId>& sums) {
    std::ranges::stable_partition(terms, [](const Term& t) { return !t.is_negative; });
    const bool all_negative = terms[0].is_negative;
    const bool all_equal =
        std::ranges::all_of(terms, [&](const Term& t) { return t.value == terms[0].value && t.is_negative == all_negative; });
    NodeId value = terms[0].value;
    for (std::size_t k = 1; k < terms.size() && !all_equal; ++k)
      value = binary(terms[k].is_negative == all_negative ? Op::Add : Op::Sub, value, terms[k].value);
    const Node node = graph_[sum_];
    NodeId sum = out_->add(Op::ReduceSum, node.dtype, node.shape, {value}, graph_.attributes(sum_));
    sums.push_back(sum);
    if (all_equal && terms.size() > 1)
      sum = binary(Op::Mul, sum, out_->constant(node.dtype, node.shape, bits_of(node.dtype, static_cast<double>(terms.size()))));
    for (const Factor& f : factors) {
      const NodeId by = reduced(f.node);
      switch (f.as) {
        case Factor::As::Product: sum = binary(Op::Mul, sum, by); break;
        case Factor::As::ZeroProduct: sum = binary(Op::Mul0, sum, by); break;
        case Factor::As::Divisor: sum = binary(Op::Div, sum, by); break;
        case Factor::As::ZeroDivisor: sum = binary(Op::Mul0, sum, out_->add(Op::Reciprocal, node.dtype, node.shape, {by})); break;
        case Factor::As::Cotangent: sum = binary(Op::Mul0, by, sum); break;
      }
    }
    return all_negative ? out_->add(Op::Neg, node.dtype, node.shape, {sum}) : sum;
  }

  /// Returns the sum, computed from sums that are known earlier, or nullopt.
  std::optional<NodeId> distributed(NodeId id) {
    if (!is_sum(id) || kept_.contains(id)) return std::nullopt;
    const auto kind = kinds_.find(kind_of(id));
    if (kind == kinds_.end() || kind->second.depth[id] == 1) return std::nullopt;
    sum_ = id, nodes_ = &kind->second, steps_ = depth_ = 0;
    reduced_.clear();
    std::vector<Term> terms;
    if (!add_terms(graph_.operand(id, 0), false, {}, terms)) return std::nullopt;
    std::map<Factors, std::vector<Term>> groups;
    for (const Term& t : terms) groups[t.factors].push_back(t);
    if (groups.size() > kMostSums) return std::nullopt;
    NodeId all = kNoNode;
    int depth = depth_ + 1;
    std::vector<NodeId>& sums = distributed_.emplace_back(id, std::vector<NodeId>()).second;
    for (const auto& [factors, group] : groups) {
      for (const Factor& f : factors) depth = std::max(depth, kind->second.depth[f.node]);
      const NodeId sum = sum_of(factors, group, sums);
      all = all == kNoNode ? sum : binary(Op::Add, all, sum);
    }
    kind->second.depth[id] = depth;
    return all;
  }
};

}  // namespace

Graph distribute_sums(const Graph& graph) {
  constexpr int kMostRounds = 4;
  std::set<NodeId> kept;
  for (int round = 0; round < kMostRounds; ++round) {
    Distribution distribution(graph, kept);
    Graph out = distribution.run();
    // Without the terms that combined them, the values of different sums may no longer have common loops. Then the sum stays.
    const std::size_t outputs = out.outputs.size();
    for (const auto& [sum, sums] : distribution.distributed()) out.outputs.insert(out.outputs.end(), sums.begin(), sums.end());
    out = prune(std::move(out));
    AxisSymbols symbols(out);
    std::size_t at = outputs, before = kept.size();
    for (const auto& [sum, sums] : distribution.distributed()) {
      const NodeId first = out.operand(out.outputs[at], 0);
      for (std::size_t k = 0; k < sums.size(); ++k, ++at)
        for (std::size_t i = 0; i < out.shape(first).size(); ++i)
          if (symbols.axis(out.operand(out.outputs[at], 0), i) != symbols.axis(first, i)) kept.insert(sum);
    }
    out.outputs.resize(outputs);
    if (kept.size() == before) return out;
  }
  return graph;
}

}  // namespace onepass::compiler
