// strided: views as offsets and strides in the memory of the array that they read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Element i of the view is element `offset` + i · strides of the memory of `base`.
struct Strided {
  ir::NodeId base;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
};

/// Returns the node below all views.
ir::NodeId base_of_views(const ir::Graph& graph, ir::NodeId id);

std::vector<std::int64_t> contiguous_strides(ir::List shape);

/// Returns strides of an array of unknown layout: a view that has strides in this layout has strides in each. Returns nullopt for arrays
/// that are too large for that.
std::optional<std::vector<std::int64_t>> any_strides(ir::List shape);

/// Returns the node as a view of its base, whose strides are given. Returns nullopt if it has no strides: padding, windows, and axes that
/// are merged although they are apart in memory.
std::optional<Strided> as_strided(const ir::Graph& graph, ir::NodeId id, std::vector<std::int64_t> strides);

}  // namespace onepass::compiler
