// Places intermediates of a call in one arena, or in the memory of a result that is not written yet. Uses only the lifetimes of the
// buffers; runtime/make_launches.cpp supplies the kernels. Each call signature is planned once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace onepass::runtime {

/// A value that kernel `written` writes and kernel `last_read` reads last.
struct Intermediate {
  std::int64_t bytes = 0;
  std::uint32_t written = 0, last_read = 0;
};

/// A donor buffer: a result's memory until kernel `written` writes it. `bytes` is 0 if its layout has gaps, which excludes it.
struct Lender {
  std::int64_t bytes = 0;
  std::uint32_t written = 0;
};

struct Place {
  static constexpr std::uint32_t kBlock = ~std::uint32_t{0};
  std::uint32_t lender = kBlock;
  std::int64_t offset = 0;  // in the arena; 0 in a donor buffer
};

struct WorkspacePlan {
  std::vector<Place> places;  // one for each intermediate
  std::int64_t bytes = 0;     // size of the arena
};

/// Function: true if the kernel that writes `by` reads each element of `old` before it overwrites that element, so that both may use the
/// same memory. `by` is an intermediate (or, from intermediates.size() on, a donor buffer). `old` is an intermediate whose last reader
/// writes `by`.
using MayOverwrite = std::function<bool(std::size_t by, std::size_t old)>;

/// Plans the memory. `intermediates` must be sorted by the kernel that writes them. Offsets are multiples of 64.
WorkspacePlan plan_workspace(std::span<const Intermediate> intermediates, std::span<const Lender> lenders,
                             const MayOverwrite& may_overwrite);

}  // namespace onepass::runtime
