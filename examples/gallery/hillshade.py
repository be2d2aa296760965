"""A relief map: real elevations, lit by a low sun and by twelve lights all around."""
import math

import numpy as np
import onepass as op

from common import DATA, main

ROW, COLUMN = 92.7, 92.7 * 0.805  # meters between points


def relief(xp, z):
    """Shades the relief. `xp` is onepass or NumPy: the formula is the same."""

    def at(down, right):
        return z[1 + down : z.shape[0] - 1 + down, 1 + right : z.shape[1] - 1 + right]

    dx = (at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1)) / (8 * COLUMN)
    dy = (at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1)) / (8 * ROW)
    steepness, aspect = xp.arctan(xp.hypot(dx, dy)), xp.arctan2(-dx, dy)
    rise, level, north, east = xp.sin(steepness), xp.cos(steepness), xp.cos(aspect), xp.sin(aspect)

    def light(azimuth, altitude):
        a, h = math.radians(azimuth), math.radians(altitude)
        return xp.maximum(0, math.sin(h) * level + math.cos(h) * rise * (math.cos(a) * north + math.sin(a) * east))

    sky = sum(light(30 * i, 35) for i in range(12))
    return xp.minimum(1, 0.75 * light(315, 40) + 0.4 / 12 * sky)


@op.jit
def with_onepass(elevation):
    return op.cast(255 * relief(op, 2.5 * op.cast(elevation, op.f32)), op.u8)


def with_numpy(elevation):
    return (255 * relief(np, np.float32(2.5) * elevation.astype(np.float32))).astype(np.uint8)


if __name__ == "__main__":
    main(
        (np.load(f"{DATA}/jacksboro_elevation.npy"),),
        with_onepass,
        with_numpy,
        tolerance=2 / 255,
        picture=lambda shade: np.repeat(shade[:, :, None], 3, axis=2),
    )
