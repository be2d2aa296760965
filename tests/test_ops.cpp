// Every elementwise operator against an oracle that is independent of ops.def. op_cases.def has one row for each operator. Tests every
// accepted type with edge values and random bits. Strided, broadcast, constant, rank-0 and empty operands, and kernels, must give the same
// bits.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/graph.h"
#include "ir/reference.h"
#include "random_graph.h"
#include "run_partition.h"
#include "special_oracle.h"

using namespace onepass;
using namespace onepass::ir;

// ---- a missing row does not compile

namespace {
constexpr Op kCases[] = {
#define CASE(id, ...) Op::id,
#include "op_cases.def"
};
constexpr bool covers_every_op(std::span<const Op> cases) {
  for (int op = 0; op < kOpCount; ++op)
    if (std::ranges::count(cases, static_cast<Op>(op)) != (is_elementwise(static_cast<Op>(op)) ? 1 : 0)) return false;
  return true;
}
}  // namespace
static_assert(covers_every_op(kCases), "each operator needs exactly one row in tests/op_cases.def");

#ifndef ONEPASS_HAVE_MPFR
TEST_CASE("ops: the oracle is missing", "[ops]") { WARN("SKIPPED: built without MPFR, so no operator was compared with its oracle"); }
#else
#include <mpfr.h>

namespace {

// ---- executors of graphs: a new mode is one more line

using Executor = std::vector<Buffer> (*)(const Graph&, std::span<const ArrayView>);
struct NamedExecutor {
  const char* name;
  Executor run;
};
const NamedExecutor kExecutors[] = {
    {"reference", [](const Graph& graph, std::span<const ArrayView> inputs) { return evaluate(graph, inputs); }},
};

// ---- types: C++ types, and halves as bits

__extension__ typedef __int128 Wide;  // holds every product of two 64-bit integers

struct F16 {
  std::uint16_t bits;
  static constexpr int kDigits = 11, kLeast = -24, kAbove = 16;
};
struct BF16 {
  std::uint16_t bits;
  static constexpr int kDigits = 8, kLeast = -133, kAbove = 128;
};
template <class T>
concept Half = std::same_as<T, F16> || std::same_as<T, BF16>;
template <class T>
concept Real = std::floating_point<T>;
template <class T>
concept Whole = std::integral<T> && !std::same_as<T, bool>;

template <class T> constexpr DType type_of() {
  if constexpr (std::same_as<T, F16>) return f16;
  else if constexpr (std::same_as<T, BF16>) return bf16;
  else return dtype<T>;
}

template <Half H> double double_of_half(H h) {
  const int fraction = H::kDigits - 1, exponent = (h.bits & 0x7fff) >> fraction, mantissa = h.bits & ((1 << fraction) - 1);
  const double sign = h.bits & 0x8000 ? -1 : 1;
  if (exponent == 0x7fff >> fraction)
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, H::kLeast);
  return sign * std::ldexp(mantissa | 1 << fraction, H::kLeast + exponent - 1);
}
// Returns the half with exactly this value.
template <Half H> H half_of_double(double x) {
  const int fraction = H::kDigits - 1;
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const auto make = [&](std::uint32_t magnitude) { return H{static_cast<std::uint16_t>(sign | magnitude)}; };
  if (std::isnan(x)) return make(0x7fff);
  if (std::isinf(x)) return make((0x7fffu >> fraction) << fraction);
  int exponent = 0;
  if (x != 0) std::frexp(x, &exponent);
  const int biased = exponent - 1 - (H::kLeast + fraction) + 1;
  if (x == 0 || biased <= 0) return make(static_cast<std::uint32_t>(std::ldexp(std::fabs(x), -H::kLeast)));
  const auto mantissa = static_cast<std::uint32_t>(std::ldexp(std::fabs(x), fraction - exponent + 1));
  return make(static_cast<std::uint32_t>(biased) << fraction | (mantissa & ((1u << fraction) - 1)));
}

// Result, and the distance in ULP from it up to the exact value.
template <class R> struct Answer {
  R value;
  double above = 0;
  Answer(R v, double d = 0) : value(v), above(d) {}
};

// ---- the oracles

namespace oracle {

struct Number {
  mpfr_t value;
  explicit Number(long precision) { mpfr_init2(value, precision); }
  ~Number() { mpfr_clear(value); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
};

// Rounds correctly into a format. mpfr_subnormalize needs the direction of the first rounding.
inline void narrow(mpfr_t x, int ternary, int least, int above) {
  const auto low = mpfr_get_emin(), high = mpfr_get_emax();
  mpfr_set_emin(least + 1);
  mpfr_set_emax(above);
  ternary = mpfr_check_range(x, ternary, MPFR_RNDN);
  mpfr_subnormalize(x, ternary, MPFR_RNDN);
  mpfr_set_emin(low);
  mpfr_set_emax(high);
}

template <Real T> inline constexpr int kLeast = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;

template <Real T> T value_of(mpfr_t x, int ternary) {
  narrow(x, ternary, kLeast<T>, std::numeric_limits<T>::max_exponent);
  return static_cast<T>(mpfr_get_d(x, MPFR_RNDN));
}

/// Returns f(result, operands…, rounding), correctly rounded to T.
template <class F, Real T, class... Ts> T exact(F f, T a, Ts... more) {
  static Number x(53), y(53), z(53), out(std::numeric_limits<T>::digits);
  mpfr_ptr in[] = {x.value, y.value, z.value};
  const T operands[] = {a, more...};
  for (std::size_t i = 0; i < std::size(operands); ++i) mpfr_set_d(in[i], operands[i], MPFR_RNDN);
  int ternary = 0;
  if constexpr (sizeof...(Ts) == 0) ternary = f(out.value, in[0], MPFR_RNDN);
  else if constexpr (sizeof...(Ts) == 1) ternary = f(out.value, in[0], in[1], MPFR_RNDN);
  else ternary = f(out.value, in[0], in[1], in[2], MPFR_RNDN);
  return value_of<T>(out.value, ternary);
}

/// Returns the same result with its distance to the exact value.
template <class F, Real T, class... Ts> Answer<T> close(F f, T a, Ts... more) {
  static Number x(53), y(53), out(200);
  const T rounded = exact(f, a, more...);
  if (!std::isfinite(rounded)) return rounded;
  mpfr_set_d(x.value, a, MPFR_RNDN);
  (mpfr_set_d(y.value, more, MPFR_RNDN), ...);
  if constexpr (sizeof...(Ts) == 0) f(out.value, x.value, MPFR_RNDN);
  else f(out.value, x.value, y.value, MPFR_RNDN);
  mpfr_sub_d(out.value, out.value, rounded, MPFR_RNDN);
  int exponent = 0;
  if (rounded != 0) std::frexp(rounded, &exponent);
  const int ulp = std::max(exponent - std::numeric_limits<T>::digits, kLeast<T>);
  mpfr_mul_2si(out.value, out.value, rounded == 0 ? -kLeast<T> : -ulp, MPFR_RNDN);
  return {rounded, mpfr_get_d(out.value, MPFR_RNDN)};
}

// Functions that MPFR lacks, from intermediate results so long that their rounding has no effect.
inline int rsqrt(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
  return mpfr_zero_p(x) ? mpfr_ui_div(y, 1, x, round) : mpfr_rec_sqrt(y, x, round);
}
inline int sigmoid(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
  static Number z(400);
  mpfr_neg(z.value, x, MPFR_RNDN);
  mpfr_exp(z.value, z.value, MPFR_RNDN);
  mpfr_add_ui(z.value, z.value, 1, MPFR_RNDN);
  return mpfr_ui_div(y, 1, z.value, round);
}
inline int logaddexp(mpfr_ptr y, mpfr_srcptr a, mpfr_srcptr b, mpfr_rnd_t round) {
  static Number z(400);
  if (mpfr_nan_p(a) || mpfr_nan_p(b)) return mpfr_set_nan(y), 0;
  if (mpfr_equal_p(a, b) && mpfr_inf_p(a)) return mpfr_set(y, a, round);
  mpfr_sub(z.value, a, b, MPFR_RNDN);
  mpfr_abs(z.value, z.value, MPFR_RNDN);
  mpfr_neg(z.value, z.value, MPFR_RNDN);
  mpfr_exp(z.value, z.value, MPFR_RNDN);
  mpfr_log1p(z.value, z.value, MPFR_RNDN);
  return mpfr_add(y, z.value, mpfr_greater_p(a, b) ? a : b, round);
}

template <Whole T> T wrap(Wide x) { return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x & ~std::uint64_t{0})); }
template <Whole T> Wide wide(T x) { return x; }
template <Whole T> inline constexpr int kWidth = 8 * static_cast<int>(sizeof(T));

template <Real T> T neg(T a) { return exact(mpfr_neg, a); }
template <Whole T> T neg(T a) { return wrap<T>(-wide(a)); }
template <Real T> T abs(T a) { return exact(mpfr_abs, a); }
template <Whole T> T abs(T a) { return wrap<T>(wide(a) < 0 ? -wide(a) : wide(a)); }
template <Real T> T sign(T a) { return std::isnan(a) || a == 0 ? a : std::signbit(a) ? T(-1) : T(1); }
template <Whole T> T sign(T a) { return wrap<T>(a == 0 ? 0 : wide(a) < 0 ? -1 : 1); }
template <Real T> T add(T a, T b) { return exact(mpfr_add, a, b); }
template <Whole T> T add(T a, T b) { return wrap<T>(wide(a) + wide(b)); }
template <Real T> T sub(T a, T b) { return exact(mpfr_sub, a, b); }
template <Whole T> T sub(T a, T b) { return wrap<T>(wide(a) - wide(b)); }
template <Real T> T mul(T a, T b) { return exact(mpfr_mul, a, b); }
template <Whole T> T mul(T a, T b) {  // an unsigned product of 64 bits would overflow
  if constexpr (std::is_unsigned_v<T>)
    return wrap<T>(wide(static_cast<T>(a & 0xffffffff)) * wide(b) +
                   (wide(wrap<T>(wide(static_cast<T>(wide(a) >> 32)) * wide(static_cast<T>(b & 0xffffffff)))) << 32));
  else return wrap<T>(wide(a) * wide(b));
}
template <Real T> T div(T a, T b) { return exact(mpfr_div, a, b); }
template <Real T> T fma(T a, T b, T c) { return exact(mpfr_fma, a, b, c); }
template <Real T> T sqrt(T a) { return exact(mpfr_sqrt, a); }
template <Real T> T copysign(T a, T b) { return exact(mpfr_copysign, a, b); }
template <Real T> T floor(T a) {
  return exact([](mpfr_t y, mpfr_t x, mpfr_rnd_t) { return mpfr_floor(y, x); }, a);
}
template <Real T> T ceil(T a) {
  return exact([](mpfr_t y, mpfr_t x, mpfr_rnd_t) { return mpfr_ceil(y, x); }, a);
}
template <Real T> T trunc(T a) {
  return exact([](mpfr_t y, mpfr_t x, mpfr_rnd_t) { return mpfr_trunc(y, x); }, a);
}
template <Real T> T round(T a) {
  return exact([](mpfr_t y, mpfr_t x, mpfr_rnd_t) { return mpfr_roundeven(y, x); }, a);
}
template <Real T> T ldexp(T a, T n) {
  return exact([](mpfr_ptr y, mpfr_srcptr x, mpfr_srcptr k, mpfr_rnd_t round) { return mpfr_mul_2si(y, x, mpfr_get_si(k, round), round); },
               a, n);
}
template <Real T> T binary_fraction(T a) {
  const T m = std::scalbn(a, -std::ilogb(a));
  return m >= static_cast<T>(std::sqrt(2.0L)) ? m / 2 : m;
}
template <Real T> T binary_exponent(T a) { return static_cast<T>(std::ilogb(a) + (binary_fraction(a) < 1 ? 1 : 0)); }
template <Real T> T log_domain(T a, T b) {
  if (std::isnan(a) || a < 0) return std::numeric_limits<T>::quiet_NaN();
  return a == 0 || std::isinf(a) ? std::log(a) : b;
}
template <Real T> T mul0(T g, T d) { return g == 0 ? T(0) : mul(g, d); }
/// Returns a's part of cotangent g of maximum(a, b); see docs/language.md, "Derivatives".
template <Real T> T share(T g, T a, T b) {
  if (std::isnan(a) != std::isnan(b)) return std::isnan(a) ? g : T(0);
  if (std::isnan(a) || a == b) return mul(g, T(0.5));
  return a > b ? g : T(0);
}

// Two finite numbers a and b as integers in units of 2^exponent.
struct Integers {
  mpz_t a, b, out;
  long exponent = 0;
  Integers(double x, double y) {
    mpz_inits(a, b, out, nullptr);
    int ex = 0, ey = 0;
    const double mx = std::ldexp(std::frexp(x, &ex), 53), my = std::ldexp(std::frexp(y, &ey), 53);
    mpz_set_d(a, mx);
    mpz_set_d(b, my);
    exponent = std::min(ex, ey) - 53;
    mpz_mul_2exp(a, a, static_cast<unsigned long>(ex - 53 - exponent));
    mpz_mul_2exp(b, b, static_cast<unsigned long>(ey - 53 - exponent));
  }
  ~Integers() { mpz_clears(a, b, out, nullptr); }
  template <class T> T rounded(long unit) {
    Number x(std::numeric_limits<T>::digits);
    return value_of<T>(x.value, mpfr_set_z_2exp(x.value, out, unit, MPFR_RNDN));
  }
};
template <Real T> T floor_div(T a, T b) {
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return div(a, b);  // NaN, ±inf and ±0 equal their floors
  Integers i(a, b);
  mpz_fdiv_q(i.out, i.a, i.b);
  return i.rounded<T>(0);
}
template <Real T> T remainder(T a, T b) {
  if (std::isnan(a) || std::isnan(b) || std::isinf(a) || b == 0) return std::numeric_limits<T>::quiet_NaN();
  if (a == 0) return std::copysign(T(0), b);
  if (std::isinf(b)) return std::signbit(a) == std::signbit(b) ? a : b;  // a + 1*b
  Integers i(a, b);
  mpz_fdiv_r(i.out, i.a, i.b);
  return mpz_sgn(i.out) == 0 ? std::copysign(T(0), b) : i.rounded<T>(i.exponent);
}
template <Whole T> Wide floored(T a, T b) {
  Wide q = wide(a) / wide(b);
  while (q * wide(b) > wide(a) ? wide(b) > 0 : q * wide(b) < wide(a) && wide(b) < 0) --q;
  return q;
}
template <Whole T> T floor_div(T a, T b) { return b == 0 ? T(0) : wrap<T>(floored(a, b)); }
template <Whole T> T remainder(T a, T b) { return b == 0 ? T(0) : wrap<T>(wide(a) - floored(a, b) * wide(b)); }

template <Real T> T fmod(T a, T b) { return exact(mpfr_fmod, a, b); }
template <Whole T> T fmod(T a, T b) { return b == 0 ? T(0) : wrap<T>(wide(a) % wide(b)); }
template <Whole T> T integer_pow(T a, T b) {  // computes the sign separately, and the magnitude modulo 2^width
  if (wide(b) < 0) return a == 1 ? T(1) : wide(a) == -1 ? wrap<T>(wide(b) % 2 == 0 ? 1 : -1) : T(0);
  mpz_t base, exponent, modulus, out;
  mpz_inits(base, exponent, modulus, out, nullptr);
  mpz_set_ui(base, static_cast<unsigned long>(wide(a) < 0 ? -wide(a) : wide(a)));
  mpz_set_ui(exponent, static_cast<unsigned long>(b));
  mpz_setbit(modulus, static_cast<mp_bitcnt_t>(kWidth<T>));
  mpz_powm(out, base, exponent, modulus);
  const Wide magnitude = mpz_get_ui(out);
  mpz_clears(base, exponent, modulus, out, nullptr);
  return wrap<T>(wide(a) < 0 && wide(b) % 2 != 0 ? -magnitude : magnitude);
}

// Returns -1, 0 or 1, or 2 if an operand is NaN.
template <class T> int compare(T a, T b) {
  if constexpr (Real<T>) {
    if (std::isunordered(a, b)) return 2;
  }
  return a < b ? -1 : b < a ? 1 : 0;
}
template <class T> T maximum(T a, T b) {
  if constexpr (Real<T>) {
    if (std::isunordered(a, b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) && std::signbit(b) ? T(-0.0) : T(0);
  }
  return std::max(a, b);
}
template <class T> T minimum(T a, T b) {
  if constexpr (Real<T>) {
    if (std::isunordered(a, b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) || std::signbit(b) ? T(-0.0) : T(0);
  }
  return std::min(a, b);
}

// Applies a truth table bitwise: the result is bit 2*a + b of `table` for each pair of bits.
template <class T> T bits(T a, T b, unsigned table) {
  constexpr std::size_t width = std::same_as<T, bool> ? 1 : 8 * sizeof(T);
  const std::bitset<width> x(static_cast<std::uint64_t>(a)), y(static_cast<std::uint64_t>(b));
  std::bitset<width> out;
  for (std::size_t i = 0; i < width; ++i) out[i] = table >> (2 * x[i] + y[i]) & 1;
  return static_cast<T>(out.to_ullong());
}
template <Whole T> T popcount(T a) { return static_cast<T>(std::bitset<kWidth<T>>(static_cast<std::uint64_t>(a)).count()); }
template <Whole T> T shift_left(T a, T b) {
  if (wide(b) < 0 || wide(b) >= kWidth<T>) return 0;
  for (T i = 0; i < b; ++i) a = add(a, a);
  return a;
}
template <Whole T> T shift_right(T a, T b) {
  if (wide(b) < 0 || wide(b) >= kWidth<T>) return wrap<T>(wide(a) < 0 ? -1 : 0);
  for (T i = 0; i < b; ++i) a = floor_div(a, T(2));
  return a;
}
template <class T> T choose(bool a, T b, T c) {
  if (a) return b;
  return c;
}

template <class R, class T> R cast(T a) {
  if constexpr (Half<T>) return cast<R>(double_of_half(a));
  else if constexpr (std::same_as<T, bool>) return cast<R>(a ? 1 : 0);
  else if constexpr (std::same_as<R, bool>) return !(a == 0);
  else if constexpr (Whole<T> && Whole<R>) return wrap<R>(wide(a));
  else if constexpr (Real<T> && Whole<R>) {
    if (std::isnan(a)) return 0;
    if (a >= std::ldexp(1.0, std::numeric_limits<R>::digits)) return std::numeric_limits<R>::max();
    if (a <= -std::ldexp(1.0, std::numeric_limits<R>::digits)) return std::numeric_limits<R>::min();
    return static_cast<R>(std::max<Wide>(static_cast<Wide>(a), std::numeric_limits<R>::min()));
  } else {
    constexpr bool half = Half<R>;
    constexpr int digits = [] {
      if constexpr (half) return R::kDigits;
      else return std::numeric_limits<R>::digits;
    }();
    constexpr int least = [] {
      if constexpr (half) return R::kLeast;
      else return kLeast<R>;
    }();
    constexpr int above = [] {
      if constexpr (half) return R::kAbove;
      else return std::numeric_limits<R>::max_exponent;
    }();
    static Number x(digits);
    int ternary = 0;
    if constexpr (Real<T>) ternary = mpfr_set_d(x.value, a, MPFR_RNDN);
    else if constexpr (std::is_signed_v<T>) ternary = mpfr_set_si(x.value, a, MPFR_RNDN);
    else ternary = mpfr_set_ui(x.value, a, MPFR_RNDN);
    if constexpr (Whole<T>)
      if (a == 0) return cast<R>(0.0);
    narrow(x.value, ternary, least, above);
    const double value = mpfr_get_d(x.value, MPFR_RNDN);
    if constexpr (half) return half_of_double<R>(value);
    else return static_cast<R>(value);
  }
}

template <class R, class T> R bitcast(T a) {
  R out;
  if constexpr (std::same_as<R, bool>) {
    std::uint8_t byte;
    std::memcpy(&byte, &a, 1);
    return byte != 0;
  } else {
    std::memcpy(&out, &a, sizeof out);
    return out;
  }
}

}  // namespace oracle

// ---- operand ranges

template <class R, class... Ts> bool everywhere(Ts...) { return true; }
template <class T> double number(T x) {
  if constexpr (Half<T>) return double_of_half(x);
  else return static_cast<double>(x);
}
template <class R, class T> bool not_nan(T a, T, T) { return !std::isnan(number(a)); }
/// The sign of a NaN is not part of the bitwise guarantee.
template <class R, class T> bool known_sign(T, T b, T) { return !std::isnan(b); }
/// Excludes results below 1: their error is measured in units of ulp(1).
template <class R, class T> bool sum_counts(T a, T b, T) {
  const double most = std::max(static_cast<double>(a), static_cast<double>(b)),
               least = std::min(static_cast<double>(a), static_cast<double>(b));
  return !(std::fabs(most + std::log1p(std::exp(least - most))) < 1);
}
/// Excludes results below 1 for the same reason.
template <class R, class T> bool lgamma_counts(T a, T, T) { return !(std::fabs(std::lgamma(static_cast<double>(a))) < 1); }
template <class R, class T> bool digamma_counts(T a, T, T) { return !(std::fabs(test::digamma(static_cast<double>(a))) < 1); }
/// True in the operand range of ldexp.
template <class R, class T> bool scales(T a, T n, T) {
  return std::isnormal(a) && a > 0 && a <= 2 && n == std::trunc(n) && std::fabs(n) <= (sizeof(T) == 4 ? 252 : 2044);
}
template <class R, class T> bool scales_to_normal(T a, T n, T) {
  return std::isnormal(a) && n == std::trunc(n) && std::fabs(n) <= (sizeof(T) == 4 ? 252 : 2044) &&
         std::isnormal(std::scalbn(a, static_cast<int>(n)));
}
template <class R, class T> bool positive(T a, T, T) { return a > 0 && std::isfinite(a); }
/// True if an integer result can hold the truncated value.
template <class R, class T> bool fits(T a, T, T) {
  if constexpr (Whole<R> && (Real<T> || Half<T>)) {
    const double x = std::trunc(number(a)), above = std::ldexp(1.0, std::numeric_limits<R>::digits);
    return x < above && x >= (std::is_signed_v<R> ? -above : 0.0);
  }
  return true;
}

template <Op> struct Case;
#define CASE(id, expression, range, error)                                                                                           \
  template <> struct Case<Op::id> {                                                                                                  \
    static constexpr double ulp = error;                                                                                             \
    template <class R, class T, class A> static Answer<R> answer([[maybe_unused]] A a, [[maybe_unused]] T b, [[maybe_unused]] T c) { \
      return Answer<R>(expression);                                                                                                  \
    }                                                                                                                                \
    template <class R, class A, class T> static bool tried(A a, T b, T c) { return range<R>(a, b, c); }                              \
  };
#include "op_cases.def"

// ---- operand values

template <class T> T from_bits(std::uint64_t bits) {
  T out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

template <class T> const std::vector<T>& edges() {
  static const std::vector<T> values = [] {
    std::vector<T> v;
    if constexpr (std::same_as<T, bool>) {
      v = {false, true};
    } else if constexpr (Half<T>) {
      for (unsigned bits = 0; bits < 0x10000; bits += 37) v.push_back(T{static_cast<std::uint16_t>(bits)});
      for (unsigned bits :
           {0x8000u, 1u, 0x8001u, 0x3c00u, 0x3f80u, 0x7c00u, 0xfc00u, 0x7f80u, 0xff80u, 0x7bffu, 0x7f7fu, 0x7fffu, 0x400u, 0x80u})
        v.push_back(T{static_cast<std::uint16_t>(bits)});
    } else if constexpr (Whole<T>) {
      using L = std::numeric_limits<T>;
      for (int i = -9; i <= 9; ++i) v.push_back(static_cast<T>(i));
      for (T x : {L::max(), L::min()})
        for (int i = -2; i <= 2; ++i) v.push_back(oracle::wrap<T>(oracle::wide(x) + i));
      for (int k = 3; k < oracle::kWidth<T>; k += 5)
        for (int i = -1; i <= 1; ++i) v.push_back(oracle::wrap<T>((Wide{1} << k) + i)), v.push_back(oracle::wrap<T>(-(Wide{1} << k) + i));
      v.push_back(static_cast<T>(oracle::kWidth<T>));
      v.push_back(static_cast<T>(oracle::kWidth<T> - 1));
    } else {
      using L = std::numeric_limits<T>;
      for (T x : {T(0),
                  L::denorm_min(),
                  L::min() - L::denorm_min(),
                  L::min(),
                  L::min() * 3,
                  T(0.1),
                  T(0.5),
                  T(1) - L::epsilon() / 2,
                  T(1),
                  T(1) + L::epsilon(),
                  T(1.5),
                  T(2),
                  T(2.5),
                  T(3),
                  T(3.141592653589793),
                  T(7),
                  T(10),
                  T(88.72284),
                  T(100),
                  T(127.5),
                  T(255.9),
                  T(32768),
                  T(65520),
                  T(65519),
                  std::ldexp(T(1), L::digits - 2) + T(0.5),
                  std::ldexp(T(1), L::digits - 1) - T(0.5),
                  std::ldexp(T(1), L::digits) - 1,
                  std::ldexp(T(1), L::digits),
                  T(2147483648.0),
                  T(4294967296.0),
                  T(9223372036854775808.0),
                  T(18446744073709551616.0),
                  T(3e20),
                  T(3.3e38),
                  L::max() / 2,
                  L::max(),
                  L::infinity(),
                  L::quiet_NaN()})
        v.push_back(x), v.push_back(-x);
    }
    return v;
  }();
  return values;
}

template <class T> T random_value(std::mt19937_64& random) {
  if constexpr (std::same_as<T, bool>) return random() & 1;
  else if constexpr (Real<T>) {
    switch (random() % 4) {
      case 0: return from_bits<T>(random());  // all exponents are equally likely
      case 1:
        return static_cast<T>(std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), static_cast<int>(random() % 60) - 90));
      case 2: return static_cast<T>(static_cast<std::int64_t>(random() % 2001) - 1000) * T(0.25);
      default: return edges<T>()[random() % edges<T>().size()];
    }
  } else if constexpr (Whole<T>) {
    return static_cast<T>(random() >> (random() % 64));
  } else {
    return T{static_cast<std::uint16_t>(random())};
  }
}

// The tested operands: all combinations of edge values, thinned if there are very many, then random operands. They are the same for all
// operators.
template <class A, class T> struct Operands {
  std::vector<A> a;
  std::vector<T> b, c;
  void add(A x, T y, T z) { a.push_back(x), b.push_back(y), c.push_back(z); }
};
template <class A, class T> Operands<A, T> operands(int arity, int random_count) {
  Operands<A, T> out;
  std::mt19937_64 random(1000 * static_cast<std::uint64_t>(type_of<T>()) + static_cast<std::uint64_t>(arity));
  const std::size_t others = arity > 1 ? edges<T>().size() : 1, thirds = arity > 2 ? edges<T>().size() : 1;
  for (std::size_t i = 0; i < edges<A>().size(); ++i)
    for (std::size_t j = 0; j < others; ++j)
      for (std::size_t k = 0; k < thirds; k += 1 + random() % (arity > 2 ? 40 : 1)) out.add(edges<A>()[i], edges<T>()[j], edges<T>()[k]);
  for (int i = 0; i < random_count; ++i) out.add(random_value<A>(random), random_value<T>(random), random_value<T>(random));
  return out;
}

// ---- the comparison, on bytes, so that it is compiled once

struct Trial {
  Op op;
  DType types[3];
  DType result;
  double ulp;  // the largest allowed error
  std::int64_t n = 0;
  std::vector<std::byte> operands[3];
  std::vector<std::byte> expected;
  std::vector<double> above;  // distance in ULP from the expected value up to the exact value
};

template <class T> void append(std::vector<std::byte>& bytes, T value) {
  bytes.resize(bytes.size() + sizeof value);
  std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
}
std::uint64_t bits_at(const std::vector<std::byte>& bytes, DType dtype, std::size_t i) {
  std::uint64_t bits = 0;
  for (std::size_t k = size_of(dtype); k-- > 0;) bits = bits << 8 | static_cast<std::uint64_t>(bytes[i * size_of(dtype) + k]);
  return bits;
}
double number_of(DType dtype, std::uint64_t bits) {
  if (dtype == f16) return double_of_half(F16{static_cast<std::uint16_t>(bits)});
  if (dtype == bf16) return double_of_half(BF16{static_cast<std::uint16_t>(bits)});
  return double_of(dtype, bits);
}
bool same_bits(DType dtype, std::uint64_t x, std::uint64_t y) {
  return x == y || (is_float(dtype) && std::isnan(number_of(dtype, x)) && std::isnan(number_of(dtype, y)));
}

// Returns the error in ULP. Wrong NaNs, signs of zero and integers have an infinite error.
double error(DType dtype, std::uint64_t got, std::uint64_t expected, double above) {
  if (same_bits(dtype, got, expected)) return std::fabs(above);
  const double x = number_of(dtype, got), y = number_of(dtype, expected);
  if ((dtype != f32 && dtype != f64) || std::isnan(x) || std::isnan(y) || std::signbit(x) != std::signbit(y))
    return std::numeric_limits<double>::infinity();
  // Both values have the same sign, so the difference of the bits is the number of floats between them.
  const double steps = static_cast<double>(static_cast<std::int64_t>(got - expected));
  return std::fabs(steps - (std::signbit(y) ? -above : above));
}

// Returns a graph of the operator on `shape`. `made` creates operand k if it is not an input of that shape.
using Made = std::function<NodeId(Graph&, int)>;
Graph graph_of(const Trial& t, std::vector<std::int64_t> shape, const Made& made = {}) {
  Graph g;
  const ListId s = g.intern(shape);
  std::vector<std::int64_t> ids;
  for (int k = 0; k < info(t.op).arity; ++k) {
    NodeId id = made ? made(g, k) : kNoNode;
    if (id == kNoNode) id = g.add_input(std::string(1, static_cast<char>('a' + k)), t.types[k], shape);
    ids.push_back(id);
  }
  g.outputs = {g.add(Node{t.op, t.result, s, g.intern(ids), 0, 0})};
  verify(g, "test");
  return g;
}

std::string describe(DType dtype, std::uint64_t bits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g (0x%llx)", number_of(dtype, bits), static_cast<unsigned long long>(bits));
  return text;
}

void check(const Trial& t, const NamedExecutor& executor) {
  const int arity = info(t.op).arity;
  const std::int64_t n = t.n;
  const auto count = static_cast<std::size_t>(n);
  INFO(info(t.op).text << " on " << name_of(t.types[arity - 1]) << " giving " << name_of(t.result) << ", " << executor.name);
  std::vector<ArrayView> inputs;
  for (int k = 0; k < arity; ++k) inputs.push_back({t.types[k], t.operands[k].data(), {n}, {}});
  const Buffer out = std::move(executor.run(graph_of(t, {n}), inputs)[0]);
  const auto right = [&](const Buffer& buffer, std::size_t at, std::size_t i) {  // equal to the plain run's element i
    return same_bits(t.result, bits_at(buffer.bytes, t.result, at), bits_at(out.bytes, t.result, i));
  };

  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (const double e = error(t.result, bits_at(out.bytes, t.result, i), bits_at(t.expected, t.result, i), t.above[i]); e > worst)
      worst = e, where = i;
  std::string operands;
  for (int k = 0; k < arity; ++k) operands += " " + describe(t.types[k], bits_at(t.operands[k], t.types[k], where));
  INFO("worst at" << operands << ": got " << describe(t.result, bits_at(out.bytes, t.result, where)) << ", right is "
                  << describe(t.result, bits_at(t.expected, t.result, where)) << " and " << t.above[where] << " ULP");
  CHECK(worst <= t.ulp);

  // The same elements with stride -2.
  std::vector<std::vector<std::byte>> spread;
  std::vector<ArrayView> strided;
  for (int k = 0; k < arity; ++k) {
    const std::size_t size = size_of(t.types[k]);
    std::vector<std::byte>& bytes = spread.emplace_back(2 * count * size);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + 2 * (count - 1 - i) * size, t.operands[k].data() + i * size, size);
    strided.push_back({t.types[k], bytes.data() + 2 * (count - 1) * size, {n}, {-2}});
  }
  const Buffer from_strided = std::move(executor.run(graph_of(t, {n}), strided)[0]);
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) different += !right(from_strided, i, i);
  CHECK(different == 0);

  // Rank 0, and the last operand broadcast from one element or a constant.
  const DType last = t.types[arity - 1];
  for (std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
    std::vector<ArrayView> scalars, lengthened = inputs;
    for (int k = 0; k < arity; ++k) scalars.push_back({t.types[k], t.operands[k].data() + i * size_of(t.types[k]), {}, {}});
    CHECK(right(executor.run(graph_of(t, {}), scalars)[0], 0, i));
    const Made broadcast = [&](Graph& g, int k) {
      if (k + 1 != arity) return kNoNode;
      return g.add(Op::Broadcast, last, g.intern({n}), {g.add_input("one", last, std::vector<std::int64_t>{1})});
    };
    lengthened.back() = {last, scalars.back().data, {1}, {}};
    CHECK(right(executor.run(graph_of(t, {n}, broadcast), lengthened)[0], i, i));
    if (is_half(last)) continue;  // constants hold halves as f32
    const Made constant = [&](Graph& g, int k) {
      return k + 1 == arity ? g.constant(last, g.intern({n}), bits_at(t.operands[k], last, i)) : kNoNode;
    };
    lengthened.pop_back();
    CHECK(right(executor.run(graph_of(t, {n}, constant), lengthened)[0], i, i));
  }

  std::vector<ArrayView> nothing;
  for (int k = 0; k < arity; ++k) nothing.push_back({t.types[k], nullptr, {0, 3}, {}});
  CHECK(executor.run(graph_of(t, {0, 3}), nothing)[0].bytes.empty());
}

// Checks that kernels of every register width give the reference's bits, for every accepted type.
void check_kernels(const Trial& t) {
  const int arity = info(t.op).arity;
  std::vector<ArrayView> inputs;
  for (int k = 0; k < arity; ++k) inputs.push_back({t.types[k], t.operands[k].data(), {t.n}, {}});
  const Graph graph = graph_of(t, {t.n});
  const Buffer expected = std::move(evaluate(graph, inputs)[0]);
  const compiler::Target& host = compiler::Target::host();
  for (const int bytes : {64, 32}) {
    if (bytes > host.vector_bytes) continue;
    const Buffer got = std::move(test::run(graph, inputs, {.target = host.with_vector_bytes(bytes), .masked = bytes == 32})[0]);
    std::string what;
    const bool same = test::equals_bitwise(got, expected, &what);
    INFO(info(t.op).text << " on " << name_of(t.types[arity - 1]) << " giving " << name_of(t.result) << ", vectors of " << bytes
                         << " bytes: " << what);
    CHECK(same);
  }
}

template <Op kOp, class T, class R> void run_case() {
  using A = std::conditional_t<info(kOp).types == TypeRule::Choose, bool, T>;
  constexpr int arity = info(kOp).arity;
  static constexpr int random_count = info(kOp).kind == OpKind::Expanded ? 20000 : 3000;
  static const Operands<A, T>& all = *new Operands<A, T>(operands<A, T>(arity, random_count));
  Trial t{kOp, {type_of<A>(), type_of<T>(), type_of<T>()}, type_of<R>(), Case<kOp>::ulp};
  for (std::size_t i = 0; i < all.a.size(); ++i) {
    const A a = all.a[i];
    const T b = all.b[i], c = all.c[i];
    if (!Case<kOp>::template tried<R, A, T>(a, b, c)) continue;
    append(t.operands[0], a), append(t.operands[1], b), append(t.operands[2], c);
    const Answer<R> answer = Case<kOp>::template answer<R, T, A>(a, b, c);
    append(t.expected, answer.value);
    t.above.push_back(answer.above);
    ++t.n;
  }
  if (t.n == 0) return;
  for (const NamedExecutor& executor : kExecutors) check(t, executor);
  check_kernels(t);
}

template <class F> void for_each_type(F&& f) {
  f.template operator()<bool>();
  f.template operator()<std::int8_t>();
  f.template operator()<std::int16_t>();
  f.template operator()<std::int32_t>();
  f.template operator()<std::int64_t>();
  f.template operator()<std::uint8_t>();
  f.template operator()<std::uint16_t>();
  f.template operator()<std::uint32_t>();
  f.template operator()<std::uint64_t>();
  f.template operator()<float>();
  f.template operator()<double>();
}
template <class F> void for_each_type_and_half(F&& f) {
  for_each_type(f);
  f.template operator()<F16>();
  f.template operator()<BF16>();
}

template <class T> constexpr bool takes(TypeRule rule) {
  switch (rule) {
    case TypeRule::Number: return !std::same_as<T, bool>;
    case TypeRule::Float:
    case TypeRule::Predicate: return Real<T>;
    case TypeRule::Bits: return std::integral<T>;
    case TypeRule::Integer: return Whole<T>;
    default: return true;
  }
}

template <Op kOp> void run_all_types() {
  constexpr TypeRule rule = info(kOp).types;
  if constexpr (rule == TypeRule::Convert || rule == TypeRule::Reinterpret) {
    for_each_type_and_half([]<class T>() {
      for_each_type_and_half([]<class R>() {
        if constexpr (rule == TypeRule::Convert || sizeof(T) == sizeof(R)) run_case<kOp, T, R>();
      });
    });
  } else {
    for_each_type([]<class T>() {
      // the type rule in the table agrees with the test's
      const std::vector<DType> types =
          rule == TypeRule::Choose ? std::vector{boolean, dtype<T>, dtype<T>} : std::vector<DType>(info(kOp).arity, dtype<T>);
      DType out{};
      REQUIRE(result_dtype(kOp, types, out) == takes<T>(rule));
      if constexpr (takes<T>(rule))
        run_case<kOp, T, std::conditional_t<rule == TypeRule::Compare || rule == TypeRule::Predicate, bool, T>>();
    });
  }
}

}  // namespace

#define CASE(id, ...) \
  TEST_CASE("ops: " #id, "[ops]") { run_all_types<Op::id>(); }
#include "op_cases.def"
#endif
