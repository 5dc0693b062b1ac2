"""Headers of the project that a source names: what checks of the sources share."""
import pathlib
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def names(path):
    """The names in the #include lines of a file, in order: those in quotes."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def find(root, name):
    """The file of the project that a name stands for; None for a library's header."""
    if pathlib.Path(name).is_absolute():
        return pathlib.Path(name) if pathlib.Path(name).is_file() else None
    return next((path for path in (root / name, root / "include" / name) if path.is_file()), None)
