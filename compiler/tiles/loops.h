// Loops over a tile, a few hundred elements that stay in the first-level cache: what a TileProgram (tiles.h) is made of. Those of one
// primitive, or of two, and those that reductions are made of. They are compiled from the `meaning` column of ops.def, once for each
// instruction set, so that they give the kernels' bits.
#pragma once

#include <cstdint>

#include "compiler/target.h"
#include "ir/ops.h"

namespace onepass::compiler {

/// y[i] = op(a[i], b[i], c[i]) for 0 <= i < n. y may be one of the operands; arrays otherwise do not overlap. bool is a byte, 0 or 1.
using TileLoop = void (*)(const void* a, const void* b, const void* c, void* y, std::int64_t n);

/// The loop of a primitive. `from`: the type of the last operand, which is that of all of them but the condition of where; `uniform`: bit i
/// is set where operand i is one element that counts for all. Null where there is none: halves, integers below 32 bits, long divisions.
TileLoop tile_loop(ir::Op op, DType from, DType to, unsigned uniform, const Target& target);

/// Two primitives in one loop, so that what lies between them stays in a register.
struct TilePair {
  ir::Op first, second;
  bool behind;  // y = second(c, first(a, b)), else second(first(a, b), c)
};
/// Of operands of one type. Null where there is none: both must be sums, differences, products or quotients of floats; a or b is a tile, a
/// where they may be exchanged.
TileLoop tile_pair(TilePair pair, DType dtype, unsigned uniform, const Target& target);

/// Bits of a half to the f32 that they are, or `to_half` the nearest bits to an f32.
TileLoop tile_half(DType half, bool to_half, const Target& target);

/// What a reduction combines with. A contraction adds products, by fma where they are floats.
enum class FoldKind : std::uint8_t { Sum, Product, Maximum, Minimum, Contraction };

/// Lanes of a block in the order of summation (ir/order.h).
constexpr std::int64_t lanes_of(DType dtype) { return size_of(dtype) == 8 ? 32 : 64; }

/// A contraction's rows: sums[r][j] = fma(x[r][k], y[k][j], sums[r][j]) for 0 <= k < length in sequence, all 0 <= r < rows, 0 <= j < n.
/// Elements of y and of sums lie side by side in j; other distances are given, in elements.
struct Chain {
  const void* x;
  std::int64_t x_row, x_step;
  const void* y;
  std::int64_t y_step;
  void* sums;
  std::int64_t sums_row;
  std::int64_t rows, length, n;
};

/// The parts of one reduction, or of one scan, of elements of one type.
struct FoldLoops {
  /// Lane (first + i) % lanes_of(dtype) takes a[i], of a contraction the product of a[i] and b[i], for 0 <= i < n in sequence.
  void (*take)(void* lanes, const void* a, const void* b, std::int64_t first, std::int64_t n) = nullptr;
  /// Lanes are combined by halving: lane 0 has the result.
  void (*halve)(void* lanes) = nullptr;
  /// y[r]: the reduction of elements r * n .. (r + 1) * n of a, of a contraction of the products with those of b, in one block of lanes, for
  /// 0 <= r < rows. The lanes stay in registers.
  void (*whole)(void* y, const void* a, const void* b, std::int64_t n, std::int64_t rows) = nullptr;
  /// sums[i] = below[i] combined with sums[i].
  void (*combine)(const void* below, void* sums, std::int64_t n) = nullptr;
  /// sums[i] is combined with the tree of the i-th elements of eight rows. Null of a contraction.
  void (*eight)(void* sums, const void* const* rows, std::int64_t n) = nullptr;
  /// The same for `groups` groups of eight rows one after the other, `step` elements from row to row. Sums stay in registers.
  void (*eights)(void* sums, const void* first, std::int64_t step, std::int64_t groups, std::int64_t n) = nullptr;
  /// Of a contraction alone: these, and sums[i] = fma(a[i], b[i], sums[i]).
  void (*chain)(const Chain& chain) = nullptr;
  void (*multiply)(const void* a, const void* b, void* sums, std::int64_t n) = nullptr;
  /// A scan in groups of 16 that begin at the first element: y[i] = base with (carry with the group's), carry takes the groups. `state` is
  /// the carry, and the base 8 bytes behind it. Null of a contraction.
  void (*scan)(const void* x, void* y, void* state, std::int64_t n) = nullptr;
  explicit operator bool() const { return take != nullptr; }
};
/// All null where there are none: halves, integers below 32 bits, contractions where the instruction set has no fma.
FoldLoops fold_loops(FoldKind kind, DType dtype, const Target& target);

/// Copies and counting.
struct MoveLoops {
  /// to[r * n + j] = from[r + j * step] for 0 <= r < rows, 0 <= j < n: elements of 4 and of 8 bytes.
  void (*transpose4)(void* to, const void* from, std::int64_t step, std::int64_t rows, std::int64_t n);
  void (*transpose8)(void* to, const void* from, std::int64_t step, std::int64_t rows, std::int64_t n);
  /// y[i] = first + step * i.
  void (*count)(std::int64_t* y, std::int64_t first, std::int64_t step, std::int64_t n);
};
const MoveLoops& move_loops(const Target& target);

TileLoop tile_loop_avx512(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_loop_avx2(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_loop_baseline(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_pair_avx512(TilePair pair, DType dtype, unsigned uniform);
TileLoop tile_pair_avx2(TilePair pair, DType dtype, unsigned uniform);
TileLoop tile_pair_baseline(TilePair pair, DType dtype, unsigned uniform);
TileLoop tile_half_avx512(DType half, bool to_half);
TileLoop tile_half_avx2(DType half, bool to_half);
TileLoop tile_half_baseline(DType half, bool to_half);
const MoveLoops& move_loops_avx512();
const MoveLoops& move_loops_avx2();
const MoveLoops& move_loops_baseline();
FoldLoops fold_loops_avx512(FoldKind kind, DType dtype);
FoldLoops fold_loops_avx2(FoldKind kind, DType dtype);
FoldLoops fold_loops_baseline(FoldKind kind, DType dtype);

}  // namespace onepass::compiler
