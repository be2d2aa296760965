#!/usr/bin/env bash
# Compiles tests/c/interface.c and the programs of docs/c.md as C99 with gcc and clang, with all warnings as errors, and runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' docs/c.md >"$work/page.c"
awk '/^```python$/ { inside = 1; next } /^```/ { inside = 0 } inside' docs/c.md >"$work/page.py"
[ -s "$work/page.c" ] && [ -s "$work/page.py" ]

compilers=0
for compiler in gcc clang clang-19 clang-16; do
  command -v "$compiler" >/dev/null || continue
  compilers=$((compilers + 1))
  for source in tests/c/interface.c "$work/page.c"; do
    "$compiler" -std=c99 -pedantic -Wall -Wextra -Wstrict-prototypes -Werror ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude "$source" \
      -o "$work/program" -L"$build/lib" -lonepass -lm -Wl,-rpath,"$build/lib"
    echo "--- $compiler, $(basename "$source")"
    "$work/program"
  done
done
[ $compilers -gt 0 ] || { echo "neither gcc nor clang is here" >&2; exit 1; }

if [ -z "${ONEPASS_SANITIZE-}" ]; then  # Python is not sanitized
  echo "--- ctypes"
  ONEPASS_LIBRARY=$build/lib/libonepass.so python3 "$work/page.py"
fi
