// Size of the memory that an argument of a test covers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ir/reference.h"

namespace onepass::test {

/// Returns the size in bytes of an argument's memory, and the byte offset of its element (0, …, 0).
inline std::pair<std::size_t, std::size_t> footprint(const ir::ArrayView& view) {
  const std::size_t size = size_of(view.dtype);
  if (ir::element_count(view.shape) == 0) return {0, 0};
  std::int64_t low = 0, high = 0, stride = 1;
  for (std::size_t i = view.shape.size(); i-- > 0; stride *= view.shape[i])
    (view.strides.empty() || view.strides[i] > 0 ? high : low) += (view.shape[i] - 1) * (view.strides.empty() ? stride : view.strides[i]);
  return {static_cast<std::size_t>(high - low + 1) * size, static_cast<std::size_t>(-low) * size};
}

}  // namespace onepass::test
