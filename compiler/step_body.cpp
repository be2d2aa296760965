// See step_body.h.
#include "compiler/step_body.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "compiler/rewrite.h"
#include "onepass/error.h"

namespace onepass::compiler {

using namespace ir;

namespace {

using Ref = StepRef;

class Former {
 public:
  Former(const Graph& graph, const StepBody& body) : graph_(graph), body_(body) {}

  std::optional<StepForm> form() {
    if (body_.states.empty() || body_.states.size() != body_.next.size()) return {};
    form_.elements = graph_.elements(body_.states[0]);
    for (std::size_t i = body_.arrays.size(); i-- > 0;) at_[body_.arrays[i]] = {Ref::Kind::Array, i};
    for (const NodeId id : body_.captures) at_[id] = {Ref::Kind::Capture, capture(id)};
    for (std::size_t i = body_.states.size(); i-- > 0;) at_[body_.states[i]] = {Ref::Kind::State, i};
    for (const NodeId id : body_.states)
      if (!is_usable(id)) return {};
    find_inside();
    for (const NodeId id : inside_)
      if (!add(id)) return {};
    return finish() ? std::optional(std::move(form_)) : std::nullopt;
  }

 private:
  const Graph& graph_;
  const StepBody& body_;
  StepForm form_;
  std::unordered_map<NodeId, Ref> at_;
  std::vector<NodeId> inside_;                // by id: nodes of the step, without states and arrays
  std::vector<std::vector<Ref>> operands_;    // by line
  std::vector<std::size_t> direct_, viewed_;  // arrays of the body that are read so
  std::unordered_map<NodeId, std::size_t> array_of_;

  bool is_usable(NodeId id) const { return graph_.elements(id) == form_.elements; }

  std::size_t capture(NodeId id) {
    const auto it = std::ranges::find(form_.captures, id);
    if (it != form_.captures.end()) return static_cast<std::size_t>(it - form_.captures.begin());
    form_.captures.push_back(id);
    return form_.captures.size() - 1;
  }

  void find_inside() {
    NodeId since = kNoNode;  // earlier nodes depend on none of these
    for (const auto& [id, ref] : at_) since = std::min(since, id);
    std::vector<NodeId> open = body_.next;
    open.insert(open.end(), body_.results.begin(), body_.results.end());
    std::unordered_set<NodeId> seen;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (id < since || at_.contains(id) || !seen.insert(id).second) continue;
      inside_.push_back(id);
      for (const std::int64_t o : graph_.operands(id)) open.push_back(static_cast<NodeId>(o));
    }
    std::ranges::sort(inside_);
  }

  // Adds a node of the step. Returns false if it cannot be a line. Nodes without an entry in `at_` are captures.
  bool add(NodeId id) {
    const Node node = graph_[id];
    const List operands = graph_.operands(id);
    bool varies = false, of_arrays = true;
    for (const std::int64_t o : operands) {
      const auto it = at_.find(static_cast<NodeId>(o));
      varies |= it != at_.end() && graph_[it->first].op != Op::Constant;
      of_arrays &= it != at_.end() && (it->second.kind == Ref::Kind::Array || it->second.kind == Ref::Kind::View);
    }
    if (!varies && (id < body_.own || !is_elementwise(node.op) || node.attributes != 0 || !is_usable(id))) return true;
    const auto first = static_cast<NodeId>(operands[0]);
    const bool keeps = graph_.elements(id) == graph_.elements(first) && node.dtype == graph_[first].dtype &&
                       (node.op == Op::Reshape || node.op == Op::Broadcast || (node.op == Op::Identity && node.attributes == 0));
    if (keeps) {
      at_[id] = at_.at(first);
      return true;
    }
    if (ir::is_view(node.op) && of_arrays) {
      at_[id] = {Ref::Kind::View, id};
      return true;
    }
    if (!is_elementwise(node.op) || node.attributes != 0 || operands.size() > 3 || !is_usable(id)) return false;
    std::vector<Ref> refs;
    for (const std::int64_t o : operands) {
      const std::optional<Ref> ref = value(static_cast<NodeId>(o));
      if (!ref) return false;
      refs.push_back(*ref);
    }
    return line({node.op, node.dtype, 0, {StepLine::kNone, StepLine::kNone, StepLine::kNone}}, id, std::move(refs));
  }

  bool line(const StepLine& line, NodeId id, std::vector<Ref> refs) {
    at_[id] = {Ref::Kind::Line, form_.steps.lines.size()};
    form_.steps.lines.push_back(line);
    operands_.push_back(std::move(refs));
    if (line.op != Op::Constant) form_.computed.push_back(id);
    return true;
  }

  std::optional<Ref> value(NodeId id) {
    if (!is_usable(id)) return {};
    const auto it = at_.find(id);
    if (it == at_.end()) {
      if (graph_[id].op != Op::Constant) return Ref{Ref::Kind::Capture, capture(id)};
      line({Op::Constant, graph_[id].dtype, graph_[id].bits, {StepLine::kNone, StepLine::kNone, StepLine::kNone}}, id, {});
      return at_.at(id);
    }
    if (it->second.kind == Ref::Kind::Array) return array(body_.arrays[it->second.index], it->second.index, direct_);
    if (it->second.kind != Ref::Kind::View) return it->second;
    NodeId base = static_cast<NodeId>(it->second.index);
    while (at_.at(base).kind != Ref::Kind::Array || !std::ranges::count(body_.arrays, base)) base = graph_.operand(base, 0);
    return array(static_cast<NodeId>(it->second.index), at_.at(base).index, viewed_);
  }

  Ref array(NodeId id, std::size_t of, std::vector<std::size_t>& how) {
    how.push_back(of);
    const auto [it, fresh] = array_of_.try_emplace(id, form_.arrays.size());
    if (fresh) {
      form_.arrays.push_back(id);
      std::vector<std::int64_t>& views = form_.views.emplace_back();
      for (NodeId at = id; at != body_.arrays[of]; at = graph_.operand(at, 0))
        views.insert(views.end(), {static_cast<std::int64_t>(graph_[at].op), graph_[at].shape, graph_[at].attributes});
      views.push_back(static_cast<std::int64_t>(of));
    }
    return {Ref::Kind::Array, it->second};
  }

  bool finish() {
    std::vector<Ref> next, results;
    for (std::size_t i = 0; i < body_.next.size(); ++i) {
      const std::optional<Ref> ref = value(body_.next[i]);
      if (!ref || graph_[body_.next[i]].dtype != graph_[body_.states[i]].dtype) return false;
      next.push_back(*ref);
    }
    for (const NodeId id : body_.results) {
      const std::optional<Ref> ref = value(id);
      if (!ref) return false;
      results.push_back(*ref);
    }
    for (const std::size_t a : direct_)
      if (std::ranges::count(viewed_, a)) return false;
    Steps& s = form_.steps;
    s.states = static_cast<std::int64_t>(body_.states.size());
    s.arrays = static_cast<std::int64_t>(form_.arrays.size());
    s.captures = static_cast<std::int64_t>(form_.captures.size());
    const auto number = [&](const Ref& ref) { return number_of(s, ref); };
    for (std::size_t i = 0; i < s.lines.size(); ++i)
      for (std::size_t k = 0; k < operands_[i].size(); ++k) s.lines[i].operands[k] = number(operands_[i][k]);
    for (const Ref& ref : next) s.next.push_back(number(ref));
    for (const Ref& ref : results) s.results.push_back(number(ref));
    return true;
  }
};

// Returns the attributes of a `steps` node without its result index. They are equal for all results of the same steps.
std::vector<std::int64_t> shared_attributes(const Graph& graph, NodeId id) {
  const List attributes = graph.attributes(id);
  std::vector<std::int64_t> shared(attributes.begin(), attributes.end());
  shared[0] = 0;
  return shared;
}

NodeId slice_of_step(Graph& graph, NodeId x, std::int64_t step) {
  const List shape = graph.shape(x);
  const std::int64_t elements = shape[1];
  const NodeId row = graph.add(Op::Slice, graph[x].dtype, graph.intern({1, elements}), {x}, std::vector<std::int64_t>{step, 0, 1, 1});
  return graph.add(Op::Reshape, graph[x].dtype, graph.intern({elements}), {row});
}

}  // namespace

std::int64_t number_of(const Steps& steps, const StepRef& ref) {
  const auto index = static_cast<std::int64_t>(ref.index);
  switch (ref.kind) {
    case StepRef::Kind::State: return index;
    case StepRef::Kind::Array: return steps.states + index;
    case StepRef::Kind::Capture: return steps.states + steps.arrays + index;
    default: return steps.operands() + index;
  }
}

std::optional<StepForm> form_of(const Graph& graph, const StepBody& body) { return Former(graph, body).form(); }

bool is_same_expression(const Graph& graph, NodeId a, NodeId b, const std::function<bool(std::uint32_t, std::uint32_t)>& is_same_number) {
  constexpr std::size_t kMost = 1000;
  std::vector<std::pair<NodeId, NodeId>> open = {{a, b}};
  for (std::size_t steps = 0; !open.empty(); ++steps) {
    const auto [p, q] = open.back();
    open.pop_back();
    if (p == q) continue;
    const Node x = graph[p], y = graph[q];
    const List of_x = graph.operands(p), of_y = graph.operands(q);
    if (steps == kMost || x.op != y.op || x.dtype != y.dtype || x.shape != y.shape || x.attributes != y.attributes ||
        of_x.size() != of_y.size() || x.op == Op::Input)
      return false;
    if (x.op == Op::Slot ? !is_same_number(static_cast<std::uint32_t>(x.bits), static_cast<std::uint32_t>(y.bits)) : x.bits != y.bits)
      return false;
    for (std::size_t i = 0; i < of_x.size(); ++i) open.emplace_back(static_cast<NodeId>(of_x[i]), static_cast<NodeId>(of_y[i]));
  }
  return true;
}

bool is_alike(const StepForm& a, const StepForm& b, const std::function<bool(NodeId, NodeId)>& is_same) {
  return a.elements == b.elements && a.captures.size() == b.captures.size() && a.views == b.views &&
         attributes_of(a.steps) == attributes_of(b.steps) && std::ranges::equal(a.captures, b.captures, is_same);
}

NodeId in_shape(Graph& graph, NodeId x, ListId shape) {
  if (graph[x].shape == shape) return x;
  if (graph[x].op == Op::Slot) return graph.slot_node(static_cast<std::uint32_t>(graph[x].bits), shape);
  return graph.add(Op::Reshape, graph[x].dtype, shape, {x});
}

std::vector<NodeId> add_steps(Graph& graph, const Steps& steps, std::int64_t elements, std::span<const NodeId> operands) {
  Steps s = steps;
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_array = std::cmp_greater_equal(i, s.states) && std::cmp_less(i, s.states + s.arrays);
    const std::int64_t of = graph.elements(operands[i]) / (is_array ? s.count : 1);
    ids.push_back(in_shape(graph, operands[i], is_array ? graph.intern({s.count, of}) : graph.intern({of})));
  }
  const ListId list = graph.intern(ids);
  const std::vector<DType> types = types_of(graph, graph.list(list), s);
  std::vector<NodeId> made;
  for (s.which = 0; s.which < s.states + static_cast<std::int64_t>(s.results.size()); ++s.which) {
    const ListId shape = s.is_last() ? graph.intern({elements}) : graph.intern({s.count, elements});
    made.push_back(graph.add(Node{Op::Steps, types[static_cast<std::size_t>(s.value())], shape, list, graph.intern(attributes_of(s))}));
  }
  return made;
}

void add_lines(Graph& graph, const Steps& steps, ListId shape, std::vector<NodeId>& values) {
  for (const StepLine& line : steps.lines) {
    if (line.op == Op::Constant) {
      values.push_back(graph.constant(line.dtype, shape, line.bits));
      continue;
    }
    std::vector<std::int64_t> operands;
    for (std::size_t k = 0; k < info(line.op).arity; ++k) operands.push_back(values[static_cast<std::size_t>(line.operands[k])]);
    values.push_back(graph.add(Node{line.op, line.dtype, shape, graph.intern(operands)}));
  }
}

std::vector<std::int64_t> key_of_loop(const Graph& graph, NodeId id) {
  const List operands = graph.operands(id), attributes = graph.attributes(id);
  std::vector<std::int64_t> key(operands.begin(), operands.end());
  key.insert(key.end(), attributes.begin() + 1, attributes.end());
  return key;
}

NodeId other_result(Graph& graph, NodeId id, std::int64_t which) {
  Steps s = steps_of(graph, id);
  const std::int64_t elements = graph.shape(id).back();
  s.which = which;
  const DType type = types_of(graph, graph.operands(id), s)[static_cast<std::size_t>(s.value())];
  const ListId shape = s.is_last() ? graph.intern({elements}) : graph.intern({s.count, elements});
  return graph.add(Node{Op::Steps, type, shape, graph[id].operands, graph.intern(attributes_of(s))});
}

Graph graph_of_step(const Graph& graph, NodeId id, const Steps& steps) {
  Graph step;
  std::vector<NodeId> values;
  for (const std::int64_t o : graph.operands(id))
    values.push_back(step.add_input(fmt::format("v{}", values.size()), graph[static_cast<NodeId>(o)].dtype, {}));
  add_lines(step, steps, 0, values);
  for (const std::vector<std::int64_t>* const list : {&steps.next, &steps.results})
    for (const std::int64_t v : *list) step.outputs.push_back(values[static_cast<std::size_t>(v)]);
  return step;
}

Steps with_lines_of(const Graph& step, const Steps& steps) {
  StepBody body;
  const auto inputs = [&](std::int64_t from, std::int64_t n) {
    std::vector<NodeId> ids;
    for (std::int64_t i = from; i < from + n; ++i) ids.push_back(step.inputs[static_cast<std::size_t>(i)].node);
    return ids;
  };
  body.states = inputs(0, steps.states);
  body.arrays = inputs(steps.states, steps.arrays);
  body.captures = inputs(steps.states + steps.arrays, steps.captures);
  const auto last = step.outputs.begin() + steps.states;
  body.next.assign(step.outputs.begin(), last);
  body.results.assign(last, step.outputs.end());
  std::optional<StepForm> form = form_of(step, body);
  if (!form) throw InternalError("steps: a pass has made a step that is not elementwise");
  Steps made = steps;
  // The operands stay, also those that no line reads any more.
  const auto number = [&](std::int64_t v) {
    const Steps& f = form->steps;
    if (v == StepLine::kNone || v < f.states) return v;
    if (v < f.states + f.arrays) {
      const NodeId id = form->arrays[static_cast<std::size_t>(v - f.states)];
      return steps.states + (std::ranges::find(body.arrays, id) - body.arrays.begin());
    }
    return v < f.operands() ? v - f.arrays + steps.arrays : v - f.operands() + steps.operands();
  };
  made.lines = form->steps.lines, made.next = form->steps.next, made.results = form->steps.results;
  for (StepLine& line : made.lines)
    for (std::int64_t& o : line.operands) o = number(o);
  for (std::vector<std::int64_t>* const list : {&made.next, &made.results})
    for (std::int64_t& v : *list) v = number(v);
  return made;
}

Graph rewrite_steps(Graph graph, const std::function<Graph(Graph)>& pass) {
  bool any = false;
  for (NodeId id = 0; id < graph.size() && !any; ++id) any = graph[id].op == Op::Steps;
  if (!any) return graph;
  std::map<std::pair<std::vector<std::int64_t>, std::vector<DType>>, Steps> done;  // by attributes and types of the operands
  return rewrite(graph, [&](Graph& out, Node node, NodeId id) -> NodeId {
    if (node.op != Op::Steps) return out.add(node);
    std::vector<DType> types;
    for (const std::int64_t o : graph.operands(id)) types.push_back(graph[static_cast<NodeId>(o)].dtype);
    const auto [it, fresh] = done.try_emplace({shared_attributes(graph, id), types});
    if (fresh) {
      const Steps steps = steps_of(graph, id);
      it->second = with_lines_of(pass(graph_of_step(graph, id, steps)), steps);
    }
    it->second.which = graph.attributes(id)[0];
    node.attributes = out.intern(attributes_of(it->second));
    return out.add(node);
  });
}

Graph write_out_steps(Graph graph, std::size_t most) {
  bool any = false;
  for (NodeId id = 0; id < graph.size() && !any; ++id) any = graph[id].op == Op::Steps;
  if (!any) return graph;
  using Results = std::vector<std::vector<NodeId>>;  // by result: the node of the last state, or of each step
  std::map<std::vector<std::int64_t>, Results> done;
  return prune(rewrite(graph, [&](Graph& out, const Node& node, NodeId id) -> NodeId {
    if (node.op != Op::Steps) return out.add(node);
    const Steps s = steps_of(graph, id);
    const std::int64_t elements = graph.shape(id).back();
    const auto [it, fresh] = done.try_emplace(key_of_loop(graph, id));
    Results& results = it->second;
    if (fresh) {
      if (static_cast<std::size_t>(s.count) * (s.lines.size() + 1) > most)
        throw UnsupportedError(
            fmt::format("a loop of {} steps of {} operators is written out here, which would take more than {} nodes, the "
                        "limit `max_nodes`. Take fewer steps in one call",
                        s.count, s.lines.size(), most));
      results.resize(static_cast<std::size_t>(s.states) + s.results.size());
      const std::vector<std::int64_t> operands(out.list(node.operands).begin(), out.list(node.operands).end());
      const ListId all = out.intern({elements});
      const auto spread = [&](NodeId x) { return out.elements(x) == elements ? x : out.add(Op::Broadcast, out[x].dtype, all, {x}); };
      std::vector<NodeId> values(operands.size());
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (std::cmp_less(i, s.states) || std::cmp_greater_equal(i, s.states + s.arrays))
          values[i] = spread(static_cast<NodeId>(operands[i]));
      for (std::int64_t t = 0; t < s.count; ++t) {
        for (std::size_t i = static_cast<std::size_t>(s.states); std::cmp_less(i, s.states + s.arrays); ++i)
          values[i] = spread(slice_of_step(out, static_cast<NodeId>(operands[i]), s.place_of(t)));
        values.resize(operands.size());
        add_lines(out, s, all, values);
        for (std::size_t r = 0; r < s.results.size(); ++r)
          results[static_cast<std::size_t>(s.states) + r].push_back(values[static_cast<std::size_t>(s.results[r])]);
        std::vector<NodeId> next;
        for (const std::int64_t n : s.next) next.push_back(values[static_cast<std::size_t>(n)]);
        std::ranges::copy(next, values.begin());
      }
      for (std::size_t i = 0; std::cmp_less(i, s.states); ++i) results[i] = {values[i]};
    }
    const std::vector<NodeId>& mine = results[static_cast<std::size_t>(s.which)];
    if (s.is_last()) return mine[0];
    std::vector<std::int64_t> rows, boxes;
    for (std::int64_t t = 0; t < s.count; ++t) {
      rows.push_back(in_shape(out, mine[static_cast<std::size_t>(t)], out.intern({1, elements})));
      boxes.insert(boxes.end(), {s.place_of(t), 0, 1, 1});
    }
    return out.add(Node{Op::Piecewise, node.dtype, out.intern({s.count, elements}), out.intern(rows), out.intern(boxes)});
  }));
}

}  // namespace onepass::compiler
