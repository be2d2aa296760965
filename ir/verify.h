// The invariants of a graph, as a question rather than an exception. verify() and parse_graph() ask it, and tests that make random graphs.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace onepass::ir {

/// The first node, in order, that breaks a rule of ops.def; kNoNode where the graph itself does (its outputs, names, inputs).
struct Violation {
  NodeId node;
  std::string rule;
};

std::optional<Violation> find_violation(const Graph& graph);

}  // namespace onepass::ir
