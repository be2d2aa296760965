// Rows of the table of named operators: windows of an array as a view, and sums over them.
//   sliding_window(x, 3)   window x, with the window index moved to the end
//   correlate(x, k)        einsum of the windows of x, padded as the mode says, and k: for one axis "iw,i->w"
#include <string>

#include "compiler/function_row.h"

namespace onepass::compiler {

namespace {

// Returns one number for each of `count` axes. A single given number applies to all axes.
Shape each(const Functions& f, std::size_t i, std::size_t count, std::int64_t otherwise) {
  if (!f.has(i)) return Shape(count, otherwise);
  Shape given = f.integers(i);
  if (f.at(i).kind != Argument::Kind::List) given.resize(count, given[0]);
  if (given.size() != count)
    throw ShapeError(fmt::format("{}: `{}` has {} numbers, but there are {} axes", f.name, f.parameters[i], given.size(), count));
  for (const std::int64_t n : given)
    if (n < 1) throw ShapeError(fmt::format("{}: `{}` must be 1 or more, not {}", f.name, f.parameters[i], n));
  return given;
}

// Returns the windows along an axis. The index within a window is an axis before the window's position.
Value windows(const Functions& f, const Value& x, std::size_t axis, std::int64_t width, std::int64_t step, std::int64_t spacing) {
  Shape shape(f.r.shape(x).begin(), f.r.shape(x).end());
  const std::int64_t n = shape[axis];
  std::int64_t reach = 0;
  if (__builtin_mul_overflow(width - 1, spacing, &reach) || reach >= n)
    throw ShapeError(fmt::format("{}: a window of {} elements{} is longer than axis {} of {}", f.name, width,
                                 spacing == 1 ? "" : fmt::format(", {} apart,", spacing), axis, f.r.describe(x)));
  shape[axis] = (n - 1 - reach) / step + 1;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), width);
  return f.node(Op::Window, f.r.dtype(x), shape, {x.node}, {static_cast<std::int64_t>(axis), step, spacing});
}

Value sliding_window(Functions& f) {
  Value x = f.r.node_of(f.value(0));
  const auto rank = static_cast<std::int64_t>(f.r.shape(x).size());
  std::vector<std::int64_t> axes;
  if (f.has(2))
    for (const std::int64_t a : f.integers(2)) axes.push_back(static_cast<std::int64_t>(f.axis(x, a)));
  else
    for (std::int64_t a = 0; a < rank; ++a) axes.push_back(a);
  if (!f.has(2) && f.at(1).kind != Argument::Kind::List && rank != 1)
    throw ShapeError(fmt::format("sliding_window: one width is given for the {} axes of {}. Pass a list of widths, or the axis.", rank,
                                 f.r.describe(x)));
  const Shape widths = each(f, 1, axes.size(), 1), steps = each(f, 3, axes.size(), 1), spacings = each(f, 4, axes.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    x = windows(f, x, static_cast<std::size_t>(axes[i]), widths[i], steps[i], spacings[i]);
    std::vector<std::int64_t> order;
    for (std::int64_t a = 0; a < rank + static_cast<std::int64_t>(i) + 1; ++a)
      if (a != axes[i]) order.push_back(a);
    order.push_back(axes[i]);
    x = f.r.transpose(x, order);
  }
  return x;
}

// Parameters x, kernel, mode=, axis=. Mode "same" pads like NumPy: half of the width before the elements, the other half after them.
Value correlated(const Functions& f, Value x, Value kernel, std::string_view mode, const std::optional<std::vector<std::int64_t>>& axis,
                 bool flips) {
  const auto rank = f.r.shape(x).size();
  std::vector<std::size_t> axes;
  if (axis)
    for (const std::int64_t a : *axis) axes.push_back(f.axis(x, a));
  else
    for (std::size_t a = 0; a < rank; ++a) axes.push_back(a);
  if (!std::ranges::is_sorted(axes) || std::ranges::adjacent_find(axes) != axes.end())
    throw ShapeError(fmt::format("{}: the axes must be in increasing order, and none may occur twice", f.name));
  const Shape of(f.r.shape(kernel).begin(), f.r.shape(kernel).end());
  if (axes.empty()) throw ShapeError(fmt::format("{}: there must be at least one axis for the window, in {}", f.name, f.r.describe(x)));
  if (of.size() < axes.size() || of.size() > rank) {
    if (axes.size() == rank)
      throw ShapeError(
          fmt::format("{}: the rank of the kernel {} must be {}, as that of {}", f.name, f.r.describe(kernel), rank, f.r.describe(x)));
    throw ShapeError(fmt::format("{}: the kernel {} must have {} to {} axes: the window axes last, after the axes that it shares with {}",
                                 f.name, f.r.describe(kernel), axes.size(), rank, f.r.describe(x)));
  }
  const std::size_t shared = of.size() - axes.size();
  if (rank == 1 && of[0] > f.r.shape(x)[0]) {  // the longer operand is the array, as in NumPy
    const Value y = correlated(f, kernel, x, mode, std::nullopt, flips);
    return flips ? y : f.r.flip(y, std::nullopt);
  }
  Shape low(rank, 0), high(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t width = of[shared + i];
    if (width < 1)
      throw ShapeError(fmt::format("{}: the kernel {} is empty; it must have at least one element", f.name, f.r.describe(kernel)));
    if (mode == "same") low[axes[i]] = width / 2, high[axes[i]] = width - 1 - width / 2;
    if (mode == "full") low[axes[i]] = high[axes[i]] = width - 1;
  }
  if (mode != "valid") x = f.r.pad(x, low, high, std::nullopt);
  if (flips) {
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i < axes.size(); ++i) all.push_back(static_cast<std::int64_t>(shared + i));
    kernel = f.r.flip(kernel, all);
  }
  // Assigns letters to the indices: of the array, with a window's index before its position; of the kernel; of the result.
  if (2 * rank > 52) throw ShapeError(fmt::format("{}: {} has more than 26 axes, the maximum for this operator", f.name, f.r.describe(x)));
  const auto letter = [](std::size_t i) { return static_cast<char>(i < 26 ? 'a' + i : 'A' + (i - 26)); };
  std::string array, result, others, inside;
  std::size_t moved = 0;
  for (std::size_t a = 0; a < rank; ++a) {
    const bool is_window = std::ranges::find(axes, a) != axes.end();
    if (is_window) {
      x = windows(f, x, a + moved, of[shared + moved], 1, 1);
      array += letter(26 + moved);
      inside += letter(26 + moved++);
    } else {
      others += letter(a);
    }
    array += letter(a);
    result += letter(a);
  }
  if (shared > others.size())
    throw ShapeError(fmt::format("{}: the kernel {} has {} axes before the window axes, but {} has {} other axes", f.name,
                                 f.r.describe(kernel), shared, f.r.describe(x), others.size()));
  const Value both[2] = {x, kernel};
  return f.r.einsum(array + "," + others.substr(others.size() - shared) + inside + "->" + result, both);
}

Value correlation(Functions& f, bool flips) {
  const Value x = f.r.node_of(f.value(0)), kernel = f.r.node_of(f.value(1));
  const std::string_view mode = f.has(2) ? f.text(2) : flips ? "full" : "valid";
  if (mode != "valid" && mode != "same" && mode != "full")
    throw ValueError(fmt::format("{}: `mode` must be \"valid\", \"same\" or \"full\", not \"{}\"", f.name, mode));
  for (const Value& v : {x, kernel})
    if (f.r.dtype(v) == DType::Bool) throw DTypeError(fmt::format("{}: {} is bool. Cast it to a number type", f.name, f.r.describe(v)));
  return correlated(f, x, kernel, mode, f.axes(3), flips);
}

}  // namespace

std::span<const FunctionRow> window_rows() {
  static const std::vector<FunctionRow>& table = *new std::vector<FunctionRow>{
      {"sliding_window", "x, window, axis=, step=, spacing=", one(sliding_window)},
      {"correlate", "x, kernel, mode=, axis=", one([](Functions& f) { return correlation(f, false); })},
      {"convolve", "x, kernel, mode=, axis=", one([](Functions& f) { return correlation(f, true); })},
  };
  return table;
}

}  // namespace onepass::compiler
