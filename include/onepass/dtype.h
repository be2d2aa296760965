// Element types. Includes no other header of onepass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace onepass {

enum class DType : std::uint8_t { Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 };
inline constexpr int kDTypeCount = 13;

inline constexpr DType i8 = DType::I8, i16 = DType::I16, i32 = DType::I32, i64 = DType::I64;
inline constexpr DType u8 = DType::U8, u16 = DType::U16, u32 = DType::U32, u64 = DType::U64;
inline constexpr DType f16 = DType::F16, bf16 = DType::BF16, f32 = DType::F32, f64 = DType::F64, boolean = DType::Bool;

/// Returns the size of one element in memory, in bytes.
constexpr std::size_t size_of(DType t) {
  constexpr std::uint8_t bytes[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
  return bytes[static_cast<int>(t)];
}

/// Returns the name in formulas and messages: `f32`, `bool`, ….
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypeCount] = {"bool", "i8",  "i16", "i32",  "i64", "u8", "u16",
                                                   "u32",  "u64", "f16", "bf16", "f32", "f64"};
  return names[static_cast<int>(t)];
}

/// Sets `out` to the type with this name. False if there is none.
constexpr bool dtype_of(std::string_view name, DType& out) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name_of(static_cast<DType>(i)) == name) return out = static_cast<DType>(i), true;
  return false;
}

constexpr bool is_float(DType t) { return t >= DType::F16; }
constexpr bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }
/// Returns the type that a program uses for values of `t`: f32 for halves, else `t`.
constexpr DType computed_type(DType t) { return is_half(t) ? DType::F32 : t; }
constexpr bool is_signed_integer(DType t) { return t >= DType::I8 && t <= DType::I64; }
constexpr bool is_unsigned_integer(DType t) { return t >= DType::U8 && t <= DType::U64; }
constexpr bool is_integer(DType t) { return t >= DType::I8 && t <= DType::U64; }

namespace detail {
template <class T> struct dtype_for;
// clang-format off
template <> struct dtype_for<bool> { static constexpr DType value = DType::Bool; };
template <> struct dtype_for<std::int8_t> { static constexpr DType value = DType::I8; };
template <> struct dtype_for<std::int16_t> { static constexpr DType value = DType::I16; };
template <> struct dtype_for<std::int32_t> { static constexpr DType value = DType::I32; };
template <> struct dtype_for<std::int64_t> { static constexpr DType value = DType::I64; };
template <> struct dtype_for<std::uint8_t> { static constexpr DType value = DType::U8; };
template <> struct dtype_for<std::uint16_t> { static constexpr DType value = DType::U16; };
template <> struct dtype_for<std::uint32_t> { static constexpr DType value = DType::U32; };
template <> struct dtype_for<std::uint64_t> { static constexpr DType value = DType::U64; };
template <> struct dtype_for<float> { static constexpr DType value = DType::F32; };
template <> struct dtype_for<double> { static constexpr DType value = DType::F64; };
// clang-format on
}  // namespace detail

/// The dtype of a C++ scalar type: `dtype<float> == f32`.
template <class T> inline constexpr DType dtype = detail::dtype_for<T>::value;

}  // namespace onepass
