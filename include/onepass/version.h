// The only definition of the version. CMakeLists.txt reads it for the names of the library and its packages, and for `onepass --version`.
#pragma once

#define ONEPASS_VERSION_MAJOR 0
#define ONEPASS_VERSION_MINOR 1
#define ONEPASS_VERSION_PATCH 0

#define ONEPASS_VERSION_TEXT_OF(number) #number
#define ONEPASS_VERSION_TEXT(major, minor, patch) \
  ONEPASS_VERSION_TEXT_OF(major) "." ONEPASS_VERSION_TEXT_OF(minor) "." ONEPASS_VERSION_TEXT_OF(patch)
/// The version as text, such as "0.1.0".
#define ONEPASS_VERSION ONEPASS_VERSION_TEXT(ONEPASS_VERSION_MAJOR, ONEPASS_VERSION_MINOR, ONEPASS_VERSION_PATCH)
