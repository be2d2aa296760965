"""onepass: elementwise array programs, recorded, fused into one pass over memory, compiled, differentiated.

    import numpy as np, onepass as op

    @op.jit
    def layer(x, w, b):
        return op.tanh(x @ w + b)

    y = layer(x, w, b)                                      # NumPy in; np.asarray(y) shares y's elements
    dx = op.grad(lambda x: op.sum(layer(x, w, b)))(x)
    z = op.evaluate("2*a + exp(-b)")                        # local variables
    f = op.formula("s*exp(-r*t)"); f(s=s, r=0.03, t=2.0)

The operators have their names in docs/language.md. Outside of a compiled function each runs separately; inside, all are fused.
"""
import builtins as _builtins
import types as _types

from . import _core
from ._core import *  # noqa: F401,F403: the operators, each under its name
from ._core import __version__, boolean
from .formulas import evaluate, formula
from .methods import asarray, from_dlpack
from .names import *  # noqa: F401,F403: NumPy's names of the same operators
from .numpy_functions import *  # noqa: F401,F403: NumPy's functions that combine several operators
from .array_api import can_cast, finfo, iinfo, result_type
from . import array_api, reports as _reports
from .torch_function import torch
from .transforms import (
    check_gradients,
    checkpoint,
    custom_vjp,
    fold,
    grad,
    hessian_vector,
    iterate,
    jacobian,
    jit,
    jvp,
    scan,
    value_and_grad,
    vjp,
    vmap,
    while_loop,
)
from .ufuncs import array_function, array_ufunc

_core.Array.__array_ufunc__ = array_ufunc
_core.Tensor.__array_ufunc__ = array_ufunc
_core.Array.__array_function__ = array_function
_core.Tensor.__array_function__ = array_function

# Names that hide Python built-ins, such as sum, are available as op.sum, but not from `from onepass import *`.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _types.ModuleType) and not hasattr(_builtins, name)
]
