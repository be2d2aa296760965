// Where a kernel's scratch memory goes, and what each sweep computes: shared by the schedule, which asks for the bytes, and the emitters.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

inline constexpr std::uint32_t kTreeLevels = 48;   // of the tree of blocks: 2^48 blocks
inline constexpr std::uint32_t kColumnLevels = 3;  // of the tree of eight rows of columns: sums of one, two and four rows
/// Of a split schedule, each item's reductions: the k-th of them (in the order of the body) of item i stands at word `shared`, in element
/// i * reductions + k; for rows the element is a row of ScratchLayout::unit elements.
inline constexpr std::int64_t kPartialBytes = 8;

/// For each sweep, the statements it computes (or reads back, where an earlier sweep kept them).
std::vector<std::vector<bool>> needed_by_sweep(const Nest& nest, const std::vector<std::uint32_t>& kept);

/// Many numbers of a call (slots of the plan) would only be spilled from registers, and a broadcast at each use is most of what a quick
/// compile costs. So the quick tier begins with a loop that writes a vector of each to scratch; the optimised tier broadcasts in its
/// instructions, which costs nothing to run.
struct SpreadSlots {
  static constexpr std::size_t kFew = 8;  // as many are held in registers
  bool any = false;
  std::size_t element = 0;  // bytes; slots of other sizes are broadcast
  std::uint32_t each = 0;   // bytes of a vector
  std::uint32_t bytes = 0;  // of all, a multiple of 64
  SpreadSlots(const Nest& nest, const Schedule& schedule);
  bool holds(DType dtype, int width) const { return any && size_of(dtype) == element && static_cast<std::size_t>(width) * element <= each; }
};

/// Of a nest of short rows: what is the same in every row is computed once, for all places in a row and more than a vector behind them, so
/// that a vector beginning at any place is one load. So are the places themselves and the rows (relative to the vector's first), in 32 bits.
struct RowPatterns {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> at;       // of each statement: where its pattern begins, in bytes; kNone: it has none
  std::uint32_t places = 0, rows = 0;  // where these begin
  std::uint32_t bytes = 0;             // of all, a multiple of 64; 0: no short rows
  RowPatterns(const Nest& nest, const Schedule& schedule);
};

/// Of a body in parts: what a later part reads, for a block of elements and a vector behind it.
struct PassedOn {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> at;  // of each statement: where its block begins, in bytes; kNone: no other part reads it
  std::uint32_t bytes = 0;        // of all, a multiple of 64
  PassedOn(const Nest& nest, const Schedule& schedule);
};

/// The vectors of the spread slots come first, then the patterns of short rows, then what parts of a body pass on. Then slots in units: a slot at k begins k * unit bytes behind them.
struct ScratchLayout {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> kept;    // of Schedule::kept
  std::vector<std::uint32_t> values;  // rows: of each statement that is a row in scratch (reductions and what sweeps read of them); columns
  std::vector<std::uint32_t> temporaries;  // rows: eight rows before their tree; columns: kColumnLevels rows
  std::vector<std::uint32_t> stacks;       // rows: the tree of blocks
  std::uint32_t total = 0;
  SpreadSlots spread;
  RowPatterns patterns;
  PassedOn passed_on;

  ScratchLayout(const Nest& nest, const Schedule& schedule);
  static bool sums(const Statement& s) { return s.op == ir::Op::ReduceSum || s.op == ir::Op::ReduceProd; }
  /// Elements of one row: bytes of a slot are unit * its elements' size.
  static std::int64_t unit(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule);
  /// Of all that a thread needs, of a program as of the emitters' slots.
  static std::int64_t bytes(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, const ScheduleNumbers& n);
  /// Of the packed tiles, whose program lays them out (compiler/loops/policy.h).
  static std::int64_t packed_bytes(const Nest& nest, const Schedule& schedule, const ScheduleNumbers& numbers);
  /// Elements of the squares that are turned in registers; of what a row of the tile is a multiple, so that its last vector ends inside.
  static std::int64_t packed_side(const Nest& nest, const Schedule& schedule, std::uint32_t access);
  static std::int64_t packed_row(const Nest& nest, const Schedule& schedule, std::uint32_t access);
};

}  // namespace onepass::compiler
