// See kernel_cache.h. One mutex guards the table; compiling happens outside it, and nobody waits by anything but a word of memory, so that a
// fork leaves nothing locked. Kernels are immutable and live as long as a plan holds
// them, so that eviction only ends their being found.
#include "runtime/kernel_cache.h"

#include <algorithm>
#include <climits>
#include <exception>
#include <limits>
#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/program.h"
#include "runtime/stop.h"
#include "runtime/threads.h"

namespace onepass::runtime {
namespace {

struct Entry {
  std::string key;
  std::shared_ptr<const Kernel> kernel;  // null while it is being compiled
  std::exception_ptr error;              // of a compile that failed: the entry has left the table then
  std::atomic<std::uint32_t> ready{0};   // set last
};

class Cache {
 public:
  static Cache& instance() {
    static Cache* const cache = new Cache;  // never destroyed: threads may outlive main
    return *cache;
  }
  Cache() {
    in_forked_child([] { instance().forget_unfinished(); });
  }

  // The entry and whether the caller must compile it. Throws where there is no memory; nothing has changed then.
  std::pair<std::shared_ptr<Entry>, bool> claim(const std::string& key) {
    const std::lock_guard lock(mutex_);
    if (const auto it = table_.find(key); it != table_.end()) {
      order_.splice(order_.begin(), order_, it->second);
      ++stats_.hits;
      return {*it->second, false};
    }
    auto entry = std::make_shared<Entry>();
    entry->key = key;
    order_.push_front(entry);
    try {
      table_.emplace(entry->key, order_.begin());
    } catch (...) {
      order_.pop_front();
      throw;
    }
    ++stats_.misses;
    ++stats_.entries;
    return {std::move(entry), true};
  }

  void finish(const std::shared_ptr<Entry>& entry, std::shared_ptr<const Kernel> kernel, std::exception_ptr error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      entry->kernel = std::move(kernel);
      entry->error = std::move(error);
      entry->ready.store(1, std::memory_order_release);
      if (const auto it = table_.find(entry->key); it != table_.end() && *it->second == entry) {
        if (entry->kernel) {
          stats_.bytes += bytes_of(*entry);
          shrink();
        } else {
          remove(it);
        }
      }
    }
    os::wake(entry->ready, INT_MAX);
  }

  static std::shared_ptr<const Kernel> wait(const Entry& entry) {
    while (entry.ready.load(std::memory_order_acquire) == 0) os::wait(const_cast<Entry&>(entry).ready, 0);
    if (entry.error) std::rethrow_exception(entry.error);
    return entry.kernel;
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
  TableMutex mutex_;
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
      if ((*it)->ready.load(std::memory_order_relaxed) == 0) continue;  // somebody waits for it
      const std::shared_ptr<Entry> entry = *it;
      stats_.bytes -= bytes_of(*entry);
      ++stats_.evictions;
      ++it;
      remove(table_.find(entry->key));
    }
  }
  // The threads that were compiling these are not in the child.
  void forget_unfinished() {
    for (auto it = order_.begin(); it != order_.end();) {
      const std::shared_ptr<Entry> entry = *it++;
      if (entry->ready.load(std::memory_order_relaxed) == 0) remove(table_.find(entry->key));
    }
  }
};

Cache& cache() { return Cache::instance(); }

constinit std::atomic<bool> tiles_on{true};
constinit std::atomic<std::int64_t (*)()> compile_clock{nullptr};
std::int64_t compile_time() {
  auto* const clock = compile_clock.load(std::memory_order_relaxed);
  return clock ? clock() : os::nanoseconds();
}
// The optimised tier's compiles in tiles before the compiler takes processor time from the calls. Compiled code takes half as long as
// tiles, so that by then as much has been lost as the compiler will take; a short program is done before.
constexpr double kPatience = 2;

}  // namespace

// ------------------------------------------------------------------------------------------------ tiers

Kernel::Kernel(const KernelRequest& wanted, bool may_compile)
    : key_(wanted.key),
      optimised_count_(wanted.optimised),
      nest_(*wanted.codegen.nest),
      schedule_(*wanted.codegen.schedule),
      target_(*wanted.codegen.target) {
  if (!os::may_run_made_code()) {
    static constinit Once once;
    if (once.first())
      log(LogLevel::warning,
          "this system does not let a program run code that it made itself: functions run in tiles or are interpreted, as in mode "
          "reference");
    if (wanted.codegen.known || !stay_in_tiles()) throw CodeRefused();
    return;
  }
  if (load(may_compile)) return;
  if (!may_compile) throw KernelMissing();
  if (take_tiles(wanted.runs)) return;
  const compiler::CodegenRequest& request = wanted.codegen;
  const std::int64_t start = os::nanoseconds();
  const compiler::Schedule quick = compiler::quick_form(schedule_);
  compiler::CodegenRequest first = request;
  if (request.known) {
    first.tier = compiler::Tier::Optimised;
    runs_left_.store(0, std::memory_order_relaxed);
    settled_.store(true, std::memory_order_relaxed);
  } else {
    first.schedule = &quick;
    first.tier = compiler::Tier::Quick;
  }
  std::string object = compiler::generate(first).object;
  first_ = compiler::KernelObject::load(object);
  function_.store(first_->function(), std::memory_order_release);
  compile_ms_ = static_cast<double>(os::nanoseconds() - start) / 1e6;
  if (disk_cache().enabled())
    background::run_late([key = key_, tier = first.tier, object = std::move(object)] { disk_cache().store(key, tier, object); });
}

// From disk: code that is damaged in a way that its checksum does not show is no reason to fail.
bool Kernel::load(bool may_compile) {
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
  const bool optimised = entry->tier == compiler::Tier::Optimised;
  if (optimised || !may_compile) runs_left_.store(0, std::memory_order_relaxed);
  kept_quick_.store(!optimised && !may_compile, std::memory_order_relaxed);
  settled_.store(optimised || !may_compile, std::memory_order_relaxed);
  return true;
}

// A run in tiles begins at once; a compiled kernel is several times as fast, but its first run waits for the compiler.
bool Kernel::take_tiles(std::span<const std::span<const std::int64_t>> runs) {
  if (runs.empty() || !tiles_on.load(std::memory_order_relaxed) || background::threads() == 0) return false;
  tiles_ = compiler::TileProgram::of(nest_, target_);
  if (!tiles_) return false;
  double nanoseconds = 0;
  for (const std::span<const std::int64_t> words : runs) nanoseconds += tiles_->nanoseconds(words);
  if (nanoseconds > tiles_->compile_nanoseconds()) return tiles_.reset(), false;
  tile_nanoseconds_left_.store(static_cast<std::int64_t>(kPatience * tiles_->optimise_nanoseconds()), std::memory_order_relaxed);
  return true;
}

bool Kernel::stay_in_tiles() {
  tiles_ = compiler::TileProgram::of(nest_, target_);
  tile_nanoseconds_left_.store(std::numeric_limits<std::int64_t>::max(), std::memory_order_relaxed);
  runs_left_.store(0, std::memory_order_relaxed);
  settled_.store(true, std::memory_order_relaxed);
  return tiles_ != nullptr;
}

void Kernel::spend(std::int64_t tile_nanoseconds) const noexcept {
  if (tile_nanoseconds_left_.fetch_sub(tile_nanoseconds, std::memory_order_relaxed) >= tile_nanoseconds) return;
  optimise_now();
  background::hurry();
}

// No memory for the job: the quick tier stays, which gives the same results.
void Kernel::optimise() const noexcept {
  try {
    const bool comes = background::run([weak = weak_from_this()] {
      if (const std::shared_ptr<const Kernel> kernel = weak.lock()) kernel->make_optimised();  // else nobody can run it any more
    });
    if (comes) return;
    if (tiles()) make_optimised();  // begun in tiles when there was a compile thread: now nobody else would end them
    else settled_.store(true, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) { settled_.store(true, std::memory_order_relaxed); }
}

// A forked child does again what its parent's thread was doing. Of a job that was all but done it has the code, which its calls may run by
// now: that stays.
void Kernel::make_optimised() const noexcept {
  try {
    if (!os::may_run_made_code()) return settled_.store(true, std::memory_order_relaxed);  // forbidden since it began in tiles
    std::string object;
    if (!optimised_) {
      object = compiler::generate({.nest = &nest_, .schedule = &schedule_, .target = &target_, .tier = compiler::Tier::Optimised}).object;
      optimised_ = compiler::KernelObject::load(object);
    }
    const compiler::KernelFunction function = optimised_->function();
    if (function_.exchange(function, std::memory_order_acq_rel) != function && optimised_count_)
      optimised_count_->fetch_add(1, std::memory_order_relaxed);
    if (!object.empty()) disk_cache().store(key_, compiler::Tier::Optimised, object);
  } catch (const std::exception& error) {
    log(LogLevel::warning, "a kernel keeps the code of its first run: {}", error.what());
  } catch (...) {}  // NOLINT: nobody is there to catch it
  settled_.store(true, std::memory_order_relaxed);
}

std::string kernel_key(const compiler::Nest& nest, const compiler::Schedule& schedule, const compiler::Target& target,
                       const compiler::KnownWords* known) {
  std::string key = nest.key();
  const std::size_t nest_bytes = key.size();  // so that no nest and schedule together look like another pair
  key += schedule.key();
  key += '\n';
  for (const std::string* text : {&target.triple, &target.cpu, &target.features}) key += *text + '\n';
  for (const std::uint64_t number : {static_cast<std::uint64_t>(target.vector_bytes), std::uint64_t{nest_bytes}})
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  if (known) key += known->key();
  return key;
}

void CompileWait::begin() {
  if (start_ < 0 && nanoseconds_ > 0) start_ = compile_time();
}

void CompileWait::ask_to_stop() const {
  if (stop_ && *stop_) StopCheck(*stop_).ask();
}
void CompileWait::ask() const {
  ask_to_stop();
  if (nanoseconds_ > 0 && compile_time() - start_ >= nanoseconds_) throw CompileTimeSpent();
}

std::vector<KernelResult> find_or_compile(std::span<const KernelRequest> requests, int threads, bool may_compile, CompileWait* wait) {
  std::vector<KernelResult> results(requests.size());
  std::vector<std::shared_ptr<Entry>> entries(requests.size());
  std::vector<std::size_t> mine;
  mine.reserve(requests.size());
  // Every claimed entry is finished, whatever is thrown: others wait for it.
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto [entry, missing] = cache().claim(requests[i].key);
      entries[i] = std::move(entry);
      results[i].compiled = missing;
      if (missing) mine.push_back(i);
    }
  } catch (...) {
    for (const std::size_t i : mine) cache().finish(entries[i], nullptr, std::current_exception());
    throw;
  }
  const auto make = [&](std::size_t i) noexcept {
    try {
      cache().finish(entries[i], std::make_shared<const Kernel>(requests[i], may_compile), nullptr);
    } catch (...) { cache().finish(entries[i], nullptr, std::current_exception()); }
  };
  const auto make_some = [&](std::size_t from, std::size_t to) {  // LLVM wants a large stack
    if (to - from == 1) return os::on_large_stack([&] { make(mine[from]); });
    threads::parallel_for(static_cast<std::int64_t>(to - from), threads, [&](std::int64_t begin, std::int64_t end, int) {
      os::on_large_stack([&] {
        for (std::int64_t k = begin; k < end; ++k) make(mine[from + static_cast<std::size_t>(k)]);
      });
    });
  };
  if (!wait || !wait->asks()) {
    if (!mine.empty()) make_some(0, mine.size());
  } else {  // as many at once as there are threads
    std::size_t made = 0;
    try {
      wait->begin();
      while (made < mine.size()) {
        wait->ask();
        const std::size_t end = std::min(mine.size(), made + static_cast<std::size_t>(std::max(threads, 1)));
        make_some(std::exchange(made, end), end);
      }
    } catch (...) {
      for (; made < mine.size(); ++made) cache().finish(entries[mine[made]], nullptr, std::make_exception_ptr(KernelMissing()));
      throw;
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    try {
      results[i].kernel = Cache::wait(*entries[i]);
    } catch (const KernelMissing&) {
      if (!may_compile) throw;
      results[i] = find_or_compile(requests.subspan(i, 1), 1)[0];  // who looked for it at the same time may not compile; we may
      continue;
    }
    results[i].compiled = results[i].compiled && !results[i].kernel->from_disk();
    if (may_compile) results[i].kernel->allow_optimising();
  }
  return results;
}

void set_compile_clock(std::int64_t (*clock)()) noexcept { compile_clock.store(clock, std::memory_order_relaxed); }
void set_tiles(bool on) noexcept { tiles_on.store(on, std::memory_order_relaxed); }

void wait_for_optimised() { background::wait(); }

}  // namespace onepass::runtime

namespace onepass {

KernelCacheStats kernel_cache_stats() { return runtime::cache().stats(); }
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes) { runtime::cache().set_limits(entries, bytes); }

}  // namespace onepass
