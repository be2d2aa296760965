// lists: values that lie in memory as arrays of their own, one for each place along an axis. A kernel finds these through a table, so a loop
// over them is one loop, whatever their number.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Element strides of an argument or of a stored value; none: contiguous, row-major.
using Layout = std::optional<std::vector<std::int64_t>>;

struct ArrayList {
  std::size_t axis = 0;               // of the value: along it stand the members
  std::vector<ir::NodeId> members;    // arguments, or results; or numbers (Slot), which stand in the table themselves
  std::vector<std::int64_t> strides;  // of every member, by the value's axes; 0 along `axis`
  bool numbers = false;
};

/// Which values of a graph are lists.
///   read     a Piecewise that puts arguments, or numbers, side by side: it is never computed
///   stored   a value of which each result is one place along an axis: it is stored into the results
struct Lists {
  std::unordered_map<ir::NodeId, ArrayList> read, stored;

  const ArrayList* reads(ir::NodeId id) const {
    const auto it = read.find(id);
    return it == read.end() ? nullptr : &it->second;
  }
  const ArrayList* stores(ir::NodeId id) const {
    const auto it = stored.find(id);
    return it == stored.end() ? nullptr : &it->second;
  }
  /// The values that the caller wants, whole: results, but for those that are members of one.
  std::vector<ir::NodeId> wanted(const ir::Graph& graph) const;
};

inline constexpr std::size_t kFewestMembers = 8;     // below, boxes are pieces of their own: loops are cut at their edges
inline constexpr std::int64_t kSmallestMember = 16;  // elements: of smaller arrays a copy costs less than what is found through a table

/// `layouts`: of the graph's inputs and outputs.
Lists find_lists(const ir::Graph& graph, std::span<const Layout> layouts);

}  // namespace onepass::compiler
