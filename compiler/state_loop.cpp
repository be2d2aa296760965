// A loop with state, step by step: see state_loop.h.
#include "compiler/state_loop.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace onepass::compiler {

namespace {

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
  if (steps > static_cast<std::int64_t>(r_.limits.max_nodes))
    throw ValueError(
        fmt::format("{}: {} steps are more than {}, the limit `max_nodes`; each step is recorded. Take fewer steps in one call", name(),
                    steps, r_.limits.max_nodes));
  if (steps == 0 && kind_ == Kind::Scan)
    throw ValueError("scan: the number of steps is 0, so the results of the steps have no shape and no type. Take at least one step");
  steps_ = steps;
  reverse_ = reverse;
  finding_types_ = steps > 0 && std::any_of(state_.begin(), state_.end(), [](const Value& v) { return v.is_literal; });
}

bool StateLoop::next() {
  if (done_ == steps_) return false;
  if (done_ == 2) {  // the second step is the first step that shares no nodes with another step
    const std::size_t each = r_.graph.size() - nodes_, most = r_.limits.max_nodes;
    if (r_.graph.size() + each * static_cast<std::size_t>(steps_ - done_) > most)
      throw ValueError(fmt::format(
          "{}: {} steps of {} nodes are more than {} nodes, the limit `max_nodes`; each step is recorded. Take fewer steps in one call",
          name(), steps_, each, most));
  }
  nodes_ = r_.graph.size();
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
  if (done_ == 0) results_.assign(results.size(), std::vector<Value>(static_cast<std::size_t>(steps_)));
  if (results.size() != results_.size())
    throw ValueError(fmt::format("scan: the first step has {} results, but step {} has {}; their number must not change", results_.size(),
                                 done_, results.size()));
  const auto first = static_cast<std::size_t>(reverse_ ? steps_ - 1 : 0);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Value made = r_.node_of(results[i]);
    results_[i][static_cast<std::size_t>(place())] = made;
    const Value& model = results_[i][first];
    if (r_.dtype(made) != r_.dtype(model) || !std::ranges::equal(r_.shape(made), r_.shape(model)))
      throw ShapeError(fmt::format("scan: result {} is {} in the first step and {} in step {}; its type and shape must not change", i,
                                   r_.describe(model), r_.describe(made), done_));
  }
}

std::vector<Value> StateLoop::results() {
  std::vector<Value> stacked;
  for (const std::vector<Value>& of_steps : results_) stacked.push_back(r_.stack(of_steps, 0));
  return stacked;
}

}  // namespace onepass::compiler
