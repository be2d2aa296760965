// Launch plans: the kernels of one call signature. A plan is made once for each signature, is immutable, and may run on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/literal.h"
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "compiler/plan/strips.h"
#include "compiler/structure.h"
#include "compiler/target.h"
#include "ir/graph.h"
#include "ir/reference.h"
#include "onepass/array.h"
#include "onepass/error.h"
#include "onepass/options.h"
#include "onepass/record.h"
#include "runtime/captured.h"
#include "runtime/kernel_cache.h"
#include "runtime/memory.h"

namespace onepass::runtime {

/// One kernel of a launch plan, for explain, dump and tests.
struct KernelReport {
  struct Piece {
    compiler::NestNumbers numbers;
    compiler::ScheduleNumbers scheduled;
  };
  std::uint32_t group = 0;
  compiler::Planned planned;
  compiler::Scheduled scheduled;  // bytes: of all subdomains
  std::vector<Piece> more;        // other subdomains with the same body
  std::string key;                // canonical: nest, schedule, target, tier
  bool from_cache = false;
  bool in_tiles = false;  // true while the kernel is compiled in the background
  CacheOutcome outcome = CacheOutcome::none;
  double compile_ms = 0;
};

/// All information about the plan of one signature.
struct PlanReport {
  ir::Graph recorded, optimised;
  std::vector<std::string> notes;  // notes of the recording: Recorder::notes
  compiler::Partition partition;
  std::vector<KernelReport> kernels;
  std::vector<compiler::Strips> strips;
};

/// An array in a plan: all properties except its address.
struct ArrayPlan {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape, strides;
  std::int64_t low = 0, high = 0;  // byte range of its elements, relative to element (0, …, 0); equal if empty
  std::int64_t elements() const { return ir::element_count(shape); }
};
ArrayPlan array_plan(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);  // no strides: contiguous

/// Times of the runs of a launch group while profiling was on, in nanoseconds.
struct RunTimes {
  std::atomic<std::int64_t> runs{0}, last{0}, best{0}, total{0};
  void add(std::int64_t nanoseconds) noexcept {
    last.store(nanoseconds, std::memory_order_relaxed);
    total.fetch_add(nanoseconds, std::memory_order_relaxed);
    for (std::int64_t known = best.load(std::memory_order_relaxed); known == 0 || nanoseconds < known;)
      if (best.compare_exchange_weak(known, nanoseconds, std::memory_order_relaxed)) break;
    runs.fetch_add(1, std::memory_order_relaxed);
  }
};

/// Duration of each stage of planning, in nanoseconds.
struct StageTimes {
  std::int64_t record = 0, passes = 0, fuse = 0, plan = 0, compile = 0;
};

/// Trial and result of a launch's specialized kernel. Trial runs alternate between it and the generic kernel; then it is used unless it
/// is slower. In a launch group, the first launch has the state of all launches.
class Specialised {
 public:
  static constexpr std::uint32_t kTrials = 24;  // runs, half of them generic
  enum class State : std::uint8_t { None, Trial, Used, Dropped };

  State state() const { return state_.load(std::memory_order_acquire); }
  const Kernel& kernel() const { return *kernel_; }
  /// Sets the kernel. Only one thread may call it, once. Without `trial`, later runs use the kernel directly.
  void publish(std::shared_ptr<const Kernel> kernel, bool trial);
  /// True if the next trial runs the specialized kernel.
  bool tries_kernel() { return started_.fetch_add(1, std::memory_order_relaxed) % 2 != 0; }
  /// Records the time of a trial. The last trial decides.
  void tried(bool kernel, std::int64_t nanoseconds);
  /// Records a trial that did not finish; its time does not count.
  void was_stopped(bool kernel) { tried(kernel, kNever); }
  mutable RunTimes times;  // times of the launch group that starts with this launch

 private:
  std::shared_ptr<const Kernel> kernel_;
  std::atomic<State> state_{State::None};
  std::atomic<std::uint32_t> started_{0}, finished_{0};
  std::atomic<std::int64_t> best_[2] = {kNever, kNever};  // best times of the generic kernel and of the specialized kernel
  static constexpr std::int64_t kNever = std::int64_t{1} << 62;
};

/// The kernel parameters of one run, and the entries that each call sets.
struct KernelWords {
  struct Pointer {
    std::uint32_t word;   // index in `words`
    std::uint32_t base;   // index of a base pointer: inputs, outputs, workspace; or kOwnWords for a pointer table
    std::int64_t offset;  // in bytes
    static constexpr std::uint32_t kOwnWords = ~std::uint32_t{0};
  };
  struct SlotWord {
    std::uint32_t word, slot;
    std::uint64_t sign = 0;  // as in NestNumbers::signs
    std::int64_t of(std::uint64_t value) const { return static_cast<std::int64_t>(value ^ sign); }
  };
  std::vector<std::int64_t> words;  // with the recorded scalar parameters
  std::vector<Pointer> pointers;
  std::vector<SlotWord> slots;  // scalar parameters of the nest, then of pointer tables
};

struct Launch : KernelWords {
  std::shared_ptr<const Kernel> kernel;
  std::shared_ptr<Specialised> specialised = std::make_shared<Specialised>();
  std::uint32_t of = 0, group = 0;            // the report's kernel; launches of one launch group are adjacent and run concurrently
  std::int64_t items = 0, scratch_bytes = 0;  // scratch bytes of each thread, a multiple of 64
  std::int64_t phases = 1, shared_bytes = 0;  // for a split reduction: its partial results follow the threads' scratch memory
  std::uint32_t phase_word = 0, shared_word = 0;
  bool is_routine = false;  // see runtime/routine.h
  bool is_steps = false;    // the kernel has no shape-specialized form
  bool claimed = false;     // free threads claim tasks in increasing order
  bool combines_last = false;
  int threads = 1;
  std::int64_t expected = 0;         // estimated nanoseconds of a run in the optimized tier
  double saved_if_specialised = 0;   // fraction of a run
  double specialised_compile = 1;    // compile time of the specialized kernel, in those of the generic kernel
  std::int64_t steps = 1;            // for a launch group: parts of the work that its launches run in lockstep
  std::int64_t strips_of_outer = 0;  // compiler/plan/strips.h: each step is a strip, or 0
  std::int64_t items_of_outer = 0, items_of_strip = 0;
  struct Held {
    std::uint32_t word;                       // the pointer to the buffer of strips
    std::int64_t offset, of_outer, of_strip;  // bytes: in the thread's memory; between outer iterations; between strips
  };
  std::vector<Held> held;
  std::int64_t held_bytes = 0, beside_bytes = 0;  // per thread, before its scratch: strip buffers; the thread's kernel parameters
  std::int64_t work = 0, bytes = 0;               // as in ScheduleNumbers: work; bytes read and written
};

namespace cuda {
class DevicePlan;
}
struct LaunchPlan;

struct PlanData;

/// Data that a recording attaches to its plans: the backward half of a pullback (runtime/gradient.cpp).
class Attachment {
 public:
  virtual ~Attachment() = default;
  /// Adds its data to the record of a call that runs `plan`.
  virtual void add_to(ExecutionRecord& record, const PlanData& plan, Detail detail) const = 0;
};

/// The contents of a plan: one launch for each subdomain of each kernel.
struct PlanData {
  std::vector<ArrayPlan> inputs;                 // array arguments, then captured arrays
  std::vector<std::uint32_t> argument_of;        // argument index of each input, except captured inputs
  mutable std::vector<Array> captured;           // kept alive until the program is destroyed
  std::vector<ArrayPlan> outputs;                // the requested results, as the kernels store them
  std::vector<std::uint32_t> target_of;          // result index of each output
  std::vector<ArrayPlan> targets;                // the caller's layouts; they differ from `outputs` if one node is two results
  std::vector<std::uint8_t> redirected;          // outputs whose destination has other strides: stored elsewhere, then copied
  std::vector<std::uint8_t> in_place;            // outputs x inputs: true if the output may overwrite the input in the same memory
  std::vector<std::string> output_names;         // names of all results
  std::shared_ptr<const Attachment> attachment;  // ProgramRecorder::attachment

  std::vector<std::uint64_t> slot_bits;  // scalar parameters of the recording
  compiler::Numbers numbers;             // the scalar parameters that a call's numbers set
  /// Tells which scalar parameters those are. Valid as long as the plan stays where it is.
  compiler::IsBrought is_brought() const {
    return [this](std::uint32_t slot) { return numbers.fills(slot); };
  }
  CapturedNumbers captured_numbers;  // variables that the function read
  bool interpret = false;            // mode reference
  bool refused = false;              // compiler/plan/verify_plan.h refused the fused kernels: other kernels run, or none
  bool indexes = false;              // some array is indexed by data
  std::vector<Launch> launches;
  std::int64_t workspace_bytes = 0, scratch_bytes = 0;  // intermediates; scratch memory of all threads of one kernel
  std::int64_t bytes_read = 0, bytes_written = 0, bytes_allocated = 0;
  std::size_t most_words = 0;            // largest sum over a launch group
  bool may_wait = true;                  // a call may wait for optimized code: Limits::compile_ms is not set
  std::int64_t kernels = 0, groups = 0;  // groups: launch groups, or kernels on a GPU
  StageTimes stages;
  const LaunchPlan* whole = nullptr;  // the enclosing plan of a call; its name in a profile
};

struct LaunchOptions {
  bool unfused = false;
  Relax relax;
  int threads = 1;
  bool aligned_stores = true;
  std::vector<bool> in_place;    // for each output: its destination is an argument's memory, in the call that makes the plan
  std::int64_t array_bytes = 0;  // Limits::array_bytes
  bool stoppable = false;        // Options::should_stop is set: parts of the work must be short
  compiler::PassOptions passes() const { return {.relax = relax, .unfused = unfused}; }
};

struct LaunchPlan : PlanData, std::enable_shared_from_this<LaunchPlan> {
  std::uint64_t id = 0;
  std::shared_ptr<const PlanReport> report;  // null if `known` contains all of it: plan_report.h
  compiler::OfStructure known;
  LaunchOptions options;                              // the options of this plan
  std::shared_ptr<const cuda::DevicePlan> on_device;  // the kernels on a GPU; `launches` is then empty
  std::vector<std::int64_t> key;                      // the signature: runtime/signature.h
  std::vector<std::int64_t> before;                   // signature of the previous call when the plan was made; empty: none
  bool was_forgotten = false;                         // an earlier plan of this signature was evicted
  std::int64_t compiled = 0;                          // kernels that were compiled for this plan
  mutable std::atomic<bool> described{false};         // true if the profile has the plan's description
  std::vector<bool> pinned;                           // for each number argument: true if the plan is specialized on its value
  std::int64_t hot_after = 0;                         // runs until the plan gets shape-specialized kernels
  std::uint64_t hash = 0, family = 0;                 // hash of the key with specialized values; hash without number values
  mutable std::atomic<std::int64_t> runs{0};
  mutable std::atomic<bool> captures_decided{false};  // a captured number changed, and the recording did not
  mutable std::atomic<bool> specialises{false};       // specialization started or ruled out
  // Set if the plan runs unfused because compiling exceeded Limits::compile_ms: true once the fused kernels are ready. Else null.
  std::shared_ptr<std::atomic<bool>> fused_ready;

  /// Returns the plan's approximate memory, in graph nodes; bounds the plan table.
  std::size_t cost() const {
    std::size_t words = 0;
    for (const Launch& launch : launches) words += launch.words.size();
    return 16 + words / 8 + (report ? report->recorded.size() + report->optimised.size() : 0);
  }
};

/// Thrown by make_launches if verify_plan also refuses the kernels with one operator each. Does not occur in mode reference.
class PlanRefused : public InternalError {
 public:
  using InternalError::InternalError;
};
/// Logs a refused plan once with the reason. With the test setting `strict` (runtime/os.h), throws an error.
void note_refusal(std::string_view wrong);

/// Turns a recorded graph into launches without kernels: simplify, fuse, plan, verify, schedule. The caller sets `inputs` and `outputs`
/// of `plan`, with `targets` equal to `outputs`; the function sets all other members of `plan` and `report`.
///
/// With `analysed`, the report already has the optimized graph and its partition, from this shape-generic analysis (runtime/structures).
/// If the verifier refuses the fused kernels, `plan` has one kernel for each operator and sets `refused`.
void make_launches(PlanData& plan, PlanReport& report, const compiler::Target& target, const LaunchOptions& options,
                   const compiler::Structure* analysed = nullptr);

/// Sets `plan.in_place` for a plan that only runs `only`.
void allow_in_place(PlanData& plan, const ir::Graph& graph, std::span<const ir::NodeId> places, const compiler::Planned& only);
/// Returns the bytes of a materialized value. Throws ValueError above `limit`; 0 means half the memory.
std::int64_t checked_bytes(const ir::Graph& graph, ir::NodeId id, DType dtype, std::int64_t limit);

/// Divides the scratch memory among a launch group's subdomains, which run together, each on its threads. Each thread's part fits the
/// subdomain with the largest need. Call it after a launch's scratch size has changed.
void share_scratch(PlanData& plan);

/// Throws ValueError if the needed operators of the graph work on more than `limit` elements in total; 0: no limit. The result is the
/// same in every mode.
void check_work(const ir::Graph& graph, std::int64_t limit);
/// Throws ValueError for a value larger than `options.array_bytes`, because mode reference materializes every node.
void check_interpreted(const ir::Graph& graph, const LaunchOptions& options);
/// Sets a hook that may change each nest before scheduling; for tests. Null removes it.
void set_nest_hook(void (*hook)(compiler::Nest& nest)) noexcept;
/// Sets a hook that may change the subdomains of each fusion group before verification; for tests of the verifier.
void set_plan_hook(void (*hook)(std::vector<compiler::Planned>& pieces)) noexcept;

/// Options for finding or compiling kernels.
struct Attaching {
  int threads = 1;
  std::shared_ptr<KernelCounts> counts;  // counters of compiled kernels; may be null
  bool may_compile = true;
  CompileWait* wait = nullptr;
  bool optimised = false;  // as `KernelRequest::optimised`
};
/// Finds or compiles the kernels of `report` and completes it. Returns the number of compiled kernels. Throws KernelMissing as
/// find_or_compile.
int attach_kernels(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how);
/// Does the same in mode specialized, only for the launches that `attach_specialised` skips.
int attach_unspecialised(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how);

/// Builds and publishes the specialized kernels of a plan, for trial or directly. Returns the number of compiled kernels.
int attach_specialised(const PlanData& plan, const PlanReport& report, const compiler::Target& target, const Attaching& how, bool trial);
/// Returns the number of runs after which specialization pays off: as many runs again would save its compile time.
std::int64_t runs_until_hot(const PlanData& plan);

inline constexpr std::size_t kMoreBases = 2;  // after inputs and outputs: the workspace, and a flag for invalid indices

/// Runs the kernels. `bases`: inputs, outputs, and room for kMoreBases. `slots`: scalar parameters of this call; null for the recorded
/// values. False if an index was out of bounds: results are then unspecified, and check_indices finds the index. Throws CancelledError if
/// `stop` returns true.
[[nodiscard]] bool run(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop = {});

/// Recomputes the indices of the recording and throws IndexError for the first index out of bounds. May find no such index, because vector
/// lanes past the end can also set the flag.
void check_indices(const ir::Graph& recorded, std::span<const ir::ArrayView> inputs, std::span<const std::uint64_t> slot_bits);

/// A repeated call on the same arrays, with all kernel parameters computed in advance in dedicated memory. The plan and `stop` must
/// outlive it. Only one thread may run it at a time.
class PreparedRun {
 public:
  PreparedRun(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop);
  [[nodiscard]] bool operator()();

 private:
  bool run_in_general();
  bool run_watched();

  const PlanData& plan_;
  const StopCondition& stop_;
  const Launch* only_ = nullptr;  // the only launch, if the plan is one call of one kernel without threads, waits or stop checks
  std::int64_t flag_ = 0;
  memory::Buffer memory_;  // intermediates and scratch memory
  std::byte* scratch_ = nullptr;
  std::vector<std::int64_t> words_;
};

/// Copies elements between arrays of one shape and dtype that do not overlap.
void copy_array(const ArrayPlan& to, std::byte* target, const ArrayPlan& from, const std::byte* source);

}  // namespace onepass::runtime
