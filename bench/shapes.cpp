// Measures the cost of shapes: the first call with a new shape, on arrays so small that overhead dominates; the plan verifier's part of
// that cost, for the golden functions; and elementwise programs with generic against shape-specialized kernels, timed alternately.
//   shapes [divisor of all sizes: 1, or 0: only new shapes]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <onepass/onepass.h>

#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "compiler/plan/verify_plan.h"
#include "compiler/structure.h"
#include "in_turn.h"
#include "runtime/launch.h"
#include "runtime/threads.h"
#include "tests/golden.h"

namespace op = onepass;
using op::Array, op::Formula, op::Tensor;

namespace {

op::Options in(op::Mode mode) {
  op::Options options = op::bench::in_mode(mode);
  options.check_recording = false;
  return options;
}

// Prints the median of 300 shapes.
template <class F> void new_shapes(const char* name, const F& f, double wanted) {
  std::vector<double> all;
  for (int n = 2; n < 302; ++n) {
    const Array x = Array::full({n % 17 + 2, n}, 0.5f, op::f32);
    const double start = op::bench::thread_seconds();
    f(x);
    all.push_back((op::bench::thread_seconds() - start) * 1e6);
  }
  std::sort(all.begin(), all.end());
  fmt::print("a new shape: {:31} {:7.1f} us (at most {:.0f} wanted)\n", name, all[all.size() / 2], wanted);
}

// Measures only the verifier, for new lengths of an analyzed structure: microseconds of all plans and of all schedules of a call.
void verify_new_shapes(const op::test::Golden& golden) {
  namespace compiler = op::compiler;
  const auto recorded = [&](std::int64_t first) {
    op::test::Extents extents;
    for (const char c : op::test::letters_of(golden)) extents[c] = first, first += 70;
    return op::test::graph_of(golden, extents);
  };
  const op::ir::Graph known = recorded(100);
  std::vector<op::ir::NodeId> places;
  const op::ir::Graph optimised = compiler::optimize(known, {}, places);
  const std::shared_ptr<const compiler::Structure> structure =
      compiler::Structure::of(known, optimised, compiler::fuse(optimised, {.places = places}), {});
  if (!structure) return fmt::print("  {:28} its passes run for each shape\n", golden.name);
  struct Shape {
    op::ir::Graph graph;
    compiler::Partition partition;
    std::vector<compiler::Layout> layouts;
    std::vector<std::vector<compiler::Planned>> groups;
    std::vector<std::vector<compiler::Scheduled>> schedules;
  };
  std::vector<Shape> shapes;
  for (std::int64_t first = 101; first < 140; ++first) {
    const std::optional<compiler::Lengths> lengths = structure->lengths_of(recorded(first));
    if (!lengths) continue;
    Shape& shape = shapes.emplace_back();
    shape.graph = structure->optimised(*lengths);
    shape.partition = structure->partition(*lengths);
    shape.layouts.resize(shape.graph.size());
    for (std::uint32_t g = 0; g < shape.partition.groups.size(); ++g) {
      shape.groups.push_back(compiler::plan(shape.graph, shape.partition, g, shape.layouts));
      for (const compiler::Planned& p : shape.groups.back())
        shape.schedules.emplace_back().push_back(compiler::schedule(p.nest, p.numbers, compiler::Target::host(), {.threads = 2}));
    }
  }
  const auto median_us = [&](const auto& of_shape) {
    std::vector<double> all;
    for (int round = 0; round < 20; ++round)
      for (const Shape& shape : shapes) all.push_back(op::bench::seconds([&] { of_shape(shape); }, 20) * 1e6);
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
    return all[all.size() / 2];
  };
  const auto plans_us = [&](bool proofs) {
    return median_us([&](const Shape& s) {
      for (std::uint32_t g = 0; g < s.groups.size(); ++g)
        if (!(proofs ? structure->proofs().verify(s.graph, s.partition, g, s.layouts, s.groups[g])
                     : compiler::verify_plan(s.graph, s.partition, g, s.layouts, s.groups[g]))
                 .empty())
          fmt::print("{} is refused\n", golden.name);
    });
  };
  const double walked = plans_us(false), proved = plans_us(true);
  const double schedules = median_us([&](const Shape& s) {
    for (std::uint32_t g = 0, k = 0; g < s.groups.size(); ++g)
      for (const compiler::Planned& p : s.groups[g])
        if (!compiler::verify_schedule(p.nest, p.numbers, s.schedules[k++][0]).empty()) fmt::print("{} is refused\n", golden.name);
  });
  fmt::print("  {:28} plans {:5.2f} us by proofs, {:5.2f} walked; schedules {:5.2f} us\n", golden.name, proved, walked, schedules);
}

// Returns 32 times seven products and sums and an absolute value.
std::string chain() {
  std::string text = "t = x*1.1 + 0.03\n";
  for (int k = 1; k < 256; ++k)
    text += k % 8 == 7
                ? fmt::format("t{0} = maximum(t{1}, -t{1})*0.5\n", k, k == 1 ? "" : std::to_string(k - 1))
                : fmt::format("t{} = t{}*{:.4} + {:.4}\n", k, k == 1 ? "" : std::to_string(k - 1), 1.04 + 0.0004 * k, 0.25 - 0.002 * k);
  return text;
}

struct Row {
  const char* name;
  std::string text;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> inputs;
  op::DType dtype = op::f32;
};

std::vector<Row> rows(std::int64_t by) {
  const std::int64_t m = 1'000'000 / by, n = 16 * m;
  const std::string gelu = "y = 0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))\n";
  const std::string black_scholes =
      "sq = 0.3*sqrt(T)\nd1 = (log(S/K) + 0.065*T)/sq\nd2 = d1 - sq\nn1 = 0.5*(1 + erf(d1*0.7071067811865476))\n"
      "n2 = 0.5*(1 + erf(d2*0.7071067811865476))\ndisc = K*exp(-0.02*T)\ncall = S*n1 - disc*n2\nput = disc*(1 - n2) - S*(1 - n1)\n";
  const std::string affine = "x*w + b";
  return {{"x*w + b of 100,000", affine, {{"x", {100'000}}, {"w", {100'000}}, {"b", {100'000}}}},
          {"x*w + b with a number a plane", affine, {{"x", {32, 64, 7'812 / by, 1}}, {"w", {32, 64, 1, 1}}, {"b", {32, 64, 1, 1}}}},
          {"gelu", gelu, {{"x", {n}}}},
          {"gelu of 100,000", gelu, {{"x", {100'000}}}},
          {"gelu and its gradient", gelu + "vjp(y, [x], dy)", {{"x", {n}}, {"dy", {n}}}},
          {"Black-Scholes, f32", black_scholes, {{"S", {4 * m}}, {"K", {4 * m}}, {"T", {4 * m}}}},
          {"Black-Scholes, f64", black_scholes, {{"S", {4 * m}}, {"K", {4 * m}}, {"T", {4 * m}}}, op::f64},
          {"Adam",
           "m1 = 0.9*m + 0.1*g\nv1 = 0.999*v + 0.001*g*g\np1 = p - 1.5353399e-3*m1/(sqrt(v1*100.450825) + 1e-8)\n",
           {{"p", {n}}, {"m", {n}}, {"v", {n}}, {"g", {n}}}},
          {"a chain of 256", chain(), {{"x", {m}}}},
          {"transpose(x)*y + y", "transpose(x)*y + y", {{"x", {4096 / by, 4096}}, {"y", {4096, 4096 / by}}}}};
}

void generic_against_specialised(const Row& row) {
  const Formula generic = op::formula(row.text, in(op::Mode::generic)), specialised = op::formula(row.text, in(op::Mode::specialized));
  std::vector<op::NamedArgument> arguments;
  std::int64_t size = 0;
  for (const auto& [name, shape] : row.inputs) {
    arguments.push_back({name, Array::full(op::Extents(std::span<const std::int64_t>(shape)), 0.5, row.dtype)});
    std::int64_t elements = 1;
    for (const std::int64_t e : shape) elements *= e;
    size = std::max(size, elements);
  }
  const std::span<const op::NamedArgument> all(arguments);
  op::bench::compare(
      row.name, size, [&] { generic(all); }, [&] { specialised(all); }, 0.9);
}

// Times rows whose length is not a multiple of a register: a shape-specialized kernel unrolls loops that a generic kernel runs.
void narrow_rows(std::int64_t rows, std::int64_t columns) {
  const Formula generic = op::formula("x*w + b", in(op::Mode::generic)), specialised = op::formula("x*w + b", in(op::Mode::specialized));
  Array y = Array::zeros({rows, columns}, op::f32);
  const Array x = Array::full({rows, columns}, 0.5, op::f32), w = Array::full({columns}, 0.5, op::f32);
  const op::NamedArgument arguments[] = {{"x", x}, {"w", w}, {"b", w}};
  const op::NamedTarget targets[] = {{"out", y}};
  const std::span<const op::NamedArgument> all(arguments);
  const auto* const from = static_cast<const char*>(x.data());
  auto* const to = static_cast<char*>(y.mutable_data());
  const std::vector<double> seconds = op::bench::medians(
      {[&] { generic.into(std::span(targets), all); }, [&] { specialised.into(std::span(targets), all); },
       [&] {
         op::threads::parallel_for(4 * rows * columns, op::thread_count(), [&](std::int64_t begin, std::int64_t end, int) {
           std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
         });
       }},
      10, 51);
  fmt::print(
      "x*w + b of [{}, {}], w and b a row: generic {:.0f} us; for the shape alone {:.2f} times as fast (1.50 wanted, or 0.90 of a copy); "
      "{:.2f} of a copy\n",
      rows, columns, seconds[0] * 1e6, seconds[0] / seconds[1], seconds[2] / seconds[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t by = argc > 1 ? std::max(1LL, std::atoll(argv[1])) : 1;
  op::Options one = in(op::Mode::generic);
  one.threads = 1;
  new_shapes("gelu", op::compile([](Tensor x) { return 0.5f * x * (1 + tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }, one), 30);
  new_shapes("1,000 operators",
             op::compile(
                 [](Tensor x) {
                   Tensor t = x;
                   for (int i = 0; i < 250; ++i) t = maximum(abs(t * 0.75f + x), x);
                   return t;
                 },
                 one),
             1000);
  fmt::print("verifying a new shape of a known structure\n");
  for (const op::test::Golden& golden : op::test::kGolden) verify_new_shapes(golden);
  if (argc > 1 && std::atoll(argv[1]) == 0) return 0;
  fmt::print("generic kernels, against those for the shape alone\n");
  for (const Row& row : rows(by)) generic_against_specialised(row);
  narrow_rows(1'000'003 / by, 3);
  narrow_rows(333'331 / by, 7);
  return 0;
}
