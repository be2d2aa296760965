// concat, stack, pad, roll, tile, repeat and the random generator: results, numbers of kernels and bytes, and contents of kernel keys.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "compiler/plan/plan.h"
#include "every_mode.h"
#include "formula_inputs.h"
#include "golden.h"
#include "onepass/error.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;
using Catch::Matchers::Contains;

namespace {

// Returns inputs x = 1, 2, 3, … and y = 101, 102, …
std::vector<ir::Buffer> counting(const ir::Graph& graph) {
  std::vector<ir::Buffer> out;
  float first = 1;
  for (const ir::Input& input : graph.inputs) {
    const ir::List shape = graph.list(input.shape);
    std::vector<float> values(static_cast<std::size_t>(ir::element_count(shape)));
    std::iota(values.begin(), values.end(), first);
    first += 100;
    ir::Buffer b{f32, {shape.begin(), shape.end()}, std::vector<std::byte>(values.size() * 4)};
    if (!values.empty()) std::memcpy(b.bytes.data(), values.data(), b.bytes.size());
    out.push_back(std::move(b));
  }
  return out;
}

template <class T = float> std::vector<T> values_of(const ir::Buffer& b) {
  std::vector<T> out(b.bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), b.bytes.data(), b.bytes.size());
  return out;
}

// Returns the reference's first result. Checks fused kernels against it, and unfused kernels if `with_unfused`.
template <class T = float> std::vector<T> result(const char* formula, const Inputs& inputs = {}, bool with_unfused = true) {
  const ir::Graph graph = optimised(formula, inputs);
  INFO(formula << "\n" << ir::print(graph));
  CHECK(ir::print(ir::parse_graph(ir::print(graph))) == ir::print(graph));
  const std::vector<ir::Buffer> arguments = counting(graph);
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, views_of(arguments));
  for (const bool unfused : {false, true})
    for (const bool masked : {false, true}) {
      if (unfused && (masked || !with_unfused)) continue;
      RunOptions options;
      options.unfused = unfused;
      options.masked = masked;
      std::string what;
      CHECK(equals_bitwise(run(graph, views_of(arguments), options), expected, &what));
      CHECK(what.empty());
    }
  return values_of<T>(expected.at(0));
}

std::string error_of(const char* formula, const Inputs& inputs = {}) {
  try {
    optimised(formula, inputs);
  } catch (const Error& e) { return std::string(e.what()); }
  return "";
}

using F = std::vector<float>;

}  // namespace

TEST_CASE("pieces: concat and stack", "[pieces]") {
  CHECK(result("concat([x, y], 0)", {{"x", {2, 2}}, {"y", {1, 2}}}) == F{1, 2, 3, 4, 101, 102});
  CHECK(result("concat([x, y], axis=-1)", {{"x", {2, 2}}, {"y", {2, 1}}}) == F{1, 2, 101, 3, 4, 102});
  CHECK(result("concat([x, y, x])", {{"x", {1}}, {"y", {0}}}) == F{1, 1});
  CHECK(result("concat([x])*2", {{"x", {2}}}) == F{2, 4});
  CHECK(result("stack([x, y], 0)", {{"x", {2}}, {"y", {2}}}) == F{1, 2, 101, 102});
  CHECK(result("stack([x, y], 1)", {{"x", {2}}, {"y", {2}}}) == F{1, 101, 2, 102});
  CHECK(result("stack([x, y, x + y], -1)", {{"x", {2, 1}}, {"y", {2, 1}}}) == F{1, 101, 102, 2, 102, 104});
  CHECK(result("stack([sum(x), max(x), 7])", {{"x", {3}}}) == F{6, 3, 7});
  CHECK(result<std::int64_t>("concat([cast(x, i32), cast(x, i64), cast(x, bool)], 0)", {{"x", {2}}}) ==
        std::vector<std::int64_t>{1, 2, 1, 2, 1, 1});
  CHECK(result("concat([x, y], 0)[1:4:2]*y[0]", {{"x", {2}}, {"y", {3}}}) == F{202, 10302});
}

TEST_CASE("pieces: pad, roll, tile and repeat", "[pieces]") {
  CHECK(result("pad(x, [1, 0], [0, 2])", {{"x", {1, 2}}}) == F{0, 0, 0, 0, 1, 2, 0, 0});
  CHECK(result("pad(x, 1, 2, 9)", {{"x", {2}}}) == F{9, 1, 2, 9, 9});
  CHECK(result("pad(x, 1, 1, sum(x))", {{"x", {2}}}) == F{3, 1, 2, 3});
  CHECK(result("pad(x, 2, 0, -inf)*2", {{"x", {1}}}) == F{-INFINITY, -INFINITY, 2});
  CHECK(result("pad(pad(x, 1, 1, 5), 1, 1)", {{"x", {1}}}) == F{0, 5, 1, 5, 0});
  CHECK(result("pad(x, 1, 1, 4)", {{"x", {0}}}) == F{4, 4});
  CHECK(result("pad(x, [], [], 4)", {{"x", {}}}) == F{1});
  CHECK(result("roll(x, 1, 0)", {{"x", {4}}}) == F{4, 1, 2, 3});
  CHECK(result("roll(x, -5, 0)", {{"x", {4}}}) == F{2, 3, 4, 1});
  CHECK(result("roll(x, 1, 1)", {{"x", {2, 3}}}) == F{3, 1, 2, 6, 4, 5});
  CHECK(result("roll(x, 1)", {{"x", {2, 3}}}) == F{6, 1, 2, 3, 4, 5});
  CHECK(result("roll(x, [1, 1], [0, 1])", {{"x", {2, 3}}}) == F{6, 4, 5, 3, 1, 2});
  CHECK(result("roll(x, 3, 0)", {{"x", {0, 2}}}) == F{});
  CHECK(result("tile(x, [2, 2])", {{"x", {1, 2}}}) == F{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(result("tile(x, 2)", {{"x", {2, 2}}}) == F{1, 2, 1, 2, 3, 4, 3, 4});
  CHECK(result("tile(x, [2, 1])", {{"x", {2}}}) == F{1, 2, 1, 2});
  CHECK(result("repeat(x, 2, 0)", {{"x", {2, 2}}}) == F{1, 2, 1, 2, 3, 4, 3, 4});
  CHECK(result("repeat(x, 2, -1)", {{"x", {2, 2}}}) == F{1, 1, 2, 2, 3, 3, 4, 4});
  CHECK(result("repeat(x, 0, 0)", {{"x", {2, 2}}}) == F{});
}

TEST_CASE("pieces: strided slices of all offsets are one kernel", "[pieces]") {
  const Array x = test::random_array({6, 48}), w = test::random_array({6, 48}, f32, 2);
  const auto kernels = [](std::string_view formula, const Inputs& inputs) {
    const ir::Graph graph = test::optimised(formula, inputs);
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      if (graph[id].op == ir::Op::Piecewise) CHECK(graph.operands(id).size() == graph.attributes(id).size() / (2 * graph.shape(id).size()));
    for (ir::NodeId id = 0; id < graph.size(); ++id) CHECK(graph[id].op != ir::Op::Pad);
    return compiler::fuse(graph).groups.size();
  };
  for (const char* const formula : {"a = x[:, 0::2]; b = x[:, 1::2]; y = a*a*w[:, 0::2] + sin(b); vjp(y, [x], y)",  // both halves
                                    "a = x[:, 1::2]; vjp(a*a, [x], a)",                                             // one, 0 between
                                    "a = x[:, 0::3]; b = x[:, 2::3]; vjp(a*b, [x], a)",                             // two of three
                                    "a = x[0::2, :]; b = x[1::2, :]; vjp(a*b, [x], a)",                             // rows
                                    "z = reshape(x, [6, 24, 2]); vjp(z[:, :, 0]*z[:, :, 1], [x], w[:, :24])"}) {
    INFO(formula);
    CHECK(kernels(formula, {{"x", {6, 48}}, {"w", {6, 48}}}) == 1);
    test::same_everywhere(formula, {{"x", x}, {"w", w}});
  }
}

TEST_CASE("pieces: gradients are slices of the cotangent, and sums of padded slices are one node", "[pieces]") {
  CHECK(result("y = concat([x, 2*x], 0); out = vjp(y, [x], d)", {{"x", {2}}, {"d", {4}}}) == F{101 + 2 * 103, 102 + 2 * 104});
  CHECK(result("out = vjp(pad(x, 1, 2, 3.0), [x], d)", {{"x", {2}}, {"d", {5}}}) == F{102, 103});
  CHECK(result("v = 2*s; out = vjp(pad(x, 1, 2, v), [s], d)", {{"x", {2}}, {"s", {}}, {"d", {5}}}) == F{2 * (201 + 204 + 205)});
  CHECK(result("out = vjp(roll(x, 1, 0), [x], d)", {{"x", {3}}, {"d", {3}}}) == F{102, 103, 101});
  CHECK(result("out = vjp(tile(x, 2), [x], d)", {{"x", {2}}, {"d", {4}}}) == F{101 + 103, 102 + 104});
  CHECK(result("out = vjp(repeat(x, 2, 0), [x], d)", {{"x", {2}}, {"d", {4}}}) == F{101 + 102, 103 + 104});
  CHECK(result("out = vjp(stack([x, x*3], 1), [x], d)", {{"x", {2}}, {"d", {2, 2}}}) == F{101 + 3 * 102, 103 + 3 * 104});

  // the parts of x that slices read: one Piecewise of three boxes; zeros have the sign of a sum
  const ir::Graph graph =
      optimised("a = x[:2]*2; b = x[2:3]*-0.0; c = x[4:]; out = vjp(sum(a) + sum(b) + sum(c), [x], d)", {{"x", {6}}, {"d", {}}});
  int pieces = 0, pads = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) pieces += graph[id].op == ir::Op::Piecewise, pads += graph[id].op == ir::Op::Pad;
  INFO(ir::print(graph));
  CHECK(pieces == 1);
  CHECK(pads == 0);
  const std::vector<float> g =
      result("a = x[:2]*2; b = x[2:3]*-0.0; c = x[4:]; out = vjp(sum(a) + sum(b) + sum(c), [x], d)", {{"x", {6}}, {"d", {}}});
  CHECK(g == F{202, 202, 0, 0, 101, 101});
  for (const float v : g) CHECK_FALSE(std::signbit(v));

  const ir::Graph overlapping = optimised("out = vjp(x[1:] + x[:-1], [x], d)", {{"x", {6}}, {"d", {5}}});
  for (ir::NodeId id = 0; id < overlapping.size(); ++id) CHECK(overlapping[id].op != ir::Op::Piecewise);
}

TEST_CASE("pieces: invalid joins, pads and repeats throw an error", "[pieces]") {
  const Inputs in = {{"x", {2, 3}}, {"y", {3, 2}}, {"s", {}}};
  CHECK_THAT(error_of("concat([x, y], 0)", in), Contains("concat: x f32[2, 3] and y f32[3, 2] differ along an axis other than 0"));
  CHECK_THAT(error_of("concat([x, y], 2)", in), Contains("concat: axis 2 is out of range for rank 2"));
  CHECK_THAT(error_of("concat([s, s], 0)", in), Contains("concat: s f32[] has no axis to join along. Use stack"));
  CHECK_THAT(error_of("concat([], 0)", in), Contains("concat: the list is empty"));
  CHECK_THAT(error_of("concat(x, 0)", in), Contains("concat: `xs` must be a list of values"));
  CHECK_THAT(error_of("concat([cast(x, u64), cast(x, i8)], 0)", in), Contains("concat: u64 and i8 have no common type"));
  CHECK_THAT(error_of("stack([x, y], 0)", in), Contains("stack: x f32[2, 3] and y f32[3, 2] must have the same shape"));
  CHECK_THAT(error_of("pad(x, [-1, 0], [0, 0])", in), Contains("pad: the amounts [-1, 0] and [0, 0] must not be negative"));
  CHECK_THAT(error_of("pad(x, [1], [1])", in), Contains("pad: [1] and [1] must hold one amount for each axis of x f32[2, 3]"));
  CHECK_THAT(error_of("pad(x, [9223372036854775807, 0], [0, 0])", in), Contains("has a length that does not fit in 64 bits"));
  CHECK_THAT(error_of("pad(x, [4611686018427387904, 0], [0, 0])", in), Contains("pad: the shape"));
  CHECK_THAT(error_of("pad(x, [1, 1], [1, 1], y)", in), Contains("pad: the value must be a scalar, not y f32[3, 2]"));
  CHECK_THAT(error_of("tile(x, [-1, 1])", in), Contains("tile: the counts [-1, 1] must not be negative"));
  CHECK_THAT(error_of("repeat(x, 9223372036854775807, 0)", in), Contains("repeat: x f32[2, 3] taken"));
  CHECK_THAT(error_of("repeat(x, 2, 5)", in), Contains("repeat: axis 5 is out of range for rank 2"));
  CHECK_THAT(error_of("roll(x, [1, 2], 0)", in), Contains("roll: 2 shifts given for 1 axes"));
  CHECK_THAT(error_of("roll(x, 1, 4)", in), Contains("roll: axis 4 is out of range for rank 2"));
  CHECK_THAT(error_of("uniform(1.5, [3])"), Contains("uniform: the key must be an integer, not 1.5"));
  CHECK_THAT(error_of("uniform(x, [3])", in),
             Contains("uniform: the key must be an integer, a literal or a tensor of rank 0, not x f32[2, 3]"));
  CHECK_THAT(error_of("uniform(1, [3], i32)"), Contains("uniform: the type must be a float, not i32"));
  CHECK_THAT(error_of("uniform(1, [-3])"), Contains("uniform: the shape [-3] has a negative extent"));
}

TEST_CASE("pieces: the verifier describes faults of boxes", "[pieces]") {
  const auto parsed = [](const char* last) {
    try {
      ir::parse_graph(std::string("%0 = input x : f32[2, 3]\n%1 = input y : f32[2, 3]\n%2 = input v : f32[]\n") + last + "\nreturn %3");
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK(parsed("%3 = piecewise %0, %1 {0, 0, 1, 1, 2, 0, 1, 1} : f32[4, 3]").empty());
  CHECK(parsed("%3 = piecewise %0, %1 {0, 0, 2, 1, 1, 0, 2, 1} : f32[4, 3]").empty());
  CHECK(parsed("%3 = piecewise %0, %1, %2 {0, 0, 2, 1, 3, 0, 2, 1} : f32[7, 3]").empty());
  CHECK_THAT(parsed("%3 = piecewise %0, %1 {0, 0, 1, 1, 1, 0, 1, 1} : f32[3, 3]"), Contains("boxes must not overlap"));
  CHECK_THAT(parsed("%3 = piecewise %0, %1, %2 {0, 0, 3, 1, 1, 0, 2, 1} : f32[9, 3]"), Contains("boxes must not overlap"));
  CHECK_THAT(parsed("%3 = piecewise %0, %1 {0, 0, 1, 1, 2, 0, 1, 1} : f32[5, 3]"), Contains("the boxes must cover the result"));
  CHECK_THAT(parsed("%3 = piecewise %0, %1 {0, 0, 1, 1} : f32[2, 3]"), Contains("the fill value must be a scalar"));
  CHECK_THAT(parsed("%3 = piecewise %0, %2 {1, 0, 1, 1} : f32[2, 3]"), Contains("every element of an operand must be inside the result"));
  CHECK_THAT(parsed("%3 = piecewise %0, %2 {0, 0, 0, 1} : f32[2, 3]"), Contains("a step must not be 0"));
  CHECK_THAT(parsed("%3 = piecewise %0, %1, %2 {0, 0, 1} : f32[4, 3]"), Contains("attributes must be a start and a step"));
  CHECK_THAT(parsed("%3 = piecewise %0, %1, %2, %2 {0, 0, 1, 1, 2, 0, 1, 1} : f32[4, 3]"), Contains("one for each of the 2 boxes"));
}

// ------------------------------------------------------------------------------------------------ random numbers

namespace {

// Random123's description (Salmon et al. 2011), one counter at a time.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    if (round) k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    const std::uint64_t p = std::uint64_t{0xD2511F53} * c[0], q = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(q >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(q),
         static_cast<std::uint32_t>(p >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p)};
  }
  return c;
}
std::uint32_t word(std::uint64_t key, std::uint64_t counter, std::size_t which) {
  return philox({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)})[which];
}

}  // namespace

TEST_CASE("pieces: uniform is Philox4x32-10, bit for bit", "[pieces]") {
  // test vectors of Random123 (kat_vectors)
  using W = std::array<std::uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == W{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        W{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  const F first = result("uniform(0, [4])");
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(first[i] == static_cast<float>(W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}[i] >> 8) * 0x1p-24f);

  for (const std::uint64_t key : {std::uint64_t{1} << 40 | 12345, ~std::uint64_t{0}, std::uint64_t{0}})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{8}, Shape{3, 5}, Shape{2, 3, 131}, Shape{4100}}) {
      if (key && shape.size() != 1) continue;
      const auto program = fmt::format("uniform({}, {})", static_cast<std::int64_t>(key), shape_text(shape));
      const F narrow = result(program.c_str(), {}, key == 0 && shape.size() == 2);
      REQUIRE(narrow.size() == static_cast<std::size_t>(ir::element_count(shape)));
      bool same = true;
      for (std::size_t i = 0; i < narrow.size(); ++i)
        same = same && narrow[i] == static_cast<float>(word(key, i / 4, i % 4) >> 8) * 0x1p-24f;
      CHECK(same);
      const auto wide =
          result<double>(fmt::format("uniform({}, {}, f64)", static_cast<std::int64_t>(key), shape_text(shape)).c_str(), {}, false);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const std::uint64_t bits = word(key, i / 2, 2 * (i % 2)) | std::uint64_t{word(key, i / 2, 2 * (i % 2) + 1)} << 32;
        same = same && wide[i] == static_cast<double>(bits >> 11) * 0x1p-53;
      }
      CHECK(same);
    }
}

TEST_CASE("pieces: normal is sqrt(2)*erfinv of the same bits, never infinite, and looks normal", "[pieces]") {
  const char* const formula =
      "n = normal(3, [5000]); t = uniform(3, [5000])*2 - 1 + 5.9604644775390625e-08; out = n; other = erfinv(t)*1.4142135623730951";
  const ir::Graph graph = optimised(formula, {});
  const std::vector<ir::Buffer> values = run(graph, {});
  std::string what;
  CHECK(equals_bitwise(values, ir::evaluate(graph, {}), &what));
  const F n = values_of(values.at(0)), other = values_of(values.at(1));
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < n.size(); ++i) {
    sum += n[i], squares += static_cast<double>(n[i]) * n[i];
    CHECK(std::isfinite(n[i]));
    CHECK(std::abs(n[i] - other[i]) <= 1e-3f);  // t loses a bit in the float sum
  }
  CHECK(std::abs(sum / 5000) < 0.05);
  CHECK(std::abs(squares / 5000 - 1) < 0.06);
  const auto wide = result<double>("normal(3, [9], f64)", {}, false);
  const std::uint64_t bits = word(3, 0, 0) | std::uint64_t{word(3, 0, 1)} << 32;
  CHECK(std::abs(std::erf(wide[0] / std::sqrt(2.0)) - (2 * static_cast<double>(bits >> 12) + 1 - 0x1p52) * 0x1p-52) < 1e-15);
}

TEST_CASE("pieces: elements that share a counter, in rows shorter than their number", "[pieces]") {
  for (const std::int64_t rows : {1, 3, 31, 100})
    for (const std::int64_t columns : {1, 2, 3, 5})
      result("b = stack([a + normal(5, a.shape), cumsum(a, 0)], 1)", {{"a", {rows, columns}}}, false);
}

TEST_CASE("pieces: the generator runs once for the elements that share a counter", "[pieces]") {
  for (const char* shape : {"[64, 64]", "[63, 65]", "[4095]"})
    for (const bool wide : {false, true}) {
      const ir::Graph graph = optimised(fmt::format("uniform(7, {}, {})", shape, wide ? "f64" : "f32"), {});
      const Partition partition = fuse(graph);
      const std::vector<Layout> layouts(graph.size());
      const std::vector<Planned> planned = plan(graph, partition, 0, layouts);
      INFO(shape << "\n" << print(planned.at(0).nest, planned.at(0).numbers));
      REQUIRE(planned.size() == 1);
      CHECK(planned[0].nest.derived.empty());
      CHECK(planned[0].nest.phases == (wide ? 2 : 4));
      const auto products = std::count_if(planned[0].nest.body.begin(), planned[0].nest.body.end(), [](const Statement& s) {
        return s.kind == Statement::Kind::Op && s.op == ir::Op::Mul && s.dtype == u64;
      });
      CHECK(products <= 20);
    }
}

// ------------------------------------------------------------------------------------------------ kernels and bytes

namespace {

struct Traffic {
  std::int64_t kernels, read, written;
  bool operator==(const Traffic&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Traffic& t) {
  return out << t.kernels << " kernels, " << t.read << " read, " << t.written << " written";
}

// Returns traffic in f32 elements. Checks that the counted and the scheduled traffic are equal. Sets `scheduled_read` to the scheduled
// loads.
Traffic traffic(const char* formula, const Inputs& inputs, std::int64_t* scheduled_read = nullptr) {
  const ir::Graph graph = optimised(formula, inputs);
  const Arguments arguments = random_arguments(graph, 1);
  Counts counts;
  RunOptions options;
  options.counts = &counts;
  std::string what;
  INFO(formula);
  CHECK(equals_bitwise(run(graph, arguments.views, options), ir::evaluate(graph, arguments.views), &what));
  CHECK(what.empty());
  CHECK(counts.bytes_written == counts.bytes_stored());
  if (scheduled_read) *scheduled_read = counts.bytes_read / 4;
  return {counts.kernels, counts.bytes_loaded() / 4, counts.bytes_stored() / 4};
}

}  // namespace

TEST_CASE("pieces: each byte is moved once", "[pieces]") {
  CHECK(traffic("concat([x, y], 0)", {{"x", {100, 70}}, {"y", {50, 70}}}) == Traffic{1, 10500, 10500});
  CHECK(traffic("concat([x, y], 0)*2", {{"x", {9000}}, {"y", {50}}}) == Traffic{1, 9050, 9050});
  CHECK(traffic("concat([x, y], 1)", {{"x", {60, 170}}, {"y", {60, 130}}}) == Traffic{1, 18000, 18000});
  CHECK(traffic("stack([x, 2*x], 0)", {{"x", {60, 170}}}).written == 20400);
  CHECK(traffic("stack([x, y], 0)", {{"x", {60, 170}}, {"y", {60, 170}}}) == Traffic{1, 20400, 20400});
  CHECK(traffic("stack([x, y], -1)", {{"x", {60, 170}}, {"y", {60, 170}}}) == Traffic{1, 20400, 20400});
  CHECK(traffic("pad(x, [1, 2], [3, 4])", {{"x", {90, 300}}}) == Traffic{3, 27000, 94 * 306});
  CHECK(traffic("pad(x, [1, 2], [3, 4], 5)", {{"x", {90, 300}}}) == Traffic{3, 27000, 94 * 306});
  CHECK(traffic("roll(x, 5, 0)", {{"x", {90, 300}}}) == Traffic{1, 27000, 27000});
  CHECK(traffic("roll(x, 5, 1)", {{"x", {90, 300}}}) == Traffic{1, 27000, 27000});
  CHECK(traffic("roll(x, 301)", {{"x", {90, 300}}}) == Traffic{1, 27000, 27000});
  CHECK(traffic("tile(x, [3, 1])", {{"x", {30, 300}}}).written == 27000);
  // the rotary embedding, interleaved: each element of q once, in one kernel
  std::int64_t read = 0;
  const Traffic moved = traffic("reshape(stack([q[..., ::2]*c - q[..., 1::2]*s, q[..., ::2]*s + q[..., 1::2]*c], -1), [6, 10, 128])",
                                {{"q", {6, 10, 128}}, {"c", {10, 64}}, {"s", {10, 64}}}, &read);
  CHECK(moved.kernels == 1);
  CHECK(moved.written == 6 * 10 * 128);
  CHECK(moved.read == 6 * 10 * 128 + 2 * 6 * 10 * 64);
  CHECK(read == 6 * 10 * 128 + 2 * 10 * 64);
}

TEST_CASE("pieces: a list of 256 arrays is one kernel of constant size", "[pieces]") {
  std::string formula = "concat([";
  Inputs inputs;
  std::int64_t total = 0;
  for (int i = 0; i < 256; ++i) {
    formula += fmt::format("{}p{}", i ? ", " : "", i);
    inputs.push_back({fmt::format("p{}", i), {1 + i % 7, 33}});
    total += (1 + i % 7) * 33;
  }
  CHECK(traffic((formula + "], 0)*2").c_str(), inputs) == Traffic{1, total, total});
  // the operand of a reduction is materialized first
  const ir::Graph graph = optimised(formula + "], 0)", inputs);
  CHECK(fuse(graph).groups.size() == 1);
  const ir::Graph reduced = optimised("sum(" + formula + "], 0), axis=1)", inputs);
  CHECK(fuse(reduced).groups.size() == 2);
}

TEST_CASE("pieces: positions of boxes are not part of kernel keys", "[pieces]") {
  const auto keys_of = [](const auto& formula_of, int count) {
    std::set<std::set<std::string>> keys;
    for (int i = 0; i < count; ++i) {
      const ir::Graph graph = optimised(formula_of(i), {{"x", {150, 140}}});
      const Partition partition = fuse(graph);
      const std::vector<Layout> layouts(graph.size());
      std::set<std::string> mine;
      for (std::uint32_t g = 0; g < partition.groups.size(); ++g)
        for (const Planned& p : plan(graph, partition, g, layouts)) mine.insert(p.nest.key());
      keys.insert(mine);
    }
    return keys;
  };
  CHECK(keys_of([](int i) { return fmt::format("pad(x, [{}, {}], [{}, {}], 7)", 1 + i % 7, 1 + i % 11, 1 + i % 13, 1 + i % 17); }, 1000)
            .size() == 1);
  CHECK(keys_of([](int i) { return fmt::format("roll(x, {}, 0)*2", 1 + i % 149); }, 1000).size() == 1);
  CHECK(
      keys_of([](int i) { return fmt::format("pad(x[:5, :6], [{}, {}], [{}, {}])", 1 + i % 7, 1 + i % 11, 1 + i % 13, 1 + i % 17); }, 1000)
          .size() == 1);
  CHECK(keys_of([](int i) { return fmt::format("concat([x[{}:], x[:{}]], 0)", 3 + i % 100, 5 + i % 99); }, 1000).size() == 1);
  CHECK(keys_of([](int i) { return fmt::format("uniform({}, [{}, 28])", i, 5 + i); }, 200).size() == 1);
}
