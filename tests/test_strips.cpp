// Kernels that run in strips: selection, buffers, and the reference's bits.
#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/strips.h"
#include "golden.h"
#include "has_codegen.h"
#include "how_long.h"
#include "random_graph.h"
#include "runtime/launch.h"

using namespace onepass;
using namespace onepass::test;

namespace {

using Inputs = std::vector<std::pair<std::string, compiler::Shape>>;

// Returns a processor with small caches, so that small arrays do not stay in them.
compiler::Target small_caches() {
  compiler::Target target = compiler::Target::host();
  target.l2_bytes = 128 << 10;
  target.llc_bytes = 512 << 10;
  return target;
}

struct Made {
  ir::Graph graph;
  runtime::PlanData plan;
  runtime::PlanReport report;
};

Made made(std::string_view formula, const Inputs& inputs, int threads = 2, bool unfused = false) {
  Made m;
  m.graph = m.report.recorded = optimised(formula, inputs);
  for (const ir::Input& input : m.graph.inputs) m.plan.inputs.push_back(runtime::array_plan(input.dtype, m.graph.list(input.shape), {}));
  for (const ir::NodeId id : m.graph.outputs) {
    m.plan.outputs.push_back(runtime::array_plan(m.graph[id].dtype, m.graph.shape(id), {}));
    m.plan.redirected.push_back(false);
  }
  m.plan.targets = m.plan.outputs;
  runtime::LaunchOptions options;
  options.threads = threads;
  options.unfused = unfused;
  options.aligned_stores = false;  // results are in vectors
  runtime::make_launches(m.plan, m.report, small_caches(), options);
  return m;
}

// Runs the plan. Returns the first difference from the reference interpreter's results, or an empty string.
std::string difference(Made& m) {
  runtime::attach_kernels(m.plan, m.report, small_caches(), {});
  const Arguments arguments = random_arguments(m.graph, 5);
  const std::vector<ir::Buffer> expected = ir::evaluate(m.graph, arguments.views);
  std::vector<ir::Buffer> got = expected;
  std::vector<std::byte*> bases;
  for (const ir::ArrayView& view : arguments.views) bases.push_back(static_cast<std::byte*>(const_cast<void*>(view.data)));
  for (ir::Buffer& b : got) {
    std::memset(b.bytes.data(), 0xA5, b.bytes.size());
    bases.push_back(b.bytes.data());
  }
  bases.resize(bases.size() + runtime::kMoreBases);
  for (int call = 0; call < 2; ++call)
    if (!runtime::run(m.plan, bases.data(), nullptr)) return "a bad index";
  std::string what;
  for (std::size_t k = 0; k < got.size(); ++k)
    if (!equals_bitwise(got[k], expected[k], &what)) return m.graph.output_names[k] + ": " + what;
  return {};
}

// Returns the kernels that run in strips: "0-2 4-5".
std::string strips_of(const Made& m) {
  std::string out;
  for (const compiler::Strips& s : m.report.strips)
    out += (out.empty() ? "" : " ") + std::to_string(s.first) + "-" + std::to_string(s.first + s.members.size() - 1);
  return out;
}

constexpr std::string_view kAttention = "s = q @ transpose(k, [0, 2, 1])*0.25; p = softmax(s, 2); y = p @ v";
const Inputs kHeads = {{"q", {3, 500, 16}}, {"k", {3, 200, 16}}, {"v", {3, 200, 24}}};

}  // namespace

TEST_CASE("strips: values passed between kernels row by row are never arrays", "[strips]") {
  const Inputs matrices = {{"x", {1900, 20}}, {"w", {20, 150}}, {"v", {150, 70}}};
  const auto [formula, inputs, strips] = GENERATE_COPY(table<std::string_view, Inputs, std::string>({
      {"softmax(x @ w, 1)", matrices, "0-1"},
      {"tanh(x @ w) @ v", matrices, "0-1"},
      {"softmax(tanh(x @ w) @ v, 1)", matrices, "0-2"},
      {"cumsum(softmax(y, 1), 1)", {{"y", {1700, 130}}}, "0-1"},
      {kAttention, kHeads, "0-2"},
      // windows within a row, which a bounds check limits to the row
      {R"(y = correlate(correlate(x, k, "same", [0]), k, "same", [1]); out = where(abs(x - y) > 0.1, x - y, 0))",
       {{"x", {1700, 130}}, {"k", {5}}},
       "0-1"},
  }));
  INFO(formula);
  Made m = made(formula, inputs);
  CHECK(strips_of(m) == strips);
  CHECK(m.plan.workspace_bytes == 0);
  CHECK(m.report.strips.at(0).strips() > 2);
  if (has_codegen()) CHECK(difference(m) == "");
}

TEST_CASE("strips: any number of rows, any number of threads", "[strips]") {
  if (!has_codegen()) return;
  for (const std::int64_t rows : {1300, 1357, 1733, 2000})
    for (const int threads : {1, 2, 3}) {
      INFO(rows << " rows, " << threads << " threads");
      Made m = made("softmax(x @ w, 1)", {{"x", {rows, 9}}, {"w", {9, 210}}}, threads);
      CHECK(difference(m) == "");
      Made heads = made(kAttention, {{"q", {2, rows, 8}}, {"k", {2, 70, 8}}, {"v", {2, 70, 33}}}, threads);
      CHECK(strips_of(m) == "0-1");
      CHECK(strips_of(heads) == "0-2");
      CHECK(difference(heads) == "");
    }
}

TEST_CASE("strips: steps cover every task of every kernel once", "[strips]") {
  const Made m = made(kAttention, kHeads);
  REQUIRE(m.plan.launches.size() == 3);
  const compiler::Strips& strips = m.report.strips.at(0);
  CHECK(strips.outer * strips.inner == 1500);
  std::int64_t bytes = 0;
  for (const compiler::StripValue& v : strips.values) bytes += v.row_bytes() * strips.rows;
  CHECK(bytes <= strips.bytes);
  for (const runtime::Launch& launch : m.plan.launches) {
    CHECK(launch.steps == strips.strips());
    CHECK(launch.group == m.plan.launches[0].group);
    CHECK(launch.items_of_outer * strips.outer == launch.items);
    CHECK((strips.per_outer() - 1) * launch.items_of_strip < launch.items_of_outer);
    CHECK(strips.per_outer() * launch.items_of_strip >= launch.items_of_outer);
  }
}

TEST_CASE("strips: a value read in other rows or by other kernels is an array", "[strips]") {
  const Inputs matrices = {{"x", {1900, 20}}, {"w", {20, 150}}};
  Made columns = made("a = tanh(x @ w); b = transpose(a) @ a", matrices);  // each row of b reads all of a
  CHECK(strips_of(columns) == "");
  Made result = made("a = x @ w; b = softmax(x @ w, 1)", matrices);  // a is a result
  CHECK(strips_of(result) == "");
  Made later = made("a = softmax(x @ w, 1); b = cumsum(a, 1); c = sum(cumsum(a, 0), 1)", matrices);
  for (const compiler::Strips& s : later.report.strips)
    for (const compiler::StripValue& v : s.values)
      for (std::size_t k = 0; k < later.report.kernels.size(); ++k) {
        if (k >= s.first && k < s.first + s.members.size()) continue;
        const std::vector<ir::NodeId>& read = later.report.kernels[k].planned.numbers.buffers;
        CHECK(std::find(read.begin(), read.end(), v.node) == read.end());
      }
  CHECK(strips_of(made("softmax(x @ w, 1)", matrices, 2, true)) == "");
  if (!has_codegen()) return;
  CHECK(difference(columns) == "");
  CHECK(difference(result) == "");
  CHECK(difference(later) == "");
}

// A pendulum with damping c, and the gradient of its energy after 64 steps.
constexpr std::string_view kPendulum = R"(fn step(x, v, c) { w = v - 0.1*sin(x) - c*v; return x + 0.1*w, w }
x1, v1 = iterate(step, [x, v], 64, c=c); h = v1*v1 - cos(x1); a, b, g = vjp(h, [x, v, c], d))";

TEST_CASE("strips: a loop with state and its gradient run for some elements at a time", "[strips]") {
  for (const auto& [elements, threads] : {std::pair<std::int64_t, int>{2048, 1}, {2049, 3}}) {
    INFO(elements << " elements, " << threads << " threads");
    const Inputs inputs = {{"x", {elements}}, {"v", {elements}}, {"c", {elements}}, {"d", {elements}}};
    Made m = made(kPendulum, inputs, threads);
    REQUIRE(m.report.strips.size() == 1);
    const compiler::Strips& strips = m.report.strips[0];
    CHECK(strips.inner == elements);
    CHECK(std::ranges::any_of(strips.values, [n = elements](const compiler::StripValue& v) { return v.apart == n && v.length == 64; }));
    CHECK(m.plan.workspace_bytes < 1000);
    const bool is_short = has_sanitizer() && !is_full_run();  // the reference takes 20 seconds
    if (has_codegen() && (threads > 1 || !is_short)) CHECK(difference(m) == "");
  }
}

TEST_CASE("strips: states of steps that others read are arrays", "[strips]") {
  const Inputs inputs = {{"x", {2000}}, {"v", {2000}}, {"c", {2000}}, {"d", {64, 2000}}};
  // The derivative of the path reads its rows, its mean all elements of a step.
  Made m = made(R"(fn step(x, v, i, c) { w = v - 0.1*sin(x) - c*v; return x + 0.1*w, w, x }
x1, v1, path = scan(step, [x, v], 64, c=c); m = mean(path, 1); a, g = vjp(path, [x, c], d))",
                inputs);
  for (const compiler::Strips& s : m.report.strips)
    for (const compiler::StripValue& v : s.values)
      for (std::size_t k = 0; k < m.report.kernels.size(); ++k) {
        if (k >= s.first && k < s.first + s.members.size()) continue;
        const std::vector<ir::NodeId>& read = m.report.kernels[k].planned.numbers.buffers;
        CHECK(std::ranges::find(read, v.node) == read.end());
      }
  if (has_codegen()) CHECK(difference(m) == "");
}

TEST_CASE("strips: further subdomains and array lists of a kernel are readers, too", "[strips]") {
  const Inputs matrices = {{"x", {1900, 20}}, {"z", {1900, 20}}, {"w", {20, 150}}};
  for (const std::string_view last : {"c = concat([b, a], 0)*2", "c = concat([b*2, a[:10]*2, a[10:]*2], 0)",
                                      "c = stack([b, b + 1, a], 0)*2", "c = sum(stack([sin(b), sin(a), sin(b + 1)], 0), 0)"}) {
    INFO(last);
    Made m = made("a = x @ w; b = z @ w; s = softmax(a, 1); " + std::string(last), matrices);
    if (has_codegen()) CHECK(difference(m) == "");
  }
}

TEST_CASE("strips: no strips if the values between kernels stay in the caches", "[strips]") {
  CHECK(strips_of(made("softmax(x @ w, 1)", {{"x", {100, 20}}, {"w", {20, 50}}})) == "");
}

TEST_CASE("strips: gradients through a batch of matrices", "[strips]") {
  if (!has_codegen()) return;
  Made m = made("s = q @ transpose(k, [0, 2, 1])*0.25; p = softmax(s, 2); y = tanh(p @ v); a, b, c = vjp(y, [q, k, v], d)",
                {{"q", {3, 500, 16}}, {"k", {3, 200, 16}}, {"v", {3, 200, 24}}, {"d", {3, 500, 24}}});
  CHECK(strips_of(m) != "");
  CHECK(difference(m) == "");
}

TEST_CASE("strips: long chains of kernels are several strips", "[strips]") {
  std::string formula = "y0 = tanh(x @ w)";
  for (int k = 1; k < 100; ++k) formula += "; y" + std::to_string(k) + " = tanh(y" + std::to_string(k - 1) + " @ w)";
  Made m = made(formula + "; y99", {{"x", {3000, 30}}, {"w", {30, 30}}});
  REQUIRE(m.report.strips.size() == 2);
  CHECK(m.report.strips[0].members.size() == 64);
  if (has_codegen()) CHECK(difference(m) == "");
}
