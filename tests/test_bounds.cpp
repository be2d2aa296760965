// Memory of a function is bounded, and values that change from call to call compile nothing: checks statistics and the resident memory.
#include <catch2/catch.hpp>

#include <unistd.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "has_codegen.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/machine.h"

namespace op = onepass;
using op::Array, op::Options, op::Tensor;

namespace {

Options options(op::Specialization policy = {}) {
  Options o;
  o.specialization = policy;
  o.check_recording = false;
  return o;
}

std::int64_t resident_bytes() {
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Returns 50 consecutive elementwise operators with two reductions; `c` occurs once.
std::string fifty(double c) {
  std::string text = fmt::format("t0 = x*{:.9} + b\n", c);
  const char* const steps[] = {"tanh(t{})", "t{}*w", "t{} + x", "maximum(t{}, b)", "t{} - 0.5", "abs(t{})"};
  for (int i = 0; i < 46; ++i) text += fmt::format("t{} = {}\n", i + 1, fmt::format(fmt::runtime(steps[i % 6]), i));
  return text + "m = t46 - max(t46, axis=-1, keepdims=true)\nexp(m)\n";
}

}  // namespace

TEST_CASE("bounds: shapes, literals and batch sizes of one function compile one set of kernels, plus `depth` specialized ones") {
  if (!op::test::has_codegen()) return;
  const int shapes = op::test::times(250, 1000), literals = op::test::times(200, 1000);
  op::Specialization policy{.depth = 20, .after_calls = 3, .in_background = false};
  const op::Formula f = op::formula(fifty(1.25), options(policy));
  const auto call = [&](const op::Formula& g, std::int64_t rows, std::int64_t columns, int times) {
    const Array x = Array::full({rows, columns}, 0.25, op::f32), row = Array::full({columns}, 0.5, op::f32);
    for (int i = 0; i < times; ++i) g({x, row, row});
  };
  call(f, 3, 40, 3);
  const std::int64_t set = f.stats().compiles;
  CHECK(set >= 1);
  CHECK(set <= 3);
  for (int n = 0; n < shapes; ++n) call(f, 2 + n % 7, 2 + n, 3);
  for (int batch = 2; batch < 102; ++batch) call(f, batch, 64, 3);
  CHECK(f.stats().compiles <= 2 * set);  // rows that fit the registers, and rows that do not
  CHECK(f.stats().hot_shapes == 20);
  const std::int64_t specialised = f.stats().specialized;
  CHECK(specialised <= 20 * set);
  const op::KernelCacheStats before = op::kernel_cache_stats();
  for (int n = 0; n < literals; ++n) {
    const op::Formula g = op::formula(fifty(1.25 + 0.001 * n), options());
    call(g, 3, 40, 1);
    CHECK(g.stats().compiles == 0);
  }
  CHECK(op::kernel_cache_stats().misses == before.misses);
  CHECK(f.stats().specialized == specialised);
  op::runtime::wait_for_optimised();
}

TEST_CASE("bounds: random shapes of a softmax compile one kernel for each variant") {
  if (!op::test::has_codegen()) return;
  const op::runtime::DescribedMachine machine("l1=32K,l2=512K,l3=16M,cores=2,isa=avx2");  // kernel variants depend on cache sizes
  std::mt19937 random(11);
  const auto length = [&](double most) {
    return static_cast<std::int64_t>(std::exp2(1 + std::generate_canonical<double, 32>(random) * most));
  };
  for (const int threads : {1, 2}) {
    Options o = options({.depth = 0});
    o.threads = threads;
    const op::Formula f = op::formula("softmax(x)", o);
    for (int i = 0; i < 200; ++i) {
      const std::int64_t columns = length(17), rows = std::min(length(12), 400'000 / columns + 2);
      f({Array::full({rows, columns}, 0.25, op::f32)});
    }
    CHECK(f.stats().kernels >= 3);          // one block or several; row values cached or not; rows split between threads
    CHECK(f.stats().kernels <= 6 + 2 * 7);  // rows of 2 to 8 elements each have a kernel for few rows and one for many
    CHECK(f.stats().compiles <= f.stats().kernels);
  }
  op::runtime::wait_for_optimised();
}

TEST_CASE("bounds: resident memory does not grow with the number of shapes") {
  if (!op::test::has_codegen()) return;
  // Two lengths that are independent of each other: many shapes with little computation.
  const auto f = op::compile(
      [](Tensor x, Tensor w) {
        return std::tuple{0.5f * x * (1 + erf(x * 0.70710678f)), w + 2};
      },
      options({.depth = 2}));
  const int total = op::test::times(100'000, 1'000'000), settled = total / 4;
  const std::vector<float> memory(1000, 0.5f);
  const auto first = [&](int n) { return Array::wrap(std::span<const float>(memory.data(), static_cast<std::size_t>(n)), {n}); };
  std::int64_t before = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < total; ++n) {
    f(first(1 + n % 1000), first(1 + n / 1000));
    if (n == settled) before = resident_bytes();
  }
  const double each = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / total;
  std::printf("a call: %.1f us; resident memory %.1f MB, then %.1f MB\n", each, static_cast<double>(before) / 1e6,
              static_cast<double>(resident_bytes()) / 1e6);
  CHECK(resident_bytes() < before + before / 20);
  CHECK(f.stats().plans <= 1024);
}
