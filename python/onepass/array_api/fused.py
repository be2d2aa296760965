"""How a function of several operators runs: recorded inside a recording, outside as one compiled function."""
import functools

from .. import _core


def fused(static=()):
    """Outside a recording the function is compiled as a whole; the parameters named in `static` are part of what is compiled."""

    def decorate(function):
        compiled = functools.lru_cache(maxsize=None)(lambda: _core.Function(function, list(static) or None))

        @functools.wraps(function)
        def call(*args, **kwargs):
            return (function if _core.is_recording() else compiled())(*args, **kwargs)

        return call

    return decorate


def axes_of(axis):
    """An axis or several as a compiled function can be known by."""
    return axis if axis is None or isinstance(axis, int) else tuple(int(a) for a in axis)


def axis_in(axis, rank, name):
    """The axis counted from the front. Errors: IndexError where there is no such axis."""
    if not -rank <= axis < rank:
        raise _core.IndexError(f"{name}: axis {axis} is outside a tensor of rank {rank}")
    return axis % rank
