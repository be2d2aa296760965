// The order of summation (docs/language.md) as data: how the elements of a reduction are numbered, and how these numbers are grouped. The
// reference interpreter follows it literally, and plans are made from it. It is the only definition of the order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "onepass/dtype.h"

namespace onepass::ir {

inline constexpr std::int64_t kLaneBlock = 4096;  // consecutive r in one block of the lanes
inline constexpr std::int64_t kRowBlock = 256;    // consecutive r in one block of rows
inline constexpr std::int64_t kRowGroup = 8;      // consecutive r added as a tree

/// The order in which one element of the result is summed. r numbers the reduced elements, including padding, in row-major order of the
/// reduced axes.
///   lanes  in a block, element r is added to lane r % lane_count in increasing r; lanes are combined by halving
///   rows   in a block, kRowGroup consecutive r form a tree; the trees are added in sequence
/// The sum is a tree over the blocks. Padding and the start of every accumulator are -0 (1 in a product). The sum of no elements is +0.
struct SumOrder {
  bool lanes;                  // the last axis of extent above 1 is reduced, or no such axis exists
  int last_kept_between = -1;  // s: the last kept axis between reduced axes, counting extents above 1; -1: absent
  std::int64_t runs;           // runs in r; 1 without s
  std::int64_t run;            // elements of one run: along the reduced axes after s; all elements without s
  std::int64_t padded_run;     // length with padding, which is at the end
  std::int64_t count;          // runs * padded_run: r counts from 0 to here
  std::int64_t lane_count;     // 64, or 32 for f64
  std::int64_t block;          // kLaneBlock or kRowBlock
  std::int64_t blocks;         // the last block may be incomplete

  /// Returns the number r of the i-th element, not counting padding.
  constexpr std::int64_t r_of(std::int64_t i) const { return padded_run == run ? i : i / run * padded_run + i % run; }
  bool operator==(const SumOrder&) const = default;
};

/// Returns the padded length of a run: a power of two below `multiple`, otherwise a multiple of it.
constexpr std::int64_t filled(std::int64_t run, std::int64_t multiple) {
  if (run == 0) return 0;
  if (run < multiple) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(run)));
  return (run + multiple - 1) / multiple * multiple;
}

/// Returns the order of a sum. `axes` must be increasing. `accumulator` is the type of the additions, f32 for halves. Integers may be added
/// in any order; they get a description too.
constexpr SumOrder sum_order(std::span<const std::int64_t> shape, std::span<const std::int64_t> axes, DType accumulator) {
  SumOrder order{};
  order.lane_count = accumulator == DType::F64 ? 32 : 64;
  order.lanes = true;
  const auto is_reduced = [&](std::size_t axis) { return std::ranges::find(axes, static_cast<std::int64_t>(axis)) != axes.end(); };
  bool reduced_before = false;   // a reduced axis longer than 1 was found
  std::int64_t kept_since = -1;  // the last kept axis longer than 1 after that axis
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] <= 1) continue;
    order.lanes = is_reduced(axis);
    if (order.lanes) {
      reduced_before = true;
      if (kept_since >= 0) order.last_kept_between = static_cast<int>(kept_since);
    } else if (reduced_before) {
      kept_since = static_cast<std::int64_t>(axis);
    }
  }
  order.runs = order.run = 1;
  for (const std::int64_t axis : axes) (axis < order.last_kept_between ? order.runs : order.run) *= shape[static_cast<std::size_t>(axis)];
  order.padded_run = order.run;
  if (order.last_kept_between >= 0) order.padded_run = filled(order.run, order.lanes ? order.lane_count : kRowGroup);
  order.count = order.runs * order.padded_run;
  order.block = order.lanes ? kLaneBlock : kRowBlock;
  order.blocks = (order.count + order.block - 1) / order.block;
  return order;
}

/// Returns the order of a contraction. Lanes add as above; the rows of a block are added in sequence, one by one. There is no padding.
constexpr SumOrder contract_order(std::span<const std::int64_t> shape, std::span<const std::int64_t> axes, DType accumulator, bool lanes) {
  SumOrder order{};
  order.lane_count = accumulator == DType::F64 ? 32 : 64;
  order.lanes = lanes;
  order.runs = order.run = 1;
  for (const std::int64_t axis : axes) order.run *= shape[static_cast<std::size_t>(axis)];
  order.padded_run = order.count = order.run;
  order.block = lanes ? kLaneBlock : kRowBlock;
  order.blocks = (order.count + order.block - 1) / order.block;
  return order;
}

inline constexpr std::int64_t kScanBlock = 4096;  // elements over which a scan carries its sum
inline constexpr std::int64_t kScanGroup = 16;    // elements of a group whose sums are computed in steps of 1, 2, 4, 8

/// True if a scan uses groups of kScanGroup: along the last axis of extent above 1. Along other axes its groups have one element.
constexpr bool scans_in_groups(std::span<const std::int64_t> shape, std::int64_t axis) {
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < shape.size(); ++i)
    if (shape[i] > 1) return false;
  return true;
}

/// Returns k in tree(n) = tree(first k) + tree(rest): the largest power of two below n (n at least 2).
constexpr std::int64_t tree_split(std::int64_t n) { return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n - 1))); }

}  // namespace onepass::ir
