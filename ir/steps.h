// Steps: what the attributes of a node `steps` say. A recurrence of n steps on k states, elementwise: step t computes lines from the states, from
// element t of each of m arrays along their first axis and from what is the same in all steps; it says which values are the next states, and which
// results of its own it has. compiler/find_steps.h makes such nodes.
//
//   operands    k initial states [N], m arrays [n, N], then what all steps read [N]; an extent N that counts elements may be 1: the same for all
//   results     by the first attribute: state i after the last step [N], for i < k; result i - k of all steps [n, N]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace onepass::ir {

/// A value is a state, an element of an array, what all steps read, or a line, counted in this order.
struct StepLine {
  Op op;  // elementwise, or a constant
  DType dtype;
  std::uint64_t bits;  // of a constant
  std::array<std::int64_t, 3> operands;
  static constexpr std::int64_t kNone = -1;
};

struct Steps {
  std::int64_t which = 0;  // of the results
  std::int64_t count = 0;  // steps
  std::int64_t states = 0, arrays = 0, captures = 0;
  std::vector<StepLine> lines;
  std::vector<std::int64_t> next, results;  // values of a step: the next states, its results

  std::int64_t operands() const { return states + arrays + captures; }
  std::int64_t values() const { return operands() + static_cast<std::int64_t>(lines.size()); }
  bool is_last() const { return which < states; }
  std::int64_t value() const {
    return is_last() ? next[static_cast<std::size_t>(which)] : results[static_cast<std::size_t>(which - states)];
  }
};

std::vector<std::int64_t> attributes_of(const Steps& steps);
/// What attributes say, of a node with so many operands; `broken`: what is wrong with them, empty where nothing is.
Steps steps_of(List attributes, std::size_t operands, std::string& broken);
Steps steps_of(const Graph& graph, NodeId id);  // of a node that is right
/// By value: its type. Of operands that stand in the graph.
std::vector<DType> types_of(const Graph& graph, List operands, const Steps& steps);
/// What is wrong with a node; empty where nothing is.
std::string broken_steps(const Graph& graph, NodeId id);

}  // namespace onepass::ir
