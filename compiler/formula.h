// Translates the syntax tree of a formula (ir/formula.h) to nodes: walks the statements, expands function calls and records through
// compiler/record.h. Runs once for each signature of the formula's arguments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/record.h"
#include "ir/formula.h"

namespace onepass::compiler {

/// The inputs and outputs of a program, known before any call.
struct FormulaSignature {
  std::vector<std::string> inputs;   ///< free names in order of first appearance, or the parameters of the last function
  std::vector<std::string> outputs;  ///< unused names in order and `out`, or the results of the last function
};

/// Returns the program's signature.
/// Errors    FormulaError for an operator that does not exist, anywhere in the program, and for two outputs with one name.
FormulaSignature signature_of(const language::Program& program);

struct FormulaInput {
  DType dtype = DType::F32;
  Shape shape;
};

/// Records the program for these arguments (tensors and numbers), as nodes and outputs of `recorder.graph`. `signature` must be the
/// program's own; `arguments` are in its order. Uses no C++ recursion, however deeply calls or expressions nest.
/// Errors    FormulaError with the position in the text, for every onepass::Error of the recorder and for violations of the rules for
///           functions, parameters and results. `recorder.limits.max_nodes` also bounds the operators evaluated after calls are expanded.
void record_formula(Recorder& recorder, const language::Program& program, const FormulaSignature& signature,
                    std::span<const Value> arguments);

/// Records the program for arrays of these types and shapes, which become the inputs of `recorder.graph`.
void record_formula(Recorder& recorder, const language::Program& program, std::span<const FormulaInput> inputs);

}  // namespace onepass::compiler
