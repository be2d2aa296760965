// reassociate: one of the relaxations (compiler/relax), which runs it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// `graph` with its sums and products of floats regrouped. See reassociate.cpp.
ir::Graph reassociate(const ir::Graph& graph);

}  // namespace onepass::compiler
