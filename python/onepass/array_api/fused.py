"""Execution of functions of several operators: recorded inside a recording, otherwise run as one compiled function."""
import functools

from .. import _core


def fused(static=()):
    """Compiles the whole function for calls outside a recording. The parameters named in `static` are constants of the compiled code."""

    def decorate(function):
        compiled = functools.lru_cache(maxsize=None)(lambda: _core.Function(function, list(static) or None))

        @functools.wraps(function)
        def call(*args, **kwargs):
            return (function if _core.is_recording() else compiled())(*args, **kwargs)

        return call

    return decorate


def axes_of(axis):
    """Returns an axis or several axes in a hashable form."""
    return axis if axis is None or isinstance(axis, int) else tuple(int(a) for a in axis)


def axis_in(axis, rank, name):
    """Returns the axis counted from the front. Errors: IndexError if the axis does not exist."""
    if not -rank <= axis < rank:
        raise _core.IndexError(f"{name}: axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank
