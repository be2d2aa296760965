// LoopProgram: nests as loops. Each program is verified and interpreted, and gives the reference's bits. Malformed programs are rejected.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "compiler/loops/contract.h"
#include "compiler/loops/layout.h"
#include "compiler/loops/policy.h"
#include "compiler/loops/program.h"
#include "compiler/loops/transform.h"
#include "compiler/plan/scratch.h"
#include "golden.h"
#include "how_long.h"
#include "ir/order.h"
#include "onepass/error.h"
#include "plans_of.h"
#include "random_graph.h"
#include "random_program.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::test;
namespace loops = onepass::compiler::loops;
using compiler::loops::Code, compiler::loops::Line, compiler::loops::Program;

namespace {

// Returns a description of the first difference between interpreted loops and the reference; empty if all bits are equal.
std::string difference(const ir::Graph& graph, std::span<const ir::ArrayView> views, bool unfused = false, std::int64_t* counted = nullptr,
                       bool as_run = false) {
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, views);
  std::int64_t count = 0;
  std::string log, what;
  const RunOptions options{.unfused = unfused, .log = &log, .interpreted = &count, .as_run = as_run};
  if (!equals_bitwise(run(graph, views, options), expected, &what)) return what + "\n" + log;
  if (counted) *counted += count;
  return {};
}

std::vector<test::Extents> shapes_of(const Golden& golden) {
  std::vector<test::Extents> out;
  for (const std::int64_t n : {3, 70, has_sanitizer() ? 100 : 300}) {
    test::Extents e;
    std::int64_t next = n;
    for (const char letter : letters_of(golden))
      e[letter] = std::max(golden.many, letters_of(golden).size() > 2 ? next % 17 + 5 : next), next = next * 7 % 311 + 2;
    out.push_back(e);
  }
  return out;
}

}  // namespace

TEST_CASE("loops: each sweep of a softmax is a loop, and a value is in the innermost loop that it depends on", "[loops]") {
  const ir::Graph graph =
      optimised("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", {{"x", {40, 1000}}});
  const std::vector<compiler::Planned> planned = plans_of(graph);
  REQUIRE(planned.size() == 1);
  const Program program = loops::lower(planned[0].nest);
  CHECK(loops::verify(program) == "");
  CHECK(loops::print(program, planned[0].numbers) == R"(program   loops i0 < 40, i1 < 1000
for i0
  start a0 = maximum over {i1} in any order
  for i1
    v3 = load %0[1000*i0 + i1] : f32
    a0 = maximum a0, v3
  v5 = result a0 : f32
  start a1 = add over {i1} in lanes
  for i1
    v8 = load %0[1000*i0 + i1] : f32
    v9 = sub v8, v5 : f32
    v10 = exp v9 : f32
    a1 = add a1, v10
  v12 = result a1 : f32
  for i1
    v14 = load %0[1000*i0 + i1] : f32
    v15 = sub v14, v5 : f32
    v16 = exp v15 : f32
    v17 = div v16, v12 : f32
    store %9[1000*i0 + i1] = v17
)");
}

TEST_CASE("loops: sums over all rows are read after the loop over rows", "[loops]") {
  const ir::Graph graph =
      optimised("y = x*s; dx, ds = vjp(y, [x, s], d); r = sum(x*d, axis=1)", {{"x", {600, 70}}, {"s", {70}}, {"d", {600, 70}}});
  bool has_columns = false;
  for (const compiler::Planned& p : plans_of(graph)) {
    const Program program = loops::lower(p.nest);
    INFO(loops::print(program, p.numbers));
    CHECK(loops::verify(program) == "");
    for (const loops::Accumulator& a : program.accumulators) {
      if (a.axes.empty()) continue;
      has_columns = true;
      CHECK(a.order == loops::Accumulator::Order::Rows);
      CHECK(program.lines[0].code == Code::Start);  // before the loops that are split between tasks
    }
  }
  CHECK(has_columns);
  CHECK(difference(graph, random_arguments(graph, 3).views) == "");
}

TEST_CASE("loops: the golden functions give the reference's bits", "[loops]") {
  std::int64_t count = 0;
  std::size_t checks = 0;
  for (const Golden& golden : kGolden) {
    for (const test::Extents& extents : shapes_of(golden)) {
      INFO(golden.name);
      const ir::Graph graph = graph_of(golden, extents);
      ++checks;
      for (const bool strided : {false, true})
        for (const bool unfused : {false, true})
          if (is_checked(unfused, checks + strided, 2))
            CHECK(difference(graph, random_arguments(graph, 1, strided).views, unfused, &count, (checks / 2 + strided) % 2 != 0) == "");
    }
  }
  CHECK(count > 150);
}

TEST_CASE("loops: random graphs give the reference's bits", "[loops]") {
  const auto graphs = static_cast<std::uint64_t>(times(150, 3000));
  std::int64_t count = 0;
  for (std::uint64_t seed = 1; seed <= graphs; ++seed) {
    const RandomGraphOptions options{.max_elements = 1024, .products = true};
    const ir::Graph graph = random_graph(seed, options);
    const std::string what = difference(graph, random_arguments(graph, seed, seed % 2 != 0).views, seed % 3 == 0, &count, seed % 4 < 2);
    INFO("seed " << seed << "\n" << ir::print(graph));
    CHECK(what == "");
    if (!what.empty()) break;
  }
  CHECK(count > static_cast<std::int64_t>(graphs));
}

TEST_CASE("loops: typical programs give the reference's bits", "[loops]") {
  const auto programs = static_cast<std::uint64_t>(times(300, 5000));
  std::int64_t compared = 0;
  for (std::uint64_t number = 0; number < programs; ++number) {
    const RandomProgram drawn = random_program(11, number);
    INFO("program " << number << ": " << drawn.text() << "   " << drawn.shapes());
    const language::Program program = language::parse(drawn.text(), "drawn");
    std::vector<compiler::FormulaInput> types;
    std::vector<Array> arrays;
    for (const std::string& name : compiler::signature_of(program).inputs)
      for (std::size_t k = 0; k < drawn.used().size(); ++k)
        if (drawn.names()[k] == name) {
          const ProgramInput& input = drawn.inputs[drawn.used()[k]];
          types.push_back({input.dtype, {input.shape.begin(), input.shape.end()}});
          arrays.push_back(make_input(input));
        }
    compiler::Recorder recorder;
    recorder.fewest_loop_steps = recorder.fewest_while_steps =
        std::numeric_limits<std::int64_t>::max();  // kernels of steps have no loop program
    try {
      compiler::record_formula(recorder, program, types);
    } catch (const UnsupportedError&) { continue; }
    const ir::Graph graph = ir::prune(compiler::simplify(ir::prune(recorder.graph)));
    std::vector<ir::ArrayView> views;
    for (const Array& a : arrays) {
      const auto shape = a.shape(), strides = a.strides();
      views.push_back({a.dtype(), a.data(), {shape.begin(), shape.end()}, {strides.begin(), strides.end()}});
    }
    try {
      static_cast<void>(ir::evaluate(graph, views));
    } catch (const IndexError&) { continue; }
    const std::string what = difference(graph, views, false, nullptr, number % 2 != 0);
    CHECK(what == "");
    if (!what.empty()) break;
    ++compared;
  }
  CHECK(compared > static_cast<std::int64_t>(programs) * 9 / 10);
}

namespace {

// Returns finite f32 values. Random bits in a long row include a NaN, which hides errors of sums.
Arguments ordinary_arguments(const ir::Graph& graph, std::uint64_t seed) {
  Arguments arguments = random_arguments(graph, seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (std::vector<std::byte>& bytes : arguments.storage)
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      const float value = std::uniform_real_distribution<float>(-1, 1)(random);
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
  return arguments;
}

using Draw = std::function<loops::Id(std::size_t)>;  // returns a random number below its argument
using Changes = std::vector<std::pair<const char*, std::function<void(Program&)>>>;

// Returns changes that move, exchange, remove or rename lines.
Changes changes_by(const Draw& draw) {
  const auto without = [](Program& p, loops::Id gone) {  // later line numbers decrease by one
    const auto moved = [&](loops::Id id) { return id == loops::kNone || id <= gone ? id : id - 1; };
    const auto operand = [&](loops::Id id) { return id == gone ? static_cast<loops::Id>(p.lines.size()) : moved(id); };
    p.lines.erase(p.lines.begin() + gone);
    for (Line& l : p.lines) l.end = moved(l.end), l.a = operand(l.a), l.b = operand(l.b), l.c = operand(l.c), l.guard = operand(l.guard);
  };
  return {
      {"a line is left out", [=](Program& p) { without(p, draw(p.lines.size())); }},
      {"two neighbours change places",
       [=](Program& p) {
         const loops::Id i = draw(p.lines.size() - 1);
         if (p.lines[i].code == Code::Loop || p.lines[i + 1].code == Code::Loop) return;
         std::swap(p.lines[i], p.lines[i + 1]);
         for (Line& l : p.lines)
           for (loops::Id* o : {&l.a, &l.b, &l.c, &l.guard})
             if (*o == i || *o == i + 1) *o = 2 * i + 1 - *o;
       }},
      {"a loop ends earlier or later",
       [=](Program& p) {
         std::vector<loops::Id> all;
         for (loops::Id i = 0; i < p.lines.size(); ++i)
           if (p.lines[i].code == Code::Loop) all.push_back(i);
         Line& loop = p.lines[all[draw(all.size())]];
         loop.end += draw(2) ? 1 : ~loops::Id{0};
       }},
      {"two loops change places",
       [=](Program& p) {
         std::vector<loops::Id> all;
         for (loops::Id i = 0; i < p.lines.size(); ++i)
           if (p.lines[i].code == Code::Loop) all.push_back(i);
         std::swap(p.lines[all[draw(all.size())]].at, p.lines[all[draw(all.size())]].at);
       }},
      {"an operand is read before it is computed",
       [=](Program& p) {
         Line& l = p.lines[draw(p.lines.size())];
         if (l.a != loops::kNone) l.a = draw(2) ? static_cast<loops::Id>(&l - p.lines.data()) : static_cast<loops::Id>(p.lines.size() - 1);
       }},
      {"a sum has other loops",
       [=](Program& p) {
         if (p.accumulators.empty()) return;
         loops::Accumulator& a = p.accumulators[draw(p.accumulators.size())];
         if (draw(2)) a.reduced[draw(a.reduced.size())] = draw(p.nest.loops());
         else if (draw(2)) a.axes.push_back(draw(p.nest.loops()));
         else std::swap(a.reduced.front(), a.reduced.back());
       }},
  };
}

}  // namespace

// Changed programs that the verifier accepts must give the same bits.
TEST_CASE("loops: a changed program is rejected or equivalent", "[loops]") {
  std::mt19937_64 random(5);
  const Draw draw = [&](std::size_t n) { return static_cast<loops::Id>(random() % std::max<std::size_t>(n, 1)); };
  const Changes changes = changes_by(draw);
  std::vector<std::pair<const char*, std::function<void(loops::Accumulator&)>>> sums = {
      {"another order",
       [&](loops::Accumulator& a) { a.order = static_cast<loops::Accumulator::Order>((static_cast<int>(a.order) + 1 + draw(4)) % 5); }},
      {"another operator", [](loops::Accumulator& a) { a.op = a.op == ir::Op::Add ? ir::Op::Mul : ir::Op::Add; }},
      {"products, or none", [](loops::Accumulator& a) { a.is_product = !a.is_product; }},
      {"other runs", [](loops::Accumulator& a) { ++a.runs; }},
      {"a part of an order", [&](loops::Accumulator& a) { a.part = static_cast<loops::Accumulator::Part>(1 + draw(3)); }},
  };
  for (const auto& [name, change] : sums)
    for (const Golden& golden : kGolden)
      for (const compiler::Planned& planned : plans_of(graph_of(golden, shapes_of(golden)[1]))) {
        Program p = loops::lower(planned.nest);
        if (p.accumulators.empty()) continue;
        change(p.accumulators[draw(p.accumulators.size())]);
        INFO(golden.name << ": " << name);
        CHECK(loops::verify(p) != "");
      }
  std::int64_t refused = 0, same = 0;
  for (const Golden& golden : kGolden) {
    const ir::Graph graph = graph_of(golden, shapes_of(golden)[1]);
    const Arguments arguments = random_arguments(graph, 2);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    const std::vector<compiler::Planned> planned = plans_of(graph);
    for (const auto& [name, change] : changes) {
      for (int turn = 0; turn < times(3, 30); ++turn) {
        INFO(golden.name << ", " << name);
        std::int64_t count = 0;
        std::size_t kernel = 0;
        std::string what, text;
        RunOptions options{.interpreted = &count};
        options.change = [&](Program& p) {
          const Program before = p;
          for (int tries = 0; tries < 20 && p == before; ++tries) change(p);
          if (!loops::verify(p).empty()) p = before, ++refused;
          else text += loops::print(p, planned.at(kernel).numbers), same += p != before;
          ++kernel;
        };
        CHECK(equals_bitwise(run(graph, arguments.views, options), expected, &what));
        if (!what.empty()) FAIL(what << "\n" << text);
      }
    }
  }
  CAPTURE(refused, same);
  CHECK(refused > (has_sanitizer() ? 50 : 250));
  CHECK(same > (has_sanitizer() ? 4 : 15));  // swaps of independent neighbors and similar changes
}

// Tests the same property for sums split into chunks, for phases, and for sums with explicit order.
TEST_CASE("loops: a changed program of chunked rows is rejected or equivalent", "[loops]") {
  std::mt19937_64 random(7);
  const Draw draw = [&](std::size_t n) { return static_cast<loops::Id>(random() % std::max<std::size_t>(n, 1)); };
  const auto any_loop = [=](Program& p) -> Line& {
    loops::Id i = draw(p.lines.size());
    while (p.lines[i].code != Code::Loop) i = (i + 1) % static_cast<loops::Id>(p.lines.size());
    return p.lines[i];
  };
  const auto any_sum = [=](Program& p) -> loops::Accumulator& { return p.accumulators[draw(p.accumulators.size())]; };
  Changes changes = changes_by(draw);
  for (const auto& change :
       Changes{{"a loop runs otherwise", [=](Program& p) { any_loop(p).bind = static_cast<loops::Bind>(draw(4)); }},
               {"a loop begins at its end, or no more", [=](Program& p) { any_loop(p).reversed ^= true; }},
               {"a digit has another size",
                [=](Program& p) {
                  loops::Digit& digit = p.digits[p.nest.loops() + draw(p.digits.size() - p.nest.loops())];
                  if (draw(2)) digit.size = digit.size == loops::Digit::Size::Chunk ? loops::Digit::Size::Tile : loops::Digit::Size::Chunk;
                  else digit.by += 1;
                  loops::Digit& pair = p.digits[digit.pair];
                  if (draw(2)) pair.size = digit.size, pair.by = digit.by;
                }},
               {"a sum is another part", [=](Program& p) { any_sum(p).part = static_cast<loops::Accumulator::Part>(draw(4)); }},
               {"a sum is over another digit",
                [=](Program& p) {
                  std::vector<loops::Id>& digits = draw(2) ? any_sum(p).reduced : any_sum(p).axes;
                  if (digits.empty()) digits.push_back(draw(p.digits.size()));
                  else digits[draw(digits.size())] = draw(p.digits.size());
                }},
               {"a sum combines otherwise, or in another order",
                [=](Program& p) {
                  loops::Accumulator& sum = any_sum(p);
                  if (draw(2)) sum.op = sum.op == ir::Op::Add ? ir::Op::Mul : ir::Op::Add;
                  else sum.order = static_cast<loops::Accumulator::Order>(draw(5));
                }},
               {"a sum lacks an axis",
                [=](Program& p) {
                  std::vector<loops::Id>& axes = any_sum(p).axes;
                  if (!axes.empty()) axes.erase(axes.begin() + draw(axes.size()));
                }},
               {"another sum is added to, or read", [=](Program& p) {
                  loops::Id i = draw(p.lines.size());
                  const auto is_of_sum = [](Code c) {
                    return c == Code::Start || c == Code::Accumulate || c == Code::Result || c == Code::Halve;
                  };
                  while (!is_of_sum(p.lines[i].code)) i = (i + 1) % static_cast<loops::Id>(p.lines.size());
                  if (draw(2)) p.lines[i].at = draw(p.accumulators.size());
                  else if (p.lines[i].code == Code::Halve || p.lines[i].code == Code::Result)
                    p.lines[i].code = p.lines[i].code == Code::Halve ? Code::Result : Code::Halve;
                }}})
    changes.push_back(change);
  std::int64_t refused = 0, same = 0;
  for (const char* text : {"x/sum(x, axis=1, keepdims=true)", "m = max(x, axis=1); y = softmax(x)",
                           "(x - mean(x, axis=1, keepdims=true))/(std(x, axis=1, keepdims=true) + 1)"}) {
    const ir::Graph graph = optimised(text, {{"x", {2, 4500}}});
    const Arguments arguments = ordinary_arguments(graph, 2);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    std::int64_t count = 0;
    RunOptions options{.threads = 3, .split_work = 0, .interpreted = &count, .as_run = true};
    std::vector<Program> programs;
    options.change = [&](Program& p) { programs.push_back(p); };
    std::string what;
    REQUIRE(equals_bitwise(run(graph, arguments.views, options), expected, &what));
    const auto is_chunk = [](const loops::Digit& d) { return d.size == loops::Digit::Size::Chunk; };
    REQUIRE(std::ranges::any_of(programs.at(0).digits, is_chunk));
    REQUIRE(std::ranges::any_of(programs.at(0).lines, &Line::reversed));
    for (const auto& [name, change] : changes)
      for (int turn = 0; turn < times(40, 400); ++turn) {
        std::vector<Program> changed = programs;
        Program& one = changed[draw(changed.size())];
        const Program before = one;
        for (int tries = 0; tries < 20 && one == before; ++tries) change(one);
        if (!loops::verify(one).empty()) {
          ++refused;
          continue;
        }
        INFO(text << ", " << name << "\n" << loops::print(one, plans_of(graph).at(0).numbers));
        std::size_t kernel = 0;
        options.change = [&](Program& p) { p = changed[kernel++]; };
        options.order = turn % 2 ? loops::TaskOrder::Reversed : loops::TaskOrder::Shuffled;
        REQUIRE(equals_bitwise(run(graph, arguments.views, options), expected, &what));
        same += one != before;
      }
  }
  CAPTURE(refused, same);
  CHECK(refused > (has_sanitizer() ? 100 : 500));
  CHECK(same > (has_sanitizer() ? 4 : 20));
}

namespace {

// Returns the line of the n-th loop over i<root>, over any part of it.
loops::Id loop_over(const Program& p, loops::Id root, int n = 0) {
  for (loops::Id i = 0; i < p.lines.size(); ++i)
    if (p.lines[i].code == Code::Loop && p.digits[p.lines[i].at].root == root && n-- == 0) return i;
  return loops::kNone;
}

// Returns the difference in bits when the loops of a one-kernel graph are changed; empty if there is none.
std::string difference_when(const ir::Graph& graph, const std::function<Program(const Program&)>& change) {
  const Arguments arguments = random_arguments(graph, 4);
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  for (const loops::TaskOrder order : {loops::TaskOrder::Forward, loops::TaskOrder::Shuffled}) {
    std::int64_t count = 0;
    std::string what;
    RunOptions options{.interpreted = &count, .order = order};
    options.change = [&](Program& p) { p = change(p); };
    if (!equals_bitwise(run(graph, arguments.views, options), expected, &what)) return what;
  }
  return {};
}

Program done(const loops::Transformed& t) {
  if (!t) throw std::runtime_error(t.why_not());
  return *t;
}

}  // namespace

TEST_CASE("loops: a split loop has an outer and an inner part, and the last inner one may be shorter", "[loops]") {
  const ir::Graph graph = optimised("x*s", {{"x", {30, 71}}, {"s", {71}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const auto tiled = [](const Program& p) {
    Program out = done(loops::split(p, loop_over(p, 1), 32));
    out = done(loops::interchange(out, loop_over(out, 0)));  // the outer part around i0
    out = done(loops::bind(out, loop_over(out, 1, 1), loops::Bind::Vector));
    return done(loops::bind(out, loop_over(out, 1), loops::Bind::Parallel));
  };
  CHECK(loops::print(tiled(loops::lower(planned.nest)), planned.numbers) == R"(program   loops i0 < 30, i1 < 71
for i1/32 parallel
  for i0
    for i1%32 vector
      v3 = load %0[71*i0 + i1] : f32
      v4 = load %1[i1] : f32
      v5 = mul v3, v4 : f32
      store %4[71*i0 + i1] = v5
)");
  CHECK(difference_when(graph, tiled) == "");
}

TEST_CASE("loops: an elementwise nest runs in vectors, with separate code for the last one", "[loops]") {
  const ir::Graph graph = optimised("x*w + exp(b)", {{"x", {30, 71}}, {"w", {30, 1}}, {"b", {30, 1}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  compiler::Schedule schedule{.width = 64, .asks_ahead = true, .streamed = {planned.nest.body.back().at}};
  const Program p = loops::elementwise(planned.nest, schedule);
  CHECK(loops::print(p, planned.numbers) == R"(program   loops i0 < 30, i1 < 71
for i0 parallel
  for i1/tile parallel
    v2 = load %1[i0] : f32
    v3 = load %2[i0] : f32
    v4 = exp v3 : f32
    for i1%tile vector of 64 peeled
      prefetch %0[71*i0 + i1] for 512 of i1%tile
      v7 = load %0[71*i0 + i1] : f32
      v8 = mul v7, v2 : f32
      v9 = add v8, v4 : f32
      store %7[71*i0 + i1] = v9 streamed
)");
  CHECK(difference_when(graph, [&](const Program& q) { return loops::elementwise(q.nest, schedule); }) == "");
  schedule.masked = true;
  CHECK_THAT(loops::print(loops::elementwise(planned.nest, schedule), planned.numbers), !Catch::Contains("peeled"));
  const loops::Id vector = loop_over(p, 1, 1);
  CHECK_THAT(loops::peel(p, loop_over(p, 0)).why_not(), Catch::Contains("is neither a vector loop nor a serial loop"));
  CHECK_THAT(loops::stream(p, vector).why_not(), Catch::Contains("is not a store"));
}

TEST_CASE("loops: values that do not fit into registers are recomputed inside the loop that reads them", "[loops]") {
  const ir::Graph graph = optimised("x*w + exp(b)*w", {{"x", {30, 71}}, {"w", {30, 1}}, {"b", {30, 1}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const Program p = loops::lower(planned.nest);
  const loops::Id inner = loop_over(p, 1);
  std::vector<loops::Id> before;
  for (loops::Id i = 1; i < inner; ++i) before.push_back(i);
  REQUIRE(before.size() > 3);
  const Program again = done(loops::remake(p, inner, before));
  CHECK(loops::print(again, planned.numbers) == R"(program   loops i0 < 30, i1 < 71
for i0
  for i1
    v2 = load %0[71*i0 + i1] : f32
    v3 = load %1[i0] : f32
    v4 = mul v2, v3 : f32
    v5 = load %2[i0] : f32
    v6 = exp v5 : f32
    v7 = mul v6, v3 : f32
    v8 = add v4, v7 : f32
    store %8[71*i0 + i1] = v8
)");
  CHECK(difference_when(graph, [&](const Program& q) { return done(loops::remake(q, loop_over(q, 1), before)); }) == "");
  CHECK_THAT(loops::remake(p, inner, {inner + 1}).why_not(), Catch::Contains("does not compute a value before the loop"));
  CHECK_THAT(loops::remake(p, 1, before).why_not(), Catch::Contains("is not a loop"));
}

TEST_CASE("loops: a transposed operand is transposed in squares, a task's part beforehand", "[loops]") {
  const ir::Graph graph = optimised("transpose(x) + y*w", {{"x", {70, 45}}, {"y", {45, 70}}, {"w", {45, 1}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, compiler::Target::generic_cpu());
  REQUIRE(scheduled.schedule.packed.size() == 1);
  const Program p = loops::program_of(planned.nest, scheduled.schedule);
  CHECK(loops::print(p, planned.numbers) == R"(program   loops i0 < 45, i1 < 70
for i0/tile_outer parallel
  for i1/tile parallel
    hold m0{i0, i1} : f32
    for i1%tile/8
      for i0%tile_outer/8
        for i1%tile%8 vector of 8 padded
          for i0%tile_outer%8 unrolled padded
            prefetch %0[i0 + 45*i1] for 1 of i1/tile in the second-level cache
            v8 = load %0[i0 + 45*i1] : f32
            keep m0{i0, i1} = v8
    for i0%tile_outer
      v11 = load %2[i0] : f32
      for i1%tile vector of 16 peeled
        v13 = recall m0{i0, i1} : f32
        prefetch %1[70*i0 + i1] for 1 of i1/tile in the second-level cache
        v15 = load %1[70*i0 + i1] : f32
        v16 = mul v15, v11 : f32
        v17 = add v13, v16 : f32
        store %6[70*i0 + i1] = v17
)");
  const std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, scheduled.numbers);
  CHECK(loops::scratch_bytes(p, words) == scheduled.numbers.scratch_bytes);
  std::int64_t count = 0;
  std::string what;
  const Arguments arguments = random_arguments(graph, 4);
  const RunOptions options{
      .target = compiler::Target::generic_cpu(), .interpreted = &count, .as_run = true, .order = loops::TaskOrder::Shuffled};
  CHECK(equals_bitwise(run(graph, arguments.views, options), ir::evaluate(graph, arguments.views), &what));
}

TEST_CASE("loops: a long body runs in fissioned loops over blocks, with buffers for values of later loops", "[loops]") {
  const ir::Graph graph = optimised("a = x*y + 1.5; b = a*x - y; c = b*a", {{"x", {5000}}, {"y", {5000}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, compiler::Target::generic_cpu());
  const char* const in_three = R"(program   loops i0 < 5000
v0 = slot 0 : f32
for i0/tile parallel
  for i0%tile/2048
    hold m1{i0} : f32
    hold m2{i0} : f32
    hold m0{i0} : f32
    for i0%tile%2048 vector of 16 peeled
      v7 = load %0[i0] : f32
      keep m1{i0} = v7
      v9 = load %1[i0] : f32
      keep m2{i0} = v9
      v11 = mul v7, v9 : f32
      keep m0{i0} = v11
    hold m3{i0} : f32
    for i0%tile%2048 vector of 16 peeled
      v15 = recall m0{i0} : f32
      v16 = add v15, v0 : f32
      keep m3{i0} = v16
    for i0%tile%2048 vector of 16 peeled
      v19 = recall m1{i0} : f32
      v20 = recall m2{i0} : f32
      v21 = recall m3{i0} : f32
      v22 = mul v21, v19 : f32
      v23 = sub v22, v20 : f32
      v24 = mul v23, v21 : f32
      store %7[i0] = v24
)";
  for (std::uint32_t first = 2; first + 2 < planned.nest.body.size(); ++first)
    for (std::uint32_t second = first; second + 1 < planned.nest.body.size(); ++second) {
      compiler::Schedule schedule = scheduled.schedule;
      schedule.parts = {first};
      if (second > first) schedule.parts.push_back(second);
      const Program p = loops::elementwise(planned.nest, schedule);
      if (first == 3 && second == 5) CHECK(loops::print(p, planned.numbers) == in_three);
      const std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, scheduled.numbers);
      CHECK(loops::scratch_bytes(p, words) <= compiler::ScratchLayout(planned.nest, schedule).passed_on.bytes);
      if (second == first) CHECK(difference_when(graph, [&](const Program& q) { return loops::elementwise(q.nest, schedule); }) == "");
    }
  const Program p = loops::elementwise(planned.nest, scheduled.schedule);
  CHECK_THAT(loops::in_order(p, loop_over(p, 0)).why_not(), Catch::Contains("neither a value nor a store"));
}

TEST_CASE("loops: gathered rows are prefetched", "[loops]") {
  const ir::Graph graph = optimised("take(x, i, axis=0)*2", {{"x", {30, 71}}, {"i", {12}}}, i32);
  std::string text;
  for (const compiler::Planned& planned : plans_of(graph)) {
    text += loops::print(loops::program_of(planned.nest, {.width = 16, .asks_ahead = true}), planned.numbers);
  }
  CHECK(text == R"(program   loops i0 < 12, i1 < 71
v0 = slot 0 : i32
for i0 parallel
  for i1/tile parallel
    v3 = load %1[i0] : i32
    s1 = place v3 below 30 : i64
    prefetch %0[i1 + 71*s1] for 8 of i0
    for i1%tile vector of 16 peeled
      v7 = load %0[i1 + 71*s1] : i32
      v8 = mul v7, v0 : i32
      store %7[71*i0 + i1] = v8
)");
}

TEST_CASE("loops: loads are prefetched half a page ahead if that is cheap or much is read", "[loops]") {
  const auto text = [](std::string_view program, bool asks_ahead) {
    const compiler::Planned planned = plans_of(optimised(program, {{"x", {12, 71}}, {"y", {71}}})).at(0);
    return loops::print(loops::program_of(planned.nest, {.width = 16, .asks_ahead = asks_ahead}), planned.numbers);
  };
  CHECK_THAT(text("x*2", false), !Catch::Contains("prefetch"));
  CHECK_THAT(text("x*2", true), Catch::Contains("prefetch %0[i0] for 512 of i0%tile\n    v4 = load %0[i0]"));
  CHECK_THAT(text("tanh(x)", false), Catch::Contains("prefetch %0[i0] for 512 of i0%tile\n    v3 = load %0[i0]"));
  CHECK_THAT(text("tanh(x) + y", false), Catch::Contains("prefetch %0[71*i0 + i1] for 512") && Catch::Contains("prefetch %1[i1] for 512"));
}

TEST_CASE("loops: several loads are prefetched together, or none", "[loops]") {
  const compiler::Planned planned = plans_of(optimised("x*y + z", {{"x", {70}}, {"y", {70}}, {"z", {70}}}, f16)).at(0);
  const Program p = loops::lower(planned.nest);
  std::vector<loops::Id> loads;
  for (loops::Id i = 0; i < p.lines.size(); ++i)
    if (p.lines[i].code == loops::Code::Load) loads.push_back(i);
  REQUIRE(loads.size() == 3);
  const Program q = done(loops::prefetch(p, loads, loop_over(p, 0), 256));
  std::size_t count = 0;
  for (loops::Id i = 0; i + 1 < q.lines.size(); ++i)
    if (q.lines[i].code == loops::Code::Prefetch) {
      CHECK(q.lines[i].count == 128);
      CHECK(q.lines[i + 1].code == loops::Code::Load);
      CHECK(q.lines[i + 1].at == q.lines[i].at);
      ++count;
    }
  CHECK(count == 3);
  CHECK_THAT(loops::prefetch(p, {loads[1], loads[0]}, loop_over(p, 0), 256).why_not(), Catch::Contains("must be in the order"));
  CHECK_THAT(loops::prefetch(p, std::vector{loop_over(p, 0)}, loop_over(p, 0), 256).why_not(), Catch::Contains("is not a load"));
  CHECK_THAT(loops::prefetch(p, loads, loads[0], 256).why_not(), Catch::Contains("is not a loop"));
}

TEST_CASE("loops: a matrix product in tiles of both loops has a sum for each element of a tile", "[loops]") {
  const ir::Graph graph = optimised("maximum(a @ b + c, 0)", {{"a", {13, 300}}, {"b", {300, 45}}, {"c", {45}}});
  REQUIRE(plans_of(graph).size() == 1);
  // for i, j: start; for k: add; result, store   ->   for i/4, j/16: start; for k, i%4, j%16: add; for i%4, j%16: result, store
  const loops::Id i = 0, k = 1, j = 2;
  const auto tiled = [&](const Program& p) {
    Program out = done(loops::split(p, loop_over(p, j), 16));
    out = done(loops::split(out, loop_over(out, i), 4));
    out = done(loops::interchange(out, loop_over(out, i, 1)));  // j/16 around i%4
    for (const loops::Id root : {j, i}) {                       // moves each inside k, and again around the lines after the sum
      out = done(loops::fission(out, loop_over(out, root, 1), out.lines[loop_over(out, k)].end));
      out = done(loops::interchange(out, loop_over(out, root, 1)));
    }
    return out;
  };
  std::string text;
  CHECK(difference_when(graph, [&](const Program& p) {
          const Program out = tiled(p);
          text = loops::print(out, plans_of(graph).at(0).numbers);
          return out;
        }) == "");
  CHECK_THAT(text, Catch::Contains("start a0{i2%16, i0%4} = add of products over {i1} in sequence\n"
                                   "    for i1\n"
                                   "      for i0%4\n"
                                   "        for i2%16\n"));
}

TEST_CASE("loops: changes of an order or a result are rejected with a reason", "[loops]") {
  const ir::Graph graph = optimised("sum(x, axis=0)", {{"x", {300, 5, 7}}});
  const Program p = loops::lower(plans_of(graph).at(0).nest);
  const loops::Id reduced = p.accumulators.at(0).reduced[0];
  const Program parts = done(loops::split(p, loop_over(p, reduced), 8));
  CHECK_THAT(loops::interchange(parts, loop_over(parts, reduced)).why_not(), Catch::Contains("in a different order"));
  CHECK_THAT(loops::bind(p, loop_over(p, reduced), loops::Bind::Parallel).why_not(), Catch::Contains("in a parallel loop"));
  CHECK_THAT(loops::bind(p, loop_over(p, reduced), loops::Bind::Vector).why_not(), Catch::Contains("has an order"));
  CHECK_THAT(loops::interchange(p, loop_over(p, reduced)).why_not(), Catch::Contains("another line"));
  CHECK_THAT(loops::split(p, loop_over(p, reduced) + 1, 8).why_not(), Catch::Contains("is not a loop"));
  CHECK_THAT(loops::split(p, loop_over(p, reduced), 0).why_not(), Catch::Contains("0 iterations"));
  // a maximum has no order
  const ir::Graph extreme = optimised("max(x, axis=0)", {{"x", {300, 5, 7}}});
  CHECK(difference_when(extreme, [](const Program& q) {
          const loops::Id root = q.accumulators.at(0).reduced[0];
          const Program two = done(loops::split(q, loop_over(q, root), 8));
          return done(loops::interchange(two, loop_over(two, root)));
        }) == "");
}

// Any sequence of accepted transformations gives the same bits.
TEST_CASE("loops: random transformations give the reference's bits", "[loops]") {
  std::mt19937_64 random(9);
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1)); };
  std::int64_t counts[8] = {}, refused = 0;
  const auto change = [&](Program& p) {
    for (int k = 0; k < 12 && p.lines.size() < 200; ++k) {
      std::vector<loops::Id> all;
      for (loops::Id i = 0; i < p.lines.size(); ++i)
        if (p.lines[i].code == Code::Loop) all.push_back(i);
      if (all.empty()) return;
      const loops::Id loop = all[draw(all.size())];
      const std::size_t what = draw(8);
      const auto line = static_cast<loops::Id>(draw(p.lines.size()));
      constexpr loops::Bind kBinds[] = {loops::Bind::Vector, loops::Bind::Unrolled, loops::Bind::Parallel};
      const auto transformed = [&]() -> loops::Transformed {
        switch (what) {
          case 0: return loops::split(p, loop, static_cast<std::int64_t>(draw(9) + 1));
          case 1: return loops::interchange(p, loop);
          case 2: return loops::fission(p, loop, static_cast<loops::Id>(loop + 1 + draw(p.lines[loop].end - loop - 1)));
          case 3: return loops::bind(p, loop, kBinds[draw(3)]);
          case 4: return loops::expand_order(p, static_cast<loops::Id>(draw(p.accumulators.size())));
          case 5:
            for (loops::Id k = 0; k < p.lines.size(); ++k)
              if (loops::Transformed held = loops::hold(p, static_cast<loops::Id>((line + k) % p.lines.size()))) return held;
            return "nothing is computed again";
          case 6:
            for (loops::Id k = 0; k < p.lines.size(); ++k) {
              const auto store = static_cast<loops::Id>((line + k) % p.lines.size());
              loops::Id around = store;
              while (around > 0 && (p.lines[around].code != Code::Loop || p.lines[around].end <= store)) --around;
              if (loops::Transformed deferred = loops::defer(p, store, around)) return deferred;
            }
            return "nothing is stored in a loop";
          default: return loops::stage(p, line, loop);
        }
      };
      const loops::Transformed t = transformed();
      if (t) p = *t, ++counts[what];
      else ++refused;
    }
  };
  const auto check = [&](const ir::Graph& graph, std::uint64_t seed) {
    const Arguments arguments = random_arguments(graph, seed);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    std::int64_t count = 0;
    std::string what, text;
    RunOptions options{.interpreted = &count, .order = seed % 2 ? loops::TaskOrder::Reversed : loops::TaskOrder::Shuffled};
    const std::vector<compiler::Planned> planned = plans_of(graph);
    std::size_t kernel = 0;
    options.change = [&](Program& p) {
      change(p);
      if (kernel < planned.size() && p.nest == planned[kernel].nest) text += loops::print(p, planned[kernel].numbers);
      ++kernel;
    };
    bool same = false;
    try {
      same = equals_bitwise(run(graph, arguments.views, options), expected, &what);
    } catch (const std::exception& e) { what = e.what(); }
    if (!same) UNSCOPED_INFO(what << "\n" << ir::print(graph) << text);
    CHECK(same);
    return same;
  };
  for (const Golden& golden : kGolden)
    for (int turn = 0; turn < times(4, 40); ++turn) REQUIRE(check(graph_of(golden, shapes_of(golden)[0]), 3));
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(times(150, 3000)); ++seed) {
    INFO("seed " << seed);
    REQUIRE(check(random_graph(seed, {.max_elements = 512}), seed));
  }
  CAPTURE(refused);
  for (const std::int64_t n : counts) CHECK(n > (has_sanitizer() ? 2 : 20));
}

TEST_CASE("loops: explicit order of a sum: accumulators are halved, blocks make a pairwise tree", "[loops]") {
  const ir::Graph graph = optimised("sum(x, axis=1)", {{"x", {3, 9000}}});
  const auto expanded = [](const Program& p) { return done(loops::expand_order(p, 0)); };
  const compiler::Planned planned = plans_of(graph).at(0);
  CHECK(loops::print(expanded(loops::lower(planned.nest)), planned.numbers) == R"(program   loops i0 < 3, i1 < 9000
for i0
  start a0 = add over {i1/4096} as a tree of blocks
  for i1/4096
    start a1{i1%4096%64} = add over {i1%4096/64} in each lane
    for i1%4096/64
      for i1%4096%64
        v6 = load %0[9000*i0 + i1] : f32
        a1 = add a1, v6
    v8 = halve a1 : f32
    a0 = add a0, v8
  v10 = result a0 : f32
  store %1[i0] = v10
)");
  std::int64_t number = 0;
  for (const char* text : {"sum(x, axis=1)", "sum(x, axis=0)", "sum(x*x)", "prod(x, axis=0)", "x @ transpose(x)", "transpose(x) @ x"})
    for (const std::int64_t n : {1, 7, 64, 257, 4097})
      for (const DType dtype : {f32, f64}) {
        if ((n > 300 && dtype != f32) || !runs_case(number++)) continue;
        const ir::Graph one = optimised(text, {{"x", {n, 19}}}, dtype), other = optimised(text, {{"x", {5, n}}}, dtype);
        INFO(text << ", " << n);
        const auto each = [](const Program& p) {
          Program out = p;
          for (loops::Id a = 0; a < p.accumulators.size(); ++a)
            if (const loops::Transformed t = loops::expand_order(out, a)) out = *t;
          return out;
        };
        for (const ir::Graph* graph : {&one, &other})
          if (graph->elements(graph->outputs[0]) < 5000) CHECK(difference_when(*graph, each) == "");
      }
}

// Returns the difference of interpreted runs with tasks in each order, and of compiled kernels in both tiers; empty if there is none.
std::string difference_as_run(const ir::Graph& graph, std::uint64_t seed, int threads = 1) {
  RunOptions options{.threads = threads};
  if (threads > 1) options.split_work = 0;
  const Arguments arguments = ordinary_arguments(graph, seed);
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  std::string what;
  for (const loops::TaskOrder order : {loops::TaskOrder::Forward, loops::TaskOrder::Reversed, loops::TaskOrder::Shuffled}) {
    std::int64_t count = 0;
    RunOptions interpreted = options;
    interpreted.interpreted = &count, interpreted.as_run = true, interpreted.order = order;
    if (!equals_bitwise(run(graph, arguments.views, interpreted), expected, &what)) return what;
  }
  for (const bool masked : {false, true}) {
    options.masked = masked;
    if (!equals_bitwise(run(graph, arguments.views, options), expected, &what)) return what;
  }
  return {};
}

TEST_CASE("loops: rows are vectorized in the loops of all sums of a sweep, and values of two sweeps are buffered", "[loops]") {
  const ir::Graph graph = optimised("softmax(x)", {{"x", {40, 1000}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const compiler::Schedule schedule = compiler::schedule(planned.nest, planned.numbers, target).schedule;
  REQUIRE(loops::has_program(planned.nest, schedule));
  CHECK(loops::print(loops::program_of(planned.nest, schedule), planned.numbers) == R"(program   loops i0 < 40, i1 < 1000
for i0 parallel
  start a0 = maximum over {i1} in any order
  for i1/64 peeled
    for i1%64/32 unrolled
      for i1%64%32 vector of 32
        v5 = load %0[1000*i0 + i1] : f32
        a0 = maximum a0, v5
  v7 = result a0 : f32
  start a1 = add over {i1/4096} as a tree of blocks
  hold m0{i1} : f32
  for i1/4096 once
    start a2{i1%4096%64/32, i1%4096%64%32} = add over {i1%4096/64} in each lane
    for i1%4096/64 peeled
      for i1%4096%64/32 unrolled
        for i1%4096%64%32 vector of 32
          v15 = load %0[1000*i0 + i1] : f32
          v16 = sub v15, v7 : f32
          v17 = exp v16 : f32
          keep m0{i1} = v17
          a2 = add a2, v17
    v20 = halve a2 : f32
    a1 = add a1, v20
  v22 = result a1 : f32
  v23 = reciprocal v22 : f32
  for i1 vector of 32 peeled
    v25 = recall m0{i1} : f32
    v26 = mul v25, v23 : f32
    store %11[1000*i0 + i1] = v26
)");
  for (const char* text :
       {"sum(x, axis=1)", "softmax(x)", "max(x, axis=1) - sum(x*x, axis=1)", "x*sum(exp(sin(x))*tanh(x), axis=1, keepdims=true)",
        "sum(cast(x, f64), axis=1) + cast(prod(x, axis=1), f64)", "sum(x*x, axis=1) + cast(argmin(x, axis=1), f32)"})
    for (const std::int64_t n : {1, 64, 333, 4097, 9000}) {
      if (n > 5000 && has_sanitizer()) continue;
      INFO(text << ", " << n);
      CHECK(difference_as_run(optimised(text, {{"x", {2, n}}}), static_cast<std::uint64_t>(n)) == "");
    }
}

TEST_CASE("loops: short rows are the lanes of vectors, and their arrays are transposed in loops of their own", "[loops]") {
  const ir::Graph graph = optimised("softmax(x)", {{"x", {100, 10}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const compiler::Schedule schedule = compiler::schedule(planned.nest, planned.numbers, target).schedule;
  CHECK(schedule.row_lanes == 16);
  CHECK(loops::print(loops::program_of(planned.nest, schedule), planned.numbers) == R"(program   loops i0 < 100, i1 < 10
for i0/16 parallel
  for i0%16 vector of 16
    start a0 = maximum over {i1} in any order
    hold m1{i1} : f32
    for i1/16
      for i1%16 unrolled
        v6 = load %0[10*i0 + i1] : f32
        keep m1{i1} = v6
    for i1
      v9 = recall m1{i1} : f32
      a0 = maximum a0, v9
    v11 = result a0 : f32
    start a1 = add over {i1/4096} as a tree of blocks
    hold m0{i1} : f32
    for i1/4096 once
      start a2{i1%4096%64} = add over {i1%4096/64} in each lane
      for i1%4096/64 once
        for i1%4096%64
          v18 = recall m1{i1} : f32
          v19 = sub v18, v11 : f32
          v20 = exp v19 : f32
          keep m0{i1} = v20
          a2 = add a2, v20
      v23 = halve a2 : f32
      a1 = add a1, v23
    v25 = result a1 : f32
    v26 = reciprocal v25 : f32
    hold m2{i1} : f32
    for i1
      v29 = recall m0{i1} : f32
      v30 = mul v29, v26 : f32
      keep m2{i1} = v30
    for i1/16
      for i1%16 unrolled
        v34 = recall m2{i1} : f32
        store %11[10*i0 + i1] = v34
)");
  for (const char* text : {"sum(x, axis=1)", "softmax(x)", "x*max(x, axis=1)[:, none] - sum(x*x, axis=1)[:, none]",
                           "x*cast(sum(cast(x, f64), axis=1)[:, none], f32)*prod(x, axis=1)[:, none]",
                           "s = softmax(x); y = x - s; z = exp(s) - sum(y, axis=1)[:, none]"})
    for (const std::int64_t n : {9, 16, 17, 32}) {
      INFO(text << ", " << n);
      CHECK(difference_as_run(optimised(text, {{"x", {70, n}}}), static_cast<std::uint64_t>(n)) == "");
    }
}

TEST_CASE("loops: a store may be deferred to a later loop, and a load may recall a held element", "[loops]") {
  const ir::Graph graph = optimised("softmax(x)", {{"x", {100, 10}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  Program p = loops::lower(planned.nest);
  const auto find = [&](Code code, loops::Id from = 0) {
    while (p.lines[from].code != code) ++from;
    return from;
  };
  const loops::Id load = find(Code::Load), store = find(Code::Store);
  loops::Id loop = store;
  while (p.lines[loop].code != Code::Loop) --loop;
  CHECK(loops::recall(p, load, 0).why_not() == "the buffer m0 does not exist");
  CHECK(loops::recall(p, store, 0).why_not() == fmt::format("line {} does not compute a value that can be stored", store));
  CHECK(loops::defer(p, load, loop).why_not() == fmt::format("line {} is not a store", load));
  CHECK(loops::defer(p, store, 1).why_not() == fmt::format("line 1 is not a loop around line {}", store));
  const loops::Transformed deferred = loops::defer(p, store, loop);
  REQUIRE(deferred);
  CHECK(loops::verify(*deferred) == "");
  CHECK(deferred->memories.size() == p.memories.size() + 1);
  const loops::Transformed staged = loops::stage(p, load, load - 1);
  REQUIRE(staged);
  p = *staged;
  const loops::Id again = find(Code::Load, find(Code::Load) + 1);
  const loops::Transformed recalled = loops::recall(p, again, 0);
  REQUIRE(recalled);
  CHECK(recalled->lines[again].code == Code::Recall);
  CHECK(loops::recall(p, find(Code::Op), 0).why_not() == "m0 does not have the element that it loads");
}

TEST_CASE("loops: rows with a common operand share a vector loop, which reads it once", "[loops]") {
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const compiler::Planned abreast = plans_of(optimised("sum(x*w, axis=1)", {{"x", {50, 300}}, {"w", {300}}})).at(0);
  const compiler::Schedule four = compiler::schedule(abreast.nest, abreast.numbers, target).schedule;
  REQUIRE(four.abreast == 4);
  CHECK(loops::print(loops::program_of(abreast.nest, four), abreast.numbers) == R"(program   loops i0 < 50, i1 < 300
for i0/4 parallel
  start a0{i0%4} = add over {i1/4096} as a tree of blocks
  for i1/4096 once
    start a1{i0%4, i1%4096%64/32, i1%4096%64%32} = add over {i1%4096/64} in each lane
    for i1%4096/64 peeled
      for i1%4096%64/32 unrolled
        for i1%4096%64%32 vector of 32
          v7 = load %1[i1] : f32
          for i0%4 unrolled
            v9 = load %0[300*i0 + i1] : f32
            v10 = mul v9, v7 : f32
            a1 = add a1, v10
    for i0%4 unrolled
      v13 = halve a1 : f32
      a0 = add a0, v13
  for i0%4 unrolled
    v16 = result a0 : f32
    store %5[i0] = v16
)");
  for (const char* text : {"sum(x*w, axis=1)", "x @ w", "sum(cast(x, f64)*cast(w, f64), axis=1)", "exp(sum((x - w)**2, axis=1))",
                           "y = x*w; s = sum(y, axis=1)"})
    for (const std::int64_t n : {1, 64, 333, 4097}) {
      if (n > 4000 && has_sanitizer()) continue;
      INFO(text << ", " << n);
      CHECK(difference_as_run(optimised(text, {{"x", {39, n}}, {"w", {n}}}), static_cast<std::uint64_t>(n)) == "");
    }
  for (const std::int64_t n : {4, 11})  // a task has several rows of the enclosing loop
    CHECK(difference_as_run(optimised("sum(x*w, axis=2)", {{"x", {50, 1, 130}}, {"w", {1, n, 130}}}), 1) == "");
}

TEST_CASE("loops: loop-invariant values are computed before the loop", "[loops]") {
  const ir::Graph graph = optimised("sum(x*reshape(w, [40, 1]), axis=0)", {{"x", {40, 7}}, {"w", {40}}});
  const loops::Id k = 0, j = 1;
  const auto columns_inside = [&](const Program& p) {
    const Program two = done(loops::fission(p, loop_over(p, j), p.lines[loop_over(p, k)].end));
    return done(loops::interchange(two, loop_over(two, j)));
  };
  std::string text;
  CHECK(difference_when(graph, [&](const Program& p) {
          const Program turned = columns_inside(p);
          const Program out = done(loops::lift(turned, loop_over(turned, j)));
          text = loops::print(out, plans_of(graph).at(0).numbers);
          return out;
        }) == "");
  CHECK(text == R"(program   loops i0 < 40, i1 < 7
start a0{i1} = add over {i0} in rows
for i0
  v2 = load %1[i0] : f32
  for i1
    v4 = load %0[7*i0 + i1] : f32
    v5 = mul v4, v2 : f32
    a0 = add a0, v5
for i1
  v8 = result a0 : f32
  store %5[i1] = v8
)");
  const Program elementwise = loops::lower(plans_of(optimised("x + w", {{"x", {5, 40}}, {"w", {40}}})).at(0).nest);
  CHECK(loops::lift(elementwise, loop_over(elementwise, 1)).why_not() == "all values in it depend on the loop");
}

TEST_CASE("loops: rows split between tasks are summed in chunks, with a separate phase for each sweep", "[loops]") {
  const ir::Graph graph = optimised("x/sum(x, axis=1, keepdims=true)", {{"x", {2, 100000}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target, {.threads = 2, .split_work = 0});
  REQUIRE(scheduled.schedule.split);
  const Program program = loops::program_of(planned.nest, scheduled.schedule);
  CHECK(loops::print(program, planned.numbers) == R"(program   loops i0 < 2, i1 < 100000
start a0{i0} = add over {i1/chunk} as a tree of chunks
for i0 parallel
  for i1/chunk parallel
    start a1 = add over {i1%chunk/4096} as a tree of blocks
    for i1%chunk/4096
      start a2{i1%chunk%4096%64/32, i1%chunk%4096%64%32} = add over {i1%chunk%4096/64} in each lane
      for i1%chunk%4096/64 peeled
        for i1%chunk%4096%64/32 unrolled
          for i1%chunk%4096%64%32 vector of 32
            v9 = load %0[100000*i0 + i1] : f32
            a2 = add a2, v9
      v11 = halve a2 : f32
      a1 = add a1, v11
    v13 = result a1 : f32
    a0 = add a0, v13
for i0 parallel
  v16 = result a0 : f32
  for i1/chunk parallel reversed
    for i1%chunk vector of 32 peeled
      v19 = load %0[100000*i0 + i1] : f32
      v20 = div v19, v16 : f32
      store %4[100000*i0 + i1] = v20
)");
  CHECK(loops::count_phases(program) == static_cast<std::size_t>(scheduled.numbers.phases));
  const std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, scheduled.numbers);
  CHECK(loops::scratch_bytes(program, words) <= scheduled.numbers.scratch_bytes);
  CHECK(loops::shared_bytes(program, words) <= scheduled.numbers.shared_bytes);
  std::size_t checks = 0;
  for (const char* text :
       {"sum(x, axis=1)", "softmax(x)", "max(x, axis=1) - sum(x*x, axis=1)", "m = max(x, axis=1); y = softmax(x)", "any(x > 0.999, axis=1)",
        "(x - mean(x, axis=1, keepdims=true))/(std(x, axis=1, keepdims=true) + 1)", "sum(x)", "m = max(x); s = x - m; t = sum(exp(x - m))",
        "y = 2*x; s = sum(y, axis=1, keepdims=true); z = x*s", "sum(cast(x, f64), axis=1) + cast(prod(x, axis=1), f64)"})
    for (const std::int64_t n : {4097, 9000, 33000}) {
      if (n > 5000 && (has_sanitizer() || !is_checked(n > 9000, ++checks / 2, 2))) continue;
      INFO(text << ", " << n);
      CHECK(difference_as_run(optimised(text, {{"x", {2, n}}}), static_cast<std::uint64_t>(n), 3) == "");
    }
  CHECK(difference_as_run(optimised("sum(x*reshape(w, [3, 1, 1]), axis=2)", {{"x", {3, 2, 9000}}, {"w", {3}}}), 1, 2) == "");
  // values between split loops are stored by only one task
  const ir::Graph both = optimised("m = max(x, axis=1); y = softmax(x)", {{"x", {2, 33000}}});
  Counts counts;
  static_cast<void>(run(both, random_arguments(both, 1).views, {.threads = 3, .split_work = 0, .counts = &counts}));
  for (const Counts::Array& array : counts.arrays)
    for (const std::uint8_t times : array.stores) REQUIRE(times <= 1);
  // refused: sums that are read before all tasks have added to them, or that each task would restart
  const Program chunks = done(loops::factor(loops::lower(planned.nest), loop_over(loops::lower(planned.nest), 1)));
  CHECK(loops::bind(chunks, loop_over(chunks, 1), loops::Bind::Parallel).why_not() == "line 9: reads a0 while tasks add to it");
  Program carried = program;
  carried.accumulators[0].axes.clear();
  CHECK(loops::verify(carried) == "line 0: is carried from one task to another");
  Program alone = program;  // one chunk's sum instead of the total
  for (Line& l : alone.lines)
    if (l.code == Code::Result && l.at == 0) l.at = 1;
  CHECK(loops::verify(alone) != "");
  const Program several = loops::lower(plans_of(optimised("sum(x, axis=[0, 2])", {{"x", {5, 4, 7}}})).at(0).nest);
  CHECK(loops::factor(several, loop_over(several, 2)).why_not() == "the sum runs over several loops");
}

TEST_CASE("loops: a tiled product with explicit order has a tree for each element of the tile", "[loops]") {
  const ir::Graph graph = optimised("a @ b", {{"a", {6, 700}}, {"b", {700, 37}}});
  const loops::Id k = 1, j = 2;
  std::string text;
  CHECK(difference_when(graph, [&](const Program& p) {
          Program out = done(loops::split(p, loop_over(p, j), 16));
          out = done(loops::fission(out, loop_over(out, j, 1), out.lines[loop_over(out, k)].end));
          out = done(loops::interchange(out, loop_over(out, j, 1)));
          out = done(loops::expand_order(out, 0));
          out = done(loops::bind(out, loop_over(out, j, 1), loops::Bind::Vector));
          text = loops::print(out, plans_of(graph).at(0).numbers);
          return out;
        }) == "");
  CHECK_THAT(text, Catch::Contains("start a1{i2%16} = add of products over {i1%256} in sequence") && Catch::Contains("for i2%16 vector"));
}

TEST_CASE("loops: values that two sweeps compute are cached in a row buffer", "[loops]") {
  const ir::Graph graph =
      optimised("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", {{"x", {4, 1000}}});
  const auto kept = [](const Program& p) {
    loops::Id line = 0;
    while (p.lines[line].op != ir::Op::Exp) ++line;
    return done(loops::hold(p, line));
  };
  const compiler::Planned planned = plans_of(graph).at(0);
  const std::string text = loops::print(kept(loops::lower(planned.nest)), planned.numbers);
  CHECK_THAT(text, Catch::Contains("  hold m0{i1} : f32\n") && Catch::Contains("    keep m0{i1} = v11\n") &&
                       Catch::Contains("    v16 = recall m0{i1} : f32\n    v17 = div v16, v14 : f32\n"));
  CHECK(text.find("load") != text.rfind("load"));
  CHECK(difference_when(graph, kept) == "");
  const Program p = loops::lower(planned.nest);
  CHECK_THAT(loops::hold(p, 0).why_not(), Catch::Contains("not compute a value that can be stored"));
  for (loops::Id i = 0; i < p.lines.size(); ++i)
    if (p.lines[i].op == ir::Op::Div) CHECK_THAT(loops::hold(p, i).why_not(), Catch::Contains("no later line recomputes it"));
}

TEST_CASE("loops: a panel of an operand is packed before the rows that read it", "[loops]") {
  const ir::Graph graph = optimised("a @ b", {{"a", {9, 70}}, {"b", {70, 37}}});
  const loops::Id i = 0, j = 2;
  std::string text;
  CHECK(difference_when(graph, [&](const Program& p) {
          Program out = done(loops::split(p, loop_over(p, j), 16));
          out = done(loops::interchange(out, loop_over(out, i)));  // j/16 around the rows
          loops::Id load = 0;
          while (out.lines[load].code != Code::Load || out.nest.body[out.lines[load].of].loops != 6) ++load;  // b[k, j]
          out = done(loops::stage(out, load, loop_over(out, i)));
          text = loops::print(out, plans_of(graph).at(0).numbers);
          return out;
        }) == "");
  CHECK_THAT(text, Catch::Contains("for i2/16\n  hold m0{i2, i1} : f32\n  for i2%16\n    for i1\n") &&
                       Catch::Contains("recall m0{i2, i1} : f32\n"));
  const Program p = loops::lower(plans_of(graph).at(0).nest);
  for (loops::Id line = 0; line < p.lines.size(); ++line)
    if (p.lines[line].code == Code::Result)
      CHECK_THAT(loops::stage(p, line, loop_over(p, i)).why_not(), Catch::Contains("not compute a value that can be stored"));
}

TEST_CASE("loops: a contraction runs in tiles of its result with packed operands", "[loops]") {
  const ir::Graph graph = optimised("max(a @ b + c, 0)", {{"a", {29, 300}}, {"b", {300, 37}}, {"c", {37}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const Program p = loops::contract(planned.nest, {.rows = 14, .width = 32, .packs_rows = true, .packs_columns = true});
  CHECK(loops::print(p, planned.numbers) == R"(program   loops i0 < 29, i1 < 300, i2 < 37
for i0/tile_outer parallel
  for i2/tile parallel
    start a0{i2%tile%32, i0%tile_outer%14, i0%tile_outer/14, i2%tile/32} = add over {i1/256} as a tree of blocks
    for i1/256
      hold m0{i2/32, i1, i2%32} : f32
      for i1%256
        for i2%tile/32
          for i2%tile%32 vector of 32 padded
            prefetch %1[37*i1 + i2] for 2 of i1%256
            v9 = load %1[37*i1 + i2] : f32
            keep m0{i2, i1} = v9
      hold m1{i0/14, i1/256, i0%14, i1%256} : f32
      for i0%tile_outer/14
        for i0%tile_outer%14 padded
          for i1%256 vector
            prefetch %0[300*i0 + i1] for 2 of i0%tile_outer%14
            v16 = load %0[300*i0 + i1] : f32
            keep m1{i0, i1} = v16
      for i2%tile/32
        for i0%tile_outer/14
          start a1{i0%tile_outer%14, i2%tile%32} = add of products over {i1%256} in sequence
          for i1%256 unless zero
            for i0%tile_outer%14 unrolled
              for i2%tile%32 vector of 32
                v24 = recall m1{i0, i1} : f32
                v25 = recall m0{i2, i1} : f32
                a1 = fma a1, v24, v25
          for i0%tile_outer%14
            for i2%tile%32 vector of 32
              v29 = result a1 : f32
              a0 = add a0, v29
    for i0%tile_outer/14
      for i0%tile_outer%14
        for i2%tile/32
          for i2%tile%32 vector of 32
            v35 = result a0 : f32
            v36 = load %2[i2] : f32
            v37 = add v35, v36 : f32
            store %11[37*i0 + i2] = v37
)");
}

TEST_CASE("loops: contractions in tiles of any size give the reference's bits", "[loops]") {
  struct Case {
    const char* text;
    std::vector<std::pair<const char*, std::vector<std::int64_t>>> shapes;
  };
  const std::vector<Case> cases = {
      {"a @ b", {{"a", {9, 70}}, {"b", {70, 37}}}},
      {"max(a @ b + c, 0)", {{"a", {29, 300}}, {"b", {300, 37}}, {"c", {37}}}},
      {"transpose(a) @ b", {{"a", {70, 9}}, {"b", {70, 5}}}},
      {"(a*2 + d) @ exp(b)", {{"a", {7, 513}}, {"d", {513}}, {"b", {513, 3}}}},
      {"einsum(\"nik,nkj->nij\", a, b)", {{"a", {3, 6, 40}}, {"b", {3, 40, 17}}}},
      {"cast(cast(a*9, i32) @ cast(b*9, i32), f32)", {{"a", {5, 600}}, {"b", {600, 18}}}},
  };
  const int orders = times(2, 2);
  std::int64_t contractions = 0, count = 0, tiles = 0, run_tiles = 0;
  for (const Case& c : cases) {
    std::vector<std::pair<std::string, compiler::Shape>> shapes;
    for (const auto& [name, shape] : c.shapes) shapes.push_back({name, {shape.begin(), shape.end()}});
    const ir::Graph graph = optimised(c.text, shapes);
    const auto arguments = random_arguments(graph, 3);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    for (const compiler::RegisterTile tile : {compiler::RegisterTile{14, 32, false, true, true},
                                              {3, 8, false, true, false},
                                              {2, 16, false, false, true, 8},
                                              {6, 16, false, false, false},
                                              {5, 8, false, true, true, 4},
                                              {3, 24, false, true, true, 0, 8},        // several vectors
                                              {4, 16, false, true, true, 0, 0, true},  // packed once for all tasks
                                              {4, 16, false, true, true, 8, 8, true},
                                              {3, 16, false, true, true, 0, 8, false, true},  // along the rows
                                              {4, 8, false, false, false, 8},                 // transposed at each read
                                              {2, 8, false, false, false, 8, 0, false, true}}) {
      if (!runs_case(tiles++)) continue;  // eleven tiles for each case, so the next case has the others
      ++run_tiles;
      for (int k = 0; k < orders; ++k) {
        const loops::TaskOrder order = k ? loops::TaskOrder::Forward : loops::TaskOrder::Shuffled;
        INFO(c.text << " in tiles of " << int{tile.rows} << " by " << int{tile.width});
        std::string what;
        const RunOptions options{.interpreted = &count, .order = order, .change = [&](Program& p) {
                                   if (loops::contraction_of(p.nest).sum == loops::kNone) return;
                                   ++contractions;
                                   p = loops::contract(p.nest, tile);
                                 }};
        CHECK(equals_bitwise(run(graph, arguments.views, options), expected, &what));
        CHECK(what == "");
      }
    }
  }
  CHECK(contractions == run_tiles * orders);
}

TEST_CASE("loops: the scratch of a contraction matches its program's layout", "[loops]") {
  int shared = 0, swapped = 0;
  for (const auto& [m, k, n] :
       {std::array<std::int64_t, 3>{4, 1, 1}, {5, 256, 16}, {29, 257, 37}, {128, 784, 10}, {97, 1000, 3}, {1000, 3000, 700}})
    for (const char* text : {"a @ b", "transpose(transpose(a)*1) @ b"}) {
      const ir::Graph graph = optimised(text, {{"a", {m, k}}, {"b", {k, n}}});
      for (const compiler::Planned& planned : plans_of(graph)) {
        if (loops::contraction_of(planned.nest).sum == loops::kNone) continue;
        for (const bool packs : {false, true})
          for (const int threads : {1, 16}) {
            compiler::RegisterTile tile;
            compiler::ScheduleNumbers numbers{.work = m * n * k};
            REQUIRE(loops::choose_tile(planned.nest, planned.numbers, compiler::Target::host(), {.threads = threads}, tile, numbers));
            CHECK(numbers.shared_bytes == loops::shared_bytes(planned.nest, planned.numbers, tile));
            CHECK(numbers.phases == (tile.shared ? 2 : 1));
            shared += tile.shared, swapped += tile.swapped;
            tile.packs_rows = tile.packs_columns = packs;
            tile.shared &= packs;
            const Program program = loops::contract(planned.nest, tile);
            const std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, numbers);
            CHECK(loops::scratch_bytes(program, words) == loops::scratch_bytes(planned.nest, planned.numbers, tile, numbers));
            CHECK(loops::shared_bytes(program, words) == loops::shared_bytes(planned.nest, planned.numbers, tile));
            CHECK((tile.swapped ? numbers.tile_outer : numbers.tile) % tile.width == 0);
            CHECK((tile.swapped ? numbers.tile : numbers.tile_outer) % tile.rows == 0);
          }
      }
    }
  CHECK(shared > 0);
  CHECK(swapped > 0);
}

TEST_CASE("loops: tasks of a contraction load the threads evenly, and their sums stay in half of the second-level cache", "[loops]") {
  // Up to 1 MiB, the cache allows few sizes of tasks: one thread may have a quarter more than an even load. Therefore every machine also
  // tests a cache of 2 MiB, with a tenth.
  constexpr std::int64_t one_mib = 1 << 20;
  const compiler::Target host = compiler::Target::host();
  std::vector<compiler::Target> targets{host, host};
  targets[1].l2_bytes = 2 * one_mib;
  int prefetched = 0, shared = 0;
  for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{64, 4096, 64},
                                {128, 784, 512},
                                {300, 300, 300},
                                {600, 256, 700},
                                {1024, 1024, 1024},
                                {5000, 9000, 4000}})
    for (const DType type : {DType::F32, DType::F64})
      for (const auto& [threads, target] : {std::pair{2, targets[0]}, {4, targets[0]}, {2, targets[1]}, {4, targets[1]}}) {
        const ir::Graph graph = optimised("a @ b", {{"a", {m, k}}, {"b", {k, n}}}, type);
        const compiler::Planned planned = plans_of(graph).at(0);
        compiler::RegisterTile tile;
        compiler::ScheduleNumbers numbers{.work = m * n * k};
        REQUIRE(loops::choose_tile(planned.nest, planned.numbers, target, {.threads = threads}, tile, numbers));
        const auto up = [](std::int64_t a, std::int64_t by) { return (a + by - 1) / by; };
        const std::int64_t rows = numbers.tile_outer / tile.rows, columns = numbers.tile / tile.width,
                           size = static_cast<std::int64_t>(size_of(type));
        INFO(m << " by " << k << " by " << n << ", " << name_of(type) << ", cache of " << target.l2_bytes << " bytes, tasks of " << rows
               << " by " << columns << " tiles");
        const int levels = std::bit_width(static_cast<std::uint64_t>(up(k, ir::kRowBlock)));
        if (levels > 1 && rows * columns > 1) CHECK(rows * tile.rows * columns * tile.width * size * levels <= target.l2_bytes / 2);
        std::vector<std::int64_t> loads(static_cast<std::size_t>(threads), 0);  // each task goes to the thread that is free first
        for (std::int64_t r = 0; r < up(m, tile.rows); r += rows)
          for (std::int64_t c = 0; c < up(n, tile.width); c += columns)
            *std::ranges::min_element(loads) += std::min(rows, up(m, tile.rows) - r) * std::min(columns, up(n, tile.width) - c);
        const std::int64_t all = up(m, tile.rows) * up(n, tile.width);
        CHECK(std::ranges::max(loads) <=
              std::max(up(all, threads), target.l2_bytes > one_mib ? all * 11 / (threads * 10) : all * 5 / (threads * 4)));
        const std::string text = loops::print(loops::contract(planned.nest, tile), planned.numbers);
        CHECK((text.find("prefetch m") != std::string::npos) == (tile.asks_ahead && tile.packs_columns));
        prefetched += tile.asks_ahead && tile.packs_columns, shared += tile.shared;
      }
  CHECK(prefetched > 0);
  CHECK(shared > 0);
}

TEST_CASE("loops: sums selected by a condition are skipped where it is false", "[loops]") {
  const std::vector<std::pair<std::string, compiler::Shape>> shapes = {{"a", {40, 20}}, {"b", {20, 50}}, {"c", {40, 50}}};
  const auto planned = [&](const char* text) { return plans_of(optimised(text, shapes)).at(0); };
  const auto text_of = [&](const char* text) {
    const compiler::Planned p = planned(text);
    return loops::print(loops::contract(p.nest, {4, 16, true, true, true}), p.numbers);
  };
  CHECK_THAT(text_of("i = iota([40]); j = iota([50]); out = where(i[:, none] >= j[none, :], (a @ b)*2, -1)"),
             Catch::Contains("for i1%256 where s"));
  CHECK_THAT(text_of("where(c > 0, a @ b, -1)"), Catch::Contains("for i1%256 where s"));
  // sum also needed elsewhere; selected where the condition is false; condition on the sum
  for (const char* text : {"s = a @ b; out = where(c > 0, s, s*2)", "where(c > 0, -1, a @ b)", "s = a @ b; out = where(s > 0, s, 0)"}) {
    INFO(text);
    CHECK(text_of(text).find(" where s") == std::string::npos);
    const Program p = loops::lower(planned(text).nest);
    loops::Id condition = 0, sum = 0;
    while (p.nest.body[condition].op != ir::Op::Greater) ++condition;
    while (p.lines[sum].code != Code::Accumulate) ++sum;
    loops::Id loop = sum;
    while (p.lines[loop].code != Code::Loop || p.lines[loop].at != 1) --loop;
    CHECK_THAT(loops::leave_out(p, loop, condition).why_not(), Catch::Contains("skips sums that other statements need"));
  }
}

TEST_CASE("loops: a loop over zero products may be skipped if it adds a whole sum of them", "[loops]") {
  const compiler::Planned planned = plans_of(optimised("a @ b", {{"a", {40, 600}}, {"b", {600, 50}}})).at(0);
  const auto text_of = [&](compiler::RegisterTile tile) {
    tile.rows = 4, tile.width = tile.vector = 16;
    return loops::print(loops::contract(planned.nest, tile), planned.numbers);
  };
  CHECK_THAT(text_of({.packs_rows = true, .packs_columns = true}), Catch::Contains("for i1%256 unless zero"));
  CHECK_THAT(text_of({.packs_columns = true}), !Catch::Contains("unless zero"));
  const Program lowered = loops::lower(planned.nest);
  for (loops::Id i = 0; i < lowered.lines.size(); ++i)
    if (lowered.lines[i].code == Code::Loop) CHECK_THAT(loops::skip_zeros(lowered, i).why_not(), Catch::Contains("skips"));
  // Other code in the loop, a sum that started earlier, a part of a sum.
  Program p = loops::contract(planned.nest, {.rows = 4, .width = 16, .packs_rows = true, .packs_columns = true, .vector = 16});
  loops::Id loop = 0;
  while (!p.lines[loop].zeros) ++loop;
  REQUIRE(loops::verify(p).empty());
  Program parallel = p;
  parallel.lines[loop].bind = loops::Bind::Parallel;
  CHECK(!loops::verify(parallel).empty());
  Program other = p;
  other.lines[loop - 2].zeros = true;
  CHECK(!loops::verify(other).empty());
  Program no_loop = p;
  no_loop.lines[loop - 1].zeros = true;  // the start of the sum
  CHECK_THAT(loops::verify(no_loop), Catch::Contains("is not a loop"));
}

TEST_CASE("loops: the reduced loop of pairs runs inside the vectors, with its sums in registers", "[loops]") {
  const ir::Graph graph = optimised("sum((a[:, none] - b[none, :])*3, 0)", {{"a", {1000}}, {"b", {70}}});
  const compiler::Planned planned = plans_of(graph).at(0);
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target);
  REQUIRE(scheduled.schedule.reduced_inside);
  const Program p = loops::program_of(planned.nest, scheduled.schedule);
  CHECK(loops::print(p, planned.numbers) == R"(program   loops i0 < 1000, i1 < 70
v0 = slot 0 : f32
for i1/tile parallel
  for i1%tile vector of 64
    start a0 = add over {i0/256} as a tree of blocks
    v4 = load %1[i1] : f32
    for i0/256
      start a1 = add over {i0%256/8} in sequence
      for i0%256/8 peeled
        start a2 = add over {i0%256%8} as a tree of eight
        for i0%256%8 unrolled
          v10 = load %0[i0] : f32
          v11 = sub v10, v4 : f32
          v12 = mul v11, v0 : f32
          a2 = add a2, v12
        v14 = result a2 : f32
        a1 = add a1, v14
      v16 = result a1 : f32
      a0 = add a0, v16
    v18 = result a0 : f32
    store %9[i1] = v18
)");
  const std::vector<std::int64_t> words = compiler::make_words(planned.nest, planned.numbers, scheduled.numbers);
  CHECK(loops::scratch_bytes(p, words) <= scheduled.numbers.scratch_bytes);
  const auto is_inside = [](const compiler::Planned& from) {
    return compiler::schedule(from.nest, from.numbers, compiler::Target::generic_cpu()).schedule.reduced_inside;
  };
  CHECK(is_inside(plans_of(optimised("max(a[:, none] - b[none, :], 0)", {{"a", {40}}, {"b", {70}}})).at(0)));
  CHECK(!is_inside(plans_of(optimised("sum(a*b[none, :], 0)", {{"a", {40, 70}}, {"b", {70}}})).at(0)));     // reads a along both loops
  CHECK(!is_inside(plans_of(optimised("sum(exp(a[:, none]) - b, 0)", {{"a", {40}}, {"b", {70}}})).at(0)));  // would repeat the exponentials
  std::int64_t number = 0;
  for (const char* text : {"sum(a[:, none] - b[none, :], 0)", "sum(exp(a[:, none]*b[none, :]), 0)", "prod(a[:, none] + b[none, :], 0)",
                           "max(a[:, none]*b[none, :], 0)", "v = a[:, none]*b[none, :]; s = sum(v, 0) + sum(v*v, 0); t = s - min(v, 0)",
                           "v = a[:, none] + b[none, :]; sum(exp(v - max(v, 0, keepdims=true)), 0)",
                           "sum(maximum(a[:, none, none], b[none, :, none])*c[none, none, :], 0)"})
    for (const std::int64_t n : {1, 7, 8, 257, 1100})
      for (const std::int64_t m : {3, 70}) {
        ++number;
        if (!runs_case(number + number / 2)) continue;  // each length with either other length
        INFO(text << ", " << n << ", " << m);
        CHECK(difference_as_run(optimised(text, {{"a", {n}}, {"b", {m}}, {"c", {5}}}), static_cast<std::uint64_t>(n)) == "");
      }
}

TEST_CASE("loops: windows are reduced inside the vectors, with bounds checks only at the edges", "[loops]") {
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const auto program = [&](std::string_view text) {
    const compiler::Planned planned = plans_of(optimised(text, {{"x", {70, 500}}, {"k", {5}}, {"w", {3, 5}}, {"y", {8, 500}}})).at(0);
    const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target);
    return scheduled.schedule.reduced_inside ? loops::print(loops::program_of(planned.nest, scheduled.schedule), planned.numbers) : "";
  };
  CHECK(program(R"(correlate(x, k, "same", 1))") == R"(program   loops i0 < 70, i1 < 5, i2 < 500
for i0 parallel
  for i2/tile parallel
    for i2%tile vector of 64 peeled
      start a0 = add of products over {i1} in sequence
      for i1
        v5 = guard 0 <= i1 + i2 - 2 < 500
        v6 = load %0[500*i0 + i1 + i2 - 2] where v5 : f32
        v7 = load %1[i1] : f32
        a0 = fma a0, v6, v7
      v9 = result a0 : f32
      store %7[500*i0 + i2] = v9
)");
  CHECK(program(R"(correlate(x, w, "same", [0, 1]))") != "");
  CHECK(program("max(y, 0)") == "");  // no windows
  for (const char* text :
       {R"(correlate(x, k, "same", 1))", R"(correlate(x, k, "same", 0))", R"(correlate(x, k, "full", 1))",
        R"(correlate(x, w, "same", [0, 1]))", R"(correlate(x, w, "full", [0, 1])*2 + 1)", "mean(sliding_window(x, 6, 1), -1)",
        "std(sliding_window(x, 6, 0), -1)", "max(sliding_window(pad(x, [2, 3], [1, 4], -1.5), [3, 4], [0, 1]), [-1, -2])",
        "mean(sliding_window(pad(x, [3, 3], [3, 3]), 7, 1), -1)", "min(sliding_window(x, 3, 1, 2), -1)",
        R"(y = correlate(x, k, "same", 1); m = max(sliding_window(pad(x, [0, 2], [0, 2]), 5, 1), -1))"})
    for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{7, 9}, {9, 64}, {9, 65}, {8, 150}}) {
      INFO(text << ", " << n << ", " << m);
      CHECK(difference_as_run(optimised(text, {{"x", {n, m}}, {"k", {5}}, {"w", {3, 5}}}), static_cast<std::uint64_t>(n)) == "");
    }
}

TEST_CASE("loops: the loop that computes an extreme finds its index", "[loops]") {
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const auto text_of = [&](std::string_view text, std::vector<std::int64_t> shape, DType dtype = f32) {
    const compiler::Planned planned = plans_of(optimised(text, {{"x", std::move(shape)}}, dtype)).at(0);
    return loops::print(loops::program_of(planned.nest, compiler::schedule(planned.nest, planned.numbers, target).schedule),
                        planned.numbers);
  };
  CHECK(text_of("argmin(x, 1)", {40, 1000}) == R"(program   loops i0 < 40, i1 < 1000
for i0 parallel
  start a0 = index of the minimum over {i1} in sequence
  for i1/64 peeled
    for i1%64/16 unrolled
      for i1%64%16 vector of 16
        v5 = load %0[1000*i0 + i1] : f32
        v6 = index i1 : i64
        a0 = find a0, v5, v6
  v8 = result a0 : i64
  store %11[i0] = v8
)");
  CHECK_THAT(text_of("argmax(x, 1)", {100, 10}, i32), Catch::Contains("index of the maximum") && Catch::Contains("for i0%16 vector of 16"));
  const compiler::Planned planned = plans_of(optimised("argmin(x, 1)", {{"x", {40, 1000}}})).at(0);
  const Program p = loops::lower(planned.nest, true);
  Program q = p;  // the index of another element
  for (loops::Line& l : q.lines)
    if (l.code == loops::Code::Accumulate) l.b = l.a;
  CHECK_THAT(loops::verify(q), Catch::Contains("adds other values than the elements and their indices"));
  std::int64_t number = 0;
  for (const char* text : {"argmin(x, 1)", "argmax(x, 0)", "argmax(x)", "i = argmax(x*x, 1); m = max(x*x, 1)", "cast(argmin(x, 1), f32)*2",
                           "v = x - x[:, :1]; i = argmin(v, 1); j = argmax(v, 1); s = sum(v, 1)"})
    for (const std::int64_t n : {1, 2, 10, 33, 64, 200, 5000})
      for (const DType dtype : {f32, f64, i32}) {
        if ((n > 300 && dtype != f32) || !runs_case(number++)) continue;
        INFO(text << ", " << n);
        CHECK(difference_as_run(optimised(text, {{"x", {19, n}}}, dtype), static_cast<std::uint64_t>(n)) == "");
      }
}

TEST_CASE("loops: rows that are contiguous along the reduced loop are transposed in registers while they are reduced", "[loops]") {
  const compiler::Target target = compiler::Target::generic_cpu().with_vector_bytes(64);
  const auto inside = [&](std::string_view text) {
    const compiler::Planned planned = plans_of(optimised(text, {{"x", {70, 90}}, {"y", {90, 70}}})).at(0);
    return compiler::schedule(planned.nest, planned.numbers, target).schedule.reduced_inside;
  };
  CHECK(inside("sum(transpose(x), 0)"));
  CHECK(inside("v = transpose(x)*y; v - sum(v, 0, keepdims=true)"));
  CHECK(!inside("sum(y, 0)"));
  for (const char* text : {"sum(transpose(x), 0)", "sum(transpose(x)*y, 0)", "v = transpose(x) + y; v - sum(v, 0, keepdims=true)",
                           "v = transpose(x); exp(v - max(v, 0, keepdims=true))", "prod(transpose(x[:, ::2]), 0)",
                           "argmax(transpose(x), 0)", "v = transpose(x)*2; a = sum(v, 0); b = v/(1 + max(v, 0, keepdims=true))"})
    for (const std::int64_t n : {7, 60, 300})
      for (const std::int64_t m : {5, 70}) {
        INFO(text << ", " << n << ", " << m);
        CHECK(difference_as_run(optimised(text, {{"x", {m, n}}, {"y", {n, m}}}), static_cast<std::uint64_t>(n)) == "");
      }
}

TEST_CASE("loops: vectors of a reduction run along the loop in which its elements, not its results, are contiguous", "[loops]") {
  for (const char* text : {"sum(transpose(x), 1)", "max(transpose(x), 1)", "a = sum(transpose(x), 1); b = sum(transpose(x)*2, 1)"}) {
    INFO(text);
    const compiler::Nest nest = plans_of(optimised(text, {{"x", {10, 30, 64}}})).at(0).nest;
    for (const compiler::Statement& s : nest.body)
      if (s.kind == compiler::Statement::Kind::Load)
        CHECK(nest.linears[nest.accesses[s.at].linear].of[nest.vector_loop()] == compiler::Coefficient::One);
  }
}
