// The cheaper expansions of relaxation `approximate`: within 4 ULP over the ordinary range, which is where neither operand nor result is
// denormal and sin and cos are as they were; no denormal results. NaN, infinities and zeros still come out right. compiler/relax.cpp
// puts them in the place of the operators; tests/test_expand.cpp measures them.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// x = n ln2 + r, e^x = 2^n (1 + tail), tail = r + r^2 Q(r).
struct Exponential {
  Expr tail, n;
};
Exponential exponential(Expr x, const Coefficients& narrow, const Coefficients& wide) {
  const Format& format = format_of(x);
  const Expr n = fma(x, kLog2E, format.magic) - format.magic;
  const Expr r = fma(n, -format.ln2_low, fma(n, -format.ln2, x));
  return {fma(r * r, polynomial(r, choose(x, narrow, wide)), r), n};
}

// e^r - 1 = r + r^2 Q. tools/fit.py expm1: relative error 2^-26.1 (f32), 2^-55.5 (f64).
constexpr std::initializer_list<double> kExpm1Narrow = {0.49999997, 0.16666542, 0.0416674949, 0.00836671237, 0.00138654222},
                                        kExpm1Wide = {0.50000000000000056,   0.16666666666666599,    0.041666666666573253,
                                                      0.0083333333333826653, 0.001388888893257687,   0.00019841269735131449,
                                                      2.480150413776706e-05, 2.7557392079016693e-06, 2.7626471886121321e-07,
                                                      2.5059001318527693e-08};

// e^x where it is normal. Q of f32: tools/fit.py exp_few: relative error of e^r 2^-23.2.
Expr exp_in_range(Expr x) {
  const Exponential e = exponential(x, {0.499992251, 0.166671157, 0.041891057, 0.00831266772}, kExpm1Wide);
  const Expr power = ldexp_normal(1.0, e.n);
  return fma(power, e.tail, power);
}

Expr approximate_exp(Expr x) {
  const Expr finite = where(x > choose(x, 88.37, 709.4), kInfinity, exp_in_range(x));
  return where(x < choose(x, -87.3, -708.3), 0.0, finite);
}

// 1/(1 + e^-x); e^-x may leave the range where 1 hides it.
Expr approximate_sigmoid(Expr x) {
  const double limit = choose(x, 87.0, 708.0);
  return where(x < -limit, 0.0, 1.0 / (1.0 + exp_in_range(-at_most(x, limit))));
}

// With m = e^(-2|x|) - 1, tanh |x| = -m/(m + 2): near zero m is r + r^2 Q, whose first part is exact.
Expr approximate_tanh(Expr x) {
  const Expr clamped = at_most(abs(x), choose(x, 10.0, 20.0));
  const Exponential e =
      exponential(clamped * -2.0, {0.49999997, 0.16666542, 0.0416674949, 0.00836671237, 0.00138654222},
                  {0.50000000000000056, 0.16666666666666599, 0.041666666666573253, 0.0083333333333826653, 0.001388888893257687,
                   0.00019841269735131449, 2.480150413776706e-05, 2.7557392079016693e-06, 2.7626471886121321e-07, 2.5059001318527693e-08});
  const Expr power = ldexp_normal(1.0, e.n);
  const Expr m = fma(power, e.tail, power - 1.0);
  return copysign(m / (m + 2.0), x);
}

// log x with edges, x no denormal. Q: tools/fit.py log_few: relative error 2^-25.0 (f32), 2^-51.6 (f64).
Expr log_with_edges(Expr x, Expr y) {
  const Expr finite = where(x < kInfinity, y, x);
  return where(x >= format_of(x).min_normal, finite, where(x >= 0.0, constant_like(x, -kInfinity), kNaN));
}

Expr log_tail(Expr f) {  // log(1 + f) - f
  return f * f *
         polynomial(f, choose(f, {-0.499999911, 0.333339512, -0.250017911, 0.199620664, -0.16569823, 0.149173737, -0.14311552, 0.087411046},
                              {-0.49999999999998423, 0.33333333333331783, -0.25000000000778289, 0.20000000001111781, -0.16666666554820184,
                               0.14285714071386885, -0.12500007165153565, 0.11111128530121514, -0.099997615509106547, 0.090901912224874093,
                               -0.083376001923553267, 0.077084866132820951, -0.071057450282844423, 0.064672060396801109,
                               -0.063132367356052987, 0.0709459776375823, -0.066869338403217723, 0.030630610121330219}));
}

Expr approximate_log(Expr x) {
  const Binary b = split(x);
  const Format& format = format_of(x);
  return log_with_edges(x, fma(b.k, format.ln2, b.f + fma(b.k, format.ln2_low, log_tail(b.f))));
}

// |x| < 17/16 as it is; else 1 - e^q without what q's product lost.
Expr approximate_erf(Expr x) {
  const Expr a = abs(x);
  const Expr clamped = at_most(a, choose(x, 4.0, 6.0));
  const Expr large = 1.0 - exp_in_range(clamped * erfc_log_polynomial(clamped));
  return copysign(where(a >= 1.0625, large, fma(a, erf_polynomial(a), a)), x);
}

Expr approximate_rsqrt(Expr x) { return 1.0 / sqrt(x); }

}  // namespace

Expr approximation(Op op, Expr x) {
  if (x.dtype() != DType::F32 && x.dtype() != DType::F64) return {};
  switch (op) {
    case Op::Exp: return approximate_exp(x);
    case Op::Log: return approximate_log(x);
    case Op::Sigmoid: return approximate_sigmoid(x);
    case Op::Tanh: return approximate_tanh(x);
    case Op::Erf: return approximate_erf(x);
    case Op::Rsqrt: return approximate_rsqrt(x);
    default: return {};
  }
}

}  // namespace onepass::ir
