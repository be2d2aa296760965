// Elementary functions of single numbers: f64 expansions as scalar code. compiler/tiles/generate writes them; they are compiled with the
// loops of the tiled interpreter, once for each instruction set. The slow operand of a `rare` is computed only if its condition holds.
// Called by scalars.cpp.
#pragma once

#include <cstdint>

#include "ir/ops.h"

namespace onepass::compiler {

/// A number during evaluation. The code that reads it determines its type; a bool is 0 or 1, a u64 is its bits.
union Scalar {
  std::int64_t integer;
  double real;
};

using ElementaryFunction = double (*)(double a, double b);
using ElementaryBegin = void (*)(double a, Scalar* kept);
using ElementaryRest = double (*)(const Scalar* kept, double b);

/// Scalar forms of one elementary function. `function` computes it at once. `rest` applied to the values that `begin` keeps gives the same
/// result. The split form exists for functions with much work on the first operand, such as the logarithm in pow. It makes a constant base
/// free in each call. The pointers are null if there is no such form.
struct ElementaryForms {
  ElementaryFunction function = nullptr;
  ElementaryBegin begin = nullptr;
  ElementaryRest rest = nullptr;
  std::uint32_t kept = 0;  // number of values that `begin` keeps
};

const ElementaryForms& elementary_forms_avx2(ir::Op op);
const ElementaryForms& elementary_forms_baseline(ir::Op op);

}  // namespace onepass::compiler
