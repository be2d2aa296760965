"""Data types of the standard: names, promotion by the language's table, limits."""
import builtins
import collections

from .. import _core
from .. import methods as _methods
from .._core import boolean as bool, f32 as float32, f64 as float64
from .._core import i8 as int8, i16 as int16, i32 as int32, i64 as int64
from .._core import u8 as uint8, u16 as uint16, u32 as uint32, u64 as uint64

_SIGNED = (int8, int16, int32, int64)
_UNSIGNED = (uint8, uint16, uint32, uint64)
_FLOATS = (float32, float64)
_HALVES = (_core.f16, _core.bf16)
KINDS = {
    "bool": (bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATS,
    "complex floating": (),
    "numeric": _SIGNED + _UNSIGNED + _FLOATS,
}
DEFAULT_FLOAT, DEFAULT_INTEGER = float32, int64

FInfo = collections.namedtuple("FInfo", "bits eps max min smallest_normal dtype")
IInfo = collections.namedtuple("IInfo", "bits max min dtype")
# Number of exponent bits and of stored fraction bits.
_FORMATS = {_core.f16: (5, 10), _core.bf16: (8, 7), float32: (8, 23), float64: (11, 52)}


def dtype_of(x):
    """Returns the element type of an array or a Tensor, or the type that x names."""
    return x.dtype if isinstance(x, (_core.Array, _core.Tensor)) else _core.dtype(getattr(x, "dtype", x))


def isdtype(dtype, kind):
    """True if the type is of that kind, equal to that type, or matches an element of a tuple of these.

    kind    "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric", a type, or a tuple
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if not isinstance(kind, str):
        return dtype == kind
    if kind not in KINDS:
        raise _core.ValueError(f"isdtype: {kind!r} is not a kind of data types; the kinds are {', '.join(KINDS)}")
    wider = _HALVES if kind in ("real floating", "numeric") else ()
    return dtype in KINDS[kind] or dtype in wider


def _promoted(a, b):
    if a == b or b == bool:
        return a
    if a == bool:
        return b
    if isdtype(a, "real floating") or isdtype(b, "real floating"):
        if not isdtype(a, "real floating"):
            return b
        if not isdtype(b, "real floating"):
            return a
        if a in _HALVES and b in _HALVES:
            return float32
        return max(a, b, key=lambda t: t.itemsize)
    if (a in _SIGNED) == (b in _SIGNED):
        return max(a, b, key=lambda t: t.itemsize)
    signed, unsigned = (a, b) if a in _SIGNED else (b, a)
    if unsigned == uint64:
        raise _core.DTypeError(f"result_type: {a.name} and {b.name} have no common type: no integer type holds both. Cast one of them")
    bytes_ = max(signed.itemsize, 2 * unsigned.itemsize)
    return next(t for t in _SIGNED if t.itemsize == bytes_)


def result_type(*arrays_and_dtypes):
    """Returns the type that arrays, Tensors, types and Python numbers promote to. A number is weakly typed, as everywhere in onepass.

    Errors    DTypeError for u64 with a signed type, ValueError for no argument.
    """
    scalars = [v for v in arrays_and_dtypes if isinstance(v, (builtins.bool, int, float))]
    strong = [dtype_of(v) for v in arrays_and_dtypes if not isinstance(v, (builtins.bool, int, float))]
    if not arrays_and_dtypes:
        raise _core.ValueError("result_type: no array, type or number is given; at least one is required")
    out = strong[0] if strong else bool
    for dtype in strong[1:]:
        out = _promoted(out, dtype)
    for v in scalars:
        if isinstance(v, float):
            out = out if isdtype(out, "real floating") else DEFAULT_FLOAT
        elif not isinstance(v, builtins.bool):
            out = DEFAULT_INTEGER if out == bool else out
    return out


def can_cast(from_, to, /):
    """True if elements of the first type, or array, promote to the second type."""
    try:
        return _promoted(dtype_of(from_), dtype_of(to)) == dtype_of(to)
    except _core.DTypeError:
        return False


def astype(x, dtype, /, *, copy=True, device=None):
    """Casts the elements. copy=False: returns x itself if the type is the same."""
    out = _methods._astype(x, dtype, copy)
    return out if device is None else out.to_device(device)


def finfo(type, /):
    """Returns the limits of a floating-point type, or of an array's type: bits, eps, max, min, smallest_normal, dtype."""
    dtype = dtype_of(type)
    if dtype not in _FORMATS:
        raise _core.DTypeError(f"finfo: {dtype.name} is not a floating-point type")
    exponent, fraction = _FORMATS[dtype]
    bias = 2 ** (exponent - 1) - 1
    largest = (2.0 - 2.0**-fraction) * 2.0**bias
    return FInfo(8 * dtype.itemsize, 2.0**-fraction, largest, -largest, 2.0 ** (1 - bias), dtype)


def iinfo(type, /):
    """Returns the limits of an integer type, or of an array's type: bits, max, min, dtype."""
    dtype = dtype_of(type)
    if not isdtype(dtype, "integral"):
        raise _core.DTypeError(f"iinfo: {dtype.name} is not an integer type")
    bits = 8 * dtype.itemsize
    return IInfo(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dtype) if dtype in _SIGNED else IInfo(bits, 2**bits - 1, 0, dtype)
