"""Units of a build, as compile_commands.json lists them: what deploy/check_threads.py and deploy/check_tidy.py share."""
import json
import pathlib
import re
import shlex

import includes

KEPT = re.compile(r"-(I|D|isystem|std=)")


def flags(command):
    """Those of a compiler's command by which it finds headers."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        if KEPT.match(word):
            kept.append(word)
            if word in ("-I", "-D", "-isystem"):
                kept.append(next(words))
    return kept


def read(build, root):
    """Each unit with the project's own sources that it compiles: one, or several that are compiled as one; none of what protoc made."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        sources = [path]
        if path.is_relative_to(build):
            sources = [pathlib.Path(name) for name in includes.names(path)] if path.is_file() else []
        yield entry, [source for source in sources
                      if source.suffix == ".cc" and source.is_relative_to(root) and not source.is_relative_to(build)]
