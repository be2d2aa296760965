#include "runtime/formula_program.h"

#include <memory>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "ir/formula.h"
#include "runtime/os.h"

namespace onepass::runtime {

FormulaProgram parse_formula(std::string_view text, std::string_view file_name, const Limits& limits) {
  const os::DefaultFloatingPoint control;
  struct Parsed {
    language::Program program;
    compiler::FormulaSignature signature = compiler::signature_of(program);
  };
  const std::shared_ptr<const Parsed> parsed(new Parsed{language::parse(text, file_name, limits)});
  FormulaProgram out{parsed->signature.inputs, parsed->signature.outputs, {}};
  out.record = [parsed](compiler::Recorder& recorder, std::span<const compiler::Value> values) {
    compiler::record_formula(recorder, parsed->program, parsed->signature, values);
  };
  return out;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  if (const std::string advice = language::advice_on_reserved(name); !advice.empty()) return fmt::format("; {}.", advice);
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  const std::string near = language::nearest(name, views);
  return near.empty() ? std::string() : fmt::format("; did you mean `{}`?", near);
}

}  // namespace onepass::runtime
