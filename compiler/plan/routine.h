// Nests of precompiled routines: operators that no loop of a kernel computes, such as sort, take whole arrays in memory. Such a nest has no body: an
// access for each array, the operands' in their order and then the result's, whose coefficients are the strides along the loops; the last loop is
// the axis that the routine works along. plan() makes it, verify_plan() checks it; runtime/routine.h runs it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/plan/plan.h"

namespace onepass::compiler {

/// Of a group whose `routine` is set. None where the result has no element.
std::vector<Planned> plan_routine(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                                  std::span<const Layout> targets);

/// What is wrong with such a nest, else empty.
std::string verify_routine(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                           std::span<const Planned> pieces, std::span<const Layout> targets);

}  // namespace onepass::compiler
