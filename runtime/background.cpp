// See background.h.
//
// On a busy machine an idle-priority thread may not run for seconds. It therefore holds no lock that a caller, a fork or an exit could
// wait for. Other threads push jobs to the front of a list, and the thread takes the whole list.
#include "runtime/background.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "compiler/codegen.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/os.h"

namespace onepass::runtime::background {
namespace {

constinit std::atomic<int> thread_count{1};
constexpr std::uint32_t kMostLate = 256;  // more late jobs than this start the thread

struct Job {
  std::function<void()> work;
  Job* next;
  bool late;

  // Runs the job. Its product is optional, and exhausted memory cannot be reported to a caller.
  void run() const noexcept {
    try {
      work();
    } catch (...) {}  // NOLINT
  }
};

class List {
 public:
  void push(Job* job) noexcept {
    job->next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(job->next, job, std::memory_order_release, std::memory_order_relaxed)) {}
  }
  /// Takes all jobs and returns the oldest first.
  Job* take() noexcept {
    Job* oldest = nullptr;
    for (Job* job = newest_.exchange(nullptr, std::memory_order_acquire); job;) {
      Job* const after = std::exchange(job->next, oldest);
      oldest = std::exchange(job, after);
    }
    return oldest;
  }
  std::uint32_t count() const noexcept {
    std::uint32_t n = 0;
    for (const Job* job = newest_.load(std::memory_order_acquire); job; job = job->next) ++n;
    return n;
  }

 private:
  std::atomic<Job*> newest_{nullptr};
};

class Worker {
 public:
  void add(std::function<void()> work) {
    if (stopping_) return;
    put(jobs_, std::move(work), false);
    start();
  }
  void add_late(std::function<void()> work) {
    put(late_, std::move(work), true);
    // A waiting thread may have woken the worker before this job was added.
    if (late_count_.fetch_add(1, std::memory_order_relaxed) > kMostLate || waiting_ > 0) start();
  }
  bool is_done() const noexcept { return done_.load(std::memory_order_acquire) == queued_.load(std::memory_order_acquire); }
  void hurry() noexcept {
    if (done_.load(std::memory_order_acquire) == queued_.load(std::memory_order_acquire) || hurries_.exchange(true)) return;
    set_priority();
  }
  /// Waits until `end`, in os::nanoseconds. False if there was nothing to wait for.
  bool wait(std::int64_t end) {
    if (done_.load(std::memory_order_acquire) == queued_.load(std::memory_order_acquire)) return false;
    ++waiting_;
    start();
    set_priority();  // otherwise the waiting thread would depend on all other processes
    bool all = false;
    while (running_ && !stopping_) {
      const std::uint32_t done = done_.load(std::memory_order_acquire);
      all = done == queued_.load(std::memory_order_acquire);
      const std::int64_t left = end - os::nanoseconds();
      if (all || left <= 0) break;
      os::wait_for(done_, done, left);
    }
    --waiting_;
    set_priority();
    return all;
  }

  // Runs pending late jobs at exit and starts no other jobs. The current job continues until the process ends, except if LLVM's globals
  // would be destroyed while it runs.
  void stop() {
    stopping_ = true;
    os::wake(done_, INT_MAX);
    while (!compiler::outlives_exit() && current_.load()) os::yield_processor();
    if (running_) left_ = taken_.exchange(nullptr);  // not deleted: the thread may be reading the first job
    for (const Job* job = left_; job; job = job->next)
      if (job->late) job->run();
    for (Job* job = late_.take(); job;) {
      job->run();
      delete std::exchange(job, job->next);
    }
  }
  // Resets the state in a forked child, which has no worker thread. The child's next job starts a thread, which first runs the remaining
  // jobs. Late jobs belong to the parent.
  void resume_in_child() noexcept {
    running_ = hurries_ = false;
    thread_ = waiting_ = 0;
    late_.take();
    late_count_ = 0;
    Job* const job = current_.exchange(nullptr);
    if (job && job != taken_) jobs_.push(job);
    std::uint32_t left = jobs_.count();
    for (const Job* j = taken_; j; j = j->next) ++left;
    done_ = 0;
    queued_ = left;
  }

 private:
  List jobs_, late_;
  std::atomic<Job*> taken_{nullptr}, current_{nullptr};  // the thread's pending jobs, and its current job
  Job* left_ = nullptr;                                  // the thread's pending jobs at exit
  std::atomic<std::uint32_t> changed_{0}, queued_{0}, done_{0}, late_count_{0};
  std::atomic<bool> running_{false}, stopping_{false}, hurries_{false};
  std::atomic<int> thread_{0}, waiting_{0};  // 0: not started

  void put(List& list, std::function<void()> work, bool late) {
    auto* const job = new Job{std::move(work), nullptr, late};
    queued_.fetch_add(1, std::memory_order_relaxed);
    list.push(job);
    changed_.fetch_add(1);  // before the adder checks for waiting threads; waiting threads set their flag before they wake the worker
  }
  void start() noexcept {
    if (!stopping_ && !running_.exchange(true) &&
        !os::start_thread(
            "onepass-compile", [](void* self) { static_cast<Worker*>(self)->work(); }, this)) {
      running_ = false;
      static constinit Once once;
      if (once.first()) log(LogLevel::warning, "no background thread can be started; kernels keep their baseline code");
    }
    os::wake(changed_, 1);
  }
  // Sets the priority after one of its inputs has changed; any thread may call it. The loop rechecks the inputs, so that with concurrent
  // calls the latest input wins. Otherwise a thread that another thread waits for could stay at idle priority.
  void set_priority() noexcept {
    const int thread = thread_;
    if (thread == 0) return;
    bool idle = false;
    do {
      idle = waiting_ == 0 && !hurries_;
      os::set_idle_priority(thread, idle);
    } while (idle != (waiting_ == 0 && !hurries_));
  }
  void work() {
    thread_ = os::thread_number();
    set_priority();
    while (!stopping_) {
      const std::uint32_t seen = changed_.load(std::memory_order_acquire);
      if (!taken_) taken_ = jobs_.take();
      if (!taken_) {
        late_count_ = 0;
        taken_ = late_.take();
      }
      Job* const job = taken_;
      if (!job) {
        if (hurries_.exchange(false)) set_priority();
        os::wait(changed_, seen);
        continue;
      }
      current_ = job;
      Job* first = job;
      if (stopping_ || !taken_.compare_exchange_strong(first, job->next)) {  // the process exits and has taken the remaining jobs
        current_ = nullptr;
        break;
      }
      job->run();
      current_ = nullptr;
      delete job;
      done_.fetch_add(1, std::memory_order_release);
      os::wake(done_, INT_MAX);
    }
    // The process exits. If this thread ended now, it would destroy its thread-local variables, including LLVM's, while other threads
    // destroy all other variables.
    for (std::atomic<std::uint32_t> never{0};;) os::wait(never, 0);
  }
};

// Each job stays with one thread. Threads share nothing, so no thread holds a lock that another thread waits for.
class Workers {
 public:
  static constexpr int kMost = 64;

  static Workers& instance() noexcept {
    alignas(Workers) static std::byte storage[sizeof(Workers)];  // never destroyed: threads may outlive main
    static Workers* const workers = new (storage) Workers;
    return *workers;
  }
  void run(std::function<void()> job, int threads) {
    all_[next_.fetch_add(1, std::memory_order_relaxed) % static_cast<std::uint32_t>(threads)].add(std::move(job));
  }
  void hurry() noexcept {
    for (Worker& worker : all_) worker.hurry();
  }
  void run_late(std::function<void()> job) { all_[0].add_late(std::move(job)); }
  bool wait(std::int64_t nanoseconds) {
    constexpr std::int64_t kYear = 365 * std::int64_t{86'400'000'000'000};
    const std::int64_t end = os::nanoseconds() + (nanoseconds < 0 ? kYear : std::min(nanoseconds, kYear));
    for (bool again = true; again;) {  // jobs of one thread may add jobs to another thread
      again = false;
      for (Worker& worker : all_) again |= worker.wait(end);
    }
    return std::ranges::all_of(all_, &Worker::is_done);
  }

 private:
  std::array<Worker, kMost> all_;
  std::atomic<std::uint32_t> next_{0};

  // Runs after the first compile has opened LLVM, so that this exit handler precedes LLVM's destructors, if any.
  Workers() noexcept {
    in_forked_child([] {
      for (Worker& worker : instance().all_) worker.resume_in_child();
    });
    std::atexit([] {
      for (Worker& worker : instance().all_) worker.stop();
    });
  }
};

}  // namespace

bool run(std::function<void()> job) {
  const int threads = thread_count.load(std::memory_order_relaxed);
  if (threads > 0) Workers::instance().run(std::move(job), threads);
  return threads > 0;
}
void hurry() noexcept { Workers::instance().hurry(); }
void run_late(std::function<void()> job) { Workers::instance().run_late(std::move(job)); }
bool wait(std::int64_t nanoseconds) { return Workers::instance().wait(nanoseconds); }

int most_threads() { return Workers::kMost; }
void set_threads(int threads) { thread_count = threads; }
int threads() { return thread_count; }

}  // namespace onepass::runtime::background

namespace onepass {

void set_compile_threads(int threads) {
  namespace background = runtime::background;
  if (threads < 0 || threads > background::most_threads())
    throw ValueError(fmt::format("set_compile_threads: {} is not between 0 and {}", threads, background::most_threads()));
  background::set_threads(threads);
}
int compile_threads() noexcept { return runtime::background::threads(); }

}  // namespace onepass
