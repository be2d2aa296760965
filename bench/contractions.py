#!/usr/bin/env python3
"""Times matrix products against OpenBLAS (NumPy's) and torch, if installed: odd, skinny and batched shapes in all four transpositions.

    bench/contractions.py [--build build/release] [--types f32,f64] [--forms n,a,b,ab] [--only TEXT,TEXT] [--squares] [--peers numpy,torch]
                          [--threads N] [--rounds R] [--seconds S] [--json FILE]

A row is a shape `m x k x n`, or `batch x [m x k x n]`, and a form: `n` is `a @ b`; `a` and `b` have that operand stored transposed, `ab` both.
Each contender is a separate process that writes to existing arrays. Contenders alternate for `--rounds` rounds of about `--seconds` each.

Prints microseconds (the median call of the fastest round) and two ratios, above 1 if onepass is faster: to OpenBLAS, and to the fastest
other contender; then geometric means and the rows below 0.9. Checks each contender's result against f64. Needs NumPy.
"""
import argparse, ctypes, json, math, os, re, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = """
1000x31x1000 1000x32x1000 1000x64x1000 1000x255x1000 1000x784x1000 1000x1000x1000 500x500x500 255x255x255 100x100x100 33x65x129 31x31x31
2x1024x1024 8x1000x1000 32x255x784 32x784x255 16x1000x31 97x1000x3 3x1000x97 128x784x10 784x128x10 10x128x784 128x784x512 64x4096x64 4096x64x64
64x64x4096 2048x64x2048 20000x32x32 32x20000x32 64*31x31x31 256*64x32x64 32*128x64x128 8*255x784x64 512*16x16x16
""".split()
SQUARES = "64x64x64 128x128x128 256x256x256 512x512x512 1024x1024x1024 2048x2048x2048 4096x4096x4096".split()
FORMS = {"n": "a @ b", "a": "swap_axes(a, -1, -2) @ b", "b": "a @ swap_axes(b, -1, -2)", "ab": "swap_axes(a, -1, -2) @ swap_axes(b, -1, -2)"}
NUMPY_TYPES = {"f32": "float32", "f64": "float64"}


def extents(shape):
    batch, _, rest = shape.rpartition("*")
    return (int(batch),) if batch else (), *map(int, rest.split("x"))


# ---------------------------------------------------------------- a Python contender, with the protocol of bench/contender.cpp
def serve(peer, threads):
    import numpy as np

    if peer == "torch":
        import torch

        torch.set_num_threads(threads)
        name = f"torch {torch.__version__}"
    else:
        name = f"NumPy {np.__version__}, {blas_of_numpy(np)}"
    print(json.dumps({"ok": True, "name": name}), flush=True)
    held = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prepare":
            a, b = (np.load(request["inputs"][x]) for x in "ab")
            if "a" in request["form"]:
                a = a.swapaxes(-1, -2)
            if "b" in request["form"]:
                b = b.swapaxes(-1, -2)
            out = np.empty(a.shape[:-1] + b.shape[-1:], a.dtype)
            if peer == "torch":
                a, b, out = (torch.from_numpy(x) for x in (a, b, out))
                multiply = torch.matmul
            else:
                multiply = np.matmul

            def call(a=a, b=b, out=out, multiply=multiply):
                multiply(a, b, out=out)

            call()
            held = call, out
            print(json.dumps({"ok": True}), flush=True)
        elif request["do"] == "time":
            print(json.dumps({"ok": True, "median_s": time_calls(held[0], request["seconds"])}), flush=True)
        elif request["do"] == "result":
            held[0]()
            np.save(os.path.join(request["dir"], "c.npy"), np.asarray(held[1]))
            print(json.dumps({"ok": True}), flush=True)


def time_calls(call, seconds):
    begin = time.perf_counter()
    call()
    batch = max(1, int(200e-6 / max(time.perf_counter() - begin, 1e-7)))
    samples, end = [], time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        samples.append((time.perf_counter() - begin) / batch)
    return statistics.median(samples)


def blas_of_numpy(np):
    """Returns the name of the kernels that NumPy's OpenBLAS has selected for this processor."""
    np.ones((8, 8)) @ np.ones((8, 8))
    for path in {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}:
        library = ctypes.CDLL(path)
        for symbol in ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            if hasattr(library, symbol):
                corename = getattr(library, symbol)
                corename.restype = ctypes.c_char_p
                return f"OpenBLAS for {corename().decode()}"
    return "its BLAS"


# ---------------------------------------------------------------- the table
class Contender:
    def __init__(self, command, threads, answers_first):
        count = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **count})
        self.name = self.answer()["name"] if answers_first else None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"contractions: {' '.join(self.process.args)} ended without an answer")
        answer = json.loads(line)
        if not answer["ok"]:
            raise SystemExit(f"contractions: {' '.join(self.process.args)}: {answer['error']}")
        return answer

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()


def is_installed(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def measure(np, contenders, shape, form, dtype, options, folder):
    batch, m, k, n = extents(shape)
    random = np.random.default_rng(0)
    arrays = {}
    for name, rows, columns in (("a", m, k), ("b", k, n)):
        stored = batch + ((columns, rows) if name in form else (rows, columns))
        arrays[name] = (random.random(stored) - 0.5).astype(NUMPY_TYPES[dtype])
        np.save(os.path.join(folder, name + ".npy"), arrays[name])
    request = {
        "id": "row", "form": form, "program": f"fn f(a, b) {{ return {FORMS[form]} }}", "outputs": ["c"],
        "inputs": {name: os.path.join(folder, name + ".npy") for name in arrays},
    }
    a, b = (arrays[x].astype(np.float64) for x in "ab")
    exact = (a.swapaxes(-1, -2) if "a" in form else a) @ (b.swapaxes(-1, -2) if "b" in form else b)
    for name, c in contenders.items():
        c.ask(do="prepare", **request)
        c.ask(do="result", id="row", dir=folder)
        error = np.abs(np.load(os.path.join(folder, "c.npy")) - exact).max() / math.sqrt(k)
        if not error < (1e-5 if dtype == "f32" else 1e-14):
            raise SystemExit(f"contractions: {name} is wrong by {error} in {shape} {form} {dtype}")
    times = {name: [] for name in contenders}
    for r in range(options.rounds):
        order = list(contenders)
        for name in order[r % len(order):] + order[:r % len(order)]:
            time.sleep(0.05 if options.threads > 1 else 0)  # threads of the previous contender may still spin on a core
            times[name].append(contenders[name].ask(do="time", id="row", seconds=options.seconds)["median_s"])
    return {name: min(t) for name, t in times.items()}


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build", "release"))
    parser.add_argument("--types", default="f32")
    parser.add_argument("--forms", default="n,a,b,ab")
    parser.add_argument("--only", default="")
    parser.add_argument("--squares", action="store_true")
    parser.add_argument("--peers", default="numpy,torch")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.04)
    parser.add_argument("--json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.threads)
    import numpy as np

    contenders = {"onepass": Contender([os.path.join(options.build, "bench", "contender"), "--serve", "--threads", str(options.threads)], options.threads, False)}
    for peer in options.peers.split(","):
        if peer and is_installed(peer):
            contenders[peer] = Contender([sys.executable, os.path.abspath(__file__), "--serve", peer, "--threads", str(options.threads)], options.threads, True)
    peers = [p for p in contenders if p != "onepass"]
    print(f"{options.threads} threads; " + "; ".join(contenders[p].name for p in peers))
    wanted = [text for text in options.only.split(",") if text]
    rows = []
    print("\n| row | " + " | ".join(contenders) + " | to OpenBLAS | to the fastest |\n|" + "---|" * (len(contenders) + 3))
    with tempfile.TemporaryDirectory() as folder:
        for dtype in options.types.split(","):
            for shape in SQUARES if options.squares else SHAPES:
                if wanted and shape not in wanted:
                    continue
                for form in options.forms.split(","):
                    times = measure(np, contenders, shape, form, dtype, options, folder)
                    to = {p: times[p] / times["onepass"] for p in peers}
                    row = {"shape": shape, "form": form, "dtype": dtype, "times": times, "to_blas": to.get("numpy"), "to_fastest": min(to.values(), default=None)}
                    rows.append(row)
                    ratios = " | ".join("" if r is None else f"{r:.2f}" for r in (row["to_blas"], row["to_fastest"]))
                    print(f"| {shape} {form} {dtype} | " + " | ".join(f"{t * 1e6:.1f}" for t in times.values()) + f" | {ratios} |", flush=True)
    for key, what in (("to_blas", "OpenBLAS"), ("to_fastest", "the fastest")):
        ratios = [r[key] for r in rows if r[key] is not None]
        if ratios:
            low = [f"{r['shape']} {r['form']} {r['dtype']} {r[key]:.2f}" for r in rows if r[key] < 0.9]
            print(f"\nto {what}: geometric mean {mean(ratios):.2f}, least {min(ratios):.2f}; {len(low)} of {len(ratios)} rows below 0.9: " + ", ".join(low))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
