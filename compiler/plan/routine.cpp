// See routine.h.
#include "compiler/plan/routine.h"

#include <fmt/format.h>

#include "onepass/error.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::NodeId;
using ir::Op;

namespace {

std::vector<std::int64_t> strides_of(List shape, const Layout& layout) {
  if (layout) return *layout;
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// The axis that the routine works along.
std::size_t axis_of(const Graph& graph, NodeId id) {
  return graph[id].op == Op::Search ? graph.shape(id).size() - 1 : static_cast<std::size_t>(graph.attributes(id)[0]);
}

// The node that has as many elements along the axis as the routine finds results: what Assign puts, else what it makes.
NodeId places_of_results(const Graph& graph, NodeId id) { return graph[id].op == Op::Assign ? graph.operand(id, 1) : id; }

std::int64_t output_of(const Graph& graph, NodeId id) {
  for (std::size_t k = 0; k < graph.outputs.size(); ++k)
    if (graph.outputs[k] == id) return static_cast<std::int64_t>(k);
  return -1;
}

const Layout& layout_of_result(const Graph& graph, NodeId id, std::span<const Layout> layouts, std::span<const Layout> targets) {
  const std::int64_t output = output_of(graph, id);
  return output >= 0 && !targets.empty() ? targets[static_cast<std::size_t>(output)] : layouts[id];
}

}  // namespace

std::vector<Planned> plan_routine(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                                  std::span<const Layout> targets) {
  const NodeId id = partition.groups[group].roots.at(0);
  if (graph.elements(id) == 0) return {};
  std::vector<Planned> out(1);
  auto& [nest, numbers] = out[0];
  const List shape = graph.shape(id);
  const std::size_t axis = axis_of(graph, id);
  nest.routine = graph[id].op;
  nest.variant = static_cast<std::uint8_t>(graph.attributes(id).back());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (i != axis && shape[i] != 1) numbers.extents.push_back(shape[i]);
  nest.outer = static_cast<std::uint8_t>(numbers.extents.size());
  numbers.extents.push_back(graph.shape(graph.operand(id, 0))[axis]);
  numbers.results = graph.shape(places_of_results(graph, id))[axis];
  const auto add = [&](NodeId node, const Layout& layout, bool written) {
    const List of = graph.shape(node);
    const std::vector<std::int64_t> strides = strides_of(of, layout);
    std::vector<std::int64_t> coefficients;
    for (std::size_t i = 0; i < of.size(); ++i)
      if (i != axis && of[i] != 1) coefficients.push_back(strides[i]);
    coefficients.push_back(strides[axis]);
    const auto place = static_cast<std::uint32_t>(nest.buffers.size());
    nest.linears.push_back({std::vector<Coefficient>(coefficients.size(), Coefficient::General)});
    nest.accesses.push_back({place, place});
    nest.buffers.push_back({graph[node].dtype, written});
    numbers.offsets.push_back(0);
    numbers.coefficients.push_back(std::move(coefficients));
    numbers.buffers.push_back(node);
    numbers.members.emplace_back();
    numbers.outputs.push_back(0);
  };
  for (const std::int64_t o : graph.operands(id)) add(static_cast<NodeId>(o), layouts[static_cast<std::size_t>(o)], false);
  add(id, layout_of_result(graph, id, layouts, targets), true);
  return out;
}

std::string verify_routine(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                           std::span<const Planned> pieces, std::span<const Layout> targets) {
  const auto fail = [&](std::string_view what) {
    return fmt::format("plan: group {}, a routine: {}\n{}", group, what,
                       pieces.empty() ? std::string() : print(pieces[0].nest, pieces[0].numbers));
  };
  const std::vector<NodeId>& roots = partition.groups[group].roots;
  if (roots.size() != 1 || !ir::is_routine(graph[roots[0]].op)) return fail("its root is no routine's result");
  const NodeId id = roots[0];
  if (graph.elements(id) == 0) return pieces.empty() ? std::string() : fail("nothing is to be computed");
  if (pieces.size() != 1) return fail("it is one piece");
  const auto& [nest, numbers] = pieces[0];
  const List operands = graph.operands(id), shape = graph.shape(id);
  if (nest.routine != graph[id].op || !nest.body.empty()) return fail("another operator is computed");
  if (nest.variant != graph.attributes(id).back()) return fail("it is another variant");
  if (nest.buffers.size() != operands.size() + 1 || numbers.buffers.size() != nest.buffers.size()) return fail("an array is left out");
  std::int64_t rows = 1;
  for (std::uint32_t l = 0; l < nest.outer; ++l) rows *= numbers.extents[l];
  if (rows * numbers.results != graph.elements(places_of_results(graph, id)) ||
      rows * numbers.extents.back() != graph.elements(graph.operand(id, 0)))
    return fail("rows are left out");
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
    const bool written = b == operands.size();
    const NodeId node = written ? id : static_cast<NodeId>(operands[b]);
    if (numbers.buffers[b] != node || nest.buffers[b].written != written || nest.buffers[b].dtype != graph[node].dtype)
      return fail("an array is another");
    if (!written && graph[node].op != Op::Input && (partition.group_of[node] >= group || ir::is_view(graph[node].op)))
      return fail("an operand is not stored before");
    // the places of the first element's neighbours along each axis
    const std::vector<std::int64_t> strides =
        strides_of(graph.shape(node), written ? layout_of_result(graph, id, layouts, targets) : layouts[node]);
    const std::size_t axis = axis_of(graph, id);
    std::size_t next = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i == axis) continue;
      if (shape[i] == 1) continue;
      if (next >= nest.outer || numbers.extents[next] != shape[i] || numbers.coefficients[b][next] != strides[i])
        return fail("a stride is wrong");
      ++next;
    }
    if (next != nest.outer || numbers.coefficients[b][next] != strides[axis] || numbers.offsets[b] != 0) return fail("a stride is wrong");
  }
  return {};
}

}  // namespace onepass::compiler
