#include "runtime/formula_program.h"

#include <memory>

#include <fmt/format.h>

#include "compiler/formula.h"
#include "ir/formula.h"

namespace onepass::runtime {

namespace {

// Until record_formula takes Values: the inputs that the Program made are made again, equal and in the same order.
template <class Recorder> void record(Recorder& recorder, const language::Program& program, std::span<const compiler::Value> values,
                                      std::span<const std::string> names) {
  if constexpr (requires { compiler::record_formula(recorder, program, values); }) {
    compiler::record_formula(recorder, program, values);
  } else {
    std::vector<compiler::FormulaInput> inputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_literal)
        throw UnsupportedError(fmt::format("{}: a formula's argument must be an array in this version, not a number", names[i]));
      const auto shape = recorder.shape(values[i]);
      inputs.push_back({recorder.dtype(values[i]), {shape.begin(), shape.end()}});
    }
    const std::uint32_t max_nodes = recorder.max_nodes;
    recorder = Recorder();
    recorder.max_nodes = max_nodes;
    compiler::record_formula(recorder, program, inputs);
  }
}

}  // namespace

FormulaProgram parse_formula(std::string_view text, std::string_view file_name) {
  const auto program = std::make_shared<const language::Program>(language::parse(text, file_name));
  compiler::FormulaSignature signature = compiler::signature_of(*program);
  FormulaProgram out{std::move(signature.inputs), std::move(signature.outputs), {}};
  out.record = [program, names = out.inputs](compiler::Recorder& recorder, std::span<const compiler::Value> values) {
    record(recorder, *program, values, names);
  };
  return out;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  const std::string near = language::nearest(name, views);
  return near.empty() ? std::string() : fmt::format("; did you mean `{}`?", near);
}

}  // namespace onepass::runtime
