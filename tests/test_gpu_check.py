"""tools/gpu-check: the folder it makes, on the driver that is none, and where there is no driver at all."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release")))
FAKE = os.path.join(BUILD, "lib/libfake_cuda.so")
SANITIZED = bool(os.environ.get("ONEPASS_SANITIZE"))


class GpuCheck(unittest.TestCase):
    def run_in(self, folder, *words, **environment):
        return subprocess.run([os.path.join(folder, "run"), *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=1200)

    def test_the_folder(self):
        with tempfile.TemporaryDirectory() as place:
            folder = os.path.join(place, "check")
            subprocess.run([os.path.join(ROOT, "tools/gpu-check"), folder, BUILD], check=True, stdout=subprocess.DEVNULL)
            done = self.run_in(folder, ONEPASS_CUDA_DRIVER="/nowhere/libcuda.so")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("not run on a GPU", json.loads(done.stdout)["not_run"])
            if not os.path.exists(FAKE):
                return
            newer = self.run_in(folder, "--small", "--programs", "1", "--graphs", "0", "--seconds", "0", ONEPASS_CUDA_DRIVER=FAKE, ONEPASS_NVRTC=FAKE, FAKE_NVRTC_VERSION="13000")
            self.assertEqual(newer.returncode, 1, newer.stdout + newer.stderr)
            self.assertIn("newer than the driver", json.loads(newer.stdout)["warning"])
            done = self.run_in(folder, "--small", "--graphs", "3" if SANITIZED else "4", "--seconds", "0", ONEPASS_CUDA_DRIVER=FAKE, ONEPASS_NVRTC=FAKE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual(result["device"]["name"], "a device that is none")
            self.assertEqual(result["differential"]["failed"], 0)
            self.assertGreater(result["differential"]["checks"], 30)
            self.assertGreater(result["benchmarks"]["layer norm"]["ms"], 0)
            for name, row in result["benchmarks"].items():
                self.assertNotIn("error", row, name)
            self.assertIn("torch", result)

    def test_a_program_that_does_not_start_is_no_result(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("run", "beside_torch.py"):
                shutil.copy(os.path.join(ROOT, "tests/gpu_check", name), folder)
            program = os.path.join(folder, "gpu_check")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 'GLIBC_2.35 not found' >&2\nexit 1\n")
            os.chmod(program, 0o755)
            done = self.run_in(folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn("code 1", json.loads(done.stdout)["not_run"])
            self.assertIn("GLIBC_2.35 not found", done.stderr)


if __name__ == "__main__":
    unittest.main()
