#!/usr/bin/env python3
"""Fails when clang finds a member used without the mutex that guards it, or a module uses a mutex that clang does not check.

  deploy/check_threads.py [BUILD [ROOT]]

Members say by ABSL_GUARDED_BY which mutex guards them, functions by ABSL_EXCLUSIVE_LOCKS_REQUIRED that their callers hold it
(base/mutex.h). GCC, which compiles the program, ignores both; this has clang check (-Wthread-safety) every unit of BUILD/compile_commands.json
(default: build) that includes base/mutex.h, without compiling it, for the sources below ROOT (default: the project). Tests are not checked.

std::mutex has no annotations: a module uses Mutex and CondVar of base/mutex.h. What may not include base (docs/architecture.md: python, and the public
headers) may use std::mutex.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import includes
import units

COMPILERS = ("clang++-14", "clang++")
HEADER = "base/mutex.h"
OUTSIDE = ("tests", "bench", "examples")
MODULES = ("api", "cli", "compiler", "costmodel", "db", "runtime", "scheduler", "service", "ui", "worker")
UNCHECKED = re.compile(r"\bstd::(?:\w*mutex|condition_variable\w*)\b")


class Reach:
    """Which files include the header, directly or not."""

    def __init__(self, root):
        self.root = root
        self.known = {root / HEADER: True}

    def reach(self, path):
        if path not in self.known:
            self.known[path] = False  # while it is being looked at: headers may include each other
            headers = (includes.find(self.root, name) for name in includes.names(path))
            self.known[path] = any([self.reach(header) for header in headers if header is not None])
        return self.known[path]


def check(compiler, entry):
    """What clang says about a unit; nothing if all is well."""
    command = [compiler, "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror", *units.flags(entry["command"]), entry["file"]]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False).stderr


def unchecked(root):
    """Where modules use mutexes that clang does not check."""
    paths = sorted(path for module in MODULES for path in (root / module).rglob("*") if path.suffix in (".cc", ".h"))
    return [f"{path.relative_to(root)}:{number} uses {found[0]}: use Mutex and CondVar of {HEADER}, which clang checks\n"
            for path in paths for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) for found in UNCHECKED.finditer(line)]


def main():
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent).resolve()
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "build").resolve()
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        sys.exit(f"deploy/check_threads.py: {COMPILERS[0]} is missing; deploy/setup.sh installs it")
    commands = build / "compile_commands.json"
    if not commands.is_file():
        sys.exit(f"deploy/check_threads.py: there is no {commands}; run cmake -S . -B {build} first")
    if found := unchecked(root):
        sys.exit("".join(found).rstrip())
    reach = Reach(root)
    looked_at = []
    for entry, sources in units.read(build, root):
        if any(source.relative_to(root).parts[0] in OUTSIDE for source in sources):
            continue
        if any([reach.reach(source) for source in sources]):
            looked_at.append(entry)
    if not looked_at:
        sys.exit(f"deploy/check_threads.py: no unit of {commands} includes {HEADER}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(lambda entry: check(compiler, entry), looked_at) if text]
    if said:
        sys.exit("".join(said) + "deploy/check_threads.py: lock what guards these members, or say that the caller holds it (base/mutex.h)")
    print(f"{len(looked_at)} unit{'' if len(looked_at) == 1 else 's'} with mutexes: nothing is used without the one that guards it")


if __name__ == "__main__":
    main()
