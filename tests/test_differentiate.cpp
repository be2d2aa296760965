// differentiate: compares every operator with central differences, nested three times. Also checks the special points of docs/language.md,
// "Derivatives", and the order in which cotangents are added.
#include "compiler/differentiate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include <catch2/catch.hpp>

#include "ir/build.h"
#include "ir/reference.h"
#include "node_text.h"
#include "onepass/error.h"

using namespace onepass;
using namespace onepass::ir;
using compiler::differentiate;
using test::node_text;
using Shape = std::vector<std::int64_t>;
using Values = std::vector<double>;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_nan(double x) { return x != x; }

Expr view(Op op, Expr x, const Shape& shape, const Shape& attributes = {}) {
  return {x.graph(), x.graph().add(op, x.dtype(), x.graph().intern(shape), {x.id()}, attributes)};
}

/// Returns the derivatives of one value with one cotangent.
std::vector<Expr> vjp(Expr y, Expr g, std::initializer_list<Expr> xs) {
  std::vector<NodeId> ids;
  for (Expr x : xs) ids.push_back(x.id());
  std::vector<Expr> result;
  for (NodeId id : differentiate(y.graph(), std::vector{y.id()}, std::vector{g.id()}, ids)) result.emplace_back(y.graph(), id);
  return result;
}

/// Evaluates f64 nodes for the given values of the inputs.
std::vector<Values> values_of(const Graph& graph, const std::vector<NodeId>& nodes, const std::vector<Values>& inputs) {
  Graph copy = graph;
  copy.outputs = nodes;
  copy.output_names.assign(nodes.size(), "y");
  copy = prune(copy);
  verify(copy, "differentiate");
  std::vector<ArrayView> views;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const List shape = graph.list(graph.inputs[i].shape);
    REQUIRE(element_count(shape) == static_cast<std::int64_t>(inputs[i].size()));
    views.push_back({DType::F64, inputs[i].data(), Shape(shape.begin(), shape.end())});
  }
  std::vector<Values> result;
  for (const Buffer& b : evaluate(copy, views)) {
    REQUIRE(b.dtype == DType::F64);
    const auto values = b.as<double>();
    result.emplace_back(values.begin(), values.end());
  }
  return result;
}

/// Graph of f64 inputs with values, whose derivatives are compared with central differences.
struct Numeric {
  explicit Numeric(std::uint64_t seed) : random(seed) {}

  Expr input(const Shape& shape, Values values) {
    inputs.push_back(std::move(values));
    return {graph, graph.add_input("x" + std::to_string(inputs.size()), DType::F64, shape)};
  }
  Expr input(const Shape& shape) {
    Values values;
    std::uniform_real_distribution<double> uniform(0.3, 1.7);
    std::bernoulli_distribution sign;
    for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(sign(random) ? uniform(random) : -uniform(random));
    return input(shape, std::move(values));
  }

  /// Checks the vjp of ys at xs against differences. For order > 1, checks derivatives of the vjp too, also with respect to the cotangents.
  void check(const std::vector<NodeId>& ys, const std::vector<NodeId>& xs, int order) {
    std::vector<NodeId> cotangents, xs_and_cotangents = xs;
    for (NodeId y : ys) {
      const List shape = graph.shape(y);
      cotangents.push_back(input(Shape(shape.begin(), shape.end())).id());
      xs_and_cotangents.push_back(cotangents.back());
    }
    const std::vector<NodeId> gradients = differentiate(graph, ys, cotangents, xs);
    const std::vector<Values> computed = values_of(graph, gradients, inputs);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      CHECK(graph[gradients[i]].shape == graph[xs[i]].shape);
      CHECK(graph[gradients[i]].dtype == graph[xs[i]].dtype);
      Values& x = inputs.at(graph[xs[i]].bits);
      REQUIRE(computed[i].size() == x.size());
      for (std::size_t e = 0; e < x.size(); ++e) {
        const double at = x[e], step = 1e-5;
        double difference = 0, size = 1;
        for (const double sign : {1.0, -1.0}) {
          x[e] = at + sign * step;
          const std::vector<Values> y = values_of(graph, ys, inputs);
          for (std::size_t k = 0; k < ys.size(); ++k)
            for (std::size_t n = 0; n < y[k].size(); ++n) {
              const double term = y[k][n] * inputs.at(graph[cotangents[k]].bits)[n];
              difference += sign * term;
              size = std::max(size, std::fabs(term));
            }
        }
        x[e] = at;
        INFO("order " << order << ", x " << i << ", element " << e << " = " << at);
        CHECK(computed[i][e] == Approx(difference / (2 * step)).margin(1e-6 * size));
      }
    }
    if (order > 1) check(gradients, xs_and_cotangents, order - 1);
  }

  Graph graph;
  std::vector<Values> inputs;
  std::mt19937_64 random;
};

bool is_plain_float_operator(Op op) {
  const TypeRule types = info(op).types;
  // Operators that only expansions use have no derivative, since the expanded operator has a derivative.
  return is_elementwise(op) && op != Op::StopGradient && op != Op::LogDomain && !(info(op).traits & kPartial) &&
         (types == TypeRule::Number || types == TypeRule::Float || types == TypeRule::Any);
}

/// Returns d op / d operand at scalars, as given by the gradient column.
double derivative(Op op, int operand, double g, Values operands) {
  Numeric numeric(1);
  std::vector<Expr> x;
  for (double value : operands) x.push_back(numeric.input({}, {value}));
  x.resize(3);
  const Expr y = info(op).arity == 1 ? apply(op, {x[0]}) : info(op).arity == 2 ? apply(op, {x[0], x[1]}) : apply(op, {x[0], x[1], x[2]});
  const Expr cotangent = numeric.input({}, {g});
  const Expr d = vjp(y, cotangent, {x[static_cast<std::size_t>(operand)]})[0];
  return values_of(numeric.graph, {d.id()}, numeric.inputs)[0][0];
}

/// Inputs x, y, z and cotangent g, for tests of the derivatives' text.
struct Make {
  explicit Make(DType dtype = DType::F32, const Shape& shape = {3, 4}) {
    x = {graph, graph.add_input("x", dtype, shape)};
    y = {graph, graph.add_input("y", dtype, shape)};
    z = {graph, graph.add_input("z", dtype, shape)};
    g = {graph, graph.add_input("g", dtype, shape)};
  }
  std::string gradient(Expr of, Expr with_respect_to) { return node_text(graph, vjp(of, g, {with_respect_to})[0].id()); }
  Graph graph;
  Expr x, y, z, g;
};

}  // namespace

TEST_CASE("differentiate: every elementwise operator agrees with differences, nested three times", "[differentiate]") {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (!is_plain_float_operator(op)) continue;
    INFO("operator " << info(op).text);
    // No point is near a kink: no integers, no equal operands, no quotients near integers. Roots and logarithms use the positive points.
    const Values a{0.6, 1.3, 2.7, -0.4, -1.8, 0.25, 1.6, 0.85}, b{1.7, -0.7, 0.8, -1.45, 1.1, 0.9, -1.25, 1.3},
        c{0.35, -0.9, 1.6, 0.75, -0.2, 1.2, -0.45, 0.65};
    int points = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      Numeric numeric(10 + k);
      std::vector<Expr> x{numeric.input({}, {a[k]}), numeric.input({}, {b[k]}), numeric.input({}, {c[k]})};
      const Expr y = info(op).arity == 1   ? apply(op, {x[0]})
                     : info(op).arity == 2 ? apply(op, {x[0], x[1]})
                                           : apply(op, {x[0], x[1], x[2]});
      if (is_nan(values_of(numeric.graph, {y.id()}, numeric.inputs)[0][0])) continue;
      ++points;
      std::vector<NodeId> xs;
      for (int n = 0; n < info(op).arity; ++n) xs.push_back(x[static_cast<std::size_t>(n)].id());
      numeric.check({y.id()}, xs, 3);
    }
    CHECK(points >= 3);
  }
}

namespace {
/// Functions of x [2, 3, 4] for operators that move elements or have operands of several types. The test below checks that every such
/// operator has a row.
const std::map<Op, std::function<Expr(Expr)>>& structural() {
  const auto reduced = [](Op op) { return [op](Expr x) { return view(op, x, {2, 4}, {1}); }; };
  const auto scanned = [](Op op) { return [op](Expr x) { return view(op, x, {2, 3, 4}, {1}); }; };
  const auto contracted = [](Op op) {
    return [op](Expr x) {
      return Expr{x.graph(), x.graph().add(op, x.dtype(), x.graph().intern(Shape{2, 4}), {x.id(), exp(x).id()}, Shape{1})};
    };
  };
  const auto chosen = [](Op op) { return [op](Expr x) { return apply(op, {x < 0.1, x * x, sin(x)}); }; };
  const auto places = [](Expr x, const Shape& shape) {  // 1, 2, 0, 1 …
    Graph& graph = x.graph();
    const Expr counts{graph, graph.add(Op::Iota, DType::I64, graph.intern(shape), {}, Shape{1})};
    const Expr turned = apply(Op::Remainder, {counts + Expr{graph, graph.constant(DType::I64, counts.shape(), 1)},
                                              Expr{graph, graph.constant(DType::I64, counts.shape(), 3)}});
    return graph.add(Op::Place, DType::I64, counts.shape(), {turned.id()}, Shape{3, 1, static_cast<std::int64_t>(Indexing::TakeAlongAxis)});
  };
  static const std::map<Op, std::function<Expr(Expr)>> kRows = {
      {Op::Reshape,
       [](Expr x) {
         return view(Op::Reshape, x, {6, 4});
       }},
      {Op::Permute,
       [](Expr x) {
         return view(Op::Permute, x, {4, 2, 3}, {2, 0, 1});
       }},
      {Op::Broadcast,
       [](Expr x) {
         return view(Op::Broadcast, view(Op::Slice, x, {1, 3, 4}, {1, 0, 0, 1, 1, 1}), {5, 3, 4});
       }},
      {Op::Slice,
       [](Expr x) {
         return view(Op::Slice, x, {1, 3, 2}, {1, 2, 1, 1, -1, 2});
       }},
      {Op::Pad,
       [](Expr x) {
         return view(Op::Pad, x, {2, 7, 5}, {0, 1, 0, 1, 2, 1});
       }},
      {Op::Diagonal,
       [](Expr x) {
         return view(Op::Diagonal, x, {2, 3}, {1, 1, 2});
       }},
      {Op::Window,
       [](Expr x) {
         return view(Op::Window, view(Op::Window, x, {2, 3, 3, 2}, {2, 1, 1}), {2, 2, 2, 3, 2}, {1, 1, 1});
       }},
      {Op::Sort,
       [](Expr x) {
         return view(Op::Sort, x, {2, 2, 4}, {1, 1});
       }},
      {Op::Piecewise,
       [](Expr x) {
         Graph& graph = x.graph();
         const Expr one = view(Op::Slice, x, {2, 1, 4}, {0, 1, 0, 1, 1, 1}), elsewhere = view(Op::ReduceSum, x, {}, {0, 1, 2});
         return Expr{graph, graph.add(Op::Piecewise, x.dtype(), graph.intern(Shape{2, 6, 4}), {x.id(), one.id(), elsewhere.id()},
                                      Shape{0, 0, 0, 1, 1, 1, 0, 4, 0, 1, 1, 1})};
       }},
      {Op::ReduceSum, reduced(Op::ReduceSum)},
      {Op::ReduceMax, reduced(Op::ReduceMax)},
      {Op::ReduceMin, reduced(Op::ReduceMin)},
      {Op::ReduceProd, reduced(Op::ReduceProd)},
      {Op::ContractLanes, contracted(Op::ContractLanes)},
      {Op::ContractRows, contracted(Op::ContractRows)},
      {Op::ScanSum, scanned(Op::ScanSum)},
      {Op::ScanProd, scanned(Op::ScanProd)},
      {Op::ScanMax, scanned(Op::ScanMax)},
      {Op::ScanMin, scanned(Op::ScanMin)},
      {Op::Gather,
       [places](Expr x) {
         Graph& graph = x.graph();
         return Expr{graph, graph.add(Op::Gather, x.dtype(), graph.intern(Shape{2, 5, 4}), {x.id(), places(x, {2, 5, 4})}, Shape{1})};
       }},
      {Op::ScatterAdd,
       [places](Expr x) {
         return Expr{x.graph(), x.graph().add(Op::ScatterAdd, x.dtype(), x.shape(), {x.id(), places(x, {2, 3, 4}), exp(x).id()}, Shape{1})};
       }},
      {Op::Assign,  // two updates of one element: the last update is kept; then the least of four values, one of them from x
       [places](Expr x) {
         Graph& graph = x.graph();
         const NodeId at = places(x, {2, 3, 4});
         const Expr set{graph, graph.add(Op::Assign, x.dtype(), x.shape(), {x.id(), places(x, {2, 3, 4}), exp(x).id()}, Shape{1, 0})};
         return set + Expr{graph, graph.add(Op::Assign, x.dtype(), x.shape(), {x.id(), at, sin(x).id()}, Shape{1, 1})};
       }},
      {Op::Where, chosen(Op::Where)},
      {Op::Rare, chosen(Op::Rare)},
      {Op::Cast, [](Expr x) { return cast(cast(x, DType::F32), DType::F64) + x; }},
  };
  return kRows;
}
}  // namespace

TEST_CASE("differentiate: every other differentiable operator and its derivative agree with differences", "[differentiate]") {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const OpKind kind = info(op).kind;
    const bool elementwise = is_elementwise(op), of_types = info(op).types == TypeRule::Choose || info(op).types == TypeRule::Convert;
    if (elementwise ? !of_types || (info(op).traits & kPartial)
                    : kind == OpKind::Source || kind == OpKind::Place || op == Op::Argsort || op == Op::Search || op == Op::Steps)
      continue;  // these operators consist of differentiated operators
    INFO("operator " << info(op).text);
    const auto row = structural().find(op);
    REQUIRE(row != structural().end());
    Numeric numeric(40);
    const Expr x = numeric.input({2, 3, 4});
    if (op == Op::Cast) {  // the rounding of a cast hides differences
      const Expr y = row->second(x), g = numeric.input({2, 3, 4});
      CHECK(values_of(numeric.graph, {vjp(y, g, {x})[0].id()}, numeric.inputs)[0][0] == Approx(2 * numeric.inputs[1][0]));
      continue;
    }
    const Expr y = row->second(x);
    numeric.check({(y * y).id()}, {x.id()}, 2);
  }
}

TEST_CASE("differentiate: windows of every step, width and spacing, which overlap, touch or leave elements out", "[differentiate]") {
  for (const std::int64_t step : {1, 2, 3, 5})
    for (const std::int64_t width : {1, 2, 3, 4})
      for (const std::int64_t spacing : {1, 2})
        for (const std::int64_t n : {7, 12}) {
          INFO("windows of " << width << " of " << n << ", step " << step << ", spacing " << spacing);
          const std::int64_t reach = (width - 1) * spacing + 1;
          if (reach > n) continue;
          Numeric numeric(60);
          const Expr x = numeric.input({2, n, 2});
          const Expr y = view(Op::Window, x, {2, width, (n - reach) / step + 1, 2}, {1, step, spacing});
          numeric.check({(y * y).id()}, {x.id()}, 2);
        }
}

TEST_CASE("differentiate: a product over axes, with any number of zeros", "[differentiate]") {
  for (const int zeros : {0, 1, 2, 3, 4}) {
    INFO(zeros << " zeros");
    Numeric numeric(50);
    Values values{2.0, -1.5, 0.5, 3.0};
    for (int k = 0; k < zeros; ++k) values[static_cast<std::size_t>((3 * k + 1) % 4)] = k % 2 ? -0.0 : 0.0;
    const Expr x = numeric.input({4}, values), y = view(Op::ReduceProd, x, {}, {0});
    numeric.check({y.id()}, {x.id()}, 2);
    const Expr g = numeric.input({}, {1.0});
    const Values d = values_of(numeric.graph, {vjp(y, g, {x})[0].id()}, numeric.inputs)[0];
    for (std::size_t i = 0; i < 4; ++i) {
      double others = 1;
      for (std::size_t k = 0; k < 4; ++k) others *= k == i ? 1 : values[k];
      CHECK(d[i] == others);
    }
  }
  Numeric numeric(51);
  const Expr x = numeric.input({2, 3, 2, 2});
  numeric.check({view(Op::ReduceProd, x, {3, 2}, {0, 2}).id()}, {x.id()}, 2);  // axes that are not adjacent
  numeric.check({view(Op::ReduceProd, view(Op::Slice, x, {2, 0, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1}), {2, 2, 2}, {1}).id()}, {x.id()}, 1);
}

TEST_CASE("differentiate: where and casts", "[differentiate]") {
  Numeric numeric(2);
  const Expr x = numeric.input({5}), y = numeric.input({5});
  numeric.check({where(x < y, x * y, exp(x)).id()}, {x.id(), y.id()}, 3);

  Make m;
  CHECK(m.gradient(where(m.y < 0.0, m.x, m.z), m.x) == "where(less(y, 0), g, 0)");
  CHECK(m.gradient(where(m.y < 0.0, m.x, m.z), m.z) == "where(less(y, 0), 0, g)");
  CHECK(m.gradient(where(m.y < 0.0, m.x, m.z), m.y) == "0");  // a condition has no derivative
  Make single;
  const Expr wide = cast(single.x, DType::F64);
  const Expr g64{single.graph, single.graph.add_input("g64", DType::F64, Shape{3, 4})};
  CHECK(node_text(single.graph, vjp(exp(wide), g64, {single.x})[0].id()) == "cast<f32>(mul0(g64, exp(cast<f64>(x))))");
  CHECK(single.gradient(cast(cast(single.x, DType::I32), DType::F32), single.x) == "0");
}

TEST_CASE("differentiate: derivatives of views are views, and of a broadcast one sum", "[differentiate]") {
  Numeric numeric(3);
  const Expr x = numeric.input({2, 3, 4});
  auto check = [&](Expr y) { numeric.check({(y * y).id()}, {x.id()}, 2); };
  SECTION("reshape") { check(view(Op::Reshape, x, {6, 1, 4})); }
  SECTION("permute") {
    check(view(Op::Permute, x, {4, 2, 3}, {2, 0, 1}));
    check(view(Op::Permute, x, {3, 4, 2}, {1, 2, 0}));
  }
  SECTION("slice, forwards, backwards, empty") {
    check(view(Op::Slice, x, {1, 3, 2}, {1, 0, 1, 1, 1, 2}));
    check(view(Op::Slice, x, {2, 2, 4}, {1, 2, 3, -1, -2, -1}));
    check(view(Op::Slice, x, {2, 0, 4}, {0, 0, 0, 1, 1, 1}));
  }
  SECTION("pad") {
    check(view(Op::Pad, x, {2, 7, 6}, {0, 1, 0, 1, 2, 1}));
    check(view(Op::Pad, x, {2, 3, 4}, {1, 0, 3, -1, 1, -1}));
  }
  SECTION("broadcast") {
    const Expr thin = view(Op::Slice, x, {1, 3, 1}, {1, 0, 2, 1, 1, 1});
    check(view(Op::Broadcast, thin, {5, 3, 6}));
    check(view(Op::Broadcast, view(Op::Reshape, x, {2, 3, 1, 4, 1}), {2, 3, 2, 4, 3}));
    check(view(Op::Broadcast, thin, {0, 3, 2}));  // over no elements: +0
  }
  SECTION("diagonal") {
    for (const std::int64_t offset : {-1, 0, 1, 2}) {
      const std::int64_t count = offset < 0 ? 2 : std::min<std::int64_t>(3, 4 - offset);
      check(view(Op::Diagonal, x, {2, count}, {offset, 1, 2}));
    }
    check(view(Op::Diagonal, x, {2, 3}, {0, 2, 1}));
    check(view(Op::Diagonal, x, {2, 2}, {1, 2, 1}));
    check(view(Op::Diagonal, x, {2, 1}, {-3, 2, 1}));
    check(view(Op::Diagonal, x, {3, 2}, {2, 0, 2}));
    check(view(Op::Diagonal, x, {3, 2}, {-1, 2, 0}));
    check(view(Op::Diagonal, x, {4, 2}, {0, 1, 0}));
    for (const std::int64_t outside :
         {std::int64_t{4}, std::int64_t{-3}, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})
      check(view(Op::Diagonal, x, {2, 0}, {outside, 1, 2}));
  }
}

TEST_CASE("differentiate: derivatives of views as text", "[differentiate]") {
  Make m(DType::F32, {4, 5});
  auto gradient = [&](Expr y) {
    const List shape = m.graph.list(y.shape());
    const Expr g{m.graph, m.graph.add_input("h", DType::F32, shape)};
    return node_text(m.graph, vjp(y, g, {m.x})[0].id());
  };
  CHECK(gradient(view(Op::Slice, m.x, {2, 3}, {3, 1, -2, 1})) == "pad[3,1,-2,1](h)");
  CHECK(gradient(view(Op::Pad, m.x, {9, 5}, {1, 0, 2, 1})) == "slice[1,0,2,1](h)");
  CHECK(gradient(view(Op::Reshape, m.x, {20})) == "reshape[4,5](h)");
  CHECK(gradient(view(Op::Permute, m.x, {5, 4}, {1, 0})) == "permute[1,0](h)");
  CHECK(gradient(view(Op::ReduceSum, m.x, {4}, {1})) == "broadcast[4,5](reshape[4,1](h))");
  // [1, 4, 1, 5] to [2, 4, 3, 5]: one sum over axes 0 and 2, both added and stretched
  CHECK(gradient(view(Op::Broadcast, view(Op::Reshape, m.x, {1, 4, 1, 5}), {2, 4, 3, 5})) ==
        "reshape[4,5](reshape[1,4,1,5](reduce_sum[0,2](h)))");
  CHECK(gradient(view(Op::Broadcast, view(Op::Reshape, m.x, {1, 4, 1, 5}), {1, 4, 3, 5})) ==
        "reshape[4,5](reshape[1,4,1,5](reduce_sum[2](h)))");

  SECTION("a diagonal's offset is a slot, since a call may change it") {
    const std::size_t slots = m.graph.slots.size();
    CHECK(gradient(view(Op::Diagonal, m.x, {4}, {1, 0, 1})) ==
          "where(equal(add(iota[0](), slot0), iota[1]()), broadcast[4,5](reshape[4,1](pad[0,1](h))), 0)");
    CHECK(m.graph.slots.size() == slots + 1);
    CHECK(m.graph.slots.back().bits == 1);
  }
  SECTION("256 slices make no array of zeros") {
    Make many(DType::F32, {256, 8});
    Expr sum;
    for (std::int64_t i = 0; i < 256; ++i) {
      const Expr row = view(Op::Slice, many.x, {1, 8}, {i, 0, 1, 1});
      sum = sum ? sum + row * row : row * row;
    }
    const Expr g{many.graph, many.graph.add_input("h", DType::F32, Shape{1, 8})};
    const NodeId before = many.graph.size();
    vjp(sum, g, {many.x});
    CHECK(many.graph.size() <= before + 4 * 256);
    for (NodeId id = before; id < many.graph.size(); ++id) CHECK(many.graph[id].op != Op::Constant);
  }
}

TEST_CASE("differentiate: reductions", "[differentiate]") {
  const Shape axes = GENERATE(Shape{0}, Shape{1}, Shape{2}, Shape{0, 2}, Shape{0, 1, 2}, Shape{});
  Numeric numeric(4);
  const Expr x = numeric.input({2, 3, 4});
  Shape kept;
  for (std::int64_t i = 0; i < 3; ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      kept.push_back(std::array<std::int64_t, 3>{2, 3, 4}[static_cast<std::size_t>(i)]);
  for (Op op : {Op::ReduceSum, Op::ReduceMax, Op::ReduceMin, Op::ReduceProd}) {
    const Expr y = view(op, x, kept, axes);
    numeric.check({(y * y).id()}, {x.id()}, 2);
  }
}

TEST_CASE("differentiate: max and min over an axis divide the cotangent equally among equal values", "[differentiate]") {
  auto shares = [](Op op, Values x) {
    Numeric numeric(5);
    const auto count = static_cast<std::int64_t>(x.size());
    const Expr input = numeric.input({count}, x), g = numeric.input({}, {6.0});
    return values_of(numeric.graph, {vjp(view(op, input, {}, {0}), g, {input})[0].id()}, numeric.inputs)[0];
  };
  CHECK(shares(Op::ReduceMax, {1, 3, 2, 3}) == Values{0, 3, 0, 3});
  CHECK(shares(Op::ReduceMin, {1, 3, 2, 3}) == Values{6, 0, 0, 0});
  CHECK(shares(Op::ReduceMax, {-1, 0.0, -0.0}) == Values{0, 3, 3});  // ±0 are equal
  CHECK(shares(Op::ReduceMin, {1, 0.0, -0.0}) == Values{0, 3, 3});
  CHECK(shares(Op::ReduceMax, {kNan, kInfinity, 2, kNan}) == Values{3, 0, 0, 3});
  CHECK(shares(Op::ReduceMin, {kInfinity, kNan, 2}) == Values{0, 6, 0});
  CHECK(shares(Op::ReduceMax, {-kInfinity, -kInfinity}) == Values{3, 3});
}

TEST_CASE("differentiate: a zero cotangent gives zero for any operands", "[differentiate]") {
  const Values special{0.0, -0.0, 1.0, -2.5, kInfinity, -kInfinity, kNan};
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (!is_plain_float_operator(op)) continue;
    const std::size_t arity = info(op).arity;
    for (std::size_t a = 0; a < special.size(); ++a)
      for (std::size_t b = 0; b < (arity > 1 ? special.size() : 1); ++b)
        for (std::size_t operand = 0; operand < arity; ++operand) {
          INFO(info(op).text << "(" << special[a] << ", " << special[b] << "), operand " << operand);
          Values x{special[a], special[b], special[(a + b) % special.size()]};
          x.resize(arity);
          CHECK(derivative(op, static_cast<int>(operand), 0.0, x) == 0);
          CHECK(derivative(op, static_cast<int>(operand), -0.0, x) == 0);
        }
  }
}

TEST_CASE("differentiate: special points", "[differentiate]") {
  SECTION("|x| and copysign at 0 give 0, and NaN of NaN") {
    for (Op op : {Op::Abs, Op::Copysign}) {
      CHECK(derivative(op, 0, 2.0, {0.0, 1.0}) == 0);
      CHECK(derivative(op, 0, 2.0, {-0.0, 1.0}) == 0);
      CHECK(is_nan(derivative(op, 0, 2.0, {kNan, 1.0})));
      CHECK(derivative(op, 0, 2.0, {-kInfinity, 1.0}) == -2);
    }
    CHECK(derivative(Op::Copysign, 0, 2.0, {-3.0, -0.0}) == 2);
  }
  SECTION("hypot and atan2 at 0 give 0, and do not leave the range elsewhere") {
    for (Op op : {Op::Hypot, Op::Atan2})
      for (int operand : {0, 1}) {
        CHECK(derivative(op, operand, 2.0, {0.0, 0.0}) == 0);
        CHECK(derivative(op, operand, 2.0, {-0.0, 0.0}) == 0);
      }
    CHECK(derivative(Op::Hypot, 0, 2.0, {3e200, 4e200}) == Approx(1.2));
    CHECK(derivative(Op::Atan2, 0, 2.0, {3e200, 4e200}) == Approx(3.2e-201));
    CHECK(derivative(Op::Atan2, 1, 2.0, {3e-200, 4e-200}) == Approx(-2.4e199));
  }
  SECTION("pow: the base's derivative is 0 where b = 0, the exponent's where a = 0 and b >= 0") {
    for (double a : {0.0, -0.0, -2.0, kInfinity, kNan}) CHECK(derivative(Op::Pow, 0, 2.0, {a, 0.0}) == 0);
    CHECK(derivative(Op::Pow, 0, 2.0, {0.0, 1.0}) == 2);
    CHECK(derivative(Op::Pow, 0, 2.0, {0.0, 2.0}) == 0);
    CHECK(derivative(Op::Pow, 0, 2.0, {0.0, 0.5}) == kInfinity);
    CHECK(derivative(Op::Pow, 0, 2.0, {-3.0, 2.0}) == -12);
    CHECK(derivative(Op::Pow, 1, 2.0, {0.0, 0.0}) == 0);
    CHECK(derivative(Op::Pow, 1, 2.0, {-0.0, 3.0}) == 0);
    CHECK(derivative(Op::Pow, 1, 2.0, {0.0, -1.0}) == -kInfinity);
    CHECK(is_nan(derivative(Op::Pow, 1, 2.0, {-2.0, 2.0})));
  }
  SECTION("fmod: the quotient, rounded toward zero, to the divisor") {
    CHECK(derivative(Op::Fmod, 0, 2.0, {7.5, -2.0}) == 2);
    CHECK(derivative(Op::Fmod, 1, 2.0, {7.5, -2.0}) == 6);
    CHECK(derivative(Op::Fmod, 1, 2.0, {-7.5, -2.0}) == -6);
  }
  SECTION("logaddexp shares where its operands are equal, infinite ones too") {
    CHECK(derivative(Op::Logaddexp, 0, 2.0, {1.0, 1.0}) == 1);
    CHECK(derivative(Op::Logaddexp, 0, 2.0, {kInfinity, kInfinity}) == 1);
    CHECK(derivative(Op::Logaddexp, 1, 2.0, {800.0, -800.0}) == 0);
  }
  SECTION("maximum and minimum: half each at a tie; a NaN takes the cotangent, two share it") {
    for (Op op : {Op::Maximum, Op::Minimum})
      for (int operand : {0, 1}) {
        CHECK(derivative(op, operand, 2.0, {3.0, 3.0}) == 1);
        CHECK(derivative(op, operand, 2.0, {0.0, -0.0}) == 1);
        CHECK(derivative(op, operand, 2.0, {kInfinity, kInfinity}) == 1);
        CHECK(derivative(op, operand, 2.0, {kNan, kNan}) == 1);
        CHECK(derivative(op, operand, 2.0, {kNan, 1.0}) == (operand == 0 ? 2 : 0));
        CHECK(derivative(op, operand, 2.0, {1.0, kNan}) == (operand == 1 ? 2 : 0));
        CHECK(derivative(op, operand, 2.0, {1.0, 5.0}) == ((op == Op::Maximum) == (operand == 1) ? 2 : 0));
      }
  }
  SECTION("sqrt at 0 gives inf, at either zero") {
    CHECK(derivative(Op::Sqrt, 0, 2.0, {0.0}) == kInfinity);
    CHECK(derivative(Op::Sqrt, 0, 2.0, {-0.0}) == kInfinity);
    CHECK(is_nan(derivative(Op::Sqrt, 0, 2.0, {-1.0})));
  }
  SECTION("a constant of a rule has all its digits") { CHECK(derivative(Op::Erf, 0, 1.0, {0.0}) == 1.1283791670955126); }
  SECTION("mul0: zero cotangents are +0, and its own derivatives") {
    CHECK_FALSE(std::signbit(derivative(Op::Mul, 0, -0.0, {1.0, 3.0})));
    CHECK_FALSE(std::signbit(derivative(Op::Reciprocal, 0, 0.0, {2.0})));
    CHECK_FALSE(std::signbit(derivative(Op::Div, 1, 0.0, {2.0, 3.0})));
    CHECK(derivative(Op::Mul0, 0, 2.0, {0.0, kInfinity}) == kInfinity);  // h·d
    CHECK(derivative(Op::Mul0, 0, 2.0, {5.0, 3.0}) == 6);
    CHECK(derivative(Op::Mul0, 1, 2.0, {5.0, kNan}) == 10);
    for (const double zero : {0.0, -0.0}) {
      CHECK(derivative(Op::Mul0, 1, kInfinity, {zero, 3.0}) == 0);
      CHECK_FALSE(std::signbit(derivative(Op::Mul0, 1, 2.0, {zero, 3.0})));
      CHECK_FALSE(std::signbit(derivative(Op::Mul0, 1, -2.0, {zero, 3.0})));
    }
  }
  SECTION("where makes no NaN of the branch not taken") {
    Numeric numeric(6);
    const Expr x = numeric.input({4}, {-1.0, 0.0, 4.0, -kInfinity}), g = numeric.input({4}, {1, 1, 1, 1});
    const Expr y = where(x > 0.0, sqrt(x) + log(x) + 1.0 / x, 0.0);
    CHECK(values_of(numeric.graph, {vjp(y, g, {x})[0].id()}, numeric.inputs)[0] == Values{0, 0, 0.25 + 0.25 - 0.0625, 0});
  }
  SECTION("relu at 0 is 0, and NaN stays") {
    Numeric numeric(7);
    const Expr x = numeric.input({3}, {0.0, 2.0, kNan}), g = numeric.input({3}, {5, 5, 5});
    CHECK(values_of(numeric.graph, {vjp(where(x <= 0.0, 0.0, x), g, {x})[0].id()}, numeric.inputs)[0] == Values{0, 5, 5});
  }
}

TEST_CASE("differentiate: without a derivative the result is a constant zero of x's shape", "[differentiate]") {
  Make m(DType::F64, {3, 4});
  for (const Expr y : {m.y * m.z, apply(Op::Floor, {m.x}), apply(Op::Ceil, {m.x}), apply(Op::Trunc, {m.x}), round(m.x),
                       apply(Op::Sign, {m.x}), floor_div(m.x, m.y), where(m.x > 0.0, m.y, m.z), exp(apply(Op::StopGradient, {m.x}))}) {
    const Expr d = vjp(y, m.g, {m.x})[0];
    CHECK(node_text(m.graph, d.id()) == "0");
    CHECK(d.dtype() == DType::F64);
    CHECK(d.shape() == m.x.shape());
  }
  CHECK(node_text(m.graph, vjp(m.x, m.g, {m.x})[0].id()) == "g");
  CHECK(differentiate(m.graph, {}, {}, std::vector{m.x.id()}).size() == 1);
  CHECK(differentiate(m.graph, std::vector{m.x.id()}, std::vector{m.g.id()}, {}).empty());
}

TEST_CASE("differentiate: cotangents are added in order of use, the last node and operand first", "[differentiate]") {
  Make m;
  const Expr x = m.x, y = m.y, z = m.z;
  SECTION("the node that stands last first") {
    const Expr early = x * y, middle = exp(x), late = x * z;
    CHECK(m.gradient((early + middle) + late, x) == "add(add(mul0(g, z), mul0(g, exp(x))), mul0(g, y))");
  }
  SECTION("where it was first recorded counts, not where it is used") {
    const Expr late_in_sum = x * z, early_in_sum = x * y;
    CHECK(m.gradient(early_in_sum + late_in_sum, x) == "add(mul0(g, y), mul0(g, z))");
  }
  SECTION("the last operand first") {
    CHECK(m.gradient(x - x, x) == "add(neg(g), g)");
    CHECK(m.gradient(x / x, x) == "add(mul0(g, neg(div(div(x, x), x))), mul0(g, reciprocal(x)))");
    CHECK(m.gradient(fma(x, y, x), x) == "add(g, mul0(g, y))");
    CHECK(m.gradient(where(y < 0.0, x, x), x) == "add(where(less(y, 0), 0, g), where(less(y, 0), g, 0))");
  }
  SECTION("outputs come before every node, the last output first") {
    const Expr e = exp(x), h{m.graph, m.graph.add_input("h", DType::F32, Shape{3, 4})};
    const auto d =
        differentiate(m.graph, std::vector{x.id(), e.id(), x.id()}, std::vector{m.g.id(), h.id(), m.z.id()}, std::vector{x.id()});
    CHECK(node_text(m.graph, d[0]) == "add(add(z, g), mul0(h, exp(x)))");
  }
  SECTION("a value on the way is an x as well") {
    const Expr e = exp(x), loss = e * y;
    const std::vector<Expr> d = vjp(loss, m.g, {x, e, y});
    CHECK(node_text(m.graph, d[0].id()) == "mul0(mul0(g, y), exp(x))");
    CHECK(node_text(m.graph, d[1].id()) == "mul0(g, y)");
    CHECK(node_text(m.graph, d[2].id()) == "mul0(g, exp(x))");
  }
}

TEST_CASE("differentiate: nodes that depend on no x get no derivative", "[differentiate]") {
  Make m;
  const Expr y = exp(m.y * m.z) * m.x;
  const NodeId before = m.graph.size();
  vjp(y, m.g, {m.x});
  CHECK(m.graph.size() == before + 1);  // only mul0(g, exp(...))
}

TEST_CASE("differentiate: halves are computed in f32, and only a cast rounds", "[differentiate]") {
  const DType dtype = GENERATE(DType::F16, DType::BF16);
  Make m(dtype);
  const Expr d = vjp(exp(m.x) * m.x, m.g, {m.x})[0];
  CHECK(d.dtype() == dtype);
  CHECK(node_text(m.graph, d.id()) == "add(mul0(g, exp(x)), mul0(mul0(g, x), exp(x)))");
}

TEST_CASE("differentiate: an adjoint has the source line of its forward node", "[differentiate]") {
  Make m;
  m.graph.sources = {"", "a.fuse:1", "a.fuse:2"};
  m.graph.current_source = 1;
  const Expr y = exp(m.x);
  m.graph.current_source = 2;
  const Expr d = vjp(y, m.g, {m.x})[0];
  CHECK(m.graph.source_of[d.id()] == 1);
  CHECK(m.graph.current_source == 2);
}

TEST_CASE("differentiate: errors are one line", "[differentiate]") {
  Graph graph;
  const NodeId k = graph.add_input("k", DType::I64, Shape{3}), x = graph.add_input("x", DType::F32, Shape{3});
  const std::vector<std::string> names{"x", "k"};
  CHECK_THROWS_AS(differentiate(graph, std::vector{x}, std::vector{x}, std::vector{k}), DTypeError);
  CHECK_THROWS_WITH(differentiate(graph, std::vector{x}, std::vector{x}, std::vector{x, k}, names),
                    "grad: k is i64[3]; integers and bool have no derivative. Cast it to a float type first and differentiate with respect "
                    "to the result");
  CHECK_THROWS_WITH(differentiate(graph, std::vector{x}, std::vector{x}, std::vector{x, k}), Catch::Contains("value 2 is i64[3]"));
  CHECK_THROWS_WITH(differentiate(graph, std::vector{k}, std::vector{k}, std::vector{x}),
                    "grad: the value to differentiate is i64[3]; integers and bool have no derivative");
  const NodeId g = graph.add_input("g", DType::F32, Shape{1, 3}), wide = graph.add_input("wide", DType::F64, Shape{3});
  CHECK_THROWS_AS(differentiate(graph, std::vector{x}, std::vector{g}, std::vector{x}), ShapeError);
  CHECK_THROWS_WITH(differentiate(graph, std::vector{x}, std::vector{wide}, std::vector{x}),
                    "vjp: the cotangent is f64[3], but the value is f32[3]; the types and shapes must be equal");
}

TEST_CASE("differentiate: time and nodes are linear", "[differentiate]") {
  auto seconds = [](int length) {
    double best = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      Make m;
      Expr e = m.x;
      for (int i = 0; i < length; i += 2) e = maximum(e, m.y) * m.x;
      const NodeId before = m.graph.size();
      const std::clock_t start = std::clock();  // CPU time of this process, without other programs
      vjp(e, m.g, {m.x});
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
      CHECK(m.graph.size() < 12 * before);
    }
    return best;
  };
  const double small = seconds(4'000), large = seconds(64'000);
  CHECK(large < 80 * small + 0.01);  // 16 times the nodes and some cache misses; quadratic time would be 256 times
}
