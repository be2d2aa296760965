// pipeline: the table of passes from a recorded graph to the graph that fuse receives. The runtime runs it for each new structure. `onepass
// dump --passes` and execution records report the effect of each pass.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/join_equal.h"
#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

struct PassOptions {
  Relax relax;
  bool unfused = false;    // one kernel for each operator of the program
  bool steps = true;       // in fused mode, allows find_steps.h to run a long recurrence step by step; CPU only
  IsBrought is_brought;    // null: always true
  bool reference = false;  // for the interpreter: only the operators that every mode computes
};

/// One row of the table. Each pass returns a graph with the same results and keeps the order of the outputs.
struct Pass {
  std::string_view name;
  ir::Graph (*run)(ir::Graph graph, const PassOptions& options);
  bool (*when)(const PassOptions& options);
  std::string_view otherwise;  // reason for skipping the pass, if `when` is false
  bool sees_places;            // while it runs, nodes whose indices are checked are extra outputs after the program's own
};
std::span<const Pass> passes();

/// Information for an observer after each pass, including skipped passes. For a skipped pass `graph` is unchanged and `nanoseconds` is 0.
struct PassDone {
  const Pass& pass;
  bool ran;
  std::int64_t nanoseconds;
  const ir::Graph& graph;
};
using PassObserver = std::function<void(const PassDone&)>;

/// Runs the table. Debug builds verify the result of each pass. Fills `places` with the result's nodes whose indices are checked.
/// `observer` may be null; then no clock is read.
ir::Graph optimize(const ir::Graph& recorded, const PassOptions& options, std::vector<ir::NodeId>& places,
                   const PassObserver* observer = nullptr);

/// Returns the graph that mode reference evaluates.
ir::Graph interpretable(const ir::Graph& recorded, const Relax& relaxations, const PassObserver* observer = nullptr);

}  // namespace onepass::compiler
