// A graph as what a Program wants: it records itself. What `onepass run DUMP.json` and formula(GraphView) run.
#pragma once

#include "ir/graph.h"
#include "runtime/formula_program.h"

namespace onepass::runtime {

/// ValueError where it has no outputs.
FormulaProgram graph_program(ir::Graph graph);

}  // namespace onepass::runtime
