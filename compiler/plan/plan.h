// plan: turns a fusion group into loop nests. It composes views into the affine maps of loads and splits loops where shapes factor. It
// orders loops by stride and merges them where every access allows it. Short rows are merged although a selection varies by row: it then
// selects single elements. Loops that read a Piecewise are cut at the edges of its boxes.
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

/// Returns the subdomains of a fusion group. There is one subdomain, unless the loops are cut at the edges of a Piecewise's boxes. Equal
/// nests share one kernel. The result is empty if there is no element to compute. `layouts[id]` is the layout in which an input or
/// materialized node of `graph` is read. `targets[k]` is the layout in which output k is written. Without `targets`, outputs use their
/// `layouts`, except that copies of inputs are contiguous.
std::vector<Planned> plan(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                          std::span<const Layout> targets = {});

}  // namespace onepass::compiler
