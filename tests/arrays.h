// Arrays of ordinary numbers, and whether two have the same bits.
#pragma once

#include <algorithm>
#include <cstring>

#include "onepass/array.h"

namespace onepass::test {

/// From -1 up to 3 in steps, then from -2.5.
inline Array ramp(Extents shape, double step) {
  Array a = Array::empty(shape, f32);
  double value = -1;
  for (float& x : a.span<float>()) x = static_cast<float>(value), value = value > 3 ? -2.5 : value + step;
  return a;
}

/// Both contiguous: type, shape and every byte, the bits of a NaN too.
inline bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace onepass::test
