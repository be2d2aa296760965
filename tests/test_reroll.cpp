// reroll: unrolled loops become one nest with equal bits; other code is unchanged; time is linear in the number of copies.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>

#include <fmt/format.h>

#include "compiler/fuse.h"
#include "compiler/lists.h"
#include "compiler/record.h"
#include "compiler/reroll.h"
#include "compiler/simplify.h"
#include "has_codegen.h"
#include "ir/verify.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::compiler;
using namespace onepass::test;

namespace {

using Body = std::function<void(Recorder&)>;

Value input(Recorder& r, const char* name, Shape shape, DType dtype = f32) { return r.input(name, dtype, shape); }
Value at(Recorder& r, Value x, std::int64_t t) {
  compiler::Index i;
  i.at = t;
  return r.index(x, std::array{i});
}
Value window(Recorder& r, Value x, std::int64_t from, std::int64_t to, std::int64_t step = 1) {
  compiler::Index i;
  i.kind = compiler::Index::Kind::Slice;
  i.start = from, i.stop = to, i.step = step;
  return r.index(x, std::array{i});
}
Value sum(Recorder& r, Value x, std::int64_t axis) { return r.reduce(Op::ReduceSum, "sum", x, std::vector{axis}, false); }

struct Graphs {
  ir::Graph simplified, rerolled;
  double milliseconds;  // time of the pass
};
Graphs graphs_of(const Body& body) {
  Recorder r;
  body(r);
  Graphs out;
  out.simplified = ir::prune(simplify(ir::prune(r.graph)));
  const std::clock_t start = std::clock();  // CPU time of this process
  ir::Graph graph = reroll(out.simplified).value_or(out.simplified);
  out.milliseconds = 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ir::verify(graph, "reroll");
  CHECK(ir::print(ir::prune(simplify(graph))) == ir::print(graph));
  out.rerolled = std::move(graph);
  return out;
}

std::size_t groups_of(const ir::Graph& graph) {
  const std::vector<Layout> layouts(graph.size());
  return fuse(graph, {.lists = find_lists(graph, layouts)}).groups.size();
}

// Checks for equal bits with and without reroll, in the reference and in kernels.
Graphs equal(const Body& body, std::size_t kernels) {
  Graphs graphs = graphs_of(body);
  INFO(ir::print(graphs.rerolled));
  const Arguments arguments = random_arguments(graphs.simplified, 3);
  const std::vector<ir::Buffer> expected = ir::evaluate(graphs.simplified, arguments.views);
  std::string what;
  CHECK(equals_bitwise(ir::evaluate(graphs.rerolled, arguments.views), expected, &what));
  CHECK(what.empty());
  CHECK(groups_of(graphs.rerolled) == kernels);
  if (has_codegen()) CHECK(equals_bitwise(run(graphs.rerolled, arguments.views), expected, &what));
  CHECK(what.empty());
  return graphs;
}

void left_alone(const Body& body) {
  const Graphs graphs = graphs_of(body);
  CHECK(ir::print(graphs.rerolled) == ir::print(graphs.simplified));
}

// stack([sum(ys[0]*ys[t], 0) for t])
Body attention(std::int64_t n, std::int64_t first = 0) {
  return [=](Recorder& r) {
    const Value ys = input(r, "ys", {n, 8, 33});
    std::vector<Value> all;
    for (std::int64_t t = first; t < n; ++t) all.push_back(sum(r, r.mul(at(r, ys, 0), at(r, ys, t)), 0));
    r.output("out", r.stack(all, 0));
  };
}
// The gradient of attention().
Body attention_gradient(std::int64_t n) {
  return [=](Recorder& r) {
    const Value ys = input(r, "ys", {n, 8, 33}), g = input(r, "g", {n, 33});
    std::vector<Value> all;
    for (std::int64_t t = 0; t < n; ++t) all.push_back(sum(r, r.mul(at(r, ys, 0), at(r, ys, t)), 0));
    const Value y = r.stack(all, 0);
    r.output("out", r.vjp(y, std::array{ys}, g)[0]);
  };
}

}  // namespace

TEST_CASE("reroll: copies over slices of one array, stacked, are one kernel", "[reroll]") {
  for (const std::int64_t n : {16, 100, 256}) {
    const Graphs graphs = equal(attention(n), 1);
    CHECK(graphs.rerolled.size() < 20);
  }
  equal(attention(40, 3), 1);
  equal(
      [](Recorder& r) {  // joined along another axis, in reverse order, with an operand common to all copies
        const Value x = input(r, "x", {20, 5, 40}), w = input(r, "w", {5, 40});
        std::vector<Value> all;
        for (std::int64_t t = 20; t-- > 0;) all.push_back(r.elementwise(Op::Exp, {r.mul(r.sub(at(r, x, t), w), at(r, x, t))}));
        r.output("out", r.stack(all, 1));
      },
      1);
  equal(
      [](Recorder& r) {  // blocks of a matrix, joined again
        const Value x = input(r, "x", {64, 10});
        std::vector<Value> all;
        for (std::int64_t t = 0; t < 16; ++t) {
          const Value part = window(r, x, 4 * t, 4 * t + 4);
          all.push_back(r.sub(part, r.reduce(Op::ReduceMax, "max", part, std::vector<std::int64_t>{0}, true)));
        }
        r.output("out", r.concat(all, 0));
      },
      1);
  equal(
      [](Recorder& r) {  // every 16th row
        const Value x = input(r, "x", {64, 10});
        std::vector<Value> all;
        for (std::int64_t t = 0; t < 16; ++t) all.push_back(sum(r, window(r, x, t, 64, 16), 0));
        r.output("out", r.stack(all, 0));
      },
      1);
  equal(
      [](Recorder& r) {  // every kind of view, and a contraction
        const Value x = input(r, "x", {17, 6, 7}), w = input(r, "w", {7, 9});
        std::vector<Value> all;
        for (std::int64_t t = 0; t < 17; ++t) {
          const Value y = r.matmul(at(r, x, t), w);  // [6, 9]
          const Value z = r.transpose(r.reshape(y, {9, 6}), {});
          all.push_back(r.diagonal(r.pad(r.flip(z, std::nullopt), {1, 0}, {0, 2}, std::nullopt), 1, 0, 1));
        }
        r.output("out", r.stack(all, 0));
      },
      2);
}

TEST_CASE("reroll: the gradient of such a loop has few kernels, for any number of copies", "[reroll]") {
  std::size_t kernels = 0;
  for (const std::int64_t n : {16, 64, 256, 4096}) {
    const Graphs graphs = graphs_of(attention_gradient(n));
    const std::size_t now = groups_of(graphs.rerolled);
    INFO(ir::print(graphs.rerolled));
    const auto more = static_cast<std::size_t>(n > 256 ? n / 256 : 0);  // at most 256 terms added in sequence become one sum
    CHECK(now <= 4 + more);
    CHECK(graphs.rerolled.size() < 60 + 8 * more);
    if (kernels && more == 0) CHECK(now == kernels);
    kernels = now;
    if (n <= 256) equal(attention_gradient(n), now);
  }
}

TEST_CASE("reroll: unrolled sums keep their order", "[reroll]") {
  for (const std::int64_t n : {16, 256, 257, 700}) {
    equal(
        [n](Recorder& r) {
          const Value x = input(r, "x", {n, 37}), w = input(r, "w", {37});
          Value all = r.mul(at(r, x, 0), w);
          for (std::int64_t t = 1; t < n; ++t) all = r.add(all, r.mul(at(r, x, t), w));
          r.output("out", all);
        },
        n <= 256   ? 1
        : n == 257 ? 2
                   : 3);
    equal(
        [n](Recorder& r) {  // after another value; scalars in f16
          const Value x = input(r, "x", {n, 37}, f16), s = input(r, "s", {}, f16);
          Value all = s;
          for (std::int64_t t = 0; t < n; ++t) all = r.add(all, sum(r, at(r, x, t), 0));
          r.output("out", r.sub(all, s));
        },
        n <= 255   ? 2
        : n <= 510 ? 3
                   : 4);
  }
  left_alone([](Recorder& r) {  // too few copies
    const Value x = input(r, "x", {7, 37});
    Value all = at(r, x, 0);
    for (std::int64_t t = 1; t < 7; ++t) all = r.add(all, at(r, x, t));
    r.output("out", all);
  });
}

TEST_CASE("reroll: code that only resembles a loop is unchanged", "[reroll]") {
  const auto stacked = [](const std::function<Value(Recorder&, Value, std::int64_t)>& one) {
    return [one](Recorder& r) {
      const Value x = input(r, "x", {100, 8});
      std::vector<Value> all;
      for (std::int64_t t = 0; t < 20; ++t) all.push_back(one(r, x, t));
      r.output("out", r.stack(all, 0));
    };
  };
  left_alone(
      stacked([](Recorder& r, Value x, std::int64_t t) { return sum(r, at(r, x, t * t % 19), 0); }));  // offsets without a common step
  left_alone(stacked([](Recorder& r, Value x, std::int64_t t) { return sum(r, window(r, x, t, t + 8), 0); }));  // overlapping windows
  left_alone(stacked([](Recorder& r, Value x, std::int64_t t) {  // every third copy has another function, so only pairs are alike
    return sum(r, r.elementwise(t % 3 ? Op::Exp : Op::Sin, {at(r, x, t)}), 0);
  }));
  left_alone([](Recorder& r) {  // each step depends on the previous step
    const Value x = input(r, "x", {30, 8});
    Value h = at(r, x, 0);
    std::vector<Value> all;
    for (std::int64_t t = 1; t < 30; ++t) all.push_back(h = r.elementwise(Op::Tanh, {r.mul(h, at(r, x, t))}));
    r.output("out", r.stack(all, 0));
  });
}

TEST_CASE("reroll: an array list of any length is read through a pointer table", "[reroll]") {
  const auto attention_of_list = [](std::size_t n, bool gradient) {
    return [=](Recorder& r) {
      std::vector<Value> ys, all;
      for (std::size_t t = 0; t < n; ++t) ys.push_back(r.input(fmt::format("y{}", t), f32, std::array<std::int64_t, 2>{8, 33}));
      for (const Value& y : ys) all.push_back(sum(r, r.mul(ys[0], y), 0));
      const Value z = r.stack(all, 0);
      r.output("z", z);
      if (!gradient) return;
      const std::vector<Value> d = r.grad(r.reduce(Op::ReduceSum, "sum", r.mul(z, z), std::nullopt, false), ys);
      for (std::size_t t = 0; t < n; ++t) r.output(fmt::format("d{}", t), d[t]);
    };
  };
  for (const std::size_t n : {16, 100}) {
    CHECK(equal(attention_of_list(n, false), 1).rerolled.size() < 3 * n);
    equal(attention_of_list(n, true), 2);  // z; the gradients
  }
  const auto list = [](Recorder& r, std::size_t n, Shape shape, DType dtype = f32) {
    std::vector<Value> xs;
    for (std::size_t t = 0; t < n; ++t) xs.push_back(r.input(fmt::format("x{}", t), dtype, shape));
    return xs;
  };
  equal(
      [&](Recorder& r) {  // elementwise copies: joined along any axis, in reverse order, a part of them, with padding, along the last axis
        const std::vector<Value> xs = list(r, 20, {6, 40}), hs = list(r, 9, {3, 33}, f16);
        for (const std::int64_t axis : {0, 1, 2}) {
          std::vector<Value> all;
          for (const Value& x : xs) all.push_back(r.elementwise(Op::Tanh, {x}));
          r.output(fmt::format("s{}", axis), r.stack(all, axis));
        }
        const Value s = r.stack(xs, 0);
        r.output("flipped", r.elementwise(Op::Exp, {r.flip(s, std::nullopt)}));
        r.output("padded", r.elementwise(Op::Exp, {r.pad(window(r, s, 3, 17), {2, 0, 1}, {3, 0, 5}, std::nullopt)}));
        r.output("halves", r.mul(r.stack(hs, 1), r.stack(hs, 1)));
        r.output("columns", sum(r, r.stack(xs, 2), 2));
      },
      5);
  equal(
      [&](Recorder& r) {  // lists in, lists out, as in an optimizer
        const std::vector<Value> ps = list(r, 12, {5, 7});
        std::vector<Value> gs;
        for (std::size_t t = 0; t < ps.size(); ++t) gs.push_back(r.input(fmt::format("g{}", t), f32, std::array<std::int64_t, 2>{5, 7}));
        for (std::size_t t = 0; t < ps.size(); ++t) {
          const Value m = r.mul(gs[t], gs[t]);
          r.output(fmt::format("m{}", t), m);
          r.output(fmt::format("p{}", t), r.sub(ps[t], r.div(gs[t], r.elementwise(Op::Sqrt, {m}))));
        }
      },
      1);
}

TEST_CASE("reroll: copies that differ in literals read them from a table", "[reroll]") {
  for (const DType dtype : {f32, f64, f16, i64, i8}) {
    equal(
        [dtype](Recorder& r) {
          const Value x = input(r, "x", {30, 8}, dtype), y = input(r, "y", {70}, dtype);
          std::vector<Value> all, more;
          for (std::int64_t t = 0; t < 20; ++t) all.push_back(sum(r, r.mul(at(r, x, t), r.literal(3 * t - 7)), 0));
          for (std::int64_t t = 0; t < 30; ++t) more.push_back(r.add(r.mul(y, r.literal(3 - t)), r.literal(t)));
          r.output("sums", r.stack(all, 0));
          r.output("rows", r.stack(more, 0));
          r.output("columns", r.stack(more, 1));
        },
        3);
  }
  equal(
      [](Recorder& r) {  // terms that differ only in literals are one pass, with the numbers in registers
        const Value x = input(r, "x", {100});
        Value all = r.mul(x, r.literal(0.5));
        for (std::int64_t t = 1; t < 20; ++t) all = r.add(all, r.mul(x, r.literal(0.5 + static_cast<double>(t))));
        r.output("out", all);
      },
      1);
}

TEST_CASE("reroll: two alternating loops stay two loops", "[reroll]") {
  equal(
      [](Recorder& r) {
        const Value x = input(r, "x", {100, 8});
        std::vector<Value> all;
        for (std::int64_t t = 0; t < 20; ++t)
          all.push_back(sum(r, r.elementwise(t % 2 ? Op::Exp : Op::Sin, {at(r, x, t % 2 ? t : 50 - t)}), 0));
        r.output("out", r.stack(all, 0));
      },
      2);
}

TEST_CASE("reroll: nested loops are one kernel", "[reroll]") {
  const auto columns = [](std::int64_t matrices, std::int64_t columns) {  // stack([w @ x[m, :, c] for m for c])
    return [=](Recorder& r) {
      const Value x = input(r, "x", {matrices, 6, columns}), w = input(r, "w", {4, 6});
      const Value by_column = r.transpose(x, {0, 2, 1});
      std::vector<Value> all;
      for (std::int64_t m = 0; m < matrices; ++m)
        for (std::int64_t c = 0; c < columns; ++c) all.push_back(r.elementwise(Op::Tanh, {r.matmul(w, at(r, at(r, by_column, m), c))}));
      r.output("out", r.stack(all, 0));
    };
  };
  const Graphs two = equal(columns(9, 10), 1);
  for (ir::NodeId id = 0; id < two.rerolled.size(); ++id) CHECK(two.rerolled[id].op != Op::Piecewise);
  equal(columns(16, 8), 1);
  equal(
      [](Recorder& r) {  // three loops, the last loop in steps of two
        const Value x = input(r, "x", {8, 9, 16, 5});
        std::vector<Value> all;
        for (std::int64_t i = 0; i < 8; ++i)
          for (std::int64_t j = 0; j < 9; ++j)
            for (std::int64_t k = 0; k < 16; k += 2) all.push_back(sum(r, r.elementwise(Op::Exp, {at(r, at(r, at(r, x, i), j), k)}), 0));
        r.output("out", r.stack(all, 0));
      },
      1);
}

TEST_CASE("reroll: a loop next to other boxes becomes one box", "[reroll]") {
  equal(
      [](Recorder& r) {
        const Value x = input(r, "x", {40, 8}), y = input(r, "y", {3, 8});
        std::vector<Value> all = {y};
        for (std::int64_t t = 0; t < 40; ++t) all.push_back(r.expand_dims(r.elementwise(t == 20 ? Op::Sin : Op::Cos, {at(r, x, t)}), 0));
        all.push_back(y);
        r.output("out", r.concat(all, 0));
      },
      1);
}

TEST_CASE("reroll: random expressions, copied over slices", "[reroll]") {
  const char* const rounds = std::getenv("ONEPASS_TEST_ROUNDS");
  std::size_t smaller = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= (rounds ? std::strtoull(rounds, nullptr, 10) : 60); ++seed) {
    RandomGraphOptions options;
    options.nodes = 10;
    options.inputs = 2;
    options.outputs = 1;
    options.max_rank = 3;
    options.max_elements = 256;
    options.products = true;
    options.zero_sizes = false;      // reroll ignores empty arrays
    options.allow = [](ir::Op op) {  // each indexing by data has a separate check, so there are no copies
      return op != ir::Op::Place && op != ir::Op::Gather && op != ir::Op::ScatterAdd;
    };
    const ir::Graph one = random_graph(seed, options);
    const ir::NodeId y = one.outputs[0];
    const std::int64_t copies = 8 + static_cast<std::int64_t>(seed % 5);
    // every other input is one array for all copies
    ir::Graph source;
    std::vector<ir::NodeId> arrays;
    for (const ir::Input& input : one.inputs) {
      Shape shape(one.list(input.shape).begin(), one.list(input.shape).end());
      if (arrays.size() % 2 == 0) shape.insert(shape.begin(), copies);
      arrays.push_back(source.add_input(input.name, input.dtype, shape));
    }
    source.slots = one.slots;
    std::vector<std::int64_t> results, boxes;
    for (std::int64_t t = 0; t < copies; ++t) {
      std::vector<ir::NodeId> now(one.size());
      for (ir::NodeId id = 0; id < one.size(); ++id) {
        ir::Node node = one[id];
        node.shape = source.intern(one.shape(id));
        node.attributes = source.intern(one.attributes(id));
        if (node.op == ir::Op::Input) {
          now[id] = arrays[node.bits];
          if (node.bits % 2 != 0) continue;
          Shape part(one.shape(id).begin(), one.shape(id).end()), box(part.size() + 1, 0);
          box[0] = t;
          part.insert(part.begin(), 1);
          box.insert(box.end(), part.size(), 1);
          const ir::NodeId slice = source.add(ir::Op::Slice, node.dtype, source.intern(part), {now[id]}, box);
          now[id] = source.add(ir::Op::Reshape, node.dtype, node.shape, {slice});
          continue;
        }
        std::vector<std::int64_t> operands;
        for (const std::int64_t o : one.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
        node.operands = source.intern(operands);
        now[id] = source.add(node);
      }
      results.push_back(now[y]);
    }
    const DType dtype = one[y].dtype;
    if (seed % 2 && dtype != boolean) {
      ir::NodeId sum = static_cast<ir::NodeId>(results[0]);
      for (std::size_t t = 1; t < results.size(); ++t)
        sum = source.add(ir::Op::Add, dtype, source[sum].shape, {sum, static_cast<ir::NodeId>(results[t])});
      source.outputs = {sum};
    } else {
      Shape to(one.shape(y).begin(), one.shape(y).end()), unit = to;
      to.insert(to.begin(), copies);
      unit.insert(unit.begin(), 1);
      for (std::size_t t = 0; t < results.size(); ++t) {
        results[t] = source.add(ir::Op::Reshape, dtype, source.intern(unit), {static_cast<ir::NodeId>(results[t])});
        boxes.push_back(static_cast<std::int64_t>(t));
        boxes.resize(boxes.size() + unit.size() - 1, 0);
        boxes.resize(boxes.size() + unit.size(), 1);
      }
      source.outputs = {source.add(ir::Node{ir::Op::Piecewise, dtype, source.intern(to), source.intern(results), source.intern(boxes), 0})};
    }
    source.output_names = {"y"};
    ir::verify(source, "copies");
    const ir::Graph simplified = ir::prune(simplify(ir::prune(source)));
    const ir::Graph rerolled = ir::prune(simplify(reroll(simplified).value_or(simplified)));
    INFO("seed " << seed << "\n" << ir::print(simplified) << "\nbecame\n" << ir::print(rerolled));
    ir::verify(rerolled, "reroll");
    ++all;
    smaller += rerolled.size() + 8 < simplified.size();
    const Arguments arguments = random_arguments(simplified, seed, true);
    const std::vector<ir::Buffer> expected = ir::evaluate(simplified, arguments.views);
    std::string what;
    CHECK(equals_bitwise(ir::evaluate(rerolled, arguments.views), expected, &what));
    RunOptions quick;
    quick.masked = true;
    if (has_codegen() && seed % 4 == 0) CHECK(equals_bitwise(run(rerolled, arguments.views, quick), expected, &what));
    CHECK(what.empty());
  }
  CHECK(3 * smaller > all);  // the other graphs do not depend on the slices, or are too small
}

TEST_CASE("reroll: time is linear in the copies", "[reroll]") {
  for (const auto& body : {attention, +[](std::int64_t n, std::int64_t) { return attention_gradient(n); }}) {
    double times[3];
    const std::int64_t sizes[] = {256, 1024, 4096};
    for (int k = 0; k < 3; ++k) {
      times[k] = 1e9;
      std::size_t nodes = 0;
      for (int round = 0; round < 3; ++round) {
        const Graphs graphs = graphs_of(body(sizes[k], 0));
        times[k] = std::min(times[k], graphs.milliseconds);
        nodes = graphs.rerolled.size();
      }
      CHECK(nodes < 200);
    }
    INFO("256: " << times[0] << " ms, 1,024: " << times[1] << " ms, 4,096: " << times[2] << " ms");
    CHECK(times[2] < 64 * times[0] + 20);  // quadratic time would be a factor of 256
  }
}

TEST_CASE("reroll: from C++, in every mode", "[reroll]") {
  if (!has_codegen()) return;
  const auto run_mode = [](Mode mode) {
    Options options;
    options.mode = mode;
    const auto f = compile(
        [](Tensor ys) {
          std::vector<Tensor> all;
          for (std::int64_t t = 0; t < ys.dim(0); ++t) all.push_back(onepass::sum(ys[0] * ys[t], {0}));
          const Tensor z = onepass::softmax(onepass::stack(all), 0);
          return std::tuple{z, onepass::grad(onepass::sum(z * z), ys)};
        },
        options);
    Array ys = Array::empty({256, 8, 16}, f32);
    std::mt19937 random(1);
    for (float& v : ys.span<float>()) v = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    const auto [z, d] = f(ys);
    std::vector<float> out = z.to_vector<float>();
    for (const float v : d.to_vector<float>()) out.push_back(v);
    return std::pair{out, f.stats().kernels};
  };
  const auto [expected, unused] = run_mode(Mode::reference);
  for (const Mode mode : {Mode::generic, Mode::specialized}) {
    const auto [got, kernels] = run_mode(mode);
    CHECK(std::memcmp(got.data(), expected.data(), 4 * got.size()) == 0);
    CHECK(kernels <= 8);
  }
}

namespace {
std::vector<Array> random_list(std::size_t n, std::uint32_t seed, std::vector<std::int64_t> shape = {32, 16}) {
  std::vector<Array> list;
  std::mt19937 random(seed);
  for (std::size_t t = 0; t < n; ++t) {
    list.push_back(Array::empty(shape, f32));
    for (float& v : list.back().span<float>()) v = static_cast<float>(random()) / 4294967296.0f - 0.5f;
  }
  return list;
}
bool equal_lists(const std::vector<Array>& a, const std::vector<Array>& b) {
  bool equal = a.size() == b.size();
  for (std::size_t t = 0; equal && t < a.size(); ++t) equal = a[t].to_vector<float>() == b[t].to_vector<float>();
  return equal;
}
}  // namespace

TEST_CASE("reroll: a loss of many arrays and its gradient, in every mode", "[reroll]") {
  if (!has_codegen()) return;
  const auto run_mode = [](Mode mode, std::size_t n) {
    Options options;
    options.mode = mode;
    const auto f = compile(
        [](const std::vector<Tensor>& ys) {
          return value_and_grad(
              [](const std::vector<Tensor>& ys) {
                std::vector<Tensor> dots;
                for (const Tensor& y : ys) dots.push_back(onepass::sum(ys[0] * y, {0}));
                const Tensor w = onepass::softmax(onepass::stack(dots), 0);
                return onepass::sum(w * w);
              },
              ys);
        },
        options);
    std::vector<Array> gradients = f(random_list(n, 1)).second;
    return std::pair{gradients, f.stats().kernels};
  };
  const std::vector<Array> expected = run_mode(Mode::reference, 64).first;
  for (const Mode mode : {Mode::generic, Mode::specialized, Mode::unfused}) CHECK(equal_lists(run_mode(mode, 64).first, expected));
  // the products, the softmax and its derivative, the loss, the gradients
  for (const std::size_t n : {16, 64, 256}) CHECK(run_mode(Mode::generic, n).second == 4);
}

TEST_CASE("reroll: lists of destinations, also in the arguments' memory", "[reroll]") {
  if (!has_codegen()) return;
  const auto step = compile([](std::vector<Tensor> ps, const std::vector<Tensor>& gs) {
    for (std::size_t t = 0; t < ps.size(); ++t) ps[t] = ps[t] - 0.5f * gs[t] / onepass::sqrt(onepass::abs(ps[t]) + 1.0f);
    return ps;
  });
  const std::vector<Array> ps = random_list(20, 1), gs = random_list(20, 2);
  const std::vector<Array> expected = step(ps, gs);
  CHECK(step.stats().kernels == 1);
  std::vector<Array> targets = random_list(20, 3);
  step.into(targets)(ps, gs);
  CHECK(equal_lists(targets, expected));
  const auto before = step.stats().bytes_allocated;
  std::vector<Array> own = random_list(20, 1);
  step.into(own)(own, gs);
  CHECK(equal_lists(own, expected));
  CHECK(step.stats().bytes_allocated == before);  // each element is read where it is written
  std::vector<Array> turned = random_list(20, 1), arguments(turned.begin() + 1, turned.end());
  arguments.push_back(turned[0]);  // argument t is destination t + 1
  const std::vector<Array> fresh = step(arguments, gs);
  step.into(turned)(arguments, gs);
  CHECK(equal_lists(turned, fresh));
  targets[7] = targets[12];
  CHECK_THROWS_WITH(step.into(targets)(ps, gs), Catch::Contains("overlap; each result needs separate memory"));
  // members of another layout do not form an array list; results are unchanged
  std::vector<Array> mixed = ps;
  const auto transposed = compile([](Tensor x) { return onepass::transpose(x); });
  mixed[3] = transposed(mixed[3]).transpose();
  CHECK(equal_lists(step(mixed, gs), expected));
}
