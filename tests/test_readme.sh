#!/usr/bin/env bash
# Runs the ```sh blocks of README.md and of docs/ from the root of the repository, those of a page in one shell that stops at the first
# error, and compiles the ```cpp blocks. The blocks that build the project itself are marked ```bash and left out.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ONEPASS_BUILD_DIR:-build/release}
if [ "${ONEPASS_SANITIZE-}" ]; then export CXXFLAGS="-fsanitize=$ONEPASS_SANITIZE" LDFLAGS="-fsanitize=$ONEPASS_SANITIZE"; fi  # what CMake projects in blocks are built with

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The pages speak of build/release; a test of another build runs that one.
absolute=$(realpath "$build")
blocks=0
for page in README.md docs/*.md; do
  awk -v work="$work" -v page="${page//\//_}" '
    /^```(sh|cpp)$/ { language = substr($0, 4); file = sprintf("%s/%s.%s", work, page, language == "sh" ? "sh" : ++count ".cpp"); next }
    /^```/          { language = ""; next }
    language        { print > file }
  ' "$page"
  script=$work/${page//\//_}.sh
  [ -e "$script" ] || continue
  sed -i -e "s|\$PWD/build/release|$absolute|g" -e "s|build/release|$build|g" "$script"
  echo "--- $page:"
  blocks=$((blocks + 1))
  bash -euo pipefail -v "$script" </dev/null
done
[ $blocks -ge 2 ] || { echo "README.md or docs/command.md has no sh block" >&2; exit 1; }

for block in "$work"/*.cpp; do
  [ -e "$block" ] || continue
  echo "--- C++ block of ${block##*/}"
  ${CXX:-c++} -std=c++20 -Wall -Wextra ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude "$block" -o "$work/program" \
    -L"$build/lib" -lonepass -Wl,-rpath,"$(realpath "$build/lib")"
  "$work/program"
done
