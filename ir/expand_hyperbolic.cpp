// tanh and related functions.
#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {

// |x| < 1: x + x^3 P(x^2). Otherwise 1 - 2/(e^(2|x|) + 1); the subtraction hides the errors of the quotient. NaN takes the polynomial. P:
// tools/fit.py tanh: relative error 2^-30.8 (f32), 2^-59.8 (f64).
//
// Largest measured error: f32 0.93 ULP with 35 operations; f64 0.92 ULP with 48.
Expr expand_tanh(Expr x) {
  const Expr a = abs(x);
  const Expr u = a * a;
  const Expr p = polynomial(
      u, choose(x, {-0.333333284, 0.13333182, -0.0539517738, 0.0217799675, -0.0085856691, 0.00306808739, -0.000834991573, 0.000119999124},
                {-0.33333333333333298, 0.13333333333329123, -0.053968253966492644, 0.021869488498757375, -0.0088632350548659058,
                 0.0035921240787648943, -0.0014558114783637843, 0.00058993176566423701, -0.00023883342521417199, 9.622786364337101e-05,
                 -3.8063547434740244e-05, 1.4279346100384973e-05, -4.7576023981458002e-06, 1.2711512520872101e-06, -2.329757218018893e-07,
                 2.1302115488460966e-08}));
  const Expr small = fma(a * u, p, a);
  const Expr clamped = at_most(a, choose(x, 10.0, 20.0));  // tanh rounds to 1 above 9.02 (f32) or 19.07 (f64)
  const ExpParts e = exp_parts(clamped + clamped);
  const Expr large = 1.0 - 2.0 / (ldexp_normal(1.0 + e.tail, e.n) + 1.0);
  return copysign(where(a >= 1.0, large, small), x);
}

namespace {

// Returns e^a / 2 for a >= 0; finite whenever sinh and cosh are finite.
Expr half_exp(Expr a) {
  const ExpParts e = exp_parts(at_most(a, choose(a, 90.0, 712.0)));
  return ldexp(1.0 + e.tail, e.n - 1.0);
}

}  // namespace

// |x| < 1: x + x^3 P(x^2). Otherwise h - 1/(4h), h = e^|x|/2. P: tools/fit.py sinh: relative error 2^-31.4 (f32), 2^-61.5 (f64).
//
// Largest measured error: f32 1.60 ULP with 35 operations; f64 1.62 ULP with 43.
Expr expand_sinh(Expr x) {
  const Expr a = abs(x);
  const Expr u = a * a;
  const Expr small = fma(a * u,
                         polynomial(u, choose(x, {0.166666672, 0.00833331514, 0.000198416645, 2.7899996e-06},
                                              {0.16666666666666669, 0.0083333333333329689, 0.00019841269841532839, 2.7557319129808462e-06,
                                               2.5052126949655944e-08, 1.6056993221402335e-10, 7.7661164029177142e-13})),
                         a);
  const Expr h = half_exp(a);
  return copysign(where(a >= 1.0, h - 0.25 / h, small), x);
}

// Largest measured error: f32 1.42 ULP with 26 operations; f64 1.41 ULP with 31.
Expr expand_cosh(Expr x) {
  const Expr h = half_exp(abs(x));
  return h + 0.25 / h;
}

// asinh |x| = log1p(|x| + x^2/(1 + sqrt(1 + x^2))). For a large |x|, whose square would overflow, the result is log |x| + ln2.
//
// Largest measured error: f32 1.73 ULP with 50 operations; f64 1.65 ULP with 61.
Expr expand_asinh(Expr x) {
  const Format& format = format_of(x);
  const Expr a = abs(x);
  const Expr great = a > choose(x, 0x1p30, 0x1p60);
  const Expr b = where(great, constant_like(x, 1.0), a);
  const Expr square = b * b;
  const Expr y = expand_log1p(where(great, a, b + square / (1.0 + sqrt(1.0 + square))));
  return copysign(where(great, y + format.ln2, y), x);
}

// acosh x = log1p(t + sqrt(2t + t^2)), t = x - 1. A large x is treated as in asinh. x < 1 gives NaN.
//
// Largest measured error: f32 1.38 ULP with 55 operations; f64 1.45 ULP with 66.
Expr expand_acosh(Expr x) {
  const Format& format = format_of(x);
  const Expr great = x > choose(x, 0x1p30, 0x1p60);
  const Expr t = where(great, constant_like(x, 1.0), x - 1.0);
  const Expr root = sqrt(where(t < 0.0, t, fma(t, t, t + t)));
  const Expr sum = t + root;
  const Expr lost = t - (sum - root);
  const Expr zero = constant_like(x, 0.0);
  const Expr y = log1p_of(where(great, x, sum), where(great, zero, lost));
  return where(great, y + format.ln2, y);
}

// atanh |x| = log1p(2|x|/(1 - |x|))/2, with the quotient corrected by its residual. Near zero, where its half could be denormal, the result
// is x.
//
// Largest measured error: f32 1.23 ULP with 58 operations; f64 1.13 ULP with 69.
Expr expand_atanh(Expr x) {
  const Expr a = abs(x);
  const Expr twice = a + a;
  const Expr d = 1.0 - a;
  const Expr d_low = 1.0 - d - a;
  const Expr r = 1.0 / d;
  const Expr q = twice * r;
  const Expr left = fma(-q, d, twice) - q * d_low;
  const Expr y = 0.5 * log1p_of(q, where(a < 1.0, left * r, 0.0));
  return copysign(where(a < choose(x, 0x1p-13, 0x1p-28), a, y), x);
}

}  // namespace onepass::ir
