// See routine.h.
#include "compiler/plan/routine.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compiler/strided.h"
#include "ir/steps.h"
#include "onepass/error.h"

namespace onepass::compiler {

using ir::Graph;
using ir::List;
using ir::NodeId;
using ir::Op;
using ir::StepLine;
using ir::Steps;
using ir::TypeRule;

namespace {

std::vector<std::int64_t> strides_of(List shape, const Layout& layout) { return layout ? *layout : contiguous_strides(shape); }

// Returns the axis that the routine works along.
std::size_t axis_of(const Graph& graph, NodeId id) {
  return graph[id].op == Op::Search ? graph.shape(id).size() - 1 : static_cast<std::size_t>(graph.attributes(id)[0]);
}

// Returns the node with as many elements along the axis as the routine has results: the updates of Assign, else the result.
NodeId counts_results(const Graph& graph, NodeId id) { return graph[id].op == Op::Assign ? graph.operand(id, 2) : id; }

// Returns the strides of an array's elements along the axes of the result; 0 along an axis of which the array has only one element.
std::vector<std::int64_t> strides_in(List result, List shape, std::size_t axis, const Layout& layout) {
  std::vector<std::int64_t> strides = strides_of(shape, layout);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (i != axis && shape[i] != result[i]) strides[i] = 0;
  return strides;
}

std::int64_t output_of(const Graph& graph, NodeId id) {
  for (std::size_t k = 0; k < graph.outputs.size(); ++k)
    if (graph.outputs[k] == id) return static_cast<std::int64_t>(k);
  return -1;
}

const Layout& layout_of_result(const Graph& graph, NodeId id, std::span<const Layout> layouts, std::span<const Layout> targets) {
  const std::int64_t output = output_of(graph, id);
  return output >= 0 && !targets.empty() ? targets[static_cast<std::size_t>(output)] : layouts[id];
}

// ------------------------------------------------------------------------------------------------ steps

// Halves are computed and stored as F32, unrounded; arrays of the caller hold halves.
bool is_unrounded(const Graph& graph, NodeId id) { return is_half(graph[id].dtype) && graph[id].op != Op::Input; }
DType memory_type(const Graph& graph, NodeId id) { return is_unrounded(graph, id) ? DType::F32 : graph[id].dtype; }

// Where steps read an operand or store a result: element j of step t is element offset + t·along[0] + j·along[1] of the array.
struct StepAccess {
  std::int64_t offset = 0;
  std::array<std::int64_t, 2> along = {};
};

// `layout` is the layout of the array, which is below the views of an operand.
StepAccess access_of_steps(const Graph& graph, NodeId id, const Layout& layout, bool reverse) {
  const NodeId base = base_of_views(graph, id);
  const std::optional<Strided> read = as_strided(graph, id, strides_of(graph.shape(base), is_unrounded(graph, base) ? Layout() : layout));
  if (!read) throw InternalError(fmt::format("plan: steps read %{}, which has no strides\n{}", id, ir::print(graph)));
  const List shape = graph.shape(id);
  StepAccess access{read->offset, {shape.size() == 2 ? read->strides[0] : 0, shape.back() == 1 ? 0 : read->strides.back()}};
  if (reverse && shape.size() == 2) {
    access.offset += (shape[0] - 1) * access.along[0];
    access.along[0] = -access.along[0];
  }
  return access;
}

// Returns which element of the array below the views element `at` of a node is, relative to the array's first element.
std::int64_t element_below(const Graph& graph, NodeId id, std::vector<std::int64_t> at, const std::vector<std::int64_t>& strides) {
  for (; ir::is_view(graph[id].op); id = graph.operand(id, 0)) {
    const List to = graph.shape(id), from = graph.shape(graph.operand(id, 0)), attributes = graph.attributes(id);
    std::vector<std::int64_t> below(from.size(), 0);
    if (graph[id].op == Op::Reshape) {
      std::int64_t element = 0;
      for (std::size_t i = 0; i < to.size(); ++i) element = element * to[i] + at[i];
      for (std::size_t i = from.size(); i-- > 0; element /= from[i]) below[i] = element % from[i];
    } else {
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (graph[id].op == Op::Permute) below[static_cast<std::size_t>(attributes[i])] = at[i];
        else if (graph[id].op == Op::Slice) below[i] = attributes[i] + at[i] * attributes[to.size() + i];
        else below[i] = from[i] == to[i] ? at[i] : 0;
      }
    }
    at = std::move(below);
  }
  std::int64_t element = 0;
  for (std::size_t i = 0; i < at.size(); ++i) element += at[i] * strides[i];
  return element;
}

// True if the access is that of the node at some points. It is affine, as are all views but some reshapes.
bool reads_elements(const Graph& graph, NodeId id, const Layout& layout, const StepAccess& access, bool reverse) {
  const NodeId base = base_of_views(graph, id);
  const std::vector<std::int64_t> strides = strides_of(graph.shape(base), is_unrounded(graph, base) ? Layout() : layout);
  const List shape = graph.shape(id);
  const std::int64_t steps = shape.size() == 2 ? shape[0] : 1, elements = shape.back();
  if ((shape.size() == 1 && access.along[0] != 0) || (elements == 1 && access.along[1] != 0)) return false;
  for (const std::int64_t t : {std::int64_t{0}, std::int64_t{1}, steps / 2, steps - 1})
    for (const std::int64_t j : {std::int64_t{0}, std::int64_t{1}, elements / 2, elements - 1}) {
      if (t >= steps || j >= elements) continue;
      std::vector<std::int64_t> at = {j};
      if (shape.size() == 2) at.insert(at.begin(), reverse ? steps - 1 - t : t);
      if (element_below(graph, id, std::move(at), strides) != access.offset + t * access.along[0] + j * access.along[1]) return false;
    }
  return true;
}

// Returns the steps with F32 lines instead of half lines. Only conversions to a half keep their type. The operand of a conversion from a
// half is rounded first, unless it is such a line or an array of the caller.
Steps with_f32_lines(const Steps& steps, const std::vector<DType>& types, const std::vector<bool>& is_rounded) {
  Steps made = steps;
  made.lines.clear();
  std::vector<std::int64_t> number, rounded(types.size(), StepLine::kNone);
  const auto converts = [](const StepLine& line) {
    const TypeRule rule = ir::info(line.op).types;
    return rule == TypeRule::Convert || rule == TypeRule::Reinterpret;
  };
  for (std::int64_t v = 0; v < steps.operands(); ++v) number.push_back(v);
  const auto add = [&](const StepLine& line) {
    made.lines.push_back(line);
    return made.values() - 1;
  };
  for (const StepLine& of : steps.lines) {
    StepLine line = of;
    for (std::int64_t& o : line.operands)
      if (o != StepLine::kNone) o = number[static_cast<std::size_t>(o)];
    if (!converts(line)) {
      line.dtype = computed_type(line.dtype);
    } else if (const auto from = static_cast<std::size_t>(of.operands[0]); is_half(types[from])) {
      const std::size_t operands = is_rounded.size();
      std::int64_t& value = rounded[from];
      if (value == StepLine::kNone)
        value = (from < operands ? is_rounded[from] : converts(steps.lines[from - operands]))
                    ? number[from]
                    : add({Op::Cast, types[from], 0, {number[from], StepLine::kNone, StepLine::kNone}});
      line.operands[0] = value;
      if (line.op == Op::Bitcast && is_half(line.dtype))
        line.operands[0] = add({Op::Bitcast, DType::U16, 0, {value, StepLine::kNone, StepLine::kNone}});
    }
    number.push_back(add(line));
  }
  for (std::vector<std::int64_t>* const list : {&made.next, &made.results})
    for (std::int64_t& v : *list) v = number[static_cast<std::size_t>(v)];
  return made;
}

// Returns the attributes of a steps kernel as for the first result of a single step, so that equal kernels share code. The direction is in
// the strides.
std::vector<std::int64_t> code_of_steps(const Graph& graph, NodeId id) {
  const List operands = graph.operands(id);
  Steps steps = ir::steps_of(graph, id);
  const std::vector<DType> types = ir::types_of(graph, operands, steps);
  if (std::ranges::any_of(types, is_half)) {
    std::vector<bool> is_rounded;
    for (std::int64_t i = 0; i < steps.operands(); ++i)
      is_rounded.push_back(i >= steps.states &&
                           !is_unrounded(graph, base_of_views(graph, static_cast<NodeId>(operands[static_cast<std::size_t>(i)]))));
    steps = with_f32_lines(steps, types, is_rounded);
  }
  steps.which = 0, steps.count = 1, steps.reverse = false;
  return ir::attributes_of(steps);
}

std::vector<Planned> plan_steps(const Graph& graph, const std::vector<NodeId>& roots, std::span<const Layout> layouts,
                                std::span<const Layout> targets) {
  std::vector<Planned> out(1);
  auto& [nest, numbers] = out[0];
  const NodeId id = roots[0];
  nest.routine = Op::Steps;
  nest.outer = 1;
  nest.steps = code_of_steps(graph, id);
  const bool reverse = ir::steps_of(graph, id).reverse;
  numbers.extents = {graph.attributes(id)[1], graph.shape(id).back()};
  numbers.results = graph.shape(id).back();
  const auto add = [&](NodeId of, const Layout& layout, bool written) {
    const auto place = static_cast<std::uint32_t>(nest.buffers.size());
    const NodeId node = base_of_views(graph, of);
    const StepAccess access = access_of_steps(graph, of, layout, reverse);
    const std::int64_t along = access.along[1];
    nest.linears.push_back({{Coefficient::General, along == 0 ? Coefficient::Zero : along == 1 ? Coefficient::One : Coefficient::General}});
    nest.accesses.push_back({place, place});
    nest.buffers.push_back({memory_type(graph, node), written});
    numbers.offsets.push_back(access.offset);
    numbers.coefficients.push_back({access.along[0], access.along[1]});
    numbers.buffers.push_back(node);
    numbers.members.emplace_back();
    numbers.outputs.push_back(is_unrounded(graph, node) ? NestNumbers::kUnrounded : 0);
  };
  for (const std::int64_t o : graph.operands(id)) add(static_cast<NodeId>(o), layouts[base_of_views(graph, static_cast<NodeId>(o))], false);
  for (const NodeId root : roots) {
    add(root, layout_of_result(graph, root, layouts, targets), true);
    nest.results.push_back(static_cast<std::uint32_t>(graph.attributes(root)[0]));
  }
  return out;
}

std::string_view wrong_steps(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                             std::span<const Planned> pieces, std::span<const Layout> targets) {
  const std::vector<NodeId>& roots = partition.groups[group].roots;
  if (graph.elements(roots[0]) == 0) return pieces.empty() ? std::string_view() : "there is nothing to compute";
  if (pieces.size() != 1) return "a single subdomain is required";
  const auto& [nest, numbers] = pieces[0];
  const NodeId id = roots[0];
  const bool reverse = ir::steps_of(graph, id).reverse;
  const List operands = graph.operands(id);
  if (nest.routine != Op::Steps || !nest.body.empty() || nest.kind != NestKind::Map || nest.outer != 1)
    return "the operator does not match the graph";
  if (nest.steps != code_of_steps(graph, id)) return "the steps do not match the graph";
  if (numbers.extents != std::vector{graph.attributes(id)[1], graph.shape(id).back()}) return "steps or elements are missing";
  if (nest.buffers.size() != operands.size() + roots.size() || numbers.buffers.size() != nest.buffers.size() ||
      numbers.coefficients.size() != nest.buffers.size() || nest.linears.size() != nest.buffers.size() ||
      nest.results.size() != roots.size())
    return "an array is missing";
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
    const bool written = b >= operands.size();
    const NodeId of = written ? roots[b - operands.size()] : static_cast<NodeId>(operands[b]), node = base_of_views(graph, of);
    if (numbers.buffers[b] != node || nest.buffers[b].written != written || nest.buffers[b].dtype != memory_type(graph, node) ||
        numbers.outputs[b] != (is_unrounded(graph, node) ? NestNumbers::kUnrounded : 0))
      return "an array does not match the graph";
    if (!written && graph[node].op != Op::Input && partition.group_of[node] >= group)
      return "an operand is not stored before the routine runs";
    if (written && (graph[node].op != Op::Steps || graph[node].operands != graph[id].operands || code_of_steps(graph, node) != nest.steps ||
                    nest.results[b - operands.size()] != graph.attributes(node)[0]))
      return "a result does not match the graph";
    const StepAccess access{numbers.offsets[b], {numbers.coefficients[b].at(0), numbers.coefficients[b].at(1)}};
    const Coefficient along = nest.linears[b].of.back();
    if (!reads_elements(graph, of, written ? layout_of_result(graph, node, layouts, targets) : layouts[node], access, reverse) ||
        (along == Coefficient::Zero && access.along[1] != 0) || (along == Coefficient::One && access.along[1] != 1))
      return "a stride is wrong";
  }
  return {};
}

}  // namespace

std::vector<Planned> plan_routine(const Graph& graph, const Partition& partition, std::uint32_t group, std::span<const Layout> layouts,
                                  std::span<const Layout> targets) {
  const NodeId id = partition.groups[group].roots.at(0);
  if (graph.elements(id) == 0) return {};
  if (graph[id].op == Op::Steps) return plan_steps(graph, partition.groups[group].roots, layouts, targets);
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
  numbers.results = graph.shape(counts_results(graph, id))[axis];
  const auto add = [&](NodeId node, const Layout& layout, bool written) {
    const std::vector<std::int64_t> strides = strides_in(shape, graph.shape(node), axis, layout);
    std::vector<std::int64_t> coefficients;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (i != axis && shape[i] != 1) coefficients.push_back(strides[i]);
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
  if (!roots.empty() && graph[roots[0]].op == Op::Steps) {
    const std::string_view wrong = wrong_steps(graph, partition, group, layouts, pieces, targets);
    return wrong.empty() ? std::string() : fail(wrong);
  }
  if (roots.size() != 1 || !ir::is_routine(graph[roots[0]].op)) return fail("the group output is not the result of a routine");
  const NodeId id = roots[0];
  if (graph.elements(id) == 0) return pieces.empty() ? std::string() : fail("there is nothing to compute");
  if (pieces.size() != 1) return fail("a single subdomain is required");
  const auto& [nest, numbers] = pieces[0];
  const List operands = graph.operands(id), shape = graph.shape(id);
  if (nest.routine != graph[id].op || !nest.body.empty()) return fail("the operator does not match the graph");
  if (nest.variant != graph.attributes(id).back()) return fail("the variant does not match the graph");
  if (nest.buffers.size() != operands.size() + 1 || numbers.buffers.size() != nest.buffers.size()) return fail("an array is missing");
  std::int64_t rows = 1;
  for (std::uint32_t l = 0; l < nest.outer; ++l) rows *= numbers.extents[l];
  if (rows * numbers.results != graph.elements(counts_results(graph, id)) ||
      rows * numbers.extents.back() != graph.elements(graph.operand(id, 0)))
    return fail("rows are missing");
  for (std::size_t b = 0; b < nest.buffers.size(); ++b) {
    const bool written = b == operands.size();
    const NodeId node = written ? id : static_cast<NodeId>(operands[b]);
    if (numbers.buffers[b] != node || nest.buffers[b].written != written || nest.buffers[b].dtype != graph[node].dtype)
      return fail("an array does not match the graph");
    if (!written && graph[node].op != Op::Input && (partition.group_of[node] >= group || ir::is_view(graph[node].op)))
      return fail("an operand is not stored before the routine runs");
    // Element offsets between neighbors along each axis.
    const std::size_t axis = axis_of(graph, id);
    const std::vector<std::int64_t> strides =
        strides_in(shape, graph.shape(node), axis, written ? layout_of_result(graph, id, layouts, targets) : layouts[node]);
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
