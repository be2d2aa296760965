// The golden functions: small programs that together have every kind of kernel. They are formulas with letters as extents, so that a test
// can draw a thousand shapes and check that all of them are planned alike.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/formula.h"
#include "compiler/fuse.h"
#include "compiler/simplify.h"
#include "ir/graph.h"

namespace onepass::test {

struct Golden {
  const char* name;
  const char* inputs;  // `x=n,m w=m`: extents are letters, or 1
  const char* formula;
  int kernels;            // number of kernels if all extents are at least `many`
  std::int64_t many = 2;  // lower bound of extents: slices of shorter axes may have 1 or 0 elements
};

inline const Golden kGolden[] = {
    {"affine", "x=a,b,h,w s=a,b,1,1 t=a,b,1,1", "x*s + t", 1},
    {"affine, reshaped inside", "x=a,b,h,w s=a,b t=h,w", "x*reshape(s, [x.shape[0], x.shape[1], 1, 1]) + t", 1},
    {"affine of rows", "x=n,m s=m t=m", "x*s + t", 1},
    {"gelu", "x=n,m", "0.5*x*(1 + erf(x/sqrt(2)))", 1},
    {"softmax", "x=n,m", "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", 1},
    {"layer norm", "x=n,m g=m b=m",
     "c = x - sum(x, axis=-1, keepdims=true)/x.shape[1]; v = sum(c*c, axis=-1, keepdims=true)/x.shape[1]; y = c*(1/sqrt(v + 1e-5))*g + b",
     1},
    {"column mean", "x=n,m", "sum(x, axis=0)/x.shape[0]", 1},
    {"centred columns", "x=n,m", "x - sum(x, axis=0, keepdims=true)/x.shape[0]", 1},
    {"transposed add", "x=n,m y=m,n", "transpose(x) + y", 1},
    {"stencil", "x=n", "x[2:] - 2*x[1:-1] + x[:-2]", 1, 5},
    {"stencil in two dimensions", "x=n,m", "x[1:-1, 1:-1]*4 - x[2:, 1:-1] - x[:-2, 1:-1] - x[1:-1, 2:] - x[1:-1, :-2]", 1, 5},
    {"gradient of affine", "x=a,b,h,w s=a,b,1,1 t=a,b,1,1 d=a,b,h,w", "y = x*s + t; dx, ds, dt = vjp(y, [x, s, t], d)", 1},
    {"gradient of affine of rows", "x=n,m s=m t=m d=n,m", "y = x*s + t; dx, ds, dt = vjp(y, [x, s, t], d)", 1},
    {"gradient of softmax", "x=n,m d=n,m",
     "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true); dx = vjp(p, [x], d)", 1},
    {"sum of all", "x=n,m", "sum(x*x)", 1},
    {"loss and its gradient", "x=n,m w=m y=n", "p = sum(x*w, axis=1); loss = sum((p - y)**2); dw = grad(loss, [w])", 1},
    {"outer product", "x=n y=m", "x[:, none]*y", 1},
    {"two programs", "x=n y=m", "a = x*2; b = y + 1", 2},  // one domain only if n equals m
    {"sums of two arrays", "x=n,m y=k,l", "a = sum(x, axis=1); b = max(y, axis=1)", 2},
    {"row sums along columns", "x=n,k y=m,n", "sum(x, axis=1) + y", 2},
    {"flattened", "x=n,m", "reshape(x, [size(x)])*2", 1},
};

using Extents = std::map<char, std::int64_t>;

inline std::vector<std::pair<std::string, compiler::Shape>> inputs_of(const Golden& golden, const Extents& extents) {
  std::vector<std::pair<std::string, compiler::Shape>> out;
  std::stringstream inputs(golden.inputs);
  for (std::string input; inputs >> input;) {
    const std::size_t equals = input.find('=');
    compiler::Shape shape;
    std::stringstream axes(input.substr(equals + 1));
    for (std::string axis; std::getline(axes, axis, ',');) shape.push_back(axis == "1" ? 1 : extents.at(axis[0]));
    out.emplace_back(input.substr(0, equals), std::move(shape));
  }
  return out;
}

inline std::string letters_of(const Golden& golden) {
  std::string out;
  for (const char* c = golden.inputs; *c; ++c)
    if (*c >= 'a' && *c <= 'z' && c > golden.inputs && (c[-1] == '=' || c[-1] == ',') && out.find(*c) == std::string::npos) out += *c;
  return out;
}

/// Returns a formula's graph after the runtime's simplifications.
inline ir::Graph optimised(std::string_view formula, const std::vector<std::pair<std::string, compiler::Shape>>& inputs,
                           DType dtype = f32) {
  const language::Program program = language::parse(formula, "golden");
  std::vector<compiler::FormulaInput> types;
  for (const std::string& name : compiler::signature_of(program).inputs)
    for (const auto& [given, shape] : inputs)
      if (given == name) types.push_back({dtype, shape});
  compiler::Recorder recorder;
  compiler::record_formula(recorder, program, types);
  return ir::prune(compiler::simplify(ir::prune(recorder.graph)));
}
inline ir::Graph graph_of(const Golden& golden, const Extents& extents) { return optimised(golden.formula, inputs_of(golden, extents)); }

/// Returns a partition as text without extents. The texts of two shapes are equal if and only if they are grouped alike.
inline std::string form_of(const ir::Graph& graph, const compiler::Partition& partition) {
  std::ostringstream out;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {  // the program itself: shapes with other nodes are not comparable
    out << ir::info(graph[id].op).text;
    for (const std::int64_t o : graph.operands(id)) out << " %" << o;
    out << (partition.boundary[id] == compiler::Boundary::Inlined ? "\n" : ": ");
    if (partition.boundary[id] != compiler::Boundary::Inlined) out << compiler::text_of(partition.boundary[id]) << '\n';
  }
  for (const compiler::Group& group : partition.groups) {
    out << "group of " << group.domain.size() << " axes, reduced " << group.reduced << ':';
    for (std::size_t r = 0; r < group.roots.size(); ++r) {
      out << " %" << group.roots[r];
      for (const compiler::DomainAxes& axis : group.axes[r]) out << ' ' << int{axis.first} << '+' << int{axis.count};
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace onepass::test
