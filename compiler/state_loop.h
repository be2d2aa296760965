// Loops with state (scan, fold, iterate and while_loop of docs/language.md). For each next(), the front end calls the loop body once and
// passes its results to step(). StateLoop checks states and results for C++, Python and formulas alike.
//
// A loop is unrolled during recording, unless it is long and its steps are elementwise. Then three steps are recorded; if the last two
// compute the same, all steps become one `steps` node (ir/steps.h), and next() returns false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/record.h"
#include "compiler/step_body.h"

namespace onepass::compiler {

class StateLoop {
 public:
  enum class Kind : std::uint8_t { Scan, Fold, Iterate, While };
  static constexpr std::string_view kNames[] = {"scan", "fold", "iterate", "while_loop"};  ///< by Kind

  /// Begins a loop. The recorder must outlive it.
  /// Errors    ValueError if there is no state.
  StateLoop(Recorder& recorder, Kind kind, std::vector<Value> init);

  /// Sets one step for each element of `xs` along axis 0, from the last element if `reverse` is true.
  /// Errors    ShapeError for an x without axes and for different lengths; ValueError for more steps than the graph may have nodes.
  ///           ValueError also for a scan of no steps, because the shape of its results would be unknown.
  void over(std::span<const Value> xs, bool reverse);
  /// Sets the number of steps. In a scan or fold, element() is the step's index, an i32 scalar.
  void over(std::int64_t steps, bool reverse);

  /// Begins a step, or returns false if no step is left to record. The body's inputs are state() and element(). Extra recorded steps, which
  /// stay unused, may determine the types of numbers in the initial state. Errors: ValueError if all steps together would exceed the
  /// graph's node limit.
  bool next();
  std::span<const Value> state() const { return state_; }
  std::span<const Value> element() const { return element_; }
  /// Sets which elements of a while loop continue. Must be called before step().
  /// Errors    DTypeError unless it is bool; ShapeError unless it has one value for each element of each state.
  void condition(Value going);
  /// Ends the step. Errors: ValueError, DTypeError or ShapeError if the number, types or shapes of the states or of a scan's results
  /// change.
  void step(std::span<const Value> state, std::span<const Value> results = {});

  /// Returns, after a scan has ended, each result for all steps along a new first axis.
  std::vector<Value> results();

 private:
  Recorder& r_;
  Kind kind_;
  std::vector<Value> state_, xs_, element_;
  std::vector<std::vector<Value>> results_;  // by result, then by step
  std::vector<Value> stacked_;               // the results of a loop that has become one node
  Value going_;
  std::int64_t steps_ = 0, done_ = 0;
  std::size_t nodes_ = 0;  // at the start of the recorded step
  std::vector<Value> init_, before_;
  Value going_before_;
  std::optional<StepForm> second_;  // the form of the second step
  bool indices_ = false, reverse_ = false, finding_types_ = false;

  std::string_view name() const;
  std::string state_text(std::size_t i) const;
  void begin(std::int64_t steps, bool reverse);
  std::int64_t place() const { return reverse_ ? steps_ - 1 - done_ : done_; }
  void find_types(std::span<const Value> state);
  Value kept(std::size_t i, const Value& next);
  void keep_results(std::span<const Value> results);
  std::optional<StepForm> form(std::span<const Value> results) const;
  bool is_same(NodeId a, NodeId b) const;
  bool is_number(NodeId id) const;
  bool becomes_one_node(const StepForm& form) const;
  void make_one_node(const StepForm& form);
};

}  // namespace onepass::compiler
