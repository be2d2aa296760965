// See device_plan.h.
#include "runtime/cuda/device_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "compiler/cuda/fuse.h"
#include "compiler/plan/verify_plan.h"
#include "compiler/record.h"
#include "onepass/error.h"
#include "runtime/cuda/array.h"
#include "runtime/profile.h"
#include "runtime/row.h"
#include "runtime/stored_values.h"
#include "runtime/workspace.h"

namespace onepass::runtime::cuda {

using compiler::Nest;
using compiler::NestNumbers;
using ir::NodeId;

// ---------------------------------------------------------------------------------------------- planning

DevicePlan::DevicePlan(const compiler::cuda::DeviceTarget& target, PlanData& plan, PlanReport& report, const LaunchOptions& options,
                       const DeviceAlignment& alignment) {
  std::vector<NodeId> places;
  compiler::PassOptions passes = options.passes();
  passes.steps = false;
  passes.is_brought = plan.is_brought();
  report.optimised = compiler::optimize(report.recorded, passes, places);
  plan.indexes = !places.empty();
  checks_ = checked_indices(report.optimised, places);
  StoredValues values(report.optimised, plan, options.array_bytes);
  compiler::FuseOptions fusing{.unfused = options.unfused, .places = places};
  if (!options.unfused) fusing.lists = compiler::find_lists(report.optimised, values.layouts());
  report.partition = compiler::cuda::fuse(report.optimised, fusing, values.layouts(), target);
  std::vector<Piece> pieces = add_kernels(target, plan, report, values, alignment);
  plan.workspace_bytes = place_intermediates(report.optimised, options, pieces, values);
  for (const Piece& piece : pieces) add_step(piece, values);
  plan.kernels = plan.groups = static_cast<std::int64_t>(kernels_.size());
  plan.in_place.assign(plan.inputs.size() * plan.outputs.size(), 0);
  if (steps_.size() == 1 && steps_[0].numbers.phases == 1) allow_in_place(plan, report.optimised, places, kernels_[0].planned);
}

std::vector<DevicePlan::Piece> DevicePlan::add_kernels(const compiler::cuda::DeviceTarget& target, PlanData& plan, const PlanReport& report,
                                                       const StoredValues& values, const DeviceAlignment& alignment) {
  std::vector<Piece> pieces;
  compiler::cuda::DeviceProgram program;
  std::map<std::string, std::uint32_t> known;  // kernels by key: subdomains with equal bodies share a kernel
  const std::size_t inputs = plan.inputs.size();
  reads_.assign(inputs, false);
  const auto is_aligned = [&](const compiler::Planned& planned, std::uint32_t buffer) {
    if (values.is_intermediate(planned.nest, planned.numbers, buffer)) return true;
    bool all = true;
    for (const std::uint32_t base : values.bases_of(planned.nest, planned.numbers, buffer)) {
      all = all && (base < inputs ? alignment.inputs[base] : alignment.outputs[base - inputs]);
      if (base < inputs) reads_[base] = true;
    }
    return all;
  };
  for (std::uint32_t g = 0; g < report.partition.groups.size(); ++g) {
    std::vector<compiler::Planned> nests = compiler::plan(report.optimised, report.partition, g, values.layouts());
    if (const std::string wrong = compiler::verify_plan(report.optimised, report.partition, g, values.layouts(), nests); !wrong.empty())
      throw PlanRefused(wrong);
    for (compiler::Planned& planned : nests) {
      const Nest& nest = planned.nest;
      if (nest.is_routine())
        throw UnsupportedError(fmt::format(
            "{}: this version cannot run the operator on a GPU. Run the function on the CPU, or move the operator out of the function.",
            ir::info(nest.routine).text));
      std::vector<bool> aligned;
      for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) aligned.push_back(is_aligned(planned, b));
      compiler::cuda::DeviceScheduled scheduled = compiler::cuda::schedule(nest, planned.numbers, target, aligned);
      const compiler::ScheduleNumbers moved = compiler::schedule(nest, planned.numbers, compiler::Target::host()).numbers;
      plan.bytes_read += moved.bytes_read;
      plan.bytes_written += moved.bytes_written;
      std::string key = nest.key() + scheduled.schedule.key();
      const auto [it, is_new] = known.try_emplace(key, static_cast<std::uint32_t>(kernels_.size()));
      pieces.push_back({planned.numbers, it->second, scheduled.numbers});
      if (is_new) {
        compiler::cuda::DeviceKernel kernel = program.add(fmt::format("kernel_{}", kernels_.size()), nest, scheduled.schedule);
        kernels_.push_back({g, std::move(planned), std::move(scheduled), std::move(kernel), std::move(key), 0, 0, 0, {}});
      }
      KernelInfo& info = kernels_[it->second];
      if (!is_new) info.more.push_back(std::move(planned.numbers));
      ++info.pieces;
      info.bytes_read += moved.bytes_read, info.bytes_written += moved.bytes_written;
    }
  }
  text_ = program.text();
  return pieces;
}

std::int64_t DevicePlan::place_intermediates(const ir::Graph& graph, const LaunchOptions& options, std::span<const Piece> pieces,
                                             StoredValues& values) const {
  std::unordered_map<NodeId, std::size_t> intermediate_of;
  std::vector<Intermediate> intermediates;
  for (std::uint32_t p = 0; p < pieces.size(); ++p) {
    const Nest& nest = kernels_[pieces[p].kernel].planned.nest;
    for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
      const NodeId id = pieces[p].numbers.buffers[b];
      if (!values.is_intermediate(nest, pieces[p].numbers, b)) continue;
      if (nest.buffers[b].written && intermediate_of.try_emplace(id, intermediates.size()).second)
        intermediates.push_back({checked_bytes(graph, id, nest.buffers[b].dtype, options.array_bytes), p, p});
      if (const auto it = intermediate_of.find(id); it != intermediate_of.end()) intermediates[it->second].last_read = p;
    }
  }
  // The subdomains of a fusion group may store parts of one value in any order.
  const auto never = [](std::size_t, std::size_t) { return false; };
  const WorkspacePlan workspace = plan_workspace(intermediates, {}, never);
  for (const auto& [id, k] : intermediate_of) values.place(id, values.workspace(), workspace.places[k].offset);
  return workspace.bytes;
}

void DevicePlan::add_step(const Piece& piece, const StoredValues& values) {
  const KernelInfo& info = kernels_[piece.kernel];
  const Nest& nest = info.planned.nest;
  const compiler::WordLayout layout(nest);
  KernelWords filled;
  filled.words = compiler::cuda::make_words(nest, piece.numbers, piece.device);
  values.fill(nest, piece.numbers, StoredValues::Table::Word, filled);
  filled.words.resize(std::max<std::size_t>(filled.words.size(), info.kernel.words));
  steps_.push_back({.kernel = piece.kernel,
                    .numbers = piece.device,
                    .first_word = static_cast<std::uint32_t>(words_.size()),
                    .phase_word = layout.phase,
                    .shared_word = layout.shared,
                    .pointers = std::move(filled.pointers),
                    .slots = std::move(filled.slots)});
  words_.insert(words_.end(), filled.words.begin(), filled.words.end());
  shared_bytes_ = std::max(shared_bytes_, piece.device.partial_bytes);
  launches_ += piece.device.phases;
}

namespace {
// Returns the functions of a program for the steps' kernels, by name.
std::vector<void*> functions_of(const Gpu::Module& module, const std::vector<compiler::cuda::DeviceKernel>& kernels) {
  std::map<std::string, void*> known;
  std::vector<void*> out;
  for (const compiler::cuda::DeviceKernel& kernel : kernels) {
    const auto [it, is_new] = known.try_emplace(kernel.name, nullptr);
    if (is_new) it->second = module.function(kernel);
    out.push_back(it->second);
  }
  return out;
}
}  // namespace

int DevicePlan::attach(Gpu& gpu, bool may_compile) {
  gpu_ = &gpu;
  auto code = std::make_unique<Code>();
  bool compiled = false;
  if (!steps_.empty()) {
    for (const Step& step : steps_) code->kernels.push_back(kernels_[step.kernel].kernel);
    Gpu::Loaded loaded = gpu_->load(text_, may_compile);
    if (!loaded.module) throw KernelMissing();
    code->module = loaded.module;
    code->functions = functions_of(*code->module, code->kernels);
    compiled = loaded.compiled;
    loaded_ = std::move(loaded);
  }
  if (!checks_.empty()) report_ = std::make_unique<Gpu::IndexReport>(gpu, checks_);
  times_ = std::vector<RunTimes>(kernels_.size());
  generic_ = std::move(code);
  return compiled ? static_cast<int>(kernels_.size()) : 0;
}

int DevicePlan::specialise(const PlanData& plan, bool trial, bool may_compile) const {
  const std::lock_guard lock(specialise_mutex_);
  if (own_ || steps_.empty()) return 0;
  compiler::cuda::DeviceProgram program;
  std::map<std::string, compiler::cuda::DeviceKernel> known;
  auto code = std::make_unique<Code>();
  for (const Step& step : steps_) {
    const KernelInfo& info = kernels_[step.kernel];
    std::vector<bool> slot_known;
    for (const KernelWords::SlotWord& s : step.slots) slot_known.push_back(!plan.numbers.fills(s.slot));
    const std::span<const std::int64_t> words(words_.data() + step.first_word, compiler::WordLayout(info.planned.nest).total);
    const compiler::KnownWords baked = compiler::known_words(info.planned.nest, words, slot_known);
    const auto [it, is_new] = known.try_emplace(info.key + baked.key());
    if (is_new) it->second = program.add(fmt::format("kernel_{}", known.size() - 1), info.planned.nest, info.scheduled.schedule, &baked);
    code->kernels.push_back(it->second);
  }
  Gpu::Loaded loaded = gpu_->load(program.text(), may_compile);
  if (!loaded.module) throw KernelMissing();
  code->module = std::move(loaded.module);
  code->functions = functions_of(*code->module, code->kernels);
  own_ = std::move(code);
  choice_.publish(nullptr, trial);
  return loaded.compiled ? static_cast<int>(known.size()) : 0;
}

// ---------------------------------------------------------------------------------------------- running

// Launches all steps. A launch copies its kernel parameters, so the next phase may overwrite them at once.
void DevicePlan::launch_once(Gpu::Turn& turn, const Code& code, Words words, Timed* timed) const {
  turn.uses(code.module);
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    const Step& step = steps_[k];
    const Words mine = words.subspan(step.first_word, code.kernels[k].words);
    if (timed) turn.begin(*timed->emplace_back(std::make_unique<Gpu::Interval>(*gpu_)));
    for (std::int64_t phase = 0; phase < step.numbers.phases; ++phase) {
      if (phase > 0) mine[step.phase_word] = phase;
      turn.launch({code.functions[k], &code.kernels[k], &step.numbers, mine});
    }
    if (timed) turn.end(*timed->back());
    if (step.numbers.phases > 1) mine[step.phase_word] = 0;
  }
}

// Launches several kernels as a graph, from the second call with equal kernel parameters on.
void DevicePlan::launch_again(Gpu::Turn& turn, const Code& code, Words words) const {
  const auto known = std::ranges::find_if(replays_, [&](const Replay& r) { return r.code == &code && std::ranges::equal(r.words, words); });
  if (known == replays_.end()) {
    if (replays_.size() < kReplays) replays_.emplace_back();
    std::rotate(replays_.begin(), replays_.end() - 1, replays_.end());
    Replay& replay = replays_.front();
    replay.graph.reset();
    replay.code = nullptr;
    replay.words.assign(words.begin(), words.end());
    replay.code = &code;
    return launch_once(turn, code, words);
  }
  std::rotate(replays_.begin(), known, known + 1);
  Replay& replay = replays_.front();
  if (!replay.graph && can_be_graph(code)) replay.graph = turn.capture([&] { launch_once(turn, code, words); });
  turn.uses(code.module);
  if (replay.graph) turn.launch(*replay.graph, static_cast<std::size_t>(launches_));
  else launch_once(turn, code, words);
}

// True if the kernels can form a graph. Kernel parameters that exceed the limit of a launch are uploaded before it at each call, which a
// graph cannot do.
bool DevicePlan::can_be_graph(const Code& code) const { return std::ranges::none_of(code.kernels, &compiler::cuda::DeviceKernel::far); }

void DevicePlan::launch_now(Gpu::Turn& turn, const Code& code, Words words) const {
  if (profile::on()) [[unlikely]]
    launch_timed(turn, code, words);
  else launch_once(turn, code, words);
}

// Measures each step with events while profiling is on, without waiting for them.
void DevicePlan::launch_timed(Gpu::Turn& turn, const Code& code, Words words) const {
  bool has_room = false;
  {
    const std::lock_guard lock(timed_mutex_);
    std::erase_if(timed_, [&](const Timed& timed) {
      if (!timed.back()->is_over()) return false;
      add_times(timed);
      return true;
    });
    has_room = timed_.size() < kTimedAhead;
  }
  if (!has_room) return launch_once(turn, code, words);
  Timed timed;
  launch_once(turn, code, words, &timed);
  const std::lock_guard lock(timed_mutex_);
  timed_.push_back(std::move(timed));
}

// Adds the times of a call, unless the driver lacks some of them.
void DevicePlan::add_times(const Timed& timed) const {
  std::vector<std::int64_t> of_kernel(kernels_.size(), 0);
  for (std::size_t s = 0; s < timed.size(); ++s) {
    const std::optional<std::int64_t> took = timed[s]->nanoseconds();
    if (!took) return;
    of_kernel[steps_[s].kernel] += *took;
  }
  for (std::size_t k = 0; k < kernels_.size(); ++k) times_[k].add(of_kernel[k]);
}

std::span<const RunTimes> DevicePlan::times() const {
  std::vector<Timed> begun;
  {
    const std::lock_guard lock(timed_mutex_);
    begun.swap(timed_);
  }
  for (const Timed& timed : begun) {
    timed.back()->wait();
    add_times(timed);
  }
  return times_;
}

// Alternates between the generic and the specialized code, measured with events. The times of earlier trials are collected when the device
// has finished them, without waiting.
void DevicePlan::launch_trial(Gpu::Turn& turn, Words words) const {
  std::erase_if(trials_, [&](const Trial& trial) {
    if (!trial.took->is_over()) return false;
    if (const std::optional<std::int64_t> took = trial.took->nanoseconds()) choice_.tried(trial.of_own, *took);
    return true;
  });
  if (trials_.size() == kTrialsAhead) return launch_now(turn, *generic_, words);
  Trial trial{choice_.tries_kernel(), std::make_unique<Gpu::Interval>(*gpu_)};
  turn.begin(*trial.took);
  launch_now(turn, trial.of_own ? *own_ : *generic_, words);
  turn.end(*trial.took);
  trials_.push_back(std::move(trial));
}

void DevicePlan::launch(Gpu::Turn& turn, Words words) const {
  const Specialised::State state = choice_.state();
  const Code& code = state == Specialised::State::Used ? *own_ : *generic_;
  if (turn.is_captured()) return launch_once(turn, code, words);
  if (state == Specialised::State::Trial) return launch_trial(turn, words);
  trials_.clear();
  if (launches_ > 1 && !profile::on()) launch_again(turn, code, words);
  else launch_now(turn, code, words);
}

namespace {

std::int64_t address_of(const Array& array) { return reinterpret_cast<std::int64_t>(array.data()); }

bool overlap(std::int64_t a, const ArrayPlan& x, std::int64_t b, const ArrayPlan& y) {
  return x.low != x.high && y.low != y.high && a + x.low < b + y.high && b + y.low < a + x.high;
}

Array wrap(std::int64_t address, const ArrayPlan& plan, Device device) {
  return Array::wrap_pointer(reinterpret_cast<void*>(address), plan.dtype, Extents(std::span<const std::int64_t>(plan.shape)),  // NOLINT
                             Extents(std::span<const std::int64_t>(plan.strides)), false, device);
}

}  // namespace

// One call.
class DevicePlan::Run {
 public:
  Run(const DevicePlan& of, const PlanData& plan, const DeviceCall& call)
      : of_(of),
        plan_(plan),
        call_(call),
        device_(of.device()),
        inputs_(plan.inputs.size()),
        outputs_(plan.outputs.size()),
        bases_(inputs_ + outputs_ + kMoreBases),
        turn_(std::in_place, *of.gpu_) {
    std::ranges::fill(bases_.span(), 0);
  }

  DeviceCopies operator()() {
    turn_->throw_bad_index();
    if (call_.waits && turn_->is_captured()) turn_->fail_waiting();
    bring_inputs();
    place_outputs();
    take_memory();
    launch();
    for (const std::size_t k : temporaries_)
      if (plan_.outputs[k].low != plan_.outputs[k].high) deliver(k);
    if (call_.waits && !waited_ && of_.report_) turn_->finish(), waited_ = true;
    if (waited_ && of_.report_) copies_.bad_index = turn_->bad_index(*of_.report_);
    if (waited_ && copies_.bad_index.empty()) turn_->throw_bad_index();
    return std::move(copies_);
  }

 private:
  const DevicePlan& of_;
  const PlanData& plan_;
  const DeviceCall& call_;
  const Device device_;
  const std::size_t inputs_, outputs_;
  DeviceCopies copies_;
  std::vector<Gpu::Block> blocks_;  // returned to the pool at the end; later users wait for this call
  Gpu::Block workspace_, parts_;    // also returned at the end
  Row<std::int64_t, 48> bases_;
  std::vector<std::size_t> temporaries_;  // outputs that are computed outside their destinations
  std::int64_t shared_ = 0;               // address of partial results
  bool waited_ = false;                   // the kernels are finished
  std::optional<Gpu::Turn> turn_;

  // Allocates memory for an array with this layout; returns the address of element (0, …, 0), aligned to 16 bytes.
  std::int64_t allocate(const ArrayPlan& layout) {
    const std::int64_t before = (-layout.low + 255) & ~std::int64_t{255};
    blocks_.push_back(turn_->allocate(static_cast<std::size_t>(before + layout.high)));
    return blocks_.back().address() + before;
  }

  void follow(const Array& array, bool only_reads) {
    turn_->follow(storage_of(array)->last, only_reads);
    turn_->keep(array, storage_of(array)->block);
  }

  void bring_inputs() {
    for (std::size_t i = 0; i < inputs_; ++i) {
      const Array& input = *call_.inputs[i];
      const ArrayPlan& layout = plan_.inputs[i];
      if (input.device() == device_) {
        if (layout.high != layout.low) follow(input, true);
        bases_[i] = address_of(input);
      } else if (of_.reads_[i] && layout.high != layout.low) {
        bases_[i] = allocate(layout);
        const auto bytes = static_cast<std::size_t>(layout.high - layout.low);
        turn_->upload(bases_[i] + layout.low, static_cast<const std::byte*>(input.data()) + layout.low, bytes);
        copies_.uploaded += static_cast<std::int64_t>(bytes);
      }
    }
  }

  void place_outputs() {
    for (std::size_t k = 0; k < outputs_; ++k) {
      const Array& output = *call_.outputs[k];
      const ArrayPlan& layout = plan_.outputs[k];
      if (turn_->is_captured() && output.device() != device_) turn_->fail_waiting();
      if (output.device() == device_ && layout.high != layout.low) follow(output, false);
      std::int64_t& base = bases_[inputs_ + k];
      base = address_of(output);
      bool elsewhere = plan_.redirected[k] || output.device() != device_;
      for (std::size_t i = 0; i < inputs_ && !elsewhere; ++i)
        elsewhere = overlap(base, plan_.targets[k], bases_[i], plan_.inputs[i]) && !(plan_.in_place[k * inputs_ + i] && bases_[i] == base);
      if (!elsewhere) continue;
      temporaries_.push_back(k);
      base = allocate(layout);
      if (output.device() == device_) copies_.temporaries += layout.high - layout.low;
    }
  }

  void take_memory() {
    const auto take = [&](Gpu::Block& block, std::int64_t bytes) {
      block = turn_->allocate(static_cast<std::size_t>(bytes));
      return block.address();
    };
    if (plan_.workspace_bytes > 0) bases_[inputs_ + outputs_] = take(workspace_, plan_.workspace_bytes);
    if (of_.shared_bytes_ > 0) shared_ = take(parts_, of_.shared_bytes_);
  }

  void launch() {
    if (of_.steps_.empty()) return;
    std::optional<Gpu::Turn::Indexing> indexing;
    if (of_.report_) bases_[inputs_ + outputs_ + 1] = indexing.emplace(*turn_, *of_.report_).address();
    Row<std::int64_t, 512> words(of_.words_.size());
    std::ranges::copy(of_.words_, words.data());
    for (const Step& step : of_.steps_) {
      std::int64_t* const mine = words.data() + step.first_word;
      for (const KernelWords::Pointer& p : step.pointers) mine[p.word] = bases_[p.base] + p.offset;
      if (call_.slots)
        for (const KernelWords::SlotWord& s : step.slots) mine[s.word] = s.of(call_.slots[s.slot]);
      if (step.numbers.partial_bytes > 0) mine[step.shared_word] = shared_;
    }
    of_.launch(*turn_, words.span());
  }

  void deliver(std::size_t k) {
    const ArrayPlan &from = plan_.outputs[k], &to = plan_.targets[k];
    const Array& output = *call_.outputs[k];
    const std::int64_t base = bases_[inputs_ + k], bytes = from.high - from.low;
    if (output.device() == device_) {
      turn_.reset();  // the copy takes its own turn
      copy_elements(wrap(base, from, device_), output);
      turn_.emplace(*of_.gpu_);
      return;
    }
    copies_.downloaded += bytes;
    waited_ = true;
    auto* const target = static_cast<std::byte*>(output.mutable_data());
    if (from.strides == to.strides) return turn_->download(target + from.low, base + from.low, static_cast<std::size_t>(bytes));
    memory::Buffer dense(static_cast<std::size_t>(bytes));
    turn_->download(dense.data(), base + from.low, static_cast<std::size_t>(bytes));
    copy_array(to, target, from, static_cast<const std::byte*>(dense.data()) - from.low);
  }
};

DeviceCopies DevicePlan::run(const PlanData& plan, const DeviceCall& call) const { return Run(*this, plan, call)(); }

// ---------------------------------------------------------------------------------------------- inspection

std::string DevicePlan::explain(const PlanData& plan, const PlanReport& report) const {
  const ir::Graph& graph = report.optimised;
  std::string out = fmt::format("{} kernel{} on cuda:{} ({}), {} bytes read, {} written{}\n", kernels_.size(),
                                kernels_.size() == 1 ? "" : "s", gpu_->ordinal(), gpu_->name(), plan.bytes_read, plan.bytes_written,
                                plan.workspace_bytes ? fmt::format(", {} bytes of intermediates", plan.workspace_bytes) : "");
  switch (choice_.state()) {
    case Specialised::State::None: break;
    case Specialised::State::Trial: out += "kernels specialized for these lengths are on trial\n"; break;
    case Specialised::State::Used: out += "specialized for these lengths\n"; break;
    case Specialised::State::Dropped: out += "kernels specialized for these lengths were slower and were dropped\n"; break;
  }
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const KernelInfo& info = kernels_[k];
    out += fmt::format("kernel {}: {}", k, print(info.scheduled));
    if (info.pieces > 1) out += fmt::format("  {} subdomains with one loop body\n", info.pieces);
    for (const NodeId id : report.partition.groups[info.group].roots) {
      std::string names;
      for (std::size_t o = 0; o < graph.outputs.size(); ++o)
        if (graph.outputs[o] == id) names += (names.empty() ? " as " : ", ") + graph.output_names[o];
      out += fmt::format("  stores %{} {} {}{}: {}\n", id, ir::info(graph[id].op).text,
                         compiler::type_text(graph[id].dtype, graph.shape(id)), names, compiler::text_of(report.partition.boundary[id]));
    }
  }
  return out;
}

}  // namespace onepass::runtime::cuda
