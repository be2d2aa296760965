"""Indexing by data: arrays of integers and boolean masks. Handles `x[key]` for keys with more than ints, slices, None and `...`.

Inside a recording, arrays of integers are recorded as `take`. Masks give shapes that depend on the elements, so only Arrays outside of a
recording accept them. Arrays outside of a recording have all of NumPy's indexing.
"""
from . import _core


def _is_basic(part):
    return part is None or part is Ellipsis or isinstance(part, slice)


def _is_mask(part):
    if isinstance(part, (_core.Array, _core.Tensor)):
        return part.dtype == _core.boolean
    if isinstance(part, list):
        return any(_is_mask(p) for p in part)
    return isinstance(part, bool) or getattr(getattr(part, "dtype", None), "name", "").startswith("bool")


def _is_recorded(x, key):
    return _core.is_recording() or isinstance(x, _core.Tensor) or any(isinstance(part, _core.Tensor) for part in key)


def _array(part):
    """Returns a part of an index as an array of integers."""
    part = part if isinstance(part, (_core.Array, _core.Tensor)) else _core.Array(part)
    if _core.dtype(part.dtype).name[0] not in "iu":
        raise _core.IndexError(f"an index array must have an integer type, not {part.dtype.name}")
    return part


def _numpy(part):
    import numpy

    return part if _is_basic(part) or isinstance(part, int) else numpy.asarray(part)


def item(x, key):
    """Returns x[key]."""
    parts = key if isinstance(key, tuple) else (key,)
    masked = any(_is_mask(part) for part in parts)
    if _is_recorded(x, parts):
        if masked:
            raise _core.UnsupportedError(
                "the shape of a result selected by a boolean mask depends on the elements, which are not available while a function is recorded. "
                "Write where(mask, x, 0), or select outside the compiled function"
            )
        return _recorded(x, parts)
    if not isinstance(key, tuple) and not masked:
        return _core.take(x, _array(key), 0)
    halves = x.dtype == _core.bf16  # NumPy lacks this type
    values = _numpy(_core.bitcast(x, _core.u16) if halves else x)
    try:
        out = values[tuple(_numpy(part) for part in parts)]
    except IndexError as error:
        raise _core.IndexError(str(error)) from None
    out = _core.Array(out)
    return _core.bitcast(out, _core.bf16) if halves else out


def _recorded(x, parts):
    arrays = [i for i, part in enumerate(parts) if not _is_basic(part) and not isinstance(part, int)]
    if len(arrays) == 1 and all(_is_basic(part) for i, part in enumerate(parts) if i != arrays[0]):
        at = arrays[0]
        axis = at - len(parts) if Ellipsis in parts[:at] else at  # from the end of x[…], or from its front
        return _core.take(x[parts[:at] + (slice(None),) + parts[at + 1 :]], _array(parts[at]), axis)
    while parts and (parts[-1] is Ellipsis or isinstance(parts[-1], slice) and parts[-1] == slice(None)):
        parts = parts[:-1]
    if any(_is_basic(part) for part in parts):
        raise _core.UnsupportedError("inside a recording, an index must have arrays of integers and ints for the first axes, or one array and slices")
    return _gathered(x, parts)


def _gathered(x, parts):
    """Returns the slices of x at indices of its first axes, which broadcast: one `take` of these axes joined."""
    if len(parts) > x.ndim:
        raise _core.IndexError(f"{len(parts)} indices are too many for a tensor of rank {x.ndim}")
    lengths, rest = x.shape[: len(parts)], x.shape[len(parts) :]
    count, joined, outside = 1, 0, None
    for n, part in zip(lengths, parts):
        if isinstance(part, int):
            if not -n <= part < n:
                raise _core.IndexError(f"index {part} is out of range for an axis of length {n}")
            at = part % n
        else:
            at = _core.cast(_array(part), _core.i64)
            at = _core.where(at < 0, at + n, at)
            wrong = _core.logical_or(at < 0, at >= n)
            outside = wrong if outside is None else _core.logical_or(outside, wrong)
        joined = joined * n + at
        count *= n
    joined = _core.where(outside, count, joined)  # so that take reports it
    return _core.take(_core.reshape(x, (count, *rest)), joined, 0)


class At:
    """`x.at`: `x.at[key]` selects a part to update, as in JAX. x is unchanged."""

    def __init__(self, x):
        self._x = x

    def __getitem__(self, key):
        return Place(self._x, key)


class Place:
    """A part of x to update with set, add, min, max or mul. Each returns the updated x; values are cast to x's type.

    The key has ints, slices, None and `...`; or it is one array of integers, which are indices of the first axis (the last of equal indices
    remains); or a boolean mask of x's shape or of its first axes.
    """

    def __init__(self, x, key):
        self._x, self._key = x, key

    def _join(self, v, mode):
        x, key = self._x, self._key
        parts = key if isinstance(key, tuple) else (key,)
        if all(_is_basic(part) or (isinstance(part, int) and not isinstance(part, bool)) for part in parts):
            return _core.put(x, key, v, mode)
        if isinstance(key, tuple):
            raise _core.UnsupportedError(f"at: an index array must be the only index, as in x.at[i].{mode}(v). Use scatter or index_update for other axes")
        if _is_mask(key):
            return self._where(key, v, mode)
        indices = _array(key)
        return _core.index_update(x, indices, _core.broadcast_to(v, (*indices.shape, *x.shape[1:])), 0, mode)

    def _where(self, mask, v, mode):
        """Updates the elements, or the parts along the last axes, for which a mask of the first axes is true."""
        x = self._x
        mask = mask if isinstance(mask, (_core.Array, _core.Tensor)) else _core.Array(mask)
        if mask.shape != x.shape[: mask.ndim]:
            raise _core.ShapeError(f"at: a mask of shape {list(mask.shape)} does not fit the first axes of shape {list(x.shape)}")
        rest = x.shape[mask.ndim :]
        shape = getattr(v, "shape", ())
        if len(shape) > len(rest):
            raise _core.ShapeError(
                f"at: the values for a mask must be one {'part' if rest else 'value'} of shape {list(rest)} for all of its elements, not {list(shape)}. "
                "For a value for each element write where(mask, v, x)"
            )
        joined = v if mode == "set" else _JOINED[mode](x, v)
        return _core.where(_core.reshape(mask, (*mask.shape, *(1 for _ in rest))), _core.cast(joined, x.dtype), x)

    def set(self, v):
        return self._join(v, "set")

    def add(self, v):
        return self._join(v, "add")

    def min(self, v):
        return self._join(v, "min")

    def max(self, v):
        return self._join(v, "max")

    def mul(self, v):
        return self._join(v, "mul")


_JOINED = {"add": _core.add, "min": _core.minimum, "max": _core.maximum, "mul": _core.mul}


def assign(x, key, value):
    """Assigns x[key] = value for an Array outside of a recording."""
    parts = key if isinstance(key, tuple) else (key,)
    if _is_recorded(x, parts) or isinstance(value, _core.Tensor):
        raise TypeError("elements of an Array cannot be assigned by a mask or by arrays while a function is recorded. Use x.at[key].set(v)")
    value = value if isinstance(value, _core.Array) else _core.Array(value if hasattr(value, "dtype") else _listed(value))
    if value.dtype != x.dtype:
        value = _core.cast(value, x.dtype)
    try:
        _numpy(x)[tuple(_numpy(part) for part in parts)] = _numpy(value)
    except IndexError as error:
        raise _core.IndexError(str(error)) from None


def _listed(value):
    import numpy

    return numpy.asarray(value)
