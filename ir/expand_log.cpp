// log and related functions.
#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
Binary split(Expr x) { return {binary_exponent(x), binary_fraction(x) - 1.0}; }

namespace {

// log(1 + f) = f + f^2 Q(f). Q: tools/fit.py log: relative error of log(1 + f) 2^-27.8 (f32), 2^-56.7 (f64).
Expr log_polynomial(Expr f) {
  return polynomial(
      f, choose(f, {-0.499999881, 0.333333254, -0.250016004, 0.20002, -0.166087627, 0.141812205, -0.132446915, 0.129084811, -0.0762282237},
                {-0.50000000000000033,  0.33333333333332998,   -0.24999999999976463,  0.20000000000093793,   -0.16666666671183311,
                 0.14285714278663203,   -0.12499999613532189,  0.11111111153004109,   -0.10000017694842253,  0.090909257195964155,
                 -0.083328672317165578, 0.076914653906583294,  -0.071499317373193247, 0.066855893026387919,  -0.06194037321400931,
                 0.056608417532596281,  -0.056817189805195394, 0.065266324540778742,  -0.059940405936109435, 0.026091495798792264}));
}

}  // namespace

// high = k ln2 + f is rounded, and its rounding error is computed exactly. high - k ln2 is a multiple of the last bit of ln2 below 1, so
// one fma suffices.
LogParts log_parts(const Binary& b, Expr f_low, bool exact_square) {
  const Format& format = format_of(b.f);
  const Expr high = fma(b.k, format.ln2, b.f);
  Expr lost = b.f - fma(b.k, -format.ln2, high);
  if (f_low) lost = lost + f_low;
  const Expr square = b.f * b.f, q = log_polynomial(b.f);
  Expr low = fma(b.k, format.ln2_low, lost);
  if (exact_square) low = fma(fma(b.f, b.f, -square), q, low);
  return {high, fma(square, q, low)};
}

// Largest measured error: f32 0.89 ULP with 32 operations; f64 0.85 ULP with 43.
Expr expand_log(Expr x) {
  const Binary b = split(x);
  const LogParts s = log_parts(b);
  return log_domain(x, s.high + s.low);
}

// 1 + x = 2^k (1 + f), f = x 2^-k + (2^-k - 1). The rounding error of f matters only for k = 1, where it is computed exactly. 1 + x is
// rounded and only used to find k. 2^-k is computed as 2^(2-k)/4, because it may be denormal. Near zero the result is x.
Expr log1p_of(Expr x, Expr low) {
  const Expr one_more = 1.0 + x;
  const Expr k = binary_exponent(one_more);
  const Expr power = ldexp_normal(4.0, -k);
  const Expr quarter = x * 0.25, offset = fma(power, 0.25, -1.0);
  const Expr f = fma(quarter, power, offset);
  const Expr lost = fma(quarter, power, offset - f);
  const LogParts s = log_parts({k, f}, low ? fma(low * 0.25, power, lost) : lost);
  const Expr small = low ? x + low : x;
  return where(abs(x) < choose(x, 0x1p-25, 0x1p-54), small, log_domain(one_more, s.high + s.low));
}

// Largest measured error: f32 0.96 ULP with 37 operations; f64 0.89 ULP with 48.
Expr expand_log1p(Expr x) { return log1p_of(x); }

// log2 x = k + f log2(e) + f^2 Q(f): powers of two are exact. |f log2(e) + …| <= 1/2, so its rounding error is small compared with k.
//
// Largest measured error: f32 1.00 ULP with 30 operations; f64 0.97 ULP with 41.
Expr expand_log2(Expr x) {
  const Binary b = split(x);
  const double high = choose(x, 0x1.715476p+0, 0x1.71547652b82fep+0), low = choose(x, 0x1.4ae0bf85ddf44p-26, 0x1.777d0ffda0d24p-56);
  const Expr q = polynomial(
      b.f,
      choose(x, {-0.721347332, 0.480898201, -0.360697865, 0.288570076, -0.239596218, 0.204545528, -0.19115901, 0.186520413, -0.110148311},
             {-0.72134752044448225, 0.48089834696298334,   -0.36067376022188008, 0.28853900817903588,   -0.24044917354902604,
              0.20609929146621797,  -0.18033687441082635,  0.16029944888769454,  -0.14426976277359707,  0.13115435715499202,
              -0.1202178171228932,  0.11096396439387674,   -0.10315183289326529, 0.096457239234508593,  -0.08936505132763288,
              0.081643744555251085, -0.081923637998272861, 0.094199116162463334, -0.086632755318986759, 0.037748044987197769}));
  return log_domain(x, b.k + fma(b.f, high, fma(b.f * b.f, q, b.f * low)));
}

// log10 x = (high + low) log10(e). Apart from small terms, the product is rounded once.
//
// Largest measured error: f32 0.99 ULP with 36 operations (1.08 without the exact square); f64 0.90 ULP with 47.
Expr expand_log10(Expr x) {
  const Binary b = split(x);
  const LogParts s = log_parts(b, {}, true);
  const double high = choose(x, 0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2), low = choose(x, -0x1.5b235e39ab2a9p-27, 0x1.95355baaafad3p-57);
  return log_domain(x, fma(s.high, high, fma(s.high, low, s.low * high)));
}

// max + log1p(e^-|a - b|). The second term is at most ln2; near 0, where it cancels max, the error is measured in ulp(1). Equal infinities
// count as having the difference 0.
//
// Largest measured error in units of max(ulp(result), ulp(1)): f32 0.87 with 74 operations; f64 0.91 with 90.
Expr expand_logaddexp(Expr a, Expr b) {
  const Expr most = maximum(a, b);
  const Expr same = a == b;
  const Expr apart = expand_log1p(expand_exp(-abs(where(same, constant_like(a, 0.0), a - b))));
  return most + apart;
}

}  // namespace onepass::ir
