// See emit.h.
#include "compiler/cuda/emit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "compiler/cuda/emitter.h"
#include "compiler/rare.h"
#include "ir/build.h"
#include "onepass/error.h"

namespace onepass::compiler::cuda {

using ir::Op;

namespace {
constexpr std::uint32_t kMostWords = 500;  // kernel parameters passed by value; every driver supports 4 KiB of arguments
}

std::string literal(DType dtype, std::uint64_t bits) {
  if (dtype == DType::Bool) return bits & 0xff ? "true" : "false";
  if (is_float(dtype)) {
    const double value =
        dtype == DType::F64 ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (std::isfinite(value)) return fmt::format("{:a}{}", value, dtype == DType::F64 ? "" : "f");
  }
  return fmt::format("constant<{}>(0x{:x}ull)", value_type(dtype), bits);
}

// ---------------------------------------------------------------------------------------------- device functions

std::string DeviceProgram::call(Op op, DType of, const std::string& to, const std::vector<std::string>& operands) {
  std::string arguments;
  for (const std::string& o : operands) arguments += (arguments.empty() ? "" : ", ") + o;
  if (ir::info(op).kind == ir::OpKind::Expanded) {
    expand(op, of);
    return fmt::format("{}_{}({})", ir::info(op).text, name_of(of), arguments);
  }
  if (made_.insert({static_cast<int>(op), -1}).second) functions_ += device_function(op);
  return fmt::format("op_{}{}({})", ir::info(op).text, to.empty() ? "" : "<" + to + ">", arguments);
}

std::string target_type(Op op, DType dtype) {
  const ir::TypeRule rule = ir::info(op).types;
  return rule == ir::TypeRule::Convert || rule == ir::TypeRule::Reinterpret ? std::string(memory_type(dtype)) : std::string();
}

// Writes an expansion: its primitives in order. Values that only a `Rare` needs are in a block that runs if the thread has the condition.
void DeviceProgram::expand(Op op, DType dtype) {
  if (!made_.insert({static_cast<int>(op), static_cast<int>(dtype)}).second) return;
  const ir::Graph& g = ir::expansion(op, dtype);
  const BehindRare behind(g);
  std::string body;
  const auto value = [&](ir::NodeId id) -> std::string {
    const ir::Node n = g[id];
    if (n.op == Op::Input) return std::string(1, static_cast<char>('a' + n.bits));
    if (n.op == Op::Constant) return literal(n.dtype, n.bits);
    return fmt::format("v{}", id);
  };
  const std::function<void(ir::NodeId, int)> write = [&](ir::NodeId id, int depth) {
    const ir::Node n = g[id];
    const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
    if (n.op == Op::Input || n.op == Op::Constant) return;
    if (n.op == Op::Rare) {
      if (behind.first.at(g.operand(id, 0)) != id) return;  // written with the first Rare of this condition
      const std::vector<ir::NodeId> together = behind.together(g, id);
      for (const ir::NodeId other : together)
        body += fmt::format("{}{} v{} = {};\n", indent, value_type(g[other].dtype), other, value(g.operand(other, 2)));
      body += fmt::format("{}if ({}) {{\n", indent, value(g.operand(id, 0)));
      for (ir::NodeId inner = 0; inner < id; ++inner)
        if (behind.rare[inner] == id) write(inner, depth + 1);
      for (const ir::NodeId other : together) body += fmt::format("{}  v{} = {};\n", indent, other, value(g.operand(other, 1)));
      body += indent + "}\n";
      return;
    }
    std::vector<std::string> operands;
    for (const std::int64_t o : g.operands(id)) operands.push_back(value(static_cast<ir::NodeId>(o)));
    const DType of = operands.empty() ? n.dtype : g[g.operand(id, 0)].dtype;
    body += fmt::format("{}const {} v{} = {};\n", indent, value_type(n.dtype), id, call(n.op, of, target_type(n.op, n.dtype), operands));
  };
  for (ir::NodeId id = 0; id < g.size(); ++id)
    if (behind.rare[id] == ir::kNoNode) write(id, 1);
  std::string parameters;
  for (std::size_t i = 0; i < g.inputs.size(); ++i)
    parameters += fmt::format("{}{} {}", i ? ", " : "", value_type(g.inputs[i].dtype), static_cast<char>('a' + i));
  functions_ += fmt::format("DEVICE {} {}_{}({}) {{\n{}  return {};\n}}\n", value_type(g[g.outputs[0]].dtype), ir::info(op).text,
                            name_of(dtype), parameters, body, value(g.outputs[0]));
}

std::string DeviceProgram::text() const { return std::string(device_prelude()) + "\n" + functions_ + kernels_; }

// ---------------------------------------------------------------------------------------------- kernels

DeviceEmitter::DeviceEmitter(DeviceProgram& program, const std::string& name, const Nest& nest, const DeviceSchedule& schedule,
                             const KnownWords* known)
    : program_(program),
      apart_(schedule.form == Form::RowsAndColumns ? with_columns_apart(nest) : Nest()),
      nest_(schedule.form == Form::RowsAndColumns ? apart_ : nest),
      schedule_(schedule),
      known_(known),
      words_(nest),
      needed_(needed_by_sweep(nest_, schedule.kept)),
      kept_(kept_places(nest_, schedule.kept)),
      kernel_{nullptr, 1} {
  const std::uint32_t words = std::max(words_.total, 1u) + schedule.table_words;
  out_ = {name,
          words,
          schedule.threads,
          words > kMostWords,
          schedule.form >= Form::Team || schedule.split,
          schedule.form == Form::RowsAndColumns};
  if (schedule.form == Form::Scan) inner_ = vector_bit();
  else if (schedule.form == Form::Tile) inner_ = vector_bit() | vector_bit() >> 1;
  else if (reduces()) inner_ = nest.reduced_mask();
  if (schedule.form == Form::RowsAndColumns && !schedule.one_block)
    throw UnsupportedError("cuda: rows of more than 4,096 elements cannot be reduced in one pass with their columns. Run on the CPU");
}

DeviceKernel DeviceEmitter::run() {
  if (schedule_.narrow) kernel_.line("typedef int Index;");
  kernel_.line(fmt::format("constexpr int W = {};", schedule_.width));
  if (out_.far) kernel_.line(fmt::format("const Words<{}>& w = *words_;", out_.words));
  switch (schedule_.form) {
    case Form::Map:
    case Form::Columns: chunks(); break;
    case Form::Team: teams(); break;
    case Form::Block: blocks(); break;
    case Form::Scan: scans(); break;
    case Form::Tile: tiles(); break;
    case Form::RowsAndColumns: rows_and_columns(); break;
  }
  program_.kernels_ += fmt::format("\n{}({}, {}, {}) {{\n{}}}\n", out_.far ? "KERNEL_FAR" : "KERNEL", out_.name, out_.words,
                                   schedule_.threads, kernel_.text);
  return out_;
}

std::string DeviceEmitter::word(std::uint32_t at) const {
  return known_ && known_->known[at] ? fmt::format("Index({}ll)", known_->words[at]) : fmt::format("Index(w.at[{}])", at);
}

std::string_view DeviceEmitter::functor(const Statement& s) {
  switch (s.op) {
    case Op::ReduceSum:
    case Op::ScanSum:
    case Op::ContractLanes:
    case Op::ContractRows: return "ReduceSum";
    case Op::ScanProd:
    case Op::ReduceProd: return "ReduceProd";
    case Op::ScanMax:
    case Op::ReduceMax: return "ReduceMax";
    default: return "ReduceMin";
  }
}

std::string DeviceEmitter::product(std::uint32_t first, std::uint32_t last) const {
  std::string out;
  for (std::uint32_t l = first; l < last; ++l) out += (out.empty() ? "" : " * ") + extent(l);
  return out.empty() ? "Index(1)" : out;
}

void DeviceEmitter::block(Scope& parent, const std::string& opening, const std::function<void(Scope&)>& f) {
  Scope inner{&parent, parent.depth + 1};
  f(inner);
  parent.line(opening + " {");
  parent.text += inner.text;
  parent.line("}");
}

DeviceKernel DeviceProgram::add(const std::string& name, const Nest& nest, const DeviceSchedule& schedule, const KnownWords* known) {
  return DeviceEmitter(*this, name, nest, schedule, known).run();
}

}  // namespace onepass::compiler::cuda
