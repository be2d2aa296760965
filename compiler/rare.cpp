// rare: see rare.h.
#include "compiler/rare.h"

#include "onepass/error.h"

namespace onepass::compiler {

using ir::Op;

BehindRare::BehindRare(const ir::Graph& g) {
  constexpr ir::NodeId kUnseen = ir::kNoNode - 1;
  rare.assign(g.size(), kUnseen);
  for (ir::NodeId id = 0; id < g.size(); ++id)
    if (g[id].op == Op::Rare) first.try_emplace(g.operand(id, 0), id);
  for (ir::NodeId id : g.outputs) rare[id] = ir::kNoNode;
  for (ir::NodeId id = g.size(); id-- > 0;) {
    if (rare[id] == kUnseen || g[id].op == Op::Input) rare[id] = ir::kNoNode;
    for (std::size_t i = 0; i < g.operands(id).size(); ++i) {
      const ir::NodeId o = g.operand(id, static_cast<int>(i));
      const ir::NodeId mine = g[id].op == Op::Rare && i == 1 ? first.at(g.operand(id, 0)) : rare[id];
      rare[o] = rare[o] == kUnseen || rare[o] == mine ? mine : ir::kNoNode;
    }
  }
}

std::vector<ir::NodeId> BehindRare::together(const ir::Graph& g, ir::NodeId id) const {
  std::vector<ir::NodeId> out;
  for (ir::NodeId other = id; other < g.size(); ++other) {
    if (g[other].op != Op::Rare || g.operand(other, 0) != g.operand(id, 0)) continue;
    if (rare[other] != rare[id] || g.operand(other, 1) > id || g.operand(other, 2) > id)
      throw InternalError("emit: an unlikely branch precedes the operands of another branch with the same condition");
    out.push_back(other);
  }
  return out;
}

}  // namespace onepass::compiler
