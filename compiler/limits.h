// limits: splits a fusion group that is too large for one kernel. fuse calls it on its partition.
//
// The values that a fusion group computes are in graph order. A part is a run of these values within the KernelLimits. The chosen cuts
// minimize the bytes that cross them. A value computed before a cut and read after it is stored once and loaded again; an array read on
// both sides is loaded twice. Extents are seen as 0, 1 or many, as in all of fuse. So a value's bytes are its element size times a large
// number for each axis that is not 1.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

struct Partition;

struct KernelLimits {
  std::uint32_t primitives =
      1000;                 // primitive operators; an expanded function counts as the primitives of its expansion, a reduction as 16
  std::uint32_t live = 64;  // values that wait for their last use at the same time; more would be spilled
};

struct Cuts {
  std::vector<std::uint32_t> part;  // by node: 0, or the part that computes it
  std::vector<bool> stored;         // values that another part reads
  std::uint32_t parts = 0;
  bool separates(ir::NodeId value, std::uint32_t reader) const { return stored[value] && part[value] != reader; }
};

/// Splits the fusion groups that exceed the limits; returns false if no group exceeds them. Takes O(n log n) time for n nodes.
bool cut_at_limits(const ir::Graph& graph, const Partition& partition, const KernelLimits& limits, Cuts& cuts);

}  // namespace onepass::compiler
