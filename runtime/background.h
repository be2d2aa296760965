// One thread at idle priority for what no call should wait for: optimised and specialised kernels, entries of the disk cache. It is
// started with the first job that needs it and never ended.
#pragma once

#include <functional>

namespace onepass::runtime::background {

/// Runs the job soon. Dropped where no thread can be had, at exit and in a forked child: it must be something that can be left out.
void run(std::function<void()> job);

/// Runs the job when the thread has run all others, or at exit: a short program's first call does not pay for a thread.
void run_late(std::function<void()> job);

/// Waits until nothing is left to do, late jobs included: for benchmarks and tests.
void wait();

}  // namespace onepass::runtime::background
