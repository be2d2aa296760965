// Checks the invariants of a graph without exceptions. Used by verify(), parse_graph() and tests that make random graphs.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace onepass::ir {

/// The first node, in order, that violates a rule of ops.def. The node is kNoNode for violations by the graph's outputs, names or inputs.
struct Violation {
  NodeId node;
  std::string rule;
};

std::optional<Violation> find_violation(const Graph& graph);

}  // namespace onepass::ir
