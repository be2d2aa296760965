#!/usr/bin/env python3
"""Measures the cost of profiling (docs/runtime.md, "Profiles"), in alternating pairs of fresh processes.

    bench/profile_cost.py [--build build/release] [--pairs N] [--threads N] [--before BUILD]

`shapes_200`: gelu once on each of 200 shapes of 10² to 10⁶ elements in a process with an empty cache, without and with ONEPASS_PROFILE.
`affine_1k`: a bound call of x*w + b on 1,000 elements, without and with it. The trace is written after the measurement. `--before` is another
build of onepass: then profiling is off in both, and the bound calls of the two builds alternate.

Prints the medians, the median of the pairs' ratios and the number of pairs in which the second run took longer.
"""
import argparse, json, os, random, statistics, struct, subprocess, tempfile

GELU = "t = 0.5*x*(1 + tanh(0.7978845608*(x + 0.044715*x*x*x)))"


def shapes():
    draw = random.Random(1)
    for _ in range(200):
        size = 10 ** draw.uniform(2, 6)
        rows = max(1, round(size ** draw.uniform(0.2, 0.8)))
        yield [rows, max(1, min(round(size / rows), 1_000_000 // rows))]


def write_npy(path, count):
    draw = random.Random(2)
    values = [draw.uniform(-2, 2) for _ in range(1000)]
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<1000f", *values) * (count // 1000))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--before")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ids", default="shapes_200,affine_1k")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = os.path.join(folder, "x.npy")
        write_npy(x, 1_000_000)
        plain = {**os.environ, "ONEPASS_CACHE_DIR": "none"}
        profiled = {**plain, "ONEPASS_PROFILE": os.path.join(folder, "trace.json")}
        request = json.dumps({"do": "latency", "program": GELU, "inputs": {"x": x}, "outputs": ["t"], "dir": folder, "shapes": list(shapes())}) + "\n"

        def shapes_200(build, environment):
            words = [os.path.join(build, "bench/contender"), "--serve", "--threads", str(options.threads)]
            answer = json.loads(subprocess.run(words, input=request, env=environment, capture_output=True, text=True, check=True).stdout)
            assert answer["ok"], answer
            return answer["ms"]

        def affine_1k(build, environment):
            words = [os.path.join(build, "tools/onepass"), "bench", "x*w + b", "--shapes", "x=f32[1000]", "w=f32[1000]", "b=f32[1000]", "--call", "bind", "--json"]
            return json.loads(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)["median_ns"]

        for name, measure, unit in [("shapes_200", shapes_200, "ms"), ("affine_1k", affine_1k, "ns")]:
            if name not in options.ids.split(","):
                continue
            ways = [(options.before, plain), (options.build, plain)] if options.before else [(options.build, plain), (options.build, profiled)]
            times = [[], []]
            for pair in range(options.pairs):
                for way in (0, 1) if pair % 2 == 0 else (1, 0):
                    times[way].append(measure(*ways[way]))
            ratios = [b / a for a, b in zip(*times)]
            first, second = ("before", "now") if options.before else ("off", "on")
            print(f"{name:10}  {first} {statistics.median(times[0]):8.2f} {unit}, {second} {statistics.median(times[1]):8.2f} {unit}; "
                  f"ratio of the medians {statistics.median(times[1]) / statistics.median(times[0]):.3f}, median of the ratios {statistics.median(ratios):.3f} "
                  f"({min(ratios):.3f} to {max(ratios):.3f}), longer in {sum(r > 1 for r in ratios)} of {len(ratios)}", flush=True)


if __name__ == "__main__":
    main()
