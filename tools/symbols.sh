#!/usr/bin/env bash
# Prints the names that libonepass.so exports, in the form of a Debian symbols file, to standard output. The result is stored in
# cmake/libonepass.symbols.
# Usage: tools/symbols.sh LIBRARY > cmake/libonepass.symbols
set -euo pipefail
soname=$(readelf -d "$1" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')
version=${soname##*.so.}
echo "$soname libonepass$version #MINVER#"
nm -DP --defined-only "$1" | awk '{print $1}' | LC_ALL=C sort | sed "s/\$/@Base/; s/^/ /; s/\$/ $version.0/"
