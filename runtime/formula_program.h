// Parses a formula into the parts of a Program: names and a recording function. Used by formula.cpp, the command and the tests.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/options.h"
#include "runtime/program.h"

namespace onepass::runtime {

struct FormulaProgram {
  std::vector<std::string> inputs, outputs;
  Program::Record record;  // gets arguments in the order of `inputs`; keeps the parsed program alive
};

/// Parses `text`.
/// Errors    FormulaError: `file_name:line:column: problem`, the source line, a caret.
FormulaProgram parse_formula(std::string_view text, std::string_view file_name = "formula", const Limits& limits = {});

/// Returns `; did you mean `x`?` or, for a keyword of another language, its replacement. Empty if no candidate is similar.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace onepass::runtime
