// Programs whose device code is checked: registers, widths of loads and stores, bytes. `large` has extents of training and inference;
// `small` has extents that give the same kernels and are small enough for the emulation.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/reroll.h"
#include "golden.h"

namespace onepass::test {

struct CudaProgram {
  const char* name;
  const char* inputs;  // with letters as extents, as in golden.h
  const char* formula;
  Extents large, small;
  DType dtype = f32;
  bool minimal = false;  // each array of the first input's shape must be accessed once, in 16-byte vectors
};

inline const char* const kBlackScholes =
    "sq = 0.3*sqrt(t); d1 = (log(s/k) + 0.065*t)/sq; d2 = d1 - sq; n1 = 0.5*(1 + erf(d1*0.7071067811865476)); "
    "n2 = 0.5*(1 + erf(d2*0.7071067811865476)); disc = k*exp(-0.02*t); call = s*n1 - disc*n2; put = disc*(1 - n2) - s*(1 - n1)";
inline const char* const kGelu = "y = 0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))";

/// Returns 256 steps of products, sums and maxima, as recorded from a loop of the host language.
inline const char* chain_formula() {
  static const std::string text = [] {
    std::string out;
    for (int k = 0; k < 256; ++k) {
      const std::string x = k == 0 ? "x" : "t" + std::to_string(k - 1), t = "t" + std::to_string(k);
      out += k % 8 == 7 ? t + " = maximum(" + x + ", -" + x + ")*0.5; "
                        : t + " = " + x + "*" + std::to_string(1.05 + 0.0003 * k) + " + " + std::to_string(0.2 - 0.0015 * k) + "; ";
    }
    return out + "y = t255*1";
  }();
  return text.c_str();
}
/// Returns a formula with a separate matrix for each of 32 parts.
inline const char* partitioned_formula() {
  static const std::string text = [] {
    std::string out;
    for (int i = 0; i < 32; ++i) {
      const std::string n = std::to_string(i);
      out += (i ? ", x[:, " : "x[:, ") + n + "] @ transpose(W[" + n + "]) + b[" + n + "]";
    }
    return "y = stack([" + out + "], axis=1)";
  }();
  return text.c_str();
}

inline std::vector<CudaProgram> cuda_programs() {
  const Extents image{{'a', 64}, {'b', 256}, {'h', 64}, {'w', 64}}, little{{'a', 2}, {'b', 3}, {'h', 16}, {'w', 8}};
  const Extents vector{{'n', 1 << 24}}, short_vector{{'n', 4096}};
  const Extents rows{{'n', 4096}, {'m', 1024}}, few_rows{{'n', 24}, {'m', 1024}};
  const Extents steps{{'t', 256}, {'o', 32}, {'b', 128}, {'d', 100}}, few_steps{{'t', 20}, {'o', 8}, {'b', 12}, {'d', 5}};
  const Extents layer{{'n', 128}, {'k', 784}, {'m', 10}}, little_layer{{'n', 6}, {'k', 70}, {'m', 10}};
  const Extents square{{'n', 1024}, {'k', 1024}, {'m', 1024}}, little_square{{'n', 8}, {'k', 300}, {'m', 16}};
  return {
      {"affine", "x=a,b,h,w s=1,b,1,1 t=1,b,1,1", "y = x*s + t", image, little, f32, true},
      {"affine, gradient", "x=a,b,h,w s=1,b,1,1 d=a,b,h,w", "y = x*s; dx, ds = vjp(y, [x, s], d)", image, little, f32, true},
      {"affine, gradients", "x=a,b,h,w s=1,b,1,1 t=1,b,1,1 d=a,b,h,w", "y = x*s + t; dx, ds, dt = vjp(y, [x, s, t], d)", image, little, f32,
       true},
      {"gelu", "x=n", kGelu, vector, short_vector, f32, true},
      {"gelu, gradient", "x=n d=n", "y = 0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x))); dx = vjp(y, [x], d)", vector, short_vector,
       f32, true},
      {"black-scholes", "s=n k=n t=n", kBlackScholes, vector, short_vector, f32, true},
      {"black-scholes, f64", "s=n k=n t=n", kBlackScholes, vector, short_vector, f64, true},
      {"softmax", "x=n,m", "y = softmax(x, axis=-1)", rows, few_rows, f32, true},
      {"softmax, gradient", "y=n,m d=n,m", "dx = y*(d - sum(d*y, axis=-1, keepdims=true))", rows, few_rows, f32, true},
      {"softmax, gradient of its input", "x=n,m d=n,m", "y = softmax(x, axis=-1); dx = vjp(y, [x], d)", rows, few_rows, f32, true},
      {"layer norm", "x=n,m g=m b=m", "y = layer_norm(x, g, b, axis=-1, eps=1e-5)", rows, few_rows, f32, true},
      {"layer norm, gradient", "x=n,m g=m b=m d=n,m", "y = layer_norm(x, g, b, axis=-1, eps=1e-5); dx = vjp(y, [x], d)", rows, few_rows,
       f32, true},
      {"layer norm, gradients", "x=n,m g=m b=m d=n,m", "y = layer_norm(x, g, b, axis=-1, eps=1e-5); dx, dg, db = vjp(y, [x, g, b], d)",
       rows, few_rows, f32, true},
      {"adam", "p=n m=n v=n g=n", "m1 = 0.9*m + 0.1*g; v1 = 0.999*v + 0.001*g*g; p1 = p - 1.53e-3*m1/(sqrt(v1*100.45) + 1e-8)", vector,
       short_vector, f32, true},
      {"column sums", "x=n,m", "s = sum(x, axis=0)", rows, {{'n', 300}, {'m', 128}}},
      {"few columns", "x=n,m", "s = sum(x, axis=0)", {{'n', 1 << 20}, {'m', 16}}, {{'n', 3000}, {'m', 8}}},
      {"one sum", "x=n", "s = sum(x); m = max(x)", vector, {{'n', 100000}}},
      {"one softmax", "x=n", "y = softmax(x, axis=0)", vector, {{'n', 100000}}},
      {"cumsum", "x=n", "y = cumsum(x, axis=0)", vector, {{'n', 30000}}},
      {"cumsum, rows", "x=n,m", "y = cumsum(x, axis=1)", rows, few_rows},
      {"cumsum, columns", "x=n,m", "y = cumsum(x, axis=0)", rows, few_rows},
      {"cumsum, few columns", "x=n,m", "y = cumsum(x, axis=0)", {{'n', 1 << 20}, {'m', 16}}, {{'n', 9000}, {'m', 8}}},
      {"transposed", "x=n,m w=m,n", "y = transpose(x)*2 + w", rows, few_rows},
      {"affine of each image, gradients", "x=a,b,h,w s=a,b,1,1 d=a,b,h,w",
       "y = x*s; dx, ds = vjp(y, [x, s], d); db = sum(d, axis=[2, 3], keepdims=true)", image, little},
      {"chain of 256", "x=n", chain_formula(), {{'n', 1 << 20}}, short_vector, f32, true},
      {"attention", "y=t,o,b", "alpha = softmax(sum(y[0]*y, axis=1), axis=0)", steps, few_steps},
      {"attention, gradient", "y=t,o,b d=t,b", "alpha = softmax(sum(y[0]*y, axis=1), axis=0); dy = vjp(alpha, [y], d)", steps, few_steps},
      {"context", "a=t,b h=d,t,b", "c = sum(a*h, axis=1)", steps, few_steps},
      {"outer product of three",
       "v=n",
       "w = sum(v[:, none, none]*v[none, :, none]*v[none, none, :], axis=[1, 2])",
       {{'n', 500}},
       {{'n', 40}}},
      {"linear", "x=n,k w=m,k b=m", "y = x @ transpose(w) + b", layer, little_layer},
      {"linear, a step", "x=n,k w=m,k b=m l=n",
       "loss = mean(cross_entropy(x @ transpose(w) + b, cast(l*0, i32))); dw, db = grad(loss, [w, b])", layer, little_layer},
      {"partitioned", "x=n,p,k W=p,k,k b=p,k", partitioned_formula(), {{'n', 128}, {'p', 32}, {'k', 32}}, {{'n', 4}, {'p', 32}, {'k', 8}}},
      {"matmul and gelu", "x=n,k w=k,m b=m", "y = gelu_tanh(x @ w + b)", square, little_square},
  };
}

inline std::vector<std::pair<std::string, compiler::Shape>> inputs_of(const CudaProgram& program, const Extents& extents) {
  return inputs_of(Golden{program.name, program.inputs, program.formula, 1}, extents);
}
inline ir::Graph graph_of(const CudaProgram& program, const Extents& extents) {
  const ir::Graph graph = optimised(program.formula, inputs_of(program, extents), program.dtype);
  return ir::prune(compiler::simplify(compiler::reroll(graph).value_or(graph)));
}

/// Program whose kernels read addresses or numbers from tables.
struct ListProgram {
  std::string name;
  ir::Graph graph;
  bool numbers = false;
};
inline std::vector<ListProgram> cuda_list_programs() {
  using Shapes = std::vector<std::pair<std::string, compiler::Shape>>;
  const auto add_list = [](Shapes& inputs, const std::string& letter, int count, const compiler::Shape& shape) {
    std::string names;
    for (int t = 0; t < count; ++t) {
      inputs.emplace_back(letter + std::to_string(t), shape);
      names += (t ? ", " : "") + inputs.back().first;
    }
    return names;
  };
  const auto graph_of = [](const std::string& formula, const Shapes& inputs, DType dtype) {
    const ir::Graph graph = optimised(formula, inputs, dtype);
    return ir::prune(compiler::simplify(compiler::reroll(graph).value_or(graph)));
  };
  std::vector<ListProgram> out;
  for (const auto& [formula, count, shape] : {std::tuple<const char*, int, compiler::Shape>{"y = tanh(stack([L], 0))", 20, {6, 40}},
                                              {"y = tanh(stack([L], 1))", 12, {5, 37}},
                                              {"y = tanh(stack([L], 2))", 9, {4, 16}},
                                              {"y = exp(flip(stack([L], 0)))", 20, {6, 40}},
                                              {"y = pad(stack([L], 0)[3:17], [2, 0, 1], [3, 0, 5]) + 1", 20, {6, 40}},
                                              {"y = softmax(stack([L], 0), axis=-1)", 9, {3, 64}},
                                              {"s = sum(stack([L], 0), axis=0); m = max(stack([L], 0), axis=2)", 30, {4, 33}},
                                              {"y = transpose(stack([L], 0), [0, 2, 1])*2", 9, {40, 33}},
                                              {"y = stack([L], 0)*2", 600, {16}}}) {  // more kernel parameters than fit in a launch
    Shapes inputs;
    const std::string names = add_list(inputs, "x", count, shape);
    std::string text = formula;
    for (std::size_t at; (at = text.find("[L]")) != std::string::npos;) text.replace(at, 3, "[" + names + "]");
    for (const DType dtype : {f32, f16}) out.push_back({formula, graph_of(text, inputs, dtype)});
  }
  Shapes inputs;
  add_list(inputs, "x", 12, {5, 8}), add_list(inputs, "g", 12, {5, 8});
  std::string step, rows, products, all, slopes;
  for (int t = 0; t < 12; ++t) {
    const std::string n = std::to_string(t);
    step += (t ? "; m" : "m") + n + " = g" + n + "*g" + n + "; p" + n + " = x" + n + " - g" + n + "/sqrt(m" + n + " + 1)";
    rows += (t ? ", x*" : "x*") + std::to_string(3 * t - 7);
    products += (t ? ", sum(x0*x" : "sum(x0*x") + n + ", axis=0)";
    all += (t ? ", x" : "x") + n;
    slopes += (t ? ", d" : "d") + n;
  }
  out.push_back({"lists of results", graph_of(step, inputs, f32)});
  Shapes xs(inputs.begin(), inputs.begin() + 12);
  const std::string loss = "z = stack([" + products + "], 0); " + slopes + " = grad(sum(z*z), [" + all + "])";
  out.push_back({"a list's gradients, one of them a sum over the list", graph_of(loss, xs, f32)});
  for (const DType dtype : {f32, f64, f16, i64, i8}) {
    out.push_back({"numbers", graph_of("y = stack([" + rows + "], 0)", {{"x", {70}}}, dtype), true});
    out.push_back({"numbers along the last axis", graph_of("y = stack([" + rows + "], 1)", {{"x", {70}}}, dtype), true});
  }
  return out;
}

}  // namespace onepass::test
