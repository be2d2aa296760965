// Finds the positions of values in sorted rows: a branchless binary search for several values at once, whose loads are independent.
#include <algorithm>
#include <concepts>

#include "runtime/routine_code.h"
#include "runtime/routine_keys.h"

namespace onepass::runtime {

namespace {

constexpr std::int64_t kTogether = 16;  // values searched for at once

// Counts for each value the n elements of a row that are below it.
template <class V, class Below> void count_below(const V* wanted, std::int64_t n, Below is_below, std::int64_t* counts) {
  std::fill_n(counts, kTogether, 0);
  for (std::int64_t left = n; left > 0;) {
    const std::int64_t half = (left + 1) / 2;
    for (std::int64_t b = 0; b < kTogether; ++b) counts[b] += half & -static_cast<std::int64_t>(is_below(counts[b] + half - 1, wanted[b]));
    left -= half;
  }
}

// Searches a row for kTogether values; `to_right` also counts equal elements.
template <class T> void search(const T* x, std::int64_t step, std::int64_t n, const T* wanted, bool to_right, std::int64_t* counts) {
  using K = KeyOf<T>;
  if constexpr (std::is_arithmetic_v<T>) {
    bool has_nan = false;
    if constexpr (std::floating_point<T>)
      for (std::int64_t b = 0; b < kTogether; ++b) has_nan |= wanted[b] != wanted[b];
    if (!has_nan) {  // NaN in the row is above all numbers, so it is not below `wanted`
      if (to_right)
        count_below(
            wanted, n, [&](std::int64_t i, T by) { return x[i * step] <= by; }, counts);
      else
        count_below(
            wanted, n, [&](std::int64_t i, T by) { return x[i * step] < by; }, counts);
      return;
    }
  }
  typename K::Key ranks[kTogether];
  for (std::int64_t b = 0; b < kTogether; ++b) ranks[b] = K::rank(K::of(wanted[b]));
  const auto rank_at = [&](std::int64_t i) { return K::rank(K::of(x[i * step])); };
  if (to_right)
    count_below(
        ranks, n, [&](std::int64_t i, auto by) { return rank_at(i) <= by; }, counts);
  else
    count_below(
        ranks, n, [&](std::int64_t i, auto by) { return rank_at(i) < by; }, counts);
}

}  // namespace

void run_search(const std::int64_t* words, std::int64_t begin, std::int64_t end, void*) {
  const RoutineRows rows{words};
  with_type(static_cast<DType>(words[RoutineWords::kType]), [&]<class T>(T) {
    const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], block = rows[RoutineWords::kBlock],
                       chunks = rows[RoutineWords::kChunks];
    const RoutineRows::Row step = rows.along();
    for (std::int64_t item = begin; item < end; ++item) {
      const RoutineRows::Row row = rows.at(item / chunks);
      const T *const x = rows.x<T>() + row.x, *const values = rows.values<T>() + row.values;
      std::int64_t* const result = rows.result<std::int64_t>() + row.result;
      const std::int64_t first = item % chunks * block, last = std::min(first + block, m);
      for (std::int64_t at = first; at < last; at += kTogether) {
        T wanted[kTogether];
        std::int64_t counts[kTogether];
        const std::int64_t count = std::min(kTogether, last - at);
        for (std::int64_t b = 0; b < kTogether; ++b) wanted[b] = values[(at + std::min(b, count - 1)) * step.values];
        search(x, step.x, n, wanted, rows.backwards(), counts);
        for (std::int64_t b = 0; b < count; ++b) result[(at + b) * step.result] = counts[b];
      }
    }
  });
}

}  // namespace onepass::runtime
