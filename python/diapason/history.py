"""Histories: what was measured."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .errors import _make_error
from .explanation import Explanation, _explain_record
from .model import _library, _warn
from .readable import count, duration, shown

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Record:
    """A measurement that succeeded.

    Attributes:
        id, uuid: its number in the file, and a name that is the same in all files.
        workload, task: the key of what was measured, and its name for people.
        target, device: what it was compiled for, and the model of the device.
        median_us, samples_us: microseconds of a run.
        stopped_early: it was stopped early, since it was clearly slower than the best.
        trial: its position within its task.
        verification: "unknown", "ok", "failed" or "wrong_in_network".
        algorithm, sketch: the algorithm, and the sketch: "winograd(4)", "winograd(4)/tile0".
        seed: of the search.
        created_at: Unix time in nanoseconds.
    """

    id: int
    uuid: str
    workload: str
    task: str
    target: str
    device: str
    median_us: float
    samples_us: list[float]
    stopped_early: bool
    trial: int
    verification: str
    algorithm: str
    sketch: str
    seed: int
    created_at: int

    @property
    def verified(self) -> bool:
        """Its result was compared with the reference implementation, and is right."""
        return self.verification == "ok"

    def __repr__(self) -> str:
        return shown("Record", [f"{self.id} of {self.task}", f"{duration(self.median_us)} on {self.device}", self.target, self.sketch,
                                "verified" if self.verified else f"verification: {self.verification}", "stopped early" if self.stopped_early else ""])


@dataclass(frozen=True)
class HistorySummary:
    """How much there is in a history, and of which networks and devices."""

    path: str
    schema_version: int
    file_bytes: int
    record_count: int
    failed: int
    runs: int
    networks: list[str]
    devices: list[str]

    def __repr__(self) -> str:
        return shown("HistorySummary", [repr(self.path), count(self.record_count, "record") + f" ({self.failed} failed)", count(self.runs, "run"),
                                        f"of {_some(self.networks)}" if self.networks else "", f"on {_some(self.devices)}" if self.devices else ""])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass(frozen=True)
class HistoryProblems:
    """What is damaged in a history: a sentence per problem, at most 1000 and then their number."""

    record_count: int
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        return shown("HistoryProblems", [count(self.record_count, "record"), count(len(self.problems), "problem"), *self.problems[:1]])


class History:
    """A history file, to be read. Tuning may write to it meanwhile. All methods may be called from any thread.

    Raises:
        NotFoundError: there is no such file.
        Error: it is no history, of a newer version, or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._history = _library().History(self._path)

    def query(self, model: str | os.PathLike[str] | None = None, target: str | None = None, workload: str | None = None, device: str | None = None,
              top: int = 1) -> list[Record]:
        """The best records of each workload, target and device, the fastest first; none that is known to be wrong.

        Args:
            model: only the tasks of this network: a built-in one, or the file of a model.
            target: only of this target; ``"cuda"`` matches ``"cuda -arch=sm_90"`` too.
            workload: only this key, or keys with this beginning.
            device: only of this device model.
            top: how many of each workload, target and device.

        Raises:
            NotFoundError: the history knows no such network.
            InvalidArgumentError: the target is not understood, or ``top`` is below 1.
        """
        found = self._history.query(target or "", workload or "", device or "", "" if model is None else os.fspath(model), top)
        return [Record(**record) for record in found]

    def best(self, workload: str, device: str | None = None, target: str | None = None) -> Record | None:
        """The best record of one workload, verified ones before others: what a build takes if it is verified. None: there is no record.

        Args:
            workload: its whole key.
            device: the device model; may be left out where the history has one only.
            target: only of this target.
        """
        if device is None:
            devices = self.summary().devices
            if len(devices) > 1:
                raise _make_error("INVALID_ARGUMENT", f"the history has records of {len(devices)} devices; name one: {', '.join(devices)}")
            if not devices:
                return None
            device = devices[0]
        found = self._history.best(workload, device, target or "")
        return None if found is None else Record(**found)

    def summary(self) -> HistorySummary:
        """How much there is, and of which networks and devices."""
        return HistorySummary(**self._history.summary())

    def explain(self, record: int) -> Explanation:
        """A record in readable form: its schedule as loops and source, its features and its share of networks.

        Raises:
            NotFoundError: there is no record of this id.
            Error: the record cannot be read.
        """
        return _explain_record(self._path, record)

    def check(self) -> HistoryProblems:
        """Reads everything, and says what is damaged."""
        return HistoryProblems(**_library().check_history(self._path))

    def export(self, out: str | os.PathLike[str], *, format: str = "jsonl", model: str | os.PathLike[str] | None = None, target: str | None = None,
               workload: str | None = None, skip_damaged: bool = False, with_host: bool = False) -> int:
        """Writes records to a file.

        Args:
            out: the file; an existing one is replaced.
            format: "jsonl": lines that :func:`diapason.import_history` reads; "t4": one document of Kernel Tuner's T4 schema.
            model, target, workload: only these, as in :meth:`query`.
            skip_damaged: leave out records that cannot be read, with a warning each, instead of stopping there.
            with_host: include the names of the hosts that measured.

        Returns:
            The number of records.

        Raises:
            InvalidArgumentError: the format or the target is not understood.
            Error: the history is damaged, or the file cannot be written.
        """
        options, records = _library().HistoryExport(), _library().RecordQuery()
        records.target, records.workload, records.network = target or "", workload or "", "" if model is None else os.fspath(model)
        options.format, options.records, options.skip_damaged, options.with_host = format, records, skip_damaged, with_host
        done = _library().export_history(self._path, os.fspath(out), options)
        for sentence in done["damaged"]:
            _warn(sentence)
        return int(done["record_count"])

    def to_pandas(self, **query: Any) -> pandas.DataFrame:
        """The records of :meth:`query` as a table, a column for each attribute of :class:`Record`.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        columns = [*Record.__annotations__]
        return pandas.DataFrame([asdict(record) for record in self.query(**query)], columns=columns)

    def __repr__(self) -> str:
        return f"<diapason.History {self._path!r}>"


def import_history(history: str | os.PathLike[str], file: str | os.PathLike[str], *, skip_damaged: bool = False) -> int:
    """Adds the records of a file of JSON lines to a history, which is made if there is none. Records that the history has already are left.

    Args:
        history: a file, or ``"postgresql://..."``.
        file: what :meth:`History.export` or ``diapason history export`` wrote.
        skip_damaged: import the good lines, with a warning per damaged one, instead of nothing.

    Returns:
        The number of records that were added.

    Raises:
        InvalidArgumentError: a line is damaged; nothing was imported.
        NotFoundError: the file cannot be read.
    """
    done = _library().import_history(os.fspath(history), os.fspath(file), skip_damaged)
    for sentence in done["damaged"]:
        _warn(sentence)
    return int(done["added"])


def copy_history(source: str | os.PathLike[str], to: str | os.PathLike[str]) -> int:
    """Adds what only ``source`` has to the history ``to``, which is made if there is none. Each is a file or ``"postgresql://..."``.

    Returns:
        The number of records that were added.
    """
    return int(_library().copy_history(os.fspath(source), os.fspath(to))["added"])


def prune_history(history: str | os.PathLike[str], *, keep: int = 1, out: str | os.PathLike[str] | None = None) -> int:
    """Keeps the best records of each workload, target and device.

    Args:
        history: a file, or ``"postgresql://..."``.
        keep: how many of each.
        out: a new file for them; None: the others are removed from the history itself.

    Returns:
        The number of records that were kept.

    Raises:
        InvalidArgumentError: ``keep`` is below 1.
        Error: there is a file ``out`` already.
    """
    return int(_library().prune_history(os.fspath(history), keep, "" if out is None else os.fspath(out))["kept"])
