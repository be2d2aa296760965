# Generates report_page.h: the page of tools/report as a string, for ExecutionRecord::html. The build regenerates it when the page changes.
set(page ${PROJECT_SOURCE_DIR}/tools/report/report.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(READ ${page} text)
set(header ${PROJECT_BINARY_DIR}/generated/report_page.h)
string(CONCAT text "// Of tools/report/report.html.\n#pragma once\n\n#include <string_view>\n\n"
  "namespace onepass::runtime {\ninline constexpr std::string_view kReportPage = R\"onepass_page(" "${text}" ")onepass_page\";\n}\n")
set(before "")
if(EXISTS ${header})
  file(READ ${header} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${header} "${text}")
endif()
