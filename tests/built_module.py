"""Finds the Python module of a build for tests. Importing this skips the test (exit code 77) without the module, and puts it on the path."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULE = os.path.join(os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release"))), "python")
if not os.path.exists(os.path.join(MODULE, "onepass", "__init__.py")):
    print("SKIPPED: this build has no Python module (cmake -DONEPASS_PYTHON=ON)")
    sys.exit(77)
sys.path.insert(0, MODULE)
