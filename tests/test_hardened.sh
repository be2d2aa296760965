#!/usr/bin/env bash
# Only runtime/os.cpp may read the environment, which is not trusted in a program with more rights than its caller. The command is a
# position-independent program with tables that are read-only before main() starts, and with checked stacks and buffers.
set -euo pipefail
program=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")/tools/onepass
failed=0
wants() {  # WHAT PATTERN TEXT
  grep -Eq "$2" <<<"$3" || { echo "$program has no $1" >&2; failed=1; }
}
segments=$(readelf -lhW "$program")
dynamic=$(readelf -dW "$program")
names=$(readelf -W --dyn-syms "$program")
wants "read-only relocations (RELRO)" 'GNU_RELRO' "$segments"
wants "immediate binding (BIND_NOW)" 'BIND_NOW|FLAGS_1.*NOW' "$dynamic"
wants "position-independent code" 'Type: +DYN' "$segments"
wants "stack that is not executable" 'GNU_STACK.* RW  ' "$segments"
wants "stack protector" '__stack_chk_fail' "$names"
if [ -z "${ONEPASS_SANITIZE-}" ]; then wants "fortified functions" '__[a-z]+_chk' "$names"; fi
cd "$(dirname "$0")/.."
if grep -rnE '\b(secure_)?getenv\(|\benviron\b' ir compiler runtime tools include --include='*.cpp' --include='*.h' | grep -v '^runtime/os.cpp:'; then
  echo "these ask for the environment past os::environment" >&2
  failed=1
fi
exit $failed
