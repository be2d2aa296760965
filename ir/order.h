// The order of summation (docs/language.md) as a description: how the elements that a reduction adds are numbered, and how these numbers
// are grouped. The reference follows it to the letter and plans are made from it; nothing else knows it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "onepass/dtype.h"

namespace onepass::ir {

inline constexpr std::int64_t kLaneBlock = 4096;  // consecutive r that the lanes of one block take
inline constexpr std::int64_t kRowBlock = 256;    // consecutive r of a block of rows
inline constexpr std::int64_t kRowGroup = 8;      // consecutive r added as a tree

/// How one element of the result is summed. r numbers the reduced elements in row-major order of the reduced axes, missing ones included.
///   lanes  in a block, element r is added to lane r % lane_count in increasing r; lanes are combined by halving
///   rows   in a block, kRowGroup consecutive r form a tree; the trees are added in sequence
/// The sum is the tree of the blocks. Missing elements and the start of every accumulator are -0 (1 in a product); of nothing it is +0.
struct SumOrder {
  bool lanes;                  // the last axis of extent above 1 is reduced; also where there is none
  int last_kept_between = -1;  // s: the last kept axis of extent above 1 between reduced axes of extent above 1; -1: there is none
  std::int64_t runs;           // runs in r; 1 where there is no s
  std::int64_t run;            // elements of one run: of the reduced axes behind s; all of them where there is none
  std::int64_t padded_run;     // with its missing elements, which stand at its end
  std::int64_t count;          // runs * padded_run: r counts from 0 to here
  std::int64_t lane_count;     // 64, for f64 32
  std::int64_t block;          // kLaneBlock or kRowBlock
  std::int64_t blocks;         // of the last one the end may be absent

  /// The number of the i-th element that is not missing.
  constexpr std::int64_t r_of(std::int64_t i) const { return padded_run == run ? i : i / run * padded_run + i % run; }
  bool operator==(const SumOrder&) const = default;
};

/// Runs are filled to a power of two below `multiple`, to a multiple of it from there on.
constexpr std::int64_t filled(std::int64_t run, std::int64_t multiple) {
  if (run == 0) return 0;
  if (run < multiple) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(run)));
  return (run + multiple - 1) / multiple * multiple;
}

/// `axes` increasing. `accumulator` is the type that is added in: f32 for halves too. Integers have any order; theirs is described alike.
constexpr SumOrder sum_order(std::span<const std::int64_t> shape, std::span<const std::int64_t> axes, DType accumulator) {
  SumOrder order{};
  order.lane_count = accumulator == DType::F64 ? 32 : 64;
  order.lanes = true;
  const auto is_reduced = [&](std::size_t axis) { return std::ranges::find(axes, static_cast<std::int64_t>(axis)) != axes.end(); };
  bool reduced_before = false;   // a reduced axis above 1 has been seen
  std::int64_t kept_since = -1;  // the last kept axis above 1 seen after one
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

/// The same of a contraction: lanes add as above, rows of a block in sequence, one by one; nothing is missing.
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

inline constexpr std::int64_t kScanBlock = 4096;  // elements through which the carry of a scan runs
inline constexpr std::int64_t kScanGroup = 16;    // of a group whose sums are made in steps of 1, 2, 4, 8

/// Along the last axis of extent above 1 a scan goes in groups of kScanGroup, along another in groups of one.
constexpr bool scans_in_groups(std::span<const std::int64_t> shape, std::int64_t axis) {
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < shape.size(); ++i)
    if (shape[i] > 1) return false;
  return true;
}

/// tree(n) is tree(first k) + tree(rest): k, the largest power of two below n (n at least 2).
constexpr std::int64_t tree_split(std::int64_t n) { return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n - 1))); }

}  // namespace onepass::ir
