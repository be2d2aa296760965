"""Tests the report page in headless Chromium: it opens, boxes can be clicked, the keyboard reaches all controls, and nothing is
logged or loaded.

Skipped (77) without Chromium and its driver: Debian's packages chromium and chromium-driver."""
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

import test_report as report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


class Browser:
    """A page in headless Chromium, controlled by the WebDriver protocol."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([DRIVER, f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                if self.send("GET", "/status")["ready"]:
                    break
            except OSError:
                time.sleep(0.05)
        options = {"binary": CHROMIUM, "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"]}
        answer = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = "/session/" + answer["sessionId"]

    def send(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, path):
        self.send("POST", self.session + "/url", {"url": "file://" + path})

    def run(self, script, *arguments):
        return self.send("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector):
        element = self.send("POST", self.session + "/element", {"using": "css selector", "value": selector})
        self.send("POST", f"{self.session}/element/{next(iter(element.values()))}/click")

    def press(self, keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.send("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def errors(self):
        return [entry for entry in self.send("POST", self.session + "/se/log", {"type": "browser"}) if entry["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.send("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait()


class InChromium(report.PageCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def test_opens(self):
        """Boxes are drawn and can be clicked, tabs show their contents, the keyboard reaches all controls, and nothing is logged."""
        b = self.browser
        for name, formula, shapes in [p for p in report.PROGRAMS if p[0] in ("two kernels", "gradient", "joined", "empty")]:
            with self.subTest(name):
                self.html(formula, shapes)
                record = self.dump(formula, shapes)
                b.open(self.path("r.html"))
                self.assertEqual(b.run("return document.documentElement.dataset.ready"), "yes")
                self.assertEqual(b.run("return document.querySelectorAll('#canvas .kernel').length"), len(record["kernels"]))
                self.assertEqual(b.run("return document.querySelectorAll('#canvas .result').length"), len(record["outputs"]))
                for k in range(len(record["kernels"])):
                    b.click(f"#canvas .kernel[data-kernel='{k}'] > .title")
                    self.assertEqual(b.run("return document.querySelector('#details h2').textContent"), f"Kernel {k}")
                    self.assertIn(record["kernels"][k]["loops"], b.run("return document.querySelector('#details').textContent"))
                for tab in range(b.run("return document.querySelectorAll('[role=tab]').length")):
                    b.click(f"#tab{tab}")
                    self.assertTrue(b.run("return document.querySelector('#panel').textContent.trim()"))
                self.assertEqual(b.run("return performance.getEntriesByType('resource').map(e => e.name)"), [])  # no other resource is loaded
                self.assertEqual(b.errors(), [])

    def test_of_a_program_that_ran(self):
        """The page has times, tiers and compiles by stage."""
        b = self.browser
        self.onepass("bench", "tanh(x)*w", "--shapes", "x=f32[64,256]", "w=f32[256]", "--record", "r.html")
        b.open(self.path("r.html"))
        b.click("#canvas .kernel[data-kernel='0'] > .title")
        details = b.run("return document.querySelector('#details').textContent")
        self.assertRegex(details, r"compiled\s*optimized, \d+\.\d\d ms: .*LLVM passes \d+\.\d\d, machine code \d+\.\d\d, load")
        self.assertRegex(details, "on average over 20 runs")
        self.assertEqual(b.errors(), [])

    def test_pullback(self):
        """One graph has two calls: a forward and a backward group. Residuals have one name and a reason."""
        b = self.browser
        self.onepass("dump", *report.Pullback.AFFINE, "--html", "r.html")
        b.open(self.path("r.html"))
        self.assertEqual(b.run("return document.querySelector('h1').textContent"), "6 operators and 6 views run as 2 kernels: 1 forward, 1 backward")
        self.assertEqual(b.run("return [...document.querySelectorAll('#canvas .kernel')].map(k => k.classList.contains('backward'))"), [False, True])
        self.assertEqual(sorted(b.run("return [...document.querySelectorAll('#canvas .input .title, #canvas .result .title')].map(t => t.textContent)")),
                         ["b", "db", "dw", "dx", "dy", "w", "x", "y"])
        for tab in range(b.run("return document.querySelectorAll('[role=tab]').length")):
            b.click(f"#tab{tab}")
            self.assertTrue(b.run("return document.querySelector('#panel').textContent.trim()"))
        self.onepass("dump", "exp(sin(x)*w)", "--shapes", "x=f32[64,256]", "w=f32[256]", "--pullback", "--html", "r.html")
        b.open(self.path("r.html"))
        self.assertEqual(b.run("return document.querySelectorAll('#canvas .result').length"), 3)
        self.assertIn("It is saved for the backward call", b.run("return document.querySelector('#details').textContent"))
        boxes = b.run("return [...document.querySelectorAll('#canvas .halo')].map(t => { const r = t.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })")
        for i, (l, t, r, d) in enumerate(boxes):
            for L, T, R, D in boxes[i + 1:]:
                self.assertFalse(l < R - 2 and L < r - 2 and t < D - 2 and T < d - 2, "two labels cover each other")
        self.assertEqual(b.errors(), [])

    def test_keyboard(self):
        b = self.browser
        self.html(*report.PROGRAMS[3][1:])
        b.open(self.path("r.html"))
        b.run("document.querySelector('#canvas .kernel').focus()")
        b.press(["\ue015"])  # down: into the box
        self.assertIn("node", b.run("return document.activeElement.getAttribute('class')"))
        b.press(["\ue007"])
        self.assertIn("definition", b.run("return document.querySelector('#details').textContent"))
        self.assertFalse(b.run("return document.querySelector('#tip').hidden"))
        b.press(["\ue00c"])  # escape
        self.assertIn("Why it is 2 kernels", b.run("return document.querySelector('#details').textContent"))
        b.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
        chosen = b.run("return document.activeElement.id")
        b.press(["\ue014"])  # right
        self.assertNotEqual(b.run("return document.activeElement.id"), chosen)
        self.assertEqual(b.run("return document.activeElement.getAttribute('aria-selected')"), "true")
        # Every control has a name and a role, and every picture has a text.
        unnamed = b.run("""return [...document.querySelectorAll('button, select, [role=button], [role=tab]')].filter(e =>
          !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).length""")
        self.assertEqual(unnamed, 0)
        self.assertEqual(b.errors(), [])

    def test_colours(self):
        """Text has a contrast of at least 4.5 with its background, in light and dark mode."""
        b = self.browser
        self.html(*report.PROGRAMS[6][1:])
        for scheme in ["light", "dark"]:
            b.send("POST", b.session + "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [{"name": "prefers-color-scheme", "value": scheme}]}})
            b.open(self.path("r.html"))
            low = b.run("""
              const context = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
              const rgb = c => { context.clearRect(0, 0, 1, 1); context.fillStyle = c; context.fillRect(0, 0, 1, 1); return [...context.getImageData(0, 0, 1, 1).data]; };
              const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126*r + 0.7152*g + 0.0722*b; };
              const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
              const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] > 200) return c; } return 'white'; };
              const low = [];
              const note = (e, text, fore, back) => { const r = ratio(fore, back); if (r < 4.5) low.push([text.slice(0, 40), fore, back, r]); };
              for (const e of document.querySelectorAll('h1, h2, p, li, dt, dd b, button, th, td, code'))
                if (e.textContent.trim()) note(e, e.textContent, getComputedStyle(e).color, behind(e));
              for (const e of document.querySelectorAll('#canvas .kernel > text')) note(e, e.textContent, getComputedStyle(e).fill, getComputedStyle(e.parentElement.querySelector('.box')).fill);
              for (const e of document.querySelectorAll('#canvas .result text, #canvas .input text')) note(e, e.textContent, getComputedStyle(e).fill, getComputedStyle(e.parentElement.querySelector('.pill')).fill);
              return low;""")
            self.assertEqual(low, [], scheme)
        b.send("POST", b.session + "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": []}})

    def test_large(self):
        """10,000 nodes without repeated steps are folded: few elements are drawn, and unfolding shows more."""
        b = self.browser
        lines = ["a0 = x*y"] + [f"a{i} = {['exp', 'tanh', 'sin', 'log1p'][(i * 2654435761 >> 13) % 4]}(a{i - 1})*y + a{max(i - 5, 0)}" for i in range(1, 3400)]
        with open(self.path("large.fuse"), "w") as file:
            file.write("\n".join(lines))
        self.html("large.fuse", ["x=f32[64]", "y=f32[64]"])
        b.open(self.path("r.html"))
        nodes = b.run("return JSON.parse(document.getElementById('record').textContent).nodes.length")
        self.assertGreater(nodes, 10000)
        drawn = b.run("return document.querySelectorAll('#canvas *').length")
        self.assertGreater(drawn, 20)
        self.assertLess(drawn, 6000)
        print(f"10,000 nodes: {nodes} nodes, {drawn} elements drawn, loaded in {b.run('return performance.timing.loadEventEnd - performance.timing.navigationStart')} ms")
        self.assertEqual(b.errors(), [])


if __name__ == "__main__":
    if not (CHROMIUM and DRIVER):
        print("skipped: chromium and chromedriver are not installed (Debian's chromium and chromium-driver)")
        sys.exit(77)
    unittest.main()
