"""Compares typical NumPy programs (tests/numpy_patterns/patterns.txt), each in several shapes, with NumPy's results.

Each program runs in modes adaptive, unfused and reference in one process (`onepass run --batch`), alternately in f32 and f64. The modes have equal
bits. NumPy, which computes in f64, agrees within a tolerance. Gradients are compared with central differences of the loss in NumPy.

A line of the file:   formula || NumPy || inputs || conditions
  inputs       x[n,d]  k:below5[n]: a letter is a length, `2n` twice that. Values are in [-1, 1) unless a kind is given:
               pos (0.1 to 0.9), int (-9 to 9, i64), below5 (indices, i64), bool
  conditions   n>=2 or n<=40: required lengths; f32: not in f64
  gradients:       [statements;] grad x || loss || loss in NumPy || inputs || conditions

  test_numpy_patterns.py [WORD …]    runs and prints only lines that contain one of the words
"""
import os
import sys

try:
    import numpy as np
except ImportError:  # CMake may have found another Python than Debian's
    python = "/usr/bin/python3"
    if os.path.realpath(sys.executable) == os.path.realpath(python) or not os.path.exists(python) or os.environ.get("ONEPASS_NUMPY_TRIED"):
        print("skipped: no Python with NumPy; install Debian's python3-numpy")
        sys.exit(77)
    os.execve(python, [python, *sys.argv], {**os.environ, "ONEPASS_NUMPY_TRIED": "1"})

import json
import math
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ONEPASS = os.path.join(os.path.abspath(os.environ.get("ONEPASS_BUILD_DIR", os.path.join(ROOT, "build/release"))), "tools/onepass")
MODES = ("adaptive", "unfused", "reference")

LETTERS = "nmdchwb"
SIZES = [  # small, odd, all 1, long, and zero as first, second or third length
    dict(zip(LETTERS, (4, 3, 2, 2, 4, 6, 2))),
    dict(zip(LETTERS, (17, 5, 3, 3, 7, 9, 3))),
    dict(zip(LETTERS, (1, 1, 1, 1, 1, 1, 1))),
    dict(zip(LETTERS, (131, 70, 33, 3, 65, 34, 5))),
    dict(zip(LETTERS, (0, 3, 2, 2, 0, 6, 2))),
    dict(zip(LETTERS, (3, 0, 2, 2, 4, 0, 2))),
    dict(zip(LETTERS, (3, 4, 0, 2, 3, 4, 0))),
]
LONG = 3
VECTOR = 5003  # the long length of formulas over one axis


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def scatter_add(x, k, y):
    out = np.array(x, dtype=np.float64)
    rows = np.broadcast_to(np.arange(len(x))[:, None], k.shape)
    np.add.at(out, (rows, k), y)
    return out


def after(x, at, v):
    """Returns x after x[at] = v."""
    out = np.array(x, dtype=np.float64)
    out[at] = v
    return out


def at_each(join, x, at, v):
    out = np.array(x, dtype=np.float64)
    join.at(out, at, v)
    return out


def bs(s, k, t, v, r):
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    return s * 0.5 * (1 + erf(d1 / np.sqrt(2))) - k * np.exp(-r * t) * 0.5 * (1 + erf(d2 / np.sqrt(2)))


trapezoid = getattr(np, "trapezoid", None) or np.trapz  # the function's name before NumPy 2
NAMES = dict(np=np, math=math, trapezoid=trapezoid, softmax=softmax, sigmoid=sigmoid, erf=erf, scatter_add=scatter_add, after=after, at_each=at_each, bs=bs)


class Pattern:
    def __init__(self, line, number):
        self.number = number
        self.line = line
        columns = [c.strip() for c in line.split("||")]
        gradient = re.fullmatch(r"(.*; *)?grad (\w+)", columns[0])
        self.by = None
        if gradient:
            self.by = gradient[2]
            columns = [f"{gradient[1] or ''}loss = {columns[1]}; out = grad(loss, [{gradient[2]}])", *columns[2:]]
        self.formula, self.numpy = columns[0], columns[1]
        self.inputs = [re.fullmatch(r"(\w+)(?::(\w+))?\[(.*)\]", i).groups() for i in columns[2].split()]
        self.conditions = columns[3].split() if len(columns) > 3 else []
        self.code = compile(self.numpy, f"patterns.txt:{number}", "eval")
        self.outputs = self.output_names()

    def output_names(self):
        statements = [s.strip() for s in self.formula.split(";")]
        names = []
        for i, statement in enumerate(statements):
            match = re.match(r"(\w+(?:, \w+)*) = ", statement)
            for name in match[1].split(", ") if match else ["out"]:
                if not match or not any(re.search(rf"\b{name}\b(?! = )(?!\()", re.sub(r"^[\w, ]+ = ", "", s)) for s in statements[i + 1:]):
                    names.append(name)
        return names

    def sizes(self):
        seen = []
        letters = set("".join(shape for _, _, shape in self.inputs)) & set(LETTERS)
        for number, size in enumerate(SIZES):
            size = dict(size)
            if number == LONG and letters == {"n"} and "none" not in self.formula and "@" not in self.formula and \
                    all("," not in shape for _, _, shape in self.inputs) and "outer" not in self.formula:
                size["n"] = VECTOR
            for condition in self.conditions:
                if match := re.fullmatch(r"(\w)([<>])=(\d+)", condition):
                    size[match[1]] = (max if match[2] == ">" else min)(size[match[1]], int(match[3]))
            size = {letter: size[letter] for letter in sorted(letters)}
            if size not in seen:
                seen.append(size)
                yield number, size

    def arrays(self, size, dtype, seed):
        random = np.random.default_rng(seed)
        out = {}
        for name, kind, shape in self.inputs:
            lengths = []
            for length in shape.split(",") if shape else []:
                match = re.fullmatch(r"(\d*)(\w?)", length)
                lengths.append(int(match[1] or 1) * (size[match[2]] if match[2] else 1))
            if kind is None:
                out[name] = random.uniform(-1, 1, lengths).astype(dtype)
            elif kind == "pos":
                out[name] = random.uniform(0.1, 0.9, lengths).astype(dtype)
            elif kind == "int":
                out[name] = random.integers(-9, 10, lengths)
            elif kind == "bool":
                out[name] = random.integers(0, 2, lengths).astype(bool)
            else:
                out[name] = random.integers(0, int(kind.removeprefix("below")), lengths)
            out[name] = np.asarray(out[name])
        return out

    def expected(self, arrays):
        """Returns NumPy's result in f64 for each output. For a gradient: some of its elements, as (indices, values)."""
        values = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in arrays.items()}
        with np.errstate(all="ignore"):
            if not self.by:
                result = eval(self.code, {**NAMES, **values})
                return list(result) if isinstance(result, tuple) else [result]
            x = values[self.by] = np.array(values[self.by])
            flat = x.reshape(-1)
            places = np.unique(np.linspace(0, len(flat) - 1, 24).astype(int)) if len(flat) else np.zeros(0, int)
            slopes = []
            step = 1e-5
            for place in places:
                before = flat[place]
                losses = []
                for at in (before + step, before - step):
                    flat[place] = at
                    losses.append(eval(self.code, {**NAMES, **values}))
                flat[place] = before
                slopes.append((losses[0] - losses[1]) / (2 * step))
            return [(places, np.array(slopes))]


def difference(got, want, tolerance):
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if got.dtype.kind in "iub" and want.dtype.kind in "iub":
        wrong = got != want
    else:
        got, want = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(want)
        scale = max(1.0, np.abs(want[finite]).max(initial=0))
        with np.errstate(all="ignore"):
            wrong = np.where(finite, ~(np.abs(got - want) <= tolerance * scale), ~((got == want) | (np.isnan(got) & np.isnan(want))))
    if not wrong.any():
        return None
    at = tuple(np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ, the first at {[int(i) for i in at]}: {got[at]} instead of {want[at]}"


def same_bits(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.all((a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | ((a != a) & (b != b)))) if a.size else True


def patterns(words):
    with open(os.path.join(ROOT, "tests/numpy_patterns/patterns.txt"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if line and line[0] not in "#[" and (not words or any(w in line for w in words)):
                yield Pattern(line, number)


def main(words):
    count, failures = 0, []
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        process = subprocess.Popen([ONEPASS, "run", "--batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)

        def run(pattern, mode, inputs, outputs):
            job = dict(formula=pattern.formula, inputs=inputs, outputs=outputs, mode=mode)
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the command ended with exit code {process.wait()}")
            return json.loads(line)

        programs = 0
        for pattern in patterns(words):
            programs += 1
            for number, size in pattern.sizes():
                dtype = np.float64 if (number % 2 or pattern.by) and "f32" not in pattern.conditions else np.float32
                arrays = pattern.arrays(size, dtype, 1000 * pattern.number + number)
                what = f"patterns.txt:{pattern.number}: {pattern.formula}\n  " + "  ".join(f"{k}={v.dtype}{list(v.shape)}" for k, v in arrays.items())
                try:
                    expected = pattern.expected(arrays)
                except Exception as error:
                    failures.append(f"{what}\n  NumPy: {error!r}")
                    continue
                inputs = {}
                for name, array in arrays.items():
                    inputs[name] = os.path.join(folder, name + ".npy")
                    np.save(inputs[name], array)
                results = {}
                for mode in MODES:
                    outputs = {name: os.path.join(folder, f"{mode}_{name}.npy") for name in pattern.outputs}
                    try:
                        answer = run(pattern, mode, inputs, outputs)
                    except RuntimeError as error:
                        failures.append(f"{what}\n  {mode}: {error}")
                        print("\n".join(failures))
                        return 1
                    count += 1
                    if answer["ok"]:
                        results[mode] = [np.load(path) for path in outputs.values()]
                    else:
                        failures.append(f"{what}\n  {mode}: {answer['error']}")
                for mode, arrays_of_mode in results.items():
                    if mode != MODES[0] and MODES[0] in results and not all(map(same_bits, arrays_of_mode, results[MODES[0]])):
                        failures.append(f"{what}\n  {mode} and {MODES[0]} differ")
                    for name, got, want in zip(pattern.outputs, arrays_of_mode, expected):
                        if pattern.by:
                            got, want = got.reshape(-1)[want[0]], want[1]
                        tolerance = 2e-6 if pattern.by else 1e-3 if dtype is np.float32 else 1e-6 if got.dtype == np.float32 else 1e-9
                        if found := difference(got, want, tolerance):
                            failures.append(f"{what}\n  {mode}, {name}: {found}")
                    if len(expected) != len(arrays_of_mode):
                        failures.append(f"{what}\n  {mode}: {len(arrays_of_mode)} results, NumPy has {len(expected)}")
        process.stdin.close()
        if process.wait():
            failures.append(f"the command ended with exit code {process.returncode}")
        log.seek(0)
        failures += [f"the command's log: {line}" for line in sorted(set(log.read().splitlines()))]
        log.close()
    print("\n".join(failures + [f"{programs} programs, {count} runs, {len(failures)} failures"]))
    return 1 if failures or not programs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
