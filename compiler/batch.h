// batch: a part of a graph once more, for many values of some operands at once, as one more axis in front. The rows or columns of a Jacobian
// are computed in one pass with it, and vmap maps a function over an axis.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

/// An operand, a node of [shape], and its values along the first axis of `all`, a node of [n, shape] of its type.
struct Batched {
  ir::NodeId one, all;
};

/// Appends to `graph` the values that `ys` take for each of the n values of the operands: each of the shape [n, y's]. What depends on none of them
/// is shared; a y that does not is spread. There is at least one operand, and all have the same n.
///
/// Errors    ShapeError that names `name`, where a value has more axes or bytes than `limits` allow.
std::vector<ir::NodeId> batch(ir::Graph& graph, std::span<const ir::NodeId> ys, std::span<const Batched> operands, const Limits& limits,
                              std::string_view name);

/// The attributes of a node once it has one more axis in front, which none of them is about; none where the operator has no such form.
/// Sums and scans keep their order, since the new axis is kept and stands before all others.
std::optional<std::vector<std::int64_t>> attributes_with_axis_in_front(const ir::Graph& graph, ir::NodeId id);

}  // namespace onepass::compiler
