// Recording: defines the language in terms of graph nodes. Covers promotion, broadcasting, literals, indexing, and every operator of
// docs/language.md by name. The C++ `Tensor` and the formula evaluator are two front ends of this layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/differentiate.h"
#include "compiler/literal.h"
#include "ir/build.h"
#include "ir/graph.h"
#include "onepass/error.h"
#include "onepass/options.h"

namespace onepass::compiler {

using ir::NodeId;
using ir::Op;
using Shape = std::vector<std::int64_t>;

/// The value of a name or an expression during recording: a node or a literal.
struct Value {
  bool is_literal = false;
  NodeId node = ir::kNoNode;
  Literal literal;
};

/// One component of `x[...]`.
struct Index {
  enum class Kind : std::uint8_t { Integer, Slice, Ellipsis, NewAxis } kind = Kind::Integer;
  std::int64_t at = 0;                            // Integer
  std::optional<std::int64_t> start, stop, step;  // Slice
};

/// The way in which `put` combines existing and new elements.
enum class Joined : std::uint8_t { Set, Add, Min, Max, Mul };

/// An argument of a named operator in a formula. It is a value, a list, a type, a text, a slice or `...` in a list, or `none`.
struct Argument {
  enum class Kind : std::uint8_t { None, Value, List, Type, Text, Index } kind = Kind::None;
  compiler::Value value;
  std::vector<Argument> list;
  DType type = DType::F32;
  std::string text;
  compiler::Index index;
};

struct Indexed;  // compiler/contract.h

class Recorder {
 public:
  Recorder() = default;
  ir::Graph graph;
  Numbers numbers;                       // the scalar parameters that a call's numbers fill
  bool regroups = false;                 // relaxation `reassociate`: einsum may contract the cheapest pairs first
  std::int64_t fewest_loop_steps = 64;   // loops with state of fewer steps are unrolled
  std::int64_t fewest_while_steps = 16;  // the same for while loops, whose kernels end early

  // ---- values
  /// Returns a node that is an input of the program.
  Value input(std::string name, DType dtype, std::span<const std::int64_t> shape);
  Value literal(bool value);
  Value literal(std::int64_t value);
  Value literal(double value);
  Value literal(Literal value);  // as a separate occurrence
  /// Returns argument `argument` of the call, which is a number. Each call fills its scalar parameters.
  Value number(std::uint32_t argument, const Literal& value);
  /// Marks a number whose value varies by call: an extent or a size.
  Value brought(Value literal) const {
    literal.literal.brought = true;
    return literal;
  }
  /// Returns a number that varies by call and depends only on the shape of `of`. `what` distinguishes the numbers of one value (the axes,
  /// minus a count). Equal requests return the same occurrence, so mean(x) and var(x) share their divisor.
  Value brought_by_shape(const Value& of, std::vector<std::int64_t> what, std::int64_t value);
  bool is_tensor(const Value& v) const { return !v.is_literal; }
  DType dtype(const Value& v) const;  // for a literal: its type as an output (bool, i64 or f32)
  std::span<const std::int64_t> shape(const Value& v) const;
  /// Returns `x f32[32, 64]` for messages, with the input's name, if any.
  std::string describe(const Value& v) const;
  /// Gives a node a name for messages and dumps. The name is not part of node equality.
  void name(const Value& v, std::string_view text);
  /// Returns the integer value of a literal. Otherwise throws an error that names `what` ("an axis", "an extent"). The recording depends on
  /// the value, so a call that passes a different value needs another recording.
  std::int64_t integer(const Value& v, std::string_view what);
  /// Returns the truth of a bool or an integer, like integer().
  bool flag(const Value& v, std::string_view what);
  /// Returns a node for the value. Literals become rank-0 nodes of their default type, or of `dtype`.
  Value node_of(const Value& v);
  Value node_of(const Value& v, DType dtype);

  // ---- elementwise. `name` is the operator's name in the language, for messages.
  Value elementwise(Op op, std::string_view name, std::span<const Value> operands);
  Value elementwise(Op op, std::initializer_list<Value> operands);
  Value add(Value a, Value b) { return elementwise(Op::Add, {a, b}); }
  Value sub(Value a, Value b) { return elementwise(Op::Sub, {a, b}); }
  Value mul(Value a, Value b) { return elementwise(Op::Mul, {a, b}); }
  Value div(Value a, Value b) { return elementwise(Op::Div, {a, b}); }
  Value pow(Value a, Value b);
  Value where(Value c, Value a, Value b) { return elementwise(Op::Where, {c, a, b}); }
  Value cast(Value a, DType dtype);
  Value bitcast(Value a, DType dtype);

  // ---- sources
  Value full(const Shape& shape, Value value, std::optional<DType> dtype, std::string_view name = "full");
  Value iota(const Shape& shape, std::int64_t axis, DType dtype);

  // ---- views
  Value reshape(Value x, Shape shape);                       // one extent may be -1
  Value transpose(Value x, std::vector<std::int64_t> axes);  // empty: reversed
  Value expand_dims(Value x, std::int64_t axis);
  Value squeeze(Value x, std::optional<std::vector<std::int64_t>> axes);
  Value broadcast_to(Value x, const Shape& shape, std::string_view name = "broadcast_to");
  Value index(Value x, std::span<const Index> indices);
  /// Returns x with the elements at `indices` replaced by v, or combined with it. v is cast to x's type and broadcast.
  Value put(Value x, std::span<const Index> indices, Value v, Joined how);
  Value written(Value v, const Value& x);  // v in x's type, as put writes it
  Value flip(Value x, std::optional<std::vector<std::int64_t>> axes);
  Value diagonal(Value x, std::int64_t offset, std::int64_t axis1, std::int64_t axis2);

  // ---- joining and repeating arrays (record_pieces.cpp)
  Value concat(std::span<const Value> xs, std::int64_t axis, std::string_view name = "concat");
  Value stack(std::span<const Value> xs, std::int64_t axis);
  Value pad(Value x, const Shape& low, const Shape& high, std::optional<Value> value);  // nullopt: 0
  Value tile(Value x, Shape times);
  Value repeat(Value x, std::int64_t times, std::int64_t axis);
  Value roll(Value x, const Shape& shifts, std::optional<std::vector<std::int64_t>> axes);  // no axes: flattened

  // ---- random numbers (record_pieces.cpp)
  Value uniform(Value key, const Shape& shape, DType dtype);
  Value normal(Value key, const Shape& shape, DType dtype);

  // ---- reductions over `axes` (nullopt: all)
  Value reduce(Op op, std::string_view name, Value x, std::optional<std::vector<std::int64_t>> axes, bool keepdims);

  // ---- scans, and indexing by data (record_along.cpp)
  Value scan(Op op, std::string_view name, Value x, std::int64_t axis, bool reverse);
  Value take(Value x, Value indices, std::int64_t axis);
  Value take_along_axis(Value x, Value indices, std::int64_t axis);
  Value scatter_add(Value x, Value indices, Value updates, std::int64_t axis);
  Value index_add(Value x, Value indices, Value updates, std::int64_t axis);
  /// Like scatter_add and index_add, but `how` selects the operation: set (the last update of an index wins), add, min or max. Updates are
  /// cast to x's type.
  Value scatter(Value x, Value indices, Value updates, std::int64_t axis, Joined how);
  Value index_update(Value x, Value indices, Value updates, std::int64_t axis, Joined how);
  Value cross_entropy(Value logits, Value labels, std::int64_t axis);
  // ---- contractions (record_contract.cpp)
  Value matmul(Value a, Value b);
  Value dot(Value a, Value b);  // NumPy's dot: multiplies matrices, also accepts scalars
  Value outer(Value a, Value b);
  Value einsum(std::string_view equation, std::span<const Value> xs);

  // ---- derivatives (record_gradient.cpp). `name` is for messages.
  std::vector<Value> grad(Value loss, std::span<const Value> xs, std::string_view name = "grad");
  std::vector<Value> vjp(Value y, std::span<const Value> xs, Value dy);
  /// Returns the derivatives of Σ dys·ys for several values at once.
  std::vector<Value> vjp(std::span<const Value> ys, std::span<const Value> xs, std::span<const Value> dys, std::string_view name = "vjp");
  /// Returns the forward-mode derivatives: the change of the ys as the xs change by dxs, with the shapes of the ys. Uses reverse mode
  /// twice: the derivative of Jᵀu with respect to u.
  std::vector<Value> jvp(std::span<const Value> ys, std::span<const Value> xs, std::span<const Value> dxs, std::string_view name = "jvp");
  /// Returns values of the same types and shapes, for cotangents that are not yet known. Each value is an Identity of a dedicated scalar
  /// parameter.
  std::vector<NodeId> placeholders(std::span<const NodeId> like);
  enum class JacobianBy : std::uint8_t { Fewer, Rows, Columns };
  /// Returns the Jacobian, with y's shape followed by x's. By rows, one pass uses a cotangent for each element of y. By columns, one pass
  /// uses a tangent for each element of x.
  Value jacobian(Value y, Value x, JacobianBy by);
  /// Returns a placeholder for one element of each x along its axis. Returns x unchanged if it has no axis or is a literal. Sets `all` to
  /// the xs with that axis in front. mapped() then repeats the nodes recorded from the elements for all of them.
  std::vector<Value> map_elements(std::span<const Value> xs, std::span<const std::optional<std::int64_t>> axes, std::vector<Value>& all);
  /// Returns the ys for all elements, along a new first axis.
  std::vector<Value> mapped(std::span<const Value> ys, std::span<const Value> elements, std::span<const Value> all);
  /// Returns the results of a function of `arguments`, with the derivative that `backward` records.
  using Backward = std::function<std::vector<Value>(std::span<const Value> arguments, std::span<const Value> results,
                                                    std::span<const Value> cotangents)>;
  std::vector<Value> with_derivative(std::span<const Value> arguments, std::span<const Value> results, Backward backward);
  /// Returns the results of the nodes recorded from `first` on. A derivative recomputes those nodes instead of reading stored values.
  std::vector<Value> computed_again(NodeId first, std::span<const Value> results);

  // ---- by name
  /// Applies the operator of docs/language.md with that name. Throws NameError with the nearest name if it is unknown. Throws
  /// UnsupportedError if the language has the operator, but this version lacks it.
  std::vector<Value> call(std::string_view name, std::span<const Argument> positional,
                          std::span<const std::pair<std::string, Argument>> keywords);

  /// Marks `v` as an output (a literal becomes a rank-0 node of its default type).
  void output(std::string name, const Value& v);

  /// Limits of nodes (`max_nodes`) and rank. Recording stops beyond them with an error that names the limit.
  Limits limits;

  /// Remarks on constructs that are allowed but may be unintended, one sentence each, for explain().
  std::vector<std::string> notes;

 private:
  std::unordered_map<NodeId, std::string> names_;
  std::unordered_map<std::uint64_t, std::uint32_t> slots_;  // (origin, dtype) -> scalar parameter
  std::map<std::pair<NodeId, std::vector<std::int64_t>>, Value> by_shape_;
  std::uint32_t next_origin_ = 1;
  std::string_view called_;  // function whose definition is being recorded: messages name it, not the operators of its definition
  DerivativeRules rules_;

  struct Region {                          // elements selected by indices
    std::vector<std::int64_t> attributes;  // start[rank], step[rank]
    Shape sliced, result;                  // with all axes; with the axes of the indices
    bool whole;                            // the indices select everything
  };
  Region region(std::string_view name, const Value& x, std::span<const Index> indices) const;
  NodeId slot_for(const Literal& literal, DType dtype, ir::ListId shape, std::string_view name);
  Value make(NodeId node);
  NodeId differentiable(const Value& x, std::string_view name, std::string_view what) const;
  NodeId beside(const Value& v, const Value& of, std::string_view name, std::string_view what);
  struct Asked {  // values to differentiate, variables, and the given cotangents or tangents
    std::vector<NodeId> of, by, given;
  };
  enum class Given : std::uint8_t { Cotangents, Tangents };
  Asked asked(std::string_view name, std::span<const Value> ys, std::span<const Value> xs, Given given, std::span<const Value> values);
  std::vector<NodeId> derivatives(std::span<const NodeId> ys, std::span<const NodeId> cotangents, std::span<const NodeId> xs);
  NodeId unit_rows(NodeId like);
  std::vector<NodeId> add_rule(std::vector<NodeId> arguments, std::span<const NodeId> results, DerivativeRule::Backward backward);
  NodeId broadcast(NodeId node, ir::ListId shape);
  NodeId convert(NodeId node, DType dtype);
  Value fold(Op op, std::string_view name, std::span<const Literal> operands);
  void check_types(const ir::OpInfo& info, std::string_view name, DType type, std::span<const Value> operands) const;
  std::vector<Value> contractable(std::string_view name, std::span<const Value> xs);
  Value contracted(std::string_view name, const Indexed& a, const Indexed& b, std::span<const int> result);
  std::vector<Value> of_one_type(std::string_view name, std::span<const Value> xs);
  static DType type_beside(const Literal& literal, DType type);  // common type of a tensor of `type` and a literal
  static DType type_of_literals(std::span<const Value> xs);      // if all operands are literals
  DType type_beside(const Value& v, DType type) const { return v.is_literal ? type_beside(v.literal, type) : dtype(v); }
  Value repeated(std::string_view name, Value x, const Shape& times, bool inside);
  Value random_bits(std::string_view name, Value key, const Shape& shape, DType dtype);  // bits for each element: u32; u64 for f64
  std::size_t axis_of(std::string_view name, const Value& x, std::int64_t axis) const;
  Value place(std::string_view name, ir::Indexing indexing, Value indices, std::int64_t extent, std::size_t axis);
  Value gather(Value x, Value places, std::size_t axis);
  Value scatter(std::string_view name, ir::Indexing by, Value x, Value indices, Value updates, std::int64_t axis, Joined how);
  Value index_update(std::string_view name, ir::Indexing by, Value x, Value indices, Value updates, std::int64_t axis, Joined how);
  Value joined_at(std::string_view name, Value x, Value places, Value updates, std::size_t axis, Joined how);
  Value spread_places(std::string_view name, const Value& x, Value places, std::size_t axis);
  Shape taken_shape(std::string_view name, const Value& x, const Value& indices, std::size_t axis) const;
  Value chosen_along(Value x, Value places, std::size_t axis);
  std::vector<std::int64_t> axes_of(std::string_view name, std::int64_t rank, const std::vector<std::int64_t>& axes) const;
  friend struct Functions;
  friend class StateLoop;
};

/// Returns the common dtype of two tensors, or throws an error that names `name`: bool < integers < floats. u64 with a signed type is an
/// error.
DType promote(std::string_view name, DType a, DType b);

/// Throws ShapeError for a rank above the limit, a negative extent, or a byte count that does not fit in 64 bits.
void check_shape(std::string_view name, std::span<const std::int64_t> shape, const Limits& limits);

/// Returns text such as `f32[32, 64]`.
std::string type_text(DType dtype, std::span<const std::int64_t> shape);
std::string shape_text(std::span<const std::int64_t> shape);

/// operator_names() returns, sorted, all names of the language for "did you mean"; this version may lack some operators. is_operator() is
/// true for such a name.
std::span<const std::string_view> operator_names();
bool is_operator(std::string_view name);

/// Returns the operators of this version by name, in the order of the language page, each with its parameters: "x, axis=, keepdims=". A
/// trailing `=` marks an optional parameter.
std::vector<std::pair<std::string_view, std::string_view>> operator_signatures();

}  // namespace onepass::compiler
