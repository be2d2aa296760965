// Memory of a forward call and its pullback: never more than without fusion, on programs of the benchmarks and on random programs.
// Gradients of random programs have equal bits, whatever is saved.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/memory.h"

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

Array random_array(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
  Array a = Array::empty(op::Extents(shape), op::f32);
  for (float& v : a.span<float>()) v = uniform(random);
  return a;
}

/// Returns the largest number of bytes in use from before the call of f until its pullback has run, without the arguments and cotangents. A
/// call allocates all of its memory at once, so its peak is the memory in use plus its allocations.
template <class F> std::int64_t peak_bytes(const F& f, const std::vector<Array>& xs, op::Mode mode) {
  op::Options options;
  options.mode = mode;
  options.threads = 1;
  auto compiled = op::compile(f, options);
  const std::vector<Array> cotangents = compiled(xs);
  std::int64_t peak = 0;
  for (int round = 0; round < 2; ++round) {  // the first round leaves scratch memory to the thread
    const std::int64_t before = op::memory::statistics().in_use;
    const auto ever = [] { return op::memory::statistics().allocated_ever; };
    std::int64_t from = ever();
    const auto [ys, pullback] = op::vjp(compiled, xs);
    peak = ever() - from;
    const std::int64_t held = op::memory::statistics().in_use - before;
    from = ever();
    const auto gradients = pullback(cotangents);
    peak = std::max(peak, held + ever() - from);
  }
  return peak;
}

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
struct Row {
  const char* name;
  std::vector<std::vector<std::int64_t>> shapes;
  Function f;
};
/// Returns smaller versions of programs in docs and benchmarks.
const std::vector<Row>& rows() {
  using V = const std::vector<Tensor>&;
  static const std::vector<Row> kRows = {
      {"affine", {{16, 16, 32, 32}, {16, 16, 1, 1}, {16, 16, 1, 1}}, [](V x) { return std::vector{x[0] * x[1] + x[2]}; }},
      {"strided",
       {{512, 512}, {512, 512}},
       [](V x) {
         return std::vector{x[0].T() * 2 + x[1][{op::All, op::Range{.step = -1}}]};
       }},
      {"gelu", {{512, 512}}, [](V x) { return std::vector{gelu(x[0])}; }},
      {"gelu_tanh", {{512, 512}}, [](V x) { return std::vector{gelu_tanh(x[0])}; }},
      {"chain",
       {{512, 512}},
       [](V x) {
         Tensor y = x[0];
         for (int i = 0; i < 30; ++i) y = i % 3 == 2 ? tanh(y) : y * (1.0f + 0.01f * static_cast<float>(i)) + 0.1f;
         return std::vector{y};
       }},
      {"black_scholes",
       {{512, 512}, {512, 512}, {512, 512}},
       [](V x) {
         const Tensor s = abs(x[0]) + 1, k = abs(x[1]) + 1, t = abs(x[2]) + 0.5f;
         const Tensor d1 = (log(s / k) + t * 0.045f) / (0.3f * sqrt(t)), d2 = d1 - 0.3f * sqrt(t);
         return std::vector{s * (0.5f + 0.5f * erf(d1 * 0.70710678f)) - k * exp(t * -0.02f) * (0.5f + 0.5f * erf(d2 * 0.70710678f))};
       }},
      {"softmax", {{512, 1024}}, [](V x) { return std::vector{softmax(x[0])}; }},
      {"log_softmax, over rows", {{1024, 512}}, [](V x) { return std::vector{log_softmax(x[0], 0)}; }},
      {"layer_norm", {{512, 1024}, {1024}, {1024}}, [](V x) { return std::vector{layer_norm(x[0], x[1], x[2])}; }},
      {"rms_norm", {{512, 1024}, {1024}}, [](V x) { return std::vector{rms_norm(x[0], x[1])}; }},
      {"column sums", {{1024, 512}}, [](V x) { return std::vector{sum(x[0] * x[0], 0)}; }},
      {"attention",
       {{256, 32, 128}},
       [](V x) {
         std::vector<Tensor> all;
         for (std::int64_t t = 0; t < x[0].dim(0); ++t) all.push_back(sum(x[0][0] * x[0][t], {0}));
         return std::vector{softmax(op::stack(all), 0)};
       }},
      {"outer3",
       {{96}},
       [](V x) {
         const Tensor v = x[0], a = v.reshape({96, 1, 1}), b = v.reshape({1, 96, 1}), c = v.reshape({1, 1, 96});
         return std::vector{sum(a * b * c, {1, 2})};
       }},
      {"linear", {{512, 256}, {256, 512}, {512}}, [](V x) { return std::vector{tanh(matmul(x[0], x[1]) + x[2])}; }},
      {"two losses",
       {{512, 512}, {512, 512}},
       [](V x) {
         return std::vector{mse(sin(x[0]), x[1]), sum(x[0] * exp(x[1]))};
       }},
  };
  return kRows;
}

/// Returns a random program of a few arrays [n, m], or rows and columns.
Row random_program(std::uint64_t seed, std::int64_t n = 192, std::int64_t m = 256) {
  Row row{"random", {{n, m}, {n, m}, {1, m}, {n, 1}}, {}};
  row.f = [seed, n, m](const std::vector<Tensor>& xs) {
    std::mt19937_64 random(seed);
    const auto draw = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    std::vector<Tensor> all = xs;
    const auto any = [&] { return all[draw(all.size())]; };
    const auto full = [&](const Tensor& x) { return op::broadcast_to(x, {n, m}); };
    for (int k = 0; k < 12; ++k) {
      const Tensor x = any();
      const std::int64_t axis = static_cast<std::int64_t>(draw(2));
      switch (draw(14)) {
        case 0: all.push_back(tanh(x)); break;
        case 1: all.push_back(exp(-(x * x))); break;
        case 2: all.push_back(sqrt(abs(x) + 1)); break;
        case 3: all.push_back(x * any()); break;
        case 4: all.push_back(x + any() * 0.5f); break;
        case 5: all.push_back(x / (1 + square(any()))); break;
        case 6: all.push_back(sum(full(x), axis, true)); break;
        case 7: all.push_back(mean(full(x) * full(any()), axis, true)); break;
        case 8: all.push_back(max(full(x), axis, true)); break;
        case 9: all.push_back(softmax(full(x), axis)); break;
        case 10: all.push_back(pad(full(x)[{op::Range{3, n}}], {3, 0}, {0, 0})); break;
        case 11: all.push_back(roll(full(x), 5, 1)); break;
        case 12: all.push_back(where(x > 0, sin(x), x * 0.1f)); break;
        default: all.push_back(cumsum(full(x), axis) * 0.01f); break;
      }
    }
    return std::vector{all.back(), any()};
  };
  return row;
}

/// True if all elements have equal bits, where all NaNs count as equal.
template <class T> bool same_values(const Array& a, const Array& b) {
  return std::ranges::equal(a.to_vector<T>(), b.to_vector<T>(), [](T p, T q) {
    const auto x = static_cast<float>(p), y = static_cast<float>(q);
    return std::memcmp(&p, &q, sizeof(T)) == 0 || (x != x && y != y);
  });
}

}  // namespace

TEST_CASE("vjp: random programs have the same bits in one call and two, fused and unfused, whatever is saved", "[pullback][random]") {
  const bool compiles = op::test::has_codegen();
  for (int seed = 0; seed < op::test::rounds(12, 200); ++seed)
    for (const op::DType dtype : {op::f32, op::f16}) {
      INFO("seed " << seed << " of " << op::name_of(dtype));
      const Row row = random_program(static_cast<std::uint64_t>(seed), 9, 13);
      const auto same = [&](const std::vector<Array>& a, const std::vector<Array>& b) {
        return std::ranges::equal(a, b, dtype == op::f32 ? same_values<float> : same_values<op::Half>);
      };
      const auto cast = op::compile([&](const std::vector<Tensor>& all) {
        std::vector<Tensor> out;
        for (const Tensor& x : all) out.push_back(x.cast(dtype));
        return out;
      });
      std::vector<Array> xs;
      for (const std::vector<std::int64_t>& shape : row.shapes) xs.push_back(random_array(shape, 60 + xs.size()));
      xs = cast(xs);
      const auto f = [&](const std::vector<Tensor>& x) { return row.f(x)[0]; };
      const auto in_one_call = [&](const std::vector<Tensor>& x) {
        const Tensor y = f(x);
        return vjp(y, y.cast(dtype), x);
      };
      const std::vector<Array> expected = op::compile(in_one_call, {.mode = op::Mode::reference})(xs);
      for (const op::Mode mode : {op::Mode::reference, op::Mode::unfused, op::Mode::generic}) {
        if (mode != op::Mode::reference && !compiles) continue;
        op::Options options;
        options.mode = mode;
        CHECK(same(op::compile(in_one_call, options)(xs), expected));
        std::int64_t before = std::numeric_limits<std::int64_t>::max();
        for (const std::int64_t budget : {-1, 300, 0}) {
          options.memory_budget = budget;
          const auto [y, pullback] = op::vjp(op::compile(f, options), xs);
          CHECK(same(pullback(y), expected));
          const op::PullbackStats stats = pullback.stats();
          CHECK(stats.bytes_saved <= stats.bytes_unfused);
          CHECK(stats.bytes_saved <= before);
          if (budget >= 0) CHECK(stats.bytes_saved <= budget);
          before = stats.bytes_saved;
        }
      }
    }
}

TEST_CASE("vjp: peak memory never exceeds that of the unfused gradient", "[pullback]") {
  if (!op::test::has_codegen()) return;
  const int drawn = op::test::rounds(24, 200);
  for (int k = 0; k < static_cast<int>(rows().size()) + drawn; ++k) {
    const bool is_row = k < static_cast<int>(rows().size());
    const int seed = k - static_cast<int>(rows().size());
    const Row row = is_row ? rows()[static_cast<std::size_t>(k)] : random_program(static_cast<std::uint64_t>(seed));
    INFO(row.name << " " << seed);
    std::vector<Array> xs;
    std::int64_t inputs = 0;
    for (const std::vector<std::int64_t>& shape : row.shapes) {
      xs.push_back(random_array(shape, 60 + xs.size()));
      inputs += xs.back().bytes();
    }
    const std::int64_t fused = peak_bytes(row.f, xs, op::Mode::generic), unfused = peak_bytes(row.f, xs, op::Mode::unfused);
    CHECK(fused <= unfused + inputs / 64);
  }
}

TEST_CASE("grad: the gradient of a sum of triple products needs no array of all pairs", "[gradient]") {
  if (!op::test::has_codegen()) return;
  constexpr std::int64_t n = 300;  // n*n floats are 360 kB
  auto slope = op::compile([](Tensor v) {
    return grad(sum(sum(v.reshape({n, 1, 1}) * v.reshape({1, n, 1}) * v.reshape({1, 1, n}), {1, 2})), v);
  });
  const std::vector<float> ones(static_cast<std::size_t>(n), 1.0f);
  CHECK(slope(Array::from(std::vector<float>(ones))).to_vector<float>() == std::vector<float>(ones.size(), 3.0f * n * n));
  CHECK(slope.stats().bytes_allocated < 64 << 10);
}
