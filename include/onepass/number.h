// A C++ number where the interface takes a Tensor or an Array: what it is, without a strong type.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace onepass::detail {

/// A C++ number that may be used where a Tensor is expected. Characters are not numbers.
template <class T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// The base of whatever is a number or something else: what the library reads.
struct NumberValue {
  enum class Kind : std::uint8_t { None, Bool, Int, UInt, Float, Array, Tensor };
  Kind kind = Kind::None;
  union {
    std::int64_t integer = 0;  // Bool, Int; UInt, a number above the largest i64: its bits
    double real;               // Float
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
