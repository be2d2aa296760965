// See plan_report.h.
#include "runtime/plan_report.h"

#include <algorithm>
#include <utility>

namespace onepass::runtime {

using ir::Graph;

namespace {

Graph with_slots(Graph graph, const LaunchPlan& plan) {
  for (std::size_t i = 0; i < graph.slots.size() && i < plan.slot_bits.size(); ++i) graph.slots[i].bits = plan.slot_bits[i];
  return graph;
}

}  // namespace

void keep_structure_alone(LaunchPlan& plan, int compiled) {
  const auto was_there = [](const KernelReport& kernel) { return kernel.outcome == CacheOutcome::memory; };
  if (plan.known.structure && compiled == 0 && plan.report->notes.empty() && std::ranges::all_of(plan.report->kernels, was_there))
    plan.report.reset();
}

Graph recorded_of(const LaunchPlan& plan) {
  return plan.report ? plan.report->recorded : with_slots(plan.known.structure->recorded(plan.known.lengths), plan);
}

Graph optimised_of(const LaunchPlan& plan) {
  return with_slots(plan.report ? plan.report->optimised : plan.known.structure->optimised(plan.known.lengths), plan);
}

std::shared_ptr<const PlanReport> report_of(const LaunchPlan& plan, const compiler::Target& target) {
  if (plan.report) return plan.report;
  auto report = std::make_shared<PlanReport>();
  report->recorded = recorded_of(plan);
  report->optimised = optimised_of(plan);
  report->partition = plan.known.structure->partition(plan.known.lengths);
  PlanData again;
  again.inputs = plan.inputs;
  again.outputs = plan.outputs;
  again.targets = plan.targets;
  again.numbers = plan.numbers;
  make_launches(again, *report, target, plan.options, plan.known.structure.get());
  for (const Launch& launch : plan.launches) {
    KernelReport& kernel = report->kernels[launch.of];
    kernel.from_cache = true;  // otherwise the plan would have kept its report
    kernel.outcome = CacheOutcome::memory;
    kernel.in_tiles = launch.kernel && launch.kernel->tiles();
  }
  return report;
}

}  // namespace onepass::runtime
