"""Tuning tasks of a network, and packages with the best schedules of a history."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

from .model import ModelOptions, _library, _model, _warn
from .progress_line import progress_line
from .readable import count, duration, operations, seconds_text, shown, sizes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from . import _tuner

    Histories = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


@dataclass(frozen=True)
class Padding:
    """Whether inputs may be padded along a symbolic dimension up to the size of a plan.

    Attributes:
        safe: it was proven to change no result.
        min_size: then, the smallest size that is padded.
        reason: else, why it was not.
    """

    safe: bool
    min_size: int | None
    reason: str


@dataclass(frozen=True)
class ModelInput:
    """An input of a model; ``symbols`` has the symbolic dimension by axis, "" where the extent is fixed."""

    name: str
    dtype: str
    shape: list[int]
    symbols: list[str]


@dataclass(frozen=True)
class Task:
    """A tuning task: equal subgraphs of a network.

    Attributes:
        id: its number, from 1.
        count: occurrences in the network; 0: only fusion alternatives have it.
        flops: floating point operations of one occurrence.
        workload: the key under which histories keep its records.
        sketches: names of its sketches.
        kernel_count: kernels that the fallback schedule launches.
        moves_data: these only move data.
    """

    id: int
    name: str
    count: int
    flops: float
    workload: str
    sketches: list[str]
    kernel_count: int
    moves_data: bool

    def __repr__(self) -> str:
        return shown("Task", [f"{self.id} {self.name}", f"count {self.count}", operations(self.flops), count(len(self.sketches), "sketch", "sketches"),
                              count(self.kernel_count, "kernel") + (" that only move data" if self.moves_data else "")])


@dataclass(frozen=True)
class PlanTasks:
    """What a combination of sizes of symbolic dimensions needs; ``sizes`` is empty where all shapes are fixed."""

    sizes: dict[str, int]
    task_count: int
    flops: float
    padding: dict[str, Padding]


@dataclass(frozen=True)
class TaskList:
    """The tasks of a network for a target. Iterates over :attr:`tasks`."""

    target: str
    inputs: list[ModelInput]
    plans: list[PlanTasks]
    tasks: list[Task]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        alternatives = sum(task.count == 0 for task in self.tasks)
        return shown("TaskList", [f"{self.target}", count(len(self.tasks) - alternatives, "task"),
                                  f"{alternatives} of fusion alternatives" if alternatives else "",
                                  count(len(self.plans), "plan") if len(self.plans) > 1 else "", operations(self.plans[0].flops)])


@dataclass(frozen=True)
class WrongRecord:
    """A record that made the assembled network wrong; ``replacement`` is the record in its place, or None: the fallback schedule."""

    record: int
    task: str
    text: str
    replacement: int | None


@dataclass(frozen=True)
class NetworkCheck:
    """The assembled network compared with the reference implementation of the model.

    Attributes:
        sizes: of the plan; empty: there is one.
        ok: the network is right.
        max_rel_error: the largest relative error; may be infinite.
        elapsed_s: seconds that the check took.
        text: why it is not ok.
        latency_us: of the network, where it was measured.
        wrong_records: that were found, marked in the history and replaced.
    """

    sizes: dict[str, int]
    ok: bool
    max_rel_error: float
    elapsed_s: float
    text: str
    latency_us: float | None
    wrong_records: list[WrongRecord]

    def __repr__(self) -> str:
        return shown("NetworkCheck", [sizes_text(self.sizes), "ok" if self.ok else f"not ok: {self.text}", f"largest relative error {self.max_rel_error:.3g}",
                                      "" if self.latency_us is None else f"latency {duration(self.latency_us)}",
                                      count(len(self.wrong_records), "wrong record") + " replaced" if self.wrong_records else ""])


@dataclass(frozen=True)
class BuiltTask:
    """A task of a package.

    Attributes:
        record_source: where the record of its schedule is from: "history", "service", "file" or "shipped" (with Diapason); "": the fallback schedule.
        record: its id in the history or service; files have none.
        record_uuid: what the record is known by everywhere.
        writes: its place in a larger tensor.
    """

    id: int
    name: str
    count: int
    workload: str
    record_source: str
    record: int | None
    record_uuid: str
    schedule: str
    writes: str
    estimated_us: float | None

    def __repr__(self) -> str:
        record = "" if self.record is None else f" {self.record}"
        return shown("BuiltTask", [f"{self.id} {self.name}", f"count {self.count}",
                                   f"record{record} of {self.record_source}" if self.record_source else "fallback schedule", self.schedule,
                                   "" if self.estimated_us is None else duration(self.estimated_us)])


@dataclass(frozen=True)
class FusionChoice:
    """A choice point where another alternative than the default fusion is built, which the history says is faster."""

    choice_point: str
    alternative: str


@dataclass(frozen=True)
class RefinedRecords:
    """Records and fusion alternatives that were chosen by the latency of the whole network (``refine``).

    Attributes:
        compared: networks that were tried.
        replaced: tasks that use another record than the one that is fastest alone.
        regrouped: choice points that use another fusion alternative than the one that is fastest by the times of its tasks.
        ratio: latency with these, relative to that by the times of the tasks alone.
        ended_early: the time was up before everything was tried.
    """

    compared: int
    replaced: int
    regrouped: int
    ratio: float
    ended_early: bool


@dataclass(frozen=True)
class BuiltPlan:
    """One plan of a package.

    Attributes:
        sizes: of symbolic dimensions; empty: all shapes are fixed.
        tasks: what was compiled.
        task_count, fallback_count, shipped_count: different tasks, how many of these have the fallback schedule, and how many a record that comes with Diapason.
        tasks_us, estimated_us, latency_us: the sum of the tasks' times, the estimated latency of the network, and the measured one; None: not known.
        check: None: there was none.
        refined: what was chosen by the latency of the whole network.
    """

    sizes: dict[str, int]
    tasks: list[BuiltTask]
    task_count: int
    fallback_count: int
    shipped_count: int
    fusion_choices: list[FusionChoice]
    tasks_us: float | None
    estimated_us: float | None
    latency_us: float | None
    check: NetworkCheck | None
    refined: RefinedRecords
    padding: dict[str, Padding]

    def __repr__(self) -> str:
        return shown("BuiltPlan", [sizes_text(self.sizes), *self._facts()])

    def _facts(self) -> list[str]:
        check = "not checked" if self.check is None else "check ok" if self.check.ok else "check not ok"
        return [count(self.task_count, "task") + (f" ({self.fallback_count} with the fallback schedule)" if self.fallback_count else ""),
                "" if self.estimated_us is None else f"estimated latency {duration(self.estimated_us)}",
                "" if self.latency_us is None else f"measured {duration(self.latency_us)}", check,
                f"{self.refined.ratio:.3g} of the latency before it was compared in the network" if self.refined.replaced + self.refined.regrouped else ""]


@dataclass(frozen=True)
class BuildReport:
    """A package that was built: its folder or file ``out``, its target, the libraries that it needs where it runs, and its plans."""

    out: str
    target: str
    libraries: list[str]
    plans: list[BuiltPlan]
    kernels_used: int
    kernels_stored: int

    def __repr__(self) -> str:
        facts = self.plans[0]._facts() if len(self.plans) == 1 else [f"{len(self.plans)} plans"]
        return shown("BuildReport", [f"{self.out!r} for {self.target}", *facts])


def _padding(padding: dict[str, Any]) -> dict[str, Padding]:
    return {symbol: Padding(**one) for symbol, one in padding.items()}


def _check(check: dict[str, Any]) -> NetworkCheck:
    return NetworkCheck(**{**check, "wrong_records": [WrongRecord(**one) for one in check["wrong_records"]]})


def _plan(plan: dict[str, Any]) -> BuiltPlan:
    return BuiltPlan(**{**plan, "tasks": [BuiltTask(**task) for task in plan["tasks"]], "fusion_choices": [FusionChoice(**one) for one in plan["fusion_choices"]],
                        "check": None if plan["check"] is None else _check(plan["check"]), "refined": RefinedRecords(**plan["refined"]),
                        "padding": _padding(plan["padding"])})


def tasks(model: Any, target: str = "cpu", **options: Unpack[ModelOptions]) -> TaskList:
    """The tuning tasks of a network.

    Args:
        model: the path of an .onnx file, the name of a built-in network, the bytes of an ONNX file, an ``onnx.ModelProto`` or a
            ``torch.export.ExportedProgram``.
        target: device to compile for: ``"cpu"``, ``"opencl"``, ``"cuda"``, with attributes as in ``"cuda -arch=sm_90"``.
        **options: options of the model; see :class:`diapason.ModelOptions`.

    Raises:
        InvalidArgumentError, NotFoundError: the model, an option or the target is invalid.
        TypeError: ``model`` is of an unsupported type.
    """
    with _model(model, options) as source:
        found = _library().tasks(source, target, _warn)
    return TaskList(found["target"], [ModelInput(**one) for one in found["inputs"]],
                    [PlanTasks(**{**plan, "padding": _padding(plan["padding"])}) for plan in found["plans"]], [Task(**task) for task in found["tasks"]])


def _paths(history: Histories) -> list[str]:
    if history is None:
        return []
    if isinstance(history, (str, os.PathLike)):
        return [os.fspath(history)]
    return [os.fspath(one) for one in history]


def build(model: Any, target: str = "cpu", *, out: str | os.PathLike[str], history: Histories = None, shipped_records: bool = True,
          check: bool = True, measure: bool = True, refine: float | None = None, progress: bool | None = None, build_timeout: float = 120,
          **options: Unpack[ModelOptions]) -> BuildReport:
    """Builds a package with the best verified schedules of a history; :func:`diapason.load` loads it.

    A task without a verified record gets the fallback schedule, with a warning. Without the device, the package is built but not checked. Ctrl-C stops the build
    after its current step.

    Args:
        model, target, **options: as :func:`diapason.tasks`.
        out: the folder to write, or a file if the name ends in ``.dpk``; an existing package is replaced.
        history: source of records: a history, a file of JSON lines that ``diapason history export`` wrote, the ``http://`` or ``https://`` URL of one, or
            several of these, of which the first with a verified record of a task is used. If there are several, a missing one is only a warning.
        shipped_records: use the records that come with Diapason after these.
        check: if the device is present, compare the network with the reference implementation of the model.
        measure: if the device is present and all tasks have records, measure the package's latency and keep it in the first history.
        refine: if the network is checked and measured: seconds to try records that are nearly the fastest, and other fusion alternatives, in the whole network,
            and to use those that make it faster. 0: none; by default 10 for cuda unless the target has ``-caches``, else 0.
        progress: show a line with the current step, as :func:`diapason.tune` does.
        build_timeout: seconds to compile a task.

    Raises:
        InvalidArgumentError: the model, an option or the target is invalid.
        NotFoundError: there is no such model or history.
        Error: the network is wrong (code "DATA_LOSS": no package was made), or the package could not be made.
    """
    library = _library()
    wanted = library.BuildOptions()
    wanted.target, wanted.out, wanted.histories, wanted.shipped_records = target, os.fspath(out), _paths(history), shipped_records
    wanted.check, wanted.measure, wanted.build_timeout_seconds = check, measure, float(build_timeout)
    if refine is not None:
        wanted.refine_seconds = float(refine)
    begun = time.monotonic()
    with progress_line(progress) as line:
        report = _build(model, wanted, options, line.warn, (lambda step: line.show(f"building: {step}")) if line.is_shown else None)
        line.show(f"built {report.out} in {seconds_text(time.monotonic() - begun)}")
        return report


def _build(model: Any, wanted: _tuner.BuildOptions, options: ModelOptions, warn: Callable[[str], None],
           tell: Callable[[str], None] | None = None) -> BuildReport:
    with _model(model, options) as wanted.model:
        built = _library().build(wanted, warn, tell)
    return BuildReport(**{**built, "plans": [_plan(plan) for plan in built["plans"]]})
