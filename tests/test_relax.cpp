// relax: each rewriting applies only if it is allowed. Relaxed results are close to the strict results and equal in every mode.
#include "compiler/relax.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <onepass/onepass.h>
#include <catch2/catch.hpp>

#include "compiler/simplify.h"
#include "golden.h"
#include "ir/reference.h"
#include "node_text.h"
#include "plans_of.h"

using namespace onepass;
using namespace onepass::ir;
using test::node_text;

namespace {

constexpr Relax kContract{.contract = true}, kReassociate{.reassociate = true}, kBoth{.contract = true, .reassociate = true},
    kApproximate{.approximate = true}, kAll{true, true, true};

// Returns a graph of x, y, g: f32[8], with scalar parameters s and t.
Graph graph_of(const std::string& body) {
  const std::string f32 = " : f32[8]\n";
  return prune(parse_graph("slot 0 = 2 : f32\nslot 1 = 3 : f32\n%0 = input x" + f32 + "%1 = input y" + f32 + "%2 = input g" + f32 +
                           "%3 = slot 0" + f32 + "%4 = slot 1" + f32 + body));
}

/// Returns a chain of operators after relax, as an expression. `%5 = …; %6 = …`: the last value is the result.
std::string relaxed_with_casts(std::string_view statements, const Relax& relaxations) {
  std::string body;
  int last = 4;
  while (!statements.empty()) {
    const std::size_t end = statements.find(';');
    body += "%" + std::to_string(++last) + " = " + std::string(statements.substr(0, end)) + " : f32[8]\n";
    statements = end == std::string_view::npos ? std::string_view{} : statements.substr(end + 2);
  }
  const Graph graph = graph_of(body + "return out = %" + std::to_string(last));
  const Graph result = compiler::relax(graph, relaxations);
  verify(result, "relax");
  return node_text(result, result.outputs[0]);
}

/// Returns the same expression without the casts of scalar computations to f64.
std::string relaxed(std::string_view statements, const Relax& relaxations) {
  std::string text = relaxed_with_casts(statements, relaxations);
  for (const std::string_view cast : {"cast<f32>(", "cast<f64>("})
    for (std::size_t at = 0; (at = text.find(cast, at)) != std::string::npos;) {
      std::size_t end = at + cast.size();
      for (int depth = 1; depth > 0; ++end) depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      text.erase(end - 1, 1);
      text.erase(at, cast.size());
    }
  return text;
}

}  // namespace

TEST_CASE("relax: numbers common to all elements are rounded once", "[relax]") {
  CHECK(relaxed_with_casts("mul %0, %3; add %5, %4; mul %6, %3", kReassociate) ==
        "add(mul(x, cast<f32>(mul(cast<f64>(slot0), cast<f64>(slot0)))), cast<f32>(mul(cast<f64>(slot1), cast<f64>(slot0))))");
  // hundreds of such numbers: rounding errors would be equal for all elements, and add up
  std::mt19937 random(7);
  std::uniform_real_distribution<float> factor(1.04f, 1.16f), offset(-0.25f, 0.25f);
  constexpr int steps = 512, n = 1000;
  std::vector<float> start;
  for (int k = 0; k < n; ++k) start.push_back(static_cast<float>(k - n / 2) / n);
  std::vector<double> exact(start.begin(), start.end());
  std::string program, last = "x";
  for (int i = 0; i < steps; ++i) {
    const float a = factor(random), b = offset(random);
    const bool folds = i % 8 == 7;
    char line[160];
    const std::string from = folds ? "maximum(" + last + ", -" + last + ")*0.5" : last;
    std::snprintf(line, sizeof line, "t%d = %s*%.9g + %.9g; ", i, from.c_str(), static_cast<double>(a), static_cast<double>(b));
    program += line;
    last = "t" + std::to_string(i);
    for (double& x : exact) x = (folds ? std::fabs(x) * 0.5 : x) * static_cast<double>(a) + static_cast<double>(b);
  }
  Options options;
  options.relax = kAll;
  const Array y = onepass::formula(program + last, options)({Array::from(start)})[0];
  double most = 0, error = 0;
  for (std::size_t k = 0; k < exact.size(); ++k) {
    most = std::max(most, std::fabs(exact[k]));
    error = std::max(error, std::fabs(exact[k] - static_cast<double>(y.span<const float>()[k])));
  }
  INFO("error " << error / most);
  CHECK(error < 1e-6 * most);
}

TEST_CASE("relax: only requested relaxations change the graph", "[relax]") {
  CHECK(relaxed("mul %0, %3; add %5, %4", {}) == "add(mul(x, slot0), slot1)");
  CHECK(relaxed("div %0, %3", {}) == "div(x, slot0)");
  CHECK(relaxed("tanh %0; add %3, %5", kBoth) == "add(tanh(x), slot0)");
  CHECK(relaxed("div %0, %3", {.contract = true, .approximate = true}) == "div(x, slot0)");
  CHECK(relaxed("mul %0, %3; add %5, %4", kApproximate) == "add(mul(x, slot0), slot1)");
  CHECK(relaxed("mul %0, %3; add %5, %4", kReassociate) == "add(mul(x, slot0), slot1)");
  CHECK(relaxed("mul %0, %3; mul %5, %4", kContract) == "mul(mul(x, slot0), slot1)");
  CHECK(relaxed("exp %0", kBoth) == "exp(x)");
}

TEST_CASE("relax: contract turns a sum of products into a contraction if no other code shares its loops", "[relax]") {
  const auto contractions = [](const std::string& body) {
    const Graph graph = prune(parse_graph("%0 = input x : f32[4, 8]\n%1 = input y : f32[4, 8]\n" + body));
    const Graph result = compiler::relax(graph, kContract);
    verify(result, "relax");
    return std::count_if(result.outputs.begin(), result.outputs.end(), [&](NodeId id) { return is_contraction(result[id].op); });
  };
  const std::string product = "%2 = mul %0, %1 : f32[4, 8]\n", sum = "%3 = reduce_sum %2 {1} : f32[4]\n";
  CHECK(contractions(product + sum + "return out = %3") == 1);
  CHECK(contractions("%2 = square %0 : f32[4, 8]\n" + sum + "return out = %3") == 1);
  CHECK(contractions(product + "%3 = reduce_sum %2 {0} : f32[8]\nreturn out = %3") == 0);                // outer-axis reduction
  CHECK(contractions(product + sum + "return out = %3, p = %2") == 0);                                   // the product is needed separately
  CHECK(contractions(product + sum + "%4 = reduce_max %0 {1} : f32[4]\nreturn out = %3, m = %4") == 0);  // the same loops
  CHECK(contractions(product + sum +
                     "%4 = reshape %3 : f32[4, 1]\n%5 = broadcast %4 : f32[4, 8]\n%6 = mul %0, %5 : f32[4, 8]\nreturn out = %3, y = %6") ==
        0);
  for (const char* const text : {"sum(V[:, none, none]*V[none, :, none]*V[none, none, :], axis=[1, 2])", "sum(V[:, none]*V, axis=1)"}) {
    Options options;
    options.relax = kAll;
    std::vector<float> v(301);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = 0.3f + std::sin(static_cast<float>(i));
    options.mode = Mode::reference;
    const Array expected = onepass::formula(text, options)({Array::from(v)})[0];
    for (const Mode mode : {Mode::generic, Mode::unfused, Mode::specialized}) {
      options.mode = mode;
      CHECK(onepass::formula(text, options)({Array::from(v)})[0].to_vector<float>() == expected.to_vector<float>());
    }
    CHECK(onepass::formula(text)({Array::from(v)})[0].to_vector<float>() != expected.to_vector<float>());  // strict mode rounds products
  }
}

TEST_CASE("relax: contract rounds a product and a sum once", "[relax]") {
  CHECK(relaxed("mul %0, %1; add %5, %2", kContract) == "fma(x, y, g)");
  CHECK(relaxed("mul %0, %1; add %2, %5", kContract) == "fma(x, y, g)");
  CHECK(relaxed("mul %0, %1; sub %5, %2", kContract) == "fma(x, y, neg(g))");
  CHECK(relaxed("mul %0, %1; sub %2, %5", kContract) == "fma(neg(x), y, g)");
  CHECK(relaxed("square %0; add %5, %2", kContract) == "fma(x, x, g)");
  CHECK(relaxed("add %0, %1; add %5, %2", kContract) == "add(add(x, y), g)");
  // integers have no rounding
  const Graph integers = parse_graph("%0 = input x : i32[8]\n%1 = mul %0, %0 : i32[8]\n%2 = add %1, %0 : i32[8]\nreturn out = %2");
  CHECK(print(compiler::relax(integers, kAll)) == print(integers));
}

TEST_CASE("relax: reassociate combines values that are equal for all elements", "[relax]") {
  CHECK(relaxed("mul %3, %0; mul %5, %4", kReassociate) == "mul(x, mul(slot0, slot1))");
  CHECK(relaxed("mul %0, %3; add %5, %4; mul %6, %3", kReassociate) == "add(mul(x, mul(slot0, slot0)), mul(slot1, slot0))");
  CHECK(relaxed("div %0, %3", kReassociate) == "mul(x, reciprocal(slot0))");
  CHECK(relaxed("add %0, %3; add %5, %4", kReassociate) == "add(x, add(slot0, slot1))");
  CHECK(relaxed("mul %0, %3; mul %1, %4; mul %5, %6", kReassociate) == "mul(mul(x, y), mul(slot0, slot1))");
  CHECK(relaxed("add %0, %1; mul %2, %3; mul %5, %6", kReassociate).find("add(mul(x, slot0), mul(y, slot0))") != std::string::npos);
}

TEST_CASE("relax: reassociate factors out common factors and combines divisions", "[relax]") {
  CHECK(relaxed("mul %0, %0; mul %5, %0; mul %6, %3; add %0, %7", kReassociate) == "mul(add(mul(mul(x, x), slot0), 1), x)");
  CHECK(relaxed("div %0, %1; div %5, %2", kReassociate) == "div(x, mul(y, g))");
  CHECK(relaxed("div %0, %1; div %2, %5", kReassociate) == "div(mul(y, g), x)");
  CHECK(relaxed("add %0, %1; sub %5, %1", kReassociate).find("mul(y, 0)") != std::string::npos);
}

TEST_CASE("relax: reassociate factors out factors of most terms, whatever else is added", "[relax]") {
  CHECK(relaxed("mul %0, %1; mul %5, %3; add %5, %6; add %7, %2", kReassociate) == "add(mul(mul(x, y), add(1, slot0)), g)");
  CHECK(relaxed("mul %0, %1; mul %0, %2; add %5, %6; add %7, %2; add %8, %3", kReassociate) == "add(add(g, slot0), mul(x, add(y, g)))");
}

TEST_CASE("relax: shared values are not computed again", "[relax]") {
  // both factors need s = x + y: it stays one node
  CHECK(relaxed("add %0, %1; mul %5, %3; add %5, %4; mul %6, %7", kReassociate) ==
        "mul(add(x, y), add(mul(add(x, y), slot0), mul(slot1, slot0)))");
  CHECK(relaxed("mul %0, %3; add %5, %4; neg %6; maximum %6, %7", kReassociate) ==
        "maximum(add(mul(x, slot0), slot1), neg(add(mul(x, slot0), slot1)))");
}

TEST_CASE("relax: a zero cotangent still gives zero", "[relax]") {
  CHECK(relaxed("mul0 %2, %0; mul0 %5, %1", kReassociate) == "mul0(g, mul(x, y))");
  CHECK(relaxed("mul0 %2, %0; mul0 %2, %1; add %5, %6", kReassociate) == "mul0(g, add(x, y))");
  CHECK(relaxed("mul0 %2, %0; mul0 %2, %1; sub %5, %6; mul0 %7, %1", kReassociate) == "mul0(g, mul(y, sub(x, y)))");
  // a cotangent in several sums is factored out of all of them: here the sums of x*x*x
  CHECK(relaxed("mul0 %2, %1; mul0 %5, %0; mul0 %6, %0; mul %0, %0; mul0 %5, %8; add %7, %9", kReassociate) ==
        "mul0(g, mul(mul(mul(x, x), y), 2))");
  // a cotangent that is also an output is computed once and used unchanged
  const Graph shared =
      compiler::relax(graph_of("%5 = mul0 %2, %0 : f32[8]\n%6 = mul0 %5, %1 : f32[8]\nreturn a = %5, b = %6"), kReassociate);
  CHECK(node_text(shared, shared.outputs[0]) == "mul0(g, x)");
  CHECK(node_text(shared, shared.outputs[1]) == "mul0(mul0(g, x), y)");
  CHECK(relaxed("mul0 %2, %0; add %2, %5; mul0 %6, %1", kReassociate) == "mul0(g, mul(y, add(x, 1)))");
  // second derivative: zero if either cotangent is zero
  const auto second = [](const std::string& outer) {
    const Graph twice =
        compiler::relax(graph_of("%5 = mul0 %2, %0 : f32[8]\n%6 = constant 0 = 0x00000000 : f32[8]\n%7 = equal %5, %6 : bool[8]\n"
                                 "%8 = mul0 " +
                                 outer +
                                 ", %0 : f32[8]\n%9 = mul0 %8, %5 : f32[8]\n"
                                 "%10 = where %7, %6, %9 : f32[8]\nreturn out = %10"),
                        kReassociate);
    return node_text(twice, twice.outputs[0]);
  };
  CHECK(second("%1") == "mul0(where(equal(g, 0), 0, mul0(y, g)), mul(x, x))");
  CHECK(second("%2") == "mul0(g, mul(mul(x, x), g))");
  const Graph graph = graph_of(
      "%5 = reciprocal %0 : f32[8]\n%6 = mul0 %2, %5 : f32[8]\n%7 = mul0 %6, %1 : f32[8]\n%8 = mul0 %2, %0 : f32[8]\n%9 = add %7, %8 : "
      "f32[8]\nreturn out = %9");
  const std::vector<float> zeros(8, 0.0f), y(8, INFINITY);
  std::vector<ArrayView> inputs;
  for (const Input& input : graph.inputs) inputs.push_back({DType::F32, input.name == "y" ? y.data() : zeros.data(), {8}, {}});
  const std::vector<Buffer> results = evaluate(compiler::relax(graph, kAll), inputs);
  for (float v : results[0].as<float>()) CHECK(v == 0);
}

TEST_CASE("relax: sums of a derivative are expanded if that takes fewer operations", "[relax]") {
  // q = g*(1 + s*x*x)*y is needed twice: q + q*t*x*x
  const std::string needed_twice = "mul %0, %0; mul %5, %3; mul0 %2, %6; add %2, %7; mul0 %8, %1; mul %5, %4; mul0 %9, %10; add %9, %11";
  CHECK(relaxed(needed_twice, kBoth) == "mul0(g, mul(fma(mul(x, x), fma(mul(x, x), mul(slot0, slot1), add(slot0, slot1)), 1), y))");
  // another value needs it: it is computed once, for both values
  CHECK(relaxed(needed_twice + "; exp %9; add %12, %13", kBoth).find("add(slot0, slot1)") == std::string::npos);
  // p = g*(x + exp(y)) twice: p*x + p*y already is one product
  CHECK(relaxed("exp %1; mul0 %2, %0; mul0 %2, %5; add %6, %7; mul0 %8, %0; mul0 %8, %1; add %9, %10", kBoth) ==
        "mul0(g, mul(add(x, y), add(x, exp(y))))");
  // a difference in the program stays a difference: (x - y)*(x - y)*s*g
  CHECK(relaxed("sub %0, %1; mul0 %2, %5; mul0 %6, %5; mul %6, %3; add %7, %8", kBoth).find("sub(x, y)") != std::string::npos);
}

// Each reduction that needs the result of another reduction of the same rows is one sweep more.
TEST_CASE("relax: reassociate takes factors out of sums that then need fewer sums first", "[relax]") {
  const auto sweeps = [](std::string_view text, const Relax& relaxations) {
    const Graph graph = test::optimised(text, {{"x", {40, 50}}, {"w", {50}}, {"d", {40, 50}}});
    const Graph relaxed = prune(compiler::simplify(compiler::relax(graph, relaxations)));
    verify(relaxed, "relax");
    std::string all;
    for (const compiler::Planned& p : test::plans_of(relaxed)) all += std::to_string(p.nest.sweeps);
    return all;
  };
  const auto changes = [&](std::string_view text) { return sweeps(text, {}) + " " + sweeps(text, kReassociate); };
  CHECK(changes("dx, dw = vjp(layer_norm(x, w, w), [x, w], d)") == "4 3");
  CHECK(changes("s = softmax(x); t = sum(s*d, axis=1)") == "3 2");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum(x/m*w - d*w/m, axis=1)") == "2 1");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum(w*-(x*m) + m*m*d, axis=1); z = x*d") == "2 1");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum((x/m - d*m)*3, axis=1); z = x*d") == "2 1");
  CHECK(changes("m = sum(x, axis=0)[none, :]; y = sum(x*(m*d), axis=0)") == "2 1");
  // a factor varies along the axis, the rest needs the other result too, or the sum is not of products
  CHECK(changes("m = max(x, axis=0)[none, :]; y = sum(x*m, axis=1)") == "11 11");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum(m*exp(x - m), axis=1)") == "2 2");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum(x - m, axis=1)") == "2 2");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum(square(m + x), axis=1)") == "2 2");
  CHECK(changes("m = max(x, axis=1)[:, none]; y = max(m*x, axis=1)") == "2 2");
  // only this sum says that x and d have the same rows
  CHECK(changes("m = max(x, axis=1)[:, none]; y = sum((x/m - d*m)*3, axis=1)") == "2 2");

  // the differences of elements keep their digits
  const Array x = Array::full({2, 64}, 1e7f, f32), y = Array::full({2, 64}, 1e7f - 1, f32);
  const Formula f = formula("m = max(x, axis=1, keepdims=true); sum(m*x - m*y, axis=1)", {.relax = kReassociate});
  const Array sum = f({x, y});
  CHECK(sum.at<float>({1}) == 64e7f);
}

TEST_CASE("relax: a row with a common divisor has one division", "[relax]") {
  const Graph graph = parse_graph(
      "%0 = input x : f32[4, 8]\n%1 = input s : f32[4, 1]\n%2 = broadcast %1 : f32[4, 8]\n%3 = div %0, %2 : f32[4, 8]\nreturn out = %3");
  const Graph result = compiler::relax(graph, kReassociate);
  CHECK(node_text(result, result.outputs[0]) == "mul(x, broadcast[4,8](reciprocal(s)))");
}

TEST_CASE("relax: approximate turns a number plus tanh into a sigmoid", "[relax]") {
  const std::string text = relaxed("tanh %0; add %3, %5", kApproximate);
  CHECK(text.find("tanh") == std::string::npos);
  CHECK(text.find("sub(slot0, 1)") != std::string::npos);
  CHECK(relaxed("tanh %0; add %1, %5", {.contract = true}) == "add(y, tanh(x))");
  // with its derivative: one sigmoid
  const auto operators = [](const std::string& body, Op op) {
    const Graph result = compiler::relax(graph_of(body), kApproximate);
    int count = 0;
    for (NodeId id = 0; id < result.size(); ++id) count += result[id].op == op;
    return count;
  };
  const std::string both =
      "%5 = tanh %0 : f32[8]\n%6 = add %3, %5 : f32[8]\n%7 = mul %5, %5 : f32[8]\n%8 = constant 1 = 0x3f800000 : f32[8]\n"
      "%9 = sub %8, %7 : f32[8]\n%10 = mul %6, %9 : f32[8]\n";
  CHECK(operators(both + "return out = %10", Op::Div) == 1);
  CHECK(operators(both + "return out = %10, tanh = %5", Op::Div) == 2);  // the tanh itself is needed
}

TEST_CASE("relax: relaxed results are close to the strict ones and equal in every mode", "[relax]") {
  const char* formulas[] = {
      "0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))",
      "t = x*1.1 + 0.3; u = t*1.2 - 0.4; v = u*1.3 + 0.5; w = maximum(v, -v)*0.5; out = (w*3 + 1)/7",
      "sq = 0.3*sqrt(y); d1 = (log(z/y) + 0.065*y)/sq; d2 = d1 - sq; n1 = 0.5*(1 + erf(d1*0.7071)); n2 = 0.5*(1 + erf(d2*0.7071));"
      " disc = y*exp(-0.02*z); call = z*n1 - disc*n2; put = disc*(1 - n2) - z*(1 - n1)",
      "softmax(x*2/3, axis=-1)",
      "vjp(layer_norm(x, y[0], z[0]), [x], z) + vjp(softmax(x, axis=0)*y, [x], z)",
      "((x*x + 1)*x - 2)*(x/y)/(z*4)",
      "fma(x, y, z)*2 - sigmoid(x/3)*rsqrt(y)",
      "a = x*y; b = a*2 + z; out = a*b - b/3",
      "l = sum(tanh(x*0.5)*exp(-y)/z); dx, dy = grad(l, [x, y]); dx + dy",
      "d = vjp(0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x))), [x], y); vjp(d, [x], z) + vjp(d, [x], y)",
      "d = vjp(x*x*x*sigmoid(x)*y + x*y*y, [y], z); vjp(d, [x], y)",
      "-(x - y) - (-(z*3)/5)",
  };
  const std::int64_t rows = 7, columns = 37;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> number(-3, 3), positive(0.5f, 4);
  Array x = Array::empty({rows, columns}, f32), y = Array::empty({rows, columns}, f32), z = Array::empty({rows, columns}, f32);
  for (float& v : x.span<float>()) v = number(random);
  for (float& v : y.span<float>()) v = positive(random);
  for (float& v : z.span<float>()) v = positive(random);
  for (const char* text : formulas) {
    for (const DType dtype : {f32, f64}) {
      for (const Relax& relaxations : {kContract, kReassociate, kApproximate, kAll}) {
        INFO(text << " of " << static_cast<int>(dtype) << ", " << relaxations.contract << relaxations.reassociate
                  << relaxations.approximate);
        const auto run = [&](Mode mode, const Relax& relax, int vector_bytes) {
          const Formula f = formula(text, {.mode = mode, .relax = relax, .threads = 1, .vector_bytes = vector_bytes});
          const Formula widen = formula("cast(x, f64)", {});
          std::vector<NamedArgument> arguments;
          for (const std::string& name : f.inputs()) {
            const Array& a = name == "x" ? x : name == "y" ? y : z;
            arguments.push_back({name, dtype == f64 ? Array(widen({a})) : a});
          }
          const FormulaResults results = f(arguments);
          return std::vector<Array>(results.begin(), results.end());
        };
        const std::vector<Array> strict = run(Mode::generic, {}, 0), first = run(Mode::generic, relaxations, 0);
        REQUIRE(strict.size() == first.size());
        for (const auto& [mode, bytes] : {std::pair{Mode::unfused, 0}, std::pair{Mode::reference, 0}, std::pair{Mode::generic, 16}}) {
          const std::vector<Array> other = run(mode, relaxations, bytes);
          for (std::size_t k = 0; k < first.size(); ++k)
            CHECK(std::memcmp(other[k].data(), first[k].data(), static_cast<std::size_t>(first[k].bytes())) == 0);
        }
        for (std::size_t k = 0; k < first.size(); ++k) {
          double worst = 0;
          for (std::int64_t i = 0; i < rows * columns; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double a = dtype == f32 ? static_cast<double>(first[k].span<const float>()[at]) : first[k].span<const double>()[at];
            const double b = dtype == f32 ? static_cast<double>(strict[k].span<const float>()[at]) : strict[k].span<const double>()[at];
            worst = std::max(worst, std::abs(a - b) / std::max(1.0, std::abs(b)));
          }
          CHECK(worst < (dtype == f32 ? 2e-5 : 1e-13));
        }
      }
    }
  }
}

TEST_CASE("relax: a sum of products with a cotangent, one factor of which is constant", "[relax]") {
  CHECK(relaxed("constant 0.5; mul0 %2, %5; mul0 %2, %0; add %6, %7", kReassociate) == "mul0(g, add(x, 0.5))");
  const Array x = Array::ones({4}, f32);
  const Formula strict = formula("d = grad(sum(gelu(x)), [x])"), relaxed = formula("d = grad(sum(gelu(x)), [x])", {.relax = kAll});
  const Array a = strict({x}), b = relaxed({x});
  CHECK(b.at<float>({0}) == Approx(a.at<float>({0})));
}

TEST_CASE("relax: strict and relaxed functions have different kernels", "[relax]") {
  const Array x = Array::zeros({64}, f32);
  const Formula strict = formula("x*2 + 1"), relaxed = formula("x*2 + 1", {.relax = kContract});
  strict({x}), relaxed({x});
  CHECK(strict.last_graph().find("fma") == std::string::npos);
  CHECK(relaxed.last_graph().find("fma") != std::string::npos);
}
