"""Statistical, searching and utility functions, and the linear algebra of the standard's core."""
import string

from .. import _core
from . import dtypes
from .elementwise import _broadcast_shapes
from .fused import axes_of, axis_in, fused


def _axis(axis):
    return list(axis) if isinstance(axis, tuple) else axis


@fused(static=("dtype", "axis", "keepdims"))
def _sum_of_type(x, dtype, axis, keepdims):
    return _core.cast(_core.sum(_core.cast(x, dtype), _axis(axis), keepdims), dtype)


@fused(static=("dtype", "axis", "keepdims"))
def _prod_of_type(x, dtype, axis, keepdims):
    return _core.cast(_core.prod(_core.cast(x, dtype), _axis(axis), keepdims), dtype)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    """Sums the elements in the language's order.

    Integers narrower than 64 bits and bool are summed in 64 bits; dtype casts the elements first.
    """
    if dtype is None:
        return _core.sum(x, _axis(axis), keepdims)
    return _sum_of_type(x, _core.dtype(dtype), axes_of(axis), keepdims)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """Multiplies the elements; types as in sum."""
    if dtype is None:
        return _core.prod(x, _axis(axis), keepdims)
    return _prod_of_type(x, _core.dtype(dtype), axes_of(axis), keepdims)


def max(x, /, *, axis=None, keepdims=False):
    return _core.max(x, _axis(axis), keepdims)


def min(x, /, *, axis=None, keepdims=False):
    return _core.min(x, _axis(axis), keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    return _core.mean(x, _axis(axis), keepdims)


@fused(static=("count", "correction", "axis", "keepdims"))
def _spread(x, count, correction, axis, keepdims):
    x = x if dtypes.isdtype(x.dtype, "real floating") else x / 1
    from_mean = x - _core.mean(x, _axis(axis), True)
    divisor = count - correction
    total = _core.sum(from_mean * from_mean, _axis(axis), keepdims)
    return total / (divisor if divisor > 0 else 0.0)


def _count(x, axis, name):
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    count = 1
    for a in axes:
        count *= x.shape[axis_in(a, x.ndim, name)]
    return count


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Returns the mean squared distance from the mean; `correction` is subtracted from the divisor."""
    if correction == int(correction):
        return _core.var(x, _axis(axis), int(correction), keepdims)
    return _spread(x, _count(x, axis, "var"), float(correction), axes_of(axis), keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Returns the square root of var."""
    if correction == int(correction):
        return _core.std(x, _axis(axis), int(correction), keepdims)
    return _core.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


@fused(static=("scan", "axis", "dtype", "include_initial"))
def _scanned(x, scan, axis, dtype, include_initial):
    x = x if dtype is None else _core.cast(x, dtype)
    out = _core.cumsum(x, axis) if scan == "sum" else _core.cumprod(x, axis)
    out = out if dtype is None else _core.cast(out, dtype)
    if not include_initial:
        return out
    shape = list(out.shape)
    shape[axis] = 1
    return _core.concat([_core.full(shape, 0 if scan == "sum" else 1, out.dtype), out], axis)


def _cumulative(x, scan, axis, dtype, include_initial):
    if axis is None:
        if x.ndim != 1:
            raise _core.ValueError(f"cumulative_{scan}: a tensor of rank {x.ndim} needs an axis. Pass `axis`")
        axis = 0
    axis = axis_in(axis, x.ndim, f"cumulative_{scan}")
    return _scanned(x, scan, axis, None if dtype is None else _core.dtype(dtype), include_initial)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Returns the sums up to each element along an axis; types as in sum. The axis is optional for a vector. include_initial starts with 0."""
    return _cumulative(x, "sum", axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Returns the products up to each element along an axis; types as in prod. The axis is optional for a vector. include_initial starts with 1."""
    return _cumulative(x, "prod", axis, dtype, include_initial)


def argmax(x, /, *, axis=None, keepdims=False):
    """Returns the index of the first largest element along an axis, or of the flattened array."""
    return _core.argmax(x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    """Returns the index of the first smallest element along an axis, or of the flattened array."""
    return _core.argmin(x, axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return _core.count_nonzero(x, _axis(axis), keepdims)


def all(x, /, *, axis=None, keepdims=False):
    return _core.all(x, _axis(axis), keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return _core.any(x, _axis(axis), keepdims)


@fused(static=("axis", "n"))
def _differences(x, axis, n):
    for _ in range(n):
        before = (slice(None),) * axis
        x = x[before + (slice(1, None),)] - x[before + (slice(None, -1),)]
    return x


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """Returns the n-th differences of neighbors along an axis, after joining `prepend`, x and `append`; x itself for n = 0."""
    axis = axis_in(axis, x.ndim, "diff")
    if n < 0:
        raise _core.ValueError(f"diff: the number of repetitions is {n}; it must be 0 or more")
    if n == 0:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    return _differences(x if len(parts) == 1 else _core.concat(parts, axis), axis, n)


def matmul(x1, x2, /):
    return _core.matmul(x1, x2)


def tensordot(x1, x2, /, *, axes=2):
    """Multiplies the elements of x1 and x2 and sums over pairs of axes.

    axes    a number: the last axes of x1 and the first of x2; or a pair: (axes of x1, axes of x2)
    """
    if isinstance(axes, int):
        if axes < 0 or axes > x1.ndim or axes > x2.ndim:
            raise _core.ValueError(f"tensordot: axes is {axes}, but the tensors have rank {x1.ndim} and {x2.ndim}; axes must be from 0 to the smaller rank")
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left = [axis_in(a, x1.ndim, "tensordot") for a in axes[0]]
        right = [axis_in(a, x2.ndim, "tensordot") for a in axes[1]]
    if len(left) != len(right) or [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise _core.ShapeError(f"tensordot: the axes {left} of {list(x1.shape)} and {right} of {list(x2.shape)} have different lengths; the lengths must be equal")
    names = iter(string.ascii_letters)
    first, second = ([next(names) for _ in range(x.ndim)] for x in (x1, x2))
    for a, b in zip(left, right):
        second[b] = first[a]
    out = [n for i, n in enumerate(first) if i not in left] + [n for i, n in enumerate(second) if i not in right]
    return _core.einsum(f"{''.join(first)},{''.join(second)}->{''.join(out)}", x1, x2)


def vecdot(x1, x2, /, *, axis=-1):
    """Multiplies the elements of x1 and x2 and sums along an axis of both; the other axes broadcast. The axis is counted from the end."""
    if not -_lesser_rank(x1, x2) <= axis < 0:
        raise _core.IndexError(f"vecdot: axis {axis} is out of range for tensors of rank {x1.ndim} and {x2.ndim}; it must be counted from the end")
    if x1.shape[axis] != x2.shape[axis]:
        raise _core.ShapeError(f"vecdot: lengths {x1.shape[axis]} and {x2.shape[axis]} along axis {axis} differ; the lengths must be equal")
    shape = _broadcast_shapes(x1.shape, x2.shape)
    names = string.ascii_letters[: len(shape)]
    place = len(shape) + axis
    first, second = names[len(shape) - x1.ndim :], names[len(shape) - x2.ndim :]
    return _core.einsum(f"{first},{second}->{names[:place] + names[place + 1:]}", x1, x2)


def _lesser_rank(x1, x2):
    return x1.ndim if x1.ndim < x2.ndim else x2.ndim
