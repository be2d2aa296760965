// unroll: replaces a reduction over a few elements by the operators on those elements, if no other node needs its operand or if it reduces
// short rows. The reduction then needs no loop: it runs inside the vector loop of its consumer. Runs after reroll and before fuse; result
// bits do not change.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "ir/graph.h"

namespace onepass::compiler {

/// Returns nullopt if there is no such reduction. Near-linear in nodes. The generic plan distinguishes each extent up to kMostUnrolled, and
/// up to kMostReread if the reduction reads every array repeatedly.
std::optional<ir::Graph> unroll(const ir::Graph& graph);

inline constexpr std::int64_t kMostUnrolled = 8, kMostReread = 32;

/// True if the lengths of a contraction allow unroll to write it out: rows and columns of 2 to kMostUnrolled elements.
bool has_small_product_lengths(const ir::Graph& graph, ir::NodeId id);

/// The attribute of an Identity that fuse always materializes.
inline constexpr std::int64_t kStored = -1;
inline bool is_stored(const ir::Graph& graph, ir::NodeId id) {
  return graph[id].op == ir::Op::Identity && std::ranges::equal(graph.attributes(id), std::span(&kStored, 1));
}

}  // namespace onepass::compiler
