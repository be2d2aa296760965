// Shared parts of the expansions: the layout of f32 and f64, polynomials, the range reductions of exp and log. Only ir/expand_*.cpp include
// it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "ir/build.h"

namespace onepass::ir {

inline constexpr double kLog2E = 1.4426950408889634;

/// Named constants of a float type.
struct Format {
  DType bits;         // the unsigned integer of the same size
  int mantissa;       // stored bits of the significand
  std::uint64_t one;  // 1.0 as bits
  double min_normal;
  std::uint64_t power;  // 2^mantissa as bits: or-ing in a smaller integer adds it
  double magic;         // 1.5 * 2^mantissa: x + magic rounds x to an integer in the low bits
  double ln2, ln2_low;  // ln2 rounded to the type, and its rounding error
};
const Format& format_of(Expr x);

/// Coefficients, lowest power first. choose() returns the list for the operand's type.
using Coefficients = std::initializer_list<double>;
inline const Coefficients& choose(Expr x, const Coefficients& narrow, const Coefficients& wide) {
  return x.dtype() == DType::F32 ? narrow : wide;
}
template <class T> T choose(Expr x, T narrow, T wide) { return x.dtype() == DType::F32 ? narrow : wide; }

/// Evaluates a polynomial with one fma for each coefficient, in the same order on every machine. Uses Horner's scheme. From eight
/// coefficients on, the inner part is split into even and odd powers. This halves the chain of dependent operations for one more
/// multiplication.
Expr polynomial(Expr x, const Coefficients& coefficients, double scale = 1);  // the result is multiplied by `scale`

/// Returns min(x, high); at_least returns max(x, low). Both pass NaN through. x86 has a single instruction for exactly this form.
inline Expr at_most(Expr x, double high) { return where(x > high, high, x); }
inline Expr at_least(Expr x, double low) { return where(x < low, low, x); }

/// Splits e^x = (1 + tail) * 2^n for |x| < 2000. With `low`, the rounding error of x, splits e^(x + low). tail is NaN if x is NaN.
struct ExpParts {
  Expr tail, tail_low;  // tail_low is the rounding error of tail
  Expr n;
};
ExpParts exp_parts(Expr x, Expr low = {});

/// Splits e^x = (1 + r + w) * 2^n more accurately: w includes the rounding error of r.
struct ExpSplit {
  Expr r, w;
  Expr n;
};
ExpSplit exp_split(Expr x);

/// Splits a positive x = 2^k (1 + f), with 1 + f in [sqrt(1/2), sqrt(2)).
struct Binary {
  Expr k, f;
};
Binary split(Expr x);

/// log x = high + low for x = 2^k (1 + f + f_low). low includes the rounding error of high and, with `exact_square`, the rounding error of
/// f^2.
struct LogParts {
  Expr high, low;
};
LogParts log_parts(const Binary& b, Expr f_low = {}, bool exact_square = false);

/// Returns log(1 + x + low); low is the rounding error of x.
Expr log1p_of(Expr x, Expr low = {});

/// Returns P in erf a = a + a P, |a| < 17/16. It is a polynomial in a^2 - 1/2, so that Horner's steps with a visible rounding error stay
/// small. tools/fit.py erf: relative error of erf 2^-27.9 (f32), 2^-59.0 (f64).
Expr erf_polynomial(Expr a);

/// Returns Q in log erfc a = a Q, for a from 17/16 to the point from which erf a rounds to 1. tools/fit.py erfc_log: relative error of erf
/// 2^-28.9 (f32), 2^-58.6 (f64).
Expr erfc_log_polynomial(Expr a);

}  // namespace onepass::ir
