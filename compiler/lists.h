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

/// A place in an array that is assembled: the array, and how many elements stand before it, by the array's layout.
struct PlaceInArray {
  ir::NodeId array;
  std::int64_t offset;
};

/// Which values of a graph are lists.
///   read     a Piecewise that puts arguments, or numbers, side by side: it is never computed
///   stored   a value of which each result is one place along an axis: it is stored into the results
/// And which are assembled: a Piecewise of computed values of one element each. Each of these is stored at its place in the array, by whichever
/// kernel computes it; nothing computes the whole.
struct Lists {
  std::unordered_map<ir::NodeId, ArrayList> read, stored;
  std::unordered_map<ir::NodeId, std::vector<ir::NodeId>> assembled;    // of what, each once, in the graph's order
  std::unordered_map<ir::NodeId, std::vector<PlaceInArray>> placed_in;  // the other way round; one value may stand at several places

  const ArrayList* reads(ir::NodeId id) const {
    const auto it = read.find(id);
    return it == read.end() ? nullptr : &it->second;
  }
  const ArrayList* stores(ir::NodeId id) const {
    const auto it = stored.find(id);
    return it == stored.end() ? nullptr : &it->second;
  }
  bool assembles(ir::NodeId id) const { return assembled.contains(id); }
  /// Where a value stands in assembled arrays.
  std::span<const PlaceInArray> places_of(ir::NodeId id) const {
    const auto it = placed_in.find(id);
    return it == placed_in.end() ? std::span<const PlaceInArray>() : it->second;
  }
  /// The values that have to be stored: results, but for those that are members of one; and what arrays are assembled of.
  std::vector<ir::NodeId> wanted(const ir::Graph& graph) const;
};

inline constexpr std::size_t kFewestMembers = 8;     // below, boxes are pieces of their own: loops are cut at their edges
inline constexpr std::int64_t kSmallestMember = 16;  // elements: of smaller arrays a copy costs less than what is found through a table

/// `layouts`: of the graph's inputs and outputs.
Lists find_lists(const ir::Graph& graph, std::span<const Layout> layouts);

/// Adds the arrays that are assembled. For targets whose runtime can place a stored value within another (runtime/stored_values).
void find_assembled(const ir::Graph& graph, std::span<const Layout> layouts, Lists& lists);

}  // namespace onepass::compiler
