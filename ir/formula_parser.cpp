// From text to tree in one pass: an operator-precedence parser over an explicit stack. Open brackets and waiting operators are its entries,
// so nesting depth uses no C++ stack.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/formula_lexer.h"

namespace onepass::language {

namespace {

// One entry of the parser's stack: an operator that waits for its right operand, or an open bracket.
struct Pending {
  enum class What : std::uint8_t { Prefix, Binary, Question, Else, Paren, Call, List, Index };
  What what = What::Paren;
  Operator op = Operator::None;
  std::uint8_t colons = 0;               // Index: `:` seen in the current item
  std::uint32_t offset = 0;              // position of the sign or the bracket
  std::uint32_t name = kAbsent;          // Call: the callee
  std::uint32_t callee_offset = 0;       // Call: position of the callee
  std::uint32_t first_argument = 0;      // Call, List, Index: start of its items in pending_arguments_
  NodeId parts[2] = {kAbsent, kAbsent};  // Index: start and stop of the current slice
  Argument begun;                        // Call, List, Index: the current item's keyword, and its position

  bool is_bracket() const { return what >= What::Paren; }
  bool is_barrier() const { return is_bracket() || what == What::Question; }
  bool counts_as_nesting() const { return what != What::Binary || op == Operator::Power; }
  int precedence() const { return what == What::Else ? kConditionalPrecedence : precedence_of(op); }
};

class Parser {
 public:
  Parser(std::string_view text, std::string_view file_name, const Limits& limits)
      : program_(program_of(text, file_name, limits)), lexer_(program_) {
    scope_ = &program_.top;
    advance();
  }

  Program parse() && {
    while (true) {
      skip_separators();
      if (current_.token == Token::End) break;
      if (current_.token == Token::Fn) function();
      else statement();
    }
    if (program_.functions.empty() && program_.top.statements.empty())
      fail(0, "the program is empty. Write an expression such as `x*w + b`, statements or a function `fn f(x) { return x }`");
    return std::move(program_);
  }

 private:
  static Program program_of(std::string_view text, std::string_view file_name, const Limits& limits) {
    Program program;
    program.file_name = file_name;
    program.limits = limits;
    const std::size_t most = std::min<std::size_t>(limits.source_bytes, std::size_t{1} << 31);
    program.source = text.substr(0, most);
    if (text.size() > most)
      throw error_at(program, 0, fmt::format("the source has {} bytes; the limit `source_bytes` is {}", text.size(), most));
    return program;
  }

  // ---- errors
  [[noreturn]] void fail(std::uint32_t offset, std::string_view message) const { throw error_at(program_, offset, message); }
  std::string at(std::uint32_t offset) const { return position(program_, offset); }
  std::string_view text_at(std::uint32_t offset, std::uint32_t length) const {
    return std::string_view(program_.source).substr(offset, length);
  }

  std::string describe(const Lexeme& lexeme) const {
    if (lexeme.token == Token::End) return "the end of the program";
    if (lexeme.token == Token::Newline) return "the end of the line";
    if (lexeme.length > 40) return fmt::format("`{}…`", text_at(lexeme.offset, 40));
    return fmt::format("`{}`", text_at(lexeme.offset, lexeme.length));
  }

  [[noreturn]] void fail_reserved(const Lexeme& word, std::string_view role) const {
    const ReservedWord& reserved = kReservedWords[word.name];
    fail(word.offset, fmt::format("`{0}` is {1} and cannot be {2}. Call it `{0}_`", reserved.text, kind_of(reserved), role));
  }

  void advance() {
    if (has_next_) {
      current_ = next_;
      has_next_ = false;
    } else {
      current_ = lexer_.lex();
    }
  }

  const Lexeme& peek() {
    if (!has_next_) {
      next_ = lexer_.lex();
      has_next_ = true;
    }
    return next_;
  }

  // ---- nodes and names
  NodeId add(Node node) {
    program_.nodes.push_back(node);
    return static_cast<NodeId>(program_.nodes.size() - 1);
  }

  static Node leaf(Kind kind, std::uint32_t offset, std::uint32_t a = 0, std::uint32_t b = 0, std::uint32_t c = 0) {
    Node node;
    node.kind = kind;
    node.offset = offset;
    node.a = a;
    node.b = b;
    node.c = c;
    return node;
  }

  struct Binding {
    std::uint32_t scope = 0;
    VariableId variable = kAbsent;
  };
  // Returns the variable that a NameId denotes in the current scope. There is one table for the top level and one for the current function.
  Binding& binding(NameId name) {
    std::vector<Binding>& table = bindings_[in_function_];
    if (name >= table.size()) {
      table.resize(std::max<std::size_t>(program_.names.size(), 2 * table.size()));
      program_.steps += table.size();
    }
    return table[name];
  }
  VariableId find_variable(NameId name) {
    const Binding& found = binding(name);
    return found.scope == scope_number() ? found.variable : kAbsent;
  }
  std::uint32_t scope_number() const { return in_function_ ? static_cast<std::uint32_t>(program_.functions.size()) + 1 : 1; }
  VariableId declare(NameId name, Variable::Role role, std::uint32_t offset) {
    const VariableId id = static_cast<VariableId>(scope_->variables.size());
    Variable variable;
    variable.name = name;
    variable.role = role;
    variable.offset = offset;
    scope_->variables.push_back(variable);
    binding(name) = {scope_number(), id};
    return id;
  }

  void declare_new(const Lexeme& word, Variable::Role role, VariableId& result) {
    const VariableId earlier = find_variable(word.name);
    if (earlier != kAbsent) fail_declared(word, scope_->variables[earlier], role);
    result = declare(word.name, role, word.offset);
  }

  [[noreturn]] void fail_declared(const Lexeme& word, const Variable& earlier, Variable::Role role) const {
    const std::string_view name = program_.names[word.name];
    const std::string first = fmt::format("{}:{}", program_.file_name, at(earlier.offset));
    using Role = Variable::Role;
    if (role == Role::Parameter) fail(word.offset, fmt::format("two parameters have the name `{}`; the first is at {}", name, first));
    if (role == Role::Extent) fail(word.offset, fmt::format("the extent `{}` has the same name as a parameter, at {}", name, first));
    if (earlier.role == Role::Input)
      fail(word.offset,
           fmt::format("`{0}` is assigned, but it is an input, used at {1}; a name has only one value. Call this one `{0}_`", name, first));
    const std::string_view what = earlier.role == Role::Parameter ? "it is a parameter"
                                  : earlier.role == Role::Extent  ? "it is an extent"
                                                                  : "it is first assigned";
    fail(word.offset,
         fmt::format("`{0}` is assigned twice: {1} at {2}; a name has only one value. Call this one `{0}_`", name, what, first));
  }

  NodeId name_value(const Lexeme& word) {
    VariableId variable = find_variable(word.name);
    if (variable == kAbsent) {
      if (in_function_) fail_unknown(word);
      variable = declare(word.name, Variable::Role::Input, word.offset);
    }
    scope_->variables[variable].used = true;
    return add(leaf(Kind::Name, word.offset, word.name, variable));
  }

  // True if the argument that begins here is one of a loop's functions.
  bool takes_function() const {
    if (stack_.empty() || stack_.back().what != Pending::What::Call || stack_.back().begun.keyword != kAbsent) return false;
    const Pending& call = stack_.back();
    return functions_named(call.name).empty() &&
           pending_arguments_.size() - call.first_argument < function_arguments(program_.names[call.name]);
  }

  NodeId function_value(const Lexeme& word) {
    if (functions_named(word.name).empty()) fail_not_a_function(word);
    return add(leaf(Kind::Function, word.offset, word.name, function_of_name_[word.name]));
  }

  [[noreturn]] void fail_not_a_function(const Lexeme& word) const {
    std::vector<std::string_view> known;
    for (const Function& function : program_.functions) known.push_back(program_.names[function.name]);
    const std::string near = nearest(program_.names[word.name], known);
    const std::string_view loop = program_.names[stack_.back().name];
    fail(word.offset, fmt::format("`{}` is not a function defined above; {} first takes {}{}", program_.names[word.name], loop,
                                  function_arguments(loop) == 2 ? "two functions, the condition and the step" : "a function, the step",
                                  near.empty() ? "" : fmt::format(": did you mean `{}`?", near)));
  }

  [[noreturn]] void fail_unknown(const Lexeme& word) const {
    std::vector<std::string_view> known;
    for (const Variable& variable : scope_->variables) known.push_back(program_.names[variable.name]);
    const std::string near = nearest(program_.names[word.name], known);
    const std::string_view function = program_.names[function_name_];
    fail(
        word.offset,
        fmt::format("`{}` is unknown in the function `{}`, which can use only its parameters, their extents and the names assigned above{}",
                    program_.names[word.name], function, near.empty() ? "" : fmt::format(": did you mean `{}`?", near)));
  }

  // ---- statements
  void skip_separators() {
    while (current_.token == Token::Newline || current_.token == Token::Semicolon) advance();
  }

  bool at_statement_end() const {
    return current_.token == Token::Newline || current_.token == Token::Semicolon || current_.token == Token::End ||
           current_.token == Token::CloseBrace;
  }

  void statement() {
    if (!scope_->statements.empty()) {
      const Statement& before = scope_->statements.back();
      if (before.kind == Statement::Kind::Return)
        fail(current_.offset,
             fmt::format("a statement follows the `return` at {}; `return` must be the last statement", at(before.offset)));
      if (before.kind == Statement::Kind::Expression)
        fail(before.offset,
             "another statement follows this bare expression; a bare expression must be the last statement, and it is the result `out`. "
             "Give it a name, as in `y = …`");
    }
    Statement made;
    made.offset = current_.offset;
    made.first_node = static_cast<NodeId>(program_.nodes.size());
    made.first_target = static_cast<std::uint32_t>(program_.targets.size());
    if (current_.token == Token::Return) {
      if (!in_function_)
        fail(current_.offset,
             "`return` is allowed only in a function; at the top level the outputs are the unused names and a last bare expression");
      made.kind = Statement::Kind::Return;
      advance();
      results_.clear();
      while (true) {
        results_.push_back(expression("`return`"));
        if (current_.token != Token::Comma) break;
        advance();
      }
    } else if (starts_assignment()) {
      made.kind = Statement::Kind::Assign;
      assignment(made);
    } else {
      made.kind = Statement::Kind::Expression;
      results_.assign(1, expression({}));
    }
    if (!at_statement_end()) fail_after_statement(made);
    if (current_.token == Token::CloseBrace && !in_function_) fail(current_.offset, "`}` has no matching `{`");
    made.end_node = static_cast<NodeId>(program_.nodes.size());
    made.first_value = static_cast<std::uint32_t>(program_.items.size());
    made.value_count = static_cast<std::uint32_t>(results_.size());
    program_.items.insert(program_.items.end(), results_.begin(), results_.end());
    scope_->statements.push_back(made);
  }

  bool starts_assignment() {
    const bool word = current_.token == Token::Name || current_.name < kReservedWords.size();
    if (!word) return false;
    const Token following = peek().token;
    return following == Token::Assign || following == Token::Comma;
  }

  void assignment(Statement& made) {
    targets_.clear();
    while (true) {
      if (current_.token != Token::Name) {
        if (current_.name < kReservedWords.size()) fail_reserved(current_, "assigned");
        fail(current_.offset, fmt::format("a name is expected before `=`; found {}", describe(current_)));
      }
      targets_.push_back(current_);
      advance();
      if (current_.token == Token::Assign) break;
      if (current_.token != Token::Comma) {
        fail(current_.offset, fmt::format("`=` is expected after the names, as in `a, b = f(x)`; found {}", describe(current_)));
      }
      advance();
    }
    advance();
    results_.assign(1, expression("`=`"));
    for (const Lexeme& word : targets_) {
      VariableId variable = kAbsent;
      declare_new(word, Variable::Role::Assigned, variable);
      program_.targets.push_back({variable, word.offset});
    }
    made.target_count = static_cast<std::uint32_t>(targets_.size());
  }

  [[noreturn]] void fail_after_statement(const Statement& made) const {
    if (current_.token == Token::Assign) {
      if (made.kind == Statement::Kind::Assign)
        fail(current_.offset, "a statement has two `=`; only one is allowed. Write two statements, or `==` to compare");
      fail(current_.offset, "`=` must follow one or more names, as in `a, b = f(x)`, at the start of a statement; `==` compares");
    }
    if (current_.token == Token::Comma) {
      if (made.kind == Statement::Kind::Assign)
        fail(current_.offset,
             "several expressions follow `=`; only one is allowed, and several names take the results of one call, as in `a, b = f(x)`");
      fail(current_.offset,
           "`,` may separate only arguments, list items, names before `=` and results of `return`; it does not make a tuple");
    }
    if (current_.token == Token::CloseParen || current_.token == Token::CloseBracket)
      fail(current_.offset, fmt::format("{} has no matching opening bracket", describe(current_)));
    if (current_.token == Token::OpenBrace) fail(current_.offset, "`{` may open only the body of a function, as in `fn f(x) { return x }`");
    if (current_.token == Token::Colon)
      fail(current_.offset, "`:` is allowed only in `x[1:5]`, in `c ? a : b` and between a parameter and its type");
    fail(current_.offset,
         fmt::format("{} cannot follow the expression. Add an operator, or end the statement with a newline or `;`", describe(current_)));
  }

  void function() {
    const std::uint32_t offset = current_.offset;
    advance();
    if (current_.token != Token::Name) {
      if (current_.name < kReservedWords.size()) fail_reserved(current_, "a function");
      fail(current_.offset, fmt::format("the name of the function is expected after `fn`; found {}", describe(current_)));
    }
    for (const Function& earlier : functions_named(current_.name))
      fail(current_.offset, fmt::format("the function `{}` is defined twice; the first definition is at {}:{}",
                                        program_.names[current_.name], program_.file_name, at(earlier.offset)));
    Function made;
    made.name = function_name_ = current_.name;
    made.offset = current_.offset;
    made.statements_before = static_cast<std::uint32_t>(program_.top.statements.size());
    scope_ = &made.body;
    in_function_ = true;
    advance();
    if (current_.token != Token::OpenParen)
      fail(current_.offset,
           fmt::format("`(` and the parameters are expected after `fn {}`; found {}", program_.names[made.name], describe(current_)));
    const std::uint32_t open_paren = current_.offset;
    advance();
    while (current_.token != Token::CloseParen) {
      if (current_.token == Token::End) fail(open_paren, "`(` is never closed");
      parameter(made);
      if (current_.token == Token::Comma) {
        advance();
      } else if (current_.token != Token::CloseParen && current_.token != Token::End) {
        fail(current_.offset, fmt::format("`,` or `)` is expected after a parameter; found {}", describe(current_)));
      }
    }
    advance();
    while (current_.token == Token::Newline) advance();
    if (current_.token != Token::OpenBrace)
      fail(current_.offset, fmt::format("`{{` and the body of `{}` are expected; found {}", program_.names[made.name], describe(current_)));
    const std::uint32_t open_brace = current_.offset;
    advance();
    while (true) {
      skip_separators();
      if (current_.token == Token::CloseBrace) break;
      if (current_.token == Token::End)
        fail(open_brace, fmt::format("`{{` of the function `{}` is never closed", program_.names[made.name]));
      if (current_.token == Token::Fn)
        fail(current_.offset,
             fmt::format("a function cannot be defined inside another function, `{}` at {}", program_.names[made.name], at(offset)));
      statement();
    }
    if (made.body.statements.empty() || made.body.statements.back().kind == Statement::Kind::Assign)
      fail(current_.offset,
           fmt::format("the function `{}` returns nothing. Add `return` and its results before `}}`", program_.names[made.name]));
    if (const Statement& last = made.body.statements.back(); last.kind == Statement::Kind::Expression)
      fail(last.offset,
           fmt::format("the function `{}` returns nothing. Write `return` before its last expression", program_.names[made.name]));
    advance();
    if (made.name >= function_of_name_.size()) {
      function_of_name_.resize(std::max<std::size_t>(program_.names.size(), 2 * function_of_name_.size()), kAbsent);
      program_.steps += function_of_name_.size();
    }
    function_of_name_[made.name] = static_cast<std::uint32_t>(program_.functions.size());
    program_.functions.push_back(std::move(made));
    in_function_ = false;
    scope_ = &program_.top;
    if (current_.token == Token::CloseBrace) fail(current_.offset, "`}` has no matching `{`");
  }

  std::span<const Function> functions_named(NameId name) const {
    if (name >= function_of_name_.size() || function_of_name_[name] == kAbsent) return {};
    return {&program_.functions[function_of_name_[name]], 1};
  }

  void parameter(Function& made) {
    if (current_.token != Token::Name) {
      if (current_.name < kReservedWords.size()) fail_reserved(current_, "a parameter");
      fail(current_.offset, fmt::format("the name of a parameter is expected; found {}", describe(current_)));
    }
    Parameter parameter;
    parameter.offset = current_.offset;
    const VariableId earlier = find_variable(current_.name);
    if (earlier != kAbsent && made.body.variables[earlier].role == Variable::Role::Extent)
      fail(current_.offset, fmt::format("the parameter `{}` has the same name as an extent, at {}:{}", program_.names[current_.name],
                                        program_.file_name, at(made.body.variables[earlier].offset)));
    declare_new(current_, Variable::Role::Parameter, parameter.variable);
    advance();
    if (current_.token == Token::Assign) fail(current_.offset, "a parameter cannot have a default value");
    if (current_.token == Token::Colon) {
      advance();
      parameter_type(parameter);
    }
    made.parameters.push_back(std::move(parameter));
  }

  void parameter_type(Parameter& parameter) {
    if (current_.token != Token::Type) {
      std::vector<std::string_view> types;
      for (int i = 0; i < kDTypeCount; ++i) types.push_back(name_of(static_cast<DType>(i)));
      const std::string near = current_.token == Token::Name ? nearest(program_.names[current_.name], types) : "";
      fail(current_.offset, fmt::format("a type such as `f32[n, 4]` is expected after `:`; found {}{}", describe(current_),
                                        near.empty() ? "" : fmt::format(": did you mean `{}`?", near)));
    }
    const std::string_view type = kReservedWords[current_.name].text;
    parameter.typed = true;
    parameter.dtype = static_cast<DType>(kReservedWords[current_.name].value);
    advance();
    if (current_.token != Token::OpenBracket)
      fail(current_.offset, fmt::format("extents are expected after the type, as in `{0}[n, 4]`, or `{0}[]` for rank 0; found {1}", type,
                                        describe(current_)));
    const std::uint32_t open_bracket = current_.offset;
    advance();
    while (current_.token != Token::CloseBracket) {
      Extent extent;
      extent.offset = current_.offset;
      if (current_.token == Token::Integer && current_.value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        extent.value = static_cast<std::int64_t>(current_.value);
      } else if (current_.token == Token::Integer) {
        lexer_.fail_integer(current_.offset, text_at(current_.offset, current_.length), "i64, whose maximum is 9223372036854775807");
      } else if (current_.token == Token::Name) {
        extent.variable = find_variable(current_.name);
        if (extent.variable == kAbsent || scope_->variables[extent.variable].role != Variable::Role::Extent)
          declare_new(current_, Variable::Role::Extent, extent.variable);
      } else if (current_.token == Token::End) {
        fail(open_bracket, "`[` is never closed");
      } else if (current_.name < kReservedWords.size()) {
        fail_reserved(current_, "an extent");
      } else {
        fail(current_.offset, fmt::format("an extent must be a name or an integer; found {}", describe(current_)));
      }
      parameter.extents.push_back(extent);
      advance();
      if (current_.token == Token::Comma) advance();
      else if (current_.token != Token::CloseBracket && current_.token != Token::End)
        fail(current_.offset, fmt::format("`,` or `]` is expected after an extent; found {}", describe(current_)));
    }
    advance();
  }

  // ---- expressions: two states, before an operand and after an operand, over an explicit stack
  NodeId expression(std::string_view after) {
    after_ = after;
    while (true) {
      operand();
      if (!after_operand()) break;
    }
    const NodeId result = operands_.back();
    operands_.pop_back();
    return result;
  }

  Pending& push(Pending::What what, std::uint32_t offset, Operator op = Operator::None) {
    Pending entry;
    entry.what = what;
    entry.op = op;
    entry.offset = offset;
    if (entry.counts_as_nesting() && ++depth_ > program_.limits.nesting)
      fail(offset,
           fmt::format("the expression nests deeper than {}, the limit `nesting`. Give inner parts a name", program_.limits.nesting));
    stack_.push_back(entry);
    return stack_.back();
  }

  void pop() {
    depth_ -= stack_.back().counts_as_nesting();
    stack_.pop_back();
  }

  NodeId take_operand() {
    const NodeId id = operands_.back();
    operands_.pop_back();
    return id;
  }

  // Reads the first part of one primary, with its prefix operators. after_operand() reads its other parts.
  void operand() {
    while (true) {
      const Lexeme lexeme = current_;
      switch (lexeme.token) {
        case Token::Operator:
          if (prefix(lexeme)) continue;
          fail_operand();
        case Token::Integer: return integer(lexeme);
        case Token::Float: {
          Node node =
              leaf(Kind::Float, lexeme.offset, static_cast<std::uint32_t>(lexeme.value), static_cast<std::uint32_t>(lexeme.value >> 32));
          node.c = lexeme.single;
          node.d = lexeme.length;
          return take_leaf(node);
        }
        case Token::String:
          program_.strings.emplace_back(text_at(lexeme.offset + 1, lexeme.length - 2));
          return take_leaf(leaf(Kind::String, lexeme.offset, static_cast<std::uint32_t>(program_.strings.size() - 1)));
        case Token::Boolean: return take_leaf(leaf(Kind::Boolean, lexeme.offset, kReservedWords[lexeme.name].value));
        case Token::None: return take_leaf(leaf(Kind::None, lexeme.offset));
        case Token::Type: return take_leaf(leaf(Kind::Type, lexeme.offset, kReservedWords[lexeme.name].value));
        case Token::Constant: {
          const std::uint64_t bits = std::bit_cast<std::uint64_t>(kReservedWords[lexeme.name].number);
          Node node = leaf(Kind::Float, lexeme.offset, static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32));
          node.c = std::bit_cast<std::uint32_t>(static_cast<float>(kReservedWords[lexeme.name].number));
          node.d = lexeme.length;
          return take_leaf(node);
        }
        case Token::Name:
          if (peek().token != Token::OpenParen) {
            operands_.push_back(takes_function() ? function_value(lexeme) : name_value(lexeme));
            return advance();
          }
          if (in_function_ && lexeme.name == function_name_)
            fail(lexeme.offset,
                 fmt::format("`{}` calls itself; a function can call only functions defined above it", program_.names[lexeme.name]));
          advance();
          open(Pending::What::Call, lexeme);
          if (current_.token == Token::CloseParen) return close_call();
          begin_argument();
          continue;
        case Token::OpenParen:
          push(Pending::What::Paren, lexeme.offset);
          advance();
          if (current_.token == Token::CloseParen) fail(current_.offset, "an expression is missing in `()`. Write `[]` for an empty list");
          continue;
        case Token::OpenBracket:
          open(Pending::What::List, lexeme);
          if (current_.token == Token::CloseBracket) return close_list();
          begin_argument();
          continue;
        case Token::Ellipsis:
          if (!takes_slices() || stack_.back().colons > 0)
            fail(lexeme.offset, "`...` is allowed only in an index, as in `x[..., 0]`, where it means all remaining axes");
          take_leaf(leaf(Kind::Ellipsis, lexeme.offset));
          if (current_.token != Token::Comma && current_.token != Token::CloseBracket)
            fail(current_.offset, fmt::format("`,` or `]` is expected after `...`; found {}", describe(current_)));
          return;
        case Token::Colon:
          if (!takes_slices()) fail_operand();
          slice_colon(kAbsent);
          if (slice_ends()) return end_slice();
          continue;
        case Token::CloseBracket:
          if (in_list_after_comma(Pending::What::List)) return close_list();
          if (in_list_after_comma(Pending::What::Index)) return close_index();
          fail_operand();
        case Token::CloseParen:
          if (in_list_after_comma(Pending::What::Call)) return close_call();
          fail_operand();
        default: fail_operand();
      }
    }
  }

  void take_leaf(const Node& node) {
    if (node.kind != Kind::Ellipsis && current_.token >= Token::Fn && peek().token == Token::OpenParen) fail_call_of_reserved();
    operands_.push_back(add(node));
    advance();
  }

  [[noreturn]] void fail_call_of_reserved() const {
    const ReservedWord& word = kReservedWords[current_.name];
    if (word.token == Token::Type)
      fail(current_.offset, fmt::format("`{0}` is a type and cannot be called. Write `cast(x, {0})`", word.text));
    fail(current_.offset, fmt::format("`{}` is {} and cannot be called", word.text, kind_of(word)));
  }

  // True inside an index or a list: `put(x, [1:5, 0], v)`.
  static bool takes_slices(const Pending& entry) { return entry.what == Pending::What::Index || entry.what == Pending::What::List; }
  bool takes_slices() const { return !stack_.empty() && takes_slices(stack_.back()); }

  // True after a trailing comma: then a bracket may close at the start of an item, as in `[1, 2, ]`.
  bool in_list_after_comma(Pending::What what) const {
    return !stack_.empty() && stack_.back().what == what && pending_arguments_.size() > stack_.back().first_argument &&
           stack_.back().begun.keyword == kAbsent && stack_.back().colons == 0;
  }

  bool prefix(const Lexeme& lexeme) {
    Operator op;
    switch (lexeme.op) {
      case Operator::Add: op = Operator::Positive; break;
      case Operator::Subtract: op = Operator::Negate; break;
      case Operator::BitNot: op = Operator::BitNot; break;
      case Operator::Not: op = Operator::Not; break;
      default: return false;
    }
    if (op == Operator::Not && !stack_.empty() && !stack_.back().is_bracket() && stack_.back().what != Pending::What::Question &&
        stack_.back().precedence() > kNotPrecedence)
      fail(lexeme.offset,
           fmt::format("`not` has a lower precedence than `{}` before it. Write parentheses: `(not …)`", text_of(stack_.back().op)));
    push(Pending::What::Prefix, lexeme.offset, op);
    advance();
    return true;
  }

  void integer(const Lexeme& lexeme) {
    constexpr std::uint64_t kLeast = std::uint64_t{1} << 63;  // has the same bits as -2^63
    std::uint32_t offset = lexeme.offset;
    bool is_unsigned = lexeme.value >= kLeast;
    if (lexeme.value == kLeast) {  // 2^63 after a minus that applies only to it is the least i64; otherwise it is a u64
      const Lexeme& following = peek();
      const bool alone = !(following.token == Token::Operator && following.op == Operator::Power) &&
                         following.token != Token::OpenBracket && following.token != Token::Dot;
      if (alone && !stack_.empty() && stack_.back().what == Pending::What::Prefix && stack_.back().op == Operator::Negate) {
        offset = stack_.back().offset;
        pop();
        is_unsigned = false;
      }
    }
    take_leaf(
        leaf(Kind::Integer, offset, static_cast<std::uint32_t>(lexeme.value), static_cast<std::uint32_t>(lexeme.value >> 32), is_unsigned));
  }

  // Opens a bracket; `current_` is the bracket token.
  void open(Pending::What what, const Lexeme& lexeme) {
    const std::uint32_t offset = current_.offset;
    Pending& entry = push(what, offset);
    entry.name = what == Pending::What::Call ? lexeme.name : kAbsent;
    entry.callee_offset = lexeme.offset;
    entry.first_argument = static_cast<std::uint32_t>(pending_arguments_.size());
    advance();
  }

  void begin_argument() {
    Pending& entry = stack_.back();
    entry.begun = {};
    entry.begun.offset = current_.offset;
    entry.colons = 0;
    entry.parts[0] = entry.parts[1] = kAbsent;
    if (entry.what != Pending::What::Call) return;
    const bool word = current_.token == Token::Name || current_.name < kReservedWords.size();
    if (word && peek().token == Token::Assign) {
      if (current_.token != Token::Name) fail_reserved(current_, "an argument's name");
      entry.begun.keyword = current_.name;
      advance();
      advance();
    }
  }

  // Reads, after one operand, operators and closing brackets. Returns false at the end of the expression.
  bool after_operand() {
    while (true) {
      const Lexeme lexeme = current_;
      switch (lexeme.token) {
        case Token::Operator: binary(lexeme); return true;
        case Token::Question:
          reduce(kConditionalPrecedence + 1);
          push(Pending::What::Question, lexeme.offset);
          advance();
          return true;
        case Token::Colon:
          reduce(0);
          if (stack_.empty()) return false;
          if (stack_.back().what == Pending::What::Question) {
            stack_.back().what = Pending::What::Else;
            stack_.back().op = Operator::None;
            advance();
            return true;
          }
          if (!takes_slices(stack_.back())) fail_in_bracket();
          slice_colon(take_operand());
          if (!slice_ends()) return true;
          end_slice();
          continue;
        case Token::Comma:
          reduce(0);
          if (stack_.empty()) return false;
          if (stack_.back().what == Pending::What::Question) fail_question();
          if (stack_.back().what == Pending::What::Paren) fail(lexeme.offset, "`(a, b)` is not a value. Write `[a, b]` for a list");
          end_argument();
          advance();
          begin_argument();
          return true;
        case Token::CloseParen:
        case Token::CloseBracket:
          reduce(0);
          if (stack_.empty()) return false;
          if (stack_.back().what == Pending::What::Question) fail_question();
          close(lexeme);
          continue;
        case Token::OpenBracket:
          open(Pending::What::Index, lexeme);
          if (current_.token == Token::CloseBracket) fail(current_.offset, "an index is missing in `[]`, as in `x[0]` or `x[:, 1:5]`");
          begin_argument();
          return true;
        case Token::Dot: attribute(); continue;
        case Token::OpenParen: fail(lexeme.offset, "only a name can be called. Add an operator before `(`");
        default:
          reduce(0);
          if (stack_.empty()) return false;
          if (stack_.back().what == Pending::What::Question) fail_question();
          fail_in_bracket();
      }
    }
  }

  void binary(const Lexeme& lexeme) {
    if (lexeme.op == Operator::BitNot || lexeme.op == Operator::Not)
      fail(lexeme.offset, fmt::format("`{}` is a prefix operator with one operand. Add an operator before it", text_of(lexeme.op)));
    const int precedence = precedence_of(lexeme.op);
    reduce(precedence + (lexeme.op == Operator::Power || is_comparison(lexeme.op) ? 1 : 0));
    if (is_comparison(lexeme.op) && !stack_.empty() && stack_.back().what == Pending::What::Binary && is_comparison(stack_.back().op))
      fail(lexeme.offset,
           fmt::format("comparisons cannot be chained. Write `a {} b and b {} c`", text_of(stack_.back().op), text_of(lexeme.op)));
    push(Pending::What::Binary, lexeme.offset, lexeme.op);
    advance();
  }

  // Makes nodes of the waiting operators that bind at least as tightly as `least`, down to the innermost bracket or `?`.
  void reduce(int least) {
    while (!stack_.empty() && !stack_.back().is_barrier() && stack_.back().precedence() >= least) {
      const Pending entry = stack_.back();
      pop();
      ++program_.steps;
      Node node;
      node.offset = entry.offset;
      node.op = entry.op;
      if (entry.what == Pending::What::Prefix) {
        node.kind = Kind::Prefix;
        node.a = take_operand();
      } else if (entry.what == Pending::What::Binary) {
        node.kind = Kind::Binary;
        node.b = take_operand();
        node.a = take_operand();
      } else {
        node.kind = Kind::Conditional;
        node.c = take_operand();
        node.b = take_operand();
        node.a = take_operand();
      }
      operands_.push_back(add(node));
    }
  }

  void end_argument() {
    Pending& entry = stack_.back();
    Argument argument = entry.begun;
    if (entry.colons > 0) {
      Node node = leaf(Kind::Slice, entry.begun.offset, entry.parts[0], entry.parts[1]);
      node.c = kAbsent;
      const NodeId last = take_operand();
      if (entry.colons == 1) node.b = last;
      else node.c = last;
      argument.value = add(node);
      entry.colons = 0;
    } else {
      argument.value = take_operand();
    }
    if (argument.keyword == kAbsent && pending_arguments_.size() > entry.first_argument && pending_arguments_.back().keyword != kAbsent)
      fail(argument.offset, fmt::format("a positional argument follows the argument `{}=`; named arguments must come last",
                                        program_.names[pending_arguments_.back().keyword]));
    pending_arguments_.push_back(argument);
  }

  // Ends one part of a slice at a colon. `part` is the expression before it, or kAbsent.
  void slice_colon(NodeId part) {
    Pending& entry = stack_.back();
    if (entry.colons == 2) fail(current_.offset, "a slice has more than two `:`; at most two are allowed, as in `x[start:stop:step]`");
    entry.parts[entry.colons++] = part;
    advance();
  }

  bool slice_ends() const { return current_.token == Token::Comma || current_.token == Token::CloseBracket; }

  // Ends a slice whose part after the last colon is omitted.
  void end_slice() { operands_.push_back(kAbsent); }

  void close(const Lexeme& lexeme) {
    const Pending::What what = stack_.back().what;
    const bool paren = what == Pending::What::Paren || what == Pending::What::Call;
    if (paren != (lexeme.token == Token::CloseParen)) fail_in_bracket();
    if (what == Pending::What::Paren) {
      pop();
      return advance();
    }
    end_argument();
    if (what == Pending::What::Call) return close_call();
    if (what == Pending::What::List) return close_list();
    close_index();
  }

  // Moves the innermost bracket's items, all complete, into `items` and returns their number.
  std::uint32_t move_items(std::uint32_t first_argument) {
    for (std::size_t i = first_argument; i < pending_arguments_.size(); ++i) program_.items.push_back(pending_arguments_[i].value);
    const std::uint32_t count = static_cast<std::uint32_t>(pending_arguments_.size() - first_argument);
    program_.steps += count;
    pending_arguments_.resize(first_argument);
    return count;
  }

  // Checks for repeated keywords in one pass, so that a call with a million names takes linear time.
  void check_keywords(const Pending& call) {
    ++call_number_;
    program_.steps += pending_arguments_.size() - call.first_argument;
    for (std::size_t i = call.first_argument; i < pending_arguments_.size(); ++i) {
      const Argument& argument = pending_arguments_[i];
      if (argument.keyword == kAbsent) continue;
      if (argument.keyword >= keyword_seen_.size()) {
        keyword_seen_.resize(std::max<std::size_t>(program_.names.size(), 2 * keyword_seen_.size()));
        program_.steps += keyword_seen_.size();
      }
      Seen& seen = keyword_seen_[argument.keyword];
      if (seen.call == call_number_)
        fail(argument.offset, fmt::format("the argument `{}` of `{}` is given twice; the first is at {}", program_.names[argument.keyword],
                                          program_.names[call.name], at(seen.offset)));
      seen = {call_number_, argument.offset};
    }
  }

  void close_call() {
    const Pending entry = stack_.back();
    pop();
    check_keywords(entry);
    Node node = leaf(Kind::Call, entry.callee_offset, static_cast<std::uint32_t>(program_.arguments.size()),
                     static_cast<std::uint32_t>(pending_arguments_.size() - entry.first_argument));
    node.c = entry.name;
    node.d = entry.name < function_of_name_.size() ? function_of_name_[entry.name] : kAbsent;
    program_.arguments.insert(program_.arguments.end(), pending_arguments_.begin() + entry.first_argument, pending_arguments_.end());
    pending_arguments_.resize(entry.first_argument);
    operands_.push_back(add(node));
    advance();
  }

  void close_list() {
    const Pending entry = stack_.back();
    pop();
    const std::uint32_t first = static_cast<std::uint32_t>(program_.items.size());
    const std::uint32_t count = move_items(entry.first_argument);
    operands_.push_back(add(leaf(Kind::List, entry.offset, first, count)));
    advance();
  }

  void close_index() {
    const Pending entry = stack_.back();
    pop();
    Node node = leaf(Kind::Index, entry.offset);
    node.b = static_cast<std::uint32_t>(program_.items.size());
    node.c = move_items(entry.first_argument);
    node.a = take_operand();
    operands_.push_back(add(node));
    advance();
  }

  void attribute() {
    const std::uint32_t dot = current_.offset;
    advance();
    if (current_.token != Token::Name || program_.names[current_.name] != "shape") {
      const std::string_view text = text_at(current_.offset, current_.length);
      const std::string_view hint = text == "T"       ? ". Write `transpose(x)`"
                                    : text == "dtype" ? ". Write the type, as in `cast(x, f32)`"
                                    : text == "size"  ? ". Write `size(x)`"
                                                      : "";
      fail(current_.offset, fmt::format("only `shape` can follow `.`, as in `x.shape[0]`; found {}{}", describe(current_), hint));
    }
    operands_.push_back(add(leaf(Kind::Attribute, dot, take_operand(), current_.name)));
    advance();
  }

  // ---- errors of expressions
  std::string_view text_of_open(const Pending& entry) const {
    return entry.what == Pending::What::Paren || entry.what == Pending::What::Call ? "(" : "[";
  }
  std::string_view text_of_close(const Pending& entry) const {
    return entry.what == Pending::What::Paren || entry.what == Pending::What::Call ? ")" : "]";
  }

  const Pending* innermost_bracket() const {
    for (std::size_t i = stack_.size(); i-- > 0;)
      if (stack_[i].is_bracket()) return &stack_[i];
    return nullptr;
  }

  [[noreturn]] void fail_never_closed(const Pending& bracket) const {
    fail(bracket.offset, fmt::format("`{}` is never closed", text_of_open(bracket)));
  }

  [[noreturn]] void fail_question() const { fail(stack_.back().offset, "`?` has no matching `:`; a choice has the form `c ? a : b`"); }

  [[noreturn]] void fail_in_bracket() const {
    const Pending& bracket = stack_.back();
    if (current_.token == Token::End) fail_never_closed(bracket);
    const std::string opened = fmt::format("to close the `{}` at {}", text_of_open(bracket), at(bracket.offset));
    if (current_.token == Token::Assign)
      fail(current_.offset, fmt::format("`=` is allowed inside `{} {}` only after an argument's name; `==` compares", text_of_open(bracket),
                                        text_of_close(bracket)));
    if (bracket.what == Pending::What::Paren)
      fail(current_.offset, fmt::format("an operator or `)` {} is expected; found {}", opened, describe(current_)));
    fail(current_.offset, fmt::format("`,` or `{}` {} is expected; found {}", text_of_close(bracket), opened, describe(current_)));
  }

  [[noreturn]] void fail_operand() const {
    const Pending* bracket = innermost_bracket();
    if (current_.token == Token::End && bracket != nullptr) fail_never_closed(*bracket);
    if (current_.token == Token::Fn || current_.token == Token::Return)
      fail(current_.offset, fmt::format("`{0}` is a keyword, not a value. Call your own name `{0}_`", kReservedWords[current_.name].text));
    std::string after;
    if (stack_.empty()) {
      after = after_;
    } else {
      const Pending& entry = stack_.back();
      const bool first = entry.is_bracket() && (entry.what == Pending::What::Paren || pending_arguments_.size() == entry.first_argument);
      after = entry.what == Pending::What::Question ? "`?`"
              : entry.what == Pending::What::Else   ? "`:`"
              : !entry.is_bracket()                 ? fmt::format("`{}`", text_of(entry.op))
              : first                               ? fmt::format("`{}`", text_of_open(entry))
                                                    : "`,`";
      if (entry.colons > 0) after = "`:`";
      if (entry.what == Pending::What::Call && entry.begun.keyword != kAbsent) after = "`=`";
    }
    const std::string_view hint = current_.token == Token::Newline  ? "; an expression can continue on the next line only inside ( ) or [ ]"
                                  : current_.token == Token::Assign ? "; `=` assigns to a name, `==` compares"
                                                                    : "";
    fail(current_.offset,
         fmt::format("an expression is missing{}{}; found {}{}", after.empty() ? "" : " after ", after, describe(current_), hint));
  }

  Program program_;
  Lexer lexer_;
  Lexeme current_, next_;
  bool has_next_ = false;

  Scope* scope_ = nullptr;
  bool in_function_ = false;
  NameId function_name_ = kAbsent;
  std::vector<Binding> bindings_[2];
  std::vector<std::uint32_t> function_of_name_;  // by NameId
  std::vector<Lexeme> targets_;
  std::vector<NodeId> results_;

  std::vector<Pending> stack_;
  std::size_t depth_ = 0;
  std::vector<NodeId> operands_;
  std::vector<Argument> pending_arguments_;  // complete arguments of all open brackets
  struct Seen {
    std::size_t call = 0;
    std::uint32_t offset = 0;
  };
  std::vector<Seen> keyword_seen_;  // by NameId: the last call with a keyword of that name
  std::size_t call_number_ = 0;
  std::string_view after_;  // description of the text before the expression, for errors
};

}  // namespace

Program parse(std::string_view text, std::string_view file_name, const Limits& limits) { return Parser(text, file_name, limits).parse(); }

}  // namespace onepass::language
