// The loops of tiles for x86-64-v3 (cmake/tiles.cmake sets the options).
#ifdef __x86_64__
#define ONEPASS_TILE_LOOPS tile_loop_avx2
#define ONEPASS_TILE_PAIRS tile_pair_avx2
#define ONEPASS_ELEMENTARY_FORMS elementary_forms_avx2
#define ONEPASS_TILE_MEANING meaning_avx2
#include "compiler/tiles/loops_of_target.inc"
#endif
