"""NumPy's and the array API's names for operators with another name in onepass."""
import math

from . import _core
from ._core import bf16 as bfloat16, f16 as float16, f32 as float32, f64 as float64
from ._core import i8 as int8, i16 as int16, i32 as int32, i64 as int64
from ._core import u8 as uint8, u16 as uint16, u32 as uint32, u64 as uint64
from ._core import boolean as bool_
from ._core import abs as absolute, sub as subtract, mul as multiply, div as divide, floor_div as floor_divide, neg as negative
from ._core import pow as power, asin as arcsin, acos as arccos, atan as arctan, atan2 as arctan2, sinh, cosh
from ._core import asinh as arcsinh, acosh as arccosh, atanh as arctanh, bitwise_not as bitwise_invert, bitwise_not as invert
from ._core import shift_left as left_shift, shift_left as bitwise_left_shift, shift_right as right_shift, shift_right as bitwise_right_shift
from ._core import concat as concatenate, swap_axes as swapaxes, transpose as permute_dims, cast as astype, div as true_divide, remainder as mod
from .methods import clip

pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, float("inf"), float("nan"), None


def matrix_transpose(x):
    """Swaps the last two axes."""
    return _core.swap_axes(x, -1, -2)


def _number(value):
    """Converts a NumPy scalar to a Python number."""
    return value.item() if hasattr(value, "item") and not isinstance(value, (_core.Array, _core.Tensor)) else value


def arange(start, stop=None, step=1, *, dtype=None):
    """Returns start, start + step, … before stop, which are numbers: i64 for ints, f32 otherwise."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = _number(start), _number(stop), _number(step)
    if step == 0:
        raise _core.ValueError("arange: the step is 0; it must not be 0")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    length = -(-(stop - start) // step) if whole else math.ceil((stop - start) / step)
    index = _core.iota((max(0, length),), dtype=_core.i64)
    values = index * step + start if whole else _core.cast(index, _core.f64) * step + start
    return _core.cast(values, dtype if dtype is not None else (_core.i64 if whole else _core.f32))


def linspace(start, stop, num=50, endpoint=True, *, dtype=None):
    """Returns `num` equally spaced numbers from start to stop, which are scalars. With `endpoint`, the last number is stop; without it,
    stop would be the next number. Without dtype, the type is f64 if start or stop is an f64 array, else f32."""
    ends = [_number(start), _number(stop)]
    if dtype is None:
        dtype = _core.f64 if any(getattr(v, "dtype", None) == _core.f64 for v in ends) else _core.f32
    start, stop = (_core.cast(v, _core.f64) if hasattr(v, "dtype") else float(v) for v in ends)
    index = _core.iota((num,), dtype=_core.i64)
    values = _core.cast(index, _core.f64) * ((stop - start) / max(num - 1 if endpoint else num, 1)) + start
    return _core.cast(_core.where(index == num - 1, stop, values) if endpoint and num > 1 else values, dtype)


def zeros_like(x, dtype=None):
    return _core.zeros(x.shape, dtype if dtype is not None else x.dtype)


def ones_like(x, dtype=None):
    return _core.ones(x.shape, dtype if dtype is not None else x.dtype)


def full_like(x, value, dtype=None):
    return _core.full(x.shape, value, dtype if dtype is not None else x.dtype)
