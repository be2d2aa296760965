#!/usr/bin/env python3
"""What the first calls of each workload take in fresh processes that wait for nothing, and whether the rule of docs/runtime.md ("Tiers") holds.

    bench/from_nothing.py [--build build/release] [--threads N] [--busy N] [--ids A,B] [--quick]

For each function of bench/workloads.fuse it runs `onepass bench --from-nothing` and prints a Markdown row. `--busy N` keeps N processes of
nothing but arithmetic beside it. `--quick` leaves out what takes more than about a second a call, and mode specialized.
"""
import argparse, json, multiprocessing, os, re, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
N, M = 1 << 24, 1 << 20
BIG, ROWS = "64,256,64,64", "4096,1024"
TYPES = {
    "affine_big": f"x={BIG} w=64,256,1,1 b=64,256,1,1",
    "affine_big_grad": f"x={BIG} w=64,256,1,1 dy={BIG}",
    "affine_16": "x=16 w=16 b=16",
    "affine_1k": "x=1000 w=1000 b=1000",
    "affine_100k": "x=100000 w=100000 b=100000",
    "gelu_16m": f"x={N}",
    "gelu_16m_grad": f"x={N} dy={N}",
    "blackscholes_4m_f32": f"S={4 * M} K={4 * M} T={4 * M}",
    "blackscholes_4m_f64": f"S=f64:{4 * M} K=f64:{4 * M} T=f64:{4 * M}",
    "softmax_4kx1k": f"x={ROWS}",
    "softmax_4kx1k_grad": f"y={ROWS} dy={ROWS}",
    "layernorm_4kx1k": f"x={ROWS} g=1024 b=1024",
    "layernorm_4kx1k_grad": f"x={ROWS} g=1024 b=1024 dy={ROWS}",
    "adam_16m": f"p={N} m={N} v={N} g={N}",
    "colsum_8kx8k": "x=8192,8192",
    "chain_256_1m": f"x={M}",
    "chain_literal": f"x={M}",
    "strided_4k": "x=4096,4096 y=4096,4096",
    "attention_t256": "ys=256,32,128",
    "attention_t256_grad": "ys=256,32,128 dalpha=256,128",
    "context_t256": "alpha=256,128 H=100,256,128",
    "outer3_500": "V=500",
    "linear_784": "x=128,784 W=10,784 b=10",
    "linear_784_step": "x=128,784 W=10,784 b=10 labels=i32:128",
    "partitioned_32": "x=128,32,32 W=32,32,32 b=32,32",
    "matmul_1k_gelu": "x=1024,1024 W=1024,1024 b=1024",
    "matmul_4k1k1k_gelu": "x=4096,1024 W=1024,1024 b=1024",
}


def functions(path):
    """The text of each function, by its name; helpers that others call stand before all of them."""
    text = open(path).read()
    parts = re.split(r"(?m)^(?=fn )", text)[1:]
    named = {re.match(r"fn (\w+)", p).group(1): p for p in parts}
    helpers = "".join(p for name, p in named.items() if name not in TYPES)
    return {name: helpers + p for name, p in named.items() if name in TYPES}


def words(types):
    for word in types.split():
        name, shape = word.split("=")
        dtype, _, extents = shape.rpartition(":")
        yield f"{name}={dtype or 'f32'}[{extents}]"


def spin():
    x = 1.0
    while True:
        for _ in range(1_000_000):
            x = x * 1.0000001


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--ids", default="")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    wanted = [i for i in args.ids.split(",") if i]
    for i in wanted:
        if i not in TYPES:
            sys.exit(f"from_nothing: there is no workload `{i}`; there are {', '.join(TYPES)}")
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(args.busy)]
    for p in others:
        p.start()
    print("| workload | mode, cache | T(1) | T(2) | T(10) | T(100) | T(1000) | settled | calls | lost | compiling | last slow | rule |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    broken = []
    for name, text in functions(os.path.join(HERE, "workloads.fuse")).items():
        if wanted and name not in wanted:
            continue
        if args.quick and not wanted and name == "outer3_500":
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".fuse") as file:
            file.write(text)
            file.flush()
            command = [os.path.join(args.build, "tools", "onepass"), "bench", file.name, "--shapes", *words(TYPES[name]), "--threads", args.threads,
                       "--from-nothing", "--json"] + (["--mode", "generic"] if args.quick else [])
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"| {name} | {done.stderr.strip()} |")
            broken.append(name)
            continue
        for row in json.loads(done.stdout):
            # A specialised kernel has one tier, so that nothing is lost: it is shown, not judged. The first run is what the rule leaves out.
            first = row["T1_ms"]
            holds = row["lost_ms"] <= 3 * row["ms_compiling"] + first or row["mode"] == "specialized"
            if not holds:
                broken.append(f"{name}, {row['cache']}")
            ms = lambda key: f"{row[key]:.3g}" if key in row else "-"
            print(f"| {name} | {row['mode']}, {row['cache']} | {ms('T1_ms')} | {ms('T2_ms')} | {ms('T10_ms')} | {ms('T100_ms')} | {ms('T1000_ms')} | "
                  f"{ms('settled_ms')} | {row['calls']} | {ms('lost_ms')} | {ms('ms_compiling')} | {ms('last_slow_ms')} | {'holds' if holds else 'BROKEN'} |",
                  flush=True)
    for p in others:
        p.terminate()
    if broken:
        print("\nthe rule does not hold, within the noise of this machine, for:", "; ".join(broken))


if __name__ == "__main__":
    main()
