"""Elementwise functions: the language's operators under the standard's names, and a few that combine several operators."""
from .. import _core
from .._core import abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_or, bitwise_xor, ceil, copysign, cos, cosh
from .._core import equal, exp, expm1, floor, greater, greater_equal, hypot, isfinite, isinf, isnan, less, less_equal, log, log10, log1p, log2
from .._core import logaddexp, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, not_equal, pow, reciprocal, remainder
from .._core import round, signbit, sin, sinh, sqrt, square, tan, tanh, trunc
from .._core import bitwise_not as bitwise_invert, shift_left as bitwise_left_shift, shift_right as bitwise_right_shift
from .._core import div as divide, floor_div as floor_divide, mul as multiply, neg as negative, sub as subtract
from . import dtypes
from .fused import fused


def positive(x, /):
    """Returns the elements unchanged."""
    if dtypes.dtype_of(x) == dtypes.bool:
        raise _core.DTypeError("positive: the operator does not accept bool. Cast it to a number")
    return x if isinstance(x, _core.Tensor) else _core.Array(x, copy=True)


@fused()
def _sign_of_float(x):
    return _core.sign(x) + 0.0


def sign(x, /):
    """Returns -1, 0 or 1; 0 for both zeros, NaN for NaN."""
    return _sign_of_float(x) if dtypes.isdtype(dtypes.dtype_of(x), "real floating") else _core.sign(x)


@fused()
def _clamp(x, lo, hi):
    return _core.cast(_core.clamp(x, lo, hi), x.dtype)


@fused()
def _at_least(x, lo):
    return _core.cast(_core.maximum(x, lo), x.dtype)


@fused()
def _at_most(x, hi):
    return _core.cast(_core.minimum(x, hi), x.dtype)


def clip(x, /, min=None, max=None):
    """Returns minimum(maximum(x, min), max) in x's type; each bound is optional."""
    if min is None and max is None:
        return x if isinstance(x, _core.Tensor) else _core.Array(x, copy=True)
    shape = _broadcast_shapes(*(getattr(v, "shape", ()) for v in (x, min, max)))
    if shape != x.shape:
        x = _core.broadcast_to(x, shape)
    return _at_most(x, max) if min is None else _at_least(x, min) if max is None else _clamp(x, min, max)


def _broadcast_shapes(*shapes):
    """Returns the shape that all shapes broadcast to. Errors: ShapeError."""
    out = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for i, n in enumerate(shape, len(out) - len(shape)):
            if out[i] != n and n != 1:
                if out[i] != 1:
                    raise _core.ShapeError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast; the extents of each axis, counted from the last, must be equal or 1")
                out[i] = n
    return tuple(out)


@fused(static=("dtype", "bits"))
def _nextafter(x1, x2, dtype, bits):
    a, b = _core.cast(x1, dtype), _core.cast(x2, dtype)
    pattern = _core.bitcast(a, bits)
    further = _core.where((b > a) == (a > 0), pattern + 1, pattern - 1)  # magnitudes have the order of their bits
    smallest = _core.copysign(_core.bitcast(_core.full((), 1, bits), dtype), b)
    stepped = _core.where(a == 0, smallest, _core.bitcast(further, dtype))
    stepped = _core.where(a == b, b, stepped)
    return _core.where(_core.logical_or(_core.isnan(a), _core.isnan(b)), a + b, stepped)


def nextafter(x1, x2, /):
    """Returns the number next to x1 in the direction of x2, for float32 or float64."""
    dtype = dtypes.result_type(x1, x2)
    bits = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}.get(dtype)
    if bits is None:
        raise _core.DTypeError(f"nextafter: {dtype.name} is neither float32 nor float64")
    return _nextafter(x1, x2, dtype, bits)


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("dtypes", "fused")]
