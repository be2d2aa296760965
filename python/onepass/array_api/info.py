"""Inspection of the namespace."""
from .. import _core
from . import dtypes

_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


class _Info:
    def capabilities(self):
        """Returns the capabilities. Boolean masks and results with a data-dependent shape are supported only outside of recordings."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self):
        return "cpu"

    def devices(self):
        return ["cpu"]

    def default_dtypes(self, *, device=None):
        floats, integers = dtypes.DEFAULT_FLOAT, dtypes.DEFAULT_INTEGER
        return {"real floating": floats, "complex floating": None, "integral": integers, "indexing": integers}

    def dtypes(self, *, device=None, kind=None):
        every = {name: getattr(dtypes, name) for name in _NAMES}
        return every if kind is None else {name: dtype for name, dtype in every.items() if dtypes.isdtype(dtype, kind)}


def __array_namespace_info__():
    """Returns the data types, devices and capabilities of the namespace, as the standard defines."""
    return _Info()
