// A call whose plan runs on a GPU, and copies of its arrays for what looks at them on the cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program_state.h"
#include "runtime/row.h"

namespace onepass::runtime {

using ArrayPointers = Row<const Array*, 48>;

/// The arrays that a plan reads: the call's, then what the function captured.
std::vector<const Array*> inputs_of(const CallSite& site, const PlanData& plan);

/// On the plan's device, into `outputs`, one for each of the plan's. `slot_bits`: all of this call; `own_slots`: null where the call
/// brings none.
void run_on_device(Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
                   const std::uint64_t* own_slots, std::span<const Array* const> outputs);

/// Those that are on the cpu stand for themselves.
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
