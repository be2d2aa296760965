// The random graph generator, and the shrinker on an artificial bug.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <vector>

#include "ir/reference.h"
#include "ir/verify.h"
#include "onepass/error.h"
#include "random_graph.h"

using namespace onepass;
using namespace onepass::ir;
using namespace onepass::test;
using Catch::Matchers::Contains;

TEST_CASE("random graphs: they are equal for equal seeds, valid, printable and run by the reference", "[random]") {
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Graph g = random_graph(seed);
    INFO("seed " << seed << "\n" << print(g));
    REQUIRE(print(random_graph(seed)) == print(g));
    changed += print(random_graph(seed + 1)) != print(g);
    REQUIRE(!find_violation(g));
    REQUIRE(print(parse_graph(print(g))) == print(g));
    const Arguments plain = random_arguments(g, seed), strided = random_arguments(g, seed, true);
    const std::vector<Buffer> once = evaluate(g, plain.views), again = evaluate(parse_graph(print(g)), plain.views);
    REQUIRE(equals_bitwise(once, again));
    REQUIRE(once.size() == g.outputs.size());
    REQUIRE_NOTHROW(evaluate(g, strided.views));
  }
  CHECK(changed == 400);
}

TEST_CASE("random graphs: strided arguments and contiguous copies give the same results", "[random]") {
  for (std::uint64_t seed = 1000; seed < 1150; ++seed) {
    const Graph g = random_graph(seed);
    const Arguments strided = random_arguments(g, seed, true);
    std::vector<Buffer> copies;
    for (std::size_t i = 0; i < g.inputs.size(); ++i) {
      Graph identity;
      const ArrayView& x = strided.views[i];
      identity.outputs = {identity.add_input("x", x.dtype, x.shape)};
      copies.push_back(evaluate(identity, std::vector{x})[0]);
    }
    std::vector<ArrayView> contiguous;
    for (const Buffer& b : copies) contiguous.push_back(b.view());
    std::string what;
    INFO("seed " << seed << "\n" << print(g));
    REQUIRE((equals_bitwise(evaluate(g, strided.views), evaluate(g, contiguous), &what) || what.empty()));
  }
}

TEST_CASE("random graphs: every operator, type, rank and empty shapes occur", "[random]") {
  RandomGraphOptions options;
  options.products = true;
  std::set<Op> ops;
  std::set<DType> dtypes;
  std::set<std::size_t> ranks;
  bool empty = false, negative_step = false;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Graph g = random_graph(seed, options);
    for (NodeId id = 0; id < g.size(); ++id) {
      ops.insert(g[id].op);
      dtypes.insert(g[id].dtype);
      ranks.insert(g.shape(id).size());
      empty |= g.elements(id) == 0;
      if (g[id].op == Op::Slice && !g.attributes(id).empty()) negative_step |= g.attributes(id).back() < 0;
    }
  }
  for (int op = 0; op < kOpCount; ++op) {
    INFO(info(static_cast<Op>(op)).text);
    CHECK((ops.contains(static_cast<Op>(op)) || is_routine(static_cast<Op>(op)) || (info(static_cast<Op>(op)).traits & kPartial)));
  }
  CHECK(dtypes.size() == kDTypeCount);
  for (std::size_t rank = 0; rank <= 8; ++rank) CHECK(ranks.contains(rank));
  CHECK(empty);
  CHECK(negative_step);
}

TEST_CASE("random graphs: options are respected", "[random]") {
  const RandomGraphOptions options{
      .max_rank = 2, .max_elements = 50, .zero_sizes = false, .reductions = false, .dtypes = {f64}, .allow = [](Op op) {
        return op == Op::Add || op == Op::Permute || op == Op::Mul;
      }};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph g = random_graph(seed, options);
    for (NodeId id = 0; id < g.size(); ++id) {
      INFO(print(g));
      REQUIRE(!is_reduction(g[id].op));
      REQUIRE(g[id].dtype == f64);
      REQUIRE(g.elements(id) > 0);
      REQUIRE(g.elements(id) <= 50);
      REQUIRE(g.shape(id).size() <= 2);
    }
  }
}

namespace {
struct TwoEqualNodes {};

// Evaluates the graph with a fault: negative steps of a slice count as positive if an elementwise operator computed the operand.
std::vector<Buffer> run_with_bug(const Graph& graph, const Arguments& arguments) {
  Graph broken;
  broken.slots = graph.slots;
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node node = graph[id];
    std::vector<std::int64_t> attributes(graph.attributes(id).begin(), graph.attributes(id).end());
    const std::vector<std::int64_t> shape(graph.shape(id).begin(), graph.shape(id).end());
    if (node.op == Op::Input) {
      broken.add_input(graph.inputs[node.bits].name, node.dtype, shape);
      continue;
    }
    const std::size_t rank = shape.size();
    if (node.op == Op::Slice && is_elementwise(graph[graph.operand(id, 0)].op))
      for (std::size_t i = 0; i < rank; ++i)
        if (attributes[rank + i] < 0 && shape[i] > 1) attributes[i] += (shape[i] - 1) * attributes[rank + i], attributes[rank + i] *= -1;
    node.shape = broken.intern(shape);
    node.operands = broken.intern(graph.operands(id));
    node.attributes = broken.intern(attributes);
    const NodeId made = broken.add(node);
    if (made != id) throw TwoEqualNodes();
  }
  broken.outputs = graph.outputs;
  return evaluate(broken, arguments.views);
}
}  // namespace

TEST_CASE("shrink: an artificial bug is reduced to its essentials", "[random]") {
  int found = 0, few = 0;
  const RandomGraphOptions options{
      .dtypes = {f32, f64, i32, i64, u8, boolean},  // types with few equal values, so that the fault changes results
      .allow = [](Op op) {                          // excludes operators whose extents or indices the shrinker keeps
        return op != Op::Piecewise && op != Op::Place && op != Op::Gather && op != Op::ScatterAdd;
      }};
  for (std::uint64_t seed = 0; seed < 2000 && found < 5; ++seed) {
    const Graph g = random_graph(seed, options);
    const auto fails = [&](const Graph& candidate) {
      const Arguments arguments = random_arguments(candidate, seed);
      try {
        return !equals_bitwise(evaluate(candidate, arguments.views), run_with_bug(candidate, arguments));
      } catch (const TwoEqualNodes&) { return false; }
    };
    if (!fails(g)) continue;
    ++found;
    const Graph small = shrink(g, fails);
    INFO(failure_report(seed, small));
    CHECK(fails(small));
    CHECK(!find_violation(small));
    CHECK(small.size() <= 5);  // the operands, the operator, the slice
    CHECK(small.outputs.size() == 1);
    CHECK(small[small.outputs[0]].op == Op::Slice);
    std::int64_t largest = 0;
    for (NodeId id = 0; id < small.size(); ++id) largest = std::max(largest, small.elements(id));
    CHECK(largest <= 64);
    few += largest <= 16;
    const Graph again = parse_graph(print(small));  // the text of the report reproduces the failure
    CHECK(fails(again));
    CHECK_THAT(failure_report(seed, small), Contains("seed " + std::to_string(seed)) && Contains("= slice %"));
  }
  CHECK(found == 5);
  CHECK(few >= 4);  // except for values that are equal almost everywhere, such as x/x
}

TEST_CASE("shrink: a predicate on the graph only, one that throws, and one that is always true", "[random]") {
  const Graph g = random_graph(77, {.nodes = 60});
  const auto has = [](const Graph& graph, auto&& test) {
    for (NodeId id = 0; id < graph.size(); ++id)
      if (test(graph[id])) return true;
    return false;
  };
  const Op op = g[g.size() / 2].op;
  const Graph small = shrink(g, [&](const Graph& c) { return has(c, [&](const Node& n) { return n.op == op; }); });
  INFO(print(small));
  CHECK(small.size() <= 4);
  CHECK(has(small, [&](const Node& n) { return n.op == op; }));
  CHECK(shrink(g, [](const Graph&) -> bool { throw std::runtime_error("crash"); }).size() <= 1);
  CHECK(print(shrink(g, [&](const Graph& c) { return print(c) == print(g); })) == print(g));
}

TEST_CASE("equals_bitwise: NaNs are equal, zeros of different signs are not", "[random]") {
  const auto of = [](std::vector<float> v) {
    Buffer b{f32, {static_cast<std::int64_t>(v.size())}, std::vector<std::byte>(v.size() * 4)};
    std::memcpy(b.bytes.data(), v.data(), b.bytes.size());
    return b;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::string what;
  CHECK(equals_bitwise(of({1, nan}), of({1, -nan})));
  CHECK(!equals_bitwise(of({1, 0}), of({1, -0.0f}), &what));
  CHECK_THAT(what, Contains("element 1: 0 (0x0) and -0 (0x80000000)"));
  CHECK(!equals_bitwise(of({1, nan}), of({1, std::numeric_limits<float>::infinity()})));
  CHECK(!equals_bitwise(of({1}), of({1, 1})));
  CHECK(!equals_bitwise(std::vector{of({1})}, std::vector{of({2})}, &what));
  CHECK_THAT(what, Contains("output 0, element 0"));
}
