// Rows of the table of named operators: statistics. Operators that skip NaN replace it by a neutral number, so that each reduces the same
// elements in the same order.
//   nanmean(x)          sum(where(isnan(x), 0, x)) / cast(sum(not isnan(x)))
//   gradient(x, h)      concat of one-sided differences at the ends and central differences between
//   histogram(x, n)     scatter_add of ones at the bins, computed from the distance to the first edge and corrected by the adjacent edges
#include <array>
#include <cmath>

#include "compiler/function_row.h"

namespace onepass::compiler {

namespace {

using OptionalAxes = std::optional<std::vector<std::int64_t>>;

std::int64_t axis_in(const Functions& f, const Value& x, std::int64_t axis) { return static_cast<std::int64_t>(f.axis(x, axis)); }

std::int64_t extent(const Functions& f, const Value& x, std::int64_t axis) { return f.r.shape(x)[static_cast<std::size_t>(axis)]; }

// Returns the elements start, start + 1, … before stop along an axis.
Value part(const Functions& f, const Value& x, std::int64_t axis, std::int64_t start, std::optional<std::int64_t> stop) {
  std::vector<Index> box(static_cast<std::size_t>(axis) + 1);
  for (Index& i : box) i.kind = Index::Kind::Slice;
  box.back().start = start;
  box.back().stop = stop;
  return f.r.index(x, box);
}

// Returns a vector along an axis of x, with x's rank.
Value along(const Functions& f, const Value& vector, const Value& x, std::int64_t axis) {
  Shape shape(f.r.shape(x).size(), 1);
  shape[static_cast<std::size_t>(axis)] = f.r.graph.elements(vector.node);
  return f.r.reshape(vector, shape);
}

// ---- NaN-skipping operators
Value is_nan(const Functions& f, const Value& x) { return f.apply(Op::Isnan, {x}); }
Value without_nan(const Functions& f, const Value& x, double neutral) {
  return is_float(f.r.dtype(x)) ? f.r.where(is_nan(f, x), f.number(x, neutral), x) : x;
}
// Returns the number of non-NaN elements, in x's type.
Value numbers(const Functions& f, const Value& x, const OptionalAxes& axes, bool keep) {
  const Value counted = f.sum(f.apply(Op::BitwiseNot, {is_nan(f, x)}), axes, keep);
  return f.r.cast(counted, f.r.dtype(x));
}
Value nan_sum(Functions& f, Op op, double neutral) {
  return f.r.reduce(op, f.name, without_nan(f, f.r.node_of(f.value(0)), neutral), f.axes(1), f.flag(2, false));
}
Value nan_most(Functions& f, Op op) {
  const Value x = f.r.node_of(f.value(0));
  const OptionalAxes axes = f.axes(1);
  const bool keep = f.flag(2, false);
  if (!is_float(f.r.dtype(x))) return f.r.reduce(op, f.name, x, axes, keep);
  const double lowest = op == Op::ReduceMax ? -INFINITY : INFINITY;
  const Value most = f.r.reduce(op, f.name, without_nan(f, x, lowest), axes, keep);
  const Value none = f.r.reduce(Op::ReduceMin, f.name, is_nan(f, x), axes, keep);
  return f.r.where(none, f.number(most, NAN), most);
}
Value nan_mean(const Functions& f, const Value& x, const OptionalAxes& axes, bool keep) {
  return f.r.div(f.sum(without_nan(f, x, 0), axes, keep), numbers(f, x, axes, keep));
}
Value nan_variance(Functions& f) {
  const Value x = f.r.node_of(f.floating(f.value(0)));
  const OptionalAxes axes = f.axes(1);
  const bool keep = f.flag(3, false);
  const Value distance = f.r.sub(x, nan_mean(f, x, axes, true));
  const Value known = f.r.where(is_nan(f, x), f.number(x, 0), distance);
  Value count = numbers(f, x, axes, keep);
  if (f.has(2)) count = f.r.sub(count, f.r.literal(f.integer(2)));
  const Value variance = f.r.div(f.sum(f.r.mul(known, known), axes, keep), count);
  return f.r.where(f.apply(Op::LessEqual, {count, f.number(count, 0)}), f.number(variance, NAN), variance);
}

// ---- weights, covariances
Value average(Functions& f) {
  const Value x = f.r.node_of(f.floating(f.value(0)));
  const OptionalAxes axes = f.axes(1);
  const bool keep = f.flag(3, false);
  if (!f.has(2)) return f.mean(x, axes, keep);
  Value w = f.r.node_of(f.value(2));
  const auto shape = f.r.shape(x), given = f.r.shape(w);
  if (!std::ranges::equal(shape, given)) {
    const std::vector<std::int64_t> reduced = f.reduced(x, axes);
    if (given.size() != 1 || reduced.size() != 1 || given[0] != extent(f, x, reduced[0]))
      throw ShapeError(
          fmt::format("average: the weights {} must have the shape of {}, or one number for each index along the single averaged axis",
                      f.r.describe(w), f.r.describe(x)));
    w = f.r.broadcast_to(along(f, w, x, reduced[0]), Shape(shape.begin(), shape.end()), f.name);
  }
  return f.r.div(f.sum(f.r.mul(x, w), axes, keep), f.sum(w, axes, keep));
}

// Returns the variables of cov and corrcoef as rows: x, and `y` below it.
Value variables(Functions& f, std::size_t rowvar) {
  const bool rows = f.flag(rowvar, true);
  const auto matrix = [&](std::size_t i) {
    Value x = f.r.node_of(f.floating(f.value(i)));
    const auto shape = f.r.shape(x);
    if (shape.size() > 2) throw ShapeError(fmt::format("{}: {} must have one axis or two", f.name, f.r.describe(x)));
    if (shape.size() < 2) return f.r.reshape(x, {1, f.r.graph.elements(x.node)});
    return rows ? x : f.r.transpose(x, {});
  };
  const Value x = matrix(0);
  if (!f.has(1)) return x;
  const Value both[2] = {x, matrix(1)};
  return f.r.concat(both, 0, f.name);
}
Value covariance(const Functions& f, const Value& x, std::int64_t ddof) {
  const std::vector<std::int64_t> samples = {1};
  const Value distance = f.r.sub(x, f.mean(x, samples, true));
  return f.r.div(f.r.matmul(distance, f.r.transpose(distance, {})), f.count(x, samples, ddof));
}
Value without_units(const Functions& f, const Value& x) { return f.r.shape(x)[0] == 1 ? f.r.reshape(x, {}) : x; }
Value corrcoef(Functions& f) {
  const Value c = covariance(f, variables(f, 2), 1);
  const Value spread = f.apply(Op::Sqrt, {f.r.diagonal(c, 0, 0, 1)});
  const std::int64_t n = f.r.shape(c)[0];
  const Value r = f.r.div(f.r.div(c, f.r.reshape(spread, {n, 1})), f.r.reshape(spread, {1, n}));
  return without_units(f, f.apply(Op::Clamp, {r, f.number(r, -1), f.number(r, 1)}));
}

// ---- differences
Value differences(const Functions& f, const Value& x, std::int64_t axis) {
  const Value later = part(f, x, axis, 1, std::nullopt), before = part(f, x, axis, 0, -1);
  return f.r.dtype(x) == DType::Bool ? f.apply(Op::NotEqual, {later, before}) : f.r.sub(later, before);
}
Value diff(Functions& f) {
  Value x = f.r.node_of(f.value(0));
  const std::int64_t times = f.integer(1, 1), axis = axis_in(f, x, f.integer(2, -1));
  if (times < 0) throw ValueError(fmt::format("diff: the number of repetitions is {}; it must be 0 or more", times));
  if (times == 0) return x;
  std::vector<Value> parts;
  const auto add = [&](std::size_t i) {  // a scalar is one element along the axis
    Value v = f.r.node_of(f.value(i));
    if (f.r.shape(v).empty()) {
      Shape one(f.r.shape(x).begin(), f.r.shape(x).end());
      one[static_cast<std::size_t>(axis)] = 1;
      v = f.r.broadcast_to(v, one, f.name);
    }
    parts.push_back(v);
  };
  if (f.has(3)) add(3);
  parts.push_back(x);
  if (f.has(4)) add(4);
  if (parts.size() > 1) x = f.r.concat(parts, axis, f.name);
  for (std::int64_t i = 0; i < times && extent(f, x, axis) > 0; ++i) x = differences(f, x, axis);
  return x;
}

// Returns the derivative along an axis. `h` is a distance, or a vector of coordinates.
Value slope(const Functions& f, const Value& x, std::optional<Value> h, std::int64_t axis, std::int64_t edge_order) {
  const std::int64_t n = extent(f, x, axis);
  if (n < edge_order + 1)
    throw ShapeError(fmt::format("gradient: axis {} of {} has {} elements; edge_order {} needs at least {}", axis, f.r.describe(x), n,
                                 edge_order, edge_order + 1));
  const auto at = [&](std::int64_t i) { return part(f, x, axis, i < 0 ? n + i : i, (i < 0 ? n + i : i) + 1); };
  const auto combine = [&](std::initializer_list<std::pair<Value, Value>> terms) {  // Σ factor·value, in sequence
    std::optional<Value> all;
    for (const auto& [factor, value] : terms) {
      const Value term = f.r.mul(factor, value);
      all = all ? f.r.add(*all, term) : term;
    }
    return *all;
  };
  const bool even = !h || f.r.shape(*h).empty();
  std::vector<Value> parts;
  if (even) {
    const auto per = [&](const Value& difference, double times) {  // a difference over `times` distances
      const Value d = h ? times == 1 ? *h : f.r.mul(*h, f.number(x, times)) : f.number(x, times);
      return f.r.div(difference, d);
    };
    const auto end = [&](std::int64_t first, std::int64_t next, std::int64_t third, bool backwards) {
      if (edge_order == 1) return backwards ? per(f.r.sub(at(first), at(next)), 1) : per(f.r.sub(at(next), at(first)), 1);
      const Value three = combine({{f.number(x, -1.5), at(first)}, {f.number(x, 2), at(next)}, {f.number(x, -0.5), at(third)}});
      return per(backwards ? f.apply(Op::Neg, {three}) : three, 1);
    };
    parts.push_back(end(0, 1, 2, false));
    if (n > 2) parts.push_back(per(f.r.sub(part(f, x, axis, 2, n), part(f, x, axis, 0, n - 2)), 2));
    parts.push_back(end(-1, -2, -3, true));
    return f.r.concat(parts, axis, f.name);
  }
  if (f.r.shape(*h).size() != 1 || f.r.shape(*h)[0] != n)
    throw ShapeError(fmt::format("gradient: the coordinates {} must be one number for each of the {} indices along axis {} of {}",
                                 f.r.describe(*h), n, axis, f.r.describe(x)));
  const Value distance = along(f, differences(f, *h, 0), x, axis);
  const auto d = [&](std::int64_t i) { return part(f, distance, axis, i < 0 ? n - 1 + i : i, (i < 0 ? n - 1 + i : i) + 1); };
  const auto end = [&](std::int64_t first, std::int64_t next, std::int64_t third, const Value& near, const Value& far, bool backwards) {
    if (edge_order == 1) return f.r.div(backwards ? f.r.sub(at(first), at(next)) : f.r.sub(at(next), at(first)), near);
    const Value both = f.r.add(near, far), ratio = f.r.mul(near, far);
    const Value a = f.r.div(f.r.add(f.r.add(near, near), far), f.r.mul(near, both)), b = f.r.div(both, ratio),
                c = f.r.div(near, f.r.mul(far, both));
    const Value three = f.r.sub(f.r.sub(f.r.mul(b, at(next)), f.r.mul(a, at(first))), f.r.mul(c, at(third)));
    return backwards ? f.apply(Op::Neg, {three}) : three;
  };
  parts.push_back(edge_order == 1 ? end(0, 1, 0, d(0), d(0), false) : end(0, 1, 2, d(0), d(1), false));
  if (n > 2) {
    const Value before = part(f, distance, axis, 0, n - 2), behind = part(f, distance, axis, 1, n - 1), both = f.r.add(before, behind);
    const Value a = f.apply(Op::Neg, {f.r.div(behind, f.r.mul(before, both))}),
                b = f.r.div(f.r.sub(behind, before), f.r.mul(before, behind)), c = f.r.div(before, f.r.mul(behind, both));
    parts.push_back(combine({{a, part(f, x, axis, 0, n - 2)}, {b, part(f, x, axis, 1, n - 1)}, {c, part(f, x, axis, 2, n)}}));
  }
  parts.push_back(edge_order == 1 ? end(-1, -2, -1, d(-1), d(-1), true) : end(-1, -2, -3, d(-1), d(-2), true));
  return f.r.concat(parts, axis, f.name);
}
std::vector<Value> gradient(Functions& f) {
  const Value x = f.r.node_of(f.floating(f.value(0)));
  const std::int64_t edge_order = f.integer(3, 1);
  if (edge_order != 1 && edge_order != 2) throw ValueError(fmt::format("gradient: `edge_order` must be 1 or 2, not {}", edge_order));
  std::vector<std::int64_t> axes;
  if (f.has(2))
    for (const std::int64_t a : f.integers(2)) axes.push_back(axis_in(f, x, a));
  else
    for (std::int64_t a = 0; a < static_cast<std::int64_t>(f.r.shape(x).size()); ++a) axes.push_back(a);
  if (axes.empty()) throw ShapeError(fmt::format("gradient: {} has no axis; at least one is required", f.r.describe(x)));
  std::vector<std::optional<Value>> spacings(axes.size());
  if (f.has(1)) {
    if (f.at(1).kind != Argument::Kind::List) std::ranges::fill(spacings, f.value(1));
    else {
      const std::vector<Value> given = f.values(1);
      if (given.size() != axes.size())
        throw ValueError(
            fmt::format("gradient: {} spacings given for {} axes. Pass one spacing, or one for each axis.", given.size(), axes.size()));
      std::ranges::copy(given, spacings.begin());
    }
  }
  for (std::optional<Value>& h : spacings)
    if (h && !h->is_literal) h = f.r.node_of(f.floating(*h));
  std::vector<Value> out;
  for (std::size_t i = 0; i < axes.size(); ++i) out.push_back(slope(f, x, spacings[i], axes[i], edge_order));
  return out;
}

Value trapezoid(Functions& f) {
  const Value y = f.r.node_of(f.floating(f.value(0)));
  const std::int64_t axis = axis_in(f, y, f.integer(3, -1));
  const std::vector<std::int64_t> over = {axis};
  const Value both = f.r.add(part(f, y, axis, 1, std::nullopt), part(f, y, axis, 0, -1));
  if (!f.has(1)) return f.sum(f.r.div(f.r.mul(f.has(2) ? f.value(2) : f.number(y, 1), both), f.number(y, 2)), over, false);
  if (f.has(2)) throw ValueError("trapezoid: both `x` and `dx` are given. Pass only one of them.");
  Value x = f.r.node_of(f.value(1));
  if (f.r.shape(x).size() == 1) {
    if (f.r.shape(x)[0] != extent(f, y, axis))
      throw ShapeError(fmt::format("trapezoid: {} must hold one coordinate for each of the {} indices along axis {} of {}", f.r.describe(x),
                                   extent(f, y, axis), axis, f.r.describe(y)));
    x = along(f, x, y, axis);
  } else if (!std::ranges::equal(f.r.shape(x), f.r.shape(y))) {
    throw ShapeError(
        fmt::format("trapezoid: the coordinates {} must be a vector or have the shape of {}", f.r.describe(x), f.r.describe(y)));
  }
  return f.sum(f.r.div(f.r.mul(differences(f, x, axis), both), f.number(y, 2)), over, false);
}

// ---- counts
Value counted(const Functions& f, const Value& places, std::int64_t length, const std::optional<Value>& weights) {
  const DType type = weights ? f.r.dtype(*weights) : DType::I64;
  const Value zeros = f.r.full({length}, f.r.literal(std::int64_t{0}), type, f.name);
  const Value ones = weights ? *weights : f.r.full({f.r.graph.elements(places.node)}, f.r.literal(std::int64_t{1}), type, f.name);
  const std::int64_t axis = 0;
  const Value checked = f.checked(ir::Indexing::Bincount, places, length, 0);
  return f.node(Op::ScatterAdd, type, {length}, {zeros.node, checked.node, ones.node}, {axis});
}
std::optional<Value> weights_of(const Functions& f, std::size_t i, const Value& x) {
  if (!f.has(i)) return std::nullopt;
  Value w = f.r.node_of(f.value(i));
  if (!std::ranges::equal(f.r.shape(w), f.r.shape(x)))
    throw ShapeError(fmt::format("{}: the weights {} must have the shape of {}", f.name, f.r.describe(w), f.r.describe(x)));
  if (!is_float(f.r.dtype(w))) w = f.r.cast(w, DType::F64);
  return f.r.reshape(w, {-1});
}
Value bincount(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  if (!is_integer(f.r.dtype(x)) || f.r.shape(x).size() != 1)
    throw DTypeError(fmt::format("bincount: {} must be a vector of integers", f.r.describe(x)));
  const std::int64_t length = f.integer(1);
  if (length < 0) throw ValueError(fmt::format("bincount: the length {} must be 0 or more", length));
  // A negative value has no bin: as an unsigned number it exceeds the last bin.
  const DType type = f.r.dtype(x);
  const Value places = is_unsigned_integer(type) ? x : f.r.cast(f.r.cast(x, DType::I64), DType::U64);
  return counted(f, places, length, weights_of(f, 2, x));
}

std::vector<Value> histogram(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  const DType given = f.r.dtype(x);
  const std::int64_t bins = f.integer(1, 10);
  if (bins < 1) throw ValueError(fmt::format("histogram: the number of bins is {}; it must be 1 or more", bins));
  const DType type = given == DType::F64 || !is_float(given) ? DType::F64 : DType::F32;
  const Value wide = f.r.cast(x, DType::F64), flat = f.r.reshape(f.r.cast(x, type), {-1});
  Value low, high;
  if (f.has(2)) {
    const std::vector<Value> range = f.values(2);
    if (range.size() != 2) throw ValueError(fmt::format("histogram: `range` has {} numbers; it must be [lowest, highest]", range.size()));
    for (const Value& v : range)
      if (!f.r.shape(v).empty()) throw ShapeError(fmt::format("histogram: `range` must be two scalars, not {}", f.r.describe(v)));
    const bool are_known = std::ranges::all_of(range, [](const Value& v) { return v.is_literal && v.literal.is_fixed(); });
    if (are_known && !(range[0].literal.as_double() <= range[1].literal.as_double()))
      throw ValueError(fmt::format("histogram: `range` is [{}, {}]; the first number must not be larger than the second",
                                   text_of(range[0].literal), text_of(range[1].literal)));
    low = f.r.cast(range[0], DType::F64), high = f.r.cast(range[1], DType::F64);
  } else if (f.r.graph.elements(x.node) == 0) {
    low = f.r.cast(f.r.literal(0.0), DType::F64), high = f.r.cast(f.r.literal(1.0), DType::F64);
  } else {
    low = f.r.reduce(Op::ReduceMin, f.name, wide, std::nullopt, false), high = f.r.reduce(Op::ReduceMax, f.name, wide, std::nullopt, false);
  }
  // If both bounds are equal, the range is widened by 0.5 on both sides.
  const Value same = f.apply(Op::Equal, {low, high}), half = f.r.where(same, f.number(low, 0.5), f.number(low, 0));
  low = f.r.sub(low, half), high = f.r.add(high, half);
  const auto edge = [&](const Value& i) { return f.r.cast(f.line(low, high, i, bins, true), type); };
  const Value last = f.r.brought(f.r.literal(bins - 1)), none = f.r.brought(f.r.literal(bins)),
              one = f.number(f.r.iota({1}, 0, DType::I64), 1);
  const Value kept = f.apply(
      Op::BitwiseAnd, {f.apply(Op::GreaterEqual, {flat, f.r.cast(low, type)}), f.apply(Op::LessEqual, {flat, f.r.cast(high, type)})});
  const Value distance = f.r.div(f.r.mul(f.r.sub(f.r.cast(flat, DType::F64), low), f.r.brought(f.r.literal(bins))), f.r.sub(high, low));
  Value bin = f.apply(Op::Minimum, {f.apply(Op::Maximum, {f.r.cast(distance, DType::I64), f.r.literal(std::int64_t{0})}), last});
  bin = f.r.where(f.apply(Op::Less, {flat, edge(bin)}), f.r.sub(bin, one), bin);
  const Value next = f.r.add(bin, one);
  bin = f.r.where(f.apply(Op::BitwiseAnd, {f.apply(Op::GreaterEqual, {flat, edge(next)}), f.apply(Op::Less, {bin, last})}), next, bin);
  Value counts = part(f, counted(f, f.r.where(kept, bin, none), bins + 1, weights_of(f, 3, x)), 0, 0, bins);
  const Value edges = edge(f.r.iota({bins + 1}, 0, DType::I64));
  if (f.flag(4, false)) {
    const Value heights = f.r.cast(counts, type);
    counts = f.r.div(f.r.div(heights, differences(f, edges, 0)), f.r.reduce(Op::ReduceSum, f.name, heights, std::nullopt, false));
  }
  return {counts, edges};
}

}  // namespace

std::span<const FunctionRow> statistics_rows() {
  static const std::vector<FunctionRow>& table = *new std::vector<FunctionRow>{
      {"nansum", "x, axis=, keepdims=", one([](Functions& f) { return nan_sum(f, Op::ReduceSum, 0); })},
      {"nanprod", "x, axis=, keepdims=", one([](Functions& f) { return nan_sum(f, Op::ReduceProd, 1); })},
      {"nanmax", "x, axis=, keepdims=", one([](Functions& f) { return nan_most(f, Op::ReduceMax); })},
      {"nanmin", "x, axis=, keepdims=", one([](Functions& f) { return nan_most(f, Op::ReduceMin); })},
      {"nanmean", "x, axis=, keepdims=", one([](Functions& f) {
         return nan_mean(f, f.r.node_of(f.floating(f.value(0))), f.axes(1), f.flag(2, false));
       })},
      {"nanvar", "x, axis=, ddof=, keepdims=", one(nan_variance)},
      {"nanstd", "x, axis=, ddof=, keepdims=", one([](Functions& f) { return f.root(nan_variance(f)); })},
      {"average", "x, axis=, weights=, keepdims=", one(average)},
      {"cov", "x, y=, rowvar=, ddof=", one([](Functions& f) { return without_units(f, covariance(f, variables(f, 2), f.integer(3, 1))); })},
      {"corrcoef", "x, y=, rowvar=", one(corrcoef)},
      {"diff", "x, n=, axis=, prepend=, append=", one(diff)},
      {"gradient", "x, spacing=, axis=, edge_order=", gradient},
      {"trapezoid", "y, x=, dx=, axis=", one(trapezoid)},
      {"bincount", "x, length, weights=", one(bincount)},
      {"histogram", "x, bins=, range=, weights=, density=", histogram},
  };
  return table;
}

}  // namespace onepass::compiler
