// step_body: the recorded step of a loop with state, as the lines of a `steps` node (ir/steps.h). The recorder uses it for scan, fold,
// iterate and while_loop, and differentiate for the steps of a derivative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/steps.h"

namespace onepass::compiler {

/// One recorded step. States and arrays hold the nodes that stand for the values of this step. Values that depend on none of them are
/// captures, and so are the nodes in `captures`. But elementwise nodes with ids from `own` on are computed in each step: numbers of the
/// function are recorded anew in each step.
struct StepBody {
  std::vector<ir::NodeId> states, arrays, captures;
  std::vector<ir::NodeId> next, results;
  ir::NodeId own = ir::kNoNode;
};

/// A step as lines. `steps` has neither a count, nor a direction, nor a result index.
struct StepForm {
  ir::Steps steps;
  std::vector<ir::NodeId> arrays;                // the values of this step: arrays of the body, or views of them
  std::vector<std::vector<std::int64_t>> views;  // by array: the views, from the value down to the array of the body
  std::vector<ir::NodeId> captures;
  std::int64_t elements = 1;
  std::vector<ir::NodeId> computed;  // by id: the nodes that became lines
};

/// A value of a step before the values are numbered. The index counts the states, arrays, captures or lines; of a View, it is the node.
struct StepRef {
  enum class Kind : std::uint8_t { State, Array, Capture, Line, View } kind;
  std::size_t index;
};
/// Returns the number of the value; `steps` must have its numbers of states, arrays and captures.
std::int64_t number_of(const ir::Steps& steps, const StepRef& ref);

/// Returns nullopt unless the step is elementwise: each value has as many elements as the states. An array may also be read through views,
/// but not both directly and through views.
std::optional<StepForm> form_of(const ir::Graph& graph, const StepBody& body);

/// True if both nodes are the same expression. `is_same_number` compares two scalar parameters.
bool is_same_expression(const ir::Graph& graph, ir::NodeId a, ir::NodeId b,
                        const std::function<bool(std::uint32_t, std::uint32_t)>& is_same_number);

/// True if both steps compute the same from their states and arrays. `is_same` compares two captures.
bool is_alike(const StepForm& a, const StepForm& b, const std::function<bool(ir::NodeId, ir::NodeId)>& is_same);

/// Appends the nodes of all results of the steps: [elements] for each last state, then [count, elements] for each result. Each operand has
/// as many elements as in ir/steps.h, in any shape.
std::vector<ir::NodeId> add_steps(ir::Graph& graph, const ir::Steps& steps, std::int64_t elements, std::span<const ir::NodeId> operands);

/// Appends the lines of a step, each of this shape. `values` holds the operands' nodes; the lines' nodes follow them.
void add_lines(ir::Graph& graph, const ir::Steps& steps, ir::ListId shape, std::vector<ir::NodeId>& values);

/// Returns the operands and attributes of a `steps` node without its result index: equal for all results of one loop.
std::vector<std::int64_t> key_of_loop(const ir::Graph& graph, ir::NodeId id);

/// Returns the node of result `which` of the steps of node `id`.
ir::NodeId other_result(ir::Graph& graph, ir::NodeId id, std::int64_t which);

/// Returns the node in another shape with as many elements.
ir::NodeId in_shape(ir::Graph& graph, ir::NodeId x, ir::ListId shape);

/// Returns the step as a graph of scalars: its inputs are the operands, its outputs the next states and the results.
ir::Graph graph_of_step(const ir::Graph& graph, ir::NodeId id, const ir::Steps& steps);
/// Replaces the lines by those of `step`, a graph_of_step() that a pass has rewritten.
ir::Steps with_lines_of(const ir::Graph& step, const ir::Steps& steps);

/// Applies `pass` to the graph of each step, and replaces the lines of the `steps` nodes by its result.
ir::Graph rewrite_steps(ir::Graph graph, const std::function<ir::Graph(ir::Graph)>& pass);

/// Writes out all `steps` nodes, for targets that have no kernels for them.
/// Errors    UnsupportedError for more than `most` nodes.
ir::Graph write_out_steps(ir::Graph graph, std::size_t most);

}  // namespace onepass::compiler
