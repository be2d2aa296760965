// What a plan was made of. A plan for which the passes ran keeps its report; one of a known structure keeps that and its lengths alone, an
// eighth of the memory, and the report is made again when somebody asks.
#pragma once

#include <memory>

#include "compiler/target.h"
#include "ir/graph.h"
#include "runtime/launch.h"

namespace onepass::runtime {

/// Drops what can be made again: afterwards the plan has no report of its own, unless its recording said more than its structure does.
void keep_structure_alone(LaunchPlan& plan, int compiled);

/// All of it. `target`: the one that the plan was made for.
std::shared_ptr<const PlanReport> report_of(const LaunchPlan& plan, const compiler::Target& target);

/// The graphs alone. Slots have the values of the plan's recording.
ir::Graph recorded_of(const LaunchPlan& plan);
ir::Graph optimised_of(const LaunchPlan& plan);

}  // namespace onepass::runtime
