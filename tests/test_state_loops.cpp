// Loops with state: scan, fold, iterate and while_loop have the bits of plain C++ loops in every mode. Gradients have the bits of the
// unrolled loop's gradients.
#include <onepass/onepass.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"

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
