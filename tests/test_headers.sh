#!/usr/bin/env bash
# Every header compiles by itself; public headers also compile without exceptions and type information, and in C++23. A program built like
# this runs.
set -uo pipefail
cd "$(dirname "$0")/.."

check() {  # FLAGS HEADER
  # shellcheck disable=SC2086
  echo "#include \"$2\"" | ${CXX:-c++} -std=c++20 -fsyntax-only -Wall -Wextra -Werror $1 -I. -Iinclude -x c++ - || { echo "does not compile alone ($1): $2"; exit 1; }
}
export -f check

status=0
printf '%s\n' include/onepass/*.h | xargs -P "$(nproc)" -I{} bash -c 'check "-fno-exceptions -fno-rtti" {}' || status=1
check -std=c++2b onepass/onepass.h || status=1  # clang 16 accepts C++23 only under this name

library=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")/lib
if [ -e "$library/libonepass.so" ] && [ -z "${ONEPASS_SANITIZE-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cat >"$work/user.cpp" <<'EOF'
#include <onepass/onepass.h>
#include <cstdio>
int main() {
  const auto f = onepass::compile([](onepass::Tensor x, onepass::Tensor w) { return sum(x * w); });
  const onepass::Array x = onepass::Array::ones({9}, onepass::f32);
  const auto wrong = f.try_call(x, onepass::Array::ones({2}, onepass::f32));  // the shapes do not broadcast
  return f(x, x).item<float>() == 9 && !wrong ? 0 : 1;
}
EOF
  ${CXX:-c++} -std=c++2b -fno-exceptions -fno-rtti -Wall -Wextra -Werror "$work/user.cpp" -o "$work/user" -Iinclude -L"$library" -lonepass -Wl,-rpath,"$library" &&
    ONEPASS_CACHE_DIR=none "$work/user" || { echo "a program without exceptions does not run"; status=1; }
fi
# Sources include internal headers first or after few other headers. This shows whether they depend on preceding headers.
[ -n "${ONEPASS_TEST_FULL-}" ] || exit $status
find ir compiler runtime -name '*.h' -not -path 'compiler/llvm/*' | xargs -P "$(nproc)" -I{} bash -c 'check "" {}' || status=1
exit $status
