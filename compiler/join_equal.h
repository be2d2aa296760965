// join_equal: computes a value once if the program computes it several times with equal literals. Each literal is a scalar parameter of its
// own, so that programs with other literals share kernels, and simplify takes such values as different. Runs after the passes that look for
// copies (find_steps.h, reroll.h), because copies have runs of literals, equal or not. Result bits do not change.
//
//   exp(x*2.5) + 3*exp(x*2.5)                      one exp
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// True if another call of the plan may have another value in this scalar parameter.
using IsBrought = std::function<bool(std::uint32_t slot)>;

/// For each scalar parameter, returns the first one of equal type and value. A brought parameter equals itself alone. If `is_brought` is
/// null, none is brought.
std::vector<std::uint32_t> equal_slots(const ir::Graph& graph, const IsBrought& is_brought = {});

/// Joins long operators, sums, contractions and scans. Joined values are read again, and others are cheaper to compute than to keep.
ir::Graph join_equal(ir::Graph graph, const IsBrought& is_brought);

}  // namespace onepass::compiler
