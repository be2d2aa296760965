// Execution records: the contents of a plan and the reasons for them, as the public ExecutionRecord. Built from a plan's report on
// request; calls do not keep them. Used by `Program`, the command's `dump` and the profile.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/target.h"
#include "onepass/record.h"
#include "runtime/launch.h"

namespace onepass::runtime {

/// Returns the kernel's nodes: its materialized values and everything inlined into them, in order.
std::vector<ir::NodeId> nodes_of(const PlanReport& report, std::uint32_t group);
/// Returns the other nodes that these nodes read, in order.
std::vector<ir::NodeId> reads_of(const PlanReport& report, std::span<const ir::NodeId> nodes);
/// Returns the lines of the graph's printed form, by node, without indentation.
std::vector<std::string> lines_of(const ir::Graph& graph);
/// Returns the bytes in hexadecimal. A key is bytes, not text.
std::string hexadecimal(std::string_view bytes);

/// Returns the extents of loops as text: `64 x 1024 (reduced)`. `reduced`: a bit for each loop.
std::string loops_text(std::span<const std::int64_t> extents, std::uint64_t reduced);

/// Returns a name of the kernel's code for perf and GDB: its first stored value, its loops, and the source positions of its operators.
/// Empty if neither wants names (runtime/code_names.h).
std::string symbol_of(const PlanReport& report, const KernelReport& kernel);
/// Returns the kernel's LLVM IR or assembly as compiled in this mode: extents and strides are constants in mode specialized.
std::string code_of(const KernelReport& kernel, const compiler::Target& target, Mode mode, bool want_ir);

BoundaryReason reason_of(compiler::Boundary boundary);  // must not be Inlined

/// The reason for a plan, relative to another plan, and the difference.
struct PlanWhy {
  PlanReason reason = PlanReason::none;
  std::string sentence, remedy;
};
/// Compares two signatures (runtime/signature.h) and explains the plan. `before` is empty for the first call. `names`: of the arguments,
/// if any. `pinned`: for each number argument, true if the recording depends on its value. `compiled`: number of compiled kernels.
PlanWhy why_planned(const std::vector<std::int64_t>& key, const std::vector<std::int64_t>& before, std::span<const std::string> names,
                    const std::vector<bool>& pinned, bool forgotten, std::int64_t compiled);

/// Returns the differing fields of two schedules, such as `streamed stores: no -> yes`; empty if there are none.
std::string schedule_differences(const compiler::Schedule& before, const compiler::Schedule& now);

struct RecordContext {
  const compiler::Target& target;
  LaunchOptions options;
  Mode mode = Mode::adaptive;
  Detail detail = Detail::plan;
  std::span<const std::string> argument_names = {};
  std::span<const std::shared_ptr<const LaunchPlan>> others = {};  // plans of the same program, to explain why a kernel differs
};
/// Builds a record. `plan` has inputs, outputs and, if it was called, launches; it must be a LaunchPlan if `called`.
ExecutionRecord record_of(const PlanReport& report, const PlanData& plan, const LaunchPlan* called, const RecordContext& context);

/// Returns the compile times of a launch's generic kernel and its specialized kernel; either may be null.
std::vector<ExecutionRecord::Compile> compiles_of(const Kernel* generic, const Kernel* specialised);
/// Returns a text such as `compiled (quick) in 1.23 ms: build LLVM IR 0.20, …`.
std::string compile_text(const ExecutionRecord::Compile& compile);

/// Returns the program that NVRTC compiles for the inputs of `plan`, for the present device, else for a typical device; `note` says which.
std::string cuda_text(const PlanReport& report, const PlanData& plan, const LaunchOptions& options, std::string& note);
/// Returns the compiled program if NVRTC is installed; else returns an empty text and sets `note`.
std::string ptx_of(const std::string& cuda, std::string& note);

/// Writes a text file. Throws IoError `WHAT: PATH: …` if it cannot be written.
void write_text(const char* what, const std::string& path, std::string_view text);

}  // namespace onepass::runtime
