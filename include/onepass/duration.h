// Timeouts: any std::chrono::duration, without <chrono>, which is a large header.
#pragma once

#include <cstdint>
#include <type_traits>

namespace onepass::detail {

/// Converts a std::chrono::duration to nanoseconds, clamped to three years. Integer durations use integer arithmetic, because
/// floating-point exceptions may be enabled in the caller.
template <class Duration> constexpr std::int64_t nanoseconds_of(Duration d) {
  constexpr std::int64_t most = 100'000'000'000'000'000;
  if (!(d.count() > 0)) return 0;
  if constexpr (std::is_integral_v<typename Duration::rep> && 1'000'000'000 % Duration::period::den == 0) {
    constexpr std::int64_t each = Duration::period::num * (1'000'000'000 / Duration::period::den);
    return d.count() > most / each ? most : static_cast<std::int64_t>(d.count()) * each;
  } else {
    const auto n = static_cast<double>(d.count()) * Duration::period::num / Duration::period::den * 1e9;
    return n > static_cast<double>(most) ? most : static_cast<std::int64_t>(n);
  }
}

}  // namespace onepass::detail
