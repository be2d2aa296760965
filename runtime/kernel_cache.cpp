// See kernel_cache.h. One mutex guards the table; compiling happens outside it. Kernels are immutable and live as long as a plan holds
// them, so that eviction only ends their being found.
#include "runtime/kernel_cache.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>

#include "runtime/os.h"
#include "runtime/program.h"
#include "runtime/threads.h"

namespace onepass::runtime {
namespace {

struct Entry {
  std::string key;
  std::shared_ptr<const Kernel> kernel;  // null while it is being compiled
  std::exception_ptr error;              // of a compile that failed: the entry has left the table then
  bool ready = false;
};

class Cache {
 public:
  // The entry and whether the caller must compile it.
  std::pair<std::shared_ptr<Entry>, bool> claim(const std::string& key) {
    const std::lock_guard lock(mutex_);
    if (const auto it = table_.find(key); it != table_.end()) {
      order_.splice(order_.begin(), order_, it->second);
      ++stats_.hits;
      return {*it->second, false};
    }
    ++stats_.misses;
    auto entry = std::make_shared<Entry>();
    entry->key = key;
    order_.push_front(entry);
    table_.emplace(entry->key, order_.begin());
    ++stats_.entries;
    return {entry, true};
  }

  void finish(const std::shared_ptr<Entry>& entry, std::shared_ptr<const Kernel> kernel, std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      entry->kernel = std::move(kernel);
      entry->error = std::move(error);
      entry->ready = true;
      if (entry->kernel) {
        stats_.bytes += bytes_of(*entry);
        shrink();
      } else {
        remove(table_.find(entry->key));
      }
    }
    done_.notify_all();
  }

  std::shared_ptr<const Kernel> wait(const std::shared_ptr<Entry>& entry) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return entry->ready; });
    if (entry->error) std::rethrow_exception(entry->error);
    return entry->kernel;
  }

  KernelCacheStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void set_limits(std::int64_t entries, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    most_entries_ = entries;
    most_bytes_ = bytes;
    shrink();
  }

 private:
  using Order = std::list<std::shared_ptr<Entry>>;  // most recently used first
  std::mutex mutex_;
  std::condition_variable done_;
  Order order_;
  std::unordered_map<std::string_view, Order::iterator> table_;  // keys stand in the entries; found by hash, then compared whole
  KernelCacheStats stats_;
  std::int64_t most_entries_ = 4096, most_bytes_ = std::int64_t{256} << 20;

  static std::int64_t bytes_of(const Entry& entry) { return static_cast<std::int64_t>(entry.kernel->bytes() + entry.key.size()); }
  void remove(std::unordered_map<std::string_view, Order::iterator>::iterator it) {
    const auto place = it->second;
    table_.erase(it);  // before the key that it is found by
    order_.erase(place);
    --stats_.entries;
  }
  void shrink() {
    for (auto it = order_.end(); it != order_.begin() && (stats_.entries > most_entries_ || stats_.bytes > most_bytes_);) {
      --it;
      if (!(*it)->ready) continue;  // somebody waits for it
      const std::shared_ptr<Entry> entry = *it;
      stats_.bytes -= bytes_of(*entry);
      ++stats_.evictions;
      ++it;
      remove(table_.find(entry->key));
    }
  }
};

Cache& cache() {
  static Cache* const cache = new Cache;  // never destroyed: threads may outlive main
  return *cache;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ tiers

// Kernels that wait for their optimised code, and the thread that makes it: at idle priority, started with the first one, never ended.
class Optimiser {
 public:
  void add(std::weak_ptr<const Kernel> kernel) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(kernel));
      if (!running_) {
        running_ = os::start_thread(
            "onepass-compile", [](void* self) { static_cast<Optimiser*>(self)->run(); }, this);
        if (!running_) return jobs_.clear();  // no thread to be had: the quick tier stays
        static const bool once = [] {
          std::atexit([] { instance().stop(); });  // runs before LLVM's own destructors, which were registered earlier
          os::at_fork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().forget(); });
          return true;
        }();
        (void)once;
      }
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !running_ || stopping_ || (jobs_.empty() && !busy_); });
  }
  static Optimiser& instance() {
    static Optimiser* const optimiser = new Optimiser;
    return *optimiser;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<const Kernel>> jobs_;
  bool running_ = false, busy_ = false, stopping_ = false;

  void run() {
    os::set_idle_priority();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const std::weak_ptr<const Kernel> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      if (const std::shared_ptr<const Kernel> kernel = job.lock()) {
        try {
          const compiler::CodegenResult result = compiler::generate(
              {.nest = &kernel->nest_, .schedule = &kernel->schedule_, .target = &kernel->target_, .tier = compiler::Tier::Optimised});
          kernel->optimised_ = compiler::KernelObject::load(result.object);
          kernel->function_.store(kernel->optimised_->function(), std::memory_order_release);
        } catch (const std::exception&) {  // the quick tier stays: it gives the same results
        }
      }
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  // At exit: what is being compiled is finished, nothing is begun.
  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    jobs_.clear();
    changed_.notify_all();
    changed_.wait(lock, [&] { return !busy_; });
  }
  // In a forked child, which has no such thread; the mutex is held since before the fork.
  void forget() {
    jobs_.clear();
    running_ = busy_ = false;
    new (&changed_) std::condition_variable;  // waiters of the parent are not here
    mutex_.unlock();
  }
};

Kernel::Kernel(const compiler::CodegenRequest& request) : nest_(*request.nest), schedule_(*request.schedule), target_(*request.target) {
  const std::int64_t start = os::nanoseconds();
  const compiler::Schedule quick = compiler::quick_form(schedule_);
  compiler::CodegenRequest first = request;
  first.schedule = &quick;
  first.tier = compiler::Tier::Quick;
  quick_ = compiler::KernelObject::load(compiler::generate(first).object);
  function_.store(quick_->function(), std::memory_order_release);
  compile_ms_ = static_cast<double>(os::nanoseconds() - start) / 1e6;
}

void Kernel::optimise() const { Optimiser::instance().add(weak_from_this()); }

std::string kernel_key(const compiler::Nest& nest, const compiler::Schedule& schedule, const compiler::Target& target) {
  std::string key = nest.key();
  const std::size_t nest_bytes = key.size();  // so that no nest and schedule together look like another pair
  key += schedule.key();
  key += '\n';
  for (const std::string* text : {&target.triple, &target.cpu, &target.features}) key += *text + '\n';
  for (const std::uint64_t number : {static_cast<std::uint64_t>(target.vector_bytes), std::uint64_t{nest_bytes}})
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  return key;
}

std::vector<KernelResult> find_or_compile(std::span<const KernelRequest> requests, int threads) {
  std::vector<KernelResult> results(requests.size());
  std::vector<std::shared_ptr<Entry>> entries(requests.size());
  std::vector<std::size_t> mine;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto [entry, missing] = cache().claim(requests[i].key);
    entries[i] = entry;
    results[i].compiled = missing;
    if (missing) mine.push_back(i);
  }
  // Every claimed entry is finished, whatever is thrown: others wait for it.
  const auto make = [&](std::size_t i) noexcept {
    try {
      cache().finish(entries[i], std::make_shared<const Kernel>(requests[i].codegen), nullptr);
    } catch (...) { cache().finish(entries[i], nullptr, std::current_exception()); }
  };
  if (mine.size() == 1) {
    make(mine[0]);
  } else if (!mine.empty()) {
    threads::parallel_for(static_cast<std::int64_t>(mine.size()), threads, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t k = begin; k < end; ++k) make(mine[static_cast<std::size_t>(k)]);
    });
  }
  for (std::size_t i = 0; i < requests.size(); ++i) results[i].kernel = cache().wait(entries[i]);
  return results;
}

void wait_for_optimised() { Optimiser::instance().wait(); }

KernelCacheStats kernel_cache_stats() { return cache().stats(); }
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes) { cache().set_limits(entries, bytes); }

}  // namespace onepass::runtime
