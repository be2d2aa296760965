// How a compiled function behaves: ordinary values, given when it is compiled.
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

/// adaptive     generic kernels at first, specialized ones for shapes that stay hot
/// generic      fused kernels that any lengths, literals and scalar arguments can use
/// specialized  kernels for exact shapes, from the first call on
/// unfused      one kernel for each operator: verifies the others, in tests and when a result is in doubt
/// reference    an interpreter, without a compiler
enum class Mode : std::uint8_t { adaptive, generic, specialized, unfused, reference };

/// How fast a kernel's code is. All tiers give the same bits.
///
/// quick      what a first call begins with: tiles, or code that was compiled quickly, unless the optimized code pays at once
/// optimized  the code that the kernel keeps
enum class Tier : std::uint8_t { quick, optimized };

/// Kernels for exact shapes. A shape that is hot gets kernels of its own, at most `depth` shapes a function; from
/// then on the function stays on its generic kernels, which are fused too, and says so once through the log. They are compiled at idle
/// priority while calls go on, or, without `in_background`, by the call that makes the shape hot. One that turns out slower than the
/// generic kernel is not used. Results have the same bits.
///
/// A shape is hot once its calls have taken so long that as long again would save what its kernels take to compile, and at least three
/// calls were made.
struct Specialization {
  int depth = 20;       ///< 0: generic kernels only
  int after_calls = 0;  ///< above 0: a shape is hot after so many calls instead
  bool in_background = true;
  bool operator==(const Specialization&) const = default;
};

/// allowed  what a call needs is compiled
/// never    kernels come from memory or from disk; a call that would compile is an Error that names its signature
enum class Compile : std::uint8_t { allowed, never };

/// Relaxations of strict arithmetic, each by itself (docs/language.md, "Accuracy"). docs/relaxations.md has an example of each.
struct Relax {
  bool contract = false, reassociate = false, approximate = false;
  bool operator==(const Relax&) const = default;
};

namespace detail {
#ifdef NDEBUG  // of the program that calls
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif
}  // namespace detail

/// Bounds on what a program may cost. An error names the limit by its name here.
struct Limits {
  // of a formula's text
  std::size_t nesting = 1000;            ///< brackets, prefix operators, `?:` and `**` within each other; calls within calls
  std::size_t name_bytes = 1024;         ///< one name
  std::size_t source_bytes = 16u << 20;  ///< the text; never more than 2 GiB
  // of what is recorded
  std::uint32_t max_nodes = 1u << 20;  ///< operators, after calls are expanded
  std::int32_t rank = 32;              ///< axes of one value; never more than 32
  // of a call
  std::int64_t array_bytes = 0;  ///< one array that the call stores; 0: half the memory
  std::int64_t work = 0;         ///< operations on elements, at most so many as its recording says; 0: any number
  std::int64_t compile_ms = 0;   ///< that it waits for the compiler; then it runs as in mode unfused, said once in the log. 0: any time
  bool operator==(const Limits&) const = default;
};

/// A question that a call asks while it runs. Made from any callable without arguments that returns a bool; empty unless set. Copies share the
/// callable.
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
  /// Must not be empty.
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
  /// Where calls run whose arrays are all of the cpu: arguments are copied there, results are arrays there. Else a call runs where its arrays are.
  Device device{};
  int threads = 0;       ///< 0: the pool's count
  int vector_bytes = 0;  ///< of the registers to compile for: 16, 32 or 64; 0: the machine's. Results have the same bits.
  /// Records again at each call and compares: an Error where the function depends on something that changed, such as a captured number.
  bool check_recording = detail::kDebugBuild;
  /// Looks at each call whether the numbers that the function read from variables have changed: those that it captured by reference, and global
  /// ones. Where one has, the function is recorded again as by check_recording, with the same Errors. Costs a comparison for each such number.
  bool check_captures = true;
  /// After each call: an Error that names the first operator, forward or backward, whose value is NaN or infinite, if a result has such an
  /// element. For debugging: results are looked through, and on an error every operator's value is computed once more.
  bool check_nan = false;
  /// Of `vjp`: the most bytes that are kept from the forward call for the pullback, arguments and results aside; what does not fit is computed
  /// again. Negative: what is fastest.
  std::int64_t memory_budget = -1;
  Limits limits{};
  /// Where it returns true, the call ends with CancelledError: what its targets hold is unspecified, everything else is as before the call. A call
  /// asks before it begins, then about every 20 ms, on the thread that called, between two parts of its work. What it throws ends the call too.
  StopCondition should_stop{};
};

/// What a function did so far. Bytes are of array elements that kernels load and store (docs/language.md, `moved_bytes`).
struct Stats {
  std::int64_t calls = 0;
  std::int64_t recordings = 0;   ///< runs of the C++ function, or of the formula
  std::int64_t analysed = 0;     ///< of these, simplified and fused; the others differ only in lengths from one that was
  std::int64_t fallbacks = 0;    ///< recordings whose kernels were refused, which is a defect: they run unfused, or interpreted
  std::int64_t kernels = 0;      ///< different ones that its calls use
  std::int64_t launches = 0;     ///< runs of kernels
  std::int64_t compiles = 0;     ///< generic kernels made while a call waited: in tiles, or compiled in the quick tier
  std::int64_t optimised = 0;    ///< generic kernels compiled with optimization, by a call or in the background
  std::int64_t specialized = 0;  ///< kernels compiled for exact shapes
  std::int64_t hot_shapes = 0;   ///< shapes that have such kernels, or will; at most Specialization::depth
  std::int64_t dropped = 0;      ///< of these, those whose generic kernels turned out faster
  std::int64_t plans = 0;        ///< signatures that are remembered now, at most 1,024
  std::int64_t forgotten = 0;    ///< signatures that gave their place to others, which were used later
  std::int64_t cache_hits = 0;   ///< kernels that were there already, made by another signature or another function
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t bytes_allocated = 0;  ///< fresh results, intermediates between kernels, and temporaries where a target overlaps an argument
  double ms_compiling = 0;           ///< of all compiles of its kernels, by calls and in the background
  double ms_lost = 0;                ///< by runs before a kernel was optimized: what they took above an estimate of the optimized run
  std::int64_t bytes_uploaded = 0, bytes_downloaded = 0;  ///< copied because a call on a GPU had arrays of the cpu

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
