"""Manipulation and indexing: the language's views under the standard's names. Inside a recording they do not copy."""
from .. import _core
from . import dtypes
from .elementwise import _broadcast_shapes
from .elements import on_elements
from .fused import axes_of, axis_in, fused


def broadcast_shapes(*shapes):
    """Returns the shape that the shapes broadcast to."""
    return _broadcast_shapes(*shapes)


def broadcast_arrays(*arrays):
    """Broadcasts the arrays to their common shape."""
    shape = _broadcast_shapes(*(x.shape for x in arrays))
    return [x if x.shape == shape else _core.broadcast_to(x, shape) for x in arrays]


def broadcast_to(x, /, shape):
    return _core.broadcast_to(x, (shape,) if isinstance(shape, int) else shape)


def concat(arrays, /, *, axis=0):
    """Joins arrays along an existing axis, or flattened with axis=None. Types promote."""
    arrays = list(arrays)
    if axis is None:
        return _core.concat([_core.reshape(x, (-1,)) for x in arrays], 0)
    return _core.concat(arrays, axis)


def stack(arrays, /, *, axis=0):
    """Joins arrays along a new axis."""
    return _core.stack(list(arrays), axis)


def unstack(x, /, *, axis=0):
    """Returns a tuple of the slices along an axis, without that axis."""
    axis = axis_in(axis, x.ndim, "unstack")
    return tuple(x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis]))


def expand_dims(x, /, axis=0):
    """Adds a new axis of length 1, or several; each axis is a position in the result."""
    if isinstance(axis, int):
        return _core.expand_dims(x, axis_in(axis, x.ndim + 1, "expand_dims"))
    rank = x.ndim + len(axis)
    places = sorted(axis_in(a, rank, "expand_dims") for a in axis)
    if len(set(places)) != len(places):
        raise _core.ValueError("expand_dims: an axis is given twice")
    rest = iter(x.shape)
    return _core.reshape(x, [1 if i in places else next(rest) for i in range(rank)])


def squeeze(x, /, axis):
    """Removes axes of length 1."""
    return _core.squeeze(x, axis if isinstance(axis, int) else list(axis))


def flip(x, /, *, axis=None):
    """Reverses the elements along an axis, several axes, or all axes."""
    return _core.flip(x, axis if axis is None or isinstance(axis, int) else list(axis))


def permute_dims(x, /, axes):
    """Permutes the axes: axis i of the result is axis axes[i] of x."""
    if x.ndim == 0 and len(axes) == 0:
        return x
    if len(axes) != x.ndim:
        raise _core.ValueError(f"permute_dims: {len(axes)} axes given for a tensor of rank {x.ndim}; one for each axis is required")
    return _core.transpose(x, axes)


def moveaxis(x, source, destination, /):
    """Moves axes to other positions; the remaining axes keep their order."""
    sources = [axis_in(a, x.ndim, "moveaxis") for a in ([source] if isinstance(source, int) else source)]
    places = [axis_in(a, x.ndim, "moveaxis") for a in ([destination] if isinstance(destination, int) else destination)]
    if len(sources) != len(places) or len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise _core.ValueError("moveaxis: source and destination must have the same number of axes, and no axis may occur twice")
    order = [a for a in range(x.ndim) if a not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return permute_dims(x, order)


def matrix_transpose(x, /):
    """Swaps the last two axes."""
    if x.ndim < 2:
        raise _core.ValueError(f"matrix_transpose: a tensor of rank {x.ndim} has fewer than two axes; at least two are required")
    return _core.swap_axes(x, -1, -2)


def reshape(x, /, shape, *, copy=None):
    """Returns the elements in row-major order with another shape, in which one length may be -1.

    copy    False: an array of the same memory, a ValueError if that is impossible
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if copy is not False or isinstance(x, _core.Tensor) or _core.is_recording():
        return _core.reshape(x, shape)
    import numpy

    view = numpy.asarray(x).view()
    try:
        view.shape = shape
    except AttributeError:
        raise _core.ValueError("reshape: copy is False, but the strides need a copy for the new shape. Pass copy=None") from None
    return _core.Array(view)


def repeat(x, repeats, /, *, axis=None):
    """Repeats each element `repeats` times along an axis, or of the flattened array with axis=None.

    With an array of counts, the result's shape depends on the counts: NumPy computes it, only outside of recordings.
    """
    if not isinstance(repeats, int):
        import numpy

        x, counts = on_elements("repeat with an array of counts", x, repeats)
        return _core.Array(numpy.repeat(x, counts, axis=axis))
    if repeats < 0:
        raise _core.ValueError(f"repeat: the number of repetitions is {repeats}; it must be 0 or more")
    if axis is None:
        return _core.repeat(_core.reshape(x, (-1,)), repeats, 0)
    return _core.repeat(x, repeats, axis)


@fused(static=("shift", "axis"))
def _roll(x, shift, axis):
    for n, a in zip(shift, axis):
        x = _core.roll(x, n, a)
    return x


def roll(x, /, shift, *, axis=None):
    """Shifts elements along axes, from the end to the front; flattens the array for axis=None."""
    if isinstance(shift, int) and (axis is None or isinstance(axis, int)):
        return _core.roll(x, shift, axis)
    if axis is None:
        raise _core.ValueError("roll: several shifts need the same number of axes")
    axes = (axis,) if isinstance(axis, int) else axes_of(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else axes_of(shift)
    if len(axes) != len(shifts):
        raise _core.ValueError(f"roll: {len(shifts)} shifts given for {len(axes)} axes; the numbers must be equal")
    return _roll(x, shifts, axes)


def tile(x, repetitions, /):
    """Repeats the whole array; `repetitions` has the count for each axis."""
    return _core.tile(x, (repetitions,) if isinstance(repetitions, int) else repetitions)


@fused(static=("k", "upper"))
def _triangle(x, k, upper):
    shape = x.shape[-2:]
    row, column = _core.iota(shape, axis=0, dtype=_core.i64), _core.iota(shape, axis=1, dtype=_core.i64)
    kept = column >= row + k if upper else column <= row + k
    return _core.where(kept, x, False if x.dtype == dtypes.bool else 0)


def tril(x, /, *, k=0):
    """Returns the elements on and below the k-th diagonal of the last two axes, 0 elsewhere."""
    if x.ndim < 2:
        raise _core.ValueError(f"tril: a tensor of rank {x.ndim} has fewer than two axes; at least two are required")
    return _triangle(x, k, False)


def triu(x, /, *, k=0):
    """Returns the elements on and above the k-th diagonal of the last two axes, 0 elsewhere."""
    if x.ndim < 2:
        raise _core.ValueError(f"triu: a tensor of rank {x.ndim} has fewer than two axes; at least two are required")
    return _triangle(x, k, True)


def take(x, indices, /, *, axis=None):
    """Returns the slices of x at indices along an axis. The axis is optional for a vector."""
    if axis is None:
        if x.ndim != 1:
            raise _core.ValueError(f"take: a tensor of rank {x.ndim} needs an axis. Pass `axis`")
        axis = 0
    return _core.take(x, indices, axis)


def take_along_axis(x, indices, /, *, axis=-1):
    """Returns the elements of x at indices along an axis; the other axes broadcast."""
    return _core.take_along_axis(x, indices, axis)


def where(condition, x1, x2, /):
    """Returns x1's elements where the condition is true, x2's elsewhere. Either may be a number."""
    return _core.where(condition, x1, x2)


def isin(x1, x2, /, *, invert=False):
    """Tests for each element of x1 whether it occurs in x2."""
    from ..numpy_functions import isin as _isin  # that package uses this one

    return _isin(x1, x2, invert=invert)
