"""The compiled form of a function's last call, as text and, in a notebook, as HTML."""
import html
import json

from . import _core


class Dump(str):
    """The result of `dump()`: the kernels and why each value is materialized, then the optimized graph. A notebook shows it as HTML."""

    def __new__(cls, kernels, graph):
        self = super().__new__(cls, f"{kernels.rstrip()}\n\n{graph.rstrip()}\n" if graph else kernels.rstrip() + "\n")
        self.kernels, self.graph = kernels.rstrip(), graph.rstrip()
        return self

    def _repr_html_(self):
        summary, *rest = self.kernels.splitlines() or [""]
        rows, notes = [], []
        for line in rest:
            name, colon, what = line.partition(": ")
            if line.startswith("  ") and rows:
                rows[-1][2].append(line.strip())
            elif colon and name.startswith("kernel "):
                rows.append((name, what, []))
            else:
                notes.append(line)
        escape = html.escape
        table = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(what)}{''.join(f'<br>{escape(s)}' for s in stores)}</td></tr>"
            for name, what, stores in rows
        )
        parts = [f"<p><b>{escape(summary)}</b></p>", f"<table>{table}</table>" if table else ""]
        parts += [f"<p>{escape(note)}</p>" for note in notes if note]
        if self.graph:
            parts.append(f"<details><summary>The optimized graph</summary><pre>{escape(self.graph)}</pre></details>")
        return "".join(parts)


def _dump(self):
    """Returns the kernels of the last call, their inputs and outputs with reasons, and the optimized graph: text, or HTML in a notebook."""
    return Dump(self.explain(), self.last_graph())


for _class in (_core.Function, _core.Formula):
    _class.dump = _dump


def _data(self):
    """Returns the record as dicts and lists, with the content of json()."""
    return json.loads(self.json())


def _page(self):
    """Shows the page in a frame, so that the styles of both pages are independent."""
    page = html.escape(self.html(), quote=True)
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:900px;border:0" title="onepass report"></iframe>'


_core.ExecutionRecord.data = property(_data)
_core.ExecutionRecord._repr_html_ = _page
