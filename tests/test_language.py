"""Tests docs/language.md, "Programs", sentence by sentence: programs of `onepass run --batch`, with their results or errors. Other
tests compare results with references; this one tests the grammar and the limits."""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import npy_files as npy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ONEPASS = os.path.join(os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release"))), "tools/onepass")

# name: values, shape, type
INPUTS = {
    "x": ([1, 2, 3, 4, 5, 6], (2, 3), "<f4"),
    "w": ([10, 20, 30], (3,), "<f4"),
    "v": ([1, 2, 3, 4, 5, 6, 7, 8], (8,), "<f4"),
    "d": ([0.5, 0.25], (2,), "<f8"),
    "i": ([5, -7, 9], (3,), "<i4"),
    "j": ([3, 3, -2], (3,), "<i4"),
    "l": ([2**62, -3], (2,), "<i8"),
    "u": ([200, 100], (2,), "|u1"),
    "b": ([True, False, True], (3,), "|b1"),
    "c": ([True, True, False], (3,), "|b1"),
    "k": ([7], (), "<i8"),
}



def f32(*values):
    return [struct.unpack("f", struct.pack("f", value))[0] for value in values]


# (program, {output: (values, shape, type)})
GIVES = [
    # ---- a bare expression is `out`; free names are inputs; statements end at a newline or `;`; unused values are outputs, in order
    ("x*w + 1", {"out": ([11, 41, 91, 41, 101, 181], (2, 3), "<f4")}),
    ("s = w*2; m = max(w)", {"s": ([20, 40, 60], (3,), "<f4"), "m": ([30], (), "<f4")}),
    ("a = w + 1\nr = a*2\nq = w", {"r": ([22, 42, 62], (3,), "<f4"), "q": ([10, 20, 30], (3,), "<f4")}),
    ("a = w + 1; a*2", {"out": ([22, 42, 62], (3,), "<f4")}),
    ("a = w + 1; r = w; a*2", {"r": ([10, 20, 30], (3,), "<f4"), "out": ([22, 42, 62], (3,), "<f4")}),
    ("(w\n  +\n 1)  # a comment × with anything", {"out": ([11, 21, 31], (3,), "<f4")}),
    ("w", {"out": ([10, 20, 30], (3,), "<f4")}),  # an output may be an input
    ("a = w; r = w", {"a": ([10, 20, 30], (3,), "<f4"), "r": ([10, 20, 30], (3,), "<f4")}),
    # ---- functions
    ("fn affine(x: f32[n, m], w: f32[m]) {\n  s = reshape(w, [1, m])  # m is an extent of the call\n  return x*s + n\n}",
     {"out": ([12, 42, 92, 42, 102, 182], (2, 3), "<f4")}),
    ("fn f(w) { return w + 1 }", {"out": ([11, 21, 31], (3,), "<f4")}),
    ("fn f(w) { a = w + 1; return a, w*2, w*3 }", {"a": ([11, 21, 31], (3,), "<f4"), "out0": ([20, 40, 60], (3,), "<f4"), "out1": ([30, 60, 90], (3,), "<f4")}),
    ("fn f(w) { a = w + 1; return w*2, a }", {"out": ([20, 40, 60], (3,), "<f4"), "a": ([11, 21, 31], (3,), "<f4")}),
    ("fn g(a) { return a, a*2 }\nfn f(a) { p, q = g(a); return p + q }\nf(w)", {"out": ([30, 60, 90], (3,), "<f4")}),
    ("fn f(a, p: i64[]) { return a*p }\nf(w, k)", {"out": ([70, 140, 210], (3,), "<f4")}),
    ("fn f(a, p) { return a*p }\nf(p=2, a=w)", {"out": ([20, 40, 60], (3,), "<f4")}),
    ("fn sum(a) { return a*2 }\nsum(w)", {"out": ([20, 40, 60], (3,), "<f4")}),  # a function of the program hides the operator
    # ---- a name before `(` is an operator or a function; any other name is a value
    ("mean = sum(w) / size(w)", {"mean": ([20], (), "<f4")}),
    # ---- precedence and associativity are Python's
    ("-w[0]**2", {"out": ([-100], (), "<f4")}),
    ("2**3**2 + 0*i", {"out": ([512]*3, (3,), "<i4")}),
    ("i + 2*3 << 1", {"out": ([22, -2, 30], (3,), "<i4")}),
    ("i & 12 ^ 1 | 2", {"out": ([5 & 12 ^ 1 | 2, -7 & 12 ^ 1 | 2, 9 & 12 ^ 1 | 2], (3,), "<i4")}),
    ("i // j % 4", {"out": ([5//3 % 4, -7//3 % 4, 9//-2 % 4], (3,), "<i4")}),
    ("not b and c or i > 0", {"out": ([True, True, True], (3,), "|b1")}),
    ("not (b and c)", {"out": ([False, True, True], (3,), "|b1")}),
    ("(i > 0) == b", {"out": ([True, True, True], (3,), "|b1")}),
    ("b ? w : -w", {"out": ([10, -20, 30], (3,), "<f4")}),
    ("b ? w : c ? 2*w : 3*w", {"out": ([10, 40, 30], (3,), "<f4")}),
    ("~i", {"out": ([-6, 6, -10], (3,), "<i4")}),
    ("+w", {"out": ([10, 20, 30], (3,), "<f4")}),
    # ---- literals take the type of the other operand
    ("w*0.5", {"out": ([5, 10, 15], (3,), "<f4")}),
    ("d*0.1", {"out": ([0.5*0.1, 0.25*0.1], (2,), "<f8")}),
    ("full([2], 0.1, f64)", {"out": ([0.1, 0.1], (2,), "<f8")}),
    ("cast(0.1, f64)", {"out": ([0.1], (), "<f8")}),
    ("i*0.5", {"out": ([2.5, -3.5, 4.5], (3,), "<f4")}),
    ("b*2", {"out": ([2, 0, 2], (3,), "<i8")}),
    ("b*0.5", {"out": ([0.5, 0, 0.5], (3,), "<f4")}),
    ("u + 1", {"out": ([201, 101], (2,), "|u1")}),
    ("full([2], 1)", {"out": ([1, 1], (2,), "<i8")}),
    ("full([2], 1.5)", {"out": ([1.5, 1.5], (2,), "<f4")}),
    ("full([2], true)", {"out": ([True, True], (2,), "|b1")}),
    ("1 + 2", {"out": ([3], (), "<i8")}),
    ("2 / 4", {"out": ([0.5], (), "<f4")}),
    ("t = sqrt(4) + 1; t*w", {"out": ([30, 60, 90], (3,), "<f4")}),  # a named literal stays a literal
    ("t = 0.5 + 0.25; t*d", {"out": ([0.375, 0.1875], (2,), "<f8")}),
    ("cast(e, f64) - cast(pi, f64)", {"out": ([math.e - math.pi], (), "<f8")}),
    ("where(b, inf, -inf) < 0", {"out": ([False, True, False], (3,), "|b1")}),
    ("isnan(w*nan)", {"out": ([True]*3, (3,), "|b1")}),
    ("minimum(l, -9223372036854775808)", {"out": ([-2**63]*2, (2,), "<i8")}),
    ("-9223372036854775808", {"out": ([-2**63], (), "<i8")}),
    ("w**2 + w**3 - w**4", {"out": ([t**2 + t**3 - t**4 for t in (10, 20, 30)], (3,), "<f4")}),
    ("w**-1", {"out": (f32(0.1, 0.05, 1/30), (3,), "<f4")}),
    ("pow(w, 1+1)", {"out": ([100, 400, 900], (3,), "<f4")}),
    ("v[:4:3]**0.5", {"out": ([1, 2], (2,), "<f4")}),
    # ---- indexing
    ("x[0]", {"out": ([1, 2, 3], (3,), "<f4")}),
    ("x[-1]", {"out": ([4, 5, 6], (3,), "<f4")}),
    ("v[1:5]", {"out": ([2, 3, 4, 5], (4,), "<f4")}),
    ("x[1:5, ::2]", {"out": ([4, 6], (1, 2), "<f4")}),
    ("x[..., -1]", {"out": ([3, 6], (2,), "<f4")}),
    ("x[:, none]", {"out": ([1, 2, 3, 4, 5, 6], (2, 1, 3), "<f4")}),
    ("v[::-2]", {"out": ([8, 6, 4, 2], (4,), "<f4")}),
    ("v[5:1:-1]", {"out": ([6, 5, 4, 3], (4,), "<f4")}),
    ("v[-3:100]", {"out": ([6, 7, 8], (3,), "<f4")}),
    ("v[7:2]", {"out": ([], (0,), "<f4")}),
    ("x.shape[1] + x.shape[-2]", {"out": ([5], (), "<i8")}),
    ("reshape(x, [x.shape[1], -1])", {"out": ([1, 2, 3, 4, 5, 6], (3, 2), "<f4")}),
    ("w / size(x)", {"out": (f32(10/6, 20/6, 5), (3,), "<f4")}),
    ("u + size(u)", {"out": ([202, 102], (2,), "|u1")}),  # untyped until combined with a typed value
    # ---- derivatives
    ("loss = sum(w*w); dw = grad(loss, [w])", {"dw": ([20, 40, 60], (3,), "<f4")}),
    ("da, db = grad(sum(x*w), [w, x])", {"da": ([5, 7, 9], (3,), "<f4"), "db": ([10, 20, 30]*2, (2, 3), "<f4")}),
    ("s = w*w; g = grad(sum(s*s), [s])", {"g": ([200, 800, 1800], (3,), "<f4")}),
    ("g = grad(sum(w), [v])", {"g": ([0]*8, (8,), "<f4")}),  # an unused input has a zero derivative
    ("g = grad(sum(grad(sum(w**3), [w])), [w])", {"g": ([60, 120, 180], (3,), "<f4")}),
    ("g = vjp(w*w, [w], w)", {"g": ([200, 800, 1800], (3,), "<f4")}),
    # ---- loops with state
    ("fn add(s, t) { return s + t }\nfold(add, 0, v)", {"out": ([36], (), "<f4")}),
    ("fn add(s, t) { n = s + t; return n, n*2 }\nlast, ys = scan(add, 1, w)", {"last": ([61], (), "<f4"), "ys": ([22, 62, 122], (3,), "<f4")}),
    ("fn add(s, t) { return s*2 + t, s }\nlast, ys = scan(add, 0, w, reverse=true)", {"last": ([170], (), "<f4"), "ys": ([80, 30, 0], (3,), "<f4")}),
    ("fn go(a, b, p, q, c) { return b, a*c + p, q }\na, b, qs = scan(go, [0, w[0]], [w, v[:3]], c=v[1])", {"a": ([40], (), "<f4"), "b": ([50], (), "<f4"), "qs": ([1, 2, 3], (3,), "<f4")}),
    ("fn f(s, n) { return s + n }\nfold(f, i, 4)", {"out": ([11, -1, 15], (3,), "<i4")}),
    ("fn f(s, c) { return s*c }\niterate(f, w, 3, c=2)", {"out": ([80, 160, 240], (3,), "<f4")}),
    ("fn below(s, n, most) { return s < most }\nfn grow(s, n) { return s*2, n + 1 }\ns, n = while_loop(below, grow, [w, 0*i], 10, most=k)",
     {"s": ([10, 20, 30], (3,), "<f4"), "n": ([0, 0, 0], (3,), "<i4")}),
    ("fn below(s) { return s < 50 }\nfn grow(s) { return s*2 }\nwhile_loop(below, grow, w, bound=2)", {"out": ([40, 80, 60], (3,), "<f4")}),
    ("fn add(s: f32[n], t: f32[]) { return s + t*n }\nfold(add, w, v[:2])", {"out": ([19, 29, 39], (3,), "<f4")}),
    ("fn row(s, t) { return s + t }\nfn f(s, r) { return s * fold(row, 0, r) }\nfold(f, 1, x)", {"out": ([90], (), "<f4")}),
    ("fn f(s, t) { return s*t }\ng = grad(fold(f, 1, w), [w])", {"g": ([600, 300, 200], (3,), "<f4")}),
    ("fn f(a) { return grad(sum(a*a), [a]) }\nf(w) + 1", {"out": ([21, 41, 61], (3,), "<f4")}),
]

# (program, words of the error's first line, at least)
FAILS = [
    ("x*", ["formula:1:3: ", "expression is missing"]),
    ("a = x\n  b = a $ 2", ["formula:2:9: ", "`$`"]),
    ("b < c < b", ["cannot be chained"]),
    ("fn f(a) { return f(a) }", ["calls itself"]),
    ("fold(f, 0, w)", ["`f` is not a function defined above"]),
    ("fn f(s, t) { return s }\nfold(f, 0)", ["`xs` is missing", "fold(step, init, xs)"]),
    ("fn f(s, t) { return s }\nfold(f)", ["the initial state is missing"]),
    ("fn f(s, t) { return s }\nfold(w, 0, w)", ["`w` is not a function"]),
    ("fn f(s, t) { return s }\nfold(f + 1, 0, w)", ["`f` is a function, not a value. Call it"]),
    ("fn f(s, t) { return s }\nfold(f, 0, w, w)", ["only 3 arguments can be given without a name"]),
    ("fn f(s, t) { return s }\nfold(f, 0, w, xs=w)", ["`xs` is given twice"]),
    ("fn f(s, t) { return s }\nfold(f, 0, w, c=1)", ["`f` has no parameter `c` after its state and its element"]),
    ("fn f(s, t, c) { return s }\nfold(f, 0, w)", ["takes `c` in addition to its state and its element", "`fold(…, c=c)`"]),
    ("fn f(s) { return s }\nfold(f, 0, w)", ["`f` receives 2 arguments, 1 state and 1 of `xs`, but it takes 1"]),
    ("fn f(s) { return s }\niterate(f, w, w)", ["number of steps"]),
    ("fn f(s) { return s }\niterate(f, \"w\", 3)", ["the initial state must be a value or a list of values, not a text"]),
    ("fn f(s, t) { return s, t }\nfold(f, 0, w)", ["fold: 1 state before a step, but 2 after it"]),
    ("fn f(s, t) { return x }\nfold(f, 0, w)", ["`x` is unknown in the function `f`"]),
    ("fn f(s, t) { return s > t }\nfold(f, w[0], w)", ["fold: the state is f32[] before step 0 and bool[] after it"]),
    ("fn f(s, t) { return s, t }\nlast, ys = scan(f, 0, v[:0])", ["scan: the number of steps is 0"]),
    ("fn f(s) { return s }\nwhile_loop(f, f, w)", ["`bound` is missing"]),
    ("fn f(s) { return s }\nwhile_loop(f, f, w, 3)", ["the condition is", "it must be bool"]),
    ("fn f(s) { return s, s }\nwhile_loop(f, f, w, 3)", ["the condition `f` returns 2 values; it must return one"]),
    ("fn f(a) { return g(a) }\nfn g(a) { return a }\nf(w)", ["`g` is defined below"]),
    ("fn f(a) { return a, a }\np = f(w)", ["f", "2"]),
    ("fn f(a) { return a, a }\np, q, r = f(w)", ["2", "3"]),
    ("p, q = w", ["2"]),
    ("fn f(a) { return a, a }\nf(w) + 1", ["2 results"]),
    ("fn f(a, p) { return a*p }\nf(w)", ["f: takes 2 arguments, but the call has 1", "`p` is missing"]),
    ("fn f(a) { return a }\nf(w, w)", ["f: takes 1 arguments, but the call has 2"]),
    ("fn f(a) { return a }\nf(q=w)", ["there is no parameter `q`"]),
    ("fn f(x: f32[n, n]) { return x }", ["`x` is declared f32[n, n]", "axis 1 is 3, but `n` is 2"]),
    ("fn f(x: f32[n, 4]) { return x }", ["axis 1 is 3, not 4"]),
    ("fn f(x: f64[n, m]) { return x }", ["f64", "f32"]),
    ("fn f(x: f32[n]) { return x }", ["rank is 2, not 1"]),
    ("sofmax(x)", ["`sofmax`", "did you mean `softmax`?"]),
    ("w = w + 1", ["`w` is assigned", "`w_`"]),
    ("a = w; a = w", ["assigned twice", "formula:1:1"]),
    ("e = w", ["`e` is a constant and cannot be assigned. Call it `e_`"]),
    ("fn f(inf) { return inf }", ["`inf` is a constant", "`inf_`"]),
    ("f32*w", ["f32"]),
    ("9223372036854775808 + l", ["9223372036854775808 does not fit i64"]),
    ("9223372036854775807 + 1", ["overflow"]),
    ("u + 300", ["300", "u8"]),
    ("u*-1", ["-1", "u8"]),
    ("i + 2147483648", ["2147483648", "i32"]),
    ("b + c", ["add", "bool", "cast"]),
    ("-b", ["bool"]),
    ("x[2]", ["index: 2 is out of range for axis 0 of x f32[2, 3]"]),
    ("x[-3]", ["-3"]),
    ("x[0, 0, 0]", ["x", "2"]),
    ("x[i]", ["take"]),
    ("x[0.5]", ["integer"]),
    ("x[..., ...]", ["`...`"]),
    ("v[::0]", ["0"]),
    ("x.shape[2]", ["axis 2"]),
    ("reshape(x, [w])", ["reshape", "integer"]),
    ("g = grad(x, [x])", ["scalar"]),
    ("g = grad(sum(w*i), [i])", ["i32"]),
    ("g = grad(sum(w), [w + 1])", ["name"]),
    ("p, q = grad(sum(w), [w])", ["2", "1"]),
    ("p = grad(sum(w), [w, w])", ["2"]),
    ("g = vjp(x, [x], w)", ["vjp", "f32[3]"]),
    ("x + w[:2]", ["formula:1:3: ", "add", "f32[2, 3]", "f32[2]"]),
    ("where(w, x, x)", ["where", "bool"]),
    ("x @ x", ["matmul"]),
    ("[1, 2]", ["list"]),
    ("none", ["`none`"]),
    ("\"text\"", ["text"]),
    ("", ["empty"]),
    ("# nothing", ["empty"]),
    ("return x", ["`return` is allowed only in a function"]),
    ("fn f(a) { return z }\nf(w)", ["`z` is unknown"]),
    ("(" * 1001 + "x" + ")" * 1001, ["limit `nesting`", "1000"]),
    ("n" * 1025, ["limit `name_bytes`", "1024"]),
    ("".join(f"fn h{n}(a) {{ return {'h%d(a)' % (n - 1) if n else 'a'} }}\n" for n in range(1100)) + "h1099(w)", ["limit `nesting`"]),
    ("fn g0(a) { return a + a*a }\n" + "".join(f"fn g{n}(a) {{ return g{n - 1}(a) + g{n - 1}(a*2) }}\n" for n in range(1, 30)) + "g29(w)", ["1048576 nodes", "max_nodes"]),
    ("reshape(w, [" + "1, " * 32 + "3])", ["the rank 33 is above 32, the limit `rank`"]),
]


class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        for name, (values, shape, descr) in INPUTS.items():
            npy.write(os.path.join(cls.folder, name + ".npy"), values, shape, descr)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def batch(self, jobs, *words):
        text = "".join(json.dumps(job) + "\n" for job in jobs)
        result = subprocess.run([ONEPASS, "run", "--batch", "-", *words], input=text, capture_output=True, text=True, cwd=self.folder, timeout=300)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [json.loads(line) for line in result.stdout.splitlines()]

    def answers(self, rows, mode):
        """Runs a job for each row. First runs without outputs and inputs find the names of each program."""
        jobs = [{"formula": program, "mode": mode} for program, _ in rows]
        for n, (job, answer) in enumerate(zip(jobs, self.batch(jobs))):
            names = answer["error"].split("; the program's outputs are ")[1:]
            job["outputs"] = {name: f"{n}-{name}.npy" for name in (names[0].split(", ") if names else ["out"])}
        for job, answer in zip(jobs, self.batch(jobs)):
            names = answer.get("error", "").split("; the inputs are ")[1:]
            job["inputs"] = {name: name + ".npy" for name in (names[0].split(", ") if names else [])}
        return jobs, self.batch(jobs)

    def test_what_programs_give(self):
        for mode in ("generic", "reference"):
            for (program, outputs), job, answer in zip(GIVES, *self.answers(GIVES, mode)):
                with self.subTest(program=program, mode=mode):
                    self.assertEqual(answer, {"ok": True})
                    self.assertEqual(list(job["outputs"]), list(outputs))
                    for name, expected in outputs.items():
                        values, shape, descr = npy.read(self.path(job["outputs"][name]))
                        self.assertEqual((list(values), shape, descr), expected)

    def test_errors(self):
        for (program, words), answer in zip(FAILS, self.answers(FAILS, "generic")[1]):
            with self.subTest(program=program[:200]):
                self.assertFalse(answer["ok"])
                first, *rest = answer["error"].split("\n")
                self.assertRegex(first, r"^formula:\d+:\d+: ")
                self.assertLess(len(answer["error"]), 2000)
                self.assertTrue(any(line.endswith("^") for line in rest), answer["error"])
                for word in words:
                    self.assertIn(word, answer["error"])

    def test_an_array_beyond_the_memory(self):
        for mode in ("generic", "unfused", "reference"):
            (answer,) = self.batch([{"formula": "full([1048576, 1048576], 1.5)", "outputs": {"out": "big.npy"}, "mode": mode}])
            for word in ("f32[1048576, 1048576]", "the limit `array_bytes`", "half the memory"):
                self.assertIn(word, answer["error"])


if __name__ == "__main__":
    if not os.path.exists(ONEPASS):
        print(f"{ONEPASS} is not built")
        sys.exit(77)
    unittest.main()
