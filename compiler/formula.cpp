// Operands precede their node in the tree. So one walk over a statement's range of nodes evaluates it, with a stack of operands. A function
// call pushes a frame and continues in the function's body.
#include "compiler/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "compiler/functions.h"
#include "compiler/state_loop.h"

namespace onepass::compiler {
namespace {

using language::Kind;
using language::Operator;
using language::Program;
using language::Scope;
using language::Statement;
using language::Variable;
using language::VariableId;

constexpr std::uint32_t kAbsent = language::kAbsent;

// An operator token's elementwise operator, if it has one, and its name for operators that are called by name.
struct Sign {
  std::optional<Op> op;
  std::string_view name;
};
Sign sign_of(Operator op) {
  switch (op) {
    case Operator::Negate: return {Op::Neg, "neg"};
    case Operator::BitNot: return {Op::BitwiseNot, "bitwise_not"};
    case Operator::Not: return {{}, "logical_not"};
    case Operator::Multiply: return {Op::Mul, "mul"};
    case Operator::Divide: return {Op::Div, "div"};
    case Operator::FloorDivide: return {Op::FloorDiv, "floor_div"};
    case Operator::Remainder: return {Op::Remainder, "remainder"};
    case Operator::MatMul: return {{}, "matmul"};
    case Operator::Add: return {Op::Add, "add"};
    case Operator::Subtract: return {Op::Sub, "sub"};
    case Operator::ShiftLeft: return {Op::ShiftLeft, "shift_left"};
    case Operator::ShiftRight: return {Op::ShiftRight, "shift_right"};
    case Operator::BitAnd: return {Op::BitwiseAnd, "bitwise_and"};
    case Operator::BitXor: return {Op::BitwiseXor, "bitwise_xor"};
    case Operator::BitOr: return {Op::BitwiseOr, "bitwise_or"};
    case Operator::Equal: return {Op::Equal, "equal"};
    case Operator::NotEqual: return {Op::NotEqual, "not_equal"};
    case Operator::Less: return {Op::Less, "less"};
    case Operator::LessEqual: return {Op::LessEqual, "less_equal"};
    case Operator::Greater: return {Op::Greater, "greater"};
    case Operator::GreaterEqual: return {Op::GreaterEqual, "greater_equal"};
    case Operator::And: return {{}, "logical_and"};
    case Operator::Or: return {{}, "logical_or"};
    case Operator::Positive:
    case Operator::Power:
    case Operator::None: break;
  }
  return {{}, "pow"};
}

std::string_view kind_text(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::None: return "`none`";
    case Argument::Kind::Value: return "a value";
    case Argument::Kind::List: return "a list";
    case Argument::Kind::Type: return "a type";
    case Argument::Kind::Text: return "a text";
    case Argument::Kind::Index: return "a slice";
  }
  return "";
}

// Result of one evaluated node on the stack.
struct Entry {
  enum class Kind : std::uint8_t { Argument, Results, Shape, Index, Function };
  Kind kind = Kind::Argument;
  language::NodeId node = kAbsent;
  compiler::Argument argument;              // Argument; Shape: the value with that shape
  std::vector<compiler::Argument> results;  // Results: the results of a call, always several
  compiler::Index index;                    // Index: a slice or an ellipsis
};

// A scope in execution: the top level, or a function's body for one call.
struct Frame {
  const Scope* scope = nullptr;
  const language::Function* function = nullptr;
  language::NodeId call = kAbsent;  // call node in the caller
  std::size_t statement = 0;
  language::NodeId next = 0;
  std::size_t stack_base = 0;       // start of the current statement's entries
  bool of_loop = false;             // a step or a condition of the innermost loop
  std::vector<Argument> variables;  // by VariableId
};

// A loop in execution. Its functions are called for each step.
struct Loop {
  StateLoop state;
  language::NodeId call = kAbsent;
  const language::Function* step = nullptr;
  const language::Function* condition = nullptr;              // condition of a while_loop
  std::vector<std::pair<language::NameId, Argument>> others;  // further arguments of the functions, by name
  bool in_condition = false;
};

class Evaluator {
 public:
  Evaluator(Recorder& recorder, const Program& program) : r_(recorder), program_(program) {
    for (std::size_t at = 0; at < program.source.size();) {
      lines_.push_back(static_cast<std::uint32_t>(at));
      const std::size_t end = program.source.find('\n', at);
      at = end == std::string::npos ? end : end + 1;
    }
    source_of_line_.resize(lines_.size() + 1);
    functions_.resize(program.names.size());
  }

  void run(const FormulaSignature& signature, std::span<const Value> inputs) {
    if (inputs.size() != signature.inputs.size())
      throw ValueError(fmt::format("{}: the program has {} inputs ({}), but the call has {}", program_.file_name, signature.inputs.size(),
                                   fmt::join(signature.inputs, ", "), inputs.size()));
    try {
      start(inputs);
      while (!frames_.empty()) step();
      const std::vector<Argument> outputs = std::move(outputs_);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        offset_ = output_offsets_[i];
        if (outputs[i].kind != Argument::Kind::Value)
          fail(fmt::format("the output `{}` is {}; an output must be a tensor or a number", signature.outputs[i], kind_text(outputs[i])));
        r_.output(signature.outputs[i], outputs[i].value);
      }
    } catch (const FormulaError&) { throw; } catch (const Error& error) {
      fail(error.what());
    }
    r_.graph.current_source = 0;
  }

 private:
  // ---- errors
  [[noreturn]] void fail(std::string message) const {
    constexpr std::size_t kShown = 4;  // number of nested calls shown
    std::size_t shown = 0;
    for (std::size_t i = frames_.size(); i-- > 1 && shown < kShown; ++shown)
      message += fmt::format("\n  in `{}`, called at {}", program_.name(frames_[i].function->name),
                             language::position(program_, program_.nodes[frames_[i].call].offset));
    throw language::error_at(program_, offset_, message);
  }
  [[noreturn]] void fail(std::uint32_t offset, std::string message) {
    offset_ = offset;
    fail(std::move(message));
  }

  // Sets the text position for errors and newly recorded nodes.
  void at(std::uint32_t offset) {
    offset_ = offset;
    if (offset < line_begin_ || offset >= line_end_) {
      line_ = static_cast<std::size_t>(std::upper_bound(lines_.begin(), lines_.end(), offset) - lines_.begin());
      line_begin_ = line_ == 0 ? 0 : lines_[line_ - 1];
      line_end_ = line_ == lines_.size() ? kAbsent : lines_[line_];
    }
    std::uint32_t& source = source_of_line_[line_];
    if (source == 0) {
      source = static_cast<std::uint32_t>(r_.graph.sources.size());
      r_.graph.sources.push_back(program_.file_name + ':' + std::to_string(line_));
    }
    r_.graph.current_source = source;
  }

  void count(std::size_t& counter, std::size_t most) {
    if (++counter > most)
      throw ValueError(fmt::format(
          "the program has more than {} nodes after its calls are expanded, the limit `max_nodes`. Raise the limit or split the program",
          r_.limits.max_nodes));
  }

  // ---- frames
  Argument argument_of(const Value& value) const {
    Argument argument;
    argument.kind = Argument::Kind::Value;
    argument.value = value;
    return argument;
  }

  void start(std::span<const Value> inputs) {
    Frame frame;
    std::vector<Argument> arguments;
    for (const Value& input : inputs) arguments.push_back(argument_of(input));
    if (!program_.top.statements.empty()) {
      frame.scope = &program_.top;
      frame.variables.resize(frame.scope->variables.size());
      std::size_t next = 0;
      for (VariableId id = 0; id < frame.scope->variables.size(); ++id)
        if (frame.scope->variables[id].role == Variable::Role::Input) frame.variables[id] = std::move(arguments[next++]);
    } else {
      frame.function = &program_.functions.back();
      frame.scope = &frame.function->body;
      frame.variables.resize(frame.scope->variables.size());
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        const language::Parameter& parameter = frame.function->parameters[i];
        offset_ = parameter.offset;
        bind(frame, parameter, std::move(arguments[i]));
      }
    }
    enter(std::move(frame));
  }

  void enter(Frame frame) {
    frame.stack_base = stack_.size();
    frame.next = frame.scope->statements.front().first_node;
    frames_.push_back(std::move(frame));
  }

  std::string declared(const language::Function& function, const language::Parameter& parameter) const {
    std::string text = fmt::format("{}[", name_of(parameter.dtype));
    for (std::size_t i = 0; i < parameter.extents.size(); ++i) {
      const language::Extent& extent = parameter.extents[i];
      text += i > 0 ? ", " : "";
      text += extent.variable == kAbsent ? std::to_string(extent.value) : std::string(program_.name(function.body, extent.variable));
    }
    return text + "]";
  }

  // Checks an argument against its parameter's declaration and binds the extent names in it.
  void bind(Frame& frame, const language::Parameter& parameter, Argument argument) {
    Argument& variable = frame.variables[parameter.variable];
    if (!parameter.typed) {
      variable = std::move(argument);
      return;
    }
    const language::Function& function = *frame.function;
    const auto mismatch = [&](std::string_view why) {
      const std::string got = argument.kind != Argument::Kind::Value ? std::string(kind_text(argument))
                              : argument.value.is_literal            ? "the number " + r_.describe(argument.value)
                                                                     : r_.describe(argument.value);
      fail(fmt::format("{}: the parameter `{}` is declared {}, but the argument is {}{}", program_.name(function.name),
                       program_.name(function.body, parameter.variable), declared(function, parameter), got, why));
    };
    if (argument.kind != Argument::Kind::Value) mismatch("");
    Value value = argument.value;
    if (value.is_literal) {
      if (!parameter.extents.empty()) mismatch(", which has no axes");
      const Literal::Kind kind = value.literal.kind;
      const bool fits = is_float(parameter.dtype)     ? kind != Literal::Kind::Bool
                        : is_integer(parameter.dtype) ? value.literal.is_integer()
                                                      : kind == Literal::Kind::Bool;
      if (!fits) mismatch(fmt::format(". Write `cast({}, {})`", r_.describe(value), name_of(parameter.dtype)));
      variable = argument_of(r_.node_of(value, parameter.dtype));
      return;
    }
    const std::span<const std::int64_t> shape = r_.shape(value);
    if (r_.dtype(value) != parameter.dtype)
      mismatch(fmt::format(": the type is {}, not {}. Use a cast to convert it", name_of(r_.dtype(value)), name_of(parameter.dtype)));
    if (shape.size() != parameter.extents.size()) mismatch(fmt::format(": the rank is {}, not {}", shape.size(), parameter.extents.size()));
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const language::Extent& extent = parameter.extents[i];
      if (extent.variable == kAbsent) {
        if (shape[i] != extent.value) mismatch(fmt::format(": axis {} is {}, not {}", i, shape[i], extent.value));
        continue;
      }
      Argument& bound = frame.variables[extent.variable];
      if (bound.kind == Argument::Kind::None) {
        bound = argument_of(r_.brought(r_.literal(std::int64_t{shape[i]})));
      } else if (bound.value.literal.integer != shape[i]) {
        mismatch(fmt::format(": axis {} is {}, but `{}` is {}, from {}", i, shape[i], program_.name(function.body, extent.variable),
                             bound.value.literal.integer, bringer(function, extent.variable)));
      }
    }
    variable = std::move(argument);
  }

  std::string bringer(const language::Function& function, VariableId extent) const {
    for (const language::Parameter& parameter : function.parameters)
      for (const language::Extent& e : parameter.extents)
        if (e.variable == extent) return fmt::format("`{}`", program_.name(function.body, parameter.variable));
    return "";
  }

  // ---- one node or one statement's end
  void step() {
    Frame& frame = frames_.back();
    const Statement& statement = frame.scope->statements[frame.statement];
    if (frame.next == statement.end_node) return finish(statement);
    const language::NodeId id = frame.next++;
    const language::Node& node = program_.nodes[id];
    count(visited_, 32 * static_cast<std::size_t>(r_.limits.max_nodes));
    evaluate(id, node);
  }

  void finish(const Statement& statement) {
    count(visited_, 32 * static_cast<std::size_t>(r_.limits.max_nodes));
    Frame& frame = frames_.back();
    if (statement.kind == Statement::Kind::Assign) {
      assign(frame, statement);
      return next_statement(frame);
    }
    std::vector<Argument> results;
    std::vector<std::uint32_t> offsets;
    for (std::size_t i = stack_.size() - statement.value_count; i < stack_.size(); ++i) {
      offsets.push_back(program_.nodes[stack_[i].node].offset);
      results.push_back(single(std::move(stack_[i])));
    }
    stack_.resize(frame.stack_base);
    if (frames_.size() > 1) return leave(std::move(results));
    if (frame.function == nullptr) take_outputs(frame);
    outputs_.insert(outputs_.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
    output_offsets_.insert(output_offsets_.end(), offsets.begin(), offsets.end());
    frames_.pop_back();
  }

  void next_statement(Frame& frame) {
    if (++frame.statement < frame.scope->statements.size()) {
      frame.next = frame.scope->statements[frame.statement].first_node;
      return;
    }
    take_outputs(frame);  // only the top level can end with an assignment
    frames_.pop_back();
  }

  // Collects the assigned names that are never used, in order.
  void take_outputs(const Frame& frame) {
    for (VariableId id = 0; id < frame.scope->variables.size(); ++id) {
      const Variable& variable = frame.scope->variables[id];
      if (variable.role != Variable::Role::Assigned || variable.used) continue;
      outputs_.push_back(frame.variables[id]);
      output_offsets_.push_back(variable.offset);
    }
  }

  void leave(std::vector<Argument> results) {
    const language::NodeId call = frames_.back().call;
    const bool of_loop = frames_.back().of_loop;
    frames_.pop_back();
    if (of_loop) return end_step(results);
    push_results(call, std::move(results));
  }

  void push_results(language::NodeId node, std::vector<Argument> results) {
    Entry entry;
    entry.node = node;
    if (results.size() == 1) {
      entry.argument = std::move(results[0]);
    } else {
      entry.kind = Entry::Kind::Results;
      entry.results = std::move(results);
    }
    stack_.push_back(std::move(entry));
  }

  void assign(Frame& frame, const Statement& statement) {
    const std::span<const language::Target> targets = program_.targets_of(statement);
    if (targets.size() == 1 && is_value(stack_.back())) {
      const Value value = stack_.back().argument.value;
      stack_.pop_back();
      return set(frame, targets[0], value);
    }
    Entry entry = std::move(stack_.back());
    stack_.pop_back();
    if (targets.size() == 1) {
      set(frame, targets[0], single(std::move(entry)));
      return;
    }
    const std::size_t count = entry.kind == Entry::Kind::Results ? entry.results.size() : 1;
    if (count != targets.size()) {
      const language::Node& node = program_.nodes[entry.node];
      const std::string what = node.kind == Kind::Call ? fmt::format("`{}`", program_.name(node.c)) : "the expression";
      fail(targets[0].offset,
           fmt::format("{} names precede `=`, but {} returns {} result{}", targets.size(), what, count, count == 1 ? "" : "s"));
    }
    for (std::size_t i = 0; i < count; ++i) set(frame, targets[i], std::move(entry.results[i]));
  }

  void set(Frame& frame, const language::Target& target, Argument argument) {
    if (argument.kind == Argument::Kind::Value) r_.name(argument.value, program_.name(*frame.scope, target.variable));
    frame.variables[target.variable] = std::move(argument);
  }
  void set(Frame& frame, const language::Target& target, const Value& value) {
    r_.name(value, program_.name(*frame.scope, target.variable));
    set(frame.variables[target.variable], value);
  }
  // Sets the argument to a value. Most arguments are values; their other members are empty and stay so.
  static void set(Argument& argument, const Value& value) {
    if (argument.kind != Argument::Kind::Value && argument.kind != Argument::Kind::None) argument = Argument();
    argument.kind = Argument::Kind::Value;
    argument.value = value;
  }

  // ---- conversion of entries
  static bool is_value(const Entry& entry) { return entry.kind == Entry::Kind::Argument && entry.argument.kind == Argument::Kind::Value; }
  Argument single(Entry entry) {
    if (entry.kind == Entry::Kind::Argument) return std::move(entry.argument);
    const language::Node& node = program_.nodes[entry.node];
    if (entry.kind == Entry::Kind::Function)
      fail(node.offset, fmt::format("`{}` is a function, not a value. Call it", program_.name(node.a)));
    if (entry.kind == Entry::Kind::Results)
      fail(node.offset,
           fmt::format("`{}` returns {} results, but one value is required here. Assign them as in `a, b = {}(…)`, with one name for each",
                       program_.name(node.c), entry.results.size(), program_.name(node.c)));
    Argument list;  // x.shape as a whole
    list.kind = Argument::Kind::List;
    const std::vector<std::int64_t> shape(r_.shape(entry.argument.value).begin(), r_.shape(entry.argument.value).end());
    for (const std::int64_t extent : shape) list.list.push_back(argument_of(r_.brought(r_.literal(std::int64_t{extent}))));
    return list;
  }

  Entry pop() {
    Entry entry = std::move(stack_.back());
    stack_.pop_back();
    return entry;
  }

  // Pops the top of the stack, which must be a tensor or a number.
  Value pop_value(std::string_view user) {
    if (!is_value(stack_.back())) return value(pop(), user);
    const Value found = stack_.back().argument.value;
    stack_.pop_back();
    return found;
  }

  Value value(Entry entry, std::string_view user) {
    const language::NodeId node = entry.node;
    const Argument argument = single(std::move(entry));
    if (argument.kind != Argument::Kind::Value)
      fail(program_.nodes[node].offset, fmt::format("{}: an operand must be a tensor or a number, not {}", user, kind_text(argument)));
    return argument.value;
  }

  void push(language::NodeId node, const Value& value) {
    Entry& entry = stack_.emplace_back();
    entry.node = node;
    set(entry.argument, value);
  }

  void push(language::NodeId node, Argument argument) {
    Entry entry;
    entry.node = node;
    entry.argument = std::move(argument);
    stack_.push_back(std::move(entry));
  }

  // ---- nodes
  void evaluate(language::NodeId id, const language::Node& node) {
    Argument argument;
    switch (node.kind) {
      case Kind::Integer:
        return push(id,
                    r_.literal(Literal{.kind = node.is_unsigned() ? Literal::Kind::UInt : Literal::Kind::Int, .integer = node.integer()}));
      case Kind::Float: return push(id, r_.literal(node.number()));
      case Kind::Boolean: return push(id, r_.literal(node.a != 0));
      case Kind::None: return push(id, std::move(argument));
      case Kind::Type:
        argument.kind = Argument::Kind::Type;
        argument.type = node.dtype();
        return push(id, std::move(argument));
      case Kind::String:
        argument.kind = Argument::Kind::Text;
        argument.text = program_.strings[node.a];
        return push(id, std::move(argument));
      case Kind::Name: {
        const Argument& variable = frames_.back().variables[node.b];
        return variable.kind == Argument::Kind::Value ? push(id, variable.value) : push(id, variable);
      }
      case Kind::Function: {
        Entry entry;
        entry.node = id;
        entry.kind = Entry::Kind::Function;
        stack_.push_back(std::move(entry));
        return;
      }
      case Kind::List: return list(id, node);
      case Kind::Slice: return slice(id, node);
      case Kind::Ellipsis: {
        Entry entry;
        entry.node = id;
        entry.kind = Entry::Kind::Index;
        entry.index.kind = Index::Kind::Ellipsis;
        stack_.push_back(std::move(entry));
        return;
      }
      case Kind::Attribute: {
        Entry entry;
        entry.node = id;
        entry.kind = Entry::Kind::Shape;
        entry.argument = argument_of(value(pop(), "shape"));
        stack_.push_back(std::move(entry));
        return;
      }
      case Kind::Prefix:
      case Kind::Binary:
      case Kind::Conditional:
      case Kind::Index:
      case Kind::Call: break;
    }
    count(operators_, r_.limits.max_nodes);
    at(node.offset);
    if (node.kind == Kind::Index) return index(id, node);
    if (node.kind == Kind::Call) return call(id, node);
    if (node.kind == Kind::Conditional) {
      const Value otherwise = pop_value("where"), then = pop_value("where"), condition = pop_value("where");
      at(node.offset);
      return push(id, r_.where(condition, then, otherwise));
    }
    const Sign sign = sign_of(node.op);
    Value operands[2];
    const std::size_t arity = node.kind == Kind::Binary ? 2 : 1;
    for (std::size_t i = arity; i-- > 0;) operands[i] = pop_value(node.op == Operator::Positive ? "+" : sign.name);
    if (node.op == Operator::Positive) return push(id, operands[0]);
    if (node.op == Operator::Power) return push(id, r_.pow(operands[0], operands[1]));
    if (sign.op) return push(id, r_.elementwise(*sign.op, sign.name, std::span<const Value>(operands, arity)));
    Argument arguments[2];
    for (std::size_t i = 0; i < arity; ++i) arguments[i] = argument_of(operands[i]);
    push(id, r_.call(sign.name, std::span<const Argument>(arguments, arity), {}).at(0));
  }

  void list(language::NodeId id, const language::Node& node) {
    Argument argument;
    argument.kind = Argument::Kind::List;
    for (std::size_t i = stack_.size() - node.b; i < stack_.size(); ++i) {
      const std::uint32_t offset = program_.nodes[stack_[i].node].offset;
      if (stack_[i].kind == Entry::Kind::Index) {
        Argument& item = argument.list.emplace_back();
        item.kind = Argument::Kind::Index;
        item.index = stack_[i].index;
        continue;
      }
      argument.list.push_back(single(std::move(stack_[i])));
      if (argument.list.back().kind == Argument::Kind::List) fail(offset, "a list cannot be an item of a list");
    }
    stack_.resize(stack_.size() - node.b);
    push(id, std::move(argument));
  }

  void slice(language::NodeId id, const language::Node& node) {
    Entry entry;
    entry.node = id;
    entry.kind = Entry::Kind::Index;
    entry.index.kind = Index::Kind::Slice;
    const auto part = [&](language::NodeId which) -> std::optional<std::int64_t> {
      if (which == kAbsent) return std::nullopt;
      const Argument argument = single(pop());
      if (argument.kind == Argument::Kind::None) return std::nullopt;
      offset_ = program_.nodes[which].offset;
      if (argument.kind != Argument::Kind::Value) fail(fmt::format("a bound of a slice must be an integer, not {}", kind_text(argument)));
      return r_.integer(argument.value, "a bound of a slice");
    };
    entry.index.step = part(node.c);
    entry.index.stop = part(node.b);
    entry.index.start = part(node.a);
    stack_.push_back(std::move(entry));
  }

  void index(language::NodeId id, const language::Node& node) {
    std::vector<Index> indices;
    const std::size_t first = stack_.size() - node.c;
    const bool of_shape = stack_[first - 1].kind == Entry::Kind::Shape;
    for (std::size_t i = first; i < stack_.size(); ++i) {
      Entry& entry = stack_[i];
      if (entry.kind == Entry::Kind::Index) {
        indices.push_back(entry.index);
        continue;
      }
      const std::uint32_t offset = program_.nodes[entry.node].offset;
      const Argument argument = single(std::move(entry));
      Index item;
      if (argument.kind == Argument::Kind::None) {
        item.kind = Index::Kind::NewAxis;
      } else if (argument.kind != Argument::Kind::Value) {
        fail(offset,
             fmt::format("an index must be an integer, a slice, `...` or `none`, not {}. Use take(x, indices, axis) to index by data",
                         kind_text(argument)));
      } else if (!argument.value.is_literal || argument.value.literal.kind != Literal::Kind::Int) {
        fail(offset,
             fmt::format("an index must be an integer literal, an extent or an expression of these, not {}{}", r_.describe(argument.value),
                         argument.value.is_literal ? "" : ". Use take(x, indices, axis) to index by data"));
      } else {
        item.at = r_.integer(argument.value, "an index");
      }
      indices.push_back(item);
    }
    stack_.resize(first);
    if (!of_shape) {
      const Value base = value(pop(), "index");
      at(node.offset);
      return push(id, r_.index(base, indices));
    }
    const Value base = pop().argument.value;
    if (indices.size() != 1 || indices[0].kind != Index::Kind::Integer)
      fail(node.offset, "a shape must be indexed by one integer, as in `x.shape[0]`");
    const std::span<const std::int64_t> shape = r_.shape(base);
    const std::int64_t rank = static_cast<std::int64_t>(shape.size()), axis = indices[0].at;
    if (axis < -rank || axis >= rank)
      fail(node.offset, fmt::format("shape: axis {} is out of range for {} of rank {}", axis, r_.describe(base), rank));
    push(id, r_.brought(r_.literal(std::int64_t{shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)]})));
  }

  // ---- calls
  void call(language::NodeId id, const language::Node& node) {
    if (node.d != kAbsent) return call_function(id, node);
    const std::string_view name = program_.name(node.c);
    if (call_elementwise(id, node)) return;
    if (name == "grad" || name == "vjp") return differentiate(id, node, name);
    if (language::function_arguments(name) > 0) return start_loop(id, node, name);
    std::vector<Argument> positional;
    std::vector<std::pair<std::string, Argument>> keywords;
    const std::span<const language::Argument> arguments = program_.arguments_of(node);
    const std::size_t first = stack_.size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Argument argument = single(std::move(stack_[first + i]));
      if (arguments[i].keyword == kAbsent) positional.push_back(std::move(argument));
      else keywords.emplace_back(program_.name(arguments[i].keyword), std::move(argument));
    }
    stack_.resize(first);
    at(node.offset);
    const std::vector<Value> values = r_.call(name, positional, keywords);
    std::vector<Argument> results;
    for (const Value& value : values) results.push_back(argument_of(value));
    push_results(id, std::move(results));
  }

  // Fast path for most calls: an elementwise operator with the right number of values. All other cases, and errors, go to Recorder::call.
  bool call_elementwise(language::NodeId id, const language::Node& node) {
    std::optional<ElementwiseFunction>& known = functions_[node.c];
    if (!known) known = elementwise_function(program_.name(node.c));
    const std::span<const language::Argument> arguments = program_.arguments_of(node);
    if (known->arity == 0 || arguments.size() != known->arity) return false;
    const std::size_t first = stack_.size() - arguments.size();
    Value values[3];
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].keyword != kAbsent || !is_value(stack_[first + i])) return false;
      values[i] = stack_[first + i].argument.value;
    }
    stack_.resize(first);
    push(id, r_.elementwise(known->op, known->name, std::span<const Value>(values, arguments.size())));
    return true;
  }

  void call_function(language::NodeId id, const language::Node& node) {
    const language::Function& function = program_.functions[node.d];
    const std::string_view name = program_.name(function.name);
    if (frames_.size() >= program_.limits.nesting)
      fail(fmt::format("the calls nest deeper than {}, the limit `nesting`. Raise the limit or nest fewer calls", program_.limits.nesting));
    const std::span<const language::Argument> arguments = program_.arguments_of(node);
    const std::size_t first = stack_.size() - arguments.size();
    std::vector<std::size_t> given(function.parameters.size(), kAbsent);  // by parameter: index of its argument
    const auto signature = [&] {
      std::string text = std::string(name) + "(";
      for (const language::Parameter& parameter : function.parameters) {
        if (&parameter != function.parameters.data()) text += ", ";
        text += program_.name(function.body, parameter.variable);
      }
      return text + ")";
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      std::size_t parameter = i;
      if (arguments[i].keyword != kAbsent) {
        const auto named = [&](const language::Parameter& p) { return function.body.variables[p.variable].name == arguments[i].keyword; };
        parameter = static_cast<std::size_t>(std::find_if(function.parameters.begin(), function.parameters.end(), named) -
                                             function.parameters.begin());
        if (parameter == function.parameters.size())
          fail(arguments[i].offset,
               fmt::format("{}: there is no parameter `{}`: {}", name, program_.name(arguments[i].keyword), signature()));
        if (given[parameter] != kAbsent)
          fail(arguments[i].offset, fmt::format("{}: `{}` is given twice", name, program_.name(arguments[i].keyword)));
      } else if (parameter >= function.parameters.size()) {
        fail(arguments[i].offset, fmt::format("{}: takes {} arguments, but the call has {}: {}", name, function.parameters.size(),
                                              arguments.size(), signature()));
      }
      given[parameter] = i;
    }
    Frame frame;
    frame.function = &function;
    frame.scope = &function.body;
    frame.call = id;
    frame.variables.resize(function.body.variables.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] == kAbsent)
        fail(node.offset, fmt::format("{}: takes {} arguments, but the call has {}; `{}` is missing: {}", name, function.parameters.size(),
                                      arguments.size(), program_.name(function.body, function.parameters[i].variable), signature()));
      Argument argument = single(std::move(stack_[first + given[i]]));
      offset_ = arguments[given[i]].offset;
      bind(frame, function.parameters[i], std::move(argument));
    }
    stack_.resize(first);
    enter(std::move(frame));
  }

  // ---- loops with state. Argument order: the functions, the initial state, then the number of steps or the arrays that determine it.
  void start_loop(language::NodeId id, const language::Node& node, std::string_view name) {
    static constexpr std::string_view kForms[] = {"`last, ys = scan(step, init, xs)`", "`last = fold(step, init, xs)`",
                                                  "`last = iterate(step, init, 100)`", "`last = while_loop(going, step, init, bound)`"};
    const auto which = static_cast<std::size_t>(std::ranges::find(StateLoop::kNames, name) - StateLoop::kNames);
    const auto kind = static_cast<StateLoop::Kind>(which);
    const bool is_while = kind == StateLoop::Kind::While, over_xs = kind == StateLoop::Kind::Scan || kind == StateLoop::Kind::Fold;
    const std::size_t functions = language::function_arguments(name);
    const std::span<const language::Argument> arguments = program_.arguments_of(node);
    const std::size_t first = stack_.size() - arguments.size();
    const std::string_view last = is_while ? "bound" : over_xs ? "xs" : "steps";
    std::optional<Argument> init, how_long;
    std::vector<std::pair<language::NameId, Argument>> others;
    bool reverse = false;
    const language::Function* called[2] = {nullptr, nullptr};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Entry& entry = stack_[first + i];
      const bool named = arguments[i].keyword != kAbsent;
      const std::string_view keyword = named ? program_.name(arguments[i].keyword) : std::string_view();
      offset_ = arguments[i].offset;
      if (!named && i < functions) {
        if (entry.kind != Entry::Kind::Function)
          fail(fmt::format("{}: argument {} must be the name of a function defined above: {}", name, i, kForms[which]));
        called[i] = &program_.functions[program_.nodes[entry.node].b];
        continue;
      }
      Argument argument = single(std::move(entry));
      const bool is_init = named ? keyword == "init" : i == functions;
      const bool is_last = named ? keyword == last : i == functions + 1;
      std::optional<Argument>& place = is_init ? init : how_long;
      if (is_init || is_last) {
        if (place) fail(fmt::format("{}: `{}` is given twice: {}", name, is_init ? "init" : last, kForms[which]));
        place = std::move(argument);
      } else if (!named) {
        fail(fmt::format("{}: only {} arguments can be given without a name: {}. Pass other arguments of its function by name, as in `a=a`",
                         name, functions + 2, kForms[which]));
      } else if (over_xs && keyword == "reverse") {
        if (argument.kind != Argument::Kind::Value)
          fail(fmt::format("{}: `reverse` must be true or false, not {}", name, kind_text(argument)));
        reverse = r_.flag(argument.value, "`reverse`");
      } else {
        others.emplace_back(arguments[i].keyword, std::move(argument));
      }
    }
    stack_.resize(first);
    at(node.offset);
    for (std::size_t i = 0; i < functions; ++i)
      if (!called[i]) fail(fmt::format("{}: a function is missing: {}", name, kForms[which]));
    if (!init) fail(fmt::format("{}: the initial state is missing: {}", name, kForms[which]));
    if (!how_long && is_while)
      fail("while_loop: `bound` is missing, the maximum number of steps. Write `while_loop(going, step, init, 100)`");
    if (!how_long) fail(fmt::format("{}: `{}` is missing: {}", name, last, kForms[which]));

    Loop loop{StateLoop(r_, kind, values_in(std::move(*init), name, "the initial state")),
              id,
              called[functions - 1],
              is_while ? called[0] : nullptr,
              std::move(others),
              false};
    const bool number = how_long->kind == Argument::Kind::Value && how_long->value.is_literal;
    std::size_t elements = 0;
    if (number || !over_xs) {
      if (how_long->kind != Argument::Kind::Value)
        fail(fmt::format("{}: `{}` must be a number of steps, not {}", name, last, kind_text(*how_long)));
      loop.state.over(r_.integer(how_long->value, "a number of steps"), reverse);
      elements = over_xs ? 1 : 0;
    } else {
      const std::vector<Value> xs = values_in(std::move(*how_long), name, "`xs`");
      loop.state.over(xs, reverse);
      elements = xs.size();
    }
    check_others(loop, name, elements);
    if (frames_.size() >= program_.limits.nesting)
      fail(fmt::format("the calls nest deeper than {}, the limit `nesting`. Raise the limit or nest fewer calls", program_.limits.nesting));
    loops_.push_back(std::move(loop));
    next_step();
  }

  std::vector<Value> values_in(Argument argument, std::string_view name, std::string_view what) {
    std::vector<Argument> list = argument.kind == Argument::Kind::List ? std::move(argument.list) : std::vector{std::move(argument)};
    std::vector<Value> values;
    for (const Argument& item : list) {
      if (item.kind != Argument::Kind::Value)
        fail(fmt::format("{}: {} must be a value or a list of values, not {}", name, what, kind_text(item)));
      values.push_back(item.value);
    }
    return values;
  }

  // Checks parameter names. The functions take the states, the step's elements, and further arguments by name.
  void check_others(const Loop& loop, std::string_view name, std::size_t elements) {
    const std::size_t states = loop.state.state().size();
    std::vector<bool> used(loop.others.size(), false);
    for (const language::Function* function : {loop.condition, loop.step}) {
      if (!function) continue;
      const std::size_t given = states + (function == loop.step ? elements : 0);
      const std::string_view called = program_.name(function->name);
      if (function->parameters.size() < given)
        fail(fmt::format("{}: `{}` receives {} argument{}, {} state{} and {} of `xs`, but it takes {}", name, called, given,
                         given == 1 ? "" : "s", states, states == 1 ? "" : "s", given - states, function->parameters.size()));
      for (std::size_t i = given; i < function->parameters.size(); ++i) {
        const language::NameId parameter = function->body.variables[function->parameters[i].variable].name;
        const auto found =
            std::find_if(loop.others.begin(), loop.others.end(), [&](const auto& other) { return other.first == parameter; });
        if (found == loop.others.end())
          fail(fmt::format("{}: `{}` takes `{}` in addition to its state{}. Pass it by name: `{}(…, {}={})`", name, called,
                           program_.name(parameter), elements > 0 ? " and its element" : "", name, program_.name(parameter),
                           program_.name(parameter)));
        used[static_cast<std::size_t>(found - loop.others.begin())] = true;
      }
    }
    for (std::size_t i = 0; i < used.size(); ++i)
      if (!used[i])
        fail(fmt::format("{}: `{}` has no parameter `{}` after its state{}", name, program_.name(loop.step->name),
                         program_.name(loop.others[i].first), elements > 0 ? " and its element" : ""));
  }

  void next_step() {
    Loop& loop = loops_.back();
    at(program_.nodes[loop.call].offset);
    count(operators_, r_.limits.max_nodes);
    if (loop.state.next()) return call_of_loop(loop, loop.condition ? loop.condition : loop.step);
    std::vector<Argument> results;
    for (const Value& v : loop.state.state()) results.push_back(argument_of(v));
    for (const Value& v : loop.state.results()) results.push_back(argument_of(v));
    const language::NodeId call = loop.call;
    loops_.pop_back();
    push_results(call, std::move(results));
  }

  void call_of_loop(Loop& loop, const language::Function* function) {
    loop.in_condition = function == loop.condition;
    Frame frame;
    frame.function = function;
    frame.scope = &function->body;
    frame.call = loop.call;
    frame.of_loop = true;
    frame.variables.resize(function->body.variables.size());
    std::vector<Value> given(loop.state.state().begin(), loop.state.state().end());
    if (!loop.in_condition) given.insert(given.end(), loop.state.element().begin(), loop.state.element().end());
    for (std::size_t i = 0; i < function->parameters.size(); ++i) {
      const language::Parameter& parameter = function->parameters[i];
      if (i < given.size()) {
        bind(frame, parameter, argument_of(given[i]));
        continue;
      }
      const language::NameId name = function->body.variables[parameter.variable].name;
      const auto other = std::find_if(loop.others.begin(), loop.others.end(), [&](const auto& o) { return o.first == name; });
      bind(frame, parameter, other->second);
    }
    enter(std::move(frame));
  }

  void end_step(const std::vector<Argument>& results) {
    Loop& loop = loops_.back();
    const language::Function& function = *(loop.in_condition ? loop.condition : loop.step);
    at(program_.nodes[loop.call].offset);
    std::vector<Value> values;
    for (const Argument& result : results) {
      if (result.kind != Argument::Kind::Value)
        fail(fmt::format("`{}` is called in a loop and must return values, not {}", program_.name(function.name), kind_text(result)));
      values.push_back(result.value);
    }
    if (loop.in_condition) {
      if (values.size() != 1)
        fail(fmt::format("while_loop: the condition `{}` returns {} values; it must return one", program_.name(function.name),
                         values.size()));
      loop.state.condition(values[0]);
      return call_of_loop(loop, loop.step);
    }
    const std::size_t states = std::min(values.size(), loop.state.state().size());
    const bool scans = program_.name(program_.nodes[loop.call].c) == "scan";
    loop.state.step({values.data(), scans ? states : values.size()},
                    std::span<const Value>(values).subspan(scans ? states : values.size()));
    next_step();
  }

  void differentiate(language::NodeId id, const language::Node& node, std::string_view name) {
    const std::span<const language::Argument> arguments = program_.arguments_of(node);
    const bool is_grad = name == "grad";
    const std::string_view form = is_grad ? "`da, db = grad(loss, [a, b])`" : "`da, db = vjp(y, [a, b], dy)`";
    const std::size_t expected = is_grad ? 2 : 3, first = stack_.size() - arguments.size();
    if (arguments.size() != expected)
      fail(fmt::format("{}: takes {} arguments, but the call has {}: {}", name, expected, arguments.size(), form));
    for (const language::Argument& argument : arguments)
      if (argument.keyword != kAbsent) fail(argument.offset, fmt::format("{}: the arguments must not be named: {}", name, form));
    const Argument targets = single(std::move(stack_[first + 1]));
    const language::Node& list = program_.nodes[arguments[1].value];
    if (targets.kind != Argument::Kind::List)
      fail(arguments[1].offset, fmt::format("{}: the second argument must be a list of names: {}", name, form));
    if (targets.list.empty()) fail(arguments[1].offset, fmt::format("{}: the list of names is empty: {}", name, form));
    std::vector<Value> xs;
    for (std::size_t i = 0; i < targets.list.size(); ++i) {
      if (list.kind == Kind::List) {
        const language::Node& item = program_.nodes[program_.list_items(list)[i]];
        offset_ = item.offset;
        if (item.kind != Kind::Name)
          fail(
              fmt::format("{}: cannot differentiate with respect to an unnamed expression; an input or a named value is required. Give "
                          "this expression a name",
                          name));
      }
      if (targets.list[i].kind != Argument::Kind::Value)
        fail(fmt::format("{}: cannot differentiate with respect to {}; a tensor is required", name, kind_text(targets.list[i])));
      xs.push_back(targets.list[i].value);
    }
    Value cotangent;
    if (!is_grad) cotangent = value(std::move(stack_[first + 2]), name);
    const Value of = value(std::move(stack_[first]), name);
    stack_.resize(first);
    at(node.offset);
    const std::vector<Value> values = is_grad ? r_.grad(of, xs) : r_.vjp(of, xs, cotangent);
    std::vector<Argument> results;
    for (const Value& value : values) results.push_back(argument_of(value));
    push_results(id, std::move(results));
  }

  Recorder& r_;
  const Program& program_;
  std::vector<std::uint32_t> lines_;                           // start offset of each line
  std::vector<std::uint32_t> source_of_line_;                  // in graph.sources, by line from 1
  std::vector<std::optional<ElementwiseFunction>> functions_;  // by name: results of earlier lookups
  std::size_t line_ = 0;                                       // number of the current line; line_begin_ and line_end_ are its ends
  std::uint32_t line_begin_ = kAbsent, line_end_ = 0;
  std::uint32_t offset_ = 0;
  std::size_t operators_ = 0, visited_ = 0;
  std::vector<Frame> frames_;
  std::vector<Loop> loops_;
  std::vector<Entry> stack_;  // waiting operands of all frames
  std::vector<Argument> outputs_;
  std::vector<std::uint32_t> output_offsets_;
};

}  // namespace

void record_formula(Recorder& recorder, const Program& program, const FormulaSignature& signature, std::span<const Value> arguments) {
  Evaluator(recorder, program).run(signature, arguments);
}

void record_formula(Recorder& recorder, const Program& program, std::span<const FormulaInput> inputs) {
  const FormulaSignature signature = signature_of(program);
  std::vector<Value> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    arguments.push_back(recorder.input(i < signature.inputs.size() ? signature.inputs[i] : "", inputs[i].dtype, inputs[i].shape));
  record_formula(recorder, program, signature, arguments);
}

}  // namespace onepass::compiler
