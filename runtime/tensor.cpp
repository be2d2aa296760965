// Tensor and the operators: each resolves its operands in the thread's recording and calls the recorder. See onepass/tensor.h.
#include "onepass/tensor.h"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "onepass/binding.h"
#include "runtime/call_arguments.h"
#include "runtime/recording.h"

namespace onepass {
namespace runtime {

using compiler::Recorder;
using compiler::Value;
using ir::Op;

namespace {
thread_local Recording* innermost = nullptr;

std::uint32_t next_recording_id() {
  static std::atomic<std::uint32_t> next{1};
  std::uint32_t id = next.fetch_add(1, std::memory_order_relaxed);
  while (id == 0) id = next.fetch_add(1, std::memory_order_relaxed);  // 0 means no recording
  return id;
}
}  // namespace

Recording::Recording(ProgramRecorder& recorder, Relax relax)
    : recorder(recorder), relax(relax), watch(recorder.captured_numbers), id_(next_recording_id()), outer_(innermost) {
  if (recorder.graph.sources.empty()) recorder.graph.sources.emplace_back();
  innermost = this;
}

Recording::~Recording() { innermost = outer_; }

Recording* Recording::current_or_null() { return innermost; }

Recording& Recording::current(std::string_view what) {
  if (innermost) return *innermost;
  throw Error(
      fmt::format("{}: nothing is being recorded on this thread; Tensors, and operators on Arrays, are valid only inside a function passed "
                  "to onepass::compile. Call that function with Arrays.",
                  what));
}

Tensor Recording::tensor(const Value& value) {
  values_.push_back(value);
  return TensorAccess::make(id_, static_cast<std::uint32_t>(values_.size() - 1));
}

const Value& Recording::of(Tensor tensor) const {
  const std::uint32_t id = TensorAccess::recording(tensor);
  if (id == id_) [[likely]]
    return values_[TensorAccess::value(tensor)];
  if (id == 0) throw Error("uninitialized Tensor used. Assign it first.");
  throw Error(
      "a Tensor is used outside its recording: it was kept from an earlier call, or captured from another function. Pass it as an "
      "argument.");
}

Value Recording::value(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::Tensor: return of(operand.tensor);
    case Operand::Kind::Array: return recorder.capture(*operand.array);
    case Operand::Kind::None: throw ValueError("an operand is none; an operator needs a Tensor, an Array or a number");
    default:
      if (operand.variable) watch.read(operand.variable, operand.variable_bytes);
      return recorder.literal(literal_of(operand));
  }
}

void Recording::at(const std::source_location& where) {
  const char* const file = where.file_name();
  const std::uint32_t line = where.line();
  if (file != last_file_ || line != last_line_) {
    last_file_ = file;
    last_line_ = line;
    if (line != 0) {
      const std::uint64_t key = reinterpret_cast<std::uintptr_t>(file) ^ std::uint64_t{line} << 40;
      const auto [it, fresh] = sources_.try_emplace(key, static_cast<std::uint32_t>(recorder.graph.sources.size()));
      if (fresh) recorder.graph.sources.push_back(fmt::format("{}:{}", file, line));
      last_source_ = it->second;
    }
  }
  recorder.graph.current_source = line != 0 ? last_source_ : host_source_;
}

void Recording::at_host(std::string_view file, std::uint32_t line) {
  const auto [it, fresh] = host_sources_.try_emplace(fmt::format("{}:{}", file, line), 0u);
  if (fresh) {
    it->second = static_cast<std::uint32_t>(recorder.graph.sources.size());
    recorder.graph.sources.push_back(it->first);
  }
  host_source_ = it->second;
}

void rethrow_recorded_at(const std::source_location& where) {
  std::string line;
  if (where.line()) line = fmt::format("{}:{}", where.file_name(), where.line());
  else if (const Recording* const recording = Recording::current_or_null()) line = recording->host_line();
  const auto text = [&](const std::exception& e) {
    return line.empty() ? std::string(e.what()) : fmt::format("{}\n  Recorded at {}.", e.what(), line);
  };
  try {
    throw;
  } catch (const ShapeError& e) { throw ShapeError(text(e)); } catch (const DTypeError& e) {
    throw DTypeError(text(e));
  } catch (const ValueError& e) { throw ValueError(text(e)); } catch (const NameError& e) {
    throw NameError(text(e));
  } catch (const IndexError& e) { throw IndexError(text(e)); } catch (const FormulaError&) {
    throw;  // has its own source line
  } catch (const IoError& e) { throw IoError(text(e)); } catch (const UnsupportedError& e) {
    throw UnsupportedError(text(e));
  } catch (const Error& e) { throw Error(text(e)); }
}

}  // namespace runtime

using compiler::Argument;
using compiler::Value;
using ir::Op;
using runtime::Recording;

namespace {

// Runs `body(recording)` for an operator written at `where`; adds that source line to errors.
template <class Body> auto record(std::string_view name, const std::source_location& where, Body&& body) {
  try {
    Recording& r = Recording::current(name);
    r.at(where);
    return body(r);
  } catch (const Error&) { runtime::rethrow_recorded_at(where); }
}

Tensor unary(Op op, std::string_view name, const Operand& x) {
  return record(name, x.where, [&](Recording& r) {
    const Value v[1] = {r.value(x)};
    return r.tensor(r.recorder.elementwise(op, name, v));
  });
}

// Uses the right operand's source line, which ends a multi-line expression.
Tensor binary(Op op, std::string_view name, const Operand& a, const Operand& b) {
  return record(name, b.where, [&](Recording& r) {
    const Value v[2] = {r.value(a), r.value(b)};
    return r.tensor(r.recorder.elementwise(op, name, v));
  });
}

Tensor ternary(Op op, std::string_view name, const Operand& a, const Operand& b, const Operand& c) {
  return record(name, a.where, [&](Recording& r) {
    const Value v[3] = {r.value(a), r.value(b), r.value(c)};
    return r.tensor(r.recorder.elementwise(op, name, v));
  });
}

// ---- by name, for operators without a dedicated recorder function
Argument argument(Recording& r, const Operand& x) {
  Argument a;
  if (x.kind == Operand::Kind::None) return a;
  a.kind = Argument::Kind::Value;
  a.value = r.value(x);
  return a;
}
Argument argument(Recording& r, std::int64_t value) {
  Argument a;
  a.kind = Argument::Kind::Value;
  a.value = r.recorder.literal(value);
  return a;
}
Argument argument(Recording& r, bool value) {
  Argument a;
  a.kind = Argument::Kind::Value;
  a.value = r.recorder.literal(value);
  return a;
}
Argument argument(Recording& r, int value) { return argument(r, std::int64_t{value}); }
Argument argument(Recording& r, const Axes& axes) {
  Argument a;
  if (axes.all()) return a;
  a.kind = Argument::Kind::List;
  for (std::int64_t axis : axes.list()) a.list.push_back(argument(r, axis));
  return a;
}

Argument argument(Recording&, DType type) {
  Argument a;
  a.kind = Argument::Kind::Type;
  a.type = type;
  return a;
}
Argument argument(Recording&, std::string_view text) {
  Argument a;
  a.kind = Argument::Kind::Text;
  a.text = text;
  return a;
}
Argument argument(Recording& r, const Extents& extents) {
  Argument a;
  a.kind = Argument::Kind::List;
  for (const std::int64_t e : std::span<const std::int64_t>(extents)) a.list.push_back(argument(r, e));
  return a;
}
template <class T> Argument argument(Recording& r, const std::optional<T>& x) { return x ? argument(r, *x) : Argument{}; }

template <class... A> std::vector<Tensor> all_by_name(std::string_view name, const std::source_location& where, const A&... given) {
  return record(name, where, [&](Recording& r) {
    const Argument arguments[] = {argument(r, given)...};
    std::vector<Tensor> results;
    for (const Value& v : r.recorder.call(name, arguments, {})) results.push_back(r.tensor(v));
    return results;
  });
}
template <class... A> Tensor at_by_name(std::string_view name, const std::source_location& where, const A&... given) {
  return record(name, where, [&](Recording& r) {
    const Argument arguments[] = {argument(r, given)...};
    return r.tensor(r.recorder.call(name, arguments, {}).front());
  });
}
template <class... A> Tensor by_name(std::string_view name, const Operand& x, const A&... rest) {
  return at_by_name(name, x.where, x, rest...);
}

std::vector<std::int64_t> list(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

std::optional<std::vector<std::int64_t>> optional_list(const Axes& axes) {
  if (axes.all()) return std::nullopt;
  return list(axes.list());
}

Tensor reduce(Op op, std::string_view name, const Operand& x, const Axes& axes, bool keepdims) {
  return record(name, x.where,
                [&](Recording& r) { return r.tensor(r.recorder.reduce(op, name, r.value(x), optional_list(axes), keepdims)); });
}

std::vector<compiler::Index> recorded(std::span<const Index> indices) {
  std::vector<compiler::Index> list;
  for (const Index& i : indices) {
    compiler::Index to;
    switch (i.kind) {
      case Index::Kind::Integer: to.kind = compiler::Index::Kind::Integer; break;
      case Index::Kind::Slice: to.kind = compiler::Index::Kind::Slice; break;
      case Index::Kind::Ellipsis: to.kind = compiler::Index::Kind::Ellipsis; break;
      case Index::Kind::NewAxis: to.kind = compiler::Index::Kind::NewAxis; break;
    }
    to.at = i.at;
    to.start = i.range.start;
    to.stop = i.range.stop;
    to.step = i.range.step;
    list.push_back(to);
  }
  return list;
}
Tensor indexed(Tensor x, std::span<const Index> indices, const std::source_location& where) {
  return record("index", where, [&](Recording& r) { return r.tensor(r.recorder.index(r.of(x), recorded(indices))); });
}

}  // namespace

// ------------------------------------------------------------------------------------------------ Tensor

DType Tensor::dtype() const {
  const Recording& r = Recording::current("dtype");
  return r.recorder.dtype(r.of(*this));
}
int Tensor::rank() const { return static_cast<int>(shape().size()); }
std::span<const std::int64_t> Tensor::shape() const {
  const Recording& r = Recording::current("shape");
  return r.recorder.shape(r.of(*this));
}
std::int64_t Tensor::dim(int axis) const {
  const Recording& r = Recording::current("dim");
  const Value& v = r.of(*this);
  const auto lengths = r.recorder.shape(v);
  const auto rank = static_cast<int>(lengths.size());
  if (axis < -rank || axis >= rank) throw ShapeError(fmt::format("dim: {} has no axis {}", r.recorder.describe(v), axis));
  return lengths[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
}
std::int64_t Tensor::size() const { return ir::element_count(shape()); }

Tensor Tensor::reshape(Extents shape, std::source_location where) const { return onepass::reshape(Operand(*this, where), shape); }
Tensor Tensor::transpose(Extents axes, std::source_location where) const { return onepass::transpose(Operand(*this, where), axes); }
Tensor Tensor::cast(DType dtype, std::source_location where) const { return onepass::cast(Operand(*this, where), dtype); }
Tensor Tensor::slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step, std::source_location where) const {
  std::vector<Index> indices;
  record("slice", where, [&](Recording& r) {
    const Value& v = r.of(*this);
    const auto n = static_cast<int>(r.recorder.shape(v).size()), at = axis < 0 ? axis + n : axis;
    if (at < 0 || at >= n) throw ShapeError(fmt::format("slice: {} has no axis {}", r.recorder.describe(v), axis));
    indices.assign(static_cast<std::size_t>(at), Index(All));
  });
  Range range{start, stop, step};
  if (stop == Array::kToEnd) range.stop.reset();
  indices.emplace_back(range);
  return indexed(*this, indices, where);
}
Tensor Tensor::operator[](const Index& index) const { return indexed(*this, std::span(&index, 1), index.where); }
Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  return indexed(*this, std::span(indices.begin(), indices.size()), indices.size() ? indices.begin()->where : std::source_location{});
}

Place Tensor::at(std::initializer_list<Index> indices) const { return Place(*this, indices); }
Tensor Place::set(const Operand& v) const { return put(Operand(x_, v.where), indices_, v, PutMode::Set); }
Tensor Place::add(const Operand& v) const { return put(Operand(x_, v.where), indices_, v, PutMode::Add); }
Tensor Place::min(const Operand& v) const { return put(Operand(x_, v.where), indices_, v, PutMode::Min); }
Tensor Place::max(const Operand& v) const { return put(Operand(x_, v.where), indices_, v, PutMode::Max); }
Tensor Place::mul(const Operand& v) const { return put(Operand(x_, v.where), indices_, v, PutMode::Mul); }

#define ONEPASS_REDUCTION(name)                                                                          \
  Tensor Tensor::name(std::source_location where) const { return onepass::name(Operand(*this, where)); } \
  Tensor Tensor::name(const Axes& axes, bool keepdims, std::source_location where) const {               \
    return onepass::name(Operand(*this, where), axes, keepdims);                                         \
  }
ONEPASS_REDUCTION(sum)
ONEPASS_REDUCTION(mean)
ONEPASS_REDUCTION(max)
ONEPASS_REDUCTION(min)
ONEPASS_REDUCTION(prod)
ONEPASS_REDUCTION(any)
ONEPASS_REDUCTION(all)
ONEPASS_REDUCTION(argmax)
ONEPASS_REDUCTION(argmin)
#undef ONEPASS_REDUCTION
Tensor Tensor::var(std::source_location where) const { return onepass::var(Operand(*this, where)); }
Tensor Tensor::var(const Axes& axes, std::int64_t ddof, bool keepdims, std::source_location where) const {
  return onepass::var(Operand(*this, where), axes, ddof, keepdims);
}
Tensor Tensor::std(std::source_location where) const { return onepass::std(Operand(*this, where)); }
Tensor Tensor::std(const Axes& axes, std::int64_t ddof, bool keepdims, std::source_location where) const {
  return onepass::std(Operand(*this, where), axes, ddof, keepdims);
}
Tensor Tensor::cumsum(int axis, bool reverse, std::source_location where) const {
  return onepass::cumsum(Operand(*this, where), axis, reverse);
}
Tensor Tensor::cumprod(int axis, bool reverse, std::source_location where) const {
  return onepass::cumprod(Operand(*this, where), axis, reverse);
}

Tensor& Tensor::operator+=(const Operand& b) & { return *this = *this + b; }
Tensor& Tensor::operator-=(const Operand& b) & { return *this = *this - b; }
Tensor& Tensor::operator*=(const Operand& b) & { return *this = *this * b; }
Tensor& Tensor::operator/=(const Operand& b) & { return *this = *this / b; }

Tensor::Tensor(const Array& array, std::source_location where) : Tensor(detail::tensor_of(Operand(array, where))) {}

bool detail::is_recording() noexcept { return Recording::current_or_null() != nullptr; }
void detail::recorded_at(std::string_view file, std::uint32_t line) {
  if (Recording* const r = Recording::current_or_null()) r->at_host(file, line);
}
void detail::name_argument(Tensor x, std::string_view name) {
  Recording* const r = Recording::current_or_null();
  if (!r) return;
  const compiler::Value value = r->of(x);
  if (value.is_literal) return;
  ir::Graph& graph = r->recorder.graph;
  if (const ir::Node node = graph[value.node]; node.op == ir::Op::Input) graph.inputs[node.bits].name = name;
}
Tensor detail::index(Tensor x, std::span<const Index> indices) {
  return indexed(x, indices, indices.empty() ? std::source_location{} : indices.front().where);
}

Tensor detail::tensor_of(const Operand& x) {
  return record(x.kind == Operand::Kind::Array ? "a captured Array" : "literal", x.where,
                [&](Recording& r) { return r.tensor(r.value(x)); });
}

// ------------------------------------------------------------------------------------------------ elementwise

#define ONEPASS_BINARY(name, op) \
  Tensor name(const Operand& a, const Operand& b) { return binary(Op::op, #name, a, b); }
#define ONEPASS_UNARY(name, op) \
  Tensor name(const Operand& x) { return unary(Op::op, #name, x); }

ONEPASS_BINARY(add, Add)
ONEPASS_BINARY(sub, Sub)
ONEPASS_BINARY(mul, Mul)
ONEPASS_BINARY(div, Div)
ONEPASS_BINARY(floor_div, FloorDiv)
ONEPASS_BINARY(remainder, Remainder)
ONEPASS_BINARY(fmod, Fmod)
ONEPASS_BINARY(hypot, Hypot)
ONEPASS_BINARY(logaddexp, Logaddexp)
ONEPASS_BINARY(atan2, Atan2)
ONEPASS_BINARY(maximum, Maximum)
ONEPASS_BINARY(minimum, Minimum)
ONEPASS_BINARY(copysign, Copysign)
ONEPASS_BINARY(equal, Equal)
ONEPASS_BINARY(not_equal, NotEqual)
ONEPASS_BINARY(less, Less)
ONEPASS_BINARY(less_equal, LessEqual)
ONEPASS_BINARY(greater, Greater)
ONEPASS_BINARY(greater_equal, GreaterEqual)
ONEPASS_BINARY(bitwise_and, BitwiseAnd)
ONEPASS_BINARY(bitwise_or, BitwiseOr)
ONEPASS_BINARY(bitwise_xor, BitwiseXor)
ONEPASS_BINARY(shift_left, ShiftLeft)
ONEPASS_BINARY(shift_right, ShiftRight)
ONEPASS_UNARY(neg, Neg)
ONEPASS_UNARY(abs, Abs)
ONEPASS_UNARY(sign, Sign)
ONEPASS_UNARY(square, Square)
ONEPASS_UNARY(reciprocal, Reciprocal)
ONEPASS_UNARY(stop_gradient, StopGradient)
ONEPASS_UNARY(sqrt, Sqrt)
ONEPASS_UNARY(exp, Exp)
ONEPASS_UNARY(log, Log)
ONEPASS_UNARY(exp2, Exp2)
ONEPASS_UNARY(expm1, Expm1)
ONEPASS_UNARY(log2, Log2)
ONEPASS_UNARY(log10, Log10)
ONEPASS_UNARY(log1p, Log1p)
ONEPASS_UNARY(rsqrt, Rsqrt)
ONEPASS_UNARY(cbrt, Cbrt)
ONEPASS_UNARY(sigmoid, Sigmoid)
ONEPASS_UNARY(sin, Sin)
ONEPASS_UNARY(cos, Cos)
ONEPASS_UNARY(tan, Tan)
ONEPASS_UNARY(asin, Asin)
ONEPASS_UNARY(acos, Acos)
ONEPASS_UNARY(atan, Atan)
ONEPASS_UNARY(sinh, Sinh)
ONEPASS_UNARY(cosh, Cosh)
ONEPASS_UNARY(asinh, Asinh)
ONEPASS_UNARY(acosh, Acosh)
ONEPASS_UNARY(atanh, Atanh)
ONEPASS_UNARY(tanh, Tanh)
ONEPASS_UNARY(erf, Erf)
ONEPASS_UNARY(erfc, Erfc)
ONEPASS_UNARY(erfinv, Erfinv)
ONEPASS_UNARY(ndtr, Ndtr)
ONEPASS_UNARY(ndtri, Ndtri)
ONEPASS_UNARY(lgamma, Lgamma)
ONEPASS_UNARY(digamma, Digamma)
ONEPASS_UNARY(floor, Floor)
ONEPASS_UNARY(ceil, Ceil)
ONEPASS_UNARY(trunc, Trunc)
ONEPASS_UNARY(round, Round)
ONEPASS_UNARY(isnan, Isnan)
ONEPASS_UNARY(isinf, Isinf)
ONEPASS_UNARY(isfinite, Isfinite)
ONEPASS_UNARY(signbit, Signbit)
ONEPASS_UNARY(bitwise_not, BitwiseNot)
ONEPASS_UNARY(popcount, Popcount)

#undef ONEPASS_BINARY
#undef ONEPASS_UNARY

Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
Tensor operator%(const Operand& a, const Operand& b) { return remainder(a, b); }
Tensor operator-(const Operand& x) { return neg(x); }
Tensor operator==(const Operand& a, const Operand& b) { return equal(a, b); }
Tensor operator!=(const Operand& a, const Operand& b) { return not_equal(a, b); }
Tensor operator<(const Operand& a, const Operand& b) { return less(a, b); }
Tensor operator<=(const Operand& a, const Operand& b) { return less_equal(a, b); }
Tensor operator>(const Operand& a, const Operand& b) { return greater(a, b); }
Tensor operator>=(const Operand& a, const Operand& b) { return greater_equal(a, b); }
Tensor operator&(const Operand& a, const Operand& b) { return bitwise_and(a, b); }
Tensor operator|(const Operand& a, const Operand& b) { return bitwise_or(a, b); }
Tensor operator^(const Operand& a, const Operand& b) { return bitwise_xor(a, b); }
Tensor operator<<(const Operand& a, const Operand& b) { return shift_left(a, b); }
Tensor operator>>(const Operand& a, const Operand& b) { return shift_right(a, b); }
Tensor operator~(const Operand& x) { return bitwise_not(x); }
Tensor operator&&(const Tensor& a, const Operand& b) { return logical_and(Operand(a, b.where), b); }
Tensor operator||(const Tensor& a, const Operand& b) { return logical_or(Operand(a, b.where), b); }
Tensor Tensor::operator!() const { return logical_not(Operand(*this, std::source_location{})); }

Tensor pow(const Operand& a, const Operand& b) {
  return record("pow", b.where, [&](Recording& r) {
    const Value base = r.value(a);
    return r.tensor(r.recorder.pow(base, r.value(b)));
  });
}
Tensor fma(const Operand& a, const Operand& b, const Operand& c) { return ternary(Op::Fma, "fma", a, b, c); }
Tensor where(const Operand& c, const Operand& a, const Operand& b) { return ternary(Op::Where, "where", c, a, b); }
Tensor clamp(const Operand& x, const Operand& lo, const Operand& hi) { return by_name("clamp", x, lo, hi); }
Tensor logical_and(const Operand& a, const Operand& b) { return by_name("logical_and", a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return by_name("logical_or", a, b); }
Tensor logical_xor(const Operand& a, const Operand& b) { return by_name("logical_xor", a, b); }
Tensor logical_not(const Operand& x) { return by_name("logical_not", x); }
Tensor cast(const Operand& x, DType dtype) {
  return record("cast", x.where, [&](Recording& r) { return r.tensor(r.recorder.cast(r.value(x), dtype)); });
}
Tensor bitcast(const Operand& x, DType dtype) {
  return record("bitcast", x.where, [&](Recording& r) { return r.tensor(r.recorder.bitcast(r.value(x), dtype)); });
}

// ------------------------------------------------------------------------------------------------ sources and views

Tensor full(Extents shape, const Operand& value, std::optional<DType> dtype) {
  return record("full", value.where, [&](Recording& r) { return r.tensor(r.recorder.full(list(shape), r.value(value), dtype)); });
}
Tensor zeros(Extents shape, DType dtype, std::source_location where) { return full(shape, Operand(0, where), dtype); }
Tensor ones(Extents shape, DType dtype, std::source_location where) { return full(shape, Operand(1, where), dtype); }
Tensor iota(Extents shape, int axis, DType dtype, std::source_location where) {
  return record("iota", where, [&](Recording& r) { return r.tensor(r.recorder.iota(list(shape), axis, dtype)); });
}

Tensor reshape(const Operand& x, Extents shape) {
  return record("reshape", x.where, [&](Recording& r) { return r.tensor(r.recorder.reshape(r.value(x), list(shape))); });
}
Tensor transpose(const Operand& x, Extents axes) {
  return record("transpose", x.where, [&](Recording& r) { return r.tensor(r.recorder.transpose(r.value(x), list(axes))); });
}
Tensor swap_axes(const Operand& x, int a, int b) { return by_name("swap_axes", x, a, b); }
Tensor expand_dims(const Operand& x, int axis) {
  return record("expand_dims", x.where, [&](Recording& r) { return r.tensor(r.recorder.expand_dims(r.value(x), axis)); });
}
Tensor squeeze(const Operand& x, Axes axes) {
  return record("squeeze", x.where, [&](Recording& r) { return r.tensor(r.recorder.squeeze(r.value(x), optional_list(axes))); });
}
Tensor broadcast_to(const Operand& x, Extents shape) {
  return record("broadcast_to", x.where, [&](Recording& r) { return r.tensor(r.recorder.broadcast_to(r.value(x), list(shape))); });
}
Tensor flip(const Operand& x, Axes axes) {
  return record("flip", x.where, [&](Recording& r) { return r.tensor(r.recorder.flip(r.value(x), optional_list(axes))); });
}
Tensor diagonal(const Operand& x, std::int64_t offset, int axis1, int axis2) {
  return record("diagonal", x.where, [&](Recording& r) { return r.tensor(r.recorder.diagonal(r.value(x), offset, axis1, axis2)); });
}

namespace {
std::vector<Value> values_of(const Recording& r, const std::vector<Tensor>& xs) {
  std::vector<Value> out;
  for (const Tensor& x : xs) out.push_back(r.of(x));
  return out;
}
}  // namespace

Tensor concat(const std::vector<Tensor>& xs, int axis, std::source_location where) {
  return record("concat", where, [&](Recording& r) { return r.tensor(r.recorder.concat(values_of(r, xs), axis)); });
}
Tensor stack(const std::vector<Tensor>& xs, int axis, std::source_location where) {
  return record("stack", where, [&](Recording& r) { return r.tensor(r.recorder.stack(values_of(r, xs), axis)); });
}
Tensor pad(const Operand& x, Extents low, Extents high, const Operand& value) {
  return record("pad", x.where, [&](Recording& r) {
    const Value v = r.value(x);
    return r.tensor(
        r.recorder.pad(v, list(low), list(high), value.kind == Operand::Kind::None ? std::nullopt : std::optional<Value>(r.value(value))));
  });
}
Tensor pad(const Operand& x, Extents low, Extents high, PadMode mode) {
  static constexpr std::string_view names[] = {"edge", "reflect", "symmetric", "wrap"};
  return by_name("pad", x, low, high, Operand(none), names[static_cast<std::size_t>(mode)]);
}
Tensor tile(const Operand& x, Extents times) {
  return record("tile", x.where, [&](Recording& r) { return r.tensor(r.recorder.tile(r.value(x), list(times))); });
}
Tensor repeat(const Operand& x, std::int64_t times, int axis) {
  return record("repeat", x.where, [&](Recording& r) { return r.tensor(r.recorder.repeat(r.value(x), times, axis)); });
}
Tensor roll(const Operand& x, std::int64_t shift, Axes axis) {
  return record("roll", x.where, [&](Recording& r) {
    const auto axes = optional_list(axis);
    return r.tensor(r.recorder.roll(r.value(x), std::vector<std::int64_t>(axes ? axes->size() : 1, shift), axes));
  });
}
Tensor matmul(const Operand& a, const Operand& b) {
  return record("matmul", a.where, [&](Recording& r) {
    const Value x = r.value(a), y = r.value(b);
    return r.tensor(r.recorder.matmul(x, y));
  });
}
Tensor dot(const Operand& a, const Operand& b) {
  return record("dot", a.where, [&](Recording& r) {
    const Value x = r.value(a), y = r.value(b);
    return r.tensor(r.recorder.dot(x, y));
  });
}
Tensor outer(const Operand& a, const Operand& b) {
  return record("outer", a.where, [&](Recording& r) {
    const Value x = r.value(a), y = r.value(b);
    return r.tensor(r.recorder.outer(x, y));
  });
}
Tensor einsum(Equation equation, std::span<const Operand> operands) {
  return record("einsum", equation.where, [&](Recording& r) {
    std::vector<Value> values;
    for (const Operand& x : operands) values.push_back(r.value(x));
    return r.tensor(r.recorder.einsum(equation.text, values));
  });
}
Tensor uniform(const Operand& key, Extents shape, DType dtype) {
  return record("uniform", key.where, [&](Recording& r) { return r.tensor(r.recorder.uniform(r.value(key), list(shape), dtype)); });
}

Tensor normal(const Operand& key, Extents shape, DType dtype) {
  return record("normal", key.where, [&](Recording& r) { return r.tensor(r.recorder.normal(r.value(key), list(shape), dtype)); });
}

// ------------------------------------------------------------------------------------------------ reductions, composites, derivatives

Tensor sum(const Operand& x, Axes axes, bool keepdims) { return reduce(Op::ReduceSum, "sum", x, axes, keepdims); }
Tensor max(const Operand& x, Axes axes, bool keepdims) { return reduce(Op::ReduceMax, "max", x, axes, keepdims); }
Tensor min(const Operand& x, Axes axes, bool keepdims) { return reduce(Op::ReduceMin, "min", x, axes, keepdims); }
Tensor prod(const Operand& x, Axes axes, bool keepdims) { return reduce(Op::ReduceProd, "prod", x, axes, keepdims); }
Tensor any(const Operand& x, Axes axes, bool keepdims) { return by_name("any", x, axes, keepdims); }
Tensor all(const Operand& x, Axes axes, bool keepdims) { return by_name("all", x, axes, keepdims); }
Tensor argmax(const Operand& x, Axes axes, bool keepdims) { return by_name("argmax", x, axes, keepdims); }
Tensor argmin(const Operand& x, Axes axes, bool keepdims) { return by_name("argmin", x, axes, keepdims); }
Tensor count_nonzero(const Operand& x, Axes axes, bool keepdims) { return by_name("count_nonzero", x, axes, keepdims); }
Tensor mean(const Operand& x, Axes axes, bool keepdims) { return by_name("mean", x, axes, keepdims); }
Tensor var(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("var", x, axes, ddof, keepdims); }
Tensor std(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("std", x, axes, ddof, keepdims); }
Tensor variance(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("variance", x, axes, ddof, keepdims); }
Tensor stddev(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("stddev", x, axes, ddof, keepdims); }
Tensor norm(const Operand& x, Axes axes, bool keepdims) { return by_name("norm", x, axes, keepdims); }
Tensor logsumexp(const Operand& x, Axes axes, bool keepdims) { return by_name("logsumexp", x, axes, keepdims); }

// ---- windows
Tensor sliding_window(const Operand& x, Extents window, Axes axes, std::int64_t step, std::int64_t spacing) {
  return by_name("sliding_window", x, window, axes, step, spacing);
}
namespace {
std::string_view text_of(Overlap mode) {
  static constexpr std::string_view names[] = {"valid", "same", "full"};
  return names[static_cast<std::size_t>(mode)];
}
}  // namespace
Tensor correlate(const Operand& x, const Operand& kernel, Overlap mode, Axes axes) {
  return by_name("correlate", x, kernel, text_of(mode), axes);
}
Tensor convolve(const Operand& x, const Operand& kernel, Overlap mode, Axes axes) {
  return by_name("convolve", x, kernel, text_of(mode), axes);
}
// ---- sorting
Tensor sort(const Operand& x, int axis, bool descending) { return by_name("sort", x, axis, descending); }
Tensor argsort(const Operand& x, int axis, bool descending) { return by_name("argsort", x, axis, descending); }
TopK topk(const Operand& x, std::int64_t k, int axis, bool largest) {
  const std::vector<Tensor> both = all_by_name("topk", x.where, x, k, axis, largest);
  return {both[0], both[1]};
}
Tensor median(const Operand& x, Axes axes, bool keepdims) { return by_name("median", x, axes, keepdims); }
Tensor nanmedian(const Operand& x, Axes axes, bool keepdims) { return by_name("nanmedian", x, axes, keepdims); }
Tensor quantile(const Operand& x, const Operand& q, Axes axes, bool keepdims) { return by_name("quantile", x, q, axes, keepdims); }
Tensor nanquantile(const Operand& x, const Operand& q, Axes axes, bool keepdims) { return by_name("nanquantile", x, q, axes, keepdims); }
Tensor searchsorted(const Operand& sorted, const Operand& values, bool right) {
  return by_name("searchsorted", sorted, values, std::string_view(right ? "right" : "left"));
}
// ---- constructed from numbers
Tensor arange(const Operand& start, const Operand& stop, const Operand& step, std::optional<DType> dtype) {
  return by_name("arange", start, stop, step, dtype);
}
Tensor arange(const Operand& stop) { return by_name("arange", stop); }
Tensor linspace(const Operand& start, const Operand& stop, std::int64_t count, bool endpoint, std::optional<DType> dtype) {
  return by_name("linspace", start, stop, count, endpoint, dtype);
}
Tensor eye(std::int64_t n, std::optional<std::int64_t> m, std::int64_t k, DType dtype, std::source_location where) {
  return at_by_name("eye", where, n, m, k, dtype);
}
Tensor tri(std::int64_t n, std::optional<std::int64_t> m, std::int64_t k, DType dtype, std::source_location where) {
  return at_by_name("tri", where, n, m, k, dtype);
}
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing, std::source_location where) {
  return record("meshgrid", where, [&](Recording& r) {
    std::vector<Argument> arguments;
    for (const Tensor& x : xs) arguments.push_back(argument(r, Operand(x, std::source_location{})));
    const std::pair<std::string, Argument> keyword[] = {{"indexing", argument(r, indexing)}};
    std::vector<Tensor> results;
    for (const Value& v : r.recorder.call("meshgrid", arguments, keyword)) results.push_back(r.tensor(v));
    return results;
  });
}
Tensor diag(const Operand& x, std::int64_t k) { return by_name("diag", x, k); }
Tensor trace(const Operand& x, std::int64_t offset, int axis1, int axis2) { return by_name("trace", x, offset, axis1, axis2); }
Tensor tril(const Operand& x, std::int64_t k) { return by_name("tril", x, k); }
Tensor triu(const Operand& x, std::int64_t k) { return by_name("triu", x, k); }
// ---- statistics
Tensor nansum(const Operand& x, Axes axes, bool keepdims) { return by_name("nansum", x, axes, keepdims); }
Tensor nanprod(const Operand& x, Axes axes, bool keepdims) { return by_name("nanprod", x, axes, keepdims); }
Tensor nanmax(const Operand& x, Axes axes, bool keepdims) { return by_name("nanmax", x, axes, keepdims); }
Tensor nanmin(const Operand& x, Axes axes, bool keepdims) { return by_name("nanmin", x, axes, keepdims); }
Tensor nanmean(const Operand& x, Axes axes, bool keepdims) { return by_name("nanmean", x, axes, keepdims); }
Tensor nanvar(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("nanvar", x, axes, ddof, keepdims); }
Tensor nanstd(const Operand& x, Axes axes, std::int64_t ddof, bool keepdims) { return by_name("nanstd", x, axes, ddof, keepdims); }
Tensor average(const Operand& x, Axes axes, const Operand& weights, bool keepdims) {
  return by_name("average", x, axes, weights, keepdims);
}
Tensor cov(const Operand& x, const Operand& y, bool rowvar, std::int64_t ddof) { return by_name("cov", x, y, rowvar, ddof); }
Tensor corrcoef(const Operand& x, const Operand& y, bool rowvar) { return by_name("corrcoef", x, y, rowvar); }
Tensor diff(const Operand& x, std::int64_t times, int axis, const Operand& prepend, const Operand& append) {
  return by_name("diff", x, times, axis, prepend, append);
}
Tensor gradient(const Operand& x, const Operand& spacing, int axis, int edge_order) {
  return by_name("gradient", x, spacing, axis, edge_order);
}
Tensor trapezoid(const Operand& y, const Operand& x, const Operand& dx, int axis) { return by_name("trapezoid", y, x, dx, axis); }
Tensor bincount(const Operand& x, std::int64_t length, const Operand& weights) { return by_name("bincount", x, length, weights); }
Histogram histogram(const Operand& x, std::int64_t bins, const Operand& low, const Operand& high, const Operand& weights, bool density) {
  return record("histogram", x.where, [&](Recording& r) {
    Argument range;
    if ((low.kind == Operand::Kind::None) != (high.kind == Operand::Kind::None))
      throw ValueError("histogram: only one end of the range is given. Pass both ends or neither.");
    if (low.kind != Operand::Kind::None) {
      range.kind = Argument::Kind::List;
      range.list = {argument(r, low), argument(r, high)};
    }
    const Argument arguments[] = {argument(r, x), argument(r, bins), range, argument(r, weights), argument(r, density)};
    const std::vector<Value> results = r.recorder.call("histogram", arguments, {});
    return Histogram{r.tensor(results[0]), r.tensor(results[1])};
  });
}
Tensor cumsum(const Operand& x, int axis, bool reverse) { return by_name("cumsum", x, axis, reverse); }
Tensor cumprod(const Operand& x, int axis, bool reverse) { return by_name("cumprod", x, axis, reverse); }
Tensor cummax(const Operand& x, int axis, bool reverse) { return by_name("cummax", x, axis, reverse); }
Tensor cummin(const Operand& x, int axis, bool reverse) { return by_name("cummin", x, axis, reverse); }
Tensor take(const Operand& x, const Operand& indices, int axis) { return by_name("take", x, indices, axis); }
Tensor take_along_axis(const Operand& x, const Operand& indices, int axis) { return by_name("take_along_axis", x, indices, axis); }
Tensor scatter_add(const Operand& x, const Operand& indices, const Operand& updates, int axis) {
  return by_name("scatter_add", x, indices, updates, axis);
}
Tensor index_add(const Operand& x, const Operand& indices, const Operand& updates, int axis) {
  return by_name("index_add", x, indices, updates, axis);
}
// ---- array updates
Tensor put(const Operand& x, std::span<const Index> indices, const Operand& v, PutMode mode) {
  return record("put", v.where, [&](Recording& r) {
    return r.tensor(r.recorder.put(r.value(x), recorded(indices), r.value(v), static_cast<compiler::Joined>(mode)));
  });
}
namespace {
std::string_view text_of(PutMode mode) {
  static constexpr std::string_view names[] = {"set", "add", "min", "max", "mul"};  // as compiler::Joined
  return names[static_cast<std::size_t>(mode)];
}
}  // namespace
Tensor scatter(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode) {
  return by_name("scatter", x, indices, updates, axis, text_of(mode));
}
Tensor index_update(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode) {
  return by_name("index_update", x, indices, updates, axis, text_of(mode));
}
Tensor masked_fill(const Operand& x, const Operand& mask, const Operand& value) { return by_name("masked_fill", x, mask, value); }
Compressed compress(const Operand& mask, const Operand& x, std::optional<int> axis, const Operand& fill) {
  const std::vector<Tensor> both = all_by_name("compress", x.where, mask, x, axis, fill);
  return {both[0], both[1]};
}
Tensor cross_entropy(const Operand& logits, const Operand& labels, int axis) { return by_name("cross_entropy", logits, labels, axis); }
Tensor relu(const Operand& x) { return by_name("relu", x); }
Tensor relu6(const Operand& x) { return by_name("relu6", x); }
Tensor hardtanh(const Operand& x, const Operand& lo, const Operand& hi) { return by_name("hardtanh", x, lo, hi); }
Tensor hardsigmoid(const Operand& x) { return by_name("hardsigmoid", x); }
Tensor hardswish(const Operand& x) { return by_name("hardswish", x); }
Tensor leaky_relu(const Operand& x, const Operand& alpha) { return by_name("leaky_relu", x, alpha); }
Tensor elu(const Operand& x, const Operand& alpha) { return by_name("elu", x, alpha); }
Tensor celu(const Operand& x, const Operand& alpha) { return by_name("celu", x, alpha); }
Tensor selu(const Operand& x) { return by_name("selu", x); }
Tensor gelu(const Operand& x) { return by_name("gelu", x); }
Tensor gelu_tanh(const Operand& x) { return by_name("gelu_tanh", x); }
Tensor silu(const Operand& x) { return by_name("silu", x); }
Tensor mish(const Operand& x) { return by_name("mish", x); }
Tensor softplus(const Operand& x) { return by_name("softplus", x); }
Tensor softsign(const Operand& x) { return by_name("softsign", x); }
Tensor softmax(const Operand& x, int axis) { return by_name("softmax", x, axis); }
Tensor log_softmax(const Operand& x, int axis) { return by_name("log_softmax", x, axis); }
Tensor layer_norm(const Operand& x, const Operand& scale, const Operand& shift, Axes axes, const Operand& eps) {
  return by_name("layer_norm", x, scale, shift, axes, eps);
}
Tensor rms_norm(const Operand& x, const Operand& scale, int axis, const Operand& eps) { return by_name("rms_norm", x, scale, axis, eps); }
Tensor batch_norm(const Operand& x, const Operand& mean, const Operand& var, const Operand& scale, const Operand& shift, int axis,
                  const Operand& eps) {
  return by_name("batch_norm", x, mean, var, scale, shift, axis, eps);
}
Tensor mse(const Operand& a, const Operand& b) { return by_name("mse", a, b); }

void detail::grad_into(const Operand& loss, const Tensor* xs, std::size_t count, Tensor* results) {
  record("grad", loss.where, [&](Recording& r) {
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(r.of(xs[i]));
    const std::vector<Value> derivatives = r.recorder.grad(r.value(loss), values);
    for (std::size_t i = 0; i < count; ++i) results[i] = r.tensor(derivatives[i]);
  });
}

void detail::vjp_into(const Operand& y, const Operand& dy, const Tensor* xs, std::size_t count, Tensor* results) {
  record("vjp", y.where, [&](Recording& r) {
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(r.of(xs[i]));
    const Value primal = r.value(y);
    const std::vector<Value> derivatives = r.recorder.vjp(primal, values, r.value(dy));
    for (std::size_t i = 0; i < count; ++i) results[i] = r.tensor(derivatives[i]);
  });
}

}  // namespace onepass
