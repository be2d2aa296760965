// The sorting networks for x86-64-v3 (cmake/tiles.cmake sets the options).
#ifdef __x86_64__
#define ONEPASS_SORT_NETWORK sort_network_avx2
#include "runtime/sort_network_of_target.inc"
#endif
