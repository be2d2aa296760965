#!/usr/bin/env bash
# Tests `cmake --install`: the library has a versioned name and exports only onepass symbols. The code generator is found after the tree
# moved. find_package and pkg-config find their packages, and the command runs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
export ONEPASS_CACHE_DIR=none  # each run compiles
cxx=${CXX:-c++}
sanitize=${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE}
version=$(sed -nE 's/^#define ONEPASS_VERSION_[A-Z]+ ([0-9]+)$/\1/p' include/onepass/version.h | paste -sd.)

[ -e "$build/lib/libonepass.so" ] && [ -e "$build/lib/libonepass_llvm.so" ] && [ -e "$build/tools/onepass" ] || { echo "$build is not built whole"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_install: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }  # WHAT EXPECTED GOT

cmake --install "$build" --prefix "$work/first" >/dev/null
root=$work/moved
mv "$work/first" "$root"
library=$(find "$root" -name 'libonepass.so' -printf '%h\n')
[ -n "$library" ] || fail "no libonepass.so"

echo "--- files"
same "SONAME" "libonepass.so.${version%.*}" "$(readelf -d "$library/libonepass.so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')"
same "target of the links" "libonepass.so.$version" "$(basename "$(realpath "$library/libonepass.so")")"
[ -e "$library/onepass-$version/libonepass_llvm.so" ] || fail "no code generator in $library/onepass-$version"
for header in include/onepass/*.h; do [ -e "$root/$header" ] || fail "not installed: $header"; done
for binary in "$library/libonepass.so" "$library/onepass-$version/libonepass_llvm.so" "$root/bin/onepass"; do
  ! readelf -d "$binary" | grep -E 'RPATH|RUNPATH' || fail "$binary has a search path of the build"
done
! grep -rlF -e "$build" -e "$PWD" -e "$work" "$root/include" "$library/cmake" "$library/pkgconfig" || fail "an installed text file names a folder of this machine"

echo "--- exported names"
nm -D --defined-only "$library/libonepass.so" | awk '{print $NF}' | c++filt >"$work/names"
if [ -z "$sanitize" ]; then
  ! grep -vE '^(onepass::|typeinfo (name )?for onepass::|vtable for onepass::|onepass_|__jit_debug_(descriptor|register_code)$)' "$work/names" || fail "exported, but not onepass's"
fi
for name in 'onepass::formula(' 'onepass::load_npy(' 'typeinfo for onepass::Error'; do
  grep -qF "$name" "$work/names" || fail "not exported: $name"
done
! grep -E 'onepass::(ir|compiler|os|memory|threads)::' "$work/names" || fail "an inner name is exported"
same "exports of the code generator" "onepass_codegen onepass_llvm_built_for onepass_llvm_is_inside onepass_llvm_version onepass_sha256_add onepass_sha256_delete onepass_sha256_finish onepass_sha256_new" \
  "$(nm -D --defined-only "$library/onepass-$version/libonepass_llvm.so" | awk '$NF ~ /^onepass|^_Z/ {print $NF}' | sort | paste -sd' ')"

# From here on nothing of the build may be used.
unset LD_LIBRARY_PATH

echo "--- find_package"
cmake -S tests/consumer -B "$work/consumer" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_CXX_COMPILER="${cxx##* }" -DCMAKE_CXX_FLAGS="$sanitize" \
  -DCMAKE_EXE_LINKER_FLAGS="$sanitize" >"$work/log" 2>&1 || { cat "$work/log"; fail "the consumer is not configured"; }
cmake --build "$work/consumer" >"$work/log" 2>&1 || { cat "$work/log"; fail "the consumer is not built"; }
same "the consumer's output" "onepass $version" "$("$work/consumer/consumer")"
sed 's/find_package(onepass 0.1 /find_package(onepass 0.0 /' tests/consumer/CMakeLists.txt >"$work/CMakeLists.txt"
cp tests/consumer/main.cpp "$work/"
! cmake -S "$work" -B "$work/older" -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 || fail "a package of another minor version is accepted"
grep -q "compatible" "$work/log" || fail "no word of the version that does not fit"

if command -v pkg-config >/dev/null; then
  echo "--- pkg-config"
  export PKG_CONFIG_PATH=$library/pkgconfig
  same "pkg-config's version" "$version" "$(pkg-config --modversion onepass)"
  # shellcheck disable=SC2046,SC2086
  $cxx -std=c++20 $sanitize tests/consumer/main.cpp -o "$work/by_pkg_config" $(pkg-config --cflags --libs onepass)
  same "what is loaded" "onepass $version" "$(LD_LIBRARY_PATH=$library "$work/by_pkg_config")"
else
  echo "pkg-config is not installed: not tested"
fi

echo "--- the command"
ln -s "$root/bin/onepass" "$work/link"
cd "$work"
same "the command's version" "onepass $version" "$("$root/bin/onepass" --version)"
"$work/link" run 'iota([100]) * 2' -o out=y.npy --mode generic || fail "the installed command does not compile a formula, through a link"
[ -s y.npy ] || fail "no output"
"$root/bin/onepass" doctor | grep -E '^LLVM: [0-9]' || fail "doctor does not see LLVM"

echo "--- a code generator of another version, and none (a shift of i16: what runs in tiles needs none)"
module=$library/onepass-$version/libonepass_llvm.so
printf 'extern "C" const char* onepass_codegen(const void*, void*) { return "x"; } extern "C" const char* onepass_llvm_built_for() { return "0.0.7"; }' >other.cpp
$cxx -shared -fPIC other.cpp -o other.so
mv "$module" kept.so
cp other.so "$module"
[ -z "$sanitize" ] || exit 0  # a library without the sanitizer cannot be mixed with a sanitized process
code=0
"$root/bin/onepass" run 'cast(x, i16) << 1' x=y.npy -o out=n.npy --mode generic 2>message || code=$?
same "exit code" 2 "$code"
grep -qF "belongs to onepass 0.0.7, but the library is onepass $version" message || { cat message; fail "another version's code generator is not refused"; }
rm "$module"
code=0
"$root/bin/onepass" run 'cast(x, i16) << 1' x=y.npy -o out=n.npy --mode generic 2>message || code=$?
same "exit code" 2 "$code"
grep -qF "use mode reference" message || { cat message; fail "no word on the missing code generator"; }
"$root/bin/onepass" run 'sum(x)' x=y.npy -o out=n.npy --mode reference
[ -s n.npy ] || fail "mode reference does not run without the code generator"
echo "installed, moved, found and run"
