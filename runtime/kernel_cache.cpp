// See kernel_cache.h. One mutex guards the table; compiles run without it. Threads wait only on atomics, so that a fork leaves no
// lock held. Kernels are immutable and live while a plan refers to them; eviction only removes them from lookups.
#include "runtime/kernel_cache.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "compiler/plan/costs.h"
#include "onepass/error.h"
#include "onepass/runtime.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/os.h"
#include "runtime/profile.h"
#include "runtime/program.h"
#include "runtime/speed.h"
#include "runtime/stop.h"
#include "runtime/threads.h"

namespace onepass::runtime {
namespace {

struct Entry {
  std::string key;
  std::shared_ptr<const Kernel> kernel;  // null while it is being compiled
  std::exception_ptr error;              // error of a failed compile, after which the entry is removed from the table
  std::atomic<std::uint32_t> ready{0};   // set last
};

class Cache {
 public:
  static constexpr std::int64_t kAtExit = 50'000'000;  // nanoseconds: total limit for finishing paid-for compiles

  static Cache& instance() {
    static Cache* const cache = new Cache;  // never destroyed: threads may outlive main
    return *cache;
  }
  Cache() {
    in_forked_child([] { instance().forget_unfinished(); });
    std::atexit([] { instance().keep_at_exit(); });
  }

  // Runs at exit. Does nothing if the disk cache is disabled, because the results could not be kept.
  void keep_at_exit() noexcept try {
    const os::DefaultFloatingPoint control;
    if (!disk_cache().enabled()) return;
    std::vector<std::shared_ptr<const Kernel>> kernels;
    {
      const std::lock_guard lock(mutex_);
      for (const std::shared_ptr<Entry>& entry : order_)
        if (entry->kernel) kernels.push_back(entry->kernel);
    }
    std::int64_t nanoseconds_left = kAtExit;
    for (const std::shared_ptr<const Kernel>& kernel : kernels) kernel->keep_at_exit(nanoseconds_left);
    keep_speed();
  } catch (...) {}  // NOLINT: an unsaved kernel is compiled again

  // Returns the entry, and true if the caller must compile it. If memory is exhausted, throws without a change.
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
  std::unordered_map<std::string_view, Order::iterator> table_;  // keys are owned by the entries
  KernelCacheStats stats_;
  std::int64_t most_entries_ = 4096, most_bytes_ = std::int64_t{256} << 20;

  static std::int64_t bytes_of(const Entry& entry) { return static_cast<std::int64_t>(entry.kernel->bytes() + entry.key.size()); }
  void remove(std::unordered_map<std::string_view, Order::iterator>::iterator it) {
    const auto place = it->second;
    table_.erase(it);  // before the key, which the table refers to
    order_.erase(place);
    --stats_.entries;
  }
  void shrink() {
    for (auto it = order_.end(); it != order_.begin() && (stats_.entries > most_entries_ || stats_.bytes > most_bytes_);) {
      --it;
      if ((*it)->ready.load(std::memory_order_relaxed) == 0) continue;  // a thread waits for it
      const std::shared_ptr<Entry> entry = *it;
      stats_.bytes -= bytes_of(*entry);
      ++stats_.evictions;
      ++it;
      remove(table_.find(entry->key));
    }
  }
  // Removes unfinished entries in a forked child, which lacks the threads that were compiling them.
  void forget_unfinished() {
    for (auto it = order_.begin(); it != order_.end();) {
      const std::shared_ptr<Entry> entry = *it++;
      if (entry->ready.load(std::memory_order_relaxed) == 0) remove(table_.find(entry->key));
    }
  }
};

Cache& cache() { return Cache::instance(); }

constinit std::atomic<bool> tiles_on{true}, promotion_on{true};
constinit std::atomic<int> forced_tier{-1};  // a TierChoice; -1: none
constinit std::atomic<std::int64_t (*)()> compile_clock{nullptr};
std::int64_t compile_time() {
  auto* const clock = compile_clock.load(std::memory_order_relaxed);
  return clock ? clock() : os::nanoseconds();
}

struct Made {
  std::string object;
  std::shared_ptr<const compiler::KernelObject> loaded;
  CompileTimes times;
};
Made generate_and_load(compiler::CodegenRequest request, std::string_view symbol) {
  request.unwind = !symbol.empty();
  compiler::CodegenResult result = compiler::generate(request);
  Made made{std::move(result.object), nullptr, {result.open_ms, result.emit_ms, result.passes_ms, result.machine_ms, 0}};
  const std::int64_t start = os::nanoseconds();
  made.loaded = compiler::KernelObject::load(made.object, symbol);
  made.times.load = static_cast<double>(os::nanoseconds() - start) / 1e6;
  return made;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ tiers

Kernel::Kernel(compiler::KernelFunction routine)
    : counts_(std::make_shared<KernelCounts>()), final_(routine), account_(0), state_(kDone), is_routine_(true) {}

Kernel::Kernel(const KernelRequest& request, bool may_compile)
    : key_(request.key),
      symbol_(request.symbol),
      counts_(request.counts ? request.counts : std::make_shared<KernelCounts>()),
      nest_(*request.codegen.nest),
      schedule_(*request.codegen.schedule),
      target_(*request.codegen.target),
      account_(machine_speed() * compiler::compile_times(nest_, schedule_, request.codegen.known != nullptr).optimised) {
  if (!os::may_run_made_code()) {
    static constinit Once once;
    if (once.first())
      log(LogLevel::warning,
          "this system does not let a program run code that it generated; functions run in the tiled interpreter, or are interpreted as in "
          "mode reference");
    if (request.codegen.known || !stay_in_tiles()) throw CodeRefused();
    return;
  }
  const bool found = load(request, may_compile);
  if (found && (final_.load(std::memory_order_relaxed) || !may_compile)) return;
  if (!found && !may_compile) throw KernelMissing();
  if (request.codegen.known) compile_specialised(request);
  else choose(request);
}

// Loads the kernel from disk. Code with damage that the checksum does not show is discarded, which is not an error.
bool Kernel::load(const KernelRequest& request, bool may_compile) {
  const std::optional<DiskCache::Entry> entry = disk_cache().find(key_);
  if (!entry) return false;
  spent_on_disk_ = entry->spent_nanoseconds;
  account_.add(spent_on_disk_);
  if (entry->object.empty()) return false;  // only the time of runs was stored
  const bool optimised = entry->tier == compiler::Tier::Optimised;
  if (!optimised && request.optimised && may_compile) return false;
  try {
    first_ = compiler::KernelObject::load(entry->object, symbol(request.codegen.known ? "specialized" : optimised ? "optimized" : "quick"));
  } catch (const InternalError&) {
    disk_cache().discard(key_);
    return false;
  }
  from_disk_ = true;
  quick_ = first_->function();
  if (optimised || !may_compile) final_.store(quick_, std::memory_order_release);
  kept_quick_.store(!optimised && !may_compile, std::memory_order_relaxed);
  return true;
}

// Chooses the first tier.
void Kernel::choose(const KernelRequest& request) {
  const double speed = machine_speed(), also = of_first_compile();
  const compiler::TierTimes compile = compiler::compile_times(nest_, schedule_);
  TierCosts costs{.compile_quick = speed * (compile.quick + also), .compile_optimised = speed * (compile.optimised + also)};
  if (!request.runs.empty() && !quick_ && !request.optimised && tiles_on.load(std::memory_order_relaxed)) {
    tiles_ = compiler::TileProgram::of(nest_, target_);
    if (tiles_) costs.tiles = 0;
  }
  for (const KernelRequest::Run& run : request.runs) {
    const double share = speed / std::max(run.threads, 1);
    const compiler::TierTimes once = compiler::run_times(nest_, run.work, run.bytes);
    costs.quick += share * once.quick;
    costs.optimised += share * once.optimised;
    if (tiles_) costs.tiles += share * tiles_->nanoseconds(run.words);
  }
  TierChoice tier = TierAccount::first(costs, account_.spent(), quick_ != nullptr);
  if (request.runs.empty()) tier = TierChoice::Quick;
  if (const int forced = forced_tier.load(std::memory_order_relaxed); forced >= 0 && (forced > 0 || tiles_))
    tier = static_cast<TierChoice>(forced);
  if (request.optimised) tier = TierChoice::Optimised;
  if (tier != TierChoice::Tiles) tiles_.reset();
  if (tier == TierChoice::Quick && !quick_) compile_quickly(request);
  if (tier != TierChoice::Optimised) return;
  const std::int64_t start = os::nanoseconds();
  from_disk_ = false;
  claim();
  make_optimised(true);
  compile_ms_ = static_cast<double>(os::nanoseconds() - start) / 1e6;
  if (is_settled()) return;
  compile_quickly(request);  // optimization failed, for example for lack of memory; throws if this fails, too
  final_.store(quick_, std::memory_order_release);
}

void Kernel::compile_quickly(const KernelRequest& request) {
  const std::int64_t start = os::nanoseconds(), processor = os::thread_nanoseconds();
  const double also = of_first_compile();
  const compiler::Schedule quick = compiler::quick_form(schedule_);
  compiler::CodegenRequest first = request.codegen;
  first.schedule = &quick;
  first.tier = compiler::Tier::Quick;
  Made made = generate_and_load(first, symbol("quick"));
  first_ = std::move(made.loaded);
  quick_ = first_->function();
  quick_times_ = made.times;
  compiled(compiler::compile_times(nest_, schedule_).quick + also, start, processor, "as baseline code");
  if (profile::on()) note_compile(start, 0, made.times);
  quick_nanoseconds_ = os::nanoseconds() - start;
  account_.add(quick_nanoseconds_);  // counts as lost, because it is compiled again
  if (disk_cache().enabled())
    background::run_late([key = key_, object = std::move(made.object), optimised_kept = optimised_kept_] {
      if (!optimised_kept->load(std::memory_order_relaxed)) disk_cache().store(key, compiler::Tier::Quick, object);
    });
}

void Kernel::compile_specialised(const KernelRequest& request) {
  const std::int64_t start = os::nanoseconds(), processor = os::thread_nanoseconds();
  const double also = of_first_compile();
  Made made = generate_and_load(request.codegen, symbol("specialized"));
  first_ = std::move(made.loaded);
  final_times_ = made.times;
  final_.store(first_->function(), std::memory_order_release);
  compiled(compiler::compile_times(nest_, schedule_, true).optimised + also, start, processor, "for one shape");
  if (profile::on()) note_compile(start, 2, made.times);
  if (disk_cache().enabled())
    background::run_late([key = key_, object = std::move(made.object)] { disk_cache().store(key, compiler::Tier::Optimised, object); });
}

// Records a compile's wall time and its thread's processor time.
void Kernel::compiled(double estimate, std::int64_t start, std::int64_t processor, std::string_view how) {
  const std::int64_t took = os::nanoseconds() - start;
  note_speed(estimate, static_cast<double>(os::thread_nanoseconds() - processor));
  compile_ms_ = static_cast<double>(took) / 1e6;
  counts_->compile_nanoseconds.fetch_add(took, std::memory_order_relaxed);
  log(LogLevel::debug, "kernel {}: compiled {} in {:.2f} ms", name(), how, compile_ms_);
}

// Adds the compile's stages to the profile, in sequence; loading is the last stage.
void Kernel::note_compile(std::int64_t start, int tier, const CompileTimes& times) const noexcept {
  const std::size_t name = std::hash<std::string>()(key_);
  std::int64_t begin = start;
  for (const CompileStage& stage : kCompileStages) {
    const std::int64_t end = begin + static_cast<std::int64_t>(1e6 * times.*stage.time);
    if (end > begin) profile::add({profile::Kind::Stage, stage.name, begin, end, name, tier});
    begin = end;
  }
  profile::add({profile::Kind::Compile, "compile", start, os::nanoseconds(), name, tier});
}

std::string Kernel::symbol(std::string_view tier) const { return symbol_.empty() ? "" : fmt::format("{}, {}", symbol_, tier); }

std::string Kernel::name() const { return fmt::format("{:016x}", std::hash<std::string>()(key_)); }

bool Kernel::stay_in_tiles() {
  tiles_ = compiler::TileProgram::of(nest_, target_);
  stays_in_tiles_.store(true, std::memory_order_relaxed);
  return tiles_ != nullptr;
}

KernelCode Kernel::slow_code() const { return {quick_, tiles_.get(), stays_in_tiles_.load(std::memory_order_relaxed) ? nullptr : this}; }

void Kernel::ran_slowly(std::int64_t nanoseconds, std::int64_t expected) const noexcept {
  account_.ran(nanoseconds);
  counts_->lost_nanoseconds.fetch_add(std::max<std::int64_t>(nanoseconds - expected, 0), std::memory_order_relaxed);
}

int Kernel::decide(bool may_wait, int threads) const {
  if (stays_in_tiles_.load(std::memory_order_relaxed) || !promotion_on.load(std::memory_order_relaxed)) return threads;
  // With fewer threads than processors, the compile already has a processor. Without a compile thread, yielding is useless.
  const bool may_yield = threads > 1 && threads >= target_.cores && background::threads() > 0;
  const TierAccount::Due due = account_.before_run(
      may_yield ? 1.0 / (threads - 1) : std::numeric_limits<double>::infinity(), [this] { return compiled(); },
      machine_speed() * of_first_compile());
  if (due == TierAccount::Due::Nothing) return threads;
  if (due == TierAccount::Due::Wait && may_wait) {
    optimise_now();
    return threads;
  }
  optimise_soon();
  if (due == TierAccount::Due::InBackground) return threads;
  background::hurry();
  if (due == TierAccount::Due::Yield) --threads;
  if (threads < target_.cores) give_processor();
  return threads;
}

// Moves the compile thread if it waits for this processor. The system may leave it there for milliseconds while another processor is
// idle.
void Kernel::give_processor() const noexcept {
  constexpr std::int64_t kOften = 100'000;  // minimum nanoseconds between checks
  const std::int64_t now = os::nanoseconds(), since = now - looked_at_.load(std::memory_order_relaxed);
  if (since < kOften) return;
  looked_at_.store(now, std::memory_order_relaxed);
  const std::int64_t got = compiled(), before = compiled_then_.exchange(got, std::memory_order_relaxed);
  if (const int thread = compile_thread_.load(std::memory_order_relaxed); thread != 0 && got - before < since / 2)
    os::move_to_another_processor(thread);
}

std::int64_t Kernel::compiled() const noexcept {
  const int thread = compile_thread_.load(std::memory_order_acquire);
  return thread == 0 ? 0 : std::max<std::int64_t>(os::thread_nanoseconds(thread) - compile_start_.load(std::memory_order_relaxed), 0);
}

// Ignores exhausted memory: the slower tier stays for now and gives the same results.
void Kernel::optimise_soon() const noexcept {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  if (is_settled() || state % kStates != kIdle) return;
  const std::uint32_t queued = state - kIdle + kQueued;
  if (!state_.compare_exchange_strong(state, queued, std::memory_order_relaxed)) return;
  bool comes = false;
  try {
    comes = background::run([weak = weak_from_this()] {
      if (const std::shared_ptr<const Kernel> kernel = weak.lock(); kernel && kernel->claim())  // null: no plan uses the kernel
        kernel->make_optimised(false);
    });
  } catch (const std::bad_alloc&) {}  // NOLINT
  std::uint32_t still = queued;
  if (!comes) state_.compare_exchange_strong(still, queued - kQueued + kIdle, std::memory_order_relaxed);
}

// Claims the compile. A thread that was compiling during a fork does not exist in the child, so the child claims it again.
bool Kernel::claim() const noexcept {
  const std::uint32_t now = fork_generation() * kStates;
  for (std::uint32_t state = state_.load(std::memory_order_acquire);;) {
    if (state % kStates == kDone || state == now + kRunning) return false;
    if (state_.compare_exchange_weak(state, now + kRunning, std::memory_order_acq_rel)) return true;
  }
}

void Kernel::optimise_now() const {
  while (!is_settled()) {
    if (claim()) return os::on_large_stack([&] { make_optimised(true); });
    const std::uint32_t state = state_.load(std::memory_order_acquire);
    if (state % kStates == kDone) return;
    background::hurry();
    os::wait(state_, state);
  }
}

// Compiles the optimized tier; the caller must have claimed it. A forked child repeats the parent's compile, unless the compile already
// published its code. The child's calls may run that code, so it stays.
void Kernel::make_optimised(bool in_call) const noexcept {
  std::string object;
  try {
    if (os::may_run_made_code()) {
      const std::int64_t start = os::nanoseconds(), processor = os::thread_nanoseconds();
      const double also = of_first_compile();
      compile_start_.store(processor, std::memory_order_relaxed);
      compile_thread_.store(os::thread_number(), std::memory_order_release);
      if (!optimised_) {
        Made made = generate_and_load({.nest = &nest_, .schedule = &schedule_, .target = &target_, .tier = compiler::Tier::Optimised},
                                      symbol("optimized"));
        object = std::move(made.object);
        final_times_ = made.times;
        optimised_ = std::move(made.loaded);
      }
      const compiler::KernelFunction function = optimised_->function();
      if (final_.exchange(function, std::memory_order_acq_rel) != function) counts_->optimised.fetch_add(1, std::memory_order_relaxed);
      os::wake(state_, INT_MAX);  // waiting threads can continue
      const std::int64_t took = os::nanoseconds() - start, computed = os::thread_nanoseconds() - processor;
      if (!object.empty()) note_speed(compiler::compile_times(nest_, schedule_).optimised + also, static_cast<double>(computed));
      counts_->compile_nanoseconds.fetch_add(took, std::memory_order_relaxed);
      if (profile::on()) note_compile(start, 1, final_times_);
      log(LogLevel::debug, "kernel {}: optimized in {:.2f} ms, {:.2f} ms of it on the CPU, {}; slower code ran for {:.2f} ms before",
          name(), static_cast<double>(took) / 1e6, static_cast<double>(computed) / 1e6, in_call ? "by a call" : "in the background",
          static_cast<double>(account_.spent()) / 1e6);
    }
  } catch (const std::exception& error) {
    if (os::may_run_made_code())
      log(LogLevel::warning, "a kernel keeps its unoptimized code: {}", error.what());  // other failures are logged before
    if (os::for_tests().strict && dynamic_cast<const compiler::NotGenerated*>(&error)) std::terminate();  // no caller sees it
  } catch (...) {}                                                                                        // NOLINT: no caller to catch it
  if (!final_.load(std::memory_order_relaxed)) {  // generated code became forbidden, or the compile failed
    if (quick_) final_.store(quick_, std::memory_order_release);
    else if (tiles_) stays_in_tiles_.store(true, std::memory_order_relaxed);
  }
  try {
    if (!object.empty() && disk_cache().enabled()) {
      // The flag is set after the store, so that a process that ends before it keeps the baseline code. Late jobs run in order.
      if (in_call) background::run_late([key = key_, object] { disk_cache().store(key, compiler::Tier::Optimised, object); });
      else disk_cache().store(key_, compiler::Tier::Optimised, object), optimised_kept_->store(true, std::memory_order_relaxed);
    }
  } catch (...) {}  // NOLINT: then it is not stored
  state_.store(fork_generation() * kStates + kDone, std::memory_order_release);
  os::wake(state_, INT_MAX);
}

std::string Kernel::tier_text() const {
  const auto ms = [](std::int64_t nanoseconds) { return fmt::format("{:.2f} ms", static_cast<double>(nanoseconds) / 1e6); };
  if (is_routine_) return "precompiled library routine";
  if (stays_in_tiles_.load(std::memory_order_relaxed)) return "tiled interpreter, because nothing can be compiled";
  if (const compiler::KernelFunction function = final_.load(std::memory_order_acquire))
    return function == quick_ && kept_quick_.load(std::memory_order_relaxed) ? "baseline code, because no further compilation is allowed"
                                                                             : "optimized";
  return fmt::format("{} until optimized code is ready, which takes about {} to compile; its runs took {}",
                     tiles_ ? "tiled interpreter" : "baseline code", ms(account_.compile()), ms(account_.spent()));
}

// Compiles on a new thread. At exit the calling thread's thread-local variables, including LLVM's, are already destroyed.
void Kernel::compile_on_a_thread(const Kernel& kernel) {
  struct Job {
    const Kernel& kernel;
    std::atomic<std::uint32_t> done{0};
  } job{kernel};
  const auto body = [](void* raw) {
    Job& mine = *static_cast<Job*>(raw);
    mine.kernel.make_optimised(false);
    mine.done.store(1, std::memory_order_release);
    os::wake(mine.done, 1);
  };
  if (!os::start_thread("onepass-compile", body, &job)) return;
  while (job.done.load(std::memory_order_acquire) == 0) os::wait(job.done, 0);
}

void Kernel::keep_at_exit(std::int64_t& nanoseconds_left) const {
  if (is_settled() || !promotion_on.load(std::memory_order_relaxed)) return;
  // Later processes find the baseline code on disk, so its compile time is not lost to them.
  const std::int64_t compile = account_.compile(), spent = account_.spent() - quick_nanoseconds_, start = os::nanoseconds();
  if (spent >= compile && compile <= nanoseconds_left && compiler::outlives_exit()) {
    if (claim()) {
      compile_on_a_thread(*this);
    } else {
      background::hurry();
      while (state_.load(std::memory_order_acquire) % kStates != kDone && os::nanoseconds() - start < nanoseconds_left)
        os::yield_processor();
    }
    nanoseconds_left -= os::nanoseconds() - start;
    if (is_settled()) return;
  }
  constexpr std::int64_t kWorthNoting = 200'000;  // nanoseconds; writing the note takes half as long
  if (spent - spent_on_disk_ > kWorthNoting) disk_cache().note_spent(key_, spent);
}

std::string kernel_key(const compiler::Nest& nest, const compiler::Schedule& schedule, const compiler::Target& target,
                       const compiler::KnownWords* known) {
  std::string key = nest.key();
  const std::size_t nest_bytes = key.size();  // separates nest and schedule, so that different pairs have different keys
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
  profile::Span span(profile::Kind::Cache, "find kernels");
  std::int64_t there = 0;
  std::vector<KernelResult> results(requests.size());
  std::vector<std::shared_ptr<Entry>> entries(requests.size());
  std::vector<std::size_t> mine;
  mine.reserve(requests.size());
  // Every claimed entry must be finished even after an exception, because other threads wait for it.
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto [entry, missing] = cache().claim(requests[i].key);
      if (!missing && entry->ready.load(std::memory_order_relaxed) == 0) results[i].outcome = CacheOutcome::joined;
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
  const auto make_some = [&](std::size_t from, std::size_t to) {  // LLVM requires a large stack
    if (to - from == 1) return os::on_large_stack([&] { make(mine[from]); });
    threads::parallel_for(static_cast<std::int64_t>(to - from), threads, [&](std::int64_t begin, std::int64_t end, int) {
      os::on_large_stack([&] {
        for (std::int64_t k = begin; k < end; ++k) make(mine[from + static_cast<std::size_t>(k)]);
      });
    });
  };
  if (!wait || !wait->asks()) {
    if (!mine.empty()) make_some(0, mine.size());
  } else {  // in batches of as many kernels as threads
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
      results[i] = find_or_compile(requests.subspan(i, 1),
                                   1)[0];  // the thread that compiled it concurrently may not compile; this thread may compile
      continue;
    }
    if (results[i].compiled)
      results[i].outcome = results[i].kernel->from_disk() ? CacheOutcome::disk
                           : results[i].kernel->tiles()   ? CacheOutcome::tiles
                                                          : CacheOutcome::compiled;
    there += !results[i].compiled;
    results[i].compiled = results[i].compiled && !results[i].kernel->from_disk();
    if (may_compile) results[i].kernel->allow_optimising();
  }
  if (may_compile) {  // kernels that already existed
    std::vector<const Kernel*> unfinished;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].optimised && !results[i].kernel->is_settled()) unfinished.push_back(results[i].kernel.get());
    threads::parallel_for(static_cast<std::int64_t>(unfinished.size()), threads, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t k = begin; k < end; ++k) unfinished[static_cast<std::size_t>(k)]->optimise_now();
    });
  }
  span.set(requests.size(), there);
  return results;
}

void set_compile_clock(std::int64_t (*clock)()) noexcept { compile_clock.store(clock, std::memory_order_relaxed); }
void set_first_tier(std::optional<TierChoice> tier) noexcept {
  forced_tier.store(tier ? static_cast<int>(*tier) : -1, std::memory_order_relaxed);
}
void set_tiles(bool on) noexcept { tiles_on.store(on, std::memory_order_relaxed); }
void set_promotion(bool on) noexcept { promotion_on.store(on, std::memory_order_relaxed); }

bool wait_for_optimised(std::int64_t nanoseconds) { return background::wait(nanoseconds); }

}  // namespace onepass::runtime

namespace onepass {

KernelCacheStats kernel_cache_stats() { return runtime::cache().stats(); }
bool detail::wait_until_optimized(std::int64_t nanoseconds) { return runtime::background::wait(nanoseconds); }
void set_kernel_cache_limits(std::int64_t entries, std::int64_t bytes) {
  if (entries < 0 || bytes < 0)
    throw ValueError(fmt::format("set_kernel_cache_limits: {} kernels and {} bytes must be 0 or more.", entries, bytes));
  runtime::cache().set_limits(entries, bytes);
}

}  // namespace onepass
