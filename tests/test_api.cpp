// The C++ interface: recording through Tensor, compile, formula, nesting, messages. Uses mode `reference`, since results are tested
// elsewhere.
#include <onepass/onepass.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "runtime/recording.h"

namespace op = onepass;
using op::Array, op::Tensor;
using op::f32, op::f64, op::i32, op::i64;

namespace {

const op::Options kReference{.mode = op::Mode::reference};

Array vector(std::initializer_list<float> values) { return Array::from(values); }
Array matrix(std::initializer_list<float> values, std::int64_t rows) {
  return Array::from(values, {rows, static_cast<std::int64_t>(values.size()) / rows});
}
std::vector<float> floats(const Array& a) { return a.to_vector<float>(); }
std::vector<std::int64_t> shape(const Array& a) { return {a.shape().begin(), a.shape().end()}; }

std::vector<std::int64_t> shape_of(const op::GraphView::Node& node) { return {node.shape().begin(), node.shape().end()}; }

template <class F> std::string error_of(F&& body) {
  try {
    body();
  } catch (const op::Error& e) { return e.what(); }
  return "no error";
}

using Catch::Matchers::Contains;
using Floats = std::vector<float>;
using Shape = std::vector<std::int64_t>;

Tensor plain_function(const Tensor& a, Tensor b) { return a + b; }
struct Scale {
  Tensor operator()(Tensor x) const { return x * factor; }
  float factor;
};

template <class T> struct Layer {
  T w, b;
};
template <class T, std::size_t N> struct Net {
  std::array<Layer<T>, N> layers;
  std::optional<T> scale;
  op::Static<int> power;
  std::vector<Layer<T>> rest;
};

}  // namespace

// ------------------------------------------------------------------------------------------- code that must not compile

template <class T>
concept Conditional = requires(T t) { t ? 1 : 0; };
template <class A, class B>
concept Addable = requires(A a, B b) { a + b; };
static_assert(sizeof(Tensor) == 8 && std::is_trivially_copyable_v<Tensor>);
static_assert(!Conditional<Tensor>, "if (tensor) is deleted");
static_assert(Addable<Tensor, Tensor> && Addable<Tensor, float> && Addable<int, Tensor> && Addable<Tensor, bool> &&
              Addable<std::uint64_t, Tensor>);
static_assert(!Addable<Tensor, char>, "a character is no number");
static_assert(!Addable<Tensor, const char*>);
static_assert(Addable<Tensor, Array> && Addable<Array, Array> && Addable<int, Array> && std::convertible_to<Array, Tensor>);
static_assert(!std::convertible_to<Tensor, Array>);
static_assert(!std::convertible_to<bool, op::Axes>, "sum(x, true) is no axis");

// ------------------------------------------------------------------------------------------------ operators

// This test must be the first: the process logs the message only once.
TEST_CASE("api: recording at every call is logged once, with the option's name") {
  std::vector<std::string> messages;
  op::set_log([&](op::LogLevel, std::string_view text) { messages.emplace_back(text); }, op::LogLevel::warning);
  const auto f = op::compile([](Tensor x) { return x + 1; }, {.mode = op::Mode::reference, .check_recording = true});
  for (int i = 0; i < 3; ++i) f(vector({1}));
  op::set_log(nullptr);
  REQUIRE(messages.size() == 1);
  CHECK_THAT(messages[0], Contains("Options::check_recording is on") && Contains("every call runs its function again"));
}

TEST_CASE("api: operators take Tensors and numbers on both sides") {
  const auto f = op::compile(
      [](Tensor x, Tensor y) {
        return std::tuple{x + y, 10 - x, x * 2.0f, 1 / x, -x, x % 2, x < y, 2 <= x, (x == y) | (x != 1), x += 1, where(x > y, x, 0)};
      },
      kReference);
  const auto [add, sub, mul, div, neg, rem, less, le, either, plus, choice] = f(vector({1, 2, 4}), vector({1, 3, -1}));
  CHECK(floats(add) == Floats{2, 5, 3});
  CHECK(floats(sub) == Floats{9, 8, 6});
  CHECK(floats(mul) == Floats{2, 4, 8});
  CHECK(floats(div) == Floats{1, 0.5f, 0.25f});
  CHECK(floats(neg) == Floats{-1, -2, -4});
  CHECK(floats(rem) == Floats{1, 0, 0});
  CHECK(less.to_vector<bool>() == std::vector<bool>{false, true, false});
  CHECK(le.to_vector<bool>() == std::vector<bool>{false, true, true});
  CHECK(either.to_vector<bool>() == std::vector<bool>{true, true, true});
  CHECK(floats(plus) == Floats{2, 3, 5});
  CHECK(floats(choice) == Floats{2, 0, 5});
}

TEST_CASE("api: integers and logic") {
  const auto f = op::compile(
      [](Tensor x) { return std::tuple{x << 2, x >> 1, x & 3, x | 8, x ^ 1, ~x, x && true, false || x, !x, x == 3 && x > 0}; }, kReference);
  const auto r = f(Array::from<std::int32_t>({0, 3, 5}));
  CHECK(std::get<0>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 12, 20});
  CHECK(std::get<1>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 2});
  CHECK(std::get<2>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 3, 1});
  CHECK(std::get<3>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{8, 11, 13});
  CHECK(std::get<4>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2, 4});
  CHECK(std::get<5>(r).to_vector<std::int32_t>() == std::vector<std::int32_t>{-1, -4, -6});
  CHECK(std::get<6>(r).to_vector<bool>() == std::vector<bool>{false, true, true});
  CHECK(std::get<7>(r).to_vector<bool>() == std::vector<bool>{false, true, true});
  CHECK(std::get<8>(r).to_vector<bool>() == std::vector<bool>{true, false, false});
  CHECK(std::get<9>(r).to_vector<bool>() == std::vector<bool>{false, true, false});
}

TEST_CASE("api: numbers have no strong type") {
  const auto f = op::compile([](Tensor x, Tensor k) { return x * 0.1 + k; }, kReference);
  const Array single = f(vector({1}), 0.5), wide = f(Array::from<double>({1}), 0.5);
  CHECK(single.dtype() == f32);
  CHECK(single.item<float>() == 0.1f + 0.5f);
  CHECK(wide.dtype() == f64);
  CHECK(wide.item<double>() == 0.1 + 0.5);
  CHECK(f(Array::from<std::int32_t>({2}), true).dtype() == f32);
  const auto integers = op::compile([](Tensor x) { return x + 1; }, kReference);
  CHECK(integers(Array::from<std::int32_t>({2})).dtype() == i32);
  CHECK(integers(7).dtype() == i64);
}

TEST_CASE("api: views and indices") {
  const auto f = op::compile(
      [](Tensor x) {
        REQUIRE(x.rank() == 2);
        REQUIRE(x.dim(0) == 2);
        REQUIRE(x.dim(-1) == 3);
        REQUIRE(x.size() == 6);
        REQUIRE(x.dtype() == f32);
        REQUIRE(std::vector(x.shape().begin(), x.shape().end()) == Shape{2, 3});
        return std::tuple{x[1],
                          x[{op::All, -1}],
                          x[{op::Ellipsis, op::Range{{}, {}, -1}}],
                          x[{op::NewAxis, 0, op::Range{1, 3}}],
                          x.T(),
                          x.reshape({-1}),
                          x.slice(1, 1),
                          x.slice(-1, 0, 3, 2),
                          transpose(x),
                          swap_axes(x, 0, 1),
                          flip(x, 0)};
      },
      kReference);
  const auto r = f(matrix({1, 2, 3, 4, 5, 6}, 2));
  CHECK(floats(std::get<0>(r)) == Floats{4, 5, 6});
  CHECK(floats(std::get<1>(r)) == Floats{3, 6});
  CHECK(floats(std::get<2>(r)) == Floats{3, 2, 1, 6, 5, 4});
  CHECK(shape(std::get<3>(r)) == Shape{1, 2});
  CHECK(floats(std::get<3>(r)) == Floats{2, 3});
  CHECK(floats(std::get<4>(r)) == Floats{1, 4, 2, 5, 3, 6});
  CHECK(shape(std::get<5>(r)) == Shape{6});
  CHECK(floats(std::get<6>(r)) == Floats{2, 3, 5, 6});
  CHECK(floats(std::get<7>(r)) == Floats{1, 3, 4, 6});
  CHECK(floats(std::get<8>(r)) == floats(std::get<4>(r)));
  CHECK(floats(std::get<9>(r)) == floats(std::get<4>(r)));
  CHECK(floats(std::get<10>(r)) == Floats{4, 5, 6, 1, 2, 3});
}

TEST_CASE("api: reductions, sources and composites") {
  const auto f = op::compile(
      [](Tensor x) {
        using namespace op::names;
        return std::tuple{sum(x),       sum(x, 0),      sum(x, {0, 1}),  max(x, -1, true),  mean(x, {1}),  softmax(x),
                          relu(-x + 3), full({2}, 1.5), zeros({1}, i32), iota({3}, 0, f32), layer_norm(x), mse(x, x * 0)};
      },
      kReference);
  const auto r = f(matrix({1, 2, 3, 4}, 2));
  CHECK(std::get<0>(r).item<float>() == 10);
  CHECK(floats(std::get<1>(r)) == Floats{4, 6});
  CHECK(std::get<2>(r).item<float>() == 10);
  CHECK(shape(std::get<3>(r)) == Shape{2, 1});
  CHECK(floats(std::get<4>(r)) == Floats{1.5f, 3.5f});
  CHECK(floats(std::get<5>(r))[0] == Approx(1 / (1 + std::exp(1.0))));
  CHECK(floats(std::get<6>(r)) == Floats{2, 1, 0, 0});
  CHECK(floats(std::get<7>(r)) == Floats{1.5f, 1.5f});
  CHECK(std::get<8>(r).dtype() == i32);
  CHECK(floats(std::get<9>(r)) == Floats{0, 1, 2});
  CHECK(floats(std::get<10>(r))[1] == Approx(1.0).epsilon(1e-3));
  CHECK(std::get<11>(r).item<float>() == Approx(30 / 4.0));
}

TEST_CASE("api: gradients by structured bindings, one by one, or as a vector") {
  const auto f = op::compile(
      [](Tensor x, Tensor w, Tensor b) {
        const Tensor y = x * w + b;
        const Tensor loss = sum(square(y));
        const auto [dw, db] = grad(loss, w, b);
        const Tensor dx = grad(loss, x);
        const std::vector<Tensor> both = grad(loss, std::vector{w, b});
        const Tensor pulled = vjp(y, op::ones({2}), x);
        return std::tuple{dw, db, dx, both, pulled, grad(sum(dx), w)};
      },
      kReference);
  const auto [dw, db, dx, both, pulled, second] = f(vector({1, 2}), vector({3, 4}), vector({5, 6}));
  CHECK(floats(dw) == Floats{16, 56});  // 2*y*x, y = {8, 14}
  CHECK(floats(db) == Floats{16, 28});
  CHECK(floats(dx) == Floats{48, 112});
  REQUIRE(both.size() == 2);
  CHECK(floats(both[0]) == floats(dw));
  CHECK(floats(pulled) == Floats{3, 4});
  CHECK(floats(second) == Floats{2 * (3 + 8), 2 * (8 + 14)});  // d(2*y*w)/dw = 2*(x*w + y)
}

// ------------------------------------------------------------------------------------------------ functions

TEST_CASE("api: lambdas, function objects, pointers and generic lambdas") {
  const Array x = vector({1, 2}), y = vector({10, 20});
  CHECK(floats(op::compile(plain_function, kReference)(x, y)) == Floats{11, 22});
  CHECK(floats(op::compile(&plain_function, kReference)(x, 1)) == Floats{2, 3});
  CHECK(floats(op::compile(Scale{3}, kReference)(x)) == Floats{3, 6});
  CHECK(floats(op::compile<Tensor(Tensor, Tensor)>([](auto a, auto b) { return a - b; }, kReference)(x, y)) == Floats{-9, -18});
  int runs = 0;
  CHECK(floats(op::compile([&runs](const Tensor& a) mutable { return ++runs, a; }, kReference)(x)) == Floats{1, 2});
  CHECK(runs >= 1);
}

TEST_CASE("api: arguments nest") {
  const auto layers = op::compile(
      [](Tensor x, const std::vector<Tensor>& w, std::optional<Tensor> bias, std::pair<Tensor, std::array<Tensor, 2>> rest,
         op::Static<int> power) {
        for (const Tensor& t : w) x = x * t;
        if (bias) x += *bias;
        for (int i = 1; i < power; ++i) x = x * x;
        return x + rest.first + rest.second[0] * rest.second[1];
      },
      kReference);
  const std::pair rest{vector({0.5f}), std::array{vector({2}), vector({3})}};
  CHECK(layers(2, std::vector{vector({3}), vector({5})}, std::nullopt, rest, 1).item<float>() == 36.5f);
  CHECK(layers(2, std::vector<Array>{}, vector({1}), rest, 2).item<float>() == 15.5f);
  CHECK(layers(2, std::vector{vector({3})}, std::optional(vector({1})), rest, op::Static<int>{1}).item<float>() == 13.5f);
  CHECK(layers.stats().calls == 3);
}

TEST_CASE("api: results nest, and their nesting may depend on the shapes") {
  const auto rows = op::compile(
      [](Tensor x) {
        std::vector<Tensor> list;
        for (std::int64_t i = 0; i < x.dim(0); ++i) list.push_back(x[i]);
        return std::tuple{sum(x), list, std::pair{std::array{x.T(), x}, std::vector<std::tuple<Tensor>>(1, std::tuple{x})}};
      },
      kReference);
  for (std::int64_t n : {0, 1, 2, 12}) {
    const auto [total, list, nested] = rows(Array::ones({n, 3}, f32));
    CHECK(total.item<float>() == static_cast<float>(3 * n));
    REQUIRE(list.size() == static_cast<std::size_t>(n));
    for (const Array& row : list) CHECK(floats(row) == Floats{1, 1, 1});
    CHECK(shape(nested.first[0]) == Shape{3, n});
    CHECK(nested.second.size() == 1);
  }
}

TEST_CASE("api: structs of parameters nest, as arguments, results and destinations") {
  const auto f = op::compile(
      [](Tensor x, const Net<Tensor, 2>& net) {
        for (const Layer<Tensor>& l : net.layers) x = x * l.w + l.b;
        for (const Layer<Tensor>& l : net.rest) x = x * l.w + l.b;
        for (int i = 1; i < net.power; ++i) x = x * x;
        if (net.scale) x *= *net.scale;
        return std::pair{sum(x), Net<Tensor, 1>{{Layer<Tensor>{x, -x}}, net.scale, net.power, net.rest}.layers};
      },
      kReference);
  const Array x = vector({1, 2}), two = vector({2});
  const Net<Array, 2> net{{{{x, two}, {two, two}}}, two, {2}, {{two, x}}};
  const auto [total, layers] = f(x, net);  // ((x*x + 2)*2 + 2)*2 + x, squared, doubled
  CHECK(floats(layers[0].w) == Floats{2 * 17 * 17, 2 * 30 * 30});
  CHECK(floats(layers[0].b) == Floats{-2 * 17 * 17, -2 * 30 * 30});
  CHECK(total.item<float>() == 2 * 17 * 17 + 2 * 30 * 30);
  CHECK(floats(f(x, Net<Array, 2>{net.layers, std::nullopt, {1}, {}}).second[0].w) == Floats{8, 14});

  // results and destinations; numbers instead of Arrays; a call with Tensors is recorded into the caller
  const auto step = op::compile([](const Layer<Tensor>& l, Tensor rate) { return Layer<Tensor>{l.w - rate, l.b * rate}; }, kReference);
  Layer<Array> l = step(Layer<double>{3, 4}, 0.5);
  CHECK(l.w.item<float>() == 2.5f);
  l = step(Layer<Array>{vector({1, 2}), vector({3, 4})}, 2);
  step.into(l)(l, 2);
  CHECK(floats(l.w) == Floats{-3, -2});
  CHECK(floats(l.b) == Floats{12, 16});
  const auto call = step.bind(l, l, 1);
  call();
  CHECK(floats(l.w) == Floats{-4, -3});
  const auto twice = op::compile([&](Layer<Tensor> l, Tensor rate) { return step(step(l, rate), rate); }, kReference);
  CHECK(floats(twice(l, 2).b) == Floats{48, 64});
}

TEST_CASE("api: into, discard and bind") {
  const auto f = op::compile([](Tensor x, Tensor k) { return std::tuple{x * k, x + k}; }, kReference);
  Array x = vector({1, 2}), a = Array::zeros({2}, f32), b = Array::zeros({2}, f32);
  f.into(a, b)(x, 3);
  CHECK(floats(a) == Floats{3, 6});
  CHECK(floats(b) == Floats{4, 5});
  f.into(op::discard, b)(x, 10);
  CHECK(floats(a) == Floats{3, 6});
  CHECK(floats(b) == Floats{11, 12});
  const auto nested = op::compile([](Tensor x) { return std::tuple{x, std::pair{x + 1, x + 2}, Layer<Tensor>{x + 3, x + 4}}; }, kReference);
  nested.into(a, op::discard, op::discard)(vector({7, 8}));
  CHECK(floats(a) == Floats{7, 8});
  nested.into(op::discard, std::pair{op::discard, a}, op::discard)(vector({7, 8}));
  CHECK(floats(a) == Floats{9, 10});
  f.into(a, b)(x, 3);
  const auto call = f.bind(a, b, x, 2);
  call();
  CHECK(floats(a) == Floats{2, 4});
  x.span<float>()[0] = 5;
  call();
  CHECK(floats(a) == Floats{10, 4});
  const auto twice = op::compile([](Tensor x) { return x * 2; }, kReference);
  twice.into(a)(a);
  CHECK(floats(a) == Floats{20, 8});
  twice.into(x)(vector({4, 4}));
  CHECK(floats(x) == Floats{8, 8});
  const auto list = op::compile([](std::vector<Tensor> v) { return v; }, kReference);
  std::vector targets{a, b};
  list.into(targets)(std::vector{x, x});
  CHECK(floats(b) == Floats{8, 8});
}

TEST_CASE("api: a compiled function called with Tensors is recorded into its caller") {
  const auto inner = op::compile([](Tensor x, Tensor k) { return x * k; }, kReference);
  const auto outer = op::compile([&](Tensor x) { return inner(x, 2) + inner(x, x); }, kReference);
  CHECK(floats(outer(vector({1, 3}))) == Floats{3, 15});
  CHECK(inner.stats().calls == 0);
  CHECK_THAT(outer.last_graph(), Contains("mul"));
  CHECK(op::last_optimized_graph() == outer.last_graph());
  // with Arrays it is an ordinary call, even while another function is recorded
  const auto constant = op::compile([&](Tensor x) { return x + inner(vector({2}), 3).item<float>(); }, kReference);
  CHECK(floats(constant(vector({1}))) == Floats{7});
}

TEST_CASE("api: a captured Array is read at each call") {
  Array table = vector({1, 2, 3});
  const auto inner = op::compile([](Tensor a, Tensor b) { return a - b; }, kReference);
  const auto f = op::compile(
      [&](Tensor x) {
        const Tensor t = table;
        const auto [dx, dt] = grad(sum(square(x * table + inner(x, table))), x, t);  // d/dt = 2 (x t + x - t) (x - 1)
        return std::tuple{x * table, table.slice(0, 0, 1) + x + table * table, dt, t};
      },
      kReference);
  const auto [product, sum, dt, copy] = f(vector({10, 20, 30}));
  CHECK(floats(product) == Floats{10, 40, 90});
  CHECK(floats(sum) == Floats{12, 25, 40});
  CHECK(floats(dt) == Floats{2 * 19 * 9, 2 * 58 * 19, 2 * 117 * 29});
  CHECK(floats(copy) == Floats{1, 2, 3});
  CHECK(copy.data() != table.data());
  table.span<float>()[1] = 5;
  CHECK(floats(std::get<0>(f(vector({10, 20, 30})))) == Floats{10, 100, 90});
  CHECK(f.stats().recordings == 1);
  // as a destination it follows the rules for arguments: here every element is read after its neighbor would be written
  const auto turn = op::compile([&](Tensor x) { return flip(table, 0) + x; }, kReference);
  turn.into(table)(0);
  CHECK(floats(table) == Floats{3, 5, 1});
  // capture by value keeps it alive
  const auto keeps = op::compile([t = vector({4})](Tensor x) { return x * t; }, kReference);
  CHECK(floats(keeps(vector({2}))) == Floats{8});
}

TEST_CASE("api: an Array can be an operand only inside a recording") {
  const Array a = vector({1}), empty;
  const std::string text = error_of([&] { a + 1; });
  CHECK_THAT(text, Contains("add: nothing is being recorded on this thread") && Contains("operators on Arrays"));
  CHECK_THAT(error_of([&] { static_cast<void>(Tensor{a}); }), Contains("a captured Array: nothing is being recorded"));
  const auto f = op::compile([&](Tensor x) { return x + empty; }, kReference);
  CHECK_THAT(error_of([&] { f(a); }), Contains("captured Array is empty") && Contains("test_api.cpp"));
}

TEST_CASE("api: several threads call one function") {
  const auto f = op::compile([](Tensor x) { return exp(-x) * 2 + x.dim(0); }, kReference);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t n = 1; n < 20; ++n) right += f(Array::zeros({n + t % 2}, f32)).at<float>({0}) == static_cast<float>(2 + n + t % 2);
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 4 * 19);
}

TEST_CASE("api: try_call and try_into give the text of the error") {
  const auto f = op::compile([](Tensor x, Tensor y) { return x + y; }, kReference);
  Array target = Array::zeros({2}, f32);
  const auto good = f.try_call(vector({1}), vector({2}));
  REQUIRE(good);
  CHECK(good->item<float>() == 3);
  const auto bad = f.try_call(vector({1, 2}), vector({1, 2, 3}));
  CHECK_FALSE(bad);
  CHECK_THAT(bad.error(), Contains("do not broadcast"));
  CHECK(f.try_into(target, vector({1, 2}), 1).has_value());
  CHECK(floats(target) == Floats{2, 3});
  CHECK_FALSE(f.try_into(target, vector({1, 2, 3}), 1).has_value());
  static_assert(noexcept(f.try_call(target, target))&& noexcept(f.try_into(target, target, target)));
}

// ------------------------------------------------------------------------------------------------ graphs

TEST_CASE("api: a graph can be traversed") {
  const auto f = op::compile([](Tensor x, Tensor w) { return std::pair{sum(x * w + x, 0), x * 2.5f}; }, kReference);
  CHECK(f.graph().empty());
  CHECK(f.graph() == op::GraphView());
  CHECK(f.recorded_graph().outputs().empty());
  f(matrix({1, 2, 3, 4}, 2), vector({1, 2}));
  const op::GraphView graph = f.graph();
  CHECK(graph.text() == f.last_graph());
  REQUIRE(graph.inputs().size() == 2);
  const auto x = graph.inputs()[0];
  CHECK(x.op() == "input");
  CHECK(x.name() == "x0");
  CHECK(shape_of(x) == Shape{2, 2});
  CHECK(x.dtype() == f32);
  CHECK(x.operands().empty());
  REQUIRE(x.users().size() == 3);
  REQUIRE(graph.outputs().size() == 2);
  CHECK(graph.output_names() == std::vector<std::string>{"out0", "out1"});
  const auto sum = graph.outputs()[0];
  CHECK(sum.op() == "reduce_sum");
  CHECK(sum.users().empty());
  CHECK(std::vector(sum.attributes().begin(), sum.attributes().end()) == Shape{0});
  CHECK_THAT(std::string(sum.source()), Contains("test_api.cpp:"));
  const auto add = sum.operands().at(0);
  CHECK(add.op() == "add");
  CHECK(add.operands().at(1) == x);
  CHECK(add.users() == std::vector{sum});
  const auto scaled = graph.outputs()[1];
  CHECK(scaled.operands().at(1).op() == "slot");
  CHECK(scaled.operands().at(1).value() == 2.5);
  CHECK_FALSE(add.value());
  std::size_t uses = 0, operands = 0;
  for (const auto node : f.graph()) {
    uses += node.users().size();
    operands += node.operands().size();
    for (const auto& operand : node.operands()) CHECK(operand.id() < node.id());
    CHECK(graph[node.id()].op() == node.op());
  }
  CHECK(uses == operands);  // no node of this graph reads the same node twice
  CHECK_THROWS_AS(graph[graph.size()], op::IndexError);
}

TEST_CASE("api: operators that divide by the same extent share it") {
  const auto f = op::compile(
      [](Tensor x, Tensor y) {
        return std::pair{(x - mean(x, 1, true)) / op::std(x, {-1}, 0, true), mean(y, 1)};
      },
      kReference);
  f(Array::ones({4, 4}, f32), Array::ones({4, 4}, f32));
  std::size_t sums = 0, slots = 0;
  for (const auto node : f.recorded_graph()) {
    sums += node.op() == "reduce_sum";
    slots += node.op() == "slot";
  }
  CHECK(sums == 3);   // the mean of x, once; its squares; y
  CHECK(slots == 2);  // y's length is a separate scalar parameter, although it is equal here
}

TEST_CASE("api: graphs are equal when they compute the same") {
  const Array x = vector({1, 2, 3});
  const auto graph_of = [&](auto f) {
    const auto compiled = op::compile(f, kReference);
    compiled(x, x);
    return compiled.recorded_graph();
  };
  const op::GraphView graph = graph_of([](Tensor a, Tensor b) { return exp(a * 2) + b / 3; });
  CHECK(graph == graph_of([](Tensor a, Tensor b) {
          const Tensor unused = a - b, right = b / 5, left = a * 7;  // another order, other literals
          static_cast<void>(unused);
          return exp(left) + right;
        }));
  CHECK_FALSE(graph == graph_of([](Tensor a, Tensor b) { return exp(b * 2) + a / 3; }));
  CHECK_FALSE(graph == graph_of([](Tensor a, Tensor b) { return exp(a * 2) - b / 3; }));
  CHECK_FALSE(graph == graph_of([](Tensor a, Tensor b) { return b / 3 + exp(a * 2); }));
  CHECK_FALSE(graph == graph_of([](Tensor a, Tensor b) {
                const Tensor two = 2;  // one literal used twice differs from two literals
                return exp(a * two) + b / two;
              }));
  CHECK_FALSE(graph_of([](Tensor a, Tensor) {
                return std::pair{a * 1, a * 2};
              }) == graph_of([](Tensor a, Tensor) {
                const Tensor y = a * 1;
                return std::pair{y, y};
              }));
  CHECK_FALSE(graph == op::GraphView());
  const auto formula = op::formula("exp(a*2) + b/3", kReference);
  formula({x, x});
  CHECK(graph == formula.recorded_graph());
}

// ------------------------------------------------------------------------------------------------ messages

TEST_CASE("api: an error names operator, operands and the line that recorded it") {
  const auto line = std::to_string(__LINE__ + 1);
  const auto f = op::compile([](Tensor x, Tensor w) { return x * w; }, kReference);
  const std::string text = error_of([&] { f(Array::zeros({32, 64}, f32), Array::zeros({32}, f32)); });
  CHECK_THAT(text, Contains("mul: shapes [32, 64] and [32] do not broadcast"));
  CHECK_THAT(text, Contains("right: "));
  CHECK_THAT(text, Contains("Recorded at ") && Contains("test_api.cpp:" + line + "."));
  CHECK_THROWS_AS(f(Array::zeros({32, 64}, f32), Array::zeros({32}, f32)), op::ShapeError);
  // the function is still usable
  CHECK(floats(f(vector({2}), vector({3}))) == Floats{6});
}

TEST_CASE("api: an error within a composed function names that function, and the next error its own") {
  const auto f = op::compile(
      [](Tensor x, Tensor w) {
        CHECK_THAT(error_of([&] { layer_norm(x, w); }), Contains("layer_norm: shapes [4, 6] and [5] do not broadcast"));
        CHECK_THAT(error_of([&] { rms_norm(x, w); }), Contains("rms_norm: shapes [4, 6] and [5] do not broadcast"));
        return x * w;
      },
      kReference);
  CHECK_THAT(error_of([&] { f(Array::zeros({4, 6}, f32), Array::zeros({5}, f32)); }), Contains("mul: shapes [4, 6] and [5]"));
}

TEST_CASE("api: errors keep their type") {
  const auto one = [](auto body) { return op::compile([body](Tensor x) -> Tensor { return body(x); }, kReference); };
  const Array x = matrix({1, 2, 3, 4}, 2);
  CHECK_THROWS_AS(one([](Tensor x) { return x[5]; })(x), op::IndexError);
  CHECK_THROWS_AS(one([](Tensor x) { return x[{0, 0, 0}]; })(x), op::ShapeError);
  CHECK_THROWS_AS(one([](Tensor x) { return x & 1; })(x), op::DTypeError);
  CHECK_THROWS_AS(one([](Tensor x) { return x[{op::Range{0, 1, 0}}]; })(x), op::ValueError);
  CHECK_THROWS_AS(one([](Tensor x) { return sum(x, 2); })(x), op::ShapeError);
  CHECK_THROWS_AS(one([](Tensor x) { return x.slice(2, 0); })(x), op::ShapeError);
  CHECK_THROWS_AS(one([](Tensor x) { return x + x.dim(2); })(x), op::ShapeError);
  CHECK_THROWS_AS(one([](Tensor x) { return grad(x, x); })(x), op::ShapeError);
  CHECK_THROWS_AS(one([](Tensor x) { return x + op::none; })(x), op::ValueError);
  CHECK_THROWS_AS(one([](Tensor x) { return x + std::uint64_t{1} << 63 | ~std::uint64_t{0}; })(x), op::Error);
  CHECK(op::compile([](Tensor x) { return x; }, kReference)(~std::uint64_t{0}).item<std::uint64_t>() == ~std::uint64_t{0});
}

TEST_CASE("api: use of a Tensor outside its recording is an error") {
  Tensor kept;
  CHECK_THAT(error_of([&] { kept.dim(0); }), Contains("nothing is being recorded"));
  CHECK_THAT(error_of([&] { Tensor(1.0); }), Contains("nothing is being recorded") && Contains("onepass::compile"));
  const auto keep = op::compile([&](Tensor x) { return kept = x; }, kReference);
  keep(vector({1}));
  CHECK_THAT(error_of([&] { kept + 1; }), Contains("nothing is being recorded"));
  const auto use = op::compile([&](Tensor x) { return x + kept; }, kReference);
  CHECK_THAT(error_of([&] { use(vector({1})); }),
             Contains("outside its recording") && Contains("Pass it as an argument") && Contains("test_api.cpp"));
  const auto unset = op::compile([&](Tensor) { return Tensor(); }, kReference);
  CHECK_THAT(error_of([&] { unset(vector({1})); }), Contains("uninitialized Tensor"));
  const auto result = op::compile([&](Tensor) { return kept; }, kReference);
  CHECK_THAT(error_of([&] { result(vector({1})); }), Contains("outside its recording"));
}

TEST_CASE("api: a nested vector without results is an error") {
  const auto f = op::compile([](Tensor x) { return std::vector<std::vector<Tensor>>{{x}, {}}; }, kReference);
  CHECK_THAT(error_of([&] { f(vector({1})); }), Contains("vector in the result"));
}

TEST_CASE("api: check_recording finds captured variables that changed") {
  static_assert(op::Options{}.check_recording == op::detail::kDebugBuild);
  float rate = 0.5f;
  bool negate = false;
  Array table = vector({1});
  const op::Options checked{.mode = op::Mode::reference, .check_recording = true};
  const auto f = op::compile([&](Tensor x) { return negate ? -x : x * rate + table; }, checked);
  const Array x = vector({2});
  CHECK(floats(f(x)) == Floats{2});
  table.span<float>()[0] = 2;  // elements may change
  CHECK(floats(f(x)) == Floats{3});
  rate = 0.25f;
  CHECK_THAT(error_of([&] { f(x); }), Contains("was 0.5 when the function was recorded and is 0.25 now") && Contains("test_api.cpp:") &&
                                          Contains("a captured variable changed"));
  rate = 0.5f;
  negate = true;
  CHECK_THAT(error_of([&] { f(x); }), Contains("recorded the number 0.5 as f32[1] at ") && Contains("first, but `neg` f32[1] at "));
  negate = false;
  CHECK(floats(f(x)) == Floats{3});
  table = vector({5});
  CHECK_THAT(error_of([&] { f(x); }), Contains("captured a different Array"));
  const auto unchecked =
      op::compile([&](Tensor x) { return x * rate; }, {.mode = op::Mode::reference, .check_recording = false, .check_captures = false});
  unchecked(x);
  rate = 8;
  CHECK(floats(unchecked(x)) == Floats{1});
}

namespace {
double global_rate = 2;
float scratch_of_recording = 0;
}  // namespace

TEST_CASE("api: a changed captured number is detected without another recording") {
  const op::Options release{.mode = op::Mode::reference, .check_recording = false};
  const Array x = vector({2});
  const auto fails = [](auto&& call, const char* words = "") {
    CHECK_THAT(error_of(call), Contains("check_captures: the number") && Contains("a captured variable changed") &&
                                   Contains("test_api.cpp:") && Contains(words));
  };

  float rate = 0.5f;
  std::int64_t steps = 3;
  const auto f = op::compile([&](Tensor x) { return x * rate + steps; }, release);
  for (int i = 0; i < 5; ++i) CHECK(floats(f(x)) == Floats{4});
  CHECK(f.stats().recordings == 1);
  Array y = vector({0});
  f.into(y)(x);  // another signature has its own recording
  rate = 0.25f;
  fails([&] { f(x); }, "was 0.5 when the function was recorded and is 0.25 now");
  fails([&] { f.into(y)(x); });
  fails([&] { static_cast<void>(f.bind(y, x)); });
  CHECK(!f.try_call(x));
  rate = 0.5f;
  CHECK(floats(f(x)) == Floats{4});
  steps = 4;
  fails([&] { f(x); });

  // a global variable; a variable read through a pointer; a variable in an inlined function; a member of the function object
  const auto global = op::compile([](Tensor x) { return x * global_rate; }, release);
  const auto pointed = op::compile([p = &rate](Tensor x) { return x * *p; }, release);
  const auto outer = op::compile([&](Tensor x) { return pointed(x) + 1; }, release);
  CHECK(floats(global(x)) == Floats{4});
  CHECK(floats(pointed(x)) == Floats{1});
  CHECK(floats(outer(x)) == Floats{2});
  global_rate = 3, rate = 8;
  fails([&] { global(x); });
  fails([&] { pointed(x); });
  fails([&] { outer(x); });
  global_rate = 2;

  // variables of the function itself are not checked after they end: on its stack, on the heap, in static memory
  const auto own = op::compile(
      [](Tensor x) {
        std::vector<float> weights{1, 2, 3};
        float last = 4;
        for (float& w : weights) x = x * w;
        scratch_of_recording = static_cast<float>(x.dim(0));
        x = x + last + scratch_of_recording;
        last = 5;
        return x;
      },
      release);
  CHECK(floats(own(x)) == Floats{17});
  CHECK(floats(own(vector({1, 1}))) == Floats{12, 12});  // recorded again, with another value in static memory
  CHECK(own.stats().recordings == 2);
  for (int i = 0; i < 5; ++i) CHECK(floats(own(x)) == Floats{17});
  CHECK(own.stats().recordings <= 3);  // the change was checked once

  // a constant can be used without a capture
  constexpr float kHalf = 0.5f;
  CHECK(floats(op::compile([](Tensor x) { return x * kHalf; }, release)(x)) == Floats{1});
}

TEST_CASE("api: use of a moved-from compiled function or formula is an error") {
  auto f = op::compile([](Tensor x) { return x * 2; }, kReference);
  const auto kept = std::move(f);
  const Array x = vector({2}), y = vector({0});
  const auto moved = Contains("a moved-from ");
  const auto fails = [&](auto&& call) { CHECK_THAT(error_of(call), moved); };
  fails([&] { f(x); });
  fails([&] { f.into(y)(x); });
  fails([&] { static_cast<void>(f.bind(y, x)); });
  fails([&] { f.compare(x); });
  fails([&] { f.graph(); });
  fails([&] { f.recorded_graph(); });
  fails([&] { f.last_graph(); });
  fails([&] { f.explain(); });
  fails([&] { f.stats(); });
  fails([&] { f.warm_up({"f32[2]"}); });
  fails([&] { f.warm_up_file("/dev/null"); });
  fails([&] { f.signatures(); });
  fails([&] { f.write_signatures("/dev/null"); });
  fails([&] { f.seal(); });
  fails([&] { f.reset(); });
  fails([&] { f.options(); });
  fails([&] { vjp(f, x); });
  fails([&] { check_gradients(f, x); });
  fails([&] { op::compile([&](Tensor x) { return f(x); }, kReference)(x); });
  CHECK_THAT(f.try_call(x).error(), moved);
  CHECK_THAT(f.try_into(y, x).error(), moved);
  CHECK(floats(kept(x)) == Floats{4});
  auto call = kept.bind(y, x);
  const auto moved_call = std::move(call);
  fails([&] { call(); });
  moved_call();
  CHECK(floats(y) == Floats{4});
  f = kept;
  CHECK(floats(f(x)) == Floats{4});

  op::Formula g = op::formula("x*3", kReference);
  const op::Formula h = std::move(g);
  fails([&] { g({x}); });
  fails([&] { g({{"x", x}}); });
  fails([&] { g.inputs(); });
  fails([&] { g.outputs(); });
  fails([&] { g.text(); });
  fails([&] { g.into({{"out", y}}, {{"x", x}}); });
  fails([&] { g.compare({x}); });
  fails([&] { g.graph(); });
  fails([&] { g.recorded_graph(); });
  fails([&] { g.last_graph(); });
  fails([&] { g.explain(); });
  fails([&] { g.stats(); });
  fails([&] { g.warm_up({"f32[2]"}); });
  fails([&] { g.warm_up_file("/dev/null"); });
  fails([&] { g.signatures(); });
  fails([&] { g.write_signatures("/dev/null"); });
  fails([&] { g.seal(); });
  fails([&] { g.reset(); });
  fails([&] { g.options(); });
  CHECK_THAT(g.try_call({x}).error(), moved);
  CHECK(floats(h({x})) == Floats{6});
}

TEST_CASE("api: destinations in an array, a pair or a tuple") {
  const Array x = vector({1, 2});
  const auto pair = op::compile([](Tensor x) { return std::pair{x + 1, x * 2}; }, kReference);
  const auto array = op::compile([](Tensor x) { return std::array{x + 1, x * 2, x - 1}; }, kReference);
  const auto list = op::compile([](Tensor x) { return std::vector{x + 1, x * 2}; }, kReference);
  const auto one = op::compile([](Tensor x) { return std::array{x + 1}; }, kReference);
  const auto nested = op::compile([](Tensor x) { return std::tuple{std::pair{x + 1, x * 2}}; }, kReference);
  const auto fresh = [] { return vector({0, 0}); };

  std::array<Array, 2> two{fresh(), fresh()};
  list.into(two)(x);
  CHECK((floats(two[0]) == Floats{2, 3} && floats(two[1]) == Floats{2, 4}));
  two = {fresh(), fresh()};
  pair.into(two)(x);
  CHECK((floats(two[0]) == Floats{2, 3} && floats(two[1]) == Floats{2, 4}));
  std::pair<Array, Array> both{fresh(), fresh()};
  pair.into(both)(x);
  CHECK((floats(both.first) == Floats{2, 3} && floats(both.second) == Floats{2, 4}));
  both = {fresh(), fresh()};
  nested.into(both)(x);
  CHECK(floats(both.second) == Floats{2, 4});
  const std::tuple<Array, op::Discard> first{fresh(), op::discard};
  pair.into(first)(x);
  CHECK(floats(std::get<0>(first)) == Floats{2, 3});
  std::array<Array, 3> three{fresh(), fresh(), fresh()};
  array.into(three)(x);
  CHECK(floats(three[2]) == Floats{0, 1});
  three = {fresh(), fresh(), fresh()};
  CHECK(array.try_into(three, x));
  CHECK(floats(three[2]) == Floats{0, 1});
  three = {fresh(), fresh(), fresh()};
  array.bind(three, x)();
  CHECK(floats(three[1]) == Floats{2, 4});
  array.into(three[0], three[1], op::discard)(x);  // each destination separately
  std::array<Array, 1> single{fresh()};
  one.into(single)(x);
  one.into(single[0])(x);
  CHECK(floats(single[0]) == Floats{2, 3});
}

TEST_CASE("api: a relaxed function inside a strict one is an error") {
  const auto relaxed = op::compile([](Tensor x) { return x * 2 + 1; }, {.mode = op::Mode::reference, .relax = {.contract = true}});
  const auto inside = [&](Tensor x) { return relaxed(x) - 1; };
  const Array x = vector({2});
  CHECK_THAT(error_of([&] { op::compile(inside, kReference)(x); }),
             Contains("compiled with relax.contract is called with Tensors inside a function"));
  CHECK_THAT(error_of([&] { op::compile(inside, {.mode = op::Mode::reference, .relax = {.reassociate = true}})(x); }),
             Contains("Compile the caller with relax.contract too"));
  CHECK(floats(op::compile(inside, {.mode = op::Mode::reference, .relax = {.contract = true, .approximate = true}})(x)) == Floats{4});
  const auto strict = op::compile([](Tensor x) { return x * 2; }, kReference);
  CHECK(floats(op::compile([&](Tensor x) { return strict(x); }, {.mode = op::Mode::reference, .relax = {.contract = true}})(x)) ==
        Floats{4});
}

TEST_CASE("api: errors of destinations and indices name the line that recorded the result") {
  const auto f = op::compile([](Tensor x) { return x + 1; }, kReference);
  Array wrong = vector({1, 2, 3});
  CHECK_THAT(error_of([&] { f.into(wrong)(vector({1})); }),
             Contains("destination out is f32[3], but the result is f32[1]") && Contains("Recorded at") && Contains("test_api.cpp:"));
  const auto g = op::compile([](Tensor x, Tensor i) { return take(x, i, 0); }, kReference);
  CHECK_THAT(error_of([&] {
               g(vector({1, 2}), Array::from({7}));
             }),
             Contains("take: the index 7 at [0] is out of range") && Contains("Recorded at") && Contains("test_api.cpp:"));
}

TEST_CASE("api: variance and stddev are found without the namespace's name") {
  const auto f = op::compile([](Tensor x) { return std::tuple{variance(x), stddev(x, {0}, 1), var(x), op::std(x, {0}, 1)}; }, kReference);
  const auto [v, s, old_v, old_s] = f(vector({1, 2, 3, 6}));
  CHECK(v.item<float>() == 3.5f);
  CHECK(s.item<float>() == std::sqrt(14.0f / 3));
  CHECK((v.item<float>() == old_v.item<float>() && s.item<float>() == old_s.item<float>()));
}

TEST_CASE("api: numbers above the largest i64 are u64 literals") {
  constexpr std::uint64_t kAll = UINT64_MAX, kHigh = std::uint64_t{1} << 63;
  const Array x = Array::from(std::vector<std::uint64_t>{0, 5, kHigh, kAll});
  const auto f = op::compile([](Tensor x) { return (x & kAll) ^ kHigh; }, kReference);
  CHECK(f(x).to_vector<std::uint64_t>() == std::vector<std::uint64_t>{kHigh, kHigh + 5, 0, kAll - kHigh});
  const auto add = op::compile([](Tensor x, Tensor k) { return x + k; }, kReference);  // passed by the call
  CHECK(add(x, kAll).to_vector<std::uint64_t>() == std::vector<std::uint64_t>{kAll, 4, kHigh - 1, kAll - 1});
  CHECK(add(x, 1).to_vector<std::uint64_t>()[3] == 0);
  CHECK(add(vector({1}), kHigh).item<float>() == 0x1p63f);
  CHECK_THAT(error_of([&] { add(Array::from({1}), kAll); }), Contains("the literal 18446744073709551615 does not fit i32"));
  CHECK(op::compile([](Tensor) { return Tensor(kAll); }, kReference)(x).item<std::uint64_t>() == kAll);
}

TEST_CASE("api: recordings nest, even if one of them throws") {
  int fail = 2;
  const auto innermost = op::compile(
      [&](Tensor x) {
        if (fail-- > 0) throw std::string("host");
        return x * 2;
      },
      kReference);
  const auto inner = op::compile([&](Tensor x) { return innermost(x) + innermost(vector({3})).item<float>(); }, kReference);
  const auto outer = op::compile(
      [&](Tensor x) {
        Tensor y = x + 1;
        y += inner(vector({10})).item<float>();  // another recording, while this recording is open
        return inner(y) - x;                     // recorded into this recording
      },
      kReference);
  CHECK_THROWS_AS(outer(vector({1})), std::string);
  CHECK_THROWS_AS(outer(vector({1})), std::string);
  CHECK_THAT(error_of([] { static_cast<void>(Tensor{1.0}); }), Contains("nothing is being recorded"));
  CHECK(floats(outer(vector({1}))) == Floats{2 * (2 + 26) + 6 - 1});
}

TEST_CASE("api: two threads record concurrently") {
  std::atomic<int> waiting{0}, right{0};
  const auto meet = [&] {  // waits inside the recording for the other thread
    ++waiting;
    while (waiting < 2) std::this_thread::yield();
  };
  const auto record = [&](float k) {
    bool first = true;
    const auto f = op::compile(
        [&, k](Tensor x) {
          const Tensor y = x * k;
          if (std::exchange(first, false)) meet();
          return y + k;
        },
        kReference);
    right += floats(f(vector({1, 2}))) == Floats{2 * k, 3 * k};
  };
  std::thread other(record, 3.0f);
  record(5.0f);
  other.join();
  CHECK(right == 2);
}

TEST_CASE("api: an exception of the recorded function reaches the caller, and the thread can record again") {
  bool fail = true;
  const auto f = op::compile([&](Tensor x) { return fail ? throw std::runtime_error("mine") : x; }, kReference);
  CHECK_THROWS_WITH(f(vector({1})), "mine");
  CHECK(f.try_call(vector({1})).error() == "mine");
  fail = false;
  CHECK(floats(f(vector({1}))) == Floats{1});
}

// ------------------------------------------------------------------------------------------------ formulas

TEST_CASE("api: formulas by position and by name") {
  const auto price = op::formula("s*exp(-r*t)", kReference);
  CHECK(price.inputs() == std::vector<std::string>{"s", "r", "t"});
  CHECK(price.outputs() == std::vector<std::string>{"out"});
  CHECK(price.text() == "s*exp(-r*t)");
  const Array s = vector({100, 50}), r = vector({0}), t = vector({2});
  CHECK(floats(price({s, r, t})) == Floats{100, 50});
  const auto results = price({{"t", t}, {"s", s}, {"r", r}});
  REQUIRE(results.size() == 1);
  CHECK(floats(results["out"]) == Floats{100, 50});
  CHECK(floats(results[0]) == Floats{100, 50});
  Array y = Array::zeros({2}, f32);
  price.into({{"out", y}}, {{"t", t}, {"s", s}, {"r", r}});
  CHECK(floats(y) == Floats{100, 50});
  CHECK_FALSE(price.last_graph().empty());
}

TEST_CASE("api: formulas take numbers, and new values record nothing") {
  const auto price = op::formula("s*exp(-r*t) + max(s, axis=a) + s**k", kReference);
  const Array s = vector({100, 50});
  for (const double r : {0.0, 0.5, 1.0}) {
    const Array out = price({{"s", s}, {"r", r}, {"t", 2}, {"a", 0}, {"k", 2.0}});
    CHECK(out.at<float>({1}) == 50 * static_cast<float>(std::exp(-r * 2)) + 100 + 2500);
  }
  CHECK(price.stats().recordings == 1);
  price({s, 0.25, 1, -1, 3.0});  // another axis is another program
  CHECK(price.stats().recordings == 2);
  CHECK_THAT(error_of([&] { price({s, 0.25, 1, 5, 3.0}); }), Contains("formula:1:") && Contains("axis 5 is out of range"));
  const auto typed = op::formula("fn f(x: f32[n], k: i32[]) { return x*k + n }", kReference);
  CHECK(floats(typed({s, 3})) == Floats{302, 152});
  CHECK(floats(typed({s, 4})) == Floats{402, 202});
  CHECK_THAT(error_of([&] { typed({s, 3.5}); }), Contains("the parameter `k` is declared i32[]"));
  CHECK_THAT(error_of([&] { typed({s, std::int64_t{1} << 40}); }), Contains("formula:1:") && Contains("does not fit i32"));
  CHECK(typed.stats().recordings == 1);
}

TEST_CASE("api: formulas with several outputs") {
  const auto f = op::formula("y = x*x; loss = sum(y); d = grad(loss, [x]); z = y + 1", kReference);
  CHECK(f.inputs() == std::vector<std::string>{"x"});
  CHECK(f.outputs() == std::vector<std::string>{"d", "z"});
  const Array x = vector({1, 3});
  const auto results = f({x});
  CHECK(floats(results["d"]) == Floats{2, 6});
  CHECK(floats(results["z"]) == Floats{2, 10});
  Array z = Array::zeros({2}, f32);
  f.into({{"z", z}}, {{"x", x}});
  CHECK(floats(z) == Floats{2, 10});
  CHECK_THAT(error_of([&] { Array one = results; }), Contains("2 outputs"));
  CHECK_THAT(error_of([&] { results["zz"]; }), Contains("no output `zz`"));
}

TEST_CASE("api: errors of formulas") {
  CHECK_THROWS_AS(op::formula("x +"), op::FormulaError);
  CHECK_THROWS_AS(op::formula("expp(x)"), op::FormulaError);
  const auto f = op::formula("speed*time", kReference);
  const Array x = vector({1});
  CHECK_THAT(error_of([&] { f({{"speed", x}, {"tme", x}}); }), Contains("no input `tme`") && Contains("`time`"));
  CHECK_THAT(error_of([&] { f({{"speed", x}}); }), Contains("no value") && Contains("time"));
  CHECK_THAT(error_of([&] { f({{"speed", x}, {"speed", x}, {"time", x}}); }), Contains("given twice"));
  CHECK_THAT(error_of([&] { f({x}); }), Contains("takes 2 arguments (speed, time), but the call has 1"));
  CHECK_THAT(error_of([&] { f({vector({1, 2}), vector({1, 2, 3})}); }), Contains("formula:1:6") && Contains("do not broadcast"));
  const auto bad = f.try_call({{"speed", x}});
  CHECK_FALSE(bad);
  CHECK_THAT(bad.error(), Contains("time"));
  CHECK(f.try_call({x, x})->size() == 1);
}

TEST_CASE("api: cost of recording") {
  constexpr int kOperators = 10'000;
  double best = 1e9;
  for (int round = 0; round < 10; ++round) {
    op::runtime::ProgramRecorder recorder;
    const std::int64_t matrix[] = {64, 32}, row[] = {32};
    const op::compiler::Value x = recorder.input("x", f32, matrix), b = recorder.input("b", f32, row);
    op::runtime::Recording recording(recorder, {});
    Tensor y = recording.tensor(x);
    const Tensor bias = recording.tensor(b);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kOperators / 4; ++i) y = exp(y * 1.5f + bias) - y;
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kOperators);
    CHECK(recorder.graph.size() > kOperators);
  }
  std::printf("recording: %.2f us an operator\n", best);
}

TEST_CASE("api: limits are options of formulas and functions") {
  const auto limited = [](auto set) {
    op::Options options = kReference;
    set(options.limits);
    return options;
  };
  CHECK_THAT(error_of([&] { op::formula("((x))", limited([](op::Limits& l) { l.nesting = 1; })); }), Contains("the limit `nesting`"));
  CHECK_THAT(error_of([&] { op::formula("name", limited([](op::Limits& l) { l.name_bytes = 3; })); }), Contains("the limit `name_bytes`"));
  CHECK_THAT(error_of([&] { op::formula("x + 1", limited([](op::Limits& l) { l.source_bytes = 4; })); }),
             Contains("the limit `source_bytes`"));
  const Array x = vector({1, 2, 3});
  for (const op::Mode mode : {op::Mode::reference, op::Mode::unfused}) {
    op::Options few = limited([](op::Limits& l) { l.max_nodes = 3; });
    op::Options flat = limited([](op::Limits& l) { l.rank = 1; });
    op::Options small = limited([](op::Limits& l) { l.array_bytes = 11; });
    few.mode = flat.mode = small.mode = mode;
    const auto error = [&](auto function, const op::Options& options) {
      auto compiled = op::compile(function, options);
      return error_of([&] { compiled(x); });
    };
    CHECK_THAT(error([](Tensor a) { return exp(a) * exp(a + 1.0f) + a; }, few), Contains("more than 3 nodes") && Contains("`max_nodes`"));
    CHECK_THAT(error([](Tensor a) { return a.reshape({3, 1}); }, flat), Contains("the rank 2 is above 1, the limit `rank`"));
    CHECK_THAT(error([](Tensor a) { return a + 1.0f; }, small), Contains("f32[3]") && Contains("the limit `array_bytes`"));
    small.limits.array_bytes = 12;
    CHECK(error([](Tensor a) { return a + 1.0f; }, small) == "no error");
    CHECK_THAT(error_of([&] { op::formula("exp(x)*exp(x + 1) + x", few)({x}); }), Contains("formula:1:") && Contains("`max_nodes`"));
  }
}

namespace {
template <class T> struct Scaled {
  T w;
  std::optional<T> scale;
};
}  // namespace

TEST_CASE("api: results may be optional", "[api]") {
  const Array x = Array::from({1.0f, 2.0f});
  auto f = op::compile([](Tensor x, op::Static<bool> both) {
    return std::pair{x + 1, both.value ? std::optional<Tensor>(x * 2) : std::nullopt};
  });
  const auto [one, two] = f(x, true);
  REQUIRE(two.has_value());
  CHECK(two->at<float>({1}) == 4);
  CHECK(!f(x, false).second.has_value());
  Array target = Array::zeros({2}, op::f32), other = Array::zeros({2}, op::f32);
  std::pair<Array, std::optional<Array>> targets{target, other};
  f.into(targets)(x, true);
  CHECK(other.at<float>({1}) == 4);
  auto scaled = op::compile([](const Scaled<Tensor>& m) { return Scaled<Tensor>{m.w * 2, m.scale}; });
  const auto without = scaled(Scaled<Array>{x, std::nullopt}), with = scaled(Scaled<Array>{x, x});
  CHECK(!without.scale.has_value());
  CHECK(with.w.at<float>({1}) == 4);
  CHECK(with.scale->at<float>({1}) == 2);
}
