#!/usr/bin/env python3
"""Times einsum, partitioned layers, attention and small dense layers against torch, opt_einsum and NumPy, if installed.

    PYTHONPATH=build/release/python python bench/products.py [--groups einsum,einsum_many,partitioned,attention,dense] [--only TEXT,TEXT]
                                                             [--peers torch,numpy] [--threads N] [--rounds R] [--seconds S] [--json FILE]

Each contender is a separate process that makes new results from existing arrays. Contenders alternate for `--rounds` rounds of about
`--seconds` each. Prints microseconds (the median call of the fastest round) and the relative time of the fastest other contender.

`einsum` is strict. `einsum_many`, with three and four operands, uses `relax=["reassociate"]`, and its peers choose the order by opt_einsum.
`grad` rows are the forward call and the gradients by all float arguments. Compares every result with NumPy's in f64, or with torch's if NumPy
has none. Needs NumPy and the Python module.
"""
import argparse, json, math, os, statistics, subprocess, sys, time

import numpy as np

from contractions import is_installed, mean, time_calls

TWO = {
    "bij,bjk->bik": [(32, 64, 96), (32, 96, 64)], "bij,bkj->bik": [(16, 128, 64), (16, 128, 64)], "ij,kj->ik": [(300, 256), (200, 256)],
    "bik,bkj->ij": [(16, 128, 64), (16, 64, 256)], "bij,bkj->ik": [(8, 100, 50), (8, 120, 50)], "abc,cd->abd": [(20, 30, 64), (64, 100)],
    "abcd,cde->abe": [(10, 12, 16, 20), (16, 20, 50)], "bhqd,bhkd->bhqk": [(4, 8, 64, 32), (4, 8, 64, 32)], "bnd,nde->bne": [(64, 16, 32), (16, 32, 32)],
    "ijk,jil->kl": [(32, 48, 64), (48, 32, 64)], "ij,ij->i": [(1000, 300), (1000, 300)], "i,j->ij": [(800,), (900,)],
}
MANY = {
    "ij,jk,kl->il": [(64, 200), (200, 300), (300, 64)], "ab,bc,cd,de->ae": [(50, 100), (100, 200), (200, 100), (100, 50)], "bi,bj,ijk->bk": [(64, 32), (64, 24), (32, 24, 40)],
    "ia,ja,ka->ijk": [(40, 30), (50, 30), (20, 30)], "abc,bd,ce->ade": [(30, 40, 50), (40, 20), (50, 25)], "i,ij,j->": [(400,), (400, 500), (500,)],
    "bij,bjk,bkl->bil": [(16, 32, 48), (16, 48, 64), (16, 64, 16)], "ai,bi,ci,di->abcd": [(8, 40), (9, 40), (10, 40), (11, 40)],
}


class Row:
    """A name, its group, a function that makes the arrays, and for each contender a function that returns a call for the arrays."""

    def __init__(self, name, group, arrays, **makers):
        self.name, self.group, self.arrays, self.makers = name, group, arrays, makers


def rows():
    def arrays(**shapes):
        def make():
            random = np.random.default_rng(0)
            return [random.random(shape, np.float32) - np.float32(0.5) for shape in shapes.values()]

        return make

    for group, texts in (("einsum", TWO), ("einsum_many", MANY)):
        for text, shapes in texts.items():
            yield Row(text, group, arrays(**{f"x{i}": s for i, s in enumerate(shapes)}), **einsum(text, group == "einsum_many"))
    for n in (8, 32, 64):
        for size in (32, 256, 1024):
            for batch in (1, 128, 2048):
                if n * batch * size * 4 <= 1 << 28 and n * size * size * 4 <= 1 << 28:
                    yield from partitioned(arrays, n, batch, size)
    yield from attention(arrays, (8, 8, 1024, 64))
    yield from attention(arrays, (2, 4, 256, 64))
    yield from dense(arrays)


def einsum(text, relaxed):
    def onepass(op, values):
        f = op.jit(lambda *x: op.einsum(text, *x), relax=["reassociate"] if relaxed else [])
        return lambda: f(*values)

    return {
        "onepass": onepass,
        "torch": lambda torch, values: lambda: torch.einsum(text, *values),
        "numpy": lambda _, values: (lambda path: lambda: np.einsum(text, *values, optimize=path))(np.einsum_path(text, *values, optimize="optimal")[0]),
    }


def with_gradients(name, group, arrays, onepass, torch, numpy=None):
    """Yields a row of the value, and a row of the value and of the gradients of its weighted sum by all arrays except the last, the weights."""

    def forward_of(f):
        return lambda op, values: (lambda g: lambda: g(*values[:-1]))(op.jit(f(op)))

    def gradients_of(f):
        def make(op, values):
            run = f(op)
            count = len(values) - 1

            def both(*v):
                y, pullback = op.vjp(run, *v[:-1])
                return (y, *pullback(v[-1]))

            g = op.jit(both)
            return lambda: g(*values)

        return make

    def torch_forward(t, values):
        def call():
            with t.no_grad():
                return torch(t)(*values[:-1])

        return call

    def torch_gradients(t, values):
        leaves = [v.requires_grad_() for v in values[:-1]]
        run = torch(t)

        def call():
            y = run(*leaves)
            return (y.detach(), *t.autograd.grad(y, leaves, values[-1]))

        return call

    more = {"numpy": lambda _, values: lambda: numpy(*values[:-1])} if numpy else {}
    yield Row(name, group, arrays, onepass=forward_of(onepass), torch=torch_forward, **more)
    yield Row(name + " grad", group, arrays, onepass=gradients_of(onepass), torch=torch_gradients)


def partitioned(arrays, n, batch, size):
    data = arrays(x=(n, batch, size), w=(n, size, size), b=(n, size), dy=(n, batch, size))
    name = f"{n}_{size}_{batch}"

    def torch(t):
        return lambda x, w, b: t.baddbmm(b[:, None, :], x, w)

    def in_a_loop(op):
        return lambda x, w, b: op.stack([x[i] @ w[i] + b[i] for i in range(n)])

    def at_once(op):
        return lambda x, w, b: op.einsum("nbi,nio->nbo", x, w) + b[:, None, :]

    yield from with_gradients(name + " loop", "partitioned", data, in_a_loop, torch)
    yield from with_gradients(name + " einsum", "partitioned", data, at_once, torch)


def attention(arrays, shape):
    *_, length, width = shape
    data = arrays(q=shape, k=shape, v=shape, dy=shape)

    def onepass(op):
        def run(q, k, v):
            scores = op.einsum("bhqd,bhkd->bhqk", q, k) * (1 / math.sqrt(width))
            row, column = op.arange(length)[:, None], op.arange(length)[None, :]
            return op.softmax(op.where(row >= column, scores, -math.inf), -1) @ v

        return run

    def torch(t):
        return lambda q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    yield from with_gradients("causal " + "x".join(map(str, shape)), "attention", data, onepass, torch)


def dense(arrays):
    data = arrays(x=(256, 64, 128), w=(128, 64), b=(64,), v=(64, 32), c=(32,), dy=(256, 64, 32))
    # 256 matrices [64, 128], each row through 128 -> 64 -> 32
    yield from with_gradients(
        "layers", "dense", data, lambda op: lambda x, w, b, v, c: op.tanh(x @ w + b) @ v + c,
        lambda t: lambda x, w, b, v, c: t.tanh(x @ w + b) @ v + c, lambda x, w, b, v, c: np.tanh(x @ w + b) @ v + c)
    one = arrays(x=(256, 64, 128), w=(32, 64), b=(32, 1), dy=(256, 32, 128))
    yield from with_gradients(
        "dense 64->32", "dense", one, lambda op: lambda x, w, b: op.tanh(w @ x + b), lambda t: lambda x, w, b: t.tanh(w @ x + b),
        lambda x, w, b: np.tanh(w @ x + b))
    two = arrays(x=(256, 128), y=(256, 128), dy=(256,))
    yield from with_gradients(
        "diagonal(x @ y.T)", "dense", two, lambda op: lambda x, y: op.diagonal(x @ y.T), lambda t: lambda x, y: t.diagonal(x @ y.T),
        lambda x, y: np.diagonal(x @ y.T))


# ---------------------------------------------------------------- a contender: one line of JSON per request
def serve(peer, threads):
    known, call = {r.group + " " + r.name: r for r in rows()}, None
    if peer == "onepass":
        import onepass as module

        module.set_num_threads(threads) if hasattr(module, "set_num_threads") else None
    elif peer == "torch":
        import torch as module

        module.set_num_threads(threads)
    else:
        module = np
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prepare":
            row = known[request["row"]]
            values = row.arrays()
            if peer == "torch":
                values = [module.from_numpy(v.copy()) for v in values]
            elif peer == "onepass":
                values = [module.Array(v) for v in values]
            call = row.makers[peer](module, values)
            call()
            if peer == "onepass":
                module.wait_until_optimized()
            results = call()
            if not isinstance(results, (tuple, list)):
                results = [results]
            print(json.dumps([float(np.abs(np.asarray(r, dtype=np.float64)).mean()) for r in results]), flush=True)
        else:
            print(json.dumps(time_calls(call, request["seconds"])), flush=True)


class Contender:
    def __init__(self, peer, threads):
        count = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ONEPASS_NUM_THREADS")}
        command = [sys.executable, os.path.abspath(__file__), "--serve", peer, "--threads", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **count})

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"products: {' '.join(self.process.args)} ended without an answer")
        return json.loads(line)


def measure(contenders, row, options):
    sizes = {name: c.ask(do="prepare", row=row.group + " " + row.name) for name, c in contenders.items()}
    for name, size in sizes.items():
        if not np.allclose(size, sizes["onepass"][: len(size)], rtol=1e-3, atol=1e-5):
            raise SystemExit(f"products: {name} and onepass differ in {row.name}: {size}, {sizes['onepass']}")
    times = {name: [] for name in contenders}
    for r in range(options.rounds):
        order = list(contenders)
        for name in order[r % len(order):] + order[: r % len(order)]:
            time.sleep(0.05 if options.threads > 1 else 0)  # threads of the previous contender may still spin on a core
            times[name].append(contenders[name].ask(do="time", seconds=options.seconds))
    return {name: min(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="einsum,einsum_many,partitioned,attention,dense")
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="torch,numpy")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.threads)
    peers = [p for p in options.peers.split(",") if p and is_installed(p)]
    contenders = {name: Contender(name, options.threads) for name in ["onepass", *peers]}
    groups, wanted, out = options.groups.split(","), [t for t in options.only.split(",") if t], []
    print(f"{options.threads} threads\n\n| row | " + " | ".join(contenders) + " | the best of the others / onepass |\n|" + "---|" * (len(contenders) + 2))
    for row in rows():
        if row.group not in groups or (wanted and not any(t in row.name for t in wanted)):
            continue
        times = measure({name: c for name, c in contenders.items() if name in row.makers}, row, options)
        others = [t for name, t in times.items() if name != "onepass"]
        ratio = min(others) / times["onepass"] if others else None
        out.append({"group": row.group, "row": row.name, "times": times, "ratio": ratio})
        cells = " | ".join(f"{times[name] * 1e6:.1f}" if name in times else "" for name in contenders)
        print(f"| {row.name} | {cells} | {'' if ratio is None else f'{ratio:.2f}'} |", flush=True)
    print()
    for group in groups:
        ratios = [r["ratio"] for r in out if r["group"] == group and r["ratio"]]
        if ratios:
            print(f"{group}: geometric mean {mean(ratios):.2f}, least {min(ratios):.2f}, {sum(r < 0.9 for r in ratios)} of {len(ratios)} below 0.9")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()
