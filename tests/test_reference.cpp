// The reference interpreter: hand-computed cases, and sums against a second implementation of the summation order.
#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "ir/graph.h"
#include "ir/order.h"
#include "ir/reference.h"
#include "onepass/error.h"

using namespace onepass;
using namespace onepass::ir;
using Shape = std::vector<std::int64_t>;

namespace {

template <class T> ArrayView view(const std::vector<T>& data, Shape shape, Shape strides = {}) {
  return {dtype<T>, data.data(), std::move(shape), std::move(strides)};
}

// Returns the first output of the graph.
template <class T>
std::vector<T> run(const std::string& text, const std::vector<ArrayView>& inputs = {}, const std::vector<std::uint64_t>& slots = {}) {
  const std::vector<Buffer> out = evaluate(parse_graph(text), inputs, slots);
  const auto span = out.at(0).as<T>();
  return {span.begin(), span.end()};
}

template <class T> std::vector<T> counting(std::int64_t n) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(i);
  return out;
}

// Returns values whose sums depend on every detail of the order.
template <class T> std::vector<T> rough(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> out(static_cast<std::size_t>(n));
  for (T& x : out) x = static_cast<T>(std::ldexp(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0, static_cast<int>(random() % 12)));
  return out;
}

// ---- a second implementation of the order, from docs/language.md, independent of ir/order.h

template <class T> T naive_tree(const std::vector<T>& v, bool product) {
  if (v.size() == 1) return v[0];
  std::size_t k = 1;
  while (2 * k < v.size()) k *= 2;
  const T left = naive_tree(std::vector<T>(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(k)), product);
  const T right = naive_tree(std::vector<T>(v.begin() + static_cast<std::ptrdiff_t>(k), v.end()), product);
  return product ? left * right : left + right;
}

template <class T>
T naive_sum(const Shape& shape, const std::vector<bool>& reduced, const std::function<T(const Shape&)>& at, Shape kept, bool product) {
  const T missing = product ? T(1) : T(-0.0);
  const auto add = [&](T a, T b) { return product ? a * b : a + b; };
  // the axes that determine the order
  int last_above_one = -1, s = -1;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i)
    if (shape[static_cast<std::size_t>(i)] > 1) last_above_one = i;
  const bool lanes = last_above_one < 0 || reduced[static_cast<std::size_t>(last_above_one)];
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (reduced[static_cast<std::size_t>(i)] || shape[static_cast<std::size_t>(i)] <= 1) continue;
    bool before = false, after = false;
    for (int j = 0; j < static_cast<int>(shape.size()); ++j)
      if (reduced[static_cast<std::size_t>(j)] && shape[static_cast<std::size_t>(j)] > 1) (j < i ? before : after) = true;
    if (before && after) s = i;
  }
  // the elements in row-major order of the reduced axes
  std::vector<std::size_t> axes;
  std::int64_t n = 1, total = 1;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (reduced[i]) {
      axes.push_back(i);
      total *= shape[i];
      if (static_cast<int>(i) > s) n *= shape[i];
    }
  if (total == 0) return product ? T(1) : T(0);
  std::vector<T> r;
  for (std::int64_t i = 0; i < total; ++i) {
    Shape index = kept;
    std::int64_t rest = i;
    for (std::size_t k = axes.size(); k-- > 0; rest /= shape[axes[k]]) index[axes[k]] = rest % shape[axes[k]];
    r.push_back(at(index));
    if (s >= 0 && (i + 1) % n == 0) {
      const std::int64_t m = lanes ? (sizeof(T) == 8 ? 32 : 64) : 8;
      std::int64_t to = 1;
      if (n < m)
        while (to < n) to *= 2;
      else to = (n + m - 1) / m * m;
      for (std::int64_t k = n; k < to; ++k) r.push_back(missing);
    }
  }
  const std::size_t block_size = lanes ? 4096 : 256;
  std::vector<T> blocks;
  for (std::size_t begin = 0; begin < r.size(); begin += block_size) {
    const std::size_t end = std::min(r.size(), begin + block_size);
    if (lanes) {
      const std::size_t width = sizeof(T) == 8 ? 32 : 64;
      std::vector<T> lane(width, missing);
      for (std::size_t i = begin; i < end; ++i) lane[i % width] = add(lane[i % width], r[i]);
      for (std::size_t half = width / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) lane[i] = add(lane[i], lane[i + half]);
      blocks.push_back(lane[0]);
    } else {
      T sum = missing;
      for (std::size_t i = begin; i < end; i += 8)
        sum = add(sum, naive_tree(std::vector<T>(r.begin() + static_cast<std::ptrdiff_t>(i),
                                                 r.begin() + static_cast<std::ptrdiff_t>(std::min(end, i + 8))),
                                  product));
      blocks.push_back(sum);
    }
  }
  return naive_tree(blocks, product);
}

template <class T> void check_order(const Shape& shape, const Shape& axes, std::uint64_t seed, bool product = false) {
  std::vector<bool> reduced(shape.size(), false);
  for (std::int64_t a : axes) reduced[static_cast<std::size_t>(a)] = true;
  Graph g;
  const NodeId x = g.add_input("x", dtype<T>, shape);
  Shape kept_shape;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!reduced[i]) kept_shape.push_back(shape[i]);
  g.outputs = {g.add(product ? Op::ReduceProd : Op::ReduceSum, dtype<T>, g.intern(kept_shape), {x}, axes)};
  verify(g, "test");
  std::vector<T> data = rough<T>(element_count(shape), seed);
  if (product)
    for (T& v : data) v = T(1) + v * T(1e-4);
  const std::vector<ArrayView> inputs = {view(data, shape)};
  const Buffer result = std::move(evaluate(g, inputs)[0]);
  const std::function<T(const Shape&)> at = [&](const Shape& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + index[i];
    return data[static_cast<std::size_t>(offset)];
  };
  INFO(print(g));
  for (std::int64_t i = 0; i < element_count(kept_shape); ++i) {
    Shape index(shape.size(), 0);
    std::int64_t rest = i;
    for (std::size_t k = shape.size(); k-- > 0;)
      if (!reduced[k]) index[k] = rest % shape[k], rest /= shape[k];
    const T expected = naive_sum<T>(shape, reduced, at, index, product);
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    REQUIRE(std::bit_cast<Bits>(result.as<T>()[static_cast<std::size_t>(i)]) == std::bit_cast<Bits>(expected));
  }
}

}  // namespace

TEST_CASE("reference: sources", "[reference]") {
  CHECK(run<std::int32_t>("%0 = iota {1} : i32[2, 3]\nreturn %0") == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2});
  CHECK(run<float>("%0 = iota {0} : f32[2, 3]\nreturn %0") == std::vector<float>{0, 0, 0, 1, 1, 1});
  CHECK(run<std::uint8_t>("%0 = iota {0} : u8[300]\nreturn %0").at(299) == 43);
  CHECK(run<double>("%0 = constant 0.1 : f64[3]\nreturn %0") == std::vector<double>{0.1, 0.1, 0.1});
  CHECK(run<float>("slot 0 = 2 : f32\n%0 = slot 0 : f32[2]\nreturn %0") == std::vector<float>{2, 2});
  CHECK(run<float>("slot 0 = 2 : f32\n%0 = slot 0 : f32[2]\nreturn %0", {}, {bits_of(f32, 5.0)}) == std::vector<float>{5, 5});
  CHECK(run<float>("%0 = constant 1 : f32[0, 3]\nreturn %0").empty());
}

TEST_CASE("reference: views are index maps", "[reference]") {
  const std::vector<float> x = counting<float>(6);  // [[0, 1, 2], [3, 4, 5]]
  const auto of = [&](const std::string& line) {
    return run<float>("%0 = input x : f32[2, 3]\n%1 = " + line + "\nreturn %1", {view(x, {2, 3})});
  };
  using V = std::vector<float>;
  CHECK(of("reshape %0 : f32[3, 2]") == x);
  CHECK(of("permute %0 {1, 0} : f32[3, 2]") == V{0, 3, 1, 4, 2, 5});
  CHECK(of("slice %0 {1, 2, -1, -2} : f32[2, 2]") == V{5, 3, 2, 0});
  CHECK(of("slice %0 {1, 0, 1, 1} : f32[1, 3]") == V{3, 4, 5});
  CHECK(of("slice %0 {9, 0, 1, 1} : f32[0, 3]").empty());
  CHECK(of("diagonal %0 {0, 0, 1} : f32[2]") == V{0, 4});
  CHECK(of("diagonal %0 {1, 0, 1} : f32[2]") == V{1, 5});
  CHECK(of("diagonal %0 {-1, 0, 1} : f32[1]") == V{3});
  CHECK(of("diagonal %0 {1, 1, 0} : f32[1]") == V{3});
  CHECK(of("pad %0 {1, 0, 1, 2} : f32[3, 6]") == V{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0});
  CHECK(of("pad %0 {1, 2, -1, -1} : f32[2, 3]") == V{5, 4, 3, 2, 1, 0});
  CHECK(run<float>("%0 = input x : f32[2, 3]\n%1 = slice %0 {0, 0, 1, 1} : f32[0, 3]\n%2 = pad %1 {0, 0, 1, 1} : f32[1, 3]\nreturn %2",
                   {view(x, {2, 3})}) == V{0, 0, 0});
  CHECK(run<float>("%0 = input x : f32[1, 3]\n%1 = broadcast %0 : f32[2, 3]\nreturn %1", {view(x, {1, 3})}) == V{0, 1, 2, 0, 1, 2});
  CHECK(run<float>("%0 = input x : f32[3, 1]\n%1 = broadcast %0 : f32[3, 2]\nreturn %1", {view(x, {3, 1})}) == V{0, 0, 1, 1, 2, 2});
  const std::vector<float> y = counting<float>(24);
  CHECK(run<float>("%0 = input x : f32[2, 3, 4]\n%1 = diagonal %0 {0, 0, 2} : f32[3, 2]\nreturn %1", {view(y, {2, 3, 4})}) ==
        V{0, 13, 4, 17, 8, 21});
  CHECK(run<float>("%0 = input x : f32[2, 3, 4]\n%1 = permute %0 {2, 0, 1} : f32[4, 2, 3]\nreturn %1", {view(y, {2, 3, 4})})[9] == 13);
}

TEST_CASE("reference: strided inputs, results that are inputs, several results", "[reference]") {
  const std::vector<std::int64_t> x = counting<std::int64_t>(24);
  const ArrayView transposed{i64, x.data(), {3, 2}, {2, 6}}, backward{i64, x.data() + 5, {3}, {-2}},
      repeated{i64, x.data() + 3, {2, 2}, {0, 0}};
  const std::string text =
      "%0 = input x : i64[3, 2]\n%1 = input y : i64[3]\n%2 = input z : i64[2, 2]\n%3 = add %1, %1 : i64[3]\nreturn %0, %3, %2, %1";
  const std::vector<ArrayView> inputs = {transposed, backward, repeated};
  const std::vector<Buffer> out = evaluate(parse_graph(text), inputs);
  const auto list = [&](std::size_t i) {
    return std::vector<std::int64_t>(out[i].as<std::int64_t>().begin(), out[i].as<std::int64_t>().end());
  };
  CHECK(list(0) == std::vector<std::int64_t>{0, 6, 2, 8, 4, 10});
  CHECK(list(1) == std::vector<std::int64_t>{10, 6, 2});
  CHECK(list(2) == std::vector<std::int64_t>{3, 3, 3, 3});
  CHECK(list(3) == std::vector<std::int64_t>{5, 3, 1});
  CHECK(out[0].shape == Shape{3, 2});
}

TEST_CASE("reference: arguments that do not match the graph are rejected", "[reference]") {
  const Graph g = parse_graph("slot 0 = 1 : f32\n%0 = input x : f32[2]\nreturn %0");
  const std::vector<float> x(3);
  const std::vector<std::uint64_t> two_slots(2);
  const std::vector<ArrayView> good = {view(x, {2})}, long_shape = {view(x, {3})}, other_type = {ArrayView{i32, x.data(), {2}, {}}},
                               bad_strides = {view(x, {2}, {1, 1})};
  CHECK_NOTHROW(evaluate(g, good));
  CHECK_THROWS_AS(evaluate(g, long_shape), InternalError);
  CHECK_THROWS_AS(evaluate(g, other_type), InternalError);
  CHECK_THROWS_AS(evaluate(g, bad_strides), InternalError);
  CHECK_THROWS_AS(evaluate(g, {}), InternalError);
  CHECK_THROWS_AS(evaluate(g, good, two_slots), InternalError);
}

TEST_CASE("reference: bools in bytes, halves in two bytes", "[reference]") {
  const std::uint8_t bytes[] = {0, 1, 2, 255};
  const std::vector<ArrayView> flags = {ArrayView{boolean, bytes, {4}, {}}};
  const Buffer negated = std::move(evaluate(parse_graph("%0 = input b : bool[4]\n%1 = bitwise_not %0 : bool[4]\nreturn %1"), flags)[0]);
  CHECK(std::vector<std::uint8_t>(negated.as<std::uint8_t>().begin(), negated.as<std::uint8_t>().end()) ==
        std::vector<std::uint8_t>{1, 0, 0, 0});

  // 2048 + 1 is not an f16, but inside the program it is f32, so 2049 - 2048 is 1; the output and a cast round it, to even
  const std::uint16_t halves[] = {0x6800, 0x3c00};  // 2048, 1
  const std::vector<ArrayView> x = {ArrayView{f16, halves, {1}, {}}, ArrayView{f16, halves + 1, {1}, {}}};
  const std::vector<Buffer> out = evaluate(parse_graph(R"(
    %0 = input x : f16[1]
    %1 = input y : f16[1]
    %2 = add %0, %1 : f16[1]
    %3 = sub %2, %0 : f16[1]
    %4 = cast %2 : f32[1]
    return %2, %3, %4)"),
                                           x);
  CHECK(out[0].as<std::uint16_t>()[0] == 0x6800);
  CHECK(out[1].as<std::uint16_t>()[0] == 0x3c00);
  CHECK(out[2].as<float>()[0] == 2048.0f);
}

TEST_CASE("reference: sums of zero and one elements and of negative zeros; integers wrap", "[reference]") {
  const std::vector<float> zeros(64, -0.0f);
  const auto sum = [&](Shape shape, Shape result, const char* axes, const char* op) {
    const auto text = [](const Shape& s) {
      std::string t;
      for (auto e : s) t += (t.empty() ? "" : ", ") + std::to_string(e);
      return "[" + t + "]";
    };
    return run<float>("%0 = input x : f32" + text(shape) + "\n%1 = " + op + " %0 {" + axes + "} : f32" + text(result) + "\nreturn %1",
                      {view(zeros, shape)});
  };
  CHECK(std::bit_cast<std::uint32_t>(sum({0}, {}, "0", "reduce_sum")[0]) == 0);
  CHECK(std::bit_cast<std::uint32_t>(sum({3, 0, 2}, {3, 2}, "1", "reduce_sum")[5]) == 0);
  CHECK(std::bit_cast<std::uint32_t>(sum({2, 3, 0, 2}, {3}, "0, 2, 3", "reduce_sum")[2]) == 0);
  CHECK(sum({0}, {}, "0", "reduce_prod")[0] == 1);
  CHECK(std::bit_cast<std::uint32_t>(sum({1}, {}, "0", "reduce_sum")[0]) == 0x80000000);
  CHECK(std::bit_cast<std::uint32_t>(sum({37}, {}, "0", "reduce_sum")[0]) == 0x80000000);
  CHECK(std::bit_cast<std::uint32_t>(sum({5, 3}, {3}, "0", "reduce_sum")[1]) == 0x80000000);
  CHECK(std::bit_cast<std::uint32_t>(sum({5, 3}, {5, 3}, "", "reduce_sum")[1]) == 0x80000000);
  CHECK(sum({2, 0}, {0}, "0", "reduce_sum").empty());
  const std::vector<std::int32_t> k = {std::numeric_limits<std::int32_t>::max(), 1, -5};
  CHECK(run<std::int32_t>("%0 = input k : i32[3]\n%1 = reduce_sum %0 {0} : i32[]\nreturn %1", {view(k, {3})})[0] == 2147483643);
}

TEST_CASE("reference: max and min propagate NaN and respect the sign of zero", "[reference]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {-0.0f, 0.0f, 1, nan, 0.0f, -0.0f, -3, 2};
  const auto rows = run<float>("%0 = input x : f32[4, 2]\n%1 = reduce_max %0 {1} : f32[4]\nreturn %1", {view(x, {4, 2})});
  CHECK(std::bit_cast<std::uint32_t>(rows[0]) == 0);
  CHECK(std::isnan(rows[1]));
  CHECK(std::bit_cast<std::uint32_t>(rows[2]) == 0);
  CHECK(rows[3] == 2);
  const auto least = run<float>("%0 = input x : f32[4, 2]\n%1 = reduce_min %0 {1} : f32[4]\nreturn %1", {view(x, {4, 2})});
  CHECK(std::bit_cast<std::uint32_t>(least[0]) == 0x80000000);
  CHECK(std::isnan(least[1]));
  CHECK(std::bit_cast<std::uint32_t>(least[2]) == 0x80000000);
  const auto columns = run<float>("%0 = input x : f32[4, 2]\n%1 = reduce_max %0 {0} : f32[2]\nreturn %1", {view(x, {4, 2})});
  CHECK(columns[0] == 1);
  CHECK(std::isnan(columns[1]));
  const std::vector<std::int8_t> k = {-128, 127, 3};
  CHECK(run<std::int8_t>("%0 = input k : i8[3]\n%1 = reduce_min %0 {0} : i8[]\nreturn %1", {view(k, {3})})[0] == -128);
}

TEST_CASE("order: the examples of the language page", "[order]") {
  using L = std::vector<std::int64_t>;
  const SumOrder a = sum_order(L{2, 3, 5}, L{0, 2}, f32);
  CHECK((a.lanes && a.last_kept_between == 1 && a.run == 5 && a.padded_run == 8 && a.runs == 2 && a.count == 16));
  const SumOrder b = sum_order(L{2, 3, 5, 4}, L{0, 2}, f32);
  CHECK((!b.lanes && b.last_kept_between == 1 && b.run == 5 && b.padded_run == 8));
  CHECK(sum_order(L{2, 3, 65}, L{0, 2}, f32).padded_run == 128);
  CHECK(sum_order(L{2, 3, 65}, L{0, 2}, f64).padded_run == 96);
  CHECK(sum_order(L{2, 3, 33}, L{0, 2}, f32).padded_run == 64);
  CHECK(sum_order(L{2, 3, 9, 4}, L{0, 2}, f32).padded_run == 16);
  CHECK(sum_order(L{2, 3, 17, 4}, L{0, 2}, f64).padded_run == 24);
  CHECK(sum_order(L{2, 1, 5}, L{0, 2}, f32).last_kept_between == -1);
  CHECK(sum_order(L{1, 3, 5}, L{0, 2}, f32).last_kept_between == -1);
  CHECK(sum_order(L{2, 3, 1}, L{0, 2}, f32).last_kept_between == -1);
  CHECK(!sum_order(L{2, 3, 1}, L{0, 2}, f32).lanes);
  CHECK(sum_order(L{2, 7, 3, 7, 5, 6}, L{0, 2, 4, 5}, f32).last_kept_between == 3);
  CHECK(sum_order(L{2, 7, 3, 7, 5, 6}, L{0, 2, 4, 5}, f32).run == 30);
  CHECK(sum_order(L{5, 7}, L{0}, f32).lanes == false);
  CHECK(sum_order(L{5, 1}, L{0}, f32).lanes);
  CHECK(sum_order(L{}, L{}, f32).count == 1);
  CHECK(sum_order(L{0, 4}, L{0}, f32).count == 0);
  CHECK(sum_order(L{2, 3, 0}, L{0, 2}, f32).count == 0);
  CHECK(b.r_of(4) == 4);
  CHECK(b.r_of(5) == 8);
  CHECK(tree_split(2) == 1);
  CHECK(tree_split(8) == 4);
  CHECK(tree_split(9) == 8);
}

TEST_CASE("reference: a sum equals the definition bit for bit", "[reference][order]") {
  // lengths around multiples of blocks, accumulators and groups
  for (std::int64_t n : {1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 4095, 4096, 4097, 8192, 12289, 30000}) {
    check_order<float>({n}, {0}, 1);
    check_order<double>({n}, {0}, 2);
    check_order<float>({n, 3}, {0}, 3);
    check_order<double>({n, 3}, {0}, 4);
    check_order<float>({2, n, 1}, {1}, 5);
    check_order<float>({2, 3, n}, {0, 2}, 6);
    check_order<double>({2, 3, n}, {0, 2}, 7);
    check_order<float>({3, 2, n, 2}, {0, 2}, 8);
    check_order<double>({n, 2, 5, 2}, {0, 2}, 9);
    check_order<float>({n, 2, 5}, {0, 2}, 10);
    check_order<float>({n}, {0}, 11, true);
    check_order<double>({n, 2, 5, 2}, {0, 2}, 12, true);
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    Shape shape(random() % 6), axes;
    for (std::int64_t& e : shape) e = std::array{1, 1, 2, 3, 5, 9, 17, 40, 0}[random() % (i % 7 ? 8 : 9)];
    while (element_count(shape) > 40000) shape[random() % shape.size()] = 2;
    for (std::size_t k = 0; k < shape.size(); ++k)
      if (random() % 2) axes.push_back(static_cast<std::int64_t>(k));
    check_order<float>(shape, axes, random());
    check_order<double>(shape, axes, random());
    check_order<float>(shape, axes, random(), true);
  }
}

TEST_CASE("reference: the checks of the order detect another order", "[order]") {
  // The same numbers in sequence, and in one pairwise tree, differ from the definition. So the data above depends on the order.
  const std::vector<float> x = rough<float>(5000, 1);
  float sequence = -0.0f;
  for (float v : x) sequence += v;
  const float defined = run<float>("%0 = input x : f32[5000]\n%1 = reduce_sum %0 {0} : f32[]\nreturn %1", {view(x, {5000})})[0];
  CHECK(sequence != defined);
  CHECK(naive_tree(x, false) != defined);
}

TEST_CASE("reference: an expansion gives the same bits at every position", "[reference]") {
  const std::vector<float> x = rough<float>(3000, 9);
  for (const char* op : {"exp", "log", "tanh", "erf"}) {
    const auto all = run<float>(std::string("%0 = input x : f32[3000]\n%1 = ") + op + " %0 : f32[3000]\nreturn %1", {view(x, {3000})});
    for (std::size_t i : {0u, 1u, 511u, 512u, 2999u}) {
      const std::vector<float> one = {x[i]};
      const float alone = run<float>(std::string("%0 = input x : f32[]\n%1 = ") + op + " %0 : f32[]\nreturn %1", {view(one, {})})[0];
      CHECK(std::bit_cast<std::uint32_t>(alone) == std::bit_cast<std::uint32_t>(all[i]));
    }
  }
}
