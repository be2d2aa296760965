// Each worker has one slot on a separate cache line. The slot has the state of the worker's range in the current loop:
//   idle      no work, the worker spins                taken     a thread runs it
//   asleep    no work, the worker must be woken        open      the worker or the caller may claim it
//
// The caller opens the slots, runs range 0, claims the ranges that are still open, and waits for the other ranges. A worker that wakes late
// finds its slot idle and does not touch the loop's data. Only a successful claim permits reading `job`, and the caller cannot leave
// before claimed ranges are done.
#include "runtime/threads.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <new>

#include <fmt/format.h>

#include "compiler/target.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/log.h"
#include "runtime/os.h"

namespace onepass {

namespace threads {

namespace {

constexpr std::uint32_t kIdle = 0, kAsleep = 1, kOpen = 2, kTaken = 3;
// Longer than the usual serial code between two kernels, and too short to affect battery life.
constexpr std::int64_t kSpinNanoseconds = 60'000;

struct Job {
  std::int64_t items = 0;
  int shares = 0;
  const FunctionRef<void(std::int64_t, std::int64_t, int)>* body = nullptr;
  void run(int share) const { (*body)(share_begin(items, shares, share), share_begin(items, shares, share + 1), share); }
};

struct alignas(128) Slot {  // two lines, because the processor fetches them in pairs
  std::atomic<std::uint32_t> state{kIdle};
  std::atomic<int> processor{-1};  // processor that runs the range
};

// The host's executor. Previous executors are kept, because another thread may be inside a previous executor; hosts set an executor once.
struct HostExecutor {
  detail::Shared<void> object;
  void (*call)(void* object, int count, Shares shares) = nullptr;  // null: onepass's threads
  const HostExecutor* before = nullptr;
};

struct Pool {
  alignas(128) std::atomic<bool> busy{false};
  int workers = 0;  // number of started workers; guarded by `busy`, like `job`
  Job job;
  // Number of unfinished ranges, and a bit that is set while the caller sleeps on this variable.
  alignas(128) std::atomic<std::uint32_t> remaining{0};
  Slot slots[kMaxThreads];  // slot 0 only has the caller's processor

  alignas(128) std::atomic<int> count{0};  // set by the host; 0: default
  std::atomic<HostExecutor*> executor{nullptr};
  std::atomic<void (*)(int)> worker_start{nullptr};
  int cores = 1;
};
constexpr std::uint32_t kCallerSleeps = 1u << 31;

thread_local constinit int scope_count = 0;
thread_local constinit bool inside_body = false;

struct InsideBody {
  InsideBody() { inside_body = true; }
  ~InsideBody() { inside_body = false; }
};

Pool& pool() noexcept;

// Resets the pool in a fork's child, which has no workers. The interrupted work belongs to the parent.
void forget_workers() {
  Pool& shared = pool();
  shared.busy.store(false, std::memory_order_relaxed);
  shared.workers = 0;
  shared.remaining.store(0, std::memory_order_relaxed);
  for (Slot& slot : shared.slots) slot.state.store(kIdle, std::memory_order_relaxed);
}

// Returns the default number of threads: the cores of the machine, or of its description. If memory to read the description is exhausted,
// the next call tries again.
int usual() noexcept {
  static constinit std::atomic<int> known{0};
  if (const int count = known.load(std::memory_order_relaxed)) return count;
  int count = os::usable_cores();
  try {
    count = compiler::Target::host().cores;
  } catch (const std::bad_alloc&) { return std::min(count, kMaxThreads); } catch (...) {
  }  // a bad description: creating a program reports the error
  known.store(std::min(count, kMaxThreads), std::memory_order_relaxed);
  return std::min(count, kMaxThreads);
}

Pool* make_pool() noexcept {
  alignas(Pool) static std::byte storage[sizeof(Pool)];  // never destroyed: workers outlive static variables
  Pool* const result = new (storage) Pool;
  result->cores = std::min(os::usable_cores(), kMaxThreads);
  os::at_fork(nullptr, nullptr, forget_workers);
  return result;
}

Pool& pool() noexcept {
  static Pool* const instance = make_pool();
  return *instance;
}

/// Spins until `done()` or the timeout; true if done. On a busy machine the system may put several threads on one processor. If
/// `crowded()`, this thread yields, because the other threads would otherwise wait until it stops spinning.
template <class Done, class Crowded> bool spin(std::int64_t nanoseconds_at_most, Done done, Crowded crowded) {
  std::int64_t until = 0;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      os::pause();
    }
    if (crowded()) os::yield_processor();
    const std::int64_t now = os::nanoseconds();
    if (until == 0) until = now + nanoseconds_at_most;
    if (now >= until) return done();
  }
}

/// Claims and runs range `index`; false if another thread has claimed it.
bool claim_and_run(Pool& shared, int index) {
  Slot& slot = shared.slots[index];
  std::atomic<std::uint32_t>& state = slot.state;
  std::uint32_t expected = kOpen;
  if (!state.compare_exchange_strong(expected, kTaken, std::memory_order_acquire, std::memory_order_relaxed)) return false;
  slot.processor.store(os::current_processor(), std::memory_order_relaxed);
  shared.job.run(index);
  // The slot becomes idle before its work counts as done, because the caller may open the slot again at once.
  state.store(kIdle, std::memory_order_relaxed);
  if (shared.remaining.fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1)) os::wake(shared.remaining, 1);
  return true;
}

void work(void* argument) {
  Pool& shared = pool();
  const int index = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
  os::set_floating_point_control(os::default_floating_point_control());
  inside_body = true;
  if (auto* const hook = shared.worker_start.load()) hook(index);
  std::atomic<std::uint32_t>& state = shared.slots[index].state;
  for (;;) {
    if (claim_and_run(shared, index)) continue;
    // With more workers than cores, a spinning worker would block a working worker.
    const std::int64_t time = index < shared.cores ? kSpinNanoseconds : 0;
    if (spin(
            time, [&] { return state.load(std::memory_order_relaxed) == kOpen; },
            [&] { return shared.slots[0].processor.load(std::memory_order_relaxed) == os::current_processor(); }))
      continue;
    std::uint32_t expected = kIdle;
    // Taken: the caller is running this worker's range and will set the slot to idle. Check again soon instead of sleeping.
    if (!state.compare_exchange_strong(expected, kAsleep, std::memory_order_relaxed) && expected == kTaken) {
      os::yield_processor();
      continue;
    }
    while (state.load(std::memory_order_relaxed) == kAsleep) os::wait(state, kAsleep);
  }
}

/// Starts workers up to number `wanted`. If the system refuses a worker, the caller of each loop runs its range.
void start_workers(Pool& shared, int wanted) {
  while (shared.workers < wanted) {
    const int index = shared.workers + 1;
    char name[16] = "onepass-";
    *std::to_chars(name + 8, name + 12, index).ptr = 0;
    if (!os::start_thread(name, work, reinterpret_cast<void*>(static_cast<std::intptr_t>(index)))) {
      static constinit runtime::Once once;
      if (once.first())
        runtime::log(LogLevel::warning, "threads: the system refuses to start worker thread {}; calls continue with the existing threads",
                     index);
      return;
    }
    ++shared.workers;
  }
}

void run_serially(const Job& job) {
  const bool outer = !inside_body;
  inside_body = true;
  for (int share = 0; share < job.shares; ++share) job.run(share);
  if (outer) inside_body = false;
}

void run_by_host(const HostExecutor& executor, const Job& job) {
  const InsideBody inside;  // this thread may be a thread of the executor
  executor.call(executor.object.get(), job.shares, Shares(&job, [](const void* of, int share) {
                  const bool before = inside_body;
                  inside_body = true;
                  const os::DefaultFloatingPoint control;
                  static_cast<const Job*>(of)->run(share);
                  inside_body = before;
                }));
}

void run_in_pool(Pool& shared, const Job& job) {
  shared.job = job;
  shared.slots[0].processor.store(os::current_processor(), std::memory_order_relaxed);
  if (shared.workers < job.shares - 1) start_workers(shared, job.shares - 1);
  shared.remaining.store(static_cast<std::uint32_t>(job.shares - 1), std::memory_order_relaxed);
  for (int index = 1; index < job.shares; ++index) {
    std::atomic<std::uint32_t>& state = shared.slots[index].state;
    if (state.exchange(kOpen, std::memory_order_release) == kAsleep) os::wake(state, 1);
  }
  const InsideBody inside;
  job.run(0);
  for (int index = 1; index < job.shares; ++index) claim_and_run(shared, index);

  // Other threads run the remaining ranges. This thread's spinning may have taken their cores: it spins briefly, then sleeps.
  const auto done = [&] { return shared.remaining.load(std::memory_order_acquire) == 0; };
  const auto crowded = [&] {
    const int here = os::current_processor();
    for (int index = 1; index < job.shares; ++index) {
      const Slot& slot = shared.slots[index];
      if (slot.state.load(std::memory_order_relaxed) == kTaken && slot.processor.load(std::memory_order_relaxed) == here) return true;
    }
    return false;
  };
  if (spin(kSpinNanoseconds, done, crowded)) return;
  for (int i = 0; i < 20; ++i) {
    os::yield_processor();
    if (done()) return;
  }
  std::uint32_t left = shared.remaining.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (left != kCallerSleeps) {
    os::wait(shared.remaining, left);
    left = shared.remaining.load(std::memory_order_acquire);
  }
}

}  // namespace

void parallel_for(std::int64_t items, int threads, FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  if (items <= 0) return;
  const int shares = static_cast<int>(std::min<std::int64_t>(items, std::clamp(threads, 1, kMaxThreads)));
  if (shares == 1) return body(0, items, 0);
  const Job job{items, shares, &body};
  if (inside_body) return run_serially(job);
  Pool& shared = pool();
  const HostExecutor* const executor = shared.executor.load(std::memory_order_acquire);
  if (executor && executor->call) return run_by_host(*executor, job);
  if (shared.busy.exchange(true, std::memory_order_acquire)) return run_serially(job);
  run_in_pool(shared, job);
  shared.busy.store(false, std::memory_order_release);
}

void start(int threads) noexcept {
  Pool& shared = pool();
  const HostExecutor* const executor = shared.executor.load(std::memory_order_acquire);
  if (inside_body || (executor && executor->call) || shared.busy.exchange(true, std::memory_order_acquire)) return;
  start_workers(shared, std::min(threads, kMaxThreads) - 1);
  shared.busy.store(false, std::memory_order_release);
}

int count() noexcept {
  if (scope_count > 0) return scope_count;
  const int set = pool().count.load(std::memory_order_relaxed);
  return set > 0 ? set : usual();
}

}  // namespace threads

// ------------------------------------------------------------------------------------------------ host settings

using threads::pool;

namespace {
void check_count(int threads) {
  if (threads < 0 || threads > threads::kMaxThreads)
    throw ValueError(
        fmt::format("threads: {} is not a valid number of threads. Pass 1 to {}, or 0 for one per core.", threads, threads::kMaxThreads));
}
}  // namespace

int thread_count() noexcept { return threads::count(); }

void set_threads(int threads) {
  check_count(threads);
  pool().count = threads;
}

ThreadScope::ThreadScope(int threads) : saved_(threads::scope_count) {
  check_count(threads);
  if (threads > 0) threads::scope_count = threads;
}
ThreadScope::~ThreadScope() { threads::scope_count = saved_; }

void detail::set_executor(detail::Shared<void> object, void (*call)(void*, int, Shares)) {
  auto& current = pool().executor;
  threads::HostExecutor* before = current.load();
  if (!before && !call) return;
  auto* const next = new threads::HostExecutor{std::move(object), call, before};
  while (!current.compare_exchange_weak(before, next, std::memory_order_release, std::memory_order_relaxed)) next->before = before;
}

void set_worker_start(void (*hook)(int worker)) noexcept { pool().worker_start = hook; }

}  // namespace onepass
