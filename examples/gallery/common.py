"""Shared parts of the gallery. Each program computes its result by onepass and by NumPy, compares them, writes a picture and prints times.

    PYTHONPATH=build/release/python python examples/gallery/heat.py [PICTURE.png] [--rounds N]
"""
import argparse
import os
import statistics
import struct
import time
import zlib

import numpy as np
import onepass as op

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
PROGRAMS = os.path.join(DATA, "..", "programs")


def png(picture):
    """Returns the bytes of a PNG file for a picture, u8 [height, width, 3]."""
    height, width, _ = picture.shape
    rows = np.ones((height, 1 + 3 * width), np.uint8)  # each row begins with its filter: 1, differences from the pixel to the left
    rows[:, 1:4] = picture[:, 0]
    rows[:, 4:] = (picture[:, 1:] - picture[:, :-1]).reshape(height, -1)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")


def bipolar(values):
    """Returns colors, u8 [..., 3]: blue for negative, white for 0, red for positive; the largest magnitude has full color."""
    t = np.asarray(values, np.float64)
    t = t / np.abs(t).max()
    colors = 1 - np.stack([np.maximum(-t, 0), np.abs(t), np.maximum(t, 0)], axis=-1) * [0.9, 0.75, 0.9]
    return (255 * colors).astype(np.uint8)


def tiled(pictures, across):
    """Arranges pictures of one size, [count, height, width, 3], in rows of `across`, with white lines between them."""
    count, height, width, _ = pictures.shape
    framed = np.full((-(-count // across) * across, height + 2, width + 2, 3), 255, np.uint8)
    framed[:count, 1:-1, 1:-1] = pictures
    return framed.reshape(-1, across, height + 2, width + 2, 3).swapaxes(1, 2).reshape(-1, across * (width + 2), 3)


def main(inputs, with_onepass, with_numpy, tolerance, picture):
    """Runs both forms, compares each result (`tolerance` is relative to its largest magnitude), draws the picture, and times both forms."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("picture", nargs="?", help="where the picture is written")
    options.add_argument("--rounds", type=int, default=5, help="rounds of one call of each form; times are medians")
    given = options.parse_args()

    def results(form):
        result = form(*inputs)
        return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]

    fused, plain = results(with_onepass), results(with_numpy)
    worst = 0.0
    for a, b in zip(fused, plain, strict=True):
        assert a.shape == b.shape, (a.shape, b.shape)
        worst = max(worst, float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b.astype(np.float64)).max(), 1e-30)))
    assert worst <= tolerance, f"the results differ by {worst:.2g} of their largest magnitude, above {tolerance}"

    if given.picture:
        with open(given.picture, "wb") as file:
            file.write(png(np.ascontiguousarray(picture(*fused))))
        print(f"wrote {given.picture}")

    print(f"results differ by {worst:.1g}")
    if given.rounds == 0:
        return
    op.wait_until_optimized()
    times = {with_onepass: [], with_numpy: []}
    for _ in range(given.rounds):
        for form, of_form in times.items():
            begin = time.perf_counter()
            form(*inputs)
            of_form.append(time.perf_counter() - begin)
    one, other = (1e3 * statistics.median(t) for t in times.values())
    print(f"onepass {one:.2f} ms, NumPy {other:.2f} ms, {other / one:.1f} times as long")
