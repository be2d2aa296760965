#!/usr/bin/env bash
# Runs every example as a user would. Each example checks its results and ends with an error if a result is wrong.
set -euo pipefail
examples=$(realpath "${ONEPASS_BUILD_DIR:-build/release}/examples")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$PWD
cd "$work"

# run NAME PATTERN ARGUMENT...: the output must match the pattern
run() {
  local name=$1 pattern=$2
  shift 2
  echo "--- $name $*"
  tested+=("$name")
  "$examples/$name" "$@" >"$work/$name.txt" </dev/stdin || { cat "$work/$name.txt"; echo "$name failed" >&2; exit 1; }
  cat "$work/$name.txt"
  grep -q -- "$pattern" "$work/$name.txt" || { echo "$name: its output lacks: $pattern" >&2; exit 1; }
}
is_png() { [ "$(head -c 4 "$1" | tail -c 3)" = PNG ] || { echo "$1 is no picture" >&2; exit 1; }; }

tested=()
run affine 'results equal to the last bit' </dev/null
run gradient 'recorded 1 time(s) in 201 calls' </dev/null
run pipes 'function objects *[0-9]* nodes, the same graph' </dev/null
run options 'every number checked' 100000 </dev/null
for optimizer in momentum adam; do
  for weights in f32 bf16; do run digits 'recorded 1 time(s)' "$optimizer" "$weights" </dev/null; done
done
run digits '359 test images' momentum f32 10000 </dev/null
run device 'w = 3.0000, b = 0.5000' </dev/null
fake=$(dirname "$examples")/lib/libfake_cuda.so  # fake driver and compiler
if [ -e "$fake" ]; then
  ONEPASS_CUDA_DRIVER=$fake ONEPASS_NVRTC=$fake run device 'runs on the first GPU' </dev/null
  grep -q 'w = 3.0000, b = 0.5000' device.txt && grep -q 'copied 0 bytes to the device and 0 back' device.txt
fi
run hillshade '1 kernel' "$work/hillshade.png" </dev/null
is_png "$work/hillshade.png"
run tone_map '1 kernel' "$work/tone_map.png" </dev/null
is_png "$work/tone_map.png"

run calculator 'y: f32\[344, 403\]' z="$source/examples/data/jacksboro_elevation.npy" <<'END'
y = cast(z, f32) / 1000
max(y) - min(y)
y +* 2
y + missing
y[400, 0]
:save y y.npy
:load again y.npy
sum(abs(again - y))
:quit
END
grep -q 'out: f32\[\] = 0$' calculator.txt             # saved and loaded
grep -q 'an expression is missing after' calculator.txt  # shows a caret and continues
grep -q 'there is no array missing' calculator.txt
grep -q '400 is out of range' calculator.txt

for example in "$examples"/*; do
  [[ " ${tested[*]} " == *" $(basename "$example") "* ]] || { echo "example $(basename "$example") has no test" >&2; exit 1; }
done
