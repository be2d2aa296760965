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

/// f32 or f64, in any layout: equal bits, but any NaN is like any other.
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
