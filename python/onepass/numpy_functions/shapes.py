"""NumPy's functions that move, join and split axes."""
from .. import _core
from ..array_api import manipulation as _manipulation
from ..array_api.creation import empty as _empty
from ..array_api.fused import axis_in, fused
from .operands import array_of, composed, fixed, has, operand, whole

__all__ = """append array array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_shapes column_stack copy diagflat dsplit
    dstack empty_like fliplr flipud hsplit hstack identity indices moveaxis ndim ravel rollaxis rot90 row_stack shape size split vsplit
    vstack""".split()


def part(x, axis, key):
    """Returns x[…, key, …] with the key at that axis, counted from the front."""
    return x[(slice(None),) * axis + (key,)]


def least_rank(name, x, rank):
    if x.ndim < rank:
        raise _core.ShapeError(f"{name}: an array of rank {x.ndim} has too few axes; at least {rank} {'is' if rank == 1 else 'are'} required")
    return x


# ---- one array


def array(object, dtype=None, copy=True):
    """Makes an Array with a copy of the elements. A Tensor, whose elements never change, is returned as it is; a list with Tensors is stacked."""
    x = array_of(object) if has((_core.Array, _core.Tensor), object) else _core.Array(object)
    if dtype is not None and x.dtype != dtype:
        return _core.cast(x, dtype)
    return _core.Array(x, copy=True) if copy and isinstance(x, _core.Array) else x


def copy(a):
    """Makes an Array with a copy of the elements; a Tensor, whose elements never change, is returned as it is."""
    return array(a)


def shape(a):
    return tuple(array_of(a).shape)


def ndim(a):
    return array_of(a).ndim


def size(a, axis=None):
    """Returns the number of elements, or of those along an axis."""
    a = array_of(a)
    return a.size if axis is None else a.shape[axis_in(axis, a.ndim, "size")]


def empty_like(prototype, dtype=None):
    """Makes an array with the shape and type of the prototype: uninitialized; zeros inside a recording."""
    prototype = array_of(prototype)
    return _empty(prototype.shape, dtype=prototype.dtype if dtype is None else dtype)


def ravel(a, order="C"):
    """Returns the elements along one axis, in row-major order, or with order="F" in column-major order."""
    if order not in ("C", "F"):
        raise _core.ValueError(f"ravel: order must be 'C' or 'F', not {order!r}")
    a = array_of(a)
    return _core.reshape(a if order == "C" or a.ndim < 2 else _core.transpose(a), (-1,))


def moveaxis(a, source, destination):
    """Moves axes to other positions; the remaining axes keep their order."""
    return _manipulation.moveaxis(array_of(a), fixed(source), fixed(destination))


def rollaxis(a, axis, start=0):
    """Moves an axis in front of the axis at position `start`."""
    a = array_of(a)
    axis, start = axis_in(axis, a.ndim, "rollaxis"), start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise _core.IndexError(f"rollaxis: start is {start}; it must be from {-a.ndim} to {a.ndim}")
    return _manipulation.moveaxis(a, axis, start - 1 if axis < start else start)


def _each(change, arrays):
    out = [change(array_of(x)) for x in arrays]
    return out[0] if len(out) == 1 else out


def front(x, rank):
    """Adds axes of length 1 in front."""
    return x if x.ndim >= rank else x[(None,) * (rank - x.ndim)]


def _three(x):
    return front(x, 2)[..., None] if x.ndim < 3 else x


def atleast_1d(*arys):
    """Returns each array with at least one axis: one array, or a list."""
    return _each(lambda x: front(x, 1), arys)


def atleast_2d(*arys):
    """Returns each array with at least two axes, new ones first: one array, or a list."""
    return _each(lambda x: front(x, 2), arys)


def atleast_3d(*arys):
    """Returns each array with at least three axes: a vector has shape [1, n, 1], a matrix [n, m, 1]."""
    return _each(_three, arys)


def flipud(m):
    """Reverses the first axis."""
    return _core.flip(least_rank("flipud", array_of(m), 1), 0)


def fliplr(m):
    """Reverses the second axis."""
    return _core.flip(least_rank("fliplr", array_of(m), 2), 1)


def rot90(m, k=1, axes=(0, 1)):
    """Rotates by k quarter turns in the plane of two axes, from the first one to the second one."""
    m, k = array_of(m), whole(k, "rot90", "k")
    if len(axes) != 2:
        raise _core.ValueError(f"rot90: {len(axes)} axes given; two are required")
    a, b = (axis_in(axis, m.ndim, "rot90") for axis in axes)
    if a == b:
        raise _core.ValueError(f"rot90: the axes {axes[0]} and {axes[1]} are the same; they must be different")
    if k % 4 == 2:
        return _core.flip(m, [a, b])
    turned = m if k % 4 == 0 else _core.swap_axes(_core.flip(m, b) if k % 4 == 1 else m, a, b)
    return _core.flip(turned, b) if k % 4 == 3 else turned


def diagflat(v, k=0):
    """Returns a matrix with the elements of v on its k-th diagonal."""
    return _core.diag(ravel(v), k)


def identity(n, dtype=None):
    return _core.eye(n) if dtype is None else _core.cast(_core.eye(n), dtype)


def indices(dimensions, dtype=_core.i64, sparse=False):
    """Returns the index of each element of a grid: one array with a first axis for the axes of the grid. sparse: a tuple of arrays that broadcast."""
    lengths = fixed(dimensions)
    if sparse:
        return tuple(_core.iota([n if a == axis else 1 for a, n in enumerate(lengths)], axis=axis, dtype=dtype) for axis in range(len(lengths)))
    return _core.stack([_core.iota(lengths, axis=axis, dtype=dtype) for axis in range(len(lengths))]) if lengths else _core.zeros((0,), dtype)


def broadcast_shapes(*shapes):
    """Returns the shape that the shapes broadcast to."""
    return _manipulation.broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes))


def broadcast_arrays(*args):
    """Broadcasts the arrays to their common shape."""
    return _manipulation.broadcast_arrays(*(array_of(x) for x in args))


# ---- join


def _joined(name, arrays, axis):
    if not arrays:
        raise _core.ValueError(f"{name}: the list is empty; at least one array is required")
    return _core.concat(arrays, axis)


@composed(lists=("tup",))
def hstack(tup):
    """Joins arrays along the second axis; vectors along the first."""
    arrays = [front(x, 1) for x in tup]
    return _joined("hstack", arrays, 0 if not arrays or arrays[0].ndim == 1 else 1)


@composed(lists=("tup",))
def vstack(tup):
    """Joins arrays along the first axis; a vector is one row."""
    return _joined("vstack", [front(x, 2) for x in tup], 0)


row_stack = vstack


@composed(lists=("tup",))
def dstack(tup):
    """Joins arrays along the third axis, after atleast_3d."""
    return _joined("dstack", [_three(x) for x in tup], 2)


@composed(lists=("tup",))
def column_stack(tup):
    """Joins vectors as columns, and matrices, along the second axis."""
    return _joined("column_stack", [_core.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in tup], 1)


def _depth(arrays, path=""):
    """Returns the number of nested lists. Errors: ValueError unless it is the same for all."""
    if isinstance(arrays, tuple):
        raise _core.ValueError("block: a tuple is given; only lists arrange arrays. Write a list")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise _core.ValueError("block: a list is empty; each list needs at least one array")
    depths = {_depth(a) for a in arrays}
    if len(depths) > 1:
        raise _core.ValueError(f"block: lists of different depths are mixed ({' and '.join(str(d + 1) for d in sorted(depths))}); all arrays need the same depth")
    return depths.pop() + 1


def _leaves(arrays):
    return [v for a in arrays for v in _leaves(a)] if isinstance(arrays, list) else [arrays]


@fused()
def _block(arrays):
    depth = _depth(arrays)
    rank = max(depth, *(x.ndim for x in _leaves(arrays)))

    def joined(part, level):
        return _core.concat([joined(p, level - 1) for p in part], -level) if level else front(part, rank)

    return joined(arrays, depth)


def block(arrays):
    """Joins a nested list of blocks: the innermost lists along the last axis, the next ones along the axis before it, and so on."""
    _depth(arrays)

    def given(part):
        return [given(p) for p in part] if isinstance(part, list) else operand(part)

    return _block(given(arrays)) if isinstance(arrays, list) else array(arrays)


@composed(static=("axis",))
def append(arr, values, axis=None):
    """Joins arr and values along an axis, or both as vectors without one."""
    return _core.concat([_core.reshape(x, (-1,)) for x in (arr, values)], 0) if axis is None else _core.concat([arr, values], axis)


# ---- split


def _split(name, x, sections, axis, equal=False):
    n, sections = x.shape[axis], fixed(sections)
    if isinstance(sections, int):
        if sections <= 0:
            raise _core.ValueError(f"{name}: the number of sections is {sections}; it must be 1 or more")
        if equal and n % sections:
            raise _core.ShapeError(f"{name}: an axis of length {n} has no {sections} equal sections. Use array_split")
        size, longer = divmod(n, sections)
        sections = [i * size + min(i, longer) for i in range(1, sections)]
    else:
        sections = [whole(i, name, "an index") for i in (sections if isinstance(sections, tuple) else (sections,))]
    return [part(x, axis, slice(start, stop)) for start, stop in zip((0, *sections), (*sections, n))]


def array_split(ary, indices_or_sections, axis=0):
    """Splits an axis into a number of sections, whose lengths differ by at most 1, or at the given indices."""
    x = array_of(ary)
    return _split("array_split", x, indices_or_sections, axis_in(axis, x.ndim, "array_split"))


def split(ary, indices_or_sections, axis=0):
    """Splits an axis into a number of equal sections, or at the given indices. Each section of an Array shares its memory.

    Errors    ShapeError if the sections cannot be equal.
    """
    x = array_of(ary)
    return _split("split", x, indices_or_sections, axis_in(axis, x.ndim, "split"), equal=True)


def hsplit(ary, indices_or_sections):
    """Splits the second axis, or that of a vector, like split."""
    x = least_rank("hsplit", array_of(ary), 1)
    return _split("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1, equal=True)


def vsplit(ary, indices_or_sections):
    """Splits the first axis of an array of two or more axes, like split."""
    return _split("vsplit", least_rank("vsplit", array_of(ary), 2), indices_or_sections, 0, equal=True)


def dsplit(ary, indices_or_sections):
    """Splits the third axis, like split."""
    return _split("dsplit", least_rank("dsplit", array_of(ary), 3), indices_or_sections, 2, equal=True)
