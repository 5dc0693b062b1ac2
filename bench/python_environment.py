"""Packages of PyPI for a script of bench/, in a virtual environment of its own."""
import os
import pathlib
import subprocess
import sys


def enter_venv(folder, packages):
    """Runs this script again by the interpreter of the environment in `folder`, made first if need be, unless it is that already."""
    folder = pathlib.Path(folder)
    python = folder / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == folder.resolve():
        return
    ready = folder / "ready"  # there is an environment in which all is installed
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
        ready.touch()
    os.execv(python, [str(python), *sys.argv])
