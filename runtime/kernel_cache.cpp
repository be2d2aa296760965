// See kernel_cache.h. One mutex guards the table; compiling happens outside it. Kernels are immutable and live as long as a plan holds
// them, so that eviction only ends their being found.
#include "runtime/kernel_cache.h"

#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "onepass/error.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
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

Kernel::Kernel(const compiler::CodegenRequest& request, const std::string& key)
    : key_(key), nest_(*request.nest), schedule_(*request.schedule), target_(*request.target) {
  if (load()) return;
  const std::int64_t start = os::nanoseconds();
  const compiler::Schedule quick = compiler::quick_form(schedule_);
  compiler::CodegenRequest first = request;
  first.schedule = &quick;
  first.tier = compiler::Tier::Quick;
  std::string object = compiler::generate(first).object;
  first_ = compiler::KernelObject::load(object);
  function_.store(first_->function(), std::memory_order_release);
  compile_ms_ = static_cast<double>(os::nanoseconds() - start) / 1e6;
  if (disk_cache().enabled())
    background::run_late([key, object = std::move(object)] { disk_cache().store(key, compiler::Tier::Quick, object); });
}

// From disk: code that is damaged in a way that its checksum does not show is no reason to fail.
bool Kernel::load() {
  const std::optional<DiskCache::Entry> entry = disk_cache().find(key_);
  if (!entry) return false;
  try {
    first_ = compiler::KernelObject::load(entry->object);
  } catch (const InternalError&) {
    disk_cache().discard(key_);
    return false;
  }
  function_.store(first_->function(), std::memory_order_release);
  from_disk_ = true;
  if (entry->tier == compiler::Tier::Optimised) runs_left_.store(0, std::memory_order_relaxed);
  return true;
}

void Kernel::optimise() const {
  background::run([weak = weak_from_this()] {
    const std::shared_ptr<const Kernel> kernel = weak.lock();
    if (!kernel) return;  // nobody can run it any more
    try {
      const std::string object =
          compiler::generate(
              {.nest = &kernel->nest_, .schedule = &kernel->schedule_, .target = &kernel->target_, .tier = compiler::Tier::Optimised})
              .object;
      kernel->optimised_ = compiler::KernelObject::load(object);
      kernel->function_.store(kernel->optimised_->function(), std::memory_order_release);
      disk_cache().store(kernel->key_, compiler::Tier::Optimised, object);
    } catch (const std::exception&) {  // the quick tier stays: it gives the same results
    }
  });
}

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
      cache().finish(entries[i], std::make_shared<const Kernel>(requests[i].codegen, requests[i].key), nullptr);
    } catch (...) { cache().finish(entries[i], nullptr, std::current_exception()); }
  };
  if (mine.size() == 1) {
    make(mine[0]);
  } else if (!mine.empty()) {
    threads::parallel_for(static_cast<std::int64_t>(mine.size()), threads, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t k = begin; k < end; ++k) make(mine[static_cast<std::size_t>(k)]);
    });
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    results[i].kernel = cache().wait(entries[i]);
    results[i].compiled = results[i].compiled && !results[i].kernel->from_disk();
  }
  return results;
}

void wait_for_optimised() { background::wait(); }

KernelCacheStats kernel_cache_stats() { return cache().stats(); }
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes) { cache().set_limits(entries, bytes); }

}  // namespace onepass::runtime
