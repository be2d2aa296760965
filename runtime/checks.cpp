// See checks.h.
#include "runtime/checks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/aliases.h"
#include "runtime/compare.h"
#include "runtime/device_call.h"
#include "runtime/log.h"
#include "runtime/make_plan.h"
#include "runtime/os.h"
#include "runtime/plan_report.h"

namespace onepass::runtime {

using compiler::type_text;
using ir::Graph;
using ir::NodeId;

namespace {

// Returns the source position of a node, for messages.
std::string place_of(const Graph& graph, NodeId id) {
  const std::uint32_t source = graph.source_of[id];
  return source ? fmt::format(" at {}", graph.sources[source]) : std::string();
}

// Returns a description of a node: "`mul` f32[4] at rates.cpp:12".
std::string node_text(const Graph& graph, NodeId id) {
  if (id >= graph.size()) return "nothing";
  const std::string type = type_text(graph[id].dtype, graph.shape(id));
  if (graph[id].op == ir::Op::Slot)
    return fmt::format("the number {} as {}{}", ir::double_of(graph[id].dtype, graph.slots[graph[id].bits].bits), type,
                       place_of(graph, id));
  return fmt::format("`{}` {}{}", ir::info(graph[id].op).text, type, place_of(graph, id));
}

bool same_node(const Graph& a, const Graph& b, NodeId id) {
  const ir::Node x = a[id], y = b[id];
  return x.op == y.op && x.dtype == y.dtype && x.bits == y.bits && std::ranges::equal(a.list(x.shape), b.list(y.shape)) &&
         std::ranges::equal(a.list(x.operands), b.list(y.operands)) && std::ranges::equal(a.list(x.attributes), b.list(y.attributes));
}

constexpr std::string_view kDependsOnlyOn =
    "a recording must depend only on types, shapes and Static values. A captured number has probably changed. Pass values that change as "
    "arguments";

// Throws Error if two recordings differ. `option`: the option that requested the check; `slot_bits`: the first recording's scalar
// parameters in this call.
void check_same_recording(std::string_view option, const Graph& first, const Graph& second, std::span<const std::uint64_t> slot_bits) {
  NodeId id = 0;
  while (id < first.size() && id < second.size() && same_node(first, second, id)) ++id;
  if (id < first.size() || id < second.size())
    throw Error(fmt::format("{}: the function recorded {} first, but {} when it ran again with the same types; {}.", option,
                            node_text(first, id), node_text(second, id), kDependsOnlyOn));
  if (first.outputs != second.outputs || first.output_names != second.output_names)
    throw Error(
        fmt::format("{}: the function returned different results when it ran again with the same types; {}.", option, kDependsOnlyOn));
  for (id = 0; id < first.size(); ++id) {
    if (first[id].op != ir::Op::Slot) continue;
    const std::uint64_t slot = first[id].bits, was = slot_bits[slot], is = second.slots[slot].bits;
    if (was == is) continue;
    const DType type = first[id].dtype;
    throw Error(
        fmt::format("{}: the number{} was {} when the function was recorded and is {} now: a captured variable changed, but compiled calls "
                    "keep the first value. Pass values that change as arguments.",
                    option, place_of(first, id), ir::double_of(type, was), ir::double_of(type, is)));
  }
}

void check_again(std::string_view option, const Program::State& state, const CallSite& site, const LaunchPlan& plan,
                 std::span<const std::uint64_t> slot_bits) {
  ProgramRecorder again = record(state, site.arguments, std::span(plan.inputs).first(plan.argument_of.size()));
  PlanData outputs;
  fill_outputs(site, again.graph, outputs);
  check_same_recording(option, recorded_of(plan), again.graph, slot_bits);
  if (!std::ranges::equal(plan.captured, again.captured, same_view))
    throw Error(
        fmt::format("{}: the function captured a different Array when it ran again with the same types; compiled calls keep reading the "
                    "first one. Pass Arrays that change as arguments.",
                    option));
}

}  // namespace

bool same_view(const Array& a, const Array& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.strides(), b.strides());
}

void check_recording(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits) {
  static constinit Once once;
  if (once.first())
    log(LogLevel::warning,
        "Options::check_recording is on, which is the default unless NDEBUG is defined: every call runs its function again to compare the "
        "recordings, which takes much longer than the call. Define NDEBUG or set the option to false for fast calls");
  check_again("check_recording", state, site, plan, slot_bits);
}

void check_captures(const Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits) {
  if (plan.captures_decided.load(std::memory_order_relaxed)) return;
  check_again("check_captures", state, site, plan, slot_bits);
  plan.captures_decided.store(true, std::memory_order_relaxed);  // the function itself writes the variable while it is recorded
}

void check_nan(const Program::State& state, const LaunchOptions& options, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
               std::span<std::byte* const> bases, std::span<const Array> results, std::span<const Array* const> there) {
  bool over_inputs = false;  // true if results overwrote their arguments
  for (std::size_t k = 0; k < results.size(); ++k)
    for (std::size_t i = 0; i < plan.inputs.size(); ++i)
      over_inputs |= overlap(static_cast<const std::byte*>(results[k].data()), plan.targets[k], bases[i], plan.inputs[i]);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const std::optional<std::string> found = not_finite(results[k].to(Device::cpu()));
    if (!found) continue;
    const std::string result = fmt::format("check_nan: the result {} {} has {}", plan.output_names[plan.target_of[k]],
                                           type_text(results[k].dtype(), results[k].shape()), *found);
    if (over_inputs) throw Error(result + "; the operator that produced it is unknown, because the results overwrote the arguments");
    Graph graph = recorded_of(plan);  // reduced to this result
    graph.outputs = {graph.outputs[k]};
    graph.output_names = {""};
    graph = ir::prune(std::move(graph));
    for (std::size_t i = 0; i < graph.slots.size(); ++i) graph.slots[i].bits = slot_bits[i];
    std::optional<OnCpu> on_cpu;
    if (plan.on_device) on_cpu.emplace(there);
    const std::string first = first_not_finite({.graph = graph,
                                                .inputs = on_cpu ? on_cpu->plans() : plan.inputs,
                                                .bases = on_cpu ? on_cpu->bases() : bases,
                                                .target = state.target,
                                                .options = options,
                                                .mode = plan.interpret || !os::may_run_made_code() ? Mode::reference : Mode::generic,
                                                .judge = Mode::reference});
    throw Error(first.empty() ? result + ", which rounding to half precision produced" : fmt::format("{}; {}", result, first));
  }
}

}  // namespace onepass::runtime
