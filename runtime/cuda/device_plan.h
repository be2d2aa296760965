// DevicePlan: what a launch plan runs on a GPU. Made once for each call signature, by Program; run by any thread. It fills in what a launch
// plan says of a call whatever the device (results, bytes, intermediates), and knows no arrays but those that a call brings.
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

/// The arrays of one call. Those that are not on the plan's device are copied.
struct DeviceCall {
  std::span<const Array* const> inputs;   // arguments, then what was captured
  std::span<const Array* const> outputs;  // laid out as the plan's `targets`; fresh ones as its `outputs`
  const std::uint64_t* slots = nullptr;   // null where they are the plan's own
};

/// What a call had to do beside its kernels.
struct DeviceCopies {
  std::int64_t uploaded = 0, downloaded = 0;  // bytes
  std::int64_t temporaries = 0;               // bytes, of targets that overlap arguments
  bool bad_index = false;                     // results are unspecified
};

/// How a call's arrays lie: what the schedule may count on.
struct DeviceAlignment {
  std::vector<bool> inputs, outputs;  // element (0, …, 0) at a multiple of 16 bytes
};

class DevicePlan {
 public:
  /// Simplify, fuse, plan, schedule, as make_launches: `plan` has its inputs, outputs and targets, `report` the recording.
  DevicePlan(const compiler::cuda::DeviceTarget& target, PlanData& plan, PlanReport& report, const LaunchOptions& options,
             const DeviceAlignment& alignment);

  /// Compiles the program, or takes it from memory or disk, for a device of that target: before anything runs. Gives how many kernels were
  /// compiled; KernelMissing as find_or_compile.
  int attach(Gpu& gpu, bool may_compile);
  Device device() const { return Device::cuda(gpu_->ordinal()); }
  /// Runs the kernels: puts them on the stream of this thread's calls, and waits only for what has to be on the cpu.
  DeviceCopies run(const PlanData& plan, const DeviceCall& call) const;
  /// Kernels for the plan's lengths, strides and literals alone, used from now on; with `trial` tried in turn with the generic ones first, and
  /// dropped if they are slower. Gives how many were compiled.
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
    std::vector<compiler::NestNumbers> more;  // of the pieces after the first one
  };
  std::span<const KernelInfo> kernels() const { return kernels_; }
  /// Where the program of the generic kernels came from.
  const Gpu::Loaded& loaded() const { return loaded_; }
  /// Of runs while profiling was on, in the order of kernels(): all pieces and phases of one call are one run. Waits for those that the device
  /// has not finished.
  std::span<const RunTimes> times() const;
  std::string explain(const PlanData& plan, const PlanReport& report) const;

 private:
  struct Step {
    std::uint32_t kernel;
    compiler::cuda::DeviceNumbers numbers;
    std::uint32_t first_word;  // of `words_`
    std::uint32_t phase_word, shared_word;
    std::vector<KernelWords::Pointer> pointers;
    std::vector<KernelWords::SlotWord> slots;
  };
  struct Code {
    Gpu::ModulePointer module;
    std::vector<void*> functions;  // by step
    std::vector<compiler::cuda::DeviceKernel> kernels;
  };
  // Calls whose kernels had the same words, which then go as one graph.
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
  static constexpr std::size_t kTrialsAhead = 8;  // that the device has not done: behind more a trial would say nothing of its own

  // What the device took for each step of a call.
  using Timed = std::vector<std::unique_ptr<Gpu::Interval>>;
  static constexpr std::size_t kTimedAhead = 64;  // calls that the device has not done; those beyond have no times

  class Run;
  // A nest of the plan, and the kernel that runs it.
  struct Piece {
    compiler::NestNumbers numbers;
    std::uint32_t kernel;
    compiler::cuda::DeviceNumbers device;
  };
  std::vector<Piece> add_kernels(const compiler::cuda::DeviceTarget& target, PlanData& plan, const PlanReport& report,
                                 const StoredValues& values, const DeviceAlignment& alignment);
  // Gives the bytes that they take together. Their times are those of the pieces.
  std::int64_t place_intermediates(const ir::Graph& graph, const LaunchOptions& options, std::span<const Piece> pieces,
                                   StoredValues& values) const;
  void add_step(const Piece& piece, const StoredValues& values);
  using Words = std::span<std::int64_t>;  // of all steps; their phases are written into them in turn
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
  std::vector<std::int64_t> words_;  // of all steps, with the slots of the plan's recording
  std::int64_t launches_ = 0;        // of one call
  std::int64_t shared_bytes_ = 0;    // of device memory: partial results of the step that has most
  std::vector<bool> reads_;          // by input
  std::string text_;
  std::unique_ptr<const Code> generic_;
  mutable std::unique_ptr<const Code> own_;
  mutable Specialised choice_;
  mutable std::mutex specialise_mutex_;
  mutable std::vector<Replay> replays_;  // under the device's lock; last used first
  mutable std::vector<Trial> trials_;    // under the same
  Gpu::Loaded loaded_;
  mutable std::mutex timed_mutex_;
  mutable std::vector<Timed> timed_;  // under it
  mutable std::vector<RunTimes> times_;
};

}  // namespace onepass::runtime::cuda
