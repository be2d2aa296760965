// Kernels that run in tiles while the compiler works: the bits of the reference, and when they give way to compiled code.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "arrays.h"
#include "compiler/tiles/tiles.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "run_partition.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"

using namespace onepass;
using namespace onepass::test;

namespace {

// How the first form that differs from the reference differs. `tiled`: nests that ran in tiles.
std::string difference(const ir::Graph& graph, const Arguments& arguments, std::int64_t& tiled) {
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  for (const int vector_bytes : {64, 32, 16}) {
    if (vector_bytes > compiler::Target::host().vector_bytes) continue;
    std::string log, what;
    RunOptions options;
    options.target = compiler::Target::host().with_vector_bytes(vector_bytes);
    options.threads = vector_bytes == 64 ? 3 : 1;
    options.log = &log;
    options.tiled = &tiled;
    if (!equals_bitwise(run(graph, arguments.views, options), expected, &what))
      return "vectors of " + std::to_string(vector_bytes) + " bytes: " + what + "\n" + log;
  }
  return {};
}

std::int64_t check(const ir::Graph& graph, bool strided = false) {
  INFO(ir::print(graph));
  std::int64_t tiled = 0;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) CHECK(difference(graph, random_arguments(graph, seed, strided), tiled) == "");
  return tiled;
}
std::int64_t check(const std::string& text, bool strided = false) { return check(ir::parse_graph(text), strided); }

int rounds(int quick) {
  const char* full = std::getenv("ONEPASS_TEST_FULL");
  if (const char* given = std::getenv("ONEPASS_TEST_ROUNDS")) return std::atoi(given);
  return full && *full == '1' ? 20 * quick : quick;
}

// The operator on inputs of a type, each of them whole or one element that is broadcast (bits of `broadcast`).
std::string one_operator(ir::Op op, DType dtype, DType result, unsigned broadcast, int n) {
  const ir::OpInfo& info = ir::info(op);
  const std::string shape = "[" + std::to_string(n) + "]";
  std::string text, operands;
  for (unsigned i = 0; i < info.arity; ++i) {
    const std::string type(name_of(info.types == ir::TypeRule::Choose && i == 0 ? boolean : dtype));
    const std::string id = std::to_string(2 * i), wide = std::to_string(2 * i + 1);
    const bool one = broadcast >> i & 1;
    text += "%" + id + " = input x" + std::to_string(i) + " : " + type + (one ? "[1]" : shape) + "\n";
    text += one ? "%" + wide + " = broadcast %" + id + " : " + type + shape + "\n"
                : "%" + wide + " = reshape %" + id + " : " + type + shape + "\n";
    operands += (i ? ", %" : " %") + wide;
  }
  const std::string y = std::to_string(2 * info.arity);
  return text + "%" + y + " = " + std::string(info.text) + operands + " : " + std::string(name_of(result)) + shape + "\nreturn y = %" + y;
}

}  // namespace

TEST_CASE("tiles: every operator has the reference's bits, whole operands and single ones", "[tiles]") {
  std::int64_t tiled = 0, graphs = 0;
  for (int k = 0; k < ir::kOpCount; ++k) {
    const auto op = static_cast<ir::Op>(k);
    const ir::OpInfo& info = ir::info(op);
    if (!ir::is_elementwise(op) || (info.traits & ir::kPartial) || op == ir::Op::Identity) continue;
    for (const DType from : {f32, f64, i32, i64, u32, u64, boolean}) {
      for (const DType to : {f32, f64, i32, i64, u32, u64, boolean}) {
        const bool converts = info.types == ir::TypeRule::Convert || info.types == ir::TypeRule::Reinterpret;
        DType result = to;
        const DType second = info.types == ir::TypeRule::Choose ? boolean : from;
        const DType operands[] = {second, from, from};
        if (info.types == ir::TypeRule::Reinterpret && size_of(from) != size_of(to)) continue;
        if (!converts && (!ir::result_dtype(op, std::span(operands).first(info.arity), result) || result != to)) continue;
        for (unsigned broadcast = 0; broadcast < 1u << info.arity; ++broadcast) {
          if (broadcast && (converts || info.kind == ir::OpKind::Expanded)) continue;
          tiled += check(one_operator(op, from, result, broadcast, broadcast ? 70 : 1100));
          ++graphs;
        }
      }
    }
  }
  CHECK(graphs > 300);
  std::int64_t widths = 0;
  for (const int vector_bytes : {64, 32, 16}) widths += vector_bytes <= compiler::Target::host().vector_bytes;
  CHECK(3 * tiled > 2 * 2 * widths * graphs);  // two seeds, most of them in every width
}

TEST_CASE("tiles: two operators in one loop have the reference's bits", "[tiles]") {
  const ir::Op joined[] = {ir::Op::Add, ir::Op::Sub, ir::Op::Mul, ir::Op::Div};
  for (const DType dtype : {f32, f64})
    for (const ir::Op first : joined)
      for (const ir::Op second : joined)
        for (const bool behind : {false, true})
          for (unsigned broadcast = 0; broadcast < 8; ++broadcast) {
            if ((broadcast & 3) == 3) continue;  // the first is no loop
            const bool exchanged = (broadcast & 3) == 1 && ir::info(first).traits & ir::kCommutative;
            const unsigned uniform = exchanged ? (broadcast & 4) | 2 : broadcast;
            CHECK(compiler::tile_pair({first, second, behind}, dtype, uniform, compiler::Target::host()));
            const std::string type(name_of(dtype));
            std::string text;
            for (unsigned i = 0; i < 3; ++i) {
              const bool one = broadcast >> i & 1;
              text += fmt::format("%{0} = input x{1} : {2}[{3}]\n%{4} = {5} %{0} : {2}[300]\n", 2 * i, i, type, one ? 1 : 300, 2 * i + 1,
                                  one ? "broadcast" : "reshape");
            }
            text += fmt::format("%6 = {} %1, %3 : {}[300]\n%7 = {} {} : {}[300]\nreturn y = %7", ir::info(first).text, type,
                                ir::info(second).text, behind ? "%5, %6" : "%6, %5", type);
            CHECK(check(text) > 0);
          }
  CHECK_FALSE(compiler::tile_pair({ir::Op::Add, ir::Op::Mul, false}, i32, 0, compiler::Target::host()));
  CHECK_FALSE(compiler::tile_pair({ir::Op::Add, ir::Op::Maximum, false}, f32, 0, compiler::Target::host()));
}

TEST_CASE("tiles: a value that two operators need is not joined to one of them", "[tiles]") {
  CHECK(check("%0 = input x : f32[3000]\n%1 = mul %0, %0 : f32[3000]\n%2 = add %1, %0 : f32[3000]\n%3 = add %1, %2 : f32[3000]\n"
              "%4 = mul %3, %3 : f32[3000]\n%5 = sub %4, %0 : f32[3000]\nreturn y = %5, z = %3") > 0);
}

TEST_CASE("tiles: views are read and written in place, guarded and turned round", "[tiles]") {
  CHECK(check("%0 = input x : f32[33, 700]\n%1 = input w : f32[33, 1]\n%2 = broadcast %1 : f32[33, 700]\n%3 = mul %0, %2 : f32[33, 700]\n"
              "return y = %3") > 0);
  CHECK(check("%0 = input x : f32[150, 70]\n%1 = input y : f32[70, 150]\n%2 = permute %0 {1, 0} : f32[70, 150]\n"
              "%3 = mul %2, %1 : f32[70, 150]\nreturn z = %3, x = %1") > 0);
  CHECK(check("%0 = input x : f64[40]\n%1 = input y : f64[1000]\n%2 = pad %0 {7, 1} : f64[1000]\n%3 = add %1, %2 : f64[1000]\n"
              "return z = %3") > 0);
  CHECK(check("%0 = input x : u8[900]\n%1 = slice %0 {899, -3} : u8[300]\nreturn z = %1") > 0);
  CHECK(check("%0 = iota {1} : i64[5, 600]\n%1 = cast %0 : f32[5, 600]\n%2 = sin %1 : f32[5, 600]\nreturn a = %0, b = %2") > 0);
}

TEST_CASE("tiles: random graphs have the reference's bits", "[tiles][random]") {
  RandomGraphOptions options;
  options.reductions = false;
  options.dtypes = {f32, f64, i32, i64, boolean, u32, u64};
  std::int64_t tiled = 0;
  for (int k = 0; k < rounds(25); ++k) {
    const auto seed = static_cast<std::uint64_t>(4000 + k);
    INFO("seed " << seed);
    tiled += check(random_graph(seed, options), k % 2 == 1);
  }
  CHECK(tiled > 0);
}

TEST_CASE("tiles: what they do not know is left to the compiler", "[tiles]") {
  CHECK(check("%0 = input x : f32[40, 70]\n%1 = reduce_sum %0 {1} : f32[40]\nreturn y = %1") == 0);
  CHECK(check("%0 = input x : f16[400]\n%1 = neg %0 : f16[400]\nreturn y = %1") == 0);
  CHECK(check("%0 = input x : f32[400]\n%1 = input y : f32[400]\n%2 = fmod %0, %1 : f32[400]\nreturn y = %2") == 0);
}

TEST_CASE("tiles: a first call waits for no compiler, a hot one runs compiled code, with equal bits", "[tiles]") {
  const auto body = [](Tensor x, Tensor y) { return tanh(x * 0.75f + y) * exp(-x * x) - y / 3.f; };
  const auto f = compile<Tensor(Tensor, Tensor)>(body);
  const Array x = ramp({70, 1000}, 0.0078125), y = ramp({70, 1000}, 0.03125);
  const Array first = f(x, y);
  CHECK(f.explain().find("in tiles until it is optimised") != std::string::npos);
  CHECK(f.stats().optimised == 0);
  const Array second = f(x, y);
  runtime::wait_for_optimised();
  CHECK(f.stats().optimised == 1);
  const Array third = f(x, y);
  const auto judge = compile<Tensor(Tensor, Tensor)>(body, {.mode = Mode::reference});
  const Array expected = judge(x, y);
  for (const Array& got : {first, second, third}) CHECK(same_bits(got, expected));
}

TEST_CASE("tiles: where there is no compile thread, a call compiles once enough time was lost", "[tiles]") {
  const auto body = [](Tensor x) { return tanh(x * 0.375f + 2.f) - x * x * 0.0625f; };
  const auto f = compile<Tensor(Tensor)>(body);
  const Array x = ramp({5, 1000}, 0.0078125);
  const Array first = f(x);
  REQUIRE(f.explain().find("in tiles") != std::string::npos);
  set_compile_threads(0);
  bool same = true;
  for (int call = 0; call < 1'000'000 && f.stats().optimised == 0; ++call) same = same && same_bits(first, f(x));
  set_compile_threads(1);
  CHECK(same);
  CHECK(f.stats().optimised == 1);
  CHECK(f.stats().ms_lost > 0);
  CHECK(f.stats().ms_compiling > 0);
  CHECK(f.explain().find("; optimised") != std::string::npos);
  CHECK(same_bits(first, f(x)));
}

TEST_CASE("tiles: long work is compiled first, as is everything where they are off", "[tiles]") {
  const auto in_tiles = [](auto f, std::int64_t n) {
    static_cast<void>(f(Array::zeros({n}, f32)));
    return f.explain().find("in tiles") != std::string::npos;
  };
  CHECK(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) * 2.f; }), 1000));
  CHECK_FALSE(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) * 3.f * x; }), 10'000'000));
  runtime::set_tiles(false);
  CHECK_FALSE(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) - 2.f; }), 1000));
  runtime::set_tiles(true);
}

TEST_CASE("tiles: the pieces of a group have equal shares of the scratch, whichever of them runs in tiles", "[tiles]") {
  const ir::Graph graph = ir::parse_graph(
      "%0 = input x : f32[40000]\n%1 = input y : f32[40000]\n%2 = erf %0 : f32[40000]\n%3 = lgamma %2 : f32[40000]\n"
      "%4 = mul %1, %1 : f32[40000]\n%5 = piecewise %3, %4 {0, 1, 40000, 1} : f32[80000]\nreturn out = %5");
  runtime::PlanData plan;
  runtime::PlanReport report;
  report.recorded = graph;
  for (int i = 0; i < 2; ++i) plan.inputs.push_back(runtime::array_plan(f32, std::vector<std::int64_t>{40000}, {}));
  plan.outputs.push_back(runtime::array_plan(f32, std::vector<std::int64_t>{80000}, {}));
  plan.redirected.push_back(false);
  plan.targets = plan.outputs;
  runtime::LaunchOptions options;
  options.threads = 2;
  runtime::make_launches(plan, report, compiler::Target::host(), options);
  runtime::attach_kernels(plan, report, compiler::Target::host(), {});
  REQUIRE(plan.launches.size() == 2);
  CHECK(plan.launches[0].group == plan.launches[1].group);
  CHECK(plan.launches[0].threads == 2);
  std::int64_t tiled = 0, most = 0;
  for (const runtime::Launch& launch : plan.launches)
    if (const auto* tiles = launch.kernel->tiles()) ++tiled, most = std::max(most, tiles->scratch_bytes());
  CHECK(tiled > 0);
  for (const runtime::Launch& launch : plan.launches) CHECK(launch.scratch_bytes >= most);
  CHECK(plan.launches[0].scratch_bytes == plan.launches[1].scratch_bytes);
  CHECK(plan.scratch_bytes >= 2 * most);
}

TEST_CASE("tiles: a target may be an argument's memory", "[tiles]") {
  const auto f = compile<std::tuple<Tensor, Tensor>(Tensor, Tensor)>([](Tensor x, Tensor y) { return std::tuple{x * 2.f + y, y * x}; });
  std::vector<float> data(3000), other(3000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) / 7, other[i] = 1 - static_cast<float>(i);
  const Array expected_a = Array::from(std::vector<float>(data)), expected_b = Array::from(std::vector<float>(other));
  const auto [a, b] = f(expected_a, expected_b);
  Array x = Array::from(std::move(data)), y = Array::from(std::move(other));
  f.into(x, y)(x, y);
  CHECK(x.to_vector<float>() == a.to_vector<float>());
  CHECK(y.to_vector<float>() == b.to_vector<float>());
}
