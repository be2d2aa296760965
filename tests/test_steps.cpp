// Steps: long unrolled recurrences become one node each, with equal bits in every mode. The node is printed, parsed, verified and evaluated
// by its definition.
#include <catch2/catch.hpp>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/find_steps.h"
#include "compiler/record.h"
#include "compiler/simplify.h"
#include "compiler/state_loop.h"
#include "compiler/step_body.h"
#include "every_mode.h"
#include "has_codegen.h"
#include "ir/reference.h"
#include "ir/steps.h"
#include "ir/verify.h"
#include "onepass/onepass.h"
#include "random_graph.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array, op::DType, op::Tensor;
namespace ir = op::ir;

namespace {

op::Options with(op::Mode mode) {
  op::Options options;
  options.mode = mode;
  return options;
}

// Checks that every result of the function in the fused modes has the bits of mode reference, which runs operators one by one: in the first
// tier, and in optimized code. Returns the kernels of the fused function.
template <class F, class... Arrays> std::int64_t check(F f, const Arrays&... arrays) {
  const auto bytes = [](const auto& results) {
    return std::apply([](const auto&... each) { return std::vector{bytes_of(each)...}; }, results);
  };
  const auto expected = bytes(op::compile(f, with(op::Mode::reference))(arrays...));
  std::int64_t kernels = 0;
  for (const op::Mode mode : {op::Mode::generic, op::Mode::specialized})
    for (const int threads : {1, 3}) {
      if (threads > 1 && mode != op::Mode::generic) continue;
      op::Options options = with(mode);
      options.threads = threads;
      auto compiled = op::compile(f, options);
      for (int call = 0; call < 2; ++call) {
        INFO("mode " << static_cast<int>(mode) << ", threads " << threads << ", call " << call);
        CHECK(bytes(compiled(arrays...)) == expected);
      }
      if (mode == op::Mode::generic && threads == 1) {
        const std::string signature = compiled.signatures().at(0);
        compiled.warm_up({signature});
        CHECK(bytes(compiled(arrays...)) == expected);
        const std::string text = compiled.explain();
        CHECK((text.find("steps, loops") == std::string::npos || text.find("; optimized") != std::string::npos));
      }
      kernels = static_cast<std::int64_t>(compiled.last_execution().kernels.size());
    }
  return kernels;
}

op::compiler::Value at(op::compiler::Recorder& r, op::compiler::Value x, std::int64_t t) {
  op::compiler::Index index;
  index.at = t;
  return r.index(x, std::array{index});
}

}  // namespace

TEST_CASE("steps: a likelihood and its gradient have few kernels", "[steps]") {
  const auto garch = [](Tensor r, Tensor p) {
    const auto [last, terms] = op::scan(
        [&](Tensor h, Tensor x) {
          const Tensor next = p[0] + p[1] * (x * x) + p[2] * h;
          return std::pair{next, log(next) + x * x / next};
        },
        1.0, r);
    const Tensor value = sum(terms);
    const auto [dr, dp] = grad(value, r, p);
    return std::tuple{value, last, dr, dp};
  };
  CHECK(check(garch, random_array({1100}, op::f64), Array::from(std::vector<double>{0.1, 0.2, 0.7}, {3})) < 30);
}

TEST_CASE("steps: states with many elements, several types, literals, reads of earlier steps, and reverse order", "[steps]") {
  const std::pair<DType, std::int64_t> cases[] = {{op::f32, 1}, {op::f32, 5}, {op::f32, 70}, {op::f16, 1}, {op::bf16, 70}};
  for (const auto& [type, elements] : cases) {
    const Array x = random_array({600, elements}, type), start = random_array({elements}, type, 2), w = random_array({600}, type, 3);
    const auto f = [&](Tensor x, Tensor start, Tensor w) {
      const auto step = [&](std::array<Tensor, 4> s, std::pair<Tensor, Tensor> e) {
        const auto [a, before, count, up] = s;
        const auto [x, w] = e;
        const Tensor next = a * 0.75 - before * 0.25 + x * w + cast(where(up, 0.125, -0.125), type);
        const Tensor bits = bitcast(next * 0.5, type == op::f32 ? op::i32 : op::i16);
        return std::pair{std::array{next, a, count + cast(next > a, op::i32), next > a},
                         next * cast(count, type) + cast(bits & 7, type) - bitcast(bits, type)};
      };
      const auto [last, all] =
          op::scan(step, std::array{start, start, op::zeros(start.shape(), op::i32), start > 0}, std::pair{x, w}, true);
      return std::tuple{last[0], last[2], last[3], all};
    };
    INFO(elements << " elements, type " << static_cast<int>(type));
    CHECK(check(f, x, start, w) < 14);
  }
}

TEST_CASE("steps: a loop of the host language, and one whose elements end separately", "[steps]") {
  const auto by_hand = [](Tensor x) {
    Tensor a = x, b = x * 0.5;
    for (int i = 0; i < 600; ++i) {
      const Tensor next = a - 0.001 * b * a + 0.01;
      b = b + 0.001 * (a - b) * next;
      a = next;
    }
    return std::tuple{a, b};
  };
  for (const DType type : {op::f64, op::bf16}) CHECK(check(by_hand, random_array({9, 11}, type)) <= 5);
  const auto mandelbrot = [](Tensor re, Tensor im) {
    const Tensor zero = op::zeros(re.shape(), op::f64);
    const auto z = op::while_loop([](std::array<Tensor, 3> z) { return z[0] * z[0] + z[1] * z[1] <= 4; },
                                  [&](std::array<Tensor, 3> z) {
                                    return std::array{z[0] * z[0] - z[1] * z[1] + re, 2 * z[0] * z[1] + im, z[2] + 1};
                                  },
                                  std::array{zero, zero, op::zeros(re.shape(), op::i32)}, 500);
    return std::tuple{z[0], z[2]};
  };
  CHECK(check(mandelbrot, random_array({7, 13}, op::f64), random_array({7, 13}, op::f64, 2)) <= 3);
}

TEST_CASE("steps: a while loop ends when no element goes on", "[steps]") {
  // A loop that does not end early would run for years.
  const auto doubled = [](Tensor x) {
    return op::while_loop([](std::array<Tensor, 2> y) { return y[0] < 1000; },
                          [](std::array<Tensor, 2> y) {
                            return std::array{y[0] * 2, y[1] + 1};
                          },
                          std::array{x, op::zeros(x.shape(), op::i16)}, 1'000'000'000'000);
  };
  for (const std::int64_t n : {1, 7, 100, 3000})
    for (const op::Mode mode : {op::Mode::generic, op::Mode::specialized}) {
      const Array x = Array::empty({n}, op::f64);
      for (std::int64_t i = 0; i < n; ++i)
        x.span<double>()[static_cast<std::size_t>(i)] = i % 5 == 4 ? 2000 : static_cast<double>(i % 700 + 1);
      const auto f = op::compile(doubled, {.mode = mode});
      const std::array<Array, 2> first = f(x);
      op::wait_until_optimized();
      const std::array<Array, 2> later = f(x);
      bool right = true;
      for (std::int64_t i = 0; i < n; ++i) {
        double value = x.at<double>({i});
        std::int16_t steps = 0;
        for (; value < 1000; value *= 2) ++steps;
        for (const std::array<Array, 2>& y : {first, later})
          right = right && y[0].at<double>({i}) == value && y[1].at<std::int16_t>({i}) == steps;
      }
      INFO(n << " elements");
      CHECK(right);
    }
  // Two states: the flag and a value, which changes only while the flag is true. Values 2 and 3 are the lines.
  ir::Steps s;
  s.count = 5, s.states = 2, s.captures = 1;
  s.lines = {{ir::Op::BitwiseAnd, DType::Bool, 0, {0, 2, ir::StepLine::kNone}}, {ir::Op::Where, DType::F32, 0, {3, 2, 1}}};
  s.next = {3, 4};
  CHECK(ir::going_state(s, std::array{0u, 1u}) == 0);
  s.results = {1};
  CHECK(!ir::going_state(s, std::array{0u, 2u}));  // the state before each step
  s.lines[1].operands = {3, 1, 2};                 // changes while the flag is false
  CHECK(!ir::going_state(s, std::array{0u, 1u}));
  s.lines[1].operands = {3, 2, 1};
  s.lines[0].op = ir::Op::BitwiseOr;  // may become true again
  CHECK(!ir::going_state(s, std::array{0u, 1u}));
}

TEST_CASE("steps: numbers of a call, and strided arrays", "[steps]") {
  op::Options options;
  auto f = op::compile(
      [](Tensor x, Tensor k) {
        const auto [last, all] = op::scan(
            [&](Tensor s, Tensor x) {
              const Tensor next = s * k + x * 0.5;
              return std::pair{next, next};
            },
            0 * x[0], x);
        return std::pair{last, all};
      },
      options);
  const Array x = random_array({6, 2000}, op::f64).transpose();
  for (const double k : {0.5, -0.25, 0.5}) {
    const auto [last, all] = f(x, k);
    std::vector<double> s(6, 0), expected;
    for (std::int64_t t = 0; t < 2000; ++t)
      for (std::int64_t j = 0; j < 6; ++j)
        expected.push_back(s[static_cast<std::size_t>(j)] = s[static_cast<std::size_t>(j)] * k + x.at<double>({t, j}) * 0.5);
    CHECK(all.to_vector<double>() == expected);
    CHECK(last.to_vector<double>() == s);
  }
}

TEST_CASE("steps: the first call runs in tiles: one element, many elements, narrow integers, states that change places", "[steps]") {
  for (const DType type : {op::f32, op::i16, op::boolean})
    for (const std::int64_t n : {1, 3, 5000}) {
      const auto f = [&](Tensor x, Tensor a, Tensor b, Tensor c) {
        const auto step = [&](std::array<Tensor, 3> s, Tensor e) {
          const auto [a, b, c] = s;
          const Tensor next = type == op::boolean ? (a & e) | !b : where(e > a, a + e, b - 1);
          return std::pair{std::array{b, c, next}, where(a == b, e, next)};
        };
        const auto [last, all] = op::scan(step, std::array{a, b, c}, x);
        return std::tuple{last[0], last[2], all};
      };
      const Array x = random_array({80, n}, type), a = random_array({n}, type, 2), b = random_array({n}, type, 3),
                  c = random_array({n}, type, 4);
      INFO("type " << static_cast<int>(type) << ", " << n << " elements");
      const auto compiled = op::compile(f);
      static_cast<void>(compiled(x, a, b, c));
      CHECK(compiled.explain().find("steps, loops 80 x") != std::string::npos);
      CHECK(compiled.explain().find("baseline code") == std::string::npos);
      check(f, x, a, b, c);
    }
}

TEST_CASE("steps: arrays are read through views, without copies", "[steps]") {
  const auto step = [](Tensor h, std::array<Tensor, 3> e, Tensor p) {
    const Tensor next = tanh(h * p + e[0] * e[1] - e[2]);
    return std::pair{next, next * e[0]};
  };
  const auto f = [&](Tensor x, Tensor w, Tensor p, Tensor y) {
    const op::Range back{.step = -1};
    const auto [last, all] = op::scan([&](Tensor h, std::array<Tensor, 3> e) { return step(h, e, p[2]); }, y[0],
                                      std::array{x[back], w[op::Range{3, 1203, 2}], exp(x)[back] * 0.5}, true);
    const auto [dx, dw, dp, dy] = grad(sum(all * all) + sum(last), x, w, p, y);
    return std::tuple{last, all, dx, dw, dp, dy};
  };
  // no kernel but that of the steps
  const auto plain = [&](Tensor x, Tensor w, Tensor p, Tensor y) {
    const op::Range back{.step = -1};
    const Tensor last = op::fold([&](Tensor h, std::array<Tensor, 3> e) { return step(h, e, p[2]).first; }, y[1],
                                 std::array{x[back], w[op::Range{0, 600}], x[op::Range{0, 600}]});
    return std::tuple{last};
  };
  for (const DType type : {op::f64, op::f16})
    for (const bool strided : {false, true}) {
      const std::int64_t n = 5;
      const Array x = strided ? random_array({n, 600}, type).transpose() : random_array({600, n}, type);
      const Array w = strided ? random_array({2420}, type, 2).slice(0, 0, 2420, 2) : random_array({1210}, type, 2);
      const Array p = random_array({4}, type, 3), y = random_array({2, n}, type, 4);
      INFO("type " << static_cast<int>(type) << ", strided " << strided);
      check(f, x, w, p, y);
      const std::int64_t kernels = check(plain, x, w, p, y);
      if (type == op::f64) CHECK(kernels == 1);
    }
}

TEST_CASE("steps: values that only the loop reads are computed in its steps", "[steps]") {
  const auto fold = [](const Tensor& start, const Tensor& all) {
    return op::fold([](Tensor h, Tensor e) { return tanh(h * 0.5 + e); }, start, all);
  };
  for (const DType type : {op::f32, op::f16}) {
    const Array x = random_array({70, 600}, type), y = random_array({70, 600}, type, 2), a = random_array({600}, type, 3),
                w = random_array({70, 1}, type, 4), start = random_array({600}, type, 5);
    INFO("type " << static_cast<int>(type));
    const auto alone = [&](Tensor x, Tensor y, Tensor a, Tensor w, Tensor start) {
      const Tensor all = where(x > 0, (x - y) * w + a, 0.25 * w);
      return std::tuple{fold(start, all), fold(start, exp(x[op::Range{1, 69}]) * 2.0)};
    };
    CHECK(check(alone, x, y, a, w, start) <= (type == op::f32 ? 4 : 5));  // the loops, 0.25 * w, and a kernel of numbers
    // A few rows, and sums of cheap values, are computed again.
    const auto again = [&](Tensor x, Tensor y, Tensor start) {
      const Tensor d = x - y, all = exp(x) * y;
      return std::tuple{fold(start, d), sum(d * d), fold(start + all[69], all[op::Range{0, 69}])};
    };
    const std::int64_t kernels = check(again, x, y, start);
    if (type == op::f32) CHECK(kernels == 5);  // with a kernel of numbers
    // What is stored anyway, or takes long and has other readers, is read.
    const auto stored = [&](Tensor x, Tensor y, Tensor start) {
      const Tensor out = x * y, costly = exp(x);
      return std::tuple{fold(start, out), out, fold(start, costly), sum(costly)};
    };
    check(stored, x, y, start);
    // All steps of the states, and the gradient of a sum over them.
    const auto path = [&](Tensor start, Tensor y) {
      const Tensor states = op::scan([](Tensor h, Tensor) { return std::pair{sin(h) + 0.1 * h, sin(h)}; }, start, y).second;
      const Tensor value = sum((states - y) * (states - y));
      return std::tuple{value, grad(value, start)};
    };
    check(path, start, y);
  }
}

TEST_CASE("steps: other code stays unrolled", "[steps]") {
  op::compiler::Recorder r;
  const auto x = r.input("x", op::f64, std::array<std::int64_t, 1>{5000});
  auto sum = at(r, x, 0);
  for (std::int64_t t = 1; t < 5000; ++t) sum = r.elementwise(ir::Op::Add, {sum, at(r, x, t)});
  r.output("sum", sum);
  CHECK_FALSE(op::compiler::find_steps(ir::prune(op::compiler::simplify(ir::prune(r.graph)))));
}

TEST_CASE("steps: the node equals the unrolled code, prints, parses and is verified", "[steps]") {
  op::compiler::Recorder r;
  const auto x = r.input("x", op::f64, std::array<std::int64_t, 2>{1500, 3}), w = r.input("w", op::f64, std::array<std::int64_t, 1>{3});
  op::compiler::Value s = r.input("s", op::f64, std::array<std::int64_t, 1>{3});
  std::vector<op::compiler::Value> all;
  for (std::int64_t t = 0; t < 1500; ++t) {
    const op::compiler::Value x_t = at(r, x, t);
    s = r.elementwise(ir::Op::Sub,
                      {r.elementwise(ir::Op::Mul, {s, w}), r.elementwise(ir::Op::Exp, {r.elementwise(ir::Op::Mul, {x_t, s})})});
    all.push_back(s);
  }
  r.output("all", r.stack(all, 0));
  r.output("last", s);
  const ir::Graph written = ir::prune(op::compiler::simplify(ir::prune(r.graph)));
  const std::optional<ir::Graph> found = op::compiler::find_steps(written);
  REQUIRE(found);
  ir::verify(*found, "steps");
  const ir::Graph graph = ir::prune(*found);
  ir::NodeId node = ir::kNoNode;
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == ir::Op::Steps) node = id;
  REQUIRE(node != ir::kNoNode);
  CHECK(ir::print(ir::parse_graph(ir::print(graph))) == ir::print(graph));
  // the reference, for the node and for the unrolled operators
  std::vector<Array> inputs = {random_array({1500, 3}, op::f64), random_array({3}, op::f64, 2), random_array({3}, op::f64, 3)};
  std::vector<ir::ArrayView> views;
  for (const Array& a : inputs) views.push_back({op::f64, a.data(), {a.shape().begin(), a.shape().end()}});
  const std::vector<ir::Buffer> expected = ir::evaluate(written, views), got = ir::evaluate(graph, views);
  REQUIRE(got.size() == expected.size());
  for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k].bytes == expected[k].bytes);
  // any other number in the attributes makes another node or an invalid node
  const ir::Steps steps = ir::steps_of(graph, node);
  const auto broken = [&](const auto& change) {
    ir::Graph other = graph;
    std::vector<std::int64_t> attributes(graph.attributes(node).begin(), graph.attributes(node).end());
    change(attributes);
    ir::Node changed = graph[node];
    changed.attributes = other.intern(attributes);
    return ir::broken_steps(other, other.add(changed));
  };
  CHECK(broken([](auto&) {}) == "");
  CHECK(broken([](auto& a) { a[0] = 100; }) != "");                                      // a result that does not exist
  CHECK(broken([](auto& a) { a[1] = 7; }) != "");                                        // arrays of another number of steps
  CHECK(broken([](auto& a) { a[2] = 0; }) != "");                                        // no state
  CHECK(broken([](auto& a) { a[4] += 1; }) != "");                                       // numbers are missing
  CHECK(broken([](auto& a) { a[6] = static_cast<std::int64_t>(ir::Op::Sort); }) != "");  // a line that is not elementwise
  CHECK(broken([](auto& a) { a[7] = static_cast<std::int64_t>(op::i32); }) != "");       // a line of another type
  CHECK(broken([&](auto& a) { a[9] = steps.operands(); }) != "");                        // a line that reads itself
  CHECK(broken([&](auto& a) { a[a.size() - 1] = steps.values(); }) != "");               // a result that is not a value
}

// Written out, each kernel that reads a state computed all earlier steps again: 20 seconds of compile for 100 steps.
TEST_CASE("steps: short recurrences whose states are read step by step, and their derivatives", "[steps]") {
  const std::string ema = "fn step(s, v) { n = 0.875*s + 0.125*v; return n, n }\nlast, all = scan(step, x[0], x)\n",
                    worst = "fn step(s, v) { n = maximum(s*0.75, v); return n, n }\nlast, all = scan(step, x[0], x)\n";
  for (const std::int64_t n : {15, 16, 17, 40, 100})
    for (const std::vector<std::int64_t>& rest : {std::vector<std::int64_t>{}, {3}, {70}}) {
      if (n % 8 != 0 && rest.size() > 0) continue;
      std::vector<std::int64_t> shape = {n};
      shape.insert(shape.end(), rest.begin(), rest.end());
      const NamedArrays inputs{{"x", random_array(shape)}};
      for (const std::string& text :
           {ema + "y = all*2 + x", ema + "l = sum(tanh(all)*x); g = grad(l, [x])",
            ema + "d = all[:-1] - x[1:]; l = sum(d*d); g = grad(l, [x])", worst + "l = sum(sin(all)); g = grad(l, [x])"}) {
        INFO(text << ", " << n << " steps");
        same_everywhere(text, inputs);
        CHECK(kernels(text, inputs) <= (n > 16 ? 16 : 2 * n));
      }
    }
}

TEST_CASE("steps: a recorded loop is written out for targets without kernels for steps", "[steps]") {
  op::compiler::Recorder r;
  const auto in = [&](const char* name, std::initializer_list<std::int64_t> shape) { return r.input(name, op::f64, shape); };
  const op::compiler::Value h = in("h", {3}), w = in("w", {3}), x = in("x", {70, 3});
  op::compiler::StateLoop loop(r, op::compiler::StateLoop::Kind::Scan, {h});
  loop.over(std::array{x}, true);
  int steps = 0;
  for (; loop.next(); ++steps) {
    const op::compiler::Value next = r.elementwise(ir::Op::Tanh, {r.add(r.mul(loop.state()[0], w), loop.element()[0])});
    loop.step(std::array{next}, std::array{r.mul(next, next)});
  }
  CHECK(steps == 3);
  const op::compiler::Value ys = loop.results()[0];
  r.output("h", loop.state()[0]);
  r.output("ys", ys);
  const auto count = [](const ir::Graph& graph) {
    int n = 0;
    for (ir::NodeId id = 0; id < graph.size(); ++id) n += graph[id].op == ir::Op::Steps;
    return n;
  };
  const ir::Graph recorded = ir::prune(r.graph), written = op::compiler::write_out_steps(recorded, 1000);
  CHECK(count(recorded) == 2);
  CHECK(count(written) == 0);
  ir::verify(written, "write out steps");
  const Arguments arguments = random_arguments(recorded, 7);
  std::string what;
  CHECK(equals_bitwise(ir::evaluate(written, arguments.views), ir::evaluate(recorded, arguments.views), &what));
  CHECK(what.empty());
  CHECK_THROWS_AS(op::compiler::write_out_steps(recorded, 100), op::UnsupportedError);
}
