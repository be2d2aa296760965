// Nesting of the arguments and results of a compiled function: Tensors; std::vector, array, tuple, pair and optional of them; structs of
// parameters; Static values. Flattens them to lists and rebuilds them; function.h uses it.
//
// Every program instantiates these templates, so code that need not be a template is in runtime/function.cpp. Spans are constructed from
// a pointer and a length, because construction from a vector checks many concepts. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/export.h"
#include "onepass/number.h"
#include "onepass/tensor.h"

namespace onepass {

/// A parameter whose value is part of the function's structure: `[](Tensor x, Static<int> n) { for (int i = 0; i < n; ++i) … }`. Pass a
/// plain number in the call. Each new value records and compiles the function again; for numbers that change often, use a Tensor.
template <class T> requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) struct Static {
  T value{};
  constexpr operator T() const noexcept { return value; }  // NOLINT: implicit by design
};

/// A destination of `into` or `bind` that omits its result.
struct Discard {};
inline constexpr Discard discard{};

namespace detail {

template <class> inline constexpr bool kNever = false;

/// An argument of a call: an Array, or a weakly typed number.
struct CallArgument : NumberValue {
  const onepass::Array* array = nullptr;

  CallArgument() = default;
  explicit CallArgument(const onepass::Array& a) : NumberValue(Kind::Array), array(&a) {}
  template <Number T> explicit CallArgument(T value) : NumberValue(value) {}
};

// ---- flat lists. `structure` holds the other data of the nesting: lengths of vectors, which optionals are present, values of Static.

template <std::size_t N> struct StaticFlat {
  std::array<CallArgument, (N > 0 ? N : 1)> leaves;
  std::size_t count = 0;
  void leaf(const CallArgument& a) { leaves[count++] = a; }
  std::span<const CallArgument> arguments() const { return {leaves.data(), N}; }
  std::span<const std::int64_t> structure() const { return {}; }
};
struct ONEPASS_API DynamicFlat {
  std::vector<CallArgument> leaves;
  std::vector<std::int64_t> lengths;
  void leaf(const CallArgument& a);
  void note(std::int64_t v);
  std::span<const CallArgument> arguments() const { return {leaves.data(), leaves.size()}; }
  std::span<const std::int64_t> structure() const { return {lengths.data(), lengths.size()}; }
};
template <std::size_t N> struct StaticTargets {
  std::array<Array*, (N > 0 ? N : 1)> leaves{};
  std::size_t count = 0;
  void leaf(Array* a) { leaves[count++] = a; }
  std::span<Array* const> targets() const { return {leaves.data(), N}; }
};
struct ONEPASS_API DynamicTargets {
  std::vector<Array*> leaves;
  void leaf(Array* a);
  std::span<Array* const> targets() const { return {leaves.data(), leaves.size()}; }
};

/// Reader that rebuilds a recorded function's nested arguments. Checks that they fit, because a signature from a file may belong to
/// another function.
class ONEPASS_API TensorReader {
 public:
  TensorReader(std::span<const Tensor> leaves, std::span<const std::int64_t> notes) : leaves_(leaves), notes_(notes) {}
  Tensor leaf();
  std::int64_t note();
  /// Returns the length of a list. Fails if fewer leaves and notes remain.
  std::size_t length();
  std::size_t leaves_left() const { return leaves_.size(); }
  std::size_t notes_left() const { return notes_.size(); }
  void finish() const;

 private:
  template <class T> static T take(std::span<const T>& list);
  [[noreturn]] static void fail();
  std::span<const Tensor> leaves_;
  std::span<const std::int64_t> notes_;
};

/// Writer that flattens a recorded function's results. Their names give their positions: `out`, `out1`, `out0[2]`, ….
class ONEPASS_API ResultWriter {
 public:
  void leaf(Tensor t);
  void enter(std::size_t index, bool of_list);
  void enter(std::string_view key);  ///< for a dictionary or record of another language: `out.key`
  void leave();
  /// Returns the number of results so far. Used to reject a nested vector without results, which would have no name.
  std::size_t count() const { return tensors_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  [[noreturn]] static void fail_empty();

 private:
  friend class FunctionCore;
  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;
  std::vector<std::string> path_;
};

/// Reader that rebuilds the nesting of a call's results.
class ONEPASS_API ResultReader {
 public:
  Array leaf() { return std::move(arrays_[next_++]); }
  void enter(std::size_t index, bool of_list);
  void leave();
  std::size_t length() const;  // length of the vector at the current position
  /// Returns all results without nesting; names() has their names if the call requested them.
  std::vector<Array> arrays() && { return std::move(arrays_); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  friend class FunctionCore;
  std::vector<Array> arrays_;
  std::vector<std::string> names_;
  std::vector<std::string> path_;
  std::size_t next_ = 0;
};

/// Discards a result with several leaves. Their number must be static.
template <class Nest, class Flat> void discard_leaves(Flat& flat) {
  static_assert(!Nest::dynamic,
                "onepass: the number of results in a vector is unknown before the call, so it cannot be discarded as a whole. Pass a "
                "vector of destinations, or return a tuple");
  for (std::size_t i = 0; i < Nest::leaves; ++i) flat.leaf(nullptr);
}

// ---- nesting of each type. leaves: the number of tensors, if fixed; dynamic: true if not fixed. visit(value, f) calls f for each leaf.
// The value has the type, or nests like it with Arrays or numbers in place of Tensors.
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
    else static_assert(kNever<A>, "onepass: the function takes a Tensor here. Pass an Array or a number in the call");
  }
  static Tensor read(TensorReader& in) { return in.leaf(); }
  static void write(ResultWriter& out, Tensor t) { out.leaf(t); }
  static Array result(ResultReader& in) { return in.leaf(); }
  template <class V, class F> static void visit(V& value, F&& f) { f(value); }
  template <class Flat, class Y> static void target(Flat& flat, Y& y) {
    if constexpr (std::same_as<std::remove_const_t<Y>, Array>)
      flat.leaf(const_cast<Array*>(&y));  // the handle is unchanged; its elements are written
    else if constexpr (std::same_as<std::remove_const_t<Y>, Discard>) flat.leaf(nullptr);
    else static_assert(kNever<Y>, "onepass: a destination must be an Array or onepass::discard");
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
        }, "onepass: the function takes a std::vector of Tensors here. Pass a std::vector of Arrays in the call");
    flat.note(static_cast<std::int64_t>(list.size()));
    for (const auto& a : list) Inner::flatten(flat, a);
  }
  static std::vector<T> read(TensorReader& in) {
    std::vector<T> list;
    const std::size_t n = in.length();
    list.reserve(n);
    for (std::size_t i = 0; i < n; ++i) list.push_back(Inner::read(in));
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
  template <class V, class F> static void visit(V& list, F&& f) {
    for (auto& value : list) Inner::visit(value, f);
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
    if constexpr (std::is_same_v<std::remove_const_t<Y>, Discard>) discard_leaves<Nest>(flat);
    else
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
    if (in.note() == 0) return std::nullopt;
    return Inner::read(in);
  }
  // Names the result like the element of a vector with at most one element.
  static void write(ResultWriter& out, const std::optional<T>& value) {
    if (!value) return;
    out.enter(0, true);
    Inner::write(out, *value);
    out.leave();
  }
  static auto result(ResultReader& in) {
    std::optional<decltype(Inner::result(in))> value;
    if (in.length() == 0) return value;
    in.enter(0, true);
    value = Inner::result(in);
    in.leave();
    return value;
  }
  template <class Flat, class Y> static void target(Flat& flat, Y& y) {
    if constexpr (std::is_same_v<std::remove_const_t<Y>, Discard>) discard_leaves<Nest>(flat);
    else if constexpr (requires { y.has_value(); }) {
      if (y.has_value()) Inner::target(flat, *y);
    } else {
      Inner::target(flat, y);
    }
  }
  template <class V, class F> static void visit(V& value, F&& f) {
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) Inner::visit(*value, f);
    } else if constexpr (!std::same_as<std::remove_const_t<V>, std::nullopt_t>) {
      Inner::visit(value, f);
    }
  }
};

template <class T> struct Nest<Static<T>> {
  static constexpr bool known = true, dynamic = true, has_tensor = false;
  static constexpr std::size_t leaves = 0;
  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    static_assert(std::is_convertible_v<A, T>, "onepass: the function takes a Static<T> here. Pass a T in the call");
    const T value = static_cast<T>(a);
    static_assert(sizeof(T) <= sizeof(std::int64_t));
    std::int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    flat.note(bits);
  }
  static Static<T> read(TensorReader& in) {
    Static<T> s;
    const std::int64_t bits = in.note();
    if constexpr (std::is_same_v<T, bool>) s.value = (bits & 0xff) != 0;
    else std::memcpy(&s.value, &bits, sizeof s.value);
    return s;
  }
  template <class V, class F> static void visit(V&, F&&) {}
};

// ---- std::tuple, std::pair and std::array
template <class Tuple, class... T> struct NestTuple {
  static constexpr bool known = (Nest<T>::known && ...), dynamic = (Nest<T>::dynamic || ...), has_tensor = (Nest<T>::has_tensor || ...);
  static constexpr std::size_t leaves = (Nest<T>::leaves + ... + 0);
  using Indices = std::index_sequence_for<T...>;

  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    static_assert(
        requires { std::tuple_size<A>::value; },
        "onepass: the function takes a tuple, pair or array of Tensors here. Pass a tuple, pair or array of Arrays in the call");
    static_assert(std::tuple_size<A>::value == sizeof...(T),
                  "onepass: the tuple of Arrays in the call and the tuple in the function have different lengths");
    [&]<std::size_t... I>(std::index_sequence<I...>) { (Nest<T>::flatten(flat, std::get<I>(a)), ...); }(Indices{});
  }
  static Tuple read(TensorReader& in) { return Tuple{Nest<T>::read(in)...}; }
  static void write(ResultWriter& out, const Tuple& t) { write_fields(out, t); }
  template <class Fields> static void write_fields(ResultWriter& out, const Fields& t) {
    const auto one = [&]<std::size_t I, class E>() {
      out.enter(I, false);
      Nest<E>::write(out, std::get<I>(t));
      out.leave();
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) { (one.template operator()<I, T>(), ...); }(Indices{});
  }
  template <class V, class F> static void visit(V& t, F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (Nest<T>::visit(std::get<I>(t), f), ...); }(Indices{});
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
    if constexpr (std::is_same_v<std::remove_const_t<Y>, Discard>) {
      discard_leaves<NestTuple>(flat);
    } else {
      static_assert(std::tuple_size<std::remove_const_t<Y>>::value == sizeof...(T), "onepass: pass one destination for each result");
      [&]<std::size_t... I>(std::index_sequence<I...>) { (Nest<T>::target(flat, std::get<I>(y)), ...); }(Indices{});
    }
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

// ---- structs of parameters, `template <class T> struct Layer { T w, b; };`: Layer<Tensor> in the function, Layer<Array> in the call.
// Their fields are counted by trial initialization with braced lists, and accessed by structured bindings.

/// A value that converts to any field type with nesting support, in a braced list.
struct AnyNested {
  template <class T> requires(Nest<T>::known) operator T() const;  // NOLINT: implicit by design
};
/// A value that converts to any field type.
struct Anything {
  template <class T> operator T() const;  // NOLINT: implicit by design
};
inline constexpr std::size_t kMostFields = 24;
template <class S, class Any, std::size_t... I> constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { S{(static_cast<void>(I), Any{})...}; };
}
template <class S, class Any, std::size_t N = kMostFields + 1> constexpr std::size_t field_count() {
  if constexpr (N == 0) return 0;
  else if constexpr (takes_fields<S, Any>(std::make_index_sequence<N>{})) return N;
  else return field_count<S, Any, N - 1>();
}

/// Returns references to the N fields.
template <std::size_t N, class S> constexpr auto tie_fields(S& s) {
  if constexpr (N == 1) {
    auto& [f0] = s;
    return std::tie(f0);
  } else if constexpr (N == 2) {
    auto& [f0, f1] = s;
    return std::tie(f0, f1);
  } else if constexpr (N == 3) {
    auto& [f0, f1, f2] = s;
    return std::tie(f0, f1, f2);
  } else if constexpr (N == 4) {
    auto& [f0, f1, f2, f3] = s;
    return std::tie(f0, f1, f2, f3);
  } else if constexpr (N == 5) {
    auto& [f0, f1, f2, f3, f4] = s;
    return std::tie(f0, f1, f2, f3, f4);
  } else if constexpr (N == 6) {
    auto& [f0, f1, f2, f3, f4, f5] = s;
    return std::tie(f0, f1, f2, f3, f4, f5);
  } else if constexpr (N == 7) {
    auto& [f0, f1, f2, f3, f4, f5, f6] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6);
  } else if constexpr (N == 8) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7);
  } else if constexpr (N == 9) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8);
  } else if constexpr (N == 10) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9);
  } else if constexpr (N == 11) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
  } else if constexpr (N == 12) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
  } else if constexpr (N == 13) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
  } else if constexpr (N == 14) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
  } else if constexpr (N == 15) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
  } else if constexpr (N == 16) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
  } else if constexpr (N == 17) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16);
  } else if constexpr (N == 18) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17);
  } else if constexpr (N == 19) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18);
  } else if constexpr (N == 20) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19);
  } else if constexpr (N == 21) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20);
  } else if constexpr (N == 22) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21);
  } else if constexpr (N == 23) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22);
  } else if constexpr (N == 24) {
    auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23] = s;
    return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20, f21, f22, f23);
  }
}

template <class T> inline constexpr bool kAggregate = std::is_aggregate_v<T> && std::is_class_v<T>;

/// P<Tensor> with Tensor replaced by To.
template <class T, class To> struct Replace {
  using type = T;
};
template <class To> struct Replace<Tensor, To> {
  using type = To;
};
template <template <class...> class P, class... A, class To> struct Replace<P<A...>, To> {
  using type = P<typename Replace<A, To>::type...>;
};
template <template <class, auto...> class P, class A, auto... N, class To> requires(sizeof...(N) > 0) struct Replace<P<A, N...>, To> {
  using type = P<typename Replace<A, To>::type, N...>;
};
/// True if both types are instances of the same template P.
template <class A, class B> inline constexpr bool kSameTemplate = false;
template <template <class...> class P, class... A, class... B> inline constexpr bool kSameTemplate<P<A...>, P<B...>> = true;
template <template <class, auto...> class P, class A, class B, auto... N> requires(sizeof...(N) > 0)
inline constexpr bool kSameTemplate<P<A, N...>, P<B, N...>> = true;

template <class S, class Fields> struct NestStruct;
template <class S, class... F> struct NestStruct<S, std::tuple<F&...>> {
  using Inner = NestTuple<S, F...>;
  static constexpr std::size_t fields = sizeof...(F);
  static constexpr bool known = true, dynamic = Inner::dynamic, has_tensor = Inner::has_tensor;
  static constexpr std::size_t leaves = Inner::leaves;

  template <class Flat, class A> static void flatten(Flat& flat, const A& a) {
    static_assert(kSameTemplate<S, A>,
                  "onepass: the function takes a struct of Tensors here, such as Layer<Tensor>. Pass the same struct of Arrays in the "
                  "call: Layer<Array>");
    if constexpr (kSameTemplate<S, A>) Inner::flatten(flat, tie_fields<fields>(a));
  }
  static S read(TensorReader& in) { return Inner::read(in); }
  static void write(ResultWriter& out, const S& s) { Inner::write_fields(out, tie_fields<fields>(s)); }
  template <class R = void> static auto result(ResultReader& in) { return Inner::template result_as<typename Replace<S, Array>::type>(in); }
  template <class V, class Visitor> static void visit(V& s, Visitor&& f) {
    auto fields_of_s = tie_fields<fields>(s);
    Inner::visit(fields_of_s, f);
  }
  template <class Flat, class Y> static void target(Flat& flat, Y& y) {
    constexpr bool is_discard = std::is_same_v<std::remove_const_t<Y>, Discard>;
    static_assert(is_discard || kSameTemplate<S, std::remove_const_t<Y>>,
                  "onepass: the result is a struct of Tensors, such as Layer<Tensor>. Pass the same struct of Arrays as the destination: "
                  "Layer<Array>");
    if constexpr (is_discard) {
      discard_leaves<Inner>(flat);
    } else if constexpr (kSameTemplate<S, std::remove_const_t<Y>>) {
      auto fields_of_y = tie_fields<fields>(y);
      Inner::target(flat, fields_of_y);
    }
  }
};

/// True for an instance of a struct template that has Tensor among its arguments and only fields with nesting support.
template <class S> constexpr bool is_parameter_struct() {
  if constexpr (std::is_same_v<typename Replace<S, Array>::type, S>) return false;
  else
    return field_count<S, AnyNested>() > 0 && field_count<S, AnyNested>() <= kMostFields &&
           field_count<S, AnyNested>() >= field_count<S, Anything>();
}
template <class S> requires(kAggregate<S> && is_parameter_struct<S>())
struct Nest<S> : NestStruct<S, decltype(tie_fields<field_count<S, AnyNested>()>(std::declval<S&>()))> {};

}  // namespace detail
}  // namespace onepass
