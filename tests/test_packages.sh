#!/usr/bin/env bash
# The Debian packages: built by cpack and unpacked into an empty root. There a C++ and a C program are built and run, and the command runs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
[ -z "${ONEPASS_SANITIZE-}" ] || { echo "packages are made of the optimised build"; exit 77; }
for program in cpack dpkg-deb dpkg-shlibdeps; do command -v $program >/dev/null || { echo "SKIPPED: $program is not installed"; exit 77; }; done
[ -e "$build/lib/libonepass_llvm.so" ] || { echo "SKIPPED: $build has no code generator"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_packages: $*" >&2; exit 1; }
version=$(sed -nE 's/^#define ONEPASS_VERSION_[A-Z]+ ([0-9]+)$/\1/p' include/onepass/version.h | paste -sd.)

cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/log" 2>&1 || { cat "$work/log"; fail "cpack failed"; }
cd "$work/packages"
[ "$(ls ./*.deb | wc -l)" -eq 3 ] || fail "three packages are wanted: $(ls)"
for package in "libonepass${version%.*}" libonepass-dev onepass-tools; do
  file=$(ls "${package}_${version}"_*.deb)
  depends=$(dpkg-deb -f "$file" Depends)
  echo "$package: $depends"
  ! grep -q -i llvm <<<"$depends" || fail "$package depends on LLVM"
  if [ "$package" != "libonepass${version%.*}" ]; then grep -q "libonepass${version%.*} (= $version)" <<<"$depends" || fail "$package lacks its library"; fi
  dpkg-deb -x "$file" "$work/root"
  for licence in Expat "Apache-2.0 with LLVM exception" BSD-3-clause Zlib; do
    grep -q "^License: $licence" "$work/root/usr/share/doc/$package/copyright" || fail "$package lacks the licence $licence"
  done
done

dpkg-deb -I ./libonepass"${version%.*}"_*.deb symbols | cmp - "$OLDPWD/cmake/libonepass.symbols" || fail "the library's package has no list of its names"
usr=$work/root/usr
for file in share/man/man1/onepass.1 share/bash-completion/completions/onepass share/doc/libonepass-dev/CHANGELOG.md lib/libonepass.a; do
  [ -s "$usr/$file" ] || fail "not in the packages: $file"
done
export LD_LIBRARY_PATH=$usr/lib ONEPASS_CACHE_DIR=none
echo '#include <onepass/onepass.h>
#include <cstdio>
int main() { std::printf("%g\n", onepass::compile([](onepass::Tensor x) { return sum(tanh(x) * 2); })(onepass::Array::zeros({9}, onepass::f32)).item<float>()); }' >"$work/a.cpp"
"${CXX:-c++}" -std=c++20 "$work/a.cpp" -o "$work/a" -I"$usr/include" -L"$usr/lib" -lonepass
[ "$("$work/a")" = 0 ] || fail "the program in C++"
echo '#include <onepass/c.h>
#include <stdio.h>
int main(void) { return puts(onepass_version()) < 0; }' >"$work/c.c"
cc -std=c99 -pedantic -Werror "$work/c.c" -o "$work/c" -I"$usr/include" -L"$usr/lib" -lonepass
[ "$("$work/c")" = "$version" ] || fail "the program in C"
"$usr/bin/onepass" --version | grep -qF "$version" || fail "the command"
"$usr/bin/onepass" bench 'x @ x' --shapes 'x=f32[64,64]' --mode specialized >"$work/log" || { cat "$work/log"; fail "the command does not compile"; }
