// Elementary functions of single numbers: expansions of f64 as scalar code, written by compiler/tiles/generate and compiled with the loops
// of tiles, once for each instruction set. What stands behind a `rare` is computed where its condition holds. Called by scalars.cpp.
#pragma once

#include <cstdint>

#include "ir/ops.h"

namespace onepass::compiler {

/// A number while it is computed. Which of them it is, the code knows: bool is 0 or 1, u64 its bits.
union Scalar {
  std::int64_t integer;
  double real;
};

using ElementaryFunction = double (*)(double a, double b);
using ElementaryBegin = void (*)(double a, Scalar* kept);
using ElementaryRest = double (*)(const Scalar* kept, double b);

/// `rest` of what `begin` keeps is the function of a and b: in two parts where much of a function of two operands depends on the first alone,
/// as the logarithm in pow, so that a base that does not change costs nothing in a call. Null where there is no such form.
struct ElementaryForms {
  ElementaryFunction function = nullptr;
  ElementaryBegin begin = nullptr;
  ElementaryRest rest = nullptr;
  std::uint32_t kept = 0;  // values that `begin` keeps
};

const ElementaryForms& elementary_forms_avx2(ir::Op op);
const ElementaryForms& elementary_forms_baseline(ir::Op op);

}  // namespace onepass::compiler
