"""onepass on Dask arrays: a function or formula runs block by block, on the blocks' own memory.

    import onepass as op, onepass.dask

    y = op.dask.map(lambda x, w: op.tanh(x * w), x, w)       # Dask arrays in, a Dask array out; nothing is computed yet
    s = op.dask.sum(lambda x, w: x * w, x, w, axis=0)        # the product is computed where it is summed
    z = op.dask.evaluate("2*x + exp(-w)")

A function is recorded once in this process and sent to the workers as a formula. Each worker compiles it once or takes it from its cache.
Sums have the same bits as in one process (docs/language.md, "The order of summation"), for any chunks and any number of workers.
"""
from .arrays import KINDS as _KINDS, evaluate, map, reduced as _reduced


def _reduction(kind):
    def reduction(x, *arrays, axis=None, keepdims=False, ddof=0, **options):
        return _reduced(kind, x, arrays, axis, keepdims, ddof, options)

    reduction.__name__ = reduction.__qualname__ = kind
    reduction.__doc__ = (
        f"Returns {kind} of a Dask array, or of f(*arrays) for an elementwise function or formula f, as a Dask array. The reduction computes f in\n"
        "the same pass.\n\n"
        "The result has the bits of one process. The arrays are rechunked if chunks do not end with blocks of the order of summation, or if axes\n"
        "other than the first reduced axis are divided."
    )
    return reduction


sum, prod, mean, var, std, max, min, any, all, count_nonzero = (_reduction(kind) for kind in _KINDS)
