// Parts of the CUDA text that do not depend on a Nest: types, memory access, conversions, the meanings of ir/meaning.h, and the order of
// summation. Each operator has one function; its body is the operator's `meaning` column of ir/ops.def.
#pragma once

#include <string>
#include <string_view>

#include "ir/ops.h"

namespace onepass::compiler::cuda {

/// Returns the start of every program. It needs no header. With ONEPASS_EMULATED, it compiles as C++ after tests/cuda_machine.h.
std::string_view device_prelude();

/// Returns the function `template <class S> … op_add(S, S)` of a primitive, with the operator's `meaning` as its body.
std::string device_function(ir::Op op);

/// value_type() returns the name of a type's values in the text (f32 for halves). memory_type() returns the name of its elements in memory,
/// and of the target of a conversion.
std::string_view value_type(DType dtype);
std::string_view memory_type(DType dtype);

}  // namespace onepass::compiler::cuda
