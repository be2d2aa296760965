// Calls with a plan for a GPU, and copies of their arrays for checks on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program_state.h"
#include "runtime/row.h"

namespace onepass::runtime {

using ArrayPointers = Row<const Array*, 48>;

/// Returns the arrays that a plan reads: the call's arrays, then the captured arrays.
std::vector<const Array*> inputs_of(const CallSite& site, const PlanData& plan);

/// Runs the plan on its device, into `outputs`, one for each output of the plan. `slot_bits`: all scalar parameters of this call;
/// `own_slots`: null if the call has no numbers.
void run_on_device(Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
                   const std::uint64_t* own_slots, std::span<const Array* const> outputs);

/// CPU copies of arrays; arrays on the CPU are used directly.
class OnCpu {
 public:
  explicit OnCpu(std::span<const Array* const> arrays);
  std::vector<ir::ArrayView> views() const;
  std::span<const ArrayPlan> plans() const { return plans_; }
  std::span<const std::byte* const> bases() const { return bases_; }

 private:
  std::vector<Array> arrays_;
  std::vector<ArrayPlan> plans_;
  std::vector<const std::byte*> bases_;
};

}  // namespace onepass::runtime
