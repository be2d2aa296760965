# Language, warnings, sanitizers, linker, folders of the build, and functions that turn a folder into targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "onepass needs gcc 12 or newer; this is ${CMAKE_CXX_COMPILER_VERSION}. Choose another with -DCMAKE_CXX_COMPILER=….")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "onepass needs clang 16 or newer; this is ${CMAKE_CXX_COMPILER_VERSION}. Choose another with -DCMAKE_CXX_COMPILER=….")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
# Sanitizer reports need only line tables. With -O1 or full -g, sanitized code takes much longer to compile.
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1 -D_GLIBCXX_ASSERTIONS")

# The reference interpreter and the kernels have equal bits only if the C++ compiler neither contracts a*b+c nor reorders sums.
add_compile_options(-ffp-contract=off -ffunction-sections -fdata-sections)
# -Wno-psabi: vectors passed between functions of one file are not part of an ABI.
add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers -Wno-psabi -fdiagnostics-color=auto)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False warnings of gcc 12 in optimized code of std::string, std::vector and LLVM's headers.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
                      -Wno-dangling-pointer -Wno-mismatched-new-delete)
  add_compile_options(-fno-gnu-unique)  # objcopy cannot make unique symbols local, as the static library requires
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of gcc 12's library uses std::get_temporary_buffer, which the same library marks as deprecated.
  add_compile_options(-Wno-deprecated-declarations)
endif()
if(ONEPASS_WERROR)
  add_compile_options(-Werror)
endif()

# tools/test compiles code that is equal in its two builds once: the tests, and loops that are never sanitized.
set(ONEPASS_TEST_OBJECTS "" CACHE PATH "Another build of these sources whose objects of such code are linked here; empty: compile them")

if(ONEPASS_SANITIZE)
  add_compile_options(-fsanitize=${ONEPASS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ONEPASS_SANITIZE})
  if(ONEPASS_SANITIZE MATCHES "undefined")
    # LLVM's archives are built without the sanitizer, so checks of their types' vtables would be false alarms. Use of a null pointer ends
    # the program anyway, and the address sanitizer reports it. The null checks would cost a quarter of the compile time.
    add_compile_options(-fno-sanitize=vptr,null)
    # tools/test without --full also omits checks of each address, which take a fifth of the compile time. The address sanitizer reports an
    # access outside of an object, too.
    if(ONEPASS_TEST_OBJECTS)
      add_compile_options(-fno-sanitize=alignment,object-size,pointer-overflow)
    endif()
  endif()
endif()

if(ONEPASS_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ONEPASS_FUZZERS needs clang: -DCMAKE_CXX_COMPILER=clang++-19")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)  # counts which code an input reaches
endif()

# All programs find libonepass.so and libonepass_llvm.so in build/<preset>/lib, by a relative path. They use DT_RPATH instead of DT_RUNPATH,
# because the address sanitizer opens libraries on behalf of the program, and only DT_RPATH is inherited.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_BUILD_RPATH "$ORIGIN;$ORIGIN/../lib")
add_link_options(LINKER:--disable-new-dtags)
set(CMAKE_SKIP_INSTALL_RPATH ON)  # installed programs find the libraries without it

# lld links LLVM's archives several times faster than the default linker.
find_program(ONEPASS_LLD NAMES ld.lld ld.lld-19 ld.lld-20 ld.lld-21 DOC "lld, if there is one")
if(ONEPASS_LLD)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/linker)  # gcc searches for a program named ld.lld
  file(CREATE_LINK ${ONEPASS_LLD} ${PROJECT_BINARY_DIR}/linker/ld.lld SYMBOLIC)
  add_link_options(-B${PROJECT_BINARY_DIR}/linker -fuse-ld=lld)
endif()

find_program(ONEPASS_CCACHE ccache DOC "ccache, if there is one")
if(ONEPASS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache requires these sloppiness settings for precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ONEPASS_CCACHE})
endif()

# object_of_other_build(<result> <target> <source>): sets <result> to the object in the other build of a source of <target>, which is defined
# in the current folder.
function(object_of_other_build result target source)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  file(RELATIVE_PATH path ${CMAKE_CURRENT_SOURCE_DIR} ${source})
  cmake_path(SET object NORMALIZE ${ONEPASS_TEST_OBJECTS}/${folder}/CMakeFiles/${target}.dir/${path}${CMAKE_CXX_OUTPUT_EXTENSION})
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${result} ${object} PARENT_SCOPE)
endfunction()

# onepass_objects_of_other_build(<name>): links from the other build, if there is one, the objects of component <name> that are never
# sanitized (cmake/tiles.cmake), and the reference interpreter. A sanitized interpreter takes most of the time of many tests, and its source
# is the longest to compile; tools/test --full sanitizes it.
function(onepass_objects_of_other_build name)
  if(NOT ONEPASS_TEST_OBJECTS OR NOT ONEPASS_SANITIZE)
    return()
  endif()
  get_target_property(sources ${name}_objects SOURCES)
  set(shared ${sources})
  list(FILTER shared INCLUDE REGEX "/(reference|(loops|folds|sort_network)_(baseline|avx2|avx512))\\.cpp$")
  list(REMOVE_ITEM sources ${shared})
  set_target_properties(${name}_objects PROPERTIES SOURCES "${sources}")
  foreach(source ${shared})
    object_of_other_build(object ${name}_objects ${source})
    target_sources(${name} PRIVATE ${object})
    list(APPEND ONEPASS_OBJECTS ${object})
  endforeach()
  set(ONEPASS_OBJECTS ${ONEPASS_OBJECTS} PARENT_SCOPE)
endfunction()

set(ONEPASS_OBJECTS "")

# Precompiled headers of the library. Files must still include all headers that they use.
set(ONEPASS_COMMON_HEADERS <algorithm> <array> <cstdint> <cstring> <functional> <map> <memory> <optional> <span> <string> <string_view>
  <unordered_map> <utility> <vector> <fmt/format.h>)
set(ONEPASS_PRECOMPILED "")  # the target that compiles them

# onepass_sources(<variable> <pattern>...): lists the existing files that match these patterns. Each build searches again.
function(onepass_sources variable)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB files CONFIGURE_DEPENDS ${ARGN})
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# onepass_component(<name> <pattern>...): makes an archive <name> of these sources and adds its objects to ONEPASS_OBJECTS. Without sources
# it makes an interface library, so that dependents can link it unconditionally.
function(onepass_component name)
  onepass_sources(sources ${ARGN})
  if(sources)
    add_library(${name}_objects OBJECT ${sources})
    target_include_directories(${name}_objects PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name}_objects PRIVATE onepass_fmt Threads::Threads)
    if(ONEPASS_PRECOMPILED)
      target_precompile_headers(${name}_objects REUSE_FROM ${ONEPASS_PRECOMPILED})
    else()
      target_precompile_headers(${name}_objects PRIVATE ${ONEPASS_COMMON_HEADERS})
      set(ONEPASS_PRECOMPILED ${name}_objects PARENT_SCOPE)
    endif()
    add_library(${name} STATIC $<TARGET_OBJECTS:${name}_objects>)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
    set(scope PUBLIC)
    list(APPEND ONEPASS_OBJECTS $<TARGET_OBJECTS:${name}_objects>)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} ${scope} onepass_fmt Threads::Threads ${CMAKE_DL_LIBS})
  set(ONEPASS_OBJECTS ${ONEPASS_OBJECTS} PARENT_SCOPE)
  set(ONEPASS_LINK_SCOPE_${name} ${scope} PARENT_SCOPE)
endfunction()

# onepass_program(<target> <file name> <folder> <pattern>...): makes an executable build/<preset>/<folder>/<file name>, linked with the
# archives. It opens the code generator at run time, so that is a dependency of the build, not of the link.
function(onepass_program target output folder)
  onepass_sources(sources ${ARGN})
  if(NOT sources)
    return()
  endif()
  add_executable(${target} ${sources})
  add_dependencies(programs ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
  target_link_libraries(${target} PRIVATE onepass_runtime)
  target_link_options(${target} PRIVATE LINKER:--gc-sections LINKER:--as-needed)
  if(TARGET onepass_llvm)
    add_dependencies(${target} onepass_llvm)
  endif()
endfunction()

# Sources that read untrusted files and texts, in any program, are compiled with checks of buffer bounds and of the stack. Other runtime
# sources have no such checks, since warm calls take only a few nanoseconds.
set(hardened -fstack-protector-strong)
if(NOT ONEPASS_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND hardened -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)  # needs optimization; the sanitizers check more
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/runtime/npy.cpp ${PROJECT_SOURCE_DIR}/runtime/disk_cache.cpp ${PROJECT_SOURCE_DIR}/runtime/os.cpp
  ${PROJECT_SOURCE_DIR}/runtime/os_folder.cpp ${PROJECT_SOURCE_DIR}/runtime/os_mapped.cpp ${PROJECT_SOURCE_DIR}/runtime/kernel_object.cpp
  ${PROJECT_SOURCE_DIR}/runtime/signature_text.cpp PROPERTIES COMPILE_OPTIONS "${hardened}" SKIP_PRECOMPILE_HEADERS ON)

# onepass_compress_lines(<target>): compresses line tables, which only debuggers read. They are three quarters of libonepass.so and a sixth
# of libonepass_llvm.so. Compression saves 60 % of their size and does not affect loading.
include(CheckLinkerFlag)
check_linker_flag(CXX LINKER:--compress-debug-sections=zlib ONEPASS_LINKER_COMPRESSES_LINES)
function(onepass_compress_lines target)
  if(ONEPASS_LINKER_COMPRESSES_LINES AND NOT ONEPASS_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:--compress-debug-sections=zlib)
  endif()
endfunction()

# onepass_harden(<target>): adds the same checks to a program. Data written by the dynamic linker is read-only before main() starts.
function(onepass_harden target)
  if(NOT TARGET ${target})
    return()
  endif()
  target_compile_options(${target} PRIVATE ${hardened})
  target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack -pie)
endfunction()
