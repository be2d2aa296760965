"""NumPy's functions of elements: compositions of operators, which fuse. Types follow the language where NumPy gives f64 for integers."""
import math

from .. import _core, names
from ..array_api import dtypes as _dtypes, elementwise as _elementwise
from ..transforms import while_loop
from .operands import array_of, composed, constant, is_float, operands, to_float, whole

__all__ = """allclose amax amin around array_equal array_equiv choose deg2rad degrees divmod fabs fix float_power fmax fmin gcd heaviside isclose
    isin isneginf isposinf lcm logaddexp2 modf nan_to_num nextafter piecewise positive rad2deg radians rint round round_ select sinc""".split()

amax, amin, fix, rint = _core.max, _core.min, _core.trunc, _core.round


# ---- elements


@composed()
def fabs(x):
    """Returns absolute values as floating-point numbers."""
    return _core.abs(to_float(x))


def positive(x):
    """Returns the elements unchanged. Errors: DTypeError for bool."""
    return _elementwise.positive(array_of(x))


def nextafter(x1, x2):
    """Returns the number next to x1 in the direction of x2, for f32 or f64."""
    return _elementwise.nextafter(array_of(x1), array_of(x2))


@composed()
def float_power(x, y):
    """Returns x to the power y in f64."""
    return _core.pow(_core.cast(x, _core.f64), _core.cast(y, _core.f64))


@composed()
def divmod(x1, x2):
    """Returns floor_div(x1, x2) and remainder(x1, x2)."""
    return _core.floor_div(x1, x2), _core.remainder(x1, x2)


@composed()
def modf(x):
    """Returns the fraction and the whole part, both with the sign of x."""
    x = to_float(x)
    whole = _core.trunc(x)
    return _core.copysign(_core.where(_core.isinf(x), constant(0.0, x), x - whole), x), whole


def _common_divisor(a, b):
    """Returns the greatest common divisor of numbers that are not negative, by Euclid's algorithm."""
    most = -(-23 * a.dtype.itemsize // 2)  # steps for two neighboring Fibonacci numbers, the largest of the type: 12, 23, 46, 92
    return while_loop(lambda s: s[1] != 0, lambda s: (s[1], _core.remainder(s[0], s[1])), (a, b), most)[0]


def _magnitudes(name, x1, x2):
    """Returns the absolute values of integers in their common type and shape."""
    for x in (x1, x2):
        if not _dtypes.isdtype(x.dtype, "integral"):
            raise _core.DTypeError(f"{name}: the operands must have integer types, not {x.dtype.name}. Cast them")
    like = _core.bitwise_or(x1, x2)
    return [_core.abs(_core.broadcast_to(_core.cast(x, like.dtype), like.shape)) for x in (x1, x2)]


@composed()
def gcd(x1, x2):
    """Returns the greatest common divisor of integers."""
    return _common_divisor(*_magnitudes("gcd", x1, x2))


@composed()
def lcm(x1, x2):
    """Returns the least common multiple of integers; 0 if either is 0."""
    a, b = _magnitudes("lcm", x1, x2)
    return _core.floor_div(a, _common_divisor(a, b)) * b


@composed()
def degrees(x):
    """Converts from radians."""
    x = to_float(x)
    return x * constant(180.0 / math.pi, x)


@composed()
def radians(x):
    """Converts from degrees."""
    x = to_float(x)
    return x * constant(math.pi / 180.0, x)


rad2deg, deg2rad = degrees, radians


@composed()
def fmax(x1, x2):
    """Returns the larger elements; if one of two is NaN, the other."""
    return _core.where(_core.isnan(x1), x2, _core.where(_core.isnan(x2), x1, _core.maximum(x1, x2)))


@composed()
def fmin(x1, x2):
    """Returns the smaller elements; if one of two is NaN, the other."""
    return _core.where(_core.isnan(x1), x2, _core.where(_core.isnan(x2), x1, _core.minimum(x1, x2)))


@composed()
def heaviside(x1, x2):
    """Returns 0 for a negative x1, 1 for a positive one, x2 for 0, NaN for NaN."""
    x1, x2 = to_float(x1), to_float(x2)
    return _core.where(x1 == 0, x2, _core.where(x1 < 0, _core.zeros(x1.shape, x1.dtype), _core.where(x1 > 0, _core.ones(x1.shape, x1.dtype), x1)))


@composed()
def logaddexp2(x1, x2):
    """Returns log2(2**x1 + 2**x2)."""
    x1, x2 = to_float(x1), to_float(x2)
    larger = _core.log1p(_core.exp2(-_core.abs(x1 - x2))) * 1.4426950408889634 + _core.maximum(x1, x2)
    return _core.where(x1 == x2, x1 * 0.5 + x2 * 0.5 + 1, larger)


@composed()
def sinc(x):
    """Returns sin(pi x) / (pi x), and 1 at 0."""
    x = to_float(x)
    y = constant(math.pi, x) * _core.where(x == 0, constant(1e-20 if x.dtype != _core.f16 else 1e-4, x), x)
    return _core.sin(y) / y


@composed(static=("decimals",))
def around(a, decimals=0):
    """Rounds to a number of decimals, ties to even; a negative number rounds to tens, hundreds, …"""
    decimals = whole(decimals, "around", "decimals")
    if decimals == 0 or not is_float(a) and decimals > 0:
        return _core.round(a)
    if not is_float(a):
        return _core.cast(_core.round(_core.cast(a, _core.f64) / 10.0**-decimals) * 10.0**-decimals, a.dtype)
    scale = constant(10.0 ** abs(decimals), a)
    return _core.round(a * scale) / scale if decimals > 0 else _core.round(a / scale) * scale


round = round_ = around


@composed(static=("copy",))
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """Replaces NaN by `nan`, and infinities by `posinf` and `neginf`: without them, by the largest and smallest number of the type."""
    if not is_float(x):
        return x
    largest = _dtypes.finfo(x.dtype).max
    posinf, neginf = (_core.cast(limit if v is None else v, x.dtype) for v, limit in ((posinf, largest), (neginf, -largest)))
    infinite = _core.where(x == names.inf, posinf, _core.where(x == -names.inf, neginf, x))
    return _core.where(_core.isnan(x), _core.cast(nan, x.dtype), infinite)


@composed()
def isposinf(x):
    return x == names.inf


@composed()
def isneginf(x):
    return x == -names.inf


def _near(a, b, rtol, atol, equal_nan):
    a, b = to_float(a), to_float(b)
    close = _core.abs(a - b) <= atol + rtol * _core.abs(b)
    out = _core.where(_core.logical_and(_core.isfinite(a), _core.isfinite(b)), close, a == b)
    return _core.logical_or(out, _core.logical_and(_core.isnan(a), _core.isnan(b))) if equal_nan else out


@composed(static=("equal_nan",))
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True where |a - b| <= atol + rtol |b|, or both are the same infinity; with equal_nan also where both are NaN."""
    return _near(a, b, rtol, atol, equal_nan)


@composed(static=("equal_nan",))
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True if all elements are close, as in isclose: one bool."""
    return _core.all(_near(a, b, rtol, atol, equal_nan))


@composed(static=("equal_nan",))
def array_equal(a1, a2, equal_nan=False):
    """True if the shapes and all elements are equal: one bool."""
    if a1.shape != a2.shape:
        return _core.full((), False)
    same = a1 == a2
    return _core.all(_core.logical_or(same, _core.logical_and(_core.isnan(a1), _core.isnan(a2))) if equal_nan else same)


@composed()
def array_equiv(a1, a2):
    """True if the shapes broadcast and all elements are then equal: one bool."""
    try:
        _elementwise._broadcast_shapes(a1.shape, a2.shape)
    except _core.ShapeError:
        return _core.full((), False)
    return _core.all(a1 == a2)


@composed(static=("invert",))
def _isin(element, test_elements, invert):
    tests, values = (_core.reshape(x, (-1,)) for x in (test_elements, element))
    n = tests.shape[0]
    if n == 0:
        found = _core.full(values.shape, False)
    elif n <= _MOST_COMPARED:
        found = _core.any(_core.reshape(values, (-1, 1)) == tests, 1)
    else:
        dtype = _dtypes.result_type(tests, values)
        tests, values = _core.sort(_core.cast(tests, dtype)), _core.cast(values, dtype)
        found = _core.take(tests, _core.minimum(_core.searchsorted(tests, values), n - 1), 0) == values
    return _core.reshape(_core.logical_not(found) if invert else found, element.shape)


_MOST_COMPARED = 16  # more elements are sorted and searched


def isin(element, test_elements, assume_unique=False, invert=False):
    """Tests for each element whether it is one of test_elements, which are compared if they are few, else sorted and searched."""
    return _isin(element, test_elements, invert)


# ---- choice


@composed(lists=("condlist", "choicelist"))
def select(condlist, choicelist, default=0):
    """Returns, for each element, the choice of the first condition that is true, and `default` without one."""
    if not condlist or len(condlist) != len(choicelist):
        raise _core.ValueError(f"select: {len(condlist)} conditions and {len(choicelist)} choices are given; one choice for each condition is required")
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        if condition.dtype != _core.boolean:
            raise _core.DTypeError(f"select: a condition has the type {condition.dtype.name}; it must be bool. Write x != 0")
        out = _core.where(condition, choice, out)
    return out


def piecewise(x, condlist, funclist, *args, **kw):
    """Returns, for each element, the function, or the number, of the last condition that is true.

    The values have x's type. Without a condition an element gets the last function, if there is one more of them, else 0.
    Each function is computed for all of x.
    """
    x = array_of(x)
    if not isinstance(condlist, (list, tuple)):
        condlist = array_of(condlist)
        one = condlist.ndim == 0 or condlist.ndim == 1 and x.ndim > 0
    else:
        one = isinstance(condlist[0], bool) and x.ndim > 0
    conditions = [array_of(condlist)] if one else [array_of(c) for c in operands(condlist, "piecewise")]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise _core.ValueError(f"piecewise: {len(functions)} functions are given for {len(conditions)} conditions; the numbers must be equal, or one more function")
    out = names.zeros_like(x)
    if len(functions) > len(conditions):
        conditions.insert(0, _core.full(x.shape, True))
        functions.insert(0, functions.pop())
    for condition, function in zip(conditions, functions):
        out = _core.where(condition, _core.cast(function(x, *args, **kw) if callable(function) else function, x.dtype), out)
    return out


@composed(static=("mode",), lists=("choices",))
def choose(a, choices, mode="raise"):
    """Returns, for each element, that of choices[a]; all shapes broadcast. mode "wrap" or "clip" changes indices that are out of range."""
    if mode not in ("raise", "wrap", "clip"):
        raise _core.ValueError(f"choose: mode must be 'raise', 'wrap' or 'clip', not {mode!r}")
    if not choices:
        raise _core.ValueError("choose: there are no choices; at least one is required")
    shape, n = _elementwise._broadcast_shapes(a.shape, *(c.shape for c in choices)), len(choices)
    a = _core.remainder(a, n) if mode == "wrap" else _core.clamp(a, 0, n - 1) if mode == "clip" else _core.where(a < 0, n, a)
    all_ = _core.stack([_core.broadcast_to(c, shape) for c in choices])
    return _core.reshape(_core.take_along_axis(all_, _core.reshape(_core.broadcast_to(a, shape), (1, *shape)), 0), shape)
