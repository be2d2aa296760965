"""Statistics of .npy files that together exceed the memory of the workers: onepass.dask on a local cluster.

    PYTHONPATH=build/release/python python examples/dask_npy.py FOLDER [--gigabytes 1] [--workers 2] [--worker-memory 0.4]

Writes FOLDER/part-*.npy, log returns of 1,024 assets, if they do not exist. Prints the days with a loss of an evenly
weighted portfolio, the assets' volatility, and the times of onepass and NumPy on the same cluster.
"""
import argparse
import glob
import os
import time

import dask
import dask.array as da
import distributed
import numpy as np

import onepass as op
import onepass.dask

ASSETS = 1024


def write_parts(folder, gigabytes):
    rows = 4096
    for part in range(max(1, round(gigabytes * 2**30 / (rows * ASSETS * 4)))):
        path = os.path.join(folder, f"part-{part:05d}.npy")
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(part).standard_normal((rows, ASSETS), np.float32) * np.float32(0.01))


def parts_in(folder):
    """Returns a Dask array with one chunk per file. The worker that needs a chunk maps its file into memory."""
    arrays = []
    for path in sorted(glob.glob(os.path.join(os.path.abspath(folder), "part-*.npy"))):
        known = np.load(path, mmap_mode="r")
        arrays.append(da.from_delayed(dask.delayed(np.load)(path, mmap_mode="r"), known.shape, known.dtype))
    return da.concatenate(arrays)


def timed(what, compute):
    start = time.perf_counter()
    result = compute()
    print(f"{what:32} {time.perf_counter() - start:6.2f} s")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker-memory", type=float, default=0.4, help="GiB each")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    write_parts(args.folder, args.gigabytes)
    with distributed.LocalCluster(
        n_workers=args.workers, threads_per_worker=1, memory_limit=f"{args.worker_memory}GiB", dashboard_address=None, local_directory=args.folder
    ) as cluster, distributed.Client(cluster):
        returns = parts_in(args.folder)
        weights = np.full(ASSETS, 1 / ASSETS, np.float32)
        print(f"{returns.nbytes / 2**30:.2f} GiB in {returns.numblocks[0]} files, {args.workers} workers of {args.worker_memory} GiB")

        gains = lambda r, w: op.expm1(r) * w  # noqa: E731
        growth = timed("onepass: sum of exp(r) - 1", lambda: op.dask.sum(gains, returns, weights, axis=1).compute())
        volatility = timed("onepass: volatility by asset", lambda: op.dask.std(returns, axis=0, ddof=1).compute())
        total = timed("onepass: sum of all", lambda: op.dask.sum(op.exp, returns).compute())
        timed("NumPy: sum of exp(r) - 1", lambda: (np.expm1(returns) * weights).sum(axis=1).compute())
        timed("NumPy: volatility by asset", lambda: returns.std(axis=0, ddof=1).compute())
        timed("NumPy: sum of all", lambda: np.exp(returns).sum().compute())

        again = op.dask.sum(op.exp, returns.rechunk((3000, ASSETS))).compute()  # other chunks, the same order of summation
        print(f"days with a loss: {int((growth < 0).sum())}, volatility {volatility.min():.4f} to {volatility.max():.4f}, equal bits: {again == total}")


if __name__ == "__main__":
    main()
