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
