// Execution records: what a plan is made of and why, as the public ExecutionRecord. Made when somebody asks, from a plan's report; nothing of
// it is kept by a call. `Program`, the command's `dump` and the profile call this.
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

/// The kernel's nodes: its stored values and everything inlined into them, in order.
std::vector<ir::NodeId> nodes_of(const PlanReport& report, std::uint32_t group);
/// What these read that is none of them, in order.
std::vector<ir::NodeId> reads_of(const PlanReport& report, std::span<const ir::NodeId> nodes);
/// The lines of the graph's printed form, by node, without their indentation.
std::vector<std::string> lines_of(const ir::Graph& graph);
/// A key is bytes, not text.
std::string hexadecimal(std::string_view bytes);

BoundaryReason reason_of(compiler::Boundary boundary);  // not of Inlined

/// What a plan was compared with, and what is different.
struct PlanWhy {
  PlanReason reason = PlanReason::none;
  std::string sentence, remedy;
};
/// `key`, `before`: signatures (runtime/signature.h), the latter empty before the first call; `names`: of the arguments, where they have some;
/// `pinned`: by number argument, whether its value chooses what is recorded; `compiled`: kernels that were.
PlanWhy why_planned(const std::vector<std::int64_t>& key, const std::vector<std::int64_t>& before, std::span<const std::string> names,
                    const std::vector<bool>& pinned, bool forgotten, std::int64_t compiled);

/// The fields of a schedule that differ: `streamed stores: no -> yes`, or nothing.
std::string schedule_differences(const compiler::Schedule& before, const compiler::Schedule& now);

struct RecordContext {
  const compiler::Target& target;
  LaunchOptions options;
  Mode mode = Mode::adaptive;
  Detail detail = Detail::plan;
  std::span<const std::string> argument_names = {};
  std::span<const std::shared_ptr<const LaunchPlan>> others = {};  // plans of the same program, for why a kernel is another one
};
/// `plan`: with its inputs, outputs and, where it was called, launches; a LaunchPlan where `called`.
ExecutionRecord record_of(const PlanReport& report, const PlanData& plan, const LaunchPlan* called, const RecordContext& context);

/// What compiles of a launch's kernels took: of the generic one and of that for its lengths alone, either of which may be null.
std::vector<ExecutionRecord::Compile> compiles_of(const Kernel* generic, const Kernel* specialised);
/// `compiled (quick) in 1.23 ms: build LLVM IR 0.20, …`
std::string compile_text(const ExecutionRecord::Compile& compile);

/// The program that NVRTC compiles for such inputs, for the device here, else for a typical one; `note` says which.
std::string cuda_text(const PlanReport& report, const PlanData& plan, const LaunchOptions& options, std::string& note);
/// The same compiled, where NVRTC is installed; else empty, and `note` says so.
std::string ptx_of(const std::string& cuda, std::string& note);

/// IoError `WHAT: PATH: …` where the file cannot be written.
void write_text(const char* what, const std::string& path, std::string_view text);

}  // namespace onepass::runtime
