// A C++ number in place of a Tensor or an Array: its value, without a strong type.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace onepass::detail {

/// A C++ number that a caller may pass where a Tensor is expected. Characters are not numbers.
template <class T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// Base of the types that hold a number or another kind of value; the library reads it.
struct NumberValue {
  enum class Kind : std::uint8_t { None, Bool, Int, UInt, Float, Array, Tensor };
  Kind kind = Kind::None;
  union {
    std::int64_t integer = 0;  // for Bool and Int; for UInt, the bits of a number above the largest i64
    double real;               // for Float
  };

  constexpr NumberValue() noexcept = default;
  constexpr explicit NumberValue(Kind kind) noexcept : kind(kind) {}
  template <Number T> constexpr explicit NumberValue(T value) noexcept {
    if constexpr (std::same_as<T, bool>) {
      kind = Kind::Bool;
      integer = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind = Kind::Int;
      integer = static_cast<std::int64_t>(value);
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8)
        if (value > static_cast<T>(INT64_MAX)) kind = Kind::UInt;
    } else {
      kind = Kind::Float;
      real = static_cast<double>(value);
    }
  }
};

}  // namespace onepass::detail
