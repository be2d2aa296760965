// Programs that are short but stand for much: views of enormous values, and pieces (concat, stack, pad, roll …) of pieces. What they take to
// compile follows the length of the program: pieces, nodes and bytes are counted here, no time is measured.
#include <onepass/onepass.h>

#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using op::Array, op::Mode, op::Options;
using op::f32;

namespace {

// The first result in a mode: its bytes, or the error.
std::string outcome(const std::string& text, const NamedArrays& inputs, Mode mode) {
  try {
    const std::vector<std::byte> bytes = bytes_of(run_formula(op::formula(text, {.mode = mode}), inputs)[0]);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const op::Error& e) { return e.what(); }
}

constexpr Mode kKernels[] = {Mode::adaptive, Mode::generic, Mode::specialized, Mode::unfused};

}  // namespace

// Nothing as long as an axis is made while a program is compiled: 2^40 elements of 4 bytes would not fit in any memory.
TEST_CASE("nests: a view of an enormous broadcast takes what the view takes", "[nests]") {
  const Array x = random_array({4, 8});
  const std::string text = "broadcast_to(x, [1099511627776, 4, 8])[3]", few = "broadcast_to(x, [5, 4, 8])[3]";
  for (const Mode mode : kKernels) CHECK(outcome(text, {{"x", x}}, mode) == outcome(few, {{"x", x}}, Mode::reference));
  CHECK_THAT(outcome(text, {{"x", x}}, Mode::reference), Contains("f32[1099511627776, 4, 8]") && Contains("the limit `array_bytes`"));
}

TEST_CASE("nests: indices that are the same along an axis are checked once", "[nests]") {
  const Array x = random_array({4, 8}), i = Array::from<std::int64_t>({3, 0, -1, 2, 1, -4});
  const auto at = [](const char* n, const char* more = "") {
    return "take(x, broadcast_to(i, [" + std::string(n) + ", 6])" + more + ", 0)[0]";
  };
  constexpr const char* kMany = "1099511627776";
  for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::specialized}) {
    CHECK(outcome(at(kMany), {{"x", x}, {"i", i}}, mode) == outcome(at("5"), {{"x", x}, {"i", i}}, Mode::reference));
    CHECK(outcome(at(kMany, "*1 + 0"), {{"x", x}, {"i", i}}, mode) == outcome(at("5"), {{"x", x}, {"i", i}}, Mode::reference));
    CHECK(outcome(at(kMany, "*2 - 3"), {{"x", x}, {"i", i}}, mode) == "take: the index -5 at [0, 2] is out of range: axis 0 has extent 4");
  }
  for (const Mode mode : {Mode::unfused, Mode::reference})  // which store what an operator makes
    CHECK_THAT(outcome(at(kMany), {{"x", x}, {"i", i}}, mode), Contains("the limit `array_bytes`"));

  // the first bad one in row-major order; none where no element is asked for
  for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::specialized, Mode::unfused, Mode::reference}) {
    const auto error = [&](const char* text) { return outcome(text, {{"x", x}, {"i", i}}, mode); };
    CHECK_THAT(error("take(x, broadcast_to(reshape(i*2, [2, 1, 3]), [2, 7, 3]), 0)[:, 1:]"), Contains("take: the index 6 at [0, 0, 0]"));
    CHECK_THAT(error("take(x, broadcast_to(reshape(i + 1, [6, 1]), [6, 7]), 0)"), Contains("take: the index 4 at [0, 0]"));
    CHECK_THAT(error("take(x, broadcast_to(reshape(i + 1, [6, 1]), [6, 7])[1:], 0)"), !Contains("out of range"));
    CHECK_THAT(error("take_along_axis(x, broadcast_to(i[3:4, none]*3, [4, 7]), 1)"), !Contains("out of range"));
    CHECK_THAT(error("take_along_axis(x, broadcast_to(i[3:4, none]*4, [4, 7]), 1)"), Contains("the index 8 at [0, 0]"));
    CHECK_THAT(error("index_add(x, broadcast_to(i + 5, [0, 6]), zeros([0, 6, 8]), 0)"), !Contains("out of range"));
  }
}
