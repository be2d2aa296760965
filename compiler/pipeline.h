// pipeline: the passes from a recorded graph to the one that is fused, as a table. The runtime runs it for each new structure, `onepass dump
// --passes` and execution records look at what each pass did.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "onepass/options.h"

namespace onepass::compiler {

struct PassOptions {
  Relax relax;
  bool unfused = false;                                // one kernel for each operator that the program has
  bool steps = true;                                   // where it fuses, a long recurrence may run step by step (find_steps.h): on the CPU
  std::function<bool(std::uint32_t slot)> is_brought;  // another call has another value in this slot; null: in each
  bool reference = false;                              // for the interpreter: the operators that every mode computes, nothing else
};

/// One row of the table. Each pass gives a graph with the same results and keeps the order of the outputs.
struct Pass {
  std::string_view name;
  ir::Graph (*run)(ir::Graph graph, const PassOptions& options);
  bool (*when)(const PassOptions& options);
  std::string_view otherwise;  // why it is left out where `when` is false
  bool sees_places;            // nodes whose indices are checked are outputs too, behind those of the program, while it runs
};
std::span<const Pass> passes();

/// What an observer is told after each pass, those that are left out included: `graph` is as it was before, and `nanoseconds` 0, for these.
struct PassDone {
  const Pass& pass;
  bool ran;
  std::int64_t nanoseconds;
  const ir::Graph& graph;
};
using PassObserver = std::function<void(const PassDone&)>;

/// Runs the table. Debug builds verify the result of each pass. `places`: filled with the nodes of the result whose indices are checked.
/// `observer`: may be null, and then no clock is read.
ir::Graph optimize(const ir::Graph& recorded, const PassOptions& options, std::vector<ir::NodeId>& places,
                   const PassObserver* observer = nullptr);

/// What mode reference evaluates.
ir::Graph interpretable(const ir::Graph& recorded, const Relax& relaxations, const PassObserver* observer = nullptr);

}  // namespace onepass::compiler
