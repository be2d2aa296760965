// Oracles for special functions that C++ and MPFR lack: in double, with errors far below f32's, and with MPFR.
#pragma once

#include <cmath>
#include <limits>

#ifdef ONEPASS_HAVE_MPFR
#include <mpfr.h>
#endif

namespace onepass::test {

/// Returns an approximation of the inverse of erf: S. Winitzki's formula (2008), relative error 4e-3.
inline double rough_erfinv(double x) {
  if (std::abs(x) < 1e-3) return x * 0.88622692545275801;
  const double l = std::log1p(-x * x), t = 2 / (3.14159265358979324 * 0.147) + l / 2;
  return std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), x);
}

/// Returns the inverse of erf by Halley's steps from rough_erfinv().
inline double erfinv(double x) {
  if (!(std::abs(x) < 1))
    return x * (std::abs(x) == 1 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN());
  double y = rough_erfinv(x);
  for (int i = 0; i < 4; ++i) {
    const double a = std::abs(y), difference = std::abs(x) < 0.5 ? std::erf(a) - std::abs(x) : 1 - std::abs(x) - std::erfc(a);
    const double step = difference / (1.1283791670955126 * std::exp(-a * a));
    y = std::copysign(a - step / (1 + a * step), x);
  }
  return y;
}

/// Returns the distribution function of the normal distribution. For quantiles, Halley's method starts at rough_ndtri: Abramowitz and
/// Stegun 26.2.23, with an absolute error of 4.5e-4.
inline double ndtr(double x) { return std::erfc(-x * 0.70710678118654752440) / 2; }
inline double rough_ndtri(double log_p) {  // p <= 1/2
  const double t = std::sqrt(-2 * log_p);
  return (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
}
/// Returns ndtr in long double. The slope of erfc corrects for the rounding of x/sqrt(2).
inline long double wide_ndtr(long double x) {
  const long double root = 0.707106781186547524400844362104849039L, u = -x * root;
  if (!(std::fabs(x) < 45)) return std::erfc(u) / 2;
  const long double head = 0.70710678118654757273731092936941422522L, tail = -4.8336466567264565185935844299128e-17L;
  const long double lost = std::fma(-x, head, -u) - x * tail;  // -x/sqrt(2) - u
  return (std::erfc(u) - lost * std::exp(-u * u) * 1.128379167095512573896158903121545172L) / 2;
}
inline long double wide_ndtri(long double p) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!(p > 0 && p < 1)) return p == 0 ? -kInfinity : p == 1 ? kInfinity : std::numeric_limits<double>::quiet_NaN();
  const long double least = p > 0.5L ? 1 - p : p, middle = least - 0.5L;
  if (middle == 0) return 0;
  long double x = rough_ndtri(static_cast<double>(std::log(least)));
  for (int i = 0; i < 5; ++i) {
    const long double off = least > 0.25L ? std::erf(x * 0.707106781186547524400844362104849039L) / 2 - middle : wide_ndtr(x) - least;
    const long double e = off * 2.506628274631000502415765284811045253L * std::exp(x * x / 2);
    x -= e / (1 + x * e / 2);
  }
  return p > 0.5L ? -x : x;
}
inline double ndtri(double p) { return static_cast<double>(wide_ndtri(p)); }

/// Returns digamma: the recurrence up to 12, then the asymptotic series. A negative x uses the cotangent.
inline double digamma(double x) {
  if (x == 0) return -std::copysign(std::numeric_limits<double>::infinity(), x);
  if (std::isinf(x) && x > 0) return x;
  if (x < 0) {
    const double t = x - std::nearbyint(x);
    if (!(t != 0)) return std::numeric_limits<double>::quiet_NaN();
    return digamma(1 - x) - 3.14159265358979324 * std::cos(3.14159265358979324 * t) / std::sin(3.14159265358979324 * t);
  }
  double sum = 0;
  for (; x < 12; ++x) sum -= 1 / x;
  const double u = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x -
         u * (1.0 / 12 - u * (1.0 / 120 - u * (1.0 / 252 - u * (1.0 / 240 - u * (1.0 / 132 - u * 691.0 / 32760)))));
}

#ifdef ONEPASS_HAVE_MPFR
inline int mpfr_erfinv(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
  if (mpfr_nan_p(x) || mpfr_cmpabs_ui(x, 1) > 0) return mpfr_set_nan(y), 0;
  if (mpfr_cmpabs_ui(x, 1) == 0) return mpfr_set_inf(y, mpfr_sgn(x)), 0;
  if (mpfr_zero_p(x)) return mpfr_set(y, x, round);
  mpfr_t at, step, slope;
  mpfr_inits2(300, at, step, slope, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_d(at, rough_erfinv(mpfr_get_d(x, MPFR_RNDN)), MPFR_RNDN);
  if (mpfr_zero_p(at)) mpfr_set(at, x, MPFR_RNDN);  // the double left its range
  for (int i = 0; i < 5; ++i) {
    mpfr_erf(step, at, MPFR_RNDN);
    mpfr_sub(step, step, x, MPFR_RNDN);
    mpfr_sqr(slope, at, MPFR_RNDN);
    mpfr_exp(slope, slope, MPFR_RNDN);
    mpfr_mul(step, step, slope, MPFR_RNDN);
    mpfr_const_pi(slope, MPFR_RNDN);
    mpfr_sqrt(slope, slope, MPFR_RNDN);
    mpfr_mul(step, step, slope, MPFR_RNDN);
    mpfr_div_2ui(step, step, 1, MPFR_RNDN);
    mpfr_mul(slope, at, step, MPFR_RNDN);
    mpfr_add_ui(slope, slope, 1, MPFR_RNDN);
    mpfr_div(step, step, slope, MPFR_RNDN);
    mpfr_sub(at, at, step, MPFR_RNDN);
  }
  const int ternary = mpfr_set(y, at, round);
  mpfr_clears(at, step, slope, static_cast<mpfr_ptr>(nullptr));
  return ternary;
}

/// Computes ndtr or ndtri in long double, with an error of thousandths of a double ULP. MPFR's own functions take a hundred times as long.
inline int mpfr_ndtr(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) { return mpfr_set_ld(y, wide_ndtr(mpfr_get_ld(x, MPFR_RNDN)), round); }
inline int mpfr_ndtri(mpfr_ptr y, mpfr_srcptr p, mpfr_rnd_t round) { return mpfr_set_ld(y, wide_ndtri(mpfr_get_ld(p, MPFR_RNDN)), round); }

/// Computes log |Gamma(x)|.
inline int mpfr_log_gamma(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
  int sign = 0;
  return mpfr_lgamma(y, &sign, x, round);
}
#endif

}  // namespace onepass::test
