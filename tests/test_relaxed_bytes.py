"""A relaxed program moves at most the counted bytes of the strict program, and stores at most as much between its kernels. Tests all
workloads of bench/, reductions of reductions, the layouts of bench/layouts, and sums of products that `contract` or `reassociate`
may turn into contractions."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ONEPASS = os.path.join(os.environ["ONEPASS_BUILD_DIR"], "tools", "onepass")
RELAXATIONS = ["contract", "reassociate", "approximate", "contract,reassociate,approximate"]


def module(path):
    spec = importlib.util.spec_from_file_location("module", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


bench = module(os.path.join(HERE, "../bench/from_nothing.py"))
PROGRAMS = [(name, text, list(bench.words(bench.TYPES[name])))
            for name, text in bench.functions(os.path.join(HERE, "../bench/workloads.fuse")).items()]
PAIRS = ["a=f32[512,16]", "b=f32[300,16]"]
SMALL = ["a=f32[512,3]", "b=f32[300,3]"]
IMAGE = ["x=f32[16,24,24,64]", "g=f32[64]", "b=f32[64]", "dy=f32[16,24,24,64]"]
NORM = """fn f(x, g, b, dy) { mu = mean(x, [0, 1, 2], keepdims=true); v = mean((x - mu)*(x - mu), [0, 1, 2], keepdims=true)
y = (x - mu)*(1/sqrt(v + 1e-5))*reshape(g, [64]) + reshape(b, [64])
dx, dg, db = vjp(y, [x, g, b], dy)
return y, dx, dg, db }"""
MORE = [
    ("sum(exp(-sum((a[:, none, :] - b[none, :, :])**2, -1)), 1)", PAIRS),
    ("argmin(sum((a[:, none, :] - b[none, :, :])**2, -1), 1)", PAIRS),
    ("sum(exp(-sum((a[:, none, :] - b[none, :, :])**2, -1)), 1)", SMALL),
    ("sum(1/sqrt(sum((a[:, none, :] - a[none, :, :])**2, -1) + 1e-3), 1)", SMALL[:1]),
    (NORM, IMAGE),
    ("softmax(x, 0)", ["x=f32[256,4096]"]),
    ("(x - mean(x, 0))*(1/std(x, 0))", ["x=f32[1024,2048]"]),
    # three products
    ("sum(a[:, none]*b[none, :]*c, 1)", ["a=f32[700]", "b=f32[900]", "c=f32[700,900]"]),
    ("sum(a[:, none, none]*b[none, :, none]*c[none, none, :], [1, 2])", ["a=f32[200]", "b=f32[300]", "c=f32[400]"]),
    ("sum(a*b*c, 0)", ["a=f32[700,900]", "b=f32[700,900]", "c=f32[900]"]),
    ("sum(a[:, :, none]*b[none, :, :], 1)", ["a=f32[300,200]", "b=f32[200,100]"]),
    ("sum(a*b, -1) + sum(a*c, -1)", ["a=f32[500,400]", "b=f32[500,400]", "c=f32[400]"]),
    ("grad(sum(x*w*v), [w])", ["x=f32[700,900]", "w=f32[900]", "v=f32[700,900]"]),
    ("sum(a*b + a*c + b*c, 1)", ["a=f32[700,900]", "b=f32[700,900]", "c=f32[700,900]"]),
]
PROGRAMS += [(text, text, shapes) for text, shapes in MORE]


def moved(program, shapes, relax=None):
    """Returns the bytes that all kernels load and store, and the number of kernels."""
    with tempfile.NamedTemporaryFile("w", suffix=".fuse") as file:
        file.write(program)
        file.flush()
        command = [ONEPASS, "dump", file.name, "--json", "--shapes", *shapes] + (["--relax", relax] if relax else [])
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program[:80]}: {done.stderr}")
    kernels = json.loads(done.stdout)["kernels"]
    return sum(k["bytes"] for k in kernels), len(kernels)


def compare(row):
    name, text, shapes = row
    strict, kernels = moved(text, shapes)
    for relax in RELAXATIONS:
        relaxed, relaxed_kernels = moved(text, shapes, relax)
        yield name, relax, strict, relaxed, kernels, relaxed_kernels


with ThreadPoolExecutor(2) as pool:
    results = [r for rows in pool.map(lambda row: list(compare(row)), PROGRAMS) for r in rows]
worse = [r for r in results if r[3] > r[2]]
for name, relax, strict, relaxed, kernels, relaxed_kernels in worse:
    print(f"{name[:100]}: {relax} moves {relaxed} bytes in {relaxed_kernels} kernels, strict {strict} in {kernels}")
assert len(results) == 4 * len(PROGRAMS) and len(PROGRAMS) >= 40
sys.exit(1 if worse else 0)
