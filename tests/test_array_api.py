"""Compares onepass.array_api with array-api-strict, function by function: values, types, shapes and errors, in and outside of
recordings.

Skipped (77) without the Python module, array-api-strict or hypothesis. ONEPASS_TEST_FULL=1 draws more examples.
"""
import os
import sys
import unittest
import warnings

from built_module import ROOT  # skips without the module
try:
    import array_api_strict as strict
    import hypothesis
except ImportError as error:
    print(f"SKIPPED: {error} (pip install array-api-strict hypothesis)")
    sys.exit(77)

import numpy as np  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import onepass as op  # noqa: E402

xp = op.Array(np.ones(1)).__array_namespace__()
strict.set_array_api_strict_flags(api_version="2024.12")
warnings.simplefilter("ignore")  # from NumPy, under array-api-strict

FULL = bool(os.environ.get("ONEPASS_TEST_FULL"))
EXAMPLES = 400 if FULL else 40
FLOATS = ["float32", "float64"]
SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
INTEGERS = SIGNED + UNSIGNED
NUMERIC, ALL = INTEGERS + FLOATS, ["bool"] + INTEGERS + FLOATS
MISTAKES = (op.Error, TypeError, ValueError, IndexError, OverflowError)


def drawn(test):
    """Decorates a test to run with EXAMPLES draws."""
    test = hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=not FULL, print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate] + [hypothesis.Phase.shrink] * FULL,
    )(hypothesis.given(st.data())(test))  # fmt: skip
    return test


# ---- drawn values

SHAPES = st.sampled_from([(2, 3), (4,), (3, 2, 2), (5, 1, 2), (1, 3), (3, 3), (2, 5), (17,), (), (0,), (2, 0, 3), (1,)])
if FULL:
    SHAPES = SHAPES | st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=3).map(tuple)


def numbers(dtype, small=False):
    """Draws elements. `small` elements can be added and multiplied without overflow or large errors."""
    if dtype == "bool":
        return st.booleans()
    if dtype in FLOATS:
        if small:
            return st.integers(-40, 40).map(lambda i: i / 8)
        info = np.finfo(dtype)
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, float(info.max), float(info.tiny), -float(info.tiny) / 4]
        return st.sampled_from(special) | st.floats(-100, 100, width=32) | st.floats(width=int(info.bits))
    info = np.iinfo(dtype)
    if small:
        return st.integers(max(-5, int(info.min)), 5)
    return st.sampled_from([0, 1, 2, int(info.min), int(info.max)]) | st.integers(int(info.min), int(info.max))


def array(data, dtypes, shape=None, elements=None, small=False):
    dtype = data.draw(st.sampled_from(dtypes)) if isinstance(dtypes, list) else dtypes
    shape = data.draw(SHAPES) if shape is None else shape
    count = int(np.prod(shape))
    values = data.draw(st.lists(elements or numbers(dtype, small), min_size=count, max_size=count))
    return np.array(values, dtype=dtype).reshape(shape)


def reaching(data, shape):
    """Draws a shape that broadcasts with this shape, or occasionally any shape."""
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(SHAPES)
    kept = shape[data.draw(st.integers(0, len(shape))) :]
    return tuple(data.draw(st.sampled_from([n, 1])) for n in kept)


def pair(data, dtypes, small=False):
    """Draws two arrays with types of one kind that promote, or one array and a number."""
    a = array(data, dtypes, small=small)
    kind = next(k for k in (["bool"], SIGNED, UNSIGNED, FLOATS) if a.dtype.name in k)
    if data.draw(st.integers(0, 4)) == 0:
        number = data.draw(numbers(a.dtype.name, small))
        number = float(np.array(number, a.dtype)) if kind is FLOATS else number
        return [a, number] if data.draw(st.booleans()) else [number, a]
    others = [k for k in kind if k in dtypes]
    if kind is SIGNED and "uint8" in dtypes:
        others = others + ["uint8", "uint16"]
    return [a, array(data, others, reaching(data, a.shape), small=small)]


def axis_of(data, x, tuples=True, none=True):
    """Draws an axis, several or none, or occasionally an invalid one. Avoids 0 and -1 for rank 0: NumPy accepts them, the standard
    leaves them open."""
    one = st.integers(-x.ndim, x.ndim - 1) if x.ndim and data.draw(st.integers(0, 9)) else st.integers(-4, 3) if x.ndim else st.sampled_from([-4, 2, 3])
    kinds = [one]
    if none:
        kinds.append(st.none())
    if tuples:
        kinds.append(st.lists(one, max_size=max(x.ndim, 1), unique_by=lambda a: a % max(x.ndim, 1)).map(tuple))
    return data.draw(st.one_of(kinds))


# ---- comparison of results


def each(value, change):
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(each(v, change) for v in value)
    if isinstance(value, dict):
        return {k: each(v, change) for k, v in value.items()}
    return value


def plain(value):
    """Returns results as NumPy arrays."""
    if isinstance(value, op.Array):
        return np.asarray(value)
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return np.asarray(value._array) if hasattr(value, "_array") else value


def typed(args, namespace):
    """Converts names of types to types of the namespace."""
    if isinstance(args, dict):
        return {k: getattr(namespace, v) if k == "dtype" and isinstance(v, str) else v for k, v in args.items()}
    return args


class Test(unittest.TestCase):
    def close(self, got, wanted, ulp=0, scale=None, said=""):
        if isinstance(wanted, list):
            self.assertEqual(len(got), len(wanted), said)
            for g, w in zip(got, wanted):
                self.close(g, w, ulp, scale, said)
            return
        if not isinstance(wanted, np.ndarray):
            return self.assertEqual(got, wanted, said)
        self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape), said)
        if wanted.dtype.kind != "f" or ulp == 0:
            return np.testing.assert_array_equal(got, wanted, said)
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, wanted), said)
        got, wanted = got[finite], wanted[finite]
        size = np.maximum(np.abs(got), np.abs(wanted))
        if scale is not None:
            size = np.maximum(size, np.asarray(scale, wanted.dtype))
        wrong = np.abs(got - wanted) > ulp * np.spacing(size)
        self.assertFalse(wrong.any(), f"{said}: {got[wrong]} where {wanted[wrong]} was expected")

    def same_bits(self, got, wanted, said):
        if isinstance(wanted, list):
            self.assertEqual(len(got), len(wanted), said)
            for g, w in zip(got, wanted):
                self.same_bits(g, w, said)
            return
        if not isinstance(wanted, np.ndarray):
            return self.assertEqual(got, wanted, said)
        self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape), said)
        np.testing.assert_array_equal(got, wanted, said)
        if wanted.dtype.kind == "f":
            kept = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got)[kept], np.signbit(wanted)[kept], said)

    def check(self, call, args, kwargs=None, ulp=0, scale=None, recorded=True, change=None, said="", signs=False):
        """Checks that `call(namespace, *args, **kwargs)` agrees with array-api-strict, or is an error in both. `signs` compares
        signs of zeros too."""
        if isinstance(call, str):
            name = said = call
            call = lambda space, *a, **k: getattr(space, name)(*a, **k)  # noqa: E731
        kwargs = kwargs or {}
        said = f"{said} of {args!r} {kwargs!r}"
        try:
            wanted = plain(call(strict, *each(args, strict.asarray), **typed(each(kwargs, strict.asarray), strict)))
        except (TypeError, ValueError, IndexError, OverflowError):
            with self.assertRaises(MISTAKES, msg=said):
                call(xp, *each(args, op.Array), **typed(each(kwargs, op.Array), xp))
            return
        got = plain(call(xp, *each(args, op.Array), **typed(each(kwargs, op.Array), xp)))
        kept = (change or (lambda w, *_: w))(wanted, got, *args)
        self.close(got, kept, ulp, scale, said)
        if signs and wanted.dtype.kind == "f":
            zero = (wanted == 0) & (got == 0)
            np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(wanted)[zero], said)
        if isinstance(got, list) and not got:
            return  # a compiled function must have results
        leaves = []

        def put(x):
            leaves.append(x)
            return Leaf(len(leaves) - 1)

        nested_args, nested_kwargs = each(args, put), each(kwargs, put)
        function = op.jit(lambda xs: call(xp, *filled(nested_args, xs), **typed(filled(nested_kwargs, xs), xp)))
        if recorded:
            self.same_bits(plain(function(leaves)), got, f"recorded: {said}")
        else:
            with self.assertRaises(op.UnsupportedError, msg=said):
                function(leaves)


class Leaf:
    def __init__(self, at):
        self.at = at


def filled(value, xs):
    if isinstance(value, Leaf):
        return xs[value.at]
    if isinstance(value, (tuple, list)):
        return type(value)(filled(v, xs) for v in value)
    if isinstance(value, dict):
        return {k: filled(v, xs) for k, v in value.items()}
    return value


UNARY = {  # name: types, ULPs between two correct results
    **{name: (NUMERIC, 0) for name in "abs ceil floor round trunc isfinite isinf isnan positive negative sign square".split()},
    **{name: (FLOATS, 0) for name in "sqrt reciprocal signbit".split()},
    **{name: (FLOATS, 4) for name in "exp expm1 log log10 log1p log2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()},
    "logical_not": (["bool"], 0),
    "bitwise_invert": (["bool"] + INTEGERS, 0),
}
BINARY = {
    **{name: (NUMERIC, 0) for name in "add subtract multiply maximum minimum less less_equal greater greater_equal".split()},
    **{name: (ALL, 0) for name in "equal not_equal".split()},
    **{name: (["bool"], 0) for name in "logical_and logical_or logical_xor".split()},
    **{name: (["bool"] + INTEGERS, 0) for name in "bitwise_and bitwise_or bitwise_xor".split()},
    **{name: (FLOATS, 0) for name in "divide copysign nextafter".split()},
    **{name: (FLOATS, 4) for name in "atan2 hypot logaddexp".split()},
    "pow": (FLOATS, 4),
}
OPERATORS = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "floor_divide": "__floordiv__",
    "remainder": "__mod__", "pow": "__pow__", "bitwise_and": "__and__", "bitwise_or": "__or__", "bitwise_xor": "__xor__",
    "bitwise_left_shift": "__lshift__", "bitwise_right_shift": "__rshift__", "equal": "__eq__", "not_equal": "__ne__", "less": "__lt__",
    "less_equal": "__le__", "greater": "__gt__", "greater_equal": "__ge__", "matmul": "__matmul__",
}  # fmt: skip


class Elementwise(Test):
    def test_one_operand(self):
        for name, (dtypes, ulp) in UNARY.items():

            @drawn
            def run(data):
                self.check(name, [array(data, dtypes)], ulp=ulp, signs=True)

            with self.subTest(name):
                run()

    def test_two_operands(self):
        for name, (dtypes, ulp) in BINARY.items():

            @drawn
            def run(data):
                operands = pair(data, dtypes)
                if name == "pow":  # NumPy's pow is sqrt for 0.5, which differs from the standard at -0 and -inf
                    hypothesis.assume(not (np.ndim(operands[1]) == 0 and operands[1] == 0.5))
                self.check(name, operands, ulp=ulp, signs=name not in ("maximum", "minimum"))  # the language orders zeros

            with self.subTest(name):
                run()

    @drawn
    def test_division_of_integers(self, data):
        a, b = pair(data, INTEGERS)
        if isinstance(b, np.ndarray):
            b = np.asarray(np.where(b == 0, 1, b), b.dtype)
        elif b == 0:
            b = 1
        for name in ("floor_divide", "remainder"):
            self.check(name, [a, b])

    @drawn
    def test_division_of_floats(self, data):
        """Avoids infinite operands and divisors of 0, which the standard leaves open."""
        a, b = (np.asarray(np.where(np.isfinite(x) & (x != 0), x, 3), x.dtype) for x in map(np.asarray, pair(data, FLOATS, small=True)))
        for name in ("floor_divide", "remainder"):
            self.check(name, [a, b])

    @drawn
    def test_powers_of_integers(self, data):
        x = array(data, INTEGERS)
        self.check("pow", [x, array(data, x.dtype.name, reaching(data, x.shape), elements=st.integers(0, 6))])
        self.check("pow", [x, data.draw(st.integers(0, 4))])

    @drawn
    def test_shifts(self, data):
        x = array(data, INTEGERS)
        counts = array(data, x.dtype.name, reaching(data, x.shape), elements=st.integers(0, 8 * x.dtype.itemsize - 1))
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            self.check(name, [x, counts])

    @drawn
    def test_clip(self, data):
        x = array(data, NUMERIC)
        bound = lambda: data.draw(st.none() | numbers(x.dtype.name, small=True)) if data.draw(st.booleans()) else array(data, x.dtype.name, reaching(data, x.shape), small=True)  # noqa: E731
        lo, hi = bound(), bound()
        if lo is not None and hi is not None:
            lo, hi = np.minimum(*np.broadcast_arrays(lo, hi)) if isinstance(lo, (int, float)) and isinstance(hi, (int, float)) else lo, hi
        try:
            ordered = lo is None or hi is None or bool(np.all(np.asarray(lo) <= np.asarray(hi)))
            np.broadcast_shapes(x.shape, np.shape(lo), np.shape(hi))
        except ValueError:
            return
        if ordered and np.ndim(lo) == 0 and isinstance(lo, np.generic):
            lo = lo.item()
        if ordered:  # otherwise the standard leaves the result open
            self.check("clip", [x, lo, hi])

    def test_operators(self):
        """Tests methods, reflected and in place."""
        for name, method in OPERATORS.items():
            dtypes = ["int32"] if name.startswith("bitwise") else FLOATS

            @drawn
            def run(data):
                x, y = array(data, dtypes, (3, 2, 2), small=True), array(data, dtypes, (2, 2), small=True)
                y = y.astype(x.dtype)
                x, y = (np.abs(x) + 1).astype(x.dtype), (np.abs(y) + 1).astype(x.dtype)
                ulp = 4 if name in ("pow", "matmul") else 0
                self.check(lambda space, a, b: getattr(a, method)(b), [x, y], ulp=ulp, said=method)
                scalar = 2 if dtypes == ["int32"] else 2.0
                if name != "matmul":
                    self.check(lambda space, a: getattr(a, method)(scalar), [x], ulp=ulp, said=method)
                if name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
                    return
                reflected, in_place = method.replace("__", "__r", 1), method.replace("__", "__i", 1)
                if name != "matmul":
                    self.check(lambda space, a: getattr(a, reflected)(scalar), [x], ulp=ulp, said=reflected)
                mine, shared = op.Array(x.copy()), None
                shared = np.asarray(mine)
                wanted = np.asarray(getattr(mine, method)(op.Array(y)))
                result = getattr(mine, in_place)(op.Array(y)) if name != "matmul" else mine
                if name != "matmul":
                    self.assertIs(result, mine)
                    np.testing.assert_array_equal(shared, wanted)

            with self.subTest(name):
                run()

    def test_in_place(self):
        x = op.Array(np.arange(4, dtype=np.int32))
        seen = np.asarray(x)
        x += 1
        x *= op.Array(np.array([2], np.int32))
        np.testing.assert_array_equal(seen, [2, 4, 6, 8])
        with self.assertRaises(op.DTypeError):
            x += 0.5  # the result is not an i32
        with self.assertRaises(op.ShapeError):
            x += op.Array(np.ones((2, 4), np.int32))
        m = op.Array(np.eye(2, dtype=np.float32))
        m @= m * 3
        np.testing.assert_array_equal(m, np.eye(2) * 3)

        @op.jit
        def f(x):
            y = x
            y += 1
            return x, y

        np.testing.assert_array_equal(f(np.zeros(2))[0], 0)
        np.testing.assert_array_equal(f(np.zeros(2))[1], 1)

    @drawn
    def test_unary_operators_and_attributes(self, data):
        x = array(data, ["int8", "int64", "float32", "float64"], (2, 3))
        for method in ("__abs__", "__neg__", "__pos__"):
            self.check(lambda space, a: getattr(a, method)(), [x], said=method)
        self.check(lambda space, a: a.T, [x], said="T")
        self.check(lambda space, a: a.mT, [np.stack([x, x])], said="mT")
        for attribute in ("ndim", "shape", "size"):
            self.assertEqual(getattr(op.Array(x), attribute), getattr(strict.asarray(x), attribute))
        number = array(data, ALL, ())
        mine, theirs = op.Array(number), strict.asarray(number)
        self.assertEqual(bool(mine), bool(theirs))
        if np.isfinite(number):
            self.assertEqual((int(mine), float(mine), complex(mine)), (int(theirs), float(theirs), complex(theirs)))
        if number.dtype.kind in "iu":
            self.assertEqual(mine.__index__(), theirs.__index__())
        else:
            with self.assertRaises(TypeError):
                mine.__index__()
        self.assertEqual(mine.to_device(mine.device).device, "cpu")


def magnitude(x, axis=None):
    """Returns the unit of a sum's error: the sum of its elements' magnitudes."""
    return float(np.sum(np.abs(np.where(np.isfinite(x), x, 0)), dtype=np.float64)) + 1 if x.dtype.kind == "f" else None


class Statistical(Test):
    def test_reductions(self):
        for name, dtypes in {"sum": NUMERIC, "prod": NUMERIC, "mean": FLOATS, "max": NUMERIC, "min": NUMERIC, "all": ALL, "any": ALL, "count_nonzero": ALL}.items():

            @drawn
            def run(data):
                x = array(data, dtypes, small=name in ("prod", "sum", "mean"))
                hypothesis.assume(x.size or name not in ("max", "min"))
                kwargs = {"axis": axis_of(data, x), "keepdims": data.draw(st.booleans())}
                if name in ("sum", "prod") and data.draw(st.integers(0, 2)) == 0:
                    kwargs["dtype"] = data.draw(st.sampled_from(FLOATS if x.dtype.kind == "f" else SIGNED if x.dtype.kind == "i" else UNSIGNED))
                self.check(name, [x], kwargs, ulp=16 if x.dtype.kind == "f" and name in ("sum", "prod", "mean") else 0, scale=magnitude(x) if name in ("sum", "mean") else None)

            with self.subTest(name):
                run()

    def test_spread(self):
        for name in ("var", "std"):

            @drawn
            def run(data):
                x = array(data, FLOATS, small=True)
                kwargs = {"axis": axis_of(data, x), "correction": data.draw(st.sampled_from([0, 1, 0.0, 1.0, 0.5, 2]))}
                self.check(name, [x], dict(kwargs, keepdims=data.draw(st.booleans())), ulp=256, change=lambda w, g, *_: np.where(np.isnan(g) & ~np.isfinite(w), g, w))

            with self.subTest(name):
                run()

    def test_cumulative(self):
        for name in ("cumulative_sum", "cumulative_prod"):

            @drawn
            def run(data):
                x = array(data, NUMERIC, small=True)
                hypothesis.assume(x.ndim)
                kwargs = {"axis": axis_of(data, x, tuples=False), "include_initial": data.draw(st.booleans())}
                if data.draw(st.integers(0, 2)) == 0:
                    kwargs["dtype"] = data.draw(st.sampled_from(FLOATS if x.dtype.kind == "f" else SIGNED if x.dtype.kind == "i" else UNSIGNED))
                self.check(name, [x], kwargs, ulp=16)

            with self.subTest(name):
                run()

    def test_arg(self):
        for name in ("argmax", "argmin"):

            @drawn
            def run(data):
                x = array(data, NUMERIC)
                hypothesis.assume(x.size)
                self.check(name, [x], {"axis": axis_of(data, x, tuples=False), "keepdims": data.draw(st.booleans())})

            with self.subTest(name):
                run()

    def test_a_sum_of_another_type_is_one_of_cast_elements(self):
        x = op.Array(np.array([1, 2.0**-40, 2.0**-40], np.float32))
        self.assertEqual(float(xp.sum(x, dtype=xp.float64)), 1 + 2.0**-39)
        self.assertEqual(float(xp.prod(op.Array(np.full(2, 1e30, np.float32)), dtype=xp.float64)), float(np.float32(1e30)) ** 2)

    def test_largest_of_nothing(self):
        for name in ("max", "min", "argmax", "argmin"):
            f = getattr(xp, name)
            for shape, axis in (((0,), None), ((0, 3), 0), ((3, 0), 1)):
                with self.assertRaises(ValueError):
                    f(xp.zeros(shape), axis=axis)
            self.assertEqual(f(xp.zeros((0, 3)), axis=1).shape, (0,))

    @drawn
    def test_diff(self, data):
        x = array(data, NUMERIC, small=True)
        kwargs = {"axis": axis_of(data, x, tuples=False, none=False)}
        kwargs["n"] = data.draw(st.integers(0 if -x.ndim <= kwargs["axis"] < x.ndim else 1, 3))
        for name in ("prepend", "append"):
            if data.draw(st.booleans()) and x.ndim and -x.ndim <= kwargs["axis"] < x.ndim:
                shape = list(x.shape)
                shape[kwargs["axis"]] = data.draw(st.integers(0, 2))
                kwargs[name] = array(data, x.dtype.name, tuple(shape), small=True)
        self.check("diff", [x], kwargs)


class Manipulation(Test):
    def test_wrong_axes(self):
        for axis in (3, -4):
            with self.assertRaises(op.IndexError):
                op.array_api.expand_dims(op.Array(np.zeros((2, 3))), axis=axis)

    @drawn
    def test_shapes(self, data):
        x = array(data, ALL)
        shapes = [(-1,), x.shape[::-1], (1,) + x.shape, (x.size,), (2, -1), (3, 3), ()]
        shape = data.draw(st.sampled_from(shapes))
        if not (-1 in shape and x.size == 0):
            self.check("reshape", [x, shape])
        self.check("expand_dims", [x], {"axis": axis_of(data, x, tuples=False, none=False)})
        squeezed = axis_of(data, x, none=False)
        self.check("squeeze", [x, squeezed])
        self.check("flip", [x], {"axis": axis_of(data, x)})
        self.check("broadcast_to", [x, data.draw(st.sampled_from([x.shape, (2,) + x.shape, (2, 3), (4,) + x.shape[1:], ()]))])
        order = data.draw(st.permutations(range(x.ndim)))
        self.check("permute_dims", [x, tuple(order)])
        self.check("permute_dims", [x, tuple(order) + (0,)])
        one, to = axis_of(data, x, tuples=False, none=False), axis_of(data, x, tuples=False, none=False)
        self.check("moveaxis", [x, one, to])
        if x.ndim > 1:
            self.check("moveaxis", [x, (0, -1), (-1, 0)])
        self.check("matrix_transpose", [x])

    @drawn
    def test_repetitions(self, data):
        x = array(data, ALL)
        axis = axis_of(data, x, tuples=False)
        self.check("repeat", [x, data.draw(st.integers(0, 3))], {"axis": axis})
        if axis is not None and -x.ndim <= axis < x.ndim:
            counts = array(data, "int64", (x.shape[axis],), elements=st.integers(0, 3))
            self.check("repeat", [x, counts], {"axis": axis}, recorded=False)
        self.check("tile", [x, tuple(data.draw(st.lists(st.integers(0, 3), max_size=4)))])
        shifts, axes = data.draw(st.integers(-7, 7)), axis_of(data, x) or None
        if isinstance(axes, tuple) and data.draw(st.booleans()):
            shifts = tuple(data.draw(st.lists(st.integers(-7, 7), min_size=len(axes), max_size=len(axes))))
        self.check("roll", [x, shifts], {"axis": axes})

    @drawn
    def test_joined(self, data):
        x = array(data, ALL)
        parts = [x]
        for _ in range(data.draw(st.integers(0, 2))):
            parts.append(array(data, x.dtype.name, x.shape if data.draw(st.integers(0, 5)) else x.shape[::-1]))
        self.check("concat", [parts], {"axis": axis_of(data, x, tuples=False)})
        self.check("stack", [parts], {"axis": axis_of(data, x, tuples=False, none=False)})
        self.check("unstack", [x], {"axis": axis_of(data, x, tuples=False, none=False)})
        self.check("broadcast_arrays", parts)

    @drawn
    def test_triangles(self, data):
        x, k = array(data, ALL), data.draw(st.integers(-4, 4))
        self.check("tril", [x], {"k": k})
        self.check("triu", [x], {"k": k})

    @drawn
    def test_where(self, data):
        x, y = pair(data, ALL)
        shape = x.shape if isinstance(x, np.ndarray) else y.shape
        self.check("where", [array(data, "bool", reaching(data, shape)), x, y])

    @drawn
    def test_take(self, data):
        x = array(data, ALL, data.draw(st.sampled_from([(3,), (2, 3), (5, 1, 2)])))
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        n = x.shape[axis]
        indices = array(data, ["int32", "int64"], data.draw(st.sampled_from([(0,), (4,)])), elements=st.integers(0, n - 1))
        self.check("take", [x, indices], {"axis": axis})
        self.check("take", [x, indices])
        along = list(x.shape)
        along[axis] = data.draw(st.integers(1, 4))
        self.check("take_along_axis", [x, array(data, "int64", tuple(along), elements=st.integers(0, n - 1))], {"axis": axis})


class Indexing(Test):
    """Tests the indices that __getitem__ and __setitem__ accept."""

    @drawn
    def test_basic(self, data):
        x = array(data, ALL, data.draw(st.sampled_from([(3,), (2, 3), (4, 1, 2), ()])))
        key = []
        for n in x.shape:
            key.append(data.draw(st.integers(-n, n - 1) | st.builds(slice, st.none() | st.integers(0, n), st.none() | st.integers(0, n), st.none() | st.integers(1, 2))))
        if data.draw(st.booleans()):
            key.insert(data.draw(st.integers(0, len(key))), None)
        key = tuple(key) if data.draw(st.booleans()) or not x.ndim else (Ellipsis,)
        self.check(lambda space, a: a[key], [x], said=f"x[{key}]")

    @drawn
    def test_by_arrays(self, data):
        x = array(data, ALL, data.draw(st.sampled_from([(3,), (2, 3), (4, 1, 2)])))
        shape = data.draw(st.sampled_from([(2,), (2, 2), (0,)]))
        key = [array(data, "int64", shape if data.draw(st.integers(0, 3)) else (1,), elements=st.integers(-n, n - 1)) for n in x.shape]
        if len(key) > 1 and data.draw(st.booleans()):
            key[0] = data.draw(st.integers(-x.shape[0], x.shape[0] - 1))
        self.check(lambda space, a, *k: a[k if len(k) > 1 else k[0]], [x] + key, said="by arrays")

    def test_by_arrays_of_some_axes(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        i, j = np.array([0, 1, -1]), np.array([2, -3, 0])
        for f in (lambda x, i, j: x[i, j], lambda x, i, j: x[:, j], lambda x, i, j: x[..., j], lambda x, i, j: x[i, j, ...], lambda x, i, j: x[None, :, 1:][..., i], lambda x, i, j: x[i, 1]):
            np.testing.assert_array_equal(f(op.Array(x), op.Array(i), op.Array(j)), f(x, i, j))
            np.testing.assert_array_equal(op.jit(f)(x, i, j), f(x, i, j))
        for wrong in ([5, 0], [0, -4]):
            with self.assertRaises(op.IndexError):
                op.jit(lambda x, i, j: x[i, j])(x, np.array([0, 0]), np.array(wrong))
            with self.assertRaises(op.IndexError):
                op.Array(x)[op.Array(np.array([0, 0])), op.Array(np.array(wrong))]

    @drawn
    def test_by_a_mask(self, data):
        x = array(data, ALL)
        mask = array(data, "bool", x.shape[: data.draw(st.integers(0, x.ndim))] if data.draw(st.booleans()) else x.shape)
        self.check(lambda space, a, m: a[m], [x, mask], recorded=False, said="by a mask")
        value = data.draw(numbers(x.dtype.name))

        def assigned(space, a, m):
            a = space.asarray(a, copy=True)
            a[m] = value
            return a

        mine, theirs = assigned(xp, op.Array(x), op.Array(mask)), assigned(strict, strict.asarray(x), strict.asarray(mask))
        self.close(plain(mine), plain(theirs))

    def test_assignment(self):
        x = op.Array(np.zeros((3, 2), np.uint8))
        x[x == 0] = 300.0  # cast by the rules of the language
        self.assertEqual(np.asarray(x).tolist(), [[255, 255]] * 3)
        x[op.Array(np.array([0, 2])), op.Array(np.array([1, 0]))] = op.Array(np.array([7, 8], np.uint8))
        self.assertEqual(np.asarray(x).tolist(), [[255, 7], [255, 255], [8, 255]])
        h = op.Array(np.arange(4.0), op.bf16)
        self.assertEqual(h[op.Array(np.array([True, False, True, False]))].tolist(), [0, 2])
        with self.assertRaises(TypeError):
            op.jit(lambda x: x.__setitem__(x > 0, 0))(np.zeros(2))
        with self.assertRaises(IndexError):
            x[np.zeros((4, 4), bool)] = 1


class Elements(Test):
    """Tests sorting, and sets and results with value-dependent shapes, which are errors inside recordings."""

    @drawn
    def test_nonzero(self, data):
        self.check("nonzero", [array(data, ALL)], recorded=False)

    @drawn
    def test_sorted(self, data):
        x = array(data, NUMERIC)
        if x.dtype.kind == "f":
            x = np.asarray(np.where(np.isnan(x), 0, x), x.dtype)  # the standard leaves the position of NaN open
        for name in ("sort", "argsort"):
            kwargs = {"axis": axis_of(data, x, tuples=False, none=False), "descending": data.draw(st.booleans()), "stable": True}
            self.check(name, [x], kwargs)

    @drawn
    def test_searchsorted(self, data):
        x = np.sort(array(data, FLOATS + ["int32", "int64"], (data.draw(st.integers(0, 5)),), small=True))
        y = array(data, x.dtype.name, small=True)
        self.check("searchsorted", [x, y], {"side": data.draw(st.sampled_from(["left", "right"]))})
        order = np.argsort(-x)
        self.check("searchsorted", [-x, y], {"sorter": order})

    @drawn
    def test_unique(self, data):
        x = array(data, ALL, small=data.draw(st.booleans()))
        if x.dtype.kind == "f":
            x = np.asarray(np.where(np.isnan(x), 0, x), x.dtype)  # the standard leaves the order of NaNs open
        for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
            self.check(name, [x], recorded=False)

    def test_every_nan_is_different(self):
        self.assertEqual(np.asarray(xp.unique_counts(op.Array([np.nan, 1.0, np.nan])).counts).tolist(), [1, 1, 1])

    def test_inside_a_recording(self):
        for call in (lambda x: xp.unique_values(x), lambda x: xp.nonzero(x)[0], lambda x: x[x > 0], lambda x: xp.unique_counts(op.Array([1.0]))):
            with self.assertRaisesRegex(op.UnsupportedError, "outside the compiled function"):
                op.jit(call)(np.ones(3))


class LinearAlgebra(Test):
    @drawn
    def test_matmul(self, data):
        n, m, k = (data.draw(st.sampled_from([0, 1, 2, 3])) for _ in range(3))
        x, y = data.draw(st.sampled_from([((n,), (n,)), ((n, m), (m, k)), ((m,), (m, k)), ((n, m), (m,)), ((2, n, m), (m, k)), ((n, m), (k, n)), ((2, 1, n, m), (3, m, k)), ((), (2,))]))
        dtype = data.draw(st.sampled_from(NUMERIC))
        self.check("matmul", [array(data, dtype, x, small=True), array(data, dtype, y, small=True)])

    @drawn
    def test_tensordot(self, data):
        dtype = data.draw(st.sampled_from(NUMERIC))
        x, y, axes = data.draw(st.sampled_from([((2, 3), (3, 2), 1), ((2, 3), (2, 3), 2), ((2,), (3,), 0), ((2, 3, 4), (4, 3), ((1, 2), (1, 0))), ((2, 3), (2,), 1), ((2, 0), (0, 2), 1), ((2, 3), (3, 2), ((-1,), (0,))), ((), (2,), 0), ((2, 3), (2, 3), 3)]))
        self.check("tensordot", [array(data, dtype, x, small=True), array(data, dtype, y, small=True)], {"axes": axes})

    @drawn
    def test_vecdot(self, data):
        dtype = data.draw(st.sampled_from(NUMERIC))
        x, y, axis = data.draw(st.sampled_from([((3,), (3,), -1), ((2, 3), (3,), -1), ((2, 3), (2, 1), -2), ((2, 3), (2, 3), -2), ((2, 3), (2, 1), -1), ((0,), (0,), -1), ((2, 3), (4, 1, 3), -1), ((), (), -1)]))
        self.check("vecdot", [array(data, dtype, x, small=True), array(data, dtype, y, small=True)], {"axis": axis})


class Creation(Test):
    @drawn
    def test_filled(self, data):
        shape = data.draw(SHAPES | st.integers(0, 3))
        dtype = data.draw(st.sampled_from(ALL))
        for name in ("zeros", "ones"):
            self.check(name, [shape], {"dtype": dtype})
        value = data.draw(numbers(dtype))
        self.check("full", [shape, value], {"dtype": dtype})
        x = array(data, ALL)
        for name in ("zeros_like", "ones_like"):
            self.check(name, [x])
            self.check(name, [x], {"dtype": dtype})
        self.check("full_like", [x, data.draw(numbers(x.dtype.name))])
        self.assertEqual((xp.empty(shape, dtype=getattr(xp, dtype)).shape, xp.empty_like(op.Array(x)).dtype), (strict.empty(shape).shape, x.dtype))

    def test_types_without_dtype(self):
        for value, dtype in ((True, "bool"), (3, "int64"), (0.5, "float32")):
            for made in (xp.full((2,), value), xp.asarray(value), xp.asarray([value, value]), xp.asarray([[value]])):
                self.assertEqual(made.dtype, dtype)
        for made in (xp.zeros(2), xp.ones(2), xp.empty(2), xp.eye(2), xp.linspace(0, 1, 3), xp.arange(0.0, 2), xp.asarray([]), xp.asarray([1, 0.5])):
            self.assertEqual(made.dtype, "float32")
        self.assertEqual(xp.arange(3).dtype, "int64")
        for wrong in (1j, [1j]):
            with self.assertRaises(op.DTypeError):
                xp.asarray(wrong)
        with self.assertRaises(OverflowError):
            xp.asarray(2**70)

    @drawn
    def test_ranges(self, data):
        whole = st.integers(-20, 20)
        args = [data.draw(whole)] if data.draw(st.booleans()) else [data.draw(whole), data.draw(whole), data.draw(st.integers(-5, 5).filter(bool))]
        self.check("arange", args, {"dtype": data.draw(st.sampled_from(["int64", "int32", "float32", "float64"]))})
        eighths = st.integers(-80, 80).map(lambda i: i / 8)
        self.check("arange", [data.draw(eighths), data.draw(eighths), data.draw(eighths.filter(bool))], {"dtype": "float64"})
        kwargs = {"endpoint": data.draw(st.booleans()), "dtype": data.draw(st.sampled_from(FLOATS))}
        self.check("linspace", [data.draw(eighths), data.draw(eighths), data.draw(st.integers(0, 9))], kwargs, ulp=2, scale=10)
        self.check("eye", [data.draw(st.integers(0, 4)), data.draw(st.none() | st.integers(0, 4))], {"k": data.draw(st.integers(-5, 5)), "dtype": data.draw(st.sampled_from(ALL))})

    def test_the_last_of_a_range(self):
        for dtype in FLOATS:
            for num in range(2, 60):
                self.assertEqual(np.asarray(xp.linspace(0, 0.1, num, dtype=dtype))[-1], np.array(0.1, dtype))
                self.assertEqual(np.asarray(op.jit(lambda: xp.linspace(0, 0.1, num, dtype=dtype))())[-1], np.array(0.1, dtype))

    @drawn
    def test_meshgrid(self, data):
        dtype = data.draw(st.sampled_from(ALL))
        args = [array(data, dtype, (data.draw(st.integers(0, 3)),)) for _ in range(data.draw(st.integers(0, 3)))]
        self.check("meshgrid", args, {"indexing": data.draw(st.sampled_from(["xy", "ij"]))})

    def test_asarray(self):
        x = np.arange(3.0)
        a = xp.asarray(x)
        self.assertTrue(np.shares_memory(np.asarray(a), x))
        self.assertIs(xp.asarray(a), a)
        self.assertFalse(np.shares_memory(np.asarray(xp.asarray(a, copy=True)), x))
        self.assertTrue(np.shares_memory(np.asarray(xp.from_dlpack(x)), x))
        self.assertFalse(np.shares_memory(np.asarray(xp.from_dlpack(x, copy=True)), x))
        self.assertEqual(xp.asarray([a, a]).shape, (2, 3))
        self.assertEqual(np.asarray(xp.asarray(x, dtype=xp.int8)).tolist(), [0, 1, 2])
        for wrong in (lambda: xp.asarray([1, 2], copy=False), lambda: xp.asarray(x, dtype=xp.int8, copy=False)):
            with self.assertRaises(ValueError):
                wrong()
        # A list in a recorded function is read once; an Array is read at each call.
        self.assertEqual(np.asarray(op.jit(lambda y: y + xp.asarray([1, 2, 3]) + xp.asarray(x, dtype=xp.int8))(x)).tolist(), [1, 4, 7])

    def test_reshape_without_a_copy(self):
        x = np.arange(6.0).reshape(2, 3)
        self.assertTrue(np.shares_memory(np.asarray(xp.reshape(op.Array(x), (3, 2), copy=False)), x))
        with self.assertRaises(ValueError):
            xp.reshape(op.Array(x.T), (6,), copy=False)
        self.assertFalse(np.shares_memory(np.asarray(xp.reshape(op.Array(x), (3, 2), copy=True)), x))


class Types(Test):
    def test_promotion(self):
        """Tests the standard's table. Types that it leaves open follow the language, like the operators."""
        for a in ALL:
            for b in ALL:
                mine, theirs = (getattr(xp, a), getattr(xp, b)), (getattr(strict, a), getattr(strict, b))
                try:
                    wanted = strict.result_type(*theirs)
                except TypeError:
                    wanted = None
                if wanted is not None:
                    self.assertEqual(xp.result_type(*mine).name, xp.result_type(getattr(xp, str(wanted).split(".")[-1].rstrip("')>"))).name, (a, b))
                    self.assertEqual(xp.can_cast(*mine), strict.can_cast(*theirs), (a, b))
        every = ALL + ["float16", "bfloat16"]
        for a in every:
            for b in every:
                x, y = op.zeros((), a), op.zeros((), b)
                try:
                    wanted = op.where(True, x, y).dtype
                except op.DTypeError:
                    with self.assertRaises(op.DTypeError):
                        xp.result_type(x, y)
                    continue
                self.assertEqual(xp.result_type(x, y), wanted, (a, b))
            for number in (True, 3, 0.5):
                self.assertEqual(xp.result_type(op.zeros((), a), number), op.where(True, op.zeros((), a), number).dtype, (a, number))

    def test_kinds(self):
        kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric", ("bool", "integral")]
        for name in ALL:
            for kind in kinds:
                self.assertEqual(xp.isdtype(getattr(xp, name), kind), strict.isdtype(getattr(strict, name), kind), (name, kind))
            self.assertTrue(xp.isdtype(getattr(xp, name), getattr(xp, name)))
        self.assertTrue(xp.isdtype(op.bf16, "real floating"))
        with self.assertRaises(ValueError):
            xp.isdtype(xp.bool, "integer")

    def test_limits(self):
        for name in FLOATS + ["float16"]:
            mine, theirs = xp.finfo(op.dtype(name)), np.finfo(name)
            for field in ("bits", "eps", "max", "min", "smallest_normal"):
                self.assertEqual(getattr(mine, field), float(getattr(theirs, field)), (name, field))
        for name in INTEGERS:
            mine, theirs = xp.iinfo(op.zeros((), name)), np.iinfo(name)
            self.assertEqual((mine.bits, mine.max, mine.min, mine.dtype), (theirs.bits, theirs.max, theirs.min, name))
        with self.assertRaises(TypeError):
            xp.finfo(xp.int8)
        with self.assertRaises(TypeError):
            xp.iinfo(xp.float32)

    @drawn
    def test_astype(self, data):
        x = array(data, ALL, small=True)
        to = data.draw(st.sampled_from(ALL))
        if to in UNSIGNED:
            x = np.asarray(np.abs(x))
        self.check(lambda space, a: space.astype(a, getattr(space, to)), [x], said=f"astype {to}")
        a = op.Array(x)
        self.assertIs(xp.astype(a, a.dtype, copy=False), a)
        self.assertIsNot(xp.astype(a, a.dtype), a)


class Namespace(Test):
    # Names of the standard that onepass lacks, as listed in docs/python.md.
    LEFT_OUT = {"complex64", "complex128", "conj", "imag", "real", "fft", "linalg"}
    OF_STRICT = {"ArrayAPIStrictFlags", "Device", "__version__", "get_array_api_strict_flags", "reset_array_api_strict_flags", "set_array_api_strict_flags"}

    def test_every_name(self):
        wanted = set(strict.__all__) - self.OF_STRICT - self.LEFT_OUT
        self.assertGreater(len(wanted), 140)
        self.assertEqual(wanted - set(dir(xp)), set())
        self.assertEqual({name for name in self.LEFT_OUT if hasattr(xp, name)}, set())
        self.assertEqual(set(xp.__all__) - set(strict.__all__), set())
        with open(os.path.join(ROOT, "docs/python.md")) as f:
            page = f.read()
        for name in self.LEFT_OUT:
            self.assertIn(f"`{name}`", page)

    def test_every_method(self):
        theirs = strict.asarray(1.0)
        wanted = {name for name in dir(theirs) if not name.startswith("_") or (name.startswith("__") and name not in dir(object()))}
        wanted -= {"__annotations__", "__module__", "__slots__", "__weakref__", "__buffer__"}
        self.assertGreater(len(wanted), 60)
        self.assertEqual({name for name in wanted if not hasattr(op.Array, name)}, set())
        not_on_tensors = {"__dlpack__", "__dlpack_device__", "__complex__"} | {name for name in wanted if name.startswith("__i") and name not in ("__index__", "__int__", "__invert__", "__iter__")}
        self.assertEqual({name for name in wanted - not_on_tensors if not hasattr(op.Tensor, name)}, set())

    def test_every_function_is_tested(self):
        with open(os.path.abspath(__file__)) as f:
            text = f.read()
        tables = set(UNARY) | set(BINARY)
        self.assertEqual({name for name in xp.__all__ if name not in tables and text.count(f'"{name}"') + text.count(f"xp.{name}") == 0}, set())

    def test_namespace(self):
        import onepass.array_api

        a = op.Array(np.ones(2))
        for version in (None, "2022.12", "2024.12"):
            self.assertIs(a.__array_namespace__(api_version=version), onepass.array_api)
        with self.assertRaises(ValueError):
            a.__array_namespace__(api_version="1999.12")
        seen = []
        op.jit(lambda x: seen.append(x.__array_namespace__()) or x + 1)(np.ones(2))
        self.assertEqual(seen, [onepass.array_api])

    def test_info(self):
        info = xp.__array_namespace_info__()
        self.assertEqual(set(info.dtypes()), set(ALL))
        self.assertEqual(set(info.dtypes(kind="real floating")), set(FLOATS))
        self.assertEqual(info.default_dtypes()["real floating"], xp.zeros(1).dtype)
        self.assertEqual(info.default_dtypes()["integral"], xp.arange(1).dtype)
        self.assertEqual((info.default_device(), info.devices()), ("cpu", ["cpu"]))
        self.assertEqual(set(info.capabilities()), set(strict.__array_namespace_info__().capabilities()))
        self.assertEqual((xp.e, xp.pi, xp.inf, xp.newaxis, xp.__array_api_version__), (np.e, np.pi, np.inf, None, "2024.12"))
        self.assertNotEqual(xp.nan, xp.nan)
        self.assertEqual(xp.broadcast_shapes((2, 1), (3,)), (2, 3))
        with self.assertRaises(ValueError):
            xp.broadcast_shapes((2,), (3,))
        for isin in (xp.isin, op.jit(xp.isin)):
            self.assertEqual(isin(op.Array([1, 2, 3]), op.Array([2, 9])).tolist(), [False, True, False])

    def test_a_recorded_function_is_fused(self):
        """Tests code for any namespace, as libraries write it: one kernel for each pass."""

        def standardised(x, axis=0):
            xp = x.__array_namespace__()
            centred = x - xp.mean(x, axis=axis, keepdims=True)
            spread = xp.std(x, axis=axis, keepdims=True)
            return centred / xp.where(spread == 0, xp.asarray(1.0, dtype=x.dtype, device=x.device), spread)

        x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
        f = op.jit(lambda x: standardised(x))
        np.testing.assert_allclose(f(x), standardised(strict.asarray(x))._array, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(standardised(op.Array(x)), np.asarray(f(x)), rtol=0)
        self.assertEqual(f.stats()["kernels"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=1)
