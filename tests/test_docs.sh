#!/usr/bin/env bash
# Compiles and runs docs/api.md: its ```c++ blocks stand outside of functions, each ```cpp block is the body of one. An assert that fails names
# the line of the page.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ONEPASS_BUILD_DIR:-build/release}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v page="$PWD/docs/api.md" '
  /^```c\+\+$/ { inside = 1; printf "#line %d \"%s\"\n", NR + 1, page; next }
  /^```cpp$/   { inside = 2; printf "static void block%d() {\n#line %d \"%s\"\n", ++count, NR + 1, page; next }
  /^```/       { if (inside == 2) print "}"; inside = 0; next }
  inside       { print }
  END          { print "int main() {"; for (i = 1; i <= count; ++i) printf "  block%d();\n", i; print "}" }
' docs/api.md >"$work/api.cpp"
grep -q 'block8' "$work/api.cpp" || { echo "docs/api.md has too few blocks" >&2; exit 1; }
${CXX:-c++} -std=c++20 -Wall -Wextra -UNDEBUG ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude "$work/api.cpp" -o "$work/api" \
  -L"$build/lib" -lonepass -Wl,-rpath,"$(realpath "$build/lib")"
# With an empty cache of kernels, then from it: LLVM is then opened in the background, if at all, while the program may already end.
for _ in 1 2 3; do ONEPASS_CACHE_DIR=$work/cache "$work/api"; done
