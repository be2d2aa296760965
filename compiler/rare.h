// What of an expansion lies behind a `rare`: code that a kernel enters only where some element needs it. Called by the emitters, so that all
// of them branch at the same places.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// For each node of an expansion, the `rare` that alone needs it, through its slow operand; kNoNode where there is none. Of several with
/// one condition, the first stands for all.
struct BehindRare {
  std::vector<ir::NodeId> rare;                      // of each node
  std::unordered_map<ir::NodeId, ir::NodeId> first;  // of each condition
  explicit BehindRare(const ir::Graph& expansion);
  /// Those that stand with the first of their condition. InternalError where one of them comes before the operands of another.
  std::vector<ir::NodeId> together(const ir::Graph& expansion, ir::NodeId first_rare) const;
};

}  // namespace onepass::compiler
