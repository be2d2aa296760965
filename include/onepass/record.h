// ExecutionRecord: the kernels of a call and the reasons for them, as plain values: the recorded graph, the result of each pass, and the
// loads, stores and bytes of each kernel. Prints as text, JSON (docs/record.schema.json) or HTML. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/export.h"
#include "onepass/options.h"

namespace onepass {

/// The reason why a value is materialized instead of computed where it is used.
enum class BoundaryReason : std::uint8_t {
  output,                  ///< the caller requested it
  full_reduction,          ///< one value that every element of a later loop needs
  other_loops,             ///< loops with another reduction space read a reduction's result
  other_axes,              ///< it is combined with a reduction over different axes
  reduction_of_reduction,  ///< a reduction reads the result of another reduction
  recompute,               ///< several readers, and recomputation costs more than the memory round trip
  pieces,                  ///< nested subdomains, which would be too many
  few_columns,             ///< a reduction outside of few columns, or its costly operand: other loops use more vector lanes
  short_axis,              ///< read by a reduction along a short last axis that repeats values
  gathered,                ///< it is indexed by data
  scattered,               ///< data-dependent updates are added to it
  sorted,                  ///< it is sorted or searched as a whole array
  stepped,                 ///< a recurrence reads or computes it step by step
  checked,                 ///< indices that are all checked, used or not
  kernel_limit,            ///< the fusion group is too large for one kernel
  assembled,               ///< other kernels store its parts
  unfused,                 ///< mode unfused: each operator has its own kernel
};
inline constexpr int kBoundaryReasons = 17;
/// Returns the name of a reason in JSON: `output`, `full_reduction`, ….
ONEPASS_API
std::string_view name_of(BoundaryReason reason) noexcept;
/// Returns one sentence for the reason, or the suggested remedy; the remedy is empty if there is none.
ONEPASS_API
std::string_view sentence_of(BoundaryReason reason) noexcept;
ONEPASS_API
std::string_view remedy_of(BoundaryReason reason) noexcept;

/// The origin of a kernel's code when its call was planned.
enum class CacheOutcome : std::uint8_t {
  none,      ///< no lookup: the call was not made, or is interpreted
  memory,    ///< an earlier call of this process used it
  joined,    ///< another thread was compiling it, and this call waited for that
  disk,      ///< from the cache folder
  compiled,  ///< compiled for this call
  tiles,     ///< not compiled: the kernel starts in the tiled interpreter (docs/runtime.md, "Tiers")
};
ONEPASS_API
std::string_view name_of(CacheOutcome outcome) noexcept;

/// The reason why a call was recorded and planned, compared with the previous call of the function.
enum class PlanReason : std::uint8_t {
  none,        ///< it was not called
  first_call,  ///< first call of the function
  lengths,     ///< only lengths differ
  extents,     ///< an axis with many elements now has one element or none, or the reverse
  rank,        ///< an argument has a different number of axes
  type,        ///< an argument or destination has a different type
  strides,     ///< an argument or destination has a different layout
  number,      ///< a number that the recording depends on, such as an axis, has a different value
  arguments,   ///< the arguments differ, or numbers replace arrays
  targets,     ///< the set of destinations differs, or new arrays replace destinations
  alignment,   ///< the 64-byte alignment of destinations changed
  threads,     ///< the call may use a different number of threads
  device,      ///< arrays are on another device
  forgotten,   ///< the plan of an earlier such call was evicted (Stats::forgotten)
  repeated,    ///< such a call was made before; the function was reset, or its fused kernels are ready now
};
inline constexpr int kPlanReasons = 15;
ONEPASS_API
std::string_view name_of(PlanReason reason) noexcept;

/// The level of detail of a record.
enum class Detail : std::uint8_t {
  plan,  ///< graphs, kernels, loops, reasons
  code,  ///< also LLVM IR, assembly and CUDA text, each generated on request
};

struct ExecutionRecord {
  /// One row of the table of passes.
  struct Pass {
    std::string name;
    bool ran = false;        ///< false: not run in this mode, see `note`
    bool changed = false;    ///< true if the pass changed the graph
    std::int64_t nodes = 0;  ///< nodes of the graph after it
    double ms = 0;           ///< measured when the record was made, because passes are rerun for it
    std::string graph;       ///< the graph after it, if it changed
    std::string note;        ///< why it did not run
  };
  /// A node of the optimized graph.
  struct Node {
    std::uint32_t id = 0;
    std::string op;    ///< as in the printed form
    std::string kind;  ///< input, slot, constant, view, elementwise, reduction, scan, gather, scatter, source
    std::string text;  ///< its line of the printed form, without `%id = `
    std::string type;  ///< `f32[64, 256]`
    std::vector<std::uint32_t> operands;
    std::string name;                    ///< name of an input
    std::string source;                  ///< source position of the recording, `file:line`, or empty
    bool backward = false;               ///< created by differentiation
    std::int64_t bytes = 0;              ///< size of its value if materialized
    std::vector<std::uint32_t> kernels;  ///< kernels that compute it
  };
  struct Output {
    std::string name;
    std::uint32_t node = 0;
  };
  /// A value that a kernel stores.
  struct Stored {
    std::uint32_t node = 0;
    std::vector<std::string> outputs;    ///< names of the results with this value
    std::vector<std::uint32_t> readers;  ///< kernels that read it
    BoundaryReason reason = BoundaryReason::output;
    std::string sentence, remedy;
  };
  /// Times of runs while profiling was on (onepass/profile.h); `runs` is 0 if it was off.
  struct Times {
    std::int64_t runs = 0;
    double last_ns = 0, best_ns = 0, mean_ns = 0;
    int together = 1;  ///< number of concurrent kernels measured together; the other kernels have no times
  };
  /// One finished compile of a kernel by this process, by a call or in the background.
  struct Compile {
    struct Stage {
      std::string name;  ///< open the code generator, build LLVM IR, LLVM passes, machine code, load; for CUDA text: NVRTC, load
      double ms = 0;
    };
    std::string tier;  ///< quick, optimized, specialized, CUDA
    double ms = 0;
    std::vector<Stage> stages;  ///< in order; stages that took no time are omitted
  };
  struct Kernel {
    std::string key;    ///< cache key of its code, in hexadecimal
    std::string kind;   ///< map, reduction over rows, reduction over lanes
    std::string loops;  ///< `64 x 256 (reduced)`
    std::vector<std::int64_t> extents;
    std::vector<bool> reduced;         ///< one flag for each loop
    int sweeps = 1;                    ///< traversals of the reduced loops
    int pieces = 1;                    ///< runs of the same code over subdomains of the result
    int threads = 1;                   ///< maximum threads of a run
    std::vector<std::uint32_t> nodes;  ///< nodes that it computes
    std::vector<std::uint32_t> reads;  ///< nodes that it reads from memory
    std::vector<Stored> stores;
    std::int64_t bytes_read = 0, bytes_written = 0;
    bool backward = false;  ///< differentiation created all values that it stores
    std::string tier;       ///< the tier of its current code, with the reason
    CacheOutcome cache = CacheOutcome::none;
    std::string cache_sentence;
    double compile_ms = 0;  ///< wait of its first call
    std::vector<Compile> compiles;
    Times times;
    std::string program;         ///< its loops as text
    std::string llvm, assembly;  ///< for Detail::code
    double gigabytes_per_second() const {
      return times.mean_ns > 0 && times.together == 1 ? static_cast<double>(bytes_read + bytes_written) / times.mean_ns : 0;
    }
  };
  /// Times of the stages of planning. All are 0 if the call was not made.
  struct Stages {
    double record_ms = 0, passes_ms = 0, fuse_ms = 0, plan_ms = 0, compile_ms = 0;
  };

  std::string signature;  ///< signature of the call, in the form that warm_up accepts
  std::string program;    ///< the text of a formula; else empty
  Mode mode = Mode::adaptive;
  std::string device = "cpu", processor;
  int threads = 1;
  bool called = false;  ///< false: describes a call that was not made
  std::int64_t calls = 0;

  std::string recorded;   ///< the graph as recorded; GraphView::parse reads it
  std::string optimized;  ///< the graph that is fused
  std::vector<Pass> passes;
  std::vector<Node> nodes;  ///< nodes of the optimized graph, operands first
  std::vector<Output> outputs;
  std::vector<Kernel> kernels;
  std::vector<std::string> notes;

  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t least_bytes = 0;                         ///< minimum: needed inputs read once, results written once
  std::int64_t unfused_kernels = 0, unfused_bytes = 0;  ///< the same call with one kernel for each operator; 0: not counted
  std::int64_t intermediate_bytes = 0;                  ///< memory between kernels

  PlanReason plan_reason = PlanReason::none;
  std::string plan_sentence, plan_remedy;
  Stages stages;
  /// Bandwidth of a large array copy on this machine, reads plus writes; measured once and stored in the cache folder. 0 without kernel
  /// times.
  double copy_gigabytes_per_second = 0;
  std::string times_note;  ///< whether kernel times are available, and how to enable them
  std::string cuda;        ///< for Detail::code: all kernels as one CUDA program
  std::string ptx;         ///< the same program, compiled, if NVIDIA's compiler is installed
  std::string cuda_note;   ///< the device, or the reason why CUDA code is absent

  /// The backward call of a pullback (`vjp` of a compiled function), at most one. Forward values keep their forward names.
  std::vector<ExecutionRecord> backward;

  /// Returns a kernel's bytes per second relative to the copy bandwidth: 1 is memory bandwidth, and cached arrays can exceed 1. 0 if times
  /// are unavailable.
  double of_copy(const Kernel& kernel) const {
    return copy_gigabytes_per_second > 0 ? kernel.gigabytes_per_second() / copy_gigabytes_per_second : 0;
  }
  std::int64_t bytes() const { return bytes_read + bytes_written; }
  /// Returns the bytes moved for each necessary byte; 0 if no bytes are necessary.
  double ratio() const { return least_bytes > 0 ? static_cast<double>(bytes()) / static_cast<double>(least_bytes) : 0; }

  /// Returns a few lines for each kernel, with every reason and remedy.
  ONEPASS_API
  std::string text() const;
  /// Returns JSON as specified by docs/record.schema.json. `onepass run FILE.json` runs it again, `onepass diff` compares two such files.
  ONEPASS_API
  std::string json() const;
  /// Returns one self-contained HTML page.
  ONEPASS_API
  std::string html() const;
  /// Writes json() to a `.json` path, html() to a `.html` path, else text(). Throws IoError if the file cannot be written.
  ONEPASS_API
  void save(const std::string& path) const;
};

}  // namespace onepass
