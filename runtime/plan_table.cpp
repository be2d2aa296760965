// See plan_table.h.
#include "runtime/plan_table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/cuda/device_plan.h"

namespace onepass::runtime {

namespace {

// Adds the counters of a plan to `to`.
void add(Stats& to, const LaunchPlan& plan) {
  const std::int64_t runs = plan.runs.load(std::memory_order_relaxed);
  to.calls += runs;
  to.launches += runs * plan.groups;
  to.bytes_read += runs * plan.bytes_read;
  to.bytes_written += runs * plan.bytes_written;
  to.bytes_allocated += runs * plan.bytes_allocated;
  to.dropped += std::ranges::any_of(plan.launches, [](const Launch& l) { return l.specialised->state() == Specialised::State::Dropped; }) ||
                (plan.on_device && plan.on_device->specialised() == Specialised::State::Dropped);
}

}  // namespace

PlanPointer PlanTable::find(const CallSite& site, const Signature& signature) {
  const std::lock_guard lock(mutex_);
  const auto family = families_.find(signature.family);
  if (family == families_.end()) return nullptr;
  const auto [begin, end] = by_hash_.equal_range(hash_of(signature, family->second.pinned));
  for (auto it = begin; it != end; ++it) {
    if (!matches(site, **it->second)) continue;
    order_.splice(order_.begin(), order_, it->second);
    return *it->second;
  }
  return nullptr;
}

PlanPointer PlanTable::insert(const CallSite& site, const Signature& signature, std::shared_ptr<LaunchPlan> plan) {
  std::list<PlanPointer> gone;
  const std::lock_guard lock(mutex_);
  Family& family = families_[signature.family];
  // The specialized values of a family only grow, so that one lookup finds a plan. Plans with fewer specialized values are evicted
  // eventually.
  family.pinned.resize(signature.values.size());
  for (std::size_t i = 0; i < family.pinned.size(); ++i) family.pinned[i] = plan->pinned[i] = family.pinned[i] || plan->pinned[i];
  plan->family = signature.family;
  plan->hash = hash_of(signature, family.pinned);
  const auto [begin, end] = by_hash_.equal_range(plan->hash);
  for (auto it = begin; it != end; ++it)
    if (matches(site, **it->second)) return *it->second;
  plan->was_forgotten = forgotten_.contains(plan->hash);
  order_.push_front(plan);
  try {
    by_hash_.emplace(plan->hash, order_.begin());
  } catch (...) {
    order_.pop_front();
    throw;
  }
  ++family.plans;
  cost_ += plan->cost();
  while (order_.size() > 1 && (order_.size() > kMost || cost_ > kMostNodes)) {
    if (forgotten_.size() >= kMostForgotten) forgotten_.clear();
    forgotten_.insert(order_.back()->hash);
    evict(std::prev(order_.end()));
  }
  if (evicted_.size() > kMostEvicted) gone = fold();
  return plan;
}

void PlanTable::evict(std::list<PlanPointer>::iterator victim) {
  const auto [begin, end] = by_hash_.equal_range((*victim)->hash);
  for (auto it = begin; it != end; ++it)
    if (it->second == victim) {
      by_hash_.erase(it);
      break;
    }
  if (const auto it = families_.find((*victim)->family); --it->second.plans == 0) families_.erase(it);
  cost_ -= (*victim)->cost();
  ++totals_.forgotten;
  evicted_.splice(evicted_.end(), order_, victim);
}

// Adds the counters of plans that no thread can run to the totals, and returns these plans. The caller must destroy them without a lock:
// captured values may run user code, and the destructor waits for a device's kernels.
std::list<PlanPointer> PlanTable::fold() {
  std::list<PlanPointer> gone;
  for (auto it = evicted_.begin(); it != evicted_.end();) {
    const auto plan = it++;
    if (plan->use_count() != 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // synchronizes with the last release, so that the counters are complete
    add(totals_, **plan);
    gone.splice(gone.end(), evicted_, plan);
  }
  return gone;
}

PlanPointer PlanTable::with_id(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  for (const PlanPointer& plan : order_)
    if (plan->id == id) return plan;
  for (const PlanPointer& plan : evicted_)
    if (plan->id == id) return plan;
  return nullptr;
}

std::vector<PlanPointer> PlanTable::all() const {
  const std::lock_guard lock(mutex_);
  return {order_.begin(), order_.end()};
}

void PlanTable::forget(const LaunchPlan& plan) {
  std::list<PlanPointer> gone;
  const std::lock_guard lock(mutex_);
  for (auto it = order_.begin(); it != order_.end(); ++it)
    if (it->get() == &plan) {
      evict(it);
      --totals_.forgotten;  // not an eviction for space
      break;
    }
  if (evicted_.size() > kMostEvicted) gone = fold();
}

void PlanTable::clear() {
  std::list<PlanPointer> gone;
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) evict(std::prev(order_.end()));
  gone = fold();
}

void PlanTable::release_captured() {
  for (const PlanPointer& plan : order_) plan->captured.clear();
  for (const PlanPointer& plan : evicted_) plan->captured.clear();
}

void PlanTable::count_made(const LaunchPlan& plan, const PlanReport& report, bool analysed, int compiled, int specialised) {
  constexpr std::size_t kMostKernels = 65'536;
  const std::lock_guard lock(mutex_);
  ++totals_.recordings;
  totals_.analysed += analysed;
  totals_.fallbacks += plan.refused;
  totals_.compiles += compiled;
  totals_.cache_hits +=
      std::max<std::int64_t>(plan.kernels - compiled - specialised, 0);  // on a GPU each kernel may be compiled in both forms
  const auto count_kernel = [&](const std::string& key) {
    if (kernels_.size() < kMostKernels) kernels_.insert(std::hash<std::string>()(key));
  };
  for (const KernelReport& kernel : report.kernels) count_kernel(kernel.key);
  if (plan.on_device)
    for (const cuda::DevicePlan::KernelInfo& kernel : plan.on_device->kernels()) count_kernel("cuda" + kernel.key);
}

Stats PlanTable::stats() const {
  const std::lock_guard lock(mutex_);
  Stats s = totals_;
  for (const PlanPointer& plan : order_) add(s, *plan);
  for (const PlanPointer& plan : evicted_) add(s, *plan);
  s.kernels = static_cast<std::int64_t>(kernels_.size());
  s.plans = static_cast<std::int64_t>(order_.size());
  return s;
}

}  // namespace onepass::runtime
