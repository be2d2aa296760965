"""Sorting; and functions that no kernel computes: sets, and those whose result's shape depends on the elements.

NumPy computes the latter, on the arrays' own memory. Inside a recording, where a Tensor has no elements, each is an UnsupportedError.
"""
import collections

from .. import _core

UniqueAllResult = collections.namedtuple("UniqueAllResult", "values indices inverse_indices counts")
UniqueCountsResult = collections.namedtuple("UniqueCountsResult", "values counts")
UniqueInverseResult = collections.namedtuple("UniqueInverseResult", "values inverse_indices")


def refuse_recording(name, *arrays):
    """UnsupportedError inside a recording, also for an Array: a recording reads its elements at each call."""
    if _core.is_recording() or any(isinstance(x, _core.Tensor) for x in arrays):
        raise _core.UnsupportedError(f"{name} needs the elements, which are not there while a function is recorded: call it outside of the compiled function")


def on_elements(name, *arrays):
    """The arrays as NumPy's, of the same memory. Errors: those of refuse_recording."""
    import numpy

    refuse_recording(name, *arrays)
    return [numpy.asarray(x) for x in arrays]


def _array(x, dtype=None):
    import numpy

    x = numpy.asarray(x)
    return _core.Array(x if dtype is None or x.dtype == dtype else x.astype(dtype))


def nonzero(x, /):
    """The indices of the elements that are not zero: an array for each axis. Outside of recordings, by NumPy."""
    (values,) = on_elements("nonzero", x)
    if values.ndim == 0:
        raise _core.ValueError("nonzero: an array of rank 0 has no axis")
    return tuple(_array(i, "int64") for i in values.nonzero())


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where the elements of x2 belong in x1, which is sorted, or is by the indices `sorter`."""
    return _core.searchsorted(x1 if sorter is None else _core.take(x1, sorter, 0), x2, side)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """Sorted along an axis, always stable. NaN stands behind all numbers, of descending before them."""
    return _core.sort(x, axis, descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The indices that sort along an axis; equal elements keep their order."""
    return _core.argsort(x, axis, descending)


def _unique(name, x):
    import numpy

    (values,) = on_elements(name, x)
    out, indices, inverse, counts = numpy.unique(values, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    return _array(out), _array(indices, "int64"), _array(inverse.reshape(values.shape), "int64"), _array(counts, "int64")


def unique_all(x, /):
    """The different elements, where each stands first, which of them each element is, and how often each occurs. Every NaN is different. Outside of recordings, by NumPy."""
    return UniqueAllResult(*_unique("unique_all", x))


def unique_counts(x, /):
    """The different elements, and how often each occurs. Every NaN is different. Outside of recordings, by NumPy."""
    values, _, _, counts = _unique("unique_counts", x)
    return UniqueCountsResult(values, counts)


def unique_inverse(x, /):
    """The different elements, and which of them each element is. Every NaN is different. Outside of recordings, by NumPy."""
    values, _, inverse, _ = _unique("unique_inverse", x)
    return UniqueInverseResult(values, inverse)


def unique_values(x, /):
    """The different elements, sorted. Every NaN is different. Outside of recordings, by NumPy."""
    return _unique("unique_values", x)[0]
