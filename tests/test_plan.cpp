// Nests: the loops of a program. Lengths and literals are not part of them, so a thousand shapes share one nest.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "compiler/plan/plan.h"
#include "golden.h"
#include "plans_of.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

std::string loops(const char* formula, const std::vector<std::pair<std::string, Shape>>& inputs) {
  std::string out;
  for (const Planned& p : plans_of(optimised(formula, inputs))) {
    static constexpr const char* kKinds[] = {"map", "rows", "lanes"};
    out += fmt::format("{}{}", out.empty() ? "" : "; ", kKinds[static_cast<int>(p.nest.kind)]);
    for (std::uint32_t l = 0; l < p.nest.loops(); ++l)
      out += fmt::format(" {}{}", p.numbers.extents[l], p.nest.reduced_mask() >> l & 1 ? "r" : "");
    out += fmt::format(", {} sweep{}", p.nest.sweeps, p.nest.sweeps == 1 ? "" : "s");
    if (!p.nest.derived.empty()) out += fmt::format(", {} derived", p.nest.derived.size());
  }
  return out;
}

}  // namespace

TEST_CASE("plan: loops are merged, reordered and split as far as shapes allow", "[plan]") {
  CHECK(loops("x*w + b", {{"x", {8, 16, 32, 32}}, {"w", {8, 16, 1, 1}}, {"b", {8, 16, 1, 1}}}) == "map 128 1024, 1 sweep");
  CHECK(loops("x*reshape(w, [8, 16, 1, 1]) + b", {{"x", {8, 16, 32, 32}}, {"w", {8, 16}}, {"b", {32, 32}}}) == "map 128 1024, 1 sweep");
  CHECK(loops("x + y", {{"x", {3, 5, 7}}, {"y", {3, 5, 7}}}) == "map 105, 1 sweep");
  CHECK(loops("sum(x)", {{"x", {3, 5, 7}}}) == "lanes 105r, 1 sweep");
  CHECK(loops("sum(x, axis=0)", {{"x", {3, 5, 7}}}) == "rows 3r 35, 1 sweep");
  CHECK(loops("sum(x, axis=[1, 2])", {{"x", {3, 5, 7}}}) == "lanes 3 35r, 1 sweep");
  CHECK(loops("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", {{"x", {9, 70}}}) ==
        "lanes 9 70r, 3 sweeps");
  CHECK(loops("y = repeat(x, 2, 1); sum(y[:, :-2]*y[:, 1:-1], -1)", {{"x", {90, 70}}}) == "lanes 90 138r, 1 sweep, 2 derived");
  CHECK(loops("transpose(x) + y", {{"x", {9, 70}}, {"y", {70, 9}}}) == "map 70 9, 1 sweep");
  CHECK(loops("reshape(x, [6, 35])*y", {{"x", {210}}, {"y", {6, 35}}}) == "map 210, 1 sweep");
  CHECK(loops("reshape(transpose(x), [6, 4])*y", {{"x", {3, 8}}, {"y", {6, 4}}}).find("derived") != std::string::npos);  // 8x3 read as 6x4
  CHECK(loops("y = x*w + b; dx, dw, db = vjp(y, [x, w, b], d)",
              {{"x", {6, 7, 5, 9}}, {"w", {6, 7, 1, 1}}, {"b", {6, 7, 1, 1}}, {"d", {6, 7, 5, 9}}}) == "lanes 42 45r, 1 sweep");
}

TEST_CASE("plan: short rows are merged although their selection varies by row", "[plan]") {
  const auto differences = [](const Shape& shape, int axis) {  // selects between x and zeros along the axis, at both ends
    Shape edge = shape;
    edge[static_cast<std::size_t>(axis)] = 1;
    const std::string cut = fmt::format("{}1:", axis == 1 ? ":, " : "");
    return loops(
        fmt::format("z = zeros([{0}]); f = x[{1}]*2; concat([f, z], {2}) - concat([z, f], {2})", fmt::join(edge, ", "), cut, axis).c_str(),
        {{"x", shape}});
  };
  CHECK(differences({2048, 2}, 0) == "map 2, 1 sweep; map 4094, 1 sweep");
  CHECK(differences({5, 30, 3}, 1) == "map 5 90, 1 sweep");
  CHECK(differences({4, 9, 64}, 1) == "map 4 576, 1 sweep");
  CHECK(differences({4, 9, 65}, 1) == "map 4 9 65, 1 sweep");  // long rows are checked once
}

TEST_CASE("plan: equal operators on the same elements are computed once, whatever views read them", "[plan]") {
  const auto operators = [](const char* formula, ir::Op op, const Shape& shape) {
    std::int64_t n = 0;
    for (const Planned& p : plans_of(optimised(formula, {{"x", shape}})))
      n += std::ranges::count_if(p.nest.body, [&](const Statement& s) { return s.kind == Statement::Kind::Op && s.op == op; });
    return n;
  };
  CHECK(operators("y = exp(x); y[:, 0]*exp(x[:, 0]) + exp(x[:, 1])", ir::Op::Exp, {2000, 2}) == 2);
  CHECK(operators("y = exp(-x); y[1:, 0] + exp(-x[:-1, 0]) - exp(-x[1:, 0])", ir::Op::Exp, {2000, 2}) == 2);
  CHECK(operators("y = exp(-x); y[1:, 0] + exp(-x[:-1, 0]) - exp(-x[1:, 0])", ir::Op::Neg, {2000, 2}) == 2);
}

TEST_CASE("plan: a thousand shapes of a golden function share one nest for each variant", "[plan][random]") {
  std::mt19937_64 random(3);
  const auto nests = [&](const Golden& golden, std::int64_t shortest) {
    std::set<std::string> keys;
    for (int i = 0; i < 1000; ++i) {
      Extents extents;  // odd lengths, so that no stride is 1 by chance; often equal
      for (const char c : letters_of(golden)) extents[c] = shortest + 2 * static_cast<std::int64_t>(random() % 4);
      std::string key;
      for (const Planned& p : plans_of(graph_of(golden, extents))) key += p.nest.key();
      keys.insert(key);
    }
    return keys.size();
  };
  for (const Golden& golden : kGolden) {
    INFO(golden.name);
    CHECK(nests(golden, 9) == 1);
    // Nests differ for lengths of 1, and a loop of 2 to 8 iterations may become an interleave factor of the nest.
    CHECK(nests(golden, 3) <= 8);
  }
}

TEST_CASE("plan: a literal's value and a slice's start are not in the nest", "[plan]") {
  std::set<std::string> keys;
  for (const char* formula : {"2*x[1:100] + y", "0*x[7:106] + y", "1*x[50:149] + y", "-1*x[3:102] + y", "1e30*x[0:99] + y"})
    keys.insert(plans_of(optimised(formula, {{"x", {150}}, {"y", {99}}})).at(0).nest.key());
  CHECK(keys.size() == 1);
}

TEST_CASE("plan: boxes with steps need no quotient along the elements", "[plan]") {
  for (const auto& [formula, n] : {std::pair<const char*, std::int64_t>{"d = grad(sum(x[1::2]*y), [x]); d", 300},
                                   {"d = grad(sum(x[1::2]*y[:150]), [x]); d", 301},
                                   {"d = grad(sum(x[2::7]*y[:43]), [x]); d", 300},
                                   {"put(x, [2::3], y[:100])", 302}}) {
    INFO(formula);
    const ir::Graph graph = optimised(formula, {{"x", {n}}, {"y", {150}}});
    const std::vector<Planned> planned = plans_of(graph);
    REQUIRE(planned.size() == 1);
    CHECK(planned[0].nest.derived.empty());
    CHECK(planned[0].nest.phases > 1);
  }
  const std::vector<Planned> two = plans_of(optimised("d = grad(sum(x[::2, 1::2]*y), [x]); d", {{"x", {300, 300}}, {"y", {150, 150}}}));
  REQUIRE(two.size() == 1);
  CHECK(two[0].nest.derived.empty());
  CHECK(two[0].numbers.extents.back() == 150);
}

TEST_CASE("plan: flattened values have neither quotients nor predicates of single elements", "[plan]") {
  const std::vector<Planned> pieces = plans_of(optimised("roll(x, 7) + roll(x, -1)", {{"x", {300, 300}}}));
  std::int64_t most = 0;
  for (const Planned& p : pieces) {
    CHECK(p.nest.derived.empty());
    if (p.numbers.extents.back() <= most) continue;
    most = p.numbers.extents.back();
    CHECK(!p.nest.has(Statement::Kind::Guard));
  }
  CHECK(most == 300 * 300 - 8);
}
