// Messages to the host's log callback. Called by runtime/ wherever something is worse than it could be, never on a warm path.
#pragma once

#include <atomic>
#include <string_view>

#include <fmt/format.h>

#include "onepass/runtime.h"

namespace onepass::runtime {

/// Would a message of this level go anywhere?
bool log_wants(LogLevel level) noexcept;
/// One sentence without a newline. No lock of ours may be held: the callback may call compiled functions.
void log_text(LogLevel level, std::string_view text) noexcept;

/// A message that cannot be formatted, for want of memory, is dropped.
template <class... A> void log(LogLevel level, fmt::format_string<A...> format, A&&... arguments) noexcept {
  if (!log_wants(level)) return;
  try {
    log_text(level, fmt::format(format, std::forward<A>(arguments)...));
  } catch (...) {}  // NOLINT: a log never fails its caller
}

/// What is said once in a process: `static constinit Once once; if (once.first()) log(…)`.
class Once {
 public:
  bool first() noexcept { return !done_.load(std::memory_order_relaxed) && !done_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace onepass::runtime
