"""The command line: ``python -m diapason`` and, where the package is installed, ``diapason``."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program ``diapason`` that comes with the package, with the same arguments."""
    program = pathlib.Path(__file__).parent.absolute() / "bin" / "diapason"
    try:
        os.execv(program, ["diapason", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"error: {program} cannot be started: {error.strerror}; install the package again")


if __name__ == "__main__":
    main()
