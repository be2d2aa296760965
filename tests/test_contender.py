"""Tests bench/contender: each request of its protocol, in place and not, and programs that do not compile."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import npy_files as npy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONTENDER = os.path.join(os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release"))), "bench/contender")


class Contender(unittest.TestCase):
    words = []

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.process = subprocess.Popen([CONTENDER, *self.words, "--serve", "--threads", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)

    def end(self):
        out, _ = self.process.communicate(timeout=60)  # ends at the end of its input
        self.assertEqual((out, self.process.returncode), ("", 0))

    def ask(self, ok=True, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.assertEqual(answer["ok"], ok, answer)
        if not ok:
            self.assertTrue(answer["error"])
        return answer

    def file(self, name, values, shape=None, descr="<f4"):
        path = os.path.join(self.folder, name + ".npy")
        npy.write(path, values, shape, descr)
        return path

    def result(self, name):
        return npy.read(os.path.join(self.folder, "out", name + ".npy"))

    def out(self):
        path = os.path.join(self.folder, "out")
        os.makedirs(path, exist_ok=True)
        return path

    def test_list(self):
        answer = self.ask(do="list")
        self.assertIs(answer["programs"], True)
        self.assertEqual((answer["workloads"], answer["latency"]), ([], []))
        self.assertIn("versions", answer)

    def test_a_workload(self):
        inputs = {"x": self.file("x", [1, 2, 3]), "w": self.file("w", [2])}
        answer = self.ask(do="prepare", id="anything", inputs=inputs, program="fn f(x, w) { y = x*w; s = sum(x)\n return y, s }", outputs=["product", "total"], inplace=False)
        self.assertIs(answer["into"], True)
        self.assertGreater(answer["first_ms"], 0)
        self.assertIn("peak_mib", answer)
        timing = self.ask(do="time", id="anything", seconds=0.05)
        self.assertGreater(timing["calls"], 0)
        self.assertTrue(0 < timing["min_s"] <= timing["median_s"])
        self.ask(do="result", id="anything", dir=self.out())
        self.assertEqual(self.result("product"), ([2, 4, 6], (3,), "<f4"))
        self.assertEqual(self.result("total"), ([6], (), "<f4"))
        self.ask(do="drop", id="anything")
        self.ask(do="time", id="anything", ok=False)
        self.ask(do="drop", id="anything")

    def test_in_place(self):
        inputs = {"a": self.file("a", [1, 2]), "b": self.file("b", [10, 20])}
        self.ask(do="prepare", id="swap", inputs=inputs, program="fn f(a, b) { c = a + b\n return c, a }", outputs=["a", "b"], inplace=True)
        self.ask(do="result", id="swap", dir=self.out(), fresh=True)
        self.assertEqual((self.result("a")[0], self.result("b")[0]), ([11, 22], [1, 2]))
        self.ask(do="result", id="swap", dir=self.out(), fresh=False)  # one more call, with the current state
        self.assertEqual((self.result("a")[0], self.result("b")[0]), ([12, 24], [11, 22]))
        self.ask(do="time", id="swap", seconds=0.02)
        self.ask(do="result", id="swap", dir=self.out(), fresh=True)
        self.assertEqual((self.result("a")[0], self.result("b")[0]), ([11, 22], [1, 2]))

    def test_preparing_again_replaces(self):
        for factor in (2, 3):
            self.ask(do="prepare", id="p", inputs={"x": self.file("x", [1.0])}, program=f"fn f(x) {{ return {factor}*x }}", outputs=["y"], inplace=False)
            self.ask(do="result", id="p", dir=self.out())
            self.assertEqual(self.result("y")[0], [factor])

    def test_integer_inputs(self):
        inputs = {"labels": self.file("labels", [2, 0], descr="<i4")}
        self.ask(do="prepare", id="i", inputs=inputs, program="fn f(labels) { return labels + 1 }", outputs=["y"], inplace=False)
        self.ask(do="result", id="i", dir=self.out())
        self.assertEqual(self.result("y"), ([3, 1], (2,), "<i4"))

    def test_latency(self):
        inputs = {name: self.file(name, [1, 2, 3]) for name in "xyz"}
        answer = self.ask(do="latency", id="row", seed=1, dir=self.out(), program="t1 = x*y\nt2 = t1 + z\nt = t2", inputs=inputs, outputs=["t"])
        self.assertGreater(answer["ms"], 0)
        self.assertEqual(self.result("t")[0], [2, 6, 12])

    def test_latency_with_shapes(self):
        inputs = {"x": self.file("x", range(20))}
        self.ask(do="latency", id="row", seed=1, dir=self.out(), program="fn f(x) { return x*2 }", inputs=inputs, outputs=["t"], shapes=[[4, 5], [1, 1], [2, 3]])
        self.assertEqual(self.result("t"), ([0, 2, 4, 6, 8, 10], (2, 3), "<f4"))

    def test_bad_requests_are_answered(self):
        x = self.file("x", [1, 2])
        good = {"do": "prepare", "id": "p", "inputs": {"x": x}, "program": "fn f(x) { return x }", "outputs": ["y"], "inplace": False}
        self.assertIn("program:1:", self.ask(**{**good, "program": "fn f(x) { return x*( }"}, ok=False)["error"])
        self.assertIn("nosuch", self.ask(**{**good, "program": "fn f(x) { return nosuch(x) }"}, ok=False)["error"])
        self.ask(**{**good, "inputs": {}}, ok=False)
        self.ask(**{**good, "inputs": {"x": "none.npy"}}, ok=False)
        self.ask(**{**good, "outputs": ["y", "z"]}, ok=False)
        self.ask(do="prepare", id="p", ok=False)
        self.ask(do="time", id="p", ok=False)
        self.ask(do="dance", id="p", ok=False)
        self.ask(ok=False)
        self.process.stdin.write("not JSON\n")
        self.process.stdin.flush()
        self.assertFalse(json.loads(self.process.stdout.readline())["ok"])
        self.ask(**good)


class Relaxed(Contender):
    words = ["--relax", "contract,reassociate,approximate", "--mode", "unfused"]


class Arguments(unittest.TestCase):
    def test_mistakes(self):
        for words in ([], ["--serve", "--threads"], ["--serve", "--threads", "0"], ["--relax", "fast", "--serve"], ["--mode", "fast", "--serve"], ["--nonsense"]):
            result = subprocess.run([CONTENDER, *words], input="", capture_output=True, text=True, timeout=60)
            self.assertEqual((result.returncode, result.stdout), (2, ""), words)
            self.assertIn("usage", result.stderr)


if __name__ == "__main__":
    if not os.path.exists(CONTENDER):
        print(f"{CONTENDER} is not built")
        sys.exit(77)
    unittest.main()
