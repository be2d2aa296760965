// Sort keys: unsigned numbers in sorting order. NaN is above all numbers and -0 equals +0, so elements are compared by the ranks of their
// keys. The key itself distinguishes -0 from +0, so that the element can be restored. Descending sorts use the complement.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "onepass/dtype.h"
#include "runtime/routine.h"

namespace onepass::runtime {

template <class T> struct KeyOf {
  using Key = std::make_unsigned_t<T>;
  static constexpr Key kTop = std::is_signed_v<T> ? Key(Key{1} << (8 * sizeof(T) - 1)) : Key{0};
  static Key of(T value) { return static_cast<Key>(static_cast<Key>(value) ^ kTop); }
  static T value(Key key) { return static_cast<T>(static_cast<Key>(key ^ kTop)); }
  static Key rank(Key key) { return key; }
};
enum class Truth : std::uint8_t {};  // a byte of a bool: 0 or nonzero
template <> struct KeyOf<Truth> {
  using Key = std::uint8_t;
  static Key of(Truth value) { return value != Truth{0}; }
  static Truth value(Key key) { return static_cast<Truth>(key & 1); }
  static Key rank(Key key) { return key; }
};
template <std::size_t kBytes> struct KeyOfFloat {
  using T = std::conditional_t<kBytes == 4, float, double>;
  using Key = std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>;
  static constexpr Key kSign = Key{1} << (8 * kBytes - 1);
  static Key of(T value) {
    const Key bits = std::bit_cast<Key>(value);
    const Key key = bits & kSign ? ~bits : bits | kSign;
    return value != value ? std::numeric_limits<Key>::max() : key;
  }
  static T value(Key key) {
    return key == std::numeric_limits<Key>::max() ? std::numeric_limits<T>::quiet_NaN()
                                                  : std::bit_cast<T>(key & kSign ? key & ~kSign : ~key);
  }
  static Key rank(Key key) { return key + (key == kSign - 1); }  // -0 has the rank of +0
};
template <> struct KeyOf<float> : KeyOfFloat<4> {};
template <> struct KeyOf<double> : KeyOfFloat<8> {};

/// Calls f(T{}) with the type in which elements of `type` are read.
template <class F> void with_type(DType type, F&& f) {
  switch (type) {
    case DType::Bool: return f(Truth{});
    case DType::U8: return f(std::uint8_t{});
    case DType::I8: return f(std::int8_t{});
    case DType::I16: return f(std::int16_t{});
    case DType::I32: return f(std::int32_t{});
    case DType::I64: return f(std::int64_t{});
    case DType::U16: return f(std::uint16_t{});
    case DType::U32: return f(std::uint32_t{});
    case DType::U64: return f(std::uint64_t{});
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::F16:
    case DType::BF16: return;  // excluded by ir/verify
  }
}

/// The rows of a routine's arrays.
struct RoutineRows {
  static constexpr std::int64_t kLoop = 5;  // kernel parameters of a loop: its extent and four strides
  const std::int64_t* words;
  std::int64_t operator[](std::uint32_t word) const { return words[word]; }
  struct Row {
    std::int64_t x = 0, values = 0, updates = 0, result = 0;  // offsets in elements from the start of each array
  };
  Row at(std::int64_t row) const {
    Row out;
    for (std::int64_t l = words[RoutineWords::kLoops]; l-- > 0;) {
      const std::int64_t* const loop = words + RoutineWords::kFirst + kLoop * l;
      const std::int64_t i = row % loop[0];
      row /= loop[0];
      out.x += i * loop[1], out.values += i * loop[2], out.updates += i * loop[3], out.result += i * loop[4];
    }
    return out;
  }
  Row along() const {  // the strides along a row
    const std::int64_t* const last = words + RoutineWords::kFirst + kLoop * words[RoutineWords::kLoops];
    return {last[0], last[1], last[2], last[3]};
  }
  // The strides between rows that differ only in the last row axis.
  Row across() const {
    if (words[RoutineWords::kLoops] == 0) return {};
    const std::int64_t* const loop = words + RoutineWords::kFirst + kLoop * (words[RoutineWords::kLoops] - 1);
    return {loop[1], loop[2], loop[3], loop[4]};
  }
  // Number of such rows from `row` on.
  std::int64_t in_line(std::int64_t row) const {
    if (words[RoutineWords::kLoops] == 0) return 1;
    const std::int64_t extent = words[RoutineWords::kFirst + kLoop * (words[RoutineWords::kLoops] - 1)];
    return extent - row % extent;
  }
  template <class T> const T* x() const { return reinterpret_cast<const T*>(words[RoutineWords::kX]); }
  template <class T> const T* values() const { return reinterpret_cast<const T*>(words[RoutineWords::kValues]); }
  template <class T> const T* updates() const { return reinterpret_cast<const T*>(words[RoutineWords::kUpdates]); }
  template <class T> T* result() const { return reinterpret_cast<T*>(words[RoutineWords::kResult]); }
  bool backwards() const { return words[RoutineWords::kVariant] != 0; }
};

}  // namespace onepass::runtime
