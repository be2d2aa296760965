"""Adds to gpu_check's JSON what torch takes for the same programs, eager and compiled, where torch and a device of its are there."""
import json
import sys
import time


def seconds_of(torch, call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    batch = max(1, min(1000, int(0.02 / max(time.perf_counter() - begin, 1e-7))))
    samples = []
    end = time.perf_counter() + 0.3
    while len(samples) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / batch)
    return sorted(samples)[len(samples) // 2]


def programs(torch):
    """name: function of tensors, shapes of its inputs; names and shapes are those of tests/cuda_programs.h"""
    f = torch.nn.functional
    image, vector, rows = (64, 256, 64, 64), (1 << 24,), (4096, 1024)
    gelu = lambda x: f.gelu(x, approximate="tanh")
    layer_norm = lambda x, g, b: f.layer_norm(x, (x.shape[-1],), g, b, 1e-5)

    def gradients(function, count):
        def run(*tensors):
            inputs = [t.detach().requires_grad_() for t in tensors[:count]]
            return torch.autograd.grad(function(*inputs), inputs, tensors[count])
        return run

    return {
        "affine": (lambda x, s, t: x * s + t, [image, (1, 256, 1, 1), (1, 256, 1, 1)]),
        "affine, gradient": (gradients(lambda x, s: x * s, 2), [image, (1, 256, 1, 1), image]),
        "gelu": (gelu, [vector]),
        "gelu, gradient": (gradients(gelu, 1), [vector, vector]),
        "softmax": (lambda x: torch.softmax(x, -1), [rows]),
        "softmax, gradient": (lambda y, d: y * (d - (d * y).sum(-1, keepdim=True)), [rows, rows]),
        "layer norm": (layer_norm, [rows, (1024,), (1024,)]),
        "layer norm, gradients": (gradients(layer_norm, 3), [rows, (1024,), (1024,), rows]),
        "column sums": (lambda x: x.sum(0), [rows]),
        "few columns": (lambda x: x.sum(0), [(1 << 20, 16)]),
        "one sum": (lambda x: (x.sum(), x.max()), [vector]),
        "cumsum": (lambda x: x.cumsum(0), [vector]),
        "cumsum, rows": (lambda x: x.cumsum(1), [rows]),
        "cumsum, columns": (lambda x: x.cumsum(0), [rows]),
        "transposed": (lambda x, w: x.T * 2 + w, [rows, (1024, 4096)]),
    }


def beside(result):
    try:
        import torch
        if not torch.cuda.is_available():
            return {"not_run": "torch sees no device"}
    except ImportError as error:
        return {"not_run": str(error)}
    out = {"version": torch.__version__, "eager_ms": {}, "compile_ms": {}}
    torch.manual_seed(1)
    cases = programs(torch)
    cases["BatchNorm2d, inference"] = (torch.nn.BatchNorm2d(256).cuda().eval(), [(64, 256, 64, 64)])
    for name, (function, shapes) in cases.items():
        tensors = [torch.rand(shape, device="cuda") + 0.5 for shape in shapes]
        for kind, callee in (("eager_ms", function), ("compile_ms", torch.compile(function))):
            try:
                out[kind][name] = 1e3 * seconds_of(torch, lambda: callee(*tensors))
            except Exception as error:  # whatever it is, the others are worth having
                out[kind][name] = str(error).splitlines()[0]
    return out


if __name__ == "__main__":
    result = json.load(sys.stdin)
    result["torch"] = beside(result)
    json.dump(result, sys.stdout, indent=2)
    print()
