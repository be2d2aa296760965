// See log.h. The callback is read without a lock. Previous callbacks are kept, because another thread may be inside a previous callback;
// hosts set a callback once.
#include "runtime/log.h"

#include <cstdio>

namespace onepass {
namespace {

struct Sink {
  detail::Shared<void> object;
  void (*call)(void*, LogLevel, std::string_view) = nullptr;
  LogLevel least = LogLevel::warning;
  const Sink* before = nullptr;  // reachable, so that leak checkers do not report it
};

void to_stderr(void*, LogLevel, std::string_view text) {
  std::fprintf(stderr, "onepass: %.*s\n", static_cast<int>(text.size()), text.data());
}

constinit Sink unset{nullptr, to_stderr, LogLevel::warning, nullptr};
constinit std::atomic<const Sink*> current{&unset};

}  // namespace

namespace detail {
void set_log(detail::Shared<void> object, void (*call)(void*, LogLevel, std::string_view), LogLevel least) {
  auto* const next = new Sink{std::move(object), call, least, current.load(std::memory_order_relaxed)};
  while (!current.compare_exchange_weak(next->before, next, std::memory_order_release, std::memory_order_relaxed)) {}
}
}  // namespace detail

namespace runtime {

bool log_wants(LogLevel level) noexcept {
  const Sink& sink = *current.load(std::memory_order_acquire);
  return sink.call && level >= sink.least;
}

void log_text(LogLevel level, std::string_view text) noexcept {
  const Sink& sink = *current.load(std::memory_order_acquire);
  if (!sink.call || level < sink.least) return;
  try {
    sink.call(sink.object.get(), level, text);
  } catch (...) {}  // NOLINT: exceptions are documented as ignored
}

}  // namespace runtime
}  // namespace onepass
