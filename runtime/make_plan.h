// From a call to the plan that it runs: the function is recorded, planned, and gets its kernels; later, where its shape is hot, kernels of
// its own. program.cpp, which runs the plan, and what looks at plans call this.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program_state.h"

namespace onepass::runtime {

/// Call         somebody waits, so that Limits::compile_ms and Options::should_stop hold
/// WarmUp       nobody does; the kernels are optimised at once
/// WarmUpQuick  nobody does; the kernels begin in the tiers that a call would begin in
enum class PlanFor : std::uint8_t { Call, WarmUp, WarmUpQuick };
/// The plan for such calls: the one that is known, or a new one.
PlanPointer find_or_make_plan(Program::State& state, const CallSite& site, PlanFor purpose = PlanFor::Call);
/// Compiles the optimised tier of all kernels of a plan that have not theirs.
void optimise_now(const LaunchPlan& plan);

/// One run of the function. What it computes from literals has the bits that a call would compute.
/// Under no lock: the caller's function may take its time, call other functions, and wait for other threads that record.
ProgramRecorder record(const Program::State& state, std::span<const Argument> arguments, std::span<const ArrayPlan> inputs);

/// Fill in the parts of a plan that stand for the call's arrays: the arguments, what the recording captured, and the results that are
/// wanted, checked against the arrays they go to; `graph` keeps those results alone.
void fill_inputs(const Program::State& state, std::span<const Argument> arguments, PlanData& plan);
void add_captured(std::vector<Array> captured, PlanData& plan);
void fill_outputs(const CallSite& site, ir::Graph& graph, PlanData& plan);

LaunchOptions launch_options(const Program::State& state, const CallSite& site);

/// Kernels of its own for a plan that is hot, as long as the function's depth allows.
void specialise(Program::State& state, const LaunchPlan& plan, bool in_background) noexcept;

/// After each call. A shape that has become hot gets kernels of its own.
inline void count_run(Program::State& state, const LaunchPlan& plan) {
  const std::int64_t runs = plan.runs.fetch_add(1, std::memory_order_relaxed) + 1;
  if (runs < plan.hot_after || plan.specialises.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (!plan.specialises.exchange(true)) specialise(state, plan, state.options.specialization.in_background);
}

}  // namespace onepass::runtime
