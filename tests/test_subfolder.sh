#!/usr/bin/env bash
# onepass as a part of another project, by add_subdirectory and by FetchContent: its target exists, its tests and examples are absent, and
# the project's settings are unchanged. The full test also builds a program with it.
set -euo pipefail
cd "$(dirname "$0")/.."
source_folder=$PWD
cxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_subfolder: $*" >&2; exit 1; }
mkdir "$work/project"
cp tests/consumer/main.cpp "$work/project/"
for how in add_subdirectory FetchContent; do
  echo "--- $how"
  {
    echo 'cmake_minimum_required(VERSION 3.25)
project(mine VERSION 7.1 LANGUAGES CXX)
set(before "${CMAKE_CXX_STANDARD}|${CMAKE_POSITION_INDEPENDENT_CODE}|${CMAKE_CXX_VISIBILITY_PRESET}|${CMAKE_CXX_FLAGS_RELEASE}|${BUILD_TESTING}")'
    if [ $how = FetchContent ]; then
      echo "include(FetchContent)
FetchContent_Declare(onepass SOURCE_DIR \"$source_folder\")
FetchContent_MakeAvailable(onepass)"
    else
      echo "add_subdirectory(\"$source_folder\" onepass)"
    fi
    echo 'set(after "${CMAKE_CXX_STANDARD}|${CMAKE_POSITION_INDEPENDENT_CODE}|${CMAKE_CXX_VISIBILITY_PRESET}|${CMAKE_CXX_FLAGS_RELEASE}|${BUILD_TESTING}")
if(NOT before STREQUAL after)
  message(FATAL_ERROR "settings became ${after}, were ${before}")
endif()
if(NOT PROJECT_VERSION STREQUAL "7.1")
  message(FATAL_ERROR "the project is ${PROJECT_NAME} ${PROJECT_VERSION} now")
endif()
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE onepass::onepass)'
  } >"$work/project/CMakeLists.txt"
  cmake -S "$work/project" -B "$work/$how" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="${cxx##* }" >"$work/log" 2>&1 || { cat "$work/log"; fail "$how: not configured"; }
  targets=$(cmake --build "$work/$how" --target help)
  grep -qw consumer <<<"$targets" || fail "$how: no program"
  ! grep -wE '(test|fuzz|example|unit)_[a-z]+|onepass_(static|python)' <<<"$targets" || fail "$how: more than the library is built"
done
[ -n "${ONEPASS_TEST_FULL-}" ] || exit 0
cmake --build "$work/add_subdirectory" --target consumer -j "$(nproc)" >"$work/log" 2>&1 || { tail -30 "$work/log"; fail "not built"; }
ONEPASS_CACHE_DIR=none "$(find "$work/add_subdirectory" -name consumer -type f -perm -u+x | head -1)" | grep -q '^onepass ' || fail "the program does not run"
