// Loops over a tile: a few hundred elements that stay in the first-level cache. A TileProgram (tiles.h) consists of them. There are loops
// for one primitive, for two primitives, and for the parts of reductions. They are compiled from the `meaning` column of ops.def, once per
// instruction set, and give the same result bits as kernels.
#pragma once

#include <cstdint>

#include "compiler/target.h"
#include "ir/ops.h"

namespace onepass::compiler {

/// True for integers below 32 bits. Tiles hold them as i32.
constexpr bool is_narrow(DType type) { return type == DType::I8 || type == DType::U8 || type == DType::I16 || type == DType::U16; }

/// Computes y[i] = op(a[i], b[i], c[i]) for 0 <= i < n. y may be one of the operands; other arrays do not overlap. A bool is a byte, 0 or
/// 1.
using TileLoop = void (*)(const void* a, const void* b, const void* c, void* y, std::int64_t n);

/// Returns the loop of a primitive. `from` is the type of the operands (for where, of all but the condition). Bit i of `uniform` is set if
/// operand i is a single element. Returns null for halves. The only loops of narrow integers
/// are their conversions from and to i32.
TileLoop tile_loop(ir::Op op, DType from, DType to, unsigned uniform, const Target& target);

/// Two primitives in one loop. The value between them stays in a register.
struct TilePair {
  ir::Op first, second;
  bool behind;  // true: y = second(c, first(a, b)); false: y = second(first(a, b), c)
};
/// Returns the loop of a pair with operands of one type. Returns null unless both are sums, differences, products or quotients of floats.
/// `a` or `b` must be a tile; if the operator commutes, `a` must be a tile.
TileLoop tile_pair(TilePair pair, DType dtype, unsigned uniform, const Target& target);

/// Returns the loop that converts the bits of halves to f32 values, or with `to_half` f32 values to the bits of the nearest halves.
TileLoop tile_half(DType half, bool to_half, const Target& target);

/// Operation that a reduction combines with. A contraction adds products, with an fma for floats.
enum class FoldKind : std::uint8_t { Sum, Product, Maximum, Minimum, Contraction };

/// Returns the lanes of a block in the order of summation (ir/order.h).
constexpr std::int64_t lanes_of(DType dtype) { return size_of(dtype) == 8 ? 32 : 64; }

/// Rows of a contraction: sums[r][j] = fma(x[r][k], y[k][j], sums[r][j]) for 0 <= k < length in sequence, 0 <= r < rows, 0 <= j < n.
/// Elements of y and of sums are contiguous in j. The other strides are fields, in elements.
struct Chain {
  const void* x;
  std::int64_t x_row, x_step;
  const void* y;
  std::int64_t y_step;
  void* sums;
  std::int64_t sums_row;
  std::int64_t rows, length, n;
};

/// Loops of one reduction, or of one scan, with elements of one type.
struct FoldLoops {
  /// Adds a[i], or for a contraction a[i] * b[i], to lane (first + i) % lanes_of(dtype), for 0 <= i < n in sequence.
  void (*take)(void* lanes, const void* a, const void* b, std::int64_t first, std::int64_t n) = nullptr;
  /// Combines the lanes by halving; lane 0 gets the result.
  void (*halve)(void* lanes) = nullptr;
  /// Sets y[r] to the reduction of elements r * n .. (r + 1) * n of a, for 0 <= r < rows, in one block of lanes. A contraction reduces the
  /// products with the elements of b. The lanes stay in registers.
  void (*whole)(void* y, const void* a, const void* b, std::int64_t n, std::int64_t rows) = nullptr;
  /// Sets sums[i] to below[i] combined with sums[i].
  void (*combine)(const void* below, void* sums, std::int64_t n) = nullptr;
  /// Combines sums[i] with the tree of the i-th elements of eight rows. Null for contractions.
  void (*eight)(void* sums, const void* const* rows, std::int64_t n) = nullptr;
  /// Does the same for `groups` consecutive groups of eight rows, with `step` elements from row to row. Sums stay in registers.
  void (*eights)(void* sums, const void* first, std::int64_t step, std::int64_t groups, std::int64_t n) = nullptr;
  /// Contractions only: the loop of Chain, and sums[i] = fma(a[i], b[i], sums[i]).
  void (*chain)(const Chain& chain) = nullptr;
  void (*multiply)(const void* a, const void* b, void* sums, std::int64_t n) = nullptr;
  /// Scans groups of 16, starting with the first element. y[i] is the base combined with the carry and the group's prefix; the carry then
  /// gets the group. `state` has the carry, and the base 8 bytes after it. Null for contractions.
  void (*scan)(const void* x, void* y, void* state, std::int64_t n) = nullptr;
  explicit operator bool() const { return take != nullptr; }
};
/// Returns the loops of a reduction. All are null for halves, integers below 32 bits, and contractions on instruction sets without fma.
FoldLoops fold_loops(FoldKind kind, DType dtype, const Target& target);

/// Loops that copy or count.
struct MoveLoops {
  /// Sets to[r * n + j] = from[r + j * step] for 0 <= r < rows, 0 <= j < n, with elements of 4 or 8 bytes.
  void (*transpose4)(void* to, const void* from, std::int64_t step, std::int64_t rows, std::int64_t n);
  void (*transpose8)(void* to, const void* from, std::int64_t step, std::int64_t rows, std::int64_t n);
  /// Sets y[i] = first + step * i.
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
