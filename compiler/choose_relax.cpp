// See choose_relax.h.
#include "compiler/choose_relax.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/fuse.h"
#include "compiler/halves.h"
#include "compiler/relax.h"
#include "compiler/reroll.h"
#include "compiler/simplify.h"
#include "compiler/unroll.h"

namespace onepass::compiler {

using ir::Graph;
using ir::NodeId;

namespace {

// Runs the passes of pipeline.cpp up to the graph that fuse receives.
Graph passed(const Graph& recorded, const Relax& relaxations) {
  Graph graph = simplify(shorten_halves(relaxations == Relax{} ? recorded : relax(recorded, relaxations)));
  graph = ir::prune(std::move(graph));
  if (std::optional<Graph> rerolled = reroll(graph)) graph = *std::move(rerolled);
  if (std::optional<Graph> unrolled = unroll(graph)) graph = ir::prune(*std::move(unrolled));
  return copy_results(std::move(graph));
}

// Returns the amount of data that kernels store and load to pass values on to other kernels. Each value weighs 1024 for each axis longer
// than 1, so exact lengths have no effect, as in the passes.
double moved_between_kernels(const Graph& recorded, const Relax& relaxations) {
  const Graph graph = passed(recorded, relaxations);
  const Partition partition = fuse(graph);
  const auto weight = [&](NodeId id) {
    // a transposed copy of an input is small compared with the values computed from it
    if (is_stored(graph, id)) return 1.0;
    double one = 1;
    for (const std::int64_t extent : graph.shape(id))
      if (extent > 1) one *= 1024;
    return one;
  };
  double all = 0;
  std::vector<std::uint32_t> seen(graph.size(), 0);  // the last group that visited the node, plus 1
  std::vector<NodeId> open;
  for (std::uint32_t group = 0; group < partition.groups.size(); ++group) {
    open = partition.groups[group].roots;
    for (const NodeId id : open)
      if (std::ranges::find(graph.outputs, id) == graph.outputs.end()) all += weight(id);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (std::exchange(seen[id], group + 1) == group + 1) continue;
      if (!partition.loads(graph, id, group)) {
        for (const std::int64_t o : partition.operands(graph, id, group)) open.push_back(static_cast<NodeId>(o));
      } else if (graph[id].op != ir::Op::Input) {
        all += weight(id);
      }
    }
  }
  return all;
}

}  // namespace

Relax choose_relax(const Graph& recorded, const Relax& allowed) {
  constexpr std::size_t kMostNodes = 4096;  // larger programs skip this analysis
  if (allowed == Relax{}) return allowed;
  const Graph graph = ir::prune(recorded);
  if (graph.size() > kMostNodes) return allowed;
  bool reduces = false;  // without reductions no relaxation changes fusion
  for (NodeId id = 0; id < graph.size() && !reduces; ++id) reduces = ir::is_reduction(graph[id].op);
  if (!reduces) return allowed;
  const double strict = moved_between_kernels(graph, {});
  if (moved_between_kernels(graph, allowed) <= strict) return allowed;
  for (bool Relax::*const one : {&Relax::contract, &Relax::reassociate, &Relax::approximate}) {
    Relax fewer = allowed;
    if (!std::exchange(fewer.*one, false)) continue;
    if (moved_between_kernels(graph, fewer) <= strict) return fewer;
  }
  return {};
}

}  // namespace onepass::compiler
