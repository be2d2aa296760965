// Rows of the table of named operators: sorting, and operators on sorted rows. Halves are cast to f32 first.
//   sort(x)          sort x                               topk(x, k)   argsort x, k of them, and x gathered there
//   median(x)        where(any(isnan(x)), nan, (s[..., (n-1)//2] + s[..., n//2])/2), s = sort(x)
//   quantile(x, q)   interpolated between s at floor(q*(n-1)) and the next element
#include <cmath>

#include "compiler/function_row.h"

namespace onepass::compiler {

namespace {

Value without_halves(const Functions& f, const Value& x) { return is_half(f.r.dtype(x)) ? f.r.cast(x, DType::F32) : x; }

Shape shape_of(const Functions& f, const Value& x) { return Shape(f.r.shape(x).begin(), f.r.shape(x).end()); }

// Returns the first `count` elements of each row in order, or their indices.
Value sorted(const Functions& f, Op op, const Value& x, std::size_t axis, bool descending, std::int64_t count) {
  Shape shape = shape_of(f, x);
  shape[axis] = count;
  return f.node(op, op == Op::Sort ? f.r.dtype(x) : DType::I64, shape, {x.node}, {static_cast<std::int64_t>(axis), descending});
}

Value sort(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  const std::size_t axis = f.axis(x, f.integer(1, -1));
  const bool descending = f.flag(2, false);
  const std::int64_t n = f.r.shape(x)[axis];
  if (n < 2) return x;
  const Value y = sorted(f, Op::Sort, without_halves(f, x), axis, descending, n);
  return is_half(f.r.dtype(x)) ? f.r.cast(y, f.r.dtype(x)) : y;
}

Value argsort(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  const std::size_t axis = f.axis(x, f.integer(1, -1));
  const bool descending = f.flag(2, false);
  return sorted(f, Op::Argsort, without_halves(f, x), axis, descending, f.r.shape(x)[axis]);
}

std::vector<Value> topk(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  const std::size_t axis = f.axis(x, f.integer(2, -1));
  const std::int64_t k = f.integer(1), n = f.r.shape(x)[axis];
  if (k < 0 || k > n)
    throw ShapeError(fmt::format("topk: k is {}, but there are {} elements along axis {} of {}; k must be between 0 and {}", k, n, axis,
                                 f.r.describe(x), n));
  const bool largest = f.flag(3, true);
  const Value whole = without_halves(f, x), places = sorted(f, Op::Argsort, whole, axis, largest, k);
  return {f.gathered(x, places, axis), places};
}

// x with the reduced axes merged into one last axis.
struct Rows {
  Value x;
  Shape kept, with_units;
  std::int64_t length;
};
Rows rows_of(const Functions& f, Value x, const std::optional<std::vector<std::int64_t>>& axes) {
  const std::vector<std::int64_t> reduced = f.reduced(x, axes);
  const Shape shape = shape_of(f, x);
  Rows out{x, {}, shape, 1};
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    if (std::ranges::find(reduced, axis) == reduced.end()) order.push_back(axis), out.kept.push_back(shape[i]);
    else out.length *= shape[i], out.with_units[i] = 1;
  }
  order.insert(order.end(), reduced.begin(), reduced.end());
  if (!std::ranges::is_sorted(order)) x = f.r.transpose(x, order);
  Shape flat = out.kept;
  flat.push_back(out.length);
  out.x = f.r.reshape(x, flat);
  return out;
}

// Interpolates between a and b like NumPy: exact at both ends.
Value between(const Functions& f, const Value& a, const Value& b, const Value& part) {
  const Value span = f.r.sub(b, a), one = f.number(part, 1);
  return f.r.where(f.apply(Op::Less, {part, f.number(part, 0.5)}), f.r.add(a, f.r.mul(span, part)),
                   f.r.sub(b, f.r.mul(span, f.r.sub(one, part))));
}

// Returns the quantiles of the rows; `q` has one axis, which is last in the result. With `skips`, NaN elements are ignored.
Value quantiles(const Functions& f, const Rows& rows, const Value& q, bool skips) {
  const Value x = rows.x;
  const DType type = f.r.dtype(x);
  const std::size_t axis = rows.kept.size();
  const auto last = std::vector<std::int64_t>{static_cast<std::int64_t>(axis)};
  const std::int64_t n = rows.length, count = f.r.graph.elements(q.node);
  Shape line(axis + 1, 1), all = rows.kept;
  line[axis] = count;
  all.push_back(count);
  const Value s = sorted(f, Op::Sort, x, axis, false, n);
  const Value bound = f.r.brought(f.r.literal(n - 1));
  Value known = bound, end = bound, is_nan;  // `end`: index of the last element that is not NaN
  if (is_float(type)) {
    const Value nan = f.apply(Op::Isnan, {x});
    if (skips) {
      known = f.r.sub(f.r.reduce(Op::ReduceSum, f.name, f.apply(Op::BitwiseNot, {nan}), last, true), f.r.literal(std::int64_t{1}));
      is_nan = f.apply(Op::Less, {known, f.number(known, 0)});
      end = f.apply(Op::Maximum, {known, f.number(known, 0)});
      known = f.r.cast(end, DType::F64);
    } else {
      is_nan = f.r.reduce(Op::ReduceMax, f.name, nan, last, true);
    }
  }
  const Value fraction = f.r.reshape(f.r.cast(q, DType::F64), line);
  const Value at = f.r.broadcast_to(f.r.mul(fraction, known), all, f.name);
  const Value whole = f.apply(Op::Floor, {at}), part = f.r.cast(f.r.sub(at, whole), type);
  // A q outside [0, 1] gets an index beyond the last one, which `checked` reports.
  const Value inside = f.apply(Op::BitwiseAnd, {f.apply(Op::GreaterEqual, {fraction, f.number(fraction, 0)}),
                                                f.apply(Op::LessEqual, {fraction, f.number(fraction, 1)})});
  const Value index = f.r.where(inside, f.r.cast(whole, DType::I64), f.r.brought(f.r.literal(n)));
  const Value place = f.checked(ir::Indexing::Quantile, index, n, axis);
  const Value behind = f.apply(Op::Minimum, {f.r.add(index, f.number(index, 1)), end});
  const Value next = f.checked(ir::Indexing::Quantile, behind, n, axis);  // in range where `place` is
  const Value y = between(f, f.gathered(s, place, axis), f.gathered(s, next, axis), part);
  return f.r.where(is_nan, f.number(y, NAN), y);
}

Value nothing(const Functions& f, const Value& x, const Shape& shape) {  // result for rows without elements
  return f.r.full(shape, f.number(x, NAN), f.r.dtype(x), f.name);
}

Value quantile(Functions& f, bool skips) {
  const Value x = f.r.node_of(f.floating(f.value(0)));
  Value q = f.value(1).is_literal ? f.r.cast(f.value(1), DType::F64) : f.value(1);
  const Shape given = shape_of(f, q);
  if (given.size() > 1) throw ShapeError(fmt::format("{}: `q` must be a number or a vector, not {}", f.name, f.r.describe(q)));
  const bool keep = f.flag(3, false);
  Rows rows = rows_of(f, without_halves(f, x), f.axes(2));
  Shape shape = given;
  const Shape& rest = keep ? rows.with_units : rows.kept;
  shape.insert(shape.end(), rest.begin(), rest.end());
  if (rows.length == 0) return nothing(f, x, shape);
  q = f.r.reshape(q, {f.r.graph.elements(q.node)});
  Value y = f.r.cast(quantiles(f, rows, q, skips), f.r.dtype(x));
  std::vector<std::int64_t> order = {static_cast<std::int64_t>(rows.kept.size())};
  for (std::size_t i = 0; i < rows.kept.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
  return f.r.reshape(f.r.transpose(y, order), shape);
}

// Returns the middle element of each row, or the mean of the two middle elements; NaN if the row contains a NaN.
Value middle_of(Functions& f, const Rows& rows) {
  const std::size_t axis = rows.kept.size();
  const std::int64_t middle = rows.length / 2;
  const Value s = sorted(f, Op::Sort, rows.x, axis, false, middle + 1);
  const auto at = [&](std::int64_t i) {
    std::vector<Index> box(axis + 1);
    for (Index& index : box) index.kind = Index::Kind::Slice;
    box.back().start = i, box.back().stop = i + 1;
    return f.r.reshape(f.r.index(s, box), rows.kept);
  };
  Value y = at(middle);
  if (rows.length % 2 == 0) y = f.r.div(f.r.add(at(middle - 1), y), f.number(y, 2));
  const Value is_nan = f.r.reduce(Op::ReduceMax, f.name, f.apply(Op::Isnan, {rows.x}), std::vector{static_cast<std::int64_t>(axis)}, false);
  return f.r.where(is_nan, f.number(y, NAN), y);
}

Value median(Functions& f, bool skips) {
  const Value x = f.r.node_of(f.floating(f.value(0)));
  const bool keep = f.flag(2, false);
  const Rows rows = rows_of(f, without_halves(f, x), f.axes(1));
  const Shape& shape = keep ? rows.with_units : rows.kept;
  if (rows.length == 0) return nothing(f, x, shape);
  const auto skipping = [&] { return quantiles(f, rows, f.r.reshape(f.r.cast(f.r.literal(0.5), DType::F64), {1}), true); };
  return f.r.reshape(f.r.cast(skips ? skipping() : middle_of(f, rows), f.r.dtype(x)), shape);
}

Value searchsorted(Functions& f) {
  const Value both[2] = {f.value(0), f.value(1)};
  std::vector<Value> typed = f.of_one_type(both);
  const Value rows = without_halves(f, typed[0]), wanted = without_halves(f, typed[1]);
  const std::string_view side = f.has(2) ? f.text(2) : "left";
  if (side != "left" && side != "right")
    throw ValueError(fmt::format("searchsorted: `side` must be \"left\" or \"right\", not \"{}\"", side));
  const Shape from = shape_of(f, rows), of = shape_of(f, wanted);
  if (from.empty()) throw ShapeError(fmt::format("searchsorted: {} must have a sorted axis", f.r.describe(f.value(0))));
  const bool one = from.size() == 1;
  if (!one && (of.size() != from.size() || !std::equal(from.begin(), from.end() - 1, of.begin())))
    throw ShapeError(
        fmt::format("searchsorted: {} and the values {} must have the same axes except the last, or the first operand must be a vector",
                    f.r.describe(f.value(0)), f.r.describe(f.value(1))));
  const Value flat = one ? f.r.reshape(wanted, {f.r.graph.elements(wanted.node)}) : wanted;
  const Value places = f.node(Op::Search, DType::I64, shape_of(f, flat), {rows.node, flat.node}, {side == "right"});
  return f.r.reshape(places, of);
}

}  // namespace

std::span<const FunctionRow> sorting_rows() {
  static const std::vector<FunctionRow>& table = *new std::vector<FunctionRow>{
      {"sort", "x, axis=, descending=", one(sort)},
      {"argsort", "x, axis=, descending=", one(argsort)},
      {"topk", "x, k, axis=, largest=", topk},
      {"median", "x, axis=, keepdims=", one([](Functions& f) { return median(f, false); })},
      {"nanmedian", "x, axis=, keepdims=", one([](Functions& f) { return median(f, true); })},
      {"quantile", "x, q, axis=, keepdims=", one([](Functions& f) { return quantile(f, false); })},
      {"nanquantile", "x, q, axis=, keepdims=", one([](Functions& f) { return quantile(f, true); })},
      {"searchsorted", "sorted, values, side=", one(searchsorted)},
  };
  return table;
}

}  // namespace onepass::compiler
