# The code generator: libonepass_llvm.so, a private module that the library opens at the first compile. It contains the required parts of
# LLVM, from static archives if they are installed, and exports only its entry points `onepass_*`.

onepass_sources(llvm_sources compiler/llvm/*.cpp)
if(NOT llvm_sources)
  return()
endif()

if(NOT LLVM_DIR)
  find_path(LLVM_DIR LLVMConfig.cmake DOC "folder of LLVMConfig.cmake, LLVM 19 or newer"
    PATHS /usr/lib/llvm-19/lib/cmake/llvm /usr/lib/llvm-20/lib/cmake/llvm /usr/lib/llvm-21/lib/cmake/llvm)
endif()
find_package(LLVM CONFIG QUIET)
if(NOT LLVM_FOUND OR LLVM_VERSION_MAJOR LESS 19)
  message(FATAL_ERROR "onepass needs LLVM 19 or newer (Debian: llvm-19-dev). Set LLVM_DIR to the folder of its LLVMConfig.cmake, "
    "or build without a code generator with -DONEPASS_LLVM=OFF.")
endif()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")

add_library(onepass_llvm MODULE ${llvm_sources})
target_include_directories(onepass_llvm PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_include_directories(onepass_llvm SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(onepass_llvm PRIVATE ${llvm_definitions})
if(NOT LLVM_ENABLE_RTTI)
  target_compile_options(onepass_llvm PRIVATE -fno-rtti)
endif()
target_precompile_headers(onepass_llvm PRIVATE ${ONEPASS_COMMON_HEADERS} <llvm/IR/IRBuilder.h> <llvm/IR/Module.h>)

# LLVM's tables of instruction costs on forty processors have row names, which only its debug output uses. These names are 60 % of the
# addresses that the dynamic linker relocates when it opens the module. It copies each page that it writes: 2 of 2.6 MB.
#
# This function extracts the archive member with these tables and removes the names' relocations. The names stay null, and nothing reads
# them. If a step fails, the module is linked unchanged.
function(onepass_without_names result member library)
  get_target_property(archive ${library} LOCATION)
  set(folder ${PROJECT_BINARY_DIR}/llvm_tables)
  file(MAKE_DIRECTORY ${folder}/new)
  foreach(command "${CMAKE_AR};x;${archive};${member}" "${CMAKE_OBJCOPY};--remove-relocations=.data.rel.ro.*SchedClasses*;${member}")
    execute_process(COMMAND ${command} WORKING_DIRECTORY ${folder}/new RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      message(STATUS "${member} of ${library} is linked with its tables' names: the module takes longer to open")
      return()
    endif()
  endforeach()
  file(COPY_FILE ${folder}/new/${member} ${folder}/${member} ONLY_IF_DIFFERENT)
  set(${result} ${${result}} ${folder}/${member} PARENT_SCOPE)
endfunction()

if(ONEPASS_LLVM_SHARED OR NOT TARGET LLVMX86CodeGen)
  set(llvm_libraries LLVM)
else()
  # Only referenced members of an archive are linked, so additional components in this list cost nothing. The module has only this machine's
  # processor; tests have another module that also has AArch64.
  llvm_map_components_to_libnames(llvm_libraries core support target targetparser analysis codegen selectiondag asmprinter mc mcparser
    scalaropts transformutils object runtimedyld jitlink orcjit irreader X86 AArch64)
  target_compile_definitions(onepass_llvm PRIVATE ONEPASS_LLVM_STATIC)
  if(TARGET LLVM${LLVM_NATIVE_ARCH}Desc)
    onepass_without_names(llvm_tables ${LLVM_NATIVE_ARCH}MCTargetDesc.cpp.o LLVM${LLVM_NATIVE_ARCH}Desc)
  endif()
endif()
# Uses zstd's archive if it is installed, so that the module requires no library that a minimal Linux lacks.
if(TARGET zstd::libzstd_static AND TARGET LLVMSupport)
  get_target_property(links LLVMSupport INTERFACE_LINK_LIBRARIES)
  string(REPLACE zstd::libzstd_shared zstd::libzstd_static links "${links}")
  set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
endif()
target_link_libraries(onepass_llvm PRIVATE onepass_compiler onepass_ir ${llvm_tables} ${llvm_libraries})
target_link_options(onepass_llvm PRIVATE LINKER:--exclude-libs,ALL LINKER:--gc-sections LINKER:--as-needed LINKER:-z,nodelete
  LINKER:--version-script,${PROJECT_SOURCE_DIR}/cmake/llvm.exports)
set_property(TARGET onepass_llvm APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/llvm.exports ${PROJECT_SOURCE_DIR}/cmake/llvm.sections)
onepass_compress_lines(onepass_llvm)
check_linker_flag(CXX "LINKER:-T,${PROJECT_SOURCE_DIR}/cmake/llvm.sections" ONEPASS_LINKER_INSERTS_SECTIONS)
if(ONEPASS_LINKER_INSERTS_SECTIONS)
  target_link_options(onepass_llvm PRIVATE LINKER:-T,${PROJECT_SOURCE_DIR}/cmake/llvm.sections)
endif()
if(NOT ONEPASS_SANITIZE)
  target_link_options(onepass_llvm PRIVATE LINKER:--no-undefined)
endif()
