// Makes a GraphView of a graph. Used by function.cpp and formula.cpp.
#pragma once

#include "ir/graph.h"
#include "onepass/graph_view.h"

namespace onepass {

struct GraphViewAccess {  // GraphView's friend
  static GraphView make(ir::Graph graph);
  static ir::Graph graph(const GraphView& view);  // a copy; without nodes where it has none
};

}  // namespace onepass
