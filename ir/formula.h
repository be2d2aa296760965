// The formula language as text: lexer, parser and syntax tree of a program (docs/language.md, "Programs"). Independent of graphs and
// operators; compiler/formula.h walks the tree and records. A Program is plain data, so threads may share a const one.
#pragma once

#include <onepass/dtype.h>
#include <onepass/error.h>
#include <onepass/options.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onepass::language {

using NodeId = std::uint32_t;      ///< index into Program::nodes
using NameId = std::uint32_t;      ///< index into Program::names
using VariableId = std::uint32_t;  ///< index into Scope::variables
inline constexpr std::uint32_t kAbsent = 0xffffffffu;

using onepass::Limits;  // limits of the text; the recorder limits the size after expanding calls

enum class Kind : std::uint8_t {
  Integer,      ///< a, b: low and high half of the value's bits; c: 1 for a u64 above the largest i64, else 0
  Float,        ///< a, b: halves of the nearest double; c: bits of the nearest float; d: bytes of text
  Boolean,      ///< a: 0 or 1
  None,         ///< `none`
  Type,         ///< a: DType
  String,       ///< a: index into Program::strings
  Name,         ///< a value: a is its NameId, b its VariableId in the statement's scope
  Function,     ///< a function as a loop's argument: a is its NameId, b its index in Program::functions
  Prefix,       ///< op a
  Binary,       ///< a op b
  Conditional,  ///< a ? b : c
  List,         ///< `[…]`: b entries from a in Program::items
  Call,         ///< b arguments from a in Program::arguments; c: callee's NameId; d: index of the user's function, else kAbsent
  Index,        ///< a[…]: c entries from b in Program::items, each an expression, Slice, Ellipsis or None
  Slice,        ///< a:b:c, each kAbsent if omitted
  Ellipsis,     ///< `...` in an index
  Attribute     ///< a.name, b: NameId; only `shape` exists
};

enum class Operator : std::uint8_t {
  Positive,
  Negate,
  BitNot,
  Not,  // the operators up to here are prefix operators
  Power,
  Multiply,
  Divide,
  FloorDivide,
  Remainder,
  MatMul,
  Add,
  Subtract,
  ShiftLeft,
  ShiftRight,
  BitAnd,
  BitXor,
  BitOr,
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  And,
  Or,  // the operators from Power to here are binary
  None
};

/// Returns the operator as written: `**`, `not`, ….
std::string_view text_of(Operator op);

/// One expression. Its operands precede it, from left to right, so a non-recursive walk over a statement's range of nodes evaluates it.
struct Node {
  Kind kind = Kind::None;
  Operator op = Operator::None;
  std::uint32_t offset = 0;  ///< position in the source: an operator's sign, a call's name, an index's `[`
  std::uint32_t a = 0, b = 0, c = 0, d = 0;

  std::int64_t integer() const { return static_cast<std::int64_t>(a | static_cast<std::uint64_t>(b) << 32); }
  bool is_unsigned() const { return c != 0; }
  double number() const { return std::bit_cast<double>(a | static_cast<std::uint64_t>(b) << 32); }
  float single() const { return std::bit_cast<float>(c); }  ///< rounded once from the text; float(number()) would round twice
  DType dtype() const { return static_cast<DType>(a); }
  /// Compares everything but positions, so a printed program equals its original.
  bool operator==(const Node& other) const {
    return kind == other.kind && op == other.op && a == other.a && b == other.b && c == other.c && d == other.d;
  }
};

struct Argument {
  NameId keyword = kAbsent;  ///< kAbsent: positional
  NodeId value = kAbsent;
  std::uint32_t offset = 0;  ///< position of the keyword, or else of the value
  bool operator==(const Argument& other) const { return keyword == other.keyword && value == other.value; }
};

/// A name of one scope. At the top level, a name used before any assignment is an input; inputs are in order of first appearance.
struct Variable {
  enum class Role : std::uint8_t { Input, Parameter, Extent, Assigned };
  NameId name = kAbsent;
  Role role = Role::Assigned;
  bool used = false;         ///< read by a later statement or expression
  std::uint32_t offset = 0;  ///< first appearance
  bool operator==(const Variable& other) const { return name == other.name && role == other.role && used == other.used; }
};

struct Target {
  VariableId variable = kAbsent;
  std::uint32_t offset = 0;
  bool operator==(const Target& other) const { return variable == other.variable; }
};

struct Statement {
  enum class Kind : std::uint8_t { Assign, Return, Expression };  ///< Expression: without a name, the last of its scope
  Kind kind = Kind::Assign;
  std::uint32_t offset = 0;
  std::uint32_t first_target = 0, target_count = 0;  ///< in Program::targets
  NodeId first_node = 0, end_node = 0;               ///< all nodes of the statement, in evaluation order
  std::uint32_t first_value = 0, value_count = 0;    ///< in Program::items: its results; several only for `return a, b`
  bool operator==(const Statement& other) const {
    return kind == other.kind && first_target == other.first_target && target_count == other.target_count &&
           first_node == other.first_node && end_node == other.end_node && first_value == other.first_value &&
           value_count == other.value_count;
  }
};

struct Scope {
  std::vector<Variable> variables;
  std::vector<Statement> statements;
  bool operator==(const Scope&) const = default;
};

struct Extent {
  VariableId variable = kAbsent;  ///< kAbsent: the number `value`
  std::int64_t value = 0;
  std::uint32_t offset = 0;
  bool operator==(const Extent& other) const { return variable == other.variable && value == other.value; }
};

struct Parameter {
  VariableId variable = kAbsent;
  bool typed = false;  ///< `x: f32[n, 4]`; else `x`, of any type and shape
  DType dtype = DType::F32;
  std::vector<Extent> extents;
  std::uint32_t offset = 0;
  bool operator==(const Parameter& other) const {
    return variable == other.variable && typed == other.typed && dtype == other.dtype && extents == other.extents;
  }
};

struct Function {
  NameId name = kAbsent;
  std::uint32_t offset = 0;
  std::uint32_t statements_before = 0;  ///< top-level statements above it
  std::vector<Parameter> parameters;
  Scope body;  ///< ends with Return
  bool operator==(const Function& other) const {
    return name == other.name && statements_before == other.statements_before && parameters == other.parameters && body == other.body;
  }
};

struct Program {
  std::string source, file_name;  ///< source text and name for error_at
  Limits limits;                  ///< the limits of the parse; `nesting` also bounds nested calls
  std::vector<std::string> names, strings;
  std::vector<Node> nodes;
  std::vector<NodeId> items;
  std::vector<Argument> arguments;
  std::vector<Target> targets;
  std::vector<Function> functions;  ///< in source order; names are unique
  Scope top;                        ///< if it has no statements, the last function is the program
  /// Cost of the parse: bytes read, table entries visited or moved, and operators and items popped from the stacks. A test checks that it
  /// is linear in the text.
  std::uint64_t steps = 0;

  std::string_view name(NameId id) const { return names[id]; }
  std::string_view name(const Scope& scope, VariableId id) const { return names[scope.variables[id].name]; }
  std::span<const Target> targets_of(const Statement& s) const { return {targets.data() + s.first_target, s.target_count}; }
  std::span<const NodeId> values_of(const Statement& s) const { return {items.data() + s.first_value, s.value_count}; }
  std::span<const Argument> arguments_of(const Node& call) const { return {arguments.data() + call.a, call.b}; }
  std::span<const NodeId> list_items(const Node& list) const { return {items.data() + list.a, list.b}; }
  std::span<const NodeId> index_items(const Node& index) const { return {items.data() + index.b, index.c}; }

  /// Compares everything but positions, text, file name, limits and steps.
  bool operator==(const Program& other) const {
    return names == other.names && strings == other.strings && nodes == other.nodes && items == other.items &&
           arguments == other.arguments && targets == other.targets && functions == other.functions && top == other.top;
  }
};

/// Parses a whole program in time linear in its text, without recursion.
/// Errors    FormulaError: `file:line:column: what is wrong`, the source line, a caret. Arbitrary bytes are safe input; a limit's error
///           names its field.
Program parse(std::string_view text, std::string_view file_name = "formula", const Limits& limits = {});

/// Prints a program; the text parses to an equal program.
std::string to_string(const Program& program);

struct Location {
  std::size_t line = 1, column = 1;  ///< columns count code points
};
Location locate(std::string_view source, std::uint32_t offset);

/// Returns `line:column` of a position in the program, for messages that refer to a second position.
std::string position(const Program& program, std::uint32_t offset);

/// Returns the error for that position: `file:line:column: ` and the first line of `message`, the source line, the caret, then the other
/// lines of `message`.
FormulaError error_at(const Program& program, std::uint32_t offset, std::string_view message);

/// Returns the candidate nearest to `name` by edit distance, or an empty string if no candidate is close. Of equally near candidates,
/// returns the one that shares the longest beginning with `name`, then the shortest, then the first.
std::string nearest(std::string_view name, std::span<const std::string_view> candidates);

/// Returns how many leading arguments of the operator with that name are functions: 1 for scan, fold and iterate, 2 for while_loop, else 0.
std::size_t function_arguments(std::string_view name);

/// True if the language reserves the word as a keyword, a constant or a type.
bool is_reserved(std::string_view word);

/// Returns, for a reserved word, "`e` is a constant of the language; in the program call it `e_`"; otherwise an empty string.
std::string advice_on_reserved(std::string_view word);

}  // namespace onepass::language
