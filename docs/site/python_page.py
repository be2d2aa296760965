"""The Python reference, of what python_names.py found; what operators mean is said by the C++ headers."""
import json
import re

from headers import SPECIAL, fenced


def words(text):
    """Prose with `code` as Markdown."""
    return "`".join(part if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(text.split("`")))


def text_of(doc):
    """A docstring as Markdown: its columns, `name   meaning`, become a list, indented lines stay as they are."""
    blocks = []
    for block in re.split(r"\n\s*\n", doc.strip()) if doc.strip() else []:
        items, prose = [], []
        if re.match(r"\s", block):
            blocks.append(fenced("text", [block]))
            continue
        for line in block.split("\n"):
            column = re.match(r"(\S+(?: \S+)*) {2,}(\S.*)", line)
            if column:
                items.append(f"- {words(column[1]) if column[1] == 'Errors' else f'`{column[1]}`'}: {words(column[2])}")
            elif items and line.startswith(" "):
                items[-1] += " " + words(line.strip())
            else:
                prose.append(words(line.strip()))
        blocks += [text for text in (" ".join(prose), "\n".join(items)) if text]
    return blocks


def directive(kind, signatures, body=()):
    return fenced(f"{{py:{kind}}} " + "\n".join(signatures), ["", "\n\n".join(body)] if body else [])


def class_(entry):
    members = []
    for member in entry["members"]:
        if member["name"] == "__init__" and not member["doc"]:
            continue
        if member.get("property"):
            members.append(directive("property", [member["name"]], text_of(member["doc"])))
        else:
            signatures = [re.sub(r"\((self, |self(?=\)))", "(", s, count=1) for s in member["signatures"]]
            members.append(directive("method", signatures, text_of(member["doc"])))
    return [f"### {entry['name']}", directive("class", [entry["name"]], text_of(entry["doc"]) + members)]


def page(names_file, headers):
    try:
        with open(names_file, encoding="utf-8") as file:
            names = json.load(file)
    except FileNotFoundError:
        return "This copy of the documentation was made without the Python module, so its names are not listed here."
    functions = {entry["name"]: entry for entry in names["functions"]}
    operators = {entry["name"]: entry for entry in names["operators"]}
    out = [fenced("{py:module} onepass", [])]

    def write(title, chosen, comments=None):
        chosen = [entry for entry in chosen if entry]
        if chosen:
            out.append(f"## {title}")
        for entry in chosen:
            out.append(directive("function", entry["signatures"], text_of(entry["doc"]) or (comments or {}).get(entry["name"], [])))

    for title, module in (("Functions and derivatives", "transforms"), ("Formulas", "formulas")):
        write(title, [functions.pop(name) for name in sorted(functions) if functions[name]["module"] == module])
    out.append("## Classes")
    for entry in names["classes"]:
        out += class_(entry)
    for title, comments in headers.functions_by_section("tensor.h"):
        write(title, [operators.pop(name) for name in comments if name in operators], comments)
    write("NumPy's forms of operators, and other libraries", [functions[name] for name in sorted(functions)])
    write("Other operators, files, the process", [operators[name] for name in sorted(operators)])
    out.append("## Names of the same operators")
    out.append("NumPy's and the array API's names.")
    out.append("\n".join(["| name | is |", "| --- | --- |", *(f"| `{entry['name']}` | {{py:func}}`{entry['of']} <onepass.{entry['of']}>` |" for entry in names["aliases"])]))
    out.append("## Types and constants")
    out.append("\n".join(["| name | is |", "| --- | --- |", *(f"| `{entry['name']}` | `{entry['is']}` |" for entry in names["types"] + names["constants"])]))
    out.append("## Errors")
    out += [directive("exception", [entry["name"]], [*text_of(entry["doc"]), "Is a " + ", ".join(f"`{base}`" for base in entry["bases"]) + "."]) for entry in names["errors"]]
    return "\n\n".join(out)
