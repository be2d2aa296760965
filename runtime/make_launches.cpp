// Turns an optimized graph into launches: fuses, plans, schedules, places values, and makes one launch for each subdomain of each kernel.
// launch.h declares `make_launches`.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "compiler/plan/joined.h"
#include "compiler/plan/steps.h"
#include "compiler/plan/verify_plan.h"
#include "compiler/record.h"
#include "ir/steps.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/launch.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/profile.h"
#include "runtime/routine.h"
#include "runtime/stop.h"
#include "runtime/stored_values.h"
#include "runtime/workspace.h"

namespace onepass::runtime {

using compiler::NestKind;
using ir::Graph;
using ir::NodeId;
using ir::Op;

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
    throw ValueError(fmt::format("{}: the call would store {}; the limit `array_bytes` is {} bytes for one array{}",
                                 ir::info(graph[id].op).text, compiler::type_text(dtype, graph.shape(id)), limit,
                                 by_memory ? " (half the memory)" : ""));
  return bytes;
}

namespace {

constexpr std::int64_t round_up(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

// Decides which two arrays of an elementwise kernel may use the same memory. A kernel stores in body order. It computes a value,
// including loads, when the first store needs it; later stores reuse the register.
class Aliasing {
 public:
  // Collects the accesses. `alone`: the fusion group has no other kernel.
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
  // The position of an array among the kernel's buffers: a separate buffer, or a member of an array list.
  struct Held {
    std::uint32_t buffer;
    std::size_t member;
    bool alone;  // the array has no other position
  };
  // True if the stored array may overwrite the loaded array. Exactly one statement must access each array, both at the same element in the
  // same iteration. The load must precede the store.
  bool may_overwrite(const Held& stored, const Held& loaded) const {
    const Touch &to = touch_[stored.buffer], &from = touch_[loaded.buffer];
    if (to.times != 1 || from.times != 1 || from.store > to.store || !stored.alone || !loaded.alone || stored.member != loaded.member)
      return false;
    if (size_of(nest_.buffers[stored.buffer].dtype) != size_of(nest_.buffers[loaded.buffer].dtype)) return false;
    const compiler::Access &a = nest_.accesses[to.access], &b = nest_.accesses[from.access];
    return same(a.linear, b.linear) && (a.table == compiler::Access::kNone) == (b.table == compiler::Access::kNone) &&
           (a.table == compiler::Access::kNone || same(a.table, b.table));
  }
  // Returns the position of an array of this type: a half may be kept as such and, unrounded, as f32.
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
    int times = 0;                        // statements that load or store it
    std::uint32_t access = 0, store = 0;  // access of its last statement; the first store that needs it
  };
  const compiler::Nest& nest_;
  const compiler::NestNumbers& numbers_;
  std::vector<Touch> touch_;  // for each buffer

  bool same(std::uint32_t linear, std::uint32_t other) const {
    return numbers_.offsets[linear] == numbers_.offsets[other] && numbers_.coefficients[linear] == numbers_.coefficients[other];
  }
};

constinit std::atomic<void (*)(compiler::Nest&)> nest_hook{nullptr};
constinit std::atomic<void (*)(std::vector<compiler::Planned>&)> plan_hook{nullptr};

compiler::Partition partition_of(const Graph& graph, const StoredValues& values, std::span<const NodeId> places, bool unfused) {
  compiler::FuseOptions options{.unfused = unfused, .places = {places.begin(), places.end()}};
  if (!unfused) {
    options.lists = compiler::find_lists(graph, values.layouts());
    compiler::find_assembled(graph, values.layouts(), options.lists);
  }
  return compiler::fuse(graph, options);
}

template <class F> void each_piece(const KernelReport& kernel, F&& f) {
  f(kernel.planned.numbers, kernel.scheduled.numbers);
  for (const KernelReport::Piece& piece : kernel.more) f(piece.numbers, piece.scheduled);
}

// Plans the nests of all fusion groups and verifies them. Returns the error of the first invalid nest, else an empty text.
std::string plan_groups(const PlanReport& report, std::span<const compiler::Layout> layouts, const compiler::Structure* structure,
                        const compiler::Target& target, const compiler::ScheduleOptions& how,
                        std::vector<std::vector<compiler::Planned>>& out) {
  auto* const hook = plan_hook.load(std::memory_order_relaxed);
  out.clear();
  for (std::uint32_t g = 0; g < report.partition.groups.size(); ++g) {
    std::vector<compiler::Planned>& pieces = out.emplace_back(compiler::plan(report.optimised, report.partition, g, layouts));
    compiler::join_reduced_loops(pieces, target, how);
    if (hook) hook(pieces);
    std::string wrong = structure ? structure->proofs().verify(report.optimised, report.partition, g, layouts, pieces)
                                  : compiler::verify_plan(report.optimised, report.partition, g, layouts, pieces);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// Adds the kernels of a fusion group. Subdomains with equal keys form one kernel.
void add_kernels(PlanReport& report, std::uint32_t group, std::vector<compiler::Planned> pieces, const compiler::Target& target,
                 compiler::ScheduleOptions options, const std::function<std::vector<bool>(const compiler::Planned&)>& in_place) {
  if (report.partition.groups[group].routine) {
    for (compiler::Planned& p : pieces) {
      KernelReport& kernel = report.kernels.emplace_back();
      kernel.group = group;
      kernel.planned = std::move(p);
      const compiler::Nest& nest = kernel.planned.nest;
      if (nest.routine == ir::Op::Steps) {
        kernel.scheduled = compiler::schedule_steps(nest, kernel.planned.numbers, target, options);
        kernel.key = kernel_key(nest, kernel.scheduled.schedule, target);
        continue;
      }
      kernel.scheduled = schedule_routine(nest, kernel.planned.numbers, target, options.threads);
      kernel.key = nest.key();
      kernel.from_cache = true;
    }
    return;
  }
  std::vector<compiler::Scheduled> scheduled;
  if (auto* const hook = nest_hook.load(std::memory_order_relaxed))
    for (compiler::Planned& p : pieces) hook(p.nest);
  const auto schedule_all = [&] {
    std::int64_t bytes = 0;
    scheduled.clear();
    for (const compiler::Planned& p : pieces) {
      options.in_place = in_place(p);
      scheduled.push_back(compiler::schedule(p.nest, p.numbers, target, options));
      if (const std::string wrong = compiler::verify_schedule(p.nest, p.numbers, scheduled.back()); !wrong.empty())
        throw PlanRefused(wrong);
      bytes += scheduled.back().numbers.bytes_read + scheduled.back().numbers.bytes_written;
    }
    return bytes;
  };
  if (pieces.size() > 1) options.bytes_beside = 1;  // a lower bound
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
void set_plan_hook(void (*hook)(std::vector<compiler::Planned>& pieces)) noexcept { plan_hook = hook; }

void note_refusal(std::string_view wrong) {
  constexpr std::size_t most = 16'000;  // limit for plans with thousands of statements
  std::string line(wrong.substr(0, most));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, " | ");
  log(LogLevel::warning, "the plan verifier rejected a plan, and the call runs without it. Please report this: {}", line);
  if (os::for_tests().strict) throw InternalError(std::string(wrong));
}

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

void check_work(const Graph& graph, std::int64_t limit) {
  if (limit <= 0) return;
  // Upper bounds of the needed elements of each value: a view of few elements needs few elements of its source.
  std::vector<double> needed(graph.size(), 0);
  double all = 0, most = 0;
  NodeId longest = 0;
  std::set<ir::ListId> loops;
  const auto elements = [&](NodeId id) {
    double n = 1;
    for (const std::int64_t e : graph.shape(id)) n *= static_cast<double>(e);
    return n;
  };
  for (const NodeId id : graph.outputs) needed[id] = elements(id);
  for (NodeId id = graph.size(); id-- > 0;) {
    if (needed[id] == 0) continue;
    const ir::OpKind kind = ir::info(graph[id].op).kind;
    const ir::List operands = graph.operands(id);
    double read = needed[id];  // elements read from each operand
    switch (kind) {
      case ir::OpKind::Reduction: read *= elements(graph.operand(id, 0)) / std::max(elements(id), 1.0); break;
      case ir::OpKind::Scan: read = elements(id); break;
      case ir::OpKind::Routine: {  // operators of a loop's steps, or estimated comparisons
        if (graph[id].op == Op::Steps) {
          read = elements(id);
          if (loops.insert(graph[id].operands).second) {  // the results of one loop are computed together
            const ir::Steps steps = ir::steps_of(graph, id);
            read = static_cast<double>(steps.count) * static_cast<double>(steps.lines.size() + 1) *
                   static_cast<double>(graph.shape(id).back());
          }
          break;
        }
        const ir::List row = graph.shape(graph.operand(id, 0));
        const double n =
            static_cast<double>(row[graph[id].op == Op::Search ? row.size() - 1 : static_cast<std::size_t>(graph.attributes(id)[0])]);
        read = std::max(elements(id), graph[id].op == Op::Search ? 0 : elements(graph.operand(id, 0))) *
               std::max(std::log2(std::max(n, 1.0)), 1.0);
        break;
      }
      case ir::OpKind::Scatter: read = std::max(elements(id), elements(graph.operand(id, 2))); break;
      default: break;
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const auto o = static_cast<NodeId>(operands[k]);
      const bool indices = kind == ir::OpKind::Gather && k == 1;  // all indices are checked
      needed[o] = std::min(elements(o), indices ? elements(o) : needed[o] + read);
    }
    if (kind == ir::OpKind::Source || kind == ir::OpKind::View || kind == ir::OpKind::Piecewise) continue;
    all += read;
    if (read > most) most = read, longest = id;
  }
  if (all <= static_cast<double>(limit)) return;
  const std::string& source = graph.sources[graph.source_of[longest]];
  throw ValueError(fmt::format("{}: the call would do {:.4g} operations on elements ({:.4g} of them for {}{}{}); the limit `work` is {}",
                               ir::info(graph[longest].op).text, all, most, compiler::type_text(graph[longest].dtype, graph.shape(longest)),
                               source.empty() ? "" : ", recorded at ", source, limit));
}

void check_interpreted(const Graph& graph, const LaunchOptions& options) {
  const std::vector<bool> unspread = ir::unspread(graph);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op != Op::Input && !unspread[id]) checked_bytes(graph, id, graph[id].dtype, options.array_bytes);
}

namespace {

compiler::PassOptions passes_of(const PlanData& plan, const LaunchOptions& options) {
  compiler::PassOptions passes = options.passes();
  passes.is_brought = plan.is_brought();
  return passes;
}

// Throws InternalError, in debug builds, if the passes would have produced another result.
void check_taken_over(const PlanData& plan, const PlanReport& report, const LaunchOptions& options) {
#ifndef NDEBUG
  std::vector<NodeId> places;
  const Graph graph = compiler::optimize(report.recorded, passes_of(plan, options), places);
  const std::string made = ir::print(graph) + print(graph, compiler::fuse(graph, {.unfused = options.unfused, .places = places}));
  const std::string taken = ir::print(report.optimised) + print(report.optimised, report.partition);
  if (made != taken)
    throw InternalError(
        fmt::format("launch: a plan reused for other lengths differs from the plan that the passes make:\n{}\nbut\n{}", taken, made));
#else
  static_cast<void>(plan), static_cast<void>(report), static_cast<void>(options);
#endif
}

// Returns, for each buffer, true if it is written over an array that the fusion group reads.
std::vector<bool> written_in_place(const compiler::Planned& piece, const StoredValues& values, const LaunchOptions& options) {
  std::vector<bool> out;
  if (!options.in_place.empty())
    for (std::size_t b = 0; b < piece.numbers.buffers.size(); ++b) {
      const auto is_over = [&](NodeId id, std::int32_t copy) {
        const std::span<const std::uint32_t> result = values.outputs_of(id);
        return static_cast<std::size_t>(copy) < result.size() && options.in_place[result[static_cast<std::size_t>(copy)]];
      };
      const std::vector<NodeId>& members = piece.numbers.members[b];
      bool over = members.empty() && is_over(piece.numbers.buffers[b], piece.numbers.outputs[b]);
      for (const NodeId member : members) over = over || is_over(member, 0);
      out.push_back(piece.nest.buffers[b].written && over);
    }
  return out;
}

// Returns the problem with strips; empty if only their members access a value that they hold, each after the member that stores it.
std::string wrong_strips(const PlanReport& report) {
  struct Held {
    const compiler::Strips* strips;
    bool stored = false;
  };
  std::unordered_map<NodeId, Held> held;
  for (const compiler::Strips& s : report.strips)
    for (const compiler::StripValue& v : s.values)
      if (!held.try_emplace(v.node, Held{&s}).second) return fmt::format("strips: %{} is held twice", v.node);
  for (std::uint32_t k = 0; k < report.kernels.size() && !held.empty(); ++k) {
    const KernelReport& kernel = report.kernels[k];
    const compiler::Nest& nest = kernel.planned.nest;
    std::string wrong;
    const auto check = [&](NodeId id, bool is_stored, bool is_main) {
      const auto it = held.find(id);
      if (it == held.end()) return;
      Held& value = it->second;
      const auto& [first, members] = std::tie(value.strips->first, value.strips->members);
      if (!is_main || k < first || k >= first + members.size())
        wrong = fmt::format("strips: kernel {} accesses %{}, which others hold", k, id);
      else if (value.stored == is_stored) wrong = fmt::format("strips: %{} is stored twice, or read before kernel {} stores it", id, k);
      value.stored = true;
    };
    for (const bool is_stored : {false, true})
      each_piece(kernel, [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers&) {
        for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
          if (nest.buffers[b].written != is_stored) continue;
          check(numbers.buffers[b], is_stored, &numbers == &kernel.planned.numbers && numbers.members[b].empty());
          for (const NodeId id : numbers.members[b]) check(id, is_stored, false);
        }
      });
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// Arranges kernels that pass values to each other in strips of a few rows, if the values would otherwise not stay in the caches:
// compiler/plan/strips.h.
void arrange_strips(PlanReport& report, const StoredValues& values, const compiler::Target& target, compiler::ScheduleOptions options) {
  const compiler::Lists& lists = report.partition.lists;
  const auto kernels_of_report = [&] {
    std::vector<compiler::StripKernel> kernels;
    for (std::size_t k = 0; k < report.kernels.size(); ++k) {
      const KernelReport& kernel = report.kernels[k];
      const auto [nest, numbers] = std::tie(kernel.planned.nest, kernel.planned.numbers);
      compiler::StripKernel& out = kernels.emplace_back(&nest, &numbers, &kernel.scheduled);
      const auto is_of_group = [&](std::size_t other) {
        return other < report.kernels.size() && report.kernels[other].group == kernel.group;
      };
      out.alone = kernel.more.empty() && !is_of_group(k - 1) && !is_of_group(k + 1);
      for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
        out.alone &= numbers.members[b].empty() && lists.places_of(numbers.buffers[b]).empty() && !lists.assembles(numbers.buffers[b]);
        out.passed.push_back(values.is_intermediate(nest, numbers, b));
      }
      const auto add = [&](const compiler::NestNumbers& of, std::uint32_t b, NodeId id) {
        if (&of != &numbers || id != numbers.buffers[b]) (nest.buffers[b].written ? out.also_written : out.also_read).push_back(id);
      };
      each_piece(kernel, [&](const compiler::NestNumbers& of, const compiler::ScheduleNumbers&) {
        for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
          add(of, b, of.buffers[b]);
          for (const NodeId member : of.members[b]) add(of, b, member);
        }
      });
    }
    return kernels;
  };
  std::vector<compiler::StripKernel> kernels = kernels_of_report();
  std::vector<std::uint32_t> order;
  report.strips = compiler::find_strips(kernels, target, options.threads, order, os::for_tests().strips);
  if (report.strips.empty()) return;
  std::vector<KernelReport> ordered;
  for (const std::uint32_t k : order) ordered.push_back(std::move(report.kernels[k]));
  report.kernels = std::move(ordered);
  kernels = kernels_of_report();
  std::erase_if(report.strips, [&](compiler::Strips& strips) {
    const std::size_t end = strips.first + strips.members.size();
    std::vector<compiler::Scheduled> before;
    options.strip = strips.rows;
    for (std::size_t k = strips.first; k < end; ++k) {
      KernelReport& kernel = report.kernels[k];
      options.held.clear();
      for (std::uint32_t b = 0; b < kernel.planned.nest.buffers.size(); ++b)
        options.held.push_back(kernels[k].passed[b] && strips.holds(kernel.planned.numbers.buffers[b]));
      const auto [nest, numbers] = std::tie(kernel.planned.nest, kernel.planned.numbers);
      const bool is_steps = nest.routine == ir::Op::Steps;
      before.push_back(std::exchange(kernel.scheduled, is_steps ? compiler::schedule_steps(nest, numbers, target, options)
                                                                : compiler::schedule(nest, numbers, target, options)));
      if (is_steps) continue;
      if (const std::string wrong = compiler::verify_schedule(nest, numbers, kernel.scheduled); !wrong.empty()) throw PlanRefused(wrong);
    }
    const bool fits = compiler::lay_out(strips, kernels);
    for (std::size_t k = strips.first; k < end; ++k) {
      KernelReport& kernel = report.kernels[k];
      if (fits) kernel.key = kernel_key(kernel.planned.nest, kernel.scheduled.schedule, target);
      else kernel.scheduled = std::move(before[k - strips.first]);
    }
    return !fits;
  });
  if (const std::string wrong = wrong_strips(report); !wrong.empty()) throw PlanRefused(wrong);
}

// Returns the strips that a kernel runs in, or null.
const compiler::Strips* strips_of(const PlanReport& report, std::size_t kernel) {
  for (const compiler::Strips& s : report.strips)
    if (s.first <= kernel && kernel < s.first + s.members.size()) return &s;
  return nullptr;
}

// True if two consecutive kernels run concurrently.
bool run_together(const PlanReport& report, std::size_t kernel, std::size_t next) {
  const compiler::Strips* const strips = strips_of(report, kernel);
  return report.kernels[kernel].group == report.kernels[next].group || (strips && strips == strips_of(report, next));
}

// Places the values that one kernel stores for another, and sets the size of their memory.
void place_intermediates(PlanData& plan, const PlanReport& report, const LaunchOptions& options, StoredValues& values) {
  const Graph& graph = report.optimised;
  std::vector<std::uint32_t> steps;  // step of each kernel
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k) steps.push_back(k == 0 ? 0 : steps.back() + !run_together(report, k - 1, k));
  const auto is_held = [&](NodeId id) { return std::ranges::any_of(report.strips, [&](const auto& strips) { return strips.holds(id); }); };
  const auto step_of = [&](std::uint32_t k) { return steps[k]; };
  std::unordered_map<NodeId, std::uint32_t> last;
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k)
    each_piece(report.kernels[k], [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers&) {
      for (const NodeId id : numbers.buffers) {
        last[id] = step_of(k);
        for (const compiler::PlaceInArray& place : report.partition.lists.places_of(id)) last[place.array] = step_of(k);
      }
    });
  std::vector<Intermediate> intermediates;
  std::vector<std::pair<NodeId, DType>> held;  // arrays of intermediates, then of results
  std::unordered_map<NodeId, std::size_t> intermediate_of;
  std::vector<Lender> lenders(plan.outputs.size());
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k) {
    const compiler::Nest& nest = report.kernels[k].planned.nest;
    each_piece(report.kernels[k], [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers&) {
      for (std::uint32_t b = 0; b < nest.buffers.size(); ++b) {
        const NodeId id = numbers.buffers[b];
        if (!nest.buffers[b].written || !numbers.members[b].empty()) continue;
        if (const compiler::PlaceInArray* const place = values.place_in_array(nest, numbers, b)) {
          const NodeId array = place->array;
          if (values.outputs_of(array).empty() && intermediate_of.try_emplace(array, intermediates.size()).second) {
            intermediates.push_back({checked_bytes(graph, array, graph[array].dtype, options.array_bytes), step_of(k), last[array]});
            held.emplace_back(array, graph[array].dtype);
          }
          continue;
        }
        if (!values.is_intermediate(nest, numbers, b)) {
          const std::uint32_t output = values.outputs_of(id)[static_cast<std::size_t>(numbers.outputs[b])];
          const ArrayPlan& o = plan.outputs[output];
          if (lenders[output].bytes == 0 && o.low == 0 && o.high == o.elements() * static_cast<std::int64_t>(size_of(o.dtype)))
            lenders[output] = {o.high, step_of(k)};
        } else if (is_held(id)) {
          values.place(id, values.workspace(), 0);  // point_to_held sets the address
        } else if (intermediate_of.try_emplace(id, intermediates.size()).second) {
          intermediates.push_back({checked_bytes(graph, id, nest.buffers[b].dtype, options.array_bytes), step_of(k), last[id]});
          held.emplace_back(id, nest.buffers[b].dtype);
        }
      }
    });
  }
  for (const NodeId id : graph.outputs) held.emplace_back(id, graph[id].dtype);
  std::vector<Aliasing> aliasing;  // one for each step, if there are intermediates
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
}

void add_strips(Launch& launch, const compiler::Strips& strips, const compiler::Nest& nest, const compiler::NestNumbers& numbers,
                const PlanReport& report) {
  const compiler::WordLayout layout(nest);
  const compiler::StripMember& member = strips.members[launch.of - strips.first];
  launch.group = report.kernels[strips.first].group;
  launch.steps = strips.strips();
  launch.strips_of_outer = strips.per_outer();
  launch.items_of_outer = member.items_of_outer;
  launch.items_of_strip = member.items_of_strip;
  launch.held_bytes = strips.bytes;
  for (const compiler::StripAccess& access : member.accesses) {
    const compiler::StripValue& value = strips.values[access.value];
    const std::uint32_t linear = nest.accesses[access.access].linear;
    std::int64_t first = numbers.offsets[linear], row = value.length;  // elements before the access; between rows
    if (value.has_columns()) {
      first = first / value.apart * strips.rows, row = 1;
      for (std::uint32_t l = 0; l < nest.outer; ++l) {
        std::int64_t& coefficient = launch.words[layout.coefficient_of(linear, l)];
        coefficient = coefficient / value.apart * strips.rows;
      }
    }
    launch.held.push_back({layout.pointers + access.access, value.offset + first * value.element_bytes,
                           strips.inner * row * value.element_bytes, strips.rows * row * value.element_bytes});
  }
}

void add_launches(PlanData& plan, const PlanReport& report, const compiler::Target& target, const StoredValues& values) {
  const auto add_launch = [&](std::uint32_t k, const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers& scheduled) {
    const compiler::Nest& nest = report.kernels[k].planned.nest;
    const compiler::WordLayout layout(nest);
    Launch launch;
    launch.of = k;
    launch.group = report.kernels[k].group;
    const bool is_routine = nest.is_in_library();
    if (is_routine) {
      launch.words = routine_words(nest, numbers, scheduled);
      for (std::uint32_t b = 0; b < nest.buffers.size(); ++b)
        launch.pointers.push_back(values.pointer(nest, numbers, b, RoutineWords::pointer(nest, b)));
    } else {
      launch.words = compiler::make_words(nest, numbers, scheduled);
      values.fill(nest, numbers, StoredValues::Table::Address, launch);
    }
    launch.is_routine = is_routine;
    launch.is_steps = nest.routine == ir::Op::Steps;
    launch.items = scheduled.items;
    launch.scratch_bytes = round_up(scheduled.scratch_bytes);
    launch.phases = scheduled.phases;
    launch.shared_bytes = scheduled.shared_bytes;
    launch.phase_word = is_routine ? RoutineWords::kPhase : layout.phase;
    launch.shared_word = is_routine ? RoutineWords::kShared : layout.shared;
    launch.combines_last = scheduled.combines_last;
    launch.claimed = scheduled.claimed;
    launch.work = scheduled.work;
    launch.bytes = scheduled.bytes_read + scheduled.bytes_written;
    const compiler::Schedule& schedule = report.kernels[k].scheduled.schedule;
    launch.saved_if_specialised = compiler::saved_by_specializing(numbers.extents[nest.vector_loop()], schedule, target);
    if (!schedule.called.empty())
      launch.specialised_compile =
          compiler::compile_times(nest, schedule, true).optimised / compiler::compile_times(nest, schedule).optimised;
    if (const compiler::Strips* const strips = strips_of(report, k)) add_strips(launch, *strips, nest, numbers, report);
    plan.launches.push_back(std::move(launch));
  };
  for (std::uint32_t k = 0; k < report.kernels.size(); ++k) {
    each_piece(report.kernels[k],
               [&](const compiler::NestNumbers& numbers, const compiler::ScheduleNumbers& s) { add_launch(k, numbers, s); });
    plan.bytes_read += report.kernels[k].scheduled.numbers.bytes_read;
    plan.bytes_written += report.kernels[k].scheduled.numbers.bytes_written;
  }
}

// Sets the number of threads and steps for a launch group's subdomains, which run together.
void share_work(PlanData& plan, const compiler::Target& target, const LaunchOptions& options) {
  for (std::size_t first = 0, end = 0; first < plan.launches.size(); first = end) {
    std::int64_t items = 0, work = 0, bytes = 0;
    std::size_t words = 0;
    for (end = first; end < plan.launches.size() && plan.launches[end].group == plan.launches[first].group; ++end) {
      const Launch& launch = plan.launches[end];
      items += launch.items, work += launch.work, bytes += launch.bytes, words += launch.words.size();
    }
    const int threads = work >= compiler::ScheduleOptions::kThreadedWork
                            ? static_cast<int>(std::clamp<std::int64_t>(options.threads, 1, std::max<std::int64_t>(items, 1)))
                            : 1;
    // Few subdomains advance in steps that fit in half of the second-level cache. Many subdomains run one after another.
    std::int64_t steps = end - first <= 8 ? std::min(bytes / (target.l2_bytes / 2) + 1, items) : 1;
    if (threads > 1) steps = std::max<std::int64_t>(steps, 4 * threads);
    if (options.stoppable) steps = std::max(steps, std::min(items, work / StopCheck::kWork));
    for (std::size_t k = first; k < end; ++k) {
      Launch& launch = plan.launches[k];
      launch.threads = threads;
      if (launch.strips_of_outer == 0) launch.steps = steps;
      else launch.beside_bytes = round_up(launch.held_bytes + static_cast<std::int64_t>(words * sizeof(std::int64_t)));
    }
    plan.most_words = std::max(plan.most_words, words);
  }
}

}  // namespace

void share_scratch(PlanData& plan) {
  for (std::size_t first = 0, end = 0; first < plan.launches.size(); first = end) {
    std::int64_t scratch = 0, shared = 0;
    for (end = first; end < plan.launches.size() && plan.launches[end].group == plan.launches[first].group; ++end) {
      scratch = std::max(scratch, plan.launches[end].scratch_bytes);
      shared = std::max(shared, plan.launches[end].shared_bytes);
    }
    for (std::size_t k = first; k < end; ++k) plan.launches[k].scratch_bytes = scratch;
    plan.scratch_bytes =
        std::max(plan.scratch_bytes, (plan.launches[first].beside_bytes + scratch) * plan.launches[first].threads + shared);
  }
}

namespace {

Graph optimized(const PlanData& plan, const Graph& recorded, const LaunchOptions& options, std::vector<NodeId>& places) {
  const compiler::PassOptions passes = passes_of(plan, options);
  if (!profile::on()) [[likely]]
    return compiler::optimize(recorded, passes, places);
  const compiler::PassObserver observer = [](const compiler::PassDone& done) {
    const std::int64_t end = os::nanoseconds();
    if (done.ran) profile::add({profile::Kind::Pass, done.pass.name.data(), end - done.nanoseconds, end, 0, done.graph.size()});
  };
  return compiler::optimize(recorded, passes, places, &observer);
}

}  // namespace

void make_launches(PlanData& plan, PlanReport& report, const compiler::Target& target, const LaunchOptions& options,
                   const compiler::Structure* analysed) try {
  const std::int64_t start = os::nanoseconds();
  compiler::set_verified_points(os::for_tests().verified_points);
  std::vector<NodeId> places;  // empty if analyzed: shape-generic analyses have no checked indices
  bool unfused = options.unfused || plan.refused;
  if (!analysed) report.optimised = optimized(plan, report.recorded, options, places);
  const std::int64_t passed = analysed ? start : os::nanoseconds();
  std::optional<StoredValues> stored(std::in_place, report.optimised, plan, options.array_bytes);
  if (!analysed) report.partition = partition_of(report.optimised, *stored, places, unfused);
  else check_taken_over(plan, report, options);
  const std::int64_t fused = analysed ? passed : os::nanoseconds();
  if (!analysed && profile::on()) profile::add({profile::Kind::Fuse, "fuse", passed, fused, 0, 0});
  const compiler::ScheduleOptions how{
      .threads = options.threads, .aligned_stores = options.aligned_stores, .item_work = options.stoppable ? StopCheck::kWork : 0};
  std::vector<std::vector<compiler::Planned>> groups;
  std::string wrong = plan_groups(report, stored->layouts(), analysed, target, how, groups);
  if (!wrong.empty() && !unfused) {
    note_refusal(wrong);
    plan.refused = unfused = true;
    plan.outputs = plan.targets;
    LaunchOptions one_by_one = options;
    one_by_one.unfused = true;
    report.optimised = optimized(plan, report.recorded, one_by_one, places);
    stored.emplace(report.optimised, plan, options.array_bytes);
    report.partition = partition_of(report.optimised, *stored, places, true);
    wrong = plan_groups(report, stored->layouts(), nullptr, target, how, groups);
  }
  if (!wrong.empty()) throw PlanRefused(wrong);
  const Graph& graph = report.optimised;
  StoredValues& values = *stored;
  values.assemble(report.partition.lists);
  plan.indexes = !places.empty();
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    add_kernels(report, g, std::move(groups[g]), target, how,
                [&](const compiler::Planned& piece) { return written_in_place(piece, values, options); });
  if (!unfused) arrange_strips(report, values, target, how);
  plan.kernels = static_cast<std::int64_t>(report.kernels.size());
  place_intermediates(plan, report, options, values);
  add_launches(plan, report, target, values);
  plan.groups = 0;
  for (std::size_t k = 0; k < plan.launches.size(); ++k) plan.groups += k == 0 || plan.launches[k].group != plan.launches[k - 1].group;
  share_work(plan, target, options);
  share_scratch(plan);

  if (plan.launches.size() == 1) allow_in_place(plan, graph, places, report.kernels[0].planned);
  else plan.in_place.assign(plan.inputs.size() * plan.outputs.size(), 0);  // a later kernel may also read the input
  const std::int64_t end = os::nanoseconds();
  plan.stages.passes = passed - start, plan.stages.fuse = fused - passed, plan.stages.plan = end - fused;
  if (profile::on()) profile::add({profile::Kind::Plan, "plan and schedule", fused, end, 0, 0});
} catch (const PlanRefused&) {
  plan.refused = true;
  throw;
}

void allow_in_place(PlanData& plan, const Graph& graph, std::span<const NodeId> places, const compiler::Planned& only) {
  const std::size_t inputs = plan.inputs.size(), outputs = plan.outputs.size();
  plan.in_place.assign(inputs * outputs, 0);
  const Aliasing aliasing(only, true);
  std::vector<bool> is_index(graph.size(), false);  // needed again to report an invalid index
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

}  // namespace onepass::runtime
