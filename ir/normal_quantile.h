// normal_quantile: maps uniform numbers to normally distributed numbers. Called by the recorder; built from primitives, like the
// expansions.
#pragma once

#include "ir/build.h"

namespace onepass::ir {

/// Returns sqrt(2) * erfinv(t) for -1 < t < 1, in f32 or f64, within 2 ULP.
Expr normal_quantile(Expr t);

}  // namespace onepass::ir
