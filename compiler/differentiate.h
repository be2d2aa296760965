// differentiate: reverse-mode derivatives as nodes. The recorder calls it during recording. So derivatives can nest, and every later pass
// sees forward and backward computation as one graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// A part of the graph with a custom derivative. The user wrote the derivative (custom_vjp), or the derivative recomputes the part
/// (checkpoint). Result k is an Identity with attributes {rule index, k}. The results have consecutive ids, after all nodes that they
/// depend on.
struct DerivativeRule {
  std::vector<ir::NodeId> arguments;
  std::vector<ir::NodeId> results;
  /// Function that appends the cotangent of each argument (kNoNode: absent) to the graph, given one cotangent for each result.
  using Backward = std::function<std::vector<ir::NodeId>(std::span<const ir::NodeId> arguments, std::span<const ir::NodeId> results,
                                                         std::span<const ir::NodeId> cotangents)>;
  Backward backward;
};
/// Rules by index. They are shared pointers because a backward function may add rules during its call.
using DerivativeRules = std::vector<std::shared_ptr<const DerivativeRule>>;

/// Appends to `graph` the derivatives of Σ cotangents·ys with respect to each of `xs`, in order. Each derivative has the type and shape of
/// its x, and is a constant zero if no y depends on x. Each cotangent has the type and shape of its y. `names` of the xs are used only in
/// messages.
///
/// Order     docs/language.md: the cotangents of one value are added in sequence, in reverse graph order: later nodes first, and within
///           a node the last operand first. `ys` count as operands of a final node. A broadcast's derivative is one sum.
/// Errors    DTypeError for integers and bool; ShapeError for a cotangent that does not match its y.
std::vector<ir::NodeId> differentiate(ir::Graph& graph, std::span<const ir::NodeId> ys, std::span<const ir::NodeId> cotangents,
                                      std::span<const ir::NodeId> xs, std::span<const std::string> names = {},
                                      const DerivativeRules& rules = {});

}  // namespace onepass::compiler
