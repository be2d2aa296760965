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

/// What a kernel's optimised tier is compiled for: runs in a slower one are timed, and their time is added up. When that sum is kHurry of
/// the estimated compile, the compile gets the processor like any other thread, and runs leave it a processor: they have one thread fewer.
/// A run waits for the compile once the sum is more than
///   max(kWait e + p, 2 p),   e: the estimated compile, p: the processor time that it has got,
/// that is where the compile got less than half of a processor.
///
/// So for n runs, each of which takes s in the optimised tier,
///   total <= n s + 3 c + one run in the tier that the kernel begins with,
/// c being what the compile takes while somebody waits for it, if e <= 4 c: where a run waits, kWait e + p + (c - p) <= 3 c, and 2 p + (c - p)
/// <= 2 c. With a good estimate it is n s + 2 c, or n s + 1.25 c where the compile gets a processor.
class TierAccount {
 public:
  static constexpr double kHurry = 0.25, kWait = 0.5;  // parts of the estimated compile
  /// Yield: as Hurry, and the run leaves the compile a processor.
  enum class Due : std::uint8_t { Nothing, InBackground, Hurry, Yield, Wait };

  explicit TierAccount(double compile_nanoseconds) : compile_(static_cast<std::int64_t>(std::min(compile_nanoseconds, 1e18))) {}
  std::int64_t compile() const { return compile_; }

  /// Before a run in a slower tier. `longer`: by what part it takes longer with one thread fewer; infinite where it would leave nobody a
  /// processor. `compiled`: gives the nanoseconds of processor time that the compile has got; asked where they decide.
  template <class Compiled> Due before_run(double longer, Compiled&& compiled) {
    const std::int64_t runs = runs_.fetch_add(1, std::memory_order_relaxed);
    if (runs == 0) return Due::Nothing;  // its tier was chosen just now
    const auto compile = static_cast<double>(this->compile()), spent = static_cast<double>(this->spent());
    if (spent < kHurry * compile) return Due::InBackground;  // a second run says that there may be more
    const double run = std::max(static_cast<double>(ran_.load(std::memory_order_relaxed)) / static_cast<double>(runs), 1.0);
    const double with_yield = spent + longer * run;
    double most = kWait * compile;
    if (with_yield >= most) {
      const double got = compiled();
      most = std::max(most + got, 2 * got);
    }
    return with_yield < most ? Due::Yield : spent < most ? Due::Hurry : Due::Wait;
  }
  /// A run in a slower tier took so long, or a part of it.
  void ran(std::int64_t nanoseconds) {
    ran_.fetch_add(nanoseconds, std::memory_order_relaxed);
    add(nanoseconds);
  }
  /// What else is lost to slower tiers: in earlier processes, by compiling for them.
  void add(std::int64_t nanoseconds) { spent_.fetch_add(nanoseconds, std::memory_order_relaxed); }
  /// Nanoseconds of all that.
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
  std::atomic<std::int64_t> runs_{0}, ran_{0}, spent_{0};
  const std::int64_t compile_;  // nanoseconds, about
};

}  // namespace onepass::runtime
