// A loop with state, step by step: see state_loop.h.
#include "compiler/state_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "compiler/batch.h"

namespace onepass::compiler {

namespace {

constexpr std::int64_t kRecordedSteps = 3;  // of a loop that becomes one node

bool stretches_to(std::span<const std::int64_t> shape, std::span<const std::int64_t> to) {
  if (shape.size() > to.size()) return false;
  const std::size_t more = to.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 && shape[i] != to[more + i]) return false;
  return true;
}

}  // namespace

StateLoop::StateLoop(Recorder& recorder, Kind kind, std::vector<Value> init) : r_(recorder), kind_(kind), state_(std::move(init)) {
  if (state_.empty()) throw ValueError(fmt::format("{}: there is no state; the initial state must have an array or a number", name()));
}

std::string_view StateLoop::name() const { return kNames[static_cast<std::size_t>(kind_)]; }

std::string StateLoop::state_text(std::size_t i) const { return state_.size() == 1 ? "the state" : fmt::format("state {}", i); }

void StateLoop::over(std::span<const Value> xs, bool reverse) {
  if (xs.empty()) throw ValueError(fmt::format("{}: neither xs nor a number of steps is given. Pass one of them", name()));
  for (const Value& x : xs)
    if (x.is_literal || r_.shape(x).empty())
      throw ShapeError(
          fmt::format("{}: the loop reads xs step by step along axis 0, which {} does not have. Let the function use it without passing it "
                      "as one of the xs",
                      name(), r_.describe(x)));
  for (const Value& x : xs)
    if (r_.shape(x)[0] != r_.shape(xs[0])[0])
      throw ShapeError(fmt::format("{}: the xs have {} and {} steps along axis 0, {} and {}; the lengths must be equal", name(),
                                   r_.shape(xs[0])[0], r_.shape(x)[0], r_.describe(xs[0]), r_.describe(x)));
  xs_.assign(xs.begin(), xs.end());
  begin(r_.shape(xs_[0])[0], reverse);
}

void StateLoop::over(std::int64_t steps, bool reverse) {
  if (steps < 0) throw ValueError(fmt::format("{}: the number of steps is {}; it must not be negative", name(), steps));
  begin(steps, reverse);
  indices_ = kind_ == Kind::Scan || kind_ == Kind::Fold;
}

void StateLoop::begin(std::int64_t steps, bool reverse) {
  if (steps == 0 && kind_ == Kind::Scan)
    throw ValueError("scan: the number of steps is 0, so the results of the steps have no shape and no type. Take at least one step");
  steps_ = steps;
  reverse_ = reverse;
  finding_types_ = steps > 0 && std::any_of(state_.begin(), state_.end(), [](const Value& v) { return v.is_literal; });
}

bool StateLoop::next() {
  if (done_ == steps_) return false;
  if (done_ == kRecordedSteps) {  // the steps after the first share no nodes with other steps
    const std::size_t each = r_.graph.size() - nodes_, most = r_.limits.max_nodes;
    if (std::cmp_greater(steps_, most))
      throw ValueError(
          fmt::format("{}: {} steps are more than {}, the limit `max_nodes`; each step is recorded. Take fewer steps in one call", name(),
                      steps_, most));
    if (r_.graph.size() + each * static_cast<std::size_t>(steps_ - done_) > most)
      throw ValueError(fmt::format(
          "{}: {} steps of {} nodes are more than {} nodes, the limit `max_nodes`; each step is recorded. Take fewer steps in one call",
          name(), steps_, each, most));
  }
  nodes_ = r_.graph.size();
  if (done_ == 0) init_ = state_;
  before_ = state_;
  going_before_ = going_;
  element_.clear();
  const Index at{.kind = Index::Kind::Integer, .at = place(), .start = {}, .stop = {}, .step = {}};
  for (const Value& x : xs_) element_.push_back(r_.index(x, {&at, 1}));
  if (indices_) element_.push_back(r_.index(r_.iota({steps_}, 0, DType::I32), {&at, 1}));
  return true;
}

void StateLoop::condition(Value going) {
  if (finding_types_) return;
  if (r_.dtype(going) != DType::Bool)
    throw DTypeError(
        fmt::format("while_loop: the condition is {}; it must be bool, such as the result of a comparison", r_.describe(going)));
  going = r_.node_of(going);
  for (std::size_t i = 0; i < state_.size(); ++i)
    if (!stretches_to(r_.shape(going), r_.shape(state_[i])))
      throw ShapeError(fmt::format(
          "while_loop: the condition {} does not broadcast to {}, {}. Use one value for all elements, such as any(…), or one value "
          "for each element",
          r_.describe(going), state_text(i), r_.describe(state_[i])));
  if (done_ > 0 && !std::ranges::equal(r_.shape(going), r_.shape(going_)))
    throw ShapeError(fmt::format("while_loop: the condition is {} in the first step and {} in step {}; its shape must not change",
                                 r_.describe(going_), r_.describe(going), done_));
  going_ = done_ == 0 ? going : r_.elementwise(Op::BitwiseAnd, {going_, going});
}

void StateLoop::step(std::span<const Value> state, std::span<const Value> results) {
  if (state.size() != state_.size())
    throw ValueError(fmt::format("{}: {} state{} before a step, but {} after it; the function must return as many as it takes", name(),
                                 state_.size(), state_.size() == 1 ? "" : "s", state.size()));
  if (finding_types_) return find_types(state);
  std::vector<Value> next;
  for (std::size_t i = 0; i < state.size(); ++i) {
    next.push_back(kept(i, state[i]));
    if (kind_ == Kind::While) next.back() = r_.where(going_, next.back(), state_[i]);
  }
  if (kind_ == Kind::Scan) keep_results(results);
  state_ = std::move(next);
  ++done_;
  const std::int64_t fewest = kind_ == Kind::While ? r_.fewest_while_steps : r_.fewest_loop_steps;
  if (steps_ < std::max(fewest, kRecordedSteps + 1)) return;
  if (done_ == kRecordedSteps - 1) second_ = form(results);
  if (done_ != kRecordedSteps || !second_) return;
  const std::optional<StepForm> third = form(results);
  if (third && is_alike(*second_, *third, [this](NodeId a, NodeId b) { return is_same(a, b); }) && becomes_one_node(*third))
    make_one_node(*third);
}

// ------------------------------------------------------------------------------------------------ loops as one node

// Returns the recorded step as lines. In a while loop, the condition so far is a further state.
std::optional<StepForm> StateLoop::form(std::span<const Value> results) const {
  StepBody body;
  body.own = static_cast<NodeId>(nodes_);
  const auto add = [](const Value& v, std::vector<NodeId>& to) { to.push_back(v.node); };
  for (const Value& v : before_) add(v, body.states);
  for (const Value& v : state_) add(v, body.next);
  if (kind_ == Kind::While) add(going_before_, body.states), add(going_, body.next);
  for (const Value& v : element_) add(v, body.arrays);
  for (std::size_t i = 0; i < results.size(); ++i) add(results_[i].back(), body.results);
  return form_of(r_.graph, body);
}

// True for equal captures. Numbers of the recording are equal if they are so in all calls of its plan.
bool StateLoop::is_same(NodeId a, NodeId b) const {
  return is_same_expression(r_.graph, a, b, [&](std::uint32_t x, std::uint32_t y) {
    const ir::Slot &p = r_.graph.slots[x], &q = r_.graph.slots[y];
    if (r_.numbers.fills(x)) return r_.numbers.fills_equally(x, y);
    return p.dtype == q.dtype && p.bits == q.bits && !r_.numbers.fills(y);
  });
}

// True for a number of the recording in any shape and type: it has no derivative.
bool StateLoop::is_number(NodeId id) const {
  while (ir::is_view(r_.graph[id].op) || r_.graph[id].op == Op::Cast) id = r_.graph.operand(id, 0);
  return ir::is_source(r_.graph[id].op) && r_.graph[id].op != Op::Input;
}

// Sums stay unrolled, because they become reductions. Other loops stay unrolled because their derivative would add its terms in another
// order: steps that share nodes with the step before, initial states that are also captures or other states, captures that are recorded in
// each step, and captures as results.
bool StateLoop::becomes_one_node(const StepForm& form) const {
  const bool fits = std::cmp_less_equal(r_.graph.size() - nodes_, r_.limits.max_nodes / static_cast<std::size_t>(steps_));
  if (!fits) return true;
  std::vector<NodeId> shared;
  std::ranges::set_intersection(second_->computed, form.computed, std::back_inserter(shared));
  if (!shared.empty()) return false;
  for (std::size_t i = 0; i < form.captures.size(); ++i)
    if (form.captures[i] != second_->captures[i] && !is_number(form.captures[i])) return false;
  const ir::Steps& s = form.steps;
  for (const std::int64_t v : s.results)
    if (v >= s.states + s.arrays && v < s.operands()) return false;
  std::vector<NodeId> received;
  for (const Value& v : init_) received.push_back(v.node);
  received.insert(received.end(), form.captures.begin(), form.captures.end());
  for (std::size_t i = 0; i < init_.size(); ++i)
    if (std::ranges::count(received, received[i]) > 1 && !is_number(received[i])) return false;
  bool sums = true;
  for (std::int64_t i = 0; i < s.states; ++i) {
    const std::int64_t next = s.next[static_cast<std::size_t>(i)] - s.operands();
    sums = sums && (next < 0 ? s.next[static_cast<std::size_t>(i)] == i
                             : s.lines[static_cast<std::size_t>(next)].op == Op::Add &&
                                   std::ranges::count(s.lines[static_cast<std::size_t>(next)].operands, i) == 1);
    for (std::size_t l = 0; l < s.lines.size(); ++l)
      sums = sums && (static_cast<std::int64_t>(l) == next || !std::ranges::count(s.lines[l].operands, i));
  }
  return !sums;
}

void StateLoop::make_one_node(const StepForm& form) {
  ir::Graph& g = r_.graph;
  ir::Steps steps = form.steps;
  steps.count = steps_, steps.reverse = reverse_;
  for (std::int64_t i = 0; i < steps.states; ++i) steps.results.push_back(i);  // derivatives read the states before each step
  std::vector<NodeId> operands;
  // Elements of a value. The reshape marks that the step reads the value itself: differentiate.cpp. Equal numbers are one operand.
  std::vector<NodeId> numbers;
  const auto elements_of = [&](NodeId id) {
    if (g[id].op != Op::Slot) return g.add(Op::Reshape, g[id].dtype, g.intern({form.elements}), {id});
    const auto known = std::ranges::find_if(numbers, [&](NodeId other) { return is_same(id, other); });
    if (known != numbers.end()) return *known;
    numbers.push_back(id);
    return id;
  };
  for (const Value& v : init_) operands.push_back(elements_of(v.node));
  if (kind_ == Kind::While) operands.push_back(g.constant(DType::Bool, g[going_.node].shape, 1));
  std::vector<Batched> elements;
  for (std::size_t i = 0; i < element_.size(); ++i) {
    const NodeId all = indices_ ? r_.iota({steps_}, 0, DType::I32).node : xs_[i].node;
    elements.push_back({element_[i].node, all});
  }
  if (!form.arrays.empty())
    for (const NodeId id : batch(g, form.arrays, elements, r_.limits, name())) operands.push_back(id);
  for (const NodeId id : form.captures) operands.push_back(elements_of(id));
  const std::vector<NodeId> made = add_steps(g, steps, form.elements, operands);
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] = r_.make(in_shape(g, made[i], g[init_[i].node].shape));
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const NodeId all = made[static_cast<std::size_t>(steps.states) + i];
    std::vector<std::int64_t> shape = {steps_};
    const ir::List each = g.shape(results_[i][0].node);
    shape.insert(shape.end(), each.begin(), each.end());
    check_shape(name(), shape, r_.limits);
    stacked_.push_back(r_.make(in_shape(g, all, g.intern(shape))));
  }
  done_ = steps_;
}

// Finds the types of numbers in the initial state. A number takes the type of its value after a step. Each pass finds a type or is the last
// pass.
void StateLoop::find_types(std::span<const Value> state) {
  bool found = false, left = false;
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (!state_[i].is_literal) continue;
    if (state[i].is_literal) {
      left = true;
      continue;
    }
    const DType type = r_.dtype(state[i]);
    state_[i] = r_.node_of(state_[i], Recorder::type_beside(state_[i].literal, type));
    found = true;
  }
  finding_types_ = found && left;
  if (finding_types_) return;
  for (std::size_t i = 0; i < state.size(); ++i) {
    // A number that becomes another number has the type that the other number has as an output.
    const bool numbers = state_[i].is_literal && state[i].is_literal;
    state_[i] =
        numbers ? r_.node_of(state_[i], Recorder::type_beside(state_[i].literal, r_.dtype(r_.node_of(state[i])))) : r_.node_of(state_[i]);
  }
}

// Returns the state after a step, which must have the type and shape of the state before it.
Value StateLoop::kept(std::size_t i, const Value& next) {
  const DType type = r_.dtype(state_[i]);
  const bool number = next.is_literal && Recorder::type_beside(next.literal, type) == type;
  const Value made = number ? r_.node_of(next, type) : r_.node_of(next);
  if (r_.dtype(made) != type)
    throw DTypeError(fmt::format("{}: {} is {} before step {} and {} after it; a state must keep its type. Cast the first or the second",
                                 name(), state_text(i), r_.describe(state_[i]), done_, r_.describe(made)));
  if (!std::ranges::equal(r_.shape(made), r_.shape(state_[i])))
    throw ShapeError(
        fmt::format("{}: {} is {} before step {} and {} after it; a state must keep its shape. Begin with a state of that shape", name(),
                    state_text(i), r_.describe(state_[i]), done_, r_.describe(made)));
  return made;
}

void StateLoop::keep_results(std::span<const Value> results) {
  if (done_ == 0) results_.resize(results.size());
  if (results.size() != results_.size())
    throw ValueError(fmt::format("scan: the first step has {} results, but step {} has {}; their number must not change", results_.size(),
                                 done_, results.size()));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Value made = r_.node_of(results[i]);
    results_[i].push_back(made);
    const Value& model = results_[i].front();
    if (r_.dtype(made) != r_.dtype(model) || !std::ranges::equal(r_.shape(made), r_.shape(model)))
      throw ShapeError(fmt::format("scan: result {} is {} in the first step and {} in step {}; its type and shape must not change", i,
                                   r_.describe(model), r_.describe(made), done_));
  }
}

std::vector<Value> StateLoop::results() {
  if (!stacked_.empty()) return stacked_;
  std::vector<Value> stacked;
  for (std::vector<Value>& of_steps : results_) {
    if (reverse_) std::ranges::reverse(of_steps);
    stacked.push_back(r_.stack(of_steps, 0));
  }
  return stacked;
}

}  // namespace onepass::compiler
