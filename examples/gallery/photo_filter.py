"""A photograph through exposure, vignette and a filmic curve, 8 bits per channel in and out."""
import numpy as np
import onepass as op

from common import DATA, PROGRAMS, main

with open(f"{PROGRAMS}/tone_map.fuse", encoding="utf-8") as file:
    tone_map = op.formula(file.read())


def with_onepass(photo):
    return tone_map(photo=photo)


def with_numpy(photo):
    height, width, channels = photo.shape
    n = width * channels
    p = photo.reshape(height, n).astype(np.float32) * np.float32(1 / 255)
    linear = p * p
    y = (np.arange(height, dtype=np.float32)[:, None] + np.float32(0.5)) * np.float32(1 / height) - np.float32(0.5)
    x = (np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(1 / n) - np.float32(0.5)
    light = linear * (1 - np.float32(1.2) * (x * x + y * y))
    film = light * (2.51 * light + 0.03) / (light * (2.43 * light + 0.59) + 0.14)
    return np.clip(255 * np.sqrt(film) + 0.5, 0, 255).astype(np.uint8).reshape(photo.shape)


if __name__ == "__main__":
    photo = np.load(f"{DATA}/astronaut.npy")
    main((photo,), with_onepass, with_numpy, tolerance=2 / 255, picture=lambda result: np.concatenate([photo, result], axis=1)[::2, ::2])
