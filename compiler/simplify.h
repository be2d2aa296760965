// simplify: exact rewriting of a graph, before and after differentiation. The pipeline calls it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns a graph with the same results, bit for bit (all NaNs being equal), and fewer or cheaper nodes. Keeps inputs, scalar parameters,
/// outputs and their order, shapes and dtypes. Unused nodes stay until `prune`. Takes linear time; `simplify(simplify(g))` equals
/// `simplify(g)`.
ir::Graph simplify(const ir::Graph& graph);

}  // namespace onepass::compiler
