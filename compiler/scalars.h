// Operators on single numbers, compiled with the library: what a call computes from its numbers alone (literal.h) is a list of such steps.
// Their bits are those of the reference interpreter: primitives are the `meaning` column of ops.def, elementary functions its expansions,
// written out as C++ by a program of the build (compiler/tiles/generate).
#pragma once

#include <cstdint>

#include "compiler/elementary.h"
#include "ir/ops.h"
#include "onepass/dtype.h"

namespace onepass::compiler {

struct ScalarStep {
  /// False where the operands have no result: an integer overflows, or is negative beside one of u64.
  using Run = bool (*)(const ScalarStep& step, Scalar* values);
  Run run = nullptr;
  ElementaryFunction function = nullptr;
  ElementaryRest rest = nullptr;
  std::uint32_t y = 0, a = 0, b = 0, c = 0;                                // places of values
  bool a_is_unsigned = false, b_is_unsigned = false, is_unsigned = false;  // of exact integers: are a, b and y of u64?
};

/// A primitive on operands of one type, Bool, I64, U64 or F64; integers wrap. Null where it takes none of these.
ScalarStep::Run scalar_primitive(ir::Op op, DType type);
/// Integer arithmetic that is exact or no result (exact_integers.h). Null for an operator that always has its own meaning.
ScalarStep::Run scalar_exact(ir::Op op);
/// An elementary function of f64, in the form for this processor; `run` is null for another operator.
const ElementaryForms& elementary_forms(ir::Op op);
ScalarStep scalar_elementary(ir::Op op);
/// The same of a first operand that is known already: a is the place where what `begin` made of it begins. `run` is null where there is no
/// such form.
ScalarStep scalar_elementary_rest(ir::Op op);

/// y = a^b, as an f32: the value that rounding `function`, which is pow, to f32 gives. b is an integer from 2 on.
bool scalar_rounded_power(const ScalarStep& step, Scalar* values);
/// y = a ? b : c, as bits.
bool scalar_where(const ScalarStep& step, Scalar* values);
/// y = a as an f64; a an integer of i64 or, where `a_is_unsigned`, of u64.
bool scalar_to_real(const ScalarStep& step, Scalar* values);
/// a is an i64 that is not negative.
bool scalar_is_natural(const ScalarStep& step, Scalar* values);

}  // namespace onepass::compiler
