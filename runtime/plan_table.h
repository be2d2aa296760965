// The plans of one program, most recently used first. Calls find their plan by signature. If there are too many plans or they use too much
// memory, the table evicts the least recently used plans. Also sums the plans' counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onepass/runtime.h"
#include "runtime/fork.h"
#include "runtime/launch.h"
#include "runtime/signature.h"

namespace onepass::runtime {

using PlanPointer = std::shared_ptr<const LaunchPlan>;

class PlanTable {
 public:
  /// Returns the plan; null if there is none.
  PlanPointer find(const CallSite& site, const Signature& signature);
  /// Inserts the plan, or returns the plan that another thread inserted for this call site and signature in the meantime.
  PlanPointer insert(const CallSite& site, const Signature& signature, std::shared_ptr<LaunchPlan> plan);
  /// Finds a plan in the table or in a thread's recent plans. Returns null if there is none.
  PlanPointer with_id(std::uint64_t id) const;
  std::vector<PlanPointer> all() const;
  /// Removes the plan, so that the next call of this signature makes a new plan.
  void forget(const LaunchPlan& plan);
  void clear();
  /// Releases captured arrays when no call can run the plans, although threads may still refer to them.
  void release_captured();

  /// Counts a new plan, with its compiled generic and specialized kernels. `analysed`: the passes ran for it.
  void count_made(const LaunchPlan& plan, const PlanReport& report, bool analysed, int compiled, int specialised);
  /// Returns the counters of the table and its plans; all other counters are 0.
  Stats stats() const;

 private:
  static constexpr std::size_t kMost = 1024, kMostNodes = std::size_t{4} << 20;  // kMostNodes is in the units of LaunchPlan::cost
  static constexpr std::size_t kMostEvicted = 64;                                // minimum before they are scanned
  static constexpr std::size_t kMostForgotten = 65'536;
  struct Family {              // plans of one signature, ignoring number values
    std::vector<bool> pinned;  // for each number argument: true if each value has its own plans
    std::size_t plans = 0;
  };
  mutable TableMutex mutex_;  // guards all members below
  std::list<PlanPointer> order_;
  std::unordered_multimap<std::uint64_t, std::list<PlanPointer>::iterator> by_hash_;
  std::unordered_map<std::uint64_t, Family> families_;
  std::size_t cost_ = 0;
  std::unordered_set<std::uint64_t> forgotten_;  // hashes of evicted plans; may collide with plans in the table
  std::list<PlanPointer> evicted_;               // not in the table, but a thread still refers to them
  Stats totals_;                                 // except the plans' own counters
  std::unordered_set<std::size_t> kernels_;      // hashes of the kernels' keys

  void evict(std::list<PlanPointer>::iterator victim);
  [[nodiscard]] std::list<PlanPointer> fold();
};

}  // namespace onepass::runtime
