"""Headers of the project that a source names: what checks of the sources share."""
import pathlib
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def names(path):
    """The names in the #include lines of a file, in order: those in quotes."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def find(root, name, *folders):
    """The file of the project that a name stands for, there or in the folders given, which come first; None for a library's header."""
    if pathlib.Path(name).is_absolute():
        return pathlib.Path(name) if pathlib.Path(name).is_file() else None
    return next((path for folder in (*folders, root, root / "include") if (path := folder / name).is_file()), None)
