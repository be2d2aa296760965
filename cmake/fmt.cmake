# fmt without its shared library: `onepass_fmt` compiles fmt's functions once, from its headers. Header-only use would compile them in every
# file, at two seconds each.

find_package(fmt 9 REQUIRED)
get_target_property(fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)

if(fmt_VERSION VERSION_LESS 10)
  add_library(onepass_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  target_include_directories(onepass_fmt SYSTEM PUBLIC ${fmt_include})
  if(ONEPASS_SANITIZE)
    target_compile_options(onepass_fmt PRIVATE -fno-sanitize=all)  # fmt is not onepass's code, and sanitizing it takes a minute of compile time
  endif()
else()
  add_library(onepass_fmt INTERFACE)  # the required instantiations depend on fmt's version
  target_link_libraries(onepass_fmt INTERFACE fmt::fmt-header-only)
endif()
