#!/usr/bin/env python3
"""Fails when a source file includes a header of a folder that the table of folders does not allow.

The table is in docs/architecture.md: its first column names folders, its last one the folders that each may include, in backticks; a folder may
include itself. A folder below one of the table belongs to it unless it has a row of its own. The table must be true in both directions: what it
allows and nobody includes is an error as well, and so are folders that include each other in a circle.
"""
import collections
import re
import sys

import includes
from reporting import report, root_of

TABLE = "docs/architecture.md"
SUFFIXES = (".c", ".cc", ".h", ".hpp")
NAME = re.compile(r"`([^`]+)`")
GENERATED = {"diapason/v1": "proto/diapason/v1"}  # headers that protoc makes


def read_table(root):
    """What each folder may include."""
    allowed = {}
    for line in (root / TABLE).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not line.startswith("| `"):
            continue
        for folder in NAME.findall(cells[0]):
            allowed.setdefault(folder, set()).update(NAME.findall(cells[2]))
    return allowed


def folder_of(path, folders):
    """The longest folder of the table that holds the path; None if there is none."""
    inside = [folder for folder in folders if path.startswith(folder + "/")]
    return max(inside, key=len, default=None)


def included_folder(root, name, folders):
    """The folder of an included header; None for libraries'."""
    for prefix, folder in GENERATED.items():
        if name.startswith(prefix + "/"):
            return folder
    path = includes.find(root, name)
    return None if path is None else folder_of(path.relative_to(root).as_posix(), folders)


def circles(allowed):
    """Folders that can be come back to, each circle once."""
    found, done = [], set()

    def visit(folder, way):
        if folder in way:
            found.append(way[way.index(folder):] + [folder])
        elif folder not in done:
            for other in sorted(allowed.get(folder, ())):
                visit(other, way + [folder])
            done.add(folder)

    for folder in sorted(allowed):
        visit(folder, [])
    return found


def problems(root):
    allowed = read_table(root)
    if not allowed:
        return [f"{TABLE} has no table of folders: its rows begin with '| `'"]
    found, used = [], collections.defaultdict(set)
    for top in sorted({folder.split("/")[0] for folder in allowed}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            folder = folder_of(name, allowed)
            if folder is None:
                found.append(f"{name} is in no folder of the table in {TABLE}: add a row for its folder")
                continue
            for header in includes.names(path):
                other = included_folder(root, header, allowed)
                if other is None or other == folder:
                    continue
                used[folder].add(other)
                if other not in allowed[folder]:
                    found.append(f"{name} includes {header}, but {folder} may not include {other} ({TABLE}): move what it needs, or allow it there")
    for folder, others in sorted(allowed.items()):
        for other in sorted(others - used[folder]):
            found.append(f"{TABLE} allows {folder} to include {other}, which no file of it does: take it out of the row")
    return found + [f"{TABLE} allows a circle: {' -> '.join(circle)}" for circle in circles(allowed)]


def main():
    return report(problems(root_of(sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
