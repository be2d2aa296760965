#!/usr/bin/env python3
"""Measures the first calls of each workload in fresh processes, without waiting, and checks the rule of docs/runtime.md ("Tiers").

    bench/from_nothing.py [--build build/release] [--threads N] [--busy N] [--ids A,B] [--quick] [--repeat N] [--mode M]

For each function of bench/workloads.fuse it runs `onepass bench --from-nothing` and prints a Markdown row. `--busy N` runs N busy processes
at the same time. `--quick` omits workloads of more than about a second per call, and uses mode generic. Without `--mode` and `--quick` it uses
modes adaptive and specialized.

With `--repeat N` each run is made N times, and call n gets the median of its N times. This filters out other load on the machine.

Columns, in milliseconds: `T(n)` is the time of the first n calls. `settled` is the median call after all is compiled. `lost` is the time of all
calls above n times `settled`. `last slow` is the end of the last call of more than 1.5 times `settled`. `settled` is measured after the calls,
in the same process, by as many calls that compile nothing, and so under the same load.

`slow/s` counts the calls of more than 1.5 times `settled` in each second: for the first calls, from 300 ms after the start on (with `--busy`,
from 1.5 s on), and for the settled calls. The second number is due to the machine; an excess of the first number is due to the library.

`late` is `late` if `last slow` is later than these 300 ms or 1.5 s, for kernels that settle below 20 ms. It is `noise` if that is not
more frequent than for settled calls (a count within twice its square root).

The rule holds if for every n
    T(n) <= 1.05 n settled + 3 compiling + (the first call of a process whose cache has the kernels)

where `compiling` is the compile time of the process with an empty cache until all is optimized. 5 % allows for the noise of `settled`. The last
term is the other work of the first call: it records, plans, reads files and touches the memory of its results for the first time. T(n) is a
sum, and under other load the mean of a call is above its median: `rule, mean` is the same rule with the mean of the settled calls.
"""
import argparse, json, math, mmap, multiprocessing, os, re, statistics, subprocess, sys, tempfile

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
    """Returns the text of each function, by name, preceded by all helper functions."""
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


def touch_memory(types):
    """Makes the system allocate as much memory as a workload uses, three times its arrays.

    Otherwise a virtual machine that returned free memory to its host gets it back page by page, in the first call of the first
    process. Measured for adam_16m: 370 ms instead of 37.
    """
    count = 0
    for word in types.split():
        shape = word.split("=")[1]
        dtype, _, extents = shape.rpartition(":")
        count += (8 if dtype == "f64" else 4) * math.prod(int(n) for n in extents.split(","))
    mmap.mmap(-1, max(min(3 * count, 6 << 30), 1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def combined(rows):
    """Combines several runs of the same process to one row: each call gets the median of its times."""
    row = dict(rows[0])
    row["settled_ms"] = settled = statistics.median(r["settled_ms"] for r in rows)
    row["settled_mean_ms"] = statistics.median(r["settled_mean_ms"] for r in rows)
    row["slow_per_s"] = {key: statistics.median(r["slow_per_s"][key] for r in rows) for key in row["slow_per_s"]}
    for key in ("ms_compiling", "ms_compiling_all"):
        row[key] = statistics.median(r[key] for r in rows)
    row["times_ms"] = [statistics.median(t) for t in zip(*(r["times_ms"] for r in rows))]
    total, row["last_slow_ms"], row["T"] = 0, 0, []
    for t in row["times_ms"]:
        total += t
        row["T"].append(total)
        if t > 1.5 * settled:
            row["last_slow_ms"] = total
    row["calls"] = len(row["T"])
    row["lost_ms"] = total - settled * row["calls"]
    return row


def beyond_the_rule(row, settled, compiling, first):
    """Returns by how many milliseconds the rule is violated, at most."""
    return max(t - 1.05 * settled * n for n, t in enumerate(row["T"], 1)) - 3 * compiling - first


def lateness(row, busy):
    """Returns whether slow calls occur too late, and whether the library causes them."""
    limit = 1500 if busy else 300
    if row["settled_ms"] >= 20 or row["last_slow_ms"] <= limit:
        return "-"
    seconds = max(row["T"][-1] - limit, 0) / 1e3
    found, expected = (row["slow_per_s"][key] * seconds for key in (f"after_{limit}_ms", "settled"))
    return "noise" if found <= expected + 2 * math.sqrt(max(expected, 1)) else "late"


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
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--mode", choices=["generic", "adaptive", "specialized"])
    args = parser.parse_args()
    wanted = [i for i in args.ids.split(",") if i]
    for i in wanted:
        if i not in TYPES:
            sys.exit(f"from_nothing: there is no workload `{i}`; there are {', '.join(TYPES)}")
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(args.busy)]
    for p in others:
        p.start()
    mode = args.mode or ("generic" if args.quick else None)
    print("| workload | mode, cache | T(1) | T(2) | T(10) | T(100) | T(1000) | settled | calls | lost | compiling | last slow | slow/s | late | rule | rule, mean |")
    print("| --- " * 16 + "|")
    broken, by_mean, late = [], [], []
    for name, text in functions(os.path.join(HERE, "workloads.fuse")).items():
        if wanted and name not in wanted:
            continue
        if args.quick and not wanted and name == "outer3_500":
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".fuse") as file:
            file.write(text)
            file.flush()
            command = [os.path.join(args.build, "tools", "onepass"), "bench", file.name, "--shapes", *words(TYPES[name]), "--threads", args.threads,
                       "--from-nothing", "--json"] + (["--mode", mode] if mode else [])
            touch_memory(TYPES[name])
            runs = [subprocess.run(command, capture_output=True, text=True) for _ in range(args.repeat)]
        failed = [run.stderr.strip() for run in runs if run.returncode]
        if failed:
            print(f"| {name} | {failed[0]} |")
            broken.append(name)
            continue
        rows = [combined(same) for same in zip(*(json.loads(run.stdout) for run in runs))]
        for empty, warm in zip(rows[::2], rows[1::2]):
            for row in (empty, warm):
                what = f"{name}, {row['mode']}, {row['cache']}"
                beyond, by_the_mean = (beyond_the_rule(row, settled, empty["ms_compiling_all"], warm["T"][0])
                                       for settled in (row["settled_ms"], max(row["settled_ms"], row["settled_mean_ms"])))
                if beyond > 0:
                    broken.append(f"{what}: {beyond:.3g} ms")
                if by_the_mean > 0:
                    by_mean.append(f"{what}: {by_the_mean:.3g} ms")
                slow, is_late = row["slow_per_s"], lateness(row, args.busy)
                if is_late != "-":
                    late.append(f"{what} ({is_late})")
                rates = f"{slow['after_1500_ms' if args.busy else 'after_300_ms']:.3g}, {slow['settled']:.3g}"
                T = " | ".join(f"{row['T'][n - 1]:.3g}" if len(row["T"]) >= n else "-" for n in (1, 2, 10, 100, 1000))
                print(f"| {name} | {row['mode']}, {row['cache']} | {T} | {row['settled_ms']:.3g} | {row['calls']} | {row['lost_ms']:.3g} | "
                      f"{row['ms_compiling']:.3g} | {row['last_slow_ms']:.3g} | {rates} | {is_late} | {'holds' if beyond <= 0 else 'BROKEN'} | "
                      f"{'holds' if by_the_mean <= 0 else 'BROKEN'} |", flush=True)
    for p in others:
        p.terminate()
    if broken:
        print("\nthe rule does not hold for:", "; ".join(broken))
    if by_mean:
        print("\nby the mean it does not hold for:", "; ".join(by_mean))
    if late:
        print("\nslow calls later than wanted:", "; ".join(late))


if __name__ == "__main__":
    main()
