// save: selects the residuals that a forward call keeps for a later backward call. runtime/gradient calls it for each function with vjp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Residual: a value of the forward part that the backward part reads from memory.
struct SavedValue {
  ir::NodeId node = ir::kNoNode;
  bool referenced = false;  // an input or a result, which exists anyway and so costs no bytes
  std::int64_t bytes = 0;
  std::string why;
};

struct SavePlan {
  std::vector<SavedValue> values;
  std::vector<bool> in_backward;   // by node: computed by the backward call, whether or not the forward call also computes it
  std::int64_t bytes = 0;          // bytes of all residuals
  std::int64_t unfused_bytes = 0;  // bytes of the residuals without fusion: every value that a backward operator reads
};

/// False for a half-precision value that no cast rounded: it is saved as f32.
bool is_saved_as_it_is(const ir::Graph& graph, ir::NodeId id);

/// Chooses for each value whether to save or to recompute it, by a minimum cut of costs. A residual costs its store and load. A recomputed
/// value costs its primitives and the loads of its operands.
///
/// `joint` holds forward and backward computation as one graph. `cotangents` are the inputs of the backward call, `gradients` are its
/// results, and `results` are the results of the forward call. `budget` bounds the residual bytes (negative: unbounded); a smaller budget
/// never saves more.
SavePlan choose_saved(const ir::Graph& joint, std::span<const ir::NodeId> cotangents, std::span<const ir::NodeId> results,
                      std::span<const ir::NodeId> gradients, std::int64_t budget);

}  // namespace onepass::compiler
