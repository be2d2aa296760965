// See device_call.h.
#include "runtime/device_call.h"

#include "onepass/error.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/plan_report.h"
#include "runtime/profile.h"

namespace onepass::runtime {

namespace {
void fill_inputs(const CallSite& site, const PlanData& plan, std::span<const Array*> inputs) {
  std::size_t k = 0;
  for (const std::uint32_t i : plan.argument_of) inputs[k++] = site.arguments[i].array;
  for (const Array& a : plan.captured) inputs[k++] = &a;
}
}  // namespace

std::vector<const Array*> inputs_of(const CallSite& site, const PlanData& plan) {
  std::vector<const Array*> inputs(plan.argument_of.size() + plan.captured.size());
  fill_inputs(site, plan, inputs);
  return inputs;
}

void run_on_device(Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
                   const std::uint64_t* own_slots, std::span<const Array* const> outputs) {
  const profile::Span span(profile::Kind::Call, "call", plan.id);
  if (profile::on()) profile::describe(plan);
  ArrayPointers inputs(plan.argument_of.size() + plan.captured.size());
  fill_inputs(site, plan, inputs.span());
  const cuda::DeviceCopies copies = plan.on_device->run(plan, {inputs.span(), outputs, own_slots, state.options.check_nan});
  state.uploaded.fetch_add(copies.uploaded, std::memory_order_relaxed);
  state.downloaded.fetch_add(copies.downloaded, std::memory_order_relaxed);
  state.temporary_bytes.fetch_add(copies.temporaries, std::memory_order_relaxed);
  if (!copies.bad_index.empty()) {
    const OnCpu on_cpu(inputs.span());
    check_indices(recorded_of(plan), on_cpu.views(), slot_bits);  // throws the CPU's error
    throw IndexError(copies.bad_index);                           // it was an index of an earlier call, or it has changed since
  }
}

OnCpu::OnCpu(std::span<const Array* const> arrays) {
  for (const Array* const a : arrays) {
    arrays_.push_back(a->to(Device::cpu()));
    plans_.push_back(array_plan(a->dtype(), arrays_.back().shape(), arrays_.back().strides()));
    bases_.push_back(static_cast<const std::byte*>(arrays_.back().data()));
  }
}

std::vector<ir::ArrayView> OnCpu::views() const {
  std::vector<ir::ArrayView> out;
  for (std::size_t i = 0; i < plans_.size(); ++i) out.push_back({plans_[i].dtype, bases_[i], plans_[i].shape, plans_[i].strides});
  return out;
}

}  // namespace onepass::runtime
