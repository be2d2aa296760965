// A warm call finds its plan among the thread's recent plans without a lock, sets the pointers and runs. A call with another signature
// searches the program's table. A new signature is recorded, planned and compiled.
#include "runtime/call.h"

#include <utility>

#include "runtime/aliases.h"
#include "runtime/checks.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/device_call.h"
#include "runtime/plan_report.h"
#include "runtime/profile.h"
#include "runtime/stop.h"

namespace onepass::runtime {

const std::exception_ptr& out_of_memory() {
  static const std::exception_ptr error = std::make_exception_ptr(
      MemoryError("out of memory: the system cannot provide the memory that preparing a call needs; nothing was computed"));
  return error;
}

std::vector<ir::ArrayView> views_of(const LaunchPlan& plan, std::byte* const* bases) {
  std::vector<ir::ArrayView> views;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const ArrayPlan& input = plan.inputs[i];
    views.push_back({input.dtype, bases[i], input.shape, input.strides});
  }
  return views;
}

void interpret(const LaunchPlan& plan, std::byte* const* bases, std::span<const std::uint64_t> slot_bits, const StopCondition& stop) {
  const profile::Span span(profile::Kind::Call, "interpret", plan.id);
  if (profile::on()) profile::describe(plan);
  std::vector<ir::Buffer> results;
  {
    const os::DefaultFloatingPoint control;
    if (stop) {
      StopCheck check(stop);
      check.ask();
      results = ir::evaluate(plan.report->optimised, views_of(plan, bases), slot_bits, [&](std::int64_t work) { check.did(work); });
    } else {
      results = ir::evaluate(plan.report->optimised, views_of(plan, bases), slot_bits);
    }
  }
  std::vector<ArrayPlan> dense;  // of all results, before any result is written
  for (const ir::Buffer& result : results) dense.push_back(array_plan(result.dtype, result.shape, {}));
  for (std::size_t k = 0; k < results.size(); ++k)
    copy_array(plan.targets[k], bases[plan.inputs.size() + k], dense[k], results[k].bytes.data());
}

namespace {

// The plan of one call, kept alive while it runs.
class Call {
 public:
  Call(Program::State& state, const CallSite& site) : thread_(thread_state()) {
    if (thread_.depth == 0) [[likely]] {
      const std::uint64_t id = state.id.load(std::memory_order_relaxed);
      ThreadState::Recent* const set = thread_.set_of(id);
      for (std::size_t i = 0; i < ThreadState::kWays; ++i) {
        if (set[i].program != id || !matches(site, *set[i].plan)) continue;
        if (i > 0) std::swap(set[i], set[i - 1]), --i;  // plans in use move to the front
        plan_ = set[i].plan.get();
        ++thread_.depth;
        remember(state, set[i].plan);
        return;
      }
      held_ = find_or_make_plan(state, site);  // may call other programs
      plan_ = held_.get();
      std::rotate(set, set + ThreadState::kWays - 1, set + ThreadState::kWays);
      const ThreadState::Recent gone = std::exchange(set[0], {id, held_});
      ++thread_.depth;
      remember(state, held_);
    } else {
      held_ = find_or_make_plan(state, site);
      plan_ = held_.get();
      ++thread_.depth;
      state.last.store(plan_->id, std::memory_order_relaxed);
    }
  }
  ~Call() { --thread_.depth; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const LaunchPlan& plan() const { return *plan_; }

 private:
  ThreadState& thread_;
  const LaunchPlan* plan_ = nullptr;
  PlanPointer held_;

  // Remembers the plan as the last plan. Must run inside the call, because dropping the previous plan can run user code of captured
  // values, which may make calls.
  void remember(Program::State& state, const PlanPointer& plan) {
    if (thread_.last != plan) thread_.last = plan;
    if (state.last.load(std::memory_order_relaxed) != plan->id) state.last.store(plan->id, std::memory_order_relaxed);
  }
};

}  // namespace

std::vector<Array> Program::call(std::span<const Argument> arguments, Aftermath* after) try {
  State& state = *state_;
  const Options& options = state.options;
  const CallSite site = state.site(arguments);
  const Call call(state, site);
  const LaunchPlan& plan = call.plan();
  CallSlots slots(state, site, plan);
  if (options.check_recording) [[unlikely]]
    check_recording(state, site, plan, slots.all());
  else if (plan.captured_numbers.changed()) [[unlikely]] check_captures(state, site, plan, slots.all());
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Pointers bases(inputs + outputs + kMoreBases);
  std::vector<Array> results;
  results.reserve(outputs);
  fill_input_bases(plan, arguments, bases.data());
  if (plan.on_device) [[unlikely]] {
    ArrayPointers places(outputs);
    for (const ArrayPlan& o : plan.outputs)
      results.push_back(Array::empty(Extents(std::span<const std::int64_t>(o.shape)), o.dtype, plan.on_device->device()));
    for (std::size_t k = 0; k < outputs; ++k) places[k] = &results[k];
    run_on_device(state, site, plan, slots.all(), slots.own(), places.span());
    if (options.check_nan)
      check_nan(state, launch_options(state, site), plan, slots.all(), {bases.data(), inputs}, results, inputs_of(site, plan));
    if (after) *after = {plan.attachment, plan.captured, {slots.all().begin(), slots.all().end()}, plan.shared_from_this()};
    count_run(state, plan);
    return results;
  }
  for (std::size_t k = 0; k < outputs; ++k) {
    results.push_back(Array::empty(Extents(std::span<const std::int64_t>(plan.outputs[k].shape)), plan.outputs[k].dtype));
    bases[inputs + k] = static_cast<std::byte*>(results.back().mutable_data());
  }
  if (plan.interpret) interpret(plan, bases.data(), slots.all(), options.should_stop);
  else if (!run(plan, bases.data(), slots.own(), options.should_stop)) [[unlikely]]
    check_indices(recorded_of(plan), views_of(plan, bases.data()), slots.all());
  if (options.check_nan) [[unlikely]]
    check_nan(state, launch_options(state, site), plan, slots.all(), {bases.data(), inputs}, results);
  if (after) [[unlikely]]
    *after = {plan.attachment, plan.captured, {slots.all().begin(), slots.all().end()}, plan.shared_from_this()};
  count_run(state, plan);
  return results;
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

void Program::call_into(std::span<const Argument> arguments, std::span<Array* const> targets) try {
  State& state = *state_;
  const Options& options = state.options;
  const CallSite site = state.site(arguments, targets);
  const Call call(state, site);
  const LaunchPlan& plan = call.plan();
  CallSlots slots(state, site, plan);
  if (options.check_recording) [[unlikely]]
    check_recording(state, site, plan, slots.all());
  else if (plan.captured_numbers.changed()) [[unlikely]] check_captures(state, site, plan, slots.all());
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Pointers bases(inputs + outputs + kMoreBases);
  fill_input_bases(plan, arguments, bases.data());
  for (std::size_t k = 0; k < outputs; ++k) bases[inputs + k] = static_cast<std::byte*>(targets[plan.target_of[k]]->mutable_data());
  const auto check_written = [&](std::span<const Array* const> there) {
    std::vector<Array> written;
    for (std::size_t k = 0; k < outputs; ++k) written.push_back(*targets[plan.target_of[k]]);
    check_nan(state, launch_options(state, site), plan, slots.all(), {bases.data(), inputs}, written, there);
  };
  if (plan.on_device) [[unlikely]] {
    check_targets(plan, bases.data());
    ArrayPointers places(outputs);
    for (std::size_t k = 0; k < outputs; ++k) places[k] = targets[plan.target_of[k]];
    run_on_device(state, site, plan, slots.all(), slots.own(), places.span());
    if (options.check_nan) check_written(inputs_of(site, plan));
    count_run(state, plan);
    return;
  }
  std::vector<Temporary> temporaries;
  resolve_aliases(plan, bases.data(), temporaries);
  if (plan.interpret) interpret(plan, bases.data(), slots.all(), options.should_stop);
  else if (!run(plan, bases.data(), slots.own(), options.should_stop)) [[unlikely]]
    check_indices(recorded_of(plan), views_of(plan, bases.data()), slots.all());
  if (!temporaries.empty()) [[unlikely]] {
    copy_out(plan, bases.data(), temporaries);
    state.temporary_bytes.fetch_add(bytes_of(temporaries), std::memory_order_relaxed);
  }
  if (options.check_nan) [[unlikely]]
    check_written({});
  count_run(state, plan);
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

}  // namespace onepass::runtime
