// Events and kernel times of a profile. One relaxed load where profiling is off; on, each thread appends to memory of its own, without a lock.
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
/// Kernel  a = the plan's id, b = the launch: what one thread ran of it, once
/// Pass    a = unused, b = nodes of the graph behind it
/// Record, Plan, Fuse      a = the plan's id, or 0
/// Compile a = the kernel's number in the log, b = the tier: 0 quick, 1 optimized, 2 for one shape
/// Stage   the same, of a stage of the compile
/// Cache   a = how many kernels were asked for, b = how many of them were there
enum class Kind : std::uint8_t { Call, Kernel, Record, Pass, Fuse, Plan, Compile, Stage, Cache };

struct Event {
  const char* name;  // lives as long as the process
  std::int64_t start, end;
  std::uint64_t a;
  std::int64_t b;
  std::uint64_t kind_number;  // no padding: it is written word by word
  Event(Kind kind, const char* name, std::int64_t start, std::int64_t end, std::uint64_t a, std::int64_t b) noexcept
      : name(name), start(start), end(end), a(a), b(b), kind_number(static_cast<std::uint64_t>(kind)) {}
  Kind kind() const noexcept { return static_cast<Kind>(kind_number); }
};

namespace detail {
extern constinit std::atomic<bool> enabled;
}
inline bool on() noexcept { return detail::enabled.load(std::memory_order_relaxed); }

/// Never fails: an event that there is no memory for is dropped, and counted.
void add(const Event& event) noexcept;

/// ONEPASS_PROFILE, once.
void start_from_environment() noexcept;

/// What the events of a plan are called by, once for each plan.
void describe(const LaunchPlan& plan) noexcept;

/// An event from here to the end of the scope, where profiling is on.
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
