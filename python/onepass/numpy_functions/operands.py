"""Operands of functions that combine several operators: lists, numbers and NumPy arrays become Arrays or Tensors."""
import functools
import inspect
import operator

from .. import _core
from ..array_api import dtypes as _dtypes
from ..array_api.fused import fused


def has(kinds, value):
    """True if a value of one of these classes is in the value, which may be nested in lists, tuples and dicts."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return isinstance(value, kinds)
    return any(has(kinds, v) for v in value)


def operand(x):
    """Returns x as an Array or Tensor. Outside of a recording a number is unchanged, so that it stays weakly typed."""
    if x is None or isinstance(x, (_core.Array, _core.Tensor)):
        return x
    if isinstance(x, (bool, int, float)) and not hasattr(x, "dtype"):
        return _core._as_tensor(x) if _core.is_recording() else x
    if isinstance(x, (list, tuple)) and has((_core.Array, _core.Tensor), x):
        return _core.stack([operand(v) for v in x])
    return _core.Array(x)


def array_of(x):
    """Returns x as an Array or Tensor, which may have rank 0."""
    x = operand(x)
    return x if isinstance(x, (_core.Array, _core.Tensor)) else _core.broadcast_to(x, ())


def operands(xs, name):
    """Returns each element of a sequence as an operand. An array counts as the sequence of its slices."""
    if isinstance(xs, (list, tuple)):
        return [operand(x) for x in xs]
    xs = array_of(xs)
    if xs.ndim == 0:
        raise _core.ShapeError(f"{name}: an array of rank 0 is given in place of several arrays. Pass a list of arrays")
    return [xs[i] for i in range(xs.shape[0])]


def whole(value, name, parameter):
    """Returns a parameter as an int. Errors: DTypeError unless it is an integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise _core.DTypeError(f"{name}: {parameter} is {value!r}; it must be an int") from None


def fixed(value):
    """Returns a parameter that is part of the compiled code in a hashable form: sequences as tuples, NumPy's integers as ints."""
    if hasattr(value, "tolist") and not isinstance(value, _core.Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(fixed(v) for v in value)
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, (bool, int)) else value


def is_known(x):
    """True if the elements of x are known now: for all but Tensors, and Arrays inside of a recording, which are read at each call."""
    return not has((_core.Array, _core.Tensor) if _core.is_recording() else (_core.Tensor,), x)


def composed(static=(), lists=()):
    """Makes a function of Tensors a function of all operands: recorded inside a recording, otherwise one compiled function.

    static   names of parameters that are constants of the compiled code
    lists    names of parameters that are sequences of operands
    """

    def decorate(function):
        names = list(inspect.signature(function).parameters)
        several = functools.partial(operands, name=function.__name__)
        convert = {name: fixed if name in static else several if name in lists else operand for name in names}
        run = fused(tuple(static))(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            args = [convert[name](v) for name, v in zip(names, args)] + list(args[len(names) :])
            return run(*args, **{name: convert[name](v) if name in convert else v for name, v in kwargs.items()})

        return call

    return decorate


def is_float(x):
    return _dtypes.isdtype(x.dtype, "real floating")


def to_float(x):
    """Returns x with the type that an elementary function of x has."""
    return x if is_float(x) else _core.cast(x, _core.f32) if x.dtype == _core.boolean else x / 1


def constant(value, x):
    """Returns a number in x's floating-point type."""
    return _core.cast(value, x.dtype)
