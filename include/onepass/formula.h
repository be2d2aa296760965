// formula(text): compiles a program in the language of docs/language.md at run time. Parses it once, and records it for each new
// combination of types and shapes. Works under -fno-exceptions -fno-rtti.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onepass/array.h"
#include "onepass/compare.h"
#include "onepass/export.h"
#include "onepass/function.h"
#include "onepass/graph_view.h"
#include "onepass/number.h"
#include "onepass/options.h"
#include "onepass/shared.h"

namespace onepass {

/// An argument of a formula: an Array, or a weakly typed number.
class FormulaArgument {
 public:
  FormulaArgument(Array array) : array_(std::move(array)), is_array_(true) {}        // NOLINT: implicit by design
  template <detail::Number T> FormulaArgument(T value) noexcept : number_(value) {}  // NOLINT: implicit by design

  detail::CallArgument get() const { return is_array_ ? detail::CallArgument(array_) : number_; }

 private:
  Array array_;
  detail::CallArgument number_;
  bool is_array_ = false;
};
/// An argument by name: `{"s", s}`.
struct NamedArgument {
  std::string_view name;
  FormulaArgument value;
};
/// A destination by name: `{"out", y}`.
struct NamedTarget {
  std::string_view name;
  Array array;
};

/// A formula's results, in the order of its outputs.
class ONEPASS_API FormulaResults {
 public:
  std::size_t size() const noexcept { return arrays_.size(); }
  /// Returns a result by position. Throws IndexError past the end.
  template <std::integral I> const Array& operator[](I index) const { return at(static_cast<std::size_t>(index)); }
  /// Returns a result by name. Throws NameError with the nearest name if no output has this name.
  const Array& operator[](std::string_view name) const;
  const Array& operator[](const char* name) const { return (*this)[std::string_view(name)]; }
  const std::vector<std::string>& names() const { return *names_; }
  /// Converts the result of a formula with one output: `Array y = price(…)`. Throws ValueError if there are more outputs.
  operator Array() const { return only(); }  // NOLINT: implicit by design
  std::vector<Array>::const_iterator begin() const { return arrays_.begin(); }
  std::vector<Array>::const_iterator end() const { return arrays_.end(); }

 private:
  friend class Formula;
  FormulaResults(std::vector<Array> arrays, detail::Shared<const std::vector<std::string>> names)
      : arrays_(std::move(arrays)), names_(std::move(names)) {}
  const Array& at(std::size_t index) const;
  const Array& only() const;
  std::vector<Array> arrays_;
  detail::Shared<const std::vector<std::string>> names_;
};

/// A compiled formula. It is a handle: copies refer to the same function. Several threads may call it at once.
///
///     auto price = formula("discount = exp(-r*t); value = s*discount; delta = grad(sum(value), [s])");
///     auto results = price({{"s", s}, {"r", 0.03}, {"t", t}});
///     Array delta = results["delta"];
class ONEPASS_API Formula {
 public:
  /// Returns the argument names: free names in order of first appearance, or the parameters of the last `fn`.
  const std::vector<std::string>& inputs() const;
  /// Returns the result names, in order.
  const std::vector<std::string>& outputs() const;
  const std::string& text() const;

  // Errors of a call: NameError, with the nearest name, for an unknown or repeated input; ValueError for an absent input. FormulaError,
  // with line, column and caret, if an operator rejects these types and shapes.

  /// Calls the formula with arguments by position, as many as inputs(): `price({s, 0.03, t})`.
  FormulaResults operator()(std::initializer_list<FormulaArgument> arguments) const;
  FormulaResults operator()(std::span<const FormulaArgument> arguments) const;
  /// Calls the formula with arguments by name, in any order: `price({{"s", s}, {"r", 0.03}, {"t", t}})`.
  FormulaResults operator()(std::initializer_list<NamedArgument> arguments) const;
  FormulaResults operator()(std::span<const NamedArgument> arguments) const;

  /// Writes to existing memory. Each destination must have its result's exact shape and type; it may overlap arguments but not another
  /// destination. By position, pass one destination for each output; by name, unnamed outputs are skipped.
  void into(std::span<const Array> targets, std::span<const FormulaArgument> arguments) const;
  void into(std::initializer_list<NamedTarget> targets, std::initializer_list<NamedArgument> arguments) const;
  void into(std::span<const NamedTarget> targets, std::span<const NamedArgument> arguments) const;

  /// Calls the formula without exceptions: returns the results, or the text of the error.
  Result<FormulaResults> try_call(std::initializer_list<FormulaArgument> arguments) const noexcept;
  Result<FormulaResults> try_call(std::initializer_list<NamedArgument> arguments) const noexcept;

  /// Runs the call in the formula's mode and in mode unfused, like CompiledFunction::compare. Reports whether all bits agree, and
  /// otherwise the first operator with a different value.
  Comparison compare(std::initializer_list<FormulaArgument> arguments) const;
  Comparison compare(std::span<const FormulaArgument> arguments) const;
  Comparison compare(std::initializer_list<NamedArgument> arguments) const;
  Comparison compare(std::span<const NamedArgument> arguments) const;

  /// Returns the optimized graph of the last call; empty before the first call.
  GraphView graph() const;
  /// Returns the graph of the last call as recorded, before any pass, without values that no result needs.
  GraphView recorded_graph() const;
  /// Returns the optimized graph of the last call in printed form; empty before the first call.
  std::string last_graph() const;
  std::string explain() const;
  // These functions work as in CompiledFunction (onepass/function.h).
  std::string explain(std::string_view signature) const;
  ExecutionRecord describe(std::string_view signature, Detail detail = Detail::plan) const;
  ExecutionRecord last_execution(Detail detail = Detail::plan) const;
  Stats stats() const;

  // These functions work as in CompiledFunction (onepass/function.h); arguments are in the order of inputs().
  void warm_up(std::initializer_list<std::string_view> signatures, Tier tier = Tier::optimized) const;
  void warm_up(const std::vector<std::string>& signatures, Tier tier = Tier::optimized) const;
  template <class Duration> bool wait_until_optimized(Duration timeout) const {
    return wait_until_optimized_for(detail::nanoseconds_of(timeout));
  }
  void wait_until_optimized() const { wait_until_optimized_for(-1); }
  int warm_up_file(const std::string& path) const;
  std::vector<std::string> signatures() const;
  void write_signatures(const std::string& path) const;
  void seal() const;
  void reset() const;
  const Options& options() const;

 private:
  friend ONEPASS_API
  Formula formula(std::string_view text, const Options& options);
  friend ONEPASS_API
  Formula formula(const GraphView& graph, const Options& options);
  struct Body;
  bool wait_until_optimized_for(std::int64_t nanoseconds) const;
  Body& body() const;  // throws Error for a moved-from formula
  explicit Formula(detail::Shared<Body> body) : body_(std::move(body)) {}
  detail::Shared<Body> body_;
};

/// Parses `text`, an expression or a program of the formula language. Recording begins with the first call.
/// Errors    FormulaError with three lines: `formula:line:column: problem`, the line of the text, a caret.
ONEPASS_API
Formula formula(std::string_view text, const Options& options = {});
/// Makes a function from a recorded graph, with inputs and outputs by name, for the types and shapes of the recording. Numbers of the
/// recorded call are constants. The results have the same bits as the recorded program's.
/// Errors    ValueError for a graph without nodes. A call throws ShapeError or DTypeError for an argument of another shape or type.
ONEPASS_API
Formula formula(const GraphView& graph, const Options& options = {});

}  // namespace onepass
