#!/usr/bin/env bash
# Runs the ```sh blocks of README.md and docs/ from the root of the repository. All blocks of a page run in one shell, which stops at the
# first error. Compiles the ```cpp blocks of README.md, which are whole programs. Skips ```bash blocks, which build the project.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ONEPASS_BUILD_DIR:-build/release}
# CMake projects in blocks use these flags.
if [ "${ONEPASS_SANITIZE-}" ]; then export CXXFLAGS="-fsanitize=$ONEPASS_SANITIZE" LDFLAGS="-fsanitize=$ONEPASS_SANITIZE"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The pages name build/release; a test of another build replaces it.
absolute=$(realpath "$build")
blocks=0
for page in README.md docs/*.md docs/*/*.md; do
  awk -v work="$work" -v page="${page//\//_}" '
    /^```sh$/  { file = sprintf("%s/%s.sh", work, page); next }
    /^```cpp$/ { file = page == "README.md" ? sprintf("%s/%03d.cpp", work, ++count) : ""; next }
    /^```/     { file = ""; next }
    file       { print > file }
  ' "$page"
  script=$work/${page//\//_}.sh
  [ -e "$script" ] || continue
  sed -i -e "s|\$PWD/build/release|@BUILD@|g" -e "s|build/release|$build|g" -e "s|@BUILD@|$absolute|g" "$script"
  echo "--- $page:"
  blocks=$((blocks + 1))
  bash -euo pipefail -v "$script" </dev/null
done
[ $blocks -ge 2 ] || { echo "README.md or docs/command.md has no sh block" >&2; exit 1; }

for block in "$work"/*.cpp; do
  [ -e "$block" ] || continue
  echo "--- README.md, C++ block"
  ${CXX:-c++} -std=c++20 -Wall -Wextra ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude "$block" -o "$work/program" \
    -L"$build/lib" -lonepass -Wl,-rpath,"$(realpath "$build/lib")"
  "$work/program"
done
