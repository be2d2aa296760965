// Derivatives in the language: grad, vjp, forward mode, Jacobians, and functions with a custom derivative. The recorded nodes are ordinary
// nodes; compiler/differentiate makes them.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "compiler/batch.h"
#include "compiler/differentiate.h"
#include "compiler/record.h"

namespace onepass::compiler {

using ir::Expr;
using ir::Graph;
using ir::List;
using ir::Node;

namespace {

constexpr std::string_view kBy = "the argument to differentiate with respect to";

}  // namespace

// ------------------------------------------------------------------------------------------------ argument checks

NodeId Recorder::differentiable(const Value& x, std::string_view name, std::string_view what) const {
  if (x.is_literal) throw DTypeError(fmt::format("{}: {} is a literal, which has no derivative. Pass an Array", name, what));
  if (!is_float(dtype(x)))
    throw DTypeError(fmt::format("{}: {} is {}; integers and bool have no derivative. Cast it to a float type first{}", name, what,
                                 describe(x), what == kBy ? ", or let the function capture it" : ""));
  return x.node;
}

// Returns a cotangent or tangent as a node, with the type and shape of its value `of`.
NodeId Recorder::beside(const Value& v, const Value& of, std::string_view name, std::string_view what) {
  if (v.is_literal) {
    if (!shape(of).empty())
      throw ShapeError(fmt::format("{}: the {} is a literal, but the value is {}; the shapes must be equal", name, what, describe(of)));
    return slot_for(v.literal, dtype(of), graph[of.node].shape, name);
  }
  if (graph[v.node].shape != graph[of.node].shape)
    throw ShapeError(fmt::format("{}: the {} {} and the value {} have different shapes; the shapes must be equal", name, what, describe(v),
                                 describe(of)));
  if (!is_float(dtype(v))) throw DTypeError(fmt::format("{}: the {} {} must have a float type", name, what, describe(v)));
  return convert(v.node, dtype(of));
}

Recorder::Asked Recorder::asked(std::string_view name, std::span<const Value> ys, std::span<const Value> xs, Given given,
                                std::span<const Value> values) {
  const bool tangents = given == Given::Tangents;
  const std::span<const Value> beside_what = tangents ? xs : ys;
  const std::string_view what = tangents ? "tangent" : "cotangent";
  const auto counted = [](std::size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); };
  if (values.size() != beside_what.size())
    throw Error(
        fmt::format("{}: {} for {}", name, counted(values.size(), what), counted(beside_what.size(), tangents ? "argument" : "value")));
  Asked all;
  for (const Value& y : ys) all.of.push_back(differentiable(y, name, "the value to differentiate"));
  for (const Value& x : xs) all.by.push_back(differentiable(x, name, kBy));
  for (std::size_t i = 0; i < values.size(); ++i) all.given.push_back(beside(values[i], beside_what[i], name, what));
  return all;
}

std::vector<NodeId> Recorder::derivatives(std::span<const NodeId> ys, std::span<const NodeId> cotangents, std::span<const NodeId> xs) {
  const std::vector<NodeId> nodes = differentiate(graph, ys, cotangents, xs, {}, rules_);
  make(graph.size() - 1);  // checks the node limit
  return nodes;
}

// ------------------------------------------------------------------------------------------------ reverse mode

std::vector<Value> Recorder::vjp(std::span<const Value> ys, std::span<const Value> xs, std::span<const Value> dys, std::string_view name) {
  const Asked asked = this->asked(name, ys, xs, Given::Cotangents, dys);
  std::vector<Value> out;
  for (const NodeId id : derivatives(asked.of, asked.given, asked.by)) {
    if (graph[id].op == Op::Constant && graph[id].bits == 0) {
      const Value x = xs[out.size()];
      std::string note = fmt::format("{}: {} does not depend on {}, or only through operators without a derivative; the gradient is zero",
                                     name, ys.size() == 1 ? describe(ys[0]) : "no value", describe(x));
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
    }
    out.push_back(make(id));
  }
  return out;
}

std::vector<Value> Recorder::vjp(Value y, std::span<const Value> xs, Value dy) {
  return vjp(std::span<const Value>(&y, 1), xs, std::span<const Value>(&dy, 1));
}

std::vector<Value> Recorder::grad(Value loss, std::span<const Value> xs, std::string_view name) {
  differentiable(loss, name, "the loss");
  if (!shape(loss).empty())
    throw ShapeError(fmt::format("{}: the loss must be a scalar, not {}. Use vjp with a cotangent, or sum it", name, describe(loss)));
  const Value one{false, graph.constant(dtype(loss), graph[loss.node].shape, ir::bits_of(dtype(loss), 1.0)), {}};
  return vjp(std::span<const Value>(&loss, 1), xs, std::span<const Value>(&one, 1), name);
}

// ------------------------------------------------------------------------------------------------ forward mode

// Returns placeholders for arbitrary cotangents. In forward mode the final result does not read them, since Jᵀu is linear in u. Dedicated
// scalar parameters keep them unequal to all other nodes. The Identity hides that they are equal for all elements.
std::vector<NodeId> Recorder::placeholders(std::span<const NodeId> like) {
  std::vector<NodeId> result;
  for (const NodeId id : like) {
    const Node node = graph[id];
    result.push_back(graph.add(Op::Identity, node.dtype, node.shape, {graph.add_slot(node.dtype, 0, node.shape)}));
  }
  return result;
}

std::vector<Value> Recorder::jvp(std::span<const Value> ys, std::span<const Value> xs, std::span<const Value> dxs, std::string_view name) {
  const Asked asked = this->asked(name, ys, xs, Given::Tangents, dxs);
  const std::vector<NodeId> us = placeholders(asked.of);
  const std::vector<NodeId> backward = derivatives(asked.of, us, asked.by);
  std::vector<Value> out;
  for (const NodeId id : derivatives(backward, asked.given, us)) out.push_back(make(id));
  return out;
}

// ------------------------------------------------------------------------------------------------ Jacobians

// Returns [n, like's shape] for the n elements of `like`: row i is 1 at element i and 0 elsewhere.
NodeId Recorder::unit_rows(NodeId like) {
  const std::int64_t n = graph.elements(like);
  const DType type = graph[like].dtype;
  const Shape square{n, n};
  check_shape("jacobian", square, limits);
  const ir::ListId to = graph.intern(square);
  const std::int64_t zero[] = {0}, one[] = {1};
  const Expr row{graph, graph.add(Op::Iota, DType::I64, to, {}, zero)}, column{graph, graph.add(Op::Iota, DType::I64, to, {}, one)};
  const Expr ones{graph, graph.constant(type, to, ir::bits_of(type, 1.0))};
  Shape shape(graph.shape(like).begin(), graph.shape(like).end());
  shape.insert(shape.begin(), n);
  check_shape("jacobian", shape, limits);
  return graph.add(Op::Reshape, type, graph.intern(shape), {ir::where(row == column, ones, 0.0).id()});
}

Value Recorder::jacobian(Value y, Value x, JacobianBy by) {
  const NodeId of[] = {differentiable(y, "jacobian", "the value to differentiate")};
  const NodeId at[] = {differentiable(x, "jacobian", kBy)};
  Shape shape(graph.shape(y.node).begin(), graph.shape(y.node).end());
  const std::size_t rank = shape.size();
  shape.insert(shape.end(), graph.shape(x.node).begin(), graph.shape(x.node).end());
  check_shape("jacobian", shape, limits);
  const bool by_rows = by == JacobianBy::Rows || (by == JacobianBy::Fewer && graph.elements(y.node) <= graph.elements(x.node));
  const std::vector<NodeId> us = placeholders(of);
  const std::vector<NodeId> backward = derivatives(of, us, at);
  if (by_rows) {
    const NodeId rows = unit_rows(y.node);
    return reshape(make(batch(graph, backward, std::vector{Batched{us[0], rows}}, limits, "jacobian")[0]), shape);
  }
  const std::vector<NodeId> vs = placeholders(at);
  const std::vector<NodeId> forward = derivatives(backward, vs, us);
  const NodeId columns = unit_rows(x.node);
  // [elements of x, y's shape]: the first axis moves after y's axes
  const Value batched = make(batch(graph, forward, std::vector{Batched{vs[0], columns}}, limits, "jacobian")[0]);
  std::vector<std::int64_t> axes(rank + 1, 0);
  std::iota(axes.begin(), axes.end() - 1, 1);
  return reshape(transpose(batched, axes), shape);
}

// ------------------------------------------------------------------------------------------------ maps

// An element is a placeholder. mapped() repeats the nodes that the function records from it for all elements.
std::vector<Value> Recorder::map_elements(std::span<const Value> xs, std::span<const std::optional<std::int64_t>> axes,
                                          std::vector<Value>& all) {
  std::vector<Value> elements;
  const Value* first = nullptr;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const Value& x = xs[i];
    const std::optional<std::int64_t> axis = axes[i];
    all.push_back(x);
    elements.push_back(x);
    if (x.is_literal || !axis) continue;
    if (shape(x).empty())
      throw ShapeError(
          fmt::format("vmap: {} has no axis to map over. Pass none as its axis to use the same value for all elements", describe(x)));
    const std::size_t at = axis_of("vmap", x, *axis);
    if (first && shape(x)[at] != n)
      throw ShapeError(fmt::format("vmap: axis {} of {} has {} elements, but the mapped axis of {} has {}; the lengths must be equal", at,
                                   describe(x), shape(x)[at], describe(*first), n));
    if (!first) first = &x, n = shape(x)[at];
    std::vector<std::int64_t> order = {static_cast<std::int64_t>(at)};
    Shape element;
    for (std::size_t a = 0; a < shape(x).size(); ++a)
      if (a != at) order.push_back(static_cast<std::int64_t>(a)), element.push_back(shape(x)[a]);
    const ir::ListId of = graph.intern(element);
    const DType type = dtype(x);
    all.back() = at == 0 ? x : transpose(x, order);
    elements.back() = make(graph.add(Op::Identity, type, of, {graph.add_slot(type, 0, of)}));
  }
  if (!first) throw ShapeError("vmap: no argument is mapped. Give at least one argument an axis");
  return elements;
}

std::vector<Value> Recorder::mapped(std::span<const Value> ys, std::span<const Value> elements, std::span<const Value> all) {
  std::vector<Batched> operands;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (elements[i].node != all[i].node) operands.push_back({elements[i].node, all[i].node});
  std::vector<NodeId> of;
  for (const Value& y : ys) of.push_back(node_of(y).node);
  std::vector<Value> out;
  for (const NodeId id : batch(graph, of, operands, limits, "vmap")) out.push_back(make(id));
  return out;
}

// ------------------------------------------------------------------------------------------------ custom rules

// Returns the results as Identity nodes of the rule. They have consecutive ids, because their attributes are unique.
std::vector<NodeId> Recorder::add_rule(std::vector<NodeId> arguments, std::span<const NodeId> results, DerivativeRule::Backward backward) {
  const auto index = static_cast<std::int64_t>(rules_.size());
  std::vector<NodeId> guarded;
  for (std::size_t k = 0; k < results.size(); ++k) {
    const std::int64_t attributes[] = {index, static_cast<std::int64_t>(k)};
    guarded.push_back(graph.add(Op::Identity, graph[results[k]].dtype, graph[results[k]].shape, {results[k]}, attributes));
  }
  rules_.push_back(std::make_shared<DerivativeRule>(DerivativeRule{std::move(arguments), guarded, std::move(backward)}));
  return guarded;
}

std::vector<Value> Recorder::with_derivative(std::span<const Value> arguments, std::span<const Value> results, Backward backward) {
  if (results.empty()) throw Error("custom_vjp: the function has no results");
  std::vector<NodeId> of;
  for (const Value& y : results) of.push_back(differentiable(y, "custom_vjp", "a result"));
  // Literals and integers are arguments of the backward function, but not of the rule.
  std::vector<std::size_t> places;
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_literal || !is_float(dtype(arguments[i]))) continue;
    places.push_back(i);
    nodes.push_back(arguments[i].node);
  }
  auto rule = [this, backward = std::move(backward), places, all = std::vector<Value>(arguments.begin(), arguments.end())](
                  std::span<const NodeId> of_rule, std::span<const NodeId> ys, std::span<const NodeId> cotangents) {
    std::vector<Value> xs = all, values, gs;
    for (std::size_t i = 0; i < places.size(); ++i) xs[places[i]].node = of_rule[i];
    for (const NodeId id : ys) values.push_back(make(id));
    for (const NodeId id : cotangents) gs.push_back(make(id));
    const std::vector<Value> made = backward(xs, values, gs);
    if (made.size() != xs.size())
      throw Error(fmt::format("custom_vjp: the backward function returned {} gradient{} for {} argument{}", made.size(),
                              made.size() == 1 ? "" : "s", xs.size(), xs.size() == 1 ? "" : "s"));
    std::vector<NodeId> result;
    for (const std::size_t i : places) {
      const Value& x = xs[i];
      Value g = made[i];
      if (g.is_literal) g = full(Shape(shape(x).begin(), shape(x).end()), g, dtype(x), "custom_vjp");
      if (graph[g.node].shape != graph[x.node].shape || !is_float(dtype(g)))
        throw ShapeError(
            fmt::format("custom_vjp: the backward function returned {} as gradient {}, whose argument is {}; the shapes must be equal, and "
                        "the gradient must have a float type",
                        describe(g), i, describe(x)));
      result.push_back(convert(g.node, dtype(x)));
    }
    return result;
  };
  std::vector<Value> out;
  for (const NodeId id : add_rule(std::move(nodes), of, std::move(rule))) out.push_back(make(id));
  return out;
}

std::vector<Value> Recorder::computed_again(NodeId first, std::span<const Value> results) {
  std::vector<NodeId> of;
  for (const Value& y : results)
    if (!y.is_literal && is_float(dtype(y))) of.push_back(y.node);
  // Finds the nodes recorded since `first` that the results need, and their operands from before.
  std::vector<bool> needed(graph.size(), false);
  for (const NodeId y : of) needed[y] = true;
  std::vector<NodeId> inside, arguments;
  for (NodeId id = graph.size(); id-- > 0;) {
    if (!needed[id] || (ir::is_source(graph[id].op) && graph[id].op != Op::Input)) continue;
    if (id < first || graph[id].op == Op::Input) {
      arguments.push_back(id);
      continue;
    }
    inside.push_back(id);
    for (const std::int64_t o : graph.operands(id)) needed[static_cast<std::size_t>(o)] = true;
  }
  std::ranges::reverse(inside);
  std::ranges::reverse(arguments);
  if (of.empty()) return {results.begin(), results.end()};

  auto rule = [this, inside, arguments, of](std::span<const NodeId> of_rule, std::span<const NodeId>, std::span<const NodeId> cotangents) {
    std::unordered_map<NodeId, NodeId> again;
    std::vector<NodeId> xs;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Node node = graph[of_rule[i]];
      const NodeId apart = graph.add(Op::Identity, node.dtype, node.shape, {of_rule[i]});
      again[arguments[i]] = apart;
      if (!is_float(node.dtype)) continue;
      xs.push_back(apart);
      places.push_back(i);
    }
    const auto now = [&](NodeId id) {
      const auto it = again.find(id);
      return it == again.end() ? id : it->second;
    };
    for (const NodeId id : inside) {
      if (again.contains(id)) continue;  // a result of a nested rule, made with its first result
      Node node = graph[id];
      const List attributes = graph.attributes(id);
      if (node.op == Op::Identity && !attributes.empty()) {
        const std::shared_ptr<const DerivativeRule> within = rules_[static_cast<std::size_t>(attributes[0])];
        std::vector<NodeId> its_arguments, its_results;
        for (const NodeId a : within->arguments) its_arguments.push_back(now(a));
        for (const NodeId y : within->results) its_results.push_back(now(graph.operand(y, 0)));
        const std::vector<NodeId> made = add_rule(std::move(its_arguments), its_results, within->backward);
        for (std::size_t k = 0; k < made.size(); ++k) again[within->results[k]] = made[k];
        continue;
      }
      std::vector<std::int64_t> operands;
      for (const std::int64_t o : graph.operands(id)) operands.push_back(now(static_cast<NodeId>(o)));
      node.operands = graph.intern(operands);
      again[id] = graph.add(node);
    }
    std::vector<NodeId> ys;
    for (const NodeId id : of) ys.push_back(now(id));
    const std::vector<NodeId> made = differentiate(graph, ys, cotangents, xs, {}, rules_);
    std::vector<NodeId> result(arguments.size(), ir::kNoNode);
    for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = made[i];
    return result;
  };
  const std::vector<NodeId> guarded = add_rule(arguments, of, std::move(rule));
  std::vector<Value> out(results.begin(), results.end());
  for (std::size_t i = 0, k = 0; i < out.size(); ++i)
    if (!out[i].is_literal && is_float(dtype(out[i]))) out[i] = make(guarded[k++]);
  return out;
}

}  // namespace onepass::compiler
