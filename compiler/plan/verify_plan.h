// verify_plan: is what plan() made of a group what the group says? It runs for every plan, in release builds too, so it knows nothing of how
// the planner works: it reads the nests, their numbers and the graph.
//
// What is proved, for any lengths:
//   structure  operands are computed before they are used, in an earlier sweep where a reduction lies between; coefficients are what their
//              classes say; a statement varies along all loops that its operands vary along; short rows and families are what emitters expect
//   cover      the elements that all pieces of a group store are the elements of the array, each once. Stored sets are compared as
//              polynomials Σ z^element at a fixed point of the field of 2^61 - 1: equal sets are always found equal, different ones are
//              found equal with a probability below 2^-20. Not where a store's place holds a floor-div or mod: then all points are
//              listed if there are few, else the points below are looked at
//   bounds     every load lies within its array, by interval arithmetic under the load's guard. What that cannot decide (several loops in a
//              guard, floor-div and mod that belong together) is looked at in the points below
//   races      items store disjoint elements: it follows from cover; what is added where data say is disjoint by its other axes
//   reduced    the reduced loops have as many iterations as the reduced axes have elements
// What is compared at points: two for each nest (one drawn, one at the ends of all loops; more where data index), and those at both sides of the bounds of every
// check. There, the value that a store stores is followed back to what it loads, in the nest and, independently, in the graph from the
// element that is stored; operators, slots, indices and loaded elements on the two ways must be the same. A reduction is followed at one of
// its elements, an index that data bring at its last value and at one drawn from what it is computed from.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// Up to so many points of a nest are compared one by one, all of them where there are no more. 0, the default, means the points above only.
/// For tests. Any thread.
void set_verified_points(std::int64_t points) noexcept;
std::int64_t verified_points() noexcept;

/// Does it give its operand? Conversions change no value that is compared: the nest has others than the graph where halves are.
bool is_passed_through(ir::Op op);

/// What is wrong with the pieces of a group, with these printed; empty where nothing is. Arguments as those of plan().
std::string verify_plan(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                        std::span<const Planned> pieces, std::span<const Layout> targets = {});

/// What is wrong with the numbers of a schedule: tasks that leave out a part of the loops, scratch that is too small. Empty where nothing is.
std::string verify_schedule(const Nest& nest, const NestNumbers& numbers, const Scheduled& scheduled);

}  // namespace onepass::compiler
