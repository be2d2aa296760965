// Recordings that differ only in lengths: results taken from a shape-generic analysis equal the passes' results, with equal bits for new
// lengths. Also lists programs whose passes must run again.
#include "compiler/structure.h"

#include <onepass/onepass.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "compiler/fuse.h"
#include "every_mode.h"
#include "golden.h"
#include "has_codegen.h"
#include "how_long.h"
#include "ir/graph.h"
#include "random_graph.h"
#include "runtime/launch.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array, op::Formula, op::Options, op::f32;
using op::compiler::Partition, op::compiler::Structure;
using op::ir::Graph;

namespace {

struct Analysed {
  Graph recorded, optimised;
  Partition partition;
  std::string text() const { return op::ir::print(optimised) + op::compiler::print(optimised, partition); }
};

// Runs the passes like runtime/launch without a known analysis.
Analysed analysed(Graph recorded, const op::Relax& relax = {}) {
  op::runtime::LaunchOptions options;
  options.relax = relax;
  std::vector<op::ir::NodeId> places;
  Analysed out{std::move(recorded), {}, {}};
  out.optimised = op::compiler::optimize(out.recorded, options.passes(), places);
  const std::vector<op::compiler::Layout> layouts(out.optimised.size());
  out.partition = op::compiler::fuse(out.optimised, {.places = places, .lists = op::compiler::find_lists(out.optimised, layouts)});
  return out;
}
std::shared_ptr<const Structure> structure_of(const Analysed& a, const op::Relax& relax = {}) {
  return Structure::of(a.recorded, a.optimised, a.partition, relax);
}

// Applies the shape-generic analysis to a recording. Returns nothing if it does not fit.
std::optional<Analysed> taken_over(const Structure& structure, const Graph& recorded) {
  const std::optional<op::compiler::Lengths> lengths = structure.lengths_of(recorded);
  if (!lengths) return std::nullopt;
  Analysed out{structure.recorded(*lengths), structure.optimised(*lengths), structure.partition(*lengths)};
  out.recorded.slots = out.optimised.slots = recorded.slots;
  return out;
}

// Replaces every length above 1; equal lengths stay equal.
Graph with_other_lengths(const Graph& graph, std::mt19937_64& random) {
  std::map<std::int64_t, std::int64_t> names;
  return graph.with_extents([&](std::int64_t extent) {
    if (extent <= 1) return extent;
    const auto [it, fresh] = names.try_emplace(extent, 0);
    while (fresh && (it->second <= 1 || std::ranges::count_if(names, [&](const auto& n) { return n.second == it->second; }) > 1))
      it->second = static_cast<std::int64_t>(random() % (random() % 2 ? 5000 : 20));
    return it->second;
  });
}

// Returns an explanation without the tiers of kernels, which depend on time.
std::string without_tiers(const std::string& explanation) {
  std::string out;
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("  compiled")) out += line.substr(0, line.find(';')) + "\n";
  return out;
}

Options without_recording_again(op::Mode mode = op::Mode::adaptive) {
  Options o;
  o.mode = mode;
  o.check_recording = false;
  return o;
}

}  // namespace

TEST_CASE("structure: results taken from golden functions equal those of the passes", "[structure][random]") {
  std::mt19937_64 random(3);
  int taken = 0;
  for (const Golden& golden : kGolden) {
    const auto draw = [&] {
      Extents extents;
      for (const char c : letters_of(golden)) extents[c] = static_cast<std::int64_t>(2 + random() % (random() % 2 ? 400 : 12));
      return extents;
    };
    const Analysed first = analysed(graph_of(golden, draw()));
    const std::shared_ptr<const Structure> structure = structure_of(first);
    for (int i = 0; structure && i < 20; ++i) {
      const Analysed fresh = analysed(graph_of(golden, draw()));
      const std::optional<Analysed> known = taken_over(*structure, fresh.recorded);
      if (!known) continue;  // two lengths happen to be equal
      ++taken;
      INFO(golden.name);
      op::ir::verify(known->optimised, "a structure");
      CHECK(known->text() == fresh.text());
      CHECK(op::ir::print(known->recorded) == op::ir::print(fresh.recorded));
    }
  }
  CHECK(taken > 150);
}

TEST_CASE("structure: random graphs too, with and without relaxations", "[structure][random]") {
  const int rounds = op::test::rounds(400, 20'000);
  int taken = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    RandomGraphOptions drawn;
    drawn.max_rank = 3;
    drawn.max_elements = 100'000;
    const bool views = seed % 2 != 0;
    if (!views) drawn.allow = [](op::ir::Op o) { return !op::ir::is_view(o) || o == op::ir::Op::Broadcast || o == op::ir::Op::Permute; };
    const op::Relax relax{.contract = seed % 3 == 1, .reassociate = seed % 3 == 1, .approximate = seed % 3 == 2};
    const Analysed first = analysed(random_graph(static_cast<std::uint64_t>(seed), drawn), relax);
    const std::shared_ptr<const Structure> structure = structure_of(first, relax);
    if (!structure) continue;
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Analysed fresh = analysed(with_other_lengths(first.recorded, random), relax);
    const std::optional<Analysed> known = taken_over(*structure, fresh.recorded);
    if (!known) continue;  // a sum over few elements
    ++taken;
    INFO("seed " << seed << "\n" << op::ir::print(first.recorded));
    CHECK(known->text() == fresh.text());
    CHECK(op::ir::print(known->recorded) == op::ir::print(fresh.recorded));
  }
  CHECK(taken > rounds / 8);
}

TEST_CASE("structure: small lengths, and lengths that are equal in only one recording, need another analysis", "[structure]") {
  const auto recorded = [](std::int64_t n, std::int64_t m, std::int64_t k) {
    return optimised("x*w + sum(y)", {{"x", {n, m}}, {"w", {m}}, {"y", {k}}});
  };
  const std::shared_ptr<const Structure> structure = structure_of(analysed(recorded(100, 200, 300)));
  REQUIRE(structure);
  const auto takes = [&](const Graph& graph) { return structure->lengths_of(graph).has_value(); };
  CHECK(takes(recorded(300, 100, 200)));
  CHECK(takes(recorded(2, 5, 1'000'000)));
  CHECK(!takes(recorded(17, 17, 1'000'000)));
  CHECK(!takes(recorded(100, 200, 8)));  // a sum over few elements is unrolled
  CHECK(!takes(recorded(100, 1, 300)));
  CHECK(!takes(recorded(0, 200, 300)));
  CHECK(!takes(optimised("x*w - sum(y)", {{"x", {100, 200}}, {"w", {200}}, {"y", {300}}})));
  CHECK(!takes(optimised("x*w + sum(y)", {{"x", {100, 200}}, {"w", {200}}, {"y", {300}}}, op::f64)));
  // Values repeated in short rows are computed once for each row, in the kernel that reads them.
  const auto repeated = [](std::int64_t columns) { return optimised("x + exp(c)", {{"x", {300, columns}}, {"c", {300, 1}}}); };
  const std::shared_ptr<const Structure> of_rows = structure_of(analysed(repeated(100)));
  REQUIRE(of_rows);
  CHECK(of_rows->lengths_of(repeated(9)));
  CHECK(!of_rows->lengths_of(repeated(8)));
  CHECK(!structure_of(analysed(repeated(8))));
}

TEST_CASE("structure: no analysis is kept if passes compute with lengths", "[structure]") {
  const auto has = [](const char* formula, std::int64_t n = 100, op::Relax relax = {}) {
    return structure_of(analysed(optimised(formula, {{"x", {n, 3}}, {"y", {n, 50}}}), relax), relax) != nullptr;
  };
  CHECK(has("y - max(y, axis=-1, keepdims=true)"));
  CHECK(has("cumsum(y, axis=0)*y"));
  CHECK(has("matmul(transpose(y), y)"));
  CHECK(!has("reshape(y, [100*50])*2"));
  CHECK(!has("y[1:]*2"));
  CHECK(!has("concat([y, y*2], 0)"));
  CHECK(!has("take(y, cast(x[:, 0], i64), axis=0)"));
  CHECK(!has("sum(x, axis=-1)"));  // unrolled, if no larger value is computed from it
  CHECK(has("sum(y*y, axis=-1)"));
  CHECK(!has("sum(y*y, axis=-1)", 100, {.contract = true}));  // an fma, if no larger value is computed from it
}

TEST_CASE("structure: a hundred new shapes run the passes once, and have the bits of a new function") {
  if (!op::test::has_codegen()) return;
  std::string long_chain = "t0 = x*1.5 + b\n";
  for (int i = 0; i < 120; ++i) {
    const char* const steps[] = {"t{}*0.75", "t{} + x", "maximum(t{}, b)", "abs(t{}) - 0.5"};
    long_chain += fmt::format("t{} = {}\n", i + 1, fmt::format(fmt::runtime(steps[i % 4]), i));
  }
  const std::string formulas[] = {"0.5*x*(1 + erf(x*0.70710678)) + b*0.1",
                                  "u = exp(x - max(x, axis=-1, keepdims=true)); u/sum(u, axis=-1, keepdims=true)*b", "x*b - mean(x*x)",
                                  long_chain + "t120 - max(t120, axis=-1, keepdims=true)"};
  for (const std::string& text : formulas) {
    const Formula f = op::formula(text, without_recording_again());
    int shapes = 0;
    for (std::int64_t n = 2; n < 102; ++n, ++shapes) {
      const std::int64_t m = 2 * n + 100;
      const NamedArrays inputs{{"x", random_array({n, m}, f32, static_cast<std::uint64_t>(n))}, {"b", random_array({m})}};
      const Array y = run_formula(f, inputs)[0];
      if (n % 10 != 2) continue;
      const Formula fresh = op::formula(text, without_recording_again(op::Mode::reference));
      CHECK(bytes_of(y) == bytes_of(run_formula(fresh, inputs)[0]));
      if (shapes == 0) continue;                   // the first explanation includes a compile
      const Formula analysed = op::formula(text);  // finds the kernels and keeps the passes' results
      run_formula(analysed, inputs);
      CHECK(without_tiers(f.explain()) == without_tiers(analysed.explain()));
      CHECK(f.last_graph() == analysed.last_graph());
    }
    INFO(text);
    CHECK(f.stats().recordings == shapes);
    CHECK(f.stats().analysed == 1);
    f.reset();
    run_formula(f, {{"x", random_array({30, 40})}, {"b", random_array({40})}});
    CHECK(f.stats().analysed == 2);
  }
}

TEST_CASE("structure: equal columns, of which simplify keeps two, in any number") {
  if (!op::test::has_codegen()) return;
  const auto text = "sum(broadcast_to(x[:, none], [size(x), size(b)]), axis=0) + b";
  const Formula f = op::formula(text, without_recording_again());
  const auto reference = op::formula(text, without_recording_again(op::Mode::unfused));
  for (const std::int64_t k : {2, 7, 3, 2, 1, 40})
    for (const std::int64_t n : {300, 2, 20}) {
      const NamedArrays inputs{{"x", random_array({n})}, {"b", random_array({k})}};
      CHECK(bytes_of(run_formula(f, inputs)[0]) == bytes_of(run_formula(reference, inputs)[0]));
    }
}

TEST_CASE("structure: numbers, scalar parameters and layouts belong to each call") {
  if (!op::test::has_codegen()) return;
  const auto text = "(x - mean(x))*a + size(x)";
  const auto g = op::formula(text, without_recording_again());
  const auto reference = op::formula(text, without_recording_again(op::Mode::reference));
  for (std::int64_t n = 20; n < 60; ++n) {
    const Array whole = random_array({2 * n, n + 40}, f32, static_cast<std::uint64_t>(n));
    for (const Array& x : {whole, whole.slice(0, 0, n), whole.slice(1, 3, n + 40).transpose()}) {
      const Array a = Array::full({}, static_cast<float>(n), f32);
      CHECK(bytes_of(g({{"x", x}, {"a", a}})[0]) == bytes_of(reference({{"x", x}, {"a", a}})[0]));
    }
  }
  CHECK(g.stats().analysed <= 2);  // one analysis for two different lengths, one for two equal lengths
}
