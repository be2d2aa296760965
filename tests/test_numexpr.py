"""Runs the tests of the installed numexpr package with onepass.evaluate instead of numexpr.evaluate.

Skipped (77) without the Python module or numexpr, and outside of tools/test --full.
"""
import ast
import importlib.util
import os
import sys
import types
import unittest
import warnings

import built_module  # noqa: F401: skips without the module
if not os.environ.get("ONEPASS_TEST_FULL"):
    print("SKIPPED: numexpr's tests are run by tools/test --full alone")
    sys.exit(77)
try:
    import numexpr
except ImportError as error:
    print(f"SKIPPED: {error} (pip install numexpr)")
    sys.exit(77)

import numpy as np  # noqa: E402

import onepass as op  # noqa: E402

COMPLEX, STRINGS, INTERNALS = "complex numbers", "strings", "numexpr's internals and its other functions"
THREADS = "numexpr's settings of threads"
LANGUAGE = "docs/language.md defines it otherwise: "
LEFT_OUT = {
    "test_numexpr2": "the same cases again, with numexpr's threads",
    "test_numexpr.test_simple": INTERNALS,
    "test_numexpr.test_simple_expr_small_array": INTERNALS,
    "test_numexpr.test_simple_expr": INTERNALS,
    "test_numexpr.test_rational_expr": INTERNALS,
    "test_numexpr.test_r0_reuse": INTERNALS,
    "test_numexpr.test_locals_clears_globals": INTERNALS,
    "test_numexpr.test_str_contains_basic0": STRINGS,
    "test_numexpr.test_str_contains_basic1": STRINGS,
    "test_numexpr.test_str_contains_basic2": STRINGS,
    "test_numexpr.test_str_contains_basic3": STRINGS,
    "test_numexpr.test_str_contains_basic4": STRINGS,
    "test_numexpr.test_str_contains_basic5": STRINGS,
    "test_numexpr.test_str_contains_listproduct": STRINGS,
    "test_numexpr.test_str_contains_withemptystr1": STRINGS,
    "test_numexpr.test_str_contains_withemptystr2": STRINGS,
    "test_numexpr.test_str_contains_long_needle": STRINGS,
    "test_evaluate.test_re_evaluate": INTERNALS,
    "test_evaluate.test_re_evaluate_dict": INTERNALS,
    "test_evaluate.test_re_evaluate_reuses_live_out": INTERNALS,
    "test_evaluate.test_validate": INTERNALS,
    "test_evaluate.test_validate_missing_var": INTERNALS,
    "test_evaluate.test_validate_syntax": INTERNALS,
    "test_evaluate.test_validate_dict": INTERNALS,
    "test_evaluate.test_complex_tan": COMPLEX,
    "test_evaluate.test_complex_expr": COMPLEX,
    "test_evaluate.test_addmult_booleans": LANGUAGE + "+ and * of two bools are errors that propose | and &",
    "test_evaluate.test_run": INTERNALS,
    "test_evaluate.test_disassemble": INTERNALS,
    "test_evaluate.test_constant_deduplication": INTERNALS,
    "test_evaluate.test_nan_constant": INTERNALS,
    "test_evaluate.test_f32_constant": INTERNALS,
    "test_evaluate.test_no_sanitize": INTERNALS,
    "test_evaluate.test_negative_power_scalar": LANGUAGE + "an integer array and a float literal make f32",
    "test_evaluate.test_ex_uses_vml": INTERNALS,
    "test_int32_int64.test_small_int": LANGUAGE + "an integer literal alone is i64",
    "test_uint32_int64.test_small_uint32": LANGUAGE + "u32 is a type, and stays it",
    "test_strings": STRINGS,
    "test_threading_config": THREADS,
    "test_threading.test_thread_safety": INTERNALS,
}
# Statements of the run tests that are left out.
STATEMENTS_LEFT_OUT = {
    "test_numexpr.test_reductions": [("disassemble(", INTERNALS), ("0.1j", COMPLEX)],
    "test_numexpr.test_axis": [("axis=-1", LANGUAGE + "a negative axis counts from the end")],
    "test_evaluate.test_boolean_operator": [(" and ", LANGUAGE + "`and` is an operator")],
    "test_evaluate.test_broadcasting": [("NumExpr(", INTERNALS), ("expr(", INTERNALS)],
    "test_evaluate.test_all_scalar": [("NumExpr(", INTERNALS), ("expr(", INTERNALS)],
    "test_evaluate.test_sanitize": [("__builtins__", INTERNALS), ("2.5 + 1.5j", COMPLEX), (".real", COMPLEX), (".imag", COMPLEX), ("j')", COMPLEX), ("bytes", STRINGS), ("b:", STRINGS)],
    "test_evaluate.test_bool_funcs": [("complex128", COMPLEX)],
}
# Parts of statements and their replacements.
REPLACED = {"np.int32, np.int64, complex]": ("np.int32, np.int64]", COMPLEX)}
# Texts of test_expressions that are left out, depending on the type.
EXPRESSIONS_LEFT_OUT = [
    (lambda text, dtype: dtype == complex, COMPLEX),
    (lambda text, dtype: ".real" in text, COMPLEX),
    (lambda text, dtype: "nextafter" in text, LANGUAGE + "it has no nextafter"),
    (lambda text, dtype: dtype is int and text in ("(a+1) ** -1", "(a+1)**-7"), LANGUAGE + "an integer to a negative power is 0, or ±1 for ±1"),
]


def evaluate(*args, _frame_depth=3, **kwargs):
    result = op.evaluate(*args, _frame_depth=_frame_depth + 1, **kwargs)
    return result if isinstance(result, np.ndarray) else np.asarray(result)


class Pytest(types.ModuleType):
    """Stand-in for the parts of pytest that the tests use."""

    class mark:
        @staticmethod
        def thread_unsafe(f):
            return f

        @staticmethod
        def parametrize(names, values):
            def decorate(f):
                f.names, f.values = [n.strip() for n in names.split(",")], values
                return f

            return decorate

    @staticmethod
    def skip(why):
        raise unittest.SkipTest(why)

    @staticmethod
    def fail(why):
        raise AssertionError(why)


def without_statements(tree):
    """Returns the file without the statements in STATEMENTS_LEFT_OUT. Each entry must match at least one."""
    for cls in tree.body:
        for function in getattr(cls, "body", []):
            for text, _ in STATEMENTS_LEFT_OUT.get(f"{getattr(cls, 'name', '')}.{getattr(function, 'name', '')}", []):
                left = dropped(function, text)
                if left == 0:
                    raise AssertionError(f"{cls.name}.{function.name} has no statement with {text!r}")
    return tree


def dropped(node, text):
    """Drops the smallest statements that contain the text. Returns their number."""
    count = 0
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if not isinstance(statements, list):
            continue
        kept = []
        for s in statements:
            if text not in ast.unparse(s):
                kept.append(s)
            elif isinstance(s, (ast.For, ast.With, ast.If)) and (inner := dropped(s, text)):
                count += inner
                kept.append(s)
            else:
                count += 1
        setattr(node, field, kept or [ast.Pass()])
    return count


def numexprs_tests():
    spec = importlib.util.find_spec("numexpr.tests.test_numexpr")
    with open(spec.origin) as f:
        text = f.read()
    for old, (new, _) in REPLACED.items():
        if old not in text:
            raise AssertionError(f"{old!r} is nowhere in numexpr's tests")
        text = text.replace(old, new)
    tree = without_statements(ast.parse(text))
    module = types.ModuleType("numexpr_tests")
    sys.modules["pytest"], before = Pytest("pytest"), sys.modules.get("pytest")
    try:
        exec(compile(ast.fix_missing_locations(tree), spec.origin, "exec"), module.__dict__)
    finally:
        sys.modules.pop("pytest")
        if before:
            sys.modules["pytest"] = before
    module.evaluate = evaluate
    module.numexpr = types.SimpleNamespace(set_num_threads=op.set_threads)
    return module


TESTS = numexprs_tests()
sys.modules["numexpr_tests"] = TESTS  # for processes that a test starts


class Expressions(unittest.TestCase):
    def test_expressions(self):
        run = left_out = 0
        warnings.simplefilter("ignore")
        for values in TESTS.test_expressions.values:
            given = dict(zip(TESTS.test_expressions.names, values))
            if any(is_left_out(given["expr"], given["dtype"]) for is_left_out, _ in EXPRESSIONS_LEFT_OUT):
                left_out += 1
                continue
            with self.subTest(**given):
                TESTS.test_expressions(**given)
            run += 1
        print(f"test_expressions: {run} run, {left_out} left out")
        self.assertGreater(run, 3000)


def load_tests(loader, tests, pattern):
    """Loads numexpr's classes without the tests that are left out. Every entry of the lists must name a test."""
    suite = unittest.TestSuite([loader.loadTestsFromTestCase(Expressions), loader.loadTestsFromTestCase(Left)])
    names = set()
    for name, cls in vars(TESTS).items():
        if not (isinstance(cls, type) and issubclass(cls, unittest.TestCase) and cls is not unittest.TestCase):
            continue
        for method in loader.getTestCaseNames(cls):
            names.add(f"{name}.{method}")
            if name not in LEFT_OUT and f"{name}.{method}" not in LEFT_OUT:
                suite.addTest(cls(method))
    Left.names = names
    return suite


class Left(unittest.TestCase):
    def test_lists_name_tests(self):
        classes = {name.split(".")[0] for name in self.names}
        self.assertEqual({name for name in [*LEFT_OUT, *STATEMENTS_LEFT_OUT] if name not in self.names | classes}, set())
        for is_left_out, why in EXPRESSIONS_LEFT_OUT:
            values = [dict(zip(TESTS.test_expressions.names, v)) for v in TESTS.test_expressions.values]
            if why != COMPLEX:
                self.assertTrue(any(is_left_out(v["expr"], v["dtype"]) for v in values), why)


if __name__ == "__main__":
    print(f"numexpr {numexpr.__version__}")
    unittest.main(verbosity=1)
