// See background.h. Jobs do not throw: what they make is optional, so they catch everything themselves.
#include "runtime/background.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>

#include "runtime/os.h"

namespace onepass::runtime::background {
namespace {

constexpr std::size_t kMostLate = 256;  // more than that, and the thread is started for them

class Worker {
 public:
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    register_handlers();
    if (stopping_ || !started()) return;
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void add_late(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    register_handlers();
    late_.push_back(std::move(job));
    if (late_.size() > kMostLate && !stopping_ && started()) changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    if (!late_.empty() && !stopping_ && started()) changed_.notify_all();
    changed_.wait(lock, [&] { return !running_ || stopping_ || (jobs_.empty() && late_.empty() && !busy_); });
  }
  static Worker& instance() {
    static Worker* const worker = new Worker;  // never destroyed: threads may outlive main
    return *worker;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_, late_;
  bool running_ = false, busy_ = false, stopping_ = false, registered_ = false;

  bool started() {
    if (!running_)
      running_ = os::start_thread(
          "onepass-compile", [](void* self) { static_cast<Worker*>(self)->work(); }, this);
    return running_;
  }
  // After LLVM was opened by the compile that comes before any job, so that our handler runs before LLVM's own destructors.
  void register_handlers() {
    if (registered_) return;
    registered_ = true;
    std::atexit([] { instance().stop(); });
    os::at_fork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().forget(); });
  }
  void work() {
    os::set_idle_priority();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty() || !late_.empty(); });
      if (stopping_) return;
      std::deque<std::function<void()>>& from = jobs_.empty() ? late_ : jobs_;
      std::function<void()> job = std::move(from.front());
      from.pop_front();
      busy_ = true;
      lock.unlock();
      job();
      job = nullptr;  // what it holds is let go before the next wait
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  // At exit: what has begun is finished, late jobs are done here, nothing else is begun.
  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    jobs_.clear();
    changed_.notify_all();
    changed_.wait(lock, [&] { return !busy_; });
    const std::deque<std::function<void()>> late = std::move(late_);
    lock.unlock();
    for (const std::function<void()>& job : late) job();
  }
  // In a forked child, which has no such thread; the mutex is held since before the fork. The parent does what is left to do.
  void forget() {
    jobs_.clear();
    late_.clear();
    running_ = busy_ = false;
    new (&changed_) std::condition_variable;  // waiters of the parent are not here
    mutex_.unlock();
  }
};

}  // namespace

void run(std::function<void()> job) { Worker::instance().add(std::move(job)); }
void run_late(std::function<void()> job) { Worker::instance().add_late(std::move(job)); }
void wait() { Worker::instance().wait(); }

}  // namespace onepass::runtime::background
