// Arrays that are made of numbers, and statistics: what the C++ functions record is what formulas record, the one kernel that they take, error texts,
// equal bits in every mode and for any number of threads. What they compute is compared with NumPy by test_numpy_patterns.py.
#include <onepass/onepass.h>

#include <functional>
#include <string>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "every_mode.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;

TEST_CASE("array functions: C++ functions give what formulas give", "[functions]") {
  const Array x = random_array({5, 7}), v = random_array({7}), w = random_array({7}, f32, 3),
              k = formula("cast(x*3, i32)")({random_array({9})});
  const NamedArrays all = {{"x", x}, {"v", v}, {"w", w}, {"k", k}};
  using F = std::function<Tensor(Tensor, Tensor, Tensor, Tensor)>;
  const std::pair<const char*, F> cases[] = {
      {"arange(7) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(7) * v; }},
      {"arange(1, 8) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(1, 8) * v; }},
      {"arange(7, 0, -1, f64) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(7, 0, -1, f64) * v; }},
      {"linspace(0, 1, 7, endpoint=false) + v", [](Tensor, Tensor v, Tensor, Tensor) { return linspace(0, 1, 7, false) + v; }},
      {"linspace(v[0], w[0], 3)", [](Tensor, Tensor v, Tensor w, Tensor) { return linspace(v[0], w[0], 3); }},
      {"eye(5, 7, -1) + x", [](Tensor x, Tensor, Tensor, Tensor) { return eye(5, 7, -1) + x; }},
      {"eye(4)", [](Tensor, Tensor, Tensor, Tensor) { return eye(4); }},
      {"tri(5, 7, 2, f64) * x", [](Tensor x, Tensor, Tensor, Tensor) { return tri(5, 7, 2, f64) * x; }},
      {"tril(x, 1) - triu(x)", [](Tensor x, Tensor, Tensor, Tensor) { return tril(x, 1) - triu(x); }},
      {"diag(v, -2)", [](Tensor, Tensor v, Tensor, Tensor) { return diag(v, -2); }},
      {"trace(x, 1)", [](Tensor x, Tensor, Tensor, Tensor) { return trace(x, 1); }},
      {"a, b = meshgrid(v, w); out = a - b", [](Tensor, Tensor v, Tensor w, Tensor) { const auto g = meshgrid({v, w}); return g[0] - g[1]; }},
      {"a, b = meshgrid(v, w, indexing=\"ij\"); out = a - b",
       [](Tensor, Tensor v, Tensor w, Tensor) { const auto g = meshgrid({v, w}, "ij"); return g[0] - g[1]; }},
      {"pad(x, [1, 2], [3, 4], mode=\"reflect\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Reflect); }},
      {"pad(x, [1, 2], [3, 4], mode=\"wrap\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Wrap); }},
      {"pad(x, [1, 2], [3, 4], mode=\"edge\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Edge); }},
      {"pad(x, [1, 2], [3, 4], mode=\"symmetric\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Symmetric); }},
      {"nansum(log(x), 0)", [](Tensor x, Tensor, Tensor, Tensor) { return nansum(log(x), 0); }},
      {"nanprod(log(x), 1, keepdims=true)", [](Tensor x, Tensor, Tensor, Tensor) { return nanprod(log(x), 1, true); }},
      {"nanmax(log(x), 0) - nanmin(log(x), 0)", [](Tensor x, Tensor, Tensor, Tensor) { return nanmax(log(x), 0) - nanmin(log(x), 0); }},
      {"nanmean(log(x)) + nanstd(log(x), 0, 1)", [](Tensor x, Tensor, Tensor, Tensor) { return nanmean(log(x)) + nanstd(log(x), 0, 1); }},
      {"nanvar(log(x), 1)", [](Tensor x, Tensor, Tensor, Tensor) { return nanvar(log(x), 1); }},
      {"average(x, 1, v)", [](Tensor x, Tensor v, Tensor, Tensor) { return average(x, 1, v); }},
      {"cov(v, w, ddof=0)", [](Tensor, Tensor v, Tensor w, Tensor) { return cov(v, w, true, 0); }},
      {"corrcoef(x, rowvar=false)", [](Tensor x, Tensor, Tensor, Tensor) { return corrcoef(x, none, false); }},
      {"diff(x, 2, 0, append=0)", [](Tensor x, Tensor, Tensor, Tensor) { return diff(x, 2, 0, none, 0); }},
      {"gradient(x, 0.5, axis=-1, edge_order=2)", [](Tensor x, Tensor, Tensor, Tensor) { return gradient(x, 0.5, -1, 2); }},
      {"trapezoid(x, v)", [](Tensor x, Tensor v, Tensor, Tensor) { return trapezoid(x, v); }},
      {"trapezoid(x, dx=2, axis=0)", [](Tensor x, Tensor, Tensor, Tensor) { return trapezoid(x, none, 2, 0); }},
      {"bincount(abs(k), 5)", [](Tensor, Tensor, Tensor, Tensor k) { return bincount(abs(k), 5); }},
      {"c, d = histogram(v, 4, [-1, 1], weights=w); out = c*d[1:]",
       [](Tensor, Tensor v, Tensor w, Tensor) { const Histogram h = histogram(v, 4, -1, 1, w); return h.counts * h.edges[Range{1, {}}]; }},
      {"c, d = histogram(v, density=true); out = c*d[1:]",
       [](Tensor, Tensor v, Tensor, Tensor) { const Histogram h = histogram(v, 10, none, none, none, true); return h.counts * h.edges[Range{1, {}}]; }},
  };
  for (const auto& [text, f] : cases) {
    INFO(text);
    const Array expected = same_everywhere(text, all);
    const Array got = compile([f = f](Tensor x, Tensor v, Tensor w, Tensor k) { return f(x, v, w, k); })(x, v, w, k);
    CHECK(got.dtype() == expected.dtype());
    CHECK(std::ranges::equal(got.shape(), expected.shape()));
    CHECK(bytes_of(got) == bytes_of(expected));
  }
}

TEST_CASE("array functions: what is made of numbers is not stored", "[functions]") {
  const Array x = random_array({64, 64});
  for (const char* text : {"sum(tril(x) * arange(64), 1)", "x + eye(64) + tri(64)", "linspace(0, 1, 64) * x", "diag(x[0]) + x",
                           "a, b = meshgrid(arange(64), arange(64)); out = x*cast(a + b, f32)"}) {
    const Formula f = formula(text);
    run_formula(f, {{"x", x}});
    INFO(text);
    CHECK(f.stats().kernels == 1);
    CHECK(f.stats().bytes_read <= 64 * 64 * 4 + 64 * 4);
  }
}

TEST_CASE("array functions: by a length or a diagonal that a call brings nothing is compiled", "[functions]") {
  const Formula f = formula("tril(x, k) + arange(x.shape[1])");
  const Array x = random_array({9, 11}), y = random_array({17, 23});
  f({{"x", x}, {"k", 1}});
  const auto compiles = f.stats().compiles;
  for (int k = -3; k < 4; ++k) f({{"x", y}, {"k", k}});
  CHECK(f.stats().compiles == compiles);
}

TEST_CASE("array functions: bad shapes and numbers", "[functions]") {
  const NamedArrays all = {{"x", random_array({5, 7})}, {"v", random_array({7})}, {"s", random_array({})}, {"i", Array::zeros({3}, i32)}};
  const auto says = [&](const char* text, const char* message) {
    INFO(text);
    CHECK_THAT(error_of(text, all), Contains(message));
  };
  says("arange(0, 5, 0)", "arange: the step is 0; it must be another number");
  says("arange(v)", "arange: `start` must be a number, since the length depends on it, not v f32[7]");
  says("arange(0, inf)", "arange: from 0 to inf in steps of 1 is no number of elements");
  says("linspace(v, 1, 3)", "linspace: `start` must be a scalar, not v f32[7]");
  says("linspace(0, 1, -1)", "linspace: -1 elements; the number must be 0 or more");
  says("eye(-1)", "eye: -1 rows and -1 columns; neither may be negative");
  says("tril(v)", "tril: v f32[7] has fewer than two axes");
  says("tril(x, 0.5)", "tril: `k` must be an integer, not 0.5");
  says("diag(x[none])", "must have one axis, to be a diagonal, or two, to take one of");
  says("diag(v, 9223372036854775807)", "diag: with diagonal 9223372036854775807 the result is longer than 64 bits count");
  says("meshgrid(v, x)", "meshgrid: x f32[5, 7] must have at most one axis");
  says("meshgrid(v, v, indexing=\"yx\")", "meshgrid: `indexing` must be \"xy\" or \"ij\", not \"yx\"");
  says("pad(x, [1, 1], [1, 1], mode=\"mirror\")",
       "pad: `mode` must be \"constant\", \"edge\", \"reflect\", \"symmetric\" or \"wrap\", not \"mirror\"");
  says("pad(x, [1, 1], [1, 1], 2, \"edge\")", "pad: mode \"edge\" takes no value");
  says("pad(v[:0], [1], [1], mode=\"wrap\")", "is empty, and mode \"wrap\" repeats its elements");
  says("pad(v, [100000], [0], mode=\"wrap\")", "are too many for mode \"wrap\"; use tile");
  says("average(x, 0, v)", "average: the weights v f32[7] must be shaped like x f32[5, 7], or hold one number for each index");
  says("cov(x[none])", "must have one axis or two");
  says("diff(s)", "diff: s f32[] has no axis");
  says("diff(v, -1)", "diff: -1 times; the number must be 0 or more");
  says("gradient(v[:1])", "has 1 elements; edge_order 1 needs 2 or more");
  says("gradient(v, edge_order=3)", "gradient: `edge_order` must be 1 or 2, not 3");
  says("gradient(x, v, axis=0)", "gradient: the coordinates v f32[7] must be one number for each of the 5 indices along axis 0");
  says("gradient(x, [1, 2, 3])", "gradient: 3 spacings for 2 axes; give one, or one for each");
  says("trapezoid(x, v, 2)", "trapezoid: `x` and `dx` are given; the distances are one or the other");
  says("trapezoid(x, v, axis=0)", "trapezoid: v f32[7] must hold one coordinate for each of the 5 indices along axis 0");
  says("bincount(v, 3)", "bincount: v f32[7] must be a vector of integers");
  says("bincount(i - 1, 3)", "is out of range: axis 0 has extent 3");
  says("histogram(v, 0)", "histogram: 0 bins; there must be 1 or more");
  says("histogram(v, 3, [1])", "histogram: `range` has 1 numbers; it must be [lowest, highest]");
  says("histogram(v, weights=x)", "histogram: the weights x f32[5, 7] must be shaped like v f32[7]");
}

TEST_CASE("array functions: the diagonal of a product of which one operand has both axes", "[functions]") {
  const Array v = random_array({4});
  const std::tuple<const char*, std::vector<std::int64_t>, const char*> cases[] = {{"x @ v", {9, 5, 4}, ""},
                                                                                   {"x @ v", {3, 9, 5, 4}, ", 1, 1, 2"},
                                                                                   {"x @ v", {6, 3, 5, 4}, ", -2, 0, 2"},
                                                                                   {"v @ x", {6, 3, 4, 5}, ", -2, 0, 2"}};
  for (const auto& [product, shape, where] : cases) {
    INFO(product << where);
    const NamedArrays all = {{"x", random_array(shape)}, {"v", v}};
    const Array whole = same_everywhere(product, all);
    const Array expected = same_everywhere(fmt::format("diagonal(m{})", where), {{"m", whole}});
    CHECK(bytes_of(same_everywhere(fmt::format("diagonal({}{})", product, where), all)) == bytes_of(expected));
  }
}
