// The speed of this machine relative to the machine on which compiler/plan/costs.h was measured: one factor, learned from compile times and
// stored in the cache folder. This file also measures the copy bandwidth, with which records compare kernels.
#pragma once

namespace onepass::runtime {

/// Returns the factor from estimated to actual times, between 1/8 and 8; 1 before the first measurement.
double machine_speed();
/// Records that a compile with an estimate of `estimate` nanoseconds took `nanoseconds` of processor time.
void note_speed(double estimate, double nanoseconds) noexcept;
/// Returns the estimate, in nanoseconds, of what the next compile takes in addition if none has finished in this process: LLVM's code and
/// tables are then read for the first time. Otherwise 0.
double of_first_compile() noexcept;
/// Returns the bytes per nanosecond, read plus written, of a large array copy on all processors; 0 without memory for it. The first call
/// measures for about 0.1 s, unless the cache folder has the value, and stores it there.
double copy_bandwidth() noexcept;
/// Writes the factor to the cache folder if it has changed by a tenth or more.
void keep_speed();

}  // namespace onepass::runtime
