// See speed.h.
#include "runtime/speed.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "runtime/disk_cache.h"

namespace onepass::runtime {

namespace {

constexpr double kMost = 8, kWeight = 0.25;  // of a new observation

constinit std::atomic<double> learned{0};  // 0: nothing yet

// What an earlier process learned; 0: nothing.
double kept() {
  static const double speed = [] {
    const std::optional<double> found = disk_cache().speed();
    return found && *found >= 1 / kMost && *found <= kMost ? *found : 0.0;
  }();
  return speed;
}

}  // namespace

double machine_speed() {
  const double speed = learned.load(std::memory_order_relaxed);
  if (speed > 0) return speed;
  return kept() > 0 ? kept() : 1;
}

// In logarithms: a compile that took twice as long weighs as much as one that took half.
void note_speed(double estimate, double nanoseconds) noexcept {
  if (!(estimate > 0) || !(nanoseconds > 0)) return;
  const double now = std::clamp(nanoseconds / estimate, 1 / kMost, kMost), before = machine_speed();
  const bool is_first = learned.load(std::memory_order_relaxed) == 0 && kept() == 0;
  learned.store(is_first ? now : before * std::pow(now / before, kWeight), std::memory_order_relaxed);
}

void keep_speed() {
  const double speed = learned.load(std::memory_order_relaxed);
  if (speed > 0 && (kept() == 0 || std::abs(std::log(speed / kept())) > 0.1)) disk_cache().keep_speed(speed);
}

}  // namespace onepass::runtime
