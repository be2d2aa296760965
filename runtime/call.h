// What calls and bound calls have in common: what a thread remembers, the slots and the pointers of one call, mode reference.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "onepass/error.h"
#include "runtime/make_plan.h"
#include "runtime/os.h"
#include "runtime/program_state.h"
#include "runtime/row.h"

namespace onepass::runtime {

// The plans that a thread used last, four for each of four programs, without any lock. They live until others take their place.
struct ThreadState {
  struct Recent {
    std::uint64_t program = 0;
    PlanPointer plan;
  };
  static constexpr std::size_t kWays = 4;
  std::array<Recent, 4 * kWays> recent;
  PlanPointer last;  // for last_optimized_graph
  int depth = 0;     // of calls within calls on this thread: the inner ones leave `recent` and `last` alone

  // What plans captured may run its owner's code, which may call.
  ~ThreadState() {
    ++depth;
    last.reset();
    recent.fill({});
  }

  Recent* set_of(std::uint64_t program) { return &recent[(program & 3) * kWays]; }
};

inline ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

using Pointers = Row<std::byte*, 48>;

// The slots of one call: those that its numbers fill, the others as they were recorded.
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
    } catch (const Error&) {  // a number that does not fit: recorded again, the message says where
      record(state, site.arguments, std::span(plan.inputs).first(plan.argument_of.size()));
      throw;
    }
  }
  /// Null where the call brings none.
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

/// The arguments as the interpreter reads them.
std::vector<ir::ArrayView> views_of(const LaunchPlan& plan, std::byte* const* bases);

/// Mode reference: `bases` as for kernels, outputs laid out as the plan's targets.
void interpret(const LaunchPlan& plan, std::byte* const* bases, std::span<const std::uint64_t> slot_bits, const StopCondition& stop);

/// What a call throws when `new` finds nothing, made before it is needed.
const std::exception_ptr& out_of_memory();

}  // namespace onepass::runtime
