"""Runs the commands of README.md and docs/tour.md and compares what they print with the pages.

A block of a page begins with "    $ diapason ..." and shows the command's standard output; blocks without output are not run. Numbers, rows of tables and what
depends on the machine may differ; lines, their order and their words may not. "..." alone stands for any lines, within a line
for any text.
"""
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["DIAPASON_SOURCE"])
PROGRAM = os.environ["DIAPASON_PROGRAM"]
SERVERS = ("ui", "serve", "tracker", "worker", "submit")  # these run until they are stopped, or need one that does


def blocks(page):
    """The commands of a page with the lines that they print."""
    found = []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("    $ "):
            found.append((line[6:].split("   #")[0], []))
        elif found and line.startswith("    ") and found[-1][1] is not None:
            found[-1][1].append(line[4:])
        elif found and line and found[-1][1] is not None:
            found.append((None, None))  # prose ends a block
    return [(command, lines) for command, lines in found if command and command.startswith("diapason ") and lines]


def shape(line):
    """A line without what differs from run to run."""
    row = re.match(r"\s*\d+\*?\s+([a-z]\w*_\w+)\s", line)
    if row:  # which tasks are the slowest differs, and their sketches
        return "row"
    for start in ("alternatives that won:", "target ", "sketch ", "share ", "[0:"):
        if line.startswith(start):
            return start
    line = re.sub(r"\b[0-9a-f]{32}_\w+", "key", line)
    line = re.sub(r"\b(id\s+task)\b.*", r"\1", line)  # the columns' widths, and so their distances, differ
    line = re.sub(r"\b[a-z]\w*_\d\w*", "task", line)
    line = re.sub(r"[-+]?\d[\d.,:]*(e[-+]?\d+)?%?( ?(us|ms|s|min)\b)?", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def pattern(line):
    return ".*".join(re.escape(shape(part)) for part in line.split("...")) if "..." in line else re.escape(shape(line))


def expression(expected):
    """What output of the shape of these lines matches, each with a line break behind it."""
    lines = [line for line in expected if line.strip()]
    return "".join(r"(?:.*\n)*?" if line.strip() == "..." else pattern(line) + "\n" for line in lines)


def difference(expected, printed):
    """The first line of the page that is not printed where it should be; None if there is none."""
    text = "".join(shape(line) + "\n" for line in printed)
    if re.fullmatch(expression(expected), text):
        return None
    for count in range(1, len(expected) + 1):
        if not re.match(expression(expected[:count]), text):
            return expected[count - 1]
    return "(the end of the output)"


def replaced(text, replacements):
    for old, new in replacements:
        text = re.sub(old, new, text)
    return text


class Tour(unittest.TestCase):
    def follow(self, page, replacements):
        commands = [one for one in blocks(page) if one[0].split()[1] not in SERVERS]
        self.assertGreater(len(commands), 4)
        with tempfile.TemporaryDirectory() as folder:
            for command, expected in commands:
                typed = replaced(command, replacements)
                expected = [replaced(line, replacements) for line in expected]
                with self.subTest(command=typed):
                    run = subprocess.run([PROGRAM] + shlex.split(typed)[1:], cwd=folder, capture_output=True, text=True, timeout=120)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    printed = [line for line in run.stdout.splitlines() if line.strip()]
                    missing = difference(expected, printed)
                    self.assertIsNone(missing, f"{page} shows {missing!r} here, but the program prints\n{run.stdout}")

    def test_the_tour_shows_what_the_program_prints(self):
        self.follow("docs/tour.md", [(r"--record \d+", "--record 1")])

    def test_the_readme_shows_what_the_program_prints(self):
        # A small network, for seconds.
        self.follow("README.md",
                    [(r"resnet-18 --target", "resnet-18 --set image=32 --target"), (r"--seconds 120", "--trials 24"),
                     ("time limit reached", "all trials are done"),
                     (r"--record \d+", "--record 1")])


class Shapes(unittest.TestCase):
    def test_words_and_order_count_and_numbers_do_not(self):
        page = ["id  task   count", " 1  gemm_2x3x4   1", "...", "total 3.5 ms", "done"]
        printed = ["id  task         count", " 7  gemm_20x30x40    1", "x", "y", "total 88 us", "done"]
        self.assertIsNone(difference(page, printed))
        self.assertEqual(difference(page, printed[:-2] + ["sum 88 us", "done"]), "total 3.5 ms")
        self.assertEqual(difference(page, printed + ["more"]), "(the end of the output)")
        self.assertEqual(difference(["a", "b"], ["b", "a"]), "a")

    def test_dots_within_a_line_stand_for_any_text(self):
        self.assertIsNone(difference(["f(x, ...) {"], ["f(x, y, z) {"]))
        self.assertEqual(difference(["f(x, ...) {"], ["g(x, y) {"]), "f(x, ...) {")


if __name__ == "__main__":
    unittest.main()
