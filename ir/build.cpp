// Expressions over a graph under construction. See build.h.
#include "ir/build.h"

#include <array>
#include <atomic>
#include <mutex>

#include "ir/expand.h"
#include "onepass/error.h"

namespace onepass::ir {

Expr constant_like(Expr like, double value) {
  return {like.graph(), like.graph().constant(like.dtype(), like.shape(), bits_of(like.dtype(), value))};
}

Expr constant_bits(Expr like, std::uint64_t bits) { return {like.graph(), like.graph().constant(like.dtype(), like.shape(), bits)}; }

Expr apply(Op op, DType dtype, std::initializer_list<Expr> operands) {
  std::int64_t ids[3];
  std::size_t n = 0;
  for (const Expr& e : operands) ids[n++] = e.id();
  Graph& g = operands.begin()->graph();
  // where's condition may have another dtype, but all operands have one shape
  return {g, g.add(Node{op, dtype, operands.begin()->shape(), g.intern(List(ids, n)), 0, 0})};
}

Expr apply(Op op, std::initializer_list<Expr> operands) {
  DType types[3], out{};
  std::size_t n = 0;
  for (const Expr& e : operands) types[n++] = e.dtype();
  if (!result_dtype(op, std::span(types, n), out))
    throw InternalError("build: " + std::string(info(op).text) + " does not accept these types");
  return apply(op, out, operands);
}

namespace {
template <int kArity, class F> Expr call_expansion(F* expand, const std::array<Expr, 3>& x) {
  if constexpr (kArity == 1) return expand(x[0]);
  else if constexpr (kArity == 2) return expand(x[0], x[1]);
  else return expand(x[0], x[1], x[2]);
}
}  // namespace

const Graph& expansion(Op op, DType dtype) {
  // Graphs are made once and never destroyed. A second thread that loses the race discards its copy.
  static std::array<std::array<std::atomic<const Graph*>, kDTypeCount>, kOpCount> made{};
  auto& place = made[static_cast<std::size_t>(op)][static_cast<std::size_t>(dtype)];
  if (const Graph* g = place.load(std::memory_order_acquire)) return *g;
  auto graph = std::make_unique<Graph>();
  std::array<Expr, 3> x;
  static constexpr const char* names[3] = {"a", "b", "c"};
  for (int i = 0; i < info(op).arity; ++i) x[static_cast<std::size_t>(i)] = Expr(*graph, graph->add_input(names[i], dtype, {}));
  Expr y;
  switch (op) {
#define EXPANDED(id, arity, text, types, expand, ...) \
  case Op::id: y = call_expansion<arity>(expand, x); break;
#include "ir/ops.def"
    default: throw InternalError("expansion: " + std::string(info(op).text) + " is a primitive");
  }
  graph->outputs = {y.id()};
  auto* pruned = new Graph(prune(*graph));
  const Graph* expected = nullptr;
  if (!place.compare_exchange_strong(expected, pruned, std::memory_order_acq_rel)) {
    delete pruned;
    return *expected;
  }
  return *pruned;
}

}  // namespace onepass::ir
