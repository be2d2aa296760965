// Assigns a symbol to every axis of every node. Equal symbols mean the same loop. Elementwise operators unify the symbols of their
// operands. A reshape that merges axes creates a product symbol, so that a value and its flattened form have the same domain. Used by fuse.
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

  /// Returns the axis symbol with products not expanded, for comparing reductions and reduction spaces; 0 for an axis of extent 1.
  std::uint32_t axis(ir::NodeId id, std::size_t i) { return find(axes_of(id)[i]); }
  std::int64_t extent(std::uint32_t symbol) const { return extent_[symbol]; }
  /// Appends the symbol, or the factors of a product symbol. Appends no symbol for extent 1.
  void expand(std::uint32_t s, std::vector<std::uint32_t>& out);

 private:
  const ir::Graph& graph_;
  std::vector<std::size_t> begin_;  // start of each node's axes in `axes_`
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
  void steps(std::span<std::uint32_t> axes, ir::List shape, ir::List operands);
  void piecewise(std::span<std::uint32_t> axes, ir::List shape, ir::List operands, ir::List attributes);
  void reshape(std::span<std::uint32_t> to, ir::List to_shape, std::span<const std::uint32_t> from, ir::List from_shape);
};

/// True if the slice takes axis i unchanged (is_whole) or reversed (is_flip).
inline bool is_whole(ir::List attributes, ir::List shape, std::size_t i) { return attributes[i] == 0 && attributes[shape.size() + i] == 1; }
inline bool is_flip(ir::List attributes, ir::List shape, std::size_t i) {
  return attributes[i] == shape[i] - 1 && attributes[shape.size() + i] == -1;
}

}  // namespace onepass::compiler
