// The process's cache of compiled kernels, by complete key. Used while a launch plan is made; warm calls do not use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen.h"
#include "compiler/kernel_object.h"
#include "compiler/plan/costs.h"
#include "compiler/tiles/tiles.h"
#include "onepass/error.h"
#include "onepass/options.h"
#include "onepass/record.h"
#include "runtime/tiers.h"

namespace onepass::runtime {

class Kernel;

/// The code of one run: the best code of its kernel at the start of the run.
class KernelCode {
 public:
  KernelCode(compiler::KernelFunction function, const compiler::TileProgram* tiles, const Kernel* slow)
      : function_(function), tiles_(tiles), slow_(slow) {}
  void operator()(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
    if (function_) [[likely]]
      function_(words, begin, end, scratch);
    else tiles_->run(words, begin, end, scratch);
  }
  /// Returns null if the run uses the tiled interpreter.
  compiler::KernelFunction compiled() const { return function_; }
  /// Returns the kernel if this is not its final code, because it then records the time of the run. Else null.
  const Kernel* slow() const { return slow_; }

 private:
  compiler::KernelFunction function_;
  const compiler::TileProgram* tiles_;
  const Kernel* slow_;
};

/// Counters of a function for the kernels that it requested first. They remain valid after the function is destroyed.
struct KernelCounts {
  std::atomic<std::int64_t> optimised{0}, specialised{0};
  std::atomic<std::int64_t> compile_nanoseconds{0};  // in every tier, by calls and in the background
  std::atomic<std::int64_t> lost_nanoseconds{0};     // estimate for runs in slower tiers
};

/// Duration of one compile, in milliseconds.
struct CompileTimes {
  double open = 0;                           // loading the code generator, in the first compile of the process
  double emit = 0, passes = 0, machine = 0;  // as in compiler::CodegenResult
  double load = 0;                           // copying the object into executable memory
  double all() const { return open + emit + passes + machine + load; }
};

struct CompileStage {
  const char* name;
  double CompileTimes::*time;
};
/// The stages in order.
inline constexpr CompileStage kCompileStages[] = {{"open the code generator", &CompileTimes::open},
                                                  {"build LLVM IR", &CompileTimes::emit},
                                                  {"LLVM passes", &CompileTimes::passes},
                                                  {"machine code", &CompileTimes::machine},
                                                  {"load", &CompileTimes::load}};

/// A generic kernel in its tiers (runtime/tiers.h). It starts in the tiled interpreter or the baseline tier, unless the optimized tier
/// pays off in the first run. A background thread optimizes it or, after enough lost time, the call optimizes it.
///
/// A specialized kernel has only the optimized tier. Each run uses the best available code; all tiers give the same bits and take the
/// same arguments.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  /// Builds the kernel. Without `may_compile`, loads it from disk or throws KernelMissing.
  Kernel(const struct KernelRequest& request, bool may_compile = true);
  /// Wraps precompiled code of the library, which has no tiers.
  explicit Kernel(compiler::KernelFunction routine);

  /// Applies the tier rule before a run, on the thread of its call. Waits for a compile only if `may_wait`. Returns the number of threads
  /// that the run may use: one fewer if the compile needs a processor.
  int before_run(bool may_wait, int threads) const {
    if (!final_.load(std::memory_order_relaxed)) [[unlikely]]
      return decide(may_wait, threads);
    return threads;
  }
  KernelCode code_to_run() const {
    const compiler::KernelFunction function = final_code();
    if (!function) [[unlikely]]
      return slow_code();
    return {function, nullptr, nullptr};
  }
  /// Returns the final code, which needs no before_run(); null until it is ready.
  compiler::KernelFunction final_code() const { return final_.load(std::memory_order_acquire); }
  /// Records a run by slow code. `expected`: estimated time in the optimized tier.
  void ran_slowly(std::int64_t nanoseconds, std::int64_t expected) const noexcept;

  /// Returns the estimated nanoseconds of an optimized run on one thread of the reference machine of costs.h.
  double optimised_time(double work, double bytes) const { return compiler::run_times(nest_, work, bytes).optimised; }
  /// Returns the tile program of a kernel that has no other code yet; else null. A run that uses it may need its scratch memory.
  const compiler::TileProgram* tiles() const { return final_.load(std::memory_order_acquire) ? nullptr : tiles_.get(); }
  std::size_t bytes() const { return first_ ? first_->bytes() : tiles_ ? tiles_->bytes() : 0; }
  /// Starts the optimized compile in the background, unless it is unnecessary.
  void optimise_soon() const noexcept;
  /// Compiles the optimized tier, or waits for the thread that compiles it. Afterwards the kernel is settled.
  void optimise_now() const;
  /// Allows optimization of a kernel that came from disk for a function that may not compile.
  void allow_optimising() const {
    if (kept_quick_.load(std::memory_order_relaxed) && kept_quick_.exchange(false)) final_.store(nullptr, std::memory_order_release);
  }
  /// True if the kernel runs its final code.
  bool is_settled() const { return final_.load(std::memory_order_relaxed) != nullptr || stays_in_tiles_.load(std::memory_order_relaxed); }
  /// Returns the current tier and the reason for it; for explain.
  std::string tier_text() const;
  double compile_ms() const { return compile_ms_; }  // wait of the first call
  bool from_disk() const { return from_disk_; }
  /// Returns the times of this process's finished compile of the baseline tier or of the final code; all 0 without such a compile.
  CompileTimes quick_times() const { return quick_times_; }
  CompileTimes final_times() const {
    const compiler::KernelFunction function = final_.load(std::memory_order_acquire);
    return function && function != quick_ ? final_times_ : CompileTimes();
  }
  const TierAccount& account() const { return account_; }

  /// Finishes and stores a paid-for compile at exit if it is short; otherwise stores the time spent.
  void keep_at_exit(std::int64_t& nanoseconds_left) const;

 private:
  enum State : std::uint32_t { kIdle, kQueued, kRunning, kDone, kStates };  // state of the optimized compile, in the low bits of state_

  bool load(const KernelRequest& request, bool may_compile);
  void choose(const KernelRequest& request);
  void compile_quickly(const KernelRequest& request);
  void compile_specialised(const KernelRequest& request);
  bool stay_in_tiles();
  void compiled(double estimate, std::int64_t start, std::int64_t processor, std::string_view how);
  std::string name() const;                                                                   // for the log
  std::string symbol(std::string_view tier) const;                                            // for perf and GDB
  void note_compile(std::int64_t start, int tier, const CompileTimes& times) const noexcept;  // for the profile
  int decide(bool may_wait, int threads) const;
  void give_processor() const noexcept;
  std::int64_t compiled() const noexcept;  // processor time of the optimized compile so far
  KernelCode slow_code() const;
  bool claim() const noexcept;
  void make_optimised(bool in_call) const noexcept;
  static void compile_on_a_thread(const Kernel& kernel);

  std::string key_, symbol_;
  std::shared_ptr<KernelCounts> counts_;
  compiler::Nest nest_;
  compiler::Schedule schedule_;
  compiler::Target target_;
  mutable std::atomic<compiler::KernelFunction> final_{nullptr};     // final code; null: not ready
  compiler::KernelFunction quick_ = nullptr;                         // code until `final_` is ready; null: `tiles_` runs
  std::shared_ptr<const compiler::TileProgram> tiles_;               // the tiled interpreter
  std::shared_ptr<const compiler::KernelObject> first_;              // object of `quick_`, or of the only code
  mutable std::shared_ptr<const compiler::KernelObject> optimised_;  // set before `final_` points into it
  mutable TierAccount account_;
  mutable std::atomic<std::uint32_t> state_{kIdle};
  mutable std::atomic<int> compile_thread_{0};                         // thread of the optimized compile, or 0
  mutable std::atomic<std::int64_t> compile_start_{0};                 // in processor time of that thread
  mutable std::atomic<std::int64_t> looked_at_{0}, compiled_then_{0};  // last progress check by a run, and the progress then
  mutable std::atomic<bool> stays_in_tiles_{false}, kept_quick_{false};
  std::int64_t spent_on_disk_ = 0, quick_nanoseconds_ = 0;  // time of runs in earlier processes; time of the baseline compile
  // True if the optimized code is or will be on disk. A later store of the baseline code must not replace it.
  std::shared_ptr<std::atomic<bool>> optimised_kept_ = std::make_shared<std::atomic<bool>>(false);
  double compile_ms_ = 0;
  CompileTimes quick_times_;
  mutable CompileTimes final_times_;  // set before `final_`
  bool from_disk_ = false, is_routine_ = false;
};

/// The identity of a kernel, and the input to build it if it does not exist.
struct KernelRequest {
  struct Run {
    std::span<const std::int64_t> words;
    double work = 0, bytes = 0;  // as in ScheduleNumbers
    int threads = 1;
  };
  std::string key;  // loop nest, schedule, target
  compiler::CodegenRequest codegen;
  std::shared_ptr<KernelCounts> counts;  // may be null
  std::vector<Run> runs;                 // each launch of the first call. Empty: no call follows, so the baseline tier is compiled
  bool optimised = false;                // must be settled: warm_up
  std::string symbol = {};               // name of the code for perf and GDB; empty if not wanted
};

struct KernelResult {
  std::shared_ptr<const Kernel> kernel;
  bool compiled = false;  // compiled by this call
  CacheOutcome outcome = CacheOutcome::memory;
};

/// Returns the cache key of a kernel. `known`: specialization constants, or null for a generic kernel.
std::string kernel_key(const compiler::Nest& nest, const compiler::Schedule& schedule, const compiler::Target& target,
                       const compiler::KnownWords* known = nullptr);

/// Thrown if a kernel needs compilation and compilation is not allowed.
struct KernelMissing {};

/// Thrown if the system forbids generated code and a kernel cannot run in the tiled interpreter.
struct CodeRefused : Error {
  CodeRefused() : Error("this system does not let a program run code that it generated. Use mode reference.") {}
};
/// The checks between two kernel compiles of a waiting call: the stop condition and the time limit.
class CompileWait {
 public:
  CompileWait() = default;
  /// Constructs the checks. `milliseconds`: 0 means no limit.
  CompileWait(const StopCondition& stop, std::int64_t milliseconds) : stop_(&stop), nanoseconds_(milliseconds * 1'000'000) {}
  bool asks() const { return nanoseconds_ > 0 || (stop_ && *stop_); }
  /// Starts the clock, at the first kernel that is not in the cache.
  void begin();
  bool is_limited() const { return nanoseconds_ > 0; }
  /// Throws CancelledError or CompileTimeSpent.
  void ask() const;
  void ask_to_stop() const;  // checks only the stop condition

 private:
  const StopCondition* stop_ = nullptr;
  std::int64_t nanoseconds_ = 0, start_ = -1;
};
struct CompileTimeSpent {};

/// Returns a kernel for each request, in order. Compiles absent kernels with up to `threads` threads, and waits for kernels that another
/// thread is compiling. Without `may_compile`, throws KernelMissing for a kernel that is not in memory and not on disk.
///
/// Throws the first error; kernels that were compiled stay in the cache. If `wait` throws, the kernels that were not started are
/// unaffected.
std::vector<KernelResult> find_or_compile(std::span<const KernelRequest> requests, int threads, bool may_compile = true,
                                          CompileWait* wait = nullptr);

/// Sets the clock of CompileWait, in nanoseconds; for tests. Null restores the system's clock.
void set_compile_clock(std::int64_t (*clock)()) noexcept;

/// Forces the first tier of new generic kernels, if they support it; for tests and measurements. Empty restores the rule of
/// runtime/tiers.h.
void set_first_tier(std::optional<TierChoice> tier) noexcept;
/// Sets whether kernels may start in the tiled interpreter. The default is true.
void set_tiles(bool on) noexcept;
/// Sets whether time in slower tiers counts. The default is true; with false, kernels stay in their first tier.
void set_promotion(bool on) noexcept;

/// Waits until all pending optimized compiles and disk stores are finished, or until `nanoseconds` have passed (negative: no limit).
/// False on timeout.
bool wait_for_optimised(std::int64_t nanoseconds = -1);

}  // namespace onepass::runtime
