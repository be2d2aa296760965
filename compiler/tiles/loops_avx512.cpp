// The loops of tiles for x86-64-v4 (cmake/tiles.cmake sets the options).
#ifdef __x86_64__
#define ONEPASS_TILE_LOOPS tile_loop_avx512
#define ONEPASS_TILE_PAIRS tile_pair_avx512
#define ONEPASS_TILE_MEANING meaning_avx512
#include "compiler/tiles/loops_of_target.inc"
#endif
