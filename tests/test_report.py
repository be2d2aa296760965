"""Tests records of `onepass dump`: JSON and its schema, dumps that run again with the same bits, pictures, and the page's text. See
test_browser.py too."""
import json
import os
import random
import re
import subprocess
import unittest

import npy_files as npy
from command_case import ROOT, CommandCase

try:
    import jsonschema
except ImportError:
    jsonschema = None

with open(os.path.join(ROOT, "docs/record.schema.json"), encoding="utf-8") as schema_file:
    SCHEMA = json.load(schema_file)

# Programs with every kind of kernel: name, formula, shapes.
PROGRAMS = [
    ("affine", "x*reshape(w, [4, 3, 1, 1]) + b", ["x=f32[4,3,8,8]", "w=f32[4,3]", "b=f32[8,8]"]),
    ("gelu", "0.5*x*(1 + erf(x/sqrt(2)))", ["x=f32[33,17]"]),
    ("softmax", "u = exp(x - max(x, axis=-1, keepdims=true)); p = u/sum(u, axis=-1, keepdims=true)", ["x=f32[12,40]"]),
    ("two kernels", "p = softmax(x); m = max(p); q = p / m", ["x=f32[12,40]"]),
    ("columns", "x - sum(x, axis=0, keepdims=true)/x.shape[0]", ["x=f64[20,9]"]),
    ("stencil", "x[1:-1, 1:-1]*4 - x[2:, 1:-1] - x[:-2, 1:-1]", ["x=f32[15,19]"]),
    ("gradient", "y = x*s + t; dx, ds, dt = vjp(y, [x, s, t], d)", ["x=f32[12,7]", "s=f32[7]", "t=f32[7]", "d=f32[12,7]"]),
    ("loss", "p = sum(x*w, axis=1); loss = sum((p - y)**2); dw = grad(loss, [w])", ["x=f32[12,7]", "w=f32[7]", "y=f32[12]"]),
    ("product", "maximum(x @ w + b, 0)", ["x=f32[13,21]", "w=f32[21,9]", "b=f32[9]"]),
    ("scan", "cumsum(x, axis=1) * 2", ["x=f32[5,70]"]),
    ("gather", "take(exp(x), i, 0)", ["x=f32[2]", "i=i64[30]"]),
    ("integers", "(a*b + 7) // (a % 5 + 1)", ["a=i64[40]", "b=i64[40]"]),
    ("halves", "tanh(h) + h", ["h=f16[50]"]),
    ("random numbers", "x + 0.1*normal(7, x.shape)", ["x=f32[64]"]),
    ("joined", "concat([x*2, y[1:] - y[:-1], pad(x, [1], [2])], 0)", ["x=f32[10]", "y=f32[8]"]),
    ("empty", "x*2 + 1", ["x=f32[0,4]"]),
]


class Case(CommandCase):
    def dump(self, formula, shapes, *words):
        return json.loads(self.onepass("dump", formula, "--shapes", *shapes, "--json", *words).stdout)


def problems(value, schema, where="record"):
    """Checks the subset of JSON Schema that docs/record.schema.json uses, for machines without jsonschema."""
    if schema.get("$ref") == "#":
        schema = SCHEMA
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
    found = []
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        return [f"{where}: {kind} expected, not {value!r:.60}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {schema['const']} expected")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{where}: {value} is too small")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where}: {value!r:.60} has another form")
    if len(value) < schema.get("minLength", schema.get("minItems", 0)) if hasattr(value, "__len__") else False:
        found.append(f"{where}: is too short")
    if kind == "object":
        found += [f"{where}: lacks {name}" for name in schema["required"] if name not in value]
        for name, member in value.items():
            if name not in schema["properties"]:
                found.append(f"{where}: has {name}, which the schema does not know")
            else:
                found += problems(member, schema["properties"][name], f"{where}.{name}")
    if kind == "array":
        for i, item in enumerate(value):
            found += problems(item, schema["items"], f"{where}[{i}]")
    return found


class Json(Case):
    def test_schema(self):
        """Each dump matches the schema, by jsonschema if installed and by our own check, which must find errors."""
        for name, formula, shapes in PROGRAMS:
            for mode in ["adaptive"] + ["unfused", "reference"] * (name in ("softmax", "gather")):
                with self.subTest(name, mode=mode):
                    record = self.dump(formula, shapes, "--mode", mode)
                    self.assertEqual(problems(record, SCHEMA), [])
                    if jsonschema:
                        jsonschema.Draft202012Validator(SCHEMA).validate(record)
                    self.consistent(record)
        for change in [lambda r: r.pop("ratio"), lambda r: r.update(bytes="many"), lambda r: r.update(more=1), lambda r: r["plan"].update(reason="none of these"),
                       lambda r: r["kernels"][0].update(key="xyz"), lambda r: r["kernels"][0]["stores"][0].update(sentence="")]:
            record = self.dump("x + 1", ["x=f32[8]"])
            change(record)
            self.assertNotEqual(problems(record, SCHEMA), [])
            if jsonschema:
                with self.assertRaises(jsonschema.ValidationError):
                    jsonschema.validate(record, SCHEMA)

    def consistent(self, record):
        kernels, nodes = record["kernels"], record["nodes"]
        self.assertEqual([n["id"] for n in nodes], list(range(len(nodes))))
        self.assertEqual(record["bytes"], record["bytes_read"] + record["bytes_written"])
        self.assertEqual(record["bytes"], sum(k["bytes"] for k in kernels))
        if record["least_bytes"]:
            self.assertGreaterEqual(record["bytes"], record["least_bytes"], "less moves than has to")
        changed = [p for p in record["passes"] if p["changed"]]
        self.assertEqual(changed[-1]["graph"] if changed else record["recorded"], record["graph"])
        for i, k in enumerate(kernels):
            self.assertEqual(len(k["nodes"]), len(k["node_ids"]))
            for node in k["node_ids"]:
                self.assertIn(i, nodes[node]["kernels"])
            for s in k["stores"]:
                self.assertTrue(s["outputs"] or s["readers"], "stored for nobody")

    def test_needed_bytes(self):
        """The least possible bytes are the needed parts of the inputs and the results, each once."""
        self.assertEqual(self.dump("x*w + b", ["x=f32[64,256]", "w=f32[256]", "b=f32[256]"])["least_bytes"], 4 * (2 * 64 * 256 + 2 * 256))
        self.assertEqual(self.dump("x[2:10]*2", ["x=f32[1000]"])["least_bytes"], 4 * 16)
        self.assertEqual(self.dump("x[1:]*2 + x[:-1]", ["x=f32[1000]"])["least_bytes"], 4 * 1999)
        softmax = self.dump("p = softmax(x); m = max(p); q = p / m", ["x=f32[64,256]"])
        self.assertEqual(softmax["least_bytes"], 4 * 2 * 64 * 256)  # x and q
        self.assertEqual(softmax["ratio"], 2)  # p is written, and read again
        self.assertGreater(softmax["unfused"]["bytes"], 2 * softmax["bytes"])
        self.assertGreater(softmax["unfused"]["kernels"], len(softmax["kernels"]))


class Pullback(Case):
    AFFINE = ["y = x*reshape(w, [4, 3, 1, 1]) + b", "--shapes", "x=f32[4,3,8,8]", "w=f32[4,3]", "b=f32[8,8]", "--pullback"]

    def test_json(self):
        """Forward and backward records: the affine function of reshapes is one kernel in each, and names identify the residuals."""
        record = json.loads(self.onepass("dump", *self.AFFINE, "--json").stdout)
        self.assertEqual(problems(record, SCHEMA), [])
        if jsonschema:
            jsonschema.Draft202012Validator(SCHEMA).validate(record)
        backward = record["backward"]
        self.assertEqual((len(record["kernels"]), len(backward["kernels"])), (1, 1))
        self.assertEqual([o["name"] for o in record["outputs"]], ["y"])
        self.assertEqual([o["name"] for o in backward["outputs"]], ["dx", "dw", "db"])
        self.assertEqual([n["name"] for n in backward["nodes"] if n["kind"] == "input"], ["dy", "x", "w"])
        record["backward"].pop("ratio")
        self.assertNotEqual(problems(record, SCHEMA), [])

    def test_what_is_kept(self):
        text = self.onepass("dump", "exp(sin(x)*w)", "--shapes", "x=f32[64,256]", "w=f32[256]", "--pullback", "--why").stdout
        self.assertIn("the backward call", text)
        self.assertIn("It is saved for the backward call: storing and loading it costs less than recomputing it.", text)
        self.assertIn("remedy: Set Options::memory_budget", text)
        record = json.loads(self.onepass("dump", "exp(sin(x)*w)", "--shapes", "x=f32[64,256]", "w=f32[256]", "--pullback", "--json").stdout)
        self.assertEqual([o["name"] for o in record["outputs"]], ["out", "saved0", "saved1"])
        self.assertEqual([n["name"] for n in record["backward"]["nodes"] if n["kind"] == "input"], ["dout", "w", "saved0", "out", "saved1"])

    def test_names_that_are_there(self):
        """A cotangent is renamed if an argument has its name."""
        record = json.loads(self.onepass("dump", "y = dy*x*x", "--shapes", "x=f32[8]", "dy=f32[8]", "--pullback", "--json").stdout)
        names = [n["name"] for n in record["backward"]["nodes"] if n["kind"] == "input"]
        self.assertEqual(names[0], "dy_")
        self.assertEqual(len(set(names)), len(names))

    def test_errors(self):
        self.fails("dump", *self.AFFINE, "--asm", says="--pullback is allowed only with --why, --json and --html")
        self.fails("dump", "i + 1", "--shapes", "i=i64[4]", "--pullback", "--why", says="no argument is an Array of a float type")


class Again(Case):
    NUMPY = {"f32": ("<f4", 4), "f64": ("<f8", 8), "i64": ("<i8", 8), "f16": ("<f2", 2)}

    def test_run(self):
        """A dump is a program with the bits of its source on the same inputs."""
        draw = random.Random(1)
        for name, formula, shapes in PROGRAMS:
            with self.subTest(name):
                record = self.dump(formula, shapes)
                with open(self.path("dump.json"), "w", encoding="utf-8") as file:
                    json.dump(record, file)
                files = []
                for word in shapes:
                    argument, kind, extents = re.fullmatch(r"(\w+)=(\w+)\[([\d,]*)\]", word).groups()
                    shape = [int(n) for n in extents.split(",")]
                    count = 1
                    for n in shape:
                        count *= n
                    values = [draw.randrange(2) for _ in range(count)] if kind == "i64" else [draw.uniform(-2, 2) for _ in range(count)]
                    npy.write(self.path(argument + ".npy"), values, shape, self.NUMPY[kind][0])
                    files.append(f"{argument}={argument}.npy")
                outputs = [o["name"] for o in record["outputs"]]
                for mode in ["adaptive"] + ["reference"] * (name in ("softmax", "random numbers")):
                    for program, to in [(formula, "a"), ("dump.json", "b")]:
                        self.onepass("run", program, *files, "--mode", mode, *[w for o in outputs for w in ("-o", f"{o}={to}_{o}.npy")])
                    for o in outputs:
                        with open(self.path(f"a_{o}.npy"), "rb") as a, open(self.path(f"b_{o}.npy"), "rb") as b:
                            self.assertEqual(a.read(), b.read(), f"{o}, mode {mode}")
                again = json.loads(self.onepass("dump", "dump.json", "--json").stdout)
                self.assertEqual((again["recorded"], again["graph"]), (record["recorded"], record["graph"]))

    def test_drawn(self):
        """Without inputs a dump draws them: the same in each run, whatever other options are given."""
        with open(self.path("d.json"), "w", encoding="utf-8") as file:
            file.write(self.onepass("dump", "x*2 + y", "--shapes", "x=f32[100]", "y=f32[100]", "--json").stdout)
        self.onepass("run", "d.json", "-o", "out=a.npy", "--compare")
        self.onepass("run", "d.json", "-o", "out=b.npy", "--mode", "reference")
        self.assertEqual(npy.read(self.path("a.npy")), npy.read(self.path("b.npy")))
        self.assertIn("calls", self.onepass("bench", "d.json", "--json").stdout)

    def test_bad(self):
        for text, says in [("[]", "has no \"recorded\" graph"), ("{\"recorded\": \"%0 = nonsense\"}", "bad.json: "), ("not json", "has no \"recorded\" graph")]:
            with open(self.path("bad.json"), "w", encoding="utf-8") as file:
                file.write(text)
            for command in ["run", "dump", "bench"]:
                error = self.onepass(command, "bad.json", *(["-o", "out=y.npy"] if command == "run" else []), code=2).stderr
                self.assertIn(says, error)
                self.assertEqual(len(error.rstrip("\n").split("\n")), 1, error)


class Text(Case):
    def test_passes(self):
        text = self.onepass("dump", "y = x*1 + 0*x; z = sum(y[:, 0:3], axis=1)", "--shapes", "x=f32[64,256]", "--passes").stdout
        for part in ["// ---- recorded\n", "// ---- relax: (skipped: arithmetic is strict)\n", "// ---- halves: (unchanged)\n", "// ---- unroll: ", "// ---- fuse\ngroup 0"]:
            self.assertIn(part, text)
        self.assertNotIn("reduce_sum", text[text.index("// ---- unroll"):])  # three elements, unrolled

    def test_why(self):
        text = self.onepass("dump", "p = softmax(x); m = max(p); q = p / m", "--shapes", "x=f32[64,256]", "--why").stdout
        for part in ["the minimum is", "one kernel per operator would need", "other_axes: It is combined with a reduction over different axes", "remedy: "]:
            self.assertIn(part, text)

    def test_pictures(self):
        """dot and SVG have each kernel and each operator. SVG is well-formed, with and without Graphviz."""
        import xml.etree.ElementTree as tree
        for name, formula, shapes in PROGRAMS:
            with self.subTest(name):
                record = self.dump(formula, shapes)
                dot = self.onepass("dump", formula, "--shapes", *shapes, "--dot").stdout
                self.assertEqual(len(re.findall(r"subgraph cluster_\d+ {", dot)), len(record["kernels"]))
                self.assertEqual(dot.count("{"), dot.count("}"))
                for drawn_by in ["none"] + ["dot"] * (name == "two kernels"):
                    self.onepass("dump", formula, "--shapes", *shapes, "--svg", "x.svg", ONEPASS_DOT=drawn_by)
                    root = tree.parse(self.path("x.svg")).getroot()
                    texts = "\n".join(t for t in root.itertext())
                    for k in range(len(record["kernels"])):
                        self.assertIn(f"kernel {k}", texts)
                    for o in record["outputs"]:
                        self.assertIn(o["name"], texts)
        # No two boxes of 200 operators overlap.
        many = "; ".join(["a0 = x*y"] + [f"a{i} = {'exp' if i % 7 == 0 else 'tanh'}(a{i - 1})*y + a{max(i - 3, 0)}" for i in range(1, 67)])
        self.onepass("dump", many, "--shapes", "x=f32[64]", "y=f32[64]", "--svg", "x.svg", ONEPASS_DOT="none")
        root = tree.parse(self.path("x.svg")).getroot()
        boxes = [tuple(float(r.get(a)) for a in ("x", "y", "width", "height")) for g in root.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "elementwise"
                 for r in g.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertGreater(len(boxes), 190)
        for i, (x, y, w, h) in enumerate(boxes):
            for X, Y, W, H in boxes[i + 1:]:
                self.assertFalse(x < X + W and X < x + w and y < Y + H and Y < y + h, "two operators cover each other")


class Record(Case):
    def test_bench(self):
        """The record of a program that ran has times, tiers and origins of its kernels."""
        self.onepass("bench", "p = softmax(x); m = max(p); q = p / m", "--shapes", "x=f32[64,256]", "--record", "r.json")
        with open(self.path("r.json"), encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual(problems(record, SCHEMA), [])
        if jsonschema:
            jsonschema.Draft202012Validator(SCHEMA).validate(record)
        self.assertTrue(record["called"] and record["calls"] > 20 and record["plan"]["reason"] == "targets", record["plan"])
        for kernel in record["kernels"]:
            self.assertEqual(kernel["times"]["runs"], 20)
            self.assertGreater(kernel["gigabytes_per_second"], 0)
            self.assertAlmostEqual(kernel["of_copy"], kernel["gigabytes_per_second"] / record["copy_gigabytes_per_second"], delta=1e-4 * kernel["of_copy"])
            self.assertTrue(kernel["tier"] and kernel["cache_sentence"])
            # A shape-specialized kernel follows, if its trial has ended.
            self.assertIn("optimized", [c["tier"] for c in kernel["compiles"]])
            for made in kernel["compiles"]:
                self.assertEqual([s["name"] for s in made["stages"]][-4:], ["build LLVM IR", "LLVM passes", "machine code", "load"])


class PageCase(Case):
    def html(self, formula, shapes, name="r.html"):
        self.onepass("dump", formula, "--shapes", *shapes, "--html", name)
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()


class Page(PageCase):
    def test_alone(self):
        """The page is one file: it refers to no other file, and no program text can close an element."""
        evil = "y = x*2 # </script><script>throw 1</script> <img src=x onerror=alert(1)>"
        page = self.html(evil, ["x=f32[8]"])
        start = page.index('id="record">') + len('id="record">')
        record = json.loads(page[start:page.index("</script>", start)])
        self.assertEqual(problems(record, SCHEMA), [])
        self.assertIn("</script>", record["formula"])
        self.assertTrue(record["kernels"][0]["llvm"] and record["kernels"][0]["assembly"] and record["cuda"])
        rest = page[:start] + page[page.index("</script>", start):]
        for word in ["http:", "https:", "//cdn", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "import(", " src=", "<link", "<iframe", "serviceWorker", "sendBeacon"]:
            self.assertNotIn(word, rest)


class Profile(Case):
    def test_trace(self):
        """ONEPASS_PROFILE writes a trace for Perfetto: events within their calls, in microseconds, with shapes."""
        npy.write(self.path("x.npy"), [1.0] * 3000, [30, 100])
        self.onepass("run", "p = softmax(x); m = max(p); q = p / m", "x=x.npy", "-o", "q=q.npy", ONEPASS_PROFILE=self.path("trace.json"))
        with open(self.path("trace.json"), encoding="utf-8") as file:
            trace = json.load(file)
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        kinds = {e["cat"] for e in events}
        self.assertLessEqual({"record", "pass", "fuse", "plan", "cache", "call", "kernel"}, kinds)
        for e in events:
            self.assertGreaterEqual(e["dur"], 0)
            self.assertEqual(set(e), {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"})
        call, = [e for e in events if e["cat"] == "call"]
        self.assertEqual(call["args"]["shapes"], "f32[30,100]")
        inside = [e for e in events if e["cat"] == "kernel"]
        self.assertEqual({e["name"].split(":")[0] for e in inside}, {"0", "1"})
        for e in inside:
            self.assertTrue(call["ts"] <= e["ts"] and e["ts"] + e["dur"] <= call["ts"] + call["dur"] + 0.01)
        self.assertEqual(trace["otherData"]["dropped_events"], 0)

    def test_unwritable(self):
        npy.write(self.path("x.npy"), [1.0], [1])
        result = self.onepass("run", "x*2", "x=x.npy", "-o", "out=y.npy", ONEPASS_PROFILE=self.path("nowhere/trace.json"))
        self.assertIn("nowhere/trace.json", result.stderr)


if __name__ == "__main__":
    unittest.main()
