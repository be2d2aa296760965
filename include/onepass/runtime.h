// What all compiled functions of a process share: threads, memory, the log. All settings have defaults; these calls are optional.
// docs/runtime.md is the guide. A light header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "onepass/duration.h"
#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

// ------------------------------------------------------------------------------------------------ threads

/// How many threads a call from this thread may use: its ThreadScope, else `set_threads`, else the cores that the process may use.
/// `Options::threads` of a function comes before all of them.
ONEPASS_API
int thread_count() noexcept;
/// For the whole process; 0: the cores that the process may use. ValueError when negative or above 256.
ONEPASS_API
void set_threads(int threads);

/// Another count for the calls of this thread, in a scope; 0 leaves it as it is.
class ONEPASS_API ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int saved_;
};

/// One loop of a kernel, cut into shares: `shares(i)` computes share i. Valid until the executor that got it returns.
class Shares {
 public:
  void operator()(int share) const { run_(job_, share); }

  Shares(const void* job, void (*run)(const void* job, int share)) : job_(job), run_(run) {}

 private:
  const void* job_;
  void (*run_)(const void*, int);
};

namespace detail {
ONEPASS_API
void set_executor(Shared<void> object, void (*call)(void* object, int count, Shares shares));
}  // namespace detail

/// The host's own threads instead of ours: `executor(count, shares)` must call `shares(i)` once for each i in [0, count), on any threads,
/// and return when all are done; several threads may be inside it at once. `set_executor(nullptr)` goes back to ours.
///
///     set_executor([&](int count, Shares shares) { pool.parallel_for(0, count, [=](int i) { shares(i); }); });
template <class F> requires std::is_invocable_v<F&, int, Shares> void set_executor(F executor) {
  detail::set_executor(detail::Shared<F>::make(std::move(executor)),
                       [](void* object, int count, Shares shares) { (*static_cast<F*>(object))(count, shares); });
}
inline void set_executor(std::nullptr_t) { detail::set_executor(nullptr, nullptr); }

/// Called once by each worker thread that starts from now on, on that thread, with its number from 1 on: to pin it to a core, say. It
/// must not throw. Null: nothing.
ONEPASS_API
void set_worker_start(void (*hook)(int worker)) noexcept;

// ------------------------------------------------------------------------------------------------ memory

/// Of the pool that arrays, intermediates and scratch come from. Exact once other threads rest.
struct MemoryStats {
  std::int64_t in_use = 0;       ///< bytes asked for and not freed
  std::int64_t cached = 0;       ///< bytes of blocks that wait for reuse; what `trim_memory` can give back
  std::int64_t allocations = 0;  ///< since the start
};
ONEPASS_API
MemoryStats memory_stats();

/// The most bytes of large blocks that the pool holds, used or cached: what goes above is a MemoryError, and nothing was computed. The
/// memory that the process may use (its container's limit, else the machine's) unless set; 0 sets that again.
ONEPASS_API
void set_memory_limit(std::size_t bytes);
ONEPASS_API
std::size_t memory_limit();

/// The most bytes that `cached` may reach; the oldest blocks go first. A quarter of the memory that the process may use unless set.
ONEPASS_API
void set_memory_cache_limit(std::size_t bytes);

/// Gives cached blocks back to the system, oldest first, until at most `keep` bytes are cached.
ONEPASS_API
void trim_memory(std::size_t keep = 0) noexcept;

// ------------------------------------------------------------------------------------------------ kernels

/// Threads at idle priority that compile what no call waits for: optimized and specialized kernels. 1 unless set; with 0 nothing is
/// compiled in the background, so that a kernel is optimized by the call that has lost enough time without (docs/runtime.md, "Tiers").
/// What a call waits for is compiled by the call's own threads. ValueError when negative or above 64.
ONEPASS_API
void set_compile_threads(int threads);
ONEPASS_API
int compile_threads() noexcept;

namespace detail {
ONEPASS_API
bool wait_until_optimized(std::int64_t nanoseconds);
}  // namespace detail
/// Waits until nothing is left that the compile threads were given, of any function: `timeout` is a std::chrono::duration. False when the time
/// was over before. `f.wait_until_optimized` waits for all kernels of one function, begun or not.
template <class Duration> bool wait_until_optimized(Duration timeout) {
  return detail::wait_until_optimized(detail::nanoseconds_of(timeout));
}
inline void wait_until_optimized() { detail::wait_until_optimized(-1); }

/// The kernels in memory that all functions share. Those that were not used for longest leave it first; functions that still know one
/// keep it alive.
struct KernelCacheStats {
  std::int64_t entries = 0, bytes = 0;  ///< now; bytes of machine code and of what kernels are found by
  std::int64_t hits = 0, misses = 0, evictions = 0;
};
ONEPASS_API
KernelCacheStats kernel_cache_stats();
/// 4,096 kernels and 256 MiB unless set.
ONEPASS_API
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes);

// ------------------------------------------------------------------------------------------------ log

/// debug    what was recorded and compiled, and how long it took
/// info     what may explain a time or a choice: the host changed the floating-point control
/// warning  something is worse than it could be: no compiled kernels on this processor, no thread to be had
enum class LogLevel : std::uint8_t { debug, info, warning };

namespace detail {
ONEPASS_API
void set_log(Shared<void> object, void (*call)(void* object, LogLevel, std::string_view), LogLevel least);
}  // namespace detail

/// Where messages go: `callback(level, text)`, one sentence without a newline, from any thread and from several at once. What it throws is
/// dropped. Messages below `least` are not made. Unless set, warnings go to stderr; `set_log(nullptr)` silences everything.
///
///     set_log([](LogLevel, std::string_view text) { my_logger.write(text); }, LogLevel::debug);
template <class F> requires std::is_invocable_v<F&, LogLevel, std::string_view> void set_log(F callback, LogLevel least = LogLevel::info) {
  detail::set_log(
      detail::Shared<F>::make(std::move(callback)),
      [](void* object, LogLevel level, std::string_view text) { (*static_cast<F*>(object))(level, text); }, least);
}
inline void set_log(std::nullptr_t) { detail::set_log(nullptr, nullptr, LogLevel::warning); }

}  // namespace onepass
