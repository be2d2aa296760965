// The process's cache of compiled kernels, found by their whole key. Called while a launch plan is made, never by a warm call.
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

/// What a run calls: the best code that its kernel had when the run began.
class KernelCode {
 public:
  KernelCode(compiler::KernelFunction function, const compiler::TileProgram* tiles, const Kernel* slow)
      : function_(function), tiles_(tiles), slow_(slow) {}
  void operator()(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
    if (function_) [[likely]]
      function_(words, begin, end, scratch);
    else tiles_->run(words, begin, end, scratch);
  }
  /// Null where it runs in tiles.
  compiler::KernelFunction compiled() const { return function_; }
  /// The kernel, while this is not the code that it will keep: it wants to know what the run takes. Else null.
  const Kernel* slow() const { return slow_; }

 private:
  compiler::KernelFunction function_;
  const compiler::TileProgram* tiles_;
  const Kernel* slow_;
};

/// What a function counts of the kernels that it asked for first. Also counted when the function is gone.
struct KernelCounts {
  std::atomic<std::int64_t> optimised{0}, specialised{0};
  std::atomic<std::int64_t> compile_nanoseconds{0};  // in every tier, by calls and in the background
  std::atomic<std::int64_t> lost_nanoseconds{0};     // by runs in slower tiers, about
};

/// What one compile took, in milliseconds.
struct CompileTimes {
  double open = 0;                           // the code generator, by the first compile of the process
  double emit = 0, passes = 0, machine = 0;  // compiler::CodegenResult
  double load = 0;                           // the object into executable memory
  double all() const { return open + emit + passes + machine + load; }
};

struct CompileStage {
  const char* name;
  double CompileTimes::*time;
};
/// In their order.
inline constexpr CompileStage kCompileStages[] = {{"open the code generator", &CompileTimes::open},
                                                  {"build LLVM IR", &CompileTimes::emit},
                                                  {"LLVM passes", &CompileTimes::passes},
                                                  {"machine code", &CompileTimes::machine},
                                                  {"load", &CompileTimes::load}};

/// A generic kernel in its tiers (runtime/tiers.h): in tiles or compiled quickly at first, unless the optimised tier pays in the first
/// run; optimised by a thread in the background or, once enough time was lost, by the call. A specialised one has its optimised tier alone.
/// Each run asks for the best code there is; all give the same bits and take the same arguments.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  /// Without `may_compile` it comes from disk, or KernelMissing is thrown.
  Kernel(const struct KernelRequest& request, bool may_compile = true);
  /// Code that the library has: it has no tiers.
  explicit Kernel(compiler::KernelFunction routine);

  /// Before a run, on the thread of its call: what the time lost so far asks for. Where the run may not wait, it does not. Returns how many
  /// of its threads the run takes: one fewer where the compile needs a processor.
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
  /// The code that it keeps, which needs no before_run(); null: it is not there yet.
  compiler::KernelFunction final_code() const { return final_.load(std::memory_order_acquire); }
  /// A run by slow code took so long, of which the optimised tier would have needed `expected`, about.
  void ran_slowly(std::int64_t nanoseconds, std::int64_t expected) const noexcept;

  /// Nanoseconds of a run in the optimised tier on one thread of such a machine as costs.h speaks of.
  double optimised_time(double work, double bytes) const { return compiler::run_times(nest_, work, bytes).optimised; }
  /// The tile program, of a kernel that has no other code yet; else null. A run that began with it may need its scratch.
  const compiler::TileProgram* tiles() const { return final_.load(std::memory_order_acquire) ? nullptr : tiles_.get(); }
  std::size_t bytes() const { return first_ ? first_->bytes() : tiles_ ? tiles_->bytes() : 0; }
  /// Begins the optimised tier in the background, where there is one to come.
  void optimise_soon() const noexcept;
  /// Compiles the optimised tier, or waits for who does. Afterwards the kernel is settled.
  void optimise_now() const;
  /// A kernel that came from disk for a function that may not compile, now wanted by one that may.
  void allow_optimising() const {
    if (kept_quick_.load(std::memory_order_relaxed) && kept_quick_.exchange(false)) final_.store(nullptr, std::memory_order_release);
  }
  /// It runs the code that it will keep.
  bool is_settled() const { return final_.load(std::memory_order_relaxed) != nullptr || stays_in_tiles_.load(std::memory_order_relaxed); }
  /// Its tier now, and why; for explain.
  std::string tier_text() const;
  double compile_ms() const { return compile_ms_; }  // what the first call waited for
  bool from_disk() const { return from_disk_; }
  /// Of the compiles by this process that have come to their end, the quick one and that of the code that the kernel keeps: all 0 where it
  /// was not compiled so.
  CompileTimes quick_times() const { return quick_times_; }
  CompileTimes final_times() const {
    const compiler::KernelFunction function = final_.load(std::memory_order_acquire);
    return function && function != quick_ ? final_times_ : CompileTimes();
  }
  const TierAccount& account() const { return account_; }

  /// At exit: a compile that was paid for and does not take long is finished and kept, otherwise what was spent is noted on disk.
  void keep_at_exit(std::int64_t& nanoseconds_left) const;

 private:
  enum State : std::uint32_t { kIdle, kQueued, kRunning, kDone, kStates };  // of the optimised compile, in the low bits of state_

  bool load(const KernelRequest& request, bool may_compile);
  void choose(const KernelRequest& request);
  void compile_quickly(const KernelRequest& request);
  void compile_specialised(const KernelRequest& request);
  bool stay_in_tiles();
  void compiled(double estimate, std::int64_t start, std::int64_t processor, std::string_view how);
  std::string name() const;                                                                   // in the log
  void note_compile(std::int64_t start, int tier, const CompileTimes& times) const noexcept;  // in the profile
  int decide(bool may_wait, int threads) const;
  void give_processor() const noexcept;
  std::int64_t compiled() const noexcept;  // processor time of the optimised compile so far
  KernelCode slow_code() const;
  bool claim() const noexcept;
  void make_optimised(bool in_call) const noexcept;
  static void compile_on_a_thread(const Kernel& kernel);

  std::string key_;
  std::shared_ptr<KernelCounts> counts_;
  compiler::Nest nest_;
  compiler::Schedule schedule_;
  compiler::Target target_;
  mutable std::atomic<compiler::KernelFunction> final_{nullptr};     // the code that it keeps; null: not there yet
  compiler::KernelFunction quick_ = nullptr;                         // what runs until then, or
  std::shared_ptr<const compiler::TileProgram> tiles_;               // this
  std::shared_ptr<const compiler::KernelObject> first_;              // of `quick_`, or of all that it ever has
  mutable std::shared_ptr<const compiler::KernelObject> optimised_;  // set before `final_` points into it
  mutable TierAccount account_;
  mutable std::atomic<std::uint32_t> state_{kIdle};
  mutable std::atomic<int> compile_thread_{0};                         // which compiles the optimised tier, or 0
  mutable std::atomic<std::int64_t> compile_start_{0};                 // of that thread's processor time
  mutable std::atomic<std::int64_t> looked_at_{0}, compiled_then_{0};  // when a run looked whether the compile goes on, and how far it was
  mutable std::atomic<bool> stays_in_tiles_{false}, kept_quick_{false};
  std::int64_t spent_on_disk_ = 0, quick_nanoseconds_ = 0;  // of runs of earlier processes; of the quick compile
  // The optimised code is on disk, or will be: the quick one, which is kept later than that at times, must not take its place.
  std::shared_ptr<std::atomic<bool>> optimised_kept_ = std::make_shared<std::atomic<bool>>(false);
  double compile_ms_ = 0;
  CompileTimes quick_times_;
  mutable CompileTimes final_times_;  // set before `final_`
  bool from_disk_ = false, is_routine_ = false;
};

/// What identifies a kernel, and how it is made where it is missing.
struct KernelRequest {
  struct Run {
    std::span<const std::int64_t> words;
    double work = 0, bytes = 0;  // ScheduleNumbers
    int threads = 1;
  };
  std::string key;  // nest, schedule, target
  compiler::CodegenRequest codegen;
  std::shared_ptr<KernelCounts> counts;  // may be null
  std::vector<Run> runs;                 // each launch of the first call. None: there is no such call, and it is compiled quickly
  bool optimised = false;                // it is wanted settled: warm_up
};

struct KernelResult {
  std::shared_ptr<const Kernel> kernel;
  bool compiled = false;  // by this call
  CacheOutcome outcome = CacheOutcome::memory;
};

/// The text that kernels are compared by. `known`: of a specialised kernel, else null.
std::string kernel_key(const compiler::Nest& nest, const compiler::Schedule& schedule, const compiler::Target& target,
                       const compiler::KnownWords* known = nullptr);

/// Thrown where a kernel would have to be compiled and must not be.
struct KernelMissing {};

/// Thrown where the system lets this process run no code that it made, and a kernel cannot run in tiles.
struct CodeRefused : Error {
  CodeRefused() : Error("this system does not let a program run code that it made itself; mode reference runs without") {}
};
/// Between two kernels, what a call asks that waits for their being compiled: whether it should stop, and whether it has waited long enough.
class CompileWait {
 public:
  CompileWait() = default;
  /// `milliseconds`: 0 means any time.
  CompileWait(const StopCondition& stop, std::int64_t milliseconds) : stop_(&stop), nanoseconds_(milliseconds * 1'000'000) {}
  bool asks() const { return nanoseconds_ > 0 || (stop_ && *stop_); }
  /// The time begins with the first kernel that is missing.
  void begin();
  bool is_limited() const { return nanoseconds_ > 0; }
  /// CancelledError, or CompileTimeSpent.
  void ask() const;
  void ask_to_stop() const;  // the first alone

 private:
  const StopCondition* stop_ = nullptr;
  std::int64_t nanoseconds_ = 0, start_ = -1;
};
struct CompileTimeSpent {};

/// A kernel for each request, in their order. What is missing is compiled by up to `threads` threads at once; what another thread is
/// compiling already is waited for. Throws the first error; kernels that were compiled stay. Without `may_compile` what is neither in
/// memory nor on disk is KernelMissing. What `wait` throws leaves the kernels that were not begun as if nobody had asked for them.
std::vector<KernelResult> find_or_compile(std::span<const KernelRequest> requests, int threads, bool may_compile = true,
                                          CompileWait* wait = nullptr);

/// The clock of CompileWait, in nanoseconds; for tests. Null: the system's.
void set_compile_clock(std::int64_t (*clock)()) noexcept;

/// For tests and measurements. Which tier new generic kernels begin in where they can; none: the rule's (runtime/tiers.h).
void set_first_tier(std::optional<TierChoice> tier) noexcept;
/// Whether kernels may run in tiles at first. True unless it is changed.
void set_tiles(bool on) noexcept;
/// Whether runs in slower tiers count. True unless it is changed: else kernels stay in the tier that they began in.
void set_promotion(bool on) noexcept;

/// Waits until no kernel waits for its optimised tier, or to be kept on disk, or until `nanoseconds` have passed: negative for any time.
/// False when the time was over.
bool wait_for_optimised(std::int64_t nanoseconds = -1);

}  // namespace onepass::runtime
