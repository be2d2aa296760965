// See structures.h. Shape-generic analyses are immutable, so graphs are compared and copied without a lock.
#include "runtime/structures.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace onepass::runtime {

compiler::OfStructure Structures::take_over(PlanReport& report, const compiler::IsBrought& is_brought) {
  std::vector<Pointer> known;
  {
    const std::lock_guard lock(mutex_);
    known = all_;
  }
  for (std::size_t i = 0; i < known.size(); ++i) {
    std::optional<compiler::Lengths> lengths = known[i]->lengths_of(report.recorded, is_brought);
    if (!lengths) continue;
    report.optimised = known[i]->optimised(*lengths);
    report.optimised.slots = report.recorded.slots;
    report.partition = known[i]->partition(*lengths);
    if (i > 0) put_first(known[i]);
    return {std::move(known[i]), std::move(*lengths)};
  }
  return {};
}

void Structures::add(const PlanReport& report, const Relax& relax, const compiler::IsBrought& is_brought) {
  if (report.recorded.size() + report.optimised.size() > kMostNodes) return;
  Pointer structure = compiler::Structure::of(report.recorded, report.optimised, report.partition, relax, is_brought);
  if (structure) put_first(std::move(structure));
}

void Structures::clear() {
  const std::lock_guard lock(mutex_);
  all_.clear();
}

void Structures::put_first(Pointer structure) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(all_, structure);
  if (known == all_.end()) {
    if (all_.size() < kMost) all_.emplace_back();
    all_.back() = std::move(structure);
    std::rotate(all_.begin(), all_.end() - 1, all_.end());
  } else {
    std::rotate(all_.begin(), known, known + 1);
  }
}

}  // namespace onepass::runtime
