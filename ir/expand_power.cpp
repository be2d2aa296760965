// Roots and lengths.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {

// Returns sqrt(1/x): the root halves the quotient's error, while 1/sqrt(x) would keep the root's error. x is scaled away from both ends of
// the range, where 1/x would be denormal or infinite.
//
// Largest measured error: f32 0.85 ULP with 12 operations; f64 0.85 ULP with 12.
Expr expand_rsqrt(Expr x) {
  const Expr lesser = abs(x) < 1.0;
  const Expr moved = x * where(lesser, constant_like(x, choose(x, 0x1p32, 0x1p100)), constant_like(x, choose(x, 0x1p-32, 0x1p-100)));
  const Expr inverse = 1.0 / moved;
  const Expr y = sqrt(inverse) * where(lesser, constant_like(x, choose(x, 0x1p16, 0x1p50)), constant_like(x, choose(x, 0x1p-16, 0x1p-50)));
  const Expr real = where(x == -std::numeric_limits<double>::infinity(), constant_like(x, std::numeric_limits<double>::quiet_NaN()), y);
  return where(x == 0.0, inverse, real);  // -0 gives -inf
}

// |x| = 2^(3k) m, m in [1, 8). z is near m^(-1/3): a polynomial in the fraction (tools/fit.py cbrt: 2^-17), improved for f64 by one Newton
// step. Then w = m z^2 and a last step w + (m - w^3) z^2/3, in which m - w^3 has only one rounding.
//
// Largest measured error: f32 0.51 ULP with 45 operations; f64 0.51 ULP with 51.
Expr expand_cbrt(Expr x) {
  const Format& format = format_of(x);
  const bool narrow = x.dtype() == DType::F32;
  const Expr a = abs(x);
  const Expr denormal = a < format.min_normal;
  const Expr bits = bitcast(where(denormal, a * choose(x, 0x1p24, 0x1p54), a), format.bits);
  // g = exponent field + 1 (f32), - 1 (f64), so that the nearest integer to g/3 is the exponent divided by 3, rounded down
  const Expr number = bitcast((bits >> format.mantissa) | format.power, x.dtype());
  const Expr g = number - choose(x, 0x1p23 - 1, 0x1p52 + 1);
  const Expr shifted = fma(g, 1.0 / 3.0, format.magic);
  const Expr rest = fma(shifted - format.magic, -3.0, g);  // -1, 0, 1: m has the exponent 0, 1, 2
  const Expr k = bitcast(shifted, format.bits);
  const auto at_exponent = [&](int value) { return static_cast<std::uint64_t>(value) << format.mantissa; };
  const Expr m = bitcast(
      bits + constant_bits(bits, at_exponent(narrow ? 129 : 1023)) - (k << format.mantissa) - (k << (format.mantissa + 1)), x.dtype());
  const Expr fraction = bitcast((bits & (at_exponent(1) - 1)) | format.one, x.dtype());

  const Expr start = polynomial(fraction, choose(x, {1.78104949, -1.56599963, 1.24374485, -0.59784472, 0.156062007, -0.0170177501},
                                                 {1.7810494897982845, -1.5659996529230458, 1.2437449614097191, -0.59784486615894838,
                                                  0.15606207935717223, -0.017017762635493063}));
  Expr z = start * where(rest < 0.0, constant_like(x, 1.0),
                         where(rest == 0.0, constant_like(x, 0.79370052598409979), constant_like(x, 0.62996052494743658)));
  if (!narrow) z = fma(z * (1.0 / 3.0), fma(m * z, -(z * z), 1.0), z);
  const Expr square = z * z;
  const Expr w = m * square;
  const Expr w2 = w * w;
  const Expr left = fma(-w, fma(w, w, -w2), fma(-w, w2, m));
  const Expr y = fma(left, square * (1.0 / 3.0), w);
  const Expr offset =
      where(denormal, constant_bits(bits, at_exponent(narrow ? 43 + 8 : 341 + 18)), constant_bits(bits, at_exponent(narrow ? 43 : 341)));
  const Expr result = bitcast(bitcast(y, format.bits) + (k << format.mantissa) - offset, x.dtype());
  const Expr ordinary = (a > 0.0) & (a < std::numeric_limits<double>::infinity());
  return where(ordinary, copysign(result, x), x);
}

// Returns sqrt(a^2 + b^2), with both operands scaled so that their squares stay in range. An infinity takes precedence over NaN.
//
// Largest measured error: f32 0.99 ULP with 21 operations; f64 0.92 ULP with 21.
Expr expand_hypot(Expr a, Expr b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Expr p = abs(a), q = abs(b);
  const Expr swap = p < q;
  const Expr most = where(swap, q, p), least = where(swap, p, q);
  const Expr great = most > choose(a, 0x1p60, 0x1p500), small = most < choose(a, 0x1p-40, 0x1p-450);
  const Expr scale = where(great, constant_like(a, choose(a, 0x1p-64, 0x1p-600)),
                           where(small, constant_like(a, choose(a, 0x1p100, 0x1p600)), constant_like(a, 1.0)));
  const Expr back = where(great, constant_like(a, choose(a, 0x1p64, 0x1p600)),
                          where(small, constant_like(a, choose(a, 0x1p-100, 0x1p-600)), constant_like(a, 1.0)));
  const Expr u = most * scale, v = least * scale;
  const Expr length = sqrt(fma(u, u, v * v)) * back;
  return where((p == kInfinity) | (q == kInfinity), kInfinity, length);
}

}  // namespace onepass::ir
