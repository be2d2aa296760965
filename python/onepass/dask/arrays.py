"""Dask arrays with onepass blocks."""
import ast
import math
import sys

from .. import _core
from .blocks import Order, finished, merged, partial, run
from .program import Program, recorded


def _dask_array(x):
    import dask.array
    import numpy

    if isinstance(x, dask.array.Array):
        return x
    return dask.array.from_array(x if isinstance(x, numpy.ndarray) else numpy.asarray(x), chunks=-1)


def _given(function, arrays):
    """Returns the function and the arrays as Dask arrays. Numbers among the arrays become literals of the function."""
    numbers = {i: a for i, a in enumerate(arrays) if type(a) in (bool, int, float)}
    if numbers and isinstance(function, _core.Formula):
        raise _core.ValueError("a formula of Dask arrays takes only arrays. Write the number into the formula, or use onepass.dask.evaluate")

    def of_arrays(*xs):
        rest = iter(xs)
        return function(*(numbers[i] if i in numbers else next(rest) for i in range(len(arrays))))

    found = [_dask_array(a) for i, a in enumerate(arrays) if i not in numbers]
    if not found:
        raise _core.ValueError("a function of Dask arrays needs at least one Dask array")
    return (of_arrays if numbers else function), found


def _labels(a):
    return tuple(range(a.ndim))[::-1]


def _blockwise(text, options, arrays, shape, dtype, whole=(), kept=None, reduced=()):
    """Applies the formula to each block. `kept`: axes outside of its sums. `reduced`: axes with length 1 in the result."""
    import dask.array
    import numpy

    rank = len(shape)
    arrays = [a.rechunk({axis + a.ndim - rank: -1 for axis in whole if axis + a.ndim - rank >= 0}) for a in arrays]
    long = tuple(tuple(n > 1 for n in a.shape) for a in arrays)
    pairs = [v for a in arrays for v in (a, _labels(a))]
    return dask.array.blockwise(
        run, tuple(range(rank))[::-1], *pairs, text=text, options=options, long=long, kept=() if kept is None else kept,
        adjust_chunks={rank - 1 - axis: 1 for axis in reduced} or None, dtype=_numpy_type(dtype), meta=numpy.empty((0,) * rank, _numpy_type(dtype)),
        name="onepass-" + dask.base.tokenize(text, options, kept, *arrays),
    )  # fmt: skip


def _numpy_type(dtype):
    import numpy

    return numpy.asarray(_core.empty((0,), dtype)).dtype


def _options_of(function, options):
    """Merges the options of a compiled function with the given options."""
    own = getattr(function, "_options", {})
    return {**{k: v for k, v in own.items() if k != "should_stop"}, **options}


def _options(options):
    return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()))


def _axes(axis, rank):
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    for a in axes:
        if not -rank <= a < rank:
            raise _core.IndexError(f"axis {a} is out of range for an array of rank {rank}")
    return tuple(sorted(a % rank for a in axes))


def map(function, *arrays, whole=(), **options):
    """Applies a function to Dask arrays, block by block, and returns a Dask array.

    Arrays broadcast, and their chunks are aligned. Numbers are literals of the function.

    function  of arrays, compiled or not, or a formula. It must work elementwise, except along the axes in `whole`
    whole     axes of the result that become one chunk, so that the function may work along them: `map(op.softmax, x, whole=-1)`
    options   of `jit`, for the workers
    Errors    UnsupportedError if the function works along other axes, captures arrays, or depends on the lengths of divided axes.
    """
    options = _options_of(function, options)
    function, arrays = _given(function, arrays)
    rank = max(a.ndim for a in arrays)
    whole = _axes(whole, rank)
    program = recorded(function, arrays, whole, options)
    kept = tuple(axis for axis in range(rank) if axis not in whole) if program.reduces else None
    return _blockwise(program.text(), _options(options), arrays, program.shape, program.dtype, whole, kept)


def call(function, args, kwargs, out=None):
    """Calls a compiled function or formula with Dask arrays, by `map`."""
    if out is not None or "out" in kwargs:
        raise _core.ValueError("out: a call cannot write to a Dask array")
    if isinstance(function, _core.Formula) and not args:
        args, kwargs = [kwargs[name] for name in function.inputs if name in kwargs], {k: v for k, v in kwargs.items() if k not in function.inputs}
    if kwargs:
        raise TypeError(f"a function of Dask arrays takes arguments only by position, not {', '.join(kwargs)}=")
    return map(function, *args)


def evaluate(text, local_dict=None, global_dict=None, *, whole=(), **options):
    """Returns the value of a formula of variables, some of which are Dask arrays, as a Dask array. Finds variables like onepass.evaluate.

    A formula that is one reduction, `sum(EXPRESSION, axis=0)`, is summed block by block. Otherwise see `map`.
    """
    frame = sys._getframe(1)
    local_dict = frame.f_locals if local_dict is None else local_dict
    global_dict = frame.f_globals if global_dict is None else global_dict
    reduction, inner, settings = _reduction_in(text)
    formula = _core.Formula(inner, **options)
    values = []
    for name in formula.inputs:
        if name not in local_dict and name not in global_dict:
            raise KeyError(name)
        values.append(local_dict[name] if name in local_dict else global_dict[name])
    numbers = {name: v for name, v in zip(formula.inputs, values) if type(v) in (bool, int, float)}
    if numbers:
        literals = "\n".join(f"{name} = {_literal(v)}" for name, v in numbers.items())
        formula = _core.Formula(literals + "\n" + inner, **options)
        given = dict(zip(_core.Formula(inner).inputs, values))
        values = [given[name] for name in formula.inputs]
    if reduction:
        return reduced(reduction, formula, values, options=options, **settings)
    return map(formula, *values, whole=whole, **options)


def _literal(value):
    return str(value).lower() if isinstance(value, bool) else f"({value!r})"


def _reduction_in(text):
    """Parses `sum(x, axis=0)` as (sum, x, {axis: 0}); other formulas as (None, text, {})."""
    try:
        call = ast.parse(text.strip().replace("axis=none", "axis=None").replace("=true", "=True").replace("=false", "=False"), mode="eval").body
    except SyntaxError:
        return None, text, {}
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS and 1 <= len(call.args) <= 2):
        return None, text, {}
    try:
        settings = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
        if len(call.args) == 2:
            settings["axis"] = ast.literal_eval(call.args[1])
    except ValueError:
        return None, text, {}
    return (call.func.id, ast.unparse(call.args[0]), settings) if set(settings) <= {"axis", "keepdims", "ddof"} else (None, text, {})


KINDS = ("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "count_nonzero")
_FAN_IN = 16


def reduced(kind, given, arrays, axis=None, keepdims=False, ddof=0, options=None):
    options = options or {}
    if callable(given):
        options = _options_of(given, options)
        function, arrays = _given(given, arrays)
        program = recorded(function, arrays, (), options)
    else:
        arrays = [_dask_array(given)]
        program = Program((), "a0", _core.dtype(arrays[0].dtype), arrays[0].shape, False)
    axes = _axes(list(axis) if isinstance(axis, (tuple, list)) else axis, len(program.shape))
    out = _with_axes(kind, program, arrays, axes, ddof, _options(options))
    return out if keepdims else out[tuple(0 if a in axes else slice(None) for a in range(out.ndim))]


def _with_axes(kind, program, arrays, axes, ddof, options):
    """Reduces with its axes kept, with length 1."""
    shape, settings = program.shape, f", axis={list(axes)}, keepdims=true"
    spread = f", ddof={ddof}" if kind in ("var", "std") else ""
    dtype = _core.Formula(f"{kind}(x)")(_core.ones((1,), program.dtype)).dtype
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    half = program.dtype in (_core.f16, _core.bf16)
    floats = program.dtype in (_core.f32, _core.f64) or half

    def at_once():
        return _blockwise(program.text(f"{kind}({{}}{settings}{spread})"), options, arrays, shape, dtype, axes, kept, axes)

    if 0 in shape:
        return at_once()
    if kind in ("max", "min", "any", "all", "count_nonzero") or not floats and kind in ("sum", "prod"):  # in any order
        parts = _blockwise(program.text(f"{kind}({{}}{settings})"), options, arrays, shape, dtype, (), None, axes)
        again = "sum" if kind == "count_nonzero" else kind
        return _blockwise(f"out = {again}(a0{settings})", options, [parts], parts.shape, dtype, axes, None, axes)
    order = _order_of(shape, axes)
    if order is None or half and (program.statements or kind in ("var", "std")):  # halves stay unrounded only within one formula
        return at_once()
    accumulator = dtype if dtype == _core.f64 else _core.f32
    element = "{}" if program.dtype == accumulator else f"cast({{}}, {accumulator.name})"
    count = math.prod(shape[a] for a in axes)
    if kind in ("var", "std"):
        mean = _with_axes("mean", program, arrays, axes, 0, options)
        name = f"a{len(arrays)}"
        distance = f"v = {element.format(program.result)} - {name}"
        program = program._replace(statements=(*program.statements, distance), result="v*v")
        arrays, element = [*arrays, mean], "{}"
    operator = "mul" if kind == "prod" else "add"
    ending = {"mean": f"a0 / {count}", "var": f"a0 / {max(count - ddof, 0)}", "std": f"sqrt(a0 / {max(count - ddof, 0)})"}.get(kind, "a0")
    if half:
        ending = f"cast({ending}, {dtype.name})"
    cut, unit, block = order
    name = "prod" if kind == "prod" else "sum"
    cutting = Order(
        program.text(f"{name}({element}{settings})"), program.text(element), options, tuple(tuple(n > 1 for n in a.shape) for a in arrays),
        tuple(a for a in kept if shape[a] > 1), axes, cut, unit, block, operator,
    )  # fmt: skip
    return _tree(cutting, "out = " + ending, arrays, shape, dtype)


def _order_of(shape, axes):
    """Returns (axis that may be divided, elements of a step along it, elements of a block) for the order of a sum; None if no axis may be divided."""
    long = [a for a in axes if shape[a] > 1]
    if not long or any(shape[a] > 1 and a not in axes for a in range(long[0], long[-1])):
        return None  # runs with absent elements: docs/language.md
    block = 4096 if max(a for a, n in enumerate(shape) if n > 1) in axes else 256
    unit = math.prod(shape[a] for a in long[1:])
    return (long[0], unit, block) if shape[long[0]] > block // math.gcd(block, unit) else None


def _tree(order, ending, arrays, shape, dtype):
    import dask
    import dask.array
    import numpy

    rank, step = len(shape), order.block // math.gcd(order.block, order.unit)
    chunks, arrays = dask.array.unify_chunks(*(v for a in arrays for v in (a, _labels(a))))
    chunks = [chunks[rank - 1 - axis] for axis in range(rank)]
    for axis in order.axes:
        chunks[axis] = (shape[axis],)
    edges = numpy.cumsum(_cut_chunks(arrays, order.cut - rank))
    edges = sorted({min(round(edge / step) * step, shape[order.cut]) for edge in edges[:-1].tolist()} - {0, shape[order.cut]})
    edges = [0, *edges, shape[order.cut]]
    chunks[order.cut] = tuple(b - a for a, b in zip(edges, edges[1:]))
    delayed = []
    for a in arrays:
        own = chunks[rank - a.ndim :]
        a = a.rechunk(tuple((1,) if n == 1 else c for n, c in zip(a.shape, own)))
        delayed.append(a.to_delayed(optimize_graph=False))
    of_part, of_parts, of_all = (dask.delayed(f, pure=True) for f in (partial, merged, finished))
    kept_chunks = [(1,) if axis in order.axes else c for axis, c in enumerate(chunks)]
    out = numpy.empty([len(c) for c in kept_chunks], object)
    for at in numpy.ndindex(out.shape):
        parts = []
        for i, start in enumerate(edges[:-1]):
            place = [i if axis == order.cut else n for axis, n in enumerate(at)]
            blocks = [d[tuple(0 if n == 1 else p for n, p in zip(d.shape, place[rank - d.ndim :]))] for d in delayed]
            parts.append(of_part(order, start, *blocks))
        while len(parts) > 1:
            parts = [of_parts(order.operator, *parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        block = of_all(order.operator, ending, order.options, parts[0])
        out[at] = dask.array.from_delayed(block, [c[n] for c, n in zip(kept_chunks, at)], _numpy_type(dtype))
    return dask.array.block(out.tolist())


def _cut_chunks(arrays, from_end):
    return next(a.chunks[from_end] for a in arrays if from_end >= -a.ndim and a.shape[from_end] > 1)
