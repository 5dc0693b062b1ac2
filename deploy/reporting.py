"""What checks of the sources share: the project that they are given, and how they tell what they found."""
import pathlib


def root_of(words):
    """The folder that the first word names; without one, the project of these scripts."""
    return pathlib.Path(words[0] if words else pathlib.Path(__file__).parent.parent).resolve()


def report(found):
    """Prints them, one a line. Returns the exit status."""
    for problem in found:
        print(problem)
    return 1 if found else 0
