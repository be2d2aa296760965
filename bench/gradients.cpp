// Times gradients against reference computations, alternately:
//   gelu's second derivative against its first derivative, both relaxed
//   a loss over 256 separate arrays with its gradient against only the loss
//   a sum over three axes of one vector: its gradient against the sum
//   gradients [number of elements: 16777216]
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <vector>

#include <onepass/onepass.h>

#include "in_turn.h"

namespace op = onepass;
using op::Array, op::Tensor, op::bench::compare, op::bench::random_floats;

namespace {

Tensor curve(Tensor x) { return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }

// Computes dot products of all arrays with the first array, column by column, then a softmax.
Tensor loss(const std::vector<Tensor>& ys) {
  std::vector<Tensor> dots;
  for (const Tensor& y : ys) dots.push_back(sum(ys[0] * y, 0));
  const Tensor w = softmax(op::stack(dots, 0), 0);
  return sum(w * w);
}

Tensor cubic(Tensor v) {
  const std::int64_t n = v.dim(0);
  return sum(v.reshape({n, 1, 1}) * v.reshape({1, n, 1}) * v.reshape({1, 1, n}), {1, 2});
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 16'777'216;
  {
    op::Options relaxed;
    relaxed.relax = {.contract = true, .reassociate = true, .approximate = true};
    const auto once = op::compile([](Tensor x, Tensor dy) { return vjp(curve(x), dy, x); }, relaxed);
    const auto twice = op::compile([](Tensor x, Tensor dy) { return vjp(vjp(curve(x), dy, x), dy, x); }, relaxed);
    const Array x = random_floats({n}, 4.0f), dy = random_floats({n}, 1.0f);
    Array first = Array::empty({n}, op::f32), second = Array::empty({n}, op::f32);
    compare(
        "gelu's second derivative, its first", n, [&] { twice.into(second)(x, dy); }, [&] { once.into(first)(x, dy); }, 0.8);
  }
  {
    std::vector<Array> ys;
    for (int t = 0; t < 256; ++t) ys.push_back(random_floats({32, 128}, 0.01f * static_cast<float>(1 + t % 7)));
    const auto forward = op::compile([](std::vector<Tensor> y) { return loss(y); });
    const auto both = op::compile([](std::vector<Tensor> y) { return value_and_grad(loss, y); });
    compare(
        "256 arrays: loss and gradient, the loss", 256 * 32 * 128, [&] { both(ys); }, [&] { forward(ys); }, 0.24);
  }
  {
    const Array v = random_floats({500}, 0.1f);
    const auto forward = op::compile([](Tensor x) { return cubic(x); });
    const auto gradient = op::compile([](Tensor x) { return grad(sum(cubic(x)), x); });
    compare(
        "a sum over three axes: its gradient, itself", 500 * 500 * 500, [&] { gradient(v); }, [&] { forward(v); }, 0.25);
  }
}
