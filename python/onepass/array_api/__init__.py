"""The namespace of the Python array API standard 2024.12: `xp = x.__array_namespace__()` for an Array or Tensor x.

The functions have the standard's names, parameters and shapes, and the language's values and types (docs/language.md). They work on arrays,
and inside a compiled function on Tensors, where they are recorded and fused. Complex numbers and the extensions linalg and fft are not supported.
The language decides cases that the standard leaves open, such as an integer array combined with a floating-point array.
"""
import types as _types

from .. import _core
from .creation import arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, zeros, zeros_like
from .dtypes import astype, bool, can_cast, finfo, float32, float64, iinfo, int8, int16, int32, int64, isdtype, result_type
from .dtypes import uint8, uint16, uint32, uint64
from .elementwise import *  # noqa: F401,F403
from .elements import argsort, nonzero, searchsorted, sort, unique_all, unique_counts, unique_inverse, unique_values
from .info import __array_namespace_info__
from .manipulation import broadcast_arrays, broadcast_shapes, broadcast_to, concat, expand_dims, flip, isin, matrix_transpose, moveaxis
from .manipulation import permute_dims, repeat, reshape, roll, squeeze, stack, take, take_along_axis, tile, tril, triu, unstack, where
from .reductions import all, any, argmax, argmin, count_nonzero, cumulative_prod, cumulative_sum, diff, matmul, max, mean, min, prod, std
from .reductions import sum, tensordot, var, vecdot

e, inf, nan, newaxis, pi = 2.718281828459045, float("inf"), float("nan"), None, 3.141592653589793
__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def _namespace(api_version):
    """Returns this namespace. Errors: ValueError for an unsupported version of the standard."""
    import sys

    if api_version is not None and api_version not in _VERSIONS:
        raise _core.ValueError(f"__array_namespace__: version {api_version!r} of the array API is not supported; the versions are {', '.join(_VERSIONS)}")
    return sys.modules[__name__]


__all__ = [name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _types.ModuleType)]
__all__ += ["__array_api_version__", "__array_namespace_info__"]
