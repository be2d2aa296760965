"""Prints as JSON what the Python module has: names, signatures, docstrings. Run by the Python that the module is built for."""
import builtins
import inspect
import json
import re
import types

import onepass


def described(name, value):
    """The signatures and the text of a function, property or method."""
    lines = inspect.cleandoc(value.__doc__ or "").split("\n")
    signatures = []
    while lines and re.match(rf"(\d+\. ``)?{re.escape(name)}\(", lines[0]):
        signatures.append(lines.pop(0))
    if not signatures:
        try:
            signatures = [name + str(inspect.signature(value))]
        except (TypeError, ValueError):
            signatures = [name]
    plain = [re.sub(r": object( \| None)?\b| -> object\b|<object object at [^>]*>|onepass\._core\.", "", s) for s in signatures]
    return {"name": name, "signatures": plain, "doc": "\n".join(lines).strip()}


def class_of(name, value):
    members = []
    for key, member in vars(value).items():
        if key.startswith("_") and key not in ("__call__", "__init__", "__getitem__"):
            continue
        if isinstance(member, property):
            members.append({"name": key, "property": True, "doc": re.sub(r"^\(self\).*?(\n|$)", "", inspect.cleandoc(member.__doc__ or ""))})
        elif isinstance(member, (types.FunctionType, types.MethodType, staticmethod)) or type(member).__name__ in ("nb_method", "nb_func"):
            members.append(described(key, member.__func__ if isinstance(member, staticmethod) else member))
    return {"name": name, "doc": inspect.cleandoc(value.__doc__ or ""), "members": members}


names = sorted(name for name in {*onepass.__all__, *(n for n in vars(onepass) if hasattr(builtins, n))} if not name.startswith("_"))
found = {"operators": [], "functions": [], "classes": [], "errors": [], "types": [], "constants": [], "aliases": []}
for name in names:
    value = getattr(onepass, name)
    own = getattr(value, "__name__", name)
    if isinstance(value, types.ModuleType):
        continue
    if isinstance(value, type) and issubclass(value, BaseException):
        found["errors"].append({"name": name, "doc": inspect.cleandoc(value.__doc__ or ""), "bases": [b.__name__ for b in value.__bases__]})
    elif isinstance(value, type):
        found["classes"].append(class_of(name, value))
    elif callable(value) and own != name and getattr(onepass, own, None) is value:
        found["aliases"].append({"name": name, "of": own})
    elif type(value).__name__ == "nb_func":
        found["operators"].append(described(name, value))
    elif callable(value):
        found["functions"].append({**described(name, value), "module": value.__module__.rsplit(".", 1)[-1]})
    elif type(value).__name__ == "DType":
        found["types"].append({"name": name, "is": str(value)})
    else:
        found["constants"].append({"name": name, "is": repr(value)})
print(json.dumps(found))
