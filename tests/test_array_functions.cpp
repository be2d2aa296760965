// Arrays made of numbers, statistics, sorting, windows and writing into arrays. Checks that C++ functions and formulas record the same
// graph. Also checks numbers of kernels, error texts, and equal bits in every mode and thread count. test_numpy_patterns.py compares values
// with NumPy's.
#include <onepass/onepass.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "every_mode.h"

using namespace onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;

TEST_CASE("array functions: C++ functions and formulas give the same results", "[functions]") {
  const Array x = random_array({5, 7}), v = random_array({7}), w = random_array({7}, f32, 3),
              k = formula("cast(x*3, i32)")({random_array({9})});
  const NamedArrays all = {{"x", x}, {"v", v}, {"w", w}, {"k", k}};
  using F = std::function<Tensor(Tensor, Tensor, Tensor, Tensor)>;
  const std::pair<const char*, F> cases[] = {
      {"arange(7) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(7) * v; }},
      {"arange(1, 8) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(1, 8) * v; }},
      {"arange(7, 0, -1, f64) * v", [](Tensor, Tensor v, Tensor, Tensor) { return arange(7, 0, -1, f64) * v; }},
      {"linspace(0, 1, 7, endpoint=false) + v", [](Tensor, Tensor v, Tensor, Tensor) { return linspace(0, 1, 7, false) + v; }},
      {"linspace(v[0], w[0], 3)", [](Tensor, Tensor v, Tensor w, Tensor) { return linspace(v[0], w[0], 3); }},
      {"eye(5, 7, -1) + x", [](Tensor x, Tensor, Tensor, Tensor) { return eye(5, 7, -1) + x; }},
      {"eye(4)", [](Tensor, Tensor, Tensor, Tensor) { return eye(4); }},
      {"tri(5, 7, 2, f64) * x", [](Tensor x, Tensor, Tensor, Tensor) { return tri(5, 7, 2, f64) * x; }},
      {"tril(x, 1) - triu(x)", [](Tensor x, Tensor, Tensor, Tensor) { return tril(x, 1) - triu(x); }},
      {"diag(v, -2)", [](Tensor, Tensor v, Tensor, Tensor) { return diag(v, -2); }},
      {"trace(x, 1)", [](Tensor x, Tensor, Tensor, Tensor) { return trace(x, 1); }},
      {"a, b = meshgrid(v, w); out = a - b", [](Tensor, Tensor v, Tensor w, Tensor) { const auto g = meshgrid({v, w}); return g[0] - g[1]; }},
      {"a, b = meshgrid(v, w, indexing=\"ij\"); out = a - b",
       [](Tensor, Tensor v, Tensor w, Tensor) { const auto g = meshgrid({v, w}, "ij"); return g[0] - g[1]; }},
      {"pad(x, [1, 2], [3, 4], mode=\"reflect\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Reflect); }},
      {"pad(x, [1, 2], [3, 4], mode=\"wrap\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Wrap); }},
      {"pad(x, [1, 2], [3, 4], mode=\"edge\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Edge); }},
      {"pad(x, [1, 2], [3, 4], mode=\"symmetric\")", [](Tensor x, Tensor, Tensor, Tensor) { return pad(x, {1, 2}, {3, 4}, PadMode::Symmetric); }},
      {"nansum(log(x), 0)", [](Tensor x, Tensor, Tensor, Tensor) { return nansum(log(x), 0); }},
      {"nanprod(log(x), 1, keepdims=true)", [](Tensor x, Tensor, Tensor, Tensor) { return nanprod(log(x), 1, true); }},
      {"nanmax(log(x), 0) - nanmin(log(x), 0)", [](Tensor x, Tensor, Tensor, Tensor) { return nanmax(log(x), 0) - nanmin(log(x), 0); }},
      {"nanmean(log(x)) + nanstd(log(x), 0, 1)", [](Tensor x, Tensor, Tensor, Tensor) { return nanmean(log(x)) + nanstd(log(x), 0, 1); }},
      {"nanvar(log(x), 1)", [](Tensor x, Tensor, Tensor, Tensor) { return nanvar(log(x), 1); }},
      {"average(x, 1, v)", [](Tensor x, Tensor v, Tensor, Tensor) { return average(x, 1, v); }},
      {"cov(v, w, ddof=0)", [](Tensor, Tensor v, Tensor w, Tensor) { return cov(v, w, true, 0); }},
      {"corrcoef(x, rowvar=false)", [](Tensor x, Tensor, Tensor, Tensor) { return corrcoef(x, none, false); }},
      {"diff(x, 2, 0, append=0)", [](Tensor x, Tensor, Tensor, Tensor) { return diff(x, 2, 0, none, 0); }},
      {"gradient(x, 0.5, axis=-1, edge_order=2)", [](Tensor x, Tensor, Tensor, Tensor) { return gradient(x, 0.5, -1, 2); }},
      {"trapezoid(x, v)", [](Tensor x, Tensor v, Tensor, Tensor) { return trapezoid(x, v); }},
      {"trapezoid(x, dx=2, axis=0)", [](Tensor x, Tensor, Tensor, Tensor) { return trapezoid(x, none, 2, 0); }},
      {"bincount(abs(k), 5)", [](Tensor, Tensor, Tensor, Tensor k) { return bincount(abs(k), 5); }},
      {"c, d = histogram(v, 4, [-1, 1], weights=w); out = c*d[1:]",
       [](Tensor, Tensor v, Tensor w, Tensor) { const Histogram h = histogram(v, 4, -1, 1, w); return h.counts * h.edges[Range{1, {}}]; }},
      {"c, d = histogram(v, density=true); out = c*d[1:]",
       [](Tensor, Tensor v, Tensor, Tensor) { const Histogram h = histogram(v, 10, none, none, none, true); return h.counts * h.edges[Range{1, {}}]; }},
      {"sort(x)", [](Tensor x, Tensor, Tensor, Tensor) { return sort(x); }},
      {"sort(x, 0, descending=true) * 2", [](Tensor x, Tensor, Tensor, Tensor) { return sort(x, 0, true) * 2; }},
      {"argsort(x*x, 0)", [](Tensor x, Tensor, Tensor, Tensor) { return argsort(x * x, 0); }},
      {"a, b = topk(x, 3); out = a + b", [](Tensor x, Tensor, Tensor, Tensor) { const TopK t = topk(x, 3); return t.values + t.indices; }},
      {"a, b = topk(x, 2, 0, largest=false); out = a + b",
       [](Tensor x, Tensor, Tensor, Tensor) { const TopK t = topk(x, 2, 0, false); return t.values + t.indices; }},
      {"x - median(x, 1, keepdims=true)", [](Tensor x, Tensor, Tensor, Tensor) { return x - median(x, 1, true); }},
      {"nanmedian(log(x), 0)", [](Tensor x, Tensor, Tensor, Tensor) { return nanmedian(log(x), 0); }},
      {"quantile(x, 0.3, 0)", [](Tensor x, Tensor, Tensor, Tensor) { return quantile(x, 0.3, 0); }},
      {"quantile(x, abs(v), 1)", [](Tensor x, Tensor v, Tensor, Tensor) { return quantile(x, abs(v), 1); }},
      {"nanquantile(log(x), 0.7)", [](Tensor x, Tensor, Tensor, Tensor) { return nanquantile(log(x), 0.7); }},
      {"searchsorted(sort(v), x)", [](Tensor x, Tensor v, Tensor, Tensor) { return searchsorted(sort(v), x); }},
      {"searchsorted(sort(k), k, \"right\")", [](Tensor, Tensor, Tensor, Tensor k) { return searchsorted(sort(k), k, true); }},
      {"sliding_window(x, [2, 3])", [](Tensor x, Tensor, Tensor, Tensor) { return sliding_window(x, {2, 3}); }},
      {"sum(sliding_window(x, 2, 1, step=2, spacing=3), -1)",
       [](Tensor x, Tensor, Tensor, Tensor) { return sum(sliding_window(x, {2}, 1, 2, 3), -1); }},
      {"correlate(x, x[:2, :3])", [](Tensor x, Tensor, Tensor, Tensor) { return correlate(x, x[{Range{{}, 2}, Range{{}, 3}}]); }},
      {"convolve(v, w, \"same\")", [](Tensor, Tensor v, Tensor w, Tensor) { return convolve(v, w, Overlap::Same); }},
      {"convolve(x, v[:3], axis=1)", [](Tensor x, Tensor v, Tensor, Tensor) { return convolve(x, v[Range{{}, 3}], Overlap::Full, 1); }},
      {"put(x, [1:3, 0], v[:2])", [](Tensor x, Tensor v, Tensor, Tensor) { return x.at({Range{1, 3}, 0}).set(v[Range{{}, 2}]); }},
      {"put(x, [..., ::-2], 2, \"add\")", [](Tensor x, Tensor, Tensor, Tensor) { return x.at({Ellipsis, Range{{}, {}, -2}}).add(2); }},
      {"put(k, [2:], v[0], \"max\")", [](Tensor, Tensor v, Tensor, Tensor k) { return put(k, {Range{2, {}}}, v[0], PutMode::Max); }},
      {"put(x, -1, v*2, mode=\"min\")", [](Tensor x, Tensor v, Tensor, Tensor) { return x.at({-1}).min(v * 2); }},
      {"put(x, [:], x, \"mul\")", [](Tensor x, Tensor, Tensor, Tensor) { return x.at({All}).mul(x); }},
      {"index_update(v, abs(k) % 7, arange(9)*0.5, 0)",
       [](Tensor, Tensor v, Tensor, Tensor k) { return index_update(v, abs(k) % 7, arange(9) * 0.5, 0); }},
      {"scatter(v, abs(k) % 7, cast(k, f32), 0, \"min\")",
       [](Tensor, Tensor v, Tensor, Tensor k) { return scatter(v, abs(k) % 7, cast(k, f32), 0, PutMode::Min); }},
      {"scatter(v, abs(k) % 7, k, 0, \"add\")", [](Tensor, Tensor v, Tensor, Tensor k) { return scatter(v, abs(k) % 7, k, 0, PutMode::Add); }},
      {"masked_fill(x, v > 0, -1)", [](Tensor x, Tensor v, Tensor, Tensor) { return masked_fill(x, v > 0, -1); }},
      {"a, b = compress(x > 0, x); out = a + b",
       [](Tensor x, Tensor, Tensor, Tensor) { const Compressed c = compress(x > 0, x); return c.values + c.count; }},
      {"a, b = compress(v > 0, x, 1, 9); out = a*b",
       [](Tensor x, Tensor v, Tensor, Tensor) { const Compressed c = compress(v > 0, x, 1, 9); return c.values * c.count; }},
      {"sum(x, 0)", [](Tensor x, Tensor, Tensor, Tensor) { return x.sum(0); }},
      {"sum(x) + mean(x, 1, keepdims=true)", [](Tensor x, Tensor, Tensor, Tensor) { return x.sum() + x.mean(1, true); }},
      {"max(x, 0) - min(x, 0)", [](Tensor x, Tensor, Tensor, Tensor) { return x.max(0) - x.min(0); }},
      {"prod(x, [0, 1]) + argmax(x, 1) + argmin(x)",
       [](Tensor x, Tensor, Tensor, Tensor) { return x.prod({0, 1}) + x.argmax(1) + x.argmin(); }},
      {"any(x > 0, 0) & all(x < 1)", [](Tensor x, Tensor, Tensor, Tensor) { return (x > 0).any(0) & (x < 1).all(); }},
      {"var(x, 1, ddof=1) + std(x)", [](Tensor x, Tensor, Tensor, Tensor) { return x.var(1, 1) + x.std(); }},
      {"cumsum(x, 0) * cumprod(x, 1, reverse=true)", [](Tensor x, Tensor, Tensor, Tensor) { return x.cumsum(0) * x.cumprod(1, true); }},
      {"ndtr(x) - ndtri(abs(x))", [](Tensor x, Tensor, Tensor, Tensor) { return ndtr(x) - ndtri(abs(x)); }},
  };
  for (const auto& [text, f] : cases) {
    INFO(text);
    const Array expected = same_everywhere(text, all);
    const Array got = compile([f = f](Tensor x, Tensor v, Tensor w, Tensor k) { return f(x, v, w, k); })(x, v, w, k);
    CHECK(got.dtype() == expected.dtype());
    CHECK(std::ranges::equal(got.shape(), expected.shape()));
    CHECK(bytes_of(got) == bytes_of(expected));
  }
}

TEST_CASE("array functions: arrays made of numbers are not materialized", "[functions]") {
  const Array x = random_array({64, 64});
  for (const char* text : {"sum(tril(x) * arange(64), 1)", "x + eye(64) + tri(64)", "linspace(0, 1, 64) * x", "diag(x[0]) + x",
                           "a, b = meshgrid(arange(64), arange(64)); out = x*cast(a + b, f32)"}) {
    const Formula f = formula(text);
    run_formula(f, {{"x", x}});
    INFO(text);
    CHECK(f.stats().kernels == 1);
    CHECK(f.stats().bytes_read <= 64 * 64 * 4 + 64 * 4);
  }
}

TEST_CASE("array functions: a new length or diagonal of a call compiles nothing", "[functions]") {
  const Formula f = formula("tril(x, k) + arange(x.shape[1])");
  const Array x = random_array({9, 11}), y = random_array({17, 23});
  f({{"x", x}, {"k", 1}});
  const auto compiles = f.stats().compiles;
  for (int k = -3; k < 4; ++k) f({{"x", y}, {"k", k}});
  CHECK(f.stats().compiles == compiles);
}

namespace {

// Returns few distinct values, so that many elements are equal. For float types they include NaN, both zeros and infinities.
template <class T> std::vector<T> values_with_equals(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> out(static_cast<std::size_t>(n));
  for (T& v : out) {
    const auto bits = engine();
    if constexpr (std::floating_point<T>) {
      static constexpr T few[] = {T(0),
                                  -T(0),
                                  std::numeric_limits<T>::quiet_NaN(),
                                  std::numeric_limits<T>::infinity(),
                                  -std::numeric_limits<T>::infinity(),
                                  std::numeric_limits<T>::denorm_min(),
                                  T(1),
                                  T(-1)};
      v = bits % 3 == 0 ? few[bits >> 32 & 7] : static_cast<T>(static_cast<double>(bits >> 32 & 0xffff) / 256 - 128);
    } else {
      v = bits % 3 == 0 ? static_cast<T>(bits >> 32 & 7) : static_cast<T>(bits >> 16);
    }
  }
  return out;
}

template <class T> bool is_before(T a, T b, bool descending) {
  if constexpr (std::floating_point<T>)
    if (a != a || b != b) return descending ? a != a && b == b : a == a && b != b;
  return descending ? b < a : a < b;
}

// Compares sorts of rows of n elements, along the first or last of two axes, with std::stable_sort.
template <class T> void check_sorted(std::int64_t rows, std::int64_t n, std::int64_t k, int axis) {
  const std::vector<T> values = values_with_equals<T>(rows * n, static_cast<std::uint64_t>(n + k));
  const std::int64_t along = axis == 1 ? 1 : rows, across = axis == 1 ? n : 1;
  const Array x = Array::from(values, axis == 1 ? std::vector{rows, n} : std::vector{n, rows});
  for (const bool descending : {false, true})
    for (const int threads : {1, 3}) {
      const Options options = {.mode = Mode::generic, .threads = threads};
      const auto slice = [&](const char* op) {
        return formula(fmt::format("{}(x, {}, descending={}){}", op, axis, descending,
                                   axis == 1 ? fmt::format("[:, :{}]", k) : fmt::format("[:{}]", k)),
                       options);
      };
      const FormulaResults both =
          formula(fmt::format("a, b = topk(x, {}, {}, largest={})", k, axis, descending), options)(std::vector<NamedArgument>{{"x", x}});
      const std::vector<T> sorted = run_formula(slice("sort"), {{"x", x}})[0].template to_vector<T>(),
                           best = both[0].template to_vector<T>();
      const std::vector<std::int64_t> places = run_formula(slice("argsort"), {{"x", x}})[0].template to_vector<std::int64_t>(),
                                      best_places = both[1].template to_vector<std::int64_t>();
      CHECK(best_places == places);
      std::vector<std::int64_t> order(static_cast<std::size_t>(n));
      bool right = true;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto at = [&](std::int64_t i) { return values[static_cast<std::size_t>(row * across + i * along)]; };
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return is_before(at(a), at(b), descending); });
        for (std::int64_t i = 0; i < k; ++i) {
          const auto result = static_cast<std::size_t>(axis == 1 ? row * k + i : i * rows + row);
          const std::int64_t of = order[static_cast<std::size_t>(i)];
          const auto is = [&](T value) {
            return value != value ? at(of) != at(of)
                                  : std::memcmp(&value, &values[static_cast<std::size_t>(row * across + of * along)], sizeof value) == 0;
          };
          right = right && places[result] == of && is(sorted[result]) && is(best[result]);
        }
      }
      INFO(name_of(x.dtype()) << " " << rows << " rows of " << n << ", " << k << " of them, axis " << axis << ", descending " << descending
                              << ", threads " << threads);
      CHECK(right);
    }
}

// Calls f with a zero of each number type.
template <class F> void for_each_number_type(F f) {
  f(float{});
  f(double{});
  f(std::int8_t{});
  f(std::uint8_t{});
  f(std::int16_t{});
  f(std::uint16_t{});
  f(std::int32_t{});
  f(std::uint32_t{});
  f(std::int64_t{});
  f(std::uint64_t{});
}

}  // namespace

TEST_CASE("array functions: sorting is stable, in NumPy's order, for every type and axis", "[functions]") {
  const auto check_type = [](auto type) {
    using T = decltype(type);
    for (const int axis : {0, 1}) {
      check_sorted<T>(5, 1, 1, axis);
      check_sorted<T>(5, 40, 40, axis);       // in a network
      check_sorted<T>(37, 300, 300, axis);    // in networks
      check_sorted<T>(37, 1100, 1100, axis);  // by digits; along axis 0 in blocks of rows
      check_sorted<T>(3, 2000, 17, axis);     // keeps the first few while reading a row
    }
  };
  for_each_number_type(check_type);
  check_sorted<float>(1, 70000, 70000, 1);  // the row is split between threads
  check_sorted<double>(2, 66000, 66000, 0);
  check_sorted<float>(1, 200000, 1000, 1);
  check_sorted<std::int64_t>(1, 200000, 100, 1);
  check_sorted<std::uint8_t>(1, 70000, 70000, 1);  // threads share the counts of bytes
  check_sorted<std::int8_t>(2, 66000, 30000, 1);
}

TEST_CASE("array functions: short rows of every length are sorted as in the reference", "[functions]") {
  const auto check_type = [](auto type) {
    using T = decltype(type);
    for (const int axis : {0, 1}) {
      const std::string text = fmt::format(
          "s = sort(x, {0}); i = argsort(x, {0}); d = sort(x, {0}, descending=true); j = argsort(x, {0}, descending=true); "
          "v, p = topk(x, 1, {0}); m = median(cast(x, f64), {0})",
          axis);
      const Formula f = formula(text, {.mode = Mode::generic}), reference = formula(text, {.mode = Mode::reference});
      for (std::int64_t n = 1; n <= 300; n += n < 70 ? 1 : 1 + n % 7) {
        const std::int64_t rows = 1 + n % 5 + (n % 3 == 0 ? 31 : 0);
        const Array x = Array::from(values_with_equals<T>(rows * n, static_cast<std::uint64_t>(n)),
                                    axis == 1 ? std::vector{rows, n} : std::vector{n, rows});
        const FormulaResults got = f(std::vector<NamedArgument>{{"x", x}}), expected = reference(std::vector<NamedArgument>{{"x", x}});
        bool right = got.size() == expected.size();
        for (std::size_t k = 0; right && k < got.size(); ++k) right = bytes_of(got[k]) == bytes_of(expected[k]);
        INFO(name_of(x.dtype()) << " " << rows << " rows of " << n << ", axis " << axis);
        CHECK(right);
      }
    }
  };
  for_each_number_type(check_type);
}

TEST_CASE("array functions: halves, bools and empty arrays are sorted", "[functions]") {
  same_everywhere("sort(x)", {{"x", random_array({7, 60}, f16)}});
  same_everywhere("argsort(x, 0)", {{"x", random_array({60, 7}, bf16)}});
  same_everywhere("sort(x > 0, 0)", {{"x", random_array({60, 7})}});
  same_everywhere("argsort(x > 0, descending=true)", {{"x", random_array({7, 60})}});
  for (const char* text :
       {"sort(x)", "argsort(x, 0)", "sort(x, 0)", "a, b = topk(x, 0, 0)", "quantile(x, 0.5, 0)", "median(x, 1)", "searchsorted(v, x)"})
    same_everywhere(text, {{"x", Array::zeros({0, 4}, f32)}, {"v", random_array({3})}});
  CHECK(std::isnan(same_everywhere("median(x)", {{"x", Array::zeros({0}, f32)}}).to_vector<float>()[0]));
}

TEST_CASE("array functions: long rows of bools are sorted by their counts", "[functions]") {
  const Array x = random_array({70001});
  for (const char* text : {"argsort(x > 0, descending=true)", "argsort(x > 0.9)[:30000]", "sort(x > -0.9, descending=true)",
                           "a, n = compress(x > 0.5, x)", "argsort(reshape(x[:70000], [7, 10000]) < 0)"})
    same_everywhere(text, {{"x", x}});
}

TEST_CASE("array functions: values of every type are found in rows of every length", "[functions]") {
  const auto check_type = [](auto type) {
    using T = decltype(type);
    for (const std::int64_t n : {0, 1, 2, 15, 64, 1000})
      for (const std::int64_t m : {1, 15, 16, 37}) {
        const Array x = Array::from(values_with_equals<T>(3 * n, 5), {3, n}), v = Array::from(values_with_equals<T>(3 * m, 9), {3, m});
        const std::string text =
            "s = sort(x); a = searchsorted(s, v); b = searchsorted(s, v, \"right\"); c = searchsorted(transpose(s)[:, 1], v[0])";
        const Formula f = formula(text, {.mode = Mode::generic}), reference = formula(text, {.mode = Mode::reference});
        const std::vector<NamedArgument> arguments = {{"x", x}, {"v", v}};
        const FormulaResults got = f(arguments), expected = reference(arguments);
        INFO(name_of(x.dtype()) << " " << m << " values in rows of " << n);
        for (std::size_t k = 0; k < got.size(); ++k) CHECK(bytes_of(got[k]) == bytes_of(expected[k]));
      }
  };
  for_each_number_type(check_type);
}

TEST_CASE("array functions: a quantile's q is f64", "[functions]") {
  const Array x = run_formula(formula("cast(iota([101]), f64) / 7"), {})[0];
  for (const double q : {0.0, 0.1, 0.3, 0.77, 1.0}) {
    const double h = q * 100, a = std::floor(h), t = h - a;
    const double low = a / 7, high = std::min(a + 1, 100.0) / 7,
                 expected = t < 0.5 ? low + (high - low) * t : high - (high - low) * (1 - t);
    CHECK(formula(fmt::format("quantile(x, {})", q))({x})[0].to_vector<double>()[0] == expected);
    CHECK(compile([q](Tensor x) { return quantile(x, q); })(x).to_vector<double>()[0] == expected);
    CHECK(formula("quantile(x, q)")({{"x", x}, {"q", q}})[0].to_vector<double>()[0] == expected);
  }
}

TEST_CASE("array functions: a quantile that ignores NaN ends at the last number", "[functions]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Array x = Array::from({nan, 3.0f, -1.0f, nan, 2.0f, 7.0f, nan, nan, 5.0f, nan, nan, nan}, {3, 4});
  const std::vector<std::vector<float>> rows = {{-1, 3}, {2, 7}, {5}};
  for (const double q : {0.0, 0.25, 0.5, 1.0}) {
    const std::vector<float> got = same_everywhere(fmt::format("nanquantile(x, {}, 1)", q), {{"x", x}}).to_vector<float>();
    for (std::size_t i = 0; i < rows.size(); ++i) CHECK(got[i] == static_cast<float>(rows[i][0] + (rows[i].back() - rows[i][0]) * q));
  }
  CHECK(same_everywhere("nanquantile(x, q)", {{"x", x}, {"q", Array::from({0.0, 1.0})}}).to_vector<float>() == std::vector<float>{-1, 7});
  CHECK(same_everywhere("nanquantile(x, 1)", {{"x", Array::full({5}, 2.0, f32)}}).to_vector<float>() == std::vector<float>{2});
}

TEST_CASE("array functions: a sort's operands and results in any layout", "[functions]") {
  const Array x = random_array({40, 30});
  const FormulaResults expected =
      formula("s = sort(exp(x), 0); i = argsort(x, 1)", {.mode = Mode::reference})(std::vector<NamedArgument>{{"x", x}});
  for (const Options& options : modes_of_kernels()) {
    const Array turned = formula("transpose(x)")({x})[0].transpose({1, 0});  // columns are contiguous
    const Formula f = formula("s = sort(exp(x), 0); i = argsort(x, 1)", options);
    const Array sorted = Array::zeros({30, 40}, f32).transpose({1, 0}), places = Array::zeros({30, 40}, i64).transpose({1, 0});
    f.into({{"s", sorted}, {"i", places}}, {{"x", turned}});
    CHECK(bytes_of(sorted.contiguous()) == bytes_of(expected[0]));
    CHECK(bytes_of(places.contiguous()) == bytes_of(expected[1]));
  }
}

TEST_CASE("array functions: windows are views", "[functions]") {
  const Array x = random_array({64, 64});
  for (const char* text : {"mean(sliding_window(x, [3, 3]), [-1, -2])", "max(sliding_window(x*x, 5, 1), -1)", "correlate(x, x[:3, :3])",
                           "convolve(x*2, full([5], 0.2), \"same\", 0)", "sliding_window(x, 4, 0)*2"}) {
    INFO(text);
    CHECK(kernels(text, {{"x", x}}) == 1);
    same_everywhere(text, {{"x", x}});
  }
}

namespace {

// Compares writes along either of two axes, with repeated indices, with a loop. -0 is less than +0; NaN is both minimum and maximum.
template <class T> void check_written(std::int64_t rows, std::int64_t n, std::int64_t m, int axis) {
  const std::vector<T> x = values_with_equals<T>(rows * n, 1), updates = values_with_equals<T>(rows * m, 2);
  std::vector<std::int64_t> places(static_cast<std::size_t>(rows * m));
  std::mt19937_64 engine(3);
  for (std::int64_t& p : places) p = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(2 * n)) - n;
  const auto shape = [&](std::int64_t length) { return axis == 1 ? std::vector{rows, length} : std::vector{length, rows}; };
  const auto at = [&](std::int64_t row, std::int64_t i, std::int64_t length) {
    return static_cast<std::size_t>(axis == 1 ? row * length + i : i * rows + row);
  };
  const NamedArrays all = {{"x", Array::from(x, shape(n))}, {"k", Array::from(places, shape(m))}, {"u", Array::from(updates, shape(m))}};
  std::vector<Array> expected;
  for (const int mode : {0, 1, 2}) {
    std::vector<T> y = x;
    const bool greatest = mode == 2;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < m; ++i) {
        const std::int64_t place = places[at(row, i, m)];
        T& there = y[at(row, place < 0 ? place + n : place, n)];
        const T update = updates[at(row, i, m)];
        if (mode == 0) there = update;
        else if (there != there || update != update) there = there != there ? there : update;
        else if (there == update) there = std::signbit(static_cast<double>(there)) == greatest ? update : there;
        else there = (there < update) == greatest ? update : there;
      }
    expected.push_back(Array::from(std::move(y), shape(n)));
  }
  const std::string text =
      fmt::format("s = scatter(x, k, u, {0}); l = scatter(x, k, u, {0}, \"min\"); g = scatter(x, k, u, {0}, \"max\")", axis);
  for (const Options& options : {Options{.mode = Mode::reference}, Options{.mode = Mode::unfused},
                                 Options{.mode = Mode::generic, .threads = 1}, Options{.mode = Mode::generic, .threads = 7}}) {
    const FormulaResults got = run_formula(formula(text, options), all);
    for (std::size_t k = 0; k < 3; ++k) {
      INFO("result " << k << ", " << rows << " rows of " << n << ", " << m << " updates, axis " << axis << ", threads " << options.threads);
      CHECK(std::memcmp(got[k].data(), expected[k].data(), bytes_of(expected[k]).size()) == 0);
    }
  }
}

}  // namespace

TEST_CASE("array functions: of several updates of an element, the last, the minimum or the maximum is kept, for every type and axis",
          "[functions]") {
  const auto check_type = [](auto type) {
    using T = decltype(type);
    for (const int axis : {0, 1}) check_written<T>(5, 9, 40, axis);
  };
  for_each_number_type(check_type);
  for (const int axis : {0, 1}) {
    check_written<float>(70, 3, 1, axis);
    check_written<double>(1, 40, 300, axis);
    check_written<float>(300, 200, 100, axis);  // enough for several threads
  }
}

// compiler/join_puts: later writes win, parts overlap or are read in between, and the derivatives are chains of writes, too.
TEST_CASE("array functions: many writes one after the other", "[functions]") {
  const char* const bases[] = {"x", "full([9, 7], 3)", "x*0 + 2", "zeros([9, 7])"};
  const DType types[] = {f32, f64, f16, f32};
  for (const int kind : {0, 1, 2, 3}) {
    std::string formula = fmt::format("a0 = {}", bases[kind]);
    int n = 0;
    const auto write = [&](const std::string& at, const std::string& value) {
      formula += fmt::format("; a{} = put(a{}, {}, {})", n + 1, n, at, value);
      ++n;
    };
    for (int k = 0; k < 30; ++k) {
      write(fmt::format("[{}, {}]", k * 5 % 9, k * k % 7), fmt::format("v[{}]*{}", k % 9, k));
      if (kind == 1 && k % 6 == 3) write(fmt::format("[{}, 1:4]", k % 9), "v[1:4]");
      if (kind == 1 && k == 20) write("[::2, ::-3]", "v[:5, none]");
      if (kind == 2 && k == 17) formula += fmt::format("; s = sum(a{})", n), write("[0, 0]", "s");
      if (kind == 3 && k % 5 == 0) write(fmt::format("[{}, 2:]", k % 9), "7");
    }
    formula += fmt::format("; y = a{}*x", n);
    const NamedArrays inputs = {{"x", random_array({9, 7}, types[kind])}, {"v", random_array({9}, types[kind])}};
    same_everywhere(formula, inputs);
    same_everywhere(formula + "; dx, dv = grad(sum(y*y), [x, v])", inputs);
  }
}

TEST_CASE("array functions: writing in every mode, type and layout", "[functions]") {
  const Array k = formula("cast(x*3, i32)")({random_array({6})});
  const NamedArrays all = {{"x", random_array({5, 7})},
                           {"h", random_array({5, 7}, f16)},
                           {"b", formula("x > 0")({random_array({5, 7})})},
                           {"i", random_array({5, 7}, i8)},
                           {"k", k},
                           {"u", random_array({6, 7}, f32, 5)}};
  for (const char* text : {"index_update(h, k, u, 0)",
                           "index_update(h, k, cast(u, f16), 0, \"max\")*2",
                           "index_update(b, k, u > 0.5, 0)",
                           "scatter(b, (b + 0)*2, b, 1, \"min\")",
                           "index_update(i, k, u*300, 0)",
                           "index_update(i, k, 7*cast(u, i64), 0, \"min\")",
                           "index_update(transpose(x), k, transpose(u), 1)",
                           "v = index_update(x, k, u, 0); a = v*2; b = reshape(v, [-1]); c = sum(v, 1)",
                           "v = index_update(exp(x), k, u, 0); w = index_update(v, k[::-1], u + 1, 0, \"max\")",
                           "index_update(x, k[:0], u[:0], 0)",
                           "index_update(x[:, :0], k, u[:, :0], 0)",
                           "take(index_update(x, k, u, 0), k, 0)",
                           "put(b, [1:3], true)",
                           "put(i, [::2], 100, \"add\")",
                           "put(h, [:, 1:], u[0, 1:], \"mul\")",
                           "put(x, [5:], 1)",
                           "put(x[:, none], [:, :, 2:4], u[:5, none, :2])",
                           "put(x, [], 3)",
                           "put(put(x, [0], u[0]), [:, 0], 1)",
                           "v, c = compress(b, h)",
                           "v, c = compress(b[:, 0], x, 0, 9)",
                           "v, c = compress(b[:0], x[:0])",
                           "grad(sum(index_update(x, k, u, 0)**2), [u])",
                           "grad(sum(index_update(x, k, u, 0, \"max\")**2), [x])",
                           "grad(sum(index_update(x, k[:1], x[:1]*0.5, 0, \"min\")**3), [x])",
                           "v, c = compress(b, x); g = grad(sum(v*cast(iota([35]), f32)), [x])",
                           "grad(sum(put(x, [1:3], u[:2], \"max\")**2), [x])"})
    same_everywhere(text, all);
  CHECK(kernels("put(x*2, [1:3, ::2], u[:2, ::2])", all) == 1);
  CHECK(kernels("masked_fill(exp(x), b, 0)", all) == 1);
  // into the array that is also an operand
  for (const Options& options : modes_of_kernels()) {
    const Array x = random_array({5, 7}), u = all.back().second;
    const Formula f = formula("out = index_update(x, k, u, 0)", options);
    const Array expected = run_formula(f, {{"x", x}, {"k", k}, {"u", u}})[0];
    f.into({{"out", x}}, {{"x", x}, {"k", k}, {"u", u}});
    CHECK(bytes_of(x) == bytes_of(expected));
  }
  const Array ties = same_everywhere(
      "grad(sum(index_update(x, k, u, 0, \"max\")), [x])",
      {{"x", Array::from({1.0, 2.0, 3.0})}, {"k", Array::from<std::int64_t>({0, 0, 1})}, {"u", Array::from({1.0, 1.0, 0.5})}});
  CHECK(ties.to_vector<double>() == std::vector<double>{1.0 / 3, 1, 1});
}

TEST_CASE("array functions: bad shapes and numbers", "[functions]") {
  const NamedArrays all = {{"x", random_array({5, 7})}, {"v", random_array({7})}, {"s", random_array({})}, {"i", Array::zeros({3}, i32)}};
  const auto says = [&](const char* text, const char* message) {
    INFO(text);
    CHECK_THAT(error_of(text, all), Contains(message));
  };
  says("arange(0, 5, 0)", "arange: the step is 0; it must not be 0");
  says("arange(v)", "arange: `start` must be a number, since the length depends on it, not v f32[7]");
  says("arange(0, inf)", "arange: the range from 0 to inf in steps of 1 has no valid number of elements");
  says("linspace(v, 1, 3)", "linspace: `start` must be a scalar, not v f32[7]");
  says("linspace(0, 1, -1)", "linspace: the number of elements is -1; it must be 0 or more");
  says("eye(-1)", "eye: -1 rows and -1 columns requested; neither number may be negative");
  says("tril(v)", "tril: v f32[7] has fewer than two axes");
  says("tril(x, 0.5)", "tril: `k` must be an integer, not 0.5");
  says("diag(x[none])", "must have one axis, to place it on a diagonal, or two axes, to read a diagonal");
  says("diag(v, 9223372036854775807)", "diag: with diagonal 9223372036854775807, the length of the result does not fit in 64 bits");
  says("meshgrid(v, x)", "meshgrid: x f32[5, 7] must have at most one axis");
  says("meshgrid(v, v, indexing=\"yx\")", "meshgrid: `indexing` must be \"xy\" or \"ij\", not \"yx\"");
  says("pad(x, [1, 1], [1, 1], mode=\"mirror\")",
       "pad: `mode` must be \"constant\", \"edge\", \"reflect\", \"symmetric\" or \"wrap\", not \"mirror\"");
  says("pad(x, [1, 1], [1, 1], 2, \"edge\")", "pad: mode \"edge\" takes no value");
  says("pad(v[:0], [1], [1], mode=\"wrap\")", "is empty, but mode \"wrap\" repeats its elements");
  says("pad(v, [100000], [0], mode=\"wrap\")", "are too many for mode \"wrap\". Use tile");
  says("average(x, 0, v)", "average: the weights v f32[7] must have the shape of x f32[5, 7], or one number for each index");
  says("cov(x[none])", "must have one axis or two");
  says("diff(s)", "diff: s f32[] has no axis");
  says("diff(v, -1)", "diff: the number of repetitions is -1; it must be 0 or more");
  says("gradient(v[:1])", "has 1 elements; edge_order 1 needs at least 2");
  says("gradient(v, edge_order=3)", "gradient: `edge_order` must be 1 or 2, not 3");
  says("gradient(x, v, axis=0)", "gradient: the coordinates v f32[7] must be one number for each of the 5 indices along axis 0");
  says("gradient(x, [1, 2, 3])", "gradient: 3 spacings given for 2 axes. Pass one spacing, or one for each axis");
  says("trapezoid(x, v, 2)", "trapezoid: both `x` and `dx` are given. Pass only one of them.");
  says("trapezoid(x, v, axis=0)", "trapezoid: v f32[7] must hold one coordinate for each of the 5 indices along axis 0");
  says("bincount(v, 3)", "bincount: v f32[7] must be a vector of integers");
  says("bincount(i*0 - 1, 3)", "bincount: the index -1 at [0] is out of range: axis 0 has extent 3");
  says("histogram(v, 0)", "histogram: the number of bins is 0; it must be 1 or more");
  says("histogram(v, 4, [3, 1])", "histogram: `range` is [3, 1]; the first number must not be larger than the second");
  says("full([2], 300, u8)", "full: the literal 300 does not fit u8");
  says("full([2], -1, u32)", "full: the literal -1 does not fit u32");
  says("histogram(v, 3, [1])", "histogram: `range` has 1 numbers; it must be [lowest, highest]");
  says("histogram(v, weights=x)", "histogram: the weights x f32[5, 7] must have the shape of v f32[7]");
  says("sort(s)", "sort: s f32[] has no axis");
  says("argsort(x, 2)", "argsort: axis 2 is out of range");
  says("topk(x, 8)", "topk: k is 8, but there are 7 elements along axis 1 of x f32[5, 7]; k must be between 0 and 7");
  says("quantile(x, x)", "quantile: `q` must be a number or a vector, not x f32[5, 7]");
  says("quantile(v, 1.5)", "quantile: ");
  says("quantile(v, -0.1)", "quantile: q must be from 0 to 1, and one is not");
  for (const char* q : {"1.01", "nan", "-0.01"}) {
    says(fmt::format("quantile(v, {})", q).c_str(), "quantile: q must be from 0 to 1");
    says(fmt::format("nanquantile(v, {})", q).c_str(), "quantile: q must be from 0 to 1");
    says(fmt::format("quantile(v[:1], {})", q).c_str(), "quantile: q must be from 0 to 1");
  }
  says("searchsorted(x, v)", "searchsorted: x f32[5, 7] and the values v f32[7] must have the same axes except the last");
  says("searchsorted(s, v)", "searchsorted: s f32[] must have a sorted axis");
  says("searchsorted(v, v, \"above\")", "searchsorted: `side` must be \"left\" or \"right\", not \"above\"");
  says("sliding_window(x, 3)", "sliding_window: one width is given for the 2 axes of x f32[5, 7]");
  says("sliding_window(v, 8)", "sliding_window: a window of 8 elements is longer than axis 0 of v f32[7]");
  says("sliding_window(v, 0)", "sliding_window: `window` must be 1 or more, not 0");
  says("sliding_window(v, 2, spacing=7)", "a window of 2 elements, 7 apart, is longer than axis 0");
  says("correlate(x, v)", "correlate: the rank of the kernel v f32[7] must be 2, as that of x f32[");
  says("correlate(v, v[:0])", "is empty");
  says("convolve(v, v, \"all\")", "convolve: `mode` must be \"valid\", \"same\" or \"full\", not \"all\"");
  says("correlate(v > 0, v)", "is bool. Cast it to a number type");
  says("put(x, [0, 9], 1)", "put: 9 is out of range for axis 1 of x f32[5, 7], which has extent 7");
  says("put(x, [0, 0, 0], 1)", "put: ");
  says("put(x, [1:3], v[:3])", "put: ");
  says("put(x, [::0], 1)", "put: the step of a slice is 0");
  says("put(x, [0.5], 1)", "put: an index");
  says("put(x, [f32], 1)", "put: `at` must be a list of integers and slices, as in [1:5, 0]");
  says("put(x, 0, 1, \"sub\")", "put: `mode` must be \"set\", \"add\", \"min\", \"max\" or \"mul\", not \"sub\"");
  says("sum(x, [0:1])", "sum: ");
  says("index_update(v, i, v[:2], 0)",
       "index_update: the updates f32[2] must have the shape [3]: v f32[7] with the indices i i32[3] in place of axis 0");
  says("index_update(v, i + 7, v[:3], 0)", "index_update: the index 7 at [0] is out of range: axis 0 has extent 7");
  says("index_update(v, i, v[:3], 0, \"mul\")", "index_update: `mode` must be \"set\", \"add\", \"min\" or \"max\", not \"mul\"");
  says("index_update(s, i, v[:3], 0)", "index_update: s f32[] has no axis");
  says("scatter(v, i, v, 0)", "scatter: the indices i i32[3] and the updates v f32[7] must have one shape");
  says("scatter(v, v, v, 0)", "scatter: the indices v f32[7] must be integers");
  says("scatter(v, i - 8, v[:3], 0, \"min\")", "scatter: the index -8 at [0] is out of range");
  says("scatter(v > 0, i, v[:3] > 0, 0, \"add\")", "scatter: bool cannot be added");
  says("masked_fill(x, v, 0)", "masked_fill: the mask v f32[7] must be bool");
  says("masked_fill(x, x > 0, v)", "masked_fill: the value must be a scalar, not v f32[7]");
  says("masked_fill(v, x > 0, 1)", "masked_fill: ");
  says("a, b = compress(x, x)", "compress: the mask x f32[5, 7] must be bool");
  says("a, b = compress(v > 0, x)", "must have the shape of x f32[5, 7]. Otherwise, pass the axis");
  says("a, b = compress(v > 0, x, 0)", "must be one bool for each of the 5 indices along axis 0 of x f32[5, 7]");
  says("a, b = compress(x > 0, x, fill=v)", "compress: `fill` must be a scalar, not v f32[7]");
}

TEST_CASE("array functions: the diagonal of a product if one operand has both axes", "[functions]") {
  const Array v = random_array({4});
  const std::tuple<const char*, std::vector<std::int64_t>, const char*> cases[] = {{"x @ v", {9, 5, 4}, ""},
                                                                                   {"x @ v", {3, 9, 5, 4}, ", 1, 1, 2"},
                                                                                   {"x @ v", {6, 3, 5, 4}, ", -2, 0, 2"},
                                                                                   {"v @ x", {6, 3, 4, 5}, ", -2, 0, 2"}};
  for (const auto& [product, shape, where] : cases) {
    INFO(product << where);
    const NamedArrays all = {{"x", random_array(shape)}, {"v", v}};
    const Array whole = same_everywhere(product, all);
    const Array expected = same_everywhere(fmt::format("diagonal(m{})", where), {{"m", whole}});
    CHECK(bytes_of(same_everywhere(fmt::format("diagonal({}{})", product, where), all)) == bytes_of(expected));
  }
}
