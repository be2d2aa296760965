// shorten_halves: half-precision values are computed in f32, whose last bits the rounding to a half drops. So shorter expansions are
// accurate enough and save about half of a function's time.
//   erf(x), tanh(x) of f16 or bf16 -> erf_short(x), tanh_short(x): within 4 ULP of f32 (ir/expand_approximate.cpp)
// This is a pass, not an expansion by type, because loop nests have no half types. It runs in every mode, so that all modes give the same
// bits. Left out on purpose: exp, sigmoid, log and rsqrt. Their shorter expansions do not return denormal numbers, and bf16 has the same
// denormal numbers as f32.
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
