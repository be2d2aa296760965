// Run by the build (cmake/tiles.cmake). Writes the expansions of elementary functions as C++ for compiler/tiles/loops_of_target.inc, one
// function of one element each. Expansions with an unlikely side are only for single f64 numbers and branch around that side. Tiles run
// these expansions operator by operator and skip the side.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compiler/rare.h"
#include "ir/build.h"
#include "ir/graph.h"

using namespace onepass;
using namespace onepass::ir;

namespace {

constexpr const char* kNames[] = {
#define STRUCTURAL(id, ...) #id,
#define PRIMITIVE(id, ...) #id,
#define EXPANDED(id, ...) #id,
#include "ir/ops.def"
};

const char* name(Op op) { return kNames[static_cast<int>(op)]; }

const char* type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "bool";
    case DType::I32: return "Integer<std::int32_t>";
    case DType::U32: return "Integer<std::uint32_t>";
    case DType::I64: return "Integer<std::int64_t>";
    case DType::U64: return "Integer<std::uint64_t>";
    case DType::F32: return "float";
    case DType::F64: return "double";
    default: return nullptr;
  }
}

std::string constant(const Node& node) {
  switch (node.dtype) {
    case DType::Bool: return node.bits ? "true" : "false";
    case DType::F32: return fmt::format("std::bit_cast<float>(std::uint32_t{{{:#x}}})", static_cast<std::uint32_t>(node.bits));
    case DType::F64: return fmt::format("std::bit_cast<double>(std::uint64_t{{{:#x}}})", node.bits);
    default: return fmt::format("{0}(static_cast<{0}::Value>({1:#x}))", type(node.dtype), node.bits);
  }
}

// Writes the functions of operators and types, each after the functions that it calls. write() returns Form::None if it cannot write a
// function.
class Writer {
 public:
  enum class Form : signed char { Unwritten, None, Fused, Branching };
  Form write(Op op, DType dtype) {
    Form& form = forms_[static_cast<int>(op)][dtype == DType::F64];
    if (form == Form::Unwritten) form = body(op, dtype);
    return form;
  }

 private:
  Form forms_[kOpCount][2] = {};

  // State of a function that is being written.
  struct Body {
    const Graph& g;
    compiler::BehindRare behind{g};
    std::string text = {};
    bool branches = false, calls_branching = false;
    std::vector<bool> written = std::vector<bool>(g.size(), false);
    std::vector<bool> declared = written;  // declared before the branch that computes it
  };

  Form body(Op op, DType dtype) {
    Body b{expansion(op, dtype)};
    const NodeId result = b.g.outputs[0];
    for (NodeId id = 0; id <= result; ++id)
      if (b.behind.rare[id] == kNoNode && !node(b, id)) return Form::None;
    const bool branching = b.branches || b.calls_branching;
    if (branching && dtype != DType::F64) return Form::None;
    std::string parameters;
    for (int i = 0; i < info(op).arity; ++i) parameters += fmt::format("{}{} x{}", i ? ", " : "", type(dtype), i);
    fmt::print("template <> struct {}<Op::{}, {}> {{\n  static constexpr bool kKnown = true;\n  static {} apply({}) {{\n{}",
               branching ? "Branching" : "Fused", name(op), type(dtype), type(dtype), parameters, b.text);
    fmt::print("    return v{};\n  }}\n}};\n", result);
    if (!branching && dtype == DType::F64 && info(op).arity == 2) in_parts(op, b.g);
    return branching ? Form::Branching : Form::Fused;
  }

  // If many values depend only on the first operand, writes two functions: one for these values, one for the other values.
  void in_parts(Op op, const Graph& g) {
    constexpr int kMuch = 20;  // primitives
    enum : std::uint8_t { kNothing, kFirst, kSecond, kBoth };
    std::vector<std::uint8_t> of(g.size(), kNothing);
    int primitives = 0;
    for (NodeId id = 0; id <= g.outputs[0]; ++id) {
      if (g[id].op == Op::Input) of[id] = g[id].bits == 0 ? kFirst : kSecond;
      for (std::size_t i = 0; i < g.operands(id).size(); ++i) of[id] |= of[g.operand(id, static_cast<int>(i))];
      primitives += of[id] == kFirst;
    }
    if (primitives < kMuch) return;
    std::vector<bool> in_first(g.size(), false), in_rest(g.size(), false), is_kept(g.size(), false);
    in_rest[g.outputs[0]] = true;
    for (NodeId id = g.outputs[0] + 1; id-- > 0;)
      for (std::size_t i = 0; i < g.operands(id).size(); ++i) {
        const NodeId o = g.operand(id, static_cast<int>(i));
        if (in_first[id]) in_first[o] = true;
        if (!in_rest[id]) continue;
        if (of[o] == kFirst) in_first[o] = is_kept[o] = true;
        else in_rest[o] = true;
      }
    Body first{g}, rest{g};
    std::uint32_t kept = 0;
    for (NodeId id = 0; id <= g.outputs[0]; ++id) {
      if (in_first[id] && !node(first, id)) return;
      if (is_kept[id]) {
        first.text += fmt::format("    kept[{}] = compiler::kept(v{});\n", kept, id);
        rest.text += fmt::format("    const {0} v{1} = kept_as<{0}>(kept[{2}]);\n", type(g[id].dtype), id, kept++);
      }
      if (in_rest[id] && !node(rest, id)) return;
    }
    fmt::print("template <> struct InParts<Op::{}, double> {{\n  static constexpr std::uint32_t kKept = {};\n", name(op), kept);
    fmt::print("  static void begin(double x0, Scalar* kept) {{\n{}  }}\n", first.text);
    fmt::print("  static double rest(const Scalar* kept, double x1) {{\n{}    return v{};\n  }}\n}};\n", rest.text, g.outputs[0]);
  }

  bool node(Body& b, NodeId id) {
    if (b.written[id]) return true;
    b.written[id] = true;
    const Node n = b.g[id];
    if (!type(n.dtype)) return false;
    if (n.op == Op::Rare && b.behind.first.at(b.g.operand(id, 0)) == id && !slow_side(b, id)) return false;
    std::string value;
    if (n.op == Op::Input) value = fmt::format("x{}", n.bits);
    else if (n.op == Op::Constant) value = constant(n);
    else if (!expression(b, id, value)) return false;
    b.text +=
        b.declared[id] ? fmt::format("    v{} = {};\n", id, value) : fmt::format("    const {} v{} = {};\n", type(n.dtype), id, value);
    return true;
  }

  // Writes the values that only the `Rare`s of one condition need. Selections read some of them.
  bool slow_side(Body& b, NodeId rare) {
    b.branches = true;
    const NodeId condition = b.g.operand(rare, 0);
    for (NodeId id = 0; id < b.g.size(); ++id) {
      if (b.g[id].op != Op::Rare || b.g.operand(id, 0) != condition) continue;
      const NodeId slow = b.g.operand(id, 1);
      if (b.behind.rare[slow] != rare || b.declared[slow]) continue;
      if (!type(b.g[slow].dtype)) return false;
      b.declared[slow] = true;
      b.text += fmt::format("    {} v{}{{}};\n", type(b.g[slow].dtype), slow);
    }
    b.text += fmt::format("    if (v{}) [[unlikely]] {{\n", condition);
    for (NodeId id = 0; id < b.g.outputs[0]; ++id)
      if (b.behind.rare[id] == rare && !node(b, id)) return false;
    b.text += "    }\n";
    return true;
  }

  bool expression(Body& b, NodeId id, std::string& out) {
    const Graph& g = b.g;
    const Node n = g[id];
    std::string operands;
    const int arity = info(n.op).arity;
    for (int i = 0; i < arity; ++i) operands += fmt::format("{}v{}", i ? ", " : "", g.operand(id, i));
    const DType first = g[g.operand(id, 0)].dtype, last = g[g.operand(id, arity - 1)].dtype;
    if (info(n.op).kind == OpKind::Expanded) {
      const Form form = write(n.op, n.dtype);
      if (form == Form::None) return false;
      b.calls_branching |= form == Form::Branching;
      out = fmt::format("{}<Op::{}, {}>::apply({})", form == Form::Branching ? "Branching" : "Fused", name(n.op), type(n.dtype), operands);
    } else if (n.op == Op::Where || n.op == Op::Rare) {
      out = fmt::format("v{} ? v{} : v{}", g.operand(id, 0), g.operand(id, 1), g.operand(id, 2));
    } else {
      for (int i = arity; i < 3; ++i) operands += fmt::format(", {}{{}}", type(last));
      out = fmt::format("Spelling<Op::{}>::apply<{}, {}, {}>({})", name(n.op), type(last), type(n.dtype), type(first), operands);
    }
    return true;
  }
};

}  // namespace

int main() {
  Writer writer;
  for (int op = 0; op < kOpCount; ++op)
    if (info(static_cast<Op>(op)).kind == OpKind::Expanded)
      for (const DType dtype : {DType::F32, DType::F64}) static_cast<void>(writer.write(static_cast<Op>(op), dtype));
  return std::fflush(stdout) == 0 ? 0 : 1;
}
