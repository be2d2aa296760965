// Values of equal literals are computed once; other values, runs of copies and later calls are not affected.
#include "compiler/join_equal.h"

#include <onepass/onepass.h>

#include <string>

#include <catch2/catch.hpp>

#include "arrays.h"
#include "every_mode.h"
#include "golden.h"
#include "has_codegen.h"
#include "ir/graph.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array, op::Tensor, op::f32;

namespace {

int count(const op::ir::Graph& graph, op::ir::Op wanted) {
  int n = 0;
  for (op::ir::NodeId id = 0; id < graph.size(); ++id) n += graph[id].op == wanted;
  return n;
}

op::ir::Graph joined(
    const char* formula, const std::function<bool(std::uint32_t)>& is_brought = [](std::uint32_t) { return false; }) {
  op::ir::Graph graph = op::compiler::join_equal(optimised(formula, {{"x", {40, 50}}, {"y", {40, 50}}}), is_brought);
  op::ir::verify(graph, "join_equal");
  return graph;
}

}  // namespace

TEST_CASE("join equal: long operators and sums of equal literals are one value", "[join_equal]") {
  using op::ir::Op;
  CHECK(count(joined("exp(x*2.5) + 3*exp(x*2.5)"), Op::Exp) == 1);
  CHECK(count(joined("exp(x*2.5) + 3*exp(x*2.5)"), Op::Mul) == 2);
  CHECK(count(joined("exp(x*2.5) + 3*exp(x*2.25)"), Op::Exp) == 2);
  CHECK(count(joined("exp(x*2.5) + 3*exp(y*2.5)"), Op::Exp) == 2);
  CHECK(count(joined("exp(x*0.0) + 3*exp(x*-0.0)"), Op::Exp) == 2);
  CHECK(count(joined("x*sum(y*0.5 + 1, axis=1, keepdims=true) - sum(y*0.5 + 1, axis=1, keepdims=true)"), Op::ReduceSum) == 1);
  CHECK(count(joined("erf(exp(x*2.5)/3) + erf(exp(x*2.5)/3)*exp(x*2.5)"), Op::Erf) == 1);
  CHECK(count(joined("x*2.5 - y + (x*2.5)*y"), Op::Mul) == 3);  // cheaper to compute than to keep
  // another call may have another value in the second literal
  CHECK(count(joined("exp(x*2.5) + 3*exp(x*2.5)", [](std::uint32_t slot) { return slot == 1; }), Op::Exp) == 2);
  CHECK(count(joined("exp(x*2.5) + 3*exp(x*2.5)", {}), Op::Exp) == 2);
}

TEST_CASE("join equal: a compiled function joins its literals, but not a number that is an argument", "[join_equal]") {
  if (!has_codegen()) return;
  const Array x = random_array({3, 70}, f32, 1);
  const auto f = op::formula("exp(x*2.5) + 3*exp(x*2.5)");
  f({x});
  const std::string graph = f.last_graph();
  CHECK(graph.find("exp") == graph.rfind("exp"));
  const auto scaled = op::compile([](Tensor x, Tensor k) { return exp(x * k) + 3 * exp(x * 2.5); });
  const auto reference = op::compile([](Tensor x, Tensor k) { return exp(x * k) + 3 * exp(x * 2.5); }, {.mode = op::Mode::reference});
  for (const double k : {2.5, 1.5, 2.5}) CHECK(bytes_of(scaled(x, k)) == bytes_of(reference(x, k)));
}

// The literals of a recording may depend on its shapes.
TEST_CASE("join equal: a known plan is not taken over if other literals are equal", "[join_equal]") {
  if (!has_codegen()) return;
  const auto made = [](op::Options options) {
    return op::compile([](Tensor x) { return exp(x * 2.5) + 3 * exp(x * (x.dim(0) < 20 ? 2.5 : 0.01 * static_cast<double>(x.dim(0)))); },
                       options);
  };
  const auto f = made({}), reference = made({.mode = op::Mode::reference});
  std::int64_t analysed = 0;
  for (const std::int64_t n : {10, 11, 30, 31, 12, 250, 32}) {
    const Array x = random_array({n, 70}, f32, static_cast<std::uint64_t>(n));
    INFO(n << " rows");
    CHECK(bytes_of(f(x)) == bytes_of(reference(x)));
    analysed = f.stats().analysed;
  }
  CHECK(analysed == 2);  // with equal literals, and with others
}

// A number that equals a literal when its shape is planned may have another value in the next call.
TEST_CASE("join equal: a plan with joined literals is not taken over where one of them is a number of the call", "[join_equal]") {
  if (!has_codegen()) return;
  const auto made = [](op::Options options) {
    return op::compile([](Tensor x, Tensor k) { return exp(x * 2.5) + 3 * (x.dim(0) < 20 ? exp(x * 2.5) : exp(x * k)); }, options);
  };
  const auto f = made({}), reference = made({.mode = op::Mode::reference});
  for (const std::int64_t n : {10, 30, 30, 11, 31})
    for (const double k : {2.5, 1.5}) {
      const Array x = random_array({n, 70}, f32, static_cast<std::uint64_t>(n));
      INFO(n << " rows, " << k);
      CHECK(bytes_of(f(x, k)) == bytes_of(reference(x, k)));
    }
}
