"""Insertion and deletion at fixed positions, and products of arrays."""
from .. import _core
from ..array_api import manipulation as _manipulation, reductions as _reductions
from ..array_api.fused import axis_in
from .operands import array_of, composed, is_known, operand
from .shapes import front, least_rank, part, ravel

__all__ = "cross delete inner insert kron tensordot vdot".split()


# ---- insert and delete at fixed positions


def _positions(name, obj, length, end):
    """Returns the positions, counted from the front, as a NumPy array: of rank 0 for one int."""
    import numpy

    if not is_known(obj):
        raise _core.UnsupportedError(f"{name}: the positions must be known when the function is recorded. Pass an int, a slice or a list of ints")
    at = numpy.arange(length)[obj] if isinstance(obj, slice) else numpy.asarray(obj)
    if at.dtype == bool:
        if at.shape != (length,):
            raise _core.ShapeError(f"{name}: a mask of shape {list(at.shape)} is given for an axis of length {length}; the lengths must be equal")
        at = numpy.flatnonzero(at)
    if at.ndim > 1:
        raise _core.ShapeError(f"{name}: the positions have rank {at.ndim}; they must be an int, a slice or a list of ints")
    if at.size and at.dtype.kind not in "iu":
        raise _core.IndexError(f"{name}: the positions must be integers, not {at.dtype.name}")
    wrong = at[(at < -length) | (at >= end)]
    if wrong.size:
        raise _core.IndexError(f"{name}: position {wrong.flat[0]} is out of range for an axis of length {length}")
    return numpy.where(at < 0, at + length, at).astype("int64")


def _along(name, arr, axis):
    """Returns the array and the axis of insert and delete: the elements along one axis without one."""
    arr = array_of(arr)
    return (ravel(arr), 0) if axis is None else (arr, axis_in(axis, arr.ndim, name))


@composed(static=("bounds", "axis"))
def _pieces(x, bounds, axis):
    return _core.concat([part(x, axis, slice(*b)) for b in bounds], axis)


_MOST_PIECES = 8  # more pieces are one gather


def delete(arr, obj, axis=None):
    """Returns the array without the positions of an axis, or of the elements along one axis. obj is an int, a slice, a list of ints or a mask."""
    import numpy

    x, axis = _along("delete", arr, axis)
    kept = numpy.delete(numpy.arange(x.shape[axis]), _positions("delete", obj, x.shape[axis], x.shape[axis]))
    gaps = numpy.flatnonzero(numpy.diff(kept) != 1) + 1
    if len(gaps) >= _MOST_PIECES:
        return _core.take(x, _core.Array(kept), axis)
    bounds = [(int(run[0]), int(run[-1]) + 1) for run in numpy.split(kept, gaps) if run.size]
    return _pieces(x, tuple(bounds) or ((0, 0),), axis)


@composed(static=("at", "axis"))
def _inserted(x, values, at, axis):
    shape = list(x.shape)
    shape[axis] = values.shape[axis]
    return _core.concat([part(x, axis, slice(0, at)), _core.broadcast_to(values, shape), part(x, axis, slice(at, None))], axis)


@composed(static=("axis",))
def _merged(x, values, order, axis):
    shape = list(x.shape)
    shape[axis] = order.shape[0] - x.shape[axis]
    return _core.take(_core.concat([x, _core.broadcast_to(values, shape)], axis), order, axis)


def insert(arr, obj, values, axis=None):
    """Returns the array with values, cast to its type, before the positions of an axis, or of the elements along one axis.

    obj is an int, a slice or a list of ints; equal positions keep the order of their values.
    """
    import numpy

    x, axis = _along("insert", arr, axis)
    n = x.shape[axis]
    at = _positions("insert", obj, n, n + 1)
    values = front(_core.cast(operand(values), x.dtype), x.ndim)
    if at.ndim == 0:
        values = _manipulation.moveaxis(values, 0, axis)
    if at.size == 1:
        return _inserted(x, values, int(at.reshape(())), axis)
    new = at.copy()
    new[numpy.argsort(at, kind="stable")] += numpy.arange(at.size)  # positions in the result
    order = numpy.empty(n + at.size, "int64")
    order[new] = n + numpy.arange(at.size)
    order[numpy.delete(numpy.arange(n + at.size), new)] = numpy.arange(n)
    return _merged(x, values, order, axis)


# ---- products


@composed(static=("axes",))
def tensordot(a, b, axes=2):
    """Multiplies the elements of a and b and sums over pairs of axes.

    axes    a number: the last axes of a and the first of b; or a pair: (axes of a, axes of b), each an int or a list
    """
    if not isinstance(axes, int):
        if len(axes) != 2:
            raise _core.ValueError(f"tensordot: {len(axes)} lists of axes are given; two are required, for a and for b")
        axes = tuple((v,) if isinstance(v, int) else v for v in axes)
    return _reductions.tensordot(a, b, axes=axes)


@composed()
def inner(a, b):
    """Multiplies the elements of a and b and sums along the last axis of both; multiplies if either has rank 0."""
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if a.shape[-1] != b.shape[-1]:
        raise _core.ShapeError(f"inner: the last axes have lengths {a.shape[-1]} and {b.shape[-1]}; the lengths must be equal")
    return _reductions.tensordot(a, b, axes=((-1,), (-1,)))


@composed()
def vdot(a, b):
    """Sums the products of the elements, of arrays of any shape with equal numbers of elements."""
    if a.size != b.size:
        raise _core.ShapeError(f"vdot: the arrays have {a.size} and {b.size} elements; the numbers must be equal")
    return _core.dot(_core.reshape(a, (-1,)), _core.reshape(b, (-1,)))


@composed()
def kron(a, b):
    """Returns the Kronecker product: each element of a times the whole of b, as blocks."""
    rank = max(a.ndim, b.ndim)
    a, b = front(a, rank), front(b, rank)
    blocks = _core.reshape(a, [n for length in a.shape for n in (length, 1)]) * _core.reshape(b, [n for length in b.shape for n in (1, length)])
    return _core.reshape(blocks, [n * m for n, m in zip(a.shape, b.shape)])


@composed(static=("axisa", "axisb", "axisc", "axis"))
def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """Returns the cross products of vectors of 3 or 2 elements along an axis; of two elements each, only the third component."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (_manipulation.moveaxis(x, axis_in(i, least_rank("cross", x, 1).ndim, "cross"), -1) for x, i in ((a, axisa), (b, axisb)))
    n, m = a.shape[-1], b.shape[-1]
    if n not in (2, 3) or m not in (2, 3):
        raise _core.ShapeError(f"cross: the vectors have {n} and {m} elements; each must have 2 or 3")
    (a0, a1), (b0, b1) = ((x[..., 0], x[..., 1]) for x in (a, b))
    third = a0 * b1 - a1 * b0
    if n == m == 2:
        return third
    a2, b2 = (x[..., 2] if x.shape[-1] == 3 else None for x in (a, b))
    if b2 is None:
        first, second = -(a2 * b1), a2 * b0
    elif a2 is None:
        first, second = a1 * b2, -(a0 * b2)
    else:
        first, second = a1 * b2 - a2 * b1, a2 * b0 - a0 * b2
    return _manipulation.moveaxis(_core.stack([first, second, third], -1), -1, axisc)
