// What a value's expression loops over when it holds reductions or scans. For fuse.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/axis_symbols.h"
#include "ir/graph.h"

namespace onepass::compiler {

/// The axes of the operand of the reductions and scans (as symbols, units left out), which of them are reduced or scanned, and where each
/// axis of the value lies among them.
struct Rows {
  struct Axis {
    std::int8_t at = -1;     // position in `axes`; -1: the value does not depend on this axis
    std::uint8_t count = 1;  // consecutive positions that it runs along: above 1 where a reshape merged them
    bool flipped = false;    // backwards. Of kept axes only: along a reduced one a value may be read in any order
    bool operator==(const Axis&) const = default;
    std::uint64_t bits() const { return at < 0 ? 0 : ((std::uint64_t{1} << count) - 1) << at; }
  };
  bool any = false;
  bool columns = false;  // reductions over the axes that other reductions in the value keep: only what has one element for each may follow
  std::uint8_t sweeps = 0;  // reductions, one behind the other, that the value needs
  std::vector<std::uint32_t> axes;
  std::uint64_t reduced = 0;
  std::uint64_t scanned = 0;
  ir::Op order = ir::Op::Input;  // of a contraction: itself. Its order of summation is other than that of sums over the same axes
  ir::NodeId product = kNone;    // of a product of matrices: its contraction. A kernel has no second one: it would not run in tiles
  std::vector<Axis> at;          // of each axis of the node
  static constexpr ir::NodeId kNone = ~ir::NodeId{0};
};

/// The same loops, whatever order the values' own axes have.
bool same_rows(const Rows& a, const Rows& b);
/// Adds the axes of `in` to those of `rows`, which are of a value of the same shape. False, `rows` unspecified, where they differ along an axis,
/// or where a position of the rows would lie along two axes: `a[:, none] - a` of a row a varies along each of its axes on its own.
bool join_axes(Rows& rows, const Rows& in);
/// Does one reduction take the first axes and the other all that follow?
bool are_columns(std::uint64_t first, std::uint64_t rest, std::uint64_t all);
/// Do the value's axes follow each other as those of the rows do?
bool in_order(const Rows& rows);
/// A result of a reduction over the first axes, or of several such: one element for each place along the others.
bool has_one_a_column(const Rows& rows);
/// Does the value vary along every axis it has, and along all of the rows' kept axes or all axes?
bool covers(const Rows& rows, ir::List shape);
/// Fills `out.at` in for a reshape from `was` to `shape`. Units come and go; axes that follow each other in the rows are merged, and such
/// ones split again. False: the new axes are none of the rows'.
bool reshape_rows(const Rows& in, ir::List was, Rows& out, ir::List shape, const AxisSymbols& symbols);

}  // namespace onepass::compiler
