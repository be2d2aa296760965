"""Formulas: the language of docs/language.md, and numexpr's way of calling it."""
import functools
import sys

from . import _core


def formula(text, **options):
    """A compiled formula: `f = op.formula("s*exp(-r*t)"); f(s=s, r=0.03, t=2.0)`. Parsed once, compiled for each new combination of types.

    Of several results the call gives a named tuple. Options are those of `jit`.
    Errors    FormulaError with the line, the column and a caret.
    """
    return _core.Formula(text, **options)


def _formula_from(text, options):
    return _core.Formula(text, **options)


@functools.lru_cache(maxsize=512)
def _known(text):
    return _core.Formula(text)


def evaluate(ex, local_dict=None, global_dict=None, out=None):
    """The value of a formula of variables: `op.evaluate("2*a + exp(-b)")` takes a and b from the caller, first its local names, then its
    global ones, or from the dictionaries given. `out` is an array to write to.

    Formulas are remembered by their text. The result is an Array, of several results a named tuple.
    """
    compiled = _known(ex)
    if local_dict is None or global_dict is None:
        frame = sys._getframe(1)
        local_dict = frame.f_locals if local_dict is None else local_dict
        global_dict = frame.f_globals if global_dict is None else global_dict
    values = []
    for name in compiled.inputs:
        if name in local_dict:
            values.append(local_dict[name])
        elif name in global_dict:
            values.append(global_dict[name])
        else:
            raise KeyError(name)
    return compiled(*values) if out is None else compiled(*values, out=out)
