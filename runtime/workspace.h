// Where the values that kernels hand to each other lie in a call: in one block, or in the memory of a result that is not written yet. From
// the lives of the buffers alone; runtime/make_launches.cpp knows the kernels. A plan is made once for each call signature.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace onepass::runtime {

/// A value that kernel `written` writes and `last_read` reads last.
struct Intermediate {
  std::int64_t bytes = 0;
  std::uint32_t written = 0, last_read = 0;
};

/// A result's memory until kernel `written` writes it. No bytes: nothing may be stored there, since it has gaps.
struct Lender {
  std::int64_t bytes = 0;
  std::uint32_t written = 0;
};

struct Place {
  static constexpr std::uint32_t kBlock = ~std::uint32_t{0};
  std::uint32_t lender = kBlock;
  std::int64_t offset = 0;  // in the block; 0 in a lender
};

struct WorkspacePlan {
  std::vector<Place> places;  // of the intermediates
  std::int64_t bytes = 0;     // of the block
};

/// Does the kernel that writes `by` read `old` only where it has yet to write, so that both may be one memory? Asked of an intermediate
/// (or, from intermediates.size() on, a lender) and an intermediate whose last reader is the writer of `by`.
using MayOverwrite = std::function<bool(std::size_t by, std::size_t old)>;

/// `intermediates` by the kernel that writes them. Offsets are multiples of 64.
WorkspacePlan plan_workspace(std::span<const Intermediate> intermediates, std::span<const Lender> lenders,
                             const MayOverwrite& may_overwrite);

}  // namespace onepass::runtime
