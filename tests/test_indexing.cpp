// Indexing by data: take, take_along_axis, scatter_add, index_add, cross_entropy. Checks results, numbers of kernels, equal bits in every
// mode, and errors of bad indices.
#include <onepass/onepass.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using op::Array, op::Mode, op::Options;
using op::f16, op::f32, op::f64, op::i32, op::i64;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

namespace {

// Returns valid indices of both signs into an axis of that extent.
Array random_indices(Integers shape, std::int64_t extent, op::DType type = i64, std::uint64_t seed = 3) {
  const std::string text = "cast(floor((x + 1)*0.4999*2*" + std::to_string(extent) + ") - " + std::to_string(extent) + ", " +
                           std::string(op::name_of(type)) + ")";
  return op::formula(text)({random_array(shape, f64, seed)});
}

}  // namespace

TEST_CASE("indexing: results of each operator", "[indexing]") {
  const Array x = Array::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3});
  const auto floats = [&](const char* text, const NamedArrays& inputs) { return same_everywhere(text, inputs).to_vector<float>(); };
  const Array i = Array::from<std::int64_t>({2, -3, 1}), j = Array::from<std::int64_t>({1, -1, 0, 0}, {2, 2});
  CHECK(floats("take(x, i, 1)", {{"x", x}, {"i", i}}) == Floats{3, 1, 2, 6, 4, 5});
  CHECK(floats("take(x, j, 0)[:, 1, 2]", {{"x", x}, {"j", j}}) == Floats{6, 3});
  CHECK(floats("take_along_axis(x, j, 1)", {{"x", x}, {"j", j}}) == Floats{2, 3, 4, 4});
  CHECK(floats("take_along_axis(x, j[:1, :1], 1)", {{"x", x}, {"j", j}}) == Floats{2, 5});
  const Array u = Array::from({10.0f, 20.0f, 30.0f, 40.0f}, {2, 2});
  CHECK(floats("scatter_add(x, j, u, 1)", {{"x", x}, {"j", j}, {"u", u}}) == Floats{1, 12, 23, 74, 5, 6});
  CHECK(floats("index_add(x, k, u, 1)", {{"x", x}, {"k", Array::from<std::int64_t>({-1, 0})}, {"u", u}}) == Floats{21, 2, 13, 44, 5, 36});
  // adds in increasing order of the indices, starting with x
  const Array big = Array::from({1e8f, 1.0f, -1e8f, 3.0f}), zeros = Array::from<std::int64_t>({0, 0, 0, 0});
  CHECK(floats("index_add(x, k, u, 0)", {{"x", Array::from({0.5f})}, {"k", zeros}, {"u", big}}) ==
        Floats{(((0.5f + 1e8f) + 1.0f) - 1e8f) + 3.0f});
  CHECK(same_everywhere("index_add(zeros([3], i64), k, 1, 0)", {{"k", Array::from<std::int64_t>({2}, {})}}).to_vector<std::int64_t>() ==
        Integers{0, 0, 1});
  // a rank-0 index removes the axis
  CHECK(op::formula("take(x, k, 0)")({x, Array::from<std::int64_t>({1}, {})}).operator Array().shape().size() == 1);
}

TEST_CASE("indexing: equal bits in every mode, types and views on both sides", "[indexing]") {
  const Array x = random_array({20, 37}), v = random_array({37});
  const Array rows = random_indices({70}, 20), columns = random_indices({4, 9}, 37), along = random_indices({20, 50}, 37);
  const NamedArrays all = {{"x", x},
                           {"v", v},
                           {"r", rows},
                           {"c", columns},
                           {"a", along},
                           {"u", random_array({70, 37})},
                           {"w", random_array({20, 50})},
                           {"s", random_indices({70}, 20, op::DType::I8)},
                           {"p", random_indices({50}, 70)}};
  for (const char* formula : {"take(x, r, 0)",
                              "take(x, s, 0)*v",
                              "take(x, c, 1)",
                              "take(x, c, -1)[2, 1:]",
                              "take(transpose(x)[1:, ::2], r%9, 1)",
                              "transpose(take(x, r, 0))*2",
                              "take(x, r, 0)[::-3] + v",
                              "take(x[::-1], r, 0)",
                              "take(reshape(x, [-1]), r + 20, 0)",
                              "take(pad(x, [1, 0], [1, 0]), r, 0)",
                              "take(exp(x)*v, r, 0)",
                              "take(take(x, r, 0), p, 0)",
                              "take(x, take(r, p, 0), 0)",
                              "sum(take(x, r, 0)*v, 1)",
                              "sum(take(x, r, 0), 0)",
                              "max(take(x, c, 1), 2)",
                              "take(iota([20, 3], 0), r, 0)",
                              "take(x > 0, r, 0)",
                              "take(cast(x, f16), r, 0)*v",
                              "take(x, cast(abs(x[:, 0])*19, i32), 0)",
                              "take(x, cast(sum(abs(x), 1), i32)%20, 0)",
                              "take_along_axis(x, a, 1)",
                              "take_along_axis(x, a[:, :1], 1)*v",
                              "take_along_axis(v[none], a, 1)",
                              "take_along_axis(x, a[:1], 1)",
                              "cumsum(take_along_axis(x, a, 1), 1)",
                              "concat([take(x, r, 0), u], 0)",
                              "scatter_add(x, a, w, 1)",
                              "scatter_add(x*v, a, w*2, 1) + v",
                              "index_add(x, r, u*v, 0)",
                              "index_add(zeros([20, 37]), r, u, 0)",
                              "index_add(zeros([37]), c, reshape(w[:, :9], [4, 5, 9])[:, 0], 0)",
                              "index_add(cast(x, f16), r, cast(u, f16), 0)",
                              "sum(index_add(x, r, u, 0), 1)",
                              "take(index_add(x, r, u, 0), r, 0)",
                              "cumsum(index_add(x, r, u, 0), 1)",
                              "index_add(transpose(x), r, transpose(u), 1)",
                              "index_add(cast(x*9, i8), r, cast(u*99, i8), 0)",
                              "t = index_add(x, r, u, 0); stack([t, t*2])"})
    same_everywhere(formula, all);
}

TEST_CASE("indexing: threads partition a scatter by destination if no other axis is wide enough", "[indexing]") {
  const std::int64_t n = 60'000;
  const Array many = random_indices({n}, 5'000), few = random_indices({n}, 7),
              skewed = op::formula("(i + 5000)%5000*(i%3 == 0)")({{"i", many}});
  const NamedArrays all = {{"x", random_array({5'000})},
                           {"i", many},
                           {"k", skewed},
                           {"f", few},
                           {"u", random_array({n})},
                           {"v", random_array({5'000, 3})},
                           {"w", random_array({n, 3})},
                           {"s", random_array({3, n})},
                           {"t", random_array({3, 5'000})},
                           {"m", random_array({2'500, 200})},
                           {"a", random_array({5'000, 200})},
                           {"p", op::formula("abs(i[:5000])%2500")({{"i", many}})},
                           {"q", op::formula("reshape(i, [300, 200])")({{"i", many}})},
                           {"z", random_array({300'000})},
                           {"o", random_indices({n}, 300'000)}};
  for (const char* formula : {"index_add(x, i, u, 0)",
                              "index_add(x, k, exp(u), 0)",
                              "index_add(x[:7], f, u, 0)",  // too few rows to partition
                              "index_add(z, o, u, 0)",      // larger than the second-level cache
                              "index_add(z, o%1000, u, 0)",
                              "index_add(z, cast(o, i32)[::-1], exp(u), 0)",
                              "index_add(cast(z, f64), reshape(o, [300, 200]), 1.5*reshape(cast(u, f64), [300, 200]), 0)",
                              "index_add(z, transpose(q), transpose(reshape(u, [300, 200])), 0)",
                              "scatter_add(x, i, u*2, 0) + x",
                              "index_add(v, i, w, 0)",
                              "index_add(v, k, w, 0)",
                              "index_add(t, i, s, 1)",
                              "index_add(t, i[::-1], s, 1)",
                              "index_add(m, p, a, 0)",
                              "index_add(cast(v, f16), i, cast(w, f16), 0)",
                              "index_add(zeros([5000], i32), i, cast(u*9, i32), 0)",
                              "index_add(cast(x*99, i8), i, cast(u*99, i8), 0)",
                              "index_add(x, q, reshape(u, [300, 200]), 0)",
                              "index_add(x, transpose(q), transpose(reshape(u, [300, 200])), 0)",
                              "scatter_add(t, reshape(i[:30000], [3, 10000]), s[:, :10000], 1)",
                              "dx = grad(sum(take(x, i, 0)*u), [x])"})
    same_everywhere(formula, all);
  // a bad index in any thread's range is found
  for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1})
    for (const int threads : {1, 2, 3, 7}) {
      std::vector<std::int64_t> bad = many.to_vector<std::int64_t>();
      bad[static_cast<std::size_t>(at)] = 5'000;
      CHECK_THAT(error_of("index_add(v, i, w, 0)", {{"v", all[5].second}, {"i", Array::from(std::move(bad))}, {"w", all[6].second}},
                          {.mode = Mode::generic, .threads = threads}),
                 Contains("index_add: the index 5000 at [" + std::to_string(at) + "] is out of range: axis 0 has extent 5000"));
    }
}

TEST_CASE("indexing: a gather and the code around it are one kernel", "[indexing]") {
  const Array x = random_array({200, 64}), r = random_indices({300}, 200), labels = random_indices({200}, 64);
  const NamedArrays all = {{"x", x}, {"r", r}, {"l", labels}, {"v", random_array({64})}};
  CHECK(kernels("exp(take(x*v, r, 0))", all) == 2);  // the indexed array must be materialized
  CHECK(kernels("exp(take(x, r, 0))*v + 1", all) == 1);
  CHECK(kernels("sum(take(x[:, ::-1], r, 0)*v, 1)", all) == 1);
  CHECK(kernels("take(x, r, 0)[5:, 2]", all) == 2);  // all indices are checked, even indices of unused rows
  const NamedArrays classes = {{"x", x}, {"l", op::formula("(l + 64)%64")({labels})}, {"v", random_array({64})}};
  for (const char* formula : {"cross_entropy(x, l)", "cross_entropy(x*2 + v, l)"}) {
    CHECK(kernels(formula, classes) == 1);
    same_everywhere(formula, classes);
    same_everywhere("mean(" + std::string(formula) + ")", classes);
  }
  const Array loss = same_everywhere("cross_entropy(x, l)", classes),
              other = same_everywhere("-take_along_axis(log_softmax(x), l[:, none], 1)[:, 0]", classes);
  CHECK(bytes_of(loss) == bytes_of(other));
  same_everywhere("cross_entropy(transpose(x), l, axis=0)", classes);
}

TEST_CASE("indexing: derivatives", "[indexing]") {
  const Array x = Array::from({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {2, 3}), i = Array::from<std::int64_t>({1, 1, -2});
  const auto doubles = [&](const char* text, const NamedArrays& inputs) { return same_everywhere(text, inputs).to_vector<double>(); };
  using Doubles = std::vector<double>;
  const Array w = Array::from({1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}, {3, 3});
  CHECK(doubles("dx = grad(sum(take(x, i, 0)*w), [x])", {{"x", x}, {"i", i}, {"w", w}}) == Doubles{7, 8, 9, 5, 7, 9});
  const Array one = Array::from<std::int64_t>({2, 0}, {2, 1}), two = Array::from<std::int64_t>({2, 2, 0, 1}, {2, 2});
  CHECK(doubles("dx = grad(sum(take_along_axis(x, i, 1)), [x])", {{"x", x}, {"i", one}}) == Doubles{0, 0, 1, 1, 0, 0});
  CHECK(doubles("dx = grad(sum(take_along_axis(x, i, 1)), [x])", {{"x", x}, {"i", two}}) == Doubles{0, 0, 2, 1, 1, 0});
  const Array u = Array::from({1.0, 2.0, 3.0, 4.0}, {2, 2});
  CHECK(doubles("du = grad(sum(scatter_add(x, i, u, 1)*x), [u])", {{"x", x}, {"i", two}, {"u", u}}) == Doubles{3, 3, 4, 5});
  CHECK(doubles("dx = grad(sum(scatter_add(x, i, u, 1)*3), [x])", {{"x", x}, {"i", two}, {"u", u}}) == Doubles{3, 3, 3, 3, 3, 3});
  CHECK(doubles("du = grad(sum(index_add(x, i, u, 1)*x), [u])", {{"x", x}, {"i", Array::from<std::int64_t>({2, 0})}, {"u", u}}) ==
        Doubles{3, 1, 6, 4});
  const Array g = same_everywhere("dx = grad(sum(cross_entropy(x, l)), [x])", {{"x", x}, {"l", Array::from<std::int64_t>({0, 2})}});
  const std::vector<double> slopes = g.to_vector<double>();
  const double s = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  CHECK(slopes[0] == Approx(std::exp(1.0) / s - 1));
  CHECK(slopes[5] == Approx(std::exp(3.0) / s - 1));
}

TEST_CASE("indexing: a result that is stored as a view is computed again by kernels that read the value under it", "[indexing]") {
  const char* const text = R"(fn f(k, x) {
    a = scatter_add(zeros([3, 2, 7]), k, x, 0)
    m = max(a, 1, keepdims=true)
    b = scatter_add(ones([3, 2, 7]), k, x*2, 0)
    y = where(x == m, b, 0)
    return y, m, b
  })";
  const Array k = Array::from(Integers(14, 1), {1, 2, 7}), x = random_array({1, 2, 7});
  const op::Formula f = op::formula(text, {.mode = Mode::generic});
  const op::FormulaResults got = f({k, x}), expected = op::formula(text, {.mode = Mode::reference})({k, x});
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(bytes_of(got[i]) == bytes_of(expected[i]));
  CHECK(f.stats().fallbacks == 0);
}

TEST_CASE("indexing: a bad index is an error of the call in every mode, and no result is written", "[indexing]") {
  const Array x = random_array({5, 7});
  const auto check = [&](const char* text, const Array& i, const char* message, const Array& u = Array::from({1.0f})) {
    std::vector<Options> all = modes_of_kernels();
    all.push_back({.mode = Mode::reference});
    for (const Options& options : all) {
      INFO(text << " in mode " << static_cast<int>(options.mode));
      CHECK_THAT(error_of(text, {{"x", x}, {"i", i}, {"u", u}}, options), Contains(message));
    }
  };
  const auto indices = [](std::vector<std::int64_t> values, Integers shape) { return Array::from(std::move(values), shape); };
  check("take(x, i, 0)", indices({0, -5, 4, 5, -6, 9}, {2, 3}), "take: the index 5 at [1, 0] is out of range: axis 0 has extent 5");
  check("y = x*2\ntake(y, i, 0)", indices({9}, {1}), "axis 0 has extent 5\n  Recorded at formula:2.");
  check("take(x, i, 1)[0:1, 0]", indices({0, -8}, {2}), "take: the index -8 at [1] is out of range: axis 1 has extent 7");
  check("take(x, i, 1)[0:0]", indices({7}, {1}), "take: the index 7 at [0]");
  check("where(x[0] > 2, sum(take(x, i, 0)), 1)", indices({7}, {}), "take: the index 7 at [] is out of range");
  // All indices read the same value.
  check("take(broadcast_to(x[0], [5, 7]), i, 0)", indices({0, 5}, {2}), "take: the index 5 at [1] is out of range: axis 0 has extent 5");
  check("take(zeros([5, 7]), i, 0)*x[0, 0]", indices({5}, {1}), "take: the index 5 at [0] is out of range: axis 0 has extent 5");
  check("take_along_axis(transpose(tile(x[:1], [2, 1])), i, 1)", indices({1, 2}, {1, 2}),
        "take_along_axis: the index 2 at [0, 1] is out of range: axis 1 has extent 2");
  check("y = reshape(x[:1, :4], [1, 2, 2])*1; v = take_along_axis(y, argsort(y, -2), 0); dot(v, v) + i", indices({0}, {1}),
        "take_along_axis: the index 1 at [0, ");
  check("y = x[:1]*2; grad(mean(take(y, i, 0)), [y])", indices({0, 1}, {2}),
        "take: the index 1 at [1] is out of range: axis 0 has extent 1");
  check("sum(take(repeat(x[0], 3, 0), i, 0))", indices({21}, {1}), "take: the index 21 at [0] is out of range: axis 0 has extent 21");
  check("take(x[:, :0], i, 1)", indices({0}, {1}), "take: the index 0 at [0] is out of range: axis 1 has extent 0");
  check("take_along_axis(x, i, 1)", indices({0, 9223372036854775807, 1, 2, -9223372036854775807 - 1}, {5, 1}),
        "take_along_axis: the index 9223372036854775807 at [1, 0]");
  check("take_along_axis(x, cast(i, u64), 1)", indices({0, -1, 1, 2, 3}, {5, 1}), "the index 18446744073709551615 at [1, 0]");
  check("scatter_add(x, i, i*1.0, 0)", indices({0, 1, 2, 3, 4, 5, 0}, {1, 7}), "scatter_add: the index 5 at [0, 5]");
  check("index_add(x, i, x[:2], 0)", indices({4, 5}, {2}), "index_add: the index 5 at [1] is out of range: axis 0 has extent 5");
  check("cross_entropy(x, i)", indices({0, 1, 2, 7, 8}, {5}),
        "cross_entropy: the label 7 of sample [3] is out of range: there are 7 classes");
  check("cross_entropy(x*2, i)", indices({0, 1, 2, 7, 8}, {5}), "cross_entropy: the label 7 of sample [3]");
  check("cross_entropy(x @ transpose(x), i)", indices({0, 1, -5, 5, 4}, {5}), "cross_entropy: the label 5 of sample [3]");
  check("cross_entropy(x @ transpose(x), i)", indices({0, 1, -6, 2, 4}, {5}), "cross_entropy: the label -6 of sample [2]");
  check("a = take(x, i, 1); b = take(x, i, 0)", indices({9}, {1}), "take: the index 9 at [0] is out of range: axis 1");
  check("grad(sum(take(x, i, 0)), [x])", indices({1, 5}, {2}), "take: the index 5 at [1]");

  // still usable; unused values are not evaluated
  const op::Formula f = op::formula("take(x, i, 0)");
  for (int k = 0; k < 5; ++k) {
    CHECK_THROWS_AS(f({x, indices({5}, {1})}), op::IndexError);
    CHECK(Array(f({x, indices({4}, {1})})).to_vector<float>() == Array(op::formula("x[4:]")({x})).to_vector<float>());
  }
  const op::Formula two = op::formula("a = take(x, i, 0); b = x*2");
  Array b = Array::zeros({5, 7}, f32);
  two.into({{"b", b}}, {{"x", x}, {"i", indices({50}, {1})}});
  CHECK(error_of("take(x, i, 0).shape[0]", {{"x", x}, {"i", indices({50}, {1})}}) == "no error");
  // a result may overwrite the indices, although the error message reads them again
  const Array i = indices({3, 60, 1}, {3});
  const op::Formula over = op::formula("y = i + 1; z = take(x, i, 0)");
  Array z = Array::zeros({3, 7}, f32);
  try {
    over.into({{"y", i}, {"z", z}}, {{"i", i}, {"x", x}});
    FAIL("no error");
  } catch (const op::IndexError& e) { CHECK_THAT(e.what(), Contains("the index 60 at [1]")); }
}

TEST_CASE("indexing: bad shapes and types", "[indexing]") {
  const NamedArrays all = {{"x", random_array({5, 7})}, {"i", random_indices({3}, 5)}, {"k", random_array({})}, {"f", random_array({3})}};
  const auto says = [&](const char* text, const char* message) {
    INFO(text);
    CHECK_THAT(error_of(text, all), Contains(message));
  };
  says("take(x, f, 0)", "take: the indices f f32[3] must be integers");
  says("take(x, true, 0)", "must be integers");
  says("take(x, i, 2)", "take: axis 2 is out of range for rank 2");
  says("take(k, i, 0)", "take: k f32[] has no axis to take from");
  says("take_along_axis(x, i, 0)", "take_along_axis: x f32[5, 7] and the indices i i64[3] must have the same rank");
  says("take_along_axis(x, i[:, none], 1)", "do not broadcast: axis 0 has 5 and 3 elements");
  says("scatter_add(x, i, f, 0)", "scatter_add: the indices i i64[3] and the updates f f32[3] must have one shape");
  says("scatter_add(x, cast(x, i32), x[1:], 0)", "scatter_add: the indices");
  says("index_add(x, i, f, 0)", "index_add: the updates f f32[3] must have the shape [3, 7]");
  says("index_add(x > 0, i, x[:3] > 0, 0)", "index_add: bool cannot be added");
  says("cross_entropy(x, x[:, 0])", "cross_entropy: the labels f32[5] must be integers");
  says("cross_entropy(x, i)", "cross_entropy: the labels i i64[3] must have the shape [5]");
  says("cross_entropy(x, i, 7)", "cross_entropy: axis 7 is out of range");
}

TEST_CASE("indexing: with one index, fused with any code", "[indexing]") {
  for (const std::int64_t place : {0, 1, 2, -1}) {
    const NamedArrays all = {
        {"x", random_array({3, 3, 5})}, {"k", Array::from(Integers{place}, {})}, {"one", Array::from(Integers{place}, {1})}};
    for (const char* formula :
         {"sum(take(x, k, 1), 0)", "sum(take(x, one, 1), 0)", "a = take(x, k, 1); b = sum(a, 0); c = a*2; d = sum(a, 1); f = sum(a)",
          "a = take(x, k, 1); b = a + 1; c = sum(a)", "max(take(x, k, 2), 1)", "cumsum(take(x, k, 1), 0)",
          "a = softmax(take(x, k, 1)); b = sum(take(x, one, 0), 1)", "matmul(take(x, k, 1), transpose(take(x, k, 1)))"})
      same_everywhere(formula, all);
  }
}

TEST_CASE("indexing: with indices from a transposed array, into an axis of one element", "[indexing]") {
  for (const std::int64_t n : {4, 33, 70}) {
    const Array transposed = random_array({1, 4, n}).transpose();
    for (const char* formula :
         {"take_along_axis(a, argmax(a, 2, keepdims=true), 2)", "take_along_axis(a, argmax(a, 2, keepdims=true), 2)*a + 1"})
      same_everywhere(formula, {{"a", transposed}});
  }
}

TEST_CASE("indexing: gathered rows, several of which are multiplied by one value", "[indexing]") {
  const NamedArrays all = {{"a", random_array({16, 16})}, {"b", random_array({16, 40})}, {"k", random_indices({16}, 16)}};
  for (const char* formula :
       {"einsum(\"ij,ij->i\", take(a, k, 0), take(a, k, 1))", "(a + 1) @ transpose(take_along_axis(a, argmax(a, 0, keepdims=true), 0))",
        "v = take_along_axis(a, argmax(a, 1, keepdims=true), 1); y = einsum(\"ij,kj->ki\", v, v)",
        "take(b, k, 0) @ transpose(take(b, k, 0)*2)", "einsum(\"ij,kj->ik\", b, take(b, k, 0))"})
    same_everywhere(formula, all);
}

// Only a part of the result is used, so the indices are checked and stored first. Several rows of the product then run together, and the
// index of their matrix is loaded inside the loop over the sum.
TEST_CASE("indexing: products of gathered matrices and gathered rows, of which a part is used", "[indexing]") {
  for (const std::int64_t n : {5, 16, 33}) {
    INFO("n = " << n);
    const NamedArrays all = {
        {"z", random_array({3, n, n})}, {"m", random_array({8, n})}, {"i", random_indices({8}, 3)}, {"p", random_indices({8, n}, n)}};
    for (const char* product : {"\"bij,bj->bi\", take(z*2, i, 0), take_along_axis(m, p, 1)",
                                "\"bij,bi->bj\", take(z*2, i, 0), take_along_axis(m, p, 1)", "\"bij,bj->bi\", take(z*2, i, 0), m"})
      same_everywhere("scatter_add(m*0, p, einsum(" + std::string(product) + "), 1)[:, 1]", all);
  }
}

TEST_CASE("indexing: views of a scatter's result, next to values computed from it", "[indexing]") {
  const NamedArrays all = {{"x", random_array({4, 5})}, {"k", random_indices({4, 5}, 5)}};
  for (const char* formula :
       {"v = scatter_add(x, k, x, 1); a = v*2; b = reshape(v, [-1])", "v = scatter_add(x, k, x, 1); a = v*2; b = v[:, none, :]; c = a + v",
        "v = scatter_add(x, k, x, 1); a = v[::-1]; b = transpose(v); c = reshape(v, [-1])*3; d = reshape(v, [2, 10])"})
    same_everywhere(formula, all);
}

TEST_CASE("indexing: along an axis of one element", "[indexing]") {
  const NamedArrays all = {
      {"x", random_array({1, 1})}, {"y", random_array({3, 1})}, {"i", random_indices({2, 1}, 1)}, {"j", random_indices({300}, 1)}};
  for (const char* formula :
       {"take(x, i, 1)", "take(x, j, 0)*2", "sum(take(y, j, 1), 0)", "take_along_axis(x, i, 0)", "cummax(take(y, i, 1)[:, :, 0], 0)"})
    same_everywhere(formula, all);
  // The element is the same in all rows, but the checked index differs.
  const Array row = random_array({1, 40}), places = random_indices({7, 40}, 1);
  same_everywhere("argmax(take_along_axis(row, i, 0), 0, keepdims=true)", {{"row", row}, {"i", places}});
  std::vector<std::int64_t> beyond(7 * 40, 0);
  beyond[3 * 40 + 39] = 1;
  CHECK_THROWS_AS(op::formula("argmax(take_along_axis(row, i, 0), 0, keepdims=true)")({row, Array::from(std::move(beyond), {7, 40})}),
                  op::IndexError);
}
