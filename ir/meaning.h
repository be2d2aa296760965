// The exact scalar functions that the `meaning` column of ops.def uses, and their argument types. Called by ir/reference.cpp and constant
// folding; code generators implement the same functions for their machine. Requires -ffp-contract=off and round to nearest.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "onepass/half.h"

namespace onepass::ir::meaning {

/// An integer with wrapping arithmetic, computed in the unsigned type to avoid undefined behavior.
template <std::integral S> struct Integer {
  using Value = S;
  using Unsigned = std::make_unsigned_t<S>;
  using Wide = std::conditional_t<(sizeof(S) < 4), std::uint32_t, Unsigned>;  // narrower types would be promoted to int
  static constexpr int kWidth = 8 * static_cast<int>(sizeof(S));
  S value;

  constexpr Integer() = default;
  constexpr explicit Integer(S v) : value(v) {}
  constexpr Wide wide() const { return static_cast<Wide>(value); }
  static constexpr Integer wrap(Wide v) { return Integer(static_cast<S>(static_cast<Unsigned>(v))); }

  friend constexpr Integer operator+(Integer a, Integer b) { return wrap(a.wide() + b.wide()); }
  friend constexpr Integer operator-(Integer a, Integer b) { return wrap(a.wide() - b.wide()); }
  friend constexpr Integer operator*(Integer a, Integer b) { return wrap(a.wide() * b.wide()); }
  friend constexpr Integer operator-(Integer a) { return wrap(Wide{0} - a.wide()); }
  friend constexpr Integer operator&(Integer a, Integer b) { return wrap(a.wide() & b.wide()); }
  friend constexpr Integer operator|(Integer a, Integer b) { return wrap(a.wide() | b.wide()); }
  friend constexpr Integer operator^(Integer a, Integer b) { return wrap(a.wide() ^ b.wide()); }
  friend constexpr bool operator==(Integer a, Integer b) { return a.value == b.value; }
  friend constexpr auto operator<=>(Integer a, Integer b) { return a.value <=> b.value; }
};

/// Half-precision values, computed in f32; only conversions distinguish them. `value` may be unrepresentable in the half type.
struct Float16 {
  float value;
};
struct BFloat16 {
  float value;
};

template <class T> inline constexpr bool is_wrapping = false;
template <class S> inline constexpr bool is_wrapping<Integer<S>> = true;
template <class T>
concept Wrapping = is_wrapping<T>;
template <class T>
concept Half = std::same_as<T, Float16> || std::same_as<T, BFloat16>;
template <class T> using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;  // bit pattern type of a float type

// ---- floats

template <std::floating_point T> T abs(T a) { return std::fabs(a); }
template <std::floating_point T> T sign(T a) { return a > 0 ? T(1) : a < 0 ? T(-1) : a; }  // ±0 and NaN stay
template <std::floating_point T> T fma(T a, T b, T c) { return std::fma(a, b, c); }
template <std::floating_point T> T sqrt(T a) { return std::sqrt(a); }
template <std::floating_point T> T copysign(T a, T b) { return std::copysign(a, b); }
template <std::floating_point T> T floor(T a) { return std::floor(a); }
template <std::floating_point T> T ceil(T a) { return std::ceil(a); }
template <std::floating_point T> T trunc(T a) { return std::trunc(a); }
template <std::floating_point T> T round(T a) { return std::nearbyint(a); }  // half to even
template <std::floating_point T> bool isinf(T a) { return std::fabs(a) == std::numeric_limits<T>::infinity(); }
template <std::floating_point T> bool isfinite(T a) { return std::fabs(a) < std::numeric_limits<T>::infinity(); }
template <std::floating_point T> bool signbit(T a) { return std::bit_cast<BitsOf<T>>(a) >> (8 * sizeof(T) - 1) != 0; }

/// Computes a * 2^b as two products, of which only the second rounds. b must be an integer; if half of it is outside the exponent range,
/// the result is NaN.
template <std::floating_point T> T ldexp(T a, T b) {
  constexpr int most = 2 * (std::numeric_limits<T>::max_exponent - 2);
  if (!(std::fabs(b) <= T(most))) return std::numeric_limits<T>::quiet_NaN();
  const int n = static_cast<int>(b), half = n >> 1;
  return std::ldexp(std::ldexp(a, half), n - half);
}
/// sqrt(1/2) rounded to the type.
template <std::floating_point T> inline constexpr T kSqrtHalf = sizeof(T) == 4 ? T(0x1.6a09e6p-1f) : T(0x1.6a09e667f3bcdp-1);
/// Returns k of a = 2^k m for a positive finite a, with kSqrtHalf <= m < 2 kSqrtHalf; binary_fraction returns m.
template <std::floating_point T> T binary_exponent(T a) {
  int k = 0;
  const T m = std::frexp(a, &k);  // 1/2 <= m < 1
  return T(m < kSqrtHalf<T> ? k - 1 : k);
}
template <std::floating_point T> T binary_fraction(T a) {
  int k = 0;
  const T m = std::frexp(a, &k);
  return m < kSqrtHalf<T> ? m + m : m;
}
template <std::floating_point T> T log_domain(T a, T b) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  if (a > 0) return a < infinity ? b : infinity;
  return a == 0 ? -infinity : std::numeric_limits<T>::quiet_NaN();
}

// NaN propagates and -0 < +0, so the order of operands or of a reduction does not matter.
template <std::floating_point T> T maximum(T a, T b) {
  if (a != a) return a;
  if (a == b) return signbit(a) ? b : a;
  return a < b || b != b ? b : a;
}
template <std::floating_point T> T minimum(T a, T b) {
  if (a != a) return a;
  if (a == b) return signbit(a) ? a : b;
  return b < a || b != b ? b : a;
}

/// Returns a's part of the cotangent g of maximum(a, b). Branch-free, so that compilers can vectorize it.
template <std::floating_point T> T share(T g, T a, T b) {
  const bool is_returned = (a >= b) | (a != a), ties = (b >= a) | (b != b);
  const T part = ties ? g * T(0.5) : g;
  return is_returned ? part : T(0);
}

/// Returns the floor of the exact quotient, rounded once if it is not representable. IEEE special cases: a/0 is ±inf or NaN, inf/b is ±inf,
/// -1/inf is -0.
///
/// q is the rounded quotient. It can exceed the exact quotient only if it is an integer. The exact residual r = a - q*b (one fma, always
/// representable) decides this. From 2^p on, not all integers are floats. There the floor rounds to a different float than the quotient
/// only if it is the midpoint q - h of two floats. Then q - h, rounded to even, is the result. So the quotient is corrected if r is beyond
/// -(h - 1)*b. For smaller q, h is 1.
template <std::floating_point T> T floor_div(T a, T b) {
  using Bits = BitsOf<T>;
  const T q = a / b;
  const T f = std::floor(q);
  const T below = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(f) + (f > 0 ? ~Bits{0} : Bits{1})));  // the next float down
  const T half_gap = (f - below) * T(0.5);
  const T h = half_gap > T(1) ? half_gap : T(1);
  const T r = std::fma(-f, b, a);
  const T s = std::fma(b, h - T(1), r);  // the sign of an fma is exact
  const bool above = b < 0 ? s > 0 : s < 0;
  return q == f && above ? f - h : f;
}

/// Returns a - b*floor(a/b), with one rounding at the end. The result has the divisor's sign, even if it is zero.
template <std::floating_point T> T remainder(T a, T b) {
  const T r = std::fmod(a, b);  // exact in every library
  if (r == 0) return std::copysign(r, b);
  return (r < 0) != (b < 0) ? r + b : r;  // NaN: both sums are NaN
}

/// Returns a - b*trunc(a/b), exactly. The result has the dividend's sign, even if it is zero.
template <std::floating_point T> T fmod(T a, T b) { return std::fmod(a, b); }

// ---- integers

template <Wrapping T> constexpr T abs(T a) { return a.value < 0 ? -a : a; }
template <Wrapping T> constexpr T sign(T a) { return T(static_cast<typename T::Value>((a.value > 0) - (a.value < 0))); }
template <Wrapping T> constexpr T maximum(T a, T b) { return a.value < b.value ? b : a; }
template <Wrapping T> constexpr T minimum(T a, T b) { return b.value < a.value ? b : a; }
template <Wrapping T> constexpr T bitwise_not(T a) { return T::wrap(~a.wide()); }

/// Rounds down. Division by zero gives 0; the least integer divided by -1 wraps to itself.
template <Wrapping T> constexpr T floor_div(T a, T b) {
  using S = typename T::Value;
  if (b.value == 0) return T(0);
  if constexpr (std::is_signed_v<S>) {
    if (b.value == -1) return -a;
    const S q = static_cast<S>(a.value / b.value), r = static_cast<S>(a.value % b.value);
    return T(static_cast<S>(r != 0 && (r < 0) != (b.value < 0) ? q - 1 : q));
  } else {
    return T(static_cast<S>(a.value / b.value));
  }
}

/// Returns the remainder with the divisor's sign; 0 for a zero divisor.
template <Wrapping T> constexpr T remainder(T a, T b) {
  using S = typename T::Value;
  if (b.value == 0) return T(0);
  if constexpr (std::is_signed_v<S>) {
    if (b.value == -1) return T(0);
    const S r = static_cast<S>(a.value % b.value);
    return T(static_cast<S>(r != 0 && (r < 0) != (b.value < 0) ? r + b.value : r));
  } else {
    return T(static_cast<S>(a.value % b.value));
  }
}

/// Returns the remainder with the dividend's sign; 0 for a zero divisor.
template <Wrapping T> constexpr T fmod(T a, T b) {
  using S = typename T::Value;
  if (b.value == 0) return T(0);
  if constexpr (std::is_signed_v<S>) {
    if (b.value == -1) return T(0);
  }
  return T(static_cast<S>(a.value % b.value));
}

/// Computes a power that wraps. A negative exponent gives 0, except for the bases 1 and -1.
template <Wrapping T> constexpr T integer_pow(T a, T b) {
  using S = typename T::Value;
  if constexpr (std::is_signed_v<S>) {
    if (b.value < 0) return a.value == 1 || (a.value == -1 && (b.value & 1) == 0) ? T(1) : a.value == -1 ? a : T(0);
  }
  T y(1);
  for (auto n = static_cast<typename T::Unsigned>(b.value); n != 0; n = static_cast<typename T::Unsigned>(n >> 1)) {
    if (n & 1) y = y * a;
    a = a * a;
  }
  return y;
}

/// Shifts left. A count of the width or more, or a negative count, gives 0.
template <Wrapping T> constexpr T shift_left(T a, T b) {
  const bool inside = b.value >= 0 && b.wide() < static_cast<typename T::Wide>(T::kWidth);
  return inside ? T::wrap(a.wide() << b.value) : T(0);
}
/// Shifts right, arithmetically for signed integers. A count of the width or more, or a negative count, gives 0, or -1 if a is negative.
template <Wrapping T> constexpr T shift_right(T a, T b) {
  using S = typename T::Value;
  const bool inside = b.value >= 0 && b.wide() < static_cast<typename T::Wide>(T::kWidth);
  return inside ? T(static_cast<S>(a.value >> b.value)) : T(static_cast<S>(a.value < 0 ? -1 : 0));
}
template <Wrapping T> constexpr T popcount(T a) {
  return T(static_cast<typename T::Value>(std::popcount(static_cast<typename T::Unsigned>(a.value))));
}

// ---- bool

constexpr bool maximum(bool a, bool b) { return a || b; }
constexpr bool minimum(bool a, bool b) { return a && b; }
constexpr bool bitwise_not(bool a) { return !a; }

// ---- conversions

/// Rounds to the nearest value of a half type, half to even, with one rounding.
inline float round_to_f16(double x) { return detail::float_of_f16(detail::bits_of_half<10, 5>(x)); }
inline float round_to_bf16(double x) { return detail::float_of_bf16(detail::bits_of_half<7, 8>(x)); }

/// Returns a double that rounds to every format of at most 51 digits like the integer. Lost bits are or-ed into the last bit (sticky bit).
template <std::integral S> double sticky_double(S a) {
  const bool negative = a < 0;
  std::uint64_t m = negative ? std::uint64_t{0} - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a);
  if (m >> 53) m = (m >> 11 | ((m & 0x7ff) != 0)) << 11;
  return negative ? -static_cast<double>(m) : static_cast<double>(m);
}

/// Converts a float to an integer: toward zero, saturating, NaN gives 0.
template <std::integral S, std::floating_point T> S saturate(T a) {
  constexpr int digits = std::numeric_limits<S>::digits;
  const T above = std::bit_cast<T>(static_cast<BitsOf<T>>(static_cast<BitsOf<T>>(digits + std::numeric_limits<T>::max_exponent - 1)
                                                          << (std::numeric_limits<T>::digits - 1)));  // 2^digits
  if (a != a) return 0;
  if (a >= above) return std::numeric_limits<S>::max();
  if constexpr (std::is_signed_v<S>) {
    if (a < -above) return std::numeric_limits<S>::min();
  } else {
    if (a <= T(-1)) return 0;
  }
  return static_cast<S>(a);
}

/// Converts from the operand's type T to R with one rounding of the exact value. A half is first rounded to its own type.
template <class R, class T> R cast(T a) {
  if constexpr (std::same_as<T, Float16>) return cast<R>(round_to_f16(a.value));
  else if constexpr (std::same_as<T, BFloat16>) return cast<R>(round_to_bf16(a.value));
  else if constexpr (std::same_as<T, bool>) return cast<R>(Integer<std::uint8_t>(a));
  else if constexpr (std::same_as<R, bool>) {
    if constexpr (Wrapping<T>) return a.value != 0;
    else return a != T(0);  // NaN is not zero
  } else if constexpr (Wrapping<T>) {
    if constexpr (Wrapping<R>) return R(static_cast<typename R::Value>(a.value));  // modulo 2^width since C++20
    else if constexpr (std::same_as<R, Float16>) return R{round_to_f16(sticky_double(a.value))};
    else if constexpr (std::same_as<R, BFloat16>) return R{round_to_bf16(sticky_double(a.value))};
    else return static_cast<R>(a.value);
  } else {
    if constexpr (Wrapping<R>) return R(saturate<typename R::Value>(a));
    else if constexpr (std::same_as<R, Float16>) return R{round_to_f16(a)};
    else if constexpr (std::same_as<R, BFloat16>) return R{round_to_bf16(a)};
    else return static_cast<R>(a);
  }
}

/// Reinterprets the bytes as another type of the same size. A half is first rounded to its own type; a nonzero byte becomes true.
template <class R, class T> R bitcast(T a) {
  if constexpr (std::same_as<T, Float16>) return bitcast<R>(Integer<std::uint16_t>(detail::bits_of_half<10, 5>(a.value)));
  else if constexpr (std::same_as<T, BFloat16>) return bitcast<R>(Integer<std::uint16_t>(detail::bits_of_half<7, 8>(a.value)));
  else if constexpr (std::same_as<T, bool>) return bitcast<R>(Integer<std::uint8_t>(a));
  else if constexpr (std::same_as<R, bool>) return a.value != 0;
  else if constexpr (std::same_as<R, Float16>) return R{detail::float_of_f16(static_cast<std::uint16_t>(a.value))};
  else if constexpr (std::same_as<R, BFloat16>) return R{detail::float_of_bf16(static_cast<std::uint16_t>(a.value))};
  else if constexpr (Wrapping<T> && Wrapping<R>) return R(static_cast<typename R::Value>(a.value));
  else if constexpr (Wrapping<T>) return std::bit_cast<R>(a.value);
  else if constexpr (Wrapping<R>) return R(std::bit_cast<typename R::Value>(a));
  else return a;
}

}  // namespace onepass::ir::meaning
