// compile(f): turns a function of Tensors into a function of Arrays. The first call with new types and shapes records it; each recording
// is compiled once. nest.h defines how arguments and results nest; runtime/function.cpp has the implementation. Works under
// -fno-exceptions -fno-rtti.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "onepass/array.h"
#include "onepass/compare.h"
#include "onepass/export.h"
#include "onepass/graph_view.h"
#include "onepass/nest.h"
#include "onepass/options.h"
#include "onepass/record.h"
#include "onepass/shared.h"
#include "onepass/tensor.h"

namespace onepass {

/// The result of try_call: a value, or the text of the error.
template <class T> class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  static Result failure(std::string error) {
    Result r;
    r.error_ = std::move(error);
    return r;
  }
  bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  T& operator*() noexcept { return *value_; }
  const T& operator*() const noexcept { return *value_; }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }
  /// Returns the text of the error; empty if there is a value.
  const std::string& error() const noexcept { return error_; }

 private:
  Result() = default;
  std::optional<T> value_;
  std::string error_;
};
/// The result of try_into: success, or the text of the error.
template <> class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  static Result failure(std::string error) {
    Result r;
    r.failed_ = true;
    r.error_ = std::move(error);
    return r;
  }
  bool has_value() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return !failed_; }
  const std::string& error() const noexcept { return error_; }

 private:
  bool failed_ = false;
  std::string error_;
};

/// Returns the optimized graph of this thread's last call in printed form; empty before the first call.
ONEPASS_API
std::string last_optimized_graph();

namespace detail {

/// The number of results at the top level: `into` takes one destination for each result.
template <class R> inline constexpr std::size_t kTargets = 1;
template <class... T> inline constexpr std::size_t kTargets<std::tuple<T...>> = sizeof...(T);
template <class A, class B> inline constexpr std::size_t kTargets<std::pair<A, B>> = 2;
template <class T, std::size_t N> inline constexpr std::size_t kTargets<std::array<T, N>> = N;

/// True if R is a tuple, pair or array, and Y is such an object with a destination for each result.
template <class R, class Y> constexpr bool are_targets_of() {
  if constexpr (requires { std::tuple_size<R>::value, std::tuple_size<std::remove_cv_t<Y>>::value; }) {
    if constexpr (std::tuple_size<std::remove_cv_t<Y>>::value != kTargets<R>) return false;
    else if constexpr (kTargets<R> == 1) return std::is_same_v<std::tuple_element_t<0, R>, Tensor>;  // else Y is that element's destination
    else return true;
  } else {
    return false;
  }
}
template <class R, class Y> inline constexpr bool kTargetsOf = are_targets_of<R, Y>();

template <class R> struct ResultArrays {
  using type = decltype(Nest<R>::result(std::declval<ResultReader&>()));
};

// ---- the signature of a callable
template <class F> struct SignatureOf {
  static_assert(kNever<F>,
                "onepass: the parameter types of this function cannot be deduced. If its body has an error, fix that error first. For a "
                "generic lambda or an overloaded call operator, state the signature: compile<Tensor(Tensor, Tensor)>(f)");
};
template <class R, class... P> struct SignatureOf<R (*)(P...)> {
  using type = R(P...);
};
template <class R, class... P> struct SignatureOf<R (*)(P...) noexcept> {
  using type = R(P...);
};
template <class M> struct MemberSignature;
template <class R, class C, class... P> struct MemberSignature<R (C::*)(P...)> {
  using type = R(P...);
};
template <class R, class C, class... P> struct MemberSignature<R (C::*)(P...) const> {
  using type = R(P...);
};
template <class R, class C, class... P> struct MemberSignature<R (C::*)(P...) noexcept> {
  using type = R(P...);
};
template <class R, class C, class... P> struct MemberSignature<R (C::*)(P...) const noexcept> {
  using type = R(P...);
};
template <class F> requires requires { &F::operator(); } struct SignatureOf<F> {
  using type = typename MemberSignature<decltype(&F::operator())>::type;
};

class PullbackCore;
struct CompiledAccess;
}  // namespace detail
struct GradientCheck;
namespace detail {

/// A compiled function without its C++ types: a handle to a shared body.
class ONEPASS_API FunctionCore {
 public:
  using Record = void (*)(void* function, TensorReader& in, ResultWriter& out);
  FunctionCore(Shared<void> function, std::size_t bytes, Record record, const Options& options);  ///< bytes: size of the function object

  /// Calls the function. `named` requests the names that a nested result needs.
  void call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out) const;
  void call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, std::span<Array* const> targets) const;
  /// Calls the function without exceptions. On failure returns false and sets `error`.
  bool try_call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out,
                std::string& error) const noexcept;
  bool try_call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, std::span<Array* const> targets,
                     std::string& error) const noexcept;

  /// Calls the function and returns the pullback of that call.
  PullbackCore vjp(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out) const;

  GradientCheck check_gradients(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure) const;

  GraphView graph() const;
  GraphView recorded_graph() const;
  Comparison compare(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure) const;
  std::string last_graph() const;
  std::string explain() const;
  std::string explain(std::string_view signature) const;
  ExecutionRecord describe(std::string_view signature, Detail detail) const;
  ExecutionRecord last_execution(Detail detail) const;
  Stats stats() const;
  void warm_up(std::string_view signature, Tier tier) const;
  bool wait_until_optimized(std::int64_t nanoseconds) const;
  int warm_up_file(const std::string& path) const;
  std::vector<std::string> signatures() const;
  void write_signatures(const std::string& path) const;
  void seal() const;
  void reset() const;
  const Options& options() const;

 private:
  friend class BoundCore;
  friend class Inlining;
  struct Body;
  Body& body() const;  // throws Error for a moved-from function
  Shared<Body> body_;
};

/// A call with fixed arguments and destinations. Keeps the Arrays alive.
class ONEPASS_API BoundCore {
 public:
  BoundCore(FunctionCore function, std::span<const CallArgument> arguments, std::span<const std::int64_t> structure,
            std::span<Array* const> targets);
  void operator()() const;

 private:
  struct Body;
  Shared<const Body> body_;
};

/// Scope in which a compiled function is recorded into its caller's recording. Throws Error for endless recursion, and for a relaxation
/// that the caller does not have, because the graph uses the caller's relaxations.
class ONEPASS_API Inlining {
 public:
  explicit Inlining(const FunctionCore& callee);
  ~Inlining();
  Inlining(const Inlining&) = delete;
  Inlining& operator=(const Inlining&) = delete;
};

}  // namespace detail

/// A bound call, `auto call = f.bind(y, x)`: `call()` recomputes y from x. Copies refer to the same call. Only one thread at a time may use
/// it. It has dedicated memory for intermediates and for arguments that a destination overlaps.
using BoundCall = detail::BoundCore;

/// A compiled function, as returned by `compile`. It is a handle: copies refer to the same function. Several threads may call it at once.
/// Each new combination of argument types, shapes and layouts runs the C++ function once more, on the calling thread, to record it.
template <class F, class R, class... P> class CompiledFunction {
  template <class T> static constexpr void check_parameter() {
    using U = std::remove_cvref_t<T>;
    static_assert(!std::is_arithmetic_v<U>,
                  "onepass: a parameter is a plain number. Write Tensor for a run-time scalar, which changes from call to call without a "
                  "new compilation, or onepass::Static<T> for a value that is fixed when the function is recorded");
    static_assert(detail::Nest<U>::known || !detail::kAggregate<U>,
                  "onepass: a parameter is a struct, but not a struct template of Tensors. Write template <class T> struct Layer { T w, b; "
                  "}, where every field is a T or a vector, array, optional, tuple or such a struct of T. Use Layer<Tensor> in the "
                  "function and Layer<Array> in the call");
    static_assert(std::is_arithmetic_v<U> || detail::Nest<U>::known || detail::kAggregate<U>,
                  "onepass: this parameter type is not supported; a parameter must be a Tensor, a std::vector, array, tuple, pair or "
                  "optional of Tensors, a struct template of Tensors, or a Static<T>");
  }
  static_assert((check_parameter<P>(), ..., true));
  static_assert(!std::is_void_v<R>, "onepass: the function returns nothing. Return a Tensor, or a tuple, pair, array or vector of Tensors");
  static_assert(!std::is_arithmetic_v<R>, "onepass: the function returns a plain number. Return a Tensor (Tensor(1.0) is a constant)");
  static_assert(std::is_void_v<R> || std::is_arithmetic_v<R> || detail::Nest<R>::known,
                "onepass: this result type is not supported; the result must be a Tensor, or a std::tuple, pair, array, vector or struct "
                "template (Layer<Tensor>) of Tensors");

  using Arguments = detail::NestTuple<std::tuple<std::remove_cvref_t<P>...>, std::remove_cvref_t<P>...>;
  using Nest = detail::Nest<R>;
  using Flat = std::conditional_t<Arguments::dynamic, detail::DynamicFlat, detail::StaticFlat<Arguments::leaves>>;
  using Targets = std::conditional_t<Nest::dynamic, detail::DynamicTargets, detail::StaticTargets<Nest::leaves>>;
  template <class T> static constexpr bool kHasTensor = detail::Nest<std::remove_cvref_t<T>>::has_tensor;

 public:
  /// Array for Tensor, std::tuple<Array, Array> for std::tuple<Tensor, Tensor>, ….
  using Result = typename detail::ResultArrays<R>::type;

  CompiledFunction(F f, const Options& options)
      : function_(detail::Shared<F>::make(std::move(f))), core_(detail::Shared<void>(function_, address()), sizeof(F), &record, options) {}

  /// Calls the function and returns new results. For each Tensor parameter, pass an Array or a weakly typed number; tuples, vectors and
  /// the like nest as in the function. A call with Tensors, inside a function that is being recorded, records this function into that
  /// function.
  ///
  /// Errors    any onepass::Error, before any computation; InternalError is a defect of onepass.
  template <class... A> auto operator()(A&&... a) const {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the call and the function have different numbers of arguments");
    if constexpr ((kHasTensor<A> || ...)) {
      const detail::Inlining scope(core_);
      return static_cast<R>((*function_)(std::forward<A>(a)...));
    } else {
      const Flat flat = flatten(a...);
      detail::ResultReader results;
      core_.call(flat.arguments(), flat.structure(), Nest::dynamic, results);
      return Result(Nest::result(results));
    }
  }

  /// Calls the function without exceptions: returns a value, or the text of the error.
  template <class... A> onepass::Result<Result> try_call(const A&... a) const noexcept {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the call and the function have different numbers of arguments");
    const Flat flat = flatten(a...);
    detail::ResultReader results;
    std::string error;
    if (!core_.try_call(flat.arguments(), flat.structure(), Nest::dynamic, results, error))
      return onepass::Result<Result>::failure(std::move(error));
    return Result(Nest::result(results));
  }

  /// The result of `f.into(y)`: references to the destinations. Call it with the arguments.
  class Into {
   public:
    template <class... A> void operator()(const A&... a) const {
      static_assert(sizeof...(A) == sizeof...(P), "onepass: the call and the function have different numbers of arguments");
      const Flat flat = flatten(a...);
      core_.call_into(flat.arguments(), flat.structure(), targets_.targets());
    }

   private:
    friend CompiledFunction;
    explicit Into(const detail::FunctionCore& core) : core_(core) {}
    const detail::FunctionCore& core_;
    Targets targets_;
  };

  /// Writes to existing memory: `f.into(y)(x)`, `f.into(loss, discard)(x)`. Several destinations may be passed as one tuple, pair or
  /// array. Each destination must have its result's exact shape and type, with any strides; it may overlap arguments but not another
  /// destination. Allocates only if a result would overwrite an argument too early.
  template <class... Y> Into into(Y&&... y) const {
    Into call(core_);
    add_targets(call.targets_, y...);
    return call;
  }
  /// Writes to existing memory without exceptions. Arguments follow the destinations: `f.try_into(y, x, w)`.
  template <class... Z> onepass::Result<void> try_into(Z&&... z) const noexcept {
    Targets targets;
    std::string error;
    const Flat flat = split(targets, z...);
    if (!core_.try_call_into(flat.arguments(), flat.structure(), targets.targets(), error))
      return onepass::Result<void>::failure(std::move(error));
    return {};
  }
  /// Binds destinations, then arguments: `auto call = f.bind(y, x, w); call();`. Keeps the Arrays alive; numbers are fixed.
  template <class... Z> [[nodiscard]] BoundCall bind(Z&&... z) const {
    Targets targets;
    const Flat flat = split(targets, z...);
    return BoundCall(core_, flat.arguments(), flat.structure(), targets.targets());
  }

  /// Returns the optimized graph of the last call; empty before the first.
  GraphView graph() const { return core_.graph(); }
  /// Returns the graph of the last call as recorded, before any pass, without values that no result needs.
  GraphView recorded_graph() const { return core_.recorded_graph(); }
  /// Returns the optimized graph of the last call in printed form; empty before the first.
  std::string last_graph() const { return core_.last_graph(); }
  /// Runs the call in this function's mode and in mode unfused (mode reference for an unfused function). Reports whether all bits agree,
  /// and otherwise the first differing operator and element. This is a debugging aid: it is slow and needs much memory.
  template <class... A> Comparison compare(const A&... a) const {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the call and the function have different numbers of arguments");
    const Flat flat = flatten(a...);
    return core_.compare(flat.arguments(), flat.structure());
  }
  /// Describes each kernel of the last call: its outputs, and the reason for its boundary.
  std::string explain() const { return core_.explain(); }
  /// Describes the kernels for a call of that signature, with every reason and remedy: `f.explain("f32[64,256] f32[256]")`. Compiles and
  /// runs nothing.
  /// Errors    as warm_up.
  std::string explain(std::string_view signature) const { return core_.explain(signature); }
  /// Returns a record of the kernels for a call of this signature: `f.describe("f32[64,256]", Detail::code)`. Runs and compiles nothing.
  ExecutionRecord describe(std::string_view signature, Detail detail = Detail::plan) const { return core_.describe(signature, detail); }
  /// Returns a record of the last call's kernels and the reasons for them, printable as text, JSON and HTML. Takes milliseconds, because
  /// the passes run again. Has no kernels before the first call.
  ExecutionRecord last_execution(Detail detail = Detail::plan) const { return core_.last_execution(detail); }
  Stats stats() const { return core_.stats(); }

  /// Prepares for calls of these signatures, without running them: `f.warm_up({"f32[64,256] f32[256]"})`. The texts have the form of
  /// `signatures()` (docs/runtime.md). Compiles and optimizes the kernels on this thread's threads before it returns, so that the first
  /// call is as fast as later calls. With Tier::quick, it compiles only the baseline tier. A signature includes the thread limit, so call
  /// it under the same `thread_count()`.
  ///
  /// Errors    ValueError for a text that is not a signature; recording errors for a signature that the function does not accept.
  void warm_up(std::initializer_list<std::string_view> signatures, Tier tier = Tier::optimized) const {
    for (const std::string_view s : signatures) core_.warm_up(s, tier);
  }
  void warm_up(const std::vector<std::string>& signatures, Tier tier = Tier::optimized) const {
    for (const std::string& s : signatures) core_.warm_up(s, tier);
  }
  /// Warms up each signature in a file that write_signatures() wrote. Skips signatures that the function no longer accepts, with a
  /// warning in the log. Returns the number of warmed-up signatures. Throws IoError if the file cannot be read, and ValueError with a
  /// line that is not a signature.
  int warm_up_file(const std::string& path) const { return core_.warm_up_file(path); }
  /// Waits until the kernels of all remembered calls are optimized; `timeout` is a std::chrono::duration. False if the timeout expires
  /// first. Also waits for shape-specialized kernels that are being compiled, but starts no new kernels.
  template <class Duration> bool wait_until_optimized(Duration timeout) const {
    return core_.wait_until_optimized(detail::nanoseconds_of(timeout));
  }
  void wait_until_optimized() const { core_.wait_until_optimized(-1); }
  /// Returns the signatures of the remembered calls, in order of last use.
  std::vector<std::string> signatures() const { return core_.signatures(); }
  void write_signatures(const std::string& path) const { core_.write_signatures(path); }
  /// Seals the function: a later call that needs compilation throws an Error with its signature, and no shape gets shape-specialized
  /// kernels. Baseline kernels still get optimized code in the background.
  void seal() const { core_.seal(); }
  /// Forgets all signatures, so that the next call records the function again. Also resets the count of shapes with shape-specialized
  /// kernels. Kernels stay in the cache; bound calls and the seal are unaffected.
  void reset() const { core_.reset(); }
  const Options& options() const { return core_.options(); }

 private:
  friend struct detail::CompiledAccess;  // in gradient.h
  void* address() const {
    if constexpr (std::is_pointer_v<F>) return static_cast<void*>(function_.get());
    else return const_cast<void*>(static_cast<const void*>(function_.get()));
  }

  static void record(void* function, detail::TensorReader& in, detail::ResultWriter& out) {
    auto arguments = Arguments::read(in);
    in.finish();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      Nest::write(out, (*static_cast<F*>(function))(static_cast<P&&>(std::get<I>(arguments))...));
    }(std::index_sequence_for<P...>{});
  }
  template <class... A> static Flat flatten(const A&... a) {
    Flat flat;
    (detail::Nest<std::remove_cvref_t<P>>::flatten(flat, a), ...);
    return flat;
  }
  template <class... Y> static void add_targets(Targets& targets, Y&... y) {
    if constexpr (sizeof...(Y) == 1 && (!requires { std::tuple_size<R>::value; } || (detail::kTargetsOf<R, Y> && ...))) {
      (Nest::target(targets, y), ...);
    } else {
      static_assert(sizeof...(Y) == detail::kTargets<R>, "onepass: pass one destination for each result (onepass::discard skips a result)");
      std::tuple<Y&...> all{y...};
      Nest::target(targets, all);
    }
  }
  template <class... Z> static Flat split(Targets& targets, Z&... z) {
    constexpr bool together = sizeof...(Z) == 1 + sizeof...(P);  // all destinations in one tuple, pair or array
    constexpr std::size_t n = together ? 1 : detail::kTargets<R>;
    static_assert(sizeof...(Z) == n + sizeof...(P), "onepass: pass one destination for each result, then the arguments");
    std::tuple<Z&...> all{z...};
    [&]<std::size_t... I>(std::index_sequence<I...>) { add_targets(targets, std::get<I>(all)...); }(std::make_index_sequence<n>{});
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return flatten(std::get<n + I>(all)...); }(std::index_sequence_for<P...>{});
  }

  detail::Shared<F> function_;
  detail::FunctionCore core_;
};

namespace detail {
template <class F, class Signature> struct Compiled;
template <class F, class R, class... P> struct Compiled<F, R(P...)> {
  using type = CompiledFunction<F, std::remove_cvref_t<R>, P...>;
};
}  // namespace detail

/// Compiles `f`, a lambda, function object or function pointer. Its parameters are Tensors, Static<T>, or nested types of Tensors:
/// std::vector, array, tuple, pair, optional, or structs (`template <class T> struct Layer { T w, b; };` as Layer<Tensor>). Its result is
/// a Tensor, or a tuple, pair, array, vector or struct of Tensors.
///
/// `f` must record the same graph for the same types and shapes. Several threads may run it at once.
///
///     auto affine = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; });
///     Array y = affine(x, w, 2.0);
template <class F> requires(!std::is_function_v<F>) auto compile(F f, const Options& options = {}) {
  using Function = typename detail::Compiled<F, typename detail::SignatureOf<F>::type>::type;
  return Function(std::move(f), options);
}

/// Compiles a generic lambda or overloaded function object: `compile<Tensor(Tensor, Tensor)>([](auto a, auto b) { … })`.
template <class Signature, class F> requires std::is_function_v<Signature> auto compile(F f, const Options& options = {}) {
  return typename detail::Compiled<F, Signature>::type(std::move(f), options);
}

}  // namespace onepass
