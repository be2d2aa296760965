"""Applies the ```diff blocks of a page to copies of the files that they name. A hunk starts with @@, without line numbers. Its
removed and context lines must occur in the file exactly once."""
import os
import re
import shutil


def blocks(page):
    with open(page, encoding="utf-8") as file:
        return re.findall(r"^```diff\n(.*?)^```$", file.read(), re.M | re.S)


def apply(page, root, copy):
    """Applies the changes in `copy`, and copies missing files from `root` first. Returns the changed files, in order."""
    changed = []
    for block in blocks(page):
        head, *hunks = re.split(r"^@@\n", block, flags=re.M)
        name = re.search(r"^\+\+\+ b/(\S+)$", head, re.M)[1]
        path = os.path.join(copy, name)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(os.path.join(root, name), path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for hunk in hunks:
            lines = [line if line else " " for line in hunk.split("\n")[:-1]]
            old = "\n" + "\n".join(line[1:] for line in lines if line[0] != "+") + "\n"
            new = "\n" + "\n".join(line[1:] for line in lines if line[0] != "-") + "\n"
            if ("\n" + text).count(old) != 1:
                times = ("\n" + text).count(old)
                raise SystemExit(f"{page}: {name} has these lines {times} times, not once:{old}")
            text = ("\n" + text).replace(old, new)[1:]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if name not in changed:
            changed.append(name)
    if not changed:
        raise SystemExit(f"{page} has no diff block")
    return changed
