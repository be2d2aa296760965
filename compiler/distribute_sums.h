// distribute_sums: part of the relaxation `reassociate` (compiler/relax).
#pragma once

#include "ir/graph.h"

namespace onepass::compiler {

/// Takes factors that are equal along the summed axes out of sums, if the sum then needs fewer other reductions of the same axes first. So
/// a kernel sweeps over its operands once less. Takes time linear in nodes times kinds of sums.
ir::Graph distribute_sums(const ir::Graph& graph);

}  // namespace onepass::compiler
