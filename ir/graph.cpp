// Graph: hash-consing of nodes and lists. See graph.h.
#include "ir/graph.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "onepass/error.h"

namespace onepass::ir {
namespace {

constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

std::uint64_t hash_of(const Node& n) {
  std::uint64_t h = mix(static_cast<std::uint64_t>(n.op) | static_cast<std::uint64_t>(n.dtype) << 8, n.shape);
  return mix(mix(mix(h, n.operands), n.attributes), n.bits);
}

std::uint64_t hash_of(List list) {
  std::uint64_t h = list.size();
  for (std::int64_t v : list) h = mix(h, static_cast<std::uint64_t>(v));
  return h;
}

}  // namespace

// Storage of interned lists. Blocks never move, so spans into them stay valid while any graph that shares the arena exists.
struct Graph::Arena {
  static constexpr std::size_t kFirst = 64, kMost = 4096;  // many graphs are small and are stored with their plans
  std::vector<std::unique_ptr<std::int64_t[]>> blocks;
  std::size_t used = 0, capacity = 0;
  std::int64_t* allocate(std::size_t n) {
    if (used + n > capacity) {
      capacity = std::max(n, std::min(std::max(2 * capacity, kFirst), kMost));
      blocks.push_back(std::make_unique_for_overwrite<std::int64_t[]>(capacity));
      used = 0;
    }
    std::int64_t* p = blocks.back().get() + used;
    used += n;
    return p;
  }
};

// Returns a separate arena that keeps `old` alive. Two graphs never append to the same arena, so copies may be used on different threads.
std::shared_ptr<Graph::Arena> Graph::fork(const std::shared_ptr<Arena>& old) {
  struct Both {
    std::shared_ptr<Arena> old;
    Arena own;
  };
  auto both = std::make_shared<Both>(Both{old, {}});
  return {both, &both->own};
}

// Copies without the table of nodes, which the next add() rebuilds. Most copies are only read.
Graph::Graph(const Graph& other)
    : outputs(other.outputs),
      output_names(other.output_names),
      inputs(other.inputs),
      slots(other.slots),
      source_of(other.source_of),
      sources(other.sources),
      current_source(other.current_source),
      origin_of(other.origin_of),
      current_origin(other.current_origin),
      nodes_(other.nodes_),
      lists_(other.lists_),
      list_table_(other.list_table_),
      arena_(fork(other.arena_)) {}

Graph& Graph::operator=(const Graph& other) {
  if (this != &other) *this = Graph(other);
  return *this;
}

Graph::Graph() : arena_(std::make_shared<Arena>()) {
  sources.push_back("");
  lists_.push_back({});
  grow_lists();
}

void Graph::grow_nodes() { fill_node_table(std::bit_ceil(std::max<std::size_t>(64, 2 * nodes_.size() + 1))); }

void Graph::fill_node_table(std::size_t capacity) {
  node_table_.assign(capacity, 0);
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    std::size_t i = hash_of(nodes_[id]) & (capacity - 1);
    while (node_table_[i]) i = (i + 1) & (capacity - 1);
    node_table_[i] = id + 1;
  }
}

void Graph::reserve(std::size_t nodes) {
  nodes_.reserve(nodes);
  source_of.reserve(nodes);
  origin_of.reserve(nodes);
  if (nodes * 2 >= node_table_.size()) fill_node_table(std::bit_ceil(std::max<std::size_t>(64, nodes * 2 + 1)));
}

void Graph::grow_lists() {
  const std::size_t capacity = std::max<std::size_t>(64, list_table_.size() * 2);
  list_table_.assign(capacity, 0);
  for (ListId id = 0; id < lists_.size(); ++id) {
    std::size_t i = hash_of(lists_[id]) & (capacity - 1);
    while (list_table_[i]) i = (i + 1) & (capacity - 1);
    list_table_[i] = id + 1;
  }
}

NodeId Graph::add(const Node& node) {
  if (nodes_.size() * 2 >= node_table_.size()) grow_nodes();
  std::size_t i = hash_of(node) & (node_table_.size() - 1);
  for (; node_table_[i]; i = (i + 1) & (node_table_.size() - 1))
    if (nodes_[node_table_[i] - 1] == node) return node_table_[i] - 1;
  const NodeId id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back(node);
  source_of.push_back(current_source);
  origin_of.push_back(current_origin);
  node_table_[i] = id + 1;
  return id;
}

ListId Graph::intern(List list) {
  if (lists_.size() * 2 >= list_table_.size()) grow_lists();
  std::size_t i = hash_of(list) & (list_table_.size() - 1);
  for (; list_table_[i]; i = (i + 1) & (list_table_.size() - 1)) {
    const List have = lists_[list_table_[i] - 1];
    if (std::ranges::equal(have, list)) return list_table_[i] - 1;  // for a few numbers, a memcmp call takes longer
  }
  const ListId id = static_cast<ListId>(lists_.size());
  std::int64_t* p = arena_->allocate(list.size());
  std::copy(list.begin(), list.end(), p);
  lists_.push_back({p, list.size()});
  list_table_[i] = id + 1;
  return id;
}

std::int64_t Graph::elements(NodeId id) const { return element_count(shape(id)); }

NodeId Graph::add(Op op, DType dtype, ListId shape, std::initializer_list<NodeId> operands, List attributes, std::uint64_t bits) {
  std::int64_t ids[4];
  std::size_t n = 0;
  for (NodeId o : operands) ids[n++] = o;
  return add(Node{op, dtype, shape, intern(List(ids, n)), intern(attributes), bits});
}

NodeId Graph::add_input(std::string name, DType dtype, List shape) {
  const ListId s = intern(shape);
  const NodeId id = add(Op::Input, dtype, s, {}, {}, inputs.size());
  inputs.push_back({std::move(name), dtype, s, id});
  return id;
}

NodeId Graph::add_slot(DType dtype, std::uint64_t bits, ListId shape) {
  slots.push_back({dtype, bits});
  return slot_node(static_cast<std::uint32_t>(slots.size() - 1), shape);
}

NodeId Graph::slot_node(std::uint32_t slot, ListId shape) { return add(Op::Slot, slots[slot].dtype, shape, {}, {}, slot); }

NodeId Graph::constant(DType dtype, ListId shape, std::uint64_t bits) {
  const std::size_t size = size_of(computed_type(dtype));
  if (size < 8) bits &= (std::uint64_t{1} << (8 * size)) - 1;
  return add(Op::Constant, dtype, shape, {}, {}, bits);
}

Graph Graph::empty_copy() const {
  Graph out;
  out.inputs = inputs;
  out.slots = slots;
  out.sources = sources;
  out.output_names = output_names;
  out.lists_ = lists_;
  out.list_table_ = list_table_;
  // The lists' storage is shared for reading; new lists of the copy go to separate blocks.
  out.arena_ = fork(arena_);
  out.reserve(size());
  for (Input& input : out.inputs) {
    const Node n = nodes_[input.node];
    out.current_source = source_of[input.node];
    input.node = out.add(n);
  }
  out.current_source = 0;
  return out;
}

Graph Graph::with_extents(const std::function<std::int64_t(std::int64_t)>& of) const {
  Graph out = *this;
  std::vector<ListId> now(lists_.size(), kNoNode);
  std::vector<std::int64_t> extents;
  const auto renamed = [&](ListId shape) {
    if (now[shape] == kNoNode) {
      extents.clear();
      for (const std::int64_t extent : lists_[shape]) extents.push_back(of(extent));
      now[shape] = out.intern(extents);
    }
    return now[shape];
  };
  for (Node& node : out.nodes_) node.shape = renamed(node.shape);
  for (Input& input : out.inputs) input.shape = renamed(input.shape);
  return out;
}

std::string_view text_of(Indexing indexing) {
  static constexpr std::string_view kTexts[] = {"take",     "take_along_axis", "scatter_add", "index_add",   "cross_entropy",
                                                "bincount", "quantile",        "scatter",     "index_update"};
  return kTexts[static_cast<int>(indexing)];
}

std::vector<NodeId> places_of(const Graph& graph) {
  std::vector<bool> needed(graph.size(), false);
  for (const NodeId id : graph.outputs) needed[id] = true;
  std::vector<NodeId> places;
  for (NodeId id = graph.size(); id-- > 0;) {
    if (!needed[id]) continue;
    for (const std::int64_t o : graph.operands(id)) needed[static_cast<std::size_t>(o)] = true;
    if (graph[id].op == Op::Place) places.push_back(id);
  }
  std::reverse(places.begin(), places.end());
  return places;
}

namespace {

std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> needed(graph.size(), false);
  for (NodeId id : graph.outputs) needed[id] = true;
  for (NodeId id = graph.size(); id-- > 0;)
    if (needed[id])
      for (std::int64_t o : graph.operands(id)) needed[static_cast<std::size_t>(o)] = true;
  return needed;
}

// True if all nodes are needed and the inputs are the first nodes.
bool is_pruned(const Graph& graph, const std::vector<bool>& needed) {
  for (NodeId i = 0; i < graph.inputs.size(); ++i)
    if (graph.inputs[i].node != i) return false;
  return std::all_of(needed.begin() + static_cast<std::ptrdiff_t>(graph.inputs.size()), needed.end(), [](bool n) { return n; });
}

Graph pruned(const Graph& graph, const std::vector<bool>& needed) {
  const auto kept_nodes = static_cast<std::size_t>(std::ranges::count(needed, true));
  // Drops lists that only dropped nodes used. Every pass leaves such lists, and each copy of a graph copies its lists.
  Graph out;
  out.slots = graph.slots;
  out.sources = graph.sources;
  out.output_names = graph.output_names;
  out.reserve(kept_nodes + graph.inputs.size());
  std::vector<ListId> lists;  // new ids of shapes and attributes, by old id; 0: not yet interned
  const auto kept = [&](ListId list) {
    if (list >= lists.size()) lists.resize(std::size_t{list} + 1, 0);
    if (list != 0 && lists[list] == 0) lists[list] = out.intern(graph.list(list));
    return lists[list];
  };
  for (const Input& input : graph.inputs) {
    out.current_source = graph.source_of[input.node];
    const Node node = graph[input.node];
    const ListId shape = kept(input.shape);
    out.inputs.push_back({input.name, input.dtype, shape, out.add({node.op, node.dtype, shape, 0, 0, node.bits})});
  }
  std::vector<NodeId> now(graph.size(), kNoNode);
  std::vector<std::int64_t> operands;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!needed[id]) continue;
    Node node = graph[id];
    operands.clear();
    for (std::int64_t o : graph.operands(id)) operands.push_back(now[static_cast<std::size_t>(o)]);
    node.operands = out.intern(operands);
    node.shape = kept(node.shape);
    node.attributes = kept(node.attributes);
    out.current_source = graph.source_of[id];
    out.current_origin = graph.origin_of[id] == kNoNode ? kNoNode : now[graph.origin_of[id]];
    now[id] = out.add(node);
  }
  out.current_source = 0;
  out.current_origin = kNoNode;
  for (NodeId id : graph.outputs) out.outputs.push_back(now[id]);
  return out;
}

}  // namespace

Graph prune(Graph graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  if (!is_pruned(graph, needed)) return pruned(graph, needed);
  graph.current_source = 0;
  graph.current_origin = kNoNode;
  return graph;
}

std::uint64_t bits_of(DType dtype, double value) {
  switch (dtype) {
    case DType::Bool: return value != 0;
    case DType::F16:
    case DType::BF16:
    case DType::F32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::F64: return std::bit_cast<std::uint64_t>(value);
    case DType::U64: return static_cast<std::uint64_t>(value);
    default: break;
  }
  const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  return size_of(dtype) == 8 ? bits : bits & ((std::uint64_t{1} << (8 * size_of(dtype))) - 1);
}

std::uint64_t bits_of(DType dtype, std::int64_t value) {
  switch (dtype) {
    case DType::Bool: return value != 0;
    case DType::F16:
    case DType::BF16:
    case DType::F32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::F64: return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    default: break;
  }
  const auto bits = static_cast<std::uint64_t>(value);
  return size_of(dtype) == 8 ? bits : bits & ((std::uint64_t{1} << (8 * size_of(dtype))) - 1);
}

double double_of(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::Bool: return bits != 0;
    case DType::I8: return static_cast<std::int8_t>(bits);
    case DType::I16: return static_cast<std::int16_t>(bits);
    case DType::I32: return static_cast<std::int32_t>(bits);
    case DType::I64: return static_cast<double>(static_cast<std::int64_t>(bits));
    case DType::U8:
    case DType::U16:
    case DType::U32:
    case DType::U64: return static_cast<double>(bits);
    case DType::F16:
    case DType::BF16:
    case DType::F32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::F64: return std::bit_cast<double>(bits);
  }
  return 0;
}

}  // namespace onepass::ir
