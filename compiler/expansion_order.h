// The order in which an expansion's operators are emitted, and so executed, on a CPU. Called by KernelBuilder.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Vector registers: the number that one operator uses at once, and the number available.
struct RegisterUse {
  int at_once, all;
};

/// Returns all nodes of an expansion, each after its operands. Nodes on the longest path to the result come first, as long as the live
/// values fit in the registers. Short paths then fill the stalls of long paths. An expansion keeps its written order if it has a `rare`, or
/// if the new order would keep too many values alive.
std::vector<ir::NodeId> expansion_order(const ir::Graph& expansion, RegisterUse registers);

}  // namespace onepass::compiler
