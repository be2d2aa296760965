// GraphView: the graph that a compiled function recorded, or its optimized form, for inspection: nodes, operands, users. Works under
// -fno-exceptions -fno-rtti.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onepass/dtype.h"
#include "onepass/export.h"
#include "onepass/shared.h"

namespace onepass {

/// An immutable graph: a handle that is cheap to copy. Nodes are in topological order, operands before users. Nodes, and the texts and
/// spans that they return, are valid while any handle or node of the graph exists.
class ONEPASS_API GraphView {
  struct Body;

 public:
  /// One value of the graph.
  class ONEPASS_API Node {
   public:
    /// Returns the node's index in the graph; the printed form writes it as `%id`.
    std::uint32_t id() const noexcept { return id_; }
    /// Returns the operator's printed name: `input`, `slot` (a literal or scalar argument), `constant`, `add`, `reduce_sum`, ….
    std::string_view op() const;
    DType dtype() const;
    std::span<const std::int64_t> shape() const;
    /// Returns the operator's attributes, such as axes, starts, steps and amounts.
    std::span<const std::int64_t> attributes() const;
    std::vector<Node> operands() const;
    /// Returns the nodes that read this node, each once, in order.
    std::vector<Node> users() const;
    /// Returns an input's name; empty for other nodes.
    std::string_view name() const;
    /// Returns the recorded value of a scalar parameter or constant.
    std::optional<double> value() const;
    /// Returns the source position of the recording, `file:line`; empty if unknown.
    std::string_view source() const;
    /// Returns the forward node whose derivative this node is part of. Empty if the node is not from a derivative, or if the graph lacks
    /// that node.
    std::optional<Node> derivative_of() const;
    friend bool operator==(const Node& a, const Node& b) noexcept { return a.body_ == b.body_ && a.id_ == b.id_; }

   private:
    friend class GraphView;
    friend class Iterator;
    Node(detail::Shared<const Body> body, std::uint32_t id) : body_(std::move(body)), id_(id) {}
    detail::Shared<const Body> body_;
    std::uint32_t id_ = 0;
  };

  class Iterator {
   public:
    using value_type = Node;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::forward_iterator_tag;
    Iterator() = default;
    Node operator*() const { return Node(body_, id_); }
    Iterator& operator++() { return ++id_, *this; }
    Iterator operator++(int) {
      Iterator before = *this;
      ++id_;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.id_ == b.id_; }

   private:
    friend class GraphView;
    Iterator(detail::Shared<const Body> body, std::uint32_t id) : body_(std::move(body)), id_(id) {}
    detail::Shared<const Body> body_;
    std::uint32_t id_ = 0;
  };

  /// Constructs a graph without nodes.
  GraphView() = default;

  std::size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// Returns the node with this index. Throws IndexError if there is none.
  Node operator[](std::size_t id) const;
  Iterator begin() const { return Iterator(body_, 0); }
  Iterator end() const { return Iterator(body_, static_cast<std::uint32_t>(size())); }
  /// Returns the arguments, then the captured Arrays, used or not.
  std::vector<Node> inputs() const;
  std::vector<Node> outputs() const;
  /// Returns the names of the outputs(): `out`, `out0`, `loss`, ….
  std::vector<std::string> output_names() const;
  /// Returns the printed form; `onepass diff` compares two printed forms.
  std::string text() const;
  /// Parses a printed form. Throws ValueError with the line and the problem.
  static GraphView parse(std::string_view text);
  /// Writes text() to a file, or parses a file. Throws IoError if the file cannot be written or read.
  void save(const std::string& path) const;
  static GraphView load(const std::string& path);

  /// True if both graphs compute the same results from their inputs and literals, operator by operator. Ignores names, source lines,
  /// literal values and the order of independent operators.
  friend ONEPASS_API
  bool operator==(const GraphView& a, const GraphView& b);

 private:
  friend struct GraphViewAccess;  // in runtime/graph_view.h
  explicit GraphView(detail::Shared<const Body> body) : body_(std::move(body)) {}
  detail::Shared<const Body> body_;
};

}  // namespace onepass
