// Loops with state (scan, fold, iterate and while_loop of docs/language.md), written out while they are recorded. Whoever records calls the body
// once for each next(), and hands what it gives to step(). What is asked of states and results is asked here, for C++, Python and formulas alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/record.h"

namespace onepass::compiler {

class StateLoop {
 public:
  enum class Kind : std::uint8_t { Scan, Fold, Iterate, While };
  static constexpr std::string_view kNames[] = {"scan", "fold", "iterate", "while_loop"};  ///< by kind

  /// The recorder must outlive the loop.
  /// Errors    ValueError where there is no state.
  StateLoop(Recorder& recorder, Kind kind, std::vector<Value> init);

  /// One step for each element of `xs` along axis 0, from the last one on if `reverse`.
  /// Errors    ShapeError for one without axes and for different lengths, ValueError for more steps than the graph may have nodes, and for
  ///           no step of a scan, whose results would have no shape.
  void over(std::span<const Value> xs, bool reverse);
  /// So many steps; element() of a scan and a fold is the step's index, an i32 scalar.
  void over(std::int64_t steps, bool reverse);

  /// Begins a step: what it takes are state() and element(). Numbers of the initial state get their types by steps that are recorded for
  /// that alone: nothing uses them. Errors: ValueError where all steps would have more nodes than the graph may have.
  bool next();
  std::span<const Value> state() const { return state_; }
  std::span<const Value> element() const { return element_; }
  /// Of a while loop, before step(): which elements go on.
  /// Errors    DTypeError unless it is bool, ShapeError where it has not one value for each element of each state.
  void condition(Value going);
  /// Ends the step. Errors: ValueError, DTypeError, ShapeError where the states' number, types or shapes change, or those of a scan's results.
  void step(std::span<const Value> state, std::span<const Value> results = {});

  /// Of a scan that has ended: for each result those of all steps along a new first axis.
  std::vector<Value> results();

 private:
  Recorder& r_;
  Kind kind_;
  std::vector<Value> state_, xs_, element_;
  std::vector<std::vector<Value>> results_;  // by result, then by place along axis 0
  Value going_;
  std::int64_t steps_ = 0, done_ = 0;
  std::size_t nodes_ = 0;  // before the step that is recorded
  bool indices_ = false, reverse_ = false, finding_types_ = false;

  std::string_view name() const;
  std::string state_text(std::size_t i) const;
  void begin(std::int64_t steps, bool reverse);
  std::int64_t place() const { return reverse_ ? steps_ - 1 - done_ : done_; }
  void find_types(std::span<const Value> state);
  Value kept(std::size_t i, const Value& next);
  void keep_results(std::span<const Value> results);
};

}  // namespace onepass::compiler
