// The C++ element types of f16 and bf16. They have two bytes, convert to float exactly, and convert from double with one rounding. They
// only store elements; arithmetic uses float. Arrays also accept the compiler's own types for these formats (`_Float16`,
// std::bfloat16_t).
#pragma once

#include <bit>
#include <cstdint>

#include "onepass/dtype.h"

namespace onepass {
namespace detail {

/// Returns the bits of the nearest value, half to even, in a binary format with these fields.
template <int kMantissaBits, int kExponentBits> constexpr std::uint16_t bits_of_half(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 63 << 15);
  constexpr std::int64_t infinity = ((1 << kExponentBits) - 1) << kMantissaBits;
  if (value != value) return static_cast<std::uint16_t>(sign | infinity | 1 << (kMantissaBits - 1));
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023 + (1 << (kExponentBits - 1)) - 1;
  const std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const int shift = 52 - kMantissaBits + (exponent <= 0 ? 1 - exponent : 0);
  if (shift > 60) return sign;  // also zero and the subnormals of double
  const std::uint64_t half = std::uint64_t{1} << (shift - 1), rest = significand & (2 * half - 1);
  std::uint64_t rounded = significand >> shift;
  if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  const std::int64_t result = (exponent > 0 ? std::int64_t{exponent - 1} << kMantissaBits : 0) + static_cast<std::int64_t>(rounded);
  return static_cast<std::uint16_t>(sign | (result < infinity ? result : infinity));
}

constexpr float float_of_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}
constexpr float float_of_bf16(std::uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace detail

namespace detail {

template <int kMantissaBits, int kExponentBits> class HalfElement {
 public:
  constexpr HalfElement() noexcept = default;
  constexpr explicit HalfElement(double value) noexcept : bits_(bits_of_half<kMantissaBits, kExponentBits>(value)) {}
  static constexpr HalfElement from_bits(std::uint16_t bits) noexcept {
    HalfElement h;
    h.bits_ = bits;
    return h;
  }
  constexpr std::uint16_t bits() const noexcept { return bits_; }
  constexpr operator float() const noexcept {
    if constexpr (kExponentBits == 8) return float_of_bf16(bits_);
    else return float_of_f16(bits_);
  }

 private:
  std::uint16_t bits_ = 0;
};

}  // namespace detail

/// An element of f16: IEEE 754 binary16.
using Half = detail::HalfElement<10, 5>;
/// An element of bf16: the upper half of a float.
using BFloat16 = detail::HalfElement<7, 8>;

namespace detail {
template <> struct dtype_for<Half> {
  static constexpr DType value = DType::F16;
};
template <> struct dtype_for<BFloat16> {
  static constexpr DType value = DType::BF16;
};
#ifdef __FLT16_MANT_DIG__
template <> struct dtype_for<_Float16> {
  static constexpr DType value = DType::F16;
};
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <> struct dtype_for<decltype(0.0bf16)> {
  static constexpr DType value = DType::BF16;
};
#endif
}  // namespace detail

}  // namespace onepass
