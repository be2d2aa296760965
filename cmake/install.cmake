# cmake --install (components runtime, development, tools) and cpack (a Debian package for each): the shared library, the code generator in
# a separate folder, the headers, packages for find_package and pkg-config, and the command. The installed tree has no absolute paths, so it
# can be moved.

include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/onepass)
# The module is next to the library, but separate from other versions, because their modules have the same file name.
set(module_folder ${CMAKE_INSTALL_LIBDIR}/onepass-${PROJECT_VERSION})

# Search paths of runtime/codegen.cpp, relative to the folders of libonepass.so and of the command.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR} OUTPUT_VARIABLE prefix_from_bin)
set_property(SOURCE runtime/codegen.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  ONEPASS_MODULE_FROM_LIBRARY="onepass-${PROJECT_VERSION}" ONEPASS_MODULE_FROM_PROGRAM="${prefix_from_bin}/${module_folder}")

if(TARGET onepass)
  install(TARGETS onepass EXPORT onepass LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT development)
  if(TARGET onepass_static)
    install(TARGETS onepass_static EXPORT onepass ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  endif()
  install(DIRECTORY include/onepass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
  install(EXPORT onepass NAMESPACE onepass:: FILE onepassConfig.cmake DESTINATION ${package_folder}
    COMPONENT development)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/onepassConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/onepassConfigVersion.cmake DESTINATION ${package_folder} COMPONENT development)
  # pkg-config computes the prefix from the path of this file.
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig
             OUTPUT_VARIABLE prefix_from_pkgconfig)
  configure_file(cmake/onepass.pc.in ${PROJECT_BINARY_DIR}/onepass.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/onepass.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
if(TARGET onepass_llvm)
  install(TARGETS onepass_llvm LIBRARY DESTINATION ${module_folder} COMPONENT runtime)
endif()
if(TARGET onepass_command)
  install(TARGETS onepass_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  # The manual page is generated from the command's help.
  if(NOT CMAKE_CROSSCOMPILING)
    set(page ${PROJECT_BINARY_DIR}/share/onepass.1)
    add_custom_command(OUTPUT ${page} COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/share
      COMMAND ${PROJECT_SOURCE_DIR}/tools/man.sh $<TARGET_FILE:onepass_command> ${PROJECT_VERSION} > ${page}
      DEPENDS onepass_command tools/man.sh VERBATIM)
    add_custom_target(onepass_page ALL DEPENDS ${page})
    add_dependencies(programs onepass_page)
    add_dependencies(tested onepass_page)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  endif()
  install(FILES tools/completions/onepass.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME onepass COMPONENT tools)
  install(FILES tools/completions/_onepass DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT tools)
  install(FILES tools/completions/onepass.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
endif()

# Each package has the licenses, including LLVM's. The development package also has the pages and the examples' sources.
foreach(part "runtime;libonepass${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}" "development;libonepass-dev" "tools;onepass-tools")
  list(GET part 0 component)
  list(GET part 1 package)
  install(FILES cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
endforeach()
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libonepass-dev COMPONENT development)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libonepass-dev COMPONENT development FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.png")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME onepass)
set(CPACK_PACKAGE_VENDOR "the onepass authors")
set(CPACK_PACKAGE_CONTACT "the onepass authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(COPY_FILE cmake/libonepass.symbols ${PROJECT_BINARY_DIR}/symbols ONLY_IF_DIFFERENT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/symbols)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "compiler of array expressions: shared library
 Fuses elementwise tensor expressions into single passes over memory and compiles
 them at run time, with gradients. LLVM is inside, and hidden.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "compiler of array expressions: headers for C++20 and C99, documentation")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "compiler of array expressions: the onepass command")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} (= ${PROJECT_VERSION})")
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
