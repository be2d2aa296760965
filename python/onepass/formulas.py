"""Formulas: the language of docs/language.md, and an interface like numexpr's."""
import functools
import re
import sys

from . import _core


def formula(text, **options):
    """Returns a compiled formula: `f = op.formula("s*exp(-r*t)"); f(s=s, r=0.03, t=2.0)`.

    Parses it once, and compiles it for each new combination of types. For several results, a call returns a named tuple. Options: as in `jit`.
    Errors    FormulaError with the line, the column and a caret.
    """
    return _core.Formula(text, **options)


def _formula_from(text, options):
    return _core.Formula(text, **options)


# numexpr's names of the language's operators, and numexpr functions that combine several operators.
_RENAMED = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip
_WRITTEN_OUT = {
    "copy": "fn copy(x) { return x }",
    "conj": "fn conj(x) { return x }",
    "ones_like": "fn ones_like(x) { return x**0 }",
}
_VALUES = {"None": "none", "True": "true", "False": "false"}
_CONSTANTS = ("e", "pi", "inf", "nan")  # constants of the language; numexpr has none
_WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@functools.lru_cache(maxsize=512)
def _constants_in(text):
    """Returns the language's constants in the text, each with a new name for a variable of the same name."""
    words = set(_WORDS.findall(text))
    longest = max(map(len, words), default=0)
    return tuple((name, name.ljust(longest + 1, "_")) for name in _CONSTANTS if name in words)


def _in_our_names(text, variables):
    """Translates numexpr's text: operator names, Python's constants, and new names for variables that hide constants."""
    written_out, hidden = [], dict(variables)

    def name_of(match):
        word, called = match.group(), text[match.end() :].lstrip().startswith("(")
        if called and word in _WRITTEN_OUT and _WRITTEN_OUT[word] not in written_out:
            written_out.append(_WRITTEN_OUT[word])
        if word in hidden:
            return hidden[word]
        return _RENAMED.get(word, word) if called else _VALUES.get(word, word)

    renamed = _WORDS.sub(name_of, text)
    return "\n".join([*written_out, renamed])


@functools.lru_cache(maxsize=512)
def _known(text, variables):
    return _core.Formula(_in_our_names(text, variables))


def evaluate(
    ex, local_dict=None, global_dict=None, out=None, order="K", casting="same_kind", sanitize=None, _frame_depth=3, disable_cache=False,
    *, optimization="aggressive", truediv="auto",
):  # fmt: skip
    """Evaluates a formula of variables: `op.evaluate("2*a + exp(-b)")` takes a and b from the caller's local, then global names, or from the
    given dictionaries. The result is an Array; for several results, a named tuple.

    docs/language.md defines the language. numexpr's names of its operators, and None, True and False, are also accepted. A variable
    named e, pi, inf or nan hides the constant.

    out       an array to write to, of another type if `casting` allows it: "no", "equiv", "safe", "same_kind", "unsafe"
    order     of the result's elements in memory: "C" or "K", row-major; "F", column-major; "A", column-major if all arrays are so
    disable_cache  True: the formula is not cached by its text
    sanitize, optimization, truediv   have no effect: no text is run as Python, and `/` is true division
    """
    if order not in ("C", "F", "A", "K"):
        raise _core.ValueError(f"evaluate: order must be 'C', 'F', 'A' or 'K', not {order!r}")
    if local_dict is None or global_dict is None:
        frame = sys._getframe(_frame_depth - 2)
        local_dict = frame.f_locals if local_dict is None else local_dict
        global_dict = frame.f_globals if global_dict is None else global_dict
    variables = tuple(v for v in _constants_in(ex) if v[0] in local_dict or v[0] in global_dict)
    compiled = _core.Formula(_in_our_names(ex, variables)) if disable_cache else _known(ex, variables)
    values, given = [], {new: name for name, new in variables}
    for name in compiled.inputs:
        name = given.get(name, name)
        if name in local_dict:
            values.append(local_dict[name])
        elif name in global_dict:
            values.append(global_dict[name])
        else:
            raise KeyError(name)
    if out is not None:
        return _into(compiled, values, out, casting)
    result = _called(compiled, values)
    if order == "F" or order == "A" and _all_column_major(values):
        return _column_major(result)
    return result


def _called(compiled, values):
    try:
        return compiled(*values)
    except (_core.DTypeError, _core.ValueError):
        usable = _usable(values)
        if usable is None:
            raise
    return compiled(*usable)


def readable(x):
    """Returns the array, or a copy if onepass cannot read it in place: misaligned elements, as in fields of records, or the other byte order."""
    return x if x.flags.aligned and x.dtype.isnative else x.astype(x.dtype.newbyteorder("="), copy=True)


def _usable(values):
    """Returns the values with readable NumPy arrays; None if all are readable."""
    import numpy

    out = [readable(x) if isinstance(x, numpy.ndarray) else x for x in values]
    return None if all(a is b for a, b in zip(out, values)) else out


def _into(compiled, values, out, casting):
    try:
        return compiled(*values, out=out)
    except (_core.DTypeError, _core.ShapeError, _core.ValueError):  # another type or shape, or memory that onepass cannot write to in place
        if isinstance(out, (tuple, list)):
            raise
    import numpy

    target = numpy.asarray(out)
    numpy.copyto(target, numpy.asarray(_called(compiled, values)), casting=casting)
    return out


def _all_column_major(values):
    import numpy

    arrays = [numpy.asarray(v) for v in values if hasattr(v, "ndim")]
    return bool(arrays) and all(x.flags.f_contiguous for x in arrays)


def _column_major(result):
    import numpy

    if isinstance(result, tuple):
        return type(result)(*(_column_major(x) for x in result))
    return _core.Array(numpy.asfortranarray(numpy.asarray(result)))
