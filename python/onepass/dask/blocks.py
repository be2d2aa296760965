"""Code of the workers: formulas of blocks, and partial sums as nodes of the tree of docs/language.md, "The order of summation"."""
import functools
import math
import typing

from .. import _core
from ..array_api.elementwise import _broadcast_shapes
from ..formulas import readable


@functools.lru_cache(maxsize=256)
def _formula(text, options):
    return _core.Formula(text, **dict(options))


def _called(text, options, blocks):
    import numpy

    formula = _formula(text, options)
    return numpy.asarray(formula(**{name: readable(numpy.asarray(blocks[int(name[1:])])) for name in formula.inputs}))


def run(*blocks, text, options, long=None, kept=()):
    """Evaluates the formula of blocks a0, a1, …

    kept    axes of the result outside of its sums. The order of a sum depends on which axes have more than one element. If such an axis has
            length 1 in this block but not in the whole array (`long`, by array and axis), it is therefore stretched.
    """
    import numpy

    blocks = [numpy.asarray(b) for b in blocks]
    if not kept:
        return _called(text, options, blocks)
    rank = max(b.ndim for b in blocks)
    stretched = [axis for axis in kept if _is_one(blocks, long, axis - rank)]
    for axis in stretched:
        blocks = [_stretched(b, axis - rank) if axis - rank >= -b.ndim and l[axis - rank] else b for b, l in zip(blocks, long)]
    out = _called(text, options, blocks)
    return out[tuple(slice(0, 1) if axis in stretched else slice(None) for axis in range(rank))]


def _is_one(blocks, long, from_end):
    having = [b.shape[from_end] for b, l in zip(blocks, long) if from_end >= -b.ndim and l[from_end]]
    return bool(having) and having[0] == 1


def _stretched(block, axis):
    import numpy

    shape = list(block.shape)
    shape[axis] = 2
    return numpy.broadcast_to(block, shape)


def _joined(operator, a, b):
    import numpy

    return numpy.asarray(getattr(_core, operator)(readable(a), readable(b)))


def _pieces(first, last):
    """Yields the blocks in [first, last) as tree nodes: (level, index) for 2^level blocks, starting at index·2^level."""
    while first < last:
        level = (last - first).bit_length() - 1
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        yield level, first >> level
        first += 1 << level


class Order(typing.NamedTuple):
    """The division of a sum: along axis `cut`, where each step has `unit` elements, in blocks of `block` elements."""

    text: str  # formula for the sum of a part
    values: str  # formula for its elements, if parts end within a step
    options: tuple
    long: tuple
    kept: tuple
    axes: tuple
    cut: int
    unit: int
    block: int
    operator: str


def partial(order, start, *blocks):
    """Returns the sums of a part that starts at `start` along the divided axis: {(level, index): sum}."""
    import numpy

    blocks = [numpy.asarray(b) for b in blocks]
    rank = max(b.ndim for b in blocks)
    shape = _broadcast_shapes(*(b.shape for b in blocks))
    length = shape[order.cut]
    first = start * order.unit // order.block
    last = -(-(start + length) * order.unit // order.block)
    nodes = {}
    if order.unit & (order.unit - 1) == 0:
        for level, index in _pieces(first, last):
            begin = (index << level) * order.block // order.unit - start
            end = min(length, ((index + 1) << level) * order.block // order.unit - start)
            parts = [_part(b, order.cut - rank, begin, end) for b in blocks]
            nodes[level, index] = run(*parts, text=order.text, options=order.options, long=order.long, kept=order.kept)
        return nodes
    # Parts end within a step, so their elements are flattened.
    values = numpy.broadcast_to(_called(order.values, order.options, blocks), shape)
    before, behind = math.prod(shape[: order.axes[0]]), math.prod(shape[order.axes[-1] + 1 :])
    flat = values.reshape(before, -1, behind)
    kept_shape = [1 if axis in order.axes else n for axis, n in enumerate(shape)]
    is_kept_behind = any(axis > order.axes[-1] for axis in order.kept)
    name = "sum" if order.operator == "add" else "prod"
    for level, index in _pieces(first, last):
        begin = (index << level) * order.block - start * order.unit
        piece = flat[:, begin : begin + (order.block << level)]
        if is_kept_behind and behind == 1:
            piece = _stretched(piece, 2)
        nodes[level, index] = _called(f"out = {name}(a0, axis=1)", order.options, [piece])[:, :behind].reshape(kept_shape)
    return nodes


def _part(block, axis, begin, end):
    if axis < -block.ndim or block.shape[axis] == 1:
        return block
    return block[(Ellipsis, slice(begin, end)) + (slice(None),) * (-1 - axis)]


def merged(operator, *parts):
    """Merges the nodes of all parts and joins neighbors."""
    nodes = {}
    for part in parts:
        for (level, index), value in part.items():
            while (level, index ^ 1) in nodes:
                value = _joined(operator, nodes.pop((level, index ^ 1)), value)  # in either order: a + b is b + a
                level, index = level + 1, index >> 1
            nodes[level, index] = value
    return nodes


def finished(operator, ending, options, nodes):
    """Joins all nodes to the root and applies the ending formula."""
    in_order = [nodes[key] for key in sorted(nodes, key=lambda key: key[1] << key[0])]
    total = in_order.pop()
    while in_order:
        total = _joined(operator, in_order.pop(), total)
    return total if ending == "out = a0" else _called(ending, options, [total])
