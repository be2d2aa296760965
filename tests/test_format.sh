#!/usr/bin/env bash
# The sources must be formatted. Skipped (77) without clang-format 16.
cd "$(dirname "$0")/.." || exit 1
status=0
tools/format --check || status=$?
if [ $status -eq 2 ]; then exit 77; fi
exit $status
