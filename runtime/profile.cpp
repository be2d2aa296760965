// See profile.h. A thread's events are in a ring of its own, under a lock that only who writes the profile ever contends for.
#include "runtime/profile.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "onepass/profile.h"
#include "onepass/version.h"
#include "runtime/fork.h"
#include "runtime/json_text.h"
#include "runtime/launch.h"
#include "runtime/log.h"
#include "runtime/os_output.h"
#include "runtime/record.h"
#include "runtime/signature_text.h"

namespace onepass::runtime::profile {

namespace detail {
constinit std::atomic<bool> enabled{false};
}

namespace {

constexpr std::size_t kMostEvents = std::size_t{1} << 18;  // of a thread; then the oldest go

struct Ring {
  std::mutex mutex;
  int number = 0;
  std::string name;
  std::vector<Event> events;
  std::size_t next = 0;  // where the next event goes, once the ring is full
  std::int64_t dropped = 0;

  void add(const Event& event) noexcept {
    const std::lock_guard lock(mutex);
    if (events.size() < kMostEvents) {
      try {
        events.push_back(event);
        return;
      } catch (const std::bad_alloc&) {}  // NOLINT: counted
      if (events.empty()) {
        ++dropped;
        return;
      }
    }
    if (next >= events.size()) next = 0;
    events[next++] = event;
    ++dropped;
  }
};

// What texts are made of when somebody looks: a plan that is made while profiling is on pays for a copy of a few numbers.
struct LaunchText {
  std::uint32_t kernel = 0;
  ir::Op op = ir::Op::Input;  // of the first value that it stores; Input: not known
  std::uint8_t loops = 0;
  std::uint64_t reduced = 0;
  std::array<std::int64_t, 6> extents{};  // of the first loops

  std::string text() const {
    std::string out = fmt::format("{}:", kernel);
    for (std::size_t l = 0; l < std::min<std::size_t>(loops, extents.size()); ++l)
      out += fmt::format("{} {}{}", l ? " x" : "", extents[l], reduced >> l & 1 ? " (reduced)" : "");
    if (loops > extents.size()) out += " x …";
    return op == ir::Op::Input ? out : fmt::format("{} {}", out, ir::info(op).text);
  }
};
struct PlanText {
  std::uint64_t id = 0;
  std::vector<std::int64_t> key;
  std::vector<LaunchText> launches;
};
struct PlanNames {
  std::string signature;
  std::vector<std::string> launches;
};

struct All {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<PlanText> plans;
  std::int64_t start = 0;
  std::string path;  // of ONEPASS_PROFILE
  std::uint32_t generation = 0;
};

All& all() {
  static All* const a = new All;  // never destroyed: threads may outlive main
  return *a;
}

constinit thread_local Ring* mine = nullptr;  // never destroyed: handlers at exit may still add events

Ring* my_ring() {
  if (mine) [[likely]]
    return mine;
  auto ring = std::make_shared<Ring>();
  ring->name = os::thread_name();
  ring->events.reserve(1024);
  const std::lock_guard lock(all().mutex);
  ring->number = static_cast<int>(all().rings.size()) + 1;
  all().rings.push_back(ring);
  return mine = ring.get();
}

// The child's locks may be held by threads that it does not have, and what the parent did is the parent's to write.
void begin_anew() {
  mine = nullptr;
  All& a = all();
  new (&a.mutex) std::mutex;
  new (&a.rings) std::vector<std::shared_ptr<Ring>>;  // the old ones stay as they are
  if (a.path.empty()) return;
  const std::size_t slash = a.path.find_last_of('/'), dot = a.path.find_last_of('.');
  const std::string process = fmt::format(".{}", os::process_id());
  if (dot != std::string::npos && (slash == std::string::npos || dot > slash)) a.path.insert(dot, process);
  else a.path += process;
}

void turn_on() {
  All& a = all();
  {
    const std::lock_guard lock(a.mutex);
    if (a.start == 0) a.start = os::nanoseconds();
  }
  static const bool once = [] {
    in_forked_child(begin_anew);
    return true;
  }();
  static_cast<void>(once);
  detail::enabled.store(true, std::memory_order_relaxed);
}

std::string signature_text(const std::vector<std::int64_t>& key) {
  LaunchPlan call;
  call.key = key;
  return CallSignature::of(call).text();
}

struct Snapshot {
  struct Thread {
    int number;
    std::string name;
    std::vector<Event> events;  // by their end
  };
  std::vector<Thread> threads;
  std::unordered_map<std::uint64_t, PlanNames> plans;
  std::int64_t start = 0, dropped = 0;
};

Snapshot snapshot() {
  Snapshot s;
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<PlanText> plans;
  {
    const std::lock_guard lock(all().mutex);
    rings = all().rings;
    plans = all().plans;
    s.start = all().start;
  }
  for (const PlanText& plan : plans) {
    PlanNames& names = s.plans[plan.id];
    names.signature = signature_text(plan.key);
    for (const LaunchText& launch : plan.launches) names.launches.push_back(launch.text());
  }
  for (const std::shared_ptr<Ring>& ring : rings) {
    const std::lock_guard lock(ring->mutex);
    Snapshot::Thread& t = s.threads.emplace_back(ring->number, ring->name, ring->events);
    std::rotate(t.events.begin(), t.events.begin() + static_cast<std::ptrdiff_t>(ring->next), t.events.end());
    s.dropped += ring->dropped;
  }
  return s;
}

constexpr std::string_view kKinds[] = {"call", "kernel", "record", "pass", "fuse", "plan", "compile", "cache"};
constexpr std::string_view kTiers[] = {"quick", "optimized", "specialized"};

void write_event(JsonText& json, const Snapshot& s, const Snapshot::Thread& thread, const Event& e) {
  const auto plan = s.plans.find(e.a);
  std::string name = e.name;
  if (e.kind == Kind::Kernel) {
    name = fmt::format("kernel {}", e.b);
    if (plan != s.plans.end() && static_cast<std::size_t>(e.b) < plan->second.launches.size())
      name = plan->second.launches[static_cast<std::size_t>(e.b)];
  }
  json.line().open('{').member("name", std::string_view(name)).member("cat", kKinds[static_cast<std::size_t>(e.kind)]).member("ph", "X");
  json.key("ts").raw(fmt::format("{:.3f}", static_cast<double>(e.start - s.start) / 1e3));
  json.key("dur").raw(fmt::format("{:.3f}", static_cast<double>(e.end - e.start) / 1e3));
  json.member("pid", os::process_id()).member("tid", thread.number).key("args").open('{');
  switch (e.kind) {
    case Kind::Call:
    case Kind::Kernel:
    case Kind::Plan:
    case Kind::Fuse:
      if (plan != s.plans.end()) json.member("shapes", std::string_view(plan->second.signature));
      if (e.a != 0) json.member("plan", e.a);
      break;
    case Kind::Record: break;
    case Kind::Pass: json.member("nodes", e.b); break;
    case Kind::Compile: json.member("kernel", std::string_view(fmt::format("{:016x}", e.a))).member("tier", kTiers[e.b]); break;
    case Kind::Cache: json.member("kernels", e.a).member("there", e.b); break;
  }
  json.close('}').close('}');
}

// A process that ends in any way that runs its exit handlers.
void write_at_exit() {
  const std::string path = [] {
    const std::lock_guard lock(all().mutex);
    return all().path;
  }();
  detail::enabled.store(false, std::memory_order_relaxed);
  try {
    write_profile(path);
  } catch (const std::exception& error) { log(LogLevel::warning, "ONEPASS_PROFILE: {}", error.what()); }
}

}  // namespace

void add(const Event& event) noexcept try { my_ring()->add(event); } catch (...) {
}  // NOLINT: no memory for it

void describe(const LaunchPlan& plan) noexcept try {
  if (plan.described.exchange(true, std::memory_order_relaxed)) return;
  PlanText text{plan.id, plan.key, std::vector<LaunchText>(plan.launches.size())};
  for (std::size_t k = 0; k < plan.launches.size(); ++k) {
    LaunchText& launch = text.launches[k];
    launch.kernel = plan.launches[k].of;
    if (!plan.report) continue;
    const KernelReport& kernel = plan.report->kernels[launch.kernel];
    const std::vector<ir::NodeId>& roots = plan.report->partition.groups[kernel.group].roots;
    if (!roots.empty()) launch.op = plan.report->optimised[roots[0]].op;
    launch.loops = static_cast<std::uint8_t>(kernel.planned.nest.loops());
    launch.reduced = kernel.planned.nest.reduced_mask();
    std::copy_n(kernel.planned.numbers.extents.begin(), std::min<std::size_t>(launch.loops, launch.extents.size()), launch.extents.begin());
  }
  const std::lock_guard lock(all().mutex);
  if (all().plans.size() < kMostEvents) all().plans.push_back(std::move(text));
} catch (...) {}  // NOLINT: it has a number

void start_from_environment() noexcept try {
  static const bool once = [] {
    std::optional<std::string> path = os::environment("ONEPASS_PROFILE");
    if (!path) return false;
    all().path = *std::move(path);
    turn_on();
    std::atexit(write_at_exit);
    return true;
  }();
  static_cast<void>(once);
} catch (...) {}  // NOLINT: no memory

}  // namespace onepass::runtime::profile

namespace onepass {

namespace profile = runtime::profile;

void set_profiling(bool on) {
  if (on) profile::turn_on();
  else profile::detail::enabled.store(false, std::memory_order_relaxed);
}
bool profiling() noexcept { return profile::on(); }

void clear_profile() {
  std::vector<std::shared_ptr<profile::Ring>> rings;
  {
    const std::lock_guard lock(profile::all().mutex);
    rings = profile::all().rings;
    profile::all().start = os::nanoseconds();
  }
  for (const auto& ring : rings) {
    const std::lock_guard lock(ring->mutex);
    ring->events.clear();
    ring->next = 0;
    ring->dropped = 0;
  }
}

std::string profile_json() {
  const profile::Snapshot s = profile::snapshot();
  runtime::JsonText json;
  json.open('{').member("displayTimeUnit", "ns").key("otherData").open('{');
  json.member("onepass", std::string_view(ONEPASS_VERSION)).member("dropped_events", s.dropped).close('}');
  json.key("traceEvents").open('[');
  json.line().open('{').member("name", "process_name").member("ph", "M").member("pid", os::process_id()).member("tid", 0);
  json.key("args").open('{').member("name", "onepass").close('}').close('}');
  for (const profile::Snapshot::Thread& thread : s.threads) {
    json.line().open('{').member("name", "thread_name").member("ph", "M").member("pid", os::process_id());
    json.member("tid", thread.number).key("args").open('{');
    json.member("name", std::string_view(fmt::format("{} ({})", thread.name, thread.number))).close('}').close('}');
  }
  for (const profile::Snapshot::Thread& thread : s.threads)
    for (const profile::Event& e : thread.events) profile::write_event(json, s, thread, e);
  json.close(']').close('}');
  return json.take() + "\n";
}

void write_profile(const std::string& path) { runtime::write_text("profile", path, profile_json()); }

std::vector<CallRecord> recent_calls(std::size_t count) {
  using profile::Event, profile::Kind;
  const profile::Snapshot s = profile::snapshot();
  struct Found {
    const Event* call;
    const profile::Snapshot::Thread* thread;
  };
  std::vector<Found> found;
  for (const profile::Snapshot::Thread& thread : s.threads)
    for (const Event& e : thread.events)
      if (e.kind == Kind::Call) found.push_back({&e, &thread});
  std::ranges::sort(found, [](const Found& a, const Found& b) { return a.call->start > b.call->start; });
  found.resize(std::min(found.size(), count));
  std::vector<CallRecord> calls;
  for (const Found& f : found) {
    CallRecord& call = calls.emplace_back();
    call.start_ms = static_cast<double>(f.call->start - s.start) / 1e6;
    call.ms = static_cast<double>(f.call->end - f.call->start) / 1e6;
    call.thread = f.thread->number;
    const auto plan = s.plans.find(f.call->a);
    if (plan != s.plans.end()) {
      call.signature = plan->second.signature;
      call.kernel_ms.resize(plan->second.launches.size());
    }
    // What this thread ran of them: it begins and ends with each kernel.
    for (const Event& e : f.thread->events)
      if (e.kind == Kind::Kernel && e.a == f.call->a && e.start >= f.call->start && e.end <= f.call->end &&
          static_cast<std::size_t>(e.b) < call.kernel_ms.size())
        call.kernel_ms[static_cast<std::size_t>(e.b)] += static_cast<double>(e.end - e.start) / 1e6;
  }
  return calls;
}

}  // namespace onepass
