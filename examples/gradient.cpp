// A function and its gradient in one compiled function: fits a straight line to points by gradient descent.
#include <onepass/onepass.h>

#include <cmath>
#include <cstdio>
#include <tuple>
#include <vector>

namespace op = onepass;
using op::Array, op::Tensor;

int main() {
  // Points on 3x - 1 plus a small wave, like measurements.
  std::vector<float> xs, ys;
  for (int i = 0; i < 1000; ++i) {
    const float x = static_cast<float>(i) / 500.0f - 1.0f;
    xs.push_back(x);
    ys.push_back(3.0f * x - 1.0f + 0.05f * std::sin(40.0f * x));
  }
  const Array x = Array::wrap(xs), y = Array::wrap(ys);

  const auto step = op::compile([](Tensor slope, Tensor offset, Tensor x, Tensor y, Tensor rate) {
    const Tensor loss = mse(slope * x + offset, y);
    const auto [d_slope, d_offset] = grad(loss, slope, offset);  // recorded and fused like other operators
    return std::tuple{loss, slope - rate * d_slope, offset - rate * d_offset};
  });

  Array slope = Array::scalar(0.0f), offset = Array::scalar(0.0f), loss;
  for (int i = 0; i <= 200; ++i) {
    std::tie(loss, slope, offset) = step(slope, offset, x, y, 0.3);  // the rate may change at any call without compiling anything
    if (i % 50 == 0)
      std::printf("step %3d  loss %.6f  slope %.4f  offset %.4f\n", i, static_cast<double>(loss.item<float>()),
                  static_cast<double>(slope.item<float>()), static_cast<double>(offset.item<float>()));
  }
  std::printf("recorded %lld time(s) in %lld calls\n", static_cast<long long>(step.stats().recordings),
              static_cast<long long>(step.stats().calls));
  return std::abs(slope.item<float>() - 3.0f) < 0.02f && std::abs(offset.item<float>() + 1.0f) < 0.02f ? 0 : 1;
}
