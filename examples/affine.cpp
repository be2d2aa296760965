// Computes x*w + b with broadcast w and b, written as in a model: the function reshapes w. One kernel reads x once and writes y once.
// Compares its time with a plain loop and a plain copy of the same bytes.
#include <onepass/onepass.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

constexpr std::int64_t kImages = 64, kChannels = 256, kHeight = 64, kWidth = 64;

// Returns the median time of several runs, in seconds.
template <class F> double time_of(F&& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end());
  return seconds[4];
}

void plain_loop(const float* x, const float* w, const float* b, float* y) {
  constexpr std::int64_t pixels = kHeight * kWidth;
  for (std::int64_t row = 0; row < kImages * kChannels; ++row)
    for (std::int64_t i = 0; i < pixels; ++i) y[row * pixels + i] = x[row * pixels + i] * w[row] + b[i];
}

}  // namespace

int main() {
  const auto affine = op::compile([](Tensor x, Tensor w, Tensor b) { return x * w.reshape({x.dim(0), x.dim(1), 1, 1}) + b; });

  std::vector<float> scale(kImages * kChannels), shift(kHeight * kWidth);
  for (std::size_t i = 0; i < scale.size(); ++i) scale[i] = 0.5f + 0.001f * static_cast<float>(i % 1000);
  for (std::size_t i = 0; i < shift.size(); ++i) shift[i] = 0.01f * static_cast<float>(i % 97);
  Array x = Array::empty({kImages, kChannels, kHeight, kWidth}, op::f32);
  const auto pixels = x.span<float>();
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % 251) / 251.0f - 0.5f;
  const Array w = Array::wrap(scale, {kImages, kChannels});
  const Array b = Array::wrap(shift, {kHeight, kWidth});
  Array y = Array::zeros(x.shape(), op::f32), expected = Array::zeros(x.shape(), op::f32);

  affine.into(y)(x, w, b);  // records and compiles
  plain_loop(x.span<float>().data(), scale.data(), shift.data(), expected.span<float>().data());
  if (std::memcmp(y.data(), expected.data(), static_cast<std::size_t>(y.bytes())) != 0) {
    std::fprintf(stderr, "affine: the results differ from the loop's\n");
    return 1;
  }

  const auto call = affine.bind(y, x, w, b);
  const double gigabytes = static_cast<double>(x.bytes() + y.bytes()) / 1e9;
  const double fused = time_of(call);
  const double loop = time_of([&] { plain_loop(x.span<float>().data(), scale.data(), shift.data(), expected.span<float>().data()); });
  const double copy = time_of([&] { std::memcpy(expected.mutable_data(), x.data(), static_cast<std::size_t>(x.bytes())); });
  std::printf("x*w + b on [%d, %d, %d, %d], %.0f MB read and written, results equal to the last bit\n", static_cast<int>(kImages),
              static_cast<int>(kChannels), static_cast<int>(kHeight), static_cast<int>(kWidth), 1e3 * gigabytes);
  std::printf("  onepass     %7.2f ms  %6.1f GB/s\n", 1e3 * fused, gigabytes / fused);
  std::printf("  plain loop  %7.2f ms  %6.1f GB/s  (one thread)\n", 1e3 * loop, gigabytes / loop);
  std::printf("  memcpy      %7.2f ms  %6.1f GB/s  (one thread)\n", 1e3 * copy, gigabytes / copy);
  std::printf("%s", affine.explain().c_str());
  return 0;
}
