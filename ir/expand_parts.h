// What the expansions share: the layout of f32 and f64, polynomials, the reductions of exp and log. Only ir/expand_*.cpp include it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "ir/build.h"

namespace onepass::ir {

inline constexpr double kLog2E = 1.4426950408889634;

/// Numbers of a float type that an expansion needs by name.
struct Format {
  DType bits;         // the unsigned integer of the same size
  int mantissa;       // stored bits of the significand
  std::uint64_t one;  // 1.0 as bits
  double min_normal;
  std::uint64_t power;  // 2^mantissa as bits: an integer below it, or-ed in, is added
  double magic;         // 1.5 * 2^mantissa: x + magic rounds x to an integer, which stands in the low bits
  double ln2, ln2_low;  // ln2 rounded to the type, and what it lacks
};
const Format& format_of(Expr x);

/// For coefficients: the list of the operand's type, the lowest power first.
using Coefficients = std::initializer_list<double>;
inline const Coefficients& choose(Expr x, const Coefficients& narrow, const Coefficients& wide) {
  return x.dtype() == DType::F32 ? narrow : wide;
}
template <class T> T choose(Expr x, T narrow, T wide) { return x.dtype() == DType::F32 ? narrow : wide; }

/// One fma a coefficient, in an order that is the same on every machine: Horner's scheme; from eight coefficients on its inner part in
/// even and odd powers, which halves the chain of dependent operations (a fifth to a quarter of the time) for one product more.
Expr polynomial(Expr x, const Coefficients& coefficients, double scale = 1);  // scale times it

/// min(x, high) and max(x, low) that let NaN through: one instruction where x86 has them in just this form.
inline Expr at_most(Expr x, double high) { return where(x > high, high, x); }
inline Expr at_least(Expr x, double low) { return where(x < low, low, x); }

/// e^x = (1 + tail) * 2^n for |x| < 2000; e^(x + low) where `low` is given, what x lost in a rounding. Where x is NaN so is tail.
struct ExpParts {
  Expr tail, tail_low;  // the latter is what the former lost
  Expr n;
};
ExpParts exp_parts(Expr x, Expr low = {});

/// e^x = (1 + r + w) * 2^n, more exactly: r is rounded, w holds what it lost too.
struct ExpSplit {
  Expr r, w;
  Expr n;
};
ExpSplit exp_split(Expr x);

/// Positive x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)).
struct Binary {
  Expr k, f;
};
Binary split(Expr x);

/// log x = high + low of x = 2^k (1 + f + f_low): high is rounded, low holds what it lost; with `exact_square` also what f^2 loses.
struct LogParts {
  Expr high, low;
};
LogParts log_parts(const Binary& b, Expr f_low = {}, bool exact_square = false);

/// log(1 + x + low), low being what x lost in a rounding.
Expr log1p_of(Expr x, Expr low = {});

/// P in erf a = a + a P, |a| < 17/16; in a^2 - 1/2, so that no step of Horner's is large where its rounding would tell.
/// tools/fit.py erf: relative error of erf 2^-27.9 (f32), 2^-59.0 (f64).
Expr erf_polynomial(Expr a);

/// Q in log erfc a = a Q, a from 17/16 to where erf a rounds to 1. tools/fit.py erfc_log: relative error of erf 2^-28.9 (f32), 2^-58.6 (f64).
Expr erfc_log_polynomial(Expr a);

}  // namespace onepass::ir
