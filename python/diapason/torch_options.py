"""Options of torch.compile(backend="diapason", options={...})."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import _make_error
from .service import Service


@dataclass(frozen=True)
class CompileOptions:
    """How a model is compiled.

    Attributes:
        trials: measurements for each subgraph, those in the history included; 0: none, unless ``seconds`` is given.
        seconds: time to tune each subgraph, when there is no package of it yet.
        history: the file with records; the default is ``history.db`` in the cache folder when there is tuning on this host, and none otherwise.
        service: a :class:`diapason.Service`, or the ``"host:port"`` of one: it tunes, and has the records, in place of this host and a history.
        target: what to compile for; the default is ``"cpu"`` or ``"cuda"``, where the tensors are.
        cache: the folder that keeps packages; the default is ``$DIAPASON_CACHE``, or ``~/.cache/diapason``.
        cache_gib: its size; what was used last is kept.
        sizes: of a graph with dynamic sizes, how many get a plan or a package; others run in eager mode.
        freeze: weights are constants of the package, watched for changes; else they are inputs, copied at each call.
        name: what histories call the subgraphs, followed by a number.
    """

    trials: int = 0
    seconds: float = 0
    history: str | None = None
    service: Service | None = None
    target: str | None = None
    cache: str | None = None
    cache_gib: float = 10
    sizes: int = 8
    freeze: bool = True
    name: str = "torch"

    @property
    def tunes(self) -> bool:
        return self.trials > 0 or self.seconds > 0


def _invalid(text: str) -> Exception:
    return _make_error("INVALID_ARGUMENT", text)


def _number(name: str, value: Any, whole: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 < value < 1e12:
        raise _invalid(f"options: {name} is {value!r}; give a {'whole number' if whole else 'number'} above 0")
    return value


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise _invalid(f"options: {name} is {value!r}; give a path")
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def parse(options: Mapping[str, Any] | None, mode: str | None = None, name: str | None = None) -> CompileOptions:
    """Raises InvalidArgumentError: an option is unknown or has a wrong value."""
    if mode is not None:
        raise _invalid(f"mode is {mode!r}, which is an option of Inductor; give options={{'trials': ...}} or options={{'seconds': ...}} for speed")
    known = [field.name for field in fields(CompileOptions)]
    values: dict[str, Any] = {} if name is None else {"name": name}
    for key, value in (options or {}).items():
        if key not in known:
            raise _invalid(f"options: there is no option {key!r}; these are there: {', '.join(known)}")
        if value is None:
            continue
        if key in ("trials", "sizes"):
            values[key] = _number(key, value, whole=True)
        elif key in ("seconds", "cache_gib"):
            values[key] = float(_number(key, value, whole=False))
        elif key in ("history", "cache"):
            values[key] = _path(key, value)
        elif key == "service":
            if not isinstance(value, (str, Service)) or not value:
                raise _invalid(f"options: service is {value!r}; give 'host:port', or a diapason.Service with its certificates and tokens")
            values[key] = Service(value) if isinstance(value, str) else value
        elif key == "freeze":
            if not isinstance(value, bool):
                raise _invalid(f"options: freeze is {value!r}; give True or False")
            values[key] = value
        else:
            if not isinstance(value, str) or not value:
                raise _invalid(f"options: {key} is {value!r}; give a text")
            if key == "target" and value.split()[0] not in ("cpu", "cuda"):
                raise _invalid(f"options: target is {value!r}; give 'cpu' or 'cuda', with attributes as in 'cpu -num-cores=4'")
            values[key] = value
    if "history" in values and "service" in values:
        raise _invalid("options: history and service are given; records are those of a file or those of a service: give one of them")
    return CompileOptions(**values)
