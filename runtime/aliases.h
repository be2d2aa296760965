// Overlap of the arrays of a call, and its consequences for the destinations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/launch.h"
#include "runtime/memory.h"

namespace onepass::runtime {

/// True if arrays with element (0, …, 0) at `a` and `b` have a byte in common.
inline bool overlap(const std::byte* a, const ArrayPlan& x, const std::byte* b, const ArrayPlan& y) {
  const auto p = reinterpret_cast<std::uintptr_t>(a), q = reinterpret_cast<std::uintptr_t>(b);
  const auto low = [](std::uintptr_t at, std::int64_t by) { return at + static_cast<std::uintptr_t>(by); };
  return x.low != x.high && y.low != y.high && low(p, x.low) < low(q, y.high) && low(q, y.low) < low(p, x.high);
}

/// Memory for an output that cannot be written to its destination directly. It is copied there after all kernels have run.
struct Temporary {
  std::size_t output;
  memory::Buffer buffer;
  std::byte* target;
};

/// Throws ValueError if destinations overlap each other.
void check_targets(const LaunchPlan& plan, std::byte* const* bases);
/// Throws ValueError if destinations overlap each other. Replaces a destination in `bases` by a temporary if it overlaps an argument, or
/// if the kernels do not write its strides.
void resolve_aliases(const LaunchPlan& plan, std::byte** bases, std::vector<Temporary>& temporaries);
/// Copies the temporaries to their destinations. Call it after all kernels have run.
void copy_out(const LaunchPlan& plan, std::byte* const* bases, std::span<const Temporary> temporaries);
std::int64_t bytes_of(std::span<const Temporary> temporaries);

}  // namespace onepass::runtime
