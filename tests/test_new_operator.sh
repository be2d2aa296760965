#!/usr/bin/env bash
# Applies the changes of docs/contributing/operator.md to a copy of the sources, builds it, and checks the new operator in every language. A
# row of the operator table changes every file's code, so only --full runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${ONEPASS_TEST_FULL-}" ] || { echo "SKIPPED: of tools/test --full"; exit 77; }
[ -z "${ONEPASS_SANITIZE-}" ] || { echo "SKIPPED: the optimised build's test does it"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar cf - --exclude=./build --exclude=./.git . | tar xf - -C "$work"
python3 -c '
import sys
sys.path.insert(0, "tests")
import diffs_of_page
print(*diffs_of_page.apply("docs/contributing/operator.md", sys.argv[1], sys.argv[1]))' "$work"
cd "$work"
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DONEPASS_EXAMPLES=OFF -DONEPASS_STATIC=OFF >/dev/null
cmake --build build --target test_ops test_operators_page onepass_command onepass_llvm | tail -n 1
build/tests/test_ops
ONEPASS_WRITE_DOCS=1 build/tests/test_operators_page
grep '^| `heaviside(a, b)` |' docs/operators.md
[ "$(build/tools/onepass run 'heaviside(x, 0.5)' x=-3.0) $(build/tools/onepass run 'heaviside(x, 0.5)' x=0.0) $(build/tools/onepass run 'heaviside(x, 0.5)' x=3.0)" = "0.0 0.5 1.0" ]
