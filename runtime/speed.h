// How fast this machine is beside the one on which the factors of compiler/plan/costs.h were measured: one factor, learned from what
// compiles take, and kept in the cache folder. And how fast it copies, which is what records compare kernels with.
#pragma once

namespace onepass::runtime {

/// Estimates times this are what things take here, about. Between 1/8 and 8; 1 before anything is known.
double machine_speed();
/// Something that was estimated to take `estimate` took `nanoseconds` of a processor.
void note_speed(double estimate, double nanoseconds) noexcept;
/// Bytes that a copy of a large array reads and writes in a nanosecond here, on all processors: measured at the first call, in about 0.1 s, unless the
/// cache folder has it, and kept there. 0 where there is no memory for it.
double copy_bandwidth() noexcept;
/// Writes the factor to the cache folder, where it has changed by a tenth or more.
void keep_speed();

}  // namespace onepass::runtime
