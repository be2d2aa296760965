// Programs: one recording for each signature, equal bits in every mode, destinations that overlap arguments, errors, several threads.
#include "arrays.h"
#include "how_long.h"
#include "runtime/program.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "has_codegen.h"
#include "ir/reference.h"
#include "onepass/error.h"
#include "random_graph.h"
#include "runtime/launch.h"
#include "runtime/memory.h"
#include "runtime/os.h"
#include "runtime/threads.h"
#include "with_mode.h"

using namespace onepass;
using namespace onepass::runtime;
using compiler::Literal;
using compiler::Recorder;
using compiler::Value;
using test::has_codegen;
using Values = std::span<const Value>;

namespace {

std::vector<Mode> modes() {
  return has_codegen() ? std::vector{Mode::reference, Mode::generic, Mode::unfused} : std::vector{Mode::reference};
}
Mode main_mode() { return has_codegen() ? Mode::generic : Mode::reference; }

std::vector<Argument> arguments(std::initializer_list<const Array*> arrays) {
  std::vector<Argument> out;
  for (const Array* a : arrays) out.push_back({a, {}});
  return out;
}
Argument number(std::int64_t value) { return {nullptr, {Literal::Kind::Int, value}}; }
Argument number(double value) { return {nullptr, {Literal::Kind::Float, 0, value, 0}}; }

Array random_array(std::vector<std::int64_t> shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Array a = Array::empty(shape, f32);
  for (float& v : a.span<float>()) v = static_cast<float>(static_cast<std::int64_t>(random() >> 40) - (1 << 23)) / (1 << 22);
  return a;
}

// x*w + b with a literal.
void affine(Recorder& r, Values v) { r.output("out", r.add(r.mul(r.mul(v[0], v[1]), r.literal(3.5)), v[2])); }
// The softmax along the last axis, from basic operators.
void softmax(Recorder& r, Values v) {
  const Value m = r.reduce(ir::Op::ReduceMax, "max", v[0], std::vector<std::int64_t>{-1}, true);
  const Value e = r.elementwise(ir::Op::Exp, {r.sub(v[0], m)});
  r.output("out",
           r.mul(e, r.elementwise(ir::Op::Reciprocal, {r.reduce(ir::Op::ReduceSum, "sum", e, std::vector<std::int64_t>{-1}, true)})));
}

struct Case {
  const char* name;
  Program::Record record;
  std::vector<Array> arguments;
};

std::vector<Case> cases() {
  const Array x = random_array({37, 65}, 1), w = random_array({65}, 2), b = random_array({37, 1}, 3);
  std::vector<Case> out;
  out.push_back({"affine", affine, {x, w, b}});
  out.push_back({"affine of strided views", affine, {random_array({65, 37}, 4).transpose(), w.flip(0), b}});
  out.push_back({"softmax", softmax, {x}});
  out.push_back({"softmax of columns", softmax, {random_array({65, 37}, 5).transpose()}});
  out.push_back({"sums of everything",
                 [](Recorder& r, Values v) {
                   r.output("all", r.reduce(ir::Op::ReduceSum, "sum", v[0], std::nullopt, false));
                   r.output("rows", r.reduce(ir::Op::ReduceSum, "sum", v[0], std::vector<std::int64_t>{0}, false));
                   r.output("columns", r.reduce(ir::Op::ReduceMax, "max", v[0], std::vector<std::int64_t>{1}, false));
                   r.output("centred", r.sub(v[0], r.reduce(ir::Op::ReduceSum, "sum", v[0], std::nullopt, true)));
                 },
                 {x}});
  out.push_back({"results that are arguments, views and the same twice",
                 [](Recorder& r, Values v) {
                   const Value y = r.add(v[0], v[0]);
                   r.output("x", v[0]);
                   r.output("turned", r.transpose(v[0], {}));
                   r.output("y", y);
                   r.output("again", y);
                 },
                 {x}});
  out.push_back({"no arguments",
                 [](Recorder& r, Values) {
                   r.output("iota", r.iota({5, 3}, 0, f32));
                   r.output("number", r.literal(2.5));
                 },
                 {}});
  out.push_back({"rank 0", [](Recorder& r, Values v) { r.output("out", r.mul(v[0], v[0])); }, {Array::scalar(3.0f)}});
  out.push_back({"zero sizes",
                 [](Recorder& r, Values v) {
                   r.output("map", r.add(v[0], v[0]));
                   r.output("sum", r.reduce(ir::Op::ReduceSum, "sum", v[0], std::vector<std::int64_t>{0}, false));
                 },
                 {Array::empty({0, 4}, f32)}});
  return out;
}

template <class E, class F> std::string message(F&& f) {
  try {
    f();
  } catch (const E& error) { return error.what(); }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("program: every mode, thread count and vector width gives the reference's bits", "[program]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    std::vector<Argument> in;
    for (const Array& a : c.arguments) in.push_back({&a, {}});
    Program reference(c.record, {}, test::with(Mode::reference));
    const std::vector<Array> expected = reference.call(in);
    for (const Mode mode : modes())
      for (const int threads : {1, 2, 3})
        for (const int width : {0, 16, 32}) {
          if (mode == Mode::reference && (threads > 1 || width)) continue;
          INFO("mode " << static_cast<int>(mode) << ", threads " << threads << ", width " << width);
          Program program(c.record, {}, test::with(mode, threads, width));
          const std::vector<Array> got = program.call(in);
          REQUIRE(got.size() == expected.size());
          for (std::size_t k = 0; k < got.size(); ++k) {
            INFO("result " << k);
            CHECK(test::same_but_for_nan(got[k], expected[k]));
          }
          std::vector<Array> targets;
          std::vector<Array*> pointers;
          for (const Array& e : expected) targets.push_back(Array::zeros(Extents(e.shape()), e.dtype()));
          for (Array& t : targets) pointers.push_back(&t);
          program.call_into(in, pointers);
          for (std::size_t k = 0; k < got.size(); ++k) CHECK(test::same_but_for_nan(targets[k], expected[k]));
        }
  }
}

namespace {

// Records a graph again, node by node.
void replay(const ir::Graph& graph, Recorder& recorder, Values inputs) {
  ir::Graph& to = recorder.graph;
  to.slots = graph.slots;
  std::vector<ir::NodeId> now(graph.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    ir::Node node = graph[id];
    if (node.op == ir::Op::Input) {
      now[id] = inputs[node.bits].node;
      continue;
    }
    std::vector<std::int64_t> operands;
    for (const std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.operands = to.intern(operands);
    node.shape = to.intern(graph.shape(id));
    node.attributes = to.intern(graph.attributes(id));
    now[id] = to.add(node);
  }
  for (std::size_t k = 0; k < graph.outputs.size(); ++k) recorder.output(graph.output_names[k], Value{false, now[graph.outputs[k]], {}});
}

// Returns how generic and unfused differ from the reference on a graph; empty if they do not differ.
std::string difference(const ir::Graph& graph, std::uint64_t seed) {
  const test::Arguments arguments = test::random_arguments(graph, seed, seed % 3 == 1);
  std::vector<Array> arrays;
  for (const ir::ArrayView& v : arguments.views) {
    const ArrayPlan plan = array_plan(v.dtype, v.shape, v.strides);
    arrays.push_back(Array::wrap_pointer(const_cast<void*>(v.data), v.dtype, plan.shape, plan.strides, true));
  }
  std::vector<Argument> in;
  for (const Array& a : arrays) in.push_back({&a, {}});
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  for (const Mode mode : {Mode::generic, Mode::specialized, Mode::unfused}) {
    Options options;
    options.mode = mode;
    options.check_recording = false;
    Program program([&graph](Recorder& r, Values values) { replay(graph, r, values); }, {}, options);
    const std::vector<Array> got = program.call(in);
    for (std::size_t k = 0; k < got.size(); ++k) {
      const auto* const bytes = static_cast<const std::byte*>(got[k].data());
      const ir::Buffer buffer{got[k].dtype(), expected[k].shape, {bytes, bytes + got[k].bytes()}};
      std::string what;
      if (!test::equals_bitwise(buffer, expected[k], &what))
        return fmt::format("{}: output {}, {}",
                           mode == Mode::generic   ? "generic"
                           : mode == Mode::unfused ? "unfused"
                                                   : "specialised",
                           k, what);
    }
  }
  return {};
}

}  // namespace

TEST_CASE("program: random graphs over all types give equal bits in generic, unfused and reference", "[program][random]") {
  if (!has_codegen()) return;
  const char* const start = std::getenv("ONEPASS_TEST_SEED");
  const auto rounds = static_cast<std::uint64_t>(test::rounds(40, 2000));
  const std::uint64_t first = start ? std::strtoull(start, nullptr, 10) : 0;
  for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
    test::RandomGraphOptions options;
    options.nodes = 4 + static_cast<int>(seed % 20);
    options.outputs = 1 + static_cast<int>(seed % 4);
    const ir::Graph graph = test::random_graph(seed, options);
    const auto what = [&](const ir::Graph& g) {
      try {
        return difference(g, seed);
      } catch (const std::exception& e) { return std::string(e.what()); }
    };
    const std::string found = what(graph);
    if (found.empty()) continue;
    const ir::Graph small = test::shrink(
        graph, [&](const ir::Graph& g) { return !what(g).empty(); }, 400);
    FAIL_CHECK(test::failure_report(seed, small) << what(small) << "\nbefore shrinking: " << found);
    break;
  }
}

TEST_CASE("program: large arrays on several threads", "[program]") {
  const Array x = random_array({700, 1000}, 1), w = random_array({1000}, 2), b = random_array({700, 1}, 3);
  const auto in = arguments({&x, &w, &b});
  const Array expected = Program(affine, {}, test::with(Mode::reference)).call(in)[0];
  const auto row = arguments({&x});
  const Array expected_softmax = Program(softmax, {}, test::with(Mode::reference)).call(row)[0];
  for (const Mode mode : modes())
    for (const int threads : {1, 2, 3}) {
      CHECK(test::same_but_for_nan(Program(affine, {}, test::with(mode, threads)).call(in)[0], expected));
      CHECK(test::same_but_for_nan(Program(softmax, {}, test::with(mode, threads)).call(row)[0], expected_softmax));
    }
}

TEST_CASE("program: results never share memory with arguments", "[program]") {
  for (const Mode mode : modes()) {
    Program program([](Recorder& r, Values v) { r.output("x", v[0]); }, {}, test::with(mode));
    const Array x = random_array({4, 5}, 1);
    const Array y = program.call(arguments({&x}))[0];
    CHECK(y.data() != x.data());
    CHECK(test::same_but_for_nan(x, y));
    const Array strided = x.transpose();
    const Array z = program.call(arguments({&strided}))[0];
    CHECK(z.is_contiguous());
    CHECK(test::same_but_for_nan(strided, z));
  }
}

TEST_CASE("program: destinations that overlap arguments", "[program]") {
  const auto add_reversed = [](Recorder& r, Values v) { r.output("out", r.add(v[0], r.flip(v[0], std::nullopt))); };
  const auto twice = [](Recorder& r, Values v) { r.output("out", r.add(v[0], r.mul(v[0], v[1]))); };
  for (const Mode mode : modes()) {
    INFO("mode " << static_cast<int>(mode));
    const Array w = random_array({100}, 9);
    {  // the same elements: in place
      Array x = random_array({100}, 1);
      const Array expected = Program(twice, {}, test::with(Mode::reference)).call(arguments({&x, &w}))[0];
      Program program(twice, {}, test::with(mode));
      Array* const target[] = {&x};
      program.call_into(arguments({&x, &w}), target);
      CHECK(test::same_but_for_nan(x, expected));
      if (mode == Mode::generic) CHECK(program.stats().bytes_allocated == 0);
    }
    {  // another order: through a temporary
      Array x = random_array({100}, 1);
      const Array expected = Program(add_reversed, {}, test::with(Mode::reference)).call(arguments({&x}))[0];
      Program program(add_reversed, {}, test::with(mode));
      Array* const target[] = {&x};
      program.call_into(arguments({&x}), target);
      CHECK(test::same_but_for_nan(x, expected));
      if (mode == Mode::generic) CHECK(program.stats().bytes_allocated >= 400);
    }
    for (const std::int64_t shift : {1, 3, 50}) {  // shifted, in both directions
      for (const bool forward : {true, false}) {
        const Array memory = random_array({200}, 2);
        const Array x = memory.slice(0, forward ? 0 : shift, forward ? 100 : 100 + shift);
        Array y = memory.slice(0, forward ? shift : 0, forward ? 100 + shift : 100);
        const Array expected = Program(twice, {}, test::with(Mode::reference)).call(arguments({&x, &w}))[0];
        Program program(twice, {}, test::with(mode));
        Array* const target[] = {&y};
        program.call_into(arguments({&x, &w}), target);
        CHECK(test::same_but_for_nan(y, expected));
      }
    }
    {  // a view of the destination's memory in another order
      Array x = random_array({10, 10}, 3);
      const Array turned = x.transpose();
      const auto add = [](Recorder& r, Values v) { r.output("out", r.add(v[0], v[1])); };
      const Array expected = Program(add, {}, test::with(Mode::reference)).call(arguments({&x, &turned}))[0];
      Program program(add, {}, test::with(mode));
      Array* const target[] = {&x};
      program.call_into(arguments({&x, &turned}), target);
      CHECK(test::same_but_for_nan(x, expected));
    }
  }
}

TEST_CASE("program: strided, misaligned and discarded destinations", "[program]") {
  const auto two = [](Recorder& r, Values v) {
    const Value y = r.add(v[0], v[0]);
    r.output("y", y);
    r.output("y2", y);
    r.output("z", r.mul(v[0], y));
  };
  const Array x = random_array({8, 12}, 1);
  const auto in = arguments({&x});
  const std::vector<Array> expected = Program(two, {}, test::with(Mode::reference)).call(in);
  for (const Mode mode : modes()) {
    INFO("mode " << static_cast<int>(mode));
    Program program(two, {}, test::with(mode));
    Array turned = Array::zeros({12, 8}, f32).transpose(), memory = Array::zeros({97}, f32);
    Array misaligned = memory.slice(0, 1).reshape({8, 12}), plain = Array::zeros({8, 12}, f32);
    Array* all[] = {&turned, &plain, &misaligned};
    program.call_into(in, all);
    CHECK(test::same_but_for_nan(turned, expected[0]));
    CHECK(test::same_but_for_nan(plain, expected[1]));
    CHECK(test::same_but_for_nan(misaligned, expected[2]));
    CHECK(memory.at<float>({0}) == 0);
    Array z = Array::zeros({8, 12}, f32);
    Array* one[] = {nullptr, nullptr, &z};
    program.call_into(in, one);
    CHECK(test::same_but_for_nan(z, expected[2]));
    Array* none[] = {nullptr, nullptr, nullptr};
    program.call_into(in, none);
  }
}

TEST_CASE("program: errors name the arguments and leave the program usable", "[program]") {
  for (const Mode mode : modes()) {
    Program program(affine, {"x", "w", "b"}, test::with(mode));
    Array x = random_array({4, 5}, 1), w = random_array({5}, 2), b = random_array({4, 1}, 3), bad = random_array({6}, 4);
    Array y = Array::empty({4, 5}, f32);
    const auto in = arguments({&x, &w, &b});
    const auto into = [&](std::vector<Array*> targets) { program.call_into(in, targets); };
    CHECK_THAT(message<ShapeError>([&] { program.call(arguments({&x, &bad, &b})); }), Catch::Contains("do not broadcast"));
    CHECK_THAT(message<Error>([&] {
                 program.call(arguments({&x, &w}));
               }),
               Catch::Contains("takes 3 arguments (x, w, b), but the call has 2"));
    const Array nothing;
    CHECK_THAT(message<ValueError>([&] { program.call(arguments({&x, &nothing, &b})); }), Catch::Contains("argument w is an empty Array"));
    CHECK_THAT(message<Error>([&] { into({}); }), Catch::Contains("1 result, but 0 destinations were given"));
    CHECK_THAT(message<ShapeError>([&] { into({&w}); }), Catch::Contains("destination out is f32[5], but the result is f32[4, 5]"));
    Array halves = Array::empty({4, 5}, f64);
    CHECK_THAT(message<DTypeError>([&] { into({&halves}); }), Catch::Contains("destination out is f64[4, 5], but the result is f32[4, 5]"));
    const std::vector<float> constant(20);
    Array read_only = Array::wrap(std::span<const float>(constant), {4, 5});
    CHECK_THAT(message<ValueError>([&] { into({&read_only}); }), Catch::Contains("read-only"));
    const std::vector<Array> fine = program.call(in);
    into({&y});
    CHECK(test::same_but_for_nan(y, fine[0]));
    CHECK(program.stats().calls == 2);

    Program two([](Recorder& r, Values v) { r.output("a", r.add(v[0], v[0])), r.output("b", v[0]); }, {}, test::with(mode));
    Array memory = Array::zeros({8}, f32), u = memory.slice(0, 0, 5), v = memory.slice(0, 4, 8).reshape({4});
    const Array four = random_array({4}, 1);
    Array first = memory.slice(0, 0, 4);
    Array* overlapping[] = {&first, &first};
    CHECK_THAT(message<ValueError>([&] { two.call_into(arguments({&four}), overlapping); }),
               Catch::Contains("destinations a and b overlap"));
    Array* beside[] = {&first, &v};
    two.call_into(arguments({&four}), beside);
    CHECK(test::same_but_for_nan(v, four));
  }
  CHECK_THROWS_AS(Program(affine, {}, test::with(Mode::generic, -1)), ValueError);
}

TEST_CASE("program: numbers are read at each call", "[program]") {
  const auto scale = [](Recorder& r, Values v) {
    r.output("out", r.add(r.mul(v[0], v[1]), r.elementwise(ir::Op::Add, {v[1], r.literal(1.0)})));
  };
  for (const Mode mode : modes()) {
    Program program(scale, {}, test::with(mode));
    const Array x = random_array({33}, 1);
    for (int i = 0; i < 20; ++i) {
      const Argument in[] = {{&x, {}}, number(0.25 * (i % 7))};
      CHECK(test::same_but_for_nan(program.call(in)[0], Program(scale, {}, test::with(Mode::reference)).call(in)[0]));
    }
    CHECK(program.stats().kernels <= (mode == Mode::unfused ? 2 : 1));
    CHECK(program.stats().recordings == 1);
  }
}

TEST_CASE("program: values computed from numbers are recomputed at each call", "[program]") {
  // x * exp(-k*t) + where(k > 1, k, t) + … with k**2, an exponent computed from an argument, which does not change the structure
  const auto derived = [](Recorder& r, Values v) {
    const Value k = v[1], t = v[2];
    const Value decay = r.elementwise(ir::Op::Exp, {r.mul(r.elementwise(ir::Op::Neg, {k}), t)});
    const Value chosen = r.where(r.elementwise(ir::Op::Greater, {k, r.literal(1.0)}), k, t);
    r.output("out", r.add(r.mul(v[0], decay), chosen));
    r.output("power", r.pow(v[0], k));
    r.output("integers", r.add(r.cast(v[0], f64), r.mul(v[3], r.literal(std::int64_t{3}))));
  };
  for (const Mode mode : modes()) {
    Program program(derived, {}, test::with(mode));
    const Array x = random_array({33}, 1);
    for (int i = 0; i < 20; ++i) {
      const Argument in[] = {{&x, {}}, number(0.25 * i), number(1.0 / (i + 1)), number(std::int64_t{i} << 40)};
      const std::vector<Array> got = program.call(in), expected = Program(derived, {}, test::with(Mode::reference)).call(in);
      for (std::size_t k = 0; k < 3; ++k) CHECK(test::same_but_for_nan(got[k], expected[k]));
    }
    CHECK(program.stats().recordings == 1);
    const Argument in[] = {{&x, {}}, number(0.5), number(0.5), number(std::int64_t{1} << 62)};
    CHECK_THAT(message<ValueError>([&] { program.call(in); }), Catch::Contains("overflow i64"));
    const Argument fits[] = {{&x, {}}, number(0.5), number(0.5), number(std::int64_t{1} << 61)};
    CHECK(program.call(fits).size() == 3);
  }
}

TEST_CASE("program: a number that does not fit its type is an error of only that call", "[program]") {
  for (const Mode mode : modes()) {
    Program program([](Recorder& r, Values v) { r.output("out", r.add(v[0], v[1])); }, {}, test::with(mode));
    const Array bytes = Array::from<std::uint8_t>({1, 2, 3});
    for (const std::int64_t k : {7, 300, 8}) {
      const Argument in[] = {{&bytes, {}}, number(k)};
      if (k == 300) CHECK_THAT(message<ValueError>([&] { program.call(in); }), Catch::Contains("the literal 300 does not fit u8"));
      else CHECK(program.call(in)[0].at<std::uint8_t>({2}) == 3 + k);
    }
    CHECK(program.stats().recordings == 1);
  }
}

TEST_CASE("program: numbers that are axes and lengths have separate plans", "[program]") {
  const auto views = [](Recorder& r, Values v) {
    compiler::Argument axis;
    axis.kind = compiler::Argument::Kind::Value;
    axis.value = v[1];
    const compiler::Argument of[] = {{compiler::Argument::Kind::Value, v[0], {}, f32, {}}, axis};
    r.output("out", r.mul(r.call("sum", of, {})[0], v[2]));
  };
  Program program(views, {}, test::with(main_mode()));
  const Array x = random_array({6, 5}, 1);
  for (int round = 0; round < 3; ++round)
    for (const std::int64_t axis : {0, 1, -1}) {
      const Argument in[] = {{&x, {}}, number(axis), number(0.5 * round)};
      const Array got = program.call(in)[0];
      CHECK(got.shape().size() == 1);
      CHECK(got.dim(0) == (axis == 0 ? 5 : 6));
      CHECK(test::same_but_for_nan(got, Program(views, {}, test::with(Mode::reference)).call(in)[0]));
    }
  CHECK(program.stats().recordings == 3);
}

TEST_CASE("program: a million values of a number share one plan", "[program]") {
  Program program([](Recorder& r, Values v) { r.output("out", r.mul(v[0], r.mul(v[1], v[2]))); }, {}, test::with(main_mode()));
  const Array x = random_array({3}, 1);
  Array y = Array::empty({3}, f32);
  Array* const target[] = {&y};
  const int values = has_codegen() ? 1'000'000 : 10'000;
  for (int i = 0; i < values; ++i) {
    const Argument in[] = {{&x, {}}, number(1.0 / (i + 1)), number(double(i))};
    program.call_into(in, target);
  }
  CHECK(y.at<float>({1}) == x.at<float>({1}) * static_cast<float>(1.0 / values * (values - 1)));
  CHECK(program.stats().recordings == 1);
  CHECK(program.stats().calls == values);
}

TEST_CASE("program: captured arrays are read at each call", "[program]") {
  for (const Mode mode : modes()) {
    Array table = random_array({33}, 2);
    const Array reversed = table.slice(0, table.dim(0) - 1, Array::kToEnd, 1);
    Program program(
        [&](ProgramRecorder& r, Values v) {
          const Value t = r.capture(table);
          CHECK(r.capture(Array(table)).node == t.node);  // the same view
          CHECK(r.capture(table.slice(0, 1)).node != t.node);
          r.output("out", r.add(r.mul(v[0], t), v[1]));
        },
        {}, test::with(mode));
    const Array x = random_array({33}, 1);
    const auto check = [&](const Array& y, float k) {
      for (std::int64_t i = 0; i < 33; ++i) REQUIRE(y.at<float>({i}) == x.at<float>({i}) * table.at<float>({i}) + k);
    };
    for (const float k : {0.5f, 2.0f}) {
      const Argument in[] = {{&x, {}}, number(double{k})};
      check(program.call(in)[0], k);
      table.span<float>()[7] = k;
      check(program.call(in)[0], k);
    }
    CHECK(program.stats().recordings == 1);
    // the destination may be the captured array
    const Argument in[] = {{&x, {}}, number(0.0)};
    const Array expected = program.call(in)[0];
    Array* const target[] = {&table};
    program.call_into(in, target);
    CHECK(test::same_but_for_nan(table, expected));
  }
}

TEST_CASE("program: captured arrays live as long as the program", "[program]") {
  std::vector<float> memory(8, 2.0f);
  const auto owner = std::make_shared<int>(0);
  const Array x = random_array({8}, 1);
  {
    Program program(
        [&](ProgramRecorder& r, Values v) { r.output("out", r.mul(v[0], r.capture(Array::wrap(std::span<float>(memory), {8}, owner)))); },
        {}, test::with(main_mode()));
    CHECK(program.call(arguments({&x}))[0].at<float>({3}) == 2 * x.at<float>({3}));
    CHECK(owner.use_count() == 2);
  }
  CHECK(owner.use_count() == 1);
}

TEST_CASE("program: a number that selects the recorded code", "[program]") {
  const auto choose = [](Recorder& r, Values v) {
    r.output("out", r.integer(v[1], "a choice") > 1 ? r.add(v[0], v[0]) : r.mul(v[0], v[1]));
  };
  for (const Mode mode : modes()) {
    Program program(choose, {}, test::with(mode));
    const Array x = random_array({33}, 1);
    for (const int k : {0, 2, 1, 3, 0}) {
      const Argument in[] = {{&x, {}}, number(std::int64_t{k})};
      CHECK(test::same_but_for_nan(program.call(in)[0], Program(choose, {}, test::with(Mode::reference)).call(in)[0]));
    }
  }
}

TEST_CASE("program: a thousand lengths compile one kernel", "[program]") {
  if (!has_codegen()) return;
  Program program([](Recorder& r, Values v) { r.output("out", r.add(r.mul(r.literal(1.25), v[0]), v[1])); }, {},
                  test::with(Mode::generic, 1));
  const Array x = random_array({1100}, 1), y = random_array({1100}, 2);
  for (std::int64_t n = 2; n < 1002; ++n) {
    const Array a = x.slice(0, 0, n), b = y.slice(0, 0, n);
    const Array out = program.call(arguments({&a, &b}))[0];
    if (n % 97 == 0)
      for (std::int64_t i = 0; i < n; ++i) REQUIRE(out.at<float>({i}) == 1.25f * x.at<float>({i}) + y.at<float>({i}));
  }
  CHECK(program.stats().kernels == 1);
  CHECK(program.stats().compiles <= 1);
  CHECK(program.stats().recordings == 1000);
  CHECK(program.stats().calls == 1000);
}

TEST_CASE("program: plans can be inspected", "[program]") {
  Program program(softmax, {"x"}, test::with(main_mode()));
  CHECK(program.explain() == "no call yet\n");
  CHECK(program.last_report()->kernels.empty());
  const ArgumentType type{f32, {8, 100}, {}};
  const PlanReport report = program.report({&type, 1});
  CHECK(program.stats().calls == 0);
  if (has_codegen()) {
    CHECK(report.kernels.size() == 1);
    CHECK(report.partition.groups.size() == 1);
  }
  const Array x = random_array({8, 100}, 1);
  program.call(arguments({&x}));
  CHECK(ir::print(program.last_report()->optimised) == ir::print(report.optimised));
  CHECK(last_optimized_graph() == ir::print(report.optimised));
  if (has_codegen()) {
    CHECK_THAT(program.explain(), Catch::Contains("1 kernel,") && Catch::Contains("as out") && Catch::Contains(": output"));
    CHECK(program.stats().bytes_written == 3200);
    CHECK(program.stats().launches == 1);
  }
  CHECK(program.output_names(arguments({&x})) == std::vector<std::string>{"out"});
}

TEST_CASE("program: check_recording detects changes", "[program]") {
  Options options = test::with(main_mode());
  options.check_recording = true;
  int runs = 0;
  Program structure([&](Recorder& r, Values v) { r.output("out", ++runs % 2 ? r.add(v[0], v[0]) : r.mul(v[0], v[0])); }, {}, options);
  const Array x = random_array({4}, 1);
  CHECK_THAT(message<Error>([&] { structure.call(arguments({&x})); }),
             Catch::Contains("recorded `add` f32[4] first, but `mul` f32[4]") && Catch::Contains("captured number has probably changed"));
  Program value([&](Recorder& r, Values v) { r.output("out", r.mul(v[0], r.literal(double(++runs)))); }, {}, options);
  CHECK_THAT(message<Error>([&] { value.call(arguments({&x})); }),
             Catch::Contains("a captured variable changed") && Catch::Contains("Pass values that change as arguments"));
  Array captured = random_array({4}, 3);
  Program reads([&](ProgramRecorder& r, Values v) { r.output("out", r.add(v[0], r.capture(captured))); }, {}, options);
  reads.call(arguments({&x}));
  captured = random_array({4}, 4);
  CHECK_THAT(message<Error>([&] { reads.call(arguments({&x})); }), Catch::Contains("captured a different Array"));
  double k = 2;
  Program later([&](Recorder& r, Values v) { r.output("out", r.mul(r.mul(v[0], v[1]), r.literal(k))); }, {}, options);
  for (const double argument : {0.5, 0.25, 0.5}) {  // arguments of a call may change
    const Argument in[] = {{&x, {}}, number(argument)};
    CHECK(later.call(in)[0].at<float>({1}) == x.at<float>({1}) * static_cast<float>(argument) * 2);
  }
  k = 3;
  const Argument in[] = {{&x, {}}, number(0.5)};
  CHECK_THAT(message<Error>([&] { later.call(in); }), Catch::Contains("was 2 when the function was recorded and is 3 now"));
  Program fine(affine, {}, options);
  const Array w = random_array({4}, 2);
  CHECK(fine.call(arguments({&x, &w, &w})).size() == 1);
}

TEST_CASE("program: threads may call one program at once", "[program]") {
  for (const Mode mode : modes()) {
    Program program(affine, {}, test::with(mode, 2));
    std::vector<Array> xs, ws, bs, expected;
    for (int k = 0; k < 12; ++k) {
      const std::int64_t n = k == 11 ? 300 : 3 + 5 * k, m = k == 11 ? 400 : 7;
      xs.push_back(random_array({n, m}, static_cast<std::uint64_t>(k)));
      ws.push_back(random_array({m}, 50));
      bs.push_back(random_array({n, 1}, 60));
      expected.push_back(Program(affine, {}, test::with(Mode::reference)).call(arguments({&xs.back(), &ws.back(), &bs.back()}))[0]);
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 60; ++i) {
          const auto k = static_cast<std::size_t>((i * 7 + t * 5) % 12);
          const auto in = arguments({&xs[k], &ws[k], &bs[k]});
          if (i % 2) {
            if (!test::same_but_for_nan(program.call(in)[0], expected[k])) ++wrong;
          } else {
            Array y = Array::empty(Extents(xs[k].shape()), f32);
            Array* const target[] = {&y};
            program.call_into(in, target);
            if (!test::same_but_for_nan(y, expected[k])) ++wrong;
          }
          if (i % 16 == 0 && (program.stats().calls < 0 || program.explain().empty())) ++wrong;
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
    CHECK(program.stats().calls == 240);
  }
}

TEST_CASE("program: a function may call another program and itself during its recording", "[program]") {
  Program inner([](Recorder& r, Values v) { r.output("out", r.add(v[0], v[0])); }, {}, test::with(main_mode()));
  const Array x = random_array({6}, 1);
  Program outer(
      [&](Recorder& r, Values v) {
        const Array y = inner.call(arguments({&x}))[0];
        r.output("out", r.mul(v[0], r.literal(static_cast<double>(y.at<float>({0})))));
      },
      {}, test::with(main_mode()));
  const Array y = outer.call(arguments({&x}))[0];
  CHECK(y.at<float>({1}) == x.at<float>({1}) * (2 * x.at<float>({0})));
}

TEST_CASE("program: an expired program's plans are not found by its successor", "[program]") {
  const Array x = random_array({6}, 1);
  for (int i = 0; i < 20; ++i) {
    Program program([i](Recorder& r, Values v) { r.output("out", r.add(v[0], r.literal(double(i)))); }, {}, test::with(main_mode()));
    CHECK(program.call(arguments({&x}))[0].at<float>({2}) == x.at<float>({2}) + static_cast<float>(i));
  }
}

TEST_CASE("program: the kernel cache keeps its limits", "[program]") {
  if (!has_codegen()) return;
  set_kernel_cache_limits(2, 1 << 20);
  const Array x = random_array({6}, 1);
  for (int i = 1; i < 6; ++i) {
    Program program(
        [i](Recorder& r, Values v) {
          Value y = v[0];
          for (int k = 0; k < i; ++k) y = r.mul(y, v[0]);
          r.output("out", y);
        },
        {}, test::with(Mode::generic));
    program.call(arguments({&x}));
    CHECK(kernel_cache_stats().entries <= 2);
  }
  CHECK(kernel_cache_stats().evictions > 0);
  set_kernel_cache_limits(4096, std::int64_t{256} << 20);
}

TEST_CASE("program: a host's floating-point control changes no bit and is restored", "[program]") {
  const Array x = random_array({50}, 1), w = random_array({50}, 2), b = random_array({50}, 3);
  const auto in = arguments({&x, &w, &b});
  const Array expected = Program(affine, {}, test::with(Mode::reference)).call(in)[0];
  for (const Mode mode : modes()) {
    Program program(affine, {}, test::with(mode));
    program.call(in);
    const std::uint64_t before = os::floating_point_control();
#if defined(__x86_64__)
    const std::uint64_t toward_zero = before | 0x6000;
#else
    const std::uint64_t toward_zero = before | (std::uint64_t{3} << 22);
#endif
    os::set_floating_point_control(toward_zero);
    const Array got = program.call(in)[0];
    const std::uint64_t after = os::floating_point_control();
    os::set_floating_point_control(before);
    CHECK(after == toward_zero);
    CHECK(test::same_but_for_nan(got, expected));
  }
}

TEST_CASE("program: a warm call into existing arrays allocates nothing", "[program]") {
  if (!has_codegen()) return;
  Program program(affine, {}, test::with(Mode::generic));
  const Array x = random_array({16}, 1), w = random_array({16}, 2), b = random_array({16}, 3);
  Array y = Array::empty({16}, f32);
  const auto in = arguments({&x, &w, &b});
  Array* const target[] = {&y};
  for (int i = 0; i < 1000; ++i) program.call_into(in, target);
  const auto before = memory::statistics().allocations;
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const std::int64_t start = os::nanoseconds();
    for (int i = 0; i < 1000; ++i) program.call_into(in, target);
    best = std::min(best, static_cast<double>(os::nanoseconds() - start) / 1000);
  }
  CHECK(memory::statistics().allocations == before);
  fmt::print("a warm call on 16 floats: {:.0f} ns\n", best);
}
