// Kernels in the tiled interpreter while the compiler works: the reference's bits, and the switch to compiled code.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "arrays.h"
#include "compiler/tiles/loops.h"
#include "compiler/tiles/tiles.h"
#include "every_mode.h"
#include "golden.h"
#include "how_long.h"
#include "onepass/onepass.h"
#include "random_graph.h"
#include "run_partition.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"

using namespace onepass;
using namespace onepass::test;

namespace {

const int kSeeds = times(1, 2);

// True for the machine's widest vectors and, except in short sanitized runs, for narrower vectors.
bool runs_with(int vector_bytes) {
  const int widest = compiler::Target::host().vector_bytes;
  return vector_bytes == widest || (vector_bytes < widest && (vector_bytes != 32 || !has_sanitizer() || is_full_run()));
}

// Returns the first difference of any form from the reference. Adds the nests that ran tiled to `tiled`. With several threads, rows above
// `split_work` are split.
std::string difference(const ir::Graph& graph, const Arguments& arguments, std::int64_t& tiled,
                       std::int64_t split_work = compiler::ScheduleOptions::kThreadedWork) {
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  // Contractions of floats run tiled only on machines with an fma instruction. Otherwise they are compiled, as in test_contract.
  bool contracts = false;
  for (ir::NodeId id = 0; id < graph.size(); ++id) contracts |= ir::is_contraction(graph[id].op) && is_float(graph[id].dtype);
  for (const int vector_bytes : {64, 32, 16}) {
    if (!runs_with(vector_bytes) || (contracts && vector_bytes == 16 && !is_full_run())) continue;
    std::string log, what;
    RunOptions options;
    options.target = compiler::Target::host().with_vector_bytes(vector_bytes);
    options.threads = vector_bytes == 16 ? 1 : 3;
    options.split_work = split_work;
    options.log = &log;
    options.tiled = &tiled;
    if (!equals_bitwise(run(graph, arguments.views, options), expected, &what))
      return "vectors of " + std::to_string(vector_bytes) + " bytes: " + what + "\n" + log;
  }
  return {};
}

// Returns finite values of several magnitudes, whose sums are not NaN.
Arguments plain_arguments(const ir::Graph& graph, std::uint64_t seed) {
  Arguments out = random_arguments(graph, seed);
  std::mt19937_64 engine(seed);
  for (std::size_t i = 0; i < out.views.size(); ++i) {
    std::vector<std::byte>& bytes = out.storage[i];
    const auto fill = [&]<class T>(T) {
      auto* const values = reinterpret_cast<T*>(bytes.data());
      for (std::size_t k = 0; k < bytes.size() / sizeof(T); ++k) {
        const double x = static_cast<double>(engine() % 2000001) / 1e6 - 1;
        values[k] = static_cast<T>(std::ldexp(x, static_cast<int>(engine() % 9) - 4));
      }
    };
    if (out.views[i].dtype == f32) fill(float{});
    if (out.views[i].dtype == f64) fill(double{});
  }
  return out;
}

std::int64_t check(const ir::Graph& graph, bool strided = false) {
  INFO(ir::print(graph));
  std::int64_t tiled = 0;
  for (int seed = 1; seed <= kSeeds; ++seed)
    CHECK(difference(graph, random_arguments(graph, static_cast<std::uint64_t>(seed), strided), tiled) == "");
  const std::string text = ir::print(graph);
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  const bool sums = has("reduce_") || has("scan_") || has("contract_");
  if (!strided && sums) {
    CHECK(difference(graph, plain_arguments(graph, 3), tiled) == "");
    CHECK(difference(graph, plain_arguments(graph, 4), tiled, 0) == "");
  }
  return tiled;
}
std::int64_t check(const std::string& text, bool strided = false) { return check(ir::parse_graph(text), strided); }

int rounds(int quick) {
  if (const char* given = std::getenv("ONEPASS_TEST_ROUNDS")) return std::atoi(given);
  return times(quick, 20 * quick);
}

// Returns a graph of the operator on inputs of a type. Inputs in the bits of `broadcast` are broadcast from one element.
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

TEST_CASE("tiles: every operator has the reference's bits, with array and scalar operands", "[tiles]") {
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
  for (const int vector_bytes : {64, 32, 16}) widths += runs_with(vector_bytes);
  CHECK(3 * tiled > 2 * kSeeds * widths * graphs);  // most of them in every width
}

TEST_CASE("tiles: two operators in one loop have the reference's bits", "[tiles]") {
  const ir::Op joined[] = {ir::Op::Add, ir::Op::Sub, ir::Op::Mul, ir::Op::Div};
  for (const DType dtype : {f32, f64})
    for (const ir::Op first : joined)
      for (const ir::Op second : joined)
        for (const bool behind : {false, true})
          for (unsigned broadcast = 0; broadcast < 8; ++broadcast) {
            if ((broadcast & 3) == 3) continue;  // then the first operator is not in the loop
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

TEST_CASE("tiles: a value that two operators need is not fused into one of them", "[tiles]") {
  CHECK(check("%0 = input x : f32[3000]\n%1 = mul %0, %0 : f32[3000]\n%2 = add %1, %0 : f32[3000]\n%3 = add %1, %2 : f32[3000]\n"
              "%4 = mul %3, %3 : f32[3000]\n%5 = sub %4, %0 : f32[3000]\nreturn y = %5, z = %3") > 0);
}

TEST_CASE("tiles: views are read and written in place, also padded and transposed", "[tiles]") {
  CHECK(check("%0 = input x : f32[33, 700]\n%1 = input w : f32[33, 1]\n%2 = broadcast %1 : f32[33, 700]\n%3 = mul %0, %2 : f32[33, 700]\n"
              "return y = %3") > 0);
  CHECK(check("%0 = input x : f32[150, 70]\n%1 = input y : f32[70, 150]\n%2 = permute %0 {1, 0} : f32[70, 150]\n"
              "%3 = mul %2, %1 : f32[70, 150]\nreturn z = %3, x = %1") > 0);
  CHECK(check("%0 = input x : f64[40]\n%1 = input y : f64[1000]\n%2 = pad %0 {7, 1} : f64[1000]\n%3 = add %1, %2 : f64[1000]\n"
              "return z = %3") > 0);
  CHECK(check("%0 = input x : u8[900]\n%1 = slice %0 {899, -3} : u8[300]\nreturn z = %1") > 0);
  CHECK(check("%0 = iota {1} : i64[5, 600]\n%1 = cast %0 : f32[5, 600]\n%2 = sin %1 : f32[5, 600]\nreturn a = %0, b = %2") > 0);
}

TEST_CASE("tiles: reductions have the reference's bits, along rows and along columns", "[tiles]") {
  for (const DType dtype : {f32, f64, i32, i64, u32, u64, boolean})
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}) {
      if (dtype == boolean && op[7] != 'm') continue;
      const std::string type(name_of(dtype));
      for (const int n : {0, 1, 2, 31, 32, 63, 64, 65, 255, 256, 257, 1023, 4096, 4097, 9001}) {
        const bool long_run = n > 300 && dtype != f32;
        if (long_run && n != 4097) continue;
        INFO(op << " of " << n << " " << type);
        const auto one = [&](int rows, int columns, int axis) {
          return fmt::format("%0 = input x : {0}[{1}, {2}]\n%1 = {3} %0 {{{4}}} : {0}[{5}]\nreturn y = %1", type, rows, columns, op, axis,
                             axis ? rows : columns);
        };
        const bool empty = n == 0 && std::string(op) != "reduce_sum" && std::string(op) != "reduce_prod";
        if (empty) continue;
        CHECK(check(one(n > 300 ? 1 : 5, n, 1)) > 0 - (n == 0));
        CHECK(check(one(n, n > 300 ? 3 : 70, 0)) > 0 - (n == 0));
      }
    }
}

TEST_CASE("tiles: reductions over several axes count missing elements", "[tiles]") {
  for (const char* type : {"f32", "f64"})
    for (const int last : {1, 5, 40, 64, 70, 130})
      for (const int middle : {2, 9})
        for (const int first : {3, 33, 300}) {
          if (first == 300 && last > 70) continue;
          INFO(first << " " << middle << " " << last);
          const auto reduced = [&](const char* axes, const std::string& shape) {
            return fmt::format("%0 = input x : {0}[{1}, {2}, {3}]\n%1 = reduce_sum %0 {{{4}}} : {0}[{5}]\nreturn y = %1", type, first,
                               middle, last, axes, shape);
          };
          CHECK(check(reduced("0, 2", std::to_string(middle))) > 0);
          CHECK(check(reduced("0, 1", std::to_string(last))) > 0);
          CHECK(check(reduced("0, 1, 2", "")) > 0);
          CHECK(check(fmt::format("%0 = input x : {0}[{1}, {2}, {3}, 3]\n%1 = reduce_sum %0 {{0, 2}} : {0}[{2}, 3]\nreturn y = %1", type,
                                  first, middle, last)) > 0);
        }
}

TEST_CASE("tiles: several sweeps over short and long rows have the reference's bits", "[tiles]") {
  for (const int n : {1, 7, 64, 100, 511, 700, 2050, 4096, 4100, 9000})
    for (const bool across : {false, true}) {
      const int m = n > 1000 ? 2 : 6;
      INFO(n << (across ? " across" : " along"));
      const std::string shape = across ? fmt::format("[{}, {}]", n, m) : fmt::format("[{}, {}]", m, n);
      const std::string one = across ? fmt::format("[1, {}]", m) : fmt::format("[{}, 1]", m);
      const std::string axis = across ? "{0}" : "{1}", kept = fmt::format("[{}]", m);
      for (const char* type : {"f32", "f64"}) {
        // softmax
        CHECK(check(fmt::format("%0 = input x : {0}{1}\n%1 = reduce_max %0 {2} : {0}{3}\n%2 = reshape %1 : {0}{4}\n"
                                "%3 = broadcast %2 : {0}{1}\n%4 = sub %0, %3 : {0}{1}\n%5 = exp %4 : {0}{1}\n"
                                "%6 = reduce_sum %5 {2} : {0}{3}\n%7 = reciprocal %6 : {0}{3}\n%8 = reshape %7 : {0}{4}\n"
                                "%9 = broadcast %8 : {0}{1}\n%10 = mul %5, %9 : {0}{1}\nreturn y = %10, m = %1, e = %5",
                                type, shape, axis, kept, one)) > 0);
        // differences from the sum, and the sum of their squares; operands are materialized too
        CHECK(check(fmt::format("%0 = input x : {0}{1}\n%1 = reduce_sum %0 {2} : {0}{3}\n%2 = reshape %1 : {0}{4}\n"
                                "%3 = broadcast %2 : {0}{1}\n%4 = sub %0, %3 : {0}{1}\n%5 = mul %4, %4 : {0}{1}\n"
                                "%6 = reduce_sum %5 {2} : {0}{3}\n%7 = log %6 : {0}{3}\n%8 = reshape %7 : {0}{4}\n"
                                "%9 = broadcast %8 : {0}{1}\n%10 = mul %4, %9 : {0}{1}\n%11 = lgamma %10 : {0}{1}\n"
                                "return y = %10, z = %11, l = %7, s = %5",
                                type, shape, axis, kept, one)) > 0);
      }
    }
}

// Precompiled loops over several rows at once: short rows of every remainder of a register, groups of rows, squares.
TEST_CASE("tiles: short rows run together, with the reference's bits", "[tiles]") {
  std::int64_t tiled = 0;
  for (const DType dtype : {f32, f64, i32, u64, boolean}) {
    const std::string type(name_of(dtype));
    for (const int n : {1, 7, 15, 16, 17, 33, 64, 100, 129}) {
      if (dtype != f32 && n != 7 && n != 17 && n != 100 && !is_full_run()) continue;
      INFO(type << " rows of " << n);
      for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"})
        if (dtype != boolean || op[7] == 'm')
          tiled += check(fmt::format("%0 = input x : {0}[67, {1}]\n%1 = {2} %0 {{1}} : {0}[67]\nreturn y = %1", type, n, op), n == 33);
      if (dtype != f32 && (dtype != f64 || n != 17)) continue;
      // row values combined with element values: read with the row, computed from sums, stored with either kind of value, and in an
      // unlikely branch
      tiled += check(fmt::format(
          "%0 = input x : {0}[67, {1}]\n%1 = input r : {0}[67]\n%2 = reshape %1 : {0}[67, 1]\n%3 = broadcast %2 : {0}[67, {1}]\n"
          "%4 = mul %0, %3 : {0}[67, {1}]\n%5 = reduce_max %4 {{1}} : {0}[67]\n%6 = reshape %5 : {0}[67, 1]\n"
          "%7 = broadcast %6 : {0}[67, {1}]\n%8 = sub %4, %7 : {0}[67, {1}]\n%9 = pow %8, %3 : {0}[67, {1}]\n"
          "%10 = reduce_sum %9 {{1}} : {0}[67]\n%11 = lgamma %10 : {0}[67]\n%12 = reshape %11 : {0}[67, 1]\n"
          "%13 = broadcast %12 : {0}[67, {1}]\n%14 = add %9, %13 : {0}[67, {1}]\nreturn a = %14, b = %11, c = %13, d = %5",
          type, n));
      // the index in the row, in two sweeps; padding at row ends; a product of rows
      using Inputs = std::vector<std::pair<std::string, compiler::Shape>>;
      tiled += check(optimised("out = argmax(x, axis=-1)", Inputs{{"x", {67, n}}}, dtype));
      tiled += check(optimised("out = sum(pad(x, [1, 1], [1, 1])*y, axis=-1)", Inputs{{"x", {67, n}}, {"y", {69, n + 2}}}, dtype));
      tiled += check(optimised("out = sum(x*w, axis=-1)*2", Inputs{{"x", {3, 67, n}}, {"w", {n}}}, dtype));
      tiled += check(optimised("out = x @ w", Inputs{{"x", {67, n}}, {"w", {n}}}, dtype));
    }
  }
  CHECK(tiled > 100);
}

TEST_CASE("tiles: short rows of elementwise nests run together, with the reference's bits", "[tiles]") {
  const std::vector<std::pair<std::string, compiler::Shape>> inputs[] = {
      {{"x", {9, 11, 13}}, {"y", {9, 11, 1}}, {"z", {13}}},  // groups of rows end with the outer loop
      {{"x", {2, 300, 5}}, {"y", {2, 300, 1}}, {"z", {5}}},  // more rows than one tile has
      {{"x", {3, 4, 700}}, {"y", {3, 4, 1}}, {"z", {700}}},  // long rows
  };
  const char* const formulas[] = {
      "x*z + y",
      "exp(x[:, :, 1:] - y)*z[1:]",                // rows that do not follow each other
      "pad(x, [0, 1, 2], [1, 0, 1])*2 + 1",        // selections by row and by element
      "x[:, :, ::2]*y",                            // strided rows
      "where(x > z, y, x[:, :, ::-1])",            // reversed rows
      "concat([x, x*y], 2) + 1",                   // two ranges of a row
      "roll(x, 1, 2) + roll(x, [1, -1], [1, 2])",  // ranges that wrap around
      "cast(cast(y, f16), f32)*sin(x)",            // values of a row
      "x*arange(x.shape[1])[:, none]",             // indices of rows
  };
  std::int64_t tiled = 0, graphs = 0;
  for (const auto& shapes : inputs)
    for (const char* text : formulas) {
      INFO(text);
      for (const DType dtype : {f32, f64}) tiled += check(optimised(text, shapes, dtype)), ++graphs;
    }
  CHECK(tiled >= graphs);
}

TEST_CASE("tiles: groups of rows are added in registers, with the reference's bits", "[tiles]") {
  std::int64_t tiled = 0;
  for (const DType dtype : {f32, f64, i32, u64, boolean})
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}) {
      if (dtype == boolean && op[7] != 'm') continue;
      for (const int rows : {7, 8, 300, 1000})
        for (const int n : {2, 15, 17, 40}) {
          if (dtype != f32 && (rows == 7 || n == 2) && !is_full_run()) continue;
          tiled +=
              check(fmt::format("%0 = input x : {0}[{1}, {2}]\n%1 = {3} %0 {{0}} : {0}[{2}]\nreturn y = %1", name_of(dtype), rows, n, op),
                    n == 17);
        }
      // groups that cross iterations of an outer loop
      tiled +=
          check(fmt::format("%0 = input x : {0}[9, 50, 21]\n%1 = permute %0 {{1, 0, 2}} : {0}[50, 9, 21]\n"
                            "%2 = {1} %1 {{0, 1}} : {0}[21]\nreturn y = %2",
                            name_of(dtype), op));
    }
  CHECK(tiled > 100);
}

TEST_CASE("tiles: arrays read across the vector loop are read in squares, with the reference's bits", "[tiles]") {
  std::int64_t tiled = 0, graphs = 0;
  for (const DType dtype : {f32, f64, i64})
    for (const auto& [m, n] : {std::array{8, 3}, {31, 64}, {75, 301}}) {
      const std::string type(name_of(dtype));
      INFO(type << " " << m << " by " << n);
      const auto checked = [&](std::string_view text) {
        tiled += check(fmt::format(fmt::runtime(text), type, m, n));
        ++graphs;
      };
      checked(
          "%0 = input x : {0}[{2}, {1}]\n%1 = input y : {0}[{1}, {2}]\n%2 = permute %0 {{1, 0}} : {0}[{1}, {2}]\n"
          "%3 = add %2, %1 : {0}[{1}, {2}]\n%4 = input r : {0}[{1}]\n%5 = reshape %4 : {0}[{1}, 1]\n"
          "%6 = broadcast %5 : {0}[{1}, {2}]\n%7 = mul %3, %6 : {0}[{1}, {2}]\nreturn y = %7, z = %3");
      checked("%0 = input x : {0}[{2}, {1}]\n%1 = permute %0 {{1, 0}} : {0}[{1}, {2}]\n%2 = add %1, %1 : {0}[{1}, {2}]\nreturn y = %2");
    }
  CHECK(tiled >= graphs);
}

TEST_CASE("tiles: columns reduced in the pass over the rows have the reference's bits", "[tiles]") {
  for (const char* type : {"f32", "f64"})
    for (const int rows : {1, 5, 8, 30, 256, 300, 700})
      for (const int n : {1, 60, 700}) {
        if (rows * n > 100000) continue;
        INFO(rows << " rows of " << n << " " << type);
        // like the derivative of a normalization: sums of materialized values along rows and columns
        CHECK(
            check(fmt::format("%0 = input x : {0}[{1}, {2}]\n%1 = input g : {0}[{1}, {2}]\n%2 = reduce_sum %0 {{1}} : {0}[{1}]\n"
                              "%3 = reshape %2 : {0}[{1}, 1]\n%4 = broadcast %3 : {0}[{1}, {2}]\n%5 = sub %0, %4 : {0}[{1}, {2}]\n"
                              "%6 = mul %5, %1 : {0}[{1}, {2}]\n%7 = reduce_sum %6 {{1}} : {0}[{1}]\n%8 = reduce_sum %6 {{0}} : {0}[{2}]\n"
                              "%9 = reduce_max %1 {{0}} : {0}[{2}]\n%10 = exp %8 : {0}[{2}]\n%11 = add %10, %9 : {0}[{2}]\n"
                              "return a = %6, b = %7, c = %8, d = %11",
                              type, rows, n)) > 0);
        CHECK(check(fmt::format("%0 = input x : {0}[{1}, {2}]\n%1 = reduce_sum %0 {{0}} : {0}[{2}]\n%2 = reduce_max %0 {{1}} : {0}[{1}]\n"
                                "return y = %1, z = %2",
                                type, rows, n)) > 0);
      }
}

TEST_CASE("tiles: scans along rows and columns have the reference's bits", "[tiles]") {
  for (const DType dtype : {f32, f64, i32, i64, u32, u64, boolean})
    for (const char* op : {"scan_sum", "scan_max", "scan_min", "scan_prod"}) {
      if (dtype == boolean && op[5] != 'm') continue;
      const std::string type(name_of(dtype));
      for (const int n : {1, 15, 16, 17, 100, 4095, 4096, 4100, 9000}) {
        if (n > 100 && n != 4100 && dtype != f32) continue;
        INFO(op << " of " << n << " " << type);
        const auto one = [&](int rows, int columns, int axis) {
          return fmt::format(
              "%0 = input x : {0}[{1}, {2}]\n%1 = {3} %0 {{{4}}} : {0}[{1}, {2}]\n%2 = {3} %1 {{{4}}} : {0}[{1}, {2}]\n"
              "return y = %1, z = %2",
              type, rows, columns, op, axis);
        };
        CHECK(check(one(n > 100 ? 2 : 5, n, 1)) > 0);
        CHECK(check(one(n, n > 100 ? 3 : 600, 0)) > 0);
      }
    }
  // the scanned values are equal in all rows, or everywhere
  CHECK(check("%0 = input x : f32[30]\n%1 = input w : f32[50, 30]\n%2 = reshape %0 : f32[1, 30]\n%3 = broadcast %2 : f32[50, 30]\n"
              "%4 = scan_sum %3 {0} : f32[50, 30]\n%5 = add %4, %1 : f32[50, 30]\nreturn y = %5") > 0);
  CHECK(check("%0 = input x : f32[1]\n%1 = input w : f32[50, 30]\n%2 = reshape %0 : f32[1, 1]\n%3 = broadcast %2 : f32[50, 30]\n"
              "%4 = scan_sum %3 {0} : f32[50, 30]\n%5 = scan_sum %3 {1} : f32[50, 30]\n%6 = add %4, %1 : f32[50, 30]\n"
              "return y = %6, z = %5") > 0);
  // chunks split between threads
  for (const int n : {262144, 300001})
    CHECK(check(fmt::format("%0 = input x : f32[{0}]\n%1 = exp %0 : f32[{0}]\n%2 = scan_sum %1 {{0}} : f32[{0}]\n"
                            "%3 = scan_max %0 {{0}} : f32[{0}]\n%4 = add %2, %0 : f32[{0}]\nreturn y = %4, z = %3",
                            n)) > 0);
}

TEST_CASE("tiles: contractions have the reference's bits", "[tiles]") {
  const auto product = [](const char* type, int m, int n, int k, const char* before_a, const char* before_b, const char* op) {
    return fmt::format(
        "%0 = input x : {0}[{1}, {3}]\n%1 = input w : {0}[{3}, {2}]\n%2 = {4} %0 : {0}[{1}, {3}]\n"
        "%3 = {5} %1 : {0}[{3}, {2}]\n%4 = reshape %2 : {0}[{1}, 1, {3}]\n%5 = broadcast %4 : {0}[{1}, {2}, {3}]\n"
        "%6 = permute %3 {{1, 0}} : {0}[{2}, {3}]\n%7 = reshape %6 : {0}[1, {2}, {3}]\n"
        "%8 = broadcast %7 : {0}[{1}, {2}, {3}]\n%9 = {6} %5, %8 {{2}} : {0}[{1}, {2}]\nreturn y = %9",
        type, m, n, k, before_a, before_b, op);
  };
  std::int64_t tiled = 0;
  for (const char* type : {"f32", "f64", "i32", "u64"})
    for (const char* op : {"contract_rows", "contract_lanes"})
      for (const auto& [m, n, k] :
           {std::array{1, 1, 1}, {1, 40, 300}, {3, 5, 7}, {8, 32, 16}, {17, 33, 65}, {20, 600, 30}, {9, 100, 600}}) {
        if (has_sanitizer() && m * n * k > 100'000) continue;
        INFO(type << " " << op << " " << m << " " << n << " " << k);
        tiled += check(product(type, m, n, k, "neg", "neg", op));
        if (type[0] != 'f' && !is_full_run()) continue;  // reads do not depend on the type
        tiled += check(product(type, m, n, k, "reshape", "reshape", op));
        tiled += check(product(type, m, n, k, "reshape", "neg", op));
        tiled += check(product(type, m, n, k, "neg", "reshape", op), true);
      }
  CHECK(tiled > (has_sanitizer() ? 70 : 200));
  for (const char* type : {"f32", "f64"})  // a tree with so many levels that tiles are shorter
    if (type[1] == '3' || !has_sanitizer()) CHECK(check(product(type, 2, 450, 5000, "reshape", "reshape", "contract_rows")) > 0);
  // a row-invariant value, combined with an operand that is computed row by row
  using Inputs = std::vector<std::pair<std::string, compiler::Shape>>;
  for (const bool given : {false, true})
    for (const bool turned : {false, true})
      for (const DType dtype : {f32, f64}) {
        Inputs inputs = {{"x", {19, 33}}, {"y", turned ? compiler::Shape{21, 33} : compiler::Shape{33, 21}}};
        if (given) inputs.push_back({"r", {19}});
        const std::string formula =
            fmt::format("{}out = (x*2) @ {} * r[:, none] + r[:, none]", given ? "" : "r = x[:, 0]; ", turned ? "transpose(y)" : "y");
        CHECK(check(optimised(formula, inputs, dtype)) > 0);
      }
  // one index of each operand, two shared indices, a batch
  CHECK(check("%0 = input x : f32[6, 7, 8]\n%1 = input w : f32[7, 9, 8]\n%2 = reshape %0 : f32[6, 1, 7, 8]\n"
              "%3 = broadcast %2 : f32[6, 9, 7, 8]\n%4 = permute %1 {1, 0, 2} : f32[9, 7, 8]\n%5 = reshape %4 : f32[1, 9, 7, 8]\n"
              "%6 = broadcast %5 : f32[6, 9, 7, 8]\n%7 = contract_lanes %3, %6 {2, 3} : f32[6, 9]\n"
              "%8 = contract_rows %3, %6 {2, 3} : f32[6, 9]\nreturn a = %7, b = %8") > 0);
  CHECK(check("%0 = input x : f32[3, 24, 65]\n%1 = input w : f32[3, 65, 66]\n%2 = reshape %0 : f32[3, 24, 1, 65]\n"
              "%3 = broadcast %2 : f32[3, 24, 66, 65]\n%4 = permute %1 {0, 2, 1} : f32[3, 66, 65]\n%5 = reshape %4 : f32[3, 1, 66, 65]\n"
              "%6 = broadcast %5 : f32[3, 24, 66, 65]\n%7 = contract_rows %3, %6 {3} : f32[3, 24, 66]\n%8 = exp %7 : f32[3, 24, 66]\n"
              "%9 = reduce_sum %8 {2} : f32[3, 24]\nreturn a = %8, b = %9") > 0);
  CHECK(check("%0 = input x : f32[3000]\n%1 = input w : f32[3000, 10]\n%2 = reshape %0 : f32[1, 3000]\n%3 = broadcast %2 : f32[10, 3000]\n"
              "%4 = permute %1 {1, 0} : f32[10, 3000]\n%5 = contract_rows %3, %4 {1} : f32[10]\nreturn y = %5") > 0);
}

TEST_CASE("tiles: the loops read and write halves, with the reference's bits", "[tiles]") {
  for (const char* type : {"f16", "bf16"}) {
    CHECK(check(fmt::format("%0 = input x : {0}[70000]\n%1 = neg %0 : {0}[70000]\n%2 = cast %0 : f32[70000]\n%3 = sqrt %2 : f32[70000]\n"
                            "%4 = cast %3 : {0}[70000]\n%5 = cast %4 : f32[70000]\nreturn a = %1, b = %2, c = %4, d = %5",
                            type)) > 0);
    for (const int n : {1, 7, 9, 700})
      CHECK(check(fmt::format("%0 = input x : {0}[40, {1}]\n%1 = reduce_sum %0 {{0}} : {0}[{1}]\n%2 = reduce_max %0 {{1}} : {0}[40]\n"
                              "%3 = exp %0 : {0}[40, {1}]\n%4 = scan_sum %3 {{1}} : {0}[40, {1}]\n%5 = reduce_sum %3 {{1}} : {0}[40]\n"
                              "return a = %1, b = %2, c = %3, d = %4, e = %5",
                              type, n),
                  n == 9) > 0);
    CHECK(
        check(fmt::format("%0 = input x : {0}[30, 50]\n%1 = input w : {0}[50, 60]\n%2 = reshape %0 : {0}[30, 1, 50]\n"
                          "%3 = broadcast %2 : {0}[30, 60, 50]\n%4 = permute %1 {{1, 0}} : {0}[60, 50]\n%5 = reshape %4 : {0}[1, 60, 50]\n"
                          "%6 = broadcast %5 : {0}[30, 60, 50]\n%7 = contract_rows %3, %6 {{2}} : {0}[30, 60]\nreturn y = %7",
                          type)) > 0);
  }
  const ir::Graph all = ir::parse_graph(
      "%0 = input x : f16[65536]\n%1 = cast %0 : f32[65536]\n%2 = cast %1 : bf16[65536]\n"
      "%3 = neg %0 : f16[65536]\nreturn a = %1, b = %2, c = %3");
  Arguments arguments = random_arguments(all, 1);
  for (int bits = 0; bits < 65536; ++bits)
    reinterpret_cast<std::uint16_t*>(arguments.storage[0].data())[bits] = static_cast<std::uint16_t>(bits);
  std::int64_t tiled = 0;
  CHECK(difference(all, arguments, tiled) == "");
  CHECK(tiled > 0);
}

TEST_CASE("tiles: random graphs with reductions have the reference's bits", "[tiles][random]") {
  RandomGraphOptions options;
  options.products = true;
  options.dtypes = {f32, f64, i32, i64, boolean, u32, u64, f16, bf16};
  std::int64_t tiled = 0;
  for (int k = 0; k < rounds(12); ++k) {
    const auto seed = static_cast<std::uint64_t>(7000 + k);
    INFO("seed " << seed);
    tiled += check(random_graph(seed, options), k % 2 == 1);
  }
  CHECK(tiled > 0);
}

TEST_CASE("tiles: random graphs have the reference's bits", "[tiles][random]") {
  RandomGraphOptions options;
  options.reductions = false;
  options.dtypes = {f32, f64, i32, i64, boolean, u32, u64};
  std::int64_t tiled = 0;
  for (int k = 0; k < rounds(15); ++k) {
    const auto seed = static_cast<std::uint64_t>(4000 + k);
    INFO("seed " << seed);
    tiled += check(random_graph(seed, options), k % 2 == 1);
  }
  CHECK(tiled > 0);
}

namespace {
// While it exists, kernels stay in the tiled interpreter: no other thread compiles them. On a busy machine one would be done at once.
struct NoCompileThreads {
  NoCompileThreads() { set_compile_threads(0); }
  ~NoCompileThreads() { set_compile_threads(1); }
};

// Checks that all kernels of a formula's first call run tiled, with the reference's bits.
void check_tiled(const std::string& text, const NamedArrays& inputs) {
  INFO(text);
  const NoCompileThreads none;
  for (const int threads : {1, 3}) {
    set_kernel_cache_limits(0, 0);  // forgets kernels, whose earlier runs could have taken as long as a compile
    set_kernel_cache_limits(4096, std::int64_t{256} << 20);
    const Formula f = formula(text, {.mode = Mode::generic, .threads = threads});
    const FormulaResults got = run_formula(f, inputs), expected = run_formula(formula(text, {.mode = Mode::reference}), inputs);
    CHECK(f.explain().find("tiled interpreter") != std::string::npos);
    CHECK(f.explain().find("baseline code until") == std::string::npos);
    for (std::size_t r = 0; r < got.size(); ++r) CHECK(same_bits(got[r], expected[r]));
  }
}
}  // namespace

TEST_CASE("tiles: elements are read at checked indices, with the reference's bits", "[tiles]") {
  const auto indices = []<class T>(std::vector<std::int64_t> shape, T least) {  // from `least` to 36
    std::vector<T> out(static_cast<std::size_t>(ir::element_count(shape)));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<T>(least + static_cast<int>(i * 7919 % static_cast<std::size_t>(37 - least)));
    return Array::from(std::move(out), std::move(shape));
  };
  const NamedArrays inputs = {
      {"x", random_array({40, 37})},          {"h", random_array({40, 37}, f16)},          {"d", random_array({40}, f64)},
      {"y", random_array({40, 90})},          {"k", indices({90}, std::int64_t{-37})},     {"j", indices({40}, std::int32_t{-37})},
      {"b", indices({700}, std::uint8_t{0})}, {"p", indices({40, 11}, std::int64_t{-37})}, {"s", random_array({9, 5})},
      {"n", Array::scalar(std::int64_t{3})}};
  for (const char* text : {"take(x, k, 1)*2 + y",
                           "take(x, j, 1)",
                           "take(transpose(x), k, 0)",
                           "take(h, b, 1)*h[:, :1]",
                           "take_along_axis(x, p, 1)",
                           "take(d, b, 0)",
                           "cumsum(take(d, b, 0), 0)",
                           "cumsum(take(x, k, 1), 1)",
                           "sum(take(x, k, 1)*y, 1)",
                           "sum(take(x, k, 1), 0)",
                           "softmax(take(x, k, 1))",
                           "max(take_along_axis(x, p, 1), 1)",
                           "cross_entropy(x, j)",
                           "cross_entropy(x*2, j)",
                           "take(x, k[3], 1)",
                           "pad(take(d, b, 0), 3, 4)",
                           "concat([s, take(s, full([1], 2), axis=0)], axis=0)",
                           "concat([s, take(s, reshape(n, [1]), axis=0)], axis=0)",
                           "concat([s, take(s, full([2], 2), axis=1)], axis=1)",
                           "pad(take(s, full([1], 7), axis=0), [2, 0], [1, 0])",
                           "m = mean(cross_entropy(x @ transpose(x), j)); g = grad(m, [x])"})
    check_tiled(text, inputs);
}

TEST_CASE("tiles: bytes of bool arrays other than 0 are true", "[tiles]") {
  Array bytes = Array::empty({9, 37}, DType::U8);
  for (int i = 0; std::uint8_t & b : bytes.span<std::uint8_t>()) b = static_cast<std::uint8_t>(i++ % 7);
  const Array c = Array::wrap_pointer(bytes.mutable_data(), DType::Bool, {9, 37}, {37, 1}, true, Device::cpu(), bytes);
  const NamedArrays inputs = {{"c", c}, {"x", random_array({9, 37})}};
  for (const char* text : {"where(c, x, -x)", "where(c, 1, 0)", "sum(where(c, 1, 0))", "where(c, cast(2, u8), cast(3, u8))", "flip(c, 0)",
                           "c", "c & (x > 0)", "~c", "c[:, ::2]", "transpose(c)", "max(c, 1)", "min(c, 0)", "cast(c, f32)*x",
                           "roll(c, 3, 1)", "pad(c, [1, 1], [0, 2])", "broadcast_to(c[:1], [4, 37])"})
    check_tiled(text, inputs);
}

TEST_CASE("tiles: narrow integers wrap and saturate as in the reference", "[tiles]") {
  const NoCompileThreads none;
  for (const DType type : {i8, u8, i16, u16}) {
    const NamedArrays inputs = {{"x", run_formula(formula(fmt::format("cast(iota([700]) * 97, {})", name_of(type))), {})[0]},
                                {"y", run_formula(formula(fmt::format("cast(iota([700]) % 19 - 9, {})", name_of(type))), {})[0]},
                                {"f", run_formula(formula("(cast(iota([700]), f32) - 350) * 250"), {})[0]}};
    for (const char* text : {"x + y",
                             "x - y",
                             "x*y",
                             "-x",
                             "abs(x)",
                             "x // y",
                             "x % y",
                             "fmod(x, y)",
                             "x**2",
                             "x & y",
                             "x | y",
                             "x ^ y",
                             "~x",
                             "maximum(x, y)",
                             "clamp(x, 3, 90)",
                             "where(x > y, x, y)",
                             "x*3 + 7",
                             "cast(x, f32)*0.5",
                             "cast(x, i64)*1000",
                             "cast(cast(x, i32)*3, {})",
                             "cast(f, {})",
                             "cast(f*1e30, {})",
                             "cast(sqrt(f), {})",
                             "cast(cast(f, f64), {})",
                             "cast(x > y, {})",
                             "cast(x, bool)",
                             "cast(x, u32) + 1",
                             "cast(x, u64)",
                             "cast(cast(x, f32)*0.3 + 1, {})"}) {
      std::string wanted = text;
      if (const std::size_t at = wanted.find("{}"); at != std::string::npos) wanted.replace(at, 2, name_of(type));
      INFO(wanted << " of " << name_of(type));
      const Formula f = formula(wanted, {.mode = Mode::generic, .threads = 1});
      const FormulaResults got = run_formula(f, inputs);
      CHECK(f.explain().find("tiled interpreter") != std::string::npos);
      CHECK(same_bits(got[0], run_formula(formula(wanted, {.mode = Mode::reference}), inputs)[0]));
    }
  }
}

TEST_CASE("tiles: interleaved and short rows, and indices divided by a length, have the reference's bits", "[tiles]") {
  const NamedArrays inputs = {
      {"x", random_array({70, 3})}, {"w", random_array({3})}, {"c", random_array({70, 1})}, {"v", random_array({420})}};
  for (const char* text : {"x*w + c", "softmax(x)", "stack([x, x*2], -1)", "reshape(stack([x, -x], 1), [-1])", "repeat(x, 2, 1)",
                           "repeat(repeat(x, 2, 0), 3, 1)", "reshape(v[:210], [70, 3])*x", "reshape(x, [-1])[1:200:2]", "tile(x, [2, 3])",
                           "transpose(x)*w[:, none]", "reshape(transpose(x), [-1, 7])", "reshape(v[7:], [-1, 59]) + 1",
                           "d = repeat(x, 2, 0) - 1; sum(d)", "cumsum(repeat(w, 9, 0), 0)", "pad(repeat(x, 2, 1), [1, 2], [3, 0])"})
    check_tiled(text, inputs);
}

TEST_CASE("tiles: unsupported nests are left to the compiler", "[tiles]") {
  CHECK(check("%0 = input x : i8[400]\n%1 = popcount %0 : i8[400]\nreturn y = %1") == 0);
  CHECK(check("%0 = input x : u16[400]\n%1 = shift_left %0, %0 : u16[400]\nreturn y = %1") == 0);
}

TEST_CASE("tiles: a first call does not wait for the compiler, a hot one runs compiled code, with equal bits", "[tiles]") {
  const auto body = [](Tensor x, Tensor y) { return tanh(x * 0.75f + y) * exp(-x * x) - y / 3.f; };
  const auto f = compile<Tensor(Tensor, Tensor)>(body);
  const Array x = ramp({70, 1000}, 0.0078125), y = ramp({70, 1000}, 0.03125);
  const Array first = f(x, y);
  CHECK(f.explain().find("tiled interpreter until optimized code is ready") != std::string::npos);
  CHECK(f.stats().optimised == 0);
  const Array second = f(x, y);
  runtime::wait_for_optimised();
  CHECK(f.stats().optimised == 1);
  const Array third = f(x, y);
  const auto judge = compile<Tensor(Tensor, Tensor)>(body, {.mode = Mode::reference});
  const Array expected = judge(x, y);
  for (const Array& got : {first, second, third}) CHECK(same_bits(got, expected));
}

TEST_CASE("tiles: without compile threads, a call compiles once enough time was lost", "[tiles]") {
  const auto body = [](Tensor x) { return tanh(x * 0.375f + 2.f) - x * x * 0.0625f; };
  const auto f = compile<Tensor(Tensor)>(body);
  const Array x = ramp({5, 1000}, 0.0078125);
  set_compile_threads(0);
  const Array first = f(x);
  REQUIRE(f.explain().find("tiled interpreter") != std::string::npos);
  bool same = true;
  for (int call = 0; call < 1'000'000 && f.stats().optimised == 0; ++call) same = same && same_bits(first, f(x));
  set_compile_threads(1);
  CHECK(same);
  CHECK(f.stats().optimised == 1);
  CHECK(f.stats().ms_lost > 0);
  CHECK(f.stats().ms_compiling > 0);
  CHECK(f.explain().find("; optimized") != std::string::npos);
  CHECK(same_bits(first, f(x)));
}

TEST_CASE("tiles: long work is compiled first, and everything if the tiled interpreter is off", "[tiles]") {
  const auto in_tiles = [](auto f, std::int64_t n) {
    static_cast<void>(f(Array::zeros({n}, f32)));
    return f.explain().find("tiled interpreter") != std::string::npos;
  };
  CHECK(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) * 2.f; }), 1000));
  CHECK_FALSE(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) * 3.f * x; }), 10'000'000));
  runtime::set_tiles(false);
  CHECK_FALSE(in_tiles(compile<Tensor(Tensor)>([](Tensor x) { return sin(x) - 2.f; }), 1000));
  runtime::set_tiles(true);
}

TEST_CASE("tiles: the subdomains of a fusion group have equal parts of the scratch, tiled or compiled", "[tiles]") {
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

TEST_CASE("tiles: a destination may be an argument's memory", "[tiles]") {
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
