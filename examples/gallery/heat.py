"""The heat equation on a plate: a hot ring and a hot bar stay hot, the edges stay cold."""
import numpy as np
import onepass as op

from common import main

N, STEPS, SPEED = 512, 400, np.float32(0.24)


@op.jit
def step(u, hot):
    inner = u[1:-1, 1:-1]
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return op.where(hot, 1, op.pad(inner + SPEED * (around - 4 * inner), [1, 1], [1, 1]))


def with_onepass(u, hot):
    u, v = u.copy(), np.empty_like(u)
    for _ in range(STEPS):
        u, v = step(u, hot, out=v), u
    return u


def with_numpy(u, hot):
    u = u.copy()
    for _ in range(STEPS):
        inner = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        inner += SPEED * (around - 4 * inner)
        u[hot] = 1
    return u


def picture(u):
    """Returns the colors of glowing iron: black, red, yellow, white."""
    return (255 * np.clip(3 * np.sqrt(u)[..., None] - [0, 1, 2], 0, 1)).astype(np.uint8)


if __name__ == "__main__":
    y, x = np.mgrid[:N, :N] / N - 0.5
    hot = (np.abs(np.hypot(x, y) - 0.3) < 0.01) | ((np.abs(x) < 0.01) & (np.abs(y) < 0.15))
    main((hot.astype(np.float32), hot), with_onepass, with_numpy, tolerance=1e-5, picture=picture)
