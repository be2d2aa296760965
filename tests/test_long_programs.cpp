// Programs that a loop of the host writes out, step by step. Their compiled size grows linearly with the loop. Arrays assembled from single
// values have the same bits in every mode.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "compiler/lists.h"
#include "compiler/plan/plan.h"
#include "every_mode.h"
#include "golden.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

// Returns a variance recursion over the squares of a series, and the series' likelihood: statements `h0 = …`, `l1 = …`, …, ending with
// l{steps}.
std::string likelihood(int steps) {
  std::string text = "h0 = w/(1.0 - a - b); l0 = 0.0*w";
  for (int t = 0; t < steps; ++t) {
    if (t) text += fmt::format("; h{0} = w + a*r[{1}]*r[{1}] + b*h{1}", t, t - 1);
    text += fmt::format("; l{0} = l{1} + log(h{1}) + r[{1}]*r[{1}]/h{1}", t + 1, t);
  }
  return text;
}

NamedArrays inputs(int steps) {
  return {{"w", Array::full({}, 0.01, f64)},
          {"a", Array::full({}, 0.1, f64)},
          {"b", Array::full({}, 0.8, f64)},
          {"r", random_array({steps}, f64)}};
}

struct Size {
  std::size_t nodes = 0, groups = 0, kernels = 0, statements = 0;
};

Size planned(int steps, bool with_gradient) {
  const std::string last = fmt::format("l{}", steps);
  const std::string value = with_gradient ? "; loss = 1.0*" + last + "; g = grad(" + last + ", [r])" : "; y = 1.0*" + last;
  const ir::Graph graph = optimised(likelihood(steps) + value, {{"w", {}}, {"a", {}}, {"b", {}}, {"r", {steps}}}, f64);
  const std::vector<Layout> layouts(graph.size());
  FuseOptions options{.lists = find_lists(graph, layouts)};
  find_assembled(graph, layouts, options.lists);
  const Partition partition = fuse(graph, options);
  Size size{.nodes = graph.size(), .groups = partition.groups.size()};
  for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
    for (const Planned& p : plan(graph, partition, g, layouts)) ++size.kernels, size.statements += p.nest.body.size();
  return size;
}

}  // namespace

TEST_CASE("long programs: kernels and statements grow linearly with the loop", "[long]") {
  const bool with_gradient = GENERATE(false, true);
  const Size once = planned(200, with_gradient), often = planned(1600, with_gradient);
  INFO(once.nodes << " nodes, " << once.kernels << " kernels, " << once.statements << " statements; then " << often.nodes << ", "
                  << often.kernels << ", " << often.statements);
  CHECK(often.nodes <= 9 * once.nodes);
  CHECK(often.statements <= 9 * once.statements);
  CHECK(often.statements <= 3 * often.nodes);  // almost nothing is computed twice
  CHECK(often.kernels <= 2 + often.statements / 100);
}

TEST_CASE("long programs: an assembled array has equal bits in every mode", "[long]") {
  const int steps = 40;
  const std::string text = likelihood(steps);
  // The array is used as a result, has an element without a derivative, is read by other kernels, is used twice, or has operands of several
  // types.
  same_everywhere(text + fmt::format("; g = grad(l{}, [r]); g", steps), inputs(steps));
  same_everywhere(text + fmt::format("; g = grad(l{}, [r]); g", steps - 3), inputs(steps));
  same_everywhere(text + fmt::format("; g = grad(l{}, [r]); r - 0.1*g + sum(g)", steps), inputs(steps));
  same_everywhere(text + fmt::format("; g = grad(l{}, [r]); flip(g)[1:] * g[:-1] + h7", steps), inputs(steps));
  same_everywhere(text + "; stack([h0, h1, h2, h3, h4, h5, h6, h7, h8, h9, h1, h2, l5, 1.5, r[3], sum(r)], 0)", inputs(steps));
  same_everywhere(text + "; s = stack([h0, h1, h2, h3, h4, h5, h6, h7, h8, h9], 0); take(s, cast(abs(r)*9, i64), 0) + s[2]", inputs(steps));
  same_everywhere(text + "; s = reshape(stack([h0, h1, h2, h3, h4, h5, h6, h7, h8, h9], 0), [5, 2]); s @ transpose(s)", inputs(steps));
}

TEST_CASE("long programs: an assembled array is stored into any destination", "[long]") {
  constexpr std::int64_t kSteps = 40;
  const auto step = [](Tensor x, Tensor w) {
    std::vector<Tensor> all;
    Tensor h = w;
    for (std::int64_t t = 0; t < kSteps; ++t) {
      h = h * 0.9 + exp(x[t] * h);
      all.push_back(h);
    }
    const Tensor together = stack(all, 0);
    return std::tuple{together, h, all[3], reshape(together * 2.0, {kSteps / 2, 2})};
  };
  const Array x = random_array({kSteps}, f64), w = Array::full({}, 0.25, f64);
  auto [expected, last, third, doubled] = compile(step, {.mode = Mode::reference})(x, w);
  auto f = compile(step);
  for (int call = 0; call < 3; ++call) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Array wide = Array::full({2 * kSteps}, nan, f64), scalar = Array::full({}, nan, f64), other = Array::full({}, nan, f64);
    Array rows = Array::full({kSteps / 2, 2}, nan, f64);
    Array strided = wide.slice(0, 0, 2 * kSteps, 2);
    f.into(strided, scalar, other, rows)(x, w);
    CHECK(strided.contiguous().to_vector<double>() == expected.to_vector<double>());
    CHECK(scalar.item<double>() == last.item<double>());
    CHECK(other.item<double>() == third.item<double>());
    CHECK(rows.to_vector<double>() == doubled.to_vector<double>());
    for (std::int64_t i = 1; i < 2 * kSteps; i += 2) CHECK(std::isnan(wide.at<double>({i})));
    Array over = Array::from(x.to_vector<double>(), {kSteps});  // overwrites its own operand
    f.into(over, scalar, other, rows)(over, w);
    CHECK(over.to_vector<double>() == expected.to_vector<double>());
  }
}
