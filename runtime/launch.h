// Launch plans: what one call signature runs. Made once for each signature, immutable, run by any thread.
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
  compiler::Scheduled scheduled;  // bytes: of all pieces
  std::vector<Piece> more;        // pieces of the group that have the same body, beside the planned one
  std::string key;                // canonical: nest, schedule, target, tier
  bool from_cache = false;
  bool in_tiles = false;  // at first: it is compiled in the background
  CacheOutcome outcome = CacheOutcome::none;
  double compile_ms = 0;
};

/// Everything known about the plan of one signature.
struct PlanReport {
  ir::Graph recorded, optimised;
  std::vector<std::string> notes;  // of the recording: Recorder::notes
  compiler::Partition partition;
  std::vector<KernelReport> kernels;
  std::vector<compiler::Strips> strips;
};

/// An array as a plan knows it: everything but where it is.
struct ArrayPlan {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape, strides;
  std::int64_t low = 0, high = 0;  // the bytes that its elements touch, counted from element (0, …, 0); equal when it has none
  std::int64_t elements() const { return ir::element_count(shape); }
};
ArrayPlan array_plan(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);  // no strides: contiguous

/// Of the runs of a group of launches while profiling was on, in nanoseconds.
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

/// What making a plan took, in nanoseconds.
struct StageTimes {
  std::int64_t record = 0, passes = 0, fuse = 0, plan = 0, compile = 0;
};

/// A launch's specialised kernel, once there is one: tried in turn with the generic one, then used unless it is slower. Of a group of several
/// launches the first one's state is that of all.
class Specialised {
 public:
  static constexpr std::uint32_t kTrials = 24;  // runs, half of them generic
  enum class State : std::uint8_t { None, Trial, Used, Dropped };

  State state() const { return state_.load(std::memory_order_acquire); }
  const Kernel& kernel() const { return *kernel_; }
  /// By one thread, once. Without `trial` it is used from now on.
  void publish(std::shared_ptr<const Kernel> kernel, bool trial);
  /// Which kernel the next trial is for.
  bool tries_kernel() { return started_.fetch_add(1, std::memory_order_relaxed) % 2 != 0; }
  /// What a trial took. The last one decides.
  void tried(bool kernel, std::int64_t nanoseconds);
  /// A trial that did not come to its end says nothing.
  void was_stopped(bool kernel) { tried(kernel, kNever); }
  mutable RunTimes times;  // of the group whose first launch this is

 private:
  std::shared_ptr<const Kernel> kernel_;
  std::atomic<State> state_{State::None};
  std::atomic<std::uint32_t> started_{0}, finished_{0};
  std::atomic<std::int64_t> best_[2] = {kNever, kNever};  // of the generic kernel, of the specialised one
  static constexpr std::int64_t kNever = std::int64_t{1} << 62;
};

/// The words of one run of a kernel, and what each call fills into them.
struct KernelWords {
  struct Pointer {
    std::uint32_t word;   // which of `words`
    std::uint32_t base;   // of the call's base pointers: inputs, outputs, workspace; or kOwnWords, where a table stands
    std::int64_t offset;  // bytes
    static constexpr std::uint32_t kOwnWords = ~std::uint32_t{0};
  };
  struct SlotWord {
    std::uint32_t word, slot;
    std::uint64_t sign = 0;  // NestNumbers::signs
    std::int64_t of(std::uint64_t value) const { return static_cast<std::int64_t>(value ^ sign); }
  };
  std::vector<std::int64_t> words;  // with the slots of the plan's recording
  std::vector<Pointer> pointers;
  std::vector<SlotWord> slots;  // the nest's, then those of tables
};

struct Launch : KernelWords {
  std::shared_ptr<const Kernel> kernel;
  std::shared_ptr<Specialised> specialised = std::make_shared<Specialised>();
  std::uint32_t of = 0, group = 0;            // the report's kernel; launches of one group stand together and run in step
  std::int64_t items = 0, scratch_bytes = 0;  // of each thread, a multiple of 64
  std::int64_t phases = 1, shared_bytes = 0;  // of a split schedule: its partial results stand behind the threads' scratch
  std::uint32_t phase_word = 0, shared_word = 0;
  bool is_routine = false;  // runtime/routine.h
  bool is_steps = false;    // its kernel has no form for one shape
  bool claimed = false;     // items are begun in increasing order, by whichever thread is free
  bool combines_last = false;
  int threads = 1;
  std::int64_t expected = 0;  // nanoseconds of a run in the optimised tier, about
  std::int64_t vector_loop_extent = 0;
  std::int64_t steps = 1;            // of a group of several launches: parts of the work through which they go together
  std::int64_t strips_of_outer = 0;  // compiler/plan/strips.h: each step is a strip, or 0
  std::int64_t items_of_outer = 0, items_of_strip = 0;
  struct Held {
    std::uint32_t word;                       // the pointer to what strips hold
    std::int64_t offset, of_outer, of_strip;  // bytes: in the thread's memory; to the next outer iteration's, the next strip's
  };
  std::vector<Held> held;
  std::int64_t held_bytes = 0, beside_bytes = 0;  // of each thread, before its scratch: what is held; and the thread's words behind it
  std::int64_t work = 0, bytes = 0;               // ScheduleNumbers: work; read and written
};

namespace cuda {
class DevicePlan;
}
struct LaunchPlan;

struct PlanData;

/// What a recording leaves to the plans that are made of it: the backward half of a pullback (runtime/gradient.cpp).
class Attachment {
 public:
  virtual ~Attachment() = default;
  /// Adds what belongs to it to the record of a call that runs `plan`.
  virtual void add_to(ExecutionRecord& record, const PlanData& plan, Detail detail) const = 0;
};

/// What a plan runs: one launch for each piece of each kernel.
struct PlanData {
  std::vector<ArrayPlan> inputs;           // the array arguments, then what the function captured
  std::vector<std::uint32_t> argument_of;  // which argument each is, but for the captured ones
  mutable std::vector<Array> captured;     // kept alive until the program is gone
  std::vector<ArrayPlan> outputs;          // the results that are wanted, as the kernels store them
  std::vector<std::uint32_t> target_of;    // which result each is
  std::vector<ArrayPlan> targets;          // as the caller has them: other strides than the output's where a node is a result twice
  std::vector<std::uint8_t> redirected;    // outputs whose target has other strides: stored elsewhere, then copied
  std::vector<std::uint8_t> in_place;      // outputs x inputs: may this output overwrite that input, given that both are the same memory?
  std::vector<std::string> output_names;   // of all results
  std::shared_ptr<const Attachment> attachment;  // ProgramRecorder::attachment

  std::vector<std::uint64_t> slot_bits;  // of the recording's slots
  compiler::Numbers numbers;             // which of them each call's numbers fill
  CapturedNumbers captured_numbers;      // variables that the function read
  bool interpret = false;                // mode reference
  bool refused = false;  // the fused kernels were not what the graph says (compiler/plan/verify_plan.h): others run, or none
  bool indexes = false;  // something is indexed by data
  std::vector<Launch> launches;
  std::int64_t workspace_bytes = 0, scratch_bytes = 0;  // intermediates; scratch of all threads of one kernel
  std::int64_t bytes_read = 0, bytes_written = 0, bytes_allocated = 0;
  std::size_t most_words = 0;  // of the launches of one group
  bool may_wait = true;        // a call may wait for optimised code: Limits::compile_ms is not set
  std::int64_t kernels = 0;
  StageTimes stages;
  const LaunchPlan* whole = nullptr;  // that a call made: what a profile calls it
};

struct LaunchOptions {
  bool unfused = false;
  Relax relax;
  int threads = 1;
  bool aligned_stores = true;
  std::vector<bool> in_place;    // by output: its target is an argument's memory, as the call that makes the plan has it
  std::int64_t array_bytes = 0;  // Limits::array_bytes
  bool stoppable = false;        // Options::should_stop is set: no part of the work takes long
  compiler::PassOptions passes() const { return {.relax = relax, .unfused = unfused}; }
};

struct LaunchPlan : PlanData, std::enable_shared_from_this<LaunchPlan> {
  std::uint64_t id = 0;
  std::shared_ptr<const PlanReport> report;  // null where `known` says all of it: plan_report.h
  compiler::OfStructure known;
  LaunchOptions options;                              // what it was made with
  std::shared_ptr<const cuda::DevicePlan> on_device;  // what it runs, on a GPU; `launches` is empty then
  std::vector<std::int64_t> key;                      // the signature: runtime/signature.h
  std::vector<std::int64_t> before;                   // that of the call before the one that made the plan; empty: there was none
  bool was_forgotten = false;                         // such a plan had given its place to others
  std::int64_t compiled = 0;                          // kernels that were compiled for it
  mutable std::atomic<bool> described{false};         // to the profile
  std::vector<bool> pinned;                           // by number argument: is the plan for this value alone?
  std::int64_t hot_after = 0;                         // runs after which it gets kernels of its own
  std::uint64_t hash = 0, family = 0;                 // of the key with the pinned values; without the values of numbers
  mutable std::atomic<std::int64_t> runs{0};
  mutable std::atomic<bool> captures_decided{false};  // a captured number changed, and what the function records did not
  mutable std::atomic<bool> specialises{false};       // begun, or not to be begun
  // Of a plan that runs unfused since compiling would have taken longer than Limits::compile_ms: the fused kernels are there. Else null.
  std::shared_ptr<std::atomic<bool>> fused_ready;

  /// About how much memory the plan holds, in graph nodes: for bounding the table.
  std::size_t cost() const {
    std::size_t words = 0;
    for (const Launch& launch : launches) words += launch.words.size();
    return 16 + words / 8 + (report ? report->recorded.size() + report->optimised.size() : 0);
  }
};

/// What make_launches throws where verify_plan refuses the kernels that run one operator each, too. Mode reference has none.
class PlanRefused : public InternalError {
 public:
  using InternalError::InternalError;
};
/// Says once for each refused plan what is wrong with it. In tests that is an error: `strict`, runtime/os.h.
void note_refusal(std::string_view wrong);

/// From a recorded graph to everything but the kernels: simplify, fuse, plan, verify, schedule. `inputs` and `outputs` of `plan` are filled in,
/// `targets` are equal to the latter; `report` gets the rest. `analysed`: it has the optimised graph and its partition already
/// (runtime/structures): by that structure. Where the verifier refuses what is fused, `plan` runs one kernel for each operator, and says so
/// in `refused`.
void make_launches(PlanData& plan, PlanReport& report, const compiler::Target& target, const LaunchOptions& options,
                   const compiler::Structure* analysed = nullptr);

/// Fills `plan.in_place` in, where `only` is all that the plan runs.
void allow_in_place(PlanData& plan, const ir::Graph& graph, std::span<const ir::NodeId> places, const compiler::Planned& only);
/// Bytes of a stored value; ValueError where they are more than `limit`, 0 being half the memory.
std::int64_t checked_bytes(const ir::Graph& graph, ir::NodeId id, DType dtype, std::int64_t limit);

/// The pieces of a group run together, each thread in its share of the scratch: a share is what the piece that needs most of it needs. After
/// a launch's own needs have changed.
void share_scratch(PlanData& plan);

/// ValueError where the graph's operators work on more than `limit` elements in all, as far as what they compute is needed; 0: no limit. The
/// same in every mode.
void check_work(const ir::Graph& graph, std::int64_t limit);
/// Mode reference stores the value of every node: ValueError for one that is larger than `options.array_bytes` allows.
void check_interpreted(const ir::Graph& graph, const LaunchOptions& options);
/// For tests: may change each nest before it is scheduled. Null: nothing.
void set_nest_hook(void (*hook)(compiler::Nest& nest)) noexcept;
/// Changes the pieces of each group before they are verified. For tests of the verifier.
void set_plan_hook(void (*hook)(std::vector<compiler::Planned>& pieces)) noexcept;

/// How kernels are found or compiled.
struct Attaching {
  int threads = 1;
  std::shared_ptr<KernelCounts> counts;  // of what is compiled; may be null
  bool may_compile = true;
  CompileWait* wait = nullptr;
  bool optimised = false;  // KernelRequest::optimised
};
/// Finds or compiles the kernels of `report`, which it completes. Returns how many it compiled. KernelMissing as find_or_compile.
int attach_kernels(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how);
/// The same for mode specialized: of the launches that attach_specialised leaves out alone.
int attach_unspecialised(PlanData& plan, PlanReport& report, const compiler::Target& target, const Attaching& how);

/// Makes the specialised kernels of a plan and publishes them, for trial or for good. Returns how many it compiled.
int attach_specialised(const PlanData& plan, const PlanReport& report, const compiler::Target& target, const Attaching& how, bool trial);
/// Runs after which kernels of its own would pay for a plan: as long again as it took until then saves what they take to compile.
std::int64_t runs_until_hot(const PlanData& plan);

inline constexpr std::size_t kMoreBases = 2;  // behind inputs and outputs: the workspace, and a flag for bad indices

/// Runs the kernels. `bases`: inputs, outputs, and room for kMoreBases. `slots`: of this call; null where they are the plan's own. False
/// where an index lay outside: results are unspecified, and check_indices says which it was. CancelledError where `stop` is asked and says so.
[[nodiscard]] bool run(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop = {});

/// Computes the indices of the recording again: IndexError for the first that lies outside. None may: a flag can be raised by a lane that
/// counts for nothing.
void check_indices(const ir::Graph& recorded, std::span<const ir::ArrayView> inputs, std::span<const std::uint64_t> slot_bits);

/// The same with all words made beforehand, in memory of its own: for a call that is made again and again on the same arrays. The plan
/// and `stop` must outlive it. Not on two threads at once.
class PreparedRun {
 public:
  PreparedRun(const PlanData& plan, std::byte** bases, const std::uint64_t* slots, const StopCondition& stop);
  [[nodiscard]] bool operator()();

 private:
  bool run_in_general();
  bool run_watched();

  const PlanData& plan_;
  const StopCondition& stop_;
  const Launch* only_ = nullptr;  // all that runs, where that is one call of one kernel: nothing is shared out, waited for or asked
  std::int64_t flag_ = 0;
  memory::Buffer memory_;  // intermediates and scratch
  std::byte* scratch_ = nullptr;
  std::vector<std::int64_t> words_;
};

/// Copies elements between arrays of one shape and dtype that do not overlap.
void copy_array(const ArrayPlan& to, std::byte* target, const ArrayPlan& from, const std::byte* source);

}  // namespace onepass::runtime
