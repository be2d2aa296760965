// See record.h. All data comes from the plan's report; the passes run again with an observer.
#include "runtime/record.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/codegen.h"
#include "compiler/loops/policy.h"
#include "compiler/pipeline.h"
#include "compiler/record.h"
#include "onepass/error.h"
#include "onepass/profile.h"
#include "runtime/code_names.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/disk_cache.h"
#include "runtime/os_output.h"
#include "runtime/signature_text.h"
#include "runtime/speed.h"

namespace onepass::runtime {

using compiler::Boundary;
using compiler::Nest;
using compiler::NestNumbers;
using compiler::Partition;
using compiler::type_text;
using ir::Graph;
using ir::NodeId;

// ------------------------------------------------------------------------------------------------ parts

std::vector<NodeId> nodes_of(const PlanReport& report, std::uint32_t group) {
  const Graph& graph = report.optimised;
  const Partition& partition = report.partition;
  std::vector<bool> inside(graph.size());
  std::vector<NodeId> todo = partition.groups[group].roots, nodes;
  for (const NodeId id : todo) inside[id] = true;
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    nodes.push_back(id);
    for (const std::int64_t operand : graph.operands(id)) {
      const auto node = static_cast<NodeId>(operand);
      const bool stored = partition.group_of[node] != Partition::kNoGroup && partition.group_of[node] != group;
      if (inside[node] || stored || graph[node].op == ir::Op::Input) continue;
      inside[node] = true;
      todo.push_back(node);
    }
  }
  std::ranges::sort(nodes);
  return nodes;
}

std::vector<NodeId> reads_of(const PlanReport& report, std::span<const NodeId> nodes) {
  std::vector<NodeId> reads;
  for (const NodeId id : nodes)
    for (const std::int64_t operand : report.optimised.operands(id))
      if (!std::ranges::binary_search(nodes, static_cast<NodeId>(operand))) reads.push_back(static_cast<NodeId>(operand));
  std::ranges::sort(reads);
  reads.erase(std::ranges::unique(reads).begin(), reads.end());
  return reads;
}

std::vector<std::string> lines_of(const Graph& graph) {
  std::vector<std::string> lines(graph.size());
  const std::string text = ir::print(graph);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t percent = std::min(text.find_first_not_of(' ', begin), end);
    NodeId id = 0;
    if (percent < end && text[percent] == '%' && std::from_chars(text.data() + percent + 1, text.data() + end, id).ec == std::errc() &&
        id < lines.size())
      lines[id] = text.substr(percent, end - percent);
    begin = end + 1;
  }
  return lines;
}

std::string hexadecimal(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::string loops_text(std::span<const std::int64_t> extents, std::uint64_t reduced) {
  std::string text;
  for (std::size_t l = 0; l < extents.size(); ++l)
    text += fmt::format("{}{}{}", l ? " x " : "", extents[l], reduced >> l & 1 ? " (reduced)" : "");
  return text;
}

void write_text(const char* what, const std::string& path, std::string_view text) {
  os::AtomicFile file(what, path, false);
  file.write(text.data(), text.size());
  file.finish();
  file.commit();
}

std::vector<ExecutionRecord::Compile> compiles_of(const Kernel* generic, const Kernel* specialised) {
  std::vector<ExecutionRecord::Compile> out;
  const auto add = [&](std::string_view tier, const CompileTimes& times) {
    if (times.all() == 0) return;
    ExecutionRecord::Compile& compile = out.emplace_back(std::string(tier), times.all());
    for (const CompileStage& stage : kCompileStages)
      if (const double ms = times.*stage.time; ms > 0) compile.stages.push_back({stage.name, ms});
  };
  if (generic) add("quick", generic->quick_times()), add("optimized", generic->final_times());
  if (specialised) add("specialized", specialised->final_times());
  return out;
}

std::string compile_text(const ExecutionRecord::Compile& compile) {
  std::string out = fmt::format("compiled ({}) in {:.2f} ms:", compile.tier, compile.ms);
  for (std::size_t s = 0; s < compile.stages.size(); ++s)
    out += fmt::format("{} {} {:.2f}", s ? "," : "", compile.stages[s].name, compile.stages[s].ms);
  return out;
}

// ------------------------------------------------------------------------------------------------ code

namespace {

// Returns the first usable device, or typical values if there is none.
std::pair<compiler::cuda::DeviceTarget, std::string> cuda_target() {
  try {
    if (cuda::Gpu::count() > 0) {
      const cuda::Gpu& gpu = cuda::Gpu::get();
      return {gpu.target(), gpu.name()};
    }
  } catch (const Error&) {}  // NOLINT: `onepass doctor` reports the problem
  return {{}, "no usable device here"};
}

}  // namespace

std::string symbol_of(const PlanReport& report, const KernelReport& kernel) {
  if (!names_code()) return {};
  constexpr std::size_t kMost = 3;
  const Graph& graph = report.optimised;
  std::vector<std::string_view> sources;
  for (const NodeId id : nodes_of(report, kernel.group))
    if (const std::string& source = graph.sources[graph.source_of[id]];
        !source.empty() && std::ranges::find(sources, source) == sources.end())
      sources.push_back(source);
  const bool all = sources.size() <= kMost;
  sources.resize(std::min(sources.size(), kMost));
  const std::vector<NodeId>& roots = report.partition.groups[kernel.group].roots;
  std::string text = fmt::format("onepass {} {}", roots.empty() ? "" : ir::info(graph[roots[0]].op).text,
                                 loops_text(kernel.planned.numbers.extents, kernel.planned.nest.reduced_mask()));
  if (!sources.empty()) text += fmt::format(", {}{}", fmt::join(sources, ", "), all ? "" : ", ...");
  return text;
}

std::string code_of(const KernelReport& kernel, const compiler::Target& target, Mode mode, bool want_ir) {
  const Nest& nest = kernel.planned.nest;
  const compiler::Schedule& schedule = kernel.scheduled.schedule;
  compiler::KnownWords known;
  if (mode == Mode::specialized)
    known = compiler::known_words(nest, compiler::make_words(nest, kernel.planned.numbers, kernel.scheduled.numbers),
                                  std::vector<bool>(nest.slots.size(), false));
  const compiler::CodegenResult result = compiler::generate({.nest = &nest,
                                                             .schedule = &schedule,
                                                             .target = &target,
                                                             .known = mode == Mode::specialized ? &known : nullptr,
                                                             .want_ir = want_ir,
                                                             .want_assembly = !want_ir});
  return want_ir ? result.ir : result.assembly;
}

std::string cuda_text(const PlanReport& of, const PlanData& from, const LaunchOptions& options, std::string& note) {
  PlanData plan;
  plan.inputs = from.inputs;
  PlanReport report;
  report.recorded = of.recorded;
  for (const NodeId id : report.recorded.outputs)
    plan.outputs.push_back(array_plan(report.recorded[id].dtype, report.recorded.shape(id), {}));
  LaunchOptions launch;
  launch.unfused = options.unfused;
  launch.relax = options.relax;
  launch.array_bytes = options.array_bytes;
  const cuda::DeviceAlignment alignment{std::vector<bool>(plan.inputs.size(), true), std::vector<bool>(plan.outputs.size(), true)};
  const auto [target, device] = cuda_target();
  note = fmt::format("for compute capability {}.{} ({})", target.sm / 10, target.sm % 10, device);
  return cuda::DevicePlan(target, plan, report, launch, alignment).text();
}

std::string ptx_of(const std::string& cuda, std::string& note) {
  const cuda::Nvrtc* const compiler = cuda::Nvrtc::find();
  if (!compiler) {
    note += fmt::format("; no PTX: {}", cuda::Nvrtc::why());
    return {};
  }
  const int sm = compiler->newest_up_to(cuda_target().first.sm);
  return sm == 0 ? std::string() : compiler->compile_ptx(cuda, sm);
}

// ------------------------------------------------------------------------------------------------ the record

namespace {

std::string_view kind_of(const Graph& graph, NodeId id) {
  switch (ir::info(graph[id].op).kind) {
    case ir::OpKind::Source:
      return graph[id].op == ir::Op::Input      ? "input"
             : graph[id].op == ir::Op::Slot     ? "slot"
             : graph[id].op == ir::Op::Constant ? "constant"
                                                : "source";
    case ir::OpKind::View: return "view";
    case ir::OpKind::Piecewise: return "view";
    case ir::OpKind::Reduction: return "reduction";
    case ir::OpKind::Scan: return "scan";
    case ir::OpKind::Place: return "gather";
    case ir::OpKind::Gather: return "gather";
    case ir::OpKind::Scatter: return "scatter";
    case ir::OpKind::Routine: return "routine";
    case ir::OpKind::Primitive:
    case ir::OpKind::Expanded: return "elementwise";
  }
  return "elementwise";
}

// Adds the minimum bytes of each input that one kernel needs. An element that is read twice counts once; gaps between elements do not
// count.
void add_needed(const Nest& nest, const NestNumbers& numbers, std::unordered_map<NodeId, std::int64_t>& needed) {
  std::vector<std::int64_t> of_buffer(nest.buffers.size(), 0);
  std::vector<bool> done(nest.accesses.size());
  for (std::uint32_t a = 0; a < nest.accesses.size(); ++a) {
    const compiler::Access& access = nest.accesses[a];
    if (done[a] || nest.buffers[access.buffer].written) continue;
    const std::vector<std::int64_t>& coefficients = numbers.coefficients[access.linear];
    std::int64_t elements = 1, span = 1, low = numbers.offsets[access.linear], high = low, count = 0;
    bool bounded = access.table == compiler::Access::kNone;
    for (std::size_t v = 0; v < coefficients.size(); ++v) {
      if (coefficients[v] == 0) continue;
      if (v >= nest.loops()) bounded = false;
      else elements *= numbers.extents[v], span += std::abs(coefficients[v]) * (numbers.extents[v] - 1);
    }
    for (std::uint32_t other = a; other < nest.accesses.size(); ++other) {
      const compiler::Access& o = nest.accesses[other];
      if (o.buffer != access.buffer || o.table != access.table || numbers.coefficients[o.linear] != coefficients) continue;
      done[other] = true;
      ++count;
      low = std::min(low, numbers.offsets[o.linear]), high = std::max(high, numbers.offsets[o.linear]);
    }
    std::int64_t& most = of_buffer[access.buffer];
    most = bounded && most >= 0 ? most + std::min(elements * count, span + high - low) : -1;  // -1: the whole array
  }
  const auto note = [&](NodeId id, std::int64_t elements, DType dtype) {
    constexpr std::int64_t kAll = std::int64_t{1} << 62;
    std::int64_t& bytes = needed[id];
    bytes = std::max(bytes, elements < 0 ? kAll : elements * static_cast<std::int64_t>(size_of(dtype)));
  };
  for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
    if (nest.buffers[b].written) continue;
    if (numbers.members[b].empty()) note(numbers.buffers[b], of_buffer[b], nest.buffers[b].dtype);
    for (const NodeId member : numbers.members[b]) note(member, -1, nest.buffers[b].dtype);
  }
}

// Returns the bytes of an array's distinct elements.
std::int64_t distinct_bytes(const ArrayPlan& array) {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < array.shape.size(); ++i)
    if (array.strides[i] != 0 || array.shape[i] == 0) elements *= array.shape[i];
  return elements * static_cast<std::int64_t>(size_of(array.dtype));
}

// Returns the text that follows a kernel's tier.
std::string_view text_of(Specialised::State state) {
  static constexpr std::string_view kTexts[] = {"", "; kernel specialized for these lengths is on trial", "; specialized for these lengths",
                                                "; generic: the kernel specialized for these lengths was slower"};
  return kTexts[static_cast<int>(state)];
}

ExecutionRecord::Times times_of(const RunTimes& times) {
  ExecutionRecord::Times out;
  out.runs = times.runs.load(std::memory_order_relaxed);
  if (out.runs == 0) return out;
  out.last_ns = static_cast<double>(times.last.load(std::memory_order_relaxed));
  out.best_ns = static_cast<double>(times.best.load(std::memory_order_relaxed));
  out.mean_ns = static_cast<double>(times.total.load(std::memory_order_relaxed)) / static_cast<double>(out.runs);
  return out;
}

class Maker {
 public:
  Maker(const PlanReport& report, const PlanData& plan, const LaunchPlan* called, const RecordContext& context)
      : report_(report), plan_(plan), called_(called), context_(context), graph_(report.optimised) {}

  ExecutionRecord make() {
    add_call();
    add_passes();
    add_nodes();
    if (called_ && called_->on_device) add_device_kernels();
    else add_kernels();
    add_least();
    add_unfused();
    out_.notes = report_.notes;
    if (context_.detail == Detail::code) add_code();
    return std::move(out_);
  }

 private:
  const PlanReport& report_;
  const PlanData& plan_;
  const LaunchPlan* called_;
  const RecordContext& context_;
  const Graph& graph_;
  ExecutionRecord out_;

  void add_call() {
    out_.mode = context_.mode;
    out_.processor = context_.target.cpu;
    out_.threads = context_.options.threads;
    out_.called = called_ != nullptr;
    out_.recorded = ir::print(ir::prune(report_.recorded));
    out_.optimized = ir::print(graph_);
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      out_.outputs.push_back(
          {o < graph_.output_names.size() ? graph_.output_names[o] : fmt::format("%{}", graph_.outputs[o]), graph_.outputs[o]});
    out_.bytes_read = plan_.bytes_read;
    out_.bytes_written = plan_.bytes_written;
    out_.intermediate_bytes = plan_.workspace_bytes;
    if (!called_) {
      for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
        const ArrayPlan& a = plan_.inputs[i];
        std::string shape;
        for (const std::int64_t n : a.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", n);
        out_.signature += fmt::format("{}{}[{}]", i ? " " : "", name_of(a.dtype), shape);
      }
      out_.plan_sentence = "the call was not made; this plan shows what it would run";
      out_.times_note = "the call was not made, so there are no times";
      return;
    }
    out_.signature = CallSignature::of(*called_).text();
    out_.calls = called_->runs.load(std::memory_order_relaxed);
    if (called_->on_device) out_.device = fmt::format("cuda:{}", called_->on_device->device().index());
    const auto ms = [](std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; };
    const StageTimes& s = called_->stages;
    out_.stages = {ms(s.record), ms(s.passes), ms(s.fuse), ms(s.plan), ms(s.compile)};
    const PlanWhy why =
        why_planned(called_->key, called_->before, context_.argument_names, called_->pinned, called_->was_forgotten, called_->compiled);
    out_.plan_reason = why.reason;
    out_.plan_sentence = why.sentence;
    out_.plan_remedy = why.remedy;
  }

  void add_passes() {
    std::string before = ir::print(report_.recorded);
    const compiler::PassObserver observer = [&](const compiler::PassDone& done) {
      ExecutionRecord::Pass& pass = out_.passes.emplace_back();
      pass.name = done.pass.name;
      pass.ran = done.ran;
      pass.nodes = done.graph.size();
      pass.ms = static_cast<double>(done.nanoseconds) / 1e6;
      if (!done.ran) {
        pass.note = done.pass.otherwise;
        return;
      }
      std::string after = ir::print(done.graph);
      pass.changed = after != before;
      if (!pass.changed) return;
      pass.graph = after;
      before = std::move(after);
    };
    std::vector<NodeId> places;
    compiler::PassOptions options = context_.options.passes();
    options.unfused |= plan_.refused;
    options.steps = !(called_ && called_->on_device);
    options.is_brought = plan_.is_brought();
    if (plan_.interpret || context_.mode == Mode::reference)
      static_cast<void>(compiler::interpretable(report_.recorded, options.relax, &observer));
    else static_cast<void>(compiler::optimize(report_.recorded, options, places, &observer));
  }

  void add_nodes() {
    const std::vector<std::string> lines = lines_of(graph_);
    out_.nodes.reserve(graph_.size());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      ExecutionRecord::Node& node = out_.nodes.emplace_back();
      node.id = id;
      node.op = ir::info(graph_[id].op).text;
      node.kind = kind_of(graph_, id);
      const std::size_t equals = lines[id].find(" = ");
      node.text = equals == std::string::npos ? lines[id] : lines[id].substr(equals + 3);
      node.type = type_text(graph_[id].dtype, graph_.shape(id));
      for (const std::int64_t o : graph_.operands(id)) node.operands.push_back(static_cast<std::uint32_t>(o));
      node.source = graph_.sources[graph_.source_of[id]];
      node.backward = graph_.origin_of[id] != ir::kNoNode;
      node.bytes = graph_.elements(id) * static_cast<std::int64_t>(size_of(graph_[id].dtype));
    }
    for (const ir::Input& input : graph_.inputs) out_.nodes[input.node].name = input.name;
    mark_derivatives();
  }

  // Returns a fingerprint of each node, which is equal for equal nodes of different graphs.
  static std::vector<std::uint64_t> fingerprints(const Graph& graph) {
    std::vector<std::uint64_t> prints(graph.size());
    const auto mix = [](std::uint64_t h, std::uint64_t v) {
      h = (h ^ v) * 0x9E3779B97F4A7C15ull;
      return h ^ h >> 29;
    };
    for (NodeId id = 0; id < graph.size(); ++id) {
      const ir::Node node = graph[id];
      std::uint64_t h = mix(static_cast<std::uint64_t>(node.op) << 8 | static_cast<std::uint64_t>(node.dtype), node.bits);
      for (const std::int64_t n : graph.shape(id)) h = mix(h, static_cast<std::uint64_t>(n));
      for (const std::int64_t n : graph.attributes(id)) h = mix(h + 1, static_cast<std::uint64_t>(n));
      for (const std::int64_t o : graph.operands(id)) h = mix(h + 2, prints[static_cast<std::size_t>(o)]);
      prints[id] = h;
    }
    return prints;
  }

  // Marks derivatives. A node may have lost its link to a removed forward node, but the recording still has it.
  void mark_derivatives() {
    const Graph& recorded = report_.recorded;
    const std::vector<std::uint64_t> there = fingerprints(recorded), here = fingerprints(graph_);
    std::set<std::uint64_t> derived;
    for (NodeId id = 0; id < recorded.size(); ++id)
      if (recorded.origin_of[id] != ir::kNoNode) derived.insert(there[id]);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const std::string& kind = out_.nodes[id].kind;
      if (kind == "input" || kind == "slot" || kind == "constant") out_.nodes[id].backward = false;
      else if (derived.contains(here[id])) out_.nodes[id].backward = true;
    }
  }

  // Adds the device-independent data of a kernel.
  ExecutionRecord::Kernel& add_kernel(std::uint32_t group, const Nest& nest, const NestNumbers& numbers) {
    static constexpr std::string_view kKinds[] = {"elementwise", "outer-axis reduction", "inner-axis reduction"};
    ExecutionRecord::Kernel& kernel = out_.kernels.emplace_back();
    kernel.kind = nest.is_routine() ? "routine" : kKinds[static_cast<int>(nest.kind)];
    kernel.loops = loops_text(numbers.extents, nest.reduced_mask());
    kernel.extents = numbers.extents;
    for (std::uint32_t l = 0; l < nest.loops(); ++l) kernel.reduced.push_back(nest.reduced_mask() >> l & 1);
    kernel.sweeps = nest.sweeps;
    kernel.nodes = nodes_of(report_, group);
    kernel.reads = reads_of(report_, kernel.nodes);
    const auto k = static_cast<std::uint32_t>(out_.kernels.size() - 1);
    for (const NodeId id : kernel.nodes) out_.nodes[id].kernels.push_back(k);
    kernel.backward = std::ranges::all_of(kernel.nodes, [&](NodeId id) {
      const ExecutionRecord::Node& node = out_.nodes[id];
      return node.backward || node.kind == "view" || node.kind == "slot" || node.kind == "constant";
    });
    for (const NodeId id : report_.partition.groups[group].roots) {
      ExecutionRecord::Stored& stored = kernel.stores.emplace_back();
      stored.node = id;
      for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
        if (graph_.outputs[o] == id) stored.outputs.push_back(out_.outputs[o].name);
      stored.reason = reason_of(report_.partition.boundary[id]);
      if (stored.outputs.empty() && !report_.partition.lists.places_of(id).empty()) stored.reason = BoundaryReason::assembled;
      stored.sentence = sentence_of(stored.reason);
      stored.remedy = remedy_of(stored.reason);
      kernel.backward = kernel.backward && out_.nodes[id].backward;
    }
    return kernel;
  }

  // Adds the readers of each stored value, after all kernels have been added.
  void add_readers() {
    std::unordered_map<NodeId, std::vector<std::uint32_t>> readers;
    for (std::uint32_t k = 0; k < out_.kernels.size(); ++k)
      for (const NodeId id : out_.kernels[k].reads) readers[id].push_back(k);
    for (ExecutionRecord::Kernel& kernel : out_.kernels)
      for (ExecutionRecord::Stored& stored : kernel.stores)
        if (const auto found = readers.find(stored.node); found != readers.end()) stored.readers = found->second;
  }

  // Finds a kernel with the same loops in another call of this function, and describes how its schedule differs.
  std::string compared(const KernelReport& kernel) const {
    const std::string nest = kernel.planned.nest.key();
    for (const std::shared_ptr<const LaunchPlan>& other : context_.others) {
      if (other.get() == called_ || !other->report) continue;
      for (const KernelReport& known : other->report->kernels)
        if (known.key != kernel.key && known.planned.nest.key() == nest)
          return fmt::format("a call `{}` has the same loops with a different schedule ({})", CallSignature::of(*other).text(),
                             schedule_differences(known.scheduled.schedule, kernel.scheduled.schedule));
    }
    return "no other call of this function has the same loops";
  }

  std::string cache_sentence(const KernelReport& kernel) const {
    if (kernel.planned.nest.is_in_library()) return "nothing to compile: the library contains the code";
    switch (kernel.outcome) {
      case CacheOutcome::none: return "the call was not made";
      case CacheOutcome::memory: return "another call of this process compiled it";
      case CacheOutcome::joined: return "another thread was already compiling it";
      case CacheOutcome::disk: return "loaded from the cache folder";
      case CacheOutcome::compiled:
        return fmt::format("compiled in {:.2f} ms: not found in memory or {}; {}", kernel.compile_ms,
                           disk_cache().enabled() ? "in the cache folder" : "on disk (there is no cache folder)", compared(kernel));
      case CacheOutcome::tiles: return fmt::format("nothing was compiled: the first runs use the tiled interpreter; {}", compared(kernel));
    }
    return "";
  }

  void add_kernels() {
    std::vector<const Launch*> first(report_.kernels.size(), nullptr);
    std::unordered_map<std::uint32_t, std::set<std::uint32_t>> together;  // kernels of the launches that run concurrently
    for (const Launch& launch : plan_.launches) {
      if (!first[launch.of]) first[launch.of] = &launch;
      together[launch.group].insert(launch.of);
    }
    const bool timed = called_ != nullptr;
    std::int64_t runs = 0;
    for (std::size_t k = 0; k < report_.kernels.size(); ++k) {
      const KernelReport& from = report_.kernels[k];
      ExecutionRecord::Kernel& kernel = add_kernel(from.group, from.planned.nest, from.planned.numbers);
      kernel.key = hexadecimal(from.key);
      kernel.pieces = static_cast<int>(from.more.size()) + 1;
      kernel.bytes_read = from.scheduled.numbers.bytes_read;
      kernel.bytes_written = from.scheduled.numbers.bytes_written;
      kernel.program =
          from.planned.nest.is_routine()
              ? print(from.planned.nest, from.planned.numbers)
              : compiler::loops::print(compiler::loops::program_of(from.planned.nest, from.scheduled.schedule), from.planned.numbers);
      if (const Launch* const launch = first[k]) {
        kernel.threads = launch->threads;
        if (launch->kernel) kernel.tier = launch->kernel->tier_text();
        const Specialised::State specialised = launch->specialised->state();
        kernel.tier += text_of(specialised);
        kernel.compiles =
            compiles_of(launch->kernel.get(), specialised == Specialised::State::None ? nullptr : &launch->specialised->kernel());
        kernel.times = times_of(launch->specialised->times);
        kernel.times.together = static_cast<int>(together[launch->group].size());
        runs += kernel.times.runs;
      }
      if (!timed) {
        kernel.tier = from.planned.nest.is_in_library() ? "precompiled library routine" : "not compiled: the call was not made";
        kernel.cache_sentence = cache_sentence(from);
        continue;
      }
      kernel.cache = from.outcome;
      kernel.cache_sentence = cache_sentence(from);
      kernel.compile_ms = from.compile_ms;
    }
    add_readers();
    if (runs > 0) out_.copy_gigabytes_per_second = copy_bandwidth();
    if (timed) add_times_note(runs);
  }

  void add_times_note(std::int64_t runs) {
    out_.times_note =
        runs > 0
            ? "kernel times cover only the calls made while profiling was on"
            : "no kernel times: they are recorded only while profiling is on (onepass::set_profiling(true), or ONEPASS_PROFILE=trace.json)";
  }

  void add_device_kernels() {
    const cuda::DevicePlan& plan = *called_->on_device;
    const std::span<const RunTimes> times = plan.times();
    std::int64_t runs = 0;
    for (std::size_t k = 0; k < plan.kernels().size(); ++k) {
      const cuda::DevicePlan::KernelInfo& from = plan.kernels()[k];
      ExecutionRecord::Kernel& kernel = add_kernel(from.group, from.planned.nest, from.planned.numbers);
      kernel.key = hexadecimal(from.key);
      kernel.pieces = static_cast<int>(from.pieces);
      kernel.bytes_read = from.bytes_read;
      kernel.bytes_written = from.bytes_written;
      kernel.program = print(from.scheduled);
      kernel.times = times_of(times[k]);
      runs += kernel.times.runs;
      kernel.tier = fmt::format("CUDA{}", text_of(plan.specialised()));
      add_device_code(kernel, plan.loaded());
    }
    add_readers();
    add_times_note(runs);
  }

  // Adds the code of a device kernel; the kernels of a call are one program.
  static void add_device_code(ExecutionRecord::Kernel& kernel, const cuda::Gpu::Loaded& loaded) {
    kernel.cache = loaded.outcome;
    switch (loaded.outcome) {
      case CacheOutcome::compiled: {
        kernel.compile_ms = loaded.compile_ms + loaded.load_ms;
        kernel.cache_sentence =
            fmt::format("compiled in {:.2f} ms together with all kernels of the call: not found in memory or {}", kernel.compile_ms,
                        disk_cache().enabled() ? "in the cache folder" : "on disk (there is no cache folder)");
        kernel.compiles.push_back({"CUDA", kernel.compile_ms, {{"NVRTC", loaded.compile_ms}, {"load", loaded.load_ms}}});
        break;
      }
      case CacheOutcome::disk: kernel.cache_sentence = "loaded from the cache folder"; break;
      default: kernel.cache_sentence = "another call of this process compiled it";
    }
  }

  // Sums the needed part of each input once and each result once.
  void add_least() {
    std::unordered_map<NodeId, std::int64_t> needed;
    for (const KernelReport& kernel : report_.kernels) {
      add_needed(kernel.planned.nest, kernel.planned.numbers, needed);
      for (const KernelReport::Piece& piece : kernel.more) add_needed(kernel.planned.nest, piece.numbers, needed);
    }
    if (called_ && called_->on_device)
      for (const cuda::DevicePlan::KernelInfo& kernel : called_->on_device->kernels()) {
        add_needed(kernel.planned.nest, kernel.planned.numbers, needed);
        for (const NestNumbers& piece : kernel.more) add_needed(kernel.planned.nest, piece, needed);
      }
    for (std::size_t i = 0; i < graph_.inputs.size() && i < plan_.inputs.size(); ++i)
      if (const auto found = needed.find(graph_.inputs[i].node); found != needed.end())
        out_.least_bytes += std::min(found->second, distinct_bytes(plan_.inputs[i]));
    for (const ArrayPlan& output : plan_.outputs) out_.least_bytes += distinct_bytes(output);
    if (out_.kernels.empty()) out_.least_bytes = 0;
  }

  // Counts the kernels and bytes of the same call without fusion.
  void add_unfused() {
    constexpr std::uint32_t kMostNodes = 3000;
    if (context_.mode == Mode::reference || plan_.interpret || report_.recorded.size() > kMostNodes || report_.kernels.empty()) return;
    try {
      PlanData plan;
      plan.inputs = plan_.inputs;
      plan.outputs = plan.targets = plan_.targets;
      PlanReport report;
      report.recorded = report_.recorded;
      LaunchOptions options = context_.options;
      options.unfused = true;
      make_launches(plan, report, context_.target, options);
      out_.unfused_kernels = plan.kernels;
      out_.unfused_bytes = plan.bytes_read + plan.bytes_written;
    } catch (const Error&) {}  // NOLINT: an array would exceed a limit, so no comparison is possible
  }

  void add_code() {
    if (!(called_ && called_->on_device)) try {
        for (std::size_t k = 0; k < report_.kernels.size(); ++k) {
          const KernelReport& from = report_.kernels[k];
          if (from.planned.nest.is_in_library()) {
            out_.notes.push_back(fmt::format("kernel {}: no LLVM IR or assembly, because it is a precompiled library routine", k));
            continue;
          }
          out_.kernels[k].llvm = code_of(from, context_.target, context_.mode, true);
          out_.kernels[k].assembly = code_of(from, context_.target, context_.mode, false);
        }
      } catch (const Error& error) { out_.notes.push_back(fmt::format("no LLVM IR or assembly: {}", error.what())); }
    try {
      out_.cuda = cuda_text(report_, plan_, context_.options, out_.cuda_note);
      out_.ptx = ptx_of(out_.cuda, out_.cuda_note);
    } catch (const Error& error) { out_.cuda_note = error.what(); }
  }
};

}  // namespace

ExecutionRecord record_of(const PlanReport& report, const PlanData& plan, const LaunchPlan* called, const RecordContext& context) {
  return Maker(report, plan, called, context).make();
}

}  // namespace onepass::runtime
