// The version, in this one place: CMakeLists.txt reads the numbers here, for the library's name, its packages and `onepass --version`.
#pragma once

#define ONEPASS_VERSION_MAJOR 0
#define ONEPASS_VERSION_MINOR 1
#define ONEPASS_VERSION_PATCH 0

#define ONEPASS_VERSION_TEXT_OF(number) #number
#define ONEPASS_VERSION_TEXT(major, minor, patch) \
  ONEPASS_VERSION_TEXT_OF(major) "." ONEPASS_VERSION_TEXT_OF(minor) "." ONEPASS_VERSION_TEXT_OF(patch)
/// "0.1.0"
#define ONEPASS_VERSION ONEPASS_VERSION_TEXT(ONEPASS_VERSION_MAJOR, ONEPASS_VERSION_MINOR, ONEPASS_VERSION_PATCH)
