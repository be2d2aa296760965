# cmake --install: the shared library, the code generator in a folder of its own, the headers, a package for find_package and one for
# pkg-config, the command. Nothing in it is an absolute path, so the installed tree may be moved.

include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/onepass)
# Beside the library but apart from those of other versions, which have the same file name.
set(module_folder ${CMAKE_INSTALL_LIBDIR}/onepass-${PROJECT_VERSION})

# Where runtime/codegen.cpp looks: from the folder of libonepass.so, and from that of the command.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR} OUTPUT_VARIABLE prefix_from_bin)
set_property(SOURCE runtime/codegen.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  ONEPASS_MODULE_FROM_LIBRARY="onepass-${PROJECT_VERSION}" ONEPASS_MODULE_FROM_PROGRAM="${prefix_from_bin}/${module_folder}")

if(TARGET onepass)
  install(TARGETS onepass EXPORT onepass LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY include/onepass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT onepass NAMESPACE onepass:: FILE onepassConfig.cmake DESTINATION ${package_folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/onepassConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/onepassConfigVersion.cmake DESTINATION ${package_folder})
  # pkg-config finds the prefix from where its file is.
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig
             OUTPUT_VARIABLE prefix_from_pkgconfig)
  configure_file(cmake/onepass.pc.in ${PROJECT_BINARY_DIR}/onepass.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/onepass.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TARGET onepass_llvm)
  install(TARGETS onepass_llvm LIBRARY DESTINATION ${module_folder})
endif()
if(TARGET onepass_command)
  install(TARGETS onepass_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
