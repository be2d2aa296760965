// Layout of a kernel's scratch memory, and the statements of each sweep. The schedule uses it to size the memory; the emitters use it for
// addresses.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/schedule.h"

namespace onepass::compiler {

inline constexpr std::uint32_t kTreeLevels = 48;   // levels of the pairwise tree of blocks: up to 2^48 blocks
inline constexpr std::uint32_t kColumnLevels = 3;  // levels of the tree over eight rows of columns: sums of one, two and four rows
/// Bytes of a partial result of a split reduction. Partial results are at kernel parameter `shared`. The k-th reduction in the body has
/// element i * reductions + k in task i; for Rows nests the element is a row of ScratchLayout::unit elements.
inline constexpr std::int64_t kPartialBytes = 8;

/// Returns, for each sweep, the statements that it computes or reads back from the row buffers of an earlier sweep.
std::vector<std::vector<bool>> needed_by_sweep(const Nest& nest, const std::vector<std::uint32_t>& kept, bool finds = false);

/// Splatted parameters. Many scalar parameters would be spilled from registers, and broadcasting each use takes most of a baseline compile.
/// Baseline code therefore starts with a loop that writes a vector of each parameter to scratch. Optimized code broadcasts inside its
/// instructions at no run-time cost.
struct SpreadSlots {
  static constexpr std::size_t kFew = 8;  // this many fit in registers
  bool any = false;
  std::size_t element = 0;  // bytes; parameters of other sizes are broadcast
  std::uint32_t each = 0;   // bytes of a vector
  std::uint32_t bytes = 0;  // total, a multiple of 64
  SpreadSlots(const Nest& nest, const Schedule& schedule);
  bool holds(DType dtype, int width) const { return any && size_of(dtype) == element && static_cast<std::size_t>(width) * element <= each; }
};

/// Replicated-row buffers of a nest with short rows. Values that repeat in every row are computed once, for all columns of a row and for
/// more than one vector of columns after them. A vector that starts at any column is then one load. Column numbers and row numbers
/// (relative to the vector's first row) have such buffers too, in 32 bits.
struct RowPatterns {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> at;       // by statement: byte offset of its replicated-row buffer; kNone: it has none
  std::uint32_t places = 0, rows = 0;  // byte offsets of column and row numbers
  std::uint32_t bytes = 0;             // total, a multiple of 64; 0: no short rows
  RowPatterns(const Nest& nest, const Schedule& schedule);
};

/// Values that fissioned loops pass to later loops, for a block of elements and a vector after it.
struct PassedOn {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> at;  // by statement: byte offset of its block; kNone: no other loop reads it
  std::uint32_t bytes = 0;        // total, a multiple of 64
  PassedOn(const Nest& nest, const Schedule& schedule);
};

/// Scratch layout: splatted parameters first, then replicated-row buffers, then values that fissioned loops pass on. Slots follow; a slot
/// with offset k begins k * unit bytes after them.
struct ScratchLayout {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> kept;  // by entry of Schedule::kept
  // By statement, in Rows nests: the row of a reduction or of a value that later sweeps read. In Lanes nests: the fused columns.
  std::vector<std::uint32_t> values;
  std::vector<std::uint32_t> temporaries;  // Rows: eight rows before their tree; columns: kColumnLevels rows
  std::vector<std::uint32_t> stacks;       // Rows: accumulator stack of the pairwise tree
  std::uint32_t total = 0;
  SpreadSlots spread;
  RowPatterns patterns;
  PassedOn passed_on;

  ScratchLayout(const Nest& nest, const Schedule& schedule);
  static bool sums(const Statement& s) { return s.op == ir::Op::ReduceSum || s.op == ir::Op::ReduceProd; }
  /// Returns the elements of one row. A slot has unit times element size bytes.
  static std::int64_t unit(const Nest& nest, const NestNumbers& numbers, const ScheduleNumbers& schedule);
  /// Returns the scratch bytes that a thread needs, for loop programs as well as for emitters.
  static std::int64_t bytes(const Nest& nest, const Schedule& schedule, const NestNumbers& numbers, const ScheduleNumbers& n);
  /// Returns the bytes of the packed operand tiles; their loop program lays them out (compiler/loops/policy.h).
  static std::int64_t packed_bytes(const Nest& nest, const Schedule& schedule, const ScheduleNumbers& numbers);
  /// packed_side() returns the side, in elements, of the squares that are transposed in registers. packed_row() returns the multiple that a
  /// tile row is rounded up to, so that its last vector stays inside.
  static std::int64_t packed_side(const Nest& nest, const Schedule& schedule, std::uint32_t access);
  static std::int64_t packed_row(const Nest& nest, const Schedule& schedule, std::uint32_t access);
};

}  // namespace onepass::compiler
