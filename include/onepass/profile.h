// Profiling: while it is on, calls keep the times of their kernels and events for a trace that Perfetto and chrome://tracing open.
// ONEPASS_PROFILE=FILE turns it on from the start and writes FILE at exit. docs/runtime.md, "Profiles".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onepass/export.h"

namespace onepass {

/// Off unless it is turned on. Off, a call looks at one flag.
ONEPASS_API
void set_profiling(bool on);
ONEPASS_API
bool profiling() noexcept;
/// Forgets all events. No call may be running that is being profiled.
ONEPASS_API
void clear_profile();
/// The events since the start, as JSON of Chrome's trace events: record, passes, plan, compile, cache and, by thread, the kernels of calls. Each
/// thread keeps its last 262,144 events; the trace says how many were dropped.
ONEPASS_API
std::string profile_json();
/// The same in a file. IoError where it cannot be written.
ONEPASS_API
void write_profile(const std::string& path);

/// A call that was made while profiling was on.
struct CallRecord {
  std::string signature;          ///< as warm_up takes it
  double start_ms = 0, ms = 0;    ///< since profiling was turned on; of its kernels, or of the thread that put them on a GPU's stream
  int thread = 0;                 ///< threads are numbered in the order of their first event
  std::vector<double> kernel_ms;  ///< empty on a GPU: last_execution() has its kernels' times
};
/// The last `count` of them, the newest first.
ONEPASS_API
std::vector<CallRecord> recent_calls(std::size_t count);

}  // namespace onepass
