// Arrays of ordinary numbers, and bitwise comparisons of arrays.
#pragma once

#include <algorithm>
#include <cstring>

#include "onepass/array.h"

namespace onepass::test {

/// Returns an f32 array that counts up from -1 by `step` and restarts at -2.5 when it exceeds 3.
inline Array ramp(Extents shape, double step) {
  Array a = Array::empty(shape, f32);
  double value = -1;
  for (float& x : a.span<float>()) x = static_cast<float>(value), value = value > 3 ? -2.5 : value + step;
  return a;
}

/// True if type, shape and every byte are equal, NaN bits included. Both arrays must be contiguous.
inline bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// True if both have equal bits, where all NaNs count as equal. Takes f32 and f64 arrays in any layout.
inline bool same_but_for_nan(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return false;
  const Array x = a.contiguous(), y = b.contiguous();
  const auto each = [&]<class T>(T) {
    return std::ranges::equal(x.span<const T>(), y.span<const T>(),
                              [](const T& p, const T& q) { return std::memcmp(&p, &q, sizeof(T)) == 0 || (p != p && q != q); });
  };
  return a.dtype() == f32 ? each(0.0f) : each(0.0);
}

}  // namespace onepass::test
