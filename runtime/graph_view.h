// Converts between graphs and GraphViews. Used by function.cpp and formula.cpp.
#pragma once

#include "ir/graph.h"
#include "onepass/graph_view.h"

namespace onepass {

struct GraphViewAccess {  // friend of GraphView
  static GraphView make(ir::Graph graph);
  static ir::Graph graph(const GraphView& view);  // returns a copy; without nodes for an empty view
};

}  // namespace onepass
