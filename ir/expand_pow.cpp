// pow. Its logarithm has two parts, high + low, because y multiplies its error.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Pair {
  Expr high, low;
};

// Returns a b exactly (T. J. Dekker 1971, with fma).
Pair product(Expr a, Expr b) {
  const Expr p = a * b;
  return {p, fma(a, b, -p)};
}

// Returns a + b exactly, for |a| >= |b| or a = 0.
Pair sum(Expr a, Expr b) {
  const Expr s = a + b;
  return {s, b - (s - a)};
}

// log x = k ln2 + s (2 + z (2/3 + z R(z))), with s = f/(2 + f), z = s^2, and f from Binary. Its relative error is 2^-34 (f32), 2^-64 (f64).
// The products are pairs up to z (2/3 + ...). z R(z) is below 1/80 of that, so the type's precision is enough for it. R: tools/fit.py
// log_ratio.
Pair log_pair(Expr x) {
  const Format& format = format_of(x);
  const Binary b = split(x);
  const Expr above = b.f + 2.0;
  const Expr above_low = b.f - (above - 2.0);
  const Expr inverse = 1.0 / above;
  const Expr s = b.f * inverse;
  const Expr s_low = fma(-s, above_low, fma(-s, above, b.f)) * inverse;
  const Pair square = product(s, s);
  const Expr z = square.high, z_low = fma(s + s, s_low, square.low);

  const Expr r =
      z * polynomial(z, choose(z, {0.400001526, 0.285470903, 0.234196544},
                               {0.40000000000000002, 0.28571428571427077, 0.22222222222625587, 0.18181818123493493, 0.15384620425152612,
                                0.13333061327200993, 0.11773901169499575, 0.10338926362087182, 0.11584680401531017}));
  const Pair c = sum(constant_like(x, choose(x, 0x1.555556p-1, 0x1.5555555555555p-1)), r);
  const Expr c_low = c.low + choose(x, -0x1.555556p-26, 0x1.5555555555555p-55);
  const Pair v = product(z, c.high);
  const Expr v_low = fma(z, c_low, fma(z_low, c.high, v.low));
  const Pair e = product(s, v.high);
  const Expr e_low = fma(s, v_low, fma(s_low, v.high, e.low));

  const Pair whole = product(b.k, constant_like(x, format.ln2));
  const Pair first = sum(whole.high, s + s);
  const Pair second = sum(first.high, e.high);
  const Expr low = fma(s_low, 2.0, e_low) + (fma(b.k, format.ln2_low, whole.low) + (first.low + second.low));
  return {second.high, low};
}

}  // namespace

// |x|^y = e^(y log |x|), with the exponent as a pair. Special cases follow C's Annex F. The result has the sign of x if y is an odd
// integer. It is NaN if x is negative and y is not an integer. It is 1 if x = 1 or y = 0, whatever the other operand is.
//
// Largest measured error: f32 0.98 ULP with 115 operations; f64 0.98 ULP with 127.
Expr expand_pow(Expr x, Expr y) {
  const Expr a = abs(x);
  const Expr zero = constant_like(x, 0.0);
  const Pair l = log_pair(a);
  const Expr high = where(a == 0.0, -kInfinity, where(a < kInfinity, l.high, kInfinity));
  const Expr p = y * high;
  const Expr p_low = fma(y, l.low, fma(y, high, -p));
  const Expr limit_low = constant_like(x, choose(x, -105.0, -746.0)), limit_high = constant_like(x, choose(x, 89.0, 710.0));
  const Expr clamped = where(p < limit_low, limit_low, where(p > limit_high, limit_high, p));
  const ExpParts e = exp_parts(clamped, where(clamped == p, p_low, zero));
  const Expr power = where(a == 1.0, 1.0, ldexp(1.0 + e.tail, e.n));

  const Expr integer = trunc(y) == y;
  const Expr half = y * 0.5;
  const Expr odd = integer & (trunc(half) != half);
  const Expr with_sign = where(odd, copysign(power, x), power);
  const Expr outside = (x < 0.0) & (a < kInfinity) & ~integer;
  const Expr real = where(outside | isnan(x) | isnan(y), constant_like(x, std::numeric_limits<double>::quiet_NaN()), with_sign);
  return where((x == 1.0) | (y == 0.0), 1.0, real);
}

}  // namespace onepass::ir
