// Structures: what a program's recordings have in common (compiler/structure), those used last first. A new length of a known structure is
// recorded and planned; no pass runs again.
#pragma once

#include <memory>
#include <vector>

#include "compiler/structure.h"
#include "runtime/fork.h"
#include "runtime/launch.h"

namespace onepass::runtime {

class Structures {
 public:
  /// Fills in what the passes would make of `report.recorded`. No structure: they have to run.
  compiler::OfStructure take_over(PlanReport& report);
  /// What they made of it, for others.
  void add(const PlanReport& report, const Relax& relax);
  void clear();

 private:
  static constexpr std::size_t kMost = 8, kMostNodes = std::size_t{1} << 18;  // a recording of more nodes is not kept
  using Pointer = std::shared_ptr<const compiler::Structure>;
  TableMutex mutex_;
  std::vector<Pointer> all_;

  void put_first(Pointer structure);
};

}  // namespace onepass::runtime
