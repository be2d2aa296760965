// The operators of docs/language.md by name: their parameters, and composites written in terms of other operators. The table has one row
// for each operator: its parameters as text, and the function that records it. See record.h.
#include "compiler/functions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include <fmt/format.h>

#include "compiler/function_row.h"
#include "compiler/record.h"
#include "compiler/state_loop.h"
#include "ir/formula.h"

namespace onepass::compiler {

namespace {

using Row = FunctionRow;
using Implementation = FunctionBody;

// A named type, so that elementwise_function() can recognize the row's target.
struct Elementwise {
  Op op;
  std::vector<Value> operator()(Functions& f) const {
    Value v[3];
    std::size_t n = 0;
    for (std::size_t i = 0; i < f.bound.size(); ++i) v[n++] = f.value(i);
    return {f.r.elementwise(op, f.name, std::span<const Value>(v, n))};
  }
};
Implementation elementwise(Op op) { return Elementwise{op}; }

Implementation logical(Op op) {
  return [op](Functions& f) {
    Value v[2];
    std::size_t n = 0;
    for (std::size_t i = 0; i < f.bound.size(); ++i) {
      Value x = f.value(i);
      if (f.r.dtype(x) != DType::Bool)
        x = x.is_literal ? f.r.elementwise(Op::NotEqual, {x, f.r.literal(std::int64_t{0})}) : f.r.cast(x, DType::Bool);
      v[n++] = x;
    }
    return std::vector{f.r.elementwise(op, f.name, std::span<const Value>(v, n))};
  };
}

Implementation reduction(Op op) {
  return [op](Functions& f) { return std::vector{f.r.reduce(op, f.name, f.value(0), f.axes(1), f.flag(2, false))}; };
}

Implementation scan(Op op) {
  return [op](Functions& f) { return std::vector{f.r.scan(op, f.name, f.value(0), f.integer(1), f.flag(2, false))}; };
}

const std::vector<Row>& first_rows() {
  static const std::vector<Row>& table = *new std::vector<Row>{
      // clang-format off
      // arithmetic
      {"add", "a, b", elementwise(Op::Add)},
      {"sub", "a, b", elementwise(Op::Sub)},
      {"mul", "a, b", elementwise(Op::Mul)},
      {"div", "a, b", elementwise(Op::Div)},
      {"floor_div", "a, b", elementwise(Op::FloorDiv)},
      {"remainder", "a, b", elementwise(Op::Remainder)},
      {"fmod", "a, b", elementwise(Op::Fmod)},
      {"pow", "a, b", one([](Functions& f) { return f.r.pow(f.value(0), f.value(1)); })},
      {"neg", "x", elementwise(Op::Neg)},
      {"abs", "x", elementwise(Op::Abs)},
      {"sign", "x", elementwise(Op::Sign)},
      {"square", "x", elementwise(Op::Square)},
      {"reciprocal", "x", elementwise(Op::Reciprocal)},
      {"fma", "a, b, c", elementwise(Op::Fma)},
      {"maximum", "a, b", elementwise(Op::Maximum)},
      {"minimum", "a, b", elementwise(Op::Minimum)},
      {"clamp", "x, lo, hi", elementwise(Op::Clamp)},
      {"stop_gradient", "x", elementwise(Op::StopGradient)},
      {"copysign", "a, b", elementwise(Op::Copysign)},
      {"sqrt", "x", elementwise(Op::Sqrt)},
      {"floor", "x", elementwise(Op::Floor)},
      {"ceil", "x", elementwise(Op::Ceil)},
      {"trunc", "x", elementwise(Op::Trunc)},
      {"round", "x", elementwise(Op::Round)},
  // expanded operators, from ir/ops.def; if two rows have the same name (pow), the first row counts
#define EXPANDED(id, arity, text, ...) {text, arity == 1 ? "x" : "a, b", elementwise(Op::id)},
#define SHORTENED(...)
#include "ir/ops.def"
      // comparison and logic
      {"equal", "a, b", elementwise(Op::Equal)},
      {"not_equal", "a, b", elementwise(Op::NotEqual)},
      {"less", "a, b", elementwise(Op::Less)},
      {"less_equal", "a, b", elementwise(Op::LessEqual)},
      {"greater", "a, b", elementwise(Op::Greater)},
      {"greater_equal", "a, b", elementwise(Op::GreaterEqual)},
      {"logical_and", "a, b", logical(Op::BitwiseAnd)},
      {"logical_or", "a, b", logical(Op::BitwiseOr)},
      {"logical_xor", "a, b", logical(Op::BitwiseXor)},
      {"logical_not", "x", logical(Op::BitwiseNot)},
      {"isnan", "x", elementwise(Op::Isnan)},
      {"isinf", "x", elementwise(Op::Isinf)},
      {"isfinite", "x", elementwise(Op::Isfinite)},
      {"signbit", "x", elementwise(Op::Signbit)},
      // bits
      {"bitwise_and", "a, b", elementwise(Op::BitwiseAnd)},
      {"bitwise_or", "a, b", elementwise(Op::BitwiseOr)},
      {"bitwise_xor", "a, b", elementwise(Op::BitwiseXor)},
      {"bitwise_not", "x", elementwise(Op::BitwiseNot)},
      {"shift_left", "a, b", elementwise(Op::ShiftLeft)},
      {"shift_right", "a, b", elementwise(Op::ShiftRight)},
      {"popcount", "x", elementwise(Op::Popcount)},
      // choice and types
      {"where", "c, a, b", elementwise(Op::Where)},
      {"cast", "x, dtype", one([](Functions& f) { return f.r.cast(f.value(0), f.type(1, DType::F32)); })},
      {"bitcast", "x, dtype", one([](Functions& f) { return f.r.bitcast(f.value(0), f.type(1, DType::F32)); })},
      // sources
      {"full", "shape, value, dtype=", one([](Functions& f) {
         return f.r.full(f.integers(0), f.value(1), f.has(2) ? std::optional(f.type(2, DType::F32)) : std::nullopt);
       })},
      {"zeros", "shape, dtype=", one([](Functions& f) { return f.r.full(f.integers(0), f.r.literal(std::int64_t{0}), f.type(1, DType::F32), f.name); })},
      {"ones", "shape, dtype=", one([](Functions& f) { return f.r.full(f.integers(0), f.r.literal(std::int64_t{1}), f.type(1, DType::F32), f.name); })},
      {"iota", "shape, axis=, dtype=", one([](Functions& f) { return f.r.iota(f.integers(0), f.integer(1, 0), f.type(2, DType::I32)); })},
      {"uniform", "key, shape, dtype=", one([](Functions& f) { return f.r.uniform(f.value(0), f.integers(1), f.type(2, DType::F32)); })},
      {"normal", "key, shape, dtype=", one([](Functions& f) { return f.r.normal(f.value(0), f.integers(1), f.type(2, DType::F32)); })},
      // views
      {"reshape", "x, shape", one([](Functions& f) { return f.r.reshape(f.value(0), f.integers(1)); })},
      {"transpose", "x, axes=", one([](Functions& f) { return f.r.transpose(f.value(0), f.axes(1).value_or(std::vector<std::int64_t>{})); })},
      {"swap_axes", "x, a, b", one([](Functions& f) {
         const auto rank = static_cast<std::int64_t>(f.r.shape(f.value(0)).size());
         std::vector<std::int64_t> axes;
         for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
         auto at = [&](std::size_t i) {
           const std::int64_t a = f.integer(i);
           if (a < -rank || a >= rank) throw ShapeError(fmt::format("swap_axes: axis {} is out of range for rank {}", a, rank));
           return static_cast<std::size_t>(a < 0 ? a + rank : a);
         };
         std::swap(axes[at(1)], axes[at(2)]);
         return f.r.transpose(f.value(0), axes);
       })},
      {"expand_dims", "x, axis", one([](Functions& f) { return f.r.expand_dims(f.value(0), f.integer(1)); })},
      {"squeeze", "x, axis=", one([](Functions& f) { return f.r.squeeze(f.value(0), f.axes(1)); })},
      {"broadcast_to", "x, shape", one([](Functions& f) { return f.r.broadcast_to(f.value(0), f.integers(1)); })},
      {"flip", "x, axis=", one([](Functions& f) { return f.r.flip(f.value(0), f.axes(1)); })},
      {"diagonal", "x, offset=, axis1=, axis2=", one([](Functions& f) {
         return f.r.diagonal(f.value(0), f.integer(1, 0), f.integer(2, 0), f.integer(3, 1));
       })},
      {"concat", "xs, axis=", one([](Functions& f) { return f.r.concat(f.values(0), f.integer(1, 0)); })},
      {"stack", "xs, axis=", one([](Functions& f) { return f.r.stack(f.values(0), f.integer(1, 0)); })},
      {"tile", "x, reps", one([](Functions& f) { return f.r.tile(f.value(0), f.integers(1)); })},
      {"repeat", "x, n, axis", one([](Functions& f) { return f.r.repeat(f.value(0), f.integer(1), f.integer(2)); })},
      {"roll", "x, shift, axis=", one([](Functions& f) { return f.r.roll(f.value(0), f.integers(1), f.axes(2)); })},
      {"size", "x", one([](Functions& f) { return f.count(f.value(0), std::nullopt); })},
      // reductions
      {"sum", "x, axis=, keepdims=", reduction(Op::ReduceSum)},
      {"max", "x, axis=, keepdims=", reduction(Op::ReduceMax)},
      {"min", "x, axis=, keepdims=", reduction(Op::ReduceMin)},
      {"prod", "x, axis=, keepdims=", reduction(Op::ReduceProd)},
      {"any", "x, axis=, keepdims=", one([](Functions& f) { return f.truths(Op::ReduceMax); })},
      {"all", "x, axis=, keepdims=", one([](Functions& f) { return f.truths(Op::ReduceMin); })},
      {"argmax", "x, axis=, keepdims=", one([](Functions& f) { return f.first_of(Op::ReduceMax); })},
      {"argmin", "x, axis=, keepdims=", one([](Functions& f) { return f.first_of(Op::ReduceMin); })},
      {"count_nonzero", "x, axis=, keepdims=", one([](Functions& f) { return f.sum(f.truth(f.value(0)), f.axes(1), f.flag(2, false)); })},
      {"mean", "x, axis=, keepdims=", one([](Functions& f) { return f.mean(f.value(0), f.axes(1), f.flag(2, false)); })},
      {"var", "x, axis=, ddof=, keepdims=", one([](Functions& f) {
         return f.variance(f.value(0), f.axes(1), f.integer(2, 0), f.flag(3, false));
       })},
      {"std", "x, axis=, ddof=, keepdims=", one([](Functions& f) {
         return f.root(f.variance(f.value(0), f.axes(1), f.integer(2, 0), f.flag(3, false)));
       })},
      // aliases, because C++ parses an unqualified `std` as the namespace
      {"variance", "x, axis=, ddof=, keepdims=", one([](Functions& f) {
         return f.variance(f.value(0), f.axes(1), f.integer(2, 0), f.flag(3, false));
       })},
      {"stddev", "x, axis=, ddof=, keepdims=", one([](Functions& f) {
         return f.root(f.variance(f.value(0), f.axes(1), f.integer(2, 0), f.flag(3, false)));
       })},
      {"norm", "x, axis=, keepdims=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.root(f.sum(f.r.mul(x, x), f.axes(1), f.flag(2, false)));
       })},
      {"logsumexp", "x, axis=, keepdims=", one([](Functions& f) {
         const Value x = f.r.node_of(f.floating(f.value(0)));
         const auto axis = f.axes(1);
         const bool keep = f.flag(2, false);
         if (f.elements(x, axis) == 0) return f.apply(Op::Log, {f.sum(x, axis, keep)});   // log 0
         const Value m = f.apply(Op::StopGradient, {f.r.reduce(Op::ReduceMax, f.name, x, axis, true)});
         const Value spread = f.apply(Op::Exp, {f.r.sub(x, m)});
         const Value most = keep ? m : f.r.reshape(m, f.without(x, axis));
         return f.r.where(f.apply(Op::Isfinite, {most}), f.r.add(most, f.apply(Op::Log, {f.sum(spread, axis, keep)})), most);
       })},
      // scans
      {"cumsum", "x, axis, reverse=", scan(Op::ScanSum)},
      {"cumprod", "x, axis, reverse=", scan(Op::ScanProd)},
      {"cummax", "x, axis, reverse=", scan(Op::ScanMax)},
      {"cummin", "x, axis, reverse=", scan(Op::ScanMin)},
      // indexing by data
      {"take", "x, indices, axis", one([](Functions& f) { return f.r.take(f.value(0), f.value(1), f.integer(2)); })},
      {"take_along_axis", "x, indices, axis", one([](Functions& f) { return f.r.take_along_axis(f.value(0), f.value(1), f.integer(2)); })},
      {"scatter_add", "x, indices, updates, axis", one([](Functions& f) {
         return f.r.scatter_add(f.value(0), f.value(1), f.value(2), f.integer(3));
       })},
      {"index_add", "x, indices, updates, axis", one([](Functions& f) {
         return f.r.index_add(f.value(0), f.value(1), f.value(2), f.integer(3));
       })},
      // contractions
      {"matmul", "a, b", one([](Functions& f) { return f.r.matmul(f.value(0), f.value(1)); })},
      {"einsum", "equation, operands...", one([](Functions& f) { return f.r.einsum(f.text(0), f.values(1)); })},
      {"dot", "a, b", one([](Functions& f) { return f.r.dot(f.value(0), f.value(1)); })},
      {"outer", "a, b", one([](Functions& f) { return f.r.outer(f.value(0), f.value(1)); })},
      // composites
      {"relu", "x", one([](Functions& f) {
         const Value x = f.r.node_of(f.value(0));
         return f.r.where(f.apply(Op::LessEqual, {x, f.constant(x, 0)}), f.constant(x, 0), x);
       })},
      {"relu6", "x", one([](Functions& f) { return f.relu6(f.value(0)); })},
      {"hardtanh", "x, lo=, hi=", one([](Functions& f) {
         const Value x = f.value(0);
         return f.between(x, f.value_or(1, x, -1), f.value_or(2, x, 1));
       })},
      {"hardsigmoid", "x", one([](Functions& f) { return f.hardsigmoid(f.floating(f.value(0))); })},
      {"hardswish", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.r.mul(x, f.hardsigmoid(x));
       })},
      {"leaky_relu", "x, alpha=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.positive_or(x, f.r.mul(x, f.value_or(1, x, 0.01)));
       })},
      {"elu", "x, alpha=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.positive_or(x, f.r.mul(f.value_or(1, x, 1), f.apply(Op::Expm1, {x})));
       })},
      {"celu", "x, alpha=", one([](Functions& f) {
         const Value x = f.floating(f.value(0)), alpha = f.value_or(1, x, 1);
         return f.positive_or(x, f.r.mul(alpha, f.apply(Op::Expm1, {f.r.div(x, alpha)})));
       })},
      {"selu", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         const Value below = f.r.mul(f.constant(x, 1.6732632423543772), f.apply(Op::Expm1, {x}));
         return f.r.mul(f.constant(x, 1.0507009873554805), f.positive_or(x, below));
       })},
      {"gelu", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         const Value e = f.apply(Op::Erf, {f.r.mul(x, f.constant(x, 0.7071067811865476))});
         return f.r.mul(f.r.mul(x, f.constant(x, 0.5)), f.r.add(e, f.constant(x, 1)));
       })},
      {"gelu_tanh", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0)), cube = f.r.mul(f.r.mul(x, x), x);
         const Value u = f.r.mul(f.constant(x, 0.7978845608028654), f.r.add(x, f.r.mul(f.constant(x, 0.044715), cube)));
         return f.r.mul(f.r.mul(x, f.constant(x, 0.5)), f.r.add(f.apply(Op::Tanh, {u}), f.constant(x, 1)));
       })},
      {"silu", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.r.mul(x, f.apply(Op::Sigmoid, {x}));
       })},
      {"mish", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.r.mul(x, f.apply(Op::Tanh, {f.softplus(x)}));
       })},
      {"softplus", "x", one([](Functions& f) { return f.softplus(f.floating(f.value(0))); })},
      {"softsign", "x", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         return f.r.div(x, f.r.add(f.apply(Op::Abs, {x}), f.constant(x, 1)));
       })},
      {"softmax", "x, axis=", one([](Functions& f) {
         const std::int64_t axis = f.integer(1, -1);
         const Value e = f.apply(Op::Exp, {f.softmax_exponent(f.floating(f.value(0)), axis)});
         return f.r.mul(e, f.apply(Op::Reciprocal, {f.r.reduce(Op::ReduceSum, f.name, e, std::vector{axis}, true)}));
       })},
      {"log_softmax", "x, axis=", one([](Functions& f) {
         const std::int64_t axis = f.integer(1, -1);
         const Value d = f.softmax_exponent(f.floating(f.value(0)), axis);
         return f.r.sub(d, f.apply(Op::Log, {f.r.reduce(Op::ReduceSum, f.name, f.apply(Op::Exp, {d}), std::vector{axis}, true)}));
       })},
      {"layer_norm", "x, scale=, shift=, axis=, eps=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         const auto axes = f.has(3) ? f.integers(3) : std::vector<std::int64_t>{-1};
         const Value mean = f.mean(x, axes, true), d = f.r.sub(x, mean);
         const Value variance = f.r.div(f.r.reduce(Op::ReduceSum, f.name, f.r.mul(d, d), axes, true), f.count(x, axes));
         Value y = f.normalise(x, mean, variance, f.has(4) ? f.value(4) : f.constant(variance, 1e-5));
         if (f.has(1)) y = f.r.mul(y, f.value(1));
         return f.has(2) ? f.r.add(y, f.value(2)) : y;
       })},
      {"rms_norm", "x, scale=, axis=, eps=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         const auto axes = f.has(2) ? f.integers(2) : std::vector<std::int64_t>{-1};
         const Value square = f.mean(f.r.mul(x, x), axes, true);
         Value y = f.r.mul(x, f.apply(Op::Reciprocal, {f.apply(Op::Sqrt, {f.r.add(square, f.has(3) ? f.value(3) : f.constant(square, 1e-5))})}));
         return f.has(1) ? f.r.mul(y, f.value(1)) : y;
       })},
      {"batch_norm", "x, mean, var, scale=, shift=, axis=, eps=", one([](Functions& f) {
         const Value x = f.floating(f.value(0));
         const auto rank = static_cast<std::int64_t>(f.r.shape(x).size());
         const std::int64_t axis = f.integer(5, 1);
         if (axis < -rank || axis >= rank) throw ShapeError(fmt::format("batch_norm: axis {} is out of range for {}", axis, f.r.describe(x)));
         const std::int64_t extent = f.r.shape(x)[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
         const auto along = [&](std::size_t i) {  // a parameter vector: one number for each index along the axis
           const Value v = f.value(i);
           if (f.r.shape(v).empty()) return v;
           if (f.r.shape(v).size() != 1 || f.r.shape(v)[0] != extent)
             throw ShapeError(fmt::format("batch_norm: `{}` must have the shape [{}], one number for each index along axis {} of {}, not {}", f.parameters[i], extent,
                                          axis, f.r.describe(x), f.r.describe(v)));
           Shape shape(static_cast<std::size_t>(axis < 0 ? -axis : rank - axis), 1);
           shape[0] = extent;
           return f.r.reshape(v, shape);
         };
         const Value variance = f.floating(along(2));
         Value y = f.normalise(x, along(1), variance, f.value_or(6, variance, 1e-5));
         if (f.has(3)) y = f.r.mul(y, along(3));
         return f.has(4) ? f.r.add(y, along(4)) : y;
       })},
      {"cross_entropy", "logits, labels, axis=", one([](Functions& f) {
         return f.r.cross_entropy(f.value(0), f.value(1), f.integer(2, -1));
       })},
      {"mse", "a, b", one([](Functions& f) {
         const Value d = f.r.sub(f.floating(f.value(0)), f.floating(f.value(1)));
         return f.mean(f.r.mul(d, d), std::nullopt, false);
       })},
      // clang-format on
  };
  return table;
}

// Returns all rows: the rows above, then the rows of the other files.
const std::vector<Row>& rows() {
  static const std::vector<Row>& table = *[] {
    auto* all = new std::vector<Row>(first_rows());
    for (const std::span<const Row> more : {making_rows(), statistics_rows(), sorting_rows(), window_rows(), writing_rows()})
      all->insert(all->end(), more.begin(), more.end());
    return all;
  }();
  return table;
}

}  // namespace

std::span<const std::string_view> operator_names() {
  static const std::vector<std::string_view>& names = *[] {
    auto* all = new std::vector<std::string_view>;
    for (const Row& row : rows()) all->push_back(row.name);
    all->push_back("grad");
    all->push_back("vjp");
    for (const std::string_view loop : StateLoop::kNames) all->push_back(loop);
    std::sort(all->begin(), all->end());
    all->erase(std::unique(all->begin(), all->end()), all->end());
    return all;
  }();
  return names;
}

std::vector<std::pair<std::string_view, std::string_view>> operator_signatures() {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  for (const Row& row : rows()) all.emplace_back(row.name, row.parameters);
  return all;
}

namespace {

// A row with its parameter list parsed.
struct Callable {
  explicit Callable(const Row& of) : row(of) {
    for (std::string_view rest = row.parameters; !rest.empty();) {
      const std::size_t comma = rest.find(',');
      const std::string_view p = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 2);
      optional.push_back(p.ends_with('='));
      if (p.ends_with("...")) rest_at = parameters.size();
      parameters.push_back(p.substr(0, p.find_first_of("=.")));
    }
  }
  const Row& row;
  std::vector<std::string_view> parameters;
  std::vector<bool> optional;
  std::size_t rest_at = kNone;  // the parameter that takes all further positional arguments
  static constexpr std::size_t kNone = ~std::size_t{0};
};

// Hash table of rows by name, with the rows parsed so far. A process that calls five functions parses five rows, not all rows.
class Callables {
 public:
  static const Callables& instance() {
    static const Callables& callables = *new Callables;  // never destroyed: threads may outlive main
    return callables;
  }
  const Row* row(std::string_view name) const {
    const std::size_t place = find(name);
    return rows_[place] < 0 ? nullptr : &rows()[static_cast<std::size_t>(rows_[place])];
  }
  const Callable* callable(std::string_view name) const {
    const std::size_t place = find(name);
    if (rows_[place] < 0) return nullptr;
    std::atomic<const Callable*>& made = made_[place];
    if (const Callable* const known = made.load(std::memory_order_acquire)) return known;
    auto fresh = std::make_unique<const Callable>(rows()[static_cast<std::size_t>(rows_[place])]);
    const Callable* expected = nullptr;
    return made.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel) ? fresh.release() : expected;
  }

 private:
  static constexpr std::size_t kPlaces = 1024;  // much more than the row count, so that searches are short
  std::array<std::int16_t, kPlaces> rows_;      // -1: empty
  mutable std::array<std::atomic<const Callable*>, kPlaces> made_{};

  Callables() {
    rows_.fill(-1);
    const std::vector<Row>& all = rows();
    if (2 * all.size() > kPlaces) throw InternalError("functions: too many rows for their index");
    for (std::size_t i = all.size(); i-- > 0;) rows_[find(all[i].name)] = static_cast<std::int16_t>(i);  // the first of two rows wins
  }
  // Returns the position of the name in the hash table, or the empty position for it.
  std::size_t find(std::string_view name) const {
    std::uint32_t hash = 2166136261;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    std::size_t place = hash % kPlaces;
    while (rows_[place] >= 0 && rows()[static_cast<std::size_t>(rows_[place])].name != name) place = (place + 1) % kPlaces;
    return place;
  }
};

}  // namespace

bool is_operator(std::string_view name) {
  return name == "grad" || name == "vjp" || language::function_arguments(name) > 0 || Callables::instance().row(name);
}

ElementwiseFunction elementwise_function(std::string_view name) {
  const Callable* const found = Callables::instance().callable(name);
  const Elementwise* const body = found ? found->row.implementation.target<Elementwise>() : nullptr;
  return body ? ElementwiseFunction{body->op, found->row.name, found->parameters.size()} : ElementwiseFunction{};
}

std::vector<Value> Recorder::call(std::string_view name, std::span<const Argument> positional,
                                  std::span<const std::pair<std::string, Argument>> keywords) {
  const Callable* const found = Callables::instance().callable(name);
  if (!found) {
    const std::string near = language::nearest(name, operator_names());
    throw NameError(fmt::format("there is no operator `{}`{}", name, near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
  }
  const Row& row = found->row;
  const std::vector<bool>& optional = found->optional;
  Functions f{*this, row.name, {}, found->parameters};
  const std::size_t rest_at = found->rest_at;
  const auto signature = [&] {
    std::string text;
    for (std::size_t i = 0; i < f.parameters.size(); ++i)
      text += fmt::format("{}{}{}", i ? ", " : "", f.parameters[i], optional[i] ? "?" : i == rest_at ? "..." : "");
    return fmt::format("{}({})", row.name, text);
  };
  Argument rest;
  rest.kind = Argument::Kind::List;
  if (positional.size() > rest_at) {
    rest.list.assign(positional.begin() + static_cast<std::ptrdiff_t>(rest_at), positional.end());
    positional = positional.first(rest_at);
  }
  if (positional.size() > f.parameters.size())
    throw ValueError(fmt::format("{}: at most {} arguments are allowed, but the call has {}: {}", name, f.parameters.size(),
                                 positional.size(), signature()));
  std::vector<Argument> bound(f.parameters.size());
  std::vector<bool> given(f.parameters.size(), false);
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = positional[i], given[i] = true;
  for (const auto& [key, argument] : keywords) {
    const auto at = std::find(f.parameters.begin(), f.parameters.end(), key);
    if (at == f.parameters.end()) throw NameError(fmt::format("{}: there is no parameter `{}`: {}", name, key, signature()));
    const auto i = static_cast<std::size_t>(at - f.parameters.begin());
    if (given[i]) throw ValueError(fmt::format("{}: `{}` is given twice", name, key));
    bound[i] = argument;
    given[i] = true;
  }
  if (!rest.list.empty()) {
    if (given[rest_at]) throw ValueError(fmt::format("{}: `{}` is given twice", name, f.parameters[rest_at]));
    bound[rest_at] = std::move(rest);
    given[rest_at] = true;
  }
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (!optional[i] && !given[i]) throw ValueError(fmt::format("{}: `{}` is missing: {}", name, f.parameters[i], signature()));
  f.bound = bound;
  struct Called {  // of several nested functions, the one that the user called
    std::string_view& name;
    const std::string_view before;
    ~Called() { name = before; }
  } const called{called_, called_};
  if (called_.empty()) called_ = row.name;
  return row.implementation(f);
}

}  // namespace onepass::compiler
