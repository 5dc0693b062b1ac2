"""One line that tells how far a call is, written again and again: in a terminal, or under a cell of a Jupyter notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from .model import _warn

_NOTEBOOK_SECONDS = 0.25  # between two lines of a notebook, each of which is a message to the browser


class ProgressLine:
    """This one is shown nowhere."""

    is_shown = False

    def show(self, text: str) -> None:
        """Replaces the line."""

    def warn(self, sentence: str) -> None:
        """Warns, beside the line."""
        self._make_way()
        _warn(sentence)

    def finish(self) -> None:
        """What was shown last stays."""

    def _make_way(self) -> None:
        """Before something else is written where the line is."""


class _Terminal(ProgressLine):
    is_shown = True

    def __init__(self, out: Any) -> None:
        self._out = out
        self._drawn = False

    def show(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}")
        self._drawn = True

    def finish(self) -> None:
        if self._drawn:
            self._write("\n")

    def _make_way(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")
        self._drawn = False

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class _Notebook(ProgressLine):
    """A display of the cell that is updated in place: carriage returns and escapes would be kept as text of the cell."""

    is_shown = True

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._shown = ""
        self._last = ""
        self._next = 0.0  # of time.monotonic

    def show(self, text: str) -> None:
        self._last = text
        if time.monotonic() >= self._next:
            self._draw()

    def finish(self) -> None:
        if self._last != self._shown:
            self._draw()

    def _draw(self) -> None:
        content = {"text/plain": self._last}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
        self._shown = self._last
        self._next = time.monotonic() + _NOTEBOOK_SECONDS


def _notebook_display() -> Any:
    """IPython's display, in a kernel of Jupyter; None elsewhere, in IPython's own terminal for example."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display


def _place(wanted: bool | None) -> ProgressLine:
    if wanted is False:
        return ProgressLine()
    display = _notebook_display()
    if display is not None:
        return _Notebook(display)
    return _Terminal(sys.stderr) if wanted or sys.stderr.isatty() else ProgressLine()


@contextlib.contextmanager
def progress_line(wanted: bool | None) -> Iterator[ProgressLine]:
    """Where a call tells how far it is.

    Args:
        wanted: ``None``: where somebody looks at it, in a notebook or if stderr is a terminal.
    """
    line = _place(wanted)
    try:
        yield line
    finally:
        line.finish()
