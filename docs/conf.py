"""Settings of the documentation site. tools/docs builds it: pages are README.md and the like, and docs/; Doxygen reads include/onepass."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "docs", "site"))

with open(os.path.join(ROOT, "include/onepass/version.h"), encoding="utf-8") as header:
    release = version = ".".join(re.findall(r"^#define ONEPASS_VERSION_[A-Z]+ (\d+)$", header.read(), re.M))
project = "onepass"
copyright = "the onepass authors, MIT license"  # noqa: A001: Sphinx's name
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md"]
exclude_patterns = ["build", ".git", "tests", "python", "compiler", "runtime", "include", "examples", "bench", "ir", "tools", "cmake"]

extensions = ["myst_parser", "sphinx_copybutton", "onepass_pages"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3  # links such as runtime.md#tiers, as a forge has them

onepass_doxygen_xml = os.path.join(ROOT, "build/docs-xml/xml")  # tools/docs makes both
onepass_python_names = os.path.join(ROOT, "build/docs-names.json")

toc_object_entries = False  # with them the navigation of every page takes a quarter of a second
# What is not ours, and what has no page on purpose: template parameters of a specialization, names in onepass::detail.
nitpick_ignore_regex = [
    (r"cpp:identifier", r"(std|detail|onepass)(::.*)?|DLManaged.*|INT64_MAX|kInlineRank"),
    (r"c:identifier", r"u?int\d+_t|size_t|DLManaged.*"),
    (r"py:.*", r"numpy.*|np\..*|collections.*|typing.*|os\..*|types\..*"),
]

highlight_language = "text"
pygments_style, pygments_dark_style = "friendly", "github-dark"
html_theme = "furo"
html_title = f"onepass {release}"
html_static_path = ["site/static"]
html_css_files = ["onepass.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"
