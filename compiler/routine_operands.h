// Pass that makes the operands of precompiled routines (ops.def, kind Routine) arrays in memory.
//   argsort(x[:, 0])        argsort(identity(x[:, 0])): a dedicated kernel copies the view
// Arguments stay unchanged, whatever their strides. Computed values also stay unchanged, because they are materialized anyway.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

ir::Graph copy_routine_operands(ir::Graph graph);

}  // namespace onepass::compiler
