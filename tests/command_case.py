"""Common parts of the tests of the `onepass` command: a folder for each test, runs of the command there, and checks of its errors."""
import os
import subprocess
import tempfile
import unittest

import npy_files as npy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ONEPASS = os.path.join(os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release"))), "tools/onepass")


class CommandCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, values, shape=None, descr="<f4"):
        npy.write(self.path(name), values, shape, descr)

    def files(self):
        return sorted(os.listdir(self.folder))

    def onepass(self, *words, input=None, code=0, **environment):
        """Runs the command in the test's folder, without a kernel cache unless `environment` names one."""
        result = subprocess.run([ONEPASS, *words], env={**os.environ, "ONEPASS_CACHE_DIR": "none", **environment}, input=input, capture_output=True, text=True, cwd=self.folder, timeout=300, errors="replace")
        self.assertEqual(result.returncode, code, f"onepass {' '.join(words)[:500]}\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
        return result

    def fails(self, *words, says, input=None, code=2):
        """Checks for exit code 2, and an error on stderr with every text of `says`. It is one line, or for a formula three, with
        source and caret."""
        error = self.onepass(*words, input=input, code=code).stderr
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, error)
        lines = error.rstrip("\n").split("\n")
        if len(lines) > 1:
            self.assertRegex(lines[0], r"^[^ ]+:\d+:\d+: ")
        return error
