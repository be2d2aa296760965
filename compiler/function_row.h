// Row type of the table of named operators, and the helpers of its implementations: call arguments, and composites written in terms of
// other operators. The table is in functions.cpp; functions_making.cpp, functions_statistics.cpp, functions_windows.cpp,
// functions_sorting.cpp and functions_writing.cpp hold parts of it.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compiler/record.h"

namespace onepass::compiler {

// The arguments of one call, bound to the parameters of its row.
struct Functions {
  Recorder& r;
  std::string_view name;
  std::span<const Argument> bound;
  std::span<const std::string_view> parameters;

  const Argument& at(std::size_t i) const { return bound[i]; }
  bool has(std::size_t i) const { return bound[i].kind != Argument::Kind::None; }
  Value value(std::size_t i) const {
    if (bound[i].kind == Argument::Kind::Value) return bound[i].value;
    throw DTypeError(fmt::format("{}: `{}` must be a value", name, parameters[i]));
  }
  std::int64_t integer(std::size_t i) const { return r.integer(value(i), fmt::format("{}: `{}`", name, parameters[i])); }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const { return has(i) ? integer(i) : otherwise; }
  bool flag(std::size_t i, bool otherwise) const {
    if (!has(i)) return otherwise;
    return r.flag(value(i), fmt::format("{}: `{}`", name, parameters[i]));
  }
  std::vector<std::int64_t> integers(std::size_t i) const {
    if (bound[i].kind != Argument::Kind::List) return {integer(i)};
    std::vector<std::int64_t> out;
    for (const Argument& a : bound[i].list) {
      if (a.kind != Argument::Kind::Value) throw ValueError(fmt::format("{}: `{}` must be a list of integers", name, parameters[i]));
      out.push_back(r.integer(a.value, fmt::format("{}: each entry of `{}`", name, parameters[i])));
    }
    return out;
  }
  std::vector<Value> values(std::size_t i) const {
    std::vector<Value> out;
    if (bound[i].kind == Argument::Kind::List)
      for (const Argument& a : bound[i].list)
        if (a.kind == Argument::Kind::Value) out.push_back(a.value);
    if (bound[i].kind != Argument::Kind::List || out.size() != bound[i].list.size())
      throw DTypeError(fmt::format("{}: `{}` must be a list of values", name, parameters[i]));
    return out;
  }
  std::optional<std::vector<std::int64_t>> axes(std::size_t i) const {
    if (!has(i)) return std::nullopt;
    return integers(i);
  }
  DType type(std::size_t i, DType otherwise) const {
    if (!has(i)) return otherwise;
    if (bound[i].kind == Argument::Kind::Type) return bound[i].type;
    throw DTypeError(fmt::format("{}: `{}` must be a type such as f32", name, parameters[i]));
  }

  std::string_view text(std::size_t i) const {
    if (bound[i].kind == Argument::Kind::Text) return bound[i].text;
    throw ValueError(fmt::format("{}: `{}` must be a string in quotes", name, parameters[i]));
  }

  // ---- composites, in terms of other operators
  // Returns a literal if `like` is a literal, so that a composite of literals is a literal.
  Value constant(const Value& like, double v) const {
    if (like.is_literal) return like.literal.kind == Literal::Kind::Float ? r.literal(v) : r.literal(static_cast<std::int64_t>(v));
    const ir::Expr e(r.graph, like.node);
    return Value{false, constant_like(e, v).id(), {}};
  }
  // Like constant(), but rank 0: the operators that use it broadcast it.
  Value number(const Value& like, double v) const {
    if (like.is_literal) return constant(like, v);
    const DType type = r.dtype(like);
    return r.make(r.graph.constant(type, 0, ir::bits_of(type, v)));
  }
  // Converts integers to a float type. A literal stays without a strong type, but becomes a float.
  Value floating(Value x) const {
    if (x.is_literal) return x.literal.kind == Literal::Kind::Float ? x : r.fold(Op::Cast, name, std::span(&x.literal, 1));
    const DType t = r.dtype(x);
    return is_float(t) ? x : r.cast(x, size_of(t) == 8 ? DType::F64 : DType::F32);
  }
  // Returns a structural node.
  Value node(Op op, DType type, const Shape& shape, std::initializer_list<NodeId> operands,
             std::initializer_list<std::int64_t> attributes) const {
    check_shape(name, shape, r.limits);
    return r.make(r.graph.add(op, type, r.graph.intern(shape), operands, ir::List(attributes.begin(), attributes.size())));
  }
  // Returns the axis of x, counted from the front.
  std::size_t axis(const Value& x, std::int64_t axis) const {
    if (r.shape(x).empty()) throw ShapeError(fmt::format("{}: {} has no axis", name, r.describe(x)));
    return r.axis_of(name, x, axis);
  }
  std::vector<Value> of_one_type(std::span<const Value> xs) const { return r.of_one_type(name, xs); }
  // Returns the elements of x at `places` along an axis; the other axes match. The indices are not checked.
  Value gathered(const Value& x, const Value& places, std::size_t axis) const { return r.gather(x, places, axis); }
  // Returns indices along an axis of that length that are checked in each call.
  Value checked(ir::Indexing by, const Value& indices, std::int64_t extent, std::size_t axis) const {
    return r.place(name, by, indices, extent, axis);
  }
  Value apply(Op op, std::initializer_list<Value> v) const { return r.elementwise(op, v); }
  // Returns the argument if given, else a constant.
  Value value_or(std::size_t i, const Value& like, double otherwise) const { return has(i) ? value(i) : constant(like, otherwise); }
  // Returns the reduced axes of `x` in increasing order.
  std::vector<std::int64_t> reduced(const Value& x, const std::optional<std::vector<std::int64_t>>& axes) const {
    const auto rank = static_cast<std::int64_t>(r.shape(x).size());
    std::vector<std::int64_t> out(static_cast<std::size_t>(rank));
    std::iota(out.begin(), out.end(), 0);
    if (!axes) return out;
    out = r.axes_of(name, rank, *axes);
    std::sort(out.begin(), out.end());
    return out;
  }
  // Returns the number of reduced elements.
  std::int64_t elements(const Value& x, const std::optional<std::vector<std::int64_t>>& axes) const {
    std::int64_t n = 1;
    for (std::int64_t a : reduced(x, axes)) n *= r.shape(x)[static_cast<std::size_t>(a)];
    return n;
  }
  // Returns elements() minus `ddof`, at least 0, as a literal whose value each call supplies.
  Value count(const Value& x, const std::optional<std::vector<std::int64_t>>& axes, std::int64_t ddof = 0) const {
    std::int64_t left = 0;
    if (__builtin_sub_overflow(elements(x, axes), ddof, &left)) left = std::numeric_limits<std::int64_t>::max();  // ddof far below 0
    std::vector<std::int64_t> what = reduced(x, axes);
    what.insert(what.begin(), ddof);
    return r.brought_by_shape(x, std::move(what), std::max<std::int64_t>(left, 0));
  }
  Value mean(Value x, const std::optional<std::vector<std::int64_t>>& axes, bool keep) const {
    x = floating(x);
    return r.div(r.reduce(Op::ReduceSum, name, x, axes, keep), count(x, axes));
  }
  // Returns the shape without the reduced axes.
  Shape without(const Value& x, const std::optional<std::vector<std::int64_t>>& axes) const {
    const auto from = r.shape(x);
    Shape shape(from.begin(), from.end());
    const std::vector<std::int64_t> gone = reduced(x, axes);
    for (auto a = gone.rbegin(); a != gone.rend(); ++a) shape.erase(shape.begin() + *a);
    return shape;
  }
  Value sum(Value x, const std::optional<std::vector<std::int64_t>>& axes, bool keep) const {
    return r.reduce(Op::ReduceSum, name, x, axes, keep);
  }
  Value variance(Value x, const std::optional<std::vector<std::int64_t>>& axes, std::int64_t ddof, bool keep) const {
    x = floating(x);
    const Value d = r.sub(x, mean(x, axes, true));
    return r.div(sum(r.mul(d, d), axes, keep), count(x, axes, ddof));
  }
  // Returns the square root, with derivative 0 at 0.
  Value root(Value x) const {
    const Value zero = apply(Op::Equal, {x, constant(x, 0)});
    return r.where(zero, constant(x, 0), apply(Op::Sqrt, {r.where(zero, constant(x, 1), x)}));
  }
  Value truth(Value x) const { return r.dtype(r.node_of(x)) == DType::Bool ? r.node_of(x) : r.cast(r.node_of(x), DType::Bool); }
  Value truths(Op op) const {  // over no elements: any() is false, all() is true
    const Value x = truth(value(0));
    const auto axis = axes(1);
    const bool keep = flag(2, false);
    if (elements(x, axis) != 0) return r.reduce(op, name, x, axis, keep);
    return apply(op == Op::ReduceMax ? Op::NotEqual : Op::Equal, {sum(x, axis, keep), r.literal(std::int64_t{0})});
  }
  // Returns the row-major index, among the reduced elements, of the first largest or smallest element. A NaN precedes all numbers.
  Value first_of(Op op) const {
    const Value x = r.node_of(value(0));
    const auto axis = axes(1);
    const bool keep = flag(2, false);
    const std::vector<std::int64_t> all = reduced(x, axis);
    if (all.size() < 2 || all.back() - all.front() + 1 != std::ssize(all) || elements(x, axis) == 0) return first_along(op, x, axis, keep);
    const auto from = r.shape(x);  // adjacent axes as one
    Shape merged(from.begin(), from.begin() + all.front()), kept(from.begin(), from.end());
    merged.push_back(1);
    for (const std::int64_t a : all) merged.back() *= std::exchange(kept[static_cast<std::size_t>(a)], 1);
    merged.insert(merged.end(), from.begin() + all.back() + 1, from.end());
    const Value first = first_along(op, r.reshape(x, merged), std::vector{all.front()}, keep);
    return keep ? r.reshape(first, kept) : first;
  }
  Value first_along(Op op, const Value& x, const std::optional<std::vector<std::int64_t>>& axis, bool keep) const {
    const Value most = r.reduce(op, name, x, axis, true);
    Value hit = apply(Op::Equal, {x, most});
    if (is_float(r.dtype(x))) hit = apply(Op::BitwiseOr, {hit, apply(Op::Isnan, {x})});
    Value index = r.literal(std::int64_t{0});
    for (const std::int64_t a : reduced(x, axis)) {
      Shape along(r.shape(x).size(), 1);
      along[static_cast<std::size_t>(a)] = r.shape(x)[static_cast<std::size_t>(a)];
      const Value mine = r.iota(along, a, DType::I64);
      index = index.is_literal ? mine : r.add(r.mul(index, count(x, std::vector{a})), mine);
    }
    const Value none{false, r.graph.constant(DType::I64, r.graph.intern({}), std::numeric_limits<std::int64_t>::max()), {}};
    if (index.is_literal) index = r.cast(index, DType::I64);
    return r.reduce(Op::ReduceMin, name, r.where(hit, index, none), axis, keep);
  }
  // Returns x clamped to [lo, hi]. If x is at or beyond a bound, no derivative goes to x.
  Value between(Value x, Value lo, Value hi) const {
    return r.where(apply(Op::LessEqual, {x, lo}), lo, r.where(apply(Op::GreaterEqual, {x, hi}), hi, x));
  }
  // Returns start + i*((stop - start)/parts) in f64. If `closed`, the value at i = parts is exactly `stop`.
  Value line(Value start, Value stop, Value index, std::int64_t parts, bool closed) const {
    const Value from = r.cast(start, DType::F64), to = r.cast(stop, DType::F64), at = r.cast(index, DType::F64);
    const Value step = parts > 0 ? r.div(r.sub(to, from), r.brought(r.literal(parts))) : number(from, 0);
    const Value inner = r.add(r.mul(at, step), from);
    if (!closed || parts <= 0) return inner;
    return r.where(apply(Op::Equal, {index, r.brought(r.literal(parts))}), to, inner);
  }
  Value relu6(Value x) const { return between(x, constant(x, 0), constant(x, 6)); }
  Value hardsigmoid(Value x) const { return r.div(relu6(r.add(x, constant(x, 3))), constant(x, 6)); }
  Value softplus(Value x) const { return apply(Op::Logaddexp, {x, constant(x, 0)}); }
  Value positive_or(Value x, Value otherwise) const { return r.where(apply(Op::Greater, {x, constant(x, 0)}), x, otherwise); }
  Value softmax_exponent(Value x, std::int64_t axis) const {
    if (elements(x, std::vector{axis}) == 0) return x;  // no maximum, and no elements to compute
    const Value m = r.reduce(Op::ReduceMax, name, x, std::vector{axis}, true);
    return r.sub(x, apply(Op::StopGradient, {m}));  // the derivative treats the maximum as a constant
  }
  Value normalise(Value x, Value mean, Value variance, Value eps) const {
    return r.mul(r.sub(x, mean), apply(Op::Reciprocal, {apply(Op::Sqrt, {r.add(variance, eps)})}));
  }
};

using FunctionBody = std::function<std::vector<Value>(Functions&)>;
struct FunctionRow {
  std::string_view name;
  // Parameters such as `x, axis=, keepdims=`. A trailing `=` marks an optional parameter; `xs...` takes any number of values, as a list.
  std::string_view parameters;
  FunctionBody implementation;
};

inline FunctionBody one(Value (*body)(Functions&)) {
  return [body](Functions& f) { return std::vector{body(f)}; };
}

// Parts of the table.
std::span<const FunctionRow> making_rows();
std::span<const FunctionRow> statistics_rows();
std::span<const FunctionRow> sorting_rows();
std::span<const FunctionRow> window_rows();
std::span<const FunctionRow> writing_rows();

}  // namespace onepass::compiler
