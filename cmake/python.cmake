# The Python module: build/<preset>/python/onepass, importable with that folder in PYTHONPATH. `pip install .` installs the same files.
# Requires the Python package nanobind; -DPython_EXECUTABLE=… selects the Python.

find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT
                RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "ONEPASS_PYTHON needs nanobind: ${Python_EXECUTABLE} -m pip install nanobind")
endif()
find_package(nanobind CONFIG REQUIRED)

onepass_sources(python_sources python/src/*.cpp)
onepass_sources(python_files python/onepass/*.py python/onepass/*/*.py python/onepass/py.typed)
nanobind_add_module(onepass_python NB_STATIC ${python_sources})
set(python_folder ${PROJECT_BINARY_DIR}/python/onepass)
set_target_properties(onepass_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${python_folder}
                      BUILD_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON)
target_include_directories(onepass_python PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/python/src)
target_link_libraries(onepass_python PRIVATE onepass onepass_fmt)
add_dependencies(onepass_python onepass_llvm)

file(MAKE_DIRECTORY ${python_folder})
foreach(file ${python_files})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/python/onepass ${file})
  get_filename_component(folder ${python_folder}/${name} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${file} ${python_folder}/${name} SYMBOLIC)
endforeach()

# Types and docstrings for editors and type checkers.
nanobind_add_stub(onepass_python_stub MODULE onepass._core OUTPUT ${python_folder}/_core.pyi PYTHON_PATH ${PROJECT_BINARY_DIR}/python
                  DEPENDS onepass_python ${python_files})

# Contents of a wheel in addition to the Python files: the module, and next to it the library and the code generator with LLVM.
install(FILES $<TARGET_FILE:onepass_python> ${python_folder}/_core.pyi DESTINATION onepass COMPONENT python EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:onepass> DESTINATION onepass RENAME $<TARGET_SONAME_FILE_NAME:onepass> COMPONENT python EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:onepass_llvm> DESTINATION onepass/onepass-${PROJECT_VERSION} COMPONENT python EXCLUDE_FROM_ALL)
install(CODE "file(GLOB_RECURSE libraries \"\${CMAKE_INSTALL_PREFIX}/onepass/*.so*\")
  execute_process(COMMAND ${CMAKE_STRIP} --strip-unneeded \${libraries} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python EXCLUDE_FROM_ALL)
