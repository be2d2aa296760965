// Profiling: records the times of kernels and events of calls, as a trace for Perfetto and chrome://tracing. ONEPASS_PROFILE=FILE enables
// it at the start and writes FILE at exit. See docs/runtime.md, "Profiles".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "onepass/export.h"

namespace onepass {

/// Turns profiling on or off; it is off by default. While it is off, a call only checks one flag.
ONEPASS_API
void set_profiling(bool on);
ONEPASS_API
bool profiling() noexcept;
/// Deletes all events. No profiled call may be running.
ONEPASS_API
void clear_profile();
/// Returns the events since the start, as JSON in Chrome's trace event format: record, passes, plan, compile, cache and, by thread, the
/// kernels of calls. Each thread keeps its last 262,144 events; the trace gives the number of dropped events.
ONEPASS_API
std::string profile_json();
/// Writes profile_json() to a file. Throws IoError if it cannot be written.
ONEPASS_API
void write_profile(const std::string& path);

/// A call made while profiling was on.
struct CallRecord {
  std::string signature;          ///< in the form that warm_up accepts
  double start_ms = 0, ms = 0;    ///< start since profiling was turned on; duration of its kernels or, on a GPU, of enqueuing them
  int thread = 0;                 ///< threads are numbered in the order of their first event
  std::vector<double> kernel_ms;  ///< empty on a GPU: last_execution() has the kernel times
};
/// Returns the last `count` profiled calls, the newest first.
ONEPASS_API
std::vector<CallRecord> recent_calls(std::size_t count);

}  // namespace onepass
