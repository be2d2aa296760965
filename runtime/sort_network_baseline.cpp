// The sorting networks for the baseline instruction set of the architecture (cmake/tiles.cmake sets the options).
#define ONEPASS_SORT_NETWORK sort_network_baseline
#include "runtime/sort_network_of_target.inc"
