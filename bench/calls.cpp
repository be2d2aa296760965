// What a call costs beside the work that it does: x*w + b over few elements, as a bound call, an ordinary call into an array and one with a
// fresh result, each timed in turn with a loop written by hand.
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

[[gnu::noinline, gnu::target_clones("default", "avx2", "avx512f")]] void by_hand(float* y, const float* x, const float* w, const float* b,
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
  for (int i = 0; i < 100; ++i) bound();  // hot: it gets a kernel of its own
  const std::vector<std::function<void()>> ways = {[&] { by_hand(zp, xp, wp, bp, n); }, [&] { bound(); }, [&] { f.into(y)(x, w, b); },
                                                   [&] { f(x, w, b); }};
  const std::vector<double> seconds = op::bench::medians(ways, 20'000, 51);
  fmt::print("x*w + b of {:6} elements: by hand {:6.1f} ns; bound +{:.1f}, into +{:.1f}, fresh +{:.1f} ns\n", n, seconds[0] * 1e9,
             (seconds[1] - seconds[0]) * 1e9, (seconds[2] - seconds[0]) * 1e9, (seconds[3] - seconds[0]) * 1e9);
}

}  // namespace

int main() {
  for (const std::int64_t n : {16, 1'000, 10'000}) row(n);
}
