// Loops with state in a recorded function: scan, fold, iterate and while_loop, as JAX's lax.scan, fori_loop and while_loop. The function of a step
// is recorded once for each step, and what it records is fused, compiled and differentiated like everything else. docs/language.md says what each
// means. Works under -fno-exceptions -fno-rtti.
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

/// A loop that is being recorded: while next(), the step's function is called with state() and element(), and step() takes what it returns.
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
  struct Body;  // runtime/state_loop.cpp
  Body* body_;
};

template <class T> inline constexpr bool kWhole = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T> inline constexpr bool kWhole<Static<T>> = kWhole<T>;
template <class T>
concept State = HasTensors<T> || std::convertible_to<const T&, Operand>;

/// What a loop goes over: arrays, or a number of steps.
template <class T>
concept Stepped = kWhole<T> || State<T>;

template <class S> AsTensor<S> as_state(const S& s, std::source_location where) {
  if constexpr (HasTensors<S>) return s;
  else return tensor_of(Operand(s, where));
}

/// What a step goes over: elements of arrays, or, of so many steps, their index.
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

/// What a step returns, as the state of the next.
template <class S, class R> S next_state(R&& returned) {
  static_assert(std::convertible_to<R&&, S>, "onepass: a step of a loop returns the next state, of the type of the one that it takes");
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

/// The state after all steps and each step's result: `auto [last, ys] = scan(f, init, xs)`, where `auto [state, y] = f(state, x)`. Step i takes x = xs[i],
/// from the last one on if `reverse`, and its y is ys[i]. xs, and what a step returns beside the state, nest as one likes; a whole number in the place of
/// xs is so many steps, whose x is their index, an i32 scalar.
///
///     auto [h, all] = scan([&](Tensor h, Tensor x) { Tensor next = tanh(matmul(h, u) + x); return std::pair{next, next}; }, h0, xs);
///
/// Shapes    A state keeps shape and type; a number gets the type that a step gives it.
/// Gradient  of everything, what f captured included; the cotangents of steps are added from the last step on.
/// Errors    ShapeError, DTypeError for a state that changes and for xs of different lengths; ValueError for no step, and for more than
///           Limits::max_nodes allows.
template <class F, detail::State S, detail::Stepped X>
auto scan(F&& f, const S& init, const X& xs, bool reverse = false, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  using State = decltype(state);
  detail::StateLoop loop(detail::StateLoop::Kind::Scan, detail::span_of(detail::tensors_in(state)), where);
  const detail::Elements<X> elements(loop, xs, reverse, where);
  using R = std::remove_cvref_t<decltype(f(state, elements.at(loop)))>;
  static_assert(
      requires { requires std::tuple_size<R>::value == 2; },
      "onepass: a step of scan returns a pair: the next state, and the step's result");
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

/// The state after all steps, `state = f(state, x)`; see scan. `fold(f, init, n)` is JAX's `fori_loop`: f takes the state and the index.
template <class F, detail::State S, detail::Stepped X>
auto fold(F&& f, const S& init, const X& xs, bool reverse = false, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  detail::StateLoop loop(detail::StateLoop::Kind::Fold, detail::span_of(detail::tensors_in(state)), where);
  const detail::Elements<X> elements(loop, xs, reverse, where);
  return detail::repeated(loop, std::move(state), [&](const auto& s) { return f(s, elements.at(loop)); });
}

/// f(f(… f(init))), `steps` times.
template <class F, detail::State S>
auto iterate(F&& f, const S& init, std::int64_t steps, std::source_location where = std::source_location::current()) {
  auto state = detail::as_state(init, where);
  detail::StateLoop loop(detail::StateLoop::Kind::Iterate, detail::span_of(detail::tensors_in(state)), where);
  loop.over(steps, false);
  return detail::repeated(loop, std::move(state), [&](const auto& s) { return f(s); });
}

/// `state = body(state)` while cond(state), at most `bound` times. The condition is a bool for all elements of the states or, where it broadcasts to
/// each state, for each: an element that it is false for keeps its state from then on. Where `bound` ends the loop, cond of what is returned
/// is true. See scan for states, derivatives and errors.
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
          detail::Advice advice = "while_loop takes a bound, the most steps that it may take: while_loop(cond, body, init, 100)">
auto while_loop(C&& cond, F&& body, const S& init) = delete;  // the advice above: give the most steps that it may take

}  // namespace onepass
