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

// True if the rows are next to each other in x, the updates and the result.
bool are_adjacent(const RoutineRows::Row* rows, std::int64_t count) {
  for (std::int64_t b = 1; b < count; ++b)
    if (rows[b].x != rows[0].x + b || rows[b].updates != rows[0].updates + b || rows[b].result != rows[0].result + b) return false;
  return true;
}
// True if the rows have the same indices, as in index_update.
bool share_indices(const RoutineRows::Row* rows, std::int64_t count) {
  return std::all_of(rows + 1, rows + count, [&](const RoutineRows::Row& row) { return row.values == rows[0].values; });
}

template <class T, Put kPut> void assign(const RoutineRows& rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], all = rows[RoutineWords::kRows],
                     block = rows[RoutineWords::kBlock];
  const RoutineRows::Row step = rows.along();
  RoutineRows::Row at[kAssignedTogether];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t count = std::min(block, all - item * block);
    for (std::int64_t b = 0; b < count; ++b) at[b] = rows.at(item * block + b);
    const T* const x = rows.x<T>();
    T* const result = rows.result<T>();
    const auto* const places = rows.values<std::int64_t>();
    const T* const updates = rows.updates<T>();
    const bool adjacent = count > 1 && are_adjacent(at, count), at_once = adjacent && share_indices(at, count);
    if (count == 1 && step.x == 1 && step.result == 1) std::copy_n(x + at[0].x, n, result + at[0].result);
    else if (adjacent)
      for (std::int64_t i = 0; i < n; ++i) std::copy_n(x + at[0].x + i * step.x, count, result + at[0].result + i * step.result);
    else
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t b = 0; b < count; ++b) result[at[b].result + i * step.result] = x[at[b].x + i * step.x];
    const auto update = [](T& there, T by) {
      if (replaces<kPut>(by, there)) there = by;
    };
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t* const place = places + at[0].values + i * step.values;
      if (at_once) {
        if (static_cast<std::uint64_t>(*place) >= static_cast<std::uint64_t>(n)) continue;  // an error of the call
        T* const there = result + at[0].result + *place * step.result;
        const T* const by = updates + at[0].updates + i * step.updates;
        if constexpr (kPut == Put::Set) std::copy_n(by, count, there);
        else
          for (std::int64_t b = 0; b < count; ++b) update(there[b], by[b]);
        continue;
      }
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t one = places[at[b].values + i * step.values];
        if (static_cast<std::uint64_t>(one) >= static_cast<std::uint64_t>(n)) continue;  // an error of the call
        update(result[at[b].result + one * step.result], updates[at[b].updates + i * step.updates]);
      }
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
