"""Measures calls from Python, compared with other array compilers: `PYTHONPATH=build/release/python python bench/python_calls.py`.

Each row runs alternately on all installed contenders (NumPy, numexpr, numba, JAX, torch.compile). With
`--command build/release/tools/onepass`, it also runs in the command's C++ loop. Prints medians in microseconds. onepass gets NumPy arrays; all
return new results.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import onepass as op


def rows():
    f = np.float32
    rng = np.random.default_rng(0)
    small = [rng.random(16, f) for _ in range(3)]
    yield "affine_16", "x*w + b", dict(x=small[0], w=small[1], b=small[2])
    million = [rng.random(1 << 20, f) for _ in range(3)]
    yield "affine_1m", "x*w + b", dict(x=million[0], w=million[1], b=million[2])
    yield "gelu_1m", "0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))", dict(x=million[0])
    yield "affine_big", "x*w + b", dict(x=rng.random((64, 256, 64, 64), f), w=rng.random((256, 1, 1), f), b=rng.random((256, 1, 1), f))


def contenders():
    """Yields a name, and a function from a formula and its inputs to a function without arguments that computes it."""

    def python(names, text, modules):
        scope = dict(modules)
        exec(f"def f({', '.join(names)}): return {text}", scope)
        return scope["f"]

    def onepass(text, inputs):
        f, values = op.jit(python(inputs, text, {"tanh": op.tanh})), list(inputs.values())
        return lambda: f(*values)

    def numpy(text, inputs):
        f, values = python(inputs, text, {"tanh": np.tanh}), list(inputs.values())
        return lambda: f(*values)

    yield "onepass", onepass
    yield "numpy", numpy
    try:
        import numexpr

        yield "numexpr", lambda text, inputs: lambda: numexpr.evaluate(text, inputs)
    except ImportError:
        pass
    try:
        import numba

        def with_numba(text, inputs):
            flat = all(v.ndim == 1 for v in inputs.values())
            tanh = {"tanh": np.tanh}
            f = numba.vectorize([f"float32({', '.join(['float32'] * len(inputs))})"], target="parallel")(python(inputs, text, tanh)) if flat else numba.njit(
                python(inputs, text, tanh), parallel=True
            )
            values = list(inputs.values())
            return lambda: f(*values)

        yield "numba", with_numba
    except ImportError:
        pass
    try:
        import jax

        def with_jax(text, inputs):
            f, values = jax.jit(python(inputs, text, {"tanh": jax.numpy.tanh})), [jax.numpy.asarray(v) for v in inputs.values()]
            return lambda: f(*values).block_until_ready()

        yield "jax", with_jax
    except ImportError:
        pass
    try:
        import torch

        def with_torch(text, inputs):
            f, values = torch.compile(python(inputs, text, {"tanh": torch.tanh})), [torch.from_numpy(v) for v in inputs.values()]
            return lambda: f(*values)

        yield "torch.compile", with_torch
    except ImportError:
        pass


def median_us(call, seconds):
    begin = time.perf_counter()
    call()
    once = time.perf_counter() - begin
    batch = max(1, int(2e-4 / max(once, 1e-9)))
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - begin) / batch)
    return statistics.median(times) * 1e6


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--command", help="the onepass command, for the same calls in C++")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=0.5)
    given = options.parse_args()
    op.set_threads(len(os.sched_getaffinity(0)))
    makers = list(contenders())
    print("| row |", " | ".join([name for name, _ in makers] + (["in C++"] if given.command else [])), "|")
    for row, text, inputs in rows():
        calls = {}
        for name, make in makers:
            try:
                calls[name] = make(text, inputs)
                for _ in range(3):
                    calls[name]()
            except Exception as error:
                print(f"{name} cannot run {row}: {type(error).__name__}", file=sys.stderr)
                calls.pop(name, None)
        op.wait_until_optimized()
        times = {name: [] for name, _ in makers}
        in_cpp = []
        for _ in range(given.rounds):
            for name, call in calls.items():
                times[name].append(median_us(call, given.seconds))
            if given.command:
                shapes = [f"{n}=f32[{','.join(map(str, v.shape))}]" for n, v in inputs.items()]
                out = subprocess.run([given.command, "bench", text, "--json", "--call", "fresh", "--shapes", *shapes], capture_output=True, text=True, check=True).stdout
                in_cpp.append(json.loads(out)["median_ns"] / 1e3)
        cells = [f"{statistics.median(t):.2f}" if t else "" for t in times.values()]
        print("|", row, "|", " | ".join(cells + ([f"{statistics.median(in_cpp):.2f}"] if in_cpp else [])), "|", flush=True)


if __name__ == "__main__":
    main()
