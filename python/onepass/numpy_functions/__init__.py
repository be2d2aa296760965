"""NumPy's functions that onepass has no operator for: compositions of operators, which are recorded, fused and differentiated like others.

Names, parameters and values are NumPy's. Types follow the language (docs/language.md): integers of less than 64 bits give f32 where NumPy gives f64.
"""
from . import elements, products, shapes, statistics
from .elements import *  # noqa: F401,F403
from .products import *  # noqa: F401,F403
from .shapes import *  # noqa: F401,F403
from .statistics import *  # noqa: F401,F403

__all__ = elements.__all__ + products.__all__ + shapes.__all__ + statistics.__all__
FUNCTIONS = {name: globals()[name] for name in __all__}
