// See fuse.h.
#include "compiler/cuda/fuse.h"

#include <algorithm>

#include "compiler/cuda/schedule.h"
#include "compiler/plan/plan.h"

namespace onepass::compiler::cuda {

Partition fuse(const ir::Graph& graph, FuseOptions options, std::span<const Layout> layouts, const DeviceTarget& target) {
  options.columns = true;
  Partition partition = compiler::fuse(graph, options);
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g) {
    if (!partition.groups[g].columns) continue;
    for (const Planned& planned : plan(graph, partition, g, layouts)) {
      if (!planned.nest.has_columns() || suits_device(planned.nest, planned.numbers, target)) continue;
      options.columns = false;
      return compiler::fuse(graph, options);
    }
  }
  return partition;
}

}  // namespace onepass::compiler::cuda
