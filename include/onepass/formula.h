// formula(text): the language of docs/language.md given at run time, compiled like a C++ function. Parsed once, recorded for each new
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

/// An argument of a formula: an Array, or a number without a strong type.
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
/// `{"s", s}`
struct NamedArgument {
  std::string_view name;
  FormulaArgument value;
};
/// `{"out", y}`: where a result goes.
struct NamedTarget {
  std::string_view name;
  Array array;
};

/// A formula's results, in the order of its outputs.
class ONEPASS_API FormulaResults {
 public:
  std::size_t size() const noexcept { return arrays_.size(); }
  /// By position. IndexError when there are fewer.
  template <std::integral I> const Array& operator[](I index) const { return at(static_cast<std::size_t>(index)); }
  /// NameError with the nearest name when there is no such output.
  const Array& operator[](std::string_view name) const;
  const Array& operator[](const char* name) const { return (*this)[std::string_view(name)]; }
  const std::vector<std::string>& names() const { return *names_; }
  /// `Array y = price(…)` of a formula with one output; ValueError when there are more.
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

/// A compiled formula. A handle: copies are the same function. Several threads may call it at once.
///
///     auto price = formula("discount = exp(-r*t); value = s*discount; delta = grad(sum(value), [s])");
///     auto results = price({{"s", s}, {"r", 0.03}, {"t", t}});
///     Array delta = results["delta"];
class ONEPASS_API Formula {
 public:
  /// Names of the arguments: free names in the order of their first appearance, or the parameters of the last `fn`.
  const std::vector<std::string>& inputs() const;
  /// Names of the results, in order.
  const std::vector<std::string>& outputs() const;
  const std::string& text() const;

  // Errors of a call: NameError for an input that does not exist or is given twice, with the nearest name; ValueError for one that is missing;
  // FormulaError with line, column and caret for what the formula cannot do with these types and shapes.

  /// By position, as many as inputs(): `price({s, 0.03, t})`.
  FormulaResults operator()(std::initializer_list<FormulaArgument> arguments) const;
  FormulaResults operator()(std::span<const FormulaArgument> arguments) const;
  /// By name, in any order: `price({{"s", s}, {"r", 0.03}, {"t", t}})`.
  FormulaResults operator()(std::initializer_list<NamedArgument> arguments) const;
  FormulaResults operator()(std::span<const NamedArgument> arguments) const;

  /// Into memory that exists; a target has its result's exact shape and type and may overlap arguments, not another target.
  /// Targets by position are as many as outputs(); by name, an output that is not named is left out.
  void into(std::span<const Array> targets, std::span<const FormulaArgument> arguments) const;
  void into(std::initializer_list<NamedTarget> targets, std::initializer_list<NamedArgument> arguments) const;
  void into(std::span<const NamedTarget> targets, std::span<const NamedArgument> arguments) const;

  /// Without exceptions: the results, or the text of the error.
  Result<FormulaResults> try_call(std::initializer_list<FormulaArgument> arguments) const noexcept;
  Result<FormulaResults> try_call(std::initializer_list<NamedArgument> arguments) const noexcept;

  /// Runs such a call in the formula's mode and in mode unfused, as CompiledFunction::compare does: do all bits agree, and if not, which
  /// operator's value is the first that differs?
  Comparison compare(std::initializer_list<FormulaArgument> arguments) const;
  Comparison compare(std::span<const FormulaArgument> arguments) const;
  Comparison compare(std::initializer_list<NamedArgument> arguments) const;
  Comparison compare(std::span<const NamedArgument> arguments) const;

  /// The optimized graph of the last call, to be walked; empty before the first.
  GraphView graph() const;
  /// The graph of the last call as it was recorded, before any pass; without what no result needs.
  GraphView recorded_graph() const;
  /// The optimized graph of the last call in its printed form; empty before the first.
  std::string last_graph() const;
  std::string explain() const;
  // As of a CompiledFunction (onepass/function.h).
  std::string explain(std::string_view signature) const;
  ExecutionRecord describe(std::string_view signature, Detail detail = Detail::plan) const;
  ExecutionRecord last_execution(Detail detail = Detail::plan) const;
  Stats stats() const;

  // As of a CompiledFunction (onepass/function.h); arguments are in the order of inputs().
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
  Body& body() const;  // Error where it was moved from
  explicit Formula(detail::Shared<Body> body) : body_(std::move(body)) {}
  detail::Shared<Body> body_;
};

/// Parses `text`, an expression or a program of the formula language. Nothing is recorded before the first call.
/// Errors    FormulaError, one line `formula:line:column: what is wrong`, the line of the text, a caret.
ONEPASS_API
Formula formula(std::string_view text, const Options& options = {});
/// A recorded graph as a function again: its inputs and outputs by name, for the types and shapes that it was recorded with. Numbers of the
/// call that recorded it are part of it. Gives the bits of the program that recorded it.
/// Errors    ValueError for a graph without nodes; of a call: ShapeError, DTypeError where an argument is of another shape or type.
ONEPASS_API
Formula formula(const GraphView& graph, const Options& options = {});

}  // namespace onepass
