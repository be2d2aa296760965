// normal_quantile: what `normal` makes of uniform numbers. Called by the recorder; like the expansions, it is built from primitives.
#pragma once

#include "ir/build.h"

namespace onepass::ir {

/// sqrt(2) * erfinv(t) for -1 < t < 1, f32 or f64, within 2 ULP.
Expr normal_quantile(Expr t);

}  // namespace onepass::ir
