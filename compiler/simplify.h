// simplify: exact rewriting of a graph, before and after differentiation. The pipeline calls it.
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// The same results, bit for bit (all NaNs being equal), by fewer or cheaper nodes. Keeps inputs, slots, outputs and their order, shapes
/// and dtypes. Nodes that fall out of use stay until `prune`. Linear time; `simplify(simplify(g))` is `simplify(g)`.
ir::Graph simplify(const ir::Graph& graph);

}  // namespace onepass::compiler
