// See profile.h. A thread writes its events to separate memory without a lock. The names of events are built when a profile is read.
#include "runtime/profile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
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

constexpr std::size_t kBlock = std::size_t{1} << 12, kBlocks = 64, kMostEvents = kBlock * kBlocks;  // per thread

// A thread's last events, written only by that thread. Blocks are allocated as needed, then reused. Readers run concurrently and discard
// events that may have been overwritten during the read: a sequence lock with the number of written events as its sequence.
class Ring {
 public:
  int number = 0;
  std::string name;

  void add(const Event& event) noexcept {
    const std::uint64_t n = written_.load(std::memory_order_relaxed);
    std::atomic<Block*>& place = blocks_[n / kBlock % kBlocks];
    Block* block = place.load(std::memory_order_relaxed);
    if (!block) [[unlikely]] {
      block = new (std::nothrow) Block;
      if (!block) {
        lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
      place.store(block, std::memory_order_release);
    }
    const auto words = std::bit_cast<std::array<std::uint64_t, kWords>>(event);
    std::atomic_thread_fence(std::memory_order_release);
    Slot& slot = (*block)[n % kBlock];
    for (std::size_t w = 0; w < kWords; ++w) slot[w].store(words[w], std::memory_order_relaxed);
    written_.store(n + 1, std::memory_order_release);
  }

  /// Returns the events since `clear`, the oldest first. Adds the number of lost events to `dropped`.
  std::vector<Event> events(std::int64_t& dropped) const {
    const std::uint64_t end = written_.load(std::memory_order_acquire), cleared = cleared_.load(std::memory_order_relaxed);
    const auto first_kept = [&](std::uint64_t written) { return std::max(cleared, written > kMostEvents ? written - kMostEvents : 0); };
    std::uint64_t first = first_kept(end);
    std::vector<Event> all;
    all.reserve(end - first);
    for (std::uint64_t n = first; n < end; ++n) {
      const Slot& slot = (*blocks_[n / kBlock % kBlocks].load(std::memory_order_acquire))[n % kBlock];
      std::array<std::uint64_t, kWords> words;
      for (std::size_t w = 0; w < kWords; ++w) words[w] = slot[w].load(std::memory_order_relaxed);
      all.push_back(std::bit_cast<Event>(words));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (const std::uint64_t now = written_.load(std::memory_order_relaxed); now != end) {
      const std::uint64_t whole = std::min(first_kept(now + 1), end);  // the next event may be partly written
      if (whole > first) all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(whole - first)), first = whole;
    }
    dropped += static_cast<std::int64_t>(first - cleared) + lost_.load(std::memory_order_relaxed);
    return all;
  }

  void clear() noexcept {
    cleared_.store(written_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    lost_.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kWords = sizeof(Event) / sizeof(std::uint64_t);
  using Slot = std::array<std::atomic<std::uint64_t>, kWords>;
  using Block = std::array<Slot, kBlock>;
  std::array<std::atomic<Block*>, kBlocks> blocks_{};
  std::atomic<std::uint64_t> written_{0}, cleared_{0};
  std::atomic<std::int64_t> lost_{0};
};

// The input of event texts, which are built on request. Keeping only a few numbers makes planning with profiling cheap.
struct LaunchText {
  std::uint32_t kernel = 0;
  ir::Op op = ir::Op::Input;  // operator of the first stored value; Input: unknown
  std::uint8_t loops = 0;
  std::uint64_t reduced = 0;
  std::array<std::int64_t, 6> extents{};  // extents of the first loops

  std::string text() const {
    const std::span known(extents.data(), std::min<std::size_t>(loops, extents.size()));
    std::string out = fmt::format("{}: {}", kernel, loops_text(known, reduced));
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
  std::string path;  // from ONEPASS_PROFILE
  std::uint32_t generation = 0;
};

All& all() {
  static All* const a = new All;  // never destroyed: threads may outlive main
  return *a;
}

constinit thread_local Ring* mine = nullptr;  // never destroyed: exit handlers may still add events

Ring* my_ring() {
  if (mine) [[likely]]
    return mine;
  auto ring = std::make_shared<Ring>();
  ring->name = os::thread_name();
  const std::lock_guard lock(all().mutex);
  ring->number = static_cast<int>(all().rings.size()) + 1;
  all().rings.push_back(ring);
  return mine = ring.get();
}

// Resets the state in a forked child. Locks may be held by threads that do not exist in it, and the parent writes its own events.
void begin_anew() {
  mine = nullptr;
  All& a = all();
  new (&a.mutex) std::mutex;
  new (&a.rings) std::vector<std::shared_ptr<Ring>>;  // the old objects are leaked unchanged
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
    std::vector<Event> events;  // sorted by end
  };
  std::vector<Thread> threads;
  std::unordered_map<std::uint64_t, PlanNames> plans;
  std::int64_t start = 0, dropped = 0;
};

Snapshot snapshot() {
  Snapshot s;
  std::vector<std::shared_ptr<Ring>> rings;
  {
    const std::lock_guard lock(all().mutex);
    rings = all().rings;
    s.start = all().start;
  }
  for (const std::shared_ptr<Ring>& ring : rings) {
    std::vector<Event> events = ring->events(s.dropped);
    s.threads.emplace_back(ring->number, ring->name, std::move(events));
  }
  std::vector<PlanText> plans;  // read afterwards, because a plan is described before its first event
  {
    const std::lock_guard lock(all().mutex);
    plans = all().plans;
  }
  for (const PlanText& plan : plans) {
    PlanNames& names = s.plans[plan.id];
    names.signature = signature_text(plan.key);
    for (const LaunchText& launch : plan.launches) names.launches.push_back(launch.text());
  }
  return s;
}

constexpr std::string_view kKinds[] = {"call", "kernel", "record", "pass", "fuse", "plan", "compile", "compile stage", "cache"};
constexpr std::string_view kTiers[] = {"quick", "optimized", "specialized"};

void write_event(JsonText& json, const Snapshot& s, const Snapshot::Thread& thread, const Event& e) {
  const auto plan = s.plans.find(e.a);
  std::string name = e.name;
  if (e.kind() == Kind::Kernel) {
    name = fmt::format("kernel {}", e.b);
    if (plan != s.plans.end() && static_cast<std::size_t>(e.b) < plan->second.launches.size())
      name = plan->second.launches[static_cast<std::size_t>(e.b)];
  }
  json.line().open('{').member("name", std::string_view(name)).member("cat", kKinds[static_cast<std::size_t>(e.kind())]).member("ph", "X");
  json.key("ts").raw(fmt::format("{:.3f}", static_cast<double>(e.start - s.start) / 1e3));
  json.key("dur").raw(fmt::format("{:.3f}", static_cast<double>(e.end - e.start) / 1e3));
  json.member("pid", os::process_id()).member("tid", thread.number).key("args").open('{');
  switch (e.kind()) {
    case Kind::Call:
    case Kind::Kernel:
    case Kind::Plan:
    case Kind::Fuse:
      if (plan != s.plans.end()) json.member("shapes", std::string_view(plan->second.signature));
      if (e.a != 0) json.member("plan", e.a);
      break;
    case Kind::Record: break;
    case Kind::Pass: json.member("nodes", e.b); break;
    case Kind::Compile:
    case Kind::Stage: json.member("kernel", std::string_view(fmt::format("{:016x}", e.a))).member("tier", kTiers[e.b]); break;
    case Kind::Cache: json.member("kernels", e.a).member("there", e.b); break;
  }
  json.close('}').close('}');
}

// Writes the profile at any exit of the process that runs exit handlers.
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
}  // NOLINT: no memory for the event

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
} catch (...) {}  // NOLINT: the number identifies the plan without a name

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
  for (const auto& ring : rings) ring->clear();
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
    const profile::Snapshot::Thread* thread;
    std::size_t at;
    const Event& call() const { return thread->events[at]; }
  };
  std::vector<Found> found;
  for (const profile::Snapshot::Thread& thread : s.threads)
    for (std::size_t i = 0; i < thread.events.size(); ++i)
      if (thread.events[i].kind() == Kind::Call) found.push_back({&thread, i});
  std::ranges::sort(found, [](const Found& a, const Found& b) { return a.call().start > b.call().start; });
  found.resize(std::min(found.size(), count));
  std::vector<CallRecord> calls;
  for (const Found& f : found) {
    const Event& of = f.call();
    CallRecord& call = calls.emplace_back();
    call.start_ms = static_cast<double>(of.start - s.start) / 1e6;
    call.ms = static_cast<double>(of.end - of.start) / 1e6;
    call.thread = f.thread->number;
    const auto plan = s.plans.find(of.a);
    if (plan == s.plans.end()) continue;
    call.signature = plan->second.signature;
    call.kernel_ms.resize(plan->second.launches.size());
    // Sums this thread's parts of the kernels, which are within the call's time. A thread's events are in order of their ends.
    for (std::size_t i = f.at; i-- > 0 && f.thread->events[i].end >= of.start;) {
      const Event& e = f.thread->events[i];
      if (e.kind() == Kind::Kernel && e.a == of.a && e.start >= of.start && static_cast<std::size_t>(e.b) < call.kernel_ms.size())
        call.kernel_ms[static_cast<std::size_t>(e.b)] += static_cast<double>(e.end - e.start) / 1e6;
    }
  }
  return calls;
}

}  // namespace onepass
