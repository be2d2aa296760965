// Symbols of axes: which axes of which nodes are the same loop. Every axis of every node gets a symbol; elementwise operators unify those
// of their operands. A reshape that merges axes makes a product symbol, so that a value and its flattened form still have one domain. For
// fuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

class AxisSymbols {
 public:
  explicit AxisSymbols(const ir::Graph& graph);

  /// What reductions and rows are compared by: products kept; 0 for units.
  std::uint32_t axis(ir::NodeId id, std::size_t i) { return find(axes_of(id)[i]); }
  std::int64_t extent(std::uint32_t symbol) const { return extent_[symbol]; }
  /// Appends the symbol, or where it is a product its factors; nothing for units.
  void expand(std::uint32_t s, std::vector<std::uint32_t>& out);

 private:
  const ir::Graph& graph_;
  std::vector<std::size_t> begin_;  // where each node's begin in `axes_`
  std::vector<std::uint32_t> axes_;
  std::vector<std::uint32_t> parent_;
  std::vector<std::int64_t> extent_;
  std::vector<std::vector<std::uint32_t>> factors_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> products_;

  std::span<std::uint32_t> axes_of(std::size_t id) {
    return std::span(axes_).subspan(begin_[id], graph_.shape(static_cast<ir::NodeId>(id)).size());
  }
  std::uint32_t find(std::uint32_t s) {
    while (parent_[s] != s) s = parent_[s] = parent_[parent_[s]];
    return s;
  }
  std::uint32_t fresh(std::int64_t extent);
  void unify(std::uint32_t a, std::uint32_t b);
  void visit(ir::NodeId id);
  void piecewise(std::span<std::uint32_t> axes, ir::List shape, ir::List operands, ir::List attributes);
  void reshape(std::span<std::uint32_t> to, ir::List to_shape, std::span<const std::uint32_t> from, ir::List from_shape);
};

/// Of a slice whose axis keeps its extent: the axis as it is, or backwards.
inline bool is_whole(ir::List attributes, ir::List shape, std::size_t i) { return attributes[i] == 0 && attributes[shape.size() + i] == 1; }
inline bool is_flip(ir::List attributes, ir::List shape, std::size_t i) {
  return attributes[i] == shape[i] - 1 && attributes[shape.size() + i] == -1;
}

}  // namespace onepass::compiler
