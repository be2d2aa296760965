// Shared parts of calls and bound calls: per-thread state, the scalar parameters and pointers of one call, mode reference.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "ir/of_thread.h"
#include "onepass/error.h"
#include "runtime/make_plan.h"
#include "runtime/os.h"
#include "runtime/program_state.h"
#include "runtime/row.h"

namespace onepass::runtime {

// The plans that a thread used last, four for each of four programs, accessed without a lock. They are kept until other plans replace
// them.
struct ThreadState {
  struct Recent {
    std::uint64_t program = 0;
    PlanPointer plan;
  };
  static constexpr std::size_t kWays = 4;
  std::array<Recent, 4 * kWays> recent;
  PlanPointer last;  // for last_optimized_graph
  int depth = 0;     // nesting depth of calls on this thread; inner calls do not change `recent` and `last`

  // Destroying captured values can run user code, which can make calls.
  ~ThreadState() {
    ++depth;
    last.reset();
    recent.fill({});
  }

  Recent* set_of(std::uint64_t program) { return &recent[(program & 3) * kWays]; }
};

inline ThreadState& thread_state() { return ir::OfThread<ThreadState>::get(); }

using Pointers = Row<std::byte*, 48>;

// The scalar parameters of one call: the call's numbers, and the recorded values of all other scalar parameters.
class CallSlots {
 public:
  CallSlots(Program::State& state, const CallSite& site, const LaunchPlan& plan)
      : plan_(plan), own_(plan.numbers.empty() ? 0 : plan.slot_bits.size()) {
    if (plan.numbers.empty()) return;
    const os::DefaultFloatingPoint control;
    std::ranges::copy(plan.slot_bits, own_.data());
    try {
      plan.numbers.evaluate([&](std::size_t i) -> const compiler::Literal& { return site.arguments[i].number; },
                            {own_.data(), plan.slot_bits.size()});
    } catch (const Error&) {  // a number out of range: the new recording throws an error with its source line
      record(state, site.arguments, std::span(plan.inputs).first(plan.argument_of.size()));
      throw;
    }
  }
  /// Returns the scalar parameters of this call; null if the call has no numbers.
  const std::uint64_t* own() { return plan_.numbers.empty() ? nullptr : own_.data(); }
  std::span<const std::uint64_t> all() {
    return plan_.numbers.empty() ? std::span(plan_.slot_bits) : std::span<const std::uint64_t>(own_.data(), plan_.slot_bits.size());
  }

 private:
  const LaunchPlan& plan_;
  Row<std::uint64_t, 32> own_;
};

inline void fill_input_bases(const LaunchPlan& plan, std::span<const Argument> arguments, std::byte** bases) {
  for (const std::uint32_t argument : plan.argument_of)
    *bases++ = static_cast<std::byte*>(const_cast<void*>(arguments[argument].array->data()));
  for (const Array& array : plan.captured) *bases++ = static_cast<std::byte*>(const_cast<void*>(array.data()));
}

/// Returns the arguments as views for the interpreter.
std::vector<ir::ArrayView> views_of(const LaunchPlan& plan, std::byte* const* bases);

/// Runs mode reference: `bases` as for kernels, outputs in the layout of the plan's destinations.
void interpret(const LaunchPlan& plan, std::byte* const* bases, std::span<const std::uint64_t> slot_bits, const StopCondition& stop);

/// Returns the exception for failed allocations with `new`, constructed in advance.
const std::exception_ptr& out_of_memory();

}  // namespace onepass::runtime
