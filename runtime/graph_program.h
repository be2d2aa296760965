// Wraps a graph as a Program's recording function. Used by `onepass run DUMP.json` and formula(GraphView).
#pragma once

#include "ir/graph.h"
#include "runtime/formula_program.h"

namespace onepass::runtime {

/// Returns a program that records the graph. Throws ValueError if the graph has no outputs.
FormulaProgram graph_program(ir::Graph graph);

}  // namespace onepass::runtime
