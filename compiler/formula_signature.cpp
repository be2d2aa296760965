// The inputs and outputs of a formula, known before any call: see formula.h.
#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "compiler/functions.h"

namespace onepass::compiler {

using language::Kind;
using language::Program;
using language::Scope;
using language::Statement;
using language::Variable;

namespace {

void check_operators(const Program& program) {
  std::vector<bool> known(program.names.size(), false);
  for (const language::Node& node : program.nodes) {
    if (node.kind != Kind::Call || node.d != language::kAbsent || known[node.c]) continue;
    const std::string_view name = program.name(node.c);
    known[node.c] = is_operator(name);
    if (known[node.c]) continue;
    std::vector<std::string_view> candidates(operator_names().begin(), operator_names().end());
    for (const language::Function& function : program.functions) {
      const std::string_view other = program.name(function.name);
      if (other == name)
        throw language::error_at(program, node.offset,
                                 fmt::format("`{}` is defined below, at {}:{}; a function must be defined above its calls", name,
                                             program.file_name, language::position(program, function.offset)));
      if (function.offset < node.offset) candidates.push_back(other);
    }
    const std::string near = language::nearest(name, candidates);
    throw language::error_at(
        program, node.offset,
        fmt::format("there is no operator or function `{}`{}", name, near.empty() ? "" : fmt::format(": did you mean `{}`?", near)));
  }
}

}  // namespace

FormulaSignature signature_of(const Program& program) {
  check_operators(program);
  FormulaSignature signature;
  std::vector<std::uint32_t> offsets;
  const auto output = [&](std::string name, std::uint32_t offset) {
    signature.outputs.push_back(std::move(name));
    offsets.push_back(offset);
  };
  const bool is_function = program.top.statements.empty();
  const Scope& scope = is_function ? program.functions.back().body : program.top;
  const Statement& last = scope.statements.back();
  if (is_function) {
    for (const language::Parameter& parameter : program.functions.back().parameters)
      signature.inputs.emplace_back(program.name(scope, parameter.variable));
  } else {
    for (const Variable& variable : scope.variables) {
      if (variable.role == Variable::Role::Input) signature.inputs.emplace_back(program.name(variable.name));
      if (variable.role == Variable::Role::Assigned && !variable.used) output(std::string(program.name(variable.name)), variable.offset);
    }
  }
  if (last.kind == Statement::Kind::Expression) output("out", program.nodes[program.values_of(last)[0]].offset);
  if (last.kind == Statement::Kind::Return) {
    const std::span<const language::NodeId> values = program.values_of(last);
    const auto is_name = [&](language::NodeId id) { return program.nodes[id].kind == Kind::Name; };
    const std::ptrdiff_t unnamed = static_cast<std::ptrdiff_t>(values.size()) - std::count_if(values.begin(), values.end(), is_name);
    std::size_t counted = 0;
    for (const language::NodeId id : values) {
      const language::Node& node = program.nodes[id];
      if (node.kind == Kind::Name) output(std::string(program.name(node.a)), node.offset);
      else output(unnamed == 1 ? "out" : fmt::format("out{}", counted++), node.offset);
    }
  }
  std::vector<std::size_t> order(signature.outputs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return signature.outputs[a] < signature.outputs[b]; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (signature.outputs[order[i]] == signature.outputs[order[i - 1]])
      throw language::error_at(program, offsets[order[i]],
                               fmt::format("two outputs have the name `{}`; the first is at {}:{}", signature.outputs[order[i]],
                                           program.file_name, language::position(program, offsets[order[i - 1]])));
  return signature;
}

}  // namespace onepass::compiler
