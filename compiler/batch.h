// batch: a part of a graph once more, for many values of one operand at once, as one more axis in front. The rows or columns of a Jacobian
// are computed in one pass with it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// Appends to `graph` the values that `ys` take for each of the n values of `x` that stand along the first axis of `xs`: each of the shape
/// [n, y's]. What does not depend on x is shared; a y that does not is spread. `x` is a node of [shape], `xs` one of [n, shape] of its type.
///
/// Errors    ShapeError where a value has more axes or bytes than `limits` allow.
std::vector<ir::NodeId> batch(ir::Graph& graph, std::span<const ir::NodeId> ys, ir::NodeId x, ir::NodeId xs, const Limits& limits);

/// The attributes of a node once it has one more axis in front, which none of them is about; none where the operator has no such form.
/// Sums and scans keep their order, since the new axis is kept and stands before all others.
std::optional<std::vector<std::int64_t>> attributes_with_axis_in_front(const ir::Graph& graph, ir::NodeId id);

}  // namespace onepass::compiler
