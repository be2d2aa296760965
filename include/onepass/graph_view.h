// GraphView: what a compiled function recorded, or what the compiler made of it, to be walked: nodes, operands, users.
// Works under -fno-exceptions -fno-rtti.
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

/// An immutable graph: a handle, copied freely. Nodes are in topological order: operands before their users. Nodes, and
/// the texts and lists that they give, live as long as any handle or node of the graph.
class ONEPASS_API GraphView {
  struct Body;

 public:
  /// One value of the graph.
  class ONEPASS_API Node {
   public:
    /// Its place in the graph; the printed form calls it `%id`.
    std::uint32_t id() const noexcept { return id_; }
    /// The operator as the printed form spells it: `input`, `slot` (a literal or a number of the call), `constant`, `add`, `reduce_sum`, ….
    std::string_view op() const;
    DType dtype() const;
    std::span<const std::int64_t> shape() const;
    /// Axes, starts and steps, amounts: what the operator needs besides its operands.
    std::span<const std::int64_t> attributes() const;
    std::vector<Node> operands() const;
    /// The nodes that read this one, each once, in order.
    std::vector<Node> users() const;
    /// Of an input: its name, or empty.
    std::string_view name() const;
    /// Of a slot or a constant: its value when it was recorded.
    std::optional<double> value() const;
    /// Where it was recorded, `file:line`; empty where that is not known.
    std::string_view source() const;
    /// Of a node that a derivative made: the forward node whose derivative it is a part of, while that is in the graph.
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

  /// Without nodes.
  GraphView() = default;

  std::size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// IndexError when there is no such node.
  Node operator[](std::size_t id) const;
  Iterator begin() const { return Iterator(body_, 0); }
  Iterator end() const { return Iterator(body_, static_cast<std::uint32_t>(size())); }
  /// The arguments, then captured Arrays, used or not.
  std::vector<Node> inputs() const;
  std::vector<Node> outputs() const;
  /// `out`, `out0`, `loss`, …: as many as outputs().
  std::vector<std::string> output_names() const;
  /// The printed form; `onepass diff` compares two of them.
  std::string text() const;
  /// The graph of a printed form. ValueError with the line and what is wrong with it.
  static GraphView parse(std::string_view text);
  /// text() in a file, and back; IoError where that cannot be written or read.
  void save(const std::string& path) const;
  static GraphView load(const std::string& path);

  /// Do both compute the same from their inputs and literals, operator by operator? Names, source lines and the values of literals do not
  /// count, nor does the order in which independent operators were recorded.
  friend ONEPASS_API
  bool operator==(const GraphView& a, const GraphView& b);

 private:
  friend struct GraphViewAccess;  // runtime/graph_view.h
  explicit GraphView(detail::Shared<const Body> body) : body_(std::move(body)) {}
  detail::Shared<const Body> body_;
};

}  // namespace onepass
