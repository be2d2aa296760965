// A node as one expression, for tests that compare a pass's result: mul0(g, where(isnan(x), 1, y)).
#pragma once

#include <cstdio>
#include <string>

#include "ir/graph.h"

namespace onepass::test {

inline std::string node_text(const ir::Graph& graph, ir::NodeId id) {
  using ir::Op;
  const ir::Node node = graph[id];
  auto list_text = [](ir::List list) {
    std::string text;
    for (std::int64_t v : list) text += (text.empty() ? "" : ",") + std::to_string(v);
    return "[" + text + "]";
  };
  switch (node.op) {
    case Op::Input: return graph.inputs[node.bits].name;
    case Op::Slot: return "slot" + std::to_string(node.bits);
    case Op::Constant: {
      const double value = ir::double_of(node.dtype, node.bits);
      if (node.dtype == DType::Bool) return value ? "true" : "false";
      if (node.dtype == DType::I64) return std::to_string(static_cast<long long>(node.bits));
      if (is_integer(node.dtype)) return std::to_string(static_cast<long long>(value));
      char text[40];
      std::snprintf(text, sizeof text, "%.9g", value);
      return value != value ? "nan" : text;
    }
    default: break;
  }
  std::string text(ir::info(node.op).text);
  if (node.op == Op::Cast || node.op == Op::Bitcast) text += "<" + std::string(name_of(node.dtype)) + ">";
  if (node.op == Op::Reshape || node.op == Op::Broadcast) text += list_text(graph.shape(id));
  if (node.attributes) text += list_text(graph.attributes(id));
  text += "(";
  for (std::int64_t o : graph.operands(id)) text += (text.back() == '(' ? "" : ", ") + node_text(graph, static_cast<ir::NodeId>(o));
  return text + ")";
}

/// Returns the first output as text.
inline std::string node_text(const ir::Graph& graph) { return node_text(graph, graph.outputs.at(0)); }

}  // namespace onepass::test
