"""NumPy's functions on onepass arrays: np.sin(a), and a NumPy array plus an Array, use onepass's operators."""
from . import _core, names

_RENAMED = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "floor_divide": "floor_div", "negative": "neg",
    "absolute": "abs", "fabs": "abs", "power": "pow", "mod": "remainder", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not",
    "left_shift": "shift_left", "right_shift": "shift_right", "rint": "round", "fmax": None, "fmin": None, "bitwise_count": "popcount",
    "concatenate": "concat", "swapaxes": "swap_axes", "amax": "max", "amin": "min",
}  # fmt: skip
_FUNCTIONS = {
    "sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "amax", "amin", "cumsum", "cumprod", "where",
    "concatenate", "stack", "transpose", "swapaxes", "reshape", "squeeze", "expand_dims", "flip", "roll", "tile", "broadcast_to", "diagonal",
    "take", "take_along_axis", "einsum", "dot", "outer", "count_nonzero", "round", "argsort", "average", "clip", "convolve", "corrcoef",
    "correlate", "cov", "diag", "diff", "full_like", "median", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanquantile", "nanstd",
    "nansum", "nanvar", "ones_like", "quantile", "repeat", "searchsorted", "sort", "trace", "tril", "triu", "zeros_like",
}  # fmt: skip


def _float_power(x, y):
    return _core.pow(*(_core.cast(v, _core.f64) if hasattr(v, "dtype") else float(v) for v in (x, y)))


def _operator(name):
    if name == "float_power":
        return _float_power
    name = _RENAMED.get(name, name)
    return (getattr(_core, name, None) or getattr(names, name, None)) if name else None


def _has_tensor(value):
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return isinstance(value, _core.Tensor)
    return any(_has_tensor(v) for v in value)


def _plain(value, name):
    """Converts a value for NumPy's function `name`."""
    import numpy

    if isinstance(value, _core.Array):
        return numpy.asarray(value)
    if isinstance(value, _core.Tensor):
        raise TypeError(
            f"np.{name}: a Tensor has no value while a function is recorded, and NumPy's {name} needs one. Use onepass's operators."
        )
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(v, name) for v in value)
    if isinstance(value, dict):
        return {k: _plain(v, name) for k, v in value.items()}
    return value


def array_ufunc(self, ufunc, method, *inputs, out=None, **kwargs):
    """Implements NumPy's hook for a ufunc with an Array or Tensor input. NumPy computes unsupported functions, on the same memory."""
    operator = _operator(ufunc.__name__)
    if operator is not None and method == "__call__" and not kwargs and out is None:
        return operator(*inputs)
    if out is not None:
        kwargs["out"] = _plain(out, ufunc.__name__)
    result = getattr(ufunc, method)(*_plain(inputs, ufunc.__name__), **kwargs)
    return result if out is None else out[0] if len(out) == 1 else out


def array_function(self, function, types, args, kwargs):
    """Implements NumPy's hook for all other NumPy functions with such an argument. NumPy computes functions that onepass lacks,
    and calls with arguments that its operator lacks, on the same memory."""
    name = function.__name__
    operator = _operator(name) if name in _FUNCTIONS else None
    if operator is not None:
        try:
            return operator(*args, **kwargs)
        except TypeError:
            if _has_tensor((args, kwargs)):
                raise
    return function(*_plain(args, name), **_plain(kwargs, name))
