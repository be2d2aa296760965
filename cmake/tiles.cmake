# The loops of compiler/tiles, once for each instruction set. The compiler may not change what a loop computes, but it need not care for
# errno and for the flags of exceptions; without that it makes no vectors of many loops. They are never looked into by sanitizers, which
# would take the vectors apart.

set(loops_avx2 -march=x86-64-v3)
set(loops_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
foreach(name loops_baseline loops_avx2 loops_avx512)
  set(options -O3 -fno-math-errno -fno-trapping-math)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND options ${${name}})
  endif()
  if(ONEPASS_SANITIZE)
    list(APPEND options -fno-sanitize=all)
  endif()
  set_source_files_properties(compiler/tiles/${name}.cpp PROPERTIES COMPILE_OPTIONS "${options}")
endforeach()
