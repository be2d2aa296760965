// A user's program for the installed headers and library: records, compiles, runs, differentiates, and catches an error by its type.
#include <onepass/onepass.h>

#include <cstdio>
#include <string>
#include <vector>

namespace op = onepass;
using op::Array, op::Tensor;

int main() {
  const std::vector<float> values = {1, 2, 3, 4};
  const Array x = Array::wrap(values, {2, 2});
  op::Options options;
  options.mode = op::Mode::generic;  // compiles, so it needs the code generator
  auto scaled = op::compile([](Tensor a, Tensor k) { return a * k + 1.0f; }, options);
  const Array y = scaled(x, 2.0);
  if (y.to_vector<float>() != std::vector<float>{3, 5, 7, 9}) return 1;

  const op::Formula slope = op::formula("da = grad(sum(a*a), [a])", options);
  if (Array(slope({x})).to_vector<float>() != std::vector<float>{2, 4, 6, 8}) return 2;

  try {
    scaled(x, Array::ones({3, 3}, op::f32));
    return 3;
  } catch (const op::ShapeError& error) {  // the exception's type information comes from the library
    if (std::string(error.what()).find("mul") == std::string::npos) return 4;
  }
  std::printf("onepass %s\n", ONEPASS_VERSION);
}
