"""The methods of Array and Tensor that are operators, as in NumPy's arrays."""
from . import _core
from .indexing import At as _At


def asarray(x, dtype=None, *, copy=False):
    """Makes an Array of x's elements: shared with a NumPy array, a buffer or a DLPack tensor; lists of numbers are copied.

    dtype   another element type casts, which copies.
    """
    return _core.Array(x, dtype, copy=copy)


def from_dlpack(x):
    """Makes an Array that shares the elements of x, a tensor of any DLPack library."""
    return _core.Array(x)


# Functions for pickle, which only refers to functions of Python modules.
def _array_from_bytes(data, shape, dtype):
    return _core._array_from_bytes(data, shape, dtype)


def _dtype_named(name):
    return _core.dtype(name)


def _method(name):
    operator = getattr(_core, name)

    def method(self, *args, **kwargs):
        return operator(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"onepass.{name}(self, …)"
    return method


def _list_method(name):
    operator = getattr(_core, name)

    def method(self, *lengths):
        return operator(self, lengths[0] if len(lengths) == 1 else lengths)

    method.__name__ = name
    method.__doc__ = f"onepass.{name}(self, …); lengths as a tuple or one by one"
    return method


def _transpose(self, *axes):
    """Permutes the axes: axis i of the result is axis axes[i] of this array; without axes, reverses their order."""
    if not axes or axes == (None,):
        return _core.transpose(self)
    return _core.transpose(self, axes[0] if len(axes) == 1 else axes)


def _astype(self, dtype, copy=True):
    """Casts the elements: float to integer saturates, integer to integer wraps. copy=False: returns this array if the type is the same."""
    if not copy and self.dtype == dtype:
        return self
    return _core.cast(self, dtype)


def _matrix_transpose(self):
    return _core.swap_axes(self, -1, -2)


def _to(self, device):
    """Returns the elements on that device, 'cpu' or 'cuda:0': this Array if it is there already."""
    return _core._to_device(self, device)


def clip(x, min=None, max=None):
    """Clamps x like NumPy's clip; each bound is optional."""
    if min is None and max is None:
        return x
    if min is None:
        return _core.minimum(x, max)
    if max is None:
        return _core.maximum(x, min)
    return _core.clamp(x, min, max)


def _flatten(self):
    """Returns the elements along one axis, in row-major order."""
    return _core.reshape(self, (-1,))


def _to_device(self, device, /, *, stream=None):
    """Copies the array to a device, like `to`; streams are not supported."""
    if stream is not None:
        raise _core.ValueError("to_device: `stream` is not supported; onepass has no streams in Python")
    return self if isinstance(self, _core.Tensor) or device is None else _core._to_device(self, device)


def _array_namespace(self, *, api_version=None):
    """Returns the namespace of the array API standard: onepass.array_api."""
    from . import array_api

    return array_api._namespace(api_version)


def _complex(self):
    return complex(self.item())


def _format(self, spec):
    """Formats an Array of rank 0 like a number: f"{loss:.2f}"; others only without a format."""
    if self.ndim:
        if spec:
            raise TypeError(f"the format {spec!r} is for one number, but the Array has shape {self.shape}. Format x.tolist() or np.asarray(x)")
        return str(self)
    if spec or self.dtype in (_core.f64, _core.boolean) or "f" not in self.dtype.name:
        return format(self.item(), spec)
    import numpy

    return str(numpy.float16(self.item()) if self.dtype == _core.f16 else numpy.float32(self.item()))  # the digits of its own type


def _round(self, ndigits=None):
    """Rounds an Array of rank 0 to a Python number, as round does for a float."""
    if self.ndim:
        raise TypeError(f"round: the Array has shape {self.shape}; round makes one number. Write op.round(x) for each element")
    return round(self.item(), ndigits)


def _divmod(self, other):
    return _core.floor_div(self, other), _core.remainder(self, other)


def _rdivmod(self, other):
    return _core.floor_div(other, self), _core.remainder(other, self)


def _contains(self, value):
    """True if an element equals the value, which may broadcast."""
    return bool(_core.any(self == value))


def _in_place(operator):
    """Returns a method such as `x += y`, which writes to the Array's memory. Inside a recording, where values are immutable, x becomes the result."""
    compiled = _core.Function(lambda x, y: operator(x, y), None)

    def method(self, other):
        if _core.is_recording() or isinstance(other, _core.Tensor):
            return operator(self, other)
        compiled(self, other, out=self)
        return self

    return method


for _name, _operator in {
    "add": _core.add, "sub": _core.sub, "mul": _core.mul, "truediv": _core.div, "floordiv": _core.floor_div, "mod": _core.remainder,
    "pow": _core.pow, "matmul": _core.matmul, "and": _core.bitwise_and, "or": _core.bitwise_or, "xor": _core.bitwise_xor,
    "lshift": _core.shift_left, "rshift": _core.shift_right,
}.items():  # fmt: skip
    setattr(_core.Array, f"__i{_name}__", _in_place(_operator))

for _class in (_core.Array, _core.Tensor):
    for _name in ("sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin", "var", "std", "cumsum", "cumprod", "take", "repeat", "squeeze", "diagonal", "dot"):
        setattr(_class, _name, _method(_name))
    _class.reshape = _list_method("reshape")
    _class.transpose = _transpose
    _class.astype = _astype
    _class.T = property(_core.transpose, doc="All axes reversed.")
    _class.mT = property(_matrix_transpose, doc="The array with its last two axes exchanged.")
    _class.flatten = _class.ravel = _flatten
    _class.clip = clip
    _class.at = property(_At, doc="x.at[key].set(v), add, min, max or mul: x with that part written, as a new array.")
    _class.to_device = _to_device
    _class.__array_namespace__ = _array_namespace
    _class.__divmod__, _class.__rdivmod__ = _divmod, _rdivmod
_core.Array.to = _to
_core.Array.__complex__ = _complex
_core.Array.__format__, _core.Array.__round__, _core.Array.__contains__ = _format, _round, _contains
_core.Tensor.device = None  # device of the recorded function
