"""Sorting; and functions without a kernel: sets, and functions with a result shape that depends on the elements.

NumPy computes the functions without a kernel, on the arrays' own memory. Inside a recording, where a Tensor has no elements, they raise UnsupportedError.
"""
import collections

from .. import _core

UniqueAllResult = collections.namedtuple("UniqueAllResult", "values indices inverse_indices counts")
UniqueCountsResult = collections.namedtuple("UniqueCountsResult", "values counts")
UniqueInverseResult = collections.namedtuple("UniqueInverseResult", "values inverse_indices")


def refuse_recording(name, *arrays):
    """Raises UnsupportedError inside a recording, also for an Array, because a recording reads its elements at each call."""
    if _core.is_recording() or any(isinstance(x, _core.Tensor) for x in arrays):
        raise _core.UnsupportedError(f"{name} needs the elements, which are not available while a function is recorded. Call it outside the compiled function")


def on_elements(name, *arrays):
    """Returns the arrays as NumPy arrays of the same memory. Errors: as refuse_recording."""
    import numpy

    refuse_recording(name, *arrays)
    return [numpy.asarray(x) for x in arrays]


def _array(x, dtype=None):
    import numpy

    x = numpy.asarray(x)
    return _core.Array(x if dtype is None or x.dtype == dtype else x.astype(dtype))


def nonzero(x, /):
    """Returns the indices of the nonzero elements: an array for each axis. NumPy computes this, only outside of recordings."""
    (values,) = on_elements("nonzero", x)
    if values.ndim == 0:
        raise _core.ValueError("nonzero: an array of rank 0 has no axis; at least one is required")
    return tuple(_array(i, "int64") for i in values.nonzero())


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Returns the positions of x2's elements in x1, which must be sorted directly or by the indices `sorter`."""
    return _core.searchsorted(x1 if sorter is None else _core.take(x1, sorter, 0), x2, side)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """Sorts along an axis, always stably. NaN follows all numbers, or precedes them if descending."""
    return _core.sort(x, axis, descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """Returns the indices that sort along an axis; equal elements keep their order."""
    return _core.argsort(x, axis, descending)


def _unique(name, x):
    import numpy

    (values,) = on_elements(name, x)
    out, indices, inverse, counts = numpy.unique(values, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    return _array(out), _array(indices, "int64"), _array(inverse.reshape(values.shape), "int64"), _array(counts, "int64")


def unique_all(x, /):
    """Returns the distinct elements, their first indices, the inverse indices and the counts.

    Every NaN is distinct. NumPy computes this, only outside of recordings.
    """
    return UniqueAllResult(*_unique("unique_all", x))


def unique_counts(x, /):
    """Returns the distinct elements and their counts. Every NaN is distinct. NumPy computes this, only outside of recordings."""
    values, _, _, counts = _unique("unique_counts", x)
    return UniqueCountsResult(values, counts)


def unique_inverse(x, /):
    """Returns the distinct elements and the inverse indices. Every NaN is distinct. NumPy computes this, only outside of recordings."""
    values, _, inverse, _ = _unique("unique_inverse", x)
    return UniqueInverseResult(values, inverse)


def unique_values(x, /):
    """Returns the distinct elements, sorted. Every NaN is distinct. NumPy computes this, only outside of recordings."""
    return _unique("unique_values", x)[0]
