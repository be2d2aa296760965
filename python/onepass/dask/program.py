"""Converts a function of arrays to a formula of their blocks, which workers get instead of Python code."""
import math
import re
import typing

from .. import _core
from ..array_api.elementwise import _broadcast_shapes


class Program(typing.NamedTuple):
    """A function of arrays a0, a1, … as statements of the formula language."""

    statements: tuple
    result: str
    dtype: object
    shape: tuple
    reduces: bool  # along axes that must be whole

    def text(self, ending="{}"):
        return "\n".join([*self.statements, "out = " + ending.format(self.result)])


_SLOT = re.compile(r"slot (\d+) = (\S+)")
_NODE = re.compile(r"%(\d+) = (\w+) ?(.*?) : (\w+)\[(.*)\]$")
_RETURN = re.compile(r"return \w+ = %(\d+)$")
_REDUCTIONS = {"reduce_sum": "sum", "reduce_prod": "prod", "reduce_max": "max", "reduce_min": "min"}
_ALIASES = ("stop_gradient", "identity", "broadcast")  # operands broadcast automatically
_ELEMENTWISE = {
    name: {"integer_pow": "pow"}.get(name, name)
    for name in """neg abs sign add sub mul div floor_div remainder fmod integer_pow fma maximum minimum clamp copysign sqrt reciprocal square
        floor ceil trunc round equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit bitwise_and bitwise_or
        bitwise_xor bitwise_not shift_left shift_right popcount where exp exp2 expm1 log log2 log10 log1p pow rsqrt cbrt hypot logaddexp sigmoid
        sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma""".split()
}  # fmt: skip
# Two lengths for each axis, counted from the last axis, so that length-dependent values differ between the two recordings.
_LENGTHS = ((3, 5, 7, 11, 13, 17), (4, 6, 9, 10, 14, 15))


def _length(recording, from_end):
    return _LENGTHS[recording][from_end] if from_end < 6 else 2 + recording


def recorded(function, arrays, whole, options):
    """Returns the program of a function of these Dask arrays, which must work elementwise or along the axes `whole` of the result.

    Errors    UnsupportedError for other functions, and for a function that depends on the lengths of other axes.
    """
    shape = _broadcast_shapes(*(a.shape for a in arrays))
    if any(math.isnan(n) for n in shape):
        raise _core.ValueError("a Dask array has an unknown shape. Call compute_chunk_sizes() first")
    if isinstance(function, _core.Formula):
        compiled, names = function, list(function.inputs)
        if len(names) != len(arrays):
            raise _core.ValueError(f"the formula has {len(names)} inputs ({', '.join(names)}), but {len(arrays)} arrays are given")
    else:
        compiled, names = _core.Function(lambda *xs: function(*xs), None, **options), [f"x{i}" for i in range(len(arrays))]
    programs = [_program(*_recorded_text(compiled, arrays, shape, whole, i), names, shape, whole) for i in (0, 1)]
    if programs[0] != programs[1]:
        raise _core.UnsupportedError(
            "the function depends on the lengths of arrays, which differ from block to block. Pass the length as a number, or name the axis in whole="
        )
    return programs[0]


def _recorded_text(compiled, arrays, shape, whole, recording):
    import numpy

    examples = []
    for a in arrays:
        lengths = []
        for i, n in enumerate(a.shape):
            from_end = a.ndim - 1 - i
            lengths.append(n if n == 1 or len(shape) - 1 - from_end in whole else _length(recording, from_end))
        examples.append(numpy.ones(lengths, a.dtype))
    try:
        compiled(*examples)
    except (_core.ShapeError, _core.IndexError) as error:  # the arrays broadcast, so another array has a fixed length
        raise _core.UnsupportedError(f"the function does not work with blocks of other lengths. Pass each array that it reads as an argument.\n{error}") from None
    return compiled.recorded_graph(), _broadcast_shapes(*(x.shape for x in examples))


def _literal(number, dtype):
    if dtype == "bool":
        return "true" if number in ("1", "true") else "false"
    return number if dtype in ("f16", "bf16") else f"cast({number}, {dtype})"


def _program(text, block_shape, names, shape, whole):
    """Converts the printed form of a recorded graph to a program. `values` has the nodes so far: (name, shape in the formula, type)."""
    slots, values, statements, reduces, result = {}, {}, [], False, None
    for line in text.splitlines():
        if m := _SLOT.match(line):
            slots[m[1]] = m[2]
        elif m := _RETURN.match(line):
            result = values[m[1]]
        elif m := _NODE.match(line):
            number, operator, rest, dtype, extents = m.groups()
            extents = tuple(int(n) for n in extents.split(",")) if extents else ()
            operands = [values[n] for n in re.findall(r"%(\d+)", rest)]
            name, expression = f"v{number}", None
            if operator == "input":
                if rest not in names:
                    raise _core.UnsupportedError("the function reads an array that is not one of its arguments. Pass the array as an argument")
                name = f"a{names.index(rest)}"
            elif operator in ("slot", "constant"):
                name, extents = _literal(slots[rest] if operator == "slot" else rest.split()[0], dtype), ()
            elif operator in _ALIASES:
                values[number] = (*operands[0][:2], dtype)
                continue
            elif operator == "reshape":
                expression = _with_ones(*operands[0][:2], extents)
            elif operator in ("cast", "bitcast"):
                expression, extents = f"{operator}({operands[0][0]}, {dtype})", operands[0][1]
            elif operator in _ELEMENTWISE:
                expression = f"{_ELEMENTWISE[operator]}({', '.join(o[0] for o in operands)})"
                extents = _broadcast_shapes(*(o[1] for o in operands))
            elif operator in _REDUCTIONS:
                axes = [int(n) for n in re.search(r"\{(.*)\}", rest)[1].split(",")]
                if operands[0][1] == block_shape and all(a in whole for a in axes):
                    expression, reduces = f"{_REDUCTIONS[operator]}({operands[0][0]}, axis={axes})", True
            if expression:
                statements.append(f"{name} = {expression}")
            elif operator not in ("input", "slot", "constant"):
                hint = "" if operator not in _REDUCTIONS else ". Name the reduced axes in whole=, or use onepass.dask.sum and the like"
                raise _core.UnsupportedError(f"the function is not elementwise: it contains {operator}{hint}")
            values[number] = (name, extents, dtype)
    if result is None:
        raise _core.UnsupportedError("a function of Dask arrays must have one result")
    if result[1] != block_shape:
        raise _core.UnsupportedError(f"the result has the shape {list(result[1])}, but the broadcast shape of the arrays is {list(block_shape)}; the shapes must be equal")
    return Program(tuple(statements), result[0], _core.dtype(result[2]), shape, reduces)


def _with_ones(name, before, after):
    """Returns a reshape that adds and drops axes of length 1; None for another reshape."""
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    dropped = [i for i, n in enumerate(before) if n == 1]
    out = f"squeeze({name}, {dropped})" if dropped else name
    for i, n in enumerate(after):
        out = f"expand_dims({out}, {i})" if n == 1 else out
    return out
