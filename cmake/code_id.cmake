# Generates code_id.h: a hash of LLVM's version and of the sources that determine the code of a kernel's key. The disk cache uses it to
# separate kernels of different builds. The file changes only with the hash, so other edits rebuild nothing.

if(CMAKE_SCRIPT_MODE_FILE)  # run by the build
  set(all "${EXTRA}")
  foreach(source IN LISTS SOURCES)
    file(SHA256 ${source} hash)
    string(APPEND all "${hash}")
  endforeach()
  string(SHA256 id "${all}")
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "inline constexpr char kCodeId[] = \"${id}\";\n")
  file(TOUCH ${STAMP})
  return()
endif()

# onepass_code_id(<target> <text>): adds the header to the target; <text> is part of the hash.
function(onepass_code_id target extra)
  set(patterns ir/*.cpp ir/*.h ir/*.def compiler/*.cpp compiler/*.h)
  list(TRANSFORM patterns PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "/compiler/tiles/")  # the tiled interpreter is part of the library, so no cached kernel contains its code
  set(folder ${PROJECT_BINARY_DIR}/generated)
  add_custom_command(OUTPUT ${folder}/code_id.stamp BYPRODUCTS ${folder}/code_id.h DEPENDS ${sources} VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DSOURCES=${sources}" "-DEXTRA=${extra}" -DOUTPUT=${folder}/code_id.h -DSTAMP=${folder}/code_id.stamp
      -P ${PROJECT_SOURCE_DIR}/cmake/code_id.cmake
    COMMENT "Hashing the code generator's sources")
  add_custom_target(onepass_code_id DEPENDS ${folder}/code_id.stamp)
  add_dependencies(${target} onepass_code_id)
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
