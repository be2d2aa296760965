// Idle-priority threads, one by default, for work that no call waits for: optimized and specialized kernels, and disk cache entries. Each
// thread starts with its first job and never ends.
#pragma once

#include <cstdint>
#include <functional>

namespace onepass::runtime::background {

/// Queues the job; false if the number of threads is 0. Jobs must be optional: they are dropped at exit, or if no thread can be created.
/// A forked child continues the remaining jobs when its next job arrives.
bool run(std::function<void()> job);

/// Queues the job after all other jobs, or runs it at exit. The first call of a short program then does not start a thread.
void run_late(std::function<void()> job);

/// Raises the threads from idle to normal priority until they have finished the queued jobs.
void hurry() noexcept;

/// Sets the number of threads for later jobs; 0 drops these jobs.
void set_threads(int threads);
int threads();
int most_threads();

/// Waits until all jobs are finished, including late jobs, or until `nanoseconds` have passed (negative: no limit). False on timeout.
bool wait(std::int64_t nanoseconds = -1);

}  // namespace onepass::runtime::background
