// See program.h. Other parts are in call.cpp and bound_call.cpp (calls), make_plan.cpp (plans) and explain.cpp (inspection).
#include "runtime/program.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/background.h"
#include "runtime/call.h"
#include "runtime/checks.h"
#include "runtime/compare.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/device_call.h"
#include "runtime/log.h"
#include "runtime/make_plan.h"
#include "runtime/os.h"
#include "runtime/plan_report.h"
#include "runtime/profile.h"
#include "runtime/program_state.h"
#include "runtime/signature_text.h"
#include "runtime/threads.h"

namespace onepass::runtime {

using compiler::Target;
using compiler::Value;
using ir::Graph;

namespace {

bool can_compile() {
  const Target& host = Target::host();
  return !host.triple.starts_with("x86_64") || host.vector_bytes >= 32;
}

Target target_for(const Options& options) {
  const Target& host = Target::host();
  if (options.vector_bytes == 0) return host;
  if (options.vector_bytes > host.vector_bytes && host.triple.starts_with("x86_64"))
    throw ValueError(
        fmt::format("vector_bytes: the registers of this processor have {} bytes, not {}", host.vector_bytes, options.vector_bytes));
  return host.with_vector_bytes(options.vector_bytes);
}

}  // namespace

std::uint64_t new_id() {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Program::Program(Record record, std::vector<std::string> argument_names, Options options)
    : state_(std::make_unique<State>(std::move(record), std::move(argument_names), options)) {
  if (options.threads < 0 || options.threads > threads::kMaxThreads)
    throw ValueError(fmt::format("threads: {} is not between 0 (the default) and {}", options.threads, threads::kMaxThreads));
  static_cast<void>(out_of_memory());
  if (options.limits.array_bytes < 0)
    throw ValueError(
        fmt::format("array_bytes: {} is negative. Pass a number of bytes, or 0 for half the memory.", options.limits.array_bytes));
  for (const auto& [name, limit] : {std::pair{"work", options.limits.work}, std::pair{"compile_ms", options.limits.compile_ms}})
    if (limit < 0) throw ValueError(fmt::format("{}: {} is negative. Pass a positive number, or 0 for no limit.", name, limit));
  if (options.specialization.depth < 0)
    throw ValueError(
        fmt::format("depth: {} is negative. Pass a number of shapes, or 0 for generic kernels only.", options.specialization.depth));
  if (options.specialization.after_calls < 0)
    throw ValueError(
        fmt::format("after_calls: {} is negative. Pass a number of calls, or 0 for the rule by time.", options.specialization.after_calls));
  state_->target = target_for(options);
  state_->sealed = options.compile == Compile::never;
  state_->interpret = options.mode == Mode::reference || (options.mode == Mode::adaptive && !can_compile());
  if (state_->interpret && options.mode == Mode::adaptive) {
    static constinit Once once;
    if (once.first())
      log(LogLevel::warning,
          "this processor lacks AVX2 or FMA, which compiled kernels need; functions are interpreted, as in mode reference");
  }
  profile::start_from_environment();
  if (!state_->interpret && !can_compile())
    throw UnsupportedError("this processor lacks AVX2 or FMA, which compiled kernels need. Use mode reference.");
}

Program::~Program() { state_->plans.release_captured(); }

const Options& Program::options() const { return state_->options; }

Value ProgramRecorder::capture(const Array& array) {
  if (!array.has_memory()) throw ValueError("a captured Array is empty and has no memory");
  const auto [begin, end] = by_address_.equal_range(array.data());
  for (auto it = begin; it != end; ++it)
    if (same_view(captured[it->second.first], array)) return it->second.second;
  const Value value = input(fmt::format("captured{}", captured.size()), array.dtype(), array.shape());
  by_address_.emplace(array.data(), std::pair(captured.size(), value));
  captured.push_back(array);
  return value;
}

Comparison Program::compare(std::span<const Argument> arguments) try {
  const os::DefaultFloatingPoint control;
  const CallSite site = state_->site(arguments);
  const PlanPointer plan = find_or_make_plan(*state_, site);
  CallSlots slots(*state_, site, *plan);
  Graph graph = ir::prune(recorded_of(*plan));
  for (std::size_t i = 0; i < graph.slots.size(); ++i) graph.slots[i].bits = slots.all()[i];
  const OnCpu on_cpu(inputs_of(site, *plan));  // CPU arrays are used directly
  const bool compiles = can_compile() && os::may_run_made_code();
  const Mode mode = state_->interpret || !compiles ? Mode::reference : state_->options.mode;
  const Mode judge = mode == Mode::unfused || !compiles ? Mode::reference : Mode::unfused;
  return runtime::compare({.graph = graph,
                           .inputs = on_cpu.plans(),
                           .bases = on_cpu.bases(),
                           .target = state_->target,
                           .options = launch_options(*state_, site),
                           .mode = mode,
                           .judge = judge,
                           .device = plan->on_device ? plan->on_device->device() : Device::cpu()});
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

Stats Program::stats() const {
  const os::DefaultFloatingPoint control;
  Stats s = state_->plans.stats();
  const KernelCounts& counts = *state_->counts;
  s.optimised = counts.optimised.load(std::memory_order_relaxed);
  s.specialized = counts.specialised.load(std::memory_order_relaxed);
  s.ms_compiling = static_cast<double>(counts.compile_nanoseconds.load(std::memory_order_relaxed)) / 1e6;
  s.ms_lost = static_cast<double>(counts.lost_nanoseconds.load(std::memory_order_relaxed)) / 1e6;
  s.hot_shapes = state_->hot_shapes.load(std::memory_order_relaxed);
  s.bytes_allocated += state_->temporary_bytes.load(std::memory_order_relaxed);
  s.bytes_uploaded = state_->uploaded.load(std::memory_order_relaxed);
  s.bytes_downloaded = state_->downloaded.load(std::memory_order_relaxed);
  return s;
}

// ------------------------------------------------------------------------------------------------ preparation of calls

void Program::warm_up(const CallSignature& signature, Tier tier) try {
  const os::DefaultFloatingPoint control;
  const SignatureCall call(signature);
  const CallSite site = call.site(state_->threads_of_a_call());
  const PlanPointer plan = find_or_make_plan(*state_, site, tier == Tier::quick ? PlanFor::WarmUpQuick : PlanFor::WarmUp);
  if (tier == Tier::optimized) optimise_now(*plan);
  if (signature.hot && !plan->specialises.exchange(true)) specialise(*state_, *plan, false);
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

std::vector<CallSignature> Program::signatures() const {
  std::vector<CallSignature> all;
  for (const PlanPointer& plan : state_->plans.all()) all.push_back(CallSignature::of(*plan));
  std::reverse(all.begin(), all.end());
  return all;
}

void Program::seal() {
  state_->sealed.store(true, std::memory_order_relaxed);
  for (const PlanPointer& plan : state_->plans.all())
    for (const Launch& launch : plan->launches)
      if (launch.kernel) launch.kernel->optimise_soon();
}

bool Program::wait_until_optimized(std::int64_t nanoseconds) {
  const os::DefaultFloatingPoint control;
  const std::int64_t end = nanoseconds < 0 ? -1 : os::nanoseconds() + nanoseconds;
  const std::vector<PlanPointer> plans = state_->plans.all();
  for (const PlanPointer& plan : plans)
    for (const Launch& launch : plan->launches)
      if (launch.kernel) launch.kernel->optimise_soon();
  const auto is_over = [&] { return end >= 0 && os::nanoseconds() >= end; };
  if (background::threads() == 0)
    for (const PlanPointer& plan : plans)
      for (const Launch& launch : plan->launches)
        if (launch.kernel && !is_over()) launch.kernel->optimise_now();
  background::wait(end < 0 ? -1 : std::max<std::int64_t>(end - os::nanoseconds(), 0));
  return std::ranges::all_of(plans, [](const PlanPointer& plan) {
    return std::ranges::all_of(plan->launches, [](const Launch& launch) { return !launch.kernel || launch.kernel->is_settled(); });
  });
}

void Program::reset() {
  state_->plans.clear();
  state_->structures.clear();
  state_->id.store(new_id(), std::memory_order_relaxed);  // invalidates the plans that threads remember
  state_->last = 0;
  state_->hot_shapes = 0;
  state_->depth_said = false;
}

const std::vector<std::string>& Program::output_names(std::span<const Argument> arguments) {
  PlanData plan;
  fill_inputs(*state_, arguments, plan);
  const CallSite site = state_->site(arguments);
  std::vector<std::string> names;
  if (const PlanPointer known = state_->plans.find(site, signature_of(site))) names = known->output_names;  // usual, after a call
  else names = record(*state_, arguments, plan.inputs).graph.output_names;
  const std::lock_guard lock(state_->names_mutex);
  for (const std::vector<std::string>& known : state_->output_names)
    if (known == names) return known;
  return state_->output_names.emplace_back(std::move(names));
}

}  // namespace onepass::runtime
