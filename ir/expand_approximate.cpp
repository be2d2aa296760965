// The cheaper expansions of the relaxation `approximate`, within 4 ULP over the ordinary range. In this range neither operand nor result is
// denormal; outside of it results are never denormal. sin and cos are unchanged. NaN, infinities and zeros are still exact.
//
// compiler/relax.cpp replaces operators by these expansions; tests/test_expand.cpp measures them. The expansions of erf and tanh also
// handle denormal numbers, so compiler/halves.cpp uses them as separate operators for halves.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
namespace {

// x = n ln2 + r, e^x = 2^n (1 + tail), tail = r + r^2 Q(r).
struct Reduced {
  Expr r, n;
};
Reduced reduced(Expr x) {
  const Format& format = format_of(x);
  const Expr n = fma(x, kLog2E, format.magic) - format.magic;
  return {fma(n, -format.ln2_low, fma(n, -format.ln2, x)), n};
}
Expr one_and_tail(Expr r, const Coefficients& narrow, const Coefficients& wide) {
  return fma(fma(polynomial(r, choose(r, narrow, wide)), r, 1.0), r, 1.0);
}

// For f64: e^r - 1 = r + r^2 Q. tools/fit.py expm1: relative error 2^-55.5.
constexpr std::initializer_list<double> kExpm1Wide = {
    0.50000000000000056,    0.16666666666666599,   0.041666666666573253,   0.0083333333333826653,  0.001388888893257687,
    0.00019841269735131449, 2.480150413776706e-05, 2.7557392079016693e-06, 2.7626471886121321e-07, 2.5059001318527693e-08};
// (1 - e^(-2s))/2 = s + s^2 Q. tools/fit.py expm1 with r = -2s: relative error 2^-26.1 (f32), 2^-55.5 (f64).
constexpr std::initializer_list<double> kTanhNarrow = {-0.99999994, 0.66666168, -0.333339959, 0.133867398, -0.0443693511},
                                        kTanhWide = {-1.0000000000000011,    0.66666666666666397,    -0.33333333333258602,
                                                     0.13333333333412264,    -0.044444444584245985,  0.012698412630484128,
                                                     -0.0031745925296341837, 0.00070546923722282734, -0.00014144753605694116,
                                                     2.5660417350172357e-05};
// For f32. tools/fit.py exp_few: relative error of e^r 2^-23.2.
constexpr std::initializer_list<double> kExpNarrow = {0.499992251, 0.166671157, 0.041891057, 0.00831266772};

// Returns e^x, if it is normal.
Expr exp_in_range(Expr x) {
  const Reduced e = reduced(x);
  return ldexp_normal(one_and_tail(e.r, kExpNarrow, kExpm1Wide), e.n);
}

// The result is normal from `least` on, and finite up to `most`.
Expr approximate_exp(Expr x) {
  const double least = choose(x, -87.3, -708.3), most = choose(x, 0x1.62e42ep+6, 0x1.62e42fefa39efp+9);
  return where(x < least, 0.0, where(x > most, std::numeric_limits<double>::infinity(), exp_in_range(at_least(x, least))));
}

// Returns 1/(1 + e^-x). e^-x may leave its range only if the result is then 0 or 1.
Expr approximate_sigmoid(Expr x) {
  const double limit = choose(x, 87.0, 708.0);
  return where(x < -limit, 0.0, 1.0 / (1.0 + exp_in_range(-at_most(x, limit))));
}

// With m = (1 - e^(-2|x|))/2, tanh |x| = m/(1 - m). For |x| = s - n ln2/2, m = 2^n (s + s^2 Q) + (1 - 2^n)/2; near zero the first part is
// exact. The rounding error of ln2, times n, is multiplied by 2^n with n <= 0, so it is negligible.
Expr approximate_tanh(Expr x) {
  const Format& format = format_of(x);
  const Expr clamped = at_most(abs(x), choose(x, 10.0, 20.0));
  const Expr n = fma(clamped, -2 * kLog2E, format.magic) - format.magic;
  const Expr s = fma(n, format.ln2 / 2, clamped);
  const Expr tail = fma(s * s, polynomial(s, choose(s, kTanhNarrow, kTanhWide)), s);
  const Expr power = ldexp_normal(1.0, n);
  const Expr m = fma(power, tail, fma(power, -0.5, 0.5));
  return copysign(m / (1.0 - m), x);
}

// Q: tools/fit.py log_few: relative error 2^-25.0 (f32), 2^-51.6 (f64).
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
  return log_domain(x, fma(b.k, format.ln2, b.f + fma(b.k, format.ln2_low, log_tail(b.f))));
}

// Returns 1 - erfc a, for a >= 17/16. The 8th root of erfc is nearly linear, so it is a short polynomial, squared three times: half the
// operations of an exponential. erfc is at most 0.14 there, so its rounding errors have little effect. An even power is not negative,
// so no result exceeds 1. tools/fit.py erfc_root: relative error of erf 2^-26.5 (f32), 2^-54.0 (f64).
Expr erf_large(Expr a) {
  const Expr root =
      polynomial(at_most(a, choose(a, 4.0, 6.0)),
                 choose(a, {1.00097764, -0.145597398, -0.0606029779, -0.0120331515, 0.0132167079, -0.00253661908, 0.000156113936},
                        {0.99999978325759531, -0.14104539088724069, -0.069638914001256325, -0.0020671519200747748, 0.0065522847989198281,
                         0.00022964905453794429, -0.00054798604501946893, 0.00010775810065377288, -9.9658851072480435e-06,
                         -6.8401087159168076e-07, 1.1956726967304078e-06, -4.8523199694822337e-07, 1.0828494166590074e-07,
                         -1.4985529766382111e-08, 1.3070704709170388e-09, -6.7046534536805211e-11, 1.5641821807312458e-12}));
  const Expr second = root * root, fourth = second * second;
  return fma(-fourth, fourth, 1.0);
}

// Computes erf like the strict expansion, with fewer terms. tools/fit.py erf_few: relative error of erf 2^-23.6 (f32).
Expr approximate_erf(Expr x) {
  const Expr a = abs(x);
  const Expr p =
      a.dtype() == DType::F64
          ? erf_polynomial(a)
          : polynomial(fma(a, a, -0.5), {-0.0345312059, -0.281071633, 0.0794066489, -0.0182928666, 0.00351194106, -0.000534435385});
  return copysign(where(a >= 1.0625, erf_large(a), fma(a, p, a)), x);
}

Expr approximate_rsqrt(Expr x) { return 1.0 / sqrt(x); }

}  // namespace

Expr expand_erf_short(Expr x) { return approximate_erf(x); }
Expr expand_tanh_short(Expr x) { return approximate_tanh(x); }

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
