// reassociate: the relaxation `reassociate`. It regroups sums and products of floats as if they were exact.
//   (x*a + b)*c        -> x*(a*c) + b*c        uniform arithmetic (equal for all elements) is computed once, outside of the loops
//   0.5*x*(p + q)*4    -> x*(p*2 + q*2)        uniform factors are gathered and multiplied into a sum
//   x + c*x*x*x        -> x*(1 + c*(x*x))      a common factor is taken out
//   a/3 -> a*(1/3)     a/broadcast(s) -> a*broadcast(1/s)     (a/b)/(c/d) -> (a*d)/(b*c)
//   mul0(mul0(g, a), b) -> mul0(g, a*b)        mul0(g, a) + mul0(g, b) -> mul0(g, a + b)
//   where(g*a == 0, 0, mul0(mul0(h, b), g*a)) -> mul0(where(g == 0, 0, mul0(h, g)), a*b)     for g*a = mul0(g, a): a second
//   derivative is one sum of products under both cotangents, as the first derivative is a sum under one cotangent
//   q + mul0(q, c*x*x) -> mul0(g, y*(1 + x*x*((b + c) + x*x*(b*c))))     for q = mul0(g, y*(1 + b*x*x)): sums from differentiation are
//   written out into the sums that use them, if that takes fewer operations
//
// A literal is a scalar parameter, whose value no pass sees. Its products and sums are nodes that depend on no loop, so kernels compute
// them once. In f32 these run in f64 and are rounded at the first use with a varying value. A long chain gathers hundreds of them. Their
// rounding errors would be equal for all elements, so they would not average out as the elements' errors do.
//
// Left out on purpose: distributing a product over a sum that the program wrote, for varying values. It adds operations, and (x - y)*(x -
// y) has digits that x*x - 2*x*y + y*y loses. Also left out: changing the order of reductions and scans, and regrouping across a view;
// compiler/distribute_sums takes factors out of sums.
#include "compiler/reassociate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/rewrite.h"
#include "compiler/uniform.h"

namespace onepass::compiler {

using namespace ir;

namespace {

using Factors = std::vector<NodeId>;  // sorted, with repetitions

// coefficient * factors / divisors
struct Term {
  NodeId coefficient;  // uniform
  Factors factors, divisors;
};

// A value as the sum of the terms and, if present, of the uniform `bias`. With a cotangent g the value is mul0(g, the sum).
struct Form {
  std::vector<Term> terms;
  NodeId bias = kNoNode;
  NodeId cotangent = kNoNode;

  bool is_uniform() const { return terms.empty() && cotangent == kNoNode; }
  bool is_product() const { return terms.size() == 1 && bias == kNoNode && cotangent == kNoNode; }
};

constexpr std::size_t kMostTerms = 16, kMostFactors = 16;

Factors merged(const Factors& a, const Factors& b) {
  Factors all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}
Factors common(const Factors& a, const Factors& b) {
  Factors both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}
Factors without(const Factors& a, const Factors& b) {
  Factors rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

// ------------------------------------------------------------------------------------------------ the input graph

// Pairs of cotangents. The derivative of mul0(g, d) with respect to d is where(g == 0, 0, mul0(h, g)), which is zero if g or h is zero.
bool is_zero(const Graph& graph, NodeId id) { return graph[id].op == Op::Constant && double_of(graph[id].dtype, graph[id].bits) == 0; }
bool is_pair(const Graph& graph, NodeId id) {
  if (graph[id].op != Op::Where) return false;
  const NodeId is_zero_there = graph.operand(id, 0), product = graph.operand(id, 2);
  return graph[is_zero_there].op == Op::Equal && graph[product].op == Op::Mul0 && is_zero(graph, graph.operand(id, 1)) &&
         is_zero(graph, graph.operand(is_zero_there, 1)) && graph.operand(is_zero_there, 0) == graph.operand(product, 1);
}
// Returns the comparisons and products that only pairs use.
std::vector<bool> inside_of_pairs(const Graph& graph, const std::vector<std::uint32_t>& all_uses) {
  std::vector<std::uint32_t> uses(graph.size(), 0);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (is_pair(graph, id)) ++uses[graph.operand(id, 0)], ++uses[graph.operand(id, 2)];
  std::vector<bool> inside(graph.size(), false);
  for (NodeId id = 0; id < graph.size(); ++id) inside[id] = uses[id] != 0 && uses[id] == all_uses[id];
  return inside;
}

// Regions of arithmetic. Each region has one root, the only value that other regions use; all other users of a node are in its region.
struct Regions {
  std::vector<NodeId> root_of;  // by node; kNoNode: not arithmetic
  // By root: true if sums under a cotangent are written out into each of the sums that use them.
  std::vector<bool> written_out;

  bool writes_out(NodeId id) const { return root_of[id] != kNoNode && written_out[root_of[id]]; }
};

// ------------------------------------------------------------------------------------------------ the output graph

class Reassociation {
 public:
  Reassociation(const Graph& graph, const Regions& regions)
      : graph_(graph),
        regions_(regions),
        uses_(count_uses(graph)),
        out_(graph.empty_copy()),
        uniform_(out_),
        forms_(graph.size()),
        made_(graph.size(), kNoNode),
        local_(graph.size(), kNoNode),
        only_cotangents_(graph.size(), true),
        inside_(inside_of_pairs(graph, uses_)) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const List operands = graph.operands(id);
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (!passes_cotangent(graph[id].op, i) && !(inside_[id] && operands[i] == pair_of(id)))
          only_cotangents_[static_cast<std::size_t>(operands[i])] = false;
    }
    for (NodeId id : graph.outputs) only_cotangents_[id] = false;
  }

  Graph run() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      out_.current_source = graph_.source_of[id];
      out_.current_origin = graph_.origin_of[id] == kNoNode ? kNoNode : made_[graph_.origin_of[id]];
      visit(id);
    }
    for (NodeId id : graph_.outputs) out_.outputs.push_back(node_of(id));
    out_.current_source = 0;
    out_.current_origin = kNoNode;
    return std::move(out_);
  }

 private:
  const Graph& graph_;
  const Regions& regions_;
  const std::vector<std::uint32_t> uses_;
  Graph out_;
  Uniform uniform_;
  std::vector<std::optional<Form>> forms_;  // by node of graph_: for arithmetic on floats
  std::vector<NodeId> made_;                // by node of graph_: its node in out_
  std::vector<NodeId> local_;               // by node of graph_ with a cotangent: the sum without it
  std::vector<bool> only_cotangents_;       // by node of graph_: true if all users pass its cotangent on
  std::vector<bool> inside_;                // by node of graph_: true if used only in pairs of cotangents

  static bool passes_cotangent(Op op, std::size_t operand) {
    return op == Op::Add || op == Op::Sub || op == Op::Neg || (op == Op::Mul0 && operand == 0);
  }

  // ---- pairs of cotangents
  // Returns the inner cotangent of the comparison or the product.
  std::int64_t pair_of(NodeId part) const { return graph_.operand(part, graph_[part].op == Op::Equal ? 0 : 1); }

  Form pair(NodeId id) {
    const NodeId product_of_both = graph_.operand(id, 2), outer = graph_.operand(product_of_both, 0),
                 inner = graph_.operand(product_of_both, 1);
    const auto behind_cotangent = [&](NodeId g) {
      Form form = form_of(g);
      if (form.cotangent != kNoNode) return form;
      return Form{{}, uniform_.constant(graph_[id].dtype, graph_[id].shape, 1), node_of(g)};
    };
    Form h = behind_cotangent(outer), g = behind_cotangent(inner);
    const NodeId of_h = std::exchange(h.cotangent, kNoNode), of_g = std::exchange(g.cotangent, kNoNode);
    Form result = g.is_product() ? multiplied(std::move(h), std::move(g), id) : multiplied(std::move(g), std::move(h), id);
    if (of_h == of_g) {  // once as the cotangent, once as a factor
      result = multiplied(std::move(result), atom(of_g), id);
      result.cotangent = of_g;
      return result;
    }
    const NodeId zero = out_.constant(graph_[id].dtype, graph_[id].shape, 0);
    result.cotangent = out_.add(Op::Where, graph_[id].dtype, graph_[id].shape,
                                {out_.add(Op::Equal, DType::Bool, graph_[id].shape, {of_g, zero}), zero, binary(Op::Mul0, of_h, of_g)});
    return result;
  }

  // ---- nodes of the graph
  void visit(NodeId id) {
    const Node node = graph_[id];
    if (inside_[id] && node.op == Op::Equal) return;
    if (is_float(node.dtype)) {
      if (std::optional<Form> form = arithmetic(id)) {
        forms_[id] = std::move(form);
        return;
      }
      if (made_[id] != kNoNode) return;
    }
    Node copy = node;
    std::vector<std::int64_t> operands;
    bool uniform = node.op == Op::Slot || node.op == Op::Constant || (is_elementwise(node.op) && node.op != Op::Rare);
    for (std::int64_t o : graph_.operands(id)) {
      operands.push_back(node_of(static_cast<NodeId>(o)));
      uniform = uniform && uniform_.is(static_cast<NodeId>(operands.back()));
    }
    if (node.operands) copy.operands = out_.intern(operands);
    const NodeId now = out_.add(copy);
    if (uniform) uniform_.mark(now);
    made_[id] = now;
  }

  /// Returns the node that computes the value, made on its first use as a whole.
  NodeId node_of(NodeId id) {
    if (made_[id] != kNoNode) return made_[id];
    const NodeId g = forms_[id]->cotangent;
    return made_[id] = g == kNoNode ? build(*forms_[id]) : binary(Op::Mul0, g, local_of(id));
  }

  Form atom(NodeId now) {
    if (uniform_.is(now)) return {{}, now};
    return {{Term{uniform_.constant(out_[now].dtype, out_[now].shape, 1), {now}, {}}}, kNoNode};
  }

  /// Returns the value as a sum. A value with several uses is one atom, unless it is simple.
  Form form_of(NodeId id) {
    if (!forms_[id]) return atom(made_[id]);
    const Form& form = *forms_[id];
    if (form.cotangent != kNoNode && uses_[id] > 1) {  // computed once, with or without its cotangent
      if (!only_cotangents_[id]) return atom(node_of(id));
      if (regions_.writes_out(id) && regions_.root_of[id] != id) return form;
      Form shared;
      if (form.terms.size() == 1 && form.bias == kNoNode) {  // the coefficient goes into the sums that use it
        Term unit = form.terms[0];
        if (unit.factors.size() <= 2 && unit.divisors.empty()) return form;  // these sums also take up to two factors
        unit.coefficient = uniform_.constant(graph_[id].dtype, graph_[id].shape, 1);
        shared = scaled(atom(build_product(unit)), form.terms[0].coefficient);
      } else {
        shared = atom(local_of(id));
      }
      shared.cotangent = form.cotangent;
      return shared;
    }
    return uses_[id] <= 1 || is_simple(form) ? form : atom(node_of(id));
  }
  /// True for a multiple of one value or of its square, plus a number. Writing it out again adds no operations.
  static bool is_simple(const Form& form) {
    if (form.cotangent != kNoNode || form.terms.size() > 1) return false;
    if (form.terms.empty()) return true;
    const Factors& factors = form.terms[0].factors;
    const bool square = form.bias == kNoNode && factors.size() == 2 && factors[0] == factors[1];
    return (factors.size() <= 1 || square) && form.terms[0].divisors.empty();
  }

  std::optional<Form> arithmetic(NodeId id) {
    const auto operand = [&](int i) { return form_of(graph_.operand(id, i)); };
    switch (graph_[id].op) {
      case Op::Neg: {  // an operand with other uses is kept
        const NodeId a = graph_.operand(id, 0);
        const bool whole = uses_[a] > 1 && !(forms_[a] && forms_[a]->cotangent != kNoNode);
        return scaled(whole ? atom(node_of(a)) : operand(0), minus_one(id));
      }
      case Op::Add: return sum(operand(0), operand(1));
      case Op::Sub: return sum(operand(0), scaled(operand(1), minus_one(id)));
      case Op::Mul: return product(operand(0), operand(1), id);
      case Op::Square: {
        const Form x = operand(0);
        return product(x, x, id);
      }
      case Op::Div: {
        if (const std::optional<Form> inverse = inverse_of_broadcast(graph_.operand(id, 1))) return product(operand(0), *inverse, id);
        return product(operand(0), inverse_of(operand(1)), id);
      }
      case Op::Reciprocal: return inverse_of(operand(0));
      case Op::Mul0:
        if (const NodeId d = made_[graph_.operand(id, 1)]; d != kNoNode && is_finite_constant(d)) return scaled(operand(0), d);
        return mul0(operand(0), operand(1), graph_.operand(id, 0), id);
      case Op::Where:
        if (is_pair(graph_, id)) return pair(id);
        return std::nullopt;
      default: return std::nullopt;
    }
  }

  NodeId minus_one(NodeId id) { return uniform_.constant(graph_[id].dtype, graph_[id].shape, -1); }
  bool is_finite_constant(NodeId id) const {
    return out_[id].op == Op::Constant && std::isfinite(double_of(out_[id].dtype, out_[id].bits));
  }

  // ---- sums of products
  Form without_cotangent(Form f) { return f.cotangent == kNoNode ? f : atom(build(f)); }

  Form scaled(Form f, NodeId by) {
    if (!is_finite_constant(by)) f = without_cotangent(std::move(f));  // 0 times infinity is not zero
    for (Term& t : f.terms) t.coefficient = uniform_.mul(t.coefficient, by);
    if (f.bias != kNoNode) f.bias = uniform_.mul(f.bias, by);
    return f;
  }

  /// Expresses a multiple of the cotangent as a value with that cotangent.
  static Form behind(NodeId cotangent, Form f) {
    const bool is_it = cotangent != kNoNode && f.is_product() && f.terms[0].divisors.empty() && f.terms[0].factors == Factors{cotangent};
    return is_it ? Form{{}, f.terms[0].coefficient, cotangent} : f;
  }

  Form sum(Form a, Form b) {
    a = behind(b.cotangent, std::move(a));
    b = behind(a.cotangent, std::move(b));
    if (a.cotangent != b.cotangent) a = without_cotangent(std::move(a)), b = without_cotangent(std::move(b));
    if (a.terms.size() + b.terms.size() > kMostTerms) {
      Form& longer = a.terms.size() > b.terms.size() ? a : b;
      const NodeId cotangent = std::exchange(longer.cotangent, kNoNode);
      longer = atom(build(longer));
      longer.cotangent = cotangent;
    }
    for (Term& t : b.terms) {
      const auto like =
          std::find_if(a.terms.begin(), a.terms.end(), [&](const Term& u) { return u.factors == t.factors && u.divisors == t.divisors; });
      if (like == a.terms.end()) a.terms.push_back(std::move(t));
      else like->coefficient = uniform_.add(like->coefficient, t.coefficient);
    }
    a.bias = uniform_.add(a.bias, b.bias);
    return a;
  }

  Form product(Form a, Form b, NodeId id) {
    a = without_cotangent(std::move(a)), b = without_cotangent(std::move(b));
    if (a.is_uniform()) std::swap(a, b);
    if (b.is_uniform()) return scaled(std::move(a), b.bias);
    if (!a.is_product()) std::swap(a, b);
    if (!a.is_product()) a = atom(build(a));
    if (!b.is_product()) {  // uniform factors of the product go into the sum
      b = atom(build(scaled(std::move(b), a.terms[0].coefficient)));
      a.terms[0].coefficient = uniform_.constant(graph_[id].dtype, graph_[id].shape, 1);
    }
    Term &x = a.terms[0], &y = b.terms[0];
    if (x.factors.size() + y.factors.size() > kMostFactors || x.divisors.size() + y.divisors.size() > kMostFactors) {
      b = atom(build(b));
      return product(atom(build(a)), b, id);
    }
    x.coefficient = uniform_.mul(x.coefficient, y.coefficient);
    Factors factors = merged(x.factors, y.factors), divisors = merged(x.divisors, y.divisors);
    x.factors = std::move(factors), x.divisors = std::move(divisors);
    return a;
  }

  Form inverse_of(Form f) {
    f = without_cotangent(std::move(f));
    if (f.is_uniform()) return {{}, uniform_.reciprocal(f.bias)};
    if (!f.is_product()) f = atom(build(f));
    Term& t = f.terms[0];
    std::swap(t.factors, t.divisors);
    t.coefficient = uniform_.is_constant(t.coefficient, 1) ? t.coefficient : uniform_.reciprocal(t.coefficient);
    return f;
  }

  /// Rewrites 1/broadcast(s) as broadcast(1/s), with fewer divisions.
  std::optional<Form> inverse_of_broadcast(NodeId id) {
    const Node node = graph_[id];
    if (node.op != Op::Broadcast || uniform_.is(made_[id])) return std::nullopt;
    const NodeId narrow = out_.operand(made_[id], 0);
    const NodeId inverse = out_.add(Op::Reciprocal, node.dtype, out_[narrow].shape, {narrow});
    return atom(out_.add(Op::Broadcast, node.dtype, out_[made_[id]].shape, {inverse}));
  }

  // ---- mul0: a zero cotangent gives zero, whatever the regrouping
  Form mul0(Form g, Form d, NodeId cotangent, NodeId id) {
    d = without_cotangent(std::move(d));
    if (g.cotangent == kNoNode) {
      d.cotangent = node_of(cotangent);
      return d;
    }
    const NodeId outer = std::exchange(g.cotangent, kNoNode);
    Form both = multiplied(std::move(g), std::move(d), id);
    both.cotangent = outer;
    return both;
  }

  /// Returns the product of the values under a cotangent. If sums are written out, it is a sum, term by term.
  Form multiplied(Form a, Form by, NodeId id) {
    if (!regions_.writes_out(id) || a.is_product() || !by.is_product()) return product(std::move(a), std::move(by), id);
    Form all;
    for (Term& t : a.terms) all = sum(std::move(all), product(Form{{std::move(t)}}, by, id));
    return a.bias == kNoNode ? all : sum(std::move(all), scaled(std::move(by), a.bias));
  }

  /// Returns the value that a value with a cotangent has without the cotangent.
  NodeId local_of(NodeId id) {
    if (local_[id] != kNoNode) return local_[id];
    Form plain = *forms_[id];
    plain.cotangent = kNoNode;
    return local_[id] = build(plain);
  }

  // ---- from sums of products to nodes
  NodeId binary(Op op, NodeId a, NodeId b) { return out_.add(op, out_[a].dtype, out_[a].shape, {a, b}); }

  NodeId product_of(const Factors& factors) {  // as a tree: equal halves of a power are one node
    std::vector<NodeId> now(factors.begin(), factors.end());
    while (now.size() > 1) {
      std::vector<NodeId> next;
      for (std::size_t i = 0; i + 1 < now.size(); i += 2) next.push_back(binary(Op::Mul, now[i], now[i + 1]));
      if (now.size() % 2) next.push_back(now.back());
      now = std::move(next);
    }
    return now.empty() ? kNoNode : now[0];
  }

  NodeId build(const Form& form) {
    if (form.cotangent != kNoNode) {
      Form plain = form;
      plain.cotangent = kNoNode;
      return binary(Op::Mul0, form.cotangent, build(plain));
    }
    if (form.terms.empty()) return form.bias;
    if (form.is_product()) return build_product(form.terms[0]);
    if (const std::optional<NodeId> inside = build_factored(form)) return *inside;
    std::vector<NodeId> summands;
    for (const Term& t : form.terms) summands.push_back(build_product(t));
    return sum_of(std::move(summands), form.bias);
  }

  /// Rewrites a*f + b*f + c as (a + b)*f + c. f is the factor of most terms, together with everything that these terms have in common.
  /// Returns nullopt if no two terms share a factor.
  std::optional<NodeId> build_factored(const Form& form) {
    struct Count {
      std::size_t terms = 0, times = 0;
    };
    std::map<NodeId, Count> terms_with;
    for (const Term& t : form.terms)
      for (std::size_t i = 0; i < t.factors.size(); ++i) {
        Count& count = terms_with[t.factors[i]];
        ++count.times, count.terms += i == 0 || t.factors[i] != t.factors[i - 1];
      }
    const auto most = std::ranges::max_element(terms_with, [](const auto& a, const auto& b) {  // ties: fewest repetitions
      return a.second.terms != b.second.terms ? a.second.terms < b.second.terms : a.second.times > b.second.times;
    });
    const bool all_divided = form.bias == kNoNode && !std::empty(common_divisors(form.terms));
    if (!all_divided && (most == terms_with.end() || most->second.terms < 2)) return std::nullopt;
    const auto inside = [&](const Term& t) { return all_divided || std::binary_search(t.factors.begin(), t.factors.end(), most->first); };
    Form group, rest{{}, form.bias};
    for (const Term& t : form.terms) (inside(t) ? group : rest).terms.push_back(t);
    Factors factors = group.terms[0].factors;
    const Factors divisors = common_divisors(group.terms);
    for (const Term& t : group.terms) factors = common(factors, t.factors);
    std::vector<Term> left = std::exchange(group.terms, {});
    for (Term& t : left) {
      t.factors = without(t.factors, factors), t.divisors = without(t.divisors, divisors);
      if (t.factors.empty() && t.divisors.empty()) group.bias = uniform_.add(group.bias, t.coefficient);
      else group.terms.push_back(std::move(t));
    }
    NodeId total = build(group);
    if (rest.terms.empty() && rest.bias == kNoNode) {
      if (NodeId f = product_of(factors); f != kNoNode) total = binary(Op::Mul, total, f);
      if (NodeId d = product_of(divisors); d != kNoNode) total = binary(Op::Div, total, d);
      return total;
    }
    factors.push_back(total);
    std::sort(factors.begin(), factors.end());
    rest.terms.push_back({uniform_.constant(out_[total].dtype, out_[total].shape, 1), std::move(factors), divisors});
    return build(rest);
  }
  static Factors common_divisors(const std::vector<Term>& terms) {
    Factors divisors = terms[0].divisors;
    for (const Term& t : terms) divisors = common(divisors, t.divisors);
    return divisors;
  }

  /// Builds a tree, with the uniform number first. A term of factor -1 is subtracted.
  NodeId sum_of(std::vector<NodeId> now, NodeId bias) {
    if (bias != kNoNode && !uniform_.is_constant(bias, 0)) {
      if (out_[now[0]].op == Op::Neg) now[0] = binary(Op::Sub, bias, out_.operand(now[0], 0));
      else now[0] = binary(Op::Add, now[0], bias);
    }
    while (now.size() > 1) {
      std::vector<NodeId> next;
      for (std::size_t i = 0; i + 1 < now.size(); i += 2) next.push_back(added(now[i], now[i + 1]));
      if (now.size() % 2) next.push_back(now.back());
      now = std::move(next);
    }
    return now[0];
  }
  NodeId added(NodeId a, NodeId b) {
    if (out_[b].op == Op::Neg) return binary(Op::Sub, a, out_.operand(b, 0));
    if (out_[a].op == Op::Neg) return binary(Op::Sub, b, out_.operand(a, 0));
    return binary(Op::Add, a, b);
  }

  NodeId build_product(const Term& t) {
    NodeId value = product_of(t.factors);
    const NodeId divisor = product_of(t.divisors);
    const bool one = uniform_.is_constant(t.coefficient, 1), minus = uniform_.is_constant(t.coefficient, -1);
    if (value == kNoNode) {  // a number divided by the divisors
      if (divisor == kNoNode) return t.coefficient;
      if (one) return out_.add(Op::Reciprocal, out_[divisor].dtype, out_[divisor].shape, {divisor});
      return binary(Op::Div, t.coefficient, divisor);
    }
    if (!one && !minus) value = binary(Op::Mul, value, t.coefficient);
    if (divisor != kNoNode) value = binary(Op::Div, value, divisor);
    return minus ? out_.add(Op::Neg, out_[value].dtype, out_[value].shape, {value}) : value;
  }
};

// ------------------------------------------------------------------------------------------------ the choice of sums to write out

std::vector<bool> uniform_nodes(const Graph& graph) {
  std::vector<bool> uniform(graph.size(), false);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Op op = graph[id].op;
    uniform[id] = op == Op::Slot || op == Op::Constant || (is_elementwise(op) && op != Op::Rare);
    for (const std::int64_t o : graph.operands(id)) uniform[id] = uniform[id] && uniform[static_cast<std::size_t>(o)];
  }
  return uniform;
}

/// Returns the number of operations for one element; a division counts as eight.
int operations(const Graph& graph, bool contract) {
  const std::vector<bool> uniform = uniform_nodes(graph);
  const std::vector<std::uint32_t> uses = count_uses(graph);
  const auto is_product = [&](NodeId id) { return graph[id].op == Op::Mul && uses[id] == 1 && !uniform[id]; };
  int count = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Op op = graph[id].op;
    if (uniform[id] || is_source(op)) continue;
    count += op == Op::Div || op == Op::Reciprocal ? 8 : 1;
    const bool adds = op == Op::Add || op == Op::Sub;
    if (contract && adds && (is_product(graph.operand(id, 0)) || is_product(graph.operand(id, 1)))) --count;
  }
  return count;
}

/// Finds the regions and tries both forms of each region that has sums to write out.
class Choice {
 public:
  Choice(const Graph& graph, bool contract)
      : graph_(graph),
        contract_(contract),
        uses_(count_uses(graph)),
        inside_(inside_of_pairs(graph, uses_)),
        uniform_(uniform_nodes(graph)) {
    regions_.root_of.assign(graph.size(), kNoNode);
    regions_.written_out.assign(graph.size(), false);
  }

  Regions regions() {
    find();
    find_simple();
    std::vector<std::vector<NodeId>> members(graph_.size());
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (const NodeId root = regions_.root_of[id]; root != kNoNode) members[root].push_back(id);
    for (NodeId root = 0; root < graph_.size(); ++root) {
      const bool shares = std::ranges::any_of(members[root], [&](NodeId id) { return id != root && uses_[id] > 1; });
      const bool derives = std::ranges::any_of(members[root], [&](NodeId id) { return graph_[id].op == Op::Mul0; });
      if (shares && derives) regions_.written_out[root] = takes_less_written_out(members[root]);
    }
    return std::move(regions_);
  }

 private:
  const Graph& graph_;
  const bool contract_;
  const std::vector<std::uint32_t> uses_;
  const std::vector<bool> inside_, uniform_;
  struct Simple {  // a multiple of `base`, or of its square, plus a number
    NodeId base;
    bool squared, biased;
    int steps = 0;  // operations from `base`
  };
  static constexpr int kMostSteps = 8;
  std::vector<Simple> simple_;  // by node
  Regions regions_;

  bool is_arithmetic(NodeId id) const {
    if (uniform_[id]) return false;
    if (inside_[id]) return true;
    switch (graph_[id].op) {
      case Op::Neg:
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Square:
      case Op::Div:
      case Op::Reciprocal:
      case Op::Mul0: return is_float(graph_[id].dtype);
      default: return is_pair(graph_, id);
    }
  }

  void find() {
    std::vector<NodeId>& root_of = regions_.root_of;
    std::vector<bool> by_itself(graph_.size(), false);  // outputs, and operands of two regions or of other operators
    for (const NodeId id : graph_.outputs) by_itself[id] = true;
    for (NodeId id = graph_.size(); id-- > 0;) {
      const bool arithmetic = is_arithmetic(id);
      if (!arithmetic) root_of[id] = kNoNode;
      else if (by_itself[id] || root_of[id] == kNoNode) root_of[id] = id;
      for (const std::int64_t o : graph_.operands(id)) {
        const auto operand = static_cast<NodeId>(o);
        if (!arithmetic || (root_of[operand] != kNoNode && root_of[operand] != root_of[id])) by_itself[operand] = true;
        else root_of[operand] = root_of[id];
      }
    }
  }

  void find_simple() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      simple_.push_back({id, false, false});
      if (!is_arithmetic(id) || inside_[id]) continue;
      const Op op = graph_[id].op;
      const bool two = graph_.operands(id).size() == 2;
      const Simple a = simple_[graph_.operand(id, 0)], b = two ? simple_[graph_.operand(id, 1)] : a;
      const bool a_uniform = two && uniform_[a.base], b_uniform = two && uniform_[b.base];
      const Simple& other = a_uniform ? b : a;
      const int steps = std::max(a.steps, b.steps) + 1;
      if (steps > kMostSteps) continue;
      const bool multiple = op == Op::Neg || (op == Op::Mul && (a_uniform || b_uniform));
      const bool power = (op == Op::Mul || op == Op::Square) && a.base == b.base && !a.squared && !a.biased && !b.squared && !b.biased;
      if (multiple) simple_[id] = {other.base, other.squared, other.biased, steps};
      else if ((op == Op::Add || op == Op::Sub) && (a_uniform || b_uniform) && !other.squared)
        simple_[id] = {other.base, false, true, steps};
      else if (power) simple_[id] = {a.base, true, false, steps};
    }
  }

  /// Builds a graph from only these nodes and compares both forms. Other operands become inputs or, if uniform, scalar parameters. Simple
  /// multiples are copied, because form_of takes them apart.
  bool takes_less_written_out(const std::vector<NodeId>& members) const {
    Graph region;
    std::map<NodeId, NodeId> now;
    const auto copy = [&](NodeId id, const auto& operand_of) {
      Node node = graph_[id];
      std::vector<std::int64_t> operands;
      for (const std::int64_t o : graph_.operands(id)) operands.push_back(operand_of(static_cast<NodeId>(o), operand_of));
      node.operands = region.intern(operands);
      node.shape = region.intern(graph_.shape(id));
      node.attributes = 0;
      return now[id] = region.add(node);
    };
    const auto operand_of = [&](NodeId id, const auto& again) -> NodeId {
      if (const auto at = now.find(id); at != now.end()) return at->second;
      const Node node = graph_[id];
      const ListId shape = region.intern(graph_.shape(id));
      if (node.op == Op::Constant) return now[id] = region.constant(node.dtype, shape, node.bits);
      if (uniform_[id]) return now[id] = region.add_slot(node.dtype, 0, shape);
      if (simple_[id].base != id) return copy(id, again);
      return now[id] = region.add_input(std::to_string(id), node.dtype, graph_.shape(id));
    };
    for (const NodeId id : members) copy(id, operand_of);
    region.outputs = {now[members.back()]};
    region.output_names = {"root"};
    Regions one{std::vector<NodeId>(region.size(), kNoNode), std::vector<bool>(region.size(), false)};
    for (const NodeId id : members) one.root_of[now[id]] = region.outputs[0];
    const int as_it_is = operations(prune(Reassociation(region, one).run()), contract_);
    one.written_out[region.outputs[0]] = true;
    return operations(prune(Reassociation(region, one).run()), contract_) < as_it_is;
  }
};

}  // namespace

Graph reassociate(const Graph& graph, bool contract) { return Reassociation(graph, Choice(graph, contract).regions()).run(); }

}  // namespace onepass::compiler
