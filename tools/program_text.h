// A formula's text, with operations for the command and the contender. They record the graph for given types, and compile a
// runtime::Program of all or some of its outputs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/record.h"
#include "ir/graph.h"
#include "runtime/formula_program.h"
#include "runtime/gradient.h"
#include "runtime/graph_program.h"
#include "runtime/program.h"

namespace onepass {

class ProgramText {
 public:
  /// Parses a formula. Throws like runtime::parse_formula; `name` precedes the line number in messages.
  ProgramText(std::string_view text, std::string_view name, const Limits& limits = {})
      : formula_(runtime::parse_formula(text, name, limits)), limits_(limits) {}
  /// Parses a recorded graph in its printed form, as a dump contains it.
  static ProgramText of_graph(std::string_view text, const Limits& limits = {}) {
    ProgramText program;
    program.limits_ = limits;
    ir::Graph graph = ir::parse_graph(text);
    for (const ir::Input& input : graph.inputs) {
      const ir::List shape = graph.list(input.shape);
      program.types_.push_back({input.dtype, {shape.begin(), shape.end()}, {}});
    }
    program.formula_ = runtime::graph_program(std::move(graph));
    return program;
  }
  /// Returns the types of a graph's inputs; empty for a formula.
  const std::vector<runtime::ArgumentType>& types() const { return types_; }

  const std::vector<std::string>& inputs() const { return formula_.inputs; }
  const std::vector<std::string>& outputs() const { return formula_.outputs; }
  std::vector<std::size_t> all_outputs() const {
    std::vector<std::size_t> all(outputs().size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  /// Returns the graph before any pass, with the outputs at the positions `wanted`, in this order.
  ir::Graph record(std::span<const runtime::ArgumentType> types, const std::vector<std::size_t>& wanted) const {
    runtime::ProgramRecorder recorder;
    recorder.limits = limits_;
    std::vector<compiler::Value> values;
    for (std::size_t i = 0; i < types.size(); ++i) values.push_back(recorder.input(inputs()[i], types[i].dtype, types[i].shape));
    formula_.record(recorder, values);
    keep(recorder.graph, wanted);
    return std::move(recorder.graph);
  }

  /// Compiles a program with these outputs; nodes that only other outputs need are not evaluated.
  std::unique_ptr<runtime::Program> compile(const Options& options, std::vector<std::size_t> wanted) const {
    auto record = [body = formula_.record, wanted = std::move(wanted)](runtime::ProgramRecorder& recorder,
                                                                       std::span<const compiler::Value> values) {
      body(recorder, values);
      keep(recorder.graph, wanted);
    };
    return std::make_unique<runtime::Program>(std::move(record), inputs(), options);
  }
  std::unique_ptr<runtime::Program> compile(const Options& options) const {
    return std::make_unique<runtime::Program>(formula_.record, inputs(), options);
  }
  /// Compiles the forward call of `vjp`: it returns the results and the residuals. Its records also contain the backward call.
  std::unique_ptr<runtime::Program> compile_with_pullback(const Options& options) const {
    auto record = [body = formula_.record, options](runtime::ProgramRecorder& recorder, std::span<const compiler::Value> values) {
      body(recorder, values);
      runtime::add_pullback(recorder, values, options);
    };
    return std::make_unique<runtime::Program>(std::move(record), inputs(), options);
  }

 private:
  ProgramText() = default;
  static void keep(ir::Graph& graph, const std::vector<std::size_t>& wanted) {
    std::vector<ir::NodeId> nodes;
    std::vector<std::string> names;
    for (const std::size_t i : wanted) {
      nodes.push_back(graph.outputs.at(i));
      names.push_back(graph.output_names.at(i));
    }
    graph.outputs = std::move(nodes);
    graph.output_names = std::move(names);
  }

  runtime::FormulaProgram formula_;
  Limits limits_;
  std::vector<runtime::ArgumentType> types_;
};

}  // namespace onepass
