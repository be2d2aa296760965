// Finds values that are materialized whatever the fusion groups are. There are three kinds of such values: values that cost more to
// recompute than a round trip, nested subdomains that would multiply, and indices that need a separate kernel for their check. fuse
// calls this before it makes groups.
#pragma once

#include <vector>

#include "compiler/fuse.h"
#include "ir/graph.h"

namespace onepass::compiler {

inline constexpr std::uint32_t kRoundTrip = 32;  // operations on each element that cost about as much as a store and a load
/// Values are pairs if there are this many of them for each element that they are computed from. Storing them takes far more memory than the
/// program's arrays, so they are computed again by up to kMostOfPair operations.
inline constexpr std::int64_t kPairs = 16;
inline constexpr std::uint32_t kMostOfPair = 5 * kRoundTrip;

struct StoredAhead {
  std::vector<bool> needed;         // reached from the values in `wanted`
  std::vector<Boundary> boundary;   // Checked, Recompute, Pieces, else Inlined
  std::vector<std::int64_t> reads;  // elements of the largest array that the value's expression reads
};

/// Finds the values to materialize. `wanted` lists the values that the caller needs.
StoredAhead find_stored_ahead(const ir::Graph& graph, const FuseOptions& options, const std::vector<ir::NodeId>& wanted);

/// True if the broadcast repeats one value for each short row. The row's kernel computes it once (unroll.h).
bool repeats_in_short_rows(const ir::Graph& graph, ir::NodeId id);

/// True if the node has too many boxes for a select by element. Its loops are then split at the box edges, so no reduction can share them.
bool has_many_boxes(const ir::Graph& graph, const Lists& lists, ir::NodeId id);

}  // namespace onepass::compiler
