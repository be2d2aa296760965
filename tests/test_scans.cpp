// Scans: the exact order, equal bits in every mode, thread count and vector width, fusion, and derivatives.
#include <onepass/onepass.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using op::Array;
using op::f16, op::f32, op::f64, op::i32, op::i64;

TEST_CASE("scans: the order of a sum in full", "[scan]") {
  constexpr std::int64_t n = 9001;
  const Array x = random_array({n});
  const std::vector<float> v = x.to_vector<float>();
  std::vector<float> along(n), apart(n);
  float base = -0.0f;
  for (std::int64_t block = 0; block < n; block += 4096) {  // groups of 16 in steps of 1, 2, 4, 8
    float carry = -0.0f;
    for (std::int64_t group = block; group < std::min(n, block + 4096); group += 16) {
      float s[16];
      for (int i = 0; i < 16; ++i) s[i] = group + i < n ? v[static_cast<std::size_t>(group + i)] : -0.0f;
      for (const int d : {1, 2, 4, 8})
        for (int i = 15; i >= d; --i) s[i] = s[i - d] + s[i];
      for (int i = 0; i < 16 && group + i < n; ++i) along[static_cast<std::size_t>(group + i)] = base + (carry + s[i]);
      carry = carry + s[15];
    }
    base = base + carry;
  }
  base = -0.0f;
  float carry = -0.0f;
  for (std::int64_t i = 0; i < n; ++i) {  // groups of one element
    if (i > 0 && i % 4096 == 0) base = base + carry, carry = -0.0f;
    carry = carry + v[static_cast<std::size_t>(i)];
    apart[static_cast<std::size_t>(i)] = base + carry;
  }
  CHECK(same_everywhere("cumsum(x, 0)", {{"x", x}}).to_vector<float>() == along);
  CHECK(along != apart);
  const Array columns = op::formula("stack([x, x*2, x], axis=1)")({x});
  CHECK(same_everywhere("cumsum(x, 0)[:, 2]", {{"x", columns}}).to_vector<float>() == apart);
  // a last axis of extent 1 changes nothing
  CHECK(same_everywhere("cumsum(reshape(x, [-1, 1]), 0)[:, 0]", {{"x", x}}).to_vector<float>() == along);
}

TEST_CASE("scans: all four, along any axis, in both directions, for every type", "[scan]") {
  for (const char* name : {"cumsum", "cumprod", "cummax", "cummin"})
    for (const op::DType type : {f32, f64, f16, op::bf16, i32, i64, op::DType::I8, op::DType::U16, op::boolean})
      for (const char* how : {"0", "1", "-1", "1, reverse=true", "2, reverse=true"}) {
        const std::string formula = std::string(name) + "(x, " + how + ")";
        const Array y = same_everywhere(formula, {{"x", random_array({3, 21, 37}, type)}});
        const bool adds = name[3] == 's' || name[3] == 'p';
        const bool narrow = !op::is_float(type) && op::size_of(type) < 8;
        CHECK(y.dtype() == (adds && narrow ? type == op::DType::U16 ? op::DType::U64 : i64 : type));
      }
  CHECK(same_everywhere("cumsum(x, 0)", {{"x", Array::from({1, 2, 3, 4}, {2, 2})}}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 2, 4, 6});
  CHECK(same_everywhere("cumprod(x, 0, reverse=true)", {{"x", Array::from({1, 2, 3, 4})}}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{24, 24, 12, 4});
}

TEST_CASE("scans: special values, lengths around groups and blocks, empty arrays", "[scan]") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Array x = Array::from({-0.0f, 0.0f, -1.0f, nan, 5.0f, -inf});
  const Array max = same_everywhere("y = cummax(x, 0); where(isnan(y), 7, y)", {{"x", x}});
  CHECK(max.to_vector<float>() == std::vector<float>{-0.0f, 0, 0, 7, 7, 7});
  CHECK(std::signbit(max.to_vector<float>()[0]));
  CHECK(!std::signbit(max.to_vector<float>()[1]));
  for (const std::int64_t n : {0, 1, 2, 15, 16, 17, 255, 4095, 4096, 4097, 8200}) {
    same_everywhere("cumsum(x, 0)", {{"x", random_array({n})}});
    same_everywhere("cumsum(x, 0)", {{"x", random_array({n, 3})}});
    same_everywhere("cumsum(x, 1, reverse=true)", {{"x", random_array({2, n})}});
  }
  CHECK(std::signbit(same_everywhere("cumsum(x, 0)", {{"x", Array::from({-0.0f, -0.0f})}}).to_vector<float>()[1]));
}

TEST_CASE("scans: elementwise code and views before and after are in the same kernel", "[scan]") {
  const Array x = random_array({40, 300}), v = random_array({300});
  const auto one = [&](const std::string& formula) {
    INFO(formula);
    CHECK(kernels(formula, {{"x", x}, {"v", v}}) == 1);
    same_everywhere(formula, {{"x", x}, {"v", v}});
  };
  one("exp(cumsum(x*v, 1)*0.01) + v");
  one("cumsum(x + v, 0)/(1 + abs(v))");
  one("cumsum(x, 1, reverse=true)*v");
  one("cumsum(x*v, 0, reverse=true)");
  one("transpose(cumsum(x*v, 1))");
  one("cumsum(transpose(x*v), 1)");
  one("cumsum(x*v, 1) + cumprod(x, 1) - cummax(v*x, 1)");
  one("cumsum(cumsum(x*v, 1)*x, 1)");
  one("cumsum(x[::2, 5:]*v[5:], 1)");
  one("cumsum(broadcast_to(v, [40, 300]), 0) + x");
  // other loops: materialized, with a reason
  for (const char* formula :
       {"cumsum(x, 1)[:, 1:]*v[1:]", "sum(cumsum(x, 1)*v)", "cumsum(x/sum(x*x, 1, keepdims=true), 1)", "cumsum(x, 1) + cumsum(x, 0)*v",
        "cumsum(pad(x*v, [0, 2], [1, 0]), 1)", "cumsum(concat([x, x*v], 1), 1)", "cumsum(reshape(transpose(x)*v[:, none], [-1]), 0)",
        "cumsum(reshape(x*v, [-1]), 0)", "reshape(cumsum(x*v, 1), [-1])", "cumsum(diagonal(x)*2, 0)"})
    same_everywhere(formula, {{"x", x}, {"v", v}});
}

TEST_CASE("scans: long rows split between threads have the bits of one thread", "[scan]") {
  for (const char* formula : {"cumsum(x*2, 0)", "cumsum(x, 0, reverse=true) + x", "cummax(x, 0)*cumsum(x, 0)", "cumsum(cumsum(x, 0)*x, 0)"})
    for (const std::int64_t n : {100'000, 1'000'003}) same_everywhere(formula, {{"x", random_array({n})}});
  same_everywhere("cumsum(x, 1)", {{"x", random_array({3, 200'001})}});
  same_everywhere("cumsum(x, 1)", {{"x", random_array({2, 300'001}, i32)}});
}

TEST_CASE("scans: derivatives against differences", "[scan]") {
  const auto check = [](const std::string& value, Array x) {
    const op::Formula f = op::formula("sum(" + value + "*w)");
    const Array w = random_array({x.shape().begin(), x.shape().end()}, f64, 5);
    const Array g = same_everywhere("dx = grad(sum(" + value + "*w), [x])", {{"x", x}, {"w", w}});
    const std::vector<double> values = x.to_vector<double>(), slopes = g.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = [&](double h) {
        std::vector<double> moved = values;
        moved[i] += h;
        return Array(f({{"x", Array::from(std::move(moved), std::vector<std::int64_t>(x.shape().begin(), x.shape().end()))}, {"w", w}}))
            .item<double>();
      };
      const double expected = (at(1e-5) - at(-1e-5)) / 2e-5;
      INFO(value << " at " << i);
      CHECK(slopes[i] == Approx(expected).epsilon(1e-5).margin(1e-7));
    }
  };
  for (const char* name : {"cumsum", "cumprod", "cummax", "cummin"})
    for (const char* how : {"0", "1", "1, reverse=true"}) check(std::string(name) + "(x, " + how + ")", random_array({3, 6}, f64));
  // any number of zeros
  for (const std::vector<double>& zeros :
       {std::vector<double>{0, 2, 3, 4, 5}, {2, 3, 0, 4, 5}, {2, 0, 3, 0, 5}, {0, 0, 0, 2, 1}, {2, 3, 4, 5, 0}})
    check("cumprod(x, 0)", Array::from(std::vector<double>(zeros)));
  // the first of equal values
  const Array ties = Array::from({1.0, 1.0, 3.0, 3.0, 2.0});
  CHECK(same_everywhere("dx = grad(sum(cummax(x, 0)*w), [x])", {{"x", ties}, {"w", Array::from({1.0, 2.0, 4.0, 8.0, 16.0})}})
            .to_vector<double>() == std::vector<double>{3, 0, 28, 0, 0});
  // twice
  const Array twice = same_everywhere("d = grad(sum(cumsum(x*x, 0)*w), [x]); second = grad(sum(d*d), [x])",
                                      {{"x", Array::from({1.0, 2.0})}, {"w", Array::from({1.0, 1.0})}});
  CHECK(twice.to_vector<double>() == std::vector<double>{32, 16});  // d = (4x, 2y)
}

TEST_CASE("scans: bad input", "[scan]") {
  const Array x = random_array({2, 3}), k = random_array({});
  CHECK_THAT(error_of("cumsum(x, 2)", {{"x", x}}), Contains("cumsum: axis 2 is out of range for rank 2"));
  CHECK_THAT(error_of("cumsum(x, -9223372036854775807)", {{"x", x}}), Contains("cumsum: axis -9223372036854775807 is out of range"));
  CHECK_THAT(error_of("cummax(x, 0)", {{"x", k}}), Contains("cummax: x f32[] has no axis to run along"));
  CHECK_THAT(error_of("cumsum(x)", {{"x", x}}), Contains("cumsum: `axis` is missing"));
  CHECK_THAT(error_of("cumsum(x, [0])", {{"x", x}}), Contains("cumsum: `axis` must be a value"));
}

TEST_CASE("scans: along an axis merged from two", "[scan]") {
  for (const std::int64_t n : {1, 15, 16, 33, 300, 5000}) {
    const NamedArrays all = {{"x", random_array({n})}, {"y", random_array({n}, f32, 2)}};
    for (const char* formula :
         {"cumsum(repeat(x, 2, 0), 0)", "cumsum(repeat(x, 3, 0)*2, 0, reverse=true)", "cumsum(reshape(stack([x, y], 1), [-1]), 0)",
          "cummax(tile(x, [3]), 0)", "cumsum(reshape(x[:, none] * stack([x[0], y[0], x[0]], 0), [-1]), 0)"})
      same_everywhere(formula, all);
  }
}

TEST_CASE("scans: a scan and its own transpose", "[scan]") {
  for (const std::int64_t n : {1, 2, 7, 40}) {
    const NamedArrays all = {{"x", random_array({n, n})}, {"r", random_array({n})}};
    for (const char* formula :
         {"c = cumsum(x, 0); y = c + transpose(c)", "c = cumsum(r, 0); y = c[:, none] - c; z = c[:, none] * c[none, :]",
          "c = cummax(x, 1); y = c - transpose(c); z = c * 2"})
      same_everywhere(formula, all);
  }
}
