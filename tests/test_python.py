"""Tests the Python module: the guarantees of docs/python.md, by operator and as a whole. Skipped (77) without the module."""
import collections
import dataclasses
import enum
import functools
import gc
import importlib.util
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from xml.etree import ElementTree

from built_module import MODULE, ROOT  # skips without the module

import numpy as np  # noqa: E402

import onepass as op  # noqa: E402


def array(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(0.1, 0.9, shape).astype(dtype)


class Test(unittest.TestCase):
    def same(self, got, wanted):
        got, wanted = np.asarray(got), np.asarray(wanted)
        self.assertEqual(got.dtype, wanted.dtype)
        self.assertEqual(got.shape, wanted.shape)
        np.testing.assert_array_equal(got, wanted)

    def near(self, got, wanted, tolerance=1e-5):
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance)


class Operators(Test):
    """Tests that each function has the bits of the formula operator of the same name, outside of a function and recorded."""

    def check(self, name, call, formula, **inputs):
        wanted = op.evaluate(formula, inputs, {})
        with self.subTest(name):
            self.same(call(**inputs), wanted)
            self.same(op.jit(lambda values: call(**values))(inputs), wanted)

    def test_elementwise(self):
        x, y = array((3, 5)), array((5,), seed=1)
        floats = """neg abs sign square reciprocal sqrt rsqrt cbrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh
            cosh tanh asinh atanh erf erfc erfinv lgamma digamma floor ceil trunc round isnan isinf isfinite signbit relu relu6 hardsigmoid
            hardswish selu gelu gelu_tanh silu mish softplus softsign stop_gradient leaky_relu elu celu hardtanh logical_not""".split()
        for name in floats:
            self.check(name, lambda x, f=getattr(op, name): f(x), f"{name}(x)", x=x)
        self.check("acosh", lambda x: op.acosh(x), "acosh(x)", x=x + 1)
        for name in "add sub mul div floor_div remainder fmod pow maximum minimum copysign hypot logaddexp atan2 equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor mse".split():
            self.check(name, lambda x, y, f=getattr(op, name): f(x, y), f"{name}(x, y)", x=x, y=y)
        i, j = np.arange(6, dtype=np.int32), np.arange(6, dtype=np.int32)[::-1].copy()
        for name in "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split():
            self.check(name, lambda x, y, f=getattr(op, name): f(x, y), f"{name}(x, y)", x=i, y=j)
        for name in "bitwise_not popcount".split():
            self.check(name, lambda x, f=getattr(op, name): f(x), f"{name}(x)", x=i)
        self.check("fma", lambda x, y: op.fma(x, y, 0.5), "fma(x, y, 0.5)", x=x, y=y)
        self.check("clamp", lambda x: op.clamp(x, 0.2, 0.6), "clamp(x, 0.2, 0.6)", x=x)
        self.check("where", lambda x, y: op.where(x > y, x, 0), "where(x > y, x, 0)", x=x, y=y)
        self.check("leaky_relu", lambda x: op.leaky_relu(x - 0.5, 0.3), "leaky_relu(x - 0.5, 0.3)", x=x)
        self.check("cast", lambda x: op.cast(x * 300, op.u8), "cast(x*300, u8)", x=x)
        self.check("bitcast", lambda x: op.bitcast(x, np.int32), "bitcast(x, i32)", x=x)

    def test_reductions_and_scans(self):
        x = array((4, 6, 3))
        for name in "sum mean max min prod any all argmax argmin count_nonzero norm logsumexp var std".split():
            f = getattr(op, name)
            self.check(name, lambda x: f(x), f"{name}(x)", x=x)
            self.check(name, lambda x: f(x, axis=1), f"{name}(x, axis=1)", x=x)
            self.check(name, lambda x: f(x, axis=(0, -1), keepdims=True), f"{name}(x, axis=[0, -1], keepdims=true)", x=x)
        self.check("var", lambda x: op.var(x, axis=0, ddof=1), "var(x, axis=0, ddof=1)", x=x)
        for name in "cumsum cumprod cummax cummin".split():
            f = getattr(op, name)
            self.check(name, lambda x: f(x), f"{name}(reshape(x, [-1]), 0)", x=x)
            self.check(name, lambda x: f(x, 1), f"{name}(x, 1)", x=x)
            self.check(name, lambda x: f(x, axis=0, reverse=True), f"{name}(x, axis=0, reverse=true)", x=x)
        self.check("softmax", lambda x: op.softmax(x, 1), "softmax(x, 1)", x=x)
        self.check("log_softmax", lambda x: op.log_softmax(x), "log_softmax(x)", x=x)
        s = array((3,), seed=4)
        self.check("layer_norm", lambda x, s: op.layer_norm(x, s, s), "layer_norm(x, s, s)", x=x, s=s)
        self.check("rms_norm", lambda x, s: op.rms_norm(x, s), "rms_norm(x, s)", x=x, s=s)
        c = array((6,), seed=5)
        self.check("batch_norm", lambda x, c: op.batch_norm(x, c, c, c, c), "batch_norm(x, c, c, c, c)", x=x, c=c)
        self.check("cross_entropy", lambda x, k: op.cross_entropy(x, k), "cross_entropy(x, k)", x=array((4, 6)), k=np.array([0, 5, 2, 1]))

    def test_views_joins_and_indices(self):
        x, y = array((4, 6)), array((4, 6), seed=1)
        k = np.array([3, 0, -1], np.int32)
        pairs = [
            (lambda x, y: op.reshape(x, (3, 8)), "reshape(x, [3, 8])"),
            (lambda x, y: op.transpose(x), "transpose(x)"),
            (lambda x, y: op.transpose(x, (1, 0)), "transpose(x, [1, 0])"),
            (lambda x, y: op.swap_axes(x, 0, 1), "swap_axes(x, 0, 1)"),
            (lambda x, y: op.expand_dims(x, 1), "expand_dims(x, 1)"),
            (lambda x, y: op.squeeze(x[:1]), "squeeze(x[:1])"),
            (lambda x, y: op.broadcast_to(x[0], (2, 6)), "broadcast_to(x[0], [2, 6])"),
            (lambda x, y: op.flip(x, 1), "flip(x, 1)"),
            (lambda x, y: op.diagonal(x, 1), "diagonal(x, 1)"),
            (lambda x, y: op.concat([x, y], 1), "concat([x, y], 1)"),
            (lambda x, y: op.stack([x, y], -1), "stack([x, y], -1)"),
            (lambda x, y: op.pad(x, (1, 0), (0, 2), 7), "pad(x, [1, 0], [0, 2], 7)"),
            (lambda x, y: op.tile(x, (2, 1)), "tile(x, [2, 1])"),
            (lambda x, y: op.repeat(x, 2, 0), "repeat(x, 2, 0)"),
            (lambda x, y: op.repeat(x, 2), "repeat(reshape(x, [-1]), 2, 0)"),
            (lambda x, y: op.roll(x, 2, 1), "roll(x, 2, 1)"),
            (lambda x, y: op.roll(x, (1, -2), (0, 1)), "roll(roll(x, 1, 0), -2, 1)"),
            (lambda x, y: op.matmul(x, y.T), "matmul(x, transpose(y))"),
            (lambda x, y: op.dot(x, y.T), "dot(x, transpose(y))"),
            (lambda x, y: op.outer(x[0], y[0]), "outer(x[0], y[0])"),
            (lambda x, y: op.einsum("ij,kj->ik", x, y), 'einsum("ij,kj->ik", x, y)'),
            (lambda x, y: x[1:, None, ::-2] + 1, "x[1:, none, ::-2] + 1"),
            (lambda x, y: op.mul(x[..., -1], 2), "x[..., -1]*2"),
        ]
        for call, formula in pairs:
            self.check(formula, call, formula, x=x, y=y)
        for call, formula in [
            (lambda x, k: op.take(x, k, 1), "take(x, k, 1)"),
            (lambda x, k: op.take_along_axis(x, k[:, None], 1), "take_along_axis(x, k[:, none], 1)"),
            (lambda x, k: op.index_add(x, k, x[:3], 0), "index_add(x, k, x[:3], 0)"),
            (lambda x, k: op.scatter_add(x[:3, 0], k, x[:3, 1], 0), "scatter_add(x[:3, 0], k, x[:3, 1], 0)"),
        ]:
            x3 = array((4, 6)) if "along" not in formula and "scatter" not in formula else array((3, 6))
            self.check(formula, call, formula, x=x3, k=np.array([2, 0, -1], np.int32))
        self.same(op.Array(x)[op.Array(k)], x[k])

    def test_sources(self):
        for got, formula in [
            (op.zeros((2, 3)), "zeros([2, 3])"),
            (op.ones((2,), np.int16), "ones([2], i16)"),
            (op.full((2, 2), 1.5, "f64"), "full([2, 2], 1.5, f64)"),
            (op.iota((2, 3), 1), "iota([2, 3], 1)"),
            (op.uniform(7, (5,)), "uniform(7, [5])"),
            (op.normal(7, (5,), op.f64), "normal(7, [5], f64)"),
        ]:
            self.same(got, op.evaluate(formula, {}, {}))
        self.same(op.arange(2, 11, 3), np.arange(2, 11, 3))
        self.same(op.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=np.float32))
        for k in (-1, 0, 1):
            self.same(op.eye(2, 3, k), np.eye(2, 3, k, dtype=np.float32))
            self.same(op.jit(lambda x: x + op.eye(3, k=k, dtype="f64"))(np.zeros(3)), np.eye(3, k=k))
        self.same(op.zeros_like(array((2, 3))), np.zeros((2, 3), np.float32))

    def test_operators_of_python(self):
        x, y = op.Array(array((4,))), op.Array(array((4,), seed=1))
        a, b = np.asarray(x), np.asarray(y)
        i, j = op.Array(np.array([6, 5])), op.Array(np.array([3, 1]))
        for name in "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split():
            f = getattr(__import__("operator"), name)
            self.near(f(x, y), f(a, b))
            self.near(f(x, 0.25), f(a, np.float32(0.25)))
            self.near(f(0.25, x), f(np.float32(0.25), a))
            self.near(f(a, y), f(a, b))  # NumPy's array on the left defers to onepass's operator
        for name in "and_ or_ xor lshift rshift".split():
            f = getattr(__import__("operator"), name)
            self.same(f(i, j), f(np.asarray(i), np.asarray(j)))
        self.near(-x, -a), self.near(abs(-x), a), self.same(~i, ~np.asarray(i)), self.near(+x, a), self.near(x @ y, a @ b)
        self.assertIsInstance(a + y, op.Array)
        self.assertIsInstance(np.sin(x), op.Array)
        self.assertTrue(np.allclose(x, a))


class Arrays(Test):
    def test_memory_is_shared(self):
        a = array((3, 4))
        x = op.Array(a)
        self.assertTrue(np.shares_memory(np.asarray(x), a))
        self.assertTrue(np.shares_memory(np.from_dlpack(x), a))
        self.assertTrue(np.shares_memory(np.asarray(x[1:, ::2]), a))
        a[1, 2] = 5
        self.assertEqual(float(x[1, 2]), 5)
        x[1:, ::2] = np.array([7, 8], np.float64)  # cast to f32
        self.assertEqual(a[2].tolist()[::2], [7, 8])
        self.assertIn('"dltensor"', repr(x.__dlpack__()))  # before 1.0
        self.assertIn('"dltensor_versioned"', repr(x.__dlpack__(max_version=(1, 0))))
        y = op.jit(lambda x: x + 1)(a)
        self.assertTrue(np.shares_memory(np.asarray(y), np.asarray(y)))
        self.assertTrue(np.asarray(y).flags.writeable)

    def test_read_only_stays_so(self):
        a = array((3,))
        a.flags.writeable = False
        x = op.Array(a)
        self.assertTrue(x.is_read_only)
        self.assertFalse(np.asarray(x).flags.writeable)
        with self.assertRaises(ValueError):
            x[0] = 1
        with self.assertRaisesRegex(ValueError, "read-only"):
            op.jit(lambda x: x * 2)(a, out=x)

    def test_every_dtype_and_layout(self):
        for name in "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split():
            dtype = np.dtype({"bool": "?", "i": "i", "u": "u", "f": "f"}[name if name == "bool" else name[0]] + ("" if name == "bool" else str(int(name[1:]) // 8)))
            a = (np.arange(12) % 2 if name == "bool" else np.arange(12)).astype(dtype).reshape(3, 4)
            for view in (a, a.T, a[::-1, ::2], a[:, :0], a[1, 1:2].reshape(())):
                x = op.Array(view)
                self.assertEqual(x.dtype, dtype)
                self.assertEqual(x.dtype, name)
                self.assertEqual(hash(x.dtype), hash(op.dtype(dtype)))
                self.same(x, view)
                self.same(op.jit(lambda x: op.reshape(x, (-1,)))(view), view.reshape(-1))
                self.same(pickle.loads(pickle.dumps(x)), view)
                self.assertEqual(x.tolist(), view.tolist())
        self.assertEqual((x.shape, x.ndim, x.size, x.nbytes), ((), 0, 1, 8))
        self.assertEqual(op.Array([[1, 2], [3, 4]]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(op.Array([1.5, 2], op.i32).tolist(), [1, 2])
        half = op.Array(np.array([1, 2], np.float32)).astype(op.bf16)
        self.assertEqual(half.tolist(), [1, 2])
        with self.assertRaisesRegex(BufferError, "bf16"):
            memoryview(half)

    def test_calls_of_numpys_functions(self):
        x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
        a, v = op.Array(x), op.Array(x[0])
        in_onepass = (
            ("sort", (a, 0), {}), ("argsort", (a,), {}), ("median", (a,), {}), ("quantile", (a, 0.3, 0), {}), ("diff", (a, 2, 0), {}), ("cov", (a,), {}),
            ("average", (a, 0), {}), ("diag", (v,), {}), ("trace", (a,), {}), ("tril", (a,), {}), ("nanstd", (a,), {"ddof": 1}), ("clip", (a, -0.5, 0.5), {}),
            ("convolve", (v, v), {}), ("full_like", (a, 3), {}), ("repeat", (a, 2, 1), {}), ("float_power", (op.Array(np.array([2, 4])), -1), {}),
        )  # fmt: skip
        in_numpy = (("cumsum", (a,), {}), ("sum", (a,), {"dtype": np.float64}), ("max", (a,), {"initial": 9}), ("where", (a > 0,), {}), ("partition", (a, 3), {}), ("sort", (a,), {"axis": None}))
        for calls, kind in ((in_onepass, op.Array), (in_numpy, object)):
            for name, args, kwargs in calls:
                with self.subTest(name=name):
                    got, expected = getattr(np, name)(*args, **kwargs), getattr(np, name)(*(np.asarray(v) if isinstance(v, op.Array) else v for v in args), **kwargs)
                    self.assertIsInstance(got, kind)
                    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-6)
        self.assertIs(np.add(a, a, out=a), a)
        self.assertEqual(np.zeros(3, a.dtype).dtype, np.float32)
        with self.assertRaisesRegex(TypeError, "np.partition: a Tensor has no value"):
            op.jit(lambda x: np.partition(x, 3))(x)
        for scalar in (np.timedelta64(3), np.datetime64("2026-01-01")):
            with self.assertRaises((op.DTypeError, TypeError)):
                op.Array(scalar)

    def test_ranges(self):
        for k in range(1, 40):
            for step in (0.1, 0.3, 0.9, 1 / 3):
                self.assertEqual(op.arange(0.0, k * step, step).shape, op.formula(f"arange(0.0, {k * step!r}, {step!r})")().shape)
                np.testing.assert_array_equal(op.linspace(0.0, k * step, 7, dtype=op.f64), op.formula(f"linspace(0.0, {k * step!r}, 7, dtype=f64)")())
        np.testing.assert_array_equal(op.arange(np.uint8(3), np.uint8(200), np.uint8(50)), [3, 53, 103, 153])
        self.assertEqual(op.arange(np.int64(5)).dtype, op.i64)
        self.assertEqual(op.linspace(0.0, op.Array(np.array(2.0)), 3).dtype, op.f64)
        np.testing.assert_array_equal(op.linspace(0, 1, 4, endpoint=False), [0, 0.25, 0.5, 0.75])

    def test_like_numpys(self):
        a = array((2, 3))
        x = op.Array(a)
        self.near(x.sum(axis=0), a.sum(0)), self.near(x.mean(), a.mean()), self.near(x.T, a.T), self.near(x.reshape(3, 2), a.reshape(3, 2))
        self.near(x.reshape((-1,)), a.ravel()), self.near(x.astype(np.float64), a), self.near(x.clip(0.2, 0.4), a.clip(0.2, 0.4))
        self.assertEqual(len(x), 2)
        self.assertEqual([float(v) for v in x[0]], a[0].tolist())
        self.assertTrue(bool(op.all(x == a)))
        self.assertEqual(int(op.Array(np.int32(3))), 3)
        self.assertEqual([10, 20, 30, 40][op.Array(np.int8(3))], 40)
        self.assertIn("f32", repr(x))
        self.near(np.sum(x, axis=1), a.sum(1)), self.near(np.heaviside(x, 0), np.heaviside(a, 0))
        with self.assertRaises(TypeError):
            hash(x)
        with self.assertRaises(IndexError):
            x[2]
        with self.assertRaises(TypeError):
            len(op.Array(1.0))
        with self.assertRaises(op.ShapeError):
            float(x)


    def test_one_number(self):
        loss, x = op.sum(op.Array(array((5,)))), op.Array(array((2, 3)))
        self.assertEqual(f"{loss:.2f} {loss}", f"{float(loss):.2f} {np.asarray(loss)[()]!s}")
        self.assertEqual(f"{op.Array(np.int32(7)):03d} {op.Array(True)} {op.cast(0.5, 'bf16')} {op.Array(np.float16(0.1))}", "007 True 0.5 0.1")
        self.assertEqual(f"{x}", str(x))
        self.assertEqual((round(loss, 2), round(op.Array(2.5)), round(op.Array(17), -1)), (round(float(loss), 2), 2, 20))
        self.assertIs(type(round(loss)), int)
        with self.assertRaisesRegex(TypeError, r"shape \(2, 3\)"):
            f"{x:.2f}"
        with self.assertRaisesRegex(TypeError, r"shape \(2, 3\)"):
            round(x, 1)
        with self.assertRaisesRegex(TypeError, "no value"):
            op.jit(lambda x: f"{x:.2f}")(x)

    def test_comparisons_and_divmod_as_numpys(self):
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        x = op.Array(a)
        self.assertTrue(3.0 in x and [3, 4, 5] in x)
        self.assertFalse(9 in x or None in x or "3" in x)
        none, every = np.zeros((2, 3), bool), np.ones((2, 3), bool)
        for other in (None, "a", b"a"):
            self.same(x == other, none), self.same(x != other, every)
            self.same(op.jit(lambda x: x == other)(x), none), self.same(op.jit(lambda x: x != other)(x), every)
        for got, wanted in zip((*divmod(x, 2), *divmod(7, x + 1), *op.jit(lambda x: divmod(x, 2))(x)), (*divmod(a, 2), *divmod(7, a + 1), *divmod(a, 2))):
            self.same(got, wanted)
        for power in (lambda x: pow(x, 2, 3), op.jit(lambda x: pow(x, 2, 3))):
            with self.assertRaisesRegex(TypeError, "modulus"):
                power(x)

    def test_assigned_values_that_do_not_fit(self):
        x = op.Array(np.zeros((2, 3), np.float32))
        for key, value, shapes in ((0, [1.0, 2.0], r"\[2\].* \[3\]"), ((0, 0), [1.0, 2.0], r"\[2\].* \[\]"), (slice(None), np.ones((1, 2, 3)), r"\[1, 2, 3\].* \[2, 3\]")):
            with self.assertRaisesRegex(op.ShapeError, "an assignment: .*" + shapes) as caught:
                x[key] = value
            self.assertNotIn("Recorded at", str(caught.exception))
        x[:] = [[1.0], [2.0]]
        self.same(x, np.float32([[1, 1, 1], [2, 2, 2]]))

    def test_element_types_without_a_dtype_are_named(self):
        for x, name in (
            (np.zeros(3, complex), "complex128"), (np.zeros(3, ">f4"), ">f4"), (np.array(["a"]), "<U1"), (np.zeros(3, "M8[s]"), "datetime64"),
            (np.zeros(3, [("a", "f4"), ("b", "i2")]), "'a'"), (np.array([None]), "object"),
        ):  # fmt: skip
            for call in (op.asarray, op.sin, op.jit(lambda x: x + 1)):
                with self.assertRaisesRegex(op.DTypeError, re.escape(name) + ".* has no dtype in onepass.*astype"):
                    call(x)

    def test_take_without_an_axis_is_of_all_elements(self):
        x, i = array((3, 4)), np.array([[7, 0], [11, -1]])
        for f in (op.take, op.jit(op.take)):
            self.same(f(x, i), np.take(x, i))

    def test_masked_arrays_are_refused(self):
        x = np.arange(6, dtype=np.float32)
        m, target = np.ma.masked_array(x, x > 2), op.Array(np.zeros(6, np.float32))
        double = op.jit(lambda x: x * 2)
        for call in (
            lambda: op.sum(m), lambda: double(m), lambda: double({"a": m}), lambda: op.Array(m), lambda: op.evaluate("m*2", {"m": m}, {}), lambda: target + m,
            lambda: op.jit(lambda x: x + m)(x), lambda: double(x, out=m), lambda: target.__setitem__(slice(None), m),
        ):  # fmt: skip
            with self.assertRaisesRegex(op.DTypeError, "masked array.*filled.*where"):
                call()
        self.same(op.sum(m.filled(0)), np.float32(3))
        self.same(op.sum(x.view(np.recarray)), x.sum())  # other subclasses have all elements

    def test_buffers(self):
        for made in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
            self.same(op.Array(made), np.frombuffer(b"abc", np.uint8))
        self.assertTrue(op.Array(b"abc").is_read_only)
        self.same(op.jit(lambda x, k: x + len(k))(np.int32([1]), b"abc"), np.int32([4]))  # a constant, like a string


@dataclasses.dataclass
class Layer:
    w: object
    b: object


Point = collections.namedtuple("Point", "x y")


class Functions(Test):
    def test_nesting(self):
        a = array((3,))

        @op.jit
        def f(p, q, *, scale=1.0, names=("a",)):
            return {"sum": p["w"] + q[0].b, "point": Point(q[0].w * scale, [p["v"][1], (None, q[1] + 1)]), names[0]: p["w"]}

        got = f({"w": a, "v": (1.0, a)}, [Layer(a * 2, a * 3), 4], scale=2.0)
        self.assertEqual(list(got), ["sum", "point", "a"])
        self.near(got["sum"], a * 4), self.near(got["point"].x, a * 4)
        self.assertIsInstance(got["point"], Point)
        self.assertIsNone(got["point"].y[1][0])
        self.assertEqual(int(got["point"].y[1][1]), 5)
        again = f({"w": a, "v": (1.0, a)}, [Layer(a * 2, a * 3), 5], scale=3.0)
        self.near(again["point"].x, a * 6)
        self.assertEqual(f.stats()["recordings"], 1)
        other = f({"w": a, "v": (1.0, a)}, [Layer(a * 2, a * 3), 5], names=("b",))
        self.assertEqual(list(other), ["sum", "point", "b"])
        self.assertEqual(f.stats()["recordings"], 2)

    def test_powers_of_arrays_have_the_bits_of_recorded_ones(self):
        x = np.random.default_rng(3).normal(size=1000)
        for n in (-1, 1, 2, 3, 4, 2.0, 3.0, 0.5, 5):
            y = np.abs(x) if n == 0.5 else x
            np.testing.assert_array_equal(np.asarray(op.Array(y) ** n), np.asarray(op.jit(lambda x: x**n)(y)))
        np.testing.assert_array_equal(np.asarray(op.Array(x) ** 2), x * x)
        i = np.arange(5, dtype=np.int32)
        self.assertEqual((op.Array(i) ** 2).dtype, op.i32)
        self.assertEqual((op.Array(i) ** 2.0).dtype, op.jit(lambda x: x**2.0)(i).dtype)
        self.assertEqual(float(op.pow(3.0, 2)), 9)

    def test_statics_differ_by_type_and_sign(self):
        f, x = op.jit(lambda x, k: x * k, static="k"), np.ones(3, np.float32)
        for k in (0.0, -0.0, 0.0):
            self.assertEqual(np.signbit(np.asarray(f(x, k))).tolist(), [np.signbit(k)] * 3)
        i, g = np.arange(3, dtype=np.int32), op.jit(lambda x, k: x * k[0], static="k")
        for k in ((2,), (2.0,), (2,)):
            self.assertEqual(g(i, k).dtype, op.jit(lambda x: x * k[0])(i).dtype)
        self.assertNotEqual(g(i, (2,)).dtype, g(i, (2.0,)).dtype)

    def test_transforms_of_arrays_inside_a_recording_use_its_tensors(self):
        p, x = np.arange(12.0).reshape(3, 4), np.arange(24.0).reshape(6, 4)
        w = np.full((3, 4), 2.0)
        rows = x.sum(0)
        for expected, f in (
            (np.tile(rows, (3, 1)), lambda p: op.sum(op.vmap(lambda v: p @ v)(x))),
            (np.ones((3, 4)), lambda p: op.sum(op.grad(lambda w: op.sum(w * p))(w))),
            (np.ones((3, 4)) + w, lambda p: sum(op.sum(v) for v in op.value_and_grad(lambda w: op.sum(w * p))(w))),
            (w, lambda p: op.sum(op.vjp(lambda w: w * p, w)[0])),
            (np.ones((3, 4)), lambda p: op.sum(op.vjp(lambda w: w * p, w)[1](np.ones((3, 4))))),
        ):
            np.testing.assert_array_equal(np.asarray(op.grad(f)(p)), expected)
        np.testing.assert_array_equal(np.asarray(op.jit(lambda p: op.grad(lambda a, k: op.sum(a * p) * k, argnums=0)(w, 3.0))(p)), 3 * p)

    def test_numbers_compile_nothing_statics_do(self):
        def power(x, n):
            y = x
            for _ in range(n - 1):
                y = y * x
            return y

        f = op.jit(power, static="n")
        a = array((4,))
        for n in (1, 2, 3, 2):
            self.near(f(a, n), a**n), self.near(f(a, n=n), a**n)
        g = op.jit(lambda x, s: x * s)
        for s in (1, 2, 3):
            self.near(g(a, float(s)), a * s)
        self.assertEqual(g.stats()["recordings"], 1)
        with self.assertRaisesRegex(TypeError, "static"):
            op.jit(power)(a, 2)
        with self.assertRaisesRegex(ValueError, "no parameter `m`"):
            op.jit(power, static=["m"])

    def test_subclasses_of_numbers_and_lists(self):
        class Level(enum.IntEnum):
            HIGH = 3

        class Ratio(float):
            pass

        class Layers(list):
            pass

        a = array((3,))
        f = op.jit(lambda x, k: x * k)
        for number in (Level.HIGH, Ratio(0.5)):
            self.same(f(a, number), a * np.float32(number)), self.same(op.Array(a) * number, a * np.float32(number))
        self.assertEqual(f.stats()["recordings"], 2)  # an int and a float, not each value
        self.assertEqual(f(a, np.float64(2)).dtype, op.f64)
        self.same(op.jit(lambda p: p[0] + p[1])(Layers([a, a])), a + a)
        self.assertIs(type(op.jit(lambda x: Layers([x, x + 1]))(a)), list)
        with self.assertRaisesRegex(TypeError, "set.*has no hash"):
            op.jit(lambda x, s: x)(a, {1, 2})
        with self.assertRaisesRegex(TypeError, "a static argument: .*list.*has no hash"):
            op.jit(lambda x, n: x, static="n")(a, [1])

    def test_compositions_record_one_graph(self):
        a = array((4,))

        def half(x):
            return x / 2

        def compose(*fs):
            return functools.reduce(lambda f, g: lambda x: f(g(x)), fs)

        def loop(x):
            for f in (half, op.tanh, half):
                x = f(x)
            return x

        functions = [
            lambda x: op.tanh(x / 2) / 2,
            loop,
            compose(half, op.tanh, half),
            compose(op.jit(half), op.jit(compose(op.tanh, half))),
            functools.partial(lambda k, x: op.tanh(x / k) / k, 2),
        ]
        try:
            import toolz
        except ImportError:
            print("SKIPPED: toolz is not installed")
        else:
            functions += [lambda x: toolz.pipe(x, half, op.tanh, half), toolz.compose(half, op.tanh, half)]
        graphs = set()
        for f in functions:
            compiled = op.jit(f)
            self.near(compiled(a), np.tanh(a / 2) / 2)
            graphs.add(re.sub(r" *#.*|(?<== input )\w+", "", compiled.recorded_graph()))  # equal except for lines and names
        self.assertEqual(len(graphs), 1, graphs)

    def test_methods(self):
        class Scale:
            def __init__(self, k):
                self.k = k

            @op.jit
            def __call__(self, x):
                return x * self.k

        a = array((3,))
        self.near(Scale(2)(a), a * 2), self.near(Scale(3)(a), a * 3)

    def test_out(self):
        a, z = array((3,)), np.zeros(3, np.float32)
        f = op.jit(lambda x: x * 2)
        self.assertIs(f(a, out=z), z)
        self.near(z, a * 2)
        f(z, out=z)
        self.near(z, a * 4)
        g = op.jit(lambda x: (x + 1, x + 2))
        y, w = np.zeros(3, np.float32), op.zeros((3,))
        g(a, out=(y, w))
        self.near(y, a + 1), self.near(w, a + 2)
        with self.assertRaises(op.ShapeError):
            f(a, out=np.zeros(4, np.float32))
        with self.assertRaises(op.DTypeError):
            f(a, out=np.zeros(3))

    def test_captured_arrays_are_read_at_each_call(self):
        table = array((3,))
        f = op.jit(lambda x: x + table)
        a = array((3,), seed=2)
        self.near(f(a), a + table)
        table[:] = 9
        self.near(f(a), a + 9)

    def test_modes_and_options(self):
        a = array((40, 30))
        wanted = np.asarray(op.jit(lambda x: op.softmax(x) @ op.transpose(x), mode="reference")(a))
        for mode in ("adaptive", "generic", "specialized", "unfused"):
            self.same(op.jit(lambda x: op.softmax(x) @ op.transpose(x), mode=mode)(a), wanted)
        with self.assertRaisesRegex(ValueError, "mode: `fast` is not one of adaptive"):
            op.jit(lambda x: x, mode="fast")
        with self.assertRaisesRegex(NameError, "no option `modus`"):
            op.jit(lambda x: x, modus=1)
        op.jit(lambda x: op.exp(x), relax=True)(a), op.jit(lambda x: op.exp(x), relax="contract", threads=1)(a)
        with self.assertRaisesRegex(op.Error, r"nan at .*test_python\.py:\d+|test_python\.py:\d+: nan"):
            op.jit(lambda x: op.log(-x), check_nan=True)(a)
        asked = []
        with self.assertRaises(op.CancelledError):
            op.jit(lambda x: x + 1, should_stop=lambda: asked.append(1) or True)(a)
        self.assertTrue(asked)
        f = op.jit(lambda x: op.digamma(x) * op.mish(x) - op.cbrt(x), compile="never")
        with self.assertRaisesRegex(op.Error, "compile"):
            f(a)

    def test_reports(self):
        a = array((8,))
        f = op.jit(lambda x: op.sum(op.tanh(x)))
        f(a)
        self.assertIn("tanh", f.last_graph())
        self.assertIn("reduce_sum", f.recorded_graph())
        self.assertIn("kernel", f.explain())
        self.assertEqual(f.stats()["calls"], 1)
        dump = f.dump()
        self.assertEqual(dump, f"{f.explain().rstrip()}\n\n{f.last_graph().rstrip()}\n")
        page = dump._repr_html_()
        self.assertEqual(page.count("<th "), dump.kernels.count("\nkernel "))
        self.assertIn("tanh", page.split("<details>")[1])
        self.assertEqual(f.signatures(), ["f32[8]"])
        below = op.formula("a < b")
        self.assertEqual(below.dump(), "no call yet\n")
        below(a=a, b=a)
        ElementTree.fromstring(f"<div>{below.dump()._repr_html_()}</div>".replace("<br>", "<br/>"))
        f.warm_up("f32[9]")
        for of in (f, below):
            with self.assertRaisesRegex(TypeError, "a signature is a str, .* not (Array|ndarray)"):
                of.warm_up(a)
        f.seal()
        f(array((9,)))
        self.assertIn("equal in modes adaptive and unfused", f.compare(a))

    def test_errors(self):
        a, b = array((4, 3)), array((2, 3))
        with self.assertRaises(op.ShapeError) as caught:
            op.jit(lambda x, y: x + y)(a, b)
        self.assertRegex(str(caught.exception), r"Recorded at .*test_python\.py:\d+")
        self.assertIsInstance(caught.exception, (op.Error, ValueError))
        with self.assertRaises(op.IndexError):
            op.take(a, np.array([7]), 0)
        with self.assertRaises(op.DTypeError):
            op.bitwise_and(a, a)
        with self.assertRaisesRegex(op.FormulaError, r"(?s)formula:1:\d+.*\^"):
            op.formula("x +* 2")
        with self.assertRaises(ZeroDivisionError):
            op.jit(lambda x: x * (1 // 0))(a)  # the function's own error is passed on
        with self.assertRaisesRegex(TypeError, "where"):
            op.jit(lambda x: x if x > 0 else -x)(1.0)
        with self.assertRaisesRegex(TypeError, "returns nothing"):
            op.jit(lambda x: None)(a)
        with self.assertRaisesRegex(TypeError, "neither an array nor a number"):
            op.sin("text")
        kept = []
        op.jit(lambda x: kept.append(x) or x)(a)
        with self.assertRaisesRegex(op.Error, "outside its recording"):
            op.jit(lambda x: x + kept[0])(a)
        self.assertIn("ended", repr(kept[0]) + str(kept[0]))
        with self.assertRaises(OverflowError):
            op.add(a, 1 << 70)
        self.near(op.jit(lambda x: x + 1)(a), a + 1)  # the errors have no side effects


    def test_names_of_parameters(self):
        x, w = array((3, 4)), array((5,))

        def inputs(f, *args, **kwargs):
            f(*args, **kwargs)
            return re.findall(r'= input "?([^" ]+)"? :', f.recorded_graph())

        self.assertEqual(inputs(op.jit(lambda x, w: (x + 1, w)), x, w), ["x", "w"])
        self.assertEqual(inputs(op.jit(lambda w, x: (x + 1, w)), x, w), ["w", "x"])
        self.assertEqual(inputs(op.jit(lambda p, k: (p["w"] * k, p["b"][1] + 1)), {"w": x, "b": [x, w]}, 2.0), ["p.w", "p.b[0]", "p.b[1]"])
        self.assertEqual(inputs(op.jit(lambda x, scale: x * scale), x, scale=w[:4]), ["x", "scale"])
        self.assertEqual(inputs(op.jit(lambda n, x: x * n, static="n"), 3, x), ["x"])
        self.assertEqual(inputs(op.jit(lambda x, *rest: (x, rest[0] + 1)), x, w), ["x", "x1"])  # `rest` has no name of a parameter

        class Model:
            def run(self, data):
                return data + 1

        self.assertEqual(inputs(op.jit(Model().run), x), ["data"])
        self.assertEqual(inputs(op.jit(functools.partial(lambda a, b: a + b, 1.0)), x), ["x0"])
        with self.assertRaisesRegex(op.ShapeError, r"left: +x f32\[3, 4\]\n +right: +w f32\[5\]"):
            op.jit(lambda x, w: x + w)(x, w)
        with self.assertRaisesRegex(op.ShapeError, r"left: +p\.x f32"):
            op.jit(lambda p: p["x"] + p["w"])({"x": x, "w": w})


class Records(Test):
    def test_last_execution(self):
        f = op.jit(lambda x: (lambda p: p / op.max(p))(op.softmax(x)))
        self.assertEqual(f.last_execution().data["kernels"], [])
        x = array((12, 40))
        f(x)
        f(array((3, 4, 5)))
        record = f.last_execution()
        self.assertEqual(record.data["plan"]["reason"], "rank")
        self.assertIn("the rank of x0 changed from 2 to 3", record.data["plan"]["sentence"])
        f(x)
        record = f.last_execution()
        data = record.data
        self.assertEqual((data["signature"], data["called"], len(data["kernels"])), ("f32[12,40]", True, 2))
        self.assertEqual(data["kernels"][0]["stores"][0]["reason"], "other_axes")
        self.assertIn("other_axes: ", str(record))
        self.assertEqual(record.ratio, data["ratio"])
        self.assertNotIn("llvm", data["kernels"][0])
        self.assertIn("define", f.last_execution(code=True).data["kernels"][0]["llvm"])
        self.assertIn("<iframe", record._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            for name, text in [("r.json", record.json()), ("r.html", record.html()), ("r.txt", str(record))]:
                record.save(os.path.join(folder, name))
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertEqual(file.read(), text)
        formula = op.formula("x*2")
        formula(x=x)
        self.assertEqual(formula.last_execution().data["formula"], "x*2")

    def test_describe(self):
        f = op.jit(lambda x: op.sum(op.exp(x)))
        data = f.describe("f32[100]", code=True).data
        self.assertFalse(data["called"])
        self.assertIn("define", data["kernels"][0]["llvm"])
        self.assertEqual(f.stats()["calls"], 0)
        self.assertEqual(len(op.formula("x*2").describe("f32[8]").data["kernels"]), 1)
        with self.assertRaises(op.Error):
            f.describe("f32[")

    def test_pullback(self):
        x, w = array((6, 8)), array((8,))
        y, pullback = op.vjp(op.jit(lambda x, w: op.exp(op.sin(x) * w)), x, w)
        self.assertFalse(pullback.last_execution().data["backward"]["called"])
        pullback(np.ones_like(y))
        data = pullback.last_execution().data
        self.assertTrue(data["called"] and data["backward"]["called"])
        self.assertEqual((len(data["kernels"]), len(data["backward"]["kernels"])), (1, 1))

    def test_profile(self):
        f = op.jit(lambda x: op.tanh(x) * 2)
        x = array((1000,))
        f(x)
        op.set_profiling(True)
        op.clear_profile()
        f(x), f(x)
        op.set_profiling(False)
        f(x)
        newest, before = op.recent_calls(5)
        self.assertEqual((newest["signature"], len(newest["kernel_ms"])), ("f32[1000]", 1))
        self.assertGreater(newest["start_ms"], before["start_ms"])
        self.assertEqual(f.last_execution().data["kernels"][0]["times"]["runs"], 2)
        self.assertIn('"cat":"kernel"', op.profile_json())
        op.clear_profile()
        self.assertEqual(op.recent_calls(5), [])

    def test_another_process_finds_kernels_on_disk(self):
        # A shift of i16 never runs in the tiled interpreter: it is compiled or found.
        program = """import numpy as np, onepass as op
f = op.jit(lambda x: x << 1)
f(np.ones(100, np.int16))
f.wait_until_optimized()
print([k["cache"] for k in f.last_execution().data["kernels"]], f.last_execution().data["kernels"][0]["cache_sentence"])"""
        with tempfile.TemporaryDirectory() as folder:
            said = [subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": MODULE, "ONEPASS_CACHE_DIR": folder}, capture_output=True, text=True, check=True).stdout
                    for _ in range(2)]
        self.assertIn("['compiled'] compiled in", said[0])
        self.assertEqual(said[1], "['disk'] loaded from the cache folder\n")


class Derivatives(Test):
    def setUp(self):
        self.x, self.w = array((5,)), array((5,), seed=1)

    def test_grad(self):
        x, w = self.x, self.w
        self.near(op.grad(lambda x: op.sum(op.sin(x) * w))(x), np.cos(x) * w)
        value, (dx, dw) = op.value_and_grad(lambda x, w: op.sum(x * x * w), argnums=(0, 1))(x, w)
        self.near(value, (x * x * w).sum()), self.near(dx, 2 * x * w), self.near(dw, x * x)
        (loss, more), g = op.value_and_grad(lambda p: (op.sum(p["a"] * p["b"][0]), p["a"] + 1), has_aux=True)({"a": x, "b": [w]})
        self.near(loss, (x * w).sum()), self.near(more, x + 1), self.near(g["a"], w), self.near(g["b"][0], x)
        self.assertEqual(float(op.grad(lambda x: x * x * x)(2.0)), 12)
        self.assertEqual(float(op.grad(op.grad(lambda x: x * x * x))(2.0)), 12)
        inside = op.jit(lambda x: op.grad(lambda x: op.sum(x**3))(x) * 2)
        self.near(inside(x), 6 * x * x)
        with self.assertRaises(op.ShapeError):
            op.grad(lambda x: x)(x)
        with self.assertRaises(op.DTypeError):
            op.grad(lambda i: op.sum(i))(np.arange(3))
        with self.assertRaisesRegex(op.ValueError, "vmap: the function returns nothing"):
            op.vmap(lambda x: None)(x)

    def test_what_a_loss_comes_with(self):
        x = self.x
        for both in (op.value_and_grad(lambda x: (op.sum(x * x), x + 1)), op.value_and_grad(lambda x: (op.sum(x * x), x + 1), has_aux=True)):
            for call in (both, op.jit(lambda x: both(x))):
                (loss, more), g = call(x)
                self.near(loss, (x * x).sum()), self.near(more, x + 1), self.near(g, 2 * x)
        for f, options, text in (
            (lambda x: (op.sum(x), x), {}, "grad: the function returns several values.*has_aux"),
            (lambda x: (op.sum(x), x, x), {"has_aux": True}, r"grad: .*\(loss, more\), not 3"),
            (lambda x: op.sum(x), {"has_aux": True}, r"grad: .*tuple \(loss, more\)"),
            (lambda x: None, {}, "grad: the function returns None"),
            (lambda x: {"loss": op.sum(x)}, {}, "grad: the function returns a dict"),
            (lambda x: op.sum(x), {"argnums": 1}, "grad: argnums has 1, but the call has 1 positional argument"),
            (lambda x: op.sum(x), {"argnums": (0, -2)}, "grad: argnums has -2, but the call has 1 positional argument"),
        ):
            with self.assertRaisesRegex(op.ValueError, text):
                op.grad(f, **options)(x)
        with self.assertRaisesRegex(op.ValueError, "value_and_grad: argnums has 3, but the call has 2 positional arguments"):
            op.value_and_grad(lambda x, y: op.sum(x * y), argnums=(0, 3))(x, x)
        for argnums, text in (("x", "'x'"), (None, "None"), (0.0, "0.0"), ((0, "w"), r"\(0, 'w'\)"), (True, "True")):
            with self.assertRaisesRegex(op.DTypeError, f"^grad: argnums is {text}; it must be an int or a list of ints"):
                op.grad(lambda x: op.sum(x), argnums=argnums)
        self.same(op.grad(lambda x, y: op.sum(x * y), argnums=np.int64(1))(x, x), x)
        self.assertEqual([g.shape for g in op.grad(lambda x, y: op.sum(x * y), argnums=range(2))(x, x)], [x.shape, x.shape])
        with self.assertRaisesRegex(op.ValueError, "value_and_grad: the function returns an empty tuple"):
            op.value_and_grad(lambda x: ())(x)

    def test_jvp_has_the_types_of_the_function(self):
        f = lambda x, k: (x * k, k * k)
        for dtype in (np.float16, np.float32, np.float64):
            x = self.x.astype(dtype)
            for call in (lambda x: op.jvp(f, (x, 2.0), (x, 0.5)), op.jit(lambda x: op.jvp(f, (x, 2.0), (x, 0.5)))):
                ys, dys = call(x)
                for got, wanted in zip(ys, op.jit(f)(x, 2.0)):
                    self.same(got, wanted)
                self.assertEqual([d.dtype for d in dys], [y.dtype for y in ys])
                self.near(dys[0], 2.5 * x, 1e-3), self.near(dys[1], 2)
        wide = self.x.astype(np.float64)  # captured: the result is f64
        y, dy = op.jvp(lambda k: op.sum(wide * k), (2.0,), (1.0,))
        self.same(y, op.jit(lambda k: op.sum(wide * k))(2.0)), self.near(dy, wide.sum(), 1e-12)

    def test_vjp(self):
        x, w = self.x, self.w
        y, pullback = op.vjp(lambda x, k, w: {"y": op.sin(x) * w, "s": op.sum(x)}, x, 3, w)
        dx, dk, dw = pullback({"y": np.ones(5, np.float32), "s": 2.0})
        self.near(y["y"], np.sin(x) * w), self.near(dx, np.cos(x) * w + 2), self.near(dw, np.sin(x))
        self.assertIsNone(dk)
        self.assertLessEqual(pullback.stats()["bytes_saved"], 4 * 5 * 3)
        with self.assertRaises(ValueError):
            pullback(np.ones(5, np.float32))
        pullback.reset()
        with self.assertRaises(op.Error):
            pullback({"y": np.ones(5, np.float32), "s": 2.0})

    def test_forward_mode_and_products(self):
        x, w = self.x, self.w
        y, dy = op.jvp(lambda a, b: op.sin(a) * b, (x, w), (w, x))
        self.near(y, np.sin(x) * w), self.near(dy, np.cos(x) * w * w + np.sin(x) * x)
        self.near(op.hessian_vector(lambda x: op.sum(x**3), x, w), 6 * x * w)
        self.near(op.jacobian(lambda x: x * op.sum(x))(x), np.eye(5) * x.sum() + x[:, None])
        ok, worst, text = op.check_gradients(lambda x, w: op.sum(op.tanh(x) * w), x, w)
        self.assertTrue(ok, text)
        self.assertFalse(op.check_gradients(op.custom_vjp(lambda x: op.sum(x * x), lambda x, y, dy: dy * x), x)[0])

    def test_rules_and_checkpoints(self):
        x, w = self.x, self.w
        clipped = op.custom_vjp(lambda x: x * 1, lambda x, y, dy: op.clamp(dy, -0.1, 0.1))
        self.near(op.grad(lambda x: op.sum(clipped(x) * 5))(x), np.full(5, 0.1))
        two = op.custom_vjp(lambda a, b: (a * b, a + b), lambda a, b, y, dy: (dy[0] * b * 2, dy[1] * 3))
        da, db = op.grad(lambda a, b: op.sum(two(a, b)[0]) + op.sum(two(a, b)[1]), argnums=(0, 1))(x, w)
        self.near(da, 2 * w), self.near(db, np.full(5, 3))
        self.near(two(x, w)[0], x * w)  # outside of a recording it just runs
        block = op.checkpoint(lambda x, w: op.tanh(x) * w)
        self.near(op.grad(lambda x: op.sum(block(x, w)))(x), (1 - np.tanh(x) ** 2) * w)

    def test_nothing_of_the_callers_leaks(self):
        x, w = array((1000,)), array((1000,), seed=1)

        def run():
            rule = op.custom_vjp(lambda a, b: a * b, lambda a, b, y, dy: (dy * b, dy * a))
            op.grad(lambda a: op.sum(rule(a, w)))(x)
            y, pullback = op.vjp(lambda a, b: op.sin(a) * b, x, w)
            pullback(y)
            op.jit(lambda a: a + w)(x)
            block = op.checkpoint(lambda a: op.tanh(a) * w)
            op.grad(lambda a: op.sum(block(a)))(x)

        run()
        gc.collect()
        before = sys.getrefcount(x), sys.getrefcount(w)
        for _ in range(5):
            run()
        gc.collect()
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(w)), before)
        pullback = op.vjp(lambda a, b: a * b, x, w)[1]
        self.assertTrue(all(v["referenced"] for v in pullback.stats()["values"]))  # the arrays themselves, not copies
        self.assertGreater(sys.getrefcount(x), before[0])
        del pullback
        gc.collect()
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(w)), before)

    def test_functions_that_know_each_other_are_collected(self):
        import weakref

        def make():
            box = {}
            box["f"] = op.jit(lambda x: box["f"] and x + 1)
            box["f"](array((3,)))
            return weakref.ref(box["f"])

        reference = make()
        gc.collect()
        self.assertIsNone(reference())


class Formulas(Test):
    def test_formula(self):
        s = array((4,))
        f = op.formula("s*exp(-r*t)")
        self.assertEqual((f.inputs, f.outputs, f.text), (["s", "r", "t"], ["out"], "s*exp(-r*t)"))
        self.near(f(s=s, r=0.03, t=2.0), s * math.exp(-0.06)), self.near(f(s, 0.03, 2.0), s * math.exp(-0.06))
        again = pickle.loads(pickle.dumps(f))
        self.same(again(s, 0.03, 2.0), f(s, 0.03, 2.0))
        price = op.formula("value = s*2; delta = grad(sum(s*s), [s])")
        result = price(s=s)
        self.near(result.value, s * 2), self.near(result.delta, 2 * s)
        value, delta = result
        z = np.zeros(4, np.float32)
        self.assertIs(f(s=s, r=0.0, t=1.0, out=z), z)
        self.near(z, s)
        with self.assertRaisesRegex(NameError, "did you mean"):
            op.formula("price*2")(prise=s)
        with self.assertRaises(TypeError):
            f(s, r=0.1, t=1)

    def test_evaluate(self):
        a, b = array((4,)), array((4,), seed=1)
        self.near(op.evaluate("2*a + exp(-b)"), 2 * a + np.exp(-b))
        self.near(op.evaluate("2*a", {"a": b}), 2 * b)
        z = np.zeros(4, np.float32)
        self.assertIs(op.evaluate("a - b", out=z), z)
        self.near(z, a - b)
        with self.assertRaises(KeyError):
            op.evaluate("unknown_name + 1")

    def test_evaluate_as_numexpr_does(self):
        a, b, e = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.arange(3), 10.0
        self.same(op.evaluate("arcsin(a) + arctan2(a, a*0 + 1)"), op.asin(a) + op.atan2(a, op.Array(a) * 0 + 1))
        self.same(op.evaluate("copy(b) + ones_like(b) + conj(b)"), 2 * b + 1)
        self.same(op.evaluate("sum(a, axis=None, keepdims=True)"), op.sum(a, keepdims=True))
        self.near(op.evaluate("b*e"), b * 10)  # the variable, not the constant
        self.near(op.evaluate("b*e", {"b": b}, {}), b * math.e)
        self.near(op.evaluate("b*e + e_", {"b": b, "e": 2.0, "e_": 1}), b * 2 + 1)
        out = np.zeros((2, 3))
        self.assertIs(op.evaluate("a*2", out=out), out)  # another type, allowed by casting
        self.same(out, (a * 2).astype(np.float64))
        with self.assertRaisesRegex(TypeError, "same_kind"):
            op.evaluate("a*2", out=np.zeros((2, 3), np.int32))
        whole = np.zeros((2, 3), np.int32)
        op.evaluate("a*2", out=whole, casting="unsafe")
        self.same(whole, (a * 2).astype(np.int32))
        with self.assertRaises(ValueError):
            op.evaluate("a*2", out=np.zeros(3, np.float32))
        for order, shared in (("C", "K"), ("F", "F")):
            for o in (order, shared):
                self.assertEqual(np.asarray(op.evaluate("a*2", order=o)).flags.f_contiguous, order == "F")
        t = np.asfortranarray(a)
        self.assertTrue(np.asarray(op.evaluate("t*2", order="A")).flags.f_contiguous)
        self.assertFalse(np.asarray(op.evaluate("t + a", order="A")).flags.f_contiguous)
        with self.assertRaises(ValueError):
            op.evaluate("a", order="X")
        records = np.zeros(3, [("i", np.int32), ("j", np.uint16)])
        records["i"] = b
        field, other = records["i"], b.astype(">i4")
        self.same(op.evaluate("field + other"), (2 * b).astype(np.int32))
        self.same(op.evaluate("b/2", optimization="none", truediv=True, disable_cache=True, sanitize=True), (b / 2))


class Process(Test):
    def test_threads(self):
        wrong = []

        def work(i):
            f = op.jit(lambda x: op.sum(x * i))
            for n in range(1, 40):
                if float(f(np.ones(n, np.float32))) != i * n:
                    wrong.append((i, n))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_one_function_on_many_threads(self):
        f = op.jit(lambda x, n: {"a": x + n, "b": [x * n]})
        wrong = []

        def work(i):
            for n in range(1, 30):
                got = f(np.full(n + i, 2.0), n)
                if not (np.asarray(got["a"]) == 2 + n).all() or not (np.asarray(got["b"][0]) == 2 * n).all():
                    wrong.append((i, n))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_the_interpreter_runs_during_a_call(self):
        go, seen = threading.Event(), []

        def stop():  # called by the call about every 20 ms, until the other thread has run
            go.set()
            return len(seen) > 0

        f = op.jit(lambda x: op.sum(op.erfinv(op.sin(x))), should_stop=stop, threads=1)
        thread = threading.Thread(target=lambda: (go.wait(), seen.append(1)))
        thread.start()
        try:
            for _ in range(100):
                f(np.full(5_000_000, 0.3, np.float32))
        except op.CancelledError:
            pass
        thread.join()
        self.assertEqual(seen, [1])

    def test_importing_opens_no_compiler(self):
        code = (
            "import sys; sys.path.insert(0, %r)\nimport onepass as op\nopened = lambda: any('onepass_llvm' in l for l in open('/proc/self/maps'))\n"
            "assert not opened()\nassert 'numpy' not in sys.modules and 'torch' not in sys.modules\nimport numpy as np\n"
            "assert float(op.sum(np.ones(3))) == 3\nassert not opened()\n"
            "op.jit(lambda x: x @ x, mode='specialized')(np.ones((50, 50)))\nassert opened()\nprint('fine')" % MODULE
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, ONEPASS_CACHE_DIR="none"))
        self.assertEqual((done.stdout, done.stderr), ("fine\n", ""))

    def test_nothing_is_said_at_the_end(self):
        code = (
            "import sys; sys.path.insert(0, %r)\nimport numpy as np, onepass as op, threading\nx = np.ones(1000)\nf = op.jit(lambda a: a + x)\nf(x)\n"
            "g = op.vjp(lambda a: a * x, x)\nthreading.Thread(target=lambda: f(np.ones(1000)), daemon=True).start()" % MODULE
        )
        for _ in range(5):  # the thread may be anywhere in its call
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Statistics(Test):
    def test_numpys_functions(self):
        x, y = array((5, 7)), array((5, 7), seed=1)
        x[1, 2] = np.nan
        clean = np.nan_to_num(x)
        i = np.array([0, 2, 2, 1])
        for got, expected in (
            (op.nansum(x, axis=0), np.nansum(x, 0)), (op.nanprod(x, axis=1), np.nanprod(x, 1)), (op.nanmax(x), np.nanmax(x)),
            (op.nanmin(x, axis=0), np.nanmin(x, 0)), (op.nanmean(x, axis=1, keepdims=True), np.nanmean(x, 1, keepdims=True)),
            (op.nanvar(x, axis=1, ddof=1), np.nanvar(x, 1, ddof=1)), (op.nanstd(x, axis=0), np.nanstd(x, 0)),
            (op.average(clean, axis=0, weights=np.float32([1, 2, 3, 4, 5])), np.average(clean, 0, [1, 2, 3, 4, 5])),
            (op.cov(clean), np.cov(clean)), (op.cov(clean, y, rowvar=False, ddof=0), np.cov(clean, y, rowvar=False, ddof=0)),
            (op.corrcoef(y), np.corrcoef(y)), (op.diff(y, 2, axis=0), np.diff(y, 2, axis=0)),
            (op.diff(y[0], prepend=0.0), np.diff(y[0], prepend=np.float32(0))), (op.gradient(y, 0.5, axis=1), np.gradient(y, 0.5, axis=1)),
            (op.trapezoid(y, dx=0.5), 0.5 * (y[:, 1:] + y[:, :-1]).sum(1) / 2), (op.bincount(i, 4), np.bincount(i, minlength=4)),
            (op.bincount(i, 3, weights=np.float32([1, 2, 3, 4])), np.bincount(i, [1, 2, 3, 4])), (op.trace(y, 1), np.trace(y, 1)),
            (op.tril(y, -1), np.tril(y, -1)), (op.triu(y), np.triu(y)), (op.diag(y[0], 1), np.diag(y[0], 1)), (op.tri(3, 4, 1), np.tri(3, 4, 1)),
        ):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-5)
        for got, expected in zip(op.meshgrid(y[0], y[1], indexing="ij"), np.meshgrid(y[0], y[1], indexing="ij")):
            np.testing.assert_array_equal(np.asarray(got), expected)
        counts, edges = op.histogram(y, 4, range=(0.0, 1.0))
        np.testing.assert_array_equal(np.asarray(counts), np.histogram(y, 4, (0, 1))[0])
        np.testing.assert_allclose(np.asarray(edges), [0, 0.25, 0.5, 0.75, 1])
        inside = op.jit(lambda y: sum(op.meshgrid(op.nanmean(y, axis=0), op.diff(y, axis=0)[:, 0])))(y)  # recorded as one function
        np.testing.assert_allclose(np.asarray(inside), np.nanmean(y, 0) + np.diff(y, axis=0)[:, :1], rtol=1e-5)


    def test_gradient_along_every_axis(self):
        y = array((4, 5), np.float64)
        places = np.array([0.0, 1, 3, 4])
        for got, wanted in (
            (op.gradient(y), np.gradient(y)), (op.gradient(y, 0.5, edge_order=2), np.gradient(y, 0.5, edge_order=2)),
            (op.gradient(y, [0.5, 2.0]), np.gradient(y, 0.5, 2.0)), (op.gradient(y, (places, 2.0)), np.gradient(y, places, 2.0)),
            (op.gradient(y, axis=(1, 0)), np.gradient(y, axis=(1, 0))), (op.jit(lambda y: op.gradient(y))(y), np.gradient(y)),
            (op.gradient(y.tolist()), np.gradient(y)), ([op.gradient(y[0])], [np.gradient(y[0])]),
            ([op.gradient(y, [0.0, 1, 3, 4], axis=0)], [np.gradient(y, places, axis=0)]), ([op.gradient(y, [0.5], axis=0)], [np.gradient(y, 0.5, axis=0)]),
        ):  # fmt: skip
            self.assertEqual(len(got), len(wanted))
            for g, w in zip(got, wanted):
                self.near(g, w, 1e-12)
        by_formula = op.evaluate("a, b = gradient(y)", {"y": y}, {})
        for got, wanted in zip(op.gradient(y), by_formula):
            self.same(got, wanted)
        self.assertIsInstance(op.gradient(y), tuple)
        with self.assertRaisesRegex(op.ValueError, "3 spacings given for 2 axes"):
            op.gradient(y, [1.0, 2.0, 3.0])
        with self.assertRaisesRegex(op.ShapeError, "no axis"):
            op.gradient(2.0)
        with self.assertRaisesRegex(op.ShapeError, "axis 2"):
            op.gradient(y, axis=2)


class Vmap(Test):
    def test_per_example_gradients(self):
        w, x = array((4, 3)), array((7, 4), seed=1)
        loss = lambda w, x: op.sum(op.tanh(x @ w) ** 2)
        each = op.vmap(op.grad(loss), (None, 0))(w, x)
        np.testing.assert_allclose(np.asarray(each), np.stack([np.asarray(op.grad(loss)(w, row)) for row in x]), rtol=1e-6)
        nested = op.vmap(lambda p: {"sum": op.sum(p["a"]), "both": p["a"] * p["b"]})({"a": x, "b": x[:, 0]})
        np.testing.assert_allclose(np.asarray(nested["both"]), x * x[:, :1], rtol=1e-6)
        self.assertEqual(nested["sum"].shape, (7,))
        inside = op.jit(lambda x: op.vmap(op.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x[0], x[1]))(x)
        np.testing.assert_allclose(np.asarray(inside), np.outer(x[0], x[1]), rtol=1e-6)
        for call, message in ((lambda: op.vmap(loss, (None, None))(w, x), "no argument is mapped"), (lambda: op.vmap(loss, (0, 0))(w, x), "must be equal"), (lambda: op.vmap(loss, (0,))(w, x), "1 axes given for 2 arguments")):
            with self.assertRaisesRegex(op.ShapeError, message):
                call()

    def test_positions_of_the_new_axis(self):
        x, y = array((5, 2, 3)), array((5,), seed=1)
        scaled = lambda x, y: (x * y, {"sum": op.sum(x, axis=0), "whole": x})
        wanted = x * y[:, None, None], x.sum(axis=1), x
        for axes in (0, 1, -1, (2, -2), (np.int64(0), 1)):
            first, second = axes if isinstance(axes, tuple) else (axes, axes)
            for call in (op.vmap(scaled, out_axes=axes), op.jit(op.vmap(scaled, out_axes=axes))):
                product, rest = call(x, y)
                for got, want, axis in ((product, wanted[0], first), (rest["sum"], wanted[1], second), (rest["whole"], wanted[2], second)):
                    np.testing.assert_allclose(np.asarray(got), np.moveaxis(want, 0, axis), rtol=1e-6)
        self.same(op.vmap(lambda y: y * 2, out_axes=-1)(y), y * 2)
        self.same(op.vmap(op.vmap(lambda x: x + 1, out_axes=1), out_axes=2)(x), np.transpose(x + 1, (2, 1, 0)))
        self.near(op.grad(lambda x: op.sum(op.vmap(lambda x: x * x, out_axes=1)(x) * op.swap_axes(x, 0, 1)))(x), 3 * x * x)
        for axes, kind, text in (
            ((0, 0, 0), op.ShapeError, "vmap: 3 out_axes given for 2 results"), (3, op.IndexError, "vmap: axis 3 of out_axes is out of range for a result of rank 3"),
            ("0", op.DTypeError, "vmap: out_axes is '0'; it must be an int"), ((0, None), op.DTypeError, "vmap: out_axes is .0, None."),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, text):
                op.vmap(scaled, out_axes=axes)(x, y)
        with self.assertRaisesRegex(op.ShapeError, "vmap: 1 out_axes given for one result"):
            op.vmap(lambda x: x, out_axes=(0,))(x)


class StateLoops(Test):
    def test_scan_is_the_python_loop(self):
        xs = array((9, 3)).astype(np.float64)
        for reverse in (False, True):
            last, ys = op.scan(lambda s, x: ({"a": s["a"] * 0.5 + x}, (s["a"], x[0])), {"a": np.zeros(3)}, xs, reverse=reverse)
            a, before = np.zeros(3), np.zeros((9, 3))
            for i in reversed(range(9)) if reverse else range(9):
                before[i] = a
                a = a * 0.5 + xs[i]
            np.testing.assert_array_equal(np.asarray(last["a"]), a)
            np.testing.assert_array_equal(np.asarray(ys[0]), before)
            np.testing.assert_array_equal(np.asarray(ys[1]), xs[:, 0])
        total, nothing = op.scan(lambda s, x: (s + x, None), 0.0, xs[:, 0])
        self.assertIsNone(nothing)
        self.assertEqual((total.dtype, float(total)), ("f64", float(np.add.accumulate(xs[:, 0])[-1])))
        counted, _ = op.scan(lambda s, x: (s * 2 if x is None else s, None), xs, length=3)
        np.testing.assert_array_equal(np.asarray(counted), xs * 8)

    def test_fold_iterate_and_while(self):
        x = array((4,)).astype(np.float64)
        np.testing.assert_array_equal(np.asarray(op.fold(lambda s, i: s + i, x, 4)), x + 0 + 1 + 2 + 3)
        np.testing.assert_array_equal(np.asarray(op.iterate(lambda s: s * 2, x, 5)), x * 32)
        y, n = op.while_loop(lambda s: op.abs(s[0]) < 3, lambda s: (s[0] * 2, s[1] + 1), (x, np.zeros(4, np.int32)), bound=50)
        expected, steps = x.copy(), np.zeros(4, np.int32)
        for _ in range(50):
            going = np.abs(expected) < 3
            expected, steps = np.where(going, expected * 2, expected), steps + going
        np.testing.assert_array_equal(np.asarray(y), expected)
        np.testing.assert_array_equal(np.asarray(n), steps)
        decay = op.jit(lambda r, x: op.sum(op.iterate(lambda s: s * r, x, 3)))
        self.assertAlmostEqual(float(op.grad(decay)(2.0, x)), 12 * float(np.sum(x)), places=9)

    def test_errors_are_sentences(self):
        x = array((4,))
        for call, message in (
            (lambda: op.fold(lambda s, x: s, x), "fold: neither xs nor length is given"),
            (lambda: op.scan(lambda s, x: s, x, x), "must return two values"),
            (lambda: op.scan(lambda s, x: (s, x), x, x, 4), "both xs and length are given"),
            (lambda: op.fold(lambda s, x: {"b": s["a"]}, {"a": x}, x), "same nesting as the state that it takes"),
            (lambda: op.while_loop(lambda s: s > 0, lambda s: s, x), "`bound` is missing"),
            (lambda: op.iterate(lambda s: s, x, -2), "the number of steps is -2"),
            (lambda: op.iterate(lambda s: (s, s), x, 2), "1 state before a step, but 2 after it"),
        ):
            with self.assertRaisesRegex(op.ValueError, message):
                call()
        with self.assertRaisesRegex(op.ShapeError, "a state must keep its shape"):
            op.iterate(lambda s: op.concat([s, s]), x, 2)
        with self.assertRaisesRegex(op.DTypeError, "it must be bool"):
            op.while_loop(lambda s: s, lambda s: s, x, 2)
        step = lambda s: s
        for call, message in (
            (lambda: op.scan(3, x, x), "scan: `function` is 3; it must be a function"), (lambda: op.fold(None, x, x), "fold: `function` is None"), (lambda: op.iterate(x, x, 2), "iterate: `function` is array"),
            (lambda: op.while_loop(3, step, x, 2), "while_loop: `cond` is 3"), (lambda: op.while_loop(step, "body", x, 2), "while_loop: `body` is 'body'"),
        ):  # fmt: skip
            with self.assertRaisesRegex(op.DTypeError, message):
                call()

    def test_a_number_of_steps_is_an_integer(self):
        step = lambda s: s + 1
        for call in (
            lambda n: op.iterate(step, 1, n), lambda n: op.fold(lambda s, i: s + 1, 1, n), lambda n: op.fold(lambda s, x: s + 1, 1, length=n),
            lambda n: op.scan(lambda s, x: (s + 1, s), 1, length=n)[0], lambda n: op.while_loop(lambda s: s < 9, step, 1, bound=n),
        ):  # fmt: skip
            for n in (2.7, 2.0, np.float64(2)):
                with self.assertRaisesRegex(op.DTypeError, "the number of steps must be an integer, not"):
                    call(n)
            for n in (2, np.int32(2)):
                self.assertEqual(int(call(n)), 3)
        self.assertEqual(int(op.iterate(step, 1, op.Array(2))), 3)


class Sorting(Test):
    def test_numpys_functions(self):
        x, q, v = array((6, 9)).astype(np.float64), np.array([0.0, 0.3, 1.0]), np.sort(array((7,), seed=2)).astype(np.float64)
        x[2, 3] = x[2, 4]
        holes = np.where(x > 0.5, np.nan, x)
        for got, expected in (
            (op.sort(x), np.sort(x)), (op.sort(x, 0, descending=True), -np.sort(-x, 0)), (op.argsort(x), np.argsort(x, kind="stable")),
            (op.topk(x, 3)[0], -np.sort(-x)[:, :3]), (op.topk(x, 2, axis=0, largest=False)[1], np.argsort(x, 0, kind="stable")[:2]),
            (op.median(x, axis=1), np.median(x, 1)), (op.median(x, keepdims=True), np.median(x, keepdims=True)),
            (op.nanmedian(holes, axis=0), np.nanmedian(holes, 0)), (op.quantile(x, 0.3), np.quantile(x, 0.3)),
            (op.quantile(x, q, axis=1), np.quantile(x, q, 1)), (op.nanquantile(holes, 0.7, axis=1, keepdims=True), np.nanquantile(holes, 0.7, 1, keepdims=True)),
            (op.searchsorted(v, x), np.searchsorted(v, x)), (op.searchsorted(v, v, side="right"), np.searchsorted(v, v, "right")),
            (op.jit(lambda x: op.quantile(x, 0.3, axis=0))(x), np.quantile(x, 0.3, 0)),
            (op.ndtri(op.ndtr(v)), v), (op.ndtr(0.0), 0.5),
        ):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13, atol=1e-15)
        for call, message in ((lambda: op.searchsorted(v, v, side="middle"), "`side` must be"), (lambda: op.topk(x, 10), "k must be between 0 and 9")):
            with self.assertRaisesRegex(op.Error, message):
                call()

    def test_writing(self):
        x, v, k = array((6, 9)), array((9,), seed=1), np.array([4, -6, 4])
        def after(at, v, x=x):
            out = x.copy()
            out[at] = v
            return out
        def at_each(join, at, v):
            out = x.copy()
            join.at(out, at, v)
            return out
        u = np.stack([v, v * 2, v - 1])
        for got, expected in (
            (op.put(x, np.s_[1:3], v), after(np.s_[1:3], v)), (op.put(x, (..., slice(None, None, -2)), 2, mode="add"), after(np.s_[..., ::-2], x[..., ::-2] + 2)),
            (op.index_update(x, k, u, 0), after(k, u)), (op.index_update(x, k, u, 0, mode="max"), at_each(np.maximum, k, u)),
            (op.scatter(x[0], k, u[0][:3], 0, mode="min"), at_each(np.minimum, (0, k), u[0][:3])[0]),
            (op.masked_fill(x, x > 0, -1.5), np.where(x > 0, -1.5, x)),
            (op.compress(x > 0, x, fill=7)[0], np.pad(x[x > 0], (0, (x <= 0).sum()), constant_values=7)), (op.compress(x > 0, x)[1], (x > 0).sum()),
            (op.compress(x[:, 0] > 0, x, axis=0)[0], np.pad(x[x[:, 0] > 0], ((0, (x[:, 0] <= 0).sum()), (0, 0)))),
            (op.Array(x).at[2, 1:4].set(9), after(np.s_[2, 1:4], 9)), (op.Array(x).at[k].set(v), after(k, v)), (op.Array(x).at[k].add(u), at_each(np.add, k, u)),
            (op.Array(x).at[-1].mul(2), after(-1, x[-1] * 2)), (op.Array(x).at[x > 0.5].min(0.25), np.where(x > 0.5, 0.25, x)),
            (op.jit(lambda x, v: x.at[:, 0].set(v[:6]).at[x > 0.9].set(0.5))(x, v), np.where(x > 0.9, 0.5, after(np.s_[:, 0], v[:6]))),
            (op.jit(lambda x, k, u: x.at[k].max(u))(x, k, u), at_each(np.maximum, k, u)),
        ):
            self.assertEqual(np.asarray(got).dtype, np.asarray(expected).dtype)
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)
        rows = np.array([True, False, False])
        three = np.zeros((3, 3))
        expected = three.copy()
        expected[rows] = 7
        np.testing.assert_array_equal(op.Array(three).at[rows].set(7.0), expected)  # a mask of the first axes selects rows
        np.testing.assert_array_equal(op.jit(lambda x, m: x.at[m].set(7.0))(three, rows), expected)
        for mask, values, message in ((rows, np.ones((1, 3)), "must be one part of shape"), (three > 0, np.ones(3), "must be one value"), (np.ones(2, bool), 1, "does not fit")):
            with self.assertRaisesRegex(op.ShapeError, message):
                op.Array(three).at[mask].set(values)
        self.assertEqual(op.Array(np.arange(3)).at[0].add(2.75).dtype, op.i64)
        for call, message in ((lambda: op.put(x, 0, v, mode="sub"), "put: `mode` must be"), (lambda: op.index_update(x, k, u, 0, mode="mul"), "`mode` must be"), (lambda: op.Array(x).at[0, k].set(1), "must be the only index"), (lambda: op.put(x, 6, 1), "put: 6 is out of range")):
            with self.assertRaisesRegex(op.Error, message):
                call()
        with self.assertRaisesRegex(TypeError, "Use index_update or scatter"):
            op.put(x, k, 1)

    def test_windows(self):
        x, k = array((6, 9)), array((2, 3), seed=1)
        view = np.lib.stride_tricks.sliding_window_view
        for got, expected in (
            (op.sliding_window(x, [2, 3]), view(x, (2, 3))), (op.sliding_window(x, 3, axis=1, step=2), view(x, 3, 1)[:, ::2]),
            (op.sliding_window(x[0], 3, spacing=2), view(x[0], 5)[:, ::2]), (op.correlate(x, k), (view(x, (2, 3)) * k).sum((-2, -1))),
            (op.correlate(x[0], k[0]), np.correlate(x[0], k[0])), (op.convolve(x[0], k[0]), np.convolve(x[0], k[0])),
            (op.convolve(x, k[0], mode="same", axis=-1), np.stack([np.convolve(row, k[0], "same") for row in x])),
            (op.pad(x, [1, 2], [2, 1], mode="reflect"), np.pad(x, ((1, 2), (2, 1)), "reflect")),
        ):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-6)
        for call, message in ((lambda: op.correlate(x, k, mode="all"), "`mode` must be"), (lambda: op.pad(x, [1, 1], [1, 1], 0, mode="edge"), "takes no value")):
            with self.assertRaisesRegex(op.Error, message):
                call()


class Docs(Test):
    def test_pages_run(self):
        for page, least in (("docs/python.md", 10), ("docs/tutorial.md", 10), ("docs/arrays.md", 8), ("docs/coming-from.md", 2), ("README.md", 1)):
            with open(os.path.join(ROOT, page)) as f:
                text = f.read()
            blocks = [(text[: m.start(1)].count("\n"), m.group(1)) for m in re.finditer(r"```python\n(.*?)```", text, re.S)]
            self.assertGreaterEqual(len(blocks), least, page)
            names = {}
            for line, block in blocks:
                exec(compile("\n" * line + block, os.path.join(ROOT, page), "exec"), names)

    def test_every_operator_of_cpp_is_there(self):
        with open(os.path.join(ROOT, "include/onepass/tensor.h")) as f:
            names = set(re.findall(r"onepass::(\w+)", f.read().split("namespace names {")[1].split("}")[0]))
        self.assertGreater(len(names), 100)
        names -= {"variance", "stddev"}  # these names avoid C++'s namespace std, which Python lacks
        self.assertEqual({n for n in names if not hasattr(op, n)}, set())


def missing(module):
    """Returns the reason to skip a module's tests. These modules are large and slow to import, so only tools/test --full uses them."""
    if not os.environ.get("ONEPASS_TEST_FULL"):
        return f"{module} is used by tools/test --full alone"
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


@unittest.skipIf(missing("torch"), missing("torch"))
class Torch(Test):
    def test_inside_torch(self):
        import torch

        layer = op.torch(lambda x, w: op.tanh(x @ w))
        x = torch.randn(4, 3, requires_grad=True)
        w = torch.randn(3, 2, requires_grad=True)
        layer(x, w).square().sum().backward()
        got = x.grad.clone(), w.grad.clone()
        x.grad = w.grad = None
        torch.tanh(x @ w).square().sum().backward()
        self.assertTrue(torch.allclose(got[0], x.grad, atol=1e-5) and torch.allclose(got[1], w.grad, atol=1e-5))

    def test_memory_is_shared(self):
        import torch

        for dtype in (torch.bool, torch.int8, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
            theirs = torch.ones(3, dtype=dtype)
            ours = op.Array(theirs)
            self.assertEqual(ours.dtype, str(dtype)[6:].replace("float", "f").replace("uint", "u").replace("int", "i"))
            back = torch.from_dlpack(ours)
            self.assertEqual((back.data_ptr(), back.dtype), (theirs.data_ptr(), dtype))
        theirs = torch.arange(12.0).reshape(3, 4).T
        self.assertTrue(torch.equal(torch.from_dlpack(op.Array(theirs)), theirs))
        a = op.zeros((2, 3))
        torch.from_dlpack(a)[1, 2] = 7
        self.assertEqual(float(a[1, 2]), 7)
        before = sys.getrefcount(theirs)
        for _ in range(3):
            op.jit(lambda x: x + 1)(theirs)
        gc.collect()
        self.assertEqual(sys.getrefcount(theirs), before)


@unittest.skipIf(missing("jax"), missing("jax"))
class Jax(Test):
    def test_memory_is_shared(self):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        ours = op.Array(op.ones((1000,)))  # onepass's memory has the alignment that JAX requires
        theirs = jax.numpy.from_dlpack(ours)
        self.assertEqual(theirs.unsafe_buffer_pointer(), np.asarray(ours).ctypes.data)
        x = jax.numpy.arange(1000, dtype=jax.numpy.float32)
        a = op.from_dlpack(x)
        self.assertEqual(x.unsafe_buffer_pointer(), np.asarray(a).ctypes.data)
        self.assertTrue(a.is_read_only)  # like JAX's arrays
        self.same(op.jit(lambda x: x * 2)(x), np.arange(1000, dtype=np.float32) * 2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
