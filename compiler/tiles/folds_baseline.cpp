// Loops of reductions and halves in tiles, for the baseline instruction set of the architecture (cmake/tiles.cmake sets the options).
#define ONEPASS_TILE_FOLDS fold_loops_baseline
#define ONEPASS_TILE_HALVES tile_half_baseline
#define ONEPASS_TILE_MOVES move_loops_baseline
#define ONEPASS_TILE_MEANING meaning_baseline
#include "compiler/tiles/folds_of_target.inc"
