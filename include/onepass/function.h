// compile(f): a function over Tensors becomes one over Arrays. Recorded at the first call with new types and shapes, compiled once, then
// just called. The templates here only take arguments and results apart and together; runtime/function.cpp does the rest.
// Works under -fno-exceptions -fno-rtti.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/export.h"
#include "onepass/number.h"
#include "onepass/options.h"
#include "onepass/tensor.h"

namespace onepass {

/// A parameter whose value is part of the function's structure: `[](Tensor x, Static<int> n) { for (int i = 0; i < n; ++i) … }`. The call
/// takes a plain number there; each new value records and compiles anew. For numbers that change often take a Tensor instead.
template <class T> requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) struct Static {
  T value{};
  constexpr operator T() const noexcept { return value; }  // NOLINT: implicit by design
};

/// As a target of `into` or `bind`: that result is not wanted.
struct Discard {};
inline constexpr Discard discard{};

/// What try_call gives: a value, or the text of the error.
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
  /// Empty when there is a value.
  const std::string& error() const noexcept { return error_; }

 private:
  Result() = default;
  std::optional<T> value_;
  std::string error_;
};
/// What try_into gives: nothing, or the text of the error.
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

/// The optimised graph of this thread's last call in its printed form; empty before the first.
ONEPASS_API
std::string last_optimized_graph();

namespace detail {

template <class> inline constexpr bool kNever = false;

/// An argument of a call: an Array, or a number without a strong type.
struct CallArgument : NumberValue {
  const onepass::Array* array = nullptr;

  CallArgument() = default;
  explicit CallArgument(const onepass::Array& a) : NumberValue(Kind::Array), array(&a) {}
  template <Number T> explicit CallArgument(T value) : NumberValue(value) {}
};

// ---- flat lists. `structure` holds what the leaves alone do not tell: lengths of vectors, which optionals are there, values of Static.

template <std::size_t N> struct StaticFlat {
  std::array<CallArgument, (N > 0 ? N : 1)> leaves;
  std::size_t count = 0;
  void leaf(const CallArgument& a) { leaves[count++] = a; }
  std::span<const CallArgument> arguments() const { return {leaves.data(), N}; }
  std::span<const std::int64_t> structure() const { return {}; }
};
struct DynamicFlat {
  std::vector<CallArgument> leaves;
  std::vector<std::int64_t> lengths;
  void leaf(const CallArgument& a) { leaves.push_back(a); }
  void note(std::int64_t v) { lengths.push_back(v); }
  std::span<const CallArgument> arguments() const { return leaves; }
  std::span<const std::int64_t> structure() const { return lengths; }
};
template <std::size_t N> struct StaticTargets {
  std::array<Array*, (N > 0 ? N : 1)> leaves{};
  std::size_t count = 0;
  void leaf(Array* a) { leaves[count++] = a; }
  std::span<Array* const> targets() const { return {leaves.data(), N}; }
};
struct DynamicTargets {
  std::vector<Array*> leaves;
  void leaf(Array* a) { leaves.push_back(a); }
  std::span<Array* const> targets() const { return leaves; }
};

/// Gives a recorded function its arguments back in their nesting.
struct TensorReader {
  const Tensor* leaf;
  const std::int64_t* note;
};

/// Takes a recorded function's results apart. Their names say where each stands: `out`, `out1`, `out0[2]`, ….
class ONEPASS_API ResultWriter {
 public:
  void leaf(Tensor t);
  void enter(std::size_t index, bool of_list);
  void leave();
  /// Before and after the elements of a vector: a nested one without results would be lost in the names.
  std::size_t count() const { return tensors_.size(); }
  [[noreturn]] static void fail_empty();

 private:
  friend class FunctionCore;
  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;
  std::vector<std::string> path_;
};

/// Gives a call's results their nesting back.
class ONEPASS_API ResultReader {
 public:
  Array leaf() { return std::move(arrays_[next_++]); }
  void enter(std::size_t index, bool of_list);
  void leave();
  std::size_t length() const;  // of the vector that stands here

 private:
  friend class FunctionCore;
  std::vector<Array> arrays_;
  std::vector<std::string> names_;
  std::vector<std::string> path_;
  std::size_t next_ = 0;
};

// ---- how each type nests. leaves: how many tensors, where that is fixed; dynamic: where it is not.
template <class T> struct Nest {
  static constexpr bool known = false;
  static constexpr bool dynamic = false;
  static constexpr std::size_t leaves = 0;
  static constexpr bool has_tensor = false;
};

template <> struct Nest<Tensor> {
  static constexpr bool known = true, dynamic = false, has_tensor = true;
  static constexpr std::size_t leaves = 1;
  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    if constexpr (std::same_as<A, Array> || Number<A>) flat.leaf(CallArgument(a));
    else static_assert(kNever<A>, "onepass: where the function takes a Tensor, a call takes an Array or a number");
  }
  static Tensor read(TensorReader& in) { return *in.leaf++; }
  static void write(ResultWriter& out, Tensor t) { out.leaf(t); }
  static Array result(ResultReader& in) { return in.leaf(); }
  template <class Flat, class Y> static void target(Flat& flat, Y& y) {
    if constexpr (std::same_as<std::remove_const_t<Y>, Array>)
      flat.leaf(const_cast<Array*>(&y));  // the handle stays as it is; its elements are written
    else if constexpr (std::same_as<std::remove_const_t<Y>, Discard>) flat.leaf(nullptr);
    else static_assert(kNever<Y>, "onepass: a target is an Array, or onepass::discard");
  }
};

template <class T> struct Nest<std::vector<T>> {
  using Inner = Nest<T>;
  static constexpr bool known = Inner::known, dynamic = true, has_tensor = Inner::has_tensor;
  static constexpr std::size_t leaves = 0;
  template <class Flat, class A> static void flatten(Flat& flat, const A& list) {
    static_assert(
        requires {
          list.size();
          requires std::is_lvalue_reference_v<decltype(*list.begin())>;
        }, "onepass: where the function takes a std::vector of Tensors, a call takes a std::vector of Arrays");
    flat.note(static_cast<std::int64_t>(list.size()));
    for (const auto& a : list) Inner::flatten(flat, a);
  }
  static std::vector<T> read(TensorReader& in) {
    std::vector<T> list;
    const std::int64_t n = *in.note++;
    list.reserve(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) list.push_back(Inner::read(in));
    return list;
  }
  static void write(ResultWriter& out, const std::vector<T>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      out.enter(i, true);
      const std::size_t before = out.count();
      Inner::write(out, list[i]);
      if (out.count() == before) ResultWriter::fail_empty();
      out.leave();
    }
  }
  static auto result(ResultReader& in) {
    std::vector<decltype(Inner::result(in))> list;
    const std::size_t n = in.length();
    list.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      in.enter(i, true);
      list.push_back(Inner::result(in));
      in.leave();
    }
    return list;
  }
  template <class Flat, class Y> static void target(Flat& flat, Y& list) {
    for (auto& y : list) Inner::target(flat, y);
  }
};

template <class T> struct Nest<std::optional<T>> {
  using Inner = Nest<T>;
  static constexpr bool known = Inner::known, dynamic = true, has_tensor = Inner::has_tensor;
  static constexpr std::size_t leaves = 0;
  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    if constexpr (std::same_as<A, std::nullopt_t>) {
      flat.note(0);
    } else if constexpr (requires {
                           a.has_value();
                           *a;
                         }) {
      flat.note(a.has_value());
      if (a.has_value()) Inner::flatten(flat, *a);
    } else {
      flat.note(1);
      Inner::flatten(flat, a);
    }
  }
  static std::optional<T> read(TensorReader& in) {
    if (*in.note++ == 0) return std::nullopt;
    return Inner::read(in);
  }
};

template <class T> struct Nest<Static<T>> {
  static constexpr bool known = true, dynamic = true, has_tensor = false;
  static constexpr std::size_t leaves = 0;
  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    static_assert(std::is_convertible_v<A, T>, "onepass: where the function takes a Static<T>, a call takes a T");
    const T value = static_cast<T>(a);
    static_assert(sizeof(T) <= sizeof(std::int64_t));
    std::int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    flat.note(bits);
  }
  static Static<T> read(TensorReader& in) {
    Static<T> s;
    std::memcpy(&s.value, in.note++, sizeof s.value);
    return s;
  }
};

// std::tuple, std::pair and std::array
template <class Tuple, class... T> struct NestTuple {
  static constexpr bool known = (Nest<T>::known && ...), dynamic = (Nest<T>::dynamic || ...), has_tensor = (Nest<T>::has_tensor || ...);
  static constexpr std::size_t leaves = (Nest<T>::leaves + ... + 0);
  using Indices = std::index_sequence_for<T...>;

  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    static_assert(
        requires { std::tuple_size<A>::value; },
        "onepass: where the function takes a tuple, pair or array of Tensors, a call takes one of Arrays");
    static_assert(std::tuple_size<A>::value == sizeof...(T), "onepass: the tuple of Arrays has another length than the function's");
    [&]<std::size_t... I>(std::index_sequence<I...>) { (Nest<T>::flatten(flat, std::get<I>(a)), ...); }(Indices{});
  }
  static Tuple read(TensorReader& in) { return Tuple{Nest<T>::read(in)...}; }
  static void write(ResultWriter& out, const Tuple& t) {
    const auto one = [&]<std::size_t I, class E>() {
      out.enter(I, false);
      Nest<E>::write(out, std::get<I>(t));
      out.leave();
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) { (one.template operator()<I, T>(), ...); }(Indices{});
  }
  template <class Arrays> static Arrays result_as(ResultReader& in) {
    const auto one = [&]<std::size_t I, class E>() {
      in.enter(I, false);
      auto value = Nest<E>::result(in);
      in.leave();
      return value;
    };
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Arrays{one.template operator()<I, T>()...}; }(Indices{});
  }
  template <class Flat, class Y> static void target(Flat& flat, Y& y) {
    static_assert(std::tuple_size<std::remove_const_t<Y>>::value == sizeof...(T), "onepass: as many targets as results");
    [&]<std::size_t... I>(std::index_sequence<I...>) { (Nest<T>::target(flat, std::get<I>(y)), ...); }(Indices{});
  }
};
template <class... T> struct Nest<std::tuple<T...>> : NestTuple<std::tuple<T...>, T...> {
  template <class R = void> static auto result(ResultReader& in) {
    return Nest::template result_as<std::tuple<decltype(Nest<T>::result(in))...>>(in);
  }
};
template <class A, class B> struct Nest<std::pair<A, B>> : NestTuple<std::pair<A, B>, A, B> {
  template <class R = void> static auto result(ResultReader& in) {
    return Nest::template result_as<std::pair<decltype(Nest<A>::result(in)), decltype(Nest<B>::result(in))>>(in);
  }
};
template <class T, class Sequence> struct NestArray;
template <class T, std::size_t... I> struct NestArray<T, std::index_sequence<I...>> {
  template <std::size_t> using Same = T;
  using type = NestTuple<std::array<T, sizeof...(I)>, Same<I>...>;
};
template <class T, std::size_t N> struct Nest<std::array<T, N>> : NestArray<T, std::make_index_sequence<N>>::type {
  template <class R = void> static auto result(ResultReader& in) {
    return Nest::template result_as<std::array<decltype(Nest<T>::result(in)), N>>(in);
  }
};

/// Results that stand beside each other at the top: what `into` takes one target for.
template <class R> inline constexpr std::size_t kTargets = 1;
template <class... T> inline constexpr std::size_t kTargets<std::tuple<T...>> = sizeof...(T);
template <class A, class B> inline constexpr std::size_t kTargets<std::pair<A, B>> = 2;
template <class T, std::size_t N> inline constexpr std::size_t kTargets<std::array<T, N>> = N;

template <class R> struct ResultArrays {
  using type = decltype(Nest<R>::result(std::declval<ResultReader&>()));
};

// ---- the signature of a callable
template <class F> struct SignatureOf {
  static_assert(kNever<F>,
                "onepass: the parameters of this function cannot be seen. If its body has an error, that one comes first. For a "
                "generic lambda or an overloaded call operator give its signature, compile<Tensor(Tensor, Tensor)>(f)");
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

/// A compiled function without its C++ types: a handle on a shared body.
class ONEPASS_API FunctionCore {
 public:
  using Record = void (*)(void* function, TensorReader& in, ResultWriter& out);
  FunctionCore(std::shared_ptr<void> function, Record record, const Options& options);

  /// `named`: the results' names are needed to rebuild their nesting.
  void call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out) const;
  void call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, std::span<Array* const> targets) const;
  /// False, with the text of the error.
  bool try_call(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, bool named, ResultReader& out,
                std::string& error) const noexcept;
  bool try_call_into(std::span<const CallArgument> arguments, std::span<const std::int64_t> structure, std::span<Array* const> targets,
                     std::string& error) const noexcept;

  std::string last_graph() const;
  std::string explain() const;
  Stats stats() const;
  const Options& options() const;

 private:
  struct Body;
  std::shared_ptr<Body> body_;
};

/// A call with everything given: keeps the Arrays alive.
class ONEPASS_API BoundCore {
 public:
  BoundCore(FunctionCore function, std::span<const CallArgument> arguments, std::span<const std::int64_t> structure,
            std::span<Array* const> targets);
  void operator()() const;

 private:
  struct Body;
  std::shared_ptr<const Body> body_;
};

/// While a compiled function is recorded into its caller's recording. Error for a function that calls itself without end.
class ONEPASS_API Inlining {
 public:
  Inlining();
  ~Inlining();
  Inlining(const Inlining&) = delete;
  Inlining& operator=(const Inlining&) = delete;
};

}  // namespace detail

/// A bound call, `auto call = f.bind(y, x)`: `call()` computes y from x again. Copies share the same Arrays.
using BoundCall = detail::BoundCore;

/// What `compile` returns. A handle: copies are the same function. Several threads may call it at once; each new combination of
/// types, shapes and layouts of the arguments runs the C++ function once more, on the thread that calls, to record it.
template <class F, class R, class... P> class CompiledFunction {
  template <class T> static constexpr void check_parameter() {
    using U = std::remove_cvref_t<T>;
    static_assert(!std::is_arithmetic_v<U>,
                  "onepass: a parameter is a plain number. Write Tensor for a run-time scalar, which changes from call to call without "
                  "compiling anything, or onepass::Static<T> for a value that shapes the code");
    static_assert(std::is_arithmetic_v<U> || detail::Nest<U>::known,
                  "onepass: a parameter is a Tensor, a std::vector, array, tuple, pair or optional of these, or a Static<T>");
  }
  static_assert((check_parameter<P>(), ..., true));
  static_assert(!std::is_void_v<R>, "onepass: the function returns nothing: return a Tensor, or a tuple, pair, array or vector of Tensors");
  static_assert(!std::is_arithmetic_v<R>, "onepass: the function returns a plain number: return a Tensor (Tensor(1.0) is a constant)");
  static_assert(std::is_void_v<R> || std::is_arithmetic_v<R> || detail::Nest<R>::known,
                "onepass: the result is a Tensor, or a std::tuple, pair, array or vector of Tensors");

  using Arguments = detail::NestTuple<std::tuple<std::remove_cvref_t<P>...>, std::remove_cvref_t<P>...>;
  using Nest = detail::Nest<R>;
  using Flat = std::conditional_t<Arguments::dynamic, detail::DynamicFlat, detail::StaticFlat<Arguments::leaves>>;
  using Targets = std::conditional_t<Nest::dynamic, detail::DynamicTargets, detail::StaticTargets<Nest::leaves>>;
  template <class T> static constexpr bool kHasTensor = detail::Nest<std::remove_cvref_t<T>>::has_tensor;

 public:
  /// Array for Tensor, std::tuple<Array, Array> for std::tuple<Tensor, Tensor>, ….
  using Result = typename detail::ResultArrays<R>::type;

  CompiledFunction(F f, const Options& options)
      : function_(std::make_shared<F>(std::move(f))), core_(std::shared_ptr<void>(function_, address()), &record, options) {}

  /// Fresh results. Where the function takes a Tensor the call takes an Array, or a number without a strong type; tuples, vectors and
  /// the like nest as in the function. With Tensors, inside a function that is being recorded, the function is recorded into that one.
  ///
  /// Errors    onepass::Error of every kind, before anything is computed; InternalError is ours to fix.
  template <class... A> auto operator()(A&&... a) const {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the call has another number of arguments than the function");
    if constexpr ((kHasTensor<A> || ...)) {
      const detail::Inlining scope;
      return static_cast<R>((*function_)(std::forward<A>(a)...));
    } else {
      const Flat flat = flatten(a...);
      detail::ResultReader results;
      core_.call(flat.arguments(), flat.structure(), Nest::dynamic, results);
      return Result(Nest::result(results));
    }
  }

  /// The same without exceptions: a value, or the text of the error.
  template <class... A> onepass::Result<Result> try_call(const A&... a) const noexcept {
    static_assert(sizeof...(A) == sizeof...(P), "onepass: the call has another number of arguments than the function");
    const Flat flat = flatten(a...);
    detail::ResultReader results;
    std::string error;
    if (!core_.try_call(flat.arguments(), flat.structure(), Nest::dynamic, results, error))
      return onepass::Result<Result>::failure(std::move(error));
    return Result(Nest::result(results));
  }

  /// What `f.into(y)` is until it is called: targets, by reference.
  class Into {
   public:
    template <class... A> void operator()(const A&... a) const {
      static_assert(sizeof...(A) == sizeof...(P), "onepass: the call has another number of arguments than the function");
      const Flat flat = flatten(a...);
      core_.call_into(flat.arguments(), flat.structure(), targets_.targets());
    }

   private:
    friend CompiledFunction;
    explicit Into(const detail::FunctionCore& core) : core_(core) {}
    const detail::FunctionCore& core_;
    Targets targets_;
  };

  /// Into memory that exists: `f.into(y)(x)`, `f.into(loss, discard)(x)`. A target has its result's exact shape and type, any strides, and
  /// may overlap arguments, not another target. Allocates nothing unless a result must not overwrite an argument too early.
  template <class... Y> Into into(Y&&... y) const {
    Into call(core_);
    add_targets(call.targets_, y...);
    return call;
  }
  /// `f.try_into(y)` … with the arguments after the targets: `f.try_into(y, x, w)`.
  template <class... Z> onepass::Result<void> try_into(Z&&... z) const noexcept {
    Targets targets;
    std::string error;
    const Flat flat = split(targets, z...);
    if (!core_.try_call_into(flat.arguments(), flat.structure(), targets.targets(), error))
      return onepass::Result<void>::failure(std::move(error));
    return {};
  }
  /// Targets, then arguments: `auto call = f.bind(y, x, w); call();`. The Arrays are kept; numbers are fixed.
  template <class... Z> [[nodiscard]] BoundCall bind(Z&&... z) const {
    Targets targets;
    const Flat flat = split(targets, z...);
    return BoundCall(core_, flat.arguments(), flat.structure(), targets.targets());
  }

  /// The optimised graph of the last call in its printed form; empty before the first.
  std::string last_graph() const { return core_.last_graph(); }
  /// Each kernel of the last call: what it stores, and why it ends there.
  std::string explain() const { return core_.explain(); }
  Stats stats() const { return core_.stats(); }
  const Options& options() const { return core_.options(); }

 private:
  void* address() const {
    if constexpr (std::is_pointer_v<F>) return static_cast<void*>(function_.get());
    else return const_cast<void*>(static_cast<const void*>(std::addressof(*function_)));
  }

  static void record(void* function, detail::TensorReader& in, detail::ResultWriter& out) {
    auto arguments = Arguments::read(in);
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
    if constexpr (sizeof...(Y) == 1 && detail::kTargets<R> == 1 && detail::Nest<R>::leaves <= 1 &&
                  !requires { std::tuple_size<R>::value; }) {
      (Nest::target(targets, y), ...);
    } else {
      static_assert(sizeof...(Y) == detail::kTargets<R>, "onepass: as many targets as results (onepass::discard leaves one out)");
      std::tuple<Y&...> all{y...};
      Nest::target(targets, all);
    }
  }
  template <class... Z> static Flat split(Targets& targets, Z&... z) {
    constexpr std::size_t n = detail::kTargets<R>;
    static_assert(sizeof...(Z) == n + sizeof...(P), "onepass: the targets, one for each result, then the arguments");
    std::tuple<Z&...> all{z...};
    [&]<std::size_t... I>(std::index_sequence<I...>) { add_targets(targets, std::get<I>(all)...); }(std::make_index_sequence<n>{});
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return flatten(std::get<n + I>(all)...); }(std::index_sequence_for<P...>{});
  }

  std::shared_ptr<F> function_;
  detail::FunctionCore core_;
};

namespace detail {
template <class F, class Signature> struct Compiled;
template <class F, class R, class... P> struct Compiled<F, R(P...)> {
  using type = CompiledFunction<F, std::remove_cvref_t<R>, P...>;
};
}  // namespace detail

/// The compiled form of `f`, a lambda, function object or function pointer. Its parameters are Tensors, or std::vector, array, tuple, pair
/// and optional of these, or Static<T>; its result a Tensor, or a tuple, pair, array or vector of them. `f` must compute the same
/// graph whenever it gets the same types and shapes, and may be run on several threads at once.
///
///     auto affine = compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; });
///     Array y = affine(x, w, 2.0);
template <class F> requires(!std::is_function_v<F>) auto compile(F f, const Options& options = {}) {
  using Function = typename detail::Compiled<F, typename detail::SignatureOf<F>::type>::type;
  return Function(std::move(f), options);
}

/// A generic lambda or overloaded function object by its signature: `compile<Tensor(Tensor, Tensor)>([](auto a, auto b) { … })`.
template <class Signature, class F> requires std::is_function_v<Signature> auto compile(F f, const Options& options = {}) {
  return typename detail::Compiled<F, Signature>::type(std::move(f), options);
}

}  // namespace onepass
