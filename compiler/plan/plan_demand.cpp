// Finds the values that a group computes and their maps, from the group outputs back to the loads.
#include "compiler/plan/planner.h"

namespace onepass::compiler {

bool Planner::reduces_nothing(NodeId id) const {
  const Op op = graph_[id].op;
  return (ir::is_sum(op) || op == Op::ReduceProd) && graph_.elements(graph_.operand(id, 0)) == 0;
}

void Planner::demand(std::priority_queue<NodeId>& queue, NodeId id, std::uint32_t map) {
  const Op op = graph_[id].op;
  if (op == Op::Constant || op == Op::Slot) map = 0;  // the same value at every index
  auto& list = demands_[id];
  if (list.empty()) queue.push(id);
  for (const Demand& d : list)
    if (d.map == map) return;
  list.push_back({map, 0});
}

void Planner::build() {
  wanted_ = Wanted::Nothing;
  expressions_ = {};
  maps_ = {};
  guards_ = {};
  quotients_.clear();
  bounds_.clear();
  demands_.clear();
  visited_.clear();
  root_maps_.clear();
  position_of_.clear();
  guards_({});
  maps_({0});  // map 0 is the map of a scalar

  std::priority_queue<NodeId> queue;
  for (const std::size_t r : roots_)
    for (std::int64_t phase = 0; phase < phases(); ++phase) {
      const std::uint32_t map = map_of_root(r, phase);
      if (wanted_ != Wanted::Nothing) return;
      root_maps_.push_back(map);
      demand(queue, partition_.groups[group_].roots[r], map);
    }
  while (!queue.empty()) {
    const NodeId id = queue.top();
    queue.pop();
    visited_.push_back(id);
    share(id);
    const Op op = graph_[id].op;
    if (in_memory(id) || ir::is_source(op) || reduces_nothing(id)) continue;
    DemandList& demands = demands_[id];  // the reference stays valid when demands of other nodes are added
    for (std::size_t i = 0; i < demands.size(); ++i) {
      if (demands[i].like != kNone) continue;
      const std::uint32_t map = demands[i].map;
      if (op == Op::Piecewise || op == Op::Pad) {
        std::vector<std::uint32_t> maps = pieces_of(id, map);
        if (wanted_ != Wanted::Nothing) return;
        for (std::size_t k = 0; k < maps.size(); ++k)
          if (maps[k] != kNone) demand(queue, graph_.operand(id, static_cast<int>(k)), maps[k]);
        demands[i].piece_maps = std::move(maps);
        continue;
      }
      std::uint32_t operand_map = map;
      if (op == Op::Gather || op == Op::ScatterAdd) {
        index_by_data(queue, id, i);
        continue;
      }
      if (ir::is_view(op)) {
        operand_map = compose(id, map);
        if (wanted_ != Wanted::Nothing) return;
      } else if (ir::is_reduction(op)) {
        const NodeId from = graph_.operand(id, 0);
        if (graph_.elements(from) == graph_.elements(id)) {  // over axes of extent 1
          std::vector<std::uint32_t> axes = maps_[map], out;
          std::size_t k = 0;
          const List reduced = graph_.attributes(id);
          for (std::size_t a = 0; a < graph_.shape(from).size(); ++a)
            out.push_back(std::binary_search(reduced.begin(), reduced.end(), static_cast<std::int64_t>(a)) ? expressions_(Expression{})
                                                                                                           : axes[k++]);
          out.push_back(axes.back());
          operand_map = maps_(out);
        } else {
          std::vector<std::uint32_t> axes = axes_of_operand(from);
          axes.push_back(0);
          operand_map = maps_(axes);
        }
      }
      demands[i].operand_map = operand_map;
      for (std::int64_t o : graph_.operands(id)) demand(queue, static_cast<NodeId>(o), operand_map);
    }
  }
}

void Planner::index_by_data(std::priority_queue<NodeId>& queue, NodeId id, std::size_t i) {
  const std::uint32_t map = demands_[id][i].map;
  const NodeId x = graph_.operand(id, 0);
  if (graph_[id].op == Op::ScatterAdd && partition_.groups[group_].starts) return demand(queue, x, map);
  if (graph_.elements(x) == 0) return;  // every index is out of bounds; a separate kernel reports it
  const std::uint32_t data = at_places(id, map);
  demands_[id][i].data = data;
  demand(queue, graph_.operand(id, 1), map);
  demand(queue, graph_[id].op == Op::Gather ? x : graph_.operand(id, 2), graph_[id].op == Op::Gather ? data : map);
}

void Planner::share(NodeId id) {
  DemandList& all = demands_[id];
  if (guards_.size() == 1) return;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<std::uint32_t>& mine = maps_[all[i].map];
    if (mine.back() == 0) continue;
    for (std::size_t k = 0; k < all.size() && all[i].like == kNone; ++k) {
      const std::vector<std::uint32_t>& theirs = maps_[all[k].map];
      if (k == i || all[k].like != kNone || !std::equal(mine.begin(), mine.end() - 1, theirs.begin(), theirs.end() - 1)) continue;
      if (includes(guards_[mine.back()], guards_[theirs.back()])) all[i].like = static_cast<std::uint32_t>(k);
    }
  }
  for (Demand& d : all)
    while (d.like != kNone && all[d.like].like != kNone) d.like = all[d.like].like;
}

bool Planner::includes(const std::vector<std::uint32_t>& more, const std::vector<std::uint32_t>& fewer) const {
  for (std::size_t f = 0; f < fewer.size(); f += 2) {
    const Expression& wide = expressions_[fewer[f]];
    bool found = false;
    for (std::size_t m = 0; m < more.size() && !found; m += 2) {
      const Expression& narrow = expressions_[more[m]];
      const std::int64_t later = wide.offset - narrow.offset;  // distance between the two starts
      found = narrow.terms == wide.terms && later >= 0 && bounds_[more[m + 1]] + later <= bounds_[fewer[f + 1]];
    }
    if (!found) return false;
  }
  return more != fewer;
}

Planner::Demand& Planner::demand_of(NodeId id, std::uint32_t map) {
  const Op op = graph_[id].op;
  if (op == Op::Constant || op == Op::Slot) map = 0;
  DemandList& all = demands_[id];
  for (Demand& d : all)
    if (d.map == map) return d.like == kNone ? d : all[d.like];
  throw InternalError("plan: a required value is missing");
}

}  // namespace onepass::compiler
