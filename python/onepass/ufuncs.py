"""NumPy's functions on onepass arrays: np.sin(a), and a NumPy array plus an Array, use onepass's operators."""
from . import _core, names, numpy_functions
from .numpy_functions.operands import fixed, has, is_known

_RENAMED = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "floor_divide": "floor_div", "negative": "neg",
    "absolute": "abs", "power": "pow", "mod": "remainder", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not",
    "left_shift": "shift_left", "right_shift": "shift_right", "bitwise_count": "popcount",
    "concatenate": "concat", "swapaxes": "swap_axes",
}  # fmt: skip
_FUNCTIONS = {
    "sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "amax", "amin", "cumsum", "cumprod", "where",
    "concatenate", "stack", "transpose", "swapaxes", "reshape", "squeeze", "expand_dims", "flip", "roll", "tile", "broadcast_to", "diagonal",
    "take", "take_along_axis", "einsum", "dot", "outer", "count_nonzero", "round", "argsort", "average", "clip", "convolve", "corrcoef",
    "correlate", "cov", "diag", "diff", "full_like", "median", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanquantile", "nanstd",
    "nansum", "nanvar", "ones_like", "quantile", "repeat", "searchsorted", "sort", "trace", "trapezoid", "tril", "triu", "zeros_like",
    *numpy_functions.FUNCTIONS,
}  # fmt: skip
_PREDICATES = {"allclose", "array_equal", "array_equiv"}  # NumPy returns a bool, which a recording does not have


def _pad(array, pad_width, mode="constant", *, constant_values=0):
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap") or isinstance(constant_values, (list, tuple)):
        raise TypeError("np.pad: this mode, or a constant value for each edge, is not supported")
    rank = numpy_functions.ndim(array)
    widths = pad_width if isinstance(pad_width, (list, tuple)) else fixed(pad_width)
    widths = widths if isinstance(widths, (list, tuple)) else (widths, widths)
    if not isinstance(widths[0], (list, tuple)):
        widths = [widths]
    pairs = [(w[0], w[-1]) for w in (widths * rank if len(widths) == 1 else widths)]
    return _core.pad(array, [a for a, _ in pairs], [b for _, b in pairs], constant_values if mode == "constant" else None, mode)


def _gradient(f, *spacing, axis=None, edge_order=1):
    return _core.gradient(f, spacing[0] if len(spacing) == 1 else list(spacing) or None, axis, edge_order)


def _histogram(a, bins=10, range=None, density=None, weights=None):
    return _core.histogram(a, bins, range, weights, bool(density))


def _clip(a, a_min=None, a_max=None, *, min=None, max=None):
    return names.clip(a, min if a_min is None else a_min, max if a_max is None else a_max)


def _norm(x, ord=None, axis=None, keepdims=False):
    if ord is not None and not (ord == 2 and (isinstance(axis, int) or axis is None and numpy_functions.ndim(x) == 1)):
        raise TypeError("np.linalg.norm: only the Euclidean norm is supported, of vectors or of all elements")
    return _core.norm(x, axis, keepdims)


# Functions of NumPy with other parameters than the operator of that name.
_OTHER_PARAMETERS = {"pad": _pad, "gradient": _gradient, "histogram": _histogram, "clip": _clip, "linalg.norm": _norm}


def _operator(name):
    if name in numpy_functions.FUNCTIONS:
        return numpy_functions.FUNCTIONS[name]
    name = _RENAMED.get(name, name)
    return getattr(_core, name, None) or getattr(names, name, None)


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
    name = function.__name__ if function.__module__ != "numpy.linalg" else f"linalg.{function.__name__}"
    operator = _OTHER_PARAMETERS.get(name) or (_operator(name) if name in _FUNCTIONS else None)
    if operator is not None and not (name in _PREDICATES and is_known((args, kwargs))):
        try:
            return operator(*args, **kwargs)
        except TypeError:
            if has(_core.Tensor, (args, kwargs)):
                raise
    return function(*_plain(args, name), **_plain(kwargs, name))
