// Process-wide settings of all compiled functions: threads, memory, the log. All settings have defaults; these calls are optional.
// docs/runtime.md is the guide. Includes only small headers.
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

/// Returns the maximum number of threads for a call from this thread: its ThreadScope, else `set_threads`, else the cores available to
/// the process. A function's `Options::threads` has precedence.
ONEPASS_API
int thread_count() noexcept;
/// Sets the thread count of the process; 0: the cores available to the process. Throws ValueError if the count is negative or above 256.
ONEPASS_API
void set_threads(int threads);

/// Scope with another thread count for the calls of this thread; 0 leaves the count unchanged.
class ONEPASS_API ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int saved_;
};

/// One loop of a kernel, divided into threads' ranges: `shares(i)` computes range i. Valid until the executor that received it returns.
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

/// Replaces onepass's threads by the host's. `executor(count, shares)` must call `shares(i)` once for each i in [0, count), on any
/// threads, and return after all ranges are done. Several threads may call it at the same time. `set_executor(nullptr)` restores onepass's
/// threads.
///
///     set_executor([&](int count, Shares shares) { pool.parallel_for(0, count, [=](int i) { shares(i); }); });
template <class F> requires std::is_invocable_v<F&, int, Shares> void set_executor(F executor) {
  detail::set_executor(detail::Shared<F>::make(std::move(executor)),
                       [](void* object, int count, Shares shares) { (*static_cast<F*>(object))(count, shares); });
}
inline void set_executor(std::nullptr_t) { detail::set_executor(nullptr, nullptr); }

/// Sets a hook that each new worker thread calls once, with its number, starting at 1; for example, to bind it to a core. The hook must
/// not throw. Null removes the hook.
ONEPASS_API
void set_worker_start(void (*hook)(int worker)) noexcept;

// ------------------------------------------------------------------------------------------------ memory

/// Counters of the pool that provides arrays, intermediates and scratch memory. Exact only while no other thread allocates or frees.
struct MemoryStats {
  std::int64_t in_use = 0;       ///< bytes allocated and not freed
  std::int64_t cached = 0;       ///< bytes of free blocks, kept for reuse; `trim_memory` can release them
  std::int64_t allocations = 0;  ///< since the start
};
ONEPASS_API
MemoryStats memory_stats();

/// Sets the maximum bytes of large blocks in the pool, used or cached. A call that would exceed it throws MemoryError before it computes
/// anything. The default, also set by 0, is the memory available to the process: its container's limit, else the machine's memory.
ONEPASS_API
void set_memory_limit(std::size_t bytes);
ONEPASS_API
std::size_t memory_limit();

/// Sets the maximum of `cached`, in bytes; the oldest blocks are released first. The default is a quarter of the memory available to the
/// process.
ONEPASS_API
void set_memory_cache_limit(std::size_t bytes);

/// Releases cached blocks to the system, oldest first, until at most `keep` bytes are cached.
ONEPASS_API
void trim_memory(std::size_t keep = 0) noexcept;

// ------------------------------------------------------------------------------------------------ kernels

/// Sets the number of idle-priority threads that compile optimized and specialized kernels while calls go on; the default is 1. With 0,
/// the call that has lost enough time without optimization compiles the kernel (docs/runtime.md, "Tiers").
///
/// The threads of a call compile the code that the call waits for. Throws ValueError if the number is negative or above 64.
ONEPASS_API
void set_compile_threads(int threads);
ONEPASS_API
int compile_threads() noexcept;

namespace detail {
ONEPASS_API
bool wait_until_optimized(std::int64_t nanoseconds);
}  // namespace detail
/// Waits until the compile threads have finished all work, for all functions. `timeout` is a std::chrono::duration. False if the timeout
/// expires first. `f.wait_until_optimized` waits for all kernels of one function, started or not.
template <class Duration> bool wait_until_optimized(Duration timeout) {
  return detail::wait_until_optimized(detail::nanoseconds_of(timeout));
}
inline void wait_until_optimized() { detail::wait_until_optimized(-1); }

/// Counters of the kernels in memory, which all functions share. The cache evicts the least recently used kernels; functions that still
/// use an evicted kernel keep it alive.
struct KernelCacheStats {
  std::int64_t entries = 0, bytes = 0;  ///< current values; bytes of machine code and keys
  std::int64_t hits = 0, misses = 0, evictions = 0;
};
ONEPASS_API
KernelCacheStats kernel_cache_stats();
/// Sets the limits of the kernel cache; the defaults are 4,096 kernels and 256 MiB. Throws ValueError if a limit is negative.
ONEPASS_API
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes);

// ------------------------------------------------------------------------------------------------ log

/// debug    recordings and compiles, with their times
/// info     events that can explain a time or a choice, such as a changed floating-point control
/// warning  a degraded mode: no compiled kernels on this processor, or a thread that cannot be created
enum class LogLevel : std::uint8_t { debug, info, warning };

namespace detail {
ONEPASS_API
void set_log(Shared<void> object, void (*call)(void* object, LogLevel, std::string_view), LogLevel least);
}  // namespace detail

/// Sets the receiver of messages: `callback(level, text)` with one sentence without a newline. Any thread may call it, and several threads
/// may call it at the same time. Its exceptions are ignored. Messages below `least` are not created. By default, warnings go to stderr;
/// `set_log(nullptr)` disables all.
///
///     set_log([](LogLevel, std::string_view text) { my_logger.write(text); }, LogLevel::debug);
template <class F> requires std::is_invocable_v<F&, LogLevel, std::string_view> void set_log(F callback, LogLevel least = LogLevel::info) {
  detail::set_log(
      detail::Shared<F>::make(std::move(callback)),
      [](void* object, LogLevel level, std::string_view text) { (*static_cast<F*>(object))(level, text); }, least);
}
inline void set_log(std::nullptr_t) { detail::set_log(nullptr, nullptr, LogLevel::warning); }

}  // namespace onepass
