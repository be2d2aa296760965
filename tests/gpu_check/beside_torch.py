"""Compares a program of gpu_check with torch: differences of results, and times, eager and compiled. Prints one line of JSON.

    beside_torch.py --list
    beside_torch.py NAME [--device cpu] [--seconds S]
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

NEAR = 1e-4  # relative to the largest element: torch adds in another order


def programs(torch):
    """Returns a dict: name to function of tensors, its inputs' names and shapes, and result names, as in tests/cuda_programs.h."""
    f = torch.nn.functional
    image, vector, rows = (64, 256, 64, 64), (1 << 24,), (4096, 1024)
    channel = (1, 256, 1, 1)
    gelu = lambda x: f.gelu(x, approximate="tanh")
    layer_norm = lambda x, g, b: f.layer_norm(x, (x.shape[-1],), g, b, 1e-5)
    softmax = lambda x: torch.softmax(x, -1)

    def gradients(function, count):
        def run(*tensors):
            inputs = [t.detach().requires_grad_() for t in tensors[:count]]
            return torch.autograd.grad(function(*inputs), inputs, tensors[count])
        return run

    return {
        "affine": (lambda x, s, t: x * s + t, {"x": image, "s": channel, "t": channel}, ["y"]),
        "affine, gradient": (gradients(lambda x, s: x * s, 2), {"x": image, "s": channel, "d": image}, ["dx", "ds"]),
        "affine, gradients": (gradients(lambda x, s, t: x * s + t, 3), {"x": image, "s": channel, "t": channel, "d": image}, ["dx", "ds", "dt"]),
        "gelu": (gelu, {"x": vector}, ["y"]),
        "gelu, gradient": (gradients(gelu, 1), {"x": vector, "d": vector}, ["dx"]),
        "softmax": (softmax, {"x": rows}, ["y"]),
        "softmax, gradient": (lambda y, d: y * (d - (d * y).sum(-1, keepdim=True)), {"y": rows, "d": rows}, ["dx"]),
        "softmax, gradient of its input": (gradients(softmax, 1), {"x": rows, "d": rows}, ["dx"]),
        "layer norm": (layer_norm, {"x": rows, "g": (1024,), "b": (1024,)}, ["y"]),
        "layer norm, gradients": (gradients(layer_norm, 3), {"x": rows, "g": (1024,), "b": (1024,), "d": rows}, ["dx", "dg", "db"]),
        "column sums": (lambda x: x.sum(0), {"x": rows}, ["s"]),
        "few columns": (lambda x: x.sum(0), {"x": (1 << 20, 16)}, ["s"]),
        "one sum": (lambda x: (x.sum(), x.max()), {"x": vector}, ["s", "m"]),
        "one softmax": (softmax, {"x": vector}, ["y"]),
        "cumsum": (lambda x: x.cumsum(0), {"x": vector}, ["y"]),
        "cumsum, rows": (lambda x: x.cumsum(1), {"x": rows}, ["y"]),
        "cumsum, columns": (lambda x: x.cumsum(0), {"x": rows}, ["y"]),
        "transposed": (lambda x, w: x.T * 2 + w, {"x": rows, "w": (1024, 4096)}, ["y"]),
        "matmul and gelu": (lambda x, w, b: gelu(x @ w + b), {"x": (1024, 1024), "w": (1024, 1024), "b": (1024,)}, ["y"]),
    }


def tuple_of(results):
    return results if isinstance(results, tuple) else (results,)


def differs_by(torch, device, name, function, inputs, outputs):
    """Returns the largest difference of onepass's device results from torch's, relative to the largest element, for small lengths."""
    import numpy
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.environ.get("GPU_CHECK", os.path.join(here, "gpu_check")), "--arrays", name, folder], check=True)
        load = lambda file: torch.from_numpy(numpy.load(os.path.join(folder, file + ".npy")))
        theirs = tuple_of(function(*(load("in_" + i).to(device) for i in inputs)))
        ours = [load("out_" + o) for o in outputs]
    if len(theirs) != len(ours):
        raise ValueError(f"{len(theirs)} results and not {len(ours)}")
    worst = 0.0
    for a, b in zip(theirs, ours):
        if a.numel() != b.numel():
            raise ValueError(f"a result of torch has the shape {tuple(a.shape)}, ours {tuple(b.shape)}")
        a, b = a.detach().cpu().double().reshape(-1), b.double().reshape(-1)
        worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return worst


def milliseconds(torch, device, function, sets, seconds):
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    turn = 0

    def call():
        nonlocal turn
        turn += 1
        function(*sets[turn % len(sets)])

    for _ in range(3):
        call()
    wait()
    begin = time.perf_counter()
    call()
    wait()
    batch = max(1, min(1000, int(0.01 / max(time.perf_counter() - begin, 1e-7))))
    samples = []
    end = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        wait()
        samples.append((time.perf_counter() - begin) / batch)
    return 1e3 * sorted(samples)[len(samples) // 2]


def check(name, device, seconds):
    begin = time.perf_counter()
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    out = {"check": "torch: " + name, "status": "ok", "version": torch.__version__}
    function, inputs, outputs = programs(torch)[name]
    try:
        if device == "cuda" and not torch.cuda.is_available():
            return {**out, "status": "skipped", "what": "torch sees no device"}
        out["differs_by"] = differs_by(torch, device, name, function, inputs, outputs)
        if not out["differs_by"] <= NEAR:
            out["status"] = "differs"
        if seconds > 0:
            elements = lambda shape: 1 if not shape else shape[0] * elements(shape[1:])
            cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) if device == "cuda" else 0
            count = min(64, 3 * cache // (4 * sum(map(elements, inputs.values()))) + 1)
            sets = [[torch.rand(shape, device=device) + 0.5 for shape in inputs.values()] for _ in range(count)]
            out["sets"] = count
            out["eager_ms"] = milliseconds(torch, device, function, sets, seconds)
            try:
                out["compile_ms"] = milliseconds(torch, device, torch.compile(function), sets, seconds)
            except Exception as error:  # torch needs its own compilers, which may be missing
                out["not_compiled"] = str(error).splitlines()[0]
    except Exception as error:
        out.update(status="failed", what=f"{type(error).__name__}: {error}")
    out["seconds"] = time.perf_counter() - begin
    return out


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("name", nargs="?")
    words.add_argument("--list", action="store_true")
    words.add_argument("--device", default="cuda")
    words.add_argument("--seconds", type=float, default=0.3)
    given = words.parse_args()
    if given.list:
        import torch
        print("\n".join(programs(torch)))
    else:
        print(json.dumps(check(given.name, given.device, given.seconds), separators=(",", ":")), flush=True)
