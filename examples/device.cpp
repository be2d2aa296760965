// A compiled function on a GPU. Arrays are copied there once; calls run on the device of their arrays and do not wait; results stay there
// until they are read. Without a GPU, the program prints a message and computes on the CPU, with the same bits.
#include <onepass/onepass.h>

#include <cstdio>
#include <tuple>

namespace op = onepass;
using op::Array, op::Device, op::Tensor;

int main() {
  const Device device = op::cuda_device_count() > 0 ? Device::cuda(0) : Device::cpu();
  std::printf("runs on %s\n", device.is_cuda() ? "the first GPU" : "the cpu: `onepass doctor` says why there is no GPU");

  // One step of gradient descent for y = x*w + b, over all examples at once.
  auto step = op::compile([](Tensor x, Tensor y, Tensor w, Tensor b) {
    Tensor loss = mean(square(x * w + b - y));
    auto [dw, db] = grad(loss, w, b);
    return std::tuple{loss, w - 0.5f * dw, b - 0.5f * db};
  });

  constexpr int kExamples = 10'000;
  std::vector<float> xs, ys;
  for (int i = 0; i < kExamples; ++i) {
    xs.push_back(2.0f * static_cast<float>(i) / kExamples - 1);
    ys.push_back(3.0f * xs.back() + 0.5f);
  }
  const Array x = Array::from(xs).to(device), y = Array::from(ys).to(device);
  Array loss, w = Array::scalar(0.0f).to(device), b = Array::scalar(0.0f).to(device);
  for (int i = 0; i < 100; ++i) std::tie(loss, w, b) = step(x, y, w, b);  // on a GPU: started, not finished

  std::printf("w = %.4f, b = %.4f\n", static_cast<double>(w.to(Device::cpu()).item<float>()),
              static_cast<double>(b.to(Device::cpu()).item<float>()));
  const op::Stats stats = step.stats();
  std::printf("%lld calls copied %lld bytes to the device and %lld back\n", static_cast<long long>(stats.calls),
              static_cast<long long>(stats.bytes_uploaded), static_cast<long long>(stats.bytes_downloaded));
}
