// A network of two layers, 64-128-10, learns handwritten digits. One compiled function is the whole training step: it gathers the batch,
// computes loss and gradients, and updates the parameters in place, by momentum or by Adam, with f32 or bf16 weights.
//
//     digits [momentum|adam] [f32|bf16] [steps]
#include <onepass/onepass.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace op = onepass;
using op::Array, op::Tensor;

namespace {

constexpr std::int64_t kPixels = 64, kHidden = 128, kDigits = 10, kBatch = 128;

template <class T> struct Net {
  T w1, b1, w2, b2;
};

/// Applies f to each parameter, with the corresponding parameters of the other nets.
template <class F, class... N> Net<Tensor> each(F f, const N&... nets) {
  return {f(nets.w1...), f(nets.b1...), f(nets.w2...), f(nets.b2...)};
}

/// Computes one score per digit, f32 [n, 10], from pixels, u8 [n, 64].
Tensor scores(const Net<Tensor>& stored, Tensor pixels) {
  const Net<Tensor> p = each([](Tensor t) { return t.cast(op::f32); }, stored);
  const Tensor x = pixels.cast(op::f32) / 16;
  return matmul(relu(matmul(x, p.w1) + p.b1), p.w2) + p.b2;
}

/// Returns the loss of the batch, and its gradient in f32.
std::pair<Tensor, Net<Tensor>> loss_and_gradient(const Net<Tensor>& p, Tensor images, Tensor labels, Tensor batch) {
  const Tensor pixels = take(images, batch, 0), digits = take(labels, batch, 0);
  auto [loss, d] = value_and_grad([&](const Net<Tensor>& q) { return mean(cross_entropy(scores(q, pixels), digits)); },
                                  each([](Tensor t) { return t.cast(op::f32); }, p));
  return {loss, d};
}

/// Returns the compiled step of the optimizer: it returns loss, parameters and optimizer state.
auto momentum() {
  return op::compile([](const Net<Tensor>& p, const Net<Tensor>& velocity, Tensor images, Tensor labels, Tensor batch, Tensor rate) {
    const auto [loss, d] = loss_and_gradient(p, images, labels, batch);
    const Net<Tensor> v = each([](Tensor v, Tensor g) { return 0.9f * v + g; }, velocity, d);
    return std::tuple{loss, each([&](Tensor p, Tensor v) { return (p.cast(op::f32) - rate * v).cast(p.dtype()); }, p, v), v};
  });
}

// Returns the step of Adam (Kingma and Ba 2015, arXiv:1412.6980) with the rate of its section 2: `rate` includes the corrections for the
// step number.
auto adam() {
  return op::compile([](const Net<Tensor>& p, const Net<Tensor>& first, const Net<Tensor>& second, Tensor images, Tensor labels,
                        Tensor batch, Tensor rate) {
    const auto [loss, d] = loss_and_gradient(p, images, labels, batch);
    const Net<Tensor> m = each([](Tensor m, Tensor g) { return 0.9f * m + 0.1f * g; }, first, d);
    const Net<Tensor> v = each([](Tensor v, Tensor g) { return 0.999f * v + 0.001f * g * g; }, second, d);
    const auto update = [&](Tensor p, Tensor m, Tensor v) { return (p.cast(op::f32) - rate * m / (sqrt(v) + 1e-8f)).cast(p.dtype()); };
    return std::tuple{loss, each(update, p, m, v), m, v};
  });
}

/// Returns weights of variance 2/inputs (He et al. 2015, arXiv:1502.01852), the same in each run.
Net<Array> fresh_weights(op::DType dtype) {
  return op::compile([dtype] {
    const auto layer = [&](int key, std::int64_t in, std::int64_t out) {
      return (op::normal(key, {in, out}) * std::sqrt(2.0f / static_cast<float>(in))).cast(dtype);
    };
    return Net<Tensor>{layer(1, kPixels, kHidden), op::zeros({kHidden}, dtype), layer(2, kHidden, kDigits), op::zeros({kDigits}, dtype)};
  })();
}

Net<Array> fresh_state() {
  const auto zero = [](std::initializer_list<op::Extent> shape) { return Array::zeros(shape, op::f32); };
  return {zero({kPixels, kHidden}), zero({kHidden}), zero({kHidden, kDigits}), zero({kDigits})};
}

/// Copies the rows with the indices `wanted` to a new array.
Array rows(const Array& all, const std::vector<std::int64_t>& wanted) {
  static const auto gather = op::compile([](Tensor x, Tensor i) { return take(x, i, 0); });
  return gather(all, Array::from(wanted));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string optimizer = argc > 1 ? argv[1] : "momentum";
  const std::string_view weights = argc > 2 ? argv[2] : "f32";
  const int steps = argc > 3 ? std::atoi(argv[3]) : 600;
  op::DType dtype{};
  if ((optimizer != "momentum" && optimizer != "adam") || !op::dtype_of(weights, dtype) || (dtype != op::f32 && dtype != op::bf16) ||
      steps < 1) {
    std::fprintf(stderr, "usage: digits [momentum|adam] [f32|bf16] [steps]\n");
    return 2;
  }

  // Every fifth image, starting with the fifth, is in the test set.
  const Array images = op::load_npy(ONEPASS_EXAMPLE_DATA "/digits_images.npy"),
              labels = op::load_npy(ONEPASS_EXAMPLE_DATA "/digits_labels.npy");
  std::vector<std::int64_t> train, test;
  for (std::int64_t i = 0; i < images.dim(0); ++i) (i % 5 == 4 ? test : train).push_back(i);
  const Array test_images = rows(images, test), test_labels = rows(labels, test);

  Net<Array> p = fresh_weights(dtype), first = fresh_state(), second = fresh_state();
  Array loss = Array::empty({}, op::f32), batch = Array::empty({kBatch}, op::i64);
  const auto step_momentum = momentum();
  const auto step_adam = adam();

  std::mt19937_64 random(7);
  std::size_t next = train.size();
  double seconds = 0;
  std::int64_t memory = 0;
  for (int i = 1; i <= steps; ++i) {
    if (next + kBatch > train.size()) {  // a new order for each pass over the images
      for (std::size_t k = train.size(); k > 1; --k) std::swap(train[k - 1], train[random() % k]);
      next = 0;
    }
    std::copy_n(train.begin() + static_cast<std::ptrdiff_t>(next), kBatch, batch.span<std::int64_t>().begin());
    next += kBatch;

    const auto begin = std::chrono::steady_clock::now();
    if (optimizer == "adam") {
      const double rate = 0.003 * std::sqrt(1 - std::pow(0.999, i)) / (1 - std::pow(0.9, i));
      step_adam.into(loss, p, first, second)(p, first, second, images, labels, batch, rate);
    } else {
      step_momentum.into(loss, p, first)(p, first, images, labels, batch, 0.1);
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > steps / 2) seconds += took;
    if (i == steps / 2) memory = op::memory_stats().in_use;
    if (i == 1) std::printf("first step: %.1f ms\n", took * 1e3);
    if (i == 1 || i % 100 == 0) std::printf("step %4d  loss %.4f\n", i, static_cast<double>(loss.item<float>()));
  }

  memory = op::memory_stats().in_use - memory;

  const auto right = op::compile(
      [](const Net<Tensor>& p, Tensor images, Tensor labels) { return mean(cast(argmax(scores(p, images), -1) == labels, op::f32)); });
  const float accuracy = right(p, test_images, test_labels).item<float>();
  const op::Stats stats = optimizer == "adam" ? step_adam.stats() : step_momentum.stats();
  std::printf(
      "%s, %s: %.2f %% of %lld test images right; %.0f us a step, recorded %lld time(s), %lld kernels; %lld bytes more after the second "
      "half\n",
      optimizer.c_str(), std::string(weights).c_str(), 100 * static_cast<double>(accuracy), static_cast<long long>(test_images.dim(0)),
      seconds / (steps - steps / 2) * 1e6, static_cast<long long>(stats.recordings), static_cast<long long>(stats.kernels),
      static_cast<long long>(memory));
  return accuracy >= 0.96f && memory <= 0 ? 0 : 1;
}
