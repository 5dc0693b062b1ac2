#!/usr/bin/env python3
"""Fails when clang-tidy finds something in a file that was changed lately (.clang-tidy has the checks).

  deploy/check_tidy.py [BUILD [ROOT]]

Changed: what is not committed, then the files of the commits that the upstream branch (origin/HEAD) does not have, or, where it has all, of the
last three; newest first. A header is checked with the source beside it where that is checked too, and else on its own, as every header can be
compiled. A file that passed is not checked again until it, a header of the project that it includes or the checks change: BUILD/tidy has a mark for
it. DIAPASON_TIDY_SECONDS (default 45) bounds the time: what is left then is named and comes next time. DIAPASON_TIDY_ALL=1: every file, without a
bound, several sources at once as the build compiles them (a quarter of an hour of two cores).
"""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import includes
import units

PROGRAMS = ("clang-tidy-14", "clang-tidy")
COMMITS = 3
HEADERS = (".h", ".hpp")
SUFFIXES = (".cc", *HEADERS)
FEW = 3  # sources: fewer take less time one by one than in the unit that has them
# Unused ones are found in the file that clang-tidy is given, not in those that it includes.
USING = re.compile(r"^\s*using [\w:]+::\w+;", re.MULTILINE)


def git(root, *args):
    """Lines of git's output; none where it fails, as in a copy without history."""
    run = subprocess.run(["git", "-C", root, *args], capture_output=True, text=True, check=False)
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed(root):
    """Files that were changed lately, newest first."""
    upstream = git(root, "merge-base", "HEAD", "origin/HEAD")
    own = f"{upstream[0]}..HEAD" if upstream and upstream != git(root, "rev-parse", "HEAD") else f"-{COMMITS}"
    names = git(root, "diff", "--name-only", "HEAD") + git(root, "ls-files", "--others", "--exclude-standard")
    names += git(root, "log", "--first-parent", "-m", "--format=", "--name-only", own)
    return [root / name for name in dict.fromkeys(names) if (root / name).is_file()]


class Files:
    """Files of the project, with the flags by which each is compiled and what each depends on."""

    def __init__(self, build, root):
        self.root = root
        self.flags = {}  # by source
        self.units = {}  # sources, by the file that includes them in order to be compiled
        self.known = {}  # headers that a file includes, and those that they include, itself among them
        for entry, sources in units.read(build, root):
            unit = pathlib.Path(entry["file"])
            self.units[unit] = sources
            for source in (unit, *sources):
                self.flags.setdefault(source, (units.flags(entry["command"]), entry["directory"]))

    def needs(self, path):
        if path not in self.known:
            found = self.known[path] = {path}  # while it is being looked at: headers may include each other
            for name in includes.names(path):
                header = includes.find(self.root, name, path.parent)
                if header is not None and header not in found:
                    found |= self.needs(header)
        return self.known[path]

    def command(self, path):
        """Flags and folder for a file. A header has those of a source beside it, or of any that includes it; nothing if none does."""
        if path in self.flags:
            return self.flags[path]
        own = path.with_suffix(".cc")
        if own in self.flags:
            return self.flags[own]
        users = [source for source in self.flags if path.suffix in HEADERS and path in self.needs(source)]
        return self.flags[min(users, key=lambda source: (source.parent != path.parent, source))] if users else None

    def runs(self, paths):
        """Pairs of what clang-tidy is given and the files that it looks at there: a source with the header beside it, which would be parsed once more
        alone, or one file."""
        given = set(paths)
        headers = {path: header for path in paths if path.suffix == ".cc" for header in map(path.with_suffix, HEADERS)
                   if header in given and header in self.needs(path)}
        with_sources = set(headers.values())
        return [(path, [path, headers[path]] if path in headers else [path]) for path in paths if path not in with_sources]

    def runs_of_units(self, paths):
        """The same of whole units, with the headers that their sources include, and of what is left."""
        found, left = [], dict.fromkeys(path for path in paths if not USING.search(path.read_text(encoding="utf-8")))
        for unit, sources in self.units.items():
            own = [source for source in sources if source in left]
            if len(own) < FEW:
                continue
            needed = set().union(*map(self.needs, own))
            own += [path for path in left if path.suffix in HEADERS and path in needed
                    and (path.with_suffix(".cc") in own or path.with_suffix(".cc") not in self.flags)]
            found.append((unit, own))
            for path in own:
                del left[path]
        taken = {path for _, own in found for path in own}
        return found + self.runs([path for path in paths if path not in taken])

    def mark(self, build, path, program):
        """Where it is kept that a file passed as it is now."""
        sum_ = hashlib.sha256(repr((program, self.command(path), str(path.relative_to(self.root)))).encode())
        for file in [self.root / ".clang-tidy", *sorted(self.needs(path))]:
            sum_.update(file.read_bytes())
        return build / "tidy" / sum_.hexdigest()


def check(program, files, run, seconds):
    """What clang-tidy says about the files of a run; nothing if all is well. None: it took longer."""
    given, paths = run
    flags, folder = files.command(given)
    # Only these files: what they include was looked at when it was changed.
    shown = "|".join(re.escape(str(path)) for path in paths)
    command = [program, "--quiet", f"--config-file={files.root / '.clang-tidy'}", f"--header-filter=^({shown})$", str(given), "--", "-x", "c++", *flags,
               "-Wno-everything"]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return result.stdout + result.stderr if result.returncode != 0 else ""


def plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def main():
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent).resolve()
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "build").resolve()
    program = next((name for name in PROGRAMS if shutil.which(name)), None)
    if program is None:
        sys.exit(f"deploy/check_tidy.py: {PROGRAMS[0]} is missing; deploy/setup.sh installs it")
    if not (build / "compile_commands.json").is_file():
        sys.exit(f"deploy/check_tidy.py: there is no {build}/compile_commands.json; run cmake -S . -B {build} first")
    every = os.environ.get("DIAPASON_TIDY_ALL") == "1"
    ends = None if every else time.monotonic() + float(os.environ.get("DIAPASON_TIDY_SECONDS", "45"))
    names = [root / name for name in git(root, "ls-files")] if every else changed(root)
    files = Files(build, root)
    paths = [path for path in names if path.suffix in SUFFIXES and path.is_file() and files.command(path) is not None]
    marks = {path: files.mark(build, path, program) for path in paths}
    left, said, late = [path for path in paths if not marks[path].exists()], [], []
    (build / "tidy").mkdir(exist_ok=True)

    def one(run):
        seconds = None if ends is None else ends - time.monotonic()
        text = check(program, files, run, seconds) if seconds is None or seconds > 0 else None
        if text is None:
            late.extend(run[1])
        elif text:
            said.append(text)
        else:
            for path in run[1]:
                marks[path].touch()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, files.runs_of_units(left) if every else files.runs(left)))
    if late:
        print(f"no time was left for {plural(len(late), 'file')}: " + " ".join(str(path.relative_to(root)) for path in sorted(late)))
    if said:
        sys.exit("".join(said) + "deploy/check_tidy.py: change that, or say // NOLINT(CHECK): and why")
    print(f"{plural(len(paths) - len(late), 'file' if every else 'changed file')}: clang-tidy finds nothing ({len(left) - len(late)} looked at, the others have passed before)")


if __name__ == "__main__":
    main()
