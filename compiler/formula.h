// From the tree of a formula (ir/formula.h) to nodes: walks the statements, expands the calls of functions and records through
// compiler/record.h. Called by whoever compiles a formula, once for each signature of its arguments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/record.h"
#include "ir/formula.h"

namespace onepass::compiler {

/// What a caller sees of a program before any call.
struct FormulaSignature {
  std::vector<std::string> inputs;   ///< free names in order of first appearance, or the parameters of the last function
  std::vector<std::string> outputs;  ///< unused names in order and `out`, or what the last function returns
};

/// Errors    FormulaError for an operator that does not exist, anywhere in the program, and for two outputs of one name.
FormulaSignature signature_of(const language::Program& program);

struct FormulaInput {
  DType dtype = DType::F32;
  Shape shape;
};

/// Records the program for these arguments, tensors and numbers, in the order of `signature`, its own: nodes and outputs of `recorder.graph`.
/// Without C++ recursion, however deep calls or expressions nest.
/// Errors    FormulaError at the place in the text: every onepass::Error of the recorder, and what the language page asks of functions,
///           parameters and results. `recorder.limits.max_nodes` also bounds the operators evaluated after calls are expanded.
void record_formula(Recorder& recorder, const language::Program& program, const FormulaSignature& signature,
                    std::span<const Value> arguments);

/// The same for arrays of these types and shapes, which become the inputs of `recorder.graph`.
void record_formula(Recorder& recorder, const language::Program& program, std::span<const FormulaInput> inputs);

}  // namespace onepass::compiler
