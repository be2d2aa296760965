// The part of a program's CUDA text that no Nest has a say in: types, memory access, conversions, the meanings of ir/meaning.h, the order of
// summation; and one function for each operator, whose body is the operator's own `meaning` column of ir/ops.def.
#pragma once

#include <string>
#include <string_view>

#include "ir/ops.h"

namespace onepass::compiler::cuda {

/// What every program begins with. It needs no header. ONEPASS_EMULATED: compiled as C++ behind tests/cuda_machine.h.
std::string_view device_prelude();

/// `template <class S> … op_add(S, S)`: the primitive by its `meaning`.
std::string device_function(ir::Op op);

/// The name of a type's values in the text (f32 for halves), of its elements in memory, and of the type that a conversion is made to.
std::string_view value_type(DType dtype);
std::string_view memory_type(DType dtype);

}  // namespace onepass::compiler::cuda
