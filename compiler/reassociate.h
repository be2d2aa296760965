// reassociate: one of the relaxations. compiler/relax runs it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns `graph` with its sums and products of floats regrouped. With `contract`, a product that is added to another value counts as
/// free, because it becomes an fma. See reassociate.cpp.
ir::Graph reassociate(const ir::Graph& graph, bool contract);

}  // namespace onepass::compiler
