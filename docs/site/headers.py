"""A line `<!-- header: array.h -->` of a page becomes what that header declares, in its order, under its `// ---- TITLE` lines as headings.

Doxygen reads the declarations and their comments, Sphinx's domains for C++ and C write them and link them to each other.
"""
import html
import os
import re
import xml.etree.ElementTree as ET

SECTION = re.compile(r"^ *(?://|/\*) -{4,} *(.*?)[- ]*(?:\*/)?$")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|$])")
HIDDEN = re.compile(r"\bdetail::|operator=$|^~")  # what the library needs there, and what every class has


def text_of(element):
    return "".join(element.itertext()) if element is not None else ""


def joined(text):
    return re.sub(r"\s+", " ", text).strip()


def fenced(info, lines):
    """A block that may have others in it."""
    inner = max((len(ticks) for ticks in re.findall(r"^`{3,}", "\n".join(lines), re.M)), default=2)
    ticks = "`" * max(3, inner + 1)
    return "\n".join([ticks + info, *lines, ticks])


class Comments:
    """Doxygen's XML of a comment as Markdown."""

    def __init__(self, names):
        self.names = names

    def inline(self, element):
        parts = [SPECIAL.sub(r"\\\1", element.text or "")]
        for child in element:
            if child.tag == "computeroutput":
                parts.append(f"`{text_of(child)}`")
            elif child.tag == "ref" and child.get("refid") in self.names:
                parts.append(f"{{cpp:any}}`{text_of(child)} <{self.names[child.get('refid')]}>`")
            elif child.tag in ("emphasis", "bold"):
                parts.append(f"*{self.inline(child)}*")
            elif child.tag == "linebreak":
                parts.append("\n")
            elif child.tag in ("ndash", "mdash", "nonbreakablespace"):
                parts.append({"ndash": "–", "mdash": "—"}.get(child.tag, " "))
            else:
                parts.append(self.inline(child))
            parts.append(SPECIAL.sub(r"\\\1", child.tail or ""))
        return "".join(parts)

    def blocks(self, element):
        """The paragraphs of a description, each a list of lines."""
        found = []
        for child in element if element is not None else ():
            if child.tag == "para":
                inner = [c for c in child if c.tag in ("itemizedlist", "orderedlist", "programlisting", "verbatim", "simplesect", "parameterlist")]
                rest = ET.Element("para")
                rest.text, rest[:] = child.text, [c for c in child if c not in inner]
                words = self.inline(rest).strip()
                if words:
                    found.append(words)
                for block in inner:
                    if block.tag in ("itemizedlist", "orderedlist"):
                        mark = "-" if block.tag == "itemizedlist" else "1."
                        found.append("\n".join(f"{mark} {joined(' '.join(self.blocks(item)))}" for item in block))
                    elif block.tag in ("programlisting", "verbatim"):
                        found.append(fenced("cpp", [text_of(block).strip()]))
                    else:
                        found += self.blocks(block)
            else:
                found += self.blocks(child)
        return found

    def of(self, member):
        return self.blocks(member.find("briefdescription")) + self.blocks(member.find("detaileddescription"))


class Headers:
    def __init__(self, xml_folder, include_folder):
        self.include = include_folder
        self.compounds, self.names = {}, {}
        for name in sorted(os.listdir(xml_folder)):
            if name.endswith(".xml") and name not in ("index.xml", "Doxyfile.xml"):
                for compound in ET.parse(os.path.join(xml_folder, name)).getroot().iter("compounddef"):
                    self.compounds[compound.get("id")] = compound
                    title = compound.findtext("compoundname")
                    if compound.get("kind") in ("class", "struct") and "<" not in title:
                        self.names[compound.get("id")] = title
                    for member in compound.iter("memberdef"):
                        qualified = member.findtext("qualifiedname")
                        if member.get("kind") in ("variable", "enum", "typedef") and qualified and qualified.startswith("onepass::"):
                            self.names[member.get("id")] = qualified
        self.comments = Comments(self.names)

    def page(self, header):
        """The Markdown of one header."""
        self.is_c = header == "c.h"
        self.records = {c.findtext("compoundname") for c in self.compounds.values() if c.get("kind") in ("class", "struct")}
        with open(os.path.join(self.include, header), encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        out = [] if self.is_c else [self.directive("namespace", "onepass")]
        entries = [(line, kind, value) for line, kind, value in self.entries("onepass/" + header)]
        after_class = False
        for _, kind, value in sorted(entries, key=lambda e: e[0]):
            if kind == "section":
                out += self.section(value, 2)
            elif kind == "class":
                out += self.class_(value, header, 2)
            else:
                written = self.member(value)
                if written and after_class:
                    out.append("## Functions and values")
                out += written
                if not written:
                    continue
            after_class = kind == "class"
        return "\n\n".join(out)

    def entries(self, path):
        in_detail = False
        for number, line in enumerate(self.lines, 1):
            in_detail = (in_detail or line == "namespace detail {") and line != "}  // namespace detail"
            if SECTION.match(line) and not line.startswith("  ") and not in_detail:
                yield number, "section", number
        for compound in self.compounds.values():
            kind, title = compound.get("kind"), compound.findtext("compoundname")
            if kind in ("class", "struct") and compound.find("location").get("file") == path:
                outer = title.split("<")[0].rsplit("::", 1)[0]
                if title.split("<")[0].count("::") == (0 if self.is_c else 1) or outer == "onepass":
                    yield int(compound.find("location").get("line")), "class", compound
            elif kind == "namespace" and title == "onepass" or kind == "file" and title == os.path.basename(path):
                for member in compound.iter("memberdef"):
                    if member.find("location").get("file") == path:
                        yield int(member.find("location").get("line")), "member", member

    def section(self, number, level):
        """A section's heading, and the comment that goes on from it."""
        title, rest = re.match(r"([^.:;]*)[.:;]?\s*(.*)", SECTION.match(self.lines[number - 1])[1]).groups()
        words = [rest]
        for line in self.lines[number:]:
            more = re.match(r" *// (?!-)(.*)", line)
            if not more:
                break
            words.append(more[1])
        text = joined(" ".join(words))
        return [f"{'#' * level} {title[:1].upper()}{title[1:]}", *([text[:1].upper() + text[1:]] if text else [])]

    def directive(self, kind, signature, body=()):
        domain = "c" if self.is_c else "cpp"
        return fenced(f"{{{domain}:{kind}}} {joined(signature)}", ["", "\n\n".join(body)] if body else [])

    def template(self, element):
        parameters = element.find("templateparamlist")
        if parameters is None:
            return ""
        listed = []
        for p in parameters:
            name = p.findtext("declname") or ""
            default = f" = {joined(text_of(p.find('defval')))}" if p.find("defval") is not None else ""
            listed.append(f"{joined(text_of(p.find('type')))} {name}{default}".strip())
        requires = element.find("requiresclause")
        return f"template <{', '.join(listed)}> " + (f"requires {joined(text_of(requires))} " if requires is not None else "")

    def class_(self, compound, header, level):
        title = compound.findtext("compoundname").removeprefix("onepass::")
        short = title if "<" in title else title.rsplit("::", 1)[-1]
        kind = compound.get("kind")
        template = self.template(compound)
        bases = ", ".join(html.unescape(base.text) for base in compound.findall("basecompoundref") if "detail" not in base.text)
        out = [f"{'#' * level} {title}"] if level < 4 else []
        out.append(self.directive(kind, f"{template}{short}{' : public ' + bases if bases else ''}", self.comments.of(compound)))
        if not self.is_c:
            out.append(self.directive("namespace-push", f"{template}{short}"))
        body = []
        for member in compound.iter("memberdef"):
            if member.get("prot") == "public" and member.get("kind") != "friend":
                body.append((int(member.find("location").get("line")), "member", member))
        first, last = int(compound.find("location").get("bodystart")), int(compound.find("location").get("bodyend"))
        for number in range(first, last):
            if SECTION.match(self.lines[number - 1]) and self.lines[number - 1].startswith("  "):
                body.append((number, "section", number))
        for inner in compound.findall("innerclass"):
            if inner.get("prot") == "public" and inner.get("refid") in self.compounds:
                nested = self.compounds[inner.get("refid")]
                body.append((int(nested.find("location").get("line")), "class", nested))
        for _, what, value in sorted(body, key=lambda e: e[0]):
            if what == "section":
                out += self.section(value, level + 1)
            elif what == "class":
                out += self.class_(value, header, 4)
            else:
                out += self.member(value, short)
        if not self.is_c:
            out.append(self.directive("namespace-pop", ""))
        return out

    def member(self, member, class_name=""):
        kind, name = member.get("kind"), member.findtext("name")
        type_, arguments = joined(text_of(member.find("type"))), joined(text_of(member.find("argsstring")))
        comment = self.comments.of(member)
        if HIDDEN.search(name) or "@" in name + type_ or "=delete" in arguments.replace(" ", ""):
            return []
        if kind == "function":
            fixed = ["static "] if member.get("static") == "yes" else []
            fixed += ["explicit "] if member.get("explicit") == "yes" else []
            type_ = re.sub(r"\b(inline|constexpr|explicit|static|friend)\s+|\b(inline|constexpr|explicit)$", "", type_)
            arguments = re.sub(r"\s*=\s*default$", "", arguments)
            return [self.directive("function", f"{self.template(member)}{''.join(fixed)}{type_} {name}{arguments}", comment)]
        if kind == "variable":
            default = joined(text_of(member.find("initializer")))
            if len(default) > 60 or "\n" in default:
                default = ""
            if default and not default.startswith("="):
                default = "= " + default
            type_ = re.sub(r"\b(static|inline|constexpr)\s+", "", type_)
            value = "" if self.is_c else f" {default}"
            return [self.directive("member" if class_name or self.is_c else "var", f"{self.template(member)}{type_} {name}{arguments}{value}", comment)]
        if kind == "typedef":
            if self.is_c:
                if type_ == f"enum {name}" or name in self.records:
                    return []  # is there as what it names
                return [self.directive("type", f"{type_} {name}{arguments}" if "(" in type_ else name, comment)]
            return [self.directive("type", f"{self.template(member)}{name} = {type_}", comment)]
        if kind == "enum":
            values = []
            for value in member.findall("enumvalue"):
                values.append(self.directive("enumerator", value.findtext("name"), self.comments.of(value)))
            what = "enum" if self.is_c or member.get("strong") != "yes" else "enum-class"
            underlying = f" : {type_}" if type_ and not self.is_c else ""
            return [self.directive(what, name + underlying, comment + values)]
        if kind == "define":
            value = joined(text_of(member.find("initializer")))
            if not re.match(r"ONEPASS_(VERSION|ABI)", name):
                return []
            return [fenced(f"{{c:macro}} {name}", ["", " ".join([*comment, f"`{value}`"])])]  # version.h is C, too
        return []

    def functions_by_section(self, header):
        """[title, {function: its comment}] of each section outside of classes, for what has the same names in Python."""
        self.page(header)  # reads the lines
        found = []
        for _, kind, value in sorted(self.entries("onepass/" + header), key=lambda e: e[0]):
            if kind == "section":
                found.append((self.section(value, 2)[0].removeprefix("## "), {}))
            elif kind == "member" and value.get("kind") == "function" and found:
                name, comment = value.findtext("name"), self.comments.of(value)
                found[-1][1][name] = found[-1][1].get(name) or comment
        return found
