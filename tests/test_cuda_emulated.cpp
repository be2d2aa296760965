// CUDA text, run on the CPU (cuda_emulation.h): equal to the reference bit for bit, like the CPU's kernels (test_emit.cpp).
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <set>

#include "cuda_emulation.h"
#include "cuda_programs.h"
#include "gpu_check/cases.h"
#include "how_long.h"
#include "ir/ops.h"
#include "nvrtc_devices.h"
#include "random_graph.h"

using namespace onepass;
using namespace onepass::test;

namespace {

// Graphs whose kernels are compiled together.
class Suite {
 public:
  explicit Suite(const CudaEmulation::Options& options = {}) : options_(options) {}
  // Adds the graph in each form: generic and specialized, fused and unfused.
  void add(const ir::Graph& graph, Arguments&& arguments, const std::string& name, bool one_form = false) {
    struct Form {
      bool specialised, unfused;
    };
    for (const auto [specialised, unfused] : {Form{false, false}, Form{true, false}, Form{false, true}}) {
      if (one_form && (specialised || unfused)) continue;
      CudaEmulation::Options options = options_;
      options.specialised = specialised;
      options.unfused = unfused;
      cases_.push_back({graph, arguments_.size(), emulation_.add(graph, arguments.views, options), name});
    }
    arguments_.push_back(std::move(arguments));
  }
  void add(const std::string& text, bool strided = false) {
    const ir::Graph graph = ir::parse_graph(text);
    for (std::uint64_t seed = 1; seed <= 2; ++seed) add(graph, random_arguments(graph, seed, strided), text, seed == 2 && !is_full_run());
  }
  void check() {
    // Compiling all of this text with NVRTC takes minutes, so only full runs do it. test_cuda_nvrtc always compiles a selection.
    if (is_full_run() && !has_sanitizer() && nvrtc()) compile_for_all(emulation_.text());
    emulation_.compile();
    unsigned seed = 1;
    for (const Case& c : cases_) {
      std::string what;
      const std::vector<ir::Buffer> got = emulation_.run(c.number, ++seed);
      if (equals_bitwise(got, ir::evaluate(c.graph, arguments_[c.arguments].views), &what)) {
        CHECK(true);
        continue;
      }
      FAIL_CHECK(c.name << "\n" << ir::print(c.graph) << "\n" << what << "\n" << emulation_.log(c.number));
      break;
    }
  }

  std::size_t size() const { return cases_.size(); }
  std::vector<CudaEmulation::KernelView> kernels(std::size_t i) const { return emulation_.kernels(cases_[i].number); }

 private:
  struct Case {
    ir::Graph graph;
    std::size_t arguments, number;
    std::string name;
  };
  CudaEmulation::Options options_;
  CudaEmulation emulation_;
  std::vector<Arguments> arguments_;
  std::vector<Case> cases_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("cuda: elementwise nests with broadcast, transposed, reversed and padded operands", "[cuda]") {
  Suite suite;
  suite.add(
      "%0 = input x : f32[33, 70]\n%1 = input w : f32[33, 1]\n%2 = broadcast %1 : f32[33, 70]\n%3 = mul %0, %2 : f32[33, 70]\nreturn y = "
      "%3");
  suite.add(
      "%0 = input x : f32[33, 72]\n%1 = input w : f32[1, 72]\n%2 = broadcast %1 : f32[33, 72]\n%3 = mul %0, %2 : f32[33, 72]\nreturn y = "
      "%3");
  suite.add(
      "%0 = input x : f32[50, 70]\n%1 = input y : f32[70, 50]\n%2 = permute %0 {1, 0} : f32[70, 50]\n%3 = mul %2, %1 : f32[70, 50]\nreturn "
      "z = %3");
  suite.add("%0 = input x : f32[40]\n%1 = input y : f32[100]\n%2 = pad %0 {7, 2} : f32[100]\n%3 = add %1, %2 : f32[100]\nreturn z = %3");
  suite.add("%0 = input x : f16[64, 70]\n%1 = slice %0 {63, 1, -1, 3} : f16[64, 23]\n%2 = neg %1 : f16[64, 23]\nreturn z = %2");
  suite.add("%0 = input x : f32[41, 6]\n%1 = add %0, %0 : f32[41, 6]\n%2 = slice %1 {1, 0, 2, 1} : f32[20, 6]\nreturn z = %2", true);
  suite.check();
}

TEST_CASE("cuda: every operator on every accepted type", "[cuda]") {
  Suite suite;
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<ir::Op>(i);
    if (!ir::is_elementwise(op)) continue;
    const ir::OpInfo& info = ir::info(op);
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto from = static_cast<DType>(t);
      const bool converts = info.types == ir::TypeRule::Convert || info.types == ir::TypeRule::Reinterpret;
      std::vector<DType> operands(info.arity, from);
      if (info.types == ir::TypeRule::Choose) operands[0] = boolean;
      std::vector<DType> results;
      DType result = from;
      if (!converts) {
        if (!ir::result_dtype(op, operands, result)) continue;
        results.push_back(result);
      }
      for (int r = 0; converts && r < kDTypeCount; ++r)
        if (info.types == ir::TypeRule::Convert || size_of(static_cast<DType>(r)) == size_of(from))
          results.push_back(static_cast<DType>(r));
      if (info.traits & ir::kPartial) continue;  // unspecified for some operands; their expansions are tested
      for (const DType to : results) {
        std::string text, list;
        for (std::size_t k = 0; k < operands.size(); ++k) {
          text += "%" + std::to_string(k) + " = input x" + std::to_string(k) + " : " + std::string(name_of(operands[k])) + "[83]\n";
          list += (k ? ", %" : "%") + std::to_string(k);
        }
        const std::string id = "%" + std::to_string(operands.size());
        const ir::Graph graph = ir::parse_graph(text + id + " = " + std::string(info.text) + " " + list + " : " + std::string(name_of(to)) +
                                                "[83]\nreturn y = " + id);
        suite.add(graph, random_arguments(graph, static_cast<std::uint64_t>(100 * i + t)), std::string(info.text), true);
      }
    }
  }
  suite.check();
}

TEST_CASE("cuda: softmax in rows of every length, and along columns", "[cuda]") {
  Suite suite;
  const std::string rows =
      "%0 = input x : f32[5, N]\n%1 = reduce_max %0 {1} : f32[5]\n%2 = reshape %1 : f32[5, 1]\n%3 = broadcast %2 : f32[5, N]\n"
      "%4 = sub %0, %3 : f32[5, N]\n%5 = exp %4 : f32[5, N]\n%6 = reduce_sum %5 {1} : f32[5]\n%7 = reciprocal %6 : f32[5]\n"
      "%8 = reshape %7 : f32[5, 1]\n%9 = broadcast %8 : f32[5, N]\n%10 = mul %5, %9 : f32[5, N]\nreturn y = %10";
  std::size_t lengths = 0;
  for (const char* n : {"1", "37", "64", "100", "1000", "1024", "4096", "5000", "70000"}) {
    const char* const types[] = {"f32", "f64", "f16"};
    ++lengths;
    for (std::size_t k = 0; k < 3; ++k)
      if (k == 0 || is_checked(k, lengths, 3)) suite.add(replaced(replaced(rows, "N", n), "f32", types[k]));
  }
  const std::string columns =
      "%0 = input x : f32[N, 9]\n%1 = reduce_sum %0 {0} : f32[9]\n%2 = reshape %1 : f32[1, 9]\n%3 = broadcast %2 : f32[N, 9]\n"
      "%4 = div %0, %3 : f32[N, 9]\n%5 = reduce_sum %4 {0} : f32[9]\nreturn y = %4, s = %5";
  for (const char* n : {"1", "7", "8", "256", "257", "600", "1100"}) suite.add(replaced(columns, "N", n));
  // a value that varies along an outer loop of the row, but not along the last loop, is not cached with the row
  const ir::Graph two = optimised("y = x*w; z = y - max(y, axis=[1, 2], keepdims=true)", {{"x", {3, 5, 8}}, {"w", {3, 5, 1}}});
  suite.add(two, random_arguments(two, 3), "rows of two loops");
  suite.check();
}

TEST_CASE("cuda: a sum of negative zeros is a negative zero, along rows and columns", "[cuda]") {
  Suite suite;
  for (const char* axes : {"{0}", "{1}"})
    for (const char* length : {"5", "5000"}) {
      const std::string n = length, out = std::string(axes) == "{0}" ? "[3]" : "[" + n + "]";
      const ir::Graph graph =
          ir::parse_graph("%0 = input x : f32[" + n + ", 3]\n%1 = reduce_sum %0 " + axes + " : f32" + out + "\nreturn s = %1");
      Arguments arguments = random_arguments(graph, 1);
      std::fill_n(static_cast<float*>(const_cast<void*>(arguments.views[0].data)), 3 * std::stoll(n), -0.0f);
      suite.add(graph, std::move(arguments), "negative zeros");
    }
  suite.check();
}

TEST_CASE("cuda: contractions", "[cuda]") {
  Suite suite;
  for (const char* formula :
       {"y = matmul(a, b)", "y = matmul(transpose(b), transpose(a))", "y = einsum(\"ik,kj->j\", a, b)", "y = einsum(\"ik,jk->ij\", a, a)"})
    for (const auto& [n, k, m] : {std::tuple<int, int, int>{5, 7, 9}, {3, 600, 8}, {2, 5000, 4}, {1, 64, 1}}) {
      const ir::Graph graph = optimised(formula, {{"a", {n, k}}, {"b", {k, m}}}, k == 600 ? f64 : f32);
      suite.add(graph, random_arguments(graph, 3), formula);
    }
  suite.check();
}

TEST_CASE("cuda: scans of every kind, along the last axis and others, whole and in several launches", "[cuda]") {
  Suite suite;
  for (const char* op : {"cumsum", "cumprod", "cummax", "cummin"})
    for (const auto& [n, m] : {std::pair<int, int>{5, 37}, {3, 5000}, {1, 20000}, {70, 16}})
      for (const char* axis : {"0", "1"}) {
        const std::string formula = std::string("y = ") + op + "(x*2, axis=" + axis + ") + 1";
        for (const DType type : {f32, f64, i32, bf16}) {
          if (type != f32 && n == 1) continue;
          const ir::Graph graph = optimised(formula.c_str(), {{"x", {n, m}}}, type);
          suite.add(graph, random_arguments(graph, 3), formula, n == 70);
        }
      }
  for (const char* formula : {"y = cumsum(x, axis=0)", "y = cumsum(cumprod(x, axis=0), axis=0)",
                              "y = cumsum(x, axis=0); z = cummax(x, axis=0)", "y = cumsum(x, axis=0, reverse=true)"}) {
    const ir::Graph graph = optimised(formula, {{"x", {30000}}});
    suite.add(graph, random_arguments(graph, 5), formula);
  }
  suite.check();
}

TEST_CASE("cuda: scans of few long columns are split over the whole device", "[cuda]") {
  Suite suite;
  const auto is_split = [](const CudaEmulation::KernelView& kernel) { return kernel.schedule->split; };
  struct Split {
    const char* formula;
    int n, m;
    std::initializer_list<DType> types;
    std::int64_t active = 0;  // least threads in the first launch
  };
  constexpr std::int64_t kManyParts = 64;  // from there on a thread block finds the bases of a column
  for (const Split& c : {Split{"y = cumsum(x, axis=0)", 9000, 3, {f32, f64, bf16}, 9},
                         {"y = cumprod(x*0.01 + 1, axis=0) + x", 8193, 5, {f32}, 15},
                         {"y = cumsum(x*w, axis=0); z = cummax(x, axis=0); t = x + 1", 12289, 4, {f32}, 4},
                         {"y = cumsum(x, axis=0, reverse=true)", 20000, 2, {f32}, 5},
                         {"y = cumsum(x, axis=1)*2", 4100, 6, {f32}},
                         {"y = cumsum(x, axis=0)", 3000, 3, {i64, i32}, 128},
                         {"y = cummin(x, axis=0)", 3000, 3, {f32}, 128},
                         {"y = cumsum(x, axis=0)", kManyParts * 4096 + 5, 1, {f32}}}) {
    const bool is_middle = std::string_view(c.formula).find("axis=1") != std::string_view::npos;  // of three axes
    for (const DType type : c.types) {
      const std::vector<std::pair<std::string, compiler::Shape>> inputs = {
          {"x", is_middle ? compiler::Shape{2, c.n, c.m} : compiler::Shape{c.n, c.m}}, {"w", {c.n, 1}}};
      const bool has_w = std::string_view(c.formula).find('w') != std::string_view::npos;
      const ir::Graph graph = optimised(c.formula, {inputs.begin(), inputs.end() - !has_w}, type);
      INFO(c.formula);
      suite.add(graph, random_arguments(graph, 5), c.formula, c.n > 10000);
      CHECK(std::ranges::any_of(suite.kernels(suite.size() - 1), is_split));
      for (const CudaEmulation::KernelView& kernel : suite.kernels(suite.size() - 1))
        if (c.active > 0) CHECK(kernel.blocks * kernel.schedule->threads >= c.active);
    }
  }
  const ir::Graph chained = optimised("y = cumsum(cumprod(x, axis=0), axis=0)", {{"x", {5000, 2}}});  // one launch, blocks in sequence
  suite.add(chained, random_arguments(chained, 5), "chained");
  suite.check();
}

namespace {
// Returns the elements of argument `n`, which the formula casts to indices.
float* numbers_of(const ir::Graph& graph, const Arguments& arguments) {
  const auto n = std::ranges::find(graph.inputs, "n", &ir::Input::name);
  return static_cast<float*>(const_cast<void*>(arguments.views[static_cast<std::size_t>(n - graph.inputs.begin())].data));
}
}  // namespace

TEST_CASE("cuda: gathers, scatters and bad indices", "[cuda]") {
  Suite suite;
  struct Program {
    const char* formula;
    compiler::Shape x, i, u;
  };
  for (const Program& p : {Program{"y = take(x, i, axis=0)", {20, 64}, {33}, {}},
                           {"y = take(x, i, axis=1)*2", {20, 64}, {33}, {}},
                           {"y = take(x, i, axis=0) + take(x, i + 1, axis=0)", {20, 6}, {5, 4}, {}},
                           {"y = take_along_axis(x, i, axis=1)", {7, 30}, {7, 12}, {}},
                           {"y = index_add(x, i, u, axis=0)", {20, 64}, {33}, {33, 64}},
                           {"y = scatter_add(x, i, u, axis=0)", {20}, {500}, {500}},
                           {"y = sum(take(x, i, axis=0), axis=0)", {20, 64}, {300}, {}}}) {
    std::vector<std::pair<std::string, compiler::Shape>> inputs{{"x", p.x}, {"n", p.i}};
    if (!p.u.empty()) inputs.push_back({"u", p.u});
    // indices are computed from numbers, some negative
    const std::string formula = "i = cast(n, i32); " + std::string(p.formula);
    const ir::Graph graph = optimised(formula.c_str(), inputs);
    Arguments arguments = random_arguments(graph, 3);
    float* const numbers = numbers_of(graph, arguments);
    for (std::int64_t k = 0; k < ir::element_count(p.i); ++k) numbers[k] = static_cast<float>(k * 7 % 11) - 5;
    suite.add(graph, std::move(arguments), formula);
  }
  suite.check();

  const ir::Graph graph = optimised("y = take(x, cast(n, i32), axis=0)", {{"x", {20}}, {"n", {40}}});
  for (const float bad : {19.0f, 20.0f, -20.0f, -21.0f}) {
    CudaEmulation emulation;
    Arguments arguments = random_arguments(graph, 3);
    float* const numbers = numbers_of(graph, arguments);
    for (int k = 0; k < 40; ++k) numbers[k] = k == 37 ? bad : 1;
    const std::size_t number = emulation.add(graph, arguments.views);
    emulation.compile();
    emulation.run(number, 1);
    const auto index = static_cast<std::int64_t>(bad);
    CHECK(emulation.bad_index() == (index >= 20 || index < -20 ? std::optional(CudaEmulation::BadIndex{index, 20}) : std::nullopt));
  }
}

TEST_CASE("cuda: updates of few columns are sorted by element and added in order", "[cuda]") {
  struct Program {
    const char* formula;
    std::int64_t extent;  // of the axis with the elements
    compiler::Shape x, i, u;
    std::initializer_list<DType> types = {f32};
    bool is_sorted = true;
  };
  Suite suite;
  for (const Program& p :
       {Program{"y = index_add(x, i, u*2, axis=0)", 90, {90}, {5000}, {5000}, {f32, f64, i64, bf16}},  // one column; three tiles
        {"y = index_add(x, i, u, axis=0)", 90, {90, 8}, {700}, {700, 8}, {f32, bf16}},                 // columns as vectors
        {"y = index_add(x, i, u, axis=0)", 90, {90, 3}, {300}, {300, 3}},
        {"y = index_add(x, i, u, axis=1)", 90, {3, 90, 4}, {300}, {3, 300, 4}},  // free outer loops
        {"y = scatter_add(x, i, u, axis=1)", 90, {5, 90}, {5, 400}, {5, 400}},   // an element for each update and column
        {"y = scatter_add(x, i, u, axis=0)", 90, {90, 6}, {400, 6}, {400, 6}, {f32, i64}},
        {"y = index_add(x, i, take(z, i, axis=0), axis=0)", 90, {90, 2}, {400}, {}},  // the update needs the index
        {"y = index_add(x, i, exp(u)*0.01, axis=0)", 90, {90}, {300}, {300}},
        {"y = index_add(x, i, u, axis=0)", 1, {1}, {3000}, {3000}},  // one element, no bits to sort by
        {"y = bincount(i, 90)", 90, {90}, {3000}, {}},
        {"y = index_add(x, i, u, axis=0)", 90, {90}, {200}, {200}, {f32}, false},  // too few updates
        {"y = index_add(x, i, u, axis=0)", 90, {90, 4096}, {300}, {300, 4096}, {f32}, false}}) {
    for (const DType type : p.types) {
      std::vector<std::pair<std::string, compiler::Shape>> inputs{{"n", p.i}};
      const std::string_view program = p.formula;
      if (program.find('x') != std::string_view::npos) inputs.push_back({"x", p.x});
      if (program.find('z') != std::string_view::npos) inputs.push_back({"z", p.x});
      if (!p.u.empty()) inputs.push_back({"u", p.u});
      const bool counts = program.starts_with("y = bincount");
      const std::string formula = "i = cast(n, i32)" + std::string(counts ? " + 90*cast(n < 0, i32); " : "; ") + p.formula;
      const ir::Graph graph = optimised(formula.c_str(), inputs, type);
      Arguments arguments = random_arguments(graph, 3);
      void* const numbers = numbers_of(graph, arguments);
      for (std::int64_t k = 0; k < ir::element_count(p.i); ++k) {  // every fourth update has the same element; some are negative
        const std::int64_t index = p.extent == 1 ? -(k % 2) : k % 4 == 0 ? 17 : (k * k * 7 + k / 3) % 150 - 60;
        if (type == f64) static_cast<double*>(numbers)[k] = static_cast<double>(index);
        else if (type == i64) static_cast<std::int64_t*>(numbers)[k] = index;
        else if (type == bf16)
          static_cast<std::uint16_t*>(numbers)[k] =
              static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(index)) >> 16);
        else static_cast<float*>(numbers)[k] = static_cast<float>(index);
      }
      const std::size_t fused = suite.size();
      suite.add(graph, std::move(arguments), formula, type != f32);
      INFO(formula);
      CHECK(std::ranges::any_of(suite.kernels(fused), [](const CudaEmulation::KernelView& kernel) {
              return kernel.nest->addition() && kernel.schedule->split;
            }) == p.is_sorted);
    }
  }
  suite.check();
}

TEST_CASE("cuda: transposed operands go through shared memory in tiles", "[cuda]") {
  Suite suite;
  for (const auto& [n, m] : {std::pair<int, int>{64, 96}, {33, 70}, {16, 100}, {5, 1000}}) {
    const std::string formula = "y = transpose(x) + w*z";
    const ir::Graph graph = optimised(formula.c_str(), {{"x", {n, m}}, {"w", {m, n}}, {"z", {m, 1}}});
    suite.add(graph, random_arguments(graph, 3), formula);
  }
  for (const char* formula :
       {"y = transpose(x, [0, 2, 1])*2", "y = transpose(x, [2, 1, 0]) + 1", "y = x + flip(transpose(x, [0, 2, 1]), 1)"}) {
    const ir::Graph graph = optimised(formula, {{"x", {3, 40, 40}}});
    suite.add(graph, random_arguments(graph, 3), formula);
  }
  suite.check();
  CudaEmulation emulation;
  const ir::Graph graph = optimised("y = transpose(x) + w", {{"x", {64, 96}}, {"w", {96, 64}}});
  const std::size_t number = emulation.add(graph, random_arguments(graph, 1).views);
  const compiler::cuda::DeviceSchedule& schedule = *emulation.kernels(number)[0].schedule;
  CHECK(schedule.form == compiler::cuda::Form::Tile);
  CHECK((schedule.side == 64 && schedule.width == 4));
  CHECK(schedule.across == schedule.packed);
}

TEST_CASE("cuda: array lists and numbers are read through tables", "[cuda]") {
  Suite suite;
  for (const ListProgram& program : cuda_list_programs()) {
    INFO(program.name);
    for (const bool strided : {false, true}) suite.add(program.graph, random_arguments(program.graph, 3, strided), program.name, strided);
    CudaEmulation emulation;
    const std::size_t number = emulation.add(program.graph, random_arguments(program.graph, 3).views);
    CHECK(std::ranges::any_of(emulation.kernels(number), [&](const CudaEmulation::KernelView& kernel) {
      return kernel.schedule->table_words > 8 && (!program.numbers || !kernel.schedule->numbers.empty());
    }));
  }
  suite.check();
}

TEST_CASE("cuda: few long rows or columns are split over the whole device", "[cuda]") {
  Suite suite;
  for (const char* formula :
       {"s = sum(x, axis=0)", "s = sum(x, axis=1); m = max(x, axis=1)", "y = softmax(x, axis=1)", "y = softmax(x, axis=0)",
        "m = mean(x, axis=0, keepdims=true); v = sum((x - m)*(x - m), axis=0); y = x*v", "p = prod(x*0.5 + 1, axis=0)"})
    for (const auto& [n, m] : {std::pair<int, int>{3000, 4}, {2, 200000}, {1, 100001}, {1025, 7}})
      for (const DType type : {f32, f64, i64}) {
        if (type == i64 && std::string_view(formula).starts_with("y = softmax")) continue;
        if (type != f32 && n == 2) continue;
        const ir::Graph graph = optimised(formula, {{"x", {n, m}}}, type);
        suite.add(graph, random_arguments(graph, 3), formula, true);
      }
  suite.check();
  CudaEmulation emulation;
  for (const auto& [formula, n, m] : {std::tuple{"s = sum(x, axis=0)", 3000, 4}, {"s = sum(x, axis=1)", 1, 200000}}) {
    const ir::Graph graph = optimised(formula, {{"x", {n, m}}});
    const std::size_t number = emulation.add(graph, random_arguments(graph, 1).views);
    CHECK(emulation.kernels(number)[0].schedule->split);
    CHECK((emulation.kernels(number)[0].schedule->together > 0) == (m == 4));
  }
}

TEST_CASE("cuda: rows of halves are cached as halves", "[cuda]") {
  Suite suite;
  const char* const norm = "y = layer_norm(x, v, v, axis=-1, eps=1e-5)";
  // A NaN keeps its sign between the sweeps.
  const char* const signs = "m = sum(where(isnan(x), 0, x), axis=1, keepdims=true); y = copysign(m*m + 1, x)";
  for (const DType type : {f16, bf16})
    for (const auto& [formula, n, m] : {std::tuple{norm, 5, 1000}, {norm, 3, 64}, {signs, 6, 100}}) {
      const bool has_v = formula == norm;
      std::vector<std::pair<std::string, compiler::Shape>> inputs{{"x", {n, m}}};
      if (has_v) inputs.push_back({"v", {m}});
      const ir::Graph graph = optimised(formula, inputs, type);
      Arguments arguments = random_arguments(graph, 3);
      auto* const x = static_cast<std::uint16_t*>(const_cast<void*>(arguments.views[0].data));
      for (int k = 0; !has_v && k < n * m; k += 7) x[k] = static_cast<std::uint16_t>((k % 2 << 15) | (type == f16 ? 0x7e00 : 0x7fc0));
      suite.add(graph, std::move(arguments), formula);
      const compiler::cuda::DeviceSchedule& schedule = *suite.kernels(suite.size() - 3)[0].schedule;
      CHECK(schedule.kept.size() == 1);
      CHECK(suite.kernels(suite.size() - 3)[0].shared_bytes == schedule.threads / 16 * 2 * ((m + 63) / 64 * 64));
    }
  suite.check();

  // A value of f32 can reuse the memory of a half that is cached as f32, so a softmax needs 4 bytes for each element.
  CudaEmulation emulation;
  const ir::Graph softmax = optimised("y = softmax(x, axis=1)", {{"x", {40, 1024}}}, bf16);
  const std::size_t number = emulation.add(softmax, random_arguments(softmax, 3).views);
  const CudaEmulation::KernelView kernel = emulation.kernels(number)[0];
  CHECK(kernel.shared_bytes == kernel.schedule->threads / 16 * 4 * 1024);
}

TEST_CASE("cuda: sums along rows, columns, both and the middle", "[cuda]") {
  Suite suite;
  std::size_t checks = 0;
  for (const char* shape : {"[7, 130]", "[300, 72]", "[9, 9000]", "[2100, 5]", "[1, 70000]"}) {
    for (const char* axes : {"{0}", "{1}", "{0, 1}"}) {
      const std::string s = shape;
      const std::string rows = s.substr(1, s.find(',') - 1), columns = s.substr(s.find(',') + 2, s.size() - s.find(',') - 3);
      const std::string out = std::string(axes) == "{0}" ? "[" + columns + "]" : std::string(axes) == "{1}" ? "[" + rows + "]" : "[]";
      ++checks;
      const std::string types[] = {"f32", "f64", "i64", "bf16"};
      for (std::size_t k = 0; k < 4; ++k) {
        if (!is_checked(k % 2, checks, 2)) continue;
        const std::string& t = types[k];
        suite.add("%0 = input x : " + t + s + "\n%1 = reduce_sum %0 " + axes + " : " + t + out + "\n%2 = reduce_max %0 " + axes + " : " +
                  t + out + "\nreturn a = %1, b = %2");
      }
    }
  }
  suite.add("%0 = input x : f32[11, 5, 70]\n%1 = reduce_sum %0 {0, 2} : f32[5]\nreturn s = %1");
  suite.add("%0 = input x : f32[11, 5, 72]\n%1 = reduce_sum %0 {0, 2} : f32[5]\nreturn s = %1");
  suite.add("%0 = input x : f64[11, 5, 64]\n%1 = reduce_prod %0 {0, 2} : f64[5]\nreturn s = %1");
  suite.add("%0 = input x : f32[11, 5, 3, 4]\n%1 = reduce_sum %0 {0, 2} : f32[5, 4]\nreturn s = %1");
  suite.add("%0 = input x : u8[11, 5, 3, 4]\n%1 = reduce_min %0 {0, 2} : u8[5, 4]\nreturn s = %1");
  suite.add(
      "%0 = input x : f32[6, 7, 5, 9]\n%1 = input w : f32[6, 7, 1, 1]\n%2 = input dy : f32[6, 7, 5, 9]\n%3 = broadcast %1 : f32[6, 7, 5, "
      "9]\n"
      "%4 = mul0 %2, %3 : f32[6, 7, 5, 9]\n%5 = mul0 %2, %0 : f32[6, 7, 5, 9]\n%6 = reduce_sum %5 {2, 3} : f32[6, 7]\n"
      "%7 = reduce_sum %2 {2, 3} : f32[6, 7]\nreturn dx = %4, dw = %6, db = %7");
  suite.check();
}

TEST_CASE("cuda: rows and columns in one pass", "[cuda]") {
  const char* const formulas[] = {
      "r = sum(x, axis=-1); c = sum(x, axis=0)",
      "m = max(x, axis=-1, keepdims=true); y = x - m; c = max(y, axis=0); d = min(y, axis=0); p = prod(y*0.1 + 1, axis=0)",
      "y = x*2; c = sum(y, axis=0); s = sum(x, axis=-1); w = v - 0.1*c",
      "s = sum(x, axis=-1, keepdims=true); y = exp(x - s); c = sum(y*v, axis=0); t = s*2; z = sqrt(c*c)",
      "y = layer_norm(x, v, v, axis=-1, eps=1e-5); dx, dv = vjp(y, [x, v], x*x)",
      "a = any(x > 0, axis=-1); c = all(x > -1, axis=0); n = count_nonzero(x, axis=0)",
  };
  using Shape = compiler::Shape;
  for (const int processors : {1, 2, 200}) {  // with 200 processors, all cases have too few rows
    CudaEmulation::Options options;
    options.target = {80, processors, 48 << 10, 512, 163 << 10};
    Suite suite(options);
    for (const char* formula : formulas)
      for (const auto& [x, v] : {std::pair<Shape, Shape>{{23, 64}, {64}}, {{600, 37}, {37}}, {{1025, 8}, {8}}, {{24, 200}, {200}}}) {
        if (processors == 200 && x[1] != 37) continue;
        for (const DType type : {f32, f64, f16, i64}) {
          const bool whole =
              std::string_view(formula).find("exp") == std::string_view::npos && !std::string_view(formula).starts_with("y = layer");
          if (type == i64 ? !whole || x[0] > 100 : type != f32 && x[1] != 37) continue;
          const bool has_v = std::string_view(formula).find('v') != std::string_view::npos;
          std::vector<std::pair<std::string, Shape>> inputs{{"x", x}};
          if (has_v) inputs.push_back({"v", v});
          const ir::Graph graph = optimised(formula, inputs, type);
          suite.add(graph, random_arguments(graph, 3), formula, type != f32 || (processors == 1 && !is_full_run()));
        }
      }
    // the row's loops cannot be joined
    for (const char* formula :
         {"r = sum(x*w, axis=[1, 2]); c = sum(x*w, axis=0)", "r = sum(x*w, axis=[2, 3]); c = sum(x*w, axis=[0, 1])"}) {
      const bool four = std::string_view(formula).find("2, 3") != std::string_view::npos;
      const ir::Graph graph =
          four ? optimised(formula, {{"x", {3, 9, 5, 8}}, {"w", {1, 9, 5, 1}}}) : optimised(formula, {{"x", {30, 5, 8}}, {"w", {5, 1}}});
      suite.add(graph, random_arguments(graph, 3), formula);
    }
    suite.check();
    std::set<bool> by_eight;  // partial sums of columns are over eight rows, or over blocks of eight rows
    for (std::size_t i = 0; i < suite.size(); ++i)
      for (const CudaEmulation::KernelView& kernel : suite.kernels(i))
        if (kernel.schedule->form == compiler::cuda::Form::RowsAndColumns) by_eight.insert(kernel.schedule->by_eight);
    CHECK(by_eight.size() == (processors < 200 ? 2 : 0));
  }
}

namespace {
void random_graphs(int count, const std::function<RandomGraphOptions(std::uint64_t)>& options_of) {
  const char* from = std::getenv("ONEPASS_TEST_SEED");
  const std::uint64_t first = from ? std::strtoull(from, nullptr, 10) : 1;
  constexpr std::uint64_t kTogether = 25;  // graphs in one compilation
  const std::uint64_t end = first + static_cast<std::uint64_t>(count);
  for (std::uint64_t seed = first; seed < end; seed += kTogether) {
    Suite suite;
    for (std::uint64_t s = seed; s < std::min(seed + kTogether, end); ++s) {
      const ir::Graph graph = random_graph(s, options_of(s));
      suite.add(graph, random_arguments(graph, s, s % 2 == 1), "seed " + std::to_string(s));
    }
    suite.check();
  }
}
}  // namespace

TEST_CASE("cuda: random graphs", "[cuda][random]") {
  random_graphs(test::rounds(30, 1000), [](std::uint64_t seed) {
    RandomGraphOptions options;
    options.nodes = 4 + static_cast<int>(seed % 24);
    options.max_elements = seed % 5 == 0 ? 20000 : 2000;
    options.zero_sizes = seed % 2 == 0;
    if (options.zero_sizes) options.allow = [](ir::Op op) { return !ir::is_contraction(op); };  // contractions over nothing are constants
    return options;
  });
}

TEST_CASE("cuda: random graphs of views and reductions", "[cuda][random]") {
  random_graphs(test::rounds(30, 1000), [](std::uint64_t seed) {
    RandomGraphOptions options;
    options.nodes = 4 + static_cast<int>(seed % 12);
    options.inputs = 2;
    options.max_rank = 4;
    options.max_elements = seed % 6 == 0 ? 20000 : 2000;
    options.zero_sizes = seed % 4 == 0;
    options.products = true;
    options.dtypes = {f32, i32, f16, bf16, f64};
    options.allow = [](ir::Op op) {
      return ir::is_view(op) || ir::is_reduction(op) || op == ir::Op::Add || op == ir::Op::Mul || op == ir::Op::Cast ||
             op == ir::Op::Piecewise;
    };
    return options;
  });
}

TEST_CASE("cuda: benchmark programs have equal bits and access each large array once in whole vectors", "[cuda]") {
  CudaEmulation emulation;
  std::vector<CudaProgram> programs = cuda_programs();
  std::vector<ir::Graph> graphs;
  std::vector<Arguments> arguments;
  std::vector<std::size_t> numbers;
  for (const CudaProgram& program : programs)
    for (const bool specialised : {false, true}) {
      graphs.push_back(graph_of(program, program.small));
      arguments.push_back(random_arguments(graphs.back(), 7));
      CudaEmulation::Options options;
      options.specialised = specialised;
      numbers.push_back(emulation.add(graphs.back(), arguments.back().views, options));
    }
  emulation.compile();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const CudaProgram& program = programs[i / 2];
    INFO(program.name << (i % 2 ? ", specialised" : "") << "\n" << emulation.log(numbers[i]));
    CudaEmulation::Counts counts;
    std::string what;
    CHECK(equals_bitwise(emulation.run(numbers[i], 3, &counts), ir::evaluate(graphs[i], arguments[i].views), &what));
    CHECK(what == "");
    const std::int64_t large = counts.arrays[0].size;
    if (!program.minimal) continue;
    CHECK(counts.kernels == 1);
    for (const CudaEmulation::Array& array : counts.arrays) {
      INFO(array.name);
      if (array.name == "partial results") {  // two column sums for each eight rows, written and read once, and block sums
        CHECK(array.loaded + array.stored == large / 2 + 4 * large / program.small.at('n'));
        CHECK(array.vectors == array.accesses);
        continue;
      }
      if (array.size != large) continue;
      CHECK(array.loaded + array.stored == large);
      CHECK(array.vectors == array.accesses);
    }
  }
}

TEST_CASE("cuda: the programs of gpu-check cover every kernel form and variant", "[cuda]") {
  CudaEmulation emulation;
  CudaEmulation::Options options;
  options.target = {90, 132, 48 << 10, 2048, 227 << 10};
  using compiler::cuda::Form;
  std::map<Form, int> forms;
  std::map<std::string, int> classes;
  for (const FormCase& c : form_cases()) {
    if (c.indexed) continue;
    const ir::Graph graph = optimised(c.formula, inputs_of(Golden{c.name.c_str(), c.inputs, c.formula, 1}, c.extents), c.dtype);
    std::vector<ir::ArrayView> views;
    for (const ir::Input& input : graph.inputs) {
      const ir::List shape = graph.list(input.shape);
      views.push_back({input.dtype, nullptr, {shape.begin(), shape.end()}});
    }
    for (const CudaEmulation::KernelView& kernel : emulation.kernels(emulation.plan(graph, views, options))) {
      const compiler::cuda::DeviceSchedule& s = *kernel.schedule;
      ++forms[s.form];
      const std::string form = std::to_string(static_cast<int>(s.form));
      ++classes[form + (s.whole ? " whole" : " with tails")];
      ++classes[form + (s.split ? s.together ? " split, together" : " split" : " in one launch")];
      if (s.form == Form::Columns && kernel.nest->has(compiler::Statement::Kind::Scan))
        ++classes[s.split ? "scan of columns, split" : "scan of columns, in one launch"];
      if (!s.narrow) ++classes["indices of 64 bits"];
      if (s.form == Form::Tile)
        ++classes["tile of " + std::to_string(s.side)], ++classes[s.across.empty() ? "across by elements" : "across by vectors"];
      if (s.form == Form::RowsAndColumns) ++classes[s.by_eight ? "by eight" : "by blocks"];
      if (!s.kept.empty()) ++classes["kept"];
    }
  }
  std::string found;
  for (const auto& [name, count] : classes) found += name + ": " + std::to_string(count) + "\n";
  INFO(found);
  for (const Form form : {Form::Map, Form::Columns, Form::Team, Form::Block, Form::Scan, Form::Tile, Form::RowsAndColumns})
    CHECK(forms[form] > 0);
  for (const char* name : {"0 whole",
                           "0 with tails",
                           "1 whole",
                           "1 with tails",
                           "1 in one launch",
                           "1 split",
                           "1 split, together",
                           "2 whole",
                           "2 with tails",
                           "3 whole",
                           "3 with tails",
                           "3 in one launch",
                           "3 split",
                           "4 in one launch",
                           "4 split",
                           "scan of columns, split",
                           "scan of columns, in one launch",
                           "indices of 64 bits",
                           "tile of 64",
                           "tile of 32",
                           "across by elements",
                           "across by vectors",
                           "by eight",
                           "by blocks",
                           "kept"}) {
    INFO(name);
    CHECK(classes[name] > 0);
  }
}
