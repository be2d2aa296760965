// The circular functions and their inverses.
#include <limits>
#include <span>
#include <vector>

#include "ir/expand.h"
#include "ir/expand_parts.h"

namespace onepass::ir {
namespace {

// pi/2 in three parts, each rounded to the type; 2/pi rounded.
struct HalfPi {
  double high, middle, low;
};
HalfPi half_pi(Expr x) {
  return x.dtype() == DType::F32 ? HalfPi{0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50}
                                 : HalfPi{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
}
constexpr double kTwoOverPi = 0.63661977236758134;

// x = q pi/2 + r, with |r| at most slightly above pi/4; q is in the low bits of `quadrant`. On request, r_low is the rounding error of r.
struct Reduced {
  Expr r, r_low;
  Expr quadrant;
};

// Cody and Waite's reduction (1980) with fma, for |x| <= 2^17 (f32), 2^30 (f64). x - q high is exact, because both are multiples of the
// last bit of `high` and their difference is below 1. q low is below the rounding error of r, unless the middle part cancels most of r.
Reduced reduce_ordinary(Expr x, bool with_low) {
  const Format& format = format_of(x);
  const HalfPi part = half_pi(x);
  const Expr shifted = fma(x, kTwoOverPi, format.magic);
  const Expr q = shifted - format.magic;
  const Expr exact = fma(q, -part.high, x);
  const Expr quadrant = bitcast(shifted, format.bits);
  if (!with_low) return {fma(q, -part.low, fma(q, -part.middle, exact)), {}, quadrant};
  const Expr product = q * part.middle;
  const Expr r = exact - product;
  const Expr lost = exact - r - product - fma(q, part.middle, -product);
  return {r, fma(q, -part.low, lost), quadrant};
}

// The bits of 2/pi. The first fraction bit is the top bit of the second word.
constexpr std::uint64_t kTwoOverPiNarrow[] = {
    0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
};
constexpr std::uint64_t kTwoOverPiWide[] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

// Returns bits [offset, offset + 3 width) of the table as three words.
std::vector<Expr> window(Expr offset, std::span<const std::uint64_t> table, int width) {
  const Expr index = offset >> (width == 32 ? 5 : 6), shift = offset & (width - 1);
  std::vector<Expr> words;
  for (const std::uint64_t word : table) words.push_back(constant_bits(offset, word));
  for (int bit = width == 32 ? 4 : 16; bit > 0; bit /= 2) {  // each bit of the index halves the candidates
    const Expr set = (index & bit) != constant_bits(index, 0);
    std::vector<Expr> chosen;
    for (std::size_t i = 0; i < std::min<std::size_t>(words.size(), static_cast<std::size_t>(bit) + 3); ++i) {
      const std::size_t other = i + static_cast<std::size_t>(bit);
      chosen.push_back(other < words.size() ? where(set, words[other], words[i]) : words[i]);
    }
    words = chosen;
  }
  const Expr back = constant_bits(shift, static_cast<std::uint64_t>(width)) - shift;
  std::vector<Expr> out;
  for (std::size_t i = 0; i < 3; ++i) out.push_back((words[i] << shift) | (words[i + 1] >> back));
  return out;
}

// Returns the high half of m w, for m < 2^53.
Expr product_high(Expr m, Expr w) {
  const Expr m_low = m & 0xffffffff, m_high = m >> 32, w_low = w & 0xffffffff, w_high = w >> 32;
  const Expr middle = m_high * w_low + (m_low * w_low >> 32);
  const Expr other = m_low * w_high + (middle & 0xffffffff);
  return m_high * w_high + (middle >> 32) + (other >> 32);
}

// Payne and Hanek's reduction (1983) for every larger finite |x|. x = M 2^s with an integer M, so modulo 4 only the bits of 2/pi from
// 2^(1-s) down matter. Three words of them times M are cut to two words (f64) or to 64 bits (f32). The error of the fraction is then below
// 2^-61 (f32), 2^-124 (f64). The fraction is never nearer to 0 than about 2^-31 (f32), 2^-62 (f64).
Reduced reduce_great(Expr x) {
  const Format& format = format_of(x);
  const bool narrow = x.dtype() == DType::F32;
  const Expr bits = bitcast(abs(x), format.bits);
  const Expr field = bits >> format.mantissa;
  const Expr offset = field - constant_bits(field, narrow ? 120 : 1013);
  const std::vector<Expr> w = narrow ? window(offset, kTwoOverPiNarrow, 32) : window(offset, kTwoOverPiWide, 64);
  const std::uint64_t hidden = std::uint64_t{1} << format.mantissa;
  const Expr m = cast((bits & (hidden - 1)) | hidden, DType::U64);
  const Expr negative = signbit(x);
  const auto with_sign = [&](Expr r, Expr r_low, Expr quadrant, Expr turned) {
    quadrant = cast(quadrant, format.bits);
    return Reduced{where(turned, -r, r), where(turned, -r_low, r_low), where(negative, constant_bits(quadrant, 0) - quadrant, quadrant)};
  };
  if (narrow) {
    const auto wide = [](Expr e) { return cast(e, DType::U64); };
    const Expr p = (m * wide(w[0]) << 32) + m * wide(w[1]) + (m * wide(w[2]) >> 32);  // in units of 2^-62
    const Expr quadrant = (p + constant_bits(p, std::uint64_t{1} << 61)) >> 62;
    const Expr exact = cast(bitcast(p << 2, DType::I64), DType::F64) * (0x1.921fb54442d18p+0 * 0x1p-64);
    const Expr r = cast(exact, DType::F32);
    return with_sign(r, cast(exact - cast(r, DType::F64), DType::F32), quadrant, negative);
  }
  const HalfPi part = half_pi(x);
  const Expr product = m * w[1];
  const Expr low = product + product_high(m, w[2]);
  const Expr high = m * w[0] + product_high(m, w[1]) + cast(low < product, DType::U64);  // in units of 2^-62
  const Expr quadrant = (high + constant_bits(high, std::uint64_t{1} << 61)) >> 62;
  // the fraction in two words, its magnitude exactly in three floats, then times pi/2
  const Expr fraction = (high << 2) | (low >> 62);
  const Expr below = bitcast(fraction, DType::I64) < constant_bits(bitcast(fraction, DType::I64), 0);
  const Expr flip = where(below, constant_bits(fraction, ~std::uint64_t{0}), constant_bits(fraction, 0));
  const Expr top = fraction ^ flip, rest = (low << 2) ^ flip;
  const Expr next = ((top & 0x7ff) << 53) | (rest >> 11);
  const Expr t1 = cast(top >> 11, DType::F64) * 0x1p-53;
  const Expr t2 = cast(next & ~std::uint64_t{0x7ff}, DType::F64) * 0x1p-117;
  const Expr t3 = cast(next & 0x7ff, DType::F64) * 0x1p-117;
  const Expr sum = t1 + t2;
  const Expr sum_low = t1 - sum + t2 + t3;
  const Expr whole = sum * part.high;
  const Expr lost = fma(sum, part.high, -whole) + fma(sum, part.middle, sum_low * part.high);
  const Expr r = whole + lost;
  return with_sign(r, whole - r + lost, quadrant, below ^ negative);
}

Reduced reduce(Expr x, bool with_low = false) {
  const Reduced ordinary = reduce_ordinary(x, with_low), great = reduce_great(x);
  const Expr a = abs(x);
  const Expr far = (a > choose(x, 0x1p17, 0x1p30)) & (a < std::numeric_limits<double>::infinity());  // inf gives NaN either way
  return {rare(far, great.r, ordinary.r), with_low ? rare(far, great.r_low, ordinary.r_low) : Expr{},
          rare(far, great.quadrant, ordinary.quadrant)};
}

// S, C: tools/fit.py sin, cos: relative error 2^-27.8 and 2^-32.7 (f32), 2^-57.7 and 2^-63.7 (f64).
Expr sine(Expr r, Expr u) {
  const Expr s = polynomial(u, choose(u, {-0.166666538, 0.00833210815, -0.000195082335},
                                      {-0.16666666666666627, 0.0083333333333210739, -0.0001984126982870342, 2.7557313300413641e-06,
                                       -2.5050695747384996e-08, 1.5893127730248371e-10}));
  return fma(r * u, s, r);
}

Expr cosine(Expr u) {
  const Expr c = polynomial(u, choose(u, {0.0416666456, -0.0013887299, 2.44302846e-05},
                                      {0.041666666666666581, -0.0013888888888871043, 2.4801587287606033e-05, -2.7557313820931193e-07,
                                       2.0875652189476396e-09, -1.1356016085508716e-11}));
  return fma(u * u, c, fma(u, -0.5, 1.0));
}

// Returns sin(q pi/2 + r). Quadrants 1 and 3 give the cosine; 2 and 3 negate the result.
Expr by_quadrant(const Reduced& a, Expr quadrant) {
  const Format& format = format_of(a.r);
  const Expr u = a.r * a.r;
  const Expr odd = (quadrant & 1) != constant_bits(quadrant, 0);
  const Expr y = where(odd, cosine(u), sine(a.r, u));
  const int top = choose(u, 31, 63);
  return bitcast(bitcast(y, format.bits) ^ ((quadrant >> 1) << top), y.dtype());
}

}  // namespace

namespace {

// Splits a = |x| = q pi + r, with |r| at most slightly above pi/2, within the range of the ordinary reduction. One polynomial then serves
// both functions without a selection. pi has three parts, as above, rounded toward zero.
struct HalfTurns {
  Expr r, parity;  // parity: q in the low bits
};
HalfTurns half_turns(Expr a, Expr rounded, Expr q) {
  const double high = choose(a, 0x1.921fb4p+1, 0x1.921fb54442d18p+1), middle = choose(a, 0x1.4442dp-23, 0x1.1a62633145c06p-53),
               low = choose(a, 0x1.846988p-47, 0x1.c1cd129024e08p-106);
  return {fma(q, -low, fma(q, -middle, fma(q, -high, a))), bitcast(rounded, format_of(a).bits)};
}
constexpr double kOneOverPi = 0.31830988618379067;

// Returns sin r. tools/fit.py sin_half: relative error 2^-27.2 (f32), 2^-61.5 (f64). The coefficients were then adjusted in their last
// places, so that the value at pi/2 is 1 and no value near it is above 1.
Expr half_wave(Expr r) {
  const Expr u = r * r;
  const Expr s = polynomial(u, choose(r, {-0.166666597, 0.00833307486, -0.000198096328, 2.6043881e-06},
                                      {-0.16666666666666666, 0.0083333333333331927, -0.00019841269841212137, 2.7557319211554786e-06,
                                       -2.5052106901528452e-08, 1.6058940814562376e-10, -7.6430134485035757e-13, 2.721347166792111e-15}));
  return fma(r * u, s, r);
}

// Returns y, negated if q is odd.
Expr turned(Expr y, const HalfTurns& h) {
  const Format& format = format_of(y);
  return bitcast(bitcast(y, format.bits) ^ (h.parity << choose(y, 31, 63)), y.dtype());
}

// Beyond the ordinary range, uses the quadrants of the reduction. Infinities give NaN.
Expr of_great(Expr x, Expr a, Expr ordinary, std::uint64_t quadrants_more) {
  const Reduced great = reduce_great(x);
  const Expr y = by_quadrant(great, great.quadrant + constant_bits(great.quadrant, quadrants_more));
  const Expr finite = where(a < std::numeric_limits<double>::infinity(), y, std::numeric_limits<double>::quiet_NaN());
  return rare(a > choose(x, 0x1p17, 0x1p30), finite, ordinary);
}

}  // namespace

// The reduction takes |x|, and the sign of x is applied at the end, so -0 stays.
//
// Largest measured error (f32 over all operands): f32 1.77 ULP with 20 operations; f64 1.92 ULP with 25. The `rare` branch has 77 and 164
// more.
Expr expand_sin(Expr x) {
  const Format& format = format_of(x);
  const Expr a = abs(x);
  const Expr rounded = fma(a, kOneOverPi, format.magic);
  const HalfTurns h = half_turns(a, rounded, rounded - format.magic);
  const Expr sign = bitcast(x, format.bits) & (std::uint64_t{1} << choose(x, 31, 63));
  return of_great(x, a, bitcast(bitcast(turned(half_wave(h.r), h), format.bits) ^ sign, x.dtype()), 0);
}

// cos x = sin(|x| + pi/2): the nearest odd multiple of pi/2 is subtracted.
//
// Largest measured error (f32 over all operands): f32 1.98 ULP with 19 operations; f64 1.92 ULP with 24. The `rare` branch has 77 and 164
// more.
Expr expand_cos(Expr x) {
  const Format& format = format_of(x);
  const Expr a = abs(x);
  const Expr rounded = fma(a, kOneOverPi, 0.5) + format.magic;
  const HalfTurns h = half_turns(a, rounded, rounded - format.magic - 0.5);
  return of_great(x, a, turned(half_wave(h.r), h), 1);
}

// tan r = t + t_low. Odd quadrants give -1/(t + t_low), with the quotient corrected by its residual. T: tools/fit.py tan: relative error
// 2^-29.3 (f32), 2^-59.5 (f64).
//
// Largest measured error: f32 1.19 ULP with 41 operations; f64 1.14 ULP with 50. The `rare` branch has 65 and 142 more.
Expr expand_tan(Expr x) {
  const Reduced a = reduce(x, true);
  const Expr u = a.r * a.r;
  const Expr p = polynomial(
      u, choose(u, {0.333333522, 0.133325711, 0.0540709719, 0.0212226789, 0.0109952996, -0.000118391567, 0.00448135333},
                {0.33333333333333398, 0.13333333333322797, 0.053968253974269846, 0.021869488362239464, 0.0088632385178799757,
                 0.0035920947021754789, 0.0014560892030429067, 0.00058864777065792732, 0.00024452096802491264, 8.1595680794389918e-05,
                 7.0787092847046795e-05, -3.0131913754294191e-05, 5.238209632143248e-05, -2.6125150591997739e-05, 1.0210045299868564e-05}));
  const Expr w = fma(a.r * u, p, fma(a.r_low, u, a.r_low));
  const Expr t = a.r + w;
  const Expr t_low = a.r - t + w;
  const Expr z = -1.0 / t;
  const Expr inverse = fma(z, fma(t_low, z, fma(t, z, 1.0)), z);
  const Expr odd = (a.quadrant & 1) != constant_bits(a.quadrant, 0);
  return where(x == 0.0, x, where(odd, inverse, t));
}

namespace {

// atan t = t + w for |t| <= 1; w = t u P(u), u = t^2. P: tools/fit.py atan: relative error 2^-31.0 (f32), 2^-57.6 (f64).
Expr atan_tail(Expr t) {
  const Expr u = t * t;
  return t * u *
         polynomial(u, choose(t,
                              {-0.333333284, 0.199997172, -0.142803714, 0.110614479, -0.0882232487, 0.0676568821, -0.045012556,
                               0.0228027999, -0.00743727339, 0.00113690679},
                              {-0.33333333333333071,   0.19999999999951759,    -0.14285714282588743,    0.11111111007360572,
                               -0.090909070080955667,  0.076922798919710544,   -0.066664044451698101,   0.058805299215390738,
                               -0.052535272248117035,  0.047223496970142845,   -0.042192467122271246,   0.036643217786529104,
                               -0.0299058310537197,    0.021987171806620485,   -0.013902658033135472,   0.0071979355018011214,
                               -0.0028856316629843337, 0.00083156615735283546, -0.00015221231707471361, 1.3230095951737921e-05}));
}

// asin s = s + s u P(u), u = s^2 <= 1/4. Returns it without the first s. P: tools/fit.py asin: relative error 2^-31.7 (f32), 2^-59.9 (f64).
Expr asin_tail(Expr s, Expr u) {
  return s * u *
         polynomial(u, choose(s, {0.166666597, 0.0750051662, 0.0445150025, 0.031821698, 0.0143919075, 0.0375755616},
                              {0.1666666666666676, 0.074999999999708702, 0.044642857174555697, 0.030381942710137038, 0.022372214928139532,
                               0.017351612990910179, 0.013980809695106806, 0.011398995266524988, 0.010779814337377434,
                               0.0037079779885757758, 0.021703811265804264, -0.020994142037936654, 0.032625670267774895}));
}

}  // namespace

// |x| > 1: pi/2 - atan(1/|x|). t is first subtracted from pi/2, which is exact near 1.
//
// Largest measured error: f32 1.44 ULP with 23 operations; f64 1.76 ULP with 33.
Expr expand_atan(Expr x) {
  const HalfPi part = half_pi(x);
  const Expr a = abs(x);
  const Expr inverse = a > 1.0;
  const Expr zero = constant_like(x, 0.0);
  const Expr t = where(inverse, -1.0 / a, a);
  const Expr tail = atan_tail(t) + where(inverse, constant_like(x, part.middle), zero);
  return copysign(where(inverse, constant_like(x, part.high), zero) + t + tail, x);
}

// Computes the angle of (|x|, |y|) from the quotient of the smaller magnitude by the larger magnitude, then mirrors it into the right
// quadrant. Equal magnitudes, even if infinite, have the quotient 1; 0/0 is 0.
//
// Largest measured error: f32 1.61 ULP with 38 operations; f64 1.59 ULP with 48.
Expr expand_atan2(Expr y, Expr x) {
  const HalfPi part = half_pi(x);
  const Expr a = abs(y), b = abs(x);
  const Expr steep = a > b;
  const Expr least = where(steep, b, a), most = where(steep, a, b);
  const Expr quotient = where(least == 0.0, least, where(a == b, 1.0, least / most));
  // p, pi/2 - p; or pi - p, pi/2 + p in the left half plane
  const Expr left = signbit(x);
  const Expr t = where(steep == left, quotient, -quotient);
  const Expr turns = where(steep, constant_like(x, 1.0), where(left, constant_like(x, 2.0), constant_like(x, 0.0)));
  // pi/2 + t may be above a power of two and the final angle below it. So the rounding error of the first sum is added back.
  const Expr start = turns * part.high;
  const Expr sum = start + t;
  const Expr lost = t - (sum - start);
  const Expr angle = sum + (fma(turns, part.middle, atan_tail(t)) + lost);
  return where(isnan(x) | isnan(y), x + y, copysign(angle, y));
}

// |x| > 1/2: asin |x| = pi/2 - 2 asin s, s^2 = (1 - |x|)/2.
//
// Largest measured error: f32 1.09 ULP with 23 operations; f64 1.08 ULP with 31.
Expr expand_asin(Expr x) {
  const HalfPi part = half_pi(x);
  const Expr a = abs(x);
  const Expr outer = a > 0.5;
  const Expr u = where(outer, fma(a, -0.5, 0.5), a * a);
  const Expr s = where(outer, sqrt(u), a);
  const Expr tail = asin_tail(s, u);
  const Expr rest = fma(s, -2.0, part.high);
  const Expr lost = fma(s, -2.0, part.high - rest) + part.middle;
  return copysign(where(outer, rest + fma(tail, -2.0, lost), s + tail), x);
}

// |x| <= 1/2: pi/2 - asin x. Otherwise 2 asin s or, for negative x, pi - 2 asin s.
//
// Largest measured error: f32 1.07 ULP with 24 operations; f64 1.11 ULP with 32.
Expr expand_acos(Expr x) {
  const HalfPi part = half_pi(x);
  const Expr a = abs(x);
  const Expr outer = a > 0.5;
  const Expr u = where(outer, fma(a, -0.5, 0.5), a * a);
  const Expr s = where(outer, sqrt(u), x);
  const Expr tail = asin_tail(s, u);
  const Expr p = s + tail;
  const Expr inner = part.high - (s - (part.middle - tail));
  const Expr twice = p + p;
  return where(outer, where(x < 0.0, 2 * part.high - (twice - 2 * part.middle), twice), inner);
}

}  // namespace onepass::ir
