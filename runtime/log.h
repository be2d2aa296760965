// Messages to the host's log callback. Used by runtime/ for degraded operation; warm calls do not log.
#pragma once

#include <atomic>
#include <string_view>

#include <fmt/format.h>

#include "onepass/runtime.h"

namespace onepass::runtime {

/// True if a message of this level would be delivered.
bool log_wants(LogLevel level) noexcept;
/// Logs one sentence without a newline. The caller must hold no lock of onepass, because the callback may call compiled functions.
void log_text(LogLevel level, std::string_view text) noexcept;

/// Formats and logs a message. Drops it if memory for the text is not available.
template <class... A> void log(LogLevel level, fmt::format_string<A...> format, A&&... arguments) noexcept {
  if (!log_wants(level)) return;
  try {
    log_text(level, fmt::format(format, std::forward<A>(arguments)...));
  } catch (...) {}  // NOLINT: a log never fails its caller
}

/// A flag for messages that appear once in a process: `static constinit Once once; if (once.first()) log(…)`.
class Once {
 public:
  bool first() noexcept { return !done_.load(std::memory_order_relaxed) && !done_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace onepass::runtime
