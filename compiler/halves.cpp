// shorten_halves: a half is computed in f32, and of the 13 or 16 digits that f32 has more, a function's last two are not worth half its
// time.
//   erf(x), tanh(x) of f16 or bf16 -> erf_short(x), tanh_short(x): within 4 ULP of f32 (ir/expand_approximate.cpp)
// A pass, not an expansion by type, since a Nest knows no halves; in every mode, so that all have the same bits.
// Left out on purpose: exp, sigmoid, log and rsqrt, whose shorter expansions give no denormal numbers, which bf16 has as f32 has them.
#include "compiler/halves.h"

#include "compiler/rewrite.h"

namespace onepass::compiler {

using namespace ir;

namespace {

Op short_form(const Node& node) {
  if (!is_half(node.dtype)) return node.op;
  switch (node.op) {
    case Op::Erf: return Op::ErfShort;
    case Op::Tanh: return Op::TanhShort;
    default: return node.op;
  }
}

}  // namespace

Graph shorten_halves(Graph graph) {
  bool any = false;
  for (NodeId id = 0; id < graph.size() && !any; ++id) any = short_form(graph[id]) != graph[id].op;
  if (!any) return graph;
  return prune(rewrite(graph, [](Graph& out, Node node) -> NodeId {
    node.op = short_form(node);
    return out.add(node);
  }));
}

}  // namespace onepass::compiler
