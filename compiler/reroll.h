// reroll: turns copies of one expression into one expression with one more axis. The copies read slices of an array, arrays of an array
// list, or literals. A Piecewise or a sum joins them, or each copy is a result. Runs after simplify and before fuse; result bits do not
// change.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns the graph, simplified and pruned; nullopt if no copies are joined, as in a graph with fewer than kFewestCopies copies of
/// anything. In nested loops each inner loop becomes one expression; these are then copies for the outer loop. Near-linear in nodes.
std::optional<ir::Graph> reroll(const ir::Graph& graph);

// Minimum copy count. Fewer copies stay boxes and terms; loops are split at the box edges.
inline constexpr std::size_t kFewestCopies = 8;

}  // namespace onepass::compiler
