// Lookup of a named operator's properties in the table (functions.cpp) without a call. The formula evaluator uses it as a fast path for the
// common operators.
#pragma once

#include <cstddef>
#include <string_view>

#include "ir/ops.h"

namespace onepass::compiler {

/// A named operator that is one elementwise operator on `arity` values: Recorder::elementwise(op, name, values).
struct ElementwiseFunction {
  ir::Op op{};
  std::string_view name;
  std::size_t arity = 0;  // 0: the operator is not elementwise, or the name does not exist
};
ElementwiseFunction elementwise_function(std::string_view name);

}  // namespace onepass::compiler
