// A host that unmasks floating-point exceptions (feenableexcept) gets no exceptions from the library. Its settings and flags are restored.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/kernel_cache.h"
#include "runtime/os.h"

namespace op = onepass;
using op::Array, op::Mode, op::Tensor;

namespace {

// In its scope, every floating-point exception raises SIGFPE, even inexact results.
struct Trapping {
  Trapping() {
    std::feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_ALL_EXCEPT);
  }
  ~Trapping() {
    std::feclearexcept(FE_ALL_EXCEPT);
    fedisableexcept(FE_ALL_EXCEPT);
  }
};

Tensor everything(Tensor x, Tensor w) {
  return exp(x * w) / 3 + sqrt(x) + log(w) + cast(cast(x, op::f16), op::f32) + sum(w) / 7 + cumsum(w, 0);
}

// True if the bits are equal, except for the sign of a NaN.
bool same(const Array& a, const Array& b) {
  const std::vector<float> p = a.to_vector<float>(), q = b.to_vector<float>();
  return std::equal(p.begin(), p.end(), q.begin(), q.end(), [](float u, float v) {
    return std::bit_cast<std::uint32_t>(u) == std::bit_cast<std::uint32_t>(v) || (std::isnan(u) && std::isnan(v));
  });
}

}  // namespace

TEST_CASE("floating point: kernels, compilers, readers and the interpreter raise no exceptions that the host unmasked",
          "[floating_point]") {
  std::vector<float> hard = {0.1f, -1, 0, 1e30f, 1e-40f, std::numeric_limits<float>::infinity(), std::nanf(""), 3};
  while (hard.size() < 1000) hard.push_back(0.1f * static_cast<float>(hard.size()));
  std::vector<float> plain(1000);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = 0.1f * static_cast<float>(i % 7 + 1);
  const Array x = Array::wrap(hard), w = Array::wrap(plain);
  const Array expected = op::compile(everything, {.mode = Mode::reference})(x, w);
  for (const Mode mode : {Mode::reference, Mode::adaptive, Mode::generic, Mode::specialized, Mode::unfused}) {
    if (mode != Mode::reference && !op::test::has_codegen()) continue;
    for (const int threads : {1, 3}) {
      INFO("mode " << static_cast<int>(mode) << ", threads " << threads);
      const std::uint64_t before = op::os::floating_point_control();
      Array got, into = Array::zeros({1000}, op::f32), bound = Array::zeros({1000}, op::f32), from_text;
      std::uint64_t during = 0, after = 0;
      int unmasked = 0, flags = -1;
      {
        const Trapping trapping;
        during = op::os::floating_point_control();
        auto f = op::compile(everything, {.mode = mode, .specialization = {.after_calls = 2, .in_background = false}, .threads = threads});
        for (int call = 0; call < 4; ++call) got = f(x, w);
        f.into(into)(x, w);
        auto call = f.bind(bound, x, w);
        for (int i = 0; i < 3; ++i) call();
        const op::Formula g =
            op::formula("exp(x*w)/3 + sqrt(x) + log(w) + cast(cast(x, f16), f32) + sum(w)/7 + cumsum(w, 0)", {.mode = mode});
        from_text = g({{"x", x}, {"w", w}})[0];
        op::formula("x*w + 0.1", {.mode = mode})({{"x", x}, {"w", 0.1}});
        static_cast<void>(f.explain());
        static_cast<void>(f.stats());
        static_cast<void>(f.compare(x, w).equal);
        op::runtime::wait_for_optimised();
        after = op::os::floating_point_control();
        unmasked = fegetexcept();
        flags = std::fetestexcept(FE_ALL_EXCEPT);
      }
      CHECK(after == during);
      CHECK(unmasked == FE_ALL_EXCEPT);
      CHECK(flags == 0);
      CHECK(op::os::floating_point_control() == before);
      for (const Array* a : {&got, &into, &bound, &from_text}) CHECK(same(*a, expected));
    }
  }
}

TEST_CASE("floating point: arrays are created and read with unmasked exceptions", "[floating_point]") {
  Array third, counted;
  {
    const Trapping trapping;
    third = Array::full({10}, 1.0 / 4 + 1e-3, op::f32);
    counted = Array::full({4}, 0.1, op::f16);
  }
  CHECK(third.at<float>({9}) == static_cast<float>(1.0 / 4 + 1e-3));
  CHECK(counted.size() == 4);
}

TEST_CASE("floating point: the host's flags are restored", "[floating_point]") {
  auto f = op::compile([](Tensor x) { return x / 3; });
  const Array x = Array::ones({100}, op::f32);
  f(x);
  std::feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_INVALID);
  std::feraiseexcept(FE_DIVBYZERO);
  f(x);
  const int flags = std::fetestexcept(FE_ALL_EXCEPT);
  fedisableexcept(FE_ALL_EXCEPT);
  std::feclearexcept(FE_ALL_EXCEPT);
  CHECK(flags == FE_DIVBYZERO);
}
