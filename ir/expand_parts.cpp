// Shared parts of the expansions. See expand_parts.h.
#include "ir/expand_parts.h"

namespace onepass::ir {

const Format& format_of(Expr x) {
  static constexpr Format narrow{DType::U32, 23, 0x3f800000, 0x1p-126, 0x4b000000, 0x1.8p23, 0x1.62e43p-1, -0x1.05c610ca86c39p-29};
  static constexpr Format wide{DType::U64,         52,       0x3ff0000000000000,   0x1p-1022,
                               0x4330000000000000, 0x1.8p52, 0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  return x.dtype() == DType::F32 ? narrow : wide;
}

Expr polynomial(Expr x, const Coefficients& coefficients, double scale) {
  const auto c = [&](int i) { return scale * coefficients.begin()[i]; };
  const auto count = static_cast<int>(coefficients.size());
  const auto horner = [&](Expr step, int first, int stride) {
    int i = first + (count - 1 - first) / stride * stride;
    Expr y = fma(step, c(i), c(i - stride));
    for (i -= 2 * stride; i >= first; i -= stride) y = fma(y, step, c(i));
    return y;
  };
  if (count < 8) return horner(x, 0, 1);
  const Expr square = x * x;
  return fma(fma(horner(square, 2, 2), x, horner(square, 1, 2)), x, c(0));
}

// x = n*ln2 + r with |r| <= ln2/2; e^r = 1 + r + r^2 Q(r). One fma computes x - n*ln2 exactly. For n != 0, x and n*ln2 are multiples of the
// last bit of ln2, and their difference is below 1. Q: tools/fit.py exp, |r| <= 0.3473: relative error of e^r 2^-32.9 (f32), 2^-63.8 (f64).
namespace {
Expr exp_polynomial(Expr r) {
  return polynomial(
      r, choose(r, {0.5, 0.166666642, 0.0416664556, 0.0083338879, 0.00139357895, 0.000195774614},
                {0.5, 0.16666666666666682, 0.041666666666666498, 0.0083333333333175906, 0.0013888888888985399, 0.00019841269895356906,
                 2.4801587118631712e-05, 2.7557235641253266e-06, 2.7557449429412475e-07, 2.5111829445212371e-08, 2.0861329227305682e-09}));
}
}  // namespace

ExpParts exp_parts(Expr x, Expr low) {
  const Format& format = format_of(x);
  const Expr n = fma(x, kLog2E, format.magic) - format.magic;
  const Expr high = fma(n, -format.ln2, x);
  const Expr rest = low ? fma(n, -format.ln2_low, low) : n * -format.ln2_low;
  const Expr r = low ? high + rest : fma(n, -format.ln2_low, high);
  const Expr q = exp_polynomial(r), square = r * r;
  const Expr tail = fma(square, q, r);
  return {tail, fma(square, q, r - tail) + (high - r + rest), n};
}

ExpSplit exp_split(Expr x) {
  const Format& format = format_of(x);
  const Expr n = fma(x, kLog2E, format.magic) - format.magic;
  const Expr high = fma(n, -format.ln2, x);
  const Expr r = fma(n, -format.ln2_low, high);
  const Expr lost = fma(n, -format.ln2_low, high - r);
  const Expr square = r * r;
  const Expr square_lost = fma(r, r, -square);
  return {r, fma(square, exp_polynomial(r), fma(square_lost, 0.5, fma(lost, r, lost))), n};
}

}  // namespace onepass::ir
