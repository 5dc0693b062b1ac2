"""What torch.compile(backend="diapason") left to PyTorch, and why."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

_MOST = 1000  # entries that are kept; the oldest go first


@dataclass(frozen=True)
class Fallback:
    """A part of a model that runs in PyTorch's eager mode. Its text is one sentence.

    Attributes:
        operator: the PyTorch operator, ``"aten.nonzero.default"``; "" where a whole graph or subgraph is concerned.
        node: its name in the graph; "" likewise.
        module: the module that calls it, ``"L['self'].head (Linear)"``; "" where that is not known.
        reason: why it is not compiled.
    """

    operator: str
    node: str
    module: str
    reason: str

    def __str__(self) -> str:
        what = f"{self.operator} (node {self.node})" if self.operator else "a subgraph" if self.node else "a graph"
        where = f" in {self.module}" if self.module else ""
        return f"{what}{where} runs in eager mode: {self.reason}"


_lock = threading.Lock()
_known: OrderedDict[Fallback, None] = OrderedDict()


def _add(fallback: Fallback) -> None:
    with _lock:
        _known[fallback] = None
        _known.move_to_end(fallback)
        while len(_known) > _MOST:
            _known.popitem(last=False)


def explain_fallbacks(clear: bool = False) -> list[Fallback]:
    """What ``torch.compile(backend="diapason")`` left to PyTorch in this process, each once, oldest first.

    Graphs are compiled when they are first called, so call the model before this. The last 1000 are kept.

    Args:
        clear: forget them.
    """
    with _lock:
        found = list(_known)
        if clear:
            _known.clear()
    return found
