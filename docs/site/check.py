"""Checks a built site: each link within it leads to a file and an anchor that are there, and no page asks for anything from a network."""
import html.parser
import os
import re
import sys
import urllib.parse

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data"), ("video", "src"), ("use", "href")}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        for name in ("id", "name"):
            if given.get(name):
                self.anchors.add(given[name])
        for name, value in attributes:
            if name in ("href", "src", "data", "srcset", "action") and value is not None:
                self.links.append(value)
                link_loads = tag == "link" and not re.search(r"\b(search|index|next|prev|canonical|license)\b", given.get("rel") or "")
                if (tag, name) in LOADED or link_loads:
                    self.loads.append(value)


root = sys.argv[1]
files = {os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names}
pages, wrong, links = {}, [], 0
for name in sorted(files):
    if name.endswith(".html"):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            pages[name] = Page(file.read())
    elif name.endswith(".css"):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            wrong += [f"{name}: loads {url}" for url in re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", file.read())]
for name, page in pages.items():
    wrong += [f"{name}: loads {url}" for url in page.loads if re.match(r"(https?:)?//", url)]
    for link in page.links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        links += 1
        path = urllib.parse.unquote(parts.path)
        target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if target not in files:
            wrong.append(f"{name}: no file {link}")
        elif target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
            wrong.append(f"{name}: no anchor {link}")
print("\n".join([*sorted(set(wrong)), f"{len(pages)} pages, {links} links within them, {len(set(wrong))} of them wrong"]))
sys.exit(1 if wrong or len(pages) < 50 or links < 1000 else 0)
