#include "tools/onepass_random.h"

#include <bit>
#include <cmath>
#include <cstdlib>

namespace onepass::command {

namespace {

// 24 random bits are exact in f32 and keep [-1, 1) half-open. A half uses as many bits as it has.
template <class T, class F> void fill(const Array& array, F&& value) {
  T* const data = static_cast<T*>(array.mutable_data());
  for (std::int64_t i = 0; i < array.size(); ++i) data[i] = value();
}

}  // namespace

Array random_array(const runtime::ArgumentType& type, Random& random) {
  const Array array = Array::empty(type.shape, type.dtype);
  switch (type.dtype) {
    case DType::F64: fill<double>(array, [&] { return random.symmetric(); }); break;
    case DType::F32: fill<float>(array, [&] { return static_cast<float>(random.next() >> 40) * 0x1p-23f - 1; }); break;
    case DType::BF16:  // steps of 2^-7: the sign and the top bits of an exact f32
      fill<std::uint16_t>(array, [&] {
        const float value = static_cast<float>(random.next() >> 56) * 0x1p-7f - 1;
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      });
      break;
    case DType::F16:  // steps of 2^-10: n/1024, as an exponent and the 10 bits after the leading 1
      fill<std::uint16_t>(array, [&] {
        const int n = static_cast<int>(random.next() >> 53) - 1024;  // value n/1024
        if (n == 0) return std::uint16_t{0};
        const auto magnitude = static_cast<unsigned>(std::abs(n));
        const int top = std::bit_width(magnitude) - 1;
        const unsigned fraction = magnitude << (10 - top) & 0x3ff;
        return static_cast<std::uint16_t>((n < 0 ? 0x8000u : 0u) | static_cast<unsigned>(top + 5) << 10 | fraction);
      });
      break;
    default:
      switch (size_of(type.dtype)) {
        case 1: fill<std::uint8_t>(array, [&] { return static_cast<std::uint8_t>(random.next() >> 63); }); break;
        case 2: fill<std::uint16_t>(array, [&] { return static_cast<std::uint16_t>(random.next() >> 63); }); break;
        case 4: fill<std::uint32_t>(array, [&] { return static_cast<std::uint32_t>(random.next() >> 63); }); break;
        default: fill<std::uint64_t>(array, [&] { return random.next() >> 63; }); break;
      }
  }
  return array;
}

}  // namespace onepass::command
