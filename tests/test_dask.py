"""Tests onepass.dask: blocks against the whole array, bit by bit, in this process and on a cluster of four. Runs an example that is
larger than the workers' memory.

Skipped (77) without the Python module or Dask, and outside of tools/test --full.
"""
import math
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from built_module import MODULE, ROOT  # skips without the module
if not os.environ.get("ONEPASS_TEST_FULL"):
    print("SKIPPED: Dask is used by tools/test --full alone")
    sys.exit(77)
os.environ["PYTHONPATH"] = os.pathsep.join([MODULE, *filter(None, [os.environ.get("PYTHONPATH")])])  # for the workers
try:
    import dask
    import dask.array as da
    import distributed
except ImportError as error:
    print(f"SKIPPED: {error} (pip install dask[array] distributed)")
    sys.exit(77)

import numpy as np  # noqa: E402

import onepass as op  # noqa: E402
import onepass.dask  # noqa: E402

KINDS = ("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "count_nonzero")


def array(shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape))).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = dask.config.set(scheduler="synchronous")

    def same(self, got, wanted, said=""):
        got = got.compute() if isinstance(got, da.Array) else np.asarray(got)
        wanted = np.asarray(wanted)
        self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape), said)
        np.testing.assert_array_equal(got, wanted, said)
        if got.dtype.kind == "f":
            kept = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got)[kept], np.signbit(wanted)[kept], said)


class Maps(Test):
    def test_arrays_broadcast_and_chunks_are_aligned(self):
        x, w, c = array((60, 40)), array((40,), seed=1), array((60, 1), np.float64, seed=2)
        dx, dw, dc = da.from_array(x, (13, 17)), da.from_array(w, 11), da.from_array(c, (25, 1))
        for f, args in (
            (lambda x: op.exp(x) + 0.1, "x"), (lambda x, w: op.tanh(x * w), "xw"), (lambda w, x: x - w, "wx"),
            (lambda x, w, c: op.where(x > w, x, c), "xwc"), (lambda c, w: c * w, "cw"), (lambda c, w: op.squeeze(c, 1)[:, None] * w[None, :], "cw"),
        ):  # fmt: skip
            given = [{"x": x, "w": w, "c": c}[a] for a in args]
            chunked = [{"x": dx, "w": dw, "c": dc}[a] for a in args]
            self.same(op.dask.map(f, *chunked), op.jit(f)(*given))
            self.same(op.dask.map(op.jit(f), *chunked), op.jit(f)(*given))
        self.same(op.dask.map(lambda x, w: x + w[None, :], dx, dw), x + w[None, :])
        self.same(op.dask.map(lambda x, w: x * w, dx, w), op.Array(x) * w)  # one of them a NumPy array
        self.same(op.dask.map(lambda x, k: op.pow(x, k), dx, 3), op.jit(lambda x: op.pow(x, 3))(x))
        self.same(op.dask.map(op.formula("a*b + 1"), dx, dw), op.evaluate("x*w + 1"))

    def test_compiled_functions_take_dask_arrays(self):
        x, w = array((60, 40)), array((40,), seed=1)
        dx, dw = da.from_array(x, (13, 17)), da.from_array(w, 11)
        f = op.jit(lambda x, w: op.exp(-x * x) * w + 1, relax=["approximate", "contract"])
        y = f(dx, dw)
        self.assertIsInstance(y, da.Array)
        self.same(y, f(x, w))  # with its options
        self.same(f(dx, 2.0), f(x, 2.0))
        self.same(op.dask.sum(f, dx, dw), op.jit(lambda x, w: op.sum(f(x, w)), relax=["approximate", "contract"])(x, w))
        formula = op.formula("a*b + 1")
        self.same(formula(dx, dw), formula(x, w))
        self.same(formula(b=dw, a=dx), formula(x, w))
        for wrong in (lambda: f(dx, w=dw), lambda: formula(dx, dw, out=x), lambda: f(dx, dw, out=x)):
            with self.assertRaises((TypeError, ValueError)):
                wrong()
        for method in (f.compare, f.vjp, f.check_gradients):
            with self.assertRaisesRegex(TypeError, "compute"):
                method(dx, dw)

    def test_every_elementwise_operator(self):
        x, y = np.random.default_rng(0).uniform(0.1, 0.9, (2, 30, 20)).astype(np.float32)
        i, j = array((30, 20), np.int32), array((30, 20), np.int32, seed=1) % 5
        b = x > 0.5
        dx, dy, di, dj, db = (da.from_array(v, (7, 20)) for v in (x, y, i, j, b))
        one = """neg abs sign square reciprocal sqrt rsqrt cbrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh
            asinh atanh erf erfc erfinv lgamma digamma floor ceil trunc round isnan isinf isfinite signbit logical_not relu leaky_relu elu celu selu gelu
            gelu_tanh silu mish softplus softsign hardsigmoid hardswish hardtanh relu6 stop_gradient""".split()
        for name in one:
            self.same(op.dask.map(getattr(op, name), dx), getattr(op, name)(x), name)
        two = "add sub mul div floor_div remainder fmod pow maximum minimum copysign hypot logaddexp atan2 equal not_equal less less_equal greater greater_equal"
        for name in two.split():
            self.same(op.dask.map(getattr(op, name), dx, dy), getattr(op, name)(x, y), name)
        for name in "add mul floor_div remainder pow bitwise_and bitwise_or bitwise_xor shift_left shift_right maximum".split():
            self.same(op.dask.map(getattr(op, name), di, dj), getattr(op, name)(i, j), name)
        for f, chunked, whole in (
            (lambda i: ~i + op.popcount(i), [di], [i]), (lambda i: op.bitcast(i, op.f32), [di], [i]), (lambda x: op.cast(x * 1000, op.u8), [dx], [x]),
            (lambda b, x: op.where(b, x, 0.5), [db, dx], [b, x]), (lambda b: op.where(b, True, b), [db], [b]), (lambda b: b & True, [db], [b]),
            (lambda b: op.where(b, op.cast(0.1, op.f64), op.cast(0.7, op.f64)), [db], [b]),
            (lambda x: op.fma(x, 2.0, float("inf")) - op.clamp(x, -0.0, 0.3), [dx], [x]), (lambda i: i * 2.5 + (i & 255), [di], [i]),
            (lambda x: op.cast(x, op.f16) * 0.1 + 1, [dx], [x]), (lambda x: x ** -7 + x ** 0.5 + x**3, [dx], [x]),
            (lambda x, i: x + op.cast(i, op.f64) / 3 + 0.1, [dx, di], [x, i]),
        ):  # fmt: skip
            self.same(op.dask.map(f, *chunked), op.jit(f)(*whole))

    def test_along_whole_axes(self):
        x = array((50, 30))
        dx = da.from_array(x, (7, 11))
        self.same(op.dask.map(op.softmax, dx, whole=-1), op.softmax(x))
        self.same(op.dask.map(lambda x: op.softmax(x, axis=0), da.from_array(x, (20, 1)), whole=0), op.softmax(x, axis=0))
        self.same(op.dask.map(lambda x: x - op.mean(x, 0, True), da.from_array(x, (20, 1)), whole=0), op.jit(lambda x: x - op.mean(x, 0, True))(x))
        y = array((5, 6, 7))
        self.same(op.dask.map(lambda y: y / op.sum(y, (0, 2), True), da.from_array(y, (2, 1, 3)), whole=(0, 2)), op.jit(lambda y: y / op.sum(y, (0, 2), True))(y))

    def test_what_no_block_can_do(self):
        x, c = da.from_array(array((20, 30)), (7, 11)), op.Array(array((30,)))
        for f, said in (
            (op.softmax, "whole="), (lambda x: x + c, "as an argument"), (lambda x: x + op.Array(np.float32(2)), "not one of its arguments"), (lambda x: x * x.shape[0], "lengths"), (lambda x: x.T, "permute"),
            (lambda x: x[1:], "slice"), (lambda x: op.cumsum(x, 0), "scan"), (lambda x: (x, x), "one result"), (lambda x: x[:, None], "shape"),
            (lambda x: op.sum(x, 0), "whole="), (lambda x: x.reshape(-1), "reshape"), (lambda x: x + op.uniform(1, x.shape), "is not elementwise"),
        ):  # fmt: skip
            with self.assertRaisesRegex(op.UnsupportedError, said):
                op.dask.map(f, x)
        with self.assertRaisesRegex(op.UnsupportedError, "shape"):
            op.dask.map(lambda x, w: op.broadcast_to(w, x.shape) * 2, x, da.ones(30))
        with self.assertRaises(op.ShapeError):
            op.dask.map(lambda x, y: x + y, x, da.ones((21, 30)))
        with self.assertRaises(op.ValueError):
            op.dask.map(lambda x: x, 3.0)
        with self.assertRaises(op.IndexError):
            op.dask.sum(x, axis=2)

    def test_blocks_are_not_copied(self):
        from onepass.dask import blocks

        x = np.ones((8, 8), np.float32)
        text = "v = a0 * 7.125\nout = v"
        y = blocks.run(x, text=text, options=())
        self.assertFalse(y.flags.owndata)  # onepass's memory, not a copy of it
        self.assertEqual(blocks._formula(text, ()).stats()["bytes_allocated"], y.nbytes)  # nor a copy of the argument
        unaligned = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(8, 8)  # as in a message
        self.assertFalse(unaligned.flags.aligned)
        np.testing.assert_array_equal(blocks.run(unaligned, text=text, options=()), y)

    def test_evaluate(self):
        x, y, k = array((40, 30)), array((30,), seed=1), 2.5
        dx, dy = da.from_array(x, (13, 7)), da.from_array(y, 9)
        self.same(op.dask.evaluate("dx*k + dy"), op.evaluate("x*2.5 + y"))
        self.same(op.dask.evaluate("t = dx*dy; t*t"), op.evaluate("t = x*y; t*t"))
        self.same(op.dask.evaluate("sum(dx*dy, axis=0)"), op.evaluate("sum(x*y, axis=0)"))
        self.same(op.dask.evaluate("var(dx, axis=[0, 1], keepdims=true, ddof=1)"), op.evaluate("var(x, axis=[0, 1], keepdims=true, ddof=1)"))
        self.same(op.dask.evaluate("mean(exp(a))", {"a": dx}, {}), op.evaluate("mean(exp(x))"))
        self.same(op.dask.evaluate("softmax(dx)", whole=1), op.evaluate("softmax(x)"))
        with self.assertRaises(KeyError):
            op.dask.evaluate("dx*unknown_name")


class Reductions(Test):
    """Tests that results have the bits of one process, for any chunks."""

    # shape, axis, chunks: blocks of 4,096 along a row or of 256 rows; steps of one row, powers of two, and other steps; on and off block
    # ends
    CASES = [
        ((100_000,), None, 4096), ((100_000,), 0, 12_345), ((65_536,), 0, 8192), ((4097,), 0, 1000), ((40_960,), None, 40_960), ((1,), 0, 1),
        ((5, 20_000), 1, (2, 3000)), ((5, 20_000), 0, (2, 3000)), ((3, 20_001), -1, (1, 4096)), ((700, 30), None, (100, 30)), ((3000, 300), None, (170, 70)),
        ((3000, 5), 0, (300, 1)), ((3000, 5), 0, (256, 2)), ((1000, 1), 0, (99, 1)), ((1, 9000), 1, (1, 100)), ((300, 2048), None, (7, 100)),
        ((9, 16_384), None, (1, 16_384)), ((4, 3000, 3), 1, (1, 500, 1)), ((4, 3000, 3), (1, 2), (3, 500, 1)), ((700, 30, 3), (0, 1), (50, 7, 1)),
        ((600, 16, 3), (0, 1), (32, 16, 2)), ((6, 5, 70), (0, 2), (2, 1, 30)), ((9000, 2, 3), (0, 2), (1000, 1, 3)), ((4, 1, 5000), (0, 2), (1, 1, 700)), ((2, 0, 3), 1, (1, 1, 1)), ((3, 4), (), (2, 2)),
    ]  # fmt: skip

    def test_sums(self):
        for shape, axis, chunks in self.CASES:
            x = array(shape)
            dx = da.from_array(x, chunks)
            self.same(op.dask.sum(dx, axis=axis), op.sum(x, axis), (shape, axis, chunks))
            self.same(op.dask.sum(dx, axis=axis, keepdims=True), op.sum(x, axis, True), (shape, axis, chunks))
            self.same(op.dask.sum(lambda x: x * x + 1, dx, axis=axis), op.jit(lambda x: op.sum(x * x + 1, axis))(x), (shape, axis, chunks))

    def test_kinds(self):
        for shape, axis, chunks in (((20_000,), 0, 5000), ((3, 9000), 1, (1, 4096)), ((3000, 5), 0, (300, 1)), ((50, 300), None, (20, 70))):
            for dtype in (np.float32, np.float64, np.int32, np.uint8, bool, np.float16):
                x = array(shape, np.int32).astype(dtype) if dtype is bool else array(shape, dtype)
                if np.dtype(dtype).kind == "f":
                    x = x * dtype(0.01) + dtype(1)
                for kind in KINDS:
                    self.same(getattr(op.dask, kind)(da.from_array(x, chunks), axis=axis), getattr(op, kind)(x, axis), (kind, shape, axis, chunks, dtype))
            y = array(shape)
            for kind in ("var", "std"):
                self.same(getattr(op.dask, kind)(da.from_array(y, chunks), axis=axis, ddof=1), getattr(op, kind)(y, axis, 1), kind)

    def test_several_arrays(self):
        x, w, c = array((5000, 6)), array((6,), seed=1), array((5000, 1), seed=2)
        f = lambda x, w, c: x * w - c  # noqa: E731
        chunked = da.from_array(x, (700, 1)), da.from_array(w, 4), da.from_array(c, (512, 1))
        for axis in (None, 0, 1):
            for kind in ("sum", "mean", "var", "max"):
                self.same(getattr(op.dask, kind)(f, *chunked, axis=axis), op.jit(lambda *a: getattr(op, kind)(f(*a), axis))(x, w, c), (kind, axis))
        h, k = (np.random.default_rng(seed).standard_normal(9000).astype(np.float16) for seed in (0, 1))
        self.same(op.dask.sum(lambda h, k: h * k, da.from_array(h, 1000), da.from_array(k, 1000)), op.jit(lambda h, k: op.sum(h * k))(h, k))

    def test_special_values(self):
        for value in (np.nan, np.inf, -0.0):
            x = np.full(10_000, value, np.float32)
            for kind in ("sum", "max", "min", "prod"):
                self.same(getattr(op.dask, kind)(da.from_array(x, 3000)), getattr(op, kind)(x), (kind, value))
        x = np.zeros(9000, np.float32)
        x[::2] = -0.0
        for kind in ("max", "min"):
            self.same(getattr(op.dask, kind)(da.from_array(x, 1)[:7]), getattr(op, kind)(x[:7]), kind)

    def test_chunks_that_end_with_blocks_stay(self):
        x = da.ones((100 * 4096,), chunks=8 * 4096, dtype=np.float32)
        names = [key[0] if isinstance(key, tuple) else key for key in op.dask.sum(x).__dask_graph__()]
        self.assertFalse(any("rechunk" in str(name) for name in names))
        names = [key[0] if isinstance(key, tuple) else key for key in op.dask.sum(x.rechunk(30_000)).__dask_graph__()]
        self.assertTrue(any("rechunk" in str(name) for name in names))


class Cluster(unittest.TestCase):
    """Tests four processes, which receive only text and NumPy arrays."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cluster = distributed.LocalCluster(n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=cls.folder.name, memory_limit="1GiB")
        cls.client = distributed.Client(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.client.close(), cls.cluster.close(), cls.folder.cleanup()

    def test_results(self):
        x, w = array((6000, 40)), array((40,), seed=1)
        dx, dw = da.from_array(x, (256, 40)), da.from_array(w, 40)
        layer = lambda x, w: op.tanh(x * w)  # noqa: E731
        with dask.config.set(scheduler=self.client):
            for got, wanted in (
                (op.dask.map(layer, dx, dw), op.jit(layer)(x, w)),
                (op.dask.sum(layer, dx, dw, axis=0), op.jit(lambda x, w: op.sum(layer(x, w), 0))(x, w)),
                (op.dask.sum(dx), op.sum(x)),
                (op.dask.std(dx, axis=0), op.std(x, 0)),
                (op.dask.map(op.softmax, dx, whole=-1), op.softmax(x)),
            ):
                np.testing.assert_array_equal(got.compute(), np.asarray(wanted))

    def test_workers_are_sent_formulas(self):
        secret = 12345.0
        y = op.dask.map(lambda x: x * secret, da.from_array(array((100,)), 10))
        sent = pickle.dumps(y.__dask_graph__())
        self.assertIn(b"mul(a0, cast(12345, f32))", sent)
        self.assertNotIn(b"lambda", sent)

    def test_formulas_are_compiled_once_by_each_worker(self):
        dx = da.from_array(array((4000,)), 100)
        with dask.config.set(scheduler=self.client):
            op.dask.map(lambda x: op.sin(x) * 3.25 - 8, dx).compute()

        def stats():
            from onepass.dask import blocks

            return blocks._formula.cache_info().misses, blocks._formula.cache_info().hits

        known = self.client.run(stats)
        self.assertEqual(len(known), 4)
        self.assertGreater(sum(hits for _, hits in known.values()), sum(misses for misses, _ in known.values()))


class Example(unittest.TestCase):
    def test_larger_than_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, os.path.join(ROOT, "examples/dask_npy.py"), folder],
                capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("equal bits: True", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
