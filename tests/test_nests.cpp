// Short programs with much to compute: views of enormous values, and nested subdomains (concat, stack, pad, roll …). Compile cost must
// follow the length of the program. The tests count nests, nodes and bytes, and measure no time.
#include <onepass/onepass.h>

#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "every_mode.h"
#include "formula_inputs.h"
#include "golden.h"
#include "plans_of.h"

namespace op = onepass;
namespace ir = onepass::ir;
using namespace onepass::test;
using namespace onepass::compiler;
using Catch::Matchers::Contains;
using op::Array, op::Mode, op::Options;
using op::f32;

namespace {

// Returns the first result's bytes in that mode, or the error.
std::string outcome(const std::string& text, const NamedArrays& inputs, Mode mode) {
  try {
    const std::vector<std::byte> bytes = bytes_of(run_formula(op::formula(text, {.mode = mode}), inputs)[0]);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const op::Error& e) { return e.what(); }
}

constexpr Mode kKernels[] = {Mode::adaptive, Mode::generic, Mode::specialized, Mode::unfused};

}  // namespace

// Compilation must not allocate memory proportional to an axis: 2^40 elements of 4 bytes fit in no memory.
TEST_CASE("nests: a view of an enormous broadcast costs no more than the view", "[nests]") {
  const Array x = random_array({4, 8});
  const std::string text = "broadcast_to(x, [1099511627776, 4, 8])[3]", few = "broadcast_to(x, [5, 4, 8])[3]";
  for (const Mode mode : kKernels) CHECK(outcome(text, {{"x", x}}, mode) == outcome(few, {{"x", x}}, Mode::reference));
  CHECK_THAT(outcome(text, {{"x", x}}, Mode::reference), Contains("f32[1099511627776, 4, 8]") && Contains("the limit `array_bytes`"));
}

TEST_CASE("nests: indices that do not vary along an axis are checked once", "[nests]") {
  const Array x = random_array({4, 8}), i = Array::from<std::int64_t>({3, 0, -1, 2, 1, -4});
  const auto at = [](const char* n, const char* more = "") {
    return "take(x, broadcast_to(i, [" + std::string(n) + ", 6])" + more + ", 0)[0]";
  };
  constexpr const char* kMany = "1099511627776";
  for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::specialized}) {
    CHECK(outcome(at(kMany), {{"x", x}, {"i", i}}, mode) == outcome(at("5"), {{"x", x}, {"i", i}}, Mode::reference));
    CHECK(outcome(at(kMany, "*1 + 0"), {{"x", x}, {"i", i}}, mode) == outcome(at("5"), {{"x", x}, {"i", i}}, Mode::reference));
    CHECK(outcome(at(kMany, "*2 - 3"), {{"x", x}, {"i", i}}, mode) ==
          "take: the index -5 at [0, 2] is out of range: axis 0 has extent 4\n  Recorded at formula:1.");
  }
  for (const Mode mode : {Mode::unfused, Mode::reference})  // these modes materialize each operator's result
    CHECK_THAT(outcome(at(kMany), {{"x", x}, {"i", i}}, mode), Contains("the limit `array_bytes`"));

  // reports the first bad index in row-major order, and none for elements that are not used
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

// ----------------------------------------------------------------------------------------------- nested subdomains

namespace {

// Returns `step` applied `levels` times, starting with `first`; $ is the previous value.
std::string nest(const std::string& first, const std::string& step, int levels) {
  std::string text = "c0 = " + first;
  for (int k = 0; k < levels; ++k) {
    text += "\nc" + std::to_string(k + 1) + " = ";
    for (const char c : step) text += c == '$' ? "c" + std::to_string(k) : std::string(1, c);
  }
  return text + "\nout = c" + std::to_string(levels);
}

struct Size {
  std::size_t pieces = 0, statements = 0,
              stored = 0;  // nests and their statements; values materialized as nested subdomains, or to be computed once
};
Size size_of_plan(const std::string& text, const Inputs& inputs) {
  const ir::Graph graph = optimised(text, inputs);
  const Partition partition = fuse(graph);
  Size size;
  for (const Boundary b : partition.boundary) size.stored += b == Boundary::Pieces || b == Boundary::Recompute;
  for (const Planned& p : plans_of(graph)) ++size.pieces, size.statements += p.nest.body.size();
  return size;
}

struct Family {
  const char *first, *step;
  Inputs inputs;
  bool doubles = false;  // the result has 2^levels times the elements
};
// clang-format off
const std::vector<Family> kFamilies = {
    {"x*1.5", "concat([$, $*2], 0)", {{"x", {1}}}, true},
    {"x*1.5", "concat([$*3, exp($)], 1)", {{"x", {3, 1}}}, true},
    {"x*1.5", "reshape(stack([$, $ + k], 0), [-1])", {{"x", {4}}, {"k", {}}}, true},
    {"x*1.5", "reshape(stack([$, $ + k], 1), [-1])", {{"x", {4}}, {"k", {}}}, true},
    {"x*1.5", "reshape(stack([$, abs($)], 0), [-1, 3])", {{"x", {2, 3}}}, true},
    {"x*1.5", "repeat($ + tile($[:1], [$.shape[0]]), 2, 0)", {{"x", {4}}}, true},
    {"x*1.5", "pad($*2, [1], [1])", {{"x", {4}}}},
    {"x*1.5", "pad($*2, [1], [1])", {{"x", {5000}}}},
    {"x*1.5", "pad($*2, [1, 1], [1, 1])", {{"x", {40, 200}}}},
    {"x*1.5", "pad($*2, [1, 0], [0, 1], 3)", {{"x", {40, 200}}}},
    {"x*1.5", "roll($, 1, 0) - $", {{"x", {5000}}}},
    {"x*1.5", "roll(flip($, 0)*0.5, 3, 1) + $", {{"x", {40, 200}}}},
    {"x*1.5", "concat([$[1:], $[:1]*0.5 + 1], 0)", {{"x", {5000}}}},
    {"x*1.5", "concat([$[200:], exp($[:200])], 0)", {{"x", {5000}}}},
};
// clang-format on

}  // namespace

TEST_CASE("nests: a column sum of another fusion group is not a fused column reduction", "[nests]") {
  const char* const program = R"(v = a / norm(a, 1)[:, none]
w = v / min(v, 1)[none]
s = sum(w, [0])
t = s + linspace(-2, 3, s.shape[-1])
b = broadcast_to(s, [2, s.shape[0]])
g = grad(sum(w), [v])
y = flip(t - max(t, 0, keepdims=true), 0) + s)";
  for (const std::int64_t n : {2, 5, 40}) same_everywhere(program, {{"a", random_array({n, n})}});
}

TEST_CASE("nests: code of nested subdomains grows with the program's length", "[nests]") {
  for (const Family& n : kFamilies) {
    const int few = n.doubles ? 8 : 24;
    const Size a = size_of_plan(nest(n.first, n.step, few), n.inputs), b = size_of_plan(nest(n.first, n.step, 2 * few), n.inputs);
    INFO(n.step << ": " << a.pieces << " and " << b.pieces << " pieces, " << a.statements << " and " << b.statements << " statements");
    CHECK((b.stored > a.stored || b.pieces == a.pieces));
    CHECK(b.pieces <= 3 * a.pieces + 4 * static_cast<std::size_t>(few));  // results below 4,096 elements are not cut
    CHECK(b.statements <= 3 * a.statements);
    CHECK(b.statements <= 512 * static_cast<std::size_t>(2 * few));
  }
}

TEST_CASE("nests: gradients of nested subdomains, too", "[nests]") {
  for (const Family& n : kFamilies) {
    const int few = n.doubles ? 6 : 12;
    const auto gradient = [&](int levels) { return nest(n.first, n.step, levels) + "*1\ng = grad(sum(out*out), [x])"; };
    const Size a = size_of_plan(gradient(few), n.inputs), b = size_of_plan(gradient(2 * few), n.inputs);
    INFO(n.step << ": " << a.pieces << " and " << b.pieces << " pieces, " << a.statements << " and " << b.statements << " statements");
    CHECK(b.pieces <= 3 * a.pieces + 16);
    CHECK(b.statements <= std::max<std::size_t>(4 * a.statements + 64, 384));
  }
}

TEST_CASE("nests: nested subdomains have the reference's bits", "[nests]") {
  for (const Family& n : kFamilies) {
    NamedArrays inputs;
    for (const auto& [name, shape] : n.inputs) inputs.emplace_back(name, random_array(shape));
    for (const int levels : {3, 5, n.doubles ? 10 : 20}) {
      const std::string text = nest(n.first, n.step, levels);
      INFO(text);
      for (const Mode mode : {Mode::generic, Mode::unfused}) CHECK(outcome(text, inputs, mode) == outcome(text, inputs, Mode::reference));
    }
  }
  // 2^20 elements from 250 bytes of text
  const NamedArrays one(1, {"x", random_array({1})});
  const std::string twenty = nest("x*1.5", "concat([$, $*2], 0)", 20);
  CHECK(outcome(twenty, one, Mode::generic) == outcome(twenty, one, Mode::reference));
}
