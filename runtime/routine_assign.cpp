// Writes updates to rows at given positions, in order: the last update remains, or the minimum or maximum.
#include <algorithm>
#include <cmath>
#include <concepts>

#include "runtime/routine_code.h"
#include "runtime/routine_keys.h"

namespace onepass::runtime {

namespace {

enum class Put : std::uint8_t { Set, Min, Max };  // as in the attribute of Assign

// True if the update replaces the value. NaN counts as minimum and as maximum, and -0 is below +0, so that the order does not matter.
template <Put kPut, class T> bool replaces(T update, T there) {
  if constexpr (kPut == Put::Set) return true;
  if constexpr (std::floating_point<T>) {
    if (there != there || update != update) return there == there;
    if (update == there) return std::signbit(update) != std::signbit(there) && std::signbit(there) == (kPut == Put::Max);
  }
  return kPut == Put::Max ? there < update : update < there;
}

template <class T, Put kPut> void assign(const RoutineRows& rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], all = rows[RoutineWords::kRows],
                     block = rows[RoutineWords::kBlock];
  const RoutineRows::Row step = rows.along();
  RoutineRows::Row at[16];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t count = std::min(block, all - item * block);
    for (std::int64_t b = 0; b < count; ++b) at[b] = rows.at(item * block + b);
    const T* const x = rows.x<T>();
    T* const result = rows.result<T>();
    if (count == 1 && step.x == 1 && step.result == 1) std::copy_n(x + at[0].x, n, result + at[0].result);
    else
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t b = 0; b < count; ++b) result[at[b].result + i * step.result] = x[at[b].x + i * step.x];
    const auto* const places = rows.values<std::int64_t>();
    const T* const updates = rows.updates<T>();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t place = places[at[b].values + i * step.values];
        if (static_cast<std::uint64_t>(place) >= static_cast<std::uint64_t>(n)) continue;  // an error of the call
        T& there = result[at[b].result + place * step.result];
        if (const T update = updates[at[b].updates + i * step.updates]; replaces<kPut>(update, there)) there = update;
      }
  }
}

}  // namespace

void run_assign(const std::int64_t* words, std::int64_t begin, std::int64_t end, void*) {
  const RoutineRows rows{words};
  with_type(static_cast<DType>(words[RoutineWords::kType]), [&]<class T>(T) {
    switch (static_cast<Put>(rows[RoutineWords::kVariant])) {
      case Put::Set: return assign<T, Put::Set>(rows, begin, end);
      case Put::Min: return assign<T, Put::Min>(rows, begin, end);
      case Put::Max: return assign<T, Put::Max>(rows, begin, end);
    }
  });
}

}  // namespace onepass::runtime
