# Sourced by tools/quickstart and tools/test: the packages that onepass needs, and their installation on a bare Debian 12.

required_packages=(cmake ninja-build g++ llvm-19-dev libzstd-dev zlib1g-dev libfmt-dev libxxhash-dev catch2 libcli11-dev nlohmann-json3-dev libpng-dev libmpfr-dev libeigen3-dev python3 python3-dev python3-venv python3-numpy)
# Packages for faster links, the format check, a test of the installed library, use_nvrtc, zsh completion and tools/docs.
helpful_packages=(lld-19 clang-format-16 pkg-config python3-pip zsh doxygen)

say() { printf '\n== %s\n' "$*"; }

# Installs missing required packages, together with the helpful packages. Without dpkg, or if apt cannot be used, prints one line with the
# packages to install. On other systems CMake finds the installed packages.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian system, so nothing is installed. The build needs CMake 3.25, Ninja, gcc 12 or clang 16, LLVM 19, fmt 9, xxHash, Catch2 2.13, CLI11, nlohmann-json, libpng and MPFR; the tests also use Eigen 3 and NumPy."
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
    if [ ! -t 0 ]; then as_root+=(-n); fi  # no user can type a password
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
  say "Installing ${missing[*]}"
  "${apt[@]}" update || true  # the install may work without an update
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" "${helpful_packages[@]}" >/dev/null ||
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    packages_failed "apt-get failed"
}

packages_failed() {
  echo "Cannot install packages ($1). Please run as root: apt-get install ${required_packages[*]}" >&2
  exit 1
}

# Finds NVIDIA's compiler, for the tests of CUDA kernels: the compiler that onepass finds, else the Python package's compiler, kept in
# build/nvrtc. If neither is available, these tests report that they were skipped.
use_nvrtc() {
  local name package=nvidia-cuda-nvrtc-cu12 library=$PWD/build/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
  for name in "${ONEPASS_NVRTC:-libnvrtc.so.13}" libnvrtc.so.12 libnvrtc.so {/usr/local,/opt}/cuda/lib64/libnvrtc.so; do
    if python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$name" 2>/dev/null; then return; fi
  done
  if [ ! -e "$library" ]; then
    say "Fetching $package"
    python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps --target build/nvrtc "$package" || true
  fi
  if [ -e "$library" ]; then
    export ONEPASS_NVRTC=$library
  else
    echo "No NVRTC: CUDA kernels are not compiled by NVIDIA's compiler in this run."
  fi
}

# Makes build/python-env, a Python with NumPy and the build dependencies of the Python module. Sets `python_options` to CMake's options for
# it. Leaves them empty, with a message, if it cannot be made.
use_python() {
  local folder=$PWD/build/python-env base
  python_options=()
  if ! "$folder/bin/python" -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null; then
    for base in python3 /usr/bin/python3; do  # the first Python on the path may lack NumPy
      if "$base" -c 'import numpy, ensurepip' 2>/dev/null; then break; fi
    done
    say "Making build/python-env with nanobind and scikit-build-core"
    rm -rf "$folder"
    "$base" -m venv --system-site-packages "$folder" &&
      "$folder/bin/python" -m pip install --quiet --disable-pip-version-check nanobind scikit-build-core || true
  fi
  if "$folder/bin/python" -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null; then
    python_options=(-DONEPASS_PYTHON=ON -DPython_EXECUTABLE="$folder/bin/python")
    local package module packages=(array-api-strict hypothesis toolz)
    if [ "${ONEPASS_TEST_FULL-}" ]; then packages+=(numexpr 'dask[array]' distributed); fi
    for package in "${packages[@]}"; do  # tests without their package report that they were skipped
      module=${package%%[*}
      "$folder/bin/python" -c "import ${module//-/_}" 2>/dev/null ||
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$package" || true
    done
  else
    echo "No nanobind: the Python module is neither built nor tested in this run."
  fi
}

# Makes build/docs-env, a Python with the packages of the documentation site. Fails with a message if the packages or Doxygen are not
# available.
use_docs() {
  local folder=$PWD/build/docs-env modules='import sphinx, myst_parser, furo, sphinx_copybutton; assert sphinx.version_info >= (9,)'
  if ! command -v doxygen >/dev/null; then
    echo "No Doxygen: the documentation site is not built. On Debian: apt-get install doxygen"
    return 1
  fi
  if ! "$folder/bin/python" -c "$modules" 2>/dev/null; then
    say "Making build/docs-env with Sphinx"
    rm -rf "$folder"
    python3 -m venv "$folder" &&
      "$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'sphinx>=9,<10' 'myst-parser>=5,<6' furo sphinx-copybutton || true
  fi
  if ! "$folder/bin/python" -c "$modules" 2>/dev/null; then
    echo "No Sphinx 9: the documentation site is not built."
    return 1
  fi
}

# build PRESET [-DOPTION=VALUE...] TARGET...: configures (again only after a change) and builds.
build() {
  local preset=$1 target targets=() options=()
  shift
  for target in "$@"; do
    case $target in
      -D*) options+=("$target") ;;
      *) targets+=(--target "$target") ;;
    esac
  done
  say "Building build/$preset"
  local log
  if ! log=$(cmake --preset "$preset" ${options[@]+"${options[@]}"} 2>&1); then
    echo "$log" >&2
    exit 1
  fi
  cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}"
}
