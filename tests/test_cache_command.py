"""The disk cache as users have it: a restarted program compiles nothing, whatever happens to the folder and to the processes."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

ONEPASS = os.path.join(os.environ["ONEPASS_BUILD_DIR"], "tools", "onepass")
KILLS = 200 if os.environ.get("ONEPASS_TEST_FULL") else 20


def npy(path, values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % len(values)
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<%df" % len(values), *values))


def values(path):
    with open(path, "rb") as file:
        data = file.read()
    return list(struct.unpack("<%df" % ((len(data) - 128) // 4), data[128:]))


class DiskCache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = os.path.join(self.folder, "cache")
        self.x = os.path.join(self.folder, "x.npy")
        npy(self.x, [0.5 * i for i in range(100)])

    def environment(self, cache=None):
        return dict(os.environ, ONEPASS_CACHE_DIR=cache or self.cache)

    def onepass(self, *words, cache=None):
        done = subprocess.run([ONEPASS, *words], env=self.environment(cache), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    # A remainder is never run in tiles: these kernels are compiled before their first run, however short it is.
    def compiles(self, formula="x % 7*2 + 1", cache=None):
        """Runs a formula in a new process, checks its result, says how many kernels it compiled."""
        out, stats = os.path.join(self.folder, "y.npy"), os.path.join(self.folder, "stats.json")
        self.onepass("run", formula, "x=" + self.x, "-o", "out=" + out, "--stats", stats, cache=cache)
        self.assertEqual(values(out), [eval(formula, {"x": v}) for v in values(self.x)])
        with open(stats) as file:
            return sum(json.load(file)["compiles"].values())

    def entries(self):
        return [os.path.join(self.cache, name) for name in sorted(os.listdir(self.cache)) if name.endswith(".kernel")]

    def test_a_second_process_compiles_nothing(self):
        self.assertEqual(self.compiles(), 1)
        self.assertEqual(self.compiles(), 0)
        self.assertEqual(self.compiles("x % 7*3 + 5"), 0)  # a literal's value is no part of a kernel
        self.assertEqual(self.compiles("x % 7*2 - 1"), 0)  # nor is its sign
        self.assertEqual(self.compiles("x % 7*2 - x"), 1)
        self.assertIn("usable here: 2 kernels", self.onepass("cache", "stats"))
        self.assertEqual(self.onepass("cache", "clear"), "2 kernels removed\n")
        self.assertEqual(self.compiles(), 1)

    def test_kernels_travel_in_an_archive(self):
        self.compiles()
        archive, other = os.path.join(self.folder, "kernels"), os.path.join(self.folder, "other")
        self.assertIn("1 kernel written", self.onepass("cache", "export", archive))
        self.assertIn("1 kernel added; left out: 0 for other processors", self.onepass("cache", "import", archive, cache=other))
        self.assertEqual(self.compiles(cache=other), 0)

    def test_damaged_code_is_compiled_again(self):
        self.compiles()
        with open(self.entries()[0], "rb") as file:
            good = file.read()
        for at in random.Random(1).sample(range(len(good)), 25):
            with open(self.entries()[0], "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1:])
            self.assertEqual(self.compiles(), 1)
            self.assertEqual(self.compiles(), 0)
        with open(self.entries()[0], "wb") as file:
            file.write(good[:-1])
        self.assertIn("damaged: 1 kernel", self.onepass("cache", "stats"))
        self.assertEqual(self.onepass("cache", "verify"), "1 damaged kernel removed\n")

    def test_a_folder_that_others_can_write_to_is_not_used(self):
        os.mkdir(self.cache)
        os.chmod(self.cache, 0o777)
        self.assertEqual(self.compiles(), 1)
        self.assertEqual(self.compiles(), 1)
        self.assertIn("can be written to by others", self.onepass("doctor"))

    def test_a_cache_that_cannot_be_written_is_no_error(self):
        for cache in ("/proc/no/such", os.path.join(self.x, "below a file"), "/dev/full", "relative"):
            self.assertEqual(self.compiles(cache=cache), 1)

    def test_processes_killed_at_any_moment_leave_nothing_wrong(self):
        formulas = ["x %% 7*%d + x" % k if k % 3 else "(x %% 7 + %d)*x - x" % k for k in range(12)] + ["x*x*x % 7", "x - x*x % 9", "(x + 1)*(x - 1) % 7"]
        draw = random.Random(2)
        stop = threading.Event()

        def others():  # fill and clear meanwhile
            while not stop.is_set():
                subprocess.run([ONEPASS, "cache", draw.choice(["clear", "verify", "stats"])], env=self.environment(), capture_output=True)
                time.sleep(.05)

        clearing = threading.Thread(target=others)
        clearing.start()
        try:
            for _ in range(KILLS):
                running = [subprocess.Popen([ONEPASS, "run", draw.choice(formulas), "x=" + self.x, "-o", "out=" + os.path.join(self.folder, "k%d.npy" % i)],
                                            env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(2)]
                time.sleep(draw.random() * .03)
                for process in running:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
        finally:
            stop.set()
            clearing.join()
        for formula in formulas:
            self.compiles(formula)
        self.assertIn("damaged: 0 kernels", self.onepass("cache", "stats"))


if __name__ == "__main__":
    unittest.main()
