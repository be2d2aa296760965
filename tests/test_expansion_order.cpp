// The order of an expansion's operators: longest dependency chains first, within the number of registers.
#include "compiler/expansion_order.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <string>

#include "ir/build.h"
#include "ir/ops.h"

using namespace onepass;
using namespace onepass::compiler;
using ir::NodeId;

namespace {

std::vector<NodeId> as_written(const ir::Graph& g) {
  std::vector<NodeId> order(g.size());
  std::iota(order.begin(), order.end(), NodeId{0});
  return order;
}

// Returns the largest number of live values in vector registers. Masks have separate registers.
int most_alive(const ir::Graph& g, const std::vector<NodeId>& order) {
  std::vector<std::size_t> end(g.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const std::int64_t o : g.operands(order[i])) end[static_cast<std::size_t>(o)] = i;
  end[g.outputs[0]] = order.size();
  const auto counts = [&](NodeId id) { return g[id].op != ir::Op::Constant && g[id].dtype != boolean; };
  int alive = 0, most = 0;
  for (NodeId id = 0; id < g.size(); ++id) alive += g[id].op == ir::Op::Input;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!ir::is_elementwise(g[order[i]].op)) continue;
    alive += counts(order[i]);
    for (NodeId id = 0; id < g.size(); ++id) alive -= counts(id) && end[id] == i && id != order[i];
    most = std::max(most, alive);
  }
  return most;
}

// Returns the cycles of this order on a processor that starts at most one operator a cycle, once its operands are complete. Latency is four
// cycles.
int cycles(const ir::Graph& g, const std::vector<NodeId>& order) {
  std::vector<int> there(g.size(), 0);
  int now = 0;
  for (const NodeId id : order) {
    if (!ir::is_elementwise(g[id].op)) continue;
    for (const std::int64_t o : g.operands(id)) now = std::max(now, there[static_cast<std::size_t>(o)]);
    there[id] = now++ + 4;
  }
  return there[g.outputs[0]];
}

}  // namespace

TEST_CASE("expansion order: operands come first, and live values do not exceed the registers or the original order's",
          "[expansion_order]") {
  for (const DType t : {f32, f64})
    for (const RegisterUse use : {RegisterUse{1, 16}, RegisterUse{2, 16}, RegisterUse{2, 32}, RegisterUse{4, 32}, RegisterUse{16, 32}}) {
#define PRIMITIVE(...)
#define EXPANDED(id, ...)                                                                         \
  {                                                                                               \
    INFO(#id);                                                                                    \
    const ir::Graph& g = ir::expansion(ir::Op::id, t);                                            \
    const std::vector<NodeId> order = expansion_order(g, use);                                    \
    std::vector<bool> done(g.size(), false);                                                      \
    for (const NodeId node : order) {                                                             \
      CHECK_FALSE(done[node]);                                                                    \
      for (const std::int64_t o : g.operands(node)) CHECK(done[static_cast<std::size_t>(o)]);     \
      done[node] = true;                                                                          \
    }                                                                                             \
    CHECK(order.size() == g.size());                                                              \
    CHECK(most_alive(g, order) <= std::max(use.all / use.at_once, most_alive(g, as_written(g)))); \
  }
#include "ir/ops.def"
    }
}

TEST_CASE("expansion order: a short chain fills the gaps of a long one", "[expansion_order]") {
  // three operators precede a chain of six operators
  const ir::Graph g = ir::parse_graph(R"(
    %0 = input a : f32[]
    %1 = neg %0 : f32[]
    %2 = add %1, %0 : f32[]
    %3 = mul %2, %0 : f32[]
    %4 = abs %0 : f32[]
    %5 = add %4, %4 : f32[]
    %6 = mul %5, %4 : f32[]
    %7 = sqrt %6 : f32[]
    %8 = add %7, %4 : f32[]
    %9 = mul %8, %3 : f32[]
    return %9)");
  const std::vector<NodeId> order = expansion_order(g, {2, 32});
  CHECK(order == std::vector<NodeId>{0, 4, 1, 5, 2, 6, 3, 7, 8, 9});
  CHECK(cycles(g, order) < cycles(g, as_written(g)));
  CHECK(most_alive(g, expansion_order(g, {16, 32})) <= most_alive(g, as_written(g)));  // two values fit

  for (const DType t : {f32, f64}) {
    const int at_once = t == f32 ? 4 : 2;
    for (const ir::Op op : {ir::Op::Erf, ir::Op::Tanh}) {
      const ir::Graph& expansion = ir::expansion(op, t);
      CHECK(10 * cycles(expansion, expansion_order(expansion, {at_once, 32})) < 9 * cycles(expansion, as_written(expansion)));
    }
    const ir::Graph& rare = ir::expansion(ir::Op::Sin, t);
    CHECK(expansion_order(rare, {at_once, 32}) == as_written(rare));
  }
}
