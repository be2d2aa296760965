// When a kernel is compiled, and in which tier. No clock, no compiler, no thread: the rule alone, so that it can be tested with simulated
// ones. docs/runtime.md states it ("Tiers").
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace onepass::runtime {

/// Estimates for one kernel, in nanoseconds: of one run in each tier, and of compiling it. They choose tiers, never bits.
struct TierCosts {
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double tiles = kNever;  // kNever: the kernel cannot run in tiles
  double quick = 0, optimised = 0;
  double compile_quick = 0, compile_optimised = 0;
};

/// Tiles       loops that are compiled with the library
/// Quick       the kernel, compiled without optimisation
/// Optimised   the code that it keeps
enum class TierChoice : std::uint8_t { Tiles, Quick, Optimised };

/// What a kernel's optimised tier is compiled for: runs in a slower one are timed, and their time is added up. By the time when that sum
/// is a part of the estimated compile, the compile gets the processor like any other thread; at twice that the next run waits for it.
///
/// Both parts are small enough for estimates that are wrong by a factor of four: for n runs, each of which takes s in the optimised tier,
///   total <= n s + 3 c + one run in the tier that the kernel begins with,
/// c being what the compile takes while somebody waits for it. With a good estimate it is n s + 1.5 c.
class TierAccount {
 public:
  static constexpr double kHurry = 0.25, kWait = 0.5;  // parts of the estimated compile
  enum class Due : std::uint8_t { Nothing, InBackground, Hurry, Wait };

  explicit TierAccount(double compile_nanoseconds) : compile_(static_cast<std::int64_t>(std::min(compile_nanoseconds, 1e18))) {}
  std::int64_t compile() const { return compile_; }

  /// Before a run in a slower tier.
  Due before_run() {
    const std::int64_t runs = runs_.fetch_add(1, std::memory_order_relaxed), spent = this->spent();
    const auto compile = static_cast<double>(this->compile());
    if (runs == 0) return Due::Nothing;  // its tier was chosen just now
    if (static_cast<double>(spent) >= kWait * compile) return Due::Wait;
    if (static_cast<double>(spent) >= kHurry * compile) return Due::Hurry;
    return Due::InBackground;  // a second run says that there may be more
  }
  void add(std::int64_t nanoseconds) { spent_.fetch_add(nanoseconds, std::memory_order_relaxed); }
  /// Nanoseconds of all runs in slower tiers, those of earlier processes too.
  std::int64_t spent() const { return spent_.load(std::memory_order_relaxed); }

  static constexpr double kCheaper = 0.67;  // what a slower tier's first run costs beside an optimised one's, compiles included, or less
  /// The tier of the first run: the one that makes it cheapest, compile included. Optimised where it is nearly that, since there may be more
  /// runs, and where earlier processes have paid.
  static TierChoice first(const TierCosts& costs, std::int64_t spent_before, bool has_quick = false) {
    if (static_cast<double>(spent_before) >= kWait * costs.compile_optimised && spent_before > 0) return TierChoice::Optimised;
    const double quick = costs.quick + (has_quick ? 0 : costs.compile_quick),
                 optimised = kCheaper * (costs.optimised + costs.compile_optimised);
    if (!has_quick && costs.tiles <= std::min(quick, optimised)) return TierChoice::Tiles;
    return quick <= optimised ? TierChoice::Quick : TierChoice::Optimised;
  }

 private:
  std::atomic<std::int64_t> runs_{0}, spent_{0};
  const std::int64_t compile_;  // nanoseconds, about
};

}  // namespace onepass::runtime
