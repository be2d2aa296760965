// lists: array lists, which are values stored as separate arrays, one for each index along an axis. A kernel finds the arrays through a
// pointer table, so a loop over them is one loop, whatever their number.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace onepass::compiler {

/// Element strides of an argument or of a materialized value; nullopt: contiguous, row-major.
using Layout = std::optional<std::vector<std::int64_t>>;

struct ArrayList {
  std::size_t axis = 0;               // axis of the value along which the members are arranged
  std::vector<ir::NodeId> members;    // arguments or results; or numbers (Slot), whose values are in the table itself
  std::vector<std::int64_t> strides;  // strides of every member, by the value's axes; 0 along `axis`
  bool numbers = false;
};

/// A position in an assembled array: the array, and the element offset by the array's layout.
struct PlaceInArray {
  ir::NodeId array;
  std::int64_t offset;
};

/// The array lists and assembled arrays of a graph.
///   read       a Piecewise that puts arguments or numbers side by side: it is never computed
///   stored     a value each of whose results is one index along an axis: it is stored into the results
///   assembled  a Piecewise of computed values of one element each. The kernel that computes such a value stores it at its position.
///              No kernel computes the whole array.
struct Lists {
  std::unordered_map<ir::NodeId, ArrayList> read, stored;
  std::unordered_map<ir::NodeId, std::vector<ir::NodeId>> assembled;    // the element values of each array, each once, in graph order
  std::unordered_map<ir::NodeId, std::vector<PlaceInArray>> placed_in;  // inverse of `assembled`; one value may be at several positions

  const ArrayList* reads(ir::NodeId id) const {
    const auto it = read.find(id);
    return it == read.end() ? nullptr : &it->second;
  }
  const ArrayList* stores(ir::NodeId id) const {
    const auto it = stored.find(id);
    return it == stored.end() ? nullptr : &it->second;
  }
  bool assembles(ir::NodeId id) const { return assembled.contains(id); }
  /// Returns the positions of a value in assembled arrays.
  std::span<const PlaceInArray> places_of(ir::NodeId id) const {
    const auto it = placed_in.find(id);
    return it == placed_in.end() ? std::span<const PlaceInArray>() : it->second;
  }
  /// Returns the values that must be stored: results that are not members of an array list, array lists, and elements of assembled arrays.
  std::vector<ir::NodeId> wanted(const ir::Graph& graph) const;
};

inline constexpr std::size_t kFewestMembers = 8;     // with fewer members, boxes become subdomains and loops are split at their edges
inline constexpr std::int64_t kSmallestMember = 16;  // elements; a smaller array is cheaper to copy than to find through a table

/// Finds the array lists. `layouts` are the layouts of the graph's inputs and outputs, by node.
Lists find_lists(const ir::Graph& graph, std::span<const Layout> layouts);

/// Adds the assembled arrays. Used for targets whose runtime can place a materialized value within another value (runtime/stored_values).
void find_assembled(const ir::Graph& graph, std::span<const Layout> layouts, Lists& lists);

}  // namespace onepass::compiler
