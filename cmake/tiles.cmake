# Compiles the loops of compiler/tiles and the sorting networks once for each instruction set. The compiler must not change results of a
# loop, but may ignore errno and floating-point exception flags. Otherwise the compiler does not vectorize many loops. It also fails to
# vectorize a loop that it unswitches on the condition of a single operand.
#
# Sanitizers are off for these loops, since they prevent vectorization. A program of the build generates the elementary functions for them.

add_executable(tile_expansions compiler/tiles/generate/expansions.cpp compiler/rare.cpp)
target_link_libraries(tile_expansions PRIVATE onepass_ir)
set(tile_expansions ${PROJECT_BINARY_DIR}/generated/tile_expansions.inc)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated)
add_custom_command(OUTPUT ${tile_expansions} COMMAND tile_expansions > ${tile_expansions} DEPENDS tile_expansions VERBATIM)

set(options_avx2 -march=x86-64-v3)
set(options_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
foreach(isa baseline avx2 avx512)
  set(options -O3 -fno-math-errno -fno-trapping-math -fno-unswitch-loops)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(REMOVE_ITEM options -fno-unswitch-loops)
    list(APPEND options -Wno-pass-failed)  # a loop that stays scalar is also correct
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND options ${options_${isa}})
  endif()
  if(ONEPASS_SANITIZE)
    list(APPEND options -fno-sanitize=all)
  endif()
  set_source_files_properties(compiler/tiles/loops_${isa}.cpp compiler/tiles/folds_${isa}.cpp PROPERTIES COMPILE_OPTIONS "${options}"
    OBJECT_DEPENDS ${tile_expansions}
    INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/generated SKIP_PRECOMPILE_HEADERS ON)
  set_source_files_properties(runtime/sort_network_${isa}.cpp PROPERTIES COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
endforeach()
