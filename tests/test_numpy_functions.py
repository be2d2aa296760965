"""Compares NumPy's functions in onepass with NumPy: op.X on arrays, op.X and np.X on Tensors of a compiled function, np.X on Arrays.

Skipped (77) without the module.
"""
import unittest

import built_module  # noqa: F401: skips without the module

import numpy as np  # noqa: E402

import onepass as op  # noqa: E402
from onepass import numpy_functions  # noqa: E402

nan, inf = np.nan, np.inf
TYPES = (np.float32, np.float64, np.int32)
TESTED = set()
trapezoid = getattr(np, "trapezoid", None) or np.trapz  # the function's name before NumPy 2


def array(shape, dtype=np.float64, seed=0):
    """Draws numbers of both signs, without ties; integers from -9 to 9."""
    rng = np.random.default_rng(seed)
    return rng.integers(-9, 10, shape).astype(dtype) if np.dtype(dtype).kind == "i" else rng.normal(size=shape).astype(dtype)


def changed(value, change):
    """Returns a nested value with its NumPy arrays changed."""
    if isinstance(value, (list, tuple)):
        return type(value)(changed(v, change) for v in value)
    return change(value) if isinstance(value, np.ndarray) else value


def leaves(value):
    return [v for part in value for v in leaves(part)] if isinstance(value, (list, tuple)) else [value]


class Test(unittest.TestCase):
    def same(self, got, wanted, inputs=(), exact=False):
        """Checks nesting, shapes, types and values. f64 of NumPy may be f32 without a 64-bit input."""
        if isinstance(wanted, (list, tuple)):
            self.assertEqual(len(got), len(wanted))
            for g, w in zip(got, wanted):
                self.same(g, w, inputs, exact)
            return
        got, wanted = np.asarray(got), np.asarray(wanted)
        self.assertEqual(got.shape, wanted.shape)
        wide = any(v.dtype.itemsize == 8 for v in inputs)
        dtypes = {wanted.dtype} if wanted.dtype != np.float64 or wide else {np.dtype(np.float32), np.dtype(np.float64)}
        self.assertIn(got.dtype, dtypes)
        if exact or got.dtype.kind in "bi":
            np.testing.assert_array_equal(got, wanted)
        else:
            tolerance = 2e-6 if np.float32 in (got.dtype, wanted.dtype) else 1e-12
            np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance)

    def check(self, cases, numpy=True):
        """Checks cases (name, arguments, keywords), all of them in one compiled function."""
        TESTED.update(name for name, *_ in cases)
        cases = [(name, args, (rest or ({},))[0]) for name, args, *rest in cases if hasattr(np, name)]  # NumPy 2 lacks round_ and others
        inputs, places = [], []
        for name, args, kwargs in cases:
            arrays = []
            changed((args, list(kwargs.values())), arrays.append)
            places.append((len(inputs), len(inputs) + len(arrays)))
            inputs += arrays
        modules = [op, np] if numpy else [op]

        def call(module, case, change):
            name, args, kwargs = case
            return getattr(module, name)(*changed(args, change), **{k: changed(v, change) for k, v in kwargs.items()})

        @op.jit
        def compiled(tensors):
            out = []
            for module in modules:
                for case, (start, stop) in zip(cases, places):
                    given = iter(tensors[start:stop])
                    if module is np and start == stop:  # no Tensor: NumPy computes
                        out.append([])
                    else:
                        result = call(module, case, lambda _: next(given))
                        out.append([v if hasattr(v, "dtype") else op.asarray(np.asarray(v)) for v in leaves(result)])
            return out

        recorded = compiled(inputs)
        for i, (case, (start, stop)) in enumerate(zip(cases, places)):
            with self.subTest(case[0], arguments=case[1], keywords=case[2]):
                with np.errstate(all="ignore"):
                    wanted = call(np, case, lambda x: x)
                given = inputs[start:stop]
                outside = call(op, case, lambda x: x)
                self.same(outside, wanted, given)
                self.same(leaves(recorded[i]), leaves(wanted), given)
                self.same(leaves(recorded[i]), [np.asarray(v) for v in leaves(outside)], given)
                if numpy and start != stop:
                    self.same(leaves(recorded[len(cases) + i]), leaves(wanted), given)
                    self.same(leaves(call(np, case, op.Array)), leaves(wanted), given)


class Shapes(Test):
    def test_axes(self):
        for dtype in TYPES:
            x, y, v, s, e = array((2, 3, 4), dtype), array((2, 3), dtype), array(5, dtype), array((), dtype), array((0, 3), dtype)
            self.check([
                ("moveaxis", (x, 0, -1)), ("moveaxis", (x, [0, 1], [-1, 0])), ("moveaxis", (v, 0, 0)), ("rollaxis", (x, 2)), ("rollaxis", (x, 0, 3)),
                ("rollaxis", (x, -1, 1)), ("rollaxis", (x, 1, -1)), ("ravel", (x,)), ("ravel", (s,)), ("ravel", (e,)), ("ravel", (x, "F")),
                ("atleast_1d", (s,)), ("atleast_1d", (v, s)), ("atleast_2d", (s,)), ("atleast_2d", (v, y)), ("atleast_2d", (x,)),
                ("atleast_3d", (s,)), ("atleast_3d", (v, y, x)), ("fliplr", (y,)), ("fliplr", (x,)), ("flipud", (v,)), ("flipud", (x,)),
                *(("rot90", (x, k), {"axes": axes}) for k in (-1, 0, 1, 2, 3, 5) for axes in ((0, 1), (1, 0), (2, -2))), ("rot90", (y,)),
                ("diagflat", (y,)), ("diagflat", (v, -2)), ("diagflat", (s, 1)), ("broadcast_arrays", (y, s, array((2, 1), dtype))),
                ("broadcast_arrays", (v,)), ("copy", (y,)),
            ])  # fmt: skip
            self.check([("shape", (x,)), ("ndim", (x,)), ("size", (x,)), ("size", (x, -1)), ("ndim", (s,))])

    def test_made(self):
        self.check([
            ("indices", ((2, 3),)), ("indices", ((2, 3), np.int32)), ("indices", ((4,),)), ("indices", ((2, 0),)), ("indices", ((),)),
            ("indices", ((2, 3, 2),), {"sparse": True}), ("identity", (3,)), ("identity", (2, np.int32)), ("identity", (0,)),
            ("broadcast_shapes", ((2, 1), (3,), 1)), ("broadcast_shapes", (2, (4, 1))), ("atleast_1d", (3,)), ("atleast_2d", ([1, 2],)), ("ndim", ([[1], [2]],)), ("shape", ([[1], [2]],)), ("size", (3.5,)),
            ("ravel", ([[1, 2], [3, 4]],)), ("moveaxis", ([[1, 2, 3]], 0, 1)), ("array", ([[1, 2], [3, 4]],)), ("array", ([1, 2], np.float32)), ("copy", ([1.5],)),
        ])  # fmt: skip
        for x in (array((2, 3), np.float32), array(4, np.int32)):
            for made in (op.empty_like(x), op.jit(lambda x: op.empty_like(x))(x), op.jit(lambda x: np.empty_like(x))(x)):
                self.assertEqual((made.shape, made.dtype), (x.shape, x.dtype))
            self.assertEqual(op.empty_like(x, op.i64).dtype, np.int64)
        TESTED.add("empty_like")
        self.same(op.array(2.5), 2.5, [np.zeros(1)])
        a = op.array(x := array(3))
        x[0] = 7
        self.assertNotEqual(a[0].item(), 7)
        self.same(op.jit(lambda x: op.array([[x[0], 1], [2, x[1]]]))(x), np.array([[7, 1], [2, x[1]]]))
        b = op.Array(x)
        for view in (op.atleast_1d(b), op.atleast_3d(b), op.split(b, 3)[0], op.array_split(b, 2)[1]):
            self.assertTrue(np.shares_memory(np.asarray(view), x))

    def test_join(self):
        for dtype in TYPES:
            x, y, v, w, s = array((2, 3), dtype), array((2, 3), dtype, 1), array(3, dtype), array(2, dtype), array((), dtype)
            z, e = array((2, 3, 2), dtype), array((0, 3), dtype)
            self.check([
                ("hstack", ((x, y),)), ("hstack", ([v, w, s],)), ("hstack", ((z, z),)), ("hstack", (z,)), ("vstack", ((x, v, e),)), ("vstack", ((v, v),)), ("vstack", (x,)),
                ("vstack", ((s, s),)), ("row_stack", ((x, v),)), ("dstack", ((x, y),)), ("dstack", ((v, v),)), ("dstack", ((z, x),)), ("dstack", ((s, s),)),
                ("column_stack", ((v, v),)), ("column_stack", ((x, w),)), ("column_stack", ((s, s),)),
                ("block", ([[x, y], [v, v]],)), ("block", ([v, s, 1],)), ("block", ([[[x]], [[y]]],)), ("block", (x,)), ("block", ([z, z],)),
                ("append", (x, y)), ("append", (x, 3)), ("append", (v, [1, 2])), ("append", (x, y, 0)), ("append", (x, array((2, 1), dtype), -1)), ("append", (s, s)),
            ])  # fmt: skip
        self.check([("hstack", ((array(2, np.float32), array(3, np.int32)),)), ("vstack", ((array(2, np.float32), array(2)),))])
        self.check([("block", ([[1, 2], [3, 4]],)), ("hstack", ([1, 2],)), ("vstack", ([[1, 2], [3, 4]],)), ("append", ([1, 2], [[3]]))])

    def test_split(self):
        for dtype in TYPES:
            x, z, v, e = array((6, 4), dtype), array((2, 3, 4), dtype), array(7, dtype), array((0, 2), dtype)
            self.check([
                ("split", (x, 3)), ("split", (x, 2, 1)), ("split", (x, [1, 4])), ("split", (x, [2, 9], -1)), ("split", (v, (3, -1))), ("split", (e, 2)),
                ("array_split", (v, 3)), ("array_split", (v, 9)), ("array_split", (z, 2, 1)), ("array_split", (z, [1], -1)), ("array_split", (v, np.array([2, 4]).tolist())),
                ("hsplit", (x, 2)), ("hsplit", (v, [3])), ("vsplit", (x, 3)), ("vsplit", (z, [1])), ("dsplit", (z, 2)),
            ])  # fmt: skip

    def test_insert_and_delete(self):
        for dtype in TYPES:
            x, z, v = array((3, 4), dtype), array((2, 3, 20), dtype), array(6, dtype)
            mask = [True, False, True, True]
            self.check([
                ("delete", (v, 2)), ("delete", (v, -1)), ("delete", (v, [0, 3, -1])), ("delete", (v, slice(1, 4))), ("delete", (v, slice(None, None, -2))),
                ("delete", (x, 1)), ("delete", (x, 1, 0)), ("delete", (x, [1, 3], 1)), ("delete", (x, mask, -1)), ("delete", (x, [], 0)), ("delete", (z, slice(1, None, 2), 2)),
                ("delete", (x, slice(None), 0)), ("delete", (v, [1, 1, 2])),
                ("insert", (v, 2, 7)), ("insert", (v, -1, [7, 8])), ("insert", (v, 6, 7.6)), ("insert", (x, 1, 5)), ("insert", (x, 1, 5, 1)), ("insert", (x, 1, array(3, dtype), 1)),
                ("insert", (x, 0, array(4, dtype), 0)), ("insert", (x, [1], array((3, 1), dtype), 1)), ("insert", (v, [0, 3, 3, -1], array(4, dtype))), ("insert", (x, [4, 0], 9, 1)),
                ("insert", (x, [0, 2], array((2, 4), dtype), 0)), ("insert", (v, slice(1, 4), 0)), ("insert", (v, slice(0, 1), 5)), ("insert", (z, [2, 1, 1], array((3, 1), dtype), 1)),
                ("insert", (v, [], [])),
            ])  # fmt: skip

    def test_products(self):
        for dtype in TYPES:
            x, y, z, v, s = array((2, 3), dtype), array((4, 3), dtype, 1), array((3, 2, 4), dtype), array(3, dtype), array((), dtype)
            self.check([
                ("tensordot", (x, z, 1)), ("tensordot", (x, z), {"axes": ([1, 0], [0, 1])}), ("tensordot", (x, y, (1, 1))), ("tensordot", (x, z), {"axes": [[-1], [0]]}), ("tensordot", (v, x, 0)),
                ("tensordot", (x, x)), ("inner", (v, v)), ("inner", (x, y)), ("inner", (s, x)), ("inner", (array((2, 4), dtype), z)), ("vdot", (x, x)), ("vdot", (s, s)), ("vdot", (x, array((3, 2), dtype))),
                ("kron", (x, y)), ("kron", (v, x)), ("kron", (z, v)), ("kron", (s, v)), ("kron", (v, v)),
                ("cross", (v, v[::-1].copy())), ("cross", (x, v)), ("cross", (array((5, 3), dtype), array((5, 2), dtype, 3))), ("cross", (array((5, 2), dtype), array((5, 3), dtype, 3))),
                ("cross", (array((5, 2), dtype), array((5, 2), dtype, 3))), ("cross", (array((3, 5), dtype), array((3, 5), dtype, 3)), {"axis": 0}),
                ("cross", (array((3, 5), dtype), array((5, 3), dtype, 3)), {"axisa": 0, "axisc": 0}),
            ])  # fmt: skip
        self.check([("kron", ([1, 2], [[1, 2]])), ("inner", ([1, 2], [3, 4])), ("inner", (2, array(3))), ("vdot", ([[1]], [2])), ("tensordot", ([1, 2], [3, 4], 1)), ("cross", ([1, 2, 3], [4, 5, 6]))])


class Elements(Test):
    def test_floats(self):
        values = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1e-3, 3.7, -1234.5]
        for dtype in TYPES[:2]:
            x = np.array(values, dtype)
            a, b = (v.reshape(-1) for v in np.meshgrid(x, x))
            near = np.array([1, 1 + 1e-6, 1 + 1e-4, 0, 1e-9], dtype)
            self.check([
                *((name, (v,)) for name in "fabs positive degrees rad2deg radians deg2rad sinc fix rint around round_ nan_to_num isposinf isneginf modf".split() for v in (x, x[5], array((2, 3), dtype))),
                *((name, (a, b)) for name in "fmax fmin heaviside logaddexp2 isclose".split()), ("divmod", (array(50, dtype), array(50, dtype, 1))), ("float_power", (np.abs(a), b)),
                ("logaddexp2", (array(9, dtype) * 50, array(9, dtype, 1))),
                ("nan_to_num", (x,), {"nan": 7.0, "posinf": 1.0}), ("nan_to_num", (x, True, 0.5, None, -3)), ("around", (array(20, dtype) * 1000, -2)), ("around", (array(20, dtype), 3)), ("round_", (x, 1)),
                ("isclose", (near[:, None], near)), ("isclose", (near, 1.0), {"rtol": 0, "atol": 1e-3}), ("isclose", (x, x), {"equal_nan": True}), ("isclose", (1.0, near, 1e-5)),
                ("allclose", (near, near + dtype(1e-7))), ("allclose", (near, 1.0)), ("allclose", (x, x)), ("allclose", (x, x), {"equal_nan": True}), ("allclose", (near[:0], 1.0)),
                ("array_equal", (near, near)), ("array_equal", (near, near[:2])), ("array_equal", (x, x)), ("array_equal", (x, x), {"equal_nan": True}), ("array_equal", (near, near + 1)),
                ("array_equiv", (near, near[None])), ("array_equiv", (near, near[:2])), ("array_equiv", (near[:1], near)), ("nextafter", (near, 2.0)) if dtype is np.float64 else ("nextafter", (near, near[::-1].copy())),
                ("fmax", (array((2, 1, 3), dtype), array((4, 1), dtype))), ("fmin", (x, 0.0)), ("heaviside", (x, 0.5)),
            ])  # fmt: skip
        self.same(op.around(2.567, 2), np.float32(2.57))
        self.same(op.round([2.567, 1.234], 1), [2.6, 1.2])
        self.same(op.jit(lambda x: np.round(x, 2))(np.array([2.567])), [2.57])

    def test_integers(self):
        for dtype in (np.int32, np.uint8):
            x, y = np.abs(array((4, 5), np.int64)).astype(dtype) + dtype(1), np.abs(array(5, np.int64, 3)).astype(dtype)
            cases = [(name, (x,)) for name in "positive nan_to_num isposinf isneginf around amin".split()]
            cases += [(name, (x, y)) for name in "fmax fmin array_equal isclose gcd lcm".split()]
            cases += [("divmod", (x, y + dtype(1))), ("allclose", (x, x)), ("gcd", (x, 6)), ("around", (x, 2)), ("amax", (x, 0)), ("float_power", (x, 2))]
            if dtype == np.int32:  # NumPy computes with f16 for u8
                cases += [(name, (x,)) for name in "fabs degrees radians sinc".split()] + [("logaddexp2", (x, y)), ("divmod", (-x, y + 1))]
            self.check(cases)
        x, y = np.abs(array((4, 5), np.int64)) + 1, np.abs(array(5, np.int64, 3))
        fibonacci = [1, 1]
        while fibonacci[-1] < 2**64:
            fibonacci.append(fibonacci[-2] + fibonacci[-1])
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):  # these numbers need the most steps
            a, b = (np.array([v], dtype) for v in [f for f in fibonacci if f <= np.iinfo(dtype).max][-2:])
            self.check([("gcd", (a, b)), ("gcd", (b, a))])
        self.check([
            *((name, (x,)) for name in "degrees radians rad2deg deg2rad sinc modf fabs".split()), *((name, (x, y)) for name in "gcd lcm float_power logaddexp2".split()), ("gcd", (-x, y)), ("lcm", (-x, y)),
            ("fabs", (-x,)), ("heaviside", (x - 3, y)), ("around", (x * 13, -1)), ("around", (x * 5 - 7, -1)), ("divmod", (-x, y + 1)),
        ])  # fmt: skip
        self.check([("gcd", (12, 18)), ("lcm", ([4, 6], 10)), ("divmod", (7, 3)), ("fabs", ([-1, 2],)), ("isclose", (1, 1)), ("nan_to_num", ([nan, 1.0],)), ("float_power", (2.0, 3)), ("degrees", (1.0,)), ("fmax", ([1, 2], 1.5))])

    def test_isin(self):
        for dtype in TYPES:
            x = np.concatenate([array(40, dtype), np.array([1, 2, 3], dtype)]).reshape(43, 1)
            many, few = np.concatenate([x[::2, 0], array(30, dtype, 5)]), np.concatenate([x[:5, 0], x[:1, 0] + 1])
            self.check([("isin", (x, many)), ("isin", (x, few)), ("isin", (x, few[:0])), ("isin", (x, [1, 2])), ("isin", (x, many), {"invert": True}), ("isin", (x[3, 0], few)), ("isin", (x, 3)), ("isin", (x, list(range(20))))])
        special = np.array([nan, 1.0, inf] * 8)
        self.check([("isin", (special, special)), ("isin", (special, special[:3])), ("isin", (array(9, np.int32), array(30))), ("isin", ([1, 2], [2, 3]))])

    def test_choice(self):
        for dtype in TYPES:
            x, y = array((3, 4), dtype), array(4, dtype, 1)
            at = np.array([[0, 1, 2, 1]] * 3)
            self.check([
                ("select", ([x > 1, x < -1], [x, -x])), ("select", ([x > 0, x > -1], [x, y], 7)), ("select", ([x > 9], [x * 2], y)),
                ("choose", (at, [x, y, -x])), ("choose", (at + 2, [x, y, -x]), {"mode": "clip"}), ("choose", (at - 2, [x, y]), {"mode": "wrap"}), ("choose", (at[0], [1, 2, 3])),
            ])  # fmt: skip
            pieces = lambda xp: lambda x: (
                xp.piecewise(x, [x < 0, x >= 1], [lambda v: -v, lambda v: v * 2]), xp.piecewise(x, [x < 0, x < 1], [3, lambda v: v + 1, lambda v: v * v]),
                xp.piecewise(x[0], x[0] < 0, [1, 0]), xp.piecewise(x[0, 0], x[0, 0] < 0, [1, 2]), xp.piecewise(x, [x < 1, x < 0], [lambda v, k: v * k, lambda v, k: v - k], 2),
            )  # fmt: skip
            for call in (pieces(op), op.jit(pieces(op)), op.jit(pieces(np))):
                self.same(call(x), pieces(np)(x), [x])
        TESTED.add("piecewise")
        with self.assertRaises(op.Error):
            op.choose(np.array([0, 3]), [1, 2, 3])
        with self.assertRaises(op.Error):
            op.choose(np.array([-1]), [1, 2, 3])


class Statistics(Test):
    def test_reductions(self):
        for dtype in TYPES:
            x, z, v = array((5, 7), dtype), array((2, 3, 4), dtype), array(9, dtype)
            missing = x.copy()
            if dtype != np.int32:
                missing[1, 2:5], missing[3, 0] = nan, nan
            self.check([
                ("ptp", (x,)), ("ptp", (x, 0)), ("ptp", (z, -1), {"keepdims": True}), ("ptp", (z, (0, 2))), ("amax", (x, 1)), ("amin", (z,), {"axis": (0, 1)}),
                ("percentile", (x, 30)), ("percentile", (x, [0, 25.0, 100], 0)), ("percentile", (x, 50.0), {"axis": -1, "keepdims": True}), ("percentile", (z, [10, 90], (0, 1))),
                ("percentile", (v, [[10, 20, 30], [40, 50, 60]])), ("percentile", (missing, 40, 1)), ("nanpercentile", (missing, 40, 1)), ("nanpercentile", (missing, [5, 95])), ("percentile", (x, np.array([20.0, 30.0]), 0)) if dtype == np.float64 else ("ptp", (v,)),
                ("nanargmax", (missing,)), ("nanargmax", (missing, 0)), ("nanargmin", (missing, 1), {"keepdims": True}), ("nanargmin", (missing,)), ("nancumsum", (missing,)), ("nancumsum", (missing, 0)),
                ("nancumprod", (missing,)), ("nancumprod", (missing, -1)), ("ediff1d", (x,)), ("ediff1d", (v, [7, 8], 9)), ("ediff1d", (v[:1],)), ("ediff1d", (v,), {"to_begin": v[:2]}),
                ("trapz", (x,)), ("trapz", (x, None, 0.5, 0)), ("trapz", (v, np.arange(9).astype(dtype))),
            ])  # fmt: skip

    def test_interpolation(self):
        for dtype in TYPES:
            x = np.array([[-3, -1, 0, 2], [3, 4, 9, 10]], dtype)
            xp, fp = np.array([-1, 0, 3, 9], dtype), np.array([5, -2, 4, 1], dtype)
            cases = [("interp", (x, xp, fp)), ("interp", (x, xp, fp, -7, 8)), ("interp", (x, xp[:1], fp[:1])), ("interp", (x[0, 3], xp, fp), {"left": 0}), ("interp", (x, [0, 1, 1, 2], [1, 2, 3, 4]))]
            cases += [("digitize", (x, xp)), ("digitize", (x, xp, True)), ("digitize", (x[0, 1], xp)), ("digitize", (x, [9, 3, 0])), ("digitize", (x, [9, 3, 0], True)), ("digitize", (x, [1, 1]))]
            if dtype != np.int32:
                odd = np.array([nan, -1, 1, 3, inf, -inf, 9, 0.5], dtype)
                cases += [("interp", (odd, xp, fp)), ("interp", (odd, xp, np.array([inf, 1, 2, -inf], dtype))), ("interp", (odd, xp, np.array([1, inf, inf, 3], dtype))), ("interp", (odd, xp[:1], fp[:1]))]
                cases += [("interp", (array(50, dtype), np.sort(array(20, dtype, 1)), array(20, dtype, 2)))]
            self.check(cases)
        self.check([("interp", (0.5, [0, 1], [1.0, 3.0])), ("digitize", ([0.5, 1.5], [0, 1])), ("digitize", (0.5, [1, 0.2]))])

    def test_polynomials(self):
        for dtype in TYPES:
            p, x, s = array(4, dtype), array((2, 3), dtype, 1), array((), dtype)
            self.check([
                ("polyval", (p, x)), ("polyval", (p, s)), ("polyval", ([2, -1, 0] if dtype != np.int32 else p[::-1].copy(), x)), ("polyval", (p[:1], x)), ("polyval", (p[:0], x)),
                ("vander", (p,)), ("vander", (p, 3)), ("vander", (p, 5), {"increasing": True}), ("vander", (p, 0)), ("vander", (p[:0],)),
            ])  # fmt: skip
        self.check([("polyval", ([1, 2], 3)), ("polyval", (array(3), 2)), ("vander", ([1, 2, 3],))])

    def test_unwrap(self):
        for dtype in TYPES[:2]:
            x = np.cumsum(np.abs(array((4, 20), dtype)), -1) % dtype(6.25)
            y = array((3, 5, 2), dtype) * 9
            self.check([("unwrap", (x,)), ("unwrap", (y,), {"axis": 1}), ("unwrap", (x, 4.0)), ("unwrap", (y, 5), {"axis": 0, "period": 8.0}), ("unwrap", (x[:, :1],)), ("unwrap", (x[:, :0],))])
            half = np.array([0, 4, 0, -4, 4, 12, 12], dtype)  # steps of half a period keep their sign
            self.check([("unwrap", (half,), {"period": 8}), ("unwrap", (half,), {"period": 8, "discont": 1})])
        for x in (np.array([0, 3, 1, 2, 0, 9, 5, -7]), np.array([0, 3, 1, 2, 0, 9, 5, -7]) * 3):
            self.check([("unwrap", (x,), {"period": 4}), ("unwrap", (x,), {"period": 5}), ("unwrap", (x,), {"period": 10})])

    def test_sequences(self):
        f64 = {"dtype": np.float64}
        self.check([
            ("logspace", (0, 2, 5), f64), ("logspace", (-1.5, 3, 4, False, 2.0), f64), ("logspace", (1, 2, 1), f64), ("geomspace", (1, 256, 9), f64), ("geomspace", (1000.0, 1, 4, False), f64),
            ("geomspace", (-1, -16, 5), f64), ("geomspace", (2, 8, 1), f64), ("geomspace", (3, 10, 7), f64), ("logspace", (0, 3, 4)), ("geomspace", (1, 8, 4)),
            *((name, (n,)) for name in ("hamming", "hanning", "blackman", "bartlett") for n in (0, 1, 2, 5, 8)),
        ])  # fmt: skip
        self.same(op.jit(lambda a, b: op.geomspace(a, b, 4))(np.array(2.0), np.array(54.0)), np.geomspace(2, 54, 4))
        for name in ("hamming", "hanning", "blackman", "bartlett"):
            self.same(getattr(op, name)(12, dtype=op.f64), getattr(np, name)(12), [np.zeros(1)])

    def test_numpy_parameters(self):
        x = array((4, 5), np.float32)

        def call(x):
            return (
                np.pad(x, 1), np.pad(x, (1, 2), constant_values=3), np.pad(x, ((0, 1), (2, 0)), "edge"), np.pad(x, ((1,), (2,)), mode="reflect"), *np.gradient(x), np.gradient(x, 0.5, axis=1),
                *np.gradient(x, 2.0, 0.5), *np.histogram(x, 4, (-2, 2)), trapezoid(x),
                np.take(x, [3, 7]), np.take(x, [3, 1], 1), np.clip(x, a_min=-0.5, a_max=None), np.clip(x, None, 0.5), np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x[0], 2), np.linalg.norm(x, 2, -1, True),
            )  # fmt: skip

        wanted = call(x)
        for got in (op.jit(call)(x), call(op.Array(x))):
            for g, w in zip(got, wanted):
                np.testing.assert_allclose(np.asarray(g), w, rtol=1e-5)
                self.assertIsInstance(g, op.Array)
        self.assertEqual(np.pad(op.Array(x), 1, "linear_ramp").shape, (6, 7))  # NumPy computes
        self.assertAlmostEqual(np.linalg.norm(op.Array(x), 1), np.linalg.norm(x, 1), 5)
        with self.assertRaisesRegex(TypeError, "np.linalg.norm: only the Euclidean norm"):
            op.jit(lambda x: np.linalg.norm(x, 1))(x)
        with self.assertRaisesRegex(TypeError, "np.linalg.det: a Tensor has no value"):
            op.jit(lambda x: np.linalg.det(x[:, :4]))(x)
        with self.assertRaisesRegex(TypeError, "np.pad: this mode"):
            op.jit(lambda x: np.pad(x, 1, "mean"))(x)
        self.assertIsInstance(np.allclose(op.Array(x), x), bool)


class Derivatives(Test):
    def test_gradients(self):
        x, y, v = array((3, 4)), array((3, 4), seed=1), array(4, seed=2)
        weights = array(100, seed=3)

        def total(values):
            return sum(op.sum(op.ravel(t) * weights[: op.size(t)]) for t in values)

        def shapes(x, y):
            return total([
                op.hstack([x, y]), op.block([[x, y], [y, x]]), op.insert(x, [0, 2], y[:, :2], 1), op.delete(y, 1, 0), op.delete(y, [0, 2], 1), op.rot90(x), op.diagflat(v * x[0]), op.kron(x[:2, :2], y[:2]),
                op.cross(x[:, :3], y[:, 1:]), op.tensordot(x, y, ([0], [0])), op.vdot(x, y), op.inner(x, y), op.append(x, y), *op.split(x, 2, 1), op.atleast_3d(y),
            ])  # fmt: skip

        def elements(x, y):
            return total([
                op.fmax(x, y), op.logaddexp2(x, y), op.sinc(x), op.degrees(x), op.nan_to_num(y), op.select([x > 0, y > 0], [x * y, y]), op.piecewise(x, [x < 0], [op.exp, op.sin]), op.ptp(y, 1),
                op.percentile(x, [20, 60], 0), op.nancumsum(x, 1), op.interp(x, np.linspace(-4, 4, 9), array(9)), op.polyval(y[0], x), op.vander(x[0]), op.unwrap(x * 9), op.choose([[0, 1, 1, 0]], [x, y]), op.modf(x)[0],
                op.ediff1d(x), op.trapz(y),
            ])  # fmt: skip

        def interpolated(xp, fp):
            return total([op.interp(np.linspace(-2, 2, 9), op.sort(xp), fp, left=fp[1] * fp[0])])

        for function, args in ((shapes, (x, y)), (elements, (x, y)), (interpolated, (array(7), array(7, seed=5)))):
            ok, worst, text = op.check_gradients(function, *args)
            self.assertTrue(ok, text)
        self.same(op.grad(lambda x: op.sum(op.logaddexp2(x, 1.0) + op.sinc(x - 1)))(np.ones(1)), [0.5])
        self.same(op.grad(lambda x: op.sum(op.fmax(x, np.array([2.0, nan]))))(np.array([1.0, 5.0])), [0.0, 1.0])


class Errors(Test):
    def test_texts(self):
        x, v = array((2, 3)), array(4)
        for call, kind, text in (
            (lambda x: op.split(x, 2, 1), op.ShapeError, "split: an axis of length 3 has no 2 equal sections. Use array_split"),
            (lambda x: op.array_split(x, 0), op.ValueError, "array_split: the number of sections is 0; it must be 1 or more"),
            (lambda x: op.split(x, 2, 2), op.IndexError, "split: axis 2 is out of range for a tensor of rank 2"),
            (lambda x: op.dsplit(x, 2), op.ShapeError, "dsplit: an array of rank 2 has too few axes; at least 3 are required"),
            (lambda x: op.flipud(x[0, 0]), op.ShapeError, "flipud: an array of rank 0 has too few axes; at least 1 is required"),
            (lambda x: op.ravel(x, "K"), op.ValueError, "ravel: order must be 'C' or 'F', not 'K'"),
            (lambda x: op.rollaxis(x, 0, 3), op.IndexError, "rollaxis: start is 3; it must be from -2 to 2"),
            (lambda x: op.rot90(x, 1, (0, -2)), op.ValueError, "rot90: the axes 0 and -2 are the same"),
            (lambda x: op.rot90(x, 1, (0,)), op.ValueError, "rot90: 1 axes given; two are required"),
            (lambda x: op.hstack([]), op.ValueError, "hstack: the list is empty"),
            (lambda x: op.hstack([x, v]), op.ShapeError, "concat"),
            (lambda x: op.block([[x], x]), op.ValueError, "block: lists of different depths are mixed"),
            (lambda x: op.block([(x, x)]), op.ValueError, "block: a tuple is given; only lists arrange arrays"),
            (lambda x: op.block([[x], []]), op.ValueError, "block: a list is empty"),
            (lambda x: op.delete(x, 3, 1), op.IndexError, "delete: position 3 is out of range for an axis of length 3"),
            (lambda x: op.delete(x, [True, False], 1), op.ShapeError, r"delete: a mask of shape \[2\] is given for an axis of length 3"),
            (lambda x: op.insert(x, 4, 0, 1), op.IndexError, "insert: position 4 is out of range"),
            (lambda x: op.insert(x, 0.5, 0, 1), op.IndexError, "insert: the positions must be integers, not float64"),
            (lambda x: op.insert(x, [[1]], 0, 1), op.ShapeError, "insert: the positions have rank 2"),
            (lambda x: op.inner(x, v), op.ShapeError, "inner: the last axes have lengths 3 and 4"),
            (lambda x: op.vdot(x, v), op.ShapeError, "vdot: the arrays have 6 and 4 elements"),
            (lambda x: op.tensordot(x, x, 1), op.ShapeError, "tensordot: the axes"),
            (lambda x: op.tensordot(x, x, (1,)), op.ValueError, "tensordot: 1 lists of axes are given"),
            (lambda x: op.cross(x, v), op.ShapeError, "cross: the vectors have 3 and 4 elements; each must have 2 or 3"),
            (lambda x: op.gcd(x, 3), op.DTypeError, "gcd: the operands must have integer types, not f64"),
            (lambda x: op.positive(x > 0), op.DTypeError, "positive: the operator does not accept bool"),
            (lambda x: op.select([x], [x]), op.DTypeError, "select: a condition has the type f64; it must be bool"),
            (lambda x: op.select([x > 0], [x, x]), op.ValueError, "select: 1 conditions and 2 choices are given"),
            (lambda x: op.piecewise(x, [x > 0], [1, 2, 3]), op.ValueError, "piecewise: 3 functions are given for 1 conditions"),
            (lambda x: op.choose([0], [x], "x"), op.ValueError, "choose: mode must be 'raise', 'wrap' or 'clip', not 'x'"),
            (lambda x: op.choose([0], []), op.ValueError, "choose: there are no choices"),
            (lambda x: op.percentile(x, 150), op.ValueError, "percentile: q is 150; each percentage must be from 0 to 100"),
            (lambda x: op.nanpercentile(x, [5, -1]), op.ValueError, r"nanpercentile: q is \[5, -1\]"),
            (lambda x: op.interp(v, x, x), op.ShapeError, r"interp: xp and fp have shapes \[2, 3\] and \[2, 3\]"),
            (lambda x: op.interp(x, v, v[1:]), op.ShapeError, r"interp: xp and fp have shapes \[4\] and \[3\]"),
            (lambda x: op.digitize(x, [1, 3, 2]), op.ValueError, "digitize: the bins are not monotonic"),
            (lambda x: op.digitize(x, x), op.Error, "digitize: the bins have rank 2"),
            (lambda x: op.polyval(x, x), op.ShapeError, "polyval: the coefficients have rank 2"),
            (lambda x: op.vander(x), op.ShapeError, "vander: x has rank 2"),
            (lambda x: op.unwrap(x, axis=2), op.IndexError, "unwrap: axis 2 is out of range"),
            (lambda x: op.hstack(5), op.ShapeError, "hstack: an array of rank 0 is given in place of several arrays"),
            (lambda x: op.around(x, 1.5), op.DTypeError, "around: decimals is 1.5; it must be an int"),
            (lambda x: op.rot90(x, "a"), op.DTypeError, "rot90: k is 'a'; it must be an int"),
            (lambda x: op.split(x, "a"), op.DTypeError, "split: an index is 'a'; it must be an int"),
            (lambda x: op.hanning(2.5), op.DTypeError, "hanning: M is 2.5; it must be an int"),
            (lambda x: op.percentile(x, "a"), op.ValueError, "percentile: q is 'a'; each percentage must be from 0 to 100"),
            (lambda x: op.cross(x, x, axis=4), op.IndexError, "cross: axis 4 is out of range for a tensor of rank 2"),
            (lambda x: op.isclose(x, v), op.ShapeError, r"sub: shapes \[2, 3\] and \[4\] do not broadcast"),
            (lambda x: op.geomspace(0, 1), op.ValueError, "geomspace: start or stop is 0"),
        ):
            with self.subTest(text):
                with self.assertRaisesRegex(kind, text):
                    op.jit(lambda x: (call(x), x))(x)
                if "digitize: the bins have" not in text:
                    with self.assertRaisesRegex(kind, text):
                        call(op.Array(x))
        for text, call in (("delete", lambda x, i: op.delete(x, i)), ("insert", lambda x, i: op.insert(x, i, 0.0))):
            with self.assertRaisesRegex(op.UnsupportedError, f"{text}: the positions must be known when the function is recorded"):
                op.jit(call)(x, np.array([1]))


def load_tests(loader, tests, pattern):
    class Complete(unittest.TestCase):
        def test_every_name_is_tested(self):
            self.assertEqual(sorted(set(numpy_functions.__all__) - TESTED - {"round", "array"}), [])

    tests.addTests(loader.loadTestsFromTestCase(Complete))  # after all others
    return tests


if __name__ == "__main__":
    unittest.main()
