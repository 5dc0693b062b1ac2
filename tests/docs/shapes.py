"""Compares what a command prints with what a page shows.

Numbers, rows of tables and what depends on the machine may differ; lines, their order and their words may not. "..." alone
stands for any lines, within a line for any text.
"""
import re


def shape(line):
    """A line without what differs from run to run."""
    row = re.match(r"\s*\d+\*?\s+([a-z]\w*_\w+)\s", line)
    if row:  # which tasks are the slowest differs, and their sketches
        return "row"
    if re.match(r"\s*\d+\s+[\d.]+\s+[\d.]+%", line):  # and which kernels a profile has
        return "row"
    for start in ("alternatives that won:", "target ", "sketch ", "share ", "[0:"):
        if line.startswith(start):
            return start
    line = re.sub(r"\b[0-9a-f]{32}_\w+", "key", line)
    line = re.sub(r" on .*, peak ", " on device, peak ", line)
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
