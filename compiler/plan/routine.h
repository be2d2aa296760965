// routine: nests of precompiled routines. Operators such as sort, which no loop of a kernel computes, work on whole arrays in memory. Such
// a nest has no body. It has one access per array: the operands in order, then the result. The coefficients are the strides along the
// loops, and the last loop is the axis that the routine works along.
//
// plan() makes these nests, verify_plan() checks them, and runtime/routine.h runs them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/plan/plan.h"

namespace onepass::compiler {

/// Plans a group whose `routine` is set. Returns an empty vector if the result has no elements.
std::vector<Planned> plan_routine(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                                  std::span<const Layout> targets);

/// Returns a description of the first error in such a nest, or an empty string.
std::string verify_routine(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                           std::span<const Planned> pieces, std::span<const Layout> targets);

}  // namespace onepass::compiler
