// Expansions: each elementary function built from primitives, branch-free, for f32 or f64 according to its operand's dtype. ir/ops.def
// names them; ir/build.cpp calls them once for each dtype. tools/fit.py computes the coefficients; tests/test_expand.cpp measures every
// error.
#pragma once

#include "ir/build.h"

namespace onepass::ir {

Expr expand_exp(Expr x);
Expr expand_exp2(Expr x);
Expr expand_expm1(Expr x);
Expr expand_sigmoid(Expr x);
Expr expand_log(Expr x);
Expr expand_log1p(Expr x);
Expr expand_log2(Expr x);
Expr expand_log10(Expr x);
Expr expand_tanh(Expr x);
Expr expand_sinh(Expr x);
Expr expand_cosh(Expr x);
Expr expand_asinh(Expr x);
Expr expand_acosh(Expr x);
Expr expand_atanh(Expr x);
Expr expand_erf(Expr x);
Expr expand_erfc(Expr x);
Expr expand_erfinv(Expr x);
Expr expand_ndtr(Expr x);
Expr expand_ndtri(Expr x);
Expr expand_lgamma(Expr x);
Expr expand_digamma(Expr x);
Expr expand_sin(Expr x);
Expr expand_cos(Expr x);
Expr expand_tan(Expr x);
Expr expand_atan(Expr x);
Expr expand_atan2(Expr y, Expr x);
Expr expand_asin(Expr x);
Expr expand_acos(Expr x);
Expr expand_rsqrt(Expr x);
Expr expand_cbrt(Expr x);
Expr expand_pow(Expr x, Expr y);
Expr expand_hypot(Expr a, Expr b);
Expr expand_logaddexp(Expr a, Expr b);
Expr expand_erf_short(Expr x);
Expr expand_tanh_short(Expr x);

}  // namespace onepass::ir
