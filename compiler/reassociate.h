// reassociate: one of the relaxations (compiler/relax), which runs it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// `graph` with its sums and products of floats regrouped. `contract`: a product that is added to something takes no operation of its own.
/// See reassociate.cpp.
ir::Graph reassociate(const ir::Graph& graph, bool contract);

}  // namespace onepass::compiler
