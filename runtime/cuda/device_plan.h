// DevicePlan: the kernels of a launch plan on a GPU. Program makes it once for each call signature; any thread may run it. It also sets
// the device-independent parts of the launch plan: results, bytes, intermediates. It refers to arrays only during a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compiler/cuda/emit.h"
#include "compiler/cuda/schedule.h"
#include "onepass/array.h"
#include "runtime/cuda/device.h"
#include "runtime/launch.h"
#include "runtime/stored_values.h"

namespace onepass::runtime::cuda {

/// The arrays of one call. Arrays on another device are copied.
struct DeviceCall {
  std::span<const Array* const> inputs;   // arguments, then captured arrays
  std::span<const Array* const> outputs;  // in the layout of the plan's `targets`; new arrays in the layout of its `outputs`
  const std::uint64_t* slots = nullptr;   // null for the plan's own scalar parameters
  bool waits = false;                     // true if the call must know at its end whether all indices were good
};

/// Extra work of a call besides its kernels.
struct DeviceCopies {
  std::int64_t uploaded = 0, downloaded = 0;  // in bytes
  std::int64_t temporaries = 0;               // bytes, for destinations that overlap arguments
  /// The error message if the call waited and met an index out of bounds; results are then unspecified. An earlier call with this plan may
  /// have met it instead. If the call did not wait, a later call or wait throws the error.
  std::string bad_index = {};
};

/// Alignment of a call's arrays, which the schedule relies on.
struct DeviceAlignment {
  std::vector<bool> inputs, outputs;  // element (0, …, 0) is 16-byte aligned
};

class DevicePlan {
 public:
  /// Simplifies, fuses, plans and schedules, like make_launches. `plan` must have inputs, outputs and destinations; `report` must have
  /// the recording.
  DevicePlan(const compiler::cuda::DeviceTarget& target, PlanData& plan, PlanReport& report, const LaunchOptions& options,
             const DeviceAlignment& alignment);

  /// Compiles the program, or takes it from memory or disk, for a device with that target. Must precede run(). Returns the number of
  /// compiled kernels. Throws KernelMissing as find_or_compile.
  int attach(Gpu& gpu, bool may_compile);
  Device device() const { return Device::cuda(gpu_->ordinal()); }
  /// Enqueues the kernels on the stream of this thread's calls. Waits only for data needed on the CPU. Throws IndexError, and begins nothing,
  /// if an earlier call on the device is known to have met a bad index.
  DeviceCopies run(const PlanData& plan, const DeviceCall& call) const;
  /// Builds kernels for exactly the plan's lengths, strides and literals, and uses them for later calls. With `trial`, first alternates
  /// them with the generic kernels and drops them if they are slower. Returns the number of compiled kernels.
  int specialise(const PlanData& plan, bool trial, bool may_compile = true) const;
  Specialised::State specialised() const { return choice_.state(); }

  const std::string& text() const { return text_; }
  struct KernelInfo {
    std::uint32_t group;
    compiler::Planned planned;
    compiler::cuda::DeviceScheduled scheduled;
    compiler::cuda::DeviceKernel kernel;
    std::string key;
    std::size_t pieces = 1;
    std::int64_t bytes_read = 0, bytes_written = 0;
    std::vector<compiler::NestNumbers> more;  // parameters of the second and later subdomains
  };
  std::span<const KernelInfo> kernels() const { return kernels_; }
  /// Returns the origin of the generic kernels' program.
  const Gpu::Loaded& loaded() const { return loaded_; }
  /// Returns the times of runs while profiling was on, in the order of kernels(). All subdomains and phases of one call count as one run.
  /// Waits for unfinished runs.
  std::span<const RunTimes> times() const;
  std::string explain(const PlanData& plan, const PlanReport& report) const;

 private:
  struct Step {
    std::uint32_t kernel;
    compiler::cuda::DeviceNumbers numbers;
    std::uint32_t first_word;  // index in `words_`
    std::uint32_t phase_word, shared_word;
    std::vector<KernelWords::Pointer> pointers;
    std::vector<KernelWords::SlotWord> slots;
  };
  struct Code {
    Gpu::ModulePointer module;
    std::vector<void*> functions;  // one for each step
    std::vector<compiler::cuda::DeviceKernel> kernels;
  };
  // Calls with equal kernel parameters, which are launched as one graph.
  struct Replay {
    std::vector<std::int64_t> words;
    const Code* code = nullptr;
    std::unique_ptr<const Gpu::Graph> graph;
  };
  static constexpr std::size_t kReplays = 4;
  struct Trial {
    bool of_own;
    std::unique_ptr<Gpu::Interval> took;
  };
  static constexpr std::size_t kTrialsAhead = 8;  // maximum of unfinished trials, so that measurements do not overlap

  // The device times of each step of a call.
  using Timed = std::vector<std::unique_ptr<Gpu::Interval>>;
  static constexpr std::size_t kTimedAhead = 64;  // maximum of unfinished timed calls; later calls have no times

  class Run;
  // A nest of the plan, and the kernel that runs it.
  struct Piece {
    compiler::NestNumbers numbers;
    std::uint32_t kernel;
    compiler::cuda::DeviceNumbers device;
  };
  std::vector<Piece> add_kernels(const compiler::cuda::DeviceTarget& target, PlanData& plan, const PlanReport& report,
                                 const StoredValues& values, const DeviceAlignment& alignment);
  // Places the intermediates and returns their total bytes. Their lifetimes are in units of subdomains.
  std::int64_t place_intermediates(const ir::Graph& graph, const LaunchOptions& options, std::span<const Piece> pieces,
                                   StoredValues& values) const;
  void add_step(const Piece& piece, const StoredValues& values);
  using Words = std::span<std::int64_t>;  // kernel parameters of all steps; each phase number is written into them in turn
  void launch(Gpu::Turn& turn, Words words) const;
  void launch_once(Gpu::Turn& turn, const Code& code, Words words, Timed* timed = nullptr) const;
  void launch_now(Gpu::Turn& turn, const Code& code, Words words) const;
  void launch_timed(Gpu::Turn& turn, const Code& code, Words words) const;
  void add_times(const Timed& timed) const;
  void launch_again(Gpu::Turn& turn, const Code& code, Words words) const;
  void launch_trial(Gpu::Turn& turn, Words words) const;
  bool can_be_graph(const Code& code) const;

  Gpu* gpu_ = nullptr;
  std::vector<KernelInfo> kernels_;
  std::vector<Step> steps_;
  std::vector<std::int64_t> words_;  // kernel parameters of all steps, with the recorded scalar parameters
  std::int64_t launches_ = 0;        // number of launches in one call
  std::int64_t shared_bytes_ = 0;    // device memory for the largest step's partial results
  std::vector<bool> reads_;          // one flag for each input
  std::vector<CheckedIndex> checks_;
  std::string text_;
  std::unique_ptr<const Code> generic_;
  std::unique_ptr<Gpu::IndexReport> report_;  // null if no kernel checks indices
  mutable std::unique_ptr<const Code> own_;
  mutable Specialised choice_;
  mutable std::mutex specialise_mutex_;
  mutable std::vector<Replay> replays_;  // guarded by the device's lock; most recently used first
  mutable std::vector<Trial> trials_;    // guarded by the device's lock
  Gpu::Loaded loaded_;
  mutable std::mutex timed_mutex_;
  mutable std::vector<Timed> timed_;  // guarded by timed_mutex_
  mutable std::vector<RunTimes> times_;
};

}  // namespace onepass::runtime::cuda
