// The loops of tiles for the baseline instruction set of the architecture (cmake/tiles.cmake sets the options).
#define ONEPASS_TILE_LOOPS tile_loop_baseline
#define ONEPASS_TILE_PAIRS tile_pair_baseline
#define ONEPASS_ELEMENTARY_FORMS elementary_forms_baseline
#define ONEPASS_TILE_MEANING meaning_baseline
#include "compiler/tiles/loops_of_target.inc"
