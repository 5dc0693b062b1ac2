"""Exceptions of the library. Their text is one sentence that says what is wrong and how to fix it.

Messages that concern an option name it as the command line does (``--dim``, ``--history``).
"""

from __future__ import annotations

from typing import Any


class Error(RuntimeError):
    """Base of all errors of the library.

    Attributes:
        code: the library's status, for example ``"FAILED_PRECONDITION"``.
        result: of :func:`diapason.tune`, where the network is wrong or could not be checked: the :class:`diapason.TuneResult`. None elsewhere.
    """

    code: str = "INTERNAL"
    result: Any = None


class InvalidArgumentError(Error, ValueError):
    """What was given does not fit the package, the model or an option."""


class NotFoundError(Error, FileNotFoundError):
    """There is no such package, model, history or network."""


class ResourceExhaustedError(Error, MemoryError):
    """Memory or disk space is used up, on the host or the GPU."""


class UnavailableError(Error):
    """No GPU, driver or library, or a file that cannot be read."""


_CLASSES = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "NOT_FOUND": NotFoundError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "UNAVAILABLE": UnavailableError,
}


def _make_error(code: str, text: str) -> Error:
    error = _CLASSES.get(code, Error)(text)
    error.code = code
    return error
