// Recording formulas as graphs: nodes, names of inputs and outputs, and source positions of errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/formula.h"
#include "ir/reference.h"
#include "node_text.h"

using namespace onepass;
using namespace onepass::compiler;
using onepass::test::node_text;

namespace {

// Parses the inputs of a program by name, such as `x=f32[2, 3] k=i64[]`.
std::vector<std::pair<std::string, FormulaInput>> types(const std::string& text) {
  std::vector<std::pair<std::string, FormulaInput>> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t equals = text.find('=', at), open = text.find('[', at), close = text.find(']', at);
    FormulaInput input;
    REQUIRE(dtype_of(text.substr(equals + 1, open - equals - 1), input.dtype));
    std::stringstream extents(text.substr(open + 1, close - open - 1));
    for (std::string extent; std::getline(extents, extent, ',');) input.shape.push_back(std::stoll(extent));
    out.emplace_back(text.substr(at, equals - at), input);
    at = std::min(text.find_first_not_of(' ', close + 1), text.size());
  }
  return out;
}

Recorder record(const std::string& text, const std::string& input_types, std::uint32_t max_nodes = 1u << 20) {
  const language::Program program = language::parse(text, "f");
  std::vector<FormulaInput> inputs;
  for (const std::string& name : signature_of(program).inputs) {
    bool found = false;
    for (const auto& [given, type] : types(input_types))
      if (given == name) inputs.push_back(type), found = true;
    INFO(name);
    REQUIRE(found);
  }
  Recorder recorder;
  recorder.limits.max_nodes = max_nodes;
  record_formula(recorder, program, inputs);
  ir::verify(recorder.graph, "record");
  return recorder;
}

// Returns each output as one expression.
std::string recorded(const std::string& text, const std::string& input_types) {
  const Recorder recorder = record(text, input_types);
  std::string out;
  for (std::size_t i = 0; i < recorder.graph.outputs.size(); ++i)
    out += (i > 0 ? "; " : "") + recorder.graph.output_names[i] + " = " + node_text(recorder.graph, recorder.graph.outputs[i]);
  return out;
}

std::string error(const std::string& text, const std::string& input_types, std::uint32_t max_nodes = 1u << 20) {
  try {
    (void)record(text, input_types, max_nodes);
  } catch (const FormulaError& e) { return e.what(); }
  return "no error";
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " ") + name;
  return out;
}
std::string inputs_of(std::string_view text) { return joined(signature_of(language::parse(text)).inputs); }
std::string outputs_of(std::string_view text) { return joined(signature_of(language::parse(text)).outputs); }

// Returns the value of a program without inputs.
template <class T> std::vector<T> computed(const std::string& text) {
  const Recorder recorder = record(text, "");
  std::vector<ir::Buffer> results = ir::evaluate(recorder.graph, {});
  REQUIRE(results.size() == 1);
  REQUIRE(results[0].dtype == dtype<T>);
  return {results[0].as<T>().begin(), results[0].as<T>().end()};
}

}  // namespace

TEST_CASE("formula: inputs and outputs are determined by the text", "[formula]") {
  CHECK(inputs_of("x*w + b") == "x w b");
  CHECK(outputs_of("x*w + b") == "out");
  CHECK(inputs_of("s = exp(q); m = sum(q) * k") == "q k");
  CHECK(outputs_of("s = exp(q); m = sum(q) * k") == "s m");
  CHECK(outputs_of("a = x; b = a + 1; c = b; d = b") == "c d");
  CHECK(outputs_of("a = x; b = a + 1; a * 2") == "b out");
  CHECK(outputs_of("a = x; a") == "out");
  CHECK(inputs_of("mean = sum(x) / size(x)") == "x");
  CHECK(outputs_of("mean = sum(x) / size(x)") == "mean");
  CHECK(inputs_of("fn g(z) { return z } fn f(p, q) { return q }") == "p q");
  CHECK(outputs_of("fn f(p, q) { return q }") == "q");
  CHECK(outputs_of("fn f(p, q) { return p + q }") == "out");
  CHECK(outputs_of("fn f(p, q) { return p + q, p, p - q }") == "out0 p out1");
  CHECK(outputs_of("fn f(p, q) { return p, p + q }") == "p out");
  CHECK(outputs_of("fn f(p) { y = p\n return y * 1 }") == "out");
  CHECK(inputs_of("fn f(p) { return p } f(x) + f(y)") == "x y");
}

TEST_CASE("formula: operators record what the C++ interface records", "[formula]") {
  const std::string xy = "x=f32[2,3] y=f32[2,3] i=i64[2,3] j=i64[2,3] p=bool[2,3] q=bool[2,3]";
  const std::pair<const char*, const char*> rows[] = {
      {"x*y + x", "add(mul(x, y), x)"},
      {"x - y / x", "sub(x, div(y, x))"},
      {"x // y", "floor_div(x, y)"},
      {"x % y", "remainder(x, y)"},
      {"-x", "neg(x)"},
      {"+x", "x"},
      {"~i", "bitwise_not(i)"},
      {"i & j | i ^ j", "bitwise_or(bitwise_and(i, j), bitwise_xor(i, j))"},
      {"i << j >> i", "shift_right(shift_left(i, j), i)"},
      {"x == y", "equal(x, y)"},
      {"x != y", "not_equal(x, y)"},
      {"x < y", "less(x, y)"},
      {"x <= y", "less_equal(x, y)"},
      {"x > y", "greater(x, y)"},
      {"x >= y", "greater_equal(x, y)"},
      {"p and q or p", "bitwise_or(bitwise_and(p, q), p)"},
      {"not p", "bitwise_not(p)"},
      {"p ? x : y", "where(p, x, y)"},
      {"x**2", "mul(x, x)"},
      {"x**(1+1)", "mul(x, x)"},
      {"x**-1", "reciprocal(x)"},
      {"pow(x, 3.0)", "mul(mul(x, x), x)"},
      {"where(p, x, y)", "where(p, x, y)"},
      {"cast(x, i64)", "cast<i64>(x)"},
      {"x + 1", "add(x, slot0)"},
      {"x*2 + x*2", "add(mul(x, slot0), mul(x, slot1))"},
      {"c = 2; x*c + y*c", "add(mul(x, slot0), mul(y, slot0))"},
      {"sqrt(exp(x))", "sqrt(exp(x))"},
      {"maximum(a=x, b=y)", "maximum(x, y)"},
  };
  for (const auto& [text, expected] : rows) {
    CAPTURE(text);
    CHECK(recorded(text, xy) == "out = " + std::string(expected));
  }
}

TEST_CASE("formula: indexing is slices, new axes and squeezes", "[formula]") {
  const std::string x = "x=f32[8,6]";
  const auto shape = [&](const std::string& text) {
    const Recorder recorder = record(text, x);
    return shape_text(recorder.graph.shape(recorder.graph.outputs[0]));
  };
  CHECK(shape("x[0]") == "[6]");
  CHECK(shape("x[1:5, ::2]") == "[4, 3]");
  CHECK(shape("x[..., -1]") == "[8]");
  CHECK(shape("x[:, none]") == "[8, 1, 6]");
  CHECK(shape("x[none, ..., none]") == "[1, 8, 6, 1]");
  CHECK(shape("x[::-1]") == "[8, 6]");
  CHECK(shape("x[100:]") == "[0, 6]");
  CHECK(shape("x[none:3, -2:none:none]") == "[3, 2]");
  CHECK(shape("x[1:x.shape[0] - 1]") == "[6, 6]");
  CHECK(shape("k = 3; x[k][k - 1:]") == "[4]");
  CHECK(recorded("x[1:5, 2]", x) == "out = reshape[4](slice[1,2,1,1](x))");
}

TEST_CASE("formula: shapes, sizes and extents are integers", "[formula]") {
  CHECK(recorded("reshape(x, [x.shape[0]*x.shape[-1], 1])", "x=f32[4,6]") == "out = reshape[24,1](x)");
  CHECK(recorded("reshape(x, x.shape)", "x=f32[4,6]") == "out = x");
  CHECK(recorded("s = [size(x)]; reshape(x, s) + 0*sum(x)", "x=f32[4,6]").substr(0, 26) == "out = add(reshape[24](x), ");
  CHECK(recorded("fn f(x: f32[n, c], s: f32[n]) { return x * reshape(s, [n, 1]) / n }", "x=f32[4,6] s=f32[4]") ==
        "out = div(mul(x, broadcast[4,6](reshape[4,1](s))), slot0)");
  CHECK(recorded("x / x.shape[1]", "x=f32[4,6]") == "out = div(x, slot0)");
  CHECK(recorded("fn f(k: i64[], x: f32[4]) { return x * k }", "k=i64[] x=f32[4]").substr(0, 12) == "out = mul(x,");
}

TEST_CASE("formula: functions are expanded", "[formula]") {
  const std::string square = "fn square_of(a) { return a*a }\n";
  CHECK(recorded(square + "square_of(x + 1)", "x=f32[3]") == "out = mul(add(x, slot0), add(x, slot0))");
  CHECK(recorded(square + "fn two(a, b) { return square_of(a), square_of(b) }\np, q = two(x, y)", "x=f32[3] y=f32[3]") ==
        "p = mul(x, x); q = mul(y, y)");
  CHECK(recorded(square + "fn two(a, b) { return square_of(a), b }", "a=f32[3] b=f32[3]") == "out = mul(a, a); b = b");
  CHECK(recorded("fn f(a, b) { return a - b }\nf(b=x, a=y)", "x=f32[3] y=f32[3]") == "out = sub(y, x)");
  CHECK(recorded("fn f(a: f32[n]) { return a * n }\nf(x) + f(y)", "x=f32[3] y=f32[1]") ==
        "out = add(mul(x, slot0), broadcast[3](mul(y, slot1)))");
  CHECK(recorded("fn f(x, axes) { return sum(x, axis=axes) }\nf(x, [0, 1])", "x=f32[3,2]") == "out = reduce_sum[0,1](x)");
  CHECK(recorded("fn f(k: f32[]) { return k }\nx * f(2)", "x=f32[3]") == "out = mul(x, broadcast[3](reshape[1](slot0)))");
  CHECK(recorded("fn relu(x) { return maximum(x, x) }\nrelu(x)", "x=f32[3]") ==
        "out = maximum(x, x)");  // the program's function hides the operator
}

TEST_CASE("formula: expressions of literals are literals", "[formula]") {
  CHECK(computed<std::int64_t>("2 + 3*4") == std::vector<std::int64_t>{14});
  CHECK(computed<std::int64_t>("-9223372036854775808") == std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()});
  CHECK(computed<std::int64_t>("a = 7; b = a // 2; b % 2 + 2**10") == std::vector<std::int64_t>{1025});
  CHECK(computed<float>("1 / 4") == std::vector<float>{0.25f});
  CHECK(computed<float>("sqrt(2) * sqrt(2)") == std::vector<float>{static_cast<float>(std::sqrt(2.0) * std::sqrt(2.0))});
  CHECK(computed<float>("pi") == std::vector<float>{3.14159274f});
  CHECK(computed<double>("cast(0.1, f64)") == std::vector<double>{0.1});
  CHECK(computed<double>("full([2], 0.1, f64)") == std::vector<double>{0.1, 0.1});
  CHECK(computed<std::int64_t>("1 < 2 ? 10 : 20") == std::vector<std::int64_t>{10});
  CHECK(computed<bool>("1 < 2 and not 2 < 1") == std::vector<bool>{true});
  CHECK_THAT(error("9223372036854775807 + 1", ""), Catch::Contains("f:1:21: ") && Catch::Contains("overflow i64"));
  CHECK_THAT(error("--9223372036854775808", ""), Catch::Contains("overflow i64"));
  // fma is a*b + c: integer operands are computed as integers, although the result is a float
  CHECK_THAT(error("fma(4294967296, 2147483648, 0)", ""),
             Catch::Contains("f:1:1: ") && Catch::Contains("fma: the integer literals overflow i64"));
  CHECK_THAT(error("fma(-4294967296, 4294967296, 1.5)", ""), Catch::Contains("fma: the integer literals overflow i64"));
  CHECK_THAT(error("fma(9223372036854775807, 1, 1)", ""), Catch::Contains("fma: the integer literals overflow i64"));
  CHECK_THAT(error("x * fma(4294967296, 4294967296, 1)", "x=f32[2]"), Catch::Contains("fma: the integer literals overflow i64"));
  CHECK(computed<double>("cast(fma(4611686018427387903, 2, -9223372036854775805), f64)") == std::vector<double>{1});  // exact, then rounded
  CHECK(computed<float>("fma(2, 3, 1)") == std::vector<float>{7});
  CHECK(computed<double>("cast(fma(4294967296.0, 4294967296, 1), f64)") == std::vector<double>{18446744073709551616.0});
  // literals above the largest i64, and results computed from them, are u64
  CHECK(computed<std::uint64_t>("18446744073709551615") == std::vector<std::uint64_t>{UINT64_MAX});
  CHECK(computed<std::uint64_t>("9223372036854775808 - 1") == std::vector<std::uint64_t>{std::uint64_t{INT64_MAX}});
  CHECK(computed<std::uint64_t>("18446744073709551615 // 3 % 10 + 9223372036854775808") ==
        std::vector<std::uint64_t>{(std::uint64_t{1} << 63) + 5});
  CHECK(computed<std::uint64_t>("18446744073709551615 ^ 255 & ~9223372036854775808") == std::vector<std::uint64_t>{UINT64_MAX ^ 255});
  CHECK(computed<std::uint64_t>("maximum(18446744073709551614, 3) >> 1") == std::vector<std::uint64_t>{std::uint64_t{INT64_MAX}});
  CHECK(computed<std::uint64_t>("9223372036854775808 ** 1") == std::vector<std::uint64_t>{std::uint64_t{1} << 63});
  CHECK(computed<std::uint64_t>("stack([1, 18446744073709551615], 0)") == std::vector<std::uint64_t>{1, UINT64_MAX});
  CHECK(computed<float>("cast(18446744073709551615, f32)") == std::vector<float>{0x1p64f});
  CHECK(computed<float>("cast(9223372586610589697, f32)") == std::vector<float>{9223373136366403584.0f});  // rounded once: 2^63 + 2^39 + 1
  CHECK(computed<double>("cast(18446744073709549568, f64)") == std::vector<double>{18446744073709549568.0});
  CHECK(computed<std::int64_t>("cast(18446744073709551615, i64)") == std::vector<std::int64_t>{-1});
  CHECK(computed<bool>("18446744073709551615 > 1") == std::vector<bool>{true});
  CHECK_THAT(error("18446744073709551615 + 1", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("18446744073709551615 * 18446744073709551615", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("9223372036854775808 << 1", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("-(9223372036854775808)", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("-9223372036854775808**2", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("1 - 9223372036854775808", ""), Catch::Contains("overflow u64"));
  CHECK_THAT(error("-1 & 9223372036854775808", ""),
             Catch::Contains("the literal -1 and a literal above 9223372036854775807 have no common type"));
  CHECK_THAT(error("x + 9223372036854775808", "x=i64[2]"), Catch::Contains("the literal 9223372036854775808 does not fit i64"));
  CHECK_THAT(error("x[18446744073709551615]", "x=i64[2]"), Catch::Contains("18446744073709551615"));
  CHECK_THAT(error("reshape(x, [18446744073709551615])", "x=i64[2]"), Catch::Contains("18446744073709551615"));
  CHECK_THAT(error("x + 300", "x=u8[2]"), Catch::Contains("f:1:3: ") && Catch::Contains("300 does not fit u8"));
}

TEST_CASE("formula: derivatives", "[formula]") {
  CHECK(recorded("y = x*w; loss = sum(y); da = grad(loss, [x])", "x=f32[3] w=f32[3]").substr(0, 5) == "da = ");
  CHECK(recorded("y = x*w; dx, dw = vjp(y, [x, w], dy)", "x=f32[3] w=f32[3] dy=f32[3]") == "dx = mul0(dy, w); dw = mul0(dy, x)");
  CHECK(recorded("fn f(a) { l = sum(a*a); return grad(l, [a]) }\nf(x) + 0*x", "x=f32[3]").substr(0, 9) == "out = add");
  CHECK(recorded("y = x*w; p = [x, w]; dx, dw = vjp(y, p, dy)", "x=f32[3] w=f32[3] dy=f32[3]") == "dx = mul0(dy, w); dw = mul0(dy, x)");
  // a second derivative
  CHECK(recorded("y = sum(x*x*x); d = grad(y, [x]); s = sum(d); h = grad(s, [x])", "x=f32[3]").substr(0, 4) == "h = ");
}

TEST_CASE("formula: recording errors point at the operator, and in functions also at the call", "[formula]") {
  CHECK(error("y = exp(x)\nz = y *w\n", "x=f32[32,64] w=f32[32]").substr(0, 7) == "f:2:7: ");
  const std::string in_call = error("fn f(a, b) {\n  return a + b\n}\ny = f(x, w)", "x=f32[32,64] w=f32[32]");
  CHECK(in_call.substr(0, 11) == "f:2:12: add");
  CHECK_THAT(in_call, Catch::Contains("\n  return a + b\n           ^\n") && Catch::Contains("in `f`, called at 4:5"));
}

TEST_CASE("formula: every recording error has the expected text", "[formula]") {
  struct Row {
    const char *text, *types, *start, *words;
  };
  const Row rows[] = {
      {"y = sofmax(x)", "x=f32[3]", "f:1:5: ", "there is no operator or function `sofmax`: did you mean `softmax`?"},
      {"y = sinn(x)", "x=f32[3]", "f:1:5: ", "did you mean `sin`?"},
      {"fn scale(a) { return a } y = scalee(x)", "x=f32[3]", "f:1:30: ", "did you mean `scale`?"},
      {"frobnicate(x)", "x=f32[3]", "f:1:1: ", "there is no operator or function `frobnicate`\n"},
      {"fn f(a) { return wibble(a) } x", "x=f32[3]", "f:1:18: ", "there is no operator or function `wibble`"},
      {"y = f(x)\nfn f(a) { return a }", "x=f32[3]",
       "f:1:5: ", "`f` is defined below, at f:2:4; a function must be defined above its calls"},
      {"cumsum(1)", "", "f:1:1: ", "cumsum: `axis` is missing"},
      {"exp(x, x)", "x=f32[3]", "f:1:1: ", "exp: at most 1"},
      {"exp()", "", "f:1:1: ", "`x` is missing"},
      {"sum(x, axes=1)", "x=f32[3]", "f:1:1: ", "there is no parameter `axes`"},
      {"x + [1]", "x=f32[3]", "f:1:5: ", "add: an operand must be a tensor or a number, not a list"},
      {"x * none", "x=f32[3]", "f:1:5: ", "mul: an operand must be a tensor or a number, not `none`"},
      {"x == \"a\"", "x=f32[3]", "f:1:6: ", "equal: an operand must be a tensor or a number, not a text"},
      {"-f32", "", "f:1:2: ", "neg: an operand must be a tensor or a number, not a type"},
      {"p ? x : [1]", "p=bool[3] x=f32[3]", "f:1:9: ", "where: an operand must be a tensor or a number, not a list"},
      {"[x]", "x=f32[3]", "f:1:1: ", "the output `out` is a list; an output must be a tensor or a number"},
      {"a = [1, 2]; b = x", "x=f32[3]", "f:1:1: ", "the output `a` is a list"},
      {"reshape(x, [[3]])", "x=f32[3]", "f:1:13: ", "a list cannot be an item of a list"},
      {"reshape(x, [i])", "x=f32[3] i=i64[]", "f:1:1: ", "reshape"},
      // several results
      {"fn f(a) { return a, a*2 } y = f(x)", "x=f32[3]",
       "f:1:31: ", "`f` returns 2 results, but one value is required here. Assign them as in `a, b = f(…)`"},
      {"fn f(a) { return a, a*2 } f(x) + 1", "x=f32[3]", "f:1:27: ", "`f` returns 2 results"},
      {"fn f(a) { return a, a*2 } a, b, c = f(x)", "x=f32[3]", "f:1:27: ", "3 names precede `=`, but `f` returns 2 results"},
      {"a, b = exp(x)", "x=f32[3]", "f:1:1: ", "2 names precede `=`, but `exp` returns 1 result"},
      {"a, b = x + 1", "x=f32[3]", "f:1:1: ", "2 names precede `=`, but the expression returns 1 result"},
      {"l = sum(x*w); d = grad(l, [x, w])", "x=f32[3] w=f32[3]", "f:1:19: ", "`grad` returns 2 results"},
      {"fn f(x) { return x, x }", "x=f32[3]", "f:1:21: ", "two outputs have the name `x`; the first is at f:1:18"},
      {"out = x; x + 1", "x=f32[3]", "f:1:12: ", "two outputs have the name `out`; the first is at f:1:1"},
      {"fn f(out) { return out, out + 1 }", "out=f32[3]", "f:1:29: ", "two outputs have the name `out`"},
      // functions
      {"fn f(a, b) { return a } f(x)", "x=f32[3]", "f:1:25: ", "f: takes 2 arguments, but the call has 1; `b` is missing: f(a, b)"},
      {"fn f(a) { return a } f(x, x)", "x=f32[3]", "f:1:27: ", "f: takes 1 arguments, but the call has 2: f(a)"},
      {"fn f(a) { return a } f(b=x)", "x=f32[3]", "f:1:24: ", "f: there is no parameter `b`: f(a)"},
      {"fn f(a) { return a } f(x, a=x)", "x=f32[3]", "f:1:27: ", "f: `a` is given twice"},
      {"fn f(a: f32[n, 4]) { return a }", "a=f32[2,3]",
       "f:1:6: ", "f: the parameter `a` is declared f32[n, 4], but the argument is a f32[2, 3]: axis 1 is 3, not 4"},
      {"fn f(a: f32[n], b: f32[n]) { return a + b }", "a=f32[2] b=f32[3]",
       "f:1:17: ", "the parameter `b` is declared f32[n], but the argument is b f32[3]: axis 0 is 3, but `n` is 2, from `a`"},
      {"fn f(a: f32[n]) { return a }", "a=f32[]", "f:1:6: ", "declared f32[n], but the argument is a f32[]: the rank is 0, not 1"},
      {"fn f(a: f32[n]) { return a } f(x)", "x=i32[2]",
       "f:1:32: ", "declared f32[n], but the argument is x i32[2]: the type is i32, not f32. Use a cast to convert it"},
      {"fn f(a: f32[n]) { return a } f(1)", "", "f:1:32: ", "declared f32[n], but the argument is the number 1, which has no axes"},
      {"fn f(a: i64[]) { return a } f(1.5)", "", "f:1:31: ", "declared i64[], but the argument is the number 1.5. Write `cast(1.5, i64)`"},
      {"fn f(a: u8[]) { return a } f(300)", "", "f:1:30: ", "300 does not fit u8"},
      {"fn f(a: f32[]) { return a } f([1])", "", "f:1:31: ", "declared f32[], but the argument is a list"},
      // indexing
      {"x[3]", "x=f32[3]", "f:1:2: ", "3 is out of range"},
      {"x[i]", "x=f32[3] i=i64[]", "f:1:3: ",
       "an index must be an integer literal, an extent or an expression of these, not i i64[]. Use take(x, indices, axis) to index by "
       "data"},
      {"x[1.5]", "x=f32[3]", "f:1:3: ", "an index must be an integer literal, an extent or an expression of these, not 1.5"},
      {"x[[0, 1]]", "x=f32[3]", "f:1:3: ", "not a list. Use take(x, indices, axis) to index by data"},
      {"x[0:1.5]", "x=f32[3]", "f:1:5: ", "a bound of a slice must be an integer"},
      {"x[0:f32]", "x=f32[3]", "f:1:5: ", "a bound of a slice must be an integer, not a type"},
      {"x[::0]", "x=f32[3]", "f:1:2: ", "the step of a slice is 0"},
      {"x[..., ...]", "x=f32[3]", "f:1:2: ", "more than one `...`"},
      {"mean(x, axis=9223372036854775807)", "x=f32[3]", "f:1:1: ", "mean: axis 9223372036854775807 is out of range for rank 1"},
      {"x.shape[1]", "x=f32[3]", "f:1:8: ", "shape: axis 1 is out of range for x f32[3] of rank 1"},
      {"x.shape[0:1]", "x=f32[3]", "f:1:8: ", "a shape must be indexed by one integer"},
      {"[1, 2].shape", "", "f:1:1: ", "shape: an operand must be a tensor or a number, not a list"},
      // derivatives
      {"l = sum(x); d = grad(l, x)", "x=f32[3]",
       "f:1:25: ", "grad: the second argument must be a list of names: `da, db = grad(loss, [a, b])`"},
      {"l = sum(x); d = grad(l, [])", "x=f32[3]", "f:1:25: ", "grad: the list of names is empty"},
      {"l = sum(x); d = grad(l)", "x=f32[3]", "f:1:17: ", "grad: takes 2 arguments, but the call has 1"},
      {"l = sum(x); d = grad(loss=l, a=[x])", "x=f32[3]", "f:1:22: ", "grad: the arguments must not be named"},
      {"l = sum(x); d = grad(l, [x*2])", "x=f32[3]", "f:1:27: ",
       "grad: cannot differentiate with respect to an unnamed expression; an input or a named value is required. Give this expression a "
       "name"},
      {"l = sum(x); d = grad(x, [x])", "x=f32[3]", "f:1:17: ", "grad: the loss must be a scalar"},
      {"l = sum(x); d = grad(l, [i])", "x=f32[3] i=i64[3]", "f:1:17: ", "integers and bool have no derivative"},
      {"d = vjp(x, [x])", "x=f32[3]", "f:1:5: ", "vjp: takes 3 arguments, but the call has 2"},
      {"d = vjp(x, [x], y)", "x=f32[3] y=f32[4]", "f:1:5: ", "have different shapes"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text, row.words);
    const std::string text = error(row.text, row.types);
    CHECK(text.substr(0, std::strlen(row.start)) == row.start);
    CHECK_THAT(text + "\n", Catch::Contains(row.words));
  }
}

TEST_CASE("formula: calls may nest and multiply up to the limits", "[formula]") {
  const auto chain = [](int functions, const std::string& body) {
    std::string text = "fn h0(x) { return x + 1 }\n";
    for (int i = 1; i < functions; ++i) {
      std::string line = body;
      for (std::size_t at; (at = line.find('$')) != std::string::npos;) line.replace(at, 1, std::to_string(i - 1));
      text += "fn h" + std::to_string(i) + "(x) { return " + line + " }\n";
    }
    return text;
  };
  CHECK(error(chain(999, "h$(x)"), "x=f32[3]") == "no error");
  CHECK_THAT(error(chain(1500, "h$(x)"), "x=f32[3]"), Catch::Contains("the calls nest deeper than 1000, the limit `nesting`"));
  CHECK_THAT(error(chain(40, "h$(x) + h$(x)"), "x=f32[3]", 10'000),
             Catch::Contains("the program has more than 10000 nodes after its calls are expanded, the limit `max_nodes`"));
  std::string identities = "fn g0(x) { return x }\n";  // equal nodes are shared, but the expansion still counts towards the limit
  for (int i = 1; i < 64; ++i)
    identities += "fn g" + std::to_string(i) + "(x) { a = g" + std::to_string(i - 1) + "(x); return g" + std::to_string(i - 1) + "(a) }\n";
  CHECK_THAT(error(identities, "x=f32[3]", 10'000), Catch::Contains("limit `max_nodes`"));
  std::string sum = "x";
  for (int i = 0; i < 20'000; ++i) sum += " + x";
  CHECK(record(sum, "x=f32[3]").graph.size() > 20'000);
}

TEST_CASE("formula: nodes have the line that recorded them", "[formula]") {
  const Recorder recorder = record("a = x + 1\nb = a * 2", "x=f32[3]");
  const ir::Graph& graph = recorder.graph;
  CHECK(graph.sources[graph.source_of[graph.outputs[0]]] == "f:2");
  CHECK(graph.sources[graph.source_of[graph.operand(graph.outputs[0], 0)]] == "f:1");
}
