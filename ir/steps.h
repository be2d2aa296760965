// Steps: the decoded attributes of a `steps` node, made by compiler/find_steps.h. The node is an elementwise recurrence of n steps on k
// states. A step computes lines, and from them the next states and the results of the step. The inputs of a line are the states, the step's
// element of each of m arrays along their first axis, and captures. Captures are the same in all steps. Step t reads element t and stores
// result t; with `reverse`, these are n - 1 - t.
//
//   operands    k initial states [N], m arrays [n, N], then the captures [N]; an element count N may also be 1, for equal elements
//   results     by the first attribute: state i after the last step [N], for i < k; result i - k of all steps [n, N]
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::ir {

/// One line. Its operands are value numbers: the states, array elements, captures and lines are numbered in this order.
struct StepLine {
  Op op;  // elementwise, or a constant
  DType dtype;
  std::uint64_t bits;  // bits of a constant
  std::array<std::int64_t, 3> operands;
  static constexpr std::int64_t kNone = -1;
};

struct Steps {
  std::int64_t which = 0;  // number of the result
  std::int64_t count = 0;  // steps
  std::int64_t states = 0, arrays = 0, captures = 0;
  bool reverse = false;  // from the last elements of the arrays to the first
  std::vector<StepLine> lines;
  std::vector<std::int64_t> next, results;  // values of a step: the next states, its results

  std::int64_t operands() const { return states + arrays + captures; }
  std::int64_t values() const { return operands() + static_cast<std::int64_t>(lines.size()); }
  bool is_last() const { return which < states; }
  std::int64_t place_of(std::int64_t step) const { return reverse ? count - 1 - step : step; }  // in arrays and results
  std::int64_t value() const {
    return is_last() ? next[static_cast<std::size_t>(which)] : results[static_cast<std::size_t>(which - states)];
  }
};

std::vector<std::int64_t> attributes_of(const Steps& steps);
/// Decodes the attributes of a node with so many operands. Sets `broken` to the problem with them; empty if they are valid.
Steps steps_of(List attributes, std::size_t operands, std::string& broken);
Steps steps_of(const Graph& graph, NodeId id);  // for a valid node
/// Returns the type of each value. `operands` must be in the graph.
std::vector<DType> types_of(const Graph& graph, List operands, const Steps& steps);
/// Returns the state that ends the recurrence, as in a while loop: once it is false, no later step changes a state. Null: there is none, or
/// one of the results (by the numbers of `results`) has an element for each step.
std::optional<std::int64_t> going_state(const Steps& steps, std::span<const std::uint32_t> results);
/// Returns the problem with a node; empty if it is valid.
std::string broken_steps(const Graph& graph, NodeId id);

}  // namespace onepass::ir
