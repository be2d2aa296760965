// limits: where a group that is too large for one kernel is cut. Called by fuse, on the partition that it has made.
//
// The values that a group computes stand in the graph's order; a part is a run of them with at most `most_primitives` and `most_live`. Of all
// ways to cut, the one in which the fewest bytes cross: a value computed before a cut and read behind it is stored once and loaded again, an
// array read on both sides is loaded twice. Like every decision of the partition this one sees extents as 0, 1 or many: a value's bytes are
// its element's, times a large number for each axis that is not 1.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

struct Partition;

struct KernelLimits {
  std::uint32_t primitives = 1000;  // of an expanded function: those it is built from
  std::uint32_t live = 64;          // values that wait for their last use at once; more are only spilled
};

struct Cuts {
  std::vector<std::uint32_t> part;  // of every node: 0, or the part that computes it
  std::vector<bool> stored;         // values that another part reads
  std::uint32_t parts = 0;
  bool separates(ir::NodeId value, std::uint32_t reader) const { return stored[value] && part[value] != reader; }
};

/// Cuts the groups above the limits; false where there are none. Takes n log n time for n nodes.
bool cut_at_limits(const ir::Graph& graph, const Partition& partition, const KernelLimits& limits, Cuts& cuts);

}  // namespace onepass::compiler
