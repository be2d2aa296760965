#!/usr/bin/env bash
# Compiles and runs the C++ of docs/tutorial.md, coming-from.md, api.md, arrays.md, concepts/ and other pages. ```c++ blocks are outside of
# functions; each ```cpp block is a function body. A failed assert names the line of the page.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ONEPASS_BUILD_DIR:-build/release}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
eigen=
for folder in /usr/include/eigen3 /usr/local/include/eigen3; do
  if [ -e "$folder/Eigen/Core" ]; then eigen="-isystem $folder"; fi
done
run_page() {  # PAGE LEAST_BLOCKS
  mkdir -p "$(dirname "$work/$1")"
  awk -v page="$PWD/docs/$1.md" '
    /^```c\+\+$/ { inside = 1; printf "#line %d \"%s\"\n", NR + 1, page; next }
    /^```cpp$/   { inside = 2; printf "static void block%d() {\n#line %d \"%s\"\n", ++count, NR + 1, page; next }
    /^```/       { if (inside == 2) print "}"; inside = 0; next }
    inside       { print }
    END          { print "int main() {"; for (i = 1; i <= count; ++i) printf "  block%d();\n", i; print "}" }
  ' "docs/$1.md" >"$work/$1.cpp"
  grep -q "block$2" "$work/$1.cpp" || { echo "docs/$1.md has too few blocks" >&2; exit 1; }
  # shellcheck disable=SC2086
  ${CXX:-c++} -std=c++20 -Wall -Wextra -UNDEBUG ${ONEPASS_SANITIZE:+-fsanitize=$ONEPASS_SANITIZE} -Iinclude $eigen "$work/$1.cpp" -o "$work/$1" \
    -L"$build/lib" -lonepass -Wl,-rpath,"$(realpath "$build/lib")"
  (cd "$work" && "./$1")
}
run_page tutorial 8
run_page coming-from 2
run_page api 8
run_page arrays 6
run_page runtime 9
run_page gradients 8
run_page cuda 1
run_page concepts/recording 2
run_page concepts/order-of-summation 1
run_page concepts/shapes 1
run_page concepts/memory 2
run_page howto/wrong-results 2
run_page security 1
run_page programs 10
fake=$build/lib/libfake_cuda.so  # fake driver and compiler
if [ -e "$fake" ]; then
  fake=$(realpath "$fake")
  ONEPASS_CUDA_DRIVER=$fake ONEPASS_NVRTC=$fake "$work/cuda"
fi
