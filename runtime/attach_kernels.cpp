// Attaches kernels to a plan's launches: the generic kernels first, specialized kernels later. Declared in launch.h: `attach_kernels` and
// `attach_specialised`.
#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/plan/costs.h"
#include "runtime/launch.h"
#include "runtime/log.h"
#include "runtime/record.h"
#include "runtime/routine.h"
#include "runtime/speed.h"

namespace onepass::runtime {

namespace {

// A launch group with more subdomains keeps its generic kernels, because many subdomains share one body with different parameters.
constexpr std::size_t kMostSpecialisedPieces = 8;

// True if the launch can have a kernel specialized on its parameters.
bool can_specialise(const PlanData& plan, std::size_t k) {
  const std::vector<Launch>& all = plan.launches;
  std::size_t first = k, end = k + 1;
  while (first > 0 && all[first - 1].group == all[k].group && end - first <= kMostSpecialisedPieces) --first;
  while (end < all.size() && all[end].group == all[k].group && end - first <= kMostSpecialisedPieces) ++end;
  return end - first <= kMostSpecialisedPieces &&
         std::all_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Launch& l) { return l.items != 0 && !l.is_routine && !l.is_steps; });
}

// Finds or compiles generic kernels for the selected kernels of the report.
int attach(PlanData& plan, PlanReport& report, const compiler::Target& target, const std::vector<bool>& wanted, const Attaching& how) {
  std::vector<KernelRequest> requests;
  std::vector<std::size_t> place(report.kernels.size());
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    if (!wanted[k] || report.kernels[k].planned.nest.is_in_library()) continue;
    const KernelReport& kernel = report.kernels[k];
    place[k] = requests.size();
    requests.push_back({kernel.key,
                        {.nest = &kernel.planned.nest, .schedule = &kernel.scheduled.schedule, .target = &target},
                        how.counts,
                        {},
                        how.optimised,
                        symbol_of(report, kernel)});
  }
  for (const Launch& launch : plan.launches)
    if (wanted[launch.of] && launch.items != 0 && !launch.is_routine)
      requests[place[launch.of]].runs.push_back(
          {launch.words, static_cast<double>(launch.work), static_cast<double>(launch.bytes), launch.threads});
  const std::vector<KernelResult> found = find_or_compile(requests, how.threads, how.may_compile, how.wait);
  const double speed = machine_speed();
  int compiled = 0;
  for (Launch& launch : plan.launches)
    if (launch.is_routine) {
      launch.kernel = routine_kernel(report.kernels[launch.of].planned.nest);
      launch.expected = launch.work / std::max(launch.threads, 1);
    } else if (wanted[launch.of]) {
      launch.kernel = found[place[launch.of]].kernel;
      launch.expected = static_cast<std::int64_t>(
          speed * launch.kernel->optimised_time(static_cast<double>(launch.work), static_cast<double>(launch.bytes)) /
          std::max(launch.threads, 1));
      if (const compiler::TileProgram* const tiles = launch.kernel->tiles())
        launch.scratch_bytes = std::max(launch.scratch_bytes, tiles->scratch_bytes());
    }
  share_scratch(plan);
  for (std::size_t k = 0; k < report.kernels.size(); ++k) {
    if (!wanted[k]) continue;
    if (report.kernels[k].planned.nest.is_in_library()) {
      report.kernels[k].outcome = CacheOutcome::memory;
      continue;
    }
    const KernelResult& result = found[place[k]];
    report.kernels[k].from_cache = !result.compiled;
    report.kernels[k].outcome = result.outcome;
    report.kernels[k].in_tiles = result.kernel->tiles() != nullptr;
    report.kernels[k].compile_ms = result.compiled ? result.kernel->compile_ms() : 0;
    compiled += result.compiled;
  }
  return compiled;
}

}  // namespace

int attach_kernels(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how) {
  return attach(plan, report, target, std::vector<bool>(report.kernels.size(), true), how);
}

int attach_unspecialised(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how) {
  std::vector<bool> wanted(report.kernels.size(), false);
  for (std::size_t k = 0; k < plan.launches.size(); ++k)
    if (plan.launches[k].items != 0 && !can_specialise(plan, k)) wanted[plan.launches[k].of] = true;
  return attach(plan, report, target, wanted, how);
}

std::int64_t runs_until_hot(const PlanData& plan) {
  constexpr double kFewest = 3, kMost = 1e15;
  double saved = 0, compile = 0;  // nanoseconds: saved by each run; compile time of the kernels
  for (std::size_t k = 0; k < plan.launches.size(); ++k) {
    const Launch& launch = plan.launches[k];
    if (!launch.kernel || !can_specialise(plan, k)) continue;
    saved += static_cast<double>(launch.expected) * launch.saved_if_specialised;
    compile += static_cast<double>(launch.kernel->account().compile()) * launch.specialised_compile;
  }
  return static_cast<std::int64_t>(std::clamp(compile / std::max(saved, 1e-3), kFewest, kMost));
}

// ------------------------------------------------------------------------------------------------ specialized kernels

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
  // The best runs are compared, because other runs include noise from other processes. A tie favors the specialized kernel, which is
  // already built.
  state_.store(special <= generic ? State::Used : State::Dropped, std::memory_order_release);
  log(LogLevel::debug, "a specialized kernel took {} ns in its trial, the generic kernel took {} ns; the specialized kernel is {}", special,
      generic, special <= generic ? "used" : "dropped");
}

int attach_specialised(const PlanData& plan, const PlanReport& report, const compiler::Target& target, const Attaching& how, bool trial) {
  std::vector<compiler::KnownWords> known;
  std::vector<KernelRequest> requests;
  std::vector<std::size_t> launch_of;
  known.reserve(plan.launches.size());  // requests point to its elements
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
                        {.nest = &nest, .schedule = &schedule, .target = &target, .known = &known.back()},
                        how.counts,
                        {},
                        false,
                        symbol_of(report, kernel)});
    launch_of.push_back(k);
  }
  const std::vector<KernelResult> found = find_or_compile(requests, how.threads, how.may_compile, how.wait);
  int compiled = 0;
  for (std::size_t i = found.size(); i-- > 0;) {  // the first launch of a launch group last: its state then implies that all are ready
    const Launch& launch = plan.launches[launch_of[i]];
    if (trial) launch.kernel->optimise_soon();  // the trial compares with this code
    launch.specialised->publish(found[i].kernel, trial);
    compiled += found[i].compiled;
  }
  return compiled;
}

}  // namespace onepass::runtime
