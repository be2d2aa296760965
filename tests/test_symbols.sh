#!/usr/bin/env bash
# libonepass.so must export exactly the symbols of cmake/libonepass.symbols, so that removed or new symbols are noticed before a release.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
[ -z "${ONEPASS_SANITIZE-}" ] || { echo "SKIPPED: a sanitizer adds names"; exit 77; }
case ${CXX:-c++} in *clang*) echo "SKIPPED: the list is of gcc's names"; exit 77 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools/symbols.sh "$build/lib/libonepass.so" >"$work/now"
[ "$(wc -l <"$work/now")" -gt 100 ] || { echo "test_symbols: the library exports too little"; exit 1; }
gone=$(LC_ALL=C comm -23 <(awk '{print $1}' cmake/libonepass.symbols | LC_ALL=C sort) <(awk '{print $1}' "$work/now" | LC_ALL=C sort) | sed 's/@Base//' | c++filt)
new=$(LC_ALL=C comm -13 <(awk '{print $1}' cmake/libonepass.symbols | LC_ALL=C sort) <(awk '{print $1}' "$work/now" | LC_ALL=C sort) | sed 's/@Base//' | c++filt)
if [ -n "$gone" ]; then
  printf 'test_symbols: programs that were linked with %s of this version no longer start, since it lacks:\n%s\n' "$(head -1 "$work/now" | cut -d' ' -f1)" "$gone"
  echo "Keep these names, or raise the minor version (docs/versions.md) and write the list anew: tools/symbols.sh $build/lib/libonepass.so > cmake/libonepass.symbols"
  exit 1
fi
if [ -n "$new" ]; then
  printf 'test_symbols: new names are exported:\n%s\nIf they are to be: tools/symbols.sh %s > cmake/libonepass.symbols\n' "$new" "$build/lib/libonepass.so"
  exit 1
fi
