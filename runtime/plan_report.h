// Reports: the input of a plan. A plan made by the passes keeps its report. A plan from a shape-generic analysis keeps only the analysis
// and its lengths, an eighth of the memory, and rebuilds the report on request.
#pragma once

#include <memory>

#include "compiler/target.h"
#include "ir/graph.h"
#include "runtime/launch.h"

namespace onepass::runtime {

/// Drops the report if it can be rebuilt, which is not the case if the recording has more data than its shape-generic analysis.
void keep_structure_alone(LaunchPlan& plan, int compiled);

/// Returns the complete report. `target`: the target that the plan was made for.
std::shared_ptr<const PlanReport> report_of(const LaunchPlan& plan, const compiler::Target& target);

/// Returns only the recorded or the optimized graph, with the recorded values of scalar parameters.
ir::Graph recorded_of(const LaunchPlan& plan);
ir::Graph optimised_of(const LaunchPlan& plan);

}  // namespace onepass::runtime
