// contract: combines two tensors, whose axes run along named indices, into one contraction node over one index space. Called by the
// recorder and by differentiate.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// A value and the index of each of its axes. No index occurs twice. An axis of extent 1 may have no index (kNoIndex).
struct Indexed {
  ir::NodeId node;
  std::vector<int> indices;
};
inline constexpr int kNoIndex = -1;

/// Returns the extents of the index space: the indices of `result`, then the contracted indices in order of first appearance.
std::vector<std::int64_t> index_space(const ir::Graph& graph, const Indexed& a, const Indexed& b, std::span<const int> result);

/// Returns Σ a·b over the indices that are not in `result`; the result's axes run along `result`. Each index of `result` occurs in an
/// operand. Both operands have one type. This function fixes the order of summation (docs/language.md, "The order of summation"); it treats
/// a transpose of an operand as a different index order.
ir::NodeId contract(ir::Graph& graph, Indexed a, Indexed b, std::span<const int> result);

/// Returns the elements (i + max(0, -offset), i + max(0, offset)), i < count, along axis1 and axis2 of the contraction `id`. The diagonal
/// is the last axis. The result contracts only these elements, each in the summation order of `id`.
ir::NodeId contraction_of_diagonal(ir::Graph& graph, ir::NodeId id, std::int64_t offset, std::int64_t axis1, std::int64_t axis2,
                                   std::int64_t count);

/// Returns the value whose broadcast is the operand of a contraction. The operand's cotangent goes to that value.
ir::NodeId contracted_from(const ir::Graph& graph, ir::NodeId operand);
/// Returns the cotangent of operand `which` of the contraction `id`, given the cotangent g of its result. The returned
/// cotangent is a contraction of plain products.
ir::NodeId contraction_gradient(ir::Graph& graph, ir::NodeId id, int which, ir::NodeId g);

}  // namespace onepass::compiler
