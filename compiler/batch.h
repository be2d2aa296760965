// batch: evaluates a part of a graph for many values of some operands at once, along one new first axis. It computes the rows or columns of
// a Jacobian in one pass and implements vmap.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// An operand `one` of shape [shape], and `all`, its n values along the first axis. `all` has the same type and shape [n, shape].
struct Batched {
  ir::NodeId one, all;
};

/// Appends to `graph` each y for all n values of the operands, with shape [n, shape of y]. Nodes that depend on no batched operand are
/// shared. A y without such a dependency is broadcast. Requires at least one operand and the same n for all operands.
///
/// Errors    ShapeError that names `name`, if a value exceeds the axes or bytes that `limits` allow.
std::vector<ir::NodeId> batch(ir::Graph& graph, std::span<const ir::NodeId> ys, std::span<const Batched> operands, const Limits& limits,
                              std::string_view name);

/// Returns the node's attributes after an axis is inserted in front; nullopt if the operator has no such form. Sums and scans keep their
/// order, because the new axis is first and is not reduced.
std::optional<std::vector<std::int64_t>> attributes_with_axis_in_front(const ir::Graph& graph, ir::NodeId id);

}  // namespace onepass::compiler
