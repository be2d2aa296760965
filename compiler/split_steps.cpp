// See split_steps.h.
//
//   h' = w + a*x*x + b*h; y = log(h') + x*x/h'     the recurrence is h'; y is computed from h' and x of all steps, in vectors
//   h' = h*exp(x)                                  exp(x) of all steps is an array of the recurrence
#include "compiler/split_steps.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/rewrite.h"
#include "compiler/step_body.h"

namespace onepass::compiler {

using namespace ir;

namespace {

// One loop: all its `steps` nodes.
class Split {
 public:
  Split(Graph& out, const Node& node, const Steps& steps, std::int64_t elements, const std::vector<bool>& is_read)
      : out_(out), s_(steps), elements_(elements), first_line_(steps.operands()) {
    for (const std::int64_t o : out.list(node.operands)) operands_.push_back(single(static_cast<NodeId>(o)));
    find_varying();
    find_needed(is_read);
    choose();
    make(is_read);
  }

  NodeId result(std::size_t which) const { return results_[which]; }

 private:
  enum class Where : std::uint8_t { Nowhere, Once, Before, Inside, After };
  Graph& out_;
  const Steps& s_;
  const std::int64_t elements_, first_line_;
  std::vector<NodeId> operands_, results_;
  std::vector<bool> by_state_, by_array_;  // by value: depends on a state, on an array
  std::vector<bool> recurrent_, read_;     // by value: the next states need it; a result needs it
  std::vector<bool> live_;                 // by state
  std::vector<Where> where_;               // by value
  std::vector<NodeId> all_;                // by value: its values in all steps [count, elements], made when they are needed
  std::vector<NodeId> once_;               // by value that is the same in all steps: [elements]
  std::vector<std::int64_t> stored_;       // values that the new loop stores

  std::size_t size() const { return static_cast<std::size_t>(s_.values()); }
  const StepLine& line(std::size_t v) const { return s_.lines[v - static_cast<std::size_t>(first_line_)]; }
  bool is_line(std::size_t v) const { return std::cmp_greater_equal(v, first_line_); }
  bool is_state(std::size_t v) const { return std::cmp_less(v, s_.states); }
  bool is_array(std::size_t v) const { return !is_state(v) && std::cmp_less(v, s_.states + s_.arrays); }
  // Returns the operand. If its many elements are equal, returns one of them.
  NodeId single(NodeId x) {
    if (elements_ <= kFewInStep || out_.shape(x).size() != 1) return x;
    NodeId from = x;
    while (out_.elements(from) != 1 && (out_[from].op == Op::Reshape || out_[from].op == Op::Broadcast)) from = out_.operand(from, 0);
    if (out_.elements(from) == 1 || out_[from].op == Op::Slot) return in_shape(out_, from, out_.intern({1}));
    return out_[from].op == Op::Constant ? out_.constant(out_[from].dtype, out_.intern({1}), out_[from].bits) : x;
  }
  template <class F> void each_operand(std::size_t v, F f) const {
    if (!is_line(v)) return;
    for (const std::int64_t o : line(v).operands)
      if (o != StepLine::kNone) f(static_cast<std::size_t>(o));
  }

  void find_varying() {
    by_state_.assign(size(), false), by_array_.assign(size(), false);
    for (std::size_t v = 0; v < size(); ++v) {
      by_state_[v] = is_state(v), by_array_[v] = is_array(v);
      each_operand(v, [&](std::size_t o) { by_state_[v] = by_state_[v] || by_state_[o], by_array_[v] = by_array_[v] || by_array_[o]; });
    }
  }

  void mark(std::size_t v, std::vector<bool>& marked, std::vector<std::size_t>& states) const {
    std::vector<std::size_t> open = {v};
    while (!open.empty()) {
      const std::size_t at = open.back();
      open.pop_back();
      if (marked[at]) continue;
      marked[at] = true;
      if (is_state(at)) states.push_back(at);
      each_operand(at, [&](std::size_t o) { open.push_back(o); });
    }
  }

  // Finds the values that results need and that next states need. Only states that one of them needs are kept.
  void find_needed(const std::vector<bool>& is_read) {
    recurrent_.assign(size(), false), read_.assign(size(), false), live_.assign(static_cast<std::size_t>(s_.states), false);
    std::vector<std::size_t> states;
    for (std::size_t r = 0; r < s_.results.size(); ++r)
      if (is_read[static_cast<std::size_t>(s_.states) + r]) mark(static_cast<std::size_t>(s_.results[r]), read_, states);
    for (std::size_t i = 0; is_state(i); ++i)
      if (is_read[i]) states.push_back(i);
    while (!states.empty()) {
      const std::size_t i = states.back();
      states.pop_back();
      if (live_[i]) continue;
      live_[i] = true;
      mark(static_cast<std::size_t>(s_.next[i]), recurrent_, states);
    }
  }

  // True for an operator that is worth computing for all steps in vectors if the states have few elements.
  bool is_costly(std::size_t v) const {
    const Op op = line(v).op;
    return info(op).kind == OpKind::Expanded || op == Op::Div || op == Op::Sqrt;
  }

  void choose() {
    where_.assign(size(), Where::Nowhere);
    const bool few = elements_ <= kFewInStep;
    std::vector<bool> before(size(), false);  // computed before the loop, with all that it needs
    for (std::size_t v = size(); few && v-- > static_cast<std::size_t>(first_line_);) {
      if (!recurrent_[v] || by_state_[v] || !by_array_[v]) continue;
      if (is_costly(v)) before[v] = true;
      if (before[v]) each_operand(v, [&](std::size_t o) { before[o] = before[o] || (is_line(o) && by_array_[o]); });
    }
    for (std::size_t v = static_cast<std::size_t>(first_line_); v < size(); ++v) {
      const bool is_constant = line(v).op == Op::Constant;
      if (!recurrent_[v] && !read_[v]) continue;
      if (!is_constant && !by_state_[v] && !by_array_[v]) where_[v] = Where::Once;
      else if (recurrent_[v]) where_[v] = before[v] ? Where::Before : Where::Inside;
      else where_[v] = Where::After;
    }
    if (few) return;
    // With many elements, values after the recurrence stay inside, unless the loop then stores fewer arrays.
    std::vector<bool> crosses(size(), false);
    std::int64_t stored = 0, results = 0;
    for (std::size_t v = 0; v < size(); ++v)
      if (where_[v] == Where::After)
        each_operand(v, [&](std::size_t o) {
          if (by_state_[o] && where_[o] != Where::After && !crosses[o]) crosses[o] = true, ++stored;
        });
    for (const std::int64_t r : s_.results) {
      const auto v = static_cast<std::size_t>(r);
      if (where_[v] == Where::After && by_state_[v]) ++results;
    }
    if (stored <= results) return;
    for (Where& w : where_)
      if (w == Where::After) w = Where::Inside;
  }

  bool is_inside(std::size_t v) const { return is_line(v) ? where_[v] == Where::Inside : is_state(v); }

  NodeId add(Op op, DType type, List shape, List operands, List attributes = {}, std::uint64_t bits = 0) {
    return out_.add(Node{op, type, out_.intern(shape), out_.intern(operands), out_.intern(attributes), bits});
  }

  // Returns the value in all steps. Values inside the loop are its results.
  NodeId all(std::size_t v) {
    if (all_[v] != kNoNode) return all_[v];
    const std::array shape{s_.count, elements_};
    if (!is_line(v)) {
      const NodeId x = operands_[v];
      const std::int64_t of = out_.elements(x) / (is_array(v) ? s_.count : 1);
      const NodeId rows = is_array(v) ? x : in_shape(out_, x, out_.intern({1, of}));
      all_[v] = of == elements_ && is_array(v) ? rows : add(Op::Broadcast, out_[x].dtype, shape, std::array<std::int64_t, 1>{rows});
      if (out_[x].op == Op::Slot) all_[v] = out_.slot_node(static_cast<std::uint32_t>(out_[x].bits), out_.intern(shape));
      return all_[v];
    }
    const StepLine& l = line(v);
    if (where_[v] == Where::Once)
      return all_[v] =
                 add(Op::Broadcast, l.dtype, shape, std::array<std::int64_t, 1>{in_shape(out_, once(v), out_.intern({1, elements_}))});
    if (l.op == Op::Constant) return all_[v] = out_.constant(l.dtype, out_.intern(shape), l.bits);
    std::vector<std::int64_t> in;
    each_operand(v, [&](std::size_t o) { in.push_back(all(o)); });  // these are made already: see outside()
    return all_[v] = add(l.op, l.dtype, shape, in);
  }

  // Returns the value, which is the same in all steps: [elements].
  NodeId once(std::size_t v) {
    if (once_[v] != kNoNode) return once_[v];
    const std::array shape{elements_};
    if (!is_line(v)) {
      const NodeId x = operands_[v];
      if (out_[x].op == Op::Slot) return once_[v] = out_.slot_node(static_cast<std::uint32_t>(out_[x].bits), out_.intern(shape));
      return once_[v] = out_.elements(x) == elements_ ? x : add(Op::Broadcast, out_[x].dtype, shape, std::array<std::int64_t, 1>{x});
    }
    const StepLine& l = line(v);
    if (l.op == Op::Constant) return once_[v] = out_.constant(l.dtype, out_.intern(shape), l.bits);
    std::vector<std::int64_t> in;
    each_operand(v, [&](std::size_t o) { in.push_back(once(o)); });  // lines are made already: see make()
    return once_[v] = add(l.op, l.dtype, shape, in);
  }

  void make(const std::vector<bool>& is_read) {
    all_.assign(size(), kNoNode), once_.assign(size(), kNoNode);
    results_.assign(is_read.size(), kNoNode);
    for (std::size_t v = 0; v < size(); ++v) {
      if (where_[v] == Where::Once) once(v);
      if (where_[v] == Where::Before) outside(v);
    }
    // The new loop stores the values inside that results and lines outside read.
    std::vector<bool> stores(size(), false);
    for (std::size_t v = 0; v < size(); ++v)
      if (where_[v] == Where::After) each_operand(v, [&](std::size_t o) { stores[o] = stores[o] || (is_inside(o) && by_state_[o]); });
    for (std::size_t r = 0; r < s_.results.size(); ++r)
      if (const auto v = static_cast<std::size_t>(s_.results[r]); is_read[static_cast<std::size_t>(s_.states) + r] && is_inside(v))
        stores[v] = true;
    for (std::size_t v = 0; v < size(); ++v)
      if (stores[v]) stored_.push_back(static_cast<std::int64_t>(v));
    make_loop(is_read);
    for (std::size_t v = 0; v < size(); ++v)
      if (where_[v] == Where::After) outside(v);
    for (std::size_t r = 0; r < s_.results.size(); ++r)
      if (is_read[static_cast<std::size_t>(s_.states) + r])
        results_[static_cast<std::size_t>(s_.states) + r] = outside(static_cast<std::size_t>(s_.results[r]));
  }

  // Returns the value in all steps. Lines inside that depend on no state are computed again.
  NodeId outside(std::size_t v) {
    std::vector<std::size_t> open = {v};
    while (!open.empty()) {
      const std::size_t at = open.back();
      const std::size_t before = open.size();
      if (all_[at] == kNoNode)
        each_operand(at, [&](std::size_t o) {
          if (all_[o] == kNoNode && is_line(o) && where_[at] != Where::Once) open.push_back(o);
        });
      if (open.size() != before) continue;
      open.pop_back();
      all(at);
    }
    return all_[v];
  }

  void make_loop(const std::vector<bool>& is_read) {
    if (std::ranges::find(live_, true) == live_.end()) return;
    Steps made;
    made.count = s_.count, made.reverse = s_.reverse;
    std::vector<std::int64_t> number(size(), StepLine::kNone);
    std::vector<NodeId> states, arrays, captures;
    std::vector<std::size_t> of_states;
    std::vector<bool> used(size(), false);
    for (const std::int64_t v : stored_) used[static_cast<std::size_t>(v)] = true;
    for (std::size_t v = 0; v < size(); ++v) {
      if (is_state(v) && live_[v]) used[static_cast<std::size_t>(s_.next[v])] = true;
      if (is_line(v) && where_[v] == Where::Inside) each_operand(v, [&](std::size_t o) { used[o] = true; });
    }
    for (std::size_t v = 0; v < size(); ++v) {
      if (is_state(v) ? live_[v] : is_array(v) && used[v]) {
        number[v] = static_cast<std::int64_t>(states.size() + arrays.size());
        if (is_state(v)) states.push_back(operands_[v]), of_states.push_back(v);
        else arrays.push_back(operands_[v]);
      }
    }
    for (std::size_t v = 0; v < size(); ++v)
      if (where_[v] == Where::Before && used[v]) {
        number[v] = static_cast<std::int64_t>(states.size() + arrays.size());
        arrays.push_back(all_[v]);
      }
    for (std::size_t v = static_cast<std::size_t>(s_.states + s_.arrays); v < size(); ++v)
      if (used[v] && (!is_line(v) || where_[v] == Where::Once)) {
        number[v] = static_cast<std::int64_t>(states.size() + arrays.size() + captures.size());
        captures.push_back(is_line(v) ? once_[v] : operands_[v]);
      }
    made.states = static_cast<std::int64_t>(states.size());
    made.arrays = static_cast<std::int64_t>(arrays.size());
    made.captures = static_cast<std::int64_t>(captures.size());
    for (std::size_t v = static_cast<std::size_t>(first_line_); v < size(); ++v) {
      if (where_[v] != Where::Inside) continue;
      StepLine copy = line(v);
      for (std::int64_t& o : copy.operands)
        if (o != StepLine::kNone) o = number[static_cast<std::size_t>(o)];
      number[v] = made.values();
      made.lines.push_back(copy);
    }
    for (const std::size_t i : of_states) made.next.push_back(number[static_cast<std::size_t>(s_.next[i])]);
    for (const std::int64_t v : stored_) made.results.push_back(number[static_cast<std::size_t>(v)]);
    std::vector<NodeId> operands = states;
    operands.insert(operands.end(), arrays.begin(), arrays.end());
    operands.insert(operands.end(), captures.begin(), captures.end());
    const std::vector<NodeId> nodes = add_steps(out_, made, elements_, operands);
    for (std::size_t k = 0; k < of_states.size(); ++k)
      if (is_read[of_states[k]]) results_[of_states[k]] = nodes[k];
    for (std::size_t k = 0; k < stored_.size(); ++k) all_[static_cast<std::size_t>(stored_[k])] = nodes[of_states.size() + k];
  }
};

}  // namespace

Graph split_steps(Graph graph) {
  std::map<std::vector<std::int64_t>, std::vector<bool>> loops;  // by operands and attributes: which results are read
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph[id].op != Op::Steps) continue;
    const Steps s = steps_of(graph, id);
    std::vector<bool>& read = loops[key_of_loop(graph, id)];
    read.resize(static_cast<std::size_t>(s.states) + s.results.size());
    read[static_cast<std::size_t>(s.which)] = true;
  }
  if (loops.empty()) return graph;
  std::map<std::vector<std::int64_t>, std::vector<NodeId>> made;  // by the same keys: the new results
  return rewrite(graph, [&](Graph& out, const Node& node, NodeId id) -> NodeId {
    if (node.op != Op::Steps) return out.add(node);
    std::vector<std::int64_t> key = key_of_loop(graph, id);
    const std::vector<bool>& read = loops.at(key);
    std::vector<NodeId>& results = made[std::move(key)];
    const Steps s = steps_of(graph, id);
    if (results.empty()) {
      const Split split(out, node, s, graph.shape(id).back(), read);
      for (std::size_t i = 0; i < read.size(); ++i) results.push_back(split.result(i));
    }
    return results[static_cast<std::size_t>(s.which)];
  });
}

}  // namespace onepass::compiler
