// See fuse_rows.h.
#include "compiler/fuse_rows.h"

#include <cstddef>

namespace onepass::compiler {

using ir::List;

bool same_rows(const Rows& a, const Rows& b) {
  return a.axes == b.axes && a.reduced == b.reduced && a.scanned == b.scanned && a.order == b.order && a.product == b.product;
}

bool join_axes(Rows& rows, const Rows& in) {
  std::uint64_t present = 0;
  for (std::size_t i = 0; i < in.at.size(); ++i) {
    Rows::Axis& mine = rows.at[i];
    if (mine.at < 0) mine = in.at[i];
    else if (in.at[i].at >= 0 && !(mine == in.at[i])) return false;
    if (present & mine.bits()) return false;
    present |= mine.bits();
  }
  return true;
}

bool are_columns(std::uint64_t first, std::uint64_t rest, std::uint64_t all) {
  return first != 0 && rest != 0 && (first & (first + 1)) == 0 && (first ^ rest) == all && (first & rest) == 0;
}

bool in_order(const Rows& rows) {
  int next = 0;
  for (const Rows::Axis& axis : rows.at) {
    if (axis.at < 0) continue;
    if (axis.at < next) return false;
    next = axis.at + axis.count;
  }
  return true;
}

bool has_one_a_column(const Rows& rows) {
  std::uint64_t present = 0;
  for (const Rows::Axis& axis : rows.at) present |= axis.bits();
  return (present & rows.reduced) == 0;
}

bool covers(const Rows& rows, List shape) {
  std::uint64_t present = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (rows.at[i].at < 0) return false;
    present |= rows.at[i].bits();
  }
  const std::uint64_t all = (std::uint64_t{1} << rows.axes.size()) - 1;
  return present == all || present == (all & ~rows.reduced);
}

bool reshape_rows(const Rows& in, List was, Rows& out, List shape, const AxisSymbols& symbols) {
  out.at.assign(shape.size(), {});
  std::size_t i = 0, j = 0;
  while (i < shape.size() || j < was.size()) {
    if (i < shape.size() && shape[i] == 1) {
      ++i;
      continue;
    }
    if (j < was.size() && was[j] == 1) {
      ++j;
      continue;
    }
    if (i == shape.size() || j == was.size() || shape[i] == 0 || was[j] == 0) {
      if (i < shape.size() && j < was.size() && shape[i] == was[j]) {
        out.at[i++] = in.at[j++];
        continue;
      }
      return false;
    }
    if (shape[i] == was[j]) {
      out.at[i++] = in.at[j++];
      continue;
    }
    Rows::Axis axis = in.at[j];
    if (axis.at < 0 || axis.flipped) return false;
    std::int64_t extent = was[j++];
    if (extent < shape[i]) {
      for (; j < was.size() && extent < shape[i]; extent *= was[j++]) {
        if (was[j] == 1) continue;
        if (in.at[j].at != axis.at + axis.count || in.at[j].flipped) return false;
        axis.count = static_cast<std::uint8_t>(axis.count + in.at[j].count);
      }
      if (extent != shape[i]) return false;
      out.at[i++] = axis;
      continue;
    }
    std::int64_t done = 1;
    for (; i < shape.size() && done < extent; done *= shape[i++]) {
      if (shape[i] == 1) continue;
      Rows::Axis part{axis.at, 0, false};
      std::int64_t e = 1;
      while (e < shape[i] && part.count < axis.count) e *= symbols.extent(in.axes[static_cast<std::size_t>(axis.at + part.count++)]);
      if (e != shape[i]) return false;
      axis.at = static_cast<std::int8_t>(axis.at + part.count);
      axis.count = static_cast<std::uint8_t>(axis.count - part.count);
      out.at[i] = part;
    }
    if (done != extent) return false;
  }
  return true;
}

}  // namespace onepass::compiler
