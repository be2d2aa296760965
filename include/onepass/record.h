// ExecutionRecord: what a call ran and why, as plain values: the recorded graph, what each pass made of it, the kernels with what they read,
// store and move, and the reason for each. It prints as text, as JSON (docs/record.schema.json) and as a page for a browser.
// Works under -fno-exceptions -fno-rtti.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/export.h"
#include "onepass/options.h"

namespace onepass {

/// Why a value is stored in memory and not computed where it is needed.
enum class BoundaryReason : std::uint8_t {
  output,                  ///< the caller wants it
  full_reduction,          ///< one value that every element of a later loop needs
  other_loops,             ///< a reduction's result is read by loops that do not share its rows
  other_axes,              ///< reductions over different axes meet
  reduction_of_reduction,  ///< a reduction reads the result of another one
  recompute,               ///< it is read several times, and computing it again costs more than the round trip
  pieces,                  ///< pieces of pieces, of which there would be too many
  gathered,                ///< it is indexed by data
  scattered,               ///< updates are added to it where data say
  sorted,                  ///< it is sorted or searched as a whole array
  stepped,                 ///< it is read or made step by step by a recurrence
  checked,                 ///< indices that are all checked, used or not
  kernel_limit,            ///< the group is too large for one kernel
  assembled,               ///< other kernels store its parts
  unfused,                 ///< mode unfused: each operator has its own kernel
};
inline constexpr int kBoundaryReasons = 15;
/// The word that JSON has for it: `output`, `full_reduction`, ….
ONEPASS_API
std::string_view name_of(BoundaryReason reason) noexcept;
/// One sentence, and what to do about it; empty where there is nothing to do.
ONEPASS_API
std::string_view sentence_of(BoundaryReason reason) noexcept;
ONEPASS_API
std::string_view remedy_of(BoundaryReason reason) noexcept;

/// Where the code of a kernel came from when its call was planned.
enum class CacheOutcome : std::uint8_t {
  none,      ///< nothing was asked for: the call was not made, or is interpreted
  memory,    ///< another call of this process had it
  joined,    ///< another thread was compiling it, and this call waited for that
  disk,      ///< from the cache folder
  compiled,  ///< compiled for this call
  tiles,     ///< nothing was compiled: the kernel begins in tiles (docs/runtime.md, "Tiers")
};
ONEPASS_API
std::string_view name_of(CacheOutcome outcome) noexcept;

/// Why a call was recorded and planned, compared with the call of the same function before it.
enum class PlanReason : std::uint8_t {
  none,        ///< it was not called
  first_call,  ///< no call was made before
  lengths,     ///< only lengths differ
  extents,     ///< an axis has one element or none, where it had many, or the other way around
  rank,        ///< an argument has another number of axes
  type,        ///< an argument or target has another type
  strides,     ///< an argument or target has another layout
  number,      ///< a number that chooses what is recorded, such as an axis, has another value
  arguments,   ///< there are other arguments, or numbers instead of arrays
  targets,     ///< results go to other places: fresh arrays, targets, or fewer of them
  alignment,   ///< targets begin at multiples of 64 bytes now, or no longer
  threads,     ///< the call may use another number of threads
  device,      ///< arrays are on another device
  forgotten,   ///< such a call was made before; its plan gave way to others (Stats::forgotten)
  repeated,    ///< such a call was made before; the function was reset, or its fused kernels are ready now
};
inline constexpr int kPlanReasons = 15;
ONEPASS_API
std::string_view name_of(PlanReason reason) noexcept;

/// How much of a record is filled in.
enum class Detail : std::uint8_t {
  plan,  ///< graphs, kernels, loops, reasons
  code,  ///< LLVM IR, assembly and CUDA text too, each of which is made when it is asked for
};

struct ExecutionRecord {
  /// One row of the table of passes.
  struct Pass {
    std::string name;
    bool ran = false;        ///< or it is left out in this mode, see `note`
    bool changed = false;    ///< the graph is another one now
    std::int64_t nodes = 0;  ///< of the graph after it
    double ms = 0;           ///< measured when the record was made: passes are run again for it
    std::string graph;       ///< the graph after it, where it changed
    std::string note;        ///< why it was left out
  };
  /// A node of the optimized graph.
  struct Node {
    std::uint32_t id = 0;
    std::string op;    ///< as the printed form has it
    std::string kind;  ///< input, slot, constant, view, elementwise, reduction, scan, gather, scatter, source
    std::string text;  ///< its line of the printed form, without `%id = `
    std::string type;  ///< `f32[64, 256]`
    std::vector<std::uint32_t> operands;
    std::string name;                    ///< of an input
    std::string source;                  ///< where it was recorded, `file:line`, or empty
    bool backward = false;               ///< differentiation made it
    std::int64_t bytes = 0;              ///< of its value, were it stored
    std::vector<std::uint32_t> kernels;  ///< that compute it
  };
  struct Output {
    std::string name;
    std::uint32_t node = 0;
  };
  /// A value that a kernel stores.
  struct Stored {
    std::uint32_t node = 0;
    std::vector<std::string> outputs;    ///< the names of the results that it is
    std::vector<std::uint32_t> readers;  ///< kernels that read it
    BoundaryReason reason = BoundaryReason::output;
    std::string sentence, remedy;
  };
  /// Times of runs while profiling was on (onepass/profile.h); no runs: it was off.
  struct Times {
    std::int64_t runs = 0;
    double last_ns = 0, best_ns = 0, mean_ns = 0;
    int together = 1;  ///< kernels that run in step, which these times are of; the others have none
  };
  /// One compile of a kernel by this process, by a call or in the background; only those that have come to their end.
  struct Compile {
    struct Stage {
      std::string name;  ///< open the code generator, build LLVM IR, LLVM passes, machine code, load; of CUDA text: NVRTC, load
      double ms = 0;
    };
    std::string tier;  ///< quick, optimized, specialized, CUDA
    double ms = 0;
    std::vector<Stage> stages;  ///< in their order; those that took no time are left out
  };
  struct Kernel {
    std::string key;    ///< what its code is cached by, in hexadecimal
    std::string kind;   ///< map, reduction over rows, reduction over lanes
    std::string loops;  ///< `64 x 256 (reduced)`
    std::vector<std::int64_t> extents;
    std::vector<bool> reduced;         ///< by loop
    int sweeps = 1;                    ///< times over the reduced loops
    int pieces = 1;                    ///< runs of the same code over parts of the result
    int threads = 1;                   ///< the most that share a run
    std::vector<std::uint32_t> nodes;  ///< that it computes
    std::vector<std::uint32_t> reads;  ///< nodes that it reads from memory
    std::vector<Stored> stores;
    std::int64_t bytes_read = 0, bytes_written = 0;
    bool backward = false;  ///< all that it stores was made by differentiation
    std::string tier;       ///< the code that it runs now, and why
    CacheOutcome cache = CacheOutcome::none;
    std::string cache_sentence;
    double compile_ms = 0;  ///< that its first call waited
    std::vector<Compile> compiles;
    Times times;
    std::string program;         ///< its loops, written out
    std::string llvm, assembly;  ///< Detail::code
    double gigabytes_per_second() const {
      return times.mean_ns > 0 && times.together == 1 ? static_cast<double>(bytes_read + bytes_written) / times.mean_ns : 0;
    }
  };
  /// What making the plan took. All are 0 where the call was not made.
  struct Stages {
    double record_ms = 0, passes_ms = 0, fuse_ms = 0, plan_ms = 0, compile_ms = 0;
  };

  std::string signature;  ///< of the call, as warm_up takes it
  std::string program;    ///< the text of a formula; else empty
  Mode mode = Mode::adaptive;
  std::string device = "cpu", processor;
  int threads = 1;
  bool called = false;  ///< or it says what such a call would run
  std::int64_t calls = 0;

  std::string recorded;   ///< the graph as it was recorded; parses back (GraphView::parse)
  std::string optimized;  ///< the graph that is fused
  std::vector<Pass> passes;
  std::vector<Node> nodes;  ///< of the optimized graph, operands first
  std::vector<Output> outputs;
  std::vector<Kernel> kernels;
  std::vector<std::string> notes;

  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t least_bytes = 0;                         ///< what is needed of the inputs read once, results written once
  std::int64_t unfused_kernels = 0, unfused_bytes = 0;  ///< the same call with one kernel for each operator; 0: not counted
  std::int64_t intermediate_bytes = 0;                  ///< memory between kernels

  PlanReason plan_reason = PlanReason::none;
  std::string plan_sentence, plan_remedy;
  Stages stages;
  /// What a copy of a large array reads and writes on this machine, measured once and kept in the cache folder; 0 where there are no times.
  double copy_gigabytes_per_second = 0;
  std::string times_note;  ///< whether kernel times are there, and how to turn them on
  std::string cuda;        ///< Detail::code: all kernels as one CUDA program
  std::string ptx;         ///< the same, compiled, where NVIDIA's compiler is installed
  std::string cuda_note;   ///< for which device, or why there is none

  /// Of a pullback (`vjp` of a compiled function): its backward call, at most one. What it reads of the forward call has the names that it has
  /// there.
  std::vector<ExecutionRecord> backward;

  /// A kernel's bytes per second relative to a copy's: 1 is as fast as memory allows, more is for arrays that caches hold. 0 where there are no times.
  double of_copy(const Kernel& kernel) const {
    return copy_gigabytes_per_second > 0 ? kernel.gigabytes_per_second() / copy_gigabytes_per_second : 0;
  }
  std::int64_t bytes() const { return bytes_read + bytes_written; }
  /// Bytes moved for each byte that has to be; 0 where there are none.
  double ratio() const { return least_bytes > 0 ? static_cast<double>(bytes()) / static_cast<double>(least_bytes) : 0; }

  /// A few lines for each kernel, with every reason and remedy.
  ONEPASS_API
  std::string text() const;
  /// As docs/record.schema.json says. `onepass run FILE.json` runs it again, `onepass diff` compares two.
  ONEPASS_API
  std::string json() const;
  /// One page for a browser that needs nothing else.
  ONEPASS_API
  std::string html() const;
  /// Writes json(), html() or text(), as `path` ends in `.json`, `.html` or otherwise. IoError where it cannot be written.
  ONEPASS_API
  void save(const std::string& path) const;
};

}  // namespace onepass
