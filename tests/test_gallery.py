"""Tests the gallery (docs/gallery): each program runs, its onepass and NumPy forms agree, and its picture equals the one in docs/images/gallery.

Skipped (77) without the Python module.

  test_gallery.py --pictures     rewrites docs/images/gallery
"""
import glob
import os
import subprocess
import sys
import tempfile
import zlib

from built_module import MODULE, ROOT  # skips without the module

import numpy as np  # noqa: E402

IMAGES = os.path.join(ROOT, "docs/images/gallery")


def pixels(path):
    """Returns the picture in a PNG file of the gallery, u8 [height, width, 3]: one IDAT, rows of differences from the pixel to the
    left."""
    with open(path, "rb") as file:
        data = file.read()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = data.index(b"IDAT")
    rows = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + int.from_bytes(data[at - 4 : at], "big")]), np.uint8).reshape(height, -1)
    assert (rows[:, 0] == 1).all(), f"{path}: not a picture of the gallery"
    return np.cumsum(rows[:, 1:].reshape(height, width, 3), axis=1, dtype=np.uint8)


def test(path, page, folder):
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as file:
        lines = len(file.readlines())
    assert lines < 80, f"{path} has {lines} lines, 80 or more"
    assert f"<!-- code: examples/gallery/{name}.py -->" in page and f"images/gallery/{name}.png" in page, f"docs/gallery/README.md lacks {name}"
    made, kept = os.path.join(folder, name + ".png"), os.path.join(IMAGES, name + ".png")
    environment = {**os.environ, "PYTHONPATH": MODULE, "ONEPASS_TESTING": ""}  # as a user runs it
    run = subprocess.run([sys.executable, path, made, "--rounds", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"--- {name}\n{run.stdout}", end="", flush=True)
    assert run.returncode == 0 and "results differ by" in run.stdout, f"{name} failed"
    if folder == IMAGES:
        return
    a, b = pixels(made).astype(int), pixels(kept)  # NumPy computes the colors, and may round differently on another processor
    assert a.shape == b.shape and np.abs(a - b).max() <= 1, f"{kept} is not what the program draws: tests/test_gallery.py --pictures writes it anew"


def main():
    with open(os.path.join(ROOT, "docs/gallery/README.md"), encoding="utf-8") as file:
        page = file.read()
    programs = sorted(set(glob.glob(os.path.join(ROOT, "examples/gallery/*.py"))) - {os.path.join(ROOT, "examples/gallery/common.py")})
    assert len(programs) == 6, programs
    with tempfile.TemporaryDirectory() as folder:
        for path in programs:
            test(path, page, IMAGES if sys.argv[1:] == ["--pictures"] else folder)


if __name__ == "__main__":
    main()
