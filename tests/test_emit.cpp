// Fused, unfused and reference are equal to the bit: hand-made nests of every kind, then random graphs.
#include <catch2/catch.hpp>

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "compiler/codegen.h"
#include "compiler/fuse.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/schedule.h"
#include "golden.h"
#include "how_long.h"
#include "plans_of.h"
#include "random_graph.h"
#include "run_partition.h"

using namespace onepass;
using namespace onepass::test;

namespace {

// Removes the F16C conversions. Lists all features by name, AVX2 among them, because AVX-512 would imply the conversions.
compiler::Target without_f16c(compiler::Target target) {
  if (!target.triple.starts_with("x86_64")) return target;
  target.cpu = "x86-64-v3";
  target.features = "-f16c";
  return target;
}

// Runs the graph in every form of kernel. Returns a description of the first form that differs. Short runs run only one form of the unfused
// kernels, and for an even seed only one form in all; the seed selects it.
std::string difference(const ir::Graph& graph, const Arguments& arguments, std::uint64_t seed) {
  const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
  bool has_f16 = false;  // converted by instructions or by integer arithmetic
  for (ir::NodeId id = 0; id < graph.size(); ++id) has_f16 |= graph[id].dtype == f16;
  struct Form {
    int vector_bytes;
    bool converts_f16;
  };
  if (!has_sanitizer()) {  // the same nests as loops (compiler/loops), interpreted; sanitized runs leave these to test_loops
    std::int64_t count = 0;
    std::string log, what;
    const std::vector<ir::Buffer> got = run(graph, arguments.views, {.log = &log, .interpreted = &count});
    if (!equals_bitwise(got, expected, &what)) return "loops: " + what + "\n" + log;
  }
  std::vector<Form> forms;
  for (const Form form : {Form{64, true}, Form{32, true}, Form{16, true}, Form{32, false}}) {
    if (form.vector_bytes > compiler::Target::host().vector_bytes || (!form.converts_f16 && !has_f16)) continue;
    if (form.vector_bytes == 16 && has_sanitizer() && !is_full_run()) continue;
    forms.push_back(form);
  }
  for (const bool unfused : {false, true}) {
    for (std::size_t k = 0; k < forms.size(); ++k) {
      const bool selected = k == seed / 2 % forms.size();
      if (!is_full_run() && !(seed % 2 != 0 ? !unfused || selected : unfused == (seed / 2 / forms.size() % 2 != 0) && selected)) continue;
      const auto [vector_bytes, converts_f16] = forms[k];
      RunOptions options;
      options.unfused = unfused;
      options.target = compiler::Target::host().with_vector_bytes(vector_bytes);
      if (!converts_f16) options.target = without_f16c(options.target);
      options.threads = vector_bytes == 64 ? 3 : 2;
      options.masked = vector_bytes == 32;
      std::string log, what;
      options.log = &log;
      const std::vector<ir::Buffer> got = run(graph, arguments.views, options);
      if (!equals_bitwise(got, expected, &what))
        return std::string(unfused ? "unfused" : "fused") + ", vectors of " + std::to_string(vector_bytes) + " bytes: " + what + "\n" + log;
    }
  }
  return {};
}

void check(const char* text, bool strided = false) {
  const ir::Graph graph = ir::parse_graph(text);
  INFO(text);
  static std::uint64_t checks = 0;
  ++checks;
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(times(2, 2)); ++seed)
    CHECK(difference(graph, random_arguments(graph, seed, strided), 2 * checks + seed % 2) == "");
}

}  // namespace

TEST_CASE("emit: an elementwise nest with a broadcast operand", "[emit]") {
  check(R"(
    %0 = input x : f32[33, 70]
    %1 = input w : f32[33, 1]
    %2 = broadcast %1 : f32[33, 70]
    %3 = mul %0, %2 : f32[33, 70]
    return y = %3)");
}

TEST_CASE("emit: a transposed operand goes through tiles", "[emit]") {
  check(R"(
    %0 = input x : f32[150, 70]
    %1 = input y : f32[70, 150]
    %2 = permute %0 {1, 0} : f32[70, 150]
    %3 = mul %2, %1 : f32[70, 150]
    %4 = add %3, %1 : f32[70, 150]
    return z = %4)");
  check(R"(
    %0 = input x : f64[3, 37, 21]
    %2 = permute %0 {0, 2, 1} : f64[3, 21, 37]
    %3 = neg %2 : f64[3, 21, 37]
    return z = %3)");
}

TEST_CASE("emit: a softmax is one inner-axis reduction", "[emit]") {
  for (const char* n : {"1", "37", "64", "100", "1000", "5000"}) {
    const std::string m = n;
    check(("%0 = input x : f32[5, " + m + "]\n%1 = reduce_max %0 {1} : f32[5]\n%2 = reshape %1 : f32[5, 1]\n%3 = broadcast %2 : f32[5, " +
           m + "]\n%4 = sub %0, %3 : f32[5, " + m + "]\n%5 = exp %4 : f32[5, " + m +
           "]\n%6 = reduce_sum %5 {1} : f32[5]\n%7 = reciprocal %6 : f32[5]\n" +
           "%8 = reshape %7 : f32[5, 1]\n%9 = broadcast %8 : f32[5, " + m + "]\n%10 = mul %5, %9 : f32[5, " + m + "]\nreturn y = %10")
              .c_str());
  }
}

TEST_CASE("emit: sums along rows, columns, both and the middle", "[emit]") {
  for (const char* shape : {"[7, 130]", "[300, 70]", "[9, 9000]", "[2100, 5]", "[1, 8200]"}) {
    for (const char* axes : {"{0}", "{1}", "{0, 1}"}) {
      const std::string s = shape;
      const std::string rows = s.substr(1, s.find(',') - 1), columns = s.substr(s.find(',') + 2, s.size() - s.find(',') - 3);
      const std::string out = std::string(axes) == "{0}" ? "[" + columns + "]" : std::string(axes) == "{1}" ? "[" + rows + "]" : "[]";
      for (const char* type : {"f32", "f64", "i64"}) {
        const std::string t = type;
        check(("%0 = input x : " + t + s + "\n%1 = reduce_sum %0 " + axes + " : " + t + out + "\n%2 = reduce_max %0 " + axes + " : " + t +
               out + "\nreturn a = %1, b = %2")
                  .c_str());
      }
    }
  }
  check("%0 = input x : f32[11, 5, 70]\n%1 = reduce_sum %0 {0, 2} : f32[5]\nreturn s = %1");
  check("%0 = input x : f32[11, 5, 3, 4]\n%1 = reduce_sum %0 {0, 2} : f32[5, 4]\nreturn s = %1");
  check(
      "%0 = input x : f32[600, 4]\n%1 = reduce_sum %0 {0} : f32[4]\n%2 = reshape %1 : f32[1, 4]\n%3 = broadcast %2 : f32[600, 4]\n%4 = sub "
      "%0, %3 : f32[600, 4]\nreturn s = %4");
}

namespace {

const char* const kWeightedSum = R"(
    %0 = input a : f32[1, 43, 100]
    %1 = input h : f32[9, 43, 100]
    %2 = broadcast %0 : f32[9, 43, 100]
    %3 = mul %2, %1 : f32[9, 43, 100]
    %4 = reduce_sum %3 {1} : f32[9, 100]
    return y = %4)";

// Returns the number of stack accesses in the loop with most vector instructions of x86 assembly.
int stack_accesses_in_longest_loop(const std::string& assembly) {
  int stack = 0, vectors = 0, of_longest = 0, most = 0;
  std::string label;
  std::istringstream lines(assembly);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(".LBB")) label = line.substr(0, line.find(':')), stack = vectors = 0;
    stack += line.find("(%rsp)") != std::string::npos;
    vectors += line.find("zmm") != std::string::npos;
    if (line.starts_with("\tj") && line.ends_with(label) && vectors > most) most = vectors, of_longest = stack;
  }
  return most < 100 ? -1 : of_longest;
}

}  // namespace

TEST_CASE("emit: sums over a middle axis of rows that share an operand", "[emit]") {
  check(kWeightedSum);
  check(kWeightedSum, true);
  check(R"(
    %0 = input h : f64[9, 530, 33]
    %1 = slice %0 {8, 529, 0, -1, -1, 1} : f64[9, 530, 33]
    %2 = slice %0 {0, 0, 0, 1, 1, 1} : f64[1, 530, 33]
    %3 = broadcast %2 : f64[9, 530, 33]
    %4 = mul %3, %1 : f64[9, 530, 33]
    %5 = reduce_sum %4 {1} : f64[9, 33]
    return y = %5)");
}

TEST_CASE("emit: sums of rows next to a stored value of each row", "[emit]") {
  // two steps of conjugate gradients for a Newton step of a logistic regression
  const ir::Graph graph = optimised(
      "p = sigmoid(x @ v); s = p*(1 - p); r = v - transpose(x) @ (p - 0.5); h = transpose(x) @ (s*(x @ r)) + 0.1*r; "
      "a = sum(r*r)/sum(r*h); t = r - a*h; q = t + (sum(t*t)/sum(r*r))*r; i = transpose(x) @ (s*(x @ q)); out = v + a*r + i",
      {{"x", {1000, 20}}, {"v", {20}}}, f64);
  const Arguments arguments = random_arguments(graph, 5);
  RunOptions options;
  options.threads = 2;
  std::string log, what;
  options.log = &log;
  CHECK(equals_bitwise(run(graph, arguments.views, options), ir::evaluate(graph, arguments.views), &what));
  CHECK(what == "");
  if (compiler::Target::host().vector_bytes >= 64) CHECK_THAT(log, Catch::Contains("unroll-and-jam by 4 rows"));
}

TEST_CASE("emit: rows that are read together need few pointers, for any distance", "[emit]") {
  const ir::Graph graph = ir::parse_graph(kWeightedSum);
  const compiler::Partition partition = compiler::fuse(graph);
  compiler::Target target = compiler::Target::generic_cpu();
  target.triple = "x86_64-unknown-linux-gnu", target.cpu = "x86-64-v4", target.features = "", target.vector_bytes = 64;
  const std::vector<compiler::Planned> planned = compiler::plan(graph, partition, 0, std::vector<compiler::Layout>(graph.size()));
  REQUIRE(planned.size() == 1);
  const compiler::Scheduled scheduled = compiler::schedule(planned[0].nest, planned[0].numbers, target);
  REQUIRE(scheduled.schedule.abreast == 4);
  compiler::CodegenRequest request{&planned[0].nest, &scheduled.schedule, &target};
  request.want_assembly = true;
  const int accesses = stack_accesses_in_longest_loop(compiler::generate(request).assembly);
  CHECK(accesses >= 0);
  CHECK(accesses <= 16);  // eight reads of each of four arrays and of the shared operand are 40 rows
}

TEST_CASE("emit: types without gather instructions are read without a branch for each element", "[emit]") {
  const ir::Graph graph = test::optimised("y = pad(a[:, :, ::2], [2, 2, 1], [0, 0, 0], mode=\"reflect\")", {{"a", {2, 2, 4}}}, DType::I8);
  const std::vector<compiler::Planned> planned = test::plans_of(graph);
  REQUIRE(planned.size() == 1);
  compiler::Target target = compiler::Target::generic_cpu();
  target.triple = "x86_64-unknown-linux-gnu", target.cpu = "x86-64-v4", target.features = "", target.vector_bytes = 64;
  const compiler::Scheduled scheduled = compiler::schedule(planned[0].nest, planned[0].numbers, target);
  compiler::CodegenRequest request{&planned[0].nest, &scheduled.schedule, &target};
  request.want_ir = request.want_assembly = true;
  const compiler::CodegenResult made = compiler::generate(request);
  const auto count = [](const std::string& text, std::string_view what) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  CHECK(count(made.assembly, "\n\tj") < 50);  // jumps; a branch for each of 32 elements of 8 loads would be 256
  CHECK(count(made.assembly, "\n") < 5000);   // vectors of 128 elements would give four times as many lines, and LLVM would need seconds
}

TEST_CASE("emit: generic kernels call long operators that a body has several times, specialized kernels do not", "[emit]") {
  struct Case {
    const char* text;
    std::size_t functions;
  };
  const Case cases[] = {
      {"z = pow(x, y) + pow(y, x)", 1},
      {"z = exp(x) + exp(y) + exp(x*y)", 1},
      {"z = exp(x)*sin(x)*cos(y) + exp(y)*sin(y)*cos(x) + exp(x*y)", 3},
      {"z = exp(x)*sin(y)*pow(x, y)", 0},  // each once
      {"z = cosh(x)", 0},
      {"z = sum(exp(x) + exp(y), axis=0)", 0},  // a reduction has no second copy for the last vector
      {"z = sum(lgamma(x) - lgamma(y), axis=0)", 1},
  };
  for (const Case& c : cases)
    for (const DType dtype : {DType::F32, DType::F64, DType::F16}) {
      INFO(c.text << " of " << name_of(dtype));
      const ir::Graph graph = test::optimised(c.text, {{"x", {3, 1030}}, {"y", {3, 1030}}}, dtype);
      const Arguments arguments = random_arguments(graph, 8);
      std::string what;
      CHECK(equals_bitwise(run(graph, arguments.views), ir::evaluate(graph, arguments.views), &what));
      CHECK(what == "");
      const compiler::Planned planned = test::plans_of(graph).at(0);
      const compiler::Target target = compiler::Target::host();
      const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target);
      CHECK(scheduled.schedule.called.size() == c.functions);
      const compiler::KnownWords known =
          compiler::known_words(planned.nest, compiler::make_words(planned.nest, planned.numbers, scheduled.numbers),
                                std::vector<bool>(planned.nest.slots.size(), true));
      compiler::CodegenRequest request{&planned.nest, &scheduled.schedule, &target};
      request.want_ir = true;
      for (const bool specialised : {false, true}) {
        request.known = specialised ? &known : nullptr;
        const std::string text = compiler::generate(request).ir;
        std::size_t functions = 0;
        for (std::size_t at = 0; (at = text.find("\ndefine internal", at)) != std::string::npos; ++at) ++functions;
        CHECK(functions == (specialised ? 0 : c.functions));
      }
    }
}

TEST_CASE("emit: the last elements of a loop, and of interleaved rows, are masked in vectors of one register", "[emit]") {
  struct Case {
    const char* text;
    std::vector<std::int64_t> shape;
  };
  const std::vector<Case> cases = {{"z = exp(x)*x", {3, 1030}},
                                   {"z = exp(x)*x", {7}},
                                   {"z = softmax(x, axis=1)", {1001, 5}},
                                   {"z = softmax(x, axis=1)", {9, 3}},
                                   {"z = stack([x, x*2, x*3], -1)", {501}},
                                   {"z = stack([x, x*2], -1)", {43}}};
  compiler::Target wide = compiler::Target::generic_cpu();
  wide.triple = "x86_64-unknown-linux-gnu", wide.cpu = "x86-64-v4", wide.features = "", wide.vector_bytes = 64;
  for (const Case& c : cases)
    for (const DType dtype : {DType::F32, DType::F64, DType::F16}) {
      INFO(c.text << " of " << name_of(dtype));
      const ir::Graph graph = test::optimised(c.text, {{"x", c.shape}}, dtype);
      const Arguments arguments = random_arguments(graph, 3);
      std::string what;
      CHECK(equals_bitwise(run(graph, arguments.views), ir::evaluate(graph, arguments.views), &what));
      CHECK(what == "");
      const compiler::Planned planned = test::plans_of(graph).at(0);
      const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, wide);
      compiler::CodegenRequest request{&planned.nest, &scheduled.schedule, &wide};
      request.want_ir = true;
      const std::string ir = compiler::generate(request).ir;
      const auto most = static_cast<int>(64 / size_of(dtype == DType::F16 ? DType::F32 : dtype));
      constexpr std::string_view store = "call void @llvm.masked.store.v";
      int stores = 0;
      for (std::size_t at = 0; (at = ir.find(store, at)) != std::string::npos; ++stores) {
        at += store.size();
        const int lanes = std::atoi(ir.c_str() + at);
        CHECK(lanes <= (scheduled.schedule.called.empty() ? most : scheduled.schedule.width));
        CHECK((lanes & (lanes - 1)) == 0);
      }
      CHECK(stores > 0);
    }
}

TEST_CASE("emit: unroll-and-jam columns of a product stay in the caches for many of its rows", "[emit]") {
  const char* const product = R"(
    %0 = input x : f32[50, 1, 130]
    %1 = input y : f32[1, 42, 130]
    %2 = broadcast %0 : f32[50, 42, 130]
    %3 = broadcast %1 : f32[50, 42, 130]
    %4 = contract_lanes %2, %3 {2} : f32[50, 42]
    return z = %4)";
  check(product);
  const ir::Graph graph = ir::parse_graph(product);
  const std::vector<compiler::Planned> planned =
      compiler::plan(graph, compiler::fuse(graph), 0, std::vector<compiler::Layout>(graph.size()));
  REQUIRE(planned.size() == 1);
  compiler::Target target = compiler::Target::generic_cpu();
  target.vector_bytes = 64;
  const auto numbers = [&](std::int64_t l2_bytes) {
    target.l2_bytes = l2_bytes;
    return compiler::schedule(planned[0].nest, planned[0].numbers, target, {.threads = 2}).numbers;
  };
  CHECK(numbers(512 << 10).tile_rows == 34);  // without the rounding to rows, eight tasks for each thread: 50 * 11 / 16
  CHECK(numbers(512 << 10).items == 2 * 11);
  CHECK(numbers(10 << 10).tile_rows == 4);  // 520 bytes each, in a quarter of the cache
  CHECK(numbers(10 << 10).items == 13 * 11);
}

TEST_CASE("emit: maximum and minimum respect NaN and the sign of zero at every position", "[emit]") {
  // [n, n]: row i and column i have one different element at i, which decides their maximum or minimum
  const auto one_differs = [](auto others, auto one) {
    constexpr std::size_t n = 150;
    std::vector<decltype(one)> x(n * n, others);
    for (std::size_t i = 0; i < n; ++i) x[i * n + i] = one;
    Arguments out;
    out.storage.emplace_back(sizeof(one) * x.size());
    std::memcpy(out.storage[0].data(), x.data(), out.storage[0].size());
    out.views.push_back({sizeof(one) == 4 ? f32 : f64, out.storage[0].data(), {n, n}, {}});
    return out;
  };
  std::uint64_t count = 0;
  const auto all = [&](auto zero, const char* type) {
    using T = decltype(zero);
    for (const auto& [others, one] : {std::pair(T(1), std::numeric_limits<T>::quiet_NaN()),
                                      {-std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::quiet_NaN()},
                                      {-zero, zero},
                                      {zero, -zero}}) {
      const Arguments arguments = one_differs(others, one);
      for (const char* op : {"reduce_max", "reduce_min"})
        for (const char* axis : {"{0}", "{1}"}) {
          const ir::Graph graph =
              ir::parse_graph(fmt::format("%0 = input x : {0}[150, 150]\n%1 = {1} %0 {2} : {0}[150]\nreturn y = %1", type, op, axis));
          INFO(op << " " << type << axis << ", " << one << " among " << others);
          CHECK(difference(graph, arguments, ++count) == "");
        }
    }
  };
  all(0.0f, "f32");
  all(0.0, "f64");
}

TEST_CASE("emit: the adjoints of x*w + b in one pass", "[emit]") {
  check(R"(
    %0 = input x : f32[6, 7, 5, 9]
    %1 = input w : f32[6, 7, 1, 1]
    %2 = input dy : f32[6, 7, 5, 9]
    %3 = broadcast %1 : f32[6, 7, 5, 9]
    %4 = mul0 %2, %3 : f32[6, 7, 5, 9]
    %5 = mul0 %2, %0 : f32[6, 7, 5, 9]
    %6 = reduce_sum %5 {2, 3} : f32[6, 7]
    %7 = reduce_sum %2 {2, 3} : f32[6, 7]
    return dx = %4, dw = %6, db = %7)");
}

TEST_CASE("emit: a zero cotangent gives zero for every number", "[emit]") {
  for (const char* bits : {"0x7fc00000", "0x7f800000", "0xff800000", "0x00000000", "0x80000000", "0x00000001", "0x40400000", "0xc0400000"})
    check(fmt::format("%0 = input g : f32[40]\n%1 = constant 0 = 0x00000000 : f32[40]\n%2 = maximum %0, %1 : f32[40]\n"
                      "%3 = constant 0 = {} : f32[40]\n%4 = mul0 %2, %3 : f32[40]\nreturn y = %4",
                      bits)
              .c_str());
}

TEST_CASE("emit: a scan along an axis of one element whose operand is broadcast along another axis", "[emit]") {
  for (const char* n : {"2", "300"})
    check(fmt::format("%0 = input c : f32[1, {0}]\n%1 = reduce_sum %0 {{1}} : f32[1]\n%2 = reshape %1 : f32[1, 1]\n"
                      "%3 = broadcast %2 : f32[3, 1]\n%4 = scan_sum %3 {{1}} : f32[3, 1]\n%5 = neg %4 : f32[3, 1]\nreturn y = %4, z = %5",
                      n)
              .c_str());
}

TEST_CASE("emit: a slice's adjoint is a predicated load", "[emit]") {
  check(R"(
    %0 = input x : f32[40]
    %1 = input y : f32[100]
    %2 = pad %0 {7, 2} : f32[100]
    %3 = add %1, %2 : f32[100]
    return z = %3)");
}

namespace {

void compare_random_graphs(int count, const std::function<RandomGraphOptions(std::uint64_t)>& options_of) {
  const char* from = std::getenv("ONEPASS_TEST_SEED");
  const std::uint64_t first = from ? std::strtoull(from, nullptr, 10) : 1;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(test::rounds(count, 40 * count)); ++seed) {
    const ir::Graph graph = random_graph(seed, options_of(seed));
    const auto arguments_for = [&](const ir::Graph& g) { return random_arguments(g, seed, seed % 2 == 1); };
    std::string what;
    try {
      what = difference(graph, arguments_for(graph), 2 * seed + 1);
    } catch (const std::exception& e) { what = e.what(); }
    if (what.empty()) continue;
    UNSCOPED_INFO("before shrinking: " << what.substr(0, 4000));
    const ir::Graph small = shrink(
        graph, [&](const ir::Graph& g) { return !difference(g, arguments_for(g), 2 * seed + 1).empty(); }, 600);
    try {
      what = difference(small, arguments_for(small), 2 * seed + 1);
    } catch (const std::exception& e) { what = e.what(); }
    FAIL_CHECK(failure_report(seed, small) << what);
    break;
  }
}

}  // namespace

TEST_CASE("emit: sums and pads of empty arrays", "[emit]") {
  check("%0 = input x : f32[0, 5]\n%1 = reduce_sum %0 {0, 1} : f32[]\n%2 = reduce_sum %0 {0} : f32[5]\nreturn a = %1, b = %2");
  check("%0 = input x : f32[5, 0]\n%1 = reduce_sum %0 {1} : f32[5]\n%2 = input y : f32[5]\n%3 = mul %1, %2 : f32[5]\nreturn a = %3");
  check("%0 = input x : i32[0, 3]\n%1 = reshape %0 : i32[3, 0]\n%2 = pad %1 {1, 2, 1, 1} : i32[5, 1]\nreturn a = %2");
}

TEST_CASE("emit: empty results next to sums over no elements", "[emit]") {
  check("%0 = input x : i16[31, 1, 0]\n%1 = neg %0 : i16[31, 1, 0]\n%2 = reduce_sum %1 {1, 2} : i16[31]\nreturn a = %1, b = %2, c = %2");
  check("%0 = input a : u32[1, 0]\n%1 = bitwise_not %0 : u32[1, 0]\n%2 = pad %1 {2, 0, 1, 1} : u32[4, 1]\nreturn a = %2, b = %1");
}

TEST_CASE("emit: views of a value computed in the same row", "[emit]") {
  const std::string softmax =
      "%0 = input x : f32[6, 9]\n%1 = reduce_sum %0 {1} : f32[6]\n%2 = reshape %1 : f32[6, 1]\n%3 = broadcast %2 : f32[6, 9]\n%4 = div %0, "
      "%3 : f32[6, 9]\n";
  const std::string columns =
      "%0 = input x : f32[6, 9]\n%1 = reduce_sum %0 {0} : f32[9]\n%2 = reshape %1 : f32[1, 9]\n%3 = broadcast %2 : f32[6, 9]\n%4 = div %0, "
      "%3 : f32[6, 9]\n";
  for (const std::string& value : {softmax, columns})
    for (const char* rest : {
             "%5 = reshape %4 : f32[54]\nreturn a = %5, b = %4",
             "%5 = slice %4 {5, 0, -1, 1} : f32[6, 9]\nreturn a = %5, b = %4",
             "%5 = slice %4 {5, 8, -1, -1} : f32[6, 9]\n%6 = mul %5, %0 : f32[6, 9]\nreturn a = %6",
             "%5 = slice %4 {5, 8, -1, -1} : f32[6, 9]\n%6 = add %5, %4 : f32[6, 9]\n%7 = permute %6 {1, 0} : f32[9, 6]\nreturn a = %7",
             "%5 = slice %4 {0, 8, 1, -1} : f32[6, 9]\n%6 = add %5, %4 : f32[6, 9]\n%7 = reduce_sum %6 {1} : f32[6]\nreturn a = %7",
             "%5 = slice %4 {5, 0, -1, 1} : f32[6, 9]\n%6 = reduce_sum %5 {0} : f32[9]\nreturn a = %6",
             "%5 = reshape %4 : f32[54]\n%6 = exp %5 : f32[54]\n%7 = reshape %6 : f32[6, 9]\n%8 = reduce_sum %7 {1} : f32[6]\nreturn a = "
             "%8, b = %6",
             "%5 = permute %4 {1, 0} : f32[9, 6]\n%6 = reshape %5 : f32[54]\nreturn a = %6",
         })
      check((value + rest).c_str());
}

TEST_CASE("emit: an invalid module is an error, not the end of the process", "[emit]") {
  const ir::Graph graph = optimised("x*y", {{"x", {1000}}, {"y", {1000}}}, f32);
  compiler::Planned planned = plans_of(graph).at(0);
  const compiler::Target target = compiler::Target::host();
  const compiler::Scheduled scheduled = compiler::schedule(planned.nest, planned.numbers, target);
  compiler::CodegenRequest request{&planned.nest, &scheduled.schedule, &target};
  CHECK(!compiler::generate(request).object.empty());
  planned.nest.buffers.at(1).dtype = DType::I32;  // an operand of mul
  CHECK_THROWS_WITH(compiler::generate(request), Catch::Contains("the generated module is invalid"));
}

TEST_CASE("emit: operators with separate basic blocks, in vectors and hoisted", "[emit]") {
  for (const std::string t : {"f32", "f64"}) {
    check(("%0 = input x : " + t + "[5, 1000]\n%1 = input k : " + t + "[]\n%2 = sin %0 : " + t + "[5, 1000]\n%3 = tan %2 : " + t +
           "[5, 1000]\n" + "%4 = cos %1 : " + t + "[]\n%5 = tan %4 : " + t + "[]\n%6 = reshape %5 : " + t +
           "[1, 1]\n%7 = broadcast %6 : " + t + "[5, 1000]\n" + "%8 = add %3, %7 : " + t + "[5, 1000]\n%9 = tan %0 : " + t +
           "[5, 1000]\n%10 = fmod %9, %0 : " + t + "[5, 1000]\nreturn a = %8, b = %10")
              .c_str());
  }
  for (const std::string t : {"i8", "u16", "i32", "u64", "i64"})
    check(("%0 = input x : " + t + "[300]\n%1 = input k : " + t + "[]\n%2 = reshape %1 : " + t + "[1]\n%3 = broadcast %2 : " + t +
           "[300]\n" + "%4 = integer_pow %0, %3 : " + t + "[300]\n%5 = integer_pow %3, %0 : " + t + "[300]\n%6 = integer_pow %1, %1 : " +
           t + "[]\n" + "%7 = fmod %4, %0 : " + t + "[300]\n%8 = fmod %1, %6 : " + t + "[]\nreturn a = %5, b = %7, c = %8")
              .c_str());
}

TEST_CASE("emit: a long body in fissioned loops, the last of which stores a value of the first", "[emit]") {
  for (const DType dtype : {f32, f64}) {
    int length = 0;
    for (const std::int64_t n : {2, 255, 2048, 2049, 6007}) {
      ++length;
      if (dtype == f64 && n != 2049 && !test::is_full_run()) continue;  // the fissioned loops depend on the body, not on the type
      const std::string type = " : " + std::string(name_of(dtype)) + "[" + std::to_string(n) + "]\n";
      std::string text =
          "slot 0 = 0.75 : " + std::string(name_of(dtype)) + "\n%0 = input x" + type + "%1 = input y" + type + "%2 = slot 0" + type;
      int last = 0, next = 3;
      const auto add = [&](const std::string& op, int a, int b) {
        text += "%" + std::to_string(next) + " = " + op + " %" + std::to_string(a) + ", %" + std::to_string(b) + type;
        last = next++;
      };
      for (int i = 0; i < 320; ++i) {
        add("mul", last, 2);
        add(i % 2 ? "add" : "sub", last, i == 3 ? 1 : 2);
      }
      text += "return early = %30, late = %" + std::to_string(last);
      const ir::Graph graph = ir::parse_graph(text);
      const compiler::Planned p = compiler::plan(graph, compiler::fuse(graph), 0, std::vector<compiler::Layout>(graph.size())).at(0);
      CHECK(!compiler::schedule(p.nest, p.numbers, compiler::Target::generic_cpu()).schedule.parts.empty());
      const Arguments arguments = random_arguments(graph, 7);
      const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
      for (const int vector_bytes : {64, 32, 16}) {
        if (vector_bytes > compiler::Target::host().vector_bytes) continue;
        if (n != 2049 && vector_bytes != 64 >> length % 3 && !test::is_full_run()) continue;
        RunOptions options;
        options.target = compiler::Target::host().with_vector_bytes(vector_bytes);
        options.threads = 2;
        std::string what;
        INFO(n << ", vectors of " << vector_bytes);
        CHECK(equals_bitwise(run(graph, arguments.views, options), expected, &what));
        CHECK(what == "");
      }
    }
  }
}

TEST_CASE("emit: unrolled iterations run as a rerolled loop", "[emit]") {
  struct Case {
    const char *before, *each, *after;  // ? and ! are the last step's two values, # is its number
    DType dtype = f32;
  };
  const Case cases[] = {
      {"a0 = x; b0 = y", "?*#.5 - 0.#; !", "a"},
      {"a0 = x; b0 = y", "? + !*0.#; ! - ?*0.125", "a - b"},  // carries two values
      {"a0 = x; b0 = y", "maximum(?, -?)*0.75 + y; where(? < !, !*0.5, ? + #.5)", "a*b", f64},
      {"a0 = x*k; b0 = 3.5*k", "tanh(?*#.25 + k); ! + ?", "b"},
      {"a0 = x; b0 = y", "? + !*#; ! ^ (? >> 1)", "a + b", i32},
      {"a0 = x; b0 = y", "(? - !*0.25)*x; ! + 0.5", "a + b", f16},
      // the first step reads other types
      {"a0 = bitcast(cast(x*1e9, i32), u32); b0 = y", "cast(cast(?, f64)*0.#, i32); ! + cast(?, f32)*#.5", "a + b"},
      {"a0 = x; b0 = y", "?*0.# + where(abs(?) > cast(y, f64)*0.1, x, 0)*0.#; ! + ?", "a + b", i32},
  };
  for (const Case& c : cases) {
    std::string text = c.before;
    const int steps = 200;
    for (int i = 1; i <= steps; ++i) {
      text += "; a" + std::to_string(i) + " = ";
      for (const char* p = c.each; *p; ++p) {
        if (*p == ';') text += "; b" + std::to_string(i) + " =";
        else if (*p == '?' || *p == '!') text += (*p == '?' ? "a" : "b") + std::to_string(i - 1);
        else if (*p == '#') text += std::to_string(i % 9 + 1);
        else text += *p;
      }
    }
    text += "; a = a" + std::to_string(steps) + "; b = b" + std::to_string(steps) + "; out = " + c.after;
    const ir::Graph graph = optimised(text, {{"x", {3000}}, {"y", {3000}}, {"k", {}}}, c.dtype);
    const Arguments arguments = random_arguments(graph, 5);
    const std::vector<ir::Buffer> expected = ir::evaluate(graph, arguments.views);
    for (const int vector_bytes : {64, 32}) {
      if (vector_bytes > compiler::Target::host().vector_bytes) continue;
      RunOptions options;
      options.target = compiler::Target::host().with_vector_bytes(vector_bytes);
      options.masked = vector_bytes == 32;
      std::string log, what;
      options.log = &log;
      CHECK(equals_bitwise(run(graph, arguments.views, options), expected, &what));
      INFO(c.each << ", vectors of " << vector_bytes);
      CHECK(what == "");
      CHECK_THAT(log, Catch::Contains("rerolled into a loop"));
    }
  }
}

TEST_CASE("emit: a subtracted number is added with changed sign, unless its value is also needed", "[emit]") {
  check(R"(
    slot 0 = 1.5 : f32
    slot 1 = 0 : f32
    %0 = input x : f32[300]
    %1 = slot 0 : f32[300]
    %2 = sub %0, %1 : f32[300]
    %3 = slot 1 : f32[300]
    %4 = sub %2, %3 : f32[300]
    %5 = sub %3, %4 : f32[300]
    %6 = sub %4, %1 : f32[300]
    return %5, %6, %4)");
  check(R"(
    slot 0 = 1.5 : f64
    slot 1 = -0.5 : f64
    %0 = input x : f64[300]
    %1 = slot 0 : f64[300]
    %2 = sub %0, %1 : f64[300]
    %3 = slot 1 : f64[300]
    %4 = sub %2, %3 : f64[300]
    return %4, %3)");
}

// On some processors a result that underflows takes a hundred times as long.
TEST_CASE("emit: exponentials that round to 0 are not computed", "[emit]") {
  std::vector<float> a(300, 1.25f), n(300);
  for (std::size_t i = 0; i < n.size(); ++i) n[i] = i % 3 == 0 ? 3.0f : -151.0f - static_cast<float>(i % 100);
  const ir::Graph graph = ir::parse_graph(R"(
    %0 = input a : f32[300]
    %1 = input n : f32[300]
    %2 = ldexp %0, %1 : f32[300]
    return y = %2)");
  const std::vector<ir::ArrayView> views = {{f32, a.data(), {300}, {}}, {f32, n.data(), {300}, {}}};
  for (const int vector_bytes : {64, 32, 16}) {
    if (vector_bytes > compiler::Target::host().vector_bytes) continue;
    std::feclearexcept(FE_ALL_EXCEPT);
    const std::vector<ir::Buffer> got = run(graph, views, {.target = compiler::Target::host().with_vector_bytes(vector_bytes)});
    CHECK(std::fetestexcept(FE_UNDERFLOW) == 0);
    CHECK(reinterpret_cast<const float*>(got[0].bytes.data())[3] == 10.0f);
    CHECK(reinterpret_cast<const float*>(got[0].bytes.data())[4] == 0.0f);
  }
}

TEST_CASE("emit: random graphs, fused and unfused, against the reference", "[emit][random]") {
  compare_random_graphs(12, [](std::uint64_t seed) {
    RandomGraphOptions options;
    options.nodes = 4 + static_cast<int>(seed % 24);
    options.max_elements = seed % 5 == 0 ? 20000 : 2000;
    return options;
  });
}

TEST_CASE("emit: random graphs of views and reductions, fused and unfused, against the reference", "[emit][random]") {
  compare_random_graphs(20, [](std::uint64_t seed) {
    RandomGraphOptions options;
    options.nodes = 4 + static_cast<int>(seed % 12);
    options.inputs = 2;
    options.max_rank = 4;
    options.max_elements = 2000;
    options.zero_sizes = seed % 4 == 0;
    options.dtypes = {f32, i32, f16, bf16};
    options.allow = [](ir::Op op) {
      return ir::is_view(op) || ir::is_reduction(op) || op == ir::Op::Add || op == ir::Op::Mul || op == ir::Op::Cast;
    };
    return options;
  });
}

TEST_CASE("emit: random graphs of subdomains, large enough to be cut, fused and unfused, against the reference", "[emit][random]") {
  compare_random_graphs(20, [](std::uint64_t seed) {
    RandomGraphOptions options;
    options.nodes = 3 + static_cast<int>(seed % 7);
    options.inputs = 2;
    options.max_rank = 4;
    options.max_elements = seed % 3 == 0 ? 2000 : 30000;
    options.zero_sizes = seed % 4 == 0;
    options.dtypes = seed % 2 ? std::vector<DType>{f32, i32} : std::vector<DType>{f64, u8, boolean};
    options.allow = [](ir::Op op) {
      return ir::is_view(op) || op == ir::Op::Piecewise || op == ir::Op::ReduceMax || op == ir::Op::Add || op == ir::Op::BitwiseXor;
    };
    return options;
  });
}
