// differentiate: reverse-mode derivatives as nodes. The recorder calls it while recording, so derivatives nest, and every later pass
// sees forward and backward as one graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// A part of the graph with a derivative of its own: the user's (custom_vjp), or one that computes the part again (checkpoint). Result k is
/// an Identity with attributes {index of the rule, k}; the results stand beside each other, behind everything that they are computed from.
struct DerivativeRule {
  std::vector<ir::NodeId> arguments;
  std::vector<ir::NodeId> results;
  /// Appends the cotangent of each argument (kNoNode: none) to the graph, from one cotangent for each result.
  using Backward = std::function<std::vector<ir::NodeId>(std::span<const ir::NodeId> arguments, std::span<const ir::NodeId> results,
                                                         std::span<const ir::NodeId> cotangents)>;
  Backward backward;
};
/// By index. Shared: a backward may add rules while it runs.
using DerivativeRules = std::vector<std::shared_ptr<const DerivativeRule>>;

/// Appends to `graph` the derivatives of Σ cotangents·ys with respect to each of `xs`, in that order, each of its x's type and shape;
/// a constant zero for an x that no y depends on. Cotangents are of their y's type and shape. `names` of the xs are for messages only.
///
/// Order     docs/language.md: the cotangents of one value are added in sequence, by use, the node that stands last in the graph first,
///           within a node the last operand first (`ys` count as a last node's operands). A broadcast's derivative is one sum.
/// Errors    DTypeError for integers and bool; ShapeError for a cotangent unlike its y.
std::vector<ir::NodeId> differentiate(ir::Graph& graph, std::span<const ir::NodeId> ys, std::span<const ir::NodeId> cotangents,
                                      std::span<const ir::NodeId> xs, std::span<const std::string> names = {},
                                      const DerivativeRules& rules = {});

}  // namespace onepass::compiler
