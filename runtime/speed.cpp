// See speed.h.
#include "runtime/speed.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <optional>

#include "runtime/disk_cache.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/threads.h"

namespace onepass::runtime {

namespace {

constexpr double kMost = 8, kWeight = 0.25;  // weight of a new observation

constinit std::atomic<double> learned{0};  // 0: no observation yet
constexpr double kFirstCompile = 8e6;      // nanoseconds
constinit std::atomic<bool> has_compiled{false};

// Returns the value from an earlier process; 0 if there is none.
double kept() {
  static const double speed = [] {
    const std::optional<double> found = disk_cache().figure(DiskCache::Figure::speed);
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

// Averages logarithms, so that a compile of twice the time counts as much as a compile of half the time.
void note_speed(double estimate, double nanoseconds) noexcept try {
  has_compiled.store(true, std::memory_order_relaxed);
  if (!(estimate > 0) || !(nanoseconds > 0)) return;
  const double now = std::clamp(nanoseconds / estimate, 1 / kMost, kMost), before = machine_speed();
  const bool is_first = learned.load(std::memory_order_relaxed) == 0 && kept() == 0;
  learned.store(is_first ? now : before * std::pow(now / before, kWeight), std::memory_order_relaxed);
} catch (const std::bad_alloc&) {}  // NOLINT: no memory to read an earlier figure from disk

double of_first_compile() noexcept { return has_compiled.load(std::memory_order_relaxed) ? 0 : kFirstCompile; }

void keep_speed() {
  const double speed = learned.load(std::memory_order_relaxed);
  if (speed > 0 && (kept() == 0 || std::abs(std::log(speed / kept())) > 0.1)) disk_cache().keep(DiskCache::Figure::speed, speed);
}

double copy_bandwidth() noexcept {
  static const double measured = []() -> double {
    try {
      if (const std::optional<double> found = disk_cache().figure(DiskCache::Figure::copy); found && *found > 0) return *found;
      constexpr int kRounds = 4;  // the first round only touches the memory
      const std::size_t bytes = std::max<std::size_t>(std::size_t{32} << 20, 2 * os::cache_sizes().l3);
      if (4 * bytes > os::memory_bytes()) return 0;
      const memory::Buffer from(bytes), to(bytes);
      std::memset(from.data(), 1, bytes);
      std::int64_t best = 0;
      for (int round = 0; round < kRounds; ++round) {
        const std::int64_t start = os::nanoseconds();
        threads::parallel_for(static_cast<std::int64_t>(bytes), os::usable_cores(), [&](std::int64_t begin, std::int64_t end, int) {
          std::memcpy(static_cast<std::byte*>(to.data()) + begin, static_cast<const std::byte*>(from.data()) + begin,
                      static_cast<std::size_t>(end - begin));
        });
        const std::int64_t took = os::nanoseconds() - start;
        if (round > 0 && (best == 0 || took < best)) best = took;
      }
      const double found = best > 0 ? 2 * static_cast<double>(bytes) / static_cast<double>(best) : 0;
      if (found > 0) disk_cache().keep(DiskCache::Figure::copy, found);
      return found;
    } catch (const std::exception&) { return 0; }  // NOLINT: no memory for the copy
  }();
  return measured;
}

}  // namespace onepass::runtime
