// Times two implementations alternately. On a machine with varying speed, only their ratio is measurable.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <vector>

#include <onepass/onepass.h>

namespace onepass::bench {

inline double seconds(const std::function<void()>& f, int repeat) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeat;
}

/// Returns the processor time of the calling thread, in seconds.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline Options in_mode(Mode mode) {
  Options options;
  options.mode = mode;
  return options;
}

/// Returns values from -scale to scale, the same in each run.
inline Array random_floats(const std::vector<std::int64_t>& shape, float scale = 1) {
  Array x = Array::empty(shape, f32);
  std::mt19937 random(7);
  for (float& v : x.span<float>()) v = scale * (static_cast<float>(random()) * 0x1p-31f - 1.0f);
  return x;
}

/// Times the functions alternately. Returns the median seconds per call of each function.
inline std::vector<double> medians(const std::vector<std::function<void()>>& ways, int repeat, int rounds = 31) {
  std::vector<std::vector<double>> times(ways.size());
  for (const auto& way : ways) seconds(way, 5);
  wait_until_optimized();
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) times[i].push_back(seconds(ways[i], repeat));
  std::vector<double> out;
  for (std::vector<double>& t : times) {
    std::sort(t.begin(), t.end());
    out.push_back(t[t.size() / 2]);
  }
  return out;
}

/// Compares times per element, for `n` elements. `target`: desired ratio theirs / ours.
inline void compare(const char* name, std::int64_t n, const std::function<void()>& ours, const std::function<void()>& theirs,
                    double target) {
  const std::vector<double> m = medians({ours, theirs}, static_cast<int>(std::max<std::int64_t>(1, 2'000'000 / n)), n > 2'000'000 ? 9 : 31);
  const double size = static_cast<double>(n);
  std::printf("%-44s %7.4f ns/element, against %7.4f: %.2f (%.2f wanted)\n", name, m[0] / size * 1e9, m[1] / size * 1e9, m[1] / m[0],
              target);
}

}  // namespace onepass::bench
