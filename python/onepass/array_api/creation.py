"""Creation functions. Inside a recording they record if possible, so that values are computed where they are used.

Without a dtype, Python floats give float32 and ints int64.
"""
import math

from .. import _core
from . import dtypes


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _on(array, device):
    return array if device is None or isinstance(array, _core.Tensor) else array.to_device(device)


def _default(value):
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.DEFAULT_INTEGER
    if isinstance(value, float):
        return dtypes.DEFAULT_FLOAT
    if isinstance(value, complex):
        raise _core.DTypeError("the value is complex; onepass does not support complex numbers")
    return dtypes.dtype_of(value)


def _filled(shape, value, dtype, device):
    if _core.is_recording():
        return _core.full(_shape(shape), value, dtype)
    out = _core.empty(_shape(shape), dtype)
    out[...] = value
    return _on(out, device)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """Makes an array from obj: an array, a Tensor, a number, nested sequences of numbers, a buffer or a DLPack tensor.

    copy    True: always; False: never, a ValueError if a copy is necessary; None: if the type or the device changes, or obj is a sequence
    """
    if isinstance(obj, _core.Tensor):
        if copy is False and dtype is not None and obj.dtype != dtype:
            raise _core.ValueError("asarray: copy is False, but a change of the type needs a copy. Pass copy=None")
        return obj if dtype is None else _core.cast(obj, dtype)
    plain = isinstance(obj, (bool, int, float, complex, list, tuple))
    if plain and copy is False:
        raise _core.ValueError("asarray: copy is False, but numbers and sequences of numbers must be copied. Pass copy=None")
    if plain:
        obj = _of_numbers(obj)
        dtype, copy = (_default_of(obj) if dtype is None else dtype), None
    array = _core.Array(obj)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise _core.ValueError(f"asarray: copy is False, but a conversion from {array.dtype.name} to {_core.dtype(dtype).name} needs a copy. Pass copy=None")
        array = _cast(array, dtype)
    elif copy:
        array = array.copy()
    elif device is None and isinstance(obj, _core.Array):
        return obj
    if copy is False and device is not None and array.device != device:
        raise _core.ValueError(f"asarray: copy is False, but the elements are on {array.device}, so a copy is needed. Pass copy=None")
    return _on(array, device)


def _of_numbers(obj):
    import numpy

    def plain(value):
        if isinstance(value, _core.Tensor):
            raise _core.DTypeError("asarray: a sequence of Tensors cannot be converted, because Tensors have no values while the function is recorded. Use stack")
        return numpy.asarray(value) if isinstance(value, _core.Array) else [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    return numpy.asarray(plain(obj))


def _default_of(array):
    """Returns the namespace's default type for NumPy's type of Python numbers."""
    if array.dtype.kind == "c":
        raise _core.DTypeError("the value is complex; onepass does not support complex numbers")
    if array.dtype.kind == "O":
        raise OverflowError("asarray: an int does not fit in 64 bits. Pass a float")
    return dtypes.DEFAULT_FLOAT if array.dtype.kind == "f" else _core.dtype(array.dtype)


def _cast(array, dtype):
    """Casts immediately, even during a recording, because asarray's argument has elements."""
    if not _core.is_recording():
        return _core.cast(array, dtype)
    out = _core.empty(array.shape, dtype)
    out[...] = array
    return out


def from_dlpack(x, /, *, device=None, copy=None):
    """Makes an array that shares the elements of x, a tensor of any DLPack library; copy=True copies them."""
    array = _core.Array(x)
    if copy is False and device is not None and array.device != device:
        raise _core.ValueError(f"from_dlpack: copy is False, but the elements are on {array.device}, so a copy is needed. Pass copy=None")
    return _on(array.copy() if copy else array, device)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """Returns start, start + step, … before stop."""
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(v, int) for v in (start, stop, step))
    length = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    index = _index(length) if whole else _floats(_index(length))
    return _made(index * step + start, dtype or (dtypes.DEFAULT_INTEGER if whole else dtypes.DEFAULT_FLOAT), device)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """Returns num equally spaced numbers from start to stop, which is included unless endpoint=False."""
    if num < 0:
        raise _core.ValueError(f"linspace: the number of elements is {num}; it must be 0 or more")
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts > 0 else 0.0
    index = _index(num)
    values = _floats(index) * float(step) + float(start)
    if endpoint and num > 1:
        values = _where(index == num - 1, float(stop), values)
    return _made(values, dtype or dtypes.DEFAULT_FLOAT, device)


def _index(length):
    """Returns 0, 1, … as i64: recorded, or in memory."""
    if _core.is_recording():
        return _core.iota((length,), dtype=_core.i64)
    import numpy

    return numpy.arange(length, dtype=numpy.int64)


def _floats(index):
    return _core.cast(index, _core.f64) if isinstance(index, _core.Tensor) else index.astype("float64")


def _where(condition, a, b):
    if isinstance(condition, _core.Tensor):
        return _core.where(condition, a, b)
    import numpy

    return numpy.where(condition, a, b)


def _made(values, dtype, device):
    if isinstance(values, _core.Tensor):
        return _core.cast(values, dtype)
    return _on(_core.Array(values, dtype), device)


def empty(shape, *, dtype=None, device=None):
    """Makes an array with uninitialized elements; zeros inside a recording."""
    if _core.is_recording():
        return _core.zeros(_shape(shape), dtype or dtypes.DEFAULT_FLOAT)
    return _on(_core.empty(_shape(shape), dtype or dtypes.DEFAULT_FLOAT), device)


def full(shape, fill_value, *, dtype=None, device=None):
    """Makes an array filled with a number, with its type unless dtype is given."""
    return _filled(shape, fill_value, dtype or _default(fill_value), device)


def zeros(shape, *, dtype=None, device=None):
    return _filled(shape, 0, dtype or dtypes.DEFAULT_FLOAT, device)


def ones(shape, *, dtype=None, device=None):
    return _filled(shape, 1, dtype or dtypes.DEFAULT_FLOAT, device)


def _like(x, device):
    return x.device if device is None and isinstance(x, _core.Array) else device


def empty_like(x, /, *, dtype=None, device=None):
    return empty(x.shape, dtype=dtype or x.dtype, device=_like(x, device))


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=_like(x, device))


def zeros_like(x, /, *, dtype=None, device=None):
    return zeros(x.shape, dtype=dtype or x.dtype, device=_like(x, device))


def ones_like(x, /, *, dtype=None, device=None):
    return ones(x.shape, dtype=dtype or x.dtype, device=_like(x, device))


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Returns a matrix with 1 on the k-th diagonal and 0 elsewhere."""
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    if _core.is_recording():
        ones_ = _core.equal(_core.iota(shape, axis=0, dtype=_core.i64) + k, _core.iota(shape, axis=1, dtype=_core.i64))
        return _core.cast(ones_, dtype or dtypes.DEFAULT_FLOAT)
    out = zeros(shape, dtype=dtype)
    n = max(0, min(shape[0], shape[1] - k) if k >= 0 else min(shape[0] + k, shape[1]))
    if n:
        import numpy

        numpy.asarray(out)[max(0, -k) :, max(0, k) :][range(n), range(n)] = 1
    return _on(out, device)


def meshgrid(*arrays, indexing="xy"):
    """Returns the coordinates of a grid: one array of the grid's shape for each coordinate vector."""
    if indexing not in ("xy", "ij"):
        raise _core.ValueError(f"meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}")
    if any(x.ndim > 1 for x in arrays):
        raise _core.ShapeError("meshgrid: an array has more than one axis; each array must have at most one")
    if len({x.dtype.name for x in arrays}) > 1:
        raise _core.DTypeError("meshgrid: the arrays have different types; the types must be equal")
    axes = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        axes[0], axes[1] = 1, 0
    lengths = [0] * len(arrays)
    for x, axis in zip(arrays, axes):
        lengths[axis] = x.size
    return [_core.broadcast_to(_core.reshape(x, [-1 if a == axis else 1 for a in range(len(arrays))]), lengths) for x, axis in zip(arrays, axes)]
