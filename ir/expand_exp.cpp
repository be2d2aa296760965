// exp and related functions. "Largest measured error" is the largest error in sweeps as in tests/test_expand.cpp, followed by the
// number of primitives.
#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {

// e^x = (1 + tail) * 2^n. Beyond the clamps the result is 0 or inf; NaN passes through both.
//
// Largest measured error: f32 0.98 ULP with 24 operations; f64 0.96 ULP with 29.
Expr expand_exp(Expr x) {
  const ExpParts e = exp_parts(at_most(at_least(x, choose(x, -105.0, -746.0)), choose(x, 89.0, 710.0)));
  return ldexp(1.0 + e.tail, e.n);
}

// 2^x = 2^n 2^r, with r = x - n exactly. 2^r = 1 + r ln2 + r^2 Q(r), with one rounding at r ln2 and one at 1. Q: tools/fit.py exp2, |r| <=
// 1/2: relative error 2^-32.8 (f32), 2^-63.1 (f64).
//
// Largest measured error: f32 0.84 ULP with 24 operations; f64 0.92 ULP with 29.
Expr expand_exp2(Expr x) {
  const Format& format = format_of(x);
  const Expr clamped = at_most(at_least(x, choose(x, -151.0, -1076.0)), choose(x, 129.0, 1025.0));
  const Expr n = clamped + format.magic - format.magic;
  const Expr r = clamped - n;
  const Expr q = polynomial(r, choose(x, {0.240226507, 0.0555040985, 0.00961807743, 0.00133346347, 0.00015456391, 1.50034639e-05},
                                      {0.24022650695910072, 0.055504108664821639, 0.0096181291076280068, 0.0013333558146401438,
                                       0.00015403530394172315, 1.5252733847439182e-05, 1.3215486200645511e-06, 1.017805439508398e-07,
                                       7.055109743935606e-09, 4.4562454049656662e-10, 2.5450652416277323e-11}));
  return ldexp(1.0 + fma(r, format.ln2, r * r * q), n);
}

// e^x - 1 = 2^n (1 + r + w) - 1 = (2^n - 1) + 2^n r + 2^n w. w is r^2 Q(r) plus the rounding error of r. The rounding errors of the first
// two sums are computed, so only the last rounding error remains. All terms are halved, because 2^n may be 2^128. Near zero the result is
// x.
//
// Largest measured error: f32 0.79 ULP with 38 operations; f64 0.80 ULP with 43.
Expr expand_expm1(Expr x) {
  const ExpSplit e = exp_split(at_most(at_least(x, choose(x, -20.0, -40.0)), choose(x, 89.0, 710.0)));
  const Expr half_power = ldexp_normal(0.5, e.n);
  const Expr whole = half_power - 0.5;
  const Expr part = half_power * e.r;
  const Expr sum = whole + part;
  const Expr lost = part - (sum - whole) + (half_power - whole - 0.5);
  const Expr half = sum + fma(half_power, e.w, lost);
  return where(abs(x) < choose(x, 0x1p-25, 0x1p-54), x, half + half);
}

// A negative x gives e/(1 + e) with e = e^x = (p + p_low) 2^n. A positive x gives 1 minus the value for -x, which hides its errors. The
// quotient p/s uses a reciprocal. It is corrected by the residual p + p_low - q (s + s_low), with s + s_low = 1 + e. A tiny e does
// not change q. It is replaced by a larger one in this sum, because arithmetic with denormal numbers is slow.
//
// Largest measured error: f32 0.97 ULP with 43 operations; f64 0.93 ULP with 48.
Expr expand_sigmoid(Expr x) {
  const ExpParts e = exp_parts(-at_most(abs(x), choose(x, 105.0, 746.0)));
  const Expr p = 1.0 + e.tail;
  const Expr p_low = e.tail - (p - 1.0);
  const Expr power = ldexp_normal(p, at_least(e.n, choose(x, -120.0, -200.0)));
  const Expr s = 1.0 + power;
  const Expr s_low = fma(power, p_low, power - (s - 1.0));
  const Expr r = 1.0 / s;
  const Expr q = p * r;
  const Expr rest = fma(-q, s, p) + fma(-q, s_low, p_low);
  const Expr y = ldexp(fma(rest, r, q), e.n);
  return where(x > 0.0, 1.0 - y, y);
}

}  // namespace onepass::ir
