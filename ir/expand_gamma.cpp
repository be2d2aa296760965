// The logarithm of the gamma function and its derivative. Both functions have zeros at points that are not floats. So their errors are
// measured in units of the last place of the result or of 1, whichever is larger.
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// log Gamma(v + 3/2), |v| <= 1/2. tools/fit.py lgamma: error 2^-28.0 (f32), 2^-57.7 (f64).
Expr lgamma_polynomial(Expr v) {
  return fma(v, v, -0.25) *
         polynomial(v, choose(v,
                              {0.483128965, -0.145959824, 0.0629101917, -0.0313135199, 0.0168238804, -0.00933314487, 0.00522044674,
                               -0.00381204276, 0.00267837942},
                              {0.48312895054098087,    -0.145959895914306,      0.062911401074573353,   -0.031308487501036313,
                               0.016797098630117281,   -0.0094256224461710253,  0.005446457901957409,   -0.0032120741732545657,
                               0.0019229145344041106,  -0.0011644122726458415,  0.0007115482371428132,  -0.00043802529443292914,
                               0.00027102181723594057, -0.00016863709802896056, 0.00010716198796338692, -6.768178778261287e-05,
                               3.6283256400352642e-05, -2.2032203694622389e-05, 2.7086326075446996e-05, -1.8041115178629647e-05}));
}

// Maps x in [0, 3) to y = v + 3/2 in [1, 2]: Gamma(x) = Gamma(y)/x below 1, Gamma(y) y above 2. `factor` is that x or y, else 1.
struct Shifted {
  Expr v, factor;
};
Shifted shifted(Expr x) {
  const Expr below = x<1.0, above = x> 2.0;
  const Expr one = constant_like(x, 1.0);
  return {x - where(below, constant_like(x, 0.5), where(above, constant_like(x, 2.5), constant_like(x, 1.5))),
          where(below, x, where(above, x - 1.0, one))};
}

// Returns lgamma(x) for x < 0. Down to -16 (f32) or -28 (f64), Gamma(x) = Gamma(x + n)/(x (x + 1) ... (x + n - 1)) with x + n in [1, 2].
// The factors are exact, and their product includes its rounding errors. So there is no cancellation near a negative integer, where the
// result is small.
//
// For smaller x, Gamma(x) Gamma(-x) = -pi/(x sin(pi x)). `opposite` is lgamma(-x). sin(pi t) = t S(t^2): tools/fit.py sinpi: 2^-25.1 (f32),
// 2^-54.5 (f64).
Expr lgamma_of_negative(Expr x, Expr opposite) {
  const Expr zero = constant_like(x, 0.0), one = constant_like(x, 1.0);
  const int limit = choose(x, 16, 28);
  const Expr far = x < static_cast<double>(-limit);
  Expr p = x, lost = zero;
  for (int k = 1; k <= limit; ++k) {
    const Expr next = x + static_cast<double>(k);
    const Expr factor = where(next < 1.0, next, one);
    const Expr product = p * factor;
    lost = fma(lost, factor, fma(p, factor, -product));
    p = product;
  }
  const Expr whole = floor(x);
  const Expr t = x - round(x);
  const Expr sine =
      t * polynomial(t * t, choose(t, {3.14159274, -5.16771507, 2.55014515, -0.598635375, 0.0782470033},
                                   {3.1415926535897931, -5.1677127800499472, 2.5501640398760839, -0.59926452928915896, 0.082145886184679703,
                                    -0.007370427622802031, 0.00046628759579368638, -2.1875954241087829e-05, 7.4417725716808902e-07}));
  const Expr of = where(far, x * (sine * 0.31830988618379067), p);
  const Expr logarithm = [&] {
    const LogParts parts = log_parts(split(abs(of)));
    return parts.high + (parts.low + where(far, zero, lost / p));
  }();
  const Expr near = lgamma_polynomial(x - whole - 0.5) - logarithm;
  return where(x == whole, kInfinity, where(far, -opposite - logarithm, near));
}

}  // namespace

// x >= 3: (x - 1/2) (log x - 1) + (log(2 pi) - 1)/2 + T(1/x^2)/x, with the logarithm in two parts. T: tools/fit.py binet: error 2^-32.1
// (f32), 2^-58.3 (f64).
Expr expand_lgamma(Expr x) {
  const Expr a = abs(x);
  const Expr great = a >= 3.0;
  const Shifted s = shifted(a);
  const LogParts log = log_parts(split(where(great, a, s.factor)));
  const Expr r = 1.0 / where(great, a, constant_like(a, 3.0));
  const Expr binet =
      r * polynomial(r * r, choose(r, {0.0833333284, -0.00277731894, 0.000780243659, -0.000432389381},
                                   {0.083333333333333134, -0.0027777777776089663, 0.00079365075135550518, -0.00059523316996185939,
                                    0.00084142766130494619, -0.0019042534124659722, 0.0060454153838604436, -0.022482121987084915,
                                    0.077499902519917493, -0.19190276034928613, 0.23596966210519929}));
  const Expr m = a - 0.5;
  const Expr stirling = fma(m, log.high - 1.0, fma(m, log.low, 0.41893853320467274 + binet));
  const Expr whole = log.high + log.low;
  const Expr small = lgamma_polynomial(s.v) + where(a < 1.0, -whole, whole);
  const Expr of_magnitude = where(a == 0.0, kInfinity, where(a < kInfinity, where(great, stirling, small), a));
  return rare(x < 0.0, lgamma_of_negative(x, of_magnitude), of_magnitude);
}

// z is x, or 1 - x for x < 0: digamma(x) = digamma(z) - pi cot(pi x). z < 3 is moved to [1, 2] by digamma(z) = digamma(z + 1) - 1/z. A
// greater z gives log z - 1/(2z) - T(1/z^2)/z^2. All terms that may cancel with the cotangent have two parts: pi cot(pi t) = 1/t - t
// D(t^2). tools/fit.py digamma, digamma_great, cotpi: error 2^-27.3, 2^-32.7 and 2^-25.9 (f32), 2^-57.9, 2^-59.7 and 2^-56.6 (f64).
Expr expand_digamma(Expr x) {
  const Expr zero = constant_like(x, 0.0);
  const Expr negative = x < 0.0;
  const Expr z = where(negative, 1.0 - x, x);
  const Expr great = z >= 3.0;
  const Shifted s = shifted(z);
  const Expr q = 1.0 / where(great, z, s.factor);
  const LogParts log = log_parts(split(z));
  const Expr u = q * q;
  const Expr tail = fma(-u,
                        polynomial(u, choose(u, {0.0833332911, -0.00832947344, 0.00385564659, -0.00278023304},
                                             {0.083333333333331081, -0.0083333333318629989, 0.0039682536319284225, -0.004166627731190543,
                                              0.0075730766596201803, -0.020972472852386299, 0.079593220548534627, -0.35876606131460909,
                                              1.5946419093614306, -5.7774071681074197, 13.996640866358307, -16.292866782650226})),
                        q * -0.5);
  const Expr middle = polynomial(
      s.v, choose(s.v,
                  {0.0364899747, 0.934802294, -0.4143987, 0.234840289, -0.1447438, 0.0928013101, -0.060613241, 0.0380202495, -0.0245486312,
                   0.0239293613, -0.0168981943},
                  {0.03648997397857652,    0.93480220054467944,    -0.41439832211716077,   0.23484850566702317,     -0.14476040944429672,
                   0.09261290502560314,    -0.060358227517123796,  0.039725830218551562,   -0.026288733642050015,   0.017450362625540509,
                   -0.011604083249474198,  0.0077243245036701692,  -0.00514488418817261,   0.0034293475837760159,   -0.0022860491379709195,
                   0.0015151312464257583,  -0.001007339140932578,  0.0007102145705408313,  -0.00048137081724467401, 0.00021180298492870807,
                   -0.0001277830100696501, 0.00026039514656580833, -0.00018340704613230228}));
  const Expr correction = where(z < 1.0, -q, where(z > 2.0, q, zero));
  const Expr high = where(great, log.high, middle), low = where(great, log.low + tail, correction);
  const Expr plain = where(z < kInfinity, high + low, z);

  const Expr t = x - round(x);
  const Expr c = 1.0 / t;
  const Expr c_low = where(abs(c) < kInfinity, fma(-c, t, 1.0) * c, zero);
  const Expr d =
      t * polynomial(t * t, choose(t, {3.28986859, 2.16458702, 2.0370326, 1.96680737, 2.37341666, 0.266733736, 5.76341867},
                                   {3.2898681336964533, 2.1646464674219952, 2.0346861240247267, 2.0081547073532966, 2.0019894057131715,
                                    2.0004840656706246, 2.0002945970507997, 1.9974870109642155, 2.0267995807382468, 1.7967941937582159,
                                    3.1074794463729849, -2.2648392483577942, 13.162217554525071, -16.287249710486559, 17.272642371102986}));
  const Expr sum = high - c;
  const Expr back = sum - high;
  const Expr lost = high - (sum - back) - (c + back);
  const Expr reflected = sum + (where(abs(sum) < kInfinity, lost, zero) + (low + (d - c_low)));
  return rare(negative, where(x == floor(x), kNaN, reflected), plain);
}

// Returns the sum of 1/(z + k)^2 over k < n, plus the asymptotic series 1/w + 1/(2w^2) + B2/w^3 + B4/w^5 + ... at w = z + n. B are the
// Bernoulli numbers; the first omitted term is below 2^-28 (f32), 2^-56 (f64) of the sum. For x < 0, z is 1 - x and the result is
// pi^2/sin^2(pi x) minus the sum.
Expr trigamma(Expr x) {
  const Expr negative = x < 0.0;
  const Expr z = where(negative, 1.0 - x, x);
  const int n = choose(x, 8, 16);
  const Expr w = z + static_cast<double>(n);
  const Expr r = 1.0 / w, u = r * r;
  const Expr series = x.dtype() == DType::F64 ? polynomial(u, {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730})
                                              : polynomial(u, {1.0 / 6, -1.0 / 30, 1.0 / 42});
  Expr sum = fma(u * r, series, fma(u, 0.5, r));
  for (int k = n - 1; k >= 0; --k) {
    const Expr inverse = 1.0 / (z + static_cast<double>(k));
    sum = fma(inverse, inverse, sum);
  }
  const Expr sine = sin((x - round(x)) * 3.14159265358979324);
  return where(negative, 9.86960440108935862 / (sine * sine) - sum, sum);
}

}  // namespace onepass::ir
