"""Applies the changes of docs/contributing/transformation.md to copies, compiles them, and runs the tests that it names. They are
linked with the built library, except for the changed files.

docs/contributing/operator.md changes every file's code, so only --full builds its changes (test_new_operator.sh). Here they must
apply."""
import os
import re
import subprocess
import sys
import tempfile

import diffs_of_page

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release")))
CXX = os.environ.get("CXX", "c++")


def compile_and_run(page, test, cases):
    with tempfile.TemporaryDirectory() as work:
        changed = diffs_of_page.apply(os.path.join(ROOT, page), ROOT, work)
        includes = [f"-I{folder}{part}" for folder in (work, ROOT) for part in ("", "/include", "/tests")]
        definitions = [f'-DONEPASS_SOURCE_DIR="{ROOT}"', f'-DONEPASS_BUILD_DIR="{BUILD}"']
        objects = []
        for name in [n for n in changed if n.endswith(".cpp")]:
            objects.append(os.path.join(work, name.replace("/", "_") + ".o"))
            subprocess.run([CXX, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-ffp-contract=off", *includes, *definitions,
                            "-c", os.path.join(work, name), "-o", objects[-1]], check=True)  # fmt: skip
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", f"tests/{test}"], check=True, capture_output=True, text=True).stdout
        link = commands.rstrip().split("\n")[-1]
        own, program = f"tests/CMakeFiles/{test}.dir/{test}.cpp.o", os.path.join(work, test)
        assert own in link and f"-o tests/{test} " in link, link
        link = link.replace(own, " ".join(objects)).replace(f"-o tests/{test} ", f"-o {program} ")
        subprocess.run(["bash", "-c", link], check=True, cwd=BUILD)
        for case in cases:
            done = subprocess.run([program, case], capture_output=True, text=True, cwd=work)
            print(done.stdout.strip())
            assert done.returncode == 0 and re.search(r"All tests passed \([1-9]\d* assertion", done.stdout), f"{page}: {case}"


if os.environ.get("ONEPASS_SANITIZE") or not os.path.exists(os.path.join(BUILD, "build.ninja")):
    print("SKIPPED: needs the optimised build, made by Ninja")
    sys.exit(77)
compile_and_run("docs/contributing/transformation.md", "test_loops",
                ["loops: two values change places*", "loops: random transformations give the reference's bits"])
if os.path.exists(os.path.join(ROOT, "docs/contributing/operator.md")):
    with tempfile.TemporaryDirectory() as copy:
        print("docs/contributing/operator.md changes", " ".join(diffs_of_page.apply(os.path.join(ROOT, "docs/contributing/operator.md"), ROOT, copy)))
