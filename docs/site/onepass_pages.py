"""Pages that are made from the sources: a comment in a page says what comes in its place."""
import os
import re

from sphinx.domains.cpp import CPPDomain
from sphinx.util import logging

import python_page
from headers import Headers


class Names(CPPDomain):
    """C++ names without those of parameters, which a search would list as well."""

    def get_objects(self):
        return (entry for entry in super().get_objects() if entry[2] not in ("functionParam", "templateParam"))


def fill(app, name, source):
    source[0] = re.sub(r"^<!-- header: (\S+) -->$", lambda match: app.onepass_headers.page(match[1]), source[0], flags=re.M)
    source[0] = re.sub(
        r"^<!-- python -->$", lambda _: python_page.page(app.config.onepass_python_names, app.onepass_headers), source[0], flags=re.M
    )
    root = os.path.dirname(app.confdir)
    source[0] = re.sub(r"^<!-- code: (\S+) -->$", lambda match: code(os.path.join(root, match[1])), source[0], flags=re.M)


def code(path):
    """A file of the repository as a block of code."""
    with open(path, encoding="utf-8") as file:
        return f"```{'python' if path.endswith('.py') else 'text'}\n{file.read().rstrip()}\n```"


def begin(app):
    root = os.path.dirname(app.confdir)
    app.onepass_headers = Headers(app.config.onepass_doxygen_xml, os.path.join(root, "include/onepass"))
    for header in sorted(os.listdir(os.path.join(root, "include/onepass"))):
        page = os.path.join(root, "docs/reference/cpp", header.removesuffix(".h") + ".md")
        if not os.path.exists(page) and app.onepass_headers.page(header).count("{cpp:") > 1:  # the first is the namespace
            logging.getLogger(__name__).warning("include/onepass/%s has no page in docs/reference/cpp", header)


def setup(app):
    app.add_config_value("onepass_doxygen_xml", "", "env")
    app.add_config_value("onepass_python_names", "", "env")
    app.add_domain(Names, override=True)
    app.connect("builder-inited", begin)
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
