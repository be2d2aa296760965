// The maps through which the loops of a materialized value read another value: for each axis of the value, the indices that the loops select.
// find_stored_ahead (recompute.h) follows them from the outputs back. Equal maps need a value only once, however views lead to it:
//   v = x*2; y = stack([v, v + 1]); y[0] + y[1]    v is read through one map
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Copies of a value that one iteration of a loop stores, at most, and so computes only once (Planner::in_copies).
inline constexpr double kFewCopies = 8;

struct ReadMap {
  /// The index along an axis of the value: start + step * source, with low <= index < high.
  struct Axis {
    std::uint64_t source = 0;  // a loop, or a hash of how loops give the index; 0: none, the index is `start`
    std::int64_t start = 0, step = 0;
    std::int64_t low = 0, high = 1;
    std::int64_t extent = 1;                         // of the axis
    std::shared_ptr<const std::vector<Axis>> parts;  // the axes that a Reshape joined or split into this axis and others
    std::size_t at = 0;                              // its place among these
  };
  std::shared_ptr<const std::vector<Axis>> axes;  // null: the loops themselves, in order
  std::uint64_t hash = 0;                         // of the axes, without low and high
  double elements = 0;                            // how often the loops compute an element of the value
  double most = 1;                                // how often they read an element, at most: windows read it several times
  double copies = 1;                              // how many copies of the value, or boxes beside its box, each iteration stores
};

/// What is known of the node whose operands are read.
struct ReaderFacts {
  bool reduces = false;     // a reduction in the same loops reads it, or it is one
  bool is_hoisted = false;  // the operand is computed outside of the loops along which the node repeats it
  bool many_boxes = false;
};

/// Returns the map of a value's own loops.
ReadMap own_map(const ir::Graph& graph, ir::NodeId id);

/// Returns the map through which the loops read the k-th operand of a node, given their map of the node. Returns nullopt if they read nothing.
std::optional<ReadMap> map_of_operand(const ir::Graph& graph, ir::NodeId id, std::size_t k, const ReadMap& map, const ReaderFacts& facts);

/// Returns the number of edges of boxes of a Pad or Piecewise inside the part that is read.
std::uint32_t edges_inside(const ir::Graph& graph, ir::NodeId id, const ReadMap& map);

/// Keeps one of the equal maps.
void unite(std::vector<ReadMap>& maps);

/// Returns the extent of the equal parts that the boxes of a Piecewise form along an axis, in order and with equal other extents. Returns 0 if
/// they are something else.
std::int64_t parts_of_axis(const ir::Graph& graph, ir::NodeId id, std::size_t axis);

}  // namespace onepass::compiler
