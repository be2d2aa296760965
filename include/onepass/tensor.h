// Tensor: a value of a function while it is recorded, with every operator of docs/language.md. Operators compute nothing: each adds a
// node to the recording of the `compile`d function that runs on this thread. This header includes no formatting and no streams, and its
// inline code throws no exceptions.
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
/// The explanation for a deleted function, as its template argument. The error messages of gcc and clang show it.
template <std::size_t N> struct Advice {
  char text[N];
  consteval Advice(const char (&from)[N]) {  // NOLINT: implicit by design
    for (std::size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};
}  // namespace detail

/// A value of the function that is being recorded: eight bytes, cheap to copy. It belongs to one recording; using it elsewhere throws
/// Error. A default-constructed Tensor belongs to no recording.
class Tensor {
 public:
  Tensor() noexcept = default;
  /// Records a literal: a weakly typed number, such as the initial value of a sum: `Tensor total = 0;`.
  template <detail::Number N> Tensor(N value, std::source_location where = std::source_location::current());  // NOLINT: implicit by design
  /// Records an Array that is not an argument, such as a captured lookup table, as a hidden input. Each call reads it again, so it sees
  /// changed elements. The recording keeps the memory alive.
  Tensor(const Array& array, std::source_location where = std::source_location::current());  // NOLINT: implicit by design

  Tensor(const Tensor&) noexcept = default;

  template <detail::Advice advice = "a Tensor has no value while it is recorded. Write where(c, a, b) to choose for each element">
  explicit operator bool() const = delete;  // the advice above: write where(c, a, b)

  // ---- properties: fixed during recording; usable in loops, shapes and as numbers ----

  DType dtype() const;  ///< for a literal: bool, i64 or f32
  int rank() const;
  /// Returns the lengths of the axes. Valid while the function is recorded.
  std::span<const std::int64_t> shape() const;
  /// Returns the length of an axis; a negative axis counts from the end. Throws ShapeError if the axis does not exist.
  std::int64_t dim(int axis) const;
  /// Returns the number of elements; 1 for rank 0.
  std::int64_t size() const;

  // ---- views: never a copy when fused ----

  /// Returns the same elements in row-major order; one length may be -1. Throws ShapeError if the element counts differ.
  Tensor reshape(Extents shape, std::source_location where = std::source_location::current()) const;
  /// Permutes the axes: axis i of the result is axis `axes[i]` of this Tensor. Without `axes`, reverses their order.
  Tensor transpose(Extents axes = {}, std::source_location where = std::source_location::current()) const;
  /// Reverses all axes; transposes a matrix.
  Tensor T(std::source_location where = std::source_location::current()) const { return transpose({}, where); }
  Tensor cast(DType dtype, std::source_location where = std::source_location::current()) const;
  /// Returns elements start, start + step, … before stop along one axis, clamped as in Python. Array::kToEnd includes the last element of
  /// the axis.
  Tensor slice(int axis, std::int64_t start, std::int64_t stop = Array::kToEnd, std::int64_t step = 1,
               std::source_location where = std::source_location::current()) const;
  /// Indexes the first axis: `x[0]`, `x[Range{1, 5}]`.
  Tensor operator[](const Index& index) const;
  /// Indexes several axes: `x[{All, Range{0, {}, 2}, -1}]` is the formula language's `x[:, 0::2, -1]`. Throws IndexError for an integer
  /// outside its axis.
  Tensor operator[](std::initializer_list<Index> indices) const;

  /// Selects a part to update: `x.at({Range{1, 5}, 0}).set(v)` is a copy of x with v in that part. See put.
  Place at(std::initializer_list<Index> indices) const;

  // ---- reductions and scans, like the functions below: `x.sum(0)` is sum(x, 0). The other operators are functions below ----

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

  // Assignment binds a name to another value. A part of a value, such as `x[0]`, has no name, so it is not assignable.
  Tensor& operator=(const Tensor&) & noexcept = default;
  Tensor& operator+=(const Operand& b) &;
  Tensor& operator-=(const Operand& b) &;
  Tensor& operator*=(const Operand& b) &;
  Tensor& operator/=(const Operand& b) &;
  template <detail::Advice advice = "an element of a Tensor cannot be assigned. Use x.at({i}).set(v), where or scatter">
  void operator=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned. Use x.at({i}).set(v), where or scatter">
  void operator+=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned. Use x.at({i}).set(v), where or scatter">
  void operator-=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned. Use x.at({i}).set(v), where or scatter">
  void operator*=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter
  template <detail::Advice advice = "an element of a Tensor cannot be assigned. Use x.at({i}).set(v), where or scatter">
  void operator/=(const Operand&) && = delete;  // an element cannot be assigned: write x.at({i}).set(v), where or scatter

  Tensor operator!() const;

 private:
  friend struct TensorAccess;  // in runtime/recording.h
  std::uint32_t recording_ = 0;
  std::uint32_t value_ = 0;
};
static_assert(sizeof(Tensor) == 8 && std::is_trivially_copyable_v<Tensor>);

/// `none` of the formula language: an omitted argument.
struct None {};
inline constexpr None none{};

/// An argument of an operator: a Tensor, an Array (see Tensor's constructor), or a C++ number, which is a weakly typed literal. Has the
/// source line for messages.
class Operand : public detail::NumberValue {
 public:
  Operand(onepass::Tensor tensor, std::source_location where = std::source_location::current()) noexcept  // NOLINT: implicit by design
      : NumberValue(Kind::Tensor), tensor(tensor), where(where) {}
  Operand(const onepass::Array& array, std::source_location where = std::source_location::current()) noexcept  // NOLINT
      : NumberValue(Kind::Array), array(&array), where(where) {}
  template <detail::Number T> Operand(T value, std::source_location where = std::source_location::current()) noexcept  // NOLINT
      : NumberValue(value), array(nullptr), where(where) {}
  /// A variable. Its address is recorded to detect changes of captured variables (`Options::check_captures`). Templates would
  /// be ambiguous with the overload above. Constants use the template, because reading them does not require a capture.
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

  // Fields that the library reads.
  union {
    onepass::Tensor tensor;
    const onepass::Array* array;
  };
  std::source_location where;
  const void* variable = nullptr;  // address of the variable that the number was read from, if any
  std::uint32_t variable_bytes = 0;
};

namespace detail {
Tensor tensor_of(const Operand& x);  // converts a number to a literal
}  // namespace detail
template <detail::Number N> Tensor::Tensor(N value, std::source_location where) { *this = detail::tensor_of(Operand(value, where)); }

// Operators: either side may be a number or an Array. Overload resolution finds them only for Tensors and Arrays, because no other type
// of onepass converts to Operand.
Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator%(const Operand& a, const Operand& b);  ///< remainder: the divisor's sign, as in Python
Tensor operator-(const Operand& x);
inline Tensor operator+(Tensor x) { return x; }
Tensor operator==(const Operand& a, const Operand& b);  ///< elementwise, like all comparisons; the result is bool
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
/// Records logical_and, logical_or or logical_not: nonzero is true. Records both sides, without short-circuit evaluation.
Tensor operator&&(const Tensor& a, const Operand& b);
Tensor operator||(const Tensor& a, const Operand& b);
// Without these overloads, && of a Tensor and a number would be ambiguous with the built-in operator.
template <detail::Number N> Tensor operator&&(const Tensor& a, N b) { return a && Operand(b, std::source_location{}); }
template <detail::Number N> Tensor operator||(const Tensor& a, N b) { return a || Operand(b, std::source_location{}); }
template <detail::Number N> Tensor operator&&(N a, const Tensor& b) { return b && Operand(a, std::source_location{}); }
template <detail::Number N> Tensor operator||(N a, const Tensor& b) { return b || Operand(a, std::source_location{}); }

/// Part of an axis, as Python's start:stop:step; an omitted bound is the end of the axis. Negative bounds count from the end and are
/// clamped.
struct Range {
  std::optional<std::int64_t> start{}, stop{}, step{};
};
inline constexpr Range All{};  ///< `:`
struct NewAxisIndex {};
struct EllipsisIndex {};
inline constexpr NewAxisIndex NewAxis{};    ///< `none`: a new axis of length 1
inline constexpr EllipsisIndex Ellipsis{};  ///< `...`: all remaining axes

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

/// The operation that combines a written value with the previous value.
enum class PutMode : std::uint8_t { Set, Add, Min, Max, Mul };

/// A part of a Tensor to update, made by Tensor::at. Each function returns the updated Tensor; the original is unchanged.
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

/// The axes of a reduction: `1`, `{0, 2}`, a vector, or `{}` or `none` for all axes. Does not own a list.
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

// The operators of docs/language.md by name, with the meaning defined there. Unless noted, they are elementwise; operands broadcast by
// NumPy's rule and promote by the language's table.
//
// They throw ShapeError if operands do not broadcast, and DTypeError for unsupported types. Messages name operator, operands and source
// line. The language defines the gradients ("Derivatives").

// ---- arithmetic
Tensor add(const Operand& a, const Operand& b);
Tensor sub(const Operand& a, const Operand& b);
Tensor mul(const Operand& a, const Operand& b);
Tensor div(const Operand& a, const Operand& b);        ///< integers give f32, 64-bit integers f64
Tensor floor_div(const Operand& a, const Operand& b);  ///< integer division by zero gives 0
Tensor remainder(const Operand& a, const Operand& b);  ///< the divisor's sign
Tensor fmod(const Operand& a, const Operand& b);       ///< the dividend's sign
/// Computes C's pow for floats; the number exponents -1, 1, 2, 3, 4 are recorded as products. For integers, the power wraps, and a negative
/// exponent gives 0, except for the bases 1 and -1.
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
Tensor stop_gradient(const Operand& x);  ///< x, treated as a constant by differentiation
// ---- elementary functions; integers give f32, 64-bit integers give f64
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
Tensor ndtr(const Operand& x);     ///< standard normal cumulative distribution: erfc(-x/sqrt(2))/2
Tensor ndtri(const Operand& p);    ///< its inverse: ndtr(ndtri(p)) = p
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
// ---- bits, for integers; bitwise_and, or, xor and not also for bool
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_not(const Operand& x);
Tensor shift_left(const Operand& a, const Operand& b);  ///< a shift by the width or more gives 0
Tensor shift_right(const Operand& a, const Operand& b);
Tensor popcount(const Operand& x);
// ---- selection and types
Tensor where(const Operand& c, const Operand& a, const Operand& b);  ///< c is bool
Tensor cast(const Operand& x, DType dtype);                          ///< float to integer saturates, NaN gives 0; integer to integer wraps
Tensor bitcast(const Operand& x, DType dtype);                       ///< the same bits; DTypeError unless the sizes are equal

// ---- sources: a shape, without array operands
/// Returns a Tensor filled with the scalar `value`. Without `dtype`, it has the value's type; a number is f32, i64 or bool.
Tensor full(Extents shape, const Operand& value, std::optional<DType> dtype = {});
Tensor zeros(Extents shape, DType dtype = DType::F32, std::source_location where = std::source_location::current());
Tensor ones(Extents shape, DType dtype = DType::F32, std::source_location where = std::source_location::current());
/// Returns the index along one axis.
Tensor iota(Extents shape, int axis = 0, DType dtype = DType::I32, std::source_location where = std::source_location::current());
/// Returns start, start + step, … before stop; their number is part of the recording. Integers give i64, floats give f32; each start +
/// i*step is rounded once. Throws ValueError unless all three are numbers, and for step 0.
Tensor arange(const Operand& start, const Operand& stop, const Operand& step = none, std::optional<DType> dtype = {});
Tensor arange(const Operand& stop);  ///< 0, 1, … before stop
/// Returns `count` equally spaced numbers between the scalars start and stop; includes stop unless `endpoint` is false.
Tensor linspace(const Operand& start, const Operand& stop, std::int64_t count = 50, bool endpoint = true, std::optional<DType> dtype = {});
/// Returns an n by m matrix (m defaults to n): 1 on the k-th diagonal, 0 elsewhere. Positive k is above the main diagonal.
Tensor eye(std::int64_t n, std::optional<std::int64_t> m = {}, std::int64_t k = 0, DType dtype = DType::F32,
           std::source_location where = std::source_location::current());
/// Returns a matrix with 1 on and below the k-th diagonal, 0 elsewhere.
Tensor tri(std::int64_t n, std::optional<std::int64_t> m = {}, std::int64_t k = 0, DType dtype = DType::F32,
           std::source_location where = std::source_location::current());
/// Returns the coordinates of a grid, one Tensor of the grid's shape for each coordinate vector. With "xy", the first vector varies along
/// axis 1.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing = "xy",
                             std::source_location where = std::source_location::current());

// ---- views: never a copy when fused. Negative axes count from the end; ShapeError for an axis that does not exist.
Tensor reshape(const Operand& x, Extents shape);        ///< one length may be -1
Tensor transpose(const Operand& x, Extents axes = {});  ///< without `axes`, reverses the order
Tensor swap_axes(const Operand& x, int a, int b);
Tensor expand_dims(const Operand& x, int axis);
Tensor squeeze(const Operand& x, Axes axes = {});  ///< removes the given axes of length 1, or all of them
Tensor broadcast_to(const Operand& x, Extents shape);
Tensor flip(const Operand& x, Axes axes = {});
Tensor diagonal(const Operand& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);
Tensor diag(const Operand& x, std::int64_t k = 0);  ///< vector: the matrix with it on the k-th diagonal; matrix: that diagonal
Tensor trace(const Operand& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);  ///< the sum of a diagonal
Tensor tril(const Operand& x, std::int64_t k = 0);  ///< x on and below the k-th diagonal of the last two axes, 0 elsewhere
Tensor triu(const Operand& x, std::int64_t k = 0);  ///< x on and above the k-th diagonal, 0 elsewhere

/// Joins arrays along an existing axis; types promote. Throws ShapeError unless the other lengths are equal. Gradient: slices.
Tensor concat(const std::vector<Tensor>& xs, int axis = 0, std::source_location where = std::source_location::current());
/// Joins arrays of one shape along a new axis.
Tensor stack(const std::vector<Tensor>& xs, int axis = 0, std::source_location where = std::source_location::current());
/// Pads x with `low` elements before and `high` elements after it along each axis, each equal to the scalar `value`, 0 by default.
Tensor pad(const Operand& x, Extents low, Extents high, const Operand& value = none);
/// Padding of x: its outermost element (Edge), x mirrored without that element (Reflect) or with it (Symmetric), or x repeated (Wrap).
enum class PadMode : std::uint8_t { Edge, Reflect, Symmetric, Wrap };
Tensor pad(const Operand& x, Extents low, Extents high, PadMode mode);
/// Returns windows of x along the given axes, or all axes. Each axis becomes the window index, and new last axes are the indices in a
/// window. Windows start `step` apart; their elements are `spacing` apart. Throws ShapeError for a window longer than its axis.
Tensor sliding_window(const Operand& x, Extents window, Axes axes = {}, std::int64_t step = 1, std::int64_t spacing = 1);
Tensor tile(const Operand& x, Extents times);                       ///< the whole of x, `times[i]` times along axis i
Tensor repeat(const Operand& x, std::int64_t times, int axis);      ///< each index along the axis, `times` times
Tensor roll(const Operand& x, std::int64_t shift, Axes axis = {});  ///< wraps around at the end; without an axis, flattens x

// ---- contractions: products summed by fma, in the order of docs/language.md. Types promote; integers wrap; bool throws DTypeError.
/// Multiplies vectors and matrices by NumPy's rule; leading dimensions broadcast. Throws ShapeError unless the inner lengths are equal.
/// Gradient: contractions.
Tensor matmul(const Operand& a, const Operand& b);
Tensor dot(const Operand& a, const Operand& b);    ///< NumPy's dot: last axis of a with the second-to-last axis of b; scalars multiply
Tensor outer(const Operand& a, const Operand& b);  ///< a[i]*b[j] of two vectors
/// The text of an einsum equation, and its source line.
struct Equation {
  std::string_view text;
  std::source_location where;
  Equation(const char* text, std::source_location where = std::source_location::current()) : text(text), where(where) {}       // NOLINT
  Equation(std::string_view text, std::source_location where = std::source_location::current()) : text(text), where(where) {}  // NOLINT
  Equation(const std::string& text, std::source_location where = std::source_location::current())                              // NOLINT
      : text(text), where(where) {}
};
Tensor einsum(Equation equation, std::span<const Operand> operands);
/// Contracts operands: `einsum("ij,jk->ik", a, b)`. Each index is one letter; `...` means leading axes that broadcast; an index
/// twice in one operand takes the diagonal. Without `->`, the result has the indices that occur once, in alphabetical order.
///
/// More than two operands are contracted in pairs from the left. Length 1 broadcasts along an index. Indices, or `...`, that an explicit
/// result omits are summed. Throws ValueError for a malformed equation, and ShapeError if lengths differ otherwise.
template <std::convertible_to<Operand>... Ts> Tensor einsum(Equation equation, const Ts&... operands) {
  const Operand all[] = {Operand(operands)...};
  return einsum(equation, std::span<const Operand>(all));
}

/// How far windows reach past the edges of x, which is extended with zeros. Valid: not at all; Same: until the result is as long as x;
/// Full: as far as they overlap x.
enum class Overlap : std::uint8_t { Valid, Same, Full };
/// Sums the products of the kernel with each window of x, along all axes of x or the given axes. The kernel's last axes are the window
/// axes; its other axes broadcast with the other axes of x. Sums by fma, over the window's indices in row-major order.
///
/// Example: `correlate(x, k, Overlap::Same, {-2, -1})` of f32[n, c, h, w] and f32[c, 3, 3] is a depthwise convolution of a neural
/// network.
Tensor correlate(const Operand& x, const Operand& kernel, Overlap mode = Overlap::Valid, Axes axes = {});
/// Correlates x with the reversed kernel.
Tensor convolve(const Operand& x, const Operand& kernel, Overlap mode = Overlap::Full, Axes axes = {});

// ---- random numbers: the same bits on every device and in any fusion (docs/language.md)
/// Returns numbers in [0, 1) from Philox4x32-10. The key is an integer, a number or a rank-0 Tensor; dtype is a float type.
Tensor uniform(const Operand& key, Extents shape, DType dtype = DType::F32);
/// Returns sqrt(2) * erfinv of the same bits, mapped to (-1, 1): mean 0 and variance 1.
Tensor normal(const Operand& key, Extents shape, DType dtype = DType::F32);

// ---- reductions over the axes, or over all axes. The order of a sum is part of its meaning (docs/language.md, "The order of summation").
/// Sums elements; bool and integers narrower than 64 bits as i64 or u64. The empty sum is 0.
Tensor sum(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Returns sum / n; integers and bool give f32, 64-bit integers give f64. The empty mean is NaN.
Tensor mean(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Returns the maximum or minimum; propagates NaN. Throws ShapeError over an empty axis, unless the result has no elements.
Tensor max(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor min(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Multiplies elements; integers as in sum. The empty product is 1.
Tensor prod(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Tests whether any or all elements are nonzero. Over an empty axis, any is false and all is true.
Tensor any(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor all(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Returns the i64 index of the largest or smallest element, in row-major order of the reduced axes. Ties give the first element; the first
/// NaN has precedence over numbers.
Tensor argmax(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor argmin(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor count_nonzero(const Operand& x, Axes axes = {}, bool keepdims = false);  ///< i64
/// Returns sum((x - mean)*(x - mean)) / max(n - ddof, 0). std is its square root; its derivative at 0 is 0.
Tensor var(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor std(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
/// Aliases of var and std. `std(x)` without `onepass::` does not compile, because lookup finds the namespace std.
Tensor variance(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor stddev(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor norm(const Operand& x, Axes axes = {}, bool keepdims = false);  ///< sqrt(sum(x*x)); its derivative at 0 is 0
/// Returns m + log(sum(exp(x - m))) if m = max(x) is finite, else m. Over an empty axis: -inf.
Tensor logsumexp(const Operand& x, Axes axes = {}, bool keepdims = false);

// ---- sorting along one axis. NaN follows all numbers, +0 and -0 are equal, and the sort is stable. `descending` reverses the order, NaN
// first, and is stable too. Halves are cast to f32 and back.
Tensor sort(const Operand& x, int axis = -1, bool descending = false);     ///< gradient: each element's cotangent returns to its position
Tensor argsort(const Operand& x, int axis = -1, bool descending = false);  ///< i64: positions in x of the elements of sort(x)
struct TopK;
/// Returns the k largest (or smallest) elements, best first, and their i64 positions. Throws ShapeError if k exceeds the length.
TopK topk(const Operand& x, std::int64_t k, int axis = -1, bool largest = true);
struct TopK {
  Tensor values, indices;
};
/// Returns the middle sorted element, or the mean of the two middle elements. NaN if any element is NaN or if there are no elements;
/// nanmedian ignores NaN.
Tensor median(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmedian(const Operand& x, Axes axes = {}, bool keepdims = false);
/// Returns the sorted elements at positions q*(n - 1), with linear interpolation. q is a number from 0 to 1, or a vector, whose axis is the
/// first axis of the result. The call throws IndexError for another q. NaN is treated as in median.
Tensor quantile(const Operand& x, const Operand& q, Axes axes = {}, bool keepdims = false);
Tensor nanquantile(const Operand& x, const Operand& q, Axes axes = {}, bool keepdims = false);
/// Returns, for each value, the i64 number of elements of the vector `sorted` that are below it or, with `right`, not above it. For
/// `sorted` of higher rank, searches its rows along the last axis; the values must have the same other axes.
Tensor searchsorted(const Operand& sorted, const Operand& values, bool right = false);

// ---- statistics
/// Reduces the non-NaN elements. If there are no such elements, sums are 0, products are 1, and other reductions are NaN.
Tensor nansum(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanprod(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmax(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmin(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanmean(const Operand& x, Axes axes = {}, bool keepdims = false);
Tensor nanvar(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
Tensor nanstd(const Operand& x, Axes axes = {}, std::int64_t ddof = 0, bool keepdims = false);
/// Returns sum(x*weights)/sum(weights). Weights have the shape of x, or one entry for each index along a single axis. Without weights:
/// the mean.
Tensor average(const Operand& x, Axes axes = {}, const Operand& weights = none, bool keepdims = false);
/// Returns the covariances of the rows of x, and of y if given; a scalar for one row. If rowvar is false, uses columns.
Tensor cov(const Operand& x, const Operand& y = none, bool rowvar = true, std::int64_t ddof = 1);
Tensor corrcoef(const Operand& x, const Operand& y = none, bool rowvar = true);  ///< covariances divided by both standard deviations
/// Differences neighbors along an axis, `times` times, after joining `prepend`, x and `append`.
Tensor diff(const Operand& x, std::int64_t times = 1, int axis = -1, const Operand& prepend = none, const Operand& append = none);
/// Returns NumPy's gradient along one axis: central differences, one-sided at the ends. `spacing` is a distance, 1 by default, or a
/// coordinate vector. Not the derivative of a function; see grad.
Tensor gradient(const Operand& x, const Operand& spacing = none, int axis = -1, int edge_order = 1);
/// Integrates y by the trapezoidal rule. `x` has the coordinates: a vector, or the shape of y. Without x, points are `dx` apart.
Tensor trapezoid(const Operand& y, const Operand& x = none, const Operand& dx = none, int axis = -1);
/// Counts each of 0 … length - 1 in the integer vector x, or sums their weights. The call throws IndexError for other integers.
Tensor bincount(const Operand& x, std::int64_t length, const Operand& weights = none);
struct Histogram;
/// Counts the elements in each of `bins` equal parts of [low, high], as i64, or sums their weights. Also returns the edges between the
/// parts. The default range is from the minimum to the maximum of x. Ignores elements outside the range and NaN.
Histogram histogram(const Operand& x, std::int64_t bins = 10, const Operand& low = none, const Operand& high = none,
                    const Operand& weights = none, bool density = false);
struct Histogram {
  Tensor counts, edges;
};

// ---- scans along one axis, from its end if `reverse` is true. The language defines their order (docs/language.md, "The order of
// summation").
Tensor cumsum(const Operand& x, int axis, bool reverse = false);   ///< bool and integers narrower than 64 bits as i64 or u64
Tensor cumprod(const Operand& x, int axis, bool reverse = false);  ///< types as in cumsum; the derivative is correct with zeros in x
Tensor cummax(const Operand& x, int axis, bool reverse = false);   ///< propagates NaN; the derivative belongs to the first of equals
Tensor cummin(const Operand& x, int axis, bool reverse = false);

// ---- indexing by data. Indices are integers; negative indices count from the end. All indices are checked, and no access is out of
// bounds. If an index is out of range, the call throws IndexError, which names the first such element of `indices`. Results are then
// unspecified.
/// Returns the slices of x at `indices` along the axis. The shape of `indices` replaces the axis in the result. Gradient: index_add.
Tensor take(const Operand& x, const Operand& indices, int axis);
/// Returns, for axis 1, result[i, j] = x[i, indices[i, j]]. x and `indices` have the same rank; the other axes broadcast. Gradient:
/// scatter_add.
Tensor take_along_axis(const Operand& x, const Operand& indices, int axis);
/// Returns x plus each update at its index. Indices and updates have the same shape, which equals x's on the other axes. Updates of the
/// same element are added in row-major order.
Tensor scatter_add(const Operand& x, const Operand& indices, const Operand& updates, int axis);
/// Returns x with slices of the updates added at the indices along the axis. Updates have the shape of take(x, indices, axis).
Tensor index_add(const Operand& x, const Operand& indices, const Operand& updates, int axis);

// ---- array updates. A Tensor never changes: each function returns the updated array. Values are cast to x's type.
/// Returns x with v at the indices, or with v combined with x by `mode`. v broadcasts to the shape of x[indices].
Tensor put(const Operand& x, std::span<const Index> indices, const Operand& v, PutMode mode = PutMode::Set);
inline Tensor put(const Operand& x, std::initializer_list<Index> indices, const Operand& v, PutMode mode = PutMode::Set) {
  return put(x, std::span(indices.begin(), indices.size()), v, mode);
}
/// Returns x with each update written at its index; shapes as in scatter_add. For several updates of the same element, the last update in
/// row-major order remains, or the minimum or maximum with x. Throws ValueError for Mul.
Tensor scatter(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode = PutMode::Set);
/// Writes whole slices along the axis; otherwise like scatter. Updates have the shape of take(x, indices, axis).
Tensor index_update(const Operand& x, const Operand& indices, const Operand& updates, int axis, PutMode mode = PutMode::Set);
/// Returns where(mask, value, x). The mask broadcasts to x; the value is a scalar.
Tensor masked_fill(const Operand& x, const Operand& mask, const Operand& value);
struct Compressed;
/// Returns the elements of x where the mask is true, in row-major order, then `fill` (0 by default) up to the size of x. Also returns
/// their number, an i64 scalar. The mask has the shape of x. With an axis, the mask is a vector that selects slices.
Compressed compress(const Operand& mask, const Operand& x, std::optional<int> axis = {}, const Operand& fill = none);
struct Compressed {
  Tensor values, count;
};

// ---- composites, defined by the other operators (docs/language.md has the formulas)
Tensor relu(const Operand& x);                                                          ///< where(x <= 0, 0, x)
Tensor relu6(const Operand& x);                                                         ///< where(x <= 0, 0, where(x >= 6, 6, x))
Tensor hardtanh(const Operand& x, const Operand& lo = none, const Operand& hi = none);  ///< likewise; defaults of lo and hi: -1 and 1
Tensor hardsigmoid(const Operand& x);                                                   ///< relu6(x + 3)/6
Tensor hardswish(const Operand& x);                                                     ///< x*hardsigmoid(x)
Tensor leaky_relu(const Operand& x, const Operand& alpha = none);                       ///< where(x > 0, x, x*alpha); default alpha: 0.01
Tensor elu(const Operand& x, const Operand& alpha = none);   ///< where(x > 0, x, alpha*expm1(x)); default alpha: 1
Tensor celu(const Operand& x, const Operand& alpha = none);  ///< where(x > 0, x, alpha*expm1(x/alpha)); default alpha: 1
Tensor selu(const Operand& x);                               ///< Klambauer et al. 2017, arXiv:1706.02515
Tensor gelu(const Operand& x);                               ///< x*0.5*(1 + erf(x/sqrt(2))); Hendrycks and Gimpel 2016, arXiv:1606.08415
Tensor gelu_tanh(const Operand& x);                          ///< x*0.5*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x*x*x))), from the same source
Tensor silu(const Operand& x);                               ///< x*sigmoid(x)
Tensor mish(const Operand& x);                               ///< x*tanh(softplus(x)); Misra 2019, arXiv:1908.08681
Tensor softplus(const Operand& x);                           ///< log(1 + exp(x))
Tensor softsign(const Operand& x);                           ///< x/(1 + abs(x))
Tensor softmax(const Operand& x, int axis = -1);
Tensor log_softmax(const Operand& x, int axis = -1);
/// Returns (x - mean) * (1 / sqrt(var + eps)) * scale + shift, with mean and var over the axes. The result has x's shape, broadcast with
/// scale and shift. eps has the unit of x squared; the default is 1e-5. Source: Ba, Kiros and Hinton 2016, arXiv:1607.06450.
Tensor layer_norm(const Operand& x, const Operand& scale = none, const Operand& shift = none, Axes axes = -1, const Operand& eps = none);
/// Returns x * (1 / sqrt(mean(x*x) + eps)) * scale. Source: Zhang and Sennrich 2019, arXiv:1910.07467.
Tensor rms_norm(const Operand& x, const Operand& scale = none, int axis = -1, const Operand& eps = none);
/// Returns (x - mean) * (1 / sqrt(var + eps)) * scale + shift. Each parameter has one number for each index along the axis; otherwise
/// throws ShapeError. The default eps is 1e-5. Source: Ioffe and Szegedy 2015, arXiv:1502.03167.
Tensor batch_norm(const Operand& x, const Operand& mean, const Operand& var, const Operand& scale = none, const Operand& shift = none,
                  int axis = 1, const Operand& eps = none);
/// Returns -log_softmax(logits) at the label: one loss for each sample. Labels are integers with the shape of the logits without the
/// axis. Throws DTypeError for other types. The call throws IndexError for a label outside the axis.
Tensor cross_entropy(const Operand& logits, const Operand& labels, int axis = -1);
/// Returns mean((a - b)*(a - b)), a scalar.
Tensor mse(const Operand& a, const Operand& b);

// ---- derivatives, recorded like other operators; may be nested
namespace detail {
void grad_into(const Operand& loss, const Tensor* xs, std::size_t count, Tensor* results);
void vjp_into(const Operand& y, const Operand& dy, const Tensor* xs, std::size_t count, Tensor* results);
template <class T>
concept IsTensor = std::same_as<std::remove_cvref_t<T>, Tensor>;
}  // namespace detail

/// Returns the derivatives of the scalar `loss` by each x: `Tensor dx = grad(loss, x)`, `auto [dw, db] = grad(loss, w, b)`. Each x is an
/// argument or a computed value; if the loss does not use it, its derivative is zero. Errors: ShapeError for a loss that is not a scalar,
/// DTypeError if the loss or an x is not of a float type.
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

/// Returns the vector-Jacobian products of `y`, of any shape, with the cotangent `dy`, of the same shape.
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
