// Options of a compiled function: plain values, passed to `compile`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "onepass/device.h"
#include "onepass/duration.h"
#include "onepass/shared.h"

namespace onepass {

/// adaptive     generic kernels at first, then shape-specialized kernels for shapes that are hot
/// generic      fused kernels that are independent of lengths, literals and scalar arguments
/// specialized  kernels for exact shapes, from the first call on
/// unfused      one kernel for each operator; verifies the other modes
/// reference    an interpreter, without a compiler
enum class Mode : std::uint8_t { adaptive, generic, specialized, unfused, reference };

/// Optimization level of a kernel's code. All tiers give the same bits.
///
/// quick      the baseline tier: the tiled interpreter, or quickly compiled code. Skipped if optimized code pays off at once.
/// optimized  the final code of the kernel
enum class Tier : std::uint8_t { quick, optimized };

/// Shape-specialized kernels. A hot shape gets dedicated kernels, for at most `depth` shapes of a function; other shapes use the generic
/// kernels, which are fused too. Reaching the limit is logged once.
///
/// They are compiled at idle priority during later calls or, without `in_background`, by the call that makes the shape hot. A specialized
/// kernel that is slower than the generic kernel is not used. Results have the same bits.
///
/// A shape is hot after at least three calls. Its calls must also have taken so long that the same time again would save its compile
/// time. Functions with a negative number throw ValueError.
struct Specialization {
  int depth = 20;       ///< 0: generic kernels only
  int after_calls = 0;  ///< above 0: a shape is hot after this many calls instead
  bool in_background = true;
  bool operator==(const Specialization&) const = default;
};

/// allowed  a call may compile kernels
/// never    kernels come from memory or disk; a call that needs compilation throws an Error with its signature
enum class Compile : std::uint8_t { allowed, never };

/// Relaxations of strict arithmetic, each independent (docs/language.md, "Accuracy"). docs/relaxations.md has an example of each.
struct Relax {
  bool contract = false, reassociate = false, approximate = false;
  bool operator==(const Relax&) const = default;
};

namespace detail {
#ifdef NDEBUG  // as set in the calling program
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif
}  // namespace detail

/// Bounds on the cost of a program. An error names the limit by its field name.
struct Limits {
  // formula text
  std::size_t nesting = 1000;            ///< nested brackets, prefix operators, `?:`, `**` and calls
  std::size_t name_bytes = 1024;         ///< one name
  std::size_t source_bytes = 16u << 20;  ///< the text; never more than 2 GiB
  // recording
  std::uint32_t max_nodes = 1u << 20;  ///< operators, after calls are expanded
  std::int32_t rank = 32;              ///< axes of one value; never more than 32
  // one call
  std::int64_t array_bytes = 0;  ///< one array that the call stores; 0: half the memory
  std::int64_t work = 0;         ///< element operations, by the recording's upper bound; 0: unlimited
  std::int64_t compile_ms = 0;   ///< wait for the compiler; then runs as in mode unfused, logged once. 0: unlimited
  bool operator==(const Limits&) const = default;
};

/// A stop function that a call polls while it runs. Constructible from any callable without arguments that returns a bool; empty by
/// default. Copies share the callable.
///
///     options.should_stop = [&] { return deadline < std::chrono::steady_clock::now(); };
class StopCondition {
 public:
  constexpr StopCondition() noexcept = default;
  constexpr StopCondition(std::nullptr_t) noexcept {}  // NOLINT: implicit by design
  template <class F> requires(!std::is_same_v<std::remove_cvref_t<F>, StopCondition> && std::is_invocable_r_v<bool, F&>)
  StopCondition(F f)  // NOLINT: implicit by design
      : object_(detail::Shared<F>::make(std::move(f))), ask_([](void* object) -> bool { return (*static_cast<F*>(object))(); }) {}

  explicit operator bool() const noexcept { return ask_ != nullptr; }
  /// Calls the function. The condition must not be empty.
  bool operator()() const { return ask_(object_.get()); }

 private:
  detail::Shared<void> object_;
  bool (*ask_)(void* object) = nullptr;
};

struct Options {
  Mode mode = Mode::adaptive;
  Relax relax{};
  Specialization specialization{};  ///< in mode adaptive
  Compile compile = Compile::allowed;
  /// Device of calls whose arrays are all on the CPU: arguments are copied to it, and results are arrays on it. Other calls run on the
  /// device of their arrays.
  Device device{};
  int threads = 0;       ///< 0: as thread_count()
  int vector_bytes = 0;  ///< vector register size to compile for: 16, 32 or 64; 0: the machine's. Results have the same bits.
  /// True: records the function again at each call and compares the graphs. Throws Error if the function depends on a changed value, such
  /// as a captured number.
  bool check_recording = detail::kDebugBuild;
  /// True: compares, at each call, the numbers that the function read from variables: numbers captured by reference, and globals. If a
  /// number changed, records the function again as check_recording does, with the same errors. Costs one comparison for each such number.
  bool check_captures = true;
  /// True: throws Error after a call whose result has a NaN or infinite element, and names the first operator, forward or backward, with
  /// such a value. For debugging: each call scans its results, and an error recomputes every operator's value.
  bool check_nan = false;
  /// Maximum bytes that `vjp` keeps from the forward call for the pullback, except arguments and results. Other values are recomputed.
  /// Negative values select the fastest choice.
  std::int64_t memory_budget = -1;
  Limits limits{};
  /// Condition that stops a call when it returns true: the call throws CancelledError, its destinations are unspecified, and everything
  /// else is unchanged. The calling thread polls it before the call, then about every 20 ms, between two parts of the work. An exception
  /// from it also ends the call.
  StopCondition should_stop{};
};

/// Counters of a function. Bytes count array elements that kernels load and store (docs/language.md, `moved_bytes`).
struct Stats {
  std::int64_t calls = 0;
  std::int64_t recordings = 0;   ///< runs of the C++ function, or of the formula
  std::int64_t analysed = 0;     ///< recordings that were simplified and fused; other recordings reuse a shape-generic analysis
  std::int64_t fallbacks = 0;    ///< recordings whose kernels failed, which is a defect: they run unfused or interpreted
  std::int64_t kernels = 0;      ///< different kernels that its calls use
  std::int64_t launches = 0;     ///< runs of kernels; kernels that share their threads and advance together count as one
  std::int64_t compiles = 0;     ///< generic kernels built while a call waited: tiled interpreter or baseline tier
  std::int64_t optimised = 0;    ///< generic kernels compiled with optimization, by a call or in the background
  std::int64_t specialized = 0;  ///< kernels compiled for exact shapes
  std::int64_t hot_shapes = 0;   ///< shapes with specialized kernels, finished or pending; at most Specialization::depth
  std::int64_t dropped = 0;      ///< hot shapes whose generic kernels were faster
  std::int64_t plans = 0;        ///< signatures that are remembered now, at most 1,024
  std::int64_t forgotten = 0;    ///< signatures replaced by more recently used signatures
  std::int64_t cache_hits = 0;   ///< existing kernels, built by another signature or function
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t bytes_allocated = 0;  ///< new results, intermediates, and temporaries for destinations that overlap arguments
  double ms_compiling = 0;           ///< all compiles of its kernels, by calls and in the background
  double ms_lost = 0;                ///< time lost by runs before optimization, relative to an estimate of the optimized run
  std::int64_t bytes_uploaded = 0, bytes_downloaded = 0;  ///< copies for calls on a GPU with arrays on the CPU

  Stats& operator+=(const Stats& other) {
    calls += other.calls;
    recordings += other.recordings;
    analysed += other.analysed;
    fallbacks += other.fallbacks;
    kernels += other.kernels;
    launches += other.launches;
    compiles += other.compiles;
    optimised += other.optimised;
    specialized += other.specialized;
    hot_shapes += other.hot_shapes;
    dropped += other.dropped;
    plans += other.plans;
    forgotten += other.forgotten;
    cache_hits += other.cache_hits;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    bytes_allocated += other.bytes_allocated;
    ms_compiling += other.ms_compiling;
    ms_lost += other.ms_lost;
    bytes_uploaded += other.bytes_uploaded;
    bytes_downloaded += other.bytes_downloaded;
    return *this;
  }
};

}  // namespace onepass
