// The nests of all fusion groups of a graph, in execution order.
#pragma once

#include <utility>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"

namespace onepass::test {

inline std::vector<compiler::Planned> plans_of(const ir::Graph& graph) {
  const compiler::Partition partition = compiler::fuse(graph);
  const std::vector<compiler::Layout> layouts(graph.size());
  std::vector<compiler::Planned> out;
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
    for (compiler::Planned& p : compiler::plan(graph, partition, g, layouts)) out.push_back(std::move(p));
  return out;
}

}  // namespace onepass::test
