// Loops with state: scan, fold, iterate and while_loop have the bits of plain C++ loops in every mode. Gradients have the bits of the
// unrolled loop's gradients.
#include <onepass/onepass.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"
#include "how_long.h"

namespace op = onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using op::Array, op::Tensor;

namespace {

template <class F> std::string error_of(F f) {
  try {
    f();
  } catch (const op::Error& e) { return e.what(); }
  return "no error";
}

constexpr op::Mode kModes[] = {op::Mode::reference, op::Mode::unfused, op::Mode::generic, op::Mode::specialized, op::Mode::adaptive};

op::Options with(op::Mode mode) {
  op::Options options;
  options.mode = mode;
  return options;
}

// h' = omega + alpha r² + beta h, the recurrence of GARCH(1, 1), in f64.
struct Garch {
  double omega = 0.1, alpha = 0.15, beta = 0.8, h0 = 1;
  std::vector<double> h(const std::vector<double>& r) const {
    std::vector<double> all;
    double h = h0;
    for (const double x : r) all.push_back(h = omega + alpha * (x * x) + beta * h);
    return all;
  }
};

}  // namespace

TEST_CASE("state loops: a recurrence has the bits of the plain loop, in every mode", "[loops]") {
  const Array r = random_array({40}, op::f64);
  const Garch garch;
  const std::vector<double> expected = garch.h(r.to_vector<double>());
  for (const op::Mode mode : kModes) {
    INFO("mode " << static_cast<int>(mode));
    auto f = op::compile(
        [&](Tensor r, Tensor omega, Tensor alpha, Tensor beta) {
          return op::scan(
              [&](Tensor h, Tensor x) {
                const Tensor next = omega + alpha * (x * x) + beta * h;
                return std::pair{next, next};
              },
              garch.h0, r);
        },
        with(mode));
    const auto [last, all] = f(r, garch.omega, garch.alpha, garch.beta);
    CHECK(all.to_vector<double>() == expected);
    CHECK(last.to_vector<double>()[0] == expected.back());
  }
}

TEST_CASE("state loops: several states, indices, and reverse order", "[loops]") {
  const Array x = random_array({7, 3}, op::f64), y = random_array({7}, op::f64, 2);
  const std::vector<double> xs = x.to_vector<double>(), ys = y.to_vector<double>();
  for (const bool reverse : {false, true})
    for (const op::Mode mode : kModes) {
      INFO("mode " << static_cast<int>(mode) << ", reverse " << reverse);
      auto f = op::compile(
          [&](Tensor x, Tensor y) {
            return op::scan(
                [](std::pair<Tensor, Tensor> s, std::tuple<Tensor, Tensor> e) {
                  const auto [a, b] = s;
                  const auto [x, y] = e;
                  const Tensor next = a * y + x;
                  return std::pair{std::pair{next, b + y}, std::vector{next - b, b * 2}};
                },
                std::pair{op::zeros({3}, op::f64), Tensor(1.5)}, std::tuple{x, y}, reverse);
          },
          with(mode));
      const auto [last, results] = f(x, y);
      std::vector<double> a(3, 0), first(21), second(7);
      double b = 1.5;
      for (std::size_t step = 0; step < 7; ++step) {
        const std::size_t i = reverse ? 6 - step : step;
        for (std::size_t j = 0; j < 3; ++j) {
          a[j] = a[j] * ys[i] + xs[3 * i + j];
          first[3 * i + j] = a[j] - b;
        }
        second[i] = b * 2;
        b += ys[i];
      }
      CHECK(last.first.to_vector<double>() == a);
      CHECK(last.second.to_vector<double>()[0] == b);
      REQUIRE(results.size() == 2);
      CHECK(std::ranges::equal(results[0].shape(), std::vector<std::int64_t>{7, 3}));
      CHECK(results[0].to_vector<double>() == first);
      CHECK(results[1].to_vector<double>() == second);
    }
  auto indexed = op::compile([](Tensor x) {
    const auto add = [&](Tensor s, Tensor i) { return s * 3 + i; };
    return std::tuple{op::fold(add, 0, 5), op::fold(add, x, op::Static<int>{4}, true),
                      op::iterate([](Tensor s) { return s * s + 1; }, x, 3)};
  });
  const auto [all, back, square] = indexed(2.0);
  CHECK(all.dtype() == op::i32);
  CHECK(all.to_vector<std::int32_t>()[0] == (((0 * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 4);
  CHECK(back.to_vector<float>()[0] == (((2 * 3 + 3) * 3 + 2) * 3 + 1) * 3 + 0);
  CHECK(square.to_vector<float>()[0] == 677);
}

TEST_CASE("state loops: zero steps leave the state unchanged", "[loops]") {
  const Array x = random_array({4}, op::f32), none = Array::zeros({0, 4}, op::f32);
  auto f = op::compile([](Tensor x, Tensor none) {
    const auto step = [](Tensor s) { return s + 1; };
    return std::tuple{op::fold([](Tensor s, Tensor x) { return s + x; }, x, none), op::iterate(step, x, 0),
                      op::while_loop([](Tensor s) { return s < 1; }, step, x, 0)};
  });
  const auto [a, b, c] = f(x, none);
  for (const Array& got : {a, b, c}) CHECK(bytes_of(got) == bytes_of(x));
}

TEST_CASE("state loops: each element continues by its own condition", "[loops]") {
  constexpr int kMost = 40;
  const Array re = random_array({5, 6}, op::f64), im = random_array({5, 6}, op::f64, 2);
  const std::vector<double> a = re.to_vector<double>(), b = im.to_vector<double>();
  struct Point {
    double x = 0, y = 0;
    std::int32_t n = 0;
  };
  std::vector<Point> expected;
  for (std::size_t i = 0; i < a.size(); ++i) {
    Point p;
    while (p.n < kMost && p.x * p.x + p.y * p.y <= 4) p = {p.x * p.x - p.y * p.y + 2 * a[i], 2 * (p.x * p.y) + b[i], p.n + 1};
    expected.push_back(p);
  }
  CHECK(std::ranges::any_of(expected, [](const Point& p) { return p.n == kMost; }));
  CHECK(std::ranges::any_of(expected, [](const Point& p) { return p.n > 1 && p.n < kMost; }));
  for (const op::Mode mode : kModes) {
    INFO("mode " << static_cast<int>(mode));
    auto mandelbrot = op::compile(
        [](Tensor a, Tensor b) {
          const Tensor zero = op::zeros(a.shape(), op::f64);
          return op::while_loop([](std::array<Tensor, 3> z) { return z[0] * z[0] + z[1] * z[1] <= 4; },
                                [&](std::array<Tensor, 3> z) {
                                  return std::array{z[0] * z[0] - z[1] * z[1] + 2 * a, 2 * (z[0] * z[1]) + b, z[2] + 1};
                                },
                                std::array{zero, zero, op::zeros(a.shape(), op::i32)}, kMost);
        },
        with(mode));
    const auto [x, y, n] = mandelbrot(re, im);
    const std::vector<double> gx = x.to_vector<double>(), gy = y.to_vector<double>();
    const std::vector<std::int32_t> gn = n.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK((gx[i] == expected[i].x && gy[i] == expected[i].y && gn[i] == expected[i].n));
  }
}

TEST_CASE("state loops: a condition on all elements, and an element that keeps its state after its end", "[loops]") {
  const Array x = Array::from(std::vector<double>{0.5, 9, 3}, {3});
  auto f = op::compile([](Tensor x) {
    const Tensor together = op::while_loop([](Tensor s) { return sum(s) < 100; }, [](Tensor s) { return s * 2; }, x, 50);
    // the second element ends at once, although its condition would hold again for later values of the other elements
    const Tensor apart = op::while_loop([](Tensor s) { return s <= min(s) + 4; }, [](Tensor s) { return s + 1; }, x, 6);
    return std::pair{together, apart};
  });
  const auto [together, apart] = f(x);
  CHECK(together.to_vector<double>() == std::vector<double>{4, 72, 24});
  CHECK(apart.to_vector<double>() == std::vector<double>{6.5, 9, 9});
}

TEST_CASE("state loops: a number takes the type of the step's result", "[loops]") {
  auto f = op::compile([](Tensor x, Tensor k) {
    const Tensor total = op::fold([](Tensor s, Tensor x) { return s + x; }, 0.1, x);
    const auto [count, mean] = op::fold(
        [](std::pair<Tensor, Tensor> s, Tensor x) {
          return std::pair{s.first + 1, s.second + (x - s.second) / (s.first + 1)};
        },
        std::pair{Tensor(0), Tensor(0)}, x);
    // the first number takes the type of the second number
    const auto shifted = op::fold(
        [](std::pair<Tensor, Tensor> s, Tensor x) {
          return std::pair{s.second, x};
        },
        std::pair{Tensor(1), Tensor(2)}, k);
    return std::tuple{total, count, mean, shifted.first};
  });
  const auto [total, count, mean, shifted] =
      f(Array::from(std::vector<float>{1, 2, 4}, {3}), Array::from(std::vector<std::int16_t>{5, 6, 7}, {3}));
  CHECK(total.to_vector<float>()[0] == ((0.1f + 1) + 2) + 4);
  CHECK(count.dtype() == op::i64);
  CHECK(count.to_vector<std::int64_t>()[0] == 3);
  CHECK(mean.to_vector<float>()[0] == Approx(7.0 / 3));
  CHECK(shifted.dtype() == op::i16);
  CHECK(shifted.to_vector<std::int16_t>()[0] == 6);
}

namespace {

// Returns a loop by `op::scan` or unrolled, and its gradients with respect to all operands.
template <class Step> std::pair<Tensor, Tensor> steps(bool by_hand, Step step, Tensor h, Tensor x) {
  if (!by_hand) return op::scan(step, h, x);
  std::vector<Tensor> all;
  for (std::int64_t i = 0; i < x.dim(0); ++i) {
    const auto [next, y] = step(h, x[i]);
    h = next;
    all.push_back(y);
  }
  return {h, op::stack(all, 0)};
}

auto rnn(bool by_hand, bool again) {
  return [=](Tensor x, Tensor u, Tensor h0) {
    const auto step = [&](Tensor h, Tensor x) {
      const Tensor next = tanh(matmul(h, u) + x);
      return std::pair{next, sum(next * next)};
    };
    const auto [h, ys] = again ? steps(by_hand, op::checkpoint(step), h0, x) : steps(by_hand, step, h0, x);
    const auto [dx, du, dh] = grad(sum(ys) + sum(h), x, u, h0);
    return std::tuple{ys, h, dx, du, dh};
  };
}

}  // namespace

TEST_CASE("state loops: gradients have the bits of the unrolled loop's gradients", "[loops]") {
  const Array x = random_array({6, 4}, op::f64), u = random_array({4, 4}, op::f64, 2), h = random_array({4}, op::f64, 3);
  for (const op::Mode mode : kModes) {
    INFO("mode " << static_cast<int>(mode));
    for (const bool again : {false, true}) {
      const auto expected = op::compile(rnn(true, again), with(mode))(x, u, h);
      const auto got = op::compile(rnn(false, again), with(mode))(x, u, h);
      CHECK(bytes_of(std::get<0>(got)) == bytes_of(std::get<0>(expected)));
      CHECK(bytes_of(std::get<1>(got)) == bytes_of(std::get<1>(expected)));
      CHECK(bytes_of(std::get<2>(got)) == bytes_of(std::get<2>(expected)));
      CHECK(bytes_of(std::get<3>(got)) == bytes_of(std::get<3>(expected)));
      CHECK(bytes_of(std::get<4>(got)) == bytes_of(std::get<4>(expected)));
    }
  }
}

TEST_CASE("state loops: gradients agree with differences, in reverse and in forward mode", "[loops]") {
  const auto loss = [](Tensor r, Tensor p) {
    const auto [h, all] = op::scan(
        [&](Tensor h, Tensor x) {
          const Tensor next = exp(p[0]) + sigmoid(p[1]) * (x * x) + sigmoid(p[2]) * h;
          return std::pair{next, log(next) + x * x / next};
        },
        1.0, r, true);
    return sum(all);
  };
  CHECK(op::check_gradients(loss, random_array({30}, op::f64), Array::from(std::vector<double>{-2, -1, 1}, {3})));
  // elements take different numbers of steps: x -> x - (x² - a)/(2x), Newton's iteration for the root of a
  const auto newton = [](Tensor a) {
    return sum(op::while_loop([&](Tensor x) { return abs(x * x - a) > 1e-3; }, [&](Tensor x) { return x - (x * x - a) / (2 * x); }, a, 20));
  };
  const Array a = Array::from(std::vector<double>{1, 2, 7, 100, 1e4}, {5});
  CHECK(op::check_gradients(newton, a));
  const std::vector<double> d = op::compile([&](Tensor a) { return grad(newton(a), a); })(a).to_vector<double>();
  CHECK(d[0] == 1);  // the state of element 0 never changes
  for (std::size_t i = 1; i < d.size(); ++i) CHECK(d[i] == Approx(0.5 / std::sqrt(a.to_vector<double>()[i])).epsilon(1e-2));
}

TEST_CASE("state loops: a finished element gives no NaN to the gradient", "[loops]") {
  auto f = op::compile([](Tensor x) {
    const Tensor y = op::while_loop([](Tensor s) { return s > 0; }, [](Tensor s) { return s - sqrt(s); }, x, 3);
    return std::pair{y, grad(sum(y), x)};
  });
  const auto [y, dx] = f(Array::from(std::vector<double>{0, -4, 9}, {3}));
  CHECK(y.to_vector<double>()[1] == -4);
  CHECK(dx.to_vector<double>()[0] == 1);
  CHECK(dx.to_vector<double>()[1] == 1);
  CHECK(std::isfinite(dx.to_vector<double>()[2]));
}

TEST_CASE("state loops: loops nest and are mapped over elements", "[loops]") {
  const Array x = random_array({3, 5}, op::f64);
  auto f = op::compile([](Tensor x) {
    const auto row = [](Tensor x) { return op::fold([](Tensor s, Tensor x) { return s * 0.5 + x; }, 0.0, x); };
    return std::pair{op::fold([&](Tensor s, Tensor x) { return s * row(x); }, 1.0, x), op::vmap(row)(x)};
  });
  const auto [product, rows] = f(x);
  double expected = 1;
  const std::vector<double> values = x.to_vector<double>(), got = rows.to_vector<double>();
  for (std::size_t i = 0; i < 3; ++i) {
    double s = 0;
    for (std::size_t j = 0; j < 5; ++j) s = s * 0.5 + values[5 * i + j];
    CHECK(got[i] == s);
    expected *= s;
  }
  CHECK(product.to_vector<double>()[0] == expected);
}

TEST_CASE("state loops: every mistake throws the expected error", "[loops]") {
  const Array x = random_array({4}), y = random_array({5});
  const auto plus = [](Tensor s, Tensor x) { return s + x; };
  const auto both = [](Tensor s, Tensor x) { return std::pair{s + x, s}; };
  const auto same = [](Tensor s) { return s; };
  const auto says = [&](const char* words, std::function<Tensor(Tensor, Tensor)> f, op::Options options = {}) {
    const std::string text = error_of([&] { op::compile(f, options)(x, y); });
    CHECK_THAT(text, Contains(words) && Contains("Recorded at") && Contains("test_state_loops.cpp"));
  };
  says("fold: the xs have 4 and 5 steps along axis 0, x0 f32[4] and x1 f32[5]; the lengths must be equal", [&](Tensor x, Tensor y) {
    return op::fold([](Tensor s, std::pair<Tensor, Tensor> e) { return s + e.first + e.second; }, 0, std::pair{x, y});
  });
  says("which f32[] does not have", [&](Tensor x, Tensor) { return op::fold(plus, x, sum(x)); });
  says("neither xs nor a number of steps is given",
       [&](Tensor x, Tensor) { return op::fold([](Tensor s, std::vector<Tensor>) { return s; }, x, std::vector<Tensor>()); });
  says("there is no state", [&](Tensor x, Tensor) {
    op::fold([](std::vector<Tensor> s, Tensor) { return s; }, std::vector<Tensor>(), x);
    return x;
  });
  says("scan: the number of steps is 0", [&](Tensor x, Tensor) { return op::scan(both, x, 0).first; });
  says("iterate: the number of steps is -1; it must not be negative", [&](Tensor x, Tensor) { return op::iterate(same, x, -1); });
  says("fold: the state is x0 f32[4] before step 0 and f64[4] after it; a state must keep its type",
       [&](Tensor x, Tensor) { return op::fold([](Tensor s, Tensor) { return cast(s, op::f64); }, x, 3); });
  says("fold: the state is i64[] before step 0 and x0 f32[4] after it; a state must keep its type",
       [&](Tensor x, Tensor) { return op::fold([&](Tensor, Tensor) { return x; }, op::full({}, 0, op::i64), 3); });
  says("a state must keep its shape. Begin with a state of that shape",
       [&](Tensor x, Tensor) { return op::fold([&](Tensor s, Tensor) { return s + x; }, 0, 3); });
  says("iterate: 1 state before a step, but 2 after it", [&](Tensor x, Tensor) {
    op::iterate([](std::vector<Tensor> s) { return std::vector{s[0], s[0]}; }, std::vector{x}, 3);
    return x;
  });
  says("scan: the first step has 1 results, but step 1 has 2", [&](Tensor x, Tensor) {
    std::size_t n = 0;
    op::scan([&](Tensor s, Tensor) { return std::pair{s, std::vector<Tensor>(++n, s)}; }, x, 3);
    return x;
  });
  says("scan: result 0 is f32[1] in the first step and f32[2] in step 1", [&](Tensor x, Tensor) {
    std::int64_t n = 0;
    return op::scan([&](Tensor s, Tensor) { return std::pair{s, x.slice(0, 0, ++n)}; }, x, 3).second;
  });
  says("while_loop: the condition is x0 f32[4]; it must be bool", [&](Tensor x, Tensor) { return op::while_loop(same, same, x, 3); });
  says("while_loop: the condition bool[5] does not broadcast to the state, x0 f32[4]",
       [&](Tensor x, Tensor y) { return op::while_loop([&](Tensor) { return y > 0; }, same, x, 3); });
  op::Options few;
  few.limits.max_nodes = 100;
  says(
      "iterate: 101 steps are more than 100, the limit `max_nodes`", [&](Tensor x, Tensor) { return op::iterate(same, x, 101); }, few);
  says(
      "iterate: 60 steps of 2 nodes are more than 100 nodes, the limit `max_nodes`",
      [&](Tensor x, Tensor) { return op::iterate([](Tensor s) { return exp(s) + s; }, x, 60); }, few);
  CHECK_THAT(error_of([&] { op::fold(plus, x, 3); }), Contains("nothing is being recorded"));
}

TEST_CASE("state loops: a number as the initial state takes the type of the number after a step", "[state_loops]") {
  const auto value = [](auto&& f) { return op::compile(f)(Array::from({1.0f})).template at<float>({0}); };
  CHECK(value([](Tensor x) { return op::iterate([](Tensor s) { return s * 1.5; }, Tensor(1), 3) + x; }) == 4.375f);
}

namespace {

// A step of random elementwise operators on `n` states, `m` elements and two captures. Equal seeds give equal steps. All values depend on
// a state or an element: a value of captures alone is computed before a loop that is one node, so its derivative is added later.
struct RandomStep {
  std::uint64_t seed;
  std::size_t n, m;
  std::pair<std::vector<Tensor>, std::vector<Tensor>> operator()(const std::vector<Tensor>& states, const std::vector<Tensor>& xs,
                                                                 const std::vector<Tensor>& captures) const {
    std::mt19937_64 random(seed);
    std::vector<Tensor> pool = states;
    pool.insert(pool.end(), xs.begin(), xs.end());
    const auto any = [&] { return pool[random() % pool.size()]; };
    for (int i = 0; i < 8; ++i) {
      const Tensor a = any(), b = random() % 3 ? any() : captures[random() % 2];
      switch (random() % 10) {
        case 0: pool.push_back(a + b); break;
        case 1: pool.push_back(a - b * 0.5); break;
        case 2: pool.push_back(a * b); break;
        case 3: pool.push_back(tanh(a) * 0.75); break;
        case 4: pool.push_back(b / (1.5 + tanh(a * b))); break;
        case 5: pool.push_back(where(a > b, a, b * 0.25)); break;
        case 6: pool.push_back(sqrt(abs(a) + 0.125)); break;
        case 7: pool.push_back(exp(-(a * a))); break;
        case 8: pool.push_back(cast(cast(a + b, random() % 2 ? op::f16 : op::bf16), a.dtype())); break;
        default: pool.push_back(maximum(a, b) + captures[1]); break;
      }
    }
    std::pair<std::vector<Tensor>, std::vector<Tensor>> out;
    for (std::size_t i = 0; i < n; ++i) out.first.push_back(tanh(pool[pool.size() - 1 - i] + states[i] * 0.5));
    out.second = {any(), random() % 2 ? out.first[0] : any()};
    return out;
  }
};

// Returns the elements, with +0 for -0.
std::vector<double> plus_zero(const Array& a) {
  std::vector<double> out;
  const auto add = [&](const auto& values) {
    for (const auto x : values) out.push_back(static_cast<double>(static_cast<float>(x)));
  };
  if (a.dtype() == op::f64) out = a.to_vector<double>();
  else if (a.dtype() == op::f16) add(a.to_vector<op::Half>());
  else if (a.dtype() == op::bf16) add(a.to_vector<op::BFloat16>());
  else add(a.to_vector<float>());
  for (double& x : out) x += 0.0;
  return out;
}

}  // namespace

TEST_CASE("state loops: a long loop becomes one node, with the bits of the unrolled loop and of its gradients", "[loops]") {
  constexpr std::int64_t kSteps = 70;
  const int rounds = op::test::rounds(12, 400);
  int unrolled = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<std::int64_t> shape = round == 10      ? std::vector<std::int64_t>{0}
                                            : round % 7 == 6 ? std::vector<std::int64_t>{700}
                                            : round % 3 == 0 ? std::vector<std::int64_t>{}
                                            : round % 3 == 1 ? std::vector<std::int64_t>{3}
                                                             : std::vector<std::int64_t>{2, 3};
    const RandomStep step{static_cast<std::uint64_t>(round), 1 + static_cast<std::size_t>(round) % 2,
                          1 + static_cast<std::size_t>(round / 2) % 2};
    const bool reverse = round % 4 == 3;
    const auto type = std::array{op::f32, op::f64, op::f16, op::bf16, op::f64, op::f32}[static_cast<std::size_t>(round) % 6];
    const auto program = [&](bool by_hand) {
      return [&, by_hand](std::vector<Tensor> in) {
        const std::vector<Tensor> states(in.begin(), in.begin() + 2), captures(in.begin() + 4, in.end());
        const std::vector<Tensor> init(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(step.n));
        const std::vector<Tensor> xs(in.begin() + 2, in.begin() + 2 + static_cast<std::ptrdiff_t>(step.m));
        std::vector<Tensor> last = init, stacked;
        if (by_hand) {
          std::vector<std::vector<Tensor>> ys(2, std::vector<Tensor>(static_cast<std::size_t>(kSteps)));
          for (std::int64_t t = 0; t < kSteps; ++t) {
            const std::int64_t at = reverse ? kSteps - 1 - t : t;
            std::vector<Tensor> each;
            for (const Tensor& x : xs) each.push_back(x[at]);
            const auto [next, y] = step(last, each, captures);
            for (std::size_t k = 0; k < 2; ++k) ys[k][static_cast<std::size_t>(at)] = y[k];
            last = next;
          }
          for (const std::vector<Tensor>& y : ys) stacked.push_back(op::stack(y));
        } else {
          std::tie(last, stacked) =
              op::scan([&](std::vector<Tensor> s, std::vector<Tensor> x) { return step(s, x, captures); }, init, xs, reverse);
        }
        Tensor loss = sum(sin(stacked[0]) * stacked[1]);
        for (const Tensor& s : last) loss = loss + sum(s * s);
        std::vector<Tensor> out = last;
        out.insert(out.end(), stacked.begin(), stacked.end());
        const std::vector<Tensor> gradients = grad(loss, in);
        out.insert(out.end(), gradients.begin(), gradients.end());
        return out;
      };
    };
    std::vector<std::int64_t> of_steps = {kSteps};
    of_steps.insert(of_steps.end(), shape.begin(), shape.end());
    std::vector<Array> in;
    for (std::uint64_t k = 0; k < 6; ++k)
      in.push_back(random_array(k == 2 || k == 3 ? of_steps : shape, type, 10 * static_cast<std::uint64_t>(round) + k));
    const std::vector<Array> expected = op::compile(program(true), with(op::Mode::reference))(in);
    for (const op::Mode mode : kModes) {
      INFO("round " << round << ", mode " << static_cast<int>(mode));
      auto f = op::compile(program(false), with(mode));
      for (int call = 0; call < 2; ++call) {
        const std::vector<Array> got = f(in);
        REQUIRE(got.size() == expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          INFO("result " << i << ", call " << call);
          CHECK(plus_zero(got[i]) == plus_zero(expected[i]));
        }
      }
      if (mode == op::Mode::reference) unrolled += f.last_execution().nodes.size() > 1000;
    }
  }
  CHECK(unrolled <= rounds / 6);  // 70 steps of 8 operators and their derivatives are thousands of nodes
}

TEST_CASE("state loops: the function of a long loop is called three times, or for each step if the steps differ", "[loops]") {
  const Array r = random_array({100'000}, op::f64);
  const Garch garch;
  int calls = 0;
  auto f = op::compile([&](Tensor r) {
    return op::scan(
        [&](Tensor h, Tensor x) {
          ++calls;
          const Tensor next = garch.omega + garch.alpha * (x * x) + garch.beta * h;
          return std::pair{next, next};
        },
        Tensor(garch.h0), r);
  });
  const auto [last, all] = f(r);
  CHECK(all.to_vector<double>() == garch.h(r.to_vector<double>()));
  CHECK(calls % 3 == 1);  // each recording: three steps, and one for the type of the number
  CHECK(f.last_execution().nodes.size() < 50);

  constexpr int kSteps = 80;
  const Array x = random_array({5}, op::f64);
  auto scaled = op::compile([&](Tensor x) {  // another number in each step
    int step = 0;
    return op::iterate([&](Tensor s) { return s + x * (0.25 * ++step); }, x, kSteps);
  });
  std::vector<double> expected = x.to_vector<double>();
  const std::vector<double> of = expected;
  for (int step = 1; step <= kSteps; ++step)
    for (std::size_t i = 0; i < of.size(); ++i) expected[i] += of[i] * (0.25 * step);
  CHECK(scaled(x).to_vector<double>() == expected);

  auto damped = op::compile([&](Tensor x, Tensor k) {  // numbers that each step computes from the call's number
    return op::iterate([&](Tensor s) { return s * (1 - k / 4) + k * 2; }, x, kSteps);
  });
  for (const double k : {0.5, 0.25}) {
    std::vector<double> wanted = of;
    for (int step = 0; step < kSteps; ++step)
      for (double& v : wanted) v = v * (1 - k / 4) + k * 2;
    CHECK(damped(x, k).to_vector<double>() == wanted);
    CHECK(damped.last_execution().nodes.size() < 30);
  }
  CHECK(damped.stats().recordings == 1);

  auto lagged = op::compile([&](Tensor x) {  // each step reads the state before the last step
    Tensor before = x;
    return op::iterate([&](Tensor s) { return std::exchange(before, s) * 0.5 + s * 0.25; }, x * 2, kSteps);
  });
  std::vector<double> a = of, b = of;
  for (double& v : b) v *= 2;
  for (int step = 0; step < kSteps; ++step)
    for (std::size_t i = 0; i < of.size(); ++i) a[i] = std::exchange(b[i], a[i] * 0.5 + b[i] * 0.25);
  CHECK(lagged(x).to_vector<double>() == b);
}

TEST_CASE("state loops: long loops are mapped over elements, and have second derivatives", "[loops]") {
  constexpr std::int64_t kSteps = 66;
  const auto fold = [](bool by_hand, Tensor h, Tensor w, Tensor x) {
    const auto step = [&](Tensor s, Tensor x) { return tanh(s * w + x) - s * 0.125; };
    if (!by_hand) return op::fold(step, h, x);
    for (std::int64_t t = 0; t < kSteps; ++t) h = step(h, x[t]);
    return h;
  };
  const auto program = [&](bool by_hand) {
    return [&, by_hand](Tensor h, Tensor w, Tensor x) {
      const auto loss = [&](Tensor h, Tensor w, Tensor x) {
        const Tensor last = fold(by_hand, h, w, x);
        return sum(last * last);
      };
      const auto [dh, dw, dx] = grad(loss(h, w, x), h, w, x);
      const auto [hh, hw, hx] = grad(sum(dh * dh) + sum(dw) + sum(sin(dx)), h, w, x);
      const Tensor mapped =
          op::vmap([&](Tensor h, Tensor x) { return fold(by_hand, h, w, x); })(op::stack({h, h * 2}), op::stack({x, x + 1}));
      const auto [mh, mw] = grad(sum(mapped * mapped), h, w);
      return std::vector{hh, hw, hx, mapped, mh, mw};
    };
  };
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {4}}) {
    std::vector<std::int64_t> of_steps = {kSteps};
    of_steps.insert(of_steps.end(), shape.begin(), shape.end());
    const Array h = random_array(shape, op::f64), w = random_array(shape, op::f64, 2), x = random_array(of_steps, op::f64, 3);
    const std::vector<Array> expected = op::compile(program(true), with(op::Mode::reference))(h, w, x);
    std::vector<std::vector<double>> of_reference;
    for (const op::Mode mode : {op::Mode::reference, op::Mode::generic}) {
      INFO("mode " << static_cast<int>(mode));
      const std::vector<Array> got = op::compile(program(false), with(mode))(h, w, x);
      std::vector<std::vector<double>> values;
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO("result " << i);
        values.push_back(got[i].to_vector<double>());
        const std::vector<double> wanted = expected[i].to_vector<double>();
        for (std::size_t k = 0; k < wanted.size(); ++k) CHECK(values[i][k] == Approx(wanted[k]).epsilon(1e-12).margin(1e-12));
        if (i >= 3) CHECK(plus_zero(got[i]) == plus_zero(expected[i]));  // second derivatives add their terms in another order
      }
      if (mode == op::Mode::reference) of_reference = values;
      CHECK(values == of_reference);
    }
  }
}
