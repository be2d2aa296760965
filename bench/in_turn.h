// Two ways to do one thing, timed in turn: on a machine whose speed changes from second to second their ratio is what can be measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "runtime/kernel_cache.h"

namespace onepass::bench {

inline double seconds(const std::function<void()>& f, int repeat) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeat;
}

struct Medians {
  double ours, theirs;
};
inline Medians medians(const std::function<void()>& ours, const std::function<void()>& theirs, int repeat, int rounds = 31) {
  std::vector<double> a, b;
  seconds(ours, 5), seconds(theirs, 5);
  runtime::wait_for_optimised();
  for (int round = 0; round < rounds; ++round) a.push_back(seconds(ours, repeat)), b.push_back(seconds(theirs, repeat));
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return {a[a.size() / 2], b[b.size() / 2]};
}

/// Of `n` elements. `target`: what theirs / ours should reach.
inline void compare(const char* name, std::int64_t n, const std::function<void()>& ours, const std::function<void()>& theirs,
                    double target) {
  const Medians m = medians(ours, theirs, static_cast<int>(std::max<std::int64_t>(1, 2'000'000 / n)), n > 2'000'000 ? 9 : 31);
  const double size = static_cast<double>(n);
  std::printf("%-44s %7.4f ns/element, against %7.4f: %.2f (%.2f wanted)\n", name, m.ours / size * 1e9, m.theirs / size * 1e9,
              m.theirs / m.ours, target);
}

}  // namespace onepass::bench
