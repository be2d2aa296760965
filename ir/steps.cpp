// See steps.h.
#include "ir/steps.h"

#include <algorithm>

#include "onepass/error.h"

namespace onepass::ir {

namespace {

constexpr std::size_t kHead = 7, kLine = 6;  // numbers before the lines, and for each line

}  // namespace

std::vector<std::int64_t> attributes_of(const Steps& steps) {
  std::vector<std::int64_t> list = {steps.which,
                                    steps.count,
                                    steps.states,
                                    steps.arrays,
                                    static_cast<std::int64_t>(steps.results.size()),
                                    static_cast<std::int64_t>(steps.lines.size()),
                                    std::int64_t{steps.reverse}};
  for (const StepLine& line : steps.lines) {
    list.insert(list.end(),
                {static_cast<std::int64_t>(line.op), static_cast<std::int64_t>(line.dtype), static_cast<std::int64_t>(line.bits)});
    list.insert(list.end(), line.operands.begin(), line.operands.end());
  }
  list.insert(list.end(), steps.next.begin(), steps.next.end());
  list.insert(list.end(), steps.results.begin(), steps.results.end());
  return list;
}

Steps steps_of(List attributes, std::size_t operands, std::string& broken) {
  Steps s;
  const auto fail = [&](std::string_view what) {
    broken = what;
    return s;
  };
  if (attributes.size() < kHead)
    return fail("attributes must be a result, the numbers of steps, states, arrays, results and lines, the direction, then the lines");
  s.which = attributes[0], s.count = attributes[1], s.states = attributes[2], s.arrays = attributes[3];
  const std::int64_t results = attributes[4], lines = attributes[5], most = static_cast<std::int64_t>(attributes.size());
  if (s.count < 1 || s.states < 1 || s.states > most || s.arrays < 0 || results < 0 || results > most || lines < 0 || lines > most)
    return fail("at least one step and one state are required");
  if (attributes[6] != 0 && attributes[6] != 1) return fail("the direction must be 0 or 1");
  s.reverse = attributes[6] == 1;
  if (s.states + s.arrays > static_cast<std::int64_t>(operands)) return fail("states and arrays must be operands");
  s.captures = static_cast<std::int64_t>(operands) - s.states - s.arrays;
  if (attributes.size() != kHead + kLine * static_cast<std::size_t>(lines) + static_cast<std::size_t>(s.states + results))
    return fail("the numbers of lines, next states and results must match the attributes");
  if (s.which < 0 || s.which >= s.states + results) return fail("the result index is out of range");
  auto at = attributes.begin() + kHead;
  for (std::int64_t i = 0; i < lines; ++i, at += kLine) {
    if (at[0] < 0 || at[0] >= kOpCount || at[1] < 0 || at[1] >= kDTypeCount) return fail("a line must have an operator and a type");
    const StepLine line{static_cast<Op>(at[0]), static_cast<DType>(at[1]), static_cast<std::uint64_t>(at[2]), {at[3], at[4], at[5]}};
    const std::int64_t arity = line.op == Op::Constant ? 0 : info(line.op).arity, before = s.values();
    if (line.op != Op::Constant && !is_elementwise(line.op)) return fail("a line must be elementwise or a constant");
    if (line.op != Op::Constant && line.bits != 0) return fail("only constants may have bits");
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::int64_t o = line.operands[static_cast<std::size_t>(k)];
      if (k < arity ? o < 0 || o >= before : o != StepLine::kNone) return fail("a line may read only earlier values");
    }
    s.lines.push_back(line);
  }
  s.next.assign(at, at + s.states);
  s.results.assign(at + s.states, attributes.end());
  for (const std::vector<std::int64_t>* const list : {&s.next, &s.results})
    for (const std::int64_t v : *list)
      if (v < 0 || v >= s.values()) return fail("states and results must be values of the step");
  return s;
}

Steps steps_of(const Graph& graph, NodeId id) {
  std::string broken;
  Steps s = steps_of(graph.attributes(id), graph.operands(id).size(), broken);
  if (!broken.empty()) throw InternalError("steps: " + broken);
  return s;
}

std::vector<DType> types_of(const Graph& graph, List operands, const Steps& steps) {
  std::vector<DType> types;
  for (const std::int64_t o : operands) types.push_back(graph[static_cast<NodeId>(o)].dtype);
  for (const StepLine& line : steps.lines) types.push_back(line.dtype);
  return types;
}

std::optional<std::int64_t> going_state(const Steps& s, std::span<const std::uint32_t> results) {
  if (std::ranges::any_of(results, [&](std::uint32_t r) { return r >= s.states; })) return std::nullopt;
  const auto line_of = [&](std::int64_t value) {
    return value < s.operands() ? nullptr : &s.lines[static_cast<std::size_t>(value - s.operands())];
  };
  for (std::int64_t g = 0; g < s.states; ++g) {
    const std::int64_t next = s.next[static_cast<std::size_t>(g)];
    const StepLine* const both = line_of(next);
    if (!both || both->op != Op::BitwiseAnd || both->dtype != DType::Bool || (both->operands[0] != g && both->operands[1] != g)) continue;
    bool ends = true;
    for (std::int64_t i = 0; i < s.states; ++i) {
      const std::int64_t value = s.next[static_cast<std::size_t>(i)];
      const StepLine* const chosen = line_of(value);
      const bool stays = value == i || (chosen && chosen->op == Op::Where && chosen->operands[2] == i &&
                                        (chosen->operands[0] == next || chosen->operands[0] == g));
      ends = ends && (i == g || stays);
    }
    if (ends) return g;
  }
  return std::nullopt;
}

std::string broken_steps(const Graph& graph, NodeId id) {
  std::string broken;
  const List operands = graph.operands(id), shape = graph.shape(id);
  const Steps s = steps_of(graph.attributes(id), operands.size(), broken);
  if (!broken.empty()) return broken;
  const std::vector<DType> types = types_of(graph, operands, s);
  if (shape.size() != (s.is_last() ? 1u : 2u) || (!s.is_last() && shape[0] != s.count))
    return "the result must be [elements] or [steps, elements]";
  for (std::int64_t i = 0; i < s.operands(); ++i) {
    const List of = graph.shape(static_cast<NodeId>(operands[static_cast<std::size_t>(i)]));
    const bool is_array = i >= s.states && i < s.states + s.arrays;
    if (of.size() != (is_array ? 2u : 1u) || (is_array && of[0] != s.count) || (of.back() != 1 && of.back() != shape.back()))
      return "operands must be [elements], and arrays of the steps [steps, elements], where elements may be 1";
  }
  for (std::size_t i = 0; i < s.lines.size(); ++i) {
    const StepLine& line = s.lines[i];
    if (line.op == Op::Constant) continue;
    std::vector<DType> of;
    for (const std::int64_t o : line.operands)
      if (o != StepLine::kNone) of.push_back(types[static_cast<std::size_t>(o)]);
    DType made = DType::Bool;
    const TypeRule rule = info(line.op).types;
    if (rule == TypeRule::Convert) continue;
    if (rule == TypeRule::Reinterpret ? size_of(of[0]) != size_of(line.dtype) : !result_dtype(line.op, of, made) || made != line.dtype)
      return "the type of a line must be the result type of its operator";
  }
  for (std::size_t k = 0; k < s.next.size(); ++k)
    if (types[static_cast<std::size_t>(s.next[k])] != types[k]) return "a state must keep its type";
  return graph[id].dtype == types[static_cast<std::size_t>(s.value())] ? "" : "the result must have the type of its value";
}

}  // namespace onepass::ir
