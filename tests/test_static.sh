#!/usr/bin/env bash
# The static library defines only onepass symbols, and a program linked with it is one file. It works in one process with another LLVM of
# the same version and with libonepass.so.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
export ONEPASS_CACHE_DIR=none  # each run compiles
cxx=${CXX:-c++}
version=$(sed -nE 's/^#define ONEPASS_VERSION_[A-Z]+ ([0-9]+)$/\1/p' include/onepass/version.h | paste -sd.)
[ -e "$build/lib/libonepass.a" ] || { echo "SKIPPED: $build has no static library"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_static: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }  # WHAT EXPECTED GOT

cmake --install "$build" --prefix "$work/root" >/dev/null
root=$work/root
library=$(find "$root" -name 'libonepass.a' -printf '%h\n')
[ -n "$library" ] || fail "no libonepass.a is installed"

echo "--- names"
nm -P "$library/libonepass.a" | awk '$2 ~ /[A-TV-Zu]/ && NF > 2 {print $1}' | sort >"$work/defined"
nm -DP --defined-only "$library/libonepass.so" | awk '{print $1}' | sort >"$work/exported"
diff "$work/exported" "$work/defined" >"$work/log" || { head -20 "$work/log"; fail "it does not define what libonepass.so exports, and nothing else"; }
! nm -P "$library/libonepass.a" | awk '$2 == "U" {print $1}' | grep -E '^(LLVM|_ZN4llvm|_ZN3fmt|ZSTD_[a-z]*Context|inflate|compress2)' || fail "it needs another library's names"

echo "--- a program in one file, by find_package"
mkdir "$work/project"
sed 's/onepass::onepass)/onepass::onepass_static)/' tests/consumer/CMakeLists.txt >"$work/project/CMakeLists.txt"
cp tests/consumer/main.cpp "$work/project/"
cmake -S "$work/project" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_CXX_COMPILER="${cxx##* }" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the consumer is not configured"; }
cmake --build "$work/consumer" >"$work/log" 2>&1 || { cat "$work/log"; fail "the consumer is not built"; }
rm "$library"/libonepass.so*
rm -r "$library/onepass-$version"
same "the consumer's output" "onepass $version" "$("$work/consumer/consumer")"
! ldd "$work/consumer/consumer" | grep -iE 'onepass|llvm|libz' || fail "it needs more than the system has"

if command -v pkg-config >/dev/null; then
  echo "--- by pkg-config --static"
  # shellcheck disable=SC2046,SC2086
  PKG_CONFIG_PATH=$library/pkgconfig $cxx -std=c++20 tests/consumer/main.cpp -o "$work/by_pkg_config" $(PKG_CONFIG_PATH=$library/pkgconfig pkg-config --static --cflags --libs onepass)
  same "what is linked" "onepass $version" "$("$work/by_pkg_config")"
fi

echo "--- two in one process: in a shared library, opened by a program that has one of its own"
cat >"$work/plugin.cpp" <<'EOF'
#include <onepass/onepass.h>
extern "C" __attribute__((visibility("default"))) float plugin(float x) {
  return onepass::compile([](onepass::Tensor a) { return tanh(a % 7) * 0 + a; })(onepass::Array::full({3}, x, onepass::f32)).to_vector<float>()[2];
}
EOF
cat >"$work/host.cpp" <<'EOF'
#include <dlfcn.h>
#include <onepass/onepass.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
int main(int, char** argv) {
  const auto twice = onepass::compile([](onepass::Tensor a) { return a % 7 * 2; });
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) return std::printf("%s\n", dlerror()), 1;
  const auto plugin = reinterpret_cast<float (*)(float)>(dlsym(library, "plugin"));
  if (!plugin || plugin(3) != 3 || twice(onepass::Array::full({2}, 4.0F, onepass::f32)).to_vector<float>()[1] != 8) return 2;
  dlclose(library);
  if (fork() == 0) _exit(twice(onepass::Array::full({2, 2}, 4.0F, onepass::f32)).to_vector<float>()[3] == 8 ? 7 : 8);
  int status = 0;
  wait(&status);
  return WEXITSTATUS(status) == 7 ? 0 : 3;
}
EOF
static=(-std=c++20 -I"$root/include" -DNDEBUG -fvisibility=hidden)
echo '{ global: plugin; local: *; };' >"$work/plugin.exports"
$cxx "${static[@]}" -shared -fPIC "$work/plugin.cpp" -o "$work/plugin.so" "$library/libonepass.a" -Wl,--version-script,"$work/plugin.exports" -Wl,-z,nodelete
$cxx "${static[@]}" "$work/host.cpp" -o "$work/host" "$library/libonepass.a" -ldl
"$work/host" "$work/plugin.so" || fail "two copies in one process: $?"

config=$(ls /usr/bin/llvm-config-19 /usr/lib/llvm-19/bin/llvm-config 2>/dev/null | head -1 || true)
[ -n "$config" ] || { echo "SKIPPED: no other LLVM"; exit 0; }
echo "--- beside LLVM $("$config" --version), shared and static"
cat >"$work/both.cpp" <<'EOF'
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/CommandLine.h>
#include <onepass/onepass.h>
#include <cstdio>
static llvm::cl::opt<bool> option("enable-misched-of-mine", llvm::cl::init(true));  // LLVM's options are global; onepass's are separate
int main() {
  const auto f = onepass::compile([](onepass::Tensor a) { return a % 7 * 2; });
  const float first = f(onepass::Array::full({2}, 4.0F, onepass::f32)).to_vector<float>()[1];
  onepass::wait_until_optimized();
  llvm::LLVMContext context;
  llvm::Module module("mine", context);
  llvm::IRBuilder<> b(context);
  llvm::Function* g = llvm::Function::Create(llvm::FunctionType::get(b.getInt32Ty(), false), llvm::Function::ExternalLinkage, "g", module);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "", g));
  b.CreateRet(b.getInt32(3));
  const bool sound = !llvm::verifyModule(module, nullptr) && option;
  const float second = f(onepass::Array::full({3}, 5.0F, onepass::f32)).to_vector<float>()[1];
  std::printf("%g %g %d\n", first, second, sound);
}
EOF
for how in shared static; do
  # shellcheck disable=SC2046
  $cxx -std=c++20 -I"$root/include" -isystem "$("$config" --includedir)" -DNDEBUG -fno-rtti "$work/both.cpp" -o "$work/both" "$library/libonepass.a" -L"$("$config" --libdir)" \
    $("$config" "--link-$how" --libs core support) $("$config" "--link-$how" --system-libs) -Wl,-rpath,"$("$config" --libdir)"
  same "beside the $how LLVM" "8 10 1" "$("$work/both")"
done
echo "named, linked, loaded and run"
