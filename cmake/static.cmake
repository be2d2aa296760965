# onepass_static: libonepass.a, the library with the code generator and LLVM, for programs that consist of one file. It is one object, made
# of the same objects and archives as the shared libraries. All symbols except the symbols of libonepass.so are local, so it does not
# conflict with another LLVM or fmt. It is joined in two steps, since LLVM's part has its own __cxa_atexit (compiler/llvm/codegen.cpp).

find_program(ONEPASS_BFD NAMES ld.bfd DOC "GNU ld, which joins objects")
if(NOT ONEPASS_BFD OR NOT CMAKE_OBJCOPY OR NOT TARGET LLVMX86CodeGen)
  message(STATUS "onepass_static is not built: it needs GNU ld, objcopy and LLVM's static archives")
  return()
endif()

# Collects the archives of targets and of their dependencies, each once.
function(onepass_archives result)
  set(found "")
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open target)
    if(NOT TARGET ${target} OR target IN_LIST found)
      continue()
    endif()
    list(APPEND found ${target})
    get_target_property(more ${target} INTERFACE_LINK_LIBRARIES)
    if(more)
      string(REGEX REPLACE "\\$<LINK_ONLY:([^>]*)>" "\\1" more "${more}")
      list(APPEND open ${more})
    endif()
  endwhile()
  set(archives "")
  foreach(target ${found})
    get_target_property(file ${target} LOCATION)
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${file}")  # zlib's archive is next to its shared library
    if(EXISTS "${archive}" AND archive MATCHES "\\.a$")
      list(APPEND archives ${archive})
    elseif(EXISTS "${file}")
      set(shared ${shared} ${file})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES archives)
  set(${result} ${archives} PARENT_SCOPE)
  set(${result}_shared ${shared} PARENT_SCOPE)
endfunction()

onepass_archives(archives ${llvm_libraries})
list(FILTER archives_shared EXCLUDE REGEX "libz3")  # not used by the LLVM components linked here
set(folder ${PROJECT_BINARY_DIR}/static)
file(MAKE_DIRECTORY ${folder})
set(entries onepass_codegen onepass_llvm_version onepass_llvm_built_for onepass_llvm_is_inside
  onepass_sha256_new onepass_sha256_add onepass_sha256_delete onepass_sha256_finish)
set(roots ${entries})
list(TRANSFORM roots PREPEND --undefined=)
file(GENERATE OUTPUT ${folder}/codegen.rsp CONTENT
  "$<JOIN:$<FILTER:$<TARGET_OBJECTS:onepass_llvm>,EXCLUDE,[.]gch$>,\n>\n--start-group\n$<TARGET_FILE:onepass_compiler>\n$<TARGET_FILE:onepass_ir>\n$<TARGET_FILE:onepass_fmt>\n$<JOIN:${llvm_tables};${archives},\n>\n--end-group\n")
list(JOIN ONEPASS_OBJECTS ";" objects)
file(GENERATE OUTPUT ${folder}/library.rsp CONTENT "${folder}/codegen.o\n$<JOIN:$<FILTER:${objects},EXCLUDE,[.]gch$>,\n>\n--start-group\n$<TARGET_FILE:onepass_fmt>\n--end-group\n")

set(join ${ONEPASS_BFD} -r --gc-sections --force-group-allocation)
add_custom_command(OUTPUT ${folder}/codegen.o
  COMMAND ${join} ${roots} -o ${folder}/all.o @${folder}/codegen.rsp
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --wildcard --keep-global-symbol=onepass_* ${folder}/all.o ${folder}/codegen.o
  COMMAND ${CMAKE_COMMAND} -E rm ${folder}/all.o
  DEPENDS onepass_llvm onepass_compiler onepass_ir onepass_fmt $<TARGET_OBJECTS:onepass_llvm> ${folder}/codegen.rsp COMMAND_EXPAND_LISTS VERBATIM
  COMMENT "Joining the code generator with LLVM")
add_custom_command(OUTPUT ${folder}/onepass.o
  COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:onepass> -DOUT=${folder}/names -P ${PROJECT_SOURCE_DIR}/cmake/exported.cmake
  COMMAND ${ONEPASS_BFD} -r --force-group-allocation -o ${folder}/all.o @${folder}/library.rsp
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --keep-global-symbols=${folder}/names ${folder}/all.o ${folder}/onepass.o
  COMMAND ${CMAKE_COMMAND} -E rm ${folder}/all.o
  DEPENDS onepass ${folder}/codegen.o ${folder}/library.rsp ${PROJECT_SOURCE_DIR}/cmake/exported.cmake VERBATIM
  COMMENT "Joining libonepass.a")

add_library(onepass_static STATIC ${folder}/onepass.o)
add_library(onepass::onepass_static ALIAS onepass_static)
set_source_files_properties(${folder}/onepass.o PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
set_target_properties(onepass_static PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME onepass)
target_include_directories(onepass_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(onepass_static INTERFACE cxx_std_20)
# Threads of the library outlive any dlclose of the library that contains it.
target_link_options(onepass_static INTERFACE -pthread LINKER:-z,nodelete)
target_link_libraries(onepass_static INTERFACE ${CMAKE_DL_LIBS} m ${archives_shared})
# Flags for pkg-config --static.
set(onepass_static_libraries "-pthread -Wl,-z,nodelete")
foreach(library ${CMAKE_DL_LIBS} m ${archives_shared})
  string(REGEX REPLACE "^.*/lib([^/]*)[.]so$" "\\1" name "${library}")
  string(APPEND onepass_static_libraries " -l${name}")
endforeach()
