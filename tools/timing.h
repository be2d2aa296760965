// Timing of calls in the command, the contender and the examples. Calls are timed one at a time. If they are too short for the clock, they
// are timed in batches of about 200 µs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace onepass {

inline double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Timing {
  std::int64_t calls = 0;
  double median = 0, minimum = 0;  // seconds
};

/// Returns a sorted sample's value at the fraction `part` of its length.
inline double quantile(const std::vector<double>& sorted, double part) {
  const auto i = static_cast<std::size_t>(part * static_cast<double>(sorted.size()));
  return sorted[std::min(i, sorted.size() - 1)];
}

/// Calls shorter than this, in seconds, are timed in batches.
inline constexpr double kShortCall = 50e-6;

/// Returns the number of calls in a batch: 1 for calls of kShortCall and longer. Runs a few calls to find out.
template <class Call> std::int64_t batch_size(Call&& call) {
  double begin = seconds_now();
  call();
  double each = seconds_now() - begin;
  if (each >= kShortCall) return 1;
  for (int round = 0; round < 2; ++round) {
    begin = seconds_now();
    for (int i = 0; i < 20; ++i) call();
    each = (seconds_now() - begin) / 20;
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(200e-6 / std::max(each, 1e-9)));
}

/// Runs the call for about `seconds`, at least three times. Sets `samples` to the seconds for each call, sorted.
template <class Call> Timing time_calls(Call&& call, double seconds, std::int64_t batch, std::vector<double>& samples) {
  samples.clear();
  const double end = seconds_now() + seconds;
  for (;;) {
    const double begin = seconds_now();
    for (std::int64_t i = 0; i < batch; ++i) call();
    const double now = seconds_now();
    samples.push_back((now - begin) / static_cast<double>(batch));
    if (now > end && (batch > 1 || samples.size() >= 3)) break;
  }
  std::sort(samples.begin(), samples.end());
  return {static_cast<std::int64_t>(samples.size()) * batch, quantile(samples, 0.5), samples.front()};
}

}  // namespace onepass
