#!/usr/bin/env bash
# Every header compiles alone; the public ones also without exceptions and without type information.
set -uo pipefail
cd "$(dirname "$0")/.."

check() {  # FLAGS HEADER
  # shellcheck disable=SC2086
  echo "#include \"$2\"" | ${CXX:-c++} -std=c++20 -fsyntax-only -Wall -Wextra -Werror $1 -I. -Iinclude -x c++ - || { echo "does not compile alone ($1): $2"; exit 1; }
}
export -f check

status=0
printf '%s\n' include/onepass/*.h | xargs -P "$(nproc)" -I{} bash -c 'check "-fno-exceptions -fno-rtti" {}' || status=1
check -std=c++23 onepass/onepass.h || status=1
# Sources include them first, or behind few others; whether they need what stood before shows here.
[ -n "${ONEPASS_TEST_FULL-}" ] || exit $status
find ir compiler runtime -name '*.h' -not -path 'compiler/llvm/*' | xargs -P "$(nproc)" -I{} bash -c 'check "" {}' || status=1
exit $status
