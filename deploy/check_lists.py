#!/usr/bin/env python3
"""Fails when a source file is in no build list: a test that nobody builds passes for ever.

Every .cc, .c, .cpp and .proto file under the source folders must be named, by its path relative to the folder, in the
CMakeLists.txt of its own folder or of one above it. Also the other way round: a listed file must exist.
"""
import re
import sys

from reporting import report, root_of

FOLDERS = ("api", "base", "cli", "compiler", "costmodel", "db", "examples", "proto", "python", "runtime", "scheduler", "service", "ui", "worker", "tests", "bench")
SUFFIXES = (".cc", ".c", ".cpp", ".proto")
LOOP = re.compile(r"foreach\(\s*(\w+)\s+([^)]*)\)")
WORD = re.compile(r"[A-Za-z0-9_./+-]+\.(?:cc|cpp|c|proto)\b")


def listed_in(cmake_file):
    """Names of source files in a list, comments left out, also those that foreach(name a b) makes of ${name}.cc."""
    text = re.sub(r"#.*", "", cmake_file.read_text(encoding="utf-8"))
    names = set(WORD.findall(text))
    for variable, items in LOOP.findall(text):
        for suffix in SUFFIXES:
            if "${" + variable + "}" + suffix in text:
                names.update(item + suffix for item in items.split())
    return names


def unlisted(root):
    lists = {}
    for cmake_file in root.rglob("CMakeLists.txt"):
        lists[cmake_file.parent] = listed_in(cmake_file)
    problems = []
    for folder in FOLDERS:
        sources = [path for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
        if not sources:
            problems.append(f"{folder} has no source files: name the folders that have some in deploy/check_lists.py")
        for path in sources:
            above = [p for p in path.parents if p == root or root in p.parents]
            if not any(path.relative_to(p).as_posix() in lists.get(p, ()) for p in above):
                problems.append(f"{path.relative_to(root)} is in no CMakeLists.txt: list it in its folder's")
    return problems


def main():
    return report(unlisted(root_of(sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
