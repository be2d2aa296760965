// vmap: a function of one element, applied over an axis. Results have the bits of a loop over the elements, without a loop in the graph.
#include <onepass/onepass.h>

#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "every_mode.h"

namespace op = onepass;
using namespace onepass::test;
using Catch::Matchers::Contains;
using op::Array, op::Tensor;

namespace {

// Returns the loop's result: f of each row of x, stacked.
template <class F> Tensor looped(F f, Tensor x) {
  std::vector<Tensor> rows;
  for (std::int64_t i = 0; i < x.dim(0); ++i) rows.push_back(f(x[i]));
  return op::stack(rows, 0);
}

template <class F> std::string error_of_call(F f) {
  try {
    f();
  } catch (const op::Error& e) { return e.what(); }
  return "no error";
}

}  // namespace

TEST_CASE("vmap: has the bits of a loop, in every mode", "[vmap]") {
  const Array x = random_array({6, 5});
  using Row = std::function<Tensor(Tensor)>;
  const std::pair<const char*, Row> cases[] = {
      {"elementwise", [](Tensor x) { return exp(x) * 2 - x; }},
      {"softmax", [](Tensor x) { return softmax(x); }},
      {"sums", [](Tensor x) { return sum(x * x) + max(x); }},
      {"scan", [](Tensor x) { return cumsum(x, 0); }},
      {"views",
       [](Tensor x) {
         return op::concat({flip(x, 0), x.slice(0, 1, 4)}, 0).reshape({2, 4});
       }},
      {"pad", [](Tensor x) { return pad(x, {1}, {2}, sum(x)); }},
      {"windows", [](Tensor x) { return convolve(x, x.slice(0, 0, 2)); }},
      {"sort", [](Tensor x) { return sort(x) + median(x); }},
      {"gather", [](Tensor x) { return take(x, argsort(x), 0) * 2; }},
      {"scatter", [](Tensor x) { return scatter_add(op::zeros({5}, op::f32), argsort(x), x, 0); }},
      {"matmul", [](Tensor x) { return matmul(outer(x, x), x); }},
      {"constant", [](Tensor) { return op::ones({2}, op::f32); }},
      {"gradient", [](Tensor x) { return grad(sum(tanh(x) * x), x); }},
  };
  for (const auto& [name, f] : cases)
    for (const op::Mode mode : {op::Mode::reference, op::Mode::unfused, op::Mode::generic, op::Mode::specialized}) {
      INFO(name << ", mode " << static_cast<int>(mode));
      op::Options options;
      options.mode = mode;
      const Array mapped = op::compile([f = f](Tensor x) { return op::vmap(f)(x); }, options)(x);
      const Array loop = op::compile([f = f](Tensor x) { return looped(f, x); }, options)(x);
      CHECK(std::ranges::equal(mapped.shape(), loop.shape()));
      CHECK(bytes_of(mapped) == bytes_of(loop));
    }
}

TEST_CASE("vmap: per-example gradients of a layer", "[vmap]") {
  const Array w = random_array({4, 3}), b = random_array({3}, op::f32, 2), x = random_array({7, 4}, op::f32, 3),
              labels = Array::from(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 1}, {7});
  const auto loss = [](Tensor w, Tensor b, Tensor x, Tensor label) { return cross_entropy(tanh(matmul(x, w)) + b, label); };
  auto per_example = op::compile([&](Tensor w, Tensor b, Tensor x, Tensor labels) {
    return op::vmap(
        [&](Tensor w, Tensor b, Tensor x, Tensor label) {
          const auto [dw, db] = grad(loss(w, b, x, label), w, b);
          return std::tuple{dw, db};
        },
        {op::none, op::none, 0, 0})(w, b, x, labels);
  });
  const auto [dw, db] = per_example(w, b, x, labels);
  CHECK(std::ranges::equal(dw.shape(), std::vector<std::int64_t>{7, 4, 3}));
  CHECK(std::ranges::equal(db.shape(), std::vector<std::int64_t>{7, 3}));
  auto one = op::compile([&](Tensor w, Tensor b, Tensor x, Tensor label) {
    const auto [dw, db] = grad(loss(w, b, x[0], label[0]), w, b);
    return std::tuple{dw, db};
  });
  for (std::int64_t i = 0; i < 7; ++i) {
    const auto [ew, eb] = one(w, b, x.slice(0, i, i + 1), labels.slice(0, i, i + 1));
    CHECK(bytes_of(dw.slice(0, i, i + 1).contiguous()) == bytes_of(ew));
    CHECK(bytes_of(db.slice(0, i, i + 1).contiguous()) == bytes_of(eb));
  }
}

TEST_CASE("vmap: vmap nests, is differentiable, and has forward mode", "[vmap]") {
  const Array x = random_array({3, 4}), y = random_array({5}, op::f32, 2);
  // each element of x with each element of y
  auto pairs = op::compile([](Tensor x, Tensor y) {
    const auto of_row = [](Tensor row, Tensor b) { return sum(row * b) + exp(b); };
    return op::vmap([&](Tensor row, Tensor y) { return op::vmap(of_row, {op::none, 0})(row, y); }, {0, op::none})(x, y);
  });
  auto by_hand = op::compile([](Tensor x, Tensor y) { return sum(x.reshape({3, 1, 4}) * y.reshape({1, 5, 1}), 2) + exp(y); });
  CHECK(bytes_of(pairs(x, y)) == bytes_of(by_hand(x, y)));
  const auto f = [](Tensor x) { return sum(square(op::vmap([](Tensor row) { return softmax(row) * max(row); })(x))); };
  const auto loop = [](Tensor x) { return sum(square(looped([](Tensor row) { return softmax(row) * max(row); }, x))); };
  const std::vector<float> d = op::compile([&](Tensor x) { return grad(f(x), x); })(x).to_vector<float>(),
                           e = op::compile([&](Tensor x) { return grad(loop(x), x); })(x).to_vector<float>();
  for (std::size_t i = 0; i < d.size(); ++i) CHECK(d[i] == Approx(e[i]).margin(1e-6));
  const Array v = random_array({3, 4}, op::f32, 8);
  const auto [a, da] = op::compile([&](Tensor x, Tensor v) { return jvp(f, x, v); })(x, v);
  const auto [c, dc] = op::compile([&](Tensor x, Tensor v) { return jvp(loop, x, v); })(x, v);
  CHECK(a.to_vector<float>()[0] == Approx(c.to_vector<float>()[0]));
  CHECK(da.to_vector<float>()[0] == Approx(dc.to_vector<float>()[0]));
}

TEST_CASE("vmap: over any axis, several arguments, and arguments without the axis", "[vmap]") {
  const Array x = random_array({3, 4}), y = random_array({4, 2}, op::f32, 2);
  auto f = op::compile([](Tensor x, Tensor y, Tensor s) {
    return op::vmap([&](Tensor a, Tensor b, Tensor s) { return std::pair{sum(a) * b, s}; }, {1, -2, op::none})(x, y, s);
  });
  const auto [product, spread] = f(x, y, 2.0);
  CHECK(std::ranges::equal(product.shape(), std::vector<std::int64_t>{4, 2}));
  CHECK(std::ranges::equal(spread.shape(), std::vector<std::int64_t>{4}));
  CHECK(bytes_of(product) == bytes_of(op::compile([](Tensor x, Tensor y) { return expand_dims(sum(transpose(x), 1), 1) * y; })(x, y)));
  const Array none =
      op::compile([](Tensor x) { return op::vmap([](Tensor row) { return softmax(row); })(x); })(Array::zeros({0, 4}, op::f32));
  CHECK(std::ranges::equal(none.shape(), std::vector<std::int64_t>{0, 4}));
}

TEST_CASE("vmap: the graph has no loop", "[vmap]") {
  auto f = op::compile([](Tensor x) { return op::vmap([](Tensor row) { return softmax(row) * 2; })(x); });
  f(random_array({1000, 16}));
  CHECK(f.stats().kernels == 1);
}

TEST_CASE("vmap: errors are one line", "[vmap]") {
  const Array x = random_array({3, 4}), y = random_array({4}), s = random_array({});
  const auto f = [](Tensor a, Tensor b) { return a + b; };
  const auto called = [&](std::vector<op::MapAxis> axes, const Array& a, const Array& b) {
    return error_of_call([&] { op::compile([&](Tensor a, Tensor b) { return op::vmap(f, axes)(a, b); })(a, b); });
  };
  CHECK_THAT(called({}, x, y), Contains("vmap: axis 0 of") && Contains("has 4 elements, but the mapped axis of ") &&
                                   Contains("has 3; the lengths must be equal"));
  CHECK_THAT(called({0, 0}, x, s), Contains("has no axis to map over"));
  CHECK_THAT(called({2, op::none}, x, y), Contains("vmap: axis 2 is out of range"));
  CHECK_THAT(called({op::none}, x, y), Contains("vmap: no argument is mapped. Give at least one argument an axis"));
  CHECK_THAT(called({0, 0, 0}, x, y),
             Contains("vmap: 3 axes given for 2 arguments. Pass one axis for each argument, or one axis for all."));
}
