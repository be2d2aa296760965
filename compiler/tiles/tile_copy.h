// Copies elements between arrays and tiles, where a predicate holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace onepass::compiler {

/// Elements begin .. end - 1 of a predicate hold, and no others. begin is -1 if those that hold do not follow each other.
struct HeldRange {
  std::int64_t begin, end;
};
inline HeldRange held_range(const std::uint8_t* guard, std::int64_t n) {
  const auto find = [&](std::int64_t from, int value) {
    const void* const at = std::memchr(guard + from, value, static_cast<std::size_t>(n - from));
    return at ? static_cast<const std::uint8_t*>(at) - guard : n;
  };
  const std::int64_t begin = find(0, 1), end = find(begin, 0);
  return find(end, 1) == n ? HeldRange{begin, end} : HeldRange{-1, -1};
}

/// y[i] = x[step i] where guard[i] holds, else 0. Without a guard, all hold.
template <class E> void copy_in(E* y, const E* x, std::int64_t step, std::int64_t n, const std::uint8_t* guard) {
  const HeldRange held = step == 1 ? guard ? held_range(guard, n) : HeldRange{0, n} : HeldRange{-1, -1};
  if (held.begin >= 0) {
    std::fill_n(y, held.begin, E{0});
    std::memcpy(y + held.begin, x + held.begin, static_cast<std::size_t>(held.end - held.begin) * sizeof(E));
    std::fill_n(y + held.end, n - held.end, E{0});
  } else if (guard) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = guard[i] != 0 ? x[i * step] : E{0};
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i * step];
  }
}

/// y[step i] = x[i], with `one` x[0], where guard[i] holds. Without a guard, all hold.
template <class E> void copy_out(E* y, std::int64_t step, const E* x, bool one, std::int64_t n, const std::uint8_t* guard) {
  const HeldRange held = step == 1 && !one ? guard ? held_range(guard, n) : HeldRange{0, n} : HeldRange{-1, -1};
  if (held.begin >= 0) {
    std::memcpy(y + held.begin, x + held.begin, static_cast<std::size_t>(held.end - held.begin) * sizeof(E));
  } else if (guard) {
    for (std::int64_t i = 0; i < n; ++i)
      if (guard[i] != 0) y[i * step] = x[one ? 0 : i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * step] = x[one ? 0 : i];
  }
}

}  // namespace onepass::compiler
