"""NumPy's functions on onepass arrays: np.sin(a), and a NumPy array plus an Array, use onepass's operators."""
from . import _core

_RENAMED = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "floor_divide": "floor_div", "negative": "neg",
    "absolute": "abs", "fabs": "abs", "power": "pow", "float_power": "pow", "mod": "remainder", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not",
    "left_shift": "shift_left", "right_shift": "shift_right", "rint": "round", "fmax": None, "fmin": None, "bitwise_count": "popcount",
    "concatenate": "concat", "swapaxes": "swap_axes", "amax": "max", "amin": "min",
}  # fmt: skip
_FUNCTIONS = {
    "sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "amax", "amin", "cumsum", "cumprod", "where",
    "concatenate", "stack", "transpose", "swapaxes", "reshape", "squeeze", "expand_dims", "flip", "roll", "tile", "broadcast_to", "diagonal",
    "take", "take_along_axis", "einsum", "dot", "outer", "count_nonzero", "round",
}  # fmt: skip


def _operator(name):
    name = _RENAMED.get(name, name)
    return getattr(_core, name, None) if name else None


def _plain(value):
    """Converts a value for NumPy, for functions that onepass lacks."""
    import numpy

    if isinstance(value, _core.Array):
        return numpy.asarray(value)
    if isinstance(value, _core.Tensor):
        raise TypeError("onepass has no such function, and NumPy cannot compute with a Tensor, which has no value while it is recorded")
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(v) for v in value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def array_ufunc(self, ufunc, method, *inputs, out=None, **kwargs):
    """Implements NumPy's hook for a ufunc with an Array or Tensor input. NumPy computes unsupported functions, on the same memory."""
    operator = _operator(ufunc.__name__)
    if operator is None or method != "__call__" or kwargs or out is not None:
        if out is not None:
            kwargs["out"] = _plain(out)
        return getattr(ufunc, method)(*_plain(inputs), **kwargs)
    return operator(*inputs)


def array_function(self, function, types, args, kwargs):
    """Implements NumPy's hook for all other NumPy functions with such an argument."""
    operator = _operator(function.__name__) if function.__name__ in _FUNCTIONS else None
    if operator is None:
        return function(*_plain(args), **_plain(kwargs))
    return operator(*args, **kwargs)
