# Sourced by tools/quickstart and tools/test: what onepass is built with, and how a bare Debian 12 gets it.

required_packages=(cmake ninja-build g++ llvm-19-dev libzstd-dev zlib1g-dev libfmt-dev libxxhash-dev catch2 libcli11-dev nlohmann-json3-dev libpng-dev libmpfr-dev libeigen3-dev python3 python3-dev python3-venv python3-numpy)
helpful_packages=(lld-19 clang-format-16 pkg-config python3-pip zsh doxygen)  # links faster; checks the format; one of the tests of the installed library; use_nvrtc; its completion; tools/docs

say() { printf '\n== %s\n' "$*"; }

# Installs the required packages that are missing, and the helpful ones with them. Where dpkg is not at home or apt cannot be used,
# one line says what to install; on another system CMake finds out what is there.
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

# NVIDIA's compiler, for the tests of CUDA kernels: the one that onepass finds, else the one of its Python package, kept in build/nvrtc. Where
# neither can be had these tests say that they were skipped.
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

# Makes build/python-env, a Python with NumPy and what the Python module is built with, and sets `python_options` to CMake's options for it.
# Leaves them empty, and says so, where that cannot be made.
use_python() {
  local folder=$PWD/build/python-env base
  python_options=()
  if ! "$folder/bin/python" -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null; then
    for base in python3 /usr/bin/python3; do  # the first on the path may have no NumPy
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
    for package in "${packages[@]}"; do  # tests that need one that cannot be had say that they were skipped
      module=${package%%[*}
      "$folder/bin/python" -c "import ${module//-/_}" 2>/dev/null ||
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$package" || true
    done
  else
    echo "No nanobind: the Python module is neither built nor tested in this run."
  fi
}

# Makes build/docs-env, a Python with what the documentation site is built with; fails, and says so, where that or Doxygen cannot be had.
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

# build PRESET [-DOPTION=VALUE...] TARGET...: configures (again only if something changed) and builds.
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
