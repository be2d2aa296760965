// A formula's text as what a Program wants: names and a function that records. Used by formula.cpp, the command and the tests.
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
  Program::Record record;  // for arguments in the order of `inputs`; keeps the parsed program alive
};

/// Errors    FormulaError, `file_name:line:column: what is wrong`, the source line, a caret.
FormulaProgram parse_formula(std::string_view text, std::string_view file_name = "formula", const Limits& limits = {});

/// `; did you mean `x`?`, for a word of the language what to write in its place, or nothing where no candidate is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace onepass::runtime
