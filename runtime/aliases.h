// Which arrays of a call lie over one another, and what that means for its targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/launch.h"
#include "runtime/memory.h"

namespace onepass::runtime {

/// Do arrays whose elements (0, …, 0) are at `a` and `b` share a byte?
inline bool overlap(const std::byte* a, const ArrayPlan& x, const std::byte* b, const ArrayPlan& y) {
  const auto p = reinterpret_cast<std::uintptr_t>(a), q = reinterpret_cast<std::uintptr_t>(b);
  const auto low = [](std::uintptr_t at, std::int64_t by) { return at + static_cast<std::uintptr_t>(by); };
  return x.low != x.high && y.low != y.high && low(p, x.low) < low(q, y.high) && low(q, y.low) < low(p, x.high);
}

/// What an output is computed into when it cannot go to its target at once; copied there when everything is computed.
struct Temporary {
  std::size_t output;
  memory::Buffer buffer;
  std::byte* target;
};

/// Targets against each other: an error.
void check_targets(const LaunchPlan& plan, std::byte* const* bases);
/// Targets against each other: an error. Targets against arguments, or with strides that the kernels do not write: a temporary, which takes
/// the target's place in `bases`.
void resolve_aliases(const LaunchPlan& plan, std::byte** bases, std::vector<Temporary>& temporaries);
/// To the targets, when everything is computed.
void copy_out(const LaunchPlan& plan, std::byte* const* bases, std::span<const Temporary> temporaries);
std::int64_t bytes_of(std::span<const Temporary> temporaries);

}  // namespace onepass::runtime
