// Rows of the table of named operators: writes into arrays. A name is assigned only once, so each operator returns the updated array.
//   put(x, [1:5, 0], v)      where(inside, pad(v), x)
//   scatter, index_update    assign, or scatter_add: record_along.cpp
//   compress(m, x)           o = argsort(m, descending=true); where(iota < sum(m), x[o], fill), sum(m)
#include "compiler/function_row.h"

namespace onepass::compiler {

namespace {

// Returns the indices of a list (integers, slices, `...` and `none`), or of one integer.
std::vector<Index> indices_of(const Functions& f, std::size_t i) {
  std::vector<Index> out;
  const auto add = [&](const Argument& a) {
    Index& index = out.emplace_back();
    switch (a.kind) {
      case Argument::Kind::Index: index = a.index; break;
      case Argument::Kind::None: index.kind = Index::Kind::NewAxis; break;
      case Argument::Kind::Value: index.at = f.r.integer(a.value, fmt::format("{}: an index", f.name)); break;
      default: throw ValueError(fmt::format("{}: `{}` must be a list of integers and slices, as in [1:5, 0]", f.name, f.parameters[i]));
    }
  };
  if (f.at(i).kind != Argument::Kind::List) add(f.at(i));
  else
    for (const Argument& a : f.at(i).list) add(a);
  return out;
}

Joined joined(const Functions& f, std::size_t i, std::span<const std::string_view> modes) {
  const std::string_view mode = f.has(i) ? f.text(i) : "set";
  const auto found = std::ranges::find(modes, mode);
  if (found != modes.end()) return static_cast<Joined>(found - modes.begin());
  std::string known;
  for (const std::string_view m : modes) known += fmt::format("{}\"{}\"", known.empty() ? "" : m == modes.back() ? " or " : ", ", m);
  throw ValueError(fmt::format("{}: `mode` must be {}, not \"{}\"", f.name, known, mode));
}
constexpr std::string_view kModes[] = {"set", "add", "min", "max", "mul"};  // in the order of Joined

Value put(Functions& f) { return f.r.put(f.value(0), indices_of(f, 1), f.value(2), joined(f, 3, kModes)); }

using ByData = Value (Recorder::*)(Value, Value, Value, std::int64_t, Joined);
template <ByData kWrite> Value by_data(Functions& f) {
  return (f.r.*kWrite)(f.value(0), f.value(1), f.value(2), f.integer(3), joined(f, 4, std::span(kModes).first(4)));
}

Value masked_fill(Functions& f) {
  const Value x = f.r.node_of(f.value(0)), mask = f.r.node_of(f.value(1));
  Value fill = f.value(2);
  if (f.r.dtype(mask) != DType::Bool) throw DTypeError(fmt::format("masked_fill: the mask {} must be bool", f.r.describe(mask)));
  if (!f.r.shape(fill).empty()) throw ShapeError(fmt::format("masked_fill: the value must be a scalar, not {}", f.r.describe(fill)));
  fill = f.r.written(fill, x);
  const Shape shape(f.r.shape(x).begin(), f.r.shape(x).end());
  return f.r.where(f.r.broadcast_to(mask, shape, "masked_fill"), fill, x);
}

std::vector<Value> compress(Functions& f) {
  const Value mask = f.r.node_of(f.value(0));
  Value x = f.r.node_of(f.value(1));
  if (f.r.dtype(mask) != DType::Bool) throw DTypeError(fmt::format("compress: the mask {} must be bool", f.r.describe(mask)));
  std::size_t axis = 0;
  if (f.has(2)) {
    axis = f.axis(x, f.integer(2));
    if (f.r.shape(mask).size() != 1 || f.r.shape(mask)[0] != f.r.shape(x)[axis])
      throw ShapeError(fmt::format("compress: the mask {} must be one bool for each of the {} indices along axis {} of {}",
                                   f.r.describe(mask), f.r.shape(x)[axis], axis, f.r.describe(x)));
  } else if (!std::ranges::equal(f.r.shape(mask), f.r.shape(x))) {
    throw ShapeError(
        fmt::format("compress: the mask {} must have the shape of {}. Otherwise, pass the axis.", f.r.describe(mask), f.r.describe(x)));
  }
  const std::int64_t n = f.r.graph.elements(mask.node);
  const Value row = f.r.reshape(mask, {n});
  if (!f.has(2)) x = f.r.reshape(x, {n});
  const Value count = f.r.reduce(Op::ReduceSum, "compress", row, std::nullopt, false);
  if (n == 0) return {x, count};
  Value fill = f.has(3) ? f.value(3) : f.r.literal(std::int64_t{0});
  if (!f.r.shape(fill).empty()) throw ShapeError(fmt::format("compress: `fill` must be a scalar, not {}", f.r.describe(fill)));
  fill = f.r.written(fill, x);
  const Value order = f.node(Op::Argsort, DType::I64, {n}, {row.node}, {0, 1});  // selected elements first, in their order
  const Shape all(f.r.shape(x).begin(), f.r.shape(x).end());
  Shape line(all.size(), 1);
  line[axis] = n;
  const Value taken = f.gathered(x, f.r.broadcast_to(f.r.reshape(order, line), all, "compress"), axis);
  const Value here = f.apply(Op::Less, {f.r.iota(all, static_cast<std::int64_t>(axis), DType::I64), count});
  return {f.r.where(here, taken, fill), count};
}

}  // namespace

std::span<const FunctionRow> writing_rows() {
  static const std::vector<FunctionRow>& table = *new std::vector<FunctionRow>{
      {"put", "x, at, v, mode=", one(put)},
      {"scatter", "x, indices, updates, axis, mode=", one(by_data<&Recorder::scatter>)},
      {"index_update", "x, indices, updates, axis, mode=", one(by_data<&Recorder::index_update>)},
      {"masked_fill", "x, mask, value", one(masked_fill)},
      {"compress", "mask, x, axis=, fill=", compress},
  };
  return table;
}

}  // namespace onepass::compiler
