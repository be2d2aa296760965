// erf and related functions.
#include <cmath>
#include <limits>

#include "ir/expand.h"
#include "ir/expand_parts.h"
#include "ir/normal_quantile.h"

namespace onepass::ir {

Expr erf_polynomial(Expr a) {
  return polynomial(fma(a, a, -0.5),
                    choose(a, {-0.034531258, -0.281072199, 0.0794098079, -0.0182832927, 0.0034820158, -0.000565571012, 7.4165946e-05},
                           {-0.034531261330132693, -0.28107217804543422, 0.079409986755934997, -0.018283884489153853, 0.0034802744966590856,
                            -0.00056118942210226278, 7.8296495352070178e-05, -9.6148087723156306e-06, 1.053644280279496e-06,
                            -1.0420345698749494e-07, 9.3898020545175053e-09, -7.8009456336365685e-10, 5.6922493680771396e-11}));
}

Expr erfc_log_polynomial(Expr a) {
  return polynomial(
      a, choose(a, {-1.12843287, -0.635981619, -0.10492903, 0.0226844437, -0.00315299677, 0.000206693774},
                {-1.1283790465914443, -0.6366208276647215, -0.10276843749367059, 0.019118839271606198, 0.00022288151067711116,
                 -0.0017066798308850663, 0.0005885129472608363, -9.5951531831951481e-06, -8.9160494451775293e-05, 5.3051795900989439e-05,
                 -1.9239022491167189e-05, 5.060329475952613e-06, -1.0046039662340918e-06, 1.5040501680528117e-07, -1.6544391113498926e-08,
                 1.2647738864001583e-09, -6.0086615578146012e-11, 1.3361736732959306e-12}));
}

// |x| < 17/16: x + x P. Otherwise 1 - e^q with q = log erfc |x| = |x| Q(|x|). Q is fitted by the error of erf, so it may be less accurate
// as erf nears 1. q includes the rounding error of its product. NaN takes the first branch.
//
// Largest measured error: f32 0.85 ULP with 38 operations; f64 0.86 ULP with 63.
Expr expand_erf(Expr x) {
  const Expr a = abs(x);
  const Expr small = fma(a, erf_polynomial(a), a);
  const Expr clamped = at_most(a, choose(x, 4.0, 6.0));  // erf rounds to 1 above 3.92 (f32) or 5.92 (f64)
  const Expr q = erfc_log_polynomial(clamped);
  const Expr product = clamped * q;
  const ExpParts e = exp_parts(product, fma(clamped, q, -product));
  const Expr large = 1.0 - ldexp_normal(1.0 + e.tail, e.n);
  return copysign(where(a >= 1.0625, large, small), x);
}

// |x| < 7/8: 1 - x - x P. Otherwise e^(-a^2) r/2 (C + S), r = 1/(a + 1). The square, a + 1 and its reciprocal include their rounding
// errors, so only the last sum has a significant rounding error. A negative x gives 2 minus the value for -x. NaN takes the first branch.
// S: tools/fit.py erfcx: relative error of erfc 2^-29.6 (f32), 2^-59.9 (f64).
Expr expand_erfc(Expr x) {
  const Expr a = abs(x);
  const Expr rest = 1.0 - x;
  const Expr small = fma(-x, erf_polynomial(a), rest) + (1.0 - rest - x);
  const Expr clamped = at_most(a, choose(x, 11.0, 28.0));  // above 10.06 (f32) or 27.23 (f64), erfc is below half the least float
  const Expr d = clamped + 1.0;
  const Expr d_low = clamped - (d - 1.0);
  const Expr r = 1.0 / d, half = r * 0.5;
  const Expr r_low = fma(-r, d, 1.0) - r * d_low;  // relative to r
  const Expr s = polynomial(
      r - 0.28125, choose(x,
                          {-0.00046969534, 1.21363044, -0.340115219, -1.08475959, 0.844050348, 1.12693214, -2.51445413, 0.365223467,
                           4.83382797, -5.85334253, -0.0557660758},
                          {-0.00046969466689765222, 1.213630371656595,   -0.34011606134251116, -1.0847388037165975, 0.84421026757356232,
                           1.1247238407233466,      -2.5244343647843763, 0.47345830632468805,  5.0467151529481677,  -8.3878070594153336,
                           0.16541939413328782,     22.775245026237791,  -42.218621561015794,  13.109078629615276,  106.18430243427015,
                           -269.73864673418711,     245.21023305041945,  356.5802823099969,    -1784.773444766053,  3392.4329805100133,
                           -1057.8898859475144,     -14268.620447000902, 33991.605233043752,   -1675.2328329853981, -87143.359046802143,
                           86298.252995266113}));
  constexpr double kExact = 1.470703125;  // C is not in the polynomial, whose rounding errors are therefore smaller
  const Expr factor = kExact + s;
  const Expr factor_low = s - (factor - kExact);
  const Expr square = clamped * clamped;
  const ExpParts e = exp_parts(-square, fma(-clamped, clamped, square));
  const Expr rest_of = fma(e.tail, factor, fma(r_low + e.tail_low, factor, factor_low));
  const Expr large = ldexp(fma(half, factor, half * rest_of), e.n);
  return where(a >= 0.875, where(x < 0.0, 2.0 - large, large), small);
}

// w = -log(1 - x^2). Up to w = 5, x (sqrt(pi)/2 + w P(w - 5/2)); for larger w, a polynomial in the root of w. See M. Giles, Approximating
// the erfinv function, 2010. tools/fit.py erfinv, erfinv_tail, erfinv_far: relative error 2^-24.6 and 2^-28.5 (f32), 2^-54.4, 2^-53.8 and
// 2^-54.1 (f64).
//
// Returns the function times scale + scale_low, for |x| < 1. start + start_low is that factor times sqrt(pi)/2.
namespace {
Expr scaled_erfinv(Expr x, double scale, double scale_low, double start, double start_low) {
  const LogParts log = log_parts(split(at_least(fma(-x, x, 1.0), choose(x, 0x1p-25, 0x1p-54))));
  const Expr sum = log.high + log.low, w = -sum;
  const Expr p = polynomial(
      w - 2.5,
      choose(x,
             {0.246072978, 0.000226924341, -0.00176172552, 0.000203591451, 5.89378988e-06, -4.34174626e-06, 3.56688389e-07, 4.35634853e-08,
              -9.24420362e-09, 1.97213856e-10},
             {0.24607297026321356,     0.00022692259238137053,  -0.0017616961267059889,  0.00020359528755803057,  5.8619907143626097e-06,
              -4.3432281254810144e-06, 3.7064341168281997e-07,  4.3232723107486928e-08,  -1.1926367884716072e-08, 4.2607918742153958e-10,
              1.9248988978753838e-10,  -2.9152908402235096e-11, -7.7999940206981972e-13, 6.7652159910910522e-13,  -5.6340708081349036e-14,
              -7.8859483989688126e-15, 1.9992309940216257e-15,  -4.6048836448055404e-17, -3.5907900505126795e-17, 4.1946079415538324e-18,
              2.6445093649318001e-19,  -7.3542263787376682e-20, 2.4757931672062524e-21}),
      scale);
  const bool is_erfinv = scale == 1;  // within its bound without correction; a factor above 1 makes errors larger in ULP
  const Expr first = x * start, rest = fma(w, p, start_low);
  const Expr small = is_erfinv ? fma(x, rest, first) : first + fma(x, rest, fma(x, start, -first));
  const Expr root = sqrt(w);
  // For a scaled result, rounding the first coefficient loses more than half of its last place. The argument is shifted by that loss
  // divided by the slope.
  const auto with_lost = [&](Expr argument, double wide, double narrow, double slope) {
    if (is_erfinv) return argument;
    const bool is_narrow = x.dtype() == DType::F32;
    const double first = is_narrow ? narrow : wide, kept = is_narrow ? static_cast<float>(scale * first) : scale * first;
    const double lost = (std::fma(scale, first, -kept) + scale_low * first) / (scale * slope);
    const Expr w_low = (sum - log.high) - log.low, root_low = (fma(-root, root, w) + w_low) * 0.5 / root;
    return argument + (root_low + lost);
  };
  Expr tail = polynomial(
      with_lost(root - 3.125, 2.9582352587111456, 2.95823526, 1.0042),
      choose(x,
             {2.95823526, 1.00422049, 0.00565437181, -0.00290917954, 0.000999801327, -0.000234915031, 5.34679963e-08, 3.91378162e-05,
              -1.68404677e-05},
             {2.9582352587111456,      1.0042204689018412,      0.0056544844940323068,   -0.002909368586578448,   0.00099902256020271691,
              -0.00023285405399452272, 2.316360400928711e-06,   3.3790191384962986e-05,  -1.9600975552594658e-05, 4.9447747776570019e-06,
              8.4371806825544181e-07,  -1.3101747822935835e-06, 5.0207747646501575e-07,  -1.5813689875229544e-08, -7.8926357581400238e-08,
              4.0650409639666078e-08,  -5.3656955136268498e-09, -4.9785840670976827e-09, 2.7710575668141067e-09,  -3.0408233699207225e-11,
              -2.3700012687674356e-10}),
      scale);
  if (x.dtype() == DType::F64)
    tail = where(root > 4.0,
                 polynomial(with_lost(root - 5.0, 4.8499064013749065, 0, 1.0103),
                            {4.8499064013749065, 1.0103004651943055, -0.0001387208984120691, -0.00021502518740600332,
                             7.5984011658114642e-05, -1.9661727020605163e-05, 4.4971884018188162e-06, -9.5851380295334395e-07,
                             1.9420106737966998e-07, -3.7535482475070704e-08, 6.7878152692773192e-09, -1.0151496747334335e-09,
                             1.5467496431931054e-11, 5.8814575064448872e-11, -1.1571787605781672e-11, 1.9534856976931918e-11,
                             -2.1010768085277017e-11, 1.2403398921905475e-12, 2.888949120798057e-12},
                            scale),
                 tail);
  return copysign(rare(w > 5.0, tail, small), x);
}
}  // namespace

Expr expand_erfinv(Expr x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Expr a = abs(x);
  const Expr y = scaled_erfinv(x, 1, 0, choose(x, 0x1.c5bf8ap-1, 0x1.c5bf891b4ef6bp-1), choose(x, -0x1.c96212p-26, -0x1.618f13eb7ca89p-55));
  return where(a < 1.0, y, where(a == 1.0, x * kInfinity, constant_like(x, std::numeric_limits<double>::quiet_NaN())));
}

// A separate product with the root of 2 would be rounded once more, with an error of 2.5 ULP.
Expr normal_quantile(Expr t) {
  return scaled_erfinv(t, 1.4142135623730951, -0x1.bdd3413b26456p-54, choose(t, 0x1.40d932p+0, 0x1.40d931ff62706p+0),
                       choose(t, -0x1.3b1f4ep-33, -0x1.a6a0d6f814637p-54));
}

}  // namespace onepass::ir
