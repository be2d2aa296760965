// plan: a group of the partition becomes a Nest: views are composed into index maps of loads, loops are split where shapes factor,
// reordered by stride and merged where every access allows it. Where a Piecewise is read, loops are cut at its boxes' edges.
#pragma once

#include <span>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/plan/nest.h"

namespace onepass::compiler {

struct Planned {
  Nest nest;
  NestNumbers numbers;
};

/// The pieces of a group: one, unless its loops are cut at the edges of a Piecewise's boxes. Equal nests are one kernel. None where there
/// is no element to compute. `layouts[id]`: of the input and stored nodes of `graph`, as they are read. `targets[k]`: of output k, as it is written; none given:
/// what is read, but contiguous for the copy of an input.
std::vector<Planned> plan(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                          std::span<const Layout> targets = {});

}  // namespace onepass::compiler
