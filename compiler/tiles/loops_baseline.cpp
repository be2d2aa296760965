// The loops of tiles for what every processor of this kind has (CMakeLists.txt sets the options).
#define ONEPASS_TILE_LOOPS tile_loop_baseline
#define ONEPASS_TILE_PAIRS tile_pair_baseline
#define ONEPASS_ELEMENTARY_FORMS elementary_forms_baseline
#define ONEPASS_TILE_MEANING meaning_baseline
#include "compiler/tiles/loops_of_target.inc"
