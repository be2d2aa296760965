// The plans of one program, those used last first. Calls find theirs by signature; where there are too many, or where they hold too much
// memory, the last ones are forgotten. What plans count is added up here.
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
  /// Null: there is none.
  PlanPointer find(const CallSite& site, const Signature& signature);
  /// The plan, or the one that another thread made for such calls meanwhile.
  PlanPointer insert(const CallSite& site, const Signature& signature, std::shared_ptr<LaunchPlan> plan);
  /// Among those in the table and those that a thread may still have. Null: there is none.
  PlanPointer with_id(std::uint64_t id) const;
  std::vector<PlanPointer> all() const;
  /// The next call of this signature makes a new one.
  void forget(const LaunchPlan& plan);
  void clear();
  /// When nobody runs the plans any more, though threads may remember them: what they captured can go.
  void release_captured();

  /// A plan was made, for which `compiled` generic kernels and `specialised` of its own were compiled. `analysed`: its structure was not known.
  void count_made(const LaunchPlan& plan, const PlanReport& report, bool analysed, int compiled, int specialised);
  /// What the table and its plans count; all else is 0.
  Stats stats() const;

 private:
  static constexpr std::size_t kMost = 1024, kMostNodes = std::size_t{4} << 20;  // LaunchPlan::cost
  static constexpr std::size_t kMostEvicted = 64;                                // that are looked through no sooner
  static constexpr std::size_t kMostForgotten = 65'536;
  struct Family {              // plans of one signature but for the values of numbers
    std::vector<bool> pinned;  // by number argument: has each value plans of its own?
    std::size_t plans = 0;
  };
  mutable TableMutex mutex_;  // of everything below
  std::list<PlanPointer> order_;
  std::unordered_multimap<std::uint64_t, std::list<PlanPointer>::iterator> by_hash_;
  std::unordered_map<std::uint64_t, Family> families_;
  std::size_t cost_ = 0;
  std::unordered_set<std::uint64_t> forgotten_;  // hashes of plans that gave way; some may be of others that are there
  std::list<PlanPointer> evicted_;               // out of the table, but a thread still has them
  Stats totals_;                                 // but what the plans count themselves
  std::unordered_set<std::size_t> kernels_;      // hashes of the kernels' keys

  void evict(std::list<PlanPointer>::iterator victim);
  [[nodiscard]] std::list<PlanPointer> fold();
};

}  // namespace onepass::runtime
