// Maximum, minimum, clamp, running maxima and casts to narrow integers, with NaN, zeros of either sign and infinities as operands. Results
// have equal bits in every mode and vector width, whether or not one operand is the same for all elements.
#include <limits>
#include <string>
#include <vector>

#include <onepass/onepass.h>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array;
using op::f32, op::f64;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kSpecials = {0.0, -0.0, 1.0, -1.0, kInfinity, -kInfinity, kNaN, -kNaN, 1e-40, -1e-40, 127.5, -128.5, 3e9, -3e9};

// Returns `times` copies of each special value in turn, or of the whole list.
Array specials(op::DType type, std::size_t times, bool each) {
  std::vector<double> values;
  for (std::size_t i = 0; i < kSpecials.size() * times; ++i) values.push_back(kSpecials[each ? i / times : i % kSpecials.size()]);
  const Array wide = Array::from(std::move(values));
  return type == f64 ? wide : op::formula("cast(x, " + std::string(op::name_of(type)) + ")")({wide});
}
Array one(op::DType type, double value) { return Array::full({}, value, type); }

}  // namespace

TEST_CASE("extremes: NaN, zeros and infinities on either side", "[extremes]") {
  for (const op::DType type : {f32, f64, op::f16}) {
    const std::size_t n = kSpecials.size();
    const NamedArrays pairs{{"a", specials(type, n, false)}, {"b", specials(type, n, true)}};
    for (const std::string f : {"maximum", "minimum"}) same_everywhere("y = " + f + "(a, b); where(isnan(y), 7, y)", pairs);
    same_everywhere("y = clamp(a, b, 2*b + 1); where(isnan(y), 7, y)", pairs);
  }
}

TEST_CASE("extremes: one operand is the same for all elements", "[extremes]") {
  for (const op::DType type : {f32, f64})
    for (const double value : kSpecials) {
      const NamedArrays inputs{{"a", specials(type, 5, false)}, {"c", one(type, value)}, {"d", one(type, 0.5)}};
      INFO(value);
      same_everywhere("y = maximum(a, c) - minimum(c, a)*d; where(isnan(y), 7, y)", inputs);
      same_everywhere("y = clamp(a, c, d); where(isnan(y), 7, y)", inputs);
    }
  for (const std::string value : {"0.0", "-0.0", "1.5", "-inf", "nan"})
    for (const std::string f : {"maximum", "minimum"})
      same_everywhere("y = " + f + "(a, " + value + "); where(isnan(y), 7, y)", {{"a", specials(f32, 5, false)}});
}

TEST_CASE("extremes: a zero cotangent gives +0 for any factor", "[extremes]") {
  for (const op::DType type : {f32, f64})
    for (const std::string by : {"0.3", "-0.3", "1e-30", "-1e-30", "-0.0", "inf"}) {
      const NamedArrays inputs{{"x", specials(type, 3, true)}, {"dy", specials(type, 3, true)}};
      same_everywhere("d = vjp(x*" + by + ", [x], dy); where(isnan(d), 7, d)", inputs);
    }
}

TEST_CASE("extremes: running maxima", "[extremes]") {
  for (const op::DType type : {f32, f64, op::f16})
    for (const std::string f : {"cummax", "cummin"}) {
      const Array x = specials(type, 3, true);
      same_everywhere("y = " + f + "(x, 0, reverse=true); where(isnan(y), 7, y)", {{"x", x}});
      same_everywhere("y = " + f + "(reshape(x, [3, 14]), 1); where(isnan(y), 7, y)", {{"x", x}});
      same_everywhere("y = " + f + "(x, 1)", {{"x", random_array({5, 4200}, type)}});
    }
  const Array few = Array::from({-2.0f, -0.0f, 0.0f, -0.0f, -3.0f, -1.0f});
  const std::vector<float> top = op::formula("1/cummax(x, 0)")({few})[0].to_vector<float>();
  CHECK(top[0] == -0.5f);
  CHECK(top[1] == -static_cast<float>(kInfinity));  // -0 is less than +0
  CHECK(top[2] == static_cast<float>(kInfinity));
  CHECK(top[3] == static_cast<float>(kInfinity));
}

TEST_CASE("extremes: casts of floats to narrow integers", "[extremes]") {
  for (const op::DType type : {f32, f64, op::f16})
    for (const std::string to : {"i8", "u8", "i16", "u16", "i32"})
      same_everywhere("cast(a, " + to + ")", {{"a", specials(type, 7, false)}});
  same_everywhere("cast(cast(clamp(round(x*64.0), -127, 127), i8), f32)*0.015625", {{"x", random_array({3, 301})}});
  const std::vector<std::int8_t> bytes =
      op::formula("cast(x, i8)")({Array::from({1e30f, -1e30f, static_cast<float>(kNaN), 126.9f, -127.9f, 3e9f})})[0]
          .to_vector<std::int8_t>();
  CHECK(bytes == std::vector<std::int8_t>{127, -128, 0, 126, -127, 127});
}

TEST_CASE("extremes: the index of the first extreme, or of the first NaN", "[extremes]") {
  for (const op::DType type : {f32, f64, op::f16, op::u8, op::i64})
    for (const std::int64_t columns : {1, 16, 65}) {
      NamedArrays inputs{{"x", random_array({13, columns}, type, 3)}};  // with ties in narrow types
      const std::string n = std::to_string(columns), first = "[:13*" + n + "], [13, " + n + "])";
      inputs.emplace_back("s", is_float(type)
                                   ? Array(op::formula("reshape(s" + first)({specials(type, static_cast<std::size_t>(columns), false)}))
                                   : Array(op::formula("x*0 + 7")({inputs[0].second})));
      for (const std::string f : {"argmin", "argmax"})
        for (const std::string of : {"x", "s", "x*s", "where(s > 0, s, inf*0 + x)"}) {
          if (!is_float(type) && of.starts_with("where")) continue;
          for (const std::string axis : {"", ", 0", ", 1"}) same_everywhere("v = " + of + "; " + f + "(v" + axis + ")", inputs);
        }
      same_everywhere("a = argmin(s, 1); b = argmax(x, 1); c = max(x, 1); d = min(s, 1); y = where(isnan(d), 7, d)", inputs);
    }
}

TEST_CASE("extremes: the index of an infinity that every element equals, and of a NaN after it", "[extremes]") {
  for (const std::int64_t n : {1, 7, 64, 65, 130}) {
    Array x = Array::full({n, 3}, kInfinity, f32);
    CHECK(same_everywhere("argmin(x, 0)", {{"x", x}}).at<std::int64_t>({0}) == 0);
    CHECK(same_everywhere("argmax(-x)", {{"x", x}}).at<std::int64_t>({}) == 0);
    const Array y = op::formula("where(iota([x.shape[0], 3], 0) == x.shape[0] - 1, nan, x)")({x});
    CHECK(same_everywhere("argmin(y, 0)", {{"y", y}}).at<std::int64_t>({1}) == n - 1);
    CHECK(same_everywhere("argmax(transpose(y), 1)", {{"y", y}}).at<std::int64_t>({2}) == n - 1);
  }
}
