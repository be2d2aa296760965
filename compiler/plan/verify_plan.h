// verify_plan: checks that the result of plan() computes what the fusion group defines. It runs for every plan, also in release builds. It
// reads only the nests, their numbers and the graph, independently of the planner.
//
// Properties proved for any lengths:
//   structure  Operands are computed before their uses, and in an earlier sweep if a reduction is in between. Coefficients match their
//              kinds. A statement varies along all loops that its operands vary along. Short rows and interleaved access groups have the
//              form that emitters expect.
//   cover      The subdomains of a group together store each element of the array once. Sets of stored elements are compared as polynomials
//              Σ z^element at a fixed point of the field of 2^61 - 1. Equal sets always compare equal; different sets compare equal with a
//              probability below 2^-20. If a store's index has a floordiv/mod variable, all points are listed if they are few; else the
//              points below are compared.
//   bounds     Interval arithmetic under the load's predicate shows that every load is within its array. Cases that it cannot decide
//              (several loops in a predicate, related floordiv/mod variables) are tested at the points below.
//   races      Tasks store disjoint elements: it follows from cover. Additions at data-dependent indices are disjoint along their other
//              axes.
//   reduced    The reduced loops have as many iterations as the reduced axes have elements.
//
// Comparison at points: each nest has one random point and one point at the ends of all loops, and more points if it has data-dependent
// indices. Further points are on both sides of the bounds of each check. At each point, the stored value is traced back to its loads in the
// nest and, independently, in the graph. Operators, scalar parameters, indices and loaded elements must be equal on both paths.
//
// A reduction is traced at one of its elements. A data-dependent index is traced at its last value and at one random value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"

namespace onepass::compiler {

/// Sets the most points of a nest that are compared one by one; a nest with fewer points is compared completely. 0, the default, compares
/// only the points above. For tests. Thread-safe.
void set_verified_points(std::int64_t points) noexcept;
std::int64_t verified_points() noexcept;

/// True if the operator returns its operand. Conversions do not change compared values, because the conversions of halves in the nest
/// differ from the graph's conversions.
bool is_passed_through(ir::Op op);

/// Returns a description of the errors in the subdomains of a group, followed by the printed nests; empty if there are none. The arguments
/// are the same as for plan().
std::string verify_plan(const ir::Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                        std::span<const Planned> pieces, std::span<const Layout> targets = {});

/// Returns a description of the errors in the numbers of a schedule, or an empty string. Such errors are tasks that miss a part of the
/// loops, or too little scratch.
std::string verify_schedule(const Nest& nest, const NestNumbers& numbers, const Scheduled& scheduled);

}  // namespace onepass::compiler
