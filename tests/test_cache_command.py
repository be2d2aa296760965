"""Tests the disk cache in use: a restarted program compiles nothing, whatever happens to the folder and to other processes."""
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


def spelled(formula):
    """Spells twice(a), a shift of i16, in the formula language."""
    return "fn twice(a) { return cast(cast(a, i16) << 1, f32) }\n" + formula


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

    def fails(self, *words, says, cache=None):
        done = subprocess.run([ONEPASS, *words], env=self.environment(cache), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        for text in says:
            self.assertIn(text, done.stderr)
        return done.stderr

    # A shift of i16 never runs in the tiled interpreter, so these kernels are compiled before their first run.
    def compiles(self, formula="twice(x)*2 + 1", cache=None):
        """Runs a formula in a new process and checks its result. Returns the number of compiled kernels."""
        out, stats = os.path.join(self.folder, "y.npy"), os.path.join(self.folder, "stats.json")
        self.onepass("run", spelled(formula), "x=" + self.x, "-o", "out=" + out, "--stats", stats, cache=cache)
        self.assertEqual(values(out), [eval(formula, {"x": v, "twice": lambda a: int(a) << 1}) for v in values(self.x)])
        with open(stats) as file:
            return sum(json.load(file)["compiles"].values())

    def entries(self):
        return [os.path.join(self.cache, name) for name in sorted(os.listdir(self.cache)) if name.endswith(".kernel")]

    def test_a_second_process_compiles_nothing(self):
        self.assertEqual(self.compiles(), 1)
        self.assertEqual(self.compiles(), 0)
        self.assertEqual(self.compiles("twice(x)*3 + 5"), 0)  # a kernel does not depend on a literal's value
        self.assertEqual(self.compiles("twice(x)*2 - 1"), 0)  # nor on its sign
        self.assertEqual(self.compiles("twice(x)*2 - x"), 1)
        self.assertIn("usable here: 2 kernels", self.onepass("cache", "stats"))
        self.assertEqual(self.onepass("cache", "clear"), "2 kernels removed\n")
        self.assertEqual(self.compiles(), 1)

    def test_short_processes_come_to_optimised_kernels(self):
        npy(self.x, [0.5] * 262144)
        for formula in ("exp(x)*tanh(x) + sin(x)", "reshape(x, [512, 512]) @ reshape(x, [512, 512])"):
            for _ in range(200):
                self.onepass("run", formula, "x=" + self.x, "-o", "out=" + os.path.join(self.folder, "y.npy"))
                if "of which optimized: 1" in self.onepass("cache", "stats"):
                    break
            else:
                self.fail("200 runs did not pay for one compile of " + formula)
            self.onepass("cache", "clear")

    def test_kernels_travel_in_an_archive(self):
        self.compiles()
        archive, other = os.path.join(self.folder, "kernels"), os.path.join(self.folder, "other")
        self.assertIn("1 kernel written", self.onepass("cache", "export", archive))
        self.fails("cache", "import", archive, says=["contains machine code", "--trust"], cache=other)
        self.assertIn("1 kernel added; skipped: 0 for other processors", self.onepass("cache", "import", "--trust", archive, cache=other))
        self.assertEqual(self.compiles(cache=other), 0)

    def test_an_archive_is_trusted_as_long_as_it_is_what_was_exported(self):
        self.compiles()
        archive = os.path.join(self.folder, "kernels")
        self.onepass("cache", "export", archive)
        self.onepass("cache", "clear")
        self.assertIn("1 kernel added", self.onepass("cache", "import", archive))  # byte for byte
        self.compiles("twice(x + 1)*2 - x")
        self.onepass("cache", "export", archive + "2")
        self.assertIn("1 kernel added", self.onepass("cache", "import", archive))  # an older archive is still accepted
        with open(archive, "rb") as file:
            good = file.read()
        for at in (40, len(good) // 2, len(good) - 1):  # checksums may be valid, since they are not secret
            with open(archive, "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            self.fails("cache", "import", archive, says=["contains machine code", "--trust"])
        with open(archive, "wb") as file:
            file.write(good)
        os.chmod(os.path.join(self.cache, "exports.sha256"), 0o666)  # other users could have added a line
        self.fails("cache", "import", archive, says=["--trust"])
        self.fails("cache", "clear", "--trust", says=["--trust is allowed only with import"])

    def test_entries_that_others_could_have_written_are_not_used(self):
        def refused(reason):
            name = os.path.basename(self.entries()[0])
            self.assertIn("not trusted: 1 kernel", self.onepass("cache", "stats"))
            self.assertEqual(self.compiles(), 1)  # refused, removed, compiled and stored again
            self.assertEqual(self.compiles(), 0)
            put()
            said = self.onepass("cache", "verify")
            self.assertIn(os.path.join(self.cache, name) + " " + reason, said)
            self.assertIn("1 damaged or untrusted kernel removed", said)
            self.assertEqual(self.entries(), [])
            self.compiles()

        self.compiles()
        entry = self.entries()[0]
        put = lambda: os.chmod(entry, 0o622)
        put()
        refused("can be written to by other users (mode 622)")

        target = os.path.join(self.folder, "elsewhere")

        def put():
            os.replace(entry, target)
            os.symlink(target, entry)
        put()
        refused("is a symbolic link")

        def put():
            with open(entry, "wb") as file:
                file.truncate(6 << 30)  # a sparse file
        put()
        refused("has 6442450944 bytes; the maximum is 67108864")
        if os.geteuid() != 0:
            print("skipped: only root can give files away")
            return

        def put():
            os.chown(entry, 65534, 65534)
        put()
        refused("belongs to user 65534, not to user 0")

    def test_the_folders_above_are_checked(self):
        outer = os.path.join(self.folder, "outer")
        inner = os.path.join(outer, "inner")
        os.makedirs(inner, 0o700)
        self.compiles(cache=inner)
        self.assertEqual(self.compiles(cache=inner), 0)
        os.chmod(outer, 0o777)
        said = self.fails("cache", "verify", says=["is in " + os.path.realpath(outer) + ", which other users can write to (mode 777;", "chmod go-w"], cache=inner)
        self.assertIn(inner, said)
        self.assertEqual(self.compiles(cache=inner), 1)
        self.assertEqual(os.listdir(inner), [])  # entries that other users could have written are removed
        os.chmod(outer, 0o1777)  # sticky, as /tmp
        self.assertEqual(self.compiles(cache=inner), 1)
        self.assertEqual(self.compiles(cache=inner), 0)
        link = os.path.join(self.folder, "link")  # link to a folder: the target's path is checked
        os.symlink(inner, link)
        self.assertEqual(self.compiles(cache=link), 0)

    def test_a_program_with_more_rights_reads_no_variable(self):
        if os.geteuid() != 0:
            print("skipped: only root can make a program that runs as another user")
            return
        program = os.path.join(os.path.dirname(ONEPASS), "onepass-for-another-user")  # where the module is found
        self.addCleanup(lambda: os.path.exists(program) and os.remove(program))
        shutil.copy(ONEPASS, program)
        said = lambda: subprocess.run([program, "doctor"], env=self.environment() | {"ONEPASS_MACHINE": "cores=7"}, capture_output=True, text=True).stdout
        self.assertIn("7 cores", said())
        self.assertIn(self.cache, said())
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        if os.statvfs(program).f_flag & os.ST_NOSUID:
            print("skipped: no setuid programs on this file system")
            return
        secure = said()
        self.assertNotIn("7 cores", secure)
        self.assertNotIn(self.cache, secure)
        self.assertIn("cache folder: none", secure)

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
        said = self.onepass("doctor")
        self.assertIn("can be written to by other users (mode 777; delete its contents", said)

    def test_a_cache_that_cannot_be_written_is_no_error(self):
        for cache in ("/proc/no/such", os.path.join(self.x, "below a file"), "/dev/full", "relative"):
            self.assertEqual(self.compiles(cache=cache), 1)

    def test_processes_killed_at_any_moment_leave_nothing_wrong(self):
        formulas = ["twice(x)*%d + x" % k if k % 3 else "(twice(x) + %d)*x - x" % k for k in range(12)] + ["twice(x*x)*x", "x - twice(x*x)", "twice((x + 1)*(x - 1))"]
        draw = random.Random(2)
        stop = threading.Event()

        def others():  # clears and checks the cache in the meantime
            while not stop.is_set():
                subprocess.run([ONEPASS, "cache", draw.choice(["clear", "verify", "stats"])], env=self.environment(), capture_output=True)
                time.sleep(.05)

        clearing = threading.Thread(target=others)
        clearing.start()
        try:
            for _ in range(KILLS):
                running = [subprocess.Popen([ONEPASS, "run", spelled(draw.choice(formulas)), "x=" + self.x, "-o", "out=" + os.path.join(self.folder, "k%d.npy" % i)],
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
