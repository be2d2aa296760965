// The rule for when a kernel is compiled, and in which tier. It uses no clock, compiler or thread, so that tests can simulate them.
// docs/runtime.md states the rule ("Tiers").
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace onepass::runtime {

/// Estimates for one kernel, in nanoseconds: one run in each tier, and the compile. They choose tiers and do not affect results.
struct TierCosts {
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double tiles = kNever;  // kNever: the kernel does not support the tiled interpreter
  double quick = 0, optimised = 0;
  double compile_quick = 0, compile_optimised = 0;
};

/// Tiles       the tiled interpreter: precompiled loops of the library
/// Quick       the baseline tier, compiled without optimization
/// Optimised   the final code
enum class TierChoice : std::uint8_t { Tiles, Quick, Optimised };

/// The account that decides when the optimized tier is compiled. Runs in a slower tier are timed and summed. If the sum reaches kHurry of
/// the estimated compile, the compile gets normal priority, and runs use one thread fewer. A run waits for the compile if the sum exceeds
///   max(kWait e + p, 2 p),   e: the estimated compile, p: the processor time that it has got,
/// that is, if the compile got less than half of a processor.
///
/// For n runs, each of which takes s in the optimized tier,
///   total <= n s + 3 c + one run in the tier that the kernel begins with,
/// where c is the compile time while a run waits, if e <= 4 c. If a run waits, kWait e + p + (c - p) <= 3 c, and 2 p + (c - p) <= 2 c.
/// With a good estimate it is n s + 2 c, or n s + 1.25 c if the compile gets a processor.
class TierAccount {
 public:
  static constexpr double kHurry = 0.25, kWait = 0.5;  // fractions of the estimated compile
  /// Yield: like Hurry, and the run also leaves a processor to the compile.
  enum class Due : std::uint8_t { Nothing, InBackground, Hurry, Yield, Wait };

  explicit TierAccount(double compile_nanoseconds) : compile_(static_cast<std::int64_t>(std::min(compile_nanoseconds, 1e18))) {}
  std::int64_t compile() const { return compile_; }

  /// Decides before a run in a slower tier. `longer`: relative slowdown with one thread fewer; infinite if that frees no processor.
  /// `compiled`: returns the nanoseconds of processor time of the compile so far; called only if needed. `also`: what the compile takes
  /// in addition to compile().
  template <class Compiled> Due before_run(double longer, Compiled&& compiled, double also = 0) {
    const std::int64_t runs = runs_.fetch_add(1, std::memory_order_relaxed);
    if (runs == 0) return Due::Nothing;  // the kernel's tier was just chosen
    const double compile = static_cast<double>(this->compile()) + also, spent = static_cast<double>(this->spent());
    if (spent < kHurry * compile) return Due::InBackground;  // a second run suggests that more will follow
    const double run = std::max(static_cast<double>(ran_.load(std::memory_order_relaxed)) / static_cast<double>(runs), 1.0);
    const double with_yield = spent + longer * run;
    double most = kWait * compile;
    if (with_yield >= most) {
      const double got = compiled();
      most = std::max(most + got, 2 * got);
    }
    return with_yield < most ? Due::Yield : spent < most ? Due::Hurry : Due::Wait;
  }
  /// Records the time of a run, or of a part, in a slower tier.
  void ran(std::int64_t nanoseconds) {
    ran_.fetch_add(nanoseconds, std::memory_order_relaxed);
    add(nanoseconds);
  }
  /// Adds other time lost to slower tiers: in earlier processes, or compiling for them.
  void add(std::int64_t nanoseconds) { spent_.fetch_add(nanoseconds, std::memory_order_relaxed); }
  /// Returns the sum in nanoseconds.
  std::int64_t spent() const { return spent_.load(std::memory_order_relaxed); }

  static constexpr double kCheaper = 0.67;  // first run in a slower tier: highest cost relative to an optimized run, compiles included
  /// Returns the tier with the cheapest first run, including the compile. Returns `Optimised` if it is nearly the cheapest tier, because
  /// more runs are likely, or if earlier processes have lost enough time.
  static TierChoice first(const TierCosts& costs, std::int64_t spent_before, bool has_quick = false) {
    if (static_cast<double>(spent_before) >= kWait * costs.compile_optimised && spent_before > 0) return TierChoice::Optimised;
    const double quick = costs.quick + (has_quick ? 0 : costs.compile_quick),
                 optimised = kCheaper * (costs.optimised + costs.compile_optimised);
    if (!has_quick && costs.tiles <= std::min(quick, optimised)) return TierChoice::Tiles;
    return quick <= optimised ? TierChoice::Quick : TierChoice::Optimised;
  }

 private:
  std::atomic<std::int64_t> runs_{0}, ran_{0}, spent_{0};
  const std::int64_t compile_;  // estimated nanoseconds
};

}  // namespace onepass::runtime
