// The loops of a value's expression that contains reductions or scans. Used by fuse.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/axis_symbols.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// Reduction space: the operand axes of the reductions and scans (as symbols, without axes of extent 1). Records which axes are reduced or
/// scanned, and the position of each axis of the value among them.
struct Rows {
  struct Axis {
    std::int8_t at = -1;     // position in `axes`; -1: the value does not depend on this axis
    std::uint8_t count = 1;  // consecutive positions that it spans: more than 1 if a reshape merged them
    bool flipped = false;    // reversed; only set for kept axes, since a reduced axis may be read in any order
    bool operator==(const Axis&) const = default;
    std::uint64_t bits() const { return at < 0 ? 0 : ((std::uint64_t{1} << count) - 1) << at; }
  };
  bool any = false;
  // Fused column reductions: they reduce axes that other reductions of the value keep. Only consumers with one element for each column may
  // follow.
  bool columns = false;
  // A reduction over axes outside of few columns. Its loop over the columns has few lanes in use, so that it shares a kernel neither with
  // costly operators nor with a loop over all elements.
  bool few_columns = false;
  std::uint8_t sweeps = 0;  // chained reductions that the value needs
  std::uint32_t cost = 0;   // operations on each element since the values in memory, along the longest chain
  std::vector<std::uint32_t> axes;
  std::uint64_t reduced = 0;
  std::uint64_t scanned = 0;
  ir::Op order = ir::Op::Input;  // a contraction's own operator: it differs from sums over the same axes in its summation order
  ir::NodeId product = kNone;    // the contraction, for a matrix product; a kernel with several products could not run in tiles
  std::vector<Axis> at;          // by axis of the node
  static constexpr ir::NodeId kNone = ~ir::NodeId{0};
};

/// True if both have the same loops, whatever the order of the values' own axes.
bool same_rows(const Rows& a, const Rows& b);
/// Adds the axes of `in` to the axes of `rows`; both values have one shape. Returns false, with `rows` unspecified, if they differ along an
/// axis or if one position would correspond to two axes, as in `a[:, none] - a`.
bool join_axes(Rows& rows, const Rows& in);
/// True if one reduction reduces the first axes and the other reduces all following axes.
bool are_columns(std::uint64_t first, std::uint64_t rest, std::uint64_t all);
/// True if the value's axes are in reduction-space order.
bool in_order(const Rows& rows);
/// True for results of reductions over the first axes only: one element for each index of the other axes.
bool has_one_a_column(const Rows& rows);
/// True if the value varies along every axis it has, and along all kept axes or all axes of the reduction space.
bool covers(const Rows& rows, ir::List shape);
/// Sets `out.at` for a reshape from `was` to `shape`. The reshape may add or drop axes of extent 1, merge consecutive axes of the reduction
/// space and split them again. Returns false if a new axis does not match the reduction space.
bool reshape_rows(const Rows& in, ir::List was, Rows& out, ir::List shape, const AxisSymbols& symbols);

}  // namespace onepass::compiler
