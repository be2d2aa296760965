// contract: two tensors, each axis of them running along an index, become one contraction node over one index space. Called while
// recording and by differentiate.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// A value and the index that each of its axes runs along. No index stands twice; an axis of extent 1 may run along none, kNoIndex.
struct Indexed {
  ir::NodeId node;
  std::vector<int> indices;
};
inline constexpr int kNoIndex = -1;

/// The extents of the index space: those of `result`, then what is contracted in the order in which it first appears.
std::vector<std::int64_t> index_space(const ir::Graph& graph, const Indexed& a, const Indexed& b, std::span<const int> result);

/// Σ a·b over the indices that `result` lacks; the axes of what is returned run along `result`, each of which an operand has. The operands
/// are of one type. Its order (docs/language.md, "The order of summation") is fixed here, transposes of the operands read as index orders.
ir::NodeId contract(ir::Graph& graph, Indexed a, Indexed b, std::span<const int> result);

/// The elements (i + max(0, -offset), i + max(0, offset)) of the axes axis1 and axis2 of the contraction `id`, i < count, behind its other
/// axes: a contraction of these alone, each in the order in which `id` adds it up.
ir::NodeId contraction_of_diagonal(ir::Graph& graph, ir::NodeId id, std::int64_t offset, std::int64_t axis1, std::int64_t axis2,
                                   std::int64_t count);

/// What the operand of a contraction is a broadcast of: where its cotangent goes.
ir::NodeId contracted_from(const ir::Graph& graph, ir::NodeId operand);
/// That cotangent: of operand `which` of the contraction `id`, with the cotangent g of its result. A contraction, in plain products.
ir::NodeId contraction_gradient(ir::Graph& graph, ir::NodeId id, int which, ir::NodeId g);

}  // namespace onepass::compiler
