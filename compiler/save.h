// save: what a forward call keeps for a backward call that comes later. Called by runtime/gradient for each function that vjp is asked of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// A value of the forward part that the backward part reads from memory.
struct SavedValue {
  ir::NodeId node = ir::kNoNode;
  bool referenced = false;  // an input or a result: there already, and so no bytes
  std::int64_t bytes = 0;
  std::string why;
};

struct SavePlan {
  std::vector<SavedValue> values;
  std::vector<bool> in_backward;   // by node: the backward call computes it, whether the forward call does too or not
  std::int64_t bytes = 0;          // of what is saved
  std::int64_t unfused_bytes = 0;  // if it were every value that a backward operator reads, as without fusion
};

/// False of a half that no cast rounded: it is saved as f32.
bool is_saved_as_it_is(const ir::Graph& graph, ir::NodeId id);

/// `joint` is forward and backward as one graph; `cotangents` are what the backward call brings, `results` the forward call's, `gradients` the
/// backward call's. A value is saved or computed again, whichever costs less, as a minimum cut weighs it: a saved one is stored and loaded, one
/// that is computed again costs its primitives and the loads of what it is computed from. `budget` bounds the bytes that are saved
/// (negative: it does not): a smaller one never saves more.
SavePlan choose_saved(const ir::Graph& joint, std::span<const ir::NodeId> cotangents, std::span<const ir::NodeId> results,
                      std::span<const ir::NodeId> gradients, std::int64_t budget);

}  // namespace onepass::compiler
