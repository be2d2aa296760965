// Times narrow element types against reference operations, alternately, on one thread: x*w + b of halves against a copy of as many bytes
// (in the caches, where conversions are the limit, and from memory); gelu of halves against gelu of f32; and an elementwise operation on
// bytes against a hand-written loop.
//   elements [number of elements: 262144]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <onepass/onepass.h>

#include "in_turn.h"

namespace op = onepass;
using op::Array, op::Tensor, op::bench::compare;

namespace {

#if defined(__x86_64__) && defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#elif defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3", "no-trapping-math")))
#endif
void scale_by_hand(const std::uint8_t* __restrict x, std::uint8_t* __restrict y, std::int64_t n, float factor, float shift) {
  for (std::int64_t i = 0; i < n; ++i) {
    float v = static_cast<float>(x[i]) * factor + shift;
    v = v > 0.0f ? v : 0.0f;
    v = v < 255.0f ? v : 255.0f;
    y[i] = static_cast<std::uint8_t>(static_cast<int>(v));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 262144;
  op::Options options;
  options.threads = 1;
  const auto affine = op::compile([](Tensor x, Tensor w, Tensor b) { return x * w + b; }, options);
  const auto curve = op::compile([](Tensor x) { return gelu(x); }, options);
  const auto point = op::compile([](Tensor x) { return cast(cast(x, op::f32) * 0.8f + 10.0f, op::u8); }, options);
  const Array single = Array::full({n}, 0.75f, op::f32);
  Array single_out = Array::empty({n}, op::f32);
  for (const op::DType t : {op::f16, op::bf16}) {
    const bool f16 = t == op::f16;
    const char* const name = f16 ? "f16" : "bf16";
    for (const std::int64_t m : {n, 64 * n}) {
      const Array x = Array::full({m}, 0.75f, t), w = Array::full({m}, 1.5f, t), b = Array::full({m}, 0.25f, t);
      Array y = Array::empty({m}, t);
      const Array from = Array::full({2 * m}, 0.75f, t), to = Array::zeros({2 * m}, t);  // as much as three operands and a result
      const auto copy = [&] { std::memcpy(to.mutable_data(), from.data(), static_cast<std::size_t>(to.bytes())); };
      compare(
          fmt::format("x*w + b of {} {}, a copy of its bytes", m, name).c_str(), m, [&] { affine.into(y)(x, w, b); }, copy, 0.9);
    }
    const Array x = Array::full({n}, 0.75f, t);
    Array y = Array::empty({n}, t);
    compare(
        f16 ? "gelu of f16, of f32" : "gelu of bf16, of f32", n, [&] { curve.into(y)(x); }, [&] { curve.into(single_out)(single); }, 1);
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n)), by_hand(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
  const Array x = Array::wrap(bytes);
  Array y = Array::empty({n}, op::u8);
  const auto hand = [&] { scale_by_hand(bytes.data(), by_hand.data(), n, 0.8f, 10.0f); };
  compare(
      "cast(cast(x, f32)*0.8 + 10, u8), by hand", n, [&] { point.into(y)(x); }, hand, 0.85);
  if (y.to_vector<std::uint8_t>() != by_hand) {
    std::puts("the results differ");
    return 1;
  }
}
