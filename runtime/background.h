// Threads at idle priority, one unless set, for what no call should wait for: optimised and specialised kernels, entries of the disk
// cache. Each is started with the first job that it gets and never ended.
#pragma once

#include <cstdint>
#include <functional>

namespace onepass::runtime::background {

/// Runs the job soon; false where there are to be no threads. Dropped at exit, and for want of a thread: it must be something that can be
/// left out. In a forked child what was left is done when the next job comes.
bool run(std::function<void()> job);

/// Runs the job when the thread has run all others, or at exit: a short program's first call does not pay for a thread.
void run_late(std::function<void()> job);

/// The threads run as other threads do, not at idle priority, until they have done what waits for them.
void hurry() noexcept;

/// Threads that jobs are given to from now on: 0 drops them.
void set_threads(int threads);
int threads();
int most_threads();

/// Waits until nothing is left to do, late jobs included, or until `nanoseconds` have passed; negative: for any time. False when they had.
bool wait(std::int64_t nanoseconds = -1);

}  // namespace onepass::runtime::background
