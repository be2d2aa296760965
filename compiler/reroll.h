// reroll: copies of one expression over slices of an array, arrays of a list or literals, joined again by a Piecewise or a sum, or each a result,
// become one expression with one more axis.
// After simplify, before fuse; bits unchanged.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace onepass::compiler {

/// Simplified and pruned; none where nothing is joined, as in a graph without at least kFewestCopies copies of anything. Of loops in loops the
/// inner ones become one expression each; these are copies in their turn. Near-linear in nodes.
std::optional<ir::Graph> reroll(const ir::Graph& graph);

inline constexpr std::size_t kFewestCopies = 8;  // below, copies are boxes and terms as they stand: loops are cut at their edges

}  // namespace onepass::compiler
