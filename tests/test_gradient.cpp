// Derivatives in the public interface: structs of parameters, forward mode, Hessian products, Jacobians, custom rules, checkpoints. Also
// the errors for bad input.
#include <onepass/onepass.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "arrays.h"
#include "has_codegen.h"

namespace op = onepass;
using op::Array, op::Tensor;
using op::test::same_bits;
using namespace std::string_literals;

namespace {

template <class T> struct Layer {
  T weight, bias;
};
template <class T> struct Model {
  std::vector<Layer<T>> layers;
  std::optional<T> scale;
};

Array random_array(std::vector<std::int64_t> shape, std::uint64_t seed, op::DType dtype = op::f64) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.3, 1.7);
  std::bernoulli_distribution sign;
  Array a = Array::empty(op::Extents(shape), op::f64);
  for (double& v : a.span<double>()) v = sign(random) ? uniform(random) : -uniform(random);
  return dtype == op::f64 ? a : op::compile([dtype](Tensor x) { return cast(x, dtype); })(a);
}

std::vector<double> values(const Array& a) { return a.to_vector<double>(); }

/// Returns the text of the error that `body` throws.
template <class Body> std::string error_of(Body&& body) {
  try {
    body();
  } catch (const op::Error& error) { return error.what(); }
  return "no error";
}

void check_close(const std::vector<double>& a, const std::vector<double>& b, double margin = 1e-12) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("element " << i);
    CHECK(a[i] == Approx(b[i]).margin(margin));
  }
}

/// Functions of one tensor x of shape [3, 4], with every kind of operator that has a specific derivative or Jacobian rule.
struct Case {
  const char* name;
  std::function<Tensor(Tensor)> f;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"elementwise", [](Tensor x) { return tanh(x) * x + sin(x) / 2; }},
      {"broadcast", [](Tensor x) { return exp(x[0]) * x; }},
      {"sum", [](Tensor x) { return sum(x * x, 1); }},
      {"scalar", [](Tensor x) { return sum(sqrt(abs(x)) * 2); }},
      {"softmax", [](Tensor x) { return softmax(x, 0); }},
      {"slices",
       [](Tensor x) {
         return x[{op::All, op::Range{1, 3}}] * x[{op::All, op::Range{0, 4, 2}}];
       }},
      {"pieces",
       [](Tensor x) {
         return op::concat({x * x, x[op::Range{0, 1}]}, 0);
       }},
      {"pad",
       [](Tensor x) {
         return pad(x * x, {1, 0}, {0, 2}, sum(x));
       }},
      {"permuted",
       [](Tensor x) {
         return x.T() * x.reshape({4, 3});
       }},
      {"diagonal", [](Tensor x) { return diagonal(x * x, 1); }},
      {"maximum", [](Tensor x) { return max(x * x, 0) + min(x, 0); }},
      {"roll", [](Tensor x) { return roll(x, 1, 1) * flip(x, 0); }},
      {"dear", [](Tensor x) { return square(lgamma(lgamma(abs(x) + 3) + 1)) * x; }},  // expensive enough to become a residual
      {"scan", [](Tensor x) { return cumsum(x * x, 1) * cumprod(x, 0); }},
      {"product", [](Tensor x) { return prod(x, 0) + prod(x); }},
      {"matmul", [](Tensor x) { return matmul(x, x.T()) / 3; }},
      {"take", [](Tensor x) { return take(x * x, op::iota({4}, 0) % 3, 0) * 2; }},
  };
  return kCases;
}

}  // namespace

TEST_CASE("grad: gradients of structs, vectors and tuples have the parameters' nesting", "[gradient]") {
  auto f = op::compile([](const Model<Tensor>& model, Tensor input) {
    Tensor x = input;
    for (const Layer<Tensor>& l : model.layers) x = tanh(x * l.weight + l.bias);
    const Tensor loss = sum(model.scale ? x * *model.scale : x);
    const Model<Tensor> d = grad(loss, model);
    const auto [of_first, of_x] = grad(loss, model.layers[0], input);
    return std::tuple{loss, d.layers, d.scale ? *d.scale : Tensor(0), of_first, of_x};
  });
  const Array w = random_array({3}, 1), b = random_array({3}, 2), x = random_array({3}, 3), s = random_array({3}, 4);
  const auto [loss, layers, scale, first, dx] = f(Model<Array>{{{w, b}, {b, w}}, s}, x);
  auto by_hand = op::compile([](Tensor w, Tensor b, Tensor s, Tensor x) {
    const Tensor h = tanh(x * w + b), y = tanh(h * b + w);
    const Tensor dz = s * (1 - y * y), dh = dz * b, dh0 = dh * (1 - h * h);
    return std::tuple{sum(y * s), dz * h, dz, dh0 * x, dh0, y, dh0 * w};
  });
  const auto [loss2, w2, b2, w1, b1, ds, dx2] = by_hand(w, b, s, x);
  REQUIRE(layers.size() == 2);
  check_close(values(loss), values(loss2));
  check_close(values(layers[1].weight), values(w2));
  check_close(values(layers[1].bias), values(b2));
  check_close(values(layers[0].weight), values(w1));
  check_close(values(layers[0].bias), values(b1));
  check_close(values(scale), values(ds));
  CHECK(same_bits(first.weight, layers[0].weight));
  check_close(values(dx), values(dx2));
}

TEST_CASE("value_and_grad: the value, auxiliary results, and the gradient for each argument", "[gradient]") {
  auto f = op::compile([](Tensor w, Tensor x) {
    const auto loss = [](Tensor w, Tensor x) { return std::pair{sum(w * w * x), w + x}; };
    const auto [value, d] = value_and_grad(loss, w, x);
    const auto [dw, dx] = d;
    const auto [again, dw_alone] = value_and_grad([&](Tensor w) { return sum(w * w * x); }, w);
    return std::tuple{value.first, value.second, dw, dx, dw_alone, again};
  });
  const auto [loss, sum, dw, dx, alone, again] = f(Array::from({2.0, 3.0}), Array::from({5.0, -1.0}));
  CHECK(loss.item<double>() == 11);
  CHECK(values(sum) == std::vector{7.0, 2.0});
  CHECK(values(dw) == std::vector{20.0, -6.0});
  CHECK(values(dx) == std::vector{4.0, 9.0});
  CHECK(same_bits(dw, alone));
  CHECK(again.item<double>() == 11);
}

TEST_CASE("jvp: agrees with central differences and with vjp, also nested", "[gradient]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const Array x = random_array({3, 4}, 5), dx = random_array({3, 4}, 6);
    auto both = op::compile([&](Tensor x, Tensor dx) {
      const auto [y, dy] = jvp(c.f, x, dx);
      const Tensor u = y.rank() ? cos(op::iota(y.shape(), y.rank() - 1, op::f64) + 1) : Tensor(1.0);
      return std::tuple{y, dy, sum(u * dy), sum(vjp(y, u, x) * dx)};
    });
    auto at = op::compile([&](Tensor x, Tensor dx, Tensor step) { return c.f(x + step * dx); });
    auto second = op::compile([&](Tensor x, Tensor dx) { return jvp([&](Tensor x) { return jvp(c.f, x, dx).second; }, x, dx).second; });
    const auto [y, dy, forward, reverse] = both(x, dx);
    const double h = 1e-4;
    const auto zero = values(at(x, dx, 0)), plus = values(at(x, dx, h)), minus = values(at(x, dx, -h));
    std::vector<double> first_difference, second_difference;
    for (std::size_t i = 0; i < zero.size(); ++i) {
      first_difference.push_back((plus[i] - minus[i]) / (2 * h));
      second_difference.push_back((plus[i] - 2 * zero[i] + minus[i]) / (h * h));
    }
    CHECK(values(y) == zero);
    check_close(values(dy), first_difference, 1e-6);
    check_close(values(second(x, dx)), second_difference, 1e-4);
    check_close(values(forward), values(reverse), 1e-9);
  }
}

TEST_CASE("jvp: arguments in a tuple, and nested results", "[gradient]") {
  auto f = op::compile([](Tensor a, Tensor b, Tensor da) {
    const auto [y, dy] = jvp(
        [](Tensor a, Tensor b) {
          return std::pair{a * b, Layer<Tensor>{a + b, a - b}};
        },
        std::tuple{a, b}, std::tuple{da, zeros({2}, op::f64)});
    return std::tuple{y.first, dy.first, dy.second};
  });
  const auto [y, dy, both] = f(Array::from({2.0, 3.0}), Array::from({5.0, 7.0}), Array::from({1.0, 10.0}));
  CHECK(values(y) == std::vector{10.0, 21.0});
  CHECK(values(dy) == std::vector{5.0, 70.0});
  CHECK(values(both.weight) == std::vector{1.0, 10.0});
  CHECK(values(both.bias) == std::vector{1.0, 10.0});
}

TEST_CASE("hessian_vector: the Hessian times a vector, without the Hessian", "[gradient]") {
  auto f = op::compile([](Tensor x, Tensor v) {
    const auto loss = [](Tensor x) { return sum(x * x * x) + x[0] * x[1]; };
    return std::pair{hessian_vector(loss, x, v), sum(jacobian([&](Tensor x) { return grad(loss(x), x); }, x) * v, 1)};
  });
  const auto [product, by_jacobian] = f(Array::from({1.0, 2.0, 3.0}), Array::from({1.0, -1.0, 0.5}));
  CHECK(values(product) == std::vector{6.0 - 1, -12.0 + 1, 9.0});
  CHECK(values(by_jacobian) == values(product));
}

TEST_CASE("jacobian: forward and reverse mode agree, also with single derivatives", "[gradient]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const Array x = random_array({3, 4}, 7);
    auto f = op::compile([&](Tensor x) {
      return std::tuple{jacobian(c.f, x, op::JacobianBy::rows), jacobian(c.f, x, op::JacobianBy::columns), jacobian(c.f, x)};
    });
    const auto [rows, columns, fewer] = f(x);
    auto one = op::compile([&](Tensor x, Tensor dy) { return vjp(c.f(x), dy, x); });
    const Array y = op::compile([&](Tensor x) { return c.f(x); })(x);
    std::vector<std::int64_t> shape(y.shape().begin(), y.shape().end());
    std::vector<double> expected;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      Array dy = Array::zeros(op::Extents(shape), op::f64);
      dy.span<double>()[static_cast<std::size_t>(i)] = 1;
      const std::vector<double> row = values(one(x, dy));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    shape.insert(shape.end(), {3, 4});
    CHECK(std::ranges::equal(rows.shape(), shape));
    CHECK(std::ranges::equal(columns.shape(), shape));
    check_close(values(rows), expected);
    check_close(values(columns), expected);
    check_close(values(fewer), expected);
  }
}

TEST_CASE("jacobian: the Jacobian of an elementwise function is one kernel", "[gradient]") {
  auto f = op::compile([](Tensor x) { return jacobian([](Tensor x) { return exp(x) * x; }, x); });
  const Array j = f(random_array({50}, 8));
  CHECK(j.size() == 2500);
  if (op::test::has_codegen()) CHECK(f.stats().kernels == 1);
}

TEST_CASE("jacobian: empty results and arguments", "[gradient]") {
  auto f = op::compile([](Tensor x) { return jacobian([](Tensor x) { return x * x; }, x); });
  const Array j = f(Array::zeros({0, 2}, op::f32));
  CHECK(std::ranges::equal(j.shape(), std::vector<std::int64_t>{0, 2, 0, 2}));
}

TEST_CASE("custom_vjp: the derivative is given by `backward` and is fused like other code", "[gradient]") {
  // A gradient that is clipped in the backward pass.
  const auto clipped = op::custom_vjp([](Tensor x) { return x * 1; }, [](Tensor, Tensor, Tensor dy) { return clamp(dy, -1, 1); });
  auto f = op::compile([&](Tensor x) { return grad(sum(clipped(x * 2) * x), x); });
  // x·2 through the clip gives clamp(x)·2; the other factor gives 2x
  CHECK(values(f(Array::from({0.5, 3.0}))) == std::vector{0.5 * 2 + 1, 1.0 * 2 + 6});
  if (op::test::has_codegen()) CHECK(f.stats().kernels == 1);
}

TEST_CASE("custom_vjp: several arguments and results, integers among them, and a second derivative", "[gradient]") {
  const auto scaled = op::custom_vjp(
      [](Layer<Tensor> l, Tensor n) {
        return std::pair{l.weight * l.bias * n, l.weight + l.bias};
      },
      [](Layer<Tensor> l, Tensor n, std::pair<Tensor, Tensor>, std::pair<Tensor, Tensor> d) {
        return std::tuple{Layer<Tensor>{d.first * l.bias * n + d.second, d.first * l.weight * n + d.second}, Tensor(0)};
      });
  auto f = op::compile([&](Tensor a, Tensor b, Tensor n) {
    const auto [p, s] = scaled(Layer<Tensor>{a * a, b}, n);
    const Tensor loss = sum(p * s);
    const Tensor da = grad(loss, a);
    // the same function without the rule
    const Tensor plain = sum(a * a * b * n * (a * a + b)), plain_da = grad(plain, a);
    return std::tuple{da, plain_da, grad(sum(da), b), grad(sum(plain_da), b)};
  });
  const auto [da, plain_da, dadb, plain_dadb] = f(random_array({5}, 9), random_array({5}, 10), Array::from({1, 2, 3, 4, 5}));
  check_close(values(da), values(plain_da));
  check_close(values(dadb), values(plain_dadb));
}

TEST_CASE("custom_vjp: an unused result has a zero cotangent; a result used twice gets the sum", "[gradient]") {
  const auto two = op::custom_vjp(
      [](Tensor x) {
        return std::pair{x * 2, x * 3};
      },
      [](Tensor, std::pair<Tensor, Tensor>, std::pair<Tensor, Tensor> d) { return d.first * 10 + d.second; });
  auto f = op::compile([&](Tensor x) {
    const auto [a, b] = two(x);
    return std::tuple{grad(sum(a * a), x), grad(sum(b), x), grad(sum(a + a + b), x)};
  });
  const auto [first, second, all] = f(Array::from({1.0, 2.0}));
  CHECK(values(first) == std::vector{40.0, 80.0});
  CHECK(values(second) == std::vector{1.0, 1.0});
  CHECK(values(all) == std::vector{21.0, 21.0});
}

TEST_CASE("checkpoint: the same bits, computed again", "[gradient]") {
  const auto block = [](Tensor x, Tensor w) { return exp(sin(x) * w) * 2; };
  const auto loss = [](auto f, Tensor x, Tensor w) { return sum(f(f(x, w), w) * x); };
  auto plain = op::compile([&](Tensor x, Tensor w) { return grad(loss(block, x, w), x, w); });
  auto again = op::compile([&](Tensor x, Tensor w) { return grad(loss(op::checkpoint(block), x, w), x, w); });
  auto nested = op::compile([&](Tensor x, Tensor w) {
    const auto outer = op::checkpoint([&](Tensor x, Tensor w) { return op::checkpoint(block)(op::checkpoint(block)(x, w), w); });
    return grad(sum(outer(x, w) * x), x, w);
  });
  const Array x = random_array({100}, 11), w = random_array({100}, 12);
  const auto a = plain(x, w), b = again(x, w), c = nested(x, w);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(same_bits(a[i], b[i]));
    check_close(values(a[i]), values(c[i]));
  }
  const auto count = [](const op::GraphView& graph, std::string_view op) {
    std::size_t n = 0;
    for (const auto node : graph) n += node.op() == op;
    return n;
  };
  CHECK(count(plain.graph(), "sin") == 2);
  CHECK(count(again.graph(), "sin") == 4);
}

TEST_CASE("checkpoint: with captured tensors, integers, custom rules inside, and a second derivative", "[gradient]") {
  auto f = op::compile([&](Tensor x, Tensor w, Tensor n) {
    const auto square = op::custom_vjp([](Tensor x) { return x * x; }, [](Tensor x, Tensor, Tensor dy) { return dy * 2 * x; });
    const auto part = [&](auto square, Tensor x) { return std::pair{square(sin(x) * w) * n, n + 1}; };
    const auto kept = op::checkpoint([&](Tensor x) { return part(square, x); });
    const auto [y, m] = kept(x);
    const auto [plain_y, plain_m] = part([](Tensor x) { return x * x; }, x);
    const Tensor loss = sum(y * m), plain = sum(plain_y * plain_m);
    const auto [dx, dw] = grad(loss, x, w);
    const auto [plain_dx, plain_dw] = grad(plain, x, w);
    return std::tuple{dx, plain_dx, dw, plain_dw, grad(sum(dx * dw), x), grad(sum(plain_dx * plain_dw), x)};
  });
  const auto [dx, plain_dx, dw, plain_dw, ddx, plain_ddx] = f(random_array({5}, 13), random_array({5}, 14), Array::from({1, 2, 3, 4, 5}));
  check_close(values(dx), values(plain_dx));
  check_close(values(dw), values(plain_dw));
  check_close(values(ddx), values(plain_ddx));
}

TEST_CASE("graph: a backward node refers to its forward node", "[gradient]") {
  auto f = op::compile([](Tensor x) { return grad(sum(exp(x) * sin(x)), x); });
  static_cast<void>(f(random_array({5}, 15)));
  for (const op::GraphView& graph : {f.recorded_graph(), f.graph()}) {
    bool found = false;
    for (const auto node : graph) {
      if (node.op() != "cos") {
        if (node.op() == "sin" || node.op() == "exp") CHECK_FALSE(node.derivative_of());
        continue;
      }
      found = true;
      REQUIRE(node.derivative_of());
      CHECK(node.derivative_of()->op() == "sin");
      CHECK(node.source() == node.derivative_of()->source());
    }
    CHECK(found);
  }
}

TEST_CASE("gradient: bad input throws an error", "[gradient]") {
  const Array x = random_array({3}, 16), k = Array::from({1, 2, 3});
  const auto message = [&](auto f) { return error_of([&] { static_cast<void>(op::compile(f)(x, k)); }); };
  CHECK(message([](Tensor x, Tensor) {
          return grad(x * 2, std::tuple{x});
        }).find("grad: the loss must be a scalar, not f64[3]. Use vjp with a cotangent, or sum it") == 0);
  CHECK(message([](Tensor x, Tensor k) { return value_and_grad([](Tensor x, Tensor k) { return sum(x * k); }, x, k).second; })
            .find("value_and_grad: the argument to differentiate with respect to is x1 i32[3]; integers and bool have no derivative. Cast "
                  "it to "
                  "a float type first, or let the function capture it") == 0);
  CHECK(message([](Tensor x, Tensor k) {
          return jvp([](Tensor x) { return x; }, x, k.reshape({3, 1})).second;
        }).find("jvp: the tangent i32[3, 1] and the value x0 f64[3] have different shapes") == 0);
  CHECK(message([](Tensor x, Tensor) {
          return jvp([](Tensor x) { return floor(x) > 1; }, x, x).second;
        }).find("jvp: the value to differentiate is bool[3]; integers and bool have no derivative") == 0);
  CHECK(message([](Tensor x, Tensor) {
          return hessian_vector([](Tensor x) { return x; }, x, x);
        }).find("hessian_vector: the loss must be a scalar") == 0);
  CHECK(message([](Tensor x, Tensor k) {
          return jacobian([&](Tensor) { return x; }, k);
        }).find("jacobian: the argument to differentiate with respect to is x1 i32[3]; integers and bool have no derivative") == 0);
  CHECK(message([](Tensor x, Tensor) {
          return grad(sum(op::custom_vjp([](Tensor x) { return x; }, [](Tensor, Tensor, Tensor d) { return std::pair{d, d}; })(x)), x);
        }).find("custom_vjp: the backward function returned 2 gradients for 1 argument") == 0);
  CHECK(message([](Tensor x, Tensor) {
          return grad(sum(op::custom_vjp([](Tensor x) { return x; }, [](Tensor, Tensor, Tensor d) { return sum(d); })(x)), x);
        }).find("custom_vjp: the backward function returned f64[] as gradient 0, whose argument is x0 f64[3]; the shapes must be equal") ==
        0);
  CHECK(message([](Tensor x, Tensor) {
          return op::custom_vjp([](Tensor x) { return x > 0; }, [](Tensor, Tensor, Tensor d) { return d; })(x);
        }).find("custom_vjp: a result is bool[3]; integers and bool have no derivative") == 0);
}

TEST_CASE("gradient: the gradient of an unused argument is zero, and explain reports it", "[gradient]") {
  for (const op::Mode mode : {op::Mode::generic, op::Mode::reference}) {
    op::Options options;
    options.mode = mode;
    auto f = op::compile(
        [](Tensor x, Tensor y, Tensor z) {
          const Tensor loss = sum(x * floor(y));
          return grad(loss, std::tuple{x, y, z});
        },
        options);
    const Array x = random_array({3}, 40), y = random_array({2, 3}, 41), z = random_array({4}, 42);
    const auto [dx, dy, dz] = f(x, y, z);
    CHECK(values(dy) == std::vector(6, 0.0));
    CHECK(values(dz) == std::vector(4, 0.0));
    const std::string text = f.explain();
    INFO(text);
    CHECK(
        text.find(
            "note: grad: f64[] does not depend on x1 f64[2, 3], or only through operators without a derivative; the gradient is zero\n") !=
        std::string::npos);
    CHECK(text.find("depend on x2 f64[4]") != std::string::npos);
    CHECK(text.find("depend on x0") == std::string::npos);
  }
  auto all = op::compile([](Tensor x) { return grad(sum(x), x); });
  all(random_array({3}, 43));
  CHECK(all.explain().find("note:") == std::string::npos);
}

// ---------------------------------------------------------------------------------- pullbacks: results first, gradients later

TEST_CASE("vjp: results first, gradients later, once or repeatedly, on any thread", "[pullback]") {
  auto f = op::compile([](Tensor x, Tensor w) { return std::pair{exp(x) * w, sum(x * w)}; });
  const Array x = random_array({1000}, 20), w = random_array({1000}, 21), dy = random_array({1000}, 22);
  auto [y, pullback] = op::vjp(f, x, w);
  auto both = op::compile([](Tensor x, Tensor w, Tensor dy, Tensor ds) {
    const Tensor y = exp(x) * w, s = sum(x * w);
    const auto g = vjp(y, dy, x, w), h = vjp(s, ds, x, w);
    return std::tuple{y, s, g[0] + h[0], g[1] + h[1]};
  });
  const auto [y1, s1, dx, dw] = both(x, w, dy, 3.0);
  CHECK(same_bits(y.first, y1));
  CHECK(same_bits(y.second, s1));
  const auto [dx1, dw1] = pullback(dy, 3.0);
  check_close(values(dx1), values(dx));
  check_close(values(dw1), values(dw));
  std::vector<Array> others(4);
  std::vector<std::thread> threads;
  for (Array& other : others) threads.emplace_back([&, pullback = pullback] { other = std::get<0>(pullback(std::pair{dy, 3.0})); });
  for (std::thread& t : threads) t.join();
  for (const Array& other : others) CHECK(same_bits(other, dx1));
}

TEST_CASE("vjp: every kind of operator: fused, unfused and reference have equal bits; saved bytes; budgets", "[pullback]") {
  for (const Case& c : cases())
    for (const op::DType dtype : {op::f32, op::f64, op::f16, op::bf16}) {
      INFO(c.name << " " << op::name_of(dtype));
      const Array x = random_array({3, 4}, 23, dtype);
      const auto f = [&](Tensor x) { return c.f(c.f(x).size() == 12 ? c.f(x).reshape({3, 4}) : x); };
      std::optional<Array> expected_y, expected_dx;
      for (const op::Mode mode : {op::Mode::reference, op::Mode::unfused, op::Mode::generic, op::Mode::adaptive}) {
        op::Options options;
        options.mode = mode;
        std::int64_t before = std::numeric_limits<std::int64_t>::max();
        for (const std::int64_t budget : {-1, 100, 40, 0}) {
          options.memory_budget = budget;
          auto compiled = op::compile(f, options);
          const auto [y, pullback] = op::vjp(compiled, x);
          const Array dx = pullback(y);
          if (!expected_y) expected_y = y, expected_dx = dx;
          CHECK(same_bits(y, *expected_y));
          CHECK(same_bits(dx, *expected_dx));
          const op::PullbackStats stats = pullback.stats();
          CHECK(stats.bytes_saved <= stats.bytes_unfused);
          CHECK(stats.bytes_saved <= before);
          if (budget >= 0) CHECK(stats.bytes_saved <= budget);
          before = stats.bytes_saved;
          auto together = op::compile(
              [&](Tensor x) {
                const Tensor y = f(x);
                return vjp(y, y.cast(dtype), x);  // a half result is rounded before it becomes the cotangent
              },
              options);
          CHECK(same_bits(together(x), dx));
        }
      }
    }
}

TEST_CASE("vjp: residuals of halves are not rounded", "[pullback]") {
  for (const op::DType dtype : {op::f16, op::bf16}) {
    const Array x = random_array({40, 300}, 7, dtype), dy = random_array({40, 300}, 8, dtype);
    const auto f = [](Tensor x) { return x * softmax(x * 3.0f, -1); };
    const Array expected = op::compile([&](Tensor x, Tensor dy) { return vjp(f(x), dy, x); })(x, dy);
    bool whole_rows = false;
    for (const std::int64_t budget : {-1, 200, 0}) {
      op::Options options;
      options.memory_budget = budget;
      const auto [y, pullback] = op::vjp(op::compile(f, options), x);
      CHECK(same_bits(pullback(dy), expected));
      const op::PullbackStats stats = pullback.stats();
      CHECK(stats.bytes_saved <= stats.bytes_unfused);
      for (const auto& v : stats.values)
        if (!v.referenced && v.bytes % 160 == 0) whole_rows = true;  // one f32 for each row
    }
    CHECK(whole_rows);
  }
}

TEST_CASE("vjp: containers are kept; integers, numbers and Static have no gradient", "[pullback]") {
  auto f = op::compile([](const Model<Tensor>& model, Tensor x, Tensor n, Tensor rate, op::Static<int> times) {
    for (int i = 0; i < times; ++i)
      for (const Layer<Tensor>& l : model.layers) x = tanh(x * l.weight + l.bias) * rate;
    return std::vector{x, x * n};
  });
  const Array w = random_array({3}, 1), b = random_array({3}, 2), x = random_array({3}, 3), n = Array::from({1, 2, 3});
  const Array dy = Array::ones({3}, op::f64);
  for (const double rate : {0.5, 2.0}) {
    const auto [ys, pullback] = op::vjp(f, Model<Array>{{{w, b}}, std::nullopt}, x, n, rate, 2);
    REQUIRE(ys.size() == 2);
    const auto [dm, dx, dn, drate, dtimes] = pullback(std::vector{dy, dy});
    REQUIRE(dm.layers.size() == 1);
    CHECK(dm.layers[0].weight.size() == 3);
    CHECK_FALSE(dm.scale);
    CHECK_FALSE(dn.has_memory());
    CHECK_FALSE(drate.has_memory());
    auto by_hand = op::compile([&](Tensor w, Tensor b, Tensor x, Tensor n) {
      Tensor y = x;
      for (int i = 0; i < 2; ++i) y = tanh(y * w + b) * rate;
      const Tensor loss = sum(y) + sum(y * n);
      return grad(loss, w, b, x);
    });
    const auto [hw, hb, hx] = by_hand(w, b, x, n);
    check_close(values(dm.layers[0].weight), values(hw));
    check_close(values(dm.layers[0].bias), values(hb));
    check_close(values(dx), values(hx));
  }
}

TEST_CASE("vjp: residuals are named and freed with the pullback; arguments are referenced, not copied", "[pullback]") {
  constexpr std::int64_t n = 1 << 16;
  auto f = op::compile([](Tensor x) { return softmax(lgamma(abs(x)), 1); });
  std::int64_t before = 0;
  for (int round = 0; round < 3; ++round) {  // the first round leaves scratch memory to the threads
    before = op::memory_stats().in_use;
    Array x = random_array({16, n / 16}, 24, op::f32);
    {
      auto [y, pullback] = op::vjp(f, x);
      const op::PullbackStats stats = pullback.stats();
      CHECK(stats.bytes_saved <= stats.bytes_unfused);
      bool input = false;
      for (const auto& v : stats.values) {
        CHECK_FALSE(v.why.empty());
        input |= v.referenced && v.value == "x0 f32[16, 4096]";
      }
      CHECK(input);
      const std::int64_t held = op::memory_stats().in_use;
      x = Array();  // the pullback still refers to the Array
      CHECK(op::memory_stats().in_use == held);
      static_cast<void>(pullback(y));
      pullback.reset();
      CHECK(op::memory_stats().in_use <= held - n * 4);
      CHECK(error_of([&] { static_cast<void>(pullback(y)); }) ==
            "pullback: the pullback was reset, which freed the saved values. Call vjp again.");
    }
  }
  CHECK(op::memory_stats().in_use == before);
}

TEST_CASE("vjp: an argument that the pullback does not read is not kept", "[pullback]") {
  auto f = op::compile([](Tensor x) { return sum(x * 3); });
  Array x = random_array({1 << 16}, 25);
  const auto [y, pullback] = op::vjp(f, x);
  CHECK(pullback.stats().values.empty());
  const std::int64_t held = op::memory_stats().in_use;
  x = Array();
  CHECK(op::memory_stats().in_use < held);
  CHECK(values(pullback(2.0))[5] == 6);
}

TEST_CASE("vjp: values inside checkpoint are not saved", "[pullback]") {
  const auto block = [](Tensor x) { return lgamma(lgamma(abs(x) + 1) + 2); };
  const auto saved = [&](auto f) {
    const auto [y, pullback] = op::vjp(op::compile([=](Tensor x) { return f(f(x)); }), random_array({1000}, 26));
    return std::pair{pullback.stats().bytes_saved, pullback(y)};
  };
  const auto [plain_bytes, plain] = saved(block);
  const auto [less, same] = saved(op::checkpoint(block));
  CHECK(less < plain_bytes);
  CHECK(same_bits(plain, same));
}

TEST_CASE("vjp: lambdas, captured Arrays, and inside a recorded function", "[pullback]") {
  const Array table = random_array({5}, 27), x = random_array({5}, 28);
  const auto f = [&](Tensor x) { return sin(x) * table; };
  const auto [y, pullback] = op::vjp(f, x);
  const Array dx = pullback(Array::ones({5}, op::f64));
  auto inside = op::compile([&](Tensor x) {
    const auto [y, back] = op::vjp(f, x);
    return std::pair{y, back(op::ones({5}, op::f64))};
  });
  const auto [y1, dx1] = inside(x);
  CHECK(same_bits(y, y1));
  CHECK(same_bits(dx, dx1));
}

TEST_CASE("vjp: bad input throws an error", "[pullback]") {
  auto f = op::compile([](Tensor x) { return x * x; });
  const auto [y, pullback] = op::vjp(f, random_array({4}, 29));
  CHECK(error_of([&, &pullback = pullback] { static_cast<void>(pullback(Array::ones({3}, op::f64))); }) ==
        "pullback: the cotangent of out is f64[3], but the result is f64[4]; the shapes must be equal");
  CHECK(error_of([&, &pullback = pullback] { static_cast<void>(pullback(1.0)); }) ==
        "pullback: the cotangent of out is a number, but the result is f64[4]; the shapes must be equal");
  CHECK(error_of([&, &pullback = pullback] { static_cast<void>(pullback(Array::ones({4}, op::i32))); }) ==
        "pullback: the cotangent of out is i32[4], but the result is f64[4]; a float type is required");
  CHECK(error_of([&] {
          static_cast<void>(op::vjp(f, Array::from({1, 2})));
        }) == "vjp: no argument is an Array of a float type; integers, bool and numbers have no derivative. Pass a float Array");
  f.reset();
  CHECK(error_of([&, &pullback = pullback] { static_cast<void>(pullback(y)); }) ==
        "pullback: the function was reset after the pullback was created. Call vjp again.");
  auto lists = op::compile([](Tensor x) { return std::vector{x, x}; });
  const auto [ys, back] = op::vjp(lists, random_array({4}, 30));
  CHECK(error_of([&, &back = back] { static_cast<void>(back(std::vector{Array::ones({4}, op::f64)})); }) ==
        "pullback: 1 cotangent was given, but the function has 2 results");
  auto whole = op::compile([](Tensor x) { return floor(x) > 0; });
  CHECK(error_of([&] { static_cast<void>(op::vjp(whole, random_array({4}, 31))); }) ==
        "vjp: no result is of a float type; integers and bool have no derivative");
}

// -------------------------------------------------------------------------------------------- checks of gradients

TEST_CASE("check_gradients: differences in f64, forward against reverse mode; errors are named", "[check]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const op::GradientCheck check = op::check_gradients(c.f, random_array({3, 4}, 40, op::f32));
    INFO(check.text);
    CHECK(check);
    CHECK(check.worst < 1e-6);
  }
  const auto two = op::compile([](Layer<Tensor> l, Tensor n) { return std::pair{l.weight * l.bias, sum(l.bias) * n}; });
  const op::GradientCheck good =
      op::check_gradients(two, Layer<Array>{random_array({100}, 41), random_array({100}, 42)}, Array::from({1, 2}));
  CHECK(good.text == "100 derivatives agree with finite differences, and forward mode agrees with reverse mode");
  const auto wrong = op::custom_vjp([](Tensor x) { return x * x; }, [](Tensor x, Tensor, Tensor dy) { return dy * x; });
  const op::GradientCheck bad =
      op::check_gradients([&](Tensor w, Tensor x) { return wrong(x) + w; }, Array::from({1.0f, 2.0f}), Array::from({3.0f, 0.0f}));
  CHECK_FALSE(bad);
  CHECK(bad.text.find("the gradient of argument 1, f32[2], at [0] is ") == 0);
  CHECK(bad.worst > 0.1);
  CHECK(error_of([] {
          static_cast<void>(op::check_gradients([](Tensor x) { return x; }, Array::from({1, 2})));
        }) ==
        "check_gradients: no argument is an Array of a float type; integers, bool and numbers have no derivative. Pass a float Array");
}

TEST_CASE("check_nan: the first operator that computed a NaN or an infinity, forward or backward", "[check]") {
  op::Options options;
  options.check_nan = true;
  for (const op::Mode mode : {op::Mode::generic, op::Mode::reference}) {
    options.mode = mode;
    const Array x = Array::from({1.0f, 0.0f, -4.0f});
    auto forward = op::compile([](Tensor x) { return log(x + 4) * 2 + 1; }, options);
    const std::string text = error_of([&] { static_cast<void>(forward(x)); });
    INFO(text);
    CHECK(text.find(
              "check_nan: the result out f32[3] has -inf at [2]; the first operator that produced such a value is `log` f32[3] at ") == 0);
    CHECK(text.find("test_gradient.cpp") != std::string::npos);
    auto backward = op::compile([](Tensor x) { return grad(sum(sqrt(abs(x)) + x * x), x); }, options);
    const std::string of_gradient = error_of([&] { static_cast<void>(backward(Array::from({1.0f, 0.0f}))); });
    INFO(of_gradient);
    CHECK(of_gradient.find("in the derivative of `sqrt` f32[2]") != std::string::npos);
    const std::string of_input = error_of([&] { static_cast<void>(forward(Array::from({1.0f, std::nanf("")}))); });
    CHECK(of_input == "check_nan: the result out f32[2] has nan at [1]; the input x0 already contains such a value, nan at [1]");
    Array y = Array::from({1.0f, -4.0f});
    CHECK(error_of([&] { forward.into(y)(y); }) ==
          "check_nan: the result out f32[2] has -inf at [1]; the operator that produced it is unknown, because the results overwrote the "
          "arguments");
    Array at = Array::from({1.0f, 2.0f}), z = Array::from({0.0f, 0.0f});
    auto bound = forward.bind(z, at);
    bound();
    at.span<float>()[1] = -4.0f;
    CHECK(error_of([&] {
            bound();
          }).find("check_nan: the result out f32[2] has -inf at [1]; the first operator that produced such a value is `log` f32[2] at ") ==
          0);
    at.span<float>()[1] = 3.0f;
    bound();
    const auto root = op::compile([](Tensor x) { return sqrt(x); }, options);
    const auto [r, pullback] = op::vjp(root, Array::from({4.0f, 0.0f}));
    CHECK(error_of([&, &pullback = pullback] {
            static_cast<void>(pullback(Array::from({1.0f, 1.0f})));
          }).find("check_nan: the result dx0 f32[2] has inf at [1]") == 0);
    CHECK(values(op::compile([](Tensor x) { return cast(x, op::f64); })(forward(Array::from({-3.0f})))) == std::vector{1.0});
  }
}

TEST_CASE("grad: a number that is cast and then broadcast has its derivative", "[grad]") {
  const Array x = Array::from({1.0f, 2.0f, 4.0f});
  for (const op::Mode mode : {op::Mode::reference, op::Mode::adaptive, op::Mode::unfused}) {
    const op::Formula f = op::formula("c = cast(k, f32); s = sum(x*c*c); g = grad(s, [c])", {.mode = mode});
    const auto results = f({{"x", x}, {"k", 3}});
    CHECK(results["g"].at<float>({}) == 42.0f);
  }
}

TEST_CASE("grad: products that are broadcast along a summed index count each element", "[grad]") {
  const Array x = Array::full({}, 1.5, op::f64), v = Array::full({3, 1}, 1.0, op::f64), m = random_array({2, 3}, 50);
  const auto dot = [](Tensor x) { return op::matmul(op::broadcast_to(x, {17}), op::broadcast_to(x, {17})); };
  const auto all = [](Tensor x) { return op::einsum("ij->", op::broadcast_to(x, {5, 7})); };
  const auto rows = [](Tensor v) { return sum(op::einsum("ij->i", op::broadcast_to(v, {3, 7}))); };
  const auto by_ones = [](Tensor m) { return op::einsum("ij,jk->", m, op::ones({3, 8}, op::f64)); };
  const auto of = [](const auto& f, const Array& at) {
    return op::compile([&](Tensor x) { return op::grad(f(x), x); })(at).template at<double>(std::vector<std::int64_t>(at.rank(), 0));
  };
  CHECK(of(dot, x) == 2 * 17 * 1.5);
  CHECK(of(all, x) == 35);
  CHECK(of(rows, v) == 7);
  CHECK(of(by_ones, m) == 8);
  CHECK(op::check_gradients(dot, x));
  CHECK(op::check_gradients(all, x));
  CHECK(op::check_gradients(rows, v));
  CHECK(op::check_gradients(by_ones, m));
  CHECK(op::check_gradients([](Tensor m) { return square(op::einsum("ij,jk->", m, op::ones({3, 8}, op::f64))); }, m));
}
