// Graph: nodes in topological order, hash-consed, named by 32-bit ids. The recorder makes it, passes rewrite it, all later stages read it.
// A pass takes a `const Graph&` and returns a `Graph`.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/ops.h"

namespace onepass::ir {

using NodeId = std::uint32_t;
using ListId = std::uint32_t;  // an interned list of integers: operands, attributes, extents
inline constexpr NodeId kNoNode = ~NodeId{0};

using List = std::span<const std::int64_t>;

struct Node {  // 24 bytes. Equality and hash use the bits of every field; the source line is stored separately in the graph.
  Op op;
  DType dtype;
  ListId shape = 0;
  ListId operands = 0;    // NodeIds
  ListId attributes = 0;  // axes, starts, steps; see ops.def
  // Constant value, or index of a scalar parameter or input. Stored as bits, because a double would merge +0 and -0 and lose NaN payloads.
  std::uint64_t bits = 0;
  bool operator==(const Node&) const = default;
};
static_assert(sizeof(Node) == 24);

/// A scalar parameter of the plan: its type and its value in this recording (as bits of that type).
struct Slot {
  DType dtype;
  std::uint64_t bits;
};

/// An argument: its name, type and shape.
struct Input {
  std::string name;
  DType dtype;
  ListId shape;
  NodeId node;
};

class Graph {
 public:
  Graph();
  Graph(const Graph& other);
  Graph& operator=(const Graph& other);
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  /// Adds a node and returns its id. Equal nodes get one id, so common subexpressions are shared.
  NodeId add(const Node& node);
  /// Returns a node by value, because a reference would dangle when the graph grows.
  Node operator[](NodeId id) const { return nodes_[id]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }

  /// Interns a list: equal lists have equal ids; id 0 is the empty list. Spans stay valid as long as the graph or a copy of it exists.
  ListId intern(List list);
  ListId intern(std::initializer_list<std::int64_t> list) { return intern(List(list.begin(), list.size())); }
  List list(ListId id) const { return lists_[id]; }

  List shape(NodeId id) const { return lists_[nodes_[id].shape]; }
  List operands(NodeId id) const { return lists_[nodes_[id].operands]; }
  List operands(const Node& node) const { return lists_[node.operands]; }
  List attributes(NodeId id) const { return lists_[nodes_[id].attributes]; }
  NodeId operand(NodeId id, int index) const { return static_cast<NodeId>(lists_[nodes_[id].operands][static_cast<std::size_t>(index)]); }
  std::int64_t elements(NodeId id) const;

  // Convenience functions that make a node from its parts.
  NodeId add(Op op, DType dtype, ListId shape, std::initializer_list<NodeId> operands, List attributes = {}, std::uint64_t bits = 0);
  NodeId add_input(std::string name, DType dtype, List shape);
  NodeId add_slot(DType dtype, std::uint64_t bits, ListId shape);  // adds a scalar parameter
  NodeId slot_node(std::uint32_t slot, ListId shape);              // an existing scalar parameter, in another shape
  NodeId constant(DType dtype, ListId shape, std::uint64_t bits);

  /// Reserves memory for so many nodes, to avoid reallocation.
  void reserve(std::size_t nodes);

  /// Returns a graph with the same lists, inputs, scalar parameters and names but without nodes and outputs, as a start for a pass.
  Graph empty_copy() const;
  /// Returns the same nodes with other lengths: each extent of a shape becomes `of(extent)`. `of` must be one-to-one.
  Graph with_extents(const std::function<std::int64_t(std::int64_t)>& of) const;

  std::vector<NodeId> outputs;
  std::vector<std::string> output_names;
  std::vector<Input> inputs;
  std::vector<Slot> slots;
  /// Line that recorded each node, as an index into `sources` (`file:line`); 0 is unknown. Not part of equality.
  std::vector<std::uint32_t> source_of;
  std::vector<std::string> sources;
  std::uint32_t current_source = 0;
  /// For a node from differentiation, the forward node that it differentiates, else kNoNode. Not part of equality.
  std::vector<NodeId> origin_of;
  NodeId current_origin = kNoNode;

 private:
  struct Arena;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> node_table_;  // open addressing, id + 1
  std::vector<List> lists_;
  std::vector<std::uint32_t> list_table_;
  std::shared_ptr<Arena> arena_;  // storage of the lists; append-only
  static std::shared_ptr<Arena> fork(const std::shared_ptr<Arena>& old);
  void grow_nodes();
  void fill_node_table(std::size_t capacity);
  void grow_lists();
};

inline std::int64_t element_count(List shape) {
  std::int64_t n = 1;
  for (std::int64_t e : shape) n *= e;
  return n;
}

/// The operators that index by data, as an attribute of `place`. Errors name them.
enum class Indexing : std::uint8_t { Take, TakeAlongAxis, ScatterAdd, IndexAdd, CrossEntropy, Bincount, Quantile, Scatter, IndexUpdate };
std::string_view text_of(Indexing indexing);

/// Returns the `place` nodes that the outputs need, in increasing order. Each call checks their indices.
std::vector<NodeId> places_of(const Graph& graph);

/// Keeps the nodes that the outputs need, in the same order; ids become dense. Keeps all inputs and scalar parameters.
Graph prune(Graph graph);

/// Throws InternalError with `pass` and the printed graph if an invariant of ops.def is violated.
void verify(const Graph& graph, std::string_view pass);

/// Returns the printed form; `parse_graph(print(g))` is the same graph. parse_graph throws ValueError with line and reason.
std::string print(const Graph& graph);
Graph parse_graph(std::string_view text);

// ---- constants by bits
/// Returns the bits of the `dtype` value nearest to `value` (round to nearest even; integers truncate toward zero and must fit).
std::uint64_t bits_of(DType dtype, double value);
std::uint64_t bits_of(DType dtype, std::int64_t value);
double double_of(DType dtype, std::uint64_t bits);

}  // namespace onepass::ir
