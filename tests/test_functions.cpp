// Composite operators: values, types and derivatives, as formulas evaluated by the reference.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/formula.h"
#include "ir/reference.h"

using namespace onepass;
using namespace onepass::compiler;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

// An array of doubles. Inputs x and y of the formula are f64.
struct Array {
  std::vector<std::int64_t> shape;
  Values values;
};
std::vector<ir::Buffer> evaluated(const std::string& text, const std::vector<std::pair<std::string, Array>>& arrays) {
  const language::Program program = language::parse(text, "f");
  std::vector<FormulaInput> inputs;
  std::vector<ir::ArrayView> views;
  for (const std::string& name : signature_of(program).inputs)
    for (const auto& [given, array] : arrays) {
      if (given != name) continue;
      FormulaInput input;
      input.dtype = DType::F64;
      input.shape = array.shape;
      inputs.push_back(input);
      views.push_back({DType::F64, array.values.data(), array.shape});
    }
  Recorder recorder;
  record_formula(recorder, program, inputs);
  ir::verify(recorder.graph, "record");
  std::vector<std::uint64_t> slots;
  for (const auto& slot : recorder.graph.slots) slots.push_back(slot.bits);
  return ir::evaluate(recorder.graph, views, slots);
}
Values doubles(const ir::Buffer& b) {
  Values out;
  if (b.dtype == DType::F64)
    for (double v : b.as<double>()) out.push_back(v);
  else if (b.dtype == DType::F32)
    for (float v : b.as<float>()) out.push_back(static_cast<double>(v));
  else if (b.dtype == DType::I32)
    for (std::int32_t v : b.as<std::int32_t>()) out.push_back(static_cast<double>(v));
  else if (b.dtype == DType::I64)
    for (std::int64_t v : b.as<std::int64_t>()) out.push_back(static_cast<double>(v));
  else
    for (std::byte v : b.bytes) out.push_back(static_cast<double>(v));
  return out;
}
Values of(const std::string& text, const Values& x) {
  return doubles(evaluated(text, {{"x", {{static_cast<std::int64_t>(x.size())}, x}}})[0]);
}
bool close(double a, double b) { return (a != a && b != b) || a == b || std::fabs(a - b) <= 4e-15 * std::max(1.0, std::fabs(b)); }
void check(const std::string& text, const Values& x, const Values& expected) {
  const Values got = of(text, x);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO(text << ", result " << i << ": " << got[i] << ", not " << expected[i]);
    CHECK(close(got[i], expected[i]));
  }
}
// Checks d sum(f)/dx at each x.
void check_slope(const std::string& f, const Values& x, const Values& expected) { check("grad(sum(" + f + "), [x])", x, expected); }

double normal_part(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

TEST_CASE("functions: activations have the right values", "[functions]") {
  const Values x{-30, -3.5, -3, -1, -0.25, 0, 0.5, 1, 2.75, 3, 6, 7, 40, kNaN};
  const auto each = [&](const char* text, auto&& f) {
    Values expected;
    for (double v : x) expected.push_back(f(v));
    check(text, x, expected);
  };
  const auto clip = [](double v, double lo, double hi) { return v != v ? v : std::min(std::max(v, lo), hi); };
  each("relu(x)", [](double v) { return v <= 0 ? 0 : v; });
  each("relu6(x)", [&](double v) { return clip(v, 0, 6); });
  each("hardtanh(x)", [&](double v) { return clip(v, -1, 1); });
  each("hardtanh(x, lo=-2, hi=0.5)", [&](double v) { return clip(v, -2, 0.5); });
  each("hardsigmoid(x)", [&](double v) { return clip(v + 3, 0, 6) / 6; });
  each("hardswish(x)", [&](double v) { return v * clip(v + 3, 0, 6) / 6; });
  each("leaky_relu(x)", [](double v) { return v > 0 ? v : 0.01 * v; });
  each("leaky_relu(x, 0.2)", [](double v) { return v > 0 ? v : 0.2 * v; });
  each("elu(x)", [](double v) { return v > 0 ? v : std::expm1(v); });
  each("elu(x, alpha=0.5)", [](double v) { return v > 0 ? v : 0.5 * std::expm1(v); });
  each("celu(x, 2)", [](double v) { return v > 0 ? v : 2 * std::expm1(v / 2); });
  each("selu(x)", [](double v) { return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v)); });
  each("gelu(x)", [](double v) { return v * normal_part(v); });
  each("gelu_tanh(x)", [](double v) { return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); });
  each("silu(x)", [](double v) { return v / (1 + std::exp(-v)); });
  each("softplus(x)", [](double v) { return v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v)); });
  each("mish(x)", [](double v) { return v * std::tanh(v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v))); });
  each("softsign(x)", [](double v) { return v / (1 + std::fabs(v)); });
}

TEST_CASE("functions: derivatives at kinks are as the language defines", "[functions]") {
  check_slope("relu(x)", {-1, -0.0, 0, 1}, {0, 0, 0, 1});
  check_slope("relu6(x)", {-1, 0, 3, 6, 7}, {0, 0, 1, 0, 0});
  check_slope("hardtanh(x)", {-2, -1, 0, 1, 2}, {0, 0, 1, 0, 0});
  check_slope("hardsigmoid(x)", {-4, -3, 0, 3, 4}, {0, 0, 1.0 / 6, 0, 0});
  check_slope("hardswish(x)", {-4, -3, 0, 3, 4}, {0, 0, 0.5, 1, 1});
  check_slope("leaky_relu(x)", {-1, 2}, {0.01, 1});
  check_slope("elu(x)", {-1, 800}, {std::exp(-1.0), 1});  // expm1(800) is infinite, but not selected
  check_slope("celu(x, 2)", {-1, 2000}, {std::exp(-0.5), 1});
  check_slope("softplus(x)", {-1, 0, 1, -800, 800}, {1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(-1.0)), 0, 1});
  check_slope("silu(x)", {0}, {0.5});
  check_slope("gelu(x)", {0, 1}, {0.5, normal_part(1) + std::exp(-0.5) * 0.3989422804014327});
  for (const char* f : {"norm(x)", "std(x)"}) check_slope(f, {0, 0, 0}, {0, 0, 0});
  check_slope("norm(x)", {3, 4}, {0.6, 0.8});
  check_slope("std(x)", {1, 3}, {-0.5, 0.5});
  check_slope("hypot(x, 0*x)", {0, -2}, {0, -1});
  check_slope("prod(x)", {2, 3, 4}, {12, 8, 6});
  check_slope("prod(x)", {0, 3, 4}, {12, 0, 0});
  check_slope("prod(x)", {0, 3, 0}, {0, 0, 0});
}

TEST_CASE("functions: reductions", "[functions]") {
  const std::vector<std::pair<std::string, Array>> x{{"x", {{2, 3}, {1, 0, 5, -2, 4, 7}}}};
  const auto values = [&](const char* text) { return doubles(evaluated(text, x)[0]); };
  CHECK(values("min(x)") == Values{-2});
  CHECK(values("min(x, axis=1)") == Values{0, -2});
  CHECK(values("prod(x, axis=0)") == Values{-2, 0, 35});
  CHECK(values("any(x > 6, axis=1)") == Values{0, 1});
  CHECK(values("all(x, axis=0)") == Values{1, 0, 1});
  CHECK(values("all(x > -3)") == Values{1});
  CHECK(values("count_nonzero(x, axis=1)") == Values{2, 3});
  CHECK(values("var(x)") == Values{values("mean((x - mean(x))*(x - mean(x)))")[0]});
  CHECK(values("var(x, axis=1, ddof=1)") == Values{7, 21});
  CHECK(values("var(x, axis=0, ddof=5)") == Values{kInfinity, kInfinity, kInfinity});
  CHECK(values("var(x, axis=1, ddof=-9223372036854775808)") ==
        Values{14 / 0x1p63, 42 / 0x1p63});  // the count is clamped to the largest i64
  CHECK(values("std(x, axis=1, ddof=1)") == Values{std::sqrt(7.0), std::sqrt(21.0)});
  CHECK(values("norm(x, axis=-1)") == Values{std::sqrt(26.0), std::sqrt(69.0)});
  check("logsumexp(x)", {0, 0}, {std::log(2.0)});
  check("logsumexp(x)", {1000, 1000}, {1000 + std::log(2.0)});
  check("logsumexp(x)", {-kInfinity, -kInfinity}, {-kInfinity});
  check("logsumexp(x)", {kInfinity, 1}, {kInfinity});
  check("logsumexp(x)", {kNaN, 1}, {kNaN});
  check_slope("logsumexp(x)", {1, 1, 1, 1}, {0.25, 0.25, 0.25, 0.25});
  const auto shape = [&](const char* text) { return evaluated(text, x)[0].shape; };
  for (const char* f : {"min", "prod", "any", "all", "argmax", "argmin", "count_nonzero", "var", "std", "norm", "logsumexp"}) {
    INFO(f);
    CHECK(shape((std::string(f) + "(x, axis=1)").c_str()) == std::vector<std::int64_t>{2});
    CHECK(shape((std::string(f) + "(x, axis=-1, keepdims=true)").c_str()) == std::vector<std::int64_t>{2, 1});
    CHECK(shape((std::string(f) + "(x)").c_str()).empty());
  }
}

TEST_CASE("functions: reductions over no elements", "[functions]") {
  check("any(x)", {}, {0});
  check("all(x)", {}, {1});
  check("prod(x)", {}, {1});
  check("count_nonzero(x)", {}, {0});
  check("logsumexp(x)", {}, {-kInfinity});
  check("var(x)", {}, {kNaN});
  check("norm(x)", {}, {0});
  CHECK_THROWS_AS(of("min(x)", {}), Error);
  CHECK_THROWS_AS(of("argmax(x)", {}), Error);
}

TEST_CASE("functions: variance and stddev are var and std", "[functions]") {
  for (const auto& [one, other] :
       {std::pair{"variance(x)", "var(x)"}, {"stddev(x)", "std(x)"}, {"stddev(x, axis=0, ddof=1)", "std(x, 0, 1)"}})
    CHECK(of(one, {1, 2, 4, 8}) == of(other, {1, 2, 4, 8}));
}

TEST_CASE("functions: argmax and argmin select the first of equal values and the first NaN", "[functions]") {
  check("argmax(x)", {1, 3, 3, 2}, {1});
  check("argmin(x)", {1, 3, 1, 2}, {0});
  check("argmax(x)", {-0.0, 0.0}, {0});  // equal
  check("argmin(x)", {0.0, -0.0}, {0});
  check("argmax(x)", {5, kNaN, kInfinity, kNaN}, {1});
  check("argmin(x)", {kInfinity, kNaN, -kInfinity}, {1});
  check("argmax(x)", {-kInfinity, -kInfinity}, {0});
  const std::vector<std::pair<std::string, Array>> x{{"x", {{2, 3, 2}, {1, 9, 2, 7, 9, 3, 4, 4, 8, 1, 0, 8}}}};
  const auto values = [&](const char* text) { return doubles(evaluated(text, x)[0]); };
  CHECK(values("argmax(x)") == Values{1});
  CHECK(values("argmax(x, axis=0)") == Values{1, 0, 1, 0, 0, 1});
  CHECK(values("argmax(x, axis=1)") == Values{2, 0, 1, 2});
  CHECK(values("argmin(x, axis=-1, keepdims=true)") == Values{0, 0, 1, 0, 1, 0});
  CHECK(values("argmax(x, axis=[1, 2])") == Values{1, 2});
  CHECK(values("argmax(x, axis=[0, 2])") == Values{1, 2, 0});
  CHECK(values("argmax(x[0, 0, 0])") == Values{0});
  CHECK(values("argmax(x > 3, axis=1)") == Values{2, 0, 0, 0});
}

TEST_CASE("functions: batch_norm and mse", "[functions]") {
  const std::vector<std::pair<std::string, Array>> arrays{{"x", {{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}},
                                                          {"m", {{2}, {1, 2}}},
                                                          {"v", {{2}, {4, 16}}},
                                                          {"s", {{2}, {2, 3}}},
                                                          {"b", {{2}, {10, 20}}}};
  const auto y = doubles(evaluated("batch_norm(x, m, v, s, b, eps=0)", arrays)[0]);
  CHECK(y == Values{10, 11, 20.75, 21.5, 14, 15, 23.75, 24.5});
  CHECK(doubles(evaluated("batch_norm(x, m, v, eps=0, axis=-1)", arrays)[0]) == Values{0, 0, 1, 0.5, 2, 1, 3, 1.5});
  CHECK_THROWS_AS(evaluated("batch_norm(x, sum(x), v, x[0, :, 0:1])", arrays), Error);
  check("mse(x, 1)", {0, 3}, {2.5});
}

TEST_CASE("functions: a literal takes the tensor's type, and literals by themselves stay literals", "[functions]") {
  const auto type = [](const char* text) { return evaluated(text, {})[0].dtype; };
  for (const char* text :
       {"mse(ones([2]), 1)", "mse(2, ones([2]))", "elu(ones([2]), 2)", "leaky_relu(ones([2]), 1)", "hardtanh(ones([2]), 0, 1)", "gelu(2)",
        "softplus(ones([2], i32))", "pow(ones([2]), 2.5)", "pow(3, ones([2]))", "var(ones([2], i32))", "mse(ones([2], i32), 1)"}) {
    INFO(text);
    CHECK(type(text) == f32);
  }
  for (const char* text : {"mse(ones([2], f64), 1)", "sigmoid(ones([2], i64))", "full([2], 1, f64) * gelu(2)"}) {
    INFO(text);
    CHECK(type(text) == f64);
  }
  CHECK(type("relu6(ones([2], i32))") == i32);
  CHECK(type("ones([2], i32) ** 3") == i32);
  CHECK(type("ones([2], bool) ** 3") == i64);
  CHECK(type("fmod(ones([2], i16), 3)") == i16);
  CHECK(type("prod(ones([2], i16))") == i64);
}

TEST_CASE("functions: powers", "[functions]") {
  check("x ** 0.5", {0, 4, -1, kInfinity}, {0, 2, kNaN, kInfinity});
  check("2 ** x", {-1, 0, 10}, {0.5, 1, 1024});
  check("x ** -2", {2, -4}, {0.25, 0.0625});
  check("pow(x, x)", {0, 3}, {1, 27});
  check("cast(x, i64) ** cast(x, i64)", {-3, -1, 0, 5, 21}, {0, -1, 1, 3125, static_cast<double>(-1595931050845505211LL)});
  check("cast(x, i32) ** 5", {-3, 1000}, {-243, -1530494976});
  check("3 ** 4 + 0*x", {1}, {81});
}
