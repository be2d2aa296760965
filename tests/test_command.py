"""Tests the `onepass` command as documented in docs/language.md: each form, and each bad input with its error and exit code."""
import glob
import json
import re
import math
import os
import pty
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import zipfile
import zlib

import npy_files as npy
from command_case import ONEPASS, ROOT, CommandCase

PROGRAMS = os.path.join(ROOT, "examples/programs")
MODES = ["adaptive", "generic", "unfused", "reference"]
ABOUT = ["version", "formula", "shapes", "mode", "processor"]
BENCH_MEMBERS = ["kernels", "first_ms", "compile_ms", "median_ns", "p999_ns", "calls", "min_bytes", "moved_bytes", "gbs", "allocated_bytes_per_call", "compiles"]


SHORTENS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  static void* (*real)(void*, size_t, int, int, int, off_t);
  if (!real) real = (void* (*)(void*, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  void* const result = real(at, bytes, protection, flags, file, offset);
  const char* const path = getenv("SHORTEN_FILE");
  if (file >= 0 && (protection & PROT_WRITE) && bytes > 1000000 && path && truncate(path, atol(getenv("SHORTEN_TO"))) != 0) abort();
  return result;
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off_t offset) { return mmap(at, bytes, protection, flags, file, offset); }
"""


class Shortened(CommandCase):
    @unittest.skipIf(os.environ.get("ONEPASS_SANITIZE"), "the sanitizer's library comes first")
    def test_an_input_that_is_shortened_while_it_is_mapped_is_one_error(self):
        with open(self.path("shortens.c"), "w") as file:
            file.write(SHORTENS)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.path("shortens.so"), self.path("shortens.c"), "-ldl"], check=True)
        length = 1 << 19  # 2 MiB of f32

        self.write("whole.npy", [1.0] * length)

        def run(to, *words):
            shutil.copy(self.path("whole.npy"), self.path("x.npy"))
            environment = dict(os.environ, ONEPASS_CACHE_DIR="none", LD_PRELOAD=self.path("shortens.so"), SHORTEN_FILE=self.path("x.npy"), SHORTEN_TO=str(to))
            return subprocess.run([ONEPASS, "run", *words], env=environment, capture_output=True, text=True, cwd=self.folder, timeout=300)

        size = 128 + 4 * length
        for to in (0, 100, 4096, 1 << 20, size - 4096, size - 4):  # the last size keeps all pages
            for threads in "1", "3":
                done = run(to, "x*2", "x=x.npy", "-o", "out=y.npy", "--threads", threads)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertRegex(done.stderr, r"^onepass: \w+: x.npy: the file was shortened while it was read[^\n]*\n$")
                self.assertNotIn("y.npy", self.files())
        self.assertEqual(run(1 << 20, "sum(x)", "x=x.npy", "-o", "out=y.npy", "--mode", "reference", "--compare").returncode, 2)
        with open(self.path("jobs"), "w") as file:
            file.write('{"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}\n{"formula": "1 + 1", "inputs": {}, "outputs": {"out": "z.npy"}}\n')
        done = run(1 << 20, "--batch", "jobs")
        self.assertEqual(done.returncode, 0)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertIn("was shortened", answers[0]["error"])
        self.assertEqual(answers[1], {"ok": True})
        self.assertEqual(run(128 + 4 * length, "x*2", "x=x.npy", "-o", "out=y.npy").returncode, 0)


class Run(CommandCase):
    def test_a_formula_in_every_mode(self):
        self.write("x.npy", [1, 2, 3, 4, 5, 6], (2, 3))
        self.write("w.npy", [10, 20, 30])
        for mode in MODES:
            self.onepass("run", "x*w + 1", "x=x.npy", "w=w.npy", "-o", "out=y.npy", "--mode", mode)
            self.assertEqual(npy.read(self.path("y.npy")), ([11, 41, 91, 41, 101, 181], (2, 3), "<f4"), mode)

    def test_options_may_stand_anywhere(self):
        self.write("x.npy", [1, 2])
        self.onepass("run", "-o", "out=y.npy", "--threads", "2", "x*2", "--relax", "contract,reassociate,approximate", "x=x.npy", "--device=cpu")
        self.assertEqual(npy.read(self.path("y.npy"))[0], [2, 4])

    def test_a_formula_may_begin_with_a_dash(self):
        self.write("x.npy", [1, 2])
        self.onepass("run", "-x*2", "x=x.npy", "-o", "out=y.npy")
        self.onepass("run", "x=x.npy", "-o", "out=z.npy", "-x")
        self.assertEqual(npy.read(self.path("y.npy"))[0], [-2, -4])
        self.assertEqual(npy.read(self.path("z.npy"))[0], [-1, -2])

    def test_several_outputs_in_either_spelling(self):
        self.write("x.npy", [1, 2])
        text = "a = x + 1; b = x*x"
        self.onepass("run", text, "x=x.npy", "-o", "a=a.npy", "-o", "b=b.npy")
        self.onepass("run", text, "x=x.npy", "-o", "b=b2.npy", "a=a2.npy")
        for name, values in {"a": [2, 3], "b": [1, 4], "a2": [2, 3], "b2": [1, 4]}.items():
            self.assertEqual(npy.read(self.path(name + ".npy"))[0], values, name)

    def test_outputs_that_are_not_named_are_not_written(self):
        self.write("x.npy", [1, 2])
        self.onepass("run", "a = x + 1; b = x*x", "x=x.npy", "-o", "b=b.npy")
        self.assertEqual(self.files(), ["b.npy", "x.npy"])

    def test_a_program_without_inputs(self):
        self.onepass("run", "iota([2, 2], axis=1)", "-o", "out=i.npy")
        self.assertEqual(npy.read(self.path("i.npy")), ([0, 1, 0, 1], (2, 2), "<i4"))

    def test_a_program_from_standard_input(self):
        self.write("x.npy", [1, 2])
        self.onepass("run", "-", "x=x.npy", "-o", "out=y.npy", input="# doubles\nx*2\n")
        self.assertEqual(npy.read(self.path("y.npy"))[0], [2, 4])

    def test_a_program_from_a_file(self):
        self.write("x.npy", [0, math.log(3), 5, 5], (2, 2))
        self.onepass("run", os.path.join(PROGRAMS, "softmax.fuse"), "x=x.npy", "-o", "p=p.npy")
        values = npy.read(self.path("p.npy"))[0]
        for got, expected in zip(values, [0.25, 0.75, 0.5, 0.5]):
            self.assertAlmostEqual(got, expected, places=6)

    def test_the_photograph(self):
        photo = os.path.join(ROOT, "examples/data/astronaut.npy")
        self.onepass("run", os.path.join(PROGRAMS, "tone_map.fuse"), "photo=" + photo, "-o", "out=y.npy", "--threads", "2")
        values, shape, descr = npy.read(self.path("y.npy"))
        self.assertEqual((shape, descr), ((512, 512, 3), "|u1"))
        self.assertGreater(len(set(values)), 200)

    def test_the_gradient_program(self):
        for name, values in {"x": [1, 2, 3], "y": [3, 5, 7]}.items():
            self.write(name + ".npy", values)
        for name in "ab":
            self.write(name + ".npy", [0], ())
        outputs = [word for name in ("a1", "b1") for word in ("-o", f"{name}={name}.npy")]
        self.onepass("run", os.path.join(PROGRAMS, "fit_line.fuse"), "x=x.npy", "y=y.npy", "a=a.npy", "b=b.npy", *outputs)
        self.assertAlmostEqual(npy.read(self.path("a1.npy"))[0][0], 0.1*2*34/3, places=5)
        self.assertAlmostEqual(npy.read(self.path("b1.npy"))[0][0], 0.1*2*15/3, places=5)

    def test_all_sample_programs_parse(self):
        programs = glob.glob(os.path.join(PROGRAMS, "*.fuse"))
        self.assertGreaterEqual(len(programs), 5)
        for program in programs:
            self.fails("run", program, says="is missing. Add")

    def test_an_existing_output_is_replaced_even_if_it_is_an_input(self):
        self.write("x.npy", [1, 2])
        self.onepass("run", "x*2", "x=x.npy", "-o", "out=x.npy")
        self.assertEqual(npy.read(self.path("x.npy"))[0], [2, 4])

    def test_types_of_files(self):
        self.write("u.npy", [200, 100], descr="|u1")
        self.write("b.npy", [True, False], descr="|b1")
        self.write("h.npy", [1, 2], descr="<i2")
        self.onepass("run", "where(b, cast(u, f64), 0.5)", "u=u.npy", "b=b.npy", "-o", "out=y.npy")
        self.assertEqual(npy.read(self.path("y.npy")), ([200, 0.5], (2,), "<f8"))
        self.onepass("run", "cast(h, i64)", "h=h.npy", "-o", "out=y.npy")
        self.assertEqual(npy.read(self.path("y.npy")), ([1, 2], (2,), "<i8"))

    def test_zero_sizes_and_rank_0(self):
        self.write("x.npy", [], (0, 3))
        self.onepass("run", "y = x + 1; s = sum(x)", "x=x.npy", "-o", "y=y.npy", "-o", "s=s.npy")
        self.assertEqual(npy.read(self.path("y.npy")), ([], (0, 3), "<f4"))
        self.assertEqual(npy.read(self.path("s.npy")), ([0], (), "<f4"))

    def test_compare(self):
        self.write("x.npy", [0.5*i for i in range(1000)], (10, 100))
        for mode in ("generic", "unfused"):
            result = self.onepass("run", os.path.join(PROGRAMS, "softmax.fuse"), "x=x.npy", "-o", "p=p.npy", "--compare", "--mode", mode)
            self.assertIn("equal in modes " + mode, result.stdout)
        self.assertIn("p.npy", self.files())

    def test_stats(self):
        self.write("x.npy", [1]*100)
        self.onepass("run", "x*2 + 1", "x=x.npy", "-o", "out=y.npy", "--stats", "s.json", "--mode", "generic")
        with open(self.path("s.json")) as file:
            stats = json.load(file)
        self.assertEqual(sorted(stats), ["bytes_allocated", "bytes_read", "bytes_written", "cache_hits", "calls", "compiles", "kernels"])
        self.assertEqual((stats["calls"], stats["kernels"], sum(stats["compiles"].values())), (1, 1, 1))
        self.assertEqual((stats["bytes_read"], stats["bytes_written"]), (400, 400))

    def test_stats_count_what_each_mode_compiles(self):
        self.write("x.npy", [1]*100)
        for mode, generic, specialized in (("generic", 1, 0), ("adaptive", 1, 0), ("specialized", 0, 1), ("unfused", 2, 0), ("reference", 0, 0)):
            self.onepass("run", "exp(x*2)", "x=x.npy", "-o", "out=y.npy", "--stats", "s.json", "--mode", mode)
            with open(self.path("s.json"), encoding="utf-8") as file:
                stats = json.load(file)
            self.assertEqual((stats["compiles"], stats["cache_hits"]), ({"generic": generic, "specialized": specialized}, 0), mode)
        self.assertEqual(json.loads(self.onepass("bench", "x*2", "--shapes", "x=f32[100]", "--mode", "specialized", "--json").stdout)["compiles"], 1)

    def test_failures_of_a_batch_are_not_the_command_s(self):
        self.onepass("run", "--batch", "-", input="no JSON\n")


class RunErrors(CommandCase):
    def setUp(self):
        super().setUp()
        self.write("x.npy", [1, 2])
        self.before = self.files()

    def tearDown(self):
        self.assertEqual(self.files(), self.before, "nothing is left behind")

    def test_a_result_that_is_not_finite(self):
        says = ["check_nan: the result d f32[2] has -inf at [0]; the first operator that produced such a value is `div` f32[2]", "in the derivative of `sqrt` f32[2]"]
        for mode in ("generic", "reference"):
            self.fails("run", "d = grad(sum(sqrt(x - 1)), [x]) * -1", "x=x.npy", "-o", "d=y.npy", "--check-nan", "--mode", mode, says=says)
        answers = self.onepass("run", "--batch", "-", "--check-nan", input='{"formula": "1/(x - 1)", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}\n').stdout
        self.assertIn("check_nan: the result out f32[2] has inf at [0]; the first operator that produced such a value is `div` f32[2]", json.loads(answers)["error"])

    def test_an_output_has_one_file(self):
        self.fails("run", "x*2", "x=x.npy", "-o", "out=y.npy", "-o", "out=z.npy", says="run: output `out` is given twice")
        self.fails("run", "a = x*2; b = x", "x=x.npy", "-o", "a=y.npy", "b=w.npy", "a=z.npy", says="run: output `a` is given twice")
        job = '{"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy", "out": "z.npy"}}\n'
        self.assertIn('has the member \\"out\\" twice', self.onepass("run", "--batch", "-", input=job).stdout)

    def test_a_function_without_return(self):
        for text in ("fn f(x) { x*2 }", "fn f(x) { y = x*2 }", "fn f(x) { }", "fn f(x) { x*2 }\nf(x)"):
            self.fails("run", text, "x=x.npy", "-o", "out=y.npy", says=["formula:1:", "the function `f` returns nothing", "`return`"])

    def test_operators_that_are_given_what_they_cannot_mean(self):
        self.fails("run", "outer(reshape(x, [1, 2]), x)", "x=x.npy", "-o", "out=y.npy", says=["outer: ", "[1, 2] has rank 2", "vectors"])
        self.fails("run", "outer(x, 2)", "x=x.npy", "-o", "out=y.npy", says=["outer: 2 has rank 0", "vectors"])
        self.fails("run", "fma(4611686018427387904, 4, 1)", "-o", "out=y.npy", says=["formula:1:1: ", "fma: the integer literals overflow i64"])

    def test_names_that_the_language_keeps_for_itself(self):
        for name, kind in (("true", "a constant"), ("e", "a constant"), ("pi", "a constant"), ("f32", "a type"), ("not", "a keyword"), ("fn", "a keyword")):
            says = [f"`{name}` is {kind} of the language", f"Call it `{name}_`"]
            self.fails("run", "x*2", f"{name}=x.npy", "x=x.npy", "-o", "out=y.npy", says=says)
            self.fails("run", "x*2", "x=x.npy", "-o", f"{name}=y.npy", says=says)
            self.fails("dump", "x*2", "--shapes", f"{name}=f32[2]", says=says)
            self.fails("bench", "x*2", "--shapes", f"{name}=f32[2]", says=says)
            job = json.dumps({"formula": "x*2", "inputs": {name: "x.npy"}, "outputs": {"out": "y.npy"}})
            self.assertIn(says[1], self.onepass("run", "--batch", "-", input=job).stdout)
        self.fails("run", "fn f(x: f32[e]) { return x }", "x=x.npy", "-o", "out=y.npy", says=["`e` is a constant and cannot be an extent", "Call it `e_`"])

    def test_messages_stay_below_two_kilobytes(self):
        name, path = "n"*1000, "p"*200 + "/" + "q"*200 + "/"
        long = path*8 + "x.npy"
        many = " + ".join(f"input_number_{i}" for i in range(2000))
        for words in (["run", "x*2", f"x={long}", "-o", "out=y.npy"], ["run", "x*2", "x=x.npy", "-o", f"out={long}"], ["run", "x*2", "x=x.npy", "-o", f"{name*5}=y.npy"],
                      ["run", "x*2", f"{name*5}=x.npy", "-o", "out=y.npy"], ["run", f"{name}(x)", "x=x.npy", "-o", "out=y.npy"], ["run", long[:-4] + ".fuse", "-o", "out=y.npy"],
                      ["run", f"{name} = x; {name} = x", "x=x.npy", "-o", "out=y.npy"], ["run", many, "x=x.npy", "-o", "out=y.npy"], ["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--mode", name*5],
                      ["run", "x*2", "x=x.npy", "-o", "out=y.npy", f"--{name*5}"], ["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--threads", "9"*5000], [name*5], ["diff", long, "x.npy"],
                      ["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--relax", name*5], ["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--limit", name*5 + "=1"],
                      ["dump", "x*2", "--shapes", f"x=f32[{'1,'*3000}]"], ["run", "--batch", long], ["cache", name*5], ["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--stats", long]):
            error = self.fails(*words, says="")
            self.assertLess(len(error.encode()), 2000, words[0])
        self.assertIn("q/x.npy: cannot be opened", self.fails("run", "x*2", f"x={long}", "-o", "out=y.npy", says="load_npy: pppp"))

    def test_messages_have_no_control_characters(self):
        error = self.fails("run", "x*2", "x=a\x1b[2J\x07b.npy", "-o", "out=y.npy", says="a?[2J?b.npy")
        self.assertNotIn("\x1b", error)

    def test_output_that_does_not_exist(self):
        self.fails("run", "a = x + 1; b = x", "x=x.npy", "-o", "c=y.npy", says=["no output `c`", "a, b"])
        self.fails("run", "total = x", "x=x.npy", "-o", "totl=y.npy", says=["no output `totl`", "`total`"])

    def test_output_of_an_unknown_format(self):
        for file in ("y.txt", "y.npy.gz", "y.npy.csv"):
            self.fails("run", "x*2", "x=1.0", "-o", f"out={file}", says=["output `out`", "no format is known for the extension ." + file.rsplit(".", 1)[1]])
            self.assertFalse(os.path.exists(self.path(file)))
        self.onepass("run", "x*2", "x=1.0", "-o", "out=without")
        with open(self.path("without"), "rb") as written:
            self.assertEqual(written.read(6), b"\x93NUMPY")
        os.remove(self.path("without"))

    def test_input_that_does_not_exist(self):
        self.fails("run", "weights*2", "wieghts=x.npy", "-o", "out=y.npy", says=["no input `wieghts`", "did you mean `weights`"])

    def test_missing_input(self):
        self.fails("run", "x*w", "x=x.npy", "-o", "out=y.npy", says=["input `w` is missing", "w=FILE.npy"])

    def test_input_given_twice(self):
        self.fails("run", "x*2", "x=x.npy", "x=x.npy", "-o", "out=y.npy", says="given twice")

    def test_missing_program(self):
        self.fails("run", "-o", "out=y.npy", says="the program is missing")

    def test_words_that_are_no_files(self):
        self.fails("run", "x*2", "x.npy", "-o", "out=y.npy", says=["NAME=FILE.npy", "`x.npy`"])
        self.fails("run", "x*2", "x=x.npy", "-o", "y.npy", says=["-o NAME=FILE.npy", "`y.npy`"])
        self.fails("run", "x*2", "x=", "-o", "out=y.npy", says="`x=`")

    def test_missing_files(self):
        self.fails("run", "x*2", "x=none.npy", "-o", "out=y.npy", says="none.npy")
        self.fails("run", "none.fuse", "x=x.npy", "-o", "out=y.npy", says="none.fuse")
        self.fails("run", "x*2", "x=" + self.folder, "-o", "out=y.npy", says=self.folder)

    def test_damaged_files(self):
        whole = npy.header("<f4", (4,)) + bytes(16)
        damaged = {"short.npy": whole[:-1], "header.npy": whole[:40], "long.npy": whole + b"\0", "empty.npy": b"", "text.npy": b"1 2 3\n",
                   "huge.npy": npy.header("<f4", (2**40, 2**40)), "type.npy": npy.header("<c8", (1,)) + bytes(8)}
        for name, data in damaged.items():
            with open(self.path(name), "wb") as file:
                file.write(data)
            self.before = self.files()
            self.fails("run", "x*2", "x=" + name, "-o", "out=y.npy", says=name)

    def test_wrong_type_for_a_typed_parameter(self):
        self.fails("run", "fn f(x: f64[n]) { return x*2 }", "x=x.npy", "-o", "out=y.npy", says=["f64", "f32"])
        self.fails("run", "fn f(x: f32[n, m]) { return x*2 }", "x=x.npy", "-o", "out=y.npy", says=["x", "f32[2]"])

    def test_shapes_that_do_not_broadcast(self):
        self.write("w.npy", [1, 2, 3])
        self.before = self.files()
        self.fails("run", "x*w", "x=x.npy", "w=w.npy", "-o", "out=y.npy", says=["formula:1:2: ", "mul", "2", "3", "^"])

    def test_formula_that_does_not_parse(self):
        self.fails("run", "x*(2", "x=x.npy", "-o", "out=y.npy", says=["formula:1:", "^"])
        self.fails("run", "sqr(x)", "x=x.npy", "-o", "out=y.npy", says=["sqr", "sqrt"])
        self.fails("run", "", "-o", "out=y.npy", says="formula:1:1: ")
        self.fails("run", "-", "-o", "out=y.npy", says="stdin:1:3: ", input="x*")

    def test_output_that_cannot_be_written(self):
        self.fails("run", "a = x; b = x*2", "x=x.npy", "-o", "a=a.npy", "-o", "b=nowhere/b.npy", says="nowhere/b.npy")
        self.fails("run", "a = x; b = x*2", "x=x.npy", "-o", "a=same.npy", "-o", "b=same.npy", says="same.npy")
        self.fails("run", "x*2", "x=x.npy", "-o", "out=" + self.folder, says=self.folder)

    def test_stats_that_cannot_be_written(self):
        self.fails("run", "x*2", "x=x.npy", "-o", "out=y.npy", "--stats", "nowhere/s.json", says="nowhere/s.json")

    def test_a_failed_run_writes_no_stats(self):
        self.fails("run", "x*w", "x=x.npy", "-o", "out=y.npy", "--stats", "s.json", says="`w`")

    def test_options(self):
        rest = ["x*2", "x=x.npy", "-o", "out=y.npy"]
        self.fails("run", *rest, "--mode", "refrence", says=["`refrence`", "`reference`", "adaptive"])
        self.fails("run", *rest, "--relax", "contract,fast", says=["`fast`", "approximate"])
        for count in ("0", "", "0x2", "-1", "+2", " 2", "2 ", "2.0", "1e1", "100000", "99999999999999999999", "two"):
            self.fails("run", *rest, "--threads", count, says=["is not a decimal number from 1 to", f"--threads: `{count}`"])
            self.fails("bench", "x*2", "--shapes", "x=f32[4]", "--threads", count, says=["is not a decimal number from 1 to", f"--threads: `{count}`"])
        self.fails("run", *rest, "--threads=", says="--threads")
        for relaxations in ("contract,,approximate", "", ",", "contract,", ",contract"):
            self.fails("run", *rest, "--relax", relaxations, says=["--relax: a relaxation is missing in", f"`{relaxations}`"])
        self.fails("run", *rest, "--relax", "contract,approximate,contract", says="--relax: `contract` is given twice")
        for flag in ("--compare", "--check-nan", "--no-sync", "--help"):
            for value in ("yes", "no", "true", "false", "1", "0", ""):
                self.fails("run", *rest, f"{flag}={value}", says=[f"run: {flag} takes no value", f"`{flag}={value}`"])
        self.fails("bench", "x*2", "--shapes", "x=f32[4]", "--json=no", says="bench: --json takes no value")
        self.fails("dump", "x*2", "--shapes", "x=f32[4]", "--graph=1", says="dump: --graph takes no value")
        self.fails("diff", "x.npy", "x.npy", "--all=1", says="diff: --all takes no value")
        self.fails("run", *rest, "--device", "gpu", says=["`gpu`", "cpu and cuda"])
        self.fails("run", *rest, "--nonsense", says="--nonsense")


FAKE = os.path.join(os.path.dirname(os.path.dirname(ONEPASS)), "lib/libfake_cuda.so")  # fake driver and compiler


class Device(CommandCase):
    PROGRAM = ["y = softmax(x)*w; m = max(x)", "x=x.npy", "w=w.npy", "-o", "y=y.npy", "-o", "m=m.npy"]

    def setUp(self):
        super().setUp()
        self.write("x.npy", [0.5*i - 3 for i in range(12)], (3, 4))
        self.write("w.npy", [1, 2, 3, 4])
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(ONEPASS_CUDA_DRIVER=FAKE, ONEPASS_NVRTC=FAKE)

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_a_program_on_a_device_has_the_bits_of_the_cpu(self):
        self.onepass("run", *self.PROGRAM)
        cpu = [npy.read(self.path(name)) for name in ("y.npy", "m.npy")]
        os.remove(self.path("y.npy"))
        self.assertIn("equal in modes adaptive on cuda:0 and unfused: 2 outputs", self.onepass("run", *self.PROGRAM, "--device", "cuda", "--compare").stdout)
        self.assertEqual([npy.read(self.path(name)) for name in ("y.npy", "m.npy")], cpu)
        self.onepass("run", *self.PROGRAM, "--device", "cuda", "--mode", "unfused")
        self.assertEqual([npy.read(self.path(name)) for name in ("y.npy", "m.npy")], cpu)

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_dump_is_for_the_device_that_is_here(self):
        dump = ["dump", "x*2", "--shapes", "x=f32[64]", "--cuda"]
        os.environ["FAKE_CUDA_CAPABILITY"] = "90"
        self.assertRegex(self.onepass(*dump).stdout, r"^// for compute capability 9\.0 \(.+\)\n")
        os.environ["FAKE_CUDA_CAPABILITY"] = "61"  # onepass has no kernels for this capability
        self.assertRegex(self.onepass(*dump).stdout, r"^// for compute capability 8\.0 \(no usable device here\)\n")
        os.environ["FAKE_CUDA_DEVICES"] = "0"
        self.assertRegex(self.onepass(*dump).stdout, r"^// for compute capability 8\.0 \(no usable device here\)\n")

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_what_is_missing_is_one_sentence_with_the_remedy_and_the_cpu_goes_on(self):
        rest = [*self.PROGRAM, "--device", "cuda"]
        working = dict(os.environ)
        for variables, says in (({"ONEPASS_CUDA_DRIVER": "/nowhere/libcuda.so"}, ["/nowhere/libcuda.so", "cannot be opened"]),
                                ({"FAKE_CUDA_DEVICES": "0"}, ["no device", "nvidia-smi", "run on the CPU"]),
                                ({"FAKE_CUDA_VERSION": "11080"}, ["11.8", "12.0 or newer", "newer driver"]),
                                ({"FAKE_CUDA_START": "34"}, ["stub", "LD_LIBRARY_PATH", "install NVIDIA's driver"]),
                                ({"FAKE_CUDA_START": "803"}, ["DRIVER_MISMATCH", "Restart the machine"]),
                                ({"FAKE_CUDA_START": "802"}, ["nvidia-fabricmanager", "run on the CPU"]),
                                ({"FAKE_CUDA_CAPABILITY": "61"}, ["compute capability 6.1", "7.5 or newer", "run on the CPU"]),
                                ({"FAKE_NVRTC_KNOWS": "90"}, ["does not support", "compute capability 8.0", "newer CUDA toolkit"]),
                                ({"FAKE_NVRTC_VERSION": "11080"}, ["NVRTC 11.8", "12.0 or newer"]),
                                ({"FAKE_NVRTC_VERSION": "13000"}, ["NVRTC 13.0", "newer than the driver", "CUDA 12.8", "newer driver", "ONEPASS_NVRTC", "version 12"]),
                                ({"ONEPASS_NVRTC": "/nowhere/libnvrtc.so"}, ["/nowhere/libnvrtc.so", "run on the CPU"]),
                                ({"ONEPASS_NVRTC": sys.executable}, ["cuda: "])):
            with self.subTest(**variables):
                os.environ.clear()
                os.environ.update(working, **variables)
                self.fails("run", *rest, says=says)
                self.assertNotIn("y.npy", self.files())
                doctor = self.onepass("doctor").stdout
                for line in doctor.splitlines():
                    self.assertRegex(line, r"^[^:]+: .+, .+$")
                if "ONEPASS_NVRTC" not in variables:  # compiler errors have other texts
                    for word in says[1:]:
                        self.assertIn(word, doctor)
                self.onepass("run", *self.PROGRAM)
                os.remove(self.path("y.npy"))
        os.environ.clear()
        os.environ.update(working)
        self.fails("run", *rest, "--mode", "reference", says="reference")
        self.onepass("run", *rest, "--stats", "s.json")
        with open(self.path("s.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["bytes_uploaded"], 4*12 + 4*4)

    def run_with_cache(self, cache, **variables):
        env = dict(os.environ, ONEPASS_CACHE_DIR=self.path(cache), **variables)
        return subprocess.run([ONEPASS, "run", *self.PROGRAM, "--device", "cuda"], env=env, cwd=self.folder, capture_output=True, text=True, timeout=300)

    def runs_with_cache(self, **variables):
        """Writes y.npy and returns its elements."""
        done = self.run_with_cache("cache", **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        y = npy.read(self.path("y.npy"))
        os.remove(self.path("y.npy"))
        return y

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_a_start_from_the_disk_cache_needs_no_compiler(self):
        cold = self.runs_with_cache()
        self.assertEqual(self.runs_with_cache(ONEPASS_NVRTC="/nowhere/libnvrtc.so"), cold)
        self.assertIn("/nowhere/libnvrtc.so", self.run_with_cache("another", ONEPASS_NVRTC="/nowhere/libnvrtc.so").stderr)

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_a_device_newer_than_the_toolkit_gets_text_that_the_driver_compiles(self):
        self.onepass("run", *self.PROGRAM)
        cpu = npy.read(self.path("y.npy"))
        newer = {"FAKE_CUDA_CAPABILITY": "103"}
        self.assertEqual(self.runs_with_cache(**newer), cpu)
        self.assertEqual(self.runs_with_cache(ONEPASS_NVRTC="/nowhere/libnvrtc.so", **newer), cpu)

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_programs_on_disk_that_the_driver_does_not_take_are_compiled_again(self):
        cold = self.runs_with_cache(FAKE_CUDA_VERSION="13000", FAKE_NVRTC_VERSION="13000")
        self.assertEqual(self.runs_with_cache(), cold)  # an older driver and compiler

    @unittest.skipUnless(os.path.exists(FAKE), "the tests' driver is not built")
    def test_doctor_names_driver_compiler_and_device(self):
        text = self.onepass("doctor").stdout
        self.assertRegex(text, r"CUDA toolkit: NVRTC 12\.8 ")
        self.assertRegex(text, r"CUDA driver: for CUDA 12\.8 ")
        self.assertRegex(text, r"device: cpu; a device that is none, compute capability 8\.0, ")


class FullDisk(CommandCase):
    """Two outputs, the second larger than the free space: the first must not appear either, and existing files stay."""
    PROGRAM = ["a = x + 1; b = full([100000], 0.5) + x[0]", "x=x.npy", "-o", "a=a.npy", "-o", "b=b.npy"]

    def check(self, folder, **options):
        npy.write(os.path.join(folder, "x.npy"), [1, 2])
        npy.write(os.path.join(folder, "a.npy"), [7])
        result = subprocess.run([ONEPASS, "run", *self.PROGRAM, "--stats", "s.json"], capture_output=True, text=True, cwd=folder, timeout=60, **options)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(sorted(os.listdir(folder)), ["a.npy", "x.npy"])
        self.assertEqual(npy.read(os.path.join(folder, "a.npy"))[0], [7])
        return result.stderr

    def test_a_limit_on_file_sizes(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        self.assertRegex(self.check(self.folder, preexec_fn=limit), r"^onepass: .*b\.npy: cannot be written: File too large\n$")

    def test_a_disk_without_space(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("this user may not mount a small disk")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        self.assertRegex(self.check(disk), r"^onepass: .*b\.npy: cannot be written: No space left on device\n$")

    def test_a_device_that_is_full(self):
        self.write("x.npy", [1])
        self.fails("run", "x*2", "x=x.npy", "-o", "out=/dev/full", says=["/dev/full", "No space left on device"])
        self.fails("run", "x*2", "x=x.npy", "-o", "out=y.npy", "--stats", "/dev/full", says=["/dev/full", "No space left on device"])
        self.assertEqual(self.files(), ["x.npy"])


class Outputs(CommandCase):
    """Destinations of outputs: regular files are replaced as a whole, all other files are written in place."""
    WORDS = ["run", "x*2", "x=x.npy"]

    def setUp(self):
        super().setUp()
        self.write("x.npy", [1, 2])
        self.onepass(*self.WORDS, "-o", "out=expected.npy")
        with open(self.path("expected.npy"), "rb") as file:
            self.expected = file.read()

    def run_to(self, stdout, *words, code=0, **options):
        result = subprocess.run([ONEPASS, *words], env=dict(os.environ, ONEPASS_CACHE_DIR="none"), stdout=stdout, stderr=subprocess.PIPE, cwd=self.folder, timeout=300, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_standard_output(self):
        for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            self.assertEqual(self.run_to(subprocess.PIPE, *self.WORDS, "-o", f"out={name}").stdout, self.expected, name)
            # the file of the descriptor is not replaced, and keeps its contents
            with open(self.path("log"), "wb") as log:
                log.write(b"before")
                log.flush()
                inode = os.stat(self.path("log")).st_ino
                self.run_to(log, *self.WORDS, "-o", f"out={name}")
                log.write(b"after")
            with open(self.path("log"), "rb") as log:
                self.assertEqual(log.read(), b"before" + self.expected + b"after", name)
            self.assertEqual(os.stat(self.path("log")).st_ino, inode)
        os.remove(self.path("log"))
        job = {"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "-"}}
        for name in ("-", "/dev/stdout", "/dev/fd/1"):
            answer = self.onepass("run", "--batch", "-", input=json.dumps({**job, "outputs": {"out": name}}))
            self.assertIn("standard output, which has the answers", json.loads(answer.stdout)["error"])
        self.assertEqual(self.files(), ["expected.npy", "x.npy"])

    def test_compare_does_not_speak_into_an_output(self):
        result = self.run_to(subprocess.PIPE, *self.WORDS, "-o", "out=-", "--compare")
        self.assertEqual(result.stdout, self.expected)
        self.assertIn(b"equal in modes", result.stderr)

    def test_stats_on_standard_output(self):
        self.assertEqual(json.loads(self.onepass(*self.WORDS, "-o", "out=y.npy", "--stats", "-").stdout)["calls"], 1)

    def test_a_terminal_gets_no_bytes_of_a_file(self):
        leader, terminal = os.openpty()
        self.addCleanup(os.close, leader)
        self.addCleanup(os.close, terminal)
        error = self.run_to(terminal, *self.WORDS, "-o", "out=-", code=2).stderr
        self.assertIn(b"/dev/stdout: the output is a terminal", error)

    def test_a_file_that_others_hold_open(self):
        with open(self.path("y.npy"), "w+b") as file:
            self.run_to(subprocess.DEVNULL, *self.WORDS, "-o", f"out=/dev/fd/{file.fileno()}", pass_fds=[file.fileno()])
            file.seek(0)
            self.assertEqual(file.read(), self.expected)
        os.symlink("/dev/stdout", self.path("link.npy"))
        self.assertEqual(self.run_to(subprocess.PIPE, *self.WORDS, "-o", "out=link.npy").stdout, self.expected)
        self.assertTrue(os.path.islink(self.path("link.npy")))

    def test_a_named_pipe(self):
        os.mkfifo(self.path("pipe"))
        process = subprocess.Popen([ONEPASS, *self.WORDS, "-o", "out=pipe"], cwd=self.folder)
        with open(self.path("pipe"), "rb") as pipe:
            self.assertEqual(pipe.read(), self.expected)
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(self.files(), ["expected.npy", "pipe", "x.npy"])

    def test_a_pipe_that_nobody_reads_any_more(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = self.run_to(writer, "run", "a = x; b = x*2", "x=x.npy", "-o", "b=b.npy", "-o", "a=-", code=-signal.SIGPIPE)
        os.close(writer)
        self.assertEqual((result.stderr, self.files()), (b"", ["expected.npy", "x.npy"]))

    def test_standard_output_that_is_closed(self):
        closed = ["bash", "-c", '"$@" >&-', "bash", ONEPASS]
        for words, code, says in ((["run", "x*2", "x=x.npy", "-o", "out=y.npy"], 0, ""), (["run", "x*2", "x=x.npy", "-o", "out=-"], 2, "/dev/stdout: cannot be written: Bad file descriptor"),
                                  (["run", "x*2", "x=x.npy", "-o", "out=y.npy", "--compare"], 2, "standard output cannot be written"), (["doctor"], 2, "standard output cannot be written")):
            result = subprocess.run([*closed, *words], capture_output=True, text=True, cwd=self.folder, timeout=60)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(says, result.stderr)
        with open(self.path("y.npy"), "rb") as file:
            self.assertEqual(file.read(), self.expected)
        subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "bash", ONEPASS, *self.WORDS, "-o", "out=y.npy", "--stats", "s.json"], cwd=self.folder, timeout=60, check=True)
        with open(self.path("y.npy"), "rb") as file:
            self.assertEqual(file.read(), self.expected)

    def test_files_that_are_one(self):
        text = ["run", "a = x; b = x*2", "x=x.npy"]
        os.mkdir(self.path("sub"))
        os.symlink("new.npy", self.path("link.npy"))
        before = self.files()
        for other in ("new.npy", "./new.npy", "sub/../new.npy", "link.npy", self.path("new.npy")):
            self.fails(*text, "-o", "a=new.npy", "-o", f"b={other}", says=["the outputs `a` and `b` have the same file", other])
            self.fails(*text, "-o", "a=new.npy", "--stats", other, says=["--stats and the output `a` have the same file"])
        for stats in ("x.npy", "./x.npy", "sub/../x.npy"):
            self.fails(*text, "-o", "a=new.npy", "--stats", stats, says=["--stats would overwrite the input `x`"])
        self.fails(*text, "-o", "a=-", "-o", "b=/dev/fd/1", says="the outputs `a` and `b` have the same file")
        self.fails(*text, "-o", "a=-", "--stats", "-", says="--stats and the output `a` have the same file")
        self.assertEqual(self.files(), before)
        with open(self.path("p.fuse"), "w", encoding="utf-8") as file:
            file.write("x*2")
        job = json.dumps({"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "jobs"}})
        with open(self.path("jobs"), "w", encoding="utf-8") as file:
            file.write(job + "\n")
        self.fails("run", "p.fuse", "x=x.npy", "-o", "out=p.fuse", says="the output `out` would overwrite the program, p.fuse")
        self.fails("run", "p.fuse", "x=x.npy", "-o", "out=new.npy", "--stats", "p.fuse", says="--stats would overwrite the program, p.fuse")
        self.fails("run", "--batch", "jobs", "--stats", "jobs", says="--stats would overwrite the batch, jobs")
        self.assertIn("would overwrite the batch", json.loads(self.onepass("run", "--batch", "jobs").stdout)["error"])
        for file in ("x.npy", "s"):
            answer = self.onepass("run", "--batch", "-", "--stats", "s" if file == "s" else "x.npy", input=job.replace('"jobs"', '"s"'))
            self.assertIn("--stats", json.loads(answer.stdout)["error"])
            self.write("x.npy", [1, 2])
        self.onepass("run", "a = x; b = x*2", "x=x.npy", "-o", "a=/dev/null", "-o", "b=/dev/null", "--stats", "/dev/null")

    def test_without_waiting_for_the_disk(self):
        self.onepass(*self.WORDS, "-o", "out=y.npy", "--no-sync")
        with open(self.path("y.npy"), "rb") as file:
            self.assertEqual(file.read(), self.expected)

    def test_signals_leave_nothing_behind(self):
        os.mkfifo(self.path("pipe"))
        def prepare():  # like a foreground process of a shell
            signal.signal(signal.SIGINT, signal.default_int_handler)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            # the second output waits for its reader, after the first output and the statistics have temporary files
            process = subprocess.Popen([ONEPASS, "run", "a = x; b = x*2", "x=x.npy", "-o", "a=a.npy", "-o", "b=pipe", "--stats", "s.json"], cwd=self.folder,
                                       preexec_fn=prepare)
            deadline = time.monotonic() + 60
            while sum(name.startswith(".onepass-") for name in self.files()) < 2:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(number)
            self.assertEqual(process.wait(60), 130 if number == signal.SIGINT else -number)
            self.assertEqual(self.files(), ["expected.npy", "pipe", "x.npy"])

    def test_ctrl_c_ends_a_call(self):
        """Interrupts a call of 10^13 operations. It is in the call when the first signal no longer ends the command, so the call
        handles it."""
        long = ["run", "sum(iota([1000000, 1, 1]) * iota([1, 1000000, 1], axis=1) * iota([1, 1, 10], axis=2))", "-o", "out=y.npy", "--stats", "s.json"]
        for mode in ("adaptive", "generic"):
            process = subprocess.Popen([ONEPASS, *long, "--mode", mode, "--limit", "array_bytes=9000000000000000"], cwd=self.folder, stderr=subprocess.PIPE,
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
            while not any(name.startswith(".onepass-") for name in self.files()):
                self.assertIsNone(process.poll(), mode)
                time.sleep(0.01)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            error = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 130, error)
            self.assertEqual(self.files(), ["expected.npy", "x.npy"])

    def test_a_signal_that_is_ignored_stays_so(self):
        process = subprocess.Popen([ONEPASS, "run", "--batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        job = json.dumps({"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}) + "\n"
        for _ in range(2):
            process.stdin.write(job)
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline()), {"ok": True})
            process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_a_folder_that_takes_no_new_file(self):
        if os.geteuid() == 0:
            self.skipTest("root may write anywhere")
        os.chmod(self.folder, 0o500)
        self.addCleanup(os.chmod, self.folder, 0o700)
        self.fails(*self.WORDS, "-o", "out=y.npy", says="a new file cannot be created in its folder: Permission denied")


class Npy(CommandCase):
    """Tests files of other programs. tests/test_npy.cpp tests damaged headers."""

    def test_versions_orders_and_types(self):
        values = [1, 2, 3, 4, 5, 6]
        for version in (1, 2, 3):
            for order, code in (("<", "f4"), (">", "f4"), ("<", "f8"), (">", "f8"), (">", "i2"), (">", "i4"), (">", "u8"), ("|", "u1")):
                for fortran in (False, True):
                    text = f"{{'descr': '{order}{code}', 'fortran_order': {fortran}, 'shape': (2, 3), }}"
                    length = struct.pack("<H" if version == 1 else "<I", len(text))
                    stored = [1, 4, 2, 5, 3, 6] if fortran else values
                    letter = {"f4": "f", "f8": "d", "i2": "h", "i4": "i", "u8": "Q", "u1": "B"}[code]
                    with open(self.path("x.npy"), "wb") as file:
                        file.write(b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + struct.pack(f"{'>' if order == '>' else '<'}6{letter}", *stored))
                    self.onepass("run", "cast(x, f64) + 0", "x=x.npy", "-o", "out=y.npy")
                    self.assertEqual(npy.read(self.path("y.npy")), (values, (2, 3), "<f8"), (version, order, code, fortran))

    def test_bool_bytes_other_than_0_are_true(self):
        with open(self.path("b.npy"), "wb") as file:
            file.write(npy.header("|b1", (4,)) + bytes([0, 1, 2, 255]))
        self.onepass("run", "n = sum(b); m = ~b; w = where(b, 5, 6)", "b=b.npy", *(word for name in "nmw" for word in ("-o", f"{name}={name}.npy")))
        self.assertEqual(npy.read(self.path("n.npy"))[0], [3])
        self.assertEqual(npy.read(self.path("m.npy"))[0], [True, False, False, False])
        self.assertEqual(npy.read(self.path("w.npy"))[0], [6, 5, 5, 5])

    def test_a_large_file_is_mapped(self):
        """Reads one element of a sparse file of a gigabyte: fast, and in an address space without room for a copy."""
        with open(self.path("x.npy"), "wb") as file:
            file.write(npy.header("<f4", (1 << 28,)))
            file.truncate(file.tell() + (4 << 28))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.onepass("run", "x[12345] + 1", "x=x.npy", "-o", "out=y.npy")
        self.assertEqual(npy.read(self.path("y.npy"))[0], [1])
        self.assertLess(max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, before), 700_000)  # kB


class Limits(CommandCase):
    def test_limits_are_options(self):
        self.fails("run", "((1))", "-o", "out=y.npy", "--limit", "nesting=1", says=["deeper than 1, the limit `nesting`"])
        self.fails("run", "name", "-o", "out=y.npy", "--limit", "name_bytes=3", says=["the limit `name_bytes`"])
        self.fails("run", "1 + 2 + 3", "-o", "out=y.npy", "--limit", "source_bytes=4", says=["9 bytes; the limit `source_bytes` is 4"])
        self.fails("run", "-", "-o", "out=y.npy", "--limit", "source_bytes=4", says=["the limit `source_bytes`"], input="1 + 2 + 3")
        self.fails("run", "iota([3]) + 1 + 2 + 3", "-o", "out=y.npy", "--limit", "max_nodes=3", says=["more than 3 nodes", "the limit `max_nodes`"])
        self.fails("run", "iota([3, 1, 1])", "-o", "out=y.npy", "--limit", "rank=2", says=["the rank 3 is above 2, the limit `rank`"])
        self.fails("run", "iota([100])", "-o", "out=y.npy", "--limit", "array_bytes=399", says=["i32[100]", "the limit `array_bytes` is 399 bytes"])
        self.fails("dump", "((x))", "--shapes", "x=f32[2]", "--limit", "nesting=1", says="the limit `nesting`")
        self.fails("bench", "x*2", "--shapes", "x=f32[200]", "--limit", "array_bytes=100", says="the limit `array_bytes`")
        self.assertEqual(self.files(), [])
        deep = "(" * 5000 + "1" + ")" * 5000
        self.onepass("run", deep, "-o", "out=y.npy", "--limit", "nesting=5000", "--limit", "rank=1")
        self.assertEqual(npy.read(self.path("y.npy"))[0], [1])

    def test_limits_that_are_none(self):
        self.fails("run", "1", "-o", "out=y.npy", "--limit", "nestin=5", says=["`nestin`", "`nesting`"])
        for bad in ("rank=33", "rank=0", "rank=x", "rank=1.5", "max_nodes=99999999999"):
            self.fails("run", "1", "-o", "out=y.npy", "--limit", bad, says=["--limit: " + bad.split("=")[0], "`" + bad.split("=")[1] + "`"])
        self.fails("run", "1", "-o", "out=y.npy", "--limit", "rank", says="NAME=NUMBER")


class Batch(CommandCase):
    def batch(self, *lines, words=(), input=True):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        result = self.onepass("run", "--batch", "-", *words, input=text)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_jobs_are_answered_in_order(self):
        self.write("x.npy", [1, 2])
        job = {"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}
        answers = self.batch(job, "", "   ", {**job, "mode": "reference", "outputs": {"out": "z.npy"}}, {**job, "inputs": {}}, {"formula": "full([2], 1)", "outputs": {"out": "o.npy"}})
        self.assertEqual([answer["ok"] for answer in answers], [True, True, False, True])
        self.assertEqual(answers[0], {"ok": True})
        self.assertIn("`x` is missing", answers[2]["error"])
        self.assertEqual(npy.read(self.path("y.npy"))[0], [2, 4])
        self.assertEqual(npy.read(self.path("z.npy"))[0], [2, 4])

    def test_bad_jobs_do_not_end_the_batch(self):
        self.write("x.npy", [1, 2])
        good = {"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}
        bad = ["not JSON", "[1]", "{}", "null", '{"formula": 1}', {**good, "formula": "x*("}, {**good, "outputs": {}}, {**good, "outputs": {"no": "y.npy"}},
               {**good, "mode": "fast"}, {**good, "input": {}}, {**good, "inputs": {"x": 1}}, {**good, "inputs": ["x.npy"]}, {**good, "inputs": {"x": "none.npy"}},
               {**good, "outputs": {"out": "nowhere/y.npy"}}, '{"formula": "\\ud800"}']
        answers = self.batch(*bad, good)
        self.assertEqual(len(answers), len(bad) + 1)
        for answer, line in zip(answers, bad):
            self.assertFalse(answer["ok"], line)
            self.assertTrue(answer["error"], line)
        self.assertEqual(answers[-1], {"ok": True})
        self.assertEqual(self.files(), ["x.npy", "y.npy"])

    def test_each_answer_is_flushed(self):
        self.write("x.npy", [1, 2])
        process = subprocess.Popen([ONEPASS, "run", "--batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        for name in ("a.npy", "b.npy"):
            process.stdin.write(json.dumps({"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": name}}) + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline()), {"ok": True})
            self.assertIn(name, self.files())
        process.communicate()
        self.assertEqual(process.returncode, 0)

    def test_a_batch_file_and_its_stats(self):
        self.write("x.npy", [1, 2])
        job = {"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}
        with open(self.path("jobs.jsonl"), "w") as file:
            file.write(json.dumps(job) + "\n" + json.dumps(job))  # no newline at the end
        result = self.onepass("run", "--batch", "jobs.jsonl", "--stats", "s.json", "--mode", "generic")
        self.assertEqual(result.stdout, '{"ok":true}\n{"ok":true}\n')
        with open(self.path("s.json")) as file:
            stats = json.load(file)
        self.assertEqual((stats["calls"], sum(stats["compiles"].values())), (2, 1))

    def test_compare_in_a_batch(self):
        self.write("x.npy", [1, 2])
        self.assertEqual(self.batch({"formula": "x*2", "inputs": {"x": "x.npy"}, "outputs": {"out": "y.npy"}}, words=["--compare"]), [{"ok": True}])

    def test_files_that_cannot_be_read(self):
        self.fails("run", "--batch", "none.jsonl", says="none.jsonl")
        self.fails("run", "--batch", self.folder, says="directory")
        self.fails("run", "--batch", "-", "x*2", says="--batch reads program")


class Dump(CommandCase):
    SOFTMAX = ["t = exp(x - max(x, axis=-1, keepdims=true)); p = t / sum(t, axis=-1, keepdims=true)", "--shapes", "x=f32[64,256]"]

    def test_graph(self):
        text = self.onepass("dump", "x*w + 1", "--shapes", "x=f32[64,256]", "w=f32[256]", "--graph").stdout
        for part in ("input x : f32[64, 256]", "input w : f32[256]", "mul", "add", "return"):
            self.assertIn(part, text)

    def test_shapes_may_be_repeated_and_the_program_may_stand_last(self):
        text = self.onepass("dump", "--graph", "--shapes", "k=i64[]", "--shapes", "x=f32[4, 5]", "y=bool[0]", "k + sum(x) + sum(y)").stdout
        for part in ("k : i64[]", "x : f32[4, 5]", "y : bool[0]"):
            self.assertIn(part, text)

    def test_groups_and_nests(self):
        groups = self.onepass("dump", *self.SOFTMAX, "--groups").stdout
        self.assertIn("64", groups)
        self.assertTrue(self.onepass("dump", *self.SOFTMAX, "--nests").stdout.strip())
        loops = self.onepass("dump", *self.SOFTMAX, "--loops").stdout
        for part in ("start a0 = maximum over {i1} in any order\n", " in each lane\n", "hold m0{i1} : f32\n", " = halve a", "  for i1 vector of "):
            self.assertIn(part, loops)  # the maximum, the sum, the results
        product = self.onepass("dump", "x @ w", "--shapes", "x=f32[64,300]", "w=f32[300,70]", "--loops").stdout
        for part in ("for i0/tile_outer parallel\n", " unrolled\n", "hold m0{", "recall m0{", " as a tree of blocks\n"):
            self.assertIn(part, product)
        both = self.onepass("dump", *self.SOFTMAX).stdout
        self.assertIn("input x", both)
        self.assertIn(groups.strip(), both)
        for part in ("1 kernel for ", "kernel 0: loops 64 x 256 (reduced)", "%0 = input x : f32[64, 256]", ", the output p", "3 times over each row", "65.5 kB in"):
            self.assertIn(part, groups)
        unfused = self.onepass("dump", *self.SOFTMAX, "--groups", "--mode", "unfused").stdout
        self.assertRegex(unfused, r"stores +%\d+ : f32\[64\], for kernels? [\d, ]+: unfused")
        self.assertIn("interpreted one at a time", self.onepass("dump", *self.SOFTMAX, "--groups", "--mode", "reference").stdout)
        self.assertIn("nothing to compute", self.onepass("dump", "x + 1", "--shapes", "x=f32[0]", "--groups").stdout)
        self.assertGreater(len(unfused.splitlines()), len(groups.splitlines()))

    def test_code(self):
        self.assertIn("define", self.onepass("dump", *self.SOFTMAX, "--llvm").stdout)
        text = self.onepass("dump", *self.SOFTMAX, "--asm").stdout
        self.assertIn("ret", text)
        loops = re.findall(r"(?m)^(\.L\w+):\t# loop of (\d+) instructions\n((?:.*\n)*?.*\1\t# end of the loop)$", text)
        self.assertGreaterEqual(len(loops), 2)  # the maximum, the exponentials, …
        self.assertEqual(len(loops), text.count("# loop of "))
        self.assertEqual(len(loops), text.count("# end of the loop"))
        for label, instructions, body in loops:
            self.assertEqual(int(instructions), len(re.findall(r"(?m)^\t[^.]", body)))
            self.assertNotIn("# loop of", body)

    def test_json(self):
        dump = json.loads(self.onepass("dump", *self.SOFTMAX, "--json").stdout)
        self.assertIn("version", dump)
        self.assertIn("input x : f32[64, 256]", dump["graph"])
        self.assertEqual(len(dump["kernels"]), 1)
        for member in ("nodes", "outputs", "boundary_reason", "stages", "bytes", "key"):
            self.assertIn(member, dump["kernels"][0])
        self.assertEqual(dump["kernels"][0]["outputs"], ["p"])
        self.assertRegex(dump["kernels"][0]["key"], r"^[0-9a-f]+$")

    def test_cuda_text_needs_no_header_and_has_each_kernel_once(self):
        text = self.onepass("dump", "y = exp(x); z = sum(y, axis=0); w = y/sum(z)", "--shapes", "x=f32[64,256]", "--cuda").stdout
        self.assertNotIn("#include", text)
        kernels = re.findall(r"^KERNEL\((\w+),", text, re.M)
        self.assertEqual(kernels, [f"kernel_{i}" for i in range(len(kernels))])
        self.assertGreater(len(kernels), 1)
        self.assertEqual(text.count("DEVICE float exp_f32(float a)"), 1)

    def test_dump_writes_no_files(self):
        self.onepass("dump", *self.SOFTMAX)
        self.assertEqual(self.files(), [])

    def test_errors(self):
        self.fails("dump", "x*2", says=["type of input `x` is missing", "--shapes"])
        self.fails("dump", "x*2", "--shapes", "y=f32[2]", says=["no input `y`", "x"])
        self.fails("dump", "x*2", "--shapes", "x=f32[2]", "x=f32[2]", says="twice")
        self.fails("dump", "x*2", "--shapes", "x=f33[2]", says=["`f33`", "f32"])
        for bad in ("x=f32", "x=f32[2", "x=f32[2,]", "x=f32[-1]", "x=f32[a]", "x=f32[2 3]", "x=f32[99999999999999999999]", "x=f64[4294967296,4294967296]",
                    "x=f32[" + ",".join(["1"]*33) + "]"):
            self.fails("dump", "x*2", "--shapes", bad, says="dump: ")
        self.fails("dump", "x*2", "y*2", "--shapes", "x=f32[2]", says="`y*2`")
        self.fails("dump", "x+y", "--shapes", "x=f32[2]", "y=f32[3]", says="formula:1:2: ")
        self.fails("dump", *self.SOFTMAX, "--svg", "nowhere/x.svg", says="nowhere/x.svg")
        self.fails("dump", *self.SOFTMAX, "--html", "nowhere/x.html", says="nowhere/x.html")
        self.fails("dump", says="program is missing")


class Bench(CommandCase):
    def test_json(self):
        result = self.onepass("bench", "x*w + b", "--shapes", "x=f32[64,256]", "w=f32[64,1]", "b=f32[256]", "--json", "--mode", "generic")
        self.assertEqual(result.stdout.count("\n"), 1)
        line = json.loads(result.stdout)
        self.assertEqual(list(line), ABOUT + BENCH_MEMBERS)
        self.assertEqual((line["formula"], line["shapes"], line["mode"]), ("x*w + b", {"x": "f32[64,256]", "w": "f32[64,1]", "b": "f32[256]"}, "generic"))
        self.assertIn(line["version"], self.onepass("--version").stdout)
        self.assertRegex(line["processor"], r"^.+, \d+ cores?$")
        self.assertEqual(line["min_bytes"], 4*(2*64*256 + 64 + 256))
        self.assertEqual((line["kernels"], line["compiles"]), (1, 1))
        self.assertEqual(line["compile_ms"], 0)  # the first run uses the tiled interpreter
        self.assertGreater(line["first_ms"], 0)
        self.assertEqual(line["moved_bytes"], line["min_bytes"])  # repeated loads of a broadcast count once
        self.assertEqual(line["allocated_bytes_per_call"], 0)
        self.assertAlmostEqual(line["gbs"], line["min_bytes"]/line["median_ns"], places=6)
        self.assertGreater(line["calls"], 3)
        self.assertGreaterEqual(line["p999_ns"], 0)

    def test_every_type_is_filled(self):
        shapes = [f"{name}={dtype}[100]" for name, dtype in zip("abcdfghijk", "bool i8 i16 i32 i64 u8 u16 u32 f32 f64".split())]
        program = "s = " + " + ".join(f"sum(cast({name}, f64))" for name in "abcdfghijk")
        self.assertEqual(list(json.loads(self.onepass("bench", program, "--shapes", *shapes, "--json", "--call", "fresh").stdout)), ABOUT + BENCH_MEMBERS)

    def test_how_it_is_called(self):
        allocated = {}
        for how in ("into", "bind", "fresh"):
            line = json.loads(self.onepass("bench", "x*2 + 1", "--shapes", "x=f32[1000]", "--call", how, "--json").stdout)
            self.assertEqual(list(line), ABOUT + BENCH_MEMBERS)
            allocated[how] = line["allocated_bytes_per_call"]
        self.assertEqual((allocated["into"], allocated["bind"]), (0, 0))
        self.assertGreaterEqual(allocated["fresh"], 4000)

    def test_while_specializing(self):
        line = json.loads(self.onepass("bench", "x*w + b", "--shapes", "x=f32[500,30]", "w=f32[30]", "b=f32[500,1]", "--while-specializing", "--json").stdout)
        self.assertEqual(list(line), [*ABOUT, *BENCH_MEMBERS, "shapes_meanwhile", "specialized_meanwhile"])
        self.assertGreater(line["shapes_meanwhile"], 0)  # the number of specialized shapes depends on the machine's load
        self.assertGreaterEqual(line["specialized_meanwhile"], 0)
        self.assertEqual(line["compiles"], 1)

    def test_text_and_compare(self):
        text = self.onepass("bench", "x*2 + 1", "--shapes", "x=f32[1000]", "--compare", "unfused", "--threads", "1").stdout
        lines = text.splitlines()
        self.assertEqual(lines[0].split(), ["adaptive", "unfused", "ratio"])
        rows = {line[:24].strip(): line[24:].split() for line in lines[1:]}
        self.assertEqual(rows["kernels"], ["1", "2", "2.00"])
        self.assertEqual(rows["moved"], ["8000", "B", "16.0", "kB", "2.00"])
        self.assertIn("median call", rows)
        self.assertEqual({len(line) for line in lines}, {len(lines[0])})
        line = json.loads(self.onepass("bench", "x*2 + 1", "--shapes", "x=f32[1000]", "--compare", "unfused", "--json").stdout)
        self.assertEqual(line["compare"]["mode"], "unfused")

    def test_errors(self):
        rest = ["x*2", "--shapes", "x=f32[4]"]
        self.fails("bench", "x + full([2], 1)", "--shapes", "x=f32[2]", "--while-specializing", says="other shapes of the same program")
        self.fails("bench", *rest, "--call", "twice", says="`twice`")
        self.fails("bench", *rest, "--compare", "fast", says="`fast`")
        self.fails("bench", "x*y", "--shapes", "x=f32[1000000000,1000000000]", "y=f32[3]", says="mul")
        self.fails("bench", "x*2", says="--shapes")


class Diff(CommandCase):
    SHAPES = ["--shapes", "x=f32[64,256]"]

    def dump(self, name, *words):
        with open(self.path(name), "w") as file:
            file.write(self.onepass("dump", *words).stdout)

    def text(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)

    def test_dumps(self):
        self.dump("a.json", "y = x*2; z = sum(y)", *self.SHAPES, "--json")
        self.dump("b.json", "y = x*2; z = max(y)", *self.SHAPES, "--json")
        self.assertEqual(self.onepass("diff", "a.json", "a.json").stdout, "")
        text = self.onepass("diff", "a.json", "b.json", code=1).stdout
        self.assertRegex(text, r"(?m)^graph:$")
        self.assertRegex(text, r"(?m)^  - %\d+ = reduce_sum ")
        self.assertRegex(text, r"(?m)^  \+ %\d+ = reduce_max ")

    def test_programs(self):
        same = self.onepass("diff", "y = x*2; z = sum(y)", "y = x*2; z = sum(y)", *self.SHAPES)
        self.assertEqual(same.stdout, "")
        self.text("b.fuse", "y = x*2\nz = max(y)\n")
        text = self.onepass("diff", "y = x*2; z = sum(y)", "b.fuse", *self.SHAPES, code=1).stdout
        self.assertRegex(text, r"(?m)^  - %\d+ = reduce_sum ")
        self.assertRegex(text, r"(?m)^  \+ %\d+ = reduce_max ")
        self.assertNotIn("signature", text)
        self.dump("a.json", "y = x*2; z = sum(y)", *self.SHAPES, "--json")  # a dump is a program
        self.assertEqual(self.onepass("diff", "a.json", "y = x*2; z = sum(y)", *self.SHAPES).stdout, "")
        other = self.onepass("diff", "y = x*2", "z = w*2", *self.SHAPES, "--other-shapes", "w=f32[64,256]", code=1).stdout
        self.assertIn("kernel 0 (y) is only in the first program", other)

    def test_shapes(self):
        text = self.onepass("diff", "p = softmax(x)", *self.SHAPES, "--other-shapes", "x=f32[64,1]", code=1).stdout
        self.assertIn("signature: f32[64,256] -> f32[64,1]\n", text)
        self.assertIn("kernel 0 (p): ", text)
        self.assertEqual(self.onepass("diff", "p = softmax(x)", *self.SHAPES, "--other-shapes", "x=f32[64,256]").stdout, "")
        self.fails("diff", "p = softmax(x)", *self.SHAPES, says="--other-shapes")
        self.fails("diff", "x", "x*2", "x*3", *self.SHAPES, says="3 programs given")
        self.fails("diff", "-", "-", *self.SHAPES, says="both programs")
        self.fails("diff", "x*2", "x*y", *self.SHAPES, says="y")
        self.assertRegex(self.onepass("diff", "x*2", "-x*3", *self.SHAPES, code=1).stdout, r"(?m)^  \+ .*neg ")
        self.fails("diff", "x*2", "--other-shapes", "x=f32[4]", says="--shapes")

    def test_dumps_of_another_mode(self):
        self.dump("fused.json", *Dump.SOFTMAX, "--json")
        self.dump("unfused.json", *Dump.SOFTMAX, "--json", "--mode", "unfused")
        text = self.onepass("diff", "fused.json", "unfused.json", code=1).stdout
        self.assertNotIn("graph:", text)
        self.assertRegex(text, r"kernels: 1 -> \d+")
        self.assertIn("kernel 0 (p): boundary_reason: output -> unfused", text)
        self.assertIn("is only in the second program", text)
        self.assertIn("is only in the first program", self.onepass("diff", "unfused.json", "fused.json", code=1).stdout)

    def test_only_the_schedule(self):
        self.dump("a.json", "x*2 + 1", "--shapes", "x=f32[64]", "--json")
        with open(self.path("a.json")) as file:
            dump = json.load(file)
        dump["kernels"][0]["key"] += "00"
        self.text("b.json", json.dumps(dump))
        self.assertIn("kernel 0 (out): the key differs", self.onepass("diff", "a.json", "b.json", code=1).stdout)

    def test_texts(self):
        self.dump("a.txt", "x*2", *self.SHAPES, "--graph")
        self.dump("b.txt", "x*2", *self.SHAPES, "--graph", "--groups")
        self.onepass("diff", "a.txt", "a.txt")
        self.assertIn("  + 1 kernel for 1 operator and 0 views", self.onepass("diff", "a.txt", "b.txt", code=1).stdout)

    def test_folders_of_kernels(self):
        kernels = os.path.join(os.path.dirname(ONEPASS), "kernels")
        subprocess.run([kernels, self.path("a")], check=True, capture_output=True, timeout=120)
        subprocess.run([kernels, self.path("b")], check=True, capture_output=True, timeout=120)
        self.assertEqual(self.onepass("diff", "a", "b").stdout, "")
        with open(self.path("b/gelu.ll")) as file:
            text = file.read()
        self.text("b/gelu.ll", text.replace("define", "declare", 1))
        os.remove(self.path("b/flip.ll"))
        self.text("b/more/new.ll", "x")
        lines = self.onepass("diff", "a", "b", code=1).stdout
        for part in ("flip.ll is only in a", "more/new.ll is only in b", "gelu.ll:\n", "  + declare", f"1 of {len(os.listdir(self.path('a'))) - 1} files in both folders differ"):
            self.assertIn(part, lines)

    def test_the_edits_are_right_and_as_few_as_can_be(self):
        random = __import__("random").Random(7)
        for _ in range(40):
            a, b = ([random.choice("abcd") for _ in range(random.randrange(12))] for _ in range(2))
            for name, lines in (("a", a), ("b", b)):
                self.text(name, "".join(line + "\n" for line in lines))
            longest = [[0]*(len(b) + 1) for _ in range(len(a) + 1)]
            for i, x in enumerate(a):
                for j, y in enumerate(b):
                    longest[i + 1][j + 1] = longest[i][j] + 1 if x == y else max(longest[i][j + 1], longest[i + 1][j])
            text = self.onepass("diff", "a", "b", code=int(a != b)).stdout
            out, new = ([line[4:] for line in text.splitlines() if line.startswith(f"  {sign} ")] for sign in "-+")
            self.assertEqual(len(out) + len(new), len(a) + len(b) - 2*longest[-1][-1], (a, b, text))
            self.assertEqual(sorted(a + new), sorted(b + out), (a, b, text))

    def test_long_differences_are_cut_unless_all_are_asked_for(self):
        self.text("a", "".join(f"{i}\n" for i in range(5000)))
        self.text("b", "".join(f"{2*i}\n" for i in range(5000)))
        text = self.onepass("diff", "a", "b", code=1).stdout
        self.assertLess(len(text.splitlines()), 50)
        self.assertRegex(text, r"… and \d{4} more changed lines")
        self.assertGreater(len(self.onepass("diff", "a", "b", "--all", code=1).stdout.splitlines()), 5000)

    def test_what_is_not_text_is_not_printed(self):
        for name, data in (("zero", b"a\0b\n"), ("latin", b"caf\xe9\n"), ("escape", b"a\x1b[2Jb\n"), ("text", b"a b\n")):
            with open(self.path(name), "wb") as file:
                file.write(data)
        npy.write(self.path("x.npy"), [1, 2], None, "<f4")
        npy.write(self.path("y.npy"), [1, 3], None, "<f4")
        self.assertEqual(self.onepass("diff", "x.npy", "y.npy", code=1).stdout, "x.npy and y.npy: either is not text; the bytes differ\n")
        self.assertEqual(self.onepass("diff", "x.npy", "x.npy").stdout, "")
        self.assertEqual(self.onepass("diff", "text", "zero", code=1).stdout, "text and zero: the second is not text; the bytes differ\n")
        self.assertEqual(self.onepass("diff", "latin", "text", code=1).stdout, "latin and text: the first is not text; the bytes differ\n")
        self.assertIn("  - a?[2Jb\n", self.onepass("diff", "escape", "text", code=1).stdout)
        for folder in "ab":
            os.mkdir(self.path(folder))
            npy.write(self.path(folder + "/x.npy"), [ord(folder)], None, "<f4")
        self.assertEqual(self.onepass("diff", "a", "b", code=1).stdout, "x.npy: either is not text; the bytes differ\n1 of 1 files in both folders differ\n")
        self.fails("diff", "/dev/zero", "text", says="too large to compare")
        for folder in "ab":
            os.mkfifo(self.path(folder + "/pipe"))
        self.assertNotIn("pipe", self.onepass("diff", "a", "b", code=1).stdout)

    def test_errors(self):
        self.text("a", "x")
        self.text("bad.json", "{}")
        self.fails("diff", "a", "none", says="none: No such file")
        self.fails("diff", "a", self.folder, says="is a folder")
        self.fails("diff", "a", says="1 files or folders given")
        self.fails("diff", "a", "a", "a", says="3 files or folders given")
        self.fails("diff", "bad.json", "bad.json", says="`onepass dump --json`")
        self.dump("good.json", "x*2", *self.SHAPES, "--json")
        self.fails("diff", "good.json", "a", says="Pass two files of the same form")
        self.text("list.json", '{"version": 1, "graph": "", "kernels": [1]}')
        self.fails("diff", "good.json", "list.json", says="list.json")


class Printed(CommandCase):
    """Tests that results are printed without -o."""

    def prints(self, text, *words, **given):
        self.assertEqual(self.onepass("run", *words, **given).stdout, text)

    def test_results(self):
        self.write("x.npy", [1, 2.5, 3, 0.25], (2, 2))
        self.prints("[[1.   2.5 ]\n [3.   0.25]]\n", "x", "x=x.npy")
        self.prints("6.75\n", "total = sum(x)", "x=x.npy")
        self.prints("1024\n", "2**10")
        self.prints("[ True False]\n", "iota([2]) == 0")
        self.prints("small = 0.25\ntwice = [[2.  5. ]\n         [6.  0.5]]\n", "small = min(x); twice = x*2", "x=x.npy")
        self.prints("[0 1 2 ... 9997 9998 9999]\n".replace("0 1 2", "   0    1    2"), "iota([10000])")
        self.assertEqual(self.onepass("run", "x*2", "x=x.npy", "--compare").stderr, "equal in modes adaptive and unfused: 1 output\n")
        self.assertEqual(self.files(), ["x.npy"])

    def test_as_numpy_does(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy is not installed")
        rng = np.random.default_rng(3)
        words, expected = [], []
        for i in range(60):
            shape = tuple(rng.integers(1, 9, rng.integers(1, 4)))
            values = rng.standard_normal(shape) * 10.0 ** (rng.integers(-9, 9) if i % 2 else 0)
            if i % 5 == 0:
                values[rng.random(shape) < 0.3] = np.nan
            array = [values, np.round(values, 2), rng.integers(-99, 999, shape), values > 0, rng.standard_normal((40, 40))][i % 5 if i % 7 else 4]
            np.save(self.path(f"x{i}.npy"), array)
            words += [f"o{i} = x{i}"]
            expected.append(f"o{i} = " + np.array2string(array, prefix=f"o{i} = "))
        inputs = [f"x{i}=x{i}.npy" for i in range(60)]
        self.prints("\n".join(expected) + "\n", "; ".join(words), *inputs)


class Numbers(CommandCase):
    def test_numbers(self):
        self.write("x.npy", [1, 2])
        for text, printed in {"3": "[3. 6.]", "0.5": "[0.5 1. ]", "-2": "[-2. -4.]", "1e3": "[1000. 2000.]", "inf": "[inf inf]", "pi": "[3.1415927 6.2831855]", "+1.": "[1. 2.]"}.items():
            self.assertEqual(self.onepass("run", "x*k", "x=x.npy", f"k={text}").stdout, printed + "\n")
        self.assertEqual(self.onepass("run", "where(k, x, -x)", "x=x.npy", "k=false").stdout, "[-1. -2.]\n")
        self.assertEqual(self.onepass("run", "k + 1", "k=41").stdout, "42\n")
        self.assertEqual(self.onepass("run", "k + 1", "k=18446744073709551614").stdout, "18446744073709551615\n")
        self.assertEqual(self.onepass("run", "x*k", "x=x.npy", "k=3", "--compare", "-o", "out=y.npy").stdout, "equal in modes adaptive and unfused: 1 output\n")
        self.assertEqual(npy.read(self.path("y.npy")), ([3, 6], (2,), "<f4"))  # the number `k` is untyped

    def test_a_file_of_that_name(self):
        self.write("3", [5, 6])
        self.assertEqual(self.onepass("run", "x*1", "x=./3").stdout, "[5. 6.]\n")
        self.assertEqual(self.onepass("run", "x*1", "x=3").stdout, "3\n")
        self.fails("run", "x", "x=3x", says="3x: cannot be opened")
        self.fails("run", "x", "x=007", says="007: cannot be opened")
        self.fails("run", "x", "x=99999999999999999999", says="does not fit in 64 bits")

    def test_in_a_batch(self):
        self.write("x.npy", [1, 2])
        jobs = [{"formula": "x*k + j", "inputs": {"x": "x.npy", "k": k, "j": "1"}, "outputs": {"out": f"y{i}.npy"}} for i, k in enumerate(("3", "0.5", "2"))]
        answers = self.onepass("run", "--batch", "-", input="".join(json.dumps(job) + "\n" for job in jobs)).stdout
        self.assertEqual(answers, '{"ok":true}\n' * 3)
        self.assertEqual([npy.read(self.path(f"y{i}.npy"))[0] for i in range(3)], [[4, 7], [1.5, 2], [3, 5]])
        for job, says in (({"formula": "2", "inputs": {}}, "the job requests no output"), ({"formula": "x", "inputs": {"x": "-"}, "outputs": {"out": "y.npy"}}, "cannot be standard input")):
            self.assertIn(says, json.loads(self.onepass("run", "--batch", "-", input=json.dumps(job)).stdout)["error"])


class Archives(CommandCase):
    def archive(self, name, compression=zipfile.ZIP_STORED, **arrays):
        with zipfile.ZipFile(self.path(name), "w", compression) as file:
            for array, values in arrays.items():
                with file.open(array + ".npy", "w", force_zip64=True) as member:  # as numpy.savez does
                    member.write(npy.header("<f4", (len(values),)) + struct.pack(f"<{len(values)}f", *values))

    def members(self, name):
        with zipfile.ZipFile(self.path(name)) as file:
            self.assertIsNone(file.testzip())
            found = {}
            for member in file.namelist():
                with open(self.path("member"), "wb") as out:
                    out.write(file.read(member))
                found[member] = npy.read(self.path("member"))[0]
            os.remove(self.path("member"))
        return found

    def test_read(self):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            self.archive("data.npz", compression, x=[1, 2, 3], w=[10, 20, 30])
            self.archive("one.npz", compression, anything=[5, 6, 7] * 1000)
            for words in (["data.npz"], ["x=data.npz", "w=data.npz"], ["x=data.npz:x", "data.npz"], ["w=data.npz:w", "x=data.npz"]):
                self.assertEqual(self.onepass("run", "x*w", *words).stdout, "[10. 40. 90.]\n", words)
            self.assertEqual(self.onepass("run", "x*w", "x=data.npz:w", "w=data.npz:w").stdout, "[100. 400. 900.]\n")
            self.assertEqual(self.onepass("run", "x[:3] * w", "x=one.npz", "data.npz").stdout, "[ 50. 120. 210.]\n")
            with open(self.path("data.npz"), "rb") as file:
                bytes_ = file.read()
            done = subprocess.run([ONEPASS, "run", "x + 0", "x=-"], input=bytes_, capture_output=True, cwd=self.folder, timeout=60)
            self.assertEqual(done.stdout, b"[1. 2. 3.]\n", done.stderr)

    def test_written(self):
        self.onepass("run", "a = iota([3]); b = iota([3])*2.0; c = sum(iota([3])*2.0)", "-o", "all.npz")
        self.assertEqual(self.members("all.npz"), {"a.npy": [0, 1, 2], "b.npy": [0, 2, 4], "c.npy": [6]})
        self.onepass("run", "a = iota([3]); b = iota([3])*2.0; c = sum(iota([3])*2.0)", "-o", "b=some.npz", "-o", "c=some.npz", "-o", "a=a.npy")
        self.assertEqual(self.members("some.npz"), {"b.npy": [0, 2, 4], "c.npy": [6]})
        self.onepass("run", "d = b + c", "some.npz", "-o", "d=some.npz")  # an output may replace an input
        self.assertEqual(self.members("some.npz"), {"d.npy": [6, 8, 10]})
        out = subprocess.run([ONEPASS, "run", "a = 1.0; b = 2.0", "-o", "a=/dev/stdout", "-o", "b=b.npz"], capture_output=True, cwd=self.folder, timeout=60)
        self.assertTrue(out.stdout.startswith(b"\x93NUMPY"), out.stderr)
        try:
            import numpy as np
        except ImportError:
            return
        with np.load(self.path("all.npz")) as loaded:
            self.assertEqual({name: loaded[name].tolist() for name in loaded.files}, {"a": [0, 1, 2], "b": [0, 2, 4], "c": 6})

    def test_errors(self):
        self.archive("data.npz", x=[1, 2, 3], w=[10, 20, 30])
        self.fails("run", "v + x", "v=data.npz", "data.npz", says=["data.npz: the file has no array `v`", "x, w"])
        self.fails("run", "v + x", "data.npz", says="input `v` is missing")
        self.fails("run", "x + 1", "x=data.npy:x", says="data.npy:x: cannot be opened")
        self.write("plain.npz", [1])
        self.fails("run", "x", "plain.npz", says="plain.npz: the file is not a .npz file")
        self.assertEqual(self.onepass("run", "x", "x=plain.npz").stdout, "[1.]\n")  # by its bytes it is a .npy file
        self.fails("run", "a = 1; b = 2", "-o", "a=y.npz", "-o", "b=./y.npz", says="have the same file")
        self.fails("run", "a = 1; b = 2", "-o", "y.npz", "-o", "a=y.npz", says="given twice")
        with open(self.path("data.npz"), "rb") as file:
            whole = file.read()
        for at in (0, 1, len(whole) // 2, len(whole) - 1):
            with open(self.path("cut.npz"), "wb") as file:
                file.write(whole[:at] if at > 1 else b"PK\x03\x04"[: 4 * at + 4])
            self.fails("run", "x", "x=cut.npz", says="cut.npz: the file is")
        changed = bytearray(whole)
        changed[whole.index(b"\x93NUMPY") + 130] ^= 1  # an element of the first array
        with open(self.path("changed.npz"), "wb") as file:
            file.write(changed)
        self.fails("run", "x", "x=changed.npz", says="x.npy is damaged")
        random = __import__("random").Random(5)
        for _ in range(60):  # any changed byte gives an error or the same arrays
            broken = bytearray(whole)
            broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
            with open(self.path("broken.npz"), "wb") as file:
                file.write(broken)
            done = subprocess.run([ONEPASS, "run", "x*w", "broken.npz"], capture_output=True, text=True, cwd=self.folder, timeout=60)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            if done.returncode == 0:
                self.assertEqual(done.stdout, "[10. 40. 90.]\n")


class Pictures(CommandCase):
    @staticmethod
    def png(rows, bits, kind, extra=b""):
        """Returns a picture whose rows are bytes; `kind` is PNG's color type."""
        def chunk(name, data):
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
        width = len(rows[0]) * 8 // (bits * channels)
        header = struct.pack(">IIBBBBB", width, len(rows), bits, kind, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")

    def read(self, bytes_):
        with open(self.path("p.png"), "wb") as file:
            file.write(bytes_)
        done = self.onepass("run", "p", "p=p.png", "-o", "out=p.npy")
        self.assertEqual(done.stderr, "")
        return npy.read(self.path("p.npy"))

    def test_read(self):
        self.assertEqual(self.read(self.png([b"\1\2\3", b"\4\5\6"], 8, 0)), ([1, 2, 3, 4, 5, 6], (2, 3), "|u1"))
        self.assertEqual(self.read(self.png([b"\1\2\3\4\5\6"], 8, 2)), ([1, 2, 3, 4, 5, 6], (1, 2, 3), "|u1"))
        self.assertEqual(self.read(self.png([b"\1\2\3\4"], 8, 6)), ([1, 2, 3, 4], (1, 1, 4), "|u1"))
        self.assertEqual(self.read(self.png([b"\1\2\3\4"], 8, 4)), ([1, 2, 3, 4], (1, 2, 2), "|u1"))
        self.assertEqual(self.read(self.png([b"\1\2\3\4"], 16, 0)), ([0x102, 0x304], (1, 2), "<u2"))
        self.assertEqual(self.read(self.png([b"\xa0"], 1, 0)), ([255, 0, 255, 0, 0, 0, 0, 0], (1, 8), "|u1"))
        palette = struct.pack(">I", 6) + b"PLTE\7\x08\x09\1\2\3" + struct.pack(">I", zlib.crc32(b"PLTE\7\x08\x09\1\2\3"))
        self.assertEqual(self.read(self.png([b"\1\0"], 8, 3, palette)), ([1, 2, 3, 7, 8, 9], (1, 2, 3), "|u1"))

    def test_written_and_read_again(self):
        for formula, shape, descr in (("cast(iota([4, 5])*9, u8)", (4, 5), "|u1"), ("cast(reshape(iota([24]), [2, 4, 3])*7, u8)", (2, 4, 3), "|u1"),
                                      ("cast(reshape(iota([24]), [2, 3, 4])*2741, u16)", (2, 3, 4), "<u2"), ("cast(transpose(reshape(iota([6]), [3, 2]))*9999, u16)", (2, 3), "<u2")):
            self.onepass("run", formula, "-o", "out=y.png")
            self.onepass("run", formula, "-o", "out=y.npy")
            with open(self.path("y.png"), "rb") as file:
                values = self.read(file.read())
            self.assertEqual(values, npy.read(self.path("y.npy")))
            self.assertEqual(values[1:], (shape, descr))
        self.onepass("run", "iota([2, 2]) == 0", "-o", "out=mask.png")
        self.assertEqual(self.onepass("run", "m", "m=mask.png").stdout, "[[255 255]\n [  0   0]]\n")

    def test_errors(self):
        self.fails("run", "full([2, 2], 0.5)", "-o", "out=y.png", says=["output `out` f32[2, 2]", "u8, u16 or bool"])
        self.fails("run", "full([4], 1, u8)", "-o", "out=y.png", says="[height, width]")
        self.fails("run", "full([2, 2, 5], 1, u8)", "-o", "out=y.png", says="[height, width]")
        self.fails("run", "full([0, 2], 1, u8)", "-o", "out=y.png", says="height and width")
        whole = self.png([b"\1\2\3", b"\4\5\6"], 8, 0)
        for cut in (8, 20, 40, len(whole) - 14):
            with open(self.path("cut.png"), "wb") as file:
                file.write(whole[:cut])
            self.fails("run", "p", "p=cut.png", says="cut.png: the file is not a readable PNG picture")
        huge = bytearray(whole)
        huge[16:24] = struct.pack(">II", 900000, 900000)
        huge[29:33] = struct.pack(">I", zlib.crc32(bytes(huge[12:29])))
        with open(self.path("huge.png"), "wb") as file:
            file.write(huge)
        self.fails("run", "p", "p=huge.png", says="huge.png: the file is not a readable PNG picture: it is cut off")
        self.assertEqual(self.files(), ["cut.png", "huge.png"])


class StandardInput(CommandCase):
    def run_with(self, bytes_, *words, code=0):
        done = subprocess.run([ONEPASS, "run", *words], input=bytes_, capture_output=True, cwd=self.folder, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr.decode()

    def test_arrays(self):
        self.write("x.npy", [1, 2, 3])
        self.write("large.npy", range(300000))
        with open(self.path("x.npy"), "rb") as file:
            x = file.read()
        with open(self.path("large.npy"), "rb") as file:
            large = file.read()
        self.assertEqual(self.run_with(x, "x*2", "x=-"), b"[2. 4. 6.]\n")
        self.assertEqual(self.run_with(large, "x[-1]", "x=-"), b"299999.0\n")
        self.assertEqual(self.run_with(x, "x*w", "x=-", "w=x.npy", "-o", "out=-")[-12:], struct.pack("<3f", 1, 4, 9))
        pipe = self.run_with(self.run_with(x, "x*2", "x=-", "-o", "out=-"), "x + 1", "x=-")
        self.assertEqual(pipe, b"[3. 5. 7.]\n")
        self.assertEqual(self.run_with(Pictures.png([b"\1\2"], 8, 0), "p", "p=-"), b"[[1 2]]\n")

    def test_at_most_once(self):
        for words in (["x*w", "x=-", "w=-"], ["-", "x=-"]):
            error = self.run_with(b"x", *words, code=2)
            self.assertIn("standard input cannot be both", error)
        self.assertIn("standard input: the file is not a .npy file", self.run_with(b"1 2 3", "x", "x=-", code=2))
        self.assertIn("standard input: the file is not a .npy file", self.run_with(b"", "x", "x=-", code=2))
        self.write("-", [4])
        self.assertEqual(self.run_with(b"", "x", "x=./-"), b"[4.]\n")


class Terminal(CommandCase):
    """Tests the output on a terminal, with a pseudo-terminal."""

    def shown(self, *words, code=0, plain=(), **environment):
        """Returns the terminal's text. Standard output or error (1, 2) in `plain` is a pipe instead."""
        master, slave = pty.openpty()
        given = {**os.environ, "ONEPASS_CACHE_DIR": "none", "TERM": "xterm", **environment}
        if "NO_COLOR" not in environment:
            given.pop("NO_COLOR", None)
        process = subprocess.Popen([ONEPASS, *words], stdin=slave, stdout=subprocess.DEVNULL if 1 in plain else slave, stderr=subprocess.DEVNULL if 2 in plain else slave, env=given, cwd=self.folder)
        os.close(slave)
        text = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:
                break
            if not part:
                break
            text += part
        os.close(master)
        self.assertEqual(process.wait(60), code, text)
        return text.decode().replace("\r\n", "\n")

    def test_colours(self):
        self.assertIn("\x1b[1mLLVM\x1b[0m: ", self.shown("doctor"))
        self.assertIn("\x1b[32mnothing to do\x1b[0m", self.shown("doctor"))
        self.assertEqual(self.shown("run", "a = 1; b = 2"), "\x1b[1ma\x1b[0m = 1\n\x1b[1mb\x1b[0m = 2\n")
        self.assertTrue(self.shown("run", "x", "x=none.npy", code=2).startswith("\x1b[1;31monepass:\x1b[0m load_npy: none.npy"))
        self.assertNotIn("\x1b", self.shown("doctor", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.shown("doctor", TERM="dumb"))
        self.assertIn("\x1b", self.shown("doctor", NO_COLOR=""))  # by no-color.org an empty value is unset
        self.assertNotIn("\x1b", self.onepass("doctor").stdout)
        self.assertNotIn("\x1b", self.onepass("run", "a = 1; b = 2").stdout)

    def test_progress(self):
        slow = ["bench", "x*2", "--shapes", "x=f32[1000]"]  # 1.25 seconds of timing
        shown = self.shown(*slow, plain=(1,))
        self.assertRegex(shown, r"^(\r\x1b\[Ktiming mode adaptive … \d+ s)+\r\x1b\[K$")
        self.assertNotIn("timing", self.shown(*slow, plain=(2,)))
        self.assertEqual(self.shown("run", "1 + 1", plain=(1,)), "")  # short work shows none
        self.assertEqual(self.onepass(*slow).stderr, "")

    def test_an_array_is_not_written_to_a_terminal(self):
        self.assertIn("is a terminal", self.shown("run", "1 + 1", "-o", "out=-", code=2))


class AsJson(CommandCase):
    def test_doctor(self):
        answer = json.loads(self.onepass("doctor", "--json").stdout)
        self.assertIn(answer.pop("version"), self.onepass("-V").stdout)
        self.assertEqual(list(answer), ["processor", "memory", "LLVM", "cache folder", "BLAS", "CUDA toolkit", "CUDA driver", "device"])
        for line in answer.values():
            self.assertEqual(list(line), ["state", "advice"])

    def test_cache(self):
        def cache(*words, code=0):
            done = subprocess.run([ONEPASS, "cache", *words, "--json"], env=dict(os.environ, ONEPASS_CACHE_DIR=self.path("cache")), capture_output=True, text=True, cwd=self.folder, timeout=60)
            self.assertEqual(done.returncode, code, done.stderr)
            answer = json.loads(done.stdout)
            self.assertRegex(answer.pop("version"), r"^\d+\.\d+\.\d+$")
            return answer

        subprocess.run([ONEPASS, "run", "iota([100]) * 2.5", "-o", "out=y.npy", "--mode", "specialized"], env=dict(os.environ, ONEPASS_CACHE_DIR=self.path("cache")), check=True, cwd=self.folder, timeout=60)
        stats = cache("stats")
        self.assertEqual((stats["folder"], stats["usable"]["kernels"], stats["usable"]["optimized"], stats["damaged"]), (self.path("cache"), 1, 1, {"kernels": 0, "bytes": 0}))
        self.assertGreater(stats["usable"]["bytes"], 0)
        self.assertEqual(cache("verify"), {"folder": self.path("cache"), "damaged": 0, "untrusted": [], "removed": 0})
        written = cache("export", "kernels.onepass")["written"]
        self.assertGreaterEqual(written, 1)
        self.assertEqual(cache("clear"), {"removed": written})
        self.assertEqual(cache("import", "kernels.onepass")["added"], written)
        self.assertEqual(json.loads(self.onepass("cache", "stats", "--json").stdout)["folder"], None)


class Others(CommandCase):
    def test_help_has_examples(self):
        text = self.onepass("--help").stdout
        for command in ("run", "dump", "bench", "doctor", "diff", "cache"):
            self.assertIn(f"onepass {command}", text)
            self.assertIn("onepass " + command, self.onepass(command, "--help").stdout)

    def test_doctor(self):
        lines = self.onepass("doctor").stdout.splitlines()
        names = [line.split(":")[0] for line in lines]
        for name in ("processor", "memory", "LLVM", "cache folder", "BLAS", "CUDA toolkit", "CUDA driver", "device"):
            self.assertIn(name, names)
        for line in lines:
            self.assertRegex(line, r"^[^:]+: .+, .+$")
        # doctor always compiles: it neither reads nor writes the cache
        folder = self.path("doctors_cache")
        told = self.onepass("doctor", ONEPASS_CACHE_DIR=folder)
        self.assertIn("after the first compilation", told.stdout)
        self.assertIn(f"cache folder: {folder} (does not exist yet)", told.stdout)
        self.assertFalse(os.path.exists(folder))
        self.assertRegex(lines[0], r"vectors of \d+ bits, \d+ cores?, caches \d+ KiB")

    def test_first_calls_from_nothing(self):
        rows = json.loads(self.onepass("bench", "x*2 + tanh(x)", "--shapes", "x=f32[100]", "--from-nothing", "--json").stdout)
        self.assertEqual([(r["mode"], r["cache"]) for r in rows], [(m, c) for m in ("adaptive", "specialized") for c in ("empty", "warm")])
        self.assertEqual([(r["formula"], r["shapes"]) for r in rows], [("x*2 + tanh(x)", {"x": "f32[100]"})] * 4)
        for row in rows:
            self.assertEqual(row["calls"], 1000)
            times = [row[f"T{n}_ms"] for n in (1, 2, 10, 100, 1000)]
            self.assertEqual(times, sorted(times))
            self.assertGreater(times[0], 0)
            self.assertLessEqual(row["last_slow_ms"], times[-1] * 1.0001)
            self.assertGreater(row["settled_ms"], 0)
            self.assertGreater(row["settled_mean_ms"], 0)
            self.assertEqual(list(row["slow_per_s"]), ["after_300_ms", "after_1500_ms", "settled"])
            self.assertGreaterEqual(row["slow_per_s"]["settled"], 0)
        self.assertGreater(rows[2]["ms_compiling"], 0)  # for this shape, in the first call
        self.assertEqual(rows[3]["ms_compiling"], 0)  # from the cache
        for row in rows:
            self.assertEqual(len(row["times_ms"]), row["calls"])
            self.assertAlmostEqual(sum(row["times_ms"][:10]), row["T10_ms"], delta=0.01)
            self.assertGreaterEqual(row["ms_compiling_all"], row["ms_compiling"])
        for words in (["--mode", "adaptive"], ["--mode=adaptive"]):
            line = self.onepass("bench", "x*2", "--shapes", "x=f32[100]", "--from-nothing", "--json", *words).stdout
            self.assertEqual([(row["mode"], row["cache"]) for row in json.loads(line)], [("adaptive", "empty"), ("adaptive", "warm")])
        table = self.onepass("bench", "x*2 + tanh(x)", "--shapes", "x=f32[100]", "--from-nothing", "--mode", "generic").stdout
        self.assertEqual(table.count("generic"), 2)
        self.fails("bench", "x", "--shapes", "x=f32[2]", "--from-nothing", "--compare", "unfused", says=["--from-nothing", "--compare"])
        self.fails("bench", "x", "--shapes", "x=f32[2]", "--in-this-process", says=["--from-nothing"])

    def test_commands_that_do_not_exist(self):
        self.fails("rum", "x*2", says=["`rum`", "`run`"])
        self.assertIn("onepass run", self.onepass(code=2).stderr)

    def test_standard_output_that_cannot_be_written(self):
        long = ["dump", "softmax(x)", "--shapes", "x=f32[64,64]", "--asm"]  # more than one buffer
        for words in (["doctor"], ["--help"], ["run", "--help"], ["--version"], long):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([ONEPASS, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (2, "onepass: standard output cannot be written\n"), words)

    def test_standard_error_that_cannot_be_written(self):
        for words in (["run", "x*", "-o", "out=y.npy"], ["run", "x", "x=none.npy", "-o", "out=y.npy"], ["rum"], []):
            with open("/dev/full", "w", encoding="utf-8") as full:
                self.assertEqual(subprocess.run([ONEPASS, *words], stdout=full, stderr=full, timeout=60, cwd=self.folder).returncode, 2)


if __name__ == "__main__":
    if not os.path.exists(ONEPASS):
        print(f"{ONEPASS} is not built")
        sys.exit(77)
    unittest.main()
