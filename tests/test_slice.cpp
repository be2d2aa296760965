// One test for each basic property. A softmax and its gradient are one kernel each with equal bits everywhere. The gradient of x*w + b is
// one pass. A thousand lengths, literals and slice starts share one kernel. Errors have one form.
#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "arrays.h"
#include "compiler/record.h"
#include "has_codegen.h"
#include "how_long.h"
#include "onepass/error.h"
#include "runtime/formula_program.h"
#include "runtime/kernel_cache.h"
#include "runtime/program.h"
#include "with_mode.h"

using namespace onepass;
using namespace onepass::runtime;
using compiler::Recorder;
using compiler::Value;
using test::has_codegen;
using Values = std::span<const Value>;

namespace {

template <class T> Array random_array(std::vector<std::int64_t> shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Array a = Array::empty(shape, dtype<T>);
  for (T& v : a.span<T>()) v = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(random() >> 40) - (1 << 23)) / (1 << 22));
  return a;
}

std::vector<int> widths() {
  std::vector<int> out;
  for (const int bytes : {16, 32, 64})
    if (bytes <= compiler::Target::host().vector_bytes) out.push_back(bytes);
  return out;
}

std::vector<Argument> arguments(const std::vector<Array>& arrays) {
  std::vector<Argument> out;
  for (const Array& a : arrays) out.push_back({&a, {}});
  return out;
}

// Checks for equal bits in generic, unfused and reference, with 1, 2, 3 and 7 threads and every vector width, and the kernels in generic.
// Short runs have one number of threads for each mode and width.
void equal_everywhere(const char* formula, const std::vector<Array>& arrays, std::size_t kernels) {
  if (!has_codegen()) return;
  const FormulaProgram parsed = parse_formula(formula);
  const std::vector<Argument> in = arguments(arrays);
  const std::vector<Array> expected = Program(parsed.record, parsed.inputs, test::with(Mode::reference)).call(in);
  static std::size_t checks = 0;
  ++checks;
  for (const Mode mode : {Mode::generic, Mode::unfused})
    for (const int width : widths()) {
      ++checks;
      for (std::size_t k = 0; k < 4; ++k) {
        if (!test::is_checked(k, checks, 4)) continue;
        const int threads = std::array{1, 2, 3, 7}[k];
        Program program(parsed.record, parsed.inputs, test::with(mode, threads, width));
        const std::vector<Array> got = program.call(in);
        INFO(formula << (mode == Mode::generic ? "\ngeneric, " : "\nunfused, ") << threads << " threads, vectors of " << width << " bytes\n"
                     << program.explain());
        if (mode == Mode::generic) CHECK(program.last_report()->kernels.size() == kernels);
        REQUIRE(got.size() == expected.size());
        for (std::size_t k = 0; k < got.size(); ++k) {
          INFO("result " << parsed.outputs[k]);
          CHECK(test::same_but_for_nan(got[k], expected[k]));
        }
        if (threads != 3) continue;  // repeats the call with the optimized tier, which the second run requests
        program.call(in);
        wait_for_optimised();
        const std::vector<Array> again = program.call(in);
        for (std::size_t k = 0; k < again.size(); ++k) CHECK(test::same_but_for_nan(again[k], expected[k]));
      }
    }
}

// Shapes whose rows each have a full reduction.
const std::vector<std::vector<std::int64_t>> kRows = {{16, 1024}, {7, 37}, {33, 64}, {3, 1}, {1, 9001}, {2, 4097}, {5, 20000}, {301, 3}};

}  // namespace

TEST_CASE("slice: a softmax of basic operators is one kernel with equal bits everywhere", "[slice]") {
  for (const auto& shape : kRows)
    equal_everywhere("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", {random_array<float>(shape, 1)},
                     1);
  equal_everywhere("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)",
                   {random_array<double>({9, 5001}, 1)}, 1);
}

TEST_CASE("slice: a softmax with its gradient is one kernel with equal bits everywhere", "[slice]") {
  const char* const both =
      "fn f(x, d) {\n u = exp(x - max(x, axis=-1, keepdims=true))\n p = u/sum(u, axis=-1, keepdims=true)\n dx = vjp(p, [x], d)\n return p, "
      "dx\n}";
  const char* const alone = "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true); dx = vjp(p, [x], d)";
  for (const auto& shape : kRows) {
    const std::vector<Array> in = {random_array<float>(shape, 1), random_array<float>(shape, 2)};
    equal_everywhere(both, in, 1);
    equal_everywhere(alone, in, 1);
  }
}

TEST_CASE("slice: threads split long rows, with equal bits", "[slice]") {
  const char* const everything = "s = sum(x*x); p = prod(x*0.001 + 1); m = max(x); n = min(x)";
  for (const std::vector<std::int64_t>& s : {std::vector<std::int64_t>{200'001}, {1, 262'144}, {3, 70'001}, {450, 450}})
    equal_everywhere(everything, {random_array<float>(s, 1)}, 1);
  equal_everywhere(everything, {random_array<double>({200'003}, 1)}, 1);
  // rows and columns, and values computed from them
  const char* const along[] = {"s = sum(x*x, axis={}, keepdims=true); m = max(x, axis={}, keepdims=true); y = (x - m)/s",
                               "s = sum(x*x, axis={}); m = max(x, axis={})"};
  const auto with_axis = [](std::string text, const char* axis) {
    for (std::size_t at = 0; (at = text.find("{}")) != std::string::npos;) text.replace(at, 2, axis);
    return text;
  };
  struct Row {
    std::vector<std::int64_t> shape;
    const char* axis;
    bool few_columns = false;  // reductions outside of few columns do not share a kernel with a loop over all elements
  };
  for (const Row& row : {Row{{2, 100'003}, "1"},
                         {{100'003, 2}, "0", true},
                         {{70'001, 3}, "0", true},
                         {{3000, 70}, "0"},
                         {{2, 1500, 67}, "1"},
                         {{11, 3, 9001}, "[0, 2]"},
                         {{50, 3, 277, 5}, "[0, 2]"},
                         {{40, 2, 60, 45}, "[0, 2, 3]"}})
    for (const char* const text : along)
      equal_everywhere(with_axis(text, row.axis).c_str(), {random_array<float>(row.shape, 1)}, row.few_columns && text == along[0] ? 2 : 1);
  // rows with gaps in memory, and an operand that is the same for all rows
  equal_everywhere("v = x[:, :-1]; (v - mean(v))*w/sum(v*w)", {random_array<float>({201, 1002}, 1), random_array<float>({1001}, 2)}, 1);
  equal_everywhere("v = x[1:, 3:]; sum(exp(v)*w)", {random_array<double>({301, 803}, 1), random_array<double>({800}, 2)}, 1);
}

TEST_CASE("slice: unroll-and-jam sums of rows with common operands have equal bits", "[slice]") {
  const std::int64_t n = 39, m = 300, k = 70;  // 39: the remaining rows run one by one
  const Array x = random_array<float>({n, m, k}, 1), row = random_array<float>({m, k}, 2);
  for (const char* const sum : {"sum(x*r, axis=1)", "max(x*r, axis=1)", "prod(x*r*0.01 + 1, axis=1) * 2", "sum(x*r, axis=[1, 2])",
                                "sum(x*r, axis=2)", "min(x - r, axis=2)", "sum((x - r)**2, axis=2) + 1"})
    equal_everywhere(sum, {x, row}, 1);
  equal_everywhere("sum(x[:, none, none]*x[none, :, none]*x[none, none, :], axis=[1, 2])", {random_array<float>({79}, 3)}, 1);
  equal_everywhere("x @ transpose(r)", {random_array<float>({n, 517}, 1), random_array<float>({9, 517}, 2)}, 1);
  equal_everywhere("x @ r", {random_array<float>({67, m}, 1), row}, 1);
  equal_everywhere("gelu(x @ r + 1)", {random_array<double>({67, 33}, 1), random_array<double>({33, 130}, 2)}, 1);
  equal_everywhere("x @ r", {random_array<float>({3, 37, 20}, 1), random_array<float>({3, 20, 40}, 2)}, 1);
}

TEST_CASE("slice: dx, dg and db of layer_norm are one kernel with equal bits everywhere", "[slice]") {
  const char* const layer = "y = layer_norm(x, g, b); dx, dg, db = vjp(y, [x, g, b], d)";
  for (const std::vector<std::int64_t>& s :
       {std::vector<std::int64_t>{16, 1024}, {7, 37}, {257, 64}, {600, 3}, {2, 4097}, {1300, 100}, {3, 20000}, {40, 30, 50}}) {
    const std::int64_t n = s.back();
    equal_everywhere(layer,
                     {random_array<float>(s, 1), random_array<float>({n}, 2), random_array<float>({n}, 3), random_array<float>(s, 4)},
                     n <= 8 ? 3 : 1);  // dx of short rows runs across the rows; columns are summed in other kernels (ADR 055)
  }
  equal_everywhere(layer,
                   {random_array<double>({301, 77}, 1), random_array<double>({77}, 2), random_array<double>({77}, 3),
                    random_array<double>({301, 77}, 4)},
                   1);
  equal_everywhere("r = sum(x, axis=1); c = sum(x, axis=0)*2; m = max(x, axis=0); k = prod(x*x + 0.5, axis=0); y = x*3",
                   {random_array<float>({777, 130}, 1)}, 1);
  equal_everywhere("p = softmax(x); s = sum(p*w, axis=0); e_ = mean(x, axis=[1, 2]); c = min(x, axis=0)",
                   {random_array<float>({520, 6, 11}, 1), random_array<float>({11}, 2)}, 2);
  // reductions outside of few columns do not share kernels with costly operators or with loops over all elements
  for (const std::vector<std::int64_t>& s : {std::vector<std::int64_t>{4097, 2}, {300, 5}, {70, 15}}) {
    equal_everywhere("softmax(x, 0)", {random_array<float>(s, 1)}, 4);
    equal_everywhere("y = x - mean(x, 0); v = sum(y*y, 0); r = y*2", {random_array<float>(s, 1)}, 3);
  }
  equal_everywhere("y = x - mean(x, 0)", {random_array<float>({12, 16}, 1)}, 1);
  // reduced axes that are not adjacent in memory
  equal_everywhere("v = x[:, :, :-1]; s = sum(v*w, axis=[1, 2]); c = sum(v*w, axis=0); m = max(v*w, axis=0)",
                   {random_array<float>({270, 5, 38}, 1), random_array<float>({37}, 2)}, 1);
}

TEST_CASE("slice: maximum and minimum respect NaN and signs of zeros at every position", "[slice]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3, 131}, {131, 3}, {24, 64}}) {
    for (const auto& [all, one] : {std::pair{-0.0f, -0.0f},
                                   {-0.0f, 0.0f},
                                   {0.0f, -0.0f},
                                   {-1.0f, -0.0f},
                                   {-1.0f, 0.0f},
                                   {1.0f, -0.0f},
                                   {1.0f, 0.0f},
                                   {1.0f, nan},
                                   {-1.0f, -nan},
                                   {-0.0f, nan},
                                   {-std::numeric_limits<float>::infinity(), -2.0f}})
      for (const std::int64_t at : {0, 1, 63, 64, 130, 200, 390}) {
        Array x = Array::empty(shape, f32);
        std::fill(x.span<float>().begin(), x.span<float>().end(), all);
        x.span<float>()[static_cast<std::size_t>(at)] = one;
        const FormulaProgram parsed =
            parse_formula("a = max(x, axis=0); b = max(x, axis=1); c = min(x, axis=0); d = min(x, axis=1); g = max(x); h = min(x)");
        const std::vector<Array> arrays = {x};
        const std::vector<Argument> in = arguments(arrays);
        const std::vector<Array> expected = Program(parsed.record, parsed.inputs, test::with(Mode::reference)).call(in);
        INFO("[" << shape[0] << ", " << shape[1] << "] of " << all << ", " << one << " at " << at);
        if (!has_codegen()) return;
        for (const int width : widths()) {
          Program program(parsed.record, parsed.inputs, test::with(Mode::generic, 1, width));
          for (int run = 0; run < 3; ++run) {
            if (run == 2) wait_for_optimised();
            const std::vector<Array> got = program.call(in);
            for (std::size_t k = 0; k < got.size(); ++k) CHECK(test::same_but_for_nan(got[k], expected[k]));
          }
        }
      }
  }
}

TEST_CASE("slice: a softmax's gradient equals the known formula", "[slice]") {
  const Array x = random_array<double>({4, 50}, 1), d = random_array<double>({4, 50}, 2);
  const FormulaProgram parsed =
      parse_formula("u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true); dx = vjp(p, [x], d)");
  const Array dx =
      Program(parsed.record, parsed.inputs, test::with(has_codegen() ? Mode::generic : Mode::reference)).call(arguments({x, d}))[0];
  for (std::int64_t i = 0; i < 4; ++i) {
    double most = -1e300, sum = 0, dot = 0;
    for (std::int64_t j = 0; j < 50; ++j) most = std::max(most, x.at<double>({i, j}));
    for (std::int64_t j = 0; j < 50; ++j) sum += std::exp(x.at<double>({i, j}) - most);
    for (std::int64_t j = 0; j < 50; ++j) dot += std::exp(x.at<double>({i, j}) - most) / sum * d.at<double>({i, j});
    for (std::int64_t j = 0; j < 50; ++j)
      CHECK(dx.at<double>({i, j}) == Approx(std::exp(x.at<double>({i, j}) - most) / sum * (d.at<double>({i, j}) - dot)).margin(1e-14));
  }
}

TEST_CASE("slice: dx, dw, db of x*w + b are one kernel with equal bits everywhere", "[slice]") {
  const char* const formula = "y = x*w + b; dx, dw, db = vjp(y, [x, w, b], d)";
  for (const std::vector<std::int64_t>& s : {std::vector<std::int64_t>{4, 6, 16, 16}, {3, 5, 7, 9}, {2, 3, 65, 70}, {1, 300, 1, 5}})
    equal_everywhere(formula,
                     {random_array<float>(s, 1), random_array<float>({s[0], s[1], 1, 1}, 2), random_array<float>({s[0], s[1], 1, 1}, 3),
                      random_array<float>(s, 4)},
                     s[3] <= 8 ? 2 : 1);  // sums of short rows do not share the loop of other values
  for (const std::vector<std::int64_t>& s : {std::vector<std::int64_t>{300, 70}, {7, 4099}, {2049, 5}, {1000, 128}, {8, 64}})
    equal_everywhere(formula,
                     {random_array<float>(s, 1), random_array<float>({s[1]}, 2), random_array<float>({s[1]}, 3), random_array<float>(s, 4)},
                     s[1] < 16 ? 2 : 1);
  // the gradients together with the value itself
  equal_everywhere(
      "fn f(x, w, b, d) {\n y = x*w + b\n dx, dw, db = vjp(y, [x, w, b], d)\n return y, dx, dw, db\n}",
      {random_array<float>({300, 70}, 1), random_array<float>({70}, 2), random_array<float>({70}, 3), random_array<float>({300, 70}, 4)},
      1);
}

TEST_CASE("slice: a thousand lengths, literals and slice starts compile one kernel", "[slice]") {
  if (!has_codegen()) return;
  std::mt19937_64 random(1);
  const Array x = random_array<float>({3000}, 1), y = random_array<float>({3000}, 2);
  std::int64_t compiles = 0;
  std::string key;
  for (int i = 0; i < 1000; ++i) {
    const auto n = static_cast<std::int64_t>(2 + random() % 1500), k = static_cast<std::int64_t>(random() % 1500);
    const double a = i == 3   ? 0
                     : i == 4 ? 1
                     : i == 5 ? -0.0
                     : i == 6 ? 2
                              : static_cast<double>(random() % 1000) / 8,
                 c = i == 7 ? 1 : static_cast<double>(random() % 1000) / 4 - 100;
    Program program(
        [&](Recorder& r, Values v) {
          compiler::Index index;
          index.kind = compiler::Index::Kind::Slice;
          index.start = k;
          r.output("out", r.add(r.mul(r.mul(r.literal(a), r.index(v[0], {&index, 1})), r.literal(c)), v[1]));
        },
        {}, test::with(Mode::generic, 1));
    const Array xs = x.slice(0, 0, n + k), ys = y.slice(0, 0, n);
    const Array out = program.call(arguments({xs, ys}))[0];
    CHECK(program.stats().kernels == 1);
    compiles += program.stats().compiles;
    const std::string& mine = program.last_report()->kernels.at(0).key;
    if (key.empty()) key = mine;
    INFO("n = " << n << ", k = " << k << ", a = " << a << ", c = " << c);
    REQUIRE((mine == key));  // not printed: it is binary
    for (std::int64_t j = 0; j < n; j += 1 + n / 7)
      REQUIRE(out.at<float>({j}) == static_cast<float>(a) * x.at<float>({j + k}) * static_cast<float>(c) + y.at<float>({j}));
  }
  CHECK(compiles <= 1);
}

TEST_CASE("slice: a scalar argument's value changes no code", "[slice]") {
  if (!has_codegen()) return;
  const Array x = random_array<float>({100}, 1);
  std::string key;
  for (const float value :
       {0.0f, -0.0f, 1.0f, 2.0f, -1.0f, 0.5f, 1e30f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const FormulaProgram parsed = parse_formula("x*k + k*2");
    const Array k = Array::scalar(value);  // an array of rank 0
    Program program(parsed.record, parsed.inputs, test::with(Mode::generic, 1));
    program.call(arguments({x, k}));
    Program number([](Recorder& r, Values v) { r.output("out", r.add(r.mul(v[0], v[1]), r.mul(v[1], v[1]))); }, {},
                   test::with(Mode::generic, 1));
    const Argument in[] = {{&x, {}}, {nullptr, {compiler::Literal::Kind::Float, 0, value, 0}}};
    const Array out = number.call(in)[0];
    const float expected = x.at<float>({3}) * value + value * value;
    CHECK((out.at<float>({3}) == expected || (out.at<float>({3}) != out.at<float>({3}) && expected != expected)));
    const std::string mine = program.last_report()->kernels.at(0).key + number.last_report()->kernels.at(0).key;
    if (key.empty()) key = mine;
    CHECK((mine == key));
  }
}

TEST_CASE("slice: errors name the operator, the operands, the mismatch and the fix", "[slice]") {
  struct Row {
    const char* formula;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<const char*> words;
  };
  const Row rows[] = {
      {"x*w",
       {{32, 64}, {32}},
       {"formula:1:2: mul: shapes [32, 64] and [32] do not broadcast: the last dimension is 64 on the left and 32 on the right.",
        "\nx*w\n ^\n",
        "\n  left:  x f32[32, 64]\n  right: w f32[32]\n  Make the sizes equal or one of them 1; to run along axis 0 of the left operand, "
        "write "
        "reshape(…, [32, 1])."}},
      {"x + y",
       {{3, 4}, {2, 1}},
       {"formula:1:3: add: shapes [3, 4] and [2, 1] do not broadcast", "left:  x f32[3, 4]", "right: y f32[2, 1]"}},
      {"layer_norm(x, w)", {{4, 6}, {5}}, {"formula:1:1: layer_norm: shapes [4, 6] and [5] do not broadcast", "right: w f32[5]"}},
      {"mse(x, y)", {{4, 6}, {5}}, {"formula:1:1: mse: shapes [4, 6] and [5] do not broadcast", "left:  x f32[4, 6]"}},
      {"sofmax(x)", {{3}}, {"formula:1:1: ", "`sofmax`", "did you mean `softmax`?"}},
      {"reshape(x, [5])", {{3, 4}}, {"formula:1:1: reshape: ", "[3, 4]", "[5]"}},
      {"sum(x, axis=2)", {{3, 4}}, {"formula:1:1: sum: ", "2", "rank 2"}},
      {"x[5]", {{3}}, {"formula:1:2: ", "5 is out of range"}},
      {"max(x)", {{0}}, {"formula:1:1: max: ", "x f32[0]"}},
      {"transpose(x, [0, 0])", {{3, 4}}, {"formula:1:1: transpose: "}},
      {"broadcast_to(x, [5, 4])", {{3, 4}}, {"formula:1:1: broadcast_to: ", "[3, 4]", "[5, 4]"}},
      {"d = grad(x, [x])", {{3}}, {"formula:1:5: grad: ", "scalar"}},
  };
  for (const Row& row : rows) {
    std::vector<Array> arrays;
    for (const auto& shape : row.shapes) arrays.push_back(Array::zeros(shape, f32));
    std::string message = "nothing was thrown";
    try {
      const FormulaProgram parsed = parse_formula(row.formula);
      Program(parsed.record, parsed.inputs, test::with(Mode::reference)).call(arguments(arrays));
    } catch (const Error& error) { message = error.what(); }
    INFO(row.formula);
    for (const char* words : row.words) CHECK_THAT(message, Catch::Contains(words));
  }
}
