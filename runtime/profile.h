// Events and kernel times of a profile. While profiling is off, the cost is one relaxed load. While it is on, each thread appends to
// separate memory without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/os.h"

namespace onepass::runtime {

struct LaunchPlan;
struct PlanReport;

namespace profile {

/// Call    a = the plan's id: all kernels of one call
/// Kernel  a = the plan's id, b = the launch: one thread's part of one run
/// Pass    a = unused, b = nodes of the graph after it
/// Record, Plan, Fuse      a = the plan's id, or 0
/// Compile a = the kernel's number in the log, b = the tier: 0 quick, 1 optimized, 2 for one shape
/// Stage   as Compile, for a stage of the compile
/// Cache   a = number of requested kernels, b = number of kernels found
enum class Kind : std::uint8_t { Call, Kernel, Record, Pass, Fuse, Plan, Compile, Stage, Cache };

struct Event {
  const char* name;  // static lifetime
  std::int64_t start, end;
  std::uint64_t a;
  std::int64_t b;
  std::uint64_t kind_number;  // without padding, because the event is written in 64-bit units
  Event(Kind kind, const char* name, std::int64_t start, std::int64_t end, std::uint64_t a, std::int64_t b) noexcept
      : name(name), start(start), end(end), a(a), b(b), kind_number(static_cast<std::uint64_t>(kind)) {}
  Kind kind() const noexcept { return static_cast<Kind>(kind_number); }
};

namespace detail {
extern constinit std::atomic<bool> enabled;
}
inline bool on() noexcept { return detail::enabled.load(std::memory_order_relaxed); }

/// Adds an event. Never fails: without memory, drops and counts the event.
void add(const Event& event) noexcept;

/// Applies ONEPASS_PROFILE. Has an effect only at its first call.
void start_from_environment() noexcept;

/// Records the name of a plan for its events, once for each plan.
void describe(const LaunchPlan& plan) noexcept;

/// An event from its construction to the end of the scope, if profiling is on.
class Span {
 public:
  explicit Span(Kind kind, const char* name, std::uint64_t a = 0, std::int64_t b = 0) noexcept
      : event_{kind, name, on() ? os::nanoseconds() : 0, 0, a, b} {}
  ~Span() {
    if (event_.start == 0) [[likely]]
      return;
    event_.end = os::nanoseconds();
    add(event_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  void set(std::uint64_t a, std::int64_t b) { event_.a = a, event_.b = b; }

 private:
  Event event_;
};

}  // namespace profile
}  // namespace onepass::runtime
