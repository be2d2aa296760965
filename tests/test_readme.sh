#!/usr/bin/env bash
# Runs every ```sh block of README.md from the root of the repository, each in a shell that stops at the first error,
# and compiles its ```cpp blocks. The blocks that build the project itself are marked ```bash and left out.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ONEPASS_BUILD_DIR:-build/release}
if [ "${ONEPASS_SANITIZE-}" ]; then export CXXFLAGS="-fsanitize=$ONEPASS_SANITIZE" LDFLAGS="-fsanitize=$ONEPASS_SANITIZE"; fi  # what CMake projects in blocks are built with

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v work="$work" '
  /^```(sh|cpp)$/ { language = substr($0, 4); file = sprintf("%s/%03d.%s", work, ++count, language); printf "" > file; next }
  /^```/          { language = ""; next }
  language        { print > file }
' README.md

blocks=0
for block in "$work"/*.sh; do
  blocks=$((blocks + 1))
  # The README speaks of build/release; a test of another build runs that one.
  sed -i "s|build/release|$build|g" "$block"
  echo "--- README.md, shell block $blocks:"
  cat "$block"
  bash -euo pipefail "$block" </dev/null
done
[ $blocks -gt 0 ] || { echo "README.md has no sh block" >&2; exit 1; }

for block in "$work"/*.cpp; do
  [ -e "$block" ] || continue
  echo "--- README.md, C++ block"
  ${CXX:-c++} -std=c++20 -Wall -Wextra ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude "$block" -o "$work/program" \
    -L"$build/lib" -lonepass -Wl,-rpath,"$(realpath "$build/lib")"
  "$work/program"
done
