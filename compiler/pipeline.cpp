// See pipeline.h.
#include "compiler/pipeline.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "compiler/choose_relax.h"
#include "compiler/find_steps.h"
#include "compiler/fuse.h"
#include "compiler/halves.h"
#include "compiler/join_equal.h"
#include "compiler/join_steps.h"
#include "compiler/relax.h"
#include "compiler/reroll.h"
#include "compiler/routine_operands.h"
#include "compiler/simplify.h"
#include "compiler/split_steps.h"
#include "compiler/step_body.h"
#include "compiler/unroll.h"

namespace onepass::compiler {

using ir::Graph;
using ir::NodeId;

namespace {

bool always(const PassOptions&) { return true; }
bool relaxes(const PassOptions& options) { return options.relax != Relax{}; }
bool interprets(const PassOptions& options) { return options.reference; }
bool compiles(const PassOptions& options) { return !options.reference; }
bool fuses(const PassOptions& options) { return !options.reference && !options.unfused; }
bool writes_out(const PassOptions& options) { return compiles(options) && !options.steps; }
bool runs_steps(const PassOptions& options) { return fuses(options) && options.steps; }

Graph run_prune(Graph graph, const PassOptions&) { return ir::prune(std::move(graph)); }
Graph run_relax(Graph graph, const PassOptions& options) {
  return relax(rewrite_steps(std::move(graph), [&](Graph step) { return relax(step, options.relax); }), options.relax);
}
Graph run_write_out(Graph graph, const PassOptions&) { return write_out_steps(std::move(graph), Limits{}.max_nodes); }
Graph run_split_steps(Graph graph, const PassOptions&) {
  return ir::prune(split_steps(rewrite_steps(std::move(graph), [](Graph step) { return ir::prune(simplify(step)); })));
}
Graph run_halves(Graph graph, const PassOptions&) { return shorten_halves(rewrite_steps(std::move(graph), shorten_halves)); }
Graph run_simplify(Graph graph, const PassOptions&) { return ir::prune(simplify(graph)); }
Graph run_steps(Graph graph, const PassOptions& options) {
  std::optional<Graph> found = find_steps(graph, options.is_brought);
  return found ? ir::prune(*std::move(found)) : std::move(graph);
}
Graph run_join_steps(Graph graph, const PassOptions&) { return ir::prune(join_steps(std::move(graph))); }
Graph run_reroll(Graph graph, const PassOptions&) {
  std::optional<Graph> rerolled = reroll(graph);
  return rerolled ? *std::move(rerolled) : std::move(graph);
}
Graph run_unroll(Graph graph, const PassOptions&) {
  std::optional<Graph> unrolled = unroll(graph);
  return unrolled ? ir::prune(*std::move(unrolled)) : std::move(graph);
}
Graph run_join_equal(Graph graph, const PassOptions& options) { return join_equal(std::move(graph), options.is_brought); }
Graph run_routine_operands(Graph graph, const PassOptions&) { return copy_routine_operands(std::move(graph)); }
Graph run_copy_results(Graph graph, const PassOptions&) { return copy_results(std::move(graph)); }

constexpr std::string_view kStrict = "arithmetic is strict", kFused = "kernels are fused", kInterpreted = "nothing is compiled",
                           kWrittenOut = "each operator has its own kernel or none, or a GPU runs the function",
                           kHasSteps = "nothing is compiled, or a CPU runs the function",
                           kOneByOne = "each operator has its own kernel or none";

constexpr Pass kPasses[] = {
    {"prune", run_prune, always, {}, true},
    {"relax", run_relax, relaxes, kStrict, true},
    {"halves", run_halves, always, {}, true},
    {"prune", run_prune, interprets, kFused, true},
    {"write out steps", run_write_out, writes_out, kHasSteps, true},
    {"split steps", run_split_steps, runs_steps, kWrittenOut, true},
    {"simplify", run_simplify, compiles, kInterpreted, true},
    {"steps", run_steps, runs_steps, kWrittenOut, true},
    {"join steps", run_join_steps, runs_steps, kWrittenOut, true},
    {"reroll", run_reroll, fuses, kOneByOne, true},
    {"unroll", run_unroll, fuses, kOneByOne, true},
    {"join equal", run_join_equal, fuses, kOneByOne, true},
    {"routine operands", run_routine_operands, compiles, kInterpreted, true},
    {"copy results", run_copy_results, compiles, kInterpreted, false},
};

std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(const Graph& graph, const Pass& pass) {
#ifndef NDEBUG
  ir::verify(graph, pass.name);
#else
  static_cast<void>(graph), static_cast<void>(pass);
#endif
}

// Outputs for checked indices, after the program's own.
class Places {
 public:
  explicit Places(Graph& graph) : results_(graph.outputs.size()) {
    const std::vector<NodeId> places = ir::places_of(graph);
    graph.outputs.insert(graph.outputs.end(), places.begin(), places.end());
    graph.output_names.resize(graph.output_names.empty() ? 0 : graph.outputs.size());
  }
  std::vector<NodeId> take(Graph& graph) const {
    std::vector<NodeId> places(graph.outputs.begin() + static_cast<std::ptrdiff_t>(results_), graph.outputs.end());
    graph.outputs.resize(results_);
    graph.output_names.resize(std::min(graph.output_names.size(), results_));
    return places;
  }

 private:
  std::size_t results_;
};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Graph optimize(const Graph& recorded, const PassOptions& allowed, std::vector<NodeId>& places, const PassObserver* observer) {
  PassOptions options = allowed;
  options.relax = choose_relax(recorded, allowed.relax);
  Graph graph = recorded;
  std::optional<Places> seen;
  if (!options.reference) seen.emplace(graph);
  for (const Pass& pass : kPasses) {
    if (!pass.sees_places && seen) places = seen->take(graph), seen.reset();
    const bool runs = pass.when(options);
    const std::int64_t start = observer && runs ? nanoseconds() : 0;
    if (runs) {
      graph = pass.run(std::move(graph), options);
      check(graph, pass);
    }
    if (observer) (*observer)({pass, runs, runs ? nanoseconds() - start : 0, graph});
  }
  return graph;
}

Graph interpretable(const Graph& recorded, const Relax& relaxations, const PassObserver* observer) {
  std::vector<NodeId> none;
  return optimize(recorded, {.relax = relaxations, .reference = true}, none, observer);
}

}  // namespace onepass::compiler
