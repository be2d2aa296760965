// Program: see program.h. A warm call finds its plan among those that the thread used last (no lock), fills in the pointers and runs.
// A call with another signature looks in the program's table; a new signature is recorded, planned and compiled.
#include "runtime/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "ir/reference.h"
#include "onepass/error.h"
#include "runtime/background.h"
#include "runtime/compare.h"
#include "runtime/cuda/device_plan.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/plan_report.h"
#include "runtime/signature.h"
#include "runtime/signature_text.h"
#include "runtime/structures.h"
#include "runtime/threads.h"

namespace onepass::runtime {

using compiler::Literal;
using compiler::Recorder;
using compiler::shape_text;
using compiler::Target;
using compiler::type_text;
using compiler::Value;
using ir::Graph;
using ir::NodeId;

using PlanPointer = std::shared_ptr<const LaunchPlan>;

namespace {

constexpr std::size_t kMostPlans = 1024, kMostPlanNodes = std::size_t{4} << 20;  // of one program

// ------------------------------------------------------------------------------------------------ what a thread remembers

// The plans that a thread used last, four for each of four programs, without any lock. They live until others take their place.
struct ThreadState {
  struct Recent {
    std::uint64_t program = 0;
    PlanPointer plan;
  };
  static constexpr std::size_t kWays = 4;
  std::array<Recent, 4 * kWays> recent;
  PlanPointer last;  // for last_optimized_graph
  int depth = 0;     // of calls within calls on this thread: the inner ones leave `recent` and `last` alone

  Recent* set_of(std::uint64_t program) { return &recent[(program & 3) * kWays]; }
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

std::atomic<std::uint64_t> next_id{1};  // of programs and plans

// ------------------------------------------------------------------------------------------------ machines

bool can_compile() {
  const Target& host = Target::host();
  return !host.triple.starts_with("x86_64") || host.vector_bytes >= 32;
}

Target target_for(const Options& options) {
  const Target& host = Target::host();
  if (options.vector_bytes == 0) return host;
  if (options.vector_bytes > host.vector_bytes && host.triple.starts_with("x86_64"))
    throw ValueError(
        fmt::format("vector_bytes: this processor's registers have {} bytes, not {}", host.vector_bytes, options.vector_bytes));
  return host.with_vector_bytes(options.vector_bytes);
}

// ------------------------------------------------------------------------------------------------ recordings

// Where a node was recorded, for messages.
std::string place_of(const Graph& graph, NodeId id) {
  const std::uint32_t source = graph.source_of[id];
  return source ? fmt::format(" at {}", graph.sources[source]) : std::string();
}

// A node in a sentence: "`mul` f32[4] at rates.cpp:12".
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
    "it must depend on nothing but types, shapes and Static values. A captured number that changed is the likely cause: pass what changes "
    "as an argument";

// `slot_bits`: the values that the first recording has in this call.
void check_same_recording(const Graph& first, const Graph& second, std::span<const std::uint64_t> slot_bits) {
  NodeId id = 0;
  while (id < first.size() && id < second.size() && same_node(first, second, id)) ++id;
  if (id < first.size() || id < second.size())
    throw Error(fmt::format("check_recording: the function recorded {} first and {} when it was run again on the same types; {}.",
                            node_text(first, id), node_text(second, id), kDependsOnlyOn));
  if (first.outputs != second.outputs || first.output_names != second.output_names)
    throw Error(
        fmt::format("check_recording: the function had other results when it was run again on the same types; {}.", kDependsOnlyOn));
  for (id = 0; id < first.size(); ++id) {
    if (first[id].op != ir::Op::Slot) continue;
    const std::uint64_t slot = first[id].bits, was = slot_bits[slot], is = second.slots[slot].bits;
    if (was == is) continue;
    const DType type = first[id].dtype;
    throw Error(
        fmt::format("check_recording: the number{} was {} when the function was recorded and is {} now: a captured variable "
                    "changed, and compiled calls keep the first value. Pass what changes as an argument.",
                    place_of(first, id), ir::double_of(type, was), ir::double_of(type, is)));
  }
}

bool same_view(const Array& a, const Array& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.strides(), b.strides());
}

std::string type_of(const Array& a) { return type_text(a.dtype(), a.shape()); }

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} bytes", bytes);
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the table of plans

namespace {
const std::exception_ptr& out_of_memory();
}

struct Program::State {
  std::atomic<std::uint64_t> id{next_id.fetch_add(1, std::memory_order_relaxed)};  // what threads remember plans under
  Target target;
  bool interpret = false;

  mutable TableMutex mutex;      // of everything below but the atomics
  std::list<PlanPointer> order;  // most recently used first
  std::unordered_multimap<std::uint64_t, std::list<PlanPointer>::iterator> by_hash;
  struct Family {              // plans of one signature but for the values of numbers
    std::vector<bool> pinned;  // by number argument: has each value plans of its own?
    std::size_t plans = 0;
  };
  std::unordered_map<std::uint64_t, Family> families;
  std::size_t cost = 0;
  std::vector<PlanPointer> evicted;         // out of the table, but a thread still has them
  Stats totals;                             // but what the plans count themselves
  std::unordered_set<std::size_t> kernels;  // hashes of the kernels' keys
  std::list<std::vector<std::string>> names;
  Structures structures;
  std::atomic<std::uint64_t> last{0};  // id of the plan that ran last
  std::atomic<std::int64_t> temporary_bytes{0}, uploaded{0}, downloaded{0};
  // kernels that got their optimised tier, and specialised ones: counted by the background thread, which may outlive the program
  const std::shared_ptr<std::atomic<std::int64_t>> optimised = std::make_shared<std::atomic<std::int64_t>>(0);
  const std::shared_ptr<std::atomic<std::int64_t>> specialised = std::make_shared<std::atomic<std::int64_t>>(0);
  std::atomic<int> hot_shapes{0};
  std::atomic<bool> sealed{false}, depth_said{false};

  PlanPointer find(const CallSite& site, const Signature& signature) {
    const std::lock_guard lock(mutex);
    const auto family = families.find(signature.family);
    if (family == families.end()) return nullptr;
    const auto [begin, end] = by_hash.equal_range(hash_of(signature, family->second.pinned));
    for (auto it = begin; it != end; ++it) {
      if (!matches(site, **it->second)) continue;
      order.splice(order.begin(), order, it->second);
      return *it->second;
    }
    return nullptr;
  }

  // The plan, or the one that another thread made for such calls meanwhile.
  PlanPointer insert(const CallSite& site, const Signature& signature, std::shared_ptr<LaunchPlan> plan) {
    const std::lock_guard lock(mutex);
    Family& family = families[signature.family];
    // A family's pins only grow, so that one look is enough to find a plan; those made with fewer are left to be evicted.
    family.pinned.resize(signature.values.size());
    for (std::size_t i = 0; i < family.pinned.size(); ++i) family.pinned[i] = plan->pinned[i] = family.pinned[i] || plan->pinned[i];
    plan->family = signature.family;
    plan->hash = hash_of(signature, family.pinned);
    const auto [begin, end] = by_hash.equal_range(plan->hash);
    for (auto it = begin; it != end; ++it)
      if (matches(site, **it->second)) return *it->second;
    order.push_front(plan);
    try {
      by_hash.emplace(plan->hash, order.begin());
    } catch (...) {
      order.pop_front();
      throw;
    }
    ++family.plans;
    cost += plan->cost();
    while (order.size() > 1 && (order.size() > kMostPlans || cost > kMostPlanNodes)) evict();
    return plan;
  }

  void evict() {
    const auto victim = std::prev(order.end());
    evicted.push_back(*victim);  // first: it may fail, what follows does not
    const auto [begin, end] = by_hash.equal_range((*victim)->hash);
    for (auto it = begin; it != end; ++it)
      if (it->second == victim) {
        by_hash.erase(it);
        break;
      }
    if (const auto it = families.find((*victim)->family); --it->second.plans == 0) families.erase(it);
    cost -= (*victim)->cost();
    ++totals.forgotten;
    order.erase(victim);
    if (evicted.size() > 64) fold();
  }

  // The counts of plans that nobody can run any more join the totals.
  void fold() {
    std::erase_if(evicted, [&](const PlanPointer& plan) {
      if (plan.use_count() != 1) return false;
      add(totals, *plan);
      return true;
    });
  }

  static void add(Stats& to, const LaunchPlan& plan) {
    const std::int64_t runs = plan.runs.load(std::memory_order_relaxed);
    to.calls += runs;
    to.launches += runs * plan.kernels;
    to.bytes_read += runs * plan.bytes_read;
    to.bytes_written += runs * plan.bytes_written;
    to.bytes_allocated += runs * plan.bytes_allocated;
    to.dropped +=
        std::ranges::any_of(plan.launches, [](const Launch& l) { return l.specialised->state() == Specialised::State::Dropped; }) ||
        (plan.on_device && plan.on_device->specialised() == Specialised::State::Dropped);
  }

  Stats stats() const {
    const std::lock_guard lock(mutex);
    Stats s = totals;
    for (const PlanPointer& plan : order) add(s, *plan);
    for (const PlanPointer& plan : evicted) add(s, *plan);
    s.kernels = static_cast<std::int64_t>(kernels.size());
    s.optimised = optimised->load(std::memory_order_relaxed);
    s.specialized = specialised->load(std::memory_order_relaxed);
    s.hot_shapes = hot_shapes.load(std::memory_order_relaxed);
    s.plans = static_cast<std::int64_t>(order.size());
    s.bytes_allocated += temporary_bytes.load(std::memory_order_relaxed);
    s.bytes_uploaded = uploaded.load(std::memory_order_relaxed);
    s.bytes_downloaded = downloaded.load(std::memory_order_relaxed);
    return s;
  }

  PlanPointer last_plan() const {
    const std::uint64_t wanted = last.load(std::memory_order_relaxed);
    const std::lock_guard lock(mutex);
    for (const PlanPointer& plan : order)
      if (plan->id == wanted) return plan;
    for (const PlanPointer& plan : evicted)
      if (plan->id == wanted) return plan;
    return nullptr;
  }
};

Program::Program(Record record, std::vector<std::string> argument_names, Options options)
    : record_(std::move(record)), names_(std::move(argument_names)), options_(options), state_(std::make_unique<State>()) {
  if (options_.threads < 0 || options_.threads > threads::kMaxThreads)
    throw ValueError(fmt::format("threads: {} is not between 0 (the default) and {}", options_.threads, threads::kMaxThreads));
  static_cast<void>(out_of_memory());
  if (options_.limits.array_bytes < 0)
    throw ValueError(fmt::format("array_bytes: {} is negative; give a number of bytes, or 0", options_.limits.array_bytes));
  state_->target = target_for(options_);
  state_->sealed = options_.compile == Compile::never;
  state_->interpret = options_.mode == Mode::reference || (options_.mode == Mode::adaptive && !can_compile());
  if (state_->interpret && options_.mode == Mode::adaptive) {
    static constinit Once once;
    if (once.first())
      log(LogLevel::warning,
          "this processor lacks AVX2 or FMA, which compiled kernels need: functions are interpreted, as in mode reference");
  }
  if (!state_->interpret && !can_compile())
    throw UnsupportedError("this processor lacks AVX2 or FMA, which compiled kernels need; use mode reference");
}

// Threads may remember plans of a program that is gone, but nobody runs them: what they captured can go.
Program::~Program() {
  for (const PlanPointer& plan : state_->order) plan->captured.clear();
  for (const PlanPointer& plan : state_->evicted) plan->captured.clear();
}

Value ProgramRecorder::capture(const Array& array) {
  if (!array.has_memory()) throw ValueError("a captured Array is empty: it has no memory");
  const auto [begin, end] = by_address_.equal_range(array.data());
  for (auto it = begin; it != end; ++it)
    if (same_view(captured[it->second.first], array)) return it->second.second;
  const Value value = input(fmt::format("captured{}", captured.size()), array.dtype(), array.shape());
  by_address_.emplace(array.data(), std::pair(captured.size(), value));
  captured.push_back(array);
  return value;
}

// ------------------------------------------------------------------------------------------------ making plans

namespace {

// Inputs for the array arguments, literals for the numbers.
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

}  // namespace

struct ProgramAccess {
  /// One run of the function. What it computes from literals has the bits that a call would compute.
  /// Under no lock: the caller's function may take its time, call other functions, and wait for other threads that record.
  static ProgramRecorder record(const Program& program, std::span<const Argument> arguments, std::span<const ArrayPlan> inputs) {
    const os::DefaultFloatingPoint control;
    ProgramRecorder recorder;
    recorder.limits = program.options_.limits;
    const std::vector<Value> values = argument_values(recorder, program.names_, arguments, inputs);
    program.record_(recorder, values);
    return recorder;
  }

  static void add_captured(std::vector<Array> captured, PlanData& plan) {
    for (const Array& a : captured) plan.inputs.push_back(array_plan(a.dtype(), a.shape(), a.strides()));
    plan.captured = std::move(captured);
  }

  /// check_recording: the plan's recording against another one, made now.
  static void check(const Program& program, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits) {
    ProgramRecorder again = record(program, site.arguments, std::span(plan.inputs).first(plan.argument_of.size()));
    PlanData outputs;
    fill_outputs(site, again.graph, outputs);
    check_same_recording(recorded_of(plan), again.graph, slot_bits);
    if (!std::ranges::equal(plan.captured, again.captured, same_view))
      throw Error(
          "check_recording: a captured Array was another one when the function was run again on the same types; compiled calls keep "
          "reading the first. Pass what changes as an argument.");
  }

  static void fill_inputs(const Program& program, std::span<const Argument> arguments, PlanData& plan) {
    const std::vector<std::string>& names = program.names_;
    if (!names.empty() && arguments.size() != names.size()) {
      std::string list;
      for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
      throw Error(
          fmt::format("the function takes {} argument{} ({}), not {}", names.size(), names.size() == 1 ? "" : "s", list, arguments.size()));
    }
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Array* const a = arguments[i].array;
      if (!a) continue;
      if (!a->has_memory())
        throw ValueError(
            fmt::format("argument {} is an empty Array: it has no memory", i < names.size() ? names[i] : fmt::format("x{}", i)));
      plan.inputs.push_back(array_plan(a->dtype(), a->shape(), a->strides()));
      plan.argument_of.push_back(static_cast<std::uint32_t>(i));
    }
  }

  // The results that are wanted, checked against the arrays they go to.
  static void fill_outputs(const CallSite& site, Graph& graph, PlanData& plan) {
    plan.output_names = graph.output_names;
    const std::size_t results = graph.outputs.size();
    if (site.into && site.targets.size() != results)
      throw Error(fmt::format("the function has {} result{}, and {} target{} given", results, results == 1 ? "" : "s", site.targets.size(),
                              site.targets.size() == 1 ? " was" : "s were"));
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
        if (!target->has_memory()) throw ValueError(fmt::format("target {} is an empty Array; the result is {}", name, type));
        if (target->dtype() != graph[id].dtype)
          throw DTypeError(
              fmt::format("target {} is {}, but the result is {}; a target has exactly the result's type", name, type_of(*target), type));
        if (!std::ranges::equal(target->shape(), graph.shape(id)))
          throw ShapeError(
              fmt::format("target {} is {}, but the result is {}; a target has exactly the result's shape", name, type_of(*target), type));
        if (target->is_read_only()) throw ValueError(fmt::format("target {} {} is read-only", name, type));
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

  static LaunchOptions launch_options(const Program& program, const CallSite& site) {
    LaunchOptions options;
    options.unfused = program.options_.mode == Mode::unfused;
    options.relax = program.options_.relax;
    options.threads = site.threads;
    options.array_bytes = program.options_.limits.array_bytes;
    options.aligned_stores = std::ranges::all_of(site.targets, [](const Array* t) { return !t || is_aligned(*t); });
    // A choice of stores, not of results: a later call of this signature may have its targets elsewhere.
    for (const Array* const t : site.targets)
      if (t)
        options.in_place.push_back(
            std::ranges::any_of(site.arguments, [&](const Argument& a) { return a.array && a.array->data() == t->data(); }));
    return options;
  }

  // Where a call runs: on the device of its arrays, else on that of the options. Arrays of the cpu are copied.
  static Device device_of(const Program& program, const CallSite& site, std::span<const Array> captured) {
    Device device = program.options_.device;
    const auto note = [&](const Array& a) {
      if (a.device().is_cpu() || a.device() == device) return;
      if (device.is_cuda())
        throw ValueError(
            fmt::format("a call runs on one device, and this one has cuda:{} ({}) and an array on cuda:{}; copy it with "
                        "`to(Device::cuda({}))`",
                        device.index(), device == program.options_.device ? "Options::device" : "of another array", a.device().index(),
                        device.index()));
      device = a.device();
    };
    for (const Argument& a : site.arguments)
      if (a.array) note(*a.array);
    for (const Array* const t : site.targets)
      if (t) note(*t);
    for (const Array& a : captured) note(a);
    return device;
  }

  static int plan_on_device(const Program& program, Device device, const CallSite& site, LaunchPlan& plan, PlanReport& report,
                            bool may_compile) {
    if (program.options_.mode == Mode::reference)
      throw ValueError(fmt::format(
          "mode reference interprets on the cpu, and an array of the call is on cuda:{}; `to(Device::cpu())` copies it", device.index()));
    cuda::DeviceAlignment alignment;
    const auto aligned = [&](const Array& a) { return a.device().is_cpu() || is_vector_aligned(a); };  // a copy is
    for (const std::uint32_t i : plan.argument_of) alignment.inputs.push_back(aligned(*site.arguments[i].array));
    for (const Array& a : plan.captured) alignment.inputs.push_back(aligned(a));
    for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
      const Array* const target = site.into ? site.targets[plan.target_of[k]] : nullptr;
      alignment.outputs.push_back(!target || aligned(*target));
      // What is copied to the cpu must not have gaps, which belong to somebody else.
      if (target && target->device().is_cpu()) plan.outputs[k] = array_plan(plan.outputs[k].dtype, plan.outputs[k].shape, {});
    }
    cuda::Gpu& gpu = cuda::Gpu::get(device.index());
    auto on_device = std::make_shared<cuda::DevicePlan>(gpu.target(), plan, report, launch_options(program, site), alignment);
    const int compiled = on_device->attach(gpu, may_compile);
    plan.on_device = std::move(on_device);
    return compiled;
  }

  static std::vector<const Array*> inputs_of(const CallSite& site, const PlanData& plan) {
    std::vector<const Array*> inputs;
    for (const std::uint32_t i : plan.argument_of) inputs.push_back(site.arguments[i].array);
    for (const Array& a : plan.captured) inputs.push_back(&a);
    return inputs;
  }

  /// On the plan's device, into `outputs`, one for each of the plan's.
  static void run_on_device(Program::State& state, const CallSite& site, const LaunchPlan& plan, std::span<const std::uint64_t> slot_bits,
                            const std::uint64_t* own_slots, std::span<const Array* const> outputs) {
    const std::vector<const Array*> inputs = inputs_of(site, plan);
    const cuda::DeviceCopies copies = plan.on_device->run(plan, {inputs, outputs, own_slots});
    state.uploaded.fetch_add(copies.uploaded, std::memory_order_relaxed);
    state.downloaded.fetch_add(copies.downloaded, std::memory_order_relaxed);
    state.temporary_bytes.fetch_add(copies.temporaries, std::memory_order_relaxed);
    if (copies.bad_index) {
      const OnCpu on_cpu(inputs);
      check_indices(recorded_of(plan), on_cpu.views(), slot_bits);
    }
  }

  // Copies of a call's arrays for what looks at them on the cpu.
  class OnCpu {
   public:
    explicit OnCpu(std::span<const Array* const> arrays) {
      for (const Array* const a : arrays) {
        arrays_.push_back(a->to(Device::cpu()));
        plans_.push_back(array_plan(a->dtype(), arrays_.back().shape(), arrays_.back().strides()));
        bases_.push_back(static_cast<const std::byte*>(arrays_.back().data()));
      }
    }
    std::vector<ir::ArrayView> views() const {
      std::vector<ir::ArrayView> out;
      for (std::size_t i = 0; i < plans_.size(); ++i) out.push_back({plans_[i].dtype, bases_[i], plans_[i].shape, plans_[i].strides});
      return out;
    }
    std::span<const ArrayPlan> plans() const { return plans_; }
    std::span<const std::byte* const> bases() const { return bases_; }

   private:
    std::vector<Array> arrays_;
    std::vector<ArrayPlan> plans_;
    std::vector<const std::byte*> bases_;
  };

  // Will threads share what the call does? They start while it is planned.
  static bool may_be_threaded(const PlanData& plan, const Graph& recorded) {
    std::int64_t elements = 0;
    for (const std::vector<ArrayPlan>* const arrays : {&plan.inputs, &plan.outputs})
      for (const ArrayPlan& a : *arrays) elements = std::max(elements, a.elements());
    return elements >= compiler::ScheduleOptions::kThreadedWork / static_cast<std::int64_t>(recorded.size() + 1);
  }

  static PlanPointer build(const Program& program, Program::State& state, const CallSite& site, const Signature& signature) {
    const bool may_compile = !state.sealed.load(std::memory_order_relaxed);
    auto plan = std::make_shared<LaunchPlan>();
    auto report = std::make_shared<PlanReport>();
    fill_inputs(program, site.arguments, *plan);
    {
      ProgramRecorder recorder = record(program, site.arguments, plan->inputs);
      add_captured(std::move(recorder.captured), *plan);
      plan->attachment = std::move(recorder.attachment);
      for (std::size_t i = 0; i < site.arguments.size(); ++i)
        if (!site.arguments[i].array) plan->pinned.push_back(recorder.numbers.is_pinned(i));
      plan->numbers = std::move(recorder.numbers);
      plan->numbers.finish();
      report->recorded = std::move(recorder.graph);
      report->notes = std::move(recorder.notes);
    }
    fill_outputs(site, report->recorded, *plan);
    for (const ir::Slot& slot : report->recorded.slots) plan->slot_bits.push_back(slot.bits);
    int compiled = 0;
    bool analysed = false;
    if (const Device device = device_of(program, site, plan->captured); device.is_cuda()) {
      compiled = plan_on_device(program, device, site, *plan, *report, may_compile);
    } else if (state.interpret) {
      plan->interpret = true;
      report->optimised = ir::prune(arithmetic(ir::prune(report->recorded), program.options_.relax));
      check_interpreted(report->optimised, launch_options(program, site));
    } else {
      if (may_be_threaded(*plan, report->recorded)) threads::start(site.threads);
      plan->options = launch_options(program, site);
      plan->known = state.structures.take_over(*report);
      analysed = !plan->known.structure;
      make_launches(*plan, *report, state.target, plan->options, !analysed);
      if (analysed) state.structures.add(*report, program.options_.relax);
      const auto attach = program.options_.mode == Mode::specialized ? attach_unspecialised : attach_kernels;
      compiled = attach(*plan, *report, state.target, site.threads, state.optimised, may_compile);
    }
    finish(*plan, site.into);
    {
      const std::lock_guard lock(state.mutex);
      ++state.totals.recordings;
      state.totals.analysed += analysed;
      state.totals.compiles += compiled;
      state.totals.cache_hits += plan->kernels - compiled;
      for (const KernelReport& kernel : report->kernels)
        if (state.kernels.size() < 65'536) state.kernels.insert(std::hash<std::string>()(kernel.key));
      if (plan->on_device)
        for (const cuda::DevicePlan::KernelInfo& kernel : plan->on_device->kernels())
          if (state.kernels.size() < 65'536) state.kernels.insert(std::hash<std::string>()("cuda" + kernel.key));
    }
    plan->report = std::move(report);
    if (program.options_.mode == Mode::specialized) {
      const int specialised = plan->on_device ? plan->on_device->specialise(*plan, false, may_compile)
                                              : attach_specialised(*plan, *plan->report, state.target, site.threads, false, may_compile);
      state.specialised->fetch_add(specialised, std::memory_order_relaxed);
    }
    keep_structure_alone(*plan, compiled);
    plan->specialises = program.options_.mode != Mode::adaptive || state.interpret;
    plan->id = next_id.fetch_add(1, std::memory_order_relaxed);
    plan->key = signature.key;
    return state.insert(site, signature, std::move(plan));
  }

  // After a call. A shape that has become hot gets kernels of its own, as long as the function's depth allows.
  static void ran(const Program& program, Program::State& state, const LaunchPlan& plan) {
    const std::int64_t runs = plan.runs.fetch_add(1, std::memory_order_relaxed) + 1;
    if (runs < program.options_.specialization.after_calls || plan.specialises.load(std::memory_order_relaxed)) [[likely]]
      return;
    if (!plan.specialises.exchange(true)) specialise(program, state, plan, program.options_.specialization.in_background);
  }
  [[gnu::noinline]] static void specialise(const Program& program, Program::State& state, const LaunchPlan& plan,
                                           bool in_background) noexcept try {
    const Specialization& policy = program.options_.specialization;
    if (policy.depth <= 0 || (plan.launches.empty() && !plan.on_device) || state.sealed.load(std::memory_order_relaxed)) return;
    int shapes = state.hot_shapes.load(std::memory_order_relaxed);
    while (shapes < policy.depth && !state.hot_shapes.compare_exchange_weak(shapes, shapes + 1, std::memory_order_relaxed)) {}
    if (shapes >= policy.depth && !state.depth_said.exchange(true))
      log(LogLevel::info,
          "a function has kernels of its own for {} shapes, as many as Specialization::depth allows; from now on it uses its generic ones",
          policy.depth);
    if (shapes >= policy.depth) return;
    // The plan may go before the job runs; the counter is the program's, which may go too.
    const auto job = [weak = plan.weak_from_this(), target = state.target, count = state.specialised] {
      const PlanPointer plan = weak.lock();
      if (!plan) return;
      try {
        const int compiled = plan->on_device ? plan->on_device->specialise(*plan, true)
                                             : attach_specialised(*plan, *report_of(*plan, target), target, 1, true);
        count->fetch_add(compiled, std::memory_order_relaxed);
      } catch (const std::exception& error) {  // the generic kernels stay: they give the same results
        log(LogLevel::warning, "a hot shape keeps its generic kernels: {}", error.what());
      }
    };
    if (in_background) background::run(job);
    else job();
  } catch (const std::bad_alloc&) {}  // NOLINT: no memory for the job: the generic kernels stay

  /// Options::check_nan, after a call.
  /// `bases`: of the arguments; of a call on a device `there` are they themselves.
  static void check_nan(const Program& program, const LaunchOptions& options, const LaunchPlan& plan,
                        std::span<const std::uint64_t> slot_bits, std::span<std::byte* const> bases, std::span<const Array> results,
                        std::span<const Array* const> there = {});

  static void finish(PlanData& plan, bool into) {
    for (std::size_t k = 0; k < plan.outputs.size(); ++k) plan.redirected.push_back(plan.outputs[k].strides != plan.targets[k].strides);
    plan.bytes_allocated = plan.workspace_bytes;
    if (!into)
      for (const ArrayPlan& o : plan.outputs) plan.bytes_allocated += o.high - o.low;
  }

  static PlanPointer find_or_build(const Program& program, Program::State& state, const CallSite& site) {
    Signature signature = signature_of(site);
    if (PlanPointer plan = state.find(site, signature)) return plan;
    try {
      return build(program, state, site, signature);
    } catch (const KernelMissing&) {
      LaunchPlan call;
      call.key = std::move(signature.key);
      throw Error(
          fmt::format("a call `{}` needs a kernel that is neither in memory nor on disk, and nothing may be compiled any more ({}). Call "
                      "warm_up with this signature before",
                      CallSignature::of(call).text(),
                      program.options_.compile == Compile::never ? "Options::compile is never" : "the function is sealed"));
    }
  }
};

// ------------------------------------------------------------------------------------------------ calls

namespace {

// A row of words, on the stack where it is short.
template <class T, std::size_t kInline> class Row {
 public:
  explicit Row(std::size_t count) {
    if (count > kInline) {
      heap_.resize(count);
      data_ = heap_.data();
    }
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }

 private:
  T inline_[kInline];
  std::vector<T> heap_;
  T* data_ = inline_;
};
using Pointers = Row<std::byte*, 48>;

// What a call throws when `new` finds nothing, made before it is needed.
const std::exception_ptr& out_of_memory() {
  static const std::exception_ptr error = std::make_exception_ptr(
      MemoryError("out of memory: the system has none left for what a call needs to be prepared; nothing was computed"));
  return error;
}

// The plan of one call, held as long as it runs.
class Call {
 public:
  Call(const Program& program, Program::State& state, const CallSite& site) : thread_(thread_state()) {
    if (thread_.depth == 0) [[likely]] {
      const std::uint64_t id = state.id.load(std::memory_order_relaxed);
      ThreadState::Recent* const set = thread_.set_of(id);
      for (std::size_t i = 0; i < ThreadState::kWays; ++i) {
        if (set[i].program != id || !matches(site, *set[i].plan)) continue;
        if (i > 0) std::swap(set[i], set[i - 1]), --i;  // those in use move to the front
        plan_ = set[i].plan.get();
        remember(state, set[i].plan);
        ++thread_.depth;
        return;
      }
      held_ = ProgramAccess::find_or_build(program, state, site);  // may call other programs
      plan_ = held_.get();
      std::move_backward(set, set + ThreadState::kWays - 1, set + ThreadState::kWays);
      set[0] = {id, held_};
      remember(state, held_);
    } else {
      held_ = ProgramAccess::find_or_build(program, state, site);
      plan_ = held_.get();
      state.last.store(plan_->id, std::memory_order_relaxed);
    }
    ++thread_.depth;
  }
  ~Call() { --thread_.depth; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const LaunchPlan& plan() const { return *plan_; }

 private:
  ThreadState& thread_;
  const LaunchPlan* plan_ = nullptr;
  PlanPointer held_;

  void remember(Program::State& state, const PlanPointer& plan) {
    if (thread_.last != plan) thread_.last = plan;
    if (state.last.load(std::memory_order_relaxed) != plan->id) state.last.store(plan->id, std::memory_order_relaxed);
  }
};

// The slots of one call: those that its numbers fill, the others as they were recorded.
class CallSlots {
 public:
  CallSlots(const Program& program, const CallSite& site, const LaunchPlan& plan)
      : plan_(plan), own_(plan.numbers.empty() ? 0 : plan.slot_bits.size()) {
    if (plan.numbers.empty()) return;
    const os::DefaultFloatingPoint control;
    std::ranges::copy(plan.slot_bits, own_.data());
    try {
      plan.numbers.evaluate([&](std::size_t i) { return site.arguments[i].number; }, {own_.data(), plan.slot_bits.size()});
    } catch (const Error&) {  // a number that does not fit: recorded again, the message says where
      ProgramAccess::record(program, site.arguments, std::span(plan.inputs).first(plan.argument_of.size()));
      throw;
    }
  }
  /// Null where the call brings none.
  const std::uint64_t* own() { return plan_.numbers.empty() ? nullptr : own_.data(); }
  std::span<const std::uint64_t> all() {
    return plan_.numbers.empty() ? std::span(plan_.slot_bits) : std::span<const std::uint64_t>(own_.data(), plan_.slot_bits.size());
  }

 private:
  const LaunchPlan& plan_;
  Row<std::uint64_t, 32> own_;
};

void fill_input_bases(const LaunchPlan& plan, std::span<const Argument> arguments, std::byte** bases) {
  for (const std::uint32_t argument : plan.argument_of)
    *bases++ = static_cast<std::byte*>(const_cast<void*>(arguments[argument].array->data()));
  for (const Array& array : plan.captured) *bases++ = static_cast<std::byte*>(const_cast<void*>(array.data()));
}

std::vector<ir::ArrayView> views_of(const LaunchPlan& plan, std::byte* const* bases) {
  std::vector<ir::ArrayView> views;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const ArrayPlan& input = plan.inputs[i];
    views.push_back({input.dtype, bases[i], input.shape, input.strides});
  }
  return views;
}

// Mode reference: `bases` as for kernels, outputs laid out as the plan's targets.
void interpret(const LaunchPlan& plan, std::byte* const* bases, std::span<const std::uint64_t> slot_bits) {
  std::vector<ir::Buffer> results;
  {
    const os::DefaultFloatingPoint control;
    results = ir::evaluate(plan.report->optimised, views_of(plan, bases), slot_bits);
  }
  std::vector<ArrayPlan> dense;  // all, before anything is written
  for (const ir::Buffer& result : results) dense.push_back(array_plan(result.dtype, result.shape, {}));
  for (std::size_t k = 0; k < results.size(); ++k)
    copy_array(plan.targets[k], bases[plan.inputs.size() + k], dense[k], results[k].bytes.data());
}

struct Temporary {
  std::size_t output;
  memory::Buffer buffer;
  std::byte* target;
};

bool overlap(const std::byte* a, const ArrayPlan& x, const std::byte* b, const ArrayPlan& y) {
  const auto p = reinterpret_cast<std::uintptr_t>(a), q = reinterpret_cast<std::uintptr_t>(b);
  const auto low = [](std::uintptr_t at, std::int64_t by) { return at + static_cast<std::uintptr_t>(by); };
  return x.low != x.high && y.low != y.high && low(p, x.low) < low(q, y.high) && low(q, y.low) < low(p, x.high);
}

// Calls f(k, other) for each target and each argument or later target that overlap; `other` counts as `bases` does. Few are compared each with
// each; of many only those that lie side by side.
template <class F> void each_overlap(const LaunchPlan& plan, std::byte* const* bases, F&& f) {
  constexpr std::size_t kFew = 1024;  // pairs
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size(), all = inputs + outputs;
  const auto array = [&](std::size_t i) -> const ArrayPlan& { return i < inputs ? plan.inputs[i] : plan.targets[i - inputs]; };
  if (outputs * all <= kFew) [[likely]] {
    for (std::size_t k = 0; k < outputs; ++k)
      for (std::size_t other = 0; other < all; ++other)
        if ((other < inputs || other > inputs + k) && overlap(bases[inputs + k], plan.targets[k], bases[other], array(other))) f(k, other);
    return;
  }
  std::vector<std::pair<const std::byte*, std::size_t>> order;  // by where the bytes begin
  for (std::size_t i = 0; i < all; ++i)
    if (array(i).low != array(i).high) order.emplace_back(bases[i] + array(i).low, i);
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> open[2];  // arguments, targets that have not ended
  for (const auto& [begin, i] : order) {
    const bool is_target = i >= inputs;
    for (const bool targets : {false, true}) {
      if (!is_target && !targets) continue;
      std::erase_if(open[targets], [&, begin = begin](std::size_t o) { return bases[o] + array(o).high <= begin; });
      for (const std::size_t o : open[targets]) {
        const std::size_t k = is_target && targets ? std::min(i, o) : std::max(i, o);
        f(k - inputs, k == i ? o : i);
      }
    }
    open[is_target].push_back(i);
  }
}

[[noreturn]] void fail_overlap(const LaunchPlan& plan, std::size_t k, std::size_t other) {
  throw ValueError(fmt::format("targets {} and {} overlap; each result needs memory of its own", plan.output_names[plan.target_of[k]],
                               plan.output_names[plan.target_of[other]]));
}

// Targets against each other: an error.
void check_targets(const LaunchPlan& plan, std::byte* const* bases) {
  const std::size_t inputs = plan.inputs.size();
  each_overlap(plan, bases, [&](std::size_t k, std::size_t other) {
    if (other >= inputs) [[unlikely]]
      fail_overlap(plan, k, other - inputs);
  });
}

// Targets against each other: an error. Targets against arguments, or with strides that the kernels do not write: a temporary.
void resolve_aliases(const LaunchPlan& plan, std::byte** bases, std::vector<Temporary>& temporaries) {
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Row<std::uint8_t, 32> elsewhere(outputs);
  for (std::size_t k = 0; k < outputs; ++k) elsewhere[k] = plan.redirected[k];
  each_overlap(plan, bases, [&](std::size_t k, std::size_t other) {
    if (other >= inputs) [[unlikely]]
      fail_overlap(plan, k, other - inputs);
    // what is interpreted is copied out when everything is computed
    if (!plan.interpret && !(plan.in_place[k * inputs + other] && bases[other] == bases[inputs + k])) elsewhere[k] = 1;
  });
  if (plan.interpret) return;
  for (std::size_t k = 0; k < outputs; ++k) {
    if (!elsewhere[k]) [[likely]]
      continue;
    const ArrayPlan& output = plan.outputs[k];
    const std::int64_t before = (-output.low + 63) & ~std::int64_t{63};  // so that element (0, …, 0) is aligned
    temporaries.push_back({k, memory::Buffer(static_cast<std::size_t>(before + output.high)), bases[inputs + k]});
    bases[inputs + k] = static_cast<std::byte*>(temporaries.back().buffer.data()) + before;
  }
}

}  // namespace

void Program::call_into(std::span<const Argument> arguments, std::span<Array* const> targets) try {
  const CallSite site{arguments, targets, true, options_.threads ? options_.threads : threads::count()};
  const Call call(*this, *state_, site);
  const LaunchPlan& plan = call.plan();
  CallSlots slots(*this, site, plan);
  if (options_.check_recording) [[unlikely]]
    ProgramAccess::check(*this, site, plan, slots.all());
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Pointers bases(inputs + outputs + kMoreBases);
  fill_input_bases(plan, arguments, bases.data());
  for (std::size_t k = 0; k < outputs; ++k) bases[inputs + k] = static_cast<std::byte*>(targets[plan.target_of[k]]->mutable_data());
  const auto check_written = [&](std::span<const Array* const> there) {
    std::vector<Array> written;
    for (std::size_t k = 0; k < outputs; ++k) written.push_back(*targets[plan.target_of[k]]);
    ProgramAccess::check_nan(*this, ProgramAccess::launch_options(*this, site), plan, slots.all(), {bases.data(), inputs}, written, there);
  };
  if (plan.on_device) [[unlikely]] {
    check_targets(plan, bases.data());
    std::vector<const Array*> places;
    for (const std::uint32_t k : plan.target_of) places.push_back(targets[k]);
    ProgramAccess::run_on_device(*state_, site, plan, slots.all(), slots.own(), places);
    if (options_.check_nan) check_written(ProgramAccess::inputs_of(site, plan));
    ProgramAccess::ran(*this, *state_, plan);
    return;
  }
  std::vector<Temporary> temporaries;
  resolve_aliases(plan, bases.data(), temporaries);
  if (plan.interpret) interpret(plan, bases.data(), slots.all());
  else if (!run(plan, bases.data(), slots.own())) [[unlikely]] check_indices(recorded_of(plan), views_of(plan, bases.data()), slots.all());
  for (const Temporary& t : temporaries) {
    copy_array(plan.targets[t.output], t.target, plan.outputs[t.output], bases[inputs + t.output]);
    state_->temporary_bytes.fetch_add(static_cast<std::int64_t>(t.buffer.size()), std::memory_order_relaxed);
  }
  if (options_.check_nan) [[unlikely]]
    check_written({});
  ProgramAccess::ran(*this, *state_, plan);
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

struct Program::Bound::Body {
  const Program& program;
  State& state;
  PlanPointer plan;
  std::vector<Array> arrays;  // kept alive
  std::vector<std::byte*> bases;
  std::vector<std::uint64_t> slot_bits;  // of an interpreted plan, one that indexes by data, or where NaNs are looked for
  std::vector<Temporary> temporaries;    // made once; copied out after each run
  std::optional<PreparedRun> run;
  std::vector<Array> results;  // where NaNs are looked for
  LaunchOptions options;       // the same

  // of a call on a device
  std::vector<Argument> arguments;
  std::vector<const Array*> outputs;
  bool own_slots = false;

  void run_on_device() {
    const CallSite site{arguments, {}, true, 1};
    ProgramAccess::run_on_device(state, site, *plan, slot_bits, own_slots ? slot_bits.data() : nullptr, outputs);
  }
  void copy_out() const {
    for (const Temporary& t : temporaries)
      copy_array(plan->targets[t.output], t.target, plan->outputs[t.output], bases[plan->inputs.size() + t.output]);
  }
};

std::unique_ptr<Program::Bound> Program::bind(std::span<const Argument> arguments, std::span<Array* const> targets) try {
  const CallSite site{arguments, targets, true, options_.threads ? options_.threads : threads::count()};
  auto body = std::make_unique<Bound::Body>(
      Bound::Body{*this, *state_, ProgramAccess::find_or_build(*this, *state_, site), {}, {}, {}, {}, {}, {}, {}, {}, {}, false});
  const LaunchPlan& plan = *body->plan;
  CallSlots slots(*this, site, plan);
  if (options_.check_recording) ProgramAccess::check(*this, site, plan, slots.all());
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
    if (options_.check_nan) {
      body->options = ProgramAccess::launch_options(*this, site);
      for (const Array* const a : body->outputs) body->results.push_back(*a);
    }
    return std::make_unique<Bound>(std::move(body));
  }
  resolve_aliases(plan, body->bases.data(), body->temporaries);
  std::int64_t bytes = 0;
  for (const Temporary& t : body->temporaries) bytes += static_cast<std::int64_t>(t.buffer.size());
  state_->temporary_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (plan.interpret || plan.indexes || options_.check_nan) body->slot_bits.assign(slots.all().begin(), slots.all().end());
  if (options_.check_nan) {
    for (std::size_t k = 0; k < outputs; ++k) body->results.push_back(*targets[plan.target_of[k]]);
    body->options = ProgramAccess::launch_options(*this, site);
  }
  if (!plan.interpret) body->run.emplace(plan, body->bases.data(), slots.own());
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
  } else interpret(*b.plan, b.bases.data(), b.slot_bits);
  if (!b.temporaries.empty()) b.copy_out();
  if (!b.results.empty()) [[unlikely]]
    ProgramAccess::check_nan(
        b.program, b.options, *b.plan, b.slot_bits, std::span(b.bases).first(b.plan->inputs.size()), b.results,
        b.plan->on_device ? ProgramAccess::inputs_of({b.arguments, {}, true, 1}, *b.plan) : std::vector<const Array*>());
  ProgramAccess::ran(b.program, b.state, *b.plan);
  ThreadState& thread = thread_state();
  if (thread.depth == 0 && thread.last != b.plan) thread.last = b.plan;
  if (b.state.last.load(std::memory_order_relaxed) != b.plan->id) b.state.last.store(b.plan->id, std::memory_order_relaxed);
}

std::vector<Array> Program::call(std::span<const Argument> arguments, Aftermath* after) try {
  const CallSite site{arguments, {}, false, options_.threads ? options_.threads : threads::count()};
  const Call call(*this, *state_, site);
  const LaunchPlan& plan = call.plan();
  CallSlots slots(*this, site, plan);
  if (options_.check_recording) [[unlikely]]
    ProgramAccess::check(*this, site, plan, slots.all());
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  Pointers bases(inputs + outputs + kMoreBases);
  std::vector<Array> results;
  results.reserve(outputs);
  fill_input_bases(plan, arguments, bases.data());
  if (plan.on_device) [[unlikely]] {
    std::vector<const Array*> places;
    for (const ArrayPlan& o : plan.outputs)
      results.push_back(Array::empty(Extents(std::span<const std::int64_t>(o.shape)), o.dtype, plan.on_device->device()));
    for (const Array& a : results) places.push_back(&a);
    ProgramAccess::run_on_device(*state_, site, plan, slots.all(), slots.own(), places);
    if (options_.check_nan)
      ProgramAccess::check_nan(*this, ProgramAccess::launch_options(*this, site), plan, slots.all(), {bases.data(), inputs}, results,
                               ProgramAccess::inputs_of(site, plan));
    if (after) *after = {plan.attachment, plan.captured, {slots.all().begin(), slots.all().end()}};
    ProgramAccess::ran(*this, *state_, plan);
    return results;
  }
  for (std::size_t k = 0; k < outputs; ++k) {
    results.push_back(Array::empty(Extents(std::span<const std::int64_t>(plan.outputs[k].shape)), plan.outputs[k].dtype));
    bases[inputs + k] = static_cast<std::byte*>(results.back().mutable_data());
  }
  if (plan.interpret) interpret(plan, bases.data(), slots.all());
  else if (!run(plan, bases.data(), slots.own())) [[unlikely]] check_indices(recorded_of(plan), views_of(plan, bases.data()), slots.all());
  if (options_.check_nan) [[unlikely]]
    ProgramAccess::check_nan(*this, ProgramAccess::launch_options(*this, site), plan, slots.all(), {bases.data(), inputs}, results);
  if (after) [[unlikely]]
    *after = {plan.attachment, plan.captured, {slots.all().begin(), slots.all().end()}};
  ProgramAccess::ran(*this, *state_, plan);
  return results;
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

void ProgramAccess::check_nan(const Program& program, const LaunchOptions& options, const LaunchPlan& plan,
                              std::span<const std::uint64_t> slot_bits, std::span<std::byte* const> bases, std::span<const Array> results,
                              std::span<const Array* const> there) {
  bool over_inputs = false;  // were the results written over what they were computed from?
  for (std::size_t k = 0; k < results.size(); ++k)
    for (std::size_t i = 0; i < plan.inputs.size(); ++i)
      over_inputs |= overlap(static_cast<const std::byte*>(results[k].data()), plan.targets[k], bases[i], plan.inputs[i]);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const std::optional<std::string> found = not_finite(results[k].to(Device::cpu()));
    if (!found) continue;
    const std::string result = fmt::format("check_nan: the result {} {} has {}", plan.output_names[plan.target_of[k]],
                                           type_text(results[k].dtype(), results[k].shape()), *found);
    if (over_inputs) throw Error(result + "; which operator made it cannot be said, since the results overwrote the arguments");
    Graph graph = recorded_of(plan);  // up to this result alone
    graph.outputs = {graph.outputs[k]};
    graph.output_names = {""};
    graph = ir::prune(std::move(graph));
    for (std::size_t i = 0; i < graph.slots.size(); ++i) graph.slots[i].bits = slot_bits[i];
    std::optional<OnCpu> on_cpu;
    if (plan.on_device) on_cpu.emplace(there);
    const std::string first = first_not_finite({.graph = graph,
                                                .inputs = on_cpu ? on_cpu->plans() : plan.inputs,
                                                .bases = on_cpu ? on_cpu->bases() : bases,
                                                .target = program.state_->target,
                                                .options = options,
                                                .mode = program.state_->interpret ? Mode::reference : Mode::generic,
                                                .judge = Mode::reference});
    throw Error(first.empty() ? result + ", which rounding it to a half made" : fmt::format("{}; {}", result, first));
  }
}

Comparison Program::compare(std::span<const Argument> arguments) try {
  const CallSite site{arguments, {}, false, options_.threads ? options_.threads : threads::count()};
  const PlanPointer plan = ProgramAccess::find_or_build(*this, *state_, site);
  CallSlots slots(*this, site, *plan);
  Graph graph = ir::prune(recorded_of(*plan));
  for (std::size_t i = 0; i < graph.slots.size(); ++i) graph.slots[i].bits = slots.all()[i];
  const ProgramAccess::OnCpu on_cpu(ProgramAccess::inputs_of(site, *plan));  // those that are there as they are
  const Mode mode = state_->interpret ? Mode::reference : options_.mode;
  const Mode judge = mode == Mode::unfused || !can_compile() ? Mode::reference : Mode::unfused;
  return runtime::compare({.graph = graph,
                           .inputs = on_cpu.plans(),
                           .bases = on_cpu.bases(),
                           .target = state_->target,
                           .options = ProgramAccess::launch_options(*this, site),
                           .mode = mode,
                           .judge = judge,
                           .device = plan->on_device ? plan->on_device->device() : Device::cpu()});
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

// ------------------------------------------------------------------------------------------------ what can be seen

PlanReport Program::report(std::span<const ArgumentType> types) {
  PlanData plan;
  std::vector<Argument> arguments(types.size());
  const Array none;  // only its being an array counts
  for (std::size_t i = 0; i < types.size(); ++i) {
    plan.inputs.push_back(array_plan(types[i].dtype, types[i].shape, types[i].strides));
    plan.argument_of.push_back(static_cast<std::uint32_t>(i));
    arguments[i].array = &none;
  }
  if (!names_.empty() && types.size() != names_.size())
    throw Error(fmt::format("the function takes {} argument{}, and {} type{} given", names_.size(), names_.size() == 1 ? "" : "s",
                            types.size(), types.size() == 1 ? " was" : "s were"));
  PlanReport report;
  ProgramRecorder recorder = ProgramAccess::record(*this, arguments, plan.inputs);
  ProgramAccess::add_captured(std::move(recorder.captured), plan);
  report.recorded = std::move(recorder.graph);
  report.notes = std::move(recorder.notes);
  const CallSite site{arguments, {}, false, options_.threads ? options_.threads : threads::count()};
  ProgramAccess::fill_outputs(site, report.recorded, plan);
  if (state_->interpret) report.optimised = ir::prune(arithmetic(ir::prune(report.recorded), options_.relax));
  else make_launches(plan, report, state_->target, ProgramAccess::launch_options(*this, site));
  return report;
}

std::shared_ptr<const PlanReport> Program::last_report() const {
  const PlanPointer plan = state_->last_plan();
  return plan ? report_of(*plan, state_->target) : std::make_shared<const PlanReport>();
}

std::string Program::explain() const {
  const PlanPointer plan = state_->last_plan();
  if (!plan) return "no call yet\n";
  const std::shared_ptr<const PlanReport> held = report_of(*plan, state_->target);
  const PlanReport& report = *held;
  const Graph& graph = report.optimised;
  std::string notes;
  for (const std::string& note : report.notes) notes += fmt::format("note: {}\n", note);
  if (plan->on_device) return plan->on_device->explain(*plan, report) + notes;
  if (plan->interpret)
    return fmt::format("reference: {} nodes are interpreted one at a time; there are no kernels\n{}", graph.size(), notes);
  std::string out = fmt::format("{} kernel{}, {} read, {} written{}\n", report.kernels.size(), report.kernels.size() == 1 ? "" : "s",
                                bytes_text(plan->bytes_read), bytes_text(plan->bytes_written),
                                plan->workspace_bytes ? fmt::format(", {} of intermediates", bytes_text(plan->workspace_bytes)) : "");
  const int depth = options_.specialization.depth, hot = state_->hot_shapes.load(std::memory_order_relaxed);
  if (options_.mode == Mode::adaptive && depth > 0 && hot >= depth)
    out += fmt::format("{} shape{} kernels of their own, as many as Specialization::depth allows; all others use the generic ones\n", hot,
                       hot == 1 ? " has" : "s have");
  if (state_->sealed.load(std::memory_order_relaxed)) out += "nothing is compiled any more: sealed, or Options::compile is never\n";
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    const KernelReport& kernel = report.kernels[k];
    const compiler::Nest& nest = kernel.planned.nest;
    const compiler::NestNumbers& numbers = kernel.planned.numbers;
    static constexpr std::string_view kKinds[] = {"map", "reduction over rows", "reduction over lanes"};
    out += fmt::format("kernel {}: {}, loops", k, kKinds[static_cast<int>(nest.kind)]);
    for (std::uint32_t l = 0; l < nest.loops(); ++l)
      out += fmt::format("{} {}{}", l ? " x" : "", numbers.extents[l], nest.reduced_mask() >> l & 1 ? " (reduced)" : "");
    if (nest.sweeps > 1) out += fmt::format(", {} sweeps", nest.sweeps);
    out += fmt::format(", reads {}, writes {}", bytes_text(kernel.scheduled.numbers.bytes_read),
                       bytes_text(kernel.scheduled.numbers.bytes_written));
    if (!kernel.more.empty()) out += fmt::format(", {} pieces with one body", kernel.more.size() + 1);
    const auto launch = std::find_if(plan->launches.begin(), plan->launches.end(), [&](const Launch& l) { return l.of == k; });
    if (launch->threads > 1) out += fmt::format(", up to {} threads", launch->threads);
    static constexpr std::string_view kSpecialised[] = {"", ", its specialised kernel on trial", ", specialised",
                                                        ", generic: its specialised kernel was slower"};
    const auto first =
        std::find_if(plan->launches.begin(), plan->launches.end(), [&](const Launch& l) { return l.group == launch->group; });
    out += kSpecialised[static_cast<int>(first->specialised->state())];
    if (kernel.in_tiles) out += ", in tiles until it is compiled\n";
    else out += kernel.from_cache ? ", from the cache\n" : fmt::format(", compiled in {:.2f} ms\n", kernel.compile_ms);
    for (const NodeId id : report.partition.groups[kernel.group].roots) {
      std::string names;
      for (std::size_t o = 0; o < graph.outputs.size(); ++o)
        if (graph.outputs[o] == id) names += (names.empty() ? " as " : ", ") + graph.output_names[o];
      out += fmt::format("  stores %{} {} {}{}: {}\n", id, ir::info(graph[id].op).text, type_text(graph[id].dtype, graph.shape(id)), names,
                         compiler::text_of(report.partition.boundary[id]));
    }
  }
  return out + notes;
}

Stats Program::stats() const { return state_->stats(); }

// ------------------------------------------------------------------------------------------------ ahead of calls

void Program::warm_up(const CallSignature& signature) try {
  const SignatureCall call(signature);
  const CallSite site = call.site(options_.threads ? options_.threads : threads::count());
  const PlanPointer plan = ProgramAccess::find_or_build(*this, *state_, site);
  for (const Launch& launch : plan->launches)
    if (launch.kernel) launch.kernel->optimise_now();
  if (signature.hot && !plan->specialises.exchange(true)) ProgramAccess::specialise(*this, *state_, *plan, false);
} catch (const std::bad_alloc&) { std::rethrow_exception(out_of_memory()); }

std::vector<CallSignature> Program::signatures() const {
  std::vector<CallSignature> all;
  const std::lock_guard lock(state_->mutex);
  for (const PlanPointer& plan : state_->order) all.push_back(CallSignature::of(*plan));
  std::reverse(all.begin(), all.end());
  return all;
}

void Program::seal() {
  state_->sealed.store(true, std::memory_order_relaxed);
  std::vector<std::shared_ptr<const Kernel>> kernels;
  {
    const std::lock_guard lock(state_->mutex);
    for (const PlanPointer& plan : state_->order)
      for (const Launch& launch : plan->launches)
        if (launch.kernel) kernels.push_back(launch.kernel);
  }
  for (const std::shared_ptr<const Kernel>& kernel : kernels) kernel->optimise_now();
}

void Program::reset() {
  const std::lock_guard lock(state_->mutex);
  while (!state_->order.empty()) state_->evict();
  state_->fold();
  state_->structures.clear();
  state_->id.store(next_id.fetch_add(1, std::memory_order_relaxed),
                   std::memory_order_relaxed);  // threads remember plans of another program
  state_->last = 0;
  state_->hot_shapes = 0;
  state_->depth_said = false;
}

const std::vector<std::string>& Program::output_names(std::span<const Argument> arguments) {
  PlanData plan;
  ProgramAccess::fill_inputs(*this, arguments, plan);
  const CallSite site{arguments, {}, false, options_.threads ? options_.threads : threads::count()};
  std::vector<std::string> names;
  if (const PlanPointer known = state_->find(site, signature_of(site))) names = known->output_names;  // usual: right after a call
  else names = ProgramAccess::record(*this, arguments, plan.inputs).graph.output_names;
  const std::lock_guard lock(state_->mutex);
  for (const std::vector<std::string>& known : state_->names)
    if (known == names) return known;
  return state_->names.emplace_back(std::move(names));
}

std::string last_optimized_graph() {
  const PlanPointer plan = thread_state().last;
  if (!plan) return {};
  return ir::print(optimised_of(*plan));
}

}  // namespace onepass::runtime
