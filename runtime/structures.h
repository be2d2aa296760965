// The shape-generic analyses of a program's recordings (compiler/structure), most recently used first. A recording with new lengths
// reuses an analysis; no pass runs again.
#pragma once

#include <memory>
#include <vector>

#include "compiler/structure.h"
#include "runtime/fork.h"
#include "runtime/launch.h"

namespace onepass::runtime {

class Structures {
 public:
  /// Sets the results of the passes for `report.recorded` from an analysis. Returns an empty analysis if the passes must run.
  compiler::OfStructure take_over(PlanReport& report, const compiler::IsBrought& is_brought);
  /// Adds the analysis of this report for later recordings.
  void add(const PlanReport& report, const Relax& relax, const compiler::IsBrought& is_brought);
  void clear();

 private:
  static constexpr std::size_t kMost = 8, kMostNodes = std::size_t{1} << 18;  // larger recordings are not kept
  using Pointer = std::shared_ptr<const compiler::Structure>;
  TableMutex mutex_;
  std::vector<Pointer> all_;

  void put_first(Pointer structure);
};

}  // namespace onepass::runtime
