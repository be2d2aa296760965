// Loops of reductions and halves in tiles, for x86-64-v3 (cmake/tiles.cmake sets the options).
#ifdef __x86_64__
#define ONEPASS_TILE_FOLDS fold_loops_avx2
#define ONEPASS_TILE_HALVES tile_half_avx2
#define ONEPASS_TILE_MOVES move_loops_avx2
#define ONEPASS_TILE_MEANING meaning_avx2
#include "compiler/tiles/folds_of_target.inc"
#endif
