// The order in which an expansion's operators are emitted for a CPU, which is the order in which they run. Called by KernelBuilder.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Vector registers: those that one operator works on at once, and those that there are.
struct RegisterUse {
  int at_once, all;
};

/// All nodes of an expansion, each behind its operands. First comes the operator from which the longest way leads to the result, so that
/// short ways fill the gaps in which long ones wait for themselves, as long as the values alive fit the registers. An expansion with a
/// `rare` stays as it is written, and so does one of which more would be alive than fits or than is as it is written.
std::vector<ir::NodeId> expansion_order(const ir::Graph& expansion, RegisterUse registers);

}  // namespace onepass::compiler
