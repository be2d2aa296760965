// Loops of one primitive, or of two, over a tile, a few hundred elements that stay in the first-level cache: what a TileProgram (tiles.h)
// is made of. They are compiled from the `meaning` column of ops.def, once for each instruction set, so that they give the kernels' bits.
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

TileLoop tile_loop_avx512(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_loop_avx2(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_loop_baseline(ir::Op op, DType from, DType to, unsigned uniform);
TileLoop tile_pair_avx512(TilePair pair, DType dtype, unsigned uniform);
TileLoop tile_pair_avx2(TilePair pair, DType dtype, unsigned uniform);
TileLoop tile_pair_baseline(TilePair pair, DType dtype, unsigned uniform);

}  // namespace onepass::compiler
