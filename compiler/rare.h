// Determines the part of an expansion that is in the unlikely branch of a `rare`. A kernel enters that branch only if some element needs
// it. All emitters use this class, so that they branch at the same points.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Maps each node of an expansion to the only `rare` that needs it, through its slow operand; kNoNode if it is needed elsewhere. Several
/// `rare` nodes with one condition count as the first `rare` node.
struct BehindRare {
  std::vector<ir::NodeId> rare;                      // by node
  std::unordered_map<ir::NodeId, ir::NodeId> first;  // by condition
  explicit BehindRare(const ir::Graph& expansion);
  /// Returns the `rare` nodes that share the condition of `first_rare`. Throws InternalError if one of them precedes an operand of another
  /// of them.
  std::vector<ir::NodeId> together(const ir::Graph& expansion, ir::NodeId first_rare) const;
};

}  // namespace onepass::compiler
