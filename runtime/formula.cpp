// The public formula object: parses once, records for each new signature, and calls through a Program. See onepass/formula.h.
#include "onepass/formula.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ir/graph.h"
#include "onepass/error.h"
#include "runtime/call_arguments.h"
#include "runtime/formula_program.h"
#include "runtime/graph_program.h"
#include "runtime/graph_view.h"
#include "runtime/program.h"
#include "runtime/row.h"
#include "runtime/signature_text.h"

namespace onepass {

using detail::CallArgument;
using runtime::CallArguments;

struct Formula::Body {
  std::string text;
  runtime::FormulaProgram parsed;
  detail::Shared<const std::vector<std::string>> outputs;
  runtime::Program program;

  Body(std::string_view source, const Options& options)
      : text(source),
        parsed(runtime::parse_formula(source, "formula", options.limits)),
        outputs(detail::Shared<const std::vector<std::string>>::make(parsed.outputs)),
        program(parsed.record, parsed.inputs, without_check(options)) {}
  Body(ir::Graph graph, const Options& options)
      : text(ir::print(graph)),
        parsed(runtime::graph_program(std::move(graph))),
        outputs(detail::Shared<const std::vector<std::string>>::make(parsed.outputs)),
        program(parsed.record, parsed.inputs, without_check(options)) {}

  // Disables check_recording, because a formula depends only on its text.
  static Options without_check(Options options) {
    options.check_recording = false;
    return options;
  }

  std::string list(const std::vector<std::string>& names) const {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  using InOrder = runtime::Row<CallArgument, 12>;

  void put_in_order(std::span<const FormulaArgument> arguments, InOrder& out) const {
    if (arguments.size() != parsed.inputs.size())
      throw ValueError(fmt::format("formula: the formula takes {} arguments ({}), but the call has {}", parsed.inputs.size(),
                                   list(parsed.inputs), arguments.size()));
    for (std::size_t i = 0; i < arguments.size(); ++i) out[i] = arguments[i].get();
  }

  void put_in_order(std::span<const NamedArgument> arguments, InOrder& out) const {
    for (const NamedArgument& a : arguments) {
      const std::size_t i = find(a.name, parsed.inputs, "input");
      if (out[i].kind != CallArgument::Kind::None) throw NameError(fmt::format("formula: input `{}` is given twice", a.name));
      out[i] = a.value.get();
    }
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < parsed.inputs.size(); ++i)
      if (out[i].kind == CallArgument::Kind::None) missing.push_back(parsed.inputs[i]);
    if (!missing.empty())
      throw ValueError(fmt::format("formula: no value is given for the input{} {}", missing.size() > 1 ? "s" : "", list(missing)));
  }

  std::size_t find(std::string_view name, const std::vector<std::string>& names, std::string_view what) const {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      throw NameError(fmt::format(
          "formula: there is no {} `{}`{} The {}s are: {}", what, name,
          [&] {
            const std::string near = runtime::did_you_mean(name, names);
            return near.empty() ? std::string(".") : near;
          }(),
          what, list(names)));
    return static_cast<std::size_t>(at - names.begin());
  }

  // Calls `f` with the arguments in the order of the inputs.
  template <class A, class F> auto with_arguments(std::span<const A> arguments, F&& f) const {
    InOrder in_order(parsed.inputs.size());
    put_in_order(arguments, in_order);
    return f(CallArguments(in_order.span()));
  }
  template <class A> std::vector<Array> call(std::span<const A> arguments) {
    return with_arguments(arguments, [&](const CallArguments& in) { return program.call(in); });
  }
  template <class A> void call_into(std::span<const A> arguments, std::span<Array* const> targets) {
    with_arguments(arguments, [&](const CallArguments& in) { program.call_into(in, targets); });
  }
  template <class A> Comparison compare(std::span<const A> arguments) {
    return with_arguments(arguments, [&](const CallArguments& in) { return program.compare(in); });
  }
};

const Array& FormulaResults::operator[](std::string_view name) const {
  const auto at = std::find(names_->begin(), names_->end(), name);
  if (at != names_->end()) return arrays_[static_cast<std::size_t>(at - names_->begin())];
  throw NameError(fmt::format("formula: there is no output `{}`{}", name, runtime::did_you_mean(name, *names_)));
}

const Array& FormulaResults::at(std::size_t index) const {
  if (index >= arrays_.size())
    throw IndexError(fmt::format("formula: output {} does not exist; the formula has {} outputs", index, arrays_.size()));
  return arrays_[index];
}

const Array& FormulaResults::only() const {
  if (arrays_.size() != 1)
    throw ValueError(fmt::format("formula: the formula has {} outputs, not one. Select an output by name.", arrays_.size()));
  return arrays_.front();
}

Formula::Body& Formula::body() const {
  if (!body_) [[unlikely]]
    throw Error(
        "a moved-from formula was called. Call the formula that it was moved to, or copy instead of moving; copies share one function");
  return *body_;
}

const std::vector<std::string>& Formula::inputs() const { return body().parsed.inputs; }
const std::vector<std::string>& Formula::outputs() const { return *body().outputs; }
const std::string& Formula::text() const { return body().text; }

FormulaResults Formula::operator()(std::span<const FormulaArgument> arguments) const { return {body().call(arguments), body().outputs}; }
FormulaResults Formula::operator()(std::span<const NamedArgument> arguments) const { return {body().call(arguments), body().outputs}; }
FormulaResults Formula::operator()(std::initializer_list<FormulaArgument> arguments) const {
  return (*this)(std::span<const FormulaArgument>(arguments.begin(), arguments.size()));
}
FormulaResults Formula::operator()(std::initializer_list<NamedArgument> arguments) const {
  return (*this)(std::span<const NamedArgument>(arguments.begin(), arguments.size()));
}

namespace {
using Targets = runtime::Row<Array, 4>;
using TargetPointers = runtime::Row<Array*, 4>;
}  // namespace

void Formula::into(std::span<const Array> targets, std::span<const FormulaArgument> arguments) const {
  if (targets.size() != outputs().size())
    throw ValueError(fmt::format("formula: the formula has {} outputs ({}), but the call has {} destinations", outputs().size(),
                                 body().list(outputs()), targets.size()));
  Targets handles(targets.size());
  TargetPointers pointers(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) handles[i] = targets[i], pointers[i] = &handles[i];
  body().call_into(arguments, pointers.span());
}
void Formula::into(std::span<const NamedTarget> targets, std::span<const NamedArgument> arguments) const {
  Targets handles(outputs().size());
  TargetPointers pointers(outputs().size());
  std::ranges::fill(pointers.span(), nullptr);
  for (const NamedTarget& t : targets) {
    const std::size_t i = body().find(t.name, outputs(), "output");
    if (pointers[i]) throw NameError(fmt::format("formula: output `{}` is given twice", t.name));
    handles[i] = t.array;
    pointers[i] = &handles[i];
  }
  body().call_into(arguments, pointers.span());
}
void Formula::into(std::initializer_list<NamedTarget> targets, std::initializer_list<NamedArgument> arguments) const {
  into(std::span<const NamedTarget>(targets.begin(), targets.size()), std::span<const NamedArgument>(arguments.begin(), arguments.size()));
}

namespace {
template <class Arguments> Result<FormulaResults> attempt(const Formula& formula, const Arguments& arguments) noexcept {
  std::optional<FormulaResults> results;
  std::string error;
  if (runtime::without_exceptions(error, [&] { results.emplace(formula(arguments)); })) return std::move(*results);
  return Result<FormulaResults>::failure(std::move(error));
}
}  // namespace
Result<FormulaResults> Formula::try_call(std::initializer_list<FormulaArgument> arguments) const noexcept {
  return attempt(*this, arguments);
}
Result<FormulaResults> Formula::try_call(std::initializer_list<NamedArgument> arguments) const noexcept {
  return attempt(*this, arguments);
}

Comparison Formula::compare(std::span<const FormulaArgument> arguments) const { return body().compare(arguments); }
Comparison Formula::compare(std::span<const NamedArgument> arguments) const { return body().compare(arguments); }
Comparison Formula::compare(std::initializer_list<FormulaArgument> arguments) const {
  return compare(std::span<const FormulaArgument>(arguments.begin(), arguments.size()));
}
Comparison Formula::compare(std::initializer_list<NamedArgument> arguments) const {
  return compare(std::span<const NamedArgument>(arguments.begin(), arguments.size()));
}

GraphView Formula::graph() const { return GraphViewAccess::make(body().program.last_report()->optimised); }
GraphView Formula::recorded_graph() const { return GraphViewAccess::make(ir::prune(body().program.last_report()->recorded)); }
std::string Formula::last_graph() const {
  const auto report = body().program.last_report();
  return report->optimised.outputs.empty() ? std::string() : ir::print(report->optimised);
}
std::string Formula::explain() const { return body().program.explain(); }
std::string Formula::explain(std::string_view signature) const { return describe(signature).text(); }
ExecutionRecord Formula::describe(std::string_view signature, Detail detail) const {
  ExecutionRecord record = body().program.describe(runtime::CallSignature::parse(signature), detail);
  record.program = body().text;
  return record;
}
ExecutionRecord Formula::last_execution(Detail detail) const {
  ExecutionRecord record = body().program.last_execution(detail);
  record.program = body().text;
  return record;
}
Stats Formula::stats() const { return body().program.stats(); }

namespace {
void warm_up_one(runtime::Program& program, const runtime::CallSignature& signature, Tier tier = Tier::optimized) {
  if (!signature.structure.empty())
    throw ValueError("formula: the signature begins with braces, but a formula has no lists and no Static values. Remove the braces.");
  program.warm_up(signature, tier);
}
}  // namespace
void Formula::warm_up(std::initializer_list<std::string_view> signatures, Tier tier) const {
  for (const std::string_view text : signatures) warm_up_one(body().program, runtime::CallSignature::parse(text), tier);
}
void Formula::warm_up(const std::vector<std::string>& signatures, Tier tier) const {
  for (const std::string& text : signatures) warm_up_one(body().program, runtime::CallSignature::parse(text), tier);
}
bool Formula::wait_until_optimized_for(std::int64_t nanoseconds) const { return body().program.wait_until_optimized(nanoseconds); }
int Formula::warm_up_file(const std::string& path) const {
  static_cast<void>(body());
  return runtime::warm_up_file(path, [&](const runtime::CallSignature& signature) { warm_up_one(body().program, signature); });
}
std::vector<std::string> Formula::signatures() const {
  std::vector<std::string> texts;
  for (const runtime::CallSignature& signature : body().program.signatures()) texts.push_back(signature.text());
  return texts;
}
void Formula::write_signatures(const std::string& path) const { runtime::write_signatures(path, signatures()); }
void Formula::seal() const { body().program.seal(); }
void Formula::reset() const { body().program.reset(); }
const Options& Formula::options() const { return body().program.options(); }

Formula formula(const GraphView& graph, const Options& options) {
  if (graph.empty()) throw ValueError("graph: the graph has no nodes, so there is nothing to compute");
  return Formula(detail::Shared<Formula::Body>::make(GraphViewAccess::graph(graph), options));
}

Formula formula(std::string_view text, const Options& options) { return Formula(detail::Shared<Formula::Body>::make(text, options)); }

}  // namespace onepass
