// Reductions, scans and gathers against what they should keep up with, each pair timed in turn:
//   sums of 64M and 32M elements of four shapes on one thread and on two, beside what a copy gains
//   cumsum along rows and along columns against a copy of as many bytes
//   take of a million rows of 64 floats against the loop that one writes by hand, which checks nothing
//   reductions [divisor of all sizes: 1]
#include <cstdlib>
#include <cstring>
#include <random>

#include <onepass/onepass.h>

#include "in_turn.h"

namespace op = onepass;
using op::Array, op::Tensor, op::bench::compare;

namespace {

void take_by_hand(const float* x, const std::int64_t* rows, float* y, std::int64_t n, std::int64_t width) {
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(y + i * width, x + rows[i] * width, static_cast<std::size_t>(width) * sizeof(float));
}

op::Options on(int threads) {
  op::Options options;
  options.threads = threads;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t by = argc > 1 ? std::max(1LL, std::atoll(argv[1])) : 1;
  {
    const Array x = Array::full({16'000'000 / by}, 0.5f, op::f32);
    Array y = Array::empty({x.size()}, op::f32);
    const auto twice = [](Tensor v) { return v * 2.0f; };
    const auto one = op::compile<Tensor(Tensor)>(twice, on(1)), two = op::compile<Tensor(Tensor)>(twice, on(2));
    compare(
        "x*2 of 16M on two threads, on one", x.size(), [&] { two.into(y)(x); }, [&] { one.into(y)(x); }, 1.7);
  }
  struct Row {
    const char* name;
    std::vector<std::int64_t> shape;
    int axis;
  };
  for (const Row& row : {Row{"sum of [64M] on two threads, on one", {64'000'000 / by}, 0},
                         {"sum of [1, 64M] on two threads, on one", {1, 64'000'000 / by}, 1},
                         {"sum of [8, 4M] over 0 on two threads, on one", {8, 4'000'000 / by}, 0},
                         {"sum of [8, 4M] over 1 on two threads, on one", {8, 4'000'000 / by}, 1},
                         {"sum of [4M, 8] over 0 on two threads, on one", {4'000'000 / by, 8}, 0},
                         {"sum of [4M, 8] over 1 on two threads, on one", {4'000'000 / by, 8}, 1}}) {
    const Array x = Array::full(row.shape, 0.5f, op::f32);
    const auto sum = [&](Tensor v) { return op::sum(v, row.axis); };
    const auto one = op::compile<Tensor(Tensor)>(sum, on(1)), two = op::compile<Tensor(Tensor)>(sum, on(2));
    Array a = one(x), b = two(x);
    compare(
        row.name, x.size(), [&] { two.into(b)(x); }, [&] { one.into(a)(x); }, 1.7);
    if (std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) != 0) return std::puts("the results differ"), 1;
  }
  for (const int axis : {0, 1}) {
    const std::int64_t n = 4096 / std::min<std::int64_t>(by, 64);
    const Array x = Array::full({n, n}, 0.5f, op::f32);
    Array y = Array::empty({n, n}, op::f32), z = Array::empty({n, n}, op::f32);
    const auto scan = op::compile<Tensor(Tensor)>([axis](Tensor v) { return op::cumsum(v, axis); }, on(2));
    const auto copy = op::compile([](Tensor v) { return v * 2.0f; }, on(2));
    compare(
        axis ? "cumsum of [4096, 4096] along rows, x*2" : "cumsum of [4096, 4096] along columns, x*2", n * n, [&] { scan.into(y)(x); },
        [&] { copy.into(z)(x); }, 0.8);
  }
  const std::int64_t n = 1'000'000 / by, width = 64;
  std::mt19937_64 random(7);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  for (std::int64_t& r : rows) r = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  const Array x = Array::full({n, width}, 0.5f, op::f32), at = Array::wrap(rows);
  Array y = Array::empty({n, width}, op::f32), z = Array::zeros({n, width}, op::f32);
  const auto take = op::compile([](Tensor v, Tensor i) { return op::take(v, i, 0); }, on(1));
  compare(
      "take of 1M rows of 64, by hand, one thread", n * width, [&] { take.into(y)(x, at); },
      [&] { take_by_hand(x.span<const float>().data(), rows.data(), z.span<float>().data(), n, width); }, 0.9);
  if (std::memcmp(y.data(), z.data(), static_cast<std::size_t>(y.bytes())) != 0) return std::puts("the results differ"), 1;
}
