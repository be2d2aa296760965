// Rows of the table of named operators: arrays made from numbers, and matrices made from a vector or a band. Each element is arithmetic on
// its indices, so a kernel computes it where it is used and no array is stored.
//   tril(x, k)       where(j <= i + k, x, 0), i and j the iotas of the last two axes
//   linspace(a, b)   where(i == n - 1, b, a + i*((b - a)/(n - 1))) in f64, cast
//   pad(x, …, mode)  concat of slices of x, some reversed
#include <cmath>

#include "compiler/function_row.h"

namespace onepass::compiler {

namespace {

// Returns a number that determines a length; its value is part of the recording.
double known(const Functions& f, std::size_t i) {
  const Value v = f.value(i);
  if (!v.is_literal)
    throw ValueError(
        fmt::format("{}: `{}` must be a number, since the length depends on it, not {}", f.name, f.parameters[i], f.r.describe(v)));
  f.r.numbers.pin(v.literal);
  return v.literal.as_double();
}

bool is_integer_literal(const Value& v) {
  return v.is_literal && (v.literal.kind == Literal::Kind::Int || v.literal.kind == Literal::Kind::Bool);
}

Value arange(Functions& f) {
  const bool from_zero = !f.has(1), has_step = f.has(2);
  const std::size_t last = from_zero ? 0 : 1;
  bool whole = is_integer_literal(f.value(0)) && is_integer_literal(f.value(last)) && (!has_step || is_integer_literal(f.value(2)));
  const double start = from_zero ? 0 : known(f, 0), stop = known(f, last), step = has_step ? known(f, 2) : 1;
  if (step == 0) throw ValueError("arange: the step is 0; it must not be 0");
  std::int64_t count = 0;
  if (whole) {
    __extension__ using Wide = __int128;
    const Wide from = from_zero ? 0 : f.value(0).literal.integer, to = f.value(last).literal.integer,
               by = has_step ? f.value(2).literal.integer : 1;
    const Wide span = by > 0 ? to - from : from - to, each = by > 0 ? by : -by;
    const Wide n = span <= 0 ? 0 : (span + each - 1) / each;
    if (n > std::numeric_limits<std::int64_t>::max())
      throw ShapeError(fmt::format("arange: the length {:.4g} does not fit in 64 bits", static_cast<double>(n)));
    count = static_cast<std::int64_t>(n);
  } else {
    const double n = std::ceil((stop - start) / step);
    if (!(n < 0x1p62))
      throw ValueError(
          fmt::format("arange: the range from {} to {} in steps of {} has no valid number of elements; it must be finite and below 2^62",
                      start, stop, step));
    count = n > 0 ? static_cast<std::int64_t>(n) : 0;
  }
  const DType type = f.type(3, whole ? DType::I64 : DType::F32);
  Value x = f.r.iota({count}, 0, DType::I64);
  if (!whole) x = f.r.cast(x, DType::F64);
  if (has_step) x = f.r.mul(x, f.value(2));
  if (!from_zero) x = f.r.add(x, f.value(0));
  return f.r.cast(x, type);
}

Value scalar(const Functions& f, std::size_t i) {
  const Value v = f.value(i);
  if (!f.r.shape(v).empty()) throw ShapeError(fmt::format("{}: `{}` must be a scalar, not {}", f.name, f.parameters[i], f.r.describe(v)));
  return v;
}

Value linspace(Functions& f) {
  const Value start = scalar(f, 0), stop = scalar(f, 1);
  const std::int64_t count = f.integer(2, 50);
  if (count < 0) throw ValueError(fmt::format("linspace: the number of elements is {}; it must be 0 or more", count));
  const bool closed = f.flag(3, true);
  DType type = DType::F32;
  for (const Value& v : {start, stop})
    if (!v.is_literal && f.r.dtype(v) == DType::F64) type = DType::F64;
  return f.r.cast(f.line(start, stop, f.r.iota({count}, 0, DType::I64), closed ? count - 1 : count, closed), f.type(4, type));
}

// The indices of the last two axes of a shape, each along its own axis. The other axis has extent 1.
struct Indices {
  Value row, column;
};
Indices indices(const Functions& f, std::int64_t rows, std::int64_t columns) {
  return {f.r.iota({rows, 1}, 0, DType::I64), f.r.iota({1, columns}, 1, DType::I64)};
}

// Returns a mask: the comparison `op` of each element's column with its row + k. `k` is the number of the parameter that selects the
// diagonal.
Value beside_diagonal(const Functions& f, Op op, std::int64_t rows, std::int64_t columns, std::size_t k) {
  const Indices at = indices(f, rows, columns);
  if (f.has(k) && !is_integer(f.r.dtype(scalar(f, k))))
    throw DTypeError(fmt::format("{}: `k` must be an integer, not {}", f.name, f.r.describe(f.value(k))));
  return f.apply(op, {at.column, f.has(k) ? f.r.add(at.row, f.value(k)) : at.row});
}

// eye and tri: parameters n, m=, k=, dtype=
Value band(Functions& f, Op op) {
  const std::int64_t rows = f.integer(0), columns = f.integer(1, rows);
  if (rows < 0 || columns < 0)
    throw ShapeError(fmt::format("{}: {} rows and {} columns requested; neither number may be negative", f.name, rows, columns));
  return f.r.cast(beside_diagonal(f, op, rows, columns, 2), f.type(3, DType::F32));
}

// tril and triu: parameters x, k=
Value triangle(Functions& f, Op op) {
  const Value x = f.r.node_of(f.value(0));
  const auto shape = f.r.shape(x);
  if (shape.size() < 2) throw ShapeError(fmt::format("{}: {} has fewer than two axes; at least two are required", f.name, f.r.describe(x)));
  return f.r.where(beside_diagonal(f, op, shape[shape.size() - 2], shape.back(), 1), x, f.number(x, 0));
}

Value diag(Functions& f) {
  const Value x = f.r.node_of(f.value(0));
  const std::int64_t k = f.integer(1, 0);
  const Shape shape(f.r.shape(x).begin(), f.r.shape(x).end());
  if (shape.size() == 2) return f.r.diagonal(x, k, 0, 1);
  if (shape.size() != 1)
    throw ShapeError(
        fmt::format("diag: {} must have one axis, to place it on a diagonal, or two axes, to read a diagonal", f.r.describe(x)));
  std::int64_t n = 0;
  if (k == std::numeric_limits<std::int64_t>::min() || __builtin_add_overflow(shape[0], k < 0 ? -k : k, &n))
    throw ShapeError(fmt::format("diag: with diagonal {}, the length of the result does not fit in 64 bits", k));
  const Value line = k == 0 ? x : f.r.pad(x, {std::max<std::int64_t>(k, 0)}, {std::max<std::int64_t>(-k, 0)}, std::nullopt);
  check_shape("diag", Shape{n, n}, f.r.limits);
  return f.r.where(beside_diagonal(f, Op::Equal, n, n, 1), f.r.reshape(line, {1, n}), f.number(x, 0));
}

std::vector<Value> meshgrid(Functions& f) {
  std::vector<Value> xs = f.values(0);
  const std::string_view indexing = f.has(1) ? f.text(1) : "xy";
  if (indexing != "xy" && indexing != "ij")
    throw ValueError(fmt::format("meshgrid: `indexing` must be \"xy\" or \"ij\", not \"{}\"", indexing));
  const std::size_t n = xs.size();
  Shape grid(n, 1);
  std::vector<std::size_t> axis(n);
  std::iota(axis.begin(), axis.end(), std::size_t{0});
  if (indexing == "xy" && n > 1) std::swap(axis[0], axis[1]);
  for (std::size_t i = 0; i < n; ++i) {
    xs[i] = f.r.node_of(xs[i]);
    if (f.r.shape(xs[i]).size() > 1) throw ShapeError(fmt::format("meshgrid: {} must have at most one axis", f.r.describe(xs[i])));
    grid[axis[i]] = f.r.graph.elements(xs[i].node);
  }
  check_shape("meshgrid", grid, f.r.limits);
  for (std::size_t i = 0; i < n; ++i) {
    Shape along(n, 1);
    along[axis[i]] = grid[axis[i]];
    xs[i] = f.r.broadcast_to(f.r.reshape(xs[i], along), grid, f.name);
  }
  return xs;
}

// ---- pad

// One run of source elements of a padded axis: start, start + step, …, `count` elements. runs_of() covers `before`, the n elements, and
// `behind`.
struct Run {
  std::int64_t start, step, count;
};
std::vector<Run> runs_of(std::string_view mode, std::int64_t n, std::int64_t before, std::int64_t behind) {
  const bool reflect = mode == "reflect", symmetric = mode == "symmetric", turns = (reflect && n > 1) || symmetric;
  std::vector<Run> runs;
  if (mode == "edge" || (reflect && n == 1)) {
    if (before) runs.push_back({0, 0, before});
    runs.push_back({0, 1, n});
    if (behind) runs.push_back({n - 1, 0, behind});
    return runs;
  }
  const std::int64_t period = reflect ? 2 * (n - 1) : symmetric ? 2 * n : n;
  for (std::int64_t at = -before; at < n + behind;) {
    const std::int64_t phase = (at % period + period) % period;
    Run run{phase, 1, 0};
    if (turns && phase >= n) run = {symmetric ? period - 1 - phase : period - phase, -1, 0};
    const std::int64_t until = !turns ? period - phase : phase < n ? n - phase : period - phase;  // elements up to the next turn
    run.count = std::min(until, n + behind - at);
    runs.push_back(run);
    at += run.count;
  }
  return runs;
}

Value pad(Functions& f) {
  const Shape low = f.integers(1), high = f.integers(2);
  const std::string_view mode = f.has(4) ? f.text(4) : "constant";
  if (mode == "constant") return f.r.pad(f.value(0), low, high, f.has(3) ? std::optional(f.value(3)) : std::nullopt);
  if (mode != "edge" && mode != "reflect" && mode != "symmetric" && mode != "wrap")
    throw ValueError(fmt::format("pad: `mode` must be \"constant\", \"edge\", \"reflect\", \"symmetric\" or \"wrap\", not \"{}\"", mode));
  if (f.has(3)) throw ValueError(fmt::format("pad: mode \"{}\" takes no value", mode));
  Value x = f.r.node_of(f.value(0));
  const Shape from(f.r.shape(x).begin(), f.r.shape(x).end());
  static_cast<void>(f.r.pad(x, low, high, std::nullopt));  // called only for its errors
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (low[i] == 0 && high[i] == 0) continue;
    if (from[i] == 0)
      throw ShapeError(fmt::format("pad: axis {} of {} is empty, but mode \"{}\" repeats its elements. Use mode \"constant\"", i,
                                   f.r.describe(x), mode));
    std::vector<Value> parts;
    if ((low[i] + high[i]) / std::max<std::int64_t>(from[i] - 1, 1) > 4096)
      throw ShapeError(fmt::format("pad: {} and {} elements around axis {} of {} are too many for mode \"{}\". Use tile.", low[i], high[i],
                                   i, f.r.describe(x), mode));
    for (const Run& run : runs_of(mode, from[i], low[i], high[i])) {
      std::vector<Index> box(from.size());
      for (Index& index : box) index.kind = Index::Kind::Slice;
      const std::int64_t end = run.start + run.step * run.count;
      box[i].start = run.start;
      box[i].stop = run.step == 0 ? run.start + 1 : run.step < 0 && end < 0 ? std::nullopt : std::optional(end);
      if (run.step < 0) box[i].step = -1;
      Value part = f.r.index(x, box);
      if (run.step == 0) {
        Shape stretched(f.r.shape(x).begin(), f.r.shape(x).end());
        stretched[i] = run.count;
        part = f.r.broadcast_to(part, stretched, f.name);
      }
      parts.push_back(part);
    }
    x = f.r.concat(parts, static_cast<std::int64_t>(i), f.name);
  }
  return x;
}

}  // namespace

std::span<const FunctionRow> making_rows() {
  static const std::vector<FunctionRow>& table = *new std::vector<FunctionRow>{
      {"arange", "start, stop=, step=, dtype=", one(arange)},
      {"linspace", "start, stop, num=, endpoint=, dtype=", one(linspace)},
      {"eye", "n, m=, k=, dtype=", one([](Functions& f) { return band(f, Op::Equal); })},
      {"tri", "n, m=, k=, dtype=", one([](Functions& f) { return band(f, Op::LessEqual); })},
      {"tril", "x, k=", one([](Functions& f) { return triangle(f, Op::LessEqual); })},
      {"triu", "x, k=", one([](Functions& f) { return triangle(f, Op::GreaterEqual); })},
      {"diag", "x, k=", one(diag)},
      {"trace", "x, offset=, axis1=, axis2=", one([](Functions& f) {
         return f.sum(f.r.diagonal(f.value(0), f.integer(1, 0), f.integer(2, 0), f.integer(3, 1)), std::vector<std::int64_t>{-1}, false);
       })},
      {"meshgrid", "xs..., indexing=", meshgrid},
      {"pad", "x, lo, hi, value=, mode=", one(pad)},
  };
  return table;
}

}  // namespace onepass::compiler
