// Differentiates recorded values, in the same kernels, and functions called with Arrays. docs/gradients.md is the guide. grad and vjp of
// single Tensors are in tensor.h. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/export.h"
#include "onepass/function.h"
#include "onepass/nest.h"
#include "onepass/shared.h"
#include "onepass/tensor.h"

namespace onepass {

/// Method of `jacobian`. rows: one cotangent for each element of the result; columns: one tangent for each element of the argument; fewer:
/// the method that needs fewer of them.
enum class JacobianBy : std::uint8_t { fewer, rows, columns };

namespace detail {

using TensorSpan = std::span<const Tensor>;
inline TensorSpan span_of(const std::vector<Tensor>& list) { return {list.data(), list.size()}; }  // faster to compile than conversion

ONEPASS_API
void vjp_all(TensorSpan ys, TensorSpan dys, TensorSpan xs, Tensor* dxs);
ONEPASS_API
void jvp_all(TensorSpan ys, TensorSpan xs, TensorSpan dxs, Tensor* dys);
ONEPASS_API
void gradients(const char* name, Tensor loss, TensorSpan xs, Tensor* dxs);
ONEPASS_API
Tensor jacobian_of(Tensor y, Tensor x, JacobianBy by);
/// A function of any type that returns the gradient of each argument, from arguments, results and cotangents.
class Backward {
 public:
  template <class F> requires(!std::same_as<F, Backward>) Backward(F f)  // NOLINT: implicit by design
      : object_(Shared<F>::make(std::move(f))),
        call_([](void* object, TensorSpan xs, TensorSpan ys, TensorSpan dys) { return (*static_cast<F*>(object))(xs, ys, dys); }) {}
  std::vector<Tensor> operator()(TensorSpan xs, TensorSpan ys, TensorSpan dys) const { return call_(object_.get(), xs, ys, dys); }

 private:
  Shared<void> object_;
  std::vector<Tensor> (*call_)(void*, TensorSpan, TensorSpan, TensorSpan);
};
ONEPASS_API
void set_derivative(TensorSpan arguments, std::span<Tensor> results, Backward backward);
inline constexpr int kNotMapped = -1000;  // in place of an axis: not mapped
ONEPASS_API
void map_elements(TensorSpan xs, std::span<const int> axes, Tensor* elements, Tensor* all);
[[noreturn]] ONEPASS_API
void fail_map_axes(std::size_t axes, std::size_t arguments);
ONEPASS_API
void mapped(TensorSpan ys, TensorSpan elements, TensorSpan all, Tensor* results);
ONEPASS_API
std::uint32_t recorded_nodes();
ONEPASS_API
void compute_again(std::uint32_t first, std::span<Tensor> results);

/// A type that contains Tensors.
template <class T>
concept HasTensors = Nest<T>::known && Nest<T>::has_tensor;

/// Returns the value's Tensors, in the order of its fields.
template <HasTensors... T> std::vector<Tensor> tensors_in(const T&... values) {
  std::vector<Tensor> tensors;
  (Nest<T>::visit(values, [&](Tensor t) { tensors.push_back(t); }), ...);
  return tensors;
}

/// Returns a copy of `like` with its Tensors replaced by the Tensors from `next` on. Advances `next`.
template <HasTensors T> T with_tensors(T like, const Tensor*& next) {
  Nest<T>::visit(like, [&](Tensor& t) { t = *next++; });
  return like;
}

/// Returns one argument's gradient, or a tuple of gradients for several arguments.
template <HasTensors... T> auto nested_like(const Tensor* next, const T&... like) {
  if constexpr (sizeof...(T) == 1) return with_tensors<T...>(like..., next);
  else return std::tuple<T...>{with_tensors<T>(like, next)...};
}

/// Calls f(x), or f with the elements of a tuple.
template <class F, class X> decltype(auto) call_with(F& f, const X& x) {
  if constexpr (std::is_invocable_v<F&, const X&>) return f(x);
  else return std::apply(f, x);
}

/// The type of an argument during recording: Arrays and numbers become Tensors.
template <class A> using AsTensor = std::conditional_t<HasTensors<A>, A, Tensor>;

}  // namespace detail

// ---- derivatives of recorded values

/// Differentiates by structs of parameters, vectors, tuples, …: `Params<Tensor> d = grad(loss, params)`,
/// `auto [dw, dp] = grad(loss, w, params)`.
template <detail::HasTensors... X> requires(sizeof...(X) > 0 && !(detail::IsTensor<X> && ...))
auto grad(const Tensor& loss, const X&... xs) {
  const std::vector<Tensor> flat = detail::tensors_in(xs...);
  std::vector<Tensor> derivatives(flat.size());
  detail::gradients("grad", loss, detail::span_of(flat), derivatives.data());
  return detail::nested_like(derivatives.data(), xs...);
}

/// Returns f(args…) and the gradient of its scalar result by each argument: `auto [loss, d] = value_and_grad(f, params)`. With several
/// arguments, d is a tuple. If f returns a tuple or pair, its first element is the loss; the other elements are returned unchanged.
///
/// Errors    DTypeError for an integer or bool argument (capture it in f instead); ShapeError for a loss that is not a scalar.
template <class F, class... A> requires(sizeof...(A) > 0 && (detail::HasTensors<A> && ...)) auto value_and_grad(F&& f, const A&... args) {
  auto value = f(args...);
  static_assert(detail::HasTensors<decltype(value)>,
                "onepass: the function passed to value_and_grad must return a Tensor, or a tuple whose first element is a Tensor");
  const std::vector<Tensor> flat = detail::tensors_in(args...), results = detail::tensors_in(value);
  std::vector<Tensor> derivatives(flat.size());
  detail::gradients("value_and_grad", results.empty() ? Tensor() : results[0], detail::span_of(flat), derivatives.data());
  return std::pair{std::move(value), detail::nested_like(derivatives.data(), args...)};
}

/// Returns f(x) and its forward-mode derivative along dx, which has the shapes of x. Pass several arguments as a tuple:
/// `auto [y, dy] = jvp(f, std::tuple{a, b}, std::tuple{da, db})`.
template <class F, detail::HasTensors X> auto jvp(F&& f, const X& x, const X& dx) {
  auto y = detail::call_with(f, x);
  const std::vector<Tensor> results = detail::tensors_in(y);
  std::vector<Tensor> tangents(results.size());
  detail::jvp_all(detail::span_of(results), detail::tensors_in(x), detail::tensors_in(dx), tangents.data());
  const Tensor* next = tangents.data();
  auto dy = detail::with_tensors(y, next);
  return std::pair{std::move(y), std::move(dy)};
}

/// Returns the product of the Hessian of f at x with v. f returns a scalar; v has the shapes of x. Costs about two gradients, because it
/// does not compute the Hessian itself.
template <class F, detail::HasTensors X> X hessian_vector(F&& f, const X& x, const X& v) {
  const std::vector<Tensor> loss = detail::tensors_in(detail::call_with(f, x)), xs = detail::tensors_in(x), vs = detail::tensors_in(v);
  std::vector<Tensor> derivatives(xs.size()), products(xs.size());
  detail::gradients("hessian_vector", loss.empty() ? Tensor() : loss[0], detail::span_of(xs), derivatives.data());
  detail::vjp_all(detail::span_of(derivatives), detail::span_of(vs), detail::span_of(xs), products.data());
  const Tensor* next = products.data();
  return detail::with_tensors(x, next);
}

/// Returns the derivative of each element of f(x) by each element of x. Its shape is the shape of f(x), then the shape of x. One fused
/// pass computes all rows or all columns. For a nested x, returns one Jacobian for each Tensor in it.
template <class F, detail::HasTensors X> X jacobian(F&& f, const X& x, JacobianBy by = JacobianBy::fewer) {
  const Tensor y = detail::call_with(f, x);
  X result = x;
  detail::Nest<X>::visit(result, [&](Tensor& t) { t = detail::jacobian_of(y, t, by); });
  return result;
}

namespace detail {
/// Replaces the numbers and `none` among the gradients of a custom_vjp, which mean no gradient, by Tensors of 0.
template <class G> auto with_zeros(const G& gradients) {
  if constexpr (std::is_arithmetic_v<G> || std::is_same_v<G, None>) return Tensor(0);
  else if constexpr (requires { std::tuple_size<G>::value; })
    return std::apply([](const auto&... each) { return std::tuple{with_zeros(each)...}; }, gradients);
  else return gradients;
}
}  // namespace detail

/// A function with a user-written derivative. `backward(args…, result, cotangent)` returns the gradient by each argument, nested like the
/// arguments (a tuple for several); a literal 0 or `none` means no gradient. Both functions are recorded like all other functions.
///
/// Integer arguments, numbers and captured values get no gradient. Higher derivatives differentiate the operators that backward records.
///
///     auto clipped = custom_vjp([](Tensor x) { return x; }, [](Tensor x, Tensor y, Tensor dy) { return clamp(dy, -1, 1); });
template <class F, class B> class CustomVjp {
 public:
  CustomVjp(F f, B backward) : f_(std::move(f)), backward_(detail::Shared<B>::make(std::move(backward))) {}

  template <class... A> auto operator()(const A&... args) const { return call(detail::AsTensor<A>(args)...); }

 private:
  F f_;
  detail::Shared<B> backward_;

  template <class... A> auto call(const A&... args) const {
    auto result = f_(args...);
    using R = decltype(result);
    static_assert(detail::HasTensors<R>,
                  "onepass: the function passed to custom_vjp must return a Tensor, or a tuple, vector or struct of Tensors");
    std::vector<Tensor> results = detail::tensors_in(result);
    detail::set_derivative(
        detail::tensors_in(args...), results,
        [backward = backward_, args = std::tuple<A...>(args...), result](detail::TensorSpan xs, detail::TensorSpan ys,
                                                                         detail::TensorSpan dys) {
          const Tensor *x = xs.data(), *y = ys.data(), *dy = dys.data();
          const auto at = std::apply([&](const A&... a) { return std::tuple<A...>{detail::with_tensors<A>(a, x)...}; }, args);
          const R of = detail::with_tensors<R>(result, y), by = detail::with_tensors<R>(result, dy);
          const auto gradients = detail::with_zeros(std::apply([&](const A&... a) { return (*backward)(a..., of, by); }, at));
          static_assert(detail::HasTensors<std::remove_cvref_t<decltype(gradients)>>,
                        "onepass: the backward function passed to custom_vjp must return one gradient for each argument");
          return detail::tensors_in(gradients);
        });
    const Tensor* next = results.data();
    return detail::with_tensors<R>(std::move(result), next);
  }
};
template <class F, class B> CustomVjp<F, B> custom_vjp(F f, B backward) { return {std::move(f), std::move(backward)}; }

/// A function whose intermediates are recomputed from its arguments by the derivative, instead of being saved. Uses less memory and more
/// time. Example: `auto block = checkpoint(f); … block(x, w)`.
template <class F> class Checkpoint {
 public:
  explicit Checkpoint(F f) : f_(std::move(f)) {}

  template <class... A> auto operator()(const A&... args) const {
    const std::uint32_t first = detail::recorded_nodes();
    auto result = f_(args...);
    using R = decltype(result);
    static_assert(detail::HasTensors<R>,
                  "onepass: the function passed to checkpoint must return a Tensor, or a tuple, vector or struct of Tensors");
    std::vector<Tensor> results = detail::tensors_in(result);
    detail::compute_again(first, {results.data(), results.size()});
    const Tensor* next = results.data();
    return detail::with_tensors<R>(std::move(result), next);
  }

 private:
  F f_;
};
template <class F> Checkpoint<F> checkpoint(F f) { return Checkpoint<F>(std::move(f)); }

/// The axis of an argument that vmap maps over: an integer, or `none` for an argument that is the same for all elements.
struct MapAxis {
  int axis = 0;
  MapAxis(int axis) noexcept : axis(axis) {}            // NOLINT: implicit by design
  MapAxis(None) noexcept : axis(detail::kNotMapped) {}  // NOLINT: implicit by design
};

/// A function of one element, applied to all elements along an axis. It is recorded once, for all elements together, so no loop remains.
/// Each result has a new first axis.
///
///     auto per_example = vmap([](Params<Tensor> p, Tensor x) { return grad(loss(p, x), p); }, {none, 0});
///
/// `axes` has one axis for each argument, and all Tensors of the argument have that axis; without `axes`, each argument is mapped over
/// axis 0. Numbers are the same for all elements. vmap can be nested and differentiated. Results have the bits of a loop over the
/// elements.
///
/// Gradients that the function itself takes follow its custom derivatives and checkpoints. A gradient of the whole vmap differentiates
/// the operators that they recorded.
///
/// Errors    ShapeError for axes of different lengths, or if no argument is mapped.
template <class F> class Vmap {
 public:
  Vmap(F f, std::vector<MapAxis> axes) : f_(std::move(f)), axes_(std::move(axes)) {}

  template <class... A> auto operator()(const A&... args) const { return call(detail::AsTensor<A>(args)...); }

 private:
  F f_;
  std::vector<MapAxis> axes_;

  template <class... A> auto call(const A&... args) const {
    const std::vector<Tensor> xs = detail::tensors_in(args...);
    if (axes_.size() > 1 && axes_.size() != sizeof...(A)) detail::fail_map_axes(axes_.size(), sizeof...(A));
    std::vector<int> axes;
    std::size_t next = 0;
    const auto add = [&](std::size_t count) {
      axes.insert(axes.end(), count, axes_.empty() ? 0 : axes_[axes_.size() == 1 ? 0 : next].axis);
      ++next;
    };
    (add(detail::tensors_in(args).size()), ...);
    std::vector<Tensor> elements(xs.size()), all(xs.size());
    detail::map_elements(detail::span_of(xs), {axes.data(), axes.size()}, elements.data(), all.data());
    const Tensor* element = elements.data();
    auto result = std::apply(f_, std::tuple<A...>{detail::with_tensors<A>(args, element)...});
    using R = decltype(result);
    static_assert(detail::HasTensors<R>,
                  "onepass: the function passed to vmap must return a Tensor, or a tuple, vector or struct of Tensors");
    const std::vector<Tensor> ys = detail::tensors_in(result);
    std::vector<Tensor> results(ys.size());
    detail::mapped(detail::span_of(ys), detail::span_of(elements), detail::span_of(all), results.data());
    const Tensor* of_all = results.data();
    return detail::with_tensors<R>(std::move(result), of_all);
  }
};
template <class F> Vmap<F> vmap(F f, std::vector<MapAxis> axes = {}) { return Vmap<F>(std::move(f), std::move(axes)); }

// ---- derivatives of calls with Arrays: forward call now, backward call later

/// The values that a pullback saves between the two calls.
struct PullbackStats {
  struct Value {
    std::string value;  ///< `exp f32[4096, 1024]`, and its source line
    std::int64_t bytes = 0;
    bool referenced = false;  ///< an argument or a result, which needs no memory of the pullback
    std::string why;
  };
  std::vector<Value> values;
  std::int64_t bytes_saved = 0;
  /// Bytes that an unfused gradient would save: every value that a backward operator reads.
  std::int64_t bytes_unfused = 0;
};

namespace detail {

/// A pullback without its C++ types: a handle to a shared body.
class ONEPASS_API PullbackCore {
 public:
  /// Returns one gradient for each argument; an Array without memory for an argument without gradient.
  std::vector<Array> operator()(std::span<const CallArgument> cotangents) const;
  void reset();
  PullbackStats stats() const;
  ExecutionRecord last_execution(Detail detail) const;

  struct Body;  // in runtime/gradient.cpp
  explicit PullbackCore(Shared<const Body> body) : body_(std::move(body)) {}

 private:
  Shared<const Body> body_;
};

/// The type of an argument's gradient: nested like the argument; for a number, an Array without memory.
template <class A> using Gradient = std::conditional_t<Number<A>, Array, A>;
template <class A> Gradient<A> without_arrays(const A& argument) {
  if constexpr (Number<A>) return {};
  else return argument;
}

}  // namespace detail

/// The pullback that `vjp` of a function returns. Called with a cotangent nested like the results, it computes the gradient by each
/// argument, nested like the argument. Any thread may call it, any number of times; copies are the same pullback.
///
/// It keeps residuals (see stats()) and the arguments and results that it reads. The caller must not change these before the call.
/// reset(), or the destruction of the last copy, releases them. Integer, bool and plain-number arguments get an Array without memory.
template <class R, class Parameters, class... A> class Pullback;
template <class R, class... P, class... A> class Pullback<R, std::tuple<P...>, A...> {
 public:
  Pullback(detail::PullbackCore core, const A&... arguments) : core_(std::move(core)), like_(detail::without_arrays(arguments)...) {
    for_each_leaf(like_, [](auto& leaf) { clear(leaf); });
  }

  /// Returns one argument's gradient, or a tuple of gradients. Throws ShapeError for a cotangent whose shape differs from its result's.
  template <class... C> auto operator()(const C&... cotangents) const {
    detail::DynamicFlat flat;
    const std::tuple<C...> all(cotangents...);  // `flat` refers to the tuple
    if constexpr (sizeof...(C) == 1) detail::Nest<R>::flatten(flat, std::get<0>(all));
    else detail::Nest<R>::flatten(flat, all);
    std::vector<Array> gradients = core_(flat.arguments());
    auto result = like_;
    std::size_t next = 0;
    for_each_leaf(result, [&](auto& leaf) { put(leaf, gradients[next++]); });
    if constexpr (sizeof...(A) == 1) return std::get<0>(std::move(result));
    else return result;
  }

  /// Releases the kept values; a later call of this copy throws Error.
  void reset() { core_.reset(); }
  /// Returns the kept values, with the reasons.
  PullbackStats stats() const { return core_.stats(); }
  /// Returns the record of the forward call. Its `backward` is the last backward call of this function with such arguments, or the planned
  /// backward call.
  ExecutionRecord last_execution(Detail detail = Detail::plan) const { return core_.last_execution(detail); }

 private:
  detail::PullbackCore core_;
  std::tuple<detail::Gradient<A>...> like_;  // Arrays without memory

  template <class Tuple, class F> static void for_each_leaf(Tuple& values, F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (detail::Nest<P>::visit(std::get<I>(values), f), ...);
    }(std::index_sequence_for<A...>{});
  }
  template <class T> static void clear(T& leaf) {
    if constexpr (std::same_as<T, Array>) leaf = Array();
  }
  template <class T> static void put(T& leaf, Array& gradient) {
    if constexpr (std::same_as<T, Array>) leaf = std::move(gradient);
  }
};

namespace detail {

struct CompiledAccess {
  template <class F, class R, class... P, class... A> static auto vjp(const CompiledFunction<F, R, P...>& f, const A&... arguments) {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the vjp call and the function have different numbers of arguments");
    using Results = Nest<R>;
    using Keeper = Pullback<R, std::tuple<std::remove_cvref_t<P>...>, A...>;
    const auto flat = CompiledFunction<F, R, P...>::flatten(arguments...);
    ResultReader results;
    PullbackCore core = f.core_.vjp(flat.arguments(), flat.structure(), Results::dynamic, results);
    return std::pair<typename CompiledFunction<F, R, P...>::Result, Keeper>(Results::result(results),
                                                                            Keeper(std::move(core), arguments...));
  }
  template <class F, class R, class... P, class... A> static auto check(const CompiledFunction<F, R, P...>& f, const A&... arguments) {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the check_gradients call and the function have different numbers of arguments");
    const auto flat = CompiledFunction<F, R, P...>::flatten(arguments...);
    return f.core_.check_gradients(flat.arguments(), flat.structure());
  }
};
template <class T> inline constexpr bool kCompiled = false;
template <class F, class R, class... P> inline constexpr bool kCompiled<CompiledFunction<F, R, P...>> = true;

}  // namespace detail

/// Result of check_gradients.
struct GradientCheck {
  bool ok = false;
  double worst = 0;  ///< largest error, relative to the larger of the two values and the function's size
  std::string text;  ///< one sentence: the agreement, or the largest difference and its location
  explicit operator bool() const noexcept { return ok; }
};

/// Computes f(args…) now and its derivative later: `auto [y, pullback] = vjp(f, x); … Array dx = pullback(dy)`. With Arrays, f is a
/// compiled function, which is recorded once, or any argument of `compile`, which is recorded at each call.
///
/// The values that the pullback reads are saved or recomputed, whichever is faster; `Options::memory_budget` bounds the saved bytes. With
/// Tensors, inside a recorded function, everything is one graph.
template <class F, class... A> requires(sizeof...(A) > 0 && !std::convertible_to<const F&, Operand>)
auto vjp(const F& f, const A&... args) {
  if constexpr ((detail::HasTensors<A> || ...)) {
    auto value = f(args...);
    using R = decltype(value);
    return std::pair{value, [value, args...](const R& cotangent) {
                       const std::vector<Tensor> xs = detail::tensors_in(args...);
                       std::vector<Tensor> derivatives(xs.size());
                       detail::vjp_all(detail::tensors_in(value), detail::tensors_in(cotangent), xs, derivatives.data());
                       return detail::nested_like(derivatives.data(), args...);
                     }};
  } else if constexpr (detail::kCompiled<F>) {
    return detail::CompiledAccess::vjp(f, args...);
  } else {
    return detail::CompiledAccess::vjp(compile(f), args...);
  }
}

/// Checks f's derivatives at these Arrays, in f64 for all types. Compares each gradient with central differences (for up to 64 elements
/// of each argument), and forward with reverse mode. Differences are not meaningful near a kink or a jump.
///
///     if (const auto check = check_gradients(f, x, w); !check) fmt::print("{}\n", check.text);
template <class F, class... A> requires(sizeof...(A) > 0) GradientCheck check_gradients(const F& f, const A&... args) {
  if constexpr (detail::kCompiled<F>) return detail::CompiledAccess::check(f, args...);
  else return detail::CompiledAccess::check(compile(f), args...);
}

}  // namespace onepass
