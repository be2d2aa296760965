// Tensor: a value of a function while it is recorded, and every operator of docs/language.md on it. Nothing is computed here: an
// operator adds a node to the recording of the `compile`d function that is running on this thread.
// A light header: no formatting, no streams, no exceptions in inline code.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "onepass/array.h"
#include "onepass/dtype.h"
#include "onepass/number.h"

#pragma GCC visibility push(default)  // all of this is the library's interface

namespace onepass {

class Axes;
class Operand;
class Place;
struct Index;

namespace detail {
/// Why a deleted function is one, as a template argument of it: gcc's error shows the argument, clang's the line where it is given.
template <std::size_t N> struct Advice {
  char text[N];
  consteval Advice(const char (&from)[N]) {  // NOLINT: implicit by design
    for (std::size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};
}  // namespace detail

/// A value of the function that is being recorded: eight bytes, copied freely. It belongs to one recording; used elsewhere, every
/// operation on it is an Error that says so. A default-constructed Tensor belongs to none.
class Tensor {
 public:
  Tensor() noexcept = default;
  /// A literal of the program: a number without a strong type, such as the start of a sum: `Tensor total = 0;`.
  template <detail::Number N> Tensor(N value, std::source_location where = std::source_location::current());  // NOLINT: implicit by design
  /// An Array that the recorded function reads without having it as an argument, such as a captured table: a hidden input. It is read at
  /// each call, so changes of its elements are seen; its memory is kept alive with the recording.
  Tensor(const Array& array, std::source_location where = std::source_location::current());  // NOLINT: implicit by design

  Tensor(const Tensor&) noexcept = default;

  template <detail::Advice advice = "a Tensor has no value while it is recorded: to choose by element write where(c, a, b)">
  explicit operator bool() const = delete;  // the advice above: write where(c, a, b)

  // ---- what it is: known while recording, usable for loops, shapes and as numbers ----

  DType dtype() const;  ///< of a literal: bool, i64 or f32
  int rank() const;
  /// Valid while the function is recorded.
  std::span<const std::int64_t> shape() const;
  /// The length of an axis; a negative one counts from the end. ShapeError when there is none.
  std::int64_t dim(int axis) const;
  /// The number of elements: 1 at rank 0.
  std::int64_t size() const;

  // ---- views: never a copy when fused ----

  /// The same elements in row-major order; one length may be -1. ShapeError when the numbers of elements differ.
  Tensor reshape(Extents shape, std::source_location where = std::source_location::current()) const;
  /// Axis i of the result is axis `axes[i]` of this one; without axes, reversed.
  Tensor transpose(Extents axes = {}, std::source_location where = std::source_location::current()) const;
  /// All axes reversed: of a matrix, its transpose.
  Tensor T(std::source_location where = std::source_location::current()) const { return transpose({}, where); }
  Tensor cast(DType dtype, std::source_location where = std::source_location::current()) const;
  /// Elements start, start + step, … before stop along one axis, clamped as in Python. With Array::kToEnd they go on to the axis' end.
  Tensor slice(int axis, std::int64_t start, std::int64_t stop = Array::kToEnd, std::int64_t step = 1,
               std::source_location where = std::source_location::current()) const;
  /// `x[0]`, `x[Range{1, 5}]`: an index of the first axis.
  Tensor operator[](const Index& index) const;
  /// `x[{All, Range{0, {}, 2}, -1}]` is the formula language's `x[:, 0::2, -1]`. IndexError for an integer outside its axis.
  Tensor operator[](std::initializer_list<Index> indices) const;

  /// Where a part of a copy of this one is written: `x.at({Range{1, 5}, 0}).set(v)` is x, but v there. See put.
  Place at(std::initializer_list<Index> indices) const;

  // ---- reductions and scans, as the functions below: `x.sum(0)` is sum(x, 0). The other operators are functions below ----

#define ONEPASS_REDUCTION(name)                                                    \
  Tensor name(std::source_location where = std::source_location::current()) const; \
  Tensor name(const Axes& axes, bool keepdims = false, std::source_location where = std::source_location::current()) const;
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
  Tensor var(std::source_location where = std::source_location::current()) const;
  Tensor var(const Axes& axes, std::int64_t ddof = 0, bool keepdims = false,
             std::source_location where = std::source_location::current()) const;
  Tensor std(std::source_location where = std::source_location::current()) const;
  Tensor std(const Axes& axes, std::int64_t ddof = 0, bool keepdims = false,
             std::source_location where = std::source_location::current()) const;
  Tensor cumsum(int axis, bool reverse = false, std::source_location where = std::source_location::current()) const;
  Tensor cumprod(int axis, bool reverse = false, std::source_location where = std::source_location::current()) const;

  // Assignment gives a name another value; a part of a value, such as `x[0]`, has no name, and what it was taken from would not change.
  Tensor& operator=(const Tensor&) & noexcept = default;
  Tensor& operator+=(const Operand& b) &;
  Tensor& operator-=(const Operand& b) &;
  Tensor& operator*=(const Operand& b) &;
  Tensor& operator/=(const Operand& b) &;
  template <detail::Advice advice = "an element of a Tensor cannot be assigned: write x.at({i}).set(v), where or scatter">
  void operator=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned: write x.at({i}).set(v), where or scatter">
  void operator+=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned: write x.at({i}).set(v), where or scatter">
  void operator-=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned: write x.at({i}).set(v), where or scatter">
  void operator*=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned: write x.at({i}).set(v), where or scatter">
  void operator/=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter

  Tensor operator!() const;

 private:
  friend struct TensorAccess;  // runtime/recording.h
  std::uint32_t recording_ = 0;
  std::uint32_t value_ = 0;
};
static_assert(sizeof(Tensor) == 8 && std::is_trivially_copyable_v<Tensor>);

/// `none` of the formula language: an argument that is left out.
struct None {};
inline constexpr None none{};

/// An argument of an operator: a Tensor, an Array (see Tensor's constructor), or a C++ number (a literal without a strong type, each
/// occurrence its own). Knows the line that wrote it, for messages.
class Operand : public detail::NumberValue {
 public:
  Operand(onepass::Tensor tensor, std::source_location where = std::source_location::current()) noexcept  // NOLINT: implicit by design
      : NumberValue(Kind::Tensor), tensor(tensor), where(where) {}
  Operand(const onepass::Array& array, std::source_location where = std::source_location::current()) noexcept  // NOLINT
      : NumberValue(Kind::Array), array(&array), where(where) {}
  template <detail::Number T> Operand(T value, std::source_location where = std::source_location::current()) noexcept  // NOLINT
      : NumberValue(value), array(nullptr), where(where) {}
  /// A variable: its address, so that a change of a captured one is noticed (`Options::check_captures`). Not templates, which
  /// would be as good a match as the one above; a constant, which need not be captured to be read, goes there.
#define ONEPASS_VARIABLE(T)                                                                                \
  Operand(T& variable, std::source_location where = std::source_location::current()) noexcept /* NOLINT */ \
      : NumberValue(variable), array(nullptr), where(where), variable(&variable), variable_bytes(sizeof(T)) {}
  ONEPASS_VARIABLE(bool)
  ONEPASS_VARIABLE(signed char)
  ONEPASS_VARIABLE(unsigned char)
  ONEPASS_VARIABLE(short)
  ONEPASS_VARIABLE(unsigned short)
  ONEPASS_VARIABLE(int)
  ONEPASS_VARIABLE(unsigned)
  ONEPASS_VARIABLE(long)
  ONEPASS_VARIABLE(unsigned long)
  ONEPASS_VARIABLE(long long)
  ONEPASS_VARIABLE(unsigned long long)
  ONEPASS_VARIABLE(float)
  ONEPASS_VARIABLE(double)
#undef ONEPASS_VARIABLE
  Operand(None) noexcept : array(nullptr) {}  // NOLINT: implicit by design

  // What the library reads.
  union {
    onepass::Tensor tensor;
    const onepass::Array* array;
  };
  std::source_location where;
  const void* variable = nullptr;  // what the number was read from, where that is not a temporary
  std::uint32_t variable_bytes = 0;
};

namespace detail {
Tensor tensor_of(const Operand& x);  // a number becomes a literal
}  // namespace detail
template <detail::Number N> Tensor::Tensor(N value, std::source_location where) { *this = detail::tensor_of(Operand(value, where)); }

// Operators: either side may be a number or an Array. Found only for Tensors and Arrays, since nothing else in onepass converts to Operand.
Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator%(const Operand& a, const Operand& b);  ///< remainder: the divisor's sign, as in Python
Tensor operator-(const Operand& x);
inline Tensor operator+(Tensor x) { return x; }
Tensor operator==(const Operand& a, const Operand& b);  ///< by element, as all comparisons; the result is bool
Tensor operator!=(const Operand& a, const Operand& b);
Tensor operator<(const Operand& a, const Operand& b);
Tensor operator<=(const Operand& a, const Operand& b);
Tensor operator>(const Operand& a, const Operand& b);
Tensor operator>=(const Operand& a, const Operand& b);
Tensor operator&(const Operand& a, const Operand& b);
Tensor operator|(const Operand& a, const Operand& b);
Tensor operator^(const Operand& a, const Operand& b);
Tensor operator<<(const Operand& a, const Operand& b);
Tensor operator>>(const Operand& a, const Operand& b);
Tensor operator~(const Operand& x);
/// logical_and, logical_or, logical_not: nonzero is true. Both sides are recorded: nothing is short-circuited.
Tensor operator&&(const Tensor& a, const Operand& b);
Tensor operator||(const Tensor& a, const Operand& b);
// A number beside && is no Tensor's affair to the language, whose own && would be as good a match but for these.
template <detail::Number N> Tensor operator&&(const Tensor& a, N b) { return a && Operand(b, std::source_location{}); }
template <detail::Number N> Tensor operator||(const Tensor& a, N b) { return a || Operand(b, std::source_location{}); }
template <detail::Number N> Tensor operator&&(N a, const Tensor& b) { return b && Operand(a, std::source_location{}); }
template <detail::Number N> Tensor operator||(N a, const Tensor& b) { return b || Operand(a, std::source_location{}); }

/// Part of an axis, as Python's start:stop:step; what is left out is the axis' end. Negative bounds count from the end and clamp.
struct Range {
  std::optional<std::int64_t> start{}, stop{}, step{};
};
inline constexpr Range All{};  ///< `:`
struct NewAxisIndex {};
struct EllipsisIndex {};
inline constexpr NewAxisIndex NewAxis{};    ///< `none`: a new axis of length 1
inline constexpr EllipsisIndex Ellipsis{};  ///< `...`: as many whole axes as there are

/// One component of `x[{…}]`.
struct Index {
  enum class Kind : std::uint8_t { Integer, Slice, Ellipsis, NewAxis };
  template <std::integral T> requires(!std::same_as<T, bool>)
  Index(T at, std::source_location where = std::source_location::current()) noexcept  // NOLINT: implicit by design
      : at(static_cast<std::int64_t>(at)), where(where) {}
  Index(const Range& range, std::source_location where = std::source_location::current()) noexcept  // NOLINT
      : kind(Kind::Slice), range(range), where(where) {}
  Index(EllipsisIndex, std::source_location where = std::source_location::current()) noexcept
      : kind(Kind::Ellipsis), where(where) {}  // NOLINT
  Index(NewAxisIndex, std::source_location where = std::source_location::current()) noexcept
      : kind(Kind::NewAxis), where(where) {}  // NOLINT

  Kind kind = Kind::Integer;
  std::int64_t at = 0;
  Range range{};
  std::source_location where;
};

/// How what is written is joined with what is there.
enum class PutMode : std::uint8_t { Set, Add, Min, Max, Mul };

/// A part of a Tensor that is written, made by Tensor::at. Each gives the Tensor as it is afterwards; the one that it was made of stays.
class Place {
 public:
  Place(Tensor x, std::initializer_list<Index> indices) : x_(x), indices_(indices) {}
  Tensor set(const Operand& v) const;
  Tensor add(const Operand& v) const;
  Tensor min(const Operand& v) const;
  Tensor max(const Operand& v) const;
  Tensor mul(const Operand& v) const;

 private:
  Tensor x_;
  std::vector<Index> indices_;
};

/// The axes of a reduction: `1`, `{0, 2}`, a vector, or `{}` and `none` for all of them. Does not own a list.
class Axes {
 public:
  Axes() noexcept = default;
  Axes(None) noexcept {}  // NOLINT: implicit by design
  template <std::integral T> requires(!std::same_as<T, bool>)
  Axes(T axis) noexcept : all_(false), one_(static_cast<std::int64_t>(axis)), size_(1) {}  // NOLINT: implicit by design
  Axes(std::initializer_list<Extent> list) noexcept : Axes(std::span<const std::int64_t>(Extents(list))) {}
  Axes(std::span<const std::int64_t> list) noexcept : all_(false), data_(list.data()), size_(list.size()) {}     // NOLINT
  Axes(const std::vector<std::int64_t>& list) noexcept : all_(false), data_(list.data()), size_(list.size()) {}  // NOLINT

  bool all() const noexcept { return all_; }
  std::span<const std::int64_t> list() const noexcept { return {data_ ? data_ : &one_, size_}; }

 private:
  bool all_ = true;
  std::int64_t one_ = 0;
  const std::int64_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// The operators of docs/language.md by name, with the meaning that it gives them. Where nothing else is said: elementwise, operands
// broadcast by NumPy's rule and promote by the language's table; ShapeError when they do not broadcast, DTypeError for types that the
// operator does not take. A message names operator, operands and the line. The gradient is the language's ("Derivatives").

// ---- arithmetic
Tensor add(const Operand& a, const Operand& b);
Tensor sub(const Operand& a, const Operand& b);
Tensor mul(const Operand& a, const Operand& b);
Tensor div(const Operand& a, const Operand& b);        ///< of integers: f32, of 64-bit ones f64
Tensor floor_div(const Operand& a, const Operand& b);  ///< integer division by zero gives 0
Tensor remainder(const Operand& a, const Operand& b);  ///< the divisor's sign
Tensor fmod(const Operand& a, const Operand& b);       ///< the dividend's sign
/// Of floats, C's pow; the exponents -1, 1, 2, 3, 4 given as a number here are recorded as products. Of integers it wraps, and a negative
/// exponent gives 0, but for the bases 1 and -1.
Tensor pow(const Operand& a, const Operand& b);
Tensor neg(const Operand& x);
Tensor abs(const Operand& x);
Tensor sign(const Operand& x);
Tensor square(const Operand& x);
Tensor reciprocal(const Operand& x);
Tensor fma(const Operand& a, const Operand& b, const Operand& c);  ///< a*b + c, rounded once
Tensor maximum(const Operand& a, const Operand& b);                ///< propagates NaN; -0 is below +0
Tensor minimum(const Operand& a, const Operand& b);
Tensor clamp(const Operand& x, const Operand& lo, const Operand& hi);  ///< minimum(maximum(x, lo), hi)
Tensor copysign(const Operand& a, const Operand& b);
Tensor stop_gradient(const Operand& x);  ///< x, and a constant to the derivative
// ---- elementary functions; of integers: f32, of 64-bit ones f64
Tensor sqrt(const Operand& x);
Tensor rsqrt(const Operand& x);  ///< 1/sqrt(x)
Tensor cbrt(const Operand& x);
Tensor hypot(const Operand& a, const Operand& b);  ///< sqrt(a*a + b*b)
Tensor exp(const Operand& x);
Tensor exp2(const Operand& x);
Tensor expm1(const Operand& x);  ///< exp(x) - 1
Tensor log(const Operand& x);
Tensor log2(const Operand& x);
Tensor log10(const Operand& x);
Tensor log1p(const Operand& x);                        ///< log(1 + x)
Tensor logaddexp(const Operand& a, const Operand& b);  ///< log(exp(a) + exp(b))
Tensor sigmoid(const Operand& x);                      ///< 1/(1 + exp(-x))
Tensor sin(const Operand& x);
Tensor cos(const Operand& x);
Tensor tan(const Operand& x);
Tensor asin(const Operand& x);
Tensor acos(const Operand& x);
Tensor atan(const Operand& x);
Tensor atan2(const Operand& y, const Operand& x);  ///< the angle of the point (x, y)
Tensor sinh(const Operand& x);
Tensor cosh(const Operand& x);
Tensor tanh(const Operand& x);
Tensor asinh(const Operand& x);
Tensor acosh(const Operand& x);
Tensor atanh(const Operand& x);
Tensor erf(const Operand& x);
Tensor erfc(const Operand& x);     ///< 1 - erf(x)
Tensor erfinv(const Operand& x);   ///< erf(erfinv(x)) = x
Tensor ndtr(const Operand& x);     ///< the distribution function of the normal distribution: erfc(-x/sqrt(2))/2
Tensor ndtri(const Operand& p);    ///< its quantiles: ndtr(ndtri(p)) = p
Tensor lgamma(const Operand& x);   ///< log(abs(gamma(x)))
Tensor digamma(const Operand& x);  ///< the derivative of lgamma
// ---- rounding
Tensor floor(const Operand& x);
Tensor ceil(const Operand& x);
Tensor trunc(const Operand& x);
Tensor round(const Operand& x);  ///< half to even
// ---- comparison and logic; the result is bool
Tensor equal(const Operand& a, const Operand& b);
Tensor not_equal(const Operand& a, const Operand& b);
Tensor less(const Operand& a, const Operand& b);
Tensor less_equal(const Operand& a, const Operand& b);
Tensor greater(const Operand& a, const Operand& b);
Tensor greater_equal(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);  ///< nonzero is true
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_xor(const Operand& a, const Operand& b);
Tensor logical_not(const Operand& x);
Tensor isnan(const Operand& x);
Tensor isinf(const Operand& x);
Tensor isfinite(const Operand& x);
Tensor signbit(const Operand& x);
// ---- bits, of integers; bitwise_and, or, xor and not also of bool
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_not(const Operand& x);
Tensor shift_left(const Operand& a, const Operand& b);  ///< by the width or more: 0
Tensor shift_right(const Operand& a, const Operand& b);
Tensor popcount(const Operand& x);
// ---- choice and types
Tensor where(const Operand& c, const Operand& a, const Operand& b);  ///< c is bool
Tensor cast(const Operand& x, DType dtype);                          ///< float to integer saturates, NaN gives 0; integer to integer wraps
Tensor bitcast(const Operand& x, DType dtype);                       ///< the same bits; DTypeError unless the sizes are equal

// ---- sources: of a shape, from no operand
/// Every element `value`, a scalar; without a dtype the value's type, a number's being f32, i64 or bool.
Tensor full(Extents shape, const Operand& value, std::optional<DType> dtype = {});
Tensor zeros(Extents shape, DType dtype = DType::F32, std::source_location where = std::source_location::current());
Tensor ones(Extents shape, DType dtype = DType::F32, std::source_location where = std::source_location::current());
/// The index along one axis.
Tensor iota(Extents shape, int axis = 0, DType dtype = DType::I32, std::source_location where = std::source_location::current());
/// start, start + step, … before stop, whose number is part of the recording: integers make i64, others f32, each start + i*step rounded once.
/// ValueError unless the three are numbers, and for a step of 0.
Tensor arange(const Operand& start, const Operand& stop, const Operand& step = none, std::optional<DType> dtype = {});
Tensor arange(const Operand& stop);  ///< 0, 1, … before stop
/// `count` numbers at equal distances from start to stop, two scalars; stop is the last unless `endpoint` is false.
Tensor linspace(const Operand& start, const Operand& stop, std::int64_t count = 50, bool endpoint = true, std::optional<DType> dtype = {});
/// A matrix of n rows and m columns (left out: n): 1 on the k-th diagonal, 0 elsewhere. k above 0 is above the main diagonal.
Tensor eye(std::int64_t n, std::optional<std::int64_t> m = {}, std::int64_t k = 0, DType dtype = DType::F32,
           std::source_location where = std::source_location::current());
/// 1 on and below the k-th diagonal, 0 elsewhere.
Tensor tri(std::int64_t n, std::optional<std::int64_t> m = {}, std::int64_t k = 0, DType dtype = DType::F32,
           std::source_location where = std::source_location::current());
/// The coordinates of a grid from those along its axes, vectors: one for each, of the grid's shape. "xy": the first runs along axis 1.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing = "xy",
                             std::source_location where = std::source_location::current());

// ---- views: never a copy when fused. Negative axes count from the end; ShapeError for one that is not there.
Tensor reshape(const Operand& x, Extents shape);        ///< one length may be -1
Tensor transpose(const Operand& x, Extents axes = {});  ///< without axes, reversed
Tensor swap_axes(const Operand& x, int a, int b);
Tensor expand_dims(const Operand& x, int axis);
Tensor squeeze(const Operand& x, Axes axes = {});  ///< the given axes of length 1, or all of them
Tensor broadcast_to(const Operand& x, Extents shape);
Tensor flip(const Operand& x, Axes axes = {});
Tensor diagonal(const Operand& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);
Tensor diag(const Operand& x, std::int64_t k = 0);  ///< of a vector: the matrix with it on the k-th diagonal; of a matrix that diagonal
Tensor trace(const Operand& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);  ///< the sum of a diagonal
Tensor tril(const Operand& x, std::int64_t k = 0);  ///< x on and below the k-th diagonal of the last two axes, 0 elsewhere
Tensor triu(const Operand& x, std::int64_t k = 0);  ///< x on and above it

/// Joined along an axis that they have. ShapeError unless the other lengths are equal; types promote. Gradient: slices.
Tensor concat(const std::vector<Tensor>& xs, int axis = 0, std::source_location where = std::source_location::current());
/// Joined along a new axis; all of one shape.
Tensor stack(const std::vector<Tensor>& xs, int axis = 0, std::source_location where = std::source_location::current());
/// Adds `low` elements before and `high` after x along each axis, each `value`, a scalar: 0 when it is left out.
Tensor pad(const Operand& x, Extents low, Extents high, const Operand& value = none);
/// What pads x: its outermost element (edge), x mirrored without it (reflect) or with it (symmetric), x again (wrap).
enum class PadMode : std::uint8_t { Edge, Reflect, Symmetric, Wrap };
Tensor pad(const Operand& x, Extents low, Extents high, PadMode mode);
/// Windows of x along the axes, all of them where none are given: each axis becomes the places of the windows, and new last axes are the indices in
/// a window, `window` elements `spacing` apart; the places are `step` apart. ShapeError for a window that is longer than its axis.
Tensor sliding_window(const Operand& x, Extents window, Axes axes = {}, std::int64_t step = 1, std::int64_t spacing = 1);
Tensor tile(const Operand& x, Extents times);                       ///< the whole of x, `times[i]` times along axis i
Tensor repeat(const Operand& x, std::int64_t times, int axis);      ///< each index along the axis, `times` times
Tensor roll(const Operand& x, std::int64_t shift, Axes axis = {});  ///< what leaves at the end comes in at the start; of all: flattened

// ---- contractions: products summed by fma, in the order that docs/language.md gives. Types promote; integers wrap; bool is a DTypeError.
/// NumPy's rule: vectors and matrices, leading dimensions broadcast. ShapeError unless the inner lengths are equal. Gradient: contractions.
Tensor matmul(const Operand& a, const Operand& b);
Tensor dot(const Operand& a, const Operand& b);    ///< NumPy's: the last axis of a with the last but one of b; of scalars their product
Tensor outer(const Operand& a, const Operand& b);  ///< a[i]*b[j] of two vectors
/// The text of einsum and the line that it is in.
struct Equation {
  std::string_view text;
  std::source_location where;
  Equation(const char* text, std::source_location where = std::source_location::current()) : text(text), where(where) {}       // NOLINT
  Equation(std::string_view text, std::source_location where = std::source_location::current()) : text(text), where(where) {}  // NOLINT
  Equation(const std::string& text, std::source_location where = std::source_location::current())                              // NOLINT
      : text(text), where(where) {}
};
Tensor einsum(Equation equation, std::span<const Operand> operands);
/// `einsum("ij,jk->ik", a, b)`: one letter an index, `...` for leading axes that broadcast, an index twice in one operand for its diagonal;
/// without `->` the result has the indices that occur once, in alphabetical order. More than two operands are contracted in pairs from the
/// left. An operand of length 1 along an index broadcasts along it; what an explicit result leaves out, `...` too, is summed. ValueError for a
/// malformed equation, ShapeError where lengths differ otherwise.
template <std::convertible_to<Operand>... Ts> Tensor einsum(Equation equation, const Ts&... operands) {
  const Operand all[] = {Operand(operands)...};
  return einsum(equation, std::span<const Operand>(all));
}

/// How far windows reach over the edges of an array, which has zeros there: not at all, so that the result is as long as the array, as far as they meet.
enum class Overlap : std::uint8_t { Valid, Same, Full };
/// Sums of the products of the kernel with each window of x, along all axes of x or the given ones, whose windows are the kernel's last axes; those
/// before them broadcast with the other axes of x. `correlate(x, k, Overlap::Same, {-2, -1})` of f32[n, c, h, w] and f32[c, 3, 3] is a depthwise
/// convolution of a neural network. Sums by fma, the windows' indices in row-major order.
Tensor correlate(const Operand& x, const Operand& kernel, Overlap mode = Overlap::Valid, Axes axes = {});
/// The same with the kernel backwards.
Tensor convolve(const Operand& x, const Operand& kernel, Overlap mode = Overlap::Full, Axes axes = {});

// ---- random numbers: the same bits on every device and in any fusion (docs/language.md)
/// In [0, 1), by Philox4x32-10. The key is an integer, a number or a tensor of rank 0; dtype is a float type.
Tensor uniform(const Operand& key, Extents shape, DType dtype = DType::F32);
/// sqrt(2) * erfinv of the same bits, spread over (-1, 1): of mean 0 and variance 1.
Tensor normal(const Operand& key, Extents shape, DType dtype = DType::F32);

// ---- reductions over the axes, or over all. The order of a sum is part of its meaning (docs/language.md, "The order of summation").
/// Bool and integers narrower than 64 bits are summed as i64 or u64. The sum of nothing is 0.
Tensor sum(const Operand& x, Axes axes = {}, bool keepdims = false);
/// sum / n; of integers and bool f32, of 64-bit ones f64. The mean of nothing is NaN.
Tensor mean(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Propagates NaN. ShapeError over nothing, unless the result has no elements.
Tensor max(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor min(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Integers as in sum. The product of nothing is 1. UnsupportedError where a derivative is asked for: not in this version.
Tensor prod(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Nonzero is true; over nothing any is false and all is true.
Tensor any(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor all(const Operand& x, Axes axes = {}, bool keepdims = false);
/// i64: the place of the largest or smallest, the first of equals and the first NaN, as a number in row-major order of the reduced axes.
Tensor argmax(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor argmin(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor count_nonzero(const Operand& x, Axes axes = {}, bool keepdims = false);  ///< i64
/// sum((x - mean)*(x - mean)) / max(n - ddof, 0); std is its square root, with the derivative 0 at 0.
Tensor var(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor std(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
/// Other names of var and std: `std(x)` is not found without `onepass::` in front, where the namespace std is the nearest meaning of it.
Tensor variance(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor stddev(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor norm(const Operand& x, Axes axes = {}, bool keepdims = false);  ///< sqrt(sum(x*x)), with the derivative 0 at 0
/// m + log(sum(exp(x - m))) where m = max(x) is finite, else m. Over nothing: -inf.
Tensor logsumexp(const Operand& x, Axes axes = {}, bool keepdims = false);

// ---- sorting along one axis. NaN is after all numbers, +0 and -0 are equal, and equal elements keep their order; `descending` is the opposite
// order, NaN first, in which they keep it too. Halves are cast to f32 and back.
Tensor sort(const Operand& x, int axis = -1, bool descending = false);     ///< gradient: each goes where its element was
Tensor argsort(const Operand& x, int axis = -1, bool descending = false);  ///< i64: the places in x of the elements of sort(x)
struct TopK;
/// The k largest elements, or smallest, sorted, the best first, and their places, i64. ShapeError for more than there are.
TopK topk(const Operand& x, std::int64_t k, int axis = -1, bool largest = true);
struct TopK {
  Tensor values, indices;
};
/// The middle one of the sorted elements, or the mean of two. NaN where one is NaN, and of nothing; nanmedian leaves NaN out.
Tensor median(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmedian(const Operand& x, Axes axes = {}, bool keepdims = false);
/// The elements at q*(n - 1) of the sorted ones, between two in proportion; q is a number from 0 to 1, or a vector of them, whose axis comes first.
/// IndexError of the call for another q. NaN as of median.
Tensor quantile(const Operand& x, const Operand& q, Axes axes = {}, bool keepdims = false);
Tensor nanquantile(const Operand& x, const Operand& q, Axes axes = {}, bool keepdims = false);
/// How many elements of `sorted`, a vector, are below each value, or with `right` not above it: i64. Or of its rows along the last axis, where the
/// values have the same other axes.
Tensor searchsorted(const Operand& sorted, const Operand& values, bool right = false);

// ---- statistics
/// Reductions of the elements that are numbers, NaN left out. Where there is none, sums are 0, products 1, and the others NaN.
Tensor nansum(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanprod(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmax(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmin(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmean(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanvar(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor nanstd(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
/// sum(x*weights)/sum(weights): weights shaped like x, or one for each index along a single axis; left out, the mean.
Tensor average(const Operand& x, Axes axes = {}, const Operand& weights = none, bool keepdims = false);
/// The covariances of the rows of x, with those of y below; of one row a scalar. rowvar false: of the columns.
Tensor cov(const Operand& x, const Operand& y = none, bool rowvar = true, std::int64_t ddof = 1);
Tensor corrcoef(const Operand& x, const Operand& y = none, bool rowvar = true);  ///< the covariances over both deviations
/// Differences of neighbors along an axis, `times` times, of x with `prepend` before and `append` after it.
Tensor diff(const Operand& x, std::int64_t times = 1, int axis = -1, const Operand& prepend = none, const Operand& append = none);
/// NumPy's gradient along one axis: central differences, one-sided ones at the ends. `spacing` is a distance, 1 where it is left out, or a vector of
/// coordinates. This is not the derivative of a function; see grad.
Tensor gradient(const Operand& x, const Operand& spacing = none, int axis = -1, int edge_order = 1);
/// The integral of y by the trapezoidal rule; `x` are coordinates, a vector or shaped like y; left out, they are `dx` apart.
Tensor trapezoid(const Operand& y, const Operand& x = none, const Operand& dx = none, int axis = -1);
/// How often each of 0 … length - 1 is in x, a vector of integers, or the sums of their weights. IndexError of the call for another integer.
Tensor bincount(const Operand& x, std::int64_t length, const Operand& weights = none);
struct Histogram;
/// How many elements lie in each of `bins` equal parts of [low, high], i64, or the sums of their weights; and the edges between the parts. Without low
/// and high the range is that of x. Elements outside, and NaN, are in none.
Histogram histogram(const Operand& x, std::int64_t bins = 10, const Operand& low = none, const Operand& high = none,
                    const Operand& weights = none, bool density = false);
struct Histogram {
  Tensor counts, edges;
};

// ---- scans along one axis; `reverse`: from its end. Their order is part of their meaning (docs/language.md, "The order of summation").
Tensor cumsum(const Operand& x, int axis, bool reverse = false);   ///< bool and integers narrower than 64 bits as i64 or u64
Tensor cumprod(const Operand& x, int axis, bool reverse = false);  ///< likewise; its derivative is right with any number of zeros
Tensor cummax(const Operand& x, int axis, bool reverse = false);   ///< propagates NaN; the first of equals has the derivative
Tensor cummin(const Operand& x, int axis, bool reverse = false);

// ---- indexing by data. Indices are integers, negative ones count from the end. One out of range is an IndexError of the call, which names
// the first such element of `indices`; every element of it is checked, nothing is read or written outside, results are then unspecified.
/// The slices of x along the axis that `indices`, of any shape, name: its shape replaces the axis in the result.
/// Gradient: index_add.
Tensor take(const Operand& x, const Operand& indices, int axis);
/// result[i, j] = x[i, indices[i, j]] for axis 1: one rank, the other axes broadcast. Gradient: scatter_add.
Tensor take_along_axis(const Operand& x, const Operand& indices, int axis);
/// x, to which each update is added where its index says: indices and updates of one shape, on the other axes x's. Updates of one place are
/// added in row-major order.
Tensor scatter_add(const Operand& x, const Operand& indices, const Operand& updates, int axis);
/// x, to whose slices along the axis those of the updates are added: updates are shaped like take(x, indices, axis).
Tensor index_add(const Operand& x, const Operand& indices, const Operand& updates, int axis);

// ---- writing into arrays. A Tensor never changes: each gives the array as it is afterwards. What is written is cast to x's type.
/// x, but v at the indices, or what `mode` makes of both there. v broadcasts to the shape of x[indices].
Tensor put(const Operand& x, std::span<const Index> indices, const Operand& v, PutMode mode = PutMode::Set);
inline Tensor put(const Operand& x, std::initializer_list<Index> indices, const Operand& v, PutMode mode = PutMode::Set) {
  return put(x, std::span(indices.begin(), indices.size()), v, mode);
}
/// x, into which each update is written where its index says; shapes as of scatter_add. Of several updates of one place the last one in row-major
/// order stays, or the least or greatest of them and x. ValueError for Mul.
Tensor scatter(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode = PutMode::Set);
/// The same of whole slices along the axis: updates are shaped like take(x, indices, axis).
Tensor index_update(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode = PutMode::Set);
/// where(mask, value, x): the mask broadcasts to x, the value is a scalar.
Tensor masked_fill(const Operand& x, const Operand& mask, const Operand& value);
struct Compressed;
/// The elements of x where the mask, shaped like x, is true, in row-major order, then `fill`, 0 where it is left out: as many as x has; and how many
/// the mask chose, i64, a scalar. Along an axis the mask is a vector and chooses slices.
Compressed compress(const Operand& mask, const Operand& x, std::optional<int> axis = {}, const Operand& fill = none);
struct Compressed {
  Tensor values, count;
};

// ---- composites, written in terms of the others (docs/language.md has the formulas)
Tensor relu(const Operand& x);                                                          ///< where(x <= 0, 0, x)
Tensor relu6(const Operand& x);                                                         ///< where(x <= 0, 0, where(x >= 6, 6, x))
Tensor hardtanh(const Operand& x, const Operand& lo = none, const Operand& hi = none);  ///< likewise; lo and hi left out are -1 and 1
Tensor hardsigmoid(const Operand& x);                                                   ///< relu6(x + 3)/6
Tensor hardswish(const Operand& x);                                                     ///< x*hardsigmoid(x)
Tensor leaky_relu(const Operand& x, const Operand& alpha = none);  ///< where(x > 0, x, x*alpha); alpha left out is 0.01
Tensor elu(const Operand& x, const Operand& alpha = none);         ///< where(x > 0, x, alpha*expm1(x)); alpha left out is 1
Tensor celu(const Operand& x, const Operand& alpha = none);        ///< where(x > 0, x, alpha*expm1(x/alpha)); alpha left out is 1
Tensor selu(const Operand& x);                                     ///< Klambauer et al. 2017, arXiv:1706.02515
Tensor gelu(const Operand& x);       ///< x*0.5*(1 + erf(x/sqrt(2))); Hendrycks and Gimpel 2016, arXiv:1606.08415
Tensor gelu_tanh(const Operand& x);  ///< x*0.5*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x*x*x))), from the same source
Tensor silu(const Operand& x);       ///< x*sigmoid(x)
Tensor mish(const Operand& x);       ///< x*tanh(softplus(x)); Misra 2019, arXiv:1908.08681
Tensor softplus(const Operand& x);   ///< log(1 + exp(x))
Tensor softsign(const Operand& x);   ///< x/(1 + abs(x))
Tensor softmax(const Operand& x, int axis = -1);
Tensor log_softmax(const Operand& x, int axis = -1);
/// (x - mean) * (1 / sqrt(var + eps)) * scale + shift, mean and var over the axes. Result: x's shape, broadcast with scale and shift.
/// eps is as x squared; left out it is 1e-5. Source: Ba, Kiros and Hinton 2016, arXiv:1607.06450.
Tensor layer_norm(const Operand& x, const Operand& scale = none, const Operand& shift = none, Axes axes = -1, const Operand& eps = none);
/// x * (1 / sqrt(mean(x*x) + eps)) * scale. Source: Zhang and Sennrich 2019, arXiv:1910.07467.
Tensor rms_norm(const Operand& x, const Operand& scale = none, int axis = -1, const Operand& eps = none);
/// (x - mean) * (1 / sqrt(var + eps)) * scale + shift; the parameters hold one number for each index along the axis, ShapeError otherwise.
/// eps left out is 1e-5. Source: Ioffe and Szegedy 2015, arXiv:1502.03167.
Tensor batch_norm(const Operand& x, const Operand& mean, const Operand& var, const Operand& scale = none, const Operand& shift = none,
                  int axis = 1, const Operand& eps = none);
/// -log_softmax(logits) at the label: one loss for each sample. Labels are integers, shaped like the logits without the axis; DTypeError for
/// others, IndexError of the call for a label that is not a class.
Tensor cross_entropy(const Operand& logits, const Operand& labels, int axis = -1);
/// mean((a - b)*(a - b)), a scalar.
Tensor mse(const Operand& a, const Operand& b);

// ---- derivatives, recorded like everything else; they nest
namespace detail {
void grad_into(const Operand& loss, const Tensor* xs, std::size_t count, Tensor* results);
void vjp_into(const Operand& y, const Operand& dy, const Tensor* xs, std::size_t count, Tensor* results);
template <class T>
concept IsTensor = std::same_as<std::remove_cvref_t<T>, Tensor>;
}  // namespace detail

/// The derivatives of the scalar `loss` by each x: `Tensor dx = grad(loss, x)`, `auto [dw, db] = grad(loss, w, b)`. Each x is an argument
/// or any value that was computed; one that the loss does not use has a zero derivative. Errors: ShapeError when the loss is not a scalar,
/// DTypeError when it or an x is not of a float type.
template <detail::IsTensor... X> requires(sizeof...(X) > 0) auto grad(const Operand& loss, const X&... x) {
  const Tensor xs[] = {x...};
  std::array<Tensor, sizeof...(X)> results;
  detail::grad_into(loss, xs, sizeof...(X), results.data());
  if constexpr (sizeof...(X) == 1) return results[0];
  else return results;
}
inline std::vector<Tensor> grad(const Operand& loss, const std::vector<Tensor>& xs) {
  std::vector<Tensor> results(xs.size());
  detail::grad_into(loss, xs.data(), xs.size(), results.data());
  return results;
}
template <std::size_t N> std::array<Tensor, N> grad(const Operand& loss, const std::array<Tensor, N>& xs) {
  std::array<Tensor, N> results;
  detail::grad_into(loss, xs.data(), N, results.data());
  return results;
}

/// The same for a `y` of any shape, with the cotangent `dy`, shaped like it: dy multiplied by the derivatives of y.
template <detail::IsTensor... X> requires(sizeof...(X) > 0) auto vjp(const Operand& y, const Operand& dy, const X&... x) {
  const Tensor xs[] = {x...};
  std::array<Tensor, sizeof...(X)> results;
  detail::vjp_into(y, dy, xs, sizeof...(X), results.data());
  if constexpr (sizeof...(X) == 1) return results[0];
  else return results;
}
inline std::vector<Tensor> vjp(const Operand& y, const Operand& dy, const std::vector<Tensor>& xs) {
  std::vector<Tensor> results(xs.size());
  detail::vjp_into(y, dy, xs.data(), xs.size(), results.data());
  return results;
}

/// Only the operators, for `using namespace onepass::names`.
namespace names {
using onepass::abs, onepass::acos, onepass::acosh, onepass::add, onepass::all, onepass::any, onepass::argmax, onepass::argmin,
    onepass::asin, onepass::asinh, onepass::atan;
using onepass::arange, onepass::average, onepass::bincount, onepass::corrcoef, onepass::cov, onepass::diag, onepass::diff, onepass::eye,
    onepass::gradient, onepass::histogram, onepass::linspace, onepass::meshgrid, onepass::nanmax, onepass::nanmean, onepass::nanmin;
using onepass::argsort, onepass::convolve, onepass::correlate, onepass::median, onepass::nanmedian, onepass::nanquantile, onepass::ndtr,
    onepass::ndtri, onepass::quantile, onepass::searchsorted, onepass::sliding_window, onepass::sort, onepass::topk;
using onepass::atan2, onepass::atanh, onepass::batch_norm, onepass::bitcast, onepass::bitwise_and, onepass::bitwise_not;
using onepass::bitwise_or, onepass::bitwise_xor, onepass::broadcast_to, onepass::cast, onepass::cbrt, onepass::ceil, onepass::celu;
using onepass::clamp, onepass::concat, onepass::copysign, onepass::cos, onepass::cosh, onepass::count_nonzero, onepass::diagonal,
    onepass::div, onepass::dot, onepass::einsum, onepass::elu;
using onepass::compress, onepass::index_update, onepass::masked_fill, onepass::put, onepass::scatter;
using onepass::cross_entropy, onepass::cummax, onepass::cummin, onepass::cumprod, onepass::cumsum, onepass::index_add;
using onepass::digamma, onepass::equal, onepass::erf, onepass::erfc, onepass::erfinv, onepass::lgamma, onepass::exp, onepass::exp2,
    onepass::expand_dims, onepass::expm1, onepass::flip, onepass::floor;
using onepass::floor_div, onepass::fma, onepass::fmod, onepass::full, onepass::gelu, onepass::gelu_tanh, onepass::grad, onepass::greater;
using onepass::greater_equal, onepass::hardsigmoid, onepass::hardswish, onepass::hardtanh, onepass::hypot, onepass::iota, onepass::isfinite;
using onepass::isinf, onepass::isnan, onepass::layer_norm, onepass::leaky_relu, onepass::less, onepass::less_equal, onepass::log;
using onepass::log10, onepass::log1p, onepass::log2, onepass::log_softmax, onepass::logaddexp, onepass::logical_and, onepass::logical_not;
using onepass::logical_or, onepass::logical_xor, onepass::logsumexp, onepass::matmul, onepass::max, onepass::maximum, onepass::mean,
    onepass::min;
using onepass::minimum, onepass::mish, onepass::mse, onepass::mul, onepass::neg, onepass::norm, onepass::normal, onepass::not_equal,
    onepass::ones, onepass::outer, onepass::pad;
using onepass::nanprod, onepass::nanstd, onepass::nansum, onepass::nanvar, onepass::trace, onepass::trapezoid, onepass::tri, onepass::tril,
    onepass::triu;
using onepass::popcount, onepass::pow, onepass::prod, onepass::reciprocal, onepass::relu, onepass::relu6, onepass::remainder;
using onepass::repeat, onepass::reshape, onepass::rms_norm, onepass::roll, onepass::round, onepass::rsqrt, onepass::selu,
    onepass::shift_left, onepass::shift_right;
using onepass::scatter_add, onepass::take, onepass::take_along_axis;
using onepass::sigmoid, onepass::sign, onepass::signbit, onepass::silu, onepass::sin, onepass::sinh, onepass::softmax, onepass::softplus;
using onepass::softsign, onepass::sqrt, onepass::square, onepass::squeeze, onepass::stack, onepass::std, onepass::stddev,
    onepass::stop_gradient, onepass::sub, onepass::sum;
using onepass::swap_axes, onepass::tan, onepass::tanh, onepass::tile, onepass::transpose, onepass::trunc, onepass::uniform, onepass::var,
    onepass::variance, onepass::vjp, onepass::where;
using onepass::zeros;
}  // namespace names

}  // namespace onepass

#pragma GCC visibility pop
