// Reductions over a few elements: unrolled operators, one kernel if they are reduced again, equal bits in every mode.
#include "compiler/unroll.h"

#include <onepass/onepass.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "every_mode.h"
#include "how_long.h"
#include "ir/graph.h"
#include "node_text.h"

namespace op = onepass;
using namespace onepass::test;
using op::Array;
using op::f16, op::f32, op::f64, op::i32;

namespace {

// Unrolls a graph of x and returns its result. x is f32[4, n], or [n, 4] if its first axis is reduced.
std::string unrolled(const std::string& body, const std::string& shape) {
  using namespace onepass::ir;
  const Graph graph = prune(parse_graph("%0 = input x : f32" + shape + "\n" + body));
  const Graph result = prune(onepass::compiler::unroll(graph).value_or(graph));
  verify(result, "unroll");
  return node_text(result, result.outputs[0]);
}
bool stays(const std::string& body, const std::string& shape) { return unrolled(body, shape).find("reduce_") != std::string::npos; }

}  // namespace

TEST_CASE("unroll: small reductions become operators, in the order of their sum", "[unroll]") {
  CHECK(!stays("%1 = reduce_sum %0 {1} : f32[4]\nreturn out = %1", "[4, 3]"));
  CHECK(!stays("%1 = reduce_max %0 {0} : f32[4]\nreturn out = %1", "[8, 4]"));
  CHECK(!stays("%1 = reduce_max %0 {1, 3} : f32[4, 5]\nreturn out = %1", "[4, 2, 5, 2]"));
  CHECK(!stays("%1 = reduce_sum %0 {0, 2} : f32[4, 5]\nreturn out = %1", "[2, 4, 3, 5]"));
  CHECK(stays("%1 = reduce_sum %0 {1, 3} : f32[4, 5]\nreturn out = %1", "[4, 3, 5, 3]"));  // many elements, padding included
  CHECK(stays("%1 = reduce_sum %0 {1} : f32[4]\nreturn out = %1", "[4, 9]"));              // many elements
  const std::string pairs =
      "%1 = reshape %0 : f32[40, 1, 9]\n%2 = broadcast %1 : f32[40, 40, 9]\n%3 = reshape %0 : f32[1, 40, 9]\n"
      "%4 = broadcast %3 : f32[40, 40, 9]\n%5 = sub %2, %4 : f32[40, 40, 9]\n";
  CHECK(!stays(pairs + "%6 = reduce_sum %5 {2} : f32[40, 40]\nreturn out = %6", "[40, 9]"));  // all inputs are read repeatedly
  CHECK(stays("%1 = reduce_sum %0 {0} : f32[4]\nreturn out = %1, y = %0", "[3, 4]"));         // x is also needed as a whole
  CHECK(stays("%1 = reduce_sum %0 {0} : f32[4]\n%2 = reduce_sum %0 {1} : f32[3]\nreturn out = %1, y = %2", "[3, 4]"));
  CHECK(stays("%1 = reduce_sum %0 {0} : f32[4]\n%2 = reshape %1 : f32[1, 4]\n%3 = broadcast %2 : f32[3, 4]\nreturn out = %1, y = %3",
              "[3, 4]"));
  std::string dear = "%1 = exp %0 : f32[8, 4]\n";  // operators that cost more than a memory round trip
  dear += "%2 = exp %1 : f32[8, 4]\n%3 = reduce_sum %2 {0} : f32[4]\nreturn out = %3";
  CHECK(stays(dear, "[8, 4]"));
}

TEST_CASE("unroll: sums of short rows, also if the rows are used as a whole", "[unroll]") {
  CHECK(!stays("%1 = reduce_sum %0 {1} : f32[4]\nreturn out = %1, y = %0", "[4, 3]"));
  CHECK(!stays("%1 = reduce_sum %0 {1} : f32[4]\n%2 = reshape %1 : f32[4, 1]\n%3 = broadcast %2 : f32[4, 3]\nreturn out = %1, y = %3",
               "[4, 3]"));
  std::string costly = "%1 = exp %0 : f32[4, 8]\n";  // more operators than one kernel can have
  for (int i = 1; i < 4; ++i) costly += fmt::format("%{} = exp %{} : f32[4, 8]\n", i + 1, i);
  CHECK(stays(costly + "%5 = reduce_sum %4 {1} : f32[4]\nreturn out = %5, y = %4", "[4, 8]"));
  for (const std::int64_t n : {2, 3, 4, 5, 6, 7, 8})
    for (const op::DType type : {f32, f64, f16}) {
      if (type != f32 && n % 3 != 0) continue;
      const auto form = static_cast<std::size_t>(n + (type == f64 ? 1 : type == f16 ? 2 : 0)) % 3;
      std::size_t checks = 0;
      const NamedArrays inputs{{"x", random_array({131, n}, type)},      {"w", random_array({n}, type, 2)},
                               {"c", random_array({131, 1}, type, 3)},   {"m", random_array({n, 6}, type, 4)},
                               {"z", random_array({9, 11, n}, type, 5)}, {"h", random_array({131, 6}, type, 6)},
                               {"k", random_array({6, n}, type, 7)}};
      for (const char* const formula : {"softmax(x)", "x/sqrt(sum(x*x, -1, keepdims=true))", "d = x - mean(x, -1, keepdims=true); d*w + c",
                                        "log_softmax(x*w, -1)", "x - max(x, -1, keepdims=true)*c", "z*prod(z + w, -1, keepdims=true)"}) {
        INFO(formula << " of " << n);
        if (!is_checked(form, ++checks, 3)) continue;
        CHECK(kernels(formula, inputs) == 1);
        same_everywhere(formula, inputs);
      }
      // rows that a product or a scan computes: stored, and then one kernel for all rows; a product of up to 40 elements is written out
      for (const char* const formula : {"softmax(h @ k + w)", "log_softmax(h @ k)*c", "softmax(cumsum(x, 0)*2)"}) {
        if (type != f32) break;
        INFO(formula << " of " << n);
        if (!is_checked(form, ++checks, 3)) continue;
        CHECK(kernels(formula, inputs) == (std::string_view(formula).find('@') != std::string_view::npos && 6 * n <= 40 ? 1 : 2));
        same_everywhere(formula, inputs);
      }
      for (const char* const formula :
           {"l = sum(log_softmax(h @ k + w)*x); a, b, d = grad(l, [h, k, w])", "softmax(sort(x, 0))", "p = softmax(x); y = sum(p, 0)",
            "sum(softmax(x)**2)", "softmax(x) @ m", "cumsum(softmax(x), 0)", "transpose(softmax(x))*2",
            "s = sum(sin(softmax(x))); g = grad(s, [x])", "s = sum(sin(z/sqrt(sum(z*z, -1, keepdims=true)))); g = grad(s, [z])",
            "argmax(x, -1) + argmin(x, -1)", "d = z[:, none] - z; sum(d/(sum(d*d, -1, keepdims=true) + 1), 2)"}) {
        INFO(formula << " of " << n);
        if (is_checked(form, ++checks, 3)) same_everywhere(formula, inputs);
      }
    }
  // the sums of rows that cannot be in one kernel are counted apart, so that a repeated step is written out, too
  std::string steps = "y0 = x";
  for (int k = 0; k < 12; ++k) steps += fmt::format("; p{0} = softmax(y{0}); y{1} = x*sum(p{0}, 0)", k, k + 1);
  const NamedArrays rows{{"x", random_array({131, 5})}};
  const op::Formula repeated = op::formula(steps + "; y12", {.mode = op::Mode::generic});
  run_formula(repeated, rows);
  CHECK(repeated.explain().find("inner-axis reduction") == std::string::npos);
  same_everywhere(steps + "; y12", rows);
  // a value of the rows that a sum over the other axis reads is stored once; the sum shares no loop over all elements
  CHECK(kernels("p = softmax(x); y = sum(p, 0); z = p*2", {{"x", random_array({131, 3})}}) == 3);
}

TEST_CASE("unroll: equal bits for every operator, type, length and axis", "[unroll]") {
  for (const std::int64_t n : {2, 3, 4, 5, 6, 7, 8})
    for (const op::DType type : {f32, f64, f16, i32, op::boolean, op::DType::U8}) {
      const Array rows = random_array({37, n}, type), columns = random_array({n, 37}, type), middle = random_array({5, n, 9}, type);
      for (const std::string reduce : {"sum", "prod", "max", "min"}) {
        if (n != 3 && n != 8 && (type != f32 || reduce != "sum")) continue;
        same_everywhere(reduce + "(x, -1)", {{"x", rows}});
        same_everywhere(reduce + "(x, 0)", {{"x", columns}});
        same_everywhere(reduce + "(x, 1)", {{"x", middle}});
      }
    }
  const std::vector<std::vector<std::int64_t>> shapes = {{7, 2, 9, 2}, {5, 2, 6, 3}, {4, 1, 6, 5}, {3, 4, 5, 2}, {2, 3, 2, 70}};
  for (const std::vector<std::int64_t>& shape : shapes)  // several axes, some of whose runs are padded
    for (std::size_t k = 0; k < 4; ++k) {
      const Array x = random_array(shape, std::array{f32, f64, f16, i32}[k]);
      std::size_t checks = 0;
      for (const std::string reduce : {"sum", "prod", "max", "min"})
        for (const std::string axes : {"[1, 3]", "[0, 2]", "[1, 2]", "[0, 1]", "[2, 3]"})
          if (is_checked(k, ++checks, 4)) same_everywhere(reduce + "(x, " + axes + ")", {{"x", x}});
    }
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Array specials = Array::from({-0.0f, -0.0f, -0.0f, inf, -inf, 1.0f, nan, 2.0f, 3.0f, 0.0f, -0.0f, -0.0f}, {4, 3});
  for (const char* const reduce : {"sum", "prod", "max", "min"}) {
    same_everywhere("y = " + std::string(reduce) + "(x, 1); where(isnan(y), 7, y)", {{"x", specials}});
    same_everywhere("y = " + std::string(reduce) + "(transpose(x), 0); where(isnan(y), 7, y)", {{"x", specials}});
  }
}

TEST_CASE("unroll: a reduction of a small reduction is one kernel without intermediate arrays", "[unroll]") {
  const Array a = random_array({41, 3}), b = random_array({150, 3}, f32, 2), w = random_array({3}, f32, 3);
  const NamedArrays inputs{{"a", a}, {"b", b}, {"w", w}};
  for (const char* const formula :
       {"min(sum((a[:, none, :] - b[none, :, :])**2, -1), 1)", "min(sum((a[:, none, :] - b[none, :, :])**2, -1), 0)",
        "sum(exp(-sum(w*(a[:, none, :] - b[none, :, :])**2, -1)), 1)", "max(norm(a[:, none, :] - b, axis=-1), 1)",
        "min(max(abs(a[:, none, :] - b), -1), 1)", "sum(prod(a[:, none, :] + b*2.0, -1))"}) {
    INFO(formula);
    CHECK(kernels(formula, inputs) == 1);
    same_everywhere(formula, inputs);
  }
  // more dimensions: both sets of points are materialized once in transposed form, and no array of all pairs
  const Array c = random_array({41, 16}), d = random_array({150, 16}, f32, 2), v = random_array({16}, f32, 3);
  const NamedArrays many{{"a", c}, {"b", d}, {"w", v}};
  for (const char* const formula :
       {"sum(exp(-sum((a[:, none, :] - b[none, :, :])**2, -1)), 1)", "argmin(sum((a[:, none, :] - b[none, :, :])**2, -1), 1)",
        "sum(exp(-sum(w*(a[:, none, :] - b[none, :, :])**2, -1)), 0)", "max(sum(a[:, none, 3:15]*b[none, :, 3:15], -1), 1)",
        "min(max(abs(a[:, none, :] - 2*b), -1), 1)", "sum(1/(1 + sum((b[:, none, :] - b[none, :, :])**2, -1)), 1)"}) {
    INFO(formula);
    CHECK(kernels(formula, many) <= 3);
    same_everywhere(formula, many);
  }
  same_everywhere("sum(a[:, none, :]*b[none, :, :], -1)", {{"a", random_array({40, 31}, f16)}, {"b", random_array({33, 31}, f64)}});
  // four operands, one of them halves, in any layout
  same_everywhere("min(sum((a[::-1, none, :] - transpose(b))**2, -1), 1)",
                  {{"a", random_array({20, 4}, f16)}, {"b", random_array({4, 70}, f64)}});
  same_everywhere("x - min(sum(abs(x), -1))", {{"x", random_array({9, 2})}});
  same_everywhere("sum(uniform(7, [50, 4]), -1)*x[0]", {{"x", w}});
}

TEST_CASE("unroll: reductions of windows, also if the windows are used as a whole", "[unroll]") {
  const std::string windows = "%1 = window %0 {1, 1, 1} : f32[4, 3, 8]\n%2 = reduce_max %1 {1} : f32[4, 8]\n";
  const std::string as_a_whole =
      "%3 = reshape %2 : f32[4, 1, 8]\n%4 = broadcast %3 : f32[4, 3, 8]\n%5 = equal %1, %4 : bool[4, 3, 8]\nreturn out = %5";
  CHECK(!stays(windows + as_a_whole, "[4, 10]"));
  same_everywhere("d = grad(sum(sin(max(sliding_window(x, 3, 0), -1))), [x]); d", {{"x", random_array({33, 70})}});
  same_everywhere("d = grad(sum(sin(max(sliding_window(x, 5, 1), -1))), [x]); d", {{"x", random_array({9, 70})}});
}

TEST_CASE("unroll: sums of vectors between all pairs store no array of pairs", "[unroll]") {
  const Array a = random_array({130, 3}), b = random_array({170, 3}, f32, 2);
  for (const op::DType type : {f32, f16}) {
    const NamedArrays inputs{{"a", random_array({130, 3}, type)}, {"b", random_array({170, 3}, type, 2)}};
    for (const std::string text :
         {"d = a[:, none, :] - b[none, :, :]; sum(d/(sum(d*d, -1, keepdims=true) + 0.1), 1)",
          "d = a[:, none, :] - b[none, :, :]; sum(d/sqrt(sum(d*d, -1, keepdims=true) + 0.1), 0)",
          "d = a[:, none, :] - b[none, :, :]; max(d*sum(d, -1, keepdims=true), 0)",
          "y = sum(1/sqrt(sum((a[:, none, :] - a[none, :, :])**2, -1) + 0.01)); g = vjp(y, [a], 1); g",
          "y = sum(exp(-sum((a[:, none, :] - b[none, :, :])**2, -1)), 1); g, h = vjp(y, [a, b], y); sum(g) + sum(h)"}) {
      INFO(text);
      same_everywhere(text, inputs);
      if (type != f32) continue;
      const op::Formula f = op::formula(text, {.mode = op::Mode::generic});
      run_formula(f, inputs);
      CHECK(f.stats().bytes_allocated < 10 * 4 * (a.size() + b.size()));  // the pairs of one dimension alone take 88,400
    }
  }
}
