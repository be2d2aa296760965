"""Tests tools/gpu-check: the folder that it makes, with the fake driver and without a driver."""
import html.parser
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release")))
FAKE = os.path.join(BUILD, "lib/libfake_cuda.so")
SANITIZED = bool(os.environ.get("ONEPASS_SANITIZE"))
FULL = bool(os.environ.get("ONEPASS_TEST_FULL"))


class Lines(html.parser.HTMLParser):
    """Parser of the page's JSON, which also checks that its tables are complete."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.text, self.rows, self.tables = False, "", 0, 0
        self.feed(text)
        self.lines = json.loads(self.text)

    def handle_starttag(self, tag, attrs):
        self.inside = self.inside or (tag == "script" and ("id", "lines") in attrs)
        self.rows += tag == "tr"
        self.tables += tag == "table"

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"
        self.tables -= tag == "table"

    def handle_data(self, data):
        if self.inside:
            self.text += data


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = os.path.join(cls.place.name, "check")
        subprocess.run([os.path.join(ROOT, "tools/gpu-check"), cls.folder, BUILD], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def run_in(self, folder, *words, **environment):
        done = subprocess.run([os.path.join(folder, "run"), *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=1200)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        with open(os.path.join(folder, "result.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.read(), done.stdout)
        return done, lines

    def page(self, folder):
        with open(os.path.join(folder, "result.html"), encoding="utf-8") as file:
            page = Lines(file.read())
        self.assertEqual(page.tables, 0)
        return page

    def on_fake(self, *words, folder=None, **environment):
        if not os.path.exists(FAKE):
            self.skipTest("no driver that is none in this build")
        done, lines = self.run_in(folder or self.folder, "--small", "--seconds", "0", *words,
                                  **{"ONEPASS_CUDA_DRIVER": FAKE, "ONEPASS_NVRTC": FAKE, **environment})
        return done, {line["check"]: line for line in lines}

    def test_without_a_driver_each_check_says_so(self):
        done, lines = self.run_in(self.folder, ONEPASS_CUDA_DRIVER="/nowhere/libcuda.so")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertGreater(len(lines), 150)
        for line in lines:
            self.assertEqual(line["status"], "no device", line)
            self.assertIn("/nowhere/libcuda.so", line["what"])
        self.assertIn("is the file to send back", done.stderr)
        self.assertEqual(self.page(self.folder).lines, lines)

    def test_results_and_times(self):
        only = "." if FULL else ("^(device|copy|bad index)$|^results: (softmax|one sum)$|^form: (columns of 257 rows, bf16|take, rows, f32|index_add, elements|rows of 64, bf16)"
                                 "|^random graphs|^time: (affine|softmax of 33, bf16)$")
        done, lines = self.on_fake("--only", only, "--graphs", "3" if SANITIZED else "4")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in lines.values():
            self.assertIn(line["status"], ("ok", "skipped"), line)
        self.assertEqual(lines["device"]["name"], "a device that is none")
        self.assertEqual(lines["results: softmax"]["checks"], 2)
        self.assertEqual(lines["random graphs 1 to 4" if not SANITIZED else "random graphs 1 to 3"]["differ"], 0)
        self.assertGreater(lines["form: take, rows, f32"]["compared"], 100)
        timed = lines["time: affine"]
        self.assertLessEqual(timed["ms_5"], timed["ms"])
        self.assertLessEqual(timed["ms"], timed["ms_95"])
        self.assertGreater(timed["compared"], 700)
        self.assertGreaterEqual(timed["sets"], 1)
        self.assertIn("clocks", timed)
        page = self.page(self.folder)
        self.assertEqual(page.lines, list(lines.values()))
        self.assertGreater(page.rows, len(lines))

    def test_a_compiler_newer_than_the_driver(self):
        done, lines = self.on_fake("--only", "^device$", FAKE_NVRTC_VERSION="13000")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("newer than the driver", lines["device"]["what"])

    def folder_of(self, place, program):
        for name in ("run", "beside_torch.py"):
            shutil.copy(os.path.join(ROOT, "tests/gpu_check", name), place)
        with open(os.path.join(place, "gpu_check"), "w", encoding="utf-8") as file:
            file.write(program)
        os.chmod(os.path.join(place, "gpu_check"), 0o755)

    def test_checks_that_end_without_a_line_leave_the_others_alone(self):
        with tempfile.TemporaryDirectory() as place:
            self.folder_of(place, f'''#!/bin/sh
real='{self.folder}/gpu_check'
case "$*" in
--list*) printf '20\\tdevice\\n1\\tresults: affine\\n20\\tresults: gelu\\n20\\ttime: affine\\n20\\ttime: gelu\\n' ;;
"--check results: affine"*) echo 'at the <kernel>' >&2; exec sleep 30 ;;
"--check results: gelu"*) echo 'a "sticky" error </script>' >&2; kill -9 $$ ;;
"--check time: affine"*) echo '{{"check":"time: affine","status":"differs","differ":3,"first":{{"element":7}}}}'; exit 1 ;;
*) exec "$real" "$@" ;;
esac
''')
            done, lines = self.on_fake(folder=place)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertEqual({name: line["status"] for name, line in lines.items()},
                             {"device": "ok", "results: affine": "no answer", "results: gelu": "no answer", "time: affine": "differs", "time: gelu": "ok"})
            self.assertIn("at the <kernel>", lines["results: affine"]["what"])
            self.assertGreaterEqual(lines["results: affine"]["seconds"], 1)
            self.assertIn('a "sticky" error', lines["results: gelu"]["what"])
            self.assertEqual(self.page(place).lines, list(lines.values()))

    def test_a_tool_that_finds_something_is_a_line_of_its_own(self):
        with tempfile.TemporaryDirectory() as tools:
            tool = os.path.join(tools, "compute-sanitizer")
            with open(tool, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\ntool=$2\nshift 4\n"$@" || exit\n[ $tool != racecheck ] || { echo "a hazard in kernel_0"; exit 86; }\n')
            os.chmod(tool, 0o755)
            done, lines = self.on_fake("--only", "^form: rows of 64, f32$", PATH=tools + ":" + os.environ["PATH"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual({name: line["status"] for name, line in lines.items()},
                         {"form: rows of 64, f32": "ok", "memcheck: form: rows of 64, f32": "ok", "racecheck: form: rows of 64, f32": "failed",
                          "synccheck: form: rows of 64, f32": "ok", "initcheck: form: rows of 64, f32": "ok"})
        self.assertIn("a hazard in kernel_0", lines["racecheck: form: rows of 64, f32"]["what"])

    def test_torch_beside(self):
        """Torch's results are close to onepass's on the CPU, if torch is installed. Wrong results are reported."""
        script = os.path.join(ROOT, "tests/gpu_check/beside_torch.py")
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest("no torch")
        environment = {**os.environ, "GPU_CHECK": os.path.join(self.folder, "gpu_check"), "ONEPASS_CUDA_DRIVER": "/nowhere/libcuda.so"}
        for name in ("softmax", "layer norm, gradients"):
            done = subprocess.run([sys.executable, script, name, "--device", "cpu", "--seconds", "0"], env=environment, capture_output=True, text=True)
            line = json.loads(done.stdout)
            self.assertEqual(line["status"], "ok", line)
            self.assertLess(line["differs_by"], 1e-5)

    def test_a_program_that_does_not_start_is_no_result(self):
        with tempfile.TemporaryDirectory() as place:
            self.folder_of(place, "#!/bin/sh\necho 'GLIBC_2.35 not found' >&2\nexit 1\n")
            done, lines = self.run_in(place)
            self.assertEqual(done.returncode, 3)
            self.assertIn("code 1", lines[0]["what"])
            self.assertIn("GLIBC_2.35 not found", done.stderr)


if __name__ == "__main__":
    unittest.main()
