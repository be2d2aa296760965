// Makes the plan of a call: records and plans the function and attaches kernels; later adds shape-specialized kernels if its shape is
// hot. Used by program.cpp, which runs plans, and by reports on plans.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program_state.h"

namespace onepass::runtime {

/// Call         a caller waits, so Limits::compile_ms and Options::should_stop apply
/// WarmUp       no caller waits; the kernels are optimized immediately
/// WarmUpQuick  no caller waits; the kernels start in the tier of a first call
enum class PlanFor : std::uint8_t { Call, WarmUp, WarmUpQuick };
/// Returns the plan for calls like `site`, from the table or new.
PlanPointer find_or_make_plan(Program::State& state, const CallSite& site, PlanFor purpose = PlanFor::Call);
/// Compiles the optimized tier of all kernels of a plan that lack it.
void optimise_now(const LaunchPlan& plan);

/// Runs the function once. Values computed from literals have the bits that a call would compute. The caller must hold no lock, because
/// the function may be slow, call other functions, or wait for other recording threads.
ProgramRecorder record(const Program::State& state, std::span<const Argument> arguments, std::span<const ArrayPlan> inputs);

/// Sets the parts of a plan that represent the call's arrays: arguments, captured arrays, or requested results. fill_outputs checks the
/// results against their destinations and removes all other results from `graph`.
void fill_inputs(const Program::State& state, std::span<const Argument> arguments, PlanData& plan);
void add_captured(std::vector<Array> captured, PlanData& plan);
void fill_outputs(const CallSite& site, ir::Graph& graph, PlanData& plan);

LaunchOptions launch_options(const Program::State& state, const CallSite& site);

/// Builds shape-specialized kernels for a hot plan, within the depth limit of the function.
void specialise(Program::State& state, const LaunchPlan& plan, bool in_background) noexcept;

/// Counts a run, after each call. Starts specialization if the shape has become hot.
inline void count_run(Program::State& state, const LaunchPlan& plan) {
  const std::int64_t runs = plan.runs.fetch_add(1, std::memory_order_relaxed) + 1;
  if (runs < plan.hot_after || plan.specialises.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (!plan.specialises.exchange(true)) specialise(state, plan, state.options.specialization.in_background);
}

}  // namespace onepass::runtime
