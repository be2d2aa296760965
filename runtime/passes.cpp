// The passes from a recorded graph to the one that is fused: launch.h, `arithmetic` and `optimise`.
#include <optional>
#include <utility>

#include "compiler/fuse.h"
#include "compiler/halves.h"
#include "compiler/relax.h"
#include "compiler/reroll.h"
#include "compiler/simplify.h"
#include "compiler/unroll.h"
#include "runtime/launch.h"

namespace onepass::runtime {

using ir::Graph;
using ir::NodeId;

namespace {

void check(const Graph& graph, const char* pass) {
#ifndef NDEBUG
  ir::verify(graph, pass);
#else
  static_cast<void>(graph), static_cast<void>(pass);
#endif
}

}  // namespace

Graph arithmetic(Graph graph, const Relax& relaxations) {
  if (relaxations != Relax{}) graph = compiler::relax(graph, relaxations);
  check(graph, "relax");
  graph = compiler::shorten_halves(std::move(graph));
  check(graph, "shorten_halves");
  return graph;
}

Graph interpreted(const Graph& recorded, const Relax& relaxations) { return ir::prune(arithmetic(ir::prune(recorded), relaxations)); }

// Passes keep the places like outputs.
Graph optimise(const Graph& recorded, const LaunchOptions& options, std::vector<NodeId>& places) {
  Graph graph = ir::prune(recorded);
  places = ir::places_of(graph);
  const std::size_t results = graph.outputs.size();
  graph.outputs.insert(graph.outputs.end(), places.begin(), places.end());
  graph.output_names.resize(graph.output_names.empty() ? 0 : graph.outputs.size());
  check(graph, "prune");
  graph = arithmetic(std::move(graph), options.relax);
  graph = compiler::simplify(graph);
  check(graph, "simplify");
  graph = ir::prune(std::move(graph));
  if (!options.unfused) {  // which runs one kernel for each operator that the program has
    if (std::optional<Graph> rerolled = compiler::reroll(graph)) {
      graph = *std::move(rerolled);
      check(graph, "reroll");
    }
    if (std::optional<Graph> unrolled = compiler::unroll(graph)) {
      graph = ir::prune(*std::move(unrolled));
      check(graph, "unroll");
    }
  }
  places.assign(graph.outputs.begin() + static_cast<std::ptrdiff_t>(results), graph.outputs.end());
  graph.outputs.resize(results);
  graph.output_names.resize(std::min(graph.output_names.size(), results));
  graph = compiler::copy_results(std::move(graph));
  check(graph, "copy of results");
  return graph;
}

}  // namespace onepass::runtime
