// What the table of named operators (functions.cpp) tells of one of them without a call. Used by the formulas' evaluator, which calls the
// usual ones a thousand times.
#pragma once

#include <cstddef>
#include <string_view>

#include "ir/ops.h"

namespace onepass::compiler {

/// A named operator that is one elementwise operator of its `arity` values: Recorder::elementwise(op, name, values).
struct ElementwiseFunction {
  ir::Op op{};
  std::string_view name;
  std::size_t arity = 0;  // 0: it is none, or there is no operator of the name
};
ElementwiseFunction elementwise_function(std::string_view name);

}  // namespace onepass::compiler
