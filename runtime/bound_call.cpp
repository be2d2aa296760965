// Program::Bound: a call that is checked and prepared once.
#include <optional>
#include <utility>

#include "runtime/aliases.h"
#include "runtime/call.h"
#include "runtime/checks.h"
#include "runtime/device_call.h"
#include "runtime/plan_report.h"

namespace onepass::runtime {

struct Program::Bound::Body {
  State& state;
  PlanPointer plan;
  std::vector<Array> arrays;  // kept alive
  std::vector<std::byte*> bases;
  std::vector<std::uint64_t> slot_bits;  // for an interpreted plan, indexing by data, or check_nan
  std::vector<Temporary> temporaries;    // created once; copied out after each run
  std::optional<PreparedRun> run;
  std::vector<Array> results;  // for check_nan
  LaunchOptions options;       // for check_nan

  // for a call on a device
  std::vector<Argument> arguments;
  std::vector<const Array*> outputs;
  bool own_slots = false;

  void run_on_device() {
    const CallSite site{arguments, {}, true, 1};
    runtime::run_on_device(state, site, *plan, slot_bits, own_slots ? slot_bits.data() : nullptr, outputs);
  }
};

std::unique_ptr<Program::Bound> Program::bind(std::span<const Argument> arguments, std::span<Array* const> targets) try {
  State& state = *state_;
  const Options& options = state.options;
  const CallSite site = state.site(arguments, targets);
  auto body = std::make_unique<Bound::Body>(Bound::Body{state, find_or_make_plan(state, site), {}, {}, {}, {}, {}, {}, {}, {}, {}, false});
  const LaunchPlan& plan = *body->plan;
  CallSlots slots(state, site, plan);
  if (options.check_recording) check_recording(state, site, plan, slots.all());
  else if (plan.captured_numbers.changed()) check_captures(state, site, plan, slots.all());
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  body->bases.resize(inputs + outputs + kMoreBases);
  fill_input_bases(plan, arguments, body->bases.data());
  for (std::size_t k = 0; k < outputs; ++k) body->bases[inputs + k] = static_cast<std::byte*>(targets[plan.target_of[k]]->mutable_data());
  for (const Argument& a : arguments)
    if (a.array) body->arrays.push_back(*a.array);
  for (const Array* const t : targets)
    if (t) body->arrays.push_back(*t);
  if (plan.on_device) {
    check_targets(plan, body->bases.data());
    body->slot_bits.assign(slots.all().begin(), slots.all().end());
    body->own_slots = slots.own() != nullptr;
    std::size_t next = 0;
    for (const Argument& a : arguments)
      body->arguments.push_back(a), body->arguments.back().array = a.array ? &body->arrays[next++] : nullptr;
    for (const Array* const t : targets) {
      const Array* const kept = t ? &body->arrays[next++] : nullptr;
      if (kept) body->outputs.push_back(kept);
    }
    if (options.check_nan) {
      body->options = launch_options(state, site);
      for (const Array* const a : body->outputs) body->results.push_back(*a);
    }
    return std::make_unique<Bound>(std::move(body));
  }
  resolve_aliases(plan, body->bases.data(), body->temporaries);
  state.temporary_bytes.fetch_add(bytes_of(body->temporaries), std::memory_order_relaxed);
  if (plan.interpret || plan.indexes || options.check_nan) body->slot_bits.assign(slots.all().begin(), slots.all().end());
  if (options.check_nan) {
    for (std::size_t k = 0; k < outputs; ++k) body->results.push_back(*targets[plan.target_of[k]]);
    body->options = launch_options(state, site);
  }
  if (!plan.interpret) body->run.emplace(plan, body->bases.data(), slots.own(), options.should_stop);
  return std::make_unique<Bound>(std::move(body));
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

Program::Bound::Bound(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Program::Bound::~Bound() = default;

void Program::Bound::operator()() {
  Body& b = *body_;
  if (b.plan->on_device) [[unlikely]] {
    b.run_on_device();
  } else if (b.run) [[likely]] {
    if (!(*b.run)()) [[unlikely]]
      check_indices(recorded_of(*b.plan), views_of(*b.plan, b.bases.data()), b.slot_bits);
  } else interpret(*b.plan, b.bases.data(), b.slot_bits, b.state.options.should_stop);
  if (!b.temporaries.empty()) copy_out(*b.plan, b.bases.data(), b.temporaries);
  if (!b.results.empty()) [[unlikely]]
    check_nan(b.state, b.options, *b.plan, b.slot_bits, std::span(b.bases).first(b.plan->inputs.size()), b.results,
              b.plan->on_device ? inputs_of({b.arguments, {}, true, 1}, *b.plan) : std::vector<const Array*>());
  count_run(b.state, *b.plan);
  ThreadState& thread = thread_state();
  if (thread.depth == 0 && thread.last != b.plan) thread.last = b.plan;
  if (b.state.last.load(std::memory_order_relaxed) != b.plan->id) b.state.last.store(b.plan->id, std::memory_order_relaxed);
}

}  // namespace onepass::runtime
