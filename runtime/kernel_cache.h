// The process's cache of compiled kernels, found by their whole key. Called while a launch plan is made, never by a warm call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen.h"
#include "compiler/kernel_object.h"
#include "compiler/tiles/tiles.h"
#include "onepass/error.h"
#include "onepass/options.h"

namespace onepass::runtime {

/// What a run calls: the best that a kernel had when the run began.
class KernelCode {
 public:
  KernelCode(compiler::KernelFunction function, const compiler::TileProgram* tiles) : function_(function), tiles_(tiles) {}
  void operator()(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch) const {
    if (function_) [[likely]]
      function_(words, begin, end, scratch);
    else tiles_->run(words, begin, end, scratch);
  }
  /// Null where it runs in tiles.
  compiler::KernelFunction compiled() const { return function_; }

 private:
  compiler::KernelFunction function_;
  const compiler::TileProgram* tiles_;
};

/// A generic kernel in its tiers: from disk, in tiles or compiled quickly when it is first needed, and with optimisation in the background
/// once it has run twice. In tiles where that is done before the quick tier would be compiled. A specialised one has its optimised tier
/// alone. Each run asks for the best code there is; all give the same bits and take the same arguments.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  /// `optimised_count`, which may be null, is increased when the optimised tier is there.
  /// Without `may_compile` it comes from disk, or KernelMissing is thrown.
  Kernel(const struct KernelRequest& request, bool may_compile = true);
  /// `tile_nanoseconds`: what the run takes in tiles, about.
  KernelCode code_to_run(std::int64_t tile_nanoseconds) const {
    if (runs_left_.load(std::memory_order_relaxed) > 0 && runs_left_.fetch_sub(1, std::memory_order_relaxed) == 1) optimise();
    const compiler::KernelFunction function = function_.load(std::memory_order_acquire);
    if (!function) [[unlikely]]
      spend(tile_nanoseconds);
    return {function, tiles_.get()};
  }
  /// The tile program, of a kernel that has no other code yet; else null. A run that began with it may need its scratch.
  const compiler::TileProgram* tiles() const { return function_.load(std::memory_order_acquire) ? nullptr : tiles_.get(); }
  std::size_t bytes() const { return first_ ? first_->bytes() : tiles_->bytes(); }
  /// Begins now what two runs would begin: the optimised tier, where there is one to come.
  void optimise_now() const {
    if (runs_left_.exchange(0, std::memory_order_relaxed) > 0) optimise();
  }
  /// A kernel that came from disk for a function that may not compile, now wanted by one that may.
  void allow_optimising() const {
    if (kept_quick_.load(std::memory_order_relaxed) && kept_quick_.exchange(false)) runs_left_.store(2, std::memory_order_relaxed);
  }
  /// It runs the code that it will keep.
  bool is_settled() const { return settled_.load(std::memory_order_relaxed); }
  double compile_ms() const { return compile_ms_; }  // of the quick tier: what the first call waited for
  bool from_disk() const { return from_disk_; }

 private:
  bool load(bool may_compile);
  bool take_tiles(std::span<const std::span<const std::int64_t>> runs);
  bool stay_in_tiles();
  void optimise() const noexcept;
  void spend(std::int64_t tile_nanoseconds) const noexcept;
  void make_optimised() const noexcept;
  mutable std::atomic<int> runs_left_{2};
  mutable std::atomic<bool> settled_{false}, kept_quick_{false};
  mutable std::atomic<compiler::KernelFunction> function_{nullptr};
  mutable std::atomic<std::int64_t> tile_nanoseconds_left_{0};       // before the optimised tier is in a hurry
  std::shared_ptr<const compiler::TileProgram> tiles_;               // or
  std::shared_ptr<const compiler::KernelObject> first_;              // the quick tier, or what the disk had
  mutable std::shared_ptr<const compiler::KernelObject> optimised_;  // set before `function_` points into it
  std::string key_;
  std::shared_ptr<std::atomic<std::int64_t>> optimised_count_;
  compiler::Nest nest_;
  compiler::Schedule schedule_;
  compiler::Target target_;
  double compile_ms_ = 0;
  bool from_disk_ = false;
};

/// What identifies a kernel, and how it is made where it is missing.
struct KernelRequest {
  std::string key;  // nest, schedule, target
  compiler::CodegenRequest codegen;
  std::shared_ptr<std::atomic<std::int64_t>> optimised;  // counts those with their optimised tier, for stats; may be null
  std::vector<std::span<const std::int64_t>> runs;       // the words of each launch of the first run; none: it is compiled before
};

struct KernelResult {
  std::shared_ptr<const Kernel> kernel;
  bool compiled = false;  // by this call
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

/// Whether kernels may run in tiles at first; for tests and measurements. True unless it is changed.
void set_tiles(bool on) noexcept;

/// Waits until no kernel waits for its optimised tier, or to be kept on disk: for benchmarks and tests.
void wait_for_optimised();

}  // namespace onepass::runtime
