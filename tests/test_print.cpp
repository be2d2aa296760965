// Arrays as text, in NumPy's layout. tests/test_command.py compares random arrays with NumPy itself.
#include <catch2/catch.hpp>

#include <limits>
#include <sstream>

#include "onepass/onepass.h"
#include "onepass/print.h"

namespace {

using namespace onepass;

std::string text(const Array& array) { return to_text(array); }

}  // namespace

TEST_CASE("print: numbers are in columns, floats with the necessary digits", "[print]") {
  CHECK(text(Array::from({1.0F, 2.5F, 3.0F, 0.25F}, {2, 2})) == "[[1.   2.5 ]\n [3.   0.25]]");
  CHECK(text(Array::from({0.1F, -1.0F / 3})) == "[ 0.1        -0.33333334]");
  CHECK(text(Array::from({1.0 / 3, 2.0})) == "[0.33333333 2.        ]");  // 8 digits
  CHECK(text(Array::from({1e-5F, 1.0F})) == "[1.e-05 1.e+00]");
  CHECK(text(Array::from({1e200, -1.25})) == "[ 1.00e+200 -1.25e+000]");
  CHECK(text(Array::from({7, -10, 100})) == "[  7 -10 100]");
  CHECK(text(Array::from<std::uint64_t>({1, std::numeric_limits<std::uint64_t>::max()})) == "[                   1 18446744073709551615]");
  CHECK(text(Array::from({true, false})) == "[ True False]");
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(text(Array::from({inf, -inf, nan, 1.5F})) == "[ inf -inf  nan  1.5]");
  CHECK(text(Array::from({nan, inf})) == "[nan inf]");
  CHECK(text(Array::from({-0.0F, 0.0F})) == "[-0.  0.]");
  CHECK(text(Array::from({Half(0.1), Half(65504)})) == "[1.00e-01 6.55e+04]");
  CHECK(text(Array::from({BFloat16(0.1), BFloat16(3)})) == "[0.1 3. ]");
}

TEST_CASE("print: rank 0 prints as a number, an empty array as brackets", "[print]") {
  CHECK(text(Array::scalar(2.0F)) == "2.0");
  CHECK(text(Array::scalar(0.1)) == "0.1");
  CHECK(text(Array::scalar(1e16)) == "1e+16");
  CHECK(text(Array::scalar(-1.5e-5)) == "-1.5e-05");
  CHECK(text(Array::scalar(12)) == "12");
  CHECK(text(Array::scalar(true)) == "True");
  CHECK(text(Array::zeros({2, 0, 3}, f32)) == "[]");
  CHECK_THROWS_AS(text(Array()), ValueError);
}

TEST_CASE("print: long arrays are abbreviated, long lines wrapped, axes nested", "[print]") {
  const Array x = Array::zeros({1001}, f32);
  CHECK(text(x) == "[0. 0. 0. ... 0. 0. 0.]");
  CHECK(text(Array::zeros({2, 600}, i32)) == "[[0 0 0 ... 0 0 0]\n [0 0 0 ... 0 0 0]]");
  CHECK(text(Array::zeros({1, 2, 1}, i32)) == "[[[0]\n  [0]]]");
  CHECK(text(Array::zeros({2, 1, 1}, i32)) == "[[[0]]\n\n [[0]]]");
  const Array long_line = Array::full({40}, 10, i32);
  const std::string two = text(long_line);
  CHECK(two.find('\n') == 72);
  CHECK(two.substr(72, 4) == "\n 10");
  CHECK(to_text(long_line, {.indent = 4}).substr(69, 8) == "\n     10");
  CHECK(to_text(Array::zeros({10}, i32), {.most = 4, .edges = 1}) == "[0 ... 0]");
  CHECK(to_text(Array::from({1.0 / 3}), {.precision = 3}) == "[0.333]");
  CHECK(text(Array::from({1, 2, 3, 4, 5, 6}, {2, 3}).transpose().slice(0, 0, 3, 2)) == "[[1 4]\n [3 6]]");
  std::ostringstream stream;
  stream << Array::scalar(3) << ' ' << Array::from({1, 2});
  CHECK(stream.str() == "3 [1 2]");
}
