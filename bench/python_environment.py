"""Packages of PyPI for a script of bench/ or tests/, in a virtual environment of its own."""
import fcntl
import os
import pathlib
import subprocess
import sys


def make_venv(folder, packages):
    """The interpreter of the environment in `folder` that has these packages, made first if need be; ends the script with the reason when
    that fails. Several scripts may ask for one folder at once."""
    folder = pathlib.Path(folder)
    python = folder / "bin" / "python"
    ready = folder / "ready"  # says what is installed, all of it
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = "\n".join(packages)
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            return python
        ready.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*pip, *packages]).returncode != 0:
            sys.exit(f"error: pip could not install {', '.join(packages)} into {folder}; it says above why")
        ready.write_text(wanted, encoding="utf-8")
    return python


def enter_venv(folder, packages):
    """Runs this script again by the interpreter of the environment in `folder` (make_venv), unless it is that already, or BENCH_PYTHON=this says that
    this one has what is needed."""
    if os.environ.get("BENCH_PYTHON") == "this" or pathlib.Path(sys.prefix).resolve() == pathlib.Path(folder).resolve():
        return
    python = make_venv(folder, packages)
    os.execv(python, [str(python), *sys.argv])
