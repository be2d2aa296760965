// See make_plan.h.
#include "runtime/make_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compiler/codegen.h"
#include "compiler/record.h"
#include "onepass/error.h"
#include "runtime/background.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/plan_report.h"
#include "runtime/profile.h"
#include "runtime/signature_text.h"
#include "runtime/stop.h"
#include "runtime/threads.h"

namespace onepass::runtime {

using compiler::Recorder;
using compiler::type_text;
using compiler::Value;
using ir::Graph;
using ir::NodeId;

// ------------------------------------------------------------------------------------------------ recordings

namespace {

// Returns inputs for the array arguments and literals for the numbers.
std::vector<Value> argument_values(Recorder& recorder, const std::vector<std::string>& names, std::span<const Argument> arguments,
                                   std::span<const ArrayPlan> inputs) {
  std::vector<Value> values;
  std::size_t next = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].array) {
      const ArrayPlan& input = inputs[next++];
      values.push_back(recorder.input(i < names.size() ? names[i] : fmt::format("x{}", i), input.dtype, input.shape));
    } else {
      values.push_back(recorder.number(static_cast<std::uint32_t>(i), arguments[i].number));
    }
  }
  return values;
}

std::string type_of(const Array& a) { return type_text(a.dtype(), a.shape()); }

}  // namespace

ProgramRecorder record(const Program::State& state, std::span<const Argument> arguments, std::span<const ArrayPlan> inputs) {
  const os::DefaultFloatingPoint control;
  ProgramRecorder recorder;
  recorder.regroups = state.options.relax.reassociate;
  recorder.limits = state.options.limits;
  if (state.options.device.is_cuda()) recorder.fewest_loop_steps = recorder.fewest_while_steps = std::numeric_limits<std::int64_t>::max();
  const std::vector<Value> values = argument_values(recorder, state.argument_names, arguments, inputs);
  state.record(recorder, values);
  return recorder;
}

void add_captured(std::vector<Array> captured, PlanData& plan) {
  for (const Array& a : captured) plan.inputs.push_back(array_plan(a.dtype(), a.shape(), a.strides()));
  plan.captured = std::move(captured);
}

void fill_inputs(const Program::State& state, std::span<const Argument> arguments, PlanData& plan) {
  const std::vector<std::string>& names = state.argument_names;
  if (!names.empty() && arguments.size() != names.size()) {
    std::string list;
    for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
    throw Error(fmt::format("the function takes {} argument{} ({}), but the call has {}", names.size(), names.size() == 1 ? "" : "s", list,
                            arguments.size()));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Array* const a = arguments[i].array;
    if (!a) continue;
    if (!a->has_memory())
      throw ValueError(
          fmt::format("argument {} is an empty Array, which has no memory", i < names.size() ? names[i] : fmt::format("x{}", i)));
    plan.inputs.push_back(array_plan(a->dtype(), a->shape(), a->strides()));
    plan.argument_of.push_back(static_cast<std::uint32_t>(i));
  }
}

void fill_outputs(const CallSite& site, Graph& graph, PlanData& plan) {
  plan.output_names = graph.output_names;
  const std::size_t results = graph.outputs.size();
  if (site.into && site.targets.size() != results)
    throw Error(fmt::format("the function has {} result{}, but {} destination{} given", results, results == 1 ? "" : "s",
                            site.targets.size(), site.targets.size() == 1 ? " was" : "s were"));
  std::vector<NodeId> wanted;
  std::vector<std::string> wanted_names;
  for (std::size_t k = 0; k < results; ++k) {
    const NodeId id = graph.outputs[k];
    const Array* const target = site.into ? site.targets[k] : nullptr;
    if (site.into && !target) continue;  // discarded: not computed
    std::span<const std::int64_t> strides;
    if (target) {
      const std::string& name = graph.output_names[k];
      const std::string type = type_text(graph[id].dtype, graph.shape(id));
      const std::string& source = graph.sources[graph.source_of[id]];
      const std::string where = source.empty() ? "" : fmt::format("\n  Recorded at {}.", source);  // source position of the result
      if (!target->has_memory())
        throw ValueError(fmt::format("destination {} is an empty Array, but the result is {}{}", name, type, where));
      if (target->dtype() != graph[id].dtype)
        throw DTypeError(fmt::format("destination {} is {}, but the result is {}; a destination must have exactly the result's type{}",
                                     name, type_of(*target), type, where));
      if (!std::ranges::equal(target->shape(), graph.shape(id)))
        throw ShapeError(fmt::format("destination {} is {}, but the result is {}; a destination must have exactly the result's shape{}",
                                     name, type_of(*target), type, where));
      if (target->is_read_only())
        throw ValueError(fmt::format("destination {} {} is read-only; a destination must be writable{}", name, type, where));
      strides = target->strides();
    }
    plan.outputs.push_back(array_plan(graph[id].dtype, graph.shape(id), strides));
    plan.target_of.push_back(static_cast<std::uint32_t>(k));
    wanted.push_back(id);
    wanted_names.push_back(graph.output_names[k]);
  }
  plan.targets = plan.outputs;
  graph.outputs = std::move(wanted);
  graph.output_names = std::move(wanted_names);
}

LaunchOptions launch_options(const Program::State& state, const CallSite& site) {
  LaunchOptions options;
  options.unfused = state.options.mode == Mode::unfused;
  options.relax = state.options.relax;
  options.threads = site.threads;
  options.array_bytes = state.options.limits.array_bytes;
  options.stoppable = static_cast<bool>(state.options.should_stop);
  options.aligned_stores = std::ranges::all_of(site.targets, [](const Array* t) { return !t || is_aligned(*t); });
  // This only selects stores, not results: later calls with this signature may have other destinations.
  for (const Array* const t : site.targets)
    if (t)
      options.in_place.push_back(
          std::ranges::any_of(site.arguments, [&](const Argument& a) { return a.array && a.array->data() == t->data(); }));
  return options;
}

// ------------------------------------------------------------------------------------------------ plans

namespace {

// Returns the device of a call: the device of its arrays, else the device in the options. CPU arrays are copied to it.
Device device_of(const Program::State& state, const CallSite& site, std::span<const Array> captured) {
  Device device = state.options.device;
  const auto note = [&](const Array& a) {
    if (a.device().is_cpu() || a.device() == device) return;
    if (device.is_cuda())
      throw ValueError(fmt::format(
          "a call runs on one device, but this call uses cuda:{} ({}) and has an array on cuda:{}. Copy the array with "
          "`to(Device::cuda({}))`",
          device.index(), device == state.options.device ? "Options::device" : "from another array", a.device().index(), device.index()));
    device = a.device();
  };
  for (const Argument& a : site.arguments)
    if (a.array) note(*a.array);
  for (const Array* const t : site.targets)
    if (t) note(*t);
  for (const Array& a : captured) note(a);
  return device;
}

int plan_on_device(const Program::State& state, Device device, const CallSite& site, LaunchPlan& plan, PlanReport& report,
                   bool may_compile) {
  if (state.options.mode == Mode::reference)
    throw ValueError(fmt::format(
        "mode reference runs on the CPU, but an array of the call is on cuda:{}. Copy it with `to(Device::cpu())`.", device.index()));
  cuda::DeviceAlignment alignment;
  const auto aligned = [&](const Array& a) { return a.device().is_cpu() || is_vector_aligned(a); };  // copies are aligned
  for (const std::uint32_t i : plan.argument_of) alignment.inputs.push_back(aligned(*site.arguments[i].array));
  for (const Array& a : plan.captured) alignment.inputs.push_back(aligned(a));
  for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
    const Array* const target = site.into ? site.targets[plan.target_of[k]] : nullptr;
    alignment.outputs.push_back(!target || aligned(*target));
    // Results for the CPU are copied densely, because the gaps of a strided destination may hold other data.
    if (target && target->device().is_cpu()) plan.outputs[k] = array_plan(plan.outputs[k].dtype, plan.outputs[k].shape, {});
  }
  cuda::Gpu& gpu = cuda::Gpu::get(device.index());
  LaunchOptions options = launch_options(state, site);
  const std::vector<ArrayPlan> outputs = plan.outputs;
  std::shared_ptr<cuda::DevicePlan> on_device;
  try {
    on_device = std::make_shared<cuda::DevicePlan>(gpu.target(), plan, report, options, alignment);
  } catch (const InternalError& refused) {
    if (options.unfused) throw InternalError(refused.what());  // unfused kernels are the last fallback on a device
    note_refusal(refused.what());
    plan.refused = options.unfused = true;
    plan.outputs = outputs;
    on_device = std::make_shared<cuda::DevicePlan>(gpu.target(), plan, report, options, alignment);
  }
  const int compiled = on_device->attach(gpu, may_compile);
  plan.on_device = std::move(on_device);
  return compiled;
}

// True if threads may divide the call's work. The threads then start while the call is planned.
bool may_be_threaded(const PlanData& plan, const Graph& recorded) {
  std::int64_t elements = 0;
  for (const std::vector<ArrayPlan>* const arrays : {&plan.inputs, &plan.outputs})
    for (const ArrayPlan& a : *arrays) elements = std::max(elements, a.elements());
  return elements >= compiler::ScheduleOptions::kThreadedWork / static_cast<std::int64_t>(recorded.size() + 1);
}

void finish(PlanData& plan, bool into) {
  for (std::size_t k = 0; k < plan.outputs.size(); ++k) plan.redirected.push_back(plan.outputs[k].strides != plan.targets[k].strides);
  plan.bytes_allocated = plan.workspace_bytes;
  if (!into)
    for (const ArrayPlan& o : plan.outputs) plan.bytes_allocated += o.high - o.low;
}

// Plans from the graph to the kernels. If it throws CompileTimeSpent, some kernels of the plan are absent.
int plan_on_cpu(Program::State& state, const CallSite& site, LaunchPlan& plan, PlanReport& report, bool may_compile, bool optimised,
                bool& analysed, CompileWait& wait) {
  if (may_be_threaded(plan, report.recorded)) threads::start(site.threads);
  plan.options = launch_options(state, site);
  os::on_large_stack([&] {
    if (!plan.refused) plan.known = state.structures.take_over(report, plan.is_brought());
    analysed = !plan.known.structure;
    make_launches(plan, report, state.target, plan.options, plan.known.structure.get());
    if (plan.refused) plan.known = {}, plan.options.unfused = true;
    else if (analysed) state.structures.add(report, state.options.relax, plan.is_brought());
  });
  const bool specialises = state.options.mode == Mode::specialized && os::may_run_made_code();
  const auto attach = specialises ? attach_unspecialised : attach_kernels;
  return attach(plan, report, state.target, {site.threads, state.counts, may_compile, &wait, optimised});
}

// Plans the unfused run of a call that waited too long. The fused kernels are compiled in the background; count_run checks for them.
int plan_unfused(Program::State& state, const CallSite& site, LaunchPlan& plan, std::shared_ptr<PlanReport>& report, PlanData before) {
  if (!state.compile_time_said.exchange(true))
    log(LogLevel::warning,
        "compiling the kernels of a call takes longer than {} ms, the limit `compile_ms`; the call runs as in mode unfused, with the same "
        "results, until background compilation finishes. Call warm_up to compile without that limit",
        state.options.limits.compile_ms);
  const std::shared_ptr<PlanReport> fused = std::exchange(report, std::make_shared<PlanReport>());
  report->recorded = fused->recorded;
  report->notes = fused->notes;
  auto fused_plan = std::make_shared<PlanData>(std::exchange(static_cast<PlanData&>(plan), std::move(before)));
  fused_plan->captured.clear();  // destructors of captured Arrays may run user code, which must not run on another thread
  fused_plan->attachment.reset();
  plan.known = {};
  plan.options.unfused = true;
  os::on_large_stack([&] { make_launches(plan, *report, state.target, plan.options); });
  CompileWait wait(state.options.should_stop, 0);
  const int compiled = attach_kernels(plan, *report, state.target, {site.threads, state.counts, true, &wait});
  plan.fused_ready = std::make_shared<std::atomic<bool>>(false);
  background::run([fused, fused_plan, target = state.target, counts = state.counts, ready = plan.fused_ready] {
    try {
      attach_kernels(*fused_plan, *fused, target, {1, counts});
      ready->store(true, std::memory_order_release);
    } catch (const std::exception& error) {
      log(LogLevel::warning, "a call whose kernels took too long to compile stays unfused: {}", error.what());
    }
  });
  return compiled;
}

// The execution method of a plan. The last two methods are fallbacks after a refused plan or for lack of code.
enum class Runs : std::uint8_t { Kernels, Interpreter, UnfusedSinceRefused, InterpreterSinceRefused };

PlanPointer make_plan(Program::State& state, const CallSite& site, const Signature& signature, PlanFor purpose, Runs runs) {
  const std::int64_t start = os::nanoseconds();
  CompileWait wait(state.options.should_stop,
                   purpose == PlanFor::Call && state.options.mode != Mode::unfused ? state.options.limits.compile_ms : 0);
  wait.ask_to_stop();
  const bool may_compile = !state.sealed.load(std::memory_order_relaxed);
  auto plan = std::make_shared<LaunchPlan>();
  auto report = std::make_shared<PlanReport>();
  fill_inputs(state, site.arguments, *plan);
  {
    ProgramRecorder recorder = record(state, site.arguments, plan->inputs);
    add_captured(std::move(recorder.captured), *plan);
    plan->attachment = std::move(recorder.attachment);
    if (state.options.check_captures) plan->captured_numbers = std::move(recorder.captured_numbers);
    plan->captured_numbers.keep_unchanged();
    for (std::size_t i = 0; i < site.arguments.size(); ++i)
      if (!site.arguments[i].array) plan->pinned.push_back(recorder.numbers.is_pinned(i));
    plan->numbers = std::move(recorder.numbers);
    plan->numbers.finish();
    report->recorded = std::move(recorder.graph);
    report->notes = std::move(recorder.notes);
  }
  const std::int64_t recorded = os::nanoseconds();
  if (profile::on()) profile::add({profile::Kind::Record, "record", start, recorded, 0, 0});
  fill_outputs(site, report->recorded, *plan);
  check_work(report->recorded, state.options.limits.work);
  wait.ask_to_stop();
  for (const ir::Slot& slot : report->recorded.slots) plan->slot_bits.push_back(slot.bits);
  int compiled = 0, for_shape = 0;
  bool analysed = false;
  if (const Device device = device_of(state, site, plan->captured); device.is_cuda()) {
    compiled = plan_on_device(state, device, site, *plan, *report, may_compile);
    if (state.options.mode == Mode::specialized) for_shape = plan->on_device->specialise(*plan, false, may_compile);
  } else if (runs == Runs::Interpreter || runs == Runs::InterpreterSinceRefused) {
    plan->interpret = true;
    plan->refused = runs == Runs::InterpreterSinceRefused;
    report->optimised = compiler::interpretable(report->recorded, state.options.relax);
    check_interpreted(report->optimised, launch_options(state, site));
  } else {
    plan->refused = runs == Runs::UnfusedSinceRefused;
    PlanData before;  // for a second planning
    plan->may_wait = !wait.is_limited();
    if (wait.is_limited()) before = *plan;
    try {
      compiled = plan_on_cpu(state, site, *plan, *report, may_compile, purpose == PlanFor::WarmUp, analysed, wait);
      if (state.options.mode == Mode::specialized && os::may_run_made_code())
        for_shape = attach_specialised(*plan, *report, state.target, {site.threads, state.counts, may_compile, &wait}, false);
    } catch (const CompileTimeSpent&) { compiled = plan_unfused(state, site, *plan, report, std::move(before)); }
  }
  finish(*plan, site.into);
  const std::size_t nodes = report->recorded.size();
  state.counts->specialised.fetch_add(for_shape, std::memory_order_relaxed);
  state.plans.count_made(*plan, *report, analysed, compiled, for_shape);
  plan->report = std::move(report);
  plan->id = new_id();
  plan->key = signature.key;
  plan->compiled = compiled + for_shape;
  const std::int64_t end = os::nanoseconds();
  plan->stages.record = recorded - start;
  plan->stages.compile = std::max<std::int64_t>(end - recorded - plan->stages.passes - plan->stages.fuse - plan->stages.plan, 0);
  if (const PlanPointer last = state.last_plan()) plan->before = last->key;
  if (profile::on()) {
    profile::describe(*plan);
    profile::add({profile::Kind::Plan, "new signature", start, end, plan->id, 0});
  }
  keep_structure_alone(*plan, compiled);
  plan->specialises = (state.options.mode != Mode::adaptive || plan->interpret) && !plan->fused_ready;
  const int after_calls = state.options.specialization.after_calls;
  // Devices have no estimates. For an unfused plan, the third call checks for the fused kernels.
  plan->hot_after = after_calls > 0 ? after_calls : plan->on_device || plan->fused_ready ? 3 : runs_until_hot(*plan);
  plan->whole = plan.get();
  log(LogLevel::debug, "recorded {} nodes and planned {} kernels, of which {} were compiled, in {:.2f} ms", nodes, plan->kernels,
      compiled + for_shape, static_cast<double>(end - start) / 1e6);
  return state.plans.insert(site, signature, std::move(plan));
}

// Removes the plan, so that the next call of its signature is planned again.
void forget_unfused(Program::State& state, const LaunchPlan& plan) {
  state.plans.forget(plan);
  state.id.store(new_id(), std::memory_order_relaxed);  // invalidates the threads' recent plans
}

}  // namespace

PlanPointer find_or_make_plan(Program::State& state, const CallSite& site, PlanFor purpose) {
  Signature signature = signature_of(site);
  if (PlanPointer plan = state.plans.find(site, signature)) {
    if (purpose == PlanFor::Call || !plan->fused_ready) return plan;
    forget_unfused(state, *plan);
  }
  const os::DefaultFloatingPoint control;
  Runs runs = state.interpret ? Runs::Interpreter : Runs::Kernels;
  try {
    for (;;) try {
        return make_plan(state, site, signature, purpose, runs);
      } catch (const CodeRefused&) { runs = Runs::Interpreter; } catch (const PlanRefused& refused) {
        note_refusal(refused.what());
        runs = Runs::InterpreterSinceRefused;
      } catch (const compiler::NotGenerated& failed) {
        note_refusal(failed.what());
        runs = runs == Runs::Kernels ? Runs::UnfusedSinceRefused : Runs::InterpreterSinceRefused;
      }
  } catch (const KernelMissing&) {
    LaunchPlan call;
    call.key = std::move(signature.key);
    throw Error(fmt::format(
        "no kernel for signature `{}`: {}, and no compiled kernel is in memory or on disk. Call warm_up with this signature first",
        CallSignature::of(call).text(), state.options.compile == Compile::never ? "Options::compile is never" : "the function is sealed"));
  }
}

void optimise_now(const LaunchPlan& plan) {
  for (const Launch& launch : plan.launches)
    if (launch.kernel) launch.kernel->optimise_now();
}

void specialise(Program::State& state, const LaunchPlan& plan, bool in_background) noexcept try {
  const os::DefaultFloatingPoint control;
  const Specialization& policy = state.options.specialization;
  if (plan.fused_ready) {
    if (plan.fused_ready->load(std::memory_order_acquire)) forget_unfused(state, plan);
    else plan.specialises.store(false);  // check again after the next call
    return;
  }
  if (policy.depth <= 0 || (plan.launches.empty() && !plan.on_device) || state.sealed.load(std::memory_order_relaxed)) return;
  int shapes = state.hot_shapes.load(std::memory_order_relaxed);
  while (shapes < policy.depth && !state.hot_shapes.compare_exchange_weak(shapes, shapes + 1, std::memory_order_relaxed)) {}
  if (shapes >= policy.depth && !state.depth_said.exchange(true))
    log(LogLevel::info,
        "a function has specialized kernels for {} shapes, the maximum that Specialization::depth allows; from now on it uses its generic "
        "kernels",
        policy.depth);
  if (shapes >= policy.depth) return;
  // The plan may be destroyed before the job runs. The counters belong to the program, which may be destroyed too.
  const auto job = [weak = plan.weak_from_this(), target = state.target, counts = state.counts] {
    const PlanPointer plan = weak.lock();
    if (!plan || (!plan->on_device && !os::may_run_made_code())) return;
    try {
      const int compiled = plan->on_device ? plan->on_device->specialise(*plan, true)
                                           : attach_specialised(*plan, *report_of(*plan, target), target, {1, counts}, true);
      counts->specialised.fetch_add(compiled, std::memory_order_relaxed);
      log(LogLevel::debug, "a hot shape has {} specialized kernels on trial", compiled);
    } catch (const std::exception& error) {  // the generic kernels stay; results are the same
      log(LogLevel::warning, "a hot shape keeps its generic kernels: {}", error.what());
      if (os::for_tests().strict && dynamic_cast<const compiler::NotGenerated*>(&error)) std::terminate();  // no caller sees it
    }
  };
  if (in_background) background::run(job);
  else job();
} catch (const std::bad_alloc&) {}  // NOLINT: no memory for the job: the generic kernels stay

}  // namespace onepass::runtime
