"""A network of two layers learns handwritten digits; the NumPy form has a hand-written gradient."""
import numpy as np
import onepass as op

from common import DATA, main, tiled

STEPS, BATCH, RATE, MOMENTUM = 300, 128, np.float32(0.1), np.float32(0.9)
images, labels = np.load(f"{DATA}/digits_images.npy") / np.float32(16), np.load(f"{DATA}/digits_labels.npy").astype(np.int64)
test = np.arange(len(images)) % 5 == 4


def scores(p, x):
    return op.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


@op.jit
def step(p, v, x, y):
    loss, d = op.value_and_grad(lambda p: op.mean(op.cross_entropy(scores(p, x), y)))(p)
    v = {name: MOMENTUM * v[name] + d[name] for name in v}
    return loss, {name: p[name] - RATE * v[name] for name in p}, v


predict = op.jit(scores)


def numpy_scores(p, x):
    hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
    return hidden, hidden @ p["w2"] + p["b2"]


def numpy_step(p, v, x, y):
    hidden, out = numpy_scores(p, x)
    odds = np.exp(out - out.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[np.arange(len(y)), y]).mean()
    odds[np.arange(len(y)), y] -= 1
    odds /= len(y)
    back = (odds @ p["w2"].T) * (hidden > 0)
    d = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ odds, "b2": odds.sum(axis=0)}
    v = {name: MOMENTUM * v[name] + d[name] for name in v}
    return loss, {name: p[name] - RATE * v[name] for name in p}, v


def train(step, p):
    random, v = np.random.default_rng(7), {name: np.zeros_like(w) for name, w in p.items()}
    x, y = images[~test], labels[~test]
    for _ in range(STEPS):
        batch = random.integers(0, len(x), BATCH)
        loss, p, v = step(p, v, x[batch], y[batch])
    return p


def picture(out):
    """Draws the test images; wrong answers are red."""
    wrong = out.argmax(axis=1) != labels[test]
    grey = np.kron(1 - images[test].reshape(-1, 8, 8), np.ones((3, 3)))[..., None]
    return tiled((255 * np.where(wrong[:, None, None, None], [1, 0.35, 0.3], 1) * grey).astype(np.uint8), across=30)


if __name__ == "__main__":
    random = np.random.default_rng(1)
    layer = lambda n, m: (random.standard_normal((n, m)) * (2 / n) ** 0.5).astype(np.float32)
    p = {"w1": layer(64, 128), "b1": np.zeros(128, np.float32), "w2": layer(128, 10), "b2": np.zeros(10, np.float32)}
    with_onepass = lambda p: predict(train(step, p), images[test])
    with_numpy = lambda p: numpy_scores(train(numpy_step, p), images[test])[1]
    print(f"{(np.asarray(with_onepass(p)).argmax(axis=1) == labels[test]).mean():.1%} of {test.sum()} test images right")
    main((p,), with_onepass, with_numpy, tolerance=0.01, picture=picture)
