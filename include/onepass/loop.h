// Loops with state in a recorded function: scan, fold, iterate and while_loop, as in JAX's lax. A long loop of elementwise steps records
// three of them and runs in one kernel; other loops record each step. Both are differentiated as usual. docs/language.md defines each loop.
// Works under -fno-exceptions -fno-rtti.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onepass/export.h"
#include "onepass/gradient.h"
#include "onepass/nest.h"
#include "onepass/tensor.h"

namespace onepass {
namespace detail {

/// A loop that is being recorded. While next() is true, the caller passes state() and element() to the step function, and its results to
/// step().
class ONEPASS_API StateLoop {
 public:
  enum class Kind : std::uint8_t { Scan, Fold, Iterate, While };
  StateLoop(Kind kind, TensorSpan init, std::source_location where);
  StateLoop(const StateLoop&) = delete;
  StateLoop& operator=(const StateLoop&) = delete;
  ~StateLoop();
  void over(TensorSpan xs, bool reverse);
  void over(std::int64_t steps, bool reverse);
  bool next();
  TensorSpan state() const;
  TensorSpan element() const;
  void condition(Tensor going);
  void step(TensorSpan state, TensorSpan results = {});
  std::vector<Tensor> results();

 private:
  struct Body;  // in runtime/state_loop.cpp
  Body* body_;
};

template <class T> inline constexpr bool kWhole = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T> inline constexpr bool kWhole<Static<T>> = kWhole<T>;
template <class T>
concept State = HasTensors<T> || std::convertible_to<const T&, Operand>;

/// The range of a loop: arrays, or a number of steps.
template <class T>
concept Stepped = kWhole<T> || State<T>;

template <class S> AsTensor<S> as_state(const S& s, std::source_location where) {
  if constexpr (HasTensors<S>) return s;
  else return tensor_of(Operand(s, where));
}

/// The argument of each step: elements of arrays, or the step index.
template <class X> class Elements {
 public:
  static constexpr bool whole = kWhole<X>;
  using Each = AsTensor<X>;
  Elements(StateLoop& loop, const X& xs, bool reverse, std::source_location where) : like_(each(xs, where)) {
    if constexpr (whole) loop.over(static_cast<std::int64_t>(xs), reverse);
    else loop.over(span_of(tensors_in(like_)), reverse);
  }
  Each at(const StateLoop& loop) const {
    const Tensor* next = loop.element().data();
    return with_tensors<Each>(like_, next);
  }

 private:
  static Each each(const X& xs, std::source_location where) {
    if constexpr (whole) return Tensor();
    else return as_state(xs, where);
  }
  Each like_;
};

template <HasTensors S> S state_of(const S& like, const StateLoop& loop) {
  const Tensor* next = loop.state().data();
  return with_tensors<S>(like, next);
}

/// Converts the return value of a step to the state of the next step.
template <class S, class R> S next_state(R&& returned) {
  static_assert(std::convertible_to<R&&, S>,
                "onepass: the step function of a loop must return the next state, with the same type as the state that it takes");
  return std::forward<R>(returned);
}

template <class F, class S> S repeated(StateLoop& loop, S state, F&& step) {
  while (loop.next()) {
    state = next_state<S>(step(state_of(state, loop)));
    loop.step(span_of(tensors_in(state)));
  }
  return state_of(state, loop);
}

}  // namespace detail

/// Returns the state after all steps, and each step's result: `auto [last, ys] = scan(f, init, xs)` with `auto [state, y] = f(state, x)`.
/// Step i gets x = xs[i] and returns y = ys[i]; with `reverse`, the last step runs first.
///
/// xs and y may be nested. A whole number in place of xs is the number of steps; x is then the step index, an i32 scalar.
///
///     auto [h, all] = scan([&](Tensor h, Tensor x) { Tensor next = tanh(matmul(h, u) + x); return std::pair{next, next}; }, h0, xs);
///
/// Shapes    A state keeps its shape and type. A number gets the type that the step returns for it.
/// Gradient  by all arguments and by values that f captured; cotangents of steps are added from the last step to the first.
/// Errors    ShapeError or DTypeError if the state changes shape or type, or for xs of different lengths. ValueError for zero
///           steps, or if the steps exceed Limits::max_nodes.
template <class F, detail::State S, detail::Stepped X>
auto scan(F&& f, const S& init, const X& xs, bool reverse = false, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  using State = decltype(state);
  detail::StateLoop loop(detail::StateLoop::Kind::Scan, detail::span_of(detail::tensors_in(state)), where);
  const detail::Elements<X> elements(loop, xs, reverse, where);
  using R = std::remove_cvref_t<decltype(f(state, elements.at(loop)))>;
  static_assert(
      requires { requires std::tuple_size<R>::value == 2; },
      "onepass: the step function of scan must return a pair: the next state and the result of the step");
  using Y = detail::AsTensor<std::tuple_element_t<1, R>>;
  std::optional<Y> like;
  while (loop.next()) {
    R returned = f(detail::state_of(state, loop), elements.at(loop));
    state = detail::next_state<State>(std::get<0>(std::move(returned)));
    like.emplace(detail::as_state(std::get<1>(returned), where));
    loop.step(detail::span_of(detail::tensors_in(state)), detail::span_of(detail::tensors_in(*like)));
  }
  const std::vector<Tensor> results = loop.results();
  const Tensor* next = results.data();
  return std::pair<State, Y>(detail::state_of(state, loop), detail::with_tensors<Y>(*std::move(like), next));
}

/// Returns the state after all steps of `state = f(state, x)`; see scan. `fold(f, init, n)` is JAX's `fori_loop`: f gets the state and
/// the index.
template <class F, detail::State S, detail::Stepped X>
auto fold(F&& f, const S& init, const X& xs, bool reverse = false, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  detail::StateLoop loop(detail::StateLoop::Kind::Fold, detail::span_of(detail::tensors_in(state)), where);
  const detail::Elements<X> elements(loop, xs, reverse, where);
  return detail::repeated(loop, std::move(state), [&](const auto& s) { return f(s, elements.at(loop)); });
}

/// Returns f(f(… f(init))) with `steps` calls of f.
template <class F, detail::State S>
auto iterate(F&& f, const S& init, std::int64_t steps, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  detail::StateLoop loop(detail::StateLoop::Kind::Iterate, detail::span_of(detail::tensors_in(state)), where);
  loop.over(steps, false);
  return detail::repeated(loop, std::move(state), [&](const auto& s) { return f(s); });
}

/// Repeats `state = body(state)` while cond(state), at most `bound` times. The condition is one bool for all states, or broadcasts to
/// each state. In the second case, each element keeps its state once its condition is false.
///
/// If `bound` ends the loop, cond of the returned state is true. See scan for states, derivatives and errors.
template <class C, class F, detail::State S>
auto while_loop(C&& cond, F&& body, const S& init, std::int64_t bound, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  detail::StateLoop loop(detail::StateLoop::Kind::While, detail::span_of(detail::tensors_in(state)), where);
  loop.over(bound, false);
  return detail::repeated(loop, std::move(state), [&](const auto& s) {
    loop.condition(Tensor(cond(s)));
    return body(s);
  });
}
template <class C, class F, class S,
          detail::Advice advice =
              "while_loop: the maximum number of steps is missing. Pass it as the last argument: while_loop(cond, body, init, 100)">
auto while_loop(C&& cond, F&& body, const S& init) = delete;  // reports the advice above

}  // namespace onepass
