// Prints a tree as text; the text parses to an equal tree.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/formula_parts.h"

namespace onepass::language {

namespace {

// Prints without recursion, because a left-leaning chain of a million `+` is a million levels deep.
class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string print() && {
    std::size_t next_function = 0;
    for (std::size_t i = 0; i <= program_.top.statements.size(); ++i) {
      for (; next_function < program_.functions.size() && program_.functions[next_function].statements_before == i; ++next_function)
        function(program_.functions[next_function]);
      if (i < program_.top.statements.size()) statement(program_.top, program_.top.statements[i]);
    }
    return std::move(out_);
  }

 private:
  void function(const Function& made) {
    out_ += "fn ";
    out_ += program_.name(made.name);
    out_ += "(";
    for (const Parameter& parameter : made.parameters) {
      if (&parameter != made.parameters.data()) out_ += ", ";
      out_ += program_.name(made.body, parameter.variable);
      if (!parameter.typed) continue;
      out_ += ": ";
      out_ += name_of(parameter.dtype);
      out_ += "[";
      for (const Extent& extent : parameter.extents) {
        if (&extent != parameter.extents.data()) out_ += ", ";
        if (extent.variable == kAbsent) out_ += fmt::format("{}", extent.value);
        else out_ += program_.name(made.body, extent.variable);
      }
      out_ += "]";
    }
    out_ += ") {\n";
    for (const Statement& inner : made.body.statements) {
      out_ += "  ";
      statement(made.body, inner);
    }
    out_ += "}\n";
  }

  void statement(const Scope& scope, const Statement& made) {
    for (const Target& target : program_.targets_of(made)) {
      if (&target != program_.targets_of(made).data()) out_ += ", ";
      out_ += program_.name(scope, target.variable);
    }
    if (made.kind == Statement::Kind::Assign) out_ += " = ";
    if (made.kind == Statement::Kind::Return) out_ += "return ";
    const std::span<const NodeId> values = program_.values_of(made);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      expression(values[i]);
    }
    out_ += "\n";
  }

  struct Task {
    std::string_view text;  // printed if `node` is absent
    NodeId node = kAbsent;
    int least = 0;  // looser operators are parenthesized
  };

  void expression(NodeId root) {
    tasks_.push_back({{}, root, 0});
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      if (task.node == kAbsent) {
        out_ += task.text;
        continue;
      }
      if (program_.nodes[task.node].kind == Kind::Integer) {
        integer(program_.nodes[task.node], task.least);
        continue;
      }
      const std::size_t first = tasks_.size();
      if (precedence(program_.nodes[task.node]) < task.least) {
        tasks_.push_back({"("});
        parts(program_.nodes[task.node]);
        tasks_.push_back({")"});
      } else {
        parts(program_.nodes[task.node]);
      }
      std::reverse(tasks_.begin() + static_cast<std::ptrdiff_t>(first), tasks_.end());
    }
  }

  void integer(const Node& node, int least) {
    if (node.is_unsigned()) {  // 2^63 after a minus would be read as the least i64
      const auto value = static_cast<std::uint64_t>(node.integer());
      const bool alone = value == std::uint64_t{1} << 63 && kPrefixPrecedence <= least;
      out_ += alone ? fmt::format("({})", value) : fmt::format("{}", value);
      return;
    }
    const std::string digits = fmt::format("{}", node.integer());
    out_ += node.integer() < 0 && kPrefixPrecedence < least ? "(" + digits + ")" : digits;
  }

  static int precedence(const Node& node) {
    if (node.kind == Kind::Prefix || node.kind == Kind::Binary) return precedence_of(node.op);
    return node.kind == Kind::Conditional ? kConditionalPrecedence : kPrimaryPrecedence;
  }

  void text(std::string_view piece) { tasks_.push_back({piece}); }
  void operand(NodeId node, int least) { tasks_.push_back({{}, node, least}); }

  // Pushes the node's parts in reading order.
  void parts(const Node& node) {
    switch (node.kind) {
      case Kind::Integer: return;  // already printed
      case Kind::Float: return text(std::string_view(program_.source).substr(node.offset, node.d));
      case Kind::Boolean: return text(node.a != 0 ? "true" : "false");
      case Kind::None: return text("none");
      case Kind::Type: return text(name_of(node.dtype()));
      case Kind::String:
        text("\"");
        text(program_.strings[node.a]);
        return text("\"");
      case Kind::Name:
      case Kind::Function: return text(program_.name(node.a));
      case Kind::Prefix:
        text(text_of(node.op));
        if (node.op == Operator::Not) text(" ");
        return operand(node.a, precedence_of(node.op));
      case Kind::Binary: {
        const int own = precedence_of(node.op);
        operand(node.a, own + (node.op == Operator::Power || is_comparison(node.op) ? 1 : 0));
        text(" ");
        text(text_of(node.op));
        text(" ");
        return operand(node.b, node.op == Operator::Power ? kPrefixPrecedence : own + 1);
      }
      case Kind::Conditional:
        operand(node.a, kConditionalPrecedence + 1);
        text(" ? ");
        operand(node.b, 0);
        text(" : ");
        return operand(node.c, 0);
      case Kind::List:
        text("[");
        list(program_.list_items(node));
        return text("]");
      case Kind::Call:
        text(program_.name(node.c));
        text("(");
        for (const Argument& argument : program_.arguments_of(node)) {
          if (&argument != program_.arguments_of(node).data()) text(", ");
          if (argument.keyword != kAbsent) {
            text(program_.name(argument.keyword));
            text("=");
          }
          operand(argument.value, 0);
        }
        return text(")");
      case Kind::Index:
        operand(node.a, kPrimaryPrecedence);
        text("[");
        list(program_.index_items(node));
        return text("]");
      case Kind::Slice:
        if (node.a != kAbsent) operand(node.a, 0);
        text(":");
        if (node.b != kAbsent) operand(node.b, 0);
        if (node.c == kAbsent) return;
        text(":");
        return operand(node.c, 0);
      case Kind::Ellipsis: return text("...");
      case Kind::Attribute:
        operand(node.a, kPrimaryPrecedence);
        text(" .");  // the space keeps `1 .shape` from being the number `1.`
        return text(program_.name(node.b));
    }
  }

  void list(std::span<const NodeId> items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text(", ");
      operand(items[i], 0);
    }
  }

  const Program& program_;
  std::string out_;
  std::vector<Task> tasks_;
};

}  // namespace

std::string_view text_of(Operator op) { return kOperators[static_cast<std::size_t>(op)].text; }

std::size_t function_arguments(std::string_view name) {
  if (name == "while_loop") return 2;
  return name == "scan" || name == "fold" || name == "iterate" ? 1 : 0;
}

std::string to_string(const Program& program) { return Printer(program).print(); }

}  // namespace onepass::language
