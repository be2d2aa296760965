// Finds the positions of values in sorted rows: a branchless binary search.
#include <algorithm>

#include "runtime/routine_code.h"
#include "runtime/routine_keys.h"

namespace onepass::runtime {

void run_search(const std::int64_t* words, std::int64_t begin, std::int64_t end, void*) {
  const RoutineRows rows{words};
  with_type(static_cast<DType>(words[RoutineWords::kType]), [&]<class T>(T) {
    using K = KeyOf<T>;
    const std::int64_t n = rows[RoutineWords::kLength], m = rows[RoutineWords::kResults], block = rows[RoutineWords::kBlock],
                       chunks = rows[RoutineWords::kChunks];
    const RoutineRows::Row step = rows.along();
    for (std::int64_t item = begin; item < end; ++item) {
      const RoutineRows::Row row = rows.at(item / chunks);
      const T *const x = rows.x<T>() + row.x, *const values = rows.values<T>() + row.values;
      std::int64_t* const result = rows.result<std::int64_t>() + row.result;
      const auto search = [&](auto is_below) {  // counts the elements below
        const std::int64_t first = item % chunks * block, last = std::min(first + block, m);
        for (std::int64_t i = first; i < last; ++i) {
          const auto wanted = K::rank(K::of(values[i * step.values]));
          std::int64_t base = 0;
          for (std::int64_t left = n; left > 0;) {
            const std::int64_t half = (left + 1) / 2;
            base += is_below(K::rank(K::of(x[(base + half - 1) * step.x])), wanted) ? half : 0;
            left -= half;
          }
          result[i * step.result] = base;
        }
      };
      if (rows.backwards()) search([](auto a, auto b) { return a <= b; });
      else search([](auto a, auto b) { return a < b; });
    }
  });
}

}  // namespace onepass::runtime
