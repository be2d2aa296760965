// A pass: what precompiled routines read (ops.def, kind Routine) becomes arrays in memory.
//   argsort(x[:, 0])        argsort(identity(x[:, 0])): the view is copied by a kernel of its own
// Arguments stay as they are, whatever their strides, and so do computed values, which are stored anyway.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

ir::Graph copy_routine_operands(ir::Graph graph);

}  // namespace onepass::compiler
