// How fast this machine is beside the one on which the factors of compiler/plan/costs.h were measured: one factor, learned from what
// compiles take, and kept in the cache folder.
#pragma once

namespace onepass::runtime {

/// Estimates times this are what things take here, about. Between 1/8 and 8; 1 before anything is known.
double machine_speed();
/// Something that was estimated to take `estimate` took `nanoseconds` of a processor.
void note_speed(double estimate, double nanoseconds) noexcept;
/// Writes the factor to the cache folder, where it has changed by a tenth or more.
void keep_speed();

}  // namespace onepass::runtime
