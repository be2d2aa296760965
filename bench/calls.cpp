// Measures the overhead of a call: x*w + b over few elements, as a bound call, a call with an existing destination, and a call with a new
// result. Each kind of call is timed alternately with a hand-written loop.
//
// Then measures programs of one number that changes from call to call, passed as a number and as an Array of rank 0.
//   calls
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <onepass/onepass.h>

#include "in_turn.h"

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

using Vector [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

[[gnu::target_clones("default", "avx2", "avx512f")]] void by_hand(float* y, const float* x, const float* w, const float* b,
                                                                  std::int64_t n) {
  const auto at = [](const float* p) { return *reinterpret_cast<const Vector*>(p); };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) *reinterpret_cast<Vector*>(y + i) = at(x + i) * at(w + i) + at(b + i);
  for (; i < n; ++i) y[i] = x[i] * w[i] + b[i];
}

void row(std::int64_t n) {
  op::Options options;
  options.check_recording = false;
  const auto f = op::compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; }, options);
  const Array x = op::bench::random_floats({n}), w = op::bench::random_floats({n}), b = op::bench::random_floats({n});
  Array y = Array::zeros({n}, op::f32), z = Array::zeros({n}, op::f32);
  const auto bound = f.bind(y, x, w, b);
  const float *const xp = x.span<const float>().data(), *const wp = w.span<const float>().data(), *const bp = b.span<const float>().data();
  float* const zp = z.span<float>().data();
  for (int i = 0; i < 100; ++i) bound();  // hot: it gets a shape-specialized kernel
  const std::vector<std::function<void()>> ways = {[&] { by_hand(zp, xp, wp, bp, n); }, [&] { bound(); }, [&] { f.into(y)(x, w, b); },
                                                   [&] { f(x, w, b); }};
  const std::vector<double> seconds = op::bench::medians(ways, 20'000, 51);
  fmt::print("x*w + b of {:6} elements: by hand {:6.1f} ns; bound +{:.1f}, into +{:.1f}, fresh +{:.1f} ns\n", n, seconds[0] * 1e9,
             (seconds[1] - seconds[0]) * 1e9, (seconds[2] - seconds[0]) * 1e9, (seconds[3] - seconds[0]) * 1e9);
}

op::Options unchecked() {
  op::Options options;
  options.check_recording = false;  // the default of debug builds records at each call
  return options;
}

// The value of each call.
class Changing {
 public:
  double next() { return values_[++at_ % std::size(values_)]; }

 private:
  static constexpr double values_[] = {1.25, 2.5, 3.75, 0.5, 4.125, 1.0, 2.0};
  std::size_t at_ = 0;
};

void print_ways(const char* name, std::int64_t n, const std::vector<double>& seconds) {
  fmt::print("{:24} of {:3} elements: into, rank-0 Array {:7.1f} ns, number {:+.1f}; fresh {:7.1f} ns, number {:+.1f}\n", name, n,
             seconds[0] * 1e9, (seconds[1] - seconds[0]) * 1e9, seconds[2] * 1e9, (seconds[3] - seconds[2]) * 1e9);
}

// Measures f(s, k), with k an f32 Array of rank 0, and with k a number.
template <class F> void scalar_row(const char* name, std::int64_t n, F function) {
  const auto f = op::compile(function, unchecked());
  const Array s = op::bench::random_floats({n});
  Array y = Array::zeros({n}, op::f32), k = Array::zeros({}, op::f32);
  float* const in_array = k.span<float>().data();
  Changing array, number, fresh_array, fresh_number;
  const std::vector<double> seconds = op::bench::medians({[&] {
                                                            *in_array = static_cast<float>(array.next());
                                                            f.into(y)(s, k);
                                                          },
                                                          [&] { f.into(y)(s, number.next()); },
                                                          [&] {
                                                            *in_array = static_cast<float>(fresh_array.next());
                                                            f(s, k);
                                                          },
                                                          [&] { f(s, fresh_number.next()); }},
                                                         1'000, 301);
  print_ways(name, n, seconds);
}

void formula_row(std::int64_t n) {
  const op::Formula f = op::formula("s*a + b/c", unchecked());
  const Array s = op::bench::random_floats({n});
  Array a = Array::zeros({}, op::f32), b = Array::zeros({}, op::f32), c = Array::zeros({}, op::f32);
  const std::vector<Array> y = {Array::zeros({n}, op::f32)};
  float *const ap = a.span<float>().data(), *const bp = b.span<float>().data(), *const cp = c.span<float>().data();
  Changing array, number, fresh_array, fresh_number;
  const auto fill = [&](Changing& from) {
    *ap = static_cast<float>(from.next()), *bp = static_cast<float>(from.next()), *cp = static_cast<float>(from.next());
  };
  const std::vector<double> seconds =
      op::bench::medians({[&] {
                            fill(array);
                            const op::FormulaArgument in[] = {s, a, b, c};
                            f.into(y, in);
                          },
                          [&] {
                            const op::FormulaArgument in[] = {s, number.next(), number.next(), number.next()};
                            f.into(y, in);
                          },
                          [&] {
                            fill(fresh_array);
                            f({{"s", s}, {"a", a}, {"b", b}, {"c", c}});
                          },
                          [&] {
                            f({{"s", s}, {"a", fresh_number.next()}, {"b", fresh_number.next()}, {"c", fresh_number.next()}});
                          }},
                         1'000, 301);
  print_ways("formula s*a + b/c", n, seconds);
}

}  // namespace

int main() {
  for (const std::int64_t n : {16, 1'000, 10'000}) row(n);
  for (const std::int64_t n : {3, 64}) {
    scalar_row("s*k", n, [](Tensor s, Tensor k) { return s * k; });
    scalar_row("exp(k)*s", n, [](Tensor s, Tensor k) { return exp(k) * s; });
    scalar_row("pow(k, 2)*s", n, [](Tensor s, Tensor k) { return pow(k, 2) * s; });
    scalar_row("Adam's step", n, [](Tensor g, Tensor t) {
      Tensor m = 0.1 * g, v = 0.001 * g * g;
      return 0.001 * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.999, t))) + 1e-8);
    });
    formula_row(n);
  }
}
