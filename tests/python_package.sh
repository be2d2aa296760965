#!/usr/bin/env bash
# Builds a wheel from the objects of build/release, installs it into a fresh environment without a compiler in PATH, and runs it there.
# tools/test calls it separately, since it configures the build folder again with the same options.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${1:?usage: tests/python_package.sh PYTHON}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$(dirname "$python"):$PATH "$python" -m pip wheel . --quiet --disable-pip-version-check --no-build-isolation --no-deps -w "$work" \
  --config-settings=build-dir=build/release --config-settings=cmake.define.ONEPASS_TESTS=ON --config-settings=cmake.define.ONEPASS_EXAMPLES=ON
"$python" -m venv --system-site-packages "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$work"/onepass-*.whl

cat >"$work/try.py" <<'EOF'
import os, subprocess, sys
import numpy as np, onepass as op

package = os.path.dirname(op.__file__)
assert package.startswith(sys.argv[1]), package
f = op.jit(lambda x: op.tanh(x @ x) + op.softmax(x), mode="specialized")
x = np.random.default_rng(0).random((70, 70), np.float32)
assert np.allclose(f(x), np.tanh(x @ x) + np.exp(x) / np.exp(x).sum(1, keepdims=True), atol=1e-5)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "onepass" in line and line.rstrip().endswith((".so", ".so.0.1"))}
assert len(loaded) == 3 and all(path.startswith(package) for path in loaded), loaded  # the module, its own library and code generator
# Only libraries that every Linux has: no LLVM, and no other onepass.
allowed = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libz.so.1",
           "ld-linux-x86-64.so.2", "libonepass.so.0.1"}
for path in loaded:
    lines = subprocess.check_output(["readelf", "-d", path], text=True).splitlines()
    needed = {line.split("[")[1].split("]")[0] for line in lines if "NEEDED" in line}
    assert needed <= allowed, (path, needed - allowed)
assert os.path.exists(os.path.join(package, "_core.pyi")) and os.path.exists(os.path.join(package, "py.typed"))
EOF
(cd "$work" && env -i PATH=/usr/bin:/bin HOME="$work" ONEPASS_CACHE_DIR="$work/cache" "$work/env/bin/python" try.py "$work")
ls -l "$work"/*.whl | awk '{ print "A wheel of", $5, "bytes: installed and run" }'
