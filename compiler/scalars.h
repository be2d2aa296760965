// Operators on single numbers, compiled with the library. A call runs a list of such steps for values that depend only on its numbers
// (literal.h). Result bits equal the reference interpreter's. Primitives come from the `meaning` column of ops.def. Elementary functions
// are its expansions, written out as C++ by a build-time program (compiler/tiles/generate).
#pragma once

#include <cstdint>

#include "compiler/elementary.h"
#include "ir/ops.h"
#include "onepass/dtype.h"

namespace onepass::compiler {

struct ScalarStep {
  /// Returns false if the operands have no result: an integer overflows, or is negative when combined with a u64.
  using Run = bool (*)(const ScalarStep& step, Scalar* values);
  Run run = nullptr;
  ElementaryFunction function = nullptr;
  ElementaryRest rest = nullptr;
  std::uint32_t y = 0, a = 0, b = 0, c = 0;                                // indices of values
  bool a_is_unsigned = false, b_is_unsigned = false, is_unsigned = false;  // for exact integers: true if a, b or y is u64
};

/// Returns a primitive on operands of one type: Bool, I64, U64 or F64. Integers wrap. Returns null if `op` or `type` is not supported.
ScalarStep::Run scalar_primitive(ir::Op op, DType type);
/// Returns integer arithmetic that is exact or fails (exact_integers.h). Returns null for an operator that always has its regular meaning.
ScalarStep::Run scalar_exact(ir::Op op);
/// Returns the forms of an elementary function of f64 for this processor; scalar_elementary() returns its step. `run` is null for other
/// operators.
const ElementaryForms& elementary_forms(ir::Op op);
ScalarStep scalar_elementary(ir::Op op);
/// Returns the step for a function whose first operand is already processed by `begin`; a is the index of the first value that `begin`
/// made. `run` is null if there is no such form.
ScalarStep scalar_elementary_rest(ir::Op op);

/// Computes y = a^b as an f32, equal to `function` (pow) rounded to f32. b must be an integer of at least 2.
bool scalar_rounded_power(const ScalarStep& step, Scalar* values);
/// Computes y = a ? b : c, on bits.
bool scalar_where(const ScalarStep& step, Scalar* values);
/// Computes y = a as f64. a is an i64 integer, or a u64 if `a_is_unsigned`.
bool scalar_to_real(const ScalarStep& step, Scalar* values);
/// Returns false if the i64 a is negative.
bool scalar_is_natural(const ScalarStep& step, Scalar* values);

}  // namespace onepass::compiler
