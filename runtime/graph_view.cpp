// See onepass/graph_view.h.
#include "runtime/graph_view.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/os.h"
#include "runtime/record.h"

namespace onepass {

using ir::Graph;
using ir::NodeId;
using ir::Op;

struct GraphView::Body {
  Graph graph;
  std::vector<std::uint32_t> first_user;  // users of node i: users[first_user[i]] … users[first_user[i + 1]]
  std::vector<NodeId> users;

  explicit Body(Graph g) : graph(std::move(g)), first_user(graph.size() + 1, 0) {
    const auto each_use = [&](auto&& body) {
      for (NodeId user = 0; user < graph.size(); ++user) {
        const ir::List operands = graph.operands(user);
        for (std::size_t i = 0; i < operands.size(); ++i)
          if (std::find(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(i), operands[i]) ==
              operands.begin() + static_cast<std::ptrdiff_t>(i))
            body(static_cast<NodeId>(operands[i]), user);
      }
    };
    each_use([&](NodeId node, NodeId) { ++first_user[node + 1]; });
    for (std::size_t i = 1; i < first_user.size(); ++i) first_user[i] += first_user[i - 1];
    users.resize(first_user.back());
    std::vector<std::uint32_t> next(first_user.begin(), first_user.end() - 1);
    each_use([&](NodeId node, NodeId user) { users[next[node]++] = user; });
  }
};

Graph GraphViewAccess::graph(const GraphView& view) { return view.body_ ? view.body_->graph : Graph(); }
GraphView GraphViewAccess::make(Graph graph) { return GraphView(detail::Shared<const GraphView::Body>::make(std::move(graph))); }

// ------------------------------------------------------------------------------------------------ nodes

std::string_view GraphView::Node::op() const { return ir::info(body_->graph[id_].op).text; }
DType GraphView::Node::dtype() const { return body_->graph[id_].dtype; }
std::span<const std::int64_t> GraphView::Node::shape() const { return body_->graph.shape(id_); }
std::span<const std::int64_t> GraphView::Node::attributes() const { return body_->graph.attributes(id_); }

std::vector<GraphView::Node> GraphView::Node::operands() const {
  std::vector<Node> nodes;
  for (const std::int64_t id : body_->graph.operands(id_)) nodes.push_back(Node(body_, static_cast<std::uint32_t>(id)));
  return nodes;
}

std::vector<GraphView::Node> GraphView::Node::users() const {
  std::vector<Node> nodes;
  for (std::uint32_t i = body_->first_user[id_]; i < body_->first_user[id_ + 1]; ++i) nodes.push_back(Node(body_, body_->users[i]));
  return nodes;
}

std::string_view GraphView::Node::name() const {
  const ir::Node node = body_->graph[id_];
  return node.op == Op::Input ? std::string_view(body_->graph.inputs[node.bits].name) : std::string_view();
}

std::optional<double> GraphView::Node::value() const {
  const ir::Node node = body_->graph[id_];
  if (node.op == Op::Constant) return ir::double_of(node.dtype, node.bits);
  if (node.op == Op::Slot) return ir::double_of(node.dtype, body_->graph.slots[node.bits].bits);
  return std::nullopt;
}

std::string_view GraphView::Node::source() const { return body_->graph.sources[body_->graph.source_of[id_]]; }

std::optional<GraphView::Node> GraphView::Node::derivative_of() const {
  const NodeId origin = body_->graph.origin_of[id_];
  if (origin == ir::kNoNode) return std::nullopt;
  return Node(body_, origin);
}

// ------------------------------------------------------------------------------------------------ graphs

std::size_t GraphView::size() const noexcept { return body_ ? body_->graph.size() : 0; }

GraphView::Node GraphView::operator[](std::size_t id) const {
  if (id >= size()) throw IndexError(fmt::format("graph: node {} does not exist; the graph has {} nodes", id, size()));
  return Node(body_, static_cast<std::uint32_t>(id));
}

std::vector<GraphView::Node> GraphView::inputs() const {
  std::vector<Node> nodes;
  if (body_)
    for (const ir::Input& input : body_->graph.inputs) nodes.push_back(Node(body_, input.node));
  return nodes;
}

std::vector<GraphView::Node> GraphView::outputs() const {
  std::vector<Node> nodes;
  if (body_)
    for (const NodeId id : body_->graph.outputs) nodes.push_back(Node(body_, id));
  return nodes;
}

std::vector<std::string> GraphView::output_names() const { return body_ ? body_->graph.output_names : std::vector<std::string>(); }
GraphView GraphView::parse(std::string_view text) { return GraphViewAccess::make(ir::parse_graph(text)); }
void GraphView::save(const std::string& path) const { runtime::write_text("graph", path, text()); }
GraphView GraphView::load(const std::string& path) {
  const os::FileBytes file = os::FileBytes::open("graph", path);
  return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}
std::string GraphView::text() const { return body_ ? ir::print(body_->graph) : std::string(); }

namespace {

// A one-to-one relation that only grows.
class Pairing {
 public:
  /// Adds a pair. False if one of the two already has another partner.
  bool pair(std::uint64_t a, std::uint64_t b) {
    const auto [x, fresh_a] = there_.try_emplace(a, b);
    const auto [y, fresh_b] = back_.try_emplace(b, a);
    return x->second == b && y->second == a && fresh_a == fresh_b;
  }
  bool has(std::uint64_t a) const { return there_.contains(a); }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> there_, back_;
};

// True if the graphs are equal. Pairs nodes from the outputs on; this works because equal nodes have one id within a graph.
bool same(const Graph& a, const Graph& b) {
  if (a.outputs.size() != b.outputs.size() || a.inputs.size() != b.inputs.size()) return false;
  Pairing nodes, slots;
  std::vector<std::pair<NodeId, NodeId>> open;
  const auto visit = [&](NodeId x, NodeId y) {
    if (!nodes.has(x)) open.emplace_back(x, y);
    return nodes.pair(x, y);
  };
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    if (!visit(a.outputs[i], b.outputs[i])) return false;
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    const ir::Node p = a[x], q = b[y];
    const ir::List of_x = a.operands(p), of_y = b.operands(q);
    if (p.op != q.op || p.dtype != q.dtype || of_x.size() != of_y.size() || !std::ranges::equal(a.list(p.shape), b.list(q.shape)) ||
        !std::ranges::equal(a.list(p.attributes), b.list(q.attributes)))
      return false;
    if (p.op == Op::Slot ? !slots.pair(p.bits, q.bits) : p.bits != q.bits) return false;
    for (std::size_t i = 0; i < of_x.size(); ++i)
      if (!visit(static_cast<NodeId>(of_x[i]), static_cast<NodeId>(of_y[i]))) return false;
  }
  return true;
}

}  // namespace

bool operator==(const GraphView& a, const GraphView& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  return same(a.body_->graph, b.body_->graph);
}

}  // namespace onepass
