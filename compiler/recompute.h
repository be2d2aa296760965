// Which values are stored whatever groups there are: those whose recomputation costs more than a round trip, pieces of pieces that would
// multiply, and places that are checked in a kernel of their own. fuse calls this before it makes groups.
#pragma once

#include <vector>

#include "compiler/fuse.h"
#include "ir/graph.h"

namespace onepass::compiler {

struct StoredAhead {
  std::vector<bool> needed;        // reached from what the caller wants
  std::vector<Boundary> boundary;  // Checked, Recompute, Pieces, else Inlined
};

/// `wanted`: the values that the caller wants.
StoredAhead find_stored_ahead(const ir::Graph& graph, const FuseOptions& options, const std::vector<ir::NodeId>& wanted);

/// A node of more boxes than are chosen between element by element: its loops are cut at their edges, so that no reduction can share them.
bool has_many_boxes(const ir::Graph& graph, const Lists& lists, ir::NodeId id);

}  // namespace onepass::compiler
