"""The Mandelbrot set: for each point, the steps until it leaves the circle of radius 2."""
import numpy as np
import onepass as op

from common import main

BOUND = 100


@op.jit
def with_onepass(re, im):
    zero = op.zeros((im.shape[0], re.shape[1]))
    return op.while_loop(
        lambda s: s[0] * s[0] + s[1] * s[1] <= 4,
        lambda s: (s[0] * s[0] - s[1] * s[1] + re, 2 * s[0] * s[1] + im, s[2] + 1),
        (zero, zero, op.cast(zero, op.i32)),
        bound=BOUND,
    )[2]


def with_numpy(re, im):
    re, im = np.broadcast_arrays(re, im)
    x, y, steps = np.zeros_like(re), np.zeros_like(re), np.zeros(re.shape, np.int32)
    for _ in range(BOUND):
        inside = x * x + y * y <= 4
        x, y = np.where(inside, x * x - y * y + re, x), np.where(inside, 2 * x * y + im, y)
        steps += inside
    return steps


def picture(steps):
    t = np.log1p(steps)[..., None] / np.log1p(BOUND)
    colors = 0.5 - 0.5 * np.cos(2 * np.pi * (t * [1.0, 1.4, 1.9]))
    return (255 * np.where(steps[..., None] == BOUND, 0, colors)).astype(np.uint8)


if __name__ == "__main__":
    re = np.linspace(-2.2, 0.8, 768, dtype=np.float32)[None, :]
    im = np.linspace(-1.1, 1.1, 512, dtype=np.float32)[:, None]
    main((re, im), with_onepass, with_numpy, tolerance=0, picture=picture)
