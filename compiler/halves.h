// halves: shorter expansions for functions of f16 and bf16. The pipeline runs it after relax, for the interpreter too.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns `graph` with half-precision functions replaced by their shorter expansions, if they have one. See halves.cpp.
ir::Graph shorten_halves(ir::Graph graph);

}  // namespace onepass::compiler
