// See launch.h.
#include "runtime/launch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "compiler/halves.h"
#include "compiler/record.h"
#include "compiler/relax.h"
#include "compiler/reroll.h"
#include "compiler/simplify.h"
#include "compiler/unroll.h"
#include "ir/reference.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/stored_values.h"
#include "runtime/threads.h"
#include "runtime/workspace.h"

namespace onepass::runtime {

using compiler::NestKind;
using ir::Graph;
using ir::NodeId;
using ir::Op;

namespace {

constexpr std::int64_t round_up(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

void check(const Graph& graph, const char* pass) {
#ifndef NDEBUG
  ir::verify(graph, pass);
#else
  static_cast<void>(graph), static_cast<void>(pass);
#endif
}

}  // namespace

Graph arithmetic(Graph graph, const Relax& relaxations) {
  if (relaxations != Relax{}) graph = compiler::relax(graph, relaxations);
  check(graph, "relax");
  graph = compiler::shorten_halves(std::move(graph));
  check(graph, "shorten_halves");
  return graph;
}

// Passes keep the places like outputs.
Graph optimise(const Graph& recorded, const LaunchOptions& options, std::vector<NodeId>& places) {
  Graph graph = ir::prune(recorded);
  places = ir::places_of(graph);
  const std::size_t results = graph.outputs.size();
  graph.outputs.insert(graph.outputs.end(), places.begin(), places.end());
  graph.output_names.resize(graph.output_names.empty() ? 0 : graph.outputs.size());
  check(graph, "prune");
  graph = arithmetic(std::move(graph), options.relax);
  graph = compiler::simplify(graph);
  check(graph, "simplify");
  graph = ir::prune(std::move(graph));
  if (!options.unfused) {  // which runs one kernel for each operator that the program has
    if (const std::optional<Graph> rerolled = compiler::reroll(graph)) {
      check(*rerolled, "reroll");
      graph = ir::prune(compiler::simplify(*rerolled));
      check(graph, "simplify after reroll");
    }
    if (std::optional<Graph> unrolled = compiler::unroll(graph)) {
      graph = ir::prune(*std::move(unrolled));
      check(graph, "unroll");
    }
  }
  places.assign(graph.outputs.begin() + static_cast<std::ptrdiff_t>(results), graph.outputs.end());
  graph.outputs.resize(results);
  graph.output_names.resize(std::min(graph.output_names.size(), results));
  graph = compiler::copy_results(std::move(graph));
  check(graph, "copy of results");
  return graph;
}

std::int64_t checked_bytes(const Graph& graph, NodeId id, DType dtype, std::int64_t limit) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool overflow = false;
  for (const std::int64_t e : graph.shape(id)) {
    if (e == 0) return 0;
    overflow |= __builtin_mul_overflow(bytes, e, &bytes);
  }
  const bool by_memory = limit <= 0;
  if (by_memory) limit = static_cast<std::int64_t>(memory_limit() / 2);
  if (overflow || bytes > limit)
    throw ValueError(fmt::format("{}: the call would store {}, more than {} bytes, the limit `array_bytes` of one array{}",
                                 ir::info(graph[id].op).text, compiler::type_text(dtype, graph.shape(id)), limit,
                                 by_memory ? " (half the memory)" : ""));
  return bytes;
}

namespace {

// What a map kernel does with each of its arrays, as far as two of them could be one memory. A kernel stores in the order of its body, and
// computes a value, loads included, when the first store needs it; later ones use what is in the register.
class Aliasing {
 public:
  // `alone`: it is all that its group runs.
  Aliasing(const compiler::Planned& planned, bool alone) : nest_(planned.nest), numbers_(planned.numbers), touch_(nest_.buffers.size()) {
    if (nest_.kind != NestKind::Map || !alone) return;
    std::vector<bool> seen(nest_.body.size(), false);
    std::vector<std::uint32_t> open;
    for (std::uint32_t store = 0; store < nest_.body.size(); ++store) {
      if (nest_.body[store].kind != compiler::Statement::Kind::Store) continue;
      open.push_back(store);
      while (!open.empty()) {
        const std::uint32_t id = open.back();
        open.pop_back();
        if (seen[id]) continue;
        seen[id] = true;
        const compiler::Statement& s = nest_.body[id];
        for (const std::uint32_t o : {s.a, s.b, s.c, s.guard})
          if (o != compiler::Statement::kNone) open.push_back(o);
        if (s.kind != compiler::Statement::Kind::Load && s.kind != compiler::Statement::Kind::Store) continue;
        Touch& touch = touch_[nest_.accesses[s.at].buffer];
        touch = {touch.times + 1, s.at, store};
      }
    }
  }
  // Where an array stands among the kernel's buffers: as one of its own, or as a member of a list.
  struct Held {
    std::uint32_t buffer;
    std::size_t member;
    bool alone;  // nowhere else
  };
  // May what is stored overwrite what is loaded? If one statement each touches them, the same element in the same iteration, and the load
  // has run when the store does.
  bool may_overwrite(const Held& stored, const Held& loaded) const {
    const Touch &to = touch_[stored.buffer], &from = touch_[loaded.buffer];
    if (to.times != 1 || from.times != 1 || from.store > to.store || !stored.alone || !loaded.alone || stored.member != loaded.member)
      return false;
    if (size_of(nest_.buffers[stored.buffer].dtype) != size_of(nest_.buffers[loaded.buffer].dtype)) return false;
    const compiler::Access &a = nest_.accesses[to.access], &b = nest_.accesses[from.access];
    return same(a.linear, b.linear) && (a.table == compiler::Access::kNone) == (b.table == compiler::Access::kNone) &&
           (a.table == compiler::Access::kNone || same(a.table, b.table));
  }
  // An array, as that type: a half may be held as such and, unrounded, as f32.
  std::optional<Held> held(std::pair<NodeId, DType> array, bool written) const {
    std::optional<Held> found;
    for (std::uint32_t b = 0; b < nest_.buffers.size(); ++b) {
      if (nest_.buffers[b].dtype != array.second || nest_.buffers[b].written != written) continue;
      const std::vector<NodeId>& members = numbers_.members[b];
      const auto member = std::ranges::find(members, array.first);
      if (members.empty() ? numbers_.buffers[b] != array.first : member == members.end()) continue;
      if (found) found->alone = false;
      else found = Held{b, static_cast<std::size_t>(member - members.begin()), std::ranges::count(members, array.first) <= 1};
    }
    return found;
  }

 private:
  struct Touch {
    int times = 0;                        // statements that load or store
    std::uint32_t access = 0, store = 0;  // of the last of them; the store that needs it first
  };
  const compiler::Nest& nest_;
  const compiler::NestNumbers& numbers_;
  std::vector<Touch> touch_;  // of each buffer

  bool same(std::uint32_t linear, std::uint32_t other) const {
    return numbers_.offsets[linear] == numbers_.offsets[other] && numbers_.coefficients[linear] == numbers_.coefficients[other];
  }
};

constinit std::atomic<void (*)(compiler::Nest&)> nest_hook{nullptr};

template <class F> void each_piece(const KernelReport& kernel, F&& f) {
  f(kernel.planned.numbers, kernel.scheduled.numbers);
  for (const KernelReport::Piece& piece : kernel.more) f(piece.numbers, piece.scheduled);
}

// The kernels of a group: pieces with equal keys are one.
void add_kernels(PlanReport& report, std::uint32_t group, std::vector<compiler::Planned> pieces, const compiler::Target& target,
                 compiler::ScheduleOptions options, const std::function<std::vector<bool>(const compiler::Planned&)>& in_place) {
  std::vector<compiler::Scheduled> scheduled;
  if (auto* const hook = nest_hook.load(std::memory_order_relaxed))
    for (compiler::Planned& p : pieces) hook(p.nest);
  const auto schedule_all = [&] {
    std::int64_t bytes = 0;
    scheduled.clear();
    for (const compiler::Planned& p : pieces) {
      options.in_place = in_place(p);
      scheduled.push_back(compiler::schedule(p.nest, p.numbers, target, options));
      bytes += scheduled.back().numbers.bytes_read + scheduled.back().numbers.bytes_written;
    }
    return bytes;
  };
  if (const std::int64_t bytes = schedule_all(); pieces.size() > 1 && bytes > target.llc_bytes) {
    options.bytes_beside = bytes;
    schedule_all();
  }
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string key = kernel_key(pieces[i].nest, scheduled[i].schedule, target);
    const auto it = known.find(key);
    if (it == known.end()) {
      if (pieces.size() > 1) known.emplace(key, report.kernels.size());
      KernelReport& kernel = report.kernels.emplace_back();
      kernel.group = group;
      kernel.planned = std::move(pieces[i]);
      kernel.scheduled = std::move(scheduled[i]);
      kernel.key = std::move(key);
      continue;
    }
    KernelReport& kernel = report.kernels[it->second];
    kernel.scheduled.numbers.bytes_read += scheduled[i].numbers.bytes_read;
    kernel.scheduled.numbers.bytes_written += scheduled[i].numbers.bytes_written;
    kernel.more.push_back({std::move(pieces[i].numbers), scheduled[i].numbers});
  }
}

}  // namespace

void set_nest_hook(void (*hook)(compiler::Nest& nest)) noexcept { nest_hook = hook; }

ArrayPlan array_plan(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  ArrayPlan a;
  a.dtype = dtype;
  a.shape.assign(shape.begin(), shape.end());
  a.strides.assign(strides.begin(), strides.end());
  if (strides.size() != shape.size()) {
    a.strides.assign(shape.size(), 1);
    for (std::size_t i = shape.size(), stride = 1; i-- > 0; stride *= static_cast<std::size_t>(shape[i]))
      a.strides[i] = static_cast<std::int64_t>(stride);
  }
  if (ir::element_count(shape) == 0) return a;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  a.high = size;
  for (std::size_t i = 0; i < a.shape.size(); ++i) (a.strides[i] < 0 ? a.low : a.high) += (a.shape[i] - 1) * a.strides[i] * size;
  return a;
}

void check_interpreted(const Graph& graph, const LaunchOptions& options) {
  const std::vector<bool> unspread = ir::unspread(graph);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op != Op::Input && !unspread[id]) checked_bytes(graph, id, graph[id].dtype, options.array_bytes);
}

namespace {

// Would the passes have made the same?
void check_taken_over(const PlanReport& report, const LaunchOptions& options) {
#ifndef NDEBUG
  std::vector<NodeId> places;
  const Graph graph = optimise(report.recorded, options, places);
  const std::string made = ir::print(graph) + print(graph, compiler::fuse(graph, {.unfused = options.unfused, .places = places}));
  const std::string taken = ir::print(report.optimised) + print(report.optimised, report.partition);
  if (made != taken)
    throw InternalError(
        fmt::format("launch: a structure with other lengths is not what the passes make of them:\n{}\nbut\n{}", taken, made));
#else
  static_cast<void>(report), static_cast<void>(options);
#endif
}

// The pieces of a group run together, each thread in its share of the scratch: a share is what the piece that needs most of it needs.
void share_scratch(PlanData& plan) {
  for (std::size_t first = 0, end = 0; first < plan.launches.size(); first = end) {
    std::int64_t scratch = 0, shared = 0;
    for (end = first; end < plan.launches.size() && plan.launches[end].group == plan.launches[first].group; ++end) {
      scratch = std::max(scratch, plan.launches[end].scratch_bytes);
      shared = std::max(shared, plan.launches[end].shared_bytes);
    }
    for (std::size_t k = first; k < end; ++k) plan.launches[k].scratch_bytes = scratch;
    plan.scratch_bytes = std::max(plan.scratch_bytes, scratch * plan.launches[first].threads + shared);
  }
}

}  // namespace

void make_launches(PlanData& plan, PlanReport& report, const compiler::Target& target, const LaunchOptions& options, bool analysed) {
  std::vector<NodeId> places;  // none where it is analysed: a structure has none
  if (!analysed) report.optimised = optimise(report.recorded, options, places);
  const Graph& graph = report.optimised;
  plan.indexes = !places.empty();
  StoredValues values(graph, plan, options.array_bytes);
  if (!analysed) {
    compiler::FuseOptions fuse_options{.unfused = options.unfused, .places = places};
    if (!options.unfused) fuse_options.lists = compiler::find_lists(graph, values.layouts());
    report.partition = compiler::fuse(graph, fuse_options);
  } else {
    check_taken_over(report, options);
  }
  const auto groups = static_cast<std::uint32_t>(report.partition.groups.size());

  for (std::uint32_t g = 0; g < groups; ++g) {
    // by buffer: what is written over an array that the group reads
    const auto in_place = [&](const compiler::Planned& piece) {
      std::vector<bool> out;
      if (!options.in_place.empty())
        for (std::size_t b = 0; b < piece.numbers.buffers.size(); ++b) {
          const auto is_over = [&](NodeId id, std::int32_t copy) {
            const std::span<const std::uint32_t> result = values.outputs_of(id);
            return !result.empty() && options.in_place[result[static_cast<std::size_t>(copy)]];
          };
          const std::vector<NodeId>& members = piece.numbers.members[b];
          bool over = members.empty() && is_over(piece.numbers.buffers[b], piece.numbers.outputs[b]);
          for (const NodeId member : members) over = over || is_over(member, 0);
          out.push_back(piece.nest.buffers[b].written && over);
        }
      return out;
    };
    add_kernels(report, g, compiler::plan(graph, report.partition, g, values.layouts()), target,
                {.threads = options.threads, .aligned_stores = options.aligned_stores}, in_place);
  }
  plan.kernels = static_cast<std::int64_t>(report.kernels.size());

  // ---- intermediates
  std::vector<std::uint32_t> steps;  // of each kernel: those of one group run together
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k)
    steps.push_back(k == 0 ? 0 : steps.back() + (report.kernels[k].group != report.kernels[k - 1].group));
  const auto step_of = [&](std::uint32_t k) { return steps[k]; };
  std::unordered_map<NodeId, std::uint32_t> last;
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k)
    each_piece(report.kernels[k], [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers&) {
      for (const NodeId id : numbers.buffers) last[id] = step_of(k);
    });
  std::vector<Intermediate> intermediates;
  std::vector<std::pair<NodeId, DType>> held;  // by intermediates, then by results
  std::unordered_map<NodeId, std::size_t> intermediate_of;
  std::vector<Lender> lenders(plan.outputs.size());
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k) {
    const compiler::Nest& nest = report.kernels[k].planned.nest;
    each_piece(report.kernels[k], [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers&) {
      for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
        const NodeId id = numbers.buffers[b];
        if (!nest.buffers[b].written || !numbers.members[b].empty()) continue;
        if (!values.is_intermediate(nest, numbers, b)) {
          const std::uint32_t output = values.outputs_of(id)[static_cast<std::size_t>(numbers.outputs[b])];
          const ArrayPlan& o = plan.outputs[output];
          if (lenders[output].bytes == 0 && o.low == 0 && o.high == o.elements() * static_cast<std::int64_t>(size_of(o.dtype)))
            lenders[output] = {o.high, step_of(k)};
        } else if (intermediate_of.try_emplace(id, intermediates.size()).second) {
          intermediates.push_back({checked_bytes(graph, id, nest.buffers[b].dtype, options.array_bytes), step_of(k), last[id]});
          held.emplace_back(id, nest.buffers[b].dtype);
        }
      }
    });
  }
  for (const NodeId id : graph.outputs) held.emplace_back(id, graph[id].dtype);
  std::vector<Aliasing> aliasing;  // of each step, where something lies between kernels
  for (std::uint32_t k = 0; k < report.kernels.size() && !intermediates.empty(); ++k) {
    if (step_of(k) != aliasing.size()) continue;
    const bool alone = report.kernels[k].more.empty() && (k + 1 == report.kernels.size() || step_of(k + 1) != step_of(k));
    aliasing.emplace_back(report.kernels[k].planned, alone);
  }
  const WorkspacePlan workspace = plan_workspace(intermediates, lenders, [&](std::size_t by, std::size_t old) {
    const Aliasing& kernel = aliasing[intermediates[old].last_read];
    const auto stored = kernel.held(held[by], true), loaded = kernel.held(held[old], false);
    return stored && loaded && kernel.may_overwrite(*stored, *loaded);
  });
  plan.workspace_bytes = workspace.bytes;
  for (const auto& [id, k] : intermediate_of) {
    const Place& place = workspace.places[k];
    values.place(id, place.lender == Place::kBlock ? values.workspace() : values.base_of_output(place.lender), place.offset);
  }

  // ---- launches
  const auto add_launch = [&](std::uint32_t k, const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers& scheduled) {
    const compiler::Nest& nest = report.kernels[k].planned.nest;
    const compiler::WordLayout layout(nest);
    Launch launch;
    launch.of = k;
    launch.group = report.kernels[k].group;
    launch.words = compiler::make_words(nest, numbers, scheduled);
    values.fill(nest, numbers, StoredValues::Table::Address, launch);
    launch.items = scheduled.items;
    launch.scratch_bytes = round_up(scheduled.scratch_bytes);
    launch.phases = scheduled.phases;
    launch.shared_bytes = scheduled.shared_bytes;
    launch.phase_word = layout.phase;
    launch.shared_word = layout.shared;
    launch.combines_last = scheduled.combines_last;
    launch.claimed = scheduled.claimed;
    plan.launches.push_back(std::move(launch));
  };
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k) {
    each_piece(report.kernels[k],
               [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers& s) { add_launch(k, numbers, s); });
    plan.bytes_read += report.kernels[k].scheduled.numbers.bytes_read;
    plan.bytes_written += report.kernels[k].scheduled.numbers.bytes_written;
  }
  for (std::size_t first = 0, end = 0; first < plan.launches.size(); first = end) {  // the pieces of a group run together
    std::int64_t items = 0, work = 0, bytes = 0;
    std::size_t words = 0;
    for (end = first; end < plan.launches.size() && plan.launches[end].group == plan.launches[first].group; ++end) {
      items += plan.launches[end].items;
      words += plan.launches[end].words.size();
    }
    for (const KernelReport& kernel : report.kernels)
      if (kernel.group == plan.launches[first].group) {
        each_piece(kernel, [&](const compiler::NestNumbers&, const compiler::ScheduleNumbers& s) { work += s.work; });
        bytes += kernel.scheduled.numbers.bytes_read + kernel.scheduled.numbers.bytes_written;
      }
    const int threads = work >= compiler::ScheduleOptions::kThreadedWork
                            ? static_cast<int>(std::clamp<std::int64_t>(options.threads, 1, std::max<std::int64_t>(items, 1)))
                            : 1;
    // Few pieces go in step through what the second-level cache holds; many are streams of their own.
    std::int64_t steps = end - first <= 8 ? std::min(bytes / (target.l2_bytes / 2) + 1, items) : 1;
    if (threads > 1) steps = std::max<std::int64_t>(steps, 4 * threads);
    for (std::size_t k = first; k < end; ++k) plan.launches[k].threads = threads, plan.launches[k].steps = steps;
    plan.most_words = std::max(plan.most_words, words);
  }
  share_scratch(plan);

  if (plan.launches.size() == 1) allow_in_place(plan, graph, places, report.kernels[0].planned);
  else plan.in_place.assign(plan.inputs.size() * plan.outputs.size(), 0);  // a later kernel may read the input too
}

void allow_in_place(PlanData& plan, const Graph& graph, std::span<const NodeId> places, const compiler::Planned& only) {
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  plan.in_place.assign(inputs * outputs, 0);
  const Aliasing aliasing(only, true);
  std::vector<bool> is_index(graph.size(), false);  // read once more to say which index was bad
  for (const NodeId id : places) is_index[id] = true;
  for (NodeId id = graph.size(); id-- > 0;)
    if (is_index[id])
      for (const std::int64_t o : graph.operands(id)) is_index[static_cast<std::size_t>(o)] = true;
  std::vector<std::optional<Aliasing::Held>> stored, loaded;
  for (std::uint32_t k = 0; k < outputs; ++k) stored.push_back(aliasing.held({graph.outputs[k], plan.outputs[k].dtype}, true));
  for (std::uint32_t i = 0; i < inputs; ++i) loaded.push_back(aliasing.held({graph.inputs[i].node, plan.inputs[i].dtype}, false));
  for (std::uint32_t k = 0; k < outputs; ++k)
    for (std::uint32_t i = 0; i < inputs; ++i) {
      if (is_index[graph.inputs[i].node]) continue;
      const ArrayPlan &from = plan.inputs[i], &to = plan.outputs[k];
      if (from.dtype != to.dtype || from.shape != to.shape || from.strides != to.strides) continue;
      plan.in_place[std::size_t{k} * inputs + i] = !loaded[i] || (stored[k] && aliasing.may_overwrite(*stored[k], *loaded[i]));
    }
}

namespace {

// A group of more pieces keeps its generic kernels: many pieces have one body, whose numbers differ.
constexpr std::size_t kMostSpecialisedPieces = 8;

// Can the launch have a kernel for its numbers alone?
bool can_specialise(const PlanData& plan, std::size_t k) {
  const std::vector<Launch>& all = plan.launches;
  std::size_t first = k, end = k + 1;
  while (first > 0 && all[first - 1].group == all[k].group && end - first <= kMostSpecialisedPieces) --first;
  while (end < all.size() && all[end].group == all[k].group && end - first <= kMostSpecialisedPieces) ++end;
  return end - first <= kMostSpecialisedPieces &&
         std::all_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Launch& l) { return l.items != 0; });
}

// Generic kernels for those of the report that are wanted.
int attach(PlanData& plan, PlanReport& report, const compiler::Target& target, int threads,
           const std::shared_ptr<std::atomic<std::int64_t>>& optimised, const std::vector<bool>& wanted, bool may_compile) {
  std::vector<KernelRequest> requests;
  std::vector<std::size_t> place(report.kernels.size());
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    if (!wanted[k]) continue;
    const KernelReport& kernel = report.kernels[k];
    place[k] = requests.size();
    requests.push_back(
        {kernel.key, {.nest = &kernel.planned.nest, .schedule = &kernel.scheduled.schedule, .target = &target}, optimised, {}});
  }
  for (const Launch& launch : plan.launches)
    if (wanted[launch.of]) requests[place[launch.of]].runs.emplace_back(launch.words);
  const std::vector<KernelResult> found = find_or_compile(requests, threads, may_compile);
  int compiled = 0;
  for (Launch& launch : plan.launches)
    if (wanted[launch.of]) {
      launch.kernel = found[place[launch.of]].kernel;
      if (const compiler::TileProgram* const tiles = launch.kernel->tiles()) {
        launch.tile_nanoseconds = static_cast<std::int64_t>(tiles->nanoseconds(launch.words));
        launch.scratch_bytes = std::max(launch.scratch_bytes, tiles->scratch_bytes());
      }
    }
  share_scratch(plan);
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    if (!wanted[k]) continue;
    const KernelResult& result = found[place[k]];
    report.kernels[k].from_cache = !result.compiled;
    report.kernels[k].in_tiles = result.kernel->tiles() != nullptr;
    report.kernels[k].compile_ms = result.compiled ? result.kernel->compile_ms() : 0;
    compiled += result.compiled;
  }
  return compiled;
}

}  // namespace

int attach_kernels(PlanData& plan, PlanReport& report, const compiler::Target& target, int threads,
                   const std::shared_ptr<std::atomic<std::int64_t>>& optimised, bool may_compile) {
  return attach(plan, report, target, threads, optimised, std::vector<bool>(report.kernels.size(), true), may_compile);
}

int attach_unspecialised(PlanData& plan, PlanReport& report, const compiler::Target& target, int threads,
                         const std::shared_ptr<std::atomic<std::int64_t>>& optimised, bool may_compile) {
  std::vector<bool> wanted(report.kernels.size(), false);
  for (std::size_t k = 0; k < plan.launches.size(); ++k)
    if (plan.launches[k].items != 0 && !can_specialise(plan, k)) wanted[plan.launches[k].of] = true;
  return attach(plan, report, target, threads, optimised, wanted, may_compile);
}

// ------------------------------------------------------------------------------------------------ specialised kernels

void Specialised::publish(std::shared_ptr<const Kernel> kernel, bool trial) {
  kernel_ = std::move(kernel);
  state_.store(trial ? State::Trial : State::Used, std::memory_order_release);
}

void Specialised::tried(bool kernel, std::int64_t nanoseconds) {
  std::atomic<std::int64_t>& best = best_[kernel];
  for (std::int64_t known = best.load(std::memory_order_relaxed); nanoseconds < known;)
    if (best.compare_exchange_weak(known, nanoseconds, std::memory_order_relaxed)) break;
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 != kTrials) return;
  const std::int64_t generic = best_[0].load(std::memory_order_relaxed), special = best_[1].load(std::memory_order_relaxed);
  // The best run of each says most about the code: others met what else the machine does. The kernel is there, so a tie is its.
  state_.store(special <= generic ? State::Used : State::Dropped, std::memory_order_release);
}

int attach_specialised(const PlanData& plan, const PlanReport& report, const compiler::Target& target, int threads, bool trial,
                       bool may_compile) {
  std::vector<compiler::KnownWords> known;
  std::vector<KernelRequest> requests;
  std::vector<std::size_t> launch_of;
  known.reserve(plan.launches.size());  // requests point into it
  for (std::size_t k = 0; k < plan.launches.size(); ++k) {
    const Launch& launch = plan.launches[k];
    const KernelReport& kernel = report.kernels[launch.of];
    if (!can_specialise(plan, k) || launch.specialised->state() != Specialised::State::None) continue;
    std::vector<bool> slot_known;
    for (const Launch::SlotWord& s : launch.slots) slot_known.push_back(!plan.numbers.fills(s.slot));
    const compiler::Nest& nest = kernel.planned.nest;
    const compiler::Schedule& schedule = kernel.scheduled.schedule;
    known.push_back(compiler::known_words(nest, launch.words, slot_known));
    requests.push_back({kernel_key(nest, schedule, target, &known.back()),
                        {.nest = &nest, .schedule = &schedule, .target = &target, .known = &known.back()}});
    launch_of.push_back(k);
  }
  const std::vector<KernelResult> found = find_or_compile(requests, threads, may_compile);
  int compiled = 0;
  for (std::size_t i = found.size(); i-- > 0;) {  // the first of a group last: its state says that all have theirs
    const Launch& launch = plan.launches[launch_of[i]];
    if (trial) launch.kernel->optimise_now();  // what it is tried against
    launch.specialised->publish(found[i].kernel, trial);
    compiled += found[i].compiled;
  }
  return compiled;
}

namespace {

// Memory that a thread keeps for its small workspaces, so that a warm call allocates nothing.
struct Arena {
  static constexpr std::size_t kMost = std::size_t{256} << 10;
  memory::Buffer buffer;
  bool busy = false;  // a call within a call, by way of the host's executor
};
thread_local Arena arena;

class Scratch {
 public:
  explicit Scratch(std::size_t bytes) {
    if (bytes == 0) return;
    if (bytes > Arena::kMost || arena.busy) {
      own_ = memory::Buffer(bytes);
      data_ = static_cast<std::byte*>(own_.data());
      return;
    }
    if (arena.buffer.size() < bytes) arena.buffer = memory::Buffer(std::max<std::size_t>(bytes, 2 * arena.buffer.size()));
    arena.busy = borrowed_ = true;
    data_ = static_cast<std::byte*>(arena.buffer.data());
  }
  ~Scratch() {
    if (borrowed_) arena.busy = false;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return data_; }

 private:
  memory::Buffer own_;
  std::byte* data_ = nullptr;
  bool borrowed_ = false;
};

void say_control_changed() {
  static constinit Once once;
  if (once.first())
    log(LogLevel::info,
        "the host changed the floating-point control (rounding, flush to zero or exceptions); kernels run under the default one, and each "
        "call puts the host's back");
}

}  // namespace

namespace {

void fill_words(const Launch& launch, std::byte* const* bases, const std::uint64_t* slots, std::int64_t* words) {
  std::memcpy(words, launch.words.data(), launch.words.size() * sizeof(std::int64_t));
  for (const Launch::Pointer& p : launch.pointers)
    words[p.word] =
        (p.base == Launch::Pointer::kOwnWords ? reinterpret_cast<std::int64_t>(words) : reinterpret_cast<std::int64_t>(bases[p.base])) +
        p.offset;
  if (slots)
    for (const Launch::SlotWord& s : launch.slots) words[s.word] = s.of(slots[s.slot]);
}

// One item after the other: whoever is free takes the next, so that the one before it is done or being run. Phase 0 of an item needs
// nothing of others, phase 1 what the one before it leaves at the beginning of its own phase 1.
void run_claimed(const Launch& launch, KernelCode function, std::int64_t* words, std::byte* scratch) {
  std::memset(scratch + launch.threads * launch.scratch_bytes, 0, static_cast<std::size_t>(launch.shared_bytes));
  auto* const slots = scratch + launch.threads * launch.scratch_bytes;
  const std::int64_t slot_bytes = launch.shared_bytes / (launch.items + 1);
  std::int64_t few[256];
  std::vector<std::int64_t> many(launch.words.size() > std::size(few) ? launch.words.size() : 0);
  std::int64_t* const before = many.empty() ? few : many.data();  // the words of phase 0
  std::copy_n(words, launch.words.size(), before);
  before[launch.phase_word] = 0;
  words[launch.phase_word] = 1;
  std::atomic<std::int64_t> next{0};
  threads::parallel_for(launch.threads, launch.threads, [&](std::int64_t, std::int64_t, int share) {
    for (;;) {
      const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= launch.items) return;
      function(before, item, item + 1, scratch + share * launch.scratch_bytes);
      const std::atomic_ref<std::int64_t> ready(*reinterpret_cast<std::int64_t*>(slots + item * slot_bytes));
      for (int spins = 0; item > 0 && ready.load(std::memory_order_acquire) == 0; ++spins)
        if (spins > 1000) os::yield_processor();  // its thread may wait for this one's processor
      function(words, item, item + 1, scratch + share * launch.scratch_bytes);
    }
  });
}

void run_function(const Launch& launch, KernelCode function, std::int64_t* words, std::byte* scratch) {
  if (launch.shared_bytes) words[launch.shared_word] = reinterpret_cast<std::int64_t>(scratch + launch.threads * launch.scratch_bytes);
  if (launch.claimed) return run_claimed(launch, function, words, scratch);
  for (std::int64_t phase = 0; phase < launch.phases; ++phase) {
    words[launch.phase_word] = phase;
    if (launch.threads <= 1 || (launch.combines_last && phase + 1 == launch.phases)) {
      function(words, 0, launch.items, scratch);
      continue;
    }
    threads::parallel_for(launch.items, launch.threads, [&](std::int64_t begin, std::int64_t end, int share) {
      function(words, begin, end, scratch + share * launch.scratch_bytes);
    });
  }
}

// Default floating-point control in its scope; said once when the host had another.
struct KernelControl : os::DefaultFloatingPoint {
  KernelControl() {
    if (changed()) [[unlikely]]
      say_control_changed();
  }
};

void run_one(const Launch& launch, bool specialised, std::int64_t* words, std::byte* scratch) {
  if (launch.items == 0) return;  // has no specialised kernel, perhaps no other
  const Kernel& kernel = specialised ? launch.specialised->kernel() : *launch.kernel;
  run_function(launch, kernel.code_to_run(launch.tile_nanoseconds), words, scratch);
}

// The pieces of a group share its loops: all advance through them in step, so that what several of them read is still in the caches.
void run_pieces(std::span<const Launch> pieces, bool specialised, const std::int64_t* words, std::byte* scratch) {
  const std::int64_t steps = pieces[0].steps;
  const auto advance = [&](std::int64_t begin, std::int64_t end, int share) {
    for (std::int64_t step = begin; step < end; ++step) {
      const std::int64_t* mine = words;
      for (const Launch& piece : pieces) {
        const std::int64_t from = piece.items * step / steps, to = piece.items * (step + 1) / steps;
        if (from < to)
          (specialised ? piece.specialised->kernel() : *piece.kernel)
              .code_to_run(piece.tile_nanoseconds / steps)(mine, from, to, scratch + share * piece.scratch_bytes);
        mine += piece.words.size();
      }
    }
  };
  if (pieces[0].threads <= 1) advance(0, steps, 0);
  else threads::parallel_for(steps, pieces[0].threads, advance);
}

void run_all(std::span<const Launch> pieces, bool specialised, std::int64_t* words, std::byte* scratch) {
  if (pieces.size() == 1) run_one(pieces[0], specialised, words, scratch);
  else run_pieces(pieces, specialised, words, scratch);
}

[[gnu::noinline]] void run_trial(std::span<const Launch> pieces, Specialised& trial, std::int64_t* words, std::byte* scratch) {
  // A comparison with code that is about to be replaced would say nothing.
  if (!std::ranges::all_of(pieces, [](const Launch& l) { return l.items == 0 || l.kernel->is_settled(); }))
    return run_all(pieces, true, words, scratch);
  const bool specialised = trial.tries_kernel();
  const std::int64_t start = os::nanoseconds();
  run_all(pieces, specialised, words, scratch);
  trial.tried(specialised, os::nanoseconds() - start);
}

// `words` holds those of all pieces, one behind the other.
void run_group(std::span<const Launch> pieces, std::int64_t* words, std::byte* scratch) {
  Specialised& first = *pieces[0].specialised;
  const Specialised::State state = first.state();
  if (state == Specialised::State::Trial) [[unlikely]]
    return run_trial(pieces, first, words, scratch);
  run_all(pieces, state == Specialised::State::Used, words, scratch);
}

template <class F> void each_group(const PlanData& plan, F&& f) {
  const std::span<const Launch> all = plan.launches;
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    for (end = first + 1; end < all.size() && all[end].group == all[first].group; ++end) {}
    f(all.subspan(first, end - first));
  }
}

}  // namespace

void check_indices(const Graph& recorded, std::span<const ir::ArrayView> inputs, std::span<const std::uint64_t> slot_bits) {
  Graph graph = recorded;
  graph.outputs = ir::places_of(recorded);
  graph.output_names.clear();
  const KernelControl control;
  static_cast<void>(ir::evaluate(graph, inputs, slot_bits));
}

bool run(const PlanData& plan, std::byte** bases, const std::uint64_t* slots) {
  constexpr std::size_t kWords = 512;
  const std::size_t extra = plan.most_words > kWords ? plan.most_words * sizeof(std::int64_t) : 0;
  const Scratch memory(static_cast<std::size_t>(plan.workspace_bytes + plan.scratch_bytes) + extra);
  std::int64_t flag = 0;
  bases[plan.inputs.size() + plan.outputs.size()] = memory.data();
  bases[plan.inputs.size() + plan.outputs.size() + 1] = reinterpret_cast<std::byte*>(&flag);
  std::byte* const scratch = memory.data() + plan.workspace_bytes;
  std::int64_t inline_words[kWords];
  std::int64_t* const words = extra ? reinterpret_cast<std::int64_t*>(scratch + plan.scratch_bytes) : inline_words;

  const KernelControl control;
  each_group(plan, [&](std::span<const Launch> pieces) {
    std::int64_t* mine = words;
    for (const Launch& launch : pieces) {
      fill_words(launch, bases, slots, mine);
      mine += launch.words.size();
    }
    run_group(pieces, words, scratch);
  });
  return flag == 0;
}

PreparedRun::PreparedRun(const PlanData& plan, std::byte** bases, const std::uint64_t* slots)
    : plan_(plan), memory_(static_cast<std::size_t>(plan.workspace_bytes + plan.scratch_bytes)) {
  auto* const workspace = static_cast<std::byte*>(memory_.data());
  bases[plan.inputs.size() + plan.outputs.size()] = workspace;
  bases[plan.inputs.size() + plan.outputs.size() + 1] = reinterpret_cast<std::byte*>(&flag_);
  scratch_ = workspace + plan.workspace_bytes;
  std::size_t total = 0;
  for (const Launch& launch : plan.launches) total += launch.words.size();
  words_.resize(total);
  std::int64_t* words = words_.data();
  for (const Launch& launch : plan.launches) {
    fill_words(launch, bases, slots, words);
    words += launch.words.size();
  }
}

bool PreparedRun::operator()() {
  const KernelControl control;
  flag_ = 0;
  std::int64_t* words = words_.data();
  each_group(plan_, [&](std::span<const Launch> pieces) {
    run_group(pieces, words, scratch_);
    for (const Launch& launch : pieces) words += launch.words.size();
  });
  return flag_ == 0;
}

void copy_array(const ArrayPlan& to, std::byte* target, const ArrayPlan& from, const std::byte* source) {
  const std::int64_t n = to.elements();
  if (n == 0) return;
  const std::size_t size = size_of(to.dtype), rank = to.shape.size();
  // Trailing axes along which both lie densely are one run of bytes.
  std::size_t axes = rank;
  std::int64_t run = 1;
  while (axes > 0 && (to.shape[axes - 1] == 1 || (to.strides[axes - 1] == run && from.strides[axes - 1] == run))) run *= to.shape[--axes];
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t done = 0; done < n; done += run) {
    std::int64_t a = 0, b = 0;
    for (std::size_t i = 0; i < axes; ++i) a += index[i] * to.strides[i], b += index[i] * from.strides[i];
    std::memcpy(target + a * static_cast<std::int64_t>(size), source + b * static_cast<std::int64_t>(size),
                static_cast<std::size_t>(run) * size);
    for (std::size_t i = axes; i-- > 0;) {
      if (++index[i] < to.shape[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace onepass::runtime
