#include "runtime/graph_program.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "compiler/record.h"
#include "onepass/error.h"

namespace onepass::runtime {

using compiler::type_text;
using compiler::Value;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;

namespace {

// Appends the nodes of `graph` to the recording. `inputs`: the recorded values for its inputs.
void add_graph(compiler::Recorder& recorder, const Graph& graph, std::span<const Value> inputs) {
  Graph& out = recorder.graph;
  std::vector<NodeId> now(graph.size(), ir::kNoNode);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::Input& input = graph.inputs[i];
    const Value given = recorder.node_of(inputs[i], input.dtype);
    if (recorder.dtype(given) != input.dtype)
      throw DTypeError(fmt::format("graph: input {} is {}, but it was recorded as {}", input.name, name_of(recorder.dtype(given)),
                                   name_of(input.dtype)));
    if (!std::ranges::equal(recorder.shape(given), graph.list(input.shape)))
      throw ShapeError(
          fmt::format("graph: input {} is {}, but it was recorded as {}; a graph runs only with the shapes that it was recorded with",
                      input.name, type_text(input.dtype, recorder.shape(given)), type_text(input.dtype, graph.list(input.shape))));
    now[input.node] = given.node;
  }
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> slots(graph.slots.size(), kNone);
  std::vector<std::uint32_t> sources(graph.sources.size(), 0);
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    if (graph.sources[i].empty()) continue;
    sources[i] = static_cast<std::uint32_t>(out.sources.size());
    out.sources.push_back(graph.sources[i]);
  }
  std::vector<std::int64_t> operands;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (now[id] != ir::kNoNode) continue;
    Node node = graph[id];
    operands.clear();
    for (const std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.operands = out.intern(operands);
    node.shape = out.intern(graph.shape(id));
    node.attributes = out.intern(graph.attributes(id));
    out.current_source = sources[graph.source_of[id]];
    out.current_origin = graph.origin_of[id] == ir::kNoNode ? ir::kNoNode : now[graph.origin_of[id]];
    if (node.op == Op::Slot) {  // with the recorded value
      std::uint32_t& slot = slots[node.bits];
      if (slot == kNone) {
        slot = static_cast<std::uint32_t>(out.slots.size());
        out.slots.push_back(graph.slots[node.bits]);
      }
      now[id] = out.slot_node(slot, node.shape);
    } else {
      now[id] = out.add(node);
    }
  }
  out.current_source = 0;
  out.current_origin = ir::kNoNode;
  for (std::size_t o = 0; o < graph.outputs.size(); ++o) {
    out.outputs.push_back(now[graph.outputs[o]]);
    out.output_names.push_back(o < graph.output_names.size() ? graph.output_names[o] : fmt::format("out{}", o));
  }
}

}  // namespace

FormulaProgram graph_program(Graph graph) {
  if (graph.outputs.empty()) throw ValueError("graph: the graph has no outputs, so there is nothing to compute");
  FormulaProgram program;
  for (const ir::Input& input : graph.inputs) program.inputs.push_back(input.name);
  for (std::size_t o = 0; o < graph.outputs.size(); ++o)
    program.outputs.push_back(o < graph.output_names.size() ? graph.output_names[o] : fmt::format("out{}", o));
  const auto shared = std::make_shared<const Graph>(std::move(graph));
  program.record = [shared](compiler::Recorder& recorder, std::span<const Value> values) { add_graph(recorder, *shared, values); };
  return program;
}

}  // namespace onepass::runtime
