# Sourced by tools/quickstart and tools/test: what onepass is built with, and how a bare Debian 12 gets it.

required_packages=(cmake ninja-build g++ llvm-19-dev libzstd-dev zlib1g-dev libfmt-dev libxxhash-dev catch2 libcli11-dev nlohmann-json3-dev libpng-dev libmpfr-dev python3)
helpful_packages=(lld-19 clang-format-16 pkg-config)  # links faster; checks the format; one of the tests of the installed library

say() { printf '\n== %s\n' "$*"; }

# Installs the required packages that are missing, and the helpful ones with them. Where dpkg is not at home or apt cannot be used,
# one line says what to install; on another system CMake finds out what is there.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian system, so nothing is installed. The build needs CMake 3.25, Ninja, gcc 12 or clang 16, LLVM 19, fmt 9, xxHash, Catch2 2.13, CLI11, nlohmann-json, libpng and MPFR."
    return
  fi
  local package missing=()
  for package in "${required_packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return; fi

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then packages_failed "neither root nor sudo"; fi
    as_root=(sudo)
    if [ ! -t 0 ]; then as_root+=(-n); fi  # nobody is there to type a password
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
  say "Installing ${missing[*]}"
  "${apt[@]}" update || true  # an install may do without
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" "${helpful_packages[@]}" >/dev/null ||
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    packages_failed "apt-get failed"
}

packages_failed() {
  echo "Cannot install packages ($1). Please run as root: apt-get install ${required_packages[*]}" >&2
  exit 1
}

# build PRESET TARGET...: configures (again only if something changed) and builds.
build() {
  local preset=$1 target targets=()
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  say "Building build/$preset"
  local log
  if ! log=$(cmake --preset "$preset" 2>&1); then
    echo "$log" >&2
    exit 1
  fi
  cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}"
}
