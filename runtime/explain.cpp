// Inspection of a program's plans: Program::report, last_report and explain; last_optimized_graph.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/call.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/make_plan.h"
#include "runtime/os.h"
#include "runtime/plan_report.h"
#include "runtime/program_state.h"
#include "runtime/record.h"
#include "runtime/signature_text.h"

namespace onepass::runtime {

using compiler::type_text;
using ir::Graph;
using ir::NodeId;

namespace {

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} bytes", bytes);
}

// Describes one kernel: its loops, inputs and outputs, its current code, and the reasons for its boundary.
std::string kernel_text(const LaunchPlan& plan, const PlanReport& report, std::size_t k) {
  const Graph& graph = report.optimised;
  const KernelReport& kernel = report.kernels[k];
  const compiler::Nest& nest = kernel.planned.nest;
  const compiler::NestNumbers& numbers = kernel.planned.numbers;
  static constexpr std::string_view kKinds[] = {"elementwise", "outer-axis reduction", "inner-axis reduction"};
  std::string out =
      fmt::format("kernel {}: {}, loops {}", k, nest.is_routine() ? ir::info(nest.routine).text : kKinds[static_cast<int>(nest.kind)],
                  loops_text(numbers.extents, nest.reduced_mask()));
  if (nest.sweeps > 1) out += fmt::format(", {} sweeps", nest.sweeps);
  out += fmt::format(", reads {}, writes {}", bytes_text(kernel.scheduled.numbers.bytes_read),
                     bytes_text(kernel.scheduled.numbers.bytes_written));
  if (!kernel.more.empty()) out += fmt::format(", {} subdomains with one loop body", kernel.more.size() + 1);
  const auto launch = std::find_if(plan.launches.begin(), plan.launches.end(), [&](const Launch& l) { return l.of == k; });
  if (launch->threads > 1) out += fmt::format(", up to {} threads", launch->threads);
  static constexpr std::string_view kSpecialised[] = {"", ", specialized kernel on trial", ", specialized",
                                                      ", generic: the specialized kernel was slower"};
  const auto first = std::find_if(plan.launches.begin(), plan.launches.end(), [&](const Launch& l) { return l.group == launch->group; });
  out += kSpecialised[static_cast<int>(first->specialised->state())];
  if (launch->kernel) out += fmt::format("; {}", launch->kernel->tier_text());
  out += nest.is_in_library()    ? "\n"
         : kernel.from_cache     ? ", from the cache\n"
         : kernel.compile_ms > 0 ? fmt::format(", compiled in {:.2f} ms\n", kernel.compile_ms)
                                 : "\n";
  const bool has_own = launch->specialised->state() != Specialised::State::None;
  for (const ExecutionRecord::Compile& compile : compiles_of(launch->kernel.get(), has_own ? &launch->specialised->kernel() : nullptr))
    out += fmt::format("  {}\n", compile_text(compile));
  for (const NodeId id : report.partition.groups[kernel.group].roots) {
    std::string names;
    for (std::size_t o = 0; o < graph.outputs.size(); ++o)
      if (graph.outputs[o] == id) names += (names.empty() ? " as " : ", ") + graph.output_names[o];
    out += fmt::format("  stores %{} {} {}{}: {}\n", id, ir::info(graph[id].op).text, type_text(graph[id].dtype, graph.shape(id)), names,
                       compiler::text_of(report.partition.boundary[id]));
  }
  return out;
}

}  // namespace

namespace {

// Plans a call that is not made, without kernels.
PlanReport plan_for(const Program::State& state, const CallSite& site, PlanData& plan) {
  PlanReport report;
  ProgramRecorder recorder = record(state, site.arguments, plan.inputs);
  add_captured(std::move(recorder.captured), plan);
  plan.attachment = std::move(recorder.attachment);
  report.recorded = std::move(recorder.graph);
  report.notes = std::move(recorder.notes);
  plan.numbers = std::move(recorder.numbers);
  plan.numbers.finish();
  fill_outputs(site, report.recorded, plan);
  if (state.interpret) {
    report.optimised = compiler::interpretable(report.recorded, state.options.relax);
    plan.interpret = true;
  } else {
    make_launches(plan, report, state.target, launch_options(state, site));
  }
  return report;
}

PlanReport plan_for(const Program::State& state, std::span<const ArgumentType> types, PlanData& plan) {
  std::vector<Argument> arguments(types.size());
  const Array none;  // only marks the argument as an array
  for (std::size_t i = 0; i < types.size(); ++i) {
    plan.inputs.push_back(array_plan(types[i].dtype, types[i].shape, types[i].strides));
    plan.argument_of.push_back(static_cast<std::uint32_t>(i));
    arguments[i].array = &none;
  }
  if (const std::size_t names = state.argument_names.size(); names != 0 && types.size() != names)
    throw Error(fmt::format("the function takes {} argument{}, but {} type{} given", names, names == 1 ? "" : "s", types.size(),
                            types.size() == 1 ? " was" : "s were"));
  return plan_for(state, state.site(arguments), plan);
}

RecordContext context_of(const Program::State& state, const LaunchOptions& options, Detail detail) {
  return {.target = state.target, .options = options, .mode = state.options.mode, .detail = detail, .argument_names = state.argument_names};
}

}  // namespace

PlanReport Program::report(std::span<const ArgumentType> types) {
  const os::DefaultFloatingPoint control;
  PlanData plan;
  return plan_for(*state_, types, plan);
}

ExecutionRecord Program::describe(std::span<const ArgumentType> types, Detail detail) {
  const os::DefaultFloatingPoint control;
  PlanData plan;
  const PlanReport report = plan_for(*state_, types, plan);
  ExecutionRecord record =
      record_of(report, plan, nullptr, context_of(*state_, launch_options(*state_, state_->site(std::span<const Argument>())), detail));
  if (plan.attachment) plan.attachment->add_to(record, plan, detail);
  return record;
}

ExecutionRecord Program::describe(const CallSignature& signature, Detail detail) {
  const os::DefaultFloatingPoint control;
  const SignatureCall call(signature);
  const CallSite site = call.site(state_->threads_of_a_call());
  PlanData plan;
  fill_inputs(*state_, site.arguments, plan);
  const PlanReport report = plan_for(*state_, site, plan);
  ExecutionRecord record = record_of(report, plan, nullptr, context_of(*state_, launch_options(*state_, site), detail));
  record.signature = signature.text();
  if (plan.attachment) plan.attachment->add_to(record, plan, detail);
  return record;
}

ExecutionRecord Program::last_execution(Detail detail) const {
  const PlanPointer plan = state_->last_plan();
  if (!plan) {
    ExecutionRecord none;
    none.mode = state_->options.mode;
    none.plan_sentence = "no call yet";
    return none;
  }
  return execution_of(*plan, detail);
}

ExecutionRecord Program::execution_of(const LaunchPlan& plan, Detail detail) const {
  const os::DefaultFloatingPoint control;
  const std::shared_ptr<const PlanReport> report = report_of(plan, state_->target);
  const std::vector<PlanPointer> others = state_->plans.all();
  RecordContext context = context_of(*state_, plan.options, detail);
  if (plan.interpret || plan.on_device) {
    context.options.relax = state_->options.relax;
    context.options.unfused = state_->options.mode == Mode::unfused;
    context.options.threads = state_->threads_of_a_call();
  }
  context.others = others;
  ExecutionRecord record = record_of(*report, plan, &plan, context);
  if (plan.attachment) plan.attachment->add_to(record, plan, detail);
  return record;
}

std::shared_ptr<const PlanReport> Program::last_report() const {
  const PlanPointer plan = state_->last_plan();
  return plan ? report_of(*plan, state_->target) : std::make_shared<const PlanReport>();
}

std::string Program::explain() const {
  const PlanPointer plan = state_->last_plan();
  if (!plan) return "no call yet\n";
  const os::DefaultFloatingPoint control;
  const std::shared_ptr<const PlanReport> held = report_of(*plan, state_->target);
  const PlanReport& report = *held;
  std::string notes;
  for (const std::string& note : report.notes) notes += fmt::format("note: {}\n", note);
  if (plan->on_device) return plan->on_device->explain(*plan, report) + notes;
  if (plan->interpret)
    return fmt::format("reference: {} nodes are interpreted one at a time; there are no kernels\n{}", report.optimised.size(), notes);
  std::string out = fmt::format("{} kernel{}, {} read, {} written{}\n", report.kernels.size(), report.kernels.size() == 1 ? "" : "s",
                                bytes_text(plan->bytes_read), bytes_text(plan->bytes_written),
                                plan->workspace_bytes ? fmt::format(", {} of intermediates", bytes_text(plan->workspace_bytes)) : "");
  const int depth = state_->options.specialization.depth, hot = state_->hot_shapes.load(std::memory_order_relaxed);
  if (state_->options.mode == Mode::adaptive && depth > 0 && hot >= depth)
    out += fmt::format(
        "{} shape{} specialized kernels, the maximum that Specialization::depth allows; all other shapes use the generic kernels\n", hot,
        hot == 1 ? " has" : "s have");
  if (state_->sealed.load(std::memory_order_relaxed))
    out += "no further compilation: the function is sealed, or Options::compile is never\n";
  for (const compiler::Strips& s : report.strips)
    out += fmt::format("kernels {} to {} run in strips of {} rows; {} of intermediate values stay in a buffer of {} in each thread\n",
                       s.first, s.first + s.members.size() - 1, s.rows, bytes_text(s.held), bytes_text(s.bytes));
  for (std::size_t k = 0; k < report.kernels.size(); ++k) out += kernel_text(*plan, report, k);
  return out + notes;
}

std::string last_optimized_graph() {
  const PlanPointer plan = thread_state().last;
  if (!plan) return {};
  return ir::print(optimised_of(*plan));
}

}  // namespace onepass::runtime
