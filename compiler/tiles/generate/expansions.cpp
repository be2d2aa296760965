// Run by the build (cmake/tiles.cmake): writes the expansions of elementary functions as C++ for compiler/tiles/loops_of_target.inc, one
// function of one element each. Those with a `rare` side are left out: tiles run these operator by operator, and skip that side.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

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

// The function of an operator and type; what it calls comes before it. False where it cannot be written.
class Writer {
 public:
  bool write(Op op, DType dtype) {
    signed char& state = done_[static_cast<int>(op)][dtype == DType::F64];
    if (state == 0) state = body(op, dtype) ? 1 : -1;
    return state > 0;
  }

 private:
  signed char done_[kOpCount][2] = {};

  bool body(Op op, DType dtype) {
    const Graph& g = expansion(op, dtype);
    std::string text;
    for (NodeId id = 0; id <= g.outputs[0]; ++id) {
      const Node node = g[id];
      if (node.op == Op::Rare || !type(node.dtype)) return false;
      std::string value;
      if (node.op == Op::Input) value = fmt::format("x{}", node.bits);
      else if (node.op == Op::Constant) value = constant(node);
      else if (!expression(g, id, value)) return false;
      text += fmt::format("    const {} v{} = {};\n", type(node.dtype), id, value);
    }
    std::string parameters;
    for (int i = 0; i < info(op).arity; ++i) parameters += fmt::format("{}{} x{}", i ? ", " : "", type(dtype), i);
    fmt::print("template <> struct Fused<Op::{}, {}> {{\n  static constexpr bool kKnown = true;\n  static {} apply({}) {{\n{}", name(op),
               type(dtype), type(dtype), parameters, text);
    fmt::print("    return v{};\n  }}\n}};\n", g.outputs[0]);
    return true;
  }

  bool expression(const Graph& g, NodeId id, std::string& out) {
    const Node node = g[id];
    std::string operands;
    const int arity = info(node.op).arity;
    for (int i = 0; i < arity; ++i) operands += fmt::format("{}v{}", i ? ", " : "", g.operand(id, i));
    const DType first = g[g.operand(id, 0)].dtype, last = g[g.operand(id, arity - 1)].dtype;
    if (info(node.op).kind == OpKind::Expanded) {
      if (!write(node.op, node.dtype)) return false;
      out = fmt::format("Fused<Op::{}, {}>::apply({})", name(node.op), type(node.dtype), operands);
    } else if (node.op == Op::Where) {
      out = fmt::format("v{} ? v{} : v{}", g.operand(id, 0), g.operand(id, 1), g.operand(id, 2));
    } else {
      for (int i = arity; i < 3; ++i) operands += fmt::format(", {}{{}}", type(last));
      out = fmt::format("Spelling<Op::{}>::apply<{}, {}, {}>({})", name(node.op), type(last), type(node.dtype), type(first), operands);
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
